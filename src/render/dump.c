/* A worker as plain text: every field of store/model.h, one fact a line, in a fixed order, so that two dumps can be
 * compared by diff. Names are quoted with escapes; unknown numbers are "unknown". It is the oracle of the tests. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/hist.h"
#include "render/dump_internal.h"
#include "render/json_write.h"
#include "render/render.h"
#include "render/units.h"
#include "store/track.h"

void lp__dump_str(lp_sink *sink, const char *key, lp_str value)
{
    lp_json json = {.sink = sink, .after_key = true};

    lp_sink_format(sink, "%s ", key);
    lp_json_string(&json, value);
    lp_sink_char(sink, '\n');
}

static void put_u64(lp_sink *sink, const char *key, uint64_t value)
{
    lp_sink_format(sink, "%s %" PRIu64 "\n", key, value);
}

static void put_i64(lp_sink *sink, const char *key, int64_t value)
{
    if (value == LP_UNKNOWN_I64)
        lp_sink_format(sink, "%s unknown\n", key);
    else
        lp_sink_format(sink, "%s %" PRId64 "\n", key, value);
}

static void put_pairs(lp_sink *sink, const char *key, const lp_pair *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        lp_json json = {.sink = sink, .after_key = true};
        lp_sink_format(sink, "%s ", key);
        lp_json_string(&json, pairs[i].key);
        json.after_key = true;
        lp_sink_char(sink, ' ');
        lp_json_string(&json, pairs[i].value);
        lp_sink_char(sink, '\n');
    }
}

static void put_hardware(lp_sink *sink, const lp_hardware *hardware)
{
    put_i64(sink, "hardware.cpu_cores", hardware->cpu_cores);
    put_i64(sink, "hardware.cpu_threads", hardware->cpu_threads);
    put_i64(sink, "hardware.cpu_affinity", hardware->cpu_affinity);
    put_i64(sink, "hardware.ram_total", hardware->ram_total);
    for (uint32_t i = 0; i < hardware->gpu_count; i++) {
        put_i64(sink, "hardware.gpu.index", hardware->gpus[i].index);
        lp__dump_str(sink, "hardware.gpu.name", hardware->gpus[i].name);
        put_i64(sink, "hardware.gpu.vram_total", hardware->gpus[i].vram_total);
    }
}

void lp__dump_identity(lp_sink *sink, const lp_identity *id)
{
    lp__dump_str(sink, "host", id->host);
    lp__dump_str(sink, "boot_id", id->boot_id);
    lp__dump_str(sink, "uuid", id->uuid);
    put_i64(sink, "pid", id->pid);
    put_i64(sink, "pid_start", id->pid_start);
    put_u64(sink, "started_ns", id->started_ns);
    lp__dump_str(sink, "run_id", id->run_id);
    lp__dump_str(sink, "role", id->role);
    put_u64(sink, "run_started_ns", id->run_started_ns);
    put_i64(sink, "rank", id->rank);
    put_i64(sink, "local_rank", id->local_rank);
    put_i64(sink, "world_size", id->world_size);
    lp__dump_str(sink, "job_id", id->job_id);
    lp__dump_str(sink, "launcher", id->launcher);
    put_u64(sink, "run_dir_dev", id->run_dir_dev);
    put_u64(sink, "run_dir_ino", id->run_dir_ino);
    put_u64(sink, "pid_ns", id->pid_ns);
    put_u64(sink, "mnt_ns", id->mnt_ns);
    if (id->time_ns)
        put_u64(sink, "time_ns", id->time_ns);
    for (uint32_t i = 0; i < id->argv_count; i++)
        lp__dump_str(sink, "argv", id->argv[i]);
    lp__dump_str(sink, "python", id->python);
    lp__dump_str(sink, "platform", id->platform);
    lp__dump_str(sink, "source.commit", id->source_commit);
    put_i64(sink, "source.dirty_files", id->source_dirty);
    put_i64(sink, "source.untracked_files", id->source_untracked);
    lp__dump_str(sink, "source.diff", id->source_diff);
    put_pairs(sink, "source", id->source_extra, id->source_extra_count);
    put_hardware(sink, &id->hardware);
    put_pairs(sink, "option", id->options, id->option_count);
}

static void put_track(lp_sink *sink, const lp_track *track)
{
    for (uint32_t i = 0; track && i < track->count; i++)
        lp_sink_format(sink, "moment %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", track->at[i].ticks, track->at[i].mono_ns,
                       track->at[i].real_ns);
    for (uint32_t i = 0; track && i < track->step_count; i++)
        lp_sink_format(sink, "clock_step %" PRIu64 " %" PRIu64 " %" PRId64 " %s\n", track->steps[i].mono_ns,
                       track->steps[i].real_ns, track->steps[i].by_ns, track->steps[i].slept ? "slept" : "set");
}

static void put_state(lp_sink *sink, const lp_worker *worker)
{
    put_u64(sink, "written_ns", worker->written_ns);
    put_u64(sink, "elapsed_ns", worker->elapsed_ns);
    put_u64(sink, "generation", worker->generation);
    lp_sink_format(sink, "final %d\nunclean %d\nliving %d\n", worker->final, worker->unclean, worker->living);
    put_i64(sink, "exit_code", worker->end.code);
    lp_sink_format(sink, "core_dumped %d\nreplaced %d\n", worker->end.core_dumped, worker->end.replaced);
    lp__dump_str(sink, "clock", worker->clock);
    put_track(sink, worker->track);
    lp__dump_str(sink, "cpu_source", worker->cpu_source);
    lp__dump_str(sink, "split_source", worker->split_source);
    lp__dump_str(sink, "segment_place", worker->segment_place);
    put_u64(sink, "own_cost_ps", worker->own_cost_ps);
    put_u64(sink, "own_count_cost_ps", worker->own_count_cost_ps);
    put_u64(sink, "threads", worker->threads);
    put_u64(sink, "health.folded_paths", worker->health.folded_paths);
    put_u64(sink, "health.folded_depth", worker->health.folded_depth);
    put_u64(sink, "health.lost_entries", worker->health.lost_entries);
    put_u64(sink, "health.misuse", worker->health.misuse);
    put_u64(sink, "health.write_failures", worker->health.write_failures);
    put_u64(sink, "health.callback_failures", worker->health.callback_failures);
    put_u64(sink, "health.foreign_exits", worker->health.foreign_exits);
    put_u64(sink, "health.clock_backwards", worker->health.clock_backwards);
    lp__dump_str(sink, "health.first_folded", worker->health.first_folded);
    lp__dump_str(sink, "health.last_error", worker->health.last_error);
}

/* Names from the top down, as a JSON array: a name may hold the separator. */
static void put_path(lp_sink *sink, const lp_tree *tree, uint32_t index)
{
    lp_json json = {.sink = sink, .fresh = true, .after_key = true};
    uint32_t depth = 0;

    for (uint32_t at = index; at != 0; at = tree->phases[at].parent)
        depth++;
    lp_json_open_flat(&json, '[');
    for (uint32_t level = depth; level > 0; level--) {
        uint32_t at = index;
        for (uint32_t up = 1; up < level; up++)
            at = tree->phases[at].parent;
        lp_json_string(&json, tree->phases[at].name);
    }
    lp_json_close(&json, ']');
}

