/* Workers as plain Python data, and back. Both directions read the same tables of fields. */
#include "python/convert.h"

#include <stddef.h>
#include <string.h>

#include "python/convert_internal.h"
#include "store/arena.h"

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
    OF_ID(I64, source_untracked),
    OF_ID(TEXT, source_diff),
    FIELD(U64, written_ns),
    FIELD(U64, elapsed_ns),
    FIELD(U32, generation),
    FIELD(BOOL, final),
    FIELD(BOOL, unclean),
    FIELD(BOOL, living),
    {"exit_code", I64, offsetof(lp_worker, end.code)},
    {"core_dumped", BOOL, offsetof(lp_worker, end.core_dumped)},
    {"replaced", BOOL, offsetof(lp_worker, end.replaced)},
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
        return lp__py_to_i64(value, at);
    case U64: return lp__py_to_u64(value, at);
    case U32: return lp__py_to_u32(value, at);
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
        PyObject *entry =
            Py_BuildValue("(OKKNK)", PyTuple_GET_ITEM(PyList_GET_ITEM(rows, open->phase), LP__PY_ROW_PATH),
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
    return (!index || lp__py_to_i64(index, &gpu->index)) && (!name || lp_py_to_str(name, arena, &gpu->name)) &&
           (!vram || lp__py_to_i64(vram, &gpu->vram_total));
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
        if (!lp__py_phase_of(&worker->tree, PyTuple_GET_ITEM(entry, 0), &open->phase) ||
            !lp__py_to_u64(PyTuple_GET_ITEM(entry, 1), &open->since_ns) ||
            !lp__py_to_u64(PyTuple_GET_ITEM(entry, 2), &open->open_ns) ||
            !lp_py_to_str(PyTuple_GET_ITEM(entry, 3), worker->arena, &open->thread) ||
            !lp__py_to_u64(PyTuple_GET_ITEM(entry, 4), &open->tid))
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
