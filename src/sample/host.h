/* The machine: CPUs, load, memory, pressure (proc(5)). What its control groups allow is in cgroup.h. */
#ifndef LP_SAMPLE_HOST_H
#define LP_SAMPLE_HOST_H

#include "sample/text.h"

typedef struct lp_host {
    int root;
    lp__text_file stat, online, load, memory, pressure_cpu, pressure_memory, pressure_io;
    unsigned pause; /* samples until /proc/stat is read again, where that is dear */
} lp_host;

void lp_host_open(lp_host *host, int root); /* root is borrowed */
void lp_host_close(lp_host *host);
void lp_host_sample(lp_host *host, lp_sample *sample);

#endif
