/* Where segments live: /dev/shm/lineprofiler-<uid>/<run>/, else $XDG_RUNTIME_DIR/lineprofiler/<run>/. Folders 0700,
 * owner checked, opened component by component with O_NOFOLLOW. LINEPROFILER_SHM_DIR replaces both (tests). For use
 * inside the user's program: errno is kept. */
#ifndef LP_STORE_PLACE_H
#define LP_STORE_PLACE_H

#include <stddef.h>

#include "core/status.h"

/* Opens (and makes) the run's folder; *dirfd is owned by the caller. `path` gets its text for messages. */
lp_status lp_place_open(const char *run_id, int *dirfd, char *path, size_t path_size, lp_error *error);
/* The folder that lp_place_open has given before, by its path: for a forked child. -1 where it is gone, not ours any more, or the
 * kernel cannot say that no link leads there (before 5.6): then it is opened as the first time. Owned. */
int lp_place_again(const char *path);
/* For every dead segment of the run directory (device, inode): writes its snapshot (unclean unless closed) into
 * run_dir, synced, and removes it after the rename succeeded. run_id NULL: any run. Several at once adopt each segment once.
 * Best effort: the first failure is returned after the others were tried, and its segment stays. Removes, too, what was
 * left by processes that died before they recorded, folders that have been empty for an hour, and, with run_id NULL, what belongs
 * to nobody any more: dead segments of run directories that have been gone for a week, half-written snapshots of writers that were
 * killed. *adopted (may be
 * NULL) is set always. */
lp_status lp_place_adopt(const char *run_dir, const char *run_id, unsigned *adopted, lp_error *error);
/* The same for a collector, of any run: what has a living collector that has not said yet how it died (the caller's own processes,
 * too) is left to that one. */
void lp_place_adopt_left(const char *run_dir);
/* The same, but dead segments that another (the collector) is just adopting are waited for, at most limit_ms; what is still busy then
 * is that one's to finish. So are those whose collector has not said yet how they died; after limit_ms they are adopted without. */
lp_status lp_place_settle(const char *run_dir, const char *run_id, unsigned limit_ms, lp_error *error);

#endif
