/* A fresh folder for a test, and what tests do with files. */
#ifndef LP_TESTS_TEST_FOLDER_H
#define LP_TESTS_TEST_FOLDER_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Static text; valid until the fourth call after this one. */
__attribute__((format(printf, 1, 2))) static inline const char *text(const char *format, ...)
{
    static char room[4][1024];
    static int turn;
    va_list args;
    turn = (turn + 1) & 3;
    va_start(args, format);
    vsnprintf(room[turn], sizeof room[turn], format, args);
    va_end(args);
    return room[turn];
}

static inline void make_folder(char out[64])
{
    strcpy(out, "/tmp/lp_test_XXXXXX");
    if (!mkdtemp(out))
        abort();
}

static inline int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static inline void remove_folder(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void put_file(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
}

static inline void put_text(const char *path, const char *content)
{
    put_file(path, content, strlen(content));
}

/* Entries of a folder without "." and "..", -1 if there is none. */
static inline int count_files(const char *path)
{
    DIR *list = opendir(path);
    int count = -2;
    if (!list)
        return -1;
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

static inline int exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

#endif
