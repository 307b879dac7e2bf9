/* The recorder without Python: nesting, contexts, entries left elsewhere, limits, threads. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "recording.h"

static void nests_and_subtracts(void)
{
    lp_recorder *recorder = recording_start(NULL);
    REQUIRE(recorder != NULL);

    for (int i = 0; i < 1000; i++) {
        lp_entry *a = enter(recorder, context(1), "a"), *b = enter(recorder, context(1), "b");
        leave(recorder, context(1), b);
        b = enter(recorder, context(1), "b");
        leave(recorder, context(1), b);
        leave(recorder, context(1), a);
    }
    lp_worker *worker = recording_read(recorder);
    const lp_phase *a = phase_at(worker, "a"), *b = phase_at(worker, "a/b");
    REQUIRE(a && b);
    CHECK_EQ(a->entries, 1000u);
    CHECK_EQ(b->entries, 2000u);
    CHECK_EQ(lp_cells_total(&b->hist), 2000u);
    CHECK(a->child_ns <= a->wall_ns && b->wall_ns <= a->child_ns + 2000 && b->child_ns == 0);
    CHECK(a->cpu_ns <= a->cpu_wall_ns && a->cpu_wall_ns == a->wall_ns);
    lp_worker_free(worker);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

/* Two tasks beside each other below what is open around their loop; their overlap counts once in the parent. */
static void tasks_are_siblings(void)
{
    lp_recorder *recorder = recording_start(NULL);
    REQUIRE(recorder != NULL);
    recording_around[1] = recording_around[2] = context(1);

    lp_entry *serve = enter(recorder, context(1), "serve");
    lp_entry *one = enter(recorder, context(2), "one");
    lp_entry *two = enter(recorder, context(3), "two");
    lp_entry *inner = enter(recorder, context(2), "inner");
    leave(recorder, context(2), inner);
    leave(recorder, context(2), one);
    leave(recorder, context(3), two);
    leave(recorder, context(1), serve);

    lp_worker *worker = recording_read(recorder);
    const lp_phase *top = phase_at(worker, "serve");
    REQUIRE(top && phase_at(worker, "serve/one/inner") && phase_at(worker, "serve/two"));
    CHECK_EQ(worker->tree.count, 5u); /* and nothing else */
    CHECK(top->child_ns <= top->wall_ns);
    CHECK(top->flags & LP_PHASE_OVERLAP);
    CHECK_EQ(phase_at(worker, "serve/one")->cpu_wall_ns, 0u); /* it was suspended: its CPU time cannot be told */
    CHECK_EQ(top->cpu_wall_ns, top->wall_ns);
    lp_worker_free(worker);
    recording_around[1] = recording_around[2] = NULL;
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

static void leaving_out_of_order(void)
{
    lp_recorder *recorder = recording_start(NULL);
    REQUIRE(recorder != NULL);

    lp_entry *a = enter(recorder, context(1), "a"), *b = enter(recorder, context(1), "b"),
             *c = enter(recorder, context(1), "c");
    leave(recorder, context(1), a); /* the outer one first: b and c are still below it */
    lp_entry *d = enter(recorder, context(1), "d");
    leave(recorder, context(1), d);
    leave(recorder, context(1), b);
    leave(recorder, context(1), c);
    lp_entry *e = enter(recorder, context(1), "e");
    leave(recorder, context(1), e);

    lp_worker *worker = recording_read(recorder);
    const char *paths[] = {"a", "a/b", "a/b/c", "a/b/c/d", "e"};
    for (size_t i = 0; i < 5; i++) {
        const lp_phase *phase = phase_at(worker, paths[i]);
        REQUIRE(phase != NULL);
        CHECK_EQ(phase->entries, 1u);
        CHECK(phase->child_ns <= phase->wall_ns);
    }
    CHECK_EQ(worker->open_count, 0u);
    lp_worker_free(worker);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

struct elsewhere {
    lp_recorder *recorder;
    lp_entry *entry;
};

static void *leave_elsewhere(void *argument)
{
    struct elsewhere *job = argument;
    leave(job->recorder, context(9), job->entry);
    return NULL;
}

static void another_thread_may_leave(void)
{
    struct elsewhere job = {recording_start(NULL), NULL};
    pthread_t thread;
    REQUIRE(job.recorder != NULL);

    job.entry = enter(job.recorder, context(1), "handed over");
    REQUIRE(job.entry != NULL && pthread_create(&thread, NULL, leave_elsewhere, &job) == 0);
    pthread_join(thread, NULL);
    lp_entry *next = enter(job.recorder, context(1), "next"); /* at the root again: the owner has seen it */
    leave(job.recorder, context(1), next);

    lp_worker *worker = recording_read(job.recorder);
    REQUIRE(phase_at(worker, "handed over") && phase_at(worker, "next"));
    CHECK_EQ(phase_at(worker, "handed over")->entries, 1u);
    CHECK_EQ(phase_at(worker, "handed over")->cpu_wall_ns, 0u);
    CHECK_EQ(worker->health.foreign_exits, 1u);
    CHECK_EQ(worker->open_count, 0u);
    lp_worker_free(worker);
    lp_recorder_end(job.recorder);
    lp_segment_close(&job.recorder->segment, false);
}

static void *many_entries(void *argument)
{
    lp_recorder *recorder = argument;
    lp_thread *th = lp_thread_get(recorder, context(1));
    lp_seg_node *node = th ? node_below(recorder, th, th->root, "loop") : NULL;
    lp_seg_counter *counter = node ? lp_counter_get(th, node, lp_name_make(recorder, "n", 1)) : NULL;

    for (int i = 0; counter && i < 1000000; i++) {
        lp_entry *entry = lp_enter(th, node, 0, 1);
        lp_counter_add(th, counter, i & 7, 1);
        lp_leave(th, entry, lp_ticks(), LP_LEFT);
    }
    return NULL;
}

static void eight_threads_lose_nothing(void)
{
    lp_recorder *recorder = recording_start(NULL);
    pthread_t threads[8];
    REQUIRE(recorder != NULL);

    for (int i = 0; i < 8; i++)
        REQUIRE(pthread_create(&threads[i], NULL, many_entries, recorder) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    lp_worker *worker = recording_read(recorder);
    const lp_phase *loop = phase_at(worker, "loop");
    REQUIRE(loop && loop->counter_count == 1);
    CHECK_EQ(loop->entries, 8000000u);
    CHECK_EQ(lp_cells_total(&loop->hist), 8000000u);
    CHECK_EQ(loop->counters[0].calls, 8000000u);
    CHECK_EQ((int64_t)loop->counters[0].total, 8 * 1000000 / 8 * 28);
    CHECK_EQ(loop->counters[0].min, 0);
    CHECK_EQ(loop->counters[0].max, 7);
    lp_worker_free(worker);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

static void *one_entry(void *argument)
{
    leave(argument, context(1), enter(argument, context(1), "short"));
    return NULL;
}

/* A pool that makes a thread a job must not take an arena a job. */
static void threads_that_end_leave_their_arena(void)
{
    lp_recorder *recorder = recording_start(NULL);
    pthread_t thread;
    REQUIRE(recorder != NULL);

    for (int i = 0; i < 500; i++) {
        REQUIRE(pthread_create(&thread, NULL, one_entry, recorder) == 0);
        pthread_join(thread, NULL);
    }
    lp_worker *worker = recording_read(recorder);
    REQUIRE(phase_at(worker, "short") != NULL);
    CHECK_EQ(phase_at(worker, "short")->entries, 500u);
    CHECK(lp_segment_header(&recorder->segment)->thread_count <= 2);
    CHECK(lp_segment_header(&recorder->segment)->used <= 128u << 10);
    lp_worker_free(worker);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

static void counts_stay_exact_beyond_64_bits(void)
{
    lp_recorder *recorder = recording_start(NULL);
    REQUIRE(recorder != NULL);
    lp_thread *th = lp_thread_get(recorder, context(1));
    lp_seg_counter *counter = lp_counter_get(th, th->root, lp_name_make(recorder, "big", 3));
    REQUIRE(counter != NULL);

    for (int i = 0; i < 4; i++)
        CHECK(lp_counter_add(th, counter, INT64_MAX, 1));
    CHECK(lp_counter_add(th, counter, INT64_MIN, 1));
    lp_worker *worker = recording_read(recorder);
    REQUIRE(worker && worker->tree.phases[0].counter_count == 1);
    const lp_counter *read = &worker->tree.phases[0].counters[0];
    lp_i128 expected = (lp_i128)INT64_MAX * 4 + INT64_MIN;
    CHECK(read->total == expected);
    CHECK_EQ(read->min, INT64_MIN);
    CHECK_EQ(lp_cells_total(&read->positive) + lp_cells_total(&read->negative), 5u);
    lp_worker_free(worker);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

static void paths_fold_at_the_limit(void)
{
    lp_recorder *recorder = recording_start(NULL);
    REQUIRE(recorder != NULL);
    lp_thread *th = lp_thread_get(recorder, context(1));
    lp_seg_node *node;
    bool fresh;
    unsigned folded = 0;

    for (unsigned i = 0; i < LP_PATH_LIMIT + 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "episode_%u", i);
        uint32_t id = lp_name_make(recorder, name, strlen(name));
        lp_found found = lp_node_get(th, th->root, id, &node, &fresh);
        folded += found == LP_FOUND_FOLDED_PATH;
    }
    CHECK_EQ(folded, 10u);
    CHECK_EQ(lp_recorder_health(recorder)->folded_paths, 10u);
    CHECK_STR(lp_recorder_health(recorder)->first_folded, "episode_4096");
    /* The promise of the issue: 4,096 paths take at most 16 MB. */
    CHECK(lp_segment_header(&recorder->segment)->used <= 16u << 20);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

/* In a forked child everything starts anew, and the parent's figures are not touched. */
static void a_child_starts_at_zero(void)
{
    lp_recorder *recorder = recording_start(NULL);
    REQUIRE(recorder != NULL);
    lp_entry *parents = enter(recorder, context(1), "parent");
    pid_t child = fork();

    if (child == 0) {
        lp_entry *own = enter(recorder, context(1), "child");
        leave(recorder, context(1), own);
        lp_worker *worker = recording_read(recorder);
        const lp_phase *phase = phase_at(worker, "child");
        _exit(own && phase && phase->entries == 1 && worker->tree.count == 2 && worker->open_count == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_EQ(status, 0);
    leave(recorder, context(1), parents);
    lp_worker *worker = recording_read(recorder);
    REQUIRE(worker != NULL);
    CHECK_EQ(worker->tree.count, 2u);
    lp_worker_free(worker);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

/* What says whose turn it is in a child is each recorder's own: it once was the guard of the next one, and the child waited for ever
 * for a turn that nobody had. */
static void two_recorders_begin_in_a_child(void)
{
    lp_recorder *first = recording_start(NULL), *second = recording_start(NULL);
    REQUIRE(first != NULL && second != NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        leave(second, context(1), enter(second, context(1), "child"));
        leave(first, context(1), enter(first, context(1), "child"));
        leave(second, context(1), enter(second, context(1), "child"));
        lp_worker *a = recording_read(first), *b = recording_read(second);
        const lp_phase *of_a = phase_at(a, "child"), *of_b = phase_at(b, "child");
        _exit(of_a && of_b && of_a->entries == 1 && of_b->entries == 2 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_EQ(status, 0);
    lp_recorder_end(first);
    lp_recorder_end(second);
    lp_segment_close(&first->segment, false);
    lp_segment_close(&second->segment, false);
}

static pthread_barrier_t together;

static void *first_phases(void *arg)
{
    lp_recorder *recorder = arg;

    pthread_barrier_wait(&together);
    for (int i = 0; i < 100; i++)
        leave(recorder, context(1), enter(recorder, context(1), "child"));
    return NULL;
}

static void child_of_many_threads(lp_recorder *recorder)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];

    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, first_phases, recorder);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    lp_worker *worker = recording_read(recorder);
    const lp_phase *phase = phase_at(worker, "child");
    _exit(phase && phase->entries == 100 * THREADS ? 0 : 1);
}

/* Without a global lock the first phases of a child come in several threads at once: one of them makes the segment. */
static void threads_of_a_child_begin_together(void)
{
    lp_recorder *recorder = recording_start(NULL);
    REQUIRE(recorder != NULL);
    leave(recorder, context(1), enter(recorder, context(1), "parent"));
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0)
            child_of_many_threads(recorder);
        int status = -1;
        waitpid(child, &status, 0);
        CHECK_EQ(status, 0);
    }
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

static void spin(uint64_t nanoseconds)
{
    uint64_t end = lp_cpu_now() + nanoseconds;

    while (lp_cpu_now() < end)
        ;
}

/* A phase ends when its exit is called; the clocks are read later, and the kernel likes to switch in between. What is
 * lost there is not of the phase that has ended, and comes to the one around it. */
static void what_is_lost_after_the_end_is_not_of_the_phase(lp_cpu_kind kind)
{
    const struct timespec nap = {0, 5000000};
    lp_recorder *recorder = recording_start(NULL);
    REQUIRE(recorder != NULL);
    recorder->cpu = kind;

    lp_entry *outer = enter(recorder, context(1), "outer");
    for (int i = 0; i < 10; i++) {
        lp_entry *entry = enter(recorder, context(1), "spin");
        spin(1000000);
        uint64_t now = lp_ticks();
        nanosleep(&nap, NULL);
        lp_leave(entry->thread, entry, now, LP_LEFT);
        leave(recorder, context(1), enter(recorder, context(1), "next"));
    }
    leave(recorder, context(1), outer);

    lp_worker *worker = recording_read(recorder);
    const lp_phase *ended = phase_at(worker, "outer/spin"), *around = phase_at(worker, "outer");
    REQUIRE(ended && around);
    CHECK_EQ(ended->entries, 10u);
    /* 10 ms of CPU time each, less 20 us a reading. */
    CHECK(ended->cpu_ns >= 9800000u && ended->cpu_ns <= ended->wall_ns);
    CHECK(around->cpu_ns >= 9800000u && around->wall_ns - around->cpu_ns >= 49800000u);
    lp_worker_free(worker);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

/* Two recorders in one thread share the kernel's sign of a switch: both must hear of each. */
static void two_recorders_of_a_thread_see_each_switch(void)
{
    lp_recorder *outer = recording_start(NULL), *inner = recording_start(NULL);
    REQUIRE(outer && inner);

    for (int i = 0; i < 50; i++) {
        struct timespec nap = {0, 2000000};
        lp_entry *a = enter(outer, context(1), "outer"), *b = enter(inner, context(1), "inner");
        nanosleep(&nap, NULL);
        leave(inner, context(1), b);
        leave(outer, context(1), a);
    }
    lp_worker *of_outer = recording_read(outer), *of_inner = recording_read(inner);
    const lp_phase *a = phase_at(of_outer, "outer"), *b = phase_at(of_inner, "inner");
    REQUIRE(a && b);
    CHECK_EQ(a->cpu_wall_ns, a->wall_ns);
    /* 50 naps of 2 ms each are off the CPU for both, however busy the machine is. */
    CHECK(b->wall_ns - b->cpu_ns >= 99000000u);
    CHECK(a->wall_ns - a->cpu_ns >= 99000000u);
    lp_worker_free(of_outer);
    lp_worker_free(of_inner);
    lp_recorder_end(inner);
    lp_recorder_end(outer);
    lp_segment_close(&inner->segment, false);
    lp_segment_close(&outer->segment, false);
}

static void lost_after_the_end(void)
{
    /* One that this machine lacks (perf in containers) measures by system calls. */
    what_is_lost_after_the_end_is_not_of_the_phase(LP_CPU_SYSCALL);
    what_is_lost_after_the_end_is_not_of_the_phase(LP_CPU_PERF);
    if (lp_cpu_choose(LP_CPU_RSEQ) == LP_CPU_RSEQ)
        what_is_lost_after_the_end_is_not_of_the_phase(LP_CPU_RSEQ);
}

/* ---- threads that end ---- */

static sem_t at_the_lock, go_on;
static _Atomic bool holds_up;

/* In place of the C library's: the recorder's lock yields by it. One thread waits there as long as the test wants. */
int sched_yield(void)
{
    if (atomic_exchange(&holds_up, false)) {
        sem_post(&at_the_lock);
        while (sem_wait(&go_on) != 0)
            ;
    }
    return (int)syscall(SYS_sched_yield);
}

static void *records_once(void *recorder)
{
    leave(recorder, context(1), enter(recorder, context(1), "a"));
    sem_post(&at_the_lock);
    while (sem_wait(&go_on) != 0)
        ;
    return NULL;
}

/* A thread's end needs no interpreter, so it may fall into another thread's close(): it must not touch a segment that is gone. */
static void a_thread_ends_in_a_close(void)
{
    pthread_t thread;
    char folder[] = "/tmp/lp-test-XXXXXX";

    REQUIRE(mkdtemp(folder) != NULL);
    lp_recorder *recorder = recording_start(folder);
    REQUIRE(recorder && sem_init(&at_the_lock, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
    REQUIRE(pthread_create(&thread, NULL, records_once, recorder) == 0);
    while (sem_wait(&at_the_lock) != 0)
        ;
    lp_recorder_lock(recorder);
    holds_up = true;
    sem_post(&go_on);
    while (sem_wait(&at_the_lock) != 0) /* its end has come as far as the lock */
        ;
    lp_recorder_unlock(recorder);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
    sem_post(&go_on);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(recorder->idle == NULL);
    CHECK_EQ(rmdir(folder), 0);
}

static lp_entry *left_open;
static lp_thread *arena_of[2];

static void *opens(void *recorder)
{
    left_open = enter(recorder, context(1), "left open");
    arena_of[0] = lp__current;
    return NULL;
}

static void *closes(void *recorder)
{
    leave(recorder, context(2), enter(recorder, context(2), "own"));
    arena_of[1] = lp__current;
    leave(recorder, context(2), left_open);
    return NULL;
}

/* Also where the arena is the same, it was another thread that left it: nobody knows its CPU time. */
static void the_next_thread_leaves_what_was_left_open(void)
{
    pthread_t thread;
    lp_recorder *recorder = recording_start(NULL);
    REQUIRE(recorder != NULL);

    REQUIRE(pthread_create(&thread, NULL, opens, recorder) == 0 && pthread_join(thread, NULL) == 0);
    REQUIRE(pthread_create(&thread, NULL, closes, recorder) == 0 && pthread_join(thread, NULL) == 0);
    CHECK_EQ(arena_of[0], arena_of[1]);

    lp_worker *worker = recording_read(recorder);
    const lp_phase *ended = phase_at(worker, "left open"), *own = phase_at(worker, "own");
    REQUIRE(ended && own);
    CHECK_EQ(ended->entries, 1u);
    CHECK(ended->wall_ns > 0);
    CHECK_EQ(ended->cpu_wall_ns, 0u);
    CHECK_EQ(own->cpu_wall_ns, own->wall_ns);
    CHECK_EQ(worker->health.foreign_exits, 1u);
    lp_worker_free(worker);
    lp_recorder_end(recorder);
    lp_segment_close(&recorder->segment, false);
}

/* ---- descriptors that the program has closed ---- */

typedef struct detecting {
    lp_detector detector;
    sem_t turn, done;
    long tid;
    uint64_t delay;
    bool read;
} detecting;

static void *detects(void *argument)
{
    detecting *self = argument;

    self->tid = syscall(SYS_gettid);
    lp_detector_start(&self->detector, LP_CPU_SYSCALL);
    sem_post(&self->done);
    while (sem_wait(&self->turn) != 0)
        ;
    self->read = lp_cpu_delay(&self->detector, &self->delay);
    sem_post(&self->done);
    while (sem_wait(&self->turn) != 0)
        ;
    lp_detector_stop(&self->detector, true);
    return NULL;
}

/* closerange() takes the descriptors of all threads, and the first that opens its own again gets the number of another's. */
static void no_thread_reads_the_delay_of_another(void)
{
    static detecting threads[2];
    pthread_t ids[2];
    char name[64], own[64], path[128] = "";

    for (int i = 0; i < 2; i++) {
        REQUIRE(sem_init(&threads[i].turn, 0, 0) == 0 && sem_init(&threads[i].done, 0, 0) == 0);
        REQUIRE(pthread_create(&ids[i], NULL, detects, &threads[i]) == 0);
        while (sem_wait(&threads[i].done) != 0)
            ;
    }
    if (threads[0].detector.schedstat >= 0) { /* else this kernel does not tell: there is nothing to mistake */
        int first = threads[0].detector.schedstat;
        close(threads[0].detector.schedstat);
        close(threads[1].detector.schedstat);
        for (int i = 1; i >= 0; i--) {
            sem_post(&threads[i].turn);
            while (sem_wait(&threads[i].done) != 0)
                ;
            CHECK(threads[i].read);
        }
        CHECK_EQ(threads[1].detector.schedstat, first);
        CHECK(threads[0].detector.schedstat != first);
        snprintf(name, sizeof name, "/proc/self/fd/%d", threads[0].detector.schedstat);
        snprintf(own, sizeof own, "/task/%ld/schedstat", threads[0].tid);
        CHECK(readlink(name, path, sizeof path - 1) > 0 && strstr(path, own) != NULL);
    } else {
        sem_post(&threads[0].turn);
        sem_post(&threads[1].turn);
    }
    for (int i = 0; i < 2; i++) {
        sem_post(&threads[i].turn);
        CHECK_EQ(pthread_join(ids[i], NULL), 0);
    }
}

int main(void)
{
    RUN(a_thread_ends_in_a_close);
    RUN(the_next_thread_leaves_what_was_left_open);
    RUN(no_thread_reads_the_delay_of_another);
    RUN(lost_after_the_end);
    RUN(two_recorders_of_a_thread_see_each_switch);
    RUN(nests_and_subtracts);
    RUN(tasks_are_siblings);
    RUN(leaving_out_of_order);
    RUN(another_thread_may_leave);
    RUN(eight_threads_lose_nothing);
    RUN(threads_that_end_leave_their_arena);
    RUN(counts_stay_exact_beyond_64_bits);
    RUN(paths_fold_at_the_limit);
    RUN(a_child_starts_at_zero);
    RUN(two_recorders_begin_in_a_child);
    RUN(threads_of_a_child_begin_together);
    return check_done();
}
