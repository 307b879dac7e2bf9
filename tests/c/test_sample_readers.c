/* The readers of /proc, cgroups and sysfs against made-up trees: kernels, containers and troubles that this machine does not have. */
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "core/clock.h"
#include "made_tree.h"
#include "sample/cgroup.h"
#include "sample/gpu.h"
#include "sample/host.h"
#include "sample/own.h"
#include "sample/process.h"
#include "sample/reaped.h"
#include "store/describe.h"

#define STAT                                                                                                           \
    "42 (a) R 1 (b\n) %c 7 1 1 0 -1 4194304 1500 0 3 0 120 30 40 10 20 0 %d 0 777 1000000 2500 18446744073709551615\n"

static void put_process(char state, int threads)
{
    put("proc/1/stat", "1 (init) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0\n");
    put("proc/stat", "cpu  100 20 30 5000 40 5 6 7 0 0\ncpu0 1 2 3 4\n");
    put("proc/42/stat", text(STAT, state, threads));
    put("proc/42/statm", state == 'Z' ? "0 0 0 0 0 0 0\n" : "9000 2500 800 1 0 3000 0\n");
    put("proc/42/status", "Name:\ta\nNSpid:\t9042\t42\nVmHWM:\t   20000 kB\nVmSwap:\t     128 kB\nThreads:\t1\n"
                          "Cpus_allowed:\tff,0000000f\nvoluntary_ctxt_switches:\t11\nnonvoluntary_ctxt_switches:\t5\n");
    put("proc/42/io", "rchar: 1000\nwchar: 2000\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 8192\n"
                      "cancelled_write_bytes: 512\n");
    put("proc/42/schedstat", "1500000000 7000000 12\n");
    put("proc/42/smaps_rollup",
        "00400000-7fff r--p 0 00:00 0 [rollup]\nRss: 9000 kB\nPss:    4321 kB\nPss_Anon: 1 kB\n");
    put("proc/42/task/42/children", "");
}

static bool nobody(void *user, int64_t pid)
{
    (void)user, (void)pid;
    return false;
}

static bool only_51(void *user, int64_t pid)
{
    (void)user;
    return pid == 51;
}

static void a_process(void)
{
    lp_process p;
    lp_sample s;
    unsigned budget = 10;
    int64_t pss = 0;
    fresh_tree();
    put_process('S', 1);
    REQUIRE(lp_process_open(&p, root, 42, 777, false) == LP_REASON_NONE);
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
    CHECK_EQ(s.value[LP_COLUMN_CPU], 1500000);
    CHECK_EQ(s.value[LP_COLUMN_CPU_SYSTEM], 300000);
    CHECK_EQ(s.value[LP_COLUMN_FAULTS_MINOR], 1500);
    CHECK_EQ(s.value[LP_COLUMN_FAULTS_MAJOR], 3);
    CHECK_EQ(s.value[LP_COLUMN_RSS], 2500 * (sysconf(_SC_PAGESIZE) >> 10));
    CHECK_EQ(s.value[LP_COLUMN_RSS_PEAK], 20000);
    CHECK_EQ(s.value[LP_COLUMN_SWAP], 128);
    CHECK_EQ(s.value[LP_COLUMN_CPUS_ALLOWED], 12);
    CHECK_EQ(s.value[LP_COLUMN_SWITCHES_VOLUNTARY], 11);
    CHECK_EQ(s.value[LP_COLUMN_SWITCHES_FORCED], 5);
    CHECK_EQ(s.value[LP_COLUMN_RUN_DELAY], 7000);
    CHECK_EQ(s.value[LP_COLUMN_READ_CHARS], 1000);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_CHARS], 2000);
    CHECK_EQ(s.value[LP_COLUMN_READ_BYTES], 4096);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_BYTES], 8192);
    CHECK_EQ(s.value[LP_COLUMN_CANCELLED_BYTES], 512);
    CHECK_EQ(s.value[LP_COLUMN_THREADS], 1);
    CHECK_EQ(p.parent, 7);
    CHECK_EQ(p.outer_pid, 9042);
    CHECK_EQ(p.total_ticks, 200);
    CHECK_EQ(lp_process_pss(p.dir, &pss), LP_REASON_NONE);
    CHECK_EQ(pss, 4321);
    lp_process_close(&p);
}

