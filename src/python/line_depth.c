/* How many values are on the evaluation stack before each instruction, and whence it is reached. Within an expression something is
 * there that was not there when its statement began: so an arrival at a line with more on the stack than when the line was
 * begun goes on with the same execution of its statement. The location table cannot tell: it has no ends in 3.10, and the
 * lines of whole compound statements on single instructions later.
 *
 * Assumes code as a compiler makes it: one depth at each instruction, whichever way it was reached. Depths are relative to the
 * first instruction's. */
#include <stdlib.h>
#include <string.h>

#include "python/line.h"

enum { JUMPS = 1, ABSOLUTE = 2, BACKWARD = 4, ENDS = 8, EXTENDS = 16, TAKES_NOTHING = 32 };

#define SMALL_ARGUMENTS 8u /* most instructions have one of these */

static struct {
    bool known;
    uint8_t kind[256];
    int32_t effect[2][256][SMALL_ARGUMENTS]; /* by whether it jumps */
    unsigned gen_start, return_generator;
} flow;

PyObject *lpy_line_opmap(void)
{
    PyObject *opcode = PyImport_ImportModule("opcode");
    PyObject *names = opcode ? PyObject_GetAttrString(opcode, "opmap") : NULL; /* a frozendict from 3.15 on */
    PyObject *map = names ? PyDict_New() : NULL;

    if (map && PyDict_Update(map, names) != 0)
        Py_CLEAR(map);
    Py_XDECREF(names);
    Py_XDECREF(opcode);
    return map;
}

static void learn_set(PyObject *opcode, const char *set, uint8_t kind)
{
    PyObject *list = PyObject_GetAttrString(opcode, set);
    Py_ssize_t count = list && PyList_Check(list) ? PyList_Size(list) : 0;

    for (Py_ssize_t i = 0; i < count; i++) {
        long number = PyLong_AsLong(PyList_GetItem(list, i));
        if (number >= 0 && number < 256)
            flow.kind[number] |= kind;
    }
    PyErr_Clear(); /* a set that this version does not have */
    Py_XDECREF(list);
}

static void learn_names(PyObject *map)
{
    static const char *const ends[] = {
        "JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT",
        "RETURN_VALUE", "RETURN_CONST",  "RAISE_VARARGS", "RERAISE",
    };
    PyObject *name, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(map, &at, &name, &value)) {
        const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
        long number = PyLong_AsLong(value);

        if (!text || number < 0 || number > 255)
            continue;
        if (strcmp(text, "GEN_START") == 0)
            flow.gen_start = (unsigned)number;
        if (strcmp(text, "RETURN_GENERATOR") == 0)
            flow.return_generator = (unsigned)number;
        if (strstr(text, "JUMP_BACKWARD"))
            flow.kind[number] |= BACKWARD;
        if (strcmp(text, "EXTENDED_ARG") == 0)
            flow.kind[number] |= EXTENDS;
        if (strcmp(text, "END_ASYNC_FOR") == 0) /* 3.14: its argument says where it comes from, and it goes on */
            flow.kind[number] &= (uint8_t)~JUMPS;
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            if (strcmp(text, ends[i]) == 0)
                flow.kind[number] |= ENDS;
    }
}

static int32_t ask_effect(unsigned opcode, uint32_t argument, int jump)
{
    /* A generator is begun with a value on its stack, which its first instruction takes: 3.10 has it there before, and 3.11 and
     * 3.12 do not say that it comes. */
    if (opcode == flow.gen_start)
        return 0;
    if (opcode == flow.return_generator)
        return 1;
    int effect =
        PyCompile_OpcodeStackEffectWithJump((int)opcode, flow.kind[opcode] & TAKES_NOTHING ? 0 : (int)argument, jump);

    return effect != PY_INVALID_STACK_EFFECT ? effect : 0; /* inline caches have none */
}

static void learn_effects(void)
{
    for (unsigned opcode = 0; opcode < 256; opcode++)
        for (uint32_t argument = 0; argument < SMALL_ARGUMENTS; argument++)
            for (int jump = 0; jump < 2; jump++)
                flow.effect[jump][opcode][argument] = ask_effect(opcode, argument, jump);
}

static inline int32_t effect_of(unsigned opcode, uint32_t argument, int jump)
{
    return argument < SMALL_ARGUMENTS ? flow.effect[jump][opcode][argument] : ask_effect(opcode, argument, jump);
}

static void learn_flow(void)
{
    flow.gen_start = flow.return_generator = UINT32_MAX;
    PyObject *opcode = PyImport_ImportModule("opcode");
    PyObject *map = opcode ? lpy_line_opmap() : NULL;
    PyObject *least = opcode ? PyObject_GetAttrString(opcode, "HAVE_ARGUMENT") : NULL;

    if (map && least) {
        long with_argument = PyLong_AsLong(least);
        for (long i = 0; i < with_argument && i < 256; i++)
            flow.kind[i] |= TAKES_NOTHING;
        learn_set(opcode, "hasjrel", JUMPS);
        learn_set(opcode, "hasjabs", JUMPS | ABSOLUTE);
        learn_names(map);
        learn_effects();
        flow.known = true;
    }
    PyErr_Clear();
    Py_XDECREF(least);
    Py_XDECREF(map);
    Py_XDECREF(opcode);
}

