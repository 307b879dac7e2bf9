/* Texts, numbers, histograms and trees as plain Python data, and back; and statuses as exceptions. */
#include "python/convert.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/hist.h"
#include "python/convert_internal.h"
#include "store/arena.h"

/* --- errors and texts --- */

PyObject *lp_py_raise(lp_status status, const lp_error *error)
{
    const char *text = error && error->text[0] ? error->text : lp_status_text(status);
    int sys = error ? error->sys : 0;

    switch (status) {
    case LP_E_MEMORY: return PyErr_NoMemory();
    case LP_E_IO:
    case LP_E_MISSING:
    case LP_E_UNSAFE:
    case LP_E_BUSY:
    case LP_E_FULL: {
        /* OSError picks FileNotFoundError, PermissionError, … by the number. */
        int number = sys                      ? sys
                     : status == LP_E_MISSING ? ENOENT
                     : status == LP_E_UNSAFE  ? EPERM
                     : status == LP_E_BUSY    ? EAGAIN
                     : status == LP_E_FULL    ? ENOSPC
                                              : EIO;
        PyObject *line = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
        PyObject *arguments = line ? Py_BuildValue("(iN)", number, line) : NULL;
        if (arguments) {
            PyErr_SetObject(PyExc_OSError, arguments);
            Py_DECREF(arguments);
        }
        return NULL;
    }
    default: {
        PyObject *line = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
        if (line) {
            PyErr_SetObject(status == LP_E_UNSUPPORTED ? PyExc_NotImplementedError : PyExc_ValueError, line);
            Py_DECREF(line);
        }
        return NULL;
    }
    }
}

PyObject *lp_py_from_str(lp_str text)
{
    PyObject *made = PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size, "surrogatepass");

    if (!made && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear(); /* a path or an argument that is no text: as Python itself shows those, and JSON does */
        made = PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size, "surrogateescape");
    }
    return made;
}

PyObject *lp_py_from_path(const char *path)
{
    return PyUnicode_DecodeFSDefault(path);
}

bool lp_py_to_str(PyObject *text, lp_arena *arena, lp_str *out)
{
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "a text was expected, got %.100s", Py_TYPE(text)->tp_name);
        return false;
    }
    PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
    if (!bytes)
        return false;
    lp_str copy = lp_arena_str(arena, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    if (!copy.data) {
        PyErr_NoMemory();
        return false;
    }
    *out = copy;
    return true;
}

/* --- numbers --- */

static PyObject *from_i128(lp_i128 value)
{
    if (value >= INT64_MIN && value <= INT64_MAX)
        return PyLong_FromLongLong((long long)value);
    PyObject *high = PyLong_FromLongLong((long long)(value >> 64));
    PyObject *low = PyLong_FromUnsignedLongLong((unsigned long long)value);
    PyObject *bits = PyLong_FromLong(64);
    PyObject *shifted = high && bits ? PyNumber_Lshift(high, bits) : NULL;
    PyObject *whole = shifted && low ? PyNumber_Or(shifted, low) : NULL;

    Py_XDECREF(high);
    Py_XDECREF(low);
    Py_XDECREF(bits);
    Py_XDECREF(shifted);
    return whole;
}

static bool to_i128(PyObject *value, lp_i128 *out)
{
    int overflow = 0;
    long long small = PyLong_AsLongLongAndOverflow(value, &overflow);

    if (!overflow) {
        if (small == -1 && PyErr_Occurred())
            return false;
        *out = small;
        return true;
    }
    PyObject *bits = PyLong_FromLong(64);
    PyObject *high = bits ? PyNumber_Rshift(value, bits) : NULL;
    Py_XDECREF(bits);
    if (!high)
        return false;
    long long top = PyLong_AsLongLong(high); /* OverflowError beyond 128 bits */
    Py_DECREF(high);
    if (top == -1 && PyErr_Occurred())
        return false;
    unsigned long long low = PyLong_AsUnsignedLongLongMask(value);
    if (low == (unsigned long long)-1 && PyErr_Occurred())
        return false;
    *out = (lp_i128)top * ((lp_i128)1 << 64) + (lp_i128)low; /* a negative number cannot be shifted to the left */
    return true;
}

