/* Findings: each kind where its cause is there, just below its bound, and silence on a healthy run. Growth of memory and
 * throttling, which need series of rows, are in test_analysis_usage.c. */
#include "check.h"
#include "make_runs.h"

#include "analysis/report.h"
#include "render/findings.h"

/* A run of made workers with usage written by hand: what rows would have become. */
typedef struct scene {
    lp_worker *workers[8];
    unsigned count;
    lp_run *run;
    lp_report *report;
    lp_usage usage;
    lp_usage_host host;
    lp_usage_phase phases[3];
} scene;

/* `wall_s` of one phase in one entry, of which `cpu` on a CPU and `starved` without one; the rest blocked. */
static lp_worker *one_phase(const char *role, int64_t pid, const char *path, double wall_s, double cpu, double starved)
{
    lp_worker *worker = made_worker(role, "node07", pid);
    lp_phase *phase = &worker->tree.phases[made_path(worker, path)];
    double ns = wall_s * 1e9;

    phase->entries = 1;
    phase->min_ns = phase->max_ns = phase->wall_ns = phase->cpu_wall_ns = (uint64_t)ns;
    phase->cpu_ns = (uint64_t)(ns * cpu);
    phase->split_wait_ns = phase->wall_ns - phase->cpu_ns;
    phase->starved_ns = (uint64_t)(ns * starved);
    return worker;
}

static void start(scene *s)
{
    double nan = (double)NAN;

    *s = (scene){0};
    s->host = (lp_usage_host){.cpus = 2.0,
                              .online = 2.0,
                              .cpu_mean = 1.9,
                              .busy_mean = 2.0,
                              .quota = nan,
                              .memory_limit = nan,
                              .throttled_share = nan,
                              .kills = 0.0,
                              .psi_memory_full = 0.0,
                              .psi_io_full = 0.0,
                              .processes = 40, /* one after the other, of which */
                              .at_once = 4,
                              .seconds = 100.0};
}

static void derive(scene *s)
{
    s->run = made_or_die(lp_run_new());
    for (unsigned i = 0; i < s->count; i++)
        if (lp_run_add(s->run, s->workers[i], false) != LP_OK)
            abort();
    if (lp_run_finish(s->run) != LP_OK || lp_report_new(s->run, &s->report) != LP_OK)
        abort();
    s->usage.run = s->run;
    s->usage.hosts = &s->host;
    s->usage.host_count = 1;
    s->usage.phases = s->phases;
    CHECK_EQ(lp_report_add_usage(s->report, &s->usage), LP_OK);
}

static void end(scene *s)
{
    lp_report_free(s->report);
    lp_run_free(s->run);
    for (unsigned i = 0; i < s->count; i++)
        lp_worker_free(s->workers[i]);
}

/* The only finding, which is of that kind, and what it says; NULL: there is none. */
static const lp_finding *only(scene *s, const char *kind, lp_finding_words *words)
{
    CHECK_EQ(s->report->finding_count, kind ? 1u : 0u);
    if (!kind || s->report->finding_count == 0)
        return NULL;
    lp_finding_say(s->report, &s->report->findings[0], true, words);
    CHECK_STR(words->kind, kind);
    return &s->report->findings[0];
}

