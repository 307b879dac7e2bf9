/* LD_PRELOAD: clocks that a test can move. Only the program that is started with it sees them: never the machine's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t moved[2]; /* ns: CLOCK_REALTIME, CLOCK_MONOTONIC */

/* Called by the test's program through ctypes. */
__attribute__((visibility("default"))) void clocks_move(int64_t realtime_ns, int64_t monotonic_ns)
{
    moved[0] += realtime_ns;
    moved[1] += monotonic_ns;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    int result = (int)syscall(SYS_clock_gettime, clock, out);

    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC)) {
        int64_t ns = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + moved[clock];
        out->tv_sec = (time_t)(ns / 1000000000);
        out->tv_nsec = (long)(ns % 1000000000);
    }
    return result;
}
