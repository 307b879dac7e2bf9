#include "collector/reset.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void close_from(int first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
        return;
#endif
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
    close_from(keep >= 0 ? 4 : 3);
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

/* As far as the hard ones allow. A core file beside the program's would only puzzle. */
static void reset_limits(void)
{
    struct rlimit limit;

    for (int which = 0; which < RLIM_NLIMITS; which++)
        if (getrlimit(which, &limit) == 0) {
            limit.rlim_cur = which == RLIMIT_CORE ? 0 : limit.rlim_max;
            setrlimit(which, &limit);
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
