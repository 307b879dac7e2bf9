#include "core/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/wiped.h"

#define FIRST 128u       /* slots of a table before it grows onto the heap */
#define FIRST_BYTES 480u /* of the segment for names; what a process with few phases needs */

/* FNV-1a, 64 bits: names are short and come once. */
static uint64_t hash_bytes(const void *data, size_t size)
{
    const unsigned char *at = data;
    uint64_t hash = 0xcbf29ce484222325ull;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash ^ hash >> 29;
}

struct name {
    lp_off at; /* of the record's size word */
    uint32_t hash;
};
struct lp__names {
    struct name *list; /* by id - 1 */
    uint32_t count, room;
    uint32_t *table; /* ids, 0 = empty */
    uint32_t mask;
    lp_off block;  /* current NAMES payload */
    uint32_t left; /* bytes free in it */
    struct name first_list[FIRST / 2];
    uint32_t first_table[FIRST];
};

/* Under the lock: without the GIL another thread's new name may move the list. */
static const char *bytes_of(const lp_recorder *recorder, uint32_t id, size_t *size)
{
    const struct lp__names *names = recorder->names;

    if (id == 0 || !names || id > names->count) {
        *size = 0;
        return "";
    }
    const unsigned char *record = recorder->segment.base + names->list[id - 1].at;
    uint32_t length;
    memcpy(&length, record, sizeof length);
    *size = length;
    return (const char *)record + sizeof length;
}

const char *lp_name_bytes(lp_recorder *recorder, uint32_t id, size_t *size)
{
    lp_recorder_lock(recorder);
    const char *bytes = bytes_of(recorder, id, size);
    lp_recorder_unlock(recorder);
    return bytes;
}

static uint32_t find(const lp_recorder *recorder, const char *bytes, size_t size, uint32_t hash)
{
    const struct lp__names *names = recorder->names;

    if (!names->table) /* in a forked child that has not begun */
        return 0;
    for (uint32_t i = hash & names->mask; names->table[i]; i = (i + 1) & names->mask) {
        uint32_t id = names->table[i];
        size_t length;
        if (names->list[id - 1].hash != hash)
            continue;
        const char *known = bytes_of(recorder, id, &length);
        if (length == size && memcmp(known, bytes, size) == 0)
            return id;
    }
    return 0;
}

/* A name longer than LP_NAME_LIMIT keeps its head and ends in "~" and 16 hex digits of its hash. */
static size_t shorten(const char **bytes, size_t size, char buffer[LP_NAME_LIMIT])
{
    static const char digits[] = "0123456789abcdef";

    if (size <= LP_NAME_LIMIT)
        return size;
    uint64_t hash = hash_bytes(*bytes, size);
    size_t head = LP_NAME_LIMIT - 17;
    while (head > 0 && ((unsigned char)(*bytes)[head] & 0xc0u) == 0x80u)
        head--; /* never inside a UTF-8 sequence */
    memcpy(buffer, *bytes, head);
    buffer[head] = '~';
    for (int i = 0; i < 16; i++)
        buffer[head + 1 + (size_t)i] = digits[(hash >> (60 - 4 * i)) & 15u];
    *bytes = buffer;
    return head + 17;
}

uint32_t lp_name_find(lp_recorder *recorder, const char *bytes, size_t size)
{
    char buffer[LP_NAME_LIMIT];

    size = shorten(&bytes, size, buffer);
    lp_recorder_lock(recorder);
    uint32_t id = recorder->names ? find(recorder, bytes, size, (uint32_t)hash_bytes(bytes, size)) : 0;
    lp_recorder_unlock(recorder);
    return id;
}

static bool grow(struct lp__names *names)
{
    if (names->count == names->room) {
        uint32_t room = names->room * 2;
        bool first = names->list == names->first_list;
        struct name *list = realloc(first ? NULL : names->list, room * sizeof *list);
        if (!list)
            return false;
        if (first)
            memcpy(list, names->first_list, sizeof names->first_list);
        names->list = list;
        names->room = room;
    }
    if (names->count * 2 >= names->mask) {
        uint32_t mask = names->mask * 2 + 1;
        uint32_t *table = calloc(mask + 1u, sizeof *table);
        if (!table)
            return false;
        for (uint32_t id = 1; id <= names->count; id++) {
            uint32_t i = names->list[id - 1].hash & mask;
            while (table[i])
                i = (i + 1) & mask;
            table[i] = id;
        }
        if (names->table != names->first_table)
            free(names->table);
        names->table = table;
        names->mask = mask;
    }
    return true;
}

