/* A run directory on disk whose files come from the input. */
#ifndef LP_TESTS_FUZZ_RUN_FOLDER_H
#define LP_TESTS_FUZZ_RUN_FOLDER_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parts.h"

static char directory[128], host[160]; /* RUN_DIR, and its workers/node07 */

static inline void make_directory(void)
{
    if (directory[0])
        return;
    snprintf(directory, sizeof directory, "%s/run", fuzz_folder());
    snprintf(host, sizeof host, "%s/workers", directory);
    FUZZ_MUST(mkdir(directory, 0700) == 0 && mkdir(host, 0700) == 0);
    strcat(host, "/node07");
    FUZZ_MUST(mkdir(host, 0700) == 0);
    /* What other runs of this machine have in shared memory is not the input's, and takes longer than all the rest. */
    FUZZ_MUST(setenv("LINEPROFILER_SHM_DIR", fuzz_folder(), 1) == 0);
}

/* false: no file can have this name. */
static inline bool put_file(fuzz_part name, fuzz_part content, char path[512])
{
    char last[256];
    size_t size = name.size < sizeof last - 1 ? name.size : sizeof last - 1;

    memcpy(last, name.data, size);
    last[size] = '\0';
    if (strchr(last, '/') || !last[0] || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return false;
    snprintf(path, 512, "%s/%s", host, last);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    FUZZ_MUST(write(fd, content.data, content.size) == (ssize_t)content.size);
    close(fd);
    return true;
}

#endif
