/* What a run used: sample files with known rows, and what must come out of them, to the last byte where it is a sum. */
#include "check.h"
#include "make_runs.h"
#include "test_folder.h"

#include "analysis/report.h"
#include "analysis/usage_math.h"
#include "render/findings.h"
#include "store/samples.h"

#define MB (1024.0 * 1024.0)
#define ROWS 99u /* at 1, 2, … 99 seconds of a run of 100 */
#define MONO_START (5000ull * SECOND)

static char folder[64];
static double first_row_s = 1.0, spacing_s = 1.0;
static double planned_s;                /* the interval that the files name; 0: spacing_s */
static double set_at_s = 1e9, set_by_s; /* the time of day is set by so much at that moment */
static uint64_t mono_ahead;             /* of a time namespace: its CLOCK_MONOTONIC is ahead by so many seconds */
static bool uses_torch, uses_device;
static int ours_busy = -1; /* 1/1000 of a device, as a host's rows have our part; -1: they do not */

static lp_run *make_run(lp_worker *workers[], unsigned count)
{
    lp_run *run = made_or_die(lp_run_new());

    for (unsigned i = 0; i < count; i++)
        if (lp_run_add(run, workers[i], false) != LP_OK)
            abort();
    run->directory = lp_arena_str(run->arena, folder, strlen(folder));
    if (lp_run_finish(run) != LP_OK)
        abort();
    return run;
}

/* A row `at` seconds after the start, by both clocks, of which one may be set meanwhile. */
static lp_sample row_at(double at)
{
    lp_sample row;
    uint64_t ns = (uint64_t)(at * 1e9);

    lp_sample_init(&row);
    row.unix_ns = MADE_START + ns + (uint64_t)(int64_t)(at >= set_at_s ? set_by_s * 1e9 : 0.0);
    row.mono_ns = MONO_START + ns + mono_ahead * SECOND;
    return row;
}

static uint64_t interval_ns(void)
{
    return (uint64_t)((planned_s > 0 ? planned_s : spacing_s) * SECOND);
}

static lp_sample_head head_of(lp_series series, const lp_worker *worker)
{
    return (lp_sample_head){.series = series, .id = &worker->id, .interval_ns = interval_ns(), .collector_pid = 77};
}

static void save(lp_series series, const lp_worker *worker, const lp_buffer *bytes)
{
    int run = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lp_buffer head = {0};
    lp_sample_head of = head_of(series, worker);

    if (lp_samples_put_head(&head, &of) != LP_OK)
        abort();
    int fd = lp_samples_create(run, &worker->id, series, &head);
    if (fd < 0 || !lp_samples_append(fd, bytes))
        abort();
    close(fd);
    close(run);
    lp_buffer_free(&head);
}

/* CPU at `cores` from its first row on, RSS that gains `growth` bytes in every second interval, those of the path "iteration/expand";
 * the others have no phase. Bytes: 1 MiB written in each interval, 64 KiB read, of which half from the disk. */
static void write_process(const lp_worker *worker, double cores, double rss, double growth, unsigned skip_from,
                          unsigned skip_to)
{
    lp_sample_writer *writer = made_or_die(lp_sample_writer_new(LP_SERIES_PROCESS, 0, interval_ns()));
    lp_sample_writer *device = made_or_die(lp_sample_writer_new(LP_SERIES_PROCESS_GPU, 1, SECOND));
    uint32_t top = lp_sample_writer_path(writer, 0, made_str("iteration"));
    uint32_t expand = lp_sample_writer_path(writer, top, made_str("expand"));
    lp_buffer bytes = {0};

    for (unsigned k = 0; k < ROWS; k++) {
        lp_sample row = row_at(first_row_s + k * spacing_s);
        lp_sample_set(&row, LP_COLUMN_CPU, 300000 + (int64_t)(k * cores * 1e6));
        lp_sample_set(&row, LP_COLUMN_RSS, (int64_t)((rss + (k / 2) * growth) / 1024));
        lp_sample_miss(&row, LP_COLUMN_PSS, LP_REASON_DENIED);
        lp_sample_set(&row, LP_COLUMN_WRITE_BYTES, (int64_t)k << 20);
        lp_sample_set(&row, LP_COLUMN_WRITE_CHARS, (int64_t)k << 20);
        lp_sample_set(&row, LP_COLUMN_READ_BYTES, (int64_t)k << 15);
        lp_sample_set(&row, LP_COLUMN_READ_CHARS, (int64_t)k << 16);
        lp_sample_set(&row, LP_COLUMN_CPUS_ALLOWED, 4);
        if (uses_torch)
            lp_sample_set(&row, LP_COLUMN_TORCH_ALLOCATED, 300 << 10);
        if (k % 2 == 0)
            row.share[row.share_count++] = (lp_share){expand, 1000};
        if (k >= skip_from && k < skip_to)
            continue;
        lp_sample held = row_at(first_row_s + k * spacing_s);
        lp_sample_set(&held, LP_COLUMN_GPU_OURS_MEMORY, 400 << 10);
        if (uses_device && lp_sample_writer_add(device, &held, &bytes) != LP_OK)
            abort();
        if (lp_sample_writer_add(writer, &row, &bytes) != LP_OK)
            abort();
    }
    if (lp_sample_writer_flush(device, &bytes) != LP_OK || lp_sample_writer_flush(writer, &bytes) != LP_OK)
        abort();
    save(LP_SERIES_PROCESS, worker, &bytes);
    lp_sample_writer_free(writer);
    lp_sample_writer_free(device);
    lp_buffer_free(&bytes);
}

