#include "analysis/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analysis/tree_math.h"
#include "core/clock.h"
#include "store/rundir_cache.h"

#define CACHE_BYTES (64u << 20)

typedef struct tally { /* finished entries of a phase at the look before */
    uint64_t key;      /* hash of role and path */
    uint64_t entries;
} tally;

struct lp__top_memory {
    lp_rundir_cache *cache; /* owned */
    tally *before, *now;    /* owned; by key; of the look before and of the last one */
    size_t before_count, now_count;
    uint64_t looked_ns; /* CLOCK_MONOTONIC, 0 never */
    lp_top_row *rows;   /* owned: room for all */
};

lp_top *lp_top_new(void)
{
    lp_top *top = calloc(1, sizeof *top);

    if (!top)
        return NULL;
    top->memory = calloc(1, sizeof *top->memory);
    if (top->memory)
        top->memory->cache = lp_rundir_cache_new(CACHE_BYTES);
    if (!top->memory || !top->memory->cache) {
        lp_top_free(top);
        return NULL;
    }
    return top;
}

static void forget_arrangement(lp_top *top)
{
    free(top->roles);
    free(top->dead);
    free(top->memory->rows);
    top->roles = NULL;
    top->dead = NULL;
    top->memory->rows = NULL;
    top->role_count = top->dead_count = 0;
}

void lp_top_free(lp_top *top)
{
    if (!top)
        return;
    if (top->memory) {
        forget_arrangement(top);
        lp_rundir_cache_free(top->memory->cache);
        free(top->memory->before);
        free(top->memory->now);
        free(top->memory);
    }
    lp_report_free(top->report);
    lp_run_free(top->run);
    free(top);
}

static uint64_t mix(uint64_t hash, lp_str text)
{
    for (size_t i = 0; i < text.size; i++)
        hash = (hash ^ (unsigned char)text.data[i]) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u; /* no UTF-8 text holds that byte: "a", "bc" is not "ab", "c" */
}

/* By names, not by the path that is shown: a phase "a/b" is another one than "b" in "a". */
static uint64_t key_of(const lp_report_role *role, const lp_report_phase *phase)
{
    uint64_t key = mix(mix(0xcbf29ce484222325u, role->role->name), phase->name);

    for (uint32_t at = phase->parent; at != LP_NO_PHASE; at = role->phases[at].parent)
        key = mix(key, role->phases[at].name);
    return key;
}

static int by_key(const void *a, const void *b)
{
    const tally *x = a, *y = b;

    return x->key < y->key ? -1 : x->key > y->key;
}

static tally *list_tallies(const lp_report *report, size_t *count)
{
    size_t total = 0, size = 0;

    for (uint32_t r = 0; r < report->role_count; r++)
        total += report->roles[r].phase_count;
    tally *list = malloc((total + 1) * sizeof *list);
    if (!list)
        return NULL;
    for (uint32_t r = 0; r < report->role_count; r++) {
        const lp_report_role *role = &report->roles[r];
        for (uint32_t p = 0; p < role->phase_count; p++)
            list[size++] = (tally){key_of(role, &role->phases[p]), role->phases[p].entries};
    }
    if (size > 1)
        qsort(list, size, sizeof *list, by_key);
    *count = size;
    return list;
}

lp_status lp_top_look(lp_top *top, const char *directory, lp_error *error)
{
    struct lp__top_memory *memory = top->memory;
    const lp_run_options options = {.segments = true, .cache = memory->cache};
    uint64_t began = lp_clock_ns(CLOCK_THREAD_CPUTIME_ID), now = lp_clock_ns(CLOCK_MONOTONIC);
    lp_run *run = NULL;
    lp_report *report = NULL;
    size_t count = 0;

    lp_status status = lp_run_load(directory, options, &run, error);
    if (status != LP_OK)
        return status;
    status = lp_report_new(run, &report);
    tally *tallies = status == LP_OK ? list_tallies(report, &count) : NULL;
    if (!tallies) {
        lp_report_free(report);
        lp_run_free(run);
        return lp_error_set(error, LP_E_MEMORY, 0, UINT64_MAX, "%s: %s", directory, lp_status_text(LP_E_MEMORY));
    }
    bool same_run = !top->run || lp__str_equal(top->run->run_id, run->run_id);
    forget_arrangement(top);
    lp_report_free(top->report);
    lp_run_free(top->run);
    top->run = run;
    top->report = report;
    free(memory->before);
    memory->before = memory->now;
    memory->before_count = same_run ? memory->now_count : 0; /* an attempt that is new begins from nothing */
    memory->now = tallies;
    memory->now_count = count;
    top->seconds = memory->looked_ns > 0 ? (double)(now - memory->looked_ns) / 1e9 : 0.0;
    memory->looked_ns = now;
    top->cost_ns = lp_clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    return LP_OK;
}

/* ---- choice and order */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static bool holds(lp_str text, lp_str part)
{
    for (size_t at = 0; at + part.size <= text.size; at++) {
        size_t i = 0;
        while (i < part.size && lower(text.data[at + i]) == lower(part.data[i]))
            i++;
        if (i == part.size)
            return true;
    }
    return false;
}

static double rate_of(const lp_top *top, uint64_t key, uint64_t entries)
{
    const struct lp__top_memory *memory = top->memory;
    const tally wanted = {.key = key};

    if (!(top->seconds > 0.0) || !memory->before)
        return (double)NAN;
    const tally *before = memory->before_count > 0
                              ? bsearch(&wanted, memory->before, memory->before_count, sizeof *memory->before, by_key)
                              : NULL;
    return (double)lp__sub_u64(entries, before ? before->entries : 0) / top->seconds;
}

