/* Reading runs from Python: loading, rendering, comparing, and the whole command.
 *
 * A run goes from files to C to text without a Python object in between (report_file, cli_main); load_run and the
 * functions that take data exist for programs that want the numbers. Work on files and rendering run without the GIL;
 * what they use is private to the call. */
#include "python/run_api.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/compare.h"
#include "analysis/report.h"
#include "analysis/run.h"
#include "cli/cli.h"
#include "python/convert.h"
#include "python/convert_internal.h"
#include "render/render.h"
#include "store/arena.h"

/* --- small helpers --- */

/* Steals `value`; NULL means that an exception is set. */
static bool put(PyObject *dict, const char *key, PyObject *value)
{
    int failed = value ? PyDict_SetItemString(dict, key, value) : -1;

    Py_XDECREF(value);
    return !failed;
}

static PyObject *unknown_or(int64_t value)
{
    if (value == LP_UNKNOWN_I64)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(value);
}

static PyObject *text_or_none(lp_str text)
{
    if (text.size == 0)
        Py_RETURN_NONE;
    return lp_py_from_str(text);
}

/* What a memory sink holds, which is freed. */
static PyObject *from_sink(lp_sink *sink, lp_status status)
{
    PyObject *text = NULL;

    if (status != LP_OK)
        lp_py_raise(status, NULL);
    else
        text = PyUnicode_DecodeUTF8(sink->data ? sink->data : "", (Py_ssize_t)sink->size, "backslashreplace");
    lp_sink_free(sink);
    return text;
}

/* --- from a run --- */

static PyObject *from_workers(const lp_run_worker *workers, uint32_t count)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *data = lp_py_from_worker(workers[i].worker);
        if (!data || PyList_Append(list, data) < 0)
            Py_CLEAR(list);
        Py_XDECREF(data);
    }
    return list;
}

static PyObject *from_lost(const lp_run *run)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < run->unreadable_count; i++) {
        const lp_run_lost *lost = &run->unreadable[i];
        PyObject *path = PyUnicode_DecodeFSDefaultAndSize(lost->path.data, (Py_ssize_t)lost->path.size);
        PyObject *pair = path ? Py_BuildValue("(NN)", path, lp_py_from_str(lost->reason)) : NULL;
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *from_argv(const lp_run *run)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < run->argv_count; i++) {
        PyObject *text = lp_py_from_str(run->argv[i]);
        if (!text || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *from_source_extra(const lp_run *run)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < run->source_extra_count; i++) {
        PyObject *pair =
            Py_BuildValue("(NN)", lp_py_from_str(run->source_extra[i].key), lp_py_from_str(run->source_extra[i].value));
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *from_run(lp_run *run)
{
    const lp_tree *tree = lp_run_tree(run);
    PyObject *dict = tree ? PyDict_New() : PyErr_NoMemory();

    if (dict && put(dict, "run_id", lp_py_from_str(run->run_id)) &&
        put(dict, "started_ns", PyLong_FromUnsignedLongLong(run->started_ns)) &&
        put(dict, "ended_ns", PyLong_FromUnsignedLongLong(run->ended_ns)) &&
        put(dict, "runtime_ns", PyLong_FromUnsignedLongLong(run->runtime_ns)) && put(dict, "argv", from_argv(run)) &&
        put(dict, "python", lp_py_from_str(run->python)) && put(dict, "platform", lp_py_from_str(run->platform)) &&
        put(dict, "host", lp_py_from_str(run->start_host)) &&
        put(dict, "source_commit", text_or_none(run->source_commit)) &&
        put(dict, "source_dirty", unknown_or(run->source_dirty)) &&
        put(dict, "source_untracked", unknown_or(run->source_untracked)) &&
        put(dict, "source_diff", text_or_none(run->source_diff)) && put(dict, "source_extra", from_source_extra(run)) &&
        put(dict, "empty_reason", PyUnicode_FromString(run->empty_reason)) && put(dict, "unreadable", from_lost(run)) &&
        put(dict, "tree", run->role_count ? lp_py_from_tree(tree) : PyList_New(0)) &&
        put(dict, "workers", from_workers(run->workers, run->worker_count)) &&
        put(dict, "superseded", from_workers(run->superseded, run->superseded_count)))
        return dict;
    Py_XDECREF(dict);
    return NULL;
}

static PyObject *load_run(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *path, *data = NULL;
    int adopt;
    lp_run *run = NULL;
    lp_error error = {0};
    lp_status status;

    if (!PyArg_ParseTuple(args, "O&p:load_run", PyUnicode_FSConverter, &path, &adopt))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status =
        lp_run_load(PyBytes_AS_STRING(path),
                    (lp_run_options){.adopt = adopt != 0, .segments = true, .keep_workers = true}, &run, &error);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (status != LP_OK)
        return lp_py_raise(status, &error);
    data = from_run(run);
    lp_run_free(run);
    return data;
}

/* --- to a run --- */

static bool add_workers(PyObject *data, const char *key, lp_run *run,
                        lp_status (*add)(lp_run *run, lp_worker *worker, bool keep))
{
    PyObject *list = PyDict_GetItemString(data, key);

    if (!list || !PyList_Check(list)) {
        PyErr_Format(PyExc_TypeError, "%s is not a list", key);
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        lp_worker *worker = lp_py_to_worker(PyList_GET_ITEM(list, i));
        if (!worker)
            return false;
        lp_status status = add(run, worker, false);
        lp_worker_free(worker);
        if (status != LP_OK) {
            lp_py_raise(status, NULL);
            return false;
        }
    }
    return true;
}

static bool add_lost(PyObject *data, lp_run *run)
{
    PyObject *list = PyDict_GetItemString(data, "unreadable");

    if (!list || !PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "unreadable is not a list");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *path, *reason;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "O&U;unreadable holds (path, reason)", PyUnicode_FSConverter,
                              &path, &reason))
            return false;
        PyObject *bytes = PyUnicode_AsEncodedString(reason, "utf-8", "backslashreplace");
        lp_status status =
            bytes ? lp_run_add_unreadable(run, PyBytes_AS_STRING(path), PyBytes_AS_STRING(bytes)) : LP_OK;
        Py_DECREF(path);
        if (!bytes)
            return false;
        Py_DECREF(bytes);
        if (status != LP_OK) {
            lp_py_raise(status, NULL);
            return false;
        }
    }
    return true;
}

