/* torch_standin.c - an extension module with the three functions of torch._C that tell of its memory on the GPU.
 *
 * What is not torch's own work must be measured without a GPU, so memory_stats() answers with what PyTorch 2.13 does and in its
 * way: 9 statistics of 3 pools and 2 without pools, 4 numbers each, and 6 single numbers, in 39 dicts; each key is a new
 * string, as pybind11 makes them, each number a new int. Its numbers are beyond the small ints that Python keeps. calls() gives the
 * moments at which it was asked since the last calls(), in ns of CLOCK_MONOTONIC. Compiled by collector.py with -O2. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>

static int put(PyObject *dict, const char *name, PyObject *value)
{
    PyObject *key = value ? PyUnicode_FromString(name) : NULL;
    int status = key ? PyObject_SetItem(dict, key, value) : -1;

    Py_XDECREF(key);
    Py_XDECREF(value);
    return status;
}

static long long number = 1000;

static PyObject *number_next(void)
{
    return PyLong_FromLongLong(number++);
}

static PyObject *made_dict(PyObject *(*value)(void), const char *const *names)
{
    PyObject *dict = PyDict_New();

    for (; dict && *names; names++)
        if (put(dict, *names, value()) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *statistic(void)
{
    static const char *const names[] = {"current", "peak", "allocated", "freed", NULL};
    return made_dict(number_next, names);
}

static PyObject *pools(void)
{
    static const char *const names[] = {"all", "small_pool", "large_pool", NULL};
    return made_dict(statistic, names);
}

enum { CALLS = 1 << 20 }; /* those before are forgotten */
static long long calls[CALLS];
static size_t asked;

static PyObject *memory_stats(PyObject *module, PyObject *device)
{
    static const struct {
        const char *name;
        PyObject *(*value)(void);
    } parts[] = {
        {"num_alloc_retries", number_next},
        {"num_ooms", number_next},
        {"max_split_size", number_next},
        {"num_sync_all_streams", number_next},
        {"num_device_alloc", number_next},
        {"num_device_free", number_next},
        {"allocation", pools},
        {"segment", pools},
        {"active", pools},
        {"inactive_split", pools},
        {"allocated_bytes", pools},
        {"reserved_bytes", pools},
        {"active_bytes", pools},
        {"inactive_split_bytes", pools},
        {"requested_bytes", pools},
        {"oversize_allocations", statistic},
        {"oversize_segments", statistic},
    };

    struct timespec now;

    (void)module;
    clock_gettime(CLOCK_MONOTONIC, &now);
    calls[asked++ % CALLS] = (long long)now.tv_sec * 1000000000 + now.tv_nsec;
    if (!PyLong_Check(device))
        return PyErr_Format(PyExc_TypeError, "invalid argument to memory_allocated");
    number = 1000;
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof parts / sizeof *parts; i++)
        if (put(dict, parts[i].name, parts[i].value()) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *get_device(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(0);
}

static PyObject *is_in_bad_fork(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(0);
}

static PyObject *calls_list(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);

    (void)module, (void)unused;
    for (size_t i = 0; list && i < asked && i < CALLS; i++) {
        PyObject *moment = PyLong_FromLongLong(calls[i]);
        if (!moment || PyList_Append(list, moment) < 0)
            Py_CLEAR(list);
        Py_XDECREF(moment);
    }
    asked = 0;
    return list;
}

static PyMethodDef methods[] = {
    {"_cuda_memoryStats", memory_stats, METH_O, NULL},
    {"_cuda_getDevice", get_device, METH_NOARGS, NULL},
    {"_cuda_isInBadFork", is_in_bad_fork, METH_NOARGS, NULL},
    {"calls", calls_list, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "torch_standin", .m_methods = methods};

PyMODINIT_FUNC PyInit_torch_standin(void);
PyMODINIT_FUNC PyInit_torch_standin(void)
{
    return PyModule_Create(&definition);
}