typedef struct sorted { /* what qsort compares needs the phase, the figure and the direction */
    lp_top_row row;
    double figure; /* larger first; NaN last */
    lp_str name;
    bool by_name, reverse;
} sorted;

static double figure_of(const lp_report_phase *phase, double rate, lp_top_order order)
{
    switch (order) {
    case LP_TOP_SELF: return (double)phase->self_ns + (double)phase->open_self_ns;
    case LP_TOP_TOTAL: return (double)phase->extent_ns;
    case LP_TOP_RATE: return rate;
    case LP_TOP_ENTRIES: return (double)phase->entries;
    case LP_TOP_MEAN: return phase->mean_ns;
    case LP_TOP_P95: return phase->p95_ns;
    case LP_TOP_WAIT: return phase->wait;
    case LP_TOP_NAME: break;
    }
    return 0.0;
}

static int by_choice(const void *a, const void *b)
{
    const sorted *x = a, *y = b;
    int order = 0;

    if (isnan(x->figure) != isnan(y->figure)) /* what is not measured stands last either way */
        return isnan(x->figure) ? 1 : -1;
    if (!x->by_name && !isnan(x->figure) && x->figure != y->figure)
        order = x->figure > y->figure ? -1 : 1;
    if (order == 0 && x->by_name)
        order = lp__str_compare(x->name, y->name);
    if (order != 0)
        return x->reverse ? -order : order;
    return x->row.phase < y->row.phase ? -1 : x->row.phase > y->row.phase;
}

static void arrange_role(lp_top *top, const lp_top_choice *choice, lp_top_role *out, sorted *work, lp_top_row *rows)
{
    const lp_report_role *role = &top->report->roles[out->role];
    uint32_t count = 0;
    double sum = 0.0;

    for (uint32_t i = 0; i < role->by_self_count; i++) {
        uint32_t p = role->by_self[i];
        const lp_report_phase *phase = &role->phases[p];
        double rate = rate_of(top, key_of(role, phase), phase->entries);
        sum += rate;
        if (choice->filter.size > 0 && !holds(phase->path, choice->filter))
            continue;
        work[count++] = (sorted){.row = {p, rate},
                                 .figure = figure_of(phase, rate, choice->order),
                                 .name = phase->path,
                                 .by_name = choice->order == LP_TOP_NAME,
                                 .reverse = choice->reverse};
    }
    if (count > 1)
        qsort(work, count, sizeof *work, by_choice);
    for (uint32_t i = 0; i < count; i++)
        rows[i] = work[i].row;
    out->rows = rows;
    out->row_count = count;
    out->phase_count = role->by_self_count;
    out->rate = role->by_self_count > 0 ? sum : (double)NAN;
}

typedef struct death {
    uint64_t at;
    uint32_t worker;
} death;

static int latest_first(const void *a, const void *b)
{
    const death *x = a, *y = b;

    if (x->at != y->at)
        return x->at > y->at ? -1 : 1;
    return x->worker < y->worker ? -1 : x->worker > y->worker;
}

static lp_status list_dead(lp_top *top)
{
    const lp_report *report = top->report;
    death *list = malloc((report->unclean_count + 1ul) * sizeof *list);

    top->dead = malloc((report->unclean_count + 1ul) * sizeof *top->dead);
    if (!list || !top->dead) {
        free(list);
        return LP_E_MEMORY;
    }
    for (uint32_t i = 0; i < report->unclean_count; i++)
        list[i] = (death){top->run->workers[report->unclean[i]].written_ns, report->unclean[i]};
    if (report->unclean_count > 1)
        qsort(list, report->unclean_count, sizeof *list, latest_first);
    for (uint32_t i = 0; i < report->unclean_count; i++)
        top->dead[i] = list[i].worker;
    top->dead_count = report->unclean_count;
    free(list);
    return LP_OK;
}

static void count_lives(lp_top *top)
{
    for (uint32_t i = 0; i < top->run->worker_count; i++)
        for (uint32_t r = 0; r < top->role_count; r++) {
            lp_top_role *role = &top->roles[r];
            if (role->role != top->run->workers[i].role_index)
                continue;
            uint32_t *const lives[] = {[LP_LIFE_CLOSED] = &role->closed,
                                       [LP_LIFE_RUNNING] = &role->running,
                                       [LP_LIFE_DIED] = &role->died,
                                       [LP_LIFE_LAST_SEEN] = &role->last_seen};
            ++*lives[top->run->workers[i].life];
        }
}

lp_status lp_top_arrange(lp_top *top, const lp_top_choice *choice)
{
    const lp_report *report = top->report;
    size_t total = 0;

    forget_arrangement(top);
    if (!report)
        return LP_OK;
    for (uint32_t r = 0; r < report->role_count; r++)
        total += report->roles[r].by_self_count;
    sorted *work = malloc((total + 1) * sizeof *work);
    top->memory->rows = malloc((total + 1) * sizeof *top->memory->rows);
    top->roles = calloc(report->role_count + 1ul, sizeof *top->roles);
    if (!work || !top->memory->rows || !top->roles || list_dead(top) != LP_OK) {
        free(work);
        forget_arrangement(top);
        return LP_E_MEMORY;
    }
    lp_top_row *rows = top->memory->rows;
    for (uint32_t r = 0; r < report->role_count; r++) {
        lp_str name = report->roles[r].role->name;
        if (choice->role.data && !lp__str_equal(name, choice->role))
            continue;
        lp_top_role *out = &top->roles[top->role_count++];
        out->role = r;
        arrange_role(top, choice, out, work, rows);
        rows += out->row_count;
    }
    free(work);
    count_lives(top);
    return LP_OK;
}
