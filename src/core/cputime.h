/* Was this thread off its CPU since I last looked? And how long, waiting for what?
 *
 * A thread that has not left its CPU has used exactly as much CPU time as wall time has passed, so a switch detector that
 * costs a load and a compare replaces two system calls a phase. The ladder (first that passes the self-test):
 *   rseq      the kernel clears rseq_cs in the thread's rseq area when it was descheduled (rseq(2), glibc >= 2.35)
 *   perf      the `lock` word of a mapped PERF_COUNT_SW_DUMMY event changes at every switch (perf_event_open(2))
 *   syscall   CLOCK_THREAD_CPUTIME_ID every time
 * A spurious "yes" costs a system call; a wrong "no" would be a wrong number, hence the self-test. */
#ifndef LP_CORE_CPUTIME_H
#define LP_CORE_CPUTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "core/layout.h"

struct lp_thread;

typedef struct lp_detector { /* of one thread */
    volatile uint64_t *word; /* what to look at; a word of its own that never matches when there is none */
    uint64_t expected;       /* its value while the thread stays on its CPU */
    uint64_t base_ticks, base_cpu, base_delay; /* when both clocks were known */
    uint64_t never;                            /* what `word` points to on the system call rung */
    void *page;                                /* perf: the mapped page */
    volatile uint64_t *shared;                 /* rseq: the thread's one word, which all its recorders look at */
    uint64_t dev, ino;                         /* of schedstat, to know it again before closing */
    int schedstat;                             /* fd, -1 none */
    uint32_t sure;                             /* how many were lost when it was last known to be this thread's */
    bool split;
} lp_detector;

/* Chooses once a process: runs the self-test. `forced`: lp_cpu_kind or -1. */
lp_cpu_kind lp_cpu_choose(int forced);

/* Starts watching the calling thread. Leaves errno as it was. */
void lp_detector_start(lp_detector *detector, lp_cpu_kind kind);
/* Ends it: from the thread itself (thread = true) or from elsewhere. */
void lp_detector_stop(lp_detector *detector, bool thread);
/* Watches on from now: after this, *word == expected until the next switch. true: the sign of one was taken away, which the thread's
 * other detectors, if it has any, are to be told of (lp_detector_told). */
bool lp_detector_arm(lp_detector *detector);
/* As if there had been a switch: the next compare says so. */
void lp_detector_upset(lp_detector *detector);
/* The same for this detector only: another one of the thread has seen a switch first. */
void lp_detector_told(lp_detector *detector);

/* CLOCK_THREAD_CPUTIME_ID of the calling thread, ns. */
uint64_t lp_cpu_now(void);
/* Run-queue delay of the calling thread, ns (second field of /proc/thread-self/schedstat). false: cannot be read. */
bool lp_cpu_delay(lp_detector *detector, uint64_t *delay);

/* In a forked child: closes the parent's descriptors, which read the parent's threads. */
void lp_cpu_in_child(void);

/* What our own reads of /proc add to the program's rchar: of the process, and of the calling thread. */
extern _Atomic uint64_t lp__own_reads __attribute__((visibility("hidden")));
extern __thread uint64_t lp__own_reads_here __attribute__((visibility("hidden")));
static inline void lp__own_read(int64_t bytes)
{
    if (bytes > 0) {
        lp__own_reads += (uint64_t)bytes;
        lp__own_reads_here += (uint64_t)bytes;
    }
}

/* Moves fd to a number that programs do not use (closes the old one); close-on-exec. -1 if fd is -1. */
int lp__fd_high(int fd);
/* Closes fd only if it is still the file (dev, ino): a user's closerange may have given its number away. */
void lp__fd_close(int fd, uint64_t dev, uint64_t ino);

#endif