/* What one collector of a host tells, from second `from` to `to`. A CPU is stolen for a tenth of the time, and it takes 1 ms of CPU time
 * a second itself. The control groups are stopped for `throttled` of their time; `group` names both, which then have a kill
 * each 10 s; 0: it is not told which they are. */
static void write_host_of(const lp_worker *collector, double throttled, int64_t group, unsigned from, unsigned to)
{
    lp_sample_writer *host = made_or_die(lp_sample_writer_new(LP_SERIES_HOST, 0, SECOND));
    lp_sample_writer *gpu = made_or_die(lp_sample_writer_new(LP_SERIES_GPU, 1, SECOND));
    lp_buffer bytes = {0};

    lp_sample_writer_label(gpu, made_str("Made GPU"));
    for (unsigned k = from; k < to; k++) {
        lp_sample row = row_at(1.0 + k), device = row_at(1.0 + k);
        lp_sample_set(&row, LP_COLUMN_HOST_CPUS, 32);
        lp_sample_set(&row, LP_COLUMN_HOST_MEMORY, 64 << 20);
        lp_sample_set(&row, LP_COLUMN_HOST_AVAILABLE, 32 << 20);
        if (k % 7 == 0) /* as where a file takes long to read: 0, 7, … 98 */
            lp_sample_set(&row, LP_COLUMN_HOST_STOLEN, 100000 * (int64_t)k);
        else
            lp_sample_miss(&row, LP_COLUMN_HOST_STOLEN, LP_REASON_NOT_DUE);
        lp_sample_set(&row, LP_COLUMN_OWN_CPU, 1000 * (int64_t)(k - from));
        lp_sample_set(&row, LP_COLUMN_CGROUP_QUOTA, 2000);
        lp_sample_set(&row, LP_COLUMN_CGROUP_PERIODS, 10 * (int64_t)k);
        lp_sample_set(&row, LP_COLUMN_CGROUP_THROTTLES, (int64_t)(10 * k * throttled));
        lp_sample_set(&row, LP_COLUMN_CGROUP_THROTTLED, (int64_t)(k * throttled * 1e6));
        if (group) {
            lp_sample_set(&row, LP_COLUMN_CGROUP_KILLS, k / 10);
            lp_sample_set(&row, LP_COLUMN_CGROUP_CPU_GROUP, group);
            lp_sample_set(&row, LP_COLUMN_CGROUP_MEMORY_GROUP, group);
        }
        lp_sample_set(&device, LP_COLUMN_GPU_BUSY, k % 2 ? 900 : 0);
        lp_sample_set(&device, LP_COLUMN_GPU_POWER, 200000);
        lp_sample_set(&device, LP_COLUMN_GPU_MEMORY_USED, 6 << 20);
        lp_sample_set(&device, LP_COLUMN_GPU_MEMORY_TOTAL, 80 << 20);
        if (ours_busy >= 0)
            lp_sample_set(&device, LP_COLUMN_GPU_OURS_BUSY, ours_busy);
        if (lp_sample_writer_add(host, &row, &bytes) != LP_OK || lp_sample_writer_add(gpu, &device, &bytes) != LP_OK)
            abort();
    }
    if (lp_sample_writer_flush(host, &bytes) != LP_OK || lp_sample_writer_flush(gpu, &bytes) != LP_OK)
        abort();
    save(LP_SERIES_HOST, collector, &bytes);
    lp_sample_writer_free(host);
    lp_sample_writer_free(gpu);
    lp_buffer_free(&bytes);
}

static void write_host(const lp_worker *worker, double throttled)
{
    write_host_of(worker, throttled, 0, 0, ROWS);
}

static const lp_usage_phase *phase(const lp_usage *usage, const char *path, bool none)
{
    for (uint32_t i = 0; i < usage->phase_count; i++)
        if (usage->phases[i].none == none && usage->phases[i].path.size == strlen(path) &&
            memcmp(usage->phases[i].path.data, path, strlen(path)) == 0)
            return &usage->phases[i];
    return NULL;
}

