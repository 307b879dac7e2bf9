/* A stand-in for libnvidia-ml.so.1, built by the tests. What each function does stands in the file CONTROL, read at each call:
 *
 *   nvmlInit_v2 9            the function gives this nvmlReturn_t
 *   nvmlDeviceGetName hang   it never returns
 *   devices 2
 *   mig 1
 *   pid 1234 512 40          a process that holds 512 MiB on device 0 and keeps 40 % of it busy
 *   busy 90                  of device i: 90 + i %; without it 30 + i
 *
 * Device i is "Stand-in i": 1000 MiB of 16384 used, 250 W, 55 C. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024ull * 1024)

/* What the file says after `key`; 0 if nothing. */
static int line_of(const char *key, int nth, char *rest, size_t room)
{
    char line[256];
    size_t size = strlen(key);
    FILE *file = fopen(CONTROL, "re");
    int found = 0;

    while (file && !found && fgets(line, sizeof line, file))
        if (strncmp(line, key, size) == 0 && line[size] == ' ' && nth-- == 0) {
            snprintf(rest, room, "%s", line + size + 1);
            found = 1;
        }
    if (file)
        fclose(file);
    return found;
}

static int result_of(const char *function)
{
    char rest[256];
    int result = 0;

    if (!line_of(function, 0, rest, sizeof rest))
        return 0;
    if (strncmp(rest, "hang", 4) == 0)
        for (;;)
            pause();
    sscanf(rest, "%d", &result);
    return result;
}

static unsigned number_of(const char *key, unsigned otherwise)
{
    char rest[256];
    unsigned value = otherwise;

    if (line_of(key, 0, rest, sizeof rest))
        sscanf(rest, "%u", &value);
    return value;
}

#define BEGIN                                                                                                          \
    int result = result_of(__func__);                                                                                  \
    if (result)                                                                                                        \
    return result

typedef struct {
    unsigned gpu, memory;
} utilization;
typedef struct {
    unsigned long long total, free, used;
} memory;
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process_info;
typedef struct {
    unsigned pid;
    unsigned long long time_stamp;
    unsigned sm, memory, encoder, decoder;
} process_sample;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetName(void *device, char *name, unsigned size);
int nvmlDeviceGetUtilizationRates(void *device, utilization *rates);
int nvmlDeviceGetMemoryInfo(void *device, memory *bytes);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatt);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees);
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_info *list);
int nvmlDeviceGetProcessUtilization(void *device, process_sample *list, unsigned *count, unsigned long long since);

int nvmlInit_v2(void)
{
    BEGIN;
    return 0;
}

int nvmlShutdown(void)
{
    BEGIN;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    BEGIN;
    *count = number_of("devices", 1);
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    static char handle[64];
    BEGIN;
    *device = &handle[index];
    handle[index] = (char)index;
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    BEGIN;
    snprintf(name, size, "Stand-in %d", *(char *)device);
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, utilization *rates)
{
    BEGIN;
    rates->gpu = number_of("busy", 30) + (unsigned)*(char *)device;
    rates->memory = 12;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *bytes)
{
    BEGIN;
    (void)device;
    *bytes = (memory){16384 * MIB, 15384 * MIB, 1000 * MIB};
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatt)
{
    BEGIN;
    (void)device;
    *milliwatt = 250000;
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees)
{
    BEGIN;
    (void)device, (void)sensor;
    *degrees = 55;
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending)
{
    BEGIN;
    (void)device;
    *now = *pending = number_of("mig", 0);
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_info *list)
{
    char rest[256];
    unsigned pid, mib, busy, found = 0;
    BEGIN;
    while (*(char *)device == 0 && found < *count && line_of("pid", (int)found, rest, sizeof rest) &&
           sscanf(rest, "%u %u %u", &pid, &mib, &busy) == 3)
        list[found++] = (process_info){.pid = pid, .used = mib * MIB};
    *count = found;
    return 0;
}

int nvmlDeviceGetProcessUtilization(void *device, process_sample *list, unsigned *count, unsigned long long since)
{
    char rest[256];
    unsigned pid, mib, busy, found = 0;
    struct timespec now;
    BEGIN;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long stamp = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    while (*(char *)device == 0 && found < *count && stamp > since && line_of("pid", (int)found, rest, sizeof rest) &&
           sscanf(rest, "%u %u %u", &pid, &mib, &busy) == 3)
        list[found++] = (process_sample){.pid = pid, .time_stamp = stamp, .sm = busy};
    *count = found;
    return found ? 0 : 6; /* NVML_ERROR_NOT_FOUND: no process has used it since */
}
