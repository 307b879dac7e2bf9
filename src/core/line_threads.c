/* Threads of the line engine: how they come and go, their cells, how they are stopped at the door and read. Cold. */
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/lines.h"
#include "core/lines_internal.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

#define THREADS_APART 256u /* beyond, a new thread adds to the figures of one that has ended */
#define NAME_ROOM 128

__thread lp_line_thread *lp__lines_current;

static pthread_key_t at_thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int have_key;

bool lp__lines_is_ours(const lp_lines *lines, const lp_line_thread *th)
{
    return th->lines == lines && th->generation == lines->generation && th->seg;
}

/* ---- stop at the door ------------------------------------------------------------------------------------------------ */

/* Makes all threads of the process see our stores, and us theirs. */
static void barrier_everywhere(void)
{
    static _Atomic int registered;
    int saved = errno;

    if (!atomic_load(&registered) && syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0)
        atomic_store(&registered, 1);
    if (!atomic_load(&registered) || syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
        /* Forbidden here. A store leaves the buffer of its CPU in far less than this. */
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
    errno = saved;
}

void lp__lines_pause(lp_lines *lines)
{
    lp__lines_lock(lines);
    if (!lines->concurrent || !lines->begun)
        return;
    for (lp_line_thread *th = lines->threads; th; th = th->link)
        __atomic_store_n(&th->go, 0, __ATOMIC_RELEASE);
    barrier_everywhere();
    for (lp_line_thread *th = lines->threads; th; th = th->link)
        while (__atomic_load_n(&th->busy, __ATOMIC_ACQUIRE))
            sched_yield();
}

void lp__lines_go_on(lp_lines *lines)
{
    for (lp_line_thread *th = lines->threads; th; th = th->link)
        if (lp__lines_is_ours(lines, th) && th->attached)
            __atomic_store_n(&th->go, lines->on ? LP_LINES_GO : 0, __ATOMIC_RELEASE);
    lp__lines_unlock(lines);
}

/* ---- a thread comes and goes ----------------------------------------------------------------------------------------- */

static void thread_ends(void *unused)
{
    (void)unused;
    for (lp_line_thread *th = lp__lines_current, *next; th; th = next) {
        next = th->next;
        lp_lines *lines = th->lines;
        __atomic_store_n(&th->go, 0, __ATOMIC_RELEASE);
        if (!lines || lp_lines_forked(lines))
            continue;
        lp__lines_lock(lines);
        bool listed = !lines->dead && lp__lines_is_ours(lines, th);
        if (listed) {
            uint64_t v = lp_ticks() - th->seg->own;
            lp__lines_close_all(th, v);
            lp__lines_regions_end(th, v);
            __atomic_store_n(&th->seg->tid, 0, __ATOMIC_RELEASE);
        }
        th->attached = false;
        th->next = NULL;
        lp__lines_unlock(lines);
        if (!listed) /* its engine was freed: nobody else knows it */
            lp__lines_thread_free(th);
    }
    lp__lines_current = NULL;
}

void lp__lines_thread_free(lp_line_thread *th)
{
    munmap(th, sizeof *th);
}

static void make_key(void)
{
    have_key = pthread_key_create(&at_thread_end, thread_ends) == 0;
}

/* What was measured in less time than the first rate is better off with that one. */
static uint64_t mult_until_now(const lp_lines *lines)
{
    lp_moment now;

    lp_clock_moment(&now);
    bool is_short = now.mono_ns < lines->start.mono_ns + 1000000;
    return is_short ? lines->mult : lp_clock_mult(&lines->start, &now, lines->mult);
}

static bool begin(lp_lines *lines)
{
    lp_clock_init(-1);
    lines->mult = lp_clock_calibrate();
    if (!lines->hooks.open(lines->hooks.user, lines))
        return false;
    lp_clock_moment(&lines->start);
    lines->rested_mult = 0;
    lp_seg_header *header = lp_segment_header(&lines->segment);
    header->clock.kind = lp__clock_kind;
    header->clock.mult = lines->mult;
    header->clock.start = header->clock.last = lines->start;
    header->started_ns = lines->start.real_ns;
    lines->generation++;
    __atomic_store_n(&lines->guard[0], lines->generation, __ATOMIC_RELEASE);
    lines->begun = true;
    lp_segment_set_state(&lines->segment, LP_SEG_RECORDING);
    return true;
}

/* In a child the tables of codes and names are there, figures and threads are not. */
static bool begin_in_child(lp_lines *lines)
{
    /* guard[1] reads zero in a fresh child: the first thread that comes sets it up, whatever the parent's lock was. */
    if (__atomic_exchange_n(&lines->guard[1], 1, __ATOMIC_ACQ_REL) != 0) {
        while (lp_lines_forked(lines) && lines->on)
            sched_yield();
        return !lp_lines_forked(lines);
    }
    lp_segment_forget(&lines->segment);
    lines->threads = NULL;
    lines->thread_count = 0;
    lp__lines_shards_in_child(lines);
    atomic_flag_clear(&lines->lock);
    atomic_flag_clear(&lines->describing);
    bool good = begin(lines);
    if (!good)
        lines->on = 0;
    return good;
}

static lp_line_thread *unused_thread(lp_lines *lines)
{
    if (lines->thread_count >= THREADS_APART)
        for (lp_line_thread *th = lines->threads; th; th = th->link)
            if (!th->attached)
                return th;
    return NULL;
}

static bool furnish(lp_lines *lines, lp_line_thread *th)
{
    char name[NAME_ROOM];
    size_t size = lines->hooks.thread_name ? lines->hooks.thread_name(lines->hooks.user, name, sizeof name) : 0;
    lp_off at = lp_segment_take(&lines->segment, LP_BLOCK_LINE_THREAD, 0, sizeof(lp_seg_line_thread) + NAME_ROOM, NULL);

    if (!at)
        return false;
    th->lines = lines;
    th->generation = lines->generation;
    th->blocks = th->chunk = th->chunk_end = 0;
    th->chunk_size = 0;
    th->seg = (lp_seg_line_thread *)(void *)(lines->segment.base + at);
    th->seg->base = (uint64_t)(uintptr_t)lines->segment.base;
    memcpy(th->seg + 1, name, size);
    th->seg->name_size = (uint32_t)size;
    th->top = th->bottom = th->limit = NULL;
    if (!lp__lines_nodes_make(th) || !lp__lines_stack_make(th)) {
        th->seg = NULL;
        return false;
    }
    lp__lines_lock(lines);
    th->seg->number = lines->thread_count++;
    th->link = lines->threads;
    __atomic_store_n(&lines->threads, th, __ATOMIC_RELEASE);
    lp__lines_unlock(lines);
    return true;
}

/* The calling thread's state for this engine, in front of its list; made when there is none. */
static lp_line_thread *attach(lp_lines *lines)
{
    lp_line_thread *th = NULL;

    for (lp_line_thread **link = &lp__lines_current; *link; link = &(*link)->next) {
        if ((*link)->lines == lines) {
            th = *link;
            *link = th->next;
            break;
        }
        if (!(*link)->lines) { /* wiped by a fork, which cut the list */
            th = *link;
            *link = th->next;
            break;
        }
    }
    if (!th) {
        lp__lines_lock(lines);
        th = unused_thread(lines);
        if (th)
            th->attached = true;
        lp__lines_unlock(lines);
    }
    if (!th) {
        void *at = mmap(NULL, sizeof *th, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return NULL;
        madvise(at, sizeof *th, MADV_WIPEONFORK);
        th = at;
        th->lines = lines;
    }
    pthread_once(&once, make_key);
    if (have_key)
        pthread_setspecific(at_thread_end, th);
    th->next = lp__lines_current;
    lp__lines_current = th;
    th->attached = true; /* before it is in the engine's list, where another thread takes what is not */
    if (!lp__lines_is_ours(lines, th) && !furnish(lines, th))
        return NULL;
    th->cost = lines->cost;
    __atomic_store_n(&th->seg->tid, (int64_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    return th;
}

lp_line_thread *lp__lines_attached(lp_lines *lines)
{
    lp_line_thread *th = lp__lines_current;

    if (lp_lines_forked(lines) ? !begin_in_child(lines) : !lines->begun && !begin(lines))
        return NULL;
    if (!(th && th->lines == lines && th->attached && lp__lines_is_ours(lines, th)))
        th = attach(lines);
    return th;
}

lp_line_thread *lp__lines_sync(lp_lines *lines)
{
    if (!__atomic_load_n(&lines->on, __ATOMIC_ACQUIRE))
        return NULL;
    int saved = errno;
    lp_line_thread *th = lp__lines_attached(lines);
    errno = saved;
    if (!th) {
        atomic_fetch_add(&lines->health.lost_events, 1);
        return NULL;
    }
    /* A reader may have shut the door: it holds the lock meanwhile. */
    lp__lines_lock(lines);
    bool on = lines->on;
    __atomic_store_n(&th->busy, on && lines->concurrent, __ATOMIC_RELAXED);
    __atomic_store_n(&th->go, on ? LP_LINES_GO : 0, __ATOMIC_RELEASE);
    lp__lines_unlock(lines);
    return on ? th : NULL;
}

/* ---- cells ----------------------------------------------------------------------------------------------------------- */

#define FIRST_CELLS 2048u /* bytes */
#define MOST_CELLS 32768u

/* Zeroed, in blocks of the thread's that grow. */
static lp_seg_line_cells *take_cells(lp_line_thread *th, uint32_t count)
{
    lp_segment *segment = &th->lines->segment;
    uint64_t size = sizeof(lp_seg_line_cells) + count * sizeof(lp_line_cell);

    if (th->chunk_end - th->chunk < size) {
        uint64_t want = th->chunk_size < FIRST_CELLS ? FIRST_CELLS : th->chunk_size, got = 0;
        lp_off owner = (lp_off)((unsigned char *)th->seg - segment->base);
        lp_off at = lp_segment_take(segment, LP_BLOCK_LINE_CELLS, owner, want > size ? want : size, &got);
        if (!at)
            return NULL;
        th->chunk = at;
        th->chunk_end = (lp_off)(at + got);
        th->chunk_size = (uint32_t)(want < MOST_CELLS ? 2 * want : want);
    }
    lp_seg_line_cells *head = (lp_seg_line_cells *)(void *)(segment->base + th->chunk);
    th->chunk += (lp_off)size;
    return head;
}

static lp_line_cell *cells_of(lp_line_thread *th, lp_line_code *code, uint32_t number)
{
    lp_line_node *node = &th->nodes[number];

    if (code->index >= node->have) {
        uint32_t room = node->have;
        lp_line_cell **grown = lp__lines_grown(node->cells, &room, code->index + 1, sizeof *grown);
        if (!grown)
            return NULL;
        node->cells = grown;
        node->have = room;
    }
    if (number == th->region) {
        th->cells = node->cells;
        th->have = node->have;
    }
    if (node->cells[code->index])
        return node->cells[code->index];
    lp__lines_describe(th->lines, code);
    lp_seg_line_cells *head = take_cells(th, code->slots);
    if (!head)
        return NULL;
    head->code = code->index;
    head->thread = th->seg->number;
    head->region = number;
    for (uint32_t i = 0; i < code->slots; i++)
        head->at[i].line = code->lines[i];
    head->next = th->blocks;
    head->count = code->slots;
    th->blocks = (lp_off)((unsigned char *)head - th->lines->segment.base);
    __atomic_store_n(&head->size, sizeof *head + code->slots * sizeof *head->at, __ATOMIC_RELEASE);
    return node->cells[code->index] = head->at;
}

lp_line_cell *lp__lines_cells(lp_line_thread *th, lp_line_code *code)
{
    /* Open frames are counted in the cells of region 0. */
    lp_line_cell *cells = cells_of(th, code, 0);

    if (cells && th->region)
        cells = cells_of(th, code, th->region);
    if (!cells)
        atomic_fetch_add(&th->lines->health.lost_events, 1);
    return cells;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

void lp_lines_set_cost(lp_lines *lines, const lp_line_cost *cost)
{
    lines->cost = *cost;
    if (lp_lines_forked(lines))
        return;
    lp__lines_pause(lines);
    for (lp_line_thread *th = lines->threads; th; th = th->link)
        th->cost = *cost;
    lp__lines_go_on(lines);
}

void lp_lines_set_on(lp_lines *lines, bool on)
{
    if (!on && lp_lines_forked(lines)) {
        lines->on = 0;
        return;
    }
    if (lp_lines_forked(lines) ? !begin_in_child(lines) : on && !lines->begun && !begin(lines))
        return;
    lp__lines_pause(lines);
    __atomic_store_n(&lines->on, on, __ATOMIC_RELEASE);
    __atomic_store_n(&lines->rested_mult, !on && lines->begun ? mult_until_now(lines) : 0, __ATOMIC_RELEASE);
    if (!on && lines->begun) {
        uint64_t now = lp_ticks();
        for (lp_line_thread *th = lines->threads; th; th = th->link)
            lp__lines_close_all(th, now - th->seg->own);
        lp__lines_forget_suspended(lines, true, now);
    }
    lp__lines_go_on(lines);
}

void lp_lines_unmark(lp_lines *lines, lp_line_code *code)
{
    __atomic_store_n(&code->marked, 0, __ATOMIC_RELEASE);
    if (!lines->begun || lp_lines_forked(lines))
        return;
    lp__lines_pause(lines);
    uint64_t now = lp_ticks();
    for (lp_line_thread *th = lines->threads; th; th = th->link)
        lp__lines_drop_code(th, code, now - th->seg->own);
    lp__lines_go_on(lines);
}

static void clear_blocks(lp_lines *lines, lp_line_thread *th)
{
    for (lp_off at = th->blocks; at;) {
        lp_seg_line_cells *head = (lp_seg_line_cells *)(void *)(lines->segment.base + at);
        head->calls = head->time = head->prologue = head->suspended = 0;
        for (uint32_t i = 0; i < head->count; i++) {
            lp_line_cell *cell = &head->at[i];
            cell->visits = cell->again = cell->time = cell->self = cell->awaited = 0;
        }
        at = head->next;
    }
}

void lp_lines_clear(lp_lines *lines)
{
    if (!lines->begun || lp_lines_forked(lines))
        return;
    lp__lines_pause(lines);
    uint64_t now = lp_ticks();
    for (lp_line_thread *th = lines->threads; th; th = th->link) {
        uint64_t v = now - th->seg->own;
        lp__lines_settle(th, th->bottom + 1, v);
        clear_blocks(lines, th);
        lp__lines_regions_clear(th, v);
    }
    lp__lines_forget_suspended(lines, false, now);
    lp__lines_go_on(lines);
}

void lp_lines_read(lp_lines *lines, lp_lines_visit *visit, void *user)
{
    if (!lines->begun || lp_lines_forked(lines))
        return;
    lp__lines_pause(lines);
    uint64_t now = lp_ticks();
    for (lp_line_thread *th = lines->threads; th; th = th->link) {
        uint64_t v = now - th->seg->own;
        lp__lines_settle(th, th->bottom + 1, v);
        lp__lines_regions_settle(th, v);
        visit(user, th, lines->segment.base);
    }
    lp__lines_go_on(lines);
}

uint32_t lp_lines_thread_count(const lp_lines *lines)
{
    return lines->thread_count;
}
