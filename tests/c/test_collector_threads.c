/* The collector's loop and its thread for the disk, in one process with this test's build: under the thread sanitizer every access that
 * the two share without order ends it with another status (make sanitize). Beside it a process records in eight threads, and this
 * one reads. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"
#include "collector/loop.h"
#include "collector/reset.h"
#include "recording.h"
#include "store/segment_read.h"
#include "test_folder.h"

#define THREADS 8

static char folder[64], segments[128], run_dir[128];

static void *records(void *argument)
{
    lp_recorder *recorder = argument;
    static const char here;

    for (;;)
        leave(recorder, &here, enter(recorder, &here, "step"));
    return NULL;
}

/* A process of this run directory that records until it is killed. */
static pid_t record(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        struct stat st;
        pthread_t thread;
        lp_recorder *recorder = recording_start(segments);
        if (!recorder || stat(run_dir, &st) != 0)
            _exit(1);
        lp_seg_header *header = lp_segment_header(&recorder->segment);
        header->run_dir_dev = (uint64_t)st.st_dev;
        header->run_dir_ino = (uint64_t)st.st_ino;
        header->snapshot_ns = 20000000; /* the disk is always at it */
        for (int i = 0; i < THREADS; i++)
            pthread_create(&thread, NULL, records, recorder);
        for (;;)
            pause();
    }
    return pid;
}

static void loop_and_disk_share_nothing(void)
{
    int status = -1;

    make_folder(folder);
    snprintf(segments, sizeof segments, "%s/segments", folder);
    snprintf(run_dir, sizeof run_dir, "%s/run", folder);
    mkdir(segments, 0700);
    mkdir(run_dir, 0755);
    setenv("LINEPROFILER_SHM_DIR", folder, 1);
    pid_t first = record(), second = record();
    usleep(300000);
    pid_t collector = fork();
    if (collector == 0) {
        lp__collector_task task = {.folder = segments, .run_dir = run_dir, .source = "", .lock = -1};
        lp__collector_reset(-1);
        exit(lp__collector_run(&task));
    }
    for (int i = 0; i < 20; i++) {
        lp_worker *worker = NULL;
        int fd = open(text("%s/%d.seg", segments, (int)first), O_RDWR | O_CLOEXEC);
        if (fd >= 0 && lp_segment_read_fd(fd, "first", &worker, NULL) == LP_OK)
            CHECK_EQ(worker->id.pid, first);
        lp_worker_free(worker);
        if (fd >= 0)
            close(fd);
        kill(collector, i % 5 == 4 ? SIGTERM : 0); /* write everything now */
        usleep(50000);
    }
    kill(first, SIGKILL);
    waitpid(first, NULL, 0);
    usleep(200000);
    kill(second, SIGKILL);
    waitpid(second, NULL, 0);
    CHECK_EQ(waitpid(collector, &status, 0), collector);
    CHECK_EQ(status, 0); /* it has left by itself, and no sanitizer has said anything */
    CHECK(!exists(segments));
    CHECK(count_files(text("%s/workers/host", run_dir)) >= 2); /* of each its last */
    remove_folder(folder);
}

int main(void)
{
    RUN(loop_and_disk_share_nothing);
    return check_done();
}
