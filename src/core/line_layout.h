/* What the line engine leaves in a segment: the payloads of the blocks LP_BLOCK_LINE_* of core/layout.h.
 *
 * Written by core/lines.h, core/lines.c and core/line_stack.c, each block by one thread only; read with pread. All figures only
 * grow until somebody clears them. Times are in ticks less the engine's own cost. A cell has no sequence: a reader may
 * find its counts and its times one event apart. Signed comparison is meant where a time is above 2^63: a cost taken off may
 * exceed what a short line took, and only the sum over many visits is never below zero. */
#ifndef LP_CORE_LINE_LAYOUT_H
#define LP_CORE_LINE_LAYOUT_H

#include "core/layout.h"

typedef struct lp_seg_line_code { /* one code object */
    uint32_t index;               /* 0, 1, … in the process */
    int32_t first_line;
    lp_off file;        /* LP_BLOCK_LINE_FILE */
    uint32_t name_size; /* bytes of the qualified name, after this struct */
} lp_seg_line_code;

typedef struct lp_seg_line_thread { /* one thread, or several that came one after another */
    uint32_t number;                /* 0, 1, … in the process */
    uint32_t name_size;             /* bytes of its name, after this struct */
    int64_t tid;                    /* kernel id, 0 when it has ended */
    uint64_t own;  /* ticks taken off as own cost: `since` and `start` of its frames are on the clock less this */
    uint64_t base; /* address of the segment in its process: `cell` of a frame less this is an lp_off */
    lp_off stack;  /* LP_BLOCK_LINE_STACK in use; frames from its second entry on, until `frame` is 0 */
    uint32_t pad;
} lp_seg_line_thread;

typedef struct lp_line_cell {
    uint64_t visits;  /* line events */
    uint64_t again;   /* of these, visits that are no new execution of the statement */
    uint64_t time;    /* callees included; the outermost visit only */
    uint64_t self;    /* without profiled callees */
    uint64_t awaited; /* between suspension and resumption on this line; wall time, no cost taken off */
    int32_t line;     /* line number */
    uint32_t open;    /* frames that are on this line now; counted in the cells of region 0 */
} lp_line_cell;
_Static_assert(sizeof(lp_line_cell) == 48, "six words a line and thread");

typedef struct lp_seg_line_cells { /* figures of one code object in one thread and one region */
    uint32_t code;                 /* index */
    uint32_t thread;               /* number */
    uint32_t region;               /* number in the thread, 0 = outside all regions */
    uint32_t count;                /* of `at` */
    uint64_t calls;
    uint64_t time;      /* of the outermost activation */
    uint64_t prologue;  /* before the first line of a call, self */
    uint64_t suspended; /* yields and awaits */
    uint32_t open;      /* activations now; in the block of region 0 for all regions of the thread */
    lp_off next;        /* older one of the same thread */
    uint64_t size;      /* bytes to the next one in the block; 0: there is none */
    lp_line_cell at[];
} lp_seg_line_cells;
_Static_assert(sizeof(lp_seg_line_cells) == 64, "no holes");

/* One open frame. Addresses are the writer's own; readers use cell, since, covered, start and whether `frame` is 0. */
typedef struct lp_line_frame {
    const void *frame;         /* the interpreter's; NULL ends the stack */
    struct lp_line_code *code; /* core/lines.h */
    lp_line_cell *cells;       /* of thread, region and code */
    lp_line_cell *cell;        /* the current line's; NULL before the first */
    uint64_t since, covered;   /* when that visit began; ticks of profiled callees in it */
    uint64_t start;            /* when this activation began */
    const void *context;       /* execution context it was entered in */
    int64_t shift;             /* bytes from a cell to that of region 0, where `open` is counted */
    uint32_t region;           /* number in the thread */
    uint16_t outermost_line;   /* no other frame of the thread was on this line when the visit began */
    uint16_t outermost_call;   /* no other frame of this code was open in the thread when it was entered */
} lp_line_frame;

typedef struct lp_seg_line_region { /* a region below another one, of one thread */
    uint32_t thread, number, parent;
    uint32_t name_size; /* bytes, after this struct */
    uint64_t entries;
    uint64_t time; /* ticks, finished entries; no name occurs twice on the way to the root */
} lp_seg_line_region;

#endif
