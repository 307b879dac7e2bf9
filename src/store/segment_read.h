/* Reading a segment (core/layout.h): of this process, of a living one, of a dead one. Trusts nothing. */
#ifndef LP_STORE_SEGMENT_READ_H
#define LP_STORE_SEGMENT_READ_H

#include "store/model.h"

/* From an open file by pread. Undo records are applied, ticks become ns with the longest baseline at hand, threads are
 * merged (below their names if the header says thread_names), open phases are listed. `living` from the lock or
 * pid and start time. `name` is put before error texts. `fd` must not carry a flock of the caller's: it would be
 * dropped. LP_E_BUSY: recording has not begun. */
lp_status lp_segment_read_fd(int fd, const char *name, lp_worker **worker, lp_error *error);
/* From the mapping of this very process (or any stable memory of `size` bytes). `size` is the capacity where other threads
 * may store meanwhile: the newest names could lie beyond an earlier `used`, which does for a still one. `now` may be NULL; else the present moment on the segment's clocks (core/clock.h), used as the end of open phases and of the
 * baseline, and other threads may store into the segment meanwhile. Keeps errno. */
struct lp_moment;
lp_status lp_segment_read_memory(const void *base, size_t size, const struct lp_moment *now, lp_worker **worker,
                                 lp_error *error);
/* true: the process that wrote it is alive and records. Tests flock(LOCK_SH|LOCK_NB), then pid and start time; no flock
 * of the caller's on `fd` here either. */
bool lp_segment_is_living(int fd);

#endif
