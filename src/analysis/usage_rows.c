/* Rows of sample files into sums: what a process's interval took goes to the process, to its bins, and to the phases that
 * the interval is charged to. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/tree_math.h"
#include "analysis/usage_internal.h"
#include "store/arena.h"

#define PATH_ROOM 8192u /* of a joined path; longer ones are cut at their left */
#define KIB 1024.0
#define MEAN_LEAST_S 0.1 /* the moments of rows are known to 1 ms: 1 % of this */

static uint32_t hash_of(lp_str text)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < text.size; i++)
        hash = (hash ^ (unsigned char)text.data[i]) * 16777619u;
    return hash;
}

static bool grow_slots(lp__usage *all)
{
    uint32_t size = all->slot_count ? all->slot_count * 2 : 256;
    uint32_t *slots = calloc(size, sizeof *slots);

    if (!slots)
        return false;
    for (uint32_t i = 0; i < all->usage->phase_count; i++) {
        uint32_t at = hash_of(all->usage->phases[i].path) & (size - 1);
        while (slots[at])
            at = (at + 1) & (size - 1);
        slots[at] = i + 1;
    }
    free(all->slots);
    all->slots = slots;
    all->slot_count = size;
    return true;
}

/* "none" has a path that a user's phase may have, too. */
static bool is_phase(const lp_usage_phase *phase, lp_str path, bool none)
{
    return phase->none == none && lp__str_equal(phase->path, path);
}

uint32_t lp__usage_phase(lp__usage *all, lp_str path, bool none)
{
    lp_usage *usage = all->usage;

    if (usage->phase_count * 2 >= all->slot_count && !grow_slots(all))
        return UINT32_MAX;
    uint32_t at = hash_of(path) & (all->slot_count - 1);
    for (; all->slots[at]; at = (at + 1) & (all->slot_count - 1))
        if (is_phase(&usage->phases[all->slots[at] - 1], path, none))
            return all->slots[at] - 1;
    lp_usage_phase *phases = lp_arena_grow(usage->arena, usage->phases, usage->phase_count, sizeof *phases);
    if (!phases)
        return UINT32_MAX;
    usage->phases = phases;
    lp_str kept = lp_arena_str(usage->arena, path.data, path.size);
    if (!kept.data)
        return UINT32_MAX;
    double nan = (double)NAN;
    usage->phases[usage->phase_count] = (lp_usage_phase){
        .path = kept, .none = none, .cpu_s = nan, .io = {nan, nan, nan, nan}, .rss_growth = nan, .vram_peak = nan};
    all->slots[at] = ++usage->phase_count;
    return usage->phase_count - 1;
}

/* The names from the top down, joined from the end backwards. */
static uint32_t phase_of(lp__usage_reading *reading, const lp_samples *file, uint32_t path)
{
    char text[PATH_ROOM];
    size_t at = sizeof text;
    uint32_t parent = path;
    lp_str name;

    if (path < reading->path_count && reading->paths[path])
        return reading->paths[path] - 1;
    if (path >= reading->path_count) {
        uint32_t count = reading->path_count ? reading->path_count : 64;
        while (count <= path)
            count *= 2;
        uint32_t *paths = realloc(reading->paths, count * sizeof *paths);
        if (!paths)
            return UINT32_MAX;
        memset(paths + reading->path_count, 0, (count - reading->path_count) * sizeof *paths);
        reading->paths = paths;
        reading->path_count = count;
    }
    while (parent != 0 && !reading->rows && lp_samples_path(file, parent, &parent, &name)) {
        size_t size = name.size < at ? name.size : at;
        at -= size;
        memcpy(text + at, name.data + (name.size - size), size);
        if (parent != 0 && at > 0)
            text[--at] = '/';
    }
    lp_str joined = {text + at, sizeof text - at};
    if (reading->rows && path <= reading->rows->name_count)
        joined = reading->rows->names[path - 1];
    uint32_t phase = lp__usage_phase(reading->all, joined, false);
    if (phase != UINT32_MAX)
        reading->paths[path] = phase + 1;
    return phase;
}

static int64_t at_row(const lp_sample_batch *batch, lp_column column, uint32_t row)
{
    return batch->value[column] ? batch->value[column][row] : LP_UNKNOWN_I64;
}

static double known(int64_t value, double unit)
{
    return value == LP_UNKNOWN_I64 ? (double)NAN : (double)value * unit;
}

static void add_known(double *sum, double value)
{
    if (!isnan(value))
        *sum = isnan(*sum) ? value : *sum + value;
}

static void raise_to(double *highest, double value)
{
    if (!isnan(value))
        *highest = isnan(*highest) ? value : fmax(*highest, value);
}

static void lower_to(double *least, double value)
{
    if (!isnan(value))
        *least = isnan(*least) ? value : fmin(*least, value);
}

