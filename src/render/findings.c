/* The sentences of a finding: what costs how much, what it rests on, what to try. */
#include "render/findings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/inert.h"
#include "render/units.h"

#define NAME_COLUMNS 48u
typedef char name[LP_INERT_BYTES(NAME_COLUMNS)];

static const char *const kinds[] = {
    [LP_FINDING_KILLED] = "oom-killed",          [LP_FINDING_STARVED] = "starved",
    [LP_FINDING_THROTTLED] = "throttled",        [LP_FINDING_BLOCKED] = "blocked-phase",
    [LP_FINDING_SLOW_WORKER] = "slow-worker",    [LP_FINDING_GPU_IDLE] = "gpu-idle",
    [LP_FINDING_GROWTH] = "memory-growth",       [LP_FINDING_MEMORY_PRESSURE] = "memory-pressure",
    [LP_FINDING_DISK_PRESSURE] = "disk-pressure"};

static const char *inert(name out, lp_str text, bool utf8)
{
    lp_inert(out, sizeof(name), &text, 1, NAME_COLUMNS, LP_CUT_LEFT, utf8);
    return out[0] ? out : "?";
}

static const char *role_name(const lp_report *report, uint32_t role, name out, bool utf8)
{
    return role == LP_NO_PHASE ? "" : inert(out, lp_visible(report->roles[role].role->name), utf8);
}

static const char *host_name(const lp_report *report, uint32_t host, name out, bool utf8)
{
    const lp_usage *usage = report->usage;

    return host == LP_NO_PHASE || !usage ? "" : inert(out, usage->run->hosts[usage->hosts[host].host].name, utf8);
}

static const char *worker_name(const lp_report *report, uint32_t worker, name out, bool utf8)
{
    const lp_run_worker *at = &report->run->workers[worker];
    char pid[32];

    snprintf(pid, sizeof pid, ":%lld", (long long)at->pid);
    lp_str parts[] = {at->host, {pid, strlen(pid)}};
    lp_inert(out, sizeof(name), parts, 2, NAME_COLUMNS, LP_CUT_LEFT, utf8);
    return out;
}

static void say_starved(const lp_report *report, const lp_finding *f, bool utf8, lp_finding_words *words)
{
    name role, host;
    lp_unit share, run, cpus, others;
    size_t size;

    snprintf(words->headline, sizeof words->headline, "%s: no CPU was free for %s of its time, costing %s of the run",
             role_name(report, f->role, role, utf8), lp_unit_whole_percent(share, f->value[0]),
             lp_unit_whole_percent(run, f->share));
    if (!isnan(f->value[1]))
        snprintf(words->detail, sizeof words->detail,
                 "Its threads were runnable and waited for a core. %s lets %.0f recorded process(es) use %s core(s).",
                 host_name(report, f->host, host, utf8), f->value[2], lp_unit_fixed(cpus, f->value[1], 1));
    else
        snprintf(words->detail, sizeof words->detail,
                 "Its threads were runnable and waited for a core, as the scheduler counts it (schedstat).");
    size = strlen(words->detail);
    if (!isnan(f->value[3]))
        snprintf(words->detail + size, sizeof words->detail - size,
                 " What is not recorded kept %s of the host's cores busy meanwhile.",
                 lp_unit_fixed(others, f->value[3], 1));
    snprintf(words->advice, sizeof words->advice,
             isnan(f->value[3])
                 ? "Start fewer processes or threads (OMP_NUM_THREADS, a smaller pool), or give the run more CPUs."
                 : "Look at what else runs there (children that are not recorded, other programs), or run elsewhere.");
}

static void say_throttled(const lp_report *report, const lp_finding *f, bool utf8, lp_finding_words *words)
{
    name host;
    lp_unit share, limit, time;

    snprintf(words->headline, sizeof words->headline, "%s: the container's CPU limit stopped it in %s of the periods",
             host_name(report, f->host, host, utf8), lp_unit_whole_percent(share, f->value[0]));
    snprintf(
        words->detail, sizeof words->detail,
        "The limit is %s core(s); its tasks stood still for %s together. Summed over cores, so it may exceed the run.",
        lp_unit_fixed(limit, f->value[2], 2), lp_unit_ns(time, f->value[1] * 1e9));
    snprintf(words->advice, sizeof words->advice,
             "Raise the limit (cpu.max), or run no more threads than it has cores.");
}

