/* The line engine: its object, the table of code objects, names of regions. Cold. */
#include "core/lines.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/lines_internal.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

typedef struct lp__line_codes {   /* open addressing by address; replaced when it is half full */
    struct lp__line_codes *older; /* readers may still be in it */
    uint32_t mask;
    lp_line_code *at[];
} lp__line_codes;

static lp_lines *retired; /* freed ones: threads may hold their address, so the memory is used again, not returned */
static atomic_flag retired_lock = ATOMIC_FLAG_INIT;

void lp__lines_lock(lp_lines *lines)
{
    while (atomic_flag_test_and_set_explicit(&lines->lock, memory_order_acquire))
        sched_yield();
}

void lp__lines_unlock(lp_lines *lines)
{
    atomic_flag_clear_explicit(&lines->lock, memory_order_release);
}

void *lp__lines_grown(void *list, uint32_t *room, uint32_t need, size_t size)
{
    uint32_t more = *room ? *room : 8;

    while (more < need)
        more = more > UINT32_MAX / 2 ? need : more * 2;
    unsigned char *grown = realloc(list, more * size);
    if (!grown)
        return NULL;
    memset(grown + *room * size, 0, (more - *room) * size);
    *room = more;
    return grown;
}

/* ---- the object ------------------------------------------------------------------------------------------------------ */

static lp_lines *take_retired(void)
{
    while (atomic_flag_test_and_set_explicit(&retired_lock, memory_order_acquire))
        sched_yield();
    lp_lines *lines = retired;
    if (lines)
        retired = lines->next;
    atomic_flag_clear_explicit(&retired_lock, memory_order_release);
    return lines;
}

lp_lines *lp_lines_new(const lp_line_hooks *hooks, bool concurrent)
{
    lp_lines *lines = take_retired();

    if (!lines) {
        lines = calloc(1, sizeof *lines);
        if (!lines)
            return NULL;
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        void *guard = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (guard == MAP_FAILED) {
            free(lines);
            return NULL;
        }
        madvise(guard, page, MADV_WIPEONFORK);
        lines->guard = guard;
        atomic_flag_clear(&lines->lock);
        atomic_flag_clear(&lines->describing);
    }
    lines->hooks = *hooks;
    lines->concurrent = concurrent;
    lines->next = NULL;
    lines->dead = false;
    if (!lp__lines_shards_make(lines)) {
        lp_lines_free(lines);
        return NULL;
    }
    return lines;
}

/* ---- memory of code objects: taken once, given back together --------------------------------------------------------- */

#define CHUNK (32u << 10)

typedef struct lp__line_chunk {
    struct lp__line_chunk *next;
    size_t used, size;
    unsigned char bytes[];
} lp__line_chunk;

typedef struct lp__line_file { /* the name of a file, shared by its functions */
    uint32_t hash, size;
    uint32_t described; /* generation of the segment that has it, at: */
    lp_off at;
    char bytes[];
} lp__line_file;

static void *take(lp_lines *lines, size_t size)
{
    size = (size + 7) & ~(size_t)7;
    if (!lines->chunks || lines->chunks->size - lines->chunks->used < size) {
        size_t room = size > CHUNK / 4 ? size : CHUNK;
        lp__line_chunk *chunk = malloc(sizeof *chunk + room);
        if (!chunk)
            return NULL;
        chunk->next = lines->chunks;
        chunk->used = 0;
        chunk->size = room;
        lines->chunks = chunk;
    }
    void *at = lines->chunks->bytes + lines->chunks->used;
    lines->chunks->used += size;
    return at;
}

static lp__line_file **file_slot(lp__line_file **files, uint32_t mask, uint32_t hash, const char *bytes, uint32_t size)
{
    for (uint32_t i = hash;; i++) {
        lp__line_file **slot = &files[i & mask];
        if (!*slot || ((*slot)->hash == hash && (*slot)->size == size && memcmp((*slot)->bytes, bytes, size) == 0))
            return slot;
    }
}