/* What an interval took, NaN where one of its ends is missing or the counter began anew. */
static double taken(lp__usage_reading *reading, const lp_sample_batch *batch, lp_column column, uint32_t row,
                    double unit)
{
    int64_t now = at_row(batch, column, row), before = reading->before[column];

    return now == LP_UNKNOWN_I64 || before == LP_UNKNOWN_I64 || now < before ? (double)NAN
                                                                             : (double)(now - before) * unit;
}

/* CPU time of children, which is in the column of the living until they are waited for, and then in that of the ended. One that
 * begins to record takes its share of the first with it. */
static double taken_by_children(lp__usage_reading *reading, const lp_sample_batch *batch, uint32_t row)
{
    const lp_column columns[] = {LP_COLUMN_CHILDREN_ENDED_CPU, LP_COLUMN_CHILDREN_LIVING_CPU};
    double sum = 0.0;

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        double now = known(at_row(batch, columns[i], row), 1e-6), before = known(reading->before[columns[i]], 1e-6);
        if (i == 0 || !isnan(now - before))
            sum += now - before;
    }
    return isnan(sum) ? sum : fmax(sum, 0.0);
}

typedef struct interval { /* of one process */
    double from_s, to_s, cpu_s, rss_growth;
    lp_usage_io io;
} interval;

static void charge(lp__usage *all, uint32_t phase, const interval *took, double part)
{
    lp_usage_phase *to = &all->usage->phases[phase];

    to->seconds += (took->to_s - took->from_s) * part;
    add_known(&to->cpu_s, took->cpu_s * part);
    add_known(&to->rss_growth, took->rss_growth * part);
    add_known(&to->io.read, took->io.read * part);
    add_known(&to->io.write, took->io.write * part);
    add_known(&to->io.read_chars, took->io.read_chars * part);
    add_known(&to->io.write_chars, took->io.write_chars * part);
}

/* Does its driver say who uses it? From within a container, and of partitions, it does not. */
static bool is_told(const lp__usage *all, uint32_t device)
{
    return all->devices[device].told_time > 0.0 || !isnan(all->usage->gpus[all->devices[device].gpu].ours_memory_peak);
}

/* How busy the devices of this process were at the end of the interval, counted for the phase that had the most of it. Where it
 * is not told whose they are, they count for processes that say themselves that they use one. */
static void charge_devices(lp__usage_reading *reading, uint32_t phase, double at_s, double vram)
{
    lp__usage *all = reading->all;
    lp_usage_phase *to = &all->usage->phases[phase];
    uint32_t bin = lp__grid_bin(&all->grid, at_s);

    raise_to(&to->vram_peak, vram);
    for (uint32_t i = 0; i < all->device_count; i++) {
        bool used = reading->devices[i] || (reading->uses_torch && !is_told(all, i));
        float busy = used ? all->devices[i].busy[bin] : -1.0f;
        if (busy >= 0.0f) {
            to->gpu_busy[busy < 100.0f ? (uint32_t)(busy + 0.5f) : 100]++;
            to->gpu_samples++;
        }
    }
}

static lp_status charge_phases(lp__usage_reading *reading, const lp_samples *file, const lp_sample_batch *batch,
                               uint32_t row, const interval *took, bool gap)
{
    lp__usage *all = reading->all;
    uint32_t none = lp__usage_phase(all, (lp_str){LP_USAGE_NO_PHASE, strlen(LP_USAGE_NO_PHASE)}, true);
    uint32_t at = row ? batch->share_end[row - 1] : 0, left = LP_SAMPLE_WHOLE, best = none, best_parts = 0;
    double vram = known(at_row(batch, LP_COLUMN_TORCH_ALLOCATED, row), reading->kib);

    if (none == UINT32_MAX)
        return LP_E_MEMORY;
    for (; !gap && at < batch->share_end[row]; at++) {
        uint32_t parts = batch->shares[at].parts;
        parts = parts < left ? parts : left;
        if (batch->shares[at].path == 0 || parts == 0)
            continue;
        uint32_t phase = phase_of(reading, file, batch->shares[at].path);
        if (phase == UINT32_MAX)
            return LP_E_MEMORY;
        charge(all, phase, took, (double)parts / LP_SAMPLE_WHOLE);
        left -= parts;
        if (parts > best_parts) {
            best = phase;
            best_parts = parts;
        }
    }
    if (left > 0)
        charge(all, none, took, (double)left / LP_SAMPLE_WHOLE);
    if (!gap && reading->all->device_count > 0)
        charge_devices(reading, best_parts >= left ? best : none, took->to_s, vram);
    return LP_OK;
}

static void add_io(lp_usage_io *to, const lp_usage_io *from)
{
    add_known(&to->read, from->read);
    add_known(&to->write, from->write);
    add_known(&to->read_chars, from->read_chars);
    add_known(&to->write_chars, from->write_chars);
}

