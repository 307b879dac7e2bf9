/* The segment reader, on segments made by hand. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "segment_builder.h"
#include "store/describe.h"
#include "store/internal.h"
#include "store/segment_read.h"

static lp_str str(const char *text)
{
    return (lp_str){text, strlen(text)};
}

static lp_worker *read_dead(const builder *b, lp_error *error)
{
    lp_worker *worker = NULL;
    if (lp_segment_read_memory(b->base, b->size, NULL, &worker, error) != LP_OK)
        return NULL;
    return worker;
}

static const lp_phase *phase_at(const lp_worker *worker, const char *a, const char *b)
{
    uint32_t index = lp_tree_find(&worker->tree, 0, str(a));
    if (index != UINT32_MAX && b)
        index = lp_tree_find(&worker->tree, index, str(b));
    return index == UINT32_MAX ? NULL : &worker->tree.phases[index];
}

/* main: step (3 entries), step/load; second thread: step (1 entry). */
static void build(builder *b, lp_off *step)
{
    builder_begin(b);
    uint32_t names[2] = {add_name(b, "step"), add_name(b, "load")};
    lp_off first = add_thread(b, 4242, "MainThread");
    *step = add_node(b, thread_at(b, first)->root, names[0]);
    lp_off load = add_node(b, *step, names[1]);
    add_entry(b, *step, 1000);
    add_entry(b, *step, 3000);
    add_entry(b, *step, 2000);
    add_entry(b, load, 500);
    lp_seg_node *n = node_at(b, *step);
    n->covered = 500;
    n->unknown_wall = 1000;
    n->away = 800;
    n->unsplit = 100;
    n->starved = 300;
    n->errors = 1;
    n->flags = LP_PHASE_IO;
    lp_off second = add_thread(b, 4300, NULL);
    lp_off other = add_node(b, thread_at(b, second)->root, names[0]);
    add_entry(b, other, 4000);
}

static void threads_are_merged(void)
{
    builder b;
    lp_off step;
    build(&b, &step);
    lp_worker *w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    CHECK_EQ(w->tree.count, 3u);
    const lp_phase *p = phase_at(w, "step", NULL);
    REQUIRE(p != NULL);
    CHECK_EQ(p->entries, 4u);
    CHECK_EQ(p->wall_ns, 10000u);
    CHECK_EQ(p->child_ns, 500u);
    CHECK_EQ(p->cpu_wall_ns, 9000u);
    CHECK_EQ(p->cpu_ns, 9000u - 800);
    CHECK_EQ(p->split_wait_ns, 700u);
    CHECK_EQ(p->starved_ns, 300u);
    CHECK_EQ(p->min_ns, 1000u);
    CHECK_EQ(p->max_ns, 4000u);
    CHECK_EQ(p->errors, 1u);
    CHECK_EQ(p->flags, LP_PHASE_IO);
    CHECK_EQ(lp_cells_total(&p->hist), 4u);
    CHECK_EQ(w->tree.phases[0].child_ns, 10000u);
    CHECK_EQ(w->tree.phases[0].entries, 0u);
    CHECK_EQ(w->threads, 2u);
    CHECK_EQ(w->generation, 6u);
    CHECK_EQ(w->id.rank, 3);
    CHECK_EQ(w->written_ns, BUILDER_REAL + 10000000000u);
    CHECK_EQ(w->elapsed_ns, 10000000000u);
    CHECK(!w->final);
    CHECK(lp__str_equal(w->clock, str("CLOCK_MONOTONIC")));
    CHECK(lp__str_equal(w->cpu_source, str("rseq")));
    CHECK(lp__str_equal(w->split_source, str("schedstat")));
    lp_worker_free(w);

    header_of(&b)->thread_names = 1;
    header_of(&b)->measure_cpu = 0;
    header_of(&b)->state = LP_SEG_CLOSED;
    w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    CHECK(w->final);
    p = phase_at(w, "MainThread", "step");
    REQUIRE(p != NULL);
    CHECK_EQ(p->entries, 3u);
    CHECK_EQ(p->cpu_wall_ns, 0u);
    CHECK_EQ(p->cpu_ns, 0u);
    CHECK_EQ(p->starved_ns, 0u);
    CHECK(lp__str_equal(w->cpu_source, str("not measured")));
    p = phase_at(w, "thread-4300", "step");
    REQUIRE(p != NULL);
    CHECK_EQ(p->entries, 1u);
    CHECK_EQ(phase_at(w, "MainThread", NULL)->child_ns, 6000u);
    CHECK_EQ(w->tree.phases[0].child_ns, 10000u);
    lp_buffer bytes = {0}; /* and such a tree is a file that we read */
    lp_worker *back = NULL;
    CHECK_EQ(lp_snapshot_encode(w, &bytes), LP_OK);
    REQUIRE(lp_snapshot_decode(bytes.data, bytes.size, "a", &back, NULL) == LP_OK);
    CHECK_EQ(back->tree.count, w->tree.count);
    lp_buffer_free(&bytes);
    lp_worker_free(back);
    lp_worker_free(w);
    builder_free(&b);
}

