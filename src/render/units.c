#include "render/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

static char *not_measured(lp_unit out)
{
    memcpy(out, "n/a", 4);
    return out;
}

/* Digits in groups of three, right to left. */
static char *put_grouped(char *end, u128 value)
{
    unsigned digits = 0;

    do {
        if (digits > 0 && digits % 3 == 0)
            *--end = ',';
        *--end = (char)('0' + (int)(value % 10));
        value /= 10;
        digits++;
    } while (value > 0);
    return end;
}

char *lp_unit_count(lp_unit out, lp_i128 count)
{
    char text[LP_UNIT_SIZE];
    char *end = text + sizeof text - 1;

    *end = '\0';
    char *start = put_grouped(end, count < 0 ? (u128)0 - (u128)count : (u128)count);
    if (count < 0)
        *--start = '-';
    memcpy(out, start, (size_t)(end - start) + 1);
    return out;
}

/* `scaled` is the value times 10^decimals. */
static char *put_fixed(lp_unit out, lp_i128 scaled, unsigned decimals, bool group, const char *unit)
{
    u128 value = scaled < 0 ? (u128)0 - (u128)scaled : (u128)scaled, power = 1;
    char whole[LP_UNIT_SIZE];
    int used;

    for (unsigned i = 0; i < decimals; i++)
        power *= 10;
    if (group)
        lp_unit_count(whole, (lp_i128)(value / power));
    else
        snprintf(whole, sizeof whole, "%llu", (unsigned long long)(value / power));
    if (decimals == 0)
        used = snprintf(out, LP_UNIT_SIZE, "%s%.48s%s", scaled < 0 ? "-" : "", whole, unit);
    else
        used = snprintf(out, LP_UNIT_SIZE, "%s%.48s.%0*llu%s", scaled < 0 ? "-" : "", whole, (int)decimals,
                        (unsigned long long)(value % power), unit);
    (void)used;
    return out;
}

static lp_i128 rounded(double value)
{
    if (!(value < 1e30))
        value = 1e30;
    if (!(value > -1e30))
        value = -1e30;
    return (lp_i128)(value < 0 ? value - 0.5 : value + 0.5);
}

char *lp_unit_ns(lp_unit out, double ns)
{
    if (isnan(ns))
        return not_measured(out);
    if (ns < 0)
        ns = 0;
    if (ns > 0 && ns < 0.05)
        return memcpy(out, "<0.1ns", 7);
    if (ns < 9.95 && ns != floor(ns))
        return put_fixed(out, rounded(ns * 10), 1, false, "ns");
    if (rounded(ns) < 1000)
        return put_fixed(out, rounded(ns), 0, false, "ns");
    if (rounded(ns / 100) < 10000)
        return put_fixed(out, rounded(ns / 100), 1, false, "us");
    if (rounded(ns / 1e5) < 10000)
        return put_fixed(out, rounded(ns / 1e5), 1, false, "ms");
    if (rounded(ns / 1e7) < 6000)
        return put_fixed(out, rounded(ns / 1e7), 2, false, "s");
    unsigned long long seconds = (unsigned long long)(fmin(ns, 1e27) / 1e9 + 1e-9);
    if (seconds < 60)
        seconds = 60; /* 59.996 s, which shows no hundredths any more */
    if (seconds < 3600)
        snprintf(out, LP_UNIT_SIZE, "%llum %02llus", seconds / 60, seconds % 60);
    else if (seconds < 100 * 3600)
        snprintf(out, LP_UNIT_SIZE, "%lluh %02llum", seconds / 3600, seconds / 60 % 60);
    else
        snprintf(out, LP_UNIT_SIZE, "%lluh", seconds / 3600); /* columns have room for no more */
    return out;
}

char *lp_unit_about(lp_unit out, bool estimated, double ns)
{
    lp_unit measured;

    snprintf(out, LP_UNIT_SIZE, "%s%.90s", estimated ? "~" : "", lp_unit_ns(measured, ns));
    return out;
}

