#include "collector/reset.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As the kernel writes them, see getdents64(2). */
typedef struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t size;
    uint8_t type;
    char name[];
} entry;

/* By the list of those that are open, without memory of its own: it may run in a copy of a process with threads. false: no list. */
static bool close_listed(int first)
{
    union {
        entry first;
        char room[2048];
    } list;
    int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long got = -1;

    if (folder < 0)
        return false;
    /* The kernel lists by number and goes on after the last one it told, so none is passed over when that is closed. */
    while ((got = syscall(SYS_getdents64, folder, list.room, sizeof list.room)) > 0) {
        for (long at = 0; at < got;) {
            const entry *one = (const entry *)(const void *)(list.room + at);
            int fd = one->name[0] >= '0' && one->name[0] <= '9' ? atoi(one->name) : -1;
            if (fd >= first && fd != folder)
                close(fd);
            at += one->size;
        }
    }
    close(folder);
    return got == 0;
}

void lp__close_from(int first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
        return; /* Linux 5.9 */
#endif
    if (close_listed(first))
        return;
    long most = sysconf(_SC_OPEN_MAX);
    for (long fd = first; fd < (most > 0 && most < 1 << 20 ? most : 1 << 20); fd++)
        close((int)fd);
}

static void reset_descriptors(int keep)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (keep >= 0 && keep != 3) {
        dup2(keep, 3);
        keep = 3;
    }
    for (int fd = 0; fd < 3; fd++)
        if (null < 0 || (null != fd && dup2(null, fd) < 0))
            close(fd);
    if (null >= 0 && null < 3)
        fcntl(null, F_SETFD, 0); /* it stands where one of the three was closed */
    if (keep >= 0)
        fcntl(keep, F_SETFD, FD_CLOEXEC);
    lp__close_from(keep >= 0 ? 4 : 3);
}

static void reset_signals(void)
{
    sigset_t ours;

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL); /* those that cannot be set have no handler */
    signal(SIGPIPE, SIG_IGN);
    /* Those that are read by signalfd stay blocked all the time: one that comes before it is open must not end us. */
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGCHLD);
    sigprocmask(SIG_SETMASK, &ours, NULL);
}

#ifdef __GLIBC__
typedef __rlimit_resource_t resource;
#else
typedef int resource;
#endif

/* As far as the hard ones allow. A core file beside the program's would only puzzle. */
static void reset_limits(void)
{
    struct rlimit limit;

    for (int which = 0; which < RLIM_NLIMITS; which++)
        if (getrlimit((resource)which, &limit) == 0) {
            limit.rlim_cur = which == RLIMIT_CORE ? 0 : limit.rlim_max;
            setrlimit((resource)which, &limit);
        }
}

static void reset_scheduling(void)
{
    const struct sched_param normal = {0};
    unsigned char every[1024]; /* CPUs; the kernel leaves out those that are not there or not allowed */

    sched_setscheduler(0, SCHED_OTHER, &normal);
    setpriority(PRIO_PROCESS, 0, 0); /* a program that is nice stays so: only root may go back */
#ifdef SYS_ioprio_set
    syscall(SYS_ioprio_set, 1 /* a process */, 0, 0 /* by its nice value */);
#endif
    memset(every, 0xff, sizeof every);
    sched_setaffinity(0, sizeof every, (const cpu_set_t *)(const void *)every);
}

void lp__collector_reset(int keep)
{
    setsid();
    reset_descriptors(keep);
    reset_signals();
    reset_limits();
    reset_scheduling();
    umask(umask(0) & 077);
    if (chdir("/") != 0) {
        /* then the program's directory stays in use, no more */
    }
}
