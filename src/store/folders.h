/* Folders of segments, shared by place.c and rundir.c. */
#ifndef LP_STORE_FOLDERS_H
#define LP_STORE_FOLDERS_H

#include <sys/types.h>

#include "store/internal.h"

/* Calls `visit` for each run's folder of this user on this host, in all places where segments may be; run_id NULL:
 * all. The descriptor is borrowed, `path` its text. `visit` returns false to stop. */
typedef bool lp__folder_visit(void *user, int dirfd, const char *path);
void lp__each_folder(const char *run_id, lp__folder_visit *visit, void *user);

/* Opens a file of such a folder if it is a regular file of ours that begins like a segment (or is still empty). -1
 * otherwise. */
int lp__open_segment(int dirfd, const char *name, dev_t *dev, ino_t *ino);

#endif
