#include "collector/start.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collector/keeper.h"
#include "store/election.h"

#define LOCK_FD 3 /* where the collector finds the lock */
#define STACK (64u << 10)
#define KEEPER_WAIT_S 2
#define ENV_ROOM 4096
#define CLONED ((int)__WCLONE) /* children without an exit signal: nobody else's wait() sees them */

/* Everything that the children need is prepared before, on the program's side; what they find out goes into `result`. The whole
 * lies in a MAP_SHARED mapping: where CLONE_VM is emulated by a copy, the results still arrive. */
typedef struct job {
    int folder;                  /* descriptor of the program's */
    char name[LP_ELECTION_ROOM]; /* of the lock */
    char program[PATH_MAX];
    char *argv[6];
    char *envp[10];
    char env[ENV_ROOM];
    int lock; /* in the middle child */
    pid_t collector;
    uint32_t held; /* another has the lock (EAGAIN alone would not say: a refused clone gives it as well) */
    int reason;    /* errno of what failed, 0 */
    uint32_t done; /* futex: the keeper has no more to say */
    unsigned char stacks[2][STACK] __attribute__((aligned(16)));
} job;

/* ---- before ------------------------------------------------------------------------------------------------------ */

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool find_program(const char *given, char out[PATH_MAX])
{
    static const char *const places[] = {"lineprofiler-collector",
                                         "../collector/lineprofiler-collector"}; /* wheel; build tree */
    Dl_info info;

    if (given)
        return (size_t)snprintf(out, PATH_MAX, "%s", given) < PATH_MAX && is_program(out);
    if (dladdr((const void *)(uintptr_t)&lp_collector_ensure, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        int size = slash ? (int)(slash - info.dli_fname) : 0;
        for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++)
            if ((size_t)snprintf(out, PATH_MAX, "%.*s/%s", size, info.dli_fname, places[i]) < PATH_MAX &&
                is_program(out))
                return true;
    }
    return (size_t)snprintf(out, PATH_MAX, "%s", LP_LIBEXEC "/lineprofiler-collector") < PATH_MAX && is_program(out);
}

/* Of the program's environment the collector gets what git needs to find itself and its settings, where segments lie, and where the
 * GPU's library may be (as data: it is not to choose the collector's own libraries). */
static void make_environment(job *j)
{
    static const char *const names[] = {
        "PATH", "HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "LINEPROFILER_SHM_DIR", "TMPDIR", "LD_LIBRARY_PATH"};
    size_t at = 0, count = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (!value)
            continue;
        const char *name = strcmp(names[i], "LD_LIBRARY_PATH") == 0 ? "LINEPROFILER_LIBRARY_PATH" : names[i];
        int size = snprintf(j->env + at, ENV_ROOM - at, "%s=%s", name, value);
        if (size < 0 || (size_t)size >= ENV_ROOM - at)
            continue;
        j->envp[count++] = j->env + at;
        at += (size_t)size + 1;
    }
    j->envp[count] = NULL;
}

/* ---- the children: they share the program's memory, so they make system calls and store into the job, nothing else ---- */

#define CHILD __attribute__((no_sanitize("address", "thread")))

/* _exit() may be somebody's who has put it before libc's (a sanitizer's runtime ends its work in it, and that of the program with it). */
CHILD _Noreturn static void leave(int status)
{
    for (;;)
        syscall(SYS_exit_group, status);
}

/* The collector to be. The descriptor loses its close-on-exec flag in this process's own table only. A session of its own before the
 * program runs on: what kills the program's process group in its next moment leaves the collector to write what was recorded. */
CHILD static int become_collector(void *argument)
{
    job *j = argument;
    (void)setsid();
    int ok = j->lock == LOCK_FD ? fcntl(LOCK_FD, F_SETFD, 0) : dup2(j->lock, LOCK_FD);

    if (ok >= 0)
        execve(j->program, j->argv, j->envp);
    j->reason = errno;
    /* The program runs on before the kernel has closed this process's files: whoever tries next would find the lock held, and
     * believe in a collector. */
    flock(j->lock, LOCK_UN);
    leave(127);
}

/* Takes the lock here, where no fork of the program's other threads can inherit it, and starts the collector. */
CHILD static void elect_and_start(job *j)
{
    j->lock = lp_election_take(j->folder, j->name);
    if (j->lock < 0) {
        j->reason = errno;
        j->held = j->reason == EWOULDBLOCK;
        return;
    }
    pid_t pid = clone(become_collector, j->stacks[1] + STACK, CLONE_VM | CLONE_VFORK, j);
    if (pid < 0)
        j->reason = errno;
    else if (j->reason == 0)
        j->collector = pid;
}