static void counters_are_exact(void)
{
    builder b;
    builder_begin(&b);
    lp_off thread = add_thread(&b, 1, NULL);
    lp_off root = thread_at(&b, thread)->root;
    lp_off step = add_node(&b, root, add_name(&b, "step"));
    lp_off big = add_counter(&b, step, add_name(&b, "big")), other = add_counter(&b, root, add_name(&b, "rooted"));
    add_entry(&b, step, 10);
    for (int i = 0; i < 5; i++)
        add_amount(&b, big, INT64_MAX);
    add_amount(&b, other, -3);
    add_amount(&b, other, 5);
    add_amount(&b, other, 0);
    lp_worker *w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    const lp_phase *p = phase_at(w, "step", NULL);
    REQUIRE(p->counter_count == 1);
    CHECK(p->counters[0].total == (lp_i128)INT64_MAX * 5);
    CHECK_EQ(p->counters[0].calls, 5u);
    const lp_phase *r = &w->tree.phases[0];
    REQUIRE(r->counter_count == 1);
    CHECK(r->counters[0].total == 2);
    CHECK_EQ(r->counters[0].min, -3);
    CHECK_EQ(r->counters[0].max, 5);
    CHECK_EQ(r->counters[0].calls, 3u);
    CHECK_EQ(lp_cells_total(&r->counters[0].negative), 1u);
    CHECK_EQ(r->counters[0].negative.at[0].index, 3u);
    lp_worker_free(w);
    builder_free(&b);
}

static void an_unfinished_update_is_rolled_back(void)
{
    builder b;
    lp_off step;
    build(&b, &step);
    lp_off thread = thread_at(&b, header_of(&b)->threads)->previous;
    lp_off cell = cell_of(&b, step + (lp_off)offsetof(lp_seg_node, cells), 1000);
    lp_seg_node *n = node_at(&b, step);
    lp_seg_undo *undo = &thread_at(&b, thread)->undo;
    /* killed in the middle: begun and some fields are new, others not yet */
    *undo = (lp_seg_undo){.valid = 1,
                          .target = step,
                          .cell = cell,
                          .saved = 5,
                          .old = {n->entries, n->wall, n->covered, n->min, n->max},
                          .old_cell = *(uint64_t *)at_offset(&b, cell)};
    n->begun++;
    n->entries += 1;
    n->wall += 999999;
    n->min = 1;
    ++*(uint64_t *)at_offset(&b, cell);
    lp_worker *w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    const lp_phase *p = phase_at(w, "step", NULL);
    CHECK_EQ(p->entries, 4u);
    CHECK_EQ(p->wall_ns, 10000u);
    CHECK_EQ(p->min_ns, 1000u);
    CHECK_EQ(lp_cells_total(&p->hist), 4u);
    CHECK_EQ(p->starved_ns, 300u);
    lp_worker_free(w);

    /* the same seen from a live reader: the writer stands still in the middle */
    lp_moment now = {BUILDER_START + 11000000000u, BUILDER_START + 11000000000u, BUILDER_REAL + 11000000000u};
    REQUIRE(lp_segment_read_memory(b.base, b.size, &now, &w, NULL) == LP_OK);
    p = phase_at(w, "step", NULL);
    CHECK_EQ(p->entries, 4u);
    CHECK_EQ(p->wall_ns, 10000u);
    CHECK(w->living);
    CHECK_EQ(w->written_ns, now.real_ns);
    CHECK_EQ(w->elapsed_ns, 11000000000u);
    lp_worker_free(w);

    undo->valid = 0; /* without a record, entries still equal the histogram */
    w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    p = phase_at(w, "step", NULL);
    CHECK_EQ(p->entries, lp_cells_total(&p->hist));
    lp_worker_free(w);
    builder_free(&b);
}

