/* Findings: what a reader should look at first, each with the figures that it rests on. A rule speaks only where its cause is
 * measured and large; a healthy run has none. All thresholds stand here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/report_internal.h"
#include "analysis/tree_math.h"
#include "store/arena.h"

#define STARVED_LEAST 0.05   /* of a role's time with a known split */
#define OTHERS_LEAST 0.25    /* of the host's CPUs */
#define THROTTLED_LEAST 0.05 /* of the periods of the limit */
#define BLOCKED_LEAST 0.50   /* of the phase's time */
#define BLOCKED_ROLE 0.20    /* of the role's time that the phase must make up, blocked */
#define SLOW_LEAST 1.25      /* the slowest worker over the mean of its role */
#define SLOW_LOOKS 8u        /* workers that are asked whether others can be compared with them */
#define SLOW_WORKERS 3u      /* the mean of two is half the slow one */
#define GPU_IDLE 0.20        /* median busy share in the phase */
#define GPU_USED 0.50        /* a device was so busy at some time: somebody uses it */
#define GPU_SAMPLES 10u
#define GPU_TIME 0.20     /* of the sampled time in which the phase was open */
#define GROWTH_ERRORS 3.0 /* the slope over its standard error */
#define GROWTH_PART 0.05  /* of the peak that the second half must have added */
#define GROWTH_BYTES (16.0 * 1024 * 1024)
#define GROWTH_PHASE 0.50 /* of the growth: then the phase is named */
#define PRESSURE_LEAST 0.05
#define DISK_LEAST 0.20
#define RUN_LEAST 1e9   /* ns of process time: a shorter run is a trial, and its shares are chance */
#define TIME_LEAST 0.01 /* of the run: less is not worth a sentence */

typedef struct list {
    lp_report *report;
    lp_status status;
} list;

static lp_finding finding(lp_finding_kind kind)
{
    double nan = (double)NAN;

    return (lp_finding){.kind = kind,
                        .role = LP_NO_PHASE,
                        .phase = LP_NO_PHASE,
                        .other = LP_NO_PHASE,
                        .worker = LP_NO_PHASE,
                        .host = LP_NO_PHASE,
                        .path = {"", 0},
                        .value = {nan, nan, nan, nan},
                        .share = nan};
}

static void add(list *to, lp_finding found)
{
    lp_report *report = to->report;

    if (to->status != LP_OK)
        return;
    lp_finding *grown = lp_arena_grow(report->arena, report->findings, report->finding_count, sizeof *grown);
    if (!grown) {
        to->status = LP_E_MEMORY;
        return;
    }
    report->findings = grown;
    report->findings[report->finding_count++] = found;
}

static double total_wall(const lp_report *report)
{
    double total = 0.0;

    for (uint32_t i = 0; i < report->role_count; i++)
        total += (double)report->roles[i].role->wall_ns;
    return total;
}

/* Sums over the phases at the top: those below are part of them. */
typedef struct role_time {
    double cpu_wall, cpu, split_wait, starved;
} role_time;

static role_time time_of(const lp_report_role *role)
{
    role_time sum = {0};

    for (uint32_t i = 0; i < role->phase_count; i++)
        if (role->phases[i].parent == LP_NO_PHASE) {
            sum.cpu_wall += (double)role->phases[i].cpu_wall_ns;
            sum.cpu += (double)role->phases[i].cpu_ns;
            sum.split_wait += (double)role->phases[i].split_wait_ns;
            sum.starved += (double)role->phases[i].starved_ns;
        }
    return sum;
}

/* CPUs that others than our processes kept busy, where that is why none was free: we may use all of the host, so that what is busy
 * there is missing here. What processes used between their last sample and their end is in no sample, but in their phases, so the
 * larger of both counts as ours. NaN: not known, or of no weight. */
static double busy_besides(const lp_report *report, const lp_usage_host *host, double cpus)
{
    double ours = host->cpu_mean, in_phases = 0.0;

    for (uint32_t i = 0; report->usage->host_count == 1 && i < report->role_count; i++)
        in_phases += time_of(&report->roles[i]).cpu;
    if (host->seconds > 0.0)
        ours = fmax(ours, in_phases / 1e9 / host->seconds);
    double besides = host->busy_mean - ours;

    return cpus >= host->online && besides >= OTHERS_LEAST * cpus ? besides : (double)NAN;
}

static const lp_usage_host *host_of(const lp_usage *usage, const lp_run_worker *worker)
{
    for (uint32_t h = 0; h < usage->host_count; h++) {
        lp_str name = usage->run->hosts[usage->hosts[h].host].name;
        if (name.size == worker->host.size && memcmp(name.data, worker->host.data, name.size) == 0)
            return &usage->hosts[h];
    }
    return NULL;
}

