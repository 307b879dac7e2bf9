#include "analysis/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/tree_math.h"
#include "store/arena.h"

/* One of them moved, the other did not. */
static bool only_one_moved(double ratio, double other)
{
    return fabs(ratio - 1.0) > LP_TAIL_MOVED && fabs(other - 1.0) < LP_TAIL_STILL;
}

/* By its cell, not clamped to the minimum and maximum of one run: equal distributions must have equal medians. */
static double median(const lp_phase *phase)
{
    return phase->hist.size > 0 ? lp_cells_quantile(&phase->hist, 0.5) : 0.0;
}

static void set_side(const lp_compared *run, uint32_t index, uint64_t *entries, uint64_t *open, uint64_t *measured,
                     double *per_entry, double *p50)
{
    const lp_phase *phase = &run->tree->phases[index];

    *open = run->open_entries ? run->open_entries[index] : 0;
    if (phase->entries == 0)
        return;
    *entries = phase->entries;
    *measured = phase->stride > 1 ? phase->entries / phase->stride : phase->entries; /* of a sample */
    *per_entry = (double)phase->wall_ns / (double)phase->entries;
    *p50 = median(phase);
}

static lp_status set_path(lp_arena *arena, const lp_tree *tree, uint32_t index, lp_delta *row)
{
    size_t size = 0, at = 0;

    for (uint32_t i = index; i != 0; i = tree->phases[i].parent) {
        row->depth++;
        size += tree->phases[i].name.size + 1;
    }
    row->names = lp_arena_take(arena, row->depth * sizeof *row->names);
    char *text = lp_arena_take(arena, size + 1);
    if (!row->names || !text)
        return LP_E_MEMORY;
    for (uint32_t i = index, level = row->depth; i != 0; i = tree->phases[i].parent)
        row->names[--level] = tree->phases[i].name;
    for (uint32_t level = 0; level < row->depth; level++) {
        if (level > 0)
            text[at++] = '/';
        if (row->names[level].size > 0)
            memcpy(text + at, row->names[level].data, row->names[level].size);
        at += row->names[level].size;
    }
    row->path = (lp_str){text, at};
    return LP_OK;
}

static void judge(lp_delta *row)
{
    row->thin = row->measured < LP_THIN_EVIDENCE;
    row->samples = row->entries_a < row->entries_b ? row->entries_a : row->entries_b;
    if (row->samples == 0) {
        row->samples = row->entries_a + row->entries_b;
        if (row->entries_a == 0)
            *(row->open_a ? &row->unfinished_in : &row->only_in) = row->open_a ? 'A' : 'B';
        else
            *(row->open_b ? &row->unfinished_in : &row->only_in) = row->open_b ? 'B' : 'A';
        return;
    }
    row->ratio = row->per_entry_a > 0.0 ? row->per_entry_b / row->per_entry_a : 0.0;
    row->p50_ratio = row->p50_a > 0.0 ? row->p50_b / row->p50_a : 0.0;
    row->percent = row->per_entry_a > 0.0 ? (row->ratio - 1.0) * 100.0 : 0.0;
    if (row->ratio > 0.0 && row->p50_ratio > 0.0)
        row->tail_moved = only_one_moved(row->ratio, row->p50_ratio) || only_one_moved(row->p50_ratio, row->ratio);
}

/* One phase: its index in each run, UINT32_MAX where it is missing in that one. */
static lp_status add_row(lp_comparison *to, const lp_compared *run_a, uint32_t a, const lp_compared *run_b, uint32_t b)
{
    lp_delta *row = &to->rows[to->count];
    uint64_t measured_a = 0, measured_b = 0;

    memset(row, 0, sizeof *row);
    if (a != UINT32_MAX)
        set_side(run_a, a, &row->entries_a, &row->open_a, &measured_a, &row->per_entry_a, &row->p50_a);
    if (b != UINT32_MAX)
        set_side(run_b, b, &row->entries_b, &row->open_b, &measured_b, &row->per_entry_b, &row->p50_b);
    if (row->entries_a == 0 && row->entries_b == 0)
        return LP_OK;
    row->measured = row->entries_a == 0 || (row->entries_b && measured_b < measured_a) ? measured_b : measured_a;
    judge(row);
    lp_status status = set_path(to->arena, a != UINT32_MAX ? run_a->tree : run_b->tree, a != UINT32_MAX ? a : b, row);
    if (status == LP_OK)
        to->count++;
    return status;
}

/* twin[i]: index in `other` of the same path, UINT32_MAX if there is none. */
static uint32_t *find_twins(const lp_tree *tree, const lp_tree *other)
{
    uint32_t *twin = malloc((tree->count + 1ul) * sizeof *twin);

    if (!twin)
        return NULL;
    for (uint32_t i = 0; i < tree->count; i++) {
        uint32_t above = i == 0 ? 0 : twin[tree->phases[i].parent];
        twin[i] = i == 0 ? 0 : above == UINT32_MAX ? UINT32_MAX : lp_tree_find(other, above, tree->phases[i].name);
    }
    return twin;
}

static double wall(const lp_delta *row)
{
    return (double)row->entries_a * row->per_entry_a + (double)row->entries_b * row->per_entry_b;
}

static int order(const void *a, const void *b)
{
    const lp_delta *x = a, *y = b;

    bool x_alone = x->entries_a == 0 || x->entries_b == 0, y_alone = y->entries_a == 0 || y->entries_b == 0;
    if (x_alone != y_alone)
        return x_alone ? -1 : 1;
    double left = x_alone ? wall(x) : x->ratio, right = x_alone ? wall(y) : y->ratio;
    if (left != right)
        return left > right ? -1 : 1;
    return lp__str_compare(x->path, y->path);
}

lp_status lp_compare(lp_compared a, lp_compared b, lp_comparison **out)
{
    lp_comparison *comparison = calloc(1, sizeof *comparison);
    uint32_t *twin_a = find_twins(a.tree, b.tree), *twin_b = find_twins(b.tree, a.tree);
    lp_status status = LP_E_MEMORY;

    if (!comparison || !twin_a || !twin_b)
        goto done;
    comparison->arena = lp_arena_new();
    comparison->rows = malloc((a.tree->count + (size_t)b.tree->count + 1) * sizeof *comparison->rows);
    if (!comparison->arena || !comparison->rows)
        goto done;
    status = LP_OK;
    for (uint32_t i = 1; status == LP_OK && i < a.tree->count; i++)
        status = add_row(comparison, &a, i, &b, twin_a[i]);
    for (uint32_t i = 1; status == LP_OK && i < b.tree->count; i++)
        if (twin_b[i] == UINT32_MAX)
            status = add_row(comparison, &a, UINT32_MAX, &b, i);
    if (status == LP_OK && comparison->count > 1)
        qsort(comparison->rows, comparison->count, sizeof *comparison->rows, order);
done:
    free(twin_a);
    free(twin_b);
    if (status != LP_OK)
        lp_comparison_free(comparison);
    else
        *out = comparison;
    return status;
}

void lp_comparison_free(lp_comparison *comparison)
{
    if (!comparison)
        return;
    lp_arena_free(comparison->arena);
    free(comparison->rows);
    free(comparison);
}
