/* The file that elects a collector: one holds it, readers do not disturb it, the dead do not keep it; and what git said. */
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "check.h"
#include "core/layout.h"
#include "store/arena.h"
#include "store/describe.h"
#include "store/election.h"
#include "store/source_facts.h"
#include "test_folder.h"

static char folder[64], name[LP_ELECTION_ROOM];
static int dir;

static void begin(void)
{
    make_folder(folder);
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lp_election_name(name, 1, 2);
}

static void end(void)
{
    close(dir);
    remove_folder(folder);
}

static void one_is_elected(void)
{
    begin();
    int first = lp_election_take(dir, name);
    REQUIRE(first >= 0);
    CHECK(lp_election_is_ours(dir, name, first));
    CHECK(!lp_election_is_held(dir, name)); /* not signed yet: whoever looks asks the lock */
    CHECK(!lp_election_seems_held(dir, name));
    CHECK_EQ(lp_election_take(dir, name), -1);
    CHECK_EQ(errno, EWOULDBLOCK);
    CHECK(lp_election_sign(first));
    CHECK(lp_election_is_held(dir, name));
    errno = 99;
    CHECK(lp_election_seems_held(dir, name));
    CHECK_EQ(errno, 99);
    CHECK_EQ(lp_election_take(dir, name), -1);
    close(first);
    int second = lp_election_take(dir, name); /* free again: its signature is gone with it */
    CHECK(second >= 0);
    CHECK(!lp_election_is_held(dir, name));
    close(second);
    end();
}

static void names_tell_runs_apart(void)
{
    char other[LP_ELECTION_ROOM];
    lp_election_name(name, 1, 2);
    lp_election_name(other, 1, 3);
    CHECK(strcmp(name, other) != 0);
    lp_election_name(other, 1, 2);
    CHECK_STR(name, other);
    CHECK_EQ(name[0], '.'); /* readers of segments pass it over */
    /* Whatever makes a pid, a path, a start time or a segment mean something else elects another one. */
    lp_election_name_in(name, 1, 2, 3, 4, 5);
    for (int i = 0; i < 5; i++) {
        lp_election_name_in(other, i == 0 ? 9 : 1, i == 1 ? 9 : 2, i == 2 ? 9 : 3, i == 3 ? 9 : 4, i == 4 ? 9 : 5);
        CHECK(strcmp(name, other) != 0);
    }
    CHECK_STR(name, text(".collector-%u-1-2-3-4-5.lock", LP_SEG_LAYOUT));
}

static void looking_does_not_touch_the_lock(void)
{
    begin();
    int first = lp_election_take(dir, name);
    REQUIRE(first >= 0);
    lp_election_sign(first);
    close(first); /* free, and signed by one that lives: us */
    for (int i = 0; i < 100; i++) {
        CHECK(lp_election_is_held(dir, name));
        int fd = openat(dir, name, O_RDWR | O_CLOEXEC);
        CHECK_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
        close(fd);
    }
    end();
}

static void a_replaced_file_elects_nobody(void)
{
    begin();
    int first = lp_election_take(dir, name);
    REQUIRE(first >= 0);
    unlinkat(dir, name, 0);
    CHECK(!lp_election_is_ours(dir, name, first));
    int second = lp_election_take(dir, name);
    CHECK(second >= 0);
    CHECK(lp_election_is_ours(dir, name, second));
    close(first);
    close(second);
    end();
}

/* A child that dies after it has signed, while we hold a copy of its open file and so its lock. */
static void the_dead_do_not_keep_it(void)
{
    int pair[2];
    begin();
    REQUIRE(pipe(pair) == 0);
    int stray = lp_election_take(dir, name); /* one open file with the child's copy */
    REQUIRE(stray >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        bool ok = lp_election_sign(stray) && write(pair[1], "x", 1) == 1 && read(pair[0], &c, 0) == 0;
        while (ok)
            pause();
        _exit(1);
    }
    char c;
    CHECK_EQ(read(pair[0], &c, 1), 1);
    CHECK(lp_election_is_held(dir, name));
    CHECK_EQ(lp_election_take(dir, name), -1);
    kill(pid, SIGKILL);
    siginfo_t info;
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    CHECK(!lp_election_is_held(dir, name));   /* although it is a zombie still, and its pid is taken */
    CHECK(lp_election_seems_held(dir, name)); /* the quick look is told by the pid */
    int taken = lp_election_take(dir, name);
    CHECK(taken >= 0);
    CHECK(!lp_election_is_ours(dir, name, stray));
    CHECK(pwrite(taken, "lineprofiler collector 1 x", 26, 0) == 26);
    CHECK_EQ(lp_election_seems_held(dir, name), lp_election_is_held(dir, name)); /* no signature: the other look */
    CHECK(lp_election_sign(taken));
    CHECK(lp_election_seems_held(dir, name));
    waitpid(pid, NULL, 0);
    close(taken);
    close(stray);
    close(pair[0]);
    close(pair[1]);
    end();
}

static void a_link_or_a_folder_in_its_place_is_refused(void)
{
    begin();
    REQUIRE(symlinkat("/dev/null", dir, name) == 0);
    CHECK_EQ(lp_election_take(dir, name), -1);
    CHECK(!lp_election_is_held(dir, name));
    unlinkat(dir, name, 0);
    mkdirat(dir, name, 0700);
    CHECK_EQ(lp_election_take(dir, name), -1);
    CHECK(!lp_election_is_held(dir, name));
    end();
}

