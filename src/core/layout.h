/* The segment: what a recording process leaves in shared memory, byte for byte.
 *
 * Written by core/segment.c and core/record.h, read by store/segment_read.c (with pread, never through a mapping).
 * All integers are of the machine's own byte order and at their natural alignment; a reader refuses another order,
 * another `layout` and anything that points outside `used`. An lp_off is a byte offset from the start, 0 = none.
 *
 * header | block | block | …
 * The first block starts at header_size. A block is {kind, size, owner} followed by its payload; a reader walks the
 * blocks by their sizes until it meets kind 0 or `used`, and skips kinds that it does not know: the timeline's ring
 * will come as a new kind, and core/line_layout.h has those of the line engine. Kinds are published last (release).
 *
 * Consistency. A node and each counter carry two sequence words, `begun` at the end of the struct and `done` at its
 * start. The writer adds 1 to `begun`, changes the fields, then adds 1 to `done`. A copy made with ascending
 * addresses (done, fields, begun) is consistent when both are equal. A thread that is killed in between leaves its
 * undo record valid: the reader puts the old values back in its copy, so that entries = sum of the histogram.
 * The writer's order: undo.old, undo.valid = 1, begun + 1, fields, done + 1, undo.valid = 0.
 *
 * Times are in ticks of the process's clock (see lp_seg_clock); `away` and `starved` are ns. */
#ifndef LP_CORE_LAYOUT_H
#define LP_CORE_LAYOUT_H

#include <stdint.h>

#include "core/hist.h"

#define LP_SEG_MAGIC 0x0a1a0d47455350ull /* "PSEG\r\x1a\n\0": text-mode copies show */
#define LP_SEG_LAYOUT 2u
#define LP_SEG_ORDER 0x01020304u
#define LP_SEG_HEADER 2560u      /* where our first block starts; of another build: header_size. With room for more */
#define LP_SEG_START (12u << 10) /* bytes populated at creation: enough for some phases, and each page costs 0.7 us */
#define LP_SEG_NEXT (16u << 10)  /* taken at a time after that, up to */
#define LP_SEG_STEP (64u << 10)  /* and from here on */

typedef uint32_t lp_off;

typedef enum lp_seg_state { LP_SEG_CREATING = 0, LP_SEG_RECORDING = 1, LP_SEG_CLOSED = 2 } lp_seg_state;
typedef enum lp_seg_kind {
    LP_BLOCK_NONE = 0,
    LP_BLOCK_IDENTITY = 1, /* payload: u64 length, then the Identity message of proto/lineprofiler.proto */
    LP_BLOCK_NAMES = 2,    /* payload: lp_seg_names */
    LP_BLOCK_THREAD = 3,   /* payload: lp_seg_thread */
    LP_BLOCK_ARENA = 4,    /* payload: nodes, cells, counters and entries of thread `owner`, reached from it */
    /* of the line engine, core/line_layout.h */
    LP_BLOCK_LINE_CODE = 16,   /* payload: lp_seg_line_code */
    LP_BLOCK_LINE_THREAD = 17, /* payload: lp_seg_line_thread */
    LP_BLOCK_LINE_CELLS = 18,  /* payload: lp_seg_line_cells, one after another; owner: its thread's payload */
    LP_BLOCK_LINE_STACK = 19,  /* payload: lp_line_frame[]; owner: its thread's payload */
    LP_BLOCK_LINE_REGION = 20, /* payload: lp_seg_line_region */
    LP_BLOCK_LINE_FILE = 21    /* payload: u32 size, bytes: a file's name */
} lp_seg_kind;

typedef struct lp_seg_block {
    uint32_t kind;  /* lp_seg_kind; stored last */
    uint32_t owner; /* lp_off of the lp_seg_thread that it belongs to, 0 = the process */
    uint64_t size;  /* with this head; a multiple of 64 */
} lp_seg_block;

typedef enum lp_clock_kind { LP_CLOCK_MONOTONIC = 0, LP_CLOCK_TSC = 1, LP_CLOCK_CNTVCT = 2 } lp_clock_kind;
typedef enum lp_cpu_kind { LP_CPU_NONE = 0, LP_CPU_RSEQ = 1, LP_CPU_PERF = 2, LP_CPU_SYSCALL = 3 } lp_cpu_kind;

typedef struct lp_moment { /* one instant on three clocks */
    uint64_t ticks;        /* of the segment's clock */
    uint64_t mono_ns;      /* CLOCK_MONOTONIC */
    uint64_t real_ns;      /* CLOCK_REALTIME, Unix time */
} lp_moment;

