/* What a report derives, against values worked out by hand. */
#include "check.h"
#include "make_runs.h"

#include <math.h>

#include "analysis/report.h"

static lp_report *report_of(const lp_run *run)
{
    lp_report *report = NULL;

    if (lp_report_new(run, &report) != LP_OK)
        abort();
    return report;
}

static const lp_report_phase *phase_of(const lp_report *report, uint32_t role, const char *path)
{
    const lp_report_role *at = &report->roles[role];

    for (uint32_t i = 0; i < at->phase_count; i++)
        if (at->phases[i].path.size == strlen(path) && memcmp(at->phases[i].path.data, path, strlen(path)) == 0)
            return &at->phases[i];
    printf("# no phase %s\n", path);
    abort();
}

static lp_run *one(lp_worker *worker)
{
    lp_run *run = made_or_die(lp_run_new());

    made_nesting(worker);
    made_add(run, worker);
    return made_finish(run);
}

static void shares_and_self(void)
{
    lp_run *run = made_mcts();
    lp_report *report = report_of(run);
    const lp_report_phase *select = phase_of(report, 1, "iteration/select");

    CHECK_EQ(select->entries, 8000);
    CHECK_EQ(select->wall_ns, 5 * 2000ull * 55600);
    CHECK_EQ(select->self_ns, 5 * (2000ull * 55600 - 6325ull * 4500 - 6325ull * 900));
    CHECK_NEAR(select->share, 556.0 / 924.0, 1e-6);
    CHECK_NEAR(select->wait, 0.002, 1e-6);
    CHECK_NEAR(select->starved, 0.001, 1e-6);
    CHECK_NEAR(select->blocked, 0.001, 1e-6);
    CHECK_EQ(select->depth, 2);
    const lp_report_breakdown *breakdown = &report->roles[1].breakdown;
    REQUIRE(breakdown->row_count == 5);
    CHECK_EQ(breakdown->total_ns, phase_of(report, 1, "iteration")->wall_ns);
    CHECK(!breakdown->chain && !breakdown->overlapping);
    CHECK_NEAR(breakdown->rows[0].share, 556.0 / 924.0, 1e-6);
    CHECK_EQ(breakdown->rows[4].phase, LP_NO_PHASE);
    double sum = 0.0;
    for (uint32_t i = 0; i < breakdown->row_count; i++)
        sum += breakdown->rows[i].share;
    CHECK_NEAR(sum, 1.0, 1e-9);
    lp_report_free(report);
    lp_run_free(run);
}

static void counters_name_their_denominator(void)
{
    lp_run *run = made_mcts();
    lp_report *report = report_of(run);
    const lp_report_phase *score = phase_of(report, 1, "iteration/select/score_children");

    REQUIRE(score->counter_count == 1);
    const lp_report_counter *children = &score->counters[0];
    CHECK(children->total == 4 * 6325 * 8);
    CHECK_EQ(children->min, 8);
    CHECK_EQ(children->max, 8);
    CHECK_NEAR(children->p50, 8.0, 0.0);
    /* per second and per piece of the wall time of that very phase */
    CHECK_NEAR(children->rate_per_s, 202400.0 / ((double)score->wall_ns / 1e9), 1e-6);
    CHECK_NEAR(children->ns_each, (double)score->wall_ns / 202400.0, 1e-9);
    lp_report_free(report);
    lp_run_free(run);
}

