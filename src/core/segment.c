#include "core/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/filename.h"
#include "core/wiped.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_DONTFORK
#define MADV_DONTFORK 10
#endif

/* Addresses are cheap, but RLIMIT_AS counts them: try less before giving up. 256 MB hold 64 threads of 1,000 paths. */
static const uint64_t capacities[] = {256u << 20, 64u << 20, 16u << 20, 4u << 20};

static uint64_t file_limit(void)
{
    struct rlimit limit;

    /* Beyond RLIMIT_FSIZE ftruncate raises SIGXFSZ: never come near it. */
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

/* Takes file space by posix_fallocate where the kernel has no MADV_POPULATE_WRITE. A second descriptor of the file does not
 * touch the lock, which belongs to the mapping's own open file. */
static bool allocate(lp_segment *segment, uint64_t from, uint64_t size)
{
    struct stat st;
    bool ok = false;
    int fd = open(segment->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return false;
    if (lp__fstat(fd, &st) == 0 && (uint64_t)st.st_dev == segment->dev && (uint64_t)st.st_ino == segment->ino)
        ok = posix_fallocate(fd, (off_t)from, (off_t)size) == 0;
    close(fd);
    return ok;
}

/* Asked for once: a child calls nothing of the C library that it can do without. */
static uint64_t page_size(void)
{
    static _Atomic uint64_t known;

    if (!known)
        known = (uint64_t)sysconf(_SC_PAGESIZE);
    return known;
}

static bool populate(lp_segment *segment, uint64_t until)
{
    uint64_t from = segment->populated, page = page_size();

    until = (until + page - 1) & ~(page - 1);
    if (until <= from)
        return true;
    if (segment->place == LP_PLACE_SHARED) {
        int saved = errno;
        int rc;
        do
            rc = madvise(segment->base + from, until - from, MADV_POPULATE_WRITE);
        while (rc != 0 && errno == EINTR);
        if (rc != 0 && (errno != EINVAL || !allocate(segment, from, until - from))) {
            errno = saved;
            return false;
        }
        errno = saved;
    }
    segment->populated = until;
    return true;
}

static void begin(lp_segment *segment)
{
    lp_seg_header *header = lp_segment_header(segment);

    header->order = LP_SEG_ORDER;
    header->layout = LP_SEG_LAYOUT;
    header->header_size = LP_SEG_HEADER;
    header->capacity = segment->capacity;
    header->place = segment->place;
    header->used = LP_SEG_HEADER;
    __atomic_store_n(&header->magic, LP_SEG_MAGIC, __ATOMIC_RELEASE);
}

static lp_status make_private(lp_segment *segment)
{
    segment->place = LP_PLACE_PRIVATE;
    segment->path[0] = '\0';
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        void *base =
            mmap(NULL, capacities[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            continue;
        madvise(base, capacities[i], MADV_DONTFORK);
        segment->base = base;
        segment->capacity = segment->populated = capacities[i];
        begin(segment);
        return LP_OK;
    }
    return LP_E_MEMORY;
}

/* false: it does not fit. */
static bool join(char *out, size_t size, const char *a, const char *b, const char *c)
{
    lp_filename text = lp_filename_start(out, size);

    lp_filename_put(&text, a);
    lp_filename_put(&text, b);
    lp_filename_put(&text, c);
    return text.left > 0;
}

/* Not by the C library's function: it stands far from those that a child has just used, and its page would be one fault more. */
static int rename_in(int dirfd, const char *from, const char *to)
{
#ifdef SYS_renameat
    return (int)syscall(SYS_renameat, dirfd, from, dirfd, to);
#else
    return (int)syscall(SYS_renameat2, dirfd, from, dirfd, to, 0u);
#endif
}

static lp_status make_shared(lp_segment *segment, int dirfd, const char *folder, const char *name, lp_error *error)
{
    char temporary[300];
    struct stat st;
    int fd = -1;
    void *base = MAP_FAILED;
    uint64_t capacity = 0, limit = file_limit();
    const char *what = "open";

    if (strlen(name) > 255 || !join(segment->path, sizeof segment->path, folder, "/", name))
        return lp_error_set(error, LP_E_ARGUMENT, 0, UINT64_MAX, "%s: name too long", folder);
    join(temporary, sizeof temporary, ".", name, ".new");
    fd = openat(dirfd, temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        goto failed;
    what = "flock";
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        goto failed;
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities && base == MAP_FAILED; i++) {
        what = "extend";
        if (capacities[i] > limit) {
            errno = EFBIG;
            continue;
        }
        if (ftruncate(fd, (off_t)capacities[i]) != 0)
            continue;
        what = "mmap";
        base = mmap(NULL, capacities[i], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        capacity = capacities[i];
    }
    if (base == MAP_FAILED || lp__fstat(fd, &st) != 0)
        goto failed;
    if ((st.st_mode & 0777) != 0600)
        (void)fchmod(fd, 0600); /* a umask has taken our own bits, and readers open it by name */
    madvise(base, capacity, MADV_DONTFORK);
    segment->base = base;
    segment->capacity = capacity;
    segment->populated = 0;
    segment->place = LP_PLACE_SHARED;
    segment->dev = (uint64_t)st.st_dev;
    segment->ino = (uint64_t)st.st_ino;
    what = "allocate";
    /* Growth before 5.14 opens the file by its path: for the first step that is the temporary one. */
    char final[sizeof segment->path];
    memcpy(final, segment->path, sizeof final);
    if (!join(segment->path, sizeof segment->path, folder, "/", temporary))
        segment->path[0] = '\0';
    bool populated = populate(segment, LP_SEG_START);
    memcpy(segment->path, final, sizeof final);
    if (!populated) {
        errno = ENOSPC;
        goto failed;
    }
    begin(segment);
    close(fd);
    fd = -1;
    what = "rename";
    if (rename_in(dirfd, temporary, name) != 0)
        goto failed;
    return LP_OK;

failed:;
    int reason = errno;
    if (base != MAP_FAILED)
        munmap(base, capacity);
    if (fd >= 0)
        close(fd);
    if (strcmp(what, "open") != 0)
        unlinkat(dirfd, temporary, 0);
    segment->base = NULL;
    char room[64];
    const char *text = lp_system_text(reason, room, sizeof room);
    return lp_error_set(error, reason == ENOSPC ? LP_E_FULL : LP_E_IO, reason, UINT64_MAX, "%s: cannot %s: %s", folder,
                        what, text);
}

lp_status lp_segment_create(lp_segment *segment, int dirfd, const char *folder, const char *name, lp_error *error)
{
    int saved = errno;
    lp_status status = LP_E_UNSUPPORTED;

    memset(segment, 0, sizeof *segment);
    if (dirfd >= 0)
        status = make_shared(segment, dirfd, folder, name, error);
    if (status != LP_OK)
        status = make_private(segment);
    errno = saved;
    return status;
}

lp_off lp_segment_take(lp_segment *segment, lp_seg_kind kind, lp_off owner, uint64_t payload, uint64_t *got)
{
    lp_seg_header *header = lp_segment_header(segment);
    uint64_t size = (sizeof(lp_seg_block) + payload + 63) & ~63ull;
    lp_off offset = 0;

    while (atomic_flag_test_and_set_explicit(&segment->growing, memory_order_acquire))
        sched_yield();
    uint64_t at = header->used;
    if (at + size <= segment->capacity) {
        uint64_t step = at + size < LP_SEG_STEP ? LP_SEG_NEXT : LP_SEG_STEP;
        uint64_t until = (at + size + step - 1) & ~(step - 1);
        if (at + size <= segment->populated)
            until = segment->populated;
        else if (until > segment->capacity)
            until = segment->capacity;
        /* Where a whole step does not fit any more, the last pages may do. */
        if (populate(segment, until) || populate(segment, at + size)) {
            lp_seg_block *block = (lp_seg_block *)(void *)(segment->base + at);
            block->owner = owner;
            block->size = size;
            __atomic_store_n(&block->kind, (uint32_t)kind, __ATOMIC_RELEASE);
            __atomic_store_n(&header->used, at + size, __ATOMIC_RELEASE);
            offset = (lp_off)(at + sizeof *block);
            if (got)
                *got = size - sizeof *block;
        }
    }
    atomic_flag_clear_explicit(&segment->growing, memory_order_release);
    return offset;
}

void lp_segment_set_state(lp_segment *segment, lp_seg_state state)
{
    if (segment->base)
        __atomic_store_n(&lp_segment_header(segment)->state, (uint32_t)state, __ATOMIC_RELEASE);
}

void lp_segment_close(lp_segment *segment, bool keep)
{
    struct stat st;
    int saved = errno;

    if (!segment->base)
        return;
    if (segment->place == LP_PLACE_SHARED && !keep && stat(segment->path, &st) == 0 &&
        (uint64_t)st.st_dev == segment->dev && (uint64_t)st.st_ino == segment->ino)
        unlink(segment->path);
    munmap(segment->base, segment->capacity);
    lp_segment_forget(segment);
    errno = saved;
}

void lp_segment_forget(lp_segment *segment)
{
    segment->base = NULL;
    segment->capacity = segment->populated = 0;
    segment->path[0] = '\0';
    atomic_flag_clear(&segment->growing);
}
