/* Frames of the line engine that are not simply on top: found again, adopted, suspended, lost. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/lines.h"
#include "core/lines_internal.h"

#define FIRST_FRAMES 32u

/* ---- the stack ------------------------------------------------------------------------------------------------------- */

static lp_line_frame *take_frames(lp_line_thread *th, uint32_t count)
{
    lp_segment *segment = &th->lines->segment;
    lp_off owner = (lp_off)((unsigned char *)th->seg - segment->base);
    lp_off at = lp_segment_take(segment, LP_BLOCK_LINE_STACK, owner, count * sizeof(lp_line_frame), NULL);

    return at ? (lp_line_frame *)(void *)(segment->base + at) : NULL;
}

static void publish(lp_line_thread *th)
{
    __atomic_store_n(&th->seg->stack, (lp_off)((unsigned char *)th->bottom - th->lines->segment.base),
                     __ATOMIC_RELEASE);
}

bool lp__lines_stack_make(lp_line_thread *th)
{
    th->bottom = take_frames(th, FIRST_FRAMES);
    if (!th->bottom)
        return false;
    th->top = th->bottom;
    th->limit = th->bottom + FIRST_FRAMES;
    publish(th);
    return true;
}

/* The older, smaller stacks stay in the segment: together they are not larger than the new one. */
bool lp__lines_grow(lp_line_thread *th)
{
    uint32_t have = (uint32_t)(th->limit - th->bottom), used = (uint32_t)(th->top - th->bottom);
    lp_line_frame *grown = have < (1u << 26) ? take_frames(th, 2 * have) : NULL;

    if (!grown) {
        atomic_fetch_add(&th->lines->health.lost_events, 1);
        return false;
    }
    memcpy(grown, th->bottom, (used + 1) * sizeof *grown);
    th->bottom = grown;
    th->top = grown + used;
    th->limit = grown + 2 * have;
    publish(th);
    return true;
}

/* What happened until `v` is credited, as if all frames from `from` on had returned and been entered again. */
void lp__lines_settle(lp_line_thread *th, lp_line_frame *from, uint64_t v)
{
    for (lp_line_frame *f = th->top; f >= from; f--) {
        uint64_t took = v - f->since, active = v - f->start;
        if (f->cell) {
            LP__LINE_ADD(f->cell->self, took - f->covered);
            if (f->outermost_line)
                LP__LINE_ADD(f->cell->time, took);
        } else {
            LP__LINE_ADD(lp__line_head(f->cells)->prologue, took - f->covered);
        }
        if (f->outermost_call)
            LP__LINE_ADD(lp__line_head(f->cells)->time, active);
        f->since = f->start = v;
        f->covered = 0;
        f[-1].covered += active;
    }
}

static void uncount(lp_line_frame *f)
{
    if (f->cell)
        --*lp__line_open(f, f->cell);
    --*lp__call_open(f);
}

static void count_again(lp_line_frame *f)
{
    f->outermost_call = (*lp__call_open(f))++ == 0;
    if (f->cell)
        f->outermost_line = (*lp__line_open(f, f->cell))++ == 0;
}

void lp__lines_drop_top(lp_line_thread *th)
{
    uncount(th->top);
    __atomic_store_n(&th->top->frame, NULL, __ATOMIC_RELEASE);
    th->top--;
    atomic_fetch_add(&th->lines->health.lost_frames, 1);
}

void lp__lines_close_all(lp_line_thread *th, uint64_t v)
{
    lp__lines_settle(th, th->bottom + 1, v);
    for (; th->top > th->bottom; th->top--) {
        uncount(th->top);
        __atomic_store_n(&th->top->frame, NULL, __ATOMIC_RELEASE);
    }
}

/* Takes the frames that `gone` names out from `from` on; what is open is counted anew, in the new order. */
static void compact(lp_line_thread *th, lp_line_frame *from, bool (*gone)(const lp_line_frame *f, const void *what),
                    const void *what)
{
    lp_line_frame *to = from;

    for (lp_line_frame *f = th->top; f >= from; f--)
        uncount(f);
    for (lp_line_frame *f = from; f <= th->top; f++) {
        if (gone(f, what))
            continue;
        if (to != f)
            *to = *f;
        count_again(to++);
    }
    for (lp_line_frame *f = to; f <= th->top; f++)
        f->frame = NULL;
    th->top = to - 1;
}

static bool is_of_code(const lp_line_frame *f, const void *code)
{
    return f->code == code;
}

void lp__lines_drop_code(lp_line_thread *th, const lp_line_code *code, uint64_t v)
{
    lp__lines_settle(th, th->bottom + 1, v);
    compact(th, th->bottom + 1, is_of_code, code);
}

static bool is_in_context(const lp_line_frame *f, const void *context)
{
    return f->context == context;
}

/* What lies above the frame was either left in the lurch by a switch of stacks (greenlet), then its context is another one and it
 * comes back; or it ended without an event. The greenlets' frames go below ours: whoever runs is on top. */