static void sums_are_exact(void)
{
    lp_worker *workers[] = {made_worker("actor", "node07", 11), made_worker("actor", "node07", 12),
                            made_worker("actor", "node07", 13)};
    lp_usage *usage = NULL;

    make_folder(folder);
    write_process(workers[0], 0.5, 100 * MB, 0, 0, 0);
    write_process(workers[1], 1.0, 50 * MB, 0, 0, 0);
    write_host(workers[0], 0.0);
    lp_run *run = make_run(workers, 3);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_EQ(usage->process_count, 2u);
    CHECK_EQ(usage->unsampled, 1u);
    CHECK_EQ(usage->lost_count, 0u);
    CHECK_NEAR(usage->cpu_s, 98 * 1.5, 1e-6); /* 98 intervals between 99 rows */
    CHECK_NEAR(usage->cpu_peak, 1.5, 1e-9);
    CHECK_NEAR(usage->cpu_mean, 1.5, 1e-9);
    CHECK_NEAR(usage->cpu_max_process, 1.0, 1e-9);
    CHECK_EQ(usage->cpu_max_worker, 1u);
    CHECK_NEAR(usage->rss_peak, 150 * MB, 1.0);
    CHECK_NEAR(usage->io.write, 2 * 98 * MB, 1.0);
    CHECK_NEAR(usage->io.read, 2 * 98 * 32768.0, 1.0);
    CHECK_NEAR(usage->io.read_chars, 2 * 98 * 65536.0, 1.0);
    CHECK_NEAR(usage->write_peak, 2 * MB, 1.0);
    CHECK_NEAR(usage->covered_s, 98.0, 1e-6);
    CHECK_EQ(usage->process_count ? usage->processes[0].why[LP_COLUMN_PSS] : 99, LP_REASON_DENIED);
    CHECK(isnan(usage->pss_peak));
    CHECK_NEAR(usage->processes[0].cpu_unsampled_s, 0.3, 1e-9);
    const lp_usage_phase *expand = phase(usage, "iteration/expand", false);
    const lp_usage_phase *none = phase(usage, LP_USAGE_NO_PHASE, true);
    CHECK(expand && none);
    if (expand && none) {
        CHECK_EQ(usage->phase_count, 2u);
        CHECK_NEAR(expand->cpu_s, 49 * 1.5, 1e-6);
        CHECK_NEAR(expand->cpu_s + none->cpu_s, usage->cpu_s, 1e-6);
        CHECK_NEAR(expand->io.write + none->io.write, usage->io.write, 1.0);
        CHECK_NEAR(expand->seconds, 2 * 49.0, 1e-6);
    }
    CHECK_EQ(usage->host_count, 1u);
    CHECK_NEAR(usage->hosts[0].quota, 2.0, 1e-9);
    CHECK_NEAR(usage->hosts[0].cpus, 4.0, 1e-9); /* what the processes may use, not the machine's 32 */
    CHECK_EQ(usage->gpu_count, 1u);
    CHECK_NEAR(usage->gpus[0].busy, 0.9 * 49 / 99, 1e-9);
    CHECK(isnan(usage->gpus[0].ours)); /* nobody has told: not a measured zero */
    CHECK_EQ(usage->gpus[0].why[LP_COLUMN_GPU_OURS_BUSY], LP_REASON_NEVER);
    CHECK_EQ(usage->gpus[0].why[LP_COLUMN_GPU_BUSY], LP_REASON_NONE);
    CHECK_EQ(expand ? expand->gpu_samples : 99, 0u); /* and no process says that it uses a device */
    lp_usage_free(usage);
    lp_run_free(run);
    for (unsigned i = 0; i < 3; i++)
        lp_worker_free(workers[i]);
    remove_folder(folder);
}

/* Three processes of which two are there at one time: sums are of these, not of all that there ever were. */
static void what_they_used_at_one_time(void)
{
    lp_worker *workers[] = {made_worker("actor", "node07", 11), made_worker("actor", "node07", 12),
                            made_worker("actor", "node07", 13), made_worker("actor", "node07", 14)};
    lp_usage *usage = NULL;

    make_folder(folder);
    uses_torch = uses_device = true;
    write_process(workers[0], 0.5, 100 * MB, 0, 0, 0);
    write_process(workers[1], 0.5, 100 * MB, 0, 0, 50);    /* from 51 s on */
    write_process(workers[2], 0.5, 100 * MB, 0, 40, ROWS); /* up to 40 s */
    uses_torch = uses_device = false;
    write_host(workers[0], 0.0);
    lp_run *run = make_run(workers, 3);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_EQ(usage->process_count, 3u);
    CHECK_EQ(usage->at_once, 2u);
    CHECK_EQ(usage->hosts[0].at_once, 2u);
    CHECK_NEAR(usage->rss_peak, 200 * MB, 1.0);
    CHECK_NEAR(usage->vram_allocated_peak, 600 * MB, 1.0);
    CHECK(isnan(usage->vram_reserved_peak));
    CHECK_NEAR(usage->vram_held_peak, 800 * MB, 1.0);
    lp_usage_free(usage);
    lp_run_free(run);
    remove_folder(folder);
    /* one that lives for 0.4 s of an interval: its busiest is no less than what it used over its time */
    make_folder(folder);
    write_process(workers[0], 0.01, 100 * MB, 0, 0, 0);
    planned_s = 1.0;
    spacing_s = 0.2;
    write_process(workers[3], 1.0, 50 * MB, 0, 3, ROWS); /* 1 s of CPU time between two rows: five cores */
    first_row_s = 1.6; /* and one that comes in the same second, when that one has gone */
    write_process(workers[2], 1.0, 70 * MB, 0, 2, ROWS);
    workers[2]->elapsed_ns = workers[3]->elapsed_ns = SECOND / 4;
    planned_s = 0.0;
    first_row_s = spacing_s = 1.0;
    run = make_run((lp_worker *[]){workers[0], workers[3], workers[2]}, 3);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_EQ(usage->at_once, 2u);
    CHECK_NEAR(usage->rss_peak, 170 * MB, 1.0);
    CHECK_NEAR(usage->cpu_max_process, 5.0, 1e-6);
    CHECK_EQ(usage->cpu_max_worker, 1u);
    lp_usage_free(usage);
    lp_run_free(run);
    remove_folder(folder);
    /* two that use one core each, one after the other in one second: never two cores */
    make_folder(folder);
    planned_s = 1.0;
    spacing_s = 0.2;
    write_process(workers[3], 0.2, 50 * MB, 0, 3, ROWS);
    first_row_s = 1.5;
    write_process(workers[2], 0.2, 70 * MB, 0, 3, ROWS);
    planned_s = 0.0;
    first_row_s = spacing_s = 1.0;
    run = make_run((lp_worker *[]){workers[3], workers[2]}, 2);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_NEAR(usage->covered_s, 0.8, 1e-6);
    CHECK_NEAR(usage->cpu_peak, 1.0, 1e-6);
    CHECK_NEAR(usage->cpu_mean, 1.0, 1e-6);
    CHECK_NEAR(usage->rss_peak, 70 * MB, 1.0);
    lp_usage_free(usage);
    lp_run_free(run);
    for (unsigned i = 0; i < 4; i++)
        lp_worker_free(workers[i]);
    remove_folder(folder);
}