static void an_unfinished_count_is_rolled_back(void)
{
    builder b;
    builder_begin(&b);
    lp_off thread = add_thread(&b, 1, NULL);
    lp_off step = add_node(&b, thread_at(&b, thread)->root, add_name(&b, "step"));
    lp_off counter = add_counter(&b, step, add_name(&b, "moves"));
    add_amount(&b, counter, 5);
    lp_off cell = cell_of(&b, counter + (lp_off)offsetof(lp_seg_counter, cells), 5);
    lp_seg_counter *c = at_offset(&b, counter);
    thread_at(&b, thread)->undo =
        (lp_seg_undo){.valid = 2, .target = counter, .cell = cell, .saved = 5, .old = {1, 5, 0, 5, 5}, .old_cell = 1};
    c->begun++;
    c->total_low = UINT64_MAX;
    c->total_high = 7;
    *(uint64_t *)at_offset(&b, cell) = 2;
    lp_worker *w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    const lp_phase *p = phase_at(w, "step", NULL);
    REQUIRE(p->counter_count == 1);
    CHECK(p->counters[0].total == 5);
    CHECK_EQ(p->counters[0].calls, 1u);
    lp_worker_free(w);
    builder_free(&b);
}

static void open_phases_are_listed(void)
{
    builder b;
    builder_begin(&b);
    lp_off thread = add_thread(&b, 99, "Worker");
    lp_off outer = add_node(&b, thread_at(&b, thread)->root, add_name(&b, "outer"));
    lp_off inner = add_node(&b, outer, add_name(&b, "inner"));
    add_entries(&b, thread, 2);
    lp_seg_entries *table = add_entries(&b, thread, 6);
    table->at[0] = (lp_entry){.state = LP_ENTRY_OPEN, .node = inner, .start = BUILDER_START + 9000000000u};
    table->at[1] = (lp_entry){.state = LP_ENTRY_OPEN, .node = outer, .start = BUILDER_START + 8000000000u};
    table->at[2] = (lp_entry){.state = LP_ENTRY_OPEN, .node = outer, .closed = 1, .start = 5};
    table->at[3] = (lp_entry){.state = LP_ENTRY_ZOMBIE, .node = outer, .start = 5};
    table->at[4] = (lp_entry){.state = LP_ENTRY_OPEN, .node = 0, .start = 5};
    lp_worker *w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    REQUIRE(w->open_count == 2);
    CHECK(phase_at(w, "outer", "inner") == &w->tree.phases[w->open[1].phase]);
    CHECK_EQ(w->open[0].since_ns, BUILDER_REAL + 8000000000u);
    CHECK_EQ(w->open[0].open_ns, 2000000000u);
    CHECK_EQ(w->open[1].open_ns, 1000000000u);
    CHECK_EQ(w->open[1].tid, 99u);
    CHECK(lp__str_equal(w->open[1].thread, str("Worker")));
    CHECK_EQ(phase_at(w, "outer", NULL)->entries, 0u);
    lp_worker_free(w);
    /* an entry younger than the last flush is a trace of life */
    table->at[0].start = BUILDER_START + 15000000000u;
    w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    CHECK_EQ(w->written_ns, BUILDER_REAL + 15000000000u);
    CHECK_EQ(w->open[0].open_ns, 7000000000u);
    lp_worker_free(w);
    builder_free(&b);
}

