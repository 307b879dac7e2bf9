/* Folders of segments, adoption of what dead processes left, and run directories as lists. */
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "segment_builder.h"
#include "store/describe.h"
#include "store/folder_id.h"
#include "store/internal.h"
#include "store/place.h"
#include "store/rundir.h"
#include "test_folder.h"
#include "worker_builder.h"

static char folder[64]; /* of the test */
static char run_dir[128], shm[128];

static lp_str str(const char *s)
{
    return (lp_str){s, strlen(s)};
}

/* A clean run directory and place of segments. */
static void begin(void)
{
    make_folder(folder);
    snprintf(run_dir, sizeof run_dir, "%s/run", folder);
    snprintf(shm, sizeof shm, "%s/shm", folder);
    mkdir(run_dir, 0755);
    mkdir(shm, 01777);
    setenv("LINEPROFILER_SHM_DIR", shm, 1);
}

static const char *ours(void)
{
    return text("%s/lineprofiler-%u", shm, (unsigned)geteuid());
}

/* A segment of this run directory with `entries` of "step", under `name` in the folder of run r1. *fd stays open if
 * asked for, and holds the lock. */
static void make_segment(const char *name, unsigned number, uint32_t state, int entries, int *fd)
{
    builder b;
    char path[1300];
    int place;
    lp_identity id;
    lp_buffer bytes = {0};

    if (lp_place_open("r1", &place, path, sizeof path, NULL) != LP_OK)
        abort();
    close(place);
    builder_begin(&b);
    lp_seg_header *h = header_of(&b);
    h->used = LP_SEG_HEADER;
    h->state = state;
    lp_identity_init(&id);
    lp_describe_run_dir(run_dir, &id);
    h->run_dir_dev = id.run_dir_dev;
    h->run_dir_ino = id.run_dir_ino;
    h->run_dir_born_ns = id.run_dir_born_ns;
    id.host = str("node07");
    id.uuid = str(text("%08x%024u", number, 0u));
    id.run_id = str("r1");
    id.role = str("actor");
    id.pid = h->pid = (int64_t)(1000 + number);
    id.started_ns = BUILDER_REAL;
    lp_identity_encode(&id, &bytes);
    lp_off at = add_block(&b, LP_BLOCK_IDENTITY, 0, 8 + bytes.size);
    uint64_t size = bytes.size;
    memcpy(at_offset(&b, at), &size, 8);
    memcpy(b.base + at + 8, bytes.data, bytes.size);
    lp_buffer_free(&bytes);
    b.names = 0;
    add_names_block(&b);
    lp_off thread = add_thread(&b, 1, NULL);
    lp_off step = add_node(&b, thread_at(&b, thread)->root, add_name(&b, "step"));
    for (int i = 0; i < entries; i++)
        add_entry(&b, step, 1000);
    put_file(text("%s/%s", path, name), b.base, h->used);
    if (truncate(text("%s/%s", path, name), BUILDER_SIZE) != 0)
        abort();
    if (fd) {
        *fd = open(text("%s/%s", path, name), O_RDWR | O_CLOEXEC);
        if (flock(*fd, LOCK_EX | LOCK_NB) != 0)
            abort();
    }
    builder_free(&b);
}

