/* Merging workers into a run: order does not matter, memory stays bounded, nothing is counted twice. */
#include "check.h"
#include "make_runs.h"

#include "render/render.h"

static lp_sink sink;

/* Everything that the role's tree holds, as text; owned by the caller. */
static char *tree_text(const lp_tree *tree)
{
    lp_worker *shell = made_worker("", "", 0);

    lp_sink_open_memory(&sink);
    if (lp_tree_merge(&shell->tree, 0, tree) != LP_OK)
        abort();
    lp_render_dump(shell, "tree", &sink);
    lp_sink_flush(&sink);
    lp_worker_free(shell);
    return sink.data;
}

/* Different trees, so that merging in another order makes the paths in another order. */
static lp_worker *nth_worker(unsigned n)
{
    lp_worker *worker = made_worker("actor", n % 2 ? "a" : "b", (int64_t)n + 1);
    char path[32];

    made_entries(worker, "loop", 10 + n, MS, 3 * MS + n, 0.5, 0.1);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "loop/part_%u", (n + i) % 5);
        made_entries(worker, path, 7 + n, 1000 + n, 90000 + 7 * n, 0.25, 0.5);
        made_count(worker, path, n % 2 ? "items" : "bytes", 5 + n, (int64_t)n, 100 + (int64_t)n);
    }
    made_nesting(worker);
    return worker;
}

typedef struct sums {
    uint64_t entries, wall, cells, calls;
    lp_i128 total;
} sums;

/* By path name, so that the order of children does not matter. */
static sums sums_of(const lp_tree *tree, const char *name)
{
    sums all = {0};

    for (uint32_t i = 1; i < tree->count; i++) {
        const lp_phase *phase = &tree->phases[i];
        if (phase->name.size != strlen(name) || memcmp(phase->name.data, name, phase->name.size) != 0)
            continue;
        all.entries += phase->entries;
        all.wall += phase->wall_ns;
        all.cells += lp_cells_total(&phase->hist);
        for (uint32_t c = 0; c < phase->counter_count; c++) {
            all.calls += phase->counters[c].calls;
            all.total += phase->counters[c].total;
        }
    }
    return all;
}

static void any_order_gives_the_same_sums(void)
{
    lp_run *forward = made_or_die(lp_run_new()), *backward = made_or_die(lp_run_new());

    for (unsigned i = 0; i < 20; i++) {
        made_add(forward, nth_worker(i));
        made_add(backward, nth_worker(19 - i));
    }
    made_finish(forward);
    made_finish(backward);
    CHECK_EQ(forward->roles[0].tree.count, backward->roles[0].tree.count);
    for (unsigned i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "part_%u", i);
        sums a = sums_of(&forward->roles[0].tree, name), b = sums_of(&backward->roles[0].tree, name);
        CHECK(a.entries > 0 && a.calls > 0);
        CHECK_EQ(a.entries, b.entries);
        CHECK_EQ(a.entries, a.cells);
        CHECK_EQ(a.wall, b.wall);
        CHECK_EQ(a.calls, b.calls);
        CHECK(a.total == b.total);
    }
    lp_run_free(forward);
    lp_run_free(backward);
}

/* (a + b) + c = a + (b + c), to the last byte. */
static void merging_is_associative(void)
{
    lp_worker *left = nth_worker(1), *right = nth_worker(2);
    lp_worker *a = nth_worker(1), *b = nth_worker(2), *c = nth_worker(3);

    CHECK_EQ(lp_tree_merge(&left->tree, 0, &b->tree), LP_OK);
    CHECK_EQ(lp_tree_merge(&left->tree, 0, &c->tree), LP_OK);
    CHECK_EQ(lp_tree_merge(&right->tree, 0, &c->tree), LP_OK);
    CHECK_EQ(lp_tree_merge(&a->tree, 0, &right->tree), LP_OK);
    char *first = tree_text(&left->tree), *second = tree_text(&a->tree);
    CHECK_STR(first, second);
    free(first);
    free(second);
    lp_worker *const all[] = {left, right, a, b, c};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        lp_worker_free(all[i]);
}

/* Thousands of workers whose histograms differ: the role's arena is compacted on the way. */
static void memory_is_bounded(void)
{
    lp_run *run = made_or_die(lp_run_new());
    size_t most = 0;

    for (unsigned i = 0; i < 2000; i++) {
        lp_worker *worker = nth_worker(i);
        if (lp_run_add(run, worker, false) != LP_OK)
            abort();
        lp_worker_free(worker);
        size_t bytes = lp_arena_bytes(run->roles[0].tree.arena);
        most = bytes > most ? bytes : most;
    }
    made_finish(run);
    CHECK_EQ(run->roles[0].worker_count, 2000);
    CHECK(most < 8u << 20);
    CHECK_EQ(sums_of(&run->roles[0].tree, "loop").entries, 2000 * 10 + 2000 * 1999 / 2);
    CHECK_EQ(sums_of(&run->roles[0].tree, "loop").cells, 2000 * 10 + 2000 * 1999 / 2);
    CHECK(lp_arena_bytes(run->arena) < 2u << 20); /* summaries */
    lp_run_free(run);
}

