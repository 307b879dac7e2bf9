#include "collector/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "store/describe.h"
#include "store/end.h"
#include "store/files.h"
#include "store/folders.h"
#include "store/segment.h"

#define GRAIN_MS 100 /* the folder's time of change may be so much behind the clock */

uint64_t lp__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A pidfd of the process that wrote the segment; -1 where the kernel has none, or where the pid may be another's. */
static int open_process(int64_t pid, int64_t start)
{
#ifdef SYS_pidfd_open
    if (lp_describe_pid_start(pid) != start)
        return -1;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0u);

    /* The pid may have been given to somebody else before the open: who is seen afterwards must be the same. If nobody is, it has
     * ended just now, and the descriptor is how we learn in which way: all pids would have to be given out, and this one
     * twice, between two system calls for it to be another's. */
    int64_t now = fd >= 0 ? lp_describe_pid_start(pid) : 0;
    if (fd >= 0 && now > 0 && now != start) {
        close(fd);
        fd = -1;
    }
    return fd;
#else
    (void)pid, (void)start;
    return -1;
#endif
}

static void follow_process(lp__watch *watch, lp__watched *w, const lp_identity *id)
{
    if (id->pid <= 0 || id->pid_start <= 0 || id->pid_ns != watch->pid_ns)
        return;
    w->pid = id->pid;
    w->start = id->pid_start;
    w->pidfd = open_process(id->pid, id->pid_start);
    if (w->pidfd >= watch->fd_most) {
        close(w->pidfd);
        w->pidfd = -1;
    }
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = w}};
    if (w->pidfd >= 0 && epoll_ctl(watch->poll, EPOLL_CTL_ADD, w->pidfd, &event) != 0) {
        close(w->pidfd);
        w->pidfd = -1;
    }
}

/* Ours: of this run directory, of a process whose pid, paths and clock mean here what they mean there. */
static bool is_ours(const lp__watch *watch, const lp_identity *id, const lp_seg_header *header)
{
    const lp_folder_id run_dir = lp__segment_run_dir(header);

    return lp_folder_is(&run_dir, &watch->run_dir) &&
           (id->pid_ns == watch->pid_ns || id->pid_ns == 0 || watch->pid_ns == 0) &&
           (id->mnt_ns == watch->mnt_ns || id->mnt_ns == 0 || watch->mnt_ns == 0) &&
           (header->time_ns == watch->time_ns || header->time_ns == 0 || watch->time_ns == 0);
}

/* May fail: then the segment says what it said before. */
static void say_end(const lp__watched *w, lp_end end)
{
    uint64_t word = lp_end_pack(end);
    (void)!pwrite(w->fd, &word, sizeof word, offsetof(lp_seg_header, end));
}

static void add(lp__watch *watch, const char *name)
{
    lp_worker *head = NULL;
    lp_seg_header header;
    uint32_t state = LP_SEG_CREATING;
    bool owner = true;
    size_t got = 0;
    dev_t dev;
    ino_t ino;
    int fd = lp__open_segment(watch->folder, name, &dev, &ino);

    if (fd >= watch->fd_most) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) { /* gone again, none of ours, or no descriptor is left: the next scan tries again */
        watch->listed = (struct timespec){0};
        return;
    }
    lp_status status = lp__segment_look(fd, name, &head, &state, &owner, NULL);
    if (status == LP_OK && state == LP_SEG_CREATING) {
        if (owner)
            watch->pending++;
        else if (lp__segment_claim(fd) && lp__segment_is_still(watch->folder, name, dev, ino))
            unlinkat(watch->folder, name, 0); /* it died before it recorded anything */
        goto done;
    }
    if (status == LP_E_IO || status == LP_E_MEMORY)
        goto again;
    if (!lp__read_at(fd, &header, sizeof header, 0, &got) || got < sizeof header)
        goto again;
    lp__watched *w = calloc(1, sizeof *w);
    if (!w)
        goto again;
    snprintf(w->name, sizeof w->name, "%s", name);
    w->dev = dev;
    w->ino = ino;
    w->fd = w->pidfd = -1;
    w->cpu_ns = LP_UNKNOWN_I64;
    w->seen = true;
    w->next = watch->list;
    watch->list = w;
    if (status == LP_OK && is_ours(watch, &head->id, &header)) {
        w->fd = fd;
        fd = -1;
        w->snapshot_ns = header.snapshot_ns;
        w->sample_ns = header.sample_ns;
        w->due_ns = w->snapshot_ns ? lp__watch_due(lp__now_ns(), w->snapshot_ns) : UINT64_MAX;
        watch->count++;
        follow_process(watch, w, &head->id);
        if (w->pidfd < 0 && !lp__segment_has_owner(w->fd)) { /* dead already, as a pool's worker of one task */
            w->dead = true;
            say_end(w, lp_end_of(&head->id, header.time_ns));
        }
    }
    goto done;

