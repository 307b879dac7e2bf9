/* Reading runs from Python: the functions that the extension module takes over from run_api.c. */
#ifndef LP_PYTHON_RUN_API_H
#define LP_PYTHON_RUN_API_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* load_run, render_text, report_json, report_file, compare_trees, render_comparison, comparison_json, cli_main; ended
 * by a zero entry. Their signatures stand in python/lineprofiler/_lineprofiler.pyi. */
extern PyMethodDef lp_py_run_methods[];
/* read_samples, list_samples, sample_self, analyse_samples (samples.c). */
extern PyMethodDef lp_py_sample_methods[];

#endif
