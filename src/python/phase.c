/* The scope object that `with phase("x"):` enters and leaves, and count(). The hot file of the extension.
 *
 * Rules: guards first; one load and compare tells thread, process, recorder and context apart (lp_thread_get); what is rare
 * goes to the *_slow functions; all state is final before anything that can run Python (DECREF, allocation, warnings).
 *
 * A scope object may be entered many times at once (recursion, threads, tasks, decorators): its open entries form a list,
 * newest first. Each open entry owns one reference to its context; the core holds bare addresses. The references are visited
 * by the collector, so a suspended task that nobody can reach any more is still collected together with its phase. */
#include "core/wiped.h"
#include "python/lpy.h"
#include "python/names.h"
#include "python/scope.h"

typedef struct PhaseObject {
    PyObject_HEAD vectorcallfunc call;
    PyObject *name;        /* exact str; owned */
    RecorderObject *owner; /* owned, unless it is lent: see lpy_phase_settle */
    lp_entry *open;        /* newest open entry; meaningless unless generation is the recorder's */
    PyObject *context;     /* of `open`; owned through it */
    uint32_t generation;
    uint32_t flags;  /* PHASE_* */
    uint32_t stride; /* 1, or n of sample=1/n */
    uint32_t missed; /* entries that were not recorded */
    bool dynamic;    /* by the module function: see lpy_phase */
    bool passing;    /* its name is too long to be kept alive */
    bool lent;       /* without the GIL only */
} PhaseObject;

LP_FORK_TOUCHES static PhaseObject
    *free_list[FREE_LIMIT]; /* of the main interpreter's thread state under the GIL; unused without it */
LP_FORK_TOUCHES static int free_count;

/* Scopes of the installed recorder that were left and are in nobody's hands, by the address of their name: the next phase() of
 * that name takes one as it is, tracked by the collector and all. One reference each is owned here, but never of a scope
 * that is open: then the collector must see that nobody else holds it. Under the GIL only. */
#define RECENT 64u
static PhaseObject *recent[RECENT];

static inline PhaseObject **recent_of(const PyObject *name)
{
    return &recent[((uintptr_t)name >> 4 ^ (uintptr_t)name >> 10) & (RECENT - 1)];
}

void lpy_phase_forget(void)
{
    for (unsigned i = 0; i < RECENT; i++) {
        PhaseObject *phase = recent[i];
        recent[i] = NULL;
        Py_XDECREF((PyObject *)phase);
    }
}

#if LPY_FREE_THREADED
/* Without the GIL a scope of the installed recorder owns no reference to it: threads that enter phases at once would have to take turns
 * at counting, which costs several times what a phase does. The installation owns one. When it ends, the scopes that are alive
 * get theirs. */
static int settle(PyObject *object, void *owner)
{
    PhaseObject *phase = (PhaseObject *)object;

    if (Py_TYPE(object) == lpy.phase_type && phase->lent && phase->owner == owner) {
        Py_INCREF((PyObject *)phase->owner);
        phase->lent = false;
    }
    return 1;
}

void lpy_phase_settle(RecorderObject *before)
{
    lpy_visit_in_peace(settle, before);
    /* Frozen objects are not visited: one of them may be a scope. */
    PyObject *gc = PyImport_ImportModule("gc");
    PyObject *frozen = gc ? PyObject_CallMethod(gc, "get_freeze_count", NULL) : NULL;
    if (!frozen || PyObject_IsTrue(frozen) != 0)
        Py_INCREF((PyObject *)before);
    PyErr_Clear();
    Py_XDECREF(frozen);
    Py_XDECREF(gc);
}
#endif

/* ---- what a scope holds open -------------------------------------------------------------------------------------- */

static inline lp_recorder *core_of(const PhaseObject *phase)
{
    const lpy_session *session = lpy_session_of(phase->owner);
    return session ? session->core : NULL;
}