static void starved(void)
{
    lp_finding_words words;
    scene s;

    start(&s);
    s.workers[s.count++] = one_phase("actor", 1, "step", 100.0, 0.60, 0.40);
    derive(&s);
    const lp_finding *found = only(&s, "starved", &words);
    if (found) {
        CHECK_NEAR(found->value[0], 0.40, 1e-9);
        CHECK_NEAR(found->share, 0.40, 1e-9);
        CHECK_STR(words.headline, "actor: no CPU was free for 40% of its time, costing 40% of the run");
        CHECK(strstr(words.detail, "node07 lets 4 recorded process(es) use 2.0 core(s)") != NULL);
        CHECK(strstr(words.detail, "not recorded") == NULL);
        CHECK(strncmp(words.advice, "Start fewer", 11) == 0);
    }
    end(&s);
    /* Others keep the host's CPUs busy: that is said, unless those are not the ones that we may use. */
    for (int ours_apart = 0; ours_apart < 2; ours_apart++) {
        start(&s);
        s.workers[s.count++] = one_phase("actor", 1, "step", 100.0, 0.60, 0.40);
        s.host.cpu_mean = 0.6;
        s.host.online = ours_apart ? 32.0 : 2.0;
        derive(&s);
        found = only(&s, "starved", &words);
        if (found)
            CHECK_EQ(strstr(words.detail, "What is not recorded kept 1.4 of the host's cores busy meanwhile.") != NULL,
                     !ours_apart);
        CHECK_EQ(strncmp(words.advice, "Look at what else runs there", 28) == 0, !ours_apart);
        end(&s);
    }
    start(&s);
    s.workers[s.count++] = one_phase("actor", 1, "step", 100.0, 0.96, 0.04);
    derive(&s);
    only(&s, NULL, &words);
    end(&s);
}

static void blocked(void)
{
    lp_finding_words words;
    scene s;

    start(&s);
    s.workers[s.count++] = one_phase("learner", 1, "queue_get", 100.0, 0.02, 0.0);
    s.workers[s.count++] = one_phase("actor", 2, "play", 100.0, 0.99, 0.0);
    derive(&s);
    const lp_finding *found = only(&s, "blocked-phase", &words);
    if (found) {
        CHECK_NEAR(found->value[0], 0.98, 1e-9);
        CHECK_NEAR(found->share, 0.49, 1e-9); /* of the time of both */
        CHECK_STR(words.anchor, "queue_get");
        CHECK(strstr(words.detail, "actor is at work: on a CPU for 99% of its time") != NULL);
        CHECK(strstr(words.advice, "Make actor faster") != NULL);
    }
    end(&s);
    start(&s); /* the other one would work, and has no CPU */
    s.workers[s.count++] = one_phase("learner", 1, "queue_get", 100.0, 0.02, 0.0);
    s.workers[s.count++] = one_phase("actor", 2, "play", 100.0, 0.10, 0.90);
    derive(&s);
    CHECK_EQ(s.report->finding_count, 2u);
    for (uint32_t i = 0; i < s.report->finding_count; i++) {
        if (s.report->findings[i].kind != LP_FINDING_BLOCKED)
            continue;
        lp_finding_say(s.report, &s.report->findings[i], true, &words);
        CHECK_STR(words.detail,
                  "While learner waits there, actor is at work: on a CPU for 10% of its time, ready for one "
                  "that was not free for 90%.");
        CHECK_STR(words.advice, "Give actor CPUs, or make it need fewer: learner cannot be faster.");
    }
    end(&s);
    start(&s); /* who waits, too */
    s.workers[s.count++] = one_phase("learner", 1, "queue_get", 100.0, 0.02, 0.0);
    s.workers[s.count++] = one_phase("actor", 2, "play", 100.0, 0.30, 0.10);
    derive(&s);
    CHECK(s.report->finding_count > 0);
    for (uint32_t i = 0; i < s.report->finding_count; i++) {
        lp_finding_say(s.report, &s.report->findings[i], true, &words);
        if (strcmp(words.anchor, "queue_get") == 0)
            CHECK(strstr(words.detail, "No other role of this run is busy meanwhile") != NULL);
    }
    end(&s);
    start(&s); /* what it does is work, but for 4 s of each 100: a pool that waits for tasks */
    s.workers[s.count++] = one_phase("learner", 1, "step", 100.0, 0.02, 0.0);
    s.workers[s.count++] = one_phase("decoder", 2, "decode", 4.0, 0.75, 0.04);
    s.workers[s.count++] = one_phase("decoder", 3, "decode", 4.0, 0.75, 0.04);
    derive(&s);
    found = only(&s, "blocked-phase", &words);
    if (found) {
        CHECK_NEAR(found->value[1], 0.03, 1e-9);
        CHECK_NEAR(found->value[2], 0.0016, 1e-9);
        CHECK_STR(
            words.detail,
            "No other role of this run is busy meanwhile: the one whose phases work most, decoder, is on a CPU for "
            "3% of its time.");
    }
    end(&s);
    start(&s); /* four threads beside each other, a quarter of each at work: no more than their phases say */
    s.workers[s.count++] = one_phase("learner", 1, "queue_get", 100.0, 0.02, 0.0);
    s.workers[s.count++] = one_phase("actor", 2, "play", 400.0, 0.25, 0.0);
    derive(&s);
    for (uint32_t i = 0; i < s.report->finding_count; i++)
        if (s.report->findings[i].role != LP_NO_PHASE && s.report->findings[i].other != LP_NO_PHASE) {
            lp_finding_say(s.report, &s.report->findings[i], true, &words);
            if (strcmp(words.anchor, "queue_get") == 0)
                CHECK_NEAR(s.report->findings[i].value[1], 0.25, 1e-9);
        }
    end(&s);
    start(&s); /* 49 % blocked */
    s.workers[s.count++] = one_phase("learner", 1, "queue_get", 100.0, 0.51, 0.0);
    derive(&s);
    only(&s, NULL, &words);
    end(&s);
    start(&s); /* 100 % blocked, but a small part of its role's time */
    s.workers[s.count++] = one_phase("learner", 1, "train", 100.0, 1.0, 0.0);
    s.workers[s.count++] = one_phase("learner", 2, "save", 20.0, 0.0, 0.0);
    derive(&s);
    only(&s, NULL, &words);
    end(&s);
}