typedef struct lp_seg_clock {
    uint32_t kind;  /* lp_clock_kind */
    uint32_t cpu;   /* lp_cpu_kind that the self-test chose */
    uint32_t split; /* 1: starved is read from /proc/thread-self/schedstat */
    uint32_t pad;
    uint64_t mult;      /* ns = ticks * mult / 2^32: best known when last written */
    lp_moment start;    /* when recording began */
    uint64_t last_done; /* sequence words of `last`, as for nodes */
    lp_moment last;     /* at the last flush: with `start` the longest baseline for ticks -> ns */
    uint64_t last_begun;
} lp_seg_clock;

/* Counts of what went wrong; plain relaxed additions by any thread. Mirrors lp_health of store/model.h. */
typedef struct lp_seg_health {
    uint64_t folded_paths, folded_depth, lost_entries, misuse, write_failures, callback_failures, foreign_exits,
        clock_backwards;
    char first_folded[256]; /* path joined by "/", cut; terminated */
    char last_error[256];
} lp_seg_health;

/* What the process read of its own use, when it closed. */
#define LP_SEG_USE_COLUMNS 24u
typedef struct lp_seg_use {
    uint64_t mono_ns;              /* CLOCK_MONOTONIC; stored last. 0: nothing is known */
    uint64_t ticks, ended_ticks;   /* 1/100 s of CPU time: with its ended children; of those alone */
    uint64_t faults, ended_faults; /* minor ones, in the same way */
    uint64_t
        column[LP_SEG_USE_COLUMNS]; /* by the number that a column has in sample files: 1 + its value; 0 not known */
} lp_seg_use;

typedef struct lp_seg_header {
    uint64_t magic;
    uint32_t order;        /* LP_SEG_ORDER as the writer's machine stores it */
    uint32_t layout;       /* LP_SEG_LAYOUT */
    uint32_t header_size;  /* where the first block starts */
    uint32_t state;        /* lp_seg_state */
    uint64_t capacity;     /* bytes reserved; the file's size */
    uint64_t used;         /* bytes of header and published blocks; release */
    uint32_t generation;   /* of the last snapshot: stored by who writes one, the process or its collector */
    uint32_t measure_cpu;  /* 0: measure_cpu=False */
    uint32_t thread_names; /* 1: threads are the first level of the tree */
    uint32_t place;        /* lp_seg_place of core/segment.h */
    int64_t pid;           /* of the writer in its own pid namespace; with pid_start its identity for liveness */
    int64_t pid_start;
    uint64_t started_ns; /* Unix time */
    uint64_t run_dir_dev, run_dir_ino;
    lp_off names;        /* newest NAMES block (they link backwards) */
    uint32_t name_count; /* published names; ids are 1 .. name_count */
    lp_off threads;      /* newest THREAD payload (they link backwards) */
    uint32_t thread_count;
    uint64_t own_cost_ps, own_count_cost_ps;
    lp_seg_clock clock;
    lp_seg_health health;
    uint64_t snapshot_ns; /* interval between snapshots of the living process, 0 = none */
    uint64_t closing;     /* 1: the final snapshot is being written; stored before its generation is taken */
    uint64_t time_ns;     /* inode of the writer's time namespace: pid_start and mono_ns are of its clocks; 0 unknown */
    /* Stored by the collector when the process has died; the rest of the header is the process's. */
    lp_moment died; /* when the collector learnt of it; zeros: not known */
    uint64_t end;   /* how, see store/end.h; 0 nobody has looked */
    /* Of the process again. */
    uint64_t sample_ns; /* interval between samples that its collector takes, 0 = none */
    /* What torch says of this process's GPU memory, bytes, at `torch_when` (ns of CLOCK_MONOTONIC; 0: never). Stored in this
     * order, so that a reader who finds the same `torch_when` before and after has both. */
    uint64_t torch_allocated, torch_reserved, torch_when;
    char asked
        [256]; /* further names for the option "asked", known only after the identity was written: joined by commas, cut;
                      * terminated. Grows at its end, the comma last. */
    char run_dir[1024];       /* absolute path of the run directory when recording began; "" unknown, or too long */
    uint64_t run_dir_born_ns; /* Unix time when run_dir_ino was made, where numbers are given again; 0 unknown */
    lp_seg_use use;           /* stored before the final snapshot is written: its collector's last row of it */
} lp_seg_header;
_Static_assert(sizeof(lp_seg_header) <= LP_SEG_HEADER && LP_SEG_HEADER % 64 == 0, "blocks are aligned to 64 bytes");

/* Names: `count` records {u32 size, bytes, padding to 4}, ids first_id, first_id + 1, … */
typedef struct lp_seg_names {
    lp_off previous; /* payload offset of the older block, 0 = none */
    uint32_t first_id;
    uint32_t count; /* release */
    uint32_t bytes; /* of records, after this struct */
} lp_seg_names;

enum { /* lp_seg_node.flags; LP_PHASE_* of store/model.h have the same values */
       LP_NODE_SAMPLED = 1,
       LP_NODE_ASYNC = 2,
       LP_NODE_IO = 4,
       LP_NODE_OVERLAP = 8,
       LP_NODE_IO_OVERLAP = 16
};

