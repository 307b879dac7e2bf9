/* An input that holds several files: {u16 length, bytes} one after another; what is left over is the last. */
#ifndef LP_TESTS_FUZZ_PARTS_H
#define LP_TESTS_FUZZ_PARTS_H

#include <string.h>

#include "fuzz.h"

typedef struct fuzz_part {
    const uint8_t *data;
    size_t size;
} fuzz_part;

static inline fuzz_part next_part(const uint8_t **at, const uint8_t *end)
{
    fuzz_part part = {*at, (size_t)(end - *at)};
    uint16_t length;

    if (part.size >= sizeof length) {
        memcpy(&length, *at, sizeof length);
        part.data += sizeof length;
        part.size -= sizeof length;
        if (length < part.size)
            part.size = length;
    }
    *at = part.data + part.size;
    return part;
}

static inline size_t add_part(uint8_t *out, size_t at, const void *data, size_t size)
{
    uint16_t length = (uint16_t)size;
    FUZZ_MUST(size <= UINT16_MAX && at + sizeof length + size <= FUZZ_ROOM);
    memcpy(out + at, &length, sizeof length);
    memcpy(out + at + sizeof length, data, size);
    return at + sizeof length + size;
}

#endif
