/* What a run used, from its sample files: CPU, memory, bytes, GPU; of each process, host and phase.
 *
 * Figures are sums and extremes of rows that were taken; where none was taken there is no figure, and the gap is counted.
 * Two processes are put beside each other on a grid of equal bins over the run (LP_USAGE_BINS at most, none narrower than
 * the sampling interval): what an interval took is spread over the bins that it covers, a memory size holds until the next
 * row. Doubles are NaN where nothing was measured, with the reason beside it.
 *
 * Files are read one batch at a time, so memory depends on processes, paths and bins, not on how long the run was. */
#ifndef LP_ANALYSIS_USAGE_H
#define LP_ANALYSIS_USAGE_H

#include "analysis/run.h"
#include "store/samples.h"

#define LP_USAGE_BINS 16384u
#define LP_USAGE_SPARK 48u       /* columns of a sparkline */
#define LP_USAGE_TREND_BINS 128u /* points of a memory trend */
#define LP_USAGE_GAP 2.5         /* an interval longer than so many planned ones was not watched: it has no phase */

typedef struct lp_usage_io {        /* bytes */
    double read, write;             /* at the disk */
    double read_chars, write_chars; /* at the system calls, page cache included */
} lp_usage_io;

typedef struct lp_usage_trend { /* of a memory size */
    double first, last, peak;   /* bytes; NaN: not measured */
    double growth;              /* last less first; NaN: fewer than two points */
    double slope,
        slope_error; /* bytes a second and its standard error (rows of a series depend on each other: the error is
                                  * widened by their correlation); NaN below 8 points */
    double late_slope,
        late_error; /* the same over the second half alone: what start-up took is no growth; NaN below 16 points */
    double step,
        step_at_s; /* the largest rise from one point to the next and when, seconds after the first row; 0: none */
} lp_usage_trend;

typedef struct lp_usage_process {
    uint32_t worker; /* index into run->workers */
    uint64_t rows;
    double seconds;      /* from its first row to its last */
    double from_s, to_s; /* of those, seconds after the run's start */
    double tick_s;       /* from the beginning of a bin of the grid to its collector's next tick */
    double gone_s;       /* when it ended or was last seen, at most an interval later */
    double unseen_s; /* that it lived on after its last row, where that is no mere rest of an interval: its file is cut
                             * off, or what is newer is not written yet; 0: none */
    double missed;   /* intervals at whose end no row was taken, as its collector counted */
    double gaps;     /* intervals that were too long to belong to a phase */
    double cpu_s, cpu_peak; /* CPU seconds between first and last row; cores in its busiest interval */
    double cpu_unsampled_s; /* used before the first row: starting, importing */
    double starved_s;       /* run-queue delay of all its threads; NaN not measured */
    double switches_voluntary, switches_forced, faults_major;
    double children_s; /* CPU of processes below it that are not recorded */
    double children_rss_peak;
    lp_usage_trend rss, pss;
    lp_usage_io io;               /* NaN each where not measured */
    double read_peak, write_peak; /* bytes a second at the disk, in its busiest interval */
    uint8_t why[LP_COLUMNS];      /* lp_reason of each column of which nothing is known, LP_REASON_NONE: something is */
} lp_usage_process;

typedef struct lp_usage_host {
    uint32_t host;             /* index into run->hosts */
    uint32_t processes;        /* with rows */
    uint32_t at_once;          /* of those, the most at one time */
    double cpu_peak, cpu_mean; /* cores of our processes together, in the busiest bin; over the sampled time */
    double rss_peak, pss_peak; /* bytes, together; PSS NaN unless it is known of every process */
    uint32_t pss_missing;
    double cpus, quota; /* CPUs that our processes may use: by affinity; by cgroup; NaN not known or no limit */
    double online;      /* CPUs of the whole host */
    double memory, memory_limit; /* bytes: of the host; of the cgroup */
    double limit_used_peak;      /* bytes of the limiting cgroup in use, without what may be dropped */
    double available_least;      /* of the host's memory */
    double busy_mean;            /* cores of the whole host */
    double stolen_s;             /* CPU time that the hypervisor gave to others */
    double load_peak;
    double throttled_s, throttled_share, throttle_periods; /* of the cgroup; share of its periods that hit the limit */
    double kills;                                          /* by the OOM killer in our cgroup while we watched */
    double psi_cpu, psi_memory, psi_memory_full, psi_io, psi_io_full; /* share of time, "some" unless said */
    double seconds;                                                   /* watched */
    double lateness_max_s, ticks_missed, own_cpu_s, interval_s;       /* of the collector */
    uint8_t why[LP_COLUMNS];                                          /* as of a process */
    uint8_t gpu_why; /* lp_reason for which nothing at all is known of its devices */
} lp_usage_host;

