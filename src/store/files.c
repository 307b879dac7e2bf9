#include "store/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool lp__read_at(int fd, void *data, size_t size, uint64_t offset, size_t *got)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pread(fd, (char *)data + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *got = done;
    return true;
}

bool lp__write_all(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENOSPC;
            return false;
        }
        at += n;
        size -= (size_t)n;
    }
    return true;
}

long lp__read_text(int dirfd, const char *path, char *buffer, size_t limit)
{
    /* O_NONBLOCK: a pipe under that name must not stop us */
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    size_t done = 0;
    struct stat st;

    buffer[0] = '\0';
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -1;
    }
    while (done < limit) { /* read, not pread: files of /proc may refuse to seek */
        ssize_t n = read(fd, buffer + done, limit - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    close(fd);
    buffer[done] = '\0';
    return (long)done;
}

lp_status lp__read_file(int dirfd, const char *path, const char *name, unsigned char **data, size_t *size,
                        lp_error *error)
{
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    unsigned char *bytes = NULL;
    struct stat st;
    size_t got;
    lp_status status;

    if (fd < 0)
        return lp__fail_sys(error, errno, name, "open");
    if (fstat(fd, &st) != 0) {
        status = lp__fail_sys(error, errno, name, "stat");
        goto failed;
    }
    if (!S_ISREG(st.st_mode)) {
        status = lp__fail(error, LP_E_FOREIGN, name, UINT64_MAX, "not a regular file");
        goto failed;
    }
    if (st.st_size > (off_t)LP__FILE_MAX) {
        status = lp__fail(error, LP_E_LIMIT, name, UINT64_MAX, "larger than 256 MB");
        goto failed;
    }
    bytes = malloc((size_t)st.st_size + 1);
    if (!bytes) {
        status = lp__fail(error, LP_E_MEMORY, name, UINT64_MAX, "out of memory");
        goto failed;
    }
    if (!lp__read_at(fd, bytes, (size_t)st.st_size, 0, &got)) {
        status = lp__fail_sys(error, errno, name, "read");
        goto failed;
    }
    close(fd);
    *data = bytes;
    *size = got;
    return LP_OK;

failed:
    free(bytes);
    close(fd);
    return status;
}

int lp__open_folder(int dirfd, const char *path, bool make, unsigned mode)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dirfd, path, flags);

    if (fd < 0 && errno == ENOENT && make) {
        if (mkdirat(dirfd, path, (mode_t)mode) != 0 && errno != EEXIST)
            return -1;
        fd = openat(dirfd, path, flags);
    }
    return fd;
}

int lp__open_path(const char *path, bool make)
{
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    int fd = open(path, flags);

    if (fd >= 0 || errno != ENOENT || !make)
        return fd;
    size_t size = strlen(path);
    char *part = malloc(size + 1);
    if (!part)
        return -1;
    memcpy(part, path, size + 1);
    for (size_t i = 1; i <= size; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char end = part[i];
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST && end == '\0')
            break;
        part[i] = end;
    }
    free(part);
    return open(path, flags);
}

DIR *lp__list(int dirfd)
{
    /* a descriptor of its own: a dup would share the position with the caller's */
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    DIR *list = fdopendir(fd);
    if (!list)
        close(fd);
    return list;
}

void lp__safe_name(char *out, size_t room, lp_str text)
{
    size_t size = text.size < room ? text.size : room - 1;

    for (size_t i = 0; i < size; i++) {
        char c = text.data[i];
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
                     c == '_' || c == '-';
        out[i] = plain ? c : '_';
    }
    out[size] = '\0';
    if (size == 0)
        snprintf(out, room, "unknown");
    else if (strcmp(out, ".") == 0 || strcmp(out, "..") == 0)
        memset(out, '_', size);
}

void lp__snapshot_stem(char *out, size_t room, const lp_identity *id)
{
    char run[65], uuid[9];

    lp__safe_name(run, sizeof run, id->run_id);
    lp__safe_name(uuid, sizeof uuid, id->uuid);
    snprintf(out, room, "w_%s_%" PRId64 "_%s", run, id->pid, uuid);
}
