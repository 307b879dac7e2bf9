/* Deriving a report from a run, role by role: phases, counters, breakdown. The lists under CAVEATS and the open phases
 * are made in report_lists.c. */
#include "analysis/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/report_internal.h"
#include "analysis/tree_math.h"
#include "core/hist.h"
#include "store/arena.h"

static double ratio(double part, double whole)
{
    return whole > 0.0 ? part / whole : (double)NAN;
}

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* The last cell has no end: what lies in it is known to be the extreme one if it is alone, else not. */
static double amount_in(const lp_cell *cell, int64_t extreme, bool negative)
{
    if (cell->index == LP_HIST_CELLS - 1)
        return cell->count == 1 ? (double)extreme : (double)NAN;
    return negative ? -lp_hist_value(cell->index) : lp_hist_value(cell->index);
}

/* The amount at rank `rank` (1 = the smallest) of a counter whose negative amounts are kept by magnitude. NaN: beyond what the
 * histogram tells apart. */
static double amount_at(const lp_counter *counter, uint64_t rank)
{
    uint64_t negatives = lp_cells_total(&counter->negative), seen = 0;

    if (rank <= negatives) {
        uint64_t from_smallest = negatives - rank + 1; /* -9 comes before -1 */
        for (uint32_t i = 0; i < counter->negative.size; i++) {
            seen += counter->negative.at[i].count;
            if (seen >= from_smallest)
                return amount_in(&counter->negative.at[i], counter->min, true);
        }
    }
    seen = negatives;
    for (uint32_t i = 0; i < counter->positive.size; i++) {
        seen += counter->positive.at[i].count;
        if (seen >= rank)
            return amount_in(&counter->positive.at[i], counter->max, false);
    }
    return (double)counter->max;
}

static double amount_quantile(const lp_counter *counter, double q)
{
    uint64_t total = lp_cells_total(&counter->negative) + lp_cells_total(&counter->positive);

    if (counter->calls == 0 || total == 0)
        return (double)NAN;
    double exact = ceil(q * (double)total);
    uint64_t rank = exact < 1.0 ? 1 : exact >= (double)total ? total : (uint64_t)exact;
    return clamp(amount_at(counter, rank), (double)counter->min, (double)counter->max);
}

static void derive_counter(const lp_counter *from, double wall_ns, lp_report_counter *to)
{
    double total = (double)from->total;

    to->name = from->name;
    to->calls = from->calls;
    to->total = from->total;
    to->min = from->min;
    to->max = from->max;
    to->p50 = amount_quantile(from, 0.50);
    to->p95 = amount_quantile(from, 0.95);
    to->rate_per_s = wall_ns > 0.0 ? total / (wall_ns / 1e9) : (double)NAN;
    to->ns_each = wall_ns > 0.0 && total > 0.0 ? wall_ns / total : (double)NAN;
}

static bool name_is(lp_str name, const char *text)
{
    return name.size == strlen(text) && memcmp(name.data, text, name.size) == 0;
}

static const char *const io_names[] = {"io_read_bytes", "io_write_bytes", "io_read_chars", "io_write_chars"};

static uint64_t *io_slot(lp_report_io *io, size_t index)
{
    uint64_t *const slots[] = {&io->read_bytes, &io->write_bytes, &io->read_chars, &io->write_chars};

    return slots[index];
}

static bool is_io_counter(lp_str name)
{
    for (size_t i = 0; i < sizeof io_names / sizeof *io_names; i++)
        if (name_is(name, io_names[i]))
            return true;
    return false;
}

static void derive_io(const lp_phase *from, lp_report_io *io)
{
    io->known = from->entries > from->io_missing;
    for (uint32_t c = 0; c < from->counter_count; c++)
        for (size_t i = 0; i < sizeof io_names / sizeof *io_names; i++)
            if (name_is(from->counters[c].name, io_names[i]) && from->counters[c].total > 0) {
                lp_i128 total = from->counters[c].total;
                *io_slot(io, i) = total > (lp_i128)UINT64_MAX ? UINT64_MAX : (uint64_t)total;
                io->known = true;
            }
    io->cached_read_bytes = lp__sub_u64(io->read_chars, io->read_bytes);
    io->rate = from->wall_ns > 0 ? ((double)io->read_bytes + (double)io->write_bytes) / ((double)from->wall_ns / 1e9)
                                 : (double)NAN;
}