static void the_folder_is_private(void)
{
    int fd;
    char path[1300];
    lp_error error;
    struct stat st;
    begin();
    errno = 3;
    mode_t mask = umask(0777); /* even so */
    REQUIRE(lp_place_open("r1", &fd, path, sizeof path, &error) == LP_OK);
    umask(mask);
    CHECK_EQ(errno, 3);
    CHECK_STR(path, text("%s/r1", ours()));
    CHECK_EQ(fstat(fd, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0700u);
    CHECK_EQ(stat(ours(), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0700u);
    close(fd);
    REQUIRE(lp_place_open("r1", &fd, path, sizeof path, &error) == LP_OK); /* again */
    close(fd);

    const char *bad[] = {
        "", ".", "..", "a/b", "a b", "\xc3\xb6", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_EQ(lp_place_open(bad[i], &fd, path, sizeof path, &error), LP_E_ARGUMENT);
    CHECK_EQ(lp_place_open("r1", &fd, path, 10, &error), LP_E_ARGUMENT);

    CHECK_EQ(chmod(ours(), 0770), 0); /* others of the group may enter */
    CHECK_EQ(lp_place_open("r1", &fd, path, sizeof path, &error), LP_E_UNSAFE);
    CHECK(strstr(error.text, shm) != NULL);
    CHECK_EQ(chmod(ours(), 0700), 0);
    CHECK_EQ(symlink("/tmp", text("%s/linked", ours())), 0);
    CHECK_EQ(lp_place_open("linked", &fd, path, sizeof path, &error), LP_E_UNSAFE);
    put_text(text("%s/file", ours()), "x");
    CHECK_EQ(lp_place_open("file", &fd, path, sizeof path, &error), LP_E_UNSAFE);
    setenv("LINEPROFILER_SHM_DIR", "/nonexistent/place", 1);
    CHECK_EQ(lp_place_open("r1", &fd, path, sizeof path, &error), LP_E_MISSING);
    remove_folder(folder);
}

static uint64_t entries_of(const lp_rundir *dir, size_t index)
{
    lp_worker *w;
    lp_error error;
    if (lp_rundir_read(dir, index, &w, &error) != LP_OK) {
        printf("# %s\n", error.text);
        return UINT64_MAX;
    }
    uint32_t step = lp_tree_find(&w->tree, 0, str("step"));
    uint64_t entries = step == UINT32_MAX ? 0 : w->tree.phases[step].entries;
    lp_worker_free(w);
    return entries;
}

static void dead_segments_are_adopted(void)
{
    unsigned adopted = 9;
    lp_error error = {0};
    int living;
    begin();
    make_segment("dead", 1, LP_SEG_RECORDING, 3, NULL);
    make_segment("closed", 2, LP_SEG_CLOSED, 4, NULL);
    make_segment("living", 3, LP_SEG_RECORDING, 5, &living);
    make_segment("creating", 4, LP_SEG_CREATING, 0, NULL);
    put_text(text("%s/r1/.x.new", ours()), ""); /* young: may be being made */
    put_text(text("%s/r1/foreign", ours()), "something else");
    CHECK_EQ(mkdir(text("%s/r1/folder", ours()), 0700), 0);
    errno = 12;
    CHECK_EQ(lp_place_adopt(run_dir, NULL, &adopted, &error), LP_OK);
    CHECK_EQ(errno, 12);
    CHECK_STR(error.text, "");
    CHECK_EQ(adopted, 2u);
    CHECK(!exists(text("%s/r1/dead", ours())));
    CHECK(!exists(text("%s/r1/closed", ours())));
    CHECK(!exists(text("%s/r1/creating", ours())));
    CHECK(exists(text("%s/r1/living", ours())));
    CHECK(exists(text("%s/r1/.x.new", ours())));
    CHECK(exists(text("%s/r1/foreign", ours())));
    CHECK(exists(text("%s/workers/node07/w_r1_1001_00000001.7.snap", run_dir)));
    CHECK(exists(text("%s/workers/node07/w_r1_1002_00000002.7.final.snap", run_dir)));
    CHECK_EQ(count_files(text("%s/workers/node07", run_dir)), 2);

    lp_rundir *dir;
    size_t count;
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){.segments = true}, &dir, &error) == LP_OK);
    const lp_source *s = lp_rundir_sources(dir, &count);
    REQUIRE(count == 3);
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ(s[i].status, LP_OK);
        CHECK(lp__str_equal(s[i].role, str("actor")));
        CHECK_EQ(entries_of(dir, i), (uint64_t)s[i].pid - 1001 + 3);
        CHECK_EQ(s[i].living, s[i].pid == 1003);
        CHECK_EQ(s[i].kind, s[i].pid == 1003 ? LP_SOURCE_SEGMENT : LP_SOURCE_SNAPSHOT);
    }
    lp_worker *w;
    REQUIRE(lp_rundir_read(dir, 1, &w, NULL) == LP_OK);
    CHECK_EQ(w->unclean, w->id.pid == 1001);
    lp_worker_free(w);
    lp_rundir_close(dir);
    close(living);
    CHECK_EQ(lp_place_adopt(run_dir, "other", &adopted, &error), LP_OK); /* that run only */
    CHECK_EQ(adopted, 0u);
    CHECK_EQ(lp_place_adopt(run_dir, "r1", &adopted, &error), LP_OK);
    CHECK_EQ(adopted, 1u);
    remove_folder(folder);
}

