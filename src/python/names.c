/* Names as the recorder needs them: bytes once, ids after, and the addresses of str objects as keys of the fast path.
 *
 * An address is a key only while the object lives, so pinned names are kept alive: a few identities a name (equal constants of
 * two modules are different objects when they hold a space or a slash), some thousands in all. Names built from
 * data find no room soon and take the slower way by their bytes. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/wiped.h"
#include "python/lpy.h"
#include "python/names.h"

#define PIN_LIMIT 8192u
#define SHAPE_WARNING 128

struct lpy_pin {
    PyObject *name; /* owned */
    uint32_t id, generation;
};

/* Without the GIL several threads look up and pin at once. No Python runs while it is held. */
LP_FORK_TOUCHES static atomic_flag pin_lock = ATOMIC_FLAG_INIT;

static void lock_pins(void)
{
    while (atomic_flag_test_and_set_explicit(&pin_lock, memory_order_acquire))
        sched_yield();
}

static void unlock_pins(void)
{
    atomic_flag_clear_explicit(&pin_lock, memory_order_release);
}

void lpy_names_in_child(void)
{
    unlock_pins();
}

static struct lpy_pin *seek(struct lpy_pin *table, uint32_t mask, const PyObject *name)
{
    uint32_t i = (uint32_t)((uintptr_t)name >> 4 ^ (uintptr_t)name >> 16) & mask;

    while (table[i].name && table[i].name != name)
        i = (i + 1) & mask;
    return &table[i];
}

/* The id of a pinned name; `fresh` replaces what an earlier segment of this session (the parent's) called it. 0: not pinned. */
static uint32_t pinned_id(lpy_session *session, const PyObject *name, uint32_t fresh)
{
    uint32_t id = 0;

    lock_pins();
    if (session->pins) {
        struct lpy_pin *known = seek(session->pins, session->pin_mask, name);
        if (known->name && fresh) {
            known->id = fresh;
            known->generation = session->core->generation;
        }
        if (known->name && known->generation == session->core->generation)
            id = known->id;
    }
    unlock_pins();
    return id;
}

static bool make_room(lpy_session *session)
{
    if (!session->identities)
        session->identities = calloc(LPY_IDENTITIES, 1);
    if (!session->identities)
        return false;
    if (session->pins && session->pin_count * 2 < session->pin_mask)
        return true;
    uint32_t mask = session->pins ? session->pin_mask * 2 + 1 : 255;
    struct lpy_pin *table = calloc(mask + 1u, sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 0; session->pins && i <= session->pin_mask; i++)
        if (session->pins[i].name)
            *seek(table, mask, session->pins[i].name) = session->pins[i];
    free(session->pins);
    session->pins = table;
    session->pin_mask = mask;
    return true;
}

static bool pin(lpy_session *session, PyObject *name, uint32_t id)
{
    bool pinned = false;

    if (PyUnicode_GET_LENGTH(name) > LPY_NAME_KEPT)
        return false;
    lock_pins();
    /* Eight identities a name: a program that builds the same name anew each time must not fill the table. */
    bool room = session->pin_count < PIN_LIMIT && make_room(session);
    if (room && (id >= LPY_IDENTITIES || session->identities[id] < 8)) {
        struct lpy_pin *place = seek(session->pins, session->pin_mask, name);
        if (!place->name) {
            *place = (struct lpy_pin){Py_NewRef(name), id, session->core->generation};
            session->pin_count++;
            if (id < LPY_IDENTITIES)
                session->identities[id]++;
        }
        pinned = true;
    }
    unlock_pins();
    return pinned;
}

void lpy_names_forget(lpy_session *session)
{
    struct lpy_pin *pins = session->pins;

    session->pins = NULL;
    for (uint32_t i = 0; pins && i <= session->pin_mask; i++)
        Py_XDECREF(pins[i].name);
    free(pins);
    free(session->identities);
    session->identities = NULL;
    session->pin_count = session->pin_mask = 0;
}

static int raise_again(void *exception)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}

void lpy_clear_own(void)
{
    PyObject *type, *value, *traceback;

    if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback)
        PyException_SetTraceback(value, traceback);
    /* Handlers run in the first thread, and so do pending calls. To other threads somebody has sent a class. */
    if ((pid_t)syscall(SYS_gettid) != getpid())
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), type);
    else if (value && Py_AddPendingCall(raise_again, value) == 0)
        value = NULL;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

static bool warn(PyObject *message)
{
    const char *text = message ? PyUnicode_AsUTF8(message) : NULL; /* NULL also of a lone surrogate */

    /* A warning that the user's filters turn into an exception must not end the user's phase. */
    if (!text || PyErr_WarnEx(PyExc_RuntimeWarning, text, 1) < 0)
        lpy_clear_own();
    Py_XDECREF(message);
    return true;
}

/* `name` is new. Counts distinct names a shape (digits -> #); false with an exception: strict_names. `late`: it stays
 * unknown, and must be neither counted nor kept. */
