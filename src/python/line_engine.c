/* LineEngine: which code objects are measured, when, and what came out. How events come is the back end's (line.h). */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "python/line.h"

static LineEngine *self_of(PyObject *self)
{
    return (LineEngine *)self;
}

void lpy_line_note(LineEngine *engine, const char *format, ...)
{
    char text[512];
    va_list arguments;
    PyObject *type, *value, *traceback;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *line = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    int there = line ? PySequence_Contains(engine->trouble, line) : 1;
    if (there == 0)
        PyList_Append(engine->trouble, line);
    Py_XDECREF(line);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* ---- turns ----------------------------------------------------------------------------------------------------------- */

#define LONGEST_WAIT 10000 /* pauses of half a millisecond: a calibration takes some tens of them */

static bool is_anothers(const lpy_turn *turn, unsigned long thread)
{
    return thread && thread != PyThread_get_thread_ident() && turn->process == getpid();
}

bool lpy_turn_is_mine(const lpy_turn *turn)
{
    return turn->thread == PyThread_get_thread_ident() && turn->process == getpid();
}

/* Not for ever: the other one may run a finaliser that waits for what the calling thread holds. */
bool lpy_turn_wait(const lpy_turn *turn)
{
    const struct timespec pause = {.tv_nsec = 500000};
    int saved = errno;

    for (int i = 0; i < LONGEST_WAIT && is_anothers(turn, turn->thread); i++) {
        Py_BEGIN_ALLOW_THREADS nanosleep(&pause, NULL);
        Py_END_ALLOW_THREADS
    }
    errno = saved;
    return !is_anothers(turn, turn->thread);
}

bool lpy_turn_take(lpy_turn *turn)
{
    unsigned long before;

    do {
        if (!lpy_turn_wait(turn))
            return false;
        before = turn->thread; /* 0, or of a thread that a fork left behind */
    } while (is_anothers(turn, before) ||
             !atomic_compare_exchange_strong(&turn->thread, &before, PyThread_get_thread_ident()));
    turn->process = getpid();
    return true;
}

void lpy_turn_give(lpy_turn *turn)
{
    turn->thread = 0;
}

bool lpy_line_interrupted(void)
{
    return PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_MemoryError) &&
           !PyErr_ExceptionMatches(PyExc_RecursionError);
}

/* ---- hooks of the core ----------------------------------------------------------------------------------------------- */

/* From threading's table of its threads: no code of the program's runs. */
static size_t thread_name(void *user, char *name, size_t size)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *threading = modules ? PyDict_GetItemString(modules, "threading") : NULL;
    PyObject *type, *value, *traceback;
    size_t length = 0;

    (void)user;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *active = threading ? PyObject_GetAttrString(threading, "_active") : NULL;
    PyObject *ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    PyObject *thread = active && ident && PyDict_Check(active) ? PyDict_GetItemWithError(active, ident) : NULL;
    PyObject *text = thread ? PyObject_GetAttrString(thread, "_name") : NULL;
    PyObject *bytes =
        text && PyUnicode_Check(text) ? PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape") : NULL;
    if (bytes) {
        length = (size_t)PyBytes_Size(bytes);
        length = length < size ? length : size;
        memcpy(name, PyBytes_AsString(bytes), length);
        while (length > 0 && length < (size_t)PyBytes_Size(bytes) && (PyBytes_AsString(bytes)[length] & 0xc0) == 0x80)
            length--; /* to the beginning of a character */
    } else {
        length = (size_t)snprintf(name, size, "%s", threading ? "thread" : "MainThread");
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(ident);
    Py_XDECREF(active);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return length;
}

/* ---- code objects ---------------------------------------------------------------------------------------------------- */

/* Code objects that `select` refused, by address and what the answer depends on: a start after a stop asks nobody twice. An address
 * that another code object of the same name, file and line has got meanwhile gets the same answer. */
struct lpy_line_refused {
    atomic_flag lock;
    uint32_t count, room;
    struct {
        const void *code;
        uint64_t mix;
    } *at;
};