/* Of the hosts that the role runs on, the one where its processes may use the fewest CPUs. */
static void tightest_host(const lp_report *report, uint32_t role, lp_finding *found)
{
    const lp_usage *usage = report->usage;

    for (uint32_t i = 0; usage && i < report->run->worker_count; i++) {
        const lp_run_worker *worker = &report->run->workers[i];
        const lp_usage_host *host = worker->role_index == role ? host_of(usage, worker) : NULL;
        double cpus = host ? fmin(host->cpus, isnan(host->quota) ? host->cpus : host->quota) : (double)NAN;
        if (isnan(cpus) || cpus >= found->value[1])
            continue;
        found->value[1] = cpus;
        found->value[2] = host->at_once;
        found->value[3] = busy_besides(report, host, cpus);
        found->host = (uint32_t)(host - usage->hosts);
    }
}

static void find_starved(list *to, double total)
{
    const lp_report *report = to->report;

    for (uint32_t i = 0; i < report->role_count; i++) {
        role_time time = time_of(&report->roles[i]);
        double share = time.cpu_wall > 0.0 ? time.starved / time.cpu_wall : 0.0;
        if (share < STARVED_LEAST || time.starved / total < TIME_LEAST)
            continue;
        lp_finding found = finding(LP_FINDING_STARVED);
        found.role = i;
        found.value[0] = share;
        tightest_host(report, i, &found);
        found.share = time.starved / total;
        add(to, found);
    }
}

static void find_throttled(list *to)
{
    const lp_usage *usage = to->report->usage;

    for (uint32_t h = 0; usage && h < usage->host_count; h++) {
        const lp_usage_host *host = &usage->hosts[h];
        if (!(host->throttled_share >= THROTTLED_LEAST) || !(host->throttled_s > 0.0))
            continue;
        lp_finding found = finding(LP_FINDING_THROTTLED);
        found.host = h;
        found.value[0] = host->throttled_share;
        found.value[1] = host->throttled_s;
        found.value[2] = host->quota;
        found.share = host->seconds > 0.0 ? fmin(host->throttled_s / host->seconds, 1.0) : (double)NAN;
        add(to, found);
    }
}

/* The part of the lives of a role's processes that lies in phases: one that waits for its next task is in none. Tasks and threads
 * beside each other may cover it more than once. */
static double covered(const lp_report *report, uint32_t role)
{
    double lived = (double)report->roles[role].lived_ns;

    return lived > 0.0 ? fmin((double)report->roles[role].role->wall_ns / lived, 1.0) : 1.0;
}

/* Who works while others wait: the other role with the largest part of its processes' lives on a CPU, or that it wanted one for. */
static void busiest_other(const lp_report *report, uint32_t except, lp_finding *found)
{
    double most = (double)NAN;

    for (uint32_t i = 0; i < report->role_count; i++) {
        role_time time = i == except ? (role_time){0} : time_of(&report->roles[i]);
        double part = time.cpu_wall > 0.0 ? covered(report, i) / time.cpu_wall : (double)NAN;
        double working = (time.cpu + time.starved) * part;
        if (!isnan(working) && !(working <= most)) {
            most = working;
            found->value[1] = time.cpu * part;
            found->value[2] = time.starved * part;
            found->other = i;
        }
    }
}

/* Tasks beside each other wait for as long as they are many: whether the process had something else to do meanwhile is in none of
 * their times. */
static bool is_beside_others(const lp_report_role *role, uint32_t phase)
{
    for (uint32_t at = role->phases[phase].parent; at != LP_NO_PHASE; at = role->phases[at].parent)
        if (role->phases[at].flags & LP_PHASE_OVERLAP)
            return true;
    return false;
}

/* A phase's own waiting: of one with children the part that they do not cover cannot be told, so only leaves count, or
 * phases whose children take little. */
static void find_blocked(list *to, double total)
{
    const lp_report *report = to->report;

    for (uint32_t r = 0; r < report->role_count; r++) {
        const lp_report_role *role = &report->roles[r];
        double wall = (double)role->role->wall_ns;
        for (uint32_t i = 0; i < role->phase_count; i++) {
            const lp_report_phase *phase = &role->phases[i];
            double blocked = (double)phase->blocked_ns;
            if (phase->synthetic || !(phase->blocked >= BLOCKED_LEAST) || blocked < BLOCKED_ROLE * wall ||
                (double)phase->child_ns > 0.1 * (double)phase->wall_ns || blocked / total < TIME_LEAST ||
                is_beside_others(role, i))
                continue;
            lp_finding found = finding(LP_FINDING_BLOCKED);
            found.role = r;
            found.phase = i;
            found.value[0] = phase->blocked;
            busiest_other(report, r, &found);
            found.share = blocked / total;
            add(to, found);
        }
    }
}

