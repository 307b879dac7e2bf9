/* The tree of one worker or of many merged: an array of phases, parents before children, and a hash of
 * (parent, name) beside it. */
#include "store/model.h"

#include <stdlib.h>

#include "store/internal.h"

typedef struct lp_tree_slot {
    uint32_t hash;
    uint32_t phase; /* 0 = free: the root is never looked up */
} slot;

#define FIRST_PHASES 16u
#define FIRST_SLOTS 32u /* at most half full */

lp_str lp__text(lp_arena *arena, const char *text)
{
    if (!text || !*text)
        return lp__empty;
    lp_str copy = lp_arena_str(arena, text, strlen(text));
    return copy.data ? copy : lp__empty;
}

void lp_identity_init(lp_identity *id)
{
    *id = (lp_identity){
        .host = lp__empty,
        .boot_id = lp__empty,
        .uuid = lp__empty,
        .run_id = lp__empty,
        .role = lp__empty,
        .job_id = lp__empty,
        .launcher = lp__empty,
        .python = lp__empty,
        .platform = lp__empty,
        .source_commit = lp__empty,
        .source_diff = lp__empty,
        .rank = LP_UNKNOWN_I64,
        .local_rank = LP_UNKNOWN_I64,
        .world_size = LP_UNKNOWN_I64,
        .source_dirty = LP_UNKNOWN_I64,
        .source_untracked = LP_UNKNOWN_I64,
        .hardware = {.cpu_cores = LP_UNKNOWN_I64,
                     .cpu_threads = LP_UNKNOWN_I64,
                     .cpu_affinity = LP_UNKNOWN_I64,
                     .ram_total = LP_UNKNOWN_I64},
    };
}

lp_worker *lp_worker_new(void)
{
    lp_arena *arena = lp_arena_new();
    if (!arena)
        return NULL;
    lp_worker *worker = lp_arena_take(arena, sizeof *worker);
    if (!worker || lp_tree_init(&worker->tree, arena) != LP_OK) {
        lp_arena_free(arena);
        return NULL;
    }
    worker->arena = arena;
    lp_identity_init(&worker->id);
    worker->end.code = LP_UNKNOWN_I64;
    worker->health.first_folded = worker->health.last_error = lp__empty;
    worker->clock = worker->cpu_source = worker->split_source = worker->segment_place = worker->path = lp__empty;
    return worker;
}

void lp_worker_free(lp_worker *worker)
{
    if (worker)
        lp_arena_free(worker->arena); /* which holds the worker itself */
}

lp_status lp_tree_init(lp_tree *tree, lp_arena *arena)
{
    lp_phase *phases = lp_arena_take(arena, FIRST_PHASES * sizeof *phases);
    slot *index = lp_arena_take(arena, FIRST_SLOTS * sizeof *index);
    if (!phases || !index)
        return LP_E_MEMORY;
    *tree = (lp_tree){.arena = arena,
                      .phases = phases,
                      .count = 1,
                      .capacity = FIRST_PHASES,
                      .index = index,
                      .index_size = FIRST_SLOTS};
    phases[0].name = lp__empty;
    return LP_OK;
}

/* The arena's address is the seed: names that collide in one program do not in the next. */
static uint32_t hash_of(const lp_tree *tree, uint32_t parent, lp_str name)
{
    uint64_t h = (uintptr_t)tree->arena ^ (parent * 0x9e3779b97f4a7c15u) ^ name.size;
    const char *at = name.data;
    size_t left = name.size;
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t rest = 0;
    if (left)
        memcpy(&rest, at, left);
    h = (h ^ rest) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h >> 32);
}

/* The slot of (parent, name), or the free one where it belongs. */
static slot *slot_of(const lp_tree *tree, uint32_t parent, lp_str name, uint32_t hash)
{
    uint32_t mask = tree->index_size - 1;
    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        slot *s = &tree->index[i];
        if (s->phase == 0)
            return s;
        if (s->hash == hash) {
            const lp_phase *phase = &tree->phases[s->phase];
            if (phase->parent == parent && lp__str_equal(phase->name, name))
                return s;
        }
    }
}

static lp_status grow(lp_tree *tree)
{
    if (tree->count == tree->capacity) {
        if (tree->capacity > UINT32_MAX / 4)
            return LP_E_MEMORY;
        lp_phase *phases = lp_arena_take(tree->arena, 2 * (size_t)tree->capacity * sizeof *phases);
        if (!phases)
            return LP_E_MEMORY;
        memcpy(phases, tree->phases, tree->count * sizeof *phases);
        tree->phases = phases;
        tree->capacity *= 2;
    }
    if (2 * tree->count >= tree->index_size) {
        uint32_t size = 2 * tree->index_size, mask = size - 1;
        slot *index = lp_arena_take(tree->arena, size * sizeof *index);
        if (!index)
            return LP_E_MEMORY;
        for (uint32_t old = 0; old < tree->index_size; old++) {
            if (tree->index[old].phase == 0)
                continue;
            uint32_t i = tree->index[old].hash & mask;
            while (index[i].phase != 0)
                i = (i + 1) & mask;
            index[i] = tree->index[old];
        }
        tree->index = index;
        tree->index_size = size;
    }
    return LP_OK;
}

