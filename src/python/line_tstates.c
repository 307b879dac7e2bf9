/* The thread states of the interpreter, on 3.10 and 3.11, one after the other; and a thread's stack.
 *
 * Whose lines are measured is said in each thread's state, so whoever starts or stops looks at all of them. The GIL does not keep them
 * still: PyGILState_Ensure of a thread that C code began makes one before it asks for the GIL, and PyThreadState_Delete needs none.
 * Both hold a lock of the interpreter's. Until 3.11 gives that back, the newest one has no cframe yet (PyThreadState_New of
 * Python/pystate.c puts it into the list first, and asks the kernel for the thread's number in between).
 *
 * Assumes the GIL. Who holds that lock waits for the GIL only in a finaliser that the collector runs within sys._current_frames(); and
 * that may be this thread. So there is a limit to our patience; beyond it those that are not finished are passed over. */
#include "python/line.h"

#if LPY_FRAME_TRACING

#include <errno.h>
#include <pthread.h>

#define PATIENCE 50000 /* microseconds */

static bool take(PyThread_type_lock lock)
{
    static bool in_vain; /* the last time: it may stay so, as where C code has forked while another thread held it */
    bool taken = lock && PyThread_acquire_lock_timed(lock, in_vain ? 0 : PATIENCE, 0) == PY_LOCK_ACQUIRED;

    in_vain = lock && !taken;
    return taken;
}

uint64_t lpy_each_thread(PyInterpreterState *interp, uint64_t after, lpy_thread_visit *visit, void *argument)
{
    PyThread_type_lock lock = lpy_threads_lock();
    bool taken = take(lock);
    uint64_t newest = 0;

    for (PyThreadState *tstate = PyInterpreterState_ThreadHead(interp); tstate; tstate = PyThreadState_Next(tstate)) {
        if (!tstate->cframe)
            continue;
        newest = newest < tstate->id ? tstate->id : newest;
        if (tstate->id <= after)
            break;
        visit(tstate, argument);
    }
    if (taken)
        PyThread_release_lock(lock);
    return newest;
}

uintptr_t lpy_stack_middle(void)
{
    pthread_attr_t attributes;
    void *lowest = NULL;
    size_t size = 0;
    uintptr_t middle = 0;
    int saved = errno;

    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &lowest, &size) == 0)
            middle = (uintptr_t)lowest + size / 2;
        pthread_attr_destroy(&attributes);
    }
    errno = saved;
    return middle;
}

#endif