/* Two processes at the same time, one of them in a time namespace of its own, with a collector there. */
static void another_time_namespace(void)
{
    lp_worker *workers[] = {made_worker("actor", "node07", 11), made_worker("actor", "node07", 12)};
    lp_worker *collectors[] = {made_worker("collector", "node07", 21), made_worker("collector", "node07", 22)};
    lp_usage *usage = NULL;

    make_folder(folder);
    for (unsigned i = 0; i < 2; i++) {
        workers[i]->id.time_ns = collectors[i]->id.time_ns = 4026531834 + i;
        mono_ahead = i * 100000;
        write_process(workers[i], 0.5, 100 * MB, 0, 0, 0);
        write_host(collectors[i], 0.0);
    }
    mono_ahead = 0;
    lp_run *run = make_run(workers, 2);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_EQ(usage->at_once, 2u);
    CHECK_NEAR(usage->covered_s, 98.0, 1e-3);
    CHECK_NEAR(usage->cpu_peak, 1.0, 1e-3);
    CHECK_NEAR(usage->rss_peak, 200 * MB, 1.0);
    CHECK_NEAR(usage->hosts[0].seconds, 98.0, 1e-3); /* told once */
    CHECK_NEAR(usage->hosts[0].stolen_s, 9.8, 1e-3);
    lp_usage_free(usage);
    lp_run_free(run);
    for (unsigned i = 0; i < 2; i++) {
        lp_worker_free(workers[i]);
        lp_worker_free(collectors[i]);
    }
    remove_folder(folder);
}

/* A child that burns 1 s a second from 10 s on, is waited for at 50 s, and one that does so to the end. */
static void children_that_live_and_end(void)
{
    lp_worker *worker = made_worker("main", "node07", 11);
    lp_sample_writer *writer = made_or_die(lp_sample_writer_new(LP_SERIES_PROCESS, 0, SECOND));
    lp_buffer bytes = {0};
    lp_usage *usage = NULL;

    make_folder(folder);
    for (int64_t k = 0; k < (int64_t)ROWS; k++) {
        lp_sample row = row_at(1.0 + (double)k);
        int64_t first = k < 10 ? 0 : k < 50 ? k - 10 : 40, second = k < 60 ? 0 : k - 60;
        lp_sample_set(&row, LP_COLUMN_CPU, 1000 * k);
        lp_sample_set(&row, LP_COLUMN_CHILDREN_ENDED_CPU, 7000000 + (k < 50 ? 0 : first * 1000000));
        lp_sample_set(&row, LP_COLUMN_CHILDREN_LIVING_CPU, (k < 50 ? first : second) * 1000000);
        if (k == 30) /* and one that is seen for a moment, before it begins to record */
            lp_sample_set(&row, LP_COLUMN_CHILDREN_LIVING_CPU, (first + 2) * 1000000);
        if (lp_sample_writer_add(writer, &row, &bytes) != LP_OK)
            abort();
    }
    if (lp_sample_writer_flush(writer, &bytes) != LP_OK)
        abort();
    save(LP_SERIES_PROCESS, worker, &bytes);
    lp_sample_writer_free(writer);
    lp_buffer_free(&bytes);
    lp_run *run = make_run(&worker, 1);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_NEAR(usage->processes[0].children_s, 40 + 38 + 1,
               1e-6); /* 2 s of that one, less the interval in which it goes */
    lp_usage_free(usage);
    lp_run_free(run);
    lp_worker_free(worker);
    remove_folder(folder);
}

