/* A line-profiled process from its segment: the blocks are walked in a copy, and every offset is checked where it is followed. */
#include "store/lines_read.h"

#include <stdlib.h>

#include "core/clock.h"
#include "core/line_layout.h"
#include "store/arena.h"
#include "store/files.h"
#include "store/segment.h"
#include "store/segment_image.h"
#include "store/segment_read.h"

#define CODES_MAX (1u << 22)
#define THREADS_MAX (1u << 16)

typedef struct reader {
    lp__image *image;
    lp_line_figures *out;
    uint64_t mult, now; /* ticks; 0: the process has ended */
    lp_error *error;
} reader;

/* Ticks less own cost: below zero means that the cost was set too high for what was short. */
static uint64_t ns_of(const reader *r, uint64_t ticks)
{
    return (int64_t)ticks <= 0 ? 0 : lp_ticks_to_ns(ticks, r->mult);
}

static lp_status no_memory(const reader *r)
{
    return lp__fail(r->error, LP_E_MEMORY, r->image->name, UINT64_MAX, "out of memory");
}

static lp_status damaged(const reader *r, uint64_t at, const char *what)
{
    return lp__fail(r->error, LP_E_DAMAGED, r->image->name, at, what);
}

/* One more element at the end of a list of the figures. */
#define MORE(r, list, count)                                                                                           \
    (((r)->out->list = lp_arena_grow((r)->out->arena, (r)->out->list, (r)->out->count, sizeof *(r)->out->list)) !=     \
             NULL                                                                                                      \
         ? &(r)->out->list[(r)->out->count++]                                                                          \
         : NULL)

static lp_status need_code(reader *r, uint32_t index)
{
    while (r->out->code_count <= index) {
        lp_figures_code *code = MORE(r, codes, code_count);
        if (!code)
            return no_memory(r);
        *code = (lp_figures_code){.file = lp__empty, .name = lp__empty};
    }
    return LP_OK;
}

static lp_status need_thread(reader *r, uint32_t number)
{
    while (r->out->thread_count <= number) {
        lp_figures_thread *thread = MORE(r, threads, thread_count);
        if (!thread)
            return no_memory(r);
        *thread = (lp_figures_thread){.name = lp__empty};
    }
    return LP_OK;
}

static lp_status read_code(reader *r, uint64_t at, uint64_t room)
{
    const lp_seg_line_code *seg = LP__AT(r->image, at, lp_seg_line_code);

    if (!seg || seg->index >= CODES_MAX)
        return damaged(r, at, "the description of a function is too short");
    if (seg->name_size > room - sizeof *seg)
        return damaged(r, at, "the name of a function is longer than its block");
    lp_status status = need_code(r, seg->index);
    if (status != LP_OK)
        return status;
    lp_figures_code *code = &r->out->codes[seg->index];
    const uint32_t *size = seg->file ? lp__image_at(r->image, seg->file, sizeof(uint64_t)) : NULL;
    if (size && *size <= r->image->size - seg->file - sizeof *size)
        code->file = lp_arena_str(r->out->arena, size + 1, *size);
    code->name = lp_arena_str(r->out->arena, seg + 1, seg->name_size);
    code->first_line = seg->first_line;
    return code->file.data && code->name.data ? LP_OK : no_memory(r);
}

static lp_status read_cells(reader *r, uint64_t at, uint64_t room)
{
    const lp_seg_line_cells *head = LP__AT(r->image, at, lp_seg_line_cells);

    if (!head || head->code >= CODES_MAX || head->thread >= THREADS_MAX ||
        head->count > (room - sizeof *head) / sizeof head->at[0])
        return damaged(r, at, "figures of a function are longer than their block");
    lp_status status = need_code(r, head->code);
    uint64_t self = head->prologue, awaited = 0;
    for (uint32_t i = 0; i < head->count && status == LP_OK; i++) {
        const lp_line_cell *cell = &head->at[i];
        self += cell->self;
        awaited += cell->awaited;
        if (!cell->visits && !cell->time && !cell->awaited)
            continue;
        lp_figures_row *row = MORE(r, rows, row_count);
        if (!row)
            return no_memory(r);
        *row = (lp_figures_row){.code = head->code,
                                .thread = head->thread,
                                .line = cell->line,
                                .hits = cell->visits > cell->again ? cell->visits - cell->again : 0,
                                .visits = cell->visits,
                                .time_ns = ns_of(r, cell->time),
                                .self_ns = ns_of(r, cell->self),
                                .awaited_ns = lp_ticks_to_ns(cell->awaited, r->mult)};
    }
    lp_figures_call *call = status == LP_OK ? MORE(r, calls, call_count) : NULL;
    if (!call)
        return status == LP_OK ? no_memory(r) : status;
    *call = (lp_figures_call){.code = head->code,
                              .thread = head->thread,
                              .calls = head->calls,
                              .time_ns = ns_of(r, head->time),
                              .self_ns = ns_of(r, self),
                              .awaited_ns = lp_ticks_to_ns(awaited, r->mult),
                              .suspended = head->suspended};
    return LP_OK;
}

