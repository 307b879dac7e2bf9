/* What a run used: its sample files, host by host, and what they add up to. The rows are read in usage_rows.c. */
#include "analysis/usage.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/tree_math.h"
#include "analysis/usage_internal.h"
#include "store/arena.h"

typedef struct source { /* a sample file of this run */
    lp_str path;
    const lp_usage_rows *rows; /* borrowed; NULL: read the file */
    uint32_t host;             /* index into run->hosts */
    bool of_host;
    uint32_t worker;        /* index into run->workers; of a process */
    lp_str boot, collector; /* of a host's file: boot id, uuid of who wrote it */
    int64_t since;          /* and when that started, clock ticks since boot */
    double interval_s;
} source;

typedef struct sources {
    source *at; /* owned */
    uint32_t count;
} sources;

static lp_status lose(lp_usage *usage, lp_str path, const char *why)
{
    lp_str reason = lp_arena_str(usage->arena, why, strlen(why));

    if (!reason.data)
        return LP_E_MEMORY;
    lp_run_lost *list = lp_arena_grow(usage->arena, usage->lost, usage->lost_count, sizeof *list);
    if (!list)
        return LP_E_MEMORY;
    usage->lost = list;
    usage->lost[usage->lost_count++] = (lp_run_lost){path, reason};
    return LP_OK;
}

typedef struct by_uuid {
    lp_str uuid;
    uint32_t worker;
} by_uuid;

static int uuid_order(const void *a, const void *b)
{
    return lp__str_compare(((const by_uuid *)a)->uuid, ((const by_uuid *)b)->uuid);
}

static uint32_t host_of(const lp_run *run, lp_str name)
{
    for (uint32_t i = 0; i < run->host_count; i++)
        if (lp__str_equal(run->hosts[i].name, name))
            return i;
    return UINT32_MAX;
}

