/* Runs a program on a kernel, or in a container, that refuses system calls.
 *
 *   refuser ERRNO NAME,NAME... COMMAND...
 *
 * A seccomp filter answers each named call of the command, and of everything that it starts, with that errno: ENOSYS is what a
 * kernel says that does not have the call yet, EPERM what a container's own filter says. "populate" is no call but
 * madvise(MADV_POPULATE_WRITE), which an older kernel answers with EINVAL whatever the others say; "exit-info" is the ioctl
 * PIDFD_GET_INFO, to which it says ENOTTY. Exit status: the command's, or 125. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WIPE_ON_FORK 18      /* MADV_WIPEONFORK, Linux 4.14 */
#define POPULATE 23          /* MADV_POPULATE_WRITE, Linux 5.14 */
#define EXIT_INFO 0xc040ff0b /* PIDFD_GET_INFO with the structure's first size, Linux 6.13 */
#define MOST 32

/* Numbers of calls newer than the unified table are the same on every machine. */
static const struct call {
    const char *name;
    int number;
    int argument; /* -1 all calls; else those whose argument of that index is `value` */
    uint32_t value;
    int error; /* 0: as the command line says */
} calls[] = {
    {"rseq", SYS_rseq, -1, 0, 0},
    {"perf_event_open", SYS_perf_event_open, -1, 0, 0},
    {"pidfd_open", 434, -1, 0, 0},
    {"clone3", 435, -1, 0, 0},
    {"close_range", 436, -1, 0, 0},
    {"openat2", 437, -1, 0, 0},
    {"statx", SYS_statx, -1, 0, 0},
    {"membarrier", SYS_membarrier, -1, 0, 0},
    {"inotify_init1", SYS_inotify_init1, -1, 0, 0},
    {"renameat2", SYS_renameat2, -1, 0, 0},
    {"wipe", SYS_madvise, 2, WIPE_ON_FORK, EINVAL},
    {"populate", SYS_madvise, 2, POPULATE, EINVAL},
    {"exit-info", SYS_ioctl, 1, EXIT_INFO, ENOTTY},
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "refuser: %s: %s\n", what, why);
    exit(125);
}

static const struct call *call_of(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, name) == 0)
            return &calls[i];
    die(name, "no such call");
}

int main(int argc, char **argv)
{
    struct sock_filter code[6 * MOST + 2];
    unsigned short at = 0;

    if (argc < 4)
        die("usage", "refuser ERRNO NAME,NAME... COMMAND...");
    uint32_t error = (uint32_t)atoi(argv[1]);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (char *name = strtok(argv[2], ","); name; name = strtok(NULL, ",")) {
        const struct call *one = call_of(name);
        uint32_t answer = SECCOMP_RET_ERRNO | (one->error ? (uint32_t)one->error : error);
        unsigned char skip = one->argument < 0 ? 1 : 4;
        if (at + 7u > sizeof code / sizeof *code)
            die(name, "too many");
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)one->number, 0, skip);
        if (one->argument >= 0) { /* little-endian: the lower half comes first */
            uint32_t where = (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)one->argument);
            code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, where);
            code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, one->value, 0, 1);
            code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer);
            code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
        } else
            code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = at, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        die("seccomp", strerror(errno));
    execvp(argv[3], argv + 3);
    die(argv[3], strerror(errno));
}
