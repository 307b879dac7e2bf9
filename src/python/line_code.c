/* What each instruction of a code object is to the line engine: the line, its class of cost, and whether arriving there is a new
 * execution of the statement.
 *
 * A statement over several lines is visited line by line and some lines twice: in `f(\n a,\n)` the call itself happens in the
 * second visit of the first line. A `with` line is visited again when the block is left. Both are told by the positions of
 * the instructions (PEP 657): instructions whose line ranges overlap, one after another, belong to one statement, and the
 * second arrival at a line within it is `again`. Loops' headers are new executions. The instructions that leave a `with`
 * block are learned from a sample at first use. Without positions (-X no_debug_ranges) each visit counts.
 *
 * The location table is that of Objects/locations.md (3.11) or Objects/lnotab_notes.txt (3.10). */
#include <stdlib.h>
#include <string.h>

#include "python/line.h"

#define WIDEST (1u << 20) /* lines from the first to the last of one code object */

typedef struct range {   /* instructions with one position */
    uint32_t start, end; /* in units of two bytes */
    int32_t line, last;  /* -1 none */
    uint32_t group;
} range;

typedef struct opcodes {
    bool known;
    unsigned extended, for_iter, async_for, load_global, push_exc, with_except, return_value, return_const, reraise,
        swap, nop;
    unsigned char leave[8]; /* first four units of the normal exit of a `with` */
} opcodes;
static opcodes ops;

/* ---- the location table ---------------------------------------------------------------------------------------------- */

static const unsigned char *read_varint(const unsigned char *p, const unsigned char *end, uint32_t *value)
{
    uint32_t shift = 0;

    *value = 0;
    while (p < end) {
        *value |= (uint32_t)(*p & 63u) << shift;
        shift += 6;
        if (!(*p++ & 64u) || shift > 26)
            break;
    }
    return p;
}

static int32_t signed_of(uint32_t value)
{
    return value & 1u ? -(int32_t)(value >> 1) : (int32_t)(value >> 1);
}

#if LPY_LOCATION_TABLE
/* Ranges of the table; their number. `out` has room for one an entry. */
static size_t read_table(const unsigned char *p, size_t size, int32_t first_line, range *out)
{
    const unsigned char *end = p + size;
    int32_t line = first_line;
    uint32_t at = 0;
    size_t count = 0;

    while (p < end) {
        unsigned kind = (*p >> 3) & 15u, length = (*p & 7u) + 1;
        uint32_t value = 0, more = 0, skip;
        p++;
        range r = {.start = at, .end = at + length, .line = -1, .last = -1};
        at += length;
        if (kind == 15) {
            out[count++] = r;
            continue;
        }
        if (kind == 14) {
            p = read_varint(p, end, &value);
            p = read_varint(p, end, &more);
            p = read_varint(p, end, &skip);
            p = read_varint(p, end, &skip);
            line += signed_of(value);
        } else if (kind == 13) {
            p = read_varint(p, end, &value);
            line += signed_of(value);
        } else if (kind >= 10) {
            line += (int32_t)kind - 10;
            p += 2;
        } else {
            p += 1;
        }
        r.line = line;
        r.last = line + (int32_t)more;
        out[count++] = r;
    }
    return count;
}
#else
/* Pairs of bytes: length in bytes, difference of lines (-128: none); no end lines. */
static size_t read_table(const unsigned char *p, size_t size, int32_t first_line, range *out)
{
    int32_t line = first_line;
    uint32_t at = 0;
    size_t count = 0;

    for (size_t i = 0; i + 1 < size; i += 2) {
        int32_t step = (signed char)p[i + 1];
        range r = {.start = at, .end = at + p[i] / 2u, .line = -1, .last = -1};
        at = r.end;
        if (step != -128) {
            line += step;
            r.line = r.last = line;
        }
        if (r.end > r.start)
            out[count++] = r;
    }
    return count;
}
#endif

/* ---- opcodes --------------------------------------------------------------------------------------------------------- */

static unsigned number_of(PyObject *map, const char *name)
{
    PyObject *value = PyDict_GetItemString(map, name); /* borrowed */
    long number = value ? PyLong_AsLong(value) : -1;

    if (number < 0)
        PyErr_Clear();
    return number < 0 ? 256u : (unsigned)number;
}