/* Ten tasks beside each other wait for ten times as long as their process runs: whether it had work meanwhile is not measured. */
static void tasks_beside_each_other_are_not_summed(void)
{
    for (int overlap = 0; overlap < 2; overlap++) {
        lp_finding_words words;
        scene s;
        start(&s);
        lp_worker *worker = one_phase("server", 1, "serve", 100.0, 0.5, 0.0);
        lp_phase *task = made_entries(worker, "serve/fetch", overlap ? 10 : 1, 90 * SECOND, 90 * SECOND, 0.0, 0.0);
        uint64_t waited = task->wall_ns;
        worker->tree.phases[made_path(worker, "serve")].child_ns = 90 * SECOND;
        worker->tree.phases[made_path(worker, "serve")].flags |= overlap ? LP_PHASE_OVERLAP : 0;
        s.workers[s.count++] = worker;
        derive(&s);
        CHECK_EQ(waited, (overlap ? 10u : 1u) * 90 * SECOND);
        const lp_finding *found = only(&s, overlap ? NULL : "blocked-phase", &words);
        if (found)
            CHECK_NEAR(found->share, 0.9, 1e-9);
        end(&s);
    }
}

/* The same path in two roles: two findings, of which each says whose it is. A path of one role needs no more words. */
static void a_path_of_two_roles(void)
{
    for (int same = 0; same < 2; same++) {
        lp_finding_words words;
        scene s;
        start(&s);
        s.workers[s.count++] = one_phase("actor", 1, "wait", 100.0, 0.0, 0.0);
        s.workers[s.count++] = one_phase("learner", 2, same ? "wait" : "join", 90.0, 0.0, 0.0);
        derive(&s);
        CHECK_EQ(s.report->finding_count, 2u);
        lp_finding_say(s.report, &s.report->findings[0], true, &words);
        CHECK(strstr(words.headline, same ? "wait of actor spent 100%" : "wait spent 100%") == words.headline);
        CHECK_STR(words.anchor, "wait");
        lp_finding_say(s.report, &s.report->findings[1], true, &words);
        CHECK(strstr(words.headline, same ? "wait of learner spent 100%" : "join spent 100%") == words.headline);
        end(&s);
    }
}