static void add_interval(lp__usage_reading *reading, const lp_sample_batch *batch, uint32_t row, interval *took,
                         bool gap)
{
    lp_usage_process *process = reading->process;
    lp__usage *all = reading->all;
    double seconds = took->to_s - took->from_s, us = 1e-6;

    took->cpu_s = taken(reading, batch, LP_COLUMN_CPU, row, us);
    took->io = (lp_usage_io){
        taken(reading, batch, LP_COLUMN_READ_BYTES, row, 1.0), taken(reading, batch, LP_COLUMN_WRITE_BYTES, row, 1.0),
        taken(reading, batch, LP_COLUMN_READ_CHARS, row, 1.0), taken(reading, batch, LP_COLUMN_WRITE_CHARS, row, 1.0)};
    int64_t rss = at_row(batch, LP_COLUMN_RSS, row), rss_before = reading->before[LP_COLUMN_RSS];
    took->rss_growth = rss == LP_UNKNOWN_I64 || rss_before == LP_UNKNOWN_I64
                           ? (double)NAN
                           : ((double)rss - (double)rss_before) * reading->kib;
    add_known(&process->cpu_s, took->cpu_s);
    if (!isnan(took->cpu_s))
        lp__grid_spread(&all->grid, all->host.cpu_s, took->from_s, took->to_s, took->cpu_s);
    lp__rates_add(all, reading->tick_s, all->host_rates.cpu_s, took->from_s, took->to_s, took->cpu_s);
    lp__rates_add(all, reading->tick_s, all->host_rates.read, took->from_s, took->to_s, took->io.read);
    lp__rates_add(all, reading->tick_s, all->host_rates.write, took->from_s, took->to_s, took->io.write);
    if (seconds >= reading->interval_s / 2) { /* the steps of the clocks show in shorter ones */
        raise_to(&process->cpu_peak, took->cpu_s / seconds);
        raise_to(&process->read_peak, took->io.read / seconds);
        raise_to(&process->write_peak, took->io.write / seconds);
    }
    add_known(&process->starved_s, taken(reading, batch, LP_COLUMN_RUN_DELAY, row, us));
    add_known(&process->switches_voluntary, taken(reading, batch, LP_COLUMN_SWITCHES_VOLUNTARY, row, 1.0));
    add_known(&process->switches_forced, taken(reading, batch, LP_COLUMN_SWITCHES_FORCED, row, 1.0));
    add_known(&process->faults_major, taken(reading, batch, LP_COLUMN_FAULTS_MAJOR, row, 1.0));
    add_known(&process->children_s, taken_by_children(reading, batch, row));
    add_io(&process->io, &took->io);
    if (!isnan(took->io.read)) {
        all->usage->io_intervals++;
        all->usage->io_gaps += gap;
        lp__grid_spread(&all->grid, all->host.read, took->from_s, took->to_s, took->io.read);
    }
    if (!isnan(took->io.write)) /* each counter may begin anew by itself */
        lp__grid_spread(&all->grid, all->host.write, took->from_s, took->to_s, took->io.write);
    process->gaps += gap;
}

static void remember(lp__usage_reading *reading, const lp_sample_batch *batch, uint32_t row, bool restart)
{
    for (uint32_t c = 0; c < LP_COLUMNS; c++) {
        int64_t value = at_row(batch, (lp_column)c, row);
        if (restart || value != LP_UNKNOWN_I64) /* a counter that is read less often: from its last reading */
            reading->before[c] = value;
    }
}

static void add_sizes(lp__usage_reading *reading, const lp_sample_batch *batch, uint32_t row, double at_s)
{
    lp_usage *usage = reading->all->usage;
    lp_usage_process *process = reading->process;
    const lp__grid *grid = &reading->all->grid;
    double rss = known(at_row(batch, LP_COLUMN_RSS, row), reading->kib),
           pss = known(at_row(batch, LP_COLUMN_PSS, row), reading->kib);
    double peak = known(at_row(batch, LP_COLUMN_RSS_PEAK, row), reading->kib), held_s = at_s - reading->tick_s;

    if (!isnan(rss)) {
        lp__hold_set(&reading->rss, grid, &reading->all->sizes.rss, held_s, rss);
        lp__points_add(&reading->rss_points, at_s, rss);
    }
    if (lp__high_row(&reading->high, reading->all->host_peaks, lp__grid_bin(grid, held_s), rss, peak))
        reading->rss_points.peak = fmax(reading->rss_points.peak, peak);
    if (!isnan(pss)) {
        lp__hold_set(&reading->pss, grid, &reading->all->sizes.pss, held_s, pss);
        lp__points_add(&reading->pss_points, at_s, pss);
    }
    raise_to(&reading->all->affinity, known(at_row(batch, LP_COLUMN_CPUS_ALLOWED, row), 1.0));
    raise_to(&process->children_rss_peak, known(at_row(batch, LP_COLUMN_CHILDREN_LIVING_RSS, row), reading->kib));
    double allocated = known(at_row(batch, LP_COLUMN_TORCH_ALLOCATED, row), reading->kib),
           reserved = known(at_row(batch, LP_COLUMN_TORCH_RESERVED, row), reading->kib);
    if (!isnan(allocated))
        lp__hold_set(&reading->allocated, grid, &reading->all->sizes.allocated, held_s, allocated);
    if (!isnan(reserved))
        lp__hold_set(&reading->reserved, grid, &reading->all->sizes.reserved, held_s, reserved);
    raise_to(&usage->vram_allocated_peak, allocated); /* one of them, until the sums of all are known */
    raise_to(&usage->vram_reserved_peak, reserved);
}

