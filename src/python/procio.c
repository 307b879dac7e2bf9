/* Byte counters of this process from /proc/self/io (proc(5)): rchar, wchar (all reads and writes, also of cached files, pipes,
 * sockets) and read_bytes, write_bytes (block device). Exact at the moment of reading; one pread of an open file. What our own
 * reads and snapshots moved is taken off. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/wiped.h"
#include "python/lpy.h"

/* "rchar: N\nwchar: N\nsyscr: N\nsyscw: N\nread_bytes: N\nwrite_bytes: N\n…" */
/* After `key` of known length: the number up to the end of the line. */
static inline bool line(const char **at, const char *end, const char *key, size_t length, uint64_t *value)
{
    const char *from = *at;
    uint64_t number = 0;

    if ((size_t)(end - from) <= length || memcmp(from, key, length) != 0)
        return false;
    for (from += length; from < end && *from >= '0' && *from <= '9'; from++)
        number = number * 10 + (uint64_t)(*from - '0');
    if (from >= end || *from != '\n')
        return false;
    *at = from + 1;
    *value = number;
    return true;
}

static bool parse(const char *text, ssize_t size, uint64_t io[LPY_IO_COUNT])
{
    const char *at = text, *end = text + (size > 0 ? size : 0);
    uint64_t calls;

    /* Lengths that the compiler sees: a comparison is a load, not a call. */
#define LINE(key, into) line(&at, end, key, sizeof(key) - 1, into)
    return LINE("rchar: ", &io[LPY_IO_READ_CHARS]) && LINE("wchar: ", &io[LPY_IO_WRITE_CHARS]) &&
           LINE("syscr: ", &calls) && LINE("syscw: ", &calls) && LINE("read_bytes: ", &io[LPY_IO_READ_BYTES]) &&
           LINE("write_bytes: ", &io[LPY_IO_WRITE_BYTES]);
#undef LINE
}

static bool open_file(lpy_session *session)
{
    struct stat st;
    int fd = lp__fd_high(open("/proc/self/io", O_RDONLY | O_CLOEXEC));

    if (fd < 0)
        return false;
    if (fstat(fd, &st) != 0) {
        close(fd);
        return false;
    }
    session->io_dev = (uint64_t)st.st_dev;
    session->io_ino = (uint64_t)st.st_ino;
    session->io_generation = session->core->generation;
    int none = -1;
    if (!__atomic_compare_exchange_n(&session->io_fd, &none, fd, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        close(fd); /* without the GIL: another thread was here just now */
    return true;
}

/* What our snapshots moved: of the process, and of the calling thread. */
LP_FORK_TOUCHES static _Atomic uint64_t own[LPY_IO_COUNT];
static __thread uint64_t own_here[LPY_IO_COUNT];

void lpy_io_own(const uint64_t moved[LPY_IO_COUNT])
{
    for (int i = 0; i < LPY_IO_COUNT; i++) {
        own[i] += moved[i];
        own_here[i] += moved[i];
    }
}

static _Atomic uint32_t spoilt;

void lpy_io_spoil(void)
{
    spoilt++;
}

uint32_t lpy_io_spoilt(void)
{
    return spoilt;
}

void lpy_io_in_child(void)
{
    for (int i = 0; i < LPY_IO_COUNT; i++)
        own[i] = own_here[i] = 0; /* the kernel counts a child from zero */
}

/* The counters that the kernel shows are those before this very read. */
static bool read_file(int fd, bool thread, uint64_t io[LPY_IO_COUNT])
{
    char text[512];
    ssize_t size = pread(fd, text, sizeof text, 0);
    bool ok = parse(text, size, io);

    if (ok) {
        for (int i = 0; i < LPY_IO_COUNT; i++)
            io[i] -= thread ? own_here[i] : own[i];
        io[LPY_IO_READ_CHARS] -= thread ? lp__own_reads_here : lp__own_reads;
    }
    lp__own_read(size);
    return ok;
}

bool lpy_io_read(lpy_session *session, bool thread, uint64_t io[LPY_IO_COUNT])
{
    int saved = errno;
    bool ok = false;

    if (thread) {
        int fd = open("/proc/thread-self/io", O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ok = read_file(fd, true, io);
            close(fd);
        }
        errno = saved;
        return ok;
    }
    /* In a forked child the open file is still the parent's, also before it records anything of its own. */
    if (session->io_fd >= 0 &&
        (session->io_generation != session->core->generation || lp_recorder_forked(session->core)))
        lpy_io_close(session);
    for (int attempt = 0; attempt < 2 && !ok; attempt++) {
        if (session->io_fd >= 0) {
            ok = read_file(session->io_fd, false, io);
            if (!ok)
                session->io_fd = -1; /* closed by the program, the number perhaps reused: never close it */
        }
        if (!ok && (attempt == 1 || !open_file(session)))
            break;
    }
    errno = saved;
    return ok;
}

void lpy_io_children(lpy_session *session)
{
    struct rusage children; /* no process has run without a fault */

    if (getrusage(RUSAGE_CHILDREN, &children) == 0 &&
        atomic_exchange(&session->io_children, children.ru_minflt) != children.ru_minflt)
        atomic_fetch_add(&session->core->io_arrivals, 1);
}

void lpy_io_close(lpy_session *session)
{
    int saved = errno;

    if (session->io_fd >= 0)
        lp__fd_close(session->io_fd, session->io_dev, session->io_ino);
    session->io_fd = -1;
    errno = saved;
}
