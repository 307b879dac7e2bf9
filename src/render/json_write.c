#include "render/json_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "render/inert.h"

static void break_line(lp_json *json)
{
    lp_sink_char(json->sink, '\n');
    lp_sink_repeat(json->sink, " ", json->depth);
}

/* Before every value and key. */
static void begin(lp_json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (!json->fresh)
        lp_sink_char(json->sink, ',');
    if (json->flat > 0 && !json->fresh)
        lp_sink_char(json->sink, ' ');
    else if (json->flat == 0 && json->depth > 0)
        break_line(json);
    json->fresh = false;
}

void lp_json_open(lp_json *json, char bracket)
{
    begin(json);
    lp_sink_char(json->sink, bracket);
    json->depth++;
    if (json->flat > 0)
        json->flat++;
    json->fresh = true;
}

void lp_json_open_flat(lp_json *json, char bracket)
{
    begin(json);
    lp_sink_char(json->sink, bracket);
    json->depth++;
    json->flat++;
    json->fresh = true;
}

void lp_json_close(lp_json *json, char bracket)
{
    json->depth--;
    if (json->flat > 0)
        json->flat--;
    else if (!json->fresh)
        break_line(json);
    lp_sink_char(json->sink, bracket);
    json->fresh = false;
}

static void put_unit(lp_sink *sink, uint32_t unit)
{
    static const char digits[] = "0123456789abcdef";
    char text[6] = {
        '\\', 'u', digits[unit >> 12 & 15], digits[unit >> 8 & 15], digits[unit >> 4 & 15], digits[unit & 15]};

    lp_sink_put(sink, text, sizeof text);
}

/* The character at value.data[*at], as it is if it is harmless in JSON and HTML, else escaped. */
static void put_code(lp_sink *sink, lp_str value, size_t *at)
{
    uint32_t code;

    if (lp_utf8_next(value.data, value.size, at, &code) == LP_CODE_BYTE) {
        put_unit(sink, 0xdc00u | code);
    } else if (code >= 0x20 && code < 0x7f && code != '<' && code != '>' && code != '&') {
        lp_sink_char(sink, (char)code);
    } else if (code < 0x10000) {
        put_unit(sink, code);
    } else {
        put_unit(sink, 0xd800u + ((code - 0x10000) >> 10));
        put_unit(sink, 0xdc00u + ((code - 0x10000) & 0x3ff));
    }
}

static void put_string(lp_sink *sink, lp_str value)
{
    lp_sink_char(sink, '"');
    for (size_t at = 0; at < value.size;) {
        if (value.data[at] == '"' || value.data[at] == '\\')
            lp_sink_char(sink, '\\');
        put_code(sink, value, &at);
    }
    lp_sink_char(sink, '"');
}

void lp_json_key_str(lp_json *json, lp_str key)
{
    begin(json);
    put_string(json->sink, key);
    lp_sink_text(json->sink, ": ");
    json->after_key = true;
}

void lp_json_key(lp_json *json, const char *key)
{
    lp_json_key_str(json, (lp_str){key, strlen(key)});
}

void lp_json_string(lp_json *json, lp_str value)
{
    begin(json);
    put_string(json->sink, value);
}

void lp_json_text(lp_json *json, const char *value)
{
    lp_json_string(json, (lp_str){value, strlen(value)});
}

void lp_json_int(lp_json *json, lp_i128 value)
{
    __extension__ unsigned __int128 rest = (unsigned __int128)value;
    char text[48];
    char *at = text + sizeof text;

    if (value < 0)
        rest = 0 - rest;
    do {
        *--at = (char)('0' + (int)(rest % 10));
        rest /= 10;
    } while (rest > 0);
    if (value < 0)
        *--at = '-';
    begin(json);
    lp_sink_put(json->sink, at, (size_t)(text + sizeof text - at));
}

void lp_json_optional_int(lp_json *json, int64_t value)
{
    if (value == LP_UNKNOWN_I64)
        lp_json_null(json);
    else
        lp_json_int(json, value);
}

/* printf's and strtod's decimal point is the locale's, and may be several bytes. */
static void repair_point(char *text)
{
    char *start = text + strspn(text, "+-0123456789"), *rest = start + strcspn(start, "+-0123456789eE");

    if (rest > start) {
        *start = '.';
        memmove(start + 1, rest, strlen(rest) + 1);
    }
}

