/* What torch's allocator holds on the GPU: nobody outside of the process can know it. Asked on the way through a phase, once a
 * second at most, and only if the program itself has loaded torch and initialised CUDA: one call of
 * torch.cuda.memory_stats_as_nested_dict(), which says nothing before that. Of the device that is current in this thread. */
#include "core/clock.h"
#include "core/layout.h"
#include "python/lpy.h"

/* Borrowed all the way; NULL without an exception. Modules are looked into by their dicts: an attribute could import something. */
static PyObject *stats_function(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *torch = modules && PyDict_Check(modules) ? PyDict_GetItemString(modules, "torch") : NULL;
    PyObject *names = torch && PyModule_Check(torch) ? PyModule_GetDict(torch) : NULL;
    PyObject *cuda = names ? PyDict_GetItemString(names, "cuda") : NULL;
    PyObject *inner = cuda && PyModule_Check(cuda) ? PyModule_GetDict(cuda) : NULL;

    return inner ? PyDict_GetItemString(inner, "memory_stats_as_nested_dict") : NULL;
}

static bool current_of(PyObject *stats, const char *key, uint64_t *bytes)
{
    PyObject *group = PyDict_Check(stats) ? PyDict_GetItemString(stats, key) : NULL;
    PyObject *all = group && PyDict_Check(group) ? PyDict_GetItemString(group, "all") : NULL;
    PyObject *current = all && PyDict_Check(all) ? PyDict_GetItemString(all, "current") : NULL;

    if (!current || !PyLong_Check(current))
        return false;
    long long value = PyLong_AsLongLong(current);
    *bytes = (uint64_t)value;
    return value >= 0;
}

void lpy_torch_read(struct lp_seg_header *header)
{
    PyObject *type, *value, *traceback, *function, *stats = NULL;
    uint64_t allocated, reserved;

    PyErr_Fetch(&type, &value, &traceback);
    function = stats_function();
    if (function) {
        Py_INCREF(function);
        stats = PyObject_CallNoArgs(function);
        Py_DECREF(function);
    }
    if (stats && current_of(stats, "allocated_bytes", &allocated) && current_of(stats, "reserved_bytes", &reserved)) {
        __atomic_store_n(&header->torch_allocated, allocated, __ATOMIC_RELAXED);
        __atomic_store_n(&header->torch_reserved, reserved, __ATOMIC_RELAXED);
        __atomic_store_n(&header->torch_when, lp_clock_ns(CLOCK_MONOTONIC), __ATOMIC_RELEASE);
    }
    Py_XDECREF(stats);
    PyErr_Clear(); /* of ours: nothing of it is the program's business */
    PyErr_Restore(type, value, traceback);
}
