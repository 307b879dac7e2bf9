/* A sample file as plain text: the head, then each batch with one line a column. A "-" is a number that was not measured; the
 * reason stands at the end of the line. */
#include <inttypes.h>

#include "render/dump_internal.h"
#include "render/json_write.h"
#include "render/render.h"

static void put_path(lp_sink *sink, const lp_samples *samples, uint32_t path)
{
    lp_json json = {.sink = sink, .fresh = true, .after_key = true};
    uint32_t chain[256], depth = 0, parent;
    lp_str name;

    for (uint32_t at = path; depth < 256 && lp_samples_path(samples, at, &parent, &name); at = parent)
        chain[depth++] = at;
    lp_json_open_flat(&json, '[');
    while (depth > 0) {
        lp_samples_path(samples, chain[--depth], &parent, &name);
        lp_json_string(&json, name);
    }
    lp_json_close(&json, ']');
}

static void put_column(lp_sink *sink, const lp_sample_batch *batch, unsigned column)
{
    const lp_column_info *info = &lp_column_table[column];
    const int64_t *value = batch->value[column];

    if (!value && batch->reason[column] == LP_REASON_NEVER)
        return;
    lp_sink_format(sink, "  %s [%s]", info->name, info->unit);
    for (uint32_t i = 0; i < batch->rows; i++) {
        if (!value)
            lp_sink_text(sink, i ? "" : " -");
        else if (value[i] == LP_UNKNOWN_I64)
            lp_sink_text(sink, " -");
        else
            lp_sink_format(sink, " %" PRId64, value[i]);
    }
    if (batch->reason[column])
        lp_sink_format(sink, " (%s)", lp_reason_text(batch->reason[column]));
    lp_sink_char(sink, '\n');
}

static void put_batch(lp_sink *sink, const lp_samples *samples, const lp_sample_batch *batch)
{
    static const char *const series[] = {"?", "process", "host", "gpu", "process_gpu"};

    lp_sink_format(sink, "batch %s %" PRIu32 "\n  unix_ns %" PRIu64 "\n  mono_ns %" PRIu64 "\n", series[batch->series],
                   batch->index, batch->unix_ns, batch->mono_ns);
    if (batch->label.size)
        lp__dump_str(sink, "  label", batch->label);
    lp_sink_text(sink, "  time [us]");
    for (uint32_t i = 0; i < batch->rows; i++)
        lp_sink_format(sink, " %" PRIu64, batch->time_us[i]);
    lp_sink_char(sink, '\n');
    for (unsigned i = 0; i < LP_COLUMNS; i++)
        put_column(sink, batch, i);
    for (uint32_t i = 0, k = 0; i < batch->rows; i++)
        for (; k < batch->share_end[i]; k++) {
            lp_sink_format(sink, "  phase %" PRIu32 " %" PRIu32 "/%u ", i, batch->shares[k].parts, LP_SAMPLE_WHOLE);
            put_path(sink, samples, batch->shares[k].path);
            lp_sink_char(sink, '\n');
        }
}

lp_status lp_render_dump_samples(lp_samples *samples, lp_sink *sink, lp_error *error)
{
    const lp_sample_batch *batch;
    lp_status status;
    uint64_t lost;

    lp_sink_text(sink, "kind samples\n");
    lp__dump_identity(sink, lp_samples_identity(samples));
    lp_sink_format(sink, "interval_ns %" PRIu64 "\n", lp_samples_interval_ns(samples));
    while ((status = lp_samples_next(samples, &batch, error)) == LP_OK && batch)
        put_batch(sink, samples, batch);
    if (status != LP_OK)
        return status;
    const char *why = lp_samples_lost(samples, &lost);
    if (*why)
        lp_sink_format(sink, "lost %" PRIu64 " bytes: %s\n", lost, why);
    return sink->status;
}