bool lp_lines_find(lp_line_thread *th, const void *frame, const void *key, const void *context, uint64_t now)
{
    lp_line_frame *f = th->top;

    while (f > th->bottom && !(f->frame == frame && f->code->key == key))
        f--;
    if (f == th->bottom)
        return false;
    if (f < th->top) {
        lp_line_frame *top = th->top;
        compact(th, f + 1, is_in_context, context);
        atomic_fetch_add(&th->lines->health.lost_frames, (uint64_t)(top - th->top));
    }
    if (f < th->top) {
        lp__lines_settle(th, f, now - th->seg->own);
        for (lp_line_frame *g = th->top; g >= f; g--)
            uncount(g);
        lp_line_frame found = *f;
        memmove(f, f + 1, (size_t)(th->top - f) * sizeof *f);
        *th->top = found;
        for (lp_line_frame *g = f; g <= th->top; g++)
            count_again(g);
    }
    return true;
}

/* The region changed since the frame was entered or last had a line: from here on its lines are counted there. */
void lp__lines_recell(lp_line_thread *th, lp_line_frame *f, uint64_t v)
{
    lp_line_cell *cells = f->code->index < th->have ? th->cells[f->code->index] : NULL;

    if (!cells)
        cells = lp__lines_cells(th, f->code);
    if (!cells)
        return; /* no memory: counted where it was */
    lp__line_close(f, v);
    if (f->outermost_call)
        LP__LINE_ADD(lp__line_head(f->cells)->time, v - f->start);
    f[-1].covered += v - f->start;
    uint32_t slot = f->cell ? (uint32_t)(f->cell - f->cells) : UINT32_MAX;
    f->shift = (char *)th->nodes[0].cells[f->code->index] - (char *)cells;
    f->cells = cells;
    f->region = th->region;
    f->start = f->since = v;
    f->covered = 0;
    if (slot != UINT32_MAX)
        lp__line_open_at(f, cells + slot, v);
}

void lp_lines_line_slow(lp_line_thread *th, const void *frame, const void *key, const void *context, size_t at,
                        int line, uint64_t now)
{
    lp_line_frame *f = lp_lines_find(th, frame, key, context, now) ? th->top : NULL;

    if (!f) {
        lp_line_code *code = lp_lines_code(th->lines, key);
        if (code && code->marked)
            f = lp__line_push(th, code, frame, context, now - th->seg->own);
    }
    if (!f)
        return;
    uint32_t entry = at != SIZE_MAX ? lp_line_entry_at(f->code, at) : LP_LINE_NOWHERE;
    if (entry == LP_LINE_NOWHERE)
        entry = lp_line_entry_of(f->code, line);
    if (entry == LP_LINE_NOWHERE)
        return;
    lp__line_visit(th, f, entry, now);
    if (f->code->weights && at < f->code->bytes)
        LP__LINE_ADD(th->seg->own, f->code->weights[at >> 1]);
}

/* ---- suspended frames ------------------------------------------------------------------------------------------------ */

/* By address. What is dropped without an event stays until its memory is used by another frame that yields: the table is as
 * large as the largest number of frames that were suspended at one time. */
typedef struct suspended {
    const void *frame; /* NULL: free; TAKEN: was one */
    lp_line_code *code;
    uint64_t when;
    uint32_t slot, pad;
} suspended;
#define TAKEN ((const void *)1)

#define SHARDS 16u
#define SHARD_ROOM (1u << 20)
typedef struct lp__line_shard { /* a generator may be resumed by another thread */
    atomic_flag lock;
    uint32_t mask, used; /* used: with those that were taken */
    suspended *at;       /* heap */
} lp__line_shard;

bool lp__lines_shards_make(lp_lines *lines)
{
    lines->shards = calloc(SHARDS, sizeof *lines->shards);
    return lines->shards != NULL;
}

void lp__lines_shards_free(lp_lines *lines)
{
    for (uint32_t i = 0; lines->shards && i < SHARDS; i++)
        free(lines->shards[i].at);
    free(lines->shards);
    lines->shards = NULL;
}

void lp__lines_shards_in_child(lp_lines *lines)
{
    for (uint32_t i = 0; i < SHARDS; i++) { /* another thread of the parent may have been at work in it */
        lines->shards[i].at = NULL;
        lines->shards[i].mask = lines->shards[i].used = 0;
        atomic_flag_clear(&lines->shards[i].lock);
    }
}

static uint64_t hash_of(const void *frame)
{
    return ((uint64_t)(uintptr_t)frame * 0x9e3779b97f4a7c15ull) >> 16;
}

static lp__line_shard *shard_lock(lp_lines *lines, uint64_t hash)
{
    lp__line_shard *shard = &lines->shards[(hash >> 32) % SHARDS];

    while (atomic_flag_test_and_set_explicit(&shard->lock, memory_order_acquire))
        sched_yield();
    return shard;
}

