/* A snapshot file back into a worker. The bytes may be anything: every length is checked against what is left, every
 * count against a limit, every value against what can be true. A file with a good checksum and impossible values is
 * damaged all the same: somebody else made it. */
#include <inttypes.h>
#include <stdio.h>

#include "core/hist.h"
#include "store/wire.h"

#define CRC_SIZE 5u /* tag and value of field 15 */
#define CRC_TAG 0x7du
#define IDENTITY_TAG 0x12u

typedef struct decoder {
    lp_worker *worker;
    uint32_t counters;    /* seen in all phases */
    unsigned char *depth; /* of each phase; in the worker's arena */
    uint32_t depth_room;
} decoder;

static bool get_cells(lp__wire *wire, const lp__field *outer, lp_arena *arena, lp_cells *cells)
{
    lp__wire in = lp__wire_in(wire, outer);
    lp__wire deltas = {.base = in.base, .at = in.end, .end = in.end}, counts = deltas;
    lp__field field;
    lp_cell found[LP_HIST_CELLS];
    uint32_t size = 0;
    uint64_t index = 0, delta, count;

    while (lp__wire_next(&in, &field)) {
        if (field.number == 1)
            deltas = lp__wire_in(&in, &field);
        else if (field.number == 2)
            counts = lp__wire_in(&in, &field);
    }
    while (!in.problem && deltas.at < deltas.end) {
        if (!lp__wire_varint(&deltas, &delta) || !lp__wire_varint(&counts, &count))
            break;
        if (delta >= LP_HIST_CELLS || (size > 0 && delta == 0) || (index += delta) >= LP_HIST_CELLS)
            return lp__wire_fail(wire, outer, "a histogram has cells that do not exist");
        if (count == 0)
            return lp__wire_fail(wire, outer, "a histogram has an empty cell");
        found[size++] = (lp_cell){.index = (uint32_t)index, .count = count};
    }
    if (!lp__wire_done(wire, &in) || !lp__wire_done(wire, &deltas) || !lp__wire_done(wire, &counts))
        return false;
    if (counts.at < counts.end || cells->size)
        return lp__wire_fail(wire, outer, "a histogram has more counts than cells");
    if (size == 0)
        return true;
    cells->at = lp_arena_take(arena, size * sizeof *found);
    if (!cells->at)
        return lp__wire_fail(wire, outer, "out of memory");
    memcpy(cells->at, found, size * sizeof *found);
    cells->size = size;
    return true;
}

static bool get_wide(lp__wire *wire, const lp__field *field, lp_i128 *total)
{
    lp_str bytes;
    if (!lp__get_bytes(wire, field, &bytes))
        return false;
    if (bytes.size != 16)
        return lp__wire_fail(wire, field, "a wide total has not 16 bytes");
    __extension__ unsigned __int128 value = 0;
    for (unsigned i = 16; i-- > 0;)
        value = value << 8 | (unsigned char)bytes.data[i];
    *total = (lp_i128)value;
    return true;
}

static bool get_counter(lp__wire *wire, const lp__field *outer, decoder *d, lp_phase *phase)
{
    lp_arena *arena = d->worker->arena;
    lp__wire in = lp__wire_in(wire, outer);
    lp__field field;
    int64_t total;

    if (phase->counter_count >= LP__COUNTERS_MAX || d->counters >= LP__COUNTERS_TOTAL)
        return lp__wire_fail(wire, outer, "too many counters");
    lp_counter *grown = lp_arena_grow(arena, phase->counters, phase->counter_count, sizeof *grown);
    if (!grown)
        return lp__wire_fail(wire, outer, "out of memory");
    phase->counters = grown;
    lp_counter *counter = &grown[phase->counter_count++];
    *counter = (lp_counter){.name = lp__empty};
    d->counters++;
    while (lp__wire_next(&in, &field)) {
        switch (field.number) {
        case 1: lp__get_str(&in, &field, arena, &counter->name); break;
        case 2: lp__get_uint(&in, &field, &counter->calls); break;
        case 3:
            if (lp__get_sint(&in, &field, &total))
                counter->total = total;
            break;
        case 4: get_wide(&in, &field, &counter->total); break;
        case 5: lp__get_sint(&in, &field, &counter->min); break;
        case 6: lp__get_sint(&in, &field, &counter->max); break;
        case 7: get_cells(&in, &field, arena, &counter->positive); break;
        case 8: get_cells(&in, &field, arena, &counter->negative); break;
        default: break;
        }
    }
    if (!lp__wire_done(wire, &in))
        return false;
    if (counter->min > counter->max ||
        lp__add(lp_cells_total(&counter->positive), lp_cells_total(&counter->negative)) != counter->calls)
        return lp__wire_fail(wire, outer, "a counter contradicts itself");
    return true;
}

