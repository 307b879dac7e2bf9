/* A run directory as a list of workers: snapshots under workers/<host>/ (the highest generation of each worker) and
 * the segments of this host that belong to it. A worker is listed once: a segment beats its snapshots. */
#ifndef LP_STORE_RUNDIR_H
#define LP_STORE_RUNDIR_H

#include "store/model.h"
#include "store/rundir_cache.h"

typedef enum lp_source_kind { LP_SOURCE_SNAPSHOT, LP_SOURCE_SEGMENT } lp_source_kind;

typedef struct lp_source {
    lp_source_kind kind;
    const char *path;    /* owned by the list */
    lp_status status;    /* LP_OK, or why it cannot be read */
    const char *problem; /* one line for status != LP_OK, "" else; owned by the list */
    /* head, valid if status == LP_OK; strings owned by the list */
    lp_str run_id, role, host, uuid;
    int64_t pid, rank;
    uint64_t started_ns, run_started_ns, written_ns;
    bool living;
    const lp_worker
        *known; /* the whole of it, borrowed from the cache until the listing after next; NULL: to be read */
} lp_source;

typedef struct lp_rundir lp_rundir; /* opaque list */

typedef struct lp_rundir_options {
    bool adopt; /* write the snapshots of dead segments and remove those (lineprofiler report); false: only read them */
    bool segments;          /* look at this host's segments at all */
    lp_rundir_cache *cache; /* borrowed; NULL: none */
} lp_rundir_options;

/* LP_E_MISSING: no such directory. A directory without workers is LP_OK with count 0. *dir is owned by the caller. */
lp_status lp_rundir_open(const char *path, lp_rundir_options options, lp_rundir **dir, lp_error *error);
void lp_rundir_close(lp_rundir *dir);
const lp_source *lp_rundir_sources(const lp_rundir *dir, size_t *count); /* sorted by path */
/* Reads one source whole; *worker owned by the caller on LP_OK. What was replaced since the listing (by a newer
 * snapshot, or since the process ended) is read from where it is now. One call at a time per list. */
lp_status lp_rundir_read(const lp_rundir *dir, size_t index, lp_worker **worker, lp_error *error);
/* Run directories near a path that is none: the one that it lies in (RUN/workers, a snapshot), else those right below
 * it. How many; the first by name goes to `first`, terminated. 0: none was found, or it has no room. */
uint32_t lp_rundir_near(const char *path, char *first, size_t room);

#endif
