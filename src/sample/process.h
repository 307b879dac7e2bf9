/* One process, read from outside: /proc/<pid> (proc(5)) and its CPU clock. Nothing here waits for the process, stops it or
 * takes its locks for long; smaps_rollup, which does, is lp_process_pss's, and the caller decides when.
 *
 * Files are kept open, so a pid that is given to another process is never mistaken for this one: the start time is compared
 * once, when /proc/<pid> has been opened. All paths are below `root`, "/" or a made-up tree of tests. */
#ifndef LP_SAMPLE_PROCESS_H
#define LP_SAMPLE_PROCESS_H

#include "sample/text.h"

#define LP_PSS_LIMIT_KIB                                                                                               \
    (500 << 10) /* of RSS, above which PSS is not read: 70 ms at 6 GB, with the memory map locked */

typedef struct lp__thread_sums lp__thread_sums;

/* What of a row can be as it was: all columns of lp_process_sample. */
#define LP__PROCESS_COLUMNS ((unsigned)LP_COLUMN_CPUS_ALLOWED + 1)

typedef struct lp_process {
    int64_t pid, start; /* of /proc/<pid>/stat field 22 */
    int dir;            /* owned: /proc/<pid> */
    bool real;          /* root is "/": the CPU clock of the pid may be asked */
    lp__text_file stat, statm, status, io, schedstat, children;
    lp__thread_sums *threads;        /* owned; NULL while there is one thread */
    struct lp__relatives *relatives; /* owned; NULL while there are no children */
    int64_t ended_ticks;             /* cutime + cstime as last read */
    int64_t total_ticks;             /* utime + stime + cutime + cstime as last read */
    int64_t ended_faults;            /* cminflt as last read: what the children that it has waited for had */
    int64_t total_faults;            /* minflt + cminflt as last read */
    int64_t parent;                  /* its pid as last read */
    int64_t outer_pid;               /* NSpid: the outermost of its numbers that this /proc shows */
    int64_t rss_kib;                 /* as last read, LP_UNKNOWN_I64 */
    bool leader_ended;               /* the first thread has; others run */
    bool ended;                      /* all have: a zombie */
    bool idle;                       /* it has not run since the sample before, by its CPU clock */
    struct {                         /* the last sample that was read in full */
        int64_t clock_ns;            /* LP_UNKNOWN_I64: none */
        bool complete;               /* all threads were read */
        unsigned repeated;           /* samples since that are copies of it */
        char statm[96];              /* "" not read with it */
        int64_t value[LP__PROCESS_COLUMNS];
        uint8_t reason[LP__PROCESS_COLUMNS];
    } full;
    bool childless; /* nothing of relatives.c was there at the last look */
} lp_process;

/* LP_REASON_NONE: open. Otherwise why not: LP_REASON_GONE (also another process has the pid), LP_REASON_HIDDEN, … `start` 0:
 * whatever it is. `real` as above. */
lp_reason lp_process_open(lp_process *process, int root, int64_t pid, int64_t start, bool real);
void lp_process_close(lp_process *process);
/* Fills the columns of a process but PSS, children, phases and torch. `thread_budget`: how many threads may be read besides the
 * first; less what was used. A process that has not run and whose memory is as it was has nothing new to tell: its row is repeated,
 * nine times at most, after two clocks' and one file's reading. LP_REASON_GONE: it has ended (a zombie still has its CPU and I/O), and nothing is filled. */
lp_reason lp_process_sample(lp_process *process, lp_sample *sample, unsigned *thread_budget);
/* CPU time of all threads, also of those that have ended; LP_UNKNOWN_I64: no such process. The clock of a process is anybody's to
 * read; after its number was given away it is another's, which the caller looks into after it. */
int64_t lp_process_cpu_ns(int64_t pid);
/* PSS now, in KiB; takes the process's memory map's lock: 12 ms for each GB. `dir` of an lp_process; may be another
 * thread's call. */
lp_reason lp_process_pss(int dir, int64_t *kib);

/* As lp__text_read, of a file of its folder. One that is not there while `stat` is not there either is hidden, not missing. */
long lp__process_read(lp_process *process, lp__text_file *file, const char *path, char text[LP__TEXT_ROOM],
                      lp_reason *reason);

#define LP_TICK_US 10000 /* USER_HZ is 100 in every Linux ABI that we build for */

/* What one line of /proc/<pid>/stat says. */
typedef struct lp__stat {
    char state;
    int64_t parent, minor, children_minor, major, user, system, children_user, children_system, threads, start,
        rss_pages;
} lp__stat;
bool lp__stat_parse(const char *text, lp__stat *out);

/* What /proc/<pid>/status says; LP_UNKNOWN_I64 what it does not. */
typedef struct lp__status {
    int64_t rss_kib, peak_kib, swap_kib, voluntary, forced, cpus_allowed, outer_pid;
} lp__status;
void lp__status_parse(const char *text, lp__status *out);

/* threads.c: sums of context switches and run-queue delay over the threads of a process. */
struct lp__thread_sums;
/* Reads the first thread from `status` (why it could not be read: `status_reason`) and `schedstat` of the process and up to *budget
 * others, those longest unread first; sums what was last seen of each, also of those that have ended since. true: all were read. */
bool lp__threads_sample(lp_process *process, int64_t count, const lp__status *status, lp_reason status_reason,
                        lp_sample *sample, unsigned *budget);
void lp__threads_free(lp__thread_sums *threads);
/* A thread besides the first that was there when they were listed, and another one with each call; 0: none. */
int64_t lp__threads_next(lp__thread_sums *threads);

/* relatives.c: children that are not recorded themselves. */
typedef struct lp__relatives lp__relatives;
typedef bool lp_is_recorded(void *user, int64_t pid);
/* Fills the columns of children. `reaped`: what recorded ones had used that are not recorded any more (reaped.h). At most *budget
 * processes are read. After lp_process_sample. */
struct lp_reaped;
void lp_process_children(lp_process *process, int root, lp_is_recorded *is_recorded, void *user,
                         const struct lp_reaped *reaped, lp_sample *sample, unsigned *budget);
void lp__relatives_free(lp__relatives *relatives);
/* Was it there, below the process, at the last look? */
bool lp__relatives_has(const lp__relatives *relatives, int64_t pid);

#endif
