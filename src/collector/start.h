/* Starting the collector from the recorded process, so that the program cannot see it: no SIGCHLD, no child for its wait(), no
 * atfork handler, no descriptor of its own in the collector; errno, signal mask and handlers as they were.
 *
 * What it costs the program: one process slot, 0.4-0.8 ms once, and that the time of the start (some 0.1 ms of CPU) is
 * in getrusage(RUSAGE_CHILDREN), as of every child that was waited for. */
#ifndef LP_COLLECTOR_START_H
#define LP_COLLECTOR_START_H

#include <stdbool.h>

#include "core/status.h"

typedef struct lp_collector_request { /* all borrowed */
    const char *folder;               /* of the run's segments, absolute */
    const char *run_dir;              /* absolute */
    uint64_t run_dir_dev, run_dir_ino;
    uint64_t pid_ns, mnt_ns, time_ns; /* inodes of the caller's; pid_ns 0: not looked at yet */
    const char *source;               /* directory that git is asked about, "" for none */
    const char *program;              /* path of the collector; NULL: beside this library, else in libexec */
    int folder_fd;                    /* + 1, of the folder; 0: it is opened by its path */
    bool again;                       /* the parent of this forked child has seen one: a look at its pid is enough */
} lp_collector_request;

/* LP_OK: a collector is there, by us or before. Call it after the segment has its name: then a collector that is just leaving sees the
 * segment or has left the lock to us. Anything else: the process looks after itself. Keeps errno. Any thread; may be called in
 * a forked child. Quick when one is there: reads two small files. */
lp_status lp_collector_ensure(const lp_collector_request *request, lp_error *error);

#endif
