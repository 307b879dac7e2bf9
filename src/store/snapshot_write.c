/* A snapshot onto the disk: whole, under a temporary name, then renamed. Runs inside the user's program (and in the
 * collector), so it raises nothing, prints nothing and leaves errno, signals and cancellation as they were. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "store/files.h"
#include "store/snapshot.h"

#define NAME_ROOM 256
#define LEFTOVER_S 600 /* a half-written file that nothing was written to for so long, and whose writer is gone */

/* A write beyond RLIMIT_FSIZE sends SIGXFSZ to the thread, whose default kills the process. Blocked and taken back, it
 * leaves EFBIG. */
typedef struct shield {
    sigset_t before;
    bool blocked, pending;
    int cancel;
} shield;

static void raise_shield(shield *s)
{
    sigset_t set, pending;

    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    s->pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    s->blocked = pthread_sigmask(SIG_BLOCK, &set, &s->before) == 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &s->cancel);
}

static void lower_shield(const shield *s)
{
    sigset_t set;

    if (s->blocked) {
        if (!s->pending) {
            sigemptyset(&set);
            sigaddset(&set, SIGXFSZ);
            while (sigtimedwait(&set, NULL, &(struct timespec){0}) < 0 && errno == EINTR) {
            }
        }
        pthread_sigmask(SIG_SETMASK, &s->before, NULL);
    }
    pthread_setcancelstate(s->cancel, NULL);
}

int lp_snapshot_folder(const char *run_dir, lp_str host)
{
    char name[129];
    int run = lp__open_path(run_dir, true), workers = -1, folder = -1;

    lp__safe_name(name, sizeof name, host);
    if (run >= 0)
        workers = lp__open_folder(run, "workers", true, 0777);
    if (workers >= 0)
        folder = lp__open_folder(workers, name, true, 0777);
    int reason = errno;
    if (workers >= 0)
        close(workers);
    if (run >= 0)
        close(run);
    errno = reason;
    return folder;
}

static int create(int folder, const char *temporary)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(folder, temporary, flags, 0666);

    if (fd < 0 && errno == EEXIST) { /* left by a process that died here and had our pid and thread id */
        unlinkat(folder, temporary, 0);
        fd = openat(folder, temporary, flags, 0666);
    }
    if (fd >=
        0) { /* so that lp_snapshot_tidy knows that we live; where nothing can be locked it leaves the file alone */
        int saved = errno;
        flock(fd, LOCK_EX | LOCK_NB);
        errno = saved;
    }
    return fd;
}

/* NFS may report a failure of a rename that was done: the answer got lost and the repeated request found nothing. */
static bool rename_done(int folder, const char *temporary, const char *name, ino_t ino)
{
    struct stat st;

    if (renameat(folder, temporary, folder, name) == 0)
        return true;
    int reason = errno;
    bool done = fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == ino;
    errno = reason;
    return done;
}

/* Removes what this snapshot replaces. Generations of failed writes leave gaps, so a few are tried; what stays is
 * harmless: readers take the highest. */
static void remove_older(int folder, const char *stem, uint32_t generation, bool final)
{
    char name[NAME_ROOM];

    if (final) { /* a process that is about to close has written its living state under the same number */
        snprintf(name, sizeof name, "%s.%u.snap", stem, (unsigned)generation);
        unlinkat(folder, name, 0);
    }
    for (uint32_t back = 1; back <= 3 && back <= generation; back++) {
        snprintf(name, sizeof name, "%s.%u.snap", stem, (unsigned)(generation - back));
        if (unlinkat(folder, name, 0) == 0)
            break;
        snprintf(name, sizeof name, "%s.%u.final.snap", stem, (unsigned)(generation - back));
        if (unlinkat(folder, name, 0) == 0)
            break;
    }
}

