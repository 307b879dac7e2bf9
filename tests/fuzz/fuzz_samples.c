/* A sample file of any bytes: every batch that is given out keeps the reader's promises, and its dump is inert. */
#include "render/render.h"
#include "sample_tools.h"

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

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    if (index > 2)
        return 0;
    lp_worker *worker = build_worker();
    size_t size = samples_seed(worker, index, out, FUZZ_ROOM);
    lp_worker_free(worker);
    return size;
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    (void)room;
    close_records(data, size);
    return size;
}
