/* The line engine by sys.monitoring (3.12 and later).
 *
 * Local events on the code objects that are measured: all other code pays nothing, except that PY_UNWIND and PY_THROW are
 * refused as local events up to 3.14 and then are global, filtered here. PY_START is asked for with LINE always: without
 * it 3.13 sends no LINE event for code of one line. With `select`, PY_START and PY_RESUME are global, too, and answer
 * DISABLE for code that is not measured: each function of the process costs once.
 *
 * Tool ids 3 and 4 belong to nobody; then any free one, never another tool's. Local events are taken off before the id is
 * given back: a later tool would receive them. restart_events() is not ours to call. No callback raises.
 *
 * The callbacks are objects with a vectorcall of their own: a built-in function's costs two checks more. */
#include "python/line.h"

#if LPY_MONITORING

typedef PyObject *callback_function(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);

typedef struct Callback {
    PyObject_HEAD vectorcallfunc call;
    LineEngine *engine; /* owned */
    lp_lines *core;     /* its */
} Callback;

enum { LINE, START, RESUME, RETURN, YIELD, UNWIND, THROW, EVENTS };
static const char *const names[EVENTS] = {"LINE",     "PY_START",  "PY_RESUME", "PY_RETURN",
                                          "PY_YIELD", "PY_UNWIND", "PY_THROW"};

static struct { /* of sys.monitoring; owned, for ever */
    PyObject *use, *free, *get, *set, *set_local, *get_local, *subscribe, *disable;
    int bit[EVENTS];
    int local; /* events that set_local_events takes */
    bool known;
    bool sees_instructions; /* the frame tells the instruction of a line event */
} mon;

static PyTypeObject *callback_type;

typedef struct state {
    int tool; /* -1 none */
} state;

/* ---- the hot path ---------------------------------------------------------------------------------------------------- */

static inline Callback *callback_of(PyObject *self)
{
    return (Callback *)self;
}

static inline const void *context_of(PyThreadState *tstate)
{
    PyObject *context = lpy_context_of(tstate);
    return LP_LIKELY(context != NULL) ? context : lpy_context_make(tstate);
}

static int number_of(PyObject *number)
{
    int64_t value = -1;
    return lpy_small_int(number, &value) ? (int)value : -1;
}

static __attribute__((noinline)) void line_slow(lp_line_thread *th, PyThreadState *tstate, const void *frame,
                                                PyObject *const *args, size_t at, uint64_t now)
{
    lp_lines_line_slow(th, frame, args[0], context_of(tstate), at, number_of(args[1]), now);
}

static PyObject *on_line(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    lp_line_thread *th = lp_lines_enter(callback_of(self)->core, LPY_LINE_CONCURRENT);

    (void)nargsf;
    (void)kwnames;
    if (LP_LIKELY(th != NULL)) {
        PyThreadState *tstate = lpy_thread_state();
        const void *frame = lpy_frame_of(tstate);
        uint64_t now = lp_lines_line_ticks(th, frame, args[0]);
        size_t at = (size_t)(lpy_frame_instruction(frame) - lpy_code_start(args[0]));
        if (LP_UNLIKELY(!lp_lines_line(th, frame, args[0], at, now)))
            line_slow(th, tstate, frame, args, mon.sees_instructions ? at : SIZE_MAX, now);
        lp_lines_exit(th, LPY_LINE_CONCURRENT);
    }
    Py_RETURN_NONE;
}

/* For interpreters whose frames do not tell: by the number of the line. */
static PyObject *on_line_by_number(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    uint64_t now = lp_ticks();
    lp_line_thread *th = lp_lines_enter(callback_of(self)->core, LPY_LINE_CONCURRENT);

    (void)nargsf;
    (void)kwnames;
    if (LP_LIKELY(th != NULL)) {
        PyThreadState *tstate = lpy_thread_state();
        line_slow(th, tstate, lpy_frame_of(tstate), args, SIZE_MAX, now);
        lp_lines_exit(th, LPY_LINE_CONCURRENT);
    }
    Py_RETURN_NONE;
}

static PyObject *answer(const Callback *callback, const lp_line_code *code)
{
    /* Its own events come by `local`: DISABLE here is only for code that `select` refuses. */
    return Py_NewRef(!code && callback->engine->select ? mon.disable : Py_None);
}

static void called(Callback *callback, lp_line_code *code, uint64_t now)
{
    PyThreadState *tstate = lpy_thread_state();
    const void *context = context_of(tstate);
    lp_line_thread *th = lp_lines_enter_call(callback->core, LPY_LINE_CONCURRENT, &now);

    if (LP_LIKELY(th != NULL)) {
        lp_lines_call(th, code, lpy_frame_of(tstate), context, now);
        lp_lines_exit(th, LPY_LINE_CONCURRENT);
    }
}

