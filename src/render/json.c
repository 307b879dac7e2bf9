/* The JSON document of a report: the contract that text and pages are checked against (docs/report.md). Keys of the
 * package that we follow stay as they were, with their types; what could not be measured is null, never 0. */
#include <math.h>
#include <string.h>

#include "render/json_keys.h"
#include "render/json_usage.h"
#include "render/render.h"
#include "render/units.h"

static const char *const lives[] = {[LP_LIFE_CLOSED] = "closed",
                                    [LP_LIFE_RUNNING] = "running",
                                    [LP_LIFE_DIED] = "died",
                                    [LP_LIFE_LAST_SEEN] = "last_seen"};

static void put_source(lp_json *json, const lp_run *run)
{
    lp_json_key(json, "source");
    lp_json_open(json, '{');
    if (run->source_extra_count > 0) {
        for (uint32_t i = 0; i < run->source_extra_count; i++) {
            lp_json_key_str(json, run->source_extra[i].key);
            if (lp_json_is_valid(run->source_extra[i].value))
                lp_json_raw(json, run->source_extra[i].value);
            else
                lp_json_string(json, run->source_extra[i].value);
        }
    } else if (run->source_commit.size > 0) {
        lp__json_key_str(json, "commit", run->source_commit);
        lp__json_key_optional(json, "dirty_files", run->source_dirty);
        lp__json_key_optional(json, "untracked_files", run->source_untracked);
        lp_json_key(json, "diff_sha");
        if (run->source_dirty == LP_UNKNOWN_I64)
            lp_json_null(json);
        else
            lp_json_string(json, run->source_diff);
    }
    lp_json_close(json, '}');
}

static void put_worker_label(lp_json *json, const lp_run_worker *worker)
{
    lp_json_open_flat(json, '{');
    lp__json_key_str(json, "host", worker->host);
    lp__json_key_int(json, "pid", worker->pid);
    lp_json_close(json, '}');
}

/* How it died; null: not known, or it did not. */
static void put_end(lp_json *json, const lp_run_worker *worker)
{
    lp_unit text;

    lp__json_key_optional(json, "exit_code", worker->end.code);
    lp_json_key(json, "end");
    if (lp_unit_end(text, worker->end)[0])
        lp_json_text(json, text);
    else
        lp_json_null(json);
}

static void put_run(lp_json *json, const lp_report *report)
{
    const lp_run *run = report->run;

    lp_json_key(json, "run");
    lp_json_open(json, '{');
    lp__json_key_str(json, "run_id", run->run_id);
    put_source(json, run);
    lp_json_key(json, "hosts");
    lp_json_open_flat(json, '[');
    for (uint32_t i = 0; i < run->host_count; i++)
        lp_json_string(json, run->hosts[i].name);
    lp_json_close(json, ']');
    lp__json_key_u64(json, "processes", run->worker_count);
    lp_json_key(json, "roles");
    lp_json_open_flat(json, '[');
    for (uint32_t i = 0; i < run->role_count; i++)
        lp_json_string(json, run->roles[i].name);
    lp_json_close(json, ']');
    lp__json_key_seconds(json, "runtime_s", run->runtime_ns);
    lp__json_key_double(json, "imbalance", run->imbalance);
    lp_json_key(json, "slowest");
    if (run->worker_count > 0)
        put_worker_label(json, &run->workers[run->slowest]);
    else
        lp_json_null(json);
    lp__json_key_seconds(json, "started_at", run->started_ns);
    lp__json_key_seconds(json, "seen_at", run->ended_ns);
    lp__json_key_text(json, "empty_reason", run->empty_reason);
    lp__json_key_u64(json, "running", report->running);
    lp__json_key_u64(json, "closed", report->closed);
    lp__json_key_u64(json, "died", report->died);
    lp__json_key_u64(json, "last_seen", report->last_seen);
    lp_json_key(json, "argv");
    lp_json_open_flat(json, '[');
    for (uint32_t i = 0; i < run->argv_count; i++)
        lp_json_string(json, run->argv[i]);
    lp_json_close(json, ']');
    lp__json_key_str(json, "python", run->python);
    lp__json_key_str(json, "platform", run->platform);
    lp__json_key_double(json, "own_cost_ns", report->own_cost_ns);
    lp__json_key_double(json, "own_share", report->own_share);
    lp_json_close(json, '}');
}