static lp_status read_block_of_cells(reader *r, uint64_t at, uint64_t room)
{
    lp_status status = LP_OK;

    while (status == LP_OK && room >= sizeof(lp_seg_line_cells)) {
        const lp_seg_line_cells *head = LP__AT(r->image, at, lp_seg_line_cells);
        if (!head || head->size == 0)
            break;
        if (head->size < sizeof *head || head->size % 8 != 0 || head->size > room)
            return damaged(r, at, "figures of a function are longer than their block");
        status = read_cells(r, at, head->size);
        at += head->size;
        room -= head->size;
    }
    return status;
}

/* ---- open frames ----------------------------------------------------------------------------------------------------- */

/* The cells block that an open frame's cell lies in begins at `cells`; NULL: the copy is torn here. */
static lp_seg_line_cells *head_of(const reader *r, const lp_seg_line_thread *thread, const lp_line_frame *f)
{
    uint64_t cells = (uint64_t)(uintptr_t)f->cells - thread->base;

    if (cells < sizeof(lp_seg_line_cells) || cells >= r->image->size)
        return NULL;
    return LP__AT(r->image, cells - sizeof(lp_seg_line_cells), lp_seg_line_cells);
}

/* Ticks from `then` to `now`; none where the writer was ahead of the copy. */
static uint64_t since(uint64_t now, uint64_t then)
{
    return (int64_t)(now - then) > 0 ? now - then : 0;
}

/* Adds what is open to the cells of the copy, innermost first, as the writer will when it ends. */
static void settle(reader *r, const lp_seg_line_thread *thread, lp_line_frame *first, uint32_t count, uint64_t v)
{
    uint64_t callee = 0;

    for (uint32_t i = count; i-- > 0;) {
        lp_line_frame *f = &first[i];
        lp_seg_line_cells *head = head_of(r, thread, f);
        uint64_t took = since(v, f->since), active = since(v, f->start);
        if (!head)
            return;
        uint64_t self = took - f->covered - callee;
        uint64_t at = (uint64_t)(uintptr_t)f->cell - thread->base;
        lp_line_cell *cell = f->cell ? LP__AT(r->image, at, lp_line_cell) : NULL;
        if (cell) {
            cell->self += self;
            cell->time += f->outermost_line ? took : 0;
        } else {
            head->prologue += self;
        }
        head->time += f->outermost_call ? active : 0;
        callee = active;
    }
}

static lp_status read_stack(reader *r, const lp_seg_line_thread *thread)
{
    const lp_seg_block *block =
        thread->stack >= sizeof *block ? LP__AT(r->image, thread->stack - sizeof *block, lp_seg_block) : NULL;
    uint64_t v = r->now ? r->now - thread->own : 0;
    uint32_t count = 0;

    if (!block || block->kind != LP_BLOCK_LINE_STACK || block->size > r->image->size - (thread->stack - sizeof *block))
        return thread->stack ? damaged(r, thread->stack, "a stack of frames is not there") : LP_OK;
    uint64_t most = (block->size - sizeof *block) / sizeof(lp_line_frame);
    lp_line_frame *frames = lp__image_at(r->image, thread->stack, most * sizeof *frames);
    if (!frames)
        return damaged(r, thread->stack, "a stack of frames is cut");
    for (lp_line_frame *f = frames + 1; count + 1 < most && f->frame; f++, count++) {
        if (!r->now) /* ended: nothing was seen after its last event */
            v = (int64_t)(f->since - v) > 0 || !v ? f->since : v;
    }
    for (uint32_t i = 1; i <= count; i++) {
        const lp_line_frame *f = &frames[i];
        const lp_seg_line_cells *head = head_of(r, thread, f);
        if (!head || head->code >= CODES_MAX)
            break;
        lp_status status = need_code(r, head->code);
        lp_figures_open *open = status == LP_OK ? MORE(r, open, open_count) : NULL;
        if (!open)
            return status == LP_OK ? no_memory(r) : status;
        const lp_line_cell *cell =
            f->cell ? LP__AT(r->image, (uint64_t)(uintptr_t)f->cell - thread->base, lp_line_cell) : NULL;
        *open = (lp_figures_open){.code = head->code,
                                  .thread = thread->number,
                                  .line = cell ? cell->line : 0,
                                  .since_ns = ns_of(r, v - f->since)};
    }
    settle(r, thread, frames + 1, count, v);
    return LP_OK;
}

