/* What convert.c, convert_worker.c and run_api.c share. Internal to them. */
#ifndef LP_PYTHON_CONVERT_INTERNAL_H
#define LP_PYTHON_CONVERT_INTERNAL_H

#include "python/convert.h"

/* Numbers; false with an exception (TypeError, OverflowError). */
bool lp__py_to_u64(PyObject *value, uint64_t *out);
bool lp__py_to_i64(PyObject *value, int64_t *out);
bool lp__py_to_u32(PyObject *value, uint32_t *out);
/* Index of the phase with this path (a tuple of names), made where it is missing; false with an exception. */
bool lp__py_phase_of(lp_tree *tree, PyObject *path, uint32_t *index);

enum { LP__PY_ROW_PATH = 0 }; /* column of a tree's row, see convert.h */

#endif