static void segments_of_other_directories_stay(void)
{
    unsigned adopted;
    begin();
    make_segment("dead", 1, LP_SEG_RECORDING, 3, NULL);
    mkdir(text("%s/other", folder), 0755);
    CHECK_EQ(lp_place_adopt(text("%s/other", folder), NULL, &adopted, NULL), LP_OK);
    CHECK_EQ(adopted, 0u);
    CHECK(exists(text("%s/r1/dead", ours())));
    CHECK_EQ(lp_place_adopt(text("%s/nowhere", folder), NULL, &adopted, NULL), LP_E_MISSING);
    /* a run directory that cannot be written: the segment is kept */
    put_text(text("%s/workers", run_dir), "a file in the way");
    lp_error error;
    CHECK(lp_place_adopt(run_dir, NULL, &adopted, &error) != LP_OK);
    CHECK_EQ(adopted, 0u);
    CHECK(exists(text("%s/r1/dead", ours())));
    remove_folder(folder);
}

/* Several at once: each segment is adopted exactly once. */
/* Makes the run directory again under the number that it had. false: this file system does not give it again. */
static bool make_again(void)
{
    lp_folder_id was, is;

    if (!lp_folder_look(AT_FDCWD, run_dir, &was) || rmdir(run_dir) != 0)
        abort();
    for (int i = 0; i < 20000; i++) {
        mkdir(text("%s/try%d", folder, i), 0755);
        if (lp_folder_look(AT_FDCWD, text("%s/try%d", folder, i), &is) && is.ino == was.ino)
            return rename(text("%s/try%d", folder, i), run_dir) == 0 && is.born_ns != 0;
    }
    mkdir(run_dir, 0755);
    return false;
}

/* Some file systems give the number of a directory that was removed to the next that is made. */
static void a_directory_with_the_number_of_another(void)
{
    const lp_folder_id one = {1, 2, 3}, other = {1, 2, 4}, unknown = {1, 2, 0};
    unsigned adopted = 9;
    lp_error error = {0};
    lp_rundir *dir;
    size_t count;
    begin();
    CHECK(lp_folder_is(&one, &one) && !lp_folder_is(&one, &other));
    CHECK(lp_folder_is(&one, &unknown) && lp_folder_is(&unknown, &other));
    make_segment("dead", 1, LP_SEG_RECORDING, 3, NULL);
    if (make_again()) {
        CHECK_EQ(lp_place_adopt(run_dir, NULL, &adopted, &error), LP_OK);
        CHECK_EQ(adopted, 0u);
        CHECK(exists(text("%s/r1/dead", ours())));
        REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){.segments = true}, &dir, &error) == LP_OK);
        lp_rundir_sources(dir, &count);
        CHECK_EQ(count, 0u);
        lp_rundir_close(dir);
        make_segment("ours", 2, LP_SEG_RECORDING, 4, NULL);
        CHECK_EQ(lp_place_adopt(run_dir, NULL, &adopted, &error), LP_OK);
        CHECK_EQ(adopted, 1u);
    } else {
        check_skip("a number that is given again",
                   "this file system gives none again, or does not say when a folder was made");
    }
    remove_folder(folder);
}

