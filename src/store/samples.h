/* Sample files: what a process and its host used, once a second, and which phases were open (proto/lineprofiler.proto,
 * SampleFile). The collector writes them; nothing here reads /proc.
 *
 * A row is one moment: a number or a reason in each column, and the phases that the interval before it is charged to.
 * Rows of one subject (a process, a host, one GPU of either) are a series; a batch holds up to LP_SAMPLE_ROWS rows of one.
 * Counters count from the start of their subject and never fall within a batch, so what an interval took is the
 * difference of two rows. Numbers are not negative. A number that could not be had is LP_UNKNOWN_I64 with a reason, never zero, and never made up. */
#ifndef LP_STORE_SAMPLES_H
#define LP_STORE_SAMPLES_H

#include "store/model.h"
#include "store/snapshot.h"

#define LP_SAMPLE_VERSION 1u
#define LP_SAMPLE_ROWS 60u         /* of a batch that we write */
#define LP_SAMPLE_SHARES 16u       /* phases that share one interval */
#define LP_SAMPLE_WHOLE 1000u      /* the shares of a row add up to this or less; the rest is "no phase open" */
#define LP_SAMPLE_PATHS (1u << 16) /* of one file; further ones are charged to their parent */

typedef enum lp_series {
    LP_SERIES_PROCESS = 1,
    LP_SERIES_HOST = 2,
    LP_SERIES_GPU = 3,        /* of the host; `index` is the device */
    LP_SERIES_PROCESS_GPU = 4 /* what one process uses of device `index` */
} lp_series;

/* X(number in the file, constant, name, unit, step, C counter or G gauge, where it comes from). Numbers are never reused. Values
 * are in units and stored in steps of so many: what is measured no finer takes no more room. */
#define LP_SAMPLE_PROCESS_COLUMNS(X)                                                                                   \
    X(1, CPU, "cpu", "us", 1, C, "clock_gettime of the process's CPU clock; else utime + stime of stat")               \
    X(2, CPU_SYSTEM, "cpu_system", "us", 10000, C, "/proc/<pid>/stat field 15, steps of 10 ms")                        \
    X(3, RSS, "rss", "KiB", 4, G, "/proc/<pid>/status VmRSS; else statm field 2")                                      \
    X(4, RSS_PEAK, "rss_peak", "KiB", 4, G, "/proc/<pid>/status VmHWM")                                                \
    X(5, SWAP, "swap", "KiB", 4, G, "/proc/<pid>/status VmSwap")                                                       \
    X(6, PSS, "pss", "KiB", 1, G, "/proc/<pid>/smaps_rollup Pss")                                                      \
    X(7, FAULTS_MINOR, "faults_minor", "1", 1, C, "/proc/<pid>/stat field 10")                                         \
    X(8, FAULTS_MAJOR, "faults_major", "1", 1, C, "/proc/<pid>/stat field 12")                                         \
    X(9, SWITCHES_VOLUNTARY, "switches_voluntary", "1", 1, C, "/proc/<pid>/task/*/status voluntary_ctxt_switches")     \
    X(10, SWITCHES_FORCED, "switches_forced", "1", 1, C, "/proc/<pid>/task/*/status nonvoluntary_ctxt_switches")       \
    X(11, RUN_DELAY, "run_delay", "us", 1, C, "/proc/<pid>/task/*/schedstat field 2")                                  \
    X(12, READ_BYTES, "read_bytes", "B", 512, C, "/proc/<pid>/io read_bytes")                                          \
    X(13, WRITE_BYTES, "write_bytes", "B", 512, C, "/proc/<pid>/io write_bytes")                                       \
    X(14, READ_CHARS, "read_chars", "B", 1, C, "/proc/<pid>/io rchar")                                                 \
    X(15, WRITE_CHARS, "write_chars", "B", 1, C, "/proc/<pid>/io wchar")                                               \
    X(16, CANCELLED_BYTES, "cancelled_bytes", "B", 512, C, "/proc/<pid>/io cancelled_write_bytes")                     \
    X(17, THREADS, "threads", "1", 1, G, "/proc/<pid>/stat field 20")                                                  \
    X(18, THREADS_READ, "threads_read", "1", 1, G, "threads whose files were read for this row")                       \
    X(19, CPUS_ALLOWED, "cpus_allowed", "1", 1, G, "/proc/<pid>/status Cpus_allowed")                                  \
    X(20, CHILDREN_ENDED_CPU, "children_ended_cpu", "us", 10000, C,                                                    \
      "/proc/<pid>/stat cutime + cstime, less profiled ones")                                                          \
    X(21, CHILDREN_LIVING_CPU, "children_living_cpu", "us", 10000, G,                                                  \
      "/proc/<child>/stat utime + stime + cutime + cstime of descendants")                                             \
    X(22, CHILDREN_LIVING_RSS, "children_living_rss", "KiB", 4, G, "/proc/<child>/stat field 24")                      \
    X(23, CHILDREN_LIVING, "children_living", "1", 1, G, "/proc/<child>/stat ppid: living descendants, not profiled")  \
    X(24, PHASE_FRESH, "phase_fresh", "us", 1000, G, "part of the interval before the charged phase was entered")      \
    X(25, MISSED, "missed", "1", 1, C, "intervals at whose end no row was taken")                                      \
    X(26, TORCH_ALLOCATED, "torch_allocated", "KiB", 1, G, "torch.cuda.memory_allocated, read in the program")         \
    X(27, TORCH_RESERVED, "torch_reserved", "KiB", 1, G, "torch.cuda.memory_reserved, read in the program")

