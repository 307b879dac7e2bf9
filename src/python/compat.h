/* Every difference between Python versions, and every look into the interpreter's internals. No other file has either. */
#ifndef LP_PYTHON_COMPAT_H
#define LP_PYTHON_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

/* 3.10 – 3.13 make a bound method for each half of a `with`, which costs more than the whole phase. One descriptor under
 * both names that returns the object itself, whose vectorcall tells the halves apart by their argument counts, avoids
 * it. From 3.14 on plain methods are faster. (ns a phase: methods 228 135 143 128 66, descriptor 127 87 64 59 75.) */
#if PY_VERSION_HEX < 0x030e0000
#define LPY_SELF_DESCRIPTOR 1
#else
#define LPY_SELF_DESCRIPTOR 0
#endif

/* Contexts tell when the current one changes: exact active time of every task. */
#if PY_VERSION_HEX >= 0x030e0000
#define LPY_CONTEXT_WATCHER 1
#else
#define LPY_CONTEXT_WATCHER 0
#endif

/* Eager tasks exist. */
#define LPY_EAGER_TASKS (PY_VERSION_HEX >= 0x030c0000)

#if PY_VERSION_HEX >= 0x030d0000
#define lpy_thread_state() PyThreadState_GetUnchecked()
#else
#define lpy_thread_state() _PyThreadState_UncheckedGet()
#endif

/* The context object of the running task, greenlet or thread; NULL until something touches it. */
#define lpy_context_of(tstate) ((tstate)->context)

/* ctx_prev is the first field after the object head in 3.10 – 3.15 (Include/internal/pycore_context.h); checked at import
 * with a real copy_context().run. Borrowed. */
static inline const void *lpy_context_around(const void *context)
{
    return *(PyObject *const *)(const void *)((const char *)context + sizeof(PyObject));
}

/* The object of a weak reference, new reference; NULL dead. */
static inline PyObject *lpy_weakref_get(PyObject *reference)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *object = NULL;
    return PyWeakref_GetRef(reference, &object) > 0 ? object : NULL;
#else
    PyObject *object = PyWeakref_GetObject(reference);
    return object && object != Py_None ? Py_NewRef(object) : NULL;
#endif
}

/* Does nobody hold the object but the interpreter's stack, from which this call was made? Variables were counted, too, until 3.14 put
 * their values on the stack without a reference of its own. */
#if PY_VERSION_HEX >= 0x030e0000
#define lpy_is_only_on_stack(object) (PyUnstable_Object_IsUniqueReferencedTemporary(object) != 0)
#else
#define lpy_is_only_on_stack(object) (Py_REFCNT(object) == 1)
#endif

#ifdef Py_GIL_DISABLED
#define LPY_FREE_THREADED 1
#define LPY_BEGIN_CRITICAL(object) Py_BEGIN_CRITICAL_SECTION(object)
#define LPY_END_CRITICAL() Py_END_CRITICAL_SECTION()

/* Calls `visit` for every tracked object while no other thread runs Python or a C function that holds its thread state. So what other
 * threads had read before is done with, which the GIL gives for nothing: with lpy_nothing_to_visit that is all that is wanted. */
#define lpy_visit_in_peace(visit, argument) PyUnstable_GC_VisitObjects(visit, argument)
static inline int lpy_nothing_to_visit(PyObject *object, void *unused)
{
    (void)object;
    (void)unused;
    return 0;
}
#define lpy_wait_for_threads() lpy_visit_in_peace(lpy_nothing_to_visit, NULL)

/* For objects that live as long as the process and are used by every phase: threads would pass the cache line with their count of
 * references to and fro. A count that overflows is how Py_SET_REFCNT is told. By the thread that made the object. */
#define lpy_immortalise(object) Py_SET_REFCNT((PyObject *)(object), (Py_ssize_t)UINT32_MAX + 1)
#else
#define lpy_wait_for_threads() ((void)0)
#define lpy_immortalise(object) ((void)(object))
#define LPY_FREE_THREADED 0
#define LPY_BEGIN_CRITICAL(object) {
#define LPY_END_CRITICAL() }
#endif