static void adopters_race(void)
{
    enum { SEGMENTS = 24, ADOPTERS = 4 };
    int ends[2];
    begin();
    for (unsigned i = 0; i < SEGMENTS; i++)
        make_segment(text("s%u", i), i, LP_SEG_RECORDING, (int)i + 1, NULL);
    REQUIRE(pipe(ends) == 0);
    for (int i = 0; i < ADOPTERS; i++)
        if (fork() == 0) {
            unsigned adopted = 0;
            char go;
            close(ends[1]);
            if (read(ends[0], &go, 1) < 0) /* until the parent closes its end */
                _exit(200);
            lp_status status = lp_place_adopt(run_dir, NULL, &adopted, NULL);
            _exit(status == LP_OK ? (int)adopted : 200);
        }
    close(ends[0]);
    close(ends[1]);
    int sum = 0, code;
    for (int i = 0; i < ADOPTERS; i++) {
        wait(&code);
        CHECK(WEXITSTATUS(code) < 200);
        sum += WEXITSTATUS(code);
    }
    CHECK_EQ(sum, SEGMENTS);
    CHECK_EQ(count_files(text("%s/workers/node07", run_dir)), SEGMENTS);
    CHECK_EQ(count_files(text("%s/r1", ours())), 0);
    lp_rundir *dir;
    size_t count;
    uint64_t total = 0;
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){.segments = true, .adopt = true}, &dir, NULL) == LP_OK);
    lp_rundir_sources(dir, &count);
    CHECK_EQ(count, SEGMENTS);
    for (size_t i = 0; i < count; i++)
        total += entries_of(dir, i);
    CHECK_EQ(total, SEGMENTS * (SEGMENTS + 1) / 2u);
    lp_rundir_close(dir);
    remove_folder(folder);
}

/* Killed at any moment: the next adopter finishes, nothing is lost, nothing counts twice. */
static void adopters_may_die(void)
{
    enum { SEGMENTS = 12 };
    uint64_t total = 0;
    size_t count;
    lp_rundir *dir;
    begin();
    srand(17);
    for (unsigned round = 0; round < 8; round++) {
        for (unsigned i = 0; i < SEGMENTS; i++)
            make_segment(text("s%u_%u", round, i), round * 100 + i, LP_SEG_RECORDING, 1, NULL);
        for (int k = 0; k < 4; k++) {
            pid_t child = fork();
            if (child == 0) {
                lp_place_adopt(run_dir, NULL, NULL, NULL);
                _exit(0);
            }
            usleep((useconds_t)(rand() % 3000));
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
        }
    }
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){.segments = true, .adopt = true}, &dir, NULL) == LP_OK);
    lp_rundir_sources(dir, &count);
    CHECK_EQ(count, 8u * SEGMENTS);
    for (size_t i = 0; i < count; i++)
        total += entries_of(dir, i);
    CHECK_EQ(total, 8u * SEGMENTS);
    CHECK_EQ(count_files(text("%s/r1", ours())), 0);
    lp_rundir_close(dir);
    remove_folder(folder);
}

/* Containers may refuse it, and qemu's user mode has none: a child that stops would never be heard of. */
static bool can_trace(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0);
    return waitpid(pid, &status, 0) == pid && status == 0;
}

/* An adopter that is killed at its nth stop, before or after a system call. false: it had ended before. */
static bool adopter_killed_at(unsigned nth)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        lp_place_adopt(run_dir, NULL, NULL, NULL);
        _exit(0);
    }
    for (unsigned i = 0; waitpid(pid, &status, 0) == pid && WIFSTOPPED(status); i++) {
        if (i < nth && ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0)
            continue;
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return true;
    }
    return false;
}

/* And not only at random: at every system call that it makes. */
static void adopters_may_die_at_any_call(void)
{
    unsigned nth = 0;
    uint64_t expected = 0, total = 0;
    size_t count;
    lp_rundir *dir;
    begin();
    for (bool killed = true; killed && nth < 10000; expected += nth) {
        nth++;
        make_segment(text("s%u", nth), nth, LP_SEG_RECORDING, (int)nth, NULL);
        killed = adopter_killed_at(nth);
        CHECK_EQ(lp_place_adopt(run_dir, NULL, NULL, NULL), LP_OK);
        CHECK_EQ(count_files(text("%s/r1", ours())), 0);
    }
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){.segments = true}, &dir, NULL) == LP_OK);
    lp_rundir_sources(dir, &count);
    CHECK_EQ(count, nth);
    for (size_t i = 0; i < count; i++)
        total += entries_of(dir, i);
    CHECK_EQ(total, expected);
    CHECK(nth > 50 && nth < 10000); /* it opens, locks, reads, writes, syncs, renames and removes */
    printf("# killed at each of %u stops\n", nth - 1);
    lp_rundir_close(dir);
    remove_folder(folder);
}

