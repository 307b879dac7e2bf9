/* The collector's life: elected, watching, writing, leaving. */
#ifndef LP_COLLECTOR_LOOP_H
#define LP_COLLECTOR_LOOP_H

typedef struct lp__collector_task { /* borrowed */
    const char *folder;             /* of the run's segments */
    const char *run_dir;
    const char *source; /* directory that git is asked about, "" none */
    int lock;           /* held, of the elected file; -1: to be taken */
} lp__collector_task;

/* Until nothing lives, or another collector does. Exit status. */
int lp__collector_run(const lp__collector_task *task);

#endif
