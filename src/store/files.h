/* Files, the careful way: descriptors are O_CLOEXEC, EINTR and short transfers are handled, sizes are bounded. */
#ifndef LP_STORE_FILES_H
#define LP_STORE_FILES_H

#include <dirent.h>

#include "store/internal.h"

/* All of `size` bytes at `offset`, or as many as there are: *got. false: errno says why. */
bool lp__read_at(int fd, void *data, size_t size, uint64_t offset, size_t *got);
bool lp__write_all(int fd, const void *data, size_t size);
/* Up to `limit` bytes of a file into `buffer` (terminated: buffer has limit + 1). Bytes read, -1 if it cannot be
 * opened. For the small text files of /proc, /sys and .git. `dirfd` may be AT_FDCWD. */
long lp__read_text(int dirfd, const char *path, char *buffer, size_t limit);
/* The whole file; *data is owned (free). LP_E_LIMIT beyond LP__FILE_MAX, LP_E_FOREIGN if it is no regular file. */
lp_status lp__read_file(int dirfd, const char *path, const char *name, unsigned char **data, size_t *size,
                        lp_error *error);

/* Directory below `dirfd`, never through a symbolic link; made with `mode` & ~umask if missing and `make`. -1: errno */
int lp__open_folder(int dirfd, const char *path, bool make, unsigned mode);
/* Directory with its parents, links followed as the user's path says; made if `make`. -1: errno. */
int lp__open_path(const char *path, bool make);
/* Entries of a directory, from the start. NULL: errno. `dirfd` stays the caller's. closedir() ends it. */
DIR *lp__list(int dirfd);

/* Name for a path: anything outside [A-Za-z0-9._-] becomes "_"; never "", "." or "..". Terminated. */
void lp__safe_name(char *out, size_t room, lp_str text);

/* "w_<run>_<pid>_<uuid8>", the part of a snapshot's name that its generations share, and its host folder. */
void lp__snapshot_stem(char *out, size_t room, const lp_identity *id);

#endif