#define LP_SAMPLE_HOST_COLUMNS(X)                                                                                      \
    X(40, HOST_CPUS, "cpus_online", "1", 1, G, "/sys/devices/system/cpu/online")                                       \
    X(41, HOST_BUSY, "host_busy", "us", 10000, C, "/proc/stat: user, nice, system, irq, softirq; steps of 10 ms")      \
    X(42, HOST_IOWAIT, "host_iowait", "us", 10000, C, "/proc/stat iowait")                                             \
    X(43, HOST_STOLEN, "host_stolen", "us", 10000, C, "/proc/stat steal")                                              \
    X(44, HOST_LOAD, "load", "1/1000", 1, G, "/proc/loadavg, 1 minute")                                                \
    X(45, HOST_MEMORY, "memory_total", "KiB", 1, G, "/proc/meminfo MemTotal")                                          \
    X(46, HOST_AVAILABLE, "memory_available", "KiB", 1, G, "/proc/meminfo MemAvailable")                               \
    X(47, HOST_SWAP_USED, "swap_used", "KiB", 1, G, "/proc/meminfo SwapTotal - SwapFree")                              \
    X(48, CGROUP_QUOTA, "cgroup_cpus", "1/1000", 1, G,                                                                 \
      "cpu.max, cpu.cfs_quota_us / cfs_period_us: the least above us")                                                 \
    X(49, CGROUP_CPU, "cgroup_cpu", "us", 1, C, "cpu.stat usage_usec, cpuacct.usage")                                  \
    X(50, CGROUP_PERIODS, "cgroup_periods", "1", 1, C, "cpu.stat nr_periods")                                          \
    X(51, CGROUP_THROTTLES, "cgroup_throttles", "1", 1, C, "cpu.stat nr_throttled")                                    \
    X(52, CGROUP_THROTTLED, "cgroup_throttled", "us", 1, C, "cpu.stat throttled_usec, throttled_time")                 \
    X(53, CGROUP_LIMIT, "cgroup_memory_limit", "KiB", 1, G, "memory.max, memory.limit_in_bytes: the least above us")   \
    X(54, CGROUP_MEMORY, "cgroup_memory", "KiB", 1, G, "memory.current, memory.usage_in_bytes of the one that limits") \
    X(55, CGROUP_CACHE, "cgroup_cache", "KiB", 1, G, "memory.stat inactive_file, total_inactive_file: may be dropped") \
    X(56, CGROUP_KILLS, "cgroup_kills", "1", 1, C, "memory.events oom_kill, memory.oom_control oom_kill")              \
    X(57, PSI_CPU, "psi_cpu_some", "us", 1, C, "/proc/pressure/cpu some total")                                        \
    X(58, PSI_MEMORY, "psi_memory_some", "us", 1, C, "/proc/pressure/memory some total")                               \
    X(59, PSI_MEMORY_FULL, "psi_memory_full", "us", 1, C, "/proc/pressure/memory full total")                          \
    X(60, PSI_IO, "psi_io_some", "us", 1, C, "/proc/pressure/io some total")                                           \
    X(61, PSI_IO_FULL, "psi_io_full", "us", 1, C, "/proc/pressure/io full total")                                      \
    X(62, PROCESSES, "processes", "1", 1, G, "recorded processes that this collector samples")                         \
    X(63, LATENESS, "lateness", "us", 1, G, "how much later than planned this row was taken")                          \
    X(64, OWN_CPU, "own_cpu", "us", 1, C, "CPU time of the collector")                                                 \
    X(65, HOST_MISSED, "ticks_missed", "1", 1, C, "intervals that the collector let pass")                             \
    X(66, CGROUP_CPU_GROUP, "cgroup_cpu_group", "1", 1, G, "inode of the group that cgroup_cpus to _throttled are of") \
    X(67, CGROUP_MEMORY_GROUP, "cgroup_memory_group", "1", 1, G, "inode of the group that the others are of")

