/* A recording session: the core recorder, its segment, its snapshots. Opened by Profiler(), opened again in a forked child at its
 * first phase, closed by close() or at the very end of the interpreter. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/start.h"
#include "core/cputime.h"
#include "core/filename.h"
#include "python/lpy.h"
#include "python/names.h"
#include "sample/own.h"
#include "store/arena.h"
#include "store/describe.h"
#include "store/folder_id.h"
#include "store/held.h"
#include "store/place.h"
#include "store/segment_read.h"
#include "store/snapshot.h"
#include "store/source_facts.h"
#include "store/track.h"

#define TORCH_NS 1000000000u

#define COLLECTOR_WAIT_MS 200

static lpy_session *sessions;

static void note_error(lpy_session *session, const lp_error *error)
{
    if (!error || !error->text[0])
        return;
    snprintf(session->error, sizeof session->error, "%s", error->text);
    if (session->core->segment.base) {
        lp_seg_health *health = lp_recorder_health(session->core);
        snprintf(health->last_error, sizeof health->last_error, "%s", error->text);
    }
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

/* Does CLOCK_MONOTONIC go on from where it was when the parent began? Not in a child that was born into another time namespace. */
static bool is_same_clock(const lp_recorder *core)
{
    lp_moment now;

    lp_clock_moment(&now);
    uint64_t ticks = now.ticks - core->start.ticks;
    uint64_t since = (uint64_t)((unsigned __int128)ticks * core->mult >> 32), mono = now.mono_ns - core->start.mono_ns;
    uint64_t apart = since > mono ? since - mono : mono - since;
    return lp__clock_kind != LP_CLOCK_MONOTONIC && apart < 100000000u + since / 1000;
}

/* Where nothing can be read: "unknown", and recording goes on. */
static void describe(lpy_session *session)
{
    if (session->core->child) { /* with its parent's run directory, whatever has its name meanwhile */
        lp_describe_child(session->arena, &session->id, &session->ns, is_same_clock(session->core));
        return;
    }
    lp_describe_process(session->arena, &session->id);
    lp_describe_namespaces(&session->ns);
    lp_describe_run_dir(session->run_dir, &session->id);
}

static void publish_identity(lpy_session *session)
{
    unsigned char room[1024];
    lp_buffer bytes = {.data = room, .capacity = sizeof room, .borrowed = true};
    lp_segment *segment = &session->core->segment;

    if (lp_identity_encode(&session->id, &bytes) == LP_OK) {
        uint64_t size = bytes.size;
        lp_off at = lp_segment_take(segment, LP_BLOCK_IDENTITY, 0, sizeof size + size, NULL);
        if (at) {
            memcpy(segment->base + at + sizeof size, bytes.data, bytes.size);
            __atomic_store_n((uint64_t *)(void *)(segment->base + at), size, __ATOMIC_RELEASE);
        }
    }
    lp_buffer_free(&bytes);
}

static uint64_t ticks_after(const lpy_session *session, uint64_t ns)
{
    /* Without a division of 128 bits, which is a function far from everything else that a child calls here. */
    return lp_ticks() + (uint64_t)((double)ns * 0x1p32 / (double)session->core->mult);
}

/* Where there are samples, torch is asked once a second at most (where it only raises, ever more seldom, to once in 64). */
static void set_due(lpy_session *session)
{
    if (session->snapshot_ns > 0)
        session->snapshot_due = ticks_after(session, session->snapshot_ns);
    else
        session->snapshot_due = UINT64_MAX;
    session->torch_due = session->sample_ns ? ticks_after(session, TORCH_NS) : UINT64_MAX;
    atomic_store(&session->core->due,
                 session->torch_due < session->snapshot_due ? session->torch_due : session->snapshot_due);
}

/* ---- the collector ------------------------------------------------------------------------------------------------ */

/* Sees to it that a collector is beside the run. false: there is none, and this process writes its own snapshots. After the
 * segment has its name and its lock (see lp_collector_ensure); without the GIL is fine. `folder`: of the segments, or -1.
 * `again`: in a forked child. */
