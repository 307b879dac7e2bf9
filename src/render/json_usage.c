/* The keys of a report's document that come from samples (docs/report.md). Bytes are whole numbers, null where not measured. */
#include "render/json_usage.h"

#include <math.h>
#include <string.h>

#include "render/findings.h"
#include "render/json_keys.h"

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
        lp__json_key_text(json, "kind", words.kind);
        lp__json_key_text(json, "headline", words.headline);
        lp__json_key_text(json, "detail", words.detail);
        lp__json_key_text(json, "advice", words.advice);
        lp__json_key_rounded(json, "cost_pct", finding->share * 100.0);
        lp__json_key_text(json, "anchor", words.anchor);
        lp_json_key(json, "lanes");
        lp_json_open(json, '[');
        lp_json_close(json, ']');
        lp_json_close(json, '}');
    }
    lp_json_close(json, ']');
}

/* Columns of which nothing is known, with the reason: those of the series that the number is in. */
static void put_missing(lp_json *json, const uint8_t why[LP_COLUMNS], uint32_t from, uint32_t to)
{
    lp_json_key(json, "missing");
    lp_json_open_flat(json, '{');
    for (uint32_t c = 0; c < LP_COLUMNS; c++)
        if (lp_column_table[c].number >= from && lp_column_table[c].number <= to && why[c] != LP_REASON_NONE)
            lp__json_key_reason(json, lp_column_table[c].name, why[c]);
    lp_json_close(json, '}');
}

static const lp_usage *usage_of(const lp_report *report)
{
    return report->usage && report->usage->process_count > 0 ? report->usage : NULL;
}

static void put_bytes(lp_json *json, const lp_usage_io *io)
{
    lp__json_key_whole(json, "read_bytes", io->read);
    lp__json_key_whole(json, "write_bytes", io->write);
    lp__json_key_whole(json, "read_chars", io->read_chars);
    lp__json_key_whole(json, "write_chars", io->write_chars);
    lp__json_key_whole(json, "cached_read_bytes", lp_usage_cached(io));
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
    lp__json_key_rounded(json, "unattributed_read_share", part(usage->io_none.read_chars, usage->io.read_chars));
    lp__json_key_rounded(json, "unattributed_write_share", part(usage->io_none.write_chars, usage->io.write_chars));
    lp__json_key_whole(json, "gap_intervals", usage->io_gaps);
    lp__json_key_whole(json, "intervals", usage->io_intervals);
    lp__json_key_rounded(json, "read_peak_per_s", usage->read_peak);
    lp__json_key_rounded(json, "write_peak_per_s", usage->write_peak);
    lp_json_close(json, '}');
}

static void put_trend(lp_json *json, const lp_usage_trend *trend)
{
    lp__json_key_whole(json, "peak_rss", trend->peak);
    lp__json_key_whole(json, "last_rss", trend->last);
    lp__json_key_whole(json, "growth_bytes", trend->growth);
    lp__json_key_rounded(json, "slope_bytes_per_s", trend->slope);
    lp__json_key_rounded(json, "slope_error_bytes_per_s", trend->slope_error);
    lp__json_key_whole(json, "largest_step_bytes", trend->step);
    lp__json_key_rounded(json, "largest_step_at_s", trend->step_at_s);
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
    lp__json_key_whole(json, "peak_pss", usage->pss_peak);
    lp__json_key_int(json, "unseen_processes", usage->unseen);
    lp__json_key_rounded(json, "unseen_s", usage->unseen_bins_s);
    lp_json_close(json, '}');
}

static void put_device(lp_json *json, const lp_usage *usage, const lp_usage_gpu *gpu)
{
    lp_json_open(json, '{');
    lp__json_key_int(json, "index", gpu->index);
    lp__json_key_str(json, "host", usage->run->hosts[gpu->host].name);
    lp__json_key_str(json, "name", gpu->name);
    lp__json_key_rounded(json, "busy_mean", gpu->busy * 100.0);
    lp__json_key_reason(json, "busy_missing", isnan(gpu->busy) ? gpu->why[LP_COLUMN_GPU_BUSY] : LP_REASON_NONE);
    lp__json_key_rounded(json, "ours_mean", gpu->ours * 100.0);
    lp__json_key_reason(json, "ours_missing", isnan(gpu->ours) ? gpu->why[LP_COLUMN_GPU_OURS_BUSY] : LP_REASON_NONE);
    lp__json_key_whole(json, "memory_peak", gpu->memory_peak);
    lp__json_key_whole(json, "memory_total", gpu->memory_total);
    lp__json_key_whole(json, "ours_memory_peak", gpu->ours_memory_peak);
    lp__json_key_rounded(json, "power_mean_w", gpu->power_mean_w);
    lp__json_key_rounded(json, "temperature_max_c", gpu->temperature_max);
    put_missing(json, gpu->why, lp_column_table[LP_COLUMN_GPU_BUSY].number, UINT32_MAX);
    lp_json_close(json, '}');
}

