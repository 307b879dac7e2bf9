/* What an event of the line engine costs on this machine under this interpreter, by class, and an instruction where tracing slows
 * them: worked out once a process and back end from what the probes (line_probe.c) took bare and measured. A few ms. */
#include <math.h>
#include <stdio.h>

#include "python/line_probe.h"

typedef struct costs {
    bool measured, good;
    lpy_turn turn;
    double share; /* of each cost that it may be wrong by, see line_medley.c */
    double line[LP_LINE_COSTS], line_error[LP_LINE_COSTS], event[LP_LINE_EVENTS],
        event_error[LP_LINE_EVENTS]; /* ticks */
} costs;
static costs known[2];

static costs *of(const lpy_line_backend *backend)
{
    return &known[backend->traces];
}

static double positive(double value)
{
    return value > 0 ? value : 0;
}

static double at_most(double value, double most)
{
    return positive(value < most ? value : most);
}

/* ---- by what is on the lines ---- */

static uint32_t slot_at(const lp_line_code *code, uint32_t unit, bool *loop)
{
    uint32_t entry = lp_line_entry_at(code, 2 * (size_t)unit);

    *loop = entry != LP_LINE_NOWHERE && (entry >> 1 & LPY_LINE_LOOP);
    return entry == LP_LINE_NOWHERE ? entry : entry >> LP_LINE_SLOT;
}

/* What the instructions of a probe weigh in one pass, by the prices so far: of the loop where it comes round, of each line after it
 * where it begins. Zero where the back end does not trace. */
static double weight_of(const lpy_line_backend *backend, PyObject *code)
{
    lp_line_code read;
    double weight = 0;
    bool loop;

    if (!backend->traces || !code)
        return 0;
    if (lpy_line_code_read(backend, code, &read) != 0) {
        PyErr_Clear();
        return 0;
    }
    int32_t last = read.first_line;
    for (uint32_t unit = 0; unit < read.bytes / 2; unit++) {
        uint32_t slot = slot_at(&read, unit, &loop);
        if (loop) {
            last = read.lines[slot];
            weight = read.weights[unit]; /* without how the loop is entered */
        } else if (slot != LP_LINE_NOWHERE && read.lines[slot] > last) {
            last = read.lines[slot];
            weight += read.weights[unit];
        }
    }
    lpy_line_code_free(&read);
    return weight;
}

/* How many instructions of a price there are. */
static double count_of(const lpy_line_backend *backend, PyObject *code, lpy_line_price price)
{
    const double large = 1000, before = lpy_line_prices[price], without = weight_of(backend, code);

    lpy_line_prices[price] = before + large;
    double with = weight_of(backend, code);
    lpy_line_prices[price] = before;
    return round((with - without) / large);
}

/* ---- what it comes to ---- */

typedef struct solving {
    const lpy_line_backend *backend;
    const lpy_probed *probes;
    costs *costs;
    double plain, loop; /* a cheap line and the head of a loop; near or far */
} solving;

/* What a pass of the probe takes beyond its events of lines and the instructions that are known: of the loop and `lines` more. */
static double beyond(const solving *s, lpy_probe probe, double lines)
{
    const lpy_probed *p = &s->probes[probe];

    return p->added - weight_of(s->backend, p->code) - s->loop - lines * s->plain;
}

static void work_out_lines(solving *s, uint32_t far)
{
    const lpy_probed *one = &s->probes[far ? LPY_PROBE_FAR_ONE : LPY_PROBE_ONE];
    const lpy_probed *more = &s->probes[far ? LPY_PROBE_FAR_MORE : LPY_PROBE_MORE];
    lpy_probe globals = far ? LPY_PROBE_FAR_GLOBALS : LPY_PROBE_GLOBALS;
    double *line = s->costs->line + far, *error = s->costs->line_error + far;
    double heavier = weight_of(s->backend, more->code) - weight_of(s->backend, one->code);

    s->plain = positive((more->added - one->added - heavier) / 4);
    s->loop = positive(one->added - weight_of(s->backend, one->code) - s->plain);
    line[LPY_LINE_PLAIN] = s->plain;
    error[LPY_LINE_PLAIN] = (one->error + more->error) / 4;
    line[LPY_LINE_LOOP] = line[LPY_LINE_LOOP | LPY_LINE_GLOBAL] = s->loop;
    error[LPY_LINE_LOOP] = error[LPY_LINE_LOOP | LPY_LINE_GLOBAL] = one->error + error[LPY_LINE_PLAIN];
    line[LPY_LINE_GLOBAL] = positive(beyond(s, globals, 0) / 4);
    error[LPY_LINE_GLOBAL] = (s->probes[globals].error + error[LPY_LINE_LOOP]) / 4;
    if (s->backend
            ->traces) { /* no number is made of a line, and the price of a global is among those of instructions */
        line[LPY_LINE_GLOBAL] = s->plain;
        error[LPY_LINE_GLOBAL] = error[LPY_LINE_PLAIN];
        for (uint32_t i = 0; i < LP_LINE_COSTS; i++) {
            line[i] = line[i & ~(uint32_t)LPY_LINE_FAR];
            error[i] = error[i & ~(uint32_t)LPY_LINE_FAR];
        }
    }
}

