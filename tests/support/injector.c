/* Runs a program, and lets system calls of it and of everything that it starts fail on demand.
 *
 *   injector RESULTS COMMAND...
 *
 * A seccomp filter hands the calls named below to this process (seccomp_unotify(2)), which answers them with an error or lets
 * the kernel go on. So no call escapes: neither those that bypass libc, nor those of a process that was cloned out of the
 * middle of another or lost its environment.
 *
 * Experiments. Many run at once, each in a folder of its own named "trial-<number>": a call belongs to the experiment whose folder
 * its path or descriptor leads to, or whose folder its process has touched before. The program steers by a system call of a
 * number that no kernel has:
 *
 *   syscall(0x6c70, 256 * trial, target, family, error, nth, sticky)  the calling process becomes the "program" of the
 *                                                                     experiment; the nth call of that family fails,
 *                                                                     and with sticky all after it
 *   syscall(0x6c70, 256 * trial + 1)                                  how many calls of the family there were
 *   syscall(0x6c70, 256 * trial + 2)                                  how many of them failed
 *
 * target 0: the program itself, 1: every other process (its forked children, the collector, the one that starts it).
 *
 * At the end, when no process with the filter is left, RESULTS gets a line "trial calls failed process: path" for each. Exit status: the
 * command's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL 0x6c70
#define LIBC_FORK 0x01000000u /* CLONE_CHILD_SETTID: only fork() of libc asks for it */
#define TRIALS 8192
#define PIDS (1 << 22)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum family {
    NONE,
    OPEN,
    READ,
    WRITE,
    SYNC,
    RENAME,
    MMAP,
    TRUNCATE,
    ALLOCATE,
    ADVISE,
    MAKE,
    LOCK,
    EVENTS,
    START,
    FAMILIES
};

/* How a call shows whose it is. */
enum kind { BY_PATH, BY_PATH_AT, BY_FD, BY_MAPPING, BY_PROCESS };

static const struct call {
    int number;
    enum family family;
    enum kind kind;
} calls[] = {
#ifdef SYS_open
    {SYS_open, OPEN, BY_PATH},
    {SYS_rename, RENAME, BY_PATH},
    {SYS_mkdir, MAKE, BY_PATH},
#endif
    {SYS_openat, OPEN, BY_PATH_AT},
#ifdef SYS_openat2
    {SYS_openat2, OPEN, BY_PATH_AT},
#endif
    {SYS_pread64, READ, BY_FD},
    {SYS_getdents64, READ, BY_FD},
    {SYS_write, WRITE, BY_FD},
    {SYS_pwrite64, WRITE, BY_FD},
    {SYS_writev, WRITE, BY_FD},
    {SYS_fsync, SYNC, BY_FD},
    {SYS_fdatasync, SYNC, BY_FD},
    {SYS_syncfs, SYNC, BY_FD},
#ifdef SYS_renameat
    {SYS_renameat, RENAME, BY_PATH_AT},
#endif
    {SYS_renameat2, RENAME, BY_PATH_AT},
    {SYS_mmap, MMAP, BY_MAPPING},
    {SYS_ftruncate, TRUNCATE, BY_FD},
    {SYS_fallocate, ALLOCATE, BY_FD},
    {SYS_madvise, ADVISE, BY_PROCESS},
    {SYS_mkdirat, MAKE, BY_PATH_AT},
    {SYS_flock, LOCK, BY_FD},
    {SYS_epoll_create1, EVENTS, BY_PROCESS},
    {SYS_epoll_ctl, EVENTS, BY_PROCESS},
    {SYS_signalfd4, EVENTS, BY_PROCESS},
    {SYS_inotify_init1, EVENTS, BY_PROCESS},
    {SYS_inotify_add_watch, EVENTS, BY_PROCESS},
#ifdef SYS_pidfd_open
    {SYS_pidfd_open, EVENTS, BY_PROCESS},
#endif
    {SYS_clone, START, BY_PROCESS},
    {SYS_execve, START, BY_PROCESS},
};
#define CALLS (sizeof calls / sizeof *calls)

static struct trial {
    pid_t program;
    int target, family, error;
    unsigned nth, calls, failed;
    int sticky;
    char where[160]; /* path of the first that failed, process of it: what to look for when a trial goes wrong */
} trials[TRIALS];
static uint16_t *trial_of; /* by pid; 0 none */

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "injector: %s: %s\n", what, strerror(errno));
    exit(125);
}

/* ---- the filter */