static void ticks_become_ns_by_the_longest_baseline(void)
{
    builder b;
    lp_off step;
    uint64_t day = 86400000000000u;
    build(&b, &step);
    lp_seg_clock *clock = &header_of(&b)->clock;
    clock->kind = LP_CLOCK_TSC;
    /* 2.5 GHz for 400 days; mult is only a first guess, 1e-5 off */
    clock->mult = (uint64_t)(0x1p32 / 2.5 * 1.00001);
    clock->start = (lp_moment){5000, 1000000000, BUILDER_REAL};
    clock->last = (lp_moment){5000 + 400 * day / 2 * 5, 1000000000 + 400 * day, BUILDER_REAL + 400 * day};
    node_at(&b, step)->wall = 400 * day / 2 * 5;
    lp_worker *w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    CHECK_EQ(phase_at(w, "step", NULL)->wall_ns, 400 * day + 4000 * 2 / 5);
    CHECK_EQ(w->elapsed_ns, 400 * day);
    CHECK(lp__str_equal(w->clock, str("TSC 2.50 GHz")));
    lp_worker_free(w);

    clock->last_begun++; /* torn: not used */
    w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    CHECK_NEAR((double)phase_at(w, "step", NULL)->wall_ns / (400.0 * (double)day), 1.00001, 1e-7);
    lp_worker_free(w);
    clock->last_done++;

    clock->last.ticks = clock->start.ticks + 3; /* no time has passed, or the clock stood: mult */
    clock->last.mono_ns = clock->start.mono_ns + 999999;
    w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    CHECK_NEAR((double)phase_at(w, "step", NULL)->wall_ns / (400.0 * (double)day), 1.00001, 1e-7);
    lp_worker_free(w);

    clock->last.mono_ns = clock->start.mono_ns + 5000000; /* nonsense against mult */
    clock->mult = 0;
    clock->last.ticks = clock->start.ticks;
    w = read_dead(&b, NULL);
    CHECK(w != NULL); /* no division by zero */
    lp_worker_free(w);
    builder_free(&b);
}

static void hostile_names_pass(void)
{
    builder b;
    builder_begin(&b);
    uint32_t empty = add_name(&b, ""), odd = add_name_bytes(&b, "\0\xed\xa0\x80\n", 5);
    add_names_block(&b);
    uint32_t late = add_name(&b, "late");
    lp_off thread = add_thread(&b, 1, NULL);
    lp_off a = add_node(&b, thread_at(&b, thread)->root, empty), c = add_node(&b, a, odd);
    add_entry(&b, a, 1);
    add_entry(&b, c, 1);
    add_entry(&b, add_node(&b, c, late), 1);
    lp_worker *w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    REQUIRE(w->tree.count == 4);
    CHECK_EQ(w->tree.phases[1].name.size, 0u);
    CHECK_EQ(w->tree.phases[2].name.size, 5u);
    CHECK(memcmp(w->tree.phases[2].name.data, "\0\xed\xa0\x80\n", 5) == 0);
    lp_worker_free(w);
    builder_free(&b);
}

