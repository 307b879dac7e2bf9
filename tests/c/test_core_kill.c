/* SIGKILL at a random instant, again and again, with an oracle of its own in other shared memory: what was finished is there,
 * what had not begun is not, and the fields of a phase agree with each other and with the histogram.
 *
 * LP_KILLS gives the number (20; the thousand is a soak). */
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "recording.h"

#define PHASES 8

struct oracle {
    _Atomic uint64_t begun[PHASES], finished[PHASES];
    _Atomic uint32_t ready;
};

static void record_for_ever(lp_recorder *recorder, struct oracle *oracle)
{
    static const char *const names[PHASES] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};
    lp_thread *th = lp_thread_get(recorder, context(1));
    lp_seg_node *nodes[PHASES];

    for (int i = 0; i < PHASES; i++)
        nodes[i] = node_below(recorder, th, th->root, names[i]);
    oracle->ready = 1;
    for (uint64_t n = 0;; n++) {
        unsigned i = (unsigned)(n % PHASES);
        oracle->begun[i]++;
        lp_entry *entry = lp_enter(th, nodes[i], 0, 1);
        lp_leave(th, entry, lp_ticks(), LP_LEFT);
        oracle->finished[i]++;
    }
}

static void check_one(const char *folder, struct oracle *oracle, unsigned delay_us)
{
    char path[300];
    pid_t child = fork();

    if (child == 0) {
        lp_recorder *recorder = recording_start(folder);
        if (recorder)
            record_for_ever(recorder, oracle);
        _exit(1);
    }
    while (!oracle->ready && waitpid(child, NULL, WNOHANG) == 0)
        usleep(100);
    REQUIRE(oracle->ready);
    usleep(delay_us);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);

    snprintf(path, sizeof path, "%s/%d.seg", folder, (int)child);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    CHECK(!lp_segment_is_living(fd));
    lp_worker *worker = NULL;
    lp_error error = {0};
    lp_status status = lp_segment_read_fd(fd, path, &worker, &error);
    close(fd);
    unlink(path);
    if (status != LP_OK)
        fprintf(stderr, "# %s\n", error.text);
    REQUIRE(status == LP_OK);
    uint64_t wall = 0, finished = 0;
    for (unsigned i = 0; i < PHASES; i++) {
        char name[3] = {'p', (char)('0' + i), 0};
        const lp_phase *phase = phase_at(worker, name);
        REQUIRE(phase != NULL);
        CHECK(oracle->finished[i] <= phase->entries);
        CHECK(phase->entries <= oracle->begun[i]);
        CHECK_EQ(lp_cells_total(&phase->hist), phase->entries);
        wall += phase->wall_ns;
        finished += oracle->finished[i];
    }
    CHECK(wall > 0 || finished == 0); /* on a slow machine it may be killed before its first phase ends */
    CHECK(worker->unclean && !worker->final);
    lp_worker_free(worker);
}

static void killed_at_any_instant(void)
{
    char folder[] = "/dev/shm/lp-kill-XXXXXX";
    const char *asked = getenv("LP_KILLS");
    int kills = asked ? atoi(asked) : 20;
    unsigned seed = (unsigned)time(NULL);

    REQUIRE(mkdtemp(folder) != NULL);
    fprintf(stderr, "# seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < kills; i++) {
        struct oracle *oracle = mmap(NULL, sizeof *oracle, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(oracle != MAP_FAILED);
        check_one(folder, oracle, 500u + (unsigned)rand() % 3000u);
        munmap(oracle, sizeof *oracle);
    }
    CHECK_EQ(rmdir(folder), 0);
}

int main(void)
{
    RUN(killed_at_any_instant);
    return check_done();
}
