/* Names from a program cannot do anything to a terminal, and their width is known. */
#include "check.h"

#include <stdlib.h>

#include "render/inert.h"

static char out[LP_INERT_BYTES(200)];
static unsigned columns;

/* In up to 200 columns. */
static const char *shown_bytes(const char *data, size_t size, bool utf8)
{
    lp_str name = {data, size};

    columns = lp_inert(out, sizeof out, &name, 1, 200, LP_CUT_RIGHT, utf8);
    return out;
}

static const char *shown(const char *text)
{
    return shown_bytes(text, strlen(text), true);
}

static const char *cut(const char *text, unsigned room, lp_cut side, bool utf8)
{
    lp_str name = {text, strlen(text)};

    columns = lp_inert(out, sizeof out, &name, 1, room, side, utf8);
    return out;
}

static void plain_names_stay(void)
{
    CHECK_STR(shown("iteration/mcts 2"), "iteration/mcts 2");
    CHECK_EQ(columns, 16u);
    CHECK_STR(shown("back\\slash"), "back\\slash");
    CHECK_STR(shown("caf\xc3\xa9 \xce\xbb"), "caf\xc3\xa9 \xce\xbb");
    CHECK_EQ(columns, 6u);
    CHECK_STR(shown(""), "");
    CHECK_EQ(columns, 0u);
}

static void controls_are_escaped(void)
{
    CHECK_STR(shown("a\nb\tc\rd"), "a\\nb\\tc\\rd");
    CHECK_STR(shown("\x1b[31mred\a\x7f"), "\\x1b[31mred\\x07\\x7f");
    CHECK_STR(shown_bytes("a\0b", 3, true), "a\\x00b");
    CHECK_STR(shown("\xc2\x9b"), "\\x9b");       /* C1: another way to say ESC [ */
    CHECK_STR(shown("\xe2\x80\xae"), "\\u202e"); /* right-to-left override */
    CHECK_STR(shown("\xe2\x81\xa6\xe2\x81\xa9"), "\\u2066\\u2069");
    CHECK_STR(shown("\xe2\x80\xa8"), "\\u2028");
    CHECK_STR(shown("\xe2\x80\x8b\xef\xbb\xbf"), "\\u200b\\ufeff");
    /* Ignored by default: a tag that is not assigned, the Hangul filler, a reserved one beside the bidi marks. */
    CHECK_STR(shown("\xf3\xa0\x89\x81\xe3\x85\xa4\xe2\x81\xa5"), "\\U000e0241\\u3164\\u2065");
    CHECK_STR(shown("\xf3\xa0\x81\x81"), "\\U000e0041"); /* a tag: invisible text */
}

