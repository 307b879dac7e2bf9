/* A private copy of a segment whose nodes and counters are made consistent one by one. Everything else may look at the
 * copy at leisure: it does not change any more.
 *
 * While the writer runs, the copy is taken twice: `done` words from the first, all else from the second, and `begun` is
 * read after both: of a small file out of a third copy, which costs less than a call for each word. Equal words then mean that nothing changed in between, in whatever order a copy went through
 * memory. What did change is read again alone, a bounded number of times. */
#ifndef LP_STORE_SEGMENT_IMAGE_H
#define LP_STORE_SEGMENT_IMAGE_H

#include "core/layout.h"
#include "store/internal.h"

typedef struct lp__image {
    unsigned char *bytes; /* owned */
    size_t size;
    unsigned char *first; /* owned; the first copy, NULL if nothing moves */
    size_t first_size;
    unsigned char *last; /* owned; the third, NULL if there is none */
    size_t last_size;
    int fd; /* source, -1: memory */
    const unsigned char *memory;
    size_t memory_size;
    bool moving;      /* the writer may be storing right now */
    const char *name; /* for error texts; borrowed */
} lp__image;

/* The header alone, checked: magic, order, layout, header_size, used <= capacity <= LP__FILE_MAX. */
lp_status lp__image_header(const lp__image *source, lp_seg_header *header, lp_error *error);
/* The same of a file, but for `asked` and `run_dir`, more than half of it, which stay as they are. */
lp_status lp__image_header_start(int fd, lp_seg_header *header);
/* Takes the copy. `image` has its source set; all copies are owned by the caller until lp__image_free. */
lp_status lp__image_take(lp__image *image, lp_error *error);
void lp__image_free(lp__image *image);

/* Inside the copy, aligned to 8; NULL otherwise. */
void *lp__image_at(const lp__image *image, uint64_t offset, size_t size);
#define LP__AT(image, offset, type) ((type *)lp__image_at((image), (offset), sizeof(type)))

/* Makes the node or counter at `offset` (checked by the caller) and its cells consistent in the copy; `thread` is the
 * payload of the thread that writes it. true: consistent, as it stood or by its undo record. */
bool lp__image_settle_node(lp__image *image, lp_off offset, lp_off thread);
bool lp__image_settle_counter(lp__image *image, lp_off offset, lp_off thread);
/* Fresh bytes from the source into the copy. */
bool lp__image_refresh(lp__image *image, uint64_t offset, size_t size);
/* One aligned word of the source, now. */
bool lp__image_word(const lp__image *image, uint64_t offset, uint32_t *word);

#endif
