/* What tracing adds to the instructions themselves, on 3.10 and 3.11: in a frame that is traced the interpreter asks before each
 * instruction whether a line begins there, and 3.11 runs each instruction unspecialised. That is no cost of an event: it
 * grows with what stands on the line. So each instruction gets the price of what is executed from there to the end of its
 * line, which is taken off when a line begins there.
 *
 * Prices are by class of instruction (line_cost.c measures them). What is executed is not known but in one way: of two arms of a
 * branch within a line half of each is taken. A jump backwards begins a line. */
#include <stdlib.h>
#include <string.h>

#include "python/line.h"

double lpy_line_prices[LPY_PRICES];

static struct {
    bool known;
    uint8_t price[256], branch[256];
} ops;
enum { NO_BRANCH, EITHER, JUMPS_ON }; /* where a jump forwards goes on: not there, there or after it, there */

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static uint8_t price_of(const char *name)
{
    static const struct {
        const char *name;
        lpy_line_price price;
    } alone[] = {{"EXTENDED_ARG", LPY_PRICE_NOTHING},   {"CACHE", LPY_PRICE_NOTHING},
                 {"LOAD_GLOBAL", LPY_PRICE_GLOBAL},     {"LOAD_ATTR", LPY_PRICE_ATTR},
                 {"LOAD_METHOD", LPY_PRICE_METHOD},     {"STORE_ATTR", LPY_PRICE_STORE_ATTR},
                 {"BINARY_SUBSCR", LPY_PRICE_SUBSCR},   {"STORE_SUBSCR", LPY_PRICE_STORE_SUBSCR},
                 {"COMPARE_OP", LPY_PRICE_COMPARE},     {"GET_ITER", LPY_PRICE_ITER},
                 {"UNPACK_SEQUENCE", LPY_PRICE_UNPACK}, {"CALL", LPY_PRICE_CALL},
                 {"CALL_FUNCTION", LPY_PRICE_CALL},     {"CALL_FUNCTION_KW", LPY_PRICE_CALL},
                 {"CALL_METHOD", LPY_PRICE_CALL}};

    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (strcmp(name, alone[i].name) == 0)
            return (uint8_t)alone[i].price;
    return begins(name, "BINARY_") || begins(name, "INPLACE_") ? LPY_PRICE_BINARY : LPY_PRICE_PLAIN;
}

static void learn(void)
{
    PyObject *map = lpy_line_opmap();
    PyObject *name, *value;
    Py_ssize_t at = 0;

    memset(ops.price, LPY_PRICE_PLAIN, sizeof ops.price);
    ops.price[0] = LPY_PRICE_NOTHING; /* inline caches, which opmap does not name */
    while (map && PyDict_Next(map, &at, &name, &value)) {
        const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
        long number = PyLong_AsLong(value);

        if (!text || number < 0 || number > 255)
            continue;
        ops.price[number] = price_of(text);
        ops.branch[number] = strcmp(text, "SEND") == 0 ? JUMPS_ON : strstr(text, "JUMP") ? EITHER : NO_BRANCH;
    }
    PyErr_Clear();
    ops.known = true;
    Py_XDECREF(map);
}

static uint32_t slot_at(const lp_line_code *code, uint32_t unit)
{
    uint32_t entry = lp_line_entry_at(code, 2 * (size_t)unit);
    return entry == LP_LINE_NOWHERE ? entry : entry >> LP_LINE_SLOT;
}

/* Whether the global that the instruction loads is found among the built-in names, which takes longer. */
static bool is_builtin(PyObject *names, uint32_t argument)
{
    Py_ssize_t index = (Py_ssize_t)(LPY_LOCATION_TABLE ? argument >> 1 : argument);
    PyObject *builtins = PyEval_GetBuiltins(); /* borrowed */
    PyObject *name =
        names && PyTuple_Check(names) && index < PyTuple_GET_SIZE(names) ? PyTuple_GET_ITEM(names, index) : NULL;
    int found = builtins && name ? PyDict_Contains(builtins, name) : 0;

    if (found < 0)
        PyErr_Clear();
    return found > 0;
}

/* Whether the method that the instruction loads looks like one of a built-in type: for the call of such a one an object is made when it
 * is traced. */
static bool is_of_builtin_type(PyObject *names, uint32_t index)
{
    PyTypeObject *const types[] = {&PyList_Type,  &PyDict_Type, &PyUnicode_Type, &PySet_Type,      &PyBytes_Type,
                                   &PyTuple_Type, &PyLong_Type, &PyFloat_Type,   &PyByteArray_Type};
    PyObject *name = names && PyTuple_Check(names) && index < (size_t)PyTuple_GET_SIZE(names)
                         ? PyTuple_GET_ITEM(names, (Py_ssize_t)index)
                         : NULL;
    int found = 0;

    for (size_t i = 0; name && found == 0 && i < sizeof types / sizeof *types; i++)
        found = PyDict_Contains(types[i]->tp_dict, name);
    if (found < 0)
        PyErr_Clear();
    return found > 0;
}

static double price_at(const unsigned char *bytes, uint32_t unit, uint32_t argument, PyObject *names)
{
    lpy_line_price price = ops.price[bytes[2 * (size_t)unit]];

    if (price == LPY_PRICE_NOTHING)
        return 0;
    if (price == LPY_PRICE_GLOBAL && is_builtin(names, argument))
        price = LPY_PRICE_BUILTIN;
    if (price == LPY_PRICE_METHOD && !is_of_builtin_type(names, argument))
        price = LPY_PRICE_ATTR;
    return lpy_line_prices[LPY_PRICE_PLAIN] + (price == LPY_PRICE_PLAIN ? 0 : lpy_line_prices[price]);
}

/* Whether the line of `slot` goes on with an instruction of slot `with`. */
static inline bool goes_on(uint32_t slot, uint32_t with)
{
    return with == slot || with == LP_LINE_NOWHERE;
}

uint16_t *lpy_line_weigh(const lp_line_code *code, const unsigned char *bytes, PyObject *names)
{
    uint32_t units = code->bytes / 2;
    double *from = calloc((size_t)units + 1, sizeof *from);
    uint16_t *weights = malloc(((size_t)units + 1) * sizeof *weights);

    if (!ops.known)
        learn();
    if (!from || !weights) {
        free(from);
        free(weights);
        return NULL;
    }
    for (uint32_t unit = units, next = LP_LINE_NOWHERE, slot; unit-- > 0; next = slot) {
        uint32_t argument = 0, target = 0;
        bool ends = false, cache = LPY_LOCATION_TABLE && bytes[2 * (size_t)unit] == 0;
        bool jumps = !cache && lpy_line_jump(bytes, units, unit, &argument, &target, &ends);
        double after = 0, there = 0;

        slot = slot_at(code, unit);
        if (!ends && goes_on(slot, next))
            after = from[unit + 1]; /* 0 after the last one */
        if (jumps && target > unit && target < units && goes_on(slot, slot_at(code, target)))
            there = from[target];
        if (jumps && (ends || ops.branch[bytes[2 * (size_t)unit]] == JUMPS_ON))
            after = there;
        else if (jumps && ops.branch[bytes[2 * (size_t)unit]] == EITHER)
            after = (after + there) / 2;
        from[unit] = after + price_at(bytes, unit, argument, names);
        weights[unit] = (uint16_t)(from[unit] < UINT16_MAX ? from[unit] + 0.5 : UINT16_MAX);
    }
    free(from);
    return weights;
}