/* Where the second visit of a `with` line begins. */
static void learn_with(void)
{
    static const char sample[] = "def f(a):\n"
                                 "    with a:\n"
                                 "        a()\n"
                                 "    a.b\n";
    PyObject *module = Py_CompileString(sample, "<lineprofiler>", Py_file_input);
    PyObject *constants = module ? PyObject_GetAttrString(module, "co_consts") : NULL;
    PyObject *code = constants && PyTuple_Check(constants) ? PyTuple_GetItem(constants, 0) : NULL; /* borrowed */
    PyObject *bytes = code && PyCode_Check(code) ? lpy_code_bytes(code) : NULL;
    PyObject *table = bytes ? lpy_code_table(code) : NULL;

    if (table && PyBytes_Check(table)) {
        size_t size = (size_t)PyBytes_Size(table);
        range *ranges = calloc(size + 1, sizeof *ranges);
        size_t count = ranges ? read_table((const unsigned char *)PyBytes_AsString(table), size, 1, ranges) : 0;
        bool body = false;
        for (size_t i = 0; i < count; i++) {
            body = body || ranges[i].line == 3;
            if (body && ranges[i].line == 2 && (size_t)ranges[i].start * 2 + 8 <= (size_t)PyBytes_Size(bytes)) {
                memcpy(ops.leave, PyBytes_AsString(bytes) + (size_t)ranges[i].start * 2, 8);
                break;
            }
        }
        free(ranges);
    }
    PyErr_Clear();
    Py_XDECREF(table);
    Py_XDECREF(bytes);
    Py_XDECREF(constants);
    Py_XDECREF(module);
}

static void learn(void)
{
    PyObject *opcode = PyImport_ImportModule("opcode");
    PyObject *map = opcode ? PyObject_GetAttrString(opcode, "opmap") : NULL;

    if (map && PyDict_Check(map)) {
        ops.extended = number_of(map, "EXTENDED_ARG");
        ops.for_iter = number_of(map, "FOR_ITER");
        ops.async_for = number_of(map, "GET_ANEXT");
        ops.load_global = number_of(map, "LOAD_GLOBAL");
        ops.push_exc = number_of(map, "PUSH_EXC_INFO");
        ops.with_except = number_of(map, "WITH_EXCEPT_START");
        ops.return_value = number_of(map, "RETURN_VALUE");
        ops.return_const = number_of(map, "RETURN_CONST");
        ops.reraise = number_of(map, "RERAISE");
        ops.swap = number_of(map, "SWAP");
        ops.nop = number_of(map, "NOP");
        learn_with();
    }
    PyErr_Clear();
    ops.known = true;
    Py_XDECREF(map);
    Py_XDECREF(opcode);
}

/* `at` .. `end`: instructions of one line, one after another. */
static bool leaves_with(const unsigned char *at, const unsigned char *end)
{
    while (end - at >= 4 && (at[0] == ops.swap || at[0] == ops.nop)) /* a value that is returned lies above */
        at += 2;
    size_t step = end - at >= 4 && at[0] == ops.extended ? 4 : 2; /* a function with more than 256 constants */
    const unsigned char *first = at + step - 2, *second = first + step, *third = second + step, *call = third + 2;

    if (end - at >= 4 && at[0] == ops.push_exc && at[2] == ops.with_except)
        return true;
    if (end - at < (ptrdiff_t)(3 * step + 2))
        return false;
    /* Three times None and a call: nothing that a program can write begins a line like that. */
    bool known = ops.leave[0] == ops.leave[2] && ops.leave[2] == ops.leave[4];
    return known && first[0] == ops.leave[0] && second[0] == first[0] && third[0] == first[0] &&
           first[1] == second[1] && first[1] == third[1] && call[0] == ops.leave[6] && call[1] == ops.leave[7];
}

/* ---- statements ------------------------------------------------------------------------------------------------------ */

typedef struct span { /* lines of a statement whose instructions may go on */
    int32_t from, to;
    uint32_t group;
} span;

static uint32_t root_of(uint32_t *joined, uint32_t group)
{
    while (joined[group] != group)
        group = joined[group] = joined[joined[group]];
    return group;
}

static bool ends_flow(unsigned opcode)
{
    return opcode == ops.return_value || opcode == ops.return_const || opcode == ops.reraise;
}

/* Numbers the statements: a range that overlaps the lines just before it joins them. A handler begins anew, and so does what
 * follows a return: copies of one `finally` block stand one after another and are executed one at a time. */