lp_status lp_tree_child(lp_tree *tree, uint32_t parent, lp_str name, uint32_t *index)
{
    if (parent >= tree->count)
        return LP_E_ARGUMENT;
    uint32_t hash = hash_of(tree, parent, name);
    slot *s = slot_of(tree, parent, name, hash);
    if (s->phase == 0) {
        lp_status status = grow(tree);
        lp_str copy = status == LP_OK ? lp_arena_str(tree->arena, name.data, name.size) : lp__empty;
        if (status != LP_OK || !copy.data)
            return LP_E_MEMORY;
        s = slot_of(tree, parent, name, hash); /* the table may have moved */
        s->hash = hash;
        s->phase = tree->count++;
        tree->phases[s->phase] = (lp_phase){.parent = parent, .name = copy};
    }
    *index = s->phase;
    return LP_OK;
}

uint32_t lp_tree_find(const lp_tree *tree, uint32_t parent, lp_str name)
{
    slot *s = slot_of(tree, parent, name, hash_of(tree, parent, name));
    return s->phase ? s->phase : UINT32_MAX;
}

lp_status lp_phase_counter(lp_tree *tree, uint32_t phase, lp_str name, lp_counter **counter)
{
    if (phase >= tree->count)
        return LP_E_ARGUMENT;
    lp_phase *p = &tree->phases[phase];
    for (uint32_t i = 0; i < p->counter_count; i++)
        if (lp__str_equal(p->counters[i].name, name)) {
            *counter = &p->counters[i];
            return LP_OK;
        }
    lp_counter *counters = lp_arena_grow(tree->arena, p->counters, p->counter_count, sizeof *counters);
    lp_str copy = lp_arena_str(tree->arena, name.data, name.size);
    if (!counters || !copy.data)
        return LP_E_MEMORY;
    p->counters = counters;
    *counter = &counters[p->counter_count++];
    **counter = (lp_counter){.name = copy};
    return LP_OK;
}

lp_status lp__counter_merge(lp_tree *tree, uint32_t at, const lp_counter *from)
{
    lp_counter *to;
    lp_status status = lp_phase_counter(tree, at, from->name, &to);

    if (status != LP_OK)
        return status;
    if (from->calls) {
        if (to->calls == 0 || from->min < to->min)
            to->min = from->min;
        if (to->calls == 0 || from->max > to->max)
            to->max = from->max;
    }
    to->calls = lp__add(to->calls, from->calls);
    __extension__ typedef unsigned __int128 u128;
    to->total = (lp_i128)((u128)to->total + (u128)from->total);
    status = lp_cells_merge(tree->arena, &to->positive, &from->positive);
    return status == LP_OK ? lp_cells_merge(tree->arena, &to->negative, &from->negative) : status;
}

lp_status lp__phase_merge(lp_tree *tree, uint32_t at, const lp_phase *from)
{
    lp_phase *to = &tree->phases[at];
    if (from->entries) {
        if (to->entries == 0 || from->min_ns < to->min_ns)
            to->min_ns = from->min_ns;
        if (to->entries == 0 || from->max_ns > to->max_ns)
            to->max_ns = from->max_ns;
    }
    to->flags |= from->flags;
    to->entries = lp__add(to->entries, from->entries);
    to->errors = lp__add(to->errors, from->errors);
    to->abandoned = lp__add(to->abandoned, from->abandoned);
    to->async_entries = lp__add(to->async_entries, from->async_entries);
    to->io_missing = lp__add(to->io_missing, from->io_missing);
    to->wall_ns = lp__add(to->wall_ns, from->wall_ns);
    to->child_ns = lp__add(to->child_ns, from->child_ns);
    to->cpu_wall_ns = lp__add(to->cpu_wall_ns, from->cpu_wall_ns);
    to->cpu_ns = lp__add(to->cpu_ns, from->cpu_ns);
    to->split_wait_ns = lp__add(to->split_wait_ns, from->split_wait_ns);
    to->starved_ns = lp__add(to->starved_ns, from->starved_ns);
    if (from->stride > to->stride)
        to->stride = from->stride;
    lp_status status = lp_cells_merge(tree->arena, &to->hist, &from->hist);
    for (uint32_t i = 0; i < from->counter_count && status == LP_OK; i++)
        status = lp__counter_merge(tree, at, &from->counters[i]);
    return status;
}

lp_status lp_tree_merge(lp_tree *target, uint32_t at, const lp_tree *source)
{
    if (at >= target->count)
        return LP_E_ARGUMENT;
    uint32_t *map = malloc(source->count * sizeof *map); /* phase of the source -> phase of the target */
    if (!map)
        return LP_E_MEMORY;
    lp_status status = LP_OK;
    map[0] = at;
    for (uint32_t i = 0; i < source->count && status == LP_OK; i++) {
        const lp_phase *from = &source->phases[i];
        if (i > 0)
            status = from->parent < i ? lp_tree_child(target, map[from->parent], from->name, &map[i]) : LP_E_ARGUMENT;
        if (status == LP_OK)
            status = lp__phase_merge(target, map[i], from);
    }
    free(map);
    return status;
}

static void lower(uint64_t *value, uint64_t limit)
{
    if (*value > limit)
        *value = limit;
}

void lp_phase_clamp(lp_phase *phase)
{
    if (phase->entries) { /* the root and a level of threads have children's time and no wall of their own */
        lower(&phase->child_ns, phase->wall_ns);
        lower(&phase->min_ns, phase->max_ns);
    }
    lower(&phase->cpu_wall_ns, phase->wall_ns);
    lower(&phase->cpu_ns, phase->cpu_wall_ns);
    lower(&phase->split_wait_ns, phase->cpu_wall_ns - phase->cpu_ns);
    lower(&phase->starved_ns, phase->split_wait_ns);
    lower(&phase->errors, phase->entries);
    lower(&phase->abandoned, phase->entries);
    lower(&phase->async_entries, phase->entries);
    lower(&phase->io_missing, phase->entries);
}
