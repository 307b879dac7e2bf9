/* Arena, tree, cells: the plain memory of the store. */
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "core/hist.h"
#include "store/arena.h"
#include "store/internal.h"
#include "store/model.h"

static lp_str str(const char *text)
{
    return (lp_str){text, strlen(text)};
}

static void arena_gives_zeroed_aligned_memory(void)
{
    lp_arena *arena = lp_arena_new();
    REQUIRE(arena != NULL);
    size_t sizes[] = {0, 1, 15, 16, 17, 100, 5000, 300000, 3};
    for (int round = 0; round < 50; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *at = lp_arena_take(arena, sizes[i]);
            REQUIRE(at != NULL);
            CHECK_EQ((uintptr_t)at % 16, 0u);
            for (size_t k = 0; k < sizes[i]; k += 97)
                CHECK_EQ(at[k], 0);
            memset(at, 0xee, sizes[i]);
        }
    CHECK(lp_arena_take(arena, SIZE_MAX) == NULL);
    CHECK(lp_arena_bytes(arena) > 50u * 300000);
    lp_str text = lp_arena_str(arena, "a\0b", 3);
    CHECK_EQ(text.size, 3u);
    CHECK_MEM(text.data, "a\0b\0", 4);
    lp_arena_free(arena);
    lp_arena_free(NULL);
}

static void histogram_cells_hold_their_values(void)
{
    uint64_t values[] = {0,          1,         31, 32, 33, 63, 64, 65, 127, 1000, 123456789, (1ull << 55) + 12345,
                         1ull << 56, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        uint32_t cell = lp_hist_cell(values[i]);
        CHECK(cell < LP_HIST_CELLS);
        CHECK(lp_hist_low(cell) <= values[i]);
        if (values[i] < 1ull << 56)
            CHECK(values[i] < lp_hist_high(cell));
        if (values[i] && values[i] < 1ull << 56)
            CHECK_NEAR(lp_hist_value(cell) / (double)values[i], 1.0, 1.0 / 64);
    }
    for (uint32_t cell = 0; cell < LP_HIST_CELLS; cell++) {
        CHECK_EQ(lp_hist_cell(lp_hist_low(cell)), cell);
        CHECK_EQ(lp_hist_cell(lp_hist_high(cell) - 1), cell);
    }
}

static void quantiles_are_nearest_rank(void)
{
    lp_cell at[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}};
    lp_cells cells = {.at = at, .size = 4};
    CHECK_NEAR(lp_cells_quantile(&cells, 0.0), 1, 0);
    CHECK_NEAR(lp_cells_quantile(&cells, 0.25), 1, 0);
    CHECK_NEAR(lp_cells_quantile(&cells, 0.26), 2, 0);
    CHECK_NEAR(lp_cells_quantile(&cells, 0.5), 2, 0);
    CHECK_NEAR(lp_cells_quantile(&cells, 0.75), 3, 0);
    CHECK_NEAR(lp_cells_quantile(&cells, 0.99), 4, 0);
    CHECK_NEAR(lp_cells_quantile(&cells, 1.0), 4, 0);
    CHECK_NEAR(lp_cells_quantile(&cells, 7.0), 4, 0);
    CHECK_NEAR(lp_cells_quantile(&cells, (double)NAN), 1, 0);
    cells.size = 0;
    CHECK_NEAR(lp_cells_quantile(&cells, 0.5), 0, 0);
    lp_cell hundred[] = {{10, 7}, {11, 93}}; /* 0.07 * 100 is 7.000000000000001 in binary */
    cells = (lp_cells){.at = hundred, .size = 2};
    CHECK_NEAR(lp_cells_quantile(&cells, 0.07), 10, 0);
    lp_cell large[] = {{5, UINT64_MAX - 1}, {6, 9}};
    cells = (lp_cells){.at = large, .size = 2};
    CHECK_EQ(lp_cells_total(&cells), UINT64_MAX);
    CHECK_NEAR(lp_cells_quantile(&cells, 0.5), 5, 0);
    CHECK_NEAR(lp_cells_quantile(&cells, 1.0), 6, 1);
}

static void cells_merge_like_sums(void)
{
    enum { VALUES = 200 };
    lp_arena *arena = lp_arena_new();
    uint64_t truth[VALUES] = {0};
    lp_cells sum = {0};

    srand(7);
    for (int round = 0; round < 300; round++) {
        lp_cell at[VALUES];
        lp_cells source = {.at = at};
        for (uint32_t i = 0; i < VALUES; i++)
            if (rand() % 10 == 0) {
                at[source.size++] = (lp_cell){i, (uint64_t)(rand() % 5 + 1)};
                truth[i] += at[source.size - 1].count;
            }
        REQUIRE(lp_cells_merge(arena, &sum, &source) == LP_OK);
    }
    uint32_t seen = 0;
    for (uint32_t i = 0; i < VALUES; i++)
        if (truth[i]) {
            REQUIRE(seen < sum.size);
            CHECK_EQ(sum.at[seen].index, i);
            CHECK_EQ(sum.at[seen].count, truth[i]);
            seen++;
        }
    CHECK_EQ(seen, sum.size);
    CHECK(lp_arena_bytes(arena) < 64u << 10);
    lp_arena_free(arena);
}

