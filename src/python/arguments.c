/* The arguments of phase(): name, io=False, sync=False, sample=1.0, async_work=False. */
#include "python/scope.h"

static const char *const argument_names[] = {"name", "io", "sync", "sample", "async_work"};
enum { ARGUMENTS = 5 };
static PyObject *argument_keys[ARGUMENTS];

/* The last calls of the form phase("name", keyword=constant): a call site passes the same keyword tuple and the same constant each
 * time, and neither can change. Both are kept alive by the memo. Under the GIL only. */
enum { MEMO = 16 };
static struct {
    PyObject *kwnames, *value; /* owned */
    uint32_t flags, stride;
} memo[MEMO];

static inline unsigned memo_slot(const PyObject *kwnames, const PyObject *value)
{
    return (unsigned)((uintptr_t)kwnames >> 4 ^ (uintptr_t)value >> 5) % MEMO;
}

static void remember(PyObject *kwnames, PyObject *value, const lpy_options *options)
{
    unsigned i = memo_slot(kwnames, value);
    PyObject *old_kwnames = memo[i].kwnames, *old_value = memo[i].value;

    memo[i].kwnames = Py_NewRef(kwnames);
    memo[i].value = Py_NewRef(value);
    memo[i].flags = options->flags;
    memo[i].stride = options->stride;
    Py_XDECREF(old_kwnames);
    Py_XDECREF(old_value);
}

static bool parse(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, lpy_options *out);

bool lpy_parse_options(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, lpy_options *out)
{
    bool simple = !LPY_FREE_THREADED && nargs == 1 && kwnames && PyTuple_GET_SIZE(kwnames) == 1 &&
                  PyUnicode_CheckExact(args[0]) && (PyFloat_CheckExact(args[1]) || PyBool_Check(args[1]));

    if (simple) {
        unsigned i = memo_slot(kwnames, args[1]);
        if (LP_LIKELY(memo[i].kwnames == kwnames && memo[i].value == args[1])) {
            out->name = Py_NewRef(args[0]);
            out->flags = memo[i].flags;
            out->stride = memo[i].stride;
            return true;
        }
    }
    if (!parse(args, nargs, kwnames, out))
        return false;
    if (simple)
        remember(kwnames, args[1], out);
    return true;
}

/* sample=: how many entries one that is measured stands for. */
static bool take_sample(PyObject *value, lpy_options *out)
{
    double rate = PyFloat_AsDouble(value);

    if (rate == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "sample must be a number, not %.100s", Py_TYPE(value)->tp_name);
        return false;
    }
    if (!(rate > 0.0 && rate <= 1.0) || 1.0 / rate > 1e9) {
        PyErr_Format(PyExc_ValueError,
                     rate > 0.0 && rate < 1.0 ? "sample must be 1e-9 at least, not %R"
                                              : "sample must be in (0, 1], not %R",
                     value);
        return false;
    }
    /* round(1 / rate) as Python rounds: a half to the even one. */
    double exact = 1.0 / rate;
    out->stride = (uint32_t)exact;
    double rest = exact - out->stride;
    out->stride += rest > 0.5 || (rest == 0.5 && out->stride % 2 == 1);
    if (out->stride > 1)
        out->flags |= PHASE_SAMPLE;
    return true;
}

static bool parse(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, lpy_options *out)
{
    PyObject *values[ARGUMENTS] = {NULL};
    Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;

    if (nargs > ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "phase() takes at most %d arguments (%zd given)", ARGUMENTS, nargs);
        return false;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        values[i] = args[i];
    for (Py_ssize_t k = 0; k < keywords; k++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, k);
        int i = 0;
        while (i < ARGUMENTS && key != argument_keys[i]) /* a keyword in a call is an interned constant */
            i++;
        for (int j = 0; i == ARGUMENTS && j < ARGUMENTS; j++)
            if (PyUnicode_CompareWithASCIIString(key, argument_names[j]) == 0)
                i = j;
        if (i == ARGUMENTS) {
            PyErr_Format(PyExc_TypeError, "phase() got an unexpected keyword argument %R", key);
            return false;
        }
        if (values[i]) {
            PyErr_Format(PyExc_TypeError, "phase() got multiple values for argument %R", key);
            return false;
        }
        values[i] = args[nargs + k];
    }
    if (!values[0]) {
        PyErr_SetString(PyExc_TypeError, "phase() missing required argument 'name'");
        return false;
    }
    if (!PyUnicode_Check(values[0])) {
        PyErr_Format(PyExc_TypeError, "phase name must be str, not %.100s", Py_TYPE(values[0])->tp_name);
        return false;
    }
    out->flags = 0;
    out->stride = 1;
    if (values[1] && PyUnicode_Check(values[1])) {
        if (PyUnicode_CompareWithASCIIString(values[1], "thread") != 0) {
            PyErr_Format(PyExc_ValueError, "io must be True, False or 'thread', not %R", values[1]);
            return false;
        }
        out->flags |= PHASE_IO | PHASE_IO_THREAD;
    } else if (values[1]) {
        int truth = PyObject_IsTrue(values[1]);
        if (truth < 0)
            return false;
        out->flags |= truth ? PHASE_IO : 0;
    }
    if (values[2]) {
        int truth = PyObject_IsTrue(values[2]);
        if (truth < 0)
            return false;
        out->flags |= truth ? PHASE_SYNC : 0;
    }
    if (values[3] && !take_sample(values[3], out))
        return false;
    if (values[4]) {
        int truth = PyObject_IsTrue(values[4]);
        if (truth < 0)
            return false;
        out->flags |= truth ? PHASE_ASYNC : 0;
    }
    /* A str of a subclass has an address but not the identity of its text. */
    out->name = PyUnicode_CheckExact(values[0]) ? Py_NewRef(values[0]) : PyUnicode_FromObject(values[0]);
    return out->name != NULL;
}

int lpy_arguments_init(void)
{
    for (int i = 0; i < ARGUMENTS; i++)
        if (!(argument_keys[i] = PyUnicode_InternFromString(argument_names[i])))
            return -1;
    return 0;
}