typedef struct one_of { /* a worker of a role */
    uint64_t work, wall, started, ended;
    uint32_t index;
    bool is_cut_off; /* killed, or it ended inside a phase */
} one_of;

static one_of one_worker(const lp_run_worker *worker, uint32_t index)
{
    bool was_killed = worker->end.code != LP_UNKNOWN_I64 && worker->end.code != 0;

    return (one_of){.work = worker->work,
                    .wall = lp__add_u64(worker->wall_ns, worker->open_ns),
                    .started = worker->started_ns,
                    .ended = lp_run_worker_end(worker),
                    .index = index,
                    .is_cut_off = worker->life == LP_LIFE_DIED && (was_killed || worker->open_count > 0)};
}

static int by_work(const void *a, const void *b)
{
    const one_of *x = a, *y = b;

    if (x->work != y->work)
        return x->work < y->work ? -1 : 1;
    if (x->wall != y->wall) /* the slowest of those that do the same first */
        return x->wall > y->wall ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* What had as much time as `slow` for its work: it began at about the same moment, was not killed before, and nobody took its place.
 * The sum of their time; *count of them. */
static double beside(const one_of *group, uint32_t all, const one_of *slow, uint32_t *count)
{
    double apart = (1.0 - 1.0 / SLOW_LEAST) * (double)(slow->ended - slow->started), sum = 0.0;
    uint64_t latest = 0; /* start of a process while it ran */

    for (uint32_t i = 0; i < all; i++)
        if (group[i].started < slow->ended && group[i].started > latest)
            latest = group[i].started;
    *count = 0;
    for (uint32_t i = 0; i < all; i++) {
        const one_of *one = &group[i];
        bool is_early = (double)one->ended + apart < (double)slow->ended;
        if (fabs((double)one->started - (double)slow->started) > apart ||
            (is_early && (one->is_cut_off || one->ended <= latest)))
            continue;
        sum += (double)one->wall;
        ++*count;
    }
    return sum;
}

/* The slowest that others can be compared with. */
static void find_slow_in(list *to, uint32_t role, const one_of *group, uint32_t all)
{
    double runtime = (double)to->report->run->runtime_ns;

    for (uint32_t i = 0; i < all && i < SLOW_LOOKS; i++) {
        uint32_t count;
        double sum = beside(group, all, &group[i], &count);
        if (count < SLOW_WORKERS)
            continue;
        double mean = sum / count, times = sum > 0.0 ? (double)group[i].wall / mean : 1.0,
               excess = (times - 1.0) * mean;
        if (times < SLOW_LEAST || !(excess >= TIME_LEAST * runtime))
            return;
        lp_finding found = finding(LP_FINDING_SLOW_WORKER);
        found.role = role;
        found.worker = group[i].index;
        found.value[0] = times;
        found.value[1] = count;
        found.value[2] = to->report->roles[role].role->worker_count;
        found.value[3] = all;
        found.share = fmin(excess / runtime, 1.0);
        add(to, found);
        return;
    }
}

/* Among workers that spend their time in the same top phase: a process that forked the others may have their role, but not their
 * work. */
static void find_slow(list *to)
{
    const lp_run *run = to->report->run;
    one_of *all = malloc((run->worker_count + 1u) * sizeof *all);

    if (!all) {
        to->status = LP_E_MEMORY;
        return;
    }
    for (uint32_t r = 0; r < to->report->role_count; r++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < run->worker_count; i++)
            if (run->workers[i].role_index == r)
                all[count++] = one_worker(&run->workers[i], i);
        if (count > 1)
            qsort(all, count, sizeof *all, by_work);
        for (uint32_t i = 0, end; i < count; i = end) {
            for (end = i; end < count && all[end].work == all[i].work; end++)
                ;
            find_slow_in(to, r, all + i, end - i);
        }
    }
    free(all);
}

static void find_gpu_idle(list *to)
{
    const lp_usage *usage = to->report->usage;
    double seconds = 0.0, used = 0.0;

    for (uint32_t i = 0; usage && i < usage->phase_count; i++) {
        seconds += usage->phases[i].seconds;
        if (usage->phases[i].gpu_samples > 0)
            used = fmax(used, lp_usage_gpu_quantile(&usage->phases[i], 0.95));
    }
    for (uint32_t i = 0; usage && used >= GPU_USED && i < usage->phase_count; i++) {
        const lp_usage_phase *phase = &usage->phases[i];
        if (phase->none || phase->gpu_samples < GPU_SAMPLES || phase->seconds < GPU_TIME * seconds ||
            lp_usage_gpu_quantile(phase, 0.5) >= GPU_IDLE)
            continue;
        lp_finding found = finding(LP_FINDING_GPU_IDLE);
        found.path = phase->path;
        found.value[0] = lp_usage_gpu_quantile(phase, 0.5);
        found.value[1] = used;
        found.share = phase->seconds / seconds;
        add(to, found);
    }
}

