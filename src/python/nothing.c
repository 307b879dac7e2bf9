/* What phase() gives when nothing records. It keeps its name: what it decorates may be called when something does. */
#include "python/scope.h"

typedef struct NothingObject {
    PyObject_HEAD vectorcallfunc call;
    PyObject *name; /* owned */
    uint32_t flags, stride;
    bool dynamic;
} NothingObject;

static NothingObject *nothing_list[FREE_LIMIT];
static int nothing_count;

static PyObject *nothing_decorates(NothingObject *nothing, PyObject *function)
{
    if (!nothing->dynamic)
        return Py_NewRef(function); /* of a profiler that is off: it never will be on */
    return lpy_decorate(NULL, function, nothing->name, nothing->flags, nothing->stride);
}

static PyObject *nothing_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);

#if LPY_SELF_DESCRIPTOR
    if (LP_LIKELY(!kwnames && (nargs == 0 || nargs == 3)))
        Py_RETURN_NONE;
#endif
    if (!kwnames && nargs == 1)
        return nothing_decorates((NothingObject *)self, args[0]);
    PyErr_SetString(PyExc_TypeError, "a phase is a context manager, or a decorator of one function");
    return NULL;
}

#if !LPY_SELF_DESCRIPTOR
static PyObject *nothing_enter(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Py_RETURN_NONE;
}
static PyObject *nothing_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    (void)args;
    (void)nargs;
    Py_RETURN_NONE;
}
static PyMethodDef nothing_methods[] = {
    {"__enter__", nothing_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))nothing_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
#endif

static void nothing_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject *name = ((NothingObject *)self)->name;

    if (!LPY_FREE_THREADED && nothing_count < FREE_LIMIT)
        nothing_list[nothing_count++] = (NothingObject *)self;
    else
        PyObject_Free(self);
    Py_DECREF(name);
    Py_DECREF(type);
}

PyObject *lpy_nothing_new(PyObject *name, bool dynamic, uint32_t flags, uint32_t stride)
{
    NothingObject *nothing;

    if (LP_LIKELY(nothing_count > 0)) {
        nothing = nothing_list[--nothing_count];
        PyObject_Init((PyObject *)nothing, lpy.nothing_type);
    } else {
        nothing = PyObject_New(NothingObject, lpy.nothing_type);
        if (!nothing)
            return NULL;
        nothing->call = nothing_call;
    }
    nothing->name = Py_NewRef(name);
    nothing->dynamic = dynamic;
    nothing->flags = flags;
    nothing->stride = stride;
    return (PyObject *)nothing;
}

static PyObject *nothing_name(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((NothingObject *)self)->name);
}

static PyGetSetDef nothing_getset[] = {
    {"name", nothing_name, NULL, "Name of the phase.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMemberDef nothing_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(NothingObject, call), LPY_VECTORCALL_MEMBER, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot nothing_slots[] = {
    {Py_tp_doc, "What phase() gives when nothing records."},
    {Py_tp_dealloc, nothing_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, nothing_members},
    {Py_tp_getset, nothing_getset},
#if !LPY_SELF_DESCRIPTOR
    {Py_tp_methods, nothing_methods},
#endif
    {0, NULL},
};
static PyType_Spec nothing_spec = {"lineprofiler._lineprofiler.NoPhase", sizeof(NothingObject), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   nothing_slots};

int lpy_nothing_init(void)
{
    lpy.nothing_type = (PyTypeObject *)PyType_FromSpec(&nothing_spec);
    if (!lpy.nothing_type)
        return -1;
    lpy_immortalise(lpy.nothing_type);
    return 0;
}
