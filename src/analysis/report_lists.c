/* The open phases of a report, and everything that stands under CAVEATS. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/report_internal.h"
#include "analysis/tree_math.h"
#include "store/arena.h"

typedef struct open_record {
    uint32_t role, phase, worker;
    lp_life life;
    uint64_t open_ns;
} open_record;

static int by_group(const void *a, const void *b)
{
    const open_record *x = a, *y = b;

    if (x->role != y->role)
        return x->role < y->role ? -1 : 1;
    if (x->life != y->life)
        return x->life < y->life ? -1 : 1;
    if (x->phase != y->phase)
        return x->phase < y->phase ? -1 : 1;
    if (x->open_ns != y->open_ns)
        return x->open_ns > y->open_ns ? -1 : 1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

static bool same_group(const open_record *a, const open_record *b)
{
    return a->role == b->role && a->life == b->life && a->phase == b->phase;
}

static int by_role_longest(const void *a, const void *b)
{
    const lp_report_open *x = a, *y = b;

    if (x->role != y->role)
        return x->role < y->role ? -1 : 1;
    if (x->life != y->life)
        return x->life < y->life ? -1 : 1;
    if (x->longest_ns != y->longest_ns)
        return x->longest_ns > y->longest_ns ? -1 : 1;
    return (x->phase > y->phase) - (x->phase < y->phase);
}

/* *records is owned by the caller. Only innermost phases: those around them are open because these are. */
static lp_status collect_open(const lp_report *report, open_record **records, size_t *count)
{
    const lp_run *run = report->run;
    size_t total = 0, size = 0;

    for (uint32_t w = 0; w < run->worker_count; w++)
        total += run->workers[w].open_count;
    open_record *list = malloc((total + 1) * sizeof *list);
    if (!list)
        return LP_E_MEMORY;
    for (uint32_t w = 0; w < run->worker_count; w++) {
        const lp_run_worker *worker = &run->workers[w];
        const lp_tree *tree = &run->roles[worker->role_index].tree;
        for (uint32_t o = 0; o < worker->open_count; o++) {
            const lp_run_open *open = &worker->open[o];
            uint32_t at = 0;
            if (!open->inner)
                continue;
            for (uint32_t d = 0; d < open->depth && at != UINT32_MAX; d++)
                at = lp_tree_find(tree, at, open->path[d]);
            if (at != UINT32_MAX && at > 0)
                list[size++] = (open_record){worker->role_index, at - 1, w, worker->life, open->open_ns};
        }
    }
    if (size > 1)
        qsort(list, size, sizeof *list, by_group);
    *records = list;
    *count = size;
    return LP_OK;
}

static lp_status list_open(lp_report *report)
{
    open_record *records = NULL;
    size_t count = 0;

    lp_status status = collect_open(report, &records, &count);
    if (status != LP_OK)
        return status;
    uint32_t *seen = calloc(report->run->worker_count + 1ul, sizeof *seen);
    uint32_t *workers = lp_arena_take(report->arena, (count + 1) * sizeof *workers);
    report->open = lp_arena_take(report->arena, (count + 1) * sizeof *report->open);
    if (!seen || !workers || !report->open) {
        free(records);
        free(seen);
        return LP_E_MEMORY;
    }
    for (size_t start = 0, end; start < count; start = end) {
        lp_report_open *row = &report->open[report->open_count++];
        *row = (lp_report_open){.role = records[start].role,
                                .phase = records[start].phase,
                                .life = records[start].life,
                                .longest_ns = records[start].open_ns,
                                .workers = workers};
        for (end = start; end < count && same_group(&records[start], &records[end]); end++) {
            row->entries++;
            if (seen[records[end].worker] == report->open_count)
                continue;
            seen[records[end].worker] = report->open_count;
            row->workers[row->worker_count++] = records[end].worker;
        }
        workers += row->worker_count;
    }
    if (report->open_count > 1)
        qsort(report->open, report->open_count, sizeof *report->open, by_role_longest);
    free(records);
    free(seen);
    return LP_OK;
}

typedef bool (*worker_test)(const lp_run_worker *worker);

