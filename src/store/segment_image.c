#include "store/segment_image.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "store/files.h"

/* A busy node is read again so often. A try takes 4 to 5 us through a descriptor, in which a loop of nothing but phases ends some
 * thirty of them (of 40 reads with 2000 tries 22 were in vain); a tenth of that in memory, where a pause of the writer is met. */
#define TRIES_FILE 24
#define TRIES_MEMORY 256
#define EXTENSIONS 8           /* rounds for a segment that grows while it is read */
#define THIRD_MAX (256u << 10) /* of a segment that is copied a third time: larger ones would take too much memory */
#define OCTAVE_SIZE (LP_HIST_SUB * sizeof(uint64_t))

/* Ascending, word by word, each load an acquire: memcpy may go through memory in any order. */
#if defined(__clang__) && __has_attribute(disable_sanitizer_instrumentation)
__attribute__((noinline,
               disable_sanitizer_instrumentation)) /* the other one leaves atomic loads to its thread sanitizer */
#else
__attribute__((no_sanitize("thread")))
#endif
static void copy_words(void *to, const unsigned char *from, size_t size)
{
    uint64_t *words = to;
    size_t i = 0;

    for (; i + 8 <= size; i += 8)
        *words++ = __atomic_load_n((const uint64_t *)(const void *)(from + i), __ATOMIC_ACQUIRE);
    for (; i < size; i++)
        ((unsigned char *)to)[i] = __atomic_load_n(from + i, __ATOMIC_ACQUIRE);
}

/* `to` and `offset` are aligned to 8 unless size is 4. */
static bool fetch(const lp__image *image, void *to, uint64_t offset, size_t size)
{
    size_t got;

    if (image->fd >= 0)
        return lp__read_at(image->fd, to, size, offset, &got) && got == size;
    if (offset > image->memory_size || size > image->memory_size - offset)
        return false;
    if (size == 4)
        *(uint32_t *)to = __atomic_load_n((const uint32_t *)(const void *)(image->memory + offset), __ATOMIC_ACQUIRE);
    else
        copy_words(to, image->memory + offset, size);
    return true;
}

bool lp__image_word(const lp__image *image, uint64_t offset, uint32_t *word)
{
    return fetch(image, word, offset, sizeof *word);
}

/* `got` bytes of `size` that were asked for. */
static lp_status check_header(const lp_seg_header *header, size_t got, size_t size, const char *name, lp_error *error)
{
    if (got >= sizeof header->magic && header->magic != LP_SEG_MAGIC)
        return lp__fail(error, LP_E_FOREIGN, name, 0, "not a segment of lineprofiler");
    if (got < size)
        return lp__fail(error, LP_E_TRUNCATED, name, got, "too short for a segment");
    if (header->order != LP_SEG_ORDER)
        return lp__fail(error, LP_E_FOREIGN, name, offsetof(lp_seg_header, order),
                        "of a machine with another byte order");
    if (header->layout > LP_SEG_LAYOUT)
        return lp__fail(error, LP_E_VERSION, name, offsetof(lp_seg_header, layout),
                        "a segment of a newer lineprofiler that still runs or died");
    if (header->layout != LP_SEG_LAYOUT)
        return lp__fail(error, LP_E_DAMAGED, name, offsetof(lp_seg_header, layout), "a layout that never was");
    if (header->capacity > LP__FILE_MAX)
        return lp__fail(error, LP_E_LIMIT, name, offsetof(lp_seg_header, capacity), "larger than 256 MB");
    if (header->header_size < sizeof *header || header->header_size % 64 != 0 || header->used < header->header_size ||
        header->used > header->capacity)
        return lp__fail(error, LP_E_DAMAGED, name, offsetof(lp_seg_header, header_size),
                        "the header contradicts itself");
    return LP_OK;
}

lp_status lp__image_header(const lp__image *source, lp_seg_header *header, lp_error *error)
{
    const char *name = source->name;
    size_t got = source->memory_size;

    if (source->fd < 0) {
        if (got < sizeof *header)
            return lp__fail(error, LP_E_TRUNCATED, name, got, "too short for a segment");
        copy_words(header, source->memory, sizeof *header);
    } else {
        memset(header, 0, sizeof *header);
        if (!lp__read_at(source->fd, header, sizeof *header, 0, &got))
            return lp__fail_sys(error, errno, name, "read");
    }
    return check_header(header, got, sizeof *header, name, error);
}

