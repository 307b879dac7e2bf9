/* One process as the sampler knows it: its files in /proc, its phases, the rows that wait to be written. */
#ifndef LP_COLLECTOR_SAMPLED_H
#define LP_COLLECTOR_SAMPLED_H

#include "collector/streams.h"
#include "collector/watch.h"
#include "sample/gpu.h"
#include "sample/process.h"
#include "sample/reaped.h"
#include "store/open_phases.h"

#define LP__SPLIT_THREADS LP_OPEN_THREADS /* recording threads whose CPU time is compared: all that are looked at */

#define LP__NODES_KNOWN 8u /* a power of two */

typedef struct lp__sampled {
    struct lp__sampled *next;
    lp__watched *watched; /* borrowed; NULL: gone */
    int segment;          /* owned: a copy of the descriptor */
    lp_process process;
    lp_reason missing;                     /* why `process` is not open; LP_REASON_NONE: it is */
    int64_t start;                         /* start time that it must have, 0: any */
    lp_sample_writer *writer;              /* owned */
    lp__stream *stream;                    /* the list's (streams.h) */
    uint64_t interval_ns, due_ns, last_ns; /* CLOCK_MONOTONIC; last: of the last row, 0 none */
    uint64_t missed;
    lp_reaped reaped; /* recorded children of it that have ended */
    bool told;        /* its own parent knows that it has ended */
    struct {
        uint64_t key;  /* thread's name if that is a level, and the path's id in the process */
        uint32_t path; /* in the file */
    } *paths;          /* owned: a hash of path_room, a power of two; path 0: empty */
    uint32_t path_count, path_room;
    struct {
        int64_t tid, cpu_ns;
        uint64_t seen; /* row in which it was read */
    } split[LP__SPLIT_THREADS];
    uint64_t rows; /* for which the segment was looked at */
    struct {
        lp_off node;   /* of some thread's tree, which never goes; 0: empty */
        uint32_t path; /* its path in the file */
    } nodes[LP__NODES_KNOWN];
    struct { /* what the segment said at the last look; a process that has not run since has changed nothing in it */
        bool known, open, clock; /* `clock`: its ticks mean something here */
        uint32_t path;           /* of the phase that gets an interval in which no thread did anything */
        int64_t torch[2];        /* allocated, reserved */
        bool torch_used;
    } quiet;
    int64_t pss_kib;                    /* since the last row; LP_UNKNOWN_I64 */
    lp_reason pss_reason;               /* of what is missing */
    uint64_t pss_ns;                    /* when it was asked for last */
    lp_sample_writer *gpu[LP_GPUS_MAX]; /* owned: of the process on each device that it has used */
} lp__sampled;

/* NULL: no memory, or no descriptor. */
lp__sampled *lp__sampled_new(lp__watch *watch, lp__watched *w, lp__streams *streams, int root);
/* In place of one whose file was removed: what it knows of children that have ended goes on. NULL as above, and `s` is as it was. */
lp__sampled *lp__sampled_again(lp__watch *watch, lp__sampled *s, lp__streams *streams, int root);
/* The rows that wait for a full batch go to the stream. */
void lp__sampled_flush(lp__sampled *s);
/* Everything goes but the stream, whose last bytes may wait for the disk. */
void lp__sampled_free(lp__sampled *s);

typedef struct lp__budgets { /* of one tick */
    unsigned threads, children;
} lp__budgets;
#define LP__CHILDREN_AT_LAST                                                                                           \
    64u /* all that are known: one that was waited for meanwhile must not count as living, too */
/* Has the process closed its segment, and said there what it had used? Then that is its last row, and taken if it was not yet. */
bool lp__sampled_closed(lp__sampled *s, const lp__watch *watch, int root);
/* Of one that has ended: its parent, if that is sampled, will show what it had used as its own once it has waited for it. */
void lp__sampled_tell_parent(lp__sampled *s, const lp__watch *watch, int root);
/* Takes a row at `now`. `last`: the process has ended, and there may be nothing to take. */
void lp__sampled_row(lp__sampled *s, const lp__watch *watch, int root, uint64_t now, uint64_t unix_ns,
                     lp__budgets *budgets, bool last);

#endif
