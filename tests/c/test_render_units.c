/* Figures as text: the scaling that users know from the reports of the package we follow, and what rounding does at
 * the borders. */
#include "check.h"

#include <locale.h>
#include <math.h>

#include "render/units.h"

static lp_unit unit;

static void durations(void)
{
    CHECK_STR(lp_unit_ns(unit, 0), "0ns");
    CHECK_STR(lp_unit_ns(unit, 2.5), "2.5ns");
    CHECK_STR(lp_unit_ns(unit, 999), "999ns");
    CHECK_STR(lp_unit_ns(unit, 999.6), "1.0us");
    CHECK_STR(lp_unit_ns(unit, 1200), "1.2us");
    CHECK_STR(lp_unit_ns(unit, 1e5), "100.0us");
    CHECK_STR(lp_unit_ns(unit, 999949), "999.9us");
    CHECK_STR(lp_unit_ns(unit, 999950), "1.0ms");
    CHECK_STR(lp_unit_ns(unit, 1.5e6), "1.5ms");
    CHECK_STR(lp_unit_ns(unit, 999.95e6), "1.00s");
    CHECK_STR(lp_unit_ns(unit, 1e9), "1.00s");
    CHECK_STR(lp_unit_ns(unit, 59.9e9), "59.90s");
    CHECK_STR(lp_unit_ns(unit, 59.994e9), "59.99s");
    CHECK_STR(lp_unit_ns(unit, 59.996e9), "1m 00s");
    CHECK_STR(lp_unit_ns(unit, 61e9), "1m 01s");
    CHECK_STR(lp_unit_ns(unit, 3599.9e9), "59m 59s");
    CHECK_STR(lp_unit_ns(unit, 3600e9), "1h 00m");
    CHECK_STR(lp_unit_ns(unit, 72 * 3600e9), "72h 00m");
    CHECK_STR(lp_unit_ns(unit, 359999e9), "99h 59m");
    CHECK_STR(lp_unit_ns(unit, 360000e9), "100h"); /* no column of a table has room for more */
    CHECK_STR(lp_unit_ns(unit, (double)NAN), "n/a");
    CHECK_STR(lp_unit_ns(unit, -5), "0ns");
    CHECK_STR(lp_unit_ns(unit, (double)UINT64_MAX), "5124095h");
}

static void bytes(void)
{
    CHECK_STR(lp_unit_bytes(unit, 0), "0 B");
    CHECK_STR(lp_unit_bytes(unit, 1023), "1023 B");
    CHECK_STR(lp_unit_bytes(unit, 1536), "1.5 KB");
    CHECK_STR(lp_unit_bytes(unit, 1024 * 1024 - 1), "1.0 MB");
    CHECK_STR(lp_unit_bytes(unit, 1048576), "1.0 MB");
    CHECK_STR(lp_unit_bytes(unit, 1073741824), "1.0 GB");
    CHECK_STR(lp_unit_bytes(unit, 1.8e19), "15.6 EB");
    CHECK_STR(lp_unit_byte_rate(unit, 35.8 * 1048576), "35.8 MB/s");
    CHECK_STR(lp_unit_byte_rate(unit, 0), "0 B/s");
    CHECK_STR(lp_unit_byte_rate(unit, (double)NAN), "n/a");
}

static void counts(void)
{
    CHECK_STR(lp_unit_count(unit, 0), "0");
    CHECK_STR(lp_unit_count(unit, 999), "999");
    CHECK_STR(lp_unit_count(unit, 6325), "6,325");
    CHECK_STR(lp_unit_count(unit, -1000000), "-1,000,000");
    lp_i128 largest = (lp_i128)(~(__extension__(unsigned __int128) 0) >> 1);
    CHECK_STR(lp_unit_count(unit, largest), "170,141,183,460,469,231,731,687,303,715,884,105,727");
    CHECK_STR(lp_unit_count(unit, -largest - 1), "-170,141,183,460,469,231,731,687,303,715,884,105,728");
    CHECK_STR(lp_unit_count_in(unit, 19278096, 11), "19,278,096");
    CHECK_STR(lp_unit_count_in(unit, 1234567890123, 11), "1.2T");
    CHECK(strlen(lp_unit_count_in(unit, -largest - 1, 20)) <= 20);
    CHECK_STR(lp_unit_rate(unit, 56882.25), "56,882.3/s");
    CHECK_STR(lp_unit_rate(unit, 2.5e9), "2.5G/s");
    CHECK_STR(lp_unit_amount(unit, 8), "8");
    CHECK_STR(lp_unit_amount(unit, 999.5), "1,000"); /* the middle of a cell */
    CHECK_STR(lp_unit_amount(unit, 4096), "4,096");
}

static void shares(void)
{
    CHECK_STR(lp_unit_percent(unit, 0.829), "82.9%");
    CHECK_STR(lp_unit_percent(unit, 0), "0.0%");
    CHECK_STR(lp_unit_percent(unit, (double)NAN), "n/a");
    CHECK_STR(lp_unit_whole_percent(unit, 0.984), "98%");
    CHECK_STR(lp_unit_whole_percent(unit, 0), "0%");
    CHECK_STR(lp_unit_whole_percent(unit, 0.004), "<1%"); /* something is not nothing */
    CHECK_STR(lp_unit_whole_percent(unit, 0.005), "1%");
    CHECK_STR(lp_unit_fixed(unit, 1.25, 2), "1.25");
    CHECK_STR(lp_unit_fixed(unit, -9.64, 1), "-9.6");
}

/* A zero is a measured one: what is above it and has no room does not show as one. */
static void something_is_not_nothing(void)
{
    CHECK_STR(lp_unit_percent(unit, 0.0004), "<0.1%");
    CHECK_STR(lp_unit_percent(unit, 0.0005), "0.1%");
    CHECK_STR(lp_unit_ns(unit, 0.03), "<0.1ns"); /* each byte at 33 GB/s */
    CHECK_STR(lp_unit_ns(unit, 0.05), "0.1ns");
    CHECK_STR(lp_unit_byte_rate(unit, 0.3), "<1 B/s");
    CHECK_STR(lp_unit_byte_rate(unit, 0.5), "1 B/s");
    CHECK_STR(lp_unit_rate(unit, 0), "0.0/s");
    CHECK_STR(lp_unit_rate(unit, 0.1), "0.1/s");
    CHECK_STR(lp_unit_rate(unit, 1.0 / 30), "0.033/s");
    CHECK_STR(lp_unit_rate(unit, -1.0 / 30), "-0.033/s");
    CHECK_STR(lp_unit_rate(unit, 1.0 / 300), "0.0033/s");
    CHECK_STR(lp_unit_rate(unit, 1.0 / 43200), "<0.0001/s"); /* once in half a day */
    CHECK_STR(lp_unit_used(unit, 0.004, 2), "<0.01");
    CHECK_STR(lp_unit_used(unit, 0, 2), "0.00");
    CHECK_STR(lp_unit_used(unit, 1.25, 1), "1.3");
    CHECK_STR(lp_unit_used(unit, (double)NAN, 1), "n/a");
}

static void the_locale_changes_nothing(void)
{
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) {
        check_skip("locale de_DE.UTF-8", "not installed");
        return;
    }
    CHECK_STR(lp_unit_ns(unit, 1.5e6), "1.5ms");
    CHECK_STR(lp_unit_percent(unit, 0.829), "82.9%");
    setlocale(LC_ALL, "C");
}

int main(void)
{
    RUN(durations);
    RUN(bytes);
    RUN(counts);
    RUN(shares);
    RUN(something_is_not_nothing);
    RUN(the_locale_changes_nothing);
    return check_done();
}
