/* Samples for Python: files into rows, rows into figures, and one look at the own process. The figures are those of
 * analysis/usage.h, so that a program's own analysis and the report cannot disagree. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "analysis/usage.h"
#include "python/convert.h"
#include "python/run_api.h"
#include "sample/process.h"
#include "store/arena.h"

#define SERIES_MAX 65536 /* columns of a series */

/* --- files into rows --- */

static PyObject *known(const lp_sample_batch *batch, lp_column column, uint32_t row, long long unit)
{
    int64_t value = batch->value[column] ? batch->value[column][row] : LP_UNKNOWN_I64;

    if (value == LP_UNKNOWN_I64)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(value * unit);
}

/* The path with the most of the row, names from the top down; () if none was open. */
static PyObject *path_of(const lp_samples *file, const lp_sample_batch *batch, uint32_t row)
{
    uint32_t best = 0, parts = 0, left = LP_SAMPLE_WHOLE, depth = 0;
    lp_str name;

    for (uint32_t i = row ? batch->share_end[row - 1] : 0; i < batch->share_end[row]; i++) {
        left -= batch->shares[i].parts < left ? batch->shares[i].parts : left;
        if (batch->shares[i].parts > parts) {
            best = batch->shares[i].path;
            parts = batch->shares[i].parts;
        }
    }
    if (left > parts)
        best = 0;
    for (uint32_t at = best, parent; at != 0 && lp_samples_path(file, at, &parent, &name); at = parent)
        depth++;
    PyObject *path = PyTuple_New(depth);
    for (uint32_t at = best, parent; path && depth > 0 && lp_samples_path(file, at, &parent, &name); at = parent) {
        PyObject *text = lp_py_from_str(name);
        if (!text)
            Py_CLEAR(path);
        else
            PyTuple_SET_ITEM(path, --depth, text);
    }
    return path;
}

static bool append(PyObject *list, PyObject *item) /* steals it */
{
    bool done = item && PyList_Append(list, item) == 0;

    Py_XDECREF(item);
    return done;
}

static const lp_column process_columns[] = {
    LP_COLUMN_RSS,         LP_COLUMN_READ_BYTES, LP_COLUMN_WRITE_BYTES,     LP_COLUMN_READ_CHARS,
    LP_COLUMN_WRITE_CHARS, LP_COLUMN_CPU,        LP_COLUMN_TORCH_ALLOCATED, LP_COLUMN_TORCH_RESERVED};
static const lp_column device_columns[] = {LP_COLUMN_GPU_BUSY, LP_COLUMN_GPU_OURS_BUSY, LP_COLUMN_GPU_OURS_MEMORY};

static long long unit_of(lp_column column)
{
    return strcmp(lp_column_table[column].unit, "KiB") == 0 ? 1024 : 1;
}

/* (t, path or device, value, …): numbers in bytes, us or 1/1000, None where they were not measured. t is of CLOCK_MONOTONIC,
 * in seconds: the time of day may be set between two rows. */
static PyObject *row_of(const lp_sample_batch *batch, uint32_t row, PyObject *second, const lp_column *columns,
                        size_t count)
{
    PyObject *made = second ? PyTuple_New((Py_ssize_t)count + 2) : NULL;
    double t = (double)batch->mono_ns / 1e9 + (double)batch->time_us[row] / 1e6;

    if (!made) {
        Py_XDECREF(second);
        return NULL;
    }
    PyTuple_SET_ITEM(made, 1, second);
    PyObject *item = PyFloat_FromDouble(t);
    for (size_t i = 0; item; i++) {
        PyTuple_SET_ITEM(made, i == 0 ? 0 : (Py_ssize_t)i + 1, item);
        if (i == count)
            return made;
        item = known(batch, columns[i], row, unit_of(columns[i]));
    }
    Py_DECREF(made);
    return NULL;
}

static bool take_batch(const lp_samples *file, const lp_sample_batch *batch, PyObject *rows, PyObject *devices)
{
    bool device = batch->series == LP_SERIES_GPU || batch->series == LP_SERIES_PROCESS_GPU;

    for (uint32_t row = 0; row < batch->rows; row++) {
        if (device && !append(devices, row_of(batch, row, PyLong_FromUnsignedLong(batch->index), device_columns,
                                              sizeof device_columns / sizeof *device_columns)))
            return false;
        if (batch->series == LP_SERIES_PROCESS &&
            !append(rows, row_of(batch, row, path_of(file, batch, row), process_columns,
                                 sizeof process_columns / sizeof *process_columns)))
            return false;
    }
    return true;
}

