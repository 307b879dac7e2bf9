/* Context switches and run-queue delay of a process are its threads' own: /proc/<pid>/status and schedstat speak of the first
 * alone. So the others are read in turn, a bounded number a time; the sum is of what was last seen of each. A thread that begins
 * and ends between two turns is not seen, and what one did after its last turn is lost with it. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sample/process.h"

#define LISTED_EVERY 10u  /* turns, while their number stays */
#define THREADS_MAX 4096u /* of one process that are kept apart */

typedef struct one {
    int64_t tid;
    int64_t voluntary, forced, delay_us; /* as last read; LP_UNKNOWN_I64 never */
    uint64_t turn;                       /* in which it was read */
    uint64_t seen;                       /* listing in which it was there */
} one;

struct lp__thread_sums {
    one *at; /* owned; sorted by tid */
    uint32_t count, room;
    uint64_t turn, listing;
    int64_t ended_voluntary, ended_forced, ended_delay_us; /* of those that are gone */
    uint32_t next;                                         /* of lp__threads_next */
};

void lp__threads_free(lp__thread_sums *threads)
{
    if (threads)
        free(threads->at);
    free(threads);
}

int64_t lp__threads_next(lp__thread_sums *threads)
{
    return threads->count ? threads->at[threads->next++ % threads->count].tid : 0;
}

static int by_tid(const void *a, const void *b)
{
    int64_t x = ((const one *)a)->tid, y = ((const one *)b)->tid;
    return x < y ? -1 : x > y;
}

static one *find(lp__thread_sums *t, uint32_t count, int64_t tid)
{
    one key = {.tid = tid};
    return count ? bsearch(&key, t->at, count, sizeof *t->at, by_tid) : NULL;
}

static void add_known(int64_t *sum, int64_t value)
{
    if (value != LP_UNKNOWN_I64)
        *sum += value;
}

/* What the folder `task` lists now. */
static void list_threads(lp__thread_sums *t, const lp_process *process)
{
    int fd = openat(process->dir, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    uint32_t known = t->count;

    if (!list) {
        if (fd >= 0)
            close(fd);
        return;
    }
    t->listing++;
    for (struct dirent *entry; (entry = readdir(list));) {
        const char *at = entry->d_name;
        int64_t tid;
        if (!lp__number(&at, &tid) || *at || tid == process->pid)
            continue;
        one *old = find(t, known, tid);
        if (old) {
            old->seen = t->listing;
            continue;
        }
        if (t->count == THREADS_MAX)
            continue;
        if (t->count == t->room) {
            uint32_t room = t->room ? 2 * t->room : 16;
            one *grown = realloc(t->at, room * sizeof *grown);
            if (!grown)
                break;
            t->at = grown;
            t->room = room;
        }
        t->at[t->count++] = (one){.tid = tid,
                                  .voluntary = LP_UNKNOWN_I64,
                                  .forced = LP_UNKNOWN_I64,
                                  .delay_us = LP_UNKNOWN_I64,
                                  .seen = t->listing};
    }
    closedir(list);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->at[i].seen == t->listing) {
            t->at[kept++] = t->at[i];
            continue;
        }
        add_known(&t->ended_voluntary, t->at[i].voluntary);
        add_known(&t->ended_forced, t->at[i].forced);
        add_known(&t->ended_delay_us, t->at[i].delay_us);
    }
    t->count = kept;
    if (kept)
        qsort(t->at, kept, sizeof *t->at, by_tid);
}

static bool get_delay(const char *schedstat, int64_t *us)
{
    int64_t on_cpu;

    if (!lp__number(&schedstat, &on_cpu) || !lp__number(&schedstat, us))
        return false;
    *us /= 1000;
    return true;
}

static void read_one(one *thread, const lp_process *process, uint64_t turn)
{
    char path[64], text[LP__TEXT_ROOM];
    lp_reason reason;
    int64_t value;

    thread->turn = turn;
    snprintf(path, sizeof path, "task/%" PRId64 "/status", thread->tid);
    if (lp__text_once(process->dir, path, text, &reason) >= 0) {
        lp__status status;
        lp__status_parse(text, &status);
        if (status.voluntary != LP_UNKNOWN_I64)
            thread->voluntary = status.voluntary;
        if (status.forced != LP_UNKNOWN_I64)
            thread->forced = status.forced;
    }
    snprintf(path, sizeof path, "task/%" PRId64 "/schedstat", thread->tid);
    if (lp__text_once(process->dir, path, text, &reason) >= 0 && get_delay(text, &value))
        thread->delay_us = value;
}

/* Those whose turn is longest ago; the table is small, and the budget smaller. */
static unsigned read_in_turn(lp__thread_sums *t, const lp_process *process, unsigned *budget)
{
    unsigned read = 0;

    t->turn++;
    while (*budget > 0 && read < t->count) {
        one *oldest = NULL;
        for (uint32_t i = 0; i < t->count; i++)
            if (t->at[i].turn < t->turn && (!oldest || t->at[i].turn < oldest->turn))
                oldest = &t->at[i];
        if (!oldest)
            break;
        read_one(oldest, process, t->turn);
        --*budget;
        read++;
    }
    return read;
}

bool lp__threads_sample(lp_process *process, int64_t count, const lp__status *status, lp_reason status_reason,
                        lp_sample *sample, unsigned *budget)
{
    char text[LP__TEXT_ROOM];
    lp_reason delay_reason = LP_REASON_NONE;
    int64_t voluntary = status->voluntary, forced = status->forced, delay = 0;
    unsigned read = 0;
    bool have = voluntary != LP_UNKNOWN_I64 && forced != LP_UNKNOWN_I64;
    bool have_delay = lp__process_read(process, &process->schedstat, "schedstat", text, &delay_reason) >= 0;

    if (have_delay && !get_delay(text, &delay)) {
        have_delay = false;
        delay_reason = LP_REASON_UNREADABLE;
    }
    if (count > 1 && !process->threads)
        process->threads = calloc(1, sizeof *process->threads);
    lp__thread_sums *t = process->threads;
    if (t) {
        if (count - 1 != (int64_t)t->count || t->turn % LISTED_EVERY == 0) /* 64 threads take 25 us */
            list_threads(t, process);
        read = read_in_turn(t, process, budget);
        voluntary = (have ? voluntary : 0) + t->ended_voluntary;
        forced = (have ? forced : 0) + t->ended_forced;
        delay += t->ended_delay_us;
        for (uint32_t i = 0; i < t->count; i++) {
            add_known(&voluntary, t->at[i].voluntary);
            add_known(&forced, t->at[i].forced);
            add_known(&delay, t->at[i].delay_us);
        }
    }
    lp_reason reason = status_reason ? status_reason : LP_REASON_UNREADABLE;
    lp__sample_put(sample, LP_COLUMN_SWITCHES_VOLUNTARY, have, voluntary, reason);
    lp__sample_put(sample, LP_COLUMN_SWITCHES_FORCED, have, forced, reason);
    lp__sample_put(sample, LP_COLUMN_RUN_DELAY, have_delay, delay, delay_reason);
    lp_sample_set(sample, LP_COLUMN_THREADS_READ, 1 + (int64_t)read);
    return !t || read == t->count;
}