static bool is_stale(const lp_run_worker *worker)
{
    return worker->stale;
}
static bool has_died(const lp_run_worker *worker)
{
    return worker->life == LP_LIFE_DIED;
}
static bool has_died_inside(const lp_run_worker *worker)
{
    return has_died(worker) && worker->open_count > 0;
}

/* os._exit(0) is how multiprocessing ends its children, and exec is no death. */
static bool has_died_outside(const lp_run_worker *worker)
{
    return has_died(worker) && worker->open_count == 0 && worker->end.code != LP_UNKNOWN_I64 && worker->end.code != 0;
}

static bool has_failed_writes(const lp_run_worker *worker)
{
    return worker->health.write_failures > 0;
}
static bool has_no_cpu(const lp_run_worker *worker)
{
    return !worker->measure_cpu;
}

static bool is_private(const lp_run_worker *worker)
{
    return worker->segment_place.size == strlen("private memory") &&
           memcmp(worker->segment_place.data, "private memory", worker->segment_place.size) == 0;
}

static lp_status list_workers(lp_report *report, worker_test test, uint32_t **list, uint32_t *count)
{
    const lp_run *run = report->run;
    uint32_t found = 0;

    for (uint32_t i = 0; i < run->worker_count; i++)
        found += test(&run->workers[i]);
    *list = lp_arena_take(report->arena, (found + 1ul) * sizeof **list);
    if (!*list)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < run->worker_count; i++)
        if (test(&run->workers[i]))
            (*list)[(*count)++] = i;
    return LP_OK;
}

static lp_status list_all_workers(lp_report *report)
{
    const struct {
        worker_test test;
        uint32_t **list, *count;
    } lists[] = {
        {is_stale, &report->stale, &report->stale_count},
        {has_died, &report->unclean, &report->unclean_count},
        {has_died_inside, &report->died_inside, &report->died_inside_count},
        {has_died_outside, &report->died_outside, &report->died_outside_count},
        {has_failed_writes, &report->failed_writes, &report->failed_write_count},
        {is_private, &report->private_memory, &report->private_memory_count},
        {has_no_cpu, &report->no_cpu, &report->no_cpu_count},
    };

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        lp_status status = list_workers(report, lists[i].test, lists[i].list, lists[i].count);
        if (status != LP_OK)
            return status;
    }
    for (uint32_t i = 0; i < report->run->worker_count; i++) {
        uint32_t *const lives[] = {[LP_LIFE_CLOSED] = &report->closed,
                                   [LP_LIFE_RUNNING] = &report->running,
                                   [LP_LIFE_DIED] = &report->died,
                                   [LP_LIFE_LAST_SEEN] = &report->last_seen};
        ++*lives[report->run->workers[i].life];
    }
    return LP_OK;
}

static void sum_health(lp_report *report)
{
    lp_health *sum = &report->health;

    sum->first_folded = sum->last_error = (lp_str){"", 0};
    for (uint32_t i = 0; i < report->run->worker_count; i++) {
        const lp_health *one = &report->run->workers[i].health;
        sum->folded_paths = lp__add_u64(sum->folded_paths, one->folded_paths);
        sum->folded_depth = lp__add_u64(sum->folded_depth, one->folded_depth);
        sum->lost_entries = lp__add_u64(sum->lost_entries, one->lost_entries);
        sum->misuse = lp__add_u64(sum->misuse, one->misuse);
        sum->write_failures = lp__add_u64(sum->write_failures, one->write_failures);
        sum->callback_failures = lp__add_u64(sum->callback_failures, one->callback_failures);
        sum->foreign_exits = lp__add_u64(sum->foreign_exits, one->foreign_exits);
        sum->clock_backwards = lp__add_u64(sum->clock_backwards, one->clock_backwards);
        if (sum->first_folded.size == 0)
            sum->first_folded = one->first_folded;
        if (sum->last_error.size == 0)
            sum->last_error = one->last_error;
    }
}

typedef bool (*phase_test)(const lp_report_phase *phase);

