/* lineprofiler._lineprofiler: the module itself and the functions around the installed recorder. */
#include "python/line.h"
#include "python/lpy.h"
#include "python/run_api.h"

lpy_state lpy;

static PyObject *module_phase(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    (void)module;
    return lpy_phase(lpy.installed, true, args, nargs, kwnames);
}

static PyObject *module_count(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    (void)module;
    return lpy_count(lpy.installed, args, nargs, kwnames);
}

static PyObject *module_current(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return lpy_current(lpy.installed);
}

static PyObject *module_install(PyObject *module, PyObject *recorder)
{
    (void)module;
    if (recorder != Py_None && !PyObject_TypeCheck(recorder, lpy.recorder_type)) {
        PyErr_Format(PyExc_TypeError, "a Recorder or None, not %.100s", Py_TYPE(recorder)->tp_name);
        return NULL;
    }
    RecorderObject *next = recorder == Py_None ? NULL : (RecorderObject *)Py_NewRef(recorder);
    RecorderObject *before = __atomic_exchange_n(&lpy.installed, next, __ATOMIC_ACQ_REL);
    lpy_phase_forget();
    if (before)
        lpy_phase_settle(before);
    Py_XDECREF((PyObject *)before);
    Py_RETURN_NONE;
}

static PyObject *module_installed(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return Py_NewRef(lpy.installed ? (PyObject *)lpy.installed : Py_None);
}

static PyMethodDef methods[] = {
    {"phase", (PyCFunction)(void (*)(void))module_phase, METH_FASTCALL | METH_KEYWORDS,
     "phase($module, name, io=False, sync=False, sample=1.0, async_work=False)\n--\n\n"
     "Profiler.phase of the installed profiler; does nothing when none is installed."},
    {"count", (PyCFunction)(void (*)(void))module_count, METH_FASTCALL | METH_KEYWORDS,
     "count($module, name, n=1)\n--\n\nProfiler.count of the installed profiler; does nothing when none is installed."},
    {"current", module_current, METH_NOARGS,
     "current($module)\n--\n\nThe caller's innermost open phase as \"a/b/c\", \"\" if none."},
    {"_install", module_install, METH_O, NULL},
    {"_installed", module_installed, METH_NOARGS, NULL},
    {"_adopt", lpy_adopt_package, METH_O, NULL},
    {"load_lines", lpy_load_lines, METH_O, NULL},
    {"pickle_is_modest", lpy_pickle_is_modest, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "lineprofiler records the main interpreter only");
        return -1;
    }
    /* A program that drops the module from sys.modules and imports it again gets the same types and the same installed one. */
    if (!lpy.recorder_type && (lpy_context_init(module) < 0 || lpy_torch_init(module) < 0 ||
                               lpy_recorder_init(module) < 0 || lpy_phase_init(module) < 0))
        return -1;
    if (PyModule_AddObjectRef(module, "Recorder", (PyObject *)lpy.recorder_type) < 0)
        return -1;
    if (lpy_line_init(module) < 0)
        return -1;
    if (PyModule_AddFunctions(module, lp_py_run_methods) < 0 || PyModule_AddFunctions(module, lp_py_sample_methods) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "__version__", LP_VERSION);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_lineprofiler", .m_size = 0, .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__lineprofiler(void);
PyMODINIT_FUNC PyInit__lineprofiler(void)
{
    return PyModuleDef_Init(&definition);
}
