#include "store/held.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/election.h"
#include "store/files.h"

static bool is_it(int fd, const lp_folder_id *run_dir)
{
    lp_folder_id id;
    struct stat st;

    return lp_folder_look(fd, "", &id) && lp_folder_is(&id, run_dir) && fstat(fd, &st) == 0 && st.st_nlink > 0;
}

/* Among the descriptors of a process of ours: what /proc shows as a link leads to the directory itself, whatever its name is. */
static int find_open(int64_t pid, const lp_folder_id *run_dir)
{
    char path[40];
    struct stat st;
    int found = -1;

    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd", pid);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = folder >= 0 ? lp__list(folder) : NULL;
    for (struct dirent *entry; list && found < 0 && (entry = readdir(list));) {
        if (entry->d_name[0] == '.' || fstatat(folder, entry->d_name, &st, 0) != 0 || !S_ISDIR(st.st_mode) ||
            (uint64_t)st.st_ino != run_dir->ino)
            continue;
        found = openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (found >= 0 && !is_it(found, run_dir)) {
            close(found);
            found = -1;
        }
    }
    if (list)
        closedir(list);
    if (folder >= 0)
        close(folder);
    return found;
}

int lp_held_open(const char *folder, const lp_folder_id *run_dir)
{
    char name[LP_ELECTION_ROOM];
    int saved = errno, found = -1;
    int place = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (place >= 0) {
        lp_election_name(name, run_dir->dev, run_dir->ino);
        int64_t pid = lp_election_collector(place, name);
        if (pid > 0)
            found = find_open(pid, run_dir);
        close(place);
    }
    errno = saved;
    return found;
}