static int install(void)
{
    struct sock_filter code[8 * CALLS + 16];
    unsigned short at = 0;
    struct seccomp_data *d = NULL;

#define LOAD(field) code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(uintptr_t)&d->field)
#define ANSWER(what) code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what)
#define UNLESS(value, skip)                                                                                            \
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), 0, skip)
#define UNLESS_SET(bits, skip)                                                                                         \
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(bits), 0, skip)
    LOAD(nr);
    UNLESS(CONTROL, 1);
    ANSWER(SECCOMP_RET_USER_NOTIF);
    for (size_t i = 0; i < CALLS; i++) {
        if (calls[i].number == SYS_madvise) { /* other advice is no request */
            UNLESS(SYS_madvise, 4);
            LOAD(args[2]);
            UNLESS(MADV_POPULATE_WRITE, 1);
            ANSWER(SECCOMP_RET_USER_NOTIF);
            ANSWER(SECCOMP_RET_ALLOW);
        } else if (calls[i].number ==
                   SYS_mmap) { /* shared memory, or reserved: malloc's and the loader's are not asked */
            UNLESS(SYS_mmap, 6);
            LOAD(args[3]);
            UNLESS_SET(MAP_SHARED | MAP_NORESERVE, 3);
            LOAD(args[2]);
            UNLESS(PROT_READ | PROT_WRITE, 1);
            ANSWER(SECCOMP_RET_USER_NOTIF);
            ANSWER(SECCOMP_RET_ALLOW);
        } else if (calls[i].number == SYS_clone) { /* threads are none of ours */
            UNLESS(SYS_clone, 4);
            LOAD(args[0]);
            UNLESS_SET(0x00010000 /* CLONE_THREAD */, 1);
            ANSWER(SECCOMP_RET_ALLOW);
            ANSWER(SECCOMP_RET_USER_NOTIF);
        } else {
            UNLESS(calls[i].number, 1);
            ANSWER(SECCOMP_RET_USER_NOTIF);
        }
    }
    ANSWER(SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = at, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        die("no_new_privs");
    int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (fd < 0)
        die("seccomp");
    return fd;
}

static void send_fd(int socket, int fd)
{
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec io = {&byte, 1};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1)
        die("sendmsg");
}

static int receive_fd(int socket)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec io = {&byte, 1};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd;

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message)) {
        errno = EPROTO;
        die("recvmsg");
    }
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* ---- whose call is it */

static void read_text(pid_t pid, uint64_t address, char *text, size_t room)
{
    size_t done = 0;

    while (done < room - 1) { /* not across a page that may not be there */
        size_t part = 4096 - (size_t)((address + done) & 4095);
        if (part > room - 1 - done)
            part = room - 1 - done;
        struct iovec here = {text + done, part}, there = {(void *)(uintptr_t)(address + done), part};
        ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (got <= 0)
            break;
        done += (size_t)got;
        if (memchr(text + done - (size_t)got, 0, (size_t)got))
            break;
    }
    text[done] = '\0';
}

static void read_link(pid_t pid, const char *what, char *text, size_t room)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    ssize_t size = readlink(path, text, room - 1);
    text[size > 0 ? size : 0] = '\0';
}

static void read_comm(pid_t pid, char *text, size_t room)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "r");
    text[0] = '\0';
    if (file) {
        if (fgets(text, (int)room, file))
            text[strcspn(text, "\n")] = '\0';
        fclose(file);
    }
}

static void of_fd(pid_t pid, int fd, char *text, size_t room)
{
    char what[32];

    snprintf(what, sizeof what, "fd/%d", fd);
    read_link(pid, what, text, room);
}

static void of_path(pid_t pid, int dirfd, uint64_t address, char *text, size_t room)
{
    char path[PATH_MAX];
    int fd;

    read_text(pid, address, path, sizeof path);
    if (sscanf(path, "/proc/self/fd/%d", &fd) == 1) {
        of_fd(pid, fd, text, room);
    } else if (path[0] == '/') {
        snprintf(text, room, "%s", path);
    } else {
        if (dirfd == AT_FDCWD)
            read_link(pid, "cwd", text, room);
        else
            of_fd(pid, dirfd, text, room);
        size_t size = strlen(text);
        snprintf(text + size, room - size, "/%.200s", path);
    }
}

static unsigned trial_in(const char *text)
{
    unsigned trial = 0;
    const char *at = strstr(text, "/trial-");

    return at && sscanf(at, "/trial-%u", &trial) == 1 && trial < TRIALS ? trial : 0;
}

