/* One worker (one recorded process) in plain memory: what the segment reader and the snapshot reader produce,
 * the snapshot writer consumes, and the analysis merges.
 *
 * All times are integer ns. Strings are bytes (UTF-8 with surrogates passed through, may contain NUL), owned by
 * the worker's arena and valid until lp_worker_free. Optional numbers use LP_UNKNOWN_*: a measured zero and "could
 * not be measured" are never the same value. */
#ifndef LP_STORE_MODEL_H
#define LP_STORE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#define LP_UNKNOWN_I64 INT64_MIN

typedef struct lp_str {
    const char *data; /* borrowed from the owner's arena; not terminated, may hold any byte; never NULL */
    size_t size;
} lp_str;

typedef struct lp_pair { /* a named text in a map, in the writer's order */
    lp_str key, value;
} lp_pair;

typedef struct lp_cell { /* one non-empty histogram cell, see core/hist.h */
    uint32_t index;
    uint64_t count;
} lp_cell;

typedef struct lp_cells { /* sorted by index, every count > 0 */
    lp_cell *at;          /* owned by the arena */
    uint32_t size;
    uint32_t capacity; /* room at `at`, kept by lp_cells_merge; 0: exactly `size` */
} lp_cells;

__extension__ typedef __int128 lp_i128;

typedef struct lp_counter {
    lp_str name;
    uint64_t calls;    /* count() calls, scaled by the sampling stride */
    lp_i128 total;     /* exact sum of the amounts, scaled */
    int64_t min, max;  /* amount of one call, never scaled; meaningless when calls == 0 */
    lp_cells positive; /* histogram of amounts >= 0, scaled */
    lp_cells negative; /* histogram of -amount for amounts < 0, scaled */
} lp_counter;

/* Flags of a phase. */
enum {
    LP_PHASE_SAMPLED = 1,    /* some entries stand for several: see stride */
    LP_PHASE_ASYNC = 2,      /* opened with async_work=True: submission time, not device time */
    LP_PHASE_IO = 4,         /* opened with io=True: its io_* counters are exact */
    LP_PHASE_OVERLAP = 8,    /* its children overlapped in time (tasks): their shares are sums */
    LP_PHASE_IO_OVERLAP = 16 /* bytes of io=True entries include those of other threads' entries, or of
                              * children that were waited for meanwhile */
};

/* One path of the tree. phases[0] is the root (no name, parent 0); a parent stands before its children. */
typedef struct lp_phase {
    uint32_t parent; /* index into lp_tree.phases */
    uint32_t flags;
    lp_str name;
    uint64_t entries;        /* finished entries, scaled by the stride */
    uint64_t errors;         /* of those, left by an exception */
    uint64_t abandoned;      /* of those, never left: their phase object died */
    uint64_t async_entries;  /* of those, opened with async_work=True */
    uint64_t io_missing;     /* of those, io=True but a boundary could not be read: no bytes recorded */
    uint64_t wall_ns;        /* of finished entries, scaled */
    uint64_t child_ns;       /* part of wall_ns during which at least one child was open; self = wall - child */
    uint64_t cpu_wall_ns;    /* part of wall_ns whose CPU time is known (0 with measure_cpu=False) */
    uint64_t cpu_ns;         /* on-CPU time within cpu_wall_ns; wait = cpu_wall_ns - cpu_ns */
    uint64_t split_wait_ns;  /* part of the wait that could be split in blocked and starved */
    uint64_t starved_ns;     /* runnable, but no CPU was free; blocked = split_wait_ns - starved_ns */
    uint64_t min_ns, max_ns; /* of one entry, unscaled; meaningless when entries == 0 */
    uint32_t stride;         /* 0: every entry measured; n: one in n (the largest seen) */
    lp_cells hist;           /* wall time of entries in ns, scaled; counts sum to `entries` */
    lp_counter *counters;    /* owned by the arena */
    uint32_t counter_count;
} lp_phase;

typedef struct lp_arena lp_arena; /* bump allocator, see store/arena.h */