static lp__line_file *file_of(lp_lines *lines, const char *bytes, uint32_t size)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (uint32_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    if (!lines->files || 2 * lines->file_count > lines->file_mask) {
        uint32_t room = lines->files ? 2 * (lines->file_mask + 1) : 64;
        lp__line_file **grown = calloc(room, sizeof *grown);
        if (!grown)
            return NULL;
        for (uint32_t i = 0; lines->files && i <= lines->file_mask; i++) {
            lp__line_file *file = lines->files[i];
            if (file)
                *file_slot(grown, room - 1, file->hash, file->bytes, file->size) = file;
        }
        free(lines->files);
        lines->files = grown;
        lines->file_mask = room - 1;
    }
    lp__line_file **slot = file_slot(lines->files, lines->file_mask, hash, bytes, size);
    if (!*slot) {
        lp__line_file *file = take(lines, sizeof *file + size + 1);
        if (!file)
            return NULL;
        *file = (lp__line_file){.hash = hash, .size = size};
        memcpy(file->bytes, bytes, size);
        file->bytes[size] = '\0';
        *slot = file;
        lines->file_count++;
    }
    return *slot;
}

/* One piece of memory for all of it but the file's name. */
static lp_line_code *copy_of(lp_lines *lines, const lp_line_code *from)
{
    size_t entries = from->bytes / 2 * (from->narrow ? sizeof *from->narrow : sizeof *from->wide);
    size_t numbers = from->slots * sizeof *from->lines;
    size_t weights = from->weights ? from->bytes / 2 * sizeof *from->weights : 0;
    lp__line_file *file = file_of(lines, from->file, from->file_size);
    unsigned char *at = file ? take(lines, sizeof *from + numbers + entries + weights + from->name_size + 1) : NULL;

    if (!at)
        return NULL;
    lp_line_code *code = (lp_line_code *)(void *)at;
    *code = *from;
    at += sizeof *code;
    memcpy(at, from->lines, numbers);
    code->lines = (const int32_t *)(void *)at;
    at += numbers;
    memcpy(at, from->narrow ? (const void *)from->narrow : (const void *)from->wide, entries);
    code->narrow = from->narrow ? (const uint16_t *)(void *)at : NULL;
    code->wide = from->narrow ? NULL : (const uint32_t *)(void *)at;
    at += entries;
    if (from->weights)
        memcpy(at, from->weights, weights);
    code->weights = from->weights ? (const uint16_t *)(void *)at : NULL;
    at += weights;
    memcpy(at, from->name, from->name_size);
    at[from->name_size] = '\0';
    code->name = (const char *)at;
    code->file = file->bytes;
    code->marked = 1;
    code->described = 0;
    return code;
}