static void pids_that_are_not_it(void)
{
    lp_process p;
    fresh_tree();
    put_process('S', 1);
    CHECK_EQ(lp_process_open(&p, root, 42, 778, false), LP_REASON_GONE); /* another one has the number */
    CHECK_EQ(lp_process_open(&p, root, 43, 1, false), LP_REASON_GONE);
    put("proc/42/stat", "garbage");
    CHECK_EQ(lp_process_open(&p, root, 42, 777, false), LP_REASON_UNREADABLE);
    /* hidepid=2: not even the first process is there */
    fresh_tree();
    put("proc/stat", "cpu  1\n");
    CHECK_EQ(lp_process_open(&p, root, 42, 777, false), LP_REASON_HIDDEN);
}

static void what_is_missing_has_a_reason(void)
{
    lp_process p;
    lp_sample s;
    unsigned budget = 10;
    fresh_tree();
    put_process('S', 1);
    remove(text("%s/proc/42/io", top));
    remove(text("%s/proc/42/schedstat", top));
    put("proc/42/statm", "");
    put("proc/42/status", "Name:\ta\n");
    REQUIRE(lp_process_open(&p, root, 42, 0, false) == LP_REASON_NONE);
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
    CHECK_EQ(s.value[LP_COLUMN_READ_BYTES], LP_UNKNOWN_I64);
    CHECK_EQ(s.reason[LP_COLUMN_READ_BYTES], LP_REASON_NO_FILE);
    CHECK_EQ(s.reason[LP_COLUMN_RUN_DELAY], LP_REASON_NO_FILE);
    CHECK_EQ(s.reason[LP_COLUMN_RSS], LP_REASON_UNREADABLE);
    CHECK_EQ(s.reason[LP_COLUMN_RSS_PEAK], LP_REASON_UNREADABLE);
    CHECK_EQ(s.reason[LP_COLUMN_SWITCHES_FORCED], LP_REASON_UNREADABLE);
    CHECK_EQ(s.reason[LP_COLUMN_CPUS_ALLOWED], LP_REASON_UNREADABLE);
    CHECK_EQ(s.value[LP_COLUMN_CPU], 1500000);
    lp_process_close(&p);
    CHECK_EQ(lp__reason_of(EACCES), LP_REASON_DENIED);
    CHECK_EQ(lp__reason_of(ESRCH), LP_REASON_GONE);
    CHECK_EQ(lp__reason_of(EOPNOTSUPP), LP_REASON_NO_FILE);
}

static void zombies_and_ended_leaders(void)
{
    lp_process p;
    lp_sample s;
    unsigned budget = 10;
    fresh_tree();
    put_process('Z', 1);
    put("proc/42/status", "Name:\ta\n");
    REQUIRE(lp_process_open(&p, root, 42, 777, false) == LP_REASON_NONE);
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
    CHECK_EQ(s.value[LP_COLUMN_CPU], 1500000); /* what it has used stays */
    CHECK_EQ(s.reason[LP_COLUMN_RSS], LP_REASON_GONE);
    CHECK_EQ(s.reason[LP_COLUMN_RSS_PEAK], LP_REASON_GONE);
    lp_process_close(&p);
    /* on its way out: a state as of one that runs, but its memory is gone, and that is no size of 0 */
    put_process('R', 1);
    put("proc/42/status", "Name:\ta\nvoluntary_ctxt_switches:\t11\nnonvoluntary_ctxt_switches:\t5\n");
    put("proc/42/statm", "0 0 0 0 0 0 0\n");
    REQUIRE(lp_process_open(&p, root, 42, 777, false) == LP_REASON_NONE);
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
    CHECK_EQ(s.value[LP_COLUMN_CPU], 1500000);
    for (unsigned i = 0; i < 3; i++) {
        static const lp_column gone[] = {LP_COLUMN_RSS, LP_COLUMN_RSS_PEAK, LP_COLUMN_SWAP};
        CHECK_EQ(s.value[gone[i]], LP_UNKNOWN_I64);
        CHECK_EQ(s.reason[gone[i]], LP_REASON_GONE);
    }
    lp_process_close(&p);
    /* its first thread has ended, another runs: memory through that one */
    put_process('Z', 2);
    put("proc/42/task/43/statm", "9000 1000 800 1 0 3000 0\n");
    put("proc/42/task/43/status", "VmHWM: 5000 kB\nVmSwap: 4 kB\nvoluntary_ctxt_switches:\t100\n"
                                  "nonvoluntary_ctxt_switches:\t50\n");
    put("proc/42/task/43/schedstat", "5 9000000 1\n");
    REQUIRE(lp_process_open(&p, root, 42, 777, false) == LP_REASON_NONE);
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
    CHECK(p.leader_ended);
    CHECK_EQ(s.value[LP_COLUMN_RSS], 1000 * (sysconf(_SC_PAGESIZE) >> 10));
    CHECK_EQ(s.value[LP_COLUMN_RSS_PEAK], 5000);
    CHECK_EQ(s.value[LP_COLUMN_SWITCHES_VOLUNTARY], 111);
    CHECK_EQ(s.value[LP_COLUMN_RUN_DELAY], 16000);
    lp_process_close(&p);
}

