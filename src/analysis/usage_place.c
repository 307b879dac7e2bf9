/* Where rows lie: their clocks on the grid of the run. */
#include <math.h>
#include <string.h>

#include "analysis/usage_internal.h"

#define TICK_MARGIN_S 0.001 /* a row comes with its tick or a little later, and clocks are rounded */

void lp__usage_place(lp__usage_reading *reading, const lp_identity *id)
{
    lp__usage *all = reading->all;
    lp_str boot = id->boot_id;
    size_t size = boot.size < LP__BOOT_ROOM - 1 ? boot.size : LP__BOOT_ROOM - 1;

    reading->own_place = all->placed && size > 0 && all->boot[0] &&
                         (strncmp(all->boot, boot.data, size) != 0 || all->boot[size] != '\0');
    if (!all->placed && size > 0) {
        memcpy(all->boot, boot.data, size);
        all->boot[size] = '\0';
    }
    if (!all->placed)
        all->time_ns = id->time_ns;
    reading->shifting = !reading->own_place && all->time_ns && id->time_ns && id->time_ns != all->time_ns;
    reading->shift_known = false;
    reading->shift_ns = 0;
}

/* CLOCK_MONOTONIC of the batch's first row as the host's first file counts it. Namespaces tell their clocks apart by a constant, which
 * the time of day shows. */
uint64_t lp__usage_mono(lp__usage_reading *reading, const lp_sample_batch *batch)
{
    if (reading->shifting && !reading->shift_known && reading->all->placed) {
        reading->shift_ns = (int64_t)(batch->unix_ns - batch->mono_ns) - reading->all->place_ns;
        reading->shift_known = true;
    }
    return batch->mono_ns + (uint64_t)reading->shift_ns;
}

/* Where a batch lies: Unix time less CLOCK_MONOTONIC of the host's first row. */
int64_t lp__usage_place_of(lp__usage_reading *reading, const lp_sample_batch *batch)
{
    lp__usage *all = reading->all;
    int64_t here = (int64_t)(batch->unix_ns - batch->mono_ns);

    if (reading->own_place)
        return reading->started ? reading->place_ns : here;
    if (!all->placed)
        all->place_ns = here;
    all->placed = true;
    return all->place_ns;
}

double lp__usage_tick(const lp__usage_reading *reading, int64_t place_ns)
{
    double interval_s = reading->interval_s;
    uint64_t begin = reading->all->usage->run->started_ns;

    if (reading->rows || !(interval_s < 1e9) || fabs(interval_s - reading->all->grid.width_s) > 1e-9)
        return 0.0; /* rows of anybody's making, or bins of many intervals */
    int64_t interval_ns = (int64_t)(interval_s * 1e9 + 0.5);
    if (interval_ns <= 0)
        return 0.0;
    int64_t past = (int64_t)((uint64_t)reading->shift_ns + (uint64_t)place_ns - begin) % interval_ns;
    return (double)(past < 0 ? past + interval_ns : past) / 1e9 - TICK_MARGIN_S;
}
