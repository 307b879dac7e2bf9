/* AMD's GPUs: /sys/class/drm/card<N>/device of the amdgpu driver. Utilisation, memory, power and temperature; what single processes use
 * is not told there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sample/gpu.h"

#define CARDS 64u
#define MONITORS 16u

static void put(lp_gpu_device *device, lp_column column, bool have, int64_t value, lp_reason reason)
{
    device->value[column] = have ? value : LP_UNKNOWN_I64;
    device->reason[column] = (uint8_t)(have ? LP_REASON_NONE : reason);
}

static bool read_number(int root, const char *folder, const char *file, int64_t *value, lp_reason *reason)
{
    char path[160], text[LP__TEXT_ROOM];
    const char *at = text;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (lp__text_once(root, path, text, reason) < 0)
        return false;
    *reason = LP_REASON_UNREADABLE;
    return lp__number(&at, value);
}

static void read_monitor(lp_gpu_device *device, int root, const char *folder)
{
    lp_reason reason = LP_REASON_NO_FILE;
    int64_t value = 0;
    char monitor[128];
    bool have = false;

    for (unsigned i = 0; i < MONITORS && !have; i++) {
        snprintf(monitor, sizeof monitor, "%s/hwmon/hwmon%u", folder, i);
        have = read_number(root, monitor, "temp1_input", &value, &reason);
    }
    put(device, LP_COLUMN_GPU_TEMPERATURE, have, value / 1000, reason);
    reason = LP_REASON_NO_FILE;
    have = false;
    for (unsigned i = 0; i < MONITORS && !have; i++) {
        snprintf(monitor, sizeof monitor, "%s/hwmon/hwmon%u", folder, i);
        have = read_number(root, monitor, "power1_average", &value, &reason) ||
               read_number(root, monitor, "power1_input", &value, &reason);
    }
    put(device, LP_COLUMN_GPU_POWER, have, value / 1000, reason); /* in uW */
}

void lp__amd_sample(lp_gpus *gpus, int root)
{
    for (unsigned card = 0; card < CARDS; card++) {
        char folder[64], text[LP__TEXT_ROOM], path[128];
        lp_reason reason = LP_REASON_NONE;
        int64_t value = 0;

        snprintf(folder, sizeof folder, "sys/class/drm/card%u/device", card);
        snprintf(path, sizeof path, "%s/vendor", folder);
        if (lp__text_once(root, path, text, &reason) < 0 || strncmp(text, "0x1002", 6) != 0)
            continue;
        if (!read_number(root, folder, "mem_info_vram_total", &value, &reason))
            continue; /* of another driver: it tells nothing */
        lp_gpu_device *device = lp__gpu_add(gpus);
        if (!device)
            return;
        put(device, LP_COLUMN_GPU_MEMORY_TOTAL, true, value >> 10, reason);
        bool have = read_number(root, folder, "mem_info_vram_used", &value, &reason);
        put(device, LP_COLUMN_GPU_MEMORY_USED, have, value >> 10, reason);
        have = read_number(root, folder, "gpu_busy_percent", &value, &reason);
        put(device, LP_COLUMN_GPU_BUSY, have, value * 10, reason);
        have = read_number(root, folder, "mem_busy_percent", &value, &reason);
        put(device, LP_COLUMN_GPU_MEMORY_BUSY, have, value * 10, reason);
        put(device, LP_COLUMN_GPU_OURS_BUSY, false, 0, LP_REASON_UNSUPPORTED);
        put(device, LP_COLUMN_GPU_OURS_MEMORY, false, 0, LP_REASON_UNSUPPORTED);
        read_monitor(device, root, folder);
        snprintf(path, sizeof path, "%s/product_name", folder);
        long size = lp__text_once(root, path, text, &reason);
        text[size > 0 ? strcspn(text, "\n") : 0] = '\0';
        snprintf(device->name, sizeof device->name, "%s", size > 0 && text[0] ? text : "AMD GPU");
    }
}