static void resumed(Callback *callback, lp_line_code *code, PyObject *at, uint64_t now)
{
    PyThreadState *tstate = lpy_thread_state();
    const void *context = context_of(tstate);
    lp_line_thread *th = lp_lines_enter_call(callback->core, LPY_LINE_CONCURRENT, &now);

    if (LP_LIKELY(th != NULL)) {
        lp_lines_resume(th, code, lpy_frame_of(tstate), context, (size_t)number_of(at), now);
        lp_lines_exit(th, LPY_LINE_CONCURRENT);
    }
}

/* Code that the engine has not seen: never again here, unless it is to be measured. Runs Python, so outside the door; the program
 * may stop the engine meanwhile, and the interpreter holds no reference to the callback that it calls. */
static __attribute__((noinline)) PyObject *discover(Callback *callback, PyObject *const *args, bool resumes)
{
    PyObject *result = NULL;

    Py_INCREF(callback);
    lp_line_code *code = callback->engine->active ? lpy_line_discover(callback->engine, args[0]) : NULL;
    if (code && resumes)
        resumed(callback, code, args[1], lp_ticks());
    else if (code)
        called(callback, code, lp_ticks());
    if (!PyErr_Occurred())
        result = answer(callback, code);
    Py_DECREF(callback);
    return result;
}

static PyObject *on_start(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    uint64_t now = lp_ticks();
    Callback *callback = callback_of(self);
    lp_line_code *code = lp_lines_code(callback->core, args[0]);

    (void)nargsf;
    (void)kwnames;
    if (LP_UNLIKELY(!code || !code->marked))
        return discover(callback, args, false);
    called(callback, code, now);
    Py_RETURN_NONE;
}

static PyObject *on_resume(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    uint64_t now = lp_ticks();
    Callback *callback = callback_of(self);
    lp_line_code *code = lp_lines_code(callback->core, args[0]);

    (void)nargsf;
    (void)kwnames;
    if (LP_UNLIKELY(!code || !code->marked))
        return discover(callback, args, true);
    resumed(callback, code, args[1], now);
    Py_RETURN_NONE;
}

/* An exception enters a suspended frame. Cannot be disabled where it is global. */
static PyObject *on_throw(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    uint64_t now = lp_ticks();
    Callback *callback = callback_of(self);
    lp_line_code *code = lp_lines_code(callback->core, args[0]);

    (void)nargsf;
    (void)kwnames;
    if (code && code->marked)
        resumed(callback, code, args[1], now);
    Py_RETURN_NONE;
}

static PyObject *on_return(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    uint64_t now = lp_ticks();
    lp_line_thread *th = lp_lines_enter(callback_of(self)->core, LPY_LINE_CONCURRENT);

    (void)nargsf;
    (void)kwnames;
    if (LP_LIKELY(th != NULL)) {
        PyThreadState *tstate = lpy_thread_state();
        lp_lines_leave(th, lpy_frame_of(tstate), args[0], lpy_context_of(tstate), now);
        lp_lines_exit(th, LPY_LINE_CONCURRENT);
    }
    Py_RETURN_NONE;
}

static PyObject *on_yield(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    uint64_t now = lp_ticks();
    lp_line_thread *th = lp_lines_enter(callback_of(self)->core, LPY_LINE_CONCURRENT);

    (void)nargsf;
    (void)kwnames;
    if (LP_LIKELY(th != NULL)) {
        PyThreadState *tstate = lpy_thread_state();
        lp_lines_yield(th, lpy_frame_of(tstate), args[0], lpy_context_of(tstate), now);
        lp_lines_exit(th, LPY_LINE_CONCURRENT);
    }
    Py_RETURN_NONE;
}

/* Of all code of the process where it is global: the frames that are not ours must leave here at once. */
static PyObject *on_unwind(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    uint64_t now = lp_ticks();
    lp_lines *core = callback_of(self)->core;

    (void)nargsf;
    (void)kwnames;
    if (lp_lines_code(core, args[0])) {
        lp_line_thread *th = lp_lines_enter(core, LPY_LINE_CONCURRENT);
        if (LP_LIKELY(th != NULL)) {
            PyThreadState *tstate = lpy_thread_state();
            lp_lines_leave(th, lpy_frame_of(tstate), args[0], lpy_context_of(tstate), now);
            lp_lines_exit(th, LPY_LINE_CONCURRENT);
        }
    }
    Py_RETURN_NONE;
}

static callback_function *const functions[EVENTS] = {on_line,  on_start,  on_resume, on_return,
                                                     on_yield, on_unwind, on_throw};

