/* Between the files of the text report. */
#ifndef LP_RENDER_TEXT_INTERNAL_H
#define LP_RENDER_TEXT_INTERNAL_H

#include "render/line.h"
#include "render/render.h"
#include "render/units.h"

#define LP_TEXT_ROWS 12u /* phases without --all */
#define LP_TEXT_NAMED 6u /* workers or phases named in a caveat without --all */

typedef char lp_words[4096]; /* a sentence with a few names of at most 120 columns */

typedef struct lp_text {
    const lp_report *report;
    lp_text_options options;
    lp_line line;
    bool started; /* something is printed: a section leaves a blank line before itself */
} lp_text;

/* "TITLE" and a rule below; a blank line before. `detail` (or NULL) follows the title. */
void lp__text_section(lp_text *text, const char *title, const char *detail);
void lp__text_blank(lp_text *text);
/* One line of our own, wrapped; the lines after the first are indented by `indent` too. */
void lp__text_say(lp_text *text, unsigned indent, const char *words);
/* "rank 3 (node07)" or "node07:1542", inert, cut on its left. */
#define LP_LABEL_SIZE LP_INERT_BYTES(40)
char *lp__text_worker(const lp_text *text, const lp_run_worker *worker, char out[LP_LABEL_SIZE]);
/* A phase's name in a sentence, inert: the whole path if it has room in `columns`. */
char *lp__text_path(const lp_text *text, const lp_report_phase *phase, unsigned columns, char *out, size_t size);
/* The same, and whose it is where another role has a phase of that path: "step of actor". */
char *lp__text_path_of(const lp_text *text, lp_report_path at, unsigned columns, char *out, size_t size);
/* Prints a name; an empty one as "". */
void lp__text_name(lp_text *text, lp_str name, unsigned columns, lp_cut cut);
/* Prints a phase's label: the whole path or its last two names, cut at the left. */
void lp__text_label(lp_text *text, const lp_report_role *role, uint32_t phase, unsigned columns, bool whole);
/* true: every path of the role has room in `columns`, marks included. A table shows whole paths in all rows or in none. */
bool lp__text_fits(const lp_text *text, const lp_report_role *role, unsigned columns);
/* "~", "†", "!" before a label; how many columns they take. */
unsigned lp__text_marks(lp_text *text, const lp_report_phase *phase);

void lp__text_phases(lp_text *text, const lp_report_role *role); /* DOMINANT PHASES and its legend */
void lp__text_iterations(lp_text *text, const lp_report_role *role);
void lp__text_io(lp_text *text);   /* I/O BY PHASE */
void lp__text_open(lp_text *text); /* OPEN NOW and its relatives */
void lp__text_caveats(lp_text *text);
/* text_usage.c */
void lp__text_findings(lp_text *text);
void lp__text_resources(lp_text *text, void (*hardware)(lp_text *, const lp_run_host *)); /* prints a host's line */
void lp__text_sampled(lp_text *text); /* I/O, GPU, GPU BY PHASE, MEMORY */

#endif
