/* A run: the workers of the newest attempt in a run directory, merged by role.
 *
 * Workers are folded into their role's tree one at a time and freed, so 4,096 of them cost one tree a role and a
 * summary each. Everything is in plain memory; nothing here writes files, except that lp_run_load with `adopt` lets
 * the store turn dead segments into snapshots. Not thread-safe; a finished run may be read by many threads. */
#ifndef LP_ANALYSIS_RUN_H
#define LP_ANALYSIS_RUN_H

#include "store/model.h"
#include "store/rundir_cache.h"
#include "store/track.h"

#define LP_STALE_NS 300000000000ull /* a worker is stale when it was last seen this long before the latest one */

typedef enum lp_life {
    LP_LIFE_CLOSED,   /* close() or exit wrote its last state */
    LP_LIFE_RUNNING,  /* alive on this host now */
    LP_LIFE_DIED,     /* ended without closing; read from what it left */
    LP_LIFE_LAST_SEEN /* a periodic snapshot, of another host or without a segment: may or may not run */
} lp_life;

typedef struct lp_run_open { /* a phase that was open when the worker was read */
    lp_str *path;            /* names from the top down */
    uint32_t depth;          /* of them, >= 1 */
    bool inner;              /* no other open phase of the same thread lies below it */
    uint64_t since_ns;       /* Unix time */
    uint64_t open_ns;
    lp_str thread; /* "" if unnamed */
    uint64_t tid;
} lp_run_open;

typedef struct lp_run_worker { /* strings are owned by the run */
    lp_str run_id, role, host, uuid, boot_id, path, job_id;
    uint32_t role_index; /* into lp_run.roles after lp_run_finish; meaningless for superseded ones */
    int64_t pid, rank, local_rank, world_size; /* LP_UNKNOWN_I64 */
    uint64_t started_ns, written_ns, elapsed_ns;
    uint64_t wall_ns; /* finished wall time of the top phases */
    uint64_t work;    /* hash of the name of the top phase with most time, finished or open; 0: none */
    uint64_t open_ns; /* and of those that are open */
    lp_life life;
    lp_end end;       /* of one that died */
    bool stale;       /* not running and LP_STALE_NS behind the latest worker; set by lp_run_finish */
    bool measure_cpu; /* false: measure_cpu=False */
    bool thread_names;
    lp_health health;
    lp_run_open *open;
    uint32_t open_count;
    lp_str clock, cpu_source, split_source, segment_place, asked, python, platform;
    uint64_t own_cost_ps, own_count_cost_ps;
    uint32_t threads, generation;
    lp_clock_step *steps; /* of its host's time of day, while it ran */
    uint32_t step_count;
    lp_worker *worker; /* owned by the run; NULL unless kept (lp_run_options.keep_workers) */
} lp_run_worker;

typedef struct lp_run_role {
    lp_str name;
    lp_tree tree;           /* of all its workers; in an arena of its own */
    uint64_t *open_ns;      /* by phase index of the tree: time of entries that are open; set by lp_run_finish */
    uint64_t *open_entries; /* by phase index */
    uint32_t worker_count;
    uint64_t wall_ns;   /* sum over workers of finished and open wall time of the top phases */
    double imbalance;   /* max / mean of that over its workers; 1.0 for one worker or none */
    uint32_t slowest;   /* index into lp_run.workers of the maximum */
    double own_ns;      /* own cost of recording: entries and counts at the workers' measured costs */
    double own_cost_ns; /* of one phase, mean over the entries; 0 unknown */
    double own_count_cost_ns;
} lp_run_role;

typedef struct lp_run_host {
    lp_str name;
    lp_hardware hardware; /* as the first of its workers saw it */
    uint32_t worker_count;
} lp_run_host;

typedef struct lp_run_lost { /* a file that could not be read */
    lp_str path, reason;
} lp_run_lost;

typedef struct lp_run {
    lp_arena *arena;     /* owned; strings and summaries live in it */
    lp_str directory;    /* "" when built in memory */
    uint64_t read_ns;    /* Unix time at which its reading began */
    lp_str run_id;       /* of the attempt that is reported, "" without workers */
    uint64_t started_ns; /* earliest start of it, Unix time */
    uint64_t ended_ns;   /* latest moment at which one of its workers was seen */
    uint64_t runtime_ns;
    lp_str *argv; /* these five are of the worker that started first */
    uint32_t argv_count;
    lp_str python, platform, start_host;
    lp_str source_commit, source_diff;
    int64_t source_dirty, source_untracked; /* LP_UNKNOWN_I64: not asked */
    lp_pair *source_extra;                  /* values are JSON text */
    uint32_t source_extra_count;
    double imbalance;   /* over all workers */
    uint32_t slowest;   /* worker */
    lp_run_role *roles; /* by wall time, descending */
    uint32_t role_count;
    lp_run_worker *workers; /* in the order in which they were added */
    uint32_t worker_count;
    lp_run_worker *superseded; /* of earlier attempts; without trees unless kept */
    uint32_t superseded_count;
    lp_run_host *hosts; /* by name */
    uint32_t host_count;
    lp_run_lost *unreadable;
    uint32_t unreadable_count;
    const char *empty_reason;    /* static: "", "missing" (no such directory), "no_worker_files" */
    struct lp__run_state *state; /* private: capacities, the tree of all roles */
} lp_run;

typedef struct lp_run_options {
    bool adopt;             /* let dead segments get their snapshot (report); compare must not */
    bool segments;          /* read this host's segments besides the snapshots */
    lp_rundir_cache *cache; /* borrowed, NULL none: snapshots that were read before are not read again */
    bool keep_workers;      /* keep every whole worker, superseded ones too (merge_run) */
} lp_run_options;

/* Reads a run directory. A missing directory and one without worker files are LP_OK with an empty_reason; files that
 * cannot be read are in `unreadable`. Fails only for want of memory or when the directory cannot be listed. *run is
 * owned by the caller and finished. */
lp_status lp_run_load(const char *directory, lp_run_options options, lp_run **run, lp_error *error);

/* The same by hand: new, add…, finish, read, free. */
lp_run *lp_run_new(void);      /* owned by the caller; NULL without memory */
void lp_run_free(lp_run *run); /* NULL is allowed */
/* Folds a worker in. keep: the run takes it over (also on failure); else it is only read and stays the caller's. */
lp_status lp_run_add(lp_run *run, lp_worker *worker, bool keep);
lp_status lp_run_fold(lp_run *run, const lp_worker *worker); /* as without keep */
lp_status lp_run_add_superseded(lp_run *run, lp_worker *worker, bool keep);
lp_status lp_run_add_unreadable(lp_run *run, const char *path, const char *reason);
/* Derives what needs all workers: order of roles, imbalance, stale, runtime, open time by phase. To be called once,
 * after the last add; sets empty_reason "no_worker_files" if nothing was added. */
lp_status lp_run_finish(lp_run *run);

/* The tree over all roles, made at the first call (so not thread-safe); borrowed. NULL without memory. */
const lp_tree *lp_run_tree(lp_run *run);
/* By phase index of that tree: entries that are open. Borrowed; NULL without memory. */
const uint64_t *lp_run_open_entries(lp_run *run);
/* NULL if there is no such role. */
const lp_run_role *lp_run_role_find(const lp_run *run, lp_str name);

#endif
