/* A line engine's segment of any bytes, read as a file that its process has left, and as one that somebody holds; the last byte says
 * which. */
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../c/segment_builder.h"
#include "core/line_layout.h"
#include "fuzz.h"
#include "segment_tools.h"
#include "store/lines_read.h"

static void must_hold(const lp_line_figures *figures)
{
    for (uint32_t i = 0; i < figures->code_count; i++)
        FUZZ_MUST(figures->codes[i].file.data && figures->codes[i].name.data);
    for (uint32_t i = 0; i < figures->thread_count; i++)
        FUZZ_MUST(figures->threads[i].name.data);
    for (uint32_t i = 0; i < figures->row_count; i++) {
        const lp_figures_row *row = &figures->rows[i];
        FUZZ_MUST(row->code < figures->code_count && row->hits <= row->visits);
    }
    for (uint32_t i = 0; i < figures->call_count; i++)
        FUZZ_MUST(figures->calls[i].code < figures->code_count);
    for (uint32_t i = 0; i < figures->open_count; i++)
        FUZZ_MUST(figures->open[i].code < figures->code_count && figures->open[i].thread < figures->thread_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1, other = -1;
    static char path[64];
    lp_line_figures *figures = NULL;
    lp_error error = {.offset = UINT64_MAX};

    if (fd < 0) {
        fd = memfd_create("lines", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        other = open(path, O_RDWR | O_CLOEXEC);
    }
    FUZZ_MUST(fd >= 0 && other >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    FUZZ_MUST(flock(other, size && (data[size - 1] & 1) ? LOCK_EX : LOCK_UN) == 0);
    if (lp_line_figures_read(fd, "input", &figures, &error) == LP_OK)
        must_hold(figures);
    else
        FUZZ_MUST(strncmp(error.text, "input: ", 7) == 0);
    lp_line_figures_free(figures);
    return 0;
}

static lp_off put_named(builder *b, uint32_t kind, size_t head, const char *name)
{
    lp_off at = add_block(b, kind, 0, head + strlen(name));
    memcpy(b->base + at + head, name, strlen(name));
    return at;
}

static lp_off put_code(builder *b, uint32_t index, lp_off file, const char *name)
{
    lp_off at = put_named(b, LP_BLOCK_LINE_CODE, sizeof(lp_seg_line_code), name);
    *(lp_seg_line_code *)at_offset(b, at) = (lp_seg_line_code){
        .index = index, .first_line = 10 * (int32_t)index + 1, .file = file, .name_size = (uint32_t)strlen(name)};
    return at;
}

/* Two functions' figures in one block; the offset of the first's. */
static lp_off put_cells(builder *b, uint32_t thread)
{
    size_t one = sizeof(lp_seg_line_cells) + 3 * sizeof(lp_line_cell);
    lp_off at = add_block(b, LP_BLOCK_LINE_CELLS, 0, 2 * one + 64);

    for (uint32_t code = 0; code < 2; code++) {
        lp_seg_line_cells *head = at_offset(b, at + code * (lp_off)one);
        *head = (lp_seg_line_cells){
            .code = code, .thread = thread, .count = 3, .calls = 7, .time = 9000, .prologue = 5, .size = one};
        for (uint32_t i = 0; i < 3; i++)
            head->at[i] = (lp_line_cell){.visits = 7 * i, .again = i, .time = 900, .self = 800, .line = (int32_t)i + 1};
        head->at[2].self = 0 - (uint64_t)3; /* own cost taken off was more than the line took */
    }
    return at;
}

/* A thread that is within line 2 of the first function, called from line 3 of the second. */
static void put_thread(builder *b, uint32_t number, const char *name, lp_off cells)
{
    const uint64_t base = 0x7f0000000000u;
    size_t one = sizeof(lp_seg_line_cells) + 3 * sizeof(lp_line_cell);
    lp_off stack = add_block(b, LP_BLOCK_LINE_STACK, 0, 8 * sizeof(lp_line_frame));
    lp_off at = put_named(b, LP_BLOCK_LINE_THREAD, sizeof(lp_seg_line_thread), name);

    *(lp_seg_line_thread *)at_offset(b, at) = (lp_seg_line_thread){
        .number = number, .name_size = (uint32_t)strlen(name), .tid = 4242, .own = 50, .base = base, .stack = stack};
    lp_line_frame *frames = at_offset(b, stack);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t head = base + cells + (i ? 0 : one) + sizeof(lp_seg_line_cells);
        frames[i + 1] =
            (lp_line_frame){.frame = frames, /* any address */
                            .cells = (lp_line_cell *)(uintptr_t)head,
                            .cell = (lp_line_cell *)(uintptr_t)(head + (i ? 1u : 2u) * sizeof(lp_line_cell)),
                            .since = BUILDER_START + 100 * i,
                            .start = BUILDER_START + 50 * i,
                            .outermost_line = 1,
                            .outermost_call = 1};
    }
}

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    builder b;

    if (index > 2)
        return 0;
    builder_begin(&b);
    header_of(&b)->used = LP_SEG_HEADER; /* without identity and names: the line engine has none */
    const char *name = "/a/b \x1b[2J.py";
    uint32_t size_of_name = (uint32_t)strlen(name);
    lp_off file = put_named(&b, LP_BLOCK_LINE_FILE, sizeof size_of_name, name);
    memcpy(b.base + file, &size_of_name, sizeof size_of_name);
    put_code(&b, 0, file, "f");
    put_code(&b, 1, index == 2 ? 0 : file, "C.<locals>.\xff");
    lp_off cells = put_cells(&b, 0);
    put_thread(&b, 0, "MainThread", cells);
    if (index == 1)
        put_thread(&b, 1, "worker", put_cells(&b, 1));
    if (index == 2)
        header_of(&b)->state = LP_SEG_CLOSED;
    size_t size = (size_t)header_of(&b)->used;
    header_of(&b)->capacity = size;
    FUZZ_MUST(size + 1 <= FUZZ_ROOM);
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