/* Whose file is it? Those of other attempts are not of interest. */
static lp_status classify(lp_usage *usage, const by_uuid *workers, lp_str path, sources *list)
{
    const lp_run *run = usage->run;
    lp_samples *file = NULL;
    lp_error error = {.offset = UINT64_MAX};
    int fd = open(path.data, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return lose(usage, path, strerror(errno));
    lp_status status = lp_samples_open(fd, "", &file, &error);
    if (status != LP_OK) {
        close(fd);
        const char *why = error.text[0] == ':' ? error.text + 1 + (error.text[1] == ' ') : error.text;
        return status == LP_E_MEMORY ? status : lose(usage, path, why[0] ? why : lp_status_text(status));
    }
    const lp_identity *id = lp_samples_identity(file);
    source found = {.path = path,
                    .host = host_of(run, id->host),
                    .of_host = lp_samples_series(file) == LP_SERIES_HOST,
                    .interval_s = (double)lp_samples_interval_ns(file) / 1e9};
    by_uuid key = {.uuid = id->uuid};
    const by_uuid *worker =
        run->worker_count ? bsearch(&key, workers, run->worker_count, sizeof key, uuid_order) : NULL;
    bool ours = lp__str_equal(id->run_id, run->run_id) && found.host != UINT32_MAX;
    if (ours && (found.of_host || worker)) {
        found.worker = worker ? worker->worker : 0;
        if (found.of_host) {
            found.boot = lp_arena_str(usage->arena, id->boot_id.data, id->boot_id.size);
            found.collector = lp_arena_str(usage->arena, id->uuid.data, id->uuid.size);
            found.since = id->pid_start;
            status = found.boot.data && found.collector.data ? LP_OK : LP_E_MEMORY;
        }
        list->at[list->count++] = found;
    }
    lp_samples_close(file);
    close(fd);
    return status;
}

/* Collectors of one boot in the order in which they began: what one has told is not taken from the next. */
static int collector_order(const source *x, const source *y)
{
    int order = lp__str_compare(x->boot, y->boot);

    if (order == 0)
        order = x->since == y->since ? 0 : x->since < y->since ? -1 : 1;
    return order ? order : lp__str_compare(x->collector, y->collector);
}

/* Host files first, since they tell of the devices; the files of one writer in the order of their numbers. */
static int source_order(const void *a, const void *b)
{
    const source *x = a, *y = b;

    if (x->host != y->host)
        return x->host < y->host ? -1 : 1;
    if (x->of_host != y->of_host)
        return x->of_host ? -1 : 1;
    if (!x->of_host && x->worker != y->worker)
        return x->worker < y->worker ? -1 : 1;
    int order = x->of_host ? collector_order(x, y) : 0;
    if (order)
        return order;
    if (x->path.size != y->path.size) /* ….9.samples comes before ….10.samples */
        return x->path.size < y->path.size ? -1 : 1;
    return strcmp(x->path.data, y->path.data);
}

static lp_status list_sources(lp_usage *usage, sources *list)
{
    const lp_run *run = usage->run;
    lp_sample_files files = {0};
    lp_status status = lp_samples_list(run->directory.data, usage->arena, &files);
    by_uuid *workers = malloc((run->worker_count + 1u) * sizeof *workers);

    list->at = malloc((files.count + 1u) * sizeof *list->at);
    if (!workers || !list->at)
        status = LP_E_MEMORY;
    for (uint32_t i = 0; workers && i < run->worker_count; i++)
        workers[i] = (by_uuid){run->workers[i].uuid, i};
    if (workers && run->worker_count > 1)
        qsort(workers, run->worker_count, sizeof *workers, uuid_order);
    for (uint32_t i = 0; status == LP_OK && i < files.count; i++)
        status = classify(usage, workers, files.paths[i], list);
    free(workers);
    if (status == LP_OK && list->count > 1)
        qsort(list->at, list->count, sizeof *list->at, source_order);
    return status;
}

static lp_status take_batch(const source *from, lp_usage_host *host, lp__usage_reading *reading, const lp_samples *file,
                            const lp_sample_batch *batch)
{
    switch (batch->series) {
    case LP_SERIES_PROCESS: return from->of_host ? LP_OK : lp__usage_process_batch(reading, file, batch);
    case LP_SERIES_PROCESS_GPU: /* read_devices has had it */ return LP_OK;
    case LP_SERIES_HOST: return from->of_host ? lp__usage_host_batch(reading, host, batch) : LP_OK;
    case LP_SERIES_GPU: return from->of_host ? lp__usage_gpu_batch(reading, host, batch) : LP_OK;
    }
    return LP_OK; /* a series of a later version */
}

/* Which devices the process uses must be known before its rows are read. */
static lp_status read_devices(lp__usage_reading *reading, int fd)
{
    lp_samples *file = NULL;
    const lp_sample_batch *batch = NULL;
    lp_error error = {.offset = UINT64_MAX};
    lp_status status = lp_samples_open(fd, "", &file, &error);

    if (status == LP_OK)
        lp__usage_place(reading, lp_samples_identity(file));
    while (status == LP_OK && (status = lp_samples_next(file, &batch, &error)) == LP_OK && batch)
        if (batch->series == LP_SERIES_PROCESS_GPU && batch->rows > 0)
            lp__usage_process_gpu_batch(reading, batch);
        else if (batch->series == LP_SERIES_PROCESS)
            reading->uses_torch |= batch->value[LP_COLUMN_TORCH_ALLOCATED] != NULL;
    lp_samples_close(file);
    return status;
}

static lp_status read_batches(lp__usage *all, const source *from, lp_usage_host *host, lp__usage_reading *reading,
                              lp_samples *file)
{
    const lp_sample_batch *batch = NULL;
    lp_error error = {.offset = UINT64_MAX};
    uint64_t bytes = 0;
    lp_status status = LP_OK;

    free(reading->paths); /* numbers of paths are of one file */
    reading->paths = NULL;
    reading->path_count = 0;
    lp__usage_place(reading, lp_samples_identity(file));
    while (status == LP_OK && (status = lp_samples_next(file, &batch, &error)) == LP_OK && batch)
        if (batch->rows > 0)
            status = take_batch(from, host, reading, file, batch);
    const char *lost = status == LP_OK ? lp_samples_lost(file, &bytes) : "";
    return lost[0] ? lose(all->usage, from->path, lost) : status;
}

static lp_status read_source(lp__usage *all, const source *from, lp_usage_host *host, lp__usage_reading *reading)
{
    lp_samples *file = NULL;
    lp_error error = {.offset = UINT64_MAX};

    if (from->rows) {
        reading->interval_s = from->interval_s;
        reading->rows = from->rows;
        reading->kib = 1.0;
        return from->rows->batch.rows > 0 ? lp__usage_process_batch(reading, NULL, &from->rows->batch) : LP_OK;
    }
    int fd = open(from->path.data, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return lose(all->usage, from->path, strerror(errno));
    reading->interval_s = from->interval_s > 0.0 ? from->interval_s : 1.0;
    lp_status status = from->of_host || all->device_count == 0 ? LP_OK : read_devices(reading, fd);
    if (status == LP_OK)
        status = lp_samples_open(fd, "", &file, &error);
    if (status == LP_OK) {
        status = read_batches(all, from, host, reading, file);
        lp_samples_close(file);
    }
    close(fd);
    return status == LP_OK || status == LP_E_MEMORY ? status : lose(all->usage, from->path, lp_status_text(status));
}

static bool new_bins(lp_arena *arena, uint32_t count, lp__bins *bins)
{
    double **const all[] = {&bins->cpu_s,   &bins->rss,       &bins->pss,      &bins->read, &bins->write,
                            &bins->covered, &bins->allocated, &bins->reserved, &bins->held};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(*all[i] = lp_arena_take(arena, count * sizeof **all[i])))
            return false;
    return true;
}

static bool new_peaks(lp_arena *arena, lp__usage *all)
{
    uint32_t count = all->grid.bins;

    all->run_peaks = lp_arena_take(arena, count * sizeof *all->run_peaks);
    all->host_peaks = lp_arena_take(arena, count * sizeof *all->host_peaks);
    all->run_through = lp_arena_take(arena, count * sizeof *all->run_through);
    return all->run_peaks && all->host_peaks && all->run_through;
}

static double highest(const double *bins, uint32_t count)
{
    double most = 0.0;

    for (uint32_t i = 0; i < count; i++)
        most = fmax(most, bins[i]);
    return most;
}

static double sum(const double *bins, uint32_t count)
{
    double total = 0.0;

    for (uint32_t i = 0; i < count; i++)
        total += bins[i];
    return total;
}

/* What was there between rows: of processes together, and of one alone. To be called before the bins have the parts of those that came or
 * went. */
static double peak_between(lp__usage *all, const lp_usage_process *processes, uint32_t count)
{
    double most = lp__peaks_of(all->host_peaks, all->host.rss, all->grid.bins);

    for (uint32_t i = 0; i < count; i++)
        most = fmax(most, processes[i].rss.peak);
    for (uint32_t i = 0; i < all->grid.bins; i++) {
        lp__peak_add(&all->run_peaks[i], &all->host_peaks[i]);
        all->host_peaks[i] = (lp__peak){0};
        all->run_through[i] += all->host.rss[i];
    }
    return most;
}

/* The host's bins into the run's, and its figures out of them. */
static lp_status end_host(lp__usage *all, lp_usage_host *host, const lp_usage_process *processes, uint32_t count)
{
    lp__sizes *const sizes[] = {&all->sizes.rss, &all->sizes.pss, &all->sizes.allocated, &all->sizes.reserved,
                                &all->sizes.held};
    uint32_t bins = all->grid.bins;
    lp_status status = lp__rates_cover(all, processes, count, all->host.covered, all->host_rates.covered);
    double covered = sum(all->host.covered, bins);
    double *const from[] = {all->host.cpu_s, all->host.rss,       all->host.pss,      all->host.read,
                            all->host.write, all->host.allocated, all->host.reserved, all->host.held};
    double *const to[] = {all->run.cpu_s, all->run.rss,       all->run.pss,      all->run.read,
                          all->run.write, all->run.allocated, all->run.reserved, all->run.held};

    double between = peak_between(all, processes, count);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!lp__sizes_end(sizes[i]))
            status = LP_E_MEMORY;
    lp__usage_host_end(all, host);
    if (host->processes > 0 && covered > 0.0) {
        host->cpu_peak = lp__rates_peak(all, all->host_rates.cpu_s, all->host_rates.covered, processes, count,
                                        offsetof(lp_usage_process, cpu_peak));
        host->cpu_mean = sum(all->host.cpu_s, bins) / covered;
        host->rss_peak = fmax(highest(all->host.rss, bins), between);
        if (host->pss_missing == 0)
            host->pss_peak = highest(all->host.pss, bins);
    }
    for (uint32_t i = 0; i < bins; i++) {
        for (size_t k = 0; k < sizeof from / sizeof *from; k++) {
            to[k][i] += from[k][i];
            from[k][i] = 0.0;
        }
        all->host.covered[i] = 0.0;
    }
    lp__rates_end_host(all);
    return status;
}