/* A path is bytes, which Python shows as a text with surrogates where they are none. */
static bool take_directory(PyObject *directory, lp_run *run)
{
    PyObject *bytes = PyUnicode_Check(directory) ? PyUnicode_EncodeFSDefault(directory) : NULL;

    if (!bytes) { /* a text that cannot be a path, or no text */
        PyErr_Clear();
        return lp_py_to_str(directory, run->arena, &run->directory);
    }
    run->directory = lp_arena_str(run->arena, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    if (!run->directory.data)
        PyErr_NoMemory();
    return run->directory.data != NULL;
}

/* From {workers, superseded, unreadable, empty_reason, directory}; finished, owned by the caller. NULL with an
 * exception. */
static lp_run *to_run(PyObject *data)
{
    static const char *const reasons[] = {"", "missing", "no_worker_files"};

    if (!PyDict_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "a run is a dict");
        return NULL;
    }
    lp_run *run = lp_run_new();
    if (!run) {
        PyErr_NoMemory();
        return NULL;
    }
    PyObject *reason = PyDict_GetItemString(data, "empty_reason");
    for (size_t i = 0; reason && PyUnicode_Check(reason) && i < sizeof reasons / sizeof *reasons; i++)
        if (PyUnicode_CompareWithASCIIString(reason, reasons[i]) == 0)
            run->empty_reason = reasons[i];
    PyObject *directory = PyDict_GetItemString(data, "directory");
    if ((directory && !take_directory(directory, run)) || !add_workers(data, "workers", run, lp_run_add) ||
        !add_workers(data, "superseded", run, lp_run_add_superseded) || !add_lost(data, run)) {
        lp_run_free(run);
        return NULL;
    }
    lp_status status = lp_run_finish(run);
    if (status != LP_OK) {
        lp_run_free(run);
        lp_py_raise(status, NULL);
        return NULL;
    }
    return run;
}