static const char *read_stat(pid_t pid)
{
    static char content[512];
    int fd = open(text("/proc/%d/stat", (int)pid), O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, content, sizeof content - 1) : 0;
    content[size > 0 ? size : 0] = '\0';
    close(fd);
    return content;
}

/* A real process that waits, then works: while it waits its row is the same but costs little, and afterwards nothing is missing. */
static void one_that_waits(void)
{
    int ready[2], go[2], done[2], slash = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lp_process p;
    lp_sample first, s;
    char byte;
    unsigned full = 0, repeated = 0;
    REQUIRE(pipe(ready) == 0 && pipe(go) == 0 && pipe(done) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)!write(ready[1], "x", 1);
        (void)!read(go[0], &byte, 1);
        char *memory = malloc(8 << 20);
        memset(memory, 1, 8 << 20); /* 8 MB of memory, 2,000 faults, some CPU time */
        (void)!write(done[1], memory, 1);
        (void)!read(go[0], &byte, 1);
        _exit(0);
    }
    REQUIRE(read(ready[0], &byte, 1) == 1);
    REQUIRE(lp_process_open(&p, slash, pid, 0, true) == LP_REASON_NONE);
    for (int i = 0; i < 10000 && !strstr(read_stat(pid), ") S "); i++) /* until it waits in its read */
        usleep(1000);
    for (int i = 0; i < 40; i++) {
        unsigned threads = 10, children = 10;
        lp_sample_init(&s);
        CHECK_EQ(lp_process_sample(&p, &s, &threads), LP_REASON_NONE);
        lp_process_children(&p, slash, nobody, NULL, &(lp_reaped){0}, &s, &children);
        CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING], 0);
        if (!p.idle || i == 0)
            first = s;
        for (unsigned c = 0; p.idle && c <= LP_COLUMN_CPUS_ALLOWED; c++)
            CHECK_EQ(s.value[c], first.value[c]);
        repeated += p.full.repeated > 0;
        full += p.full.repeated == 0;
        usleep(1000);
    }
    CHECK(repeated >= 20 && full >= 4); /* one of ten is read in full */
    REQUIRE(write(go[1], "x", 1) == 1 && read(done[0], &byte, 1) == 1);
    unsigned threads = 10;
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &threads), LP_REASON_NONE);
    CHECK(!p.idle);
    CHECK(s.value[LP_COLUMN_CPU] > first.value[LP_COLUMN_CPU]);
    CHECK(s.value[LP_COLUMN_RSS] >= first.value[LP_COLUMN_RSS] + (7 << 10)); /* the kernel counts in batches */
    CHECK(s.value[LP_COLUMN_FAULTS_MINOR] > first.value[LP_COLUMN_FAULTS_MINOR]);
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    lp_sample_init(&s);
    CHECK(lp_process_sample(&p, &s, &threads) != LP_REASON_NONE); /* nothing is repeated of the dead */
    lp_process_close(&p);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(go[i]);
        close(done[i]);
    }
    close(slash);
}

static void words_of_status(void)
{
    lp__status status;
    lp__status_parse(
        "Name:\tnonvoluntary_ctxt_switches: 9\nNSpid:\t7\t1\nVmHWM:\t  30 kB\nVmRSS:\t  20 kB\nVmSwap:\t 4 kB\n"
        "Cpus_allowed:\tf,00000003\nCpus_allowed_list:\t0-1\nvoluntary_ctxt_switches:\t5\n"
        "nonvoluntary_ctxt_switches:\t6",
        &status);
    CHECK_EQ(status.outer_pid, 7);
    CHECK_EQ(status.peak_kib, 30);
    CHECK_EQ(status.rss_kib, 20);
    CHECK_EQ(status.swap_kib, 4);
    CHECK_EQ(status.cpus_allowed, 6);
    CHECK_EQ(status.voluntary, 5);
    CHECK_EQ(status.forced, 6);
    lp__status_parse("VmRSS:\tmany kB\nCpus_allowed:\t0\nVmSwap:", &status);
    CHECK_EQ(status.rss_kib, LP_UNKNOWN_I64);
    CHECK_EQ(status.cpus_allowed, LP_UNKNOWN_I64);
    CHECK_EQ(status.swap_kib, LP_UNKNOWN_I64);
    lp__status_parse("", &status);
    CHECK_EQ(status.voluntary, LP_UNKNOWN_I64);
}

