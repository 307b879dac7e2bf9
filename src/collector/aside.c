#include "collector/aside.h"

#include <sys/prctl.h>

#define STACK ((size_t)256 << 10) /* libraries of drivers are called here */

void lp__aside_init(lp__aside *aside, const char *name, void (*work)(void *argument), void *argument)
{
    *aside = (lp__aside){.work = work, .argument = argument, .name = name};
    pthread_mutex_init(&aside->lock, NULL);
    pthread_cond_init(&aside->posted, NULL);
}

static void *run(void *argument)
{
    lp__aside *aside = argument;

    prctl(PR_SET_NAME, aside->name);
    pthread_mutex_lock(&aside->lock);
    for (;;) {
        while (aside->state != LP__ASIDE_POSTED)
            pthread_cond_wait(&aside->posted, &aside->lock);
        pthread_mutex_unlock(&aside->lock);
        aside->work(aside->argument);
        pthread_mutex_lock(&aside->lock);
        aside->state = LP__ASIDE_DONE;
    }
    return NULL;
}

bool lp__aside_is_free(lp__aside *aside)
{
    pthread_mutex_lock(&aside->lock);
    bool mine = aside->state == LP__ASIDE_FREE && !aside->failed;
    pthread_mutex_unlock(&aside->lock);
    return mine;
}

void lp__aside_post(lp__aside *aside)
{
    pthread_mutex_lock(&aside->lock);
    aside->state = LP__ASIDE_POSTED;
    pthread_cond_signal(&aside->posted);
    pthread_mutex_unlock(&aside->lock);
    if (!aside->started) {
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, STACK);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        aside->started = pthread_create(&thread, &attributes, run, aside) == 0;
        pthread_attr_destroy(&attributes);
        if (!aside->started) {
            aside->failed = true;
            aside->state = LP__ASIDE_FREE; /* nobody else looks at it */
        }
    }
}

bool lp__aside_take(lp__aside *aside)
{
    pthread_mutex_lock(&aside->lock);
    bool mine = aside->state == LP__ASIDE_DONE;
    if (mine)
        aside->state = LP__ASIDE_FREE;
    pthread_mutex_unlock(&aside->lock);
    return mine;
}
