/* Workers and trees as plain Python data, and back. Both directions read the same tables of fields. */
#include "python/convert.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/hist.h"
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
        PyErr_Clear();
        made = PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size, "backslashreplace");
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
    *out = ((lp_i128)top << 64) | (lp_i128)low;
    return true;
}

static bool to_u64(PyObject *value, uint64_t *out)
{
    unsigned long long number = PyLong_AsUnsignedLongLong(value); /* TypeError, OverflowError (also below 0) */

    if (number == (unsigned long long)-1 && PyErr_Occurred())
        return false;
    *out = number;
    return true;
}

static bool to_i64(PyObject *value, int64_t *out)
{
    long long number = PyLong_AsLongLong(value);

    if (number == -1 && PyErr_Occurred())
        return false;
    *out = number;
    return true;
}

static bool to_u32(PyObject *value, uint32_t *out)
{
    uint64_t number;

    if (!to_u64(value, &number))
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
        if (!to_i64(key, &cell) || !to_u64(value, &count))
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
    if (!lp_py_to_str(name, tree->arena, &text) || !to_u64(PyTuple_GET_ITEM(row, 0), &made.calls) ||
        !to_i128(PyTuple_GET_ITEM(row, 1), &made.total) || !to_i64(PyTuple_GET_ITEM(row, 2), &made.min) ||
        !to_i64(PyTuple_GET_ITEM(row, 3), &made.max) ||
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
static bool phase_of(lp_tree *tree, PyObject *path, uint32_t *index)
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
    if (!phase_of(tree, PyTuple_GET_ITEM(row, ROW_PATH), &index))
        return false;
    made = tree->phases[index];
    if (!to_u32(PyTuple_GET_ITEM(row, ROW_FLAGS), &made.flags) ||
        !to_u32(PyTuple_GET_ITEM(row, ROW_STRIDE), &made.stride) ||
        !to_cells(PyTuple_GET_ITEM(row, ROW_HIST), tree->arena, false, &made.hist))
        return false;
    for (Py_ssize_t i = ROW_FIRST_U64; i < ROW_STRIDE; i++)
        if (!to_u64(PyTuple_GET_ITEM(row, i), u64_at(&made, row_u64[i - ROW_FIRST_U64])))
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

/* --- workers --- */

typedef enum kind { TEXT, I64, U64, U32, BOOL } kind; /* I64: LP_UNKNOWN_I64 is None */

typedef struct field {
    const char *key;
    kind kind;
    size_t offset; /* in lp_worker */
} field;

#define FIELD(kind, member) {#member, kind, offsetof(lp_worker, member)}
#define OF_ID(kind, member) {#member, kind, offsetof(lp_worker, id.member)}
#define OF_HEALTH(kind, member) {#member, kind, offsetof(lp_worker, health.member)}
#define OF_HARDWARE(kind, member) {#member, kind, offsetof(lp_worker, id.hardware.member)}

static const field worker_fields[] = {
    OF_ID(TEXT, host),
    OF_ID(TEXT, boot_id),
    OF_ID(TEXT, uuid),
    OF_ID(I64, pid),
    OF_ID(I64, pid_start),
    OF_ID(U64, started_ns),
    OF_ID(TEXT, run_id),
    OF_ID(TEXT, role),
    OF_ID(U64, run_started_ns),
    OF_ID(I64, rank),
    OF_ID(I64, local_rank),
    OF_ID(I64, world_size),
    OF_ID(TEXT, job_id),
    OF_ID(TEXT, launcher),
    OF_ID(U64, run_dir_dev),
    OF_ID(U64, run_dir_ino),
    OF_ID(U64, pid_ns),
    OF_ID(U64, mnt_ns),
    OF_ID(TEXT, python),
    OF_ID(TEXT, platform),
    OF_ID(TEXT, source_commit),
    OF_ID(I64, source_dirty),
    OF_ID(TEXT, source_diff),
    FIELD(U64, written_ns),
    FIELD(U64, elapsed_ns),
    FIELD(U32, generation),
    FIELD(BOOL, final),
    FIELD(BOOL, unclean),
    FIELD(BOOL, living),
    FIELD(TEXT, clock),
    FIELD(TEXT, cpu_source),
    FIELD(TEXT, split_source),
    FIELD(TEXT, segment_place),
    FIELD(U64, own_cost_ps),
    FIELD(U64, own_count_cost_ps),
    FIELD(U32, threads),
    FIELD(TEXT, path),
};
static const field health_fields[] = {
    OF_HEALTH(U64, folded_paths),  OF_HEALTH(U64, folded_depth),    OF_HEALTH(U64, lost_entries),
    OF_HEALTH(U64, misuse),        OF_HEALTH(U64, write_failures),  OF_HEALTH(U64, callback_failures),
    OF_HEALTH(U64, foreign_exits), OF_HEALTH(U64, clock_backwards), OF_HEALTH(TEXT, first_folded),
    OF_HEALTH(TEXT, last_error),
};
static const field hardware_fields[] = {
    OF_HARDWARE(I64, cpu_cores),
    OF_HARDWARE(I64, cpu_threads),
    OF_HARDWARE(I64, cpu_affinity),
    OF_HARDWARE(I64, ram_total),
};
#define COUNT(table) (sizeof(table) / sizeof *(table))

static PyObject *from_field(const lp_worker *worker, const field *of)
{
    const char *at = (const char *)worker + of->offset;

    switch (of->kind) {
    case TEXT: return lp_py_from_str(*(const lp_str *)(const void *)at);
    case I64: {
        int64_t value = *(const int64_t *)(const void *)at;
        if (value == LP_UNKNOWN_I64)
            Py_RETURN_NONE;
        return PyLong_FromLongLong(value);
    }
    case U64: return PyLong_FromUnsignedLongLong(*(const uint64_t *)(const void *)at);
    case U32: return PyLong_FromUnsignedLong(*(const uint32_t *)(const void *)at);
    case BOOL: return PyBool_FromLong(*(const bool *)(const void *)at);
    }
    Py_UNREACHABLE();
}

static bool to_field(PyObject *value, lp_worker *worker, const field *of)
{
    void *at = (char *)worker + of->offset;

    switch (of->kind) {
    case TEXT: return lp_py_to_str(value, worker->arena, at);
    case I64:
        if (value == Py_None) {
            *(int64_t *)at = LP_UNKNOWN_I64;
            return true;
        }
        return to_i64(value, at);
    case U64: return to_u64(value, at);
    case U32: return to_u32(value, at);
    case BOOL: {
        int truth = PyObject_IsTrue(value);
        *(bool *)at = truth > 0;
        return truth >= 0;
    }
    }
    Py_UNREACHABLE();
}

/* Steals `value`, which may be NULL (an exception is set then). */
static bool put(PyObject *dict, const char *key, PyObject *value)
{
    int failed = value ? PyDict_SetItemString(dict, key, value) : -1;

    Py_XDECREF(value);
    return !failed;
}

static bool put_fields(PyObject *dict, const lp_worker *worker, const field *table, size_t count, bool skip_none)
{
    for (size_t i = 0; i < count; i++) {
        PyObject *value = from_field(worker, &table[i]);
        if (skip_none && value == Py_None) {
            Py_DECREF(value);
            continue;
        }
        if (!put(dict, table[i].key, value))
            return false;
    }
    return true;
}

static bool take_fields(PyObject *dict, lp_worker *worker, const field *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        PyObject *value = PyDict_GetItemString(dict, table[i].key); /* borrowed */
        if (value && !to_field(value, worker, &table[i]))
            return false;
    }
    return true;
}

static PyObject *from_strings(const lp_str *texts, uint32_t count)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *text = lp_py_from_str(texts[i]);
        if (!text || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *from_pairs(const lp_pair *pairs, uint32_t count)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *pair = Py_BuildValue("(NN)", lp_py_from_str(pairs[i].key), lp_py_from_str(pairs[i].value));
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *from_hardware(const lp_worker *worker)
{
    const lp_hardware *hardware = &worker->id.hardware;
    PyObject *dict = PyDict_New();
    PyObject *gpus = PyList_New(0);
    bool good = dict && gpus && put_fields(dict, worker, hardware_fields, COUNT(hardware_fields), true);

    for (uint32_t i = 0; good && i < hardware->gpu_count; i++) {
        const lp_gpu_info *gpu = &hardware->gpus[i];
        PyObject *entry = Py_BuildValue("{sLsNsL}", "index", (long long)gpu->index, "name", lp_py_from_str(gpu->name),
                                        "vram_total", (long long)gpu->vram_total);
        good = entry && PyList_Append(gpus, entry) == 0;
        Py_XDECREF(entry);
    }
    if (good && hardware->gpu_count > 0)
        good = PyDict_SetItemString(dict, "gpus", gpus) == 0;
    Py_XDECREF(gpus);
    if (good)
        return dict;
    Py_XDECREF(dict);
    return NULL;
}

static PyObject *from_health(const lp_worker *worker)
{
    PyObject *dict = PyDict_New();

    if (dict && put_fields(dict, worker, health_fields, COUNT(health_fields), false))
        return dict;
    Py_XDECREF(dict);
    return NULL;
}

/* (path, since_ns, open_ns, thread, tid); the paths are those of the rows. */
static PyObject *from_open(const lp_worker *worker, PyObject *rows)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < worker->open_count; i++) {
        const lp_open *open = &worker->open[i];
        if (open->phase >= worker->tree.count)
            continue;
        PyObject *entry = Py_BuildValue("(OKKNK)", PyTuple_GET_ITEM(PyList_GET_ITEM(rows, open->phase), ROW_PATH),
                                        (unsigned long long)open->since_ns, (unsigned long long)open->open_ns,
                                        lp_py_from_str(open->thread), (unsigned long long)open->tid);
        if (!entry || PyList_Append(list, entry) < 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

PyObject *lp_py_from_worker(const lp_worker *worker)
{
    const lp_identity *id = &worker->id;
    PyObject *dict = PyDict_New();
    PyObject *rows = lp_py_from_tree(&worker->tree);
    bool good = dict && rows && put_fields(dict, worker, worker_fields, COUNT(worker_fields), false) &&
                put(dict, "argv", from_strings(id->argv, id->argv_count)) &&
                put(dict, "source_extra", from_pairs(id->source_extra, id->source_extra_count)) &&
                put(dict, "options", from_pairs(id->options, id->option_count)) &&
                put(dict, "hardware", from_hardware(worker)) && put(dict, "health", from_health(worker)) &&
                put(dict, "open", from_open(worker, rows)) && PyDict_SetItemString(dict, "tree", rows) == 0;

    Py_XDECREF(rows);
    if (good)
        return dict;
    Py_XDECREF(dict);
    return NULL;
}

/* --- workers, back --- */

/* A list under `key`, or NULL without exception if the key is missing; borrowed. */
static PyObject *list_of(PyObject *dict, const char *key, bool *good)
{
    PyObject *list = PyDict_GetItemString(dict, key);

    if (list && !PyList_Check(list)) {
        PyErr_Format(PyExc_TypeError, "%s is not a list", key);
        *good = false;
        return NULL;
    }
    return list;
}

static void *take(lp_worker *worker, Py_ssize_t count, size_t size)
{
    void *memory = lp_arena_take(worker->arena, ((size_t)count + 1) * size);

    if (!memory)
        PyErr_NoMemory();
    return memory;
}

static bool to_strings(PyObject *dict, const char *key, lp_worker *worker, lp_str **texts, uint32_t *count)
{
    bool good = true;
    PyObject *list = list_of(dict, key, &good);

    if (!list)
        return good;
    *texts = take(worker, PyList_GET_SIZE(list), sizeof **texts);
    if (!*texts)
        return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        if (!lp_py_to_str(PyList_GET_ITEM(list, i), worker->arena, &(*texts)[i]))
            return false;
        *count = (uint32_t)i + 1;
    }
    return true;
}

static bool to_pairs(PyObject *dict, const char *key, lp_worker *worker, lp_pair **pairs, uint32_t *count)
{
    bool good = true;
    PyObject *list = list_of(dict, key, &good);

    if (!list)
        return good;
    *pairs = take(worker, PyList_GET_SIZE(list), sizeof **pairs);
    if (!*pairs)
        return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *pair = PyList_GET_ITEM(list, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_Format(PyExc_TypeError, "%s holds pairs of texts", key);
            return false;
        }
        if (!lp_py_to_str(PyTuple_GET_ITEM(pair, 0), worker->arena, &(*pairs)[i].key) ||
            !lp_py_to_str(PyTuple_GET_ITEM(pair, 1), worker->arena, &(*pairs)[i].value))
            return false;
        *count = (uint32_t)i + 1;
    }
    return true;
}

static bool to_gpu(PyObject *entry, lp_arena *arena, lp_gpu_info *gpu)
{
    PyObject *index, *name, *vram;

    if (!PyDict_Check(entry)) {
        PyErr_SetString(PyExc_TypeError, "gpus holds dicts");
        return false;
    }
    index = PyDict_GetItemString(entry, "index");
    name = PyDict_GetItemString(entry, "name");
    vram = PyDict_GetItemString(entry, "vram_total");
    *gpu = (lp_gpu_info){LP_UNKNOWN_I64, {"", 0}, LP_UNKNOWN_I64};
    return (!index || to_i64(index, &gpu->index)) && (!name || lp_py_to_str(name, arena, &gpu->name)) &&
           (!vram || to_i64(vram, &gpu->vram_total));
}

static bool to_hardware(PyObject *dict, lp_worker *worker)
{
    lp_hardware *hardware = &worker->id.hardware;
    PyObject *data = PyDict_GetItemString(dict, "hardware");
    bool good = true;

    if (!data)
        return true;
    if (!PyDict_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "hardware is not a dict");
        return false;
    }
    PyObject *gpus = list_of(data, "gpus", &good);
    if (!good || !take_fields(data, worker, hardware_fields, COUNT(hardware_fields)))
        return false;
    if (!gpus || PyList_GET_SIZE(gpus) == 0)
        return true;
    hardware->gpus = take(worker, PyList_GET_SIZE(gpus), sizeof *hardware->gpus);
    if (!hardware->gpus)
        return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(gpus); i++) {
        if (!to_gpu(PyList_GET_ITEM(gpus, i), worker->arena, &hardware->gpus[i]))
            return false;
        hardware->gpu_count = (uint32_t)i + 1;
    }
    return true;
}

