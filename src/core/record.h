/* The hot path: enter a phase, leave it, count.
 *
 * Rules of this file: the thread's state is fetched once; guards first; the fast part is inline and the cold part
 * out of line in record.c; after a path's first visit nothing allocates, locks or calls the system. All state is
 * private to the calling thread except the words that say so. No Python here: names are opaque keys, execution
 * contexts are opaque addresses, and what the core needs to know about them comes through lp_hooks.
 *
 * Whose stack: entries nest per (thread, context). The current context's stack is th->top; the stacks of other contexts of this
 * thread wait in a small table. The outermost entry of a context hangs below the innermost entry of the context that
 * runs it (lp_hooks.outer). */
#ifndef LP_CORE_RECORD_H
#define LP_CORE_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/clock.h"
#include "core/cputime.h"
#include "core/layout.h"
#include "core/local.h"
#include "core/segment.h"

#define LP_LIKELY(x) __builtin_expect(!!(x), 1)
#define LP_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define LP_GO 0x4c50474fu /* th->go while nothing needs attention; a forked child reads 0 */
#define LP_SLOTS 256u     /* of the node cache, a power of 2 */
#define LP_COUNT_SLOTS 64u
#define LP_PATH_LIMIT 4096u /* distinct paths a process */
#define LP_DEPTH_LIMIT 32u
#define LP_NAME_LIMIT 1024u   /* bytes of a name; longer ones are cut and end in a hash */
#define LP_NAMES_LIMIT 16384u /* distinct names a process */

enum {                           /* lp_entry.flags */
       LP_ENTRY_SKIP = 1,        /* not measured: sample= left it out, with everything below it */
       LP_ENTRY_FOLD = 2,        /* no node of its own: beyond a limit, part of its parent */
       LP_ENTRY_ASYNC = 4,       /* async_work=True */
       LP_ENTRY_UNKNOWN_CPU = 8, /* its task was suspended, or it was left in another thread: CPU time cannot be told */
       LP_ENTRY_OVERLAP = 16,    /* children overlapped */
       LP_ENTRY_ORPHAN = 32,     /* its thread has ended: whoever leaves it is another one */
       LP_ENTRY_IO = 128,        /* io=True, extra[] holds the counters at the start */
       LP_ENTRY_IO_OVERLAP = 256, /* another thread's io=True entry was open at the same time */
       LP_ENTRY_LOST = 512        /* there was no memory for it: neither it nor what lies below is recorded anywhere */
};

/* How an entry ended. */
enum { LP_LEFT = 0, LP_LEFT_ERROR = 1, LP_LEFT_ABANDONED = 2, LP_LEFT_IO_MISSING = 4, LP__REAP = 8 /* internal */ };

typedef struct lp_slot { /* 32 bytes: never across two cache lines */
    const void *key;
    lp_seg_node *parent, *node;
    const void *pad;
} lp_slot;
typedef struct lp_count_slot {
    const void *key;
    lp_seg_node *node;
    lp_seg_counter *counter;
    const void *pad;
} lp_count_slot;

/* Is a context that of a task of an event loop? */
typedef enum lp_tasked { LP_TASK_UNKNOWN = 0, LP_TASK_YES = 1, LP_TASK_NO = 2 } lp_tasked;

typedef struct lp_stack { /* a context that is not the current one and has open entries */
    const void *context;
    lp_entry *top;
    uint64_t cpu; /* thread's CPU time when it was suspended, ns; for exact watchers */
    lp_tasked tasked;
} lp_stack;

typedef struct lp_recorder lp_recorder;

/* Private state of one thread for one recorder, in MADV_WIPEONFORK memory: all zero in a forked child. Lives as long as its
 * arena: a thread that ends leaves it to the next one. */
