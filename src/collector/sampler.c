#include "collector/sampler.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "store/arena.h"
#include "store/describe.h"
#include "store/segment.h"

#define SECOND_NS 1000000000u
#define THREADS_A_TICK 64u  /* threads besides the first ones whose files are read: some 0.6 ms */
#define THREADS_AT_LAST 16u /* of a process that has just ended */
#define CHILDREN_A_TICK 64u
#define PSS_EVERY_NS (10ull * SECOND_NS) /* of one process, at most */
#define PSS_COST                                                                                                       \
    1000u /* a reading of 1 ms is followed by 1 s without one: 0.1 % of a CPU, whatever the processes hold */

static lp__sampler *the_sampler; /* for the watch table's word that an entry goes */

static uint64_t unix_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static uint64_t own_cpu_ns(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) == 0 ? (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec : 0;
}

/* The next point of the grid. All processes of one interval share it. */
static uint64_t grid_after(uint64_t now, uint64_t interval)
{
    return (now / interval + 1) * interval;
}

static void read_pss(void *argument)
{
    lp__pss_job *job = argument;
    uint64_t began = own_cpu_ns(CLOCK_THREAD_CPUTIME_ID);

    job->reason = lp_process_pss(job->dir, &job->kib);
    job->took_ns = own_cpu_ns(CLOCK_THREAD_CPUTIME_ID) - began;
}

/* A row that finds the process dead: it may be a zombie still, with all that it has used. */
static void take_last(lp__sampler *sampler, lp__sampled *s)
{
    lp__budgets budgets = {.threads = THREADS_AT_LAST, .children = LP__CHILDREN_AT_LAST};

    lp__sampled_row(s, sampler->watch, sampler->root, lp__now_ns(), unix_now(), &budgets, true);
}

static void remove_sampled(lp__sampler *sampler, lp__sampled *s)
{
    lp__sampled **link = &sampler->list;

    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    sampler->count--;
    if (sampler->pss_job.who == s)
        sampler->pss_job.who = NULL;
    if (s->watched)
        s->watched->sampled = NULL;
    lp__sampled_tell_parent(s, sampler->watch, sampler->root);
    lp__sampled_free(s);
}

static void dropped(void *sampled)
{
    lp__sampled *s = sampled;

    s->watched = NULL;
    take_last(the_sampler, s);
    remove_sampled(the_sampler, s);
}

bool lp__sampler_start(lp__sampler *sampler, lp__watch *watch)
{
    *sampler =
        (lp__sampler){.watch = watch, .root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), .pss_job = {.dir = -1}};
    lp_clock_init(-1); /* as a process would choose it, so that phases' ticks mean something here */
    lp__aside_init(&sampler->pss, "lineprofiler-ps", read_pss, &sampler->pss_job);
    lp__gpu_start(&sampler->gpu, sampler->root, watch->pid_ns);
    the_sampler = sampler;
    watch->dropped = dropped;
    return sampler->root >= 0;
}

/* ---- the host */

static bool open_host(lp__sampler *sampler, lp__sampled *first)
{
    lp_worker *self = lp_worker_new();

    if (!self)
        return false;
    const lp_identity *id = &first->stream->head->id;
    lp_describe_process(self->arena, &self->id);
    self->id.run_id = lp_arena_str(self->arena, id->run_id.data, id->run_id.size);
    self->id.host = lp_arena_str(self->arena, id->host.data, id->host.size);
    self->id.run_started_ns = id->run_started_ns;
    self->id.argv_count = 0;
    self->id.time_ns = sampler->watch->time_ns;
    if (!self->id.run_id.data || !self->id.host.data) {
        lp_worker_free(self);
        return false;
    }
    sampler->host.interval_ns = first->interval_ns;
    sampler->host.writer = lp_sample_writer_new(LP_SERIES_HOST, 0, first->interval_ns);
    if (sampler->host.writer)
        sampler->host.stream = lp__stream_new(&sampler->streams, self, LP_SERIES_HOST, first->interval_ns);
    if (!sampler->host.stream) {
        lp_worker_free(self);
        return false;
    }
    lp_host_open(&sampler->host.files, sampler->root);
    lp_cgroup_open(&sampler->host.cgroup, sampler->root);
    return true;
}

