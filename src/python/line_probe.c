/* Runs the probes. Each is there twice, as two code objects, so that the bare one stays as the interpreter specialised it. The rounds
 * go over all of them, bare and measured in turns, until the least time of each has been reached twice: what disturbs a
 * moment hits one round of many, and it can only add. The error is half of what the rounds' middle lies above the least. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python/line_probe.h"

#define LEAST_ROUNDS 12
#define MOST_ROUNDS 16
#define AGREE 50 /* two times agree within one part in this */
#define PASSES 32
#define WARM_PASSES 3
#define BLANK_LINES 300 /* before those that are far */

#define SIX(statement) statement "; " statement "; " statement "; " statement "; " statement "; " statement
#define ONE_LINE(name, parameters, statement) "def " name "(n" parameters "):\n for _ in n:\n  " SIX(statement) "\n"

/* Measured is the function of the probe's name, and that with _m after it. */
static const char program[] = "G = 1\n"
                              "class O:\n"
                              " def __init__(self): self.v = 2\n"
                              "def one(n):\n"
                              " for _ in n:\n"
                              "  a = 1\n"
                              "def more(n):\n"
                              " for _ in n:\n"
                              "  a = 1\n"
                              "  b = a\n"
                              "  c = b\n"
                              "  d = c\n"
                              "  a = d\n"
                              "def globals(n):\n"
                              " for _ in n:\n"
                              "  G\n"
                              "  G\n"
                              "  G\n"
                              "  G\n"
                              "def called_m():\n pass\n" ONE_LINE("called", "", "called_m()") //
    "def drain_m(n):\n"
    " for _ in n:\n"
    "  yield\n"
    "def drain(n):\n"
    " for _ in drain_m(n):\n"
    "  pass\n";
static const char far_program[] = "def far_one(n):\n"
                                  " for _ in n:\n"
                                  "  a = 1\n"
                                  "def far_more(n):\n"
                                  " for _ in n:\n"
                                  "  a = 1\n"
                                  "  b = a\n"
                                  "  c = b\n"
                                  "  d = c\n"
                                  "  a = d\n"
                                  "def far_globals(n):\n"
                                  " for _ in n:\n"
                                  "  G\n"
                                  "  G\n"
                                  "  G\n"
                                  "  G\n";
static const char trace_program[] = ONE_LINE("plain", "", "a = n; b = a") //
    ONE_LINE("of_global", "", "G")                                        //
    ONE_LINE("builtin", "", "len")                                        //
    ONE_LINE("attr", ", o=O()", "o.v")                                    //
    ONE_LINE("of_method", ", l=[]", "l.clear()")                          //
    ONE_LINE("store_attr", ", o=O()", "o.v = n")                          //
    ONE_LINE("subscr", ", l=[1, 2]", "l[0]")                              //
    ONE_LINE("store_subscr", ", l=[1, 2]", "l[0] = n")                    //
    ONE_LINE("binary", ", i=1000, x=0.5", "i + i; x * x")                 //
    ONE_LINE("compare", ", i=1000, x=0.5", "i < i; x < x")                //
    ONE_LINE("unpack", ", t=(1, 2)", "a, b = t")                          //
    ONE_LINE("call", "", "len(n)")                                        //
    "def g(): pass\n" ONE_LINE("left", "", "g()")                         //
    ONE_LINE("unmarked", "", "g()")                                       //
    "def iter(n, t=(0,) * 8):\n"
    " for _ in n:\n"
    "  for _ in t:\n"
    "   pass\n"
    "def g1(x): pass\n"
    "def left_c(n):\n"
    " for _ in map(g1, n):\n"
    "  pass\n"
    "def mapped_m(x):\n pass\n"
    "def mapped(n):\n"
    " for _ in map(mapped_m, n):\n"
    "  pass\n"
    "def raised(n):\n"
    " for _ in n:\n"
    "  try:\n"
    "   raise KeyError\n"
    "  except KeyError:\n"
    "   pass\n";
