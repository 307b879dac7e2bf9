/* A key and its value in one call, for all who write parts of a document. */
#ifndef LP_RENDER_JSON_KEYS_H
#define LP_RENDER_JSON_KEYS_H

#include "render/json_write.h"
#include "store/samples.h"

void lp__json_key_int(lp_json *json, const char *key, lp_i128 value);
void lp__json_key_u64(lp_json *json, const char *key, uint64_t value);
void lp__json_key_optional(lp_json *json, const char *key, int64_t value); /* LP_UNKNOWN_I64: null */
void lp__json_key_known(lp_json *json, const char *key, bool known, uint64_t value);
void lp__json_key_double(lp_json *json, const char *key, double value); /* not finite: null */
/* To a millionth: sums of floating numbers differ in their last digits from machine to machine, and no sample is finer. */
void lp__json_key_rounded(lp_json *json, const char *key, double value);
void lp__json_key_whole(lp_json *json, const char *key, double value); /* bytes, counts; NaN: null */
void lp__json_key_str(lp_json *json, const char *key, lp_str value);
void lp__json_key_text(lp_json *json, const char *key, const char *value);
void lp__json_key_seconds(lp_json *json, const char *key, uint64_t ns);
void lp__json_key_bool(lp_json *json, const char *key, bool value);
void lp__json_key_reason(lp_json *json, const char *key, uint8_t reason); /* of an lp_reason; measured: null */

#endif
