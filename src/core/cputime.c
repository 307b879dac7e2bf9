#include "core/cputime.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/wiped.h"

/* ---- rseq ------------------------------------------------------------------------------------------------------- */

/* struct rseq of linux/rseq.h, spelled out: older headers lack it. */
struct rseq_area {
    uint32_t cpu_id_start, cpu_id;
    uint64_t rseq_cs;
    uint32_t flags;
};
struct rseq_section {
    uint32_t version, flags;
    uint64_t start_ip, post_commit_offset, abort_ip;
} __attribute__((aligned(32)));

extern const ptrdiff_t __rseq_offset __attribute__((weak)); /* glibc >= 2.35 */
extern const unsigned int __rseq_size __attribute__((weak));

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(LP_NO_RSEQ)
#define LP_HAS_RSEQ 1
/* A section of one instruction that no thread ever enters. The kernel checks the signature in front of the abort
 * address whenever it looks at the section, and kills the process if it is wrong. */
#if defined(__x86_64__)
__asm__(
    ".pushsection .text\n.balign 32\nlp__rseq_start: nop\nlp__rseq_end: nop\n.long 0x53053053\nlp__rseq_abort: ud2\n"
    ".popsection\n.globl lp__rseq_start\n.hidden lp__rseq_start\n.globl lp__rseq_abort\n.hidden lp__rseq_abort\n");
#else
__asm__(
    ".pushsection .text\n.balign 32\nlp__rseq_start: nop\nlp__rseq_end: nop\n.inst 0xd428bc00\nlp__rseq_abort: brk #1\n"
    ".popsection\n.globl lp__rseq_start\n.hidden lp__rseq_start\n.globl lp__rseq_abort\n.hidden lp__rseq_abort\n");
#endif
extern char lp__rseq_start[] __attribute__((visibility("hidden")));
extern char lp__rseq_abort[] __attribute__((visibility("hidden")));
static struct rseq_section section;

static struct rseq_area *rseq_here(void)
{
    if (!&__rseq_offset || !&__rseq_size || __rseq_size == 0)
        return NULL;
    struct rseq_area *area = (struct rseq_area *)((char *)__builtin_thread_pointer() + __rseq_offset);
    /* cpu_id is negative while the kernel has not registered the thread. */
    return (int32_t)area->cpu_id < 0 ? NULL : area;
}
#else
#define LP_HAS_RSEQ 0
#endif

LP_FORK_TOUCHES _Atomic uint64_t lp__own_reads;
__thread uint64_t lp__own_reads_here;

/* ---- file descriptors that programs do not see -------------------------------------------------------------------- */

/* Where ours begin: above the lower three quarters of what the program may have, and of the first 1024. */
static int first_high(rlim_t limit)
{
    rlim_t top = limit == RLIM_INFINITY || limit > 1024 ? 1024 : limit;
    return (int)(top - top / 4);
}

int lp__fd_high(int fd)
{
    struct rlimit limit;

    if (fd < 0)
        return -1;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        int high = fcntl(fd, F_DUPFD_CLOEXEC, first_high(limit.rlim_cur));
        if (high >= 0) {
            close(fd);
            return high;
        }
    }
    return fd;
}

void lp__fd_close(int fd, uint64_t dev, uint64_t ino)
{
    struct stat st;

    if (fd >= 0 && lp__fstat(fd, &st) == 0 && (uint64_t)st.st_dev == dev && (uint64_t)st.st_ino == ino)
        close(fd);
}

/* ---- perf page ---------------------------------------------------------------------------------------------------- */

static void *perf_page(void)
{
    struct perf_event_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_DUMMY;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
    close(fd); /* the mapping keeps the event */
    if (page == MAP_FAILED)
        return NULL;
    madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_DONTFORK);
    return page;
}

/* ---- one thread --------------------------------------------------------------------------------------------------- */

