/* Folding workers into a run. What is kept of a worker is a summary; its tree goes into its role's.
 *
 * A role's tree grows in a bump arena, where a merged histogram leaves its shorter predecessor behind as garbage. When
 * the arena has grown well beyond what the tree needed last time, the tree is copied into a fresh one: memory stays
 * within a small factor of the result however many workers come. */
#include "analysis/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analysis/tree_math.h"
#include "core/clock.h"
#include "store/arena.h"

#define COMPACT_FLOOR (2u << 20) /* bytes of a role's arena below which compacting is not worth it */
#define COMPACT_FACTOR 3u

typedef struct role_work {
    lp_arena *arena;           /* owned; the role's tree lives in it */
    size_t compact_at;         /* bytes */
    double entries, counts;    /* unscaled, of workers whose own cost is known */
    double entry_ns, count_ns; /* and what they cost */
} role_work;

struct lp__run_state {
    role_work *work; /* owned; parallel to run->roles until lp_run_finish orders those */
    uint32_t role_capacity, worker_capacity, superseded_capacity, unreadable_capacity, host_capacity;
    uint64_t first_start; /* of the worker whose metadata the run shows */
    bool has_first, finished;
    lp_arena *tree_arena; /* owned; of `tree` */
    lp_tree tree;
    uint64_t *tree_open; /* open entries by its phase index; in tree_arena */
};

static lp_status grow(void **array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return LP_OK;
    uint32_t wanted = *capacity ? *capacity * 2 : 16;
    if (wanted <= *capacity)
        return LP_E_LIMIT;
    void *bigger = realloc(*array, wanted * size);
    if (!bigger)
        return LP_E_MEMORY;
    *array = bigger;
    *capacity = wanted;
    return LP_OK;
}

lp_run *lp_run_new(void)
{
    lp_run *run = calloc(1, sizeof *run);

    if (!run)
        return NULL;
    run->arena = lp_arena_new();
    run->state = calloc(1, sizeof *run->state);
    run->read_ns = lp_clock_ns(CLOCK_REALTIME);
    run->source_dirty = run->source_untracked = LP_UNKNOWN_I64;
    run->imbalance = 1.0;
    run->empty_reason = "";
    if (!run->arena || !run->state) {
        lp_run_free(run);
        return NULL;
    }
    run->directory = run->run_id = run->python = run->platform = run->start_host = run->source_commit =
        run->source_diff = (lp_str){"", 0};
    return run;
}

static void free_workers(lp_run_worker *workers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        lp_worker_free(workers[i].worker);
    free(workers);
}

void lp_run_free(lp_run *run)
{
    if (!run)
        return;
    for (uint32_t i = 0; i < run->role_count; i++) {
        free(run->roles[i].open_ns);
        free(run->roles[i].open_entries);
    }
    if (run->state) {
        for (uint32_t i = 0; run->state->work && i < run->role_count; i++)
            lp_arena_free(run->state->work[i].arena);
        free(run->state->work);
        lp_arena_free(run->state->tree_arena);
        free(run->state);
    }
    free(run->roles);
    free_workers(run->workers, run->worker_count);
    free_workers(run->superseded, run->superseded_count);
    free(run->hosts);
    free(run->unreadable);
    lp_arena_free(run->arena);
    free(run);
}

/* Copies into the run, or reuses the previous worker's equal text: hosts, roles and versions repeat in every worker. */
static lp_status copy_str(lp_run *run, lp_str source, const lp_str *previous, lp_str *target)
{
    if (source.size == 0) {
        *target = (lp_str){"", 0};
        return LP_OK;
    }
    if (previous && lp__str_equal(*previous, source)) {
        *target = *previous;
        return LP_OK;
    }
    *target = lp_arena_str(run->arena, source.data, source.size);
    return target->data ? LP_OK : LP_E_MEMORY;
}

static lp_str option_of(const lp_identity *id, const char *key)
{
    for (uint32_t i = 0; i < id->option_count; i++)
        if (id->options[i].key.size == strlen(key) && memcmp(id->options[i].key.data, key, strlen(key)) == 0)
            return id->options[i].value;
    return (lp_str){"", 0};
}

static bool option_is(const lp_identity *id, const char *key, char value)
{
    lp_str text = option_of(id, key);

    return text.size == 1 && text.data[0] == value;
}

