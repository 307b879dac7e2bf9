/* Execution contexts: which task, greenlet or thread runs, and what runs it. */
#include "python/lpy.h"

bool lpy_contexts_have_parents;

/* A context is made by the first thing that touches it: PyContext_CopyCurrent makes the thread's own and a copy that we drop. */
PyObject *lpy_context_make(PyThreadState *tstate)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyObject *copy = PyContext_CopyCurrent();
    if (!copy)
        PyErr_Clear();
    Py_XDECREF(copy);
    PyErr_Restore(type, value, traceback);
    return lpy_context_of(tstate);
}

const void *lpy_context_around_hook(const void *context)
{
    return lpy_contexts_have_parents ? lpy_context_around(context) : NULL;
}

#if LPY_EAGER_TASKS
/* Everything here is called in the middle of a phase, so it must run no Python: only C functions and C containers. */

/* A module that is loaded already, borrowed. */
static PyObject *loaded(const char *name)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    return modules ? PyDict_GetItemString(modules, name) : NULL;
}

static PyObject *call_builtin(PyObject *module, const char *name)
{
    PyObject *function = module ? PyObject_GetAttrString(module, name) : NULL;
    PyObject *result = function && PyCFunction_Check(function) ? PyObject_CallNoArgs(function) : NULL;

    Py_XDECREF(function);
    return result;
}

static bool context_is(PyObject *task, const void *context)
{
    PyObject *method = PyObject_GetAttrString(task, "get_context");
    PyObject *its = method && PyCFunction_Check(method) ? PyObject_CallNoArgs(method) : NULL;
    bool same = its && its == context;

    if (!its)
        PyErr_Clear(); /* a task class of somebody's own */
    Py_XDECREF(its);
    Py_XDECREF(method);
    return same;
}

/* Of tasks or weak references to tasks. Takes over `tasks`, which may be NULL. */
static bool one_has(PyObject *tasks, const void *context)
{
    PyObject *iterator = tasks ? PyObject_GetIter(tasks) : NULL, *item;
    bool found = false;

    while (iterator && !found && (item = PyIter_Next(iterator)) != NULL) {
        PyObject *task = PyWeakref_Check(item) ? lpy_weakref_get(item) : Py_NewRef(item);
        found = task && context_is(task, context);
        Py_XDECREF(task);
        Py_DECREF(item);
    }
    PyErr_Clear();
    Py_XDECREF(iterator);
    Py_XDECREF(tasks);
    return found;
}

bool lpy_context_has_task_hook(const void *context)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    /* all_tasks() is a C function from 3.14 on; before, it walks a WeakSet of scheduled tasks and a set of eager ones. */
    PyObject *tasks = loaded("asyncio.tasks");
    bool found = one_has(call_builtin(tasks, "all_tasks"), context);
    PyErr_Clear();
    if (!found) {
        PyObject *scheduled = tasks ? PyObject_GetAttrString(tasks, "_scheduled_tasks") : NULL;
        PyObject *data = scheduled ? PyObject_GetAttrString(scheduled, "data") : NULL;
        PyErr_Clear();
        found = one_has(data && PyAnySet_Check(data) ? Py_NewRef(data) : NULL, context);
        Py_XDECREF(data);
        Py_XDECREF(scheduled);
    }
    if (!found) {
        PyObject *eager = tasks ? PyObject_GetAttrString(tasks, "_eager_tasks") : NULL;
        PyErr_Clear();
        found = one_has(eager && PyAnySet_Check(eager) ? Py_NewRef(eager) : NULL, context);
        Py_XDECREF(eager);
    }
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return found;
}

bool lpy_context_runs_task_hook(const void *context)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyObject *task = call_builtin(loaded("asyncio"), "current_task");
    PyErr_Clear(); /* no running loop */
    bool same = task && task != Py_None && context_is(task, context);
    Py_XDECREF(task);
    PyErr_Restore(type, value, traceback);
    return same;
}
#endif

#if LPY_CONTEXT_WATCHER
/* Called at every switch of every context in the process: 3 ns where nothing records. */
static int switched(PyContextEvent event, PyObject *context)
{
    if (event == Py_CONTEXT_SWITCHED)
        for (lp_thread *th = lp__current; th; th = th->next)
            if (th->recorder)
                lp_thread_switched(th, context == Py_None ? NULL : context);
    return 0;
}
#endif

static PyObject *probe_around(PyObject *self, PyObject *expected)
{
    PyObject *context = lpy_context();

    (void)self;
    return PyBool_FromLong(context && lpy_context_around(context) == expected);
}

static PyMethodDef probe = {"_probe", probe_around, METH_O, NULL};

/* Runs a function in a copy of the context and checks that the layout that lpy_context_around assumes is this interpreter's. */
static bool check_parents(void)
{
    PyObject *here = lpy_context();
    PyObject *copy = PyContext_CopyCurrent();
    PyObject *function = PyCFunction_New(&probe, NULL);
    PyObject *answer = copy && function && here ? PyObject_CallMethod(copy, "run", "OO", function, here) : NULL;
    bool good = answer == Py_True;

    Py_XDECREF(answer);
    Py_XDECREF(function);
    Py_XDECREF(copy);
    PyErr_Clear();
    return good;
}

int lpy_context_init(PyObject *module)
{
    (void)module;
    lpy_contexts_have_parents = check_parents();
#if LPY_CONTEXT_WATCHER
    if (PyContext_AddWatcher(switched) < 0)
        PyErr_Clear();
#endif
    return 0;
}
