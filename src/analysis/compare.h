/* Two runs, phase by phase over all roles: means and medians of an entry. */
#ifndef LP_ANALYSIS_COMPARE_H
#define LP_ANALYSIS_COMPARE_H

#include "store/model.h"

#define LP_THIN_EVIDENCE 30u /* fewer measured entries in one run: marked "?" */
#define LP_TAIL_MOVED 0.10   /* the mean (median) moved by more than this … */
#define LP_TAIL_STILL 0.05   /* … while the median (mean) moved by less than this: marked "~" */

typedef struct lp_compared {      /* one of the runs */
    const lp_tree *tree;          /* borrowed */
    const uint64_t *open_entries; /* by phase index: entries that are open; borrowed, NULL: none */
} lp_compared;

typedef struct lp_delta {
    lp_str path;   /* names joined by "/"; owned by the comparison */
    lp_str *names; /* from the top down; borrowed from the trees */
    uint32_t depth;
    uint64_t entries_a, entries_b;   /* finished */
    uint64_t open_a, open_b;         /* entries that were open when the run was read */
    double per_entry_a, per_entry_b; /* mean, ns; 0 without entries */
    double p50_a, p50_b;             /* ns */
    double ratio, p50_ratio;         /* b / a; 0 where only one has finished entries */
    double percent;                  /* (ratio - 1) * 100; 0 where only one has */
    uint64_t samples;                /* the smaller number of finished entries; where only one has any, its */
    uint64_t measured;               /* and of measured ones, which are fewer with sample= */
    bool thin, tail_moved;
    char only_in;       /* 'A', 'B': the other run never entered it; or 0 */
    char unfinished_in; /* 'A', 'B': that run entered it and has finished no entry, the other has; or 0 */
} lp_delta;

typedef struct lp_comparison {
    lp_arena *arena; /* owned */
    lp_delta
        *rows; /* owned; finished in one run only first (by wall time, descending), then the largest regression first */
    uint32_t count;
} lp_comparison;

/* *comparison is owned by the caller; the trees must outlive it. Phases without finished entries in either are left out. */
lp_status lp_compare(lp_compared a, lp_compared b, lp_comparison **comparison);
void lp_comparison_free(lp_comparison *comparison); /* NULL is allowed */

#endif
