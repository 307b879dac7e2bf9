/* Snapshots as seeds: with a right checksum, and round trips that must hold. */
#ifndef LP_TESTS_FUZZ_SNAPSHOT_TOOLS_H
#define LP_TESTS_FUZZ_SNAPSHOT_TOOLS_H

#include <string.h>

#include "fuzz.h"
#include "render/render.h"
#include "store/snapshot.h"
#include "store/wire.h"

/* The last five bytes of a snapshot are the field of the checksum of all before. */
static inline size_t close_snapshot(uint8_t *data, size_t size, size_t room)
{
    size_t body = size > 5 ? size - 5 : 0;
    if (body + 5 > room)
        return size;
    uint32_t crc = lp__crc32c(0, data, body);
    data[body] = 0x7d;
    memcpy(data + body + 1, &crc, sizeof crc);
    return body + 5;
}

static inline size_t snapshot_seed(const lp_worker *worker, uint8_t *out, size_t room)
{
    lp_buffer bytes = {0};
    FUZZ_MUST(lp_snapshot_encode(worker, &bytes) == LP_OK);
    size_t size = bytes.size <= room ? bytes.size : 0;
    FUZZ_MUST(size > 0);
    memcpy(out, bytes.data, size);
    lp_buffer_free(&bytes);
    return size;
}

/* What was read is written so that it can be read again, and then changes no more. */
static inline void must_round_trip(const lp_worker *worker)
{
    lp_buffer first = {0}, second = {0};
    lp_worker *again = NULL;
    lp_error error = {.offset = UINT64_MAX};

    FUZZ_MUST(lp_snapshot_encode(worker, &first) == LP_OK);
    lp_status status = lp_snapshot_decode(first.data, first.size, "again", &again, &error);
    if (status != LP_OK)
        fprintf(stderr, "%s\n", error.text);
    FUZZ_MUST(status == LP_OK);
    FUZZ_MUST(lp_snapshot_encode(again, &second) == LP_OK);
    FUZZ_MUST(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    for (uint32_t i = 1; i < again->tree.count; i++) {
        FUZZ_MUST(again->tree.phases[i].parent < i);
        FUZZ_MUST(lp_cells_total(&again->tree.phases[i].hist) == again->tree.phases[i].entries);
    }
    lp_worker_free(again);
    lp_buffer_free(&first);
    lp_buffer_free(&second);
}

static inline void must_dump(const lp_worker *worker)
{
    lp_sink sink;
    lp_sink_open_memory(&sink);
    FUZZ_MUST(lp_render_dump(worker, "snapshot", &sink) == LP_OK);
    FUZZ_MUST(lp_sink_flush(&sink) == LP_OK);
    fuzz_must_be_inert(sink.data, sink.size);
    lp_sink_free(&sink);
}

#endif