/* Amounts of 2^56 and more lie in one cell: which of them is in the middle is not known, and not made up. */
static void amounts_beyond_the_histogram(void)
{
    static lp_cell few[] = {{8, 3}, {LP_HIST_CELLS - 1, 1}}, many[] = {{8, 1}, {LP_HIST_CELLS - 1, 3}};

    for (int alone = 0; alone < 2; alone++) {
        lp_worker *worker = made_worker("main", "h", 1);
        lp_counter *counter = NULL;
        made_entries(worker, "a", 4, MS, MS, 1.0, 0.0);
        if (lp_phase_counter(&worker->tree, made_path(worker, "a"), made_str("big"), &counter) != LP_OK)
            abort();
        counter->calls = 4;
        counter->min = 8;
        counter->max = INT64_MAX;
        counter->positive = (lp_cells){.at = alone ? few : many, .size = 2};
        lp_run *run = one(worker);
        lp_report *report = report_of(run);
        const lp_report_counter *big = &phase_of(report, 0, "a")->counters[0];
        CHECK(alone ? big->p50 == 8.0 && big->p95 == (double)INT64_MAX : isnan(big->p50) && isnan(big->p95));
        lp_report_free(report);
        lp_run_free(run);
    }
}

static void negative_amounts_have_quantiles(void)
{
    lp_worker *worker = made_worker("main", "h", 1);
    lp_counter *counter = NULL;

    made_entries(worker, "a", 10, MS, MS, 1.0, 0.0);
    if (lp_phase_counter(&worker->tree, made_path(worker, "a"), made_str("delta"), &counter) != LP_OK)
        abort();
    counter->calls = 10; /* -9 -5 -5 -1 0 1 2 3 4 20 */
    counter->total = 10;
    counter->min = -9;
    counter->max = 20;
    static lp_cell negative[] = {{1, 1}, {5, 2}, {9, 1}},
                   positive[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {20, 1}};
    counter->negative = (lp_cells){.at = negative, .size = 3};
    counter->positive = (lp_cells){.at = positive, .size = 6};
    lp_run *run = one(worker);
    lp_report *report = report_of(run);
    const lp_report_counter *delta = &phase_of(report, 0, "a")->counters[0];
    CHECK_NEAR(delta->p50, 0.0, 0.0);
    CHECK_NEAR(delta->p95, 20.0, 0.0);
    lp_report_free(report);
    lp_run_free(run);
}

static void quantiles_stay_within_minimum_and_maximum(void)
{
    lp_worker *worker = made_worker("main", "h", 1);

    made_entries(worker, "a", 1, 712345678, 712345678, 1.0, 0.0);
    lp_run *run = one(worker);
    lp_report *report = report_of(run);
    const lp_report_phase *a = phase_of(report, 0, "a");
    CHECK_NEAR(a->p50_ns, 712345678.0, 0.0);
    CHECK_NEAR(a->p99_ns, 712345678.0, 0.0);
    lp_report_free(report);
    lp_run_free(run);
}

static void open_phases_count_in_shares(void)
{
    lp_worker *worker = made_worker("main", "h", 1);

    /* main has been open for 10 s; in it 4 s of finished work, and 1 s of work that goes on. */
    made_entries(worker, "main/work", 4, SECOND, SECOND, 1.0, 0.0);
    made_open(worker, "main", 10 * SECOND, 1);
    made_open(worker, "main/work", SECOND, 1);
    lp_run *run = one(worker);
    lp_report *report = report_of(run);
    const lp_report_phase *top = phase_of(report, 0, "main"), *work = phase_of(report, 0, "main/work");
    CHECK(!top->synthetic);
    CHECK_EQ(top->entries, 0);
    CHECK_EQ(top->extent_ns, 10 * SECOND);
    CHECK_EQ(top->open_self_ns, 5 * SECOND);
    CHECK_EQ(work->open_self_ns, SECOND);
    CHECK_NEAR(work->share, 0.5, 1e-9);
    CHECK(isnan(top->p50_ns) && isnan(top->wait));
    CHECK_EQ(report->open_count, 1);
    CHECK_EQ(report->open[0].longest_ns, SECOND);
    lp_report_free(report);
    lp_run_free(run);
}

