#include "store/rundir_cache.h"

#include <stdlib.h>
#include <string.h>

#include "store/arena.h"

#define SLOTS_AT_FIRST 256u

typedef struct entry {
    uint64_t hash, inode;
    lp_worker *worker; /* owned; NULL: a free slot */
    char *name;        /* owned: host, '/', name */
    bool used;         /* in this round */
} entry;

struct lp_rundir_cache {
    entry *slots; /* owned; open addressing, a power of two, at most half full */
    size_t room, count, bytes, limit;
};

lp_rundir_cache *lp_rundir_cache_new(size_t limit_bytes)
{
    lp_rundir_cache *cache = calloc(1, sizeof *cache);

    if (!cache)
        return NULL;
    cache->slots = calloc(SLOTS_AT_FIRST, sizeof *cache->slots);
    cache->room = SLOTS_AT_FIRST;
    cache->limit = limit_bytes;
    if (!cache->slots) {
        free(cache);
        return NULL;
    }
    return cache;
}

static void clear(entry *e)
{
    lp_worker_free(e->worker);
    free(e->name);
    *e = (entry){0};
}

void lp_rundir_cache_free(lp_rundir_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->room; i++)
        if (cache->slots[i].worker)
            clear(&cache->slots[i]);
    free(cache->slots);
    free(cache);
}

static uint64_t hash_of(const char *host, const char *name, uint64_t inode)
{
    uint64_t hash = 0xcbf29ce484222325u ^ inode;

    for (; *host; host++)
        hash = (hash ^ (unsigned char)*host) * 0x100000001b3u;
    hash = (hash ^ '/') * 0x100000001b3u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static bool is_of(const entry *e, uint64_t hash, const char *host, const char *name, uint64_t inode)
{
    size_t size = strlen(host);

    return e->hash == hash && e->inode == inode && strncmp(e->name, host, size) == 0 && e->name[size] == '/' &&
           strcmp(e->name + size + 1, name) == 0;
}

/* The entry, or the free slot where it would stand. */
static entry *place_of(const lp_rundir_cache *cache, uint64_t hash, const char *host, const char *name, uint64_t inode)
{
    size_t at = hash & (cache->room - 1);

    while (cache->slots[at].worker && !is_of(&cache->slots[at], hash, host, name, inode))
        at = (at + 1) & (cache->room - 1);
    return &cache->slots[at];
}

const lp_worker *lp__cache_find(lp_rundir_cache *cache, const char *host, const char *name, uint64_t inode)
{
    entry *e = place_of(cache, hash_of(host, name, inode), host, name, inode);

    if (e->worker)
        e->used = true;
    return e->worker;
}

/* Into a table of `room` slots, without what this round did not use if `sweep`. false: no memory, all is as it was. */
static bool rebuild(lp_rundir_cache *cache, size_t room, bool sweep)
{
    entry *old = cache->slots, *slots = calloc(room, sizeof *slots);
    size_t old_room = cache->room;

    if (!slots)
        return false;
    cache->slots = slots;
    cache->room = room;
    cache->count = cache->bytes = 0;
    for (size_t i = 0; i < old_room; i++) {
        if (!old[i].worker)
            continue;
        if (sweep && !old[i].used) {
            clear(&old[i]);
            continue;
        }
        size_t at = old[i].hash & (room - 1);
        while (slots[at].worker)
            at = (at + 1) & (room - 1);
        slots[at] = old[i];
        if (sweep)
            slots[at].used = false;
        cache->count++;
        cache->bytes += lp_arena_bytes(slots[at].worker->arena);
    }
    free(old);
    return true;
}

bool lp__cache_put(lp_rundir_cache *cache, const char *host, const char *name, uint64_t inode, lp_worker *worker)
{
    uint64_t hash = hash_of(host, name, inode);
    size_t bytes = lp_arena_bytes(worker->arena), size = strlen(host) + strlen(name) + 2;

    if (bytes > cache->limit || cache->bytes > cache->limit - bytes)
        return false;
    if (2 * (cache->count + 1) > cache->room && !rebuild(cache, 2 * cache->room, false))
        return false;
    entry *e = place_of(cache, hash, host, name, inode);
    char *copy = e->worker ? NULL : malloc(size);
    if (!copy)
        return false;
    memcpy(copy, host, strlen(host));
    copy[strlen(host)] = '/';
    memcpy(copy + strlen(host) + 1, name, strlen(name) + 1);
    *e = (entry){.hash = hash, .inode = inode, .worker = worker, .name = copy, .used = true};
    cache->count++;
    cache->bytes += bytes;
    return true;
}

void lp__cache_sweep(lp_rundir_cache *cache)
{
    bool all = true;

    for (size_t i = 0; i < cache->room && all; i++)
        all = !cache->slots[i].worker || cache->slots[i].used;
    if (!all) {
        rebuild(cache, cache->room, true); /* without memory it is done next time */
        return;
    }
    for (size_t i = 0; i < cache->room; i++)
        cache->slots[i].used = false;
}