/* One file as (uuid, run_id, host, boot_id, is of a host, interval_s, Unix time less t at its first row, rows, device rows). Without
 * `whole` no rows. */
static PyObject *file_of(const char *path, bool whole)
{
    lp_samples *file = NULL;
    const lp_sample_batch *batch = NULL;
    lp_error error = {.offset = UINT64_MAX};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    PyObject *rows = PyList_New(0), *devices = PyList_New(0), *made = NULL;
    double place_s = 0.0;

    if (fd < 0) {
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    } else if (rows && devices) {
        lp_status status = lp_samples_open(fd, path, &file, &error);
        bool good = status == LP_OK;
        for (bool first = true; good && whole && (status = lp_samples_next(file, &batch, &error)) == LP_OK && batch;
             first = false) {
            if (first)
                place_s = (double)(int64_t)(batch->unix_ns - batch->mono_ns) / 1e9;
            good = take_batch(file, batch, rows, devices);
        }
        if (status != LP_OK)
            lp_py_raise(status, &error);
        else if (good)
            made = Py_BuildValue("(NNNNOddOO)", lp_py_from_str(lp_samples_identity(file)->uuid),
                                 lp_py_from_str(lp_samples_identity(file)->run_id),
                                 lp_py_from_str(lp_samples_identity(file)->host),
                                 lp_py_from_str(lp_samples_identity(file)->boot_id),
                                 lp_samples_series(file) == LP_SERIES_HOST ? Py_True : Py_False,
                                 (double)lp_samples_interval_ns(file) / 1e9, place_s, rows, devices);
        lp_samples_close(file);
    }
    if (fd >= 0)
        close(fd);
    Py_XDECREF(rows);
    Py_XDECREF(devices);
    return made;
}

static PyObject *read_samples(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *path;
    int whole;

    if (!PyArg_ParseTuple(args, "O&p:read_samples", PyUnicode_FSConverter, &path, &whole))
        return NULL;
    PyObject *made = file_of(PyBytes_AS_STRING(path), whole != 0);
    Py_DECREF(path);
    return made;
}

static PyObject *list_samples(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *directory;
    lp_sample_files files;

    if (!PyArg_ParseTuple(args, "O&:list_samples", PyUnicode_FSConverter, &directory))
        return NULL;
    lp_arena *arena = lp_arena_new();
    lp_status status = arena ? lp_samples_list(PyBytes_AS_STRING(directory), arena, &files) : LP_E_MEMORY;
    PyObject *list = status == LP_OK ? PyList_New(0) : lp_py_raise(status, NULL);
    for (uint32_t i = 0; list && i < files.count; i++)
        if (!append(list, lp_py_from_path(files.paths[i].data)))
            Py_CLEAR(list);
    lp_arena_free(arena);
    Py_DECREF(directory);
    return list;
}

/* --- the own process --- */

static PyObject *sample_self(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    lp_process process = {0};
    lp_sample sample;
    unsigned budget = 0;
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lp_reason reason = root < 0 ? LP_REASON_FAILED : lp_process_open(&process, root, getpid(), 0, true);

    lp_sample_init(&sample);
    if (reason == LP_REASON_NONE) {
        reason = lp_process_sample(&process, &sample, &budget);
        lp_process_close(&process);
    }
    if (root >= 0)
        close(root);
    if (reason != LP_REASON_NONE)
        return PyErr_Format(PyExc_OSError, "cannot read this process's figures: %s", lp_reason_text(reason));
    PyObject *made = PyTuple_New(6);
    for (Py_ssize_t i = 0; made && i < 6; i++) {
        int64_t value = sample.value[process_columns[i]];
        PyObject *item =
            value == LP_UNKNOWN_I64 ? Py_NewRef(Py_None) : PyLong_FromLongLong(value * unit_of(process_columns[i]));
        if (!item)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, i, item);
    }
    return made;
}

/* --- rows into figures --- */

static bool fail(lp_status status)
{
    if (!PyErr_Occurred())
        lp_py_raise(status, NULL);
    return false;
}

static const lp_column given[] = {LP_COLUMN_RSS,        LP_COLUMN_READ_BYTES,  LP_COLUMN_WRITE_BYTES,
                                  LP_COLUMN_READ_CHARS, LP_COLUMN_WRITE_CHARS, LP_COLUMN_CPU};
#define GIVEN (sizeof given / sizeof *given)

typedef struct table { /* one process; in the arena */
    uint64_t *time_us;
    int64_t *value[GIVEN];
    lp_share *shares;
    uint32_t *share_end;
    lp_str *names;
} table;

