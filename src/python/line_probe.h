/* Small programs that run bare and measured, to find what measuring costs: between line_probe.c and line_cost.c. */
#ifndef LP_PYTHON_LINE_PROBE_H
#define LP_PYTHON_LINE_PROBE_H

#include "python/line.h"

#define LPY_PROBE_REPEATS 6 /* statements on the one line of most probes */
#define LPY_PROBE_INNER 8   /* passes of the inner loop of LPY_PROBE_PRICED for LPY_PRICE_ITER */

/* Each is a loop with lines in it that is measured, and what it calls where said. */
typedef enum lpy_probe {
    LPY_PROBE_ONE,     /* one cheap line */
    LPY_PROBE_MORE,    /* five of them */
    LPY_PROBE_CALLED,  /* calls of a measured function of one line */
    LPY_PROBE_DRAIN,   /* over a measured generator that yields */
    LPY_PROBE_GLOBALS, /* four lines that begin with a global; from here on for back ends that do not trace */
    LPY_PROBE_FAR_ONE, /* beyond line 256 */
    LPY_PROBE_FAR_MORE,
    LPY_PROBE_FAR_GLOBALS,
    LPY_PROBE_PLAIN,  /* from here on for back ends that trace */
    LPY_PROBE_PRICED, /* one for each lpy_line_price above the plain one */
    LPY_PROBE_LEFT = LPY_PROBE_PRICED + LPY_PRICES - LPY_PRICE_GLOBAL, /* calls of a function that is not measured */
    LPY_PROBE_LEFT_C,                                                  /* the same by C code */
    LPY_PROBE_MAPPED,                                                  /* calls of a measured function by C code */
    LPY_PROBE_RAISE,                                                   /* an exception */
    LPY_PROBE_UNMARKED, /* as LEFT in a loop that is not measured, either */
    LPY_PROBES
} lpy_probe;

typedef struct lpy_probed {
    double added, error; /* ticks a pass */
    PyObject *code;      /* of the loop; owned, NULL unless the back end traces */
    PyObject *called;    /* of what it calls that is measured; owned or NULL */
} lpy_probed;

/* false: could not; exceptions are left to the caller. In both cases lpy_probe_done. */
bool lpy_probe_run(const lpy_line_backend *backend, lpy_probed out[LPY_PROBES]);
/* An engine of our own, which is not asked what events cost; NULL with an exception. */
LineEngine *lpy_probe_engine(const lpy_line_backend *backend);
/* A program's globals after it has run; NULL with an exception. */
PyObject *lpy_probe_globals(const char *source);
/* Calls a method of the engine that takes nothing; false with an exception. */
bool lpy_probe_tell(LineEngine *engine, const char *method);

/* line_medley.c: how far corrected times of a program that is not foreseen are from its bare time, as a share of what is taken off with
 * this cost and the prices that are known; 0 if it cannot be told. Exceptions are left to the caller. */
double lpy_medley_share(const lpy_line_backend *backend, const lp_line_cost *cost);
void lpy_probe_done(lpy_probed out[LPY_PROBES]);

#endif
