/* Line events on 3.10 and 3.11: a C trace function that only marked frames pay for.
 *
 * A trace function costs every frame of its thread. But an activation of the evaluation loop calls it only if one byte of that
 * activation says so (`use_tracing` of its cframe), which it inherits from its caller. The frame evaluation hook (PEP 523)
 * sets that byte for a marked frame, clears it for another, and restores it afterwards. The trace function goes straight
 * into the thread state and out again, without the audit event of PyEval_SetTrace; code that is not marked finds none there,
 * since an exception calls it in every frame, whatever the byte.
 *
 * What it lives with:
 * - Another tracer of the thread (coverage.py, pdb, sys.settrace): in marked frames `trace_both` stands in for it, its object
 *   stays where it is. Then, and beside a profile function, the bytes are the interpreter's own business: the other one sees
 *   what it would see alone.
 * - Another evaluation hook: ours calls it. One that comes after ours and does not call ours hides us until it goes.
 * - Deep recursion: with a hook, a call from Python to Python takes C stack on 3.11. Below half of the stack the hook steps
 *   aside; from there on everything is traced in all threads, and frames that are not marked are refused.
 * - Frames that are running when it starts: see `flag_running`.
 * - greenlet: leaves one frame and goes on in another without a call, with the byte of the one that it left. Once it is imported
 *   everything is traced, too.
 * - A marked frame that calls sys.settrace itself loses its lines from there to its next call of Python code.
 *
 * Everything here runs with the GIL held. From 3.12 on this file is empty. */
#include "core/wiped.h"
#include "python/line.h"

#if LPY_FRAME_TRACING

#include <stdlib.h>
#define NOINLINE __attribute__((noinline, aligned(64))) /* begins a line of the cache: its pace depends on that */

/* What stands in the extra slot of a code object: NULL nothing, an odd number the round in which nobody wanted it, else: */
typedef struct trace_code {
    uintptr_t asked; /* round in which all that select were asked, see `state.round` */
    uint32_t count;
    struct {
        LineEngine *engine; /* borrowed: takes itself out when it stops */
        lp_line_code *line;
    } of[];
} trace_code;

#define NO_SLOT ((uintptr_t)2)

static struct {
    _PyFrameEvalFunction next; /* whom our hook calls; NULL before the first start */
    Py_ssize_t extra;          /* index of the slot; -1 not had yet */
    LineEngine **engines;      /* those that are on; owned array, borrowed objects */
    size_t engine_count, selecting;
    lp_lines *only;    /* of the engine that is on alone; NULL: none or several */
    uintptr_t round;   /* odd, another one whenever an engine that selects starts */
    uintptr_t plain;   /* slot of code that nobody wants, mostly: round, or 0 while nobody selects */
    uintptr_t passes;  /* slot of code whose calls the hook lets pass at once: plain, or no slot's, see set_passes */
    PyObject *modules; /* sys.modules; borrowed */
    Py_ssize_t modules_seen; /* its size when greenlet was looked for */
    bool greenlets;          /* found */
    bool active;             /* events are wanted */
    bool hooked;             /* our hook was put in and not taken out */
    bool called;             /* the hook was, see hook_answers */
    uintptr_t direct;        /* see is_direct */
    unsigned epoch;          /* another one: what was saved before a call is of the past */
    unsigned aside;          /* threads that are so deep that the hook stepped aside */
    uint64_t newest;         /* while it has: number of the last thread state that is traced */
    volatile uint32_t *own;  /* NULL or wiped memory, 1 while it has: threads in `aside` are of this process */
} state = {.extra = -1, .round = 1, .passes = NO_SLOT, .direct = UINTPTR_MAX};