/* Of two hosts the one where the role runs, not the one with the fewest CPUs. */
static void starved_where_it_runs(void)
{
    lp_usage_host hosts[2];
    lp_finding_words words;
    scene s;

    start(&s);
    s.workers[s.count++] = one_phase("actor", 1, "step", 100.0, 0.60, 0.40);
    s.workers[s.count++] = one_phase("learner", 2, "train", 100.0, 1.0, 0.0);
    s.workers[1]->id.host = made_str("node08");
    derive(&s);
    hosts[0] = hosts[1] = s.host;
    hosts[0].cpus = hosts[0].online = 16.0;
    hosts[0].quota = (double)NAN;
    hosts[1].host = 1;
    hosts[1].cpus = 1.0;
    s.usage.hosts = hosts;
    s.usage.host_count = 2;
    CHECK_EQ(lp_report_add_usage(s.report, &s.usage), LP_OK);
    const lp_finding *found = only(&s, "starved", &words);
    if (found)
        CHECK(strstr(words.detail, "node07 lets 4 recorded process(es) use 16.0 core(s)") != NULL);
    end(&s);
}

/* Of two hosts each has room for its own processes: 8 GB at 2 MB a second are 4096 s, however fast the other one's grow. */
static void memory_lasts_for_those_of_its_host(void)
{
    lp_usage_process processes[3];
    lp_usage_host hosts[2];
    lp_finding_words words;
    scene s;
    const double mb = 1024.0 * 1024.0;

    start(&s);
    for (int64_t pid = 1; pid <= 3; pid++)
        s.workers[s.count++] = one_phase("actor", pid, "step", 100.0, 1.0, 0.0);
    s.workers[2]->id.host = made_str("node08");
    derive(&s);
    for (uint32_t i = 0; i < 3; i++) {
        double slope = (i == 0 ? 1.5 : i == 1 ? 0.5 : 1.0) * mb;
        processes[i] = (lp_usage_process){
            .worker = i,
            .seconds = 100.0,
            .rss = {.peak = 300 * mb, .slope = slope, .slope_error = 1.0, .late_slope = slope, .late_error = 1.0}};
    }
    hosts[0] = hosts[1] = s.host;
    hosts[1].host = 1;
    hosts[0].available_least = hosts[1].available_least = 8192 * mb;
    s.usage.processes = processes;
    s.usage.process_count = 3;
    s.usage.hosts = hosts;
    s.usage.host_count = 2;
    CHECK_EQ(lp_report_add_usage(s.report, &s.usage), LP_OK);
    const lp_finding *found = only(&s, "memory-growth", &words);
    if (found)
        CHECK_NEAR(found->value[2], 4096.0, 1e-6);
    end(&s);
}

static void slow_worker(void)
{
    static const struct {
        double slowest_s;
        bool found;
    } cases[] = {{72.0, true}, {45.0, false}}; /* 1.60 times the mean of 45 s, 1.18 times that of 38 s */
    lp_finding_words words;
    scene s;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start(&s);
        for (int64_t pid = 1; pid <= 3; pid++)
            s.workers[s.count++] = one_phase("actor", pid, "play", 36.0, 1.0, 0.0);
        s.workers[s.count++] = one_phase("actor", 4, "play", cases[i].slowest_s, 1.0, 0.0);
        derive(&s);
        const lp_finding *found = only(&s, cases[i].found ? "slow-worker" : NULL, &words);
        if (found) {
            CHECK_NEAR(found->value[0], 72.0 / 45.0, 1e-6);
            CHECK_NEAR(found->share, 27.0 / 100.0, 1e-6); /* 27 s more than the mean, of a run of 100 */
            CHECK_STR(words.headline, "node07:4 took 1.60 times the mean of the 4 processes of actor");
        }
        end(&s);
    }
    start(&s); /* one that waits for the others, whose role it has since it forked them */
    for (int64_t pid = 1; pid <= 3; pid++)
        s.workers[s.count++] = one_phase("main", pid, "task", 20.0, 1.0, 0.0);
    s.workers[s.count++] = one_phase("main", 4, "map", 90.0, 1.0, 0.0);
    derive(&s);
    only(&s, NULL, &words);
    end(&s);
    start(&s); /* and of these the slow one */
    for (int64_t pid = 1; pid <= 3; pid++)
        s.workers[s.count++] = one_phase("main", pid, "task", 36.0, 1.0, 0.0);
    s.workers[s.count++] = one_phase("main", 4, "map", 90.0, 1.0, 0.0);
    s.workers[s.count++] = one_phase("main", 5, "task", 72.0, 1.0, 0.0);
    derive(&s);
    if (only(&s, "slow-worker", &words))
        CHECK_STR(words.headline,
                  "node07:5 took 1.60 times the mean of the 4 processes of main that spend their time in the "
                  "same phase");
    end(&s);
    start(&s); /* two: the mean is half the slow one */
    s.workers[s.count++] = one_phase("actor", 1, "play", 20.0, 1.0, 0.0);
    s.workers[s.count++] = one_phase("actor", 2, "play", 80.0, 1.0, 0.0);
    derive(&s);
    only(&s, NULL, &words);
    end(&s);
}