typedef struct open_key {
    uint64_t tid;
    uint32_t index;
} open_key;

static int by_tid(const void *a, const void *b)
{
    const open_key *x = a, *y = b;

    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* inner[i]: no other open phase of the same thread lies below it. Thread by thread, every open phase marks the phases
 * above it, so that 10,000 open tasks cost no more than their depth each. */
static lp_status find_inner(const lp_worker *worker, bool *inner)
{
    const lp_tree *tree = &worker->tree;
    open_key *keys = malloc(worker->open_count * sizeof *keys);
    uint32_t *mark = calloc(tree->count + 1u, sizeof *mark);

    if (!keys || !mark) {
        free(keys);
        free(mark);
        return LP_E_MEMORY;
    }
    for (uint32_t i = 0; i < worker->open_count; i++)
        keys[i] = (open_key){worker->open[i].tid, i};
    qsort(keys, worker->open_count, sizeof *keys, by_tid);
    for (uint32_t start = 0, end, group = 1; start < worker->open_count; start = end, group++) {
        for (end = start; end < worker->open_count && keys[end].tid == keys[start].tid; end++) {
            uint32_t at = worker->open[keys[end].index].phase;
            while (at != 0 && at < tree->count) {
                at = tree->phases[at].parent;
                mark[at] = group;
            }
        }
        for (uint32_t i = start; i < end; i++) {
            uint32_t phase = worker->open[keys[i].index].phase;
            inner[keys[i].index] = phase < tree->count && mark[phase] != group;
        }
    }
    free(keys);
    free(mark);
    return LP_OK;
}

static lp_status copy_one_open(lp_run *run, const lp_tree *tree, const lp_open *source, const lp_str *thread,
                               lp_run_open *target)
{
    uint32_t depth = 0;

    for (uint32_t at = source->phase; at != 0; at = tree->phases[at].parent)
        depth++;
    target->depth = depth;
    target->path = lp_arena_take(run->arena, depth * sizeof *target->path);
    if (!target->path)
        return LP_E_MEMORY;
    for (uint32_t at = source->phase; at != 0; at = tree->phases[at].parent) {
        lp_status status = copy_str(run, tree->phases[at].name, NULL, &target->path[--depth]);
        if (status != LP_OK)
            return status;
    }
    target->since_ns = source->since_ns;
    target->open_ns = source->open_ns;
    target->tid = source->tid;
    return copy_str(run, source->thread, thread, &target->thread);
}

static lp_status copy_open(lp_run *run, const lp_worker *worker, lp_run_worker *out)
{
    if (worker->open_count == 0)
        return LP_OK;
    bool *inner = calloc(worker->open_count, sizeof *inner);
    out->open = lp_arena_take(run->arena, worker->open_count * sizeof *out->open);
    lp_status status = inner && out->open ? find_inner(worker, inner) : LP_E_MEMORY;
    for (uint32_t i = 0; status == LP_OK && i < worker->open_count; i++) {
        const lp_open *source = &worker->open[i];
        const lp_str *thread = out->open_count > 0 ? &out->open[out->open_count - 1].thread : NULL;

        if (source->phase == 0 || source->phase >= worker->tree.count)
            continue;
        status = copy_one_open(run, &worker->tree, source, thread, &out->open[out->open_count]);
        if (status == LP_OK)
            out->open[out->open_count++].inner = inner[i];
    }
    free(inner);
    return status;
}

static uint64_t hash_of(lp_str text)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < text.size; i++)
        hash = (hash ^ (unsigned char)text.data[i]) * 1099511628211u;
    return hash | 1;
}

/* Finished and open wall time of the top phases, and which has most of it. */
static lp_status worker_wall(const lp_worker *worker, lp_run_worker *out)
{
    size_t count = worker->tree.count;
    uint64_t *work = calloc(3 * (count + 1), sizeof *work);

    if (!work)
        return LP_E_MEMORY;
    uint64_t *wall = work, *open = work + count + 1, *entries = open + count + 1;
    for (uint32_t i = 0; i < worker->open_count; i++)
        if (worker->open[i].phase < count) {
            open[worker->open[i].phase] = lp__add_u64(open[worker->open[i].phase], worker->open[i].open_ns);
            entries[worker->open[i].phase]++;
        }
    lp__tree_extents(&worker->tree, entries, wall, open);
    out->wall_ns = wall[0];
    out->open_ns = open[0];
    uint64_t most = 0;
    for (uint32_t i = 1; i < count; i++) {
        uint64_t time = lp__add_u64(wall[i], open[i]);
        if (worker->tree.phases[i].parent == 0 && time > most) {
            most = time;
            out->work = hash_of(worker->tree.phases[i].name);
        }
    }
    free(work);
    return LP_OK;
}