static void put_path(lp_json *json, const lp_report_role *role, uint32_t phase)
{
    uint32_t depth = role->phases[phase].depth;

    lp_json_open_flat(json, '[');
    for (uint32_t level = 1; level <= depth; level++) {
        uint32_t at = phase;
        while (role->phases[at].depth > level)
            at = role->phases[at].parent;
        lp_json_string(json, role->phases[at].name);
    }
    lp_json_close(json, ']');
}

static void put_counters(lp_json *json, const lp_report_counter *counters, uint32_t count)
{
    lp_json_key(json, "counters");
    lp_json_open_flat(json, '{');
    for (uint32_t i = 0; i < count; i++) {
        lp_json_key_str(json, counters[i].name);
        lp_json_int(json, counters[i].total);
    }
    lp_json_close(json, '}');
    lp_json_key(json, "counter_stats");
    lp_json_open(json, '{');
    for (uint32_t i = 0; i < count; i++) {
        const lp_report_counter *counter = &counters[i];
        bool any = counter->calls > 0;
        lp_json_key_str(json, counter->name);
        lp_json_open_flat(json, '{');
        lp__json_key_u64(json, "calls", counter->calls);
        lp__json_key_int(json, "total", counter->total);
        lp__json_key_optional(json, "min", any ? counter->min : LP_UNKNOWN_I64);
        lp__json_key_optional(json, "max", any ? counter->max : LP_UNKNOWN_I64);
        lp__json_key_double(json, "p50", counter->p50);
        lp__json_key_double(json, "p95", counter->p95);
        lp__json_key_double(json, "rate_per_s", counter->rate_per_s);
        lp__json_key_double(json, "ns_each", counter->ns_each);
        lp_json_close(json, '}');
    }
    lp_json_close(json, '}');
}

static void put_waits(lp_json *json, const lp_report_phase *phase)
{
    bool known = phase->cpu_wall_ns > 0, split = !isnan(phase->blocked);

    lp__json_key_double(json, "wait_share", phase->wait);
    lp__json_key_u64(json, "cpu_wall_ns", phase->cpu_wall_ns);
    lp__json_key_known(json, "blocked_ns", split, phase->blocked_ns);
    lp__json_key_known(json, "starved_ns", split, phase->starved_ns);
    lp__json_key_known(json, "unsplit_ns", known, phase->wait_ns - (split ? phase->split_wait_ns : 0));
    lp__json_key_double(json, "blocked_share", phase->blocked);
    lp__json_key_double(json, "starved_share", phase->starved);
    lp__json_key_double(json, "unsplit_share", phase->unsplit);
}

static void put_io(lp_json *json, const lp_report_phase *phase)
{
    const lp_report_io *io = &phase->io;

    lp_json_key(json, "io");
    if (!(phase->flags & LP_PHASE_IO)) {
        lp_json_null(json);
        return;
    }
    lp_json_open_flat(json, '{');
    lp__json_key_known(json, "read_bytes", io->known, io->read_bytes);
    lp__json_key_known(json, "write_bytes", io->known, io->write_bytes);
    lp__json_key_known(json, "read_chars", io->known, io->read_chars);
    lp__json_key_known(json, "write_chars", io->known, io->write_chars);
    lp__json_key_known(json, "cached_read_bytes", io->known, io->cached_read_bytes);
    lp__json_key_double(json, "bytes_per_s", io->known ? io->rate : (double)NAN);
    lp__json_key_u64(json, "missing_entries", phase->io_missing);
    lp__json_key_bool(json, "overlapping", phase->flags & LP_PHASE_IO_OVERLAP);
    lp_json_close(json, '}');
}