static void old_leftovers_are_removed(void)
{
    begin();
    make_segment("living", 1, LP_SEG_RECORDING, 1, NULL);
    CHECK_EQ(mkdir(text("%s/empty", ours()), 0700), 0);
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    CHECK_EQ(utimensat(AT_FDCWD, text("%s/empty", ours()), old, 0), 0);
    CHECK_EQ(mkdir(text("%s/fresh", ours()), 0700), 0);
    CHECK_EQ(lp_place_adopt(run_dir, NULL, NULL, NULL), LP_OK);
    CHECK(!exists(text("%s/empty", ours())));
    CHECK(exists(text("%s/fresh", ours())));
    remove_folder(folder);
}

#define WEEK_S 604800

/* A segment that was written to for the last time `age_s` ago, of a run directory under `path`, seen from this mount namespace
 * or another. */
static void make_old_segment(const char *name, const char *path, long age_s, bool here)
{
    char file[256];
    lp_seg_header header;
    lp_identity id;
    lp_buffer bytes = {0};
    struct stat ns;
    struct timespec now, old[2];

    make_segment(name, 1, LP_SEG_RECORDING, 3, NULL);
    snprintf(file, sizeof file, "%s/r1/%s", ours(), name);
    int fd = open(file, O_RDWR | O_CLOEXEC);
    clock_gettime(CLOCK_REALTIME, &now);
    old[0] = old[1] = (struct timespec){.tv_sec = now.tv_sec - age_s};
    if (fd < 0 || pread(fd, &header, sizeof header, 0) != sizeof header || stat("/proc/self/ns/mnt", &ns) != 0)
        abort();
    header.run_dir_ino++; /* another directory than the one that is read */
    header.clock.last.real_ns = header.started_ns = (uint64_t)old[0].tv_sec * 1000000000u;
    snprintf(header.run_dir, sizeof header.run_dir, "%s", path);
    lp_identity_init(&id);
    id.mnt_ns = (uint64_t)ns.st_ino + !here;
    id.pid = header.pid;
    lp_identity_encode(&id, &bytes);
    uint64_t size = bytes.size;
    if (pwrite(fd, &header, sizeof header, 0) != sizeof header ||
        pwrite(fd, &size, sizeof size, LP_SEG_HEADER + sizeof(lp_seg_block)) != sizeof size ||
        pwrite(fd, bytes.data, size, LP_SEG_HEADER + sizeof(lp_seg_block) + sizeof size) != (ssize_t)size ||
        futimens(fd, old) != 0)
        abort();
    lp_buffer_free(&bytes);
    close(fd);
}

static void what_belongs_to_nobody_expires(void)
{
    begin();
    char gone[128], unknown[512]; /* text() has few places */
    snprintf(gone, sizeof gone, "%s/gone", folder);
    snprintf(unknown, sizeof unknown, "%s/%0300d", folder, 0);
    make_old_segment("expired", gone, WEEK_S + 100, true);
    make_old_segment("young", gone, WEEK_S - 100, true);
    make_old_segment("elsewhere", gone, WEEK_S + 100, false);
    make_old_segment("pathless", "", WEEK_S + 100, true);
    make_old_segment("relative", "gone", WEEK_S + 100, true);
    make_old_segment("unknown", unknown, WEEK_S + 100, true);  /* ENAMETOOLONG says nothing */
    make_old_segment("replaced", run_dir, WEEK_S + 100, true); /* its path leads to another directory now */
    make_old_segment("living", gone, WEEK_S + 100, true);
    make_old_segment("recent", gone, WEEK_S + 100, true);
    int living = open(text("%s/r1/living", ours()), O_RDWR | O_CLOEXEC);
    CHECK_EQ(flock(living, LOCK_EX | LOCK_NB), 0);
    int recent = open(text("%s/r1/recent", ours()), O_RDWR | O_CLOEXEC);
    CHECK_EQ(futimens(recent, NULL), 0);
    close(recent);

    CHECK_EQ(lp_place_adopt(run_dir, "r1", NULL, NULL), LP_OK); /* a process that closes cares for its own run only */
    CHECK(exists(text("%s/r1/expired", ours())));
    errno = 99;
    CHECK_EQ(lp_place_adopt(run_dir, NULL, NULL, NULL), LP_OK);
    CHECK_EQ(errno, 99);
    CHECK(!exists(text("%s/r1/expired", ours())));
    CHECK(!exists(text("%s/r1/replaced", ours())));
    const char *stay[] = {"young", "elsewhere", "pathless", "relative", "unknown", "living", "recent"};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        if (!exists(text("%s/r1/%s", ours(), stay[i])))
            CHECK_STR(stay[i], "is there");
    close(living);
    remove_folder(folder);
}