static lp_status read_host(lp__usage *all, const source *list, uint32_t count, lp_usage_host *host)
{
    lp_usage *usage = all->usage;
    lp__usage_reading reading = {.all = all};
    lp_status status = LP_OK;

    for (uint32_t i = 0; status == LP_OK && i < count;) {
        uint32_t end = i;
        bool of_host = list[i].of_host;
        lp_usage_process *process = &usage->processes[usage->process_count];
        if (!of_host) {
            process->worker = list[i].worker;
            lp__usage_process_begin(&reading, all, process);
        }
        while (status == LP_OK && end < count && list[end].of_host == of_host &&
               (of_host || list[end].worker == list[i].worker)) {
            const source *next = &list[end], *last = end > 0 ? next - 1 : NULL;
            bool boot = !last || !lp__str_equal(next->boot, last->boot);
            if (of_host && (boot || !lp__str_equal(next->collector, last->collector)))
                lp__usage_host_begin(all, host, boot);
            status = read_source(all, next, host, &reading);
            end++;
        }
        if (!of_host) {
            lp__usage_process_end(&reading);
            if (process->rows > 0) {
                bool missing = !isnan(process->rss.peak) && isnan(process->pss.peak);
                usage->pss_missing += missing;
                host->pss_missing += missing;
                usage->process_count++;
                host->processes++;
            }
        }
        i = end;
    }
    free(reading.paths);
    return status;
}

