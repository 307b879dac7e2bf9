/* A worker with every field set, for the tests of files. */
#ifndef LP_TESTS_WORKER_BUILDER_H
#define LP_TESTS_WORKER_BUILDER_H

#include <stdlib.h>
#include <string.h>

#include "core/hist.h"
#include "store/arena.h"
#include "store/snapshot.h"

static inline lp_str worker_str(const char *text)
{
    return (lp_str){text, strlen(text)};
}

static inline void worker_entry(lp_worker *w, uint32_t phase, uint64_t ns)
{
    lp_phase *p = &w->tree.phases[phase];
    lp_cell cell = {lp_hist_cell(ns), 1};
    lp_cells one = {.at = &cell, .size = 1};
    lp_cells_merge(w->arena, &p->hist, &one);
    if (p->entries == 0 || ns < p->min_ns)
        p->min_ns = ns;
    if (p->entries == 0 || ns > p->max_ns)
        p->max_ns = ns;
    p->entries++;
    p->wall_ns += ns;
    p->cpu_wall_ns += ns;
    p->cpu_ns += ns / 2;
    p->split_wait_ns += ns / 4;
    p->starved_ns += ns / 8;
}

static inline void worker_count(lp_worker *w, uint32_t phase, const char *name, lp_i128 total, int64_t amount)
{
    lp_counter *c;
    lp_cell cell = {lp_hist_cell(amount < 0 ? 0 - (uint64_t)amount : (uint64_t)amount), 1};
    lp_cells one = {.at = &cell, .size = 1};
    lp_phase_counter(&w->tree, phase, worker_str(name), &c);
    lp_cells_merge(w->arena, amount < 0 ? &c->negative : &c->positive, &one);
    if (c->calls == 0 || amount < c->min)
        c->min = amount;
    if (c->calls == 0 || amount > c->max)
        c->max = amount;
    c->calls++;
    c->total = total;
}

/* Paths: iteration, iteration/expand, iteration/expand/<surrogate, NUL, newline>, save (open, no entry). */
static inline lp_worker *build_worker(void)
{
    static lp_str argv[] = {{"prog.py", 7}, {"", 0}, {"--lr=1e-3\n", 10}};
    static lp_pair extra[] = {{{"commit", 6}, {"\"abc\"", 5}}, {{"n", 1}, {"3", 1}}};
    static lp_pair options[] = {{{"measure_cpu", 11}, {"0", 1}}};
    static lp_gpu_info gpus[] = {{0, {"NVIDIA H200", 11}, 150754820096}, {1, {"other", 5}, LP_UNKNOWN_I64}};
    lp_worker *w = lp_worker_new();
    lp_open *open = lp_arena_take(w->arena, 2 * sizeof *open); /* several threads may build */
    uint32_t iteration, expand, odd, save;

    w->id.host = worker_str("node07");
    w->id.boot_id = worker_str("5a2bd0a3-7a71-4b39-a0c3-0f5ff1c1e3d1");
    w->id.uuid = worker_str("0123456789abcdef0123456789abcdef");
    w->id.pid = 1542;
    w->id.pid_start = 987654;
    w->id.started_ns = 1790000000123456789u;
    w->id.run_id = worker_str("20260813T224100-471c94");
    w->id.role = worker_str("actor");
    w->id.run_started_ns = 1790000000000000000u;
    w->id.rank = 0;
    w->id.local_rank = LP_UNKNOWN_I64;
    w->id.world_size = 8;
    w->id.job_id = worker_str("4711");
    w->id.launcher = worker_str("slurm");
    w->id.run_dir_dev = 2049;
    w->id.run_dir_ino = 123456;
    w->id.pid_ns = 4026531836;
    w->id.mnt_ns = 4026531840;
    w->id.argv = argv;
    w->id.argv_count = 3;
    w->id.python = worker_str("3.11.7 (CPython)");
    w->id.platform = worker_str("Linux-6.1.0-x86_64");
    w->id.source_commit = worker_str("b2218b76c0ffee00b2218b76c0ffee00b2218b76");
    w->id.source_dirty = 5;
    w->id.source_diff = worker_str("97d29e");
    w->id.source_extra = extra;
    w->id.source_extra_count = 2;
    w->id.hardware = (lp_hardware){.cpu_cores = 32,
                                   .cpu_threads = 64,
                                   .cpu_affinity = 16,
                                   .ram_total = LP_UNKNOWN_I64,
                                   .gpus = gpus,
                                   .gpu_count = 2};
    w->id.options = options;
    w->id.option_count = 1;

    lp_tree_child(&w->tree, 0, worker_str("iteration"), &iteration);
    lp_tree_child(&w->tree, iteration, worker_str("expand"), &expand);
    lp_tree_child(&w->tree, expand, (lp_str){"\xed\xb3\xbf\0</script>\n", 13}, &odd);
    lp_tree_child(&w->tree, 0, worker_str("save"), &save);
    for (uint64_t i = 1; i <= 40; i++) {
        worker_entry(w, iteration, 1000000 * i);
        worker_entry(w, expand, 1000 * i * i);
    }
    worker_entry(w, odd, 7);
    w->tree.phases[iteration].child_ns = w->tree.phases[expand].wall_ns;
    w->tree.phases[iteration].errors = 2;
    w->tree.phases[iteration].abandoned = 1;
    w->tree.phases[expand].async_entries = 40;
    w->tree.phases[expand].io_missing = 3;
    w->tree.phases[expand].flags = LP_PHASE_ASYNC | LP_PHASE_SAMPLED;
    w->tree.phases[expand].stride = 4;
    w->tree.phases[0].child_ns = w->tree.phases[iteration].wall_ns;
    worker_count(w, 0, "at the root", 17, 17);
    for (int i = 0; i < 5; i++)
        worker_count(w, expand, "moves", i - 100, i - 3);
    worker_count(w, expand, "wide", -((lp_i128)1 << 100) - 5, INT64_MIN);
    worker_count(w, expand, "wider", ((lp_i128)1 << 90) + 7, INT64_MAX);

    open[0] = (lp_open){save, 1790000005000000000u, 250000000, {"MainThread", 10}, 1542};
    open[1] = (lp_open){expand, 1790000005200000000u, 50000000, {"", 0}, 1600};
    w->open = open;
    w->open_count = 2;
    w->health = (lp_health){1, 2, 3, 4, 5, 6, 7, 8, {"a/b/c", 5}, {"cannot write: No space left", 27}};
    w->written_ns = 1790000005250000000u;
    w->elapsed_ns = 5126543211;
    w->generation = 300;
    w->final = true;
    w->clock = worker_str("TSC 2.40 GHz");
    w->cpu_source = worker_str("rseq");
    w->split_source = worker_str("schedstat");
    w->segment_place = worker_str("shared memory");
    w->own_cost_ps = 61500;
    w->own_count_cost_ps = 17000;
    w->threads = 3;
    return w;
}

#endif
