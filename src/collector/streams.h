/* Sample files as the loop sees them: bytes that wait for the disk, and whether it has them. The files themselves are made and
 * written by the thread for the disk (write.h). */
#ifndef LP_COLLECTOR_STREAMS_H
#define LP_COLLECTOR_STREAMS_H

#include "collector/write.h"
#include "store/samples.h"

#define LP__STREAM_ROOM (4u << 20) /* bytes that wait while the disk does not answer; what comes then is lost */

typedef struct lp__stream {
    struct lp__stream *next;
    lp_worker *head; /* owned: whose file it is */
    lp_series series;
    int fd;            /* owned; the disk's while busy */
    lp_buffer start;   /* of the file */
    lp_buffer waiting; /* put here by the sampler */
    lp_buffer sending; /* the disk's while busy */
    bool busy, ending; /* ending: nothing follows; the stream goes when its bytes are safe */
    bool lost;         /* its file was removed: what is put here goes nowhere, and another one must be begun */
    unsigned failures; /* in a row */
    uint64_t retry_ns;
} lp__stream;

typedef struct lp__streams {
    lp__stream *list;
} lp__streams;

/* Takes `head`. NULL without memory. */
lp__stream *lp__stream_new(lp__streams *streams, lp_worker *head, lp_series series, uint64_t interval_ns);
/* Is there room for more? */
bool lp__stream_has_room(const lp__stream *stream);
void lp__stream_end(lp__stream *stream);
/* Fills the batch's list with what waits. */
void lp__streams_give(lp__streams *streams, lp__batch *batch, uint64_t now);
/* Takes the outcomes; streams that have ended go. */
void lp__streams_take(lp__streams *streams, const lp__batch *batch, uint64_t now);
/* How many have bytes that the disk may still take. */
unsigned lp__streams_pending(const lp__streams *streams);
/* When the disk should be asked again, UINT64_MAX never. */
uint64_t lp__streams_due(const lp__streams *streams);

#endif