static char *put_bytes(lp_unit out, double bytes, const char *suffix)
{
    static const char *const units[] = {"KB", "MB", "GB", "TB", "PB", "EB"};
    char unit[16];
    size_t i = 0;

    if (isnan(bytes))
        return not_measured(out);
    if (rounded(bytes) < 1024 && rounded(bytes) > -1024) {
        snprintf(unit, sizeof unit, " B%s", suffix);
        if (bytes > 0 && bytes < 0.5) {
            snprintf(out, LP_UNIT_SIZE, "<1%s", unit);
            return out;
        }
        return put_fixed(out, rounded(bytes), 0, false, unit);
    }
    bytes /= 1024;
    while (i + 1 < sizeof units / sizeof *units && (rounded(bytes * 10) >= 10240 || rounded(bytes * 10) <= -10240)) {
        bytes /= 1024;
        i++;
    }
    snprintf(unit, sizeof unit, " %s%s", units[i], suffix);
    return put_fixed(out, rounded(bytes * 10), 1, false, unit);
}

char *lp_unit_bytes(lp_unit out, double bytes)
{
    return put_bytes(out, bytes, "");
}

char *lp_unit_byte_rate(lp_unit out, double bytes_per_s)
{
    return put_bytes(out, bytes_per_s, "/s");
}

/* 1.2T: three digits at most before the unit. */
static char *put_short(lp_unit out, double value, const char *suffix)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
    char unit[16];
    size_t i = 0;

    while (i + 1 < sizeof units / sizeof *units && (rounded(value * 10) >= 10000 || rounded(value * 10) <= -10000)) {
        value /= 1000;
        i++;
    }
    snprintf(unit, sizeof unit, "%s%s", units[i], suffix);
    return put_fixed(out, rounded(value * 10), 1, false, unit);
}

char *lp_unit_count_in(lp_unit out, lp_i128 count, unsigned columns)
{
    lp_unit_count(out, count);
    return strlen(out) <= columns ? out : put_short(out, (double)count, "");
}

char *lp_unit_rate(lp_unit out, double per_s)
{
    if (isnan(per_s))
        return not_measured(out);
    if (per_s >= 1e8 || per_s <= -1e8)
        return put_short(out, per_s, "/s");
    lp_unit_small_rate(out, per_s);
    memcpy(out + strlen(out), "/s", 3);
    return out;
}

char *lp_unit_small_rate(lp_unit out, double per_s)
{
    double size = per_s < 0 ? -per_s : per_s;

    if (size >= 0.095 || size == 0)
        return put_fixed(out, rounded(per_s * 10), 1, true, "");
    if (size >= 0.0095)
        return put_fixed(out, rounded(per_s * 1e3), 3, true, "");
    if (per_s < 0.00005 && per_s > 0)
        return memcpy(out, "<0.0001", 8);
    return put_fixed(out, rounded(per_s * 1e4), 4, true, "");
}

char *lp_unit_percent(lp_unit out, double share)
{
    if (isnan(share))
        return not_measured(out);
    if (share > 0 && share < 0.0005)
        return memcpy(out, "<0.1%", 6);
    return put_fixed(out, rounded(share * 1000), 1, true, "%");
}

char *lp_unit_whole_percent(lp_unit out, double share)
{
    if (isnan(share))
        return not_measured(out);
    if (share > 0 && share < 0.005)
        return memcpy(out, "<1%", 4);
    return put_fixed(out, rounded(share * 100), 0, true, "%");
}

char *lp_unit_fixed(lp_unit out, double value, unsigned decimals)
{
    double power = 1;

    if (isnan(value))
        return not_measured(out);
    for (unsigned i = 0; i < decimals; i++)
        power *= 10;
    return put_fixed(out, rounded(value * power), decimals, true, "");
}

char *lp_unit_used(lp_unit out, double value, unsigned decimals)
{
    double least = 1;

    for (unsigned i = 0; i < decimals; i++)
        least /= 10;
    if (!(value > 0) || value >= least / 2)
        return lp_unit_fixed(out, value, decimals);
    lp_unit smallest;
    snprintf(out, LP_UNIT_SIZE, "<%.90s", put_fixed(smallest, 1, decimals, true, ""));
    return out;
}

char *lp_unit_amount(lp_unit out, double amount)
{
    return isnan(amount) ? not_measured(out) : lp_unit_count(out, rounded(amount));
}
