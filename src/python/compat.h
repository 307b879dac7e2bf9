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

#ifdef Py_GIL_DISABLED
#define LPY_FREE_THREADED 1
#define LPY_BEGIN_CRITICAL(object) Py_BEGIN_CRITICAL_SECTION(object)
#define LPY_END_CRITICAL() Py_END_CRITICAL_SECTION()
#else
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

#endif