/* 41 threads, of which 8 may be read a time: all have been read after five times, and none is forgotten when it ends. */
static void threads_in_turn(void)
{
    lp_process p;
    lp_sample s;
    fresh_tree();
    put_process('S', 41);
    for (int tid = 100; tid < 140; tid++) {
        put(text("proc/42/task/%d/status", tid), "voluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t1\n");
        put(text("proc/42/task/%d/schedstat", tid), "5 2000000 1\n");
    }
    REQUIRE(lp_process_open(&p, root, 42, 777, false) == LP_REASON_NONE);
    for (int turn = 1; turn <= 6; turn++) {
        unsigned budget = 8;
        lp_sample_init(&s);
        CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
        CHECK_EQ(budget, 0u);
        CHECK_EQ(s.value[LP_COLUMN_THREADS_READ], 9);
        int seen = turn < 5 ? 8 * turn : 40;
        CHECK_EQ(s.value[LP_COLUMN_SWITCHES_VOLUNTARY], 11 + 10 * seen);
        CHECK_EQ(s.value[LP_COLUMN_RUN_DELAY], 7000 + 2000 * seen);
    }
    for (int tid = 110; tid < 140; tid++) {
        remove(text("%s/proc/42/task/%d/status", top, tid));
        remove(text("%s/proc/42/task/%d/schedstat", top, tid));
        rmdir(text("%s/proc/42/task/%d", top, tid));
    }
    put("proc/42/stat", text(STAT, 'S', 11));
    unsigned budget = 100;
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
    CHECK_EQ(s.value[LP_COLUMN_SWITCHES_VOLUNTARY], 411);
    CHECK_EQ(s.value[LP_COLUMN_THREADS_READ], 11);
    lp_process_close(&p);
}

static void put_child(int pid, int start, int ticks, const char *children)
{
    put(text("proc/%d/stat", pid),
        text("%d (c) S 42 1 1 0 -1 0 0 0 0 0 %d 0 0 0 20 0 1 0 %d 0 100 0\n", pid, ticks, start));
    put(text("proc/%d/task/%d/children", pid, pid), children);
}

static void children_that_are_not_recorded(void)
{
    lp_process p;
    lp_sample s;
    unsigned threads = 10, budget = 50;
    fresh_tree();
    put_process('S', 1);
    put("proc/42/task/42/children", "50 51 52 ");
    put_child(50, 900, 20, "60 ");
    put_child(51, 901, 1000, "70 "); /* recorded, and what is below it with it */
    put_child(52, 902, 5, "");
    put_child(60, 903, 7, "");
    put_child(70, 904, 500, "");
    REQUIRE(lp_process_open(&p, root, 42, 777, false) == LP_REASON_NONE);
    lp_sample_init(&s);
    lp_process_sample(&p, &s, &threads);
    lp_process_children(&p, root, only_51, NULL, &(lp_reaped){.off_ticks = 10}, &s, &budget);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING], 3);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING_CPU], 32 * 10000);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING_RSS], 300 * (sysconf(_SC_PAGESIZE) >> 10));
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_ENDED_CPU], 40 * 10000); /* 40 + 10 ticks, of which 10 are of recorded ones */
    /* one ends, and its number goes to somebody else; one is listed and has ended before it is read */
    put_child(52, 999, 5000, "");
    put("proc/42/task/42/children", "50 51 53 ");
    budget = 50;
    lp_process_children(&p, root, only_51, NULL, &(lp_reaped){.off_ticks = 10}, &s, &budget);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING], 2);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING_CPU], 27 * 10000);
    /* one was recorded until it had used 15 of its 20 ticks, another one had that number before it */
    lp_reaped_child closed[] = {{.pid = 50, .start = 800, .ticks = 3}, {.pid = 50, .start = 900, .ticks = 15}};
    lp_reaped reaped = {.at = closed, .count = 2, .off_ticks = 10};
    budget = 50;
    lp_process_children(&p, root, only_51, NULL, &reaped, &s, &budget);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING], 2);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING_CPU], 12 * 10000);
    /* no budget: what is known stays, nothing is found */
    put("proc/42/task/42/children", "50 51 52 ");
    budget = 0;
    lp_process_children(&p, root, nobody, NULL, &(lp_reaped){.off_ticks = 100}, &s, &budget);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING], 2);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_ENDED_CPU], 0); /* their parent has not waited for them yet */
    lp_process_close(&p);
    /* a kernel without CONFIG_PROC_CHILDREN */
    remove(text("%s/proc/42/task/42/children", top));
    REQUIRE(lp_process_open(&p, root, 42, 777, false) == LP_REASON_NONE);
    lp_process_children(&p, root, nobody, NULL, &(lp_reaped){0}, &s, &budget);
    CHECK_EQ(s.value[LP_COLUMN_CHILDREN_LIVING], LP_UNKNOWN_I64);
    CHECK_EQ(s.reason[LP_COLUMN_CHILDREN_LIVING], LP_REASON_NO_FILE);
    lp_process_close(&p);
}

