/* Folders of segments, and what is done with the segments of dead processes.
 *
 * A folder in /dev/shm is in everybody's reach: it is ours only if we own it and nobody else may enter. Adoption:
 * whoever adopts holds an open-file-description lock (fcntl) on the segment, so that there is one at a time, and has
 * seen that the process is gone (its flock is free, or its pid is). Then the snapshot is written and synced, then the
 * segment is removed. Dying in between repeats the same snapshot under the same name: nothing is lost or doubled. */
#include "store/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/layout.h"
#include "core/wiped.h"
#include "store/election.h"
#include "store/files.h"
#include "store/folder_id.h"
#include "store/folders.h"
#include "store/segment.h"
#include "store/snapshot.h"
#include "store/source_facts.h"

#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#define HAS_OPENAT2 1
#endif

#define LEFTOVER_S 60       /* a file that has been without a header for so long belongs to nobody */
#define EMPTY_FOLDER_S 3600 /* and a folder that nothing was made in or removed from */
#define EXPIRED_S 604800    /* a week: a dead segment whose run directory is not found any more */

/* ---- folders */

static bool is_run_id(const char *run_id)
{
    size_t size = strlen(run_id);
    return size > 0 && size <= 64 && strcmp(run_id, ".") != 0 && strcmp(run_id, "..") != 0 &&
           strspn(run_id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == size;
}

/* A folder of ours that nobody else can enter. -1: errno, EPERM for one that is not. */
static int open_private(int base, const char *name, bool make)
{
    struct stat st;
    bool made = false;

    if (make && mkdirat(base, name, 0700) == 0) {
        made = true;
        fchmodat(base, name, 0700, 0); /* a umask may have taken our own bits */
    }
    int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ELOOP || (errno == ENOTDIR && !made))
            errno = EPERM; /* a link or a file in our place */
        else if (errno == EACCES)
            errno = fstatat(base, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid != geteuid() ? EPERM : EACCES;
        return -1;
    }
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

#define BASE_ROOM 1024 /* a longer path is not taken: this runs on the stacks of the user's threads */
#define PATH_ROOM (BASE_ROOM + 64 + 256 + 2)

typedef struct place {
    char base[BASE_ROOM];
    char ours[64]; /* folder below it */
} place;

/* The places to try, best first; returns their number. */
static int list_places(place out[2])
{
    const char *only = getenv("LINEPROFILER_SHM_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
    int count = 0;

    snprintf(out[0].ours, sizeof out[0].ours, "lineprofiler-%lu", (unsigned long)geteuid());
    if (only && only[0] == '/' && strlen(only) < BASE_ROOM) {
        snprintf(out[0].base, BASE_ROOM, "%s", only);
        return 1;
    }
    snprintf(out[count++].base, BASE_ROOM, "/dev/shm");
    if (runtime && runtime[0] == '/' && strlen(runtime) < BASE_ROOM) {
        snprintf(out[count].base, BASE_ROOM, "%s", runtime);
        snprintf(out[count++].ours, sizeof out[0].ours, "lineprofiler");
    }
    return count;
}

static int open_ours(const place *p, bool make)
{
    int base = open(p->base, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (base < 0)
        return -1;
    int ours = open_private(base, p->ours, make);
    int reason = errno;
    close(base);
    errno = reason;
    return ours;
}

static lp_status open_place(const place *p, const char *run_id, int *dirfd, char *path, size_t path_size,
                            lp_error *error)
{
    char shown[PATH_ROOM];
    int ours = -1, run = -1;

    snprintf(shown, sizeof shown, "%.1023s/%.63s/%.64s", p->base, p->ours, run_id);
    if (strlen(shown) >= path_size)
        return lp__fail(error, LP_E_ARGUMENT, shown, UINT64_MAX, "path too long");
    for (int i = 0; i < 3 && run < 0; i++) { /* a reader may remove a folder that has been empty for long */
        ours = open_ours(p, true);
        if (ours < 0)
            break;
        run = open_private(ours, run_id, true);
        int reason = errno;
        close(ours);
        errno = reason;
        if (run < 0 && errno != ENOENT)
            break;
    }
    if (run < 0) {
        if (errno == EPERM)
            return lp__fail(error, LP_E_UNSAFE, shown, UINT64_MAX, lp_status_text(LP_E_UNSAFE));
        return lp__fail_sys(error, errno, shown, "open");
    }
    *dirfd = run;
    snprintf(path, path_size, "%s", shown);
    return LP_OK;
}

lp_status lp_place_open(const char *run_id, int *dirfd, char *path, size_t path_size, lp_error *error)
{
    place places[2];
    int saved = errno, count = list_places(places);
    lp_status status = LP_E_MISSING;

    if (!is_run_id(run_id))
        return lp_error_set(error, LP_E_ARGUMENT, 0, UINT64_MAX, "run id: letters, digits, '.', '_', '-', at most 64");
    for (int i = 0; i < count && status != LP_OK; i++)
        status = open_place(&places[i], run_id, dirfd, path, path_size, error);
    errno = saved;
    return status;
}

int lp_place_again(const char *path)
{
    int saved = errno, fd = -1;

#ifdef HAS_OPENAT2
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    struct stat st;
    fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd >= 0 && (lp__fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0 || st.st_nlink == 0)) {
        close(fd);
        fd = -1;
    }
#else
    (void)path;
#endif
    errno = saved;
    return fd;
}

void lp__each_folder(const char *run_id, lp__folder_visit *visit, void *user)
{
    place places[2];
    int count = list_places(places);
    bool more = true;

    for (int i = 0; i < count && more; i++) {
        int ours = open_ours(&places[i], false);
        DIR *list = ours >= 0 ? lp__list(ours) : NULL;
        for (struct dirent *entry; list && more && (entry = readdir(list));) {
            char path[PATH_ROOM];
            if (!is_run_id(entry->d_name) || (run_id && strcmp(run_id, entry->d_name) != 0))
                continue;
            int run = open_private(ours, entry->d_name, false);
            if (run < 0)
                continue;
            snprintf(path, sizeof path, "%.1023s/%.63s/%.64s", places[i].base, places[i].ours, entry->d_name);
            more = visit(user, run, path);
            close(run);
        }
        if (list)
            closedir(list);
        if (ours >= 0)
            close(ours);
    }
}

int lp__open_segment(int dirfd, const char *name, dev_t *dev, ino_t *ino)
{
    struct stat st;
    int fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    uint64_t magic = 0;
    size_t got;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        !lp__read_at(fd, &magic, sizeof magic, 0, &got) || (magic != LP_SEG_MAGIC && magic != 0)) {
        close(fd);
        return -1;
    }
    *dev = st.st_dev;
    *ino = st.st_ino;
    return fd;
}

/* ---- adoption */

typedef struct adoption {
    const char *run_dir;
    lp_folder_id folder; /* of it */
    uint64_t mnt_ns;     /* where paths are looked up; 0 unknown */
    bool all;            /* runs, so that other directories' are looked at, too */
    unsigned count;
    unsigned busy;   /* dead, but somebody else is just adopting it */
    bool patient;    /* what its collector has not looked at yet, which knows how it died, is busy, too */
    lp_error *error; /* the first failure is kept */
    lp_status status;
} adoption;

bool lp__segment_claim(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool lp__segment_is_still(int dirfd, const char *name, dev_t dev, ino_t ino)
{
    struct stat st;
    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == dev && st.st_ino == ino;
}

/* A process that died before its header was written leaves a file without one, under its temporary name. A young one
 * may be just being made: created, not yet locked. */
static bool is_leftover(int fd)
{
    struct stat st;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return fstat(fd, &st) == 0 && now.tv_sec - st.st_ctim.tv_sec > LEFTOVER_S && !lp__segment_has_owner(fd);
}

/* Nobody will read it any more: its process is dead, its run directory is not where it was (and nobody could look further: the
 * device and inode alone lead to no file), and that for so long that no disk is only just away. A path that cannot be
 * looked up for another reason, or that is of another mount namespace, says nothing. */
static bool is_expired(const adoption *a, int fd, const lp_identity *id)
{
    lp_seg_header header;
    struct stat st;
    lp_folder_id there;
    struct timespec now;
    size_t got;

    if (!lp__read_at(fd, &header, sizeof header, 0, &got) || got < sizeof header || header.run_dir[0] != '/' ||
        !memchr(header.run_dir, 0, sizeof header.run_dir) || a->mnt_ns == 0 || id->mnt_ns != a->mnt_ns ||
        fstat(fd, &st) != 0)
        return false;
    const lp_folder_id was = lp__segment_run_dir(&header);
    if (lp_folder_look(AT_FDCWD, header.run_dir, &there) ? lp_folder_is(&there, &was)
                                                         : errno != ENOENT && errno != ENOTDIR)
        return false;
    uint64_t last = (uint64_t)st.st_mtim.tv_sec; /* stores through a mapping do not move it */
    for (int i = 0; i < 3; i++) {
        uint64_t ns = i == 0 ? header.started_ns : i == 1 ? header.clock.last.real_ns : header.died.real_ns;
        last = ns / 1000000000u > last ? ns / 1000000000u : last;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec > last && (uint64_t)now.tv_sec - last > EXPIRED_S && !lp__segment_has_owner(fd);
}

static lp_status adopt(adoption *a, int dirfd, const char *name, int fd, const char *shown, lp_error *error)
{
    lp_worker *worker;
    lp_track track;
    lp_seg_header header;
    size_t got;
    bool whole = lp__read_at(fd, &header, sizeof header, 0, &got) && got == sizeof header;
    lp_status known = lp_track_read(dirfd, whole ? header.time_ns : 0, &track);
    lp_status status = lp__segment_read(fd, shown, false, known == LP_OK ? &track : NULL, &worker, error);

    if (status != LP_OK)
        return status;
    worker->generation++;
    lp_source_facts facts;
    if (lp_source_facts_read(dirfd, &facts) == LP_OK)
        lp_source_facts_apply(&facts, worker->arena, &worker->id);
    status = lp_snapshot_write(a->run_dir, worker, true, error);
    lp_worker_free(worker);
    if (status == LP_OK) {
        unlinkat(dirfd, name, 0);
        a->count++;
    }
    return status;
}

/* A collector holds the run, watches its processes, and has not yet said how this one died: within a moment of the death. */
static bool is_fresh(const adoption *a, int dirfd, int fd, uint32_t state)
{
    char name[LP_ELECTION_ROOM];
    uint64_t word = 0;
    size_t got;

    if (state != LP_SEG_RECORDING || !lp__read_at(fd, &word, sizeof word, offsetof(lp_seg_header, end), &got) || word)
        return false;
    lp_election_name(name, a->folder.dev, a->folder.ino);
    return lp_election_is_held(dirfd, name);
}

static void look_at(adoption *a, int dirfd, const char *folder, const char *name)
{
    char shown[PATH_ROOM + 256];
    dev_t dev;
    ino_t ino;
    uint32_t state = LP_SEG_CREATING;
    bool owner = true;
    lp_worker *head = NULL;
    lp_error error = {0};
    int fd = lp__open_segment(dirfd, name, &dev, &ino);

    if (fd < 0)
        return;
    snprintf(shown, sizeof shown, "%s/%s", folder, name);
    lp_status status = lp__segment_look(fd, shown, &head, &state, &owner, &error);
    if (status == LP_OK && state != LP_SEG_CREATING && !lp__segment_belongs(fd, &head->id, &a->folder)) {
        if (a->all && name[0] != '.' && is_expired(a, fd, &head->id) && lp__segment_claim(fd) &&
            lp__segment_is_still(dirfd, name, dev, ino))
            unlinkat(dirfd, name, 0);
        goto done;
    }
    if (!lp__segment_claim(fd)) {
        a->busy += name[0] != '.' && status == LP_OK && !lp__segment_has_owner(fd);
        goto done;
    }
    if (!lp__segment_is_still(dirfd, name, dev, ino)) /* adopted between our open and our claim */
        goto done;
    if (status == LP_OK && state == LP_SEG_CREATING) {
        if (!owner)
            unlinkat(dirfd, name, 0); /* it never recorded anything */
    } else if (name[0] == '.') {
        if (is_leftover(fd))
            unlinkat(dirfd, name, 0);
        status = LP_OK;
    } else if (status == LP_OK && !lp__segment_has_owner(fd)) {
        if (a->patient && is_fresh(a, dirfd, fd, state))
            a->busy++;
        else
            status = adopt(a, dirfd, name, fd, shown, &error);
    }
    if (status != LP_OK && a->status == LP_OK) {
        a->status = status;
        if (a->error)
            *a->error = error;
    }

done:
    lp_worker_free(head);
    close(fd);
}

/* Nothing has happened here for an hour: the run is over. rmdir refuses what is not empty. */
static void remove_empty(int dirfd, const char *path)
{
    struct stat st;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (fstat(dirfd, &st) == 0 && now.tv_sec - st.st_mtim.tv_sec > EMPTY_FOLDER_S)
        rmdir(path);
}

static bool adopt_folder(void *user, int dirfd, const char *path)
{
    DIR *list = lp__list(dirfd);

    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0) /* temporary names begin with a dot, too */
            look_at(user, dirfd, path, entry->d_name);
    if (list)
        closedir(list);
    lp_election_tidy(dirfd, path);
    remove_empty(dirfd, path);
    return true;
}

static lp_status adopt_all(const char *run_dir, const char *run_id, bool patient, unsigned *adopted, unsigned *busy,
                           lp_error *error)
{
    struct stat st;
    int saved = errno;
    adoption a = {.run_dir = run_dir, .patient = patient, .error = error, .status = LP_OK};

    if (!lp_folder_look(AT_FDCWD, run_dir, &a.folder)) {
        a.status = lp__fail_sys(error, errno, run_dir, "open");
    } else {
        a.all = run_id == NULL;
        a.mnt_ns = stat("/proc/self/ns/mnt", &st) == 0 ? (uint64_t)st.st_ino : 0;
        lp__each_folder(run_id, adopt_folder, &a);
        if (a.all)
            lp_snapshot_tidy(run_dir);
    }
    if (adopted)
        *adopted = a.count;
    *busy = a.busy;
    errno = saved;
    return a.status;
}

lp_status lp_place_adopt(const char *run_dir, const char *run_id, unsigned *adopted, lp_error *error)
{
    unsigned busy;
    return adopt_all(run_dir, run_id, false, adopted, &busy, error);
}

void lp_place_adopt_left(const char *run_dir)
{
    unsigned busy;
    (void)adopt_all(run_dir, NULL, true, NULL, &busy, NULL);
}

lp_status lp_place_settle(const char *run_dir, const char *run_id, unsigned limit_ms, lp_error *error)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    int saved = errno;
    unsigned busy, waited = 0;
    lp_status status = adopt_all(run_dir, run_id, limit_ms > 0, NULL, &busy, error);

    for (; busy && waited < limit_ms; waited += 5) {
        nanosleep(&pause, NULL);
        status = adopt_all(run_dir, run_id, waited + 5 < limit_ms, NULL, &busy, error);
    }
    errno = saved;
    return status;
}
