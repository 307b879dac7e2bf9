/* Workers and runs with fixed numbers for the tests of analysis, render and cli: no clock, no file, always the same. */
#ifndef LP_TESTS_MAKE_RUNS_H
#define LP_TESTS_MAKE_RUNS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/run.h"
#include "core/hist.h"
#include "store/arena.h"

#define MADE_START 1790000000000000000ull /* Unix ns: 2026-09-21 */
#define MS 1000000ull
#define SECOND 1000000000ull

static inline lp_str made_str(const char *text)
{
    return (lp_str){text, strlen(text)};
}

static inline void *made_or_die(void *pointer)
{
    if (!pointer)
        abort(); /* a test without memory proves nothing */
    return pointer;
}

static inline lp_worker *made_worker(const char *role, const char *host, int64_t pid)
{
    lp_worker *worker = made_or_die(lp_worker_new());
    lp_identity *id = &worker->id;
    static char uuids[32][33];
    static unsigned next;
    char *uuid = uuids[next++ % 32];

    snprintf(uuid, 33, "%024x%08x", 7u, (unsigned)pid);
    id->host = made_str(host);
    id->boot_id = made_str("b0071d00-0000-0000-0000-000000000000");
    id->uuid = made_str(uuid);
    id->pid = pid;
    id->pid_start = 4242;
    id->started_ns = id->run_started_ns = MADE_START;
    id->run_id = made_str("20260921T155320-471c94");
    id->role = made_str(role);
    id->rank = id->local_rank = id->world_size = LP_UNKNOWN_I64;
    id->job_id = id->launcher = made_str("");
    id->python = made_str("3.11.7 (CPython)");
    id->platform = made_str("Linux-6.1-x86_64");
    id->source_commit = made_str("b2218b76c0ffee00c0ffee00c0ffee00c0ffee00");
    id->source_diff = made_str("");
    id->source_dirty = id->source_untracked = LP_UNKNOWN_I64;
    id->hardware = (lp_hardware){16, 32, 32, 64ll << 30, NULL, 0};
    worker->written_ns = MADE_START + 100 * SECOND;
    worker->elapsed_ns = 100 * SECOND;
    worker->generation = 3;
    worker->final = true;
    worker->clock = made_str("TSC 2.4 GHz");
    worker->cpu_source = made_str("rseq");
    worker->split_source = made_str("schedstat");
    worker->segment_place = made_str("shared memory");
    worker->own_cost_ps = 90000;
    worker->own_count_cost_ps = 20000;
    worker->threads = 1;
    worker->path = made_str("");
    return worker;
}

/* "a/b/c"; made with the phases above it. */
static inline uint32_t made_path(lp_worker *worker, const char *path)
{
    uint32_t at = 0;

    while (*path) {
        size_t size = strcspn(path, "/");
        if (lp_tree_child(&worker->tree, at, (lp_str){path, size}, &at) != LP_OK)
            abort();
        path += size + (path[size] == '/');
    }
    return at;
}

static inline int made_by_index(const void *a, const void *b)
{
    return (int)((const lp_cell *)a)->index - (int)((const lp_cell *)b)->index;
}

/* `count` values spread evenly over low .. high, in at most 64 steps. */
static inline lp_cells made_cells(lp_arena *arena, uint64_t count, double low, double high)
{
    enum { STEPS = 64 };
    lp_cell *cells = made_or_die(lp_arena_take(arena, STEPS * sizeof *cells));
    lp_cells made = {.at = cells};
    uint64_t steps = count < STEPS ? count : STEPS;

    for (uint64_t i = 0; i < steps; i++) {
        double value = steps > 1 ? low + (high - low) * (double)i / (double)(steps - 1) : low;
        cells[made.size++] = (lp_cell){lp_hist_cell((uint64_t)value), count / steps + (i < count % steps)};
    }
    qsort(cells, made.size, sizeof *cells, made_by_index);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < made.size; i++)
        if (kept > 0 && cells[kept - 1].index == cells[i].index)
            cells[kept - 1].count += cells[i].count;
        else
            cells[kept++] = cells[i];
    made.size = kept;
    return made;
}

