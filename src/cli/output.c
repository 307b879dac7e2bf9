#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void free_output(lp_cli_output *output)
{
    free(output->target);
    free(output->temporary);
    output->target = output->temporary = NULL;
}

static int failed(lp_cli_output *output, int error)
{
    int result = lp__cli_fail(output->io, "%s: %s", output->path[0] ? output->path : "\"\"", strerror(error));

    if (output->fd >= 0)
        close(output->fd);
    if (output->temporary)
        unlink(output->temporary);
    free_output(output);
    return result;
}

/* A new file beside the target, which is renamed over it: nobody sees half a report, and an old one survives a full disk. */
static int open_temporary(lp_cli_output *output, const struct stat *old)
{
    size_t size = strlen(output->target) + 48;

    output->temporary = malloc(size);
    if (!output->temporary)
        return failed(output, ENOMEM);
    for (unsigned attempt = 0; attempt < 100 && output->fd < 0; attempt++) {
        snprintf(output->temporary, size, "%s.%ld.%u.tmp", output->target, (long)getpid(), attempt);
        output->fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (output->fd < 0 && errno != EEXIST)
            break;
    }
    if (output->fd < 0) {
        int error = errno;
        free(output->temporary);
        output->temporary = NULL;
        return failed(output, error);
    }
    if (old)
        (void)!fchmod(output->fd, old->st_mode & 0777); /* best effort: as writing into the old file would keep it */
    return LP_EXIT_OK;
}

/* The kernel refuses to follow such a link where fs.protected_symlinks is set; realpath reads it and knows nothing of that. */
static bool is_trap(const char *path)
{
    struct stat link, folder;
    const char *name = strrchr(path, '/');
    char *parent;

    if (lstat(path, &link) != 0 || !S_ISLNK(link.st_mode) || link.st_uid == geteuid())
        return false;
    parent = name ? strndup(path, (size_t)(name - path) + 1) : strdup(".");
    bool open = !parent || stat(parent, &folder) != 0 || ((folder.st_mode & S_IWOTH) && folder.st_uid != link.st_uid);
    free(parent);
    return open;
}

int lp__cli_output_open(lp_cli_output *output, const char *path, const lp_cli_io *io)
{
    struct stat old;

    if (path && strcmp(path, "-") == 0) /* as other tools have it; "./-" is the file of that name */
        path = NULL;
    *output = (lp_cli_output){.io = io, .sink = io->out, .fd = -1, .path = path};
    output->text = (lp_text_options){.width = io->width, .color = io->color, .utf8 = io->utf8, .samples = true};
    if (!path)
        return LP_EXIT_OK;
    output->text.color = false;
    output->text.utf8 = true;
    output->sink = &output->file;
    if (is_trap(path))
        return lp__cli_fail(io, "%s: a link of another user, in a folder where everybody may write", path);
    output->target = realpath(path, NULL);
    if (!output->target)
        output->target = strdup(path);
    if (!output->target)
        return failed(output, ENOMEM);
    bool exists = stat(output->target, &old) == 0;
    if (exists && S_ISDIR(old.st_mode))
        return failed(output, EISDIR);
    if (exists && !S_ISREG(old.st_mode)) { /* a pipe or a device takes the bytes; it must not be replaced */
        output->fd = open(output->target, O_WRONLY | O_CLOEXEC);
        if (output->fd < 0)
            return failed(output, errno);
    } else {
        int result = open_temporary(output, exists ? &old : NULL);
        if (result != LP_EXIT_OK)
            return result;
    }
    lp_sink_open_fd(&output->file, output->fd);
    return LP_EXIT_OK;
}

int lp__cli_output_close(lp_cli_output *output, int result)
{
    if (!output->path)
        return result;
    if (lp_sink_flush(&output->file) != LP_OK)
        return failed(output, output->file.sys ? output->file.sys : EIO);
    int closed = close(output->fd);
    output->fd = -1;
    if (closed != 0 || (output->temporary && rename(output->temporary, output->target) != 0))
        return failed(output, errno);
    free_output(output);
    return result;
}

int lp__cli_output_drop(lp_cli_output *output, int result)
{
    if (output->fd >= 0)
        close(output->fd);
    if (output->temporary)
        unlink(output->temporary);
    free_output(output);
    return result;
}