/* ---- run directories */

static void write_worker(unsigned number, uint32_t generation, uint64_t ns, bool final)
{
    lp_worker *w = lp_worker_new();
    uint32_t step;
    w->id.host = str("node07");
    w->id.run_id = str("r1");
    w->id.role = str("actor");
    w->id.uuid = str(text("%08x%024u", number, 0u));
    w->id.pid = (int64_t)(1000 + number);
    w->generation = generation;
    w->final = final;
    lp_tree_child(&w->tree, 0, str("step"), &step);
    worker_entry(w, step, ns);
    if (lp_snapshot_write(run_dir, w, false, NULL) != LP_OK)
        abort();
    lp_worker_free(w);
}

static uint64_t wall_of(const lp_rundir *dir, size_t index)
{
    lp_worker *w;
    if (lp_rundir_read(dir, index, &w, NULL) != LP_OK)
        return 0;
    uint64_t wall = w->tree.phases[lp_tree_find(&w->tree, 0, str("step"))].wall_ns;
    lp_worker_free(w);
    return wall;
}

static void missing_and_empty_directories(void)
{
    lp_rundir *dir;
    lp_error error;
    size_t count = 9;
    begin();
    CHECK_EQ(lp_rundir_open(text("%s/none", folder), (lp_rundir_options){.segments = true}, &dir, &error),
             LP_E_MISSING);
    put_text(text("%s/file", folder), "x");
    CHECK_EQ(lp_rundir_open(text("%s/file", folder), (lp_rundir_options){0}, &dir, &error), LP_E_MISSING);
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){.segments = true, .adopt = true}, &dir, &error) == LP_OK);
    lp_rundir_sources(dir, &count);
    CHECK_EQ(count, 0u);
    lp_worker *w;
    CHECK_EQ(lp_rundir_read(dir, 0, &w, &error), LP_E_ARGUMENT);
    lp_rundir_close(dir);
    lp_rundir_close(NULL);
    remove_folder(folder);
}

static void the_highest_generation_wins(void)
{
    lp_rundir *dir;
    lp_error error;
    size_t count;
    begin();
    char workers[256];
    snprintf(workers, sizeof workers, "%s/workers/node07", run_dir);
    write_worker(1, 9, 1000, false);
    write_worker(1, 20, 2000, false); /* 9 stays: too far back */
    write_worker(2, 5, 3000, true);
    put_text(text("%s/w_r1_1002_00000002.3.snap", workers), "old and damaged, nobody looks");
    write_worker(3, 4, 4000, false);
    put_text(text("%s/w_r1_1003_00000003.5.snap", workers), ""); /* the newest is damaged: the one before speaks */
    put_text(text("%s/w_r1_1004_00000004.1.snap", workers), "{}");
    put_text(text("%s/w_old.snap", workers), "no generation");
    put_text(text("%s/.w_r1_1_1.1.snap.77.tmp", workers), "being written");
    put_text(text("%s/notes.txt", workers), "a foreign file");
    put_text(text("%s/w_r1_1_2.json", workers), "{}");
    put_text(text("%s/workers/README", run_dir), "in the way");
    mkdir(text("%s/w_r1_1005_00000005.1.snap", workers), 0700); /* a folder of that name */
    REQUIRE(lp_rundir_open(text("%s///", run_dir), (lp_rundir_options){0}, &dir, &error) == LP_OK);
    const lp_source *s = lp_rundir_sources(dir, &count);
    unsigned good = 0, bad = 0;
    for (size_t i = 0; i < count; i++) {
        CHECK(i == 0 || strcmp(s[i - 1].path, s[i].path) < 0);
        CHECK(strncmp(s[i].path, text("%s/workers/node07/w_", run_dir), strlen(run_dir) + 18) == 0);
        if (s[i].status == LP_OK) {
            good++;
            CHECK_EQ(wall_of(dir, i), s[i].pid == 1001 ? 2000u : s[i].pid == 1002 ? 3000u : 4000u);
            CHECK_STR(s[i].problem, "");
        } else {
            bad++;
            CHECK(strncmp(s[i].problem, s[i].path, strlen(s[i].path)) == 0);
            lp_worker *w;
            CHECK_EQ(lp_rundir_read(dir, i, &w, &error), s[i].status);
            CHECK_STR(error.text, s[i].problem);
        }
    }
    CHECK_EQ(good, 3u);
    CHECK_EQ(bad, 4u);
    lp_rundir_close(dir);
    remove_folder(folder);
}