static __thread struct {
    Py_tracefunc other;  /* whom trace_both calls */
    uintptr_t not_deep;  /* ~address: below it the hook steps aside; 0 not known yet */
    uintptr_t limit;     /* ~address: below it the hook takes its slow way; 0 in marked frames and at first */
    unsigned own_epochs; /* those that this thread made while it stepped aside: what it saved stays good */
    unsigned aside;      /* how often this thread is in `aside` */
    bool asking;         /* runs a `select` */
} here __attribute__((tls_model("initial-exec")));

static __attribute__((aligned(64))) int trace_alone(PyObject *object, PyFrameObject *frame, int what, PyObject *arg);
static int trace_both(PyObject *object, PyFrameObject *frame, int what, PyObject *arg);
static PyObject *hook(PyThreadState *tstate, lpy_frame *frame, int throwing);

/* ---- which code ---- */

static inline uintptr_t slot_of(const PyCodeObject *code)
{
    return (uintptr_t)lpy_code_extra(code, state.extra);
}

static inline trace_code *code_in(uintptr_t slot)
{
    return slot & 1u ? NULL : (trace_code *)slot;
}

static void free_slot(void *slot)
{
    free(code_in((uintptr_t)slot));
}

/* Frees what was there. */
static bool keep_slot(PyCodeObject *code, uintptr_t slot)
{
    if (_PyCode_SetExtra((PyObject *)code, state.extra, (void *)slot) == 0)
        return true;
    PyErr_Clear();
    return false;
}

/* What those that select want of code that is seen for the first time in this round. The frame is on the stack, where they may look
 * for it. No tracer sees their functions run. */
static NOINLINE trace_code *code_asked(PyCodeObject *code)
{
    PyThreadState *tstate = lpy_thread_state();
    uintptr_t slot = slot_of(code), round = state.round;
    trace_code *known = code_in(slot);

    if (slot == state.plain || here.asking)
        return known;
    if (state.selecting) {
        here.asking = true;
        tstate->tracing++;
        Py_INCREF(code);
        for (size_t i = 0; i < state.engine_count && !PyErr_Occurred(); i++)
            if (state.engines[i]->select)
                lpy_line_discover(state.engines[i], (PyObject *)code);
        if (!code_in(slot_of(code)) && !PyErr_Occurred())
            keep_slot(code, round);
        Py_DECREF(code);
        tstate->tracing--;
        here.asking = false;
        known = code_in(slot_of(code));
    }
    if (known && !PyErr_Occurred())
        known->asked = round;
    return known;
}

/* Whether a frame's events are to be had: they are wanted, or somebody has to be asked at its call event. */
static inline bool code_calls_us(const PyCodeObject *code)
{
    uintptr_t slot = slot_of(code);

    return slot != state.plain &&
           (LP_LIKELY(code_in(slot)) || (state.selecting && slot != state.round && !here.asking));
}

/* ---- the trace function of a thread ---- */

static inline bool is_ours(Py_tracefunc function)
{
    return function == trace_alone || function == trace_both;
}

/* What the program set, as if we were not there. */
static inline Py_tracefunc theirs(const PyThreadState *tstate)
{
    Py_tracefunc function = tstate->c_tracefunc;

    return function == trace_alone ? NULL : function == trace_both ? here.other : function;
}

/* Whether somebody else needs the flags of this thread. */
static inline bool others_trace(const PyThreadState *tstate)
{
    return (tstate->c_tracefunc && tstate->c_tracefunc != trace_alone) || tstate->c_profilefunc;
}

/* Puts ours in, around what stands there, or takes it out. */
static inline void put(PyThreadState *tstate, bool ours)
{
    Py_tracefunc other = theirs(tstate);

    here.limit = ours ? 0 : here.not_deep;
    if (!ours) {
        tstate->c_tracefunc = other;
    } else if (other) {
        here.other = other;
        tstate->c_tracefunc = trace_both;
    } else {
        tstate->c_tracefunc = trace_alone;
    }
}

/* ---- flags ---- */

static inline void flag_set(lpy_cframe *cframe, bool on)
{
    cframe->use_tracing = on ? LPY_TRACED : 0;
}

