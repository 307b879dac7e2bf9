/* Sampling: every recorded process and the host, once per interval, on a grid of CLOCK_MONOTONIC that does not drift. All of
 * it in the loop's thread, since nothing here waits: what may hang has threads of its own (aside.h, disk.h). */
#ifndef LP_COLLECTOR_SAMPLER_H
#define LP_COLLECTOR_SAMPLER_H

#include "collector/aside.h"
#include "collector/gpu.h"
#include "collector/sampled.h"
#include "collector/streams.h"
#include "collector/watch.h"
#include "sample/cgroup.h"
#include "sample/host.h"

typedef struct lp__pss_job { /* of the thread that reads PSS */
    int dir;                 /* owned: a copy of /proc/<pid> */
    lp__sampled *who;        /* NULL: it has gone meanwhile */
    int64_t kib;
    lp_reason reason;
    uint64_t took_ns;
} lp__pss_job;

typedef struct lp__sampler {
    lp__watch *watch;
    int root; /* owned: "/" */
    lp__sampled *list;
    unsigned count;
    lp__streams streams;
    struct { /* of this host */
        lp_host files;
        lp_cgroup cgroup;
        bool open;
        lp_sample_writer *writer;
        lp__stream *stream; /* NULL: not yet, or not possible */
        uint64_t interval_ns, due_ns, last_ns;
        uint64_t missed;
    } host;
    lp__gpu_watch gpu;
    lp__aside pss;
    lp__pss_job pss_job;
    uint64_t pss_next_ns; /* not before: what a reading took is paid off by waiting */
} lp__sampler;

/* After lp__watch is open. false: no "/". */
bool lp__sampler_start(lp__sampler *sampler, lp__watch *watch);
/* When there is something to do. */
uint64_t lp__sampler_due(const lp__sampler *sampler);
/* Takes what is due; first rows of processes that are new, last ones of those that have died. `flush`: everything that waits
 * for a full batch goes to the disk. */
void lp__sampler_run(lp__sampler *sampler, uint64_t now, bool flush);
/* No process lives: the host's rows go to the disk, too. */
void lp__sampler_rest(lp__sampler *sampler);

#endif