typedef struct lp_tree {
    lp_arena *arena; /* borrowed: the owner of everything that the tree points to */
    lp_phase *phases;
    uint32_t count, capacity;
    struct lp_tree_slot *index; /* hash of (parent, name); owned by the arena, kept by lp_tree_child */
    uint32_t index_size;        /* a power of two */
} lp_tree;

typedef struct lp_open { /* a phase that is open (or was, when the process died) */
    uint32_t phase;      /* index into the tree */
    uint64_t since_ns;   /* Unix time, ns */
    uint64_t open_ns;    /* how long it had been open when this was read or written */
    lp_str thread;       /* name of the thread or "" */
    uint64_t tid;        /* kernel thread id */
} lp_open;

typedef struct lp_gpu_info {
    int64_t index;
    lp_str name;
    int64_t vram_total;
} lp_gpu_info;

typedef struct lp_hardware { /* unknown: LP_UNKNOWN_I64 */
    int64_t cpu_cores, cpu_threads, cpu_affinity, ram_total;
    lp_gpu_info *gpus;
    uint32_t gpu_count;
} lp_hardware;

/* Who wrote it. Everything that identifies a worker; the same message opens a snapshot and a segment. */
typedef struct lp_identity {
    lp_str host, boot_id, uuid; /* uuid: 32 hex digits */
    int64_t pid;                /* in its own pid namespace */
    int64_t pid_start;          /* field 22 of /proc/<pid>/stat, clock ticks since boot */
    uint64_t started_ns;        /* Unix time at which recording began */
    lp_str run_id, role;
    uint64_t run_started_ns;              /* Unix time at which the attempt began (the first process of the run id) */
    int64_t rank, local_rank, world_size; /* LP_UNKNOWN_I64 if no launcher named one */
    lp_str job_id, launcher;              /* "" if none */
    uint64_t run_dir_dev, run_dir_ino;    /* of the run directory, 0 if unknown */
    uint64_t run_dir_born_ns;             /* see lp_folder_id; in segments only */
    uint64_t pid_ns, mnt_ns;              /* inodes of /proc/self/ns/pid and mnt, 0 if unknown */
    uint64_t time_ns; /* of /proc/self/ns/time; in sample files only, whose times are of its clocks */
    lp_str *argv;     /* of the program */
    uint32_t argv_count;
    lp_str python, platform;  /* "3.11.7 (CPython)", "Linux-6.1-x86_64" */
    lp_str source_commit;     /* git commit, "" outside git */
    int64_t source_dirty;     /* changed files, LP_UNKNOWN_I64 when not asked */
    int64_t source_untracked; /* and new ones that git does not know and no .gitignore names */
    lp_str source_diff;       /* hash of the diff, "" when not asked */
    lp_pair *source_extra;    /* what the user gave as source=, JSON values as text; replaces the three above */
    uint32_t source_extra_count;
    lp_hardware hardware;
    lp_pair *options; /* options in force that a report names: "measure_cpu" = "0", "thread_names" = "1",
                                     * "asked" = names asked for but not recorded, … */
    uint32_t option_count;
} lp_identity;

typedef struct lp_health {      /* what went wrong or was limited, all counts */
    uint64_t folded_paths;      /* distinct further paths folded into their parent (path limit) */
    uint64_t folded_depth;      /* entries folded since deeper than the depth limit */
    uint64_t lost_entries;      /* entries not recorded at all: no memory for the segment */
    uint64_t misuse;            /* exits without entry, closes of what was not open, … */
    uint64_t write_failures;    /* snapshots that could not be written */
    uint64_t callback_failures; /* on_snapshot callbacks that raised */
    uint64_t foreign_exits;     /* entries left in another thread than they were entered */
    uint64_t clock_backwards;   /* durations clamped at 0 */
    lp_str first_folded;        /* path of the first folded, joined by "/" */
    lp_str last_error;          /* one line on the last failure, "" if none */
} lp_health;

