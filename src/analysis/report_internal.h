/* Between report.c and report_lists.c. */
#ifndef LP_ANALYSIS_REPORT_INTERNAL_H
#define LP_ANALYSIS_REPORT_INTERNAL_H

#include "analysis/report.h"

/* Fills the open phases and the lists under CAVEATS; the roles must be there. */
lp_status lp__report_lists(lp_report *report);

/* Findings of a report whose roles, lists and usage are there. */
lp_status lp__report_findings(lp_report *report);

#endif