static void a_wait_that_could_not_be_split(void)
{
    lp_worker *worker = made_worker("main", "h", 1);

    made_entries(worker, "none", 10, MS, MS, 0.4, 0.0)->split_wait_ns = 0;
    lp_phase *half = made_entries(worker, "half", 10, MS, MS, 0.4, 0.1);
    half->split_wait_ns /= 2;
    lp_run *run = one(worker);
    lp_report *report = report_of(run);
    CHECK_NEAR(phase_of(report, 0, "none")->wait, 0.6, 1e-9);
    CHECK(isnan(phase_of(report, 0, "none")->blocked));
    CHECK(isnan(phase_of(report, 0, "none")->starved));
    CHECK_NEAR(phase_of(report, 0, "half")->blocked, 0.2, 1e-9);
    CHECK_NEAR(phase_of(report, 0, "half")->starved, 0.1, 1e-9);
    CHECK_NEAR(phase_of(report, 0, "half")->unsplit, 0.3, 1e-9);
    lp_report_free(report);
    lp_run_free(run);
}

static void bytes_of_io_phases(void)
{
    lp_run *run = made_copier();
    lp_report *report = report_of(run);
    const lp_report_phase *copy = phase_of(report, 0, "per_item/copy_one");

    CHECK(copy->io.known);
    CHECK_EQ(copy->io.write_bytes, 4000 * 4096);
    CHECK_EQ(copy->io.read_bytes, 0);
    CHECK_EQ(copy->io.cached_read_bytes, 4000 * 4224);
    CHECK_NEAR(copy->io.rate, 4000.0 * 4096 / ((double)copy->wall_ns / 1e9), 1e-3);
    CHECK_EQ(copy->counter_count, 0);     /* not among the counters of the text … */
    CHECK_EQ(copy->all_counter_count, 3); /* … but in the document */
    lp_report_free(report);
    lp_run_free(run);
}

static void nothing_could_be_read_is_not_zero_bytes(void)
{
    lp_worker *worker = made_worker("main", "h", 1);
    lp_phase *phase = made_entries(worker, "a", 10, MS, MS, 1.0, 0.0);

    phase->flags |= LP_PHASE_IO;
    phase->io_missing = 10;
    lp_run *run = one(worker);
    lp_report *report = report_of(run);
    CHECK(!phase_of(report, 0, "a")->io.known);
    CHECK_EQ(report->io_missing_count, 1);
    lp_report_free(report);
    lp_run_free(run);
}

static void without_branching_the_levels(void)
{
    lp_run *run = made_chain();
    lp_report *report = report_of(run);
    const lp_report_breakdown *breakdown = &report->roles[0].breakdown;

    CHECK(breakdown->chain);
    REQUIRE(breakdown->row_count == 3);
    CHECK_NEAR(breakdown->rows[0].share, 1.0, 0.0);
    CHECK_NEAR(breakdown->rows[1].share, 0.9, 1e-9);
    CHECK_NEAR(breakdown->rows[2].share, 0.5, 1e-9);
    /* main was entered once: the distribution is of what was entered more often */
    CHECK_EQ(report->roles[0].phases[report->roles[0].iterations].entries, 100);
    lp_report_free(report);
    lp_run_free(run);
}

static void overlapping_children_are_sums(void)
{
    lp_worker *worker = made_worker("main", "h", 1);

    made_entries(worker, "serve", 1, SECOND, SECOND, 0.1, 0.0)->flags |= LP_PHASE_OVERLAP;
    made_entries(worker, "serve/a", 1000, 100 * MS, 100 * MS, 0.0, 0.0);
    made_entries(worker, "serve/b", 10, 100 * MS, 100 * MS, 0.0, 0.0);
    made_nesting(worker);
    worker->tree.phases[made_path(worker, "serve")].child_ns = 200 * MS; /* covered, not summed */
    lp_run *run = made_or_die(lp_run_new());
    made_add(run, worker);
    made_finish(run);
    lp_report *report = report_of(run);
    CHECK(report->roles[0].breakdown.overlapping);
    CHECK_EQ(report->roles[0].breakdown.row_count, 2); /* no Other: nothing can be said about the rest */
    CHECK_NEAR(report->roles[0].breakdown.rows[0].share, 100.0, 1e-9);
    CHECK_EQ(phase_of(report, 0, "serve")->self_ns, 800 * MS);
    CHECK_EQ(report->overlapping_count, 1);
    lp_report_free(report);
    lp_run_free(run);
}