static void sample_host(lp__sampler *sampler, uint64_t now)
{
    lp_sample row;

    if (!sampler->host.open) {
        sampler->host.open = true;
        if (!open_host(sampler, sampler->list))
            sampler->host.stream = NULL;
    }
    if (!sampler->host.stream || now < sampler->host.due_ns)
        return;
    uint64_t interval = sampler->host.interval_ns, due = sampler->host.due_ns;
    if (due && sampler->host.last_ns)
        sampler->host.missed += (now - due) / interval;
    sampler->host.due_ns = grid_after(now, interval);
    if (!lp__stream_has_room(sampler->host.stream)) {
        sampler->host.missed++;
        return;
    }
    lp_sample_init(&row);
    row.mono_ns = now;
    row.unix_ns = unix_now();
    lp_host_sample(&sampler->host.files, &row);
    lp_cgroup_sample(&sampler->host.cgroup, &row);
    lp_sample_set(&row, LP_COLUMN_PROCESSES, (int64_t)sampler->count);
    lp_sample_set(&row, LP_COLUMN_OWN_CPU, (int64_t)(own_cpu_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000));
    lp_sample_set(&row, LP_COLUMN_HOST_MISSED, (int64_t)sampler->host.missed);
    if (due)
        lp_sample_set(&row, LP_COLUMN_LATENESS, (int64_t)((now - due) / 1000));
    else
        lp_sample_miss(&row, LP_COLUMN_LATENESS, LP_REASON_NOT_YET);
    lp_sample_writer_add(sampler->host.writer, &row, &sampler->host.stream->waiting);
    sampler->host.last_ns = now;
}

void lp__sampler_rest(lp__sampler *sampler)
{
    if (sampler->host.stream) {
        lp_sample_writer_flush(sampler->host.writer, &sampler->host.stream->waiting);
        lp__gpu_flush(&sampler->gpu, sampler->host.stream);
        sampler->host.last_ns = sampler->host.due_ns = 0;
    }
}

/* ---- PSS */

static void take_pss(lp__sampler *sampler, uint64_t now)
{
    lp__pss_job *job = &sampler->pss_job;

    if (!lp__aside_take(&sampler->pss))
        return;
    close(job->dir);
    job->dir = -1;
    sampler->pss_next_ns = now + job->took_ns * PSS_COST;
    if (!job->who)
        return;
    job->who->pss_kib = job->reason ? LP_UNKNOWN_I64 : job->kib;
    job->who->pss_reason = job->reason ? job->reason : LP_REASON_NOT_DUE;
}

/* Whose reading is longest ago. */
static void post_pss(lp__sampler *sampler, uint64_t now)
{
    lp__sampled *oldest = NULL;

    for (lp__sampled *s = sampler->list; s; s = s->next) { /* why it is not read is known also while nobody's is */
        if (s->missing || s->process.rss_kib == LP_UNKNOWN_I64)
            continue;
        if (s->process.rss_kib > LP_PSS_LIMIT_KIB) {
            s->pss_reason = LP_REASON_TOO_LARGE;
            continue;
        }
        if (s->pss_reason == LP_REASON_TOO_LARGE)
            s->pss_reason = LP_REASON_NOT_DUE;
        if ((!s->pss_ns || now >= s->pss_ns + PSS_EVERY_NS) && (!oldest || s->pss_ns < oldest->pss_ns))
            oldest = s;
    }
    if (!oldest || now < sampler->pss_next_ns || !lp__aside_is_free(&sampler->pss))
        return;
    int dir = fcntl(oldest->process.dir, F_DUPFD_CLOEXEC, 3);
    if (dir < 0)
        return;
    oldest->pss_ns = now;
    sampler->pss_job = (lp__pss_job){.dir = dir, .who = oldest};
    lp__aside_post(&sampler->pss);
}

