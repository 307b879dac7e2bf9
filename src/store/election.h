/* Which process collects for a run: the file in the run's folder of segments whose flock elects it.
 *
 * Whoever starts a collector takes the lock first and hands the open file on; the collector signs it with its pid and start
 * time. So a process can see by reading, without touching the lock, that a collector lives: a lock taken only to look
 * would turn away somebody who comes to start one in that moment.
 *
 * One collector for each (run, run directory, pid, mount and time namespace, segment layout): pids, paths and start times
 * mean something else in another. Nothing here allocates but lp_election_tidy; errno is kept where no result says otherwise. */
#ifndef LP_STORE_ELECTION_H
#define LP_STORE_ELECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LP_ELECTION_ROOM 160 /* of a name, with its end */

/* Name of the file for this process's namespaces and this run directory. */
void lp_election_name(char out[LP_ELECTION_ROOM], uint64_t run_dir_dev, uint64_t run_dir_ino);
/* The same for namespaces that the caller has looked at. */
void lp_election_name_in(char out[LP_ELECTION_ROOM], uint64_t pid_ns, uint64_t mnt_ns, uint64_t time_ns,
                         uint64_t run_dir_dev, uint64_t run_dir_ino);
/* true: a living collector has signed the file, or somebody is just starting one. The lock is not touched. */
bool lp_election_is_held(int dirfd, const char *name);
/* The same in a third of the time: a process of the signed pid is there, be it a zombie or one that got the pid since. For who
 * asks again (a forked child, whose parent has asked, and who asks when a snapshot is overdue). */
bool lp_election_seems_held(int dirfd, const char *name);
/* Pid of the living collector that has signed the file; 0: none, or one that is just starting. */
int64_t lp_election_collector(int dirfd, const char *name);
/* Descriptor that holds the lock, of the file that has the name now; owned by the caller, who must sign or close it. -1: errno,
 * EWOULDBLOCK when another holds it. A lock that outlived its collector (a forked child had got a copy of the descriptor)
 * is left to the dead: the file is replaced. Only system calls, so that a child that shares its parent's memory may call it. */
int lp_election_take(int dirfd, const char *name);
/* The name still leads to this file. */
bool lp_election_is_ours(int dirfd, const char *name, int fd);
/* Writes pid and start time of the calling process. */
bool lp_election_sign(int fd);
/* What collectors leave in a folder without segments, when they are killed; then the folder. Does nothing while there are
 * segments, or a collector. */
void lp_election_tidy(int dirfd, const char *path);

#endif
