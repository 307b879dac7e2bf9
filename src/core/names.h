/* Names and paths of one recorder: the process-wide numbers behind the per-thread trees. Cold; under the recorder's lock.
 *
 * A name's bytes live once, in the segment's NAMES blocks; a path is (parent path, name). Both tables only grow. */
#ifndef LP_CORE_NAMES_H
#define LP_CORE_NAMES_H

#include "core/record.h"

/* Empty tables in recorder->names and ->paths, in memory that a forked child finds zeroed and takes for its own: its heap is its
 * parent's, where each chunk that is looked at costs a page. false: no memory. */
bool lp__tables_open(lp_recorder *recorder);
/* Not in a child that has not opened its own. */
void lp__tables_close(lp_recorder *recorder);

/* Id of the path `name` below path `parent` (0 = root). 0 when `limit` paths exist already or memory is out; *fresh tells
 * whether it was made. Under the lock. */
uint32_t lp__path_get(struct lp__paths *paths, uint32_t parent, uint32_t name, uint32_t limit, bool *fresh);
/* Counts a path that found no room: true the first time this (parent, hash of the name) is folded. Under the lock. */
bool lp__path_folded(struct lp__paths *paths, uint32_t parent, uint32_t name_hash);
uint32_t lp__name_hash(const char *bytes, size_t size);

#endif