/* The cheap instructions first, by a line with many of them, then each price above it. */
static void work_out_plain(const lpy_line_backend *backend, const lpy_probed *probes)
{
    const lpy_probed *many = &probes[LPY_PROBE_PLAIN], *few = &probes[LPY_PROBE_ONE];

    for (size_t i = 0; i < LPY_PRICES; i++)
        lpy_line_prices[i] = 0;
    if (!backend->traces)
        return;
    double more = count_of(backend, many->code, LPY_PRICE_PLAIN) - count_of(backend, few->code, LPY_PRICE_PLAIN);
    if (more > 0)
        lpy_line_prices[LPY_PRICE_PLAIN] = positive((many->added - few->added) / more);
}

/* A loop within a loop, less the passes of the inner one, the outer one's event, and the line on which the inner one begins with the
 * instructions from there to its first pass. */
static double of_inner_loop(const solving *s, const lpy_probed *p)
{
    const double on_the_way = 5;

    return p->added - LPY_PROBE_INNER * (s->loop + s->plain + weight_of(s->backend, p->code)) - s->loop - s->plain -
           on_the_way * lpy_line_prices[LPY_PRICE_PLAIN];
}

static void work_out_prices(const solving *s)
{
    for (lpy_line_price price = LPY_PRICE_GLOBAL; s->backend->traces && price < LPY_PRICES; price++) {
        lpy_probe probe = LPY_PROBE_PRICED + (lpy_probe)(price - LPY_PRICE_GLOBAL);
        double count = count_of(s->backend, s->probes[probe].code, price);
        double each = count > 0 ? beyond(s, probe, 1) / count : 0;
        if (price == LPY_PRICE_ITER)
            each = of_inner_loop(s, &s->probes[probe]);
        /* Less than the plain one, if what the instruction does hides it. */
        lpy_line_prices[price] = each < -lpy_line_prices[LPY_PRICE_PLAIN] ? -lpy_line_prices[LPY_PRICE_PLAIN] : each;
    }
}

static void work_out_events(const solving *s)
{
    const lpy_probed *p = s->probes;
    double *event = s->costs->event, *error = s->costs->event_error;
    double beside = s->costs->line_error[LPY_LINE_LOOP] + s->costs->line_error[LPY_LINE_PLAIN];

    if (s->backend->traces) {
        event[LP_LINE_LEFT] = positive(beyond(s, LPY_PROBE_LEFT, 1) / LPY_PROBE_REPEATS);
        error[LP_LINE_LEFT] = (p[LPY_PROBE_LEFT].error + beside) / LPY_PROBE_REPEATS;
        event[LP_LINE_LEFT_C] = positive(beyond(s, LPY_PROBE_LEFT_C, 1));
        error[LP_LINE_LEFT_C] = p[LPY_PROBE_LEFT_C].error + beside;
        event[LP_LINE_RAISE] = positive(beyond(s, LPY_PROBE_RAISE, 4));
        error[LP_LINE_RAISE] = p[LPY_PROBE_RAISE].error + beside;
        event[LP_LINE_UNMARKED] = positive(p[LPY_PROBE_UNMARKED].added / LPY_PROBE_REPEATS);
        error[LP_LINE_UNMARKED] = p[LPY_PROBE_UNMARKED].error / LPY_PROBE_REPEATS;
    }
    double call = beyond(s, LPY_PROBE_CALLED, 1) / LPY_PROBE_REPEATS - s->plain -
                  weight_of(s->backend, p[LPY_PROBE_CALLED].called);
    error[LP_LINE_CALL] = (p[LPY_PROBE_CALLED].error + beside) / LPY_PROBE_REPEATS;
    if (s->backend->traces) {
        double by_c = beyond(s, LPY_PROBE_MAPPED, 2) - weight_of(s->backend, p[LPY_PROBE_MAPPED].called);
        double least = positive(call < by_c ? call : by_c);
        event[LP_LINE_INNER] = positive(call - least);
        event[LP_LINE_INNER_C] = positive(by_c - least);
        error[LP_LINE_INNER] = error[LP_LINE_INNER_C] = error[LP_LINE_CALL];
        call = least;
    }
    /* Between a call and what comes after its first line there is as much as around two lines. */
    event[LP_LINE_CALL] = at_most(s->plain, call);
    event[LP_LINE_CALL_BEFORE] = event[LP_LINE_RETURN] = (positive(call) - event[LP_LINE_CALL]) / 2;
    error[LP_LINE_CALL] = error[LP_LINE_RETURN] = error[LP_LINE_CALL] / 2;
    double yield = beyond(s, LPY_PROBE_DRAIN, 2) - s->loop - weight_of(s->backend, p[LPY_PROBE_DRAIN].called);
    event[LP_LINE_RESUME] = at_most(event[LP_LINE_CALL], yield);
    event[LP_LINE_RESUME_BEFORE] = event[LP_LINE_YIELD] = (positive(yield) - event[LP_LINE_RESUME]) / 2;
    error[LP_LINE_YIELD] = error[LP_LINE_RESUME] = (p[LPY_PROBE_DRAIN].error + beside) / 2;
}