static bool nests_itself(const lp_report_phase *phase)
{
    return phase->self_nested;
}
static bool overlaps(const lp_report_phase *phase)
{
    return phase->flags & LP_PHASE_OVERLAP;
}
/* For more than a tenth of its time, since entries were in tasks that the thread left meanwhile, or ended elsewhere. */
static bool hides_cpu(const lp_report_phase *phase)
{
    return !phase->synthetic && lp__sub_u64(phase->wall_ns, phase->cpu_wall_ns) > phase->wall_ns / 10;
}
static bool overlaps_io(const lp_report_phase *phase)
{
    return phase->flags & LP_PHASE_IO_OVERLAP;
}
static bool misses_io(const lp_report_phase *phase)
{
    return phase->io_missing > 0;
}
static bool is_untrusted(const lp_report_phase *phase)
{
    return phase->untrusted;
}
static bool is_sampled(const lp_report_phase *phase)
{
    return phase->stride > 1;
}
static bool is_async(const lp_report_phase *phase)
{
    return phase->async_entries > 0 || phase->flags & LP_PHASE_ASYNC;
}

static lp_status list_phases(lp_report *report, phase_test test, lp_report_path **list, uint32_t *count)
{
    uint32_t found = 0;

    for (uint32_t r = 0; r < report->role_count; r++)
        for (uint32_t p = 0; p < report->roles[r].phase_count; p++)
            found += test(&report->roles[r].phases[p]);
    *list = lp_arena_take(report->arena, (found + 1ul) * sizeof **list);
    if (!*list)
        return LP_E_MEMORY;
    for (uint32_t r = 0; r < report->role_count; r++)
        for (uint32_t p = 0; p < report->roles[r].phase_count; p++)
            if (test(&report->roles[r].phases[p]))
                (*list)[(*count)++] = (lp_report_path){r, p};
    return LP_OK;
}

static lp_status list_all_phases(lp_report *report)
{
    const struct {
        phase_test test;
        lp_report_path **list;
        uint32_t *count;
    } lists[] = {
        {nests_itself, &report->self_nested, &report->self_nested_count},
        {overlaps, &report->overlapping, &report->overlapping_count},
        {hides_cpu, &report->cpu_unknown, &report->cpu_unknown_count},
        {overlaps_io, &report->io_overlap, &report->io_overlap_count},
        {misses_io, &report->io_missing, &report->io_missing_count},
        {is_untrusted, &report->untrusted, &report->untrusted_count},
        {is_sampled, &report->sampled, &report->sampled_count},
        {is_async, &report->async_, &report->async_count},
    };

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        lp_status status = list_phases(report, lists[i].test, lists[i].list, lists[i].count);
        if (status != LP_OK)
            return status;
    }
    return LP_OK;
}

static lp_status count_option(lp_report *report, lp_str option)
{
    for (uint32_t i = 0; i < report->asked_count; i++)
        if (lp__str_equal(report->asked[i].option, option)) {
            report->asked[i].workers++;
            return LP_OK;
        }
    lp_report_asked *list = lp_arena_grow(report->arena, report->asked, report->asked_count, sizeof *list);
    if (!list)
        return LP_E_MEMORY;
    report->asked = list;
    report->asked[report->asked_count++] = (lp_report_asked){option, 1};
    return LP_OK;
}

/* "asked" holds names separated by commas. */
static lp_status list_asked(lp_report *report)
{
    for (uint32_t i = 0; i < report->run->worker_count; i++) {
        lp_str text = report->run->workers[i].asked;
        size_t start = 0;
        for (size_t at = 0; at <= text.size; at++) {
            if (at < text.size && text.data[at] != ',')
                continue;
            size_t end = at;
            while (start < end && text.data[start] == ' ')
                start++;
            while (end > start && text.data[end - 1] == ' ')
                end--;
            if (end > start) {
                lp_status status = count_option(report, (lp_str){text.data + start, end - start});
                if (status != LP_OK)
                    return status;
            }
            start = at + 1;
        }
    }
    return LP_OK;
}

static int by_workers(const void *a, const void *b)
{
    const lp_report_source *x = a, *y = b;

    if (x->workers != y->workers)
        return x->workers > y->workers ? -1 : 1;
    int order = lp__str_compare(x->clock, y->clock);
    return order ? order : lp__str_compare(x->cpu_source, y->cpu_source);
}