/* Entries of an earlier segment (the parent's, before a fork; a closed profiler's) are gone with their memory. */
static inline bool is_stale(const PhaseObject *phase)
{
    const lp_recorder *core = core_of(phase);
    return !core || phase->generation != core->generation ||
           __atomic_load_n(core->guard, __ATOMIC_ACQUIRE) != core->generation;
}

static void forget_stale(PhaseObject *phase)
{
    PyObject *context = phase->context;

    phase->open = NULL;
    phase->context = NULL;
    phase->missed =
        1u << 30; /* how many there were cannot be told any more: further exits without entry are no misuse */
    Py_XDECREF(context);
}

static inline void hold(PhaseObject *phase, lp_entry *entry, PyObject *context, uint32_t generation)
{
    if (LP_UNLIKELY(phase->open != NULL))
        entry->same = phase->open;
    phase->open = entry;
    phase->generation = generation;
    phase->context = Py_XNewRef(context);
}

/* Takes an entry off the list; returns its context reference, for the caller to drop when all is final. */
static PyObject *release(PhaseObject *phase, lp_entry *entry)
{
    PyObject *context = (PyObject *)(uintptr_t)entry->context;

    if (phase->open == entry) {
        phase->open = entry->same;
        phase->context = entry->same ? (PyObject *)(uintptr_t)entry->same->context : NULL;
    } else {
        lp_entry *above = phase->open;
        while (above->same != entry)
            above = above->same;
        above->same = entry->same;
    }
    return context;
}

/* The entry that an exit closes: the innermost of this object in this context, else of this thread, else any. */
static lp_entry *pick(const PhaseObject *phase, const lp_thread *th)
{
    lp_entry *here = NULL;

    for (lp_entry *entry = phase->open; entry; entry = entry->same) {
        if (entry->thread == th && entry->context == th->context)
            return entry;
        if (!here && entry->thread == th)
            here = entry;
    }
    return here ? here : phase->open;
}

/* ---- enter -------------------------------------------------------------------------------------------------------- */

static uint32_t io_flags(lp_thread *th)
{
    lp_recorder *core = th->recorder;
    uint32_t flags = LP_ENTRY_IO;

    if (th->io_depth++ == 0) {
        th->io_arrivals++;
        atomic_fetch_add(&core->io_arrivals, 1);
        if (atomic_fetch_add(&core->io_threads, 1) > 0)
            flags |= LP_ENTRY_IO_OVERLAP;
    } else if (atomic_load(&core->io_threads) > 1) {
        flags |= LP_ENTRY_IO_OVERLAP;
    }
    return flags;
}

static void io_ends(lp_recorder *core, lp_entry *entry)
{
    if (entry->thread->io_depth > 0 && --entry->thread->io_depth == 0)
        atomic_fetch_sub(&core->io_threads, 1);
}

/* A deterministic stride: the first entry is measured, then every n-th of this path in this thread. */
static inline bool is_skipped(lp_seg_node *node, uint32_t stride)
{
    if (node->skip > 0) {
        node->skip--;
        return true;
    }
    node->skip = stride - 1;
    return false;
}