typedef struct lp_end { /* how a process ended that did not close */
    int64_t code;       /* as Python's subprocess shows it: -9 killed by SIGKILL, 3 os._exit(3); LP_UNKNOWN_I64 */
    bool core_dumped;
    bool replaced; /* it lived on, as another program (exec) */
} lp_end;

typedef struct lp_worker {
    lp_arena *arena; /* owned; everything below lives in it */
    lp_identity id;
    lp_tree tree; /* all threads merged; with thread_names, the first level is the thread's name */
    lp_open *open;
    uint32_t open_count;
    lp_health health;
    uint64_t written_ns;        /* Unix time: last seen alive. Of a living process on this host: now */
    uint64_t elapsed_ns;        /* from started to written, by the monotonic clock */
    uint32_t generation;        /* of the snapshot: the highest wins */
    bool final;                 /* close() or exit wrote it: nothing can follow */
    bool unclean;               /* the process died without that: read from what it left */
    bool living;                /* read from the segment of a process that is alive now */
    lp_end end;                 /* of an unclean one, as far as it could be known */
    lp_str clock;               /* "TSC 2.4 GHz" or "CLOCK_MONOTONIC" */
    lp_str cpu_source;          /* "rseq", "perf page", "system call", "not measured" */
    lp_str split_source;        /* "schedstat" or "" */
    lp_str segment_place;       /* "shared memory", "private memory" */
    uint64_t own_cost_ps;       /* own cost of one phase, picoseconds, measured at start; 0 unknown */
    uint64_t own_count_cost_ps; /* of one count() */
    uint32_t threads;           /* threads that recorded */
    struct lp_track *track;     /* how the host's clocks went, store/track.h; in the arena; NULL not known */
    lp_str path;                /* file it was read from, "" if from memory */
} lp_worker;

/* An empty worker with an arena of its own and a tree that holds only the root; NULL without memory. */
lp_worker *lp_worker_new(void);
void lp_worker_free(lp_worker *worker); /* NULL is allowed */

/* Every text empty, every optional number unknown. */
void lp_identity_init(lp_identity *id);

/* Child `name` of `parent` (index); made when missing, then the name is copied. LP_E_MEMORY leaves the tree as it was.
 * Linear in nothing: looks up by a hash that the tree's arena owns. */
lp_status lp_tree_child(lp_tree *tree, uint32_t parent, lp_str name, uint32_t *index);
/* UINT32_MAX when there is none. */
uint32_t lp_tree_find(const lp_tree *tree, uint32_t parent, lp_str name);
/* Counter of a phase; made when missing. The pointer is borrowed and valid until the next call for this phase. */
lp_status lp_phase_counter(lp_tree *tree, uint32_t phase, lp_str name, lp_counter **counter);
/* Adds `source` (a whole tree) below `at` of `target` (0: root onto root). Sums, minima, maxima, unions: associative
 * and commutative; strides: the larger; sums stop at UINT64_MAX. `source` is untouched and may use another arena
 * (strings are copied). */
lp_status lp_tree_merge(lp_tree *target, uint32_t at, const lp_tree *source);
/* Adds sorted cells to sorted cells in the target's arena. */
lp_status lp_cells_merge(lp_arena *arena, lp_cells *target, const lp_cells *source);
/* Value in ns (or amount) at quantile q in 0..1 by the nearest-rank rule on cells; 0.0 when empty. */
double lp_cells_quantile(const lp_cells *cells, double q);
uint64_t lp_cells_total(const lp_cells *cells);
/* A tree in `arena` holding only the root. */
lp_status lp_tree_init(lp_tree *tree, lp_arena *arena);
/* Lowers what cannot be true of one phase, in the order of dependence: child, cpu_wall <= wall; cpu <= cpu_wall;
 * split_wait <= cpu_wall - cpu; starved <= split_wait; errors, abandoned, async_entries, io_missing <= entries;
 * min <= max. Readers of segments and the snapshot writer call it, so that no file of ours is refused by ours. */
void lp_phase_clamp(lp_phase *phase);

#endif
