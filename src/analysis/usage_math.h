/* Bins over a run and points of a trend, for usage.c. Times are seconds after the run's start. */
#ifndef LP_ANALYSIS_USAGE_MATH_H
#define LP_ANALYSIS_USAGE_MATH_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/usage.h"

typedef struct lp__grid {
    double width_s;
    uint32_t bins;
} lp__grid;

/* As many bins as the interval gives, LP_USAGE_BINS at most and one at least. */
lp__grid lp__grid_of(double seconds, double interval_s);
uint32_t lp__grid_bin(const lp__grid *grid, double at_s); /* the nearest one for times outside */
/* Adds `amount` to the bins between two moments, each by the part that lies in it; all of it to one bin if from >= to. */
void lp__grid_spread(const lp__grid *grid, double *bins, double from_s, double to_s, double amount);
/* A size of one process that holds until the next row. In a bin through which the process lives its largest row there counts, or
 * where it has none, what it held; bins begin with the collector's ticks, so that one of an interval has one row of each process and
 * what one gives back while another takes it is not summed. Of processes that come or go within a bin, only what was there at one
 * time: these parts of bins are kept and put together when all are known (lp__sizes_end), or a pool that restarts its workers would
 * hold all of a bin's at once. */
typedef struct lp__part {
    uint32_t bin;
    double from_s, to_s, value;
} lp__part;
typedef struct lp__sizes { /* of all processes of a host */
    double *bins;          /* borrowed */
    lp__part *parts;       /* owned by malloc; two of a process at most */
    uint32_t count, room;
    bool failed; /* there was no memory */
} lp__sizes;
typedef struct lp__hold {
    double value;   /* since the last row; NaN before the first */
    double in_bin;  /* its largest in `bin` */
    bool carried;   /* which is the last value still, for want of a row there */
    double begin_s; /* of the first row */
    uint32_t bin, first;
} lp__hold;
void lp__hold_init(lp__hold *hold);
void lp__hold_set(lp__hold *hold, const lp__grid *grid, lp__sizes *sizes, double at_s, double value);
void lp__hold_end(lp__hold *hold, const lp__grid *grid, lp__sizes *sizes, double at_s); /* when the process goes */
void lp__sizes_add(lp__sizes *sizes, lp__part part);
bool lp__sizes_end(lp__sizes *sizes); /* false: no memory */

/* Means of neighbouring values: when there is no more room, two become one. */
typedef struct lp__points {
    double begin_s, width_s;
    double sum[LP_USAGE_TREND_BINS], time[LP_USAGE_TREND_BINS];
    uint32_t count[LP_USAGE_TREND_BINS];
    double first, last, peak;
    bool any;
} lp__points;
void lp__points_init(lp__points *points, double width_s);
void lp__points_add(lp__points *points, double at_s, double value);
void lp__points_trend(const lp__points *points, lp_usage_trend *trend);

#endif
