/* A thread for one kind of call that may hang (a memory map that is locked, a driver that does not answer): one job at a time,
 * posted and taken by the loop, which never waits. A thread that hangs stays behind when the collector ends. */
#ifndef LP_COLLECTOR_ASIDE_H
#define LP_COLLECTOR_ASIDE_H

#include <pthread.h>
#include <stdbool.h>

typedef struct lp__aside {
    void (*work)(void *argument); /* in the thread; what `argument` leads to is its own from a post on */
    void *argument;
    const char *name;
    pthread_mutex_t lock;
    pthread_cond_t posted;
    enum { LP__ASIDE_FREE, LP__ASIDE_POSTED, LP__ASIDE_DONE } state; /* under the lock */
    bool started, failed;
} lp__aside;

/* `name`: of the thread, 15 bytes; static. Nothing is made yet: the first post starts the thread. */
void lp__aside_init(lp__aside *aside, const char *name, void (*work)(void *argument), void *argument);
/* May the argument be filled and posted? false: the thread is at it, its outcome waits, or no thread could be made. */
bool lp__aside_is_free(lp__aside *aside);
void lp__aside_post(lp__aside *aside);
/* true, once for each post: it is done, and the argument is the loop's again. */
bool lp__aside_take(lp__aside *aside);

#endif
