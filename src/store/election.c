#include "store/election.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/filename.h"
#include "core/layout.h"
#include "store/describe.h"
#include "store/files.h"
#include "store/source_facts.h"
#include "store/track.h"

#define TRIES 16
#define STARTING_S 10 /* a file that nobody has signed for so long belongs to a start that failed */
#define PREFIX ".collector-"
#define SIGNATURE "lineprofiler collector " /* pid, start time, newline */

static uint64_t inode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

void lp_election_name_in(char out[LP_ELECTION_ROOM], uint64_t pid_ns, uint64_t mnt_ns, uint64_t time_ns,
                         uint64_t run_dir_dev, uint64_t run_dir_ino)
{
    const uint64_t parts[] = {pid_ns, mnt_ns, time_ns, run_dir_dev, run_dir_ino};
    lp_filename name = lp_filename_start(out, LP_ELECTION_ROOM);

    lp_filename_put(&name, PREFIX);
    lp_filename_number(&name, LP_SEG_LAYOUT, 10);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        lp_filename_put(&name, "-");
        lp_filename_number(&name, parts[i], 16);
    }
    lp_filename_put(&name, ".lock");
}

void lp_election_name(char out[LP_ELECTION_ROOM], uint64_t run_dir_dev, uint64_t run_dir_ino)
{
    int saved = errno;

    lp_election_name_in(out, inode_of("/proc/self/ns/pid"), inode_of("/proc/self/ns/mnt"),
                        inode_of("/proc/self/ns/time"), run_dir_dev, run_dir_ino);
    errno = saved;
}

/* `text` is terminated. */
static bool is_signature(const char *text, int64_t *pid, int64_t *start)
{
    const char *at = text + sizeof SIGNATURE - 1;

    return strncmp(text, SIGNATURE, sizeof SIGNATURE - 1) == 0 && lp_digits_read(&at, pid) && *at++ == ' ' &&
           lp_digits_read(&at, start);
}

/* Has its signer died, or its starter before it could sign? The namespaces are this process's: they are in the name. */
static bool is_stray(int fd)
{
    char text[128];
    struct stat st;
    struct timespec now;
    size_t got = 0;
    int64_t pid = 0, start = 0;

    if (!lp__read_at(fd, text, sizeof text - 1, 0, &got))
        return false;
    text[got] = '\0';
    if (is_signature(text, &pid, &start))
        return !lp_describe_pid_runs(pid, start);
    clock_gettime(CLOCK_REALTIME, &now);
    return fstat(fd, &st) == 0 && now.tv_sec - st.st_mtim.tv_sec > STARTING_S;
}

bool lp_election_is_held(int dirfd, const char *name)
{
    int saved = errno;
    int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    bool held = false;

    if (fd >= 0) {
        struct stat st;
        held = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && !is_stray(fd);
        close(fd);
    }
    errno = saved;
    return held;
}

bool lp_election_seems_held(int dirfd, const char *name)
{
    char text[128];
    int64_t pid = 0, start = 0;
    int saved = errno, fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    ssize_t got = -1;

    if (fd >= 0) {
        got = pread(fd, text, sizeof text - 1, 0);
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    bool there = is_signature(text, &pid, &start) && !lp_describe_pid_is_gone(pid);
    errno = saved;
    return there || (fd >= 0 && lp_election_is_held(dirfd, name));
}

int64_t lp_election_collector(int dirfd, const char *name)
{
    char text[128];
    int64_t pid = 0, start = 0;
    size_t got = 0;
    int saved = errno, fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd >= 0) {
        if (!lp__read_at(fd, text, sizeof text - 1, 0, &got))
            got = 0;
        close(fd);
    }
    text[got] = '\0';
    bool there = is_signature(text, &pid, &start) && lp_describe_pid_runs(pid, start);
    errno = saved;
    return there ? pid : 0;
}

bool lp_election_is_ours(int dirfd, const char *name, int fd)
{
    struct stat named, opened;
    return fstat(fd, &opened) == 0 && fstatat(dirfd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

int lp_election_take(int dirfd, const char *name)
{
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

    for (int i = 0; i < TRIES; i++) {
        struct stat st;
        int fd = openat(dirfd, name, flags, 0600);
        if (fd < 0)
            return -1;
        if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
            close(fd);
            errno = EPERM;
            return -1;
        }
        if ((st.st_mode & 0777) != 0600)
            (void)fchmod(fd, 0600); /* made under a umask that took our own bits: others of ours could not open it */
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            /* A collector that left meanwhile has removed the file: its lock would elect nobody. */
            if (!lp_election_is_ours(dirfd, name, fd)) {
                close(fd);
                continue;
            }
            if (st.st_size > 0 &&
                ftruncate(fd, 0) != 0) { /* a dead one's signature: whoever reads it would replace the file */
                int reason = errno;
                close(fd);
                errno = reason;
                return -1;
            }
            return fd;
        }
        int reason = errno;
        if (reason != EWOULDBLOCK || !is_stray(fd)) {
            close(fd);
            errno = reason;
            return -1;
        }
        /* Two that come here at once may remove each other's new file. Each collector looks again whether the name leads to
         * its own, so that one of them leaves. */
        if (lp_election_is_ours(dirfd, name, fd))
            unlinkat(dirfd, name, 0);
        close(fd);
    }
    errno = EWOULDBLOCK;
    return -1;
}

bool lp_election_sign(int fd)
{
    char text[128];
    int64_t pid = getpid();
    int size = snprintf(text, sizeof text, SIGNATURE "%" PRId64 " %" PRId64 "\n", pid, lp_describe_pid_start(pid));

    return pwrite(fd, text, (size_t)size, 0) == size;
}

/* Removes a file whose lock nobody holds; false: a collector has it. */
static bool remove_idle(int dirfd, const char *name)
{
    int fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT;
    bool idle = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (idle && lp_election_is_ours(dirfd, name, fd))
        unlinkat(dirfd, name, 0);
    close(fd);
    return idle;
}

void lp_election_tidy(int dirfd, const char *path)
{
    int saved = errno;
    bool empty = true, removed = false;

    for (int round = 0; round < 3 && empty;
         round++) { /* look, locks, facts: the last only after no collector is left */
        DIR *list = lp__list(dirfd);
        for (struct dirent *entry; list && empty && (entry = readdir(list));) {
            const char *name = entry->d_name;
            bool lock = strncmp(name, PREFIX, sizeof PREFIX - 1) == 0;
            bool facts = strncmp(name, LP_SOURCE_FACTS, sizeof LP_SOURCE_FACTS - 1) == 0 ||
                         strncmp(name, LP_TRACK_FILE, sizeof LP_TRACK_FILE - 1) == 0;
            if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
                continue;
            if (round == 0)
                empty = lock || facts;
            else if (round == 1 && lock)
                empty = removed = remove_idle(dirfd, name);
            else if (round == 2)
                empty = removed = facts && unlinkat(dirfd, name, 0) == 0;
        }
        if (list)
            closedir(list);
        else
            empty = false;
    }
    if (empty && removed) /* one that was empty may be where a process is just beginning */
        rmdir(path);
    errno = saved;
}
