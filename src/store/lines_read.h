/* Reading what a line-profiled process has in its segment (core/line_layout.h): a running, hung, killed or ended one's. Trusts
 * nothing. Figures of a running process are of about now, and one event apart at most within a line. */
#ifndef LP_STORE_LINES_READ_H
#define LP_STORE_LINES_READ_H

#include "store/model.h"

typedef struct lp_figures_code { /* a code object; index = position */
    lp_str file, name;           /* name: qualified, empty where the description is missing */
    int32_t first_line;
} lp_figures_code;

typedef struct lp_figures_row { /* a line in one thread and region; rows of one line and thread add up */
    uint32_t code, thread;
    int32_t line;
    uint64_t hits, visits, time_ns, self_ns, awaited_ns;
} lp_figures_row;

typedef struct lp_figures_call { /* a function in one thread and region; the same */
    uint32_t code, thread;
    uint64_t calls, time_ns, self_ns, awaited_ns, suspended;
} lp_figures_call;

typedef struct lp_figures_open { /* a frame that is open, outermost first in each thread */
    uint32_t code, thread;
    int32_t line;      /* 0: before its first line */
    uint64_t since_ns; /* how long it has been there; up to the last event of the thread where the process has ended */
} lp_figures_open;

typedef struct lp_figures_thread {
    lp_str name;
    int64_t tid; /* 0: ended */
} lp_figures_thread;

typedef struct lp_line_figures {
    lp_arena *arena;
    int64_t pid;
    uint64_t started_ns; /* Unix time */
    bool living;         /* the process runs */
    bool closed;         /* it has closed its segment itself */
    lp_figures_code *codes;
    lp_figures_row *rows;
    lp_figures_call *calls;
    lp_figures_open *open;
    lp_figures_thread *threads; /* by number */
    uint32_t code_count, row_count, call_count, open_count, thread_count;
} lp_line_figures;

/* From an open file. `fd` must not carry a flock of the caller's: it would be dropped. LP_E_FOREIGN: no segment. *figures is owned
 * by the caller. */
lp_status lp_line_figures_read(int fd, const char *name, lp_line_figures **figures, lp_error *error);
void lp_line_figures_free(lp_line_figures *figures); /* NULL is allowed */

#endif
