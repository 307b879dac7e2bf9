/* The line engine's Python side, shared between its files.
 *
 * line_engine.c   the type LineEngine: what is marked, starting and stopping, regions
 * line_rows.c     figures as Python objects
 * line_share.c    the segment's file, and reading those of others
 * line_code.c     what each instruction of a code object is to the engine
 * line_depth.c    how much is on the stack before each instruction
 * line_statements.c   which instructions go on with a statement
 * line_weight.c   what tracing adds to the instructions of a line
 * line_cost.c     what an event costs here, by line_probe.c and line_medley.c
 * line_monitoring.c, line_trace.c   the back ends: how events come
 * line_tstates.c  all thread states of the interpreter */
#ifndef LP_PYTHON_LINE_H
#define LP_PYTHON_LINE_H

#include "python/lpy.h"

#include "core/lines.h"

typedef struct LineEngine LineEngine;

typedef struct lpy_line_backend {
    const char *name;
    bool traces; /* the interpreter runs each instruction of measured code slower */
    /* Events flow from here on for the marked code objects, and all code if `select` is there. 0; -1: cannot (a sentence is
     * in `trouble`, no exception is set), or a signal's handler raised meanwhile (an exception is set). */
    int (*start)(LineEngine *engine);
    void (*stop)(LineEngine *engine);
    /* While started: events of this code object on or off. Raises nothing. */
    void (*arm)(LineEngine *engine, PyObject *code, bool on);
    /* Of `state`, when the object dies. */
    void (*release)(LineEngine *engine);
} lpy_line_backend;

extern const lpy_line_backend lpy_line_monitoring; /* 3.12 and later */
extern const lpy_line_backend lpy_line_trace;      /* 3.10, 3.11 */

/* What one thread does that runs Python, and others have to wait for. */
typedef struct lpy_turn {
    _Atomic unsigned long thread; /* whose it is; 0 nobody's */
    _Atomic pid_t process;        /* in another one it is not there: a fork left its thread behind */
} lpy_turn;
/* Both wait, for seconds at most; false: another thread has it still. The calling thread's own counts as nobody's: a signal's handler
 * runs in it. */
bool lpy_turn_take(lpy_turn *turn);
bool lpy_turn_wait(const lpy_turn *turn);
void lpy_turn_give(lpy_turn *turn);
bool lpy_turn_is_mine(const lpy_turn *turn);

struct LineEngine {
    PyObject_HEAD lp_lines *core;
    PyObject *select;  /* owned, NULL: only what is marked */
    PyObject *codes;   /* list of code objects by index; owned: an address stays the same code object's */
    PyObject *trouble; /* list of str; owned */
    PyObject *regions; /* dict: name -> number; owned */
    const lpy_line_backend *backend;
    void *state;  /* the back end's; owned */
    char *folder; /* of the segments' files, NULL: private memory; owned */
    Py_ssize_t count;
    bool active;      /* the back end is on */
    bool calibrating; /* measures what an event costs: takes nothing off */
    lpy_turn starting;
    struct lpy_line_refused *refused;
};

/* Events come from these threads without the GIL. */
#define LPY_LINE_CONCURRENT LPY_FREE_THREADED

