/* sync=True of a phase: waits until the GPU has done what was queued, by _cuda.py. Runs Python. */
#include "python/scope.h"

int lpy_drain(const RecorderObject *recorder)
{
    const lpy_session *session = lpy_session_of(recorder);

    if (!session)
        return 0;
    int policy = session->cuda_sync;
    PyObject *module = PyImport_ImportModule("lineprofiler.accounting._cuda");
    PyObject *function = module ? PyObject_GetAttrString(module, "drain") : NULL;
    Py_XDECREF(module);
    if (!function) {
        if (!PyErr_ExceptionMatches(PyExc_Exception))
            return -1;
        PyErr_Clear(); /* that it cannot be loaded is our own trouble */
        return 0;
    }
    PyObject *wait = policy < 0 ? Py_None : policy ? Py_True : Py_False;
    PyObject *result = PyObject_CallFunctionObjArgs(function, wait, NULL);
    Py_DECREF(function);
    Py_XDECREF(result);
    return result ? 0 : -1;
}