/* The activation around this one; NULL after the thread's root, whose own `previous` is not set in 3.10. */
static inline lpy_cframe *cframe_around(PyThreadState *tstate, lpy_cframe *cframe)
{
    return cframe == &tstate->root_cframe ? NULL : cframe->previous;
}

/* Frames that are not marked are refused, then. */
static inline bool everything_is_traced(void)
{
    return state.aside || state.greenlets;
}

/* The outermost activation with a marked frame in it; NULL none. */
static lpy_cframe *outermost_marked(PyThreadState *tstate)
{
    lpy_cframe *outermost = NULL;
    lpy_frame *frame = lpy_thread_top(tstate);

    for (lpy_cframe *cframe = tstate->cframe; frame; cframe = cframe->previous) {
        bool entry;

        do {
            if (code_in(slot_of(lpy_frame_code(frame))))
                outermost = cframe;
            entry = lpy_frame_is_entry(frame);
            frame = lpy_frame_back(frame);
        } while (!entry && frame);
    }
    return outermost;
}

/* Frames that are running: from the innermost activation as far as the outermost one with a marked frame. Those between need the
 * flag, too, since an activation hands its own one outwards when it ends. Another thread's foreign tracer stays: whom trace_both
 * calls is known to its own thread only. */
static void flag_running(PyThreadState *tstate, bool self)
{
    bool everything = everything_is_traced();
    lpy_cframe *last = everything ? NULL : outermost_marked(tstate);
    bool on = last || everything;

    if (self)
        put(tstate, on);
    else if (!tstate->c_tracefunc || tstate->c_tracefunc == trace_alone)
        tstate->c_tracefunc = on ? trace_alone : NULL;
    if (others_trace(tstate))
        return;
    for (lpy_cframe *cframe = tstate->cframe; cframe; cframe = cframe_around(tstate, cframe)) {
        flag_set(cframe, on);
        if (cframe == last && !everything)
            on = false;
    }
}

static void flag_each(PyThreadState *tstate, void *self)
{
    flag_running(tstate, tstate == self);
}

static void rescan(void)
{
    PyThreadState *self = lpy_thread_state();

    state.epoch++;
    lpy_each_thread(self->interp, 0, flag_each, self);
}

/* While the hook is aside, a thread that begins has no function of ours until somebody has an event, as the one that began it has at
 * its next line: everything is traced. In a forked child the threads that were deep may not be there. */
static NOINLINE void look_around(void)
{
    PyThreadState *self = lpy_thread_state();

    if (state.own && !*state.own) {
        *state.own = 1;
        state.aside = here.aside;
        if (!state.aside) {
            _PyInterpreterState_SetEvalFrameFunc(self->interp, hook);
            rescan();
        }
    }
    if (state.aside && PyInterpreterState_ThreadHead(self->interp)->id != state.newest)
        state.newest = lpy_each_thread(self->interp, state.newest, flag_each, self);
}

static void set_passes(void)
{
    state.passes = state.greenlets ? NO_SLOT : state.plain;
}

/* The frame that has just ended may have raised: that exception goes on. */
static NOINLINE void look_for_greenlets(void)
{
    PyObject *type, *value, *traceback, *name;
    bool before = state.greenlets;

    PyErr_Fetch(&type, &value, &traceback);
    name = PyUnicode_FromString("greenlet");
    state.modules_seen = PyDict_GET_SIZE(state.modules);
    if (name && PyDict_GetItemWithError(state.modules, name))
        state.greenlets = true;
    set_passes();
    Py_XDECREF(name);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    if (state.greenlets && !before && state.active)
        rescan();
}

/* ---- events ---- */

/* A frame that is not marked calls us: it was running when we started, or was called for the first time and nobody wants it.
 * Its flag goes, with our function: call_trace sets the flag anew after us, by whether there is one. Not if that flag
 * is needed for a marked frame around it. */
