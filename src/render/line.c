#include "render/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BREAK_INDENT 4u /* of a line that goes on with what had no room in the one above */

static const char *const codes[] = {
    [LP_PLAIN] = "\x1b[0m", [LP_BOLD] = "\x1b[1m",  [LP_DIM] = "\x1b[2m",    [LP_TITLE] = "\x1b[1;36m",
    [LP_BAR] = "\x1b[36m",  [LP_WARN] = "\x1b[33m", [LP_BAD] = "\x1b[1;31m",
};

/* Spaces and the style that were asked for come when something follows. */
static void pay(lp_line *line)
{
    lp_sink_repeat(line->sink, " ", line->owed);
    line->owed = 0;
    if (!line->color || line->wanted == line->style)
        return;
    if (line->style != LP_PLAIN)
        lp_sink_text(line->sink, codes[LP_PLAIN]);
    if (line->wanted != LP_PLAIN)
        lp_sink_text(line->sink, codes[line->wanted]);
    line->style = line->wanted;
}

static void next_line(lp_line *line, unsigned indent)
{
    lp_style style = line->wanted;

    lp_line_end(line);
    lp_line_to(line, indent);
    lp_line_style(line, style);
}

/* Figures are never cut, so where names and figures are longer together than the page is wide, the rest gets a line of its own; where
 * there is nothing but an indentation so far, that gives way. */
static bool make_room(lp_line *line, unsigned columns)
{
    bool broken = line->owed < line->column;

    if (!line->breaks || line->column + columns <= line->width)
        return false;
    if (broken)
        next_line(line, BREAK_INDENT);
    if (line->column + columns > line->width)
        line->owed = line->column = columns < line->width ? line->width - columns : 0;
    return broken;
}

static void put_bytes(lp_line *line, const char *text, size_t size, unsigned columns)
{
    size_t spaces = 0;

    while (spaces < size && text[spaces] == ' ')
        spaces++;
    if (spaces < size) {
        size_t end = size;
        while (text[end - 1] == ' ')
            end--;
        if (make_room(line, columns - (unsigned)(size - end))) { /* they stood between it and what is above now */
            columns -= (unsigned)spaces;
            text += spaces;
            size -= spaces;
            end -= spaces;
            spaces = 0;
        }
        line->owed += (unsigned)spaces;
        pay(line);
        lp_sink_put(line->sink, text + spaces, end - spaces);
        line->owed = (unsigned)(size - end);
    } else {
        line->owed += (unsigned)spaces;
    }
    line->column += columns;
}

void lp_line_put(lp_line *line, const char *text)
{
    put_bytes(line, text, strlen(text), lp_text_columns(text));
}

void lp_line_name(lp_line *line, const lp_str *parts, unsigned count, unsigned columns, lp_cut cut)
{
    char small[LP_INERT_BYTES(64)];
    char *text = small;
    size_t size = LP_INERT_BYTES(columns);

    if (size > sizeof small) {
        text = malloc(size);
        if (!text) { /* a shorter name is better than none */
            text = small;
            size = sizeof small;
            columns = 64;
        }
    }
    unsigned used = lp_inert(text, size, parts, count, columns, cut, line->utf8);
    put_bytes(line, text, strlen(text), used);
    if (text != small)
        free(text);
}

void lp_line_format(lp_line *line, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (used >= 0)
        lp_line_put(line, text);
}

void lp_line_to(lp_line *line, unsigned column)
{
    if (column > line->column) {
        line->owed += column - line->column;
        line->column = column;
    }
}

void lp_line_right(lp_line *line, unsigned end, const char *text)
{
    unsigned columns = lp_text_columns(text), start = end > columns ? end - columns : 0;

    if (start <= line->column && line->column > 0)
        start = line->column + (line->owed == 0);
    if (line->breaks && start + columns > line->width && line->owed < line->column) { /* below, in its own column */
        next_line(line, 0);
        start = end > columns ? end - columns : 0;
    }
    lp_line_to(line, start);
    lp_line_put(line, text);
}

void lp_line_style(lp_line *line, lp_style style)
{
    line->wanted = style;
}

void lp_line_end(lp_line *line)
{
    line->owed = 0;
    line->wanted = LP_PLAIN;
    pay(line);
    lp_sink_char(line->sink, '\n');
    line->column = 0;
}

const char *lp_line_glyph(const lp_line *line, const char *utf8, const char *ascii)
{
    return line->utf8 ? utf8 : ascii;
}