static lp_status derive_counters(lp_arena *arena, const lp_phase *from, lp_report_phase *to)
{
    /* Counts of open entries are in, so their time must be too, or a running phase would look faster than it is. */
    double wall = to->synthetic ? 0.0 : (double)lp__add_u64(to->wall_ns, to->open_ns);

    to->all_counters = lp_arena_take(arena, (from->counter_count + 1u) * sizeof *to->all_counters);
    to->counters = lp_arena_take(arena, (from->counter_count + 1u) * sizeof *to->counters);
    if (!to->all_counters || !to->counters)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < from->counter_count; i++) {
        lp_report_counter *counter = &to->all_counters[to->all_counter_count++];
        derive_counter(&from->counters[i], wall, counter);
        if (!(from->flags & LP_PHASE_IO) || !is_io_counter(counter->name))
            to->counters[to->counter_count++] = *counter;
    }
    return LP_OK;
}

static void derive_waits(const lp_phase *from, lp_report_phase *to)
{
    double base = (double)from->cpu_wall_ns;

    to->cpu_ns = from->cpu_ns;
    to->cpu_wall_ns = from->cpu_wall_ns;
    to->wait_ns = lp__sub_u64(from->cpu_wall_ns, from->cpu_ns);
    to->split_wait_ns = from->split_wait_ns < to->wait_ns ? from->split_wait_ns : to->wait_ns;
    to->starved_ns = from->starved_ns < to->split_wait_ns ? from->starved_ns : to->split_wait_ns;
    to->blocked_ns = to->split_wait_ns - to->starved_ns;
    to->wait = ratio((double)to->wait_ns, base);
    to->blocked = to->starved = to->unsplit = (double)NAN;
    if (base > 0.0 && (to->split_wait_ns > 0 || to->wait_ns == 0)) {
        to->blocked = (double)to->blocked_ns / base;
        to->starved = (double)to->starved_ns / base;
        to->unsplit = (double)(to->wait_ns - to->split_wait_ns) / base;
    }
}

static void derive_times(const lp_phase *from, lp_report_phase *to)
{
    to->mean_ns = to->p50_ns = to->p95_ns = to->p99_ns = (double)NAN;
    if (from->entries == 0)
        return;
    double low = (double)from->min_ns, high = (double)from->max_ns;
    to->min_ns = from->min_ns;
    to->max_ns = from->max_ns;
    to->mean_ns = (double)from->wall_ns / (double)from->entries;
    if (from->hist.size == 0)
        return;
    to->p50_ns = clamp(lp_cells_quantile(&from->hist, 0.50), low, high);
    to->p95_ns = clamp(lp_cells_quantile(&from->hist, 0.95), low, high);
    to->p99_ns = clamp(lp_cells_quantile(&from->hist, 0.99), low, high);
}

static lp_status join_path(lp_arena *arena, const lp_report_phase *phases, lp_report_phase *to)
{
    if (to->parent == LP_NO_PHASE) {
        to->path = to->name;
        return LP_OK;
    }
    lp_str above = phases[to->parent].path;
    char *text = lp_arena_take(arena, above.size + to->name.size + 2);
    if (!text)
        return LP_E_MEMORY;
    if (above.size > 0)
        memcpy(text, above.data, above.size);
    text[above.size] = '/';
    if (to->name.size > 0)
        memcpy(text + above.size + 1, to->name.data, to->name.size);
    to->path = (lp_str){text, above.size + 1 + to->name.size};
    return LP_OK;
}

static lp_status derive_phase(lp_arena *arena, const lp_run_role *role, uint32_t index, lp_report_phase *phases)
{
    const lp_phase *from = &role->tree.phases[index];
    lp_report_phase *to = &phases[index - 1];

    to->parent = from->parent == 0 ? LP_NO_PHASE : from->parent - 1;
    to->depth = to->parent == LP_NO_PHASE ? 1 : phases[to->parent].depth + 1;
    to->name = from->name;
    to->flags = from->flags;
    to->open_entries = role->open_entries[index];
    to->open_ns = role->open_ns[index];
    to->synthetic = lp__phase_is_synthetic(from, to->open_entries);
    to->stride = from->stride > 1 ? from->stride : 0;
    to->entries = from->entries;
    to->errors = from->errors;
    to->abandoned = from->abandoned;
    to->async_entries = from->async_entries;
    to->io_missing = from->io_missing;
    to->wall_ns = from->wall_ns;
    to->child_ns = from->child_ns < from->wall_ns ? from->child_ns : from->wall_ns;
    to->self_ns = from->wall_ns - to->child_ns;
    to->self_nested = to->parent != LP_NO_PHASE && lp__str_equal(phases[to->parent].name, to->name);
    derive_waits(from, to);
    derive_times(from, to);
    if (from->flags & LP_PHASE_IO)
        derive_io(from, &to->io);
    lp_status status = join_path(arena, phases, to);
    return status == LP_OK ? derive_counters(arena, from, to) : status;
}

