/* What each instruction of a code object is to the line engine: the line, its class of cost, and whether arriving there is a new
 * execution of the statement.
 *
 * A statement over several lines is visited line by line and some lines twice: in `f(\n a,\n)` the call itself happens in the
 * second visit of the first line. A `with` line is visited again when the block is left, a `return` after its `finally`.
 * Both are told by the evaluation stack (line_depth.c): as long as more is on it than when a line was begun, arriving there
 * again goes on with the same execution. Loops' headers are new executions.
 *
 * The location table is that of Objects/locations.md (3.11) or Objects/lnotab_notes.txt (3.10). */
#include <stdlib.h>
#include <string.h>

#include "python/line.h"

#define WIDEST (1u << 20) /* lines from the first to the last of one code object */

typedef struct range {   /* instructions with one position */
    uint32_t start, end; /* in units of two bytes */
    int32_t line;        /* -1 none */
    uint32_t group;      /* the same number: one execution of a statement */
    uint32_t open;       /* see find_statements */
} range;

typedef struct opcodes {
    bool known;
    unsigned extended, for_iter, async_for, load_global, setup_finally;
    uint8_t enters[256]; /* takes a manager, and leaves its exit in the same place */
} opcodes;
static opcodes ops;

/* ---- the location table ---------------------------------------------------------------------------------------------- */

#if LPY_LOCATION_TABLE
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

