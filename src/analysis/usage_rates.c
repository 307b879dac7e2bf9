/* What was used in a second, in the busiest moment. The rows of a host stand on ticks, so its processes' intervals begin and end together, and
 * what they used is summed in bins that do, too: in bins that begin with the run an interval would lie in two, and its height be lost.
 *
 * Bin 0 is the time before the first tick, so there is one more than the grid has. Hosts have ticks of their own; beside each other they lie by
 * the numbers of their bins, so up to an interval apart. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/usage_internal.h"
#include "store/arena.h"

static lp__grid ticks(const lp__usage *all)
{
    return (lp__grid){all->grid.width_s, all->grid.bins + 1};
}

static bool new_rates(lp_arena *arena, uint32_t count, lp__rates *rates)
{
    double **const all[] = {&rates->cpu_s, &rates->read, &rates->write, &rates->covered};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(*all[i] = lp_arena_take(arena, count * sizeof **all[i])))
            return false;
    return true;
}

bool lp__rates_new(lp__usage *all)
{
    uint32_t count = ticks(all).bins;

    return new_rates(all->usage->arena, count, &all->host_rates) &&
           new_rates(all->usage->arena, count, &all->run_rates);
}

void lp__rates_add(lp__usage *all, double tick_s, double *bins, double from_s, double to_s, double amount)
{
    lp__grid grid = ticks(all);
    double by = grid.width_s - tick_s;

    if (!isnan(amount))
        lp__grid_spread(&grid, bins, from_s + by, to_s + by, amount);
}

typedef struct span {
    double from, to;
} span;

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

/* How much of each bin was sampled: of the time between first and last row of at least one of them. */
static void cover(const lp__grid *grid, span *spans, uint32_t count, double *bins)
{
    double until = -(double)INFINITY;

    if (count > 1)
        qsort(spans, count, sizeof *spans, by_begin);
    for (uint32_t i = 0; i < count; i++) {
        double from = fmax(spans[i].from, until);
        if (spans[i].to > from)
            lp__grid_spread(grid, bins, from, spans[i].to, spans[i].to - from);
        until = fmax(until, spans[i].to);
    }
    for (uint32_t i = 0; i < grid->bins; i++) /* the outer ones have what lies outside */
        bins[i] = fmin(bins[i], grid->width_s);
}

lp_status lp__rates_cover(const lp__usage *all, const lp_usage_process *processes, uint32_t count, double *bins,
                          double *at_ticks)
{
    lp__grid grid = ticks(all);
    span *spans = malloc((count + 1u) * sizeof *spans);

    if (!spans)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        spans[i] = (span){processes[i].from_s, processes[i].to_s};
    cover(&all->grid, spans, count, bins);
    for (uint32_t i = 0; i < count; i++) {
        double by = grid.width_s - processes[i].tick_s;
        spans[i] = (span){processes[i].from_s + by, processes[i].to_s + by};
    }
    cover(&grid, spans, count, at_ticks);
    free(spans);
    return LP_OK;
}

void lp__rates_end_host(lp__usage *all)
{
    double *const from[] = {all->host_rates.cpu_s, all->host_rates.read, all->host_rates.write};
    double *const to[] = {all->run_rates.cpu_s, all->run_rates.read, all->run_rates.write};

    for (uint32_t i = 0; i < ticks(all).bins; i++) {
        for (size_t k = 0; k < sizeof from / sizeof *from; k++) {
            to[k][i] += from[k][i];
            from[k][i] = 0.0;
        }
        all->host_rates.covered[i] = 0.0;
    }
}

/* The last bin may be a rest of one, and a process may begin in the middle of another: a rate is over the time that was
 * sampled in a bin, where that is at least half of one. */
static double highest_rate(const lp__grid *grid, const double *bins, const double *covered)
{
    double most = 0.0, all = 0.0, seconds = 0.0;

    for (uint32_t i = 0; i < grid->bins; i++) {
        if (covered[i] >= grid->width_s / 2)
            most = fmax(most, bins[i] / covered[i]);
        all += bins[i];
        seconds += covered[i];
    }
    return seconds > 0.0 ? fmax(most, all / seconds) : (double)NAN;
}

double lp__rates_peak(const lp__usage *all, const double *bins, const double *covered,
                      const lp_usage_process *processes, uint32_t count, size_t figure)
{
    lp__grid grid = ticks(all);
    double most = (double)NAN, one;

    for (uint32_t i = 0; i < count; i++) {
        memcpy(&one, (const char *)&processes[i] + figure, sizeof one);
        most = fmax(most, one);
    }
    return count == 1 && !isnan(most) ? most : fmax(most, highest_rate(&grid, bins, covered));
}
