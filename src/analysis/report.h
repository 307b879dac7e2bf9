/* What a report shows, derived once from a run; text, JSON and the page print it and compute nothing.
 *
 * Doubles are NaN where a figure could not be measured, so that it never shows as 0. Everything lives in the report's
 * arena, except strings and worker summaries, which are borrowed from the run: it must outlive the report. */
#ifndef LP_ANALYSIS_REPORT_H
#define LP_ANALYSIS_REPORT_H

#include "analysis/usage.h"

#define LP_TRUST_SHARE 0.10 /* a phase of whose time more than this is our own cost is named as not to be trusted */
#define LP_NO_PHASE UINT32_MAX

typedef struct lp_report_counter {
    lp_str name;
    uint64_t calls;
    lp_i128 total;
    int64_t min, max;  /* of one count() call; meaningless when calls == 0 */
    double p50, p95;   /* amount of one count() call; NaN when calls == 0 */
    double rate_per_s; /* total / wall of its phase; NaN without wall time */
    double ns_each;    /* wall of its phase / total; NaN when total <= 0 or without wall time */
} lp_report_counter;

typedef struct lp_report_io { /* of a phase opened with io=True; NaN-free, see `known` */
    bool known;               /* false: no entry could be read */
    uint64_t read_bytes, write_bytes, read_chars, write_chars;
    uint64_t cached_read_bytes; /* read_chars - read_bytes, >= 0: from the page cache */
    double rate;                /* (read_bytes + write_bytes) / wall, bytes a second; NaN without wall time */
} lp_report_io;

typedef struct lp_report_phase {
    uint32_t parent; /* index into the role's phases, LP_NO_PHASE at the top */
    uint32_t depth;  /* 1 at the top */
    lp_str name;
    lp_str path;    /* names joined by "/" */
    uint32_t flags; /* LP_PHASE_* */
    bool synthetic; /* never entered itself: a thread's name, or a path that only has children */
    uint32_t stride;
    uint64_t entries, errors, abandoned, async_entries, io_missing; /* finished */
    uint64_t wall_ns, child_ns, self_ns;                            /* finished */
    uint64_t open_entries, open_ns;
    uint64_t open_self_ns; /* part of open_ns in none of its children */
    uint64_t extent_ns;    /* wall + open; of a synthetic one the sum of its children's */
    uint64_t cpu_ns, cpu_wall_ns;
    uint64_t wait_ns; /* cpu_wall - cpu; meaningless when cpu_wall_ns == 0 */
    uint64_t split_wait_ns, blocked_ns, starved_ns;
    double wait;             /* wait_ns / cpu_wall_ns; NaN: not measured */
    double blocked, starved; /* of cpu_wall_ns; NaN: not measured */
    double unsplit;          /* part of the wait that is neither known to be one nor the other, of cpu_wall_ns */
    uint64_t min_ns, max_ns;
    double mean_ns, p50_ns, p95_ns, p99_ns; /* NaN without finished entries */
    double share;                           /* extent / the role's wall time */
    double self_share;                      /* (self + open self) / the role's wall time */
    double own_share;                       /* own cost inside it / wall; NaN unknown */
    bool untrusted;                         /* own_share > LP_TRUST_SHARE */
    bool self_nested;                       /* its parent has the same name */
    bool self_estimated;         /* a child of it is: self is what the estimate leaves of a time that may be measured */
    lp_report_counter *counters; /* without io_* of io phases; in the tree's order */
    uint32_t counter_count;
    lp_report_counter *all_counters; /* with them */
    uint32_t all_counter_count;
    lp_report_io io; /* if flags has LP_PHASE_IO */
} lp_report_phase;

typedef struct lp_report_share { /* a row of the breakdown */
    uint32_t phase;              /* LP_NO_PHASE: "Other", what none of the children covers */
    uint64_t wall_ns;            /* finished and open */
    double share;                /* of the role's breakdown.total_ns */
} lp_report_share;

typedef struct lp_report_breakdown {
    uint32_t at;           /* phase whose children are listed; LP_NO_PHASE: the top */
    bool chain;            /* nothing branches: the rows are levels, each within the one before */
    bool overlapping;      /* children overlapped in time: the shares are sums and may exceed 100 % */
    bool estimated;        /* that they exceed it is because some are estimated: they need not overlap */
    uint64_t total_ns;     /* the denominator */
    lp_report_share *rows; /* by wall time, descending; Other last */
    uint32_t row_count;
} lp_report_breakdown;

typedef struct lp_report_role {
    const lp_run_role *role; /* borrowed from the run */
    lp_report_phase *phases; /* parents before children */
    uint32_t phase_count;
    uint32_t *by_self; /* indices of the phases that are not synthetic, by self time with open, descending */
    uint32_t by_self_count;
    lp_report_breakdown breakdown;
    uint32_t iterations;         /* phase whose distribution is shown, LP_NO_PHASE */
    lp_report_counter *counters; /* counted while no phase was open */
    uint32_t counter_count;
    double own_share;  /* own cost / wall time; NaN unknown */
    uint64_t lived_ns; /* sum over its processes of the time that they ran */
} lp_report_role;

typedef struct lp_report_open { /* equal open phases of several workers, together */
    uint32_t role;              /* index into roles */
    uint32_t phase;             /* index into its phases */
    lp_life life;
    uint64_t entries;    /* how many are open */
    uint64_t longest_ns; /* the longest of them */
    uint32_t *workers;   /* indices into run->workers, longest first, each once */
    uint32_t worker_count;
} lp_report_open;