static bool ensure_collector(lpy_session *session, int folder, bool again)
{
    lp_error error = {0}; /* without one nothing is lost, so it is no trouble of the run's */

    if (!session->wants_collector || !session->folder[0] || !session->id.run_dir_ino)
        return false;
    bool ask_git = session->id.source_commit.size && !session->id.source_extra_count && session->directory;
    lp_collector_request request = {.folder = session->folder,
                                    .run_dir = session->run_dir,
                                    .run_dir_dev = session->id.run_dir_dev,
                                    .run_dir_ino = session->id.run_dir_ino,
                                    .pid_ns = session->id.pid_ns,
                                    .mnt_ns = session->id.mnt_ns,
                                    .time_ns = session->ns.time_ns,
                                    .source = ask_git ? session->directory : "",
                                    .folder_fd = folder + 1,
                                    .again = again && session->snapshot_ns > 0};
    return lp_collector_ensure(&request, &error) == LP_OK;
}

/* What the collector knows beside the recorded: git's answer, how the clocks went. Into what this process writes itself. */
static void add_collected(const lpy_session *session, lp_worker *worker)
{
    lp_source_facts facts;
    lp_track track;

    if (!session->folder[0])
        return;
    int folder = open(session->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    if (lp_source_facts_read(folder, &facts) == LP_OK)
        lp_source_facts_apply(&facts, worker->arena, &worker->id);
    if (lp_track_read(folder, session->ns.time_ns, &track) == LP_OK)
        lp_track_apply(&track, lp__clock_kind, session->core->start.mono_ns, worker);
    close(folder);
}

/* LINEPROFILER_COLLECTOR=0, and where nothing periodic is asked for, no process is started. */
static bool wants_collector(bool periodic)
{
    static const char *const off[] = {"0", "false", "no", "off"};
    const char *value = getenv("LINEPROFILER_COLLECTOR");

    for (size_t i = 0; value && i < sizeof off / sizeof *off; i++)
        if (strcasecmp(value, off[i]) == 0)
            return false;
    return periodic;
}

/* Makes the segment of this process: the core's `open` hook, also called in a forked child. */
static bool open_segment(void *user, lp_recorder *core)
{
    lpy_session *session = user;
    char run[80], folder[sizeof session->folder] = "", name[64];
    lp_error error = {0};
    int dirfd = -1;
    bool forked = core->child;

    if (forked) {
        pthread_mutex_init(&session->reading, NULL);
        lpy_names_in_child();
        lpy_io_in_child();
        lpy_torch_in_child(&session->torch);
    }
    if (!session->private)
        describe(session);
    lp_filename text = lp_filename_start(run, sizeof run);
    lp_filename_bytes(&text, session->id.run_id.data,
                      session->id.run_id.size < sizeof run ? session->id.run_id.size : sizeof run - 1);
    text = lp_filename_start(name, sizeof name);
    lp_filename_number(&text, (uint64_t)session->id.pid, 10);
    lp_filename_put(&text, "_");
    lp_filename_bytes(&text, session->id.uuid.size >= 8 ? session->id.uuid.data : "00000000", 8);
    lp_filename_put(&text, ".seg");
    lp_status status = LP_OK;
    /* Another process that ends may remove the folder, empty for a moment, between our open and our first file. */
    for (int attempt = 0; attempt < 5; attempt++) {
        dirfd = attempt == 0 && forked && session->folder[0] ? lp_place_again(session->folder) : -1;
        if (dirfd >= 0)
            memcpy(folder, session->folder, sizeof folder);
        else if (session->private || lp_place_open(run, &dirfd, folder, sizeof folder, &error) != LP_OK)
            dirfd = -1;
        status = lp_segment_create(&core->segment, dirfd, folder, name, &error);
        if (dirfd < 0 || core->segment.place == LP_PLACE_SHARED || error.sys != ENOENT)
            break;
        close(dirfd);
        dirfd = -1;
        lp_segment_close(&core->segment, false);
        error = (lp_error){0};
    }
    if (core->segment.place == LP_PLACE_SHARED)
        memcpy(session->folder, folder, sizeof session->folder);
    else
        session->folder[0] = '\0';
    if (status != LP_OK) {
        note_error(session, &error);
        session->loss_due = forked; /* at a start it is said by who starts it */
        if (dirfd >= 0)
            close(dirfd);
        return false;
    }
    lp_seg_header *header = lp_segment_header(&core->segment);
    header->pid = session->id.pid;
    header->pid_start = session->id.pid_start;
    header->run_dir_dev = session->id.run_dir_dev;
    header->run_dir_ino = session->id.run_dir_ino;
    header->run_dir_born_ns = session->id.run_dir_born_ns;
    header->own_cost_ps = session->own_cost_ps;
    header->own_count_cost_ps = session->own_count_cost_ps;
    header->snapshot_ns = session->snapshot_ns;
    header->sample_ns = session->sample_ns;
    header->time_ns = session->ns.time_ns;
    if (strlen(session->run_dir) < sizeof header->run_dir)
        memcpy(header->run_dir, session->run_dir, strlen(session->run_dir));
    publish_identity(session);
    if (lp_recorder_begin(core) != LP_OK) {
        lp_segment_close(&core->segment, false);
        if (dirfd >= 0)
            close(dirfd);
        return false;
    }
    note_error(session, &error);
    session->generation = 0;
    session->write_failures = 0;
    set_due(session);
    /* What only this process can read is lost if it is killed before its first snapshot is due. So the report knows at least that it
     * lived, and that it had no shared memory. */
    if (core->segment.place == LP_PLACE_PRIVATE && !session->private &&
        lpy_session_snapshot(session, false, false, &error) != LP_OK) {
        note_error(session, &error);
        session->loss_due = true;
    }
    ensure_collector(session, core->segment.place == LP_PLACE_SHARED ? dirfd : -1, forked);
    if (dirfd >= 0)
        close(dirfd);
    return true;
}

/* ---- snapshots ---------------------------------------------------------------------------------------------------- */

/* The three below need `reading`. In a forked child it may be held by a thread that is not there: the callers look for
 * that first, and open_segment makes a new one. */
static lp_status read_worker(lpy_session *session, lp_worker **worker, lp_error *error)
{
    lp_recorder *core = session->core;
    lp_moment now;

    if (!core->recording)
        return lp_error_set(error, LP_E_MISSING, 0, UINT64_MAX, "this process has not recorded anything yet");
    lp_recorder_moment(core, &now);
    /* All of it, not what is used now: other threads may take more while it is read. */
    lp_status status = lp_segment_read_memory(core->segment.base, core->segment.capacity, &now, worker, error);
    if (status == LP_OK) {
        /* What was asked for after the segment was made stands in the session only. */
        (*worker)->id.option_count = __atomic_load_n(&session->id.option_count, __ATOMIC_ACQUIRE);
        (*worker)->id.options = __atomic_load_n(&session->id.options, __ATOMIC_ACQUIRE); /* for that many, or more */
        (*worker)->health.write_failures = session->write_failures;
    }
    return status;
}

/* A way to the run directory: its path, or, where that leads elsewhere by now, what the collector holds, through *fd of ours (-1: none).
 * A directory that was removed is made anew, or taken as it was made anew. NULL: a link leads to another one, and nobody knows
 * where ours is; what was recorded stays in the segment, where a reader of the directory finds it. */
static const char *way_to_run(const lpy_session *session, char room[32], int *fd)
{
    const lp_identity *id = &session->id;
    const lp_folder_id ours = {id->run_dir_dev, id->run_dir_ino, id->run_dir_born_ns};
    lp_folder_id there;
    struct stat st;
    int saved = errno;
    const char *way = session->run_dir;

    *fd = -1;
    lp_folder_look(AT_FDCWD, session->run_dir, &there);
    if (ours.ino && session->folder[0] && !lp_folder_is(&there, &ours)) {
        *fd = lp_held_open(session->folder, &ours);
        if (*fd >= 0) {
            snprintf(room, 32, "/proc/self/fd/%d", *fd);
            way = room;
        } else if (there.ino && lstat(session->run_dir, &st) == 0 && S_ISLNK(st.st_mode)) {
            way = NULL;
        }
    }
    errno = saved;
    return way;
}

static lp_status put_snapshot(lpy_session *session, const lp_worker *worker, bool sync, lp_error *error)
{
    char room[32];
    int fd;
    const char *way = way_to_run(session, room, &fd);
    lp_status status = way ? lp_snapshot_write(way, worker, sync, error)
                           : lp_error_set(error, LP_E_MISSING, 0, UINT64_MAX,
                                          "%s: a link to another directory stands there by now", session->run_dir);

    if (fd >= 0)
        close(fd);
    return status;
}

static lp_status write_snapshot(lpy_session *session, bool final, bool sync, lp_error *error)
{
    uint64_t before[LPY_IO_COUNT], after[LPY_IO_COUNT];
    lp_worker *worker = NULL;
    int saved = errno;
    bool counted = lpy_io_read(session, true, before); /* of this thread: what others move meanwhile is theirs */
    lp_status status = read_worker(session, &worker, error);

    if (status == LP_OK) {
        /* The collector numbers on from the header, too, and this process must stay ahead of it: the greatest is the newest. */
        lp_seg_header *header = lp_segment_header(&session->core->segment);
        uint32_t *shared = &header->generation;
        if (final) { /* first, so that the collector either sees it or takes a number that is not greater than ours */
            lp_own_use(session->id.pid_start, &header->use);
            __atomic_store_n(&header->closing, 1, __ATOMIC_SEQ_CST);
        }
        uint32_t last = __atomic_load_n(shared, __ATOMIC_RELAXED);
        session->generation = (last > session->generation ? last : session->generation) + 1;
        __atomic_store_n(shared, session->generation, __ATOMIC_RELAXED);
        worker->generation = session->generation;
        worker->final = final;
        worker->unclean = false;
        add_collected(session, worker);
        status = put_snapshot(session, worker, sync, error);
        if (status == LP_OK && session->id.run_dir_ino == 0) { /* it could not be made when we began: now it is there */
            lp_describe_run_dir(session->run_dir, &session->id);
            header->run_dir_dev = session->id.run_dir_dev;
            header->run_dir_ino = session->id.run_dir_ino;
            header->run_dir_born_ns = session->id.run_dir_born_ns;
        }
        lp_worker_free(worker);
    }
    if (status != LP_OK) {
        session->write_failures++;
        lp__note(session->core, &lp_recorder_health(session->core)->write_failures);
        note_error(session, error);
    }
    /* Not the program's traffic: taken off the io=True phases that it fell into. */
    if (counted && lpy_io_read(session, true, after)) {
        for (int i = 0; i < LPY_IO_COUNT; i++)
            after[i] = after[i] > before[i] ? after[i] - before[i] : 0;
        lpy_io_own(after);
    } else {
        lpy_io_spoil();
    }
    errno = saved;
    return status;
}

lp_status lpy_session_worker(lpy_session *session, lp_worker **worker, lp_error *error)
{
    if (!session->core->recording || lp_recorder_forked(session->core))
        return lp_error_set(error, LP_E_MISSING, 0, UINT64_MAX, "this process has not recorded anything yet");
    pthread_mutex_lock(&session->reading);
    lp_status status = read_worker(session, worker, error);
    pthread_mutex_unlock(&session->reading);
    return status;
}

lp_status lpy_session_snapshot(lpy_session *session, bool final, bool sync, lp_error *error)
{
    lp_status status = LP_OK;

    if (!session->core->recording || lp_recorder_forked(session->core))
        return LP_OK;
    pthread_mutex_lock(&session->reading);
    if (session->core->recording) /* else it was closed meanwhile: the last snapshot is written */
        status = write_snapshot(session, final, sync, error);
    pthread_mutex_unlock(&session->reading);
    return status;
}

/* No Python in here. */
static lp_status write_overdue(lpy_session *session, lp_error *error)
{
    return ensure_collector(session, -1, false) ? LP_OK : lpy_session_snapshot(session, false, false, error);
}

static void overdue(void *user, lp_recorder *core)
{
    lpy_session *session = user;
    lp_error error = {0};
    lp_status status = LP_OK;

    if (lp_ticks() >= session->torch_due) {
        lpy_torch_read(&session->torch, core);
        session->torch_due = ticks_after(session, TORCH_NS << session->torch.failures);
    }
    if (lp_ticks() < session->snapshot_due) {
        atomic_store(&core->due,
                     session->torch_due < session->snapshot_due ? session->torch_due : session->snapshot_due);
        return;
    }
    lpy_session_name_threads(session);
    if (!core->enabled)
        return; /* that has run Python, which has closed it */
    /* Other threads run on while the disk works; they record into their own arenas. */
    Py_BEGIN_ALLOW_THREADS status = write_overdue(session, &error);
    Py_END_ALLOW_THREADS set_due(session);
    if (status != LP_OK && core->segment.place == LP_PLACE_PRIVATE)
        lpy_warn_lost(session, error.text);
}

/* threading._active, borrowed from the module; NULL without an exception. threading.current_thread() would invent a thread object
 * for a foreign thread: look without touching. */
static PyObject *active_threads(bool *loaded)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *threading = modules ? PyDict_GetItemString(modules, "threading") : NULL;
    PyObject *active = threading ? PyObject_GetAttrString(threading, "_active") : NULL;

    *loaded = threading != NULL;
    if (active && !PyDict_Check(active))
        Py_CLEAR(active);
    PyErr_Clear();
    return active;
}

