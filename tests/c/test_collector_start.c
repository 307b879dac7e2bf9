/* Starting a collector from a process that must not notice: its children, signals, errno, stack of the other threads. The collector is
 * the real one; the recorder is that of recording.h. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "collector/start.h"
#include "recording.h"
#include "store/election.h"
#include "test_folder.h"

static char folder[64], segments[128], run_dir[128];
static lp_collector_request request;

static void begin(void)
{
    struct stat st;
    make_folder(folder);
    snprintf(segments, sizeof segments, "%s/segments", folder);
    snprintf(run_dir, sizeof run_dir, "%s/run", folder);
    mkdir(segments, 0700);
    mkdir(run_dir, 0755);
    stat(run_dir, &st);
    request = (lp_collector_request){.folder = segments,
                                     .run_dir = run_dir,
                                     .run_dir_dev = (uint64_t)st.st_dev,
                                     .run_dir_ino = (uint64_t)st.st_ino,
                                     .source = "",
                                     .program = getenv("LP_TEST_COLLECTOR")};
    setenv("LINEPROFILER_SHM_DIR", folder, 1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* false: after ten seconds still not. */
static bool comes_true(bool (*condition)(void))
{
    for (double end = now() + 10; now() < end; usleep(2000))
        if (condition())
            return true;
    return false;
}

