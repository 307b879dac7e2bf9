/* lineprofiler dump FILE */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/output.h"
#include "core/layout.h"
#include "store/samples.h"
#include "store/segment_read.h"
#include "store/snapshot.h"

#define FILE_MAX (256u << 20) /* bytes; no file of ours is larger */

static const lp_cli_option options[] = {
    {"--output", 'o', "PATH", NULL, offsetof(lp_cli_values, output), "write to a file instead of stdout (-: stdout)"},
};

static lp_status read_snapshot(int fd, size_t size, const char *path, lp_worker **worker, lp_error *error)
{
    unsigned char *data = malloc(size + 1);
    size_t got = 0;

    if (!data)
        return lp_error_set(error, LP_E_MEMORY, 0, UINT64_MAX, "%s: out of memory", path);
    while (got < size) {
        ssize_t read_now = pread(fd, data + got, size - got, (off_t)got);
        if (read_now < 0 && errno == EINTR)
            continue;
        if (read_now <= 0)
            break; /* shorter than it was: the reader names what is missing */
        got += (size_t)read_now;
    }
    lp_status status = lp_snapshot_decode(data, got, path, worker, error);
    free(data);
    return status;
}

typedef struct content { /* what the file turned out to be: one of both */
    lp_worker *worker;   /* owned */
    lp_samples *samples; /* owned */
    int fd;              /* owned, of samples: they are read as they are printed */
    const char *kind;    /* static */
} content;

static void forget(content *c)
{
    lp_worker_free(c->worker);
    lp_samples_close(c->samples);
    if (c->fd >= 0)
        close(c->fd);
}

/* The first bytes tell what it is. */
static lp_status read_file(const char *path, content *c, lp_error *error)
{
    struct stat info;
    uint64_t magic = 0;
    lp_status status;

    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block us before it is refused */
    if (fd < 0)
        return lp_error_set(error, LP_E_IO, errno, UINT64_MAX, "%s: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0) {
        status = lp_error_set(error, LP_E_IO, errno, UINT64_MAX, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = lp_error_set(error, LP_E_FOREIGN, 0, UINT64_MAX, "%s: %s", path,
                              S_ISDIR(info.st_mode) ? "is a directory; dump takes one file" : "is no regular file");
    } else if ((uint64_t)info.st_size > FILE_MAX) {
        status = lp_error_set(error, LP_E_LIMIT, 0, UINT64_MAX, "%s: %s", path, lp_status_text(LP_E_LIMIT));
    } else {
        ssize_t got = pread(fd, &magic, sizeof magic, 0);
        if (got > 0 && lp_samples_is_start(&magic, (size_t)got)) {
            status = lp_samples_open(fd, path, &c->samples, error);
        } else {
            bool segment = got == (ssize_t)sizeof magic && magic == LP_SEG_MAGIC;
            c->kind = segment ? "segment" : "snapshot";
            status = segment ? lp_segment_read_fd(fd, path, &c->worker, error)
                             : read_snapshot(fd, (size_t)info.st_size, path, &c->worker, error);
        }
    }
    if (c->samples)
        c->fd = fd;
    else
        close(fd);
    return status;
}

static int run(const lp_cli_call *call)
{
    content c = {.fd = -1, .kind = ""};
    lp_error error = {.offset = UINT64_MAX};
    lp_cli_output output;

    if (!call->arguments[0][0])
        return lp__cli_fail(call->io, "\"\": %s", strerror(ENOENT));
    lp_status status = read_file(call->arguments[0], &c, &error);
    if (status != LP_OK)
        return lp__cli_fail(call->io, "%s", error.text[0] ? error.text : lp_status_text(status));
    int result = lp__cli_output_open(&output, call->values.output, call->io);
    if (result == LP_EXIT_OK) {
        if (c.samples)
            status = lp_render_dump_samples(c.samples, output.sink, &error);
        else
            lp_render_dump(c.worker, c.kind, output.sink);
        if (status != LP_OK && output.sink->status == LP_OK)
            result = lp__cli_output_drop(&output, lp__cli_fail(call->io, "%s", error.text));
        else
            result = lp__cli_output_close(&output, LP_EXIT_OK);
    }
    forget(&c);
    return result;
}

const lp_cli_command lp__cli_dump = {
    .name = "dump",
    .summary = "one of our files as plain text",
    .details = "Prints a snapshot (w_*.snap), samples (*.samples) or a segment (below /dev/shm)\n"
               "as plain text, one fact a line, complete and in a fixed order: made for diff\n"
               "and for tests.",
    .arguments = {"FILE"},
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