typedef struct lp_thread {
    uint32_t go; /* LP_GO, else look in lp__thread_sync; other threads store 0 */
    uint32_t unused;
    lp_recorder *recorder; /* NULL: closed */
    const void *context;   /* the current one */
    lp_entry *top;         /* innermost entry of the current context, NULL none */
    lp_entry *outer;       /* innermost entry around it when top is NULL, NULL none */
    const void *around;    /* the context around the current one when `outer` was found */
    lp_entry *free;        /* unused slots, linked by `below` */
    unsigned char *base;   /* of the segment */
    /* 64 bytes */
    uint64_t away, starved, unsplit; /* this thread's totals since it attached, ns */
    uint64_t mult;
    uint64_t recheck; /* ticks between two looks at the CPU clock */
    lp_seg_thread *seg;
    lp_detector detector; /* first: word, expected, base_ticks */
    lp_seg_node *root;
    unsigned char *chunk; /* arena: next free byte */
    uint64_t chunk_left;
    uint64_t chunk_size; /* of the next chunk */
    lp_stack *stacks;    /* heap; open addressing by context */
    uint32_t stack_mask, stack_count;
    struct lp_thread *next; /* of the same thread, for another recorder */
    struct lp_thread *idle; /* of the same recorder, waiting for a thread */
    uint32_t name;          /* name id of the Python thread name */
    uint32_t io_depth;      /* io=True entries open in this thread */
    uint32_t io_arrivals;   /* this thread's part of the recorder's */
    bool attached;          /* a thread uses it */
    lp_tasked tasked;       /* the current context */
    int64_t raw_away, high_away;
    lp_slot slots[LP_SLOTS] __attribute__((aligned(64)));
    lp_count_slot counts[LP_COUNT_SLOTS];
} lp_thread;

typedef struct lp_hooks {
    void *user;
    /* In a process that has no segment yet (first use, or the child of a fork): makes one with lp_recorder_begin.
     * false: recording stays off. Called with `busy` set, never re-entered. */
    bool (*open)(void *user, lp_recorder *recorder);
    /* A snapshot is overdue (recorder->due). Sets the next due time. */
    void (*overdue)(void *user, lp_recorder *recorder);
    /* The context that runs `context`, NULL none. NULL hook: contexts have no parents. */
    const void *(*around)(const void *context);
    /* true: `context`, the current one, is that of the task that runs now. Runs no Python. NULL: no eager tasks. */
    bool (*runs_task)(const void *context);
    /* true: `context`, another one, belongs to some task: slow, it looks at all of them. Runs no Python. */
    bool (*has_task)(const void *context);
    /* Name id for the calling thread (0: unknown); called when thread_names is on. */
    uint32_t (*thread_name)(void *user, lp_recorder *recorder);
} lp_hooks;

struct lp_recorder {
    lp_recorder *next; /* of all */
    volatile uint32_t
        *guard; /* in a MADV_WIPEONFORK page, 0 in a forked child: [0] generation, [1] whose turn it is to open */
    _Atomic uint32_t generation; /* of the segment; grows with every one */
    _Atomic bool recording;      /* begin … end; whoever sees it sees all that begin has made */
    _Atomic bool
        enabled; /* may (re)open in a child; false: it is being closed, whoever has run Python must let go of it */
    _Atomic bool child; /* forked, and has no segment of its own yet */
    bool measure_cpu, thread_names;
    _Atomic uint32_t busy; /* open or overdue is running */
    _Atomic uint64_t due;  /* ticks; UINT64_MAX never */
    uint64_t mult;
    lp_cpu_kind cpu;
    lp_moment start;
    _Atomic uint64_t moment_due; /* ticks: when `mult` is refined next */
    lp_segment segment;
    lp_hooks hooks;
    atomic_flag moment_lock;   /* one thread stores the clock's moment */
    atomic_flag lock;          /* of everything below; cold paths only */
    struct lp__tables *tables; /* owned; what the two next are in */
    struct lp__names *names;
    struct lp__paths *paths;
    lp_thread **threads;          /* all made for this segment; heap, or the next */
    lp_thread *first_threads[16]; /* while there are no more */
    uint32_t thread_count, thread_room;
    lp_thread *idle;
    _Atomic uint32_t io_threads;  /* threads that have an io=True entry open */
    _Atomic uint32_t io_arrivals; /* how often a thread opened its first one */
};

