/* LD_PRELOAD: clocks that a test can move. Only the program that is started with it sees them: never the machine's.
 *
 * By a call of clocks_move (a test's program, through ctypes), or, for a program that knows nothing of it, by a file that
 * LP_TEST_CLOCKS names: three 64-bit numbers of ns, for CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_BOOTTIME. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t own[3];
static volatile int64_t *moved = own;

__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("LP_TEST_CLOCKS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *base = fd >= 0 ? mmap(NULL, sizeof own, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

    if (base != MAP_FAILED)
        moved = base;
    if (fd >= 0)
        close(fd);
}

__attribute__((visibility("default"))) void clocks_move(int64_t realtime_ns, int64_t monotonic_ns)
{
    own[0] += realtime_ns;
    own[1] += monotonic_ns;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    int result = (int)syscall(SYS_clock_gettime, clock, out);
    int which = clock == CLOCK_REALTIME ? 0 : clock == CLOCK_MONOTONIC ? 1 : clock == CLOCK_BOOTTIME ? 2 : -1;

    if (result == 0 && which >= 0) {
        int64_t ns = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + moved[which];
        out->tv_sec = (time_t)(ns / 1000000000);
        out->tv_nsec = (long)(ns % 1000000000);
    }
    return result;
}