static uint32_t add(lp_recorder *recorder, const char *bytes, size_t size, uint32_t hash)
{
    struct lp__names *names = recorder->names;
    lp_seg_header *header = lp_segment_header(&recorder->segment);
    uint32_t length = (uint32_t)size, record = (uint32_t)((sizeof length + size + 3) & ~(size_t)3);

    if (names->count >= LP_NAMES_LIMIT || !grow(names))
        return 0;
    if (names->left < record) {
        uint64_t got = 0;
        uint32_t room = names->block ? 2048 : FIRST_BYTES;
        lp_off at = lp_segment_take(&recorder->segment, LP_BLOCK_NAMES, 0,
                                    sizeof(lp_seg_names) + (record > room ? record : room), &got);
        if (!at)
            return 0;
        lp_seg_names *fresh = (lp_seg_names *)(void *)(recorder->segment.base + at);
        fresh->previous = names->block;
        fresh->first_id = names->count + 1;
        names->block = at;
        names->left = (uint32_t)(got - sizeof *fresh);
        __atomic_store_n(&header->names, at, __ATOMIC_RELEASE);
    }
    lp_seg_names *block = (lp_seg_names *)(void *)(recorder->segment.base + names->block);
    unsigned char *at = (unsigned char *)(block + 1) + block->bytes;
    memcpy(at, &length, sizeof length);
    memcpy(at + sizeof length, bytes, size);
    block->bytes += record;
    names->left -= record;
    __atomic_store_n(&block->count, block->count + 1, __ATOMIC_RELEASE);

    names->list[names->count] = (struct name){(lp_off)(at - recorder->segment.base), hash};
    uint32_t id = ++names->count;
    uint32_t i = hash & names->mask;
    while (names->table[i])
        i = (i + 1) & names->mask;
    names->table[i] = id;
    __atomic_store_n(&header->name_count, id, __ATOMIC_RELEASE);
    return id;
}

uint32_t lp_name_make(lp_recorder *recorder, const char *bytes, size_t size)
{
    char buffer[LP_NAME_LIMIT];

    size = shorten(&bytes, size, buffer);
    uint32_t hash = (uint32_t)hash_bytes(bytes, size), id = 0;
    lp_recorder_lock(recorder);
    if (recorder->names && recorder->segment.base) {
        id = find(recorder, bytes, size, hash);
        if (!id)
            id = add(recorder, bytes, size, hash);
    }
    lp_recorder_unlock(recorder);
    return id;
}

uint32_t lp__name_hash(const char *bytes, size_t size)
{
    char buffer[LP_NAME_LIMIT];

    size = shorten(&bytes, size, buffer);
    return (uint32_t)hash_bytes(bytes, size);
}

/* ---- paths -------------------------------------------------------------------------------------------------------- */

#define FOLDED_LIMIT (1u << 20) /* 8 MB of hashes */

struct path {
    uint32_t parent, name, id;
};
struct lp__paths {
    struct path *table;
    uint32_t mask, count;
    /* Hashes of the paths that found no room, to count each once; 0 = empty. Two may fall together: of a million
     * some hundred. */
    uint32_t *folded;
    uint32_t folded_mask, folded_count;
    struct path first_table[FIRST / 2];
};

static struct path *seek(struct path *table, uint32_t mask, uint32_t parent, uint32_t name)
{
    uint64_t hash = ((uint64_t)parent << 32 | name) * 0x9e3779b97f4a7c15ull;
    uint32_t i = (uint32_t)(hash >> 32) & mask;

    while (table[i].name && (table[i].parent != parent || table[i].name != name))
        i = (i + 1) & mask;
    return &table[i];
}