extern __thread lp_thread *lp__current LP_NEAR;

/* ---- cold (record.c, thread.c, names.c) ------------------------------------------------------------------------- */

/* A recorder that records nothing yet; never freed: threads may hold it for ever. NULL without memory. */
lp_recorder *lp_recorder_new(const lp_hooks *hooks);
/* Starts a segment for this process. After lp_segment_create into recorder->segment. */
lp_status lp_recorder_begin(lp_recorder *recorder);
/* Stops recording: all threads let go, the generation grows. The segment stays for the last snapshot. */
void lp_recorder_end(lp_recorder *recorder);
/* true in a child of the process that began the segment. */
static inline bool lp_recorder_forked(const lp_recorder *recorder)
{
    return recorder->recording && __atomic_load_n(recorder->guard, __ATOMIC_ACQUIRE) != recorder->generation;
}
/* Refines `mult` and stores the moment in the header: at each flush. */
void lp_recorder_moment(lp_recorder *recorder, lp_moment *now);
void lp_recorder_lock(lp_recorder *recorder);
void lp_recorder_unlock(lp_recorder *recorder);

/* Id of a name, 0 if unknown (find), no space, or LP_NAMES_LIMIT names exist (make). Under no lock of the caller. */
uint32_t lp_name_find(lp_recorder *recorder, const char *bytes, size_t size);
uint32_t lp_name_make(lp_recorder *recorder, const char *bytes, size_t size);
/* Bytes of a name in the segment; borrowed. Under no lock of the caller. */
const char *lp_name_bytes(lp_recorder *recorder, uint32_t id, size_t *size);

lp_thread *lp__thread_sync(lp_recorder *recorder, const void *context);
void lp__look_at_cpu(lp_thread *th, uint64_t now);
/* A watcher saw `context` become the current one of the calling thread, of which `th` is one recorder's state. */
void lp_thread_switched(lp_thread *th, const void *context);

typedef enum lp_found { LP_FOUND, LP_FOUND_FOLDED_PATH, LP_FOUND_FOLDED_DEPTH, LP_FOUND_NO_SPACE } lp_found;
/* Node for `name` below `parent`; made when missing, then *fresh is true if the path is new in the process. */
lp_found lp_node_get(lp_thread *th, lp_seg_node *parent, uint32_t name, lp_seg_node **node, bool *fresh);
/* Counts the entry of a phase below `parent` that gets no node, for want of an id of its name. */
lp_found lp_node_fold(lp_thread *th, const lp_seg_node *parent, const char *bytes, size_t size);
/* The same inside an entry that has none: only depth is counted by entries. */
void lp_fold_again(lp_thread *th, const lp_seg_node *parent);
/* true: no new path will be made in this process, so a new name needs no id. */
bool lp_paths_full(lp_recorder *recorder);
/* Path of a node as text "a/b/c" into buffer, cut; returns its length. */
size_t lp_node_path(const lp_thread *th, const lp_seg_node *node, char *buffer, size_t size);
/* The same of what would be `bytes` below `parent`; size > 1. */
size_t lp_node_path_below(const lp_thread *th, const lp_seg_node *parent, const char *bytes, size_t length,
                          char *buffer, size_t size);
lp_seg_counter *lp_counter_get(lp_thread *th, lp_seg_node *node, uint32_t name);
lp_entry *lp__entry_slot(lp_thread *th);
bool lp__cells_make(lp_thread *th, lp_off *where);
void lp__leave_slow(lp_thread *th, lp_entry *entry, uint64_t now, uint32_t how);
void lp__record_slow(lp_thread *th, lp_entry *entry, uint64_t wall, uint64_t now, uint32_t how);
lp_off lp__counter_cells(lp_thread *th, lp_seg_counter *counter, bool negative, uint32_t octave);
void lp__note(lp_recorder *recorder, uint64_t *which);