static lp_life life_of(const lp_worker *worker)
{
    if (worker->living)
        return LP_LIFE_RUNNING;
    if (worker->unclean)
        return LP_LIFE_DIED;
    return worker->final ? LP_LIFE_CLOSED : LP_LIFE_LAST_SEEN;
}

static lp_status summarize(lp_run *run, const lp_worker *worker, const lp_run_worker *last, lp_run_worker *out)
{
    const lp_identity *id = &worker->id;
    const struct {
        lp_str source;
        const lp_str *previous;
        lp_str *target;
    } texts[] = {
        {id->run_id, last ? &last->run_id : NULL, &out->run_id},
        {id->role, last ? &last->role : NULL, &out->role},
        {id->host, last ? &last->host : NULL, &out->host},
        {id->boot_id, last ? &last->boot_id : NULL, &out->boot_id},
        {id->job_id, last ? &last->job_id : NULL, &out->job_id},
        {id->python, last ? &last->python : NULL, &out->python},
        {id->platform, last ? &last->platform : NULL, &out->platform},
        {worker->clock, last ? &last->clock : NULL, &out->clock},
        {worker->cpu_source, last ? &last->cpu_source : NULL, &out->cpu_source},
        {worker->split_source, last ? &last->split_source : NULL, &out->split_source},
        {worker->segment_place, last ? &last->segment_place : NULL, &out->segment_place},
        {option_of(id, "asked"), last ? &last->asked : NULL, &out->asked},
        {id->uuid, NULL, &out->uuid},
        {worker->path, NULL, &out->path},
        {worker->health.first_folded, NULL, &out->health.first_folded},
        {worker->health.last_error, NULL, &out->health.last_error},
    };

    memset(out, 0, sizeof *out);
    out->health = worker->health;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        lp_status status = copy_str(run, texts[i].source, texts[i].previous, texts[i].target);
        if (status != LP_OK)
            return status;
    }
    out->pid = id->pid;
    out->rank = id->rank;
    out->local_rank = id->local_rank;
    out->world_size = id->world_size;
    out->started_ns = id->started_ns;
    out->written_ns = worker->written_ns;
    out->elapsed_ns = worker->elapsed_ns;
    out->life = life_of(worker);
    out->end = out->life == LP_LIFE_DIED ? worker->end : (lp_end){.code = LP_UNKNOWN_I64};
    out->measure_cpu = !option_is(id, "measure_cpu", '0');
    out->thread_names = option_is(id, "thread_names", '1');
    out->own_cost_ps = worker->own_cost_ps;
    out->own_count_cost_ps = worker->own_count_cost_ps;
    out->threads = worker->threads;
    out->generation = worker->generation;
    if (worker->track && worker->track->step_count) {
        size_t size = worker->track->step_count * sizeof *out->steps;
        out->steps = lp_arena_take(run->arena, size);
        if (!out->steps)
            return LP_E_MEMORY;
        memcpy(out->steps, worker->track->steps, size);
        out->step_count = worker->track->step_count;
    }
    lp_status status = worker_wall(worker, out);
    return status == LP_OK ? copy_open(run, worker, out) : status;
}

static lp_status role_of(lp_run *run, lp_str name, uint32_t *index)
{
    for (uint32_t i = 0; i < run->role_count; i++)
        if (lp__str_equal(run->roles[i].name, name)) {
            *index = i;
            return LP_OK;
        }
    struct lp__run_state *state = run->state;
    uint32_t capacity = state->role_capacity;
    lp_status status = grow((void **)&run->roles, run->role_count, &capacity, sizeof *run->roles);
    if (status != LP_OK)
        return status;
    status = grow((void **)&state->work, run->role_count, &state->role_capacity, sizeof *state->work);
    if (status != LP_OK)
        return status;
    lp_run_role *role = &run->roles[run->role_count];
    role_work *work = &state->work[run->role_count];
    memset(role, 0, sizeof *role);
    memset(work, 0, sizeof *work);
    role->name = name;
    role->imbalance = 1.0;
    work->compact_at = COMPACT_FLOOR;
    work->arena = lp_arena_new();
    if (!work->arena)
        return LP_E_MEMORY;
    status = lp_tree_init(&role->tree, work->arena);
    if (status != LP_OK) {
        lp_arena_free(work->arena);
        return status;
    }
    *index = run->role_count++;
    return LP_OK;
}