/* Entries evenly spread over low .. high ns, of which `cpu` (0..1) on the CPU and `starved` (0..1) waiting for one. */
static inline lp_phase *made_entries(lp_worker *worker, const char *path, uint64_t entries, uint64_t low, uint64_t high,
                                     double cpu, double starved)
{
    uint32_t index = made_path(worker, path);
    lp_phase *phase = &worker->tree.phases[index];

    phase->entries = entries;
    phase->min_ns = low;
    phase->max_ns = high;
    phase->wall_ns = entries * ((low + high) / 2);
    phase->cpu_wall_ns = phase->wall_ns;
    phase->cpu_ns = (uint64_t)((double)phase->wall_ns * cpu);
    phase->split_wait_ns = phase->cpu_wall_ns - phase->cpu_ns;
    phase->starved_ns = (uint64_t)((double)phase->wall_ns * starved);
    phase->hist = made_cells(worker->arena, entries, (double)low, (double)high);
    return phase;
}

/* After all entries: child_ns of every phase is the wall time of its children. */
static inline void made_nesting(lp_worker *worker)
{
    for (uint32_t i = 1; i < worker->tree.count; i++)
        worker->tree.phases[i].child_ns = 0;
    for (uint32_t i = 1; i < worker->tree.count; i++) {
        uint32_t parent = worker->tree.phases[i].parent;
        if (parent > 0)
            worker->tree.phases[parent].child_ns += worker->tree.phases[i].wall_ns;
    }
    for (uint32_t i = 1; i < worker->tree.count; i++)
        if (worker->tree.phases[i].child_ns > worker->tree.phases[i].wall_ns)
            worker->tree.phases[i].child_ns = worker->tree.phases[i].wall_ns;
}

static inline void made_count(lp_worker *worker, const char *path, const char *name, uint64_t calls, int64_t low,
                              int64_t high)
{
    lp_counter *counter = NULL;

    if (lp_phase_counter(&worker->tree, made_path(worker, path), made_str(name), &counter) != LP_OK)
        abort();
    counter->calls = calls;
    counter->min = low;
    counter->max = high;
    counter->total = 0;
    counter->positive = made_cells(worker->arena, calls, (double)low, (double)high);
    if (low == high)
        counter->total = (lp_i128)low * (lp_i128)calls;
    for (uint32_t i = 0; low != high && i < counter->positive.size; i++)
        counter->total += (lp_i128)lp_hist_value(counter->positive.at[i].index) * counter->positive.at[i].count;
}

static inline void made_open(lp_worker *worker, const char *path, uint64_t open_ns, uint64_t tid)
{
    lp_open *bigger = made_or_die(lp_arena_take(worker->arena, (worker->open_count + 1) * sizeof *bigger));

    if (worker->open_count > 0)
        memcpy(bigger, worker->open, worker->open_count * sizeof *bigger);
    bigger[worker->open_count++] =
        (lp_open){made_path(worker, path), worker->written_ns - open_ns, open_ns, made_str("MainThread"), tid};
    worker->open = bigger;
}

/* The MCTS search of the README: actors and a learner that waits for them. */
static inline lp_worker *made_actor(int64_t pid, uint64_t scale)
{
    lp_worker *worker = made_worker("actor", pid % 2 ? "node07" : "node08", pid);

    made_entries(worker, "iteration", 2000, 80000 * scale, 104800 * scale, 0.99, 0.004);
    made_entries(worker, "iteration/select", 2000, 45000 * scale, 66200 * scale, 0.998, 0.001);
    made_entries(worker, "iteration/select/score_children", 6325, 3800 * scale, 5200 * scale, 1.0, 0.0);
    made_entries(worker, "iteration/select/descend", 6325, 700 * scale, 1100 * scale, 1.0, 0.0);
    made_entries(worker, "iteration/expand", 2000, 3000 * scale, 6300 * scale, 1.0, 0.0);
    made_entries(worker, "iteration/rollout", 2000, 3800 * scale, 8000 * scale, 1.0, 0.0);
    made_entries(worker, "iteration/backpropagate", 2000, 1800 * scale, 3000 * scale, 1.0, 0.0);
    made_count(worker, "iteration/select", "tree_depth", 2000, 0, 4);
    made_count(worker, "iteration/select/score_children", "children_scored", 6325, 8, 8);
    made_count(worker, "iteration/rollout", "rollout_plies", 2000, 1, 5);
    made_nesting(worker);
    return worker;
}