static bool possible(const lp_phase *phase)
{
    lp_phase clamped = *phase;
    lp_phase_clamp(&clamped);
    return phase->entries == lp_cells_total(&phase->hist) && phase->child_ns == clamped.child_ns &&
           phase->cpu_wall_ns == clamped.cpu_wall_ns && phase->cpu_ns == clamped.cpu_ns &&
           phase->split_wait_ns == clamped.split_wait_ns && phase->starved_ns == clamped.starved_ns &&
           phase->errors == clamped.errors && phase->abandoned == clamped.abandoned &&
           phase->async_entries == clamped.async_entries && phase->io_missing == clamped.io_missing &&
           phase->min_ns == clamped.min_ns && (phase->entries > 0 || phase->wall_ns == 0);
}

/* Puts a decoded phase into the tree: after its parent, under a name that its siblings do not have. */
static bool place_phase(lp__wire *wire, const lp__field *outer, decoder *d, lp_phase *phase, uint32_t number)
{
    lp_tree *tree = &d->worker->tree;
    uint32_t index;

    if (number == 0) {
        if (phase->parent != 0 || phase->name.size != 0 || phase->entries != 0)
            return lp__wire_fail(wire, outer, "the first phase is not a root");
        tree->phases[0] = *phase;
        return true;
    }
    if (phase->parent >= number)
        return lp__wire_fail(wire, outer, "a phase stands before its parent");
    if (number >= d->depth_room) {
        unsigned char *grown = lp_arena_take(d->worker->arena, 4u * (number + 16u));
        if (!grown)
            return lp__wire_fail(wire, outer, "out of memory");
        if (d->depth_room)
            memcpy(grown, d->depth, d->depth_room);
        d->depth = grown;
        d->depth_room = 4u * (number + 16u);
    }
    d->depth[number] = (unsigned char)(d->depth[phase->parent] + 1);
    if (d->depth[number] > LP__DEPTH_MAX)
        return lp__wire_fail(wire, outer, "phases are nested more than 64 deep");
    if (lp_tree_child(tree, phase->parent, phase->name, &index) != LP_OK)
        return lp__wire_fail(wire, outer, "out of memory");
    if (index != number)
        return lp__wire_fail(wire, outer, "a phase stands there twice");
    phase->name = tree->phases[index].name;
    tree->phases[index] = *phase;
    return true;
}

