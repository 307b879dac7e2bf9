/* Memory that was there between two rows and is in neither: the kernel keeps the largest resident size that a process has had (VmHWM), and where
 * that has risen since the row before, the process held as much in between.
 *
 * Of several processes together it is what they held in the bins of that time, with the largest size in place of the process's own: of a time that
 * covers several bins the one in which least was held, for nobody knows in which of them it was; and of processes that rose in the same
 * time only one, for nobody knows whether they did at the same moment. Nor do those count that came or went in a bin. So a sum is never more than
 * what was there, as far as the others held what their rows show. */
#include <math.h>

#include "analysis/usage_internal.h"

/* Of two in one time the one of which the rows show less. */
void lp__peak_add(lp__peak *to, const lp__peak *peak)
{
    if (peak->most > 0.0 && !(peak->most - peak->between <= to->most - to->between))
        *to = *peak;
}

/* The least that the others held in that time. */
static double others(const lp__peak *peak, uint32_t last, const double *bins)
{
    double least = fmax(bins[last] - peak->at_to, 0.0);

    for (uint32_t i = peak->from; i < last; i++)
        least = fmin(least, fmax(bins[i] - (i == peak->from ? peak->at_from : peak->between), 0.0));
    return least;
}

double lp__peaks_of(const lp__peak *peaks, const double *bins, uint32_t count)
{
    double most = 0.0;

    for (uint32_t i = 0; i < count; i++)
        if (peaks[i].most > 0.0)
            most = fmax(most, peaks[i].most + others(&peaks[i], i, bins));
    return most;
}

/* What the process has in the bin is complete. */
static void leave_bin(lp__high *high, lp__peak *peaks)
{
    high->rise.at_to = high->in_bin;
    if (high->rise.most > high->rise.between)
        lp__peak_add(&peaks[high->bin], &high->rise);
    high->rise = (lp__peak){0};
    high->in_bin = 0.0;
}

bool lp__high_row(lp__high *high, lp__peak *peaks, uint32_t bin, double rss, double most)
{
    bool rose =
        most > high->most; /* not if one is NaN: what it had at its first row is not of the time that is known */

    if (high->any && bin != high->bin)
        leave_bin(high, peaks);
    high->any = true;
    high->bin = bin;
    high->in_bin = fmax(high->in_bin, rss);
    high->since = fmax(high->since, rss);
    high->rise.between = fmax(high->rise.between, rss);
    if (bin == high->from)
        high->at_from = high->in_bin;
    if (rose) {
        if (high->rise.most == 0.0)
            high->rise = (lp__peak){.from = high->from, .at_from = high->at_from};
        high->rise.most = most;
        high->rise.between = fmax(high->rise.between, high->since);
    }
    if (!isnan(most)) {
        high->most = most; /* less than before where somebody has let it begin anew (clear_refs) */
        high->from = bin;
        high->at_from = high->since = high->in_bin;
    }
    return rose;
}

void lp__high_init(lp__high *high)
{
    *high = (lp__high){.most = (double)NAN};
}

void lp__high_end(lp__high *high, lp__peak *peaks)
{
    if (high->any)
        leave_bin(high, peaks);
}
