/* The line engine without Python: which line of which frame of which thread takes how long. The hot path is inline.
 *
 * Rules of this file: the thread's state is fetched once; guards first; the fast part is inline and the cold part out of line
 * (lines.c, line_stack.c); after a line's first visit in a thread nothing allocates, locks or calls the system.
 *
 * A back end (sys.monitoring, a trace function) reports events: a call begins, a line begins, the frame returns, unwinds, yields
 * or is resumed. Frames, code objects and execution contexts are opaque addresses. The back end reads the clock as early as it
 * can, for a line by lp_lines_line_ticks, and calls lp_lines_enter; NULL means that nothing is measured.
 *
 * Whose frame: each thread has a stack of its open frames. An event of a frame that is not on top is rare: a greenlet came
 * back, a frame was lost, or measuring began in the middle of it. lp_lines_find settles what is above and brings the frame to
 * the top. A generator leaves the stack when it yields and comes back when it is resumed: dropped half-way it leaves nothing.
 *
 * Own cost: each thread counts the ticks that the events so far have cost by calibration (`own`), and all times are on the clock
 * less that count. So inclusive, self and region times are all corrected by one addition an event.
 *
 * Threads: figures belong to the thread that writes them. With `concurrent` (no GIL) who reads or clears them stops the
 * others at the door of their next event (lp_lines_pause). Without, the back end and the reader hold the GIL. */
#ifndef LP_CORE_LINES_H
#define LP_CORE_LINES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/clock.h"
#include "core/line_layout.h"
#include "core/local.h"
#include "core/segment.h"

#define LP_LINE_LIKELY(x) __builtin_expect(!!(x), 1)
#define LP_LINE_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define LP_LINES_GO 0x4c494e45u /* th->go while nothing needs attention; a forked child reads 0 */

/* What an instruction is to the engine: slot of its line << 4 | class of cost << 1 | again. */
#define LP_LINE_AGAIN 1u            /* reached within one execution of the statement for a second time */
#define LP_LINE_COSTS 8u            /* classes, 0 the cheapest; the back end knows what they are */
#define LP_LINE_SLOT 4u             /* shift */
#define LP_LINE_NOWHERE 0xffffffffu /* has no line */
#define LP_LINE_NARROW_NOWHERE 0xffffu
#define LP_LINE_NARROW_SLOTS 0xfffu /* code with fewer lines has 16-bit entries */

typedef enum lp_line_event { /* classes of own cost besides those of lines */
                             LP_LINE_CALL,
                             LP_LINE_RETURN,
                             LP_LINE_YIELD,
                             LP_LINE_RESUME,
                             LP_LINE_CALL_BEFORE,   /* what the caller sees of LP_LINE_CALL: before the event */
                             LP_LINE_RESUME_BEFORE, /* and of LP_LINE_RESUME */
                             LP_LINE_UNMARKED,      /* a call of code that is not measured, from such code */
                             LP_LINE_LEFT,          /* the same from measured code */
                             LP_LINE_LEFT_C,        /* the same by C code that it called */
                             LP_LINE_INNER, /* what a call of measured code from such code costs beyond the cheaper of the two ways */
                             LP_LINE_INNER_C, /* the same by C code */
                             LP_LINE_RAISE,   /* an exception that is raised in measured code or passes through it */
                             LP_LINE_EVENTS
} lp_line_event;

typedef struct lp_lines lp_lines;

/* One code object, with all that it points to in the engine's memory. Lives until its lp_lines is freed; nothing of it changes but
 * `marked` and `described`. */
typedef struct lp_line_code {
    const void *key;        /* the code object; the caller keeps it alive */
    uint32_t bytes;         /* of its instructions; an entry stands for two */
    uint32_t index;         /* 0, 1, … in order of first sight */
    const uint16_t *narrow; /* entries. NULL: see wide */
    const uint32_t *wide;
    const uint16_t *weights; /* by entry: ticks that the instructions of a visit cost besides its event; NULL: none */
    const int32_t *lines;    /* line numbers by slot, ascending */
    uint32_t slots;
    int32_t first_line;
    const char *file, *name; /* bytes */
    uint32_t file_size, name_size;
    uint32_t marked;    /* 0: its events are ignored */
    uint32_t described; /* generation of the segment that has its description */
} lp_line_code;

