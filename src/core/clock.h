/* Ticks: the cheapest clock that is the same on all CPUs of the machine.
 *
 * The TSC where CPUID says that it is invariant and the kernel itself uses it as clock source (a kernel that saw it drift
 * has switched away); cntvct_el0 on aarch64; else CLOCK_MONOTONIC, whose ticks are ns. Ticks become ns by a
 * 128-bit multiply-shift that holds for 400 days and more. */
#ifndef LP_CORE_CLOCK_H
#define LP_CORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "core/layout.h"

extern uint32_t lp__clock_kind; /* lp_clock_kind; set once by lp_clock_init */

/* Chooses the clock. Idempotent; `forced` is an lp_clock_kind or -1 (tests, LINEPROFILER_CLOCK=monotonic). */
void lp_clock_init(int forced);

static inline uint64_t lp_clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t lp_ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(lp__clock_kind == LP_CLOCK_TSC, 1))
        return __rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(lp__clock_kind == LP_CLOCK_CNTVCT, 1)) {
        uint64_t t;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
        return t;
    }
#endif
    return lp_clock_ns(CLOCK_MONOTONIC);
}

/* ns = ticks * mult / 2^32, rounded to nearest. */
static inline uint64_t lp_ticks_to_ns(uint64_t ticks, uint64_t mult)
{
    return (uint64_t)(((unsigned __int128)ticks * mult + (1u << 31)) >> 32);
}

/* One instant on three clocks, all read between two ticks that are as close as a few tries get. */
void lp_clock_moment(lp_moment *moment);

/* Is it near the first calibration? While a machine is suspended its TSC may go on, and CLOCK_MONOTONIC stands still: a baseline with
 * such a gap in it would shrink every duration. Rates that are slewed (at most 500 ppm) and the error of the first
 * millisecond are far below one part in LP_CLOCK_DOUBT. */
#define LP_CLOCK_DOUBT 500u
bool lp_clock_is_plausible(uint64_t mult);
/* mult from two moments; `fallback` when they are less than 100 us apart or the clock went backwards. */
uint64_t lp_clock_mult(const lp_moment *first, const lp_moment *second, uint64_t fallback);

/* The first mult of a process: spins about 1 ms once. Relative error about 1e-5; later moments refine it. */
uint64_t lp_clock_calibrate(void);

#endif