lp_status lp__image_header_start(int fd, lp_seg_header *header)
{
    size_t got;

    header->magic = 0;
    if (!lp__read_at(fd, header, offsetof(lp_seg_header, asked), 0, &got))
        return LP_E_IO;
    return check_header(header, got, offsetof(lp_seg_header, asked), "", NULL);
}

static lp_status take(const lp__image *image, unsigned char **bytes, size_t *had, size_t size, lp_error *error)
{
    unsigned char *grown = realloc(*bytes, size);
    if (!grown)
        return lp__fail(error, LP_E_MEMORY, image->name, UINT64_MAX, "out of memory");
    *bytes = grown;
    if (!fetch(image, grown + *had, *had, size - *had))
        return lp__fail(error, LP_E_TRUNCATED, image->name, UINT64_MAX, "the file is shorter than its header says");
    *had = size;
    return LP_OK;
}

/* How much there is to copy. The caller of lp_segment_read_memory may have looked at `used` before it grew. */
static size_t extent(const lp__image *image, const lp_seg_header *header)
{
    bool beyond = image->fd < 0 && image->moving && header->used > image->memory_size;
    return beyond ? image->memory_size : header->used;
}

lp_status lp__image_take(lp__image *image, lp_error *error)
{
    lp_seg_header header = {0};
    lp_status status = lp__image_header(image, &header, error);
    size_t size = extent(image, &header);

    image->bytes = image->first = image->last = NULL;
    image->size = image->first_size = image->last_size = 0;
    if (status == LP_OK && image->moving)
        status = take(image, &image->first, &image->first_size, size, error);
    if (status == LP_OK)
        status = take(image, &image->bytes, &image->size, size, error);
    /* A link in the copy may lead to a block that was published meanwhile. */
    for (int i = 0; i < EXTENSIONS && status == LP_OK && image->moving; i++) {
        status = lp__image_header(image, &header, error);
        size = extent(image, &header);
        if (status != LP_OK || size <= image->size)
            break;
        status = take(image, &image->bytes, &image->size, size, error);
    }
    if (status == LP_OK && image->moving && image->fd >= 0 && image->size <= THIRD_MAX)
        status = take(image, &image->last, &image->last_size, image->size, error);
    if (status != LP_OK)
        lp__image_free(image);
    return status;
}

void lp__image_free(lp__image *image)
{
    free(image->bytes);
    free(image->first);
    free(image->last);
    image->bytes = image->first = image->last = NULL;
    image->size = image->first_size = image->last_size = 0;
}

void *lp__image_at(const lp__image *image, uint64_t offset, size_t size)
{
    if (offset % 8 != 0 || offset < sizeof(lp_seg_header) || offset > image->size || size > image->size - offset)
        return NULL;
    return image->bytes + offset;
}

bool lp__image_refresh(lp__image *image, uint64_t offset, size_t size)
{
    return offset <= image->size && size <= image->size - offset && fetch(image, image->bytes + offset, offset, size);
}

/* What nodes and counters have in common. */
typedef struct record {
    lp_off at;
    size_t size, begun; /* bytes of the struct; offset of its last sequence word */
    size_t cells[2];    /* offsets of lp_off[LP_HIST_OCTAVES] within, and of the lp_off of such a table; 0 none */
    size_t values;      /* offset of the saved values */
    unsigned value_count;
    uint32_t kind; /* lp_seg_undo.valid */
} record;

static void refresh_octaves(lp__image *image, const lp_off *octaves)
{
    for (unsigned i = 0; i < LP_HIST_OCTAVES; i++)
        if (octaves[i] && lp__image_at(image, octaves[i], OCTAVE_SIZE))
            lp__image_refresh(image, octaves[i], OCTAVE_SIZE);
}

static void refresh_record(lp__image *image, const record *r)
{
    lp_off child = 0, counters = 0;
    lp_seg_node *node = r->kind == 1 ? (lp_seg_node *)(void *)(image->bytes + r->at) : NULL;

    if (node) {
        child = node->child;
        counters = node->counters;
    }
    lp__image_refresh(image, r->at, r->size);
    /* Lists begin with the newest: a link to one beyond the copy would lose all the others. */
    if (node && !lp__image_at(image, node->child, sizeof(lp_seg_node)))
        node->child = child;
    if (node && !lp__image_at(image, node->counters, sizeof(lp_seg_counter)))
        node->counters = counters;
    if (r->cells[0])
        refresh_octaves(image, (const lp_off *)(const void *)(image->bytes + r->at + r->cells[0]));
    if (r->cells[1]) {
        lp_off table = *(const lp_off *)(const void *)(image->bytes + r->at + r->cells[1]);
        size_t size = LP_HIST_OCTAVES * sizeof(lp_off);
        if (table && lp__image_at(image, table, size) && lp__image_refresh(image, table, size))
            refresh_octaves(image, (const lp_off *)(const void *)(image->bytes + table));
    }
}

