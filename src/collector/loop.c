/* The loop: watching, orders for the disk, periodic jobs, leaving. One thread, the only owner of the watch table; it makes no system
 * call on the run directory but to open it at the start. What does is the thread for the disk (disk.h): the loop posts a batch of
 * orders when that one is free, and takes the outcomes when it says that it has done.
 *
 * A new periodic job (a sampler, …): write a function `void xxx_tick(collector *c, uint64_t now)`, keep its state in `collector`, and
 * give it a line in `jobs` with its interval. It is called in this thread, once an interval, never to make up for what was missed;
 * it may read the watch table (entries with fd < 0 are not ours; of a `busy` one the disk thread reads the segment, too) and must
 * not wait: no disk, no driver that may hang. What may hang needs a thread of its own and a mailbox as disk.h has one, whose
 * eventfd `listen_to` adds to what wakes the loop. */
#include "collector/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collector/disk.h"
#include "collector/orders.h"
#include "collector/sampler.h"
#include "collector/source.h"
#include "core/clock.h"
#include "store/election.h"

#define MS 1000000ull
#define TICK_NS (1000 * MS)  /* locks are asked, the folder is read, though nothing has happened */
#define ROUND_NS (10 * MS)   /* between two rounds: what happens meanwhile is done together */
#define BURIAL_NS (100 * MS) /* between two writings of dead processes, for the same reason */
#define PENDING_NS (5 * MS)  /* until a process that is just beginning has begun */
#define FDS_FREE 14          /* for what is only opened for a moment, by both threads */
#define LINGER_NS (100 * MS) /* a program that runs one process after the other needs one collector only */

typedef struct collector {
    lp__watch watch;
    lp__disk disk;
    lp__sampler sampler;
    lp_source_facts facts; /* commit "" until git has answered */
    lp_track track;        /* how the clocks go */
    char lock_name[LP_ELECTION_ROOM];
    int lock;                     /* owned; -1: the folder is gone, and nobody else can come */
    int signals, changes;         /* owned: signalfd, inotify (-1 none) */
    pid_t asking;                 /* the child that asks git, 0 none */
    bool write_all;               /* what was asked for is not ordered yet */
    bool adopt;                   /* so is what earlier runs left */
    bool look;                    /* every lock is to be asked */
    bool in_flight;               /* the disk has a batch */
    bool superseded;              /* another one is elected */
    bool handed_over;             /* and has what it can see */
    bool changed;                 /* the folder is to be read */
    uint64_t burial_ns, empty_ns; /* last writing of the dead; empty since, 0 not */
} collector;

typedef struct job { /* periodic */
    uint64_t interval_ns;
    void (*tick)(collector *c, uint64_t now);
    uint64_t due_ns;
} job;

static void look_tick(collector *c, uint64_t now);
static void clock_tick(collector *c, uint64_t now);

static job jobs[] = {
    {.interval_ns = TICK_NS, .tick = look_tick},
    {.interval_ns = TICK_NS, .tick = clock_tick},
};
#define JOBS (sizeof jobs / sizeof *jobs)

static uint64_t inode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* How many descriptors are kept is bounded by the hard limit, to which the soft one was raised. Segments come first, then what each
 * process has to be sampled by, then files of /proc that need not be opened anew each time. */
static void share_descriptors(lp__watch *w)
{
    struct rlimit limit;
    bool few = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < INT_MAX;

    w->fd_most = few && limit.rlim_cur > FDS_FREE ? (int)limit.rlim_cur - FDS_FREE : few ? 0 : INT_MAX;
    lp__text_keep_below(w->fd_most / 3);
}

