/* The keys of a report's document that come from samples (docs/report.md). Bytes are whole numbers, null where not measured. */
#include "render/json_usage.h"

#include <math.h>
#include <string.h>

#include "render/findings.h"

/* To a millionth: sums of floating numbers differ in their last digits from machine to machine, and no sample is finer. */
static void key_double(lp_json *json, const char *key, double value)
{
    lp_json_key(json, key);
    lp_json_double(json, fabs(value) < 1e9 ? round(value * 1e6) / 1e6 + 0.0 : value);
}

static void key_whole(lp_json *json, const char *key, double value) /* bytes, counts */
{
    lp_json_key(json, key);
    if (isnan(value))
        lp_json_null(json);
    else
        lp_json_int(json, (lp_i128)(value + (value < 0 ? -0.5 : 0.5)));
}

static void key_reason(lp_json *json, const char *key, uint8_t reason)
{
    lp_json_key(json, key);
    if (reason == LP_REASON_NONE)
        lp_json_null(json);
    else
        lp_json_text(json, lp_reason_text(reason));
}

static void key_str(lp_json *json, const char *key, lp_str value)
{
    lp_json_key(json, key);
    lp_json_string(json, value);
}

void lp__json_findings(lp_json *json, const lp_report *report)
{
    if (report->finding_count == 0)
        return;
    lp_json_key(json, "findings");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < report->finding_count; i++) {
        const lp_finding *finding = &report->findings[i];
        lp_finding_words words;
        lp_finding_say(report, finding, true, &words);
        lp_json_open(json, '{');
        lp_json_key(json, "kind");
        lp_json_text(json, words.kind);
        lp_json_key(json, "headline");
        lp_json_text(json, words.headline);
        lp_json_key(json, "detail");
        lp_json_text(json, words.detail);
        lp_json_key(json, "advice");
        lp_json_text(json, words.advice);
        key_double(json, "cost_pct", finding->share * 100.0);
        lp_json_key(json, "anchor");
        lp_json_text(json, words.anchor);
        lp_json_key(json, "lanes");
        lp_json_open(json, '[');
        lp_json_close(json, ']');
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static const lp_usage *usage_of(const lp_report *report)
{
    return report->usage && report->usage->process_count > 0 ? report->usage : NULL;
}

static void put_bytes(lp_json *json, const lp_usage_io *io)
{
    key_whole(json, "read_bytes", io->read);
    key_whole(json, "write_bytes", io->write);
    key_whole(json, "read_chars", io->read_chars);
    key_whole(json, "write_chars", io->write_chars);
    key_whole(json, "cached_read_bytes", fmax(io->read_chars - io->read, 0.0));
}

static double part(double some, double all)
{
    return all > 0.0 ? some / all : 0.0;
}

static void put_io(lp_json *json, const lp_usage *usage)
{
    lp_json_key(json, "io");
    if (!usage->io_known) {
        lp_json_null(json);
        return;
    }
    lp_json_open(json, '{');
    put_bytes(json, &usage->io);
    key_double(json, "unattributed_read_share", part(usage->io_none.read_chars, usage->io.read_chars));
    key_double(json, "unattributed_write_share", part(usage->io_none.write_chars, usage->io.write_chars));
    key_whole(json, "gap_intervals", usage->io_gaps);
    key_whole(json, "intervals", usage->io_intervals);
    key_double(json, "read_peak_per_s", usage->read_peak);
    key_double(json, "write_peak_per_s", usage->write_peak);
    lp_json_close(json, '}');
}

static void put_trend(lp_json *json, const lp_usage_trend *trend)
{
    key_whole(json, "peak_rss", trend->peak);
    key_whole(json, "last_rss", trend->last);
    key_whole(json, "growth_bytes", trend->last - trend->first);
    key_double(json, "slope_bytes_per_s", trend->slope);
    key_double(json, "slope_error_bytes_per_s", trend->slope_error);
    key_whole(json, "largest_step_bytes", trend->step);
    key_double(json, "largest_step_at_s", trend->step_at_s);
}

static void put_memory(lp_json *json, const lp_usage *usage)
{
    lp_usage_trend together = usage->rss;

    lp_json_key(json, "memory");
    if (!usage->rss_known) {
        lp_json_null(json);
        return;
    }
    together.peak = usage->rss_peak;
    lp_json_open(json, '{');
    put_trend(json, &together);
    key_whole(json, "peak_pss", usage->pss_peak);
    lp_json_close(json, '}');
}

static void put_device(lp_json *json, const lp_usage *usage, const lp_usage_gpu *gpu)
{
    lp_json_open(json, '{');
    lp_json_key(json, "index");
    lp_json_int(json, gpu->index);
    key_str(json, "host", usage->run->hosts[gpu->host].name);
    key_str(json, "name", gpu->name);
    key_double(json, "busy_mean", gpu->busy * 100.0);
    key_reason(json, "busy_missing", isnan(gpu->busy) ? gpu->why_busy : LP_REASON_NONE);
    key_double(json, "ours_mean", gpu->ours * 100.0);
    key_reason(json, "ours_missing", isnan(gpu->ours) ? gpu->why_ours : LP_REASON_NONE);
    key_whole(json, "memory_peak", gpu->memory_peak);
    key_whole(json, "memory_total", gpu->memory_total);
    key_whole(json, "ours_memory_peak", gpu->ours_memory_peak);
    key_double(json, "power_mean_w", gpu->power_mean_w);
    key_double(json, "temperature_max_c", gpu->temperature_max);
    lp_json_close(json, '}');
}

static void put_gpu(lp_json *json, const lp_usage *usage)
{
    lp_json_key(json, "gpu");
    lp_json_open(json, '{');
    key_whole(json, "peak_cuda_alloc", usage->vram_allocated_peak);
    key_whole(json, "peak_cuda_reserved", usage->vram_reserved_peak);
    key_whole(json, "peak_cuda_process", usage->vram_held_peak);
    key_reason(json, "missing", usage->gpu_count == 0 ? usage->gpu_why : LP_REASON_NONE);
    lp_json_key(json, "devices");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < usage->gpu_count; i++)
        put_device(json, usage, &usage->gpus[i]);
    lp_json_close(json, ']');
    lp_json_close(json, '}');
}

