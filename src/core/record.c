#include "core/record.h"

#include <sched.h>
#include <string.h>

#include "core/names.h"
#include "core/thread.h"

void lp_recorder_lock(lp_recorder *recorder)
{
    while (atomic_flag_test_and_set_explicit(&recorder->lock, memory_order_acquire))
        sched_yield();
}

void lp_recorder_unlock(lp_recorder *recorder)
{
    atomic_flag_clear_explicit(&recorder->lock, memory_order_release);
}

void lp__note(lp_recorder *recorder, uint64_t *which)
{
    if (recorder->segment.base)
        __atomic_fetch_add(which, 1, __ATOMIC_RELAXED);
}

/* ---- nodes -------------------------------------------------------------------------------------------------------- */

size_t lp_node_path(const lp_thread *th, const lp_seg_node *node, char *buffer, size_t size)
{
    uint32_t chain[LP_DEPTH_LIMIT + 1];
    size_t depth = 0, used = 0;

    for (; node->name && depth <= LP_DEPTH_LIMIT; node = (const lp_seg_node *)(const void *)(th->base + node->parent))
        chain[depth++] = node->name;
    for (bool first = true; depth > 0 && used + 1 < size; first = false) {
        size_t length;
        const char *bytes = lp_name_bytes(th->recorder, chain[--depth], &length);
        if (!first)
            buffer[used++] = '/'; /* also after an empty name */
        if (length > size - 1 - used)
            length = size - 1 - used;
        memcpy(buffer + used, bytes, length);
        used += length;
    }
    if (size > 0)
        buffer[used] = '\0';
    return used;
}

size_t lp_node_path_below(const lp_thread *th, const lp_seg_node *parent, const char *bytes, size_t length,
                          char *buffer, size_t size)
{
    size_t used = lp_node_path(th, parent, buffer, size - 1);

    if (parent->name)
        buffer[used++] = '/';
    if (length > size - 1 - used)
        length = size - 1 - used;
    memcpy(buffer + used, bytes, length);
    buffer[used + length] = '\0';
    return used + length;
}

static uint32_t depth_of(const lp_thread *th, const lp_seg_node *node)
{
    uint32_t depth = 0;

    for (; node->name; node = (const lp_seg_node *)(const void *)(th->base + node->parent))
        depth++;
    return depth;
}

lp_found lp_node_fold(lp_thread *th, const lp_seg_node *parent, const char *bytes, size_t size)
{
    lp_recorder *recorder = th->recorder;
    lp_seg_health *health = lp_recorder_health(recorder);
    lp_found found = LP_FOUND_FOLDED_DEPTH;

    if (depth_of(th, parent) >= LP_DEPTH_LIMIT) {
        lp__note(recorder, &health->folded_depth);
    } else {
        lp_recorder_lock(recorder);
        bool first = lp__path_folded(recorder->paths, parent->path, lp__name_hash(bytes, size));
        lp_recorder_unlock(recorder);
        if (first)
            lp__note(recorder, &health->folded_paths);
        found = LP_FOUND_FOLDED_PATH;
    }
    if (!health->first_folded[0])
        lp_node_path_below(th, parent, bytes, size, health->first_folded, sizeof health->first_folded);
    return found;
}

void lp_fold_again(lp_thread *th, const lp_seg_node *parent)
{
    if (depth_of(th, parent) >= LP_DEPTH_LIMIT)
        lp__note(th->recorder, &lp_recorder_health(th->recorder)->folded_depth);
}

lp_found lp_node_get(lp_thread *th, lp_seg_node *parent, uint32_t name, lp_seg_node **node, bool *fresh)
{
    lp_recorder *recorder = th->recorder;
    size_t size;

    *fresh = false;
    for (lp_off at = parent->child; at;) {
        lp_seg_node *child = (lp_seg_node *)(void *)(th->base + at);
        if (child->name == name) {
            *node = child;
            return LP_FOUND;
        }
        at = child->sibling;
    }
    uint32_t path = 0;
    if (depth_of(th, parent) < LP_DEPTH_LIMIT) {
        lp_recorder_lock(recorder);
        path = lp__path_get(recorder->paths, parent->path, name, LP_PATH_LIMIT, fresh);
        lp_recorder_unlock(recorder);
    }
    if (!path) {
        const char *bytes = lp_name_bytes(recorder, name, &size);
        return lp_node_fold(th, parent, bytes, size);
    }
    *node = lp__node_make(th, parent, name, path);
    if (!*node) {
        lp__note(recorder, &lp_recorder_health(recorder)->lost_entries);
        return LP_FOUND_NO_SPACE;
    }
    return LP_FOUND;
}

