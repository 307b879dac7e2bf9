/* The extension's own pieces, shared between its files.
 *
 * One recorder object is a C core (core/record.h) with what Python needs around it: names pinned by address, options,
 * snapshots. Everything here is called with the GIL held (or the object's critical section) unless said. */
#ifndef LP_PYTHON_LPY_H
#define LP_PYTHON_LPY_H

#include "python/compat.h"

#include <pthread.h>

#include "core/record.h"
#include "store/describe.h"
#include "store/model.h"
#include "store/snapshot.h"

/* What a process reads and writes: /proc/<pid>/io. */
enum { LPY_IO_READ_BYTES, LPY_IO_WRITE_BYTES, LPY_IO_READ_CHARS, LPY_IO_WRITE_CHARS, LPY_IO_COUNT };

#define LPY_IDENTITIES 4096u

/* How torch is asked for its GPU memory, see torch.c. One thread at a time. */
typedef struct lpy_torch {
    PyObject *device, *stats; /* functions of torch's, owned; NULL: not looked up yet */
    uint32_t failures;        /* calls in a row that raised, LPY_TORCH_FAILURES at most */
} lpy_torch;
#define LPY_TORCH_FAILURES 6u

/* A session outlives its Python object: forked children and the end of the interpreter still need it. Never freed; what is large
 * or refers to Python goes with the object (lpy_session_forget). */
typedef struct lpy_session {
    lp_recorder *core;
    struct lpy_session *next; /* all sessions of the process */
    char *run_dir;            /* absolute; owned */
    char *directory;          /* working directory at the start, NULL unknown; owned */
    bool wants_collector;
    lp_namespaces ns;                 /* of this process */
    lp_arena *arena;                  /* of `id` */
    lp_identity id;                   /* of this process; in a child described anew */
    uint64_t snapshot_ns;             /* interval, 0 = none periodic */
    uint64_t sample_ns;               /* interval, 0 = none */
    uint64_t snapshot_due, torch_due; /* ticks: when `overdue` has work of that kind; UINT64_MAX never */
    int io_fd;                        /* of /proc/self/io, -1 none */
    uint64_t io_dev, io_ino;
    uint32_t io_generation;
    _Atomic int64_t io_children; /* faults of all children that were waited for, as of the last reading */
    char folder[512];            /* of the segment, "" if it is private memory */
    char error[256];             /* last trouble, one line */
    pthread_mutex_t
        reading;  /* the segment stays while it is read; one snapshot at a time. Never taken with the GIL held */
    bool closing; /* its recorder has let go of it, but `last` is not there yet */
    uint64_t write_failures;
    uint32_t generation; /* of snapshots */
    bool lost;           /* closed, and what it had recorded is nowhere: `error` says why */
    uint64_t own_cost_ps, own_count_cost_ps;
    /* Python side; NULL after the interpreter has ended */
    lpy_torch torch;
    struct lpy_pin *pins; /* names whose address is a key, see names.c */
    uint32_t pin_mask, pin_count;
    unsigned char *identities; /* pinned objects by name id, LPY_IDENTITIES of them; owned */
    PyObject *shapes;          /* dict: shape -> distinct names; owned */
    bool strict_names;
    bool folded_warned;
    pid_t loss_warned; /* in this process, 0 not yet */
    bool loss_due;     /* a warning about it, with `error`, that must wait until no hook of the core runs */
    bool private;      /* scratch: never written, never listed */
    int cuda_sync;     /* -1 None, 0 False, 1 True */
    lp_worker *last;   /* own figures at close(); owned */
} lpy_session;

typedef struct RecorderObject {
    PyObject_HEAD lpy_session *session; /* NULL: disabled or closed */
    lpy_session *past;                  /* after close() */
    uint64_t entered_while_off;
    PyObject *weak;
} RecorderObject;

/* NULL: disabled or closed. Once a step: without the GIL it may be closed between two looks. */
static inline lpy_session *lpy_session_of(const RecorderObject *recorder)
{
    return __atomic_load_n(&recorder->session, __ATOMIC_RELAXED);
}

typedef struct lpy_state { /* one extension module, one state: see module.c */
    PyTypeObject *recorder_type, *phase_type, *descriptor_type, *nothing_type, *line_engine_type;
    RecorderObject *installed; /* owned, NULL none */
    PyObject *torch_keys[12];  /* owned: see torch.c */
} lpy_state;
extern lpy_state lpy;

