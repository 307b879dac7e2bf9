/* NVIDIA's GPUs by libnvidia-ml.so.1, opened with dlopen: nothing is linked or shipped. The functions and structs are those of the
 * public nvml.h (R450 on); each function that is missing costs its column. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sample/gpu.h"

#define LIBRARY "libnvidia-ml.so.1"
#define REOPEN_S 60            /* after a failure: a driver may come back */
#define NEVER_VALUE UINT64_MAX /* "not available" of nvmlProcessInfo_t.usedGpuMemory */

enum { /* nvmlReturn_t */
       SUCCESS = 0,
       UNINITIALIZED = 1,
       NOT_SUPPORTED = 3,
       NO_PERMISSION = 4,
       NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9,
       LIBRARY_NOT_FOUND = 12,
       GPU_IS_LOST = 15,
       LIB_RM_VERSION_MISMATCH = 18
};

typedef void *device_t;
typedef struct utilization {
    unsigned gpu, memory; /* percent */
} utilization;
typedef struct memory {
    unsigned long long total, free, used; /* bytes */
} memory;
typedef struct process_info { /* of the _v2 and _v3 functions */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process_info;
typedef struct process_sample {
    unsigned pid;
    unsigned long long time_stamp; /* us */
    unsigned sm, memory, encoder, decoder;
} process_sample;

struct lp__nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*by_index)(unsigned, device_t *);
    int (*name)(device_t, char *, unsigned);
    int (*rates)(device_t, utilization *);
    int (*memory)(device_t, memory *);
    int (*power)(device_t, unsigned *);
    int (*temperature)(device_t, int, unsigned *);
    int (*mig)(device_t, unsigned *, unsigned *);
    int (*compute)(device_t, unsigned *, process_info *);
    int (*graphics)(device_t, unsigned *, process_info *);
    int (*process_rates)(device_t, process_sample *, unsigned *, unsigned long long);
    bool ready;
    time_t retry;
    lp_reason why;
    unsigned long long seen[LP_GPUS_MAX]; /* us: of the last process sample */
};

static lp_reason reason_of(int result)
{
    switch (result) {
    case NOT_SUPPORTED: return LP_REASON_UNSUPPORTED;
    case NO_PERMISSION: return LP_REASON_NOT_PERMITTED;
    case UNINITIALIZED:
    case DRIVER_NOT_LOADED:
    case LIBRARY_NOT_FOUND:
    case GPU_IS_LOST:
    case LIB_RM_VERSION_MISMATCH: return LP_REASON_NO_DRIVER;
    default: return LP_REASON_FAILED;
    }
}

static void find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found); /* POSIX: both have the same representation */
}

/* Where the program would have found it, then where the system does. The program's LD_LIBRARY_PATH comes under another name, so
 * that it does not choose the collector's other libraries. */
