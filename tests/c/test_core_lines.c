/* The line engine without Python: events at moments that the test chooses, so that every figure is known to the tick. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/lines.h"

#include "check.h"

/* Code objects of four lines, 10 … 13, two units each; unit 3 comes back to line 10 within its statement. */
static char keys[64];

static bool open_segment(void *user, lp_lines *lines)
{
    lp_error error = {0};
    (void)user;
    return lp_segment_create(&lines->segment, -1, NULL, NULL, &error) == LP_OK;
}

static size_t thread_name(void *user, char *name, size_t size)
{
    (void)user;
    (void)size;
    memcpy(name, "worker", 6);
    return 6;
}

static lp_line_code *add_code(lp_lines *lines, const void *key)
{
    static const uint16_t entries[] = {0 << LP_LINE_SLOT,          1 << LP_LINE_SLOT,
                                       2 << LP_LINE_SLOT,          0 << LP_LINE_SLOT | LP_LINE_AGAIN,
                                       3 << LP_LINE_SLOT | 1 << 1, LP_LINE_NARROW_NOWHERE};
    static const int32_t numbers[] = {10, 11, 12, 13};
    uint16_t *narrow = malloc(sizeof entries);
    int32_t *line = malloc(sizeof numbers);
    char *file = malloc(2), *name = malloc(2);

    memcpy(narrow, entries, sizeof entries);
    memcpy(line, numbers, sizeof numbers);
    memcpy(file, "f", 2);
    memcpy(name, "n", 2);
    lp_line_code code = {.key = key,
                         .bytes = sizeof entries,
                         .narrow = narrow,
                         .lines = line,
                         .slots = 4,
                         .first_line = 10,
                         .file = file,
                         .name = name,
                         .file_size = 1,
                         .name_size = 1};
    lp_line_code *made = lp_lines_code_add(lines, &code);
    free(narrow);
    free(line);
    free(file);
    free(name);
    return made;
}

static lp_lines *engine_of(unsigned codes)
{
    lp_lines *lines = lp_lines_new(&(lp_line_hooks){.open = open_segment, .thread_name = thread_name}, false);

    for (unsigned i = 0; i < codes; i++)
        add_code(lines, &keys[i]);
    lp_lines_set_on(lines, true);
    return lines;
}

typedef struct sums {
    lp_line_cell cell[8][4]; /* by code and slot, over regions and threads */
    uint64_t calls[8], time[8], prologue[8], suspended[8];
    uint32_t open, threads, blocks;
} sums;

static void add_up(void *user, const lp_line_thread *th, const unsigned char *base)
{
    sums *s = user;

    s->threads++;
    for (lp_off at = th->blocks; at;) {
        const lp_seg_line_cells *head = (const lp_seg_line_cells *)(const void *)(base + at);
        uint32_t code = head->code % 8;
        s->blocks++;
        s->calls[code] += head->calls;
        s->time[code] += head->time;
        s->prologue[code] += head->prologue;
        s->suspended[code] += head->suspended;
        s->open += head->open;
        for (uint32_t i = 0; i < 4; i++) {
            lp_line_cell *to = &s->cell[code][i];
            const lp_line_cell *from = &head->at[i];
            to->visits += from->visits;
            to->again += from->again;
            to->time += from->time;
            to->self += from->self;
            to->awaited += from->awaited;
            to->line = from->line;
            s->open += from->open;
        }
        at = head->next;
    }
}

static sums read_all(lp_lines *lines)
{
    sums s = {0};
    lp_lines_read(lines, add_up, &s);
    return s;
}

#define FRAME(n) ((const void *)(uintptr_t)(0x1000 + 16 * (n)))
#define CONTEXT(n) ((const void *)(uintptr_t)(0x9000 + 16 * (n)))

static void call(lp_lines *lines, unsigned code, unsigned frame, uint64_t now)
{
    lp_line_thread *th = lp_lines_enter(lines, false);
    lp_lines_call(th, lp_lines_code(lines, &keys[code]), FRAME(frame), CONTEXT(0), now);
}