typedef struct lp_line_cost { /* ticks an event */
    uint32_t line[LP_LINE_COSTS], event[LP_LINE_EVENTS];
} lp_line_cost;

typedef struct lp_line_node { /* a region below another one; number 0 is outside all */
    lp_line_cell **cells;     /* by index of the code; heap */
    uint32_t have;            /* of cells */
    uint32_t name, parent;
    uint32_t open;           /* entries now */
    lp_seg_line_region *seg; /* NULL for number 0 */
} lp_line_node;

typedef struct lp_line_entry { /* an open region */
    uint32_t node, before;     /* that it is counted in; and the current one before it */
    uint64_t start;
} lp_line_entry;

/* Private state of one thread, in MADV_WIPEONFORK memory: all zero in a forked child. Freed when both its thread and its engine have
 * ended; where there are many, the next thread takes that of one that has. */
typedef struct lp_line_thread {
    uint32_t go;   /* LP_LINES_GO, else look in lp__lines_sync; other threads store 0 */
    uint32_t busy; /* in an event; only where `concurrent` */
    lp_lines *lines;
    lp_line_frame *top; /* the bottom entry is a sentinel whose frame is NULL */
    lp_seg_line_thread *seg;
    lp_line_cell **cells; /* of the current region */
    uint32_t have;        /* of cells */
    uint32_t region;      /* the current one's number */
    lp_line_cost cost;
    lp_line_frame *bottom, *limit;
    lp_line_node *nodes; /* regions of this thread; heap */
    uint32_t node_count, node_room;
    lp_line_entry *entries; /* open regions; heap */
    uint32_t entry_count, entry_room;
    lp_off blocks;               /* newest lp_seg_line_cells */
    lp_off chunk, chunk_end;     /* of the last LP_BLOCK_LINE_CELLS: what is free */
    uint32_t chunk_size;         /* bytes of the next one */
    uint32_t generation;         /* of the segment that it writes to */
    struct lp_line_thread *next; /* of the same thread, for other engines */
    struct lp_line_thread *link; /* of the same engine, newest first */
    bool attached;               /* a thread uses it */
} lp_line_thread;

typedef struct lp_line_hooks {
    void *user;
    /* Makes lines->segment for this process: lp_segment_create and what else is to stand in it. Runs no Python. */
    bool (*open)(void *user, lp_lines *lines);
    /* Name of the calling thread, cut; runs no Python. Returns its size. */
    size_t (*thread_name)(void *user, char *name, size_t size);
} lp_line_hooks;

extern __thread lp_line_thread *lp__lines_current LP_NEAR;

/* ---- cold ------------------------------------------------------------------------------------------------------------ */

/* NULL: no memory. Hooks are copied. */
lp_lines *lp_lines_new(const lp_line_hooks *hooks, bool concurrent);
/* Gives back segment and tables; threads that were seen forget it at their next event. No event may be running. */
void lp_lines_free(lp_lines *lines);

/* Code object of this address, NULL unknown. */
lp_line_code *lp_lines_code(const lp_lines *lines, const void *key);
/* Copies *code with all that it points to, sets its index and marks it. One that is there already wins. NULL: no memory. */
lp_line_code *lp_lines_code_add(lp_lines *lines, const lp_line_code *code);
uint32_t lp_lines_code_count(const lp_lines *lines);
lp_line_code *lp_lines_code_at(const lp_lines *lines, uint32_t index);
/* Events of this code are ignored from now on; its open frames are closed. */
void lp_lines_unmark(lp_lines *lines, lp_line_code *code);

/* Costs for threads; before measuring begins, or in between. */
void lp_lines_set_cost(lp_lines *lines, const lp_line_cost *cost);
/* Measuring: while off, lp_lines_enter gives NULL. Switching it off closes all open frames. */
void lp_lines_set_on(lp_lines *lines, bool on);
/* All figures to zero, what is open begins anew now. */
void lp_lines_clear(lp_lines *lines);