typedef struct face { /* how a report is to look */
    bool json, samples;
    lp_text_options text;
} face;

static lp_status render_run(const lp_run *run, const face *as, lp_sink *sink)
{
    lp_report *report = NULL;
    lp_usage *usage = NULL;
    lp_status status = lp_report_new(run, &report);

    if (status == LP_OK && as->samples)
        status = lp_usage_load(run, &usage);
    if (status == LP_OK && usage)
        status = lp_report_add_usage(report, usage);
    if (status == LP_OK)
        status = as->json ? lp_render_json(report, as->samples, sink) : lp_render_text(report, as->text, sink);
    lp_report_free(report);
    lp_usage_free(usage);
    lp_status flushed = lp_sink_flush(sink);
    return status == LP_OK ? flushed : status;
}

static PyObject *render_data(PyObject *data, const face *as)
{
    lp_sink sink;
    lp_status status;
    lp_run *run = to_run(data);

    if (!run)
        return NULL;
    lp_sink_open_memory(&sink);
    Py_BEGIN_ALLOW_THREADS status = render_run(run, as, &sink);
    lp_run_free(run);
    Py_END_ALLOW_THREADS return from_sink(&sink, status);
}

static PyObject *render_text(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data;
    unsigned width;
    int color, utf8, all, samples;

    if (!PyArg_ParseTuple(args, "OIpppp:render_text", &data, &width, &color, &utf8, &all, &samples))
        return NULL;
    return render_data(
        data,
        &(face){.samples = samples != 0,
                .text = {
                    .width = width, .color = color != 0, .utf8 = utf8 != 0, .all = all != 0, .samples = samples != 0}});
}

static PyObject *report_json(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data;
    int samples;

    if (!PyArg_ParseTuple(args, "Op:report_json", &data, &samples))
        return NULL;
    return render_data(data, &(face){.json = true, .samples = samples != 0});
}

static PyObject *report_file(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *path;
    int json;
    lp_run *run = NULL;
    lp_error error = {0};
    lp_status status;
    lp_sink sink;

    if (!PyArg_ParseTuple(args, "O&p:report_file", PyUnicode_FSConverter, &path, &json))
        return NULL;
    const face as = {.json = json != 0, .samples = true, .text = {.utf8 = true, .samples = true}};
    lp_sink_open_memory(&sink);
    Py_BEGIN_ALLOW_THREADS status =
        lp_run_load(PyBytes_AS_STRING(path), (lp_run_options){.adopt = true, .segments = true}, &run, &error);
    if (status == LP_OK)
        status = render_run(run, &as, &sink);
    lp_run_free(run);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (status != LP_OK) {
        lp_sink_free(&sink);
        return lp_py_raise(status, &error);
    }
    return from_sink(&sink, status);
}

/* --- comparisons --- */

typedef struct pair { /* two trees and what comes of them */
    lp_arena *arena;  /* owned */
    lp_tree trees[2];
    lp_comparison *comparison; /* owned */
} pair;

static void pair_free(pair *of)
{
    lp_comparison_free(of->comparison);
    lp_arena_free(of->arena);
}

/* A run as (rows of its tree, paths of its open phases, one for each entry). false with an exception. */
static bool to_compared(PyObject *side, lp_tree *tree, lp_compared *run)
{
    PyObject *rows, *open;
    uint32_t at = 0;

    if (!PyArg_ParseTuple(side, "OO!", &rows, &PyList_Type, &open) || !lp_py_to_tree(rows, tree))
        return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(open); i++) /* all of them get their place before places are counted */
        if (!lp__py_phase_of(tree, PyList_GET_ITEM(open, i), &at))
            return false;
    uint64_t *entries = lp_arena_take(tree->arena, tree->count * sizeof *entries);
    if (!entries) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(open); i++) {
        if (!lp__py_phase_of(tree, PyList_GET_ITEM(open, i), &at))
            return false;
        entries[at]++;
    }
    *run = (lp_compared){tree, entries};
    return true;
}

