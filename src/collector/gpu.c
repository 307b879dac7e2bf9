#include "collector/gpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HUNG_NS 5000000000u     /* without an answer: it is said in the rows that should have come */
#define NOTHING_NS 60000000000u /* to the next question where there is no GPU */
#define HOST_PID_NS 0xeffffffcu /* PROC_PID_INIT_INO of the kernel: the first pid namespace of a host */

typedef struct question {
    lp_gpus gpus;
    int root;
} question;

static void ask(void *argument)
{
    question *q = argument;
    lp_gpus_sample(&q->gpus, q->root);
}

void lp__gpu_start(lp__gpu_watch *gpu, int root, uint64_t pid_ns)
{
    *gpu = (lp__gpu_watch){.root = root, .inner = pid_ns != 0 && pid_ns != HOST_PID_NS};
    question *q = calloc(1, sizeof *q); /* half a MB, of which only what is used is real */
    if (q) {
        q->root = root;
        gpu->job = &q->gpus;
    }
    lp__aside_init(&gpu->aside, "lineprofiler-gp", ask, q);
}

static void put_row(lp_sample_writer **writer, lp_series series, uint32_t index, const char *name, const lp_sample *row,
                    lp__stream *stream, uint64_t interval_ns)
{
    if (!lp__stream_has_room(stream))
        return;
    if (!*writer) {
        *writer = lp_sample_writer_new(series, index, interval_ns);
        if (!*writer)
            return;
        lp_sample_writer_label(*writer, (lp_str){name, strlen(name)});
    }
    lp_sample_writer_add(*writer, row, &stream->waiting);
}

static bool is_device_column(unsigned column)
{
    return column >= LP_COLUMN_GPU_BUSY && column <= LP_COLUMN_GPU_OURS_MEMORY;
}

/* A row of each known device (of one, if none is known) that says why there are no numbers. */
static void put_reason(lp__gpu_watch *gpu, lp__stream *host, lp_reason reason, uint64_t interval_ns, lp_sample *row)
{
    for (unsigned c = 0; c < LP_COLUMNS; c++)
        if (is_device_column(c))
            lp_sample_miss(row, (lp_column)c, reason);
    for (uint32_t i = 0; i < (gpu->known ? gpu->known : 1); i++)
        put_row(&gpu->writer[i], LP_SERIES_GPU, i, "GPU", row, host, interval_ns);
}

static void put_processes(const lp_gpu_device *device, uint32_t index, lp__sampled *list, uint64_t interval_ns,
                          lp_sample *row)
{
    for (uint32_t i = 0; i < device->process_count; i++) {
        const lp_gpu_process *p = &device->process[i];
        for (lp__sampled *s = list; s; s = s->next) {
            if (s->missing || s->process.pid != p->pid)
                continue;
            if (p->memory_kib == LP_UNKNOWN_I64)
                lp_sample_miss(row, LP_COLUMN_GPU_OURS_MEMORY, p->memory_reason);
            else
                lp_sample_set(row, LP_COLUMN_GPU_OURS_MEMORY, p->memory_kib);
            if (p->busy == LP_UNKNOWN_I64)
                lp_sample_miss(row, LP_COLUMN_GPU_OURS_BUSY, p->busy_reason);
            else
                lp_sample_set(row, LP_COLUMN_GPU_OURS_BUSY, p->busy);
            put_row(&s->gpu[index], LP_SERIES_PROCESS_GPU, index, device->name, row, s->stream, interval_ns);
        }
    }
}

static void put_answer(lp__gpu_watch *gpu, lp__sampled *list, lp__stream *host, uint64_t interval_ns,
                       const lp_sample *empty)
{
    for (uint32_t i = 0; i < gpu->job->count; i++) {
        const lp_gpu_device *device = &gpu->job->device[i];
        lp_sample row = *empty;
        put_processes(device, i, list, interval_ns, &row);
        row = *empty;
        for (unsigned c = 0; c < LP_COLUMNS; c++) {
            if (!is_device_column(c))
                continue;
            if (device->value[c] == LP_UNKNOWN_I64)
                lp_sample_miss(&row, (lp_column)c, (lp_reason)device->reason[c]);
            else
                lp_sample_set(&row, (lp_column)c, device->value[c]);
        }
        put_row(&gpu->writer[i], LP_SERIES_GPU, i, device->name, &row, host, interval_ns);
    }
    gpu->known = gpu->job->count;
}

static void post(lp__gpu_watch *gpu, const lp__sampled *list, uint64_t now)
{
    gpu->job->ours_count = 0;
    gpu->job->pids_are_inner = gpu->inner;
    for (const lp__sampled *s = list; s && gpu->job->ours_count < LP_GPU_PROCESSES; s = s->next)
        if (!s->missing)
            gpu->job->ours[gpu->job->ours_count++] = (lp_gpu_pid){.pid = s->process.pid, .outer = s->process.outer_pid};
    gpu->posted = true;
    gpu->posted_ns = now;
    lp__aside_post(&gpu->aside);
}

/* A host with a device file of NVIDIA's and no library, or a library that says no: worth a row. */
static bool is_worth_saying(const lp__gpu_watch *gpu, lp_reason reason)
{
    return reason != LP_REASON_NONE &&
           (reason != LP_REASON_NO_LIBRARY || faccessat(gpu->root, "dev/nvidiactl", F_OK, 0) == 0);
}

void lp__gpu_tick(lp__gpu_watch *gpu, lp__sampled *list, lp__stream *host, uint64_t interval_ns, uint64_t now,
                  uint64_t unix_ns)
{
    lp_sample row;

    if (!gpu->job)
        return;
    lp_sample_init(&row);
    row.mono_ns = now;
    row.unix_ns = unix_ns;
    if (gpu->posted && lp__aside_take(&gpu->aside)) {
        gpu->posted = false;
        gpu->next_ns = gpu->job->count ? 0 : gpu->posted_ns + NOTHING_NS;
        if (gpu->job->count > 0)
            put_answer(gpu, list, host, interval_ns, &row);
        else if (is_worth_saying(gpu, gpu->job->why_none))
            put_reason(gpu, host, gpu->job->why_none, interval_ns, &row);
    } else if (gpu->posted && now > gpu->posted_ns + HUNG_NS) {
        put_reason(gpu, host, LP_REASON_HUNG, interval_ns, &row);
    }
    if (!gpu->posted && now >= gpu->next_ns && lp__aside_is_free(&gpu->aside))
        post(gpu, list, now);
}

void lp__gpu_flush(lp__gpu_watch *gpu, lp__stream *host)
{
    for (uint32_t i = 0; i < LP_GPUS_MAX; i++)
        if (gpu->writer[i])
            lp_sample_writer_flush(gpu->writer[i], &host->waiting);
}
