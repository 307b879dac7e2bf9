/* The commit of a work tree, from the files of .git: no child process, since the program would get its SIGCHLD.
 * gitrepository-layout(5) is the reference. Everything is read bounded; what is not as it should be yields "". */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/describe.h"
#include "store/files.h"

#define REF_ROOM 1024 /* bytes of HEAD, a loose reference, a gitdir file */
#define CHAIN_MAX 5   /* symbolic references in a row: git's own limit */
#define ANCESTORS_MAX 128
#define PACKED_MAX (64u << 20)

/* 40 (sha1) or 64 (sha256) hex digits, then the end or white space. Returns their number, else 0. */
static size_t hex_digits(const char *text)
{
    size_t n = strspn(text, "0123456789abcdef");
    char end = text[n];
    return (n == 40 || n == 64) && (end == '\0' || end == '\n' || end == '\r' || end == ' ') ? n : 0;
}

static void cut_line(char *text)
{
    text[strcspn(text, "\r\n")] = '\0';
    for (size_t n = strlen(text); n > 0 && text[n - 1] == ' ';)
        text[--n] = '\0';
}

/* A reference is a path below the git directory: relative, and staying there. */
static bool is_reference(const char *ref)
{
    return strncmp(ref, "refs/", 5) == 0 && !strstr(ref, "..") && !strstr(ref, "//");
}

/* Scans the lines "<hash> <ref>" of packed-refs in pieces. */
static bool find_packed(int common, const char *ref, char *hash)
{
    char buffer[8192 + 1];
    size_t kept = 0, ref_size = strlen(ref);
    uint64_t offset = 0;
    bool found = false;
    int fd = openat(common, "packed-refs", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return false;
    while (!found && offset < PACKED_MAX) {
        size_t got = 0;
        if (!lp__read_at(fd, buffer + kept, sizeof buffer - 1 - kept, offset, &got))
            break;
        offset += got;
        size_t size = kept + got;
        buffer[size] = '\0';
        char *line = buffer;
        for (char *end; (end = memchr(line, '\n', (size_t)(buffer + size - line))); line = end + 1) {
            *end = '\0';
            size_t n = hex_digits(line);
            if (n && line[n] == ' ' && strcmp(line + n + 1, ref) == 0) {
                memcpy(hash, line, n);
                hash[n] = '\0';
                found = true;
                break;
            }
        }
        if (got == 0 || found)
            break;
        kept = (size_t)(buffer + size - line);
        if (kept > 128 + ref_size || kept == sizeof buffer - 1)
            kept = 0; /* longer than any line that could match */
        memmove(buffer, buffer + size - kept, kept);
    }
    close(fd);
    return found;
}

/* Follows HEAD to a hash. `git` is the directory of this work tree, `common` that of the repository. */
static bool resolve(int git, int common, char *hash)
{
    char text[REF_ROOM], ref[REF_ROOM];

    if (lp__read_text(git, "HEAD", text, sizeof text - 1) <= 0)
        return false;
    for (int i = 0; i < CHAIN_MAX; i++) {
        size_t n = hex_digits(text);
        if (n) {
            memcpy(hash, text, n);
            hash[n] = '\0';
            return true;
        }
        if (strncmp(text, "ref:", 4) != 0)
            return false;
        cut_line(text);
        const char *target = text + 4 + strspn(text + 4, " \t");
        if (!is_reference(target))
            return false;
        memcpy(ref, target, strlen(target) + 1);
        /* refs/worktree and refs/bisect belong to one work tree, all others to the repository */
        if (lp__read_text(git, ref, text, sizeof text - 1) <= 0 &&
            lp__read_text(common, ref, text, sizeof text - 1) <= 0)
            return find_packed(common, ref, hash);
    }
    return false;
}

/* A relative path in a file of git is relative to the directory of that file. */
static int open_relative(int base, const char *path)
{
    return openat(base, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The git directory of `folder`, -1 if it has none. */
static int open_git(int folder)
{
    char text[PATH_MAX + 16];
    int git = open_relative(folder, ".git");

    if (git >= 0 || errno != ENOTDIR)
        return git;
    /* a work tree or submodule: the file says where */
    if (lp__read_text(folder, ".git", text, sizeof text - 1) <= 0 || strncmp(text, "gitdir:", 7) != 0)
        return -1;
    cut_line(text);
    return open_relative(folder, text + 7 + strspn(text + 7, " \t"));
}

static bool commit_below(int git, char *hash)
{
    char text[PATH_MAX];
    int common = -1;

    if (lp__read_text(git, "commondir", text, sizeof text - 1) > 0) {
        cut_line(text);
        common = open_relative(git, text);
    }
    bool found = resolve(git, common >= 0 ? common : git, hash);
    if (common >= 0)
        close(common);
    return found;
}

lp_status lp_describe_source(lp_arena *arena, const char *directory, lp_identity *id)
{
    char hash[65] = "";
    int saved = errno;
    int folder = open_relative(AT_FDCWD, directory);
    lp_status status = LP_OK;

    id->source_commit = lp__empty;
    id->source_dirty = id->source_untracked = LP_UNKNOWN_I64;
    id->source_diff = lp__empty;
    for (int i = 0; folder >= 0 && i < ANCESTORS_MAX; i++) {
        struct stat here, above;
        int git = open_git(folder);
        if (git >= 0) {
            bool found = commit_below(git, hash);
            close(git);
            if (found || faccessat(folder, ".git/HEAD", F_OK, 0) == 0)
                break; /* a repository without a commit is still the one */
        }
        int parent = open_relative(folder, "..");
        bool top = parent < 0 || fstat(folder, &here) != 0 || fstat(parent, &above) != 0 ||
                   (here.st_ino == above.st_ino && here.st_dev == above.st_dev);
        close(folder);
        folder = parent;
        if (top)
            break;
    }
    if (folder >= 0)
        close(folder);
    if (hash[0]) {
        id->source_commit = lp__text(arena, hash);
        if (id->source_commit.size == 0)
            status = LP_E_MEMORY;
    }
    errno = saved;
    return status;
}