static lp_run *run_of_told;
static lp_worker *worker_of_told;

typedef struct told_by { /* a collector */
    int64_t pid, since, group;
    unsigned from, to;
    const char *boot;
} told_by;

/* The figures of a host that so many collectors have told of. */
static lp_usage *told(const told_by *by, unsigned count)
{
    lp_worker *workers[5] = {made_worker("actor", "node07", 11)};
    lp_usage *usage = NULL;

    make_folder(folder);
    write_process(workers[0], 0.5, 100 * MB, 0, 0, 0);
    for (unsigned i = 0; i < count; i++) {
        workers[1 + i] = made_worker("", "node07", by[i].pid);
        workers[1 + i]->id.pid_start = by[i].since;
        if (by[i].boot)
            workers[1 + i]->id.boot_id = made_str(by[i].boot);
        write_host_of(workers[1 + i], 0.2, by[i].group, by[i].from, by[i].to);
    }
    lp_run *run = make_run(workers, 1);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_EQ(usage->host_count, 1u);
    CHECK_EQ(usage->lost_count, 0u);
    run_of_told = run;
    for (unsigned i = 1; i <= count; i++)
        lp_worker_free(workers[i]);
    worker_of_told = workers[0];
    return usage;
}

static void told_end(lp_usage *usage)
{
    lp_usage_free(usage);
    lp_run_free(run_of_told);
    lp_worker_free(worker_of_told);
    remove_folder(folder);
}

/* Collectors of containers that share a machine and its name tell of the same seconds: each moment counts once. What is of a control
 * group counts once for each group. Pids are such that files sorted by name are not in the order of time. */
static void a_moment_counts_once(void)
{
    static const struct {
        told_by by[4];
        unsigned count;
        double stolen_s, throttled_s, periods, kills, own_ms, seconds;
    } cases[] = {
        {{{77, 10, 5, 0, 99, NULL}}, 1, 9.8, 19.6, 980, 9, 98, 98},
        /* two in one group, one within the other's time */
        {{{77, 10, 5, 0, 99, NULL}, {66, 20, 5, 10, 50, NULL}}, 2, 9.8, 19.6, 980, 9, 98 + 39, 98},
        /* two that overlap at an end, in one group: each tells of a part that the other does not */
        {{{77, 10, 5, 0, 60, NULL}, {66, 20, 5, 40, 99, NULL}}, 2, 9.8, 19.6, 980, 9, 59 + 58, 98},
        /* two groups: the machine's figures once, each group's own */
        {{{77, 10, 5, 0, 99, NULL}, {66, 20, 6, 0, 99, NULL}}, 2, 9.8, 2 * 19.6, 2 * 980, 18, 2 * 98, 98},
        /* one after the other in two groups: what the second had counted before is not the first one's */
        {{{77, 10, 5, 0, 50, NULL}, {66, 20, 6, 50, 99, NULL}}, 2, 9.8, 9.8 + 9.6, 490 + 480, 8, 49 + 48, 98},
        /* no group is told of, as where there are none: the counters of the second go on */
        {{{77, 10, 0, 0, 99, NULL}, {66, 20, 0, 10, 50, NULL}}, 2, 9.8, 19.6, 980, NAN, 98 + 39, 98},
        /* another boot begins anew */
        {{{77, 10, 5, 0, 99, NULL}, {66, 20, 5, 0, 99, "c0071d00-0000-0000-0000-000000000000"}},
         2,
         2 * 9.8,
         2 * 19.6,
         2 * 980,
         18,
         2 * 98,
         2 * 98},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_usage *usage = told(cases[i].by, cases[i].count);
        const lp_usage_host *host = &usage->hosts[0];
        CHECK_NEAR(host->stolen_s, cases[i].stolen_s, 1e-6);
        CHECK_NEAR(host->throttled_s, cases[i].throttled_s, 1e-6);
        CHECK_NEAR(host->throttle_periods, cases[i].periods, 1e-6);
        CHECK_NEAR(host->throttled_share, 0.2, 0.003); /* whole periods are counted */
        CHECK(isnan(host->kills) == isnan(cases[i].kills));
        CHECK_NEAR(isnan(host->kills) ? 0.0 : host->kills, isnan(cases[i].kills) ? 0.0 : cases[i].kills, 1e-6);
        CHECK_NEAR(host->own_cpu_s, cases[i].own_ms / 1e3, 1e-6);
        CHECK_NEAR(host->seconds, cases[i].seconds, 1e-6);
        CHECK_EQ(usage->gpu_count, 1u);
        CHECK_NEAR(usage->gpus[0].power_mean_w, 200.0, 1e-9);
        told_end(usage);
    }
}

