/* Writing snapshots: names, modes, replacement, and every way in which a disk says no. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "store/internal.h"
#include "store/rundir.h"
#include "test_folder.h"
#include "worker_builder.h"

static char folder[64];
#define STEM "w_20260813T224100-471c94_1542_01234567"

/* A file server whose answer gets lost: what the next rename says, after it was done or without having done anything. */
static struct {
    _Atomic int reason; /* errno, 0: as it is */
    bool done;
} lost_answer;

int renameat(int from, const char *old, int to, const char *new)
{
    int reason = atomic_exchange(&lost_answer.reason, 0);
    bool does = reason == 0 || lost_answer.done;
    int rc = does ? (int)syscall(SYS_renameat2, from, old, to, new, 0u) : -1;

    if (reason) {
        errno = reason;
        rc = -1;
    }
    return rc;
}

static void names_and_generations(void)
{
    lp_worker *w = build_worker();
    lp_error error;
    struct stat st;
    const char *run = text("%s/new/run", folder);
    char workers[256];
    snprintf(workers, sizeof workers, "%s/workers/node07", run);
    w->final = false;
    w->generation = 1;
    mode_t mask = umask(027);
    errno = 99;
    CHECK_EQ(lp_snapshot_write(text("%s/new/run", folder), w, true, &error), LP_OK);
    CHECK_EQ(errno, 99);
    CHECK_EQ(count_files(workers), 1);
    CHECK_EQ(stat(text("%s/" STEM ".1.snap", workers), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0640u);
    CHECK_EQ(stat(workers, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0750u);
    umask(mask);
    w->generation = 2;
    CHECK_EQ(lp_snapshot_write(text("%s/new/run", folder), w, false, &error), LP_OK);
    CHECK(exists(text("%s/" STEM ".2.snap", workers)));
    CHECK_EQ(count_files(workers), 1);
    w->generation = 4; /* 3 failed */
    CHECK_EQ(lp_snapshot_write(text("%s/new/run", folder), w, false, &error), LP_OK);
    CHECK_EQ(count_files(workers), 1);
    CHECK_EQ(lp_snapshot_write(text("%s/new/run", folder), w, false, &error), LP_OK); /* the same again */
    CHECK_EQ(count_files(workers), 1);
    w->generation = 5;
    w->final = true;
    CHECK_EQ(lp_snapshot_write(text("%s/new/run", folder), w, true, &error), LP_OK);
    CHECK(exists(text("%s/" STEM ".5.final.snap", workers)));
    CHECK_EQ(count_files(workers), 1);
    lp_worker_free(w);
}

static void hosts_become_safe_names(void)
{
    struct {
        const char *host, *name;
    } cases[] = {{"", "unknown"},      {".", "_"},           {"..", "__"},
                 {"a/../b", "a_.._b"}, {"n\xc3\xb6", "n__"}, {"ok-1.x_y", "ok-1.x_y"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_worker *w = build_worker();
        const char *run = text("%s/hosts", folder);
        w->id.host = worker_str(cases[i].host);
        w->id.run_id = worker_str("../../evil");
        CHECK_EQ(lp_snapshot_write(run, w, false, NULL), LP_OK);
        CHECK_EQ(count_files(text("%s/hosts/workers/%s", folder, cases[i].name)), 1);
        CHECK(exists(text("%s/hosts/workers/%s/w_.._.._evil_1542_01234567.300.final.snap", folder, cases[i].name)));
        lp_worker_free(w);
    }
}

static void failures_leave_nothing_and_say_why(void)
{
    lp_worker *w = build_worker();
    lp_error error;
    put_text(text("%s/file", folder), "x");
    errno = 5;
    CHECK(lp_snapshot_write(text("%s/file", folder), w, false, &error) != LP_OK);
    CHECK_EQ(errno, 5);
    CHECK(strstr(error.text, "/file: cannot make the folder for snapshots: Not a directory") != NULL);

    mkdir(text("%s/linked", folder), 0700);
    CHECK_EQ(symlink("/tmp", text("%s/linked/workers", folder)), 0);
    CHECK(lp_snapshot_write(text("%s/linked", folder), w, false, &error) != LP_OK);

    w->generation = 1;
    w->final = false;
    CHECK_EQ(lp_snapshot_write(text("%s/full", folder), w, false, &error), LP_OK);
    w->generation = 2;
    /* RLIMIT_FSIZE: an error and no SIGXFSZ, which would kill */
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {100, 100};
        sigset_t pending;
        setrlimit(RLIMIT_FSIZE, &limit);
        lp_status status = lp_snapshot_write(text("%s/full", folder), w, true, &error);
        if (status != LP_E_FULL || error.sys != EFBIG)
            _exit(1);
        sigpending(&pending);
        if (sigismember(&pending, SIGXFSZ))
            _exit(2);
        _exit(0);
    }
    int code;
    waitpid(child, &code, 0);
    CHECK(WIFEXITED(code));
    CHECK_EQ(WEXITSTATUS(code), 0);
    CHECK_EQ(count_files(text("%s/full/workers/node07", folder)), 1); /* no temporary file; the older one stands */
    CHECK(exists(text("%s/full/workers/node07/" STEM ".1.snap", folder)));

    child = fork();
    if (child == 0) { /* no descriptors left */
        struct rlimit limit = {0, 0};
        setrlimit(RLIMIT_NOFILE, &limit);
        lp_status status = lp_snapshot_write(text("%s/full", folder), w, true, &error);
        _exit(status == LP_E_IO && error.sys == EMFILE ? 0 : 1);
    }
    waitpid(child, &code, 0);
    CHECK_EQ(WEXITSTATUS(code), 0);
    lp_worker_free(w);
}

/* NFS: the server has renamed, its answer got lost, the client asks again and is told that there is no such file. */
static void a_rename_that_was_done_is_no_failure(void)
{
    lp_worker *w = build_worker();
    lp_error error;
    struct stat before, after;
    const char *run = text("%s/nfs", folder);
    char workers[256], target[320];
    snprintf(workers, sizeof workers, "%s/workers/node07", run);
    snprintf(target, sizeof target, "%s/" STEM ".2.snap", workers);
    w->final = false;
    w->generation = 1;
    CHECK_EQ(lp_snapshot_write(text("%s/nfs", folder), w, true, &error), LP_OK);
    w->generation = 2;
    lost_answer.reason = ENOENT;
    lost_answer.done = true;
    CHECK_EQ(lp_snapshot_write(text("%s/nfs", folder), w, true, &error), LP_OK);
    CHECK_EQ(lost_answer.reason, 0);
    CHECK_EQ(stat(target, &before), 0);
    CHECK_EQ(count_files(workers), 1); /* and what it replaces is gone */

    /* Not done, and a file of that name is there: an older one, which says nothing of this one. */
    lost_answer.reason = EIO;
    lost_answer.done = false;
    CHECK(lp_snapshot_write(text("%s/nfs", folder), w, true, &error) != LP_OK);
    CHECK_EQ(error.sys, EIO);
    CHECK_EQ(count_files(workers), 1); /* no half-written one stays */
    CHECK_EQ(stat(target, &after), 0);
    CHECK_EQ(after.st_ino, before.st_ino);
    lp_worker_free(w);
}

static void what_is_written_is_read(void)
{
    lp_worker *w = build_worker(), *back = NULL;
    lp_rundir *dir;
    size_t count;
    CHECK_EQ(lp_snapshot_write(text("%s/read", folder), w, false, NULL), LP_OK);
    REQUIRE(lp_rundir_open(text("%s/read", folder), (lp_rundir_options){0}, &dir, NULL) == LP_OK);
    lp_rundir_sources(dir, &count);
    CHECK_EQ(count, 1u);
    REQUIRE(lp_rundir_read(dir, 0, &back, NULL) == LP_OK);
    CHECK_EQ(back->tree.count, w->tree.count);
    CHECK_EQ(back->tree.phases[1].wall_ns, w->tree.phases[1].wall_ns);
    lp_worker_free(back);
    lp_worker_free(w);
    lp_rundir_close(dir);
}

/* A host's folder that this user may not read is named, like a file: its workers are missing from every total. */
static void a_folder_that_cannot_be_opened_is_named(void)
{
    lp_worker *w = build_worker(), *none;
    char run[100];
    lp_rundir *dir;
    lp_error error;
    size_t count;
    bool root = geteuid() == 0; /* who may read everything: as somebody else, then */
    snprintf(run, sizeof run, "%s/closed", folder);
    CHECK_EQ(lp_snapshot_write(run, w, false, NULL), LP_OK);
    CHECK_EQ(chmod(folder, 0755) + chmod(run, 0755), 0);
    CHECK_EQ(mkdir(text("%s/workers/other", run), 0), 0);
    CHECK_EQ(chmod(text("%s/workers", run), 0755), 0);
    CHECK_EQ(close(open(text("%s/workers/file", run), O_CREAT | O_WRONLY, 0)), 0);
    if (root && seteuid(65534) != 0)
        abort();
    lp_status opened = lp_rundir_open(run, (lp_rundir_options){0}, &dir, NULL);
    if (root && seteuid(0) != 0)
        abort();
    REQUIRE(opened == LP_OK);
    const lp_source *source = lp_rundir_sources(dir, &count);
    unsigned named = 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(source[i].path, text("%s/workers/other", run)) == 0) {
            named++;
            CHECK(lp_rundir_read(dir, i, &none, &error) != LP_OK);
            CHECK(strstr(error.text, "other: cannot open: Permission denied") != NULL);
        }
    CHECK_EQ(named, 1u);
    for (size_t i = 0; i < count; i++) /* a file is no folder of a host */
        CHECK(strstr(source[i].path, "/workers/file") == NULL);
    lp_worker_free(w);
    lp_rundir_close(dir);
}

/* The head of a file is found also where it is longer than the first few KB. */
static void a_long_command_line_is_listed(void)
{
    lp_worker *w = build_worker();
    lp_rundir *dir;
    size_t count;
    static char argument[20000];
    lp_str argv = {argument, sizeof argument};
    memset(argument, 'a', sizeof argument);
    w->id.argv = &argv;
    w->id.argv_count = 1;
    CHECK_EQ(lp_snapshot_write(text("%s/long", folder), w, false, NULL), LP_OK);
    REQUIRE(lp_rundir_open(text("%s/long", folder), (lp_rundir_options){0}, &dir, NULL) == LP_OK);
    const lp_source *source = lp_rundir_sources(dir, &count);
    REQUIRE(count == 1);
    CHECK_EQ(source[0].status, LP_OK);
    CHECK_EQ(source[0].written_ns, w->written_ns);
    lp_worker_free(w);
    lp_rundir_close(dir);
}

static void *write_many(void *arg)
{
    lp_worker *w = build_worker();
    w->final = false;
    for (uint32_t i = 0; i < 200; i++) {
        w->generation = i;
        if (lp_snapshot_write(arg, w, false, NULL) != LP_OK)
            return arg;
    }
    lp_worker_free(w);
    return NULL;
}

/* A process that closes while its overdue snapshot is written; readers see whole files at every moment. */
static void writers_at_once_do_not_disturb(void)
{
    char run[128];
    snprintf(run, sizeof run, "%s/many", folder);
    pthread_t threads[3];
    void *failed;
    unsigned bad = 0;
    mkdir(run, 0700);
    for (int i = 0; i < 3; i++)
        REQUIRE(pthread_create(&threads[i], NULL, write_many, run) == 0);
    for (int i = 0; i < 200; i++) {
        lp_rundir *dir;
        lp_worker *w;
        size_t count;
        lp_error error;
        if (lp_rundir_open(run, (lp_rundir_options){0}, &dir, &error) != LP_OK)
            continue;
        lp_rundir_sources(dir, &count);
        for (size_t k = 0; k < count; k++) {
            if (lp_rundir_read(dir, k, &w, &error) == LP_OK) {
                lp_worker_free(w);
            } else if (bad++ < 5) {
                printf("# %s\n", error.text);
            }
        }
        lp_rundir_close(dir);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &failed);
        CHECK(failed == NULL);
    }
    CHECK_EQ(bad, 0u);
    CHECK(count_files(text("%s/workers/node07", run)) >= 1);
}