/* ---- rounds */

static void meet(lp__sampler *sampler, lp__watched *w)
{
    lp__sampled *s = lp__sampled_new(sampler->watch, w, &sampler->streams, sampler->root);

    if (!s) {
        w->sample_ns = 0; /* no memory or descriptors: not again a hundred times a second */
        return;
    }
    s->next = sampler->list;
    sampler->list = s;
    sampler->count++;
    w->sampled = s;
    s->due_ns = 0; /* now */
}

/* Somebody has removed sample files: the rows to come are in new ones, from the first on. */
static void begin_anew(lp__sampler *sampler)
{
    for (lp__sampled **link = &sampler->list; *link; link = &(*link)->next) {
        lp__sampled *s = *link, *fresh;
        if (!s->stream->lost || !(fresh = lp__sampled_again(sampler->watch, s, &sampler->streams, sampler->root)))
            continue;
        fresh->next = s->next;
        *link = fresh;
        s->watched->sampled = fresh;
        if (sampler->pss_job.who == s)
            sampler->pss_job.who = NULL;
        lp__sampled_free(s);
    }
    if (sampler->host.stream && sampler->host.stream->lost) {
        lp_sample_writer_free(sampler->host.writer);
        lp__stream_end(sampler->host.stream);
        lp_host_close(&sampler->host.files);
        lp_cgroup_close(&sampler->host.cgroup);
        sampler->host.stream = NULL;
        sampler->host.open = false;
        sampler->host.due_ns = sampler->host.last_ns = 0;
    }
}

uint64_t lp__sampler_due(const lp__sampler *sampler)
{
    uint64_t due = UINT64_MAX;

    if (sampler->list && sampler->host.stream && sampler->host.due_ns < due)
        due = sampler->host.due_ns;
    for (const lp__sampled *s = sampler->list; s; s = s->next)
        if (s->due_ns < due)
            due = s->due_ns;
    return due;
}

void lp__sampler_run(lp__sampler *sampler, uint64_t now, bool flush)
{
    lp__budgets budgets = {.threads = THREADS_A_TICK, .children = CHILDREN_A_TICK};
    bool any = false;

    for (lp__watched *w = sampler->watch->list; w; w = w->next) {
        if (w->fd >= 0 && !w->dead && !w->sampled && w->sample_ns)
            meet(sampler, w);
        if ((w->dead || w->fd < 0) && w->sampled) {
            lp__sampled *s = w->sampled;
            take_last(sampler, s);
            remove_sampled(sampler, s);
            w->sample_ns = 0;
        }
    }
    begin_anew(sampler);
    if (sampler->list)
        take_pss(sampler, now);
    for (lp__sampled *s = sampler->list; s; s = s->next) {
        if (now < s->due_ns)
            continue;
        any = true;
        lp__sampled_row(s, sampler->watch, sampler->root, lp__now_ns(), unix_now(), &budgets, false);
        s->due_ns = grid_after(now, s->interval_ns);
    }
    if (any) {
        /* The next tick begins with another one, so that a budget that does not do for all is shared. */
        lp__sampled *first = sampler->list, *end = first;
        if (first->next) {
            while (end->next)
                end = end->next;
            sampler->list = first->next;
            first->next = NULL;
            end->next = first;
        }
        sample_host(sampler, now);
        if (sampler->host.stream)
            lp__gpu_tick(&sampler->gpu, sampler->list, sampler->host.stream, sampler->host.interval_ns, now,
                         unix_now());
        post_pss(sampler, now);
    }
    if (flush) {
        for (lp__sampled *s = sampler->list; s; s = s->next)
            lp__sampled_flush(s);
        if (sampler->host.stream) {
            lp_sample_writer_flush(sampler->host.writer, &sampler->host.stream->waiting);
            lp__gpu_flush(&sampler->gpu, sampler->host.stream);
        }
    }
}