#if PY_VERSION_HEX < 0x030c0000
#define LPY_VECTORCALL_MEMBER READONLY
#else
#define LPY_VECTORCALL_MEMBER Py_READONLY
#endif

/* The value of an int of one digit, without a call; false for all others. */
static inline int lpy_small_int(PyObject *object, int64_t *value)
{
    if (!PyLong_CheckExact(object))
        return 0;
#if PY_VERSION_HEX >= 0x030c0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)object))
        return 0;
    *value = PyUnstable_Long_CompactValue((PyLongObject *)object);
#else
    Py_ssize_t digits = Py_SIZE(object);
    if (digits < -1 || digits > 1)
        return 0;
    *value = digits == 0 ? 0 : (int64_t)digits * (int64_t)((PyLongObject *)object)->ob_digit[0];
#endif
    return 1;
}

/* ---- the line engine ---- */

/* sys.monitoring (PEP 669). */
#define LPY_MONITORING (PY_VERSION_HEX >= 0x030c0000)
/* Objects/locations.md; and inline caches among the instructions, and a table of handlers. */
#define LPY_LOCATION_TABLE (PY_VERSION_HEX >= 0x030b0000)

/* The instructions as the compiler made them, caches zero; the table of their positions. New references. */
#if PY_VERSION_HEX >= 0x030b0000
#define lpy_code_bytes(code) PyCode_GetCode((PyCodeObject *)(code))
#define lpy_code_name(code) (((PyCodeObject *)(code))->co_qualname)
#else
#define lpy_code_bytes(code) Py_NewRef(((PyCodeObject *)(code))->co_code)
#define lpy_code_name(code) (((PyCodeObject *)(code))->co_name)
#endif
/* Exception handlers, new reference; NULL: they are instructions. */
#if LPY_LOCATION_TABLE
#define lpy_code_handlers(code) Py_NewRef(((PyCodeObject *)(code))->co_exceptiontable)
#else
#define lpy_code_handlers(code) ((void)(code), (PyObject *)NULL)
#endif
#define lpy_code_table(code) Py_NewRef(((PyCodeObject *)(code))->co_linetable)

#if LPY_MONITORING
/* The interpreter's frame that runs Python now (Include/internal/pycore_frame.h); an address to compare, and to look into for one
 * word: the instruction of a line event. Checked at first use against the line that the event names. */
#if PY_VERSION_HEX >= 0x030d0000
#define lpy_frame_of(tstate) ((const void *)(tstate)->current_frame)
#else
#define lpy_frame_of(tstate) ((const void *)(tstate)->cframe->current_frame)
#endif
static inline const char *lpy_frame_instruction(const void *frame)
{
    return ((const char *const *)frame)[7]; /* prev_instr in 3.12, instr_ptr from 3.13 on */
}
#define lpy_code_start(code) ((const char *)((PyCodeObject *)(code))->co_code_adaptive)
#endif

/* The thread's tracer and profile function, out of the way for a while: what runs meanwhile is not the program's. */
typedef struct lpy_tracers {
    Py_tracefunc trace, profile;
    int flag; /* use_tracing of 3.10, 3.11 */
} lpy_tracers;

static inline lpy_tracers lpy_tracers_take(PyThreadState *tstate)
{
    lpy_tracers taken = {.trace = tstate->c_tracefunc, .profile = tstate->c_profilefunc};

    tstate->c_tracefunc = tstate->c_profilefunc = NULL;
#if PY_VERSION_HEX < 0x030c0000
    taken.flag = tstate->cframe->use_tracing;
    tstate->cframe->use_tracing = 0;
#endif
    return taken;
}

static inline void lpy_tracers_put_back(PyThreadState *tstate, const lpy_tracers *taken)
{
    tstate->c_tracefunc = taken->trace;
    tstate->c_profilefunc = taken->profile;
#if PY_VERSION_HEX < 0x030c0000
    tstate->cframe->use_tracing = (unsigned char)taken->flag;
#endif
}