/* phase.c */
int lpy_phase_init(PyObject *module);
void lpy_phase_forget(void); /* when another recorder is installed, or none */
#if LPY_FREE_THREADED
void lpy_phase_settle(RecorderObject *before); /* `before` is no longer installed: its scopes own it from now on */
#else
#define lpy_phase_settle(before) ((void)0)
#endif
/* `dynamic`: by the module function, so that what it decorates asks for the installed recorder at each call. */
PyObject *lpy_phase(RecorderObject *recorder, bool dynamic, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *lpy_count(RecorderObject *recorder, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *lpy_current(RecorderObject *recorder);

/* context.c */
int lpy_context_init(PyObject *module);
PyObject *lpy_context_make(PyThreadState *tstate); /* borrowed; NULL cannot */
extern bool lpy_contexts_have_parents;
const void *lpy_context_around_hook(const void *context);
#if LPY_EAGER_TASKS
bool lpy_context_runs_task_hook(const void *context);
bool lpy_context_has_task_hook(const void *context);
#else
#define lpy_context_runs_task_hook NULL
#define lpy_context_has_task_hook NULL
#endif

static inline PyObject *lpy_context(void)
{
    PyThreadState *tstate = lpy_thread_state();
    PyObject *context = lpy_context_of(tstate);

    return LP_LIKELY(context != NULL) ? context : lpy_context_make(tstate);
}

/* package.c */
PyObject *lpy_adopt_package(PyObject *module, PyObject *target);

/* recorder.c */
int lpy_recorder_init(PyObject *module);

/* session.c: may be called without the GIL where said */
lpy_session *lpy_session_open(PyObject *config);              /* NULL with an exception */
void lpy_session_asked(lpy_session *session, PyObject *name); /* "asked for, not recorded" */
void lpy_session_name_threads(lpy_session *session);          /* the names that threads have now */
/* Last snapshot, adoption, segment removed; `closing` ends. Releases the GIL. */
void lpy_session_close(lpy_session *session);
lp_status lpy_session_snapshot(lpy_session *session, bool final, bool sync,
                               lp_error *error);                                         /* without the GIL is fine */
lp_status lpy_session_worker(lpy_session *session, lp_worker **worker, lp_error *error); /* own tree, now; the same */
void lpy_session_forget(lpy_session *session); /* closed, and its Python object goes: 2 KB stay */
void lpy_sessions_end(void);                   /* Py_AtExit: no Python any more */

/* owncost.c: picoseconds, 0 unknown. Runs a small Python program the first time; false with what a signal's handler has raised
 * meanwhile (KeyboardInterrupt, SystemExit). */
bool lpy_own_cost(bool measure_cpu, uint64_t *phase_ps, uint64_t *count_ps);

/* procio.c */
bool lpy_io_read(lpy_session *session, bool thread, uint64_t io[LPY_IO_COUNT]); /* no Python; errno kept */
/* After a reading of the process's counters: if children were waited for since the one before, whose bytes the kernel then adds to
 * ours, that counts as an arrival of somebody else for every io=True entry that is open. */
void lpy_io_children(lpy_session *session);
void lpy_io_own(const uint64_t moved[LPY_IO_COUNT]); /* not the program's: taken off from now on */
/* A snapshot whose own bytes could not be read: the io=True entries that are open now are "not measured". */
void lpy_io_spoil(void);
uint32_t lpy_io_spoilt(void); /* how often, so far */
void lpy_io_in_child(void);
void lpy_io_close(lpy_session *session);

/* run_api.c (package) */
extern PyMethodDef lp_py_run_methods[];

/* torch.c: what torch says of its GPU memory, into the header of the core's segment. Does nothing, and imports nothing, where torch is
 * not loaded or CUDA not initialised. With the GIL; a pending exception stays. May run Python: the core may be closed after it. */
void lpy_torch_read(lpy_torch *torch, lp_recorder *core);
void lpy_torch_in_child(lpy_torch *torch); /* CUDA does not survive a fork: it is looked at anew */
void lpy_torch_forget(lpy_torch *torch);
int lpy_torch_init(PyObject *module);

#endif