/* Between listing and reading a living process writes again, or ends. */
static void what_was_replaced_meanwhile_is_found(void)
{
    lp_rundir *dir;
    size_t count;
    int fd;
    begin();
    write_worker(1, 1, 1000, false);
    make_segment("living", 2, LP_SEG_RECORDING, 5, &fd);
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){.segments = true}, &dir, NULL) == LP_OK);
    const lp_source *s = lp_rundir_sources(dir, &count);
    REQUIRE(count == 2);
    write_worker(1, 2, 2000, true);
    unlink(text("%s/r1/living", ours()));
    write_worker(2, 7, 7000, true);
    for (size_t i = 0; i < 2; i++)
        CHECK_EQ(wall_of(dir, i), s[i].pid == 1001 ? 2000u : 7000u);
    lp_rundir_close(dir);
    close(fd);
    remove_folder(folder);
}

static void a_worker_is_listed_once(void)
{
    lp_rundir *dir;
    size_t count;
    int fd;
    begin();
    write_worker(1, 6, 1000, false); /* the last periodic snapshot of a living process */
    make_segment("living", 1, LP_SEG_RECORDING, 5, &fd);
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){.segments = true}, &dir, NULL) == LP_OK);
    const lp_source *s = lp_rundir_sources(dir, &count);
    REQUIRE(count == 1);
    CHECK_EQ(s[0].kind, LP_SOURCE_SEGMENT);
    CHECK(s[0].living);
    CHECK_EQ(entries_of(dir, 0), 5u);
    lp_rundir_close(dir);
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){0}, &dir, NULL) == LP_OK); /* not asked for segments */
    s = lp_rundir_sources(dir, &count);
    REQUIRE(count == 1);
    CHECK_EQ(s[0].kind, LP_SOURCE_SNAPSHOT);
    lp_rundir_close(dir);
    close(fd); /* it dies */
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){.segments = true, .adopt = true}, &dir, NULL) == LP_OK);
    s = lp_rundir_sources(dir, &count);
    REQUIRE(count == 1);
    CHECK_EQ(s[0].kind, LP_SOURCE_SNAPSHOT);
    CHECK_EQ(entries_of(dir, 0), 5u);
    CHECK_EQ(count_files(text("%s/workers/node07", run_dir)), 1);
    lp_rundir_close(dir);
    remove_folder(folder);
}

static void many_workers_are_listed_quickly(void)
{
    lp_rundir *dir;
    size_t count;
    begin();
    for (unsigned i = 0; i < 2000; i++)
        write_worker(i, 1, 1000, true);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    REQUIRE(lp_rundir_open(run_dir, (lp_rundir_options){0}, &dir, NULL) == LP_OK);
    clock_gettime(CLOCK_MONOTONIC, &b);
    lp_rundir_sources(dir, &count);
    CHECK_EQ(count, 2000u);
    printf("# 2,000 heads: %.3f s\n", (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    lp_rundir_close(dir);
    remove_folder(folder);
}

int main(void)
{
    RUN(the_folder_is_private);
    RUN(dead_segments_are_adopted);
    RUN(segments_of_other_directories_stay);
    RUN(a_directory_with_the_number_of_another);
    RUN(adopters_race);
    RUN(adopters_may_die);
    if (can_trace())
        RUN(adopters_may_die_at_any_call);
    else
        check_skip("adopters_may_die_at_any_call", "ptrace is not allowed here");
    RUN(old_leftovers_are_removed);
    RUN(what_belongs_to_nobody_expires);
    RUN(missing_and_empty_directories);
    RUN(the_highest_generation_wins);
    RUN(what_was_replaced_meanwhile_is_found);
    RUN(a_worker_is_listed_once);
    RUN(many_workers_are_listed_quickly);
    return check_done();
}
