/* How a process ended: its word in a segment, zombies, and what a pidfd tells of one that nobody has waited for any more. */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "store/describe.h"
#include "store/end.h"

static void every_word_comes_back(void)
{
    for (int64_t code = -64; code <= 255; code++)
        for (unsigned flags = 0; flags < 4; flags++) {
            lp_end end = {.code = code, .core_dumped = flags & 1, .replaced = flags & 2};
            uint64_t word = lp_end_pack(end);
            CHECK(word != 0);
            lp_end back = lp_end_unpack(word);
            CHECK(back.code == code && back.core_dumped == end.core_dumped && back.replaced == end.replaced);
        }
    lp_end unknown = {.code = LP_UNKNOWN_I64};
    CHECK(lp_end_pack(unknown) != 0); /* somebody has looked */
    CHECK(lp_end_unpack(lp_end_pack(unknown)).code == LP_UNKNOWN_I64);
    CHECK(lp_end_unpack(0).code == LP_UNKNOWN_I64);
    /* What no process can end with is not known, whatever the bytes say. */
    for (unsigned bit = 0; bit < 64; bit++) {
        lp_end end = lp_end_unpack(((uint64_t)3 << 32) | ((uint64_t)1 << bit));
        CHECK(end.code == LP_UNKNOWN_I64 || (end.code >= -64 && end.code <= 255));
        CHECK(end.code != LP_UNKNOWN_I64 || !end.core_dumped);
    }
}

/* A child that ends by the signal (< 0) or with the code. */
static pid_t start_child(int code)
{
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (code < 0) {
            signal(-code, SIG_DFL);
            raise(-code);
        }
        _exit(code);
    }
    return pid;
}

static void wait_for_zombie(pid_t pid)
{
    siginfo_t info;
    CHECK_EQ(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static void a_zombie_tells(void)
{
    static const int codes[] = {0, 1, 3, 127, 255, -SIGKILL, -SIGTERM, -SIGSEGV, -SIGABRT, -SIGUSR1};

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        pid_t pid = start_child(codes[i]);
        wait_for_zombie(pid);
        int64_t start = lp_describe_pid_start(pid);
        errno = 99;
        CHECK_EQ(lp_end_look(pid, start, -1).code, codes[i]);
        CHECK_EQ(errno, 99);
        CHECK(!lp_end_is_near(pid, start));
        CHECK(lp_end_look(pid, start + 1, -1).code == LP_UNKNOWN_I64); /* another process of that pid */
        waitpid(pid, NULL, 0);
        CHECK(lp_end_look(pid, start, -1).code == LP_UNKNOWN_I64); /* gone without a trace */
    }
}

/* The kernel tells the rest (6.15 and later) or says that it cannot: never something else. */
static void a_pidfd_tells(void)
{
#ifdef SYS_pidfd_open
    static const int codes[] = {0, 7, -SIGKILL, -SIGSEGV};

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        pid_t pid = start_child(codes[i]);
        int64_t start = lp_describe_pid_start(pid);
        int pidfd = (int)syscall(SYS_pidfd_open, pid, 0u);
        REQUIRE(pidfd >= 0);
        waitpid(pid, NULL, 0);
        lp_end end = lp_end_look(pid, start, pidfd);
        printf("# %d: %lld\n", codes[i], (long long)end.code);
        CHECK(end.code == codes[i] || end.code == LP_UNKNOWN_I64);
        close(pidfd);
    }
#endif
}

static void the_living_have_no_end(void)
{
    int64_t self = getpid(), start = lp_describe_pid_start(self);

    CHECK(lp_end_look(self, start, -1).code == LP_UNKNOWN_I64);
    CHECK(!lp_end_is_near(self, start));
    CHECK(!lp_end_is_near(self, start + 1));
    CHECK(lp_end_look(-1, 1, -1).code == LP_UNKNOWN_I64);
    CHECK(lp_end_look(0, 1, -1).code == LP_UNKNOWN_I64);
}

int main(void)
{
    RUN(every_word_comes_back);
    RUN(a_zombie_tells);
    RUN(a_pidfd_tells);
    RUN(the_living_have_no_end);
    return check_done();
}
