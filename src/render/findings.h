/* The sentences of a finding, for the text, the document and pages. */
#ifndef LP_RENDER_FINDINGS_H
#define LP_RENDER_FINDINGS_H

#include "analysis/report.h"

typedef struct lp_finding_words {
    const char *kind; /* static */
    char headline[2048], detail[2048], advice[2048],
        anchor[1024]; /* names in them are inert; anchor: a phase's path or "" */
} lp_finding_words;

void lp_finding_say(const lp_report *report, const lp_finding *finding, bool utf8, lp_finding_words *words);

#endif
