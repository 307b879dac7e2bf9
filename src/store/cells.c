/* Sparse histograms: sorted lists of non-empty cells (core/hist.h). */
#include "core/hist.h"
#include "store/internal.h"

uint64_t lp_cells_total(const lp_cells *cells)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < cells->size; i++)
        total = lp__add(total, cells->at[i].count);
    return total;
}

/* Nearest rank: the cell that holds the ceil(q * n)-th smallest value. */
double lp_cells_quantile(const lp_cells *cells, double q)
{
    uint64_t total = lp_cells_total(cells);
    if (total == 0)
        return 0.0;
    double wanted = q >= 1.0 ? (double)total : q > 0.0 ? q * (double)total : 0.0;
    uint64_t rank = wanted >= 0x1p64 ? total : (uint64_t)wanted;
    /* q * n in binary may come out a little above a whole number (0.07 * 100): that is still that rank */
    if (wanted - (double)rank > 1e-9 * wanted)
        rank++;
    rank = rank < 1 ? 1 : rank > total ? total : rank;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < cells->size; i++) {
        seen = lp__add(seen, cells->at[i].count);
        if (seen >= rank)
            return lp_hist_value(cells->at[i].index);
    }
    return lp_hist_value(cells->at[cells->size - 1].index);
}

static uint32_t missing_in(const lp_cells *target, const lp_cells *source)
{
    uint32_t missing = 0, t = 0;
    for (uint32_t s = 0; s < source->size; s++) {
        while (t < target->size && target->at[t].index < source->at[s].index)
            t++;
        missing += t == target->size || target->at[t].index != source->at[s].index;
    }
    return missing;
}

lp_status lp_cells_merge(lp_arena *arena, lp_cells *target, const lp_cells *source)
{
    uint32_t missing = missing_in(target, source);
    uint32_t size = target->size + missing;
    uint32_t room = target->capacity ? target->capacity : target->size;

    if (size > room) {
        uint32_t capacity = target->size ? size + size / 2 : size;
        lp_cell *grown = lp_arena_take(arena, capacity * sizeof *grown);
        if (!grown)
            return LP_E_MEMORY;
        if (target->size)
            memcpy(grown, target->at, target->size * sizeof *grown);
        target->at = grown;
        target->capacity = capacity;
    }
    if (missing == 0) { /* as most are, of the same phase in many processes: nothing moves */
        lp_cell *at = target->at;
        for (uint32_t s = 0; s < source->size; s++) {
            while (at->index < source->at[s].index)
                at++;
            at->count = lp__add(at->count, source->at[s].count);
        }
        return LP_OK;
    }
    /* from the back, so that the cells need no second array */
    uint32_t t = target->size, to = size;
    for (uint32_t s = source->size; s-- > 0;) {
        while (t > 0 && target->at[t - 1].index > source->at[s].index)
            target->at[--to] = target->at[--t];
        lp_cell cell = source->at[s];
        if (t > 0 && target->at[t - 1].index == cell.index)
            cell.count = lp__add(cell.count, target->at[--t].count);
        target->at[--to] = cell;
    }
    target->size = size;
    return LP_OK;
}