/* Number of a region's name; the same bytes give the same number. UINT32_MAX: no memory. */
uint32_t lp_lines_name(lp_lines *lines, const char *bytes, size_t size);
const char *lp_lines_name_text(const lp_lines *lines, uint32_t name, size_t *size);
/* The calling thread's regions, also while measuring is off. leave: the innermost of this name, of any if it is UINT32_MAX; false
 * when none is open. */
bool lp_lines_region_enter(lp_lines *lines, uint32_t name, uint64_t now);
bool lp_lines_region_leave(lp_lines *lines, uint32_t name, uint64_t now);

/* Brings all figures up to now, then calls `visit` for each thread with its blocks (linked by `next`, offsets from `base`).
 * Other threads wait meanwhile: `visit` must not take locks of theirs. */
typedef void lp_lines_visit(void *user, const lp_line_thread *th, const unsigned char *base);
void lp_lines_read(lp_lines *lines, lp_lines_visit *visit, void *user);
/* ns of a tick: ns = ticks * mult / 2^32, by the longest baseline; once it is off, always the same. */
uint64_t lp_lines_mult(const lp_lines *lines);
/* true in a forked child that has measured nothing yet. */
bool lp_lines_forked(const lp_lines *lines);
/* Names of threads by number; borrowed. */
uint32_t lp_lines_thread_count(const lp_lines *lines);
/* What could not be measured, as counts. */
typedef struct lp_line_health {
    _Atomic uint64_t lost_events;    /* no memory for a frame or a line */
    _Atomic uint64_t lost_frames;    /* frames that ended without an event */
    _Atomic uint64_t suspended_lost; /* suspensions whose awaited time is unknown for want of memory */
} lp_line_health;

struct lp_lines {
    uint32_t *guard; /* wiped memory: [0] = generation, [1] = a child is being set up */
    _Atomic uint32_t generation;
    bool concurrent;
    _Atomic bool begun; /* the segment is there */
    bool keep;          /* its file stays when the engine is freed: a reader will fetch it; set by hooks.open */
    bool dead;          /* freed, waits to be used again */
    uint32_t on;
    lp_line_cost cost;
    lp_line_hooks hooks;
    lp_segment segment;
    uint64_t mult;
    uint64_t rested_mult; /* while it is off: of the time until then, so that all readings are the same; 0: none */
    lp_moment start;
    lp_line_health health;
    atomic_flag describing;       /* spin; taken within events, where `lock` may be held by who waits for them */
    atomic_flag lock;             /* of everything below; cold paths only */
    struct lp__line_codes *codes; /* hash table; readers take no lock */
    lp_line_code **by_index;
    struct lp__line_chunk *chunks; /* of code objects and names of files */
    struct lp__line_file **files;  /* hash table by content */
    uint32_t file_count, file_mask;
    uint32_t code_count, code_room;
    lp_line_thread *threads; /* all, linked by `link` */
    uint32_t thread_count;
    struct lp__line_name *names;
    uint32_t name_count, name_room;
    struct lp__line_shard *shards; /* suspended frames */
    lp_lines *next;                /* of the process */
};

lp_line_thread *lp__lines_sync(lp_lines *lines);
lp_line_cell *lp__lines_cells(lp_line_thread *th, lp_line_code *code);
bool lp__lines_grow(lp_line_thread *th);
void lp__lines_recell(lp_line_thread *th, lp_line_frame *f, uint64_t v);
void lp__lines_drop_top(lp_line_thread *th);

/* Brings `frame` to the top of the stack; what is above it is settled at `now`. false: it is not there. */
bool lp_lines_find(lp_line_thread *th, const void *frame, const void *key, const void *context, uint64_t now);
/* Remembers that `frame` was suspended on the line `slot` / what it was suspended on: true, with slot and ticks. */
void lp__lines_suspend(lp_lines *lines, const void *frame, lp_line_code *code, uint32_t slot, uint64_t now);
bool lp__lines_resume(lp_lines *lines, const void *frame, const lp_line_code *code, uint32_t *slot, uint64_t *when);
void lp__lines_forget_suspended(lp_lines *lines, bool all, uint64_t now);

