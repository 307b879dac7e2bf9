/* Figures of the line engine as Python objects. They are copied while the threads are stopped, and made into objects after. */
#include <stdlib.h>
#include <string.h>

#include "python/line.h"

typedef struct row {
    uint32_t code, thread;
    size_t area; /* 1 + its index; 0 outside all regions */
    lp_line_cell cell;
} row;

typedef struct call { /* a block's head */
    uint32_t code;
    uint64_t calls, time, self, awaited, suspended;
} call;

typedef struct area { /* a region of a thread */
    size_t parent;    /* as row.area */
    uint32_t name;
    uint64_t entries, time;
} area;

typedef struct copy {
    Py_ssize_t only; /* code, < 0 all */
    bool failed;
    row *rows;
    size_t row_count, row_room;
    call *calls;
    size_t call_count, call_room;
    area *areas;
    size_t area_count, area_room;
} copy;

static void *room_for(copy *c, void *list, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return list;
    size_t more = *room ? 2 * *room : 256;
    void *grown = realloc(list, more * size);
    if (!grown) {
        c->failed = true;
        return NULL;
    }
    *room = more;
    return grown;
}

static uint64_t not_below_zero(uint64_t ticks)
{
    return (int64_t)ticks < 0 ? 0 : ticks;
}

/* `areas`: how many there are of other threads. */
static void copy_block(copy *c, const lp_seg_line_cells *head, size_t areas)
{
    call made = {.code = head->code,
                 .calls = head->calls,
                 .time = head->time,
                 .self = head->prologue,
                 .suspended = head->suspended};

    if (c->only >= 0 && head->code != (size_t)c->only)
        return;
    for (uint32_t i = 0; i < head->count; i++) {
        const lp_line_cell *cell = &head->at[i];
        made.self += cell->self;
        made.awaited += cell->awaited;
        if (!cell->visits && !cell->time && !cell->awaited)
            continue;
        row *rows = room_for(c, c->rows, &c->row_room, c->row_count, sizeof *rows);
        if (!rows)
            return;
        c->rows = rows;
        rows[c->row_count++] = (row){head->code, head->thread, head->region ? areas + head->region : 0, *cell};
    }
    call *calls = room_for(c, c->calls, &c->call_room, c->call_count, sizeof *calls);
    if (!calls)
        return;
    c->calls = calls;
    calls[c->call_count++] = made;
}

static void copy_thread(void *user, const lp_line_thread *th, const unsigned char *base)
{
    copy *c = user;
    size_t before = c->area_count;

    for (lp_off at = th->blocks; at && !c->failed;) {
        const lp_seg_line_cells *head = (const lp_seg_line_cells *)(const void *)(base + at);
        copy_block(c, head, before);
        at = head->next;
    }
    for (uint32_t i = 1; i < th->node_count && !c->failed; i++) {
        area *areas = room_for(c, c->areas, &c->area_room, c->area_count, sizeof *areas);
        if (!areas)
            return;
        c->areas = areas;
        areas[c->area_count++] = (area){.parent = th->nodes[i].parent ? before + th->nodes[i].parent : 0,
                                        .name = th->nodes[i].name,
                                        .entries = th->nodes[i].seg->entries,
                                        .time = th->nodes[i].seg->time};
    }
}

static void copy_free(copy *c)
{
    free(c->rows);
    free(c->calls);
    free(c->areas);
}

static bool copy_all(LineEngine *engine, Py_ssize_t only, copy *c)
{
    memset(c, 0, sizeof *c);
    c->only = only;
    lp_lines_read(engine->core, copy_thread, c);
    if (c->failed) {
        copy_free(c);
        PyErr_NoMemory();
    }
    return !c->failed;
}

/* ---- rows of lines --------------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const row *x = a, *y = b;

    if (x->code != y->code)
        return x->code < y->code ? -1 : 1;
    if (x->cell.line != y->cell.line)
        return x->cell.line < y->cell.line ? -1 : 1;
    return (x->thread > y->thread) - (x->thread < y->thread);
}

/* Sorts, and adds up rows of one line and thread: those of its regions. */
static size_t join_rows(row *rows, size_t count)
{
    size_t kept = 0;

    if (count)
        qsort(rows, count, sizeof *rows, by_place);
    for (size_t i = 0; i < count; i++) {
        if (kept && by_place(&rows[kept - 1], &rows[i]) == 0) {
            lp_line_cell *to = &rows[kept - 1].cell, *from = &rows[i].cell;
            to->visits += from->visits;
            to->again += from->again;
            to->time += from->time;
            to->self += from->self;
            to->awaited += from->awaited;
        } else {
            rows[kept++] = rows[i];
        }
    }
    return kept;
}

