/* Where an instruction goes on with a statement that has been on its line before.
 *
 * A compiler leaves a line within a statement and comes back to it: for the call of `f(\n a)`, for the name of a decorated
 * function, for what is made of the parts of a literal, behind either side of `x if c\n else y`. Statements are found by the
 * stack: one begins where nothing is on it but what belongs to blocks (the iterator of a `for`, the exit of a `with`, what a handler
 * holds), and two beginnings whose values meet are one. An instruction within a statement goes on with its line if the line
 * was come to on each way from the statement's beginning.
 *
 * Assumes what line_depth.c does. Does not say what comes back to the header of a block: line_code.c does. */
#include <stdlib.h>
#include <string.h>

#include "python/line.h"

#define NONE UINT32_MAX
#define FAR_ENOUGH 4096u  /* instructions of a branch that are looked at for the line of its condition */
#define TOO_MUCH 2000000u /* instructions times lines of one statement: the rest is told as before */

enum {
    LOOP = 1,
    APPENDS,
    APPENDS_PAIR,
    ENTERS,
    ENTERS_SETUP,
    SETUP,
    SPECIAL,
    CAUGHT,
    CAUGHT_PART,
    PASSES,
    WAITS,
    POPS,
    COPIES,
    JUMPS_ON,
    LEAVES,
    LEAVES_CAUGHT,
    RAISES_ON,
    LOADS,
    RETURNS,
    RETURNS_LOADED
};

static struct {
    bool known;
    uint8_t role[256];
} ops;

static void learn_roles(void)
{
    static const struct {
        const char *name;
        uint8_t role;
    } roles[] = {
        {"FOR_ITER", LOOP},
        {"GET_ANEXT", LOOP},
        {"LIST_APPEND", APPENDS},
        {"SET_ADD", APPENDS},
        {"MAP_ADD", APPENDS_PAIR},
        {"BEFORE_WITH", ENTERS},
        {"BEFORE_ASYNC_WITH", ENTERS},
        {"SETUP_WITH", ENTERS_SETUP},
        {"SETUP_ASYNC_WITH", ENTERS_SETUP},
        {"SETUP_FINALLY", SETUP},
        {"LOAD_SPECIAL", SPECIAL},
        {"PUSH_EXC_INFO", CAUGHT},
        {"CHECK_EG_MATCH", CAUGHT_PART},
        {"NOP", PASSES},
        {"NOT_TAKEN", PASSES},
        {"EXTENDED_ARG", PASSES},
        {"JUMP_BACKWARD_NO_INTERRUPT", WAITS},
        {"END_SEND", WAITS},
        {"POP_TOP", POPS},
        {"COPY", COPIES},
        {"JUMP_FORWARD", JUMPS_ON},
        {"JUMP_ABSOLUTE", JUMPS_ON},
        {"JUMP_BACKWARD", JUMPS_ON},
        {"POP_BLOCK", LEAVES},
        {"POP_EXCEPT", LEAVES_CAUGHT},
        {"RERAISE", RAISES_ON},
        {"LOAD_CONST", LOADS},
        {"RETURN_VALUE", RETURNS},
        {"RETURN_CONST", RETURNS_LOADED},
    };
    PyObject *map = lpy_line_opmap();

    if (map) {
        for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
            PyObject *value = PyDict_GetItemString(map, roles[i].name); /* borrowed */
            long number = value ? PyLong_AsLong(value) : -1;
            if (number >= 0 && number < 256) /* those above are the compiler's own */
                ops.role[number] = roles[i].role;
        }
        ops.known = true;
    }
    PyErr_Clear();
    Py_XDECREF(map);
}

typedef struct edges { /* where an instruction leads */
    uint32_t to[2], argument;
    uint8_t count;
    bool falls;
} edges;

typedef struct body { /* of a code object; arrays by instruction */
    const unsigned char *code;
    const lpy_line_flow *flow;
    const int32_t *slot; /* of the line; -1 none */
    uint32_t units, slots;
    uint32_t *at; /* instructions that something leads to, in order, without inline caches; as far as end */
    uint32_t *end;
    edges *edge;      /* theirs */
    int32_t *base;    /* values of blocks, at the bottom of the stack; LPY_LINE_NO_DEPTH: nothing leads there */
    uint32_t *set;    /* union-find: the statement */
    uint32_t *next;   /* the instruction after it in its statement; NONE: the last */
    uint64_t *seen;   /* lines of a statement that were come to on each way, 64 at a time */
    uint32_t *number; /* by slot: of the line in the statement; NONE: not in it */
    uint8_t *enters;  /* comes from another statement, or from nowhere that is known */
    uint8_t *result;
} body;