static void *load(void)
{
    const char *at = getenv("LINEPROFILER_LIBRARY_PATH");
    char path[4096];

    while (at && *at) {
        size_t size = strcspn(at, ":");
        void *library = NULL;
        if (size > 0 && size < sizeof path - sizeof LIBRARY - 1) {
            snprintf(path, sizeof path, "%.*s/%s", (int)size, at, LIBRARY);
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
        if (library)
            return library;
        at += size + (at[size] == ':');
    }
    return dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static struct lp__nvml *open_library(void)
{
    struct lp__nvml *n = calloc(1, sizeof *n);

    if (!n)
        return NULL;
    n->library = load();
    n->why = LP_REASON_NO_LIBRARY;
    if (!n->library)
        return n;
    find(n->library, "nvmlInit_v2", &n->init);
    find(n->library, "nvmlShutdown", &n->shutdown);
    find(n->library, "nvmlDeviceGetCount_v2", &n->count);
    find(n->library, "nvmlDeviceGetHandleByIndex_v2", &n->by_index);
    find(n->library, "nvmlDeviceGetName", &n->name);
    find(n->library, "nvmlDeviceGetUtilizationRates", &n->rates);
    find(n->library, "nvmlDeviceGetMemoryInfo", &n->memory);
    find(n->library, "nvmlDeviceGetPowerUsage", &n->power);
    find(n->library, "nvmlDeviceGetTemperature", &n->temperature);
    find(n->library, "nvmlDeviceGetMigMode", &n->mig);
    find(n->library, "nvmlDeviceGetComputeRunningProcesses_v3", &n->compute);
    if (!n->compute)
        find(n->library, "nvmlDeviceGetComputeRunningProcesses_v2", &n->compute);
    find(n->library, "nvmlDeviceGetGraphicsRunningProcesses_v3", &n->graphics);
    if (!n->graphics)
        find(n->library, "nvmlDeviceGetGraphicsRunningProcesses_v2", &n->graphics);
    find(n->library, "nvmlDeviceGetProcessUtilization", &n->process_rates);
    n->why = LP_REASON_FAILED;
    return n;
}

/* true: calls may be made. After a failure it is tried again, once a minute. */
static bool be_ready(struct lp__nvml *n)
{
    struct timespec now;

    if (n->ready || !n->library || !n->init || !n->count || !n->by_index)
        return n->ready;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (n->retry && now.tv_sec < n->retry)
        return false;
    n->retry = now.tv_sec + REOPEN_S;
    int result = n->init();
    n->ready = result == SUCCESS;
    n->why = n->ready ? LP_REASON_NONE : reason_of(result);
    return n->ready;
}

static void put(lp_gpu_device *device, lp_column column, int result, int64_t value)
{
    bool have = result == SUCCESS && value >= 0;

    device->value[column] = have ? value : LP_UNKNOWN_I64;
    device->reason[column] = (uint8_t)(have                ? LP_REASON_NONE
                                       : result == SUCCESS ? LP_REASON_UNREADABLE
                                                           : reason_of(result));
}

static void read_device(struct lp__nvml *n, device_t handle, lp_gpu_device *device)
{
    utilization rates = {0};
    memory bytes = {0};
    unsigned power = 0, degrees = 0;
    int result;

    if (!n->name || n->name(handle, device->name, sizeof device->name) != SUCCESS)
        snprintf(device->name, sizeof device->name, "NVIDIA GPU");
    device->name[sizeof device->name - 1] = '\0';
    result = n->rates ? n->rates(handle, &rates) : NOT_SUPPORTED;
    put(device, LP_COLUMN_GPU_BUSY, result, rates.gpu <= 100 ? (int64_t)rates.gpu * 10 : -1);
    put(device, LP_COLUMN_GPU_MEMORY_BUSY, result, rates.memory <= 100 ? (int64_t)rates.memory * 10 : -1);
    result = n->memory ? n->memory(handle, &bytes) : NOT_SUPPORTED;
    put(device, LP_COLUMN_GPU_MEMORY_USED, result, (int64_t)(bytes.used >> 10));
    put(device, LP_COLUMN_GPU_MEMORY_TOTAL, result, (int64_t)(bytes.total >> 10));
    result = n->power ? n->power(handle, &power) : NOT_SUPPORTED;
    put(device, LP_COLUMN_GPU_POWER, result, power);
    result = n->temperature ? n->temperature(handle, 0, &degrees) : NOT_SUPPORTED;
    put(device, LP_COLUMN_GPU_TEMPERATURE, result, degrees);
}

/* ---- whose */

static lp_gpu_process *ours(const lp_gpus *gpus, lp_gpu_device *device, unsigned pid)
{
    for (uint32_t i = 0; i < gpus->ours_count; i++) {
        if (gpus->ours[i].outer != (int64_t)pid)
            continue;
        for (uint32_t k = 0; k < device->process_count; k++)
            if (device->process[k].pid == gpus->ours[i].pid)
                return &device->process[k];
        if (device->process_count == LP_GPU_PROCESSES)
            return NULL;
        lp_gpu_process *made = &device->process[device->process_count++];
        *made = (lp_gpu_process){.pid = gpus->ours[i].pid,
                                 .memory_kib = LP_UNKNOWN_I64,
                                 .busy = LP_UNKNOWN_I64,
                                 .memory_reason = LP_REASON_UNSUPPORTED,
                                 .busy_reason = LP_REASON_UNSUPPORTED};
        return made;
    }
    return NULL;
}

/* Memory of the processes of one list. *others: pids that are nobody's of ours. */
static int read_list(int (*list)(device_t, unsigned *, process_info *), device_t handle, const lp_gpus *gpus,
                     lp_gpu_device *device, int64_t *sum, bool *unknown)
{
    static process_info found[LP_GPU_PROCESSES * 2];
    unsigned count = LP_GPU_PROCESSES * 2;
    int result = list ? list(handle, &count, found) : NOT_SUPPORTED;

    if (result != SUCCESS)
        return result;
    for (unsigned i = 0; i < count && i < LP_GPU_PROCESSES * 2; i++) {
        lp_gpu_process *p = ours(gpus, device, found[i].pid);
        if (!p)
            continue;
        if (found[i].used == NEVER_VALUE) {
            *unknown = true;
            continue;
        }
        p->memory_kib = (p->memory_kib == LP_UNKNOWN_I64 ? 0 : p->memory_kib) + (int64_t)(found[i].used >> 10);
        *sum += (int64_t)(found[i].used >> 10);
    }
    return SUCCESS;
}

static void read_memory(struct lp__nvml *n, device_t handle, const lp_gpus *gpus, lp_gpu_device *device)
{
    int64_t sum = 0;
    bool unknown = false;
    int compute = read_list(n->compute, handle, gpus, device, &sum, &unknown);
    int graphics = read_list(n->graphics, handle, gpus, device, &sum, &unknown);
    int result = compute == SUCCESS ? SUCCESS : graphics == SUCCESS ? SUCCESS : compute;

    put(device, LP_COLUMN_GPU_OURS_MEMORY, result == SUCCESS && unknown && sum == 0 ? NOT_SUPPORTED : result, sum);
    for (uint32_t i = 0; i < device->process_count; i++)
        if (device->process[i].memory_kib == LP_UNKNOWN_I64)
            device->process[i].memory_reason = result == SUCCESS ? LP_REASON_UNSUPPORTED : reason_of(result);
}

/* The driver keeps samples of a few seconds; those since the last look are averaged. None of a process: it did nothing. */
static void read_rates(struct lp__nvml *n, device_t handle, unsigned index, const lp_gpus *gpus, lp_gpu_device *device)
{
    static process_sample found[1024];
    unsigned count = 1024;
    int64_t sum = 0;
    int result = n->process_rates ? n->process_rates(handle, found, &count, n->seen[index]) : NOT_SUPPORTED;

    if (result == NOT_FOUND) { /* no process has used it since */
        result = SUCCESS;
        count = 0;
    }
    if (result == SUCCESS && n->seen[index] == 0) { /* what is older than this run is not ours to show */
        for (unsigned i = 0; i < count && i < 1024; i++)
            if (found[i].time_stamp > n->seen[index])
                n->seen[index] = found[i].time_stamp;
        if (n->seen[index] == 0)
            n->seen[index] = 1;
        device->reason[LP_COLUMN_GPU_OURS_BUSY] = LP_REASON_NOT_YET;
        for (uint32_t i = 0; i < device->process_count; i++)
            device->process[i].busy_reason = LP_REASON_NOT_YET;
        return;
    }
    if (result == SUCCESS) {
        unsigned long long newest = n->seen[index];
        for (uint32_t i = 0; i < device->process_count; i++)
            device->process[i].busy = 0;
        for (unsigned i = 0; i < count && i < 1024; i++) {
            if (found[i].time_stamp > newest)
                newest = found[i].time_stamp;
            lp_gpu_process *p = found[i].sm <= 100 ? ours(gpus, device, found[i].pid) : NULL;
            if (!p || found[i].time_stamp <= n->seen[index])
                continue;
            p->busy =
                (int64_t)found[i].sm * 10; /* one sample a process and call: the mean since the time that was given */
        }
        n->seen[index] = newest;
        for (uint32_t i = 0; i < device->process_count; i++)
            sum += device->process[i].busy > 0 ? device->process[i].busy : 0;
        if (sum > 1000)
            sum = 1000;
    } else {
        for (uint32_t i = 0; i < device->process_count; i++)
            device->process[i].busy_reason = reason_of(result);
    }
    put(device, LP_COLUMN_GPU_OURS_BUSY, result, sum);
}

static void hide_ours(lp_gpu_device *device, lp_reason reason)
{
    device->reason[LP_COLUMN_GPU_OURS_BUSY] = device->reason[LP_COLUMN_GPU_OURS_MEMORY] = (uint8_t)reason;
}

void lp__nvml_sample(lp_gpus *gpus)
{
    unsigned count = 0, now = 0, pending = 0;
    int result;

    if (!gpus->nvml)
        gpus->nvml = open_library();
    struct lp__nvml *n = gpus->nvml;
    if (!n || !be_ready(n)) {
        gpus->why_none = n ? n->why : LP_REASON_FAILED;
        return;
    }
    result = n->count(&count);
    if (result != SUCCESS) {
        gpus->why_none = reason_of(result);
        if (gpus->why_none == LP_REASON_NO_DRIVER) { /* once more from the start, in a while */
            if (n->shutdown)
                n->shutdown();
            n->ready = false;
            n->why = gpus->why_none;
        }
        return;
    }
    for (unsigned i = 0; i < count && i < LP_GPUS_MAX; i++) {
        device_t handle = NULL;
        lp_gpu_device *device = lp__gpu_add(gpus);
        if (!device)
            return;
        result = n->by_index(i, &handle);
        if (result != SUCCESS) {
            snprintf(device->name, sizeof device->name, "NVIDIA GPU");
            for (unsigned c = LP_COLUMN_GPU_BUSY; c <= LP_COLUMN_GPU_OURS_MEMORY; c++)
                put(device, (lp_column)c, result, 0);
            continue;
        }
        read_device(n, handle, device);
        if (n->mig && n->mig(handle, &now, &pending) == SUCCESS && now == 1)
            hide_ours(device, LP_REASON_PARTITIONED);
        else if (gpus->pids_are_inner)
            hide_ours(device, LP_REASON_NAMESPACE);
        else {
            read_memory(n, handle, gpus, device);
            read_rates(n, handle, i, gpus, device);
        }
    }
}

void lp__nvml_close(struct lp__nvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->ready && nvml->shutdown)
        nvml->shutdown();
    if (nvml->library)
        dlclose(nvml->library);
    free(nvml);
}
