/* Between the files of the scope object: phase.c (what records), nothing.c (what does not), count.c. */
#ifndef LP_PYTHON_SCOPE_H
#define LP_PYTHON_SCOPE_H

#include "python/lpy.h"

enum { PHASE_IO = 1, PHASE_IO_THREAD = 2, PHASE_SYNC = 4, PHASE_ASYNC = 8, PHASE_SAMPLE = 16 };
#define FREE_LIMIT 64 /* objects kept for reuse */

/* The calling thread's state with the running context as the current one; NULL: not recording. */
static inline lp_thread *lpy_thread(lp_recorder *core, PyObject *context)
{
    lp_thread *th = lp_thread_get(core, context);

    if (th && !th->top && context && lpy_context_around_hook(context) != th->around)
        lp_thread_reseat(th);
    return th;
}

/* The same if nothing needs attention, NULL otherwise: runs no hook, and so no Python. */
static inline lp_thread *lpy_thread_ready(const lp_recorder *core)
{
    const PyObject *context = lpy_context_of(lpy_thread_state());
    lp_thread *th = lp__current;

    if (LP_UNLIKELY(!th || th->go != LP_GO || th->recorder != core || th->context != context || !context ||
                    (!th->top && lpy_context_around_hook(context) != th->around)))
        return NULL;
    return th;
}

/* arguments.c: false with an exception (TypeError, ValueError for a rate outside (0, 1]). */
typedef struct lpy_options {
    PyObject *name; /* exact str; new reference */
    uint32_t flags, stride;
} lpy_options;
bool lpy_parse_options(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, lpy_options *out);
int lpy_arguments_init(void);

/* _decorate.decorate(owner or None, function, name, (io, sync, sample, async_work)). */
PyObject *lpy_decorate(RecorderObject *owner, PyObject *function, PyObject *name, uint32_t flags, uint32_t stride);

/* sync.c: what sync=True does at both ends; `recorder` is held by the caller. -1 with an exception that is the program's own: its
 * Ctrl-C, an exit that a signal's handler asks for. What torch raises is none of it. */
int lpy_drain(const RecorderObject *recorder);

/* nothing.c: what phase() gives when nothing records. */
PyObject *lpy_nothing_new(PyObject *name, bool dynamic, uint32_t flags, uint32_t stride);
int lpy_nothing_init(void);

#endif
