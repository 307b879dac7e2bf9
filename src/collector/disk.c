#include "collector/disk.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The deepest need is that of a path and a segment's head on the way to a snapshot, some 20 KB. */
#define STACK ((size_t)512 << 10)

static void tell(lp__disk *disk)
{
    uint64_t one = 1;

    while (write(disk->done, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

static void *work(void *argument)
{
    lp__disk *disk = argument;

    prctl(PR_SET_NAME, "lineprofiler-dk");
    pthread_mutex_lock(&disk->lock);
    for (;;) {
        while (disk->state != LP__DISK_POSTED && !disk->ending)
            pthread_cond_wait(&disk->posted, &disk->lock);
        if (disk->state != LP__DISK_POSTED)
            break;
        pthread_mutex_unlock(&disk->lock);
        lp__write_batch(&disk->writer, &disk->batch);
        pthread_mutex_lock(&disk->lock);
        disk->state = LP__DISK_DONE;
        tell(disk); /* under the lock: who takes the batch finds the word of it */
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

bool lp__disk_start(lp__disk *disk)
{
    pthread_attr_t attributes;

    disk->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (disk->done < 0)
        return false;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->posted, NULL);
    disk->state = LP__DISK_FREE;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    disk->has_thread = pthread_create(&disk->thread, &attributes, work, disk) == 0;
    pthread_attr_destroy(&attributes);
    return true;
}

lp__batch *lp__disk_free(lp__disk *disk)
{
    pthread_mutex_lock(&disk->lock);
    bool mine = disk->state == LP__DISK_FREE;
    pthread_mutex_unlock(&disk->lock);
    if (!mine)
        return NULL;
    disk->batch.count = disk->batch.append_count = 0;
    disk->batch.adopt = disk->batch.sync = false;
    return &disk->batch;
}

void lp__disk_post(lp__disk *disk)
{
    if (!disk->has_thread) {
        lp__write_batch(&disk->writer, &disk->batch);
        disk->state = LP__DISK_DONE;
        tell(disk);
        return;
    }
    pthread_mutex_lock(&disk->lock);
    disk->state = LP__DISK_POSTED;
    pthread_cond_signal(&disk->posted);
    pthread_mutex_unlock(&disk->lock);
}

lp__batch *lp__disk_take(lp__disk *disk)
{
    uint64_t count;

    pthread_mutex_lock(&disk->lock);
    bool mine = disk->state == LP__DISK_DONE;
    if (mine)
        disk->state = LP__DISK_FREE;
    pthread_mutex_unlock(&disk->lock);
    if (!mine)
        return NULL;
    while (read(disk->done, &count, sizeof count) < 0 && errno == EINTR) {
    }
    return &disk->batch;
}

void lp__disk_end(lp__disk *disk)
{
    if (disk->has_thread) {
        pthread_mutex_lock(&disk->lock);
        disk->ending = true;
        pthread_cond_signal(&disk->posted);
        pthread_mutex_unlock(&disk->lock);
        pthread_join(disk->thread, NULL);
    }
    close(disk->done);
}