static void host_init(lp_usage_host *host, uint32_t index)
{
    double nan = (double)NAN;

    *host = (lp_usage_host){.host = index,
                            .cpu_peak = nan,
                            .cpu_mean = nan,
                            .rss_peak = nan,
                            .pss_peak = nan,
                            .cpus = nan,
                            .quota = nan,
                            .online = nan,
                            .memory = nan,
                            .memory_limit = nan,
                            .limit_used_peak = nan,
                            .available_least = nan,
                            .busy_mean = nan,
                            .stolen_s = nan,
                            .load_peak = nan,
                            .throttled_s = nan,
                            .throttled_share = nan,
                            .throttle_periods = nan,
                            .kills = nan,
                            .psi_cpu = nan,
                            .psi_memory = nan,
                            .psi_memory_full = nan,
                            .psi_io = nan,
                            .psi_io_full = nan,
                            .lateness_max_s = nan,
                            .ticks_missed = nan,
                            .own_cpu_s = nan};
}

/* Means of the bins under each column; NaN where nothing was sampled. */
static void spark(const lp__grid *grid, const double *bins, const double *covered, bool rate, uint32_t columns,
                  double *out)
{
    for (uint32_t column = 0; column < columns; column++) {
        uint32_t from = (uint32_t)((uint64_t)column * grid->bins / columns);
        uint32_t to = (uint32_t)((uint64_t)(column + 1) * grid->bins / columns);
        double total = 0.0, seconds = 0.0, weight = 0.0;
        to = to > from ? to : from + 1; /* fewer bins than columns: some stand twice */
        for (uint32_t i = from; i < to; i++) {
            seconds += covered[i];
            weight += bins[i] > 0.0; /* a size holds a little beyond the last interval */
            total += bins[i];
        }
        double over = rate ? seconds : weight;
        out[column] = over > 0.0 ? total / over : (double)NAN;
    }
}

