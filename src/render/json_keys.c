#include "render/json_keys.h"

#include <math.h>

void lp__json_key_int(lp_json *json, const char *key, lp_i128 value)
{
    lp_json_key(json, key);
    lp_json_int(json, value);
}

void lp__json_key_u64(lp_json *json, const char *key, uint64_t value)
{
    lp__json_key_int(json, key, (lp_i128)value);
}

void lp__json_key_optional(lp_json *json, const char *key, int64_t value)
{
    lp_json_key(json, key);
    lp_json_optional_int(json, value);
}

void lp__json_key_known(lp_json *json, const char *key, bool known, uint64_t value)
{
    lp_json_key(json, key);
    if (known)
        lp_json_int(json, (lp_i128)value);
    else
        lp_json_null(json);
}

void lp__json_key_double(lp_json *json, const char *key, double value)
{
    lp_json_key(json, key);
    lp_json_double(json, value);
}

void lp__json_key_rounded(lp_json *json, const char *key, double value)
{
    lp__json_key_double(json, key, fabs(value) < 1e9 ? round(value * 1e6) / 1e6 + 0.0 : value);
}

void lp__json_key_whole(lp_json *json, const char *key, double value)
{
    lp_json_key(json, key);
    if (isnan(value))
        lp_json_null(json);
    else
        lp_json_int(json, (lp_i128)(value + (value < 0 ? -0.5 : 0.5)));
}

void lp__json_key_str(lp_json *json, const char *key, lp_str value)
{
    lp_json_key(json, key);
    lp_json_string(json, value);
}

void lp__json_key_text(lp_json *json, const char *key, const char *value)
{
    lp_json_key(json, key);
    lp_json_text(json, value);
}

void lp__json_key_seconds(lp_json *json, const char *key, uint64_t ns)
{
    lp_json_key(json, key);
    lp_json_seconds(json, ns);
}

void lp__json_key_bool(lp_json *json, const char *key, bool value)
{
    lp_json_key(json, key);
    lp_json_bool(json, value);
}

void lp__json_key_reason(lp_json *json, const char *key, uint8_t reason)
{
    if (reason == LP_REASON_NONE) {
        lp_json_key(json, key);
        lp_json_null(json);
    } else {
        lp__json_key_text(json, key, lp_reason_text(reason));
    }
}
