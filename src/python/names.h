/* Names of phases and counters: see names.c. */
#ifndef LP_PYTHON_NAMES_H
#define LP_PYTHON_NAMES_H

#include "python/lpy.h"

#define LPY_NAME_LATE UINT32_MAX
#define LPY_NAME_KEPT 256 /* characters: longer names are not kept alive; no program enters those often */

/* Id of a name for this recorder's segment; *pinned: its address may be a key of the fast path. `phase`: counts for the shape
 * warning. 0 with an exception: strict_names; 0 without: no space. LPY_NAME_LATE (phase only): all paths are taken, so a new
 * name gets no id and lpy_name_fold counts it. Runs Python (warnings): the thread's state must be fetched again after it. */
uint32_t lpy_name_id(lpy_session *session, PyObject *name, bool phase, bool *pinned);
/* lp_node_fold for a name without id. */
lp_found lpy_name_fold(lp_thread *th, const lp_seg_node *parent, PyObject *name);
/* Path of `name` below `parent` as text, cut. Raises nothing. */
void lpy_name_path_below(const lp_thread *th, const lp_seg_node *parent, PyObject *name, char *path, size_t size);
/* One RuntimeWarning at the first path beyond the limit. Runs Python. */
/* What a process of private memory records can be written nowhere: said once. Keeps the exception in flight. */
void lpy_warn_lost(lpy_session *session, const char *why);
/* The same, if it is due: what the hook that opens a segment has found. A warning runs Python, which may enter a phase, or let another
 * thread do so, and they would wait for the hook to end. */
void lpy_say_lost(lpy_session *session);
void lpy_warn_fold(lpy_session *session, lp_found how, const char *path);
/* In a forked child: what a thread of the parent held is nobody's. */
void lpy_names_in_child(void);
/* Lets the pinned names go: nobody records by this session any more. Needs the GIL. */
void lpy_names_forget(lpy_session *session);
/* Clears what our own call of Python has raised. What is none of ours, a Ctrl-C or the exit that a signal's handler asks for, is raised
 * again at the program's next step. */
void lpy_clear_own(void);
/* New reference; surrogates passed through. */
PyObject *lpy_name_object(const char *bytes, size_t size);

#endif
