/* What an event of the line engine costs on this machine under this interpreter, by class: measured once a process and back
 * end, before the first start, with an engine of its own. About 3 ms. The least of several short rounds, since a neighbour
 * can only add; the error is half of what the rounds' middle lies above the least. */
#include <stdlib.h>

#include "python/line.h"

#define ROUNDS 9
#define PASSES 150

static const char program[] = "G = 1\n"
                              "def loop(n):\n"
                              "    for _ in n:\n"
                              "        a = 1\n"
                              "def plain(n):\n"
                              "    for _ in n:\n"
                              "        a = 1\n"
                              "        b = a\n"
                              "        c = b\n"
                              "        d = c\n"
                              "        a = d\n"
                              "def from_globals(n):\n"
                              "    for _ in n:\n"
                              "        G\n"
                              "        G\n"
                              "        G\n"
                              "        G\n"
                              "def callee():\n"
                              "    pass\n"
                              "def call(n):\n"
                              "    for _ in n:\n"
                              "        callee()\n"
                              "def source(n):\n"
                              "    for _ in n: yield\n"
                              "def drain(n):\n"
                              "    for _ in source(n):\n"
                              "        pass\n";

enum { LOOP, PLAIN, GLOBALS, CALL, DRAIN, PROGRAMS };
static const char *const runs[PROGRAMS] = {"loop", "plain", "from_globals", "call", "drain"};
static const char *const marks[PROGRAMS] = {"loop", "plain", "from_globals", "callee", "source"};

typedef struct times { /* ticks of a run */
    uint64_t bare[ROUNDS], on[ROUNDS];
} times;

typedef struct costs {
    bool measured, good;
    double line[LP_LINE_COSTS], line_error[LP_LINE_COSTS], event[LP_LINE_EVENTS],
        event_error[LP_LINE_EVENTS]; /* ticks */
} costs;
static costs known[2];

static costs *of(const lpy_line_backend *backend)
{
#if LPY_MONITORING
    if (backend == &lpy_line_monitoring)
        return &known[0];
#endif
    (void)backend;
    return &known[1];
}

