#include "collector/sampled.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "store/files.h"
#include "store/segment.h"

#define DEPTH 64u
#define BUSY_NS 10000000 /* CPU time of an interval, below which it does not tell the threads apart */

lp__sampled *lp__sampled_new(lp__watch *watch, lp__watched *w, lp__streams *streams, int root)
{
    lp__sampled *s = calloc(1, sizeof *s);
    lp_worker *head = NULL;
    uint32_t state;

    if (!s)
        return NULL;
    s->process.dir = -1; /* first: what fails below closes it, and another thread's file would have the number 0 */
    s->segment = fcntl(w->fd, F_DUPFD_CLOEXEC, 3);
    s->writer = lp_sample_writer_new(LP_SERIES_PROCESS, 0, w->sample_ns);
    if (s->segment < 0 || s->segment >= watch->fd_most / 2 || !s->writer ||
        lp__segment_head(s->segment, w->name, &head, &state, NULL) != LP_OK)
        goto failed;
    head->id.time_ns = watch->time_ns;
    s->start = head->id.pid_start;
    s->missing = lp_process_open(&s->process, root, head->id.pid, s->start, true);
    s->stream = lp__stream_new(streams, head, LP_SERIES_PROCESS, w->sample_ns);
    if (!s->stream)
        goto failed;
    s->watched = w;
    s->interval_ns = w->sample_ns;
    s->pss_kib = LP_UNKNOWN_I64;
    s->pss_reason = LP_REASON_NOT_DUE;
    return s;

failed:
    lp_worker_free(head);
    lp__sampled_free(s);
    return NULL;
}

lp__sampled *lp__sampled_again(lp__watch *watch, lp__sampled *s, lp__streams *streams, int root)
{
    lp__sampled *fresh = lp__sampled_new(watch, s->watched, streams, root);

    if (!fresh)
        return NULL;
    fresh->reaped = s->reaped;
    s->reaped = (lp_reaped){0};
    fresh->missed = s->missed;
    return fresh;
}

void lp__sampled_flush(lp__sampled *s)
{
    lp_sample_writer_flush(s->writer, &s->stream->waiting);
    for (uint32_t i = 0; i < LP_GPUS_MAX; i++)
        if (s->gpu[i])
            lp_sample_writer_flush(s->gpu[i], &s->stream->waiting);
}

void lp__sampled_free(lp__sampled *s)
{
    if (s->stream) {
        lp__sampled_flush(s);
        lp__stream_end(s->stream);
    }
    for (uint32_t i = 0; i < LP_GPUS_MAX; i++)
        lp_sample_writer_free(s->gpu[i]);
    lp_process_close(&s->process);
    lp_reaped_free(&s->reaped);
    lp_sample_writer_free(s->writer);
    if (s->segment >= 0)
        close(s->segment);
    free(s->paths);
    free(s);
}

/* ---- which phases */

static uint32_t *find_path(lp__sampled *s, uint64_t key)
{
    if (s->path_room == 0)
        return NULL;
    for (uint32_t i = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32);; i++) {
        uint32_t at = i & (s->path_room - 1);
        if (s->paths[at].path == 0 || s->paths[at].key == key) {
            s->paths[at].key = key;
            return &s->paths[at].path;
        }
    }
}

static bool make_room(lp__sampled *s)
{
    if (s->path_room && s->path_count < s->path_room / 2)
        return true;
    uint32_t room = s->path_room ? 2 * s->path_room : 64, old_room = s->path_room;
    void *fresh = calloc(room, sizeof *s->paths);
    if (!fresh)
        return false;
    void *old = s->paths;
    s->paths = fresh;
    s->path_room = room;
    const uint64_t *pairs = old; /* key, path: two words each */
    _Static_assert(sizeof *s->paths == 16, "a key, a path and four bytes of padding");
    for (uint32_t i = 0; i < old_room; i++) {
        uint32_t path;
        memcpy(&path, pairs + 2 * i + 1, sizeof path);
        if (path)
            *find_path(s, pairs[2 * i]) = path;
    }
    free(old);
    return true;
}

