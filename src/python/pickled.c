/* Whether a pickle may be read by the unpickler in C: one walk over its opcodes, nothing is built.
 *
 * That unpickler makes room before it looks: for the largest number that an object is remembered by, for a byte array of the
 * length that is claimed. So nine bytes can take gigabytes. Here every length is compared with what is left, and every such
 * number with the file's size, to which an honest writer, who counts on from 0, never comes. What opcodes do (classes, calls)
 * is not looked at: the unpickler's own find_class decides that.
 *
 * Opcodes: CPython's Lib/pickletools.py, protocols 0 to 5. */
#include <string.h>

#include "python/line.h"
#include "python/lpy.h"

typedef struct cursor {
    const unsigned char *at;
    const unsigned char *end;
} cursor;

/* Little-endian number of `size` bytes, UINT64_MAX where they are not there: too large for anything that is asked of it. */
static uint64_t number(cursor *in, size_t size)
{
    uint64_t value = 0;

    if ((size_t)(in->end - in->at) < size)
        return UINT64_MAX;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)in->at[i] << (8 * i);
    in->at += size;
    return value;
}

static bool skip(cursor *in, uint64_t size)
{
    if ((uint64_t)(in->end - in->at) < size)
        return false;
    in->at += size;
    return true;
}

static bool skip_lines(cursor *in, int count)
{
    for (; count; count--) {
        const unsigned char *newline = memchr(in->at, '\n', (size_t)(in->end - in->at));

        if (!newline)
            return false;
        in->at = newline + 1;
    }
    return true;
}

/* Past what follows the opcode, if it is one that needs no more room than the file has. */
static bool skip_argument(cursor *in, unsigned char opcode, uint64_t total)
{
    /* MARK, POP, POP_MARK, DUP, NONE, EMPTY_DICT, EMPTY_LIST, EMPTY_TUPLE, APPEND, APPENDS, BUILD, DICT, LIST, OBJ, REDUCE,
     * SETITEM, SETITEMS, TUPLE; NEWOBJ, TUPLE1 to 3, NEWTRUE, NEWFALSE, EMPTY_SET, ADDITEMS, FROZENSET, NEWOBJ_EX,
     * STACK_GLOBAL, MEMOIZE */
    static const char alone[] = "(012N}])aebdloRsut\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94";

    if (memchr(alone, opcode, sizeof alone - 1))
        return true;
    switch (opcode) {
    case 'h':
    case 'K':
    case 0x80: /* BINGET, BININT1, PROTO */ return skip(in, 1);
    case 'M': /* BININT2 */ return skip(in, 2);
    case 'j':
    case 'J': /* LONG_BINGET, BININT */ return skip(in, 4);
    case 'G': /* BINFLOAT */ return skip(in, 8);
    case 'q': /* BINPUT */ return number(in, 1) < total;
    case 'r': /* LONG_BINPUT */ return number(in, 4) < total;
    case 'U':
    case 'C':
    case 0x8a:
    case 0x8c: /* SHORT_BINSTRING, SHORT_BINBYTES, LONG1, SHORT_BINUNICODE */ return skip(in, number(in, 1));
    case 'T':
    case 'B':
    case 'X':
    case 0x8b: /* BINSTRING, BINBYTES, BINUNICODE, LONG4 */ return skip(in, number(in, 4));
    case 0x8d:
    case 0x8e:
    case 0x96: /* BINUNICODE8, BINBYTES8, BYTEARRAY8 */ return skip(in, number(in, 8));
    case 0x95: /* FRAME: what is in it is walked over */ return number(in, 8) <= (uint64_t)(in->end - in->at);
    case 'F':
    case 'I':
    case 'L':
    case 'S':
    case 'V': /* FLOAT, INT, LONG, STRING, UNICODE */ return skip_lines(in, 1);
    case 'c': /* GLOBAL */ return skip_lines(in, 2);
    default: /* among them PUT, whose number is a text: only protocol 0 has it */ return false;
    }
}

PyObject *lpy_pickle_is_modest(PyObject *module, PyObject *data)
{
    cursor in;
    uint64_t total;

    (void)module;
    if (!PyBytes_Check(data)) {
        PyErr_Format(PyExc_TypeError, "bytes, not %.100s", Py_TYPE(data)->tp_name);
        return NULL;
    }
    in.at = (const unsigned char *)PyBytes_AS_STRING(data);
    total = (uint64_t)PyBytes_GET_SIZE(data);
    in.end = in.at + total;
    while (in.at < in.end) {
        unsigned char opcode = *in.at++;

        if (opcode == '.') /* STOP */
            Py_RETURN_TRUE;
        if (!skip_argument(&in, opcode, total))
            Py_RETURN_FALSE;
    }
    Py_RETURN_FALSE;
}