static inline lp_seg_health *lp_recorder_health(const lp_recorder *recorder)
{
    return &lp_segment_header(&recorder->segment)->health;
}

/* ---- fast ------------------------------------------------------------------------------------------------------- */

/* The calling thread's state with `context` as the current one; NULL: not recording. */
static inline lp_thread *lp_thread_get(lp_recorder *recorder, const void *context)
{
    lp_thread *th = lp__current;

    if (LP_LIKELY(th && th->go == LP_GO && th->recorder == recorder && th->context == context))
        return th;
    return lp__thread_sync(recorder, context);
}

/* As lp_thread_get, for a step that closes what was opened before: in a forked child that has not recorded yet that is
 * nothing, and leaving the parent's phases must not make it a worker of its own. */
static inline lp_thread *lp_thread_leaving(lp_recorder *recorder, const void *context)
{
    lp_thread *th = lp__current;

    if (LP_LIKELY(th && th->go == LP_GO && th->recorder == recorder && th->context == context))
        return th;
    return lp_recorder_forked(recorder) ? NULL : lp__thread_sync(recorder, context);
}

static inline lp_off lp_offset(const lp_thread *th, const void *at)
{
    return (lp_off)((const unsigned char *)at - th->base);
}

/* Finds `outer` again: the current context, without open entries of its own, is run from elsewhere than before. */
void lp_thread_reseat(lp_thread *th);

/* Innermost open entry as seen from the current context, NULL none. */
static inline lp_entry *lp_innermost(lp_thread *th)
{
    return th->top ? th->top : th->outer;
}

static inline uint32_t lp__slot(const void *key, const void *node)
{
    uintptr_t mix = ((uintptr_t)key >> 4) ^ ((uintptr_t)node >> 6) * 31u;
    return (uint32_t)(mix ^ (mix >> 8));
}

/* Cached node of (parent, key), NULL if it is not in the cache. */
static inline lp_seg_node *lp_node_cached(lp_thread *th, lp_seg_node *parent, const void *key)
{
    lp_slot *slot = &th->slots[lp__slot(key, parent) & (LP_SLOTS - 1)];

    return LP_LIKELY(slot->key == key && slot->parent == parent) ? slot->node : NULL;
}

/* Remembers a node; `key` must stay the address of that very name for ever. */
static inline void lp_node_cache(lp_thread *th, lp_seg_node *parent, const void *key, lp_seg_node *node)
{
    th->slots[lp__slot(key, parent) & (LP_SLOTS - 1)] = (lp_slot){key, parent, node, NULL};
}

/* Opens an entry that records nothing itself (LP_ENTRY_SKIP or LP_ENTRY_FOLD): no clock is read and the time stays
 * its parent's. NULL: the segment is full. */
static inline lp_entry *lp_enter_light(lp_thread *th, uint32_t flags)
{
    lp_entry *around = lp_innermost(th);
    lp_entry *entry = th->free ? th->free : lp__entry_slot(th);

    if (!entry)
        return NULL;
    th->free = entry->below;
    entry->below = th->top;
    entry->parent = around && around->node == 0 ? around->parent : around;
    if (entry->parent)
        entry->parent->lights++;
    entry->context = th->context;
    entry->same = NULL;
    entry->closed = 0;
    entry->open_children = entry->lights = 0;
    entry->node = 0;
    entry->place = around ? around->place : th->root;
    entry->scale = around ? around->scale : 1;
    entry->flags = flags;
    entry->serial++;
    entry->state = LP_ENTRY_OPEN;
    th->top = entry;
    return entry;
}

