/* Who and where this process is. Runs inside the user's program, so it starts nothing, asks nobody and keeps errno.
 * The files that it reads are the kernel's. What launchers say of it: launcher.c. */
#include "store/describe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "core/filename.h"
#include "store/files.h"
#include "store/folder_id.h"
#include "store/internal.h"

/* A file of /proc that the kernel gives whole to the first read. */
static bool read_once(const char *path, char *text, size_t limit)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = -1;

    if (fd < 0)
        return false;
    do
        size = read(fd, text, limit);
    while (size < 0 && errno == EINTR);
    close(fd);
    text[size > 0 ? size : 0] = '\0';
    return size > 0;
}

/* A number of /proc/<pid>/stat, counted as proc(5) does, and the state letter; LP_UNKNOWN_I64 if there is no such process, or if it
 * is not to be read. */
static int64_t read_stat(int64_t pid, int wanted, char *state)
{
    char path[40], text[1024];
    int saved = errno;
    int64_t value = LP_UNKNOWN_I64;

    lp_filename name = lp_filename_start(path, sizeof path);
    lp_filename_put(&name, "/proc/");
    lp_filename_number(&name, (uint64_t)pid, 10);
    lp_filename_put(&name, "/stat");
    if (pid > 0 && read_once(path, text, sizeof text - 1)) {
        /* field 2 is the command in parentheses and may hold any of them */
        const char *at = strrchr(text, ')');
        *state = at && at[1] ? at[2] : '\0';
        for (int field = 2; at && field < wanted; field++) {
            at = strchr(at, ' ');
            at = at ? at + 1 : NULL;
        }
        if (at && !lp_digits_read(&at, &value))
            value = LP_UNKNOWN_I64;
    }
    errno = saved;
    return value;
}

int64_t lp__describe_parent(int64_t pid)
{
    char state;
    return read_stat(pid, 4, &state);
}

int64_t lp_describe_pid_start(int64_t pid)
{
    char state;
    return read_stat(pid, 22, &state);
}

bool lp_describe_pid_is_gone(int64_t pid)
{
    int saved = errno;
    /* Asked by what cannot be taken for a signal; a zombie has its group still, as kill(pid, 0) finds it. */
    bool gone = pid <= 0 || pid > INT32_MAX || (getpgid((pid_t)pid) < 0 && errno == ESRCH);

    errno = saved;
    return gone;
}

bool lp_describe_pid_runs(int64_t pid, int64_t start)
{
    char state;
    int64_t found = read_stat(pid, 22, &state);

    if (found == LP_UNKNOWN_I64)
        return !lp_describe_pid_is_gone(pid);
    return (found == start || start == LP_UNKNOWN_I64) && state != 'Z' && state != 'X';
}

