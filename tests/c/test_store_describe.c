/* Identity of a process, launcher variables, hardware, and the commit from the files of .git. */
#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"
#include "store/arena.h"
#include "store/describe.h"
#include "store/internal.h"
#include "test_folder.h"

static bool is(lp_str a, const char *b)
{
    if (a.size == strlen(b) && memcmp(a.data, b, a.size) == 0)
        return true;
    printf("#   it is \"%.*s\", not \"%s\"\n", (int)a.size, a.data, b);
    return false;
}

static const char *const variables[] = {"SLURM_PROCID",
                                        "RANK",
                                        "OMPI_COMM_WORLD_RANK",
                                        "PMI_RANK",
                                        "MV2_COMM_WORLD_RANK",
                                        "SLURM_LOCALID",
                                        "LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "SLURM_NTASKS",
                                        "WORLD_SIZE",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE",
                                        "SLURM_JOB_ID",
                                        "PBS_JOBID",
                                        "LSB_JOBID",
                                        "FLUX_JOB_ID",
                                        "PMIX_RANK",
                                        "FLUX_TASK_RANK",
                                        "FLUX_TASK_LOCAL_ID",
                                        "FLUX_JOB_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MV2_COMM_WORLD_LOCAL_RANK",
                                        "MV2_COMM_WORLD_SIZE",
                                        "RAY_JOB_ID",
                                        "RAY_RAYLET_PID",
                                        "__DASK_PARENT_PID",
                                        "TORCHELASTIC_RUN_ID"};

/* Sets pairs of name and value, NULL ends, and describes. */
static lp_identity describe(lp_arena *arena, const char *const *pairs)
{
    lp_identity id;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    for (; pairs && *pairs; pairs += 2)
        setenv(pairs[0], pairs[1], 1);
    lp_identity_init(&id);
    id.role = (lp_str){"kept", 4};
    errno = 44;
    CHECK_EQ(lp_describe_process(arena, &id), LP_OK);
    CHECK_EQ(errno, 44);
    return id;
}

