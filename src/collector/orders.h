/* Which segments get an order to be written, and what becomes of its outcome: the loop's side of write.h. */
#ifndef LP_COLLECTOR_ORDERS_H
#define LP_COLLECTOR_ORDERS_H

#include "collector/watch.h"
#include "collector/write.h"

#define LP__HOPELESS 4u /* failures in a row after which a dead segment is left to a reader of this host */

/* Orders for the dead: their last snapshots. `look`: ask every lock; else only those of which there is a sign. */
void lp__order_dead(lp__watch *watch, lp__batch *batch, bool look);
/* Orders for the living whose time has come; `all`: for all of them. false: some had no room any more. */
bool lp__order_living(lp__watch *watch, lp__batch *batch, bool all);
/* Takes the outcomes over; true: there were dead among them. */
bool lp__settle_orders(lp__watch *watch, const lp__batch *batch);

#endif
