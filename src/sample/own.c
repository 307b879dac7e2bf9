#include "sample/own.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/clock.h"
#include "sample/process.h"

static void put(lp_seg_use *use, const lp_sample *sample)
{
    for (unsigned c = 0; c < LP__PROCESS_COLUMNS; c++)
        if (sample->value[c] >= 0 && lp_column_table[c].number < LP_SEG_USE_COLUMNS)
            use->column[lp_column_table[c].number] = (uint64_t)sample->value[c] + 1;
}

/* /proc has these for each thread that lives; the kernel's sum has those that have ended, too. */
static void count_switches(lp_sample *sample)
{
    struct rusage all;

    if (getrusage(RUSAGE_SELF, &all) != 0)
        return;
    lp_sample_set(sample, LP_COLUMN_SWITCHES_VOLUNTARY, all.ru_nvcsw);
    lp_sample_set(sample, LP_COLUMN_SWITCHES_FORCED, all.ru_nivcsw);
}

static void fill(lp_process *self, lp_seg_use *use)
{
    uint64_t now = lp_clock_ns(CLOCK_MONOTONIC);
    unsigned threads = 0;
    lp_sample sample;

    lp_sample_init(&sample);
    if (lp_process_sample(self, &sample, &threads) != LP_REASON_NONE)
        return;
    if (self->threads) { /* none but the first was read */
        lp_sample_miss(&sample, LP_COLUMN_RUN_DELAY, LP_REASON_NOT_DUE);
        lp_sample_miss(&sample, LP_COLUMN_THREADS_READ, LP_REASON_NOT_DUE);
    }
    count_switches(&sample);
    put(use, &sample);
    use->ticks = (uint64_t)self->total_ticks;
    use->ended_ticks = (uint64_t)self->ended_ticks;
    use->faults = (uint64_t)self->total_faults;
    use->ended_faults = (uint64_t)self->ended_faults;
    __atomic_store_n(&use->mono_ns, now, __ATOMIC_RELEASE);
}

void lp_own_use(int64_t start, lp_seg_use *use)
{
    int saved = errno, root = start > 0 ? open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    lp_process self;

    if (root >= 0) { /* the start time: a /proc of other process numbers shows somebody else */
        if (lp_process_open(&self, root, getpid(), start, true) == LP_REASON_NONE) {
            fill(&self, use);
            lp_process_close(&self);
        }
        close(root);
    }
    errno = saved;
}