static void find_statements(range *ranges, size_t count, const unsigned char *code, uint32_t units, span *spans,
                            uint32_t *joined)
{
    size_t depth = 0;

    for (size_t i = 0; i < count; i++) {
        range *r = &ranges[i];
        joined[i] = r->group = (uint32_t)i;
        if (r->start < units && code[2 * r->start] == ops.push_exc)
            depth = 0;
        if (r->start > 0 && r->start <= units && ends_flow(code[2 * (r->start - 1)]))
            depth = 0;
        if (r->line < 0)
            continue;
        span now = {r->line, r->last, r->group};
        while (depth > 0 && spans[depth - 1].from <= now.to && now.from <= spans[depth - 1].to) {
            span *top = &spans[--depth];
            now.from = top->from < now.from ? top->from : now.from;
            now.to = top->to > now.to ? top->to : now.to;
            joined[now.group] = root_of(joined, top->group);
            now.group = joined[now.group];
        }
        spans[depth++] = now;
    }
    for (size_t i = 0; i < count; i++)
        ranges[i].group = root_of(joined, ranges[i].group);
}

typedef struct work { /* one allocation a code object */
    range *ranges;
    span *spans;
    uint32_t *joined, *seen; /* seen: by slot, 1 + the statement that has been at the line */
    int32_t *slot_of;        /* by line - lowest; -1 none */
} work;

static uint32_t flags_of(const unsigned char *at, const unsigned char *end, bool again, int32_t line)
{
    while (end - at >= 4 && at[0] == ops.extended)
        at += 2;
    if (at[0] == ops.for_iter || at[0] == ops.async_for)
        again = false; /* the loop comes round: each time is an execution of its header */
    uint32_t class = (line > LPY_LINE_SMALL ? LPY_LINE_FAR : 0u) | (at[0] == ops.load_global ? LPY_LINE_GLOBAL : 0u) |
                     (at[0] == ops.for_iter ? LPY_LINE_LOOP : 0u);
    return (again ? LP_LINE_AGAIN : 0u) | class << 1;
}

static void fill(const work *w, size_t count, const unsigned char *code, uint32_t units, int32_t lowest,
                 uint16_t *narrow, uint32_t *wide)
{
    const unsigned char *end = code + 2 * (size_t)units;
    int32_t before = -1;
    bool again = false;

    for (size_t i = 0; i < count; i++) {
        const range *r = &w->ranges[i];
        if (r->line < 0 || r->start >= units) {
            before = -1;
            continue;
        }
        uint32_t slot = (uint32_t)w->slot_of[r->line - lowest];
        if (r->line != before) {
            uint32_t run = r->end;
            for (size_t j = i + 1; j < count && w->ranges[j].line == r->line; j++)
                run = w->ranges[j].end;
            run = run < units ? run : units;
            again = w->seen[slot] == r->group + 1 || leaves_with(code + 2 * (size_t)r->start, code + 2 * (size_t)run);
            w->seen[slot] = r->group + 1;
        }
        before = r->line;
        for (uint32_t unit = r->start; unit < r->end && unit < units; unit++) {
            uint32_t entry = slot << LP_LINE_SLOT | flags_of(code + 2 * (size_t)unit, end, again, r->line);
            if (narrow)
                narrow[unit] = (uint16_t)entry;
            else
                wide[unit] = entry;
        }
    }
}

/* ---- a code object --------------------------------------------------------------------------------------------------- */

static char *copy_text(PyObject *text, uint32_t *size)
{
    PyObject *bytes =
        text && PyUnicode_Check(text) ? PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape") : NULL;
    size_t length = bytes ? (size_t)PyBytes_Size(bytes) : 0;
    char *copy;

    if (!bytes && text)
        PyErr_Clear();
    if (length > UINT16_MAX)
        length = UINT16_MAX;
    copy = malloc(length + 1);
    if (copy) {
        if (bytes)
            memcpy(copy, PyBytes_AsString(bytes), length);
        copy[length] = '\0';
        *size = (uint32_t)length;
    }
    Py_XDECREF(bytes);
    return copy;
}

