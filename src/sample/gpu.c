#include "sample/gpu.h"

#include <string.h>

lp_gpu_device *lp__gpu_add(lp_gpus *gpus)
{
    if (gpus->count == LP_GPUS_MAX)
        return NULL;
    lp_gpu_device *device = &gpus->device[gpus->count++];
    device->name[0] = '\0';
    device->process_count = 0;
    for (unsigned i = 0; i < LP_COLUMNS; i++) {
        device->value[i] = LP_UNKNOWN_I64;
        device->reason[i] = LP_REASON_NEVER;
    }
    return device;
}

void lp_gpus_sample(lp_gpus *gpus, int root)
{
    gpus->count = 0;
    gpus->why_none = LP_REASON_NONE;
    lp__nvml_sample(gpus);
    lp__amd_sample(gpus, root);
    gpus->opened = true;
}

void lp_gpus_close(lp_gpus *gpus)
{
    lp__nvml_close(gpus->nvml);
    gpus->nvml = NULL;
}
