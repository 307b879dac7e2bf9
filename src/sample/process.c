#include "sample/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool lp__stat_parse(const char *text, lp__stat *out)
{
    /* The name may hold anything, ") R 1 2" included; what follows has no bracket. */
    const char *at = strrchr(text, ')');
    int64_t field[25];

    if (!at || at[1] != ' ' || at[2] == '\0' || at[3] != ' ')
        return false;
    out->state = at[2];
    at += 3;
    for (unsigned i = 4; i <= 24; i++) {
        while (*at == ' ')
            at++;
        if (*at == '-') { /* tty, priority and the like; none that we use */
            field[i] = -1;
            while (*at && *at != ' ')
                at++;
        } else if (!lp__number(&at, &field[i])) {
            return false;
        }
    }
    out->parent = field[4];
    out->minor = field[10];
    out->major = field[12];
    out->user = field[14];
    out->system = field[15];
    out->children_user = field[16];
    out->children_system = field[17];
    out->threads = field[20];
    out->start = field[22];
    out->rss_pages = field[24];
    return true;
}

/* hidepid hides what is in the folder, too, from the moment at which the process becomes another user's or not dumpable. */
static bool is_hidden(int dir)
{
    return faccessat(dir, "stat", F_OK, 0) != 0 && errno == ENOENT;
}

long lp__process_read(lp_process *process, lp__text_file *file, const char *path, char text[LP__TEXT_ROOM],
                      lp_reason *reason)
{
    long size = lp__text_read(file, process->dir, path, text, reason);

    if (size < 0 && *reason == LP_REASON_NO_FILE && is_hidden(process->dir)) {
        *reason = LP_REASON_HIDDEN;
        file->gave_up = false;
    }
    return size;
}

/* /proc without a process that lives: of another user under hidepid, or not there. */
static lp_reason why_missing(int root)
{
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;

    /* pid 1 is always there; whom we may not see is not */
    return lp__text_once(root, "proc/1/stat", text, &reason) < 0 && lp__text_once(root, "proc/stat", text, &reason) >= 0
               ? LP_REASON_HIDDEN
               : LP_REASON_GONE;
}

lp_reason lp_process_open(lp_process *process, int root, int64_t pid, int64_t start, bool real)
{
    char path[48], text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    lp__stat stat;

    *process = (lp_process){.pid = pid, .dir = -1, .real = real, .outer_pid = pid, .rss_kib = LP_UNKNOWN_I64};
    snprintf(path, sizeof path, "proc/%" PRId64, pid);
    process->dir = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (process->dir < 0)
        return errno == ENOENT                      ? why_missing(root)
               : errno == EMFILE || errno == ENFILE ? LP_REASON_FAILED
                                                    : LP_REASON_HIDDEN;
    if (lp__text_read(&process->stat, process->dir, "stat", text, &reason) < 0) {
        lp_process_close(process);
        return reason == LP_REASON_DENIED ? LP_REASON_HIDDEN : reason == LP_REASON_NO_FILE ? LP_REASON_GONE : reason;
    }
    if (!lp__stat_parse(text, &stat)) {
        lp_process_close(process);
        return LP_REASON_UNREADABLE;
    }
    if (start > 0 && stat.start != start) {
        lp_process_close(process);
        return LP_REASON_GONE;
    }
    process->start = stat.start;
    process->parent = stat.parent;
    return LP_REASON_NONE;
}

void lp_process_close(lp_process *process)
{
    lp__text_file *const files[] = {&process->stat, &process->statm,     &process->status,
                                    &process->io,   &process->schedstat, &process->children};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        lp__text_close(files[i]);
    lp__threads_free(process->threads);
    process->threads = NULL;
    lp__relatives_free(process->relatives);
    process->relatives = NULL;
    if (process->dir >= 0)
        close(process->dir);
    process->dir = -1;
}

/* CPU time of all threads, also of those that have ended, in us. The clock of a process is anybody's to read; after its number
 * was given away it is another's, so the number is checked by a read of `stat` after it. */