static void put_phases(lp_json *json, const lp_usage *usage)
{
    lp_json_key(json, "phases");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < usage->phase_count; i++) {
        const lp_usage_phase *phase = &usage->phases[i];
        lp_json_open(json, '{');
        key_str(json, "phase", phase->path);
        lp_json_key(json, "none");
        lp_json_bool(json, phase->none);
        key_double(json, "seconds", phase->seconds);
        key_double(json, "cpu_s", phase->cpu_s);
        put_bytes(json, &phase->io);
        key_whole(json, "rss_growth", phase->rss_growth);
        key_whole(json, "gpu_samples", (double)phase->gpu_samples);
        key_whole(json, "vram_peak", phase->vram_peak);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static void put_processes(lp_json *json, const lp_usage *usage)
{
    lp_json_key(json, "processes");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < usage->process_count; i++) {
        const lp_usage_process *process = &usage->processes[i];
        const lp_run_worker *worker = &usage->run->workers[process->worker];
        lp_json_open(json, '{');
        key_str(json, "host", worker->host);
        lp_json_key(json, "pid");
        lp_json_int(json, worker->pid);
        key_str(json, "role", worker->role);
        key_whole(json, "samples", (double)process->rows);
        key_double(json, "seconds", process->seconds);
        key_whole(json, "missed_intervals", process->missed);
        key_double(json, "cpu_s", process->cpu_s);
        key_double(json, "cpu_cores_peak", process->cpu_peak);
        key_double(json, "cpu_before_first_sample_s", process->cpu_unsampled_s);
        key_double(json, "starved_s", process->starved_s);
        key_double(json, "unrecorded_children_cpu_s", process->children_s);
        key_whole(json, "switches_voluntary", process->switches_voluntary);
        key_whole(json, "switches_forced", process->switches_forced);
        key_whole(json, "faults_major", process->faults_major);
        put_trend(json, &process->rss);
        key_whole(json, "peak_pss", process->pss.peak);
        key_reason(json, "pss_missing", isnan(process->pss.peak) ? process->why[LP_COLUMN_PSS] : LP_REASON_NONE);
        put_bytes(json, &process->io);
        key_reason(json, "io_missing", isnan(process->io.read) ? process->why[LP_COLUMN_READ_BYTES] : LP_REASON_NONE);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

static void put_hosts(lp_json *json, const lp_usage *usage)
{
    lp_json_key(json, "hosts");
    lp_json_open(json, '{');
    for (uint32_t i = 0; i < usage->host_count; i++) {
        const lp_usage_host *host = &usage->hosts[i];
        lp_json_key_str(json, usage->run->hosts[host->host].name);
        lp_json_open(json, '{');
        key_whole(json, "processes", host->processes);
        key_double(json, "cpu_cores_peak", host->cpu_peak);
        key_double(json, "cpu_cores_mean", host->cpu_mean);
        key_whole(json, "rss_peak", host->rss_peak);
        key_whole(json, "pss_peak", host->pss_peak);
        key_double(json, "cpus_allowed", host->cpus);
        key_double(json, "cpu_limit", host->quota);
        key_whole(json, "memory_total", host->memory);
        key_whole(json, "memory_limit", host->memory_limit);
        key_whole(json, "memory_available_least", host->available_least);
        key_double(json, "busy_cores_mean", host->busy_mean);
        key_double(json, "stolen_s", host->stolen_s);
        key_double(json, "load_peak", host->load_peak);
        key_double(json, "throttled_s", host->throttled_s);
        key_double(json, "throttled_share", host->throttled_share);
        key_whole(json, "oom_kills", host->kills);
        key_double(json, "pressure_cpu", host->psi_cpu);
        key_double(json, "pressure_memory", host->psi_memory);
        key_double(json, "pressure_memory_full", host->psi_memory_full);
        key_double(json, "pressure_io", host->psi_io);
        key_double(json, "pressure_io_full", host->psi_io_full);
        key_double(json, "sampled_s", host->seconds);
        key_double(json, "interval_s", host->interval_s);
        key_double(json, "lateness_max_s", host->lateness_max_s);
        key_whole(json, "ticks_missed", host->ticks_missed);
        key_double(json, "collector_cpu_s", host->own_cpu_s);
        lp_json_close(json, '}');
    }
    lp_json_close(json, '}');
}

void lp__json_resources(lp_json *json, const lp_report *report)
{
    const lp_usage *usage = usage_of(report);

    if (!usage)
        return;
    lp_json_key(json, "resources");
    lp_json_open(json, '{');
    put_io(json, usage);
    put_memory(json, usage);
    put_gpu(json, usage);
    put_phases(json, usage);
    put_processes(json, usage);
    put_hosts(json, usage);
    lp_json_key(json, "damaged");
    lp_json_open(json, '[');
    for (uint32_t i = 0; i < usage->lost_count; i++) {
        lp_json_open_flat(json, '{');
        key_str(json, "path", usage->lost[i].path);
        key_str(json, "reason", usage->lost[i].reason);
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
    lp_json_close(json, '}');
}

void lp__json_used(lp_json *json, const lp_report *report)
{
    const lp_usage *usage = usage_of(report);

    if (!usage)
        return;
    double count = usage->process_count;
    lp_json_key(json, "used");
    lp_json_open(json, '{');
    key_whole(json, "processes", count);
    key_double(json, "cpu_cores_peak", usage->cpu_peak);
    key_double(json, "cpu_cores_mean", usage->cpu_mean);
    key_double(json, "cpu_cores_max_process", usage->cpu_max_process);
    key_double(json, "cpu_s", usage->cpu_s);
    key_whole(json, "rss_peak", usage->rss_peak);
    key_whole(json, "rss_max_process", usage->rss_max_process);
    key_whole(json, "pss_peak", usage->pss_peak);
    key_whole(json, "vram_peak", usage->vram_allocated_peak);
    key_whole(json, "vram_held_peak", usage->vram_held_peak);
    lp_json_key(json, "per_process");
    lp_json_open(json, '{');
    key_double(json, "cpu_cores", usage->cpu_peak / count);
    key_whole(json, "rss", usage->rss_peak / count);
    key_whole(json, "vram", usage->vram_allocated_peak / count);
    key_whole(json, "vram_held", usage->vram_held_peak / count);
    lp_json_close(json, '}');
    lp_json_close(json, '}');
}
