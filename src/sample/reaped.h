/* What recorded children had used and their parent shows as its own. When a process waits for a child, the kernel adds the
 * child's bytes to the parent's /proc/<pid>/io, and its times and faults to cutime, cstime and cminflt: of children that have
 * samples of their own each byte would count twice, with each generation once more. So it is taken off the parent's row, as
 * far as the last row of the child knew it; the rest stays with the parent, and the sum of both is exact.
 *
 * Whether a child was waited for is told by three things together: its number has gone from /proc, cminflt has grown by its
 * faults, and the bytes by its bytes. So nothing is taken off for children that nobody waits for (SIGCHLD ignored), and no
 * interval becomes negative. Does not know which process is whose child. */
#ifndef LP_SAMPLE_REAPED_H
#define LP_SAMPLE_REAPED_H

#include "sample/process.h"

#define LP_REAPED_COLUMNS 5u

typedef struct lp_reaped_child {
    int64_t pid, start;
    int64_t ticks, faults, bytes[LP_REAPED_COLUMNS]; /* as its last row had them */
    int64_t faults_before; /* cminflt of the parent, from which on it can have grown by these */
} lp_reaped_child;

typedef struct lp_reaped { /* of a parent; zeroed: no children, no row yet */
    lp_reaped_child *at;   /* owned: recorded ones that have ended and were not waited for, as far as is known */
    uint32_t count, room;
    bool any;                                        /* there was a row: */
    int64_t faults;                                  /* its cminflt */
    int64_t bytes[LP_REAPED_COLUMNS];                /* as the kernel had them; LP_UNKNOWN_I64 */
    int64_t off_bytes[LP_REAPED_COLUMNS], off_ticks; /* of those that it has waited for */
} lp_reaped;

/* A recorded child has ended. Without memory it is forgotten. */
void lp_reaped_expect(lp_reaped *reaped, const lp_process *child);
/* Has the process's number gone from /proc? */
bool lp_reaped_is_gone(int root, int64_t pid, int64_t start);
/* After lp_process_sample of the parent: corrects the row's bytes. */
void lp_reaped_take_off(lp_reaped *reaped, int root, const lp_process *process, lp_sample *sample);
void lp_reaped_free(lp_reaped *reaped);

#endif