/* 3.10, 3.11: frames, and the flag of each activation of the evaluation loop that says whether it calls tracers at all. From
 * 3.12 on sys.monitoring does this. */
#if PY_VERSION_HEX < 0x030c0000
#define LPY_FRAME_TRACING 1
#define LPY_TRACED 255 /* use_tracing; 3.11 ors it into the opcode */
#include <frameobject.h>
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
typedef _PyInterpreterFrame lpy_frame;
typedef _PyCFrame lpy_cframe;
#define lpy_frame_back(frame) ((frame)->previous)
#define lpy_frame_in(object) ((object)->f_frame)
/* The last one of its activation: calls from Python to Python share one when nobody hooks evaluation. */
#define lpy_frame_is_entry(frame) ((frame)->is_entry)
#define lpy_thread_top(tstate) ((tstate)->cframe->current_frame)
/* Counted in code units, as co_lines() / 2. */
#define lpy_frame_offset(frame) _PyInterpreterFrame_LASTI(frame)

/* In a call event: it goes on after a yield, or an exception was thrown into it there. */
#define lpy_frame_resumes(frame) (lpy_frame_offset(frame) > (frame)->f_code->_co_firsttraceable)

#define lpy_frame_is_generators(frame) ((frame)->owner == FRAME_OWNED_BY_GENERATOR)

/* In a return event: it only yielded. The generator object is around its frame. */
static inline int lpy_frame_yields(const lpy_frame *frame)
{
    if (!lpy_frame_is_generators(frame))
        return 0;
    const char *generator = (const char *)frame - offsetof(PyGenObject, gi_iframe);
    return ((const PyGenObject *)(const void *)generator)->gi_frame_state == FRAME_SUSPENDED;
}
#else
typedef PyFrameObject lpy_frame;
typedef CFrame lpy_cframe;
#define lpy_frame_back(frame) ((frame)->f_back)
#define lpy_frame_in(object) (object)
#define lpy_frame_is_entry(frame) 1
#define lpy_thread_top(tstate) ((tstate)->frame)
#define lpy_frame_resumes(frame) ((frame)->f_lasti >= 0)
#define lpy_frame_offset(frame) ((frame)->f_lasti)
#define lpy_frame_is_generators(frame) ((frame)->f_gen != NULL)

static inline int lpy_frame_yields(const lpy_frame *frame)
{
    return frame->f_state == FRAME_SUSPENDED;
}
#endif
#define lpy_frame_code(frame) ((frame)->f_code)

/* What the interpreter holds itself when it makes, frees or goes through thread states; NULL: it is not where we look. The beginning of
 * _PyRuntime (Include/internal/pycore_runtime.h), which is checked each time. */
extern struct pyruntimestate _PyRuntime;
static inline PyThread_type_lock lpy_threads_lock(void)
{
    const struct {
        int initialized[LPY_LOCATION_TABLE ? 5 : 4];
        uintptr_t finalizing;
        PyThread_type_lock lock;
        const PyInterpreterState *head, *main;
    } *runtime = (const void *)&_PyRuntime;

    return runtime->head == PyInterpreterState_Head() && runtime->main == PyInterpreterState_Main() ? runtime->lock
                                                                                                    : NULL;
}

/* What _PyCode_SetExtra stored, without the call: it is looked up at every call of the program. The struct is that of
 * Objects/codeobject.c, the same in both versions; line_trace.c compares with _PyCode_GetExtra when it begins. */
static inline void *lpy_code_extra(const PyCodeObject *code, Py_ssize_t index)
{
    const struct extras {
        Py_ssize_t size;
        void *items[];
    } *extras = code->co_extra;

    return extras && extras->size > index ? extras->items[index] : NULL;
}
#else
#define LPY_FRAME_TRACING 0
#endif

#endif