static void the_order_of_creation_is_kept(void)
{
    builder b;
    builder_begin(&b);
    lp_off thread = add_thread(&b, 1, NULL);
    lp_off root = thread_at(&b, thread)->root;
    for (int i = 0; i < 5; i++) {
        char name[8] = {(char)('a' + i), 0};
        lp_off node = add_node(&b, root, add_name(&b, name));
        add_entry(&b, node, 1);
        add_amount(&b, add_counter(&b, node, add_name(&b, "y")), 1);
        add_amount(&b, add_counter(&b, node, add_name(&b, "x")), 1);
    }
    lp_worker *w = read_dead(&b, NULL);
    REQUIRE(w != NULL);
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_EQ(w->tree.phases[i + 1].name.data[0], 'a' + (char)i);
        CHECK_EQ(w->tree.phases[i + 1].counters[0].name.data[0], 'y');
    }
    lp_worker_free(w);
    builder_free(&b);
}

static void wrong_headers_are_refused(void)
{
    builder b;
    lp_off step;
    lp_error error;
    build(&b, &step);
    lp_seg_header *h = header_of(&b), good = *h;
#define REFUSED(change, code)                                                                                          \
    do {                                                                                                               \
        *h = good;                                                                                                     \
        change;                                                                                                        \
        lp_worker *bad = read_dead(&b, &error);                                                                        \
        CHECK(bad == NULL);                                                                                            \
        CHECK_EQ(error.status, code);                                                                                  \
        CHECK(strlen(error.text) > 5);                                                                                 \
        lp_worker_free(bad);                                                                                           \
    } while (0)
    REFUSED(h->magic ^= 1, LP_E_FOREIGN);
    REFUSED(h->order = 0x04030201, LP_E_FOREIGN);
    REFUSED(h->layout = LP_SEG_LAYOUT + 1, LP_E_VERSION);
    REFUSED(h->layout = 0, LP_E_DAMAGED);
    REFUSED(h->used = BUILDER_SIZE + 1, LP_E_DAMAGED);
    REFUSED((h->used = BUILDER_SIZE * 2, h->capacity = BUILDER_SIZE * 2), LP_E_TRUNCATED);
    REFUSED(h->used = 8, LP_E_DAMAGED);
    REFUSED(h->capacity = 1ull << 40, LP_E_LIMIT);
    REFUSED(h->header_size = 100, LP_E_DAMAGED);
    REFUSED(h->state = LP_SEG_CREATING, LP_E_BUSY);
    REFUSED(h->threads = 12345678, LP_E_DAMAGED);
    REFUSED(h->threads = h->threads + 1, LP_E_DAMAGED);
    REFUSED(h->names = h->threads, LP_E_DAMAGED);
    REFUSED(h->name_count = UINT32_MAX, LP_E_DAMAGED);
#undef REFUSED
    *h = good;
    /* the caller looked at `used` before another thread took a block: what it can see is read */
    lp_moment now = {BUILDER_START + 11000000000u, BUILDER_START + 11000000000u, BUILDER_REAL + 11000000000u};
    size_t seen = h->used;
    add_block(&b, LP_BLOCK_ARENA, 0, 5000);
    lp_worker *worker = NULL;
    CHECK_EQ(lp_segment_read_memory(b.base, seen, &now, &worker, &error), LP_OK);
    lp_worker_free(worker);
    CHECK_EQ(lp_segment_read_memory(b.base, 100, NULL, NULL, &error), LP_E_TRUNCATED);
    node_at(&b, step)->sibling = step; /* a circle */
    CHECK(read_dead(&b, &error) == NULL);
    CHECK_EQ(error.status, LP_E_DAMAGED);
    node_at(&b, step)->sibling = 0;
    thread_at(&b, h->threads)->previous = h->threads;
    CHECK(read_dead(&b, &error) == NULL);
    CHECK_EQ(error.status, LP_E_DAMAGED);
    builder_free(&b);
}