bool lp__py_to_u64(PyObject *value, uint64_t *out)
{
    unsigned long long number = PyLong_AsUnsignedLongLong(value); /* TypeError, OverflowError (also below 0) */

    if (number == (unsigned long long)-1 && PyErr_Occurred())
        return false;
    *out = number;
    return true;
}

bool lp__py_to_i64(PyObject *value, int64_t *out)
{
    long long number = PyLong_AsLongLong(value);

    if (number == -1 && PyErr_Occurred())
        return false;
    *out = number;
    return true;
}

bool lp__py_to_u32(PyObject *value, uint32_t *out)
{
    uint64_t number;

    if (!lp__py_to_u64(value, &number))
        return false;
    if (number > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a number is larger than 32 bits");
        return false;
    }
    *out = (uint32_t)number;
    return true;
}

/* --- histograms and counters --- */

/* Adds the cells to a dict, with the sign of the amounts. */
static bool add_cells(PyObject *dict, const lp_cells *cells, bool negative)
{
    for (uint32_t i = 0; i < cells->size; i++) {
        long cell = (long)cells->at[i].index;
        PyObject *key = PyLong_FromLong(negative ? -cell : cell);
        PyObject *count = key ? PyLong_FromUnsignedLongLong(cells->at[i].count) : NULL;
        int failed = count ? PyDict_SetItem(dict, key, count) : -1;
        Py_XDECREF(key);
        Py_XDECREF(count);
        if (failed)
            return false;
    }
    return true;
}

static PyObject *from_cells(const lp_cells *positive, const lp_cells *negative)
{
    PyObject *dict = PyDict_New();

    if (dict && add_cells(dict, positive, false) && (!negative || add_cells(dict, negative, true)))
        return dict;
    Py_XDECREF(dict);
    return NULL;
}

static int by_index(const void *a, const void *b)
{
    uint32_t left = ((const lp_cell *)a)->index, right = ((const lp_cell *)b)->index;

    return left < right ? -1 : left > right;
}

/* Takes the cells of one sign out of a dict. */
static bool to_cells(PyObject *dict, lp_arena *arena, bool negative, lp_cells *out)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    uint32_t size = 0;

    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "a histogram is a dict {cell: count}");
        return false;
    }
    lp_cell *cells = lp_arena_take(arena, ((size_t)PyDict_Size(dict) + 1) * sizeof *cells);
    if (!cells) {
        PyErr_NoMemory();
        return false;
    }
    while (PyDict_Next(dict, &at, &key, &value)) {
        int64_t cell;
        uint64_t count;
        if (!lp__py_to_i64(key, &cell) || !lp__py_to_u64(value, &count))
            return false;
        if (cell >= LP_HIST_CELLS || cell <= -(int64_t)LP_HIST_CELLS) {
            PyErr_Format(PyExc_ValueError, "no histogram cell: %lld", (long long)cell);
            return false;
        }
        if ((cell < 0) != negative || count == 0)
            continue;
        cells[size++] = (lp_cell){(uint32_t)(negative ? -cell : cell), count};
    }
    if (size > 1)
        qsort(cells, size, sizeof *cells, by_index);
    *out = (lp_cells){.at = cells, .size = size};
    return true;
}