/* The path that is known, or made by `name_id` below `parent`. 0: no more of them. */
static uint32_t path_of(lp__sampled *s, const lp_open_view *view, uint64_t key, uint32_t parent, uint32_t name_id)
{
    lp_str name;

    if (!make_room(s))
        return parent;
    uint32_t *path = find_path(s, key);
    if (*path == 0 && lp_open_name(s->segment, view, name_id, &name)) {
        *path = lp_sample_writer_path(s->writer, parent, name);
        s->path_count += *path != 0;
        free((char *)(uintptr_t)name.data);
    }
    return *path ? *path : parent;
}

/* The file's path of a thread's phase; 0 none. */
static uint32_t resolve(lp__sampled *s, const lp_open_view *view, const lp_open_thread *thread)
{
    struct {
        uint32_t name, path;
    } level[DEPTH];
    uint32_t depth = 0, at = 0;
    uint64_t thread_key = view->header.thread_names ? (uint64_t)thread->name << 32 : 0;
    uint32_t slot = (thread->node / 64) & (LP__NODES_KNOWN - 1); /* nodes begin at lines */

    if (thread->node && s->nodes[slot].node == thread->node)
        return s->nodes[slot].path;
    for (lp_off node = thread->node, parent; node && depth < DEPTH; node = parent) {
        uint32_t name, path;
        if (!lp_open_node(s->segment, view, node, &name, &parent, &path))
            return 0;
        if (name == 0) /* the root */
            break;
        /* Most ask for what was open the last time: found at once, from the bottom. */
        uint32_t *known = s->path_room ? find_path(s, thread_key | path) : NULL;
        if (known && *known) {
            at = *known;
            if (depth == 0) {
                s->nodes[slot].node = thread->node;
                s->nodes[slot].path = at;
            }
            break;
        }
        level[depth].name = name;
        level[depth++].path = path;
    }
    if (at == 0 && view->header.thread_names && thread->name)
        at = path_of(s, view, thread_key | UINT32_MAX, 0, thread->name);
    while (depth-- > 0)
        at = path_of(s, view, thread_key | level[depth].path, at, level[depth].name);
    return at;
}

/* CPU time of a recording thread since the last row, ns; 0 where it cannot be told. */
static int64_t spent_by(lp__sampled *s, int64_t tid)
{
    char path[64], text[LP__TEXT_ROOM];
    const char *at = text;
    lp_reason reason;
    int64_t now;
    unsigned slot = LP__SPLIT_THREADS, oldest = 0;

    for (unsigned i = 0; i < LP__SPLIT_THREADS; i++) {
        if (s->split[i].tid == tid)
            slot = i;
        if (s->split[i].seen < s->split[oldest].seen)
            oldest = i;
    }
    snprintf(path, sizeof path, "task/%" PRId64 "/schedstat", tid);
    if (s->missing || lp__text_once(s->process.dir, path, text, &reason) < 0 || !lp__number(&at, &now))
        return 0;
    int64_t before = now;
    if (slot == LP__SPLIT_THREADS)
        slot = oldest;
    else if (s->split[slot].seen + 1 == s->rows)
        before = s->split[slot].cpu_ns;
    s->split[slot].tid = tid;
    s->split[slot].cpu_ns = now;
    s->split[slot].seen = s->rows;
    return now > before ? now - before : 0;
}

static void add_share(lp_sample *row, uint32_t path, uint32_t parts)
{
    if (path == 0 || parts == 0)
        return;
    for (uint32_t i = 0; i < row->share_count; i++)
        if (row->share[i].path == path) {
            row->share[i].parts += parts;
            return;
        }
    if (row->share_count < LP_SAMPLE_SHARES)
        row->share[row->share_count++] = (lp_share){path, parts};
}

/* Where the threads did too little to tell: the first thread's phase, else the one that was opened last. */
static const lp_open_thread *main_of(const lp__sampled *s, const lp_open_view *view)
{
    const lp_open_thread *best = NULL;

    for (uint32_t i = 0; i < view->count; i++) {
        const lp_open_thread *t = &view->thread[i];
        if (t->node && t->tid == s->process.pid)
            return t;
        if (t->node && (!best || t->since > best->since))
            best = t;
    }
    return best;
}

