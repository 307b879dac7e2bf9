/* Where a run directory is near a path that is none: the path lies in one (RUN/workers, a snapshot), or has some right
 * below it. A guess for a sentence to a person: what cannot be read is passed over, and nothing is opened but folders. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/files.h"
#include "store/rundir.h"

#define MOST_LOOKED_AT 4096u /* entries below a path */

/* Whether a folder has an entry that begins so. */
static bool has_entry(int folder, const char *beginning)
{
    DIR *list = lp__list(folder);
    bool found = false;

    for (struct dirent *entry; list && !found && (entry = readdir(list));)
        found = strncmp(entry->d_name, beginning, strlen(beginning)) == 0;
    if (list)
        closedir(list);
    return found;
}

/* Whether workers/<host>/ of it holds a worker's file. */
static bool is_run(int dirfd, const char *path)
{
    int folder = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int workers = folder < 0 ? -1 : openat(folder, "workers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = workers < 0 ? NULL : lp__list(workers);
    bool found = false;

    for (struct dirent *entry; list && !found && (entry = readdir(list));) {
        if (entry->d_name[0] == '.')
            continue;
        int host = openat(workers, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        found = host >= 0 && has_entry(host, "w_");
        if (host >= 0)
            close(host);
    }
    if (list)
        closedir(list);
    if (workers >= 0)
        close(workers);
    if (folder >= 0)
        close(folder);
    return found;
}

/* The last folder named "workers" on the way to it that belongs to a run; the run goes to `first`. */
static bool lies_in_run(const char *path, char *first, size_t room)
{
    static const char name[] = "workers";

    for (size_t at = strlen(path); at-- > 0;) {
        size_t after = at + sizeof name - 1;
        if ((at > 0 && path[at - 1] != '/') || strncmp(path + at, name, sizeof name - 1) != 0 ||
            (path[after] != '\0' && path[after] != '/'))
            continue;
        size_t size = at;
        while (size > 1 && path[size - 1] == '/')
            size--;
        if (size >= room)
            continue;
        snprintf(first, room, "%.*s", size ? (int)size : 1, size ? path : ".");
        if (is_run(AT_FDCWD, first))
            return true;
    }
    return false;
}

uint32_t lp_rundir_near(const char *path, char *first, size_t room)
{
    char least[NAME_MAX + 1] = "";
    uint32_t count = 0, seen = 0;
    char *whole = realpath(path, NULL);
    bool inside = lies_in_run(path, first, room) || (whole && lies_in_run(whole, first, room));
    int folder = inside ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = folder < 0 ? NULL : lp__list(folder);

    free(whole);
    for (struct dirent *entry; list && seen < MOST_LOOKED_AT && (entry = readdir(list)); seen++) {
        if (entry->d_name[0] == '.' || !is_run(folder, entry->d_name))
            continue;
        if (count++ == 0 || strcmp(entry->d_name, least) < 0)
            snprintf(least, sizeof least, "%s", entry->d_name);
    }
    if (list)
        closedir(list);
    if (folder >= 0)
        close(folder);
    if (count > 0) {
        size_t size = strlen(path);
        int written = snprintf(first, room, "%s%s%s", path, path[size - 1] == '/' ? "" : "/", least);
        if (written < 0 || (size_t)written >= room)
            count = 0;
    }
    return inside ? 1 : count;
}
