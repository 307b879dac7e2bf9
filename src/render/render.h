/* The faces of a report, a comparison and a file. Every function writes UTF-8 into a sink and gives the sink's status;
 * none flushes. */
#ifndef LP_RENDER_RENDER_H
#define LP_RENDER_RENDER_H

#include "analysis/compare.h"
#include "analysis/report.h"
#include "render/sink.h"
#include "store/samples.h"

#define LP_TEXT_WIDTH 80u     /* the default */
#define LP_TEXT_MIN_WIDTH 64u /* narrower terminals get lines of this width */
#define LP_TEXT_MAX_WIDTH 200u

typedef struct lp_text_options {
    unsigned width; /* columns; 0: LP_TEXT_WIDTH */
    bool color;     /* ANSI colours */
    bool utf8;      /* false: ASCII only, other characters of names are escaped */
    bool all;       /* every phase instead of the first dozen */
    bool samples;   /* the sampled sections; false: --no-samples */
} lp_text_options;

lp_status lp_render_text(const lp_report *report, lp_text_options options, lp_sink *sink);
/* The document of docs/report.md, ASCII only, ended by a newline. `samples` as above. */
lp_status lp_render_json(const lp_report *report, bool samples, lp_sink *sink);

lp_status lp_render_comparison_text(const lp_comparison *comparison, const char *label_a, const char *label_b,
                                    lp_text_options options, lp_sink *sink);
lp_status lp_render_comparison_json(const lp_comparison *comparison, const char *label_a, const char *label_b,
                                    lp_sink *sink);

/* Everything that a worker holds, one fact a line, in a fixed order. `kind`: "snapshot" or "segment". */
lp_status lp_render_dump(const lp_worker *worker, const char *kind, lp_sink *sink);
/* A sample file from its beginning, in the memory of one batch. Also the reader's failures, which fill *error. */
lp_status lp_render_dump_samples(lp_samples *samples, lp_sink *sink, lp_error *error);

#endif
