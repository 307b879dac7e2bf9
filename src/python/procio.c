/* Byte counters of this process from /proc/self/io (proc(5)): rchar, wchar (all reads and writes, also of cached files, pipes,
 * sockets) and read_bytes, write_bytes (block device). Exact at the moment of reading; one pread of an open file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "python/lpy.h"

/* "rchar: N\nwchar: N\nsyscr: N\nsyscw: N\nread_bytes: N\nwrite_bytes: N\n…" */
static bool parse(const char *text, ssize_t size, uint64_t io[LPY_IO_COUNT])
{
    static const struct { const char *key; size_t length; int into; } keys[] = {
        {"rchar: ", 7, LPY_IO_READ_CHARS},        {"wchar: ", 7, LPY_IO_WRITE_CHARS},
        {"syscr: ", 7, -1},                       {"syscw: ", 7, -1},
        {"read_bytes: ", 12, LPY_IO_READ_BYTES},  {"write_bytes: ", 13, LPY_IO_WRITE_BYTES},
    };
    const char *at = text, *end = text + (size > 0 ? size : 0);

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint64_t value = 0;
        if ((size_t)(end - at) <= keys[i].length || memcmp(at, keys[i].key, keys[i].length) != 0)
            return false;
        for (at += keys[i].length; at < end && *at >= '0' && *at <= '9'; at++)
            value = value * 10 + (uint64_t)(*at - '0');
        if (at >= end || *at++ != '\n')
            return false;
        if (keys[i].into >= 0)
            io[keys[i].into] = value;
    }
    return true;
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
    session->io_fd = fd;
    session->io_dev = (uint64_t)st.st_dev;
    session->io_ino = (uint64_t)st.st_ino;
    session->io_generation = session->core->generation;
    return true;
}

static bool read_thread(uint64_t io[LPY_IO_COUNT])
{
    char text[512];
    int fd = open("/proc/thread-self/io", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    ssize_t size = pread(fd, text, sizeof text, 0);
    close(fd);
    return parse(text, size, io);
}

bool lpy_io_read(lpy_session *session, bool thread, uint64_t io[LPY_IO_COUNT])
{
    char text[512];
    int saved = errno;
    bool ok = false;

    if (thread) {
        ok = read_thread(io);
        errno = saved;
        return ok;
    }
    /* In a forked child the open file is still the parent's, also before it records anything of its own. */
    if (session->io_fd >= 0 && (session->io_generation != session->core->generation || lp_recorder_forked(session->core)))
        lpy_io_close(session);
    for (int attempt = 0; attempt < 2 && !ok; attempt++) {
        if (session->io_fd >= 0) {
            ok = parse(text, pread(session->io_fd, text, sizeof text, 0), io);
            if (!ok)
                session->io_fd = -1; /* closed by the program, the number perhaps reused: never close it */
        }
        if (!ok && (attempt == 1 || !open_file(session)))
            break;
    }
    errno = saved;
    return ok;
}

void lpy_io_close(lpy_session *session)
{
    int saved = errno;

    if (session->io_fd >= 0)
        lp__fd_close(session->io_fd, session->io_dev, session->io_ino);
    session->io_fd = -1;
    errno = saved;
}