static NOINLINE void refuse(bool called)
{
    PyThreadState *tstate = lpy_thread_state();

    if (!everything_is_traced() &&
        (called || (tstate->c_tracefunc == trace_alone && !tstate->c_profilefunc && !outermost_marked(tstate))))
        put(tstate, false);
}

/* Whether the frame's code is measured. At a call it may have set an exception that a signal's handler raised. */
static NOINLINE bool event(PyFrameObject *object, int what, PyObject *arg)
{
    lpy_frame *frame = lpy_frame_in(object);
    PyCodeObject *key = lpy_frame_code(frame);
    trace_code *code = code_in(slot_of(key));
    size_t at = (size_t)lpy_frame_offset(frame) * sizeof(_Py_CODEUNIT);

    if (LP_UNLIKELY(!code || code->asked != state.round)) {
        code = code_asked(key);
        if (LP_UNLIKELY(PyErr_Occurred() != NULL))
            return false; /* whoever calls us looks for it, too */
    }
    if (LP_UNLIKELY(!code)) {
        refuse(what == PyTrace_CALL);
        return false;
    }
    uint64_t now = lp_ticks();
    for (uint32_t i = 0; i < code->count; i++) {
        lp_line_thread *th = lp_lines_enter_call(code->of[i].engine->core, false, &now);

        if (LP_UNLIKELY(!th))
            continue;
        if (what == PyTrace_CALL) {
            if (lpy_frame_resumes(frame))
                lp_lines_resume(th, code->of[i].line, frame, lpy_context(), at, now);
            else
                lp_lines_call(th, code->of[i].line, frame, lpy_context(), now);
        } else if (what == PyTrace_LINE) {
            if (LP_UNLIKELY(!lp_lines_line(th, frame, key, at, now)))
                lp_lines_line_slow(th, frame, key, lpy_context(), at, object->f_lineno, now);
        } else if (what == PyTrace_RETURN) {
            if (arg && lpy_frame_yields(frame))
                lp_lines_yield(th, frame, key, lpy_context(), now);
            else
                lp_lines_leave(th, frame, key, lpy_context(), now);
        }
    }
    return true;
}

/* `exception` says nothing that `return` without a value does not, but it has cost something. */
static inline bool is_wanted(int what)
{
    if (what == PyTrace_EXCEPTION)
        lp_lines_cost(LP_LINE_RAISE);
    return what != PyTrace_EXCEPTION && what != PyTrace_OPCODE;
}

/* The usual events where one engine is on: the call of known code; a line or the end of the frame on top of the stack, which needs no
 * look at the code object. false: something else, nothing happened. */
static inline bool usual_event(PyFrameObject *object, int what, PyObject *arg)
{
    lpy_frame *frame = lpy_frame_in(object);
    PyCodeObject *key = lpy_frame_code(frame);
    lp_line_thread *th = lp_lines_known(state.only);

    if (LP_UNLIKELY(!th))
        return false;
    if (LP_LIKELY(what == PyTrace_LINE))
        return lp_lines_line(th, frame, key, (size_t)lpy_frame_offset(frame) * sizeof(_Py_CODEUNIT),
                             lp_lines_line_ticks(th, frame, key));
    if (what == PyTrace_RETURN)
        return !(arg && lpy_frame_yields(frame)) && lp_lines_leave_top(th, frame, key);
    trace_code *code = what == PyTrace_CALL ? code_in(slot_of(key)) : NULL;
    if (LP_UNLIKELY(!code || code->asked != state.round || lpy_frame_resumes(frame)))
        return false;
    lp_lines_call(th, code->of[0].line, frame, lpy_context(), lp_ticks());
    return true;
}

static __attribute__((flatten)) int trace_alone(PyObject *object, PyFrameObject *frame, int what, PyObject *arg)
{
    (void)object;
    if (LP_UNLIKELY(state.aside))
        look_around();
    if (!usual_event(frame, what, arg) && is_wanted(what) && !event(frame, what, arg) && PyErr_Occurred())
        return -1;
    return 0;
}

