/* The Identity message, in a snapshot and at the start of a segment. */
#include <inttypes.h>

#include "store/wire.h"

static void put_pairs(lp_buffer *out, uint32_t field, const lp_pair *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count && i < LP__LIST_MAX; i++) {
        size_t mark = lp__put_open(out, field);
        lp__put_str(out, 1, pairs[i].key);
        lp__put_str(out, 2, pairs[i].value);
        lp__put_close(out, mark);
    }
}

static void put_hardware(lp_buffer *out, uint32_t field, const lp_hardware *hardware)
{
    size_t mark = lp__put_open(out, field);
    lp__put_optional(out, 1, hardware->cpu_cores);
    lp__put_optional(out, 2, hardware->cpu_threads);
    lp__put_optional(out, 3, hardware->cpu_affinity);
    lp__put_optional(out, 4, hardware->ram_total);
    for (uint32_t i = 0; i < hardware->gpu_count && i < LP__LIST_MAX; i++) {
        size_t gpu = lp__put_open(out, 5);
        lp__put_uint(out, 1, (uint64_t)hardware->gpus[i].index);
        lp__put_str(out, 2, hardware->gpus[i].name);
        lp__put_optional(out, 3, hardware->gpus[i].vram_total);
        lp__put_close(out, gpu);
    }
    lp__put_close(out, mark);
}

void lp__put_identity(lp_buffer *out, const lp_identity *id)
{
    lp__put_str(out, 1, id->host);
    lp__put_str(out, 2, id->boot_id);
    lp__put_str(out, 3, id->uuid);
    lp__put_uint(out, 4, (uint64_t)id->pid);
    lp__put_uint(out, 5, (uint64_t)id->pid_start);
    lp__put_fixed64(out, 6, id->started_ns);
    lp__put_str(out, 7, id->run_id);
    lp__put_str(out, 8, id->role);
    lp__put_fixed64(out, 9, id->run_started_ns);
    lp__put_optional(out, 10, id->rank);
    lp__put_optional(out, 11, id->local_rank);
    lp__put_optional(out, 12, id->world_size);
    lp__put_str(out, 13, id->job_id);
    lp__put_str(out, 14, id->launcher);
    lp__put_uint(out, 15, id->run_dir_dev);
    lp__put_uint(out, 16, id->run_dir_ino);
    lp__put_uint(out, 17, id->pid_ns);
    lp__put_uint(out, 18, id->mnt_ns);
    for (uint32_t i = 0; i < id->argv_count && i < LP__LIST_MAX; i++)
        lp__put_element(out, 19, id->argv[i]);
    lp__put_str(out, 20, id->python);
    lp__put_str(out, 21, id->platform);
    lp__put_str(out, 22, id->source_commit);
    lp__put_optional(out, 23, id->source_dirty);
    lp__put_str(out, 24, id->source_diff);
    put_pairs(out, 25, id->source_extra, id->source_extra_count);
    put_hardware(out, 26, &id->hardware);
    put_pairs(out, 27, id->options, id->option_count);
    lp__put_optional(out, 28, id->source_untracked);
    lp__put_uint(out, 29, id->time_ns);
}

lp_status lp_identity_encode(const lp_identity *id, lp_buffer *out)
{
    lp__put_identity(out, id);
    return out->failed ? LP_E_MEMORY : LP_OK;
}

/* A place for one more element of a repeated field; NULL is a problem of the wire. */
static void *more(lp__wire *wire, const lp__field *field, lp_arena *arena, void *array, uint32_t count, size_t element)
{
    if (count >= LP__LIST_MAX) {
        lp__wire_fail(wire, field, "a list has more than 65,536 elements");
        return NULL;
    }
    void *grown = lp_arena_grow(arena, array, count, element);
    if (!grown)
        lp__wire_fail(wire, field, "out of memory");
    return grown;
}

static bool get_pair(lp__wire *wire, const lp__field *outer, lp_arena *arena, lp_pair **pairs, uint32_t *count)
{
    lp_pair *grown = more(wire, outer, arena, *pairs, *count, sizeof **pairs);
    lp__wire in = lp__wire_in(wire, outer);
    lp__field field;

    if (!grown)
        return false;
    *pairs = grown;
    lp_pair *pair = &grown[(*count)++];
    *pair = (lp_pair){lp__empty, lp__empty};
    while (lp__wire_next(&in, &field)) {
        if (field.number == 1)
            lp__get_str(&in, &field, arena, &pair->key);
        else if (field.number == 2)
            lp__get_str(&in, &field, arena, &pair->value);
    }
    return lp__wire_done(wire, &in);
}