static lp_status store(int folder, const char *shown, const lp_worker *worker, const lp_buffer *bytes, bool sync,
                       lp_error *error)
{
    char stem[NAME_ROOM / 2], name[NAME_ROOM], temporary[NAME_ROOM + 32];
    struct stat st;
    const char *what = "create a file in";
    int fd;

    lp__snapshot_stem(stem, sizeof stem, &worker->id);
    snprintf(name, sizeof name, "%s.%u%s.snap", stem, (unsigned)worker->generation, worker->final ? ".final" : "");
    snprintf(temporary, sizeof temporary, ".%s.%ld.tmp", name, (long)syscall(SYS_gettid));
    fd = create(folder, temporary);
    if (fd < 0)
        return lp__fail_sys(error, errno, shown, what);
    what = "write a file in";
    if (!lp__write_all(fd, bytes->data, bytes->size))
        goto failed;
    if (sync && fsync(fd) != 0)
        goto failed;
    if (fstat(fd, &st) != 0)
        goto failed;
    int closed = close(fd); /* where NFS reports what it could not store */
    fd = -1;
    if (closed != 0 && errno != EINTR)
        goto failed;
    what = "rename a file in";
    if (!rename_done(folder, temporary, name, st.st_ino))
        goto failed;
    remove_older(folder, stem, worker->generation, worker->final);
    if (sync)
        fsync(folder); /* some file systems refuse (EINVAL): the file itself is safe already */
    return LP_OK;

failed:;
    int reason = errno;
    if (fd >= 0)
        close(fd);
    unlinkat(folder, temporary, 0);
    return lp__fail_sys(error, reason, shown, what);
}

lp_status lp_snapshot_put(int folder, const char *shown, const lp_worker *worker, bool sync, lp_error *error)
{
    lp_buffer bytes = {0};
    lp_status status = lp_snapshot_encode(worker, &bytes);

    if (status == LP_OK)
        status = store(folder, shown, worker, &bytes, sync, error);
    else
        lp__fail(error, status, shown, UINT64_MAX, "no memory for a snapshot");
    lp_buffer_free(&bytes);
    return status;
}

lp_status lp_snapshot_write(const char *run_dir, const lp_worker *worker, bool sync, lp_error *error)
{
    int saved = errno;
    lp_status status;
    shield s;

    raise_shield(&s);
    int folder = lp_snapshot_folder(run_dir, worker->id.host);
    if (folder >= 0) {
        status = lp_snapshot_put(folder, run_dir, worker, sync, error);
        close(folder);
    } else {
        status = lp__fail_sys(error, errno, run_dir, "make the folder for snapshots");
    }
    lower_shield(&s);
    errno = saved;
    return status;
}

/* ---- what killed writers left */

static bool is_temporary(const char *name)
{
    size_t size = strlen(name);
    return size > 7 && memcmp(name, ".w_", 3) == 0 && memcmp(name + size - 4, ".tmp", 4) == 0;
}

static void remove_leftover(int folder, const char *name)
{
    struct stat opened, named;
    struct timespec now;
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    if (fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) && opened.st_uid == geteuid() &&
        now.tv_sec - opened.st_mtim.tv_sec > LEFTOVER_S && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_dev == opened.st_dev &&
        named.st_ino == opened.st_ino)
        unlinkat(folder, name, 0);
    close(fd);
}

static void tidy_host(int workers, const char *host)
{
    int folder = lp__open_folder(workers, host, false, 0);
    DIR *list = folder >= 0 ? lp__list(folder) : NULL;

    for (struct dirent *entry; list && (entry = readdir(list));)
        if (is_temporary(entry->d_name))
            remove_leftover(folder, entry->d_name);
    if (list)
        closedir(list);
    if (folder >= 0)
        close(folder);
}

void lp_snapshot_tidy(const char *run_dir)
{
    int saved = errno, run = lp__open_path(run_dir, false);
    int workers = run >= 0 ? lp__open_folder(run, "workers", false, 0) : -1;
    DIR *list = workers >= 0 ? lp__list(workers) : NULL;

    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            tidy_host(workers, entry->d_name);
    if (list)
        closedir(list);
    if (workers >= 0)
        close(workers);
    if (run >= 0)
        close(run);
    errno = saved;
}