static void a_host(void)
{
    lp_host host;
    lp_sample s;
    fresh_tree();
    put("proc/stat", "cpu  100 20 30 5000 40 5 6 7 0 0\ncpu0 1 2 3 4\n");
    put("sys/devices/system/cpu/online", "0-3,8,10-11\n");
    put("proc/loadavg", "12.34 1.00 0.50 3/456 789\n");
    put("proc/meminfo", "MemTotal:       24684084 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\nSwapTotal: 1000 "
                        "kB\nSwapFree: 400 kB\n");
    put("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=111\nfull avg10=0.00 total=5\n");
    put("proc/pressure/memory",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=222\nfull avg10=0.00 avg60=0 total=333\n");
    lp_host_open(&host, root);
    lp_sample_init(&s);
    lp_host_sample(&host, &s);
    CHECK_EQ(s.value[LP_COLUMN_HOST_BUSY], 161 * 10000);
    CHECK_EQ(s.value[LP_COLUMN_HOST_IOWAIT], 40 * 10000);
    CHECK_EQ(s.value[LP_COLUMN_HOST_STOLEN], 7 * 10000);
    CHECK_EQ(s.value[LP_COLUMN_HOST_CPUS], 7);
    CHECK_EQ(s.value[LP_COLUMN_HOST_LOAD], 12340);
    CHECK_EQ(s.value[LP_COLUMN_HOST_MEMORY], 24684084);
    CHECK_EQ(s.value[LP_COLUMN_HOST_AVAILABLE], 20000000);
    CHECK_EQ(s.value[LP_COLUMN_HOST_SWAP_USED], 600);
    CHECK_EQ(s.value[LP_COLUMN_PSI_CPU], 111);
    CHECK_EQ(s.value[LP_COLUMN_PSI_MEMORY], 222);
    CHECK_EQ(s.value[LP_COLUMN_PSI_MEMORY_FULL], 333);
    CHECK_EQ(s.reason[LP_COLUMN_PSI_IO], LP_REASON_NO_FILE);
    lp_host_close(&host);
}

static int64_t inode(const char *path)
{
    struct stat st;
    return stat(text("%s/%s", top, path), &st) == 0 ? (int64_t)st.st_ino : -1;
}

static lp_sample sample_cgroup(void)
{
    lp_cgroup cgroup;
    lp_sample s;
    lp_sample_init(&s);
    lp_cgroup_open(&cgroup, root);
    lp_cgroup_sample(&cgroup, &s);
    lp_cgroup_close(&cgroup);
    return s;
}

static void version_2(void)
{
    fresh_tree();
    put("proc/self/cgroup", "0::/outer/in ner\n");
    put("proc/self/mountinfo", "24 1 0:22 / /proc rw shared:1 - proc proc rw\n"
                               "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    put("sys/fs/cgroup/cpu.stat", "usage_usec 9\n");
    put("sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
    put("sys/fs/cgroup/outer/cpu.stat", "usage_usec 5000\nnr_periods 70\nnr_throttled 8\nthrottled_usec 9000\n");
    put("sys/fs/cgroup/outer/memory.max", "max\n");
    put("sys/fs/cgroup/outer/memory.current", "1\n");
    put("sys/fs/cgroup/outer/in ner/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/outer/in ner/cpu.stat", "usage_usec 1\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n");
    put("sys/fs/cgroup/outer/in ner/memory.max", "1073741824\n");
    put("sys/fs/cgroup/outer/in ner/memory.current", "536870912\n");
    put("sys/fs/cgroup/outer/in ner/memory.stat", "anon 5\ninactive_file 4096\n");
    put("sys/fs/cgroup/outer/in ner/memory.events", "low 0\noom 3\noom_kill 2\n");
    lp_sample s = sample_cgroup();
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_QUOTA], 1500); /* the outer one's, and use of the outer one */
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_PERIODS], 70);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_THROTTLES], 8);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_THROTTLED], 9000);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_CPU], 5000);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_LIMIT], 1 << 20);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_MEMORY], 1 << 19);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_CACHE], 4);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_KILLS], 2);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_CPU_GROUP], inode("sys/fs/cgroup/outer"));
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_MEMORY_GROUP], inode("sys/fs/cgroup/outer/in ner"));
    /* without limits, at the top */
    put("proc/self/cgroup", "0::/\n");
    s = sample_cgroup();
    CHECK_EQ(s.reason[LP_COLUMN_CGROUP_LIMIT], LP_REASON_NO_FILE);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_CPU], 9);
    CHECK_EQ(s.reason[LP_COLUMN_CGROUP_THROTTLED], LP_REASON_NO_FILE);
}

