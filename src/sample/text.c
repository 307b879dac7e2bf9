#include "sample/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

lp_reason lp__reason_of(int sys)
{
    switch (sys) {
    case ENOENT:
    case ENOTDIR:
    case EOPNOTSUPP: return LP_REASON_NO_FILE; /* EOPNOTSUPP: pressure files with psi=0 */
    case ESRCH: return LP_REASON_GONE;
    case EACCES:
    case EPERM: return LP_REASON_DENIED;
    default: return LP_REASON_FAILED;
    }
}

/* Whole, or what fits: the text files that we read are shorter. */
static long read_all(int fd, char *text)
{
    size_t done = 0;

    while (done < LP__TEXT_ROOM - 1) {
        ssize_t n = pread(fd, text + done, LP__TEXT_ROOM - 1 - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        done += (size_t)n;
        if (n == 0 || (done < LP__TEXT_ROOM - 512 && text[done - 1] == '\n'))
            break; /* files of less than a page come whole: a second read would only say so */
    }
    text[done] = '\0';
    return (long)done;
}

static int open_file(int dirfd, const char *path)
{
    return openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

long lp__text_once(int dirfd, const char *path, char text[LP__TEXT_ROOM], lp_reason *reason)
{
    int fd = open_file(dirfd, path);
    long size = fd >= 0 ? read_all(fd, text) : -1;

    if (size < 0)
        *reason = lp__reason_of(errno);
    if (fd >= 0)
        close(fd);
    return size;
}

static int keep_below = INT_MAX;

void lp__text_keep_below(int number)
{
    keep_below = number;
}

long lp__text_read(lp__text_file *file, int dirfd, const char *path, char text[LP__TEXT_ROOM], lp_reason *reason)
{
    if (file->gave_up) {
        *reason = file->reason;
        return -1;
    }
    if (!file->fd) {
        int fd = open_file(dirfd, path);
        if (fd < 0) {
            *reason = file->reason = lp__reason_of(errno);
            /* A file that the kernel does not have will not come; permission may, when a program becomes dumpable again. */
            file->gave_up = *reason == LP_REASON_NO_FILE || *reason == LP_REASON_GONE;
            return -1;
        }
        file->fd = fd + 1;
    }
    long size = read_all(file->fd - 1, text);
    if (size < 0)
        *reason = lp__reason_of(errno);
    if (file->fd > keep_below ||
        (size < 0 && *reason == LP_REASON_DENIED)) /* asked at each read by some files: another open may fare better */
        lp__text_close(file);
    return size;
}

void lp__text_close(lp__text_file *file)
{
    if (file->fd)
        close(file->fd - 1);
    file->fd = 0;
}

bool lp__number(const char **at, int64_t *value)
{
    const char *p = *at;
    int64_t v = 0;

    while (*p == ' ' || *p == '\t')
        p++;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, (int64_t)10, &v) || __builtin_add_overflow(v, (int64_t)(*p - '0'), &v))
            return false;
    *at = p;
    *value = v;
    return true;
}

static const char *line_of(const char *text, const char *start)
{
    size_t size = strlen(start);

    for (const char *line = text; line && *line;) {
        if (strncmp(line, start, size) == 0)
            return line + size;
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    return NULL;
}

bool lp__number_of(const char *text, const char *key, int64_t *value)
{
    const char *at = line_of(text, key);
    return at && lp__number(&at, value);
}

bool lp__number_within(const char *text, const char *line, const char *key, int64_t *value)
{
    const char *at = line_of(text, line), *end = at ? strchr(at, '\n') : NULL;
    const char *found = at ? strstr(at, key) : NULL;

    if (!found || (end && found > end))
        return false;
    found += strlen(key);
    return lp__number(&found, value);
}

void lp__sample_put(lp_sample *sample, lp_column column, bool have, int64_t value, lp_reason reason)
{
    if (have && value >= 0)
        lp_sample_set(sample, column, value);
    else
        lp_sample_miss(sample, column, have || reason == LP_REASON_NONE ? LP_REASON_UNREADABLE : reason);
}