static void the_process_is_described(void)
{
    lp_arena *arena = lp_arena_new();
    lp_identity id = describe(arena, NULL), other = describe(arena, NULL);
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    CHECK(is(id.host, host));
    CHECK(is(id.role, "kept"));
    CHECK_EQ(id.pid, getpid());
    CHECK_EQ(id.pid_start, lp_describe_pid_start(getpid()));
    CHECK(id.pid_start > 0);
    CHECK_EQ(id.boot_id.size, 36u);
    CHECK_EQ(id.uuid.size, 32u);
    CHECK_EQ(strspn(id.uuid.data, "0123456789abcdef"), 32u);
    CHECK(memcmp(id.uuid.data, other.uuid.data, 32) != 0);
    struct stat st;
    CHECK_EQ(stat("/proc/self/ns/pid", &st), 0);
    CHECK_EQ(id.pid_ns, st.st_ino);
    CHECK(id.mnt_ns != 0);
    CHECK(id.started_ns > 1600000000000000000u);
    CHECK(id.platform.size > 8 && memcmp(id.platform.data, "Linux-", 6) == 0);
    CHECK_EQ(id.rank, LP_UNKNOWN_I64);
    CHECK_EQ(id.world_size, LP_UNKNOWN_I64);
    CHECK(is(id.launcher, ""));
    CHECK_EQ(id.hardware.cpu_threads, sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(id.hardware.cpu_cores == LP_UNKNOWN_I64 ||
          (id.hardware.cpu_cores > 0 && id.hardware.cpu_cores <= id.hardware.cpu_threads));
    cpu_set_t set;
    CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    CHECK_EQ(id.hardware.cpu_affinity, CPU_COUNT(&set));
    CHECK_EQ(id.hardware.ram_total / 4096, sysconf(_SC_PHYS_PAGES));
    printf("# %.*s, %" PRId64 " cores, %" PRId64 " threads\n", (int)id.platform.size, id.platform.data,
           id.hardware.cpu_cores, id.hardware.cpu_threads);
    lp_arena_free(arena);
}

static void start_times_are_of_that_process(void)
{
    int ends[2];
    CHECK_EQ(lp_describe_pid_start(0), LP_UNKNOWN_I64);
    CHECK_EQ(lp_describe_pid_start(-1), LP_UNKNOWN_I64);
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        char c;
        FILE *name = fopen("/proc/self/comm", "w"); /* a command that looks like fields */
        if (name) {
            fputs(") S 1 2 3 (", name);
            fclose(name);
        }
        close(ends[1]);
        _exit(read(ends[0], &c, 1) < 0);
    }
    usleep(50000);
    int64_t mine = lp_describe_pid_start(getpid()), its = lp_describe_pid_start(child);
    CHECK(its >= mine && its < mine + 100 * 3600);
    CHECK(lp_describe_pid_runs(child, its));
    CHECK(lp_describe_pid_runs(child, LP_UNKNOWN_I64)); /* who signed could not read its own */
    CHECK(!lp_describe_pid_runs(child, its + 1));
    CHECK(!lp_describe_pid_is_gone(child));

    struct rlimit limit, none;
    getrlimit(RLIMIT_NOFILE, &limit);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none); /* what cannot be read is not gone */
    CHECK_EQ(lp_describe_pid_start(child), LP_UNKNOWN_I64);
    CHECK(lp_describe_pid_runs(child, its));
    CHECK(!lp_describe_pid_is_gone(child));
    setrlimit(RLIMIT_NOFILE, &limit);

    close(ends[0]);
    close(ends[1]);
    siginfo_t info;
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
    CHECK(!lp_describe_pid_runs(child, its)); /* a zombie */
    CHECK(!lp_describe_pid_is_gone(child));
    waitpid(child, NULL, 0);
    CHECK_EQ(lp_describe_pid_start(child), LP_UNKNOWN_I64);
    CHECK(!lp_describe_pid_runs(child, its));
    CHECK(lp_describe_pid_is_gone(child));
    CHECK(lp_describe_pid_is_gone(0) && lp_describe_pid_is_gone(-1) && lp_describe_pid_is_gone((int64_t)1 << 40));
}