static bool new_table(lp_arena *arena, size_t rows, table *to)
{
    to->time_us = lp_arena_take(arena, (rows + 1) * sizeof *to->time_us);
    to->shares = lp_arena_take(arena, (rows + 1) * sizeof *to->shares);
    to->share_end = lp_arena_take(arena, (rows + 1) * sizeof *to->share_end);
    to->names = lp_arena_take(arena, (rows + 1) * sizeof *to->names);
    for (size_t i = 0; i < GIVEN; i++)
        if (!(to->value[i] = lp_arena_take(arena, (rows + 1) * sizeof **to->value)))
            return fail(LP_E_MEMORY);
    return (to->time_us && to->shares && to->share_end && to->names) || fail(LP_E_MEMORY);
}

/* `seen` maps texts to numbers; "" is 0. */
static bool path_number(PyObject *phase, PyObject *seen, lp_arena *arena, lp_usage_rows *rows, lp_str *names,
                        uint32_t *number)
{
    PyObject *before = PyDict_GetItemWithError(seen, phase);

    if (before) {
        *number = (uint32_t)PyLong_AsUnsignedLong(before);
        return true;
    }
    *number = PyUnicode_GetLength(phase) > 0 ? rows->name_count + 1 : 0;
    if (PyErr_Occurred() || (*number && !lp_py_to_str(phase, arena, &names[rows->name_count])))
        return false;
    rows->name_count = *number ? *number : rows->name_count;
    PyObject *value = PyLong_FromUnsignedLong(*number);
    bool done = value && PyDict_SetItem(seen, phase, value) == 0;
    Py_XDECREF(value);
    return done;
}

/* (t, phase, rss, read_bytes, write_bytes, read_chars, write_chars, cpu_us); -1: not measured. */
static bool put_row(PyObject *row, PyObject *seen, lp_arena *arena, lp_usage_rows *rows, const table *to, double *last)
{
    double t;
    PyObject *phase;
    long long value[GIVEN];
    uint32_t at = rows->batch.rows, path = 0, shares = at ? to->share_end[at - 1] : 0;

    if (!PyTuple_Check(row)) {
        PyErr_SetString(PyExc_TypeError, "rows are tuples");
        return false;
    }
    if (!PyArg_ParseTuple(row, "dULLLLLL", &t, &phase, &value[0], &value[1], &value[2], &value[3], &value[4],
                          &value[5]) ||
        !path_number(phase, seen, arena, rows, to->names, &path))
        return false;
    if (!(t >= 0.0 && t < 1e10) || (at > 0 && !(t > *last))) {
        PyErr_SetString(PyExc_ValueError, "times of samples are Unix seconds, each later than the one before");
        return false;
    }
    *last = t;
    if (at == 0)
        rows->batch.unix_ns = rows->batch.mono_ns = (uint64_t)(t * 1e9 + 0.5);
    to->time_us[at] = (uint64_t)((t - (double)rows->batch.unix_ns / 1e9) * 1e6 + 0.5);
    for (size_t i = 0; i < GIVEN; i++)
        to->value[i][at] = value[i] >= 0 ? value[i] : LP_UNKNOWN_I64;
    if (path)
        to->shares[shares++] = (lp_share){path, LP_SAMPLE_WHOLE};
    to->share_end[at] = shares;
    rows->batch.rows++;
    return true;
}

static bool put_process(PyObject *list, lp_arena *arena, lp_usage_rows *rows, double *first, double *last)
{
    PyObject *seen = PyDict_New();
    table to;
    bool good = seen && new_table(arena, (size_t)PyList_GET_SIZE(list), &to);

    *first = *last = 0.0;
    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(list); i++) {
        good = put_row(PyList_GET_ITEM(list, i), seen, arena, rows, &to, last);
        *first = i == 0 ? *last : *first;
    }
    Py_XDECREF(seen);
    if (!good)
        return false;
    rows->batch.series = LP_SERIES_PROCESS;
    rows->batch.time_us = to.time_us;
    rows->batch.shares = to.shares;
    rows->batch.share_end = to.share_end;
    rows->names = to.names;
    for (size_t i = 0; i < GIVEN; i++)
        rows->batch.value[given[i]] = to.value[i];
    return true;
}