typedef struct lp_report_source { /* how something was measured, and in how many workers */
    lp_str clock, cpu_source, split_source;
    uint32_t workers;
} lp_report_source;

typedef struct lp_report_asked { /* "asked for, not recorded" */
    lp_str option;
    uint32_t workers;
} lp_report_asked;

typedef struct lp_report_step { /* the time of day of a host moved */
    lp_str host;
    lp_clock_step step;
    uint32_t workers; /* that ran then */
} lp_report_step;

typedef struct lp_report_attempt { /* superseded */
    lp_str run_id;
    uint32_t workers;
} lp_report_attempt;

typedef struct lp_report_host { /* workers that are known by their last snapshots only, of one host */
    lp_str name;
    uint32_t workers;
    uint64_t oldest_ns, newest_ns; /* Unix time: when the snapshots were written */
} lp_report_host;

typedef struct lp_report_path { /* a phase of a role */
    uint32_t role, phase;
} lp_report_path;

typedef enum lp_finding_kind {                    /* what `value` holds */
                               LP_FINDING_KILLED, /* by the OOM killer: processes of the cgroup; its limit in bytes */
                               LP_FINDING_STARVED, /* a role: share of its time without a free CPU; CPUs it may use, NaN; processes of the host that
                                  * ran at once, NaN; CPUs that others of the host kept busy, NaN */
                               LP_FINDING_THROTTLED, /* a host: share of periods; seconds stopped; the limit in cores */
                               LP_FINDING_BLOCKED, /* a phase: blocked share of its time; of another role, which is `other` and works most, the share of its
                                * time on a CPU and the one ready without a CPU */
                               LP_FINDING_SLOW_WORKER, /* a role, a worker: its time over the mean of those of the role that do the same; their number; the role's */
                               LP_FINDING_GPU_IDLE, /* a phase: median of the devices' busy share in it; 95 % quantile elsewhere */
                               LP_FINDING_GROWTH, /* a worker: bytes a second, error, seconds until memory ends (NaN: no limit known); part of
                                  * the growth that fell to the phase whose path is `path` */
                               LP_FINDING_MEMORY_PRESSURE, /* a host: share of time in which everything waited for memory */
                               LP_FINDING_DISK_PRESSURE /* a host: share of time in which everything waited for the disk */
} lp_finding_kind;

typedef struct lp_finding { /* something that costs this run time, or will; render/findings.c has the words */
    lp_finding_kind kind;
    uint32_t role, phase, other; /* indices into the report's roles and the role's phases; LP_NO_PHASE: none */
    uint32_t worker, host;       /* indices into run->workers and usage->hosts; LP_NO_PHASE: none */
    lp_str path;                 /* of a phase that only samples know; "" none */
    double value[4];
    double share; /* of the time of all processes together; NaN: not a matter of time */
} lp_finding;

typedef struct lp_report {
    lp_arena *arena;       /* owned */
    const lp_run *run;     /* borrowed */
    lp_report_role *roles; /* in the run's order */
    uint32_t role_count;
    lp_report_open *open; /* innermost only; by role, longest first */
    uint32_t open_count;
    uint32_t running, died, closed, last_seen; /* workers by life */
    /* what stands under CAVEATS; indices are into run->workers */
    lp_report_attempt *attempts;
    uint32_t attempt_count;
    bool attempts_at_once; /* one of them had not ended when the newest began: they may be one run that nobody named */
    uint32_t *stale, *unclean, *failed_writes, *private_memory, *no_cpu;
    uint32_t *died_inside,
        *died_outside; /* of the unclean ones, those with a phase open; those without that were killed or left
                                           * with a code that is not 0. The others may as well have ended by os._exit(0) */
    uint32_t stale_count, unclean_count, died_inside_count, died_outside_count, failed_write_count,
        private_memory_count, no_cpu_count;
    lp_health health; /* sums; first_folded and last_error of the first worker that has them */
    lp_report_asked *asked;
    uint32_t asked_count;
    lp_report_host *as_written; /* by name */
    uint32_t as_written_count;
    lp_report_source *sources; /* by workers, descending */
    uint32_t source_count;
    lp_report_step *steps; /* as they were met */
    uint32_t step_count;
    lp_report_path *self_nested, *overlapping, *cpu_unknown, *io_overlap, *io_missing, *untrusted, *sampled, *async_;
    uint32_t self_nested_count, overlapping_count, cpu_unknown_count, io_overlap_count, io_missing_count,
        untrusted_count, sampled_count, async_count;
    const lp_usage *usage; /* borrowed; NULL: samples are not read */
    lp_finding *findings;  /* those that are no matter of time, then by share, descending */
    uint32_t finding_count;
    double own_cost_ns; /* of one phase, mean over all entries; NaN unknown */
    double own_share;   /* of the time that the processes ran; NaN unknown */
} lp_report;

/* *report is owned by the caller. The run must be finished. */
lp_status lp_report_new(const lp_run *run, lp_report **report);
/* What was used, too: `usage` must be of the same run and outlive the report. Findings are made again. */
lp_status lp_report_add_usage(lp_report *report, const lp_usage *usage);
/* Another role has a phase of this path, which alone does not say then whose it is. */
bool lp_report_shares_path(const lp_report *report, uint32_t role, lp_str path);
void lp_report_free(lp_report *report); /* NULL is allowed */

#endif