static uint32_t word_of(const unsigned char *bytes)
{
    return *(const uint32_t *)(const void *)bytes;
}

/* Puts the old values of an unfinished update back. */
static bool roll_back(lp__image *image, const record *r, const lp_seg_undo *undo)
{
    if (undo->valid != r->kind || undo->target != r->at)
        return false;
    uint64_t *values = (uint64_t *)(void *)(image->bytes + r->at + r->values);
    for (unsigned i = 0; i < undo->saved && i < r->value_count; i++)
        values[i] = undo->old[i];
    if (undo->cell) {
        uint64_t *cell = lp__image_at(image, undo->cell, sizeof *cell);
        if (cell)
            *cell = undo->old_cell;
    }
    return true;
}

static bool settle_still(lp__image *image, const record *r, lp_off thread)
{
    const unsigned char *at = image->bytes + r->at;
    const lp_seg_thread *t;

    if (word_of(at) == word_of(at + r->begun))
        return true;
    t = LP__AT(image, thread, lp_seg_thread);
    return t && roll_back(image, r, &t->undo);
}

static bool settle_moving(lp__image *image, const record *r, lp_off thread)
{
    uint32_t done, begun, before = 0;
    lp_seg_undo undo;

    if (r->at + r->begun + 4u <= image->last_size)
        begun = word_of(image->last + r->at + r->begun);
    else if (!lp__image_word(image, r->at + r->begun, &begun))
        return false;
    if (r->at + 4u <= image->first_size && word_of(image->first + r->at) == begun &&
        word_of(image->bytes + r->at) == begun)
        return true;
    int tries = image->fd >= 0 ? TRIES_FILE : TRIES_MEMORY;
    for (int i = 0; i < tries; i++) {
        if (!lp__image_word(image, r->at + r->begun, &before) || !lp__image_word(image, r->at, &done) ||
            !fetch(image, &undo, thread + offsetof(lp_seg_thread, undo), sizeof undo))
            return false;
        refresh_record(image, r);
        if (!lp__image_word(image, r->at + r->begun, &begun))
            return false;
        if (done == begun)
            return true;
        /* The writer stands in the middle of an update (it was descheduled, or died just now) and stood there while all
         * this was read. */
        uint32_t after;
        if (before == begun && lp__image_word(image, r->at, &after) && after == done && roll_back(image, r, &undo))
            return true;
        if (i % 8 == 7)
            sched_yield();
    }
    return false;
}

static bool settle(lp__image *image, const record *r, lp_off thread)
{
    if (!image->moving)
        return settle_still(image, r, thread);
    int saved = errno;
    bool settled = settle_moving(image, r, thread);
    errno = saved;
    return settled;
}

bool lp__image_settle_node(lp__image *image, lp_off offset, lp_off thread)
{
    const record r = {.at = offset,
                      .size = sizeof(lp_seg_node),
                      .begun = offsetof(lp_seg_node, begun),
                      .cells = {offsetof(lp_seg_node, cells), 0},
                      .values = offsetof(lp_seg_node, entries),
                      .value_count = 13,
                      .kind = 1};
    return settle(image, &r, thread);
}

bool lp__image_settle_counter(lp__image *image, lp_off offset, lp_off thread)
{
    const record r = {.at = offset,
                      .size = sizeof(lp_seg_counter),
                      .begun = offsetof(lp_seg_counter, begun),
                      .cells = {offsetof(lp_seg_counter, cells), offsetof(lp_seg_counter, negative)},
                      .values = offsetof(lp_seg_counter, calls),
                      .value_count = 5,
                      .kind = 2};
    return settle(image, &r, thread);
}
_Static_assert(offsetof(lp_seg_node, io_missing) - offsetof(lp_seg_node, entries) == 12 * sizeof(uint64_t),
               "lp_seg_undo.old has the node's values in their order");
_Static_assert(offsetof(lp_seg_counter, max) - offsetof(lp_seg_counter, calls) == 4 * sizeof(uint64_t),
               "and the counter's");
