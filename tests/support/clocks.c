/* LD_PRELOAD: clocks that a test can move. Only the program that is started with it sees them: never the machine's. A program that
 * cannot call clocks_move reads by how many ns CLOCK_REALTIME is moved from the file that CLOCKS_FILE names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
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

static int64_t moved_by_file(void)
{
    const char *path = getenv("CLOCKS_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char text[32] = "";

    if (fd < 0)
        return 0;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    return size > 0 ? strtoll(text, NULL, 10) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    int result = (int)syscall(SYS_clock_gettime, clock, out);

    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC)) {
        int64_t ns = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + moved[clock];
        if (clock == CLOCK_REALTIME)
            ns += moved_by_file();
        out->tv_sec = (time_t)(ns / 1000000000);
        out->tv_nsec = (long)(ns % 1000000000);
    }
    return result;
}