/* The order is that of use: a phase touches the first line, `begun` and one offset of `cells`. */
typedef struct lp_seg_node {
    uint32_t done;                             /* see "Consistency" above */
    uint32_t flags;                            /* LP_NODE_* */
    uint64_t entries, wall, covered, min, max; /* ticks; covered may exceed wall where estimates are involved */
    uint64_t unknown_wall;                     /* part of wall (ticks) whose CPU time is unknown */
    uint64_t away;                             /* ns off the CPU within wall - unknown_wall */
    uint64_t unsplit;                          /* part of away that could not be split */
    uint64_t starved;                          /* ns */
    uint64_t errors, abandoned, async_entries, io_missing;
    uint32_t begun;
    uint32_t stride;               /* 0, or n: an entry here stands for n */
    lp_off cells[LP_HIST_OCTAVES]; /* of 32 u64 counts each, by octave of the wall time in ns */
    uint32_t name;                 /* name id, 0 = the root */
    lp_off parent, child, sibling; /* child: newest first */
    lp_off counters;               /* newest first */
    uint32_t path;                 /* id of the path in the process, equal in all threads */
    uint32_t skip;                 /* sample=: entries until the next measured one (private to the writer) */
    uint32_t pad;
} lp_seg_node;

typedef struct lp_seg_counter {
    uint32_t done;
    uint32_t name;
    uint64_t calls;
    uint64_t total_low; /* 128-bit two's complement */
    uint64_t total_high;
    int64_t min, max;
    uint32_t begun;
    lp_off next;
    lp_off negative; /* lp_off[LP_HIST_OCTAVES] for amounts < 0, 0 until one comes */
    uint32_t pad;
    lp_off cells[LP_HIST_OCTAVES];
} lp_seg_counter;

typedef enum lp_entry_state { LP_ENTRY_FREE = 0, LP_ENTRY_OPEN = 1, LP_ENTRY_ZOMBIE = 2 } lp_entry_state;

/* One open entry. Pointers are the writer's own; readers use state, closed, node, start and flags only. */
typedef struct lp_entry {
    uint32_t state;                  /* lp_entry_state */
    uint32_t closed;                 /* 1: left by another thread, at `end`; the owner has not seen it yet */
    lp_off node;                     /* 0: records nothing (skipped or folded) */
    uint32_t flags;                  /* LP_ENTRY_* of core/record.h */
    uint64_t start;                  /* ticks */
    uint64_t away, starved, unsplit; /* the thread's totals at the start, ns */
    uint64_t covered, covered_since; /* ticks */
    uint32_t open_children;
    uint32_t lights;           /* open entries without time of their own that hang on this one */
    uint32_t scale;            /* entries that this one stands for */
    uint32_t serial;           /* grows with each use of the slot */
    struct lp_entry *below;    /* in the same context's stack */
    struct lp_entry *parent;   /* whose covered time this one adds to; NULL at the root */
    struct lp_entry *same;     /* next older entry of the same phase object */
    const void *context;       /* bare address */
    struct lp_thread *thread;  /* owner */
    struct lp_seg_node *place; /* node, or the nearest ancestor's when node is 0 */
    uint64_t end;              /* ticks, when closed */
    uint64_t extra[5]; /* of the caller: byte counters at the start of an io=True phase, and who else had one open */
    uint64_t pad[2];
} lp_entry;
_Static_assert(sizeof(lp_entry) == 192, "two lines that every phase touches, one for the others");

typedef struct lp_seg_entries { /* a table of entries */
    lp_off next;                /* of the same thread */
    uint32_t count;
    uint64_t pad[7];
    lp_entry at[]; /* 64 bytes from the start */
} lp_seg_entries;

/* Old values of the node or counter that is being changed; valid = 1 while it is. */
typedef struct lp_seg_undo {
    uint32_t valid; /* 0, 1 node, 2 counter */
    lp_off target;
    lp_off cell;    /* offset of the u64 cell, 0 = none */
    uint32_t saved; /* how many of old[] were saved, from the first on; the others did not change */
    uint64_t old_cell;
    uint64_t old[14]; /* node: entries … io_missing in their order; counter: calls, total_low, total_high, min, max */
} lp_seg_undo;

typedef struct lp_seg_thread {
    lp_off previous;   /* older thread payload */
    lp_off root;       /* node */
    lp_off entries;    /* newest lp_seg_entries */
    uint32_t name;     /* name id of the thread's Python name, 0 = unknown */
    int64_t tid;       /* kernel id; 0: the thread has ended and the arena waits for the next one */
    uint64_t attached; /* how many threads have used this arena */
    uint64_t since;    /* ticks */
    uint64_t seen;     /* ticks: it recorded then; at most 10 ms of recording older than its last phase */
    lp_seg_undo undo;
} lp_seg_thread;

#endif
