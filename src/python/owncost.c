/* What a phase and a count() cost on this machine under this interpreter: measured once a process, before the first recording, with
 * a recorder of its own in private memory. About 1 ms; the least of several short rounds, since a neighbour can only add. */
#include "python/lpy.h"

#define ROUNDS 5
#define PASSES 1000

static const char program[] = "def empty(n):\n"
                              "    for _ in n: pass\n"
                              "def phases(n, phase):\n"
                              "    for _ in n:\n"
                              "        with phase('own cost'): pass\n"
                              "def counts(n, count):\n"
                              "    for _ in n: count('own cost', 3)\n";

/* ns of one call of function(range, argument), UINT64_MAX with an exception. */
static uint64_t time_of(PyObject *globals, const char *name, PyObject *passes, PyObject *argument)
{
    PyObject *function = PyDict_GetItemString(globals, name); /* borrowed */
    uint64_t start = lp_clock_ns(CLOCK_MONOTONIC);
    PyObject *result = function ? PyObject_CallFunctionObjArgs(function, passes, argument, NULL) : NULL;
    uint64_t end = lp_clock_ns(CLOCK_MONOTONIC);

    if (!result)
        return UINT64_MAX;
    Py_DECREF(result);
    return end - start;
}

static bool measure(PyObject *globals, PyObject *recorder, uint64_t best[3])
{
    PyObject *phase = PyObject_GetAttrString(recorder, "phase");
    PyObject *count = PyObject_GetAttrString(recorder, "count");
    PyObject *passes = PyObject_CallFunction((PyObject *)&PyRange_Type, "i", PASSES);
    bool good = phase && count && passes;

    best[0] = best[1] = best[2] = UINT64_MAX;
    for (int round = 0; good && round < ROUNDS; round++) {
        uint64_t now[3] = {time_of(globals, "empty", passes, NULL), time_of(globals, "phases", passes, phase),
                           time_of(globals, "counts", passes, count)};
        for (int i = 0; i < 3; i++) {
            good = good && now[i] != UINT64_MAX;
            best[i] = now[i] < best[i] ? now[i] : best[i];
        }
    }
    Py_XDECREF(passes);
    Py_XDECREF(count);
    Py_XDECREF(phase);
    return good;
}

#define TOOLS 6 /* of sys.monitoring: PEP 669 */

/* Does a tool of sys.monitoring get events of all code? Before 3.12 there is none. */
static bool is_monitored(PyObject *sys)
{
    PyObject *monitoring = sys ? PyObject_GetAttrString(sys, "monitoring") : NULL;
    bool monitored = false;

    for (int tool = 0; monitoring && tool < TOOLS; tool++) {
        PyObject *events = PyObject_CallMethod(monitoring, "get_events", "i", tool);
        monitored = monitored || (events && PyObject_IsTrue(events) > 0);
        Py_XDECREF(events);
        PyErr_Clear(); /* ValueError: no such tool is in use */
    }
    PyErr_Clear();
    Py_XDECREF(monitoring);
    return monitored;
}

/* A debugger, coverage or another profiler would see our program run, and would be what is measured. */
static bool is_watched(void)
{
    PyObject *sys = PyImport_ImportModule("sys");
    PyObject *trace = sys ? PyObject_CallMethod(sys, "gettrace", NULL) : NULL;
    PyObject *profile = sys ? PyObject_CallMethod(sys, "getprofile", NULL) : NULL;
    bool watched = trace != Py_None || profile != Py_None || is_monitored(sys);

    PyErr_Clear();
    Py_XDECREF(profile);
    Py_XDECREF(trace);
    Py_XDECREF(sys);
    return watched;
}

bool lpy_own_cost(bool measure_cpu, uint64_t *phase_ps, uint64_t *count_ps)
{
    static uint64_t known[2][2];
    static bool measured[2];
    uint64_t best[3];
    bool undisturbed = true;

    *phase_ps = *count_ps = 0;
    if (!measured[measure_cpu] && !is_watched()) {
        measured[measure_cpu] = true;
        PyObject *config = Py_BuildValue("{s:s,s:s,s:s,s:O,s:O}", "run_dir", "/", "run_id", "own-cost", "role", "",
                                         "private", Py_True, "measure_cpu", measure_cpu ? Py_True : Py_False);
        PyObject *code = Py_CompileString(program, "<lineprofiler own cost>", Py_file_input);
        PyObject *globals = PyDict_New();
        PyObject *done = NULL, *recorder = NULL;
        if (globals && code && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0)
            done = PyEval_EvalCode(code, globals, globals);
        if (done && config)
            recorder = PyObject_CallNoArgs((PyObject *)lpy.recorder_type);
        PyObject *opened = recorder ? PyObject_CallMethod(recorder, "_open", "O", config) : NULL;
        if (opened && measure(globals, recorder, best) && best[1] > best[0] && best[2] > best[0]) {
            known[measure_cpu][0] = (best[1] - best[0]) * 1000u / PASSES;
            known[measure_cpu][1] = (best[2] - best[0]) * 1000u / PASSES;
        }
        /* What is none of ours came from a signal's handler, and goes on. */
        undisturbed = !PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_Exception);
        measured[measure_cpu] = undisturbed;
        if (undisturbed)
            PyErr_Clear();
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        Py_XDECREF(opened);
        Py_XDECREF(recorder);
        Py_XDECREF(done);
        Py_XDECREF(globals);
        Py_XDECREF(code);
        Py_XDECREF(config);
        PyErr_Restore(type, value, traceback);
    }
    *phase_ps = known[measure_cpu][0];
    *count_ps = known[measure_cpu][1];
    return undisturbed;
}
