/* The segments of the run as the collector knows them: each is opened when it is first seen and stays open, so that what it holds
 * is safe even if somebody removes the name (logind removes a user's shared memory at logout).
 *
 * The table belongs to the thread of the loop alone. The thread for the disk gets copies of what it needs (write.h). */
#ifndef LP_COLLECTOR_WATCH_H
#define LP_COLLECTOR_WATCH_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "core/layout.h"
#include "store/folder_id.h"

typedef struct lp__watched {
    struct lp__watched *next;
    char name[128];
    dev_t dev;
    ino_t ino;
    int fd;               /* owned; -1: not ours to look after (another run directory, namespace, layout), or damaged */
    int pidfd;            /* owned; -1 none: then the lock tells */
    int64_t pid, start;   /* of the process that pidfd is of */
    bool gone;            /* the name leads elsewhere */
    bool dead;            /* the kernel said so */
    bool seen;            /* in this scan */
    bool busy;            /* the thread for the disk is at it: fd stays open, the entry stays */
    uint64_t snapshot_ns; /* interval, 0 none */
    uint64_t due_ns;      /* CLOCK_MONOTONIC: the next snapshot while it lives */
    uint64_t content;     /* hash of what the last one held */
    uint32_t living;      /* generation of that one, 0 none */
    int64_t cpu_ns;       /* what its process had used when that one was read; LP_UNKNOWN_I64 */
    uint32_t failures;    /* in a row */
    uint64_t failed;      /* in all, since the last that succeeded */
    uint64_t retry_ns;    /* CLOCK_MONOTONIC: not before */
    uint32_t asked;       /* the newest "write everything now" that it has an order of */
    uint64_t sample_ns;   /* interval, 0 none */
    void *sampled;        /* the sampler's; NULL: nothing */
} lp__watched;

typedef struct lp__watch {
    int folder; /* owned: of segments */
    char path[1024];
    lp_folder_id run_dir;
    uint64_t pid_ns, mnt_ns, time_ns;
    int fd_most; /* descriptors of this number and above are left to the disk and to what is only opened for a moment */
    int poll;    /* epoll; a pidfd's data is its lp__watched */
    lp__watched *list;
    struct timespec listed; /* when the folder was last changed, as of the last look through it; 0 look anyway */
    unsigned count;         /* that are ours */
    uint32_t asked;         /* how often everything was to be written at once */
    unsigned pending;       /* files seen whose process has not begun to record */
    void (*dropped)(void *sampled); /* told when an entry that has one goes; NULL: nobody */
} lp__watch;

uint64_t lp__now_ns(void);
/* When a snapshot is due that follows one of `from`: an interval later. From 4 s on at the whole second before that, together with those
 * of other processes and with samples, since one waking for all costs much less than one for each. */
static inline uint64_t lp__watch_due(uint64_t from, uint64_t interval)
{
    const uint64_t second = 1000000000u;
    return interval < 4 * second ? from + interval : (from + interval) / second * second;
}
/* Looks through the folder: opens what is new, marks what lost its name. One that has not changed is not read again. */
void lp__watch_scan(lp__watch *watch);
/* Is its process gone? */
bool lp__watch_is_dead(const lp__watched *w);
/* Has its process ended, by its pidfd? One that has closed its segment goes on. */
bool lp__watch_has_ended(const lp__watched *w);
/* Its pidfd has spoken: how the process ended goes into the segment, where whoever writes the last snapshot finds it. */
void lp__watch_died(lp__watch *watch, lp__watched *w);
/* Its pidfd is not needed any more. */
void lp__watch_forget_process(lp__watch *watch, lp__watched *w);
/* Closes and forgets it. */
void lp__watch_drop(lp__watch *watch, lp__watched *w);

#endif