static bool open_watch(collector *c, const lp__collector_task *task)
{
    lp__watch *w = &c->watch;
    lp__writer *writer = &c->disk.writer;
    struct stat st;

    w->folder = open(task->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    writer->run = open(task->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    w->poll = epoll_create1(EPOLL_CLOEXEC);
    if (w->folder < 0 || writer->run < 0 || w->poll < 0 || strlen(task->folder) >= sizeof w->path ||
        fstat(w->folder, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0 ||
        !lp_folder_look(writer->run, "", &w->run_dir))
        return false;
    snprintf(w->path, sizeof w->path, "%s", task->folder);
    writer->folder = w->folder;
    writer->run_path = task->run_dir;
    snprintf(writer->run_text, sizeof writer->run_text, "/proc/self/fd/%d", writer->run);
    w->pid_ns = inode_of("/proc/self/ns/pid");
    w->mnt_ns = inode_of("/proc/self/ns/mnt");
    w->time_ns = inode_of("/proc/self/ns/time");
    share_descriptors(w);
    lp_election_name(c->lock_name, w->run_dir.dev, w->run_dir.ino);
    return true;
}

static bool listen_to(collector *c, int fd, void *who)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = who}};
    return fd >= 0 && epoll_ctl(c->watch.poll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool open_events(collector *c)
{
    static const int numbers[] = {SIGTERM, SIGHUP, SIGINT, SIGCHLD};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&set, numbers[i]); /* blocked since the reset */
    c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    c->changes =
        inotify_init1(IN_CLOEXEC | IN_NONBLOCK); /* a user has a limited number: without one, once a second does */
    char folder[64];
    snprintf(folder, sizeof folder, "/proc/self/fd/%d", c->watch.folder);
    if (c->changes >= 0 && (inotify_add_watch(c->changes, folder, IN_MOVED_TO | IN_DELETE | IN_ONLYDIR) < 0 ||
                            !listen_to(c, c->changes, &c->changes))) {
        close(c->changes);
        c->changes = -1;
    }
    return lp__sampler_start(&c->sampler, &c->watch) && listen_to(c, c->signals, &c->signals) &&
           lp__disk_start(&c->disk) && listen_to(c, c->disk.done, &c->disk);
}

static void hear_signals(collector *c)
{
    struct signalfd_siginfo info;

    while (read(c->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            c->write_all = true;
            c->watch.asked++;
        }
        while (c->asking > 0 && waitpid(c->asking, NULL, WNOHANG) == c->asking)
            c->asking = 0;
    }
}

/* Takes what inotify says. true: of a segment, or it has lost count. What begins with a dot is our own (the clock's file is renamed
 * now and then), or not a segment yet. */
static bool hear_changes(collector *c)
{
    char names[4096] __attribute__((aligned(8)));
    bool changed = false;

    for (ssize_t size; (size = read(c->changes, names, sizeof names)) > 0;) {
        struct inotify_event event;
        for (ssize_t at = 0; at + (ssize_t)sizeof event <= size; at += (ssize_t)(sizeof event + event.len)) {
            memcpy(&event, names + at, sizeof event);
            changed |= event.len == 0 || names[at + (ssize_t)sizeof event] != '.';
        }
    }
    if (changed)
        c->watch.listed = (struct timespec){0};
    return changed;
}

/* Waits until something happens, at most until `until`; true: the folder has changed. */
static bool wait_for_events(collector *c, uint64_t until)
{
    struct epoll_event events[64];
    uint64_t now = lp__now_ns();
    bool changed = false;
    int timeout = until > now ? (int)((until - now + MS - 1) / MS) : 0;
    int count = epoll_wait(c->watch.poll, events, 64, timeout);

    for (int i = 0; i < count; i++) {
        void *who = events[i].data.ptr;
        if (who == &c->signals) {
            hear_signals(c);
        } else if (who == &c->changes) {
            changed |= hear_changes(c);
        } else if (who != &c->disk) { /* its batch is taken in the round */
            lp__watch_died(&c->watch, who);
        }
    }
    return changed;
}

/* Segments that keep us: of the living, and of the dead whose snapshot may still succeed. */
static unsigned keeping(const collector *c)
{
    unsigned count = c->watch.pending + lp__streams_pending(&c->sampler.streams);

    for (const lp__watched *w = c->watch.list; w; w = w->next)
        count += w->fd >= 0 && (w->busy || !(w->failures >= LP__HOPELESS && lp__watch_is_dead(w)));
    return count;
}

static void least(uint64_t *a, uint64_t b)
{
    if (b < *a)
        *a = b;
}

static uint64_t next_event(const collector *c)
{
    uint64_t now = lp__now_ns(), next = UINT64_MAX;

    for (size_t i = 0; i < JOBS; i++)
        least(&next, jobs[i].due_ns);
    if (c->watch.pending)
        least(&next, now + PENDING_NS);
    if (c->empty_ns)
        least(&next, c->empty_ns + LINGER_NS);
    least(&next, lp__sampler_due(&c->sampler));
    if (!c->in_flight)
        least(&next, lp__streams_due(&c->sampler.streams));
    for (const lp__watched *w = c->watch.list; w; w = w->next) {
        if (w->fd < 0 || c->in_flight) /* then the disk wakes us */
            continue;
        if (w->dead || w->gone)
            least(&next, w->retry_ns > c->burial_ns + BURIAL_NS ? w->retry_ns : c->burial_ns + BURIAL_NS);
        else
            least(&next, w->due_ns);
    }
    return next;
}

/* The lock's file was removed or replaced by somebody who took us for dead, or who emptied the folder. false: there is another
 * collector now. */
static bool stay_elected(collector *c)
{
    if (c->lock >= 0 && lp_election_is_ours(c->watch.folder, c->lock_name, c->lock))
        return true;
    if (c->lock >= 0)
        close(c->lock);
    c->lock = lp_election_take(c->watch.folder, c->lock_name);
    if (c->lock < 0)
        return errno != EWOULDBLOCK; /* the folder itself is gone: those who still live in it have nobody but us */
    return lp_election_sign(c->lock);
}

/* Unlocks, looks once more, and stays if anybody lives: a process that came before we unlocked has seen a collector and started none;
 * one that comes later finds the lock free. false: over. */
static bool decide_to_stay(collector *c)
{
    lp__watch *w = &c->watch;

    if (c->lock >= 0) {
        if (lp_election_is_ours(w->folder, c->lock_name, c->lock))
            unlinkat(w->folder, c->lock_name, 0);
        close(c->lock);
        c->lock = -1;
    }
    w->listed = (struct timespec){0};
    lp__watch_scan(w);
    if (keeping(c) == 0) {
        lp_election_tidy(w->folder, w->path); /* the facts that we left there, if no other collector needs them */
        rmdir(w->path);
        return false;
    }
    c->lock = lp_election_take(w->folder, c->lock_name);
    if (c->lock < 0 && errno == EWOULDBLOCK)
        return false; /* one of those has started another */
    if (c->lock >= 0)
        lp_election_sign(c->lock);
    return true;
}

/* Another collector is there. What has a name it finds, and looks after; what has lost its name nobody sees but us, so we stay for that. */
static void hand_over(collector *c)
{
    lp__watch *w = &c->watch;

    w->listed = (struct timespec){0};
    lp__watch_scan(w);
    for (lp__watched *one = w->list, *next; one; one = next) {
        next = one->next;
        if (!one->gone)
            lp__watch_drop(w, one);
    }
    w->pending = 0;
    c->handed_over = true;
}

static void end_asking(collector *c)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    if (c->asking <= 0)
        return;
    kill(-c->asking, SIGKILL); /* with its git: nothing stays after the run */
    kill(c->asking, SIGKILL);
    for (int i = 0; i < 100 && waitpid(c->asking, NULL, WNOHANG) == 0; i++) /* one that hangs on its disk ends later */
        nanosleep(&pause, NULL);
}