static void launchers_are_recognised(void)
{
    lp_arena *arena = lp_arena_new();
    struct {
        const char *pairs[20];
        int64_t rank, local, size;
        const char *job, *launcher;
    } cases[] = {
        {{"SLURM_PROCID", "3", "SLURM_LOCALID", "1", "SLURM_NTASKS", "8", "SLURM_JOB_ID", "4711"},
         3,
         1,
         8,
         "4711",
         "slurm"},
        {{"RANK", "0", "LOCAL_RANK", "0", "WORLD_SIZE", "4"}, 0, 0, 4, "", "torch"},
        {{"RANK", "0", "LOCAL_RANK", "0", "WORLD_SIZE", "4", "TORCHELASTIC_RUN_ID", "x"}, 0, 0, 4, "", "torchrun"},
        {{"RANK", "5", "SLURM_PROCID", "1", "SLURM_NTASKS", "2"}, 1, LP_UNKNOWN_I64, 2, "", "slurm"},
        {{"OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "3", "PBS_JOBID", "9.srv"},
         2,
         LP_UNKNOWN_I64,
         3,
         "9.srv",
         "openmpi"},
        {{"PMI_RANK", "1", "PMI_SIZE", "2"}, 1, LP_UNKNOWN_I64, 2, "", "mpich"},
        {{"MV2_COMM_WORLD_RANK", "6"}, 6, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", "mvapich2"},
        {{"LSB_JOBID", "12"}, LP_UNKNOWN_I64, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "12", "lsf"},
        /* Dask's workers have it from a nanny; in the process that set it, it is no launcher (test_clients.py has real ones) */
        {{"__DASK_PARENT_PID", "1"}, LP_UNKNOWN_I64, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", "dask"},
        {{"__DASK_PARENT_PID", "x"}, LP_UNKNOWN_I64, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", ""},
        /* nonsense is ignored, the next name is asked */
        {{"SLURM_PROCID", "x1", "RANK", "2"}, 2, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", "slurm"},
        /* launchers in each other, as nobody can tell their environments apart: the order of launcher.c */
        {{"TORCHELASTIC_RUN_ID", "x", "RANK", "5", "LOCAL_RANK", "1", "WORLD_SIZE", "8", "SLURM_PROCID", "1",
          "SLURM_LOCALID", "0", "SLURM_NTASKS", "2", "SLURM_JOB_ID", "7"},
         5,
         1,
         8,
         "7",
         "torchrun"},
        {{"OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_LOCAL_RANK", "1", "OMPI_COMM_WORLD_SIZE", "4", "PMIX_RANK", "3",
          "SLURM_PROCID", "0", "SLURM_LOCALID", "0", "SLURM_NTASKS", "4"},
         3,
         1,
         4,
         "",
         "openmpi"},
        {{"PMI_RANK", "2", "PMI_SIZE", "4", "MPI_LOCALRANKID", "0", "SLURM_PROCID", "1", "SLURM_LOCALID", "0",
          "SLURM_NTASKS", "2"},
         2,
         0,
         4,
         "",
         "mpich"},
        {{"PMI_RANK", "2", "PMI_SIZE", "4", "PMIX_RANK", "2", "SLURM_PROCID", "2", "SLURM_LOCALID", "1", "SLURM_NTASKS",
          "4"},
         2,
         1,
         4,
         "",
         "slurm"},
        {{"FLUX_TASK_RANK", "2", "FLUX_TASK_LOCAL_ID", "1", "FLUX_JOB_SIZE", "4", "PMI_RANK", "2", "PMI_SIZE", "4"},
         2,
         1,
         4,
         "",
         "flux"},
        {{"RANK", "0", "WORLD_SIZE", "8", "SLURM_PROCID", "3", "SLURM_LOCALID", "1", "SLURM_NTASKS", "8"},
         3,
         1,
         8,
         "",
         "slurm"}, /* RANK of a batch script's `export`, the same in all tasks */
        {{"SLURM_PROCID", "5", "SLURM_NTASKS", "4"}, 5, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", "slurm"},
        {{"RAY_RAYLET_PID", "9", "RAY_JOB_ID", "02", "SLURM_PROCID", "1", "SLURM_NTASKS", "2", "SLURM_JOB_ID", "7"},
         LP_UNKNOWN_I64,
         LP_UNKNOWN_I64,
         LP_UNKNOWN_I64,
         "7",
         "ray"},
        {{"RAY_RAYLET_PID", "9", "RANK", "3", "LOCAL_RANK", "1", "WORLD_SIZE", "4", "SLURM_PROCID", "1", "SLURM_NTASKS",
          "2"},
         3,
         1,
         4,
         "",
         "ray"},
        {{"PMIX_RANK", "1"}, 1, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", ""},
        {{"RANK", "-1"}, LP_UNKNOWN_I64, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", ""},
        {{"RANK", ""}, LP_UNKNOWN_I64, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", ""},
        {{"RANK", "99999999999999999999"}, LP_UNKNOWN_I64, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", ""},
        {{"RANK", "1", "WORLD_SIZE", "0"}, 1, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", ""},
        {{"RANK", "7", "WORLD_SIZE", "4"}, 7, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", ""},
        {{"SLURM_JOB_ID", "a\nb"}, LP_UNKNOWN_I64, LP_UNKNOWN_I64, LP_UNKNOWN_I64, "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_identity id = describe(arena, cases[i].pairs);
        CHECK_EQ(id.rank, cases[i].rank);
        CHECK_EQ(id.local_rank, cases[i].local);
        CHECK_EQ(id.world_size, cases[i].size);
        CHECK(is(id.job_id, cases[i].job));
        CHECK(is(id.launcher, cases[i].launcher));
    }
    describe(arena, NULL);
    lp_arena_free(arena);
}

static void the_run_directory_has_a_number(void)
{
    lp_identity id;
    struct stat st;
    lp_identity_init(&id);
    CHECK_EQ(lp_describe_run_dir("/tmp", &id), LP_OK);
    CHECK_EQ(stat("/tmp", &st), 0);
    CHECK_EQ(id.run_dir_dev, st.st_dev);
    CHECK_EQ(id.run_dir_ino, st.st_ino);
    CHECK_EQ(lp_describe_run_dir("/nonexistent", &id), LP_OK);
    CHECK_EQ(id.run_dir_ino, 0u);
}

/* ---- git, by hand */

static char folder[64];
#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C64 "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

static const char *in(const char *path)
{
    return text("%s/%s", folder, path);
}

static void folders(const char *path)
{
    char part[256];
    for (size_t i = 0; i <= strlen(path); i++)
        if (path[i] == '/' || path[i] == '\0') {
            memcpy(part, path, i);
            part[i] = '\0';
            mkdir(in(part), 0755);
        }
}

static bool commit_is(const char *path, const char *expected)
{
    lp_arena *arena = lp_arena_new();
    lp_identity id;
    lp_identity_init(&id);
    errno = 21;
    CHECK_EQ(lp_describe_source(arena, in(path), &id), LP_OK);
    CHECK_EQ(errno, 21);
    bool same = is(id.source_commit, expected);
    CHECK_EQ(id.source_dirty, LP_UNKNOWN_I64);
    lp_arena_free(arena);
    return same;
}

static void commits_are_found(void)
{
    make_folder(folder);
    CHECK(commit_is(".", ""));
    CHECK(commit_is("missing", ""));
    folders("repo/.git/refs/heads/feature");
    folders("repo/src/deep/er");
    put_text(in("repo/.git/HEAD"), "ref: refs/heads/main\n");
    CHECK(commit_is("repo", "")); /* no commit yet */
    put_text(in("repo/.git/refs/heads/main"), A "\n");
    CHECK(commit_is("repo", A));
    CHECK(commit_is("repo/src/deep/er", A));
    put_text(in("repo/.git/HEAD"), "ref: refs/heads/feature/x\n");
    put_text(in("repo/.git/packed-refs"),
             "# pack-refs with: peeled fully-peeled sorted\n" A " refs/heads/feature/xx\n" B
             " refs/heads/feature/x\n^" A "\n" A " refs/tags/v1\n");
    CHECK(commit_is("repo/src", B));
    put_text(in("repo/.git/refs/heads/feature/x"), A); /* loose beats packed; no newline */
    CHECK(commit_is("repo", A));
    put_text(in("repo/.git/HEAD"), C64 "\n"); /* detached, sha256 */
    CHECK(commit_is("repo", C64));
    put_text(in("repo/.git/HEAD"), "ref: refs/heads/a\n"); /* a chain of symbolic references */
    put_text(in("repo/.git/refs/heads/a"), "ref: refs/heads/b\n");
    put_text(in("repo/.git/refs/heads/b"), B "\n");
    CHECK(commit_is("repo", B));
    put_text(in("repo/.git/refs/heads/b"), "ref: refs/heads/a\n"); /* a circle */
    CHECK(commit_is("repo", ""));
    remove_folder(folder);
}

static void work_trees_and_submodules(void)
{
    make_folder(folder);
    folders("repo/.git/refs/heads");
    folders("repo/.git/worktrees/w");
    folders("tree/sub");
    put_text(in("repo/.git/HEAD"), A "\n");
    put_text(in("repo/.git/refs/heads/other"), B "\n");
    put_text(in("repo/.git/worktrees/w/HEAD"), "ref: refs/heads/other\n");
    put_text(in("repo/.git/worktrees/w/commondir"), "../..\n");
    put_text(in("tree/.git"), text("gitdir: %s/repo/.git/worktrees/w\n", folder));
    CHECK(commit_is("tree/sub", B));
    put_text(in("tree/.git"), "gitdir: ../repo/.git/worktrees/w\n"); /* relative */
    CHECK(commit_is("tree", B));
    unlink(in("repo/.git/refs/heads/other"));
    put_text(in("repo/.git/packed-refs"), C64 " refs/heads/other\n");
    CHECK(commit_is("tree", C64));
    put_text(in("tree/.git"), "gitdir: /nonexistent\n");
    CHECK(commit_is("tree", ""));
    remove_folder(folder);
}

static void hostile_repositories(void)
{
    make_folder(folder);
    folders("repo/.git");
    const char *heads[] = {"",
                           "\n",
                           "ref:",
                           "ref: \n",
                           "ref: ../../etc/passwd\n",
                           "ref: /etc/passwd\n",
                           "ref: refs/../../x\n",
                           "ref: refs//x\n",
                           "aaaa\n",
                           A "a\n",
                           A "x",
                           "GGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGG\n"};
    put_text(in("repo/x"), A);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        put_text(in("repo/.git/HEAD"), heads[i]);
        CHECK(commit_is("repo", ""));
    }
    unlink(in("repo/.git/HEAD"));
    CHECK_EQ(mkfifo(in("repo/.git/HEAD"), 0600), 0); /* must not block */
    CHECK(commit_is("repo", ""));
    unlink(in("repo/.git/HEAD"));
    CHECK_EQ(mkdir(in("repo/.git/HEAD"), 0700), 0);
    CHECK(commit_is("repo", ""));
    CHECK_EQ(rmdir(in("repo/.git/HEAD")), 0);

    /* packed-refs with long lines, in pieces of the reader's buffer */
    char *big = malloc(200000);
    size_t size = 0;
    for (int i = 0; i < 60; i++) {
        size_t line = 100 + (size_t)(i * 131) % 9000;
        memset(big + size, 'z', line);
        size += line;
        big[size++] = '\n';
        if (size > 180000)
            break;
    }
    memcpy(big + size, B " refs/heads/main\n", 57);
    size += 57;
    put_file(in("repo/.git/packed-refs"), big, size);
    put_text(in("repo/.git/HEAD"), "ref: refs/heads/main\n");
    CHECK(commit_is("repo", B));
    free(big);
    for (size_t shift = 8100; shift < 8300; shift++) { /* the line lies across the end of the first piece */
        char lead[8400];
        memset(lead, 'y', shift);
        lead[shift] = '\n';
        memcpy(lead + shift + 1, A " refs/heads/main", 56);
        put_file(in("repo/.git/packed-refs"), lead, shift + 57);
        CHECK(commit_is("repo", "")); /* the last line has no newline: git's always has */
        lead[shift + 57] = '\n';
        put_file(in("repo/.git/packed-refs"), lead, shift + 58);
        CHECK(commit_is("repo", A));
    }
    remove_folder(folder);
}

/* The real thing. */
static void as_git_makes_them(void)
{
    char command[1200], expected[80] = "";
    make_folder(folder);
    snprintf(command, sizeof command,
             "exec >/dev/null 2>&1; cd %s && git init -q r && cd r && git config user.email a@b && git config "
             "user.name n && "
             "git commit -q --allow-empty -m 1 && git branch side && git commit -q --allow-empty -m 2 && "
             "git worktree add ../w side && git pack-refs --all && git gc -q",
             folder);
    CHECK_EQ(system(command), 0);
    for (int i = 0; i < 2; i++) {
        const char *tree = i ? "w" : "r";
        FILE *head = popen(text("git -C %s/%s rev-parse HEAD", folder, tree), "r");
        REQUIRE(head && fgets(expected, sizeof expected, head));
        pclose(head);
        expected[strcspn(expected, "\n")] = '\0';
        CHECK(commit_is(tree, expected));
    }
    remove_folder(folder);
}

int main(void)
{
    RUN(the_process_is_described);
    RUN(start_times_are_of_that_process);
    RUN(launchers_are_recognised);
    RUN(the_run_directory_has_a_number);
    RUN(commits_are_found);
    RUN(work_trees_and_submodules);
    RUN(hostile_repositories);
    if (system("git --version >/dev/null 2>&1") == 0)
        RUN(as_git_makes_them);
    else
        check_skip("as_git_makes_them", "no git");
    return check_done();
}
