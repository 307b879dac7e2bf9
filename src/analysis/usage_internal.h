/* Between usage.c (which files, in which order, what they add up to) and usage_rows.c (rows into sums). */
#ifndef LP_ANALYSIS_USAGE_INTERNAL_H
#define LP_ANALYSIS_USAGE_INTERNAL_H

#include "analysis/usage_math.h"

#define LP__USAGE_DEVICES 64u /* of a host */
#define LP__BOOT_ROOM 64u     /* bytes of a boot id that are compared */
#define LP__WHY_KNOWN 255u    /* in lists of reasons while files are read: there was a value, no reason is wanted */

typedef struct lp__bins { /* one number a bin; owned by the usage's arena */
    double *cpu_s, *rss, *pss, *read, *write, *covered;
    double *allocated, *reserved, *held; /* of devices' memory */
} lp__bins;

typedef struct lp__rates { /* the same between the collector's ticks, one bin more: see usage_rates.c */
    double *cpu_s, *read, *write, *covered;
} lp__rates;

/* That a process held more than its rows show, in a time that ends in a bin; bytes. See usage_peak.c. */
typedef struct lp__peak {
    double most; /* 0: none did */
    uint32_t from;
    double at_from, between, at_to; /* its largest row in the first bin of that time, in all of them, in the last one */
} lp__peak;

/* Of a process: the largest size that it ever had (VmHWM), as it rises. */
typedef struct lp__high {
    bool any;
    double most; /* as read last; NaN: not yet */
    uint32_t bin;
    double in_bin;         /* of the last row, and its largest row */
    uint32_t from;         /* bin of the last reading: a rise since then is of a time that begins there */
    double at_from, since; /* its largest row, and the largest since it began */
    lp__peak rise;         /* in the time that ends in `bin`, of which rows may follow */
} lp__high;

/* Up to where something of a host has been told. Collectors of several containers on one machine tell of the same time, so each
 * moment is taken from the first. */
typedef struct lp__told {
    lp_column kind; /* the column that tells of which control group this is; LP_COLUMNS: the machine as a whole */
    int64_t group;
    bool started;
    double mono_s;      /* CLOCK_MONOTONIC of the last row */
    double busy_mono_s; /* and of the last that told how busy the machine was */
    int64_t before[LP_COLUMNS];
} lp__told;

typedef struct lp__device {                                           /* while its host's files are read */
    uint32_t gpu;                                                     /* index into usage->gpus */
    float *busy;                                                      /* percent by bin, -1: no row; owned */
    double busy_s, busy_time, ours_s, ours_time, power_s, power_time; /* value x seconds, and those seconds */
    double told_s, told_time; /* of our part in it, as the rows of the host have it */
    double mono_s,
        told_mono_s; /* CLOCK_MONOTONIC of the last row, and of the last that had our part; -1: none of this boot */
} lp__device;

typedef struct lp__usage {
    lp_usage *usage;
    lp__grid grid;
    double begin_s; /* Unix time of the grid's zero */
    bool placed;    /* a row of this host has been seen */
    int64_t
        place_ns; /* of its first one: Unix time less CLOCK_MONOTONIC. All files of a boot lie by that one, so that a clock
                       * that is set in mid-run moves nothing */
    char boot[LP__BOOT_ROOM]; /* whose clock that is, */
    uint64_t time_ns;         /* and of which time namespace; 0 not known */
    lp__bins run, host;
    lp__rates run_rates, host_rates;
    lp__peak *run_peaks, *host_peaks; /* by bin, of one process each; owned as these are */
    double *run_through; /* resident bytes of processes that lived through a bin, of all hosts; owned as they are */
    bool *unseen;        /* by bin: some process lived there of which no row is at hand; owned by the usage's arena */
    struct {             /* of the host; with its bins */
        lp__sizes rss, pss, allocated, reserved, held;
    } sizes;
    lp__device devices[LP__USAGE_DEVICES];
    uint32_t device_count;
    lp__told whole;
    lp__told *groups; /* owned by malloc */
    uint32_t group_count;
    double own_cpu_s, ticks_missed; /* of the host's collectors before this one */
    double busy_s;                  /* seconds of which it is known how busy the host was */
    double affinity;                /* CPUs that a process of the host may use, the most; NaN not known */
    uint32_t *slots;                /* hash of phases: index + 1, 0 empty; owned by malloc */
    uint32_t slot_count;
} lp__usage;