static int trace_both(PyObject *object, PyFrameObject *frame, int what, PyObject *arg)
{
    PyThreadState *tstate = lpy_thread_state();
    Py_tracefunc other = here.other;
    bool stays = true;
    int status;

    if (!state.active) {
        tstate->c_tracefunc = other;
        return other(object, frame, what, arg);
    }
    if (LP_UNLIKELY(state.aside))
        look_around();
    if (is_wanted(what)) {
        bool measured = event(frame, what, arg);
        if (!measured && PyErr_Occurred())
            return -1;
        stays = measured || what != PyTrace_CALL || everything_is_traced();
    }
    status = other(object, frame, what, arg);
    if (state.active)
        put(tstate, stays); /* around what it may have put in its own place */
    return status;
}

/* ---- the hook ---- */

/* What a thread's own steps aside do not change. */
static inline unsigned epoch_here(void)
{
    return state.epoch - here.own_epochs;
}

static void flag_other(PyThreadState *tstate, void *self)
{
    if (tstate != self)
        flag_running(tstate, false);
}

static uint64_t flag_others(PyThreadState *self)
{
    state.epoch++;
    here.own_epochs++;
    return lpy_each_thread(self->interp, 0, flag_other, self);
}

/* Evaluates the frame with our trace function in, if `marked`, and out, if not, and puts everything back. What a trace function calls
 * has no events, ours or another's: the interpreter relies on it that such activations have no flag. */
static inline PyObject *evaluate(PyThreadState *tstate, lpy_frame *frame, int throwing, bool marked)
{
    if (LP_UNLIKELY(tstate->tracing))
        return state.next(tstate, frame, throwing);
    lpy_cframe *cframe = tstate->cframe;
    bool flagged = cframe->use_tracing;
    bool beside = others_trace(tstate);
    bool ours = is_ours(tstate->c_tracefunc) || here.limit == 0;
    unsigned epoch = epoch_here();
    PyObject *result;

    put(tstate, marked);
    if (!beside)
        flag_set(cframe, marked);
    result = state.next(tstate, frame, throwing);
    if (LP_UNLIKELY(PyDict_GET_SIZE(state.modules) != state.modules_seen))
        look_for_greenlets();
    if (LP_UNLIKELY(epoch != epoch_here()))
        return result; /* stopped, started or marked meanwhile: that has set everything, the flag comes with the frame */
    put(tstate, ours);
    if (!others_trace(tstate))
        flag_set(cframe, beside ? ours : flagged);
    return result;
}

/* The same in a thread that nobody else traces, by what stands there `before` and `within`: our function, or none. */
static inline PyObject *evaluate_alone(PyThreadState *tstate, lpy_frame *frame, int throwing, Py_tracefunc before,
                                       Py_tracefunc within)
{
    lpy_cframe *cframe = tstate->cframe;
    bool flagged = cframe->use_tracing;
    unsigned epoch = epoch_here();
    PyObject *result;

    tstate->c_tracefunc = within;
    here.limit = within ? 0 : here.not_deep;
    flag_set(cframe, within != NULL);
    result = state.next(tstate, frame, throwing);
    if (LP_UNLIKELY(PyDict_GET_SIZE(state.modules) != state.modules_seen))
        look_for_greenlets();
    if (LP_UNLIKELY(epoch != epoch_here()))
        return result;
    if (LP_LIKELY(tstate->c_tracefunc == within && !tstate->c_profilefunc)) {
        tstate->c_tracefunc = before;
        here.limit = before ? 0 : here.not_deep;
        flag_set(cframe, flagged);
    } else {
        put(tstate, before);
        if (!others_trace(tstate))
            flag_set(cframe, flagged);
    }
    return result;
}

/* Without a hook, so that calls below take no C stack on 3.11. Their frames inherit the flag: all of them are traced. Other threads
 * have no hook then, either: everything is traced there, too, see look_around. */