/* The middle child: leaves the collector an orphan. */
CHILD static int be_middle(void *argument)
{
    elect_and_start(argument);
    leave(0);
}

/* ---- the program's side ------------------------------------------------------------------------------------------ */

static void wake(job *j)
{
    __atomic_store_n(&j->done, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &j->done, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void run_keeper(job *j)
{
    static pid_t last; /* of this process: one that has done its work is collected at the next start */
    const struct timespec step = {.tv_nsec = 50000000};

    if (last > 0)
        waitpid(last, NULL, WNOHANG | CLONED);
    pid_t keeper = lp__keeper_fork();
    if (keeper == 0) {
        elect_and_start(j);
        pid_t collector = j->collector;
        wake(j);
        if (!collector)
            _exit(0);
        lp__keeper_wait(collector);
    }
    if (keeper < 0) {
        j->reason = errno;
        return;
    }
    last = keeper;
    for (int i = 0; i < KEEPER_WAIT_S * 20 && !__atomic_load_n(&j->done, __ATOMIC_ACQUIRE); i++)
        syscall(SYS_futex, &j->done, FUTEX_WAIT, 0, &step, NULL, 0);
    if (!j->done)
        j->reason = ETIMEDOUT;
    else if (!j->collector)
        while (waitpid(keeper, NULL, CLONED) < 0 && errno == EINTR) {
        }
}

/* The thread sanitizer has one table of descriptors for all that share the program's memory; these children have one of their own, in which a
 * number is another file's. While they run the thread that started them stands still. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define OTHERS_DESCRIPTORS 1
#endif
#endif
#ifdef OTHERS_DESCRIPTORS
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static void others_descriptors(bool begin)
{
    if (begin) {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    } else {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
}
#else
static void others_descriptors(bool begin)
{
    (void)begin;
}
#endif

static void run_middle(job *j)
{
    others_descriptors(true);
    pid_t middle = clone(be_middle, j->stacks[0] + STACK, CLONE_VM | CLONE_VFORK, j); /* exit signal 0: no SIGCHLD */
    others_descriptors(false);

    if (middle < 0) {
        j->reason = errno;
        return;
    }
    while (waitpid(middle, NULL, CLONED) < 0 && errno == EINTR) {
    }
}

static lp_status start(const lp_collector_request *request, int folder, const char *name, lp_error *error)
{
    sigset_t all, before;
    int cancel;
    job *j = mmap(NULL, sizeof *j, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (j == MAP_FAILED)
        return lp_error_set(error, LP_E_MEMORY, errno, UINT64_MAX, "collector: no memory to start it");
    if (!find_program(request->program, j->program)) {
        munmap(j, sizeof *j);
        return lp_error_set(error, LP_E_MISSING, ENOENT, UINT64_MAX,
                            "collector: lineprofiler-collector is not installed");
    }
    j->folder = folder;
    snprintf(j->name, sizeof j->name, "%s", name);
    j->argv[0] = j->program;
    j->argv[1] = (char *)(uintptr_t)"--locked";
    j->argv[2] = (char *)(uintptr_t)request->folder;
    j->argv[3] = (char *)(uintptr_t)request->run_dir;
    j->argv[4] = (char *)(uintptr_t)request->source;
    make_environment(j);
    /* A handler of the program must not run in a child that shares its memory. */
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (lp__keeper_is_needed())
        run_keeper(j);
    else
        run_middle(j);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setcancelstate(cancel, NULL);
    int reason = j->reason;
    bool there = j->collector > 0 || j->held;
    munmap(j, sizeof *j);
    return there ? LP_OK
                 : lp_error_set(error, LP_E_UNSUPPORTED, reason, UINT64_MAX, "collector: cannot be started (error %d)",
                                reason);
}

lp_status lp_collector_ensure(const lp_collector_request *request, lp_error *error)
{
    char name[LP_ELECTION_ROOM];
    int saved = errno;
    lp_status status = LP_OK;
    int folder = request->folder_fd ? request->folder_fd - 1
                                    : open(request->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (folder < 0) {
        status = lp_error_set(error, LP_E_MISSING, errno, UINT64_MAX, "collector: the folder of segments is gone");
    } else {
        if (request->pid_ns)
            lp_election_name_in(name, request->pid_ns, request->mnt_ns, request->time_ns, request->run_dir_dev,
                                request->run_dir_ino);
        else
            lp_election_name(name, request->run_dir_dev, request->run_dir_ino);
        if (!(request->again ? lp_election_seems_held(folder, name) : lp_election_is_held(folder, name)))
            status = start(request, folder, name, error);
        if (!request->folder_fd)
            close(folder);
    }
    errno = saved;
    return status;
}
