/* A made-up root folder for the readers of /proc, cgroups and sysfs: kernels, containers and troubles that this machine does not have. */
#ifndef LP_TESTS_MADE_TREE_H
#define LP_TESTS_MADE_TREE_H

#include "test_folder.h"

static char top[64];
static int root = -1;

/* A file below the root, with the folders on the way. */
static inline void put(const char *path, const char *content)
{
    char full[1024];

    snprintf(full, sizeof full, "%s/%s", top, path);
    for (char *at = full + strlen(top) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    put_text(full, content);
}

static inline void fresh_tree(void)
{
    if (root >= 0) {
        close(root);
        remove_folder(top);
    }
    make_folder(top);
    root = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

#endif