static void put_gpu(lp_json *json, const lp_usage *usage)
{
    lp_json_key(json, "gpu");
    lp_json_open(json, '{');
    lp__json_key_whole(json, "peak_cuda_alloc", usage->vram_allocated_peak);
    lp__json_key_whole(json, "peak_cuda_reserved", usage->vram_reserved_peak);
    lp__json_key_whole(json, "peak_cuda_process", usage->vram_held_peak);
    lp__json_key_reason(json, "missing", usage->gpu_count == 0 ? usage->gpu_why : LP_REASON_NONE);
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
        lp__json_key_str(json, "phase", phase->path);
        lp__json_key_bool(json, "none", phase->none);
        lp__json_key_rounded(json, "seconds", phase->seconds);
        lp__json_key_rounded(json, "cpu_s", phase->cpu_s);
        put_bytes(json, &phase->io);
        lp__json_key_whole(json, "rss_growth", phase->rss_growth);
        lp__json_key_whole(json, "gpu_samples", (double)phase->gpu_samples);
        lp__json_key_whole(json, "vram_peak", phase->vram_peak);
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
        lp__json_key_str(json, "host", worker->host);
        lp__json_key_int(json, "pid", worker->pid);
        lp__json_key_str(json, "role", worker->role);
        lp__json_key_whole(json, "samples", (double)process->rows);
        lp__json_key_rounded(json, "seconds", process->seconds);
        lp__json_key_rounded(json, "unseen_s", process->unseen_s);
        lp__json_key_whole(json, "missed_intervals", process->missed);
        lp__json_key_rounded(json, "cpu_s", process->cpu_s);
        lp__json_key_rounded(json, "cpu_cores_peak", process->cpu_peak);
        lp__json_key_rounded(json, "cpu_before_first_sample_s", process->cpu_unsampled_s);
        lp__json_key_rounded(json, "starved_s", process->starved_s);
        lp__json_key_rounded(json, "unrecorded_children_cpu_s", process->children_s);
        lp__json_key_whole(json, "switches_voluntary", process->switches_voluntary);
        lp__json_key_whole(json, "switches_forced", process->switches_forced);
        lp__json_key_whole(json, "faults_major", process->faults_major);
        put_trend(json, &process->rss);
        lp__json_key_whole(json, "peak_pss", process->pss.peak);
        lp__json_key_reason(json, "pss_missing",
                            isnan(process->pss.peak) ? process->why[LP_COLUMN_PSS] : LP_REASON_NONE);
        put_bytes(json, &process->io);
        lp__json_key_reason(json, "io_missing",
                            isnan(process->io.read) ? process->why[LP_COLUMN_READ_BYTES] : LP_REASON_NONE);
        put_missing(json, process->why, 0, lp_column_table[LP_COLUMN_HOST_CPUS].number - 1);
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
        lp__json_key_whole(json, "processes", host->processes);
        lp__json_key_rounded(json, "cpu_cores_peak", host->cpu_peak);
        lp__json_key_rounded(json, "cpu_cores_mean", host->cpu_mean);
        lp__json_key_whole(json, "rss_peak", host->rss_peak);
        lp__json_key_whole(json, "pss_peak", host->pss_peak);
        lp__json_key_rounded(json, "cpus_allowed", host->cpus);
        lp__json_key_rounded(json, "cpu_limit", host->quota);
        lp__json_key_whole(json, "memory_total", host->memory);
        lp__json_key_whole(json, "memory_limit", host->memory_limit);
        lp__json_key_whole(json, "memory_available_least", host->available_least);
        lp__json_key_rounded(json, "busy_cores_mean", host->busy_mean);
        lp__json_key_rounded(json, "stolen_s", host->stolen_s);
        lp__json_key_rounded(json, "load_peak", host->load_peak);
        lp__json_key_rounded(json, "throttled_s", host->throttled_s);
        lp__json_key_rounded(json, "throttled_share", host->throttled_share);
        lp__json_key_whole(json, "oom_kills", host->kills);
        lp__json_key_rounded(json, "pressure_cpu", host->psi_cpu);
        lp__json_key_rounded(json, "pressure_memory", host->psi_memory);
        lp__json_key_rounded(json, "pressure_memory_full", host->psi_memory_full);
        lp__json_key_rounded(json, "pressure_io", host->psi_io);
        lp__json_key_rounded(json, "pressure_io_full", host->psi_io_full);
        lp__json_key_rounded(json, "sampled_s", host->seconds);
        lp__json_key_rounded(json, "interval_s", host->interval_s);
        lp__json_key_rounded(json, "lateness_max_s", host->lateness_max_s);
        lp__json_key_whole(json, "ticks_missed", host->ticks_missed);
        lp__json_key_rounded(json, "collector_cpu_s", host->own_cpu_s);
        put_missing(json, host->why, lp_column_table[LP_COLUMN_HOST_CPUS].number,
                    lp_column_table[LP_COLUMN_GPU_BUSY].number - 1);
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
        lp__json_key_str(json, "path", usage->lost[i].path);
        lp__json_key_str(json, "reason", usage->lost[i].reason);
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
    double count = usage->at_once;
    lp_json_key(json, "used");
    lp_json_open(json, '{');
    lp__json_key_whole(json, "processes", usage->process_count);
    lp__json_key_whole(json, "processes_at_once", count);
    lp__json_key_rounded(json, "cpu_cores_peak", usage->cpu_peak);
    lp__json_key_rounded(json, "cpu_cores_mean", usage->cpu_mean);
    lp__json_key_rounded(json, "cpu_cores_max_process", usage->cpu_max_process);
    lp__json_key_rounded(json, "cpu_s", usage->cpu_s);
    lp__json_key_whole(json, "rss_peak", usage->rss_peak);
    lp__json_key_whole(json, "rss_max_process", usage->rss_max_process);
    lp__json_key_whole(json, "pss_peak", usage->pss_peak);
    lp__json_key_whole(json, "vram_peak", usage->vram_allocated_peak);
    lp__json_key_whole(json, "vram_held_peak", usage->vram_held_peak);
    lp_json_key(json, "per_process");
    lp_json_open(json, '{');
    lp__json_key_rounded(json, "cpu_cores", usage->cpu_peak / count);
    lp__json_key_whole(json, "rss", usage->rss_peak / count);
    lp__json_key_whole(json, "vram", usage->vram_allocated_peak / count);
    lp__json_key_whole(json, "vram_held", usage->vram_held_peak / count);
    lp_json_close(json, '}');
    lp_json_close(json, '}');
}