static bool check_shape(lpy_session *session, PyObject *name, const char *bytes, size_t size, bool late)
{
    char shape[256];
    size_t used = 0;
    bool digits = false;

    for (size_t i = 0; i < size && used < sizeof shape; i++) {
        if (bytes[i] >= '0' && bytes[i] <= '9') {
            if (used > 0 && digits && shape[used - 1] == '#')
                continue;
            shape[used++] = '#';
            digits = true;
        } else {
            shape[used++] = bytes[i];
        }
    }
    if (!digits)
        return true;
    if (!session->shapes && !(session->shapes = PyDict_New())) {
        PyErr_Clear();
        return true;
    }
    PyObject *key = PyBytes_FromStringAndSize(shape, (Py_ssize_t)used);
    PyObject *old = key ? PyDict_GetItem(session->shapes, key) : NULL; /* borrowed */
    long count = old ? PyLong_AsLong(old) + 1 : 1;
    bool allowed = true;
    if (key && session->strict_names && count >= 2) {
        PyObject *text = lpy_name_object(shape, used);
        PyErr_Format(
            PyExc_ValueError,
            "strict_names: phase name %R has the shape %R of an earlier name; use a fixed name and count() for the "
            "varying part",
            name, text ? text : Py_None);
        Py_XDECREF(text);
        allowed = false;
    } else if (key && !late) {
        PyObject *number = PyLong_FromLong(count);
        if (!number || PyDict_SetItem(session->shapes, key, number) < 0)
            PyErr_Clear();
        Py_XDECREF(number);
        if (count == SHAPE_WARNING) {
            PyObject *text = lpy_name_object(shape, used);
            warn(PyUnicode_FromFormat("%d distinct phase names share the shape %R (most recently %R). Names built from "
                                      "data grow the phase tree until "
                                      "it folds at %d paths and the report stops being readable - use a fixed name and "
                                      "count() for the varying part.",
                                      SHAPE_WARNING, text ? text : Py_None, name, (int)LP_PATH_LIMIT));
            Py_XDECREF(text);
        }
    } else if (!key) {
        PyErr_Clear();
    }
    Py_XDECREF(key);
    return allowed;
}

/* UTF-8 of a name, surrogates as they are. *owner (new reference or NULL) holds it beside the name. NULL: no memory;
 * raises nothing. */
static const char *utf8_of(PyObject *name, Py_ssize_t *size, PyObject **owner)
{
    *owner = NULL;
    if (PyUnicode_IS_COMPACT_ASCII(name)) {
        *size = PyUnicode_GET_LENGTH(name);
        return (const char *)PyUnicode_DATA(name);
    }
    const char *bytes = PyUnicode_AsUTF8AndSize(name, size);
    if (bytes)
        return bytes;
    PyErr_Clear();
    *owner = PyUnicode_AsEncodedString(name, "utf-8", "surrogatepass");
    if (!*owner) {
        PyErr_Clear();
        return NULL;
    }
    *size = PyBytes_GET_SIZE(*owner);
    return PyBytes_AS_STRING(*owner);
}

uint32_t lpy_name_id(lpy_session *session, PyObject *name, bool phase, bool *pinned)
{
    PyObject *encoded = NULL;
    Py_ssize_t size;
    uint32_t id = 0;

    id = pinned_id(session, name, 0);
    if (id) {
        *pinned = true;
        return id;
    }
    *pinned = false;
    const char *bytes = utf8_of(name, &size, &encoded);
    if (!bytes)
        return 0;
    id = lp_name_find(session->core, bytes, (size_t)size);
    if (!id) {
        bool late = phase && lp_paths_full(session->core), allowed = true;
        if (phase && (!late || session->strict_names)) {
            LPY_BEGIN_CRITICAL(lpy.phase_type); /* of session->shapes */
            allowed = check_shape(session, name, bytes, (size_t)size, late);
            LPY_END_CRITICAL();
        }
        if (allowed)
            id = late ? LPY_NAME_LATE : lp_name_make(session->core, bytes, (size_t)size);
    }
    if (id && id != LPY_NAME_LATE)
        *pinned = pinned_id(session, name, id) != 0 || pin(session, name, id);
    Py_XDECREF(encoded);
    return id;
}

lp_found lpy_name_fold(lp_thread *th, const lp_seg_node *parent, PyObject *name)
{
    PyObject *encoded;
    Py_ssize_t size;
    const char *bytes = utf8_of(name, &size, &encoded);
    lp_found found = bytes ? lp_node_fold(th, parent, bytes, (size_t)size) : LP_FOUND_NO_SPACE;

    Py_XDECREF(encoded);
    return found;
}

void lpy_name_path_below(const lp_thread *th, const lp_seg_node *parent, PyObject *name, char *path, size_t size)
{
    PyObject *encoded;
    Py_ssize_t length;
    const char *bytes = utf8_of(name, &length, &encoded);

    lp_node_path_below(th, parent, bytes ? bytes : "?", bytes ? (size_t)length : 1, path, size);
    Py_XDECREF(encoded);
}

void lpy_warn_lost(lpy_session *session, const char *why)
{
    PyObject *type, *value, *traceback;

    if (session->loss_warned == getpid()) /* a forked child has a loss of its own */
        return;
    session->loss_warned = getpid();
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *text = lpy_name_object(why, strlen(why));
    warn(PyUnicode_FromFormat("what this process records has neither shared memory nor a file, and may be lost: %S",
                              text ? text : Py_None));
    Py_XDECREF(text);
    PyErr_Restore(type, value, traceback);
}

void lpy_say_lost(lpy_session *session)
{
    if (!session->loss_due)
        return;
    session->loss_due = false;
    lpy_warn_lost(session, session->error);
}

void lpy_warn_fold(lpy_session *session, lp_found how, const char *path)
{
    if (session->folded_warned || how != LP_FOUND_FOLDED_PATH)
        return;
    session->folded_warned = true;
    PyObject *text = lpy_name_object(path, strlen(path));
    warn(PyUnicode_FromFormat(
        "%d phase paths exist already: %R and all further ones are folded into their parent phase.", (int)LP_PATH_LIMIT,
        text ? text : Py_None));
    Py_XDECREF(text);
}

PyObject *lpy_name_object(const char *bytes, size_t size)
{
    PyObject *text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)size, "surrogatepass");

    if (!text) {
        PyErr_Clear();
        text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)size, "replace");
    }
    return text;
}