/* A writer was killed between creation and rename. Its file goes once it is old and nobody holds its lock. */
static void half_written_files_of_the_dead_are_removed(void)
{
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    const char *names[] = {".w_r_1_aaaaaaaa.1.snap.7.tmp", ".w_r_2_aaaaaaaa.1.snap.7.tmp",
                           ".w_r_3_aaaaaaaa.1.snap.7.tmp", "w_r_4_aaaaaaaa.1.snap.7.tmp",
                           ".w_r_5_aaaaaaaa.1.snap",       ".other.tmp"};
    char run[128], host[160];

    snprintf(run, sizeof run, "%s/leftovers", folder);
    snprintf(host, sizeof host, "%s/workers/node07", run);
    errno = 99;
    lp_snapshot_tidy(run); /* there is none */
    CHECK_EQ(errno, 99);
    mkdir(run, 0755);
    mkdir(text("%s/workers", run), 0755);
    mkdir(host, 0755);
    put_text(text("%s/workers/file", run), "x");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put_text(text("%s/%s", host, names[i]), "half");
        if (i != 1)
            CHECK_EQ(utimensat(AT_FDCWD, text("%s/%s", host, names[i]), old, 0), 0);
    }
    int writing = open(text("%s/%s", host, names[2]), O_WRONLY | O_CLOEXEC);
    CHECK_EQ(flock(writing, LOCK_EX), 0);
    CHECK_EQ(symlink(text("%s/%s", host, names[1]), text("%s/.w_link.tmp", host)), 0);
    errno = 99;
    lp_snapshot_tidy(run);
    CHECK_EQ(errno, 99);
    CHECK(!exists(text("%s/%s", host, names[0])));
    for (size_t i = 1; i < sizeof names / sizeof *names; i++) /* young, being written, none of ours */
        CHECK(exists(text("%s/%s", host, names[i])));
    close(writing);
    lp_snapshot_tidy(run);
    CHECK(!exists(text("%s/%s", host, names[2])));
    struct stat st;
    CHECK_EQ(lstat(text("%s/.w_link.tmp", host), &st), 0); /* nothing is followed */
    remove_folder(run);
}

int main(void)
{
    make_folder(folder);
    RUN(names_and_generations);
    RUN(hosts_become_safe_names);
    RUN(failures_leave_nothing_and_say_why);
    RUN(a_rename_that_was_done_is_no_failure);
    RUN(what_is_written_is_read);
    RUN(a_folder_that_cannot_be_opened_is_named);
    RUN(a_long_command_line_is_listed);
    RUN(writers_at_once_do_not_disturb);
    RUN(half_written_files_of_the_dead_are_removed);
    remove_folder(folder);
    return check_done();
}