static void line_in(lp_lines *lines, unsigned code, unsigned frame, size_t unit, uint64_t now, unsigned context)
{
    lp_line_thread *th = lp_lines_enter(lines, false);
    if (!lp_lines_line(th, FRAME(frame), &keys[code], 2 * unit, now))
        lp_lines_line_slow(th, FRAME(frame), &keys[code], CONTEXT(context), 2 * unit, -1, now);
}

static void line(lp_lines *lines, unsigned code, unsigned frame, size_t unit, uint64_t now)
{
    line_in(lines, code, frame, unit, now, 0);
}

static void leave(lp_lines *lines, unsigned code, unsigned frame, uint64_t now)
{
    lp_lines_leave(lp_lines_enter(lines, false), FRAME(frame), &keys[code], CONTEXT(0), now);
}

static void lines_and_calls(void)
{
    lp_lines *lines = engine_of(2);

    call(lines, 0, 0, 100);
    line(lines, 0, 0, 0, 101); /* one tick of prologue */
    line(lines, 0, 0, 1, 111);
    call(lines, 1, 1, 113);
    line(lines, 1, 1, 2, 113);
    leave(lines, 1, 1, 133);
    line(lines, 0, 0, 3, 140); /* line 10 again */
    leave(lines, 0, 0, 150);
    sums s = read_all(lines);
    CHECK_EQ(s.cell[0][0].visits, 2u);
    CHECK_EQ(s.cell[0][0].again, 1u);
    CHECK_EQ(s.cell[0][0].time, 20u);
    CHECK_EQ(s.cell[0][0].self, 20u);
    CHECK_EQ(s.cell[0][0].line, 10);
    CHECK_EQ(s.cell[0][1].visits, 1u);
    CHECK_EQ(s.cell[0][1].time, 29u);
    CHECK_EQ(s.cell[0][1].self, 9u);
    CHECK_EQ(s.cell[1][2].time, 20u);
    CHECK_EQ(s.time[0], 50u);
    CHECK_EQ(s.time[1], 20u);
    CHECK_EQ(s.prologue[0], 1u);
    CHECK_EQ(s.calls[0], 1u);
    CHECK_EQ(s.open, 0u);
    lp_lines_free(lines);
}

static void recursion_counts_once(void)
{
    lp_lines *lines = engine_of(1);

    for (unsigned depth = 0; depth < 1000; depth++) { /* more than the first stack holds */
        call(lines, 0, depth, 100 + 10 * depth);
        line(lines, 0, depth, 0, 100 + 10 * depth);
    }
    for (unsigned depth = 1000; depth-- > 0;)
        leave(lines, 0, depth, 20100 + 10 * (1000 - depth));
    sums s = read_all(lines);
    CHECK_EQ(s.cell[0][0].visits, 1000u);
    CHECK_EQ(s.cell[0][0].time, 30000u); /* of the outermost: 100 … 30100 */
    CHECK_EQ(s.cell[0][0].self, 30000u);
    CHECK_EQ(s.time[0], 30000u);
    CHECK_EQ(s.calls[0], 1000u);
    CHECK_EQ(s.open, 0u);
    lp_lines_free(lines);
}

static void suspended_frames_wait(void)
{
    lp_lines *lines = engine_of(2);
    lp_line_thread *th = lp_lines_enter(lines, false);
    lp_line_code *generator = lp_lines_code(lines, &keys[1]);

    call(lines, 0, 0, 100);
    line(lines, 0, 0, 0, 100);
    call(lines, 1, 1, 110);
    line(lines, 1, 1, 1, 110);
    lp_lines_yield(th, FRAME(1), &keys[1], CONTEXT(0), 115);
    CHECK_EQ(th->top - th->bottom, 1);
    lp_lines_resume(th, generator, FRAME(1), CONTEXT(0), 2, 215);
    line(lines, 1, 1, 2, 225);
    lp_lines_yield(th, FRAME(1), &keys[1], CONTEXT(0), 230);
    leave(lines, 0, 0, 300);
    sums s = read_all(lines);
    CHECK_EQ(s.cell[1][1].visits, 1u);
    CHECK_EQ(s.cell[1][1].time, 15u);
    CHECK_EQ(s.cell[1][1].awaited, 100u);
    CHECK_EQ(s.cell[1][2].time, 5u);
    CHECK_EQ(s.cell[1][2].awaited, 0u);
    CHECK_EQ(s.cell[0][0].time, 200u);
    CHECK_EQ(s.cell[0][0].self, 180u);
    CHECK_EQ(s.suspended[1], 2u);
    CHECK_EQ(s.calls[1], 1u);
    CHECK_EQ(s.time[1], 20u);
    CHECK_EQ(s.open, 0u);
    /* The suspended one was dropped; another frame at its address is another frame. */
    call(lines, 1, 1, 400);
    line(lines, 1, 1, 1, 400);
    leave(lines, 1, 1, 410);
    s = read_all(lines);
    CHECK_EQ(s.cell[1][1].awaited, 100u);
    lp_lines_free(lines);
}

