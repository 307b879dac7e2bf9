/* The hot paths of src/core, alone, for instructions.py to count their instructions: `instructions PATH N` runs one of them N
 * times inside `measured`, the function that callgrind collects in.
 *
 * Made deterministic: each step gets the moments that this program chooses, and the switch detector is a word that never changes,
 * since valgrind hides rseq and whether a thread leaves its CPU is no property of the path. What stays is what every phase,
 * count and line goes through. Assumes x86-64 or aarch64 with their counters; measures no time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/lines.h"
#include "core/record.h"

#define TICKS 100u /* that every phase and line takes */

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "instructions: %s\n", what);
    exit(1);
}

/* ---- phases and counts ------------------------------------------------------------------------------------------- */

static const char context, select_key, simulations_key;
static lp_recorder *recorder;
static lp_lines *lines;

static bool open_recorder(void *user, lp_recorder *made)
{
    lp_error error = {0};

    (void)user;
    return lp_segment_create(&made->segment, -1, "", "0.seg", &error) == LP_OK && lp_recorder_begin(made) == LP_OK;
}

/* As the extension's phase.c enters: state, place, node of the name. */
static inline lp_entry *enter(const void *key, bool light)
{
    lp_thread *th = lp_thread_get(recorder, &context);
    lp_entry *around = lp_innermost(th);
    lp_seg_node *node = lp_node_cached(th, around ? around->place : th->root, key);

    if (!node)
        fail("a node is not in the cache");
    return light ? lp_enter_light(th, LP_ENTRY_SKIP) : lp_enter(th, node, 0, 1);
}

static inline void leave(lp_entry *entry)
{
    uint64_t now = lp_ticks(); /* read as in the extension, then replaced */
    lp_thread *th = lp_thread_leaving(recorder, &context);

    now = entry->start + TICKS;
    lp_leave(th, entry, now, LP_LEFT);
}

static void make_name(const void *key, const char *name, lp_thread *th)
{
    bool fresh;
    lp_seg_node *node, *parent = lp_innermost(th) ? lp_innermost(th)->place : th->root;
    uint32_t id = lp_name_make(recorder, name, strlen(name));

    if (!id || lp_node_get(th, parent, id, &node, &fresh) != LP_FOUND)
        fail("no room for a node");
    lp_node_cache(th, parent, key, node);
}

/* One open phase, as around a loop, and a name and a counter below it. */
static void start_recorder(void)
{
    static uint64_t never;
    lp_hooks hooks = {.open = open_recorder};

    recorder = lp_recorder_new(&hooks);
    if (!recorder)
        fail("no recorder");
    recorder->enabled = recorder->measure_cpu = true;
    recorder->cpu = lp_cpu_choose(LP_CPU_SYSCALL);
    if (!open_recorder(NULL, recorder))
        fail("no segment");
    lp_thread *th = lp_thread_get(recorder, &context);
    if (!th)
        fail("no thread");
    th->detector.word = &never;
    th->detector.expected = never;
    th->recheck = UINT64_MAX;
    make_name(&context, "iteration", th);
    lp_entry *outer = enter(&context, false);
    make_name(&select_key, "select", th);
    uint32_t id = lp_name_make(recorder, "simulations", 11);
    lp_seg_counter *counter = id ? lp_counter_get(th, outer->place, id) : NULL;
    if (!counter)
        fail("no counter");
    th->counts[lp__slot(&simulations_key, outer->place) & (LP_COUNT_SLOTS - 1)] =
        (lp_count_slot){&simulations_key, outer->place, counter, NULL};
}

static inline void phase_once(void)
{
    leave(enter(&select_key, false));
}

static inline void skipped_once(void)
{
    leave(enter(&select_key, true));
}

static inline void count_once(void)
{
    lp_thread *th = lp_thread_get(recorder, &context);
    lp_entry *around = lp_innermost(th);
    lp_count_slot *slot = &th->counts[lp__slot(&simulations_key, around->place) & (LP_COUNT_SLOTS - 1)];

    if (slot->key != &simulations_key || slot->node != around->place)
        fail("a counter is not in the cache");
    lp_counter_add(th, slot->counter, 8, around->scale);
}