static NOINLINE PyObject *evaluate_deep(PyThreadState *tstate, lpy_frame *frame, int throwing)
{
    PyObject *result;

    if (state.aside++ == 0) {
        _PyInterpreterState_SetEvalFrameFunc(tstate->interp, state.next);
        if (state.own)
            *state.own = 1;
        state.newest = flag_others(tstate);
    }
    here.aside++;
    result = evaluate(tstate, frame, throwing, true);
    here.aside--;
    if (--state.aside == 0 && state.active) {
        _PyInterpreterState_SetEvalFrameFunc(tstate->interp, hook);
        flag_others(tstate);
    }
    return result;
}

/* When there is nothing to measure, in a thread's first call, or deep. */
static NOINLINE PyObject *evaluate_slowly(PyThreadState *tstate, lpy_frame *frame, int throwing, bool marked)
{
    if (LP_UNLIKELY(!state.active)) {
        state.called = true;
        return state.next(tstate, frame, throwing);
    }
    if (LP_UNLIKELY(!here.not_deep)) {
        here.not_deep = ~lpy_stack_middle();
        if (!is_ours(tstate->c_tracefunc))
            here.limit = here.not_deep;
    }
    if (LP_UNLIKELY((uintptr_t)__builtin_frame_address(0) < ~here.not_deep))
        return evaluate_deep(tstate, frame, throwing);
    if (!marked && !is_ours(tstate->c_tracefunc) && here.limit)
        return state.next(tstate, frame, throwing);
    return evaluate(tstate, frame, throwing, marked);
}

/* Whether an instruction calls Python code without C code between, which 3.11 does within one activation when nobody hooks: only
 * such a call is slower because of us. It has the least stack between the caller's activation and the hook. */
static inline bool is_direct(const PyThreadState *tstate, const lpy_frame *frame, uintptr_t stack)
{
    if (lpy_frame_is_generators(frame))
        return false;
    uintptr_t distance = (uintptr_t)tstate->cframe - stack;

    if (LP_UNLIKELY(distance < state.direct))
        state.direct = distance;
    return distance == state.direct;
}

/* Everything but a call that has nothing to do with us, and the usual one of those that leave a marked frame. */
static NOINLINE PyObject *hook_slowly(PyThreadState *tstate, lpy_frame *frame, int throwing, uintptr_t stack)
{
    bool marked = code_calls_us(lpy_frame_code(frame)) || state.greenlets;
    Py_tracefunc before = tstate->c_tracefunc;

    if (is_direct(tstate, frame, stack))
        lp_lines_cost(!is_ours(before) ? LP_LINE_UNMARKED : marked ? LP_LINE_INNER : LP_LINE_LEFT);
    else if (is_ours(before) && !(marked && lpy_frame_is_generators(frame)))
        lp_lines_cost(marked ? LP_LINE_INNER_C : LP_LINE_LEFT_C);
    if (LP_UNLIKELY(!state.active || !here.not_deep || stack < ~here.not_deep))
        return evaluate_slowly(tstate, frame, throwing, marked);
    if (!marked && !is_ours(before) && here.limit)
        return state.next(tstate, frame, throwing);
    if (LP_LIKELY(marked && !tstate->tracing && !tstate->c_profilefunc && before == (here.limit ? NULL : trace_alone)))
        return evaluate_alone(tstate, frame, throwing, before, trace_alone);
    return evaluate(tstate, frame, throwing, marked);
}

/* A marked frame calls one that is not, in a thread that nobody else traces: short, since it comes between the program's own code. */
static NOINLINE PyObject *hook_left(PyThreadState *tstate, lpy_frame *frame, int throwing, uintptr_t stack)
{
    lp_lines_cost(is_direct(tstate, frame, stack) ? LP_LINE_LEFT : LP_LINE_LEFT_C);
    return evaluate_alone(tstate, frame, throwing, trace_alone, NULL);
}