/* Time of open entries that lies in none of the children. Children are counted with their own open time, so for a
 * phase whose children do not overlap this is exact. */
static void derive_open_self(lp_report_phase *phases, uint32_t count, const uint64_t *children)
{
    for (uint32_t i = 0; i < count; i++) {
        lp_report_phase *phase = &phases[i];
        uint64_t self = lp__sub_u64(phase->extent_ns, children[i + 1]);

        if (phase->open_entries == 0 || phase->synthetic)
            continue;
        self = lp__sub_u64(self, phase->self_ns);
        phase->open_self_ns = self < phase->open_ns ? self : phase->open_ns;
    }
}

static lp_status derive_extents(lp_report_role *to)
{
    const lp_tree *tree = &to->role->tree;
    uint64_t *work = calloc(3 * (tree->count + 1ul), sizeof *work);

    if (!work)
        return LP_E_MEMORY;
    uint64_t *wall = work, *open = work + tree->count + 1, *children = open + tree->count + 1;
    memcpy(open, to->role->open_ns, tree->count * sizeof *open);
    lp__tree_extents(tree, to->role->open_entries, wall, open);
    for (uint32_t i = 1; i < tree->count; i++) {
        to->phases[i - 1].extent_ns = lp__add_u64(wall[i], open[i]);
        children[tree->phases[i].parent] = lp__add_u64(children[tree->phases[i].parent], to->phases[i - 1].extent_ns);
    }
    derive_open_self(to->phases, to->phase_count, children);
    for (uint32_t i = 0; i < to->phase_count; i++)
        if (to->phases[i].stride > 1 && to->phases[i].parent != LP_NO_PHASE)
            to->phases[to->phases[i].parent].self_estimated = true;
    free(work);
    double whole = (double)to->role->wall_ns;
    for (uint32_t i = 0; i < to->phase_count; i++) {
        lp_report_phase *phase = &to->phases[i];
        phase->share = ratio((double)phase->extent_ns, whole);
        phase->self_share = ratio((double)phase->self_ns + (double)phase->open_self_ns, whole);
    }
    return LP_OK;
}

/* Recording a phase lies within the phases around it and, for the most part, within itself. */
static lp_status derive_own_cost(lp_report_role *to)
{
    const lp_run_role *role = to->role;
    double *cost = calloc(to->phase_count + 1ul, sizeof *cost);

    if (!cost)
        return LP_E_MEMORY;
    for (uint32_t i = to->phase_count; i-- > 0;) {
        lp_report_phase *phase = &to->phases[i];
        double counts = 0.0;
        for (uint32_t c = 0; c < phase->counter_count; c++)
            counts += (double)phase->counters[c].calls;
        cost[i] += (double)phase->entries * role->own_cost_ns + counts * role->own_count_cost_ns;
        if (phase->parent != LP_NO_PHASE)
            cost[phase->parent] += cost[i];
        phase->own_share = (double)NAN;
        if (role->own_cost_ns > 0.0 && phase->wall_ns > 0 && !phase->synthetic) {
            phase->own_share = cost[i] / (double)phase->wall_ns;
            phase->untrusted = phase->own_share > LP_TRUST_SHARE;
        }
    }
    free(cost);
    to->own_share = role->own_cost_ns > 0.0 ? ratio(role->own_ns, (double)role->wall_ns) : (double)NAN;
    return LP_OK;
}

typedef struct sort_key {
    uint64_t value;
    lp_str path;
    uint32_t index;
} sort_key;

static int largest_first(const void *a, const void *b)
{
    const sort_key *x = a, *y = b;

    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    int order = lp__str_compare(x->path, y->path);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static lp_status order_by_self(lp_arena *arena, lp_report_role *to)
{
    sort_key *keys = malloc((to->phase_count + 1ul) * sizeof *keys);

    to->by_self = lp_arena_take(arena, (to->phase_count + 1ul) * sizeof *to->by_self);
    if (!keys || !to->by_self) {
        free(keys);
        return LP_E_MEMORY;
    }
    for (uint32_t i = 0; i < to->phase_count; i++) {
        const lp_report_phase *phase = &to->phases[i];
        if (!phase->synthetic || phase->counter_count > 0)
            keys[to->by_self_count++] = (sort_key){lp__add_u64(phase->self_ns, phase->open_self_ns), phase->path, i};
    }
    if (to->by_self_count > 1)
        qsort(keys, to->by_self_count, sizeof *keys, largest_first);
    for (uint32_t i = 0; i < to->by_self_count; i++)
        to->by_self[i] = keys[i].index;
    free(keys);
    return LP_OK;
}

/* Number of children of a phase (LP_NO_PHASE: the top) and the last of them. */
static uint32_t children_of(const lp_report_role *role, uint32_t parent, uint32_t *last)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < role->phase_count; i++)
        if (role->phases[i].parent == parent) {
            *last = i;
            count++;
        }
    return count;
}