/* Many take and leave at once, as starters and collectors do: never two at a time. */
static void never_two_at_once(void)
{
    enum { TAKERS = 4, WINS = 40, ROUNDS = 1000000 };
    pid_t pids[TAKERS];
    begin();
    for (int i = 0; i < TAKERS; i++) {
        pids[i] = fork();
        if (pids[i] != 0)
            continue;
        int wins = 0;
        for (int round = 0; round < ROUNDS && wins < WINS; round++) {
            int fd = lp_election_take(dir, name);
            if (fd < 0)
                continue;
            int alone = openat(dir, "alone", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
            if (alone < 0)
                _exit(1);
            close(alone);
            lp_election_sign(fd);
            wins++;
            unlinkat(dir, "alone", 0);
            if (wins % 2) /* as one that leaves, or as one that is killed */
                unlinkat(dir, name, 0);
            close(fd);
        }
        _exit(wins == WINS ? 0 : 2);
    }
    for (int i = 0; i < TAKERS; i++) {
        int status = -1;
        waitpid(pids[i], &status, 0);
        CHECK_EQ(status, 0);
    }
    end();
}

static void a_folder_is_tidied_when_nobody_needs_it(void)
{
    begin();
    put_text(text("%s/%s", folder, LP_SOURCE_FACTS), "x");
    int fd = lp_election_take(dir, name);
    REQUIRE(fd >= 0);
    lp_election_tidy(dir, folder);
    CHECK_EQ(count_files(folder), 2); /* a collector is there */
    put_text(text("%s/1_a.seg", folder), "x");
    close(fd);
    lp_election_tidy(dir, folder);
    CHECK_EQ(count_files(folder), 3); /* a segment is */
    unlinkat(dir, "1_a.seg", 0);
    put_text(text("%s/.1_a.seg.new", folder), "");
    lp_election_tidy(dir, folder);
    CHECK_EQ(count_files(folder), 3); /* one is being made */
    unlinkat(dir, ".1_a.seg.new", 0);
    lp_election_tidy(dir, folder);
    CHECK_EQ(count_files(folder), -1);
    mkdir(folder, 0700);
    close(dir);
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lp_election_tidy(dir, folder);
    CHECK_EQ(count_files(folder), 0); /* empty: somebody may be about to begin */
    end();
}

static void facts_go_round(void)
{
    static const char commit[] = "0123456789abcdef0123456789abcdef01234567";
    lp_source_facts facts = {.dirty = 5, .diff = "89abcdef", .untracked = 7}, got;
    lp_arena *arena = lp_arena_new();
    lp_identity id;

    begin();
    CHECK_EQ(lp_source_facts_read(dir, &got), LP_E_MISSING);
    strcpy(facts.commit, commit);
    CHECK_EQ(lp_source_facts_write(dir, &facts), LP_OK);
    CHECK_EQ(count_files(folder), 1);
    REQUIRE(lp_source_facts_read(dir, &got) == LP_OK);
    CHECK_STR(got.commit, commit);
    CHECK_STR(got.diff, "89abcdef");
    CHECK_EQ(got.dirty, 5);
    CHECK_EQ(got.untracked, 7);
    lp_identity_init(&id);
    lp_source_facts_apply(&got, arena, &id); /* outside git */
    CHECK_EQ(id.source_dirty, LP_UNKNOWN_I64);
    id.source_commit = (lp_str){"ff", 2}; /* another repository */
    lp_source_facts_apply(&got, arena, &id);
    CHECK_EQ(id.source_dirty, LP_UNKNOWN_I64);
    id.source_commit = (lp_str){commit, 40};
    id.source_extra_count = 1; /* the user has said it */
    lp_source_facts_apply(&got, arena, &id);
    CHECK_EQ(id.source_dirty, LP_UNKNOWN_I64);
    id.source_extra_count = 0;
    lp_source_facts_apply(&got, arena, &id);
    CHECK_EQ(id.source_dirty, 5);
    CHECK_EQ(id.source_untracked, 7);
    CHECK_EQ(id.source_diff.size, 8u);
    static const char *const bad[] = {"",
                                      "x",
                                      "lineprofiler source\n",
                                      "lineprofiler source\nzz\n1\n\n",
                                      "lineprofiler source\nab\n-1\n\n",
                                      "lineprofiler source\nab\n1\nxx",
                                      "lineprofiler source\nab\n1x\n\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text(text("%s/%s", folder, LP_SOURCE_FACTS), bad[i]);
        CHECK(lp_source_facts_read(dir, &got) != LP_OK);
    }
    lp_arena_free(arena);
    end();
}

int main(void)
{
    RUN(one_is_elected);
    RUN(names_tell_runs_apart);
    RUN(looking_does_not_touch_the_lock);
    RUN(a_replaced_file_elects_nobody);
    RUN(the_dead_do_not_keep_it);
    RUN(a_link_or_a_folder_in_its_place_is_refused);
    RUN(never_two_at_once);
    RUN(a_folder_is_tidied_when_nobody_needs_it);
    RUN(facts_go_round);
    return check_done();
}