/* Everything that is not the fast path. -1 with an exception: strict_names, or what sync=True was interrupted by. */
static int enter_slow(PhaseObject *phase)
{
    lp_found found = LP_FOUND;
    bool pinned = false, fresh = false;
    char folded[256] = "";
    uint64_t io[LPY_IO_COUNT] = {0};

    if (phase->flags & PHASE_SYNC && lpy_drain(phase->owner) < 0)
        return -1;
    if (phase->open && is_stale(phase))
        forget_stale(phase);
    PyObject *context = lpy_context();
    lpy_session *session = lpy_session_of(phase->owner); /* now: all that runs Python, and it may be closed meanwhile */
    if (!session) {
        phase->missed++;
        return 0;
    }
    lp_recorder *core = session->core;
    lp_thread *th = lpy_thread(core, context);
    if (LP_UNLIKELY(session->loss_due)) { /* that has opened a segment, or none */
        lpy_say_lost(session);
        context = lpy_context();
        th = lpy_session_of(phase->owner) ? lpy_thread(core, context) : NULL;
    }
    if (!th) {
        phase->missed++;
        return 0;
    }
    lp_entry *around = lp_innermost(th);
    lp_seg_node *parent = around ? around->place : th->root, *node = NULL;
    lp_entry *entry = NULL;
    uint32_t light = around && around->node == 0 ? around->flags & (LP_ENTRY_SKIP | LP_ENTRY_FOLD | LP_ENTRY_LOST) : 0;

    if (!light) {
        node = lp_node_cached(th, parent, phase->name);
        if (!node) {
            uint32_t id = lpy_name_id(session, phase->name, true, &pinned);
            if (!id && PyErr_Occurred())
                return -1;
            /* That may have run Python: another thread, a close(), a fork. */
            context = lpy_context();
            th = lpy_session_of(phase->owner) ? lpy_thread(core, context) : NULL;
            if (!th) {
                phase->missed++;
                return 0;
            }
            around = lp_innermost(th);
            parent = around ? around->place : th->root;
            found = id == LPY_NAME_LATE ? lpy_name_fold(th, parent, phase->name)
                    : id                ? lp_node_get(th, parent, id, &node, &fresh)
                                        : LP_FOUND_NO_SPACE;
            if (found == LP_FOUND && pinned)
                lp_node_cache(th, parent, phase->name, node);
            if (found == LP_FOUND_FOLDED_PATH && !session->folded_warned)
                lpy_name_path_below(th, parent, phase->name, folded, sizeof folded);
            if (found != LP_FOUND)
                light = LP_ENTRY_FOLD;
            if (found == LP_FOUND_NO_SPACE) {
                light |= LP_ENTRY_LOST;
                if (!id || id == LPY_NAME_LATE) /* not even its name could be kept; else it is counted already */
                    lp__note(core, &lp_recorder_health(core)->lost_entries);
            }
        }
    }
    if (around && around->node == 0 && light & LP_ENTRY_LOST)
        lp__note(core, &lp_recorder_health(core)->lost_entries);
    else if (around && around->node == 0 && light & LP_ENTRY_FOLD)
        lp_fold_again(th, parent);
    if (node && phase->stride > 1 && is_skipped(node, phase->stride))
        light = LP_ENTRY_SKIP;
    if (light) {
        entry = lp_enter_light(th, light);
    } else {
        uint32_t flags = phase->flags & PHASE_ASYNC ? LP_ENTRY_ASYNC : 0;
        bool readable = false;
        if (phase->flags & PHASE_IO) {
            flags |= io_flags(th);
            readable = lpy_io_read(session, phase->flags & PHASE_IO_THREAD, io);
            if (!(phase->flags & PHASE_IO_THREAD))
                lpy_io_children(session);
        }
        entry = lp_enter(th, node, flags, phase->stride);
        if (entry && phase->flags & PHASE_IO) {
            for (int i = 0; i < LPY_IO_COUNT; i++)
                entry->extra[i] = readable ? io[i] : UINT64_MAX;
            entry->extra[LPY_IO_COUNT] =
                (uint64_t)lpy_io_spoilt() << 32 | (uint32_t)(atomic_load(&core->io_arrivals) - th->io_arrivals);
        }
    }
    if (!entry) {
        phase->missed++;
        return 0;
    }
    hold(phase, entry, context, core->generation);
    if (folded[0])
        lpy_warn_fold(session, found, folded);
    return 0;
}