static void many_suspended_frames(void)
{
    lp_lines *lines = engine_of(1);
    lp_line_thread *th = lp_lines_enter(lines, false);
    lp_line_code *generator = lp_lines_code(lines, &keys[0]);

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 50000; i++) {
            call(lines, 0, i, 10);
            line(lines, 0, i, 1, 10);
            lp_lines_yield(th, FRAME(i), &keys[0], CONTEXT(0), 20);
        }
        for (unsigned i = 0; i < 50000; i++) {
            lp_lines_resume(th, generator, FRAME(i), CONTEXT(0), 2, 23);
            leave(lines, 0, i, 24);
        }
    }
    sums s = read_all(lines);
    CHECK_EQ(s.cell[0][1].awaited, 3u * 150000u);
    CHECK_EQ(s.cell[0][1].time, 11u * 150000u);
    CHECK_EQ(atomic_load(&lines->health.suspended_lost), 0u);
    lp_lines_free(lines);
}

static void frames_that_were_never_called(void)
{
    lp_lines *lines = engine_of(1);

    leave(lines, 0, 0, 50); /* unmatched */
    line(lines, 0, 0, 0, 100);
    line(lines, 0, 0, 1, 110);
    leave(lines, 0, 0, 130);
    sums s = read_all(lines);
    CHECK_EQ(s.cell[0][0].time, 10u);
    CHECK_EQ(s.cell[0][1].time, 20u);
    CHECK_EQ(s.calls[0], 0u);
    CHECK_EQ(s.time[0], 30u);
    line(lines, 0, 0, 5, 200); /* an instruction without a line, and none that is known */
    leave(lines, 0, 0, 210);
    s = read_all(lines);
    CHECK_EQ(s.cell[0][0].visits + s.cell[0][1].visits, 2u);
    CHECK_EQ(s.open, 0u);
    lp_lines_free(lines);
}

static void lost_frames_are_dropped(void)
{
    lp_lines *lines = engine_of(2);

    call(lines, 0, 0, 100);
    line(lines, 0, 0, 0, 100);
    call(lines, 1, 1, 110);
    line(lines, 1, 1, 0, 110); /* ends without an event */
    line(lines, 0, 0, 1, 150);
    leave(lines, 0, 0, 160);
    sums s = read_all(lines);
    CHECK_EQ(s.cell[0][0].time, 50u);
    CHECK_EQ(s.cell[1][0].visits, 1u);
    CHECK_EQ(s.cell[1][0].time, 0u);
    CHECK_EQ(s.open, 0u);
    CHECK_EQ(atomic_load(&lines->health.lost_frames), 1u);
    lp_lines_free(lines);
}

static void stacks_that_are_switched(void)
{
    lp_lines *lines = engine_of(2);
    lp_line_thread *th = lp_lines_enter(lines, false);

    lp_lines_call(th, lp_lines_code(lines, &keys[0]), FRAME(0), CONTEXT(1), 100);
    line_in(lines, 0, 0, 0, 100, 1);
    lp_lines_call(th, lp_lines_code(lines, &keys[1]), FRAME(1), CONTEXT(2), 110);
    line_in(lines, 1, 1, 0, 110, 2);
    line_in(lines, 0, 0, 1, 130, 1); /* back to the first */
    line_in(lines, 1, 1, 1, 150, 2); /* and to the second */
    lp_lines_leave(th, FRAME(0), &keys[0], CONTEXT(1), 160);
    lp_lines_leave(th, FRAME(1), &keys[1], CONTEXT(2), 170);
    sums s = read_all(lines);
    CHECK_EQ(s.cell[0][0].time, 30u);
    CHECK_EQ(s.cell[1][0].time, 40u);
    uint64_t self = 0;
    for (int code = 0; code < 2; code++)
        for (int slot = 0; slot < 4; slot++)
            self += s.cell[code][slot].self;
    CHECK_EQ(self, 70u); /* each tick once */
    CHECK_EQ(s.open, 0u);
    CHECK_EQ(atomic_load(&lines->health.lost_frames), 0u);
    lp_lines_free(lines);
}