/* false with an exception, nothing is left then. */
static bool pair_make(PyObject *a, PyObject *b, pair *of)
{
    PyObject *const sides[2] = {a, b};
    lp_compared runs[2];
    lp_status status;

    memset(of, 0, sizeof *of);
    of->arena = lp_arena_new();
    status = of->arena ? LP_OK : LP_E_MEMORY;
    for (int i = 0; i < 2 && status == LP_OK; i++) {
        status = lp_tree_init(&of->trees[i], of->arena);
        if (status == LP_OK && !to_compared(sides[i], &of->trees[i], &runs[i])) {
            pair_free(of);
            return false;
        }
    }
    if (status == LP_OK)
        status = lp_compare(runs[0], runs[1], &of->comparison);
    if (status != LP_OK) {
        lp_py_raise(status, NULL);
        pair_free(of);
    }
    return status == LP_OK;
}

static PyObject *compare_trees(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *a, *b;
    pair of;

    if (!PyArg_ParseTuple(args, "O!O!:compare_trees", &PyTuple_Type, &a, &PyTuple_Type, &b) || !pair_make(a, b, &of))
        return NULL;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < of.comparison->count; i++) {
        const lp_delta *row = &of.comparison->rows[i];
        PyObject *entry = Py_BuildValue("(NKKddddKKK)", lp_py_from_str(row->path), (unsigned long long)row->entries_a,
                                        (unsigned long long)row->entries_b, row->per_entry_a, row->per_entry_b,
                                        row->p50_a, row->p50_b, (unsigned long long)row->measured,
                                        (unsigned long long)row->open_a, (unsigned long long)row->open_b);
        if (!entry || PyList_Append(list, entry) < 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    pair_free(&of);
    return list;
}

static PyObject *render_comparison(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *a, *b, *label_a, *label_b;
    lp_text_options options = {.samples = true};
    int color, utf8;
    pair of;
    lp_sink sink;

    if (!PyArg_ParseTuple(args, "O!O!O&O&Ipp:render_comparison", &PyTuple_Type, &a, &PyTuple_Type, &b,
                          PyUnicode_FSConverter, &label_a, PyUnicode_FSConverter, &label_b, &options.width, &color,
                          &utf8))
        return NULL;
    options.color = color != 0;
    options.utf8 = utf8 != 0;
    PyObject *text = NULL;
    if (pair_make(a, b, &of)) {
        lp_sink_open_memory(&sink);
        lp_status status = lp_render_comparison_text(of.comparison, PyBytes_AS_STRING(label_a),
                                                     PyBytes_AS_STRING(label_b), options, &sink);
        lp_status flushed = lp_sink_flush(&sink);
        text = from_sink(&sink, status == LP_OK ? flushed : status);
        pair_free(&of);
    }
    Py_DECREF(label_a);
    Py_DECREF(label_b);
    return text;
}

static PyObject *comparison_json(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *a, *b, *label_a, *label_b;
    pair of;
    lp_sink sink;

    if (!PyArg_ParseTuple(args, "O!O!O&O&:comparison_json", &PyTuple_Type, &a, &PyTuple_Type, &b, PyUnicode_FSConverter,
                          &label_a, PyUnicode_FSConverter, &label_b))
        return NULL;
    PyObject *text = NULL;
    if (pair_make(a, b, &of)) {
        lp_sink_open_memory(&sink);
        lp_status status =
            lp_render_comparison_json(of.comparison, PyBytes_AS_STRING(label_a), PyBytes_AS_STRING(label_b), &sink);
        lp_status flushed = lp_sink_flush(&sink);
        text = from_sink(&sink, status == LP_OK ? flushed : status);
        pair_free(&of);
    }
    Py_DECREF(label_a);
    Py_DECREF(label_b);
    return text;
}

/* --- the command --- */

typedef struct stream {    /* a Python stream behind a sink */
    PyObject *write;       /* borrowed: a callable that takes a str */
    PyThreadState **saved; /* borrowed: of the thread that runs the command, while it runs without the GIL */
    char rest[4];          /* a character that the sink's buffer cut in two */
    size_t rest_size;
} stream;

/* Gives the bytes to the stream's write(), characters whole. The thread state is attached. */
static bool write_text(stream *to, const char *data, size_t size)
{
    Py_ssize_t used = 0;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(to->rest_size + size));

    if (!bytes)
        return false;
    memcpy(PyBytes_AS_STRING(bytes), to->rest, to->rest_size);
    memcpy(PyBytes_AS_STRING(bytes) + to->rest_size, data, size);
    Py_ssize_t whole = PyBytes_GET_SIZE(bytes);
    PyObject *text = PyUnicode_DecodeUTF8Stateful(PyBytes_AS_STRING(bytes), whole, "backslashreplace", &used);
    to->rest_size = (size_t)(whole - used) < sizeof to->rest ? (size_t)(whole - used) : 0;
    memcpy(to->rest, PyBytes_AS_STRING(bytes) + used, to->rest_size);
    Py_DECREF(bytes);
    PyObject *result = text ? PyObject_CallFunctionObjArgs(to->write, text, NULL) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(result);
    return result != NULL;
}

