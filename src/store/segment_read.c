/* A segment as a worker. The copy (segment_image.c) holds still; here it is walked, and nothing in it is trusted: every
 * offset is checked where it is followed, every list is bounded by how many elements the segment could hold. */
#include "store/segment_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/segment.h"
#include "store/end.h"
#include "store/segment.h"
#include "store/segment_image.h"

__extension__ typedef unsigned __int128 u128;

typedef struct pending { /* a node to visit */
    lp_off node, above;  /* and its parent */
    uint32_t parent;     /* phase of it */
    uint32_t depth;
} pending;

typedef struct reader {
    lp__image *image;
    const lp_seg_header *header; /* in the copy */
    lp_worker *worker;
    lp_str *names; /* by id; in the worker's arena, bytes in the copy */
    uint32_t name_count;
    uint64_t ns, ticks;    /* one tick is ns / ticks */
    lp_moment base, end;   /* the last known moment; the one at which all this was seen */
    bool still;            /* the end is the latest trace that was found, not now */
    const lp_track *track; /* NULL, or of the segment's own clock */
    pending *stack;        /* owned */
    uint32_t stacked, stack_room;
    uint64_t budget; /* elements that a segment of this size can hold, less those seen */
    lp_error *error;
    lp_cell cells[2][LP_HIST_CELLS]; /* last: not cleared, which would be most of the clearing */
} reader;

static lp_status damaged(const reader *r, uint64_t offset, const char *what)
{
    return lp__fail(r->error, LP_E_DAMAGED, r->image->name, offset, what);
}

static lp_status no_memory(const reader *r)
{
    return lp__fail(r->error, LP_E_MEMORY, r->image->name, UINT64_MAX, "out of memory");
}

/* ---- time */

