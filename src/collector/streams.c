#include "collector/streams.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/describe.h"

#define HOPELESS 4u /* failures in a row after which an ended stream is given up */
#define RETRY_NS 1000000000u

lp__stream *lp__stream_new(lp__streams *streams, lp_worker *head, lp_series series, uint64_t interval_ns)
{
    lp__stream *stream = calloc(1, sizeof *stream);
    int64_t pid = (int64_t)getpid(), start = lp_describe_pid_start(pid);
    lp_sample_head what = {.series = series,
                           .id = &head->id,
                           .interval_ns = interval_ns,
                           .collector_pid = pid,
                           .collector_start = start > 0 ? (uint64_t)start : 0};

    if (!stream || lp_samples_put_head(&stream->start, &what) != LP_OK) {
        if (stream)
            lp_buffer_free(&stream->start);
        free(stream);
        return NULL;
    }
    stream->head = head;
    stream->series = series;
    stream->fd = -1;
    stream->next = streams->list;
    streams->list = stream;
    return stream;
}

bool lp__stream_has_room(const lp__stream *stream)
{
    return stream->waiting.size + stream->sending.size < LP__STREAM_ROOM && !stream->waiting.failed;
}

void lp__stream_end(lp__stream *stream)
{
    stream->ending = true;
}

static void remove_stream(lp__streams *streams, lp__stream *stream)
{
    lp__stream **link = &streams->list;

    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    if (stream->fd >= 0)
        close(stream->fd);
    lp_buffer_free(&stream->start);
    lp_buffer_free(&stream->waiting);
    lp_buffer_free(&stream->sending);
    lp_worker_free(stream->head);
    free(stream);
}

static bool has_work(const lp__stream *stream)
{
    return !stream->lost && (stream->waiting.size > 0 || stream->sending.size > 0);
}

void lp__streams_give(lp__streams *streams, lp__batch *batch, uint64_t now)
{
    for (lp__stream *s = streams->list, *next; s; s = next) {
        next = s->next;
        if (s->busy)
            continue;
        if (s->ending && (!has_work(s) || s->failures >= HOPELESS)) {
            remove_stream(streams, s);
            continue;
        }
        if (!has_work(s) || now < s->retry_ns || batch->append_count == LP__APPENDS)
            continue;
        if (s->sending.size == 0) {
            lp_buffer empty = s->sending;
            s->sending = s->waiting;
            empty.size = 0;
            s->waiting = empty;
        }
        batch->appends[batch->append_count++] = (lp__append){.who = s,
                                                             .series = s->series,
                                                             .id = &s->head->id,
                                                             .fd = s->fd,
                                                             .start = &s->start,
                                                             .bytes = &s->sending,
                                                             .close = s->ending && s->waiting.size == 0};
        s->busy = true;
    }
}

void lp__streams_take(lp__streams *streams, const lp__batch *batch, uint64_t now)
{
    for (unsigned i = 0; i < batch->append_count; i++) {
        const lp__append *a = &batch->appends[i];
        lp__stream *s = a->who;
        s->busy = false;
        s->fd = a->fd;
        s->lost = a->lost;
        if (a->ok) {
            s->sending.size = 0;
            s->failures = 0;
            if (s->ending && !has_work(s))
                remove_stream(streams, s);
        } else {
            s->failures++;
            s->retry_ns = now + RETRY_NS;
        }
    }
}

unsigned lp__streams_pending(const lp__streams *streams)
{
    unsigned count = 0;

    for (const lp__stream *s = streams->list; s; s = s->next)
        count += s->busy || (has_work(s) && s->failures < HOPELESS);
    return count;
}

uint64_t lp__streams_due(const lp__streams *streams)
{
    uint64_t due = UINT64_MAX;

    for (const lp__stream *s = streams->list; s; s = s->next)
        if (!s->busy && has_work(s) && s->retry_ns < due)
            due = s->retry_ns;
    return due;
}