static bool is_cache(const body *b, uint32_t unit)
{
    return LPY_LOCATION_TABLE && b->code[2 * unit] == 0;
}

static uint8_t role_at(const body *b, uint32_t unit)
{
    return ops.role[b->code[2 * unit]];
}

static edges find_edges(const body *b, uint32_t unit)
{
    edges e = {.count = 0};
    uint32_t target = UINT32_MAX, next = unit + 1;
    bool ends;

    if (lpy_line_jump(b->code, b->units, unit, &e.argument, &target, &ends) && target < b->units &&
        b->flow[target].depth != LPY_LINE_NO_DEPTH)
        e.to[e.count++] = target;
    while (next < b->units && is_cache(b, next))
        next++;
    if (!ends && next < b->units && b->flow[next].depth != LPY_LINE_NO_DEPTH) {
        e.to[e.count++] = next;
        e.falls = true;
    }
    return e;
}

/* Once: they are asked for in each way through the code. */
static void find_all_edges(body *b)
{
    b->end = b->at;
    for (uint32_t unit = 0; unit < b->units; unit++)
        if (!is_cache(b, unit) && b->flow[unit].depth != LPY_LINE_NO_DEPTH) {
            b->edge[unit] = find_edges(b, unit);
            *b->end++ = unit;
        }
}

/* ---- blocks ---------------------------------------------------------------------------------------------------------- */

/* Loops that make a list, set or dict within an expression: what they append to is below their iterator. */
static void find_comprehensions(const body *b)
{
    uint32_t open = 0, *loops = b->next; /* not needed yet */

    for (const uint32_t *at = b->at; at < b->end; at++) {
        uint32_t unit = *at;
        int32_t depth = b->flow[unit].depth;
        while (open && depth < b->flow[loops[open - 1]].depth)
            open--;
        uint8_t role = role_at(b, unit);
        if (role == LOOP)
            loops[open++] = unit;
        if (role != APPENDS && role != APPENDS_PAIR)
            continue;
        uint32_t argument, target;
        bool ends;
        lpy_line_jump(b->code, b->units, unit, &argument, &target, &ends);
        int32_t made = depth - (role == APPENDS ? 1 : 2) - (int32_t)argument; /* its place on the stack */
        for (uint32_t i = open; i-- > 0 && b->flow[loops[i]].depth - 1 > made;)
            b->result[loops[i]] |= LPY_LINE_GATHERS;
    }
}

static int32_t at_most(int32_t value, int32_t limit)
{
    return value < limit ? value : limit;
}

static bool spread(const body *b, uint32_t unit, int32_t base)
{
    int32_t found = at_most(base, b->flow[unit].depth);
    bool news = b->base[unit] == LPY_LINE_NO_DEPTH || b->base[unit] < found;

    if (news)
        b->base[unit] = found;
    return news;
}

/* What of the stack belongs to blocks behind an instruction, on the way on and where it jumps to. */
static void blocks_behind(const body *b, uint32_t unit, uint32_t argument, int32_t *on, int32_t *jump)
{
    int32_t depth = b->flow[unit].depth, base = b->base[unit];

    *on = *jump = base;
    switch (role_at(b, unit)) {
    case LOOP:
        if (!(b->result[unit] & LPY_LINE_GATHERS)) {
            b->base[unit] = *on = depth;
            *jump = depth - 1;
        }
        break;
    case ENTERS: *on = depth; break; /* the manager is replaced by its exit */
    case ENTERS_SETUP:
        *on = depth;
        *jump = INT32_MAX;
        break;
    case SETUP: *jump = base == depth ? INT32_MAX : base; break;
    case SPECIAL: /* 3.14: __enter__ and __aenter__, when the exit is there */
        if (argument == 0 || argument == 2)
            *on = depth - 1;
        break;
    case CAUGHT:
        if (base == depth)
            *on = depth + 1;
        break;
    case CAUGHT_PART: *on = depth - 1; break;
    default: break;
    }
}