#define LP_SAMPLE_GPU_COLUMNS(X)                                                                                       \
    X(80, GPU_BUSY, "busy", "1/1000", 10, G, "nvmlDeviceGetUtilizationRates gpu; gpu_busy_percent")                    \
    X(81, GPU_MEMORY_USED, "memory_used", "KiB", 4, G, "nvmlDeviceGetMemoryInfo used; mem_info_vram_used")             \
    X(82, GPU_MEMORY_TOTAL, "memory_total", "KiB", 4, G, "nvmlDeviceGetMemoryInfo total; mem_info_vram_total")         \
    X(83, GPU_POWER, "power", "mW", 1, G, "nvmlDeviceGetPowerUsage; hwmon power1_average")                             \
    X(84, GPU_TEMPERATURE, "temperature", "C", 1, G, "nvmlDeviceGetTemperature; hwmon temp1_input")                    \
    X(85, GPU_MEMORY_BUSY, "memory_busy", "1/1000", 10, G, "nvmlDeviceGetUtilizationRates memory; mem_busy_percent")   \
    X(86, GPU_OURS_BUSY, "ours_busy", "1/1000", 10, G, "nvmlDeviceGetProcessUtilization smUtil")                       \
    X(87, GPU_OURS_MEMORY, "ours_memory", "KiB", 4, G, "nvmlDeviceGetComputeRunningProcesses usedGpuMemory")

#define LP_SAMPLE_COLUMN_LIST(X) LP_SAMPLE_PROCESS_COLUMNS(X) LP_SAMPLE_HOST_COLUMNS(X) LP_SAMPLE_GPU_COLUMNS(X)

typedef enum lp_column { /* an index, dense; the number in the file is another */
#define LP_SAMPLE_ENUM(number, constant, name, unit, step, kind, source) LP_COLUMN_##constant,
                         LP_SAMPLE_COLUMN_LIST(LP_SAMPLE_ENUM)
#undef LP_SAMPLE_ENUM
                             LP_COLUMNS
} lp_column;

typedef struct lp_column_info { /* all static */
    uint32_t number;
    uint32_t step; /* units: values are stored as multiples, rounded down */
    const char *name, *unit, *source;
    bool counter;
} lp_column_info;
extern const lp_column_info lp_column_table[LP_COLUMNS];