static struct path *slot(struct lp__paths *paths, uint32_t parent, uint32_t name)
{
    if (paths->count * 2 >= paths->mask) {
        uint32_t mask = paths->mask * 2 + 1;
        struct path *table = calloc(mask + 1u, sizeof *table);
        if (!table)
            return NULL;
        for (uint32_t i = 0; i <= paths->mask; i++)
            if (paths->table[i].name)
                *seek(table, mask, paths->table[i].parent, paths->table[i].name) = paths->table[i];
        if (paths->table != paths->first_table)
            free(paths->table);
        paths->table = table;
        paths->mask = mask;
    }
    return seek(paths->table, paths->mask, parent, name);
}

uint32_t lp__path_get(struct lp__paths *paths, uint32_t parent, uint32_t name, uint32_t limit, bool *fresh)
{
    struct path *path = slot(paths, parent, name);

    *fresh = false;
    if (!path)
        return 0;
    if (path->name || paths->count >= limit)
        return path->id;
    *path = (struct path){parent, name, ++paths->count};
    *fresh = true;
    return path->id;
}

static uint32_t *folded_slot(uint32_t *table, uint32_t mask, uint32_t hash)
{
    uint32_t i = hash & mask;

    while (table[i] && table[i] != hash)
        i = (i + 1) & mask;
    return &table[i];
}

bool lp__path_folded(struct lp__paths *paths, uint32_t parent, uint32_t name_hash)
{
    uint64_t mix = ((uint64_t)parent << 32 | name_hash) * 0x9e3779b97f4a7c15ull;
    uint32_t hash = (uint32_t)(mix >> 32) ? (uint32_t)(mix >> 32) : 1;

    if (!paths->folded || paths->folded_count * 2 >= paths->folded_mask) {
        uint32_t mask = paths->folded ? paths->folded_mask * 2 + 1 : 1023;
        uint32_t *table = calloc(mask + 1u, sizeof *table);
        if (!table)
            return false;
        for (uint32_t i = 0; paths->folded && i <= paths->folded_mask; i++)
            if (paths->folded[i])
                *folded_slot(table, mask, paths->folded[i]) = paths->folded[i];
        free(paths->folded);
        paths->folded = table;
        paths->folded_mask = mask;
    }
    uint32_t *found = folded_slot(paths->folded, paths->folded_mask, hash);
    /* Names built from data without end must not grow this table without end: the count stops. */
    if (*found || paths->folded_count >= FOLDED_LIMIT - 1)
        return false;
    *found = hash;
    paths->folded_count++;
    return true;
}

bool lp_paths_full(lp_recorder *recorder)
{
    lp_recorder_lock(recorder);
    bool full = recorder->paths && recorder->names &&
                (recorder->paths->count >= LP_PATH_LIMIT || recorder->names->count >= LP_NAMES_LIMIT);
    lp_recorder_unlock(recorder);
    return full;
}

/* ---- both --------------------------------------------------------------------------------------------------------- */

struct lp__tables {
    struct lp__names names;
    struct lp__paths paths;
};

bool lp__tables_open(lp_recorder *recorder)
{
    if (!recorder->tables)
        recorder->tables = lp__wiped_memory(sizeof *recorder->tables);
    struct lp__tables *tables = recorder->tables;
    if (!tables)
        return false;
    tables->names.list = tables->names.first_list;
    tables->names.room = FIRST / 2;
    tables->names.table = tables->names.first_table;
    tables->names.mask = FIRST - 1;
    tables->paths.table = tables->paths.first_table;
    tables->paths.mask = FIRST / 2 - 1;
    recorder->names = &tables->names;
    recorder->paths = &tables->paths;
    return true;
}

void lp__tables_close(lp_recorder *recorder)
{
    struct lp__tables *tables = recorder->tables;

    recorder->names = NULL;
    recorder->paths = NULL;
    if (!tables)
        return;
    if (tables->names.list != tables->names.first_list)
        free(tables->names.list);
    if (tables->names.table != tables->names.first_table)
        free(tables->names.table);
    if (tables->paths.table != tables->paths.first_table)
        free(tables->paths.table);
    free(tables->paths.folded);
    munmap(tables, sizeof *tables);
    recorder->tables = NULL;
}