static PyObject *from_counters(const lp_phase *phase)
{
    PyObject *dict = PyDict_New();

    for (uint32_t i = 0; dict && i < phase->counter_count; i++) {
        const lp_counter *counter = &phase->counters[i];
        PyObject *name = lp_py_from_str(counter->name);
        PyObject *total = name ? from_i128(counter->total) : NULL;
        PyObject *hist = total ? from_cells(&counter->positive, &counter->negative) : NULL;
        PyObject *row = hist ? Py_BuildValue("(KOLLO)", (unsigned long long)counter->calls, total,
                                             (long long)counter->min, (long long)counter->max, hist)
                             : NULL;
        if (!row || PyDict_SetItem(dict, name, row) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(name);
        Py_XDECREF(total);
        Py_XDECREF(hist);
        Py_XDECREF(row);
    }
    return dict;
}

static bool to_counter(lp_tree *tree, uint32_t phase, PyObject *name, PyObject *row)
{
    lp_counter *counter, made;
    lp_str text;

    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 5) {
        PyErr_SetString(PyExc_TypeError, "a counter is (calls, total, min, max, hist)");
        return false;
    }
    memset(&made, 0, sizeof made);
    if (!lp_py_to_str(name, tree->arena, &text) || !lp__py_to_u64(PyTuple_GET_ITEM(row, 0), &made.calls) ||
        !to_i128(PyTuple_GET_ITEM(row, 1), &made.total) || !lp__py_to_i64(PyTuple_GET_ITEM(row, 2), &made.min) ||
        !lp__py_to_i64(PyTuple_GET_ITEM(row, 3), &made.max) ||
        !to_cells(PyTuple_GET_ITEM(row, 4), tree->arena, false, &made.positive) ||
        !to_cells(PyTuple_GET_ITEM(row, 4), tree->arena, true, &made.negative))
        return false;
    if (lp_phase_counter(tree, phase, text, &counter) != LP_OK) {
        PyErr_NoMemory();
        return false;
    }
    made.name = counter->name;
    *counter = made;
    return true;
}

/* --- phases --- */

enum { ROW_PATH, ROW_FLAGS, ROW_FIRST_U64, ROW_STRIDE = 15, ROW_HIST, ROW_COUNTERS, ROW_SIZE };
_Static_assert((int)ROW_PATH == (int)LP__PY_ROW_PATH, "convert_worker.c reads the same column");

/* Columns ROW_FIRST_U64 … ROW_STRIDE - 1. */
static const size_t row_u64[] = {
    offsetof(lp_phase, entries),       offsetof(lp_phase, errors),      offsetof(lp_phase, abandoned),
    offsetof(lp_phase, async_entries), offsetof(lp_phase, io_missing),  offsetof(lp_phase, wall_ns),
    offsetof(lp_phase, child_ns),      offsetof(lp_phase, cpu_wall_ns), offsetof(lp_phase, cpu_ns),
    offsetof(lp_phase, split_wait_ns), offsetof(lp_phase, starved_ns),  offsetof(lp_phase, min_ns),
    offsetof(lp_phase, max_ns),
};
_Static_assert(sizeof row_u64 / sizeof *row_u64 == ROW_STRIDE - ROW_FIRST_U64, "one offset a column");

static uint64_t *u64_at(const void *base, size_t offset)
{
    return (uint64_t *)((uintptr_t)base + offset);
}

/* `path` is borrowed. */
static PyObject *from_phase(const lp_phase *phase, PyObject *path)
{
    PyObject *row = PyTuple_New(ROW_SIZE);

    if (!row)
        return NULL;
    Py_INCREF(path);
    PyTuple_SET_ITEM(row, ROW_PATH, path);
    PyTuple_SET_ITEM(row, ROW_FLAGS, PyLong_FromUnsignedLong(phase->flags));
    for (Py_ssize_t i = ROW_FIRST_U64; i < ROW_STRIDE; i++)
        PyTuple_SET_ITEM(row, i, PyLong_FromUnsignedLongLong(*u64_at(phase, row_u64[i - ROW_FIRST_U64])));
    PyTuple_SET_ITEM(row, ROW_STRIDE, PyLong_FromUnsignedLong(phase->stride));
    PyTuple_SET_ITEM(row, ROW_HIST, from_cells(&phase->hist, NULL));
    PyTuple_SET_ITEM(row, ROW_COUNTERS, from_counters(phase));
    for (Py_ssize_t i = 0; i < ROW_SIZE; i++)
        if (!PyTuple_GET_ITEM(row, i)) {
            Py_DECREF(row);
            return NULL;
        }
    return row;
}