static void version_1_in_a_container(void)
{
    fresh_tree();
    put("proc/self/cgroup", "12:memory:/docker/abc\n5:cpuacct,cpu:/docker/abc\n0::/docker/abc\n");
    put("proc/self/mountinfo", "31 1 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
                               "32 1 0:28 /docker/abc /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 7\nnr_throttled 3\nthrottled_time 5000000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "123456000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
    put("sys/fs/cgroup/memory/memory.stat", "cache 1\ntotal_inactive_file 8192\n");
    put("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
    lp_sample s = sample_cgroup();
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_QUOTA], 2000);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_THROTTLED], 5000);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_CPU], 123456);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_LIMIT], 2 << 20);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_MEMORY], 1024);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_CACHE], 8);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_KILLS], 4);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_CPU_GROUP], inode("sys/fs/cgroup/cpu,cpuacct"));
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_MEMORY_GROUP], inode("sys/fs/cgroup/memory"));
    /* no limit is written as -1 and as the largest number of pages */
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    s = sample_cgroup();
    CHECK_EQ(s.reason[LP_COLUMN_CGROUP_QUOTA], LP_REASON_NO_LIMIT);
    CHECK_EQ(s.reason[LP_COLUMN_CGROUP_LIMIT], LP_REASON_NO_LIMIT);
    CHECK_EQ(s.value[LP_COLUMN_CGROUP_MEMORY], 1024);
    /* no /proc/self/cgroup at all */
    remove(text("%s/proc/self/cgroup", top));
    s = sample_cgroup();
    CHECK_EQ(s.reason[LP_COLUMN_CGROUP_QUOTA], LP_REASON_NO_FILE);
    CHECK_EQ(s.reason[LP_COLUMN_CGROUP_MEMORY], LP_REASON_NO_FILE);
    CHECK_EQ(s.reason[LP_COLUMN_CGROUP_CPU_GROUP], LP_REASON_NO_FILE);
}

static void amd(void)
{
    static lp_gpus gpus;
    fresh_tree();
    put("sys/class/drm/card0/device/vendor", "0x8086\n");
    put("sys/class/drm/card1/device/vendor", "0x1002\n");
    put("sys/class/drm/card1/device/mem_info_vram_total", "17163091968\n");
    put("sys/class/drm/card1/device/mem_info_vram_used", "1048576\n");
    put("sys/class/drm/card1/device/gpu_busy_percent", "37\n");
    put("sys/class/drm/card1/device/product_name", "Instinct MI210\n");
    put("sys/class/drm/card1/device/hwmon/hwmon3/temp1_input", "51000\n");
    put("sys/class/drm/card1/device/hwmon/hwmon3/power1_average", "90000000\n");
    lp__amd_sample(&gpus, root);
    REQUIRE(gpus.count == 1);
    const lp_gpu_device *d = &gpus.device[0];
    CHECK_STR(d->name, "Instinct MI210");
    CHECK_EQ(d->value[LP_COLUMN_GPU_BUSY], 370);
    CHECK_EQ(d->value[LP_COLUMN_GPU_MEMORY_USED], 1024);
    CHECK_EQ(d->value[LP_COLUMN_GPU_MEMORY_TOTAL], 17163091968 >> 10);
    CHECK_EQ(d->value[LP_COLUMN_GPU_TEMPERATURE], 51);
    CHECK_EQ(d->value[LP_COLUMN_GPU_POWER], 90000);
    CHECK_EQ(d->reason[LP_COLUMN_GPU_MEMORY_BUSY], LP_REASON_NO_FILE);
    CHECK_EQ(d->reason[LP_COLUMN_GPU_OURS_BUSY], LP_REASON_UNSUPPORTED);
}