/* ---- fast ------------------------------------------------------------------------------------------------------------ */

#define LP__LINE_ADD(field, amount)                                                                                    \
    __atomic_store_n(&(field), __atomic_load_n(&(field), __ATOMIC_RELAXED) + (amount), __ATOMIC_RELAXED)

/* The calling thread's state, NULL: nothing is measured. With `concurrent` each lp_lines_enter that gave a thread is followed by
 * lp_lines_exit; the load of `go` may overtake the store of `busy`, which lp_lines_pause makes good by membarrier(2). */
static inline lp_line_thread *lp_lines_enter(lp_lines *lines, bool concurrent)
{
    lp_line_thread *th = lp__lines_current;

    if (LP_LINE_LIKELY(th && th->lines == lines)) {
        if (concurrent) {
            __atomic_store_n(&th->busy, 1, __ATOMIC_RELAXED);
            atomic_signal_fence(memory_order_seq_cst);
        }
        if (LP_LINE_LIKELY(__atomic_load_n(&th->go, __ATOMIC_ACQUIRE) == LP_LINES_GO))
            return th;
        if (concurrent)
            __atomic_store_n(&th->busy, 0, __ATOMIC_RELEASE);
    }
    return lp__lines_sync(lines);
}

/* The same for the beginning of a call, at `now`: the first event of a thread, or of a forked child, makes room for its figures, and that
 * is no time of the call's. */
static inline lp_line_thread *lp_lines_enter_call(lp_lines *lines, bool concurrent, uint64_t *now)
{
    lp_line_thread *th = lp__lines_current;

    if (LP_LINE_UNLIKELY(!(th && th->lines == lines && __atomic_load_n(&th->go, __ATOMIC_ACQUIRE) == LP_LINES_GO))) {
        th = lp_lines_enter(lines, concurrent);
        *now = lp_ticks();
        return th;
    }
    return lp_lines_enter(lines, concurrent);
}

/* The same without `concurrent`, for an event that may be of code that is not measured. NULL: this thread is not known yet, or
 * something needs attention. */
static inline lp_line_thread *lp_lines_known(const lp_lines *lines)
{
    lp_line_thread *th = lp__lines_current;

    return th && th->lines == lines && __atomic_load_n(&th->go, __ATOMIC_ACQUIRE) == LP_LINES_GO ? th : NULL;
}

static inline void lp_lines_exit(lp_line_thread *th, bool concurrent)
{
    if (concurrent)
        __atomic_store_n(&th->busy, 0, __ATOMIC_RELEASE);
}

static inline uint32_t lp_line_entry_at(const lp_line_code *code, size_t at)
{
    if (LP_LINE_UNLIKELY(at >= code->bytes))
        return LP_LINE_NOWHERE;
    if (LP_LINE_LIKELY(code->narrow != NULL)) {
        uint32_t entry = code->narrow[at >> 1];
        return LP_LINE_LIKELY(entry != LP_LINE_NARROW_NOWHERE) ? entry : LP_LINE_NOWHERE;
    }
    return code->wide[at >> 1];
}

/* Entry of a line, for a back end that does not know the instruction: nothing is `again`. */
uint32_t lp_line_entry_of(const lp_line_code *code, int32_t line);

static inline lp_seg_line_cells *lp__line_head(lp_line_cell *cells)
{
    return (lp_seg_line_cells *)(void *)((unsigned char *)cells - sizeof(lp_seg_line_cells));
}

static inline uint32_t *lp__line_open(const lp_line_frame *f, lp_line_cell *cell)
{
    return (uint32_t *)(void *)((unsigned char *)&cell->open + f->shift);
}

static inline uint32_t *lp__call_open(const lp_line_frame *f)
{
    return (uint32_t *)(void *)((unsigned char *)&lp__line_head(f->cells)->open + f->shift);
}