void lp_lines_free(lp_lines *lines)
{
    bool forked = lp_lines_forked(lines);

    __atomic_store_n(&lines->on, 0, __ATOMIC_RELEASE);
    if (!forked)
        lp__lines_pause(lines);
    uint64_t now = lp_ticks();
    for (lp_line_thread *th = lines->threads, *link; th; th = link) {
        link = th->link;
        __atomic_store_n(&th->go, 0, __ATOMIC_RELEASE);
        if (forked)
            continue; /* it was wiped */
        lp__lines_close_all(th, now - th->seg->own);
        for (uint32_t i = 0; i < th->node_count; i++)
            free(th->nodes[i].cells);
        free(th->nodes);
        free(th->entries);
        th->nodes = NULL;
        th->entries = NULL;
        th->node_count = th->node_room = th->entry_count = th->entry_room = 0;
        if (!th->attached)
            lp__lines_thread_free(th);
    }
    for (lp__line_chunk *chunk = lines->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(lines->files);
    free(lines->by_index);
    for (lp__line_codes *table = lines->codes, *older; table; table = older) {
        older = table->older;
        free(table);
    }
    for (uint32_t i = 0; i < lines->name_count; i++)
        free(lines->names[i].bytes);
    free(lines->names);
    lp__lines_shards_free(lines);
    if (lines->begun && !forked) {
        lp_segment_set_state(&lines->segment, LP_SEG_CLOSED);
        lp_segment_close(&lines->segment, lines->keep);
    } else {
        lp_segment_forget(&lines->segment);
    }
    lines->keep = false;
    lines->by_index = NULL;
    lines->chunks = NULL;
    lines->files = NULL;
    lines->file_count = lines->file_mask = 0;
    lines->codes = NULL;
    lines->names = NULL;
    lines->threads = NULL;
    lines->code_count = lines->code_room = lines->name_count = lines->name_room = lines->thread_count = 0;
    lines->begun = false;
    lines->dead = true;
    __atomic_store_n(&lines->guard[0], 0, __ATOMIC_RELEASE);
    lines->generation++;
    memset(&lines->health, 0, sizeof lines->health);
    memset(&lines->cost, 0, sizeof lines->cost);
    atomic_flag_clear(&lines->lock);
    while (atomic_flag_test_and_set_explicit(&retired_lock, memory_order_acquire))
        sched_yield();
    lines->next = retired;
    retired = lines;
    atomic_flag_clear_explicit(&retired_lock, memory_order_release);
}

bool lp_lines_forked(const lp_lines *lines)
{
    return lines->begun && __atomic_load_n(&lines->guard[0], __ATOMIC_ACQUIRE) != lines->generation;
}

uint64_t lp_lines_mult(const lp_lines *lines)
{
    lp_moment now;

    if (!lines->begun)
        return 1ull << 32;
    uint64_t rested = __atomic_load_n(&lines->rested_mult, __ATOMIC_ACQUIRE);
    if (rested)
        return rested;
    lp_clock_moment(&now);
    return lp_clock_mult(&lines->start, &now, lines->mult);
}

/* ---- code objects ---------------------------------------------------------------------------------------------------- */

static uint32_t hash_of(const void *key)
{
    uint64_t mix = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(mix >> 32);
}

lp_line_code *lp_lines_code(const lp_lines *lines, const void *key)
{
    const lp__line_codes *table = __atomic_load_n(&lines->codes, __ATOMIC_ACQUIRE);

    if (!table)
        return NULL;
    for (uint32_t i = hash_of(key);; i++) {
        lp_line_code *code = __atomic_load_n(&table->at[i & table->mask], __ATOMIC_ACQUIRE);
        if (!code || code->key == key)
            return code;
    }
}

static void insert(lp__line_codes *table, lp_line_code *code)
{
    uint32_t i = hash_of(code->key);

    while (table->at[i & table->mask])
        i++;
    __atomic_store_n(&table->at[i & table->mask], code, __ATOMIC_RELEASE);
}

/* Room for one more. */
static bool make_room(lp_lines *lines)
{
    if (lines->code_count == lines->code_room) {
        lp_line_code **grown =
            lp__lines_grown(lines->by_index, &lines->code_room, lines->code_count + 1, sizeof *grown);
        if (!grown)
            return false;
        lines->by_index = grown;
    }
    if (lines->codes && lines->code_count < (lines->codes->mask + 1) / 2)
        return true;
    uint32_t size = lines->codes ? 2 * (lines->codes->mask + 1) : 64;
    lp__line_codes *table = calloc(1, sizeof *table + size * sizeof *table->at);
    if (!table)
        return false;
    table->mask = size - 1;
    table->older = lines->codes;
    for (uint32_t i = 0; i < lines->code_count; i++)
        insert(table, lines->by_index[i]);
    __atomic_store_n(&lines->codes, table, __ATOMIC_RELEASE);
    return true;
}

lp_line_code *lp_lines_code_add(lp_lines *lines, const lp_line_code *from)
{
    lp__lines_lock(lines);
    lp_line_code *code = lp_lines_code(lines, from->key);
    if (!code && make_room(lines) && (code = copy_of(lines, from))) {
        code->index = lines->code_count;
        lines->by_index[lines->code_count] = code;
        insert(lines->codes, code);
        __atomic_store_n(&lines->code_count, lines->code_count + 1, __ATOMIC_RELEASE);
    }
    lp__lines_unlock(lines);
    return code;
}

uint32_t lp_lines_code_count(const lp_lines *lines)
{
    return __atomic_load_n(&lines->code_count, __ATOMIC_ACQUIRE);
}

lp_line_code *lp_lines_code_at(const lp_lines *lines, uint32_t index)
{
    return index < lines->code_count ? lines->by_index[index] : NULL;
}

uint32_t lp_line_entry_of(const lp_line_code *code, int32_t line)
{
    uint32_t low = 0, high = code->slots;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (code->lines[middle] < line)
            low = middle + 1;
        else
            high = middle;
    }
    return low < code->slots && code->lines[low] == line ? low << LP_LINE_SLOT : LP_LINE_NOWHERE;
}