static inline int enter(PhaseObject *phase)
{
    PyObject *context = lpy_context(); /* first: one that is made here may be what lets a collection run */
    lpy_session *session = lpy_session_of(phase->owner);

    if (LP_UNLIKELY(!session || phase->flags & ~(uint32_t)PHASE_SAMPLE || phase->open))
        return enter_slow(phase);
    lp_recorder *core = session->core;
    lp_thread *th = lp_thread_get(core, context);
    if (LP_UNLIKELY(!th || !context || (!th->top && lpy_context_around(context) != th->around)))
        return enter_slow(phase);
    lp_entry *around = lp_innermost(th);
    if (LP_UNLIKELY(around && around->node == 0))
        return enter_slow(phase);
    lp_seg_node *node = lp_node_cached(th, around ? around->place : th->root, phase->name);
    if (LP_UNLIKELY(!node))
        return enter_slow(phase);
    lp_entry *entry = LP_UNLIKELY(phase->flags) && is_skipped(node, phase->stride)
                          ? lp_enter_light(th, LP_ENTRY_SKIP)
                          : lp_enter(th, node, 0, phase->stride);
    if (LP_UNLIKELY(!entry)) {
        phase->missed++;
        return 0;
    }
    hold(phase, entry, context, core->generation);
    return 0;
}

/* ---- leave -------------------------------------------------------------------------------------------------------- */

static void add_io(lpy_session *session, lp_thread *th, lp_seg_node *node, const uint64_t moved[LPY_IO_COUNT],
                   uint32_t scale)
{
    static const char *const names[LPY_IO_COUNT] = {"io_read_bytes", "io_write_bytes", "io_read_chars",
                                                    "io_write_chars"};

    for (int i = 0; i < LPY_IO_COUNT; i++) {
        if (moved[i] == 0)
            continue;
        uint32_t id = lp_name_make(session->core, names[i], strlen(names[i]));
        lp_seg_counter *counter = id ? lp_counter_get(th, node, id) : NULL;
        if (counter)
            lp_counter_add(th, counter, (int64_t)moved[i], scale);
    }
}

static void close_innermost(PhaseObject *phase, uint64_t now, uint32_t how)
{
    PyObject *context = lpy_context();
    uint64_t io[LPY_IO_COUNT], moved[LPY_IO_COUNT] = {0};
    lpy_session *session = lpy_session_of(phase->owner);
    lp_recorder *core = session ? session->core : NULL;
    lp_thread *th = core && !lp_recorder_forked(core) ? lpy_thread(core, context) : NULL;
    if (phase->open && (is_stale(phase) || !th)) {
        forget_stale(phase);
        return;
    }
    if (!phase->open) {
        if (phase->missed > 0)
            phase->missed--;
        else if (th)
            lp__note(core, &lp_recorder_health(core)->misuse);
        return;
    }
    lp_entry *entry = pick(phase, th);
    lp_seg_node *node = entry->thread == th ? entry->place : NULL;
    uint32_t scale = entry->scale;
    bool bytes = (entry->flags & LP_ENTRY_IO) && entry->node != 0;
    if (bytes) {
        if (entry->extra[0] == UINT64_MAX || !lpy_io_read(session, phase->flags & PHASE_IO_THREAD, io)) {
            how |= LP_LEFT_IO_MISSING;
        } else {
            for (int i = 0; i < LPY_IO_COUNT; i++) {
                moved[i] = io[i] > entry->extra[i] ? io[i] - entry->extra[i] : 0;
            }
        }
        if (!(phase->flags & PHASE_IO_THREAD))
            lpy_io_children(session);
        if (entry->thread != th)
            how |= LP_LEFT_IO_MISSING; /* left elsewhere: whose bytes came between cannot be told */
        if (entry->extra[LPY_IO_COUNT] >> 32 != lpy_io_spoilt())
            how |= LP_LEFT_IO_MISSING; /* some of them are ours, and nobody knows how many */
        io_ends(core, entry);
        if ((uint32_t)(atomic_load(&core->io_arrivals) - th->io_arrivals) != (uint32_t)entry->extra[LPY_IO_COUNT] &&
            !(phase->flags & PHASE_IO_THREAD))
            entry->flags |= LP_ENTRY_IO_OVERLAP;
        if (phase->flags & PHASE_IO_THREAD)
            entry->flags &= ~(uint32_t)LP_ENTRY_IO_OVERLAP;
    }
    context = release(phase, entry);
    lp_leave(th, entry, now, how);
    if (bytes && node && !(how & LP_LEFT_IO_MISSING))
        add_io(session, th, node, moved, scale);
    Py_XDECREF(context);
}