/* Why nothing is known of a column, unless something is. */
static void take_reasons(uint8_t why[LP_COLUMNS], const lp_sample_batch *batch)
{
    for (uint32_t c = 0; c < LP_COLUMNS; c++) {
        for (uint32_t row = 0; batch->value[c] && why[c] != LP__WHY_KNOWN && row < batch->rows; row++)
            if (batch->value[c][row] != LP_UNKNOWN_I64)
                why[c] = LP__WHY_KNOWN;
        if (why[c] != LP__WHY_KNOWN && batch->reason[c] != LP_REASON_NONE && batch->reason[c] < LP__WHY_KNOWN)
            why[c] = (uint8_t)batch->reason[c];
    }
}

static void end_reasons(uint8_t why[LP_COLUMNS])
{
    for (uint32_t c = 0; c < LP_COLUMNS; c++)
        if (why[c] == LP__WHY_KNOWN)
            why[c] = LP_REASON_NONE;
}

lp_status lp__usage_process_batch(lp__usage_reading *reading, const lp_samples *file, const lp_sample_batch *batch)
{
    lp_usage_process *process = reading->process;

    reading->place_ns = lp__usage_place_of(reading, batch);
    uint64_t mono_ns = lp__usage_mono(reading, batch);
    if (!reading->started)
        process->tick_s = reading->tick_s = lp__usage_tick(reading, reading->place_ns);
    take_reasons(process->why, batch);
    for (uint32_t row = 0; row < batch->rows; row++) {
        double after = (double)batch->time_us[row] / 1e6, mono_s = (double)mono_ns / 1e9 + after;
        interval took = {.from_s = reading->at_s};
        lp_status status = LP_OK;

        if (!reading->started) {
            took.to_s = (double)((int64_t)mono_ns + reading->place_ns) / 1e9 + after - reading->all->begin_s;
            reading->first_s = mono_s;
            process->from_s = took.to_s;
            process->cpu_unsampled_s = known(at_row(batch, LP_COLUMN_CPU, row), 1e-6);
        } else { /* the clock that is not set tells how long */
            took.to_s = took.from_s + fmax(mono_s - reading->mono_s, 0.0);
            bool gap = took.to_s - took.from_s > LP_USAGE_GAP * reading->interval_s;
            add_interval(reading, batch, row, &took, gap);
            status = charge_phases(reading, file, batch, row, &took, gap);
        }
        if (status != LP_OK)
            return status;
        add_sizes(reading, batch, row, took.to_s);
        remember(reading, batch, row, !reading->started);
        reading->started = true;
        reading->at_s = took.to_s;
        reading->mono_s = mono_s;
        process->rows++;
        process->seconds = mono_s - reading->first_s;
        double missed = known(at_row(batch, LP_COLUMN_MISSED, row), 1.0);
        if (!isnan(missed))
            process->missed = fmax(process->missed, missed);
    }
    return LP_OK;
}

static uint32_t device_of(const lp__usage *all, uint32_t index)
{
    for (uint32_t i = 0; i < all->device_count; i++)
        if (all->usage->gpus[all->devices[i].gpu].index == index)
            return i;
    return UINT32_MAX;
}

void lp__usage_process_gpu_batch(lp__usage_reading *reading, const lp_sample_batch *batch)
{
    lp__usage *all = reading->all;
    uint32_t at = device_of(all, batch->index);

    if (at == UINT32_MAX)
        return;
    lp__device *device = &all->devices[at];
    lp_usage_gpu *gpu = &all->usage->gpus[device->gpu];
    int64_t place_ns = lp__usage_place_of(reading, batch);
    double place_s = (double)((int64_t)lp__usage_mono(reading, batch) + place_ns) / 1e9 - all->begin_s;
    double tick_s = lp__usage_tick(reading, place_ns);
    reading->devices[at] = true;
    for (uint32_t row = 0; row < batch->rows; row++) {
        double at_s = place_s + (double)batch->time_us[row] / 1e6 - tick_s; /* for sizes alone */
        double memory = known(at_row(batch, LP_COLUMN_GPU_OURS_MEMORY, row), KIB);
        double busy = known(at_row(batch, LP_COLUMN_GPU_OURS_BUSY, row), 1e-3);
        if (!isnan(busy)) {
            device->ours_s += busy * reading->interval_s;
            device->ours_time = 1.0;
        }
        raise_to(&gpu->ours_memory_peak, memory);
        raise_to(&all->usage->vram_held_peak, memory);
        if (!isnan(memory))
            lp__hold_set(&reading->held[at], &all->grid, &all->sizes.held, at_s, memory);
        reading->held_end_s[at] = at_s;
    }
    take_reasons(gpu->why, batch);
}