static bool add_worker(lp_run *run, Py_ssize_t index, double first, double last)
{
    lp_worker *worker = lp_worker_new();
    char uuid[33];

    if (!worker)
        return fail(LP_E_MEMORY);
    snprintf(uuid, sizeof uuid, "%032llx", (unsigned long long)index);
    worker->id.uuid = lp_arena_str(worker->arena, uuid, 32);
    worker->id.started_ns = worker->id.run_started_ns = (uint64_t)(first * 1e9 + 0.5);
    worker->elapsed_ns = last > first ? (uint64_t)((last - first) * 1e9) : 0;
    worker->written_ns = worker->id.started_ns + worker->elapsed_ns;
    worker->final = true;
    lp_status status = lp_run_add(run, worker, false);
    lp_worker_free(worker);
    return status == LP_OK || fail(status);
}

static PyObject *series(const lp_usage *usage, const double *bins, Py_ssize_t width)
{
    double *out = malloc(((size_t)width + 1) * sizeof *out);
    PyObject *list = out ? PyList_New(width) : PyErr_NoMemory();

    if (list && width > 0)
        lp_usage_series(usage, bins, true, (uint32_t)width, out);
    for (Py_ssize_t i = 0; list && i < width; i++) {
        PyObject *item = PyFloat_FromDouble(isnan(out[i]) ? 0.0 : out[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    free(out);
    return list;
}

static PyObject *phases(const lp_usage *usage)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < usage->phase_count; i++) {
        const lp_usage_phase *phase = &usage->phases[i];
        PyObject *row = Py_BuildValue("(NOddddddd)", lp_py_from_str(phase->path), phase->none ? Py_True : Py_False,
                                      phase->seconds, phase->cpu_s, phase->io.read, phase->io.write,
                                      phase->io.read_chars, phase->io.write_chars, phase->rss_growth);
        if (!append(list, row))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *figures(const lp_usage *usage, Py_ssize_t width)
{
    const lp_usage_trend *trend = usage->process_count == 1 ? &usage->processes[0].rss : &usage->rss;

    return Py_BuildValue("{s:(dddd),s:d,s:N,s:(dddd),s:(ddd),s:d,s:N,s:N,s:d,s:d}", "io", usage->io.read,
                         usage->io.write, usage->io.read_chars, usage->io.write_chars, "seconds", usage->covered_s,
                         "phases", phases(usage), "memory", trend->first, trend->last, usage->rss_peak, trend->slope,
                         "cpu", usage->cpu_peak, usage->cpu_mean, usage->cpu_max_process, "rss_max_process",
                         usage->rss_max_process, "read_series", series(usage, usage->read_bins, width), "write_series",
                         series(usage, usage->write_bins, width), "gaps", usage->io_gaps, "intervals",
                         usage->io_intervals);
}

static PyObject *analyse_all(PyObject *processes, double interval_s, Py_ssize_t width)
{
    Py_ssize_t count = PyList_GET_SIZE(processes);
    lp_arena *arena = lp_arena_new();
    lp_run *run = lp_run_new();
    lp_usage_rows *rows = calloc((size_t)count + 1, sizeof *rows);
    lp_usage *usage = NULL;
    PyObject *made = NULL;
    bool good = (arena && run && rows) || fail(LP_E_MEMORY);
    double first = 0.0, last = 0.0;

    for (Py_ssize_t i = 0; good && i < count; i++) {
        PyObject *list = PyList_GET_ITEM(processes, i);
        good = PyList_Check(list) || (PyErr_SetString(PyExc_TypeError, "processes are lists of rows"), false);
        good = good && put_process(list, arena, &rows[i], &first, &last) && add_worker(run, i, first, last);
    }
    if (good) {
        lp_status status = lp_run_finish(run);
        if (status == LP_OK)
            status = lp_usage_load_memory(run, rows, interval_s, &usage);
        made = status == LP_OK ? figures(usage, width) : lp_py_raise(status, NULL);
    }
    lp_usage_free(usage);
    free(rows);
    lp_run_free(run);
    lp_arena_free(arena);
    return made;
}

static PyObject *analyse_samples(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *processes;
    double interval_s;
    Py_ssize_t width;

    if (!PyArg_ParseTuple(args, "O!dn:analyse_samples", &PyList_Type, &processes, &interval_s, &width))
        return NULL;
    if (!(interval_s > 0.0 && interval_s < 1e9) || width < 0 || width > SERIES_MAX)
        return PyErr_Format(PyExc_ValueError, "series_width is from 0 to %d", SERIES_MAX);
    return analyse_all(processes, interval_s, width);
}

PyMethodDef lp_py_sample_methods[] = {{"read_samples", read_samples, METH_VARARGS, NULL},
                                      {"list_samples", list_samples, METH_VARARGS, NULL},
                                      {"sample_self", sample_self, METH_NOARGS, NULL},
                                      {"analyse_samples", analyse_samples, METH_VARARGS, NULL},
                                      {NULL, NULL, 0, NULL}};
