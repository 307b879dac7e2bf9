/* Sample files as seeds: rows of every series, and right checksums. */
#ifndef LP_TESTS_FUZZ_SAMPLE_TOOLS_H
#define LP_TESTS_FUZZ_SAMPLE_TOOLS_H

#include <string.h>

#include "../c/worker_builder.h"
#include "fuzz.h"
#include "store/samples.h"
#include "store/wire.h"

#define SECOND 1000000000ull

/* Rows of one series with numbers, gaps and, for a process, phases; a reason changes half-way. */
static inline void put_series(lp_buffer *out, lp_series series, uint64_t unix_ns, unsigned rows)
{
    lp_sample_writer *writer = lp_sample_writer_new(series, series == LP_SERIES_GPU, SECOND);
    lp_sample row;

    FUZZ_MUST(writer != NULL);
    uint32_t path = 0;
    if (series == LP_SERIES_PROCESS) {
        path = lp_sample_writer_path(writer, 0, worker_str("iteration"));
        path = lp_sample_writer_path(writer, path, worker_str("load\x1b[2J"));
    }
    for (unsigned i = 0; i < rows; i++) {
        lp_sample_init(&row);
        row.mono_ns = 5000 * SECOND + i * SECOND;
        row.unix_ns = unix_ns + i * SECOND;
        for (unsigned c = series == LP_SERIES_HOST ? LP_COLUMN_HOST_CPUS : 0; c < LP_COLUMNS; c += 3)
            lp_sample_set(&row, (lp_column)c, (int64_t)(i * c * 5));
        lp_sample_miss(&row, LP_COLUMN_PSS, i < rows / 2 ? LP_REASON_NOT_DUE : LP_REASON_DENIED);
        if (path) {
            row.share[0] = (lp_share){path, 600};
            row.share[1] = (lp_share){0, 400};
            row.share_count = 2;
        }
        FUZZ_MUST(lp_sample_writer_add(writer, &row, out) == LP_OK);
    }
    FUZZ_MUST(lp_sample_writer_flush(writer, out) == LP_OK);
    lp_sample_writer_free(writer);
}

/* The file of one worker: `index` 0 its process, 1 its host and a GPU, 2 its process and its share of a GPU. */
static inline size_t samples_seed(const lp_worker *worker, unsigned index, uint8_t *out, size_t room)
{
    static const lp_series of_file[] = {LP_SERIES_PROCESS, LP_SERIES_HOST, LP_SERIES_PROCESS};
    lp_buffer bytes = {0};

    lp_sample_head head = {.series = of_file[index], .id = &worker->id, .interval_ns = SECOND, .collector_pid = 42};
    FUZZ_MUST(lp_samples_put_head(&bytes, &head) == LP_OK);
    put_series(&bytes, of_file[index], worker->id.started_ns, 12);
    if (index > 0)
        put_series(&bytes, index == 1 ? LP_SERIES_GPU : LP_SERIES_PROCESS_GPU, worker->id.started_ns, 5);
    FUZZ_MUST(bytes.size <= room);
    size_t size = bytes.size;
    memcpy(out, bytes.data, size);
    lp_buffer_free(&bytes);
    return size;
}

/* The checksum of each record: the field at its end, of all before it. */
static inline void close_records(uint8_t *data, size_t size)
{
    lp__wire wire = lp__wire_of(data, size);
    lp__field field;

    while (lp__wire_next(&wire, &field)) {
        if (field.type != LP__BYTES || field.bytes.size < 5)
            continue;
        uint8_t *body = data + ((const uint8_t *)field.bytes.data - data), *end = body + field.bytes.size - 5;
        uint32_t crc = lp__crc32c(0, body, (size_t)(end - body));
        end[0] = 0x7d;
        memcpy(end + 1, &crc, sizeof crc);
    }
}

#endif