/* A device that two collectors see: its own time once, our part in it from both. */
static void a_device_of_two_collectors(void)
{
    static const told_by by[] = {{77, 10, 5, 0, 99, NULL}, {66, 20, 6, 0, 99, NULL}};

    ours_busy = 300;
    lp_usage *usage = told(by, 2);
    CHECK_EQ(usage->gpu_count, 1u);
    CHECK_EQ(usage->gpus[0].rows, 99u);
    CHECK_NEAR(usage->gpus[0].busy, 0.9 * 49 / 99, 1e-9);
    CHECK_NEAR(usage->gpus[0].ours, 0.6, 1e-9);
    told_end(usage);
    ours_busy = -1;
}

/* Rows between the bins' bounds, and bins of many rows (a run so long that there are more seconds than bins): a mean is what was
 * used over the time that was sampled. */
static void means_do_not_depend_on_the_grid(void)
{
    static const struct {
        double offset;
        uint64_t elapsed_s;
    } cases[] = {{0.37, 0}, {0.99, 0}, {0.0, 200000}, {0.37, 40000}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_worker *worker = made_worker("actor", "node07", 51);
        lp_usage *usage = NULL;

        make_folder(folder);
        first_row_s = 1.0 + cases[i].offset;
        write_process(worker, 0.5, 100 * MB, 0, 0, 0);
        first_row_s = 1.0;
        if (cases[i].elapsed_s) {
            worker->elapsed_ns = cases[i].elapsed_s * SECOND;
            worker->written_ns = MADE_START + worker->elapsed_ns;
        }
        lp_run *run = make_run(&worker, 1);
        CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
        CHECK_NEAR(usage->cpu_s, 49.0, 1e-6);
        CHECK_NEAR(usage->covered_s, 98.0, 1e-3); /* the sample file keeps whole microseconds */
        CHECK_NEAR(usage->cpu_mean, 0.5, 1e-5);
        CHECK_NEAR(usage->cpu_peak, 0.5, 1e-5);
        CHECK_NEAR(usage->rss_peak, 100 * MB, 1.0);
        CHECK_NEAR(usage->write_peak, MB, 100.0);
        lp_usage_free(usage);
        lp_run_free(run);
        lp_worker_free(worker);
        remove_folder(folder);
    }
}

/* Ten rows are missing: their bytes are in the totals, belong to no phase, and one interval is counted as too long. */
static void a_gap_has_no_phase(void)
{
    lp_worker *worker = made_worker("actor", "node07", 21);
    lp_usage *usage = NULL;

    make_folder(folder);
    write_process(worker, 0.5, 100 * MB, 0, 40, 50);
    lp_run *run = make_run(&worker, 1);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_NEAR(usage->cpu_s, 49.0, 1e-6);
    CHECK_NEAR(usage->io_gaps, 1.0, 0.0);
    CHECK_NEAR(usage->io_intervals, 88.0, 0.0);
    const lp_usage_phase *expand = phase(usage, "iteration/expand", false);
    const lp_usage_phase *none = phase(usage, LP_USAGE_NO_PHASE, true);
    CHECK(expand && none);
    if (expand && none) {
        CHECK_NEAR(expand->cpu_s, 21.5, 1e-6); /* 43 of the 49 even rows: five are missing, that at 50 ends the gap */
        CHECK_NEAR(none->cpu_s, 27.5, 1e-6);
    }
    lp_usage_free(usage);
    lp_run_free(run);
    lp_worker_free(worker);
    remove_folder(folder);
}

/* By hand, by NTP: rows keep their places beside each other, in files that were begun before it and after it. The driver does
 * not tell whose the device is, so it counts for processes that say that they use one. */
static void a_clock_that_is_set_moves_nothing(void)
{
    static const double by_s[] = {0.0, 3600.0, -3600.0, -0.5};

    for (size_t i = 0; i < sizeof by_s / sizeof *by_s; i++) {
        lp_worker *workers[] = {made_worker("actor", "node07", 61), made_worker("actor", "node07", 62)};
        lp_usage *usage = NULL;

        make_folder(folder);
        set_at_s = 30.0;
        set_by_s = by_s[i];
        uses_torch = true;
        write_process(workers[0], 0.5, 100 * MB, 0, 0, 0);
        uses_torch = false;
        write_process(workers[1], 0.5, 50 * MB, 0, 0, 50); /* from 51 s on */
        write_host(workers[0], 0.0);
        set_at_s = 1e9;
        lp_run *run = make_run(workers, 2);
        CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
        CHECK_NEAR(usage->cpu_s, 0.5 * (98 + 48), 1e-6);
        CHECK_NEAR(usage->cpu_peak, 1.0, 1e-6);
        CHECK_NEAR(usage->covered_s, 98.0, 1e-3);
        CHECK_NEAR(usage->rss_peak, 150 * MB, 1.0);
        CHECK(isnan(usage->rss_series[0]) || fabs(usage->rss_series[0] - 100 * MB) < 1.0);
        for (unsigned k = LP_USAGE_SPARK / 2 + 2; k < LP_USAGE_SPARK; k++) /* to the end */
            CHECK_NEAR(usage->rss_series[k], 150 * MB, 1.0);
        const lp_usage_phase *expand = phase(usage, "iteration/expand", false);
        const lp_usage_phase *none = phase(usage, LP_USAGE_NO_PHASE, true);
        CHECK(expand && none);
        if (expand && none) { /* of one process, in 98 intervals; the device is busy when no phase is open */
            CHECK_EQ(expand->gpu_samples, 49u);
            CHECK_EQ(expand->gpu_busy[0], 49u);
            CHECK_EQ(none->gpu_samples, 49u);
            CHECK_EQ(none->gpu_busy[90], 49u);
        }
        lp_usage_free(usage);
        lp_run_free(run);
        for (unsigned k = 0; k < 2; k++)
            lp_worker_free(workers[k]);
        remove_folder(folder);
    }
}

