/* One line of text being written: knows its column, colours without counting them, drops spaces at its end. */
#ifndef LP_RENDER_LINE_H
#define LP_RENDER_LINE_H

#include "render/inert.h"
#include "render/sink.h"

typedef enum lp_style { LP_PLAIN, LP_BOLD, LP_DIM, LP_TITLE, LP_BAR, LP_WARN, LP_BAD } lp_style;

typedef struct lp_line {
    lp_sink *sink;  /* borrowed */
    unsigned width; /* columns of the page */
    bool color, utf8;
    bool breaks;            /* what has no room before `width` goes on in the next line */
    unsigned column;        /* written or owed */
    unsigned owed;          /* spaces that come only if something follows */
    lp_style style, wanted; /* in force; for what comes next */
} lp_line;

void lp_line_put(lp_line *line, const char *text); /* UTF-8 of our own, no newline */
void lp_line_name(lp_line *line, const lp_str *parts, unsigned count, unsigned columns, lp_cut cut);
void lp_line_format(lp_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lp_line_to(lp_line *line, unsigned column); /* spaces up to it; nothing if already there */
/* Text that ends at `end`; at least one space before it when something stands there already. */
void lp_line_right(lp_line *line, unsigned end, const char *text);
void lp_line_style(lp_line *line, lp_style style); /* until the next call or the end of the line */
void lp_line_end(lp_line *line);
void lp_line_rule(lp_line *line); /* a whole line */
/* Words of `text` (our own) within the width, every line after the first indented. Starts at the current column. */
void lp_line_wrap(lp_line *line, unsigned indent, const char *text);
/* The glyph, or its ASCII stand-in. */
const char *lp_line_glyph(const lp_line *line, const char *utf8, const char *ascii);
/* share 0..1 of `columns` columns, in eighths where UTF-8 is there. */
void lp_line_bar(lp_line *line, double share, unsigned columns);

/* Columns of a line that is written; colours have none. */
unsigned lp_line_columns(const char *text, size_t size);
/* Copies lines, each ended by a newline. What is longer than `width` ends in an ellipsis, since a figure without its end looks whole. */
void lp_line_cut(lp_sink *sink, const char *lines, size_t size, unsigned width, bool color, bool utf8);

#endif
