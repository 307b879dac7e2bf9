#include "collector/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collector/source.h"
#include "collector/write.h"
#include "store/election.h"
#include "store/place.h"

#define MS 1000000ull
#define TICK_NS (1000 * MS)  /* locks are asked, the folder is read, though nothing has happened */
#define ROUND_NS (10 * MS)   /* between two rounds: what happens meanwhile is done together */
#define BURIAL_NS (100 * MS) /* between two writings of dead processes, for the same reason */
#define PENDING_NS (5 * MS)  /* until a process that is just beginning has begun */
#define LINGER_NS (100 * MS) /* a program that runs one process after the other needs one collector only */

typedef struct collector {
    lp__watch watch;
    lp__writer writer;
    char lock_name[LP_ELECTION_ROOM];
    int lock;             /* owned; -1: the folder is gone, and nobody else can come */
    int signals, changes; /* owned: signalfd, inotify (-1 none) */
    pid_t asking;         /* the child that asks git, 0 none */
    bool write_all;
    uint64_t tick_ns, burial_ns, empty_ns; /* next look; last writing of the dead; empty since, 0 not */
} collector;

static uint64_t inode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static bool open_watch(collector *c, const lp__collector_task *task)
{
    lp__watch *w = &c->watch;
    struct stat st;

    w->folder = open(task->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    w->run = open(task->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    w->poll = epoll_create1(EPOLL_CLOEXEC);
    if (w->folder < 0 || w->run < 0 || w->poll < 0 || strlen(task->folder) >= sizeof w->path ||
        strlen(task->run_dir) >= sizeof w->run_path || fstat(w->folder, &st) != 0 || st.st_uid != geteuid() ||
        (st.st_mode & 077) != 0 || fstat(w->run, &st) != 0)
        return false;
    w->run_dev = (uint64_t)st.st_dev;
    w->run_ino = (uint64_t)st.st_ino;
    snprintf(w->path, sizeof w->path, "%s", task->folder);
    snprintf(w->run_path, sizeof w->run_path, "%s", task->run_dir);
    snprintf(w->run_text, sizeof w->run_text, "/proc/self/fd/%d", w->run);
    w->pid_ns = inode_of("/proc/self/ns/pid");
    w->mnt_ns = inode_of("/proc/self/ns/mnt");
    w->time_ns = inode_of("/proc/self/ns/time");
    c->writer.watch = w;
    lp_election_name(c->lock_name, w->run_dev, w->run_ino);
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
        sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
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
    return listen_to(c, c->signals, &c->signals);
}

static void hear_signals(collector *c)
{
    struct signalfd_siginfo info;

    while (read(c->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGCHLD)
            c->write_all = true;
        while (c->asking > 0 && waitpid(c->asking, NULL, WNOHANG) == c->asking)
            c->asking = 0;
    }
}

/* Waits until something happens, at most until `until`; true: the folder has changed. */
static bool wait_for_events(collector *c, uint64_t until)
{
    struct epoll_event events[64];
    char names[4096] __attribute__((aligned(8)));
    uint64_t now = lp__now_ns();
    bool changed = false;
    int timeout = until > now ? (int)((until - now + MS - 1) / MS) : 0;
    int count = epoll_wait(c->watch.poll, events, 64, timeout);

    for (int i = 0; i < count; i++) {
        void *who = events[i].data.ptr;
        if (who == &c->signals) {
            hear_signals(c);
        } else if (who == &c->changes) {
            changed = true;
            while (read(c->changes, names, sizeof names) > 0) {
            }
        } else {
            lp__watch_died(&c->watch, who);
        }
    }
    return changed;
}

/* Segments that keep us: of the living, and of the dead whose snapshot may still succeed. */
static unsigned keeping(const collector *c)
{
    unsigned count = c->watch.pending;

    for (const lp__watched *w = c->watch.list; w; w = w->next)
        count += w->fd >= 0 && !(w->failures >= LP__HOPELESS && lp__watch_is_dead(w));
    return count;
}

static void least(uint64_t *a, uint64_t b)
{
    if (b < *a)
        *a = b;
}

static uint64_t next_event(const collector *c)
{
    uint64_t now = lp__now_ns(), next = c->tick_ns;

    if (c->watch.pending)
        least(&next, now + PENDING_NS);
    if (c->empty_ns)
        least(&next, c->empty_ns + LINGER_NS);
    for (const lp__watched *w = c->watch.list; w; w = w->next) {
        if (w->fd < 0)
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
        unlinkat(w->folder, LP_SOURCE_FACTS, 0);
        if (lp_election_is_ours(w->folder, c->lock_name, c->lock))
            unlinkat(w->folder, c->lock_name, 0);
        close(c->lock);
        c->lock = -1;
    }
    lp__watch_scan(w);
    if (keeping(c) == 0) {
        rmdir(w->path);
        return false;
    }
    c->lock = lp_election_take(w->folder, c->lock_name);
    if (c->lock < 0 && errno == EWOULDBLOCK)
        return false; /* one of those has started another */
    if (c->lock >= 0)
        lp_election_sign(c->lock);
    if (c->writer.facts.commit[0])
        lp_source_facts_write(w->folder, &c->writer.facts);
    return true;
}

static void end_asking(collector *c)
{
    if (c->asking <= 0)
        return;
    kill(-c->asking, SIGKILL); /* with its git: nothing stays after the run */
    kill(c->asking, SIGKILL);
    waitpid(c->asking, NULL, 0);
}

/* One round. false: over. */
static bool go_round(collector *c, bool changed)
{
    uint64_t now = lp__now_ns();
    bool tick = now >= c->tick_ns;

    if (tick) {
        c->tick_ns = now + TICK_NS;
        if (!stay_elected(c))
            return false;
    }
    if (tick || changed || c->watch.pending)
        lp__watch_scan(&c->watch);
    if ((tick || now >= c->burial_ns + BURIAL_NS) && lp__write_dead(&c->writer, tick))
        c->burial_ns = lp__now_ns();
    lp__write_living(&c->writer, c->write_all);
    c->write_all = false;
    if (keeping(c)) {
        c->empty_ns = 0;
        return true;
    }
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
    bool changed = true;

    c.lock = task->lock;
    if (!open_watch(&c, task))
        return 2;
    if (c.lock < 0)
        c.lock = lp_election_take(c.watch.folder, c.lock_name);
    if (c.lock < 0)
        return errno == EWOULDBLOCK ? 0 : 2;
    if (!open_events(&c) || !lp_election_sign(c.lock))
        return 2;
    lp__watch_scan(&c.watch);
    if (task->source[0])
        c.asking = lp__source_ask(task->source, c.watch.folder);
    lp_place_adopt(c.watch.run_text, NULL, NULL, NULL); /* what earlier runs into this directory left */
    c.tick_ns = lp__now_ns() + TICK_NS;
    for (;;) {
        uint64_t began = lp__now_ns();
        if (!go_round(&c, changed))
            break;
        changed = wait_for_events(&c, next_event(&c));
        uint64_t now = lp__now_ns();
        if (now < began + ROUND_NS) {
            struct timespec rest = {.tv_nsec = (long)(began + ROUND_NS - now)};
            nanosleep(&rest, NULL);
            changed |= wait_for_events(&c, 0);
        }
    }
    end_asking(&c);
    return 0;
}