/* What is not all of them is no size of all of them. */
static void leave_out_unseen(lp__usage *all)
{
    lp_usage *usage = all->usage;

    for (uint32_t i = 0; i < all->grid.bins; i++)
        if (all->unseen[i]) {
            all->run.rss[i] = 0.0;
            usage->unseen_bins_s += all->grid.width_s;
        }
    usage->unseen_end = all->unseen[all->grid.bins - 1];
}

static void derive_trend(lp__usage *all)
{
    lp__points points;

    lp__points_init(&points, all->grid.width_s);
    for (uint32_t i = 0; i < all->grid.bins; i++)
        if (all->run.rss[i] > 0.0 && all->run.covered[i] >= all->grid.width_s / 2)
            lp__points_add(&points, (i + 0.5) * all->grid.width_s, all->run.rss[i]);
    lp__points_trend(&points, &all->usage->rss);
    if (all->usage->process_count == 1 && !isnan(all->usage->rss.growth))
        all->usage->rss =
            all->usage->processes[0].rss; /* nothing is summed: its own rows tell more than bins of them */
}

/* Bins of sizes begin with the collector's ticks, those of times with the run: what ends or begins between the two lies in the bin
 * before. For the bars, where a column that was sampled must not look as if it was not, nor the other way round. */
static void put_where_sampled(lp__usage *all)
{
    double *rss = all->run.rss;
    const double *covered = all->run.covered;

    for (uint32_t i = all->grid.bins - 1; i > 0; i--) {
        if (rss[i] <= 0.0 && covered[i] > 0.0 && !all->unseen[i])
            rss[i] = rss[i - 1];
        if (covered[i - 1] <= 0.0 && covered[i] > 0.0)
            rss[i - 1] = 0.0;
    }
}

static int by_cpu(const void *a, const void *b)
{
    const lp_usage_phase *x = a, *y = b;

    if (x->none != y->none)
        return x->none ? 1 : -1;
    double left = isnan(x->cpu_s) ? -1.0 : x->cpu_s, right = isnan(y->cpu_s) ? -1.0 : y->cpu_s;
    if (left != right)
        return left > right ? -1 : 1;
    return lp__str_compare(x->path, y->path);
}

static double run_peak(const lp__usage *all, const double *bins, size_t figure)
{
    return lp__rates_peak(all, bins, all->run_rates.covered, all->usage->processes, all->usage->process_count, figure);
}

