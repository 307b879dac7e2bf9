/* A sample file of any bytes: batch by batch, its paths, its dump. */
#include "../c/worker_builder.h"
#include "fuzz.h"
#include "render/render.h"
#include "store/samples.h"
#include "store/wire.h"

static void walk(lp_samples *reader)
{
    const lp_sample_batch *batch;
    lp_error error;

    while (lp_samples_next(reader, &batch, &error) == LP_OK && batch) {
        FUZZ_MUST(batch->rows > 0);
        for (uint32_t i = 0, k = 0; i < batch->rows; i++) {
            uint32_t parts = 0;
            FUZZ_MUST(batch->share_end[i] >= k);
            for (; k < batch->share_end[i]; k++) {
                uint32_t parent;
                lp_str name;
                FUZZ_MUST(lp_samples_path(reader, batch->shares[k].path, &parent, &name));
                FUZZ_MUST(parent < batch->shares[k].path);
                parts += batch->shares[k].parts;
            }
            FUZZ_MUST(parts <= LP_SAMPLE_WHOLE);
            for (unsigned c = 0; c < LP_COLUMNS; c++)
                FUZZ_MUST(!batch->value[c] || batch->value[c][i] >= 0 || batch->value[c][i] == LP_UNKNOWN_I64);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lp_error error = {.offset = UINT64_MAX};
    lp_samples *reader = NULL;
    lp_sink sink;

    if (lp_samples_open_memory(data, size, "input", &reader, &error) != LP_OK) {
        FUZZ_MUST(strncmp(error.text, "input: ", 7) == 0);
        return 0;
    }
    walk(reader);
    lp_samples_close(reader);
    FUZZ_MUST(lp_samples_open_memory(data, size, "input", &reader, &error) == LP_OK);
    lp_sink_open_memory(&sink);
    FUZZ_MUST(lp_render_dump_samples(reader, &sink, &error) == LP_OK);
    lp_sink_free(&sink);
    lp_samples_close(reader);
    return 0;
}

static void fill_row(lp_sample *row, uint64_t i)
{
    lp_sample_init(row);
    row->mono_ns = (100 + i) * 1000000000u;
    row->unix_ns = row->mono_ns;
    lp_sample_set(row, LP_COLUMN_CPU, (int64_t)(i * 900000));
    lp_sample_set(row, LP_COLUMN_RSS, (int64_t)(5000 + i % 3 * 400));
    lp_sample_set(row, LP_COLUMN_READ_CHARS, (int64_t)(i / 4 * 8192));
    if (i % 5 == 0)
        lp_sample_set(row, LP_COLUMN_PSS, 4000);
    else
        lp_sample_miss(row, LP_COLUMN_PSS, LP_REASON_NOT_DUE);
    row->share_count = (uint32_t)(i / 3 % 3);
    row->share[0] = (lp_share){1, 500};
    row->share[1] = (lp_share){2, 300};
}

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    lp_buffer bytes = {0};
    lp_sample row;

    if (index > 2)
        return 0;
    lp_worker *worker = build_worker();
    lp_sample_head head = {
        .series = index == 2 ? LP_SERIES_HOST : LP_SERIES_PROCESS, .id = &worker->id, .interval_ns = 1000000000u};
    lp_samples_put_head(&bytes, &head);
    lp_sample_writer *writer = lp_sample_writer_new(head.series, 0, head.interval_ns);
    lp_sample_writer_path(writer, 0, worker_str("a"));
    lp_sample_writer_path(writer, 1, worker_str("b"));
    for (uint64_t i = 0; i < (index ? 40u : 2u); i++) {
        fill_row(&row, i);
        lp_sample_writer_add(writer, &row, &bytes);
    }
    lp_sample_writer_flush(writer, &bytes);
    size_t size = bytes.size < FUZZ_ROOM ? bytes.size : 0;
    memcpy(out, bytes.data, size);
    lp_sample_writer_free(writer);
    lp_worker_free(worker);
    lp_buffer_free(&bytes);
    return size;
}

/* Every record whose length still holds gets a checksum that fits, so that what is behind it is asked. */
size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    (void)room;
    for (size_t at = 2; at + 8 < size;) {
        lp__wire wire = lp__wire_of(data + at, size - at);
        uint64_t tag, length;
        if (!lp__wire_varint(&wire, &tag) || !lp__wire_varint(&wire, &length) || length < 5 ||
            length > (uint64_t)(wire.end - wire.at))
            break;
        size_t body = (size_t)(wire.at - data), end = body + (size_t)length;
        uint32_t crc = lp__crc32c(0, data + body, end - 5 - body);
        data[end - 5] = 0x7d;
        for (unsigned i = 0; i < 4; i++)
            data[end - 4 + i] = (uint8_t)(crc >> (8 * i));
        at = end;
    }
    return size;
}
