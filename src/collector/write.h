/* What the collector writes: snapshots of the living, last snapshots of the dead. This is the side of the thread for the disk: it
 * may hang in any call on the run directory. It knows nothing of the watch table; an order holds copies of what is needed, and the
 * outcome goes back in it. */
#ifndef LP_COLLECTOR_WRITE_H
#define LP_COLLECTOR_WRITE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "store/samples.h"
#include "store/source_facts.h"
#include "store/track.h"

#define LP__ORDERS                                                                                                     \
    256u /* in a batch: more than die between two writings, where a pool renews its workers after each task */

typedef enum lp__outcome {
    LP__UNCHANGED = 0, /* the living: it has recorded nothing since */
    LP__WRITTEN, /* the living: `content` and `living` tell what; the dead: the snapshot is safe, the segment gone */
    LP__OVER,    /* the dead: somebody has written it already */
    LP__REFUSED, /* the disk refuses: to be tried again, later each time */
    LP__LATER,   /* another process is adopting it: to be looked at again soon */
    LP__BROKEN   /* damaged: a reader's to name */
} lp__outcome;

typedef struct lp__order {
    void *who; /* of the loop; not followed here */
    int fd;    /* borrowed: the segment, open until the outcome is back */
    char name[128];
    dev_t dev;
    ino_t ino;
    bool dead;        /* its last snapshot; else one of the living */
    bool anyway;      /* the living: also if it has recorded nothing */
    uint64_t content; /* in and out: hash of what the last snapshot of the living held */
    uint32_t living;  /* in and out: generation of that one, 0 none */
    bool same;        /* out, the living: `content` was what it is now */
    int64_t cpu_ns;   /* of its process before it was read, LP_UNKNOWN_I64 */
    uint64_t failed;  /* writings that failed since the last that succeeded: for its health */
    lp__outcome outcome;
} lp__order;

#define LP__APPENDS 256u

typedef struct lp__append { /* to a sample file */
    void *who;              /* of the loop; not followed here */
    lp_series series;
    const lp_identity *id;  /* borrowed, as are start and bytes, until the outcome is back */
    int fd;                 /* in and out, owned by the loop: -1: the file is to be made */
    const lp_buffer *start; /* its beginning */
    const lp_buffer *bytes;
    bool close; /* nothing will follow */
    bool ok;    /* outcome */
    bool lost;  /* out: somebody has removed the file. The bytes are of no use without what was in it. */
} lp__append;

typedef struct lp__batch {
    unsigned append_count;
    lp__append appends[LP__APPENDS];
    unsigned count;
    bool adopt;            /* first of all: what earlier runs into this directory left */
    bool sync;             /* the living, too */
    lp_source_facts facts; /* commit "" until git has answered */
    lp_track track;
    lp__order orders[LP__ORDERS];
} lp__batch;

typedef struct lp__writer {
    int folder;           /* borrowed: of segments */
    int run;              /* owned: the run directory; the number may come to stand for a directory made anew */
    const char *run_path; /* borrowed: as it was given */
    char run_text[64];    /* a path to it that survives its being moved */
    int host;             /* owned: the folder of the snapshots of host_name, for the length of a batch; -1 not open */
    char host_name[129];
} lp__writer;

/* Does all orders and stores their outcomes. The dead of a batch share one sync of the file system where they are many; their
 * segments go after it. */
void lp__write_batch(lp__writer *writer, lp__batch *batch);

#endif
