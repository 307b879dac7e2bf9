/* Asks git, once, how the program's work tree differs from its commit. git may take long (a large tree on a slow disk), so a child
 * of the collector waits for it. */
#ifndef LP_COLLECTOR_SOURCE_H
#define LP_COLLECTOR_SOURCE_H

#include <sys/types.h>

/* Starts the child, which leaves the answer with lp_source_facts_write and ends. Its process group is its own; -1: none. */
pid_t lp__source_ask(const char *directory, int folder);

#endif