/* `enters`: 1 for what a loop comes back to. No expression has a loop, but for comprehensions and what waits: whatever is on the stack
 * there, as what `return` gives while its `finally` runs, is of no statement in the loop. */
static void find_loops(const body *b)
{
    memset(b->enters, 0, b->units);
    for (const uint32_t *at = b->at; at < b->end; at++) {
        uint32_t target = b->edge[*at].count ? b->edge[*at].to[0] : UINT32_MAX, first = target;
        if (target > *at || role_at(b, *at) == WAITS)
            continue;
        while (first + 1 < *at && role_at(b, first) == PASSES)
            first++;
        bool waits = first < *at && role_at(b, first) == SETUP && role_at(b, first + 1) == LOOP; /* 3.10 */
        b->enters[target] = !waits && role_at(b, first) != LOOP && role_at(b, first) != WAITS;
    }
}

static void find_blocks(const body *b)
{
    bool news = true;

    find_loops(b);
    for (uint32_t unit = 0; unit < b->units; unit++)
        b->base[unit] = LPY_LINE_NO_DEPTH;
    for (int pass = 0; pass < 4 && news; pass++) {
        news = false;
        for (const uint32_t *at = b->at; at < b->end; at++) {
            uint32_t unit = *at;
            const lpy_line_flow *flow = &b->flow[unit];
            if (unit == 0)
                spread(b, unit, 0);
            if (b->base[unit] == LPY_LINE_NO_DEPTH && flow->keeps >= 0 && flow->source < b->units &&
                b->base[flow->source] != LPY_LINE_NO_DEPTH) {
                int32_t around =
                    b->base[flow->source]; /* a handler holds all that it finds, but for those in expressions */
                spread(b, unit, around >= flow->keeps ? flow->depth : around);
            }
            if (b->base[unit] == LPY_LINE_NO_DEPTH)
                continue;
            if (b->enters[unit])
                b->base[unit] = flow->depth;
            const edges *e = &b->edge[unit];
            int32_t on, jump;
            blocks_behind(b, unit, e->argument, &on, &jump);
            for (uint32_t i = 0; i < e->count; i++)
                news |= spread(b, e->to[i], e->falls && i + 1 == e->count ? on : jump) && e->to[i] < unit;
        }
    }
}

static bool is_within(const body *b, uint32_t unit)
{
    return b->base[unit] != LPY_LINE_NO_DEPTH && b->flow[unit].depth > b->base[unit];
}

/* ---- statements ------------------------------------------------------------------------------------------------------ */

static uint32_t set_of(const body *b, uint32_t unit)
{
    while (b->set[unit] != unit) {
        b->set[unit] = b->set[b->set[unit]];
        unit = b->set[unit];
    }
    return unit;
}

static bool join(const body *b, uint32_t one, uint32_t other)
{
    uint32_t x = set_of(b, one), y = set_of(b, other);

    if (x < y)
        b->set[y] = x;
    else
        b->set[x] = y;
    return x != y;
}

static bool jumps_on(const body *b, uint32_t unit)
{
    const edges *e = &b->edge[unit];

    return e->count == 1 && !e->falls && e->to[0] > unit && role_at(b, unit) == JUMPS_ON;
}

/* A jump on either way out of `a < b < c`, where that is a condition. */
static bool is_chained(const body *b, const uint32_t *at)
{
    int32_t slot = b->slot[*at];

    if (!jumps_on(b, *at))
        return false;
    while (at > b->at && role_at(b, at[-1]) == PASSES)
        at--;
    if (at == b->at || b->slot[at[-1]] != slot)
        return false;
    uint32_t before = at[-1];
    return role_at(b, before) == POPS
               ? b->flow[before].source != LPY_LINE_FALLS
               : b->edge[before].count == 2 && b->edge[before].falls && role_at(b, before) != LOOP;
}

/* Whether it begins with a value on this line. */
static bool begins_on(const body *b, uint32_t unit, int32_t slot)
{
    const edges *e = &b->edge[unit];

    return b->slot[unit] == slot && e->count == 1 && e->falls && is_within(b, e->to[0]);
}