static lp_status compact(lp_run_role *role, role_work *work)
{
    if (lp_arena_bytes(work->arena) < work->compact_at)
        return LP_OK;
    lp_arena *arena = lp_arena_new();
    lp_tree tree;

    if (!arena)
        return LP_E_MEMORY;
    lp_status status = lp_tree_init(&tree, arena);
    if (status == LP_OK)
        status = lp_tree_merge(&tree, 0, &role->tree);
    if (status != LP_OK) {
        lp_arena_free(arena);
        return status;
    }
    lp_arena_free(work->arena);
    work->arena = arena;
    role->tree = tree;
    size_t needed = lp_arena_bytes(arena) * COMPACT_FACTOR;
    work->compact_at = needed > COMPACT_FLOOR ? needed : COMPACT_FLOOR;
    return LP_OK;
}

/* Entries that sample= leaves out are in it like the others: the call from Python is most of what an entry costs (90 ns with it left
 * out, 102 ns measured). */
static void add_own_cost(role_work *work, const lp_worker *worker)
{
    double entries = 0.0, counts = 0.0;

    for (uint32_t i = 0; i < worker->tree.count; i++) {
        const lp_phase *phase = &worker->tree.phases[i];
        entries += (double)phase->entries;
        for (uint32_t c = 0; c < phase->counter_count; c++)
            counts += (double)phase->counters[c].calls;
    }
    if (worker->own_cost_ps > 0) {
        work->entries += entries;
        work->entry_ns += entries * (double)worker->own_cost_ps / 1000.0;
    }
    if (worker->own_count_cost_ps > 0) {
        work->counts += counts;
        work->count_ns += counts * (double)worker->own_count_cost_ps / 1000.0;
    }
}

static lp_status copy_hardware(lp_run *run, const lp_hardware *source, lp_hardware *target)
{
    *target = *source;
    target->gpus = NULL;
    target->gpu_count = 0;
    if (source->gpu_count == 0)
        return LP_OK;
    target->gpus = lp_arena_take(run->arena, source->gpu_count * sizeof *target->gpus);
    if (!target->gpus)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < source->gpu_count; i++) {
        target->gpus[i] = source->gpus[i];
        lp_status status = copy_str(run, source->gpus[i].name, NULL, &target->gpus[i].name);
        if (status != LP_OK)
            return status;
    }
    target->gpu_count = source->gpu_count;
    return LP_OK;
}

static lp_status add_host(lp_run *run, const lp_worker *worker, lp_str name)
{
    for (uint32_t i = 0; i < run->host_count; i++)
        if (lp__str_equal(run->hosts[i].name, name)) {
            run->hosts[i].worker_count++;
            return LP_OK;
        }
    lp_status status = grow((void **)&run->hosts, run->host_count, &run->state->host_capacity, sizeof *run->hosts);
    if (status != LP_OK)
        return status;
    lp_run_host *host = &run->hosts[run->host_count];
    host->name = name;
    host->worker_count = 1;
    status = copy_hardware(run, &worker->id.hardware, &host->hardware);
    if (status == LP_OK)
        run->host_count++;
    return status;
}