static void tree_finds_what_it_made(void)
{
    lp_worker *worker = lp_worker_new();
    REQUIRE(worker != NULL);
    lp_tree *tree = &worker->tree;
    uint32_t index, again;
    CHECK_EQ(tree->count, 1u);
    CHECK_EQ(lp_tree_find(tree, 0, str("none")), UINT32_MAX);
    for (uint32_t i = 0; i < 5000; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", i);
        REQUIRE(lp_tree_child(tree, i / 2, str(name), &index) == LP_OK);
        CHECK_EQ(index, i + 1);
    }
    for (uint32_t i = 0; i < 5000; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", i);
        CHECK_EQ(lp_tree_find(tree, i / 2, str(name)), i + 1);
        CHECK_EQ(lp_tree_find(tree, i / 2 + 1, str(name)), UINT32_MAX);
        REQUIRE(lp_tree_child(tree, i / 2, str(name), &again) == LP_OK);
        CHECK_EQ(again, i + 1);
    }
    REQUIRE(lp_tree_child(tree, 0, (lp_str){"", 0}, &index) == LP_OK); /* an empty name is a name */
    REQUIRE(lp_tree_child(tree, 0, (lp_str){"\0", 1}, &again) == LP_OK);
    CHECK(index != again);
    CHECK_EQ(lp_tree_child(tree, 99999, str("x"), &index), LP_E_ARGUMENT);
    lp_worker_free(worker);
    lp_worker_free(NULL);
}

/* A tree of random figures; `seed` decides which paths it has. */
static lp_worker *random_worker(unsigned seed)
{
    lp_worker *worker = lp_worker_new();
    lp_tree *tree = &worker->tree;
    srand(seed);
    for (int i = 0; i < 60; i++) {
        char name[2] = {(char)('a' + rand() % 4), 0};
        uint32_t index;
        lp_tree_child(tree, (uint32_t)rand() % tree->count, str(name), &index);
        lp_phase *p = &tree->phases[index];
        lp_cell cell = {(uint32_t)rand() % LP_HIST_CELLS, (uint64_t)rand() % 9 + 1};
        lp_cells one = {.at = &cell, .size = 1};
        lp_cells_merge(worker->arena, &p->hist, &one);
        uint64_t low = lp_hist_low(cell.index);
        if (p->entries == 0 || low < p->min_ns)
            p->min_ns = low;
        if (p->entries == 0 || low > p->max_ns)
            p->max_ns = low;
        p->entries += cell.count;
        p->wall_ns += 1000 + (uint64_t)rand() % 1000;
        p->cpu_wall_ns = p->wall_ns / 2;
        p->cpu_ns = p->cpu_wall_ns / 2;
        p->flags |= 1u << (rand() % 5);
        p->stride = (uint32_t)rand() % 5;
        lp_counter *counter;
        lp_phase_counter(tree, index, str(rand() % 2 ? "moves" : "hits"), &counter);
        int64_t amount = rand() % 2000 - 1000;
        lp_cell amounts = {lp_hist_cell((uint64_t)llabs(amount)), 1};
        one.at = &amounts;
        lp_cells_merge(worker->arena, amount < 0 ? &counter->negative : &counter->positive, &one);
        if (counter->calls == 0 || amount < counter->min)
            counter->min = amount;
        if (counter->calls == 0 || amount > counter->max)
            counter->max = amount;
        counter->calls++;
        counter->total += amount * (lp_i128)1000000000000000000;
    }
    return worker;
}

static void check_same_cells(const lp_cells *a, const lp_cells *b)
{
    CHECK_EQ(a->size, b->size);
    for (uint32_t i = 0; i < a->size && i < b->size; i++) {
        CHECK_EQ(a->at[i].index, b->at[i].index);
        CHECK_EQ(a->at[i].count, b->at[i].count);
    }
}

/* The same phases with the same figures; the order may differ. */
static void check_same_tree(const lp_tree *a, const lp_tree *b)
{
    uint32_t map[1000] = {0};
    CHECK_EQ(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        const lp_phase *p = &a->phases[i];
        map[i] = i ? lp_tree_find(b, map[p->parent], p->name) : 0;
        REQUIRE(map[i] != UINT32_MAX);
        const lp_phase *q = &b->phases[map[i]];
        CHECK_EQ(p->entries, q->entries);
        CHECK_EQ(p->wall_ns, q->wall_ns);
        CHECK_EQ(p->cpu_ns, q->cpu_ns);
        CHECK_EQ(p->flags, q->flags);
        CHECK_EQ(p->stride, q->stride);
        if (p->entries) {
            CHECK_EQ(p->min_ns, q->min_ns);
            CHECK_EQ(p->max_ns, q->max_ns);
        }
        check_same_cells(&p->hist, &q->hist);
        CHECK_EQ(p->counter_count, q->counter_count);
        for (uint32_t k = 0; k < p->counter_count; k++) {
            lp_counter *other = NULL;
            for (uint32_t m = 0; m < q->counter_count; m++)
                if (lp__str_equal(p->counters[k].name, q->counters[m].name))
                    other = &q->counters[m];
            REQUIRE(other != NULL);
            CHECK_EQ(p->counters[k].calls, other->calls);
            CHECK_EQ(p->counters[k].min, other->min);
            CHECK_EQ(p->counters[k].max, other->max);
            CHECK(p->counters[k].total == other->total);
            check_same_cells(&p->counters[k].positive, &other->positive);
            check_same_cells(&p->counters[k].negative, &other->negative);
        }
    }
}