/* Ends the visit of the frame's current line at `v`. */
static inline void lp__line_close(lp_line_frame *f, uint64_t v)
{
    lp_line_cell *cell = f->cell;
    uint64_t took = v - f->since;

    if (LP_LINE_LIKELY(cell != NULL)) {
        LP__LINE_ADD(cell->self, took - f->covered);
        if (LP_LINE_LIKELY(f->outermost_line))
            LP__LINE_ADD(cell->time, took);
        --*lp__line_open(f, cell);
    } else {
        LP__LINE_ADD(lp__line_head(f->cells)->prologue, took - f->covered);
    }
}

static inline void lp__line_open_at(lp_line_frame *f, lp_line_cell *cell, uint64_t v)
{
    uint32_t *open = lp__line_open(f, cell);

    f->outermost_line = (*open)++ == 0;
    f->cell = cell;
    f->since = v;
    f->covered = 0;
}

/* The frame on top comes to the line of `entry`. */
static inline void lp__line_visit(lp_line_thread *th, lp_line_frame *f, uint32_t entry, uint64_t now)
{
    uint64_t v = now - th->seg->own;

    if (LP_LINE_UNLIKELY(f->region != th->region))
        lp__lines_recell(th, f, v);
    lp_line_cell *cell = f->cells + (entry >> LP_LINE_SLOT);
    lp__line_close(f, v);
    LP__LINE_ADD(cell->visits, 1);
    LP__LINE_ADD(cell->again, entry & LP_LINE_AGAIN);
    lp__line_open_at(f, cell, v);
    LP__LINE_ADD(th->seg->own, th->cost.line[(entry >> 1) & (LP_LINE_COSTS - 1)]);
}

/* A line event at instruction `at` (byte offset) of the code object `key`. false: the frame is not on top or the instruction has no
 * known line; then lp_lines_line_slow. */
static inline bool lp_lines_line(lp_line_thread *th, const void *frame, const void *key, size_t at, uint64_t now)
{
    lp_line_frame *f = th->top;

    if (LP_LINE_UNLIKELY(f->frame != frame || f->code->key != key))
        return false;
    uint32_t entry = lp_line_entry_at(f->code, at);
    if (LP_LINE_UNLIKELY(entry == LP_LINE_NOWHERE))
        return false;
    lp__line_visit(th, f, entry, now);
    if (f->code->weights)
        LP__LINE_ADD(th->seg->own, f->code->weights[at >> 1]);
    return true;
}

/* The clock for lp_lines_line. The first line of a call begins with the call: between these two events nothing of the program
 * runs, so a second reading would be for our own cost alone. */
static inline uint64_t lp_lines_line_ticks(const lp_line_thread *th, const void *frame, const void *key)
{
    const lp_line_frame *f = th->top;

    if (f->cell == NULL && f->frame == frame && f->covered == 0 && f->code->key == key)
        return f->since + th->seg->own;
    return lp_ticks();
}

/* The same for any frame: finds it, or adopts one whose call was not seen. `at` SIZE_MAX: only `line` is known. */
void lp_lines_line_slow(lp_line_thread *th, const void *frame, const void *key, const void *context, size_t at,
                        int line, uint64_t now);

static inline lp_line_frame *lp__line_push(lp_line_thread *th, lp_line_code *code, const void *frame,
                                           const void *context, uint64_t v)
{
    lp_line_cell *cells = LP_LINE_LIKELY(code->index < th->have) ? th->cells[code->index] : NULL;

    if (LP_LINE_UNLIKELY(th->top->frame == frame))
        lp__lines_drop_top(th); /* the interpreter uses its memory again: that frame is gone */
    if (LP_LINE_UNLIKELY(th->top + 2 >= th->limit && !lp__lines_grow(th)))
        return NULL;
    if (LP_LINE_UNLIKELY(!cells)) {
        cells = lp__lines_cells(th, code);
        if (!cells)
            return NULL;
    }
    lp_line_frame *f = th->top + 1;
    f->code = code;
    f->cells = cells;
    f->cell = NULL;
    f->since = f->start = v;
    f->covered = 0;
    f->context = context;
    f->region = th->region;
    f->shift = 0;
    if (LP_LINE_UNLIKELY(th->region))
        f->shift = (char *)th->nodes[0].cells[code->index] - (char *)cells;
    f->outermost_call = (*lp__call_open(f))++ == 0;
    f[1].frame = NULL;
    __atomic_store_n(&f->frame, frame, __ATOMIC_RELEASE);
    th->top = f;
    return f;
}

