/* The thread for the disk. Whatever hangs there (a frozen file system, a server that is gone) hangs alone: the loop goes on to watch,
 * to sample and to hear signals.
 *
 * Between the two there is one mailbox of one batch. The loop fills it while it is free and posts it; then it belongs to the
 * thread; when the outcome is in it the thread gives it back and says so through an eventfd. So the queue is bounded by what one
 * batch holds, nothing is shared at any time, and who waits (the dead, whose segments stay open) waits in the loop's table. */
#ifndef LP_COLLECTOR_DISK_H
#define LP_COLLECTOR_DISK_H

#include <pthread.h>

#include "collector/write.h"

typedef struct lp__disk {
    lp__writer writer; /* the thread's, from the first post on */
    lp__batch batch;   /* whose it is: `state` */
    pthread_mutex_t lock;
    pthread_cond_t posted;
    enum { LP__DISK_FREE, LP__DISK_POSTED, LP__DISK_DONE } state; /* under the lock */
    bool ending;                                                  /* under the lock */
    int done;                                                     /* owned: eventfd, readable when a batch is back */
    bool has_thread; /* false: none could be made; then a post does the work itself, and the loop waits */
    pthread_t thread;
} lp__disk;

/* `writer` is filled in. Signals must be blocked already: the thread inherits the mask. false: not even an eventfd. */
bool lp__disk_start(lp__disk *disk);
/* The batch to be filled, empty; NULL while the thread has it or its outcome is not taken. */
lp__batch *lp__disk_free(lp__disk *disk);
void lp__disk_post(lp__disk *disk);
/* The batch with its outcomes; NULL: not yet. Then lp__disk_free has it again. */
lp__batch *lp__disk_take(lp__disk *disk);
/* Waits until the thread has done what was posted (its outcome is lost) and ends it. */
void lp__disk_end(lp__disk *disk);

#endif
