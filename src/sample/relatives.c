/* Children that are not recorded: those that have ended are in cutime and cstime, once their parent has waited for them; till
 * then their CPU time counts with that of the living. These are found by the `children` files of the process's threads and of
 * those found before. A recorded child, and what it started, has samples of its own and is left out. What starts and ends
 * between two looks, and is not waited for, is not seen. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sample/process.h"

#define RELATIVES_MAX 64u /* kept apart; further ones are not counted */

typedef struct one {
    int64_t pid, start, ticks, rss_pages;
    bool ended; /* nobody has waited for it yet: its CPU time is in no cutime, and must not be missing until it is */
} one;

struct lp__relatives {
    one at[RELATIVES_MAX];
    uint32_t count;
    uint32_t next; /* whose turn it is to be read */
};

void lp__relatives_free(lp__relatives *relatives)
{
    free(relatives);
}

/* false: it has ended and was waited for, or the number is another process's by now. */
static bool refresh(int root, one *child)
{
    char path[48], text[LP__TEXT_ROOM];
    lp_reason reason;
    lp__stat stat;

    snprintf(path, sizeof path, "proc/%" PRId64 "/stat", child->pid);
    if (lp__text_once(root, path, text, &reason) < 0 || !lp__stat_parse(text, &stat) || stat.state == 'X' ||
        (child->start && child->start != stat.start))
        return false;
    child->start = stat.start;
    child->ended = stat.state == 'Z';
    child->ticks = stat.user + stat.system + stat.children_user + stat.children_system;
    child->rss_pages = stat.rss_pages;
    return true;
}

static bool is_known(const lp__relatives *r, int64_t pid)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->at[i].pid == pid)
            return true;
    return false;
}

bool lp__relatives_has(const lp__relatives *relatives, int64_t pid)
{
    return relatives && is_known(relatives, pid);
}

typedef struct search {
    lp_process *process;
    int root;
    lp_is_recorded *is_recorded;
    void *user;
    unsigned *budget;
} search;

/* The collector is started through a child of the program, which has it as its own child for a moment (for PID 1 and
 * subreapers: for ever). Neither is the program's. */
static bool is_ourselves(const search *s, int64_t pid)
{
    return s->process->real && (pid == getpid() || pid == getppid());
}

/* Takes the pids of a `children` file. */
static void take_children(const search *s, const char *list)
{
    int64_t pid;

    while (lp__number(&list, &pid)) {
        one child = {.pid = pid};
        lp__relatives *r = s->process->relatives;
        if ((r && (r->count == RELATIVES_MAX || is_known(r, pid))) || s->is_recorded(s->user, pid) ||
            is_ourselves(s, pid))
            continue;
        if (*s->budget == 0 || !refresh(s->root, &child) || child.ended) /* may have been a recorded one */
            continue;
        --*s->budget;
        if (!r)
            r = s->process->relatives = calloc(1, sizeof *r);
        if (r)
            r->at[r->count++] = child;
    }
}

static void look_for_more(const search *s)
{
    lp_process *p = s->process;
    char path[96], text[LP__TEXT_ROOM];
    lp_reason reason;
    int64_t tid = p->threads ? lp__threads_next(p->threads) : 0;

    if (tid) {
        snprintf(path, sizeof path, "task/%" PRId64 "/children", tid);
        if (lp__text_once(p->dir, path, text, &reason) > 0)
            take_children(s, text);
    }
    lp__relatives *r = p->relatives;
    for (uint32_t i = 0; r && i < r->count && *s->budget > 0; i++) { /* theirs; the list may grow meanwhile */
        snprintf(path, sizeof path, "proc/%" PRId64 "/task/%" PRId64 "/children", r->at[i].pid, r->at[i].pid);
        if (lp__text_once(s->root, path, text, &reason) > 0)
            take_children(s, text);
    }
}

/* Those whose turn it is; one that has ended or records by now goes. */
static void refresh_known(const search *s)
{
    lp__relatives *r = s->process->relatives;
    uint32_t left = r->count;

    while (left-- > 0 && r->count > 0 && *s->budget > 0) {
        uint32_t i = r->next % r->count;
        --*s->budget;
        if (s->is_recorded(s->user, r->at[i].pid) || !refresh(s->root, &r->at[i]))
            r->at[i] = r->at[--r->count];
        else
            r->next = i + 1;
    }
}

void lp_process_children(lp_process *process, int root, lp_is_recorded *is_recorded, void *user, int64_t recorded_ticks,
                         lp_sample *sample, unsigned *budget)
{
    search s = {process, root, is_recorded, user, budget};
    char path[64], text[LP__TEXT_ROOM];
    lp_reason reason = LP_REASON_NONE;
    int64_t ticks = 0, pages = 0, count = 0, ended = process->ended_ticks - recorded_ticks;

    /* That of a recorded child is known to its last sample only, so a little of it can be left. */
    lp_sample_set(sample, LP_COLUMN_CHILDREN_ENDED_CPU, ended > 0 ? ended * LP_TICK_US : 0);
    if (process->idle && process->full.repeated > 0 && process->childless) {
        /* Only a subreaper gets children without running, and it is asked again with its next full sample. */
        lp_sample_set(sample, LP_COLUMN_CHILDREN_LIVING, 0);
        lp_sample_set(sample, LP_COLUMN_CHILDREN_LIVING_CPU, 0);
        lp_sample_set(sample, LP_COLUMN_CHILDREN_LIVING_RSS, 0);
        return;
    }
    if (process->relatives)
        refresh_known(&s);
    snprintf(path, sizeof path, "task/%" PRId64 "/children", process->pid);
    bool have = lp__process_read(process, &process->children, path, text, &reason) >= 0;
    if (!have && process->ended) { /* whoever it has not waited for is another's child by now */
        text[0] = '\0';
        have = true;
    }
    process->childless = have && !text[0] && !process->threads && (!process->relatives || !process->relatives->count);
    if (have) {
        take_children(&s, text);
        look_for_more(&s);
    }
    for (uint32_t i = 0; process->relatives && i < process->relatives->count; i++) {
        const one *child = &process->relatives->at[i];
        ticks += child->ticks;
        pages += child->rss_pages > 0 ? child->rss_pages : 0;
        count += !child->ended;
    }
    lp__sample_put(sample, LP_COLUMN_CHILDREN_LIVING, have, count, reason);
    lp__sample_put(sample, LP_COLUMN_CHILDREN_LIVING_CPU, have, ticks * LP_TICK_US, reason);
    lp__sample_put(sample, LP_COLUMN_CHILDREN_LIVING_RSS, have, pages * (sysconf(_SC_PAGESIZE) >> 10), reason);
}
