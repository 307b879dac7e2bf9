/* Sums over a tree that run.c and report.c both need. Internal to the analysis. */
#ifndef LP_ANALYSIS_TREE_MATH_H
#define LP_ANALYSIS_TREE_MATH_H

#include "store/model.h"

static inline uint64_t lp__add_u64(uint64_t a, uint64_t b) /* stays at the largest: values come from files */
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t lp__sub_u64(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* true: the node was never entered itself (a thread's name, or a path that only has children). */
static inline bool lp__phase_is_synthetic(const lp_phase *phase, uint64_t open_entries)
{
    return phase->entries == 0 && phase->wall_ns == 0 && open_entries == 0;
}

/* By phase index: finished wall time in wall[], time of open entries in open[] (in: of the phase itself, out: with a
 * synthetic one standing for its children). The root always stands for its children. */
void lp__tree_extents(const lp_tree *tree, const uint64_t *open_entries, uint64_t *wall, uint64_t *open);

int lp__str_compare(lp_str a, lp_str b); /* bytewise, shorter first */

static inline bool lp__str_equal(lp_str a, lp_str b)
{
    return lp__str_compare(a, b) == 0;
}

#endif