/* The phase in which memory grew: of all processes, since rows are not kept by process and phase. */
static void growing_phase(const lp_usage *usage, lp_finding *found)
{
    double growth = 0.0, most = 0.0;

    for (uint32_t i = 0; i < usage->phase_count; i++)
        growth += fmax(usage->phases[i].rss_growth, 0.0);
    for (uint32_t i = 0; i < usage->phase_count; i++) {
        const lp_usage_phase *phase = &usage->phases[i];
        if (!phase->none && phase->rss_growth > most && phase->rss_growth >= GROWTH_PHASE * growth) {
            most = phase->rss_growth;
            found->path = phase->path;
            found->value[3] = most / growth;
        }
    }
}

static bool grows(const lp_usage_process *process)
{
    const lp_usage_trend *trend = &process->rss;
    double added = trend->late_slope * process->seconds / 2;

    return trend->late_slope > GROWTH_ERRORS * trend->late_error && trend->slope > GROWTH_ERRORS * trend->slope_error &&
           added >= GROWTH_PART * trend->peak && added >= GROWTH_BYTES;
}

/* The process that grows fastest stands for all that do; those of its host share what room there is. */
static void find_growth(list *to)
{
    const lp_usage *usage = to->report->usage;
    const lp_usage_process *fastest = NULL;
    double together = 0.0;

    for (uint32_t i = 0; usage && i < usage->process_count; i++) {
        const lp_usage_process *process = &usage->processes[i];
        if (grows(process) && (!fastest || process->rss.late_slope > fastest->rss.late_slope))
            fastest = process;
    }
    if (!fastest)
        return;
    lp_finding found = finding(LP_FINDING_GROWTH);
    lp_str name = usage->run->workers[fastest->worker].host;
    for (uint32_t i = 0; i < usage->process_count; i++)
        if (grows(&usage->processes[i]) && lp__str_equal(usage->run->workers[usage->processes[i].worker].host, name))
            together += usage->processes[i].rss.late_slope;
    const lp_usage_host *host = host_of(usage, &usage->run->workers[fastest->worker]);
    double room = host && !isnan(host->memory_limit) ? host->memory_limit - host->limit_used_peak
                  : host                             ? host->available_least
                                                     : (double)NAN;
    found.worker = fastest->worker;
    found.value[0] = fastest->rss.late_slope;
    found.value[1] = fastest->rss.late_error;
    found.value[2] = fmax(room, 0.0) / together;
    if (isnan(room))
        found.value[2] = (double)NAN;
    growing_phase(usage, &found);
    add(to, found);
}

static void find_host_trouble(list *to)
{
    const lp_usage *usage = to->report->usage;

    for (uint32_t h = 0; usage && h < usage->host_count; h++) {
        const lp_usage_host *host = &usage->hosts[h];
        lp_finding found = finding(LP_FINDING_KILLED);
        found.host = h;
        if (host->kills > 0.0) {
            found.value[0] = host->kills;
            found.value[1] = host->memory_limit;
            add(to, found);
        }
        if (host->psi_memory_full >= PRESSURE_LEAST) {
            found.kind = LP_FINDING_MEMORY_PRESSURE;
            found.value[0] = found.share = host->psi_memory_full;
            add(to, found);
        }
        if (host->psi_io_full >= DISK_LEAST) {
            found.kind = LP_FINDING_DISK_PRESSURE;
            found.value[0] = found.share = host->psi_io_full;
            add(to, found);
        }
    }
}

static int by_share(const void *a, const void *b)
{
    const lp_finding *x = a, *y = b;
    double p = isnan(x->share) ? 2.0 : x->share, q = isnan(y->share) ? 2.0 : y->share;

    if (p != q)
        return p > q ? -1 : 1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

lp_status lp__report_findings(lp_report *report)
{
    list to = {.report = report, .status = LP_OK};
    double total = total_wall(report);

    report->findings = NULL;
    report->finding_count = 0;
    if (!(total >= RUN_LEAST))
        return LP_OK;
    find_starved(&to, total);
    find_throttled(&to);
    find_blocked(&to, total);
    find_slow(&to);
    find_gpu_idle(&to);
    find_growth(&to);
    find_host_trouble(&to);
    if (report->finding_count > 1)
        qsort(report->findings, report->finding_count, sizeof *report->findings, by_share);
    return to.status;
}