static int64_t cpu_us(const lp_process *process)
{
    struct timespec t;
    clockid_t clock = (clockid_t)((~(unsigned)process->pid << 3) | 2u); /* CPUCLOCK_SCHED of the process */

    if (!process->real || clock_gettime(clock, &t) != 0)
        return LP_UNKNOWN_I64;
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Where the first thread has ended, the files of the process have no memory any more, but another thread's have. */
static long read_memory(lp_process *process, lp__text_file *file, const char *name, char text[LP__TEXT_ROOM],
                        lp_reason *reason)
{
    char path[64];
    int64_t tid = process->leader_ended && process->threads ? lp__threads_next(process->threads) : 0;

    if (!tid)
        return lp__process_read(process, file, name, text, reason);
    snprintf(path, sizeof path, "task/%" PRId64 "/%s", tid, name);
    return lp__text_once(process->dir, path, text, reason);
}

/* `status` of the first thread: read once a sample. */
static void sample_memory(lp_process *process, lp_sample *sample, const char *status, long status_size,
                          lp_reason status_reason)
{
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    int64_t pages = LP_UNKNOWN_I64, value = 0;
    bool have = read_memory(process, &process->statm, "statm", text, &reason) >= 0;

    if (have) {
        const char *at = text;
        have = lp__number(&at, &pages) && lp__number(&at, &pages);
        reason = LP_REASON_UNREADABLE;
    }
    if (have && pages == 0 && process->leader_ended) {
        have = false;
        reason = LP_REASON_LEADER_ENDED;
    }
    if (process->ended) {
        have = false;
        reason = LP_REASON_GONE;
    }
    process->rss_kib = have ? pages * (sysconf(_SC_PAGESIZE) >> 10) : LP_UNKNOWN_I64;
    lp__sample_put(sample, LP_COLUMN_RSS, have, process->rss_kib, reason);
    long size = status_size;
    reason = status_reason;
    if (process->leader_ended) {
        size = read_memory(process, &process->status, "status", text, &reason);
        status = text;
    }
    if (size >= 0)
        reason = process->ended          ? LP_REASON_GONE
                 : process->leader_ended ? LP_REASON_LEADER_ENDED
                                         : LP_REASON_UNREADABLE;
    have = size >= 0 && lp__number_of(status, "VmHWM:", &value);
    lp__sample_put(sample, LP_COLUMN_RSS_PEAK, have, value, reason);
    have = size >= 0 && lp__number_of(status, "VmSwap:", &value);
    lp__sample_put(sample, LP_COLUMN_SWAP, have, value, reason);
}

static void sample_io(lp_process *process, lp_sample *sample)
{
    static const struct {
        const char *key;
        lp_column column;
    } keys[] = {{"rchar:", LP_COLUMN_READ_CHARS},
                {"wchar:", LP_COLUMN_WRITE_CHARS},
                {"read_bytes:", LP_COLUMN_READ_BYTES},
                {"write_bytes:", LP_COLUMN_WRITE_BYTES},
                {"cancelled_write_bytes:", LP_COLUMN_CANCELLED_BYTES}};
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    bool have = lp__process_read(process, &process->io, "io", text, &reason) >= 0;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t value = 0;
        bool found = have && lp__number_of(text, keys[i].key, &value);
        lp__sample_put(sample, keys[i].column, found, value, have ? LP_REASON_UNREADABLE : reason);
    }
}

/* "ff,ffffffff": bits of the mask. */
static bool count_cpus(const char *status, int64_t *count)
{
    const char *at = strstr(status, "\nCpus_allowed:");

    if (!at)
        return false;
    *count = 0;
    for (at += sizeof "\nCpus_allowed:" - 1; *at && *at != '\n'; at++) {
        unsigned digit = *at >= '0' && *at <= '9' ? (unsigned)(*at - '0') : 0;
        if (*at >= 'a' && *at <= 'f')
            digit = (unsigned)(*at - 'a') + 10;
        *count += __builtin_popcount(digit);
    }
    return *count > 0;
}

lp_reason lp_process_sample(lp_process *process, lp_sample *sample, unsigned *thread_budget)
{
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    lp__stat stat;
    int64_t value = 0, cpu = cpu_us(process);

    if (lp__text_read(&process->stat, process->dir, "stat", text, &reason) < 0)
        return reason == LP_REASON_NO_FILE ? LP_REASON_GONE : reason;
    if (!lp__stat_parse(text, &stat))
        return LP_REASON_UNREADABLE;
    if (cpu == LP_UNKNOWN_I64)
        cpu = (stat.user + stat.system) * LP_TICK_US;
    process->leader_ended = stat.state == 'Z' && stat.threads > 1;
    process->ended = stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
    process->parent = stat.parent;
    process->ended_ticks = stat.children_user + stat.children_system;
    process->total_ticks = stat.user + stat.system + process->ended_ticks;
    lp_sample_set(sample, LP_COLUMN_CPU, cpu);
    /* Rounded on its own, so that it could exceed the whole by a tick. */
    int64_t system = stat.system * LP_TICK_US;
    lp_sample_set(sample, LP_COLUMN_CPU_SYSTEM, system < cpu ? system : cpu);
    lp_sample_set(sample, LP_COLUMN_FAULTS_MINOR, stat.minor);
    lp_sample_set(sample, LP_COLUMN_FAULTS_MAJOR, stat.major);
    lp_sample_set(sample, LP_COLUMN_THREADS, stat.threads);
    long size = lp__process_read(process, &process->status, "status", text, &reason);
    if (size >= 0 && lp__number_of(text, "NSpid:", &value))
        process->outer_pid = value;
    bool have = size >= 0 && count_cpus(text, &value);
    lp__sample_put(sample, LP_COLUMN_CPUS_ALLOWED, have, value, size >= 0 ? LP_REASON_UNREADABLE : reason);
    lp__threads_sample(process, stat.threads, text, size, reason, sample, thread_budget);
    sample_memory(process, sample, text, size, reason);
    sample_io(process, sample);
    return LP_REASON_NONE;
}

lp_reason lp_process_pss(int dir, int64_t *kib)
{
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;

    if (lp__text_once(dir, "smaps_rollup", text, &reason) < 0) {
        lp__stat stat;
        lp_reason other;
        /* The first thread has no memory any more when it has ended; the process has, while others run. */
        if (reason == LP_REASON_GONE && lp__text_once(dir, "stat", text, &other) >= 0 && lp__stat_parse(text, &stat) &&
            stat.threads > 1)
            return LP_REASON_LEADER_ENDED;
        return reason == LP_REASON_NO_FILE && is_hidden(dir) ? LP_REASON_HIDDEN : reason;
    }
    return lp__number_of(text, "Pss:", kib) ? LP_REASON_NONE : LP_REASON_UNREADABLE;
}
