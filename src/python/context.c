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
/* The context of the task that runs now, borrowed; NULL none. Only if asyncio is there already. */
static PyObject *running_task(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *asyncio = modules ? PyDict_GetItemString(modules, "asyncio") : NULL;
    PyObject *current = asyncio ? PyObject_GetAttrString(asyncio, "current_task") : NULL;
    PyObject *task = current ? PyObject_CallNoArgs(current) : NULL;

    Py_XDECREF(current);
    return task;
}

static bool context_is(PyObject *task, const void *context)
{
    PyObject *its = PyObject_CallMethod(task, "get_context", NULL);
    bool same = its == context;

    Py_XDECREF(its);
    return same;
}

static bool belongs_to_a_task(const void *context)
{
    PyObject *asyncio = PyDict_GetItemString(PyImport_GetModuleDict(), "asyncio");
    PyObject *tasks = asyncio ? PyObject_CallMethod(asyncio, "all_tasks", NULL) : NULL;
    PyObject *iterator = tasks ? PyObject_GetIter(tasks) : NULL, *task;
    bool found = false;

    while (iterator && !found && (task = PyIter_Next(iterator)) != NULL) {
        found = context_is(task, context);
        Py_DECREF(task);
    }
    Py_XDECREF(iterator);
    Py_XDECREF(tasks);
    return found;
}
#endif

/* An eager task (3.12+) starts inside the context of the task that made it. `outer` is then to be looked beyond. Comes here only
 * when a task of a context inside another task's context opens its first phase, so the walk over all tasks is rare. */
int lpy_context_hidden_hook(const void *context, const void *outer)
{
#if LPY_EAGER_TASKS
    PyObject *type, *value, *traceback;
    int hidden = 0;

    PyErr_Fetch(&type, &value, &traceback);
    PyObject *task = running_task();
    if (task && task != Py_None && context_is(task, context))
        hidden = belongs_to_a_task(outer);
    Py_XDECREF(task);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return hidden;
#else
    (void)context;
    (void)outer;
    return 0;
#endif
}

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