/* -1 with the exception that interrupted the wait for the GPU; the entry is closed all the same. */
static int leave_slow(PhaseObject *phase, uint64_t now, uint32_t how)
{
    PyObject *type = NULL, *value = NULL, *traceback = NULL;

    if (phase->flags & PHASE_SYNC) {
        if (lpy_drain(phase->owner) < 0) {
            PyErr_Fetch(&type, &value, &traceback);
            how |= LP_LEFT_ERROR;
        }
        now = lp_ticks();
    }
    close_innermost(phase, now, how);
    if (!type)
        return 0;
    PyErr_Restore(type, value, traceback);
    return -1;
}

static inline int leave(PhaseObject *phase, uint64_t now, uint32_t how)
{
    PyObject *here = lpy_context();
    lpy_session *session = lpy_session_of(phase->owner);
    lp_entry *entry = phase->open;

    if (LP_UNLIKELY(!session || !entry || phase->flags & ~(uint32_t)PHASE_SAMPLE))
        return leave_slow(phase, now, how);
    lp_recorder *core = session->core;
    lp_thread *th = lp_thread_leaving(core, here);
    entry = phase->open; /* again: where that wrote a snapshot, another thread may have left this object */
    if (LP_UNLIKELY(!th || !entry || phase->generation != core->generation || entry != th->top || entry->same))
        return leave_slow(phase, now, how);
    PyObject *context = phase->context;
    phase->open = NULL;
    phase->context = NULL;
    lp_leave(th, entry, now, how);
    /* By the running `with`. A program that holds the scope itself may enter it again, and drop it open. */
    if (!LPY_FREE_THREADED && LP_LIKELY(phase->owner == lpy.installed && Py_REFCNT(phase) == 1)) {
        PhaseObject **place = recent_of(phase->name);
        if (LP_LIKELY(*place == NULL && !phase->passing && lpy_is_only_on_stack((PyObject *)phase)))
            *place = (PhaseObject *)Py_NewRef((PyObject *)phase);
    }
    Py_XDECREF(context);
    return 0;
}

/* ---- the type ----------------------------------------------------------------------------------------------------- */

PyObject *lpy_decorate(RecorderObject *owner, PyObject *function, PyObject *name, uint32_t flags, uint32_t stride)
{
    PyObject *module = PyImport_ImportModule("lineprofiler.accounting._decorate");
    PyObject *io = flags & PHASE_IO_THREAD ? PyUnicode_FromString("thread") : PyBool_FromLong(flags & PHASE_IO);
    PyObject *result = NULL;

    if (module && io)
        result = PyObject_CallMethod(module, "decorate", "OOO(OOdO)", owner ? (PyObject *)owner : Py_None, function,
                                     name, io, flags & PHASE_SYNC ? Py_True : Py_False, 1.0 / stride,
                                     flags & PHASE_ASYNC ? Py_True : Py_False);
    Py_XDECREF(io);
    Py_XDECREF(module);
    return result;
}

static PyObject *decorate_with(PhaseObject *phase, PyObject *function)
{
    return lpy_decorate(phase->dynamic ? NULL : phase->owner, function, phase->name, phase->flags, phase->stride);
}

static inline PyObject *do_enter(PhaseObject *phase)
{
    int rc;
    LPY_BEGIN_CRITICAL(phase);
    rc = enter(phase);
    LPY_END_CRITICAL();
    if (LP_UNLIKELY(rc < 0))
        return NULL;
    Py_RETURN_NONE;
}

