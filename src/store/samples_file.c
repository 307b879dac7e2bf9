/* Sample files on the disk: made when there is something to say, then only appended to. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/files.h"
#include "store/samples.h"

#define NUMBER_MAX 1000u /* collectors of one worker, one after the other */

int lp_samples_create(int run_dir, const lp_identity *id, lp_series series, const lp_buffer *start)
{
    char host[129], stem[160], name[192];
    int workers = lp__open_folder(run_dir, "workers", true, 0777), folder = -1, fd = -1;

    lp__safe_name(host, sizeof host, id->host);
    lp__snapshot_stem(stem, sizeof stem, id);
    if (workers >= 0)
        folder = lp__open_folder(workers, host, true, 0777);
    int reason = errno;
    if (workers >= 0)
        close(workers);
    errno = reason;
    if (folder < 0)
        return -1;
    const char *shown = series == LP_SERIES_HOST ? stem + 1 : stem; /* host_… instead of w_… */
    for (unsigned n = 1; n < NUMBER_MAX; n++) {
        snprintf(name, sizeof name, "%s%s.%u.samples", series == LP_SERIES_HOST ? "host" : "", shown, n);
        fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    reason = errno;
    if (fd >= 0 && !lp_samples_append(fd, start)) {
        reason = errno;
        unlinkat(folder, name, 0);
        close(fd);
        fd = -1;
    }
    close(folder);
    errno = reason;
    return fd;
}

bool lp_samples_append(int fd, const lp_buffer *bytes)
{
    struct stat st;

    if (bytes->size == 0)
        return true;
    bool known = fstat(fd, &st) == 0;
    if (lp__write_all(fd, bytes->data, bytes->size))
        return true;
    int reason = errno;
    /* What lies behind a torn batch is not read, so the next one must not come there. */
    if (known && ftruncate(fd, st.st_size) != 0)
        reason = EIO;
    errno = reason;
    return false;
}