/* ---- real processes */

static pid_t clone_as(pid_t pid) /* a child of that number; < 0: not permitted */
{
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};
    pid_t child = (pid_t)syscall(SYS_clone3, &args, sizeof args);

    while (child == 0)
        pause();
    return child;
}

static pid_t sleeper(void)
{
    pid_t child = fork();

    while (child == 0)
        pause();
    return child;
}

static void end_of(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Between two ticks a process ends and another one gets its number: that one's figures are not taken for it. */
static void a_number_that_is_given_away(void)
{
    int real = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid_t child = sleeper();
    lp_process p;
    lp_sample s;
    unsigned budget = 10;
    int64_t pss;

    REQUIRE(child > 0 && lp_process_open(&p, real, child, 0, true) == LP_REASON_NONE);
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
    end_of(child);
    pid_t other = clone_as(child);
    if (other < 0)
        printf("# clone3(set_tid): %s; the number stays free here\n", strerror(errno));
    else
        CHECK_EQ(other, child);
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_GONE);
    CHECK_EQ(s.value[LP_COLUMN_CPU], LP_UNKNOWN_I64);
    CHECK_EQ(lp_process_pss(p.dir, &pss), LP_REASON_GONE);
    if (other > 0)
        end_of(other);
    lp_process_close(&p);
    close(real);
}

static void *sleep_on(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

static void memory_of_an_ended_leader(void)
{
    int real = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lp_process p;
    lp_sample s;
    int64_t pss;
    pid_t child = fork();

    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, sleep_on, NULL);
        pthread_exit(NULL);
    }
    REQUIRE(child > 0 && lp_process_open(&p, real, child, 0, true) == LP_REASON_NONE);
    for (unsigned waited = 0; waited < 10000 && !p.leader_ended; waited++) {
        unsigned budget = 10;
        lp_sample_init(&s);
        CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
        usleep(1000);
    }
    CHECK(p.leader_ended);
    CHECK_EQ(lp_process_pss(p.dir, &pss), LP_REASON_LEADER_ENDED);
    end_of(child);
    lp_process_close(&p);
    close(real);
}

/* 200 children of a process that has written to 60 MB: each has all of it in its resident size, together they hold it once. */
static void shared_pages_count_once(void)
{
    enum { CHILDREN = 200, MB_SHARED = 60 };
    size_t size = (size_t)MB_SHARED << 20;
    int real = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ready[2];
    char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t child[CHILDREN];
    double rss = 0, pss = 0;
    char byte = 0;

#ifdef CHECK_THREAD_SANITIZER
    check_skip("pages that many children share", "the thread sanitizer has memory of its own in each child");
    return;
#endif
    REQUIRE(shared != MAP_FAILED && pipe(ready) == 0);
    memset(shared, 1, size);
    for (unsigned i = 0; i < CHILDREN; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            /* A fork copies the entries of anonymous pages, so that each child has them all without a touch. */
            ssize_t told = write(ready[1], &byte, 1);
            while (told == 1)
                pause();
            _exit(1);
        }
        REQUIRE(child[i] > 0);
    }
    for (unsigned i = 0; i < CHILDREN; i++)
        CHECK_EQ(read(ready[0], &byte, 1), 1);
    for (unsigned i = 0; i < CHILDREN; i++) {
        lp_process p;
        lp_sample s;
        int64_t kib = 0;
        unsigned budget = 0;
        REQUIRE(lp_process_open(&p, real, child[i], 0, true) == LP_REASON_NONE);
        lp_sample_init(&s);
        CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
        CHECK_EQ(lp_process_pss(p.dir, &kib), LP_REASON_NONE);
        rss += (double)s.value[LP_COLUMN_RSS] / 1024;
        pss += (double)kib / 1024;
        lp_process_close(&p);
    }
    for (unsigned i = 0; i < CHILDREN; i++)
        end_of(child[i]);
    CHECK(rss >= CHILDREN * MB_SHARED);
    /* A 201st share is the parent's. What a child has of its own (stack, tables of the libraries) is below half a MB. */
    CHECK_NEAR(pss, MB_SHARED, CHILDREN * 0.5);
    CHECK(pss > MB_SHARED * 0.98);
    munmap(shared, size);
    close(ready[0]);
    close(ready[1]);
    close(real);
}