void lp_line_rule(lp_line *line)
{
    lp_line_style(line, LP_DIM);
    pay(line);
    lp_sink_repeat(line->sink, lp_line_glyph(line, "\xe2\x94\x80", "-"), line->width);
    lp_line_end(line);
}

/* A word that no line has room for (a path, say) is broken where the line ends. */
static void put_long_word(lp_line *line, unsigned indent, const char *word, size_t size)
{
    size_t start = 0, at = 0;
    uint32_t code;

    while (start < size) {
        unsigned room = line->width > line->column ? line->width - line->column : 1, used = 0;
        while (at < size) {
            size_t next = at;
            lp_utf8_next(word, size, &next, &code);
            unsigned columns = lp__columns(word + at, next - at);
            if (used + columns > room && used > 0)
                break;
            used += columns;
            at = next;
        }
        put_bytes(line, word + start, at - start, used);
        start = at;
        if (start < size)
            next_line(line, indent);
    }
}

void lp_line_wrap(lp_line *line, unsigned indent, const char *text)
{
    bool fresh = true;

    while (*text) {
        size_t size = strcspn(text, " ");
        unsigned columns = lp__columns(text, size);
        if (!fresh && line->column + 1 + columns > line->width) {
            next_line(line, indent);
            fresh = true;
        }
        if (!fresh)
            lp_line_to(line, line->column + 1);
        if (line->column + columns > line->width)
            put_long_word(line, indent, text, size);
        else
            put_bytes(line, text, size, columns);
        fresh = false;
        text += size;
        text += strspn(text, " ");
    }
}

void lp_line_bar(lp_line *line, double share, unsigned columns)
{
    static const char *const parts[] = {"",
                                        "\xe2\x96\x8f",
                                        "\xe2\x96\x8e",
                                        "\xe2\x96\x8d",
                                        "\xe2\x96\x8c",
                                        "\xe2\x96\x8b",
                                        "\xe2\x96\x8a",
                                        "\xe2\x96\x89"};
    double filled = share > 1 ? 1 : share > 0 ? share : 0;
    unsigned eighths = (unsigned)(filled * columns * 8 + 0.5);

    if (eighths == 0 && share > 0)
        eighths = 1; /* there is something */
    lp_line_style(line, LP_BAR);
    if (!line->utf8) {
        for (unsigned i = 0; i < (eighths + 4) / 8; i++)
            lp_line_put(line, "#");
    } else {
        for (unsigned i = 0; i < eighths / 8; i++)
            lp_line_put(line, "\xe2\x96\x88");
        lp_line_put(line, parts[eighths % 8]);
    }
    lp_line_style(line, LP_PLAIN);
}

unsigned lp_line_columns(const char *text, size_t size)
{
    unsigned columns = 0;

    for (size_t at = 0; at < size;) {
        size_t start = at;
        while (at < size && text[at] != '\x1b')
            at++;
        columns += lp__columns(text + start, at - start);
        while (at < size && text[at] != 'm')
            at++;
        at += at < size;
    }
    return columns;
}

/* As much of a line as has room in `width` columns, with all its colours. */
static void put_columns(lp_sink *sink, const char *text, size_t size, unsigned width)
{
    unsigned column = 0;

    for (size_t at = 0; at < size;) {
        size_t start = at;
        uint32_t value;
        if (text[at] == '\x1b') {
            while (at < size && text[at] != 'm')
                at++;
            at += at < size;
        } else {
            lp_utf8_next(text, size, &at, &value);
            column += lp__columns(text + start, at - start);
            if (column > width)
                continue;
        }
        lp_sink_put(sink, text + start, at - start);
    }
}

void lp_line_cut(lp_sink *sink, const char *lines, size_t size, unsigned width, bool color, bool utf8)
{
    const char *ellipsis = utf8 ? "\xe2\x80\xa6" : "..";
    unsigned dots = lp_text_columns(ellipsis);

    for (size_t at = 0; at < size;) {
        const char *end = memchr(lines + at, '\n', size - at);
        size_t length = end ? (size_t)(end - (lines + at)) : size - at;
        bool cut = lp_line_columns(lines + at, length) > width && width > dots;
        put_columns(sink, lines + at, length, cut ? width - dots : width);
        if (cut && color)
            lp_sink_text(sink, codes[LP_PLAIN]);
        if (cut)
            lp_sink_text(sink, ellipsis);
        lp_sink_char(sink, '\n');
        at += length + 1;
    }
}
