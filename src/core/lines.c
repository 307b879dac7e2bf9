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

static void code_free(lp_line_code *code)
{
    free((void *)(uintptr_t)code->narrow);
    free((void *)(uintptr_t)code->wide);
    free((void *)(uintptr_t)code->lines);
    free((void *)(uintptr_t)code->file);
    free((void *)(uintptr_t)code->name);
    free(code);
}

void lp_lines_free(lp_lines *lines)
{
    bool forked = lp_lines_forked(lines);

    __atomic_store_n(&lines->on, 0, __ATOMIC_RELEASE);
    if (!forked)
        lp__lines_pause(lines);
    uint64_t now = lp_ticks();
    for (lp_line_thread *th = lines->threads; th; th = th->link) {
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
    }
    for (uint32_t i = 0; i < lines->code_count; i++)
        code_free(lines->by_index[i]);
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
    lines->codes = NULL;
    lines->names = NULL;
    lines->threads = NULL;
    lines->code_count = lines->code_room = lines->name_count = lines->name_room = lines->thread_count = 0;
    lines->begun = false;
    lines->dead = true;
    lines->guard[0] = 0;
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
    return lines->begun && lines->guard[0] != lines->generation;
}

uint64_t lp_lines_mult(const lp_lines *lines)
{
    lp_moment now;

    if (!lines->begun)
        return 1ull << 32;
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
    lp_line_code *code = malloc(sizeof *code);

    if (!code)
        return NULL;
    *code = *from;
    code->marked = 1;
    code->described = 0;
    lp__lines_lock(lines);
    lp_line_code *there = lp_lines_code(lines, from->key);
    if (there || !make_room(lines)) {
        lp__lines_unlock(lines);
        if (there)
            code_free(code);
        else
            free(code);
        return there;
    }
    code->index = lines->code_count;
    lines->by_index[lines->code_count] = code;
    insert(lines->codes, code);
    __atomic_store_n(&lines->code_count, lines->code_count + 1, __ATOMIC_RELEASE);
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

void lp__lines_describe(lp_lines *lines, lp_line_code *code)
{
    if (__atomic_exchange_n(&code->described, lines->generation, __ATOMIC_ACQ_REL) == lines->generation)
        return;
    uint64_t size = sizeof(lp_seg_line_code) + code->file_size + code->name_size;
    lp_off at = lp_segment_take(&lines->segment, LP_BLOCK_LINE_CODE, 0, size, NULL);
    if (!at)
        return;
    lp_seg_line_code *seg = (lp_seg_line_code *)(void *)(lines->segment.base + at);
    unsigned char *bytes = (unsigned char *)(seg + 1);
    seg->index = code->index;
    seg->first_line = code->first_line;
    seg->lines = code->slots;
    memcpy(bytes, code->file, code->file_size);
    memcpy(bytes + code->file_size, code->name, code->name_size);
    seg->file_size = code->file_size;
    __atomic_store_n(&seg->name_size, code->name_size, __ATOMIC_RELEASE);
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
