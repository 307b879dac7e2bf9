/* A worker as the bytes of a snapshot file. proto/lineprofiler.proto is the contract. */
#include "store/wire.h"

static void put_cells(lp_buffer *out, uint32_t field, const lp_cells *cells)
{
    if (cells->size == 0)
        return;
    size_t message = lp__put_open(out, field);
    size_t packed = lp__put_open(out, 1);
    for (uint32_t i = 0, last = 0; i < cells->size; last = cells->at[i++].index)
        lp__put_varint(out, cells->at[i].index - last);
    lp__put_close(out, packed);
    packed = lp__put_open(out, 2);
    for (uint32_t i = 0; i < cells->size; i++)
        lp__put_varint(out, cells->at[i].count);
    lp__put_close(out, packed);
    lp__put_close(out, message);
}

static void put_counter(lp_buffer *out, uint32_t field, const lp_counter *counter)
{
    uint64_t calls = lp__add(lp_cells_total(&counter->positive), lp_cells_total(&counter->negative));
    size_t message = lp__put_open(out, field);
    lp__put_str(out, 1, counter->name);
    lp__put_uint(out, 2, calls);
    if (counter->total >= INT64_MIN && counter->total <= INT64_MAX) {
        lp__put_sint(out, 3, (int64_t)counter->total);
    } else {
        char wide[16];
        for (unsigned i = 0; i < sizeof wide; i++)
            wide[i] = (char)(counter->total >> (8 * i));
        lp__put_element(out, 4, (lp_str){wide, sizeof wide});
    }
    if (calls && counter->min <= counter->max) {
        lp__put_sint(out, 5, counter->min);
        lp__put_sint(out, 6, counter->max);
    }
    put_cells(out, 7, &counter->positive);
    put_cells(out, 8, &counter->negative);
    lp__put_close(out, message);
}

static void put_phase(lp_buffer *out, uint32_t field, const lp_phase *phase)
{
    lp_phase p = *phase;
    /* A reader refuses what contradicts itself, so that nothing of ours may. */
    p.entries = lp_cells_total(&p.hist);
    if (p.entries == 0)
        p.wall_ns = 0;
    lp_phase_clamp(&p);
    size_t message = lp__put_open(out, field);
    lp__put_uint(out, 1, p.parent);
    lp__put_str(out, 2, p.name);
    lp__put_uint(out, 3, p.flags);
    lp__put_uint(out, 4, p.entries);
    lp__put_uint(out, 5, p.errors);
    lp__put_uint(out, 6, p.abandoned);
    lp__put_uint(out, 7, p.async_entries);
    lp__put_uint(out, 8, p.io_missing);
    lp__put_uint(out, 9, p.wall_ns);
    lp__put_uint(out, 10, p.child_ns);
    lp__put_uint(out, 11, p.cpu_wall_ns);
    lp__put_uint(out, 12, p.cpu_ns);
    lp__put_uint(out, 13, p.split_wait_ns);
    lp__put_uint(out, 14, p.starved_ns);
    if (p.entries) {
        lp__put_uint(out, 15, p.min_ns);
        lp__put_uint(out, 16, p.max_ns);
    }
    lp__put_uint(out, 17, p.stride);
    put_cells(out, 18, &p.hist);
    for (uint32_t i = 0; i < p.counter_count && i < LP__COUNTERS_MAX; i++)
        put_counter(out, 19, &p.counters[i]);
    lp__put_close(out, message);
}

static void put_recorder(lp_buffer *out, uint32_t field, const lp_worker *worker)
{
    size_t message = lp__put_open(out, field);
    lp__put_str(out, 1, worker->clock);
    lp__put_str(out, 2, worker->cpu_source);
    lp__put_str(out, 3, worker->split_source);
    lp__put_str(out, 4, worker->segment_place);
    lp__put_uint(out, 5, worker->own_cost_ps);
    lp__put_uint(out, 6, worker->own_count_cost_ps);
    lp__put_uint(out, 7, worker->threads);
    if (worker->track)
        lp__put_track(out, 8, 9, worker->track);
    lp__put_close(out, message);
}

static void put_health(lp_buffer *out, uint32_t field, const lp_health *health)
{
    size_t message = lp__put_open(out, field);
    lp__put_uint(out, 1, health->folded_paths);
    lp__put_uint(out, 2, health->folded_depth);
    lp__put_uint(out, 3, health->lost_entries);
    lp__put_uint(out, 4, health->misuse);
    lp__put_uint(out, 5, health->write_failures);
    lp__put_uint(out, 6, health->callback_failures);
    lp__put_uint(out, 7, health->foreign_exits);
    lp__put_uint(out, 8, health->clock_backwards);
    lp__put_str(out, 9, health->first_folded);
    lp__put_str(out, 10, health->last_error);
    lp__put_close(out, message);
}

static void put_open(lp_buffer *out, uint32_t field, const lp_open *open)
{
    size_t message = lp__put_open(out, field);
    lp__put_uint(out, 1, open->phase);
    lp__put_fixed64(out, 2, open->since_ns);
    lp__put_uint(out, 3, open->open_ns);
    lp__put_str(out, 4, open->thread);
    lp__put_uint(out, 5, open->tid);
    lp__put_close(out, message);
}

lp_status lp_snapshot_encode(const lp_worker *worker, lp_buffer *out)
{
    size_t start = out->size;

    lp__put_uint(out, 1, LP__SNAPSHOT_VERSION);
    size_t identity = lp__put_open(out, 2);
    lp__put_identity(out, &worker->id);
    lp__put_close(out, identity);
    lp__put_fixed64(out, 3, worker->written_ns);
    lp__put_uint(out, 4, worker->elapsed_ns);
    lp__put_uint(out, 5, worker->generation);
    lp__put_uint(out, 6, worker->final);
    lp__put_uint(out, 7, worker->unclean);
    put_recorder(out, 8, worker);
    put_health(out, 9, &worker->health);
    for (uint32_t i = 0; i < worker->tree.count && i < LP__PHASES_MAX; i++)
        put_phase(out, 10, &worker->tree.phases[i]);
    for (uint32_t i = 0; i < worker->open_count && i < LP__LIST_MAX; i++)
        if (worker->open[i].phase < LP__PHASES_MAX)
            put_open(out, 11, &worker->open[i]);
    lp__put_optional(out, 12, worker->end.code);
    lp__put_uint(out, 13, worker->end.core_dumped);
    lp__put_uint(out, 14, worker->end.replaced);
    if (!out->failed)
        lp__put_fixed32(out, 15, lp__crc32c(0, out->data + start, out->size - start));
    return out->failed ? LP_E_MEMORY : LP_OK;
}