static uint32_t name_of_thread(lpy_session *session, PyObject *thread)
{
    PyObject *name = PyObject_GetAttrString(thread, "name");
    uint32_t id = 0;
    bool pinned;

    if (name && PyUnicode_Check(name))
        id = lpy_name_id(session, name, false, &pinned);
    Py_XDECREF(name);
    lpy_clear_own();
    return id;
}

static uint32_t thread_name(void *user, lp_recorder *core)
{
    lpy_session *session = user;
    PyObject *type, *value, *traceback;
    uint32_t id = 0;
    bool loaded;

    (void)core;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *active = active_threads(&loaded);
    PyObject *key = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    PyObject *thread = active && key ? PyDict_GetItem(active, key) : NULL; /* borrowed */
    if (thread)
        id = name_of_thread(session, thread);
    else if (!loaded)
        id = lp_name_make(session->core, "MainThread", 10); /* threading is not even loaded */
    Py_XDECREF(key);
    Py_XDECREF(active);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return id;
}

/* A thread may have been named after its first phase: before each reading, the names that threads have now. */
void lpy_session_name_threads(lpy_session *session)
{
    lp_recorder *core = session->core;
    PyObject *key, *thread;
    Py_ssize_t at = 0;
    bool loaded;

    if (!core->thread_names || !core->recording || lp_recorder_forked(core))
        return;
    PyObject *active = active_threads(&loaded);
    PyObject *copy = active ? PyDict_Copy(active) : NULL; /* threads come and go while Python runs */
    while (copy && PyDict_Next(copy, &at, &key, &thread)) {
        PyObject *native = PyObject_GetAttrString(thread, "native_id");
        long long tid = native && PyLong_Check(native) ? PyLong_AsLongLong(native) : 0;
        uint32_t id = tid > 0 ? name_of_thread(session, thread) : 0;
        lp_recorder_lock(core);
        for (uint32_t i = 0; id && i < core->thread_count; i++)
            if (core->threads[i]->attached && core->threads[i]->seg->tid == tid)
                core->threads[i]->name = core->threads[i]->seg->name = id;
        lp_recorder_unlock(core);
        Py_XDECREF(native);
        lpy_clear_own();
    }
    Py_XDECREF(copy);
    Py_XDECREF(active);
    PyErr_Clear();
}