static uint64_t mix_of(PyObject *code)
{
    PyCodeObject *c = (PyCodeObject *)code;
    uint64_t mix = (uint64_t)(uintptr_t)c->co_filename * 0x9e3779b97f4a7c15ull;
    mix ^= (uint64_t)(uintptr_t)lpy_code_name(code) * 0xc2b2ae3d27d4eb4full;
    return mix + (uint64_t)(uint32_t)c->co_firstlineno;
}

static uint32_t slot_of(const struct lpy_line_refused *refused, const void *code)
{
    uint64_t hash = (uint64_t)(uintptr_t)code * 0x9e3779b97f4a7c15ull >> 32;
    uint32_t i = (uint32_t)hash & (refused->room - 1);

    while (refused->at[i].code && refused->at[i].code != code)
        i = (i + 1) & (refused->room - 1);
    return i;
}

static bool is_refused(LineEngine *engine, PyObject *code)
{
    struct lpy_line_refused *refused = engine->refused;
    bool found = false;

    while (atomic_flag_test_and_set_explicit(&refused->lock, memory_order_acquire))
        ;
    if (refused->room) {
        uint32_t i = slot_of(refused, code);
        found = refused->at[i].code && refused->at[i].mix == mix_of(code);
    }
    atomic_flag_clear_explicit(&refused->lock, memory_order_release);
    return found;
}

static void refuse(LineEngine *engine, PyObject *code)
{
    struct lpy_line_refused *refused = engine->refused;

    while (atomic_flag_test_and_set_explicit(&refused->lock, memory_order_acquire))
        ;
    if (2 * refused->count >= refused->room) {
        struct lpy_line_refused grown = {.room = refused->room ? 2 * refused->room : 1024};
        grown.at = calloc(grown.room, sizeof *grown.at);
        if (grown.at) {
            for (uint32_t i = 0; i < refused->room; i++)
                if (refused->at[i].code)
                    grown.at[slot_of(&grown, refused->at[i].code)] = refused->at[i];
            free(refused->at);
            refused->at = grown.at;
            refused->room = grown.room;
        }
    }
    if (2 * refused->count < refused->room) {
        uint32_t i = slot_of(refused, code);
        refused->count += refused->at[i].code == NULL;
        refused->at[i].code = code;
        refused->at[i].mix = mix_of(code);
    }
    atomic_flag_clear_explicit(&refused->lock, memory_order_release);
}

lp_line_code *lpy_line_code(LineEngine *engine, PyObject *code)
{
    lp_line_code read, *made = lp_lines_code(engine->core, code);

    if (made)
        return made;
    if (engine->backend && engine->backend->traces && !engine->calibrating) {
        lpy_line_cost(engine->backend, NULL); /* prices for the weights */
        if (PyErr_Occurred())
            return NULL;
    }
    if (lpy_line_code_read(engine->backend, code, &read) == 0) {
        LPY_BEGIN_CRITICAL(engine->codes);
        made = lp_lines_code(engine->core, code);
        uint32_t before = lp_lines_code_count(engine->core);
        if (!made && PyList_Append(engine->codes, code) == 0) {
            made = lp_lines_code_add(engine->core, &read);
            if (!made)
                PyList_SetSlice(engine->codes, (Py_ssize_t)before, (Py_ssize_t)before + 1, NULL);
        }
        LPY_END_CRITICAL();
        lpy_line_code_free(&read);
    }
    PyErr_Clear();
    return made;
}

/* What `select` raised goes into `trouble`. */
static void note_raised(LineEngine *engine)
{
    PyObject *kind, *error, *trace;

    PyErr_Fetch(&kind, &error, &trace);
    PyObject *text = error ? PyObject_Str(error) : NULL;
    const char *shown = text ? PyUnicode_AsUTF8(text) : NULL;
    lpy_line_note(engine, "select() raised %s: %s", kind ? ((PyTypeObject *)kind)->tp_name : "nothing",
                  shown ? shown : "");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    Py_XDECREF(trace);
}

/* The answer, where the code was not known; armed if it is to be measured. The program may have stopped the engine meanwhile. */
static lp_line_code *settle(LineEngine *engine, PyObject *code, int wanted)
{
    lp_line_code *made = lp_lines_code(engine->core, code); /* it may have come from another thread */

    if (!made && wanted > 0) {
        made = lpy_line_code(engine, code);
        if (!made)
            lpy_line_note(engine, "no memory for the lines of a function");
        else
            engine->backend->arm(engine, code, true);
    } else if (!made) {
        refuse(engine, code);
    }
    return made && made->marked ? made : NULL;
}