void lp__usage_process_begin(lp__usage_reading *reading, lp__usage *all, lp_usage_process *process)
{
    double nan = (double)NAN;

    *reading = (lp__usage_reading){.all = all, .process = process, .interval_s = 1.0, .kib = KIB};
    *process = (lp_usage_process){.worker = process->worker,
                                  .cpu_s = nan,
                                  .cpu_peak = nan,
                                  .read_peak = nan,
                                  .write_peak = nan,
                                  .cpu_unsampled_s = nan,
                                  .starved_s = nan,
                                  .switches_voluntary = nan,
                                  .switches_forced = nan,
                                  .faults_major = nan,
                                  .children_s = nan,
                                  .children_rss_peak = nan,
                                  .io = {nan, nan, nan, nan}};
    lp__hold *const holds[] = {&reading->rss, &reading->pss, &reading->allocated, &reading->reserved};
    for (size_t i = 0; i < sizeof holds / sizeof *holds; i++)
        lp__hold_init(holds[i]);
    for (uint32_t i = 0; i < LP__USAGE_DEVICES; i++)
        lp__hold_init(&reading->held[i]);
    lp__high_init(&reading->high);
    lp__points_init(&reading->rss_points, all->grid.width_s);
    lp__points_init(&reading->pss_points, all->grid.width_s);
    for (uint32_t c = 0; c < LP_COLUMNS; c++)
        reading->before[c] = LP_UNKNOWN_I64;
}

/* It lived on after its last row, for longer than until the next: nobody knows what it held then, and sums that go on without it
 * would look as if it had ended. `held_s`: up to where its last row counts. */
static void mark_unseen(lp__usage_reading *reading, double end_s, double held_s)
{
    const lp__grid *grid = &reading->all->grid;

    if (!reading->started || reading->rows || !(end_s - reading->at_s > LP_USAGE_GAP * reading->interval_s))
        return;
    reading->process->unseen_s = end_s - reading->at_s;
    reading->all->usage->unseen++;
    for (uint32_t i = lp__grid_bin(grid, held_s) + 1, last = lp__grid_bin(grid, end_s); i <= last; i++)
        reading->all->unseen[i] = true;
}

void lp__usage_process_end(lp__usage_reading *reading)
{
    lp__usage *all = reading->all;
    lp_usage *usage = all->usage;
    lp_usage_process *process = reading->process;
    const lp__grid *grid = &all->grid;

    /* It was there until it ended, or was last seen: less than an interval after its last row. */
    double lived_s = (double)usage->run->workers[process->worker].elapsed_ns / 1e9;
    double to_s = fmax(reading->at_s, fmin(process->from_s + lived_s, reading->at_s + reading->interval_s));
    mark_unseen(reading, process->from_s + lived_s, to_s - reading->tick_s);
    lp__hold_end(&reading->rss, grid, &all->sizes.rss, to_s - reading->tick_s);
    lp__hold_end(&reading->pss, grid, &all->sizes.pss, to_s - reading->tick_s);
    lp__hold_end(&reading->allocated, grid, &all->sizes.allocated, to_s - reading->tick_s);
    lp__hold_end(&reading->reserved, grid, &all->sizes.reserved, to_s - reading->tick_s);
    for (uint32_t i = 0; i < all->device_count; i++)
        lp__hold_end(&reading->held[i], grid, &all->sizes.held, reading->held_end_s[i]);
    /* One that lived for less than an interval has no whole one: over all of its time it used no more than in its busiest. */
    if (process->seconds >= MEAN_LEAST_S) {
        raise_to(&process->cpu_peak, process->cpu_s / process->seconds);
        raise_to(&process->read_peak, process->io.read / process->seconds);
        raise_to(&process->write_peak, process->io.write / process->seconds);
    }
    process->to_s = reading->at_s;
    process->gone_s = to_s;
    lp__high_end(&reading->high, all->host_peaks);
    lp__points_trend(&reading->rss_points, &process->rss);
    lp__points_trend(&reading->pss_points, &process->pss);
    add_io(&usage->io, &process->io);
    add_known(&usage->cpu_s, process->cpu_s);
    if (!isnan(process->cpu_peak) && !(process->cpu_peak <= usage->cpu_max_process)) {
        usage->cpu_max_process = process->cpu_peak;
        usage->cpu_max_worker = process->worker;
    }
    if (!isnan(process->rss.peak) && !(process->rss.peak <= usage->rss_max_process)) {
        usage->rss_max_process = process->rss.peak;
        usage->rss_max_worker = process->worker;
    }
    end_reasons(process->why);
    free(reading->paths);
    reading->paths = NULL;
}