static void take_batch(collector *c)
{
    const lp__batch *batch = lp__disk_take(&c->disk);

    if (!batch)
        return;
    c->in_flight = false;
    lp__streams_take(&c->sampler.streams, batch, lp__now_ns());
    if (lp__settle_orders(&c->watch, batch))
        c->burial_ns = lp__now_ns();
}

/* Orders for the disk, if it is free. */
static void post_batch(collector *c)
{
    lp__batch *batch = lp__disk_free(&c->disk);

    if (!batch)
        return;
    if (!c->facts.commit[0])
        lp_source_facts_read(c->watch.folder, &c->facts);
    batch->facts = c->facts;
    batch->track = c->track;
    batch->adopt = c->adopt;
    if (c->look || lp__now_ns() >= c->burial_ns + BURIAL_NS)
        lp__order_dead(&c->watch, batch, c->look);
    if (lp__order_living(&c->watch, batch, c->write_all) && c->write_all) {
        batch->sync = true;
        c->write_all = false;
    }
    c->adopt = c->look = false;
    lp__streams_give(&c->sampler.streams, batch, lp__now_ns());
    if (!batch->count && !batch->append_count && !batch->adopt && !batch->sync)
        return;
    c->in_flight = true;
    lp__disk_post(&c->disk);
}

