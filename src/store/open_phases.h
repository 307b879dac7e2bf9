/* What a living process has open right now, out of its segment, without a copy of it: a few bounded reads. For the sampler,
 * which asks once a second and must cost nothing; nothing here is made consistent with the rest of the segment. */
#ifndef LP_STORE_OPEN_PHASES_H
#define LP_STORE_OPEN_PHASES_H

#include "core/layout.h"
#include "store/model.h"

#define LP_OPEN_THREADS 64u /* recording threads that are looked at */

typedef struct lp_open_thread {
    int64_t tid;
    uint32_t name;  /* name id of the thread, 0 unknown */
    lp_off node;    /* of the phase that it entered last and that is still open; 0: none is */
    uint64_t since; /* ticks */
} lp_open_thread;

typedef struct lp_open_view {
    lp_seg_header header;                   /* but for `asked` and `run_dir` */
    lp_open_thread thread[LP_OPEN_THREADS]; /* living threads that have recorded */
    uint32_t count;
    bool cut; /* there was more than is looked at */
} lp_open_view;

/* false: no segment that records (any more). */
bool lp_open_read(int fd, lp_open_view *view);
/* Name id, parent (0: the root) and id of the path in its process, equal in all threads. */
bool lp_open_node(int fd, const lp_open_view *view, lp_off node, uint32_t *name, lp_off *parent, uint32_t *path);
/* Text of a name id. `data` is owned by the caller (free); false if there is none. */
bool lp_open_name(int fd, const lp_open_view *view, uint32_t id, lp_str *name);

#endif
