/* GPUs of the host and of each process on them, once an interval, by a thread of their own: a driver that hangs costs its
 * columns, which then say so. */
#ifndef LP_COLLECTOR_GPU_H
#define LP_COLLECTOR_GPU_H

#include "collector/aside.h"
#include "collector/sampled.h"
#include "sample/gpu.h"

typedef struct lp__gpu_watch {
    lp__aside aside;
    lp_gpus *job;       /* owned; the thread's while it is posted; NULL: no memory */
    int root;           /* borrowed */
    bool posted, inner; /* inner: our pid namespace is not the host's */
    uint64_t posted_ns, next_ns;
    uint32_t known;                        /* devices of the last answer */
    lp_sample_writer *writer[LP_GPUS_MAX]; /* owned: of the host's series */
} lp__gpu_watch;

void lp__gpu_start(lp__gpu_watch *gpu, int root, uint64_t pid_ns);
/* Takes an answer that has come, as rows of `host` and of the processes; asks again. `list`: all sampled processes. */
void lp__gpu_tick(lp__gpu_watch *gpu, lp__sampled *list, lp__stream *host, uint64_t interval_ns, uint64_t now,
                  uint64_t unix_ns);
void lp__gpu_flush(lp__gpu_watch *gpu, lp__stream *host);

#endif
