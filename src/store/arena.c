/* Bump allocator: a list of chunks, each twice as large as the one before until 256 KB. Everything dies with the
 * arena; nothing is given back before. Chunks come from calloc, so that fresh pages are not written twice. */
#include "store/arena.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CHUNK 4096u
#define LARGEST_CHUNK (256u << 10)
#define ALIGNMENT 16u

typedef struct chunk {
    struct chunk *next;
    size_t size, used; /* of `bytes` */
    _Alignas(ALIGNMENT) unsigned char bytes[];
} chunk;

struct lp_arena {
    chunk *newest;
    size_t bytes;
    size_t next_size;
};

lp_arena *lp_arena_new(void)
{
    lp_arena *arena = calloc(1, sizeof *arena);
    if (arena)
        arena->next_size = FIRST_CHUNK;
    return arena;
}

void lp_arena_free(lp_arena *arena)
{
    if (!arena)
        return;
    for (chunk *c = arena->newest, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}

/* An object larger than a quarter of a chunk gets one of its own, put second, so that the room that is left in
 * the newest stays in use. */
static void *take_chunk(lp_arena *arena, size_t size)
{
    bool own = size > arena->next_size / 4;
    size_t room = own ? size : arena->next_size;
    chunk *c = calloc(1, sizeof *c + room);
    if (!c)
        return NULL;
    c->size = room;
    c->used = size;
    arena->bytes += sizeof *c + room;
    if (own && arena->newest) {
        c->next = arena->newest->next;
        arena->newest->next = c;
    } else {
        c->next = arena->newest;
        arena->newest = c;
    }
    if (!own && arena->next_size < LARGEST_CHUNK)
        arena->next_size *= 2;
    return c->bytes;
}

void *lp_arena_take(lp_arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = size ? (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1) : ALIGNMENT;
    chunk *c = arena->newest;
    if (c && c->size - c->used >= size) {
        void *at = c->bytes + c->used;
        c->used += size;
        return at;
    }
    return take_chunk(arena, size);
}

void *lp_arena_grow(lp_arena *arena, void *array, uint32_t count, size_t element)
{
    if (count != 0 && (count < 4 || (count & (count - 1)) != 0))
        return array;
    size_t room = count ? 2 * (size_t)count : 4;
    void *grown = lp_arena_take(arena, room * element);
    if (grown && count)
        memcpy(grown, array, count * element);
    return grown;
}

lp_str lp_arena_str(lp_arena *arena, const void *data, size_t size)
{
    char *copy = size < SIZE_MAX ? lp_arena_take(arena, size + 1) : NULL;
    if (!copy)
        return (lp_str){NULL, 0};
    if (size)
        memcpy(copy, data, size);
    return (lp_str){copy, size};
}

size_t lp_arena_bytes(const lp_arena *arena)
{
    return arena->bytes;
}