uint64_t lp_cpu_now(void)
{
    return lp_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Every schedstat that this process keeps open, so that a forked child can close its copies: the threads' own records are wiped
 * there. A full table costs a leaked descriptor in a child, nothing else. */
#define KEPT 512u
#define KEPT_FIRST 8u
typedef struct kept {
    _Atomic int fd; /* fd + 1, 0 = empty */
    uint64_t dev, ino;
} kept;
LP_FORK_TOUCHES static kept first_kept[KEPT_FIRST];
static kept more_kept[KEPT - KEPT_FIRST];
static _Atomic uint32_t kept_end; /* none is beyond: a child does not look through pages that were never used */

static kept *kept_at(uint32_t i)
{
    return i < KEPT_FIRST ? &first_kept[i] : &more_kept[i - KEPT_FIRST];
}

/* How many of them the program has been seen to have closed. Its closerange() takes them all, and the next one that is opened may get
 * the number of another thread's, which would then read a delay that is not its own. */
static _Atomic uint32_t lost;

static void keep(int fd, uint64_t dev, uint64_t ino)
{
    for (uint32_t i = 0; i < kept_end; i++) {
        kept *at = kept_at(i);
        if (at->fd == fd + 1) { /* what had this number is gone */
            at->dev = dev;
            at->ino = ino;
            lost++;
            return;
        }
    }
    for (uint32_t i = 0; i < KEPT; i++) {
        kept *at = kept_at(i);
        int empty = 0;
        if (at->fd == 0 && atomic_compare_exchange_strong(&at->fd, &empty, fd + 1)) {
            at->dev = dev;
            at->ino = ino;
            for (uint32_t end = kept_end; end <= i && !atomic_compare_exchange_weak(&kept_end, &end, i + 1);)
                ;
            return;
        }
    }
}

static void unkeep(int fd, uint64_t ino)
{
    for (uint32_t i = 0; i < kept_end; i++)
        if (kept_at(i)->fd == fd + 1 && kept_at(i)->ino == ino)
            kept_at(i)->fd = 0;
}

void lp_cpu_in_child(void)
{
    int saved = errno;

    lp__own_reads = lp__own_reads_here = 0; /* the kernel counts a child from zero */

    for (uint32_t i = 0; i < kept_end; i++) {
        kept *at = kept_at(i);
        if (at->fd) {
            lp__fd_close(at->fd - 1, at->dev, at->ino);
            at->fd = 0;
        }
    }
    errno = saved;
}

/* A descriptor for each thread: all of them together leave the program three quarters of what it may have open. */
static bool is_one_too_many(int fd)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return false;
    int first = first_high(limit.rlim_cur);
    return fd < first || (rlim_t)(fd - first) > limit.rlim_cur / 4;
}