static void reach(lpy_line_flow *at, uint32_t units, uint32_t target, int32_t depth, uint32_t source)
{
    if (target < units && at[target].depth == LPY_LINE_NO_DEPTH)
        at[target] = (lpy_line_flow){depth, source, -1};
}

/* Handlers by the exception table of 3.11 and later (Objects/exception_handling_notes.txt): big-endian groups of six bits, the
 * first byte of an entry has the top bit. They start on the depth of the entry, with the exception and maybe its offset. */
static const unsigned char *read_number(const unsigned char *p, const unsigned char *end, uint32_t *value)
{
    *value = 0;
    while (p < end) {
        *value = *value << 6 | (*p & 63u);
        if (!(*p++ & 64u))
            break;
    }
    return p;
}

static void reach_handlers(lpy_line_flow *at, uint32_t units, const unsigned char *p, size_t size)
{
    const unsigned char *end = p + size;

    while (p < end) {
        uint32_t start, length, target, depth;

        p = read_number(p, end, &start);
        p = read_number(p, end, &length);
        p = read_number(p, end, &target);
        p = read_number(p, end, &depth);
        if (target < units && at[target].depth == LPY_LINE_NO_DEPTH)
            at[target] =
                (lpy_line_flow){(int32_t)(depth >> 1) + (int32_t)(depth & 1u) + 1, start, (int32_t)(depth >> 1)};
    }
}

static uint32_t target_of(const unsigned char *code, uint32_t units, uint32_t unit, uint32_t argument)
{
    unsigned kind = flow.kind[code[2 * unit]];
    uint32_t next = unit + 1;

    while (LPY_LOCATION_TABLE && next < units && code[2 * next] == 0)
        next++; /* inline caches, opcode 0 from 3.11 on */
    return kind & ABSOLUTE ? argument : kind & BACKWARD ? next - argument : next + argument;
}

bool lpy_line_jump(const unsigned char *code, uint32_t units, uint32_t unit, uint32_t *argument, uint32_t *target,
                   bool *ends)
{
    unsigned kind = flow.kind[code[2 * unit]];
    uint32_t first = unit;

    while (first > 0 && flow.kind[code[2 * (first - 1)]] & EXTENDS)
        first--;
    for (*argument = 0; first <= unit; first++)
        *argument = *argument << 8 | code[2 * first + 1];
    *ends = kind & ENDS;
    if (kind & JUMPS)
        *target = target_of(code, units, unit, *argument);
    return kind & JUMPS;
}

/* One way through the code in order. Whether a jump backwards told a depth that was passed over. */
static bool pass_over(lpy_line_flow *at, const unsigned char *code, uint32_t units)
{
    int32_t depth = 0;
    uint32_t argument = 0;
    bool reached = true, again = false;

    for (uint32_t i = 0; i < units; i++) {
        unsigned opcode = code[2 * i], kind = flow.kind[opcode];

        if (at[i].depth != LPY_LINE_NO_DEPTH)
            depth = at[i].depth;
        else if (!reached)
            continue;
        if (reached)
            at[i] = (lpy_line_flow){depth, LPY_LINE_FALLS, -1};
        reached = true;
        argument = argument << 8 | code[2 * i + 1];
        if (kind & EXTENDS)
            continue;
        if (kind & JUMPS) {
            uint32_t target = target_of(code, units, i, argument);
            again = again || (target < i && at[target].depth == LPY_LINE_NO_DEPTH);
            reach(at, units, target, depth + effect_of(opcode, argument, 1), i);
        }
        depth += effect_of(opcode, argument, 0);
        reached = !(kind & ENDS);
        argument = 0;
    }
    return again;
}

lpy_line_flow *lpy_line_flow_read(const unsigned char *code, uint32_t units, const unsigned char *handlers,
                                  size_t handlers_size)
{
    lpy_line_flow *at = malloc((units + 1) * sizeof *at);

    if (!flow.known)
        learn_flow();
    if (!at || !flow.known) {
        free(at);
        return NULL;
    }
    for (uint32_t i = 0; i <= units; i++)
        at[i] = (lpy_line_flow){LPY_LINE_NO_DEPTH, LPY_LINE_FALLS, -1};
    reach_handlers(at, units, handlers, handlers_size);
    for (int pass = 0; pass < 4 && pass_over(at, code, units); pass++)
        ;
    return at;
}

bool lpy_line_goes_forward(const unsigned char *code, uint32_t units, const uint8_t *starts)
{
    uint32_t argument = 0;

    if (!flow.known)
        learn_flow();
    for (uint32_t i = 0; i < units; i++) {
        unsigned kind = flow.kind[code[2 * i]];

        argument = argument << 8 | code[2 * i + 1];
        if (kind & EXTENDS)
            continue;
        if (kind & JUMPS) {
            uint32_t target = target_of(code, units, i, argument);
            if (target <= i || target >= units || !starts[target])
                return false;
        }
        argument = 0;
    }
    return flow.known;
}
