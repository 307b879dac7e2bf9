/* Recorder: the C base of lineprofiler.accounting.Profiler. */
#include <string.h>
#include <unistd.h>

#include "python/convert.h"
#include "python/lpy.h"
#include "python/names.h"
#include "store/describe.h"

static RecorderObject *self_of(PyObject *self)
{
    return (RecorderObject *)self;
}

static PyObject *recorder_phase(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return lpy_phase(self_of(self), false, args, nargs, kwnames);
}

static PyObject *recorder_count(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return lpy_count(self_of(self), args, nargs, kwnames);
}

static PyObject *recorder_current(PyObject *self, PyObject *unused)
{
    (void)unused;
    return lpy_current(self_of(self));
}

static PyObject *recorder_open(PyObject *self, PyObject *config)
{
    RecorderObject *recorder = self_of(self);

    if (!PyDict_Check(config)) {
        PyErr_SetString(PyExc_TypeError, "_open takes a dict");
        return NULL;
    }
    if (recorder->session || recorder->past) {
        PyErr_SetString(PyExc_RuntimeError, "a recorder opens once");
        return NULL;
    }
    lpy_session *session;
    LPY_BEGIN_CRITICAL(lpy.recorder_type); /* what the process knows of itself and keeps is found once */
    session = lpy_session_open(config);
    LPY_END_CRITICAL();
    recorder->session = session;
    if (!session)
        return NULL;
    Py_RETURN_NONE;
}

static void shut(RecorderObject *recorder)
{
    lpy_session *session;

    LPY_BEGIN_CRITICAL(recorder);
    session = recorder->session;
    if (session) {
        session->closing = true;
        recorder->past = session;
        recorder->session = NULL; /* first: from here on phases of other threads record nothing */
        session->core->enabled = false;
    }
    LPY_END_CRITICAL();
    if (!session)
        return;
    lpy_wait_for_threads(); /* or one of them would write into a segment that is not mapped any more */
    if (lpy.installed == recorder)
        lpy_phase_forget();
    lpy_session_close(session);
    Py_CLEAR(session->shapes);
}

static PyObject *recorder_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    RecorderObject *recorder = self_of(self);
    bool here = recorder->session != NULL;
    shut(recorder);
    lpy_session *closed = here ? recorder->past : NULL;
    return closed && closed->lost ? PyUnicode_DecodeUTF8(closed->error, (Py_ssize_t)strlen(closed->error), "replace")
                                  : Py_NewRef(Py_None);
}

static PyObject *recorder_snapshot(PyObject *self, PyObject *unused)
{
    lpy_session *session = self_of(self)->session;
    lp_error error = {0};
    lp_status status = LP_OK;

    (void)unused;
    if (session && session->core->recording && !lp_recorder_forked(session->core)) {
        lpy_session_name_threads(session);
        Py_BEGIN_ALLOW_THREADS status = lpy_session_snapshot(session, false, false, &error);
        Py_END_ALLOW_THREADS
    }
    return PyBool_FromLong(status == LP_OK);
}

static PyObject *recorder_worker(PyObject *self, PyObject *unused)
{
    RecorderObject *recorder = self_of(self);
    lpy_session *session = recorder->session;
    lp_worker *worker = NULL;
    lp_error error = {0};

    (void)unused;
    if (session && session->core->recording && !lp_recorder_forked(session->core)) {
        lp_status status;
        lpy_session_name_threads(session);
        Py_BEGIN_ALLOW_THREADS status = lpy_session_worker(session, &worker, &error);
        Py_END_ALLOW_THREADS if (status != LP_OK && recorder->session) return lp_py_raise(status, &error);
    }
    /* Another thread is closing it: its figures are there in a moment. */
    while (!worker && recorder->past && recorder->past->closing && !lp_recorder_forked(recorder->past->core)) {
        Py_BEGIN_ALLOW_THREADS usleep(100);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return NULL;
    }
    if (!worker && recorder->past && recorder->past->last)
        return lp_py_from_worker(recorder->past->last);
    if (!worker) { /* a forked child that has not recorded yet: empty, not its parent's */
        worker = lp_worker_new();
        if (!worker)
            return PyErr_NoMemory();
    }
    PyObject *data = lp_py_from_worker(worker);
    lp_worker_free(worker);
    return data;
}

static PyObject *recorder_io(PyObject *self, PyObject *unused)
{
    RecorderObject *recorder = self_of(self);
    lpy_session *session = recorder->session ? recorder->session : recorder->past;
    uint64_t io[LPY_IO_COUNT] = {0};

    (void)unused;
    if (session && session->id.pid != (int64_t)getpid()) { /* a forked child that has not recorded yet */
        lpy_io_in_child();
        lp_cpu_in_child();
    }
    bool known = session && lpy_io_read(session, false, io);
    if (session && session == recorder->past)
        lpy_io_close(session);
    return Py_BuildValue("KKKKO", (unsigned long long)io[LPY_IO_READ_BYTES], (unsigned long long)io[LPY_IO_WRITE_BYTES],
                         (unsigned long long)io[LPY_IO_READ_CHARS], (unsigned long long)io[LPY_IO_WRITE_CHARS],
                         known ? Py_True : Py_False);
}