/* Opens an entry on `node`, which `stride` entries stand for (1: measured). NULL: the segment is full. */
static inline lp_entry *lp_enter(lp_thread *th, lp_seg_node *node, uint32_t flags, uint32_t stride)
{
    lp_entry *parent = lp_innermost(th);
    lp_entry *entry = th->free;

    if (parent && LP_UNLIKELY(parent->node == 0))
        parent = parent->parent; /* of an entry without time of its own: the nearest one that has */
    if (LP_UNLIKELY(!entry)) {
        entry = lp__entry_slot(th);
        if (!entry)
            return NULL;
    }
    th->free = entry->below;
    entry->below = th->top;
    entry->parent = parent;
    entry->context = th->context;
    entry->same = NULL;
    entry->closed = 0;
    entry->covered = 0;
    entry->open_children = entry->lights = 0;
    entry->serial++;
    entry->node = lp_offset(th, node);
    entry->place = node;
    entry->scale = parent ? parent->scale : 1;
    if (LP_UNLIKELY(stride > 1)) {
        uint64_t scale = (uint64_t)entry->scale * stride;
        entry->scale = scale > UINT32_MAX ? UINT32_MAX : (uint32_t)scale;
    }
    uint64_t now = lp_ticks();
    if (LP_UNLIKELY(*th->detector.word != th->detector.expected || now - th->detector.base_ticks > th->recheck))
        lp__look_at_cpu(th, now);
    entry->away = th->away;
    entry->starved = th->starved;
    entry->unsplit = th->unsplit;
    entry->start = now;
    if (parent) {
        if (LP_LIKELY(parent->open_children++ == 0))
            parent->covered_since = now;
        else
            parent->flags |= LP_ENTRY_OVERLAP;
    }
    entry->flags = flags;
    __atomic_store_n(&entry->state, LP_ENTRY_OPEN, __ATOMIC_RELEASE);
    th->top = entry;
    return entry;
}

static inline void lp__entry_release(lp_thread *th, lp_entry *entry)
{
    __atomic_store_n(&entry->state, LP_ENTRY_FREE, __ATOMIC_RELEASE);
    entry->below = th->free;
    th->free = entry;
}

/* The innermost entry of this context, without time of its own. */
static inline void lp_leave_light(lp_thread *th, lp_entry *entry)
{
    lp_entry *parent = entry->parent;

    th->top = entry->below;
    if (parent && --parent->lights == 0 && LP_UNLIKELY(parent->state == LP_ENTRY_ZOMBIE && parent->open_children == 0))
        lp__entry_release(th, parent);
    lp__entry_release(th, entry);
}

