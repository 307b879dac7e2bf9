/* A segment of any bytes, read as a dead process's file, as memory that is still, and as memory in which others may store
 * meanwhile; the last byte says which. What comes out must be writable as a snapshot that our reader takes. */
#include <sys/mman.h>
#include <unistd.h>

#include "../c/segment_builder.h"
#include "segment_tools.h"
#include "snapshot_tools.h"
#include "store/segment_read.h"

static lp_status read_as(unsigned how, const uint8_t *data, size_t size, lp_worker **worker, lp_error *error)
{
    static int fd = -1;
    lp_moment now = {BUILDER_START + 11000000000u, BUILDER_START + 11000000000u, BUILDER_REAL + 11000000000u};

    if (how & 2)
        return lp_segment_read_memory(data, size, how & 1 ? &now : NULL, worker, error);
    if (fd < 0)
        fd = memfd_create("segment", MFD_CLOEXEC);
    FUZZ_MUST(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    return lp_segment_read_fd(fd, "input", worker, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lp_worker *worker = NULL;
    lp_error error = {.offset = UINT64_MAX};
    unsigned how = size ? data[size - 1] : 0;

    if (read_as(how, data, size, &worker, &error) != LP_OK)
        return 0;
    must_round_trip(worker);
    must_dump(worker);
    lp_worker_free(worker);
    return 0;
}

/* Two threads, nested phases, errors, counters of both signs, open entries, an update that a kill cut off. */
static void fill(builder *b, unsigned index)
{
    lp_off main_thread = add_thread(b, 4242, "MainThread");
    lp_off iteration = add_node(b, thread_at(b, main_thread)->root, add_name(b, "iteration"));
    lp_off load = add_node(b, iteration, add_name(b, "load"));
    lp_off items = add_counter(b, load, add_name(b, "items"));

    for (uint64_t i = 1; i < 6; i++) {
        add_entry(b, iteration, 1000000 * i * i);
        add_entry(b, load, 30 * i);
        add_amount(b, items, (int64_t)i * 7 - 12);
    }
    node_at(b, iteration)->errors = 1;
    node_at(b, iteration)->covered = 900;
    lp_seg_entries *open = add_entries(b, main_thread, 4);
    open->at[0] = (lp_entry){.state = LP_ENTRY_OPEN, .node = iteration, .start = BUILDER_START + 5000};
    open->at[2] = (lp_entry){.state = LP_ENTRY_ZOMBIE,
                             .node = load,
                             .start = BUILDER_START + 6000,
                             .closed = 1,
                             .end = BUILDER_START + 7000};
    if (index == 0)
        return;
    lp_seg_node *node = node_at(b, load);
    node->begun++; /* killed in the middle of an update */
    node->entries++;
    thread_at(b, main_thread)->undo =
        (lp_seg_undo){.valid = 1, .target = load, .saved = 5, .old = {5, node->wall, 0, node->min, node->max}};
    add_names_block(b);
    lp_off other = add_thread(b, 4243, "worker\x1b[2J");
    lp_off again = add_node(b, thread_at(b, other)->root, add_name(b, "iteration"));
    add_entry(b, again, 77);
    header_of(b)->thread_names = index == 2;
    header_of(b)->health.folded_paths = 3;
    memcpy(header_of(b)->health.first_folded, "a/b", 4);
}

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    builder b;

    if (index > 2)
        return 0;
    builder_begin(&b);
    fill(&b, index);
    size_t size = (size_t)header_of(&b)->used;
    FUZZ_MUST(size + 1 <= FUZZ_ROOM);
    header_of(&b)->capacity = size;
    memcpy(out, b.base, size);
    out[size++] = (uint8_t)index;
    builder_free(&b);
    return size;
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    (void)room;
    return repair_segment(data, size);
}
