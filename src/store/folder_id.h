/* Which directory is it, whatever it is called: a run directory is told by this from those that other processes record into. */
#ifndef LP_STORE_FOLDER_ID_H
#define LP_STORE_FOLDER_ID_H

#include <stdbool.h>
#include <stdint.h>

/* ext4, XFS and F2FS give the number of a directory that was removed to the next one that is made: there the moment counts, too, in
 * which it was made. */
typedef struct lp_folder_id {
    uint64_t dev, ino;
    uint64_t born_ns; /* Unix time (statx(2), btime); 0: unknown, or a file system that gives no number twice */
} lp_folder_id;

/* `path` beneath dirfd (or AT_FDCWD), or dirfd itself for "". false: errno says why, *id is zeros. Else errno stays as it was. */
bool lp_folder_look(int dirfd, const char *path, lp_folder_id *id);
bool lp_folder_is(const lp_folder_id *a, const lp_folder_id *b);

#endif