static void set_fresh(const lp__sampled *s, const lp_open_view *view, const lp_open_thread *thread, uint64_t now,
                      lp_sample *row)
{
    uint64_t ticks = lp_ticks(), interval = s->last_ns ? now - s->last_ns : 0;

    if (view->header.clock.kind != lp__clock_kind || !s->last_ns) {
        lp_sample_miss(row, LP_COLUMN_PHASE_FRESH, LP_REASON_NOT_YET);
        return;
    }
    uint64_t age = ticks > thread->since ? lp_ticks_to_ns(ticks - thread->since, view->header.clock.mult) : 0;
    lp_sample_set(row, LP_COLUMN_PHASE_FRESH, age < interval ? (int64_t)((interval - age) / 1000) : 0);
}

/* The interval that ends with this row is charged to the phases that are open now. One recording thread: to its innermost. Several:
 * by the CPU time that each has used in the interval, one without a phase to none; if that is too little, to the first
 * thread's. More than are looked at: whose time it was is not known, and it is charged to none. */
static void charge(lp__sampled *s, const lp_open_view *view, uint64_t now, lp_sample *row)
{
    int64_t spent[LP__SPLIT_THREADS] = {0}, sum = 0;
    const lp_open_thread *first = main_of(s, view);

    s->quiet.open = first != NULL;
    s->quiet.clock = view->header.clock.kind == lp__clock_kind;
    s->quiet.path = first ? resolve(s, view, first) : 0;
    if (view->count > 1)
        for (uint32_t i = 0; i < view->count; i++)
            sum += spent[i] = spent_by(s, view->thread[i].tid);
    if (!first)
        return;
    set_fresh(s, view, first, now, row);
    if (view->cut && view->count == LP_OPEN_THREADS)
        return;
    if (sum < BUSY_NS) {
        add_share(row, s->quiet.path, LP_SAMPLE_WHOLE);
        return;
    }
    /* By the sum so far, so that the parts add up to the whole. */
    int64_t before = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        int64_t until = before + spent[i];
        uint32_t parts = (uint32_t)(until * (int64_t)LP_SAMPLE_WHOLE / sum - before * (int64_t)LP_SAMPLE_WHOLE / sum);
        if (view->thread[i].node)
            add_share(row, resolve(s, view, &view->thread[i]), parts);
        before = until;
    }
}

static void take_torch(lp__sampled *s, const lp_seg_header *header)
{
    s->quiet.torch_used = header->torch_when != 0;
    s->quiet.torch[0] = (int64_t)(header->torch_allocated >> 10);
    s->quiet.torch[1] = (int64_t)(header->torch_reserved >> 10);
}

static void put_torch(const lp__sampled *s, lp_sample *row)
{
    static const lp_column columns[2] = {LP_COLUMN_TORCH_ALLOCATED, LP_COLUMN_TORCH_RESERVED};

    for (size_t i = 0; i < 2; i++) {
        if (s->quiet.known && s->quiet.torch_used)
            lp_sample_set(row, columns[i], s->quiet.torch[i]);
        else
            lp_sample_miss(row, columns[i], LP_REASON_NOT_USED);
    }
}

/* What the segment says: looked at, or known, since the process has not run and nobody else writes what is read here. */
static void put_phases(lp__sampled *s, uint64_t now, lp_sample *row)
{
    lp_open_view view;

    lp_sample_miss(row, LP_COLUMN_PHASE_FRESH, LP_REASON_NOT_USED);
    if (s->process.idle && !s->missing && s->quiet.known) {
        if (s->quiet.open && s->quiet.clock)
            lp_sample_set(row, LP_COLUMN_PHASE_FRESH, 0); /* it was entered before the interval began */
        else if (s->quiet.open)
            lp_sample_miss(row, LP_COLUMN_PHASE_FRESH, LP_REASON_NOT_YET);
        add_share(row, s->quiet.path, LP_SAMPLE_WHOLE);
    } else {
        /* What a segment says last stays in it: a dead process's phases are those that it died in. */
        s->quiet.known = lp_open_read(s->segment, &view);
        if (s->quiet.known) {
            charge(s, &view, now, row);
            take_torch(s, &view.header);
        }
        s->rows++;
    }
    put_torch(s, row);
}