static void shard_unlock(lp__line_shard *shard)
{
    atomic_flag_clear_explicit(&shard->lock, memory_order_release);
}

static suspended *shard_find(lp__line_shard *shard, const void *frame, uint64_t hash)
{
    if (!shard->at)
        return NULL;
    for (uint64_t i = hash; shard->at[i & shard->mask].frame; i++)
        if (shard->at[i & shard->mask].frame == frame)
            return &shard->at[i & shard->mask];
    return NULL;
}

/* Room for one more; what was taken is thrown out. */
static bool shard_room(lp__line_shard *shard)
{
    if (shard->at && shard->used < (shard->mask + 1) / 4 * 3)
        return true;
    uint32_t live = 0, size = 64;
    for (uint32_t i = 0; shard->at && i <= shard->mask; i++)
        live += shard->at[i].frame && shard->at[i].frame != TAKEN;
    while (size < 4 * live)
        size *= 2;
    suspended *at = size <= SHARD_ROOM ? calloc(size, sizeof *at) : NULL;
    if (!at)
        return false;
    for (uint32_t i = 0; shard->at && i <= shard->mask; i++) {
        suspended *s = &shard->at[i];
        if (!s->frame || s->frame == TAKEN)
            continue;
        uint64_t j = hash_of(s->frame);
        while (at[j & (size - 1)].frame)
            j++;
        at[j & (size - 1)] = *s;
    }
    free(shard->at);
    shard->at = at;
    shard->mask = size - 1;
    shard->used = live;
    return true;
}

void lp__lines_suspend(lp_lines *lines, const void *frame, lp_line_code *code, uint32_t slot, uint64_t now)
{
    uint64_t hash = hash_of(frame);
    lp__line_shard *shard = shard_lock(lines, hash);
    suspended *s = shard_find(shard, frame, hash);

    if (!s && shard_room(shard)) {
        uint64_t i = hash;
        while (shard->at[i & shard->mask].frame && shard->at[i & shard->mask].frame != TAKEN)
            i++;
        s = &shard->at[i & shard->mask];
        shard->used += s->frame == NULL;
    }
    if (s)
        *s = (suspended){.frame = frame, .code = code, .when = now, .slot = slot};
    else
        atomic_fetch_add(&lines->health.suspended_lost, 1);
    shard_unlock(shard);
}

bool lp__lines_resume(lp_lines *lines, const void *frame, const lp_line_code *code, uint32_t *slot, uint64_t *when)
{
    uint64_t hash = hash_of(frame);
    lp__line_shard *shard = shard_lock(lines, hash);
    suspended *s = shard_find(shard, frame, hash);
    bool found = s && s->code == code;

    if (found) {
        *slot = s->slot;
        *when = s->when;
    }
    if (s)
        s->frame = TAKEN;
    shard_unlock(shard);
    return found;
}

/* all: forgotten; else they are suspended since `now`. */
void lp__lines_forget_suspended(lp_lines *lines, bool all, uint64_t now)
{
    for (uint32_t n = 0; n < SHARDS; n++) {
        lp__line_shard *shard = shard_lock(lines, (uint64_t)n << 32);
        if (all) {
            free(shard->at);
            shard->at = NULL;
            shard->mask = shard->used = 0;
        }
        for (uint32_t i = 0; shard->at && i <= shard->mask; i++)
            shard->at[i].when = now;
        shard_unlock(shard);
    }
}

void lp_lines_yield(lp_line_thread *th, const void *frame, const void *key, const void *context, uint64_t now)
{
    if (LP_LINE_UNLIKELY(!lp__line_is_top(th, frame, key, context, now)))
        return;
    lp_line_frame *f = th->top;
    LP__LINE_ADD(lp__line_head(f->cells)->suspended, 1);
    if (f->cell)
        lp__lines_suspend(th->lines, frame, f->code, (uint32_t)(f->cell - f->cells), now);
    lp__line_pop(th, f, now - th->seg->own);
    LP__LINE_ADD(th->seg->own, th->cost.event[LP_LINE_YIELD]);
}

void lp_lines_resume(lp_line_thread *th, lp_line_code *code, const void *frame, const void *context, size_t at,
                     uint64_t now)
{
    uint32_t slot = 0, entry = lp_line_entry_at(code, at);
    uint64_t when = 0, v = now - (th->seg->own += th->cost.event[LP_LINE_RESUME_BEFORE]);
    bool was_seen = lp__lines_resume(th->lines, frame, code, &slot, &when);
    lp_line_frame *f = lp__line_push(th, code, frame, context, v);

    if (!f)
        return;
    if (was_seen)
        LP__LINE_ADD(f->cells[slot].awaited, now - when);
    if (entry != LP_LINE_NOWHERE)
        slot = entry >> LP_LINE_SLOT;
    if (was_seen || entry != LP_LINE_NOWHERE)
        lp__line_open_at(f, f->cells + slot, v);
    LP__LINE_ADD(th->seg->own, th->cost.event[LP_LINE_RESUME]);
}
