/* Names of any bytes on their way to a terminal and into JSON. */
#include <string.h>

#include "fuzz.h"
#include "render/inert.h"
#include "render/json_write.h"

static void must_be_inert(const lp_str *parts, unsigned count, unsigned columns, lp_cut cut, bool utf8)
{
    char out[LP_INERT_BYTES(300)];
    unsigned used = lp_inert(out, sizeof out, parts, count, columns, cut, utf8);
    size_t size = strlen(out);

    FUZZ_MUST(used <= columns);
    FUZZ_MUST(lp__columns(out, size) == used);
    fuzz_must_be_inert(out, size);
    FUZZ_MUST(memchr(out, '\n', size) == NULL);
    for (size_t i = 0; i < size && !utf8; i++)
        FUZZ_MUST((unsigned char)out[i] < 0x7f);
    /* What fits is whole, what does not is cut. */
    if (lp_inert_columns(parts, count, utf8) <= columns)
        FUZZ_MUST(used == lp_inert_columns(parts, count, utf8));
}

/* `size` of the room at the end of what lp_inert may write: one byte too few must not be written beyond. */
static void must_stay_inside(lp_str text, size_t room)
{
    char *out = malloc(room ? room : 1);
    FUZZ_MUST(out != NULL);
    lp_inert(out, room ? room : 1, &text, 1, 300, LP_CUT_RIGHT, true);
    FUZZ_MUST(memchr(out, '\0', room ? room : 1) != NULL);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned columns = size ? data[0] : 80;
    lp_str parts[3] = {{(const char *)data, size / 3},
                       {(const char *)data + size / 3, size / 3},
                       {(const char *)data + size / 3 * 2, size - size / 3 * 2}};
    lp_str whole = {(const char *)data, size};
    lp_sink sink;

    for (unsigned i = 0; i < 4; i++) {
        must_be_inert(parts, 3, columns, i & 1 ? LP_CUT_LEFT : LP_CUT_RIGHT, i & 2);
        must_be_inert(&whole, 1, columns, i & 1 ? LP_CUT_LEFT : LP_CUT_RIGHT, i & 2);
    }
    must_stay_inside(whole, columns);

    lp_sink_open_memory(&sink);
    lp_json json = {.sink = &sink, .fresh = true};
    lp_json_open(&json, '{');
    lp_json_key_str(&json, parts[0]);
    lp_json_string(&json, whole);
    if (lp_json_is_valid(parts[1])) {
        lp_json_key(&json, "raw");
        lp_json_raw(&json, parts[1]);
    }
    lp_json_close(&json, '}');
    FUZZ_MUST(lp_sink_flush(&sink) == LP_OK);
    FUZZ_MUST(lp_json_is_valid((lp_str){sink.data, sink.size}));
    lp_sink_free(&sink);
    (void)lp_json_is_valid(whole);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    static const char *const seeds[] = {
        "\x1b]0;title\a\x1b[2J red",
        "caf\xc3\xa9 e\xcc\x81\xcc\x82\xcc\x83\xcc\x84 \xe4\xb8\xad\xe6\x96\x87",
        "\xed\xb3\xbf \xed\xa0\x80 \xff\xfe \xc0\x80 \xf4\x90\x80\x80",
        "a\xe2\x80\xae"
        "gpj.exe\xe2\x81\xa6 \xc2\x9b"
        "31m \xef\xbb\xbf \xf3\xa0\x81\x81",
        "{\"a\": [1, -2.5e+3, null, true, \"\\u00e9\\ud83d\\ude00\\n\"], \"b\": {}}",
        "[[[[[[[[[[[[0]]]]]]]]]]]]",
        "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb \xf0\x9f\x87\xa9\xf0\x9f\x87\xaa",
        "with/slash \t\r\n\v quote\" back\\slash </script>",
    };
    if (index >= sizeof seeds / sizeof *seeds)
        return 0;
    size_t size = strlen(seeds[index]);
    memcpy(out, seeds[index], size);
    return size;
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    (void)data, (void)room;
    return size;
}