static lp_status write_stream(lp_sink *sink, const void *data, size_t size)
{
    stream *to = sink->context;
    lp_status status = LP_OK;

    PyEval_RestoreThread(*to->saved);
    /* An exception that another stream left stays pending until the command returns: it is raised then. */
    if (PyErr_Occurred()) {
        status = LP_E_IO;
    } else if (!write_text(to, data, size)) {
        if (PyErr_ExceptionMatches(PyExc_BrokenPipeError)) {
            PyErr_Clear();
            sink->closed = true;
        } else {
            status = LP_E_IO;
        }
    }
    *to->saved = PyEval_SaveThread();
    return status;
}

static char **to_argv(PyObject *list, PyObject *keep)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    char **argv = calloc((size_t)count + 1, sizeof *argv);

    if (!argv) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *bytes = NULL;
        if (!PyUnicode_FSConverter(PyList_GET_ITEM(list, i), &bytes) || PyList_Append(keep, bytes) < 0) {
            Py_XDECREF(bytes);
            free(argv);
            return NULL;
        }
        argv[i] = PyBytes_AS_STRING(bytes);
        Py_DECREF(bytes); /* `keep` has it */
    }
    return argv;
}

static PyObject *cli_main(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *list;
    lp_cli_env env = {0};
    lp_cli_io io = {0};
    PyThreadState *saved = NULL;
    stream streams[2] = {{.saved = &saved}, {.saved = &saved}};
    lp_sink sinks[2];
    int fd, is_tty, utf8, code;

    if (!PyArg_ParseTuple(args, "O!OOipp(zzzzzz):cli_main", &PyList_Type, &list, &streams[0].write, &streams[1].write,
                          &fd, &is_tty, &utf8, &env.no_color, &env.term, &env.columns, &env.lc_all, &env.lc_ctype,
                          &env.lang))
        return NULL;
    PyObject *keep = PyList_New(0);
    char **argv = keep ? to_argv(list, keep) : NULL;
    if (!argv) {
        Py_XDECREF(keep);
        return NULL;
    }
    int argc = (int)PyList_GET_SIZE(keep);
    for (int i = 0; i < 2; i++)
        lp_sink_open(&sinks[i], write_stream, &streams[i]);
    io.out = &sinks[0];
    io.err = &sinks[1];
    lp_cli_io_detect(&io, &env, fd, is_tty != 0);
    io.utf8 = io.utf8 && utf8; /* the locale asks for it, and the stream can encode it */
    saved = PyEval_SaveThread();
    code = lp_cli_main(argc, (const char *const *)argv, &io);
    PyEval_RestoreThread(saved);
    for (int i = 0; i < 2; i++)
        lp_sink_free(&sinks[i]);
    free(argv);
    Py_DECREF(keep);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(code);
}

PyMethodDef lp_py_run_methods[] = {
    {"load_run", load_run, METH_VARARGS, NULL},
    {"render_text", render_text, METH_VARARGS, NULL},
    {"report_json", report_json, METH_VARARGS, NULL},
    {"report_file", report_file, METH_VARARGS, NULL},
    {"compare_trees", compare_trees, METH_VARARGS, NULL},
    {"render_comparison", render_comparison, METH_VARARGS, NULL},
    {"comparison_json", comparison_json, METH_VARARGS, NULL},
    {"cli_main", cli_main, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