static inline PyObject *do_exit(PhaseObject *phase, PyObject *exception)
{
    uint64_t now = lp_ticks();
    int rc;
    LPY_BEGIN_CRITICAL(phase);
    /* GeneratorExit is how a generator that is no longer wanted leaves: no error. */
    rc = leave(phase, now,
               LP_LIKELY(exception == Py_None) || exception == PyExc_GeneratorExit ? LP_LEFT : LP_LEFT_ERROR);
    LPY_END_CRITICAL();
    if (LP_UNLIKELY(rc < 0))
        return NULL;
    Py_RETURN_NONE;
}

#if LPY_SELF_DESCRIPTOR
/* 0 arguments enter, 3 exit, 1 decorates: see compat.h. */
static PyObject *phase_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);

    if (LP_LIKELY(!kwnames)) {
        if (nargs == 0)
            return do_enter((PhaseObject *)self);
        if (nargs == 3)
            return do_exit((PhaseObject *)self, args[0]);
        if (nargs == 1)
            return decorate_with((PhaseObject *)self, args[0]);
    }
    PyErr_SetString(PyExc_TypeError, "a phase is a context manager, or a decorator of one function");
    return NULL;
}

typedef struct {
    PyObject_HEAD
} DescriptorObject;

static PyObject *descriptor_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return Py_NewRef(object && object != Py_None ? object : self);
}

/* type.__enter__(object), as contextlib.ExitStack calls it. */
static PyObject *descriptor_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self;
    if (PyTuple_GET_SIZE(args) < 1 || (kwargs && PyDict_GET_SIZE(kwargs)) ||
        (Py_TYPE(PyTuple_GET_ITEM(args, 0)) != lpy.phase_type &&
         Py_TYPE(PyTuple_GET_ITEM(args, 0)) != lpy.nothing_type)) {
        PyErr_SetString(PyExc_TypeError, "__enter__ and __exit__ of a phase take the phase");
        return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
    PyObject *result = rest ? PyObject_Call(PyTuple_GET_ITEM(args, 0), rest, NULL) : NULL;
    Py_XDECREF(rest);
    return result;
}

static PyType_Slot descriptor_slots[] = {
    {Py_tp_descr_get, descriptor_get},
    {Py_tp_call, descriptor_call},
    {0, NULL},
};
static PyType_Spec descriptor_spec = {"lineprofiler._lineprofiler._Half", sizeof(DescriptorObject), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, descriptor_slots};
#else
static PyObject *phase_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (PyVectorcall_NARGS(nargsf) == 1 && !kwnames)
        return decorate_with((PhaseObject *)self, args[0]);
    PyErr_SetString(PyExc_TypeError, "a phase is a context manager, or a decorator of one function");
    return NULL;
}

static PyObject *method_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return do_enter((PhaseObject *)self);
}

static PyObject *method_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return do_exit((PhaseObject *)self, nargs > 0 ? args[0] : Py_None);
}

static PyMethodDef phase_methods[] = {
    {"__enter__", method_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))method_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
#endif

static int phase_traverse(PyObject *self, visitproc visit, void *arg)
{
    PhaseObject *phase = (PhaseObject *)self;

    Py_VISIT(Py_TYPE(self));
    if (!phase->lent)
        Py_VISIT(phase->owner);
    if (phase->open) {
        if (is_stale(phase)) {
            Py_VISIT(phase->context);
        } else {
            for (lp_entry *entry = phase->open; entry; entry = entry->same)
                Py_VISIT((PyObject *)(uintptr_t)entry->context);
        }
    }
    return 0;
}