static bool get_phase(lp__wire *wire, const lp__field *outer, decoder *d, uint32_t number)
{
    lp__wire in = lp__wire_in(wire, outer);
    lp__field f;
    lp_phase p = {.name = lp__empty};

    if (number >= LP__PHASES_MAX)
        return lp__wire_fail(wire, outer, "more than 1,048,576 phases");
    while (lp__wire_next(&in, &f)) {
        switch (f.number) {
        case 1: lp__get_u32(&in, &f, &p.parent); break;
        case 2: lp__get_bytes(&in, &f, &p.name); break; /* borrowed: lp_tree_child copies it */
        case 3: lp__get_u32(&in, &f, &p.flags); break;
        case 4: lp__get_uint(&in, &f, &p.entries); break;
        case 5: lp__get_uint(&in, &f, &p.errors); break;
        case 6: lp__get_uint(&in, &f, &p.abandoned); break;
        case 7: lp__get_uint(&in, &f, &p.async_entries); break;
        case 8: lp__get_uint(&in, &f, &p.io_missing); break;
        case 9: lp__get_uint(&in, &f, &p.wall_ns); break;
        case 10: lp__get_uint(&in, &f, &p.child_ns); break;
        case 11: lp__get_uint(&in, &f, &p.cpu_wall_ns); break;
        case 12: lp__get_uint(&in, &f, &p.cpu_ns); break;
        case 13: lp__get_uint(&in, &f, &p.split_wait_ns); break;
        case 14: lp__get_uint(&in, &f, &p.starved_ns); break;
        case 15: lp__get_uint(&in, &f, &p.min_ns); break;
        case 16: lp__get_uint(&in, &f, &p.max_ns); break;
        case 17: lp__get_u32(&in, &f, &p.stride); break;
        case 18: get_cells(&in, &f, d->worker->arena, &p.hist); break;
        case 19: get_counter(&in, &f, d, &p); break;
        default: break;
        }
    }
    if (!lp__wire_done(wire, &in))
        return false;
    if (!possible(&p))
        return lp__wire_fail(wire, outer, "a phase has values that cannot be");
    return place_phase(wire, outer, d, &p, number);
}

static bool get_open(lp__wire *wire, const lp__field *outer, lp_worker *worker)
{
    lp__wire in = lp__wire_in(wire, outer);
    lp__field f;

    if (worker->open_count >= LP__LIST_MAX)
        return lp__wire_fail(wire, outer, "more than 65,536 open phases");
    lp_open *grown = lp_arena_grow(worker->arena, worker->open, worker->open_count, sizeof *grown);
    if (!grown)
        return lp__wire_fail(wire, outer, "out of memory");
    worker->open = grown;
    lp_open *open = &grown[worker->open_count++];
    *open = (lp_open){.thread = lp__empty};
    while (lp__wire_next(&in, &f)) {
        switch (f.number) {
        case 1: lp__get_u32(&in, &f, &open->phase); break;
        case 2: lp__get_fixed64(&in, &f, &open->since_ns); break;
        case 3: lp__get_uint(&in, &f, &open->open_ns); break;
        case 4: lp__get_str(&in, &f, worker->arena, &open->thread); break;
        case 5: lp__get_uint(&in, &f, &open->tid); break;
        default: break;
        }
    }
    return lp__wire_done(wire, &in);
}

static bool get_recorder(lp__wire *wire, const lp__field *outer, lp_worker *worker)
{
    lp_arena *arena = worker->arena;
    lp__wire in = lp__wire_in(wire, outer);
    lp_track *track = NULL;
    lp__field f;

    while (lp__wire_next(&in, &f)) {
        if ((f.number == 8 || f.number == 9) && !track) {
            track = lp_arena_take(arena, sizeof *track);
            if (!track)
                return lp__wire_fail(wire, outer, "out of memory");
            *track = (lp_track){0};
            worker->track = track;
        }
        switch (f.number) {
        case 1: lp__get_str(&in, &f, arena, &worker->clock); break;
        case 2: lp__get_str(&in, &f, arena, &worker->cpu_source); break;
        case 3: lp__get_str(&in, &f, arena, &worker->split_source); break;
        case 4: lp__get_str(&in, &f, arena, &worker->segment_place); break;
        case 5: lp__get_uint(&in, &f, &worker->own_cost_ps); break;
        case 6: lp__get_uint(&in, &f, &worker->own_count_cost_ps); break;
        case 7: lp__get_u32(&in, &f, &worker->threads); break;
        case 8: lp__get_moment(&in, &f, track); break;
        case 9: lp__get_step(&in, &f, track); break;
        default: break;
        }
    }
    return lp__wire_done(wire, &in);
}