static void hand_out(const costs *c, lp_line_cost *cost)
{
    for (uint32_t i = 0; i < LP_LINE_COSTS; i++)
        cost->line[i] = c->good ? (uint32_t)(c->line[i] + 0.5) : 0;
    for (uint32_t i = 0; i < LP_LINE_EVENTS; i++)
        cost->event[i] = c->good ? (uint32_t)(c->event[i] + 0.5) : 0;
}

static void measure(const lpy_line_backend *backend, costs *c)
{
    PyThreadState *tstate = lpy_thread_state();
    lpy_tracers tracers = lpy_tracers_take(tstate);
    lpy_probed probes[LPY_PROBES];
    solving s = {.backend = backend, .probes = probes, .costs = c};

    c->good = lpy_probe_run(backend, probes);
    if (c->good) {
        work_out_plain(backend, probes);
        if (!backend->traces)
            work_out_lines(&s, LPY_LINE_FAR);
        work_out_lines(&s, 0);
        work_out_prices(&s);
        work_out_events(&s);
        lp_line_cost cost;
        hand_out(c, &cost);
        c->share = lpy_medley_share(backend, &cost);
    }
    lpy_probe_done(probes);
    lpy_tracers_put_back(tstate, &tracers);
    /* The probes raise nothing that they do not catch: then the next one measures. */
    c->measured = !PyErr_Occurred();
    c->good = c->good && c->measured;
    if (!lpy_line_interrupted())
        PyErr_Clear();
}

int lpy_line_cost(const lpy_line_backend *backend, lp_line_cost *cost)
{
    costs *c = of(backend);

    if (!c->measured && !lpy_turn_is_mine(&c->turn) && lpy_turn_take(&c->turn)) {
        if (!c->measured)
            measure(backend, c);
        lpy_turn_give(&c->turn);
    }
    if (!cost)
        return c->good ? 0 : -1;
    hand_out(c, cost);
    return c->good ? 0 : -1;
}

static bool put(PyObject *dict, const char *name, double ticks)
{
    double tick = (double)lp_clock_calibrate() * 0x1p-32;
    PyObject *value = PyFloat_FromDouble(ticks * tick);
    int rc = value ? PyDict_SetItemString(dict, name, value) : -1;

    Py_XDECREF(value);
    return rc == 0;
}

static bool put_with_error(PyObject *dict, const costs *c, const char *name, double ticks, double error)
{
    char error_name[64];

    snprintf(error_name, sizeof error_name, "%s_error", name);
    return put(dict, name, ticks) && put(dict, error_name, error + c->share * ticks);
}

PyObject *lpy_line_cost_dict(const lpy_line_backend *backend)
{
    static const struct {
        const char *name;
        uint32_t class;
    } lines[] = {{"line", LPY_LINE_PLAIN},         {"line_far", LPY_LINE_FAR},
                 {"line_global", LPY_LINE_GLOBAL}, {"line_far_global", LPY_LINE_FAR | LPY_LINE_GLOBAL},
                 {"line_loop", LPY_LINE_LOOP},     {"line_far_loop", LPY_LINE_FAR | LPY_LINE_LOOP}};
    static const struct {
        const char *name;
        lp_line_event class, more; /* its other part; the same: none */
    } events[] = {{"call", LP_LINE_CALL, LP_LINE_CALL_BEFORE},
                  {"return", LP_LINE_RETURN, LP_LINE_RETURN},
                  {"yield", LP_LINE_YIELD, LP_LINE_YIELD},
                  {"resume", LP_LINE_RESUME, LP_LINE_RESUME_BEFORE},
                  {"call_unmarked", LP_LINE_UNMARKED, LP_LINE_UNMARKED},
                  {"call_left", LP_LINE_LEFT, LP_LINE_LEFT},
                  {"call_left_c", LP_LINE_LEFT_C, LP_LINE_LEFT_C},
                  {"call_inner", LP_LINE_INNER, LP_LINE_INNER},
                  {"call_inner_c", LP_LINE_INNER_C, LP_LINE_INNER_C},
                  {"raise", LP_LINE_RAISE, LP_LINE_RAISE}};
    const costs *c = of(backend);
    PyObject *dict = PyDict_New();
    bool good = dict != NULL;

    if (!c->good)
        return dict;
    for (size_t i = 0; good && i < sizeof lines / sizeof *lines; i++)
        good = put_with_error(dict, c, lines[i].name, c->line[lines[i].class], c->line_error[lines[i].class]);
    for (size_t i = 0; good && i < sizeof events / sizeof *events; i++) {
        lp_line_event class = events[i].class, more = events[i].more;
        if (class < LP_LINE_UNMARKED || backend->traces)
            good = put_with_error(dict, c, events[i].name, c->event[class] + (more == class ? 0 : c->event[more]),
                                  c->event_error[class]);
    }
    if (good && backend->traces)
        good = put_with_error(dict, c, "instruction", lpy_line_prices[LPY_PRICE_PLAIN], 0);
    if (!good)
        Py_CLEAR(dict);
    return dict;
}