/* Where the segment has the name of the file; 0: no space. */
static lp_off describe_file(lp_lines *lines, const lp_line_code *code)
{
    lp__line_file *file = (lp__line_file *)(void *)((uintptr_t)code->file - offsetof(lp__line_file, bytes));

    if (file->described != lines->generation) {
        lp_off at = lp_segment_take(&lines->segment, LP_BLOCK_LINE_FILE, 0, sizeof file->size + file->size, NULL);
        if (!at)
            return 0;
        unsigned char *to = lines->segment.base + at;
        memcpy(to + sizeof file->size, file->bytes, file->size);
        __atomic_store_n((uint32_t *)(void *)to, file->size, __ATOMIC_RELEASE);
        file->at = at;
        file->described = lines->generation;
    }
    return file->at;
}

void lp__lines_describe(lp_lines *lines, lp_line_code *code)
{
    while (atomic_flag_test_and_set_explicit(&lines->describing, memory_order_acquire))
        sched_yield();
    if (code->described != lines->generation) {
        lp_off file = describe_file(lines, code);
        lp_off at =
            lp_segment_take(&lines->segment, LP_BLOCK_LINE_CODE, 0, sizeof(lp_seg_line_code) + code->name_size, NULL);
        if (at) {
            lp_seg_line_code *seg = (lp_seg_line_code *)(void *)(lines->segment.base + at);
            seg->index = code->index;
            seg->first_line = code->first_line;
            seg->file = file;
            memcpy(seg + 1, code->name, code->name_size);
            __atomic_store_n(&seg->name_size, code->name_size, __ATOMIC_RELEASE);
        }
        code->described = lines->generation;
    }
    atomic_flag_clear_explicit(&lines->describing, memory_order_release);
}

/* ---- names of regions ------------------------------------------------------------------------------------------------ */

uint32_t lp_lines_name(lp_lines *lines, const char *bytes, size_t size)
{
    uint32_t found = UINT32_MAX;

    if (size > UINT16_MAX)
        size = UINT16_MAX;
    lp__lines_lock(lines);
    for (uint32_t i = 0; i < lines->name_count && found == UINT32_MAX; i++)
        if (lines->names[i].size == size && memcmp(lines->names[i].bytes, bytes, size) == 0)
            found = i;
    if (found == UINT32_MAX) {
        if (lines->name_count == lines->name_room) {
            lp__line_name *grown =
                lp__lines_grown(lines->names, &lines->name_room, lines->name_count + 1, sizeof *grown);
            if (grown)
                lines->names = grown;
        }
        char *copy = lines->name_count < lines->name_room ? malloc(size + 1) : NULL;
        if (copy) {
            memcpy(copy, bytes, size);
            copy[size] = '\0';
            found = lines->name_count++;
            lines->names[found] = (lp__line_name){.bytes = copy, .size = (uint32_t)size};
        }
    }
    lp__lines_unlock(lines);
    return found;
}

const char *lp_lines_name_text(const lp_lines *lines, uint32_t name, size_t *size)
{
    *size = lines->names[name].size;
    return lines->names[name].bytes;
}
