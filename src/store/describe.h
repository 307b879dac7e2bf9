/* Who and where this process is: host, boot id, start time, launcher rank, hardware, git commit from the files of
 * .git (no child process). Every function fills what it can and leaves the rest unknown; nothing fails but memory. */
#ifndef LP_STORE_DESCRIBE_H
#define LP_STORE_DESCRIBE_H

#include "store/model.h"

/* host, boot_id, uuid (new, from getrandom), pid, pid_start, started_ns, namespaces, launcher variables, platform,
 * hardware; other fields stay. */
lp_status lp_describe_process(lp_arena *arena, lp_identity *id);
/* What tells a process's namespaces: the inodes are dear in a new process (the kernel makes its entries of /proc first), the mount
 * says whether a fork can have changed them. */
typedef struct lp_namespaces {
    uint64_t time_ns;  /* inode of /proc/self/ns/time, 0 unknown */
    uint64_t mount_id; /* of "/": another in every mount namespace; 0 unknown (before Linux 5.8) */
} lp_namespaces;
void lp_describe_namespaces(lp_namespaces *ns); /* keeps errno */
/* lp_describe_process in a forked child whose parent has filled `id` and `ns`: what a fork leaves as it was (boot id, platform, cores,
 * memory) stays, since reading it again would be most of the cost of a child's first phase. Namespaces are looked at again where
 * the parent is not the one of `id`, "/" is another, or `same_clock` is false: CLOCK_MONOTONIC is not what it was there. */
lp_status lp_describe_child(lp_arena *arena, lp_identity *id, lp_namespaces *ns, bool same_clock);
/* source_commit of the repository that holds `directory` (nearest ancestor with .git): HEAD, packed refs, worktrees
 * (gitdir files, commondir), detached heads, sha1 and sha256. */
lp_status lp_describe_source(lp_arena *arena, const char *directory, lp_identity *id);
lp_status lp_describe_run_dir(const char *run_dir, lp_identity *id); /* run_dir_*; zeros if it is not there */
/* A process of this pid and start time (LP_UNKNOWN_I64: any) runs: it is no zombie, whose parent may take its time. Of one thread:
 * the state is that of the first. One whose files in /proc cannot be read runs as long as there is that pid. */
bool lp_describe_pid_runs(int64_t pid, int64_t start);
/* No process and no zombie has this pid. Asked of the kernel for its process group: who cannot open files is told, too. */
bool lp_describe_pid_is_gone(int64_t pid);
/* /proc/<pid>/stat field 22, clock ticks since boot. LP_UNKNOWN_I64 if it is gone, or if the file cannot be read (no descriptor is
 * free, no /proc is mounted): that alone is no sign of a death. */
int64_t lp_describe_pid_start(int64_t pid);

#endif