/* The run's own description is that of the worker that started first: the program that the user typed. */
static lp_status take_metadata(lp_run *run, const lp_identity *id)
{
    struct lp__run_state *state = run->state;
    const struct {
        lp_str source;
        lp_str *target;
    } texts[] = {
        {id->python, &run->python},           {id->platform, &run->platform},
        {id->host, &run->start_host},         {id->source_commit, &run->source_commit},
        {id->source_diff, &run->source_diff}, {id->run_id, &run->run_id},
    };

    if (state->has_first && id->started_ns >= state->first_start)
        return LP_OK;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        lp_status status = copy_str(run, texts[i].source, texts[i].target, texts[i].target);
        if (status != LP_OK)
            return status;
    }
    run->source_dirty = id->source_dirty;
    run->source_untracked = id->source_untracked;
    run->argv_count = run->source_extra_count = 0;
    run->argv = lp_arena_take(run->arena, (id->argv_count + 1) * sizeof *run->argv);
    run->source_extra = lp_arena_take(run->arena, (id->source_extra_count + 1) * sizeof *run->source_extra);
    if (!run->argv || !run->source_extra)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < id->argv_count; i++) {
        lp_status status = copy_str(run, id->argv[i], NULL, &run->argv[i]);
        if (status != LP_OK)
            return status;
    }
    run->argv_count = id->argv_count;
    for (uint32_t i = 0; i < id->source_extra_count; i++) {
        lp_status status = copy_str(run, id->source_extra[i].key, NULL, &run->source_extra[i].key);
        if (status == LP_OK)
            status = copy_str(run, id->source_extra[i].value, NULL, &run->source_extra[i].value);
        if (status != LP_OK)
            return status;
    }
    run->source_extra_count = id->source_extra_count;
    state->has_first = true;
    state->first_start = id->started_ns;
    return LP_OK;
}

lp_status lp_run_fold(lp_run *run, const lp_worker *worker)
{
    const lp_run_worker *last = run->worker_count > 0 ? &run->workers[run->worker_count - 1] : NULL;
    lp_run_worker summary;
    uint32_t index = 0;

    if (run->state->finished)
        return LP_E_ARGUMENT;
    lp_status status = summarize(run, worker, last, &summary);
    if (status == LP_OK)
        status = grow((void **)&run->workers, run->worker_count, &run->state->worker_capacity, sizeof *run->workers);
    if (status == LP_OK)
        status = role_of(run, summary.role, &index);
    if (status == LP_OK)
        status = take_metadata(run, &worker->id);
    if (status == LP_OK)
        status = add_host(run, worker, summary.host);
    if (status == LP_OK)
        status = lp_tree_merge(&run->roles[index].tree, 0, &worker->tree);
    if (status == LP_OK)
        status = compact(&run->roles[index], &run->state->work[index]);
    if (status != LP_OK)
        return status;
    add_own_cost(&run->state->work[index], worker);
    run->roles[index].worker_count++;
    summary.role_index = index;
    uint64_t started = worker->id.run_started_ns ? worker->id.run_started_ns : worker->id.started_ns;
    if (run->worker_count == 0 || started < run->started_ns)
        run->started_ns = started;
    run->workers[run->worker_count++] = summary;
    return LP_OK;
}

lp_status lp_run_add(lp_run *run, lp_worker *worker, bool keep)
{
    lp_status status = lp_run_fold(run, worker);

    if (keep && status == LP_OK)
        run->workers[run->worker_count - 1].worker = worker;
    else if (keep)
        lp_worker_free(worker);
    return status;
}

lp_status lp_run_add_superseded(lp_run *run, lp_worker *worker, bool keep)
{
    const lp_run_worker *last = run->superseded_count > 0 ? &run->superseded[run->superseded_count - 1] : NULL;
    lp_run_worker summary;

    lp_status status = summarize(run, worker, last, &summary);
    if (status == LP_OK)
        status = grow((void **)&run->superseded, run->superseded_count, &run->state->superseded_capacity,
                      sizeof *run->superseded);
    if (status != LP_OK) {
        if (keep)
            lp_worker_free(worker);
        return status;
    }
    summary.worker = keep ? worker : NULL;
    run->superseded[run->superseded_count++] = summary;
    return LP_OK;
}

lp_status lp_run_add_unreadable(lp_run *run, const char *path, const char *reason)
{
    lp_run_lost lost = {lp_arena_str(run->arena, path, strlen(path)), lp_arena_str(run->arena, reason, strlen(reason))};

    if (!lost.path.data || !lost.reason.data)
        return LP_E_MEMORY;
    lp_status status = grow((void **)&run->unreadable, run->unreadable_count, &run->state->unreadable_capacity,
                            sizeof *run->unreadable);
    if (status == LP_OK)
        run->unreadable[run->unreadable_count++] = lost;
    return status;
}