/* Adds what a counter gained since the row before, if it went on. A first value is a measured zero. */
static void add_gain(double *sum, lp__told *told, const lp_sample_batch *batch, uint32_t row, lp_column column,
                     double unit)
{
    int64_t value = at_row(batch, column, row), before = told->before[column];

    if (value == LP_UNKNOWN_I64)
        return;
    add_known(sum, before != LP_UNKNOWN_I64 && before <= value ? (double)(value - before) * unit : 0.0);
    told->before[column] = value;
}

static void told_init(lp__told *told, lp_column kind, int64_t group)
{
    *told = (lp__told){.kind = kind, .group = group};
    for (uint32_t c = 0; c < LP_COLUMNS; c++)
        told->before[c] = LP_UNKNOWN_I64;
}

/* Seconds since the row before, 0 for the first one. false: this moment has been told. */
static bool go_on(lp__told *told, double mono_s, double *seconds)
{
    if (told->started && mono_s <= told->mono_s)
        return false;
    *seconds = told->started ? mono_s - told->mono_s : 0.0;
    told->started = true;
    told->mono_s = mono_s;
    return true;
}

/* Of the control group that the row names by `kind`. NULL without memory. */
static lp__told *told_of(lp__usage *all, lp_column kind, const lp_sample_batch *batch, uint32_t row)
{
    int64_t group = at_row(batch, kind, row);

    for (uint32_t i = 0; i < all->group_count; i++)
        if (all->groups[i].kind == kind && all->groups[i].group == group)
            return &all->groups[i];
    lp__told *grown = realloc(all->groups, (all->group_count + 1u) * sizeof *grown);
    if (!grown)
        return NULL;
    all->groups = grown;
    told_init(&grown[all->group_count], kind, group);
    return &grown[all->group_count++];
}

void lp__usage_host_begin(lp__usage *all, const lp_usage_host *host, bool boot)
{
    all->own_cpu_s = isnan(host->own_cpu_s) ? 0.0 : host->own_cpu_s;
    all->ticks_missed = isnan(host->ticks_missed) ? 0.0 : host->ticks_missed;
    if (!boot)
        return;
    told_init(&all->whole, LP_COLUMNS, 0);
    all->group_count = 0;
    for (uint32_t i = 0; i < all->device_count; i++)
        all->devices[i].mono_s = all->devices[i].told_mono_s = -1.0;
}

/* /proc/stat is not read for every row: its figure is of the time between two readings, which may be far less than was watched. */
static void add_busy(lp__usage *all, lp_usage_host *host, const lp_sample_batch *batch, uint32_t row, double at_s)
{
    lp__told *told = &all->whole;

    if (at_row(batch, LP_COLUMN_HOST_BUSY, row) == LP_UNKNOWN_I64)
        return;
    if (told->before[LP_COLUMN_HOST_BUSY] != LP_UNKNOWN_I64)
        all->busy_s += at_s - told->busy_mono_s;
    told->busy_mono_s = at_s;
    add_gain(&host->busy_mean, told, batch, row, LP_COLUMN_HOST_BUSY, 1e-6);
}

static void host_gauges(const lp__usage *all, lp_usage_host *host, const lp_sample_batch *batch, uint32_t row)
{
    double memory = known(at_row(batch, LP_COLUMN_CGROUP_MEMORY, row), KIB);
    double cache = known(at_row(batch, LP_COLUMN_CGROUP_CACHE, row), KIB);

    raise_to(&host->cpus, known(at_row(batch, LP_COLUMN_HOST_CPUS, row), 1.0));
    lower_to(&host->quota, known(at_row(batch, LP_COLUMN_CGROUP_QUOTA, row), 1e-3));
    raise_to(&host->memory, known(at_row(batch, LP_COLUMN_HOST_MEMORY, row), KIB));
    lower_to(&host->memory_limit, known(at_row(batch, LP_COLUMN_CGROUP_LIMIT, row), KIB));
    raise_to(&host->limit_used_peak, isnan(cache) ? memory : fmax(memory - cache, 0.0));
    lower_to(&host->available_least, known(at_row(batch, LP_COLUMN_HOST_AVAILABLE, row), KIB));
    raise_to(&host->load_peak, known(at_row(batch, LP_COLUMN_HOST_LOAD, row), 1e-3));
    raise_to(&host->lateness_max_s, known(at_row(batch, LP_COLUMN_LATENESS, row), 1e-6));
    raise_to(&host->ticks_missed, all->ticks_missed + known(at_row(batch, LP_COLUMN_HOST_MISSED, row), 1.0));
    raise_to(&host->own_cpu_s, all->own_cpu_s + known(at_row(batch, LP_COLUMN_OWN_CPU, row), 1e-6));
}

