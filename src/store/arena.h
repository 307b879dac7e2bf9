/* Bump allocator: many small objects that die together. Not thread-safe; returns zeroed memory aligned to 16. */
#ifndef LP_STORE_ARENA_H
#define LP_STORE_ARENA_H

#include <stddef.h>

#include "store/model.h"

lp_arena *lp_arena_new(void);                      /* owned by the caller; NULL without memory */
void lp_arena_free(lp_arena *arena);               /* NULL is allowed */
void *lp_arena_take(lp_arena *arena, size_t size); /* owned by the arena; NULL without memory */
/* Room for one more element in an array that has `count`; grows at powers of two, so that no capacity need be kept.
 * The array must have been grown by this function only. Returns the array, NULL without memory (the old one stays). */
void *lp_arena_grow(lp_arena *arena, void *array, uint32_t count, size_t element);
/* Copies bytes; the copy is followed by a NUL that is not counted. data == NULL without memory. */
lp_str lp_arena_str(lp_arena *arena, const void *data, size_t size);
size_t lp_arena_bytes(const lp_arena *arena); /* taken from the system */

#endif