static void roles_by_wall_time(void)
{
    lp_run *run = made_mcts();

    CHECK_EQ(run->role_count, 2);
    CHECK_MEM(run->roles[0].name.data, "learner", 7);
    CHECK_MEM(run->roles[1].name.data, "actor", 5);
    CHECK_EQ(run->roles[0].worker_count, 1);
    CHECK_EQ(run->roles[1].worker_count, 4);
    for (uint32_t i = 0; i < run->worker_count; i++)
        CHECK(run->workers[i].role.size == run->roles[run->workers[i].role_index].name.size);
    /* walls 184.8, 369.6, 184.8, 184.8 ms: the largest against the mean of 231 */
    CHECK_NEAR(run->roles[1].imbalance, 1.6, 1e-9);
    CHECK_EQ(run->workers[run->roles[1].slowest].pid, 4002);
    CHECK_NEAR(run->roles[0].imbalance, 1.0, 1e-9);
    CHECK(lp_run_role_find(run, made_str("actor")) == &run->roles[1]);
    CHECK(lp_run_role_find(run, made_str("nobody")) == NULL);
    CHECK_EQ(lp_run_tree(run)->count, run->roles[0].tree.count + run->roles[1].tree.count - 1);
    CHECK_EQ(run->runtime_ns, 100 * SECOND);
    CHECK_STR(run->empty_reason, "");
    lp_run_free(run);
}

static void lives_and_staleness(void)
{
    lp_run *run = made_troubled();
    static const lp_life expected[] = {LP_LIFE_RUNNING, LP_LIFE_RUNNING,   LP_LIFE_RUNNING, LP_LIFE_RUNNING,
                                       LP_LIFE_DIED,    LP_LIFE_LAST_SEEN, LP_LIFE_CLOSED};

    REQUIRE(run->worker_count == 7);
    for (uint32_t i = 0; i < 7; i++)
        CHECK_EQ(run->workers[i].life, expected[i]);
    CHECK(!run->workers[0].stale);
    CHECK(run->workers[4].stale); /* 3,000 s behind */
    CHECK(run->workers[5].stale); /* 1,000 s behind */
    CHECK(!run->workers[6].stale);
    CHECK_EQ(run->superseded_count, 1);
    CHECK_EQ(run->unreadable_count, 1);
    /* iteration and what lies in it are open; only the inner one is where the worker is. */
    CHECK_EQ(run->workers[0].open_count, 2);
    CHECK(!run->workers[0].open[0].inner);
    CHECK(run->workers[0].open[1].inner);
    CHECK_EQ(run->workers[0].open[1].depth, 2);
    CHECK_EQ(run->workers[0].open_ns, 161 * SECOND); /* of the top phases only */
    lp_run_free(run);
}

static void threads_do_not_hide_each_other(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "h", 1);

    made_open(worker, "loop", 5 * MS, 10);
    made_open(worker, "loop/part", 4 * MS, 11); /* another thread: loop is the innermost of the first */
    made_open(worker, "loop", 3 * MS, 11);
    made_add(run, worker);
    made_finish(run);
    CHECK(run->workers[0].open[0].inner);
    CHECK(run->workers[0].open[1].inner);
    CHECK(!run->workers[0].open[2].inner);
    lp_run_free(run);
}

static void thread_names_have_no_time_of_their_own(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "h", 1);

    made_entries(worker, "MainThread/step", 10, MS, MS, 1.0, 0.0);
    made_entries(worker, "reader/read", 10, 2 * MS, 2 * MS, 1.0, 0.0);
    made_add(run, worker);
    made_finish(run);
    CHECK_EQ(run->workers[0].wall_ns, 30 * MS);
    CHECK_EQ(run->roles[0].wall_ns, 30 * MS);
    lp_run_free(run);
}

static void an_empty_run(void)
{
    lp_run *run = made_empty();

    CHECK_STR(run->empty_reason, "no_worker_files");
    CHECK_EQ(run->worker_count, 0);
    CHECK_NEAR(run->imbalance, 1.0, 0.0);
    CHECK(lp_run_tree(run) != NULL);
    CHECK_EQ(lp_run_finish(run), LP_E_ARGUMENT);
    lp_run_free(run);
    lp_run_free(NULL);
}

int main(void)
{
    RUN(any_order_gives_the_same_sums);
    RUN(merging_is_associative);
    RUN(memory_is_bounded);
    RUN(roles_by_wall_time);
    RUN(lives_and_staleness);
    RUN(threads_do_not_hide_each_other);
    RUN(thread_names_have_no_time_of_their_own);
    RUN(an_empty_run);
    return check_done();
}