void lp_json_double(lp_json *json, double value)
{
    char text[64];

    if (!isfinite(value)) {
        lp_json_null(json);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    repair_point(text);
    begin(json);
    lp_sink_text(json->sink, text);
    if (!strpbrk(text, ".eE"))
        lp_sink_text(json->sink, ".0"); /* stays a float for readers that tell them apart */
}

void lp_json_seconds(lp_json *json, uint64_t ns)
{
    char text[48];

    int used = snprintf(text, sizeof text, "%llu.%09llu", (unsigned long long)(ns / 1000000000u),
                        (unsigned long long)(ns % 1000000000u));
    while (used > 2 && text[used - 1] == '0' && text[used - 2] != '.')
        used--;
    begin(json);
    lp_sink_put(json->sink, text, (size_t)used);
}

void lp_json_bool(lp_json *json, bool value)
{
    begin(json);
    lp_sink_text(json->sink, value ? "true" : "false");
}

void lp_json_null(lp_json *json)
{
    begin(json);
    lp_sink_text(json->sink, "null");
}

void lp_json_raw(lp_json *json, lp_str value)
{
    begin(json);
    for (size_t at = 0; at < value.size;) /* what must be escaped stands in strings only, where \u means the same */
        if (strchr("\t\n\r", value.data[at]) && value.data[at])
            lp_sink_char(json->sink, value.data[at++]);
        else
            put_code(json->sink, value, &at);
}

/* A checker for JSON that came from elsewhere. */

typedef struct checker {
    const char *at, *end;
    unsigned depth;
} checker;

static void skip_space(checker *check)
{
    while (check->at < check->end &&
           (*check->at == ' ' || *check->at == '\t' || *check->at == '\n' || *check->at == '\r'))
        check->at++;
}

static bool take(checker *check, char c)
{
    if (check->at == check->end || *check->at != c)
        return false;
    check->at++;
    return true;
}

static bool take_word(checker *check, const char *word)
{
    size_t size = strlen(word);

    if ((size_t)(check->end - check->at) < size || memcmp(check->at, word, size) != 0)
        return false;
    check->at += size;
    return true;
}

static bool take_digits(checker *check)
{
    const char *start = check->at;

    while (check->at < check->end && *check->at >= '0' && *check->at <= '9')
        check->at++;
    return check->at > start;
}

static bool take_number(checker *check)
{
    (void)take(check, '-');
    if (!take(check, '0') && !take_digits(check))
        return false;
    if (take(check, '.') && !take_digits(check))
        return false;
    if (take(check, 'e') || take(check, 'E')) {
        (void)(take(check, '+') || take(check, '-'));
        return take_digits(check);
    }
    return true;
}

static bool take_string(checker *check)
{
    if (!take(check, '"'))
        return false;
    while (check->at < check->end) {
        char c = *check->at++;
        if (c == '"')
            return true;
        if ((unsigned char)c < 0x20)
            return false;
        if (c != '\\')
            continue;
        if (check->at == check->end)
            return false;
        c = *check->at++;
        if (c == 'u') {
            for (int i = 0; i < 4; i++, check->at++)
                if (check->at == check->end || !strchr("0123456789abcdefABCDEF", *check->at) || *check->at == '\0')
                    return false;
        } else if (c == '\0' || !strchr("\"\\/bfnrt", c)) {
            return false;
        }
    }
    return false;
}

static bool take_value(checker *check);

static bool take_items(checker *check, char close, bool keys)
{
    if (check->depth++ >= 64)
        return false;
    skip_space(check);
    if (!take(check, close)) {
        do {
            skip_space(check);
            if (keys && !take_string(check))
                return false;
            skip_space(check);
            if (keys && !take(check, ':'))
                return false;
            if (!take_value(check))
                return false;
            skip_space(check);
        } while (take(check, ','));
        if (!take(check, close))
            return false;
    }
    check->depth--;
    return true;
}

static bool take_value(checker *check)
{
    skip_space(check);
    if (check->at == check->end)
        return false;
    switch (*check->at) {
    case '{': check->at++; return take_items(check, '}', true);
    case '[': check->at++; return take_items(check, ']', false);
    case '"': return take_string(check);
    case 't': return take_word(check, "true");
    case 'f': return take_word(check, "false");
    case 'n': return take_word(check, "null");
    default: return take_number(check);
    }
}

bool lp_json_is_valid(lp_str text)
{
    checker check = {text.data, text.data + text.size, 0};

    if (!take_value(&check))
        return false;
    skip_space(&check);
    return check.at == check.end;
}
