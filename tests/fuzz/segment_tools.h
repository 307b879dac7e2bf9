/* The head of a segment made right, so that damage reaches the blocks behind it. */
#ifndef LP_TESTS_FUZZ_SEGMENT_TOOLS_H
#define LP_TESTS_FUZZ_SEGMENT_TOOLS_H

#include <string.h>

#include "core/layout.h"
#include "fuzz.h"

static inline size_t repair_segment(uint8_t *data, size_t size)
{
    lp_seg_header h;

    if (size <= sizeof h)
        return size;
    memcpy(&h, data, sizeof h);
    h.magic = LP_SEG_MAGIC;
    h.order = LP_SEG_ORDER;
    h.layout = LP_SEG_LAYOUT;
    h.header_size = LP_SEG_HEADER;
    if (h.state == LP_SEG_CREATING)
        h.state = LP_SEG_RECORDING;
    if (h.used < LP_SEG_HEADER || h.used > size)
        h.used = size;
    if (h.capacity < h.used)
        h.capacity = size;
    memcpy(data, &h, sizeof h);
    return size;
}

#endif