static void own_cost_is_taken_off(void)
{
    lp_lines *lines = engine_of(2);
    lp_line_cost cost = {.line = {3, 5},
                         .event = {[LP_LINE_CALL] = 7, [LP_LINE_RETURN] = 11, [LP_LINE_CALL_BEFORE] = 2}};

    lp_lines_set_cost(lines, &cost);
    call(lines, 0, 0, 1000);
    line(lines, 0, 0, 0, 1010);
    call(lines, 1, 1, 1020);
    line(lines, 1, 1, 4, 1030); /* of the dearer class */
    leave(lines, 1, 1, 1040);
    line(lines, 0, 0, 1, 1060);
    leave(lines, 0, 0, 1070);
    sums s = read_all(lines);
    CHECK_EQ(s.prologue[0], 3u);
    CHECK_EQ(s.cell[1][3].time, 5u);
    CHECK_EQ(s.prologue[1], 3u);
    CHECK_EQ(s.time[1], 8u);                                    /* 20 less a call, a line */
    CHECK_EQ(s.cell[0][0].time, 50u - 3u - 2u - 7u - 5u - 11u); /* what comes before a call is its caller's */
    CHECK_EQ(s.cell[0][0].self, s.cell[0][0].time - 8u);
    CHECK_EQ(s.cell[0][1].time, 7u);
    lp_lines_free(lines);
}

static void the_first_line_begins_with_its_call(void)
{
    lp_lines *lines = engine_of(2);
    lp_line_thread *th = lp_lines_enter(lines, false);
    lp_line_cost cost = {.line = {3}, .event = {7, 11, 0, 0}};

    lp_lines_set_cost(lines, &cost);
    call(lines, 0, 0, 1000);
    uint64_t first = lp_lines_line_ticks(th, FRAME(0), &keys[0]), before = lp_ticks();
    CHECK_EQ(first, 1007u); /* less the cost of the call: the moment of the call */
    CHECK(lp_lines_line_ticks(th, FRAME(1), &keys[0]) >= before); /* another frame */
    CHECK(lp_lines_line_ticks(th, FRAME(0), &keys[1]) >= before); /* other code in its memory */
    line(lines, 0, 0, 0, first);
    CHECK(lp_lines_line_ticks(th, FRAME(0), &keys[0]) >= before); /* its second line */
    CHECK(!lp_lines_leave_top(th, FRAME(1), &keys[0]));
    CHECK(!lp_lines_leave_top(th, FRAME(0), &keys[1]));
    leave(lines, 0, 0, 1060);
    sums s = read_all(lines);
    CHECK_EQ(s.prologue[0], 0u);
    CHECK_EQ(s.cell[0][0].time, 50u); /* 60 less a call and a line */
    CHECK_EQ(s.time[0], 50u);

    call(lines, 0, 0, 2000);
    call(lines, 1, 1, 2010); /* a signal's handler, before the first line */
    leave(lines, 1, 1, 2050);
    CHECK(lp_lines_line_ticks(th, FRAME(0), &keys[0]) >= before);
    CHECK(lp_lines_leave_top(th, FRAME(0), &keys[0]));
    CHECK_EQ(read_all(lines).open, 0u);
    lp_lines_free(lines);
}

