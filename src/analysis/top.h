/* A run that is looked at again and again: what a live view shows, derived from the report of each look and the counts of the
 * look before.
 *
 * A look reads the segments of this host, and snapshots only when they are new. Nothing is written or adopted. */
#ifndef LP_ANALYSIS_TOP_H
#define LP_ANALYSIS_TOP_H

#include "analysis/report.h"

typedef enum lp_top_order {
    LP_TOP_SELF,
    LP_TOP_TOTAL,
    LP_TOP_RATE,
    LP_TOP_ENTRIES,
    LP_TOP_MEAN,
    LP_TOP_P95,
    LP_TOP_WAIT,
    LP_TOP_NAME
} lp_top_order;

typedef struct lp_top_row { /* a phase of a role */
    uint32_t phase;
    double rate; /* finished entries a second since the look before; NaN: there was none */
} lp_top_row;

typedef struct lp_top_role {
    uint32_t role;                             /* into report->roles */
    uint32_t running, closed, died, last_seen; /* its workers by life */
    double rate;                               /* of all its phases; NaN as above */
    lp_top_row *rows;                          /* that were chosen, in order; owned by the view */
    uint32_t row_count, phase_count;           /* phase_count: before the filter */
} lp_top_role;

typedef struct lp_top_choice {
    lp_top_order order;
    bool reverse;
    lp_str role;   /* of this name only; data NULL: all */
    lp_str filter; /* what a phase's path holds, upper and lower case alike (ASCII); "" all */
} lp_top_choice;

typedef struct lp_top {
    lp_run *run;        /* owned; of the last look, NULL before the first */
    lp_report *report;  /* owned */
    double seconds;     /* between the last two looks; 0 before there were two */
    uint64_t cost_ns;   /* CPU time of the last look */
    lp_top_role *roles; /* owned; as chosen by lp_top_arrange, in the report's order */
    uint32_t role_count;
    uint32_t *dead; /* owned: indices of the unclean workers, the latest death first */
    uint32_t dead_count;
    struct lp__top_memory *memory; /* private */
} lp_top;

lp_top *lp_top_new(void);      /* owned by the caller; NULL without memory */
void lp_top_free(lp_top *top); /* NULL is allowed */
/* Reads the run directory again. On failure the view stays as it was. */
lp_status lp_top_look(lp_top *top, const char *directory, lp_error *error);
/* Fills roles, rows and dead from the last look. LP_E_MEMORY: they are empty. */
lp_status lp_top_arrange(lp_top *top, const lp_top_choice *choice);

#endif