static uint64_t namespace_inode(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static bool new_uuid(lp_arena *arena, lp_identity *id)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[16];
    char text[32];
    size_t got = 0;

    while (got < sizeof bytes) {
        ssize_t n = syscall(SYS_getrandom, bytes + got, sizeof bytes - got, 0u); /* glibc has it from 2.25 on */
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    if (got < sizeof bytes) { /* forbidden by a seccomp filter: unique all the same, only guessable */
        static uint64_t serial;
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        uint64_t a = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        uint64_t b = (uint64_t)getpid() << 32 ^ __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
        memcpy(bytes, &a, 8);
        memcpy(bytes + 8, &b, 8);
    }
    for (unsigned i = 0; i < sizeof bytes; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    id->uuid = lp_arena_str(arena, text, sizeof text);
    return id->uuid.data != NULL;
}

/* Distinct (package, core) pairs: a core is counted at its first sibling only. */
static int64_t count_cores(int64_t threads)
{
    char path[96], text[64];
    int64_t cores = 0;

    for (int64_t cpu = 0, seen = 0; seen < threads && cpu < 8192; cpu++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%" PRId64 "/topology/thread_siblings_list", cpu);
        if (lp__read_text(AT_FDCWD, path, text, sizeof text - 1) <= 0) {
            if (cpu >= 4 * threads + 64)
                break; /* no topology here, or offline CPUs to the end */
            continue;
        }
        seen++;
        if (strtoll(text, NULL, 10) == cpu) /* "0-1" or "0,64" */
            cores++;
    }
    return cores ? cores : LP_UNKNOWN_I64;
}

/* Bits of the first `bytes` of a mask; the kernel says how many it has stored. */
static int64_t count_bits(const unsigned long *mask, long bytes)
{
    int64_t count = 0;

    for (size_t i = 0; i < (size_t)bytes / sizeof *mask; i++)
        for (unsigned long left = mask[i]; left; left &= left - 1)
            count++;
    return count > 0 ? count : LP_UNKNOWN_I64;
}

/* sched_getaffinity with a mask that the kernel may find too small. On the stack first: a child copies no page of the heap. */
static int64_t count_affinity(void)
{
    unsigned long few[1024 / (8 * sizeof(unsigned long))], *mask = few;
    int64_t count = LP_UNKNOWN_I64;

    for (size_t size = sizeof few; size <= 65536 / 8; size *= 4) {
        if (size > sizeof few && !(mask = malloc(size)))
            break;
        long bytes = syscall(SYS_sched_getaffinity, 0, size, mask);
        int reason = errno;
        if (bytes > 0)
            count = count_bits(mask, bytes);
        if (mask != few)
            free(mask);
        if (bytes > 0 || reason != EINVAL)
            break;
    }
    return count;
}

static void describe_hardware(lp_hardware *hardware)
{
    struct sysinfo info;
    long threads = sysconf(_SC_NPROCESSORS_ONLN);

    *hardware = (lp_hardware){.cpu_cores = LP_UNKNOWN_I64,
                              .cpu_threads = threads > 0 ? threads : LP_UNKNOWN_I64,
                              .cpu_affinity = count_affinity(),
                              .ram_total = LP_UNKNOWN_I64};
    if (threads > 0)
        hardware->cpu_cores = count_cores(threads);
    if (sysinfo(&info) == 0)
        hardware->ram_total = (int64_t)((uint64_t)info.totalram * info.mem_unit);
}

static void describe_platform(lp_arena *arena, lp_identity *id)
{
    struct utsname u;
    char text[sizeof u.sysname + sizeof u.release + sizeof u.machine + 3];

    id->platform = lp__empty;
    if (uname(&u) == 0) {
        snprintf(text, sizeof text, "%s-%s-%s", u.sysname, u.release, u.machine);
        id->platform = lp__text(arena, text);
    }
}

void lp__keep_text(lp_arena *arena, lp_str *out, const char *text)
{
    size_t size = text ? strlen(text) : 0;

    if (!out->data || out->size != size || (size && memcmp(out->data, text, size) != 0))
        *out = lp__text(arena, text);
}

/* What is of this process alone; `forked`: `id` is its parent's. */
static bool describe_self(lp_arena *arena, lp_identity *id, bool forked)
{
    char text[256];
    struct timespec t;

    text[sizeof text - 1] = '\0'; /* a name that fills it is not terminated */
    if (gethostname(text, sizeof text - 1) != 0)
        text[0] = '\0';
    lp__keep_text(arena, &id->host, text);
    id->pid = getpid();
    id->pid_start = lp_describe_pid_start(id->pid);
    if (id->pid_start == LP_UNKNOWN_I64)
        id->pid_start = 0;
    clock_gettime(CLOCK_REALTIME, &t);
    id->started_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    lp__describe_launcher(arena, id, forked);
    return new_uuid(arena, id);
}

static uint64_t mount_of_root(void)
{
#if defined STATX_MNT_ID && defined SYS_statx /* glibc has the function from 2.28 on */
    struct statx st;
    if (syscall(SYS_statx, AT_FDCWD, "/", AT_NO_AUTOMOUNT, STATX_MNT_ID, &st) == 0 && (st.stx_mask & STATX_MNT_ID))
        return st.stx_mnt_id;
#endif
    return 0;
}

static void look_at_namespaces(lp_identity *id)
{
    id->pid_ns = namespace_inode("/proc/self/ns/pid");
    id->mnt_ns = namespace_inode("/proc/self/ns/mnt");
}

void lp_describe_namespaces(lp_namespaces *ns)
{
    int saved = errno;

    ns->time_ns = namespace_inode("/proc/self/ns/time");
    ns->mount_id = mount_of_root();
    errno = saved;
}

lp_status lp_describe_process(lp_arena *arena, lp_identity *id)
{
    char text[65];
    int saved = errno;

    lp__read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof text - 1);
    text[strcspn(text, "\n")] = '\0';
    id->boot_id = lp__text(arena, text);
    describe_platform(arena, id);
    describe_hardware(&id->hardware);
    look_at_namespaces(id);
    bool ok = describe_self(arena, id, false);
    errno = saved;
    return ok ? LP_OK : LP_E_MEMORY;
}

lp_status lp_describe_child(lp_arena *arena, lp_identity *id, lp_namespaces *ns, bool same_clock)
{
    int saved = errno;
    uint64_t root = mount_of_root();

    /* The first process of a pid namespace has no parent there (0), and 1 may be such a first one's number in any of them. */
    if (getppid() != id->pid || id->pid == 1 || root == 0 || root != ns->mount_id || !same_clock) {
        look_at_namespaces(id);
        lp_describe_namespaces(ns);
    }
    id->hardware.cpu_affinity = count_affinity();
    bool ok = describe_self(arena, id, true);
    errno = saved;
    return ok ? LP_OK : LP_E_MEMORY;
}

lp_status lp_describe_run_dir(const char *run_dir, lp_identity *id)
{
    lp_folder_id folder;
    int saved = errno;

    lp_folder_look(AT_FDCWD, run_dir, &folder);
    id->run_dir_dev = folder.dev;
    id->run_dir_ino = folder.ino;
    id->run_dir_born_ns = folder.born_ns;
    errno = saved;
    return LP_OK;
}