static void say_blocked(const lp_report *report, const lp_finding *f, bool utf8, lp_finding_words *words)
{
    const lp_report_phase *phase = &report->roles[f->role].phases[f->phase];
    name path, role, other;
    lp_unit share, run, working;

    role_name(report, f->role, role, utf8);
    bool shared = lp_report_shares_path(report, f->role, phase->path);
    snprintf(words->headline, sizeof words->headline, "%s%s%s spent %s of its time blocked, costing %s of the run",
             inert(path, lp_visible(phase->path), utf8), shared ? " of " : "", shared ? role : "",
             lp_unit_whole_percent(share, f->value[0]), lp_unit_whole_percent(run, f->share));
    role_name(report, f->other, other, utf8);
    if (f->other != LP_NO_PHASE && f->value[1] + f->value[2] >= 0.5) {
        snprintf(words->detail, sizeof words->detail,
                 "While %s waits there, %s is at work: on a CPU for %s of its time", role, other,
                 lp_unit_whole_percent(working, f->value[1]));
        size_t size = strlen(words->detail);
        if (f->value[2] >= 0.05)
            snprintf(words->detail + size, sizeof words->detail - size, ", ready for one that was not free for %s.",
                     lp_unit_whole_percent(working, f->value[2]));
        else
            snprintf(words->detail + size, sizeof words->detail - size, ".");
        if (f->value[2] > f->value[1])
            snprintf(words->advice, sizeof words->advice, "Give %s CPUs, or make it need fewer: %s cannot be faster.",
                     other, role);
        else
            snprintf(words->advice, sizeof words->advice,
                     "Make %s faster or give it more processes: %s cannot be faster.", other, role);
    } else if (f->other != LP_NO_PHASE) {
        snprintf(words->detail, sizeof words->detail,
                 "No other role of this run is busy meanwhile: the one whose phases work most, %s, is on a CPU for %s "
                 "of its time.",
                 other, lp_unit_whole_percent(working, f->value[1]));
        snprintf(words->advice, sizeof words->advice,
                 "Look at what is waited for outside the CPU: a disk, a network, a device, a lock, or each other.");
    } else {
        snprintf(words->detail, sizeof words->detail,
                 "Waiting for something that is no recorded process of another role.");
        snprintf(words->advice, sizeof words->advice,
                 "Read ahead, batch the requests, or overlap the waiting with work of another thread.");
    }
    snprintf(words->anchor, sizeof words->anchor, "%s", path);
}

static void say_slow(const lp_report *report, const lp_finding *f, bool utf8, lp_finding_words *words)
{
    name role, worker;
    lp_unit times, run;

    const char *which = f->value[1] < f->value[3]   ? " that ran beside it in the same phase"
                        : f->value[1] < f->value[2] ? " that spend their time in the same phase"
                                                    : "";
    snprintf(words->headline, sizeof words->headline, "%s took %s times the mean of the %.0f processes of %s%s",
             worker_name(report, f->worker, worker, utf8), lp_unit_fixed(times, f->value[0], 2), f->value[1],
             role_name(report, f->role, role, utf8), which);
    snprintf(words->detail, sizeof words->detail,
             "If the others wait for it at the end, that is %s of the run. The time is the wall time of its phases.",
             lp_unit_whole_percent(run, f->share));
    snprintf(words->advice, sizeof words->advice,
             "Hand out smaller pieces of work, or look at what is different there.");
}

static void say_gpu_idle(const lp_report *report, const lp_finding *f, bool utf8, lp_finding_words *words)
{
    name path;
    lp_unit busy, used, time;

    (void)report;
    snprintf(words->headline, sizeof words->headline, "The GPU idles while %s is open, %s of the sampled time",
             inert(path, lp_visible(f->path), utf8), lp_unit_whole_percent(time, f->share));
    snprintf(words->detail, sizeof words->detail,
             "There the device was busy for %s (median of the samples); in other phases up to %s. Once a second is all "
             "that is seen.",
             lp_unit_whole_percent(busy, f->value[0]), lp_unit_whole_percent(used, f->value[1]));
    snprintf(words->advice, sizeof words->advice,
             "Prepare the next batch while the device works, or move that phase onto it.");
    snprintf(words->anchor, sizeof words->anchor, "%s", path);
}

