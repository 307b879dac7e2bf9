/* The GPUs of this host: NVIDIA's by NVML, a library of the driver's that is opened when it is first asked; AMD's by sysfs. Calls
 * may hang when a driver is in trouble, so they belong into a thread apart, and no other may use the same lp_gpus meanwhile. */
#ifndef LP_SAMPLE_GPU_H
#define LP_SAMPLE_GPU_H

#include "sample/text.h"

#define LP_GPUS_MAX 32u
#define LP_GPU_PROCESSES 256u /* of one device */

typedef struct lp_gpu_process { /* one of ours on one device */
    int64_t pid;                /* as the caller knows it */
    int64_t memory_kib;         /* LP_UNKNOWN_I64 */
    int64_t busy;               /* 1/1000, since the last sample; LP_UNKNOWN_I64 */
    lp_reason memory_reason, busy_reason;
} lp_gpu_process;

typedef struct lp_gpu_device {
    char name[96];
    int64_t value[LP_COLUMNS]; /* those of LP_SAMPLE_GPU_COLUMNS alone */
    uint8_t reason[LP_COLUMNS];
    lp_gpu_process process[LP_GPU_PROCESSES];
    uint32_t process_count;
} lp_gpu_device;

typedef struct lp_gpu_pid { /* a process to look for */
    int64_t pid;            /* as the caller knows it */
    int64_t outer;          /* in the outermost pid namespace that we can see (NSpid); equal without namespaces */
} lp_gpu_pid;

typedef struct lp_gpus {
    lp_gpu_device device[LP_GPUS_MAX];
    uint32_t count;
    lp_reason why_none; /* count 0: LP_REASON_NO_LIBRARY, …; LP_REASON_NONE: there is none */
    lp_gpu_pid ours[LP_GPU_PROCESSES];
    uint32_t ours_count;
    bool pids_are_inner;   /* ours are of a pid namespace below the host's: the driver knows others */
    struct lp__nvml *nvml; /* owned; NULL until the first sample */
    bool opened;
} lp_gpus;

/* Fills devices and their processes; `ours` are the processes to look for. `root`: of sysfs. */
void lp_gpus_sample(lp_gpus *gpus, int root);
void lp_gpus_close(lp_gpus *gpus);

/* nvml.c */
void lp__nvml_sample(lp_gpus *gpus);
void lp__nvml_close(struct lp__nvml *nvml);
/* amd.c: devices are appended. */
void lp__amd_sample(lp_gpus *gpus, int root);
/* The next device, with nothing known; NULL: too many. */
lp_gpu_device *lp__gpu_add(lp_gpus *gpus);

#endif
