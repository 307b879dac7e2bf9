/* The control groups that this process is in (v1, v2, or some of each): limits, use, throttled time. Of each controller the
 * levels up to the mount are looked through for the tightest limit, and use is of the level that has it (the own level if
 * none limits): that is where it bites. */
#ifndef LP_SAMPLE_CGROUP_H
#define LP_SAMPLE_CGROUP_H

#include "sample/text.h"

#define LP__CGROUP_LEVELS 16u

typedef struct lp__cgroup_path {  /* of one controller */
    int level[LP__CGROUP_LEVELS]; /* owned: directories, the own first */
    unsigned count;
    bool v2;
} lp__cgroup_path;

typedef struct lp_cgroup {
    lp__cgroup_path cpu, cpuacct, memory;
} lp_cgroup;

/* Finds them by /proc/self/cgroup and /proc/self/mountinfo below `root`. What is not there has no levels. */
void lp_cgroup_open(lp_cgroup *cgroup, int root);
void lp_cgroup_close(lp_cgroup *cgroup);
void lp_cgroup_sample(const lp_cgroup *cgroup, lp_sample *sample);

#endif