static bool get_gpu(lp__wire *wire, const lp__field *outer, lp_arena *arena, lp_hardware *hardware)
{
    lp_gpu_info *grown = more(wire, outer, arena, hardware->gpus, hardware->gpu_count, sizeof *grown);
    lp__wire in = lp__wire_in(wire, outer);
    lp__field field;

    if (!grown)
        return false;
    hardware->gpus = grown;
    lp_gpu_info *gpu = &grown[hardware->gpu_count++];
    *gpu = (lp_gpu_info){.name = lp__empty, .vram_total = LP_UNKNOWN_I64};
    while (lp__wire_next(&in, &field)) {
        if (field.number == 1)
            lp__get_int(&in, &field, &gpu->index);
        else if (field.number == 2)
            lp__get_str(&in, &field, arena, &gpu->name);
        else if (field.number == 3)
            lp__get_int(&in, &field, &gpu->vram_total);
    }
    return lp__wire_done(wire, &in);
}

static bool get_hardware(lp__wire *wire, const lp__field *outer, lp_arena *arena, lp_hardware *hardware)
{
    lp__wire in = lp__wire_in(wire, outer);
    lp__field field;

    while (lp__wire_next(&in, &field)) {
        switch (field.number) {
        case 1: lp__get_int(&in, &field, &hardware->cpu_cores); break;
        case 2: lp__get_int(&in, &field, &hardware->cpu_threads); break;
        case 3: lp__get_int(&in, &field, &hardware->cpu_affinity); break;
        case 4: lp__get_int(&in, &field, &hardware->ram_total); break;
        case 5: get_gpu(&in, &field, arena, hardware); break;
        default: break;
        }
    }
    return lp__wire_done(wire, &in);
}

static bool get_argument(lp__wire *wire, const lp__field *field, lp_arena *arena, lp_identity *id)
{
    lp_str *grown = more(wire, field, arena, id->argv, id->argv_count, sizeof *grown);
    if (!grown)
        return false;
    id->argv = grown;
    grown[id->argv_count] = lp__empty;
    return lp__get_str(wire, field, arena, &grown[id->argv_count++]);
}

bool lp__get_identity(lp__wire *wire, lp_arena *arena, lp_identity *id)
{
    lp__field f;

    lp_identity_init(id);
    while (lp__wire_next(wire, &f)) {
        switch (f.number) {
        case 1: lp__get_str(wire, &f, arena, &id->host); break;
        case 2: lp__get_str(wire, &f, arena, &id->boot_id); break;
        case 3: lp__get_str(wire, &f, arena, &id->uuid); break;
        case 4: lp__get_int(wire, &f, &id->pid); break;
        case 5: lp__get_int(wire, &f, &id->pid_start); break;
        case 6: lp__get_fixed64(wire, &f, &id->started_ns); break;
        case 7: lp__get_str(wire, &f, arena, &id->run_id); break;
        case 8: lp__get_str(wire, &f, arena, &id->role); break;
        case 9: lp__get_fixed64(wire, &f, &id->run_started_ns); break;
        case 10: lp__get_int(wire, &f, &id->rank); break;
        case 11: lp__get_int(wire, &f, &id->local_rank); break;
        case 12: lp__get_int(wire, &f, &id->world_size); break;
        case 13: lp__get_str(wire, &f, arena, &id->job_id); break;
        case 14: lp__get_str(wire, &f, arena, &id->launcher); break;
        case 15: lp__get_uint(wire, &f, &id->run_dir_dev); break;
        case 16: lp__get_uint(wire, &f, &id->run_dir_ino); break;
        case 17: lp__get_uint(wire, &f, &id->pid_ns); break;
        case 18: lp__get_uint(wire, &f, &id->mnt_ns); break;
        case 19: get_argument(wire, &f, arena, id); break;
        case 20: lp__get_str(wire, &f, arena, &id->python); break;
        case 21: lp__get_str(wire, &f, arena, &id->platform); break;
        case 22: lp__get_str(wire, &f, arena, &id->source_commit); break;
        case 23: lp__get_int(wire, &f, &id->source_dirty); break;
        case 24: lp__get_str(wire, &f, arena, &id->source_diff); break;
        case 25: get_pair(wire, &f, arena, &id->source_extra, &id->source_extra_count); break;
        case 26: get_hardware(wire, &f, arena, &id->hardware); break;
        case 28: lp__get_int(wire, &f, &id->source_untracked); break;
        case 29: lp__get_uint(wire, &f, &id->time_ns); break;
        case 27: get_pair(wire, &f, arena, &id->options, &id->option_count); break;
        default: break;
        }
    }
    return !wire->problem;
}

lp_status lp_identity_decode(const void *data, size_t size, lp_arena *arena, lp_identity *id, lp_error *error)
{
    lp__wire wire = lp__wire_of(data, size);
    lp_identity made;

    if (!lp__get_identity(&wire, arena, &made))
        return lp__fail(error, wire.cut ? LP_E_TRUNCATED : LP_E_DAMAGED, "identity", (uint64_t)(wire.where - wire.base),
                        wire.problem);
    *id = made;
    return LP_OK;
}