static bool get_health(lp__wire *wire, const lp__field *outer, lp_arena *arena, lp_health *health)
{
    lp__wire in = lp__wire_in(wire, outer);
    lp__field f;

    while (lp__wire_next(&in, &f)) {
        switch (f.number) {
        case 1: lp__get_uint(&in, &f, &health->folded_paths); break;
        case 2: lp__get_uint(&in, &f, &health->folded_depth); break;
        case 3: lp__get_uint(&in, &f, &health->lost_entries); break;
        case 4: lp__get_uint(&in, &f, &health->misuse); break;
        case 5: lp__get_uint(&in, &f, &health->write_failures); break;
        case 6: lp__get_uint(&in, &f, &health->callback_failures); break;
        case 7: lp__get_uint(&in, &f, &health->foreign_exits); break;
        case 8: lp__get_uint(&in, &f, &health->clock_backwards); break;
        case 9: lp__get_str(&in, &f, arena, &health->first_folded); break;
        case 10: lp__get_str(&in, &f, arena, &health->last_error); break;
        default: break;
        }
    }
    return lp__wire_done(wire, &in);
}

/* Fields beside the tree; false: not one of them, or a problem. */
static bool get_head_field(lp__wire *wire, const lp__field *f, lp_worker *worker)
{
    lp__wire in;

    switch (f->number) {
    case 1: return true; /* checked before */
    case 2:
        in = lp__wire_in(wire, f);
        lp__get_identity(&in, worker->arena, &worker->id);
        return lp__wire_done(wire, &in);
    case 3: return lp__get_fixed64(wire, f, &worker->written_ns);
    case 4: return lp__get_uint(wire, f, &worker->elapsed_ns);
    case 5: return lp__get_u32(wire, f, &worker->generation);
    case 6: return lp__get_bool(wire, f, &worker->final);
    case 7: return lp__get_bool(wire, f, &worker->unclean);
    case 8: return get_recorder(wire, f, worker);
    case 9: return get_health(wire, f, worker->arena, &worker->health);
    case 12: return lp__get_int(wire, f, &worker->end.code);
    case 13: return lp__get_bool(wire, f, &worker->end.core_dumped);
    case 14: return lp__get_bool(wire, f, &worker->end.replaced);
    default: return false;
    }
}

/* Is it ours, and of a version that we know? */
static lp_status check_start(const unsigned char *data, size_t size, const char *name, lp_error *error)
{
    uint64_t version = 0;

    if (size == 0)
        return lp__fail(error, LP_E_TRUNCATED, name, 0, "the file is empty");
    if (size > LP__FILE_MAX)
        return lp__fail(error, LP_E_LIMIT, name, UINT64_MAX, "larger than 256 MB");
    if (data[0] != 0x08)
        return lp__fail(error, LP_E_FOREIGN, name, 0, "not a snapshot of lineprofiler");
    lp__wire wire = lp__wire_of(data + 1, size - 1);
    if (!lp__wire_varint(&wire, &version))
        return wire.cut ? lp__fail(error, LP_E_TRUNCATED, name, size, "cut off in its version")
                        : lp__fail(error, LP_E_FOREIGN, name, 1, "not a snapshot of lineprofiler");
    if (version > LP__SNAPSHOT_VERSION) {
        char text[100];
        snprintf(text, sizeof text, "format version %" PRIu64 " of a newer lineprofiler; this one reads up to %u",
                 version, (unsigned)LP__SNAPSHOT_VERSION);
        return lp__fail(error, LP_E_VERSION, name, 1, text);
    }
    if (wire.at == wire.end)
        return lp__fail(error, LP_E_TRUNCATED, name, size, "cut off after its version");
    if (version == 0 || *wire.at != IDENTITY_TAG)
        return lp__fail(error, LP_E_FOREIGN, name, version ? (uint64_t)(wire.at - data) : 1,
                        "not a snapshot of lineprofiler");
    return LP_OK;
}

