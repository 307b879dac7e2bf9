/* Bins over a run and points of a trend. */
#include "analysis/usage_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

lp__grid lp__grid_of(double seconds, double interval_s)
{
    double width = interval_s > 0.0 ? interval_s : 1.0, bins = ceil(seconds / width);

    if (!(bins >= 1.0))
        return (lp__grid){width, 1};
    if (bins > LP_USAGE_BINS)
        return (lp__grid){seconds / LP_USAGE_BINS, LP_USAGE_BINS};
    return (lp__grid){width, (uint32_t)bins};
}

uint32_t lp__grid_bin(const lp__grid *grid, double at_s)
{
    double bin = at_s / grid->width_s;

    return !(bin > 0.0) ? 0 : bin >= (double)grid->bins ? grid->bins - 1 : (uint32_t)bin;
}

/* Seconds of [from, to] in a bin; the first and the last one reach out to what lies outside the grid. */
static double part_of(const lp__grid *grid, uint32_t bin, double from_s, double to_s)
{
    double begin = bin * grid->width_s, end = (bin + 1) * grid->width_s;
    double low = bin == 0 || begin < from_s ? from_s : begin; /* not fmax() and fmin(), which are calls */
    double high = bin + 1 == grid->bins || end > to_s ? to_s : end;

    return high > low ? high - low : 0.0;
}

void lp__grid_spread(const lp__grid *grid, double *bins, double from_s, double to_s, double amount)
{
    uint32_t first = lp__grid_bin(grid, from_s), last = lp__grid_bin(grid, to_s);

    if (first >= last || !(to_s > from_s)) {
        bins[last] += amount;
        return;
    }
    double a_second = amount / (to_s - from_s);
    for (uint32_t i = first; i <= last; i++)
        bins[i] += a_second * part_of(grid, i, from_s, to_s);
}

void lp__hold_init(lp__hold *hold)
{
    *hold = (lp__hold){.value = (double)NAN};
}

void lp__sizes_add(lp__sizes *sizes, lp__part part)
{
    if (sizes->count == sizes->room) {
        uint32_t room = sizes->room ? 2 * sizes->room : 64;
        lp__part *grown = realloc(sizes->parts, room * sizeof *grown);
        if (!grown) {
            sizes->failed = true;
            return;
        }
        sizes->parts = grown;
        sizes->room = room;
    }
    sizes->parts[sizes->count++] = part;
}

/* What `bin` has from this process is complete, and it goes on in the next. */
static void leave_bin(lp__hold *hold, const lp__grid *grid, lp__sizes *sizes)
{
    if (hold->bin == hold->first)
        lp__sizes_add(sizes, (lp__part){hold->bin, hold->begin_s, (hold->bin + 1) * grid->width_s, hold->in_bin});
    else
        sizes->bins[hold->bin] += hold->in_bin;
}

static void hold_up_to(lp__hold *hold, const lp__grid *grid, lp__sizes *sizes, double at_s)
{
    uint32_t to = lp__grid_bin(grid, at_s);

    while (hold->bin < to) {
        leave_bin(hold, grid, sizes);
        hold->bin++;
        hold->in_bin = hold->value;
        hold->carried = true;
    }
}

void lp__hold_set(lp__hold *hold, const lp__grid *grid, lp__sizes *sizes, double at_s, double value)
{
    if (isnan(hold->value)) {
        hold->bin = hold->first = lp__grid_bin(grid, at_s);
        hold->begin_s = at_s;
        hold->in_bin = value;
    } else {
        hold_up_to(hold, grid, sizes, at_s);
    }
    hold->value = value;
    hold->in_bin = hold->carried ? value : fmax(hold->in_bin, value);
    hold->carried = false;
}

void lp__hold_end(lp__hold *hold, const lp__grid *grid, lp__sizes *sizes, double at_s)
{
    if (!isnan(hold->value)) {
        hold_up_to(hold, grid, sizes, at_s);
        double from_s = hold->bin == hold->first ? hold->begin_s : hold->bin * grid->width_s;
        lp__sizes_add(sizes, (lp__part){hold->bin, from_s, fmax(at_s, from_s), hold->in_bin});
    }
    lp__hold_init(hold);
}

typedef struct turn { /* a part comes or goes */
    uint32_t bin;
    double at_s, by;
} turn;

static int turn_order(const void *a, const void *b)
{
    const turn *x = a, *y = b;

    if (x->bin != y->bin)
        return x->bin < y->bin ? -1 : 1;
    if (x->at_s != y->at_s)
        return x->at_s < y->at_s ? -1 : 1;
    return (x->by < y->by) - (x->by > y->by); /* one moment is a time, too */
}

