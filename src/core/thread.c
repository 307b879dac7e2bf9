/* Threads and contexts: who records into which arena, and whose stack is the current one. Cold, but an asyncio program comes here
 * at every phase of another task. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/names.h"
#include "core/record.h"
#include "core/thread.h"
#include "core/wiped.h"

#define FIRST_THREADS (uint32_t)(sizeof((lp_recorder *)0)->first_threads / sizeof(lp_thread *))
#define RECORDER_ROOM 1024u
_Static_assert(sizeof(lp_recorder) <= RECORDER_ROOM, "it fits");
#define FIRST_CHUNK 7168u /* of an arena: what LP_SEG_START has room for beside the header, an identity and names */
#define LOOK_NS 10000000u /* look at the CPU clock at least every 10 ms: a hypervisor's theft shows no switch */

__thread lp_thread *lp__current;

static pthread_key_t at_thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int have_key;

static void thread_free(lp_thread *th)
{
    free(th->stacks);
    munmap(th, sizeof *th);
}

static lp_recorder *_Atomic all; /* every one that was made: they are never freed */

/* ---- recorder ----------------------------------------------------------------------------------------------------- */

lp_recorder *lp_recorder_new(const lp_hooks *hooks)
{
    /* Within one page, which a forked child copies. Never freed. */
    lp_recorder *recorder = aligned_alloc(RECORDER_ROOM, RECORDER_ROOM);

    if (!recorder)
        return NULL;
    memset(recorder, 0, sizeof *recorder);
    recorder->guard = lp__guard_words();
    if (!recorder->guard) {
        free(recorder);
        return NULL;
    }
    recorder->hooks = *hooks;
    atomic_store(&recorder->due, UINT64_MAX);
    atomic_flag_clear(&recorder->lock);
    atomic_flag_clear(&recorder->moment_lock);
    do
        recorder->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &recorder->next, recorder));
    return recorder;
}

lp_status lp_recorder_begin(lp_recorder *recorder)
{
    lp_seg_header *header = lp_segment_header(&recorder->segment);

    /* What a parent left is not ours to free while it may be half changed: a child starts with empty tables. */
    if (!lp__tables_open(recorder))
        return LP_E_MEMORY;
    recorder->threads = recorder->first_threads;
    recorder->thread_count = 0;
    recorder->thread_room = FIRST_THREADS;
    recorder->idle = NULL;
    recorder->mult = lp_clock_calibrate();
    atomic_store(&recorder->io_threads, 0);
    atomic_store(&recorder->io_arrivals, 0);
    lp_clock_moment(&recorder->start);
    atomic_store(&recorder->moment_due, recorder->start.ticks + ((uint64_t)10000000u << 32) / recorder->mult);
    header->clock.kind = lp__clock_kind;
    header->clock.cpu = recorder->measure_cpu ? recorder->cpu : LP_CPU_NONE;
    header->clock.mult = recorder->mult;
    header->clock.start = header->clock.last = recorder->start;
    header->measure_cpu = recorder->measure_cpu;
    header->thread_names = recorder->thread_names;
    header->started_ns = recorder->start.real_ns;
    recorder->generation++;
    __atomic_store_n(recorder->guard, recorder->generation, __ATOMIC_RELEASE);
    recorder->recording = true;
    recorder->child = false;
    lp_segment_set_state(&recorder->segment, LP_SEG_RECORDING);
    return LP_OK;
}

