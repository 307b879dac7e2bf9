/* Where segments live: /dev/shm/lineprofiler-<uid>/<run>/, else $XDG_RUNTIME_DIR/lineprofiler/<run>/. Folders 0700,
 * owner checked, opened component by component with O_NOFOLLOW. LINEPROFILER_SHM_DIR replaces /dev/shm (tests). */
#ifndef LP_STORE_PLACE_H
#define LP_STORE_PLACE_H

#include <stddef.h>

#include "core/status.h"

/* Opens (and makes) the run's folder; *dirfd is owned by the caller. `path` gets its text for messages. */
lp_status lp_place_open(const char *run_id, int *dirfd, char *path, size_t path_size, lp_error *error);
/* Adopts dead segments: for every dead segment of the run directory (device, inode), writes its snapshot (unclean unless
 * closed) into run_dir and removes it after the rename succeeded. run_id NULL: any run. Best effort; *adopted may be NULL. */
lp_status lp_place_adopt(const char *run_dir, const char *run_id, unsigned *adopted, lp_error *error);

#endif