typedef struct lp_usage_phase { /* what was used while a path was the open one; of all processes */
    lp_str path;                /* names joined by "/"; LP_USAGE_NO_PHASE for none */
    bool none;                  /* no phase was open, or the interval was not watched */
    double seconds;             /* of sampled time */
    double cpu_s;               /* this and what follows is NaN where it was not measured in any of it */
    lp_usage_io io;
    double rss_growth; /* bytes, rises and falls summed */
    uint64_t gpu_samples;
    uint32_t gpu_busy[101]; /* how often the devices in use were so busy, in percent */
    double vram_peak;       /* bytes that a process held on a device; NaN not measured */
} lp_usage_phase;
#define LP_USAGE_NO_PHASE "(no phase open)"

typedef struct lp_usage_gpu {
    uint32_t host; /* index into run->hosts */
    uint32_t index;
    lp_str name;
    uint64_t rows;
    double busy, ours;                                  /* mean shares; NaN with the reasons below */
    double memory_peak, memory_total, ours_memory_peak; /* bytes */
    double power_mean_w, temperature_max;
    uint8_t why[LP_COLUMNS]; /* as of a process */
} lp_usage_gpu;

typedef struct lp_usage {
    lp_arena *arena;             /* owned */
    const lp_run *run;           /* borrowed */
    lp_usage_process *processes; /* those with rows, in the run's order */
    uint32_t process_count;
    uint32_t at_once;   /* processes, the most at one time; of all hosts */
    uint32_t unsampled; /* workers of the run without a row */
    lp_usage_host *hosts;
    uint32_t host_count;
    lp_usage_phase *phases; /* by CPU time, descending; the one without a phase last */
    uint32_t phase_count;
    lp_usage_gpu *gpus; /* by host and index */
    uint32_t gpu_count;
    uint8_t gpu_why;     /* without devices: lp_reason of a host that has some, LP_REASON_NONE: no word about it */
    lp_usage_io io;      /* of all processes */
    lp_usage_io io_none; /* of that, without a phase */
    double io_intervals, io_gaps; /* between rows; of those, too long for a phase */
    bool io_known, cpu_known, rss_known;
    bool pss_known;       /* of every process that has an RSS: a sum of some would look like all of it */
    uint32_t pss_missing; /* processes with an RSS only */
    double cpu_s, cpu_peak, cpu_mean, rss_peak, pss_peak;           /* of all processes together */
    double cpu_max_process, rss_max_process;                        /* cores in the busiest interval of one; bytes */
    uint32_t cpu_max_worker, rss_max_worker;                        /* indices into run->workers */
    double vram_allocated_peak, vram_reserved_peak, vram_held_peak; /* bytes, all processes; NaN not measured */
    lp_usage_trend rss;   /* of all processes together, without bins in which one lived on unseen: */
    uint32_t unseen;      /* processes with an unseen_s */
    double unseen_bins_s; /* time that is left out */
    bool unseen_end;      /* the end of the run is among it */
    double grid_s;        /* width of a bin */
    uint32_t grid_bins;
    const double *covered_bins, *read_bins, *write_bins; /* seconds with samples, bytes; of each bin */
    double covered_s;                                    /* time in which at least one process was sampled */
    double cpu_series[LP_USAGE_SPARK], rss_series[LP_USAGE_SPARK], read_series[LP_USAGE_SPARK],
        write_series[LP_USAGE_SPARK]; /* cores, bytes, bytes/s, bytes/s; NaN where nothing was sampled */
    double read_peak, write_peak;     /* bytes a second in the busiest bin */
    lp_run_lost *lost;                /* files of which a part could not be read */
    uint32_t lost_count;
} lp_usage;

/* Reads every sample file of the run's workers (workers/<host>/ of its directory). A run that was not sampled gives no
 * processes. LP_E_MEMORY only. *usage is owned by the caller; the run must be finished and outlive it. */
lp_status lp_usage_load(const lp_run *run, lp_usage **usage);
typedef struct lp_usage_rows { /* of one process, in memory; all borrowed */
    lp_sample_batch batch;     /* LP_SERIES_PROCESS; sizes are in bytes, not KiB */
    const lp_str *names;       /* whole paths: that of share path n is names[n - 1] */
    uint32_t name_count;
} lp_usage_rows;
/* The same from rows in memory, one set of each worker of the run. */
lp_status lp_usage_load_memory(const lp_run *run, const lp_usage_rows *rows, double interval_s, lp_usage **usage);
/* `bins` (one of the above) as so many columns, means; rate: a second. NaN where nothing was sampled. */
void lp_usage_series(const lp_usage *usage, const double *bins, bool rate, uint32_t columns, double *out);
/* Bytes that system calls read and no disk was asked for; NaN: not measured. */
double lp_usage_cached(const lp_usage_io *io);
/* Share (0..1) below which the part `q` of the samples of devices in the phase lies, by the nearest rank; NaN without samples. */
double lp_usage_gpu_quantile(const lp_usage_phase *phase, double q);
void lp_usage_free(lp_usage *usage); /* NULL is allowed */

#endif