/* Whether the statement that begins at `unit` comes to this line, be it by way of a constant on another one. */
static bool comes_to(const body *b, uint32_t unit, int32_t slot)
{
    bool left = false;

    while (jumps_on(b, unit))
        unit = b->edge[unit].to[0];
    for (uint32_t nop = unit; role_at(b, nop) == PASSES && b->edge[nop].falls; nop = b->edge[nop].to[0]) {
        if (left && b->slot[nop] == slot)
            return true;
        left = left || b->slot[nop] != slot;
    }
    if (begins_on(b, unit, slot))
        return true;
    uint32_t set = set_of(b, unit), end = b->units - unit > FAR_ENOUGH ? unit + FAR_ENOUGH : b->units;

    for (; unit < end; unit++) {
        if (is_cache(b, unit) || b->flow[unit].depth == LPY_LINE_NO_DEPTH)
            continue;
        if (set_of(b, unit) != set)
            return false;
        if (b->slot[unit] == slot && is_within(b, unit))
            return true;
    }
    return false;
}

/* A condition is its statement's if both sides of it are one, or one of them comes back to its line. */
static bool join_conditions(const body *b)
{
    bool news = false;

    for (const uint32_t *at = b->end; at-- > b->at;) {
        uint32_t unit = *at;
        if (b->base[unit] == LPY_LINE_NO_DEPTH)
            continue;
        const edges *e = &b->edge[unit];
        if (e->count != 2 || role_at(b, unit) == LOOP)
            continue;
        bool back = e->to[0] <= unit; /* a loop's condition at its end */
        bool one = !back && set_of(b, e->to[0]) == set_of(b, e->to[1]);
        for (uint32_t i = back; i < 2; i++)
            if (set_of(b, e->to[i]) != set_of(b, unit) &&
                (one || (b->slot[unit] >= 0 && comes_to(b, e->to[i], b->slot[unit]))))
                news |= join(b, unit, e->to[i]);
    }
    return news;
}

/* Whether the next instruction is of the same statement because this one does nothing for itself. */
static bool passes(const body *b, uint32_t unit, bool whatever_line)
{
    const edges *e = &b->edge[unit];

    return e->falls && role_at(b, unit) == PASSES &&
           (whatever_line || b->slot[unit] < 0 || b->slot[unit] == b->slot[e->to[e->count - 1]]);
}

/* The start of what a handler within an expression guards, as an `await` has one; NONE: it is none. */
static uint32_t guarded_by(const body *b, uint32_t unit)
{
    const lpy_line_flow *flow = &b->flow[unit];

    return flow->keeps >= 0 && flow->source < unit && is_within(b, unit) && is_within(b, flow->source) ? flow->source
                                                                                                       : NONE;
}

static void find_sets(const body *b)
{
    for (uint32_t unit = 0; unit < b->units; unit++)
        b->set[unit] = unit;
    for (const uint32_t *at = b->at; at < b->end; at++) {
        uint32_t unit = *at;
        if (b->base[unit] == LPY_LINE_NO_DEPTH)
            continue;
        if (guarded_by(b, unit) != NONE)
            join(b, unit, guarded_by(b, unit));
        const edges *e = &b->edge[unit];
        for (uint32_t i = 0; i < e->count; i++)
            if (is_within(b, e->to[i]) || (i + 1 == e->count && passes(b, unit, false)) || is_chained(b, at))
                join(b, unit, e->to[i]);
    }
    for (int pass = 0; pass < 8 && join_conditions(b); pass++)
        ;
    /* One with a line of its own begins the literal that was made of its lines; or it is `pass`, which comes to the condition of the
     * loop around it: so they are no part of it before. */
    for (const uint32_t *at = b->at; at < b->end; at++)
        if (b->base[*at] != LPY_LINE_NO_DEPTH && passes(b, *at, true))
            join(b, *at, b->edge[*at].to[b->edge[*at].count - 1]);
    memset(b->enters, 1, b->units);
    for (const uint32_t *at = b->at; at < b->end;
         at++) /* 1: nothing leads there; 0: its own statement; 2: another, too */
        if (b->base[*at] != LPY_LINE_NO_DEPTH) {
            uint32_t unit = *at;
            const edges *e = &b->edge[unit];
            if (b->enters[unit] == 1 && guarded_by(b, unit) != NONE)
                b->enters[unit] = 0;
            for (uint32_t i = 0; i < e->count; i++) {
                if (set_of(b, e->to[i]) != set_of(b, unit))
                    b->enters[e->to[i]] = 2;
                else if (b->enters[e->to[i]] == 1)
                    b->enters[e->to[i]] = 0;
            }
        }
}

