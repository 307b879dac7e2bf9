/* A process that begins, records and dies between two looks of whoever tidies up: the collector, and a reader that adopts.
 *
 * The moment is forced: the first question for the lock, which both ask after they have read the head, goes through a function of
 * this file. It lets the process go from "being created" to its death. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "collector/watch.h"
#include "recording.h"
#include "store/place.h"
#include "test_folder.h"

static char folder[64], segments[128], run_dir[128], path[256];
static pid_t process;

static bool store_state(uint32_t state)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool ok = fd >= 0 && pwrite(fd, &state, sizeof state, offsetof(lp_seg_header, state)) == (ssize_t)sizeof state;

    close(fd);
    return ok;
}

/* It has begun, it records (has done so), it dies. */
static void live_and_die(void)
{
    CHECK(store_state(LP_SEG_RECORDING));
    kill(process, SIGKILL);
    CHECK_EQ(waitpid(process, NULL, 0), process);
}

static void (*at_question)(void);

int flock(int fd, int operation)
{
    void (*happens)(void) = at_question;

    if (happens && operation == (LOCK_SH | LOCK_NB)) {
        at_question = NULL;
        happens();
    }
    return (int)syscall(SYS_flock, fd, operation);
}

/* A process that holds its segment with three entries of "step", which looks as if it was being created. */
static bool begin(void)
{
    struct stat st;
    int ends[2];
    char byte;

    make_folder(folder);
    snprintf(run_dir, sizeof run_dir, "%s/run", folder);
    mkdir(run_dir, 0755);
    setenv("LINEPROFILER_SHM_DIR", folder, 1);
    int place;
    if (lp_place_open("r1", &place, segments, sizeof segments, NULL) != LP_OK || pipe(ends) != 0)
        return false;
    close(place);
    process = fork();
    if (process == 0) {
        static const char here;
        lp_recorder *recorder = recording_start(segments);
        if (!recorder || stat(run_dir, &st) != 0)
            _exit(1);
        lp_seg_header *header = lp_segment_header(&recorder->segment);
        header->run_dir_dev = (uint64_t)st.st_dev;
        header->run_dir_ino = (uint64_t)st.st_ino;
        for (int i = 0; i < 3; i++)
            leave(recorder, &here, enter(recorder, &here, "step"));
        if (write(ends[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    bool recorded = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
    snprintf(path, sizeof path, "%s/%d.seg", segments, (int)process);
    return recorded && store_state(LP_SEG_CREATING);
}

static void the_collector_keeps_it(void)
{
    struct stat st;
    lp__watch watch = {.poll = epoll_create1(EPOLL_CLOEXEC), .fd_most = INT_MAX};

    REQUIRE(begin());
    REQUIRE(stat(run_dir, &st) == 0);
    watch.folder = open(segments, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    watch.run_dir.dev = (uint64_t)st.st_dev;
    watch.run_dir.ino = (uint64_t)st.st_ino;
    lp__watch_scan(&watch);
    CHECK_EQ(watch.pending, 1u); /* it may begin any moment */
    CHECK_EQ(watch.count, 0u);
    at_question = live_and_die;
    lp__watch_scan(&watch);
    CHECK(!at_question);
    CHECK(exists(path));
    CHECK_EQ(watch.pending, 0u);
    REQUIRE(watch.count == 1);
    CHECK(lp__watch_is_dead(watch.list));
    lp_worker *worker = NULL;
    REQUIRE(lp_segment_read_fd(watch.list->fd, path, &worker, NULL) == LP_OK);
    CHECK_EQ(phase_at(worker, "step")->entries, 3u);
    lp_worker_free(worker);
    lp__watch_drop(&watch, watch.list);
    close(watch.folder);
    close(watch.poll);
    remove_folder(folder);
}

static void an_adopter_writes_it(void)
{
    unsigned adopted = 9;

    REQUIRE(begin());
    CHECK_EQ(lp_place_adopt(run_dir, "r1", &adopted, NULL), LP_OK);
    CHECK_EQ(adopted, 0u);
    CHECK(exists(path));
    at_question = live_and_die;
    CHECK_EQ(lp_place_adopt(run_dir, "r1", &adopted, NULL), LP_OK);
    CHECK(!at_question);
    CHECK_EQ(adopted, 1u);
    CHECK(!exists(path));
    CHECK_EQ(count_files(text("%s/workers/host", run_dir)), 1);
    remove_folder(folder);
}

/* What died before it recorded anything is nothing to keep. */
static void died(void)
{
    kill(process, SIGKILL);
    CHECK_EQ(waitpid(process, NULL, 0), process);
}

static void what_never_began_goes(void)
{
    unsigned adopted = 9;

    REQUIRE(begin());
    at_question = died;
    CHECK_EQ(lp_place_adopt(run_dir, "r1", &adopted, NULL), LP_OK);
    CHECK_EQ(adopted, 0u);
    CHECK(!exists(path));
    CHECK(!exists(text("%s/workers", run_dir)));
    remove_folder(folder);
}

int main(void)
{
    RUN(the_collector_keeps_it);
    RUN(an_adopter_writes_it);
    RUN(what_never_began_goes);
    return check_done();
}