static void derive(lp__usage *all)
{
    lp_usage *usage = all->usage;
    const lp__grid *grid = &all->grid;
    double nan = (double)NAN;

    usage->unsampled = usage->run->worker_count - usage->process_count;
    usage->grid_s = grid->width_s;
    usage->grid_bins = grid->bins;
    usage->covered_bins = all->run.covered;
    usage->read_bins = all->run.read;
    usage->write_bins = all->run.write;
    usage->covered_s = sum(all->run.covered, grid->bins);
    usage->cpu_known = !isnan(usage->cpu_s);
    usage->io_known = !isnan(usage->io.read);
    usage->rss_known = !isnan(usage->rss_max_process);
    usage->pss_known = usage->pss_missing == 0 && highest(all->run.pss, grid->bins) > 0.0;
    usage->cpu_peak =
        usage->cpu_known ? run_peak(all, all->run_rates.cpu_s, offsetof(lp_usage_process, cpu_peak)) : nan;
    usage->cpu_mean = usage->cpu_known && usage->covered_s > 0.0 ? usage->cpu_s / usage->covered_s : nan;
    double between = fmax(lp__peaks_of(all->run_peaks, all->run_through, grid->bins), usage->rss_max_process);
    usage->rss_peak = usage->rss_known ? fmax(highest(all->run.rss, grid->bins), between) : nan;
    usage->pss_peak = usage->pss_known ? highest(all->run.pss, grid->bins) : nan;
    if (!isnan(usage->vram_allocated_peak))
        usage->vram_allocated_peak = highest(all->run.allocated, grid->bins);
    if (!isnan(usage->vram_reserved_peak))
        usage->vram_reserved_peak = highest(all->run.reserved, grid->bins);
    if (!isnan(usage->vram_held_peak))
        usage->vram_held_peak = highest(all->run.held, grid->bins);
    usage->read_peak =
        usage->io_known ? run_peak(all, all->run_rates.read, offsetof(lp_usage_process, read_peak)) : nan;
    usage->write_peak =
        usage->io_known ? run_peak(all, all->run_rates.write, offsetof(lp_usage_process, write_peak)) : nan;
    leave_out_unseen(all); /* what was held at most is no less for it */
    spark(grid, all->run.cpu_s, all->run.covered, true, LP_USAGE_SPARK, usage->cpu_series);
    spark(grid, all->run.read, all->run.covered, true, LP_USAGE_SPARK, usage->read_series);
    spark(grid, all->run.write, all->run.covered, true, LP_USAGE_SPARK, usage->write_series);
    derive_trend(all);
    put_where_sampled(all);
    spark(grid, all->run.rss, all->run.covered, false, LP_USAGE_SPARK, usage->rss_series);
    if (usage->phase_count > 1)
        qsort(usage->phases, usage->phase_count, sizeof *usage->phases, by_cpu);
    for (uint32_t i = 0; i < usage->phase_count; i++)
        if (usage->phases[i].none) {
            const lp_usage_io *io = &usage->phases[i].io;
            usage->io_none = (lp_usage_io){fmax(io->read, 0.0), fmax(io->write, 0.0), fmax(io->read_chars, 0.0),
                                           fmax(io->write_chars, 0.0)}; /* nothing of what is known */
        }
    for (uint32_t i = 0; i < usage->host_count && usage->gpu_count == 0; i++)
        if (usage->hosts[i].gpu_why != LP_REASON_NONE)
            usage->gpu_why = usage->hosts[i].gpu_why;
}

/* How many of them there were at one time, the most. */
static lp_status most_at_once(const lp_usage_process *processes, uint32_t count, uint32_t *most)
{
    double found = 0.0;
    lp__sizes sizes = {.bins = &found};

    for (uint32_t i = 0; i < count; i++)
        lp__sizes_add(&sizes, (lp__part){0, processes[i].from_s, processes[i].gone_s, 1.0});
    if (!lp__sizes_end(&sizes))
        return LP_E_MEMORY;
    *most = (uint32_t)found;
    return LP_OK;
}

static lp_status read_all(lp_usage *usage, const sources *list)
{
    const lp_run *run = usage->run;
    lp__usage all = {.usage = usage, .begin_s = (double)run->started_ns / 1e9, .affinity = (double)NAN};
    double interval = 1e12;
    lp_status status = LP_OK;

    for (uint32_t i = 0; i < list->count; i++)
        interval = list->at[i].interval_s > 0.0 ? fmin(interval, list->at[i].interval_s) : interval;
    all.grid = lp__grid_of((double)run->runtime_ns / 1e9, interval < 1e12 ? interval : 1.0);
    usage->processes = lp_arena_take(usage->arena, (run->worker_count + 1u) * sizeof *usage->processes);
    usage->hosts = lp_arena_take(usage->arena, (run->host_count + 1u) * sizeof *usage->hosts);
    all.unseen = lp_arena_take(usage->arena, all.grid.bins * sizeof *all.unseen);
    if (!usage->processes || !usage->hosts || !all.unseen || !new_bins(usage->arena, all.grid.bins, &all.run) ||
        !new_bins(usage->arena, all.grid.bins, &all.host) || !new_peaks(usage->arena, &all) || !lp__rates_new(&all))
        status = LP_E_MEMORY;
    all.sizes.rss.bins = all.host.rss;
    all.sizes.pss.bins = all.host.pss;
    all.sizes.allocated.bins = all.host.allocated;
    all.sizes.reserved.bins = all.host.reserved;
    all.sizes.held.bins = all.host.held;
    for (uint32_t i = 0; status == LP_OK && i < list->count;) {
        uint32_t end = i;
        while (end < list->count && list->at[end].host == list->at[i].host)
            end++;
        lp_usage_host *host = &usage->hosts[usage->host_count++];
        host_init(host, list->at[i].host);
        uint32_t first = usage->process_count;
        status = read_host(&all, list->at + i, end - i, host);
        lp_status ended = end_host(&all, host, usage->processes + first, usage->process_count - first);
        status = status == LP_OK ? ended : status;
        if (status == LP_OK)
            status = most_at_once(usage->processes + first, usage->process_count - first, &host->at_once);
        i = end;
    }
    if (status == LP_OK)
        status = most_at_once(usage->processes, usage->process_count, &usage->at_once);
    if (status == LP_OK)
        status = lp__rates_cover(&all, usage->processes, usage->process_count, all.run.covered, all.run_rates.covered);
    if (status == LP_OK)
        derive(&all);
    free(all.slots);
    free(all.groups);
    return status;
}