static inline lp_worker *made_learner(void)
{
    lp_worker *worker = made_worker("learner", "node07", 4100);

    made_entries(worker, "step", 75, 10 * MS, 20 * MS, 0.22, 0.031);
    made_entries(worker, "step/queue_get", 75, 7 * MS, 13 * MS, 0.01, 0.004);
    made_entries(worker, "step/train", 75, 2 * MS, 5 * MS, 0.93, 0.06);
    made_entries(worker, "save", 3, 19 * MS, 25 * MS, 0.4, 0.0);
    made_nesting(worker);
    return worker;
}

static inline void made_add(lp_run *run, lp_worker *worker)
{
    if (lp_run_add(run, worker, true) != LP_OK)
        abort();
}

static inline lp_run *made_finish(lp_run *run)
{
    if (lp_run_finish(run) != LP_OK)
        abort();
    return run;
}

static inline lp_run *made_mcts(void)
{
    lp_run *run = made_or_die(lp_run_new());

    for (int64_t pid = 4001; pid <= 4004; pid++)
        made_add(run, made_actor(pid, pid == 4002 ? 2 : 1));
    made_add(run, made_learner());
    return made_finish(run);
}

/* The copy pipeline of the README: one file per item against batches. */
static inline lp_run *made_copier(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("copier", "node07", 5001);

    made_entries(worker, "per_item", 1, 712 * MS, 712 * MS, 0.99, 0.0);
    made_entries(worker, "per_item/copy_one", 4000, 75000, 143100, 0.998, 0.0)->flags |= LP_PHASE_IO;
    made_entries(worker, "batched", 1, 84 * MS, 84 * MS, 0.99, 0.0);
    made_entries(worker, "batched/read_batch", 16, 2200000, 4600000, 0.99, 0.0)->flags |= LP_PHASE_IO;
    made_entries(worker, "batched/write_batch", 16, 570000, 715700, 0.99, 0.0)->flags |= LP_PHASE_IO;
    made_count(worker, "per_item", "records", 4000, 1, 1);
    made_count(worker, "batched", "records", 16, 250, 250);
    made_count(worker, "per_item/copy_one", "io_write_bytes", 4000, 4096, 4096);
    made_count(worker, "per_item/copy_one", "io_read_chars", 4000, 4224, 4224);
    made_count(worker, "per_item/copy_one", "io_write_chars", 4000, 4096, 4096);
    made_count(worker, "batched/read_batch", "io_read_chars", 16, 1024000, 1024000);
    made_count(worker, "batched/write_batch", "io_write_bytes", 16, 1024000, 1024000);
    made_nesting(worker);
    worker->written_ns = MADE_START + SECOND;
    worker->elapsed_ns = SECOND;
    made_add(run, worker);
    return made_finish(run);
}