static lp_status list_sources(lp_report *report)
{
    const lp_run *run = report->run;
    lp_report_source *list = calloc(run->worker_count + 1ul, sizeof *list);
    uint32_t count = 0;

    if (!list)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < run->worker_count; i++) {
        const lp_run_worker *worker = &run->workers[i];
        uint32_t at = 0;
        while (at < count && !(lp__str_equal(list[at].clock, worker->clock) &&
                               lp__str_equal(list[at].cpu_source, worker->cpu_source) &&
                               lp__str_equal(list[at].split_source, worker->split_source)))
            at++;
        if (at == count)
            list[count++] = (lp_report_source){worker->clock, worker->cpu_source, worker->split_source, 0};
        list[at].workers++;
    }
    if (count > 1)
        qsort(list, count, sizeof *list, by_workers);
    report->sources = lp_arena_take(report->arena, (count + 1ul) * sizeof *list);
    if (report->sources && count > 0)
        memcpy(report->sources, list, count * sizeof *list);
    report->source_count = count;
    free(list);
    return report->sources ? LP_OK : LP_E_MEMORY;
}

/* run->hosts are ordered by name, and hold every host of a worker. */
static lp_status list_hosts(lp_report *report)
{
    const lp_run *run = report->run;

    report->as_written = lp_arena_take(report->arena, (run->host_count + 1ul) * sizeof *report->as_written);
    if (!report->as_written)
        return LP_E_MEMORY;
    for (uint32_t h = 0; report->last_seen > 0 && h < run->host_count; h++) {
        lp_report_host *host = &report->as_written[report->as_written_count];
        *host = (lp_report_host){.name = run->hosts[h].name, .oldest_ns = UINT64_MAX};
        for (uint32_t i = 0; i < run->worker_count; i++) {
            const lp_run_worker *worker = &run->workers[i];
            if (worker->life != LP_LIFE_LAST_SEEN || !lp__str_equal(worker->host, host->name))
                continue;
            host->workers++;
            host->oldest_ns = worker->written_ns < host->oldest_ns ? worker->written_ns : host->oldest_ns;
            host->newest_ns = worker->written_ns > host->newest_ns ? worker->written_ns : host->newest_ns;
        }
        report->as_written_count += host->workers > 0;
    }
    return LP_OK;
}

/* All workers of a host have them from one collector: what is the same step is equal. */
static lp_status list_steps(lp_report *report)
{
    const lp_run *run = report->run;
    size_t most = 0;

    for (uint32_t i = 0; i < run->worker_count; i++)
        most += run->workers[i].step_count;
    report->steps = lp_arena_take(report->arena, (most + 1) * sizeof *report->steps);
    if (!report->steps)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < run->worker_count; i++) {
        const lp_run_worker *worker = &run->workers[i];
        for (uint32_t k = 0; k < worker->step_count; k++) {
            const lp_clock_step *step = &worker->steps[k];
            uint32_t at = 0;
            while (at < report->step_count &&
                   !(report->steps[at].step.mono_ns == step->mono_ns && report->steps[at].step.by_ns == step->by_ns &&
                     lp__str_equal(report->steps[at].host, worker->host)))
                at++;
            if (at == report->step_count)
                report->steps[report->step_count++] = (lp_report_step){worker->host, *step, 0};
            report->steps[at].workers++;
        }
    }
    return LP_OK;
}

static lp_status list_attempts(lp_report *report)
{
    const lp_run *run = report->run;
    uint32_t count = 0;

    report->attempts = lp_arena_take(report->arena, (run->superseded_count + 1ul) * sizeof *report->attempts);
    if (!report->attempts)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < run->superseded_count; i++) {
        uint32_t at = 0;
        while (at < count && !lp__str_equal(report->attempts[at].run_id, run->superseded[i].run_id))
            at++;
        if (at == count)
            report->attempts[count++] = (lp_report_attempt){run->superseded[i].run_id, 0};
        report->attempts[at].workers++;
        if (lp__add_u64(run->superseded[i].started_ns, run->superseded[i].elapsed_ns) > run->started_ns)
            report->attempts_at_once = true;
    }
    report->attempt_count = count;
    return LP_OK;
}

lp_status lp__report_lists(lp_report *report)
{
    lp_status (*const steps[])(lp_report *) = {list_open,    list_all_workers, list_all_phases, list_asked,
                                               list_sources, list_attempts,    list_hosts,      list_steps};

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        lp_status status = steps[i](report);
        if (status != LP_OK)
            return status;
    }
    sum_health(report);
    return LP_OK;
}
