/* What only git itself can tell of the program's work tree: how many files differ from the commit, and a hash of the
 * difference. The collector asks once (a child of the recorded process would be seen by it) and leaves the answer in the run's
 * folder of segments; whoever writes a snapshot puts it in. */
#ifndef LP_STORE_SOURCE_FACTS_H
#define LP_STORE_SOURCE_FACTS_H

#include "store/model.h"

#define LP_SOURCE_FACTS ".source" /* the file, and the start of its temporary names */

typedef struct lp_source_facts {
    char commit[65];   /* hex: the answer is of the work tree at this commit */
    char diff[65];     /* hex, "" if nothing differs or it could not be told */
    int64_t dirty;     /* files */
    int64_t untracked; /* files that git does not know, LP_UNKNOWN_I64 or -1: could not be told */
} lp_source_facts;

lp_status lp_source_facts_write(int dirfd, const lp_source_facts *facts);
/* LP_E_MISSING: not there (yet). */
lp_status lp_source_facts_read(int dirfd, lp_source_facts *facts);
/* Into an identity of the same commit that does not know them and was not given source=. Texts are copied into `arena`. */
void lp_source_facts_apply(const lp_source_facts *facts, lp_arena *arena, lp_identity *id);

#endif