/* A run that is going on, with everything that can be wrong with it. */
static inline lp_run *made_troubled(void)
{
    lp_run *run = made_or_die(lp_run_new());
    static const char asked[] = "trace, backend=torch";
    static lp_pair options[] = {{{"asked", 5}, {asked, sizeof asked - 1}}};

    for (int64_t pid = 214; pid <= 219; pid++) {
        lp_worker *worker = made_actor(pid, 1000);
        worker->final = false;
        worker->living = pid < 218;
        worker->written_ns = MADE_START + 3600 * SECOND;
        worker->elapsed_ns = 3600 * SECOND;
        if (pid == 218) {
            worker->unclean = true;
            worker->written_ns -= 3000 * SECOND;
            worker->elapsed_ns -= 3000 * SECOND;
        }
        if (pid == 219)
            worker->written_ns -= 1000 * SECOND;
        made_open(worker, "iteration", 161 * SECOND, 1);
        made_open(worker, pid < 217 ? "iteration/queue_get" : "iteration/expand", pid < 217 ? 160 * SECOND : 3 * MS, 1);
        made_add(run, worker);
    }
    lp_worker *worker = made_worker("loader", "node09", 77);
    made_entries(worker, "fetch", 100000, 200, 600, 0.9, 0.08);
    made_entries(worker, "decode", 6300000, 5000, 15000, 0.95, 0.02)->flags |= LP_PHASE_SAMPLED;
    worker->tree.phases[made_path(worker, "decode")].stride = 100;
    made_entries(worker, "upload", 500, 20000, 60000, 0.5, 0.0)->flags |= LP_PHASE_ASYNC;
    worker->tree.phases[made_path(worker, "upload")].async_entries = 500;
    worker->tree.phases[made_path(worker, "upload")].errors = 12;
    worker->tree.phases[made_path(worker, "upload")].abandoned = 1;
    made_entries(worker, "walk", 40, MS, 2 * MS, 1.0, 0.0);
    made_entries(worker, "walk/walk", 40, MS / 2, MS, 1.0, 0.0);
    made_count(worker, "", "retries", 12, 1, 3);
    made_nesting(worker);
    worker->id.options = options;
    worker->id.option_count = 1;
    worker->id.rank = 3;
    worker->segment_place = made_str("private memory");
    worker->cpu_source = made_str("system call");
    worker->split_source = made_str("");
    worker->written_ns = MADE_START + 3600 * SECOND;
    worker->elapsed_ns = 3600 * SECOND;
    worker->health.write_failures = 3;
    worker->health.last_error = made_str("/scratch/run/workers: No space left on device");
    worker->health.folded_paths = 37;
    worker->health.first_folded = made_str("episode_4096");
    worker->health.misuse = 2;
    made_add(run, worker);
    lp_worker *old = made_actor(99, 1);
    old->id.run_id = made_str("20260920T101500-9caa21");
    old->id.started_ns = old->id.run_started_ns = MADE_START - 24 * 3600 * SECOND;
    if (lp_run_add_superseded(run, old, true) != LP_OK ||
        lp_run_add_unreadable(run, "profile/workers/node07/w_20260921T155320-471c94_215_deadbee2.3.snap",
                              "damaged: checksum is wrong (byte 4711)") != LP_OK)
        abort();
    return made_finish(run);
}

/* A literal with its size: it may hold NUL. */
#define MADE(text) {text, sizeof text - 1}

/* Names that try everything. */
static inline lp_run *made_hostile(void)
{
    lp_run *run = made_or_die(lp_run_new());
    static const lp_str names[] = {
        MADE("two\nlines"),
        MADE("\x1b[31mred\x1b[0m\a"),
        MADE("nul\0byte"),
        MADE("</script><script>alert(1)</script>"),
        MADE("\xe2\x80\xaetfel ot thgir"),                                                            /* U+202E */
        MADE("\xe6\xbc\xa2\xe5\xad\x97\xe3\x81\xae\xe3\x83\x95\xe3\x82\xa7\xe3\x83\xbc\xe3\x82\xba"), /* wide */
        MADE("cafe\xcc\x81 e\xcc\x81\xcc\x82\xcc\x83\xcc\x84\xcc\x85"), /* combining, too many */
        MADE("\xed\xb3\xbf surrogate"),                                 /* U+DCFF alone */
        MADE("\xff\xfe not utf-8"),
        MADE(""),
        MADE("with/slash"),
        MADE("\xf0\x9f\x94\xa5 fire"),
        MADE("tab\there"),
        MADE("quote\" back\\slash & <b>"),
        MADE("an_extremely_long_phase_name_that_goes_on_and_on_until_no_terminal_on_earth_could_show_all_of_it_in_one_"
             "line"),
    };
    lp_worker *worker = made_worker("rol\x1b[2Je\n", "ho\nst", 1);

    made_entries(worker, "outer", 10, 100 * MS, 300 * MS, 0.5, 0.1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint32_t index = 0;
        if (lp_tree_child(&worker->tree, made_path(worker, "outer"), names[i], &index) != LP_OK)
            abort();
        lp_phase *phase = &worker->tree.phases[index];
        phase->entries = 10 + i;
        phase->min_ns = phase->max_ns = MS * (i + 1);
        phase->wall_ns = phase->entries * phase->max_ns;
        phase->hist = made_cells(worker->arena, phase->entries, (double)phase->min_ns, (double)phase->max_ns);
        lp_counter *counter = NULL;
        if (lp_phase_counter(&worker->tree, index, names[i], &counter) != LP_OK)
            abort();
        counter->calls = 1;
        counter->total = counter->min = counter->max = INT64_MIN + (int64_t)i;
        counter->negative = made_cells(worker->arena, 1, 9e18, 9e18);
    }
    made_nesting(worker);
    worker->id.python = made_str("3\n");
    worker->clock = made_str("TSC \x1b[0m");
    worker->health.write_failures = 1;
    worker->health.last_error =
        made_str("/a/path/without/any/space/in/it/that/is/far/longer/than/the/page/is/wide/and/goes/on/and/on/and/on");
    made_add(run, worker);
    if (lp_run_add_unreadable(run, "dir/evil\x1b]0;title\a.snap", "damaged\nreally") != LP_OK)
        abort();
    return made_finish(run);
}