/* A call of marked code begins. */
static inline void lp_lines_call(lp_line_thread *th, lp_line_code *code, const void *frame, const void *context,
                                 uint64_t now)
{
    LP__LINE_ADD(th->seg->own, th->cost.event[LP_LINE_CALL_BEFORE]);
    lp_line_frame *f = lp__line_push(th, code, frame, context, now - th->seg->own);

    if (LP_LINE_LIKELY(f != NULL)) {
        LP__LINE_ADD(lp__line_head(f->cells)->calls, 1);
        LP__LINE_ADD(th->seg->own, th->cost.event[LP_LINE_CALL]);
    }
}

/* Takes the frame on top off the stack. */
static inline void lp__line_pop(lp_line_thread *th, lp_line_frame *f, uint64_t v)
{
    uint64_t took = v - f->start;

    lp__line_close(f, v);
    --*lp__call_open(f);
    if (LP_LINE_LIKELY(f->outermost_call))
        LP__LINE_ADD(lp__line_head(f->cells)->time, took);
    __atomic_store_n(&f->frame, NULL, __ATOMIC_RELEASE);
    f[-1].covered += took;
    th->top = f - 1;
}

static inline bool lp__line_is_top(lp_line_thread *th, const void *frame, const void *key, const void *context,
                                   uint64_t now)
{
    lp_line_frame *f = th->top;

    return LP_LINE_LIKELY(f->frame == frame && f->code->key == key) || lp_lines_find(th, frame, key, context, now);
}

/* The frame returns, or an exception leaves it. Of a frame that was never seen: nothing. */
static inline void lp_lines_leave(lp_line_thread *th, const void *frame, const void *key, const void *context,
                                  uint64_t now)
{
    if (LP_LINE_LIKELY(lp__line_is_top(th, frame, key, context, now))) {
        lp__line_pop(th, th->top, now - th->seg->own);
        LP__LINE_ADD(th->seg->own, th->cost.event[LP_LINE_RETURN]);
    }
}

/* Ticks that were taken off in this thread; 0 unknown. */
static inline uint64_t lp_lines_own(const lp_lines *lines)
{
    const lp_line_thread *th = lp_lines_known(lines);

    return th ? th->seg->own : 0;
}

/* The same for a back end that knows no context yet. false: the frame is not on top, nothing happened. */
static inline bool lp_lines_leave_top(lp_line_thread *th, const void *frame, const void *key)
{
    lp_line_frame *f = th->top;

    if (LP_LINE_UNLIKELY(f->frame != frame || f->code->key != key))
        return false;
    lp__line_pop(th, f, lp_ticks() - th->seg->own);
    LP__LINE_ADD(th->seg->own, th->cost.event[LP_LINE_RETURN]);
    return true;
}

/* Something that is no event of this thread's frames has cost `class`. */
static inline void lp_lines_cost(lp_line_event class)
{
    for (lp_line_thread *th = lp__lines_current; th; th = th->next)
        if (LP_LINE_LIKELY(__atomic_load_n(&th->go, __ATOMIC_ACQUIRE) == LP_LINES_GO))
            LP__LINE_ADD(th->seg->own, th->cost.event[class]);
}

/* The frame yields or awaits. */
void lp_lines_yield(lp_line_thread *th, const void *frame, const void *key, const void *context, uint64_t now);
/* A frame of marked code goes on at instruction `at`, by a value or by an exception. */
void lp_lines_resume(lp_line_thread *th, lp_line_code *code, const void *frame, const void *context, size_t at,
                     uint64_t now);

#endif