/* The spine: from the top down while there is exactly one child. Gives the phases passed, into spine[]. */
static uint32_t find_spine(const lp_report_role *role, uint32_t *spine, uint32_t limit, uint32_t *at)
{
    uint32_t length = 0, child = LP_NO_PHASE;

    *at = LP_NO_PHASE;
    while (length < limit && children_of(role, *at, &child) == 1)
        *at = spine[length++] = child;
    return length;
}

static lp_status list_levels(lp_arena *arena, lp_report_role *to, const uint32_t *spine, uint32_t length)
{
    lp_report_breakdown *rows = &to->breakdown;

    rows->chain = true;
    rows->rows = lp_arena_take(arena, (length + 1ul) * sizeof *rows->rows);
    if (!rows->rows)
        return LP_E_MEMORY;
    rows->at = LP_NO_PHASE;
    rows->total_ns = length > 0 ? to->phases[spine[0]].extent_ns : 0;
    for (uint32_t i = 0; i < length; i++) {
        uint64_t wall = to->phases[spine[i]].extent_ns;
        rows->estimated |= wall > rows->total_ns;
        rows->rows[rows->row_count++] = (lp_report_share){spine[i], wall, ratio((double)wall, (double)rows->total_ns)};
    }
    return LP_OK;
}

static lp_status list_children(lp_arena *arena, lp_report_role *to, uint32_t at, uint32_t child_count)
{
    lp_report_breakdown *rows = &to->breakdown;
    sort_key *keys = malloc((child_count + 1ul) * sizeof *keys);
    uint32_t count = 0;
    uint64_t sum = 0;

    rows->at = at;
    rows->rows = lp_arena_take(arena, (child_count + 2ul) * sizeof *rows->rows);
    if (!keys || !rows->rows) {
        free(keys);
        return LP_E_MEMORY;
    }
    for (uint32_t i = 0; i < to->phase_count && count < child_count; i++)
        if (to->phases[i].parent == at) {
            keys[count++] = (sort_key){to->phases[i].extent_ns, to->phases[i].path, i};
            sum = lp__add_u64(sum, to->phases[i].extent_ns);
        }
    qsort(keys, count, sizeof *keys, largest_first);
    bool real = at != LP_NO_PHASE && !to->phases[at].synthetic;
    rows->total_ns = real ? to->phases[at].extent_ns : sum;
    rows->estimated =
        real && sum > rows->total_ns && !(to->phases[at].flags & LP_PHASE_OVERLAP) && to->phases[at].self_estimated;
    rows->overlapping = real && ((to->phases[at].flags & LP_PHASE_OVERLAP) || sum > rows->total_ns);
    for (uint32_t i = 0; i < count; i++)
        rows->rows[rows->row_count++] =
            (lp_report_share){keys[i].index, keys[i].value, ratio((double)keys[i].value, (double)rows->total_ns)};
    free(keys);
    if (real && !rows->overlapping) {
        uint64_t other = lp__sub_u64(rows->total_ns, sum);
        rows->rows[rows->row_count++] =
            (lp_report_share){LP_NO_PHASE, other, ratio((double)other, (double)rows->total_ns)};
    }
    return LP_OK;
}

/* The phase whose distribution is shown: the first level on the way down the spine at which something was entered more
 * than once; there the one with most wall time. */
static void find_iterations(lp_report_role *to, const uint32_t *spine, uint32_t length)
{
    to->iterations = LP_NO_PHASE;
    for (uint32_t level = 0; level <= length; level++) {
        uint32_t parent = level == 0 ? LP_NO_PHASE : spine[level - 1], best = LP_NO_PHASE;
        for (uint32_t i = 0; i < to->phase_count; i++)
            if (to->phases[i].parent == parent && to->phases[i].entries > 1 &&
                (best == LP_NO_PHASE || to->phases[i].wall_ns > to->phases[best].wall_ns))
                best = i;
        if (best != LP_NO_PHASE) {
            to->iterations = best;
            return;
        }
    }
}