/* Any bytes anywhere: a status or a sane worker, never a crash (run under ASan and UBSan). */
static void damaged_segments_do_no_harm(void)
{
    builder b;
    lp_off step;
    unsigned fine = 0, refused = 0;
    build(&b, &step);
    lp_off thread = header_of(&b)->threads;
    lp_seg_entries *table = add_entries(&b, thread, 4);
    table->at[0] = (lp_entry){.state = LP_ENTRY_OPEN, .node = step, .start = BUILDER_START};
    add_amount(&b, add_counter(&b, step, 1), -7);
    size_t used = header_of(&b)->used;
    unsigned char *good = malloc(used), *copy = malloc(used);
    memcpy(good, b.base, used);
    header_of(&b)->capacity = used;
    memcpy(good, b.base, used);
    srand(11);
    for (int round = 0; round < 40000; round++) {
        memcpy(copy, good, used);
        int changes = 1 + rand() % 4;
        for (int i = 0; i < changes; i++) {
            size_t at = round % 2 ? LP_SEG_HEADER + (size_t)rand() % (used - LP_SEG_HEADER) : (size_t)rand() % used;
            if (rand() % 2) /* an offset that points somewhere plausible */
                *(uint32_t *)(void *)(copy + (at & ~3ull)) = (uint32_t)((size_t)rand() % (used + 64)) & ~7u;
            else
                copy[at] = (unsigned char)rand();
        }
        lp_worker *w = NULL;
        lp_error error;
        lp_moment now = {BUILDER_START + 11000000000u, BUILDER_START + 11000000000u, BUILDER_REAL + 11000000000u};
        lp_status status = lp_segment_read_memory(copy, used, round % 3 ? NULL : &now, &w, &error);
        if (status == LP_OK) {
            fine++;
            for (uint32_t i = 1; i < w->tree.count; i++) {
                const lp_phase *p = &w->tree.phases[i];
                CHECK(p->parent < i);
                CHECK(p->cpu_ns <= p->cpu_wall_ns && p->cpu_wall_ns <= p->wall_ns);
                CHECK_EQ(p->entries, lp_cells_total(&p->hist));
            }
            lp_worker_free(w);
        } else {
            refused++;
        }
    }
    printf("# damaged segments: %u read, %u refused\n", fine, refused);
    CHECK(fine > 100 && refused > 100);
    free(good);
    free(copy);
    builder_free(&b);
}

/* ---- a writer at work */

typedef struct writer {
    builder *b;
    lp_off node, thread;
    _Atomic bool stop;
    uint64_t written;
} writer;