static int read_lines(lp_line_code *out, const unsigned char *table, size_t table_size, const unsigned char *code,
                      uint32_t units)
{
    work w = {.ranges = malloc((table_size + 1) * sizeof *w.ranges)};
    int32_t lowest = INT32_MAX, highest = INT32_MIN, *lines = NULL;
    uint16_t *narrow = NULL;
    uint32_t *wide = NULL, slots = 0;
    int rc = -1;

    if (!w.ranges)
        return -1;
    size_t count = read_table(table, table_size, out->first_line, w.ranges);
    for (size_t i = 0; i < count; i++) {
        if (w.ranges[i].line < 0)
            continue;
        lowest = w.ranges[i].line < lowest ? w.ranges[i].line : lowest;
        highest = w.ranges[i].line > highest ? w.ranges[i].line : highest;
    }
    if (lowest > highest)
        lowest = highest = out->first_line;
    if ((int64_t)highest - lowest >=
        (int64_t)WIDEST) { /* lines made up by a generator of code: only the first million */
        highest = lowest + (int32_t)WIDEST - 1;
        for (size_t i = 0; i < count; i++)
            if (w.ranges[i].line > highest)
                w.ranges[i].line = -1;
    }
    size_t width = (size_t)(highest - lowest) + 1;
    w.spans = malloc((count + 1) * sizeof *w.spans);
    w.joined = malloc((count + 1) * sizeof *w.joined);
    w.seen = calloc(count + 1, sizeof *w.seen);
    w.slot_of = malloc(width * sizeof *w.slot_of);
    if (!w.spans || !w.joined || !w.seen || !w.slot_of)
        goto done;
    memset(w.slot_of, 0xff, width * sizeof *w.slot_of);
    for (size_t i = 0; i < count; i++)
        if (w.ranges[i].line >= 0)
            w.slot_of[w.ranges[i].line - lowest] = 0;
    for (size_t i = 0; i < width; i++)
        if (w.slot_of[i] == 0)
            w.slot_of[i] = (int32_t)slots++;
    lines = malloc((slots + 1) * sizeof *lines);
    if (slots < LP_LINE_NARROW_SLOTS)
        narrow = malloc((units + 1) * sizeof *narrow);
    else
        wide = malloc((units + 1) * sizeof *wide);
    if (!lines || (!narrow && !wide))
        goto done;
    for (size_t i = 0; i < width; i++)
        if (w.slot_of[i] >= 0)
            lines[w.slot_of[i]] = lowest + (int32_t)i;
    if (narrow)
        memset(narrow, 0xff, units * sizeof *narrow);
    else
        memset(wide, 0xff, units * sizeof *wide);
    find_statements(w.ranges, count, code, units, w.spans, w.joined);
    fill(&w, count, code, units, lowest, narrow, wide);
    out->lines = lines;
    out->narrow = narrow;
    out->wide = wide;
    out->slots = slots;
    lines = NULL;
    narrow = NULL;
    wide = NULL;
    rc = 0;

done:
    free(lines);
    free(narrow);
    free(wide);
    free(w.slot_of);
    free(w.seen);
    free(w.joined);
    free(w.spans);
    free(w.ranges);
    return rc;
}

int lpy_line_code_read(PyObject *code, lp_line_code *out)
{
    PyObject *bytes = NULL, *table = NULL;
    int rc = -1;

    if (!ops.known)
        learn();
    memset(out, 0, sizeof *out);
    out->key = code;
    out->first_line = ((PyCodeObject *)code)->co_firstlineno;
    bytes = lpy_code_bytes(code);
    table = bytes ? lpy_code_table(code) : NULL;
    if (table && PyBytes_Check(table) && PyBytes_Check(bytes)) {
        uint32_t units = (uint32_t)(PyBytes_Size(bytes) / 2);
        out->bytes = 2 * units;
        rc = read_lines(out, (const unsigned char *)PyBytes_AsString(table), (size_t)PyBytes_Size(table),
                        (const unsigned char *)PyBytes_AsString(bytes), units);
        if (rc == 0) {
            out->file = copy_text(((PyCodeObject *)code)->co_filename, &out->file_size);
            out->name = copy_text(lpy_code_name(code), &out->name_size);
            if (!out->file || !out->name) {
                free((void *)(uintptr_t)out->file);
                free((void *)(uintptr_t)out->name);
                free((void *)(uintptr_t)out->lines);
                free((void *)(uintptr_t)out->narrow);
                free((void *)(uintptr_t)out->wide);
                rc = -1;
            }
        }
        if (rc != 0)
            PyErr_NoMemory();
    }
    Py_XDECREF(table);
    Py_XDECREF(bytes);
    return rc;
}
