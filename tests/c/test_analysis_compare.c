/* Two runs phase by phase. */
#include "check.h"
#include "make_runs.h"

#include "analysis/compare.h"
#include "render/render.h"

static lp_run *run_of(unsigned b)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "h", 1);

    made_entries(worker, "slower", 100, (b ? 20 : 10) * MS, (b ? 20 : 10) * MS, 1.0, 0.0);
    made_entries(worker, "same", 100, 10 * MS, 10 * MS, 1.0, 0.0);
    made_entries(worker, "faster", 100, (b ? 5 : 10) * MS, (b ? 5 : 10) * MS, 1.0, 0.0);
    made_entries(worker, "thin", 3, (b ? 50 : 10) * MS, (b ? 50 : 10) * MS, 1.0, 0.0);
    lp_phase *tail = made_entries(worker, "tail", 100, 10 * MS, 10 * MS, 1.0, 0.0);
    if (b) { /* one entry in a hundred took a second: the mean doubles, the median stays */
        tail->wall_ns += SECOND;
        tail->max_ns = SECOND;
    }
    made_entries(worker, b ? "new/inner" : "old", 5, MS, MS, 1.0, 0.0);
    made_add(run, worker);
    return made_finish(run);
}

static lp_compared compared(lp_run *run)
{
    return (lp_compared){lp_run_tree(run), lp_run_open_entries(run)};
}

static const lp_delta *row_of(const lp_comparison *comparison, const char *path)
{
    for (uint32_t i = 0; i < comparison->count; i++)
        if (comparison->rows[i].path.size == strlen(path) &&
            memcmp(comparison->rows[i].path.data, path, strlen(path)) == 0)
            return &comparison->rows[i];
    printf("# no row %s\n", path);
    abort();
}

static void rows_and_marks(void)
{
    lp_run *a = run_of(0), *b = run_of(1);
    lp_comparison *comparison = NULL;

    REQUIRE(lp_compare(compared(a), compared(b), &comparison) == LP_OK);
    CHECK_EQ(comparison->count, 7);
    CHECK(comparison->rows[0].only_in && comparison->rows[1].only_in && !comparison->rows[2].only_in);
    CHECK_MEM(comparison->rows[2].path.data, "thin", 4); /* 5x */
    CHECK_EQ(row_of(comparison, "old")->only_in, 'A');
    CHECK_EQ(row_of(comparison, "new/inner")->only_in, 'B');
    CHECK_EQ(row_of(comparison, "new/inner")->samples, 5);
    CHECK_EQ(row_of(comparison, "new/inner")->depth, 2);
    CHECK_NEAR(row_of(comparison, "slower")->ratio, 2.0, 1e-9);
    CHECK_NEAR(row_of(comparison, "slower")->percent, 100.0, 1e-9);
    CHECK_NEAR(row_of(comparison, "slower")->p50_ratio, 2.0, 0.04); /* within the histogram's 1.6 % on both sides */
    CHECK(!row_of(comparison, "slower")->tail_moved);
    CHECK_NEAR(row_of(comparison, "same")->percent, 0.0, 1e-9);
    CHECK_NEAR(row_of(comparison, "faster")->percent, -50.0, 1e-9);
    CHECK(row_of(comparison, "thin")->thin && !row_of(comparison, "same")->thin);
    CHECK(row_of(comparison, "tail")->tail_moved);
    CHECK_NEAR(row_of(comparison, "tail")->ratio, 2.0, 1e-9);
    CHECK_NEAR(row_of(comparison, "tail")->p50_ratio, 1.0, 1e-9);
    for (uint32_t i = 3; i < comparison->count; i++)
        CHECK(comparison->rows[i - 1].ratio >= comparison->rows[i].ratio);
    lp_comparison_free(comparison);
    lp_run_free(a);
    lp_run_free(b);
}