/* ---- config ------------------------------------------------------------------------------------------------------- */

static PyObject *item(PyObject *config, const char *key)
{
    PyObject *value = PyDict_GetItemString(config, key); /* borrowed */
    return value && value != Py_None ? value : NULL;
}

static lp_str text_of(lp_arena *arena, PyObject *value)
{
    lp_str none = {"", 0};
    if (!value || !PyUnicode_Check(value))
        return none;
    PyObject *bytes = PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass");
    if (!bytes) {
        PyErr_Clear();
        return none;
    }
    lp_str text = lp_arena_str(arena, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    return text.data ? text : none;
}

static bool truth_of(PyObject *config, const char *key, bool missing)
{
    PyObject *value = item(config, key);
    return value ? PyObject_IsTrue(value) > 0 : missing;
}

static uint32_t pairs_of(lp_arena *arena, PyObject *list, lp_pair **pairs)
{
    Py_ssize_t size = list && PyList_Check(list) ? PyList_GET_SIZE(list) : 0;
    uint32_t count = 0;

    *pairs = size ? lp_arena_take(arena, (size_t)size * sizeof **pairs) : NULL;
    for (Py_ssize_t i = 0; *pairs && i < size; i++) {
        PyObject *pair = PyList_GET_ITEM(list, i);
        if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2)
            (*pairs)[count++] =
                (lp_pair){text_of(arena, PyTuple_GET_ITEM(pair, 0)), text_of(arena, PyTuple_GET_ITEM(pair, 1))};
    }
    return count;
}