static void say_growth(const lp_report *report, const lp_finding *f, bool utf8, lp_finding_words *words)
{
    name worker, path;
    lp_unit rate, error, part, when;
    size_t size;

    snprintf(words->headline, sizeof words->headline, "Memory of %s grows by %s an hour",
             worker_name(report, f->worker, worker, utf8), lp_unit_bytes(rate, f->value[0] * 3600.0));
    snprintf(words->detail, sizeof words->detail,
             "In the second half of its time, with a standard error of %s an hour (resident size, once an interval).",
             lp_unit_bytes(error, f->value[1] * 3600.0));
    size = strlen(words->detail);
    if (f->path.size > 0)
        snprintf(words->detail + size, sizeof words->detail - size, " %s of the growth came while %s was open.",
                 lp_unit_whole_percent(part, f->value[3]), inert(path, f->path, utf8));
    size = strlen(words->detail);
    if (!isnan(f->value[2]))
        snprintf(words->detail + size, sizeof words->detail - size, " At this rate the host's memory lasts %s more.",
                 lp_unit_ns(when, fmin(f->value[2], 1e9) * 1e9));
    snprintf(words->advice, sizeof words->advice,
             "Look for a list, cache or log that only grows%s; results that are kept for the end are no leak.",
             f->path.size > 0 ? " in that phase" : "");
    if (f->path.size > 0)
        snprintf(words->anchor, sizeof words->anchor, "%s", path);
}

static void say_host(const lp_report *report, const lp_finding *f, bool utf8, lp_finding_words *words)
{
    name host;
    lp_unit share, limit;

    host_name(report, f->host, host, utf8);
    if (f->kind == LP_FINDING_KILLED) {
        snprintf(words->headline, sizeof words->headline, "%s: the kernel killed %.0f process(es) for want of memory",
                 host, f->value[0]);
        if (isnan(f->value[1]))
            snprintf(words->detail, sizeof words->detail, "Counted by the cgroup that the run is in.");
        else
            snprintf(words->detail, sizeof words->detail, "The memory limit of its cgroup is %s.",
                     lp_unit_bytes(limit, f->value[1]));
        snprintf(words->advice, sizeof words->advice, "Raise the limit, or start fewer processes at once.");
        return;
    }
    bool memory = f->kind == LP_FINDING_MEMORY_PRESSURE;
    snprintf(words->headline, sizeof words->headline, "%s: for %s of the time every runnable task waited for %s", host,
             lp_unit_whole_percent(share, f->value[0]), memory ? "memory" : "the disk");
    snprintf(words->detail, sizeof words->detail,
             "Pressure of the whole host (/proc/pressure/%s, full), other users included.", memory ? "memory" : "io");
    snprintf(words->advice, sizeof words->advice,
             memory ? "The host swaps or drops caches: use less memory at once."
                    : "Write and read less, in larger pieces, or on another disk.");
}

void lp_finding_say(const lp_report *report, const lp_finding *finding, bool utf8, lp_finding_words *words)
{
    *words = (lp_finding_words){.kind = kinds[finding->kind]};
    switch (finding->kind) {
    case LP_FINDING_STARVED: say_starved(report, finding, utf8, words); break;
    case LP_FINDING_THROTTLED: say_throttled(report, finding, utf8, words); break;
    case LP_FINDING_BLOCKED: say_blocked(report, finding, utf8, words); break;
    case LP_FINDING_SLOW_WORKER: say_slow(report, finding, utf8, words); break;
    case LP_FINDING_GPU_IDLE: say_gpu_idle(report, finding, utf8, words); break;
    case LP_FINDING_GROWTH: say_growth(report, finding, utf8, words); break;
    case LP_FINDING_KILLED:
    case LP_FINDING_MEMORY_PRESSURE:
    case LP_FINDING_DISK_PRESSURE: say_host(report, finding, utf8, words); break;
    }
}