lp_line_code *lpy_line_discover(LineEngine *engine, PyObject *code)
{
    lp_line_code *made = lp_lines_code(engine->core, code);
    PyObject *type, *value, *traceback;

    if (made)
        return made->marked ? made : NULL;
    if (!engine->select || is_refused(engine, code))
        return NULL;
    PyErr_Fetch(&type, &value, &traceback);
    Py_INCREF(engine); /* `select` may let go of the last reference, and another thread while it runs */
    PyObject *answer = PyObject_CallOneArg(engine->select, code);
    int wanted = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (wanted < 0 && !PyErr_ExceptionMatches(PyExc_Exception) && !type) {
        Py_DECREF(engine); /* not of `select`: a signal's handler ran in it */
        return NULL;
    }
    if (wanted < 0)
        note_raised(engine);
    made = settle(engine, code, wanted);
    Py_DECREF(engine);
    PyErr_Restore(type, value, traceback);
    return made;
}

int lpy_line_discover_stacks(LineEngine *engine)
{
    PyObject *frames_of = PySys_GetObject("_current_frames"); /* borrowed */
    PyObject *frames = frames_of ? PyObject_CallNoArgs(frames_of) : NULL;
    PyObject *key, *frame;
    Py_ssize_t at = 0;
    bool interrupted = false;

    if (!frames)
        PyErr_Clear();
    while (!interrupted && frames && PyDict_Check(frames) && PyDict_Next(frames, &at, &key, &frame)) {
        PyFrameObject *f = (PyFrameObject *)Py_NewRef(frame);
        while (f) {
            PyCodeObject *code = PyFrame_GetCode(f);
            lpy_line_discover(engine, (PyObject *)code);
            Py_DECREF(code);
            interrupted = PyErr_Occurred() != NULL;
            PyFrameObject *back = interrupted ? NULL : PyFrame_GetBack(f);
            Py_DECREF(f);
            f = back;
        }
    }
    Py_XDECREF(frames);
    return interrupted ? -1 : 0;
}

/* ---- methods --------------------------------------------------------------------------------------------------------- */

static bool is_code(PyObject *object)
{
    if (PyCode_Check(object))
        return true;
    PyErr_Format(PyExc_TypeError, "a code object, not %.100s", Py_TYPE(object)->tp_name);
    return false;
}

static PyObject *engine_mark(PyObject *self, PyObject *code)
{
    LineEngine *engine = self_of(self);

    if (!is_code(code))
        return NULL;
    lp_line_code *made = lpy_line_code(engine, code);
    if (!made)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    made->marked = 1;
    if (engine->active)
        engine->backend->arm(engine, code, true);
    return PyLong_FromUnsignedLong(made->index);
}

static PyObject *engine_unmark(PyObject *self, PyObject *code)
{
    LineEngine *engine = self_of(self);

    if (!is_code(code))
        return NULL;
    lp_line_code *made = lp_lines_code(engine->core, code);
    if (made && made->marked) {
        made->marked = 0;
        if (engine->active)
            engine->backend->arm(engine, code, false);
        lp_lines_unmark(engine->core, made);
    }
    Py_RETURN_NONE;
}