/* ---- recorded children */

/* Also below a child that is not recorded, a shell for example, as long as that has been seen. */
static bool is_parent(const lp__sampled *s, const lp__sampled *child)
{
    return s != child && !s->missing &&
           (s->process.pid == child->process.parent || lp__relatives_has(s->process.relatives, child->process.parent));
}

void lp__sampled_tell_parent(lp__sampled *s, const lp__watch *watch, int root)
{
    (void)lp__sampled_closed(s, watch, root); /* so that what it is told is what the last row has */
    for (const lp__watched *w = watch->list; w && !s->told && !s->missing; w = w->next) {
        lp__sampled *parent = w->sampled;
        if (parent && is_parent(parent, s)) {
            lp_reaped_expect(&parent->reaped, &s->process);
            s->told = true;
        }
    }
}

/* The process has waited for a child: for a recorded one, perhaps, of whose end nobody has told yet. */
static void look_for_ended(lp__sampled *s, const lp__watch *watch, int root)
{
    for (const lp__watched *w = watch->list; w; w = w->next) {
        lp__sampled *child = w->sampled;
        if (child && !child->told && !child->missing && is_parent(s, child) &&
            lp_reaped_is_gone(root, child->process.pid, child->process.start))
            lp__sampled_tell_parent(child, watch, root);
    }
}

static void take_off_recorded(lp__sampled *s, const lp__watch *watch, int root, lp_sample *row)
{
    if (s->reaped.any && s->process.ended_faults != s->reaped.faults)
        look_for_ended(s, watch, root);
    lp_reaped_take_off(&s->reaped, root, &s->process, row);
}

/* ---- rows */

static bool is_recorded(void *user, int64_t pid)
{
    const lp__watch *watch = user;

    for (const lp__watched *w = watch->list; w; w = w->next)
        if (w->fd >= 0 && w->pid == pid && !w->dead)
            return true;
    return false;
}

static void miss_process(lp_sample *row, lp_reason reason)
{
    for (unsigned c = 0; c < LP_COLUMNS; c++)
        if (lp_column_table[c].number < lp_column_table[LP_COLUMN_PHASE_FRESH].number)
            lp_sample_miss(row, (lp_column)c, reason);
}

/* `reason`: why nothing at all is known of the process. */
static void put_pss(lp__sampled *s, lp_reason reason, lp_sample *row)
{
    if (reason)
        lp_sample_miss(row, LP_COLUMN_PSS, reason);
    else if (s->pss_kib != LP_UNKNOWN_I64)
        lp_sample_set(row, LP_COLUMN_PSS, s->pss_kib);
    else
        lp_sample_miss(row, LP_COLUMN_PSS, s->pss_reason);
    s->pss_kib = LP_UNKNOWN_I64;
}

static void count_missed(lp__sampled *s, uint64_t now, lp_sample *row)
{
    if (s->last_ns && s->interval_ns && now > s->last_ns + s->interval_ns + s->interval_ns / 2)
        s->missed += (now - s->last_ns - s->interval_ns / 2) / s->interval_ns;
    lp_sample_set(row, LP_COLUMN_MISSED, (int64_t)s->missed);
}

/* A counter that the process counts in another way than we do may be behind: then nothing new is known. What we may not read it
 * may, but one reading alone would only hide why. */
static int64_t use_of(const lp_process *p, const lp_seg_use *use, unsigned column, lp_reason *reason)
{
    uint32_t number = lp_column_table[column].number;
    uint64_t word = number < LP_SEG_USE_COLUMNS ? use->column[number] : 0;
    int64_t value = word > 0 && word <= (uint64_t)INT64_MAX ? (int64_t)(word - 1) : LP_UNKNOWN_I64,
            before = p->full.value[column];

    *reason = before == LP_UNKNOWN_I64 ? (lp_reason)p->full.reason[column] : LP_REASON_NOT_DUE;
    return before == LP_UNKNOWN_I64 || (lp_column_table[column].counter && value < before) ? LP_UNKNOWN_I64 : value;
}

