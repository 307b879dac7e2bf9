#include "sample/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REPEATED_MAX 9u /* of an idle process, before it is read in full once more */

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
    out->children_minor = field[11];
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
    process->full.clock_ns = LP_UNKNOWN_I64;
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

int64_t lp_process_cpu_ns(int64_t pid)
{
    struct timespec t;
    clockid_t clock = (clockid_t)((~(unsigned)pid << 3) | 2u); /* CPUCLOCK_SCHED of the process */

    return clock_gettime(clock, &t) == 0 ? (int64_t)t.tv_sec * 1000000000 + t.tv_nsec : LP_UNKNOWN_I64;
}

/* "ff,ffffffff": bits of the mask. */
static int64_t count_cpus(const char *at)
{
    int64_t count = 0;

    for (; *at && *at != '\n'; at++) {
        unsigned digit = *at >= '0' && *at <= '9' ? (unsigned)(*at - '0') : 0;
        if (*at >= 'a' && *at <= 'f')
            digit = (unsigned)(*at - 'a') + 10;
        count += __builtin_popcount(digit);
    }
    return count > 0 ? count : LP_UNKNOWN_I64;
}

/* One way through its sixty lines: most are told by their first letter. */
void lp__status_parse(const char *text, lp__status *out)
{
    struct {
        const char *key;
        int64_t *value;
    } keys[] = {{"NSpid:", &out->outer_pid},
                {"VmHWM:", &out->peak_kib},
                {"VmRSS:", &out->rss_kib},
                {"VmSwap:", &out->swap_kib},
                {"Cpus_allowed:", &out->cpus_allowed},
                {"voluntary_ctxt_switches:", &out->voluntary},
                {"nonvoluntary_ctxt_switches:", &out->forced}};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        *keys[i].value = LP_UNKNOWN_I64;
    for (const char *line = text, *end; line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        if (*line != 'V' && *line != 'N' && *line != 'C' && *line != 'v' && *line != 'n')
            continue;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            size_t size = strlen(keys[i].key);
            const char *at = line + size;
            if (strncmp(line, keys[i].key, size) != 0 || *keys[i].value != LP_UNKNOWN_I64)
                continue;
            if (keys[i].value == &out->cpus_allowed)
                out->cpus_allowed = count_cpus(at);
            else if (!lp__number(&at, keys[i].value))
                *keys[i].value = LP_UNKNOWN_I64;
            break;
        }
    }
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

/* `statm` says the same as `status`, and is read where that does not. */
static int64_t rss_kib(lp_process *process, const lp__status *status, lp_reason *reason)
{
    char text[LP__TEXT_ROOM];
    const char *at = text;
    int64_t size = 0, pages = 0;

    if (process->ended) {
        *reason = LP_REASON_GONE;
        return LP_UNKNOWN_I64;
    }
    if (status->rss_kib != LP_UNKNOWN_I64)
        return status->rss_kib;
    if (read_memory(process, &process->statm, "statm", text, reason) < 0)
        return LP_UNKNOWN_I64;
    if (!lp__number(&at, &size) || !lp__number(&at, &pages))
        *reason = LP_REASON_UNREADABLE;
    else if (size == 0) /* it has given its address space back (exit_mm), and is no zombie yet: no measured zero */
        *reason = process->leader_ended ? LP_REASON_LEADER_ENDED : LP_REASON_GONE;
    else
        return pages * (sysconf(_SC_PAGESIZE) >> 10);
    return LP_UNKNOWN_I64;
}

/* `status` of the first thread, and why it could not be read. */
static void sample_memory(lp_process *process, lp_sample *sample, const lp__status *status, lp_reason status_reason)
{
    char text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    lp__status other;

    if (process->leader_ended) {
        status_reason = LP_REASON_NONE;
        if (read_memory(process, &process->status, "status", text, &status_reason) < 0)
            text[0] = '\0';
        lp__status_parse(text, &other);
        status = &other;
    }
    process->rss_kib = rss_kib(process, status, &reason);
    lp__sample_put(sample, LP_COLUMN_RSS, process->rss_kib != LP_UNKNOWN_I64, process->rss_kib, reason);
    if (status_reason || !reason)
        reason = status_reason ? status_reason : process->leader_ended ? LP_REASON_LEADER_ENDED : LP_REASON_UNREADABLE;
    lp__sample_put(sample, LP_COLUMN_RSS_PEAK, status->peak_kib != LP_UNKNOWN_I64, status->peak_kib, reason);
    lp__sample_put(sample, LP_COLUMN_SWAP, status->swap_kib != LP_UNKNOWN_I64, status->swap_kib, reason);
}