static lp_usage *new_usage(const lp_run *run)
{
    lp_usage *usage = calloc(1, sizeof *usage);
    double nan = (double)NAN;

    if (!usage)
        return NULL;
    usage->run = run;
    usage->arena = lp_arena_new();
    usage->cpu_s = usage->cpu_max_process = usage->rss_max_process = nan;
    usage->io = (lp_usage_io){nan, nan, nan, nan};
    usage->vram_allocated_peak = usage->vram_reserved_peak = usage->vram_held_peak = nan;
    if (!usage->arena) {
        free(usage);
        return NULL;
    }
    return usage;
}

/* Takes both over. */
static lp_status finish(lp_usage *usage, sources *list, lp_status status, lp_usage **out)
{
    if (status == LP_OK)
        status = read_all(usage, list);
    free(list->at);
    if (status != LP_OK) {
        lp_usage_free(usage);
        return status;
    }
    *out = usage;
    return LP_OK;
}

lp_status lp_usage_load(const lp_run *run, lp_usage **out)
{
    lp_usage *usage = new_usage(run);
    sources list = {0};
    lp_status status = LP_OK;

    if (!usage)
        return LP_E_MEMORY;
    if (run->worker_count > 0 && run->directory.size > 0)
        status = list_sources(usage, &list);
    return finish(usage, &list, status, out);
}

lp_status lp_usage_load_memory(const lp_run *run, const lp_usage_rows *rows, double interval_s, lp_usage **out)
{
    lp_usage *usage = new_usage(run);
    sources list = {.at = malloc((run->worker_count + 1u) * sizeof *list.at)};

    if (!usage || !list.at) {
        lp_usage_free(usage);
        free(list.at);
        return LP_E_MEMORY;
    }
    for (uint32_t i = 0; i < run->worker_count; i++)
        list.at[list.count++] = (source){.path = run->workers[i].path,
                                         .rows = &rows[i],
                                         .host = host_of(run, run->workers[i].host),
                                         .worker = i,
                                         .interval_s = interval_s};
    return finish(usage, &list, LP_OK, out);
}

void lp_usage_series(const lp_usage *usage, const double *bins, bool rate, uint32_t columns, double *out)
{
    lp__grid grid = {usage->grid_s, usage->grid_bins};

    spark(&grid, bins, usage->covered_bins, rate, columns, out);
}

double lp_usage_cached(const lp_usage_io *io)
{
    double cached = io->read_chars - io->read;

    return cached < 0.0 ? 0.0 : cached;
}

double lp_usage_gpu_quantile(const lp_usage_phase *phase, double q)
{
    uint64_t rank = (uint64_t)ceil(q * (double)phase->gpu_samples), seen = 0;

    for (unsigned percent = 0; percent <= 100 && phase->gpu_samples > 0; percent++)
        if ((seen += phase->gpu_busy[percent]) >= rank)
            return percent / 100.0;
    return (double)NAN;
}

void lp_usage_free(lp_usage *usage)
{
    if (!usage)
        return;
    lp_arena_free(usage->arena);
    free(usage);
}
