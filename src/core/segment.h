/* The segment as its writer sees it: create, grow, publish, close. Layout and reading rules: core/layout.h.
 *
 * A shared segment is a file in a folder of /dev/shm that belongs to the mapping alone: it is made under a temporary
 * name, locked (flock), mapped, its descriptor closed, then renamed. The lock lives as long as the mapping: it survives
 * a closerange() of the program, and ends with exec, munmap and death. The mapping is MADV_DONTFORK. Growth takes
 * memory by MADV_POPULATE_WRITE, which fails where a store would raise SIGBUS (a full tmpfs).
 *
 * Where no file can be had, the segment is private memory: nothing survives the process then, and reports say so. */
#ifndef LP_CORE_SEGMENT_H
#define LP_CORE_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/layout.h"
#include "core/status.h"

typedef enum lp_seg_place { LP_PLACE_SHARED = 0, LP_PLACE_PRIVATE = 1 } lp_seg_place;

typedef struct lp_segment {
    unsigned char *base; /* NULL when closed */
    uint64_t capacity;
    uint64_t populated; /* bytes that can be stored to without a fault that kills */
    lp_seg_place place;
    atomic_flag growing; /* spin: taken for a few microseconds at a path's first visit */
    char path[512];      /* of the file, "" if private */
    uint64_t dev, ino;
} lp_segment;

/* In the folder `dirfd` (borrowed) under `name`. `folder` is its path, for growth on kernels before 5.14 and for removal.
 * On any failure the segment becomes private memory: LP_OK with place PRIVATE and the reason in *error; LP_E_MEMORY when
 * not even that can be had. dirfd < 0: private at once. */
lp_status lp_segment_create(lp_segment *segment, int dirfd, const char *folder, const char *name, lp_error *error);

/* Takes a block of at least `payload` bytes and publishes it. Offset of the payload, 0 when there is no space. *got (may be
 * NULL) is the payload's real size. Payload bytes are zero. */
lp_off lp_segment_take(lp_segment *segment, lp_seg_kind kind, lp_off owner, uint64_t payload, uint64_t *got);

/* Sets the state that readers see. */
void lp_segment_set_state(lp_segment *segment, lp_seg_state state);
/* Removes the file (if it is still ours) and the mapping. Idempotent. `keep` leaves the file: a reader will fetch it. */
void lp_segment_close(lp_segment *segment, bool keep);
/* In a forked child: the mapping is not there; forgets it. */
void lp_segment_forget(lp_segment *segment);

static inline lp_seg_header *lp_segment_header(const lp_segment *segment)
{
    return (lp_seg_header *)(void *)segment->base;
}

#endif
