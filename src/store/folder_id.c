#include "store/folder_id.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Others are left out: network file systems tell what their server says, and on overlayfs a directory is born again, under its old
 * number, when something is first written into it. */
static bool gives_numbers_again(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 &&
           (fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC || fs.f_type == F2FS_SUPER_MAGIC);
}

static uint64_t born(int fd)
{
    if (!gives_numbers_again(fd))
        return 0;
#if defined STATX_BTIME && defined SYS_statx /* glibc has the function from 2.28 on */
    struct statx st;

    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) == 0 && (st.stx_mask & STATX_BTIME) &&
        st.stx_btime.tv_sec > 0)
        return (uint64_t)st.stx_btime.tv_sec * 1000000000u + st.stx_btime.tv_nsec;
#endif
    return 0;
}

bool lp_folder_look(int dirfd, const char *path, lp_folder_id *id)
{
    struct stat st;
    int saved = errno;
    /* One descriptor for all questions; where none is free, the first is answered without. */
    int own = *path ? openat(dirfd, path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1, fd = *path ? own : dirfd;

    *id = (lp_folder_id){0};
    bool there = (fd >= 0 ? fstat(fd, &st) : fstatat(dirfd, path, &st, 0)) == 0;
    if (there) {
        *id = (lp_folder_id){(uint64_t)st.st_dev, (uint64_t)st.st_ino, fd >= 0 ? born(fd) : 0};
        errno = saved;
    }
    if (own >= 0)
        close(own);
    return there;
}

bool lp_folder_is(const lp_folder_id *a, const lp_folder_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && (a->born_ns == b->born_ns || a->born_ns == 0 || b->born_ns == 0);
}