/* parent's path + (name,) */
static PyObject *path_below(PyObject *parent, lp_str name)
{
    Py_ssize_t depth = PyTuple_GET_SIZE(parent);
    PyObject *path = PyTuple_New(depth + 1);
    PyObject *text = path ? lp_py_from_str(name) : NULL;

    if (!text) {
        Py_XDECREF(path);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < depth; i++) {
        Py_INCREF(PyTuple_GET_ITEM(parent, i));
        PyTuple_SET_ITEM(path, i, PyTuple_GET_ITEM(parent, i));
    }
    PyTuple_SET_ITEM(path, depth, text);
    return path;
}

PyObject *lp_py_from_tree(const lp_tree *tree)
{
    PyObject *rows = PyList_New(0);

    for (uint32_t i = 0; rows && i < tree->count; i++) {
        const lp_phase *phase = &tree->phases[i];
        if (i > 0 && phase->parent >= i) {
            PyErr_SetString(PyExc_ValueError, "a phase stands before its parent");
            Py_CLEAR(rows);
            break;
        }
        /* The parent stands before its child, so its row has the path already. */
        PyObject *path =
            i == 0 ? PyTuple_New(0)
                   : path_below(PyTuple_GET_ITEM(PyList_GET_ITEM(rows, phase->parent), ROW_PATH), phase->name);
        PyObject *row = path ? from_phase(phase, path) : NULL;
        if (!row || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(path);
        Py_XDECREF(row);
    }
    return rows;
}

/* Index of the phase with this path, made where it is missing. */
bool lp__py_phase_of(lp_tree *tree, PyObject *path, uint32_t *index)
{
    uint32_t at = 0;

    if (!PyTuple_Check(path)) {
        PyErr_SetString(PyExc_TypeError, "a path is a tuple of names");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(path); i++) {
        lp_str name;
        if (!lp_py_to_str(PyTuple_GET_ITEM(path, i), tree->arena, &name))
            return false;
        if (lp_tree_child(tree, at, name, &at) != LP_OK) {
            PyErr_NoMemory();
            return false;
        }
    }
    *index = at;
    return true;
}

static bool to_phase(lp_tree *tree, PyObject *row)
{
    PyObject *name, *counter;
    Py_ssize_t at = 0;
    uint32_t index;
    lp_phase made;

    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != ROW_SIZE ||
        !PyDict_Check(PyTuple_GET_ITEM(row, ROW_COUNTERS))) {
        PyErr_SetString(PyExc_TypeError, "not a row of a tree");
        return false;
    }
    if (!lp__py_phase_of(tree, PyTuple_GET_ITEM(row, ROW_PATH), &index))
        return false;
    made = tree->phases[index];
    if (!lp__py_to_u32(PyTuple_GET_ITEM(row, ROW_FLAGS), &made.flags) ||
        !lp__py_to_u32(PyTuple_GET_ITEM(row, ROW_STRIDE), &made.stride) ||
        !to_cells(PyTuple_GET_ITEM(row, ROW_HIST), tree->arena, false, &made.hist))
        return false;
    for (Py_ssize_t i = ROW_FIRST_U64; i < ROW_STRIDE; i++)
        if (!lp__py_to_u64(PyTuple_GET_ITEM(row, i), u64_at(&made, row_u64[i - ROW_FIRST_U64])))
            return false;
    tree->phases[index] = made;
    while (PyDict_Next(PyTuple_GET_ITEM(row, ROW_COUNTERS), &at, &name, &counter))
        if (!to_counter(tree, index, name, counter))
            return false;
    return true;
}

bool lp_py_to_tree(PyObject *rows, lp_tree *tree)
{
    if (!PyList_Check(rows)) {
        PyErr_SetString(PyExc_TypeError, "a tree is a list of rows");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(rows); i++)
        if (!to_phase(tree, PyList_GET_ITEM(rows, i)))
            return false;
    return true;
}