/* Ranges of the table; their number. `out` has room for one an entry. */
static size_t read_table(const unsigned char *p, size_t size, int32_t first_line, range *out)
{
    const unsigned char *end = p + size;
    int32_t line = first_line;
    uint32_t at = 0;
    size_t count = 0;

    while (p < end) {
        unsigned kind = (*p >> 3) & 15u, length = (*p & 7u) + 1;
        uint32_t value = 0, skip;
        p++;
        range r = {.start = at, .end = at + length, .line = -1};
        at += length;
        if (kind == 15) {
            out[count++] = r;
            continue;
        }
        if (kind == 14) {
            p = read_varint(p, end, &value);
            for (int i = 0; i < 3; i++) /* last line, columns */
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
        range r = {.start = at, .end = at + p[i] / 2u, .line = -1};
        at = r.end;
        if (step != -128) {
            line += step;
            r.line = line;
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

static void learn(void)
{
    static const char *const with[] = {"BEFORE_WITH", "BEFORE_ASYNC_WITH", "SETUP_WITH", "SETUP_ASYNC_WITH"};
    PyObject *map = lpy_line_opmap();

    if (map) {
        ops.extended = number_of(map, "EXTENDED_ARG");
        ops.for_iter = number_of(map, "FOR_ITER");
        ops.async_for = number_of(map, "GET_ANEXT");
        ops.load_global = number_of(map, "LOAD_GLOBAL");
        ops.setup_finally = number_of(map, "SETUP_FINALLY");
        for (size_t i = 0; i < sizeof with / sizeof *with; i++)
            if (number_of(map, with[i]) < 256)
                ops.enters[number_of(map, with[i])] = 1;
    }
    PyErr_Clear();
    ops.known = true;
    Py_XDECREF(map);
}

/* ---- statements ------------------------------------------------------------------------------------------------------ */

typedef struct span { /* a line that was begun with `depth` values on the stack, and there were more ever since */
    int32_t line, depth;
    uint32_t group;
    uint32_t around; /* 1 + the span around it; 0 none */
} span;

/* The range with this instruction among the first `count`; NULL none. */
static const range *range_at(const range *ranges, size_t count, uint32_t unit)
{
    size_t low = 0;

    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (ranges[middle].end <= unit)
            low = middle + 1;
        else if (ranges[middle].start > unit)
            count = middle;
        else
            return &ranges[middle];
    }
    return NULL;
}

static int32_t enters(const unsigned char *code, uint32_t units, uint32_t unit)
{
    while (unit + 1 < units && code[2 * unit] == ops.extended)
        unit++;
    return ops.enters[code[2 * unit]];
}

/* Numbers the executions of statements: a range of a line that is still open, see span, goes on with it. Where a jump leads, what
 * was open at the jump is. The line of `with (\n a()):` begins when the manager is there already, whose place is the exit's then. */
static void find_statements(range *ranges, size_t count, const unsigned char *code, const lpy_line_flow *flow,
                            uint32_t units, span *spans)
{
    uint32_t made = 0, open = 0, unit = 0; /* open: 1 + the innermost; 0 none */

    for (size_t i = 0; i < count; i++) {
        range *r = &ranges[i];
        r->group = (uint32_t)i;
        for (; flow && unit <= r->start && unit < units; unit++) {
            if (flow[unit].source != LPY_LINE_FALLS) {
                const range *from = range_at(ranges, i, flow[unit].source);
                open = from ? from->open : 0;
            }
            while (open && flow[unit].depth != LPY_LINE_NO_DEPTH && spans[open - 1].depth >= flow[unit].depth)
                open = spans[open - 1].around;
        }
        if (flow && r->line >= 0 && r->start < units && flow[r->start].depth != LPY_LINE_NO_DEPTH) {
            uint32_t k = open;
            while (k && spans[k - 1].line != r->line)
                k = spans[k - 1].around;
            if (k) {
                r->group = spans[k - 1].group;
            } else {
                spans[made++] = (span){r->line, flow[r->start].depth - enters(code, units, r->start), r->group, open};
                open = made;
            }
        }
        r->open = open;
    }
}

typedef struct work { /* one allocation a code object */
    range *ranges;
    span *spans;
    uint32_t
        *seen; /* by statement, which is of one line: it has been there. Copies of it, as of a `finally`, are others */
    int32_t *slot_of; /* by line - lowest; -1 none */
    int32_t *slots;   /* by instruction; -1 none */
    uint8_t *within;  /* by instruction: LPY_LINE_GOES_ON, LPY_LINE_GATHERS; NULL: not known */
    bool gathers;     /* it is the code of a comprehension: its loops are statements to it */
} work;

/* `async for` of 3.10 begins with its handler. */
static bool is_loop(const unsigned char *at, const unsigned char *end)
{
    if (at[0] == ops.setup_finally && end - at >= 4)
        at += 2;
    return at[0] == ops.for_iter || at[0] == ops.async_for;
}

static uint32_t flags_of(const work *w, const unsigned char *at, const unsigned char *end, uint32_t unit, bool again,
                         int32_t line)
{
    for (; end - at >= 4 && at[0] == ops.extended; unit++)
        at += 2;
    unsigned how = w->within ? w->within[unit] : 0;
    again = again || (how & LPY_LINE_GOES_ON);
    if (is_loop(at, end) && (w->gathers || !(how & LPY_LINE_GATHERS)))
        again = false; /* the loop comes round: each time is an execution of its header */
    uint32_t class = (line > LPY_LINE_SMALL ? LPY_LINE_FAR : 0u) | (at[0] == ops.load_global ? LPY_LINE_GLOBAL : 0u) |
                     (at[0] == ops.for_iter ? LPY_LINE_LOOP : 0u);
    return (again ? LP_LINE_AGAIN : 0u) | class << 1;
}

static bool is_apart(const lpy_line_flow *flow, uint32_t units, uint32_t unit)
{
    return flow && unit < units && flow[unit].source != LPY_LINE_FALLS;
}

/* Where something begins that is not reached from the instruction before it, as the next copy of a `finally`, a new range does, though it
 * is of the same line. false: no memory. */
static bool split_ranges(work *w, size_t *count, const lpy_line_flow *flow, uint32_t units)
{
    size_t more = 0;

    for (size_t i = 0; i < *count; i++)
        for (uint32_t unit = w->ranges[i].start + 1; unit < w->ranges[i].end; unit++)
            more += is_apart(flow, units, unit);
    if (!more)
        return true;
    range *ranges = malloc((*count + more) * sizeof *ranges), *to = ranges;
    span *spans = realloc(w->spans, (*count + more + 1) * sizeof *spans);
    uint32_t *seen = realloc(w->seen, (*count + more + 1) * sizeof *seen);
    w->spans = spans ? spans : w->spans;
    w->seen = seen ? seen : w->seen;
    if (!ranges || !spans || !seen) {
        free(ranges);
        return false;
    }
    memset(seen, 0, (*count + more + 1) * sizeof *seen);
    for (size_t i = 0; i < *count; i++) {
        range r = w->ranges[i];
        for (uint32_t unit = r.start + 1; unit < r.end; unit++)
            if (is_apart(flow, units, unit)) {
                *to++ = (range){.start = r.start, .end = unit, .line = r.line};
                r.start = unit;
            }
        *to++ = r;
    }
    free(w->ranges);
    w->ranges = ranges;
    *count += more;
    return true;
}

static void look_within(work *w, size_t count, const unsigned char *code, uint32_t units, const lpy_line_flow *flow,
                        int32_t lowest, uint32_t slots)
{
    w->slots = malloc((units + 1) * sizeof *w->slots);
    if (!w->slots)
        return;
    memset(w->slots, 0xff, units * sizeof *w->slots);
    for (size_t i = 0; i < count; i++) {
        const range *r = &w->ranges[i];
        for (uint32_t unit = r->start; r->line >= 0 && unit < r->end && unit < units; unit++)
            if (code[2 * (size_t)unit] != ops.extended) /* a part of the instruction behind it */
                w->slots[unit] = w->slot_of[r->line - lowest];
    }
    w->within = lpy_line_statements(code, units, flow, w->slots, slots);
}

static void fill(const work *w, size_t count, const unsigned char *code, uint32_t units, const lpy_line_flow *flow,
                 int32_t lowest, uint16_t *narrow, uint32_t *wide)
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
        if (r->line != before || is_apart(flow, units, r->start)) {
            again = w->seen[r->group] != 0;
            w->seen[r->group] = 1;
        }
        before = r->line;
        for (uint32_t unit = r->start; unit < r->end && unit < units; unit++) {
            uint32_t entry = slot << LP_LINE_SLOT | flags_of(w, code + 2 * (size_t)unit, end, unit, again, r->line);
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

static bool is_comprehension(PyObject *code)
{
    static const char *const names[] = {"<listcomp>", "<setcomp>", "<dictcomp>"};
    PyObject *name = ((PyCodeObject *)code)->co_name;
    bool found = false;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found = found || PyUnicode_CompareWithASCIIString(name, names[i]) == 0;
    return found;
}

static lpy_line_flow *flow_of(PyObject *handlers, const unsigned char *code, uint32_t units)
{
    return lpy_line_flow_read(code, units, handlers ? (const unsigned char *)PyBytes_AsString(handlers) : NULL,
                              handlers ? (size_t)PyBytes_Size(handlers) : 0);
}

/* Whether each line is one piece that is come to from outside, at its beginning, and not twice: then every arrival is an
 * execution, and nothing needs to be told by the stack. Most functions of a few lines are so. */
static bool is_plain(const work *w, size_t count, PyObject *code, PyObject *handlers, const unsigned char *bytes,
                     uint32_t units, int32_t lowest)
{
    uint8_t *starts;
    int32_t before = -1;
    bool plain = true;

    if ((handlers && PyBytes_Size(handlers) > 0) || w->gathers ||
        ((PyCodeObject *)code)->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
        return false;
    starts = calloc(units + 1, 1);
    if (!starts)
        return false;
    for (size_t i = 0; plain && i < count; i++) {
        const range *r = &w->ranges[i];
        if (r->line != before && r->start < units) {
            starts[r->start] = 1;
            if (r->line >= 0)
                plain = w->seen[w->slot_of[r->line - lowest]]++ == 0;
        }
        before = r->line;
    }
    memset(w->seen, 0, (count + 1) * sizeof *w->seen);
    plain = plain && lpy_line_goes_forward(bytes, units, starts);
    free(starts);
    return plain;
}

static int read_lines(lp_line_code *out, PyObject *object, const unsigned char *table, size_t table_size,
                      const unsigned char *code, uint32_t units)
{
    work w = {.ranges = malloc((table_size + 1) * sizeof *w.ranges), .gathers = is_comprehension(object)};
    PyObject *handlers = lpy_code_handlers(object);
    lpy_line_flow *flow = NULL;
    int32_t lowest = INT32_MAX, highest = INT32_MIN, *lines = NULL;
    uint16_t *narrow = NULL;
    uint32_t *wide = NULL, slots = 0;
    int rc = -1;

    if (!w.ranges)
        goto done;
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
    w.seen = calloc(count + 1, sizeof *w.seen);
    w.slot_of = malloc(width * sizeof *w.slot_of);
    if (!w.spans || !w.seen || !w.slot_of)
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
    if (!is_plain(&w, count, object, handlers, code, units, lowest))
        flow = flow_of(handlers, code, units);
    if (!split_ranges(&w, &count, flow, units))
        goto done;
    find_statements(w.ranges, count, code, flow, units, w.spans);
    if (flow)
        look_within(&w, count, code, units, flow, lowest, slots);
    fill(&w, count, code, units, flow, lowest, narrow, wide);
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
    free(w.slots);
    free(w.within);
    free(w.seen);
    free(w.spans);
    free(w.ranges);
    free(flow);
    Py_XDECREF(handlers);
    return rc;
}

void lpy_line_code_free(lp_line_code *code)
{
    free((void *)(uintptr_t)code->file);
    free((void *)(uintptr_t)code->name);
    free((void *)(uintptr_t)code->lines);
    free((void *)(uintptr_t)code->narrow);
    free((void *)(uintptr_t)code->wide);
    free((void *)(uintptr_t)code->weights);
}

int lpy_line_code_read(const lpy_line_backend *backend, PyObject *code, lp_line_code *out)
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
        rc = read_lines(out, code, (const unsigned char *)PyBytes_AsString(table), (size_t)PyBytes_Size(table),
                        (const unsigned char *)PyBytes_AsString(bytes), units);
        if (rc == 0) {
            out->file = copy_text(((PyCodeObject *)code)->co_filename, &out->file_size);
            out->name = copy_text(lpy_code_name(code), &out->name_size);
            if (backend && backend->traces)
                out->weights = lpy_line_weigh(out, (const unsigned char *)PyBytes_AsString(bytes),
                                              ((PyCodeObject *)code)->co_names);
            if (!out->file || !out->name || (backend && backend->traces && !out->weights)) {
                lpy_line_code_free(out);
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