/* Of a phase with sample= those that were measured are what is known. */
static void evidence_is_what_was_measured(void)
{
    static const struct {
        uint32_t stride;
        bool thin;
    } cases[] = {{0, false}, {10, false}, {100, true}}; /* 2,000 entries, 200, 20 */
    lp_run *a = made_or_die(lp_run_new());

    made_add(a, made_actor(1, 1));
    made_finish(a);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_run *b = made_or_die(lp_run_new());
        lp_worker *worker = made_actor(1, 1);
        lp_comparison *comparison = NULL;
        worker->tree.phases[made_path(worker, "iteration")].stride = cases[i].stride;
        made_add(b, worker);
        made_finish(b);
        REQUIRE(lp_compare(compared(a), compared(b), &comparison) == LP_OK);
        CHECK_EQ(row_of(comparison, "iteration")->thin, cases[i].thin);
        CHECK_EQ(row_of(comparison, "iteration")->samples, 2000);
        lp_comparison_free(comparison);
        lp_run_free(b);
    }
    lp_run_free(a);
}

/* As docs/report.md has it: one moved by more than 10 %, the other by less than 5 %; what fell to nothing fell by all of it. */
static void by_how_much_it_moved(void)
{
    static const struct {
        uint64_t mean, median; /* of B, where A has 1000 ns */
        double percent;
        bool tail;
    } cases[] = {{905, 1000, -9.5, false}, {895, 1000, -10.5, true}, {1105, 1000, 10.5, true},
                 {1095, 1000, 9.5, false}, {895, 930, -10.5, false}, {0, 0, -100.0, false}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_run *runs[2];
        lp_comparison *comparison = NULL;
        for (unsigned r = 0; r < 2; r++) {
            lp_worker *worker = made_worker("main", "h", 1);
            uint64_t median = r ? cases[i].median : 1000, mean = r ? cases[i].mean : 1000;
            made_entries(worker, "p", 100, median, median, 1.0, 0.0)->wall_ns = 100 * mean;
            runs[r] = made_or_die(lp_run_new());
            made_add(runs[r], worker);
            made_finish(runs[r]);
        }
        REQUIRE(lp_compare(compared(runs[0]), compared(runs[1]), &comparison) == LP_OK);
        CHECK_NEAR(row_of(comparison, "p")->percent, cases[i].percent, 1e-9);
        CHECK_EQ(row_of(comparison, "p")->tail_moved, cases[i].tail);
        lp_comparison_free(comparison);
        lp_run_free(runs[0]);
        lp_run_free(runs[1]);
    }
}

static void the_text(void)
{
    static lp_sink sink;
    static const char *const wanted[] = {"A = one\nB = t\\x1bwo\n",
                                         "old",
                                         "only in A",
                                         "only in B",
                                         "+100.0%",
                                         "+100.0%~",
                                         "+400.0%?",
                                         "-50.0%",
                                         "fewer than 30 entries",
                                         "mean 2.00x   median 1.00x"};
    lp_run *a = run_of(0), *b = run_of(1);
    lp_comparison *comparison = NULL;

    REQUIRE(lp_compare(compared(a), compared(b), &comparison) == LP_OK);
    lp_sink_open_memory(&sink);
    CHECK_EQ(lp_render_comparison_text(comparison, "one", "t\x1bwo", (lp_text_options){.utf8 = true}, &sink), LP_OK);
    lp_sink_flush(&sink);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        bool found = strstr(sink.data, wanted[i]) != NULL;
        if (!found)
            printf("# not found: %s\n", wanted[i]);
        CHECK(found);
    }
    lp_sink_free(&sink);
    lp_comparison_free(comparison);
    lp_run_free(a);
    lp_run_free(b);
}