static const char *const names[LPY_PROBES] = {
    [LPY_PROBE_ONE] = "one",
    [LPY_PROBE_MORE] = "more",
    [LPY_PROBE_GLOBALS] = "globals",
    [LPY_PROBE_CALLED] = "called",
    [LPY_PROBE_DRAIN] = "drain",
    [LPY_PROBE_FAR_ONE] = "far_one",
    [LPY_PROBE_FAR_MORE] = "far_more",
    [LPY_PROBE_FAR_GLOBALS] = "far_globals",
    [LPY_PROBE_PLAIN] = "plain",
#define PRICED(price) [LPY_PROBE_PRICED + (price) - LPY_PRICE_GLOBAL]
    PRICED(LPY_PRICE_GLOBAL) = "of_global",
    PRICED(LPY_PRICE_BUILTIN) = "builtin",
    PRICED(LPY_PRICE_ATTR) = "attr",
    PRICED(LPY_PRICE_METHOD) = "of_method",
    PRICED(LPY_PRICE_STORE_ATTR) = "store_attr",
    PRICED(LPY_PRICE_SUBSCR) = "subscr",
    PRICED(LPY_PRICE_STORE_SUBSCR) = "store_subscr",
    PRICED(LPY_PRICE_BINARY) = "binary",
    PRICED(LPY_PRICE_COMPARE) = "compare",
    PRICED(LPY_PRICE_UNPACK) = "unpack",
    PRICED(LPY_PRICE_CALL) = "call",
    PRICED(LPY_PRICE_ITER) = "iter",
#undef PRICED
    [LPY_PROBE_LEFT] = "left",
    [LPY_PROBE_LEFT_C] = "left_c",
    [LPY_PROBE_MAPPED] = "mapped",
    [LPY_PROBE_RAISE] = "raised",
    [LPY_PROBE_UNMARKED] = "unmarked",
};

typedef struct times { /* ticks of a run */
    int64_t round[MOST_ROUNDS];
    int64_t least, second;
} times;

typedef struct side { /* one copy of all probes */
    PyObject *globals;
    times of[LPY_PROBES], none[LPY_PROBES]; /* of no passes */
} side;

typedef struct bench {
    side bare, measured;
    PyObject *none, *few, *passes; /* ranges */
    bool traces;
    uint32_t rounds;
    LineEngine *engine; /* borrowed */
} bench;

/* ---- the programs ---- */

PyObject *lpy_probe_globals(const char *source)
{
    PyObject *globals = PyDict_New(), *code = NULL, *done = NULL;

    if (globals && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0)
        code = Py_CompileString(source, "<lineprofiler own cost>", Py_file_input);
    if (code)
        done = PyEval_EvalCode(code, globals, globals);
    if (!done)
        Py_CLEAR(globals);
    Py_XDECREF(done);
    Py_XDECREF(code);
    return globals;
}

static PyObject *namespace_of(const lpy_line_backend *backend)
{
    char blank[BLANK_LINES + 1];

    memset(blank, '\n', BLANK_LINES);
    blank[BLANK_LINES] = '\0';
    PyObject *text = PyUnicode_FromFormat("%s%s%s%s", program, backend->traces ? trace_program : "",
                                          backend->traces ? "" : blank, backend->traces ? "" : far_program);
    const char *source = text ? PyUnicode_AsUTF8(text) : NULL;
    PyObject *globals = source ? lpy_probe_globals(source) : NULL;
    Py_XDECREF(text);
    return globals;
}

static PyObject *function_of(const side *copy, size_t probe, const char *suffix)
{
    char name[64];

    snprintf(name, sizeof name, "%s%s", names[probe], suffix);
    return PyDict_GetItemString(copy->globals, name); /* borrowed */
}

static bool mark(LineEngine *engine, PyObject *function, PyObject **code)
{
    PyObject *marked = PyFunction_GetCode(function); /* borrowed */
    PyObject *index = PyObject_CallMethod((PyObject *)engine, "mark", "O", marked);

    *code = Py_NewRef(marked);
    Py_XDECREF(index);
    return index != NULL;
}

static bool has(const bench *b, size_t probe)
{
    return b->traces ? probe < LPY_PROBE_GLOBALS || probe >= LPY_PROBE_PLAIN : probe < LPY_PROBE_PLAIN;
}

static bool mark_all(bench *b, lpy_probed out[LPY_PROBES])
{
    bool good = true;

    for (size_t i = 0; good && i < LPY_PROBES; i++) {
        PyObject *function = function_of(&b->measured, i, ""), *called = function_of(&b->measured, i, "_m");
        if (i == LPY_PROBE_UNMARKED || !has(b, i))
            continue;
        good =
            function && mark(b->engine, function, &out[i].code) && (!called || mark(b->engine, called, &out[i].called));
    }
    return good;
}

/* ---- the rounds ---- */

static bool call(PyObject *function, PyObject *passes, times *t, uint32_t round)
{
    uint64_t start = lp_ticks();
    PyObject *result = PyObject_CallOneArg(function, passes);
    int64_t ticks = (int64_t)(lp_ticks() - start);

    Py_XDECREF(result);
    if (!t)
        return result != NULL; /* to warm up */
    t->round[round] = ticks;
    if (round == 0 || ticks < t->least) {
        t->second = round ? t->least : INT64_MAX;
        t->least = ticks;
    } else if (ticks < t->second) {
        t->second = ticks;
    }
    return result != NULL;
}