/* ---- lines ----------------------------------------------------------------------------------------------------------- */

static uint64_t bit_of(const body *b, uint32_t unit, uint32_t from)
{
    uint32_t number = b->slot[unit] >= 0 ? b->number[b->slot[unit]] : NONE;

    return number != NONE && number >= from && number - from < 64 ? (uint64_t)1 << (number - from) : 0;
}

/* One way through a statement for 64 of its lines. Whether anything was learnt. */
static bool follow(const body *b, uint32_t first, uint32_t from, uint64_t top)
{
    uint32_t set = set_of(b, first);
    bool news = false;

    for (uint32_t unit = first; unit != NONE; unit = b->next[unit]) {
        uint32_t source = guarded_by(b, unit);
        if (source != NONE)
            b->seen[unit] &= b->seen[source];
        uint64_t seen = b->seen[unit] | bit_of(b, unit, from);
        if (b->result[unit] & LPY_LINE_GATHERS)
            seen &= top | bit_of(b, unit, from); /* lines in it are executed for each value */
        const edges *e = &b->edge[unit];
        for (uint32_t i = 0; i < e->count; i++) {
            if (set_of(b, e->to[i]) != set || (b->seen[e->to[i]] & ~seen) == 0)
                continue;
            b->seen[e->to[i]] &= seen;
            news = true;
        }
    }
    return news;
}

/* Whether one instruction of it comes after the other, with no other way. */
static bool is_straight(const body *b, uint32_t first)
{
    for (uint32_t unit = first; unit != NONE; unit = b->next[unit]) {
        const edges *e = &b->edge[unit];
        for (uint32_t i = 0; i < e->count; i++)
            if (set_of(b, e->to[i]) == first && e->to[i] != b->next[unit])
                return false;
        if (unit != first && b->enters[unit])
            return false;
    }
    return true;
}

static void look_at(const body *b, uint32_t first)
{
    bool straight = is_straight(b, first);
    uint32_t lines = 0, length = 0;
    int32_t top = INT32_MAX; /* slots are in the order of lines */

    for (uint32_t unit = first; unit != NONE; unit = b->next[unit]) {
        length++;
        int32_t slot = b->slot[unit];
        if (slot < 0)
            continue;
        if (role_at(b, unit) != PASSES) /* a `try` before it */
            top = at_most(top, slot);
        if (b->number[slot] == NONE)
            b->number[slot] = lines++;
        else if (straight)
            b->result[unit] |= LPY_LINE_GOES_ON;
    }
    for (uint32_t from = 0; !straight && from < lines && (uint64_t)from * length < TOO_MUCH; from += 64) {
        int passes = 0;
        bool has_top = top != INT32_MAX && b->number[top] >= from && b->number[top] - from < 64;
        uint64_t above = has_top ? (uint64_t)1 << (b->number[top] - from) : 0;
        for (uint32_t unit = first; unit != NONE; unit = b->next[unit])
            b->seen[unit] = b->enters[unit] ? 0 : UINT64_MAX;
        while (passes < 16 && follow(b, first, from, above))
            passes++;
        for (uint32_t unit = first; unit != NONE && passes < 16; unit = b->next[unit])
            if (b->seen[unit] & bit_of(b, unit, from))
                b->result[unit] |= LPY_LINE_GOES_ON;
    }
    for (uint32_t unit = first; unit != NONE; unit = b->next[unit])
        if (b->slot[unit] >= 0)
            b->number[b->slot[unit]] = NONE;
}

