/* A sample file of any bytes: every batch that is given out keeps the reader's promises, and its dump is inert. */
#include <string.h>

#include "../c/worker_builder.h"
#include "fuzz.h"
#include "render/render.h"
#include "store/samples.h"
#include "store/wire.h"

#define SECOND 1000000000ull

static void must_hold(const lp_sample_batch *batch, uint32_t paths)
{
    uint32_t at = 0;

    FUZZ_MUST(batch->rows > 0);
    for (uint32_t i = 0; i < batch->rows; i++) {
        uint64_t parts = 0;
        FUZZ_MUST(i == 0 || batch->time_us[i] >= batch->time_us[i - 1]);
        FUZZ_MUST(batch->share_end[i] >= at && batch->share_end[i] - at <= LP_SAMPLE_SHARES);
        for (; at < batch->share_end[i]; at++) {
            FUZZ_MUST(batch->shares[at].path <= paths);
            parts += batch->shares[at].parts;
        }
        FUZZ_MUST(parts <= LP_SAMPLE_WHOLE);
        for (unsigned c = 0; c < LP_COLUMNS; c++)
            FUZZ_MUST(!batch->value[c] || batch->value[c][i] == LP_UNKNOWN_I64 || batch->value[c][i] >= 0);
    }
}

static void read_all(lp_samples *reader)
{
    const lp_sample_batch *batch = NULL;
    lp_error error = {.offset = UINT64_MAX};
    uint64_t lost = 0;

    while (lp_samples_next(reader, &batch, &error) == LP_OK && batch)
        must_hold(batch, lp_samples_path_count(reader));
    FUZZ_MUST((lp_samples_lost(reader, &lost)[0] != '\0') == (lost > 0));
    for (uint32_t i = 1; i <= lp_samples_path_count(reader); i++) {
        uint32_t parent = UINT32_MAX;
        lp_str name;
        FUZZ_MUST(lp_samples_path(reader, i, &parent, &name) && parent < i);
    }
}

static void must_dump(lp_samples *reader)
{
    lp_error error = {.offset = UINT64_MAX};
    lp_sink sink;

    lp_sink_open_memory(&sink);
    FUZZ_MUST(lp_render_dump_samples(reader, &sink, &error) == LP_OK && lp_sink_flush(&sink) == LP_OK);
    fuzz_must_be_inert(sink.data, sink.size);
    lp_sink_free(&sink);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (unsigned way = 0; way < 2; way++) {
        lp_samples *reader = NULL;
        lp_error error = {.offset = UINT64_MAX};
        if (lp_samples_open_memory(data, size, "input", &reader, &error) != LP_OK) {
            FUZZ_MUST(strncmp(error.text, "input: ", 7) == 0);
            return 0;
        }
        if (way == 0)
            read_all(reader);
        else
            must_dump(reader);
        lp_samples_close(reader);
    }
    return 0;
}

/* Rows of one series with numbers, gaps and, for a process, phases; a reason changes half-way. */
static void put_series(lp_buffer *out, lp_series series, unsigned rows)
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
        row.unix_ns = 1700000000 * SECOND + i * SECOND;
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

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    static const lp_series of_file[] = {LP_SERIES_PROCESS, LP_SERIES_HOST, LP_SERIES_PROCESS};
    lp_buffer bytes = {0};

    if (index > 2)
        return 0;
    lp_worker *worker = build_worker();
    lp_sample_head head = {.series = of_file[index], .id = &worker->id, .interval_ns = SECOND, .collector_pid = 42};
    FUZZ_MUST(lp_samples_put_head(&bytes, &head) == LP_OK);
    put_series(&bytes, of_file[index], 12);
    if (index > 0)
        put_series(&bytes, index == 1 ? LP_SERIES_GPU : LP_SERIES_PROCESS_GPU, 5);
    FUZZ_MUST(bytes.size <= FUZZ_ROOM);
    size_t size = bytes.size;
    memcpy(out, bytes.data, size);
    lp_buffer_free(&bytes);
    lp_worker_free(worker);
    return size;
}

/* The checksum of each record: the field at its end, of all before it. */
size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    lp__wire wire = lp__wire_of(data, size);
    lp__field field;

    (void)room;
    while (lp__wire_next(&wire, &field)) {
        if (field.type != LP__BYTES || field.bytes.size < 5)
            continue;
        uint8_t *body = data + ((const uint8_t *)field.bytes.data - data), *end = body + field.bytes.size - 5;
        uint32_t crc = lp__crc32c(0, body, (size_t)(end - body));
        end[0] = 0x7d;
        memcpy(end + 1, &crc, sizeof crc);
    }
    return size;
}