static uint64_t to_ns(const reader *r, uint64_t ticks)
{
    u128 ns = (u128)ticks * r->ns / r->ticks;
    return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

static bool use_baseline(reader *r, const lp_moment *from, const lp_moment *to)
{
    const lp_seg_clock *clock = &r->header->clock;

    if (to->ticks <= from->ticks || to->mono_ns < from->mono_ns + 1000000)
        return false;
    uint64_t ns = to->mono_ns - from->mono_ns, ticks = to->ticks - from->ticks;
    double measured = (double)ns / (double)ticks, known = (double)clock->mult * 0x1p-32;
    /* A reader in another time namespace sees another CLOCK_MONOTONIC, and one that stood still while the machine was suspended is no
     * measure, either. */
    double doubt = 1.0 / LP_CLOCK_DOUBT;
    if (clock->mult && (measured > (1 + doubt) * known || measured < (1 - doubt) * known))
        return false;
    r->ns = ns;
    r->ticks = ticks;
    return true;
}

/* `now`: the present, for the longest baseline; NULL where this process cannot tell it. `end`: what is read ends there; NULL: with
 * its latest trace. */
static void choose_clock(reader *r, const lp_moment *now, const lp_moment *end)
{
    const lp_seg_clock *clock = &r->header->clock;
    bool last = clock->last_done == clock->last_begun && clock->last.ticks >= clock->start.ticks && clock->last.mono_ns;

    r->base = last ? clock->last : clock->start;
    if (clock->kind == LP_CLOCK_MONOTONIC) {
        r->ns = r->ticks = 1;
    } else if (!(now && use_baseline(r, &clock->start, now)) && !(end && use_baseline(r, &clock->start, end)) &&
               !(last && use_baseline(r, &clock->start, &clock->last))) {
        r->ns = clock->mult ? clock->mult : 1;
        r->ticks = clock->mult ? 1ull << 32 : 1;
    }
    r->still = !end;
    r->end = end ? *end : r->base;
    if (end && end->ticks < r->base.ticks) /* our clock is another one: go by what the writer saw */
        r->end.ticks = r->base.ticks + (end->mono_ns > r->base.mono_ns
                                            ? (uint64_t)((u128)(end->mono_ns - r->base.mono_ns) * r->ticks / r->ns)
                                            : 0);
}

bool lp__segment_now(const lp_seg_clock *clock, lp_moment *now)
{
    lp_clock_init(-1);
    if (clock->kind == lp__clock_kind) {
        lp_clock_moment(now);
        return true;
    }
    if (clock->kind != LP_CLOCK_MONOTONIC)
        return false;
    now->ticks = now->mono_ns = lp_clock_ns(CLOCK_MONOTONIC);
    now->real_ns = lp_clock_ns(CLOCK_REALTIME);
    return true;
}

static void saw_ticks(reader *r, uint64_t ticks)
{
    if (r->still && ticks > r->end.ticks)
        r->end.ticks = ticks;
}

/* ---- names */

static lp_status read_name_block(reader *r, lp_off at, lp_off *previous)
{
    lp__image *image = r->image;
    const lp_seg_block *block = at >= sizeof *block ? LP__AT(image, at - sizeof *block, lp_seg_block) : NULL;

    if (!block || block->kind != LP_BLOCK_NAMES || block->size < sizeof *block + sizeof(lp_seg_names) ||
        block->size > image->size - (at - sizeof *block))
        return damaged(r, at, "a block of names is not there");
    uint64_t room = block->size - sizeof *block;
    if (image->moving && !lp__image_refresh(image, at, room))
        return damaged(r, at, "a block of names cannot be read");
    const lp_seg_names *names = (const lp_seg_names *)(const void *)(image->bytes + at);
    const unsigned char *record = image->bytes + at + sizeof *names, *end = image->bytes + at + room;
    for (uint32_t i = 0; i < names->count; i++) {
        uint32_t size;
        if ((size_t)(end - record) < sizeof size)
            return damaged(r, at, "a block of names is full before its end");
        memcpy(&size, record, sizeof size);
        record += sizeof size;
        if (size > (size_t)(end - record))
            return damaged(r, at, "a name is longer than its block");
        uint64_t id = (uint64_t)names->first_id + i;
        if (id > 0 && id <= r->name_count)
            r->names[id] = (lp_str){(const char *)record, size};
        size_t padded = ((size_t)size + 3) & ~(size_t)3;
        record += padded < (size_t)(end - record) ? padded : (size_t)(end - record);
    }
    *previous = names->previous;
    return LP_OK;
}

static lp_status read_names(reader *r)
{
    lp_off at = r->header->names;
    uint64_t most = r->image->size / sizeof(uint32_t);

    if (r->image->moving) { /* nodes in the copy may be younger than the header in it */
        lp_off fresh;
        uint32_t count;
        if (lp__image_word(r->image, offsetof(lp_seg_header, names), &fresh) &&
            lp__image_at(r->image, fresh, sizeof(lp_seg_names)))
            at = fresh;
        r->name_count = lp__image_word(r->image, offsetof(lp_seg_header, name_count), &count) ? count : 0;
    } else {
        r->name_count = r->header->name_count;
    }
    if (r->name_count > most)
        return damaged(r, offsetof(lp_seg_header, name_count), "more names than there is room for");
    r->names = lp_arena_take(r->worker->arena, ((size_t)r->name_count + 1) * sizeof *r->names);
    if (!r->names)
        return no_memory(r);
    for (uint64_t blocks = 0; at; blocks++) {
        if (blocks > r->image->size / 64)
            return damaged(r, at, "the blocks of names form a circle");
        lp_status status = read_name_block(r, at, &at);
        if (status != LP_OK)
            return status;
    }
    return LP_OK;
}

/* NULL data: unknown. */
static lp_str name_of(const reader *r, uint32_t id)
{
    return id && id <= r->name_count ? r->names[id] : (lp_str){NULL, 0};
}

/* ---- the tree */

static lp_status read_octaves(reader *r, const lp_off *octaves, lp_cell *cells, lp_cells *out)
{
    uint32_t size = 0;

    for (uint32_t octave = 0; octave < LP_HIST_OCTAVES; octave++) {
        if (!octaves[octave])
            continue;
        const uint64_t *counts = lp__image_at(r->image, octaves[octave], LP_HIST_SUB * sizeof *counts);
        if (!counts) {
            if (r->image->moving)
                continue; /* made after the copy */
            return damaged(r, octaves[octave], "cells lie outside the segment");
        }
        for (uint32_t i = 0; i < LP_HIST_SUB; i++)
            if (counts[i])
                cells[size++] = (lp_cell){.index = octave * LP_HIST_SUB + i, .count = counts[i]};
    }
    *out = (lp_cells){.at = cells, .size = size};
    return LP_OK;
}

static lp_status read_counter(reader *r, const lp_seg_counter *c, uint32_t phase)
{
    lp_counter made = {.name = name_of(r, c->name), .min = c->min, .max = c->max};

    if (!made.name.data) {
        if (r->image->moving)
            return LP_OK;
        return damaged(r, (uint64_t)((const unsigned char *)c - r->image->bytes), "a counter has no name");
    }
    lp_status status = read_octaves(r, c->cells, r->cells[0], &made.positive);
    if (status == LP_OK && c->negative) {
        const lp_off *octaves = lp__image_at(r->image, c->negative, LP_HIST_OCTAVES * sizeof *octaves);
        if (!octaves)
            return r->image->moving ? LP_OK : damaged(r, c->negative, "cells lie outside the segment");
        status = read_octaves(r, octaves, r->cells[1], &made.negative);
    }
    if (status != LP_OK)
        return status;
    made.calls = lp__add(lp_cells_total(&made.positive), lp_cells_total(&made.negative));
    made.total = (lp_i128)((u128)c->total_high << 64 | c->total_low);
    if (made.calls == 0 || made.min > made.max)
        made.min = made.max = 0;
    return lp__counter_merge(&r->worker->tree, phase, &made) == LP_OK ? LP_OK : no_memory(r);
}

/* The list begins with the newest; the oldest is to come first. */
static lp_status read_counters(reader *r, lp_off at, lp_off thread, uint32_t phase)
{
    lp_off list[256];
    uint32_t count = 0;
    lp_status status = LP_OK;

    while (at && status == LP_OK) {
        const lp_seg_counter *c = LP__AT(r->image, at, lp_seg_counter);
        if (!c)
            return r->image->moving ? LP_OK : damaged(r, at, "a counter lies outside the segment");
        if (r->budget-- == 0)
            return damaged(r, at, "the counters form a circle");
        if (r->image->moving && c->name == 0)
            lp__image_refresh(r->image, at, sizeof *c); /* copied before it was made, linked after */
        lp__image_settle_counter(r->image, at, thread);
        if (count == sizeof list / sizeof *list) { /* more than anybody uses: their order is not worth memory */
            status = read_counter(r, c, phase);
        } else {
            list[count++] = at;
        }
        at = c->next;
    }
    while (count > 0 && status == LP_OK)
        status = read_counter(r, LP__AT(r->image, list[--count], lp_seg_counter), phase);
    return status;
}

static lp_status read_node(reader *r, const lp_seg_node *n, uint32_t index)
{
    lp_phase made = {.flags = n->flags,
                     .stride = n->stride,
                     .errors = n->errors,
                     .abandoned = n->abandoned,
                     .async_entries = n->async_entries,
                     .io_missing = n->io_missing};
    lp_status status = read_octaves(r, n->cells, r->cells[0], &made.hist);

    if (status != LP_OK)
        return status;
    made.entries = lp_cells_total(&made.hist);
    if (made.entries) {
        made.wall_ns = to_ns(r, n->wall);
        made.child_ns = to_ns(r, n->covered);
        made.min_ns = to_ns(r, n->min);
        made.max_ns = to_ns(r, n->max);
    }
    if (r->header->measure_cpu && made.entries) {
        uint64_t unknown = to_ns(r, n->unknown_wall);
        made.cpu_wall_ns = made.wall_ns > unknown ? made.wall_ns - unknown : 0;
        made.cpu_ns = made.cpu_wall_ns > n->away ? made.cpu_wall_ns - n->away : 0;
        if (r->header->clock.split) {
            made.split_wait_ns = n->away > n->unsplit ? n->away - n->unsplit : 0;
            made.starved_ns = n->starved;
        }
    }
    lp_phase_clamp(&made);
    return lp__phase_merge(&r->worker->tree, index, &made) == LP_OK ? LP_OK : no_memory(r);
}

static lp_status push(reader *r, pending p)
{
    if (r->stacked == r->stack_room) {
        uint32_t room = r->stack_room ? 2 * r->stack_room : 256;
        pending *grown = realloc(r->stack, room * sizeof *grown);
        if (!grown)
            return no_memory(r);
        r->stack = grown;
        r->stack_room = room;
    }
    r->stack[r->stacked++] = p;
    return LP_OK;
}

/* Puts the children on the stack. They are listed newest first, so that the oldest is taken first. */
static lp_status push_children(reader *r, const lp_seg_node *node, lp_off at, uint32_t phase, uint32_t depth)
{
    lp_status status = LP_OK;

    for (lp_off child = node->child; child && status == LP_OK;) {
        lp_seg_node *n = LP__AT(r->image, child, lp_seg_node);
        if (!n)
            return r->image->moving ? LP_OK : damaged(r, child, "a node lies outside the segment");
        if (r->image->moving && (n->name == 0 || n->parent != at))
            lp__image_refresh(r->image, child, sizeof *n); /* copied before it was made, linked after */
        if (n->parent != at)
            return r->image->moving ? LP_OK : damaged(r, child, "a node has another parent");
        if (r->budget-- == 0)
            return damaged(r, child, "the nodes form a circle");
        if (depth > LP__DEPTH_MAX)
            return damaged(r, child, "the nodes are nested more than 64 deep");
        status = push(r, (pending){.node = child, .above = at, .parent = phase, .depth = depth});
        child = n->sibling;
    }
    return status;
}

static lp_status read_nodes(reader *r, lp_off root, lp_off thread, uint32_t base)
{
    lp_tree *tree = &r->worker->tree;
    const lp_seg_node *node = LP__AT(r->image, root, lp_seg_node);
    lp_status status;

    if (!node)
        return r->image->moving ? LP_OK : damaged(r, root, "a root lies outside the segment");
    /* what was counted with no phase open; it stays at the root, threads or not */
    status = read_counters(r, node->counters, thread, 0);
    r->stacked = 0;
    if (status == LP_OK)
        status = push_children(r, node, root, base, 1);
    while (status == LP_OK && r->stacked > 0) {
        pending p = r->stack[--r->stacked];
        uint32_t index;
        lp__image_settle_node(r->image, p.node, thread);
        node = LP__AT(r->image, p.node, lp_seg_node);
        lp_str name = name_of(r, node->name);
        if (!name.data) {
            if (r->image->moving)
                continue;
            return damaged(r, p.node, "a node has no name");
        }
        if (lp_tree_child(tree, p.parent, name, &index) != LP_OK)
            return no_memory(r);
        status = read_node(r, node, index);
        if (status == LP_OK)
            status = read_counters(r, node->counters, thread, index);
        if (status == LP_OK)
            status = push_children(r, node, p.node, index, p.depth + 1);
    }
    return status;
}

/* ---- open phases */

/* Phase of a node of this thread; made with all that is above it. UINT32_MAX: cannot be told. */
static lp_status phase_of(reader *r, lp_off at, uint32_t base, uint32_t *index)
{
    lp_str path[LP__DEPTH_MAX];
    uint32_t depth = 0;

    *index = UINT32_MAX;
    for (;;) {
        const lp_seg_node *n = LP__AT(r->image, at, lp_seg_node);
        if (!n)
            return LP_OK;
        if (n->name == 0)
            break;
        if (depth == LP__DEPTH_MAX || !name_of(r, n->name).data)
            return LP_OK;
        path[depth++] = name_of(r, n->name);
        at = n->parent;
    }
    uint32_t phase = base;
    while (depth > 0)
        if (lp_tree_child(&r->worker->tree, phase, path[--depth], &phase) != LP_OK)
            return no_memory(r);
    *index = phase;
    return LP_OK;
}

/* The entry is open, and what the copy says of it belongs together. */
static bool is_open(reader *r, lp_entry *entry)
{
    if (r->image->moving) {
        uint64_t at = (uint64_t)((unsigned char *)entry - r->image->bytes);
        uint32_t serial, state;
        if (!lp__image_word(r->image, at + offsetof(lp_entry, serial), &serial) ||
            !lp__image_refresh(r->image, at, sizeof *entry) ||
            !lp__image_word(r->image, at + offsetof(lp_entry, serial), &entry->serial) ||
            !lp__image_word(r->image, at + offsetof(lp_entry, state), &state) || serial != entry->serial ||
            state != LP_ENTRY_OPEN)
            return false;
    }
    return entry->state == LP_ENTRY_OPEN && !entry->closed && entry->node;
}

static lp_status read_entries(reader *r, const lp_seg_thread *thread, uint32_t base)
{
    lp_worker *worker = r->worker;
    lp_status status = LP_OK;
    lp_off at = thread->entries;

    while (at && status == LP_OK) {
        lp_seg_entries *table = LP__AT(r->image, at, lp_seg_entries);
        uint32_t count =
            table ? table->count : 0; /* once: reading an entry again may overwrite it in a forged segment */
        if (!table || !lp__image_at(r->image, at, sizeof *table + count * sizeof(lp_entry)))
            return r->image->moving ? LP_OK : damaged(r, at, "open entries lie outside the segment");
        for (uint32_t i = 0; i < count && status == LP_OK; i++) {
            lp_entry *entry = &table->at[i];
            uint32_t phase;
            if (r->budget-- == 0)
                return damaged(r, at, "the open entries form a circle");
            if (entry->state != LP_ENTRY_OPEN || !is_open(r, entry))
                continue;
            status = phase_of(r, entry->node, base, &phase);
            if (status != LP_OK || phase == UINT32_MAX || worker->open_count >= LP__LIST_MAX)
                continue;
            lp_open *grown = lp_arena_grow(worker->arena, worker->open, worker->open_count, sizeof *grown);
            if (!grown)
                return no_memory(r);
            worker->open = grown;
            lp_str name = name_of(r, thread->name);
            if (name.data && name.size)
                name = lp_arena_str(worker->arena, name.data, name.size);
            grown[worker->open_count++] = (lp_open){.phase = phase,
                                                    .since_ns = entry->start, /* ticks until the end is known */
                                                    .thread = name.data ? name : lp__empty,
                                                    .tid = (uint64_t)thread->tid};
            saw_ticks(r, entry->start);
        }
        at = table->next;
        if (r->budget-- == 0)
            return damaged(r, at, "the open entries form a circle");
    }
    return status;
}

static int by_start(const void *a, const void *b)
{
    const lp_open *x = a, *y = b;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    return x->since_ns < y->since_ns ? -1 : x->since_ns > y->since_ns;
}

/* Time of day of a moment, by the track where there is one, else by `fallback`. */
static uint64_t to_real(const reader *r, uint64_t ticks, uint64_t fallback)
{
    return r->track ? lp_track_real_ns(r->track, ticks, (uint64_t)(((u128)r->ns << 32) / r->ticks), fallback)
                    : fallback;
}

static void finish_open(reader *r)
{
    lp_worker *worker = r->worker;

    if (worker->open_count > 1)
        qsort(worker->open, worker->open_count, sizeof *worker->open, by_start);
    for (uint32_t i = 0; i < worker->open_count; i++) {
        lp_open *open = &worker->open[i];
        uint64_t start = open->since_ns;
        open->open_ns = r->end.ticks > start ? to_ns(r, r->end.ticks - start) : 0;
        uint64_t since = worker->written_ns > open->open_ns ? worker->written_ns - open->open_ns : 0;
        open->since_ns = to_real(r, start, since);
    }
}

/* ---- the whole */

static lp_status thread_phase(reader *r, const lp_seg_thread *thread, uint32_t *index)
{
    char text[32];
    lp_str name = name_of(r, thread->name);

    *index = 0;
    if (!r->header->thread_names)
        return LP_OK;
    if (!name.data) {
        if (thread->tid)
            snprintf(text, sizeof text, "thread-%" PRId64, thread->tid);
        else
            snprintf(text, sizeof text, "thread");
        name = (lp_str){text, strlen(text)};
    }
    return lp_tree_child(&r->worker->tree, 0, name, index) == LP_OK ? LP_OK : no_memory(r);
}

static lp_status read_threads(reader *r)
{
    lp_off list[64]; /* the oldest first, as far as there is room: the order of phases shall be that of the program */
    uint32_t count = 0;
    lp_off at = r->header->threads;
    lp_status status = LP_OK;

    while (status == LP_OK && (at || count)) {
        lp_off thread;
        if (!at || count == sizeof list / sizeof *list) {
            thread = list[--count];
        } else {
            const lp_seg_thread *t = LP__AT(r->image, at, lp_seg_thread);
            if (!t && r->image->moving) {
                at = 0;
                continue;
            }
            if (!t)
                return damaged(r, at, "a thread lies outside the segment");
            if (r->budget-- == 0)
                return damaged(r, at, "the threads form a circle");
            list[count++] = at;
            at = t->previous;
            continue;
        }
        const lp_seg_thread *t = LP__AT(r->image, thread, lp_seg_thread);
        uint32_t base;
        saw_ticks(r, t->since);
        saw_ticks(r, t->seen);
        status = thread_phase(r, t, &base);
        if (status == LP_OK && t->root)
            status = read_nodes(r, t->root, thread, base);
        if (status == LP_OK)
            status = read_entries(r, t, base);
        uint64_t threads = lp__add(r->worker->threads, t->attached);
        r->worker->threads = threads > UINT32_MAX ? UINT32_MAX : (uint32_t)threads;
    }
    return status;
}

/* The root has no time of its own. Nor has a level of threads: both have that of what is below them. */
static void finish_root(reader *r)
{
    lp_tree *tree = &r->worker->tree;

    for (uint32_t i = 1; i < tree->count; i++) {
        const lp_phase *p = &tree->phases[i];
        bool top = r->header->thread_names ? p->parent != 0 && tree->phases[p->parent].parent == 0 : p->parent == 0;
        if (!top)
            continue;
        tree->phases[0].child_ns = lp__add(tree->phases[0].child_ns, p->wall_ns);
        if (p->parent)
            tree->phases[p->parent].child_ns = lp__add(tree->phases[p->parent].child_ns, p->wall_ns);
    }
}

static lp_str header_text(lp_arena *arena, const char *text, size_t room)
{
    lp_str copy = lp_arena_str(arena, text, strnlen(text, room));
    return copy.data ? copy : lp__empty;
}

static void read_facts(reader *r)
{
    static const char *const sources[] = {"not measured", "rseq", "perf page", "system call"};
    const lp_seg_header *h = r->header;
    lp_worker *w = r->worker;
    char text[64];
    double ghz = (double)r->ticks / (double)r->ns;

    if (h->clock.kind == LP_CLOCK_MONOTONIC)
        snprintf(text, sizeof text, "CLOCK_MONOTONIC");
    else if (h->clock.kind == LP_CLOCK_TSC)
        snprintf(text, sizeof text, "TSC %.2f GHz", ghz);
    else
        snprintf(text, sizeof text, "%s %.1f MHz", h->clock.kind == LP_CLOCK_CNTVCT ? "CNTVCT" : "clock", 1e3 * ghz);
    w->clock = lp__text(w->arena, text);
    uint32_t cpu = h->measure_cpu && h->clock.cpu < sizeof sources / sizeof *sources ? h->clock.cpu : 0;
    w->cpu_source = lp__text(w->arena, sources[cpu]);
    w->split_source = cpu && h->clock.split ? lp__text(w->arena, "schedstat") : lp__empty;
    w->segment_place = lp__text(w->arena, h->place == LP_PLACE_PRIVATE ? "private memory" : "shared memory");
    w->own_cost_ps = h->own_cost_ps;
    w->own_count_cost_ps = h->own_count_cost_ps;
    w->generation = h->generation;
    w->health =
        (lp_health){.folded_paths = h->health.folded_paths,
                    .folded_depth = h->health.folded_depth,
                    .lost_entries = h->health.lost_entries,
                    .misuse = h->health.misuse,
                    .write_failures = h->health.write_failures,
                    .callback_failures = h->health.callback_failures,
                    .foreign_exits = h->health.foreign_exits,
                    .clock_backwards = h->health.clock_backwards,
                    .first_folded = header_text(w->arena, h->health.first_folded, sizeof h->health.first_folded),
                    .last_error = header_text(w->arena, h->health.last_error, sizeof h->health.last_error)};
}

/* What was asked for after the identity was written. */
static lp_status add_asked(const lp_seg_header *header, lp_worker *worker)
{
    static const lp_str key = {"asked", 5};
    lp_identity *id = &worker->id;
    size_t size = strnlen(header->asked, sizeof header->asked);
    uint32_t at = 0;

    if (size == 0 || size == sizeof header->asked)
        return LP_OK;
    while (at < id->option_count && !lp__str_equal(id->options[at].key, key))
        at++;
    bool first = at == id->option_count;
    lp_pair *options = lp_arena_take(worker->arena, (id->option_count + 1u) * sizeof *options);
    size_t before = first ? 0 : id->options[at].value.size + 1;
    char *text = lp_arena_take(worker->arena, before + size);
    if (!options || !text)
        return LP_E_MEMORY;
    if (id->option_count)
        memcpy(options, id->options, id->option_count * sizeof *options);
    if (!first) {
        memcpy(text, id->options[at].value.data, before - 1);
        text[before - 1] = ',';
    }
    memcpy(text + before, header->asked, size);
    options[at] = (lp_pair){key, {text, before + size}};
    id->options = options;
    id->option_count += first;
    return LP_OK;
}

static lp_status read_image(lp__image *image, const lp_moment *now, const lp_moment *end, const lp_track *track,
                            lp_worker **worker, lp_error *error)
{
    reader *r = NULL;
    lp_worker *made = NULL;
    lp_status status = lp__image_take(image, error);

    if (status != LP_OK)
        return status;
    r = malloc(sizeof *r);
    made = lp_worker_new();
    if (r)
        memset(r, 0, offsetof(reader, cells));
    if (!r || !made) {
        status = lp__fail(error, LP_E_MEMORY, image->name, UINT64_MAX, "out of memory");
        goto done;
    }
    r->image = image;
    r->header = (const lp_seg_header *)(const void *)image->bytes;
    r->worker = made;
    r->error = error;
    r->budget = image->size / 32;
    if (r->header->state == LP_SEG_CREATING) {
        status = lp__fail(error, LP_E_BUSY, image->name, offsetof(lp_seg_header, state), "recording has not begun");
        goto done;
    }
    choose_clock(r, now, end);
    status = lp__segment_identity(image, r->header, made, error);
    if (status == LP_OK && add_asked(r->header, made) != LP_OK)
        status = no_memory(r);
    if (status == LP_OK)
        status = read_names(r);
    if (status == LP_OK)
        status = read_threads(r);
    if (status != LP_OK)
        goto done;
    const lp_moment *start = &r->header->clock.start;
    if (track)
        lp_track_apply(track, r->header->clock.kind, start->mono_ns, made);
    r->track = made->track;
    made->written_ns = r->end.real_ns;
    if (r->still) /* real time of the last trace */
        made->written_ns = to_real(r, r->end.ticks, r->base.real_ns + to_ns(r, r->end.ticks - r->base.ticks));
    made->elapsed_ns = r->end.ticks > start->ticks ? to_ns(r, r->end.ticks - start->ticks) : 0;
    made->final = r->header->state == LP_SEG_CLOSED;
    finish_open(r);
    finish_root(r);
    read_facts(r);
    *worker = made;
    made = NULL;

done:
    lp_worker_free(made);
    if (r)
        free(r->stack);
    free(r);
    lp__image_free(image);
    return status;
}

lp_status lp__segment_read(int fd, const char *name, bool living, const lp_track *track, lp_worker **worker,
                           lp_error *error)
{
    lp__image image = {.fd = fd, .name = name, .moving = living};
    lp_seg_header header;
    lp_moment now;
    lp_status status = lp__image_header(&image, &header, error);

    if (status != LP_OK)
        return status;
    bool living_now = living && header.state == LP_SEG_RECORDING, known = lp__segment_now(&header.clock, &now);
    const lp_moment *end = living_now && known ? &now : NULL;
    if (!living && header.state == LP_SEG_RECORDING && header.died.ticks)
        end = &header.died; /* it had not stored for a while: phases were open until then */
    status = read_image(&image, known ? &now : NULL, end, known ? track : NULL, worker, error);
    if (status == LP_OK) {
        lp_worker *w = *worker;
        w->path = lp__text(w->arena, name);
        w->living = living && !w->final;
        w->unclean = !living && !w->final;
        if (w->unclean)
            w->end = header.end ? lp_end_unpack(header.end) : lp_end_of(&w->id, header.time_ns);
        if (w->living)
            w->written_ns = lp_clock_ns(CLOCK_REALTIME);
    }
    return status;
}

lp_status lp_segment_read_fd(int fd, const char *name, lp_worker **worker, lp_error *error)
{
    return lp__segment_read(fd, name, lp__segment_has_owner(fd), NULL, worker, error);
}

lp_status lp_segment_read_memory(const void *base, size_t size, const lp_moment *now, lp_worker **worker,
                                 lp_error *error)
{
    lp__image image = {.fd = -1, .memory = base, .memory_size = size, .name = "this process", .moving = now != NULL};
    int saved = errno;
    lp_status status = read_image(&image, now, now, NULL, worker, error);

    if (status == LP_OK)
        (*worker)->living = !(*worker)->final;
    errno = saved;
    return status;
}
