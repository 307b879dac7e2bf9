/* The keys of a report's document that come from samples. */
#ifndef LP_RENDER_JSON_USAGE_H
#define LP_RENDER_JSON_USAGE_H

#include "analysis/report.h"
#include "render/json_write.h"

void lp__json_findings(lp_json *json, const lp_report *report);  /* "findings"; nothing if there are none */
void lp__json_resources(lp_json *json, const lp_report *report); /* "resources"; nothing without samples */
void lp__json_used(lp_json *json, const lp_report *report);      /* "used" of "machine"; nothing without samples */

#endif