/* ---- the callbacks' type --------------------------------------------------------------------------------------------- */

static int callback_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(callback_of(self)->engine);
    return 0;
}

static void callback_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Py_XDECREF(callback_of(self)->engine);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef callback_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callback, call), LPY_VECTORCALL_MEMBER, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot callback_slots[] = {
    {Py_tp_dealloc, callback_dealloc},
    {Py_tp_traverse, callback_traverse},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, callback_members},
    {0, NULL},
};
static PyType_Spec callback_spec = {"lineprofiler._lineprofiler.LineCallback", sizeof(Callback), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                        Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                    callback_slots};

static PyObject *callback_new(LineEngine *engine, callback_function *function)
{
    Callback *callback = (Callback *)callback_type->tp_alloc(callback_type, 0);

    if (callback) {
        callback->call = function;
        callback->engine = (LineEngine *)Py_NewRef(engine);
        callback->core = engine->core;
    }
    return (PyObject *)callback;
}

/* ---- what sys.monitoring is here ------------------------------------------------------------------------------------- */

static bool done(PyObject *result)
{
    if (!result)
        PyErr_Clear();
    Py_XDECREF(result);
    return result != NULL;
}

static bool set_local(int tool, PyObject *code, int events)
{
    PyObject *args[] = {PyLong_FromLong(tool), code, PyLong_FromLong(events)};
    bool good = args[0] && args[2] && done(PyObject_Vectorcall(mon.set_local, args, 3, NULL));

    PyErr_Clear();
    Py_XDECREF(args[0]);
    Py_XDECREF(args[2]);
    return good;
}

static bool subscribe(int tool, int event, PyObject *callback)
{
    return done(PyObject_CallFunction(mon.subscribe, "iiO", tool, mon.bit[event], callback));
}

static int take_tool(void)
{
    static const int order[] = {3, 4, 5, 1, 0, 2};

    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (done(PyObject_CallFunction(mon.use, "is", order[i], "lineprofiler")))
            return order[i];
    return -1;
}

/* A tool that looks whether frames tell their instruction: the line of the instruction must be the line of the event. */
static PyObject *on_line_check(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const void *frame = lpy_frame_of(lpy_thread_state());
    ptrdiff_t at = frame ? lpy_frame_instruction(frame) - lpy_code_start(args[0]) : -1;
    int line = number_of(args[1]);

    (void)self;
    (void)nargsf;
    (void)kwnames;
    static int good; /* of the calls in a row */
    if (line == 1)   /* of the sample's `def` line: counts begin */
        good = 0;
    if (at >= 0 && at % 2 == 0 && at < 1 << 16 && PyCode_Addr2Line((PyCodeObject *)args[0], (int)at) == line)
        good++;
    else
        good = -100;
    mon.sees_instructions = good >= 4;
    Py_RETURN_NONE;
}

/* false: a signal's handler raised meanwhile, and nothing is known. */
static bool try_out(LineEngine *engine, int tool)
{
    static const char sample[] = "a = [1, 2]\n"
                                 "for b in a:\n"
                                 "    c = b\n"
                                 "d = (a,\n"
                                 "     b)\n";
    PyObject *code = Py_CompileString(sample, "<lineprofiler>", Py_file_input), *globals = PyDict_New();
    PyObject *type, *value, *traceback;
    bool interrupted = false;

    if (code && globals) {
        for (int event = UNWIND; event <= THROW; event++)
            if (set_local(tool, code, mon.bit[event]))
                mon.local |= mon.bit[event];
        PyObject *check = callback_new(engine, on_line_check), *result = NULL;
        if (check && subscribe(tool, LINE, check) && set_local(tool, code, mon.bit[LINE] | mon.bit[START])) {
            result = PyEval_EvalCode(code, globals, globals);
            interrupted = lpy_line_interrupted();
        }
        PyErr_Fetch(&type, &value, &traceback);
        set_local(tool, code, 0);
        subscribe(tool, LINE, Py_None);
        PyErr_Restore(type, value, traceback);
        Py_XDECREF(result);
        Py_XDECREF(check);
    }
    if (!interrupted)
        PyErr_Clear();
    Py_XDECREF(globals);
    Py_XDECREF(code);
    return !interrupted;
}