static void do_jobs(collector *c, uint64_t now)
{
    for (size_t i = 0; i < JOBS; i++) {
        if (now < jobs[i].due_ns)
            continue;
        jobs[i].due_ns =
            (now / jobs[i].interval_ns + 1) * jobs[i].interval_ns; /* on the sampler's grid: one waking less */
        jobs[i].tick(c, now);
    }
}

/* What no event tells: a lock that is free, a name that came while inotify had no room, a collector that has taken our place. */
static void look_tick(collector *c, uint64_t now)
{
    (void)now;
    if (!c->superseded)
        c->superseded = !stay_elected(c);
    c->look = c->changed = true;
}

/* How the clocks went: into our snapshots, and through the file into those that the processes write themselves. */
static void clock_tick(collector *c, uint64_t now)
{
    lp_moment moment;

    (void)now;
    lp_clock_moment(&moment);
    if (lp_track_add(&c->track, &moment, lp_clock_ns(CLOCK_BOOTTIME)))
        lp_track_write(c->watch.folder, c->watch.time_ns, &c->track);
}

/* One round. false: over. */
static bool go_round(collector *c)
{
    uint64_t now = lp__now_ns();

    do_jobs(c, now);
    if (!c->superseded && (c->changed || c->watch.pending))
        lp__watch_scan(&c->watch);
    c->changed = false;
    take_batch(c);
    if (c->superseded && !c->handed_over && !c->in_flight)
        hand_over(c);
    lp__sampler_run(&c->sampler, now, c->write_all);
    if (c->watch.count == 0)
        lp__sampler_rest(&c->sampler);
    post_batch(c);
    if (c->in_flight || keeping(c)) {
        c->empty_ns = 0;
        return true;
    }
    if (c->superseded)
        return false;
    if (!c->empty_ns)
        c->empty_ns = now;
    if (now < c->empty_ns + LINGER_NS)
        return true;
    c->empty_ns = 0;
    return decide_to_stay(c);
}

int lp__collector_run(const lp__collector_task *task)
{
    static collector c; /* larger than a page: not on the stack, so that it costs nothing twice */

    c.lock = task->lock;
    if (c.lock >= 0 && !lp_election_sign(c.lock)) /* before the run directory is opened, which may hang: we are here */
        return 2;
    if (!open_watch(&c, task))
        return 2;
    if (c.lock < 0) {
        c.lock = lp_election_take(c.watch.folder, c.lock_name);
        if (c.lock < 0)
            return errno == EWOULDBLOCK ? 0 : 2;
        if (!lp_election_sign(c.lock))
            return 2;
    }
    if (task->source[0]) /* while there is one thread: what is forked off calls more than a signal handler may */
        c.asking = lp__source_ask(task->source, c.watch.folder);
    if (!open_events(&c))
        return 2;
    lp_clock_init(-1);
    lp_track_read(c.watch.folder, c.watch.time_ns, &c.track); /* what one before us has seen */
    clock_tick(&c, 0);
    c.adopt = c.changed = true; /* what earlier runs into this directory left; what is there */
    for (size_t i = 0; i < JOBS; i++)
        jobs[i].due_ns = lp__now_ns() + jobs[i].interval_ns;
    for (;;) {
        uint64_t began = lp__now_ns();
        if (!go_round(&c))
            break;
        c.changed |= wait_for_events(&c, next_event(&c));
        uint64_t now = lp__now_ns();
        if (now < began + ROUND_NS) {
            struct timespec rest = {.tv_nsec = (long)(began + ROUND_NS - now)};
            nanosleep(&rest, NULL);
            c.changed |= wait_for_events(&c, 0);
        }
    }
    end_asking(&c);
    lp__disk_end(&c.disk);
    return 0;
}