static bool open_schedstat(lp_detector *detector)
{
    struct stat st;
    /* Of a first thread the two say the same, and the kernel makes fewer entries of /proc in a new process for the shorter one. */
    bool first = getpid() == (pid_t)syscall(SYS_gettid);
    int fd = lp__fd_high(open(first ? "/proc/self/schedstat" : "/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));

    if (fd < 0)
        return false;
    if (is_one_too_many(fd) || lp__fstat(fd, &st) != 0) {
        close(fd);
        return false;
    }
    detector->schedstat = fd;
    detector->dev = (uint64_t)st.st_dev;
    detector->ino = (uint64_t)st.st_ino;
    keep(fd, detector->dev, detector->ino);
    detector->sure = lost;
    return true;
}

/* Has none been lost since the last look, or at least not this one? */
static bool is_ours(lp_detector *detector)
{
    struct stat st;
    uint32_t now = lost;

    if (detector->sure == now)
        return true;
    if (lp__fstat(detector->schedstat, &st) != 0 || (uint64_t)st.st_dev != detector->dev ||
        (uint64_t)st.st_ino != detector->ino)
        return false;
    detector->sure = now;
    return true;
}

static bool parse_delay(const char *text, ssize_t size, uint64_t *delay)
{
    uint64_t value = 0;
    ssize_t i = 0;

    while (i < size && text[i] >= '0' && text[i] <= '9')
        i++;
    if (i == 0 || i >= size || text[i++] != ' ')
        return false;
    if (i >= size || text[i] < '0' || text[i] > '9')
        return false;
    for (; i < size && text[i] >= '0' && text[i] <= '9'; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    if (i >= size || text[i] != ' ')
        return false;
    *delay = value;
    return true;
}

bool lp_cpu_delay(lp_detector *detector, uint64_t *delay)
{
    char text[96];

    if (!detector->split)
        return false;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (detector->schedstat >= 0) {
            if (is_ours(detector)) {
                ssize_t size = pread(detector->schedstat, text, sizeof text, 0);
                lp__own_read(size);
                if (parse_delay(text, size, delay))
                    return true;
                lost++;
            }
            /* Not ours any more (closed by the program, number reused): forget it, never close it. */
            unkeep(detector->schedstat, detector->ino);
            detector->schedstat = -1;
        }
        if (!open_schedstat(detector))
            break;
    }
    detector->split = false;
    return false;
}

void lp_detector_start(lp_detector *detector, lp_cpu_kind kind)
{
    int saved = errno;

    memset(detector, 0, sizeof *detector);
    detector->schedstat = -1;
    detector->word = &detector->never;
    detector->expected = 1;
#if LP_HAS_RSEQ
    if (kind == LP_CPU_RSEQ) {
        struct rseq_area *area = rseq_here();
        /* Another pointer there belongs to another library's critical section (tcmalloc): leave it alone. */
        if (area && (area->rseq_cs == 0 || area->rseq_cs == (uintptr_t)&section)) {
            detector->word = detector->shared = &area->rseq_cs;
            detector->expected = (uintptr_t)&section;
        }
    }
#endif
    if (kind == LP_CPU_PERF) {
        struct perf_event_mmap_page *page = perf_page();
        if (page) {
            detector->page = page;
            /* `lock` is 32 bits wide and `index` after it is constant 0 for a software event. */
            detector->word = (volatile uint64_t *)(void *)&page->lock;
        }
    }
    if (kind != LP_CPU_NONE) {
        uint64_t delay = 0;
        detector->split = true;
        if (lp_cpu_delay(detector, &delay))
            detector->base_delay = delay;
        lp_detector_arm(detector);
        detector->base_cpu = lp_cpu_now();
        detector->base_ticks = lp_ticks();
    }
    errno = saved;
}

void lp_detector_stop(lp_detector *detector, bool thread)
{
    int saved = errno;

#if LP_HAS_RSEQ
    if (thread && detector->shared && *detector->shared == (uintptr_t)&section)
        *detector->shared = 0;
#else
    (void)thread;
#endif
    if (detector->page)
        munmap(detector->page, (size_t)sysconf(_SC_PAGESIZE));
    detector->page = NULL;
    detector->shared = NULL;
    if (detector->schedstat >= 0 && detector->dev) {
        unkeep(detector->schedstat, detector->ino);
        lp__fd_close(detector->schedstat, detector->dev, detector->ino);
    }
    detector->schedstat = -1;
    detector->word = &detector->never;
    detector->expected = 1;
    errno = saved;
}

bool lp_detector_arm(lp_detector *detector)
{
    if (detector->page) {
        detector->expected = *detector->word;
        return false;
    }
#if LP_HAS_RSEQ
    if (detector->shared) {
        detector->word = detector->shared;
        if (*detector->shared == 0) {
            *detector->shared = (uintptr_t)&section;
            return true;
        }
        /* Anything else than ours is another library's: the compare goes on saying "unknown". */
    }
#endif
    return false;
}

void lp_detector_upset(lp_detector *detector)
{
    if (detector->page)
        detector->expected = *detector->word - 1;
#if LP_HAS_RSEQ
    else if (detector->shared && *detector->shared == (uintptr_t)&section)
        *detector->shared = 0;
#endif
}

void lp_detector_told(lp_detector *detector)
{
    if (detector->shared)
        detector->word = &detector->never;
}

/* ---- the choice --------------------------------------------------------------------------------------------------- */

/* A detector is good when it stays quiet over 20 us of work on most of 20 tries (a neighbour may take the CPU on a few),
 * and speaks after each of five sleeps: kernels that do not clear rseq_cs on a voluntary sleep that resumes on the
 * same CPU fail here. */
static bool passes(lp_cpu_kind kind)
{
    lp_detector detector;
    int quiet = 0, heard = 0;

    lp_detector_start(&detector, kind);
    if (detector.word != &detector.never) {
        for (int i = 0; i < 20 && quiet < 10; i++) {
            lp_detector_arm(&detector);
            uint64_t end = lp_clock_ns(CLOCK_MONOTONIC) + 20000;
            while (lp_clock_ns(CLOCK_MONOTONIC) < end)
                ;
            quiet += *detector.word == detector.expected;
        }
        for (int i = 0; i < 5; i++) {
            struct timespec nap = {0, 1000};
            lp_detector_arm(&detector);
            nanosleep(&nap, NULL);
            heard += *detector.word != detector.expected;
        }
    }
    lp_detector_stop(&detector, true);
    return quiet >= 10 && heard == 5;
}

static bool prepare_rseq(void)
{
#if LP_HAS_RSEQ
    section.start_ip = (uintptr_t)lp__rseq_start;
    section.post_commit_offset = 1;
    section.abort_ip = (uintptr_t)lp__rseq_abort;
    return rseq_here() != NULL;
#else
    return false;
#endif
}

lp_cpu_kind lp_cpu_choose(int forced)
{
    static int known = -1;
    int saved = errno;

    if (forced >= 0) {
        if (forced == LP_CPU_RSEQ && !prepare_rseq())
            forced = LP_CPU_SYSCALL;
        errno = saved;
        return (lp_cpu_kind)forced;
    }
    if (known < 0)
        known = prepare_rseq() && passes(LP_CPU_RSEQ) ? LP_CPU_RSEQ
                : passes(LP_CPU_PERF)                 ? LP_CPU_PERF
                                                      : LP_CPU_SYSCALL;
    errno = saved;
    return (lp_cpu_kind)known;
}