static void find_lines(const body *b)
{
    uint32_t *last = (uint32_t *)(void *)b->seen; /* of each set, as long as it is not needed for lines */

    memset(b->number, 0xff, b->slots * sizeof *b->number);
    memset(b->next, 0xff, b->units * sizeof *b->next);
    for (const uint32_t *at = b->at; at < b->end; at++) {
        uint32_t unit = *at;
        if (b->base[unit] == LPY_LINE_NO_DEPTH)
            continue;
        uint32_t set = set_of(b, unit); /* its first instruction */
        if (set != unit)
            b->next[last[set]] = unit;
        last[set] = unit;
    }
    for (const uint32_t *at = b->at; at < b->end; at++)
        if (b->base[*at] != LPY_LINE_NO_DEPTH && set_of(b, *at) == *at && b->next[*at] != NONE)
            look_at(b, *at);
}

/* ---- ways out -------------------------------------------------------------------------------------------------------- */

/* What ends a `finally` or a handler when the exception goes on. */
static bool raises_on(const body *b, uint32_t unit)
{
    if (role_at(b, unit) == COPIES && unit + 2 < b->units && role_at(b, unit + 1) == LEAVES_CAUGHT)
        unit += 2;
    return role_at(b, unit) == RAISES_ON;
}

static bool leads_out(const body *b, const uint32_t *at)
{
    switch (role_at(b, *at)) {
    case PASSES:
    case JUMPS_ON:
    case LEAVES:
    case LEAVES_CAUGHT:
    case RETURNS_LOADED: return true;
    case LOADS: return at + 1 < b->end && role_at(b, at[1]) == RETURNS; /* where the code ends */
    default: return false;
    }
}

/* Whether the statement that ends before the instruction has been on its line. */
static bool was_on(const body *b, const uint32_t *at)
{
    int32_t slot = b->slot[*at--];

    while (at > b->at && b->slot[*at] < 0 && role_at(b, *at) == PASSES)
        at--; /* EXTENDED_ARG, a part of the instruction */
    uint32_t set = set_of(b, *at);

    for (uint32_t i = 0; i < FAR_ENOUGH && at >= b->at && set_of(b, *at) == set; i++, at--)
        if (b->slot[*at] == slot)
            return true;
    return false;
}

/* What leads out of a block is no statement's and has no line in the source: it gets that of the instruction before it, from which it
 * need not be reached (behind `if x: raise y` at the end of a block), or of the statement. A `pass`, `break` or `continue` is the first of
 * its line. */
static void find_ways_out(const body *b)
{
    memset(b->enters, 0, b->units);
    for (const uint32_t *at = b->at; at < b->end; at++)
        for (uint32_t i = 0; i < b->edge[*at].count; i++)
            if (b->edge[*at].to[i] <= *at)
                b->enters[b->edge[*at].to[i]] = 1; /* a loop comes back there */
    for (const uint32_t *at = b->at; at < b->end; at++) {
        uint32_t unit = *at;
        bool goes_on = raises_on(b, unit);
        if (at > b->at && !b->enters[unit] && leads_out(b, at))
            goes_on = goes_on || was_on(b, at);
        if (goes_on)
            b->result[unit] |= LPY_LINE_GOES_ON;
    }
}

uint8_t *lpy_line_statements(const unsigned char *code, uint32_t units, const lpy_line_flow *flow, const int32_t *slot,
                             uint32_t slots)
{
    body b = {.code = code, .flow = flow, .slot = slot, .units = units, .slots = slots};

    if (!ops.known)
        learn_roles();
    b.result = calloc(units + 1, 1);
    b.enters = malloc(units + 1);
    b.at = malloc((units + 1) * sizeof *b.at);
    b.edge = malloc((units + 1) * sizeof *b.edge);
    b.base = malloc((units + 1) * sizeof *b.base);
    b.set = malloc((units + 1) * sizeof *b.set);
    b.next = malloc((units + 1) * sizeof *b.next);
    b.seen = malloc((units + 1) * sizeof *b.seen);
    b.number = malloc((slots + 1) * sizeof *b.number);
    if (b.result && b.enters && b.at && b.edge && b.base && b.set && b.next && b.seen && b.number && ops.known) {
        find_all_edges(&b);
        find_comprehensions(&b);
        find_blocks(&b);
        find_sets(&b);
        find_lines(&b);
        find_ways_out(&b);
    }
    free(b.enters);
    free(b.at);
    free(b.edge);
    free(b.base);
    free(b.set);
    free(b.next);
    free(b.seen);
    free(b.number);
    return b.result;
}