again:
    watch->listed = (struct timespec){0};
done:
    lp_worker_free(head);
    if (fd >= 0)
        close(fd);
}

/* A folder tells its names in the same order each time, so the one behind the last is tried first. */
static lp__watched *find(const lp__watch *watch, const lp__watched *last, const char *name, ino_t ino)
{
    if (last && last->next && last->next->ino == ino && strcmp(last->next->name, name) == 0)
        return last->next;
    for (lp__watched *w = watch->list; w; w = w->next)
        if (w->ino == ino && strcmp(w->name, name) == 0)
            return w;
    return NULL;
}

/* Has the folder changed since the last look? Its time of change has the kernel's grain, up to 10 ms, so that one which was young at
 * the last look says nothing. */
static bool is_as_listed(lp__watch *watch)
{
    struct stat st;
    struct timespec now;

    if (fstat(watch->folder, &st) != 0) {
        watch->listed = (struct timespec){0};
        return false;
    }
    if (watch->pending == 0 && watch->listed.tv_sec && st.st_mtim.tv_sec == watch->listed.tv_sec &&
        st.st_mtim.tv_nsec == watch->listed.tv_nsec)
        return true;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (now.tv_sec - st.st_mtim.tv_sec) * 1000 + (now.tv_nsec - st.st_mtim.tv_nsec) / 1000000;
    watch->listed = age >= GRAIN_MS ? st.st_mtim : (struct timespec){0};
    return false;
}

void lp__watch_scan(lp__watch *watch)
{
    if (is_as_listed(watch)) /* asked before it is listed: what comes between is seen, and once more the next time */
        return;
    DIR *list = lp__list(watch->folder);
    lp__watched *last = NULL;

    if (!list) { /* out of descriptors or memory: what is known stays known, and nobody is waited for who cannot be seen */
        watch->pending = 0;
        watch->listed = (struct timespec){0};
        return;
    }
    watch->pending = 0;
    for (lp__watched *w = watch->list; w; w = w->next)
        w->seen = false;
    for (struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof watch->list->name) /* being made; not ours */
            continue;
        lp__watched *w = find(watch, last, entry->d_name, entry->d_ino);
        if (w)
            w->seen = true;
        else
            add(watch, entry->d_name);
        last = w;
    }
    closedir(list);
    for (lp__watched *w = watch->list, *next; w; w = next) {
        next = w->next;
        w->gone = !w->seen;
        if (w->gone && w->fd < 0)
            lp__watch_drop(watch, w);
    }
}

bool lp__watch_is_dead(const lp__watched *w)
{
    if (w->dead || w->pidfd < 0)
        return w->dead || !lp__segment_has_owner(w->fd);
    /* The pidfd tells of the process's end. What is left is that it has closed the segment or gone on as another program: then
     * the lock is free. One that a forked child has kept needs no second look here. In a process that is just dying it is free, too,
     * and how it ends is not yet to be known: the pidfd will tell. */
    if (flock(w->fd, LOCK_SH | LOCK_NB) != 0)
        return false;
    flock(w->fd, LOCK_UN);
    return !lp_end_is_near(w->pid, w->start);
}

bool lp__watch_has_ended(const lp__watched *w)
{
    struct pollfd poll_one = {.fd = w->pidfd, .events = POLLIN};
    return w->pidfd >= 0 && poll(&poll_one, 1, 0) == 1;
}

void lp__watch_died(lp__watch *watch, lp__watched *w)
{
    lp_end end = lp_end_look(w->pid, w->start, w->pidfd);
    lp_seg_clock clock;
    lp_moment now;
    size_t got;

    w->dead = true;
    lp__watch_forget_process(watch, w);
    /* The moment first: who finds `end` finds it, too. */
    if (lp__read_at(w->fd, &clock, sizeof clock, offsetof(lp_seg_header, clock), &got) && got == sizeof clock &&
        lp__segment_now(&clock, &now))
        (void)!pwrite(w->fd, &now, sizeof now, offsetof(lp_seg_header, died));
    say_end(w, end);
}

void lp__watch_forget_process(lp__watch *watch, lp__watched *w)
{
    if (w->pidfd < 0)
        return;
    /* Closing alone is not enough: a child of ours may have a copy, and the event would come with an address that is free. */
    epoll_ctl(watch->poll, EPOLL_CTL_DEL, w->pidfd, NULL);
    close(w->pidfd);
    w->pidfd = -1;
}

void lp__watch_drop(lp__watch *watch, lp__watched *w)
{
    lp__watched **link = &watch->list;

    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
    if (w->sampled && watch->dropped)
        watch->dropped(w->sampled);
    if (w->fd >= 0) {
        close(w->fd);
        watch->count--;
    }
    lp__watch_forget_process(watch, w);
    free(w);
}