static void put_phase(lp_json *json, const lp_report_role *role, uint32_t index)
{
    const lp_report_phase *phase = &role->phases[index];
    bool known = phase->cpu_wall_ns > 0;

    lp_json_open(json, '{');
    lp__json_key_str(json, "phase", phase->path);
    lp_json_key(json, "path");
    put_path(json, role, index);
    lp__json_key_u64(json, "calls", phase->entries);
    lp__json_key_u64(json, "wall_ns", phase->wall_ns);
    lp__json_key_known(json, "cpu_ns", known, phase->cpu_ns);
    lp__json_key_u64(json, "self_ns", phase->self_ns);
    lp__json_key_bool(json, "self_estimated", phase->self_estimated || phase->stride > 1);
    lp__json_key_known(json, "wait_ns", known, phase->wait_ns);
    lp__json_key_double(json, "mean_ns", phase->mean_ns);
    lp__json_key_double(json, "p50_ns", phase->p50_ns);
    lp__json_key_double(json, "p95_ns", phase->p95_ns);
    lp__json_key_double(json, "p99_ns", phase->p99_ns);
    lp__json_key_known(json, "min_ns", phase->entries > 0, phase->min_ns);
    lp__json_key_known(json, "max_ns", phase->entries > 0, phase->max_ns);
    lp__json_key_double(json, "share", phase->share);
    lp__json_key_double(json, "self_share", phase->self_share);
    put_waits(json, phase);
    lp__json_key_u64(json, "open", phase->open_entries);
    lp__json_key_u64(json, "open_ns", phase->open_ns);
    lp__json_key_u64(json, "open_self_ns", phase->open_self_ns);
    lp__json_key_u64(json, "errors", phase->errors);
    lp__json_key_u64(json, "abandoned", phase->abandoned);
    lp__json_key_u64(json, "sample_stride", phase->stride);
    lp__json_key_bool(json, "sampled", phase->stride > 1);
    lp__json_key_bool(json, "async", phase->async_entries > 0 || phase->flags & LP_PHASE_ASYNC);
    lp__json_key_u64(json, "async_entries", phase->async_entries);
    lp__json_key_bool(json, "overlapping", phase->flags & LP_PHASE_OVERLAP);
    lp__json_key_bool(json, "entered", !phase->synthetic);
    lp__json_key_double(json, "own_cost_share", phase->own_share);
    lp__json_key_bool(json, "trusted", !phase->untrusted);
    put_counters(json, phase->all_counters, phase->all_counter_count);
    put_io(json, phase);
    lp_json_close(json, '}');
}

static void put_breakdown(lp_json *json, const lp_report_role *role)
{
    const lp_report_breakdown *breakdown = &role->breakdown;

    lp_json_key(json, "breakdown");
    lp_json_open(json, '{');
    lp_json_key(json, "below");
    if (breakdown->at == LP_NO_PHASE) {
        lp_json_open_flat(json, '[');
        lp_json_close(json, ']');
    } else {
        put_path(json, role, breakdown->at);
    }
    lp__json_key_bool(json, "levels", breakdown->chain);
    lp__json_key_bool(json, "overlapping", breakdown->overlapping);
    lp__json_key_bool(json, "estimated", breakdown->estimated);
    lp__json_key_u64(json, "total_ns", breakdown->total_ns);
    lp_json_key(json, "rows");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < breakdown->row_count; i++) {
        const lp_report_share *row = &breakdown->rows[i];
        lp_json_open_flat(json, '{');
        lp_json_key(json, "phase");
        if (row->phase == LP_NO_PHASE)
            lp_json_null(json); /* Other */
        else
            lp_json_string(json, role->phases[row->phase].path);
        lp__json_key_u64(json, "wall_ns", row->wall_ns);
        lp__json_key_double(json, "share", row->share);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
    lp_json_close(json, '}');
}

/* Phases by self time, and after them those that only have children. */
static void put_phases(lp_json *json, const lp_report_role *role)
{
    lp_json_key(json, "phases");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < role->by_self_count; i++)
        put_phase(json, role, role->by_self[i]);
    for (uint32_t i = 0; i < role->phase_count; i++)
        if (role->phases[i].synthetic && role->phases[i].counter_count == 0)
            put_phase(json, role, i);
    lp_json_close(json, ']');
}