/* The real files of this process say something, and the same as the kernel's other ways to ask. */
static void this_machine(void)
{
    int real = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lp_process p;
    lp_host host;
    lp_sample s;
    unsigned budget = 10;
    REQUIRE(lp_process_open(&p, real, getpid(), 0, true) == LP_REASON_NONE);
    lp_sample_init(&s);
    CHECK_EQ(lp_process_sample(&p, &s, &budget), LP_REASON_NONE);
    CHECK(s.value[LP_COLUMN_RSS] > 0);
    CHECK(s.value[LP_COLUMN_CPU] > 0);
    CHECK(s.value[LP_COLUMN_THREADS] >= 1);
    lp_process_close(&p);
    lp_host_open(&host, real);
    lp_host_sample(&host, &s);
    CHECK_EQ(s.value[LP_COLUMN_HOST_CPUS], sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(s.value[LP_COLUMN_HOST_MEMORY] > 0);
    lp_host_close(&host);
    close(real);
}

static uint64_t used(const lp_seg_use *use, lp_column column)
{
    return use->column[lp_column_table[column].number];
}

/* As seen from outside, and no less than a moment before; of whom the start time is not, nothing. */
static void what_a_process_reads_of_itself(void)
{
    int64_t start = lp_describe_pid_start(getpid()), before = lp_process_cpu_ns(getpid()) / 1000;
    uint64_t now = lp_clock_ns(CLOCK_MONOTONIC);
    struct rusage all;
    lp_seg_use use = {0}, other = {0};

    REQUIRE(start > 0);
    errno = 5;
    lp_own_use(start, &use);
    CHECK_EQ(errno, 5);
    getrusage(RUSAGE_SELF, &all);
    CHECK(use.mono_ns >= now && use.mono_ns <= lp_clock_ns(CLOCK_MONOTONIC));
    CHECK((int64_t)used(&use, LP_COLUMN_CPU) - 1 >= before);
    CHECK((int64_t)used(&use, LP_COLUMN_CPU) - 1 <= lp_process_cpu_ns(getpid()) / 1000);
    CHECK_EQ(used(&use, LP_COLUMN_THREADS), 1 + 1);
    CHECK_EQ(used(&use, LP_COLUMN_FAULTS_MAJOR), (uint64_t)all.ru_majflt + 1);
    CHECK(used(&use, LP_COLUMN_SWITCHES_VOLUNTARY) - 1 <= (uint64_t)all.ru_nvcsw);
    CHECK(used(&use, LP_COLUMN_RSS_PEAK) - 1 <=
          (uint64_t)all.ru_maxrss); /* KiB; that of whom it was before exec counts there */
    CHECK(used(&use, LP_COLUMN_RSS) > 1 && used(&use, LP_COLUMN_RSS) <= used(&use, LP_COLUMN_RSS_PEAK));
    CHECK(used(&use, LP_COLUMN_READ_CHARS) > 1);
    CHECK_EQ(used(&use, LP_COLUMN_PSS), 0); /* it would hold its memory up */
    CHECK(use.ticks >= use.ended_ticks && use.faults >= use.ended_faults);
    lp_own_use(start + 1, &other);
    lp_own_use(0, &other);
    CHECK_EQ(other.mono_ns, 0);
    CHECK_EQ(used(&other, LP_COLUMN_CPU), 0);
}

int main(void)
{
    RUN(a_process);
    RUN(pids_that_are_not_it);
    RUN(what_is_missing_has_a_reason);
    RUN(zombies_and_ended_leaders);
    RUN(one_that_waits);
    RUN(words_of_status);
    RUN(threads_in_turn);
    RUN(children_that_are_not_recorded);
    RUN(a_host);
    RUN(version_2);
    RUN(version_1_in_a_container);
    RUN(amd);
    RUN(a_number_that_is_given_away);
    RUN(memory_of_an_ended_leader);
    RUN(shared_pages_count_once);
    RUN(this_machine);
    RUN(what_a_process_reads_of_itself);
    close(root);
    remove_folder(top);
    return check_done();
}
