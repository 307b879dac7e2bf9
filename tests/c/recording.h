/* A recorder without Python, for the C tests: contexts are any addresses, and what runs what is a table of the test. */
#ifndef LP_TESTS_RECORDING_H
#define LP_TESTS_RECORDING_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/record.h"
#include "store/segment_read.h"
#include "store/snapshot.h"

static const void *recording_around[16]; /* contexts are indices + 1 */

static inline const void *recording_prev(const void *context)
{
    uintptr_t index = (uintptr_t)context;
    return index >= 1 && index <= 16 ? recording_around[index - 1] : NULL;
}

static inline const void *context(unsigned number)
{
    return (const void *)(uintptr_t)number;
}

static inline void recording_identity(lp_segment *segment)
{
    lp_identity id = {.host = {"host", 4},
                      .boot_id = {"boot", 4},
                      .uuid = {"0123456789abcdef0123456789abcdef", 32},
                      .pid = getpid(),
                      .run_id = {"run", 3},
                      .role = {"main", 4},
                      .rank = LP_UNKNOWN_I64,
                      .local_rank = LP_UNKNOWN_I64,
                      .world_size = LP_UNKNOWN_I64,
                      .source_dirty = LP_UNKNOWN_I64,
                      .source_untracked = LP_UNKNOWN_I64,
                      .job_id = {"", 0},
                      .launcher = {"", 0},
                      .python = {"", 0},
                      .platform = {"", 0},
                      .source_commit = {"", 0},
                      .source_diff = {"", 0}};
    lp_buffer bytes = {0};

    if (lp_identity_encode(&id, &bytes) == LP_OK) {
        uint64_t size = bytes.size;
        lp_off at = lp_segment_take(segment, LP_BLOCK_IDENTITY, 0, sizeof size + size, NULL);
        if (at) {
            memcpy(segment->base + at, &size, sizeof size);
            memcpy(segment->base + at + sizeof size, bytes.data, bytes.size);
        }
    }
    lp_buffer_free(&bytes);
}

static inline bool recording_open(void *user, lp_recorder *recorder)
{
    const char *folder = user;
    char name[64];
    lp_error error = {0};
    int dirfd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    snprintf(name, sizeof name, "%d.seg", (int)getpid());
    lp_status status = lp_segment_create(&recorder->segment, dirfd, folder ? folder : "", name, &error);
    if (dirfd >= 0)
        close(dirfd);
    if (status != LP_OK)
        return false;
    lp_segment_header(&recorder->segment)->pid = getpid();
    recording_identity(&recorder->segment);
    if (lp_recorder_begin(recorder) != LP_OK)
        return false;
    return true;
}

/* Records into a file of `folder`, or into private memory for NULL. */
static inline lp_recorder *recording_start(const char *folder)
{
    lp_hooks hooks = {.user = (void *)(uintptr_t)folder, .open = recording_open, .around = recording_prev};

    lp_clock_init(-1);
    lp_recorder *recorder = lp_recorder_new(&hooks);
    if (!recorder)
        return NULL;
    recorder->enabled = recorder->measure_cpu = true;
    recorder->cpu = lp_cpu_choose(-1);
    return recording_open(hooks.user, recorder) ? recorder : NULL;
}

static inline lp_seg_node *node_below(lp_recorder *recorder, lp_thread *th, lp_seg_node *parent, const char *name)
{
    lp_seg_node *node = NULL;
    bool fresh;
    uint32_t id = lp_name_make(recorder, name, strlen(name));

    return id && lp_node_get(th, parent, id, &node, &fresh) == LP_FOUND ? node : NULL;
}

static inline lp_entry *enter(lp_recorder *recorder, const void *here, const char *name)
{
    lp_thread *th = lp_thread_get(recorder, here);

    if (!th)
        return NULL;
    if (!th->top && recording_prev(here) != th->around)
        lp_thread_reseat(th);
    lp_entry *around = lp_innermost(th);
    lp_seg_node *node = node_below(recorder, th, around ? around->place : th->root, name);
    return node ? lp_enter(th, node, 0, 1) : NULL;
}

static inline void leave(lp_recorder *recorder, const void *here, lp_entry *entry)
{
    uint64_t now = lp_ticks();
    lp_thread *th = lp_thread_get(recorder, here);

    if (th && entry)
        lp_leave(th, entry, now, LP_LEFT);
}

static inline lp_worker *recording_read(lp_recorder *recorder)
{
    lp_worker *worker = NULL;
    lp_moment now;
    lp_error error = {0};

    lp_recorder_moment(recorder, &now);
    if (lp_segment_read_memory(recorder->segment.base, lp_segment_header(&recorder->segment)->used, &now, &worker,
                               &error) != LP_OK)
        fprintf(stderr, "# %s\n", error.text);
    return worker;
}

/* Phase by its path "a/b"; NULL if it is not there. */
static inline const lp_phase *phase_at(const lp_worker *worker, const char *path)
{
    uint32_t at = 0;

    while (worker && *path) {
        size_t length = strcspn(path, "/");
        at = lp_tree_find(&worker->tree, at, (lp_str){path, length});
        if (at == UINT32_MAX)
            return NULL;
        path += length + (path[length] == '/');
    }
    return worker ? &worker->tree.phases[at] : NULL;
}

#endif