/* Into the segment, for the report on a process that dies before it writes a snapshot. */
static void publish_asked(lpy_session *session, lp_str name)
{
    if (!session->core->recording || lp_recorder_forked(session->core))
        return; /* what is opened later has it in its identity */
    char *asked = lp_segment_header(&session->core->segment)->asked;
    size_t room = sizeof lp_segment_header(&session->core->segment)->asked, at = strnlen(asked, room - 1),
           size = name.size;
    if (at + 1 + size >= room)
        return;
    memcpy(asked + at + (at > 0), name.data, size);
    if (at > 0)
        __atomic_store_n(asked + at, ',', __ATOMIC_RELEASE);
}

void lpy_session_asked(lpy_session *session, PyObject *name)
{
    lp_identity *id = &session->id;
    lp_str more = text_of(session->arena, name), asked = {"asked", 5};
    lp_pair *pairs = lp_arena_take(session->arena, (id->option_count + 1u) * sizeof *pairs);

    if (!pairs)
        return;
    publish_asked(session, more);
    uint32_t count = id->option_count;
    if (count)
        memcpy(pairs, id->options, count * sizeof *pairs);
    for (uint32_t i = 0; i < count; i++) {
        if (pairs[i].key.size == asked.size && memcmp(pairs[i].key.data, asked.data, asked.size) == 0) {
            size_t size = pairs[i].value.size + 1 + more.size;
            char *joined = lp_arena_take(session->arena, size + 1);
            if (!joined)
                return;
            memcpy(joined, pairs[i].value.data, pairs[i].value.size);
            joined[pairs[i].value.size] = ',';
            memcpy(joined + pairs[i].value.size + 1, more.data, more.size);
            pairs[i].value = (lp_str){joined, size};
            __atomic_store_n(&id->options, pairs, __ATOMIC_RELEASE);
            return;
        }
    }
    pairs[count] = (lp_pair){asked, more};
    __atomic_store_n(&id->options, pairs, __ATOMIC_RELEASE); /* first: a snapshot may be made now, without the GIL */
    __atomic_store_n(&id->option_count, count + 1, __ATOMIC_RELEASE);
}