/* line_engine.c */
int lpy_line_init(PyObject *module);
/* Adds a sentence to `trouble`, once. Keeps a set exception, sets none. */
void lpy_line_note(LineEngine *engine, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether an exception is set that Python of our own cannot have raised: a signal's handler has, and the program is to get it. */
bool lpy_line_interrupted(void);
/* The code object's entry; made and kept for ever. NULL: no memory, no exception is set; or a signal's handler raised, it is. */
lp_line_code *lpy_line_code(LineEngine *engine, PyObject *code);
/* A code object at its first call, or on a stack: asks `select`, marks and arms it. NULL: it is not to be measured. May run Python;
 * keeps a set exception, and sets none but KeyboardInterrupt and the like, which a signal's handler raised and the program is to get. */
lp_line_code *lpy_line_discover(LineEngine *engine, PyObject *code);
/* The code of every frame on every stack to lpy_line_discover. -1: it has set an exception. */
int lpy_line_discover_stacks(LineEngine *engine);

/* Classes of line events by what they cost: numbers above 256 are made anew for each event, and an instruction at which a line
 * begins is not specialised while events flow, which is dear where it loads a global or steps a loop. */
enum { LPY_LINE_PLAIN = 0, LPY_LINE_FAR = 1, LPY_LINE_GLOBAL = 2, LPY_LINE_LOOP = 4 };
#define LPY_LINE_SMALL 256 /* CPython keeps the ints up to here */

/* line_code.c: everything but index and mark; -1 with an exception. With weights if the back end traces. */
int lpy_line_code_read(const lpy_line_backend *backend, PyObject *code, lp_line_code *out);
void lpy_line_code_free(lp_line_code *code); /* what it points to */

/* line_depth.c: by instruction; malloc. `handlers`: the exception table. NULL: cannot. */
#define LPY_LINE_NO_DEPTH INT32_MIN /* nothing leads there */
#define LPY_LINE_FALLS UINT32_MAX   /* reached from the instruction before */
typedef struct lpy_line_flow {
    int32_t depth;   /* values on the stack */
    uint32_t source; /* the jump that leads there, or the start of what a handler guards */
    int32_t keeps;   /* of a handler: how many values it leaves; else -1 */
} lpy_line_flow;
lpy_line_flow *lpy_line_flow_read(const unsigned char *code, uint32_t units, const unsigned char *handlers,
                                  size_t handlers_size);

/* What this version calls its instructions: numbers by name, a new dict; NULL with an exception. */
PyObject *lpy_line_opmap(void);

/* Whether every jump leads on, and to an instruction for which `starts` has a 1. */
bool lpy_line_goes_forward(const unsigned char *code, uint32_t units, const uint8_t *starts);

/* After lpy_line_flow_read: the whole argument of the instruction, whether it jumps, where to, and whether the one after it is
 * reached from it. */
bool lpy_line_jump(const unsigned char *code, uint32_t units, uint32_t unit, uint32_t *argument, uint32_t *target,
                   bool *ends);

/* line_statements.c: flags by instruction, malloc; `slot`: its line, -1 none, in the order of lines. NULL: no memory. */
#define LPY_LINE_GOES_ON 1u /* with a statement that has been on this line */
#define LPY_LINE_GATHERS 2u /* steps the loop of a comprehension */
uint8_t *lpy_line_statements(const unsigned char *code, uint32_t units, const lpy_line_flow *flow, const int32_t *slot,
                             uint32_t slots);

/* line_weight.c: classes of instructions by what tracing adds, in ticks; all but the plain one are on top of the plain one. */
typedef enum lpy_line_price {
    LPY_PRICE_NOTHING, /* no instruction of its own */
    LPY_PRICE_PLAIN,
    LPY_PRICE_GLOBAL,
    LPY_PRICE_BUILTIN,
    LPY_PRICE_ATTR,
    LPY_PRICE_METHOD, /* of a built-in type */
    LPY_PRICE_STORE_ATTR,
    LPY_PRICE_SUBSCR,
    LPY_PRICE_STORE_SUBSCR,
    LPY_PRICE_BINARY,
    LPY_PRICE_COMPARE,
    LPY_PRICE_UNPACK,
    LPY_PRICE_CALL,
    LPY_PRICE_ITER, /* a loop that begins, and ends */
    LPY_PRICES
} lpy_line_price;
extern double lpy_line_prices[LPY_PRICES];
/* By instruction, malloc: ticks from there to the end of its line. `code` has all but these. NULL: no memory. */
uint16_t *lpy_line_weigh(const lp_line_code *code, const unsigned char *bytes, PyObject *names);

/* line_cost.c: 0, or -1 when it cannot be measured (no exception is set), or when a signal's handler raised meanwhile (it is). Measured
 * once a process and back end; other threads wait for it. `cost` may be NULL: only lpy_line_prices are wanted. */
int lpy_line_cost(const lpy_line_backend *backend, lp_line_cost *cost);
PyObject *lpy_line_cost_dict(const lpy_line_backend *backend);

#if LPY_FRAME_TRACING
/* line_tstates.c: calls `visit` for each thread state with a number above `after`, the newest first. Others neither come nor go
 * meanwhile: it runs no Python, and makes no object. The number of the newest; 0 none. */
typedef void lpy_thread_visit(PyThreadState *tstate, void *argument);
uint64_t lpy_each_thread(PyInterpreterState *interp, uint64_t after, lpy_thread_visit *visit, void *argument);
/* Address of the calling thread's stack below which the half of it is used; 0: not known. */
uintptr_t lpy_stack_middle(void);
#endif

/* line_rows.c */
PyObject *lpy_line_rows(LineEngine *engine, Py_ssize_t code); /* code < 0: all */
PyObject *lpy_line_functions(LineEngine *engine);
PyObject *lpy_line_regions(LineEngine *engine);
PyObject *lpy_line_threads(LineEngine *engine);

/* line_share.c: the core's hook `open`; load_lines(path) of the module. */
bool lpy_line_open(void *user, lp_lines *lines);
PyObject *lpy_load_lines(PyObject *module, PyObject *path);

/* pickled.c: pickle_is_modest(data) of the module. */
PyObject *lpy_pickle_is_modest(PyObject *module, PyObject *data);

#endif