lp_seg_counter *lp_counter_get(lp_thread *th, lp_seg_node *node, uint32_t name)
{
    for (lp_off at = node->counters; at;) {
        lp_seg_counter *counter = (lp_seg_counter *)(void *)(th->base + at);
        if (counter->name == name)
            return counter;
        at = counter->next;
    }
    lp_seg_counter *made = lp__counter_make(th, node, name);
    if (!made)
        lp__note(th->recorder, &lp_recorder_health(th->recorder)->lost_entries);
    return made;
}

/* ---- recording what is rare --------------------------------------------------------------------------------------- */

static lp_seg_node *same_path(lp_thread *th, const lp_thread *owner, const lp_seg_node *node)
{
    uint32_t chain[LP_DEPTH_LIMIT + 1];
    size_t depth = 0;
    lp_seg_node *here = th->root;
    bool fresh;

    for (; node->name && depth <= LP_DEPTH_LIMIT;
         node = (const lp_seg_node *)(const void *)(owner->base + node->parent))
        chain[depth++] = node->name;
    while (depth > 0)
        if (lp_node_get(th, here, chain[--depth], &here, &fresh) != LP_FOUND)
            return NULL;
    return here;
}

static void record(lp_thread *th, lp_seg_node *node, const lp_entry *entry, uint64_t wall, uint64_t covered,
                   uint32_t how, bool known)
{
    uint64_t scale = entry->scale;
    uint64_t nanoseconds = lp_ticks_to_ns(wall, th->mult);
    uint32_t cell = lp_hist_cell(nanoseconds);
    uint64_t away = 0, starved = 0, unsplit = 0;

    if (node->cells[cell >> 5] == 0 && !lp__cells_make(th, &node->cells[cell >> 5])) {
        lp__note(th->recorder, &lp_recorder_health(th->recorder)->lost_entries);
        return;
    }
    if (known) {
        /* Both clocks have noise; neither a negative wait nor one beyond the wall time is a measurement. */
        int64_t off = (int64_t)(th->away - entry->away);
        away = off < 0 ? 0 : (uint64_t)off > nanoseconds ? nanoseconds : (uint64_t)off;
        starved = th->starved - entry->starved;
        starved = starved > away ? away : starved;
        unsplit = th->unsplit - entry->unsplit;
        unsplit = unsplit > away - starved ? away - starved : unsplit;
    }
    lp_off cells = node->cells[cell >> 5];
    uint64_t *count = (uint64_t *)(void *)(th->base + cells) + (cell & 31u);
    lp_seg_undo *undo = &th->seg->undo;
    uint64_t *field = &node->entries;
    uint32_t serial = node->begun + 1;

    undo->target = lp_offset(th, node);
    undo->cell = lp_offset(th, count);
    undo->saved = 13;
    memcpy(undo->old, field, 13 * sizeof *field);
    undo->old_cell = *count;
    __atomic_store_n(&undo->valid, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&node->begun, serial, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    node->entries += scale;
    node->wall += wall * scale;
    node->covered += covered * scale;
    if (wall < node->min)
        node->min = wall;
    if (wall > node->max)
        node->max = wall;
    if (!known)
        node->unknown_wall += wall * scale;
    node->away += away * scale;
    node->starved += starved * scale;
    node->unsplit += unsplit * scale;
    if (how & LP_LEFT_ERROR)
        node->errors += scale;
    if (how & LP_LEFT_ABANDONED)
        node->abandoned += scale;
    if (entry->flags & LP_ENTRY_ASYNC) {
        node->async_entries += scale;
        node->flags |= LP_NODE_ASYNC;
    }
    if (how & LP_LEFT_IO_MISSING)
        node->io_missing += scale;
    if (entry->flags & LP_ENTRY_OVERLAP)
        node->flags |= LP_NODE_OVERLAP;
    if (entry->flags & LP_ENTRY_IO)
        node->flags |= LP_NODE_IO;
    if (entry->flags & LP_ENTRY_IO_OVERLAP)
        node->flags |= LP_NODE_IO_OVERLAP;
    if (scale > 1) {
        node->flags |= LP_NODE_SAMPLED;
        if (node->stride < entry->scale)
            node->stride = entry->scale;
    }
    *count += scale;
    __atomic_store_n(&node->done, serial, __ATOMIC_RELEASE);
    __atomic_store_n(&undo->valid, 0, __ATOMIC_RELEASE);
}

void lp__record_slow(lp_thread *th, lp_entry *entry, uint64_t wall, uint64_t now, uint32_t how)
{
    uint64_t covered = entry->covered;

    if (wall >> 63) {
        wall = 0;
        lp__note(th->recorder, &lp_recorder_health(th->recorder)->clock_backwards);
    }
    if (entry->open_children && now > entry->covered_since)
        covered += now - entry->covered_since;
    record(th, entry->place, entry, wall, covered, how, !(entry->flags & LP_ENTRY_UNKNOWN_CPU));
}

/* ---- leaving elsewhere -------------------------------------------------------------------------------------------- */

/* Takes an entry off the stack that starts at *top; false: it is not there. */
static bool unlink_from(lp_entry **top, const lp_entry *entry)
{
    for (lp_entry **link = top; *link; link = &(*link)->below) {
        if (*link == entry) {
            *link = entry->below;
            return true;
        }
    }
    return false;
}

static void take_off(lp_thread *th, lp_entry *entry)
{
    if (entry->context == th->context && unlink_from(&th->top, entry))
        return;
    lp_stack *stack = lp__stack_find(th, entry->context);
    if (stack && unlink_from(&stack->top, entry) && !stack->top) {
        stack->top = entry; /* the table tells a used slot by its top */
        lp__stack_drop(th, stack);
    }
}

static void let_go(lp_thread *th, lp_entry *entry)
{
    if ((entry->open_children | entry->lights) == 0)
        lp__entry_release(th, entry);
    else
        entry->state = LP_ENTRY_ZOMBIE;
}

static void leave_parent(lp_thread *th, const lp_entry *entry, uint64_t now)
{
    lp_entry *parent = entry->parent;

    if (!parent)
        return;
    if (entry->node == 0) {
        parent->lights--;
    } else if (--parent->open_children == 0 && now > parent->covered_since) {
        uint64_t ratio = entry->scale >= parent->scale ? entry->scale / parent->scale : 1;
        parent->covered += (now - parent->covered_since) * ratio;
    }
    if (parent->state == LP_ENTRY_ZOMBIE && (parent->open_children | parent->lights) == 0)
        lp__entry_release(th, parent);
}

void lp__orphan(lp_thread *th)
{
    for (lp_off at = th->seg->entries; at;) {
        lp_seg_entries *table = (lp_seg_entries *)(void *)(th->base + at);
        for (uint32_t i = 0; i < table->count; i++)
            if (table->at[i].state == LP_ENTRY_OPEN)
                table->at[i].flags |= LP_ENTRY_ORPHAN | LP_ENTRY_UNKNOWN_CPU;
        at = table->next;
    }
}

static void leave_from_abroad(lp_thread *th, lp_entry *entry, uint64_t now, uint32_t how)
{
    lp_thread *owner = entry->thread;
    lp_entry copy = *entry;
    uint32_t open = 0;

    if (copy.open_children && now > copy.covered_since)
        copy.covered += now - copy.covered_since;
    entry->end = now;
    if (!__atomic_compare_exchange_n(&entry->closed, &open, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        lp__note(th->recorder, &lp_recorder_health(th->recorder)->misuse);
        return;
    }
    __atomic_store_n(&owner->go, 0, __ATOMIC_RELEASE); /* it takes the entry off its stack at its next step */
    lp__note(th->recorder, &lp_recorder_health(th->recorder)->foreign_exits);
    if (copy.node == 0)
        return;
    lp_seg_node *node = same_path(th, owner, copy.place);
    if (!node) {
        lp__note(th->recorder, &lp_recorder_health(th->recorder)->lost_entries);
        return;
    }
    uint64_t wall = now > copy.start ? now - copy.start : 0;
    record(th, node, &copy, wall, copy.covered, how, false);
}

void lp__leave_slow(lp_thread *th, lp_entry *entry, uint64_t now, uint32_t how)
{
    if (entry->thread != th) {
        leave_from_abroad(th, entry, now, how);
        return;
    }
    if (how == LP__REAP) {
        take_off(th, entry);
        leave_parent(th, entry, now);
        let_go(th, entry);
        return; /* lp__thread_sync finds `outer` again: the context of before may be dead, only the running one is known to live */
    }
    if (entry->flags & LP_ENTRY_ORPHAN)
        lp__note(th->recorder, &lp_recorder_health(th->recorder)->foreign_exits);
    lp__stack_leave(th, entry, now);
    take_off(th, entry);
    leave_parent(th, entry, now);
    if (entry->node != 0) {
        if (*th->detector.word != th->detector.expected || now - th->detector.base_ticks > th->recheck)
            lp__look_at_cpu(th, now);
        lp__record_slow(th, entry, now - entry->start, now, how);
    }
    let_go(th, entry);
    if (th->outer == entry)
        lp_thread_reseat(th);
}

/* ---- counters ---- */

/* Memory for the cell of a counter's histogram: at the first amount of an octave, and of a sign. 0: the segment is full. */
lp_off lp__counter_cells(lp_thread *th, lp_seg_counter *counter, bool negative, uint32_t octave)
{
    lp_off *octaves = counter->cells;

    if (negative)
        octaves = counter->negative ? (lp_off *)(void *)(th->base + counter->negative) : lp__negative_make(th, counter);
    if (octaves && octaves[octave] == 0)
        lp__cells_make(th, &octaves[octave]);
    if (!octaves || octaves[octave] == 0) {
        lp__note(th->recorder, &lp_recorder_health(th->recorder)->lost_entries);
        return 0;
    }
    return octaves[octave];
}