static void identity_from(lpy_session *session, PyObject *config)
{
    lp_identity *id = &session->id;
    lp_arena *arena = session->arena;
    PyObject *argv = item(config, "argv"), *started = item(config, "run_started_ns"), *source = item(config, "source");

    id->rank = id->local_rank = id->world_size = LP_UNKNOWN_I64;
    id->source_dirty = id->source_untracked = LP_UNKNOWN_I64;
    id->run_id = text_of(arena, item(config, "run_id"));
    id->role = text_of(arena, item(config, "role"));
    id->python = text_of(arena, item(config, "python"));
    id->source_commit = id->source_diff = id->job_id = id->launcher = id->host = id->boot_id = id->uuid = id->platform =
        (lp_str){"", 0};
    if (started) {
        id->run_started_ns = PyLong_AsUnsignedLongLong(started);
        if (PyErr_Occurred())
            PyErr_Clear();
    }
    Py_ssize_t size = argv && PyList_Check(argv) ? PyList_GET_SIZE(argv) : 0;
    id->argv = size ? lp_arena_take(arena, (size_t)size * sizeof *id->argv) : NULL;
    for (Py_ssize_t i = 0; id->argv && i < size; i++)
        id->argv[id->argv_count++] = text_of(arena, PyList_GET_ITEM(argv, i));
    id->option_count = pairs_of(arena, item(config, "options"), &id->options);
    if (source)
        id->source_extra_count = pairs_of(arena, source, &id->source_extra);
}

