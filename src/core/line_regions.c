/* Regions of the line engine: named stretches of a thread's time with figures of their own for the lines in them. */
#include <stdlib.h>
#include <string.h>

#include "core/lines.h"
#include "core/lines_internal.h"

bool lp__lines_nodes_make(lp_line_thread *th)
{
    th->nodes = lp__lines_grown(NULL, &th->node_room, 1, sizeof *th->nodes);
    if (!th->nodes)
        return false;
    th->nodes[0] = (lp_line_node){.name = UINT32_MAX};
    th->node_count = 1;
    th->cells = NULL;
    th->have = th->region = th->entry_count = 0;
    return true;
}

static void go_to(lp_line_thread *th, uint32_t number)
{
    th->region = number;
    th->cells = th->nodes[number].cells;
    th->have = th->nodes[number].have;
}

/* Nearest region of this name from `number` upwards, 0 none. */
static uint32_t above(const lp_line_thread *th, uint32_t number, uint32_t name)
{
    while (number && th->nodes[number].name != name)
        number = th->nodes[number].parent;
    return number;
}

static uint32_t node_make(lp_line_thread *th, uint32_t parent, uint32_t name)
{
    size_t size;
    const char *text = lp_lines_name_text(th->lines, name, &size);
    lp_segment *segment = &th->lines->segment;

    if (th->node_count == th->node_room) {
        lp_line_node *grown = lp__lines_grown(th->nodes, &th->node_room, th->node_count + 1, sizeof *grown);
        if (!grown)
            return UINT32_MAX;
        th->nodes = grown;
    }
    lp_off owner = (lp_off)((unsigned char *)th->seg - segment->base);
    lp_off at = lp_segment_take(segment, LP_BLOCK_LINE_REGION, owner, sizeof(lp_seg_line_region) + size, NULL);
    if (!at)
        return UINT32_MAX;
    lp_seg_line_region *seg = (lp_seg_line_region *)(void *)(segment->base + at);
    seg->thread = th->seg->number;
    seg->number = th->node_count;
    seg->parent = parent;
    memcpy(seg + 1, text, size);
    __atomic_store_n(&seg->name_size, (uint32_t)size, __ATOMIC_RELEASE);
    th->nodes[th->node_count] = (lp_line_node){.name = name, .parent = parent, .seg = seg};
    return th->node_count++;
}

/* The region of this name right below `parent`; made if it was not there. UINT32_MAX: no memory. */
static uint32_t below(lp_line_thread *th, uint32_t parent, uint32_t name)
{
    for (uint32_t number = 1; number < th->node_count; number++)
        if (th->nodes[number].parent == parent && th->nodes[number].name == name)
            return number;
    return node_make(th, parent, name);
}

static lp_line_thread *door(lp_lines *lines)
{
    lp_line_thread *known = lp_lines_known(lines), *th = known ? known : lp__lines_attached(lines);

    if (th && lines->concurrent)
        lp__lines_lock(lines); /* a reader settles regions, too */
    return th;
}

static void out(lp_lines *lines)
{
    if (lines->concurrent)
        lp__lines_unlock(lines);
}

bool lp_lines_region_enter(lp_lines *lines, uint32_t name, uint64_t now)
{
    lp_line_thread *th = door(lines);

    if (!th)
        return false;
    uint64_t v = now - th->seg->own;
    uint32_t before = th->region, found = above(th, before, name), number = found ? found : below(th, before, name);
    if (th->entry_count == th->entry_room) {
        lp_line_entry *grown = lp__lines_grown(th->entries, &th->entry_room, th->entry_count + 1, sizeof *grown);
        if (grown)
            th->entries = grown;
    }
    bool good = number != UINT32_MAX && th->entry_count < th->entry_room;
    if (good) {
        th->entries[th->entry_count++] = (lp_line_entry){.node = number, .before = before, .start = v};
        th->nodes[number].open++;
        LP__LINE_ADD(th->nodes[number].seg->entries, 1);
        if (!found) {
            go_to(th, number);
            if (th->top > th->bottom)
                lp__lines_recell(th, th->top, v);
        }
    }
    out(lines);
    return good;
}

/* The entries from `at` on are in the regions that they would be in had the one that was there never been: tasks of a thread
 * leave theirs in any order. Their time so far stays where it was spent. */
static __attribute__((noinline)) uint32_t renested(lp_line_thread *th, uint32_t at, uint32_t region, uint64_t v)
{
    lp__lines_regions_settle(th, v);
    for (; at < th->entry_count; at++) {
        lp_line_entry *entry = &th->entries[at];
        uint32_t name = th->nodes[entry->node].name, found = above(th, region, name);
        uint32_t number = found ? found : below(th, region, name);
        if (number == UINT32_MAX)
            number = entry->node;
        th->nodes[entry->node].open--;
        th->nodes[number].open++;
        entry->node = number;
        entry->before = region;
        region = found ? region : number;
    }
    return region;
}

bool lp_lines_region_leave(lp_lines *lines, uint32_t name, uint64_t now)
{
    lp_line_thread *th = door(lines);
    uint32_t at = th ? th->entry_count : 0;

    /* at: 1 + the entry; 0 none */
    while (at && name != UINT32_MAX && th->nodes[th->entries[at - 1].node].name != name)
        at--;
    bool good = at > 0;
    if (good) {
        uint64_t v = now - th->seg->own;
        lp_line_entry entry = th->entries[--at];
        if (--th->nodes[entry.node].open == 0)
            LP__LINE_ADD(th->nodes[entry.node].seg->time, v - entry.start);
        uint32_t region = entry.before;
        if (LP_LINE_UNLIKELY(at != --th->entry_count)) {
            memmove(&th->entries[at], &th->entries[at + 1], (th->entry_count - at) * sizeof entry);
            region = renested(th, at, region, v);
        }
        if (region != th->region) {
            go_to(th, region);
            if (th->top > th->bottom)
                lp__lines_recell(th, th->top, v);
        }
    }
    if (th)
        out(lines);
    return good;
}

/* Finished and open time is in `time` now. */
void lp__lines_regions_settle(lp_line_thread *th, uint64_t v)
{
    for (uint32_t i = 0; i < th->entry_count; i++) {
        lp_line_entry *entry = &th->entries[i];
        bool outermost = true;
        for (uint32_t j = 0; j < i && outermost; j++)
            outermost = th->entries[j].node != entry->node;
        if (outermost) {
            LP__LINE_ADD(th->nodes[entry->node].seg->time, v - entry->start);
            entry->start = v;
        }
    }
}

/* The thread has ended within them; another one may take its place. */
void lp__lines_regions_end(lp_line_thread *th, uint64_t v)
{
    lp__lines_regions_settle(th, v);
    for (uint32_t i = 0; i < th->node_count; i++)
        th->nodes[i].open = 0;
    th->entry_count = 0;
    go_to(th, 0);
}

void lp__lines_regions_clear(lp_line_thread *th, uint64_t v)
{
    for (uint32_t i = 1; i < th->node_count; i++)
        th->nodes[i].seg->entries = th->nodes[i].seg->time = 0;
    for (uint32_t i = 0; i < th->entry_count; i++)
        th->entries[i].start = v;
}
