/* What the targets share: damage, and the rules that every output obeys. */
#include <ftw.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "render/inert.h"
#include "render/json_write.h"

uint64_t fuzz_random(uint64_t *random)
{
    uint64_t x = *random ? *random : 0x9e3779b97f4a7c15u;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *random = x;
    return x * 0x2545f4914f6cdd1du;
}

static size_t below(uint64_t *random, size_t limit) /* limit > 0 */
{
    return (size_t)(fuzz_random(random) % limit);
}

/* Numbers at which arithmetic turns over, in the width of the field that they are put into. */
static uint64_t lying_number(uint64_t *random)
{
    static const uint64_t numbers[] = {0,          1,           2,           63,          64,           127,
                                       128,        255,         256,         4095,        4096,         65535,
                                       65536,      0x7fffffff,  0x80000000u, 0xffffffffu, 0x100000000u, INT64_MAX,
                                       UINT64_MAX, 1ull << 63,  1ull << 62,  1u << 20,    1u << 28,     UINT64_MAX - 1,
                                       33,         0x0fffffffu, 10000000000u};
    return numbers[below(random, sizeof numbers / sizeof *numbers)];
}

static size_t put_number(uint8_t *data, size_t size, uint64_t *random)
{
    size_t width = (size_t)1 << below(random, 4);
    uint64_t value = lying_number(random);
    if (size < width)
        return size;
    memcpy(data + below(random, size - width + 1), &value, width); /* little endian, as all our machines */
    return size;
}

/* An aligned word becomes another place in the file: a link that leads elsewhere, to itself, into another list. */
static size_t put_link(uint8_t *data, size_t size, uint64_t *random)
{
    if (size < 16)
        return size;
    uint32_t place = (uint32_t)(below(random, size / 8) * 8);
    size_t at = below(random, size / 4) * 4;
    if (fuzz_random(random) & 1) /* a link that is there already */
        memcpy(&place, data + below(random, size / 4) * 4, sizeof place);
    memcpy(data + at, &place, sizeof place);
    return size;
}

static size_t move_part(uint8_t *data, size_t size, size_t room, uint64_t *random)
{
    size_t from = below(random, size), length = 1 + below(random, size - from < 256 ? size - from : 256);
    size_t at = below(random, size + 1);
    uint8_t part[256];
    memcpy(part, data + from, length);
    if (fuzz_random(random) & 1) { /* over what is there */
        length = length < size - at ? length : size - at;
        memcpy(data + at, part, length);
        return size;
    }
    if (size + length > room)
        return size;
    memmove(data + at + length, data + at, size - at);
    memcpy(data + at, part, length);
    return size + length;
}

static size_t remove_part(uint8_t *data, size_t size, uint64_t *random)
{
    size_t from = below(random, size), length = 1 + below(random, size - from < 64 ? size - from : 64);
    memmove(data + from, data + from + length, size - from - length);
    return size - length;
}

size_t fuzz_damage(uint8_t *data, size_t size, size_t room, uint64_t *random)
{
    if (size == 0) {
        data[0] = (uint8_t)fuzz_random(random);
        return 1;
    }
    switch (below(random, 8)) {
    case 0: return below(random, 8) ? size : below(random, size + 1); /* cut, rarely: little is left to look at */
    case 1:
    case 2: data[below(random, size)] ^= (uint8_t)(1u << below(random, 8)); return size;
    case 3:
    case 4: return put_number(data, size, random);
    case 5: return put_link(data, size, random);
    case 6: return move_part(data, size, room, random);
    default: return remove_part(data, size, random);
    }
}

/* Written apart from render/inert.c, whose table it checks. U+200C, U+200D and variation selectors (U+E0100 and on) stay: words
 * of several languages and emoji need them, and they have no width. */
static int obeyed_by_terminals(uint32_t c)
{
    return (c < 0x20 && c != '\n') || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200b || c == 0x200e ||
           c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff0 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff && !(c >= 0xe0100 && c <= 0xe01ef));
}

void fuzz_must_be_inert(const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        uint32_t c = 0;
        FUZZ_MUST(lp_utf8_next(text, size, &at, &c) == LP_CODE_CHAR);
        FUZZ_MUST(!obeyed_by_terminals(c));
    }
}

void fuzz_must_be_json(lp_sink *sink)
{
    FUZZ_MUST(lp_sink_flush(sink) == LP_OK);
    for (size_t i = 0; i < sink->size; i++)
        FUZZ_MUST((unsigned char)sink->data[i] < 0x7f);
    FUZZ_MUST(lp_json_is_valid((lp_str){sink->data, sink->size}));
}

static char folder[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_folder(void)
{
    if (!folder[0]) {
        /* In memory where there is such a place: a file system of a disk may flush what replaces another file. */
        bool memory = access("/dev/shm", W_OK) == 0;
        snprintf(folder, sizeof folder, "%s/lineprofiler-fuzz-XXXXXX", memory ? "/dev/shm" : "/tmp");
        FUZZ_MUST(mkdtemp(folder) != NULL);
        atexit(remove_folder);
    }
    return folder;
}