static const lp_finding *find(const lp_report *report, lp_finding_kind kind)
{
    for (uint32_t i = 0; i < report->finding_count; i++)
        if (report->findings[i].kind == kind)
            return &report->findings[i];
    return NULL;
}

/* growth in bytes each two seconds -> is growth found, and what is said. */
static void growth_case(double growth, double throttled, bool grows, bool stopped)
{
    lp_worker *worker = made_worker("actor", "node07", 31);
    lp_usage *usage = NULL;
    lp_report *report = NULL;
    uint32_t at = made_path(worker, "iteration");

    worker->tree.phases[at].entries = 1;
    worker->tree.phases[at].wall_ns = worker->tree.phases[at].cpu_wall_ns = worker->tree.phases[at].cpu_ns =
        90 * SECOND;
    make_folder(folder);
    write_process(worker, 0.5, 100 * MB, growth, 0, 0);
    write_host(worker, throttled);
    lp_run *run = make_run(&worker, 1);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_EQ(lp_report_new(run, &report), LP_OK);
    CHECK_EQ(lp_report_add_usage(report, usage), LP_OK);
    const lp_finding *found = find(report, LP_FINDING_GROWTH);
    CHECK_EQ(found != NULL, grows);
    if (found) {
        lp_finding_words words;
        CHECK_NEAR(found->value[0], growth / 2, growth * 0.01); /* a stair of 2 s, fitted over 50 s */
        CHECK_NEAR(found->value[3], 1.0, 0.01);
        CHECK(found->path.size == 16 && memcmp(found->path.data, "iteration/expand", 16) == 0);
        lp_finding_say(report, found, true, &words);
        CHECK_STR(words.kind, "memory-growth");
        CHECK(strstr(words.headline, "node07:31 grows by") != NULL);
        CHECK(strstr(words.detail, "100% of the growth came while iteration/expand was open") != NULL);
    }
    found = find(report, LP_FINDING_THROTTLED);
    CHECK_EQ(found != NULL, stopped);
    if (found) {
        CHECK_NEAR(found->value[0], throttled, 0.01); /* whole periods are counted */
        CHECK_NEAR(found->value[2], 2.0, 1e-9);
    }
    CHECK_EQ(report->finding_count, (uint32_t)grows + (uint32_t)stopped); /* nothing else is said */
    lp_report_free(report);
    lp_usage_free(usage);
    lp_run_free(run);
    lp_worker_free(worker);
    remove_folder(folder);
}

static void growth_is_found(void)
{
    growth_case(2 * MB, 0.0, true, false);
}

static void a_healthy_run_is_silent(void)
{
    growth_case(0.0, 0.0, false, false);
}

static void little_growth_is_no_finding(void) /* 0.3 MB a second: 15 MB in the second half, below the 16 that count */
{
    growth_case(0.6 * MB, 0.0, false, false);
}

/* A run of one interval has a size and no growth; none of it is "0 B". */
static void one_point_has_no_growth(void)
{
    lp__points points;
    lp_usage_trend trend;

    lp__points_init(&points, 1.0);
    lp__points_add(&points, 0.5, 7 * MB);
    lp__points_trend(&points, &trend);
    CHECK_NEAR(trend.last, 7 * MB, 0.0);
    CHECK(isnan(trend.growth));
    lp__points_add(&points, 1.5, 9 * MB);
    lp__points_trend(&points, &trend);
    CHECK_NEAR(trend.growth, 2 * MB, 0.0);
}

/* Ten rows a second: a trend of 5 s has as many points as one of 50 s at one a second. */
static void a_short_run_has_a_trend(void)
{
    lp_worker *worker = made_worker("actor", "node07", 51);
    lp_usage *usage = NULL;

    spacing_s = 0.1;
    make_folder(folder);
    write_process(worker, 0.5, 100 * MB, 2 * MB, 0, 0);
    lp_run *run = make_run(&worker, 1);
    CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
    CHECK_NEAR(usage->processes[0].rss.slope, 10 * MB, 0.5 * MB); /* a stair of 0.2 s, fitted over 5 s */
    CHECK_NEAR(usage->processes[0].rss.late_slope, 10 * MB, 0.5 * MB);
    CHECK(usage->processes[0].rss.late_error < 1 * MB);
    lp_usage_free(usage);
    lp_run_free(run);
    lp_worker_free(worker);
    remove_folder(folder);
    spacing_s = 1.0;
}

static void throttling_is_found(void)
{
    growth_case(0.0, 0.4, false, true);
}

