/* The module type of lineprofiler.accounting: `accounting.phase` without a dictionary.
 *
 * The package loads its rarer names lazily, by a module __getattr__; CPython does not specialise attribute loads of a module
 * that has one (3.11 – 3.13), and never does on 3.10: 20 ns for `accounting.phase`, a quarter of the phase. This type
 * answers the names of the hot path by the address of the interned name. What a program stores there instead (a test's
 * stand-in) is what it gets. */
#include "python/lpy.h"

enum { HOT = 3 };
static struct {
    PyObject *name;  /* interned; owned */
    PyObject *value; /* what the module's dictionary holds; owned. NULL: look there */
} hot[HOT];
static PyObject *package; /* the one module of this type; borrowed */

static PyObject *package_getattro(PyObject *self, PyObject *name)
{
    if (LP_LIKELY(self == package))
        for (int i = 0; i < HOT; i++)
            if (name == hot[i].name && hot[i].value)
                return Py_NewRef(hot[i].value);
    return PyModule_Type.tp_getattro(self, name);
}

static void refresh(void)
{
    PyObject *dict = PyModule_GetDict(package); /* borrowed */

    for (int i = 0; i < HOT; i++)
        Py_XSETREF(hot[i].value, Py_XNewRef(dict ? PyDict_GetItem(dict, hot[i].name) : NULL));
}

static int package_setattro(PyObject *self, PyObject *name, PyObject *value)
{
    int rc = PyModule_Type.tp_setattro(self, name, value);
    if (self == package)
        refresh();
    return rc;
}

/* By name, as modules are. cloudpickle (Dask, Ray, joblib) sends the globals that a function of __main__ or of a notebook
 * uses; it knows modules by their exact type, and would have tried to take this one to pieces. */
static PyObject *package_reduce(PyObject *self, PyObject *unused)
{
    PyObject *importlib = PyImport_ImportModule("importlib"), *name = PyModule_GetNameObject(self);
    PyObject *load = importlib ? PyObject_GetAttrString(importlib, "import_module") : NULL;
    PyObject *found = load && name ? Py_BuildValue("(O(O))", load, name) : NULL;

    (void)unused;
    Py_XDECREF(importlib);
    Py_XDECREF(name);
    Py_XDECREF(load);
    return found;
}

static PyMethodDef package_methods[] = {
    {"__reduce__", package_reduce, METH_NOARGS, "Pickled by name."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot package_slots[] = {
    {Py_tp_doc, "Type of the module lineprofiler.accounting."},
    {Py_tp_getattro, package_getattro},
    {Py_tp_setattro, package_setattro},
    {Py_tp_methods, package_methods},
    {0, NULL},
};
static PyType_Spec package_spec = {"lineprofiler._lineprofiler.Package", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                   package_slots};

/* _adopt(module): gives the module this type. Where that cannot be, it stays as it is, only slower. */
PyObject *lpy_adopt_package(PyObject *module, PyObject *target)
{
    static const char *const names[HOT] = {"phase", "count", "current"};
    static PyTypeObject *type;

    (void)module;
    if (!PyModule_Check(target)) {
        PyErr_SetString(PyExc_TypeError, "a module");
        return NULL;
    }
    if (!type) {
        PyObject *bases = PyTuple_Pack(1, (PyObject *)&PyModule_Type);
        type = bases ? (PyTypeObject *)PyType_FromSpecWithBases(&package_spec, bases) : NULL;
        Py_XDECREF(bases);
    }
    for (int i = 0; type && i < HOT; i++)
        if (!hot[i].name)
            hot[i].name = PyUnicode_InternFromString(names[i]);
    if (type && PyObject_SetAttrString(target, "__class__", (PyObject *)type) == 0) {
        package = target;
        refresh();
    }
    PyErr_Clear();
    Py_RETURN_NONE;
}