static void own_cost(void)
{
    lp_run *run = made_troubled();
    lp_report *report = report_of(run);
    const lp_report_phase *fetch = phase_of(report, 1, "fetch");

    CHECK_NEAR(fetch->own_share, 90.0 / 400.0, 1e-9); /* 90 ns of a mean of 400 */
    CHECK(fetch->untrusted);
    CHECK(!phase_of(report, 1, "decode")->untrusted);
    CHECK_EQ(report->untrusted_count, 1);
    CHECK_NEAR(report->own_cost_ns, 90.0, 1e-9);
    CHECK(report->own_share > 0.0 && report->own_share < 0.01);
    lp_report_free(report);
    lp_run_free(run);
}

/* An entry that sample= leaves out costs its call, which is most of it. */
static void own_cost_of_what_is_left_out(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "node07", 1);

    made_entries(worker, "all", 1, SECOND, SECOND, 1.0, 0.0);
    made_entries(worker, "all/step", 1000000, 800, 1000, 1.0, 0.0)->stride = 100;
    made_count(worker, "all/step", "n", 1000000, 1, 1);
    made_nesting(worker);
    worker->elapsed_ns = 2 * SECOND;
    made_add(run, worker);
    made_finish(run);
    lp_report *report = report_of(run);
    double cost = 1e6 * (90e-9 + 20e-9) + 90e-9; /* seconds: an entry 90 ns, a count 20 ns, as made_worker has it */
    CHECK_NEAR(report->own_share, cost / 2.0, 1e-9);
    CHECK_NEAR(report->roles[0].own_share, cost / 1.0, 1e-9);
    CHECK_NEAR(phase_of(report, 0, "all")->own_share, cost / 1.0, 1e-9);
    lp_report_free(report);
    lp_run_free(run);
}

static void lists(void)
{
    lp_run *run = made_troubled();
    lp_report *report = report_of(run);

    CHECK_EQ(report->running, 4);
    CHECK_EQ(report->died, 1);
    CHECK_EQ(report->last_seen, 1);
    CHECK_EQ(report->closed, 1);
    CHECK_EQ(report->asked_count, 2);
    CHECK_MEM(report->asked[1].option.data, "backend=torch", 13);
    CHECK_EQ(report->source_count, 2);
    CHECK_EQ(report->sources[0].workers, 6);
    CHECK_EQ(report->attempt_count, 1);
    CHECK_EQ(report->self_nested_count, 1);
    CHECK_EQ(report->sampled_count, 1);
    CHECK_EQ(report->async_count, 1);
    CHECK_EQ(report->private_memory_count, 1);
    CHECK_EQ(report->health.folded_paths, 37);
    /* three running workers wait in queue_get, one is in expand; one died there, one was last seen there */
    REQUIRE(report->open_count == 4);
    CHECK_EQ(report->open[0].worker_count, 3);
    CHECK_EQ(report->open[0].longest_ns, 160 * SECOND);
    lp_report_free(report);
    lp_run_free(run);
}

int main(void)
{
    RUN(shares_and_self);
    RUN(counters_name_their_denominator);
    RUN(amounts_beyond_the_histogram);
    RUN(negative_amounts_have_quantiles);
    RUN(quantiles_stay_within_minimum_and_maximum);
    RUN(open_phases_count_in_shares);
    RUN(a_wait_that_could_not_be_split);
    RUN(bytes_of_io_phases);
    RUN(nothing_could_be_read_is_not_zero_bytes);
    RUN(without_branching_the_levels);
    RUN(overlapping_children_are_sums);
    RUN(own_cost);
    RUN(own_cost_of_what_is_left_out);
    RUN(lists);
    return check_done();
}