/* The process whose files are being read, one after the other. */
typedef struct lp__usage_reading {
    lp__usage *all;
    lp_usage_process *process;
    const lp_usage_rows *rows; /* in memory; NULL: a file */
    double kib;                /* bytes in a unit of sizes */
    uint32_t *paths;           /* phase of each path id of the file; owned by malloc */
    uint32_t path_count;
    bool devices[LP__USAGE_DEVICES]; /* those that the process uses */
    bool uses_torch;                 /* it holds memory of a device, by its own word */
    bool own_place;                  /* of another boot than the host's: its own first row places it */
    int64_t place_ns;
    bool shifting;    /* the file is of another time namespace than the host's first: its CLOCK_MONOTONIC differs, */
    bool shift_known; /* by so much, as of its first row: */
    int64_t shift_ns;
    double tick_s;                /* from the beginning of a bin of the grid to the collector's next tick */
    bool started;                 /* there was a row */
    double at_s, mono_s, first_s; /* of the last row: on the grid, CLOCK_MONOTONIC; of the first */
    int64_t before[LP_COLUMNS];
    double interval_s;
    lp__hold rss, pss, allocated, reserved;
    lp__hold held[LP__USAGE_DEVICES];
    double held_end_s[LP__USAGE_DEVICES]; /* of the last row of each; on the grid */
    lp__points rss_points, pss_points;
    lp__high high;
} lp__usage_reading;

/* Phase by path; UINT32_MAX without memory. */
uint32_t lp__usage_phase(lp__usage *all, lp_str path, bool none);
/* Before the rows of a file: which boot its clock is of. `boot` empty: not known, taken for the same. */
void lp__usage_place(lp__usage_reading *reading, const lp_identity *id);
/* Of a batch's first row, in this order (usage_place.c): where the batch lies, Unix time less CLOCK_MONOTONIC of the host's first row; and its
 * CLOCK_MONOTONIC as the host's first file counts it. */
int64_t lp__usage_place_of(lp__usage_reading *reading, const lp_sample_batch *batch);
uint64_t lp__usage_mono(lp__usage_reading *reading, const lp_sample_batch *batch);
/* From the beginning of a bin to the collector's next tick, a little less; ticks are multiples of the interval of its CLOCK_MONOTONIC. 0 where
 * bins are of many intervals, or nobody knows. */
double lp__usage_tick(const lp__usage_reading *reading, int64_t place_ns);
lp_status lp__usage_process_batch(lp__usage_reading *reading, const lp_samples *file, const lp_sample_batch *batch);
void lp__usage_process_gpu_batch(lp__usage_reading *reading, const lp_sample_batch *batch);
void lp__usage_process_begin(lp__usage_reading *reading, lp__usage *all, lp_usage_process *process);
void lp__usage_process_end(lp__usage_reading *reading);
void lp__high_init(lp__high *high);
/* A row: the resident size and the largest ever, bytes, NaN what was not read. True if that rose since it was read before. */
bool lp__high_row(lp__high *high, lp__peak *peaks, uint32_t bin, double rss, double most);
void lp__high_end(lp__high *high, lp__peak *peaks);
void lp__peak_add(lp__peak *to, const lp__peak *peak);
/* The largest size of all processes together. `bins`: what those of them held that lived through a bin. 0: nothing rose. */
double lp__peaks_of(const lp__peak *peaks, const double *bins, uint32_t count);
bool lp__rates_new(lp__usage *all);
/* An amount of an interval into one of the host's bins; NaN: none. */
void lp__rates_add(lp__usage *all, double tick_s, double *bins, double from_s, double to_s, double amount);
/* Seconds that were sampled, of each bin of the grid and of those between ticks. */
lp_status lp__rates_cover(const lp__usage *all, const lp_usage_process *processes, uint32_t count, double *bins,
                          double *at_ticks);
/* The host's into the run's. */
void lp__rates_end_host(lp__usage *all);
/* Of processes together, in the busiest moment. What one of them used, all used at least, and a single one just that; `figure`: offset of
 * that in a process. */
double lp__rates_peak(const lp__usage *all, const double *bins, const double *covered,
                      const lp_usage_process *processes, uint32_t count, size_t figure);
/* Before a host's files of another collector, or of another boot. */
void lp__usage_host_begin(lp__usage *all, const lp_usage_host *host, bool boot);
lp_status lp__usage_host_batch(lp__usage_reading *reading, lp_usage_host *host, const lp_sample_batch *batch);
void lp__usage_host_end(lp__usage *all, lp_usage_host *host); /* after the files of its processes; frees the devices */
lp_status lp__usage_gpu_batch(lp__usage_reading *reading, lp_usage_host *host, const lp_sample_batch *batch);

#endif