static bool round_of(bench *b, side *copy)
{
    for (size_t i = 0; i < LPY_PROBES; i++) {
        PyObject *function = function_of(copy, i, "");
        times *of = &copy->of[i], *none = &copy->none[i];

        if (!has(b, i))
            continue;
        if (!function || !call(function, b->few, NULL, 0) || !call(function, b->none, none, b->rounds) ||
            !call(function, b->passes, of, b->rounds))
            return false;
    }
    return true;
}

static bool agree(const bench *b, const side *copy)
{
    for (size_t i = 0; i < LPY_PROBES; i++)
        if (has(b, i) && copy->of[i].second - copy->of[i].least > copy->of[i].least / AGREE)
            return false;
    return true;
}

LineEngine *lpy_probe_engine(const lpy_line_backend *backend)
{
    PyObject *empty = PyTuple_New(0), *options = Py_BuildValue("{s:s}", "backend", backend->name);
    PyObject *made = empty && options ? PyObject_Call((PyObject *)lpy.line_engine_type, empty, options) : NULL;
    LineEngine *engine = (LineEngine *)made;

    if (engine)
        engine->calibrating = true;
    Py_XDECREF(options);
    Py_XDECREF(empty);
    return engine;
}

bool lpy_probe_tell(LineEngine *engine, const char *method)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback); /* to stop, also after a signal's handler has raised */
    PyObject *result = PyObject_CallMethod((PyObject *)engine, method, NULL);
    if (type)
        PyErr_Restore(type, value, traceback);
    Py_XDECREF(result);
    return result != NULL;
}

static bool run(bench *b)
{
    bool good = true;

    while (good && b->rounds < MOST_ROUNDS &&
           (b->rounds < LEAST_ROUNDS || !agree(b, &b->bare) || !agree(b, &b->measured))) {
        good = round_of(b, &b->bare) && lpy_probe_tell(b->engine, "start");
        if (!good)
            break;
        good = b->engine->active && round_of(b, &b->measured);
        good = lpy_probe_tell(b->engine, "stop") && good;
        b->rounds++;
    }
    return good;
}

/* ---- what came out ---- */

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double spread(times *t, uint32_t rounds)
{
    qsort(t->round, rounds, sizeof t->round[0], by_size);
    int64_t median = t->round[rounds / 2];
    return (double)(median - t->least);
}

static void work_out(bench *b, lpy_probed out[LPY_PROBES])
{
    for (size_t i = 0; i < LPY_PROBES; i++) {
        if (!has(b, i))
            continue;
        times *bare = &b->bare.of[i], *measured = &b->measured.of[i];
        int64_t fixed = b->measured.none[i].least - b->bare.none[i].least;
        out[i].added = (double)(measured->least - bare->least - fixed) / PASSES;
        out[i].error = (spread(bare, b->rounds) + spread(measured, b->rounds)) / PASSES / 2;
    }
}

static PyObject *range_of(int count)
{
    return PyObject_CallFunction((PyObject *)&PyRange_Type, "i", count);
}

bool lpy_probe_run(const lpy_line_backend *backend, lpy_probed out[LPY_PROBES])
{
    LineEngine *engine = lpy_probe_engine(backend);
    bench *b = calloc(1, sizeof *b);
    bool good = b && engine;

    memset(out, 0, LPY_PROBES * sizeof *out);
    lp_clock_init(-1); /* the ticks before are others */
    if (good) {
        b->engine = engine;
        b->traces = backend->traces;
        b->none = range_of(0);
        b->few = range_of(WARM_PASSES);
        b->passes = range_of(PASSES);
        b->bare.globals = namespace_of(backend);
        b->measured.globals = namespace_of(backend);
        good = b->none && b->few && b->passes && b->bare.globals && b->measured.globals && mark_all(b, out) && run(b);
        if (good)
            work_out(b, out);
        Py_XDECREF(b->measured.globals);
        Py_XDECREF(b->bare.globals);
        Py_XDECREF(b->passes);
        Py_XDECREF(b->few);
        Py_XDECREF(b->none);
    }
    free(b);
    Py_XDECREF(engine);
    return good;
}

void lpy_probe_done(lpy_probed out[LPY_PROBES])
{
    for (size_t i = 0; i < LPY_PROBES; i++) {
        Py_CLEAR(out[i].code);
        Py_CLEAR(out[i].called);
    }
}