static lp_status derive_breakdown(lp_arena *arena, lp_report_role *to)
{
    uint32_t *spine = malloc((to->phase_count + 1ul) * sizeof *spine);
    uint32_t at = LP_NO_PHASE, last = LP_NO_PHASE;

    if (!spine)
        return LP_E_MEMORY;
    uint32_t length = find_spine(to, spine, to->phase_count, &at);
    uint32_t children = children_of(to, at, &last);
    lp_status status = children == 0 ? list_levels(arena, to, spine, length) : list_children(arena, to, at, children);
    find_iterations(to, spine, length);
    free(spine);
    return status;
}

static lp_status derive_role(lp_arena *arena, const lp_run_role *role, lp_report_role *to)
{
    lp_status status = LP_OK;
    lp_report_phase root = {.synthetic = true};

    to->role = role;
    to->phase_count = role->tree.count > 0 ? role->tree.count - 1 : 0;
    to->phases = lp_arena_take(arena, (to->phase_count + 1ul) * sizeof *to->phases);
    if (!to->phases)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < to->phase_count && status == LP_OK; i++)
        status = derive_phase(arena, role, i + 1, to->phases);
    if (status == LP_OK && role->tree.count > 0)
        status = derive_counters(arena, &role->tree.phases[0], &root);
    to->counters = root.all_counters;
    to->counter_count = root.all_counter_count;
    if (status == LP_OK)
        status = derive_extents(to);
    if (status == LP_OK)
        status = derive_own_cost(to);
    if (status == LP_OK)
        status = order_by_self(arena, to);
    return status == LP_OK ? derive_breakdown(arena, to) : status;
}

static void derive_run_cost(lp_report *report)
{
    double entries = 0.0, cost = 0.0, own = 0.0, run = 0.0;

    /* Of the run: short phases at the top cost more outside of themselves than they last. Threads beside each other have
     * more wall time than the process. */
    for (uint32_t i = 0; i < report->run->worker_count; i++) {
        const lp_run_worker *worker = &report->run->workers[i];
        if (worker->own_cost_ps > 0)
            run += (double)(worker->wall_ns > worker->elapsed_ns ? worker->wall_ns : worker->elapsed_ns);
    }
    for (uint32_t i = 0; i < report->role_count; i++) {
        const lp_report_role *role = &report->roles[i];
        double here = 0.0;
        if (role->role->own_cost_ns <= 0.0)
            continue;
        for (uint32_t p = 0; p < role->phase_count; p++)
            here += (double)role->phases[p].entries;
        entries += here;
        cost += here * role->role->own_cost_ns;
        own += role->role->own_ns;
    }
    report->own_cost_ns = ratio(cost, entries);
    report->own_share = entries > 0.0 ? ratio(own, run) : (double)NAN;
}

lp_status lp_report_new(const lp_run *run, lp_report **out)
{
    lp_report *report = calloc(1, sizeof *report);
    lp_status status = LP_OK;

    if (!report)
        return LP_E_MEMORY;
    report->run = run;
    report->arena = lp_arena_new();
    if (report->arena)
        report->roles = lp_arena_take(report->arena, (run->role_count + 1ul) * sizeof *report->roles);
    if (!report->roles)
        status = LP_E_MEMORY;
    for (uint32_t i = 0; status == LP_OK && i < run->role_count; i++) {
        status = derive_role(report->arena, &run->roles[i], &report->roles[i]);
        report->role_count = i + 1;
    }
    for (uint32_t i = 0; status == LP_OK && i < run->worker_count; i++) {
        lp_report_role *role = &report->roles[run->workers[i].role_index];
        role->lived_ns = lp__add_u64(role->lived_ns, run->workers[i].elapsed_ns);
    }
    if (status == LP_OK) {
        derive_run_cost(report);
        status = lp__report_lists(report);
    }
    if (status == LP_OK)
        status = lp__report_findings(report);
    if (status != LP_OK) {
        lp_report_free(report);
        return status;
    }
    *out = report;
    return LP_OK;
}

lp_status lp_report_add_usage(lp_report *report, const lp_usage *usage)
{
    report->usage = usage;
    return lp__report_findings(report);
}

bool lp_report_shares_path(const lp_report *report, uint32_t role, lp_str path)
{
    for (uint32_t r = 0; r < report->role_count; r++)
        for (uint32_t i = 0; r != role && i < report->roles[r].phase_count; i++)
            if (lp__str_equal(report->roles[r].phases[i].path, path))
                return true;
    return false;
}

void lp_report_free(lp_report *report)
{
    if (!report)
        return;
    lp_arena_free(report->arena);
    free(report);
}