static void off_clear_and_unmark(void)
{
    lp_lines *lines = engine_of(2);

    call(lines, 0, 0, lp_ticks());
    line(lines, 0, 0, 0, lp_ticks());
    call(lines, 1, 1, lp_ticks());
    line(lines, 1, 1, 1, lp_ticks());
    lp_lines_unmark(lines, lp_lines_code(lines, &keys[1]));
    CHECK_EQ(lp__lines_current->top->frame, FRAME(0));
    sums s = read_all(lines);
    CHECK_EQ(s.open, 2u); /* a call and its line */
    lp_lines_clear(lines);
    s = read_all(lines);
    CHECK_EQ(s.cell[0][0].visits, 0u);
    CHECK_EQ(s.calls[0], 0u);
    CHECK_EQ(s.open, 2u);
    lp_lines_set_on(lines, false);
    CHECK(lp_lines_enter(lines, false) == NULL);
    s = read_all(lines);
    CHECK_EQ(s.open, 0u);
    lp_lines_set_on(lines, true);
    CHECK(lp_lines_enter(lines, false) != NULL);
    lp_lines_free(lines);
    /* Its memory serves the next one, and this thread's state is not taken for that one's. */
    lp_lines *next = engine_of(1);
    s = read_all(next);
    CHECK_EQ(s.threads, 0u);
    line(next, 0, 0, 0, 100);
    leave(next, 0, 0, 110);
    s = read_all(next);
    CHECK_EQ(s.cell[0][0].time, 10u);
    lp_lines_free(next);
}

static void regions_have_cells_of_their_own(void)
{
    lp_lines *lines = engine_of(1);
    uint32_t a = lp_lines_name(lines, "a", 1), b = lp_lines_name(lines, "b", 1);

    CHECK_EQ(lp_lines_name(lines, "a", 1), a);
    call(lines, 0, 0, 100);
    line(lines, 0, 0, 0, 100);
    CHECK(lp_lines_region_enter(lines, a, 110));
    line(lines, 0, 0, 1, 120);
    CHECK(lp_lines_region_enter(lines, b, 125));
    CHECK(lp_lines_region_enter(lines, a, 126)); /* within itself: counted, its time only once */
    CHECK(lp_lines_region_leave(lines, UINT32_MAX, 127));
    CHECK(lp_lines_region_leave(lines, UINT32_MAX, 128));
    line(lines, 0, 0, 2, 130);
    CHECK(lp_lines_region_leave(lines, UINT32_MAX, 150));
    CHECK(!lp_lines_region_leave(lines, UINT32_MAX, 150));
    leave(lines, 0, 0, 160);
    lp_line_thread *th = lp_lines_enter(lines, false);
    CHECK_EQ(th->node_count, 3u);
    CHECK_EQ(th->nodes[1].seg->entries, 2u);
    CHECK_EQ(th->nodes[1].seg->time, 40u);
    CHECK_EQ(th->nodes[2].seg->entries, 1u);
    CHECK_EQ(th->nodes[2].seg->time, 3u);
    sums s = read_all(lines);
    CHECK_EQ(s.blocks, 3u);
    CHECK_EQ(s.cell[0][0].time, 20u);
    CHECK_EQ(s.cell[0][1].time, 10u);
    CHECK_EQ(s.cell[0][1].visits, 1u);
    CHECK_EQ(s.cell[0][2].time, 30u);
    CHECK_EQ(s.time[0], 60u);
    CHECK_EQ(s.open, 0u);
    lp_lines_free(lines);
}

/* Tasks of a thread enter and leave theirs in turns. */
static void regions_are_left_in_any_order(void)
{
    lp_lines *lines = engine_of(1);
    uint32_t a = lp_lines_name(lines, "a", 1), b = lp_lines_name(lines, "b", 1);

    call(lines, 0, 0, 100);
    line(lines, 0, 0, 0, 100);
    CHECK(lp_lines_region_enter(lines, a, 110));
    CHECK(lp_lines_region_enter(lines, b, 120));
    CHECK(lp_lines_region_enter(lines, b, 125)); /* a third task, in the same one */
    line(lines, 0, 0, 1, 130);
    CHECK(lp_lines_region_leave(lines, a, 140)); /* before those that were entered in it */
    CHECK(!lp_lines_region_leave(lines, a, 141));
    line(lines, 0, 0, 2, 150);
    CHECK(lp_lines_region_leave(lines, b, 160));
    CHECK(lp_lines_region_leave(lines, b, 170));
    CHECK(!lp_lines_region_leave(lines, b, 171));
    leave(lines, 0, 0, 180);
    lp_line_thread *th = lp_lines_enter(lines, false);
    CHECK_EQ(th->node_count, 4u); /* a, b in a, b alone */
    CHECK_EQ(th->region, 0u);
    CHECK_EQ(th->nodes[1].seg->entries, 1u);
    CHECK_EQ(th->nodes[1].seg->time, 30u);
    CHECK_EQ(th->nodes[2].seg->entries, 2u);
    CHECK_EQ(th->nodes[2].seg->time, 20u);
    CHECK_EQ(th->nodes[3].seg->entries, 0u);
    CHECK_EQ(th->nodes[3].seg->parent, 0u);
    CHECK_EQ(th->nodes[3].seg->time, 30u);
    lp_lines_free(lines);
}

