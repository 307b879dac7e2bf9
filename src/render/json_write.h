/* Writing JSON: commas and escapes. ASCII only; strings may hold any byte (see lp_json_string). */
#ifndef LP_RENDER_JSON_WRITE_H
#define LP_RENDER_JSON_WRITE_H

#include "render/sink.h"
#include "store/model.h"

typedef struct lp_json {
    lp_sink *sink;  /* borrowed */
    unsigned depth; /* open objects and arrays, for indenting */
    bool fresh;     /* nothing has been written at this depth yet */
    bool after_key;
    unsigned flat; /* > 0: no line breaks within */
} lp_json;

void lp_json_open(lp_json *json, char bracket);  /* '{' or '[' */
void lp_json_close(lp_json *json, char bracket); /* '}' or ']' */
/* From here to the end, the innermost object or array stands on one line. */
void lp_json_open_flat(lp_json *json, char bracket);
void lp_json_key(lp_json *json, const char *key);
void lp_json_key_str(lp_json *json, lp_str key);
/* Valid JSON for every input: controls, <, >, & and all beyond ASCII become \uXXXX; a surrogate that stands alone keeps its
 * value, a byte that is not UTF-8 becomes \udcXX, as Python's surrogateescape has it. */
void lp_json_string(lp_json *json, lp_str value);
void lp_json_text(lp_json *json, const char *value);
void lp_json_int(lp_json *json, lp_i128 value);
void lp_json_optional_int(lp_json *json, int64_t value); /* LP_UNKNOWN_I64: null */
void lp_json_double(lp_json *json, double value);        /* shortest form that reads back equal; not finite: null */
void lp_json_seconds(lp_json *json, uint64_t ns);        /* exact, nine decimals at most */
void lp_json_bool(lp_json *json, bool value);
void lp_json_null(lp_json *json);
void lp_json_raw(lp_json *json, lp_str value); /* must be valid JSON */
/* true: `text` is one whole JSON value (RFC 8259), nested at most 64 deep. */
bool lp_json_is_valid(lp_str text);

#endif
