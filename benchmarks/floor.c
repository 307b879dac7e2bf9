/* floor.c - what the kernel and the CPU ask for the parts of a phase, measured here and now: one line `name ns` each.
 *
 * No profiler can be cheaper than the parts that it needs; the table of benchmarks/README.md sets our figures beside
 * these. Compiled by run.py with -O2. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 15 };

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static volatile uint64_t sink;
static int io_fd;

static void two_preads(void)
{
    char text[512];
    for (int i = 0; i < 2; i++)
        sink += (uint64_t)pread(io_fd, text, sizeof text, 0);
}

static void two_thread_cpu_reads(void)
{
    sink += (uint64_t)now_ns(CLOCK_THREAD_CPUTIME_ID);
    sink += (uint64_t)now_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void two_monotonic_reads(void)
{
    sink += (uint64_t)now_ns(CLOCK_MONOTONIC);
    sink += (uint64_t)now_ns(CLOCK_MONOTONIC);
}

static void two_cycle_counter_reads(void)
{
#if defined(__x86_64__)
    sink += __builtin_ia32_rdtsc();
    sink += __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    sink += t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    sink += t;
#endif
}

static void measure(const char *name, void (*work)(void), int repeats)
{
    double batch[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        int64_t start = now_ns(CLOCK_MONOTONIC);
        for (int i = 0; i < repeats; i++)
            work();
        batch[b] = (double)(now_ns(CLOCK_MONOTONIC) - start) / repeats;
    }
    qsort(batch, BATCHES, sizeof batch[0], by_value);
    printf("%s %.2f\n", name, batch[BATCHES / 2]);
}

int main(void)
{
    io_fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
    if (io_fd >= 0)
        measure("two_preads_of_proc_self_io", two_preads, 5000);
    measure("two_reads_of_thread_cpu_clock", two_thread_cpu_reads, 20000);
    measure("two_reads_of_monotonic_clock", two_monotonic_reads, 100000);
    measure("two_reads_of_cycle_counter", two_cycle_counter_reads, 200000);
    return 0;
}
