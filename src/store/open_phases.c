#include "store/open_phases.h"

#include <stdlib.h>
#include <string.h>

#include "store/files.h"
#include "store/segment_image.h"

#define THREADS_MAX 4096u     /* arenas that are walked: those of threads that have ended are kept for the next */
#define BYTES_MAX (64u << 10) /* of open entries that are read */
#define ENTRIES_AT_ONCE 32u

static bool is_within(const lp_open_view *view, lp_off at, size_t size)
{
    return at % 8 == 0 && at >= sizeof(lp_seg_header) && at <= view->header.capacity &&
           size <= view->header.capacity - at;
}

static bool read_at(int fd, const lp_open_view *view, void *out, lp_off at, size_t size)
{
    size_t got;

    return is_within(view, at, size) && lp__read_at(fd, out, size, at, &got) && got == size;
}

/* A thread's record, its root and its first entries were taken one after the other, so they are read at once. */
#define WINDOW 2560u
typedef struct window {
    lp_off at;
    size_t size;
    uint64_t bytes[WINDOW / sizeof(uint64_t)];
} window;

static bool read_window(int fd, const lp_open_view *view, window *w, void *out, lp_off at, size_t size)
{
    if (at < w->at || at - w->at > w->size || size > w->size - (at - w->at)) {
        w->at = at;
        if (!is_within(view, at, size) || !lp__read_at(fd, w->bytes, sizeof w->bytes, at, &w->size))
            w->size = 0;
        if (w->size < size)
            return false;
    } else if (at % 8 != 0) {
        return false;
    }
    memcpy(out, (const char *)w->bytes + (at - w->at), size);
    return true;
}

/* The entry that was opened last of those that are open. A task that waits is as open as the one that runs: which of them runs
 * is the thread's secret, but the newest is likelier than any other. */
static void look_at(lp_open_thread *thread, const lp_entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const lp_entry *e = &entries[i];
        if (e->state == LP_ENTRY_OPEN && !e->closed && e->node && (!thread->node || e->start > thread->since)) {
            thread->node = e->node;
            thread->since = e->start;
        }
    }
}

static void read_entries(int fd, lp_open_view *view, window *w, lp_open_thread *thread, lp_off at, size_t *left)
{
    /* Most threads have one table, of eight: its head and they in one read. */
    struct {
        uint64_t head[sizeof(lp_seg_entries) / sizeof(uint64_t)];
        lp_entry at[8];
    } first;
    lp_seg_entries head;
    lp_entry more[ENTRIES_AT_ONCE];

    while (at) {
        if (*left < sizeof first) {
            view->cut = true;
            return;
        }
        if (!read_window(fd, view, w, &first, at, sizeof first))
            return;
        *left -= sizeof first;
        memcpy(&head, first.head, sizeof head);
        uint32_t count = head.count < LP__LIST_MAX ? head.count : LP__LIST_MAX;
        look_at(thread, first.at, count < 8 ? count : 8);
        for (uint32_t done = 8; done < count;) {
            uint32_t now = count - done < ENTRIES_AT_ONCE ? count - done : ENTRIES_AT_ONCE;
            size_t size = now * sizeof *more;
            if (*left < size) {
                view->cut = true;
                return;
            }
            if (!read_at(fd, view, more, (lp_off)(at + sizeof head + done * sizeof *more), size))
                return;
            *left -= size;
            look_at(thread, more, now);
            done += now;
        }
        at = head.next;
    }
}

bool lp_open_read(int fd, lp_open_view *view)
{
    size_t left = BYTES_MAX;
    lp_seg_thread t;
    window w;

    view->count = 0;
    view->cut = false;
    w.size = 0;
    if (lp__image_header_start(fd, &view->header) != LP_OK || view->header.state != LP_SEG_RECORDING)
        return false;
    lp_off at = view->header.threads;
    for (uint32_t seen = 0; at && seen < THREADS_MAX; seen++, at = t.previous) {
        if (!read_window(fd, view, &w, &t, at, sizeof t))
            break;
        if (t.tid == 0)
            continue;
        if (view->count == LP_OPEN_THREADS) {
            view->cut = true;
            break;
        }
        lp_open_thread *thread = &view->thread[view->count++];
        *thread = (lp_open_thread){.tid = t.tid, .name = t.name};
        read_entries(fd, view, &w, thread, t.entries, &left);
    }
    return true;
}

bool lp_open_node(int fd, const lp_open_view *view, lp_off node, uint32_t *name, lp_off *parent, uint32_t *path)
{
    struct {
        uint32_t name;
        lp_off parent, child, sibling, counters;
        uint32_t path;
    } tail;
    size_t got;
    lp_off at = node + (lp_off)offsetof(lp_seg_node, name);

    _Static_assert(offsetof(lp_seg_node, path) - offsetof(lp_seg_node, name) == 20, "the fields stand side by side");
    if (node % 8 != 0 || node < sizeof(lp_seg_header) || node > view->header.capacity ||
        sizeof(lp_seg_node) > view->header.capacity - node || !lp__read_at(fd, &tail, sizeof tail, at, &got) ||
        got != sizeof tail)
        return false;
    *name = tail.name;
    *parent = tail.parent;
    *path = tail.path;
    return true;
}

static bool find_record(const unsigned char *records, size_t size, uint32_t skip, lp_str *name)
{
    for (size_t at = 0; at + sizeof(uint32_t) <= size;) {
        uint32_t length;
        memcpy(&length, records + at, sizeof length);
        at += sizeof length;
        if (length > size - at)
            return false;
        if (skip-- == 0) {
            char *copy = malloc((size_t)length + 1);
            if (!copy)
                return false;
            memcpy(copy, records + at, length);
            copy[length] = '\0';
            *name = (lp_str){copy, length};
            return true;
        }
        at += ((size_t)length + 3) & ~(size_t)3;
    }
    return false;
}

bool lp_open_name(int fd, const lp_open_view *view, uint32_t id, lp_str *name)
{
    lp_seg_names head;
    lp_off at = view->header.names;

    for (uint32_t seen = 0; at && seen < LP__LIST_MAX; seen++, at = head.previous) {
        if (!read_at(fd, view, &head, at, sizeof head))
            return false;
        if (id < head.first_id)
            continue;
        size_t got, most = head.bytes < LP__NAME_MAX ? head.bytes : LP__NAME_MAX;
        unsigned char *records = malloc(most + 1);
        bool found = records && id - head.first_id < head.count &&
                     lp__read_at(fd, records, most, at + sizeof head, &got) &&
                     find_record(records, got, id - head.first_id, name);
        free(records);
        return found;
    }
    return false;
}
