/* What torch's allocator holds on the GPU: nobody outside of the process can know it. Asked on the way through a phase, once a
 * second at most, and only if the program itself has loaded torch and initialised CUDA. Of the device that is current in this
 * thread.
 *
 * Two rungs. torch.cuda.memory_stats_as_nested_dict() is what torch documents: some six functions of Python around the two that know,
 * torch._C._cuda_getDevice() and torch._C._cuda_memoryStats(device), which are there since 1.4. Those two are called without the
 * Python around them, where torch has them and the two names by which it says itself whether they may be called,
 * torch.cuda._initialized and torch.cuda._is_in_bad_fork(); else the documented one. */
#include "core/clock.h"
#include "core/layout.h"
#include "python/lpy.h"
#include "python/names.h"

/* Made once: a look for one of them then neither allocates nor hashes. */
enum { TORCH, CUDA, C, INITIALIZED, BAD_FORK, DEVICE, STATS, DOCUMENTED, ALLOCATED, RESERVED, ALL, CURRENT, KEYS };
static const char *const keys[KEYS] = {[TORCH] = "torch",
                                       [CUDA] = "cuda",
                                       [C] = "_C",
                                       [INITIALIZED] = "_initialized",
                                       [BAD_FORK] = "_is_in_bad_fork",
                                       [DEVICE] = "_cuda_getDevice",
                                       [STATS] = "_cuda_memoryStats",
                                       [DOCUMENTED] = "memory_stats_as_nested_dict",
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

static PyObject *call(PyObject *function)
{
    Py_INCREF(function);
    PyObject *answer = PyObject_CallNoArgs(function);
    Py_DECREF(function);
    return answer;
}

/* Both functions into *torch, once CUDA is ready: it stays so in this process, so they are looked up once. What is asked once a second
 * finds nothing of what it needs in the caches: each dict of torch's that is not looked into saves a microsecond. false: not
 * yet, or not there; *documented, borrowed, is what to call instead, or NULL. */
static bool look_up(lpy_torch *torch, PyObject **documented)
{
    PyObject *package = in_dict(PyImport_GetModuleDict(), TORCH), *cuda = in_module(package, CUDA),
             *core = in_module(package, C), *initialized = in_module(cuda, INITIALIZED),
             *bad_fork = in_module(cuda, BAD_FORK), *device = in_module(core, DEVICE), *stats = in_module(core, STATS);

    *documented = NULL;
    if (initialized && initialized != Py_True)
        return false;
    if (!initialized || !bad_fork || !device || !stats) {
        *documented = in_module(cuda, DOCUMENTED);
        return false;
    }
    Py_INCREF(device);
    Py_INCREF(stats);
    PyObject *answer = call(bad_fork);
    bool ready = answer == Py_False;
    Py_XDECREF(answer);
    if (ready) {
        torch->device = device;
        torch->stats = stats;
    } else {
        Py_DECREF(device);
        Py_DECREF(stats);
    }
    return ready;
}

/* New reference; NULL, with or without an exception. */
static PyObject *ask(lpy_torch *torch)
{
    PyObject *documented;

    if (!torch->stats && !look_up(torch, &documented))
        return documented ? call(documented) : NULL;
    PyObject *device = PyObject_CallNoArgs(torch->device);
    PyObject *stats = device ? PyObject_CallOneArg(torch->stats, device) : NULL;
    Py_XDECREF(device);
    return stats;
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

void lpy_torch_read(lpy_torch *torch, lp_recorder *core)
{
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    uint64_t allocated, reserved;
    bool pending = PyErr_Occurred() != NULL;

    if (pending)
        PyErr_Fetch(&type, &value, &traceback);
    PyObject *stats = ask(torch);
    if (stats && current_of(stats, ALLOCATED, &allocated) && current_of(stats, RESERVED, &reserved) && core->enabled) {
        lp_seg_header *header = lp_segment_header(&core->segment);
        __atomic_store_n(&header->torch_allocated, allocated, __ATOMIC_RELAXED);
        __atomic_store_n(&header->torch_reserved, reserved, __ATOMIC_RELAXED);
        __atomic_store_n(&header->torch_when, lp_clock_ns(CLOCK_MONOTONIC), __ATOMIC_RELEASE);
    }
    Py_XDECREF(stats);
    /* Where an allocator of the program's (RMM, say) does not support the call, torch raises each time, by a C++ exception with a
     * stack of its own: that is dear, and the next one will be no better. */
    if (stats)
        torch->failures = 0;
    else if (PyErr_Occurred() && torch->failures < LPY_TORCH_FAILURES)
        torch->failures++;
    lpy_clear_own();
    if (pending)
        PyErr_Restore(type, value, traceback);
}

void lpy_torch_in_child(lpy_torch *torch)
{
    *torch = (lpy_torch){0}; /* the references stay the parent's, of which this memory is a copy */
}

void lpy_torch_forget(lpy_torch *torch)
{
    Py_CLEAR(torch->device);
    Py_CLEAR(torch->stats);
}