/* Closes an entry that this thread opened; `now` was read on arrival. Leaves th->top right. */
static inline void lp_leave(lp_thread *th, lp_entry *entry, uint64_t now, uint32_t how)
{
    if (LP_UNLIKELY(th->top != entry || entry->thread != th)) {
        lp__leave_slow(th, entry, now, how);
        return;
    }
    if (LP_UNLIKELY(entry->node == 0)) {
        lp_leave_light(th, entry);
        return;
    }
    if (LP_UNLIKELY(*th->detector.word != th->detector.expected || now - th->detector.base_ticks > th->recheck))
        lp__look_at_cpu(th, now);

    uint64_t wall = now - entry->start;
    lp_entry *parent = entry->parent;
    lp_seg_node *node = entry->place;
    uint64_t nanoseconds = lp_ticks_to_ns(wall, th->mult);
    uint32_t cell = lp_hist_cell(nanoseconds);
    lp_off cells = node->cells[cell >> 5];

    th->top = entry->below;
    if (parent && --parent->open_children == 0) {
        parent->covered +=
            (now - parent->covered_since) * (entry->scale == parent->scale ? 1u : entry->scale / parent->scale);
        if (LP_UNLIKELY(parent->state == LP_ENTRY_ZOMBIE && parent->lights == 0))
            lp__entry_release(th, parent);
    }

    /* One test for everything rare: flags, an exception, an estimate, time off the CPU, a new octave, open children,
     * a clock that went back. */
    if (LP_UNLIKELY(entry->flags | how | entry->open_children | (entry->scale ^ 1u) | (th->away ^ entry->away) |
                    (cells == 0) | (wall >> 63))) {
        lp__record_slow(th, entry, wall, now, how);
    } else {
        lp_seg_undo *undo = &th->seg->undo;
        uint64_t *count = (uint64_t *)(void *)(th->base + cells) + (cell & 31u);
        uint64_t entries = node->entries, total = node->wall, covered = node->covered;
        uint64_t least = node->min, most = node->max, old = *count;
        uint32_t serial = node->begun + 1;

        undo->target = entry->node;
        undo->cell = cells + (lp_off)((cell & 31u) * sizeof old);
        undo->saved = 5;
        undo->old[0] = entries;
        undo->old[1] = total;
        undo->old[2] = covered;
        undo->old[3] = least;
        undo->old[4] = most;
        undo->old_cell = old;
        __atomic_store_n(&undo->valid, 1, __ATOMIC_RELEASE);
        __atomic_store_n(&node->begun, serial, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        node->entries = entries + 1;
        node->wall = total + wall;
        node->covered = covered + entry->covered;
        if (wall < least)
            node->min = wall;
        if (wall > most)
            node->max = wall;
        *count = old + 1;
        __atomic_store_n(&node->done, serial, __ATOMIC_RELEASE);
        __atomic_store_n(&undo->valid, 0, __ATOMIC_RELEASE);
    }
    if (LP_LIKELY((entry->open_children | entry->lights) == 0))
        lp__entry_release(th, entry);
    else
        entry->state = LP_ENTRY_ZOMBIE; /* its last child releases it */
}

/* count() on a counter of this thread's tree; false: the segment is full. */
static inline bool lp_counter_add(lp_thread *th, lp_seg_counter *counter, int64_t amount, uint32_t scale)
{
    uint64_t size = amount < 0 ? 0 - (uint64_t)amount : (uint64_t)amount;
    uint32_t cell = lp_hist_cell(size);
    lp_off cells = counter->cells[cell >> 5];

    if (LP_UNLIKELY(amount < 0 || cells == 0)) {
        cells = lp__counter_cells(th, counter, amount < 0, cell >> 5);
        if (!cells)
            return false;
    }
    lp_seg_undo *undo = &th->seg->undo;
    uint64_t *count = (uint64_t *)(void *)(th->base + cells) + (cell & 31u);
    uint64_t calls = counter->calls, low = counter->total_low, high = counter->total_high, old = *count;
    int64_t least = counter->min, most = counter->max;
    uint32_t serial = counter->begun + 1;

    undo->target = lp_offset(th, counter);
    undo->cell = cells + (lp_off)((cell & 31u) * sizeof old);
    undo->saved = 5;
    undo->old[0] = calls;
    undo->old[1] = low;
    undo->old[2] = high;
    undo->old[3] = (uint64_t)least;
    undo->old[4] = (uint64_t)most;
    undo->old_cell = old;
    __atomic_store_n(&undo->valid, 2, __ATOMIC_RELEASE);
    __atomic_store_n(&counter->begun, serial, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __extension__ unsigned __int128 total =
        ((unsigned __int128)high << 64 | low) + (unsigned __int128)((__int128)amount * scale);
    counter->calls = calls + scale;
    counter->total_low = (uint64_t)total;
    counter->total_high = (uint64_t)(total >> 64);
    if (amount < least)
        counter->min = amount;
    if (amount > most)
        counter->max = amount;
    *count = old + scale;
    __atomic_store_n(&counter->done, serial, __ATOMIC_RELEASE);
    __atomic_store_n(&undo->valid, 0, __ATOMIC_RELEASE);
    return true;
}

#endif
