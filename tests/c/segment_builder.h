/* Segments by hand, byte for byte as core/layout.h says, for the tests of the readers: none of the recorder's code is
 * used, so that a mistake shared by writer and reader is seen. */
#ifndef LP_TESTS_SEGMENT_BUILDER_H
#define LP_TESTS_SEGMENT_BUILDER_H

#include <stdlib.h>
#include <string.h>

#include "core/layout.h"
#include "store/snapshot.h"

#define BUILDER_SIZE (1u << 20)

typedef struct builder {
    unsigned char *base; /* owned: free */
    uint64_t size;
    lp_off names, thread;
    uint32_t next_name;
} builder;

static inline void *at_offset(const builder *b, lp_off offset)
{
    return b->base + offset;
}

static inline lp_seg_header *header_of(const builder *b)
{
    return (lp_seg_header *)(void *)b->base;
}

/* Payload offset of a new block. */
static inline lp_off add_block(builder *b, uint32_t kind, lp_off owner, uint64_t payload)
{
    lp_seg_header *h = header_of(b);
    uint64_t size = (sizeof(lp_seg_block) + payload + 63) & ~63ull;
    lp_seg_block *block = at_offset(b, (lp_off)h->used);
    if (h->used + size > b->size)
        abort();
    *block = (lp_seg_block){.kind = kind, .owner = owner, .size = size};
    lp_off at = (lp_off)(h->used + sizeof *block);
    h->used += size;
    return at;
}

static inline lp_seg_node *node_at(const builder *b, lp_off node)
{
    return at_offset(b, node);
}

static inline lp_seg_thread *thread_at(const builder *b, lp_off thread)
{
    return at_offset(b, thread);
}

static inline uint32_t add_name_bytes(builder *b, const void *bytes, uint32_t size)
{
    lp_seg_names *names = at_offset(b, b->names);
    unsigned char *to = (unsigned char *)(names + 1) + names->bytes;
    memcpy(to, &size, sizeof size);
    memcpy(to + sizeof size, bytes, size);
    names->bytes += 4 + ((size + 3) & ~3u);
    names->count++;
    header_of(b)->name_count = b->next_name;
    return b->next_name++;
}

static inline uint32_t add_name(builder *b, const char *text)
{
    return add_name_bytes(b, text, (uint32_t)strlen(text));
}

static inline void add_names_block(builder *b)
{
    lp_off previous = b->names;
    b->names = add_block(b, LP_BLOCK_NAMES, 0, sizeof(lp_seg_names) + 2048);
    lp_seg_names *names = at_offset(b, b->names);
    names->previous = previous;
    names->first_id = b->next_name;
    header_of(b)->names = b->names;
}

static inline lp_off add_node(builder *b, lp_off parent, uint32_t name)
{
    lp_off at = add_block(b, LP_BLOCK_ARENA, b->thread, sizeof(lp_seg_node));
    lp_seg_node *node = node_at(b, at);
    node->name = name;
    node->parent = parent;
    node->min = UINT64_MAX;
    if (parent) {
        node->sibling = node_at(b, parent)->child;
        node_at(b, parent)->child = at;
    }
    return at;
}

static inline lp_off add_thread(builder *b, int64_t tid, const char *name)
{
    uint32_t id = name ? add_name(b, name) : 0;
    lp_off at = add_block(b, LP_BLOCK_THREAD, 0, sizeof(lp_seg_thread));
    lp_seg_thread *thread = thread_at(b, at);
    b->thread = at;
    thread->previous = header_of(b)->threads;
    thread->tid = tid;
    thread->name = id;
    thread->attached = 1;
    header_of(b)->threads = at;
    header_of(b)->thread_count++;
    lp_off root = add_node(b, 0, 0);
    thread_at(b, at)->root = root;
    return at;
}

/* The count of `value` in a table of octaves; memory for the octave is made. */
static inline lp_off cell_of(builder *b, lp_off octaves, uint64_t value)
{
    uint32_t cell = lp_hist_cell(value);
    lp_off *octave = (lp_off *)at_offset(b, octaves) + (cell >> 5);
    if (!*octave) {
        lp_off made = add_block(b, LP_BLOCK_ARENA, b->thread, LP_HIST_SUB * sizeof(uint64_t));
        octave = (lp_off *)at_offset(b, octaves) + (cell >> 5);
        *octave = made;
    }
    return *octave + (cell & 31u) * (lp_off)sizeof(uint64_t);
}

/* One finished entry: ticks are ns (the builder's clock is CLOCK_MONOTONIC unless a test says otherwise). */
static inline void add_entry(builder *b, lp_off node, uint64_t wall)
{
    lp_off cell = cell_of(b, node + (lp_off)offsetof(lp_seg_node, cells), wall);
    lp_seg_node *n = node_at(b, node);
    n->begun++;
    n->entries++;
    n->wall += wall;
    if (wall < n->min)
        n->min = wall;
    if (wall > n->max)
        n->max = wall;
    ++*(uint64_t *)at_offset(b, cell);
    n->done++;
}

