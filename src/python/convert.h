/* Workers and trees as plain Python data, and back. All functions need the GIL (or an attached thread state).
 *
 * A tree is a list of tuples, parents first, the root () at index 0:
 *   (path: tuple[str, ...], flags, entries, errors, abandoned, async_entries, io_missing, wall_ns, child_ns, cpu_wall_ns,
 *    cpu_ns, split_wait_ns, starved_ns, min_ns, max_ns, stride: int, hist: {cell: count},
 *    counters: {name: (calls, total, min, max: int, hist: {cell: count})})
 * where the cell of a negative amount is negated. A worker is a dict with the names of lp_worker, lp_identity and
 * lp_health as keys (see the tables in convert.c); numbers that are unknown are None, unknown hardware is absent.
 * Totals of 128 bits are exact. Texts are UTF-8 with surrogates passed through; bytes that are not (of a foreign
 * file) become backslash escapes. */
#ifndef LP_PYTHON_CONVERT_H
#define LP_PYTHON_CONVERT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "store/model.h"

/* The one place where a status becomes an exception. Sets it and returns NULL. `error` may be NULL. */
PyObject *lp_py_raise(lp_status status, const lp_error *error);

/* New references; NULL with an exception. */
PyObject *lp_py_from_str(lp_str text);
PyObject *lp_py_from_path(const char *path); /* by the filesystem's encoding */
PyObject *lp_py_from_tree(const lp_tree *tree);
PyObject *lp_py_from_worker(const lp_worker *worker);

/* The reverse. Copies into `arena`; false with an exception. */
bool lp_py_to_str(PyObject *text, lp_arena *arena, lp_str *out);
/* Adds rows to a tree that holds the root. Missing ancestors are made; rows of one path twice are an error. */
bool lp_py_to_tree(PyObject *rows, lp_tree *tree);
/* A new worker, owned by the caller; missing keys have the value "unknown". NULL with an exception. */
lp_worker *lp_py_to_worker(PyObject *data);

#endif