/* ---- lines --------------------------------------------------------------------------------------------------------- */

static const char code_key, frame, leaf_key, leaf_frame;
static lp_line_code *leaf_code;
static uint32_t region_name;
static uint64_t now_ticks = 1u << 20;

static bool open_lines(void *user, lp_lines *made)
{
    lp_error error = {0};

    (void)user;
    return lp_segment_create(&made->segment, -1, NULL, NULL, &error) == LP_OK;
}

static size_t thread_name(void *user, char *name, size_t size)
{
    (void)user;
    (void)size;
    memcpy(name, "main", 4);
    return 4;
}

static lp_line_code *add_code(const void *key)
{
    static const uint16_t entries[] = {0 << LP_LINE_SLOT, 1 << LP_LINE_SLOT, 2 << LP_LINE_SLOT, 3 << LP_LINE_SLOT};
    static const int32_t numbers[] = {10, 11, 12, 13};
    lp_line_code code = {.key = key,
                         .bytes = sizeof entries,
                         .narrow = entries,
                         .lines = numbers,
                         .slots = 4,
                         .first_line = 10,
                         .file = "f",
                         .name = "n",
                         .file_size = 1,
                         .name_size = 1};
    lp_line_code *made = lp_lines_code_add(lines, &code);

    if (!made)
        fail("no code");
    return made;
}

/* A function that runs, and one for it to call. */
static void start_lines(void)
{
    lines = lp_lines_new(&(lp_line_hooks){.open = open_lines, .thread_name = thread_name}, false);
    if (!lines)
        fail("no engine");
    lp_line_code *code = add_code(&code_key);
    leaf_code = add_code(&leaf_key);
    region_name = lp_lines_name(lines, "select", 6);
    lp_lines_set_on(lines, true);
    lp_line_thread *th = lp_lines_enter(lines, false);
    if (!th)
        fail("no thread of the engine");
    lp_lines_call(th, code, &frame, &context, now_ticks);
}

static inline void line_once(void)
{
    static size_t at;
    lp_line_thread *th = lp_lines_enter(lines, false);

    at = (at + 2) & 6;
    if (!lp_lines_line(th, &frame, &code_key, at, now_ticks += TICKS))
        fail("a line went the slow way");
}

static inline void call_once(void)
{
    lp_line_thread *th = lp_lines_enter(lines, false);

    lp_lines_call(th, leaf_code, &leaf_frame, &context, now_ticks += TICKS);
    th = lp_lines_enter(lines, false);
    lp_lines_leave(th, &leaf_frame, &leaf_key, &context, now_ticks += TICKS);
}

static inline void region_once(void)
{
    if (!lp_lines_region_enter(lines, region_name, now_ticks += TICKS) ||
        !lp_lines_region_leave(lines, UINT32_MAX, now_ticks += TICKS))
        fail("a region was refused");
}

/* ------------------------------------------------------------------------------------------------------------------ */

#define PATH(name)                                                                                                     \
    __attribute__((noinline)) static void measured_##name(unsigned n)                                                  \
    {                                                                                                                  \
        while (n--)                                                                                                    \
            name##_once();                                                                                             \
    }
PATH(phase)
PATH(skipped)
PATH(count)
PATH(line)
PATH(call)
PATH(region)

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*start)(void), (*run)(unsigned);
    } paths[] = {{"phase", start_recorder, measured_phase}, {"skipped", start_recorder, measured_skipped},
                 {"count", start_recorder, measured_count}, {"line", start_lines, measured_line},
                 {"call", start_lines, measured_call},      {"region", start_lines, measured_region}};

#if defined(__aarch64__)
    lp_clock_init(LP_CLOCK_CNTVCT);
#else
    lp_clock_init(LP_CLOCK_TSC); /* whatever the clock source: the value is not used */
#endif
    for (size_t i = 0; argc == 3 && i < sizeof paths / sizeof *paths; i++) {
        if (strcmp(argv[1], paths[i].name) != 0)
            continue;
        paths[i].start();
        paths[i].run((unsigned)strtoul(argv[2], NULL, 10));
        return 0;
    }
    fprintf(stderr, "usage: instructions PATH N\n");
    return 2;
}