/* Why a number is missing. X(number in the file, constant, text). */
#define LP_REASON_LIST(X)                                                                                              \
    X(0, NONE, "")                                                                                                     \
    X(1, NOT_DUE, "measured less often than every row")                                                                \
    X(2, GONE, "the process had ended")                                                                                \
    X(3, DENIED, "permission denied: the program has changed its user or is not dumpable")                             \
    X(4, NO_FILE, "this kernel has no such file")                                                                      \
    X(5, NO_LIMIT, "no limit is set")                                                                                  \
    X(6, TOO_LARGE, "not read above 500 MB: the program's memory would be held up")                                    \
    X(7, HIDDEN, "/proc hides the process (hidepid)")                                                                  \
    X(8, UNREADABLE, "the file says something unexpected")                                                             \
    X(9, LEADER_ENDED, "the main thread has ended")                                                                    \
    X(10, NO_LIBRARY, "no libnvidia-ml.so.1")                                                                          \
    X(11, NO_DRIVER, "the NVIDIA driver does not answer its library")                                                  \
    X(12, HUNG, "the GPU library did not answer in time")                                                              \
    X(13, UNSUPPORTED, "not supported by this device")                                                                 \
    X(14, PARTITIONED, "not told for a partition of a device (MIG)")                                                   \
    X(15, NAMESPACE, "the GPU library knows other process numbers (pid namespace)")                                    \
    X(16, NOT_USED, "the process does not use it")                                                                     \
    X(17, FAILED, "the call failed")                                                                                   \
    X(18, NOT_YET, "needs two readings")                                                                               \
    X(19, NOT_PERMITTED, "the GPU library does not permit it")                                                         \
    X(20, NEVER, "not among what the writer measures")

typedef enum lp_reason {
#define LP_REASON_ENUM(number, constant, text) LP_REASON_##constant = (number),
    LP_REASON_LIST(LP_REASON_ENUM)
#undef LP_REASON_ENUM
} lp_reason;
const char *lp_reason_text(uint32_t reason); /* static; of an unknown one, too */

typedef struct lp_share {
    uint32_t path;  /* of the file's list; 0: none open */
    uint32_t parts; /* of LP_SAMPLE_WHOLE */
} lp_share;

typedef struct lp_sample { /* one row */
    uint64_t mono_ns;      /* CLOCK_MONOTONIC */
    uint64_t unix_ns;
    int64_t value[LP_COLUMNS];  /* LP_UNKNOWN_I64: not measured */
    uint8_t reason[LP_COLUMNS]; /* lp_reason, of those */
    lp_share share[LP_SAMPLE_SHARES];
    uint32_t share_count;
} lp_sample;
/* Nothing measured, no phase. Columns that stay so with LP_REASON_NEVER are not written. */
void lp_sample_init(lp_sample *sample);
static inline void lp_sample_set(lp_sample *sample, lp_column column, int64_t value)
{
    sample->value[column] = value;
    sample->reason[column] = LP_REASON_NONE;
}
static inline void lp_sample_miss(lp_sample *sample, lp_column column, lp_reason reason)
{
    sample->value[column] = LP_UNKNOWN_I64;
    sample->reason[column] = (uint8_t)reason;
}

/* ---- writing: rows into bytes (samples_write.c); no files */

typedef struct lp_sample_head {
    lp_series series;         /* LP_SERIES_PROCESS or LP_SERIES_HOST: what the file is about */
    const lp_identity *id;    /* of the process; of the collector for a host */
    uint64_t interval_ns;     /* planned */
    uint64_t collector_start; /* pid and start time of the writer */
    int64_t collector_pid;
} lp_sample_head;
/* The beginning of a file. */
lp_status lp_samples_put_head(lp_buffer *out, const lp_sample_head *head);

typedef struct lp_sample_writer lp_sample_writer; /* of one series */
/* NULL without memory. */
lp_sample_writer *lp_sample_writer_new(lp_series series, uint32_t index, uint64_t interval_ns);
void lp_sample_writer_free(lp_sample_writer *writer); /* NULL is allowed; rows that were not put are lost */
void lp_sample_writer_label(lp_sample_writer *writer, lp_str label); /* of a device; cut at 127 bytes */
/* A new path of the file; parent 0 is the root. Ids are given in order, from 1; 0: no more room. Belongs to the writer of
 * series LP_SERIES_PROCESS; the next batch carries it. */