/* The order of stores of core/record.h. */
static void *write_entries(void *arg)
{
    writer *w = arg;
    lp_seg_node *n = node_at(w->b, w->node);
    lp_seg_undo *undo = &thread_at(w->b, w->thread)->undo;
    for (uint64_t i = 0; !atomic_load_explicit(&w->stop, memory_order_relaxed); i++) {
        uint64_t wall = 1000; /* so that wall = 1000 * entries, always */
        uint32_t cell = lp_hist_cell(wall);
        lp_off at = n->cells[cell >> 5] + (cell & 31u) * 8;
        uint64_t *count = at_offset(w->b, at);
        undo->target = w->node;
        undo->cell = at;
        undo->saved = 5;
        undo->old[0] = n->entries;
        undo->old[1] = n->wall;
        undo->old[2] = n->covered;
        undo->old[3] = n->min;
        undo->old[4] = n->max;
        undo->old_cell = *count;
        __atomic_store_n(&undo->valid, 1, __ATOMIC_RELEASE);
        __atomic_store_n(&n->begun, n->begun + 1, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        n->entries++;
        __asm__ volatile("" ::: "memory");
        n->wall += wall;
        __asm__ volatile("" ::: "memory");
        ++*count;
        __atomic_store_n(&n->done, n->begun, __ATOMIC_RELEASE);
        __atomic_store_n(&undo->valid, 0, __ATOMIC_RELEASE);
        w->written = i + 1;
        if (i % 64 == 0)
            for (volatile int k = 0; k < 3000; k++) {
            }
    }
    return NULL;
}

static void a_living_segment_is_read_consistently(void)
{
    builder b;
    lp_off step;
    build(&b, &step);
    lp_seg_node *n = node_at(&b, step);
    lp_off cells = n->cells[lp_hist_cell(1000) >> 5];
    memset(at_offset(&b, cells), 0, 256);
    for (int i = 0; i < (int)LP_HIST_OCTAVES; i++)
        if (n->cells[i] != cells)
            n->cells[i] = 0;
    n->entries = n->wall = 0;
    writer w = {.b = &b, .node = step, .thread = thread_at(&b, header_of(&b)->threads)->previous};
    pthread_t thread;
    unsigned torn = 0, rounds = 2000;
    uint64_t last = 0;
    lp_moment now = {BUILDER_START + 11000000000u, BUILDER_START + 11000000000u, BUILDER_REAL + 11000000000u};
    REQUIRE(pthread_create(&thread, NULL, write_entries, &w) == 0);
    for (unsigned i = 0; i < rounds; i++) {
        lp_worker *worker = NULL;
        header_of(&b)->thread_names = 1;
        if (lp_segment_read_memory(b.base, b.size, &now, &worker, NULL) != LP_OK) {
            torn = UINT32_MAX;
            break;
        }
        const lp_phase *p = phase_at(worker, "MainThread", "step");
        if (!p || p->entries != lp_cells_total(&p->hist) || p->entries < last)
            torn = UINT32_MAX / 2;
        else if (p->wall_ns != 1000 * p->entries)
            torn++; /* only where all tries were in vain */
        last = p ? p->entries : 0;
        lp_worker_free(worker);
    }
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    printf("# %u of %u reads of a node under constant change were estimates; %" PRIu64 " entries\n", torn, rounds,
           w.written);
    CHECK(torn <= rounds / 100);
    builder_free(&b);
}

/* ---- files */

static int segment_file(const builder *b, char *path)
{
    strcpy(path, "/tmp/lp_test_segment_XXXXXX");
    int fd = mkstemp(path);
    if (fd >= 0 && (ftruncate(fd, (off_t)b->size) != 0 || pwrite(fd, b->base, header_of(b)->used, 0) < 0))
        return -1;
    return fd;
}

/* What a reader says that can open nothing more. */
static bool living_without_descriptors(int fd)
{
    struct rlimit limit, none;
    int saved = errno;

    getrlimit(RLIMIT_NOFILE, &limit);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    errno = saved;
    bool living = lp_segment_is_living(fd);
    saved = errno;
    CHECK(open("/proc/self/stat", O_RDONLY | O_CLOEXEC) < 0);
    setrlimit(RLIMIT_NOFILE, &limit);
    errno = saved;
    return living;
}

static void life_is_told_by_the_lock_and_the_process(void)
{
    builder b;
    lp_off step;
    char path[64];
    lp_worker *w = NULL;
    lp_identity me;
    lp_arena *arena = lp_arena_new();
    build(&b, &step);
    lp_identity_init(&me);
    CHECK_EQ(lp_describe_process(arena, &me), LP_OK);
    int fd = segment_file(&b, path);
    REQUIRE(fd >= 0);
    int other = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(!lp_segment_is_living(other)); /* nobody holds the lock */
    REQUIRE(lp_segment_read_fd(other, path, &w, NULL) == LP_OK);
    CHECK(w->unclean && !w->living && !w->final);
    CHECK_EQ(w->written_ns, BUILDER_REAL + 10000000000u);
    CHECK(lp__str_equal(w->path, str(path)));
    lp_worker_free(w);

    CHECK_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
    errno = 77;
    CHECK(lp_segment_is_living(other)); /* of an unknown pid namespace: the lock decides */
    CHECK_EQ(errno, 77);
    REQUIRE(lp_segment_read_fd(other, path, &w, NULL) == LP_OK);
    CHECK(w->living && !w->unclean);
    CHECK(w->written_ns != BUILDER_REAL + 10000000000u); /* now */
    lp_worker_free(w);

    header_of(&b)->state = LP_SEG_CLOSED;
    REQUIRE(pwrite(fd, b.base, LP_SEG_HEADER, 0) == LP_SEG_HEADER);
    CHECK(!lp_segment_is_living(other)); /* alive, but records no more */
    REQUIRE(lp_segment_read_fd(other, path, &w, NULL) == LP_OK);
    CHECK(w->final && !w->unclean && !w->living);
    lp_worker_free(w);
    close(fd);
    close(other);
    unlink(path);
    builder_free(&b);

    /* of our own pid namespace: a lock that a forked child has inherited outlives the process */
    builder_begin(&b);
    lp_buffer bytes = {0};
    me.pid = getpid();
    lp_identity_encode(&me, &bytes);
    header_of(&b)->used = LP_SEG_HEADER;
    lp_off at = add_block(&b, LP_BLOCK_IDENTITY, 0, 8 + bytes.size);
    uint64_t size = bytes.size;
    memcpy(at_offset(&b, at), &size, 8);
    memcpy(b.base + at + 8, bytes.data, bytes.size);
    lp_buffer_free(&bytes);
    header_of(&b)->names = header_of(&b)->threads = 0;
    header_of(&b)->pid = me.pid;
    header_of(&b)->pid_start = me.pid_start;
    fd = segment_file(&b, path);
    REQUIRE(fd >= 0);
    other = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
    CHECK(lp_segment_is_living(other));
    errno = 77;
    CHECK(living_without_descriptors(other)); /* /proc cannot be asked: what was locked is no more dead for that */
    CHECK_EQ(errno, 77);
    header_of(&b)->pid_start = me.pid_start + 1; /* the pid is another's now */
    REQUIRE(pwrite(fd, b.base, LP_SEG_HEADER, 0) == LP_SEG_HEADER);
    CHECK(!lp_segment_is_living(other));
    CHECK(living_without_descriptors(other)); /* that cannot be seen then */
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    header_of(&b)->pid = child; /* gone */
    REQUIRE(pwrite(fd, b.base, LP_SEG_HEADER, 0) == LP_SEG_HEADER);
    CHECK(!lp_segment_is_living(other));
    CHECK(!living_without_descriptors(other)); /* that can be seen all the same */
    close(fd);
    close(other);
    unlink(path);
    lp_arena_free(arena);
    builder_free(&b);
}

static void a_truncated_file_is_no_bus_error(void)
{
    builder b;
    lp_off step;
    char path[64];
    lp_error error;
    lp_worker *w;
    build(&b, &step);
    int fd = segment_file(&b, path);
    REQUIRE(fd >= 0);
    for (off_t size = 0; size < (off_t)header_of(&b)->used; size += 997) {
        REQUIRE(ftruncate(fd, size) == 0);
        lp_status status = lp_segment_read_fd(fd, path, &w, &error);
        CHECK(status == LP_E_TRUNCATED || status == LP_E_FOREIGN);
        REQUIRE(pwrite(fd, b.base, header_of(&b)->used, 0) > 0);
    }
    close(fd);
    unlink(path);
    builder_free(&b);
}

int main(void)
{
    RUN(threads_are_merged);
    RUN(counters_are_exact);
    RUN(an_unfinished_update_is_rolled_back);
    RUN(an_unfinished_count_is_rolled_back);
    RUN(open_phases_are_listed);
    RUN(ticks_become_ns_by_the_longest_baseline);
    RUN(hostile_names_pass);
    RUN(the_order_of_creation_is_kept);
    RUN(wrong_headers_are_refused);
    RUN(damaged_segments_do_no_harm);
    RUN(a_living_segment_is_read_consistently);
    RUN(life_is_told_by_the_lock_and_the_process);
    RUN(a_truncated_file_is_no_bus_error);
    return check_done();
}
