/* How the clocks of a host went while a run lasted: one instant on three clocks (lp_moment) each second, thinned, and the steps that
 * the time of day made. The collector keeps it; snapshots carry it, so that ticks of any moment of a long run can be told as time of
 * day, and so that a clock that was set in between does not pass for time that went by. */
#ifndef LP_STORE_TRACK_H
#define LP_STORE_TRACK_H

#include "core/layout.h"
#include "store/model.h"

#define LP_TRACK_MOMENTS 32u
#define LP_TRACK_STEPS 8u
#define LP_TRACK_FILE                                                                                                  \
    ".clock-" /* and the time namespace in hexadecimal: in the run's folder of segments, for whoever writes a snapshot */

typedef struct lp_clock_step {
    uint64_t mono_ns; /* CLOCK_MONOTONIC at the first look after it */
    uint64_t real_ns; /* the time of day then */
    int64_t by_ns;    /* how far the time of day ran ahead of the monotonic clock (< 0: fell back) */
    uint64_t slept;   /* 1: the machine was suspended, the monotonic clock stood; 0: the clock was set */
} lp_clock_step;

typedef struct lp_track {
    uint32_t count, step_count;
    uint32_t more_steps;            /* further ones that had no room */
    uint32_t every;                 /* one look in so many is kept; doubles when there is no room */
    uint32_t skipped;               /* looks since the last kept one */
    uint32_t edge;                  /* bit i: at[i] stands beside a step, and stays */
    lp_moment last;                 /* the latest look */
    uint64_t boot_ns;               /* CLOCK_BOOTTIME of it */
    lp_moment at[LP_TRACK_MOMENTS]; /* ascending in mono_ns */
    lp_clock_step steps[LP_TRACK_STEPS];
} lp_track;

/* A look at the clocks; an all-zero track is empty. true: what is kept has changed by it. */
bool lp_track_add(lp_track *track, const lp_moment *now, uint64_t boottime_ns);
/* Time of day (Unix, ns) of a moment in ticks; `fallback` where the track does not reach. `mult`: ns = ticks * mult / 2^32, for the
 * rest of the way from the nearest moment. */
uint64_t lp_track_real_ns(const lp_track *track, uint64_t ticks, uint64_t mult, uint64_t fallback);
/* Copies what concerns a worker that has recorded since `since_ns` (CLOCK_MONOTONIC) into worker->track; with the latest look as the
 * last moment, and in ticks of the worker's clock (an lp_clock_kind; one of two kinds on a host, the other is CLOCK_MONOTONIC).
 * Without memory the worker has none. */
void lp_track_apply(const lp_track *track, uint32_t clock_kind, uint64_t since_ns, lp_worker *worker);

/* The file in a folder of segments: written whole and renamed; reading gives LP_E_MISSING where there is none. `time_ns` is the inode of
 * the time namespace in which the clocks were read (0: unknown); CLOCK_MONOTONIC of another would pass for a step. errno kept. */
lp_status lp_track_write(int dirfd, uint64_t time_ns, const lp_track *track);
lp_status lp_track_read(int dirfd, uint64_t time_ns, lp_track *track);

#endif
