/* Snapshots that were read before, for who reads a run directory again and again: a file of one name and inode never changes, since
 * snapshots are written whole and renamed. Bounded: beyond the limit files are read anew each time. Not thread-safe. */
#ifndef LP_STORE_RUNDIR_CACHE_H
#define LP_STORE_RUNDIR_CACHE_H

#include "store/model.h"

typedef struct lp_rundir_cache lp_rundir_cache;

lp_rundir_cache *lp_rundir_cache_new(size_t limit_bytes); /* owned by the caller; NULL without memory */
void lp_rundir_cache_free(lp_rundir_cache *cache);        /* NULL is allowed */

/* For the listing. Each entry that is found or put is marked; a sweep frees the others and begins a new round. Borrowed until the
 * sweep after next. */
const lp_worker *lp__cache_find(lp_rundir_cache *cache, const char *host, const char *name, uint64_t inode);
/* true: the cache owns the worker now. */
bool lp__cache_put(lp_rundir_cache *cache, const char *host, const char *name, uint64_t inode, lp_worker *worker);
void lp__cache_sweep(lp_rundir_cache *cache);

#endif
