/* A run directory that does not stand under its path any more: moved away, perhaps with a link or another directory in its place.
 * Its collector has it open, so there is a way to it. For use inside the user's program: errno is kept. */
#ifndef LP_STORE_HELD_H
#define LP_STORE_HELD_H

#include "store/folder_id.h"

/* Opens the run directory as its collector holds it; `folder` is that of the run's segments. Owned by the
 * caller. -1: it has no collector, or has been removed. */
int lp_held_open(const char *folder, const lp_folder_id *run_dir);

#endif