static bool is_held(void)
{
    char name[LP_ELECTION_ROOM];
    lp_election_name(name, request.run_dir_dev, request.run_dir_ino);
    int dir = open(segments, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool held = dir >= 0 && lp_election_is_held(dir, name);
    if (dir >= 0)
        close(dir);
    return held;
}

static bool is_over(void)
{
    return !exists(segments);
}

static bool has_snapshot(void)
{
    return count_files(text("%s/workers/host", run_dir)) > 0;
}

/* A recording child of this run directory; killed by the caller. */
static pid_t record(int *ready)
{
    int pair[2];
    if (pipe(pair) != 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        lp_recorder *recorder = recording_start(segments);
        if (!recorder)
            _exit(1);
        lp_seg_header *h = lp_segment_header(&recorder->segment);
        h->run_dir_dev = request.run_dir_dev;
        h->run_dir_ino = request.run_dir_ino;
        leave(recorder, NULL, enter(recorder, NULL, "step"));
        enter(recorder, NULL, "open");
        if (write(pair[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(pair[1]);
    *ready = pair[0];
    char c;
    CHECK_EQ(read(*ready, &c, 1), 1);
    close(*ready);
    return pid;
}

static volatile sig_atomic_t signals;
static void count_signal(int number)
{
    (void)number;
    signals++;
}

static void it_runs_while_somebody_records(void)
{
    int ready;
    begin();
    pid_t recorded = record(&ready);
    CHECK_EQ(lp_collector_ensure(&request, NULL), LP_OK);
    CHECK(comes_true(is_held));
    for (int i = 0; i < 50; i++)
        CHECK_EQ(lp_collector_ensure(&request, NULL), LP_OK); /* there is one */
    double killed = now();
    kill(recorded, SIGKILL);
    CHECK(comes_true(has_snapshot));
    double took = now() - killed;
    waitpid(recorded, NULL, 0);
    CHECK(comes_true(is_over)); /* with its folder */
    CHECK_EQ(count_files(text("%s/workers/host", run_dir)), 1);
    CHECK(took < 5.0); /* the recorder of these tests gives no start time: it is the lock that tells, once a second */
    printf("# a killed process is on the disk after %.3f s, the folder gone after %.3f s\n", took, now() - killed);
    remove_folder(folder);
}

static bool has_said(void)
{
    return exists(text("%s/said", folder));
}

/* The program that is started stands in for a collector that has not run an instruction yet: it only says where it is. */
static void it_has_a_session_of_its_own_from_the_first(void)
{
    int pid = 0, group = 0, session = 0;
    begin();
    FILE *script = fopen(text("%s/program", folder), "w");
    fprintf(script,
            "#!/bin/sh\nread -r pid name state parent group session rest < /proc/self/stat\n"
            "echo $pid $group $session > %s/saying && mv %s/saying %s/said\n",
            folder, folder, folder);
    fclose(script);
    chmod(text("%s/program", folder), 0755);
    char program[sizeof folder + 8];
    snprintf(program, sizeof program, "%s/program", folder);
    request.program = program;
    CHECK_EQ(lp_collector_ensure(&request, NULL), LP_OK);
    CHECK(comes_true(has_said));
    FILE *said = fopen(text("%s/said", folder), "r");
    CHECK_EQ(said ? fscanf(said, "%d %d %d", &pid, &group, &session) : 0, 3);
    if (said)
        fclose(said);
    CHECK(pid > 0);
    CHECK_EQ(group, pid);
    CHECK_EQ(session, pid);
    remove_folder(folder);
}

static void it_leaves_when_nobody_records(void)
{
    begin();
    CHECK_EQ(lp_collector_ensure(&request, NULL), LP_OK);
    CHECK(comes_true(is_over));
    remove_folder(folder);
}

static void the_program_sees_nothing(void)
{
    struct sigaction action = {.sa_handler = count_signal}, before[65];
    struct rusage first, second;
    sigset_t mask_before, mask_after;
    int status;

    begin();
    for (int n = 1; n < 65; n++)
        sigaction(n, n == SIGKILL || n == SIGSTOP || n == 32 || n == 33 ? NULL : &action, &before[n]);
    sigprocmask(SIG_BLOCK, NULL, &mask_before);
    getrusage(RUSAGE_CHILDREN, &first);
    errno = 77;
    CHECK_EQ(lp_collector_ensure(&request, NULL), LP_OK);
    CHECK_EQ(errno, 77);
    getrusage(RUSAGE_CHILDREN, &second);
    sigprocmask(SIG_BLOCK, NULL, &mask_after);
    CHECK_MEM(&mask_before, &mask_after, sizeof(unsigned long));
    CHECK_EQ(waitpid(-1, &status, WNOHANG), -1);
    CHECK_EQ(errno, ECHILD);
    CHECK_EQ(waitpid(-1, &status, WNOHANG | (int)__WALL), -1);
    CHECK(comes_true(is_over));
    CHECK_EQ(signals, 0);
    for (int n = 1; n < 65; n++)
        if (n != SIGKILL && n != SIGSTOP && n != 32 && n != 33)
            sigaction(n, &before[n], NULL);
    double used = (double)(second.ru_utime.tv_sec - first.ru_utime.tv_sec) +
                  1e-6 * (double)(second.ru_utime.tv_usec - first.ru_utime.tv_usec) +
                  (double)(second.ru_stime.tv_sec - first.ru_stime.tv_sec) +
                  1e-6 * (double)(second.ru_stime.tv_usec - first.ru_stime.tv_usec);
    CHECK(used < 0.02); /* the one trace: RUSAGE_CHILDREN has the time of the start */
    printf("# RUSAGE_CHILDREN grew by %.0f us\n", 1e6 * used);
    remove_folder(folder);
}

/* A signal that comes to the child between its start and its own first step: `clone` of the start goes through here. */
typedef struct begun {
    int (*runs)(void *);
    void *argument;
} begun;
static bool to_be_signalled;
static int signalled;

static int take_a_signal(void *argument)
{
    const begun *b = argument;

    syscall(SYS_kill, syscall(SYS_getpid), SIGUSR1);
    signalled++;
    return b->runs(b->argument);
}

int clone(int (*runs)(void *), void *stack, int flags, void *argument, ...)
{
    static begun b;
    int (*real)(int (*)(void *), void *, int, void *, ...);

    *(void **)(void *)&real = dlsym(RTLD_NEXT, "clone");
    if (!to_be_signalled)
        return real(runs, stack, flags, argument);
    to_be_signalled = false;
    b = (begun){runs, argument};
    return real(take_a_signal, stack, flags, &b);
}

/* The child shares the program's memory: a handler that ran there would store into it. */
static void no_handler_runs_in_the_child(void)
{
    struct sigaction action = {.sa_handler = count_signal}, before;

    begin();
    signals = 0;
    sigaction(SIGUSR1, &action, &before);
    to_be_signalled = true;
    CHECK_EQ(lp_collector_ensure(&request, NULL), LP_OK);
    CHECK_EQ(signalled, 1);
    CHECK_EQ(signals, 0);
    raise(SIGUSR1);
#ifndef __SANITIZE_THREAD__ /* which holds signals back itself, by a state that the child shared and never left */
    CHECK_EQ(signals, 1);   /* and the program's own still come */
#endif
    CHECK(comes_true(is_over));
    sigaction(SIGUSR1, &before, NULL);
    signals = 0;
    remove_folder(folder);
}

static void what_cannot_be_started_is_said_quietly(void)
{
    lp_error error = {0};
    begin();
    request.program = "/nonexistent/collector";
    errno = 5;
    CHECK_EQ(lp_collector_ensure(&request, &error), LP_E_MISSING);
    CHECK_EQ(errno, 5);
    request.program = "/etc/passwd"; /* no program */
    CHECK(lp_collector_ensure(&request, &error) != LP_OK);
    char script[256];
    snprintf(script, sizeof script, "%s/broken", folder);
    put_text(script, "\177ELF but not really");
    chmod(script, 0700);
    request.program = script; /* the kernel refuses it: the child says so and ends */
    CHECK_EQ(lp_collector_ensure(&request, &error), LP_E_UNSUPPORTED);
    CHECK_EQ(error.sys, ENOEXEC);
    CHECK_EQ(waitpid(-1, NULL, WNOHANG | (int)__WALL), -1);
    CHECK(!is_held()); /* nobody believes that there is one */
    request.program = getenv("LP_TEST_COLLECTOR");
    CHECK_EQ(lp_collector_ensure(&request, &error), LP_OK);
    CHECK(comes_true(is_over));
    CHECK_EQ(lp_collector_ensure(&request, &error), LP_E_MISSING); /* the folder is gone */
    remove_folder(folder);
}

/* This process's own descriptor of the lock that another has open, with the lock; -1: it has none. */
static int lock_of(pid_t pid)
{
    char path[64], link[512];
    int found = -1, process = (int)syscall(SYS_pidfd_open, pid, 0);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *list = opendir(path);
    for (struct dirent *entry; list && process >= 0 && found < 0 && (entry = readdir(list));) {
        ssize_t size = readlinkat(dirfd(list), entry->d_name, link, sizeof link - 1);
        link[size > 0 ? size : 0] = '\0';
        if (strstr(link, "/.collector-"))
            found = (int)syscall(SYS_pidfd_getfd, process, atoi(entry->d_name), 0);
    }
    if (list)
        closedir(list);
    if (process >= 0)
        close(process);
    return found;
}

static int execution = -1; /* fanotify: asked whether a program may be executed */

/* Says no, once; keeps the lock's open file as a process does that has failed and is not yet gone. */
static void *forbid(void *lock)
{
    struct fanotify_event_metadata event;
    if (read(execution, &event, sizeof event) == (ssize_t)sizeof event) {
        *(int *)lock = lock_of(event.pid);
        struct fanotify_response no = {.fd = event.fd, .response = FAN_DENY};
        if (write(execution, &no, sizeof no) != (ssize_t)sizeof no)
            abort();
        /* The descriptor came from the kernel, which gave it a number that a child with the program's memory and a table of its own may
         * be using: the thread sanitizer, told of both by libc's functions, would take them for one. */
        syscall(SYS_close, event.fd);
    }
    return NULL;
}

/* The kernel lets the program run on before it closes the files of a child that could not execute the collector. Here they are never
 * closed: still the lock must be free. */
static void a_failed_start_leaves_no_lock(void)
{
    lp_error error = {0};
    char script[256];
    pthread_t thread;
    int lock = -1;
    begin();
    snprintf(script, sizeof script, "%s/forbidden", folder);
    put_text(script, "#!/bin/sh\n");
    chmod(script, 0700);
    execution = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);
    if (execution < 0 || fanotify_mark(execution, FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, AT_FDCWD, script) != 0) {
        if (execution >= 0)
            close(execution);
        remove_folder(folder);
        check_skip("a_failed_start_leaves_no_lock", "fanotify may not forbid executions here (root, Linux 5.0)");
        return;
    }
    pthread_create(&thread, NULL, forbid, &lock);
    request.program = script;
    CHECK_EQ(lp_collector_ensure(&request, &error), LP_E_UNSUPPORTED);
    CHECK_EQ(error.sys, EPERM);
    pthread_join(thread, NULL);
    CHECK(lock >= 0);
    request.program = getenv("LP_TEST_COLLECTOR");
    CHECK_EQ(lp_collector_ensure(&request, &error), LP_OK);
    CHECK(comes_true(is_over)); /* there was one, which has found nobody and left */
    close(lock);
    close(execution);
    remove_folder(folder);
}

static void *starts(void *result)
{
    *(lp_status *)result = lp_collector_ensure(&request, NULL);
    return NULL;
}

/* Threads of one process, all at once: the stacks of the children are not each other's. */
static void threads_start_one(void)
{
    pthread_t threads[8];
    lp_status results[8];
    int ready;
    begin();
    pid_t recorded = record(&ready);
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, starts, &results[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(results[i], LP_OK);
    }
    CHECK(comes_true(is_held));
    kill(recorded, SIGKILL);
    waitpid(recorded, NULL, 0);
    CHECK(comes_true(is_over));
    remove_folder(folder);
}

static void a_subreaper_does_not_see_it_either(void)
{
    int status;
    begin();
    pid_t pid = fork();
    if (pid == 0) {
        int bad = prctl(PR_SET_CHILD_SUBREAPER, 1) != 0;
        bad |= (lp_collector_ensure(&request, NULL) != LP_OK) << 1;
        bad |= (waitpid(-1, &status, WNOHANG) != -1 || errno != ECHILD) << 2;
        bad |= !comes_true(is_over) << 3;
        bad |= (waitpid(-1, &status, WNOHANG) != -1 || errno != ECHILD) << 4; /* its parent waits for it, not we */
        _exit(bad);
    }
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
    remove_folder(folder);
}

static double time_of_a_fork(void)
{
    double start = now();
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    double end = now();
    waitpid(pid, NULL, 0);
    return end - start;
}

#define ROUNDS 15
#define ROUNDS_MOST 60 /* where others leave no quiet moment among the first */

/* The start copies no page tables: with 512 MB in small pages it takes 0.6 to 1.2 ms at its best, a fork 7, in turn on one machine.
 * (The least of all rounds each: a neighbour only adds.) */
static void the_start_copies_no_memory(void)
{
    size_t size = 512u << 20;
    double least = 1e9, least_fork = 1e9;
    int rounds = 0;
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    madvise(memory, size, MADV_NOHUGEPAGE); /* or there would be little to copy */
    for (size_t i = 0; i < size; i += 4096)
        memory[i] = 1;
    for (; rounds < ROUNDS || (rounds < ROUNDS_MOST && !(least < least_fork / 2)); rounds++) {
        begin();
        double start = now();
        CHECK_EQ(lp_collector_ensure(&request, NULL), LP_OK);
        least = fmin(least, now() - start);
        CHECK(comes_true(is_over));
        remove_folder(folder);
        least_fork = fmin(least_fork, time_of_a_fork());
    }
    munmap(memory, size);
    printf("# start at 512 MB: least %.2f ms; a fork: least %.2f ms (%d rounds)\n", 1e3 * least, 1e3 * least_fork,
           rounds);
    CHECK(least < least_fork / 2);
}

int main(void)
{
    if (!getenv("LP_TEST_COLLECTOR")) {
        fprintf(stderr, "# LP_TEST_COLLECTOR: path of lineprofiler-collector\n");
        return 1;
    }
    RUN(it_runs_while_somebody_records);
    RUN(it_has_a_session_of_its_own_from_the_first);
    RUN(it_leaves_when_nobody_records);
    RUN(the_program_sees_nothing);
    RUN(no_handler_runs_in_the_child);
    RUN(what_cannot_be_started_is_said_quietly);
    RUN(a_failed_start_leaves_no_lock);
    RUN(threads_start_one);
    RUN(a_subreaper_does_not_see_it_either);
    RUN(the_start_copies_no_memory);
    return check_done();
}
