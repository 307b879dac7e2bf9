/* Where the program is PID 1 or a child subreaper, an orphan would be given to it, and its wait() would find a stranger. So the
 * collector gets a parent: a child of the program that wait() does not see, and that holds nothing of the program's memory. */
#ifndef LP_COLLECTOR_KEEPER_H
#define LP_COLLECTOR_KEEPER_H

#include <stdbool.h>
#include <sys/types.h>

/* true: the orphans of this process would become its own children. */
bool lp__keeper_is_needed(void);
/* fork() without CLONE_VM, with no exit signal, and without atfork handlers. As fork(). */
pid_t lp__keeper_fork(void);
/* In that child: lets go of descriptors and memory, waits for `child`, ends. */
_Noreturn void lp__keeper_wait(pid_t child);

#endif