static bool run(PyObject *globals, const char *name, PyObject *passes, uint64_t *ticks)
{
    PyObject *function = PyDict_GetItemString(globals, name); /* borrowed */
    uint64_t start = lp_ticks();
    PyObject *result = function ? PyObject_CallOneArg(function, passes) : NULL;

    *ticks = lp_ticks() - start;
    Py_XDECREF(result);
    return result != NULL;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Ticks that events add to one pass, and the error. */
static double added(times *t, double *error)
{
    qsort(t->bare, ROUNDS, sizeof *t->bare, by_size);
    qsort(t->on, ROUNDS, sizeof *t->on, by_size);
    double cost = ((double)t->on[0] - (double)t->bare[0]) / PASSES;
    *error = ((double)(t->on[ROUNDS / 2] - t->on[0]) + (double)(t->bare[ROUNDS / 2] - t->bare[0])) / PASSES / 2;
    return cost > 0 ? cost : 0;
}

static bool measure_at(LineEngine *engine, int line, times t[PROGRAMS])
{
    PyObject *text = PyUnicode_FromString(program);
    PyObject *newlines = PyUnicode_FromString("\n"), *count = PyLong_FromLong(line);
    PyObject *blank = newlines && count ? PyNumber_Multiply(newlines, count) : NULL;
    PyObject *whole = text && blank ? PyUnicode_Concat(blank, text) : NULL;
    const char *source = whole ? PyUnicode_AsUTF8(whole) : NULL;
    PyObject *code = source ? Py_CompileString(source, "<lineprofiler own cost>", Py_file_input) : NULL;
    PyObject *globals = PyDict_New(), *passes = PyObject_CallFunction((PyObject *)&PyRange_Type, "i", PASSES);
    PyObject *done = NULL;
    bool good = code && globals && passes && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0;

    if (good)
        done = PyEval_EvalCode(code, globals, globals);
    good = done != NULL;
    for (int i = 0; good && i < PROGRAMS; i++)
        for (int round = -2; good && round < ROUNDS; round++) /* the first ones warm up */
            good = run(globals, runs[i], passes, &t[i].bare[round < 0 ? 0 : round]);
    for (int i = 0; good && i < PROGRAMS; i++) {
        PyObject *function = PyDict_GetItemString(globals, marks[i]);      /* borrowed */
        PyObject *marked = function ? PyFunction_GetCode(function) : NULL; /* borrowed */
        PyObject *index = marked ? PyObject_CallMethod((PyObject *)engine, "mark", "O", marked) : NULL;
        good = index != NULL;
        Py_XDECREF(index);
    }
    PyObject *started = good ? PyObject_CallMethod((PyObject *)engine, "start", NULL) : NULL;
    good = started && engine->active;
    for (int i = 0; good && i < PROGRAMS; i++)
        for (int round = -2; good && round < ROUNDS; round++)
            good = run(globals, runs[i], passes, &t[i].on[round < 0 ? 0 : round]);
    PyObject *stopped = started ? PyObject_CallMethod((PyObject *)engine, "stop", NULL) : NULL;
    Py_XDECREF(stopped);
    Py_XDECREF(started);
    Py_XDECREF(done);
    Py_XDECREF(passes);
    Py_XDECREF(globals);
    Py_XDECREF(code);
    Py_XDECREF(whole);
    Py_XDECREF(blank);
    Py_XDECREF(count);
    Py_XDECREF(newlines);
    Py_XDECREF(text);
    return good;
}

static double positive(double value)
{
    return value > 0 ? value : 0;
}

static void work_out(costs *c, times t[PROGRAMS], uint32_t far)
{
    double error[PROGRAMS], pass[PROGRAMS];

    for (int i = 0; i < PROGRAMS; i++)
        pass[i] = added(&t[i], &error[i]);
    /* loop = header + plain, plain = header + 5 plain */
    double plain = positive((pass[PLAIN] - pass[LOOP]) / 4), loop = positive(pass[LOOP] - plain);
    double plain_error = (error[PLAIN] + error[LOOP]) / 4, loop_error = error[LOOP] + plain_error;
    c->line[far] = plain;
    c->line_error[far] = plain_error;
    c->line[far | LPY_LINE_LOOP] = loop;
    c->line_error[far | LPY_LINE_LOOP] = loop_error;
    c->line[far | LPY_LINE_GLOBAL] = positive((pass[GLOBALS] - loop) / 4);
    c->line_error[far | LPY_LINE_GLOBAL] = (error[GLOBALS] + loop_error) / 4;
    c->line[far | LPY_LINE_GLOBAL | LPY_LINE_LOOP] = loop;
    if (far)
        return;
    double call = positive(pass[CALL] - plain), yield = pass[DRAIN];
    c->event[LP_LINE_CALL] = c->event[LP_LINE_RETURN] = call / 2;
    c->event_error[LP_LINE_CALL] = c->event_error[LP_LINE_RETURN] = (error[CALL] + plain_error) / 2;
    c->event[LP_LINE_YIELD] = c->event[LP_LINE_RESUME] = yield / 2;
    c->event_error[LP_LINE_YIELD] = c->event_error[LP_LINE_RESUME] = error[DRAIN] / 2;
}

static void measure(const lpy_line_backend *backend, costs *c)
{
    PyThreadState *tstate = lpy_thread_state();
    lpy_tracers tracers = lpy_tracers_take(tstate);
    PyObject *empty = PyTuple_New(0), *options = Py_BuildValue("{s:s}", "backend", backend->name);
    PyObject *engine = empty && options ? PyObject_Call((PyObject *)lpy.line_engine_type, empty, options) : NULL;
    times t[PROGRAMS];

    if (engine) {
        ((LineEngine *)engine)->calibrating = true;
        c->good = measure_at((LineEngine *)engine, 1, t);
        if (c->good)
            work_out(c, t, 0);
        c->good = c->good && measure_at((LineEngine *)engine, 300, t);
        if (c->good)
            work_out(c, t, LPY_LINE_FAR);
    }
    PyErr_Clear();
    Py_XDECREF(engine);
    Py_XDECREF(options);
    Py_XDECREF(empty);
    lpy_tracers_put_back(tstate, &tracers);
}

int lpy_line_cost(const lpy_line_backend *backend, lp_line_cost *cost)
{
    costs *c = of(backend);

    if (!c->measured) {
        c->measured = true;
        measure(backend, c);
    }
    for (uint32_t i = 0; i < LP_LINE_COSTS; i++)
        cost->line[i] = c->good ? (uint32_t)(c->line[i] + 0.5) : 0;
    for (uint32_t i = 0; i < LP_LINE_EVENTS; i++)
        cost->event[i] = c->good ? (uint32_t)(c->event[i] + 0.5) : 0;
    return c->good ? 0 : -1;
}

static int put(PyObject *dict, const char *name, double ticks)
{
    double tick = (double)lp_clock_calibrate() * 0x1p-32;
    PyObject *value = PyFloat_FromDouble(ticks * tick);
    int rc = value ? PyDict_SetItemString(dict, name, value) : -1;

    Py_XDECREF(value);
    return rc;
}

PyObject *lpy_line_cost_dict(const lpy_line_backend *backend)
{
    static const struct {
        const char *name, *error;
        uint32_t class;
    } lines[] = {{"line", "line_error", LPY_LINE_PLAIN},
                 {"line_far", "line_far_error", LPY_LINE_FAR},
                 {"line_global", "line_global_error", LPY_LINE_GLOBAL},
                 {"line_far_global", "line_far_global_error", LPY_LINE_FAR | LPY_LINE_GLOBAL},
                 {"line_loop", "line_loop_error", LPY_LINE_LOOP},
                 {"line_far_loop", "line_far_loop_error", LPY_LINE_FAR | LPY_LINE_LOOP}};
    static const char *const events[LP_LINE_EVENTS][2] = {
        {"call", "call_error"}, {"return", "return_error"}, {"yield", "yield_error"}, {"resume", "resume_error"}};
    const costs *c = of(backend);
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict && c->good && i < sizeof lines / sizeof *lines; i++)
        if (put(dict, lines[i].name, c->line[lines[i].class]) != 0 ||
            put(dict, lines[i].error, c->line_error[lines[i].class]) != 0)
            Py_CLEAR(dict);
    for (size_t i = 0; dict && c->good && i < LP_LINE_EVENTS; i++)
        if (put(dict, events[i][0], c->event[i]) != 0 || put(dict, events[i][1], c->event_error[i]) != 0)
            Py_CLEAR(dict);
    return dict;
}