static void put_roles(lp_json *json, const lp_report *report)
{
    lp_json_key(json, "roles");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < report->role_count; i++) {
        const lp_report_role *role = &report->roles[i];
        lp_json_open(json, '{');
        lp__json_key_str(json, "role", role->role->name);
        lp__json_key_u64(json, "processes", role->role->worker_count);
        lp__json_key_double(json, "imbalance", role->role->imbalance);
        lp_json_key(json, "slowest");
        put_worker_label(json, &report->run->workers[role->role->slowest]);
        lp__json_key_u64(json, "wall_ns", role->role->wall_ns);
        lp__json_key_double(json, "own_share", role->own_share);
        put_breakdown(json, role);
        lp_json_key(json, "iterations");
        if (role->iterations == LP_NO_PHASE)
            lp_json_null(json);
        else
            lp_json_string(json, role->phases[role->iterations].path);
        put_counters(json, role->counters, role->counter_count);
        put_phases(json, role);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static void put_open_phases(lp_json *json, const lp_run_worker *worker)
{
    lp_json_key(json, "open");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < worker->open_count; i++) {
        const lp_run_open *open = &worker->open[i];
        lp_json_open_flat(json, '{');
        lp_json_key(json, "path");
        lp_json_open_flat(json, '[');
        for (uint32_t d = 0; d < open->depth; d++)
            lp_json_string(json, open->path[d]);
        lp_json_close(json, ']');
        lp__json_key_seconds(json, "since", open->since_ns);
        lp__json_key_u64(json, "open_ns", open->open_ns);
        lp__json_key_str(json, "thread", open->thread);
        lp__json_key_u64(json, "tid", open->tid);
        lp__json_key_bool(json, "inner", open->inner);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static void put_health(lp_json *json, const lp_health *health)
{
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {
        {"folded_paths", health->folded_paths},     {"folded_depth", health->folded_depth},
        {"lost_entries", health->lost_entries},     {"misuse", health->misuse},
        {"write_failures", health->write_failures}, {"callback_failures", health->callback_failures},
        {"foreign_exits", health->foreign_exits},   {"clock_backwards", health->clock_backwards},
    };

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        lp__json_key_u64(json, counts[i].key, counts[i].value);
    lp__json_key_str(json, "first_folded", health->first_folded);
    lp__json_key_str(json, "last_error", health->last_error);
}

static void put_workers(lp_json *json, const lp_run *run)
{
    lp_json_key(json, "workers");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < run->worker_count; i++) {
        const lp_run_worker *worker = &run->workers[i];
        lp_json_open(json, '{');
        lp__json_key_int(json, "pid", worker->pid);
        lp__json_key_str(json, "role", worker->role);
        lp__json_key_str(json, "host", worker->host);
        lp__json_key_optional(json, "rank", worker->rank);
        lp__json_key_seconds(json, "started_at", worker->started_ns);
        lp__json_key_seconds(json, "written_at", worker->written_ns);
        lp__json_key_u64(json, "wall_ns", worker->wall_ns);
        lp__json_key_u64(json, "write_failures", worker->health.write_failures);
        lp__json_key_u64(json, "open_ns", worker->open_ns);
        lp__json_key_u64(json, "elapsed_ns", worker->elapsed_ns);
        lp__json_key_text(json, "state", lives[worker->life]);
        put_end(json, worker);
        lp__json_key_bool(json, "stale", worker->stale);
        lp__json_key_str(json, "uuid", worker->uuid);
        lp__json_key_str(json, "path", worker->path);
        lp__json_key_str(json, "job_id", worker->job_id);
        lp__json_key_optional(json, "local_rank", worker->local_rank);
        lp__json_key_optional(json, "world_size", worker->world_size);
        lp__json_key_u64(json, "threads", worker->threads);
        lp__json_key_bool(json, "measure_cpu", worker->measure_cpu);
        lp__json_key_bool(json, "thread_names", worker->thread_names);
        lp__json_key_str(json, "clock", worker->clock);
        lp__json_key_str(json, "cpu_source", worker->cpu_source);
        lp__json_key_str(json, "split_source", worker->split_source);
        lp__json_key_str(json, "segment_place", worker->segment_place);
        lp__json_key_double(json, "own_cost_ns",
                            worker->own_cost_ps > 0 ? (double)worker->own_cost_ps / 1000.0 : (double)NAN);
        lp_json_key(json, "health");
        lp_json_open(json, '{');
        put_health(json, &worker->health);
        lp_json_close(json, '}');
        put_open_phases(json, worker);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static void put_open(lp_json *json, const lp_report *report)
{
    lp_json_key(json, "open");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < report->open_count; i++) {
        const lp_report_open *open = &report->open[i];
        const lp_report_role *role = &report->roles[open->role];
        lp_json_open(json, '{');
        lp__json_key_str(json, "role", role->role->name);
        lp__json_key_str(json, "phase", role->phases[open->phase].path);
        lp_json_key(json, "path");
        put_path(json, role, open->phase);
        lp__json_key_text(json, "state", lives[open->life]);
        lp__json_key_u64(json, "entries", open->entries);
        lp__json_key_u64(json, "longest_ns", open->longest_ns);
        lp_json_key(json, "workers");
        lp_json_open(json, '[');
        for (uint32_t w = 0; w < open->worker_count; w++)
            put_worker_label(json, &report->run->workers[open->workers[w]]);
        lp_json_close(json, ']');
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static void put_worker_list(lp_json *json, const lp_report *report, const char *key, const uint32_t *list,
                            uint32_t count)
{
    lp_json_key(json, key);
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < count; i++) {
        const lp_run_worker *worker = &report->run->workers[list[i]];
        lp_json_open_flat(json, '{');
        lp__json_key_str(json, "host", worker->host);
        lp__json_key_int(json, "pid", worker->pid);
        lp__json_key_str(json, "role", worker->role);
        lp__json_key_optional(json, "rank", worker->rank);
        lp__json_key_text(json, "state", lives[worker->life]);
        put_end(json, worker);
        lp__json_key_u64(json, "behind_ns",
                         report->run->ended_ns > worker->written_ns ? report->run->ended_ns - worker->written_ns : 0);
        lp__json_key_u64(json, "write_failures", worker->health.write_failures);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static void put_path_list(lp_json *json, const lp_report *report, const char *key, const lp_report_path *list,
                          uint32_t count)
{
    lp_json_key(json, key);
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < count; i++) {
        const lp_report_role *role = &report->roles[list[i].role];
        lp_json_open_flat(json, '{');
        lp__json_key_str(json, "role", role->role->name);
        lp__json_key_str(json, "phase", role->phases[list[i].phase].path);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static void put_stale(lp_json *json, const lp_report *report)
{
    lp_json_key(json, "stale");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < report->stale_count; i++)
        lp_json_string(json, report->run->workers[report->stale[i]].path);
    lp_json_close(json, ']');
}

static void put_files(lp_json *json, const lp_report *report)
{
    const lp_run *run = report->run;

    lp_json_key(json, "unreadable");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < run->unreadable_count; i++)
        lp_json_string(json, run->unreadable[i].path);
    lp_json_close(json, ']');
    lp_json_key(json, "superseded");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < run->superseded_count; i++)
        lp_json_string(json, run->superseded[i].path);
    lp_json_close(json, ']');
    put_stale(json, report);
    lp_json_key(json, "unreadable_reasons");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < run->unreadable_count; i++) {
        lp_json_open_flat(json, '{');
        lp__json_key_str(json, "path", run->unreadable[i].path);
        lp__json_key_str(json, "reason", run->unreadable[i].reason);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
    lp_json_key(json, "attempts");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < report->attempt_count; i++) {
        lp_json_open_flat(json, '{');
        lp__json_key_str(json, "run_id", report->attempts[i].run_id);
        lp__json_key_u64(json, "workers", report->attempts[i].workers);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

/* Hosts of workers that are known by their last snapshots only. */
static void put_as_written(lp_json *json, const lp_report *report)
{
    lp_json_key(json, "as_last_written");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < report->as_written_count; i++) {
        const lp_report_host *host = &report->as_written[i];
        lp_json_open_flat(json, '{');
        lp__json_key_str(json, "host", host->name);
        lp__json_key_u64(json, "workers", host->workers);
        lp__json_key_seconds(json, "oldest_at", host->oldest_ns);
        lp__json_key_seconds(json, "newest_at", host->newest_ns);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static void put_methods(lp_json *json, const lp_report *report)
{
    lp_json_key(json, "clock_steps");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < report->step_count; i++) {
        const lp_clock_step *step = &report->steps[i].step;
        lp_json_open_flat(json, '{');
        lp__json_key_str(json, "host", report->steps[i].host);
        lp__json_key_seconds(json, "at", step->real_ns);
        lp__json_key_double(json, "by_s", (double)step->by_ns / 1e9);
        lp_json_key(json, "cause");
        lp_json_text(json, step->slept ? "suspended" : "set");
        lp__json_key_u64(json, "workers", report->steps[i].workers);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
    lp_json_key(json, "asked_not_recorded");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < report->asked_count; i++) {
        lp_json_open_flat(json, '{');
        lp__json_key_str(json, "option", report->asked[i].option);
        lp__json_key_u64(json, "workers", report->asked[i].workers);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
    lp_json_key(json, "measured_by");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < report->source_count; i++) {
        lp_json_open_flat(json, '{');
        lp__json_key_str(json, "clock", report->sources[i].clock);
        lp__json_key_str(json, "cpu_time", report->sources[i].cpu_source);
        lp__json_key_str(json, "split", report->sources[i].split_source);
        lp__json_key_u64(json, "workers", report->sources[i].workers);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
    lp__json_key_double(json, "quantile_error", 1.0 / 64.0);
}

static void put_caveats(lp_json *json, const lp_report *report)
{
    lp_json_key(json, "caveats");
    lp_json_open(json, '{');
    put_files(json, report);
    put_as_written(json, report);
    put_worker_list(json, report, "unclean", report->unclean, report->unclean_count);
    put_worker_list(json, report, "died_inside", report->died_inside, report->died_inside_count);
    put_worker_list(json, report, "died_outside", report->died_outside, report->died_outside_count);
    put_worker_list(json, report, "stale_workers", report->stale, report->stale_count);
    put_worker_list(json, report, "failed_writes", report->failed_writes, report->failed_write_count);
    put_worker_list(json, report, "private_memory", report->private_memory, report->private_memory_count);
    put_worker_list(json, report, "cpu_not_measured", report->no_cpu, report->no_cpu_count);
    lp_json_key(json, "health");
    lp_json_open(json, '{');
    put_health(json, &report->health);
    lp_json_close(json, '}');
    put_path_list(json, report, "self_nested", report->self_nested, report->self_nested_count);
    put_path_list(json, report, "cpu_unknown", report->cpu_unknown, report->cpu_unknown_count);
    put_path_list(json, report, "overlapping", report->overlapping, report->overlapping_count);
    put_path_list(json, report, "io_overlapping", report->io_overlap, report->io_overlap_count);
    put_path_list(json, report, "io_missing", report->io_missing, report->io_missing_count);
    put_path_list(json, report, "untrusted", report->untrusted, report->untrusted_count);
    put_path_list(json, report, "sampled", report->sampled, report->sampled_count);
    put_path_list(json, report, "async", report->async_, report->async_count);
    put_methods(json, report);
    lp_json_close(json, '}');
}

static void put_machine(lp_json *json, const lp_report *report, bool samples)
{
    const lp_run *run = report->run;

    lp_json_key(json, "machine");
    lp_json_open(json, '{');
    if (samples)
        lp__json_used(json, report);
    lp_json_key(json, "capacity_by_host");
    lp_json_open(json, '{');
    for (uint32_t i = 0; i < run->host_count; i++) {
        const lp_hardware *has = &run->hosts[i].hardware;
        lp_json_key_str(json, run->hosts[i].name);
        lp_json_open(json, '{');
        lp__json_key_optional(json, "cpu_cores", has->cpu_cores);
        lp__json_key_optional(json, "cpu_threads", has->cpu_threads);
        lp__json_key_optional(json, "cpu_affinity", has->cpu_affinity);
        lp__json_key_optional(json, "ram_total", has->ram_total);
        lp_json_key(json, "gpus");
        lp_json_open(json, '[');
        for (uint32_t g = 0; g < has->gpu_count; g++) {
            lp_json_open_flat(json, '{');
            lp__json_key_int(json, "index", has->gpus[g].index);
            lp__json_key_str(json, "name", has->gpus[g].name);
            lp__json_key_optional(json, "vram_total", has->gpus[g].vram_total);
            lp_json_close(json, '}');
        }
        lp_json_close(json, ']');
        lp_json_close(json, '}');
    }
    lp_json_close(json, '}');
    lp_json_close(json, '}');
}

lp_status lp_render_json(const lp_report *report, bool samples, lp_sink *sink)
{
    lp_json json = {.sink = sink, .fresh = true};

    lp_json_open(&json, '{');
    put_run(&json, report);
    put_roles(&json, report);
    put_workers(&json, report->run);
    put_open(&json, report);
    put_caveats(&json, report);
    lp__json_findings(&json, report);
    if (samples)
        lp__json_resources(&json, report);
    put_machine(&json, report, samples);
    lp_json_close(&json, '}');
    lp_sink_char(sink, '\n');
    return sink->status;
}