static NOINLINE PyObject *hook(PyThreadState *tstate, lpy_frame *frame, int throwing)
{
    uintptr_t stack = (uintptr_t)__builtin_frame_address(0);

    if (LP_UNLIKELY(slot_of(lpy_frame_code(frame)) != state.passes))
        return hook_slowly(tstate, frame, throwing, stack);
    if (LP_UNLIKELY(tstate->c_tracefunc || stack < ~here.limit)) {
        bool usual = tstate->c_tracefunc == trace_alone && !here.limit && stack >= ~here.not_deep && state.active &&
                     !tstate->tracing && !tstate->c_profilefunc;
        return (usual ? hook_left : hook_slowly)(tstate, frame, throwing, stack);
    }
    if (LP_LIKELY(is_direct(tstate, frame, stack)))
        lp_lines_cost(LP_LINE_UNMARKED);
    return state.next(tstate, frame, throwing);
}

/* ---- start, stop ---- */

/* Whether another hook that was put in after ours calls ours: evaluates something small and looks. -1 with an exception. */
static int hook_answers(PyThreadState *tstate)
{
    PyObject *code = Py_CompileString("None", "<lineprofiler>", Py_eval_input);
    PyObject *globals = code ? PyDict_New() : NULL, *value = NULL;

    state.called = false;
    if (globals) {
        tstate->tracing++; /* nobody's tracer is to see it */
        value = PyEval_EvalCode(code, globals, globals);
        tstate->tracing--;
    }
    Py_XDECREF(code);
    Py_XDECREF(globals);
    Py_XDECREF(value);
    return value ? state.called : -1;
}

/* -1 with an exception. */
static int switch_on(void)
{
    PyThreadState *self = lpy_thread_state();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(self->interp);

    if (current != hook) {
        int answers = state.hooked ? hook_answers(self) : 0;

        if (answers < 0)
            return -1;
        if (!answers) {
            state.next = current;
            state.hooked = true;
            if (state.aside == 0)
                _PyInterpreterState_SetEvalFrameFunc(self->interp, hook);
        }
    }
    if (!state.own)
        state.own = lp__guard_words();
    state.modules = PyImport_GetModuleDict();
    look_for_greenlets();
    state.active = true;
    return 0;
}

static void unflag(PyThreadState *tstate, void *self)
{
    if (tstate->c_tracefunc == trace_alone)
        tstate->c_tracefunc = NULL;
    else if (tstate == self && tstate->c_tracefunc == trace_both)
        tstate->c_tracefunc = here.other; /* another thread's takes itself out at its next event */
    if (!others_trace(tstate))
        for (lpy_cframe *cframe = tstate->cframe; cframe; cframe = cframe_around(tstate, cframe))
            flag_set(cframe, false);
}

static void switch_off(void)
{
    PyThreadState *self = lpy_thread_state();

    state.active = false;
    state.epoch++;
    lpy_each_thread(self->interp, 0, unflag, self);
    if (state.aside || _PyInterpreterState_GetEvalFrameFunc(self->interp) == hook) {
        if (!state.aside)
            _PyInterpreterState_SetEvalFrameFunc(self->interp, state.next);
        state.hooked = false;
    }
}

/* ---- the back end ---- */

/* One more, or one less, that wants the events of a code object. False: no memory. */
static bool want(LineEngine *engine, PyObject *object, bool on)
{
    PyCodeObject *code = (PyCodeObject *)object;
    trace_code *before = code_in(slot_of(code));
    uint32_t count = before ? before->count : 0, kept = 0;
    lp_line_code *line = on ? lpy_line_code(engine, object) : NULL;
    trace_code *after = malloc(sizeof *after + (count + 1) * sizeof after->of[0]);

    if (!after || (on && !line)) {
        free(after);
        return false;
    }
    after->asked = before ? before->asked : state.selecting ? 0 : state.round;
    for (uint32_t i = 0; i < count; i++)
        if (before->of[i].engine != engine)
            after->of[kept++] = before->of[i];
    if (on) {
        after->of[kept].engine = engine;
        after->of[kept++].line = line;
    }
    after->count = kept;
    if (kept && keep_slot(code, (uintptr_t)after))
        return true;
    free(after);
    return !kept && keep_slot(code, 0);
}