static void take_use(lp__sampled *s, const lp_seg_use *use, lp_sample *row)
{
    lp_process *p = &s->process;
    char text[LP__TEXT_ROOM];
    lp_reason reason;

    for (unsigned c = 0; c < LP__PROCESS_COLUMNS; c++) {
        int64_t value = use_of(p, use, c, &reason);
        if (value == LP_UNKNOWN_I64) {
            lp_sample_miss(row, (lp_column)c, reason);
        } else {
            lp_sample_set(row, (lp_column)c, value);
            p->full.value[c] = value; /* its parent may be told */
        }
    }
    p->total_ticks = (int64_t)(use->ticks & INT64_MAX);
    p->ended_ticks = (int64_t)(use->ended_ticks & INT64_MAX);
    p->total_faults = (int64_t)(use->faults & INT64_MAX);
    p->ended_faults = (int64_t)(use->ended_faults & INT64_MAX);
    p->idle = false;
    p->ended |= lp__text_read(&p->stat, p->dir, "stat", text, &reason) < 0;
}

bool lp__sampled_closed(lp__sampled *s, const lp__watch *watch, int root)
{
    lp__budgets budgets = {.children = LP__CHILDREN_AT_LAST};
    uint64_t now = lp__now_ns();
    lp_seg_header header;
    lp_sample row;
    size_t got;

    if (s->missing || !lp__read_at(s->segment, &header, sizeof header, 0, &got) || got < sizeof header ||
        header.header_size < sizeof header || header.use.mono_ns == 0)
        return false;
    uint64_t closed = header.use.mono_ns;
    if (closed <= s->last_ns || closed > now || !lp__stream_has_room(s->stream))
        return true;
    lp_sample_init(&row);
    row.mono_ns = closed;
    row.unix_ns = lp_clock_ns(CLOCK_REALTIME) - (now - closed);
    count_missed(s, closed, &row);
    s->last_ns = closed; /* before others are looked at, who may come back here */
    take_use(s, &header.use, &row);
    take_off_recorded(s, watch, root, &row);
    lp_process_children(&s->process, root, is_recorded, (void *)(uintptr_t)watch, &s->reaped, &row, &budgets.children);
    put_pss(s, LP_REASON_NONE, &row);
    put_phases(s, closed, &row);
    lp_sample_writer_add(s->writer, &row, &s->stream->waiting);
    return true;
}

void lp__sampled_row(lp__sampled *s, const lp__watch *watch, int root, uint64_t now, uint64_t unix_ns,
                     lp__budgets *budgets, bool last)
{
    lp_sample row;

    if ((last || s->watched->gone) && lp__sampled_closed(s, watch, root))
        return;
    if (!lp__stream_has_room(s->stream)) {
        s->missed++;
        return;
    }
    lp_sample_init(&row);
    row.mono_ns = now;
    row.unix_ns = unix_ns;
    /* What may come back is tried again: a program that was not dumpable, a descriptor that was not to be had. */
    if (s->missing == LP_REASON_HIDDEN || s->missing == LP_REASON_FAILED)
        s->missing = lp_process_open(&s->process, root, s->process.pid, s->start, true);
    lp_reason reason = s->missing;
    if (!reason)
        reason = lp_process_sample(&s->process, &row, &budgets->threads);
    if (reason && last)
        return; /* it was faster */
    if (reason)
        miss_process(&row, reason);
    else {
        take_off_recorded(s, watch, root, &row);
        lp_process_children(&s->process, root, is_recorded, (void *)(uintptr_t)watch, &s->reaped, &row,
                            &budgets->children);
    }
    put_pss(s, reason, &row);
    count_missed(s, now, &row);
    put_phases(s, now, &row);
    lp_sample_writer_add(s->writer, &row, &s->stream->waiting);
    s->last_ns = now;
}
