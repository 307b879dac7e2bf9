/* What the collector writes: snapshots of the living, last snapshots of the dead. */
#ifndef LP_COLLECTOR_WRITE_H
#define LP_COLLECTOR_WRITE_H

#include "collector/watch.h"
#include "store/source_facts.h"

#define LP__HOPELESS 4u /* failures in a row after which a dead segment is left to a reader of this host */

typedef struct lp__writer {
    lp__watch *watch;
    lp_source_facts facts; /* commit "" until git has answered */
} lp__writer;

/* Looks whether git has answered. */
void lp__write_learn(lp__writer *writer);
/* Snapshots of the living whose time has come and that have recorded since; `all`: of all of them, now, and synced. */
void lp__write_living(lp__writer *writer, bool all);
/* Last snapshots of the dead: synced, then their segments go. `look`: ask every lock; else only for those of which there is a
 * sign. true: there were some. */
bool lp__write_dead(lp__writer *writer, bool look);

#endif
