/* Which sample files there are in a run directory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/files.h"
#include "store/samples.h"

static bool ends_in(const char *name, const char *end)
{
    size_t size = strlen(name), tail = strlen(end);

    return size > tail && strcmp(name + size - tail, end) == 0;
}

static lp_status add(lp_arena *arena, const char *path, lp_sample_files *files)
{
    lp_str *list = lp_arena_grow(arena, files->paths, files->count, sizeof *list);

    if (!list)
        return LP_E_MEMORY;
    files->paths = list;
    list[files->count] = lp_arena_str(arena, path, strlen(path));
    if (!list[files->count].data)
        return LP_E_MEMORY;
    files->count++;
    return LP_OK;
}

static lp_status list_host(lp_arena *arena, const char *directory, int workers, const char *host,
                           lp_sample_files *files)
{
    int folder = lp__open_folder(workers, host, false, 0);
    DIR *list = folder >= 0 ? lp__list(folder) : NULL;
    const struct dirent *entry;
    lp_status status = LP_OK;
    char path[4600];

    while (status == LP_OK && list && (entry = readdir(list)) != NULL) {
        int size = snprintf(path, sizeof path, "%s/workers/%s/%s", directory, host, entry->d_name);
        if (ends_in(entry->d_name, ".samples") && size > 0 && (size_t)size < sizeof path)
            status = add(arena, path, files);
    }
    if (list)
        closedir(list);
    if (folder >= 0)
        close(folder);
    return status;
}

static int by_path(const void *a, const void *b)
{
    const lp_str *x = a, *y = b;

    return strcmp(x->data, y->data);
}

lp_status lp_samples_list(const char *directory, lp_arena *arena, lp_sample_files *files)
{
    int run = lp__open_path(directory, false), workers = run >= 0 ? lp__open_folder(run, "workers", false, 0) : -1;
    DIR *list = workers >= 0 ? lp__list(workers) : NULL;
    const struct dirent *entry;
    lp_status status = LP_OK;

    *files = (lp_sample_files){0};
    while (status == LP_OK && list && (entry = readdir(list)) != NULL)
        if (entry->d_name[0] != '.')
            status = list_host(arena, directory, workers, entry->d_name, files);
    if (files->count > 1)
        qsort(files->paths, files->count, sizeof *files->paths, by_path);
    if (list)
        closedir(list);
    if (workers >= 0)
        close(workers);
    if (run >= 0)
        close(run);
    return status;
}