/* -1 with an exception: a signal's handler raised it meanwhile, and nothing has begun. */
static int begin(LineEngine *engine)
{
    lp_line_cost cost = {0};

    if (!engine->backend) {
        lpy_line_note(engine, "no back end for this Python");
        return 0;
    }
    if (!engine->calibrating) {
        if (lpy_line_cost(engine->backend, &cost) != 0) {
            if (PyErr_Occurred())
                return -1;
            lpy_line_note(engine, "what an event costs could not be measured: nothing is taken off");
        }
        lp_lines_set_cost(engine->core, &cost);
    }
    lp_lines_set_on(engine->core, true);
    if (!engine->core->on)
        lpy_line_note(engine, "no memory to count in");
    else if (engine->backend->start(engine) == 0)
        engine->active = true;
    if (!engine->active)
        lp_lines_set_on(engine->core, false);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *engine_start(PyObject *self, PyObject *unused)
{
    LineEngine *engine = self_of(self);
    int rc = 0;

    (void)unused;
    LPY_BEGIN_CRITICAL(self);
    if (engine->count++ == 0) {
        bool mine = lpy_turn_take(&engine->starting);
        rc = begin(engine);
        if (mine)
            lpy_turn_give(&engine->starting);
        if (rc != 0)
            engine->count--;
    } else {
        lpy_turn_wait(&engine->starting);
    }
    LPY_END_CRITICAL();
    if (rc != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *engine_stop(PyObject *self, PyObject *unused)
{
    LineEngine *engine = self_of(self);

    (void)unused;
    LPY_BEGIN_CRITICAL(self);
    if (engine->count > 0 && --engine->count == 0 && engine->active) {
        engine->active = false;
        lp_lines_set_on(engine->core, false);
        engine->backend->stop(engine);
    }
    LPY_END_CRITICAL();
    Py_RETURN_NONE;
}

static PyObject *engine_share(PyObject *self, PyObject *folder)
{
    LineEngine *engine = self_of(self);
    PyObject *bytes = NULL;

    if (!PyUnicode_FSConverter(folder, &bytes))
        return NULL;
    char *copy = strdup(PyBytes_AsString(bytes));
    Py_DECREF(bytes);
    if (!copy)
        return PyErr_NoMemory();
    if (engine->core->begun) {
        free(copy);
        PyErr_SetString(PyExc_RuntimeError, "share() comes before the first start()");
        return NULL;
    }
    free(engine->folder);
    engine->folder = copy;
    Py_RETURN_NONE;
}

static PyObject *engine_codes(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyList_GetSlice(self_of(self)->codes, 0, PY_SSIZE_T_MAX);
}

static PyObject *engine_lines(PyObject *self, PyObject *args)
{
    PyObject *code = Py_None;

    if (!PyArg_ParseTuple(args, "|O:lines", &code))
        return NULL;
    if (code == Py_None)
        return lpy_line_rows(self_of(self), -1);
    Py_ssize_t index = PyNumber_AsSsize_t(code, PyExc_OverflowError);
    if (index == -1 && PyErr_Occurred())
        return NULL;
    if (index < 0 || (size_t)index >= lp_lines_code_count(self_of(self)->core)) {
        PyErr_Format(PyExc_IndexError, "no code object has the index %zd", index);
        return NULL;
    }
    return lpy_line_rows(self_of(self), index);
}

static PyObject *engine_functions(PyObject *self, PyObject *unused)
{
    (void)unused;
    return lpy_line_functions(self_of(self));
}

static PyObject *engine_threads(PyObject *self, PyObject *unused)
{
    (void)unused;
    return lpy_line_threads(self_of(self));
}

static PyObject *engine_regions(PyObject *self, PyObject *unused)
{
    (void)unused;
    return lpy_line_regions(self_of(self));
}

static PyObject *engine_clear(PyObject *self, PyObject *unused)
{
    (void)unused;
    lp_lines_clear(self_of(self)->core);
    Py_RETURN_NONE;
}

static PyObject *engine_region_enter(PyObject *self, PyObject *name)
{
    uint64_t now = lp_ticks();
    LineEngine *engine = self_of(self);
    uint32_t number = UINT32_MAX;

    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "the name of a region is a str, not %.100s", Py_TYPE(name)->tp_name);
        return NULL;
    }
    PyObject *known = PyDict_GetItemWithError(engine->regions, name); /* borrowed */
    if (known) {
        number = (uint32_t)PyLong_AsUnsignedLong(known);
    } else if (!PyErr_Occurred()) {
        PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "surrogatepass");
        if (bytes)
            number = lp_lines_name(engine->core, PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
        known = bytes && number != UINT32_MAX ? PyLong_FromUnsignedLong(number) : NULL;
        if (known)
            PyDict_SetItem(engine->regions, name, known);
        Py_XDECREF(known);
        Py_XDECREF(bytes);
    }
    if (PyErr_Occurred())
        return NULL;
    if (number == UINT32_MAX || !lp_lines_region_enter(engine->core, number, now))
        lpy_line_note(engine, "no memory for a region");
    Py_RETURN_NONE;
}

static PyObject *engine_region_leave(PyObject *self, PyObject *args)
{
    uint64_t now = lp_ticks();
    LineEngine *engine = self_of(self);
    PyObject *name = NULL;

    if (!PyArg_ParseTuple(args, "|O:region_leave", &name))
        return NULL;
    name = name != Py_None ? name : NULL;
    PyObject *known = name ? PyDict_GetItemWithError(engine->regions, name) : NULL; /* borrowed */
    if (PyErr_Occurred())
        return NULL;
    uint32_t number = known ? (uint32_t)PyLong_AsUnsignedLong(known) : UINT32_MAX;
    if ((name && !known) || !lp_lines_region_leave(engine->core, number, now))
        lpy_line_note(engine, "a region was left that this thread had not entered");
    Py_RETURN_NONE;
}

static PyObject *get_backend(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(self_of(self)->backend ? self_of(self)->backend->name : "none");
}

static PyObject *get_segment(PyObject *self, void *unused)
{
    lp_lines *core = self_of(self)->core;

    (void)unused;
    return PyUnicode_DecodeFSDefault(core->begun && !lp_lines_forked(core) ? core->segment.path : "");
}

static PyObject *get_own_cost(PyObject *self, void *unused)
{
    (void)unused;
    return lpy_line_cost_dict(self_of(self)->backend);
}

static PyObject *get_trouble(PyObject *self, void *unused)
{
    LineEngine *engine = self_of(self);
    lp_line_health *health = &engine->core->health;
    unsigned long long lost = atomic_load(&health->lost_events), frames = atomic_load(&health->lost_frames),
                       waits = atomic_load(&health->suspended_lost);

    (void)unused;
    PyObject *list = PyList_GetSlice(engine->trouble, 0, PY_SSIZE_T_MAX);
    PyObject *more[3] = {
        lost ? PyUnicode_FromFormat("%llu events were not counted: no memory", lost) : NULL,
        frames ? PyUnicode_FromFormat("%llu calls ended without an event: the time of their last lines is not counted",
                                      frames)
               : NULL,
        waits ? PyUnicode_FromFormat("%llu suspensions were not timed: no memory", waits) : NULL,
    };
    for (int i = 0; i < 3; i++) {
        if (list && more[i])
            PyList_Append(list, more[i]);
        Py_XDECREF(more[i]);
    }
    return list;
}

/* ---- the type -------------------------------------------------------------------------------------------------------- */

static const lpy_line_backend *const backends[] = {
#if LPY_MONITORING
    &lpy_line_monitoring,
#endif
#if LPY_FRAME_TRACING
    &lpy_line_trace,
#endif
    NULL,
};

static PyObject *engine_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"select", "backend", NULL};
    PyObject *select = Py_None;
    const char *wanted = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$Oz:LineEngine", names, &select, &wanted))
        return NULL;
    if (select != Py_None && !PyCallable_Check(select)) {
        PyErr_SetString(PyExc_TypeError, "select is callable or None");
        return NULL;
    }
    const lpy_line_backend *backend = NULL;
    for (size_t i = 0; i < sizeof backends / sizeof *backends && !backend; i++)
        if (backends[i] && (!wanted || strcmp(wanted, backends[i]->name) == 0))
            backend = backends[i];
    if (wanted && !backend)
        return PyErr_Format(PyExc_ValueError, "no back end %s in this Python", wanted);
    LineEngine *engine = (LineEngine *)type->tp_alloc(type, 0);
    if (!engine)
        return NULL;
    lp_line_hooks hooks = {.user = engine, .open = lpy_line_open, .thread_name = thread_name};
    engine->select = select != Py_None ? Py_NewRef(select) : NULL;
    engine->codes = PyList_New(0);
    engine->trouble = PyList_New(0);
    engine->regions = PyDict_New();
    engine->refused = calloc(1, sizeof *engine->refused);
    engine->core = lp_lines_new(&hooks, LPY_LINE_CONCURRENT);
    engine->backend = backend;
    if (!engine->codes || !engine->trouble || !engine->regions || !engine->refused || !engine->core) {
        Py_DECREF(engine);
        return PyErr_NoMemory();
    }
    atomic_flag_clear(&engine->refused->lock);
    return (PyObject *)engine;
}

