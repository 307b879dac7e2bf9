/* How the lines of the live view's table go to the roles. */
#ifndef LP_RENDER_TOP_LINES_H
#define LP_RENDER_TOP_LINES_H

#include <limits.h>

#include "analysis/top.h"

#define LP_TOP_ALL_LINES UINT_MAX

/* A heading each, and as many rows for all that have as many. */
typedef struct lp_top_division {
    bool several; /* roles: what is left out of one is told by a line */
    bool tight;   /* there is no room for a row and that line of each: the headings, and the rows of the first roles */
    uint32_t share; /* rows of a role */
    unsigned left;  /* tight: rows in all; else roles that have one row more */
} lp_top_division;

/* For `room` lines; LP_TOP_ALL_LINES: as many as there are. */
lp_top_division lp__top_divide(const lp_top *top, unsigned room);
/* Rows of the next role that are shown; it has `rows`. To be called role by role, in order. */
uint32_t lp__top_take_rows(lp_top_division *of, uint32_t rows);

#endif