bool lp__sizes_end(lp__sizes *sizes)
{
    turn *turns = sizes->failed ? NULL : malloc((2u * sizes->count + 1u) * sizeof *turns);
    uint32_t count = 2 * sizes->count;

    for (uint32_t i = 0; turns && i < sizes->count; i++) {
        const lp__part *part = &sizes->parts[i];
        turns[2 * i] = (turn){part->bin, part->from_s, part->value};
        turns[2 * i + 1] = (turn){part->bin, part->to_s, -part->value};
    }
    free(sizes->parts);
    *sizes = (lp__sizes){.bins = sizes->bins};
    if (!turns)
        return false;
    if (count > 1)
        qsort(turns, count, sizeof *turns, turn_order);
    for (uint32_t i = 0; i < count;) {
        uint32_t bin = turns[i].bin;
        double now = 0.0, most = 0.0;
        for (; i < count && turns[i].bin == bin; i++) {
            now += turns[i].by;
            most = fmax(most, now);
        }
        sizes->bins[bin] += most;
    }
    free(turns);
    return true;
}

void lp__points_init(lp__points *points, double width_s)
{
    memset(points, 0, sizeof *points);
    points->width_s = width_s > 0.0 ? width_s : 1.0;
}

static void points_halve(lp__points *points)
{
    for (uint32_t i = 0; i < LP_USAGE_TREND_BINS; i++) {
        bool kept = 2 * i + 1 < LP_USAGE_TREND_BINS;
        points->sum[i] = kept ? points->sum[2 * i] + points->sum[2 * i + 1] : 0.0;
        points->time[i] = kept ? points->time[2 * i] + points->time[2 * i + 1] : 0.0;
        points->count[i] = kept ? points->count[2 * i] + points->count[2 * i + 1] : 0;
    }
    points->width_s *= 2.0;
}

void lp__points_add(lp__points *points, double at_s, double value)
{
    if (!points->any) {
        points->begin_s = at_s;
        points->first = points->peak = value;
        points->any = true;
    }
    points->last = value;
    points->peak = fmax(points->peak, value);
    double at = fmax(at_s - points->begin_s, 0.0);
    while (at / points->width_s >= LP_USAGE_TREND_BINS && points->width_s < 1e12)
        points_halve(points);
    uint32_t i = (uint32_t)fmin(at / points->width_s, LP_USAGE_TREND_BINS - 1);
    points->sum[i] += value;
    points->time[i] += at;
    points->count[i]++;
}

/* Ordinary least squares over points. Memory sizes follow each other, so neighbouring residuals are alike and the usual
 * standard error would be far too small: it is widened as if there were n (1 - r) / (1 + r) points, r being the
 * correlation of neighbours (the effective sample size of a first-order autoregressive series). */
static void fit(const double *time, const double *value, uint32_t n, double *slope, double *error)
{
    double mean_t = 0.0, mean_v = 0.0, sxx = 0.0, sxy = 0.0, squares = 0.0, products = 0.0, before = 0.0;

    *slope = *error = (double)NAN;
    for (uint32_t i = 0; i < n; i++) {
        mean_t += time[i] / n;
        mean_v += value[i] / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        sxx += (time[i] - mean_t) * (time[i] - mean_t);
        sxy += (time[i] - mean_t) * (value[i] - mean_v);
    }
    if (n < 8 || !(sxx > 0.0))
        return;
    *slope = sxy / sxx;
    for (uint32_t i = 0; i < n; i++) {
        double rest = value[i] - mean_v - *slope * (time[i] - mean_t);
        squares += rest * rest;
        products += i > 0 ? rest * before : 0.0;
        before = rest;
    }
    double r = squares > 0.0 ? fmin(fmax(products / squares, 0.0), 0.98) : 0.0;
    double effective = fmax(n * (1.0 - r) / (1.0 + r), 3.0);
    *error = sqrt(squares / (n - 2) / sxx * (n / effective));
}

void lp__points_trend(const lp__points *points, lp_usage_trend *trend)
{
    double time[LP_USAGE_TREND_BINS], value[LP_USAGE_TREND_BINS], nan = (double)NAN;
    uint32_t n = 0;

    *trend = (lp_usage_trend){.first = nan,
                              .last = nan,
                              .peak = nan,
                              .growth = nan,
                              .slope = nan,
                              .slope_error = nan,
                              .late_slope = nan,
                              .late_error = nan};
    if (!points->any)
        return;
    trend->first = points->first;
    trend->last = points->last;
    trend->peak = points->peak;
    for (uint32_t i = 0; i < LP_USAGE_TREND_BINS; i++)
        if (points->count[i] > 0) {
            time[n] = points->time[i] / points->count[i];
            value[n] = points->sum[i] / points->count[i];
            if (n > 0 && value[n] - value[n - 1] > trend->step) {
                trend->step = value[n] - value[n - 1];
                trend->step_at_s = time[n];
            }
            n++;
        }
    if (n > 1)
        trend->growth = points->last - points->first;
    fit(time, value, n, &trend->slope, &trend->slope_error);
    fit(time + n / 2, value + n / 2, n - n / 2, &trend->late_slope, &trend->late_error);
}