static int engine_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self_of(self)->select);
    Py_VISIT(self_of(self)->codes);
    return 0;
}

static int engine_clear_references(PyObject *self)
{
    Py_CLEAR(self_of(self)->select);
    return 0;
}

static void engine_dealloc(PyObject *self)
{
    LineEngine *engine = self_of(self);
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    if (engine->active && engine->core) {
        engine->active = false;
        lp_lines_set_on(engine->core, false);
        engine->backend->stop(engine);
    }
    if (engine->backend && engine->state)
        engine->backend->release(engine);
    if (engine->core)
        lp_lines_free(engine->core);
    if (engine->refused)
        free(engine->refused->at);
    free(engine->refused);
    free(engine->folder);
    Py_XDECREF(engine->select);
    Py_XDECREF(engine->codes); /* after the core, which goes by their addresses */
    Py_XDECREF(engine->trouble);
    Py_XDECREF(engine->regions);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef engine_methods[] = {
    {"mark", engine_mark, METH_O,
     "mark($self, code, /)\n--\n\nMeasures this code object; its index. The same object has the same index."},
    {"unmark", engine_unmark, METH_O, "unmark($self, code, /)\n--\n\nMeasures it no more; its figures stay."},
    {"start", engine_start, METH_NOARGS, "start($self)\n--\n\nCounted: measures until as many stop()."},
    {"stop", engine_stop, METH_NOARGS, "stop($self)\n--\n\nTakes back one start()."},
    {"share", engine_share, METH_O,
     "share($self, folder, /)\n--\n\nFigures of this process and of forked children lie in files of this private "
     "folder."},
    {"codes", engine_codes, METH_NOARGS, "codes($self)\n--\n\nAll code objects seen, by index."},
    {"lines", engine_lines, METH_VARARGS, "lines($self, code=None)\n--\n\nFigures of lines, now."},
    {"functions", engine_functions, METH_NOARGS, "functions($self)\n--\n\nFigures of code objects, now."},
    {"threads", engine_threads, METH_NOARGS, "threads($self)\n--\n\nNumbers and names of threads."},
    {"regions", engine_regions, METH_NOARGS, "regions($self)\n--\n\nFigures of regions, now."},
    {"region_enter", engine_region_enter, METH_O,
     "region_enter($self, name, /)\n--\n\nBegins a region of this thread."},
    {"region_leave", engine_region_leave, METH_VARARGS,
     "region_leave($self, name=None, /)\n--\n\nEnds the innermost one of this name; without one, of any."},
    {"clear", engine_clear, METH_NOARGS, "clear($self)\n--\n\nAll figures to zero; marks stay."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef engine_members[] = {
    {"count", T_PYSSIZET, offsetof(LineEngine, count), READONLY, "start() less stop()."},
    {"active", T_BOOL, offsetof(LineEngine, active), READONLY, "Events flow."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef engine_getset[] = {
    {"backend", get_backend, NULL, "How events come: 'monitoring' or 'settrace'.", NULL},
    {"own_cost", get_own_cost, NULL, "ns an event of each class, as taken off, and their errors.", NULL},
    {"segment", get_segment, NULL, "The file that this process's figures lie in; empty if there is none.", NULL},
    {"trouble", get_trouble, NULL, "What could not be measured, in sentences.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot engine_slots[] = {
    {Py_tp_doc, "Counts and times the lines of code objects."},
    {Py_tp_new, engine_new},
    {Py_tp_dealloc, engine_dealloc},
    {Py_tp_traverse, engine_traverse},
    {Py_tp_clear, engine_clear_references},
    {Py_tp_methods, engine_methods},
    {Py_tp_members, engine_members},
    {Py_tp_getset, engine_getset},
    {0, NULL},
};
static PyType_Spec engine_spec = {"lineprofiler._lineprofiler.LineEngine", sizeof(LineEngine), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, engine_slots};

int lpy_line_init(PyObject *module)
{
    if (!lpy.line_engine_type)
        lpy.line_engine_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &engine_spec, NULL);
    if (!lpy.line_engine_type)
        return -1;
    return PyModule_AddObjectRef(module, "LineEngine", (PyObject *)lpy.line_engine_type);
}