/* Sums until lp__usage_host_end makes shares of them. */
lp_status lp__usage_host_batch(lp__usage_reading *reading, lp_usage_host *host, const lp_sample_batch *batch)
{
    lp__usage *all = reading->all;
    (void)lp__usage_place_of(reading, batch);
    double mono_s = (double)lp__usage_mono(reading, batch) / 1e9, seconds;

    host->interval_s = reading->interval_s;
    take_reasons(host->why, batch);
    for (uint32_t row = 0; row < batch->rows; row++) {
        double at_s = mono_s + (double)batch->time_us[row] / 1e6;
        lp__told *told = &all->whole;
        host_gauges(all, host, batch, row);
        if (go_on(told, at_s, &seconds)) {
            host->seconds += seconds;
            add_busy(all, host, batch, row, at_s);
            add_gain(&host->stolen_s, told, batch, row, LP_COLUMN_HOST_STOLEN, 1e-6);
            add_gain(&host->psi_cpu, told, batch, row, LP_COLUMN_PSI_CPU, 1e-6);
            add_gain(&host->psi_memory, told, batch, row, LP_COLUMN_PSI_MEMORY, 1e-6);
            add_gain(&host->psi_memory_full, told, batch, row, LP_COLUMN_PSI_MEMORY_FULL, 1e-6);
            add_gain(&host->psi_io, told, batch, row, LP_COLUMN_PSI_IO, 1e-6);
            add_gain(&host->psi_io_full, told, batch, row, LP_COLUMN_PSI_IO_FULL, 1e-6);
        }
        if (!(told = told_of(all, LP_COLUMN_CGROUP_CPU_GROUP, batch, row)))
            return LP_E_MEMORY;
        if (go_on(told, at_s, &seconds)) {
            add_gain(&host->throttled_s, told, batch, row, LP_COLUMN_CGROUP_THROTTLED, 1e-6);
            add_gain(&host->throttled_share, told, batch, row, LP_COLUMN_CGROUP_THROTTLES, 1.0);
            add_gain(&host->throttle_periods, told, batch, row, LP_COLUMN_CGROUP_PERIODS, 1.0);
        }
        if (!(told = told_of(all, LP_COLUMN_CGROUP_MEMORY_GROUP, batch, row)))
            return LP_E_MEMORY;
        if (go_on(told, at_s, &seconds))
            add_gain(&host->kills, told, batch, row, LP_COLUMN_CGROUP_KILLS, 1.0);
    }
    return LP_OK;
}

void lp__usage_host_end(lp__usage *all, lp_usage_host *host)
{
    double *const shares[] = {&host->psi_cpu, &host->psi_memory, &host->psi_memory_full, &host->psi_io,
                              &host->psi_io_full};

    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        *shares[i] = host->seconds > 0.0 ? *shares[i] / host->seconds : (double)NAN;
    host->busy_mean = all->busy_s > 0.0 ? host->busy_mean / all->busy_s : (double)NAN; /* one reading says nothing */
    all->busy_s = 0.0;
    host->throttled_share = host->throttle_periods > 0.0 ? host->throttled_share / host->throttle_periods : (double)NAN;
    host->online = host->cpus;
    if (!isnan(all->affinity))
        host->cpus = isnan(host->cpus) ? all->affinity : fmin(host->cpus, all->affinity);
    for (uint32_t i = 0; i < all->device_count; i++) {
        lp__device *device = &all->devices[i];
        lp_usage_gpu *gpu = &all->usage->gpus[device->gpu];
        if (device->busy_time > 0.0)
            gpu->busy = device->busy_s / device->busy_time;
        if (device->ours_time > 0.0 && device->busy_time > 0.0)
            gpu->ours = fmin(device->ours_s / device->busy_time, 1.0);
        else if (device->told_time > 0.0) /* no process of ours was on it */
            gpu->ours = fmin(device->told_s / device->told_time, 1.0);
        end_reasons(gpu->why);
        if (device->power_time > 0.0)
            gpu->power_mean_w = device->power_s / device->power_time;
        free(device->busy);
    }
    end_reasons(host->why);
    all->device_count = 0;
    all->placed = false;
    all->boot[0] = '\0';
    all->affinity = (double)NAN;
}