/* One that worked from `from_s` to `to_s` of the run, all the time. */
static lp_worker *while_it_lived(int64_t pid, double from_s, double to_s)
{
    lp_worker *worker = one_phase("actor", pid, "play", to_s - from_s, 1.0, 0.0);

    worker->id.started_ns += (uint64_t)(from_s * 1e9);
    worker->elapsed_ns = (uint64_t)((to_s - from_s) * 1e9);
    worker->written_ns = worker->id.started_ns + worker->elapsed_ns;
    return worker;
}

/* What ran longer is slow only beside those that had as long. */
static void slow_among_others_that_ended(void)
{
    lp_finding_words words;
    scene s;

    start(&s); /* one was killed in the middle: 1.26 times the mean of all, none of those that were left alone */
    for (int64_t pid = 1; pid <= 5; pid++)
        s.workers[s.count++] = while_it_lived(pid, 0.0, 100.0);
    s.workers[s.count++] = while_it_lived(6, 0.0, 10.0);
    s.workers[s.count++] = while_it_lived(7, 0.0, 10.0);
    for (unsigned i = 5; i < 7; i++) {
        s.workers[i]->final = false;
        s.workers[i]->unclean = true;
        s.workers[i]->end.code = -9;
    }
    derive(&s);
    only(&s, NULL, &words);
    end(&s);
    start(&s); /* a server that renews two workers, which left by themselves: 1.33 times the mean */
    for (int64_t pid = 1; pid <= 4; pid++)
        s.workers[s.count++] = while_it_lived(pid, 0.0, pid <= 2 ? 100.0 : 50.0);
    for (int64_t pid = 5; pid <= 6; pid++)
        s.workers[s.count++] = while_it_lived(pid, 51.0, 100.0);
    derive(&s);
    only(&s, NULL, &words);
    end(&s);
    for (int killed = 0; killed < 2; killed++) {
        start(&s); /* four in each of two epochs, one of them slow; a pool may kill its workers at the end */
        for (int64_t pid = 1; pid <= 8; pid++) {
            double from = pid <= 4 ? 0.0 : 50.0;
            s.workers[s.count++] = while_it_lived(pid, from, from + (pid == 8 ? 50.0 : killed ? 45.0 : 25.0));
        }
        for (unsigned i = 0; killed && i < s.count; i++) {
            s.workers[i]->final = false;
            s.workers[i]->unclean = true;
            s.workers[i]->end.code = -15;
            if (i < 7)
                s.workers[i]->tree.phases[1].wall_ns = 25000000000u;
        }
        derive(&s);
        const lp_finding *found = only(&s, "slow-worker", &words);
        if (found) {
            CHECK_NEAR(found->value[0], 50.0 / 31.25, 1e-6); /* of four: 50 and three of 25 */
            CHECK_STR(
                words.headline,
                "node07:8 took 1.60 times the mean of the 4 processes of actor that ran beside it in the same phase");
        }
        end(&s);
    }
}

