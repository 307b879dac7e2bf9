#include "store/end.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/describe.h"
#include "store/files.h"
#include "store/internal.h"

/* From linux/pidfd.h of 6.15; older headers have none of it. The kernel takes this size, its first, for ever. */
typedef struct pidfd_answer {
    uint64_t mask, cgroupid;
    uint32_t pid, tgid, ppid, ids[8];
    int32_t exit_code;
} pidfd_answer;
_Static_assert(sizeof(pidfd_answer) == 64, "PIDFD_INFO_SIZE_VER0");
#define PIDFD_ASK _IOWR(0xff, 11, pidfd_answer)
#define PIDFD_ANSWERS_EXIT 8u

#define EXITING_FLAG 0x4u /* PF_EXITING of linux/sched.h, in field 9 */
#define TRIES 10          /* a millisecond apart, between a zombie's end and the pidfd's knowledge of it */

#define PACKED_LOOKED ((uint64_t)1 << 32)
#define PACKED_KNOWN ((uint64_t)1 << 33)
#define PACKED_CORE ((uint64_t)1 << 34)
#define PACKED_REPLACED ((uint64_t)1 << 35)

static const lp_end unknown = {.code = LP_UNKNOWN_I64};

static lp_end of_status(int status)
{
    if (WIFSIGNALED(status))
        return (lp_end){.code = -WTERMSIG(status), .core_dumped = WCOREDUMP(status)};
    return (lp_end){.code = WEXITSTATUS(status)};
}

typedef struct stat_line {
    char state;
    uint64_t flags;
    int64_t start;
    int status;
} stat_line;

/* false: there is no such process. */
static bool read_stat(int64_t pid, stat_line *line)
{
    char path[40], text[1024];

    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    if (pid <= 0 || lp__read_text(AT_FDCWD, path, text, sizeof text - 1) <= 0)
        return false;
    const char *at = strrchr(text, ')'); /* field 2 is the command in parentheses and may hold any of them */
    if (!at || !at[1])
        return false;
    *line = (stat_line){.state = at[2]};
    for (int field = 3; (at = strchr(at + 1, ' ')); field++) {
        if (field == 9)
            line->flags = strtoull(at, NULL, 10);
        else if (field == 22)
            line->start = strtoll(at, NULL, 10);
        else if (field == 52)
            line->status = (int)strtol(at, NULL, 10);
    }
    return true;
}

/* The status reads 0 for who may not trace the process. Of a zombie that may, the link of its program leads nowhere. */
static bool may_see(int64_t pid)
{
    char path[40], target[8];

    snprintf(path, sizeof path, "/proc/%" PRId64 "/exe", pid);
    return readlink(path, target, sizeof target) >= 0 || errno == ENOENT;
}

static lp_end look_once(int64_t pid, int64_t start, int pidfd, bool *again)
{
    stat_line line;

    *again = false;
    if (read_stat(pid, &line) && line.start == start) {
        if ((line.state == 'Z' || line.state == 'X') && (line.status != 0 || may_see(pid)))
            return of_status(line.status);
    }
    pidfd_answer answer = {.mask = PIDFD_ANSWERS_EXIT};
    /* Not by ioctl(), whose request is an int in musl and a long in glibc. */
    if (pidfd >= 0 && syscall(SYS_ioctl, pidfd, PIDFD_ASK, &answer) == 0) {
        if (answer.mask & PIDFD_ANSWERS_EXIT)
            return of_status(answer.exit_code);
        *again = true;
    }
    return unknown;
}

lp_end lp_end_look(int64_t pid, int64_t start, int pidfd)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int saved = errno;
    bool again = false;
    lp_end end = look_once(pid, start, pidfd, &again);

    for (int i = 1; i < TRIES && again; i++) {
        nanosleep(&pause, NULL);
        end = look_once(pid, start, pidfd, &again);
    }
    errno = saved;
    return end;
}

bool lp_end_is_near(int64_t pid, int64_t start)
{
    stat_line line;
    int saved = errno;
    bool near = read_stat(pid, &line) && line.start == start && line.state != 'Z' && line.state != 'X' &&
                (line.flags & EXITING_FLAG);

    errno = saved;
    return near;
}

uint64_t lp_end_pack(lp_end end)
{
    uint64_t word = PACKED_LOOKED;

    if (end.code != LP_UNKNOWN_I64)
        word |= PACKED_KNOWN | (uint32_t)end.code;
    return word | (end.core_dumped ? PACKED_CORE : 0) | (end.replaced ? PACKED_REPLACED : 0);
}

lp_end lp_end_unpack(uint64_t word)
{
    lp_end end = unknown;

    if (word & PACKED_KNOWN)
        end.code = (int32_t)(uint32_t)word;
    if (end.code < -64 || end.code > 255) /* nothing that a process can end with */
        end.code = LP_UNKNOWN_I64;
    end.core_dumped = end.code != LP_UNKNOWN_I64 && (word & PACKED_CORE);
    end.replaced = word & PACKED_REPLACED;
    return end;
}

static bool is_here(const char *path, uint64_t inode)
{
    struct stat st;
    return inode != 0 && stat(path, &st) == 0 && (uint64_t)st.st_ino == inode;
}

lp_end lp_end_of(const lp_identity *id, uint64_t time_ns)
{
    lp_end end = unknown;
    int saved = errno;
    stat_line line;

    /* a pid means its process in its own namespace only, a start time on its own clock */
    if (is_here("/proc/self/ns/pid", id->pid_ns) && is_here("/proc/self/ns/time", time_ns) && id->pid_start > 0) {
        end = lp_end_look(id->pid, id->pid_start, -1);
        end.replaced = end.code == LP_UNKNOWN_I64 && read_stat(id->pid, &line) && line.start == id->pid_start &&
                       line.state != 'Z' && line.state != 'X' && !(line.flags & EXITING_FLAG);
    }
    errno = saved;
    return end;
}