static void little_throttling_is_no_finding(void)
{
    growth_case(0.0, 0.03, false, false);
}

/* Any cut of a file: what came before it counts, the rest is named. */
static void a_torn_file_keeps_its_beginning(void)
{
    lp_worker *worker = made_worker("actor", "node07", 41);
    const char *path;
    struct stat st;

    make_folder(folder);
    write_process(worker, 0.5, 100 * MB, 0, 0, 0);
    path = text("%s/workers/node07/w_20260921T155320-471c94_41_%.8s.1.samples", folder, worker->id.uuid.data);
    CHECK_EQ(stat(path, &st), 0);
    double most = 0.0;
    for (off_t size = st.st_size - 1; size > 0; size -= 1 + st.st_size / 97) {
        lp_usage *usage = NULL;
        lp_run *run = make_run(&worker, 1);
        CHECK_EQ(truncate(path, size), 0);
        CHECK_EQ(lp_usage_load(run, &usage), LP_OK);
        double used = isnan(usage->cpu_s) ? 0.0 : usage->cpu_s;
        CHECK(used <= 49.0 + 1e-6);
        CHECK(most == 0.0 || used <= most + 1e-6); /* a shorter file never says more */
        most = used;
        lp_usage_free(usage);
        lp_run_free(run);
    }
    lp_worker_free(worker);
    remove_folder(folder);
}

/* Rows of two processes of 100 MB each for the whole run; of the second, as many bytes of the file as `part` says, or its rows up to
 * second 50. What both hold together, and how the second lived. */
static lp_usage *load_two(double part, double lived_s, lp_run **run, lp_worker *workers[2])
{
    lp_usage *usage = NULL;
    struct stat st;

    make_folder(folder);
    workers[0] = made_worker("actor", "node07", 41);
    workers[1] = made_worker("actor", "node07", 42);
    workers[1]->elapsed_ns = (uint64_t)(lived_s * SECOND);
    write_process(workers[0], 0.5, 100 * MB, 0, 0, 0);
    write_process(workers[1], 0.5, 100 * MB, 0, part > 0 ? ROWS : 49, ROWS); /* skips those */
    if (part > 0) {
        const char *path =
            text("%s/workers/node07/w_20260921T155320-471c94_42_%.8s.1.samples", folder, workers[1]->id.uuid.data);
        CHECK_EQ(stat(path, &st), 0);
        CHECK_EQ(truncate(path, (off_t)((double)st.st_size * part)), 0);
    }
    *run = make_run(workers, 2);
    CHECK_EQ(lp_usage_load(*run, &usage), LP_OK);
    return usage;
}

static void drop_two(lp_usage *usage, lp_run *run, lp_worker *workers[2])
{
    lp_usage_free(usage);
    lp_run_free(run);
    lp_worker_free(workers[0]);
    lp_worker_free(workers[1]);
    remove_folder(folder);
}

/* Who is not seen any more has not ended, and who has ended is not missed. */
static void a_torn_file_is_no_end(void)
{
    lp_worker *workers[2];
    lp_run *run;
    lp_usage *usage = load_two(0.9, 99.5, &run, workers); /* without its last batch, that of 60 rows */

    CHECK_EQ(usage->processes[1].rows, 2 + 3 + 6 + 12 + 24);
    CHECK_EQ(usage->unseen, 1);
    CHECK(usage->unseen_end);
    CHECK_NEAR(usage->processes[1].unseen_s, 99.5 - 46.0, 1e-6); /* its last row is 46 s after its first */
    CHECK_NEAR(usage->unseen_bins_s, 52.0, 1.0 + 1e-9);          /* it counts for a second, to the 48th of 100 */
    CHECK_NEAR(usage->rss.last, 200 * MB, 1);
    CHECK_NEAR(usage->rss.growth, 0.0, 1);
    CHECK_NEAR(usage->rss_peak, 200 * MB, 1);
    drop_two(usage, run, workers);

    usage = load_two(0.0, 49.5, &run, workers);
    CHECK_EQ(usage->unseen, 0);
    CHECK_NEAR(usage->rss.last, 100 * MB, 1);
    CHECK_NEAR(usage->rss.growth, -100 * MB, 1);
    drop_two(usage, run, workers);
}

int main(void)
{
    RUN(sums_are_exact);
    RUN(what_they_used_at_one_time);
    RUN(another_time_namespace);
    RUN(children_that_live_and_end);
    RUN(a_moment_counts_once);
    RUN(a_device_of_two_collectors);
    RUN(means_do_not_depend_on_the_grid);
    RUN(a_gap_has_no_phase);
    RUN(a_clock_that_is_set_moves_nothing);
    RUN(growth_is_found);
    RUN(a_healthy_run_is_silent);
    RUN(little_growth_is_no_finding);
    RUN(one_point_has_no_growth);
    RUN(a_short_run_has_a_trend);
    RUN(throttling_is_found);
    RUN(little_throttling_is_no_finding);
    RUN(a_torn_file_keeps_its_beginning);
    RUN(a_torn_file_is_no_end);
    return check_done();
}
