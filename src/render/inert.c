#include "render/inert.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "render/unicode_table.h"

#define MARKS_MAX 2u /* combining characters on one base that terminals can be trusted with */

lp_code lp_utf8_next(const char *data, size_t size, size_t *at, uint32_t *value)
{
    const unsigned char *bytes = (const unsigned char *)data + *at;
    size_t left = size - *at, length = bytes[0] < 0x80 ? 1 : bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);

    *value = bytes[0];
    if (bytes[0] >= 0x80 && (bytes[0] < 0xc2 || bytes[0] > 0xf4 || length > left)) {
        ++*at;
        return LP_CODE_BYTE;
    }
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            ++*at;
            return LP_CODE_BYTE;
        }
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    if (code < smallest[length] || code > 0x10ffff) {
        ++*at;
        return LP_CODE_BYTE;
    }
    *at += length;
    *value = code;
    return code >= 0xd800 && code <= 0xdfff ? LP_CODE_SURROGATE : LP_CODE_CHAR;
}

static bool in_table(const lp__range *table, size_t size, uint32_t code)
{
    size_t low = 0, high = size;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > table[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < size && code >= table[low].first;
}
#define IN(table, code) in_table(table, sizeof(table) / sizeof *(table), code)

static unsigned columns_of(uint32_t code)
{
    if (code < 0x300)
        return 1;
    if (code == 0x200c || code == 0x200d || IN(lp__combining, code))
        return 0;
    return IN(lp__wide, code) ? 2 : 1;
}

typedef struct glyph { /* what is printed for one character */
    char text[12];
    unsigned bytes, columns;
} glyph;

static void set_escape(glyph *out, const char *format, uint32_t value)
{
    int used = snprintf(out->text, sizeof out->text, format, value);

    out->bytes = out->columns = (unsigned)used;
}

static void set_code(glyph *out, uint32_t code, unsigned columns)
{
    if (code < 0x80) {
        out->text[0] = (char)code;
        out->bytes = 1;
    } else if (code < 0x800) {
        out->text[0] = (char)(0xc0 | code >> 6);
        out->text[1] = (char)(0x80 | (code & 0x3f));
        out->bytes = 2;
    } else if (code < 0x10000) {
        out->text[0] = (char)(0xe0 | code >> 12);
        out->text[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out->text[2] = (char)(0x80 | (code & 0x3f));
        out->bytes = 3;
    } else {
        out->text[0] = (char)(0xf0 | code >> 18);
        out->text[1] = (char)(0x80 | (code >> 12 & 0x3f));
        out->text[2] = (char)(0x80 | (code >> 6 & 0x3f));
        out->text[3] = (char)(0x80 | (code & 0x3f));
        out->bytes = 4;
    }
    out->columns = columns;
}

static void set_control(glyph *out, uint32_t code)
{
    const char *letter = code == '\n' ? "\\n" : code == '\r' ? "\\r" : code == '\t' ? "\\t" : NULL;

    if (!letter) {
        set_escape(out, "\\x%02x", code);
        return;
    }
    memcpy(out->text, letter, 2);
    out->bytes = out->columns = 2;
}

typedef struct glyph_walk { /* over the characters of several parts */
    const lp_str *parts;
    unsigned count, part;
    size_t at;
    unsigned marks; /* combining characters that the current base may still take */
    bool utf8;
} glyph_walk;

static bool next_glyph(glyph_walk *walk, glyph *out)
{
    uint32_t code;

    while (walk->part < walk->count && walk->at >= walk->parts[walk->part].size) {
        walk->part++;
        walk->at = 0;
    }
    if (walk->part >= walk->count)
        return false;
    lp_code kind = lp_utf8_next(walk->parts[walk->part].data, walk->parts[walk->part].size, &walk->at, &code);
    unsigned columns = columns_of(code);
    bool mark = kind == LP_CODE_CHAR && columns == 0;
    if (kind == LP_CODE_BYTE) {
        set_escape(out, "\\x%02x", code);
    } else if (kind == LP_CODE_SURROGATE) {
        set_escape(out, "\\u%04x", code);
    } else if (code < 0x20 || code == 0x7f) {
        set_control(out, code);
    } else if (code >= 0x80 && (!walk->utf8 || IN(lp__invisible, code) || (mark && walk->marks == 0))) {
        set_escape(out, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
        walk->marks = 0;
        return true;
    } else {
        set_code(out, code, columns);
        walk->marks = mark ? walk->marks - 1 : MARKS_MAX;
        return true;
    }
    walk->marks = 0;
    return true;
}

unsigned lp_inert_columns(const lp_str *parts, unsigned count, bool utf8)
{
    glyph_walk walk = {.parts = parts, .count = count, .utf8 = utf8};
    unsigned columns = 0;
    glyph one;

    while (next_glyph(&walk, &one))
        columns = columns > UINT_MAX - one.columns ? UINT_MAX : columns + one.columns;
    return columns;
}

static size_t append(char *out, size_t size, size_t used, const char *text, size_t bytes)
{
    if (used + bytes >= size)
        return used;
    memcpy(out + used, text, bytes);
    return used + bytes;
}

unsigned lp_inert(char *out, size_t size, const lp_str *parts, unsigned count, unsigned columns, lp_cut cut, bool utf8)
{
    unsigned whole = lp_inert_columns(parts, count, utf8), skip = 0, room = columns, used_columns = 0;
    const char *ellipsis = utf8 ? "\xe2\x80\xa6" : "..";
    unsigned ellipsis_columns = utf8 ? 1 : 2;
    glyph_walk walk = {.parts = parts, .count = count, .utf8 = utf8};
    size_t used = 0;
    glyph one;

    if (whole > columns) {
        if (columns < ellipsis_columns) {
            out[0] = '\0';
            return 0;
        }
        room = columns - ellipsis_columns;
        if (cut == LP_CUT_LEFT) {
            skip = whole - room;
            used = append(out, size, used, ellipsis, strlen(ellipsis));
            used_columns = ellipsis_columns;
            room = columns;
        }
    }
    while (next_glyph(&walk, &one)) {
        if (skip > 0 ||
            (used_columns == ellipsis_columns && whole > columns && cut == LP_CUT_LEFT && one.columns == 0)) {
            skip -= one.columns < skip ? one.columns : skip; /* a wide one may leave a column free */
            continue;
        }
        if (used_columns + one.columns > room)
            break;
        used = append(out, size, used, one.text, one.bytes);
        used_columns += one.columns;
    }
    if (whole > columns && cut == LP_CUT_RIGHT) {
        used = append(out, size, used, ellipsis, strlen(ellipsis));
        used_columns += ellipsis_columns;
    }
    out[used] = '\0';
    return used_columns;
}

unsigned lp_text_columns(const char *text)
{
    return lp__columns(text, strlen(text));
}

unsigned lp__columns(const char *text, size_t size)
{
    size_t at = 0;
    unsigned columns = 0;
    uint32_t code;

    while (at < size) {
        lp_utf8_next(text, size, &at, &code);
        columns += columns_of(code);
    }
    return columns;
}