static void sample_io(const char *text, lp_reason reason, lp_sample *sample)
{
    static const struct {
        const char *key;
        lp_column column;
    } keys[] = {{"rchar:", LP_COLUMN_READ_CHARS},
                {"wchar:", LP_COLUMN_WRITE_CHARS},
                {"read_bytes:", LP_COLUMN_READ_BYTES},
                {"write_bytes:", LP_COLUMN_WRITE_BYTES},
                {"cancelled_write_bytes:", LP_COLUMN_CANCELLED_BYTES}};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t value = 0;
        bool found = reason == LP_REASON_NONE && lp__number_of(text, keys[i].key, &value);
        lp__sample_put(sample, keys[i].column, found, value, reason ? reason : LP_REASON_UNREADABLE);
    }
}

/* ---- one that has not run */

/* As it was at the last full sample? Then statm's text is read and compared, and kept for the next time. What others can do to a
 * process that does not run is to take its memory (statm tells) or to move it to other CPUs, which is seen at the next full one. */
static bool is_as_before(lp_process *process)
{
    char text[LP__TEXT_ROOM];
    lp_reason reason;
    long size;

    if (!process->idle || !process->full.complete || process->leader_ended || process->ended ||
        process->full.repeated == REPEATED_MAX)
        return false;
    size = lp__text_read(&process->statm, process->dir, "statm", text, &reason);
    if (size <= 0 || (size_t)size >= sizeof process->full.statm)
        return false;
    bool same = strcmp(text, process->full.statm) == 0;
    memcpy(process->full.statm, text, (size_t)size + 1);
    return same;
}

static void repeat(lp_process *process, lp_sample *sample)
{
    memcpy(sample->value, process->full.value, sizeof process->full.value);
    memcpy(sample->reason, process->full.reason, sizeof process->full.reason);
    process->full.repeated++;
}

static void remember(lp_process *process, const lp_sample *sample, bool complete)
{
    memcpy(process->full.value, sample->value, sizeof process->full.value);
    memcpy(process->full.reason, sample->reason, sizeof process->full.reason);
    process->full.complete = complete;
    process->full.repeated = 0;
    if (!process->idle) /* else it was read just before, and nothing has changed it since */
        process->full.statm[0] = '\0';
}

/* ---- all of it */

lp_reason lp_process_sample(lp_process *process, lp_sample *sample, unsigned *thread_budget)
{
    char text[LP__TEXT_ROOM], io[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE, status_reason = LP_REASON_NONE, io_reason = LP_REASON_NONE;
    lp__stat stat;
    lp__status status;
    int64_t clock = process->real ? lp_process_cpu_ns(process->pid) : LP_UNKNOWN_I64; /* first: the rest is not older */
    int64_t cpu = clock / 1000;

    process->idle = clock != LP_UNKNOWN_I64 && clock == process->full.clock_ns;
    if (is_as_before(process)) {
        repeat(process, sample);
        return LP_REASON_NONE;
    }
    process->full.complete = false;
    process->full.clock_ns = clock;
    /* Before `stat`, whose cminflt tells that a child was waited for: its bytes are never there before it (reaped.c). */
    if (lp__process_read(process, &process->io, "io", io, &io_reason) >= 0)
        io_reason = LP_REASON_NONE;
    if (lp__text_read(&process->stat, process->dir, "stat", text, &reason) < 0)
        return reason == LP_REASON_NO_FILE ? LP_REASON_GONE : reason;
    if (!lp__stat_parse(text, &stat))
        return LP_REASON_UNREADABLE;
    if (clock == LP_UNKNOWN_I64)
        cpu = (stat.user + stat.system) * LP_TICK_US;
    process->leader_ended = stat.state == 'Z' && stat.threads > 1;
    process->ended = stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
    process->parent = stat.parent;
    process->ended_ticks = stat.children_user + stat.children_system;
    process->total_ticks = stat.user + stat.system + process->ended_ticks;
    process->ended_faults = stat.children_minor;
    process->total_faults = stat.minor + process->ended_faults;
    lp_sample_set(sample, LP_COLUMN_CPU, cpu);
    /* Rounded on its own, so that it could exceed the whole by a tick. */
    int64_t system = stat.system * LP_TICK_US;
    lp_sample_set(sample, LP_COLUMN_CPU_SYSTEM, system < cpu ? system : cpu);
    lp_sample_set(sample, LP_COLUMN_FAULTS_MINOR, stat.minor);
    lp_sample_set(sample, LP_COLUMN_FAULTS_MAJOR, stat.major);
    lp_sample_set(sample, LP_COLUMN_THREADS, stat.threads);
    if (lp__process_read(process, &process->status, "status", text, &status_reason) < 0)
        text[0] = '\0';
    lp__status_parse(text, &status);
    if (status.outer_pid != LP_UNKNOWN_I64)
        process->outer_pid = status.outer_pid;
    lp__sample_put(sample, LP_COLUMN_CPUS_ALLOWED, status.cpus_allowed != LP_UNKNOWN_I64, status.cpus_allowed,
                   status_reason);
    bool complete = lp__threads_sample(process, stat.threads, &status, status_reason, sample, thread_budget);
    sample_memory(process, sample, &status, status_reason);
    sample_io(io, io_reason, sample);
    remember(process, sample, complete);
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