static bool to_open(PyObject *dict, lp_worker *worker)
{
    bool good = true;
    PyObject *list = list_of(dict, "open", &good);

    if (!list)
        return good;
    worker->open = take(worker, PyList_GET_SIZE(list), sizeof *worker->open);
    if (!worker->open)
        return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *entry = PyList_GET_ITEM(list, i);
        lp_open *open = &worker->open[i];
        if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 5) {
            PyErr_SetString(PyExc_TypeError, "an open phase is (path, since_ns, open_ns, thread, tid)");
            return false;
        }
        if (!phase_of(&worker->tree, PyTuple_GET_ITEM(entry, 0), &open->phase) ||
            !to_u64(PyTuple_GET_ITEM(entry, 1), &open->since_ns) ||
            !to_u64(PyTuple_GET_ITEM(entry, 2), &open->open_ns) ||
            !lp_py_to_str(PyTuple_GET_ITEM(entry, 3), worker->arena, &open->thread) ||
            !to_u64(PyTuple_GET_ITEM(entry, 4), &open->tid))
            return false;
        worker->open_count = (uint32_t)i + 1;
    }
    return true;
}

static bool fill_worker(PyObject *data, lp_worker *worker)
{
    static const field *const tables[] = {worker_fields, health_fields, hardware_fields};
    static const size_t sizes[] = {COUNT(worker_fields), COUNT(health_fields), COUNT(hardware_fields)};
    lp_identity *id = &worker->id;

    for (size_t t = 0; t < COUNT(tables); t++)
        for (size_t i = 0; i < sizes[t]; i++) {
            void *at = (char *)worker + tables[t][i].offset;
            if (tables[t][i].kind == TEXT)
                *(lp_str *)at = (lp_str){"", 0};
            else if (tables[t][i].kind == I64)
                *(int64_t *)at = LP_UNKNOWN_I64;
        }
    PyObject *health = PyDict_GetItemString(data, "health");
    if (health && !PyDict_Check(health)) {
        PyErr_SetString(PyExc_TypeError, "health is not a dict");
        return false;
    }
    PyObject *tree = PyDict_GetItemString(data, "tree");
    return take_fields(data, worker, worker_fields, COUNT(worker_fields)) &&
           (!health || take_fields(health, worker, health_fields, COUNT(health_fields))) &&
           to_strings(data, "argv", worker, &id->argv, &id->argv_count) &&
           to_pairs(data, "source_extra", worker, &id->source_extra, &id->source_extra_count) &&
           to_pairs(data, "options", worker, &id->options, &id->option_count) && to_hardware(data, worker) &&
           (!tree || lp_py_to_tree(tree, &worker->tree)) && to_open(data, worker);
}

lp_worker *lp_py_to_worker(PyObject *data)
{
    if (!PyDict_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "a worker is a dict");
        return NULL;
    }
    lp_worker *worker = lp_worker_new();
    if (!worker) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!fill_worker(data, worker)) {
        lp_worker_free(worker);
        return NULL;
    }
    return worker;
}