static bool look_up(void)
{
    PyObject *module = PySys_GetObject("monitoring"); /* borrowed */
    PyObject *events = module ? PyObject_GetAttrString(module, "events") : NULL;
    bool good = events != NULL;

    if (mon.known || !good) {
        Py_XDECREF(events);
        PyErr_Clear();
        return mon.known;
    }
    mon.use = PyObject_GetAttrString(module, "use_tool_id");
    mon.free = PyObject_GetAttrString(module, "free_tool_id");
    mon.get = PyObject_GetAttrString(module, "get_tool");
    mon.set = PyObject_GetAttrString(module, "set_events");
    mon.set_local = PyObject_GetAttrString(module, "set_local_events");
    mon.subscribe = PyObject_GetAttrString(module, "register_callback");
    mon.disable = PyObject_GetAttrString(module, "DISABLE");
    for (int i = 0; i < EVENTS; i++) {
        PyObject *bit = PyObject_GetAttrString(events, names[i]);
        mon.bit[i] = bit ? (int)PyLong_AsLong(bit) : 0;
        good = good && mon.bit[i] > 0;
        Py_XDECREF(bit);
    }
    mon.local = mon.bit[LINE] | mon.bit[START] | mon.bit[RESUME] | mon.bit[RETURN] | mon.bit[YIELD];
    good = good && mon.use && mon.free && mon.get && mon.set && mon.set_local && mon.subscribe && mon.disable;
    if (!callback_type)
        callback_type = (PyTypeObject *)PyType_FromSpec(&callback_spec);
    PyErr_Clear();
    Py_XDECREF(events);
    return good && callback_type;
}

/* ---- on and off ------------------------------------------------------------------------------------------------------ */

static void monitoring_arm(LineEngine *engine, PyObject *code, bool on)
{
    state *s = engine->state;
    PyObject *type, *value, *traceback;

    if (!s || s->tool < 0)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    set_local(s->tool, code, on ? mon.local : 0);
    PyErr_Restore(type, value, traceback);
}

static void monitoring_stop(LineEngine *engine)
{
    state *s = engine->state;
    PyObject *type, *value, *traceback;

    if (!s || s->tool < 0)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    done(PyObject_CallFunction(mon.set, "ii", s->tool, 0));
    for (uint32_t i = 0; i < lp_lines_code_count(engine->core); i++)
        set_local(s->tool, (PyObject *)(uintptr_t)lp_lines_code_at(engine->core, i)->key, 0);
    for (int i = 0; i < EVENTS; i++)
        subscribe(s->tool, i, Py_None);
    done(PyObject_CallFunction(mon.free, "i", s->tool));
    s->tool = -1;
    PyErr_Restore(type, value, traceback);
}

static int monitoring_start(LineEngine *engine)
{
    state *s = engine->state;
    bool good = look_up();

    if (!s) {
        s = engine->state = PyMem_RawCalloc(1, sizeof *s);
        if (!s) {
            lpy_line_note(engine, "no memory for the back end");
            return -1;
        }
        s->tool = -1;
    }
    int tool = good ? take_tool() : -1;
    if (tool < 0) {
        lpy_line_note(engine, good ? "all tool ids of sys.monitoring are taken: nothing is measured"
                                   : "this Python has no sys.monitoring: nothing is measured");
        return -1;
    }
    s->tool = tool;
    if (!mon.known && !try_out(engine, tool)) {
        monitoring_stop(engine);
        return -1;
    }
    mon.known = true;
    if (!mon.sees_instructions)
        lpy_line_note(engine, "this Python does not tell at which instruction a line begins: hits are visits");
    for (int i = 0; i < EVENTS && good; i++) {
        PyObject *callback =
            callback_new(engine, i == LINE && !mon.sees_instructions ? on_line_by_number : functions[i]);
        good = callback && subscribe(tool, i, callback);
        Py_XDECREF(callback);
    }
    engine->active = good; /* events may come at once */
    for (uint32_t i = 0; good && i < lp_lines_code_count(engine->core); i++) {
        const lp_line_code *code = lp_lines_code_at(engine->core, i);
        if (code->marked)
            good = set_local(tool, (PyObject *)(uintptr_t)code->key, mon.local);
    }
    int global =
        ((mon.bit[UNWIND] | mon.bit[THROW]) & ~mon.local) | (engine->select ? mon.bit[START] | mon.bit[RESUME] : 0);
    if (good && global)
        good = done(PyObject_CallFunction(mon.set, "ii", tool, global));
    if (!good) {
        PyErr_Clear();
        lpy_line_note(engine, "sys.monitoring refused an event: nothing is measured");
    } else if (engine->select) {
        good = lpy_line_discover_stacks(engine) == 0;
    }
    if (!good) {
        engine->active = false;
        monitoring_stop(engine);
    }
    return good ? 0 : -1;
}

static void monitoring_release(LineEngine *engine)
{
    PyMem_RawFree(engine->state);
    engine->state = NULL;
}

const lpy_line_backend lpy_line_monitoring = {
    .name = "monitoring",
    .start = monitoring_start,
    .stop = monitoring_stop,
    .arm = monitoring_arm,
    .release = monitoring_release,
};

#endif