static int phase_clear(PyObject *self)
{
    PhaseObject *phase = (PhaseObject *)self;

    while (phase->open && !is_stale(phase)) {
        lp_recorder *core = core_of(phase);
        lp_thread *th = lp_thread_leaving(core, lpy_context());
        if (!th || is_stale(phase))
            break;
        /* A scope that dies open: its frame was dropped, or nobody ever left it. */
        lp_entry *entry = phase->open;
        uint32_t how = LP_LEFT_ABANDONED;
        if (entry->flags & LP_ENTRY_IO && entry->node) {
            io_ends(core, entry);
            how |= LP_LEFT_IO_MISSING;
        }
        PyObject *context = release(phase, entry);
        lp_leave(th, entry, lp_ticks(), how);
        Py_XDECREF(context);
    }
    if (phase->open)
        forget_stale(phase);
    return 0;
}

static void phase_dealloc(PyObject *self)
{
    PhaseObject *phase = (PhaseObject *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (LPY_FREE_THREADED && phase->open &&
        phase->lent) { /* what follows may run Python, and untracked it is not settled */
        Py_INCREF((PyObject *)phase->owner);
        phase->lent = false;
    }
    PyObject_GC_UnTrack(self);
    if (LP_UNLIKELY(phase->open != NULL)) {
        PyObject *error_type, *value, *traceback;
        PyErr_Fetch(&error_type, &value, &traceback);
        phase_clear(self);
        PyErr_Restore(error_type, value, traceback);
    }
    PyObject *name = phase->name;
    PyObject *owner = LPY_FREE_THREADED && phase->lent ? NULL : (PyObject *)phase->owner;
    phase->name = NULL;
    phase->owner = NULL;
    if (!LPY_FREE_THREADED && free_count < FREE_LIMIT)
        free_list[free_count++] = phase;
    else
        PyObject_GC_Del(self);
    Py_DECREF(name);
    Py_XDECREF(owner);
    Py_DECREF(type);
}

static PyObject *phase_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<phase %R>", ((PhaseObject *)self)->name);
}

static PyObject *phase_name(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((PhaseObject *)self)->name);
}