static void merge_is_associative_and_commutative(void)
{
    for (unsigned seed = 1; seed < 20; seed++) {
        lp_worker *a = random_worker(seed), *b = random_worker(seed + 100), *c = random_worker(seed + 200);
        lp_worker *left = lp_worker_new(), *right = lp_worker_new(), *bc = lp_worker_new();
        CHECK_EQ(lp_tree_merge(&left->tree, 0, &a->tree), LP_OK);
        CHECK_EQ(lp_tree_merge(&left->tree, 0, &b->tree), LP_OK);
        CHECK_EQ(lp_tree_merge(&left->tree, 0, &c->tree), LP_OK);
        CHECK_EQ(lp_tree_merge(&bc->tree, 0, &c->tree), LP_OK);
        CHECK_EQ(lp_tree_merge(&bc->tree, 0, &b->tree), LP_OK);
        CHECK_EQ(lp_tree_merge(&right->tree, 0, &bc->tree), LP_OK);
        CHECK_EQ(lp_tree_merge(&right->tree, 0, &a->tree), LP_OK);
        check_same_tree(&left->tree, &right->tree);
        lp_worker *all[] = {a, b, c, left, right, bc};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            lp_worker_free(all[i]);
    }
}

static void merge_below_a_phase_and_beyond_64_bits(void)
{
    lp_worker *a = lp_worker_new(), *b = lp_worker_new();
    uint32_t index, below;
    lp_tree_child(&b->tree, 0, str("step"), &index);
    lp_cell cell = {9, UINT64_MAX - 5};
    b->tree.phases[index].hist = (lp_cells){.at = &cell, .size = 1};
    b->tree.phases[index].entries = UINT64_MAX - 5;
    b->tree.phases[index].wall_ns = UINT64_MAX - 5;
    lp_tree_child(&a->tree, 0, str("MainThread"), &below);
    CHECK_EQ(lp_tree_merge(&a->tree, below, &b->tree), LP_OK);
    CHECK_EQ(lp_tree_merge(&a->tree, below, &b->tree), LP_OK);
    uint32_t found = lp_tree_find(&a->tree, below, str("step"));
    REQUIRE(found != UINT32_MAX);
    CHECK_EQ(a->tree.phases[found].wall_ns, UINT64_MAX);
    CHECK_EQ(a->tree.phases[found].hist.at[0].count, UINT64_MAX);
    CHECK_EQ(lp_tree_merge(&a->tree, 77, &b->tree), LP_E_ARGUMENT);
    lp_worker_free(a);
    lp_worker_free(b);
}

/* 4,096 workers of 64 phases must take well below 2 s; a tenth of a second on an idle machine. */
static void merge_of_many_workers_is_fast_and_small(void)
{
    lp_worker *one = lp_worker_new(), *all = lp_worker_new();
    for (int i = 0; i < 64; i++) {
        char name[32];
        uint32_t index;
        snprintf(name, sizeof name, "phase%d", i);
        lp_tree_child(&one->tree, (uint32_t)i / 2, str(name), &index);
        lp_phase *p = &one->tree.phases[index];
        for (uint32_t k = 0; k < 60; k++) {
            lp_cell cell = {500 + k * 3, 10};
            lp_cells single = {.at = &cell, .size = 1};
            lp_cells_merge(one->arena, &p->hist, &single);
            p->entries += 10;
        }
    }
    clock_t start = clock();
    for (int i = 0; i < 4096; i++)
        REQUIRE(lp_tree_merge(&all->tree, 0, &one->tree) == LP_OK);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    printf("# 4,096 workers of 64 phases: %.3f s, %zu bytes\n", seconds, lp_arena_bytes(all->arena));
    CHECK(seconds < 2.0);
    CHECK(lp_arena_bytes(all->arena) < 1u << 20);
    CHECK_EQ(all->tree.phases[64].entries, 4096u * 600);
    lp_worker_free(one);
    lp_worker_free(all);
}

int main(void)
{
    RUN(arena_gives_zeroed_aligned_memory);
    RUN(histogram_cells_hold_their_values);
    RUN(quantiles_are_nearest_rank);
    RUN(cells_merge_like_sums);
    RUN(tree_finds_what_it_made);
    RUN(merge_is_associative_and_commutative);
    RUN(merge_below_a_phase_and_beyond_64_bits);
    RUN(merge_of_many_workers_is_fast_and_small);
    return check_done();
}