/* What a run has entered it has, also when it never finished it. Of several roles, whose trees are merged first. */
static void what_is_only_open(void)
{
    static const struct {
        const char *path;
        char only_in, unfinished_in;
        unsigned open_a, open_b;
        bool thin;
    } cases[] = {{"opens in A/below", 0, 'A', 1, 0, false},
                 {"opens in A", 0, 'A', 3, 0, true},
                 {"opens in B", 0, 'B', 0, 2, false},
                 {"only B", 'B', 0, 0, 0, false},
                 {"both", 0, 0, 2, 2, false}};
    static lp_sink sink;
    lp_run *runs[2];
    lp_comparison *comparison = NULL;

    for (unsigned r = 0; r < 2; r++) {
        runs[r] = made_or_die(lp_run_new());
        for (unsigned role = 0; role < 2; role++) {
            lp_worker *worker = made_worker(role ? "actor" : "main", "h", role + 1);
            made_entries(worker, "both", 50, MS, MS, 1.0, 0.0);
            made_open(worker, "both", MS, 1);
            made_open(worker, "neither", MS, 1);
            if (r == 0) {
                made_entries(worker, "opens in B", 50, MS, MS, 1.0, 0.0);
                made_open(worker, "opens in A", MS, 1);
            } else {
                made_open(worker, "opens in B", MS, 1);
            }
            made_add(runs[r], worker);
        }
        lp_worker *last = made_worker("actor", "h", 3);
        if (r == 0) {
            made_open(last, "opens in A", MS, 1);
            made_open(last, "opens in A/below", MS, 1);
        } else {
            made_entries(last, "opens in A", 2, MS, MS, 1.0, 0.0);
            made_entries(last, "opens in A/below", 40, MS, MS, 1.0, 0.0);
            made_entries(last, "only B", 40, 2 * MS, 2 * MS, 1.0, 0.0);
        }
        made_add(runs[r], last);
        made_finish(runs[r]);
    }
    REQUIRE(lp_compare(compared(runs[0]), compared(runs[1]), &comparison) == LP_OK);
    CHECK_EQ(comparison->count, 5); /* without "neither" */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lp_delta *row = row_of(comparison, cases[i].path);
        CHECK_EQ(row->only_in, cases[i].only_in);
        CHECK_EQ(row->unfinished_in, cases[i].unfinished_in);
        CHECK_EQ(row->open_a, cases[i].open_a);
        CHECK_EQ(row->open_b, cases[i].open_b);
        CHECK_EQ(row->thin, cases[i].thin);
    }
    /* By wall time: 100 ms, 80, 40, 2; what has a ratio comes last. */
    CHECK_MEM(comparison->rows[0].path.data, "opens in B", 10);
    CHECK_MEM(comparison->rows[1].path.data, "only B", 6);
    CHECK_MEM(comparison->rows[2].path.data, "opens in A/below", 16);
    CHECK_EQ(comparison->rows[3].samples, 2);
    lp_sink_open_memory(&sink);
    CHECK_EQ(lp_render_comparison_text(comparison, "a", "b", (lp_text_options){0}, &sink), LP_OK);
    lp_sink_flush(&sink);
    CHECK(strstr(sink.data, "open in A          2\n") && strstr(sink.data, "open in B        100\n"));
    CHECK(strstr(sink.data, "only in B         40\n") && !strstr(sink.data, "only in A") && !strstr(sink.data, "?"));
    lp_sink_free(&sink);
    lp_comparison_free(comparison);
    lp_run_free(runs[0]);
    lp_run_free(runs[1]);
}

static void a_run_with_itself(void)
{
    lp_run *a = made_mcts();
    lp_comparison *comparison = NULL;

    REQUIRE(lp_compare(compared(a), compared(a), &comparison) == LP_OK);
    CHECK_EQ(comparison->count, 11);
    for (uint32_t i = 0; i < comparison->count; i++) {
        CHECK_NEAR(comparison->rows[i].percent, 0.0, 0.0);
        CHECK(!comparison->rows[i].only_in && !comparison->rows[i].tail_moved);
    }
    lp_comparison_free(comparison);
    lp_run_free(a);
}

static void with_nothing(void)
{
    lp_run *a = made_empty(), *b = made_empty();
    lp_comparison *comparison = NULL;

    REQUIRE(lp_compare(compared(a), compared(b), &comparison) == LP_OK);
    CHECK_EQ(comparison->count, 0);
    lp_comparison_free(comparison);
    lp_run_free(a);
    lp_run_free(b);
    lp_comparison_free(NULL);
}

int main(void)
{
    RUN(rows_and_marks);
    RUN(evidence_is_what_was_measured);
    RUN(by_how_much_it_moved);
    RUN(the_text);
    RUN(what_is_only_open);
    RUN(a_run_with_itself);
    RUN(with_nothing);
    return check_done();
}