static lp_status read_thread(reader *r, uint64_t at, uint64_t room)
{
    const lp_seg_line_thread *seg = LP__AT(r->image, at, lp_seg_line_thread);

    if (!seg || seg->number >= THREADS_MAX || seg->name_size > room - sizeof *seg)
        return damaged(r, at, "a thread is longer than its block");
    lp_status status = need_thread(r, seg->number);
    if (status != LP_OK)
        return status;
    lp_figures_thread *thread = &r->out->threads[seg->number];
    thread->name = lp_arena_str(r->out->arena, seg + 1, seg->name_size);
    thread->tid = seg->tid;
    return thread->name.data ? read_stack(r, seg) : no_memory(r);
}

/* ---- the file -------------------------------------------------------------------------------------------------------- */

/* Threads first: their open frames are added to the cells, wherever these stand. */
static lp_status walk(reader *r, uint64_t at, bool threads)
{
    lp_status status = LP_OK;

    while (status == LP_OK && at + sizeof(lp_seg_block) <= r->image->size) {
        const lp_seg_block *block = LP__AT(r->image, at, lp_seg_block);
        if (!block || block->kind == LP_BLOCK_NONE)
            break;
        uint64_t payload = at + sizeof *block;
        if (block->size < sizeof *block || block->size % 64 != 0 || block->size > r->image->size - at)
            return damaged(r, at, "a block is larger than the segment");
        uint64_t room = block->size - sizeof *block;
        if (threads && block->kind == LP_BLOCK_LINE_THREAD)
            status = read_thread(r, payload, room);
        else if (!threads && block->kind == LP_BLOCK_LINE_CODE)
            status = read_code(r, payload, room);
        else if (!threads && block->kind == LP_BLOCK_LINE_CELLS)
            status = read_block_of_cells(r, payload, room);
        at += block->size;
    }
    return status;
}

lp_status lp_line_figures_read(int fd, const char *name, lp_line_figures **figures, lp_error *error)
{
    lp__image image = {.fd = fd, .name = name};
    lp_seg_header header;
    lp_moment now;
    lp_status status = lp__image_header(&image, &header, error);

    if (status != LP_OK)
        return status;
    lp_line_figures *out = calloc(1, sizeof *out);
    if (out)
        out->arena = lp_arena_new();
    if (!out || !out->arena) {
        free(out);
        return lp__fail(error, LP_E_MEMORY, name, UINT64_MAX, "out of memory");
    }
    out->pid = header.pid;
    out->started_ns = header.started_ns;
    out->closed = header.state == LP_SEG_CLOSED;
    out->living = lp__segment_has_owner(fd);
    reader r = {.image = &image, .out = out, .mult = header.clock.mult, .error = error};
    status = lp__image_take(&image, error);
    /* After the copy: what had begun in it has begun before now. */
    if (out->living && !out->closed && lp__segment_now(&header.clock, &now)) {
        r.now = now.ticks;
        r.mult = lp_clock_mult(&header.clock.start, &now, header.clock.mult);
    }
    if (status == LP_OK)
        status = walk(&r, header.header_size, true);
    if (status == LP_OK)
        status = walk(&r, header.header_size, false);
    lp__image_free(&image);
    if (status != LP_OK) {
        lp_line_figures_free(out);
        return status;
    }
    *figures = out;
    return LP_OK;
}

void lp_line_figures_free(lp_line_figures *figures)
{
    if (!figures)
        return;
    lp_arena_free(figures->arena);
    free(figures);
}