/* No branching: main / step / inner. */
static inline lp_run *made_chain(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "node07", 11);

    made_entries(worker, "main", 1, 10 * SECOND, 10 * SECOND, 0.9, 0.0);
    made_entries(worker, "main/step", 100, 80 * MS, 100 * MS, 0.9, 0.0);
    made_entries(worker, "main/step/inner", 100, 40 * MS, 60 * MS, 0.9, 0.0);
    made_nesting(worker);
    worker->id.options = NULL;
    made_add(run, worker);
    return made_finish(run);
}

/* 40 phases below one. */
static inline lp_run *made_many(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "node07", 12);
    char path[64];

    made_entries(worker, "loop", 50, SECOND, 2 * SECOND, 0.9, 0.0);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "loop/part_%c%c", 'a' + (int)(i / 26), 'a' + (int)(i % 26));
        made_entries(worker, path, 50, (41 - i) * MS, (42 - i) * MS, 0.9, 0.0);
    }
    made_nesting(worker);
    made_add(run, worker);
    return made_finish(run);
}

/* Names as long as a cluster gives them, and figures that need all the room there is. */
static inline lp_run *made_wide(void)
{
    static const char *const hosts[] = {"ip-10-0-12-34.eu-central-1.compute", "gpu-node-0007.cluster.example.org",
                                        "a-host-whose-name-is-longer-than-any-line-of-a-report-is-ever-shown-wide.org"};
    static const char *const roles[] = {"a_rather_long_name_of_a_role", "another_long_name_of_a_role",
                                        "the_longest_name_of_any_role_here"};
    lp_run *run = made_or_die(lp_run_new());
    char path[64];

    for (unsigned i = 0; i < 9; i++) {
        lp_worker *worker = made_worker(roles[i / 3], hosts[i / 3], 4194303 - (int64_t)i);
        worker->id.hardware = (lp_hardware){128, 256, 128, 2ll << 40, NULL, 0};
        made_entries(worker, "iteration", 1000, MS, 2 * MS, 0.5, 0.1)->flags |= LP_PHASE_OVERLAP;
        for (unsigned k = 0; k < 10; k++) {
            snprintf(path, sizeof path, "iteration/a_phase_of_number_%u", k);
            lp_phase *phase = made_entries(worker, path, 2000000000, 20 * MS, 40 * MS, 0.5, 0.1);
            phase->flags |= LP_PHASE_SAMPLED | LP_PHASE_ASYNC | LP_PHASE_IO | LP_PHASE_OVERLAP | LP_PHASE_IO_OVERLAP;
            phase->stride = 7;
            phase->errors = phase->abandoned = phase->async_entries = 1000000;
            made_count(worker, path, "at", 5, 1700000000000000000, INT64_MAX);
            made_count(worker, path, "bytes", 7, 0, 999999999999);
        }
        made_open(worker, "iteration", 3600 * SECOND, 1);
        made_open(worker, "iteration/a_phase_of_number_1", 1800 * SECOND, 1);
        worker->final = i < 6;
        worker->living = i >= 7;
        made_add(run, worker);
    }
    return made_finish(run);
}

static inline lp_run *made_empty(void)
{
    lp_run *run = made_or_die(lp_run_new());

    run->directory = made_str("profile");
    return made_finish(run);
}

typedef struct made_run {
    const char *name;
    lp_run *(*make)(void);
} made_run;
static const made_run made_runs[] = {{"mcts", made_mcts},       {"copier", made_copier}, {"troubled", made_troubled},
                                     {"hostile", made_hostile}, {"chain", made_chain},   {"many", made_many},
                                     {"wide", made_wide},       {"empty", made_empty}};
#define MADE_RUN_COUNT (sizeof made_runs / sizeof *made_runs)

#endif
