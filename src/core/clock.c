#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

uint32_t lp__clock_kind = LP_CLOCK_MONOTONIC;
static int chosen;
static uint64_t first_mult;

static int kernel_uses_tsc(void)
{
    char name[32];
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    ssize_t size = read(fd, name, sizeof name);
    close(fd);
    return size >= 3 && memcmp(name, "tsc", 3) == 0;
}

static lp_clock_kind best(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    /* CPUID 8000_0007H EDX bit 8: the TSC ticks at one rate in all states (Intel SDM 18.17.1, AMD APM 13.2.4). */
    if (__get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8)) && kernel_uses_tsc())
        return LP_CLOCK_TSC;
#elif defined(__aarch64__)
    return LP_CLOCK_CNTVCT;
#endif
    (void)kernel_uses_tsc;
    return LP_CLOCK_MONOTONIC;
}

void lp_clock_init(int forced)
{
    int saved = errno;

    if (!chosen || forced >= 0) {
        lp__clock_kind = forced >= 0 ? (uint32_t)forced : (uint32_t)best();
        chosen = 1;
        first_mult = 0;
    }
    errno = saved;
}

void lp_clock_moment(lp_moment *moment)
{
    uint64_t narrowest = UINT64_MAX;

    /* An interrupt between two reads, of whichever two, would set the clocks apart by its length: keep the tightest of five. */
    for (int i = 0; i < 5; i++) {
        uint64_t before = lp_ticks();
        uint64_t mono = lp_clock_ns(CLOCK_MONOTONIC);
        uint64_t after = lp_ticks();
        uint64_t real = lp_clock_ns(CLOCK_REALTIME);
        uint64_t all = lp_ticks() - before;
        if (all < narrowest) {
            narrowest = all;
            moment->ticks = lp__clock_kind == LP_CLOCK_MONOTONIC ? mono : before + (after - before) / 2;
            moment->mono_ns = mono;
            moment->real_ns = real;
        }
    }
}

uint64_t lp_clock_mult(const lp_moment *first, const lp_moment *second, uint64_t fallback)
{
    if (lp__clock_kind == LP_CLOCK_MONOTONIC)
        return 1ull << 32;
    if (second->mono_ns < first->mono_ns + 100000 || second->ticks <= first->ticks)
        return fallback;
    return (uint64_t)(((unsigned __int128)(second->mono_ns - first->mono_ns) << 32) / (second->ticks - first->ticks));
}

bool lp_clock_is_plausible(uint64_t mult)
{
    uint64_t off = mult > first_mult ? mult - first_mult : first_mult - mult;
    return first_mult == 0 || off <= first_mult / LP_CLOCK_DOUBT;
}

uint64_t lp_clock_calibrate(void)
{
    lp_moment first, second;

    if (lp__clock_kind == LP_CLOCK_MONOTONIC)
        return 1ull << 32;
    if (first_mult)
        return first_mult;
    lp_clock_moment(&first);
    do
        lp_clock_moment(&second);
    while (second.mono_ns - first.mono_ns < 1000000);
    first_mult = lp_clock_mult(&first, &second, 1ull << 32);
    return first_mult;
}