/* A wrong or missing checksum: was the file cut, or changed? */
static lp_status check_whole(const unsigned char *data, size_t size, const char *name, lp_error *error)
{
    lp__wire wire = lp__wire_of(data, size);
    lp__field field = {0};
    uint32_t stored = 0;

    if (size >= CRC_SIZE && data[size - CRC_SIZE] == CRC_TAG) {
        for (unsigned i = 0; i < 4; i++)
            stored |= (uint32_t)data[size - 4 + i] << (8 * i);
        if (stored == lp__crc32c(0, data, size - CRC_SIZE))
            return LP_OK;
    }
    while (lp__wire_next(&wire, &field)) {
    }
    if (wire.problem)
        return lp__fail(error, wire.cut ? LP_E_TRUNCATED : LP_E_DAMAGED, name, (uint64_t)(wire.where - data),
                        wire.problem);
    if (field.number != 15 || field.type != LP__FIXED32)
        return lp__fail(error, LP_E_TRUNCATED, name, size, "ends without its checksum");
    return lp__fail(error, LP_E_DAMAGED, name, (uint64_t)(field.start - data), "the checksum is wrong");
}

static lp_status decode(const unsigned char *data, size_t size, bool head, const char *name, lp_worker **worker,
                        lp_error *error)
{
    lp_worker *made = lp_worker_new();
    decoder d = {.worker = made};
    lp__wire wire = lp__wire_of(data, size);
    lp__field field = {0};
    lp_status status;
    uint32_t phases = 0;

    if (!made)
        return lp__fail(error, LP_E_MEMORY, name, UINT64_MAX, "out of memory");
    d.depth = lp_arena_take(made->arena, 16);
    d.depth_room = d.depth ? 16 : 0;
    while (lp__wire_next(&wire, &field)) {
        if (field.number == 10 && !head)
            get_phase(&wire, &field, &d, phases++);
        else if (field.number == 11 && !head)
            get_open(&wire, &field, made);
        else if (!get_head_field(&wire, &field, made) && field.number == 15 && field.start + CRC_SIZE != data + size)
            lp__wire_fail(&wire, &field, "the checksum is not at the end");
        if (head && field.number >= 10)
            break; /* the head is complete */
    }
    bool complete = field.number >= 10;
    if (head && complete && wire.cut)
        wire.problem = NULL; /* in the first few KB of a file the tree may be cut off: that is beyond the head */
    if (wire.problem) {
        bool memory = strcmp(wire.problem, "out of memory") == 0;
        /* behind a good checksum nothing is cut off: then it was made so */
        status = lp__fail(error,
                          memory             ? LP_E_MEMORY
                          : wire.cut && head ? LP_E_TRUNCATED
                                             : LP_E_DAMAGED,
                          name, (uint64_t)(wire.where - data), wire.problem);
        goto failed;
    }
    if (head ? !complete : phases == 0) {
        status = lp__fail(error, head ? LP_E_TRUNCATED : LP_E_DAMAGED, name, size, "has no phases");
        goto failed;
    }
    for (uint32_t i = 0; i < made->open_count; i++)
        if (made->open[i].phase >= made->tree.count) {
            status = lp__fail(error, LP_E_DAMAGED, name, UINT64_MAX, "an open phase is not in the tree");
            goto failed;
        }
    made->path = lp__text(made->arena, name);
    *worker = made;
    return LP_OK;

failed:
    lp_worker_free(made);
    return status;
}

lp_status lp_snapshot_check(const void *data, size_t size, const char *name, lp_error *error)
{
    lp_status status = check_start(data, size, name, error);
    return status == LP_OK ? check_whole(data, size, name, error) : status;
}

lp_status lp_snapshot_decode(const void *data, size_t size, const char *name, lp_worker **worker, lp_error *error)
{
    lp_status status = lp_snapshot_check(data, size, name, error);
    return status == LP_OK ? decode(data, size, false, name, worker, error) : status;
}

lp_status lp_snapshot_head(const void *data, size_t size, const char *name, lp_worker **worker, lp_error *error)
{
    lp_status status = check_start(data, size, name, error);
    return status == LP_OK ? decode(data, size, true, name, worker, error) : status;
}