/* Of those that are on; engine_count: it is off. */
static size_t place_of(const LineEngine *engine)
{
    size_t i = 0;

    while (i < state.engine_count && state.engines[i] != engine)
        i++;
    return i;
}

static void trace_arm(LineEngine *engine, PyObject *code, bool on)
{
    if (on && place_of(engine) == state.engine_count)
        return; /* the program stopped it while it was asked for this code: nothing may point to it */
    if (!want(engine, code, on))
        lpy_line_note(engine, "no memory to measure a function");
    if (on && !here.asking)
        rescan();
}

static void want_all(LineEngine *engine, bool on)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(engine->codes); i++) {
        lp_line_code *line = lp_lines_code_at(engine->core, (uint32_t)i);

        if (line && line->marked && !want(engine, PyList_GET_ITEM(engine->codes, i), on))
            lpy_line_note(engine, "no memory to measure a function");
    }
}

static void trace_stop(LineEngine *engine)
{
    size_t i = place_of(engine);

    if (i == state.engine_count)
        return;
    state.engines[i] = state.engines[--state.engine_count];
    state.only = state.engine_count == 1 ? state.engines[0]->core : NULL;
    if (engine->select)
        state.selecting--;
    state.plain = state.selecting ? state.round : 0;
    set_passes();
    want_all(engine, false);
    if (!state.engine_count)
        switch_off();
}

/* A slot on every code object, and that it is where we look. */
static bool get_extra(void)
{
    Py_ssize_t index = _PyEval_RequestCodeExtraIndex(free_slot);
    PyObject *code = index >= 0 ? Py_CompileString("None", "<lineprofiler>", Py_eval_input) : NULL;
    void *odd = (void *)1, *found = NULL;

    if (code && _PyCode_SetExtra(code, index, odd) == 0 && _PyCode_GetExtra(code, index, &found) == 0 && found == odd &&
        lpy_code_extra((PyCodeObject *)code, index) == odd)
        state.extra = index;
    PyErr_Clear();
    Py_XDECREF(code);
    return state.extra >= 0;
}

static int trace_start(LineEngine *engine)
{
    LineEngine **engines;
    PyObject *type, *value, *traceback;

    if (state.extra < 0 && !get_extra()) {
        lpy_line_note(engine, "the interpreter gives no slot on code objects");
        return -1;
    }
    engines = realloc(state.engines, (state.engine_count + 1) * sizeof(LineEngine *));
    if (engines) /* even if we do not start: the list before is gone */
        state.engines = engines;
    if (!engines || (!state.active && switch_on() < 0)) {
        if (!lpy_line_interrupted()) {
            PyErr_Clear();
            lpy_line_note(engine, "no memory to start");
        }
        return -1;
    }
    state.engines[state.engine_count++] = engine;
    state.only = state.engine_count == 1 ? engine->core : NULL;
    if (engine->select) {
        state.selecting++;
        state.round += 2;
        state.plain = state.round;
    }
    set_passes();
    want_all(engine, true);
    if (engine->select) {
        here.asking = true;
        bool interrupted = lpy_line_discover_stacks(engine) < 0;
        here.asking = false;
        if (interrupted) {
            PyErr_Fetch(&type, &value, &traceback);
            trace_stop(engine);
            PyErr_Restore(type, value, traceback);
            return -1;
        }
    }
    rescan();
    return 0;
}

const lpy_line_backend lpy_line_trace = {
    .name = "settrace",
    .traces = true,
    .start = trace_start,
    .stop = trace_stop,
    .arm = trace_arm,
};

#endif
