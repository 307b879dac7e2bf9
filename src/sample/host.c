#include "sample/host.h"

#include <string.h>
#include <time.h>

#define DEAR_NS 300000 /* of one read of /proc/stat: machines of hundreds of CPUs sum up all interrupts */
#define PAUSE 10u      /* samples then left out */
#define TICK_US 10000

void lp_host_open(lp_host *host, int root)
{
    *host = (lp_host){.root = root};
}

void lp_host_close(lp_host *host)
{
    lp__text_file *const files[] = {&host->stat,         &host->online,          &host->load,       &host->memory,
                                    &host->pressure_cpu, &host->pressure_memory, &host->pressure_io};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        lp__text_close(files[i]);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sample_cpus(lp_host *host, lp_sample *sample)
{
    static const lp_column columns[] = {LP_COLUMN_HOST_BUSY, LP_COLUMN_HOST_IOWAIT, LP_COLUMN_HOST_STOLEN};
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    int64_t v[8];

    if (host->pause > 0) {
        host->pause--;
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
            lp_sample_miss(sample, columns[i], LP_REASON_NOT_DUE);
        return;
    }
    int64_t began = now_ns();
    bool have = lp__text_read(&host->stat, host->root, "proc/stat", text, &reason) >= 0;
    if (now_ns() - began > DEAR_NS)
        host->pause = PAUSE;
    if (have) { /* cpu user nice system idle iowait irq softirq steal */
        const char *at = text + 3;
        have = strncmp(text, "cpu ", 4) == 0;
        for (unsigned i = 0; have && i < 8; i++)
            have = lp__number(&at, &v[i]);
        reason = LP_REASON_UNREADABLE;
    }
    lp__sample_put(sample, LP_COLUMN_HOST_BUSY, have, have ? (v[0] + v[1] + v[2] + v[5] + v[6]) * TICK_US : 0, reason);
    lp__sample_put(sample, LP_COLUMN_HOST_IOWAIT, have, have ? v[4] * TICK_US : 0, reason);
    lp__sample_put(sample, LP_COLUMN_HOST_STOLEN, have, have ? v[7] * TICK_US : 0, reason);
}

/* "0-3,8,10-11" */
static bool count_ranges(const char *at, int64_t *count)
{
    int64_t first, last;

    *count = 0;
    while (lp__number(&at, &first)) {
        last = first;
        if (*at == '-') {
            at++;
            if (!lp__number(&at, &last) || last < first)
                return false;
        }
        *count += last - first + 1;
        if (*at == ',')
            at++;
    }
    return *count > 0;
}

static void sample_load(lp_host *host, lp_sample *sample)
{
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    int64_t whole = 0, part = 0;
    const char *at = text;
    bool have = lp__text_read(&host->online, host->root, "sys/devices/system/cpu/online", text, &reason) >= 0;

    if (have) {
        have = count_ranges(text, &whole);
        reason = LP_REASON_UNREADABLE;
    }
    lp__sample_put(sample, LP_COLUMN_HOST_CPUS, have, whole, reason);
    have = lp__text_read(&host->load, host->root, "proc/loadavg", text, &reason) >= 0;
    if (have) { /* always two digits behind the point */
        have = lp__number(&at, &whole) && *at++ == '.' && lp__number(&at, &part);
        reason = LP_REASON_UNREADABLE;
    }
    lp__sample_put(sample, LP_COLUMN_HOST_LOAD, have, whole * 1000 + part * 10, reason);
}

static void sample_memory(lp_host *host, lp_sample *sample)
{
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    int64_t value = 0, rest = 0;
    bool read = lp__text_read(&host->memory, host->root, "proc/meminfo", text, &reason) >= 0;

    if (read)
        reason = LP_REASON_UNREADABLE;
    bool have = read && lp__number_of(text, "MemTotal:", &value);
    lp__sample_put(sample, LP_COLUMN_HOST_MEMORY, have, value, reason);
    have = read && lp__number_of(text, "MemAvailable:", &value);
    lp__sample_put(sample, LP_COLUMN_HOST_AVAILABLE, have, value, reason);
    have =
        read && lp__number_of(text, "SwapTotal:", &value) && lp__number_of(text, "SwapFree:", &rest) && rest <= value;
    lp__sample_put(sample, LP_COLUMN_HOST_SWAP_USED, have, have ? value - rest : 0, reason);
}

static void sample_pressure(lp_host *host, lp__text_file *file, const char *path, lp_column some, lp_column full,
                            lp_sample *sample)
{
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    int64_t value = 0;
    bool read = lp__text_read(file, host->root, path, text, &reason) >= 0;

    if (read)
        reason = LP_REASON_UNREADABLE;
    bool have = read && lp__number_within(text, "some ", "total=", &value);
    lp__sample_put(sample, some, have, value, reason);
    if (full == LP_COLUMNS)
        return;
    have = read && lp__number_within(text, "full ", "total=", &value);
    lp__sample_put(sample, full, have, value, reason);
}

void lp_host_sample(lp_host *host, lp_sample *sample)
{
    sample_cpus(host, sample);
    sample_load(host, sample);
    sample_memory(host, sample);
    sample_pressure(host, &host->pressure_cpu, "proc/pressure/cpu", LP_COLUMN_PSI_CPU, LP_COLUMNS, sample);
    sample_pressure(host, &host->pressure_memory, "proc/pressure/memory", LP_COLUMN_PSI_MEMORY,
                    LP_COLUMN_PSI_MEMORY_FULL, sample);
    sample_pressure(host, &host->pressure_io, "proc/pressure/io", LP_COLUMN_PSI_IO, LP_COLUMN_PSI_IO_FULL, sample);
}