static unsigned find_trial(const struct seccomp_notif *n, const struct call *call, char *text, size_t room)
{
    pid_t pid = (pid_t)n->pid;
    const uint64_t *args = (const uint64_t *)(uintptr_t)n->data.args;

    switch (call->kind) {
    case BY_PATH: of_path(pid, AT_FDCWD, args[0], text, room); break;
    case BY_PATH_AT: of_path(pid, (int)args[0], args[1], text, room); break;
    case BY_FD: of_fd(pid, (int)args[0], text, room); break;
    case BY_MAPPING:
        if ((int)args[4] < 0)
            return trial_of[pid];
        of_fd(pid, (int)args[4], text, room);
        break;
    case BY_PROCESS: return trial_of[pid];
    }
    unsigned trial = trial_in(text);
    if (trial)
        trial_of[pid] = (uint16_t)trial;
    /* Files of the kernel's that a program asks about itself count as its experiment's. */
    else if (call->family == OPEN && (strncmp(text, "/proc/", 6) == 0 || strncmp(text, "/sys/", 5) == 0))
        trial = trial_of[pid];
    return trial;
}

static int64_t control(const struct seccomp_notif *n)
{
    const uint64_t *a = (const uint64_t *)(uintptr_t)n->data.args;
    unsigned number = (unsigned)(a[0] >> 8);
    struct trial *t = &trials[number < TRIALS ? number : 0];

    switch (a[0] & 255) {
    case 0:
        *t = (struct trial){.program = (pid_t)n->pid,
                            .target = (int)a[1],
                            .family = (int)a[2],
                            .error = (int)a[3],
                            .nth = (unsigned)a[4],
                            .sticky = (int)a[5]};
        trial_of[n->pid] = (uint16_t)number;
        return 0;
    case 1: return t->calls;
    default: return t->failed;
    }
}

/* The errno to answer with, 0: let the kernel go on. */
static int decide(const struct seccomp_notif *n)
{
    char text[PATH_MAX] = "";

    for (size_t i = 0; i < CALLS; i++) {
        if (calls[i].number != n->data.nr)
            continue;
        unsigned number = find_trial(n, &calls[i], text, sizeof text);
        struct trial *t = &trials[number];
        if (calls[i].number == SYS_clone && (pid_t)n->pid == t->program && n->data.args[0] & LIBC_FORK)
            return 0; /* the program's own */
        if (!number || ((pid_t)n->pid == t->program) != (t->target == 0))
            return 0;
        if (calls[i].family == ADVISE && t->family == ALLOCATE)
            return EINVAL; /* a kernel before 5.14 */
        if ((int)calls[i].family != t->family)
            return 0;
        t->calls++;
        if (t->calls < t->nth || (t->calls > t->nth && !t->sticky))
            return 0;
        if (t->failed++ == 0) {
            char name[32];
            read_comm((pid_t)n->pid, name, sizeof name);
            snprintf(t->where, sizeof t->where, "%s: %.120s", name, text);
        }
        return t->error;
    }
    return 0;
}

static void serve(int listener)
{
    static union {
        struct seccomp_notif notif;
        char room[1024];
    } n;
    static union {
        struct seccomp_notif_resp resp;
        char room[1024];
    } r;

    for (;;) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        if (poll(&wait, 1, -1) < 0 && errno != EINTR)
            die("poll");
        if (wait.revents & POLLHUP)
            return;
        if (!(wait.revents & POLLIN))
            continue;
        memset(&n, 0, sizeof n);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n.notif) != 0)
            continue; /* it was killed meanwhile */
        memset(&r, 0, sizeof r);
        r.resp.id = n.notif.id;
        if (n.notif.data.nr == CONTROL) {
            r.resp.val = control(&n.notif);
        } else {
            int error = decide(&n.notif);
            r.resp.error = -error;
            r.resp.flags = error ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        }
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r.resp);
    }
}

int main(int argc, char **argv)
{
    int ends[2], status;
    char byte;

    if (argc < 3) {
        fprintf(stderr, "usage: injector RESULTS COMMAND...\n");
        return 125;
    }
    trial_of =
        mmap(NULL, PIDS * sizeof *trial_of, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (trial_of == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        die("start");
    pid_t child = fork();
    if (child == 0) {
        int listener = install();
        send_fd(ends[1], listener);
        close(listener);
        if (read(ends[1], &byte, 1) != 1)
            _exit(125);
        execv(argv[2], argv + 2);
        _exit(125);
    }
    int listener = child > 0 ? receive_fd(ends[0]) : -1;
    if (listener < 0 || write(ends[0], "", 1) != 1)
        die("start");
    serve(listener);
    if (waitpid(child, &status, 0) != child)
        die("waitpid");
    FILE *results = fopen(argv[1], "w");
    if (!results)
        die(argv[1]);
    for (unsigned i = 1; i < TRIALS; i++)
        if (trials[i].nth)
            fprintf(results, "%u %u %u %s\n", i, trials[i].calls, trials[i].failed, trials[i].where);
    if (fclose(results) != 0)
        die(argv[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
