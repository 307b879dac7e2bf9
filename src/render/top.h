/* One frame of the live view: lines of at most `width` columns, at most `height` of them. */
#ifndef LP_RENDER_TOP_H
#define LP_RENDER_TOP_H

#include "analysis/top.h"
#include "render/sink.h"

typedef struct lp_top_view {
    unsigned width, height; /* of the terminal; height 0: as many lines as there are, without the line of keys */
    bool color, utf8;
    lp_top_choice choice; /* what the rows were arranged by */
    unsigned offset;      /* lines of the table that are scrolled away; 0: every role gets its share of the lines */
    double interval_s;
    bool paused, help;
    bool typing;         /* the filter is being typed: it stands in the last line */
    const char *near;    /* a sentence for who looks at a directory in which nobody has recorded; NULL none */
    const char *message; /* instead of the keys in the last line; NULL none */
} lp_top_view;

/* *most is the greatest offset that makes sense, *page how many lines of the table are seen; both may be NULL. */
lp_status lp_render_top(const lp_top *top, const lp_top_view *view, unsigned *most, unsigned *page, lp_sink *sink);

#endif