uint32_t lp_sample_writer_path(lp_sample_writer *writer, uint32_t parent, lp_str name);
/* Takes a row. Appends a batch to `out` when it is full, or when the row does not fit to the ones before (a counter fell,
 * a reason changed). A batch is full at LP_SAMPLE_ROWS, the first ones earlier, so that a file soon has something. */
lp_status lp_sample_writer_add(lp_sample_writer *writer, const lp_sample *row, lp_buffer *out);
/* The rows that wait, as a batch. Nothing if there are none. */
lp_status lp_sample_writer_flush(lp_sample_writer *writer, lp_buffer *out);

/* ---- files (samples_file.c). Keep nothing of errno; for the collector. */

/* Makes workers/<host>/<stem>.<n>.samples below the run directory, with the least n that is free, writes `start` and gives
 * the descriptor; stem is that of the snapshots for a process, "host_<run>_<pid>_<uuid8>" for a host. -1: errno. */
int lp_samples_create(int run_dir, const lp_identity *id, lp_series series, const lp_buffer *start);
/* At the end, whole or not at all (as far as the file system lets cut it off again). */
bool lp_samples_append(int fd, const lp_buffer *bytes);

/* ---- finding (samples_list.c) */

typedef struct lp_sample_files {
    lp_str *paths; /* terminated, sorted; owned by the arena */
    uint32_t count;
} lp_sample_files;
/* All of a run directory, of every attempt and of any content. None where there is no such directory. LP_E_MEMORY only. */
lp_status lp_samples_list(const char *directory, lp_arena *arena, lp_sample_files *files);

/* ---- reading (samples_read.c): any bytes may be given */

typedef struct lp_sample_batch { /* all owned by the reader, valid until the next call */
    lp_series series;
    uint32_t index;
    lp_str label;
    uint64_t unix_ns, mono_ns; /* of the first row */
    uint32_t rows;
    const uint64_t *time_us;          /* since then, of each row; ascending */
    const int64_t *value[LP_COLUMNS]; /* of each row; NULL: none in the batch */
    uint32_t reason[LP_COLUMNS];      /* why some or all are missing; 0 if none is */
    const lp_share *shares;           /* of all rows, one after the other */
    const uint32_t *share_end;        /* of each row: index after its last */
} lp_sample_batch;

/* Do the first bytes look like a sample file's? */
bool lp_samples_is_start(const void *data, size_t size);
typedef struct lp_samples lp_samples; /* a reader: holds one batch, the identity and the paths */
/* LP_E_FOREIGN: no sample file; LP_E_TRUNCATED: not even its head is whole. `name` is put before error texts. `fd` is the
 * caller's, stays open, and is read by pread. */
lp_status lp_samples_open(int fd, const char *name, lp_samples **reader, lp_error *error);
lp_status lp_samples_open_memory(const void *data, size_t size, const char *name, lp_samples **reader,
                                 lp_error *error); /* borrows data */
void lp_samples_close(lp_samples *reader);         /* NULL is allowed */
/* Strings are the reader's. */
const lp_identity *lp_samples_identity(const lp_samples *reader);
lp_series lp_samples_series(const lp_samples *reader);
uint64_t lp_samples_interval_ns(const lp_samples *reader);
/* *batch NULL: the end. What follows a damaged or torn batch is not read: lp_samples_lost says so. Only LP_E_MEMORY and
 * LP_E_IO fail. */
lp_status lp_samples_next(lp_samples *reader, const lp_sample_batch **batch, lp_error *error);
/* After the end: why the rest of the file was left out, "" if nothing was; bytes of it. */
const char *lp_samples_lost(const lp_samples *reader, uint64_t *bytes);
/* Paths seen so far: ids 1 .. count. */
uint32_t lp_samples_path_count(const lp_samples *reader);
/* Parent (smaller id, 0 the root) and name; false for an id that is not there. */
bool lp_samples_path(const lp_samples *reader, uint32_t path, uint32_t *parent, lp_str *name);

#endif