static inline lp_off add_counter(builder *b, lp_off node, uint32_t name)
{
    lp_off at = add_block(b, LP_BLOCK_ARENA, b->thread, sizeof(lp_seg_counter));
    lp_seg_counter *c = at_offset(b, at);
    c->name = name;
    c->min = INT64_MAX;
    c->max = INT64_MIN;
    c->next = node_at(b, node)->counters;
    node_at(b, node)->counters = at;
    return at;
}

static inline void add_amount(builder *b, lp_off counter, int64_t amount)
{
    lp_seg_counter *c = at_offset(b, counter);
    if (amount < 0 && !c->negative) {
        lp_off table = add_block(b, LP_BLOCK_ARENA, b->thread, LP_HIST_OCTAVES * sizeof(lp_off));
        c->negative = table;
    }
    lp_off cell = amount < 0 ? cell_of(b, c->negative, 0 - (uint64_t)amount)
                             : cell_of(b, counter + (lp_off)offsetof(lp_seg_counter, cells), (uint64_t)amount);
    __extension__ typedef unsigned __int128 u128;
    lp_i128 total = (lp_i128)((u128)c->total_high << 64 | c->total_low);
    total += amount;
    c->begun++;
    c->calls++;
    c->total_low = (uint64_t)total;
    c->total_high = (uint64_t)((u128)total >> 64);
    if (amount < c->min)
        c->min = amount;
    if (amount > c->max)
        c->max = amount;
    ++*(uint64_t *)at_offset(b, cell);
    c->done++;
}

/* A table of `count` free entries for the thread. */
static inline lp_seg_entries *add_entries(builder *b, lp_off thread, uint32_t count)
{
    lp_off at = add_block(b, LP_BLOCK_ARENA, thread, sizeof(lp_seg_entries) + count * sizeof(lp_entry));
    lp_seg_entries *table = at_offset(b, at);
    table->count = count;
    table->next = thread_at(b, thread)->entries;
    thread_at(b, thread)->entries = at;
    return table;
}

#define BUILDER_START 1000000000ull         /* ticks and mono ns at the start of recording */
#define BUILDER_REAL 1800000000000000000ull /* Unix ns then */

static inline lp_str builder_str(const char *text)
{
    return (lp_str){text, strlen(text)};
}

/* Recording since BUILDER_START, last flush 10 s later, no thread yet. */
static inline void builder_begin(builder *b)
{
    lp_identity id;
    lp_buffer bytes = {0};

    *b = (builder){.base = calloc(1, BUILDER_SIZE), .size = BUILDER_SIZE, .next_name = 1};
    lp_seg_header *h = header_of(b);
    *h = (lp_seg_header){
        .magic = LP_SEG_MAGIC,
        .order = LP_SEG_ORDER,
        .layout = LP_SEG_LAYOUT,
        .header_size = LP_SEG_HEADER,
        .state = LP_SEG_RECORDING,
        .capacity = BUILDER_SIZE,
        .used = LP_SEG_HEADER,
        .generation = 6,
        .measure_cpu = 1,
        .pid = 4242,
        .pid_start = 77,
        .started_ns = BUILDER_REAL,
        .clock = {.kind = LP_CLOCK_MONOTONIC,
                  .cpu = LP_CPU_RSEQ,
                  .split = 1,
                  .mult = 1ull << 32,
                  .start = {BUILDER_START, BUILDER_START, BUILDER_REAL},
                  .last = {BUILDER_START + 10000000000u, BUILDER_START + 10000000000u, BUILDER_REAL + 10000000000u},
                  .last_done = 3,
                  .last_begun = 3}};
    lp_identity_init(&id);
    id.host = builder_str("node07");
    id.uuid = builder_str("0123456789abcdef0123456789abcdef");
    id.run_id = builder_str("20260101T000000-abcdef");
    id.role = builder_str("actor");
    id.pid = 4242;
    id.pid_start = 77;
    id.started_ns = BUILDER_REAL;
    id.rank = 3;
    lp_identity_encode(&id, &bytes);
    lp_off at = add_block(b, LP_BLOCK_IDENTITY, 0, 8 + bytes.size);
    uint64_t size = bytes.size;
    memcpy(at_offset(b, at), &size, 8);
    memcpy(b->base + at + 8, bytes.data, bytes.size);
    lp_buffer_free(&bytes);
    add_names_block(b);
}

static inline void builder_free(builder *b)
{
    free(b->base);
    b->base = NULL;
}

#endif