/* The monotonic clock's length where there is one: a step of the wall clock must not stretch the run. */
static uint64_t worker_end(const lp_run_worker *worker)
{
    if (worker->elapsed_ns > 0)
        return lp__add_u64(worker->started_ns, worker->elapsed_ns);
    return worker->written_ns > worker->started_ns ? worker->written_ns : worker->started_ns;
}

static void finish_times(lp_run *run)
{
    uint64_t first = UINT64_MAX, last = 0, seen = 0;

    for (uint32_t i = 0; i < run->worker_count; i++) {
        const lp_run_worker *worker = &run->workers[i];
        uint64_t end = worker_end(worker);
        first = worker->started_ns < first ? worker->started_ns : first;
        last = end > last ? end : last;
        seen = worker->written_ns > seen ? worker->written_ns : seen;
    }
    run->ended_ns = seen;
    run->runtime_ns = last > first ? last - first : 0;
    for (uint32_t i = 0; i < run->worker_count; i++) {
        lp_run_worker *worker = &run->workers[i];
        worker->stale = worker->life != LP_LIFE_RUNNING && lp__sub_u64(seen, worker->written_ns) > LP_STALE_NS;
    }
}

typedef struct balance {
    double sum;
    uint64_t most;
    uint32_t slowest, count;
} balance;

static void balance_add(balance *to, const lp_run_worker *worker, uint32_t index)
{
    uint64_t wall = lp__add_u64(worker->wall_ns, worker->open_ns);

    to->sum += (double)wall;
    if (to->count++ == 0 || wall > to->most) {
        to->most = wall;
        to->slowest = index;
    }
}

static double balance_ratio(const balance *of)
{
    return of->sum > 0.0 ? (double)of->most * of->count / of->sum : 1.0;
}

static int by_host(const void *a, const void *b)
{
    return lp__str_compare(((const lp_run_host *)a)->name, ((const lp_run_host *)b)->name);
}

/* Most wall time first; equal ones by name. */
static bool role_before(const lp_run_role *a, const lp_run_role *b)
{
    return a->wall_ns != b->wall_ns ? a->wall_ns > b->wall_ns : lp__str_compare(a->name, b->name) < 0;
}

typedef struct ranked {
    const lp_run_role *role;
    uint32_t index;
} ranked;

static int by_wall(const void *a, const void *b)
{
    return role_before(((const ranked *)a)->role, ((const ranked *)b)->role) ? -1 : 1;
}

static lp_status order_roles(lp_run *run)
{
    uint32_t count = run->role_count;
    ranked *order = malloc((count + 1) * sizeof *order);
    lp_run_role *roles = malloc((count + 1) * sizeof *roles);
    role_work *work = malloc((count + 1) * sizeof *work);
    uint32_t *place = malloc((count + 1) * sizeof *place);
    lp_status status = order && roles && work && place ? LP_OK : LP_E_MEMORY;

    if (status == LP_OK) {
        for (uint32_t i = 0; i < count; i++)
            order[i] = (ranked){&run->roles[i], i};
        qsort(order, count, sizeof *order, by_wall);
        for (uint32_t i = 0; i < count; i++) {
            roles[i] = run->roles[order[i].index];
            work[i] = run->state->work[order[i].index];
            place[order[i].index] = i;
        }
        if (count > 0) {
            memcpy(run->roles, roles, count * sizeof *roles);
            memcpy(run->state->work, work, count * sizeof *work);
        }
        for (uint32_t i = 0; i < run->worker_count; i++)
            run->workers[i].role_index = place[run->workers[i].role_index];
    }
    free(order);
    free(roles);
    free(work);
    free(place);
    return status;
}

