#include "collector/source.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collector/reset.h"
#include "store/source_facts.h"

#define LIMIT_S 60 /* longer than that, git's answer is not worth its disk traffic */

/* git with its stdin and stdout. Optional locks would change the user's repository (the index's cache of file times), external
 * diffs and file system monitors are programs of the repository's. */
static pid_t run_git(const char *directory, const char *const *arguments, int in, int out)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    const char *argv[16] = {"git", "-C", directory, "-c", "core.fsmonitor=false", "-c", "core.quotePath=true"};
    size_t count = 7;
    while (*arguments && count < 15)
        argv[count++] = *arguments++;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((in >= 0 && dup2(in, 0) < 0) || dup2(out, 1) < 0)
        _exit(127);
    execvp("git", (char *const *)(uintptr_t)argv);
    _exit(127);
}

static bool succeeded(pid_t pid)
{
    int status = -1;

    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Reads to the end: keeps the first `room - 1` bytes, counts the lines. */
static int64_t read_lines(int fd, char *text, size_t room)
{
    char buffer[8192];
    int64_t lines = 0;
    size_t kept = 0;
    ssize_t got;

    while ((got = read(fd, buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {
        for (ssize_t i = 0; i < got; i++) {
            lines += buffer[i] == '\n';
            if (kept + 1 < room)
                text[kept++] = buffer[i];
        }
    }
    text[kept] = '\0';
    return lines;
}

static int64_t ask(const char *directory, const char *const *arguments, char *text, size_t room)
{
    int ends[2];

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t git = run_git(directory, arguments, -1, ends[1]);
    close(ends[1]);
    int64_t lines = read_lines(ends[0], text, room);
    close(ends[0]);
    return succeeded(git) ? lines : -1;
}

/* git's own hash of the difference as a blob: no hash of ours is needed, and anybody can repeat it. */
static bool hash_difference(const char *directory, char *text, size_t room)
{
    static const char *const diff[] = {"diff",     "HEAD", "--no-ext-diff", "--no-textconv", "--no-color",
                                       "--binary", NULL};
    static const char *const hash[] = {"hash-object", "--stdin", NULL};
    int between[2], result[2];

    if (pipe2(between, O_CLOEXEC) != 0)
        return false;
    if (pipe2(result, O_CLOEXEC) != 0) {
        close(between[0]);
        close(between[1]);
        return false;
    }
    pid_t writer = run_git(directory, diff, -1, between[1]), reader = run_git(directory, hash, between[0], result[1]);
    close(between[0]);
    close(between[1]);
    close(result[1]);
    read_lines(result[0], text, room);
    close(result[0]);
    bool wrote = succeeded(writer);
    return succeeded(reader) && wrote;
}

/* The first line, if it is a hash. */
static bool take_hash(char *out, size_t room, const char *text)
{
    size_t size = strspn(text, "0123456789abcdef");

    if ((size != 40 && size != 64) || size >= room || text[size] != '\n')
        return false;
    memcpy(out, text, size);
    out[size] = '\0';
    return true;
}

pid_t lp__source_ask(const char *directory, int folder)
{
    static const char *const head[] = {"rev-parse", "HEAD", NULL};
    static const char *const status[] = {"status", "--porcelain", "--untracked-files=no", NULL};
    /* Of what no .gitignore names; a directory that is all new counts by its files. */
    static const char *const untracked[] = {"ls-files", "--others", "--exclude-standard", "--full-name", ":/", NULL};
    lp_source_facts facts = {.dirty = 0};
    char text[128];
    pid_t parent = getpid(), pid = fork();

    if (pid != 0) {
        if (pid > 0)
            setpgid(pid, pid); /* here and there: whoever comes first */
        return pid;
    }
    setpgid(0, 0);
    /* The collector's lock, claims and pidfds must not live on in here. */
    if (dup2(folder, 3) != 3)
        _exit(1);
    lp__close_from(4);
    folder = 3;
    fcntl(folder, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "lineprofiler-gt");
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    alarm(LIMIT_S); /* ends us, and our end ends git */
    setenv("GIT_OPTIONAL_LOCKS", "0", 1);
    setenv("LC_ALL", "C", 1);
    if (getppid() != parent)
        _exit(1);
    if (ask(directory, head, text, sizeof text) != 1 || !take_hash(facts.commit, sizeof facts.commit, text))
        _exit(1);
    facts.dirty = ask(directory, status, text, sizeof text);
    if (facts.dirty < 0)
        _exit(1);
    facts.untracked = ask(directory, untracked, text, sizeof text);
    if (facts.dirty > 0 &&
        (!hash_difference(directory, text, sizeof text) || !take_hash(facts.diff, sizeof facts.diff, text)))
        facts.diff[0] = '\0';
    _exit(lp_source_facts_write(folder, &facts) == LP_OK ? 0 : 1);
}
