/* What torch's allocator holds on the GPU: nobody outside of the process can know it. Asked on the way through a phase, once a
 * second at most, and only if the program itself has loaded torch and initialised CUDA: one call of
 * torch.cuda.memory_stats_as_nested_dict(), which says nothing before that. Of the device that is current in this thread. */
#include "core/clock.h"
#include "core/layout.h"
#include "python/lpy.h"

/* Made once: a look for one of them then neither allocates nor hashes. What is asked once a second finds nothing of it in the
 * caches, so that every step counts. */
enum { TORCH, CUDA, STATS, ALLOCATED, RESERVED, ALL, CURRENT, KEYS };
static const char *const keys[KEYS] = {[TORCH] = "torch",
                                       [CUDA] = "cuda",
                                       [STATS] = "memory_stats_as_nested_dict",
                                       [ALLOCATED] = "allocated_bytes",
                                       [RESERVED] = "reserved_bytes",
                                       [ALL] = "all",
                                       [CURRENT] = "current"};
_Static_assert(KEYS <= sizeof lpy.torch_keys / sizeof *lpy.torch_keys, "room for each");

int lpy_torch_init(PyObject *module)
{
    (void)module;
    for (int i = 0; i < KEYS; i++) {
        lpy.torch_keys[i] = PyUnicode_InternFromString(keys[i]);
        if (!lpy.torch_keys[i] || PyObject_Hash(lpy.torch_keys[i]) == -1)
            return -1;
    }
    return 0;
}

/* Borrowed all the way; NULL without an exception. Modules are looked into by their dicts: an attribute could import something. */
static PyObject *in_dict(PyObject *dict, int key)
{
    return dict && PyDict_Check(dict) ? PyDict_GetItemWithError(dict, lpy.torch_keys[key]) : NULL;
}

static PyObject *in_module(PyObject *module, int key)
{
    return module && PyModule_Check(module) ? in_dict(PyModule_GetDict(module), key) : NULL;
}

static PyObject *stats_function(void)
{
    return in_module(in_module(in_dict(PyImport_GetModuleDict(), TORCH), CUDA), STATS);
}

static bool current_of(PyObject *stats, int key, uint64_t *bytes)
{
    PyObject *current = in_dict(in_dict(in_dict(stats, key), ALL), CURRENT);

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
    if (stats && current_of(stats, ALLOCATED, &allocated) && current_of(stats, RESERVED, &reserved)) {
        __atomic_store_n(&header->torch_allocated, allocated, __ATOMIC_RELAXED);
        __atomic_store_n(&header->torch_reserved, reserved, __ATOMIC_RELAXED);
        __atomic_store_n(&header->torch_when, lp_clock_ns(CLOCK_MONOTONIC), __ATOMIC_RELEASE);
    }
    Py_XDECREF(stats);
    PyErr_Clear(); /* of ours: nothing of it is the program's business */
    PyErr_Restore(type, value, traceback);
}