static lp_status finish_roles(lp_run *run)
{
    balance all = {0};

    for (uint32_t i = 0; i < run->worker_count; i++) {
        lp_run_role *role = &run->roles[run->workers[i].role_index];
        role->wall_ns = lp__add_u64(role->wall_ns, lp__add_u64(run->workers[i].wall_ns, run->workers[i].open_ns));
        balance_add(&all, &run->workers[i], i);
    }
    run->imbalance = balance_ratio(&all);
    run->slowest = all.slowest;
    lp_status status = order_roles(run);
    if (status != LP_OK)
        return status;
    balance *of_role = calloc(run->role_count + 1, sizeof *of_role);
    if (!of_role)
        return LP_E_MEMORY;
    for (uint32_t i = 0; i < run->worker_count; i++)
        balance_add(&of_role[run->workers[i].role_index], &run->workers[i], i);
    for (uint32_t i = 0; i < run->role_count; i++) {
        lp_run_role *role = &run->roles[i];
        const role_work *work = &run->state->work[i];
        role->imbalance = balance_ratio(&of_role[i]);
        role->slowest = of_role[i].slowest;
        role->own_ns = work->entry_ns + work->count_ns;
        role->own_cost_ns = work->entries > 0.0 ? work->entry_ns / work->entries : 0.0;
        role->own_count_cost_ns = work->counts > 0.0 ? work->count_ns / work->counts : 0.0;
    }
    free(of_role);
    return LP_OK;
}

/* Its open phases by index of a tree that has their paths; open_ns: NULL if it does not matter. */
static void add_open(const lp_run_worker *worker, const lp_tree *tree, uint64_t *open_entries, uint64_t *open_ns)
{
    for (uint32_t o = 0; o < worker->open_count; o++) {
        const lp_run_open *open = &worker->open[o];
        uint32_t at = 0;
        for (uint32_t d = 0; d < open->depth && at != UINT32_MAX; d++)
            at = lp_tree_find(tree, at, open->path[d]);
        if (at == UINT32_MAX)
            continue;
        open_entries[at]++;
        if (open_ns)
            open_ns[at] = lp__add_u64(open_ns[at], open->open_ns);
    }
}

static lp_status finish_open(lp_run *run)
{
    for (uint32_t i = 0; i < run->role_count; i++) {
        lp_run_role *role = &run->roles[i];
        role->open_ns = calloc(role->tree.count + 1u, sizeof *role->open_ns);
        role->open_entries = calloc(role->tree.count + 1u, sizeof *role->open_entries);
        if (!role->open_ns || !role->open_entries)
            return LP_E_MEMORY;
    }
    for (uint32_t i = 0; i < run->worker_count; i++) {
        lp_run_role *role = &run->roles[run->workers[i].role_index];
        add_open(&run->workers[i], &role->tree, role->open_entries, role->open_ns);
    }
    return LP_OK;
}

lp_status lp_run_finish(lp_run *run)
{
    if (run->state->finished)
        return LP_E_ARGUMENT;
    finish_times(run);
    lp_status status = finish_roles(run);
    if (status == LP_OK)
        status = finish_open(run);
    if (status != LP_OK)
        return status;
    if (run->host_count > 1)
        qsort(run->hosts, run->host_count, sizeof *run->hosts, by_host);
    if (run->empty_reason[0] == '\0' && run->worker_count + run->superseded_count + run->unreadable_count == 0)
        run->empty_reason = "no_worker_files";
    run->state->finished = true;
    return LP_OK;
}

const lp_tree *lp_run_tree(lp_run *run)
{
    struct lp__run_state *state = run->state;

    if (run->role_count == 1)
        return &run->roles[0].tree;
    if (state->tree_arena)
        return &state->tree;
    lp_arena *arena = lp_arena_new();
    if (!arena)
        return NULL;
    lp_status status = lp_tree_init(&state->tree, arena);
    for (uint32_t i = 0; status == LP_OK && i < run->role_count; i++)
        status = lp_tree_merge(&state->tree, 0, &run->roles[i].tree);
    state->tree_open = status == LP_OK ? lp_arena_take(arena, state->tree.count * sizeof *state->tree_open) : NULL;
    if (!state->tree_open) {
        lp_arena_free(arena);
        return NULL;
    }
    for (uint32_t i = 0; i < run->worker_count; i++)
        add_open(&run->workers[i], &state->tree, state->tree_open, NULL);
    state->tree_arena = arena;
    return &state->tree;
}

const uint64_t *lp_run_open_entries(lp_run *run)
{
    if (!lp_run_tree(run))
        return NULL;
    return run->role_count == 1 ? run->roles[0].open_entries : run->state->tree_open;
}

const lp_run_role *lp_run_role_find(const lp_run *run, lp_str name)
{
    for (uint32_t i = 0; i < run->role_count; i++)
        if (lp__str_equal(run->roles[i].name, name))
            return &run->roles[i];
    return NULL;
}