static uint32_t new_device(lp__usage *all, uint32_t host, const lp_sample_batch *batch)
{
    lp_usage *usage = all->usage;
    double nan = (double)NAN;

    if (all->device_count == LP__USAGE_DEVICES)
        return UINT32_MAX;
    lp_usage_gpu *gpus = lp_arena_take(usage->arena, (usage->gpu_count + 1u) * sizeof *gpus);
    float *busy = malloc(all->grid.bins * sizeof *busy);
    lp_str name = lp_arena_str(usage->arena, batch->label.data, batch->label.size);
    if (!gpus || !busy || !name.data) {
        free(busy);
        return UINT32_MAX;
    }
    if (usage->gpu_count > 0)
        memcpy(gpus, usage->gpus, usage->gpu_count * sizeof *gpus);
    usage->gpus = gpus;
    gpus[usage->gpu_count] = (lp_usage_gpu){.host = host,
                                            .index = batch->index,
                                            .name = name,
                                            .busy = nan,
                                            .ours = nan,
                                            .memory_peak = nan,
                                            .memory_total = nan,
                                            .ours_memory_peak = nan,
                                            .power_mean_w = nan,
                                            .temperature_max = nan};
    for (uint32_t c = 0; c < LP_COLUMNS; c++)
        usage->gpus[usage->gpu_count].why[c] = LP_REASON_NEVER;
    for (uint32_t i = 0; i < all->grid.bins; i++)
        busy[i] = -1.0f;
    all->devices[all->device_count] =
        (lp__device){.gpu = usage->gpu_count++, .busy = busy, .mono_s = -1.0, .told_mono_s = -1.0};
    return all->device_count++;
}

/* Does the batch tell anything? A library that does not work has a row that says why, for want of a device it can name. */
static bool is_empty(const lp_sample_batch *batch, uint8_t *why)
{
    uint8_t reasons[LP_COLUMNS] = {0};

    take_reasons(reasons, batch);
    for (uint32_t c = 0; c < LP_COLUMNS; c++)
        if (reasons[c] == LP__WHY_KNOWN)
            return false;
    *why = reasons[LP_COLUMN_GPU_BUSY];
    return true;
}

lp_status lp__usage_gpu_batch(lp__usage_reading *reading, lp_usage_host *host, const lp_sample_batch *batch)
{
    lp__usage *all = reading->all;
    int64_t place_ns = lp__usage_place_of(reading, batch);
    uint64_t mono_ns = lp__usage_mono(reading, batch);
    double place_s = (double)((int64_t)mono_ns + place_ns) / 1e9;
    uint32_t at = device_of(all, batch->index);

    if (at == UINT32_MAX && is_empty(batch, &host->gpu_why))
        return LP_OK;
    if (at == UINT32_MAX && (at = new_device(all, host->host, batch)) == UINT32_MAX)
        return all->device_count == LP__USAGE_DEVICES ? LP_OK : LP_E_MEMORY;
    double interval_s = reading->interval_s;
    lp__device *device = &all->devices[at];
    lp_usage_gpu *gpu = &all->usage->gpus[device->gpu];
    for (uint32_t row = 0; row < batch->rows; row++) {
        double after = (double)batch->time_us[row] / 1e6, unix_s = place_s + after;
        double mono_s = (double)mono_ns / 1e9 + after;
        bool fresh =
            mono_s > device->mono_s; /* else another collector has told of this moment, if not of all that is ours */
        double ours = known(at_row(batch, LP_COLUMN_GPU_OURS_BUSY, row), 1e-3);
        double busy = known(at_row(batch, LP_COLUMN_GPU_BUSY, row), 1e-3);
        double power = known(at_row(batch, LP_COLUMN_GPU_POWER, row), 1e-3);
        uint32_t bin = lp__grid_bin(&all->grid, unix_s - all->begin_s);
        if (fresh && !isnan(busy)) {
            device->busy[bin] = fmaxf(device->busy[bin], (float)(busy * 100.0));
            device->busy_s += busy * interval_s;
            device->busy_time += interval_s;
        }
        if (fresh && !isnan(power)) {
            device->power_s += power * interval_s;
            device->power_time += interval_s;
        }
        if (!isnan(ours)) {
            device->told_s += ours * interval_s;
            device->told_time += mono_s > device->told_mono_s ? interval_s : 0.0;
            device->told_mono_s = fmax(device->told_mono_s, mono_s);
        }
        raise_to(&gpu->ours_memory_peak, known(at_row(batch, LP_COLUMN_GPU_OURS_MEMORY, row), KIB));
        raise_to(&gpu->memory_peak, known(at_row(batch, LP_COLUMN_GPU_MEMORY_USED, row), KIB));
        raise_to(&gpu->memory_total, known(at_row(batch, LP_COLUMN_GPU_MEMORY_TOTAL, row), KIB));
        raise_to(&gpu->temperature_max, known(at_row(batch, LP_COLUMN_GPU_TEMPERATURE, row), 1.0));
        gpu->rows += fresh;
        device->mono_s = fmax(device->mono_s, mono_s);
    }
    take_reasons(gpu->why, batch);
    return LP_OK;
}