static PyObject *list_of_rows(const row *rows, size_t count, uint64_t mult)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list && i < count; i++) {
        const lp_line_cell *cell = &rows[i].cell;
        uint64_t time = lp_ticks_to_ns(not_below_zero(cell->time), mult);
        uint64_t self = lp_ticks_to_ns(not_below_zero(cell->self), mult);
        PyObject *item =
            Py_BuildValue("(IiKKKKKI)", rows[i].code, cell->line, (unsigned long long)(cell->visits - cell->again),
                          (unsigned long long)cell->visits, (unsigned long long)time, (unsigned long long)self,
                          (unsigned long long)lp_ticks_to_ns(cell->awaited, mult), rows[i].thread);
        if (!item) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

PyObject *lpy_line_rows(LineEngine *engine, Py_ssize_t code)
{
    copy c;

    if (!copy_all(engine, code, &c))
        return NULL;
    PyObject *list = list_of_rows(c.rows, join_rows(c.rows, c.row_count), lp_lines_mult(engine->core));
    copy_free(&c);
    return list;
}

/* ---- functions ------------------------------------------------------------------------------------------------------- */

PyObject *lpy_line_functions(LineEngine *engine)
{
    uint32_t count = lp_lines_code_count(engine->core);
    uint64_t mult = lp_lines_mult(engine->core);
    call *sums = calloc(count + 1, sizeof *sums);
    PyObject *list = NULL;
    copy c;

    if (!sums)
        return PyErr_NoMemory();
    if (!copy_all(engine, -1, &c)) {
        free(sums);
        return NULL;
    }
    for (size_t i = 0; i < c.call_count; i++) {
        const call *from = &c.calls[i];
        if (from->code >= count)
            continue;
        call *to = &sums[from->code];
        to->calls += from->calls;
        to->time += from->time;
        to->self += from->self;
        to->awaited += from->awaited;
        to->suspended += from->suspended;
    }
    copy_free(&c);
    list = PyList_New(0);
    for (uint32_t i = 0; list && i < count; i++) {
        const call *sum = &sums[i];
        PyObject *item =
            Py_BuildValue("(IKKKKK)", i, (unsigned long long)sum->calls,
                          (unsigned long long)lp_ticks_to_ns(not_below_zero(sum->time), mult),
                          (unsigned long long)lp_ticks_to_ns(not_below_zero(sum->self), mult),
                          (unsigned long long)lp_ticks_to_ns(sum->awaited, mult), (unsigned long long)sum->suspended);
        if (!item || PyList_Append(list, item) != 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    free(sums);
    return list;
}

/* ---- regions and threads --------------------------------------------------------------------------------------------- */

static bool is_within(const copy *c, size_t number, uint32_t name)
{
    while (number && c->areas[number - 1].name != name)
        number = c->areas[number - 1].parent;
    return number != 0;
}

static PyObject *region_value(const copy *c, uint32_t name, uint64_t mult)
{
    row *rows = malloc((c->row_count + 1) * sizeof *rows);
    uint64_t entries = 0, time = 0;
    size_t count = 0;

    if (!rows)
        return PyErr_NoMemory();
    for (size_t i = 0; i < c->area_count; i++) {
        if (c->areas[i].name != name)
            continue;
        entries += c->areas[i].entries;
        time += c->areas[i].time;
    }
    for (size_t i = 0; i < c->row_count; i++)
        if (is_within(c, c->rows[i].area, name))
            rows[count++] = c->rows[i];
    PyObject *list = list_of_rows(rows, join_rows(rows, count), mult);
    free(rows);
    return list ? Py_BuildValue("(KKN)", (unsigned long long)entries,
                                (unsigned long long)lp_ticks_to_ns(not_below_zero(time), mult), list)
                : NULL;
}

PyObject *lpy_line_regions(LineEngine *engine)
{
    uint64_t mult = lp_lines_mult(engine->core);
    PyObject *dict = PyDict_New(), *name, *number;
    PyObject *names = dict ? PyDict_Copy(engine->regions) : NULL;
    Py_ssize_t at = 0;
    copy c;

    if (!names || !copy_all(engine, -1, &c)) {
        Py_XDECREF(names);
        Py_XDECREF(dict);
        return NULL;
    }
    while (dict && PyDict_Next(names, &at, &name, &number)) {
        PyObject *value = region_value(&c, (uint32_t)PyLong_AsUnsignedLong(number), mult);
        if (!value || PyDict_SetItem(dict, name, value) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    copy_free(&c);
    Py_DECREF(names);
    return dict;
}

PyObject *lpy_line_threads(LineEngine *engine)
{
    PyObject *list = PyList_New(0);

    if (lp_lines_forked(engine->core))
        return list;
    for (const lp_line_thread *th = engine->core->begun ? engine->core->threads : NULL; list && th; th = th->link) {
        PyObject *name =
            PyUnicode_Decode((const char *)(th->seg + 1), (Py_ssize_t)th->seg->name_size, "utf-8", "surrogateescape");
        if (!name)
            PyErr_Clear();
        PyObject *item = name ? Py_BuildValue("(IN)", th->seg->number, name)
                              : Py_BuildValue("(Is)", th->seg->number, "?"); /* cut in the middle of a character */
        if (!item || PyList_Insert(list, 0, item) != 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}