static PyMemberDef phase_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PhaseObject, call), LPY_VECTORCALL_MEMBER, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef phase_getset[] = {
    {"name", phase_name, NULL, "Name of the phase.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot phase_slots[] = {
    {Py_tp_doc, "A region of the program, entered by `with`; or a decorator."},
    {Py_tp_dealloc, phase_dealloc},
    {Py_tp_traverse, phase_traverse},
    {Py_tp_clear, phase_clear},
    {Py_tp_repr, phase_repr},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, phase_members},
    {Py_tp_getset, phase_getset},
#if !LPY_SELF_DESCRIPTOR
    {Py_tp_methods, phase_methods},
#endif
    {0, NULL},
};
static PyType_Spec phase_spec = {"lineprofiler._lineprofiler.Phase", sizeof(PhaseObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                     Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 phase_slots};

/* ---- phase() ------------------------------------------------------------------------------------------------------ */

static inline PhaseObject *phase_new(RecorderObject *owner, PyObject *name)
{
    PhaseObject *phase;
    bool lent = LPY_FREE_THREADED && owner == lpy.installed;

    if (!lent)
        Py_INCREF((PyObject *)owner); /* first: before 3.12 a collection may run in an allocation, and uninstall it */
    if (LP_LIKELY(free_count > 0)) {
        phase = free_list[--free_count];
        PyObject_Init((PyObject *)phase, lpy.phase_type);
    } else {
        phase = PyObject_GC_New(PhaseObject, lpy.phase_type);
        if (!phase) {
            if (!lent)
                Py_DECREF((PyObject *)owner);
            return NULL;
        }
        phase->call = phase_call;
    }
    phase->name = Py_NewRef(name);
    phase->owner = owner;
    phase->lent = lent;
    phase->open = NULL;
    phase->context = NULL;
    phase->generation = 0;
    phase->flags = 0;
    phase->stride = 1;
    phase->missed = 0;
    phase->dynamic = false;
    phase->passing = PyUnicode_GET_LENGTH(name) > LPY_NAME_KEPT;
    PyObject_GC_Track((PyObject *)phase);
    return phase;
}

static inline PhaseObject *phase_for(RecorderObject *recorder, PyObject *name, bool dynamic, uint32_t flags,
                                     uint32_t stride)
{
    if (!LPY_FREE_THREADED && LP_LIKELY(recorder == lpy.installed)) {
        PhaseObject **place = recent_of(name), *left = *place;
        if (LP_LIKELY(left && left->name == name && left->owner == recorder && left->flags == flags &&
                      left->stride == stride && Py_REFCNT(left) == 1)) {
            *place = NULL; /* with its reference */
            left->dynamic = dynamic;
            return left;
        }
    }
    PhaseObject *phase = phase_new(recorder, name);
    if (LP_LIKELY(phase != NULL)) {
        phase->flags = flags;
        phase->stride = stride;
        phase->dynamic = dynamic;
    }
    return phase;
}

static PyObject *phase_with_options(RecorderObject *recorder, bool dynamic, PyObject *const *args, Py_ssize_t nargs,
                                    PyObject *kwnames)
{
    lpy_options options;
    PyObject *result;

    if (!lpy_parse_options(args, nargs, kwnames, &options))
        return NULL;
    if (dynamic)
        recorder = lpy.installed; /* again: that may have run Python, and nobody holds it */
    if (!recorder || !lpy_session_of(recorder)) {
        if (recorder)
            __atomic_fetch_add(&recorder->entered_while_off, 1, __ATOMIC_RELAXED);
        result = lpy_nothing_new(options.name, dynamic, options.flags, options.stride);
    } else {
        result = (PyObject *)phase_for(recorder, options.name, dynamic, options.flags, options.stride);
    }
    Py_DECREF(options.name);
    return result;
}

PyObject *lpy_phase(RecorderObject *recorder, bool dynamic, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (LP_UNLIKELY(nargs != 1 || kwnames || !PyUnicode_CheckExact(args[0])))
        return phase_with_options(recorder, dynamic, args, nargs, kwnames);
    if (LP_LIKELY(recorder && lpy_session_of(recorder))) {
        return (PyObject *)phase_for(recorder, args[0], dynamic, 0, 1);
    }
    if (recorder)
        __atomic_fetch_add(&recorder->entered_while_off, 1, __ATOMIC_RELAXED);
    return lpy_nothing_new(args[0], dynamic, 0, 1);
}

/* ---- the module's part -------------------------------------------------------------------------------------------- */

#if LPY_SELF_DESCRIPTOR
static int add_halves(PyTypeObject *type, PyObject *descriptor)
{
    return PyObject_SetAttrString((PyObject *)type, "__enter__", descriptor) < 0 ||
                   PyObject_SetAttrString((PyObject *)type, "__exit__", descriptor) < 0
               ? -1
               : 0;
}
#endif

int lpy_phase_init(PyObject *module)
{
    (void)module;
    if (lpy_arguments_init() < 0)
        return -1;
    lpy.phase_type = (PyTypeObject *)PyType_FromSpec(&phase_spec);
    if (!lpy.phase_type || lpy_nothing_init() < 0)
        return -1;
    lpy_immortalise(lpy.phase_type);
#if LPY_SELF_DESCRIPTOR
    lpy.descriptor_type = (PyTypeObject *)PyType_FromSpec(&descriptor_spec);
    if (!lpy.descriptor_type)
        return -1;
    PyObject *descriptor = (PyObject *)PyObject_New(DescriptorObject, lpy.descriptor_type);
    if (!descriptor || add_halves(lpy.phase_type, descriptor) < 0 || add_halves(lpy.nothing_type, descriptor) < 0)
        return -1;
    lpy_immortalise(descriptor);
    Py_DECREF(descriptor);
#endif
    return 0;
}
