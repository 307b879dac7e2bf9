/* What the files of the store share among themselves. Not for other layers. */
#ifndef LP_STORE_INTERNAL_H
#define LP_STORE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "store/arena.h"
#include "store/model.h"

/* Limits of everything that is read. Larger is LP_E_LIMIT or damaged, whatever the file claims. */
#define LP__SNAPSHOT_VERSION 1u   /* of proto/lineprofiler.proto */
#define LP__FILE_MAX (256u << 20) /* bytes of a snapshot or a segment */
#define LP__NAME_MAX (1u << 20)   /* bytes of one text */
#define LP__PHASES_MAX (1u << 20)
#define LP__DEPTH_MAX 64u      /* the recorder folds at 32; a level of threads may come on top */
#define LP__COUNTERS_MAX 4096u /* of one phase */
#define LP__COUNTERS_TOTAL (1u << 20)
#define LP__SAMPLE_NAMES_MAX (1u << 20)  /* bytes of new paths in one batch of samples */
#define LP__SAMPLE_BATCH_MAX (4u << 20)  /* bytes of one */
#define LP__SAMPLE_ROWS_MAX 4096u        /* rows of one */
#define LP__SAMPLE_TOTAL_MAX (64u << 20) /* bytes of all paths of a file */
#define LP__LIST_MAX (1u << 16)          /* arguments, options, open phases, … */

static const lp_str lp__empty = {"", 0};

static inline bool lp__str_equal(lp_str a, lp_str b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline uint64_t lp__add(uint64_t a,
                               uint64_t b) /* stops at the largest: 4,096 workers x 60 days of ns do not fit */
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Adds one phase (its counters, too) or one counter to phase `at` of the tree. */
lp_status lp__phase_merge(lp_tree *tree, uint32_t at, const lp_phase *from);
lp_status lp__counter_merge(lp_tree *tree, uint32_t at, const lp_counter *from);

/* Fills *error with "name: what (byte offset)". The tail of a long name is kept, so that `what` always fits. Keeps
 * errno; returns `status`. */
lp_status lp__fail(lp_error *error, lp_status status, const char *name, uint64_t offset, const char *what);
/* The same for a failed system call: "name: cannot what: text of `sys`", with the status that fits `sys`. */
lp_status lp__fail_sys(lp_error *error, int sys, const char *name, const char *what);
lp_status lp__status_of(int sys);

/* Copies C text; lp__empty for NULL and without memory. */
lp_str lp__text(lp_arena *arena, const char *text);
/* The same into *out, unless that is equal: most of a child is as its parent was, and takes no memory. */
void lp__keep_text(lp_arena *arena, lp_str *out, const char *text);

/* rank, local_rank, world_size, job_id and launcher by the launchers' variables. `forked`: `id` is the parent's. Changes errno. */
void lp__describe_launcher(lp_arena *arena, lp_identity *id, bool forked);
int64_t lp__describe_parent(int64_t pid); /* of a process; LP_UNKNOWN_I64 if it cannot be read. Keeps errno */

#endif