static void gpu_idle(void)
{
    static const struct {
        unsigned percent; /* median in the waiting phase */
        double seconds;   /* that it was open, of 100 */
        unsigned used;    /* percent in the other one */
        bool found;
    } cases[] = {{5, 40.0, 90, true}, {25, 40.0, 90, false}, {5, 15.0, 90, false}, {5, 40.0, 30, false}};
    lp_finding_words words;
    scene s;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start(&s);
        s.workers[s.count++] = one_phase("learner", 1, "step", 100.0, 1.0, 0.0);
        s.phases[0] = (lp_usage_phase){.path = made_str("step/load"), .seconds = cases[i].seconds, .gpu_samples = 20};
        s.phases[0].gpu_busy[cases[i].percent] = 20;
        s.phases[1] =
            (lp_usage_phase){.path = made_str("step/forward"), .seconds = 100.0 - cases[i].seconds, .gpu_samples = 30};
        s.phases[1].gpu_busy[cases[i].used] = 30;
        s.usage.phase_count = 2;
        derive(&s);
        const lp_finding *found = only(&s, cases[i].found ? "gpu-idle" : NULL, &words);
        if (found) {
            CHECK_NEAR(found->value[0], 0.05, 1e-9);
            CHECK_NEAR(found->value[1], 0.90, 1e-9);
            CHECK_STR(words.headline, "The GPU idles while step/load is open, 40% of the sampled time");
            CHECK_STR(words.anchor, "step/load");
        }
        end(&s);
    }
}

static void the_hosts_trouble(void)
{
    lp_finding_words words;
    scene s;

    start(&s);
    s.workers[s.count++] = one_phase("actor", 1, "play", 100.0, 1.0, 0.0);
    s.host.kills = 2.0;
    s.host.memory_limit = 8.0 * 1024 * 1024 * 1024;
    derive(&s);
    const lp_finding *found = only(&s, "oom-killed", &words);
    if (found) {
        CHECK(isnan(found->share));
        CHECK_STR(words.headline, "node07: the kernel killed 2 process(es) for want of memory");
        CHECK_STR(words.detail, "The memory limit of its cgroup is 8.0 GB.");
    }
    end(&s);
    for (int bound = 0; bound < 2; bound++) {
        start(&s);
        s.workers[s.count++] = one_phase("actor", 1, "play", 100.0, 1.0, 0.0);
        s.host.psi_memory_full = bound ? 0.06 : 0.04;
        derive(&s);
        only(&s, bound ? "memory-pressure" : NULL, &words);
        end(&s);
        start(&s);
        s.workers[s.count++] = one_phase("actor", 1, "play", 100.0, 1.0, 0.0);
        s.host.psi_io_full = bound ? 0.25 : 0.15;
        derive(&s);
        only(&s, bound ? "disk-pressure" : NULL, &words);
        end(&s);
    }
}

/* What costs most stands first; what is no matter of time before it. */
static void ranked(void)
{
    scene s;

    start(&s);
    s.workers[s.count++] = one_phase("learner", 1, "queue_get", 100.0, 0.02, 0.0);
    s.workers[s.count++] = one_phase("actor", 2, "play", 100.0, 0.80, 0.20);
    s.host.kills = 1.0;
    derive(&s);
    CHECK_EQ(s.report->finding_count, 3u);
    if (s.report->finding_count == 3) {
        CHECK_EQ(s.report->findings[0].kind, LP_FINDING_KILLED);
        CHECK_EQ(s.report->findings[1].kind, LP_FINDING_BLOCKED);
        CHECK_EQ(s.report->findings[2].kind, LP_FINDING_STARVED);
    }
    end(&s);
}

static void a_trial_has_none(void) /* less than a second of process time */
{
    lp_finding_words words;
    scene s;

    start(&s);
    s.workers[s.count++] = one_phase("main", 1, "sleep", 0.9, 0.0, 0.0);
    derive(&s);
    only(&s, NULL, &words);
    end(&s);
}

int main(void)
{
    RUN(starved);
    RUN(blocked);
    RUN(tasks_beside_each_other_are_not_summed);
    RUN(a_path_of_two_roles);
    RUN(starved_where_it_runs);
    RUN(memory_lasts_for_those_of_its_host);
    RUN(slow_worker);
    RUN(slow_among_others_that_ended);
    RUN(gpu_idle);
    RUN(the_hosts_trouble);
    RUN(ranked);
    RUN(a_trial_has_none);
    return check_done();
}
