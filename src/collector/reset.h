/* A process that was started out of the middle of somebody's program becomes nobody's: own session, no descriptors, no signal set
 * ignored or blocked (but those that it reads itself), no soft limit, scheduling policy, nice value (where the kernel lets us back:
 * root), I/O priority or CPU of the program's. Hard limits stay, and so do cgroups and namespaces. */
#ifndef LP_COLLECTOR_RESET_H
#define LP_COLLECTOR_RESET_H

/* Keeps `keep` (-1: none) and nothing else open; 0, 1, 2 become /dev/null. The umask stays, but our own bits are not masked: files
 * are for whom the program's are. oom_score_adj stays: where the program is to die first, so are we. */
void lp__collector_reset(int keep);

#endif
