/* Names from a program as text that cannot do anything to a terminal: controls, newlines, escapes, bidi and zero-width
 * characters, surrogates and bytes that are not UTF-8 become visible escapes (\n, \x1b, \u202e). What is left has a
 * known width in columns: wide characters two, combining ones none (at most two a character, the rest is escaped). */
#ifndef LP_RENDER_INERT_H
#define LP_RENDER_INERT_H

#include "store/model.h"

/* A name or path to be shown: the empty one is seen, too. */
static inline lp_str lp_visible(lp_str name)
{
    return name.size > 0 ? name : (lp_str){"\"\"", 2};
}

typedef enum lp_cut { LP_CUT_LEFT, LP_CUT_RIGHT } lp_cut; /* which end the ellipsis replaces when it does not fit */

#define LP_INERT_BYTES(columns) ((size_t)(columns) * 12 + 8) /* a character and two marks, four bytes each, a column */

/* The parts one after another in at most `columns` columns. Returns the columns used; `out` is terminated. */
unsigned lp_inert(char *out, size_t size, const lp_str *parts, unsigned count, unsigned columns, lp_cut cut, bool utf8);
/* Columns of the whole text without a limit (UINT_MAX at most). */
unsigned lp_inert_columns(const lp_str *parts, unsigned count, bool utf8);
/* Columns of UTF-8 of our own. */
unsigned lp_text_columns(const char *text);
unsigned lp__columns(const char *text, size_t size);

typedef enum lp_code { LP_CODE_CHAR, LP_CODE_SURROGATE, LP_CODE_BYTE } lp_code;
/* Decodes one character at data[*at] (which must be < size) and moves *at beyond it. A surrogate may stand alone; a byte
 * that belongs to no character comes out as itself. */
lp_code lp_utf8_next(const char *data, size_t size, size_t *at, uint32_t *value);

#endif
