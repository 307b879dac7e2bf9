/* count() and current(): on the innermost open phase of the caller's own task, greenlet or thread. Hot, by the rules of phase.c. */
#include "python/names.h"
#include "python/scope.h"

static bool amount_of(PyObject *value, int64_t *amount)
{
    int overflow = 0;
    PyObject *index = NULL;

    if (!PyLong_Check(value)) { /* numpy integers and their like; float and str have no __index__ */
        index = PyNumber_Index(value);
        if (!index) {
            if (PyErr_ExceptionMatches(PyExc_TypeError))
                PyErr_Format(PyExc_TypeError, "count() takes an int amount, not %.100s", Py_TYPE(value)->tp_name);
            return false;
        }
        value = index;
    }
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    Py_XDECREF(index);
    if (overflow) {
        PyErr_SetString(PyExc_OverflowError, "count() amount does not fit in 64 bits");
        return false;
    }
    if (number == -1 && PyErr_Occurred())
        return false;
    *amount = number;
    return true;
}

/* Counts if nothing has to be looked up: in an entry that sample= has left out, or by the address of the name. */
static inline bool count_known(lp_thread *th, const PyObject *name, int64_t amount)
{
    lp_entry *around = lp_innermost(th);

    if (around && LP_UNLIKELY(around->flags & LP_ENTRY_SKIP) && around->node == 0)
        return true;
    lp_seg_node *node = around ? around->place : th->root;
    lp_count_slot *slot = &th->counts[lp__slot(name, node) & (LP_COUNT_SLOTS - 1)];
    if (LP_UNLIKELY(slot->key != name || slot->node != node))
        return false;
    lp_counter_add(th, slot->counter, amount, around ? around->scale : 1);
    return true;
}

/* Everything that is not the fast path. The caller holds the recorder: what is called here may run Python, or wait for a disk. */
static PyObject *count_slow(RecorderObject *recorder, PyObject *name, int64_t amount)
{
    PyObject *context = lpy_context();
    lpy_session *session = lpy_session_of(recorder);
    bool pinned;

    if (!session)
        Py_RETURN_NONE;
    lp_thread *th = lpy_thread(session->core, context);
    if (LP_UNLIKELY(session->loss_due)) { /* that has opened a segment, or none */
        lpy_say_lost(session);
        context = lpy_context();
        th = lpy_session_of(recorder) ? lpy_thread(session->core, context) : NULL;
    }
    if (!th || count_known(th, name, amount))
        Py_RETURN_NONE;
    uint32_t id = lpy_name_id(session, name, false, &pinned);

    if (!id && PyErr_Occurred())
        return NULL;
    if (!id && session->core->recording && !lp_recorder_forked(session->core))
        lp__note(session->core, &lp_recorder_health(session->core)->lost_entries);
    th = id && lpy_session_of(recorder) ? lpy_thread(session->core, lpy_context()) : NULL;
    if (th) {
        lp_entry *around = lp_innermost(th);
        lp_seg_node *node = around ? around->place : th->root;
        lp_seg_counter *counter = lp_counter_get(th, node, id);
        if (counter) {
            if (pinned)
                th->counts[lp__slot(name, node) & (LP_COUNT_SLOTS - 1)] = (lp_count_slot){name, node, counter, NULL};
            lp_counter_add(th, counter, amount, around ? around->scale : 1);
        }
    }
    Py_RETURN_NONE;
}

/* `recorder` may be the installed one, which nobody holds. */
static __attribute__((noinline)) PyObject *count_held(RecorderObject *recorder, PyObject *name, int64_t amount)
{
    Py_INCREF((PyObject *)recorder);
    PyObject *exact = PyUnicode_CheckExact(name) ? Py_NewRef(name) : PyUnicode_FromObject(name);
    PyObject *result = exact ? count_slow(recorder, exact, amount) : NULL;
    Py_XDECREF(exact);
    Py_DECREF((PyObject *)recorder);
    return result;
}

static inline __attribute__((always_inline)) PyObject *count_amount(RecorderObject *recorder, PyObject *name,
                                                                    int64_t amount)
{
    const lpy_session *session = recorder ? lpy_session_of(recorder) : NULL;

    if (!session)
        Py_RETURN_NONE; /* but what is wrong was wrong: a program must not break when it is switched on */
    lp_thread *th = lpy_thread_ready(session->core);
    if (LP_UNLIKELY(!th || !count_known(th, name, amount)))
        return count_held(recorder, name, amount);
    Py_RETURN_NONE;
}

static __attribute__((noinline)) PyObject *count_number(RecorderObject *recorder, PyObject *name, PyObject *value)
{
    int64_t amount;

    Py_XINCREF((PyObject *)recorder);
    PyObject *result = amount_of(value, &amount) ? count_amount(recorder, name, amount) : NULL;
    Py_XDECREF((PyObject *)recorder);
    return result;
}

static PyObject *count_parsed(RecorderObject *recorder, PyObject *name, PyObject *value)
{
    int64_t amount = 1;

    if (LP_UNLIKELY(!PyUnicode_Check(name))) {
        PyErr_Format(PyExc_TypeError, "counter name must be str, not %.100s", Py_TYPE(name)->tp_name);
        return NULL;
    }
    if (value && LP_UNLIKELY(!lpy_small_int(value, &amount)))
        return count_number(recorder, name, value);
    return count_amount(recorder, name, amount);
}

PyObject *lpy_count(RecorderObject *recorder, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *name = NULL, *value = NULL;

    if (LP_LIKELY(!kwnames && (nargs == 1 || nargs == 2)))
        return count_parsed(recorder, args[0], nargs == 2 ? args[1] : NULL);
    Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (nargs > 2) {
        PyErr_Format(PyExc_TypeError, "count() takes at most 2 arguments (%zd given)", nargs);
        return NULL;
    }
    if (nargs > 0)
        name = args[0];
    if (nargs > 1)
        value = args[1];
    for (Py_ssize_t k = 0; k < keywords; k++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, k);
        PyObject **into = PyUnicode_CompareWithASCIIString(key, "name") == 0 ? &name
                          : PyUnicode_CompareWithASCIIString(key, "n") == 0  ? &value
                                                                             : NULL;
        if (!into || *into) {
            PyErr_Format(PyExc_TypeError,
                         into ? "count() got multiple values for argument %R"
                              : "count() got an unexpected keyword argument %R",
                         key);
            return NULL;
        }
        *into = args[nargs + k];
    }
    if (!name) {
        PyErr_SetString(PyExc_TypeError, "count() missing required argument 'name'");
        return NULL;
    }
    return count_parsed(recorder, name, value);
}

PyObject *lpy_current(RecorderObject *recorder)
{
    char some[512], *path = some;
    size_t size = sizeof some, used = 0;

    Py_XINCREF((PyObject *)recorder); /* as count_held */
    PyObject *context = lpy_context();
    const lpy_session *session = recorder ? lpy_session_of(recorder) : NULL;
    lp_thread *th = session ? lpy_thread(session->core, context) : NULL;
    lp_entry *around = th ? lp_innermost(th) : NULL;

    if (around && (used = lp_node_path(th, around->place, path, size)) + 1 == size) {
        size = LP_DEPTH_LIMIT *
               (LP_NAME_LIMIT + 1); /* 33 KB, never cut; more than a thread with a small stack has to give */
        path = PyMem_Malloc(size);
        used = path ? lp_node_path(th, around->place, path, size) : 0;
    }
    PyObject *text = path ? lpy_name_object(path, used) : PyErr_NoMemory();
    if (path != some)
        PyMem_Free(path);
    Py_XDECREF((PyObject *)recorder);
    return text;
}
