/* Histogram cells and clocks: arithmetic only, no real time but where said. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "core/clock.h"
#include "core/hist.h"

#define HOURS 3600000000000000u

/* A time of its own for one test, 0 none: each read takes 20 ns, and before the next `late` reads of the time of day, or else before
 * those of the other clock, the thread loses its processor. */
static uint64_t made_up_ns;
static int late;

/* Before libc's. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!made_up_ns)
        return (int)syscall(SYS_clock_gettime, clock, out);
    bool day = clock == CLOCK_REALTIME;
    made_up_ns += 20 + (day && late > 0 ? 5000000u : 0) + (!day && late == 0 ? 1000u : 0);
    late -= day;
    uint64_t ns = made_up_ns + (day ? HOURS : 0);
    out->tv_sec = (time_t)(ns / 1000000000u);
    out->tv_nsec = (long)(ns % 1000000000u);
    return 0;
}

static void cells_cover_every_value_once(void)
{
    uint32_t previous = 0;

    for (uint32_t cell = 0; cell < LP_HIST_CELLS; cell++) {
        CHECK_EQ(lp_hist_cell(lp_hist_low(cell)), cell);
        CHECK_EQ(lp_hist_cell(lp_hist_high(cell) - 1), cell);
        if (cell > 0)
            CHECK_EQ(lp_hist_low(cell), lp_hist_high(previous));
        previous = cell;
    }
    CHECK_EQ(lp_hist_cell(UINT64_MAX), LP_HIST_CELLS - 1);
    CHECK_EQ(lp_hist_low(0), 0u);
}

/* The promise of the header: the value that stands for a cell is within 1/64 of any value in it. */
static void middle_is_within_1_6_percent(void)
{
    for (uint32_t cell = 32; cell < LP_HIST_CELLS; cell++) {
        double low = (double)lp_hist_low(cell), high = (double)(lp_hist_high(cell) - 1), middle = lp_hist_value(cell);
        CHECK((middle - low) / low <= 1.0 / 64 && (high - middle) / high <= 1.0 / 64);
    }
}

/* FIELD.md A7: 3 GHz for 400 days, no overflow, within 2 ns or 1e-9. */
static void ticks_become_ns_up_to_400_days(void)
{
    uint64_t rates[] = {1000000000u, 2400000000u, 3000000000u, 5000000000u, 24000000u};

    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        uint64_t mult = (uint64_t)((((unsigned __int128)1000000000u << 32) + rates[r] / 2) / rates[r]);
        uint64_t ticks[] = {0, 1, 1u << 31, 1ull << 40, rates[r] * 86400u, rates[r] * 86400u * 400u};
        for (size_t i = 0; i < sizeof ticks / sizeof *ticks; i++) {
            uint64_t exact = (uint64_t)((unsigned __int128)ticks[i] * 1000000000u / rates[r]);
            uint64_t got = lp_ticks_to_ns(ticks[i], mult);
            uint64_t off = got > exact ? got - exact : exact - got;
            CHECK(off <= 2 || (double)off <= (double)exact * 1e-9);
        }
    }
}

static void calibration_survives_clocks_that_step(void)
{
    lp_clock_init(-1);
    lp_moment first = {1000000, 5000000, 90000000000}, later = first;

    CHECK_EQ(lp_clock_mult(&first, &later, 77), lp__clock_kind == LP_CLOCK_MONOTONIC ? 1ull << 32 : 77u);
    later.ticks -= 500; /* a TSC that went back: keep what was known */
    later.mono_ns += 1000000;
    CHECK_EQ(lp_clock_mult(&first, &later, 77), lp__clock_kind == LP_CLOCK_MONOTONIC ? 1ull << 32 : 77u);
    later.ticks = first.ticks + 2600000;
    later.real_ns -= 3600000000000; /* a step of the wall clock by an hour changes no duration */
    uint64_t before = lp_clock_mult(&first, &later, 77);
    later.real_ns += 7200000000000;
    CHECK_EQ(lp_clock_mult(&first, &later, 77), before);
}

/* Both clocks at one moment: of many tries the one with the least between its reads, so that being put off the CPU there does not
 * count. */
static void read_both(uint64_t *ticks, uint64_t *ns)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 100; i++) {
        uint64_t before = lp_clock_ns(CLOCK_MONOTONIC), now = lp_ticks(), after = lp_clock_ns(CLOCK_MONOTONIC);
        if (after - before < least) {
            least = after - before;
            *ticks = now;
            *ns = before + (after - before) / 2;
        }
    }
}

/* Against CLOCK_MONOTONIC over 50 ms. 2e-4: the calibration's own error (1 ms baseline, some 100 ns at its ends). */
static void calibrated_ticks_follow_the_kernels_clock(void)
{
    lp_clock_init(-1);
    uint64_t mult = lp_clock_calibrate();
    uint64_t ticks, ns, ticks_later, ns_later;

    read_both(&ticks, &ns);
    while (lp_clock_ns(CLOCK_MONOTONIC) < ns + 50000000)
        ;
    read_both(&ticks_later, &ns_later);
    CHECK_NEAR((double)lp_ticks_to_ns(ticks_later - ticks, mult) / (double)(ns_later - ns), 1.0, 2e-4);
}

/* Before a clock of its last try is read the thread is interrupted for a moment, in the other four it loses its processor for 5 ms
 * just before the time of day: that would look as if somebody had set it. */
static void an_interrupt_between_any_two_clocks_is_noticed(void)
{
    lp_moment moment;

    lp_clock_init(LP_CLOCK_MONOTONIC);
    made_up_ns = 1000000000;
    late = 4;
    lp_clock_moment(&moment);
    CHECK_EQ(late, -1);
    CHECK_NEAR((double)(moment.real_ns - moment.mono_ns - HOURS), 0.0, 2000.0);
    made_up_ns = 0;
}

int main(void)
{
    RUN(cells_cover_every_value_once);
    RUN(middle_is_within_1_6_percent);
    RUN(ticks_become_ns_up_to_400_days);
    RUN(calibration_survives_clocks_that_step);
    RUN(calibrated_ticks_follow_the_kernels_clock);
    RUN(an_interrupt_between_any_two_clocks_is_noticed);
    return check_done();
}