void lp_recorder_moment(lp_recorder *recorder, lp_moment *now)
{
    lp_clock_moment(now);
    if (!recorder->segment.base)
        return;
    if (atomic_flag_test_and_set(&recorder->moment_lock))
        return; /* another thread stores one just now */
    lp_seg_clock *clock = &lp_segment_header(&recorder->segment)->clock;
    uint64_t mult = lp_clock_mult(&recorder->start, now, recorder->mult);
    if (!lp_clock_is_plausible(mult))
        mult = recorder->mult;
    __atomic_store_n(&recorder->mult, mult, __ATOMIC_RELAXED);
    __atomic_store_n(&clock->last_begun, clock->last_begun + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    clock->mult = mult;
    clock->last = *now;
    __atomic_store_n(&clock->last_done, clock->last_begun, __ATOMIC_RELEASE);
    atomic_flag_clear(&recorder->moment_lock);
}

/* Takes `th` off the calling thread's list; false: it is another thread's. */
static bool unlink_own(lp_thread *th)
{
    for (lp_thread **link = &lp__current; *link; link = &(*link)->next) {
        if (*link == th) {
            *link = th->next;
            lp_detector_stop(&th->detector, true);
            return true;
        }
    }
    return false;
}

void lp_recorder_end(lp_recorder *recorder)
{
    if (!recorder->recording)
        return;
    recorder->recording = false;
    bool forked = __atomic_load_n(recorder->guard, __ATOMIC_ACQUIRE) != recorder->generation;
    recorder->generation++;
    __atomic_store_n(recorder->guard, 0, __ATOMIC_RELEASE);
    atomic_store(&recorder->due, UINT64_MAX);
    if (forked)
        return; /* the tables are the parent's picture: nothing here points to memory that is ours */
    lp_recorder_lock(recorder);
    for (uint32_t i = 0; i < recorder->thread_count; i++) {
        lp_thread *th = recorder->threads[i];
        __atomic_store_n(&th->go, 0, __ATOMIC_RELEASE);
        if (th->attached && !unlink_own(th))
            __atomic_store_n(&th->recorder, NULL,
                             __ATOMIC_RELEASE); /* its thread frees it at its next step or its end */
        else
            thread_free(th);
    }
    if (recorder->threads != recorder->first_threads)
        free(recorder->threads);
    recorder->threads = NULL;
    recorder->thread_count = recorder->thread_room = 0;
    recorder->idle = NULL;
    lp__tables_close(recorder);
    lp_recorder_unlock(recorder);
}

/* ---- a thread comes and goes -------------------------------------------------------------------------------------- */

/* Leaves the arena to the next thread. Entries that are still open stay open: an exit from another thread may come. No interpreter
 * keeps this apart from a close() in another thread, which frees what is idle and lets go of the others: who has the lock first
 * decides. */
static void retire(lp_thread *th)
{
    lp_recorder *recorder = __atomic_load_n(&th->recorder, __ATOMIC_ACQUIRE);

    lp_detector_stop(&th->detector, true);
    if (recorder)
        lp_recorder_lock(recorder);
    if (!recorder || !th->recorder) {
        if (recorder)
            lp_recorder_unlock(recorder);
        thread_free(th);
        return;
    }
    lp__orphan(th);
    __atomic_store_n(&th->go, 0, __ATOMIC_RELEASE);
    th->seg->seen = lp_ticks();
    __atomic_store_n(&th->seg->tid, 0, __ATOMIC_RELEASE);
    th->attached = false;
    th->context = th->around = NULL;
    th->tasked = LP_TASK_UNKNOWN;
    th->top = th->outer = NULL;
    th->stack_count = 0;
    if (th->stacks)
        memset(th->stacks, 0, (th->stack_mask + 1u) * sizeof *th->stacks);
    th->idle = recorder->idle;
    recorder->idle = th;
    lp_recorder_unlock(recorder);
}

static void thread_ends(void *unused)
{
    (void)unused;
    for (lp_thread *th = lp__current, *next; th; th = next) {
        next = th->next;
        retire(th);
    }
    lp__current = NULL;
}

static void make_key(void)
{
    have_key = pthread_key_create(&at_thread_end, thread_ends) == 0;
}

static void *arena_take(lp_thread *th, uint64_t size, uint64_t align)
{
    uint64_t skip = (uint64_t)(-(uintptr_t)th->chunk) & (align - 1);

    if (!th->chunk || th->chunk_left < size + skip) {
        uint64_t got = 0, want = th->chunk_size < size + align ? size + align : th->chunk_size;
        lp_off at =
            lp_segment_take(&th->recorder->segment, LP_BLOCK_ARENA, th->seg ? lp_offset(th, th->seg) : 0, want, &got);
        if (!at)
            return NULL;
        th->chunk = th->base + at;
        th->chunk_left = got;
        th->chunk_size = th->chunk_size == FIRST_CHUNK ? 8192 : th->chunk_size < 32768 ? th->chunk_size * 2 : 32768;
        skip = (uint64_t)(-(uintptr_t)th->chunk) & (align - 1);
    }
    void *result = th->chunk + skip;
    th->chunk += skip + size;
    th->chunk_left -= skip + size;
    return result;
}

static lp_seg_node *node_new(lp_thread *th)
{
    lp_seg_node *node = arena_take(th, sizeof *node, 64);

    if (node)
        node->min = UINT64_MAX;
    return node;
}

/* `spare`: memory for it, or NULL. */
static lp_thread *thread_new(lp_recorder *recorder, uint32_t name, lp_thread *spare)
{
    lp_thread *th = spare ? spare : lp__wiped_memory(sizeof *th);

    if (!th)
        return NULL;
    th->recorder = recorder;
    th->base = recorder->segment.base;
    th->chunk_size = FIRST_CHUNK;
    lp_off at = lp_segment_take(&recorder->segment, LP_BLOCK_THREAD, 0, sizeof(lp_seg_thread), NULL);
    if (!at)
        goto failed;
    th->seg = (lp_seg_thread *)(void *)(th->base + at);
    th->root = node_new(th);
    if (!th->root || !lp__entry_slot(th))
        goto failed;
    lp_recorder_lock(recorder);
    if (!recorder->recording) { /* another thread has closed it meanwhile: its list is gone */
        lp_recorder_unlock(recorder);
        goto failed;
    }
    if (recorder->thread_count == recorder->thread_room) {
        uint32_t room = recorder->thread_room * 2;
        bool first = recorder->threads == recorder->first_threads;
        lp_thread **list = realloc(first ? NULL : recorder->threads, room * sizeof *list);
        if (!list) {
            lp_recorder_unlock(recorder);
            goto failed;
        }
        if (first)
            memcpy(list, recorder->first_threads, sizeof recorder->first_threads);
        recorder->threads = list;
        recorder->thread_room = room;
    }
    th->attached = true; /* before a close() in another thread finds it: that frees what is not */
    recorder->threads[recorder->thread_count++] = th;
    th->name = name;
    th->seg->name = name;
    th->seg->root = lp_offset(th, th->root);
    lp_seg_header *header = lp_segment_header(&recorder->segment);
    th->seg->previous = header->threads;
    __atomic_store_n(&header->threads, at, __ATOMIC_RELEASE);
    __atomic_store_n(&header->thread_count, header->thread_count + 1, __ATOMIC_RELEASE);
    lp_recorder_unlock(recorder);
    return th;

failed:
    munmap(th, sizeof *th);
    return NULL;
}

/* A program may have two profilers: they look at one word of the thread, and the first to see a switch takes its sign away. */
static void tell_others(const lp_thread *th)
{
    for (lp_thread *other = lp__current; other; other = other->next)
        if (other != th)
            lp_detector_told(&other->detector);
}

static lp_thread *attach(lp_recorder *recorder, lp_thread *spare)
{
    uint32_t name = recorder->thread_names && recorder->hooks.thread_name
                        ? recorder->hooks.thread_name(recorder->hooks.user, recorder)
                        : 0;
    lp_thread *th = NULL;

    if (!recorder->recording || !recorder->enabled) { /* closed while that ran Python, or just about to be */
        if (spare)
            thread_free(spare);
        return NULL;
    }
    lp_recorder_lock(recorder);
    for (lp_thread **link = &recorder->idle; *link; link = &(*link)->idle) {
        if (!recorder->thread_names || (*link)->name == name) {
            th = *link;
            *link = th->idle;
            th->attached = true;
            break;
        }
    }
    lp_recorder_unlock(recorder);
    if (!th)
        th = thread_new(recorder, name, spare);
    else if (spare)
        thread_free(spare);
    if (!th) {
        lp__note(recorder, &lp_recorder_health(recorder)->lost_entries);
        return NULL;
    }
    pthread_once(&once, make_key);
    if (have_key)
        pthread_setspecific(at_thread_end, th);
    th->mult = __atomic_load_n(&recorder->mult, __ATOMIC_RELAXED);
    lp_detector_start(&th->detector, recorder->measure_cpu ? recorder->cpu : LP_CPU_NONE);
    tell_others(th);
    if (!recorder->measure_cpu) {
        th->detector.never = th->detector.expected;
        th->detector.base_ticks = lp_ticks();
    }
    th->recheck = ((uint64_t)LOOK_NS << 32) / th->mult;
    th->raw_away = th->high_away = 0;
    th->away = th->starved = th->unsplit = 0;
    if (th->detector.split)
        __atomic_store_n(&lp_segment_header(&recorder->segment)->clock.split, 1, __ATOMIC_RELAXED);
    th->seg->since = th->seg->seen = lp_ticks();
    th->seg->attached++;
    __atomic_store_n(&th->seg->tid, (int64_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    th->next = lp__current;
    lp__current = th;
    return th;
}

/* ---- the CPU clock ------------------------------------------------------------------------------------------------ */

/* Once a second of recording: a longer baseline for ticks -> ns, and a moment that a reader of a dead process can go by. */
static void refine(lp_recorder *recorder, uint64_t now)
{
    uint64_t due = atomic_load_explicit(&recorder->moment_due, memory_order_relaxed);
    lp_moment moment;

    if (now < due || !atomic_compare_exchange_strong(&recorder->moment_due, &due, UINT64_MAX))
        return;
    lp_recorder_moment(recorder, &moment);
    atomic_store(&recorder->moment_due, moment.ticks + ((uint64_t)1000000000u << 32) / recorder->mult);
}

/* The clocks are read a little after `now`, and the kernel likes to switch just then, at the end of a system call. What the thread
 * loses between the two is not of the phase that ends at `now`, and all of it is of the one that begins there: the totals
 * are those at `now`, and the rest comes with the next look. */
void lp__look_at_cpu(lp_thread *th, uint64_t now)
{
    lp_detector *detector = &th->detector;
    lp_recorder *recorder = th->recorder;
    int saved = errno;

    refine(recorder, now);
    th->mult = __atomic_load_n(&recorder->mult, __ATOMIC_RELAXED);
    th->seg->seen = now;
    if (now >= atomic_load_explicit(&recorder->due, memory_order_relaxed))
        __atomic_store_n(&th->go, 0, __ATOMIC_RELEASE); /* the next step goes through lp__thread_sync, which writes */
    if (!recorder->measure_cpu) {
        detector->base_ticks = now;
        return;
    }
    bool fast = detector->page || detector->shared, switched = false, wanted, split;
    uint64_t base = detector->base_ticks, at = (int64_t)(now - base) > 0 ? now : base;
    uint64_t cpu, cpu_at = 0, delay = 0, middle;
    for (int tries = 1;; tries++) {
        switched = switched || *detector->word != detector->expected;
        if (lp_detector_arm(detector)) /* first: a switch from here on is seen */
            tell_others(th);
        uint64_t before = lp_ticks();
        cpu = lp_cpu_now();
        uint64_t after = lp_ticks();
        middle = before + (after - before) / 2;
        if (tries == 1) {
            /* What this thread has used since `at`: a few instructions, if it lost the CPU in between. Another thread
             * keeps it for a slice, 0.7 ms and more; an interrupt or the hypervisor for some 0.1 ms, which counts as
             * used here. */
            uint64_t code = lp_ticks_to_ns(before - at, th->mult),
                     reading = lp_ticks_to_ns(after - before, th->mult) / 2;
            uint64_t used = (!switched || code < 500000 ? code : 1000) + (reading < 500 ? reading : 500);
            cpu_at = cpu - detector->base_cpu > used ? cpu - used : detector->base_cpu;
            th->raw_away += (int64_t)lp_ticks_to_ns(at - base, th->mult) - (int64_t)(cpu_at - detector->base_cpu);
            detector->base_ticks = at;
            detector->base_cpu = cpu_at;
        }
        wanted = switched && (fast || th->raw_away - th->high_away >= 500);
        split = wanted && lp_cpu_delay(detector, &delay);
        /* CPU time and delay belong together if no switch came between them. */
        if (!split || tries == 3 ||
            (fast ? *detector->word == detector->expected : lp_ticks_to_ns(lp_ticks() - before, th->mult) <= 20000))
            break;
    }
    uint64_t since = lp_ticks_to_ns(middle - at, th->mult), used = cpu - cpu_at, lost = since > used ? since - used : 0;
    if (th->raw_away > th->high_away) {
        /* CPU time never runs backwards: what the two clocks disagree by is at most the noise of one reading. */
        uint64_t more = (uint64_t)(th->raw_away - th->high_away);
        th->high_away = th->raw_away;
        th->away += more;
        if (!switched && fast) {
            th->starved += more; /* never descheduled, yet off the CPU: interrupts or the hypervisor had it */
        } else if (split) {
            uint64_t waited = delay > detector->base_delay ? delay - detector->base_delay : 0;
            waited -= waited < lost ? waited : lost;
            th->starved += waited;
            detector->base_delay = delay > detector->base_delay ? detector->base_delay + waited : delay;
        } else if (wanted) {
            th->unsplit += more;
        }
    }
    if (lost > 2000)
        lp_detector_upset(detector);
    errno = saved;
}

/* ---- contexts ----------------------------------------------------------------------------------------------------- */

static uint32_t stack_home(const void *context)
{
    uintptr_t x = (uintptr_t)context >> 4;
    return (uint32_t)(x ^ x >> 12);
}

lp_stack *lp__stack_find(const lp_thread *th, const void *context)
{
    if (!th->stack_count)
        return NULL;
    for (uint32_t i = stack_home(context) & th->stack_mask;; i = (i + 1) & th->stack_mask) {
        if (!th->stacks[i].top)
            return NULL;
        if (th->stacks[i].context == context)
            return &th->stacks[i];
    }
}

static bool stack_put(lp_thread *th, const void *context, lp_entry *top, uint64_t cpu)
{
    if (!th->stacks || th->stack_count * 2 > th->stack_mask) {
        uint32_t mask = th->stacks ? th->stack_mask * 2 + 1 : 15;
        lp_stack *table = calloc(mask + 1u, sizeof *table);
        if (!table)
            return false;
        for (uint32_t i = 0; th->stacks && i <= th->stack_mask; i++) {
            if (th->stacks[i].top) {
                uint32_t j = stack_home(th->stacks[i].context) & mask;
                while (table[j].top)
                    j = (j + 1) & mask;
                table[j] = th->stacks[i];
            }
        }
        free(th->stacks);
        th->stacks = table;
        th->stack_mask = mask;
    }
    uint32_t i = stack_home(context) & th->stack_mask;
    while (th->stacks[i].top)
        i = (i + 1) & th->stack_mask;
    th->stacks[i] = (lp_stack){context, top, cpu, th->tasked};
    th->stack_count++;
    return true;
}

void lp__stack_drop(lp_thread *th, lp_stack *stack)
{
    uint32_t hole = (uint32_t)(stack - th->stacks), i = hole;

    /* Backward shift: no tombstones, so a table of tasks that come and go does not slow down. */
    for (;;) {
        i = (i + 1) & th->stack_mask;
        if (!th->stacks[i].top)
            break;
        uint32_t home = stack_home(th->stacks[i].context) & th->stack_mask;
        if (((i - home) & th->stack_mask) >= ((i - hole) & th->stack_mask)) {
            th->stacks[hole] = th->stacks[i];
            hole = i;
        }
    }
    th->stacks[hole].top = NULL;
    th->stack_count--;
}

static bool runs_below(const lp_thread *th, const void *context, const void *above)
{
    const void *(*around)(const void *) = th->recorder->hooks.around;

    for (int depth = 0; around && context && depth < 256; depth++) {
        context = around(context);
        if (context == above)
            return context != NULL;
    }
    return false;
}

/* Eager tasks (Python 3.12) are in use: from then on contexts are looked at when they open their first phase, which is cheap,
 * so that not all tasks must be searched for them later. */
static bool eager_tasks;

static lp_tasked current_tasked(lp_thread *th)
{
    if (th->tasked == LP_TASK_UNKNOWN)
        th->tasked = th->recorder->hooks.runs_task(th->context) ? LP_TASK_YES : LP_TASK_NO;
    return th->tasked;
}

void lp_thread_reseat(lp_thread *th)
{
    const lp_hooks *hooks = &th->recorder->hooks;
    const void *(*around)(const void *) = hooks->around;
    const void *context = th->context;

    th->outer = NULL;
    th->around = around && context ? around(context) : NULL;
    if (eager_tasks && th->around && hooks->runs_task)
        current_tasked(th);
    for (int depth = 0; around && context && depth < 256; depth++) {
        context = around(context);
        if (!context)
            return;
        lp_stack *stack = lp__stack_find(th, context);
        if (!stack)
            continue;
        /* An eager task starts inside the context of the task that made it and goes on inside the loop's: only the
         * loop's is around both halves. */
        if (around(context) && hooks->runs_task && current_tasked(th) == LP_TASK_YES) {
            eager_tasks = true;
            if (stack->tasked == LP_TASK_UNKNOWN)
                stack->tasked = hooks->has_task(context) ? LP_TASK_YES : LP_TASK_NO;
            if (stack->tasked == LP_TASK_YES)
                continue;
        }
        th->outer = stack->top;
        return;
    }
}

static uint64_t thread_cpu(lp_thread *th, uint64_t now)
{
    if (*th->detector.word != th->detector.expected || now - th->detector.base_ticks > th->recheck)
        lp__look_at_cpu(th, now);
    return lp_ticks_to_ns(now - th->seg->since, th->mult) - th->away;
}

static void mark_unknown(lp_entry *entry)
{
    for (; entry; entry = entry->below)
        entry->flags |= LP_ENTRY_UNKNOWN_CPU;
}

/* Makes `context` the current one. `exact`: called at the very moment of the switch, so that what other tasks use of the CPU can be
 * taken off those that wait; otherwise the CPU time of suspended entries cannot be told. */
static void switch_to(lp_thread *th, const void *context, bool exact)
{
    uint64_t cpu = exact ? thread_cpu(th, lp_ticks()) : 0;

    if (th->top) {
        /* What runs below these entries (a task under its loop, copy_context().run) uses the CPU on their behalf. Asked now:
         * a context forgets what ran it when it is left. */
        bool below = runs_below(th, context, th->context);
        if (!exact && !below)
            mark_unknown(th->top);
        if (!stack_put(th, th->context, th->top, exact && !below ? cpu | 1 : 0))
            lp__note(th->recorder, &lp_recorder_health(th->recorder)->lost_entries);
    }
    lp_stack *stack = lp__stack_find(th, context);
    th->top = NULL;
    th->tasked = LP_TASK_UNKNOWN;
    if (stack) {
        th->top = stack->top;
        th->tasked = stack->tasked;
        if (exact && stack->cpu) {
            /* What the thread used meanwhile, others used: to these entries it is time off the CPU. */
            for (lp_entry *entry = th->top; entry; entry = entry->below)
                entry->away -= cpu - (stack->cpu & ~1ull);
        } else if (stack->cpu) {
            mark_unknown(th->top); /* nobody told when it came back (a greenlet) */
        }
        lp__stack_drop(th, stack);
    }
    th->context = context;
    lp_thread_reseat(th);
    if (exact && eager_tasks) { /* a context is entered before its task counts as running: to be asked again */
        if (!stack)
            th->tasked = LP_TASK_UNKNOWN;
        if (!th->top)
            th->around = &eager_tasks;
    }
}

void lp_thread_switched(lp_thread *th, const void *context)
{
    /* Only where something is open: other threads pay a few loads and compares. */
    if (th->go != LP_GO || th->context == context || (!th->top && !th->stack_count))
        return;
    switch_to(th, context, true);
}

/* Entries of this thread that other threads left: take them off their stacks and close them for good. */
static void reap(lp_thread *th)
{
    for (lp_off at = th->seg->entries; at;) {
        lp_seg_entries *table = (lp_seg_entries *)(void *)(th->base + at);
        for (uint32_t i = 0; i < table->count; i++) {
            lp_entry *entry = &table->at[i];
            if (entry->state == LP_ENTRY_OPEN && __atomic_load_n(&entry->closed, __ATOMIC_ACQUIRE))
                lp__leave_slow(th, entry, entry->end, LP__REAP);
        }
        at = table->next;
    }
}

/* First step in a forked child: what the parent's threads held at the fork is nobody's here, its segment is not mapped, and its
 * tables, perhaps half changed, are left alone (a leak of a few KB in a child of a recording process). */
static void in_child(lp_recorder *recorder)
{
    recorder->recording = false;
    recorder->child = true;
    recorder->generation++;
    atomic_flag_clear(&recorder->lock);
    atomic_flag_clear(&recorder->moment_lock);
    atomic_store(&recorder->busy, 0);
    atomic_store(&recorder->due, UINT64_MAX);
    lp_segment_forget(&recorder->segment);
    lp_cpu_in_child();
}

/* Makes the segment of this process, unless another thread of it has just done so. The first phases of a child may come in
 * several threads at once; whose turn it is stands in the guard page, which a child finds zeroed. */
static bool open_here(lp_recorder *recorder)
{
    volatile uint32_t *turn = recorder->guard + 1;
    bool open = true;

    while (__atomic_exchange_n(turn, 1, __ATOMIC_ACQUIRE))
        sched_yield();
    if (lp_recorder_forked(recorder))
        in_child(recorder);
    if (!recorder->recording) {
        /* Without a fork it has ended: close() is for good. */
        open = recorder->generation == 0 || recorder->child;
        if (open) {
            atomic_store(&recorder->busy, 1);
            open = recorder->hooks.open(recorder->hooks.user, recorder);
            atomic_store(&recorder->busy, 0);
        }
    }
    __atomic_store_n(turn, 0, __ATOMIC_RELEASE);
    return open;
}

lp_thread *lp__thread_sync(lp_recorder *recorder, const void *context)
{
    lp_thread *th, *spare = NULL, **link;

    /* After a fork: the guard's page is stored to before it is read, or a page of zeros would be mapped first, and then replaced. */
    if (lp__current && !lp__current->recorder)
        __atomic_fetch_or(recorder->guard + 1, 0, __ATOMIC_RELAXED);
    if (LP_UNLIKELY(lp_recorder_forked(recorder) || !recorder->recording) &&
        (!recorder->enabled || !recorder->hooks.open || !open_here(recorder)))
        return NULL;
    /* Drop what belongs to closed recorders or, in a child, to the parent; bring ours to the front. */
    for (link = &lp__current; (th = *link) != NULL;) {
        if (th->recorder == NULL) {
            *link = th->next;
            if (!th->base && !spare) { /* wiped by the fork: as good as new */
                spare = th;
                continue;
            }
            lp_detector_stop(&th->detector, true);
            thread_free(th);
            continue;
        }
        if (th->recorder == recorder)
            break;
        link = &th->next;
    }
    if (!th) {
        th = attach(recorder, spare);
        spare = NULL;
        if (!th)
            return NULL;
    } else if (link != &lp__current) {
        *link = th->next;
        th->next = lp__current;
        lp__current = th;
    }
    if (spare)
        thread_free(spare);
    bool reaped = th->go != LP_GO;
    if (reaped) {
        __atomic_store_n(&th->go, LP_GO, __ATOMIC_SEQ_CST);
        /* Before the switch: a context that was left open elsewhere may be dead, and the running one have its address. */
        reap(th);
        uint64_t due = atomic_load(&recorder->due);
        if (lp_ticks() >= due && recorder->hooks.overdue && !atomic_exchange(&recorder->busy, 1)) {
            atomic_store(&recorder->due, UINT64_MAX);
            recorder->hooks.overdue(recorder->hooks.user, recorder);
            atomic_store(&recorder->busy, 0);
            if (!recorder->recording || !recorder->enabled)
                return NULL; /* closed meanwhile, or by a thread that waits for this one's step to end */
        }
    }
    if (th->context != context)
        switch_to(th, context, false);
    else if (reaped)
        lp_thread_reseat(th);
    return th;
}

/* ---- memory of a thread ------------------------------------------------------------------------------------------- */

lp_entry *lp__entry_slot(lp_thread *th)
{
    uint32_t count = th->seg->entries ? 32 : 8;
    lp_seg_entries *table = arena_take(th, sizeof *table + count * sizeof(lp_entry), 64);

    if (!table) {
        lp__note(th->recorder, &lp_recorder_health(th->recorder)->lost_entries);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        table->at[i].thread = th;
        table->at[i].below = i + 1 < count ? &table->at[i + 1] : th->free;
    }
    table->count = count;
    table->next = th->seg->entries;
    __atomic_store_n(&th->seg->entries, lp_offset(th, table), __ATOMIC_RELEASE);
    th->free = &table->at[0];
    return th->free;
}

bool lp__cells_make(lp_thread *th, lp_off *where)
{
    uint64_t *cells = arena_take(th, LP_HIST_SUB * sizeof *cells, 64);

    if (!cells)
        return false;
    __atomic_store_n(where, lp_offset(th, cells), __ATOMIC_RELEASE);
    return true;
}

lp_seg_node *lp__node_make(lp_thread *th, lp_seg_node *parent, uint32_t name, uint32_t path)
{
    lp_seg_node *node = node_new(th);

    if (!node)
        return NULL;
    node->name = name;
    node->path = path;
    node->parent = lp_offset(th, parent);
    node->sibling = parent->child;
    __atomic_store_n(&parent->child, lp_offset(th, node), __ATOMIC_RELEASE);
    return node;
}

lp_seg_counter *lp__counter_make(lp_thread *th, lp_seg_node *node, uint32_t name)
{
    lp_seg_counter *counter = arena_take(th, sizeof *counter, 64);

    if (!counter)
        return NULL;
    counter->name = name;
    counter->min = INT64_MAX;
    counter->max = INT64_MIN;
    counter->next = node->counters;
    __atomic_store_n(&node->counters, lp_offset(th, counter), __ATOMIC_RELEASE);
    return counter;
}

lp_off *lp__negative_make(lp_thread *th, lp_seg_counter *counter)
{
    lp_off *octaves = arena_take(th, LP_HIST_OCTAVES * sizeof *octaves, 64);

    if (octaves)
        __atomic_store_n(&counter->negative, lp_offset(th, octaves), __ATOMIC_RELEASE);
    return octaves;
}

void lp__stack_leave(lp_thread *th, lp_entry *entry, uint64_t now)
{
    const lp_stack *stack = entry->context != th->context ? lp__stack_find(th, entry->context) : NULL;

    if (stack && stack->cpu)
        entry->away -= thread_cpu(th, now) - (stack->cpu & ~1ull);
}