static void a_child_starts_from_zero(void)
{
    lp_lines *lines = engine_of(1);
    int status = -1;

    call(lines, 0, 0, 100);
    line(lines, 0, 0, 0, 100);
    pid_t pid = fork();
    if (pid == 0) {
        bool good = lp_lines_forked(lines);
        line(lines, 0, 0, 1, 110); /* the frame goes on here, as one that was never called */
        good = good && !lp_lines_forked(lines);
        leave(lines, 0, 0, 120);
        sums s = read_all(lines);
        good = good && s.cell[0][0].visits == 0 && s.cell[0][1].time == 10 && s.calls[0] == 0 && s.threads == 1;
        lp_lines_free(lines);
        _exit(good ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    leave(lines, 0, 0, 130);
    sums s = read_all(lines);
    CHECK_EQ(s.cell[0][0].time, 30u);
    CHECK_EQ(s.cell[0][1].visits, 0u);
    lp_lines_free(lines);
}

/* Without a lock of the interpreter: writers, a reader, and somebody who clears and switches off and on. */
enum { WRITERS = 3, ROUNDS = 200000 };
static _Atomic int writing;
static lp_lines *shared;

static void *writer(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t now = lp_ticks();
        lp_line_thread *th = lp_lines_enter(shared, true);
        if (!th)
            continue;
        lp_lines_call(th, lp_lines_code(shared, &keys[0]), FRAME(1), CONTEXT(0), now);
        lp_lines_exit(th, true);
        for (size_t unit = 0; unit < 2; unit++) {
            th = lp_lines_enter(shared, true);
            if (th) {
                now = lp_ticks();
                if (!lp_lines_line(th, FRAME(1), &keys[0], 2 * unit, now))
                    lp_lines_line_slow(th, FRAME(1), &keys[0], CONTEXT(0), 2 * unit, -1, now);
                lp_lines_exit(th, true);
            }
        }
        th = lp_lines_enter(shared, true);
        if (th) {
            lp_lines_leave(th, FRAME(1), &keys[0], CONTEXT(0), lp_ticks());
            lp_lines_exit(th, true);
        }
    }
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

static uint64_t run_writers(bool disturb)
{
    pthread_t threads[WRITERS];
    uint64_t last = 0;

    atomic_store(&writing, WRITERS);
    for (int i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, writer, NULL);
    for (unsigned round = 0; atomic_load(&writing); round++) {
        sums s = read_all(shared);
        CHECK(disturb || s.cell[0][0].visits >= last);
        last = s.cell[0][0].visits;
        if (disturb && round % 3 == 0)
            lp_lines_clear(shared);
        if (disturb && round % 3 == 1) {
            lp_lines_set_on(shared, false);
            lp_lines_set_on(shared, true);
        }
        const struct timespec pause = {.tv_nsec = 200000};
        nanosleep(&pause, NULL);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    sums s = read_all(shared);
    CHECK_EQ(s.open, 0u);
    CHECK(s.cell[0][1].self <= s.cell[0][1].time + 1);
    return s.cell[0][0].visits;
}

static void *ends_within_a_region(void *lines)
{
    const struct timespec pause = {.tv_nsec = 2000000};

    CHECK(lp_lines_region_enter(lines, 0, lp_ticks()));
    CHECK(lp_lines_region_enter(lines, 0, lp_ticks()));
    nanosleep(&pause, NULL);
    return NULL;
}

static void time_of_region(void *user, const lp_line_thread *th, const unsigned char *base)
{
    (void)base;
    if (th->node_count > 1) {
        *(uint64_t *)user = th->nodes[1].seg->time;
        CHECK_EQ(th->nodes[1].open, 0u); /* another thread may go on with these figures */
        CHECK_EQ(th->region, 0u);
    }
}

static void a_thread_ends_within_a_region(void)
{
    lp_lines *lines = engine_of(1);
    pthread_t thread;
    uint64_t ticks = 0;

    CHECK_EQ(lp_lines_name(lines, "r", 1), 0u);
    uint64_t begin = lp_ticks();
    pthread_create(&thread, NULL, ends_within_a_region, lines);
    pthread_join(thread, NULL);
    uint64_t wall = lp_ticks() - begin;
    lp_lines_read(lines, time_of_region, &ticks);
    CHECK(lp_ticks_to_ns(ticks, lp_lines_mult(lines)) >=
          1900000u); /* it slept 2 ms; the rate of the clock is a guess yet */
    CHECK(ticks <= wall);
    lp_lines_free(lines);
}

typedef struct caller { /* a thread that makes a call and then ends, or waits until its engine has gone */
    lp_lines *lines;
    bool waits;
    _Atomic bool called, gone;
} caller;

static void *makes_a_call(void *argument)
{
    caller *c = argument;

    call(c->lines, 0, 0, 100);
    leave(c->lines, 0, 0, 110);
    atomic_store(&c->called, true);
    while (c->waits && !atomic_load(&c->gone))
        sched_yield();
    return NULL;
}

/* KiB of memory that a forked child finds wiped, which is what the states of threads lie in. */
static long wiped_memory(void)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char text[512];
    long size = 0, sum = 0;

    while (file && fgets(text, sizeof text, file)) {
        sscanf(text, "Size: %ld", &size);
        if (strncmp(text, "VmFlags:", 8) == 0 && strstr(text, " wf"))
            sum += size;
    }
    if (file)
        fclose(file);
    return sum;
}

static void threads_and_engines_that_end_leave_nothing(void)
{
    long before = wiped_memory();

    CHECK(before > 0); /* of the main thread */
    for (int i = 0; i < 50; i++) {
        caller c = {.lines = engine_of(1), .waits = i % 2 == 0}; /* either may be the last */
        pthread_t thread;
        pthread_create(&thread, NULL, makes_a_call, &c);
        if (!c.waits)
            pthread_join(thread, NULL);
        while (!atomic_load(&c.called))
            sched_yield();
        CHECK_EQ(read_all(c.lines).calls[0], 1u);
        lp_lines_free(c.lines);
        atomic_store(&c.gone, true);
        if (c.waits)
            pthread_join(thread, NULL);
    }
    CHECK_EQ(wiped_memory(), before);
}

static void threads_without_a_common_lock(void)
{
    shared = lp_lines_new(&(lp_line_hooks){.open = open_segment, .thread_name = thread_name}, true);
    add_code(shared, &keys[0]);
    lp_lines_set_on(shared, true);
    CHECK_EQ(run_writers(false), (uint64_t)WRITERS * ROUNDS);
    run_writers(true);
    lp_lines_free(shared);
}

int main(void)
{
    lp_clock_init(-1);
    RUN(lines_and_calls);
    RUN(recursion_counts_once);
    RUN(suspended_frames_wait);
    RUN(many_suspended_frames);
    RUN(frames_that_were_never_called);
    RUN(lost_frames_are_dropped);
    RUN(stacks_that_are_switched);
    RUN(own_cost_is_taken_off);
    RUN(the_first_line_begins_with_its_call);
    RUN(off_clear_and_unmark);
    RUN(regions_have_cells_of_their_own);
    RUN(regions_are_left_in_any_order);
    RUN(a_thread_ends_within_a_region);
    RUN(threads_and_engines_that_end_leave_nothing);
    RUN(a_child_starts_from_zero);
    RUN(threads_without_a_common_lock);
    return check_done();
}