static int forced_by(const char *variable, const char *const *names, int count)
{
    const char *value = getenv(variable);

    for (int i = 0; value && i < count; i++)
        if (strcmp(value, names[i]) == 0)
            return i;
    return -1;
}

/* Seconds, None or no entry: 0. */
static bool interval_of(PyObject *value, uint64_t *ns)
{
    if (!value)
        return true;
    double seconds = PyFloat_AsDouble(value);
    if (seconds == -1.0 && PyErr_Occurred())
        return false;
    *ns = seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds * 1e9) : 0;
    return true;
}

lpy_session *lpy_session_open(PyObject *config)
{
    static const char *const clocks[] = {"monotonic", "tsc"};
    static const char *const cpus[] = {"none", "rseq", "perf", "syscall"};
    static bool at_exit;
    lpy_session *session = calloc(1, sizeof *session);
    lp_hooks hooks = {session,
                      open_segment,
                      overdue,
                      lpy_contexts_have_parents ? lpy_context_around_hook : NULL,
                      lpy_context_runs_task_hook,
                      lpy_context_has_task_hook,
                      thread_name};
    PyObject *run_dir = item(config, "run_dir"), *interval = item(config, "snapshot_interval_s"),
             *source = item(config, "source");
    PyObject *bytes = NULL, *cuda = item(config, "cuda_sync");

    if (!session)
        return (lpy_session *)PyErr_NoMemory();
    session->io_fd = -1;
    pthread_mutex_init(&session->reading, NULL);
    session->arena = lp_arena_new();
    session->core = session->arena ? lp_recorder_new(&hooks) : NULL;
    if (!session->core) {
        PyErr_NoMemory();
        goto failed;
    }
    if (!run_dir || !PyUnicode_FSConverter(run_dir, &bytes)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "config: run_dir");
        goto failed;
    }
    session->run_dir = strdup(PyBytes_AS_STRING(bytes));
    Py_DECREF(bytes);
    if (!session->run_dir) {
        PyErr_NoMemory();
        goto failed;
    }
    if (!interval_of(interval, &session->snapshot_ns) ||
        !interval_of(item(config, "sample_interval_s"), &session->sample_ns))
        goto failed;
    session->strict_names = truth_of(config, "strict_names", false);
    session->private = truth_of(config, "private", false);
    session->cuda_sync = cuda ? PyObject_IsTrue(cuda) : -1;
    identity_from(session, config);
    lp_clock_init(forced_by("LINEPROFILER_CLOCK", clocks, 1)); /* "tsc" cannot be forced where it is not safe */
    session->core->enabled = true;
    session->core->measure_cpu = truth_of(config, "measure_cpu", true);
    session->core->thread_names = truth_of(config, "thread_names", false);
    session->core->cpu =
        session->core->measure_cpu ? lp_cpu_choose(forced_by("LINEPROFILER_CPU", cpus, 4)) : LP_CPU_NONE;
    if (!session->private &&
        !lpy_own_cost(session->core->measure_cpu, &session->own_cost_ps, &session->own_count_cost_ps))
        goto failed;
    if (!source && !session->private) {
        session->directory = getcwd(NULL, 0);
        if (session->directory)
            lp_describe_source(session->arena, session->directory, &session->id);
    }
    session->wants_collector =
        !session->private && wants_collector(session->snapshot_ns || item(config, "sample_interval_s"));
    if (!open_segment(session, session->core)) {
        PyErr_Format(PyExc_MemoryError, "no memory for recording: %s", session->error);
        goto failed;
    }
    lpy_say_lost(session);
    if (!session->private) {
        session->next = __atomic_load_n(&sessions, __ATOMIC_RELAXED);
        while (
            !__atomic_compare_exchange_n(&sessions, &session->next, session, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            ;
        if (!at_exit)
            at_exit = Py_AtExit(lpy_sessions_end) == 0;
    }
    return session;

failed:
    if (session->core)
        session->core->enabled = false; /* a core is never freed: see lp_recorder_new */
    lp_arena_free(session->arena);
    free(session->directory);
    free(session->run_dir);
    free(session);
    return NULL;
}

/* ---- closing ------------------------------------------------------------------------------------------------------ */

/* The last snapshot, and those of the run's dead processes; then the segment goes, unless the disk refused: a reader on this
 * host will find it. No Python in here. */
static void finish(lpy_session *session, bool keep)
{
    lp_recorder *core = session->core;
    lp_error error = {0};
    int saved = errno;

    core->enabled = false;
    if (!core->recording || lp_recorder_forked(core))
        return;
    pthread_mutex_lock(&session->reading);
    if (!core->recording) { /* another thread closed it meanwhile */
        pthread_mutex_unlock(&session->reading);
        return;
    }
    lp_status status = LP_OK;
    if (keep && read_worker(session, &session->last, &error) != LP_OK) /* merged_tree() still answers */
        session->last = NULL;
    if (!session->private) {
        status = write_snapshot(session, true, true, &error);
        lp_segment_set_state(&core->segment, LP_SEG_CLOSED);
    }
    lp_recorder_end(core);
    session->lost = status != LP_OK && core->segment.place == LP_PLACE_PRIVATE;
    if (session->lost)
        note_error(session, &error);
    lp_segment_close(&core->segment, status != LP_OK);
    lpy_io_close(session);
    pthread_mutex_unlock(&session->reading);
    if (!session->private) {
        char run[80];
        snprintf(run, sizeof run, "%.*s",
                 (int)(session->id.run_id.size < sizeof run ? session->id.run_id.size : sizeof run - 1),
                 session->id.run_id.data);
        /* The collector is about to do the same; but this process may be the last of a container that ends with it. */
        char room[32];
        int fd;
        const char *way = way_to_run(session, room, &fd);
        if (way)
            lp_place_settle(way, run, COLLECTOR_WAIT_MS, &error);
        if (fd >= 0)
            close(fd);
        if (session->folder[0])
            rmdir(session->folder); /* the last process of the run; others, or a collector, find it not empty */
    }
    errno = saved;
}

void lpy_session_close(lpy_session *session)
{
    lpy_session_name_threads(session);
    Py_BEGIN_ALLOW_THREADS finish(session, true);
    Py_END_ALLOW_THREADS session->closing = false;
}

void lpy_session_forget(lpy_session *session)
{
    lp_worker_free(session->last);
    session->last = NULL;
    lpy_names_forget(session);
    lpy_torch_forget(&session->torch);
    /* Nobody describes it any more: the core has ended here, or is a parent's of which this child has no part. */
    lp_identity_init(&session->id);
    lp_arena_free(session->arena);
    free(session->directory);
    free(session->run_dir);
    session->arena = NULL;
    session->directory = session->run_dir = NULL;
}

void lpy_sessions_end(void)
{
    for (lpy_session *session = sessions; session; session = session->next)
        if (session->core->recording)
            finish(session, false);
}