static void broken_utf8_is_shown_by_its_bytes(void)
{
    CHECK_STR(shown("\xff\xfe"), "\\xff\\xfe");
    CHECK_STR(shown("\xc0\x80"), "\\xc0\\x80"); /* NUL, too long */
    CHECK_STR(shown("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");
    CHECK_STR(shown("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80"); /* beyond U+10FFFF */
    CHECK_STR(shown("\xe2\x82"), "\\xe2\\x82");                   /* cut off */
    CHECK_STR(shown("\xe2\x82g"), "\\xe2\\x82g");
    CHECK_STR(shown("\xed\xb3\xbf"), "\\udcff"); /* a surrogate alone */
}

static void widths(void)
{
    (void)shown("\xe6\xbc\xa2\xe5\xad\x97");
    CHECK_EQ(columns, 4u);
    (void)shown("\xf0\x9f\x94\xa5");
    CHECK_EQ(columns, 2u);
    (void)shown("e\xcc\x81");
    CHECK_EQ(columns, 1u);
    (void)shown("\xef\xbc\xa1"); /* fullwidth A */
    CHECK_EQ(columns, 2u);
    CHECK_STR(shown("e\xcc\x81\xcc\x82\xcc\x83"), "e\xcc\x81\xcc\x82\\u0303"); /* no pile of marks */
    CHECK_STR(shown("\xcc\x81x"), "\\u0301x");                                 /* a mark with nothing to stand on */
}

static void ascii_only(void)
{
    CHECK_STR(shown_bytes("caf\xc3\xa9", 5, false), "caf\\xe9");
    CHECK_STR(shown_bytes("\xe6\xbc\xa2", 3, false), "\\u6f22");
    CHECK_STR(shown_bytes("\xf0\x9f\x94\xa5", 4, false), "\\U0001f525");
}

static void cutting(void)
{
    CHECK_STR(cut("abcdef", 6, LP_CUT_LEFT, true), "abcdef");
    CHECK_STR(cut("abcdef", 4, LP_CUT_LEFT, true), "\xe2\x80\xa6"
                                                   "def");
    CHECK_EQ(columns, 4u);
    CHECK_STR(cut("abcdef", 4, LP_CUT_RIGHT, true), "abc\xe2\x80\xa6");
    CHECK_EQ(columns, 4u);
    CHECK_STR(cut("abcdef", 4, LP_CUT_LEFT, false), "..ef");
    CHECK_STR(cut("abcdef", 0, LP_CUT_LEFT, true), "");
    CHECK_STR(cut("abcdef", 1, LP_CUT_RIGHT, true), "\xe2\x80\xa6");
    /* Half of a wide character cannot be shown: a column stays free. */
    CHECK_STR(cut("\xe6\xbc\xa2\xe5\xad\x97", 3, LP_CUT_LEFT, true), "\xe2\x80\xa6\xe5\xad\x97");
    CHECK_STR(cut("\xe6\xbc\xa2\xe5\xad\x97\xe5\xad\x97", 4, LP_CUT_LEFT, true), "\xe2\x80\xa6\xe5\xad\x97");
    CHECK_EQ(columns, 3u);
    CHECK_STR(cut("\xe6\xbc\xa2\xe5\xad\x97", 2, LP_CUT_RIGHT, true), "\xe2\x80\xa6");
    /* A mark whose base was cut off goes with it. */
    CHECK_STR(cut("abe\xcc\x81"
                  "cd",
                  3, LP_CUT_LEFT, true),
              "\xe2\x80\xa6"
              "cd");
}

static void several_parts_are_one_text(void)
{
    lp_str parts[] = {{"outer", 5}, {"/", 1}, {"in\nner", 6}};

    CHECK_EQ(lp_inert(out, sizeof out, parts, 3, 40, LP_CUT_LEFT, true), 13u);
    CHECK_STR(out, "outer/in\\nner");
    CHECK_EQ(lp_inert(out, sizeof out, parts, 3, 8, LP_CUT_LEFT, true), 8u);
    CHECK_STR(out, "\xe2\x80\xa6in\\nner");
}

/* Any bytes at any width: never wider than asked, never a control or a byte beyond a char, always terminated. */
static void any_bytes(void)
{
    unsigned seed = 12345;

    for (unsigned round = 0; round < 20000; round++) {
        char data[64];
        size_t size = round % sizeof data;
        for (size_t i = 0; i < size; i++) {
            seed = seed * 1103515245u + 12345u;
            data[i] = (char)(seed >> 16);
        }
        lp_str name = {data, size};
        unsigned room = round % 23;
        unsigned used =
            lp_inert(out, LP_INERT_BYTES(room), &name, 1, room, round & 1 ? LP_CUT_LEFT : LP_CUT_RIGHT, round % 3 != 0);
        bool good = used <= room && used == lp_text_columns(out);
        for (const char *at = out; *at; at++)
            good = good && (unsigned char)*at >= 0x20 && *at != 0x7f;
        if (!good) {
            CHECK(good);
            return;
        }
    }
}

int main(void)
{
    RUN(plain_names_stay);
    RUN(controls_are_escaped);
    RUN(broken_utf8_is_shown_by_its_bytes);
    RUN(widths);
    RUN(ascii_only);
    RUN(cutting);
    RUN(several_parts_are_one_text);
    RUN(any_bytes);
    return check_done();
}