static void put_cells(lp_sink *sink, const char *key, const lp_cells *cells)
{
    if (cells->size == 0)
        return;
    lp_sink_format(sink, "  %s", key);
    for (uint32_t i = 0; i < cells->size; i++)
        lp_sink_format(sink, " %" PRIu64 ":%" PRIu64, lp_hist_low(cells->at[i].index), cells->at[i].count);
    lp_sink_char(sink, '\n');
}

static void put_flags(lp_sink *sink, uint32_t flags)
{
    static const char *const names[] = {"sampled", "async", "io", "overlap", "io_overlap"};

    lp_sink_text(sink, "  flags");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (flags >> i & 1)
            lp_sink_format(sink, " %s", names[i]);
    if (flags >> (sizeof names / sizeof *names))
        lp_sink_format(sink, " %#x", flags);
    lp_sink_char(sink, '\n');
}

static void put_counter(lp_sink *sink, const lp_counter *counter)
{
    lp_json json = {.sink = sink, .after_key = true};

    lp_sink_text(sink, "  counter ");
    lp_json_string(&json, counter->name);
    lp_sink_format(sink, " calls %" PRIu64 " total ", counter->calls);
    json.after_key = true;
    lp_json_int(&json, counter->total);
    if (counter->calls > 0)
        lp_sink_format(sink, " min %" PRId64 " max %" PRId64, counter->min, counter->max);
    lp_sink_char(sink, '\n');
    put_cells(sink, "  amounts", &counter->positive);
    put_cells(sink, "  negative", &counter->negative);
}

static void put_phase(lp_sink *sink, const lp_tree *tree, uint32_t index)
{
    const lp_phase *phase = &tree->phases[index];
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"entries", phase->entries},       {"errors", phase->errors},
        {"abandoned", phase->abandoned},   {"async_entries", phase->async_entries},
        {"io_missing", phase->io_missing}, {"wall_ns", phase->wall_ns},
        {"child_ns", phase->child_ns},     {"cpu_wall_ns", phase->cpu_wall_ns},
        {"cpu_ns", phase->cpu_ns},         {"split_wait_ns", phase->split_wait_ns},
        {"starved_ns", phase->starved_ns}, {"stride", phase->stride},
    };

    lp_sink_text(sink, "phase ");
    put_path(sink, tree, index);
    lp_sink_char(sink, '\n');
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value > 0 || i == 0)
            lp_sink_format(sink, "  %s %" PRIu64 "\n", numbers[i].key, numbers[i].value);
    if (phase->entries > 0)
        lp_sink_format(sink, "  min_ns %" PRIu64 "\n  max_ns %" PRIu64 "\n", phase->min_ns, phase->max_ns);
    if (phase->flags)
        put_flags(sink, phase->flags);
    put_cells(sink, "durations", &phase->hist);
    for (uint32_t i = 0; i < phase->counter_count; i++)
        put_counter(sink, &phase->counters[i]);
}

lp_status lp_render_dump(const lp_worker *worker, const char *kind, lp_sink *sink)
{
    lp_sink_format(sink, "kind %s\n", kind);
    lp__dump_identity(sink, &worker->id);
    put_state(sink, worker);
    for (uint32_t i = 0; i < worker->tree.count; i++)
        put_phase(sink, &worker->tree, i);
    for (uint32_t i = 0; i < worker->open_count; i++) {
        const lp_open *open = &worker->open[i];
        lp_sink_text(sink, "open ");
        put_path(sink, &worker->tree, open->phase < worker->tree.count ? open->phase : 0);
        lp_sink_format(sink, "\n  since_ns %" PRIu64 "\n  open_ns %" PRIu64 "\n  tid %" PRIu64 "\n", open->since_ns,
                       open->open_ns, open->tid);
        lp__dump_str(sink, "  thread", open->thread);
    }
    return sink->status;
}