static PyObject *recorder_callback_failed(PyObject *self, PyObject *unused)
{
    lpy_session *session = self_of(self)->session;

    (void)unused;
    if (session && session->core->recording && !lp_recorder_forked(session->core))
        lp__note(session->core, &lp_recorder_health(session->core)->callback_failures);
    Py_RETURN_NONE;
}

static PyObject *recorder_asked(PyObject *self, PyObject *name)
{
    if (self_of(self)->session)
        lpy_session_asked(self_of(self)->session, name);
    Py_RETURN_NONE;
}

static PyObject *get_recording(PyObject *self, void *unused)
{
    lpy_session *session = self_of(self)->session;

    (void)unused;
    return PyBool_FromLong(session && session->core->recording && !lp_recorder_forked(session->core));
}

static PyObject *get_enabled(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self_of(self)->session != NULL);
}

static PyObject *get_entered_while_off(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(self_of(self)->entered_while_off);
}

static PyObject *get_last_error(PyObject *self, void *unused)
{
    RecorderObject *recorder = self_of(self);
    lpy_session *session = recorder->session ? recorder->session : recorder->past;

    (void)unused;
    return lpy_name_object(session ? session->error : "", session ? strlen(session->error) : 0);
}

static PyObject *get_segment(PyObject *self, void *unused)
{
    lpy_session *session = self_of(self)->session;
    const char *path =
        session && session->core->recording && !lp_recorder_forked(session->core) ? session->core->segment.path : "";

    (void)unused;
    return PyUnicode_DecodeFSDefault(path);
}

static int recorder_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void recorder_dealloc(PyObject *self)
{
    RecorderObject *recorder = self_of(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject *error_type, *value, *traceback;

    PyObject_GC_UnTrack(self);
    if (recorder->weak)
        PyObject_ClearWeakRefs(self);
    PyErr_Fetch(&error_type, &value, &traceback);
    shut(recorder);
    PyErr_Restore(error_type, value, traceback);
    if (recorder->past)
        lpy_session_forget(recorder->past);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef recorder_methods[] = {
    {"phase", (PyCFunction)(void (*)(void))recorder_phase, METH_FASTCALL | METH_KEYWORDS,
     "phase($self, name, io=False, sync=False, sample=1.0, async_work=False)\n--\n\n"
     "A region of the program: `with profiler.phase(\"step\"):`, or a decorator.\n\n"
     "io=True reads the process's byte counters (/proc/self/io) at both ends, io=\"thread\" those of the thread; "
     "sync=True waits\n"
     "for the GPU at both ends; sample=1/n measures every n-th entry with all below it and scales; async_work=True "
     "marks the\n"
     "time as submission time. ValueError for a rate outside (0, 1], TypeError for a name that is no str."},
    {"count", (PyCFunction)(void (*)(void))recorder_count, METH_FASTCALL | METH_KEYWORDS,
     "count($self, name, n=1)\n--\n\nAdds the integer n to a counter of the innermost open phase of this task or "
     "thread.\n\n"
     "TypeError for floats and texts, OverflowError beyond 64 bits."},
    {"current_phase", recorder_current, METH_NOARGS,
     "current_phase($self)\n--\n\nThe caller's innermost open phase as \"a/b/c\", \"\" if none."},
    {"io_counters", recorder_io, METH_NOARGS, NULL},
    {"_open", recorder_open, METH_O, NULL},
    {"_close", recorder_close, METH_NOARGS, NULL},
    {"_snapshot", recorder_snapshot, METH_NOARGS, NULL},
    {"_worker", recorder_worker, METH_NOARGS, NULL},
    {"_note_callback_failure", recorder_callback_failed, METH_NOARGS, NULL},
    {"_note_asked", recorder_asked, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef recorder_getset[] = {
    {"_recording", get_recording, NULL, NULL, NULL},
    {"_enabled", get_enabled, NULL, NULL, NULL},
    {"_entered_while_off", get_entered_while_off, NULL, NULL, NULL},
    {"_last_error", get_last_error, NULL, NULL, NULL},
    {"_segment_path", get_segment, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMemberDef recorder_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RecorderObject, weak), LPY_VECTORCALL_MEMBER, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot recorder_slots[] = {
    {Py_tp_doc, "Records phases and counters of this process. Use lineprofiler.accounting.Profiler."},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_getset},
    {Py_tp_members, recorder_members},
    {Py_tp_traverse, recorder_traverse},
    {Py_tp_dealloc, recorder_dealloc},
    {0, NULL},
};
static PyType_Spec recorder_spec = {"lineprofiler._lineprofiler.Recorder", sizeof(RecorderObject), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, recorder_slots};

int lpy_recorder_init(PyObject *module)
{
    lpy.recorder_type = (PyTypeObject *)PyType_FromSpec(&recorder_spec);
    (void)module;
    return lpy.recorder_type ? 0 : -1;
}
