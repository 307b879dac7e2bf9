/* A run directory with samples in it, of any bytes: two snapshots and three sample files, {content} in turn. What was used, the
 * findings, and every face of the report: text, JSON, and a frame of the live view. */
#include "../c/worker_builder.h"
#include "analysis/report.h"
#include "analysis/top.h"
#include "render/render.h"
#include "render/top.h"
#include "run_folder.h"
#include "sample_tools.h"
#include "snapshot_tools.h"

static const char *const names[] = {"w_20260813T224100-471c94_1542_01234567.300.final.snap",
                                    "w_20260813T224100-471c94_1543_11234567.2.snap",
                                    "w_20260813T224100-471c94_1542_01234567.1.samples", "h_20260813T224100.1.samples",
                                    "w_20260813T224100-471c94_1542_01234567.2.samples"};
#define FILES (sizeof names / sizeof *names)

static void must_render(const lp_report *report, unsigned width)
{
    lp_sink sink;

    for (unsigned i = 0; i < 4; i++) {
        lp_text_options options = {.width = 40 + width, .utf8 = i & 1, .all = i & 2, .samples = true};
        lp_sink_open_memory(&sink);
        FUZZ_MUST(lp_render_text(report, options, &sink) == LP_OK && lp_sink_flush(&sink) == LP_OK);
        fuzz_must_be_inert(sink.data, sink.size);
        lp_sink_free(&sink);
    }
    lp_sink_open_memory(&sink);
    FUZZ_MUST(lp_render_json(report, true, &sink) == LP_OK);
    fuzz_must_be_json(&sink);
    lp_sink_free(&sink);
}

/* No share of anything is below nothing or not a number. */
static void must_add_up(const lp_report *report)
{
    const lp_usage *usage = report->usage;

    FUZZ_MUST(usage != NULL);
    for (uint32_t i = 0; i < report->finding_count; i++) {
        const lp_finding *finding = &report->findings[i];
        FUZZ_MUST(finding->role == LP_NO_PHASE || finding->role < report->role_count);
        FUZZ_MUST(finding->worker == LP_NO_PHASE || finding->worker < report->run->worker_count);
        FUZZ_MUST(finding->host == LP_NO_PHASE || finding->host < usage->host_count);
        FUZZ_MUST(!(finding->share < 0.0));
    }
}

static void must_report(unsigned width)
{
    lp_run *run = NULL;
    lp_report *report = NULL;
    lp_usage *usage = NULL;
    lp_error error = {.offset = UINT64_MAX};

    FUZZ_MUST(lp_run_load(directory, (lp_run_options){0}, &run, &error) == LP_OK);
    FUZZ_MUST(lp_report_new(run, &report) == LP_OK);
    FUZZ_MUST(lp_usage_load(run, &usage) == LP_OK && lp_report_add_usage(report, usage) == LP_OK);
    must_add_up(report);
    must_render(report, width);
    lp_report_free(report);
    lp_usage_free(usage);
    lp_run_free(run);
}

static void must_show(unsigned width)
{
    lp_top *top = lp_top_new();
    lp_error error = {.offset = UINT64_MAX};
    lp_top_view view = {.width = width, .height = 1 + width / 4, .utf8 = true, .interval_s = 1.0};
    lp_sink sink;

    FUZZ_MUST(top != NULL);
    for (unsigned looks = 0; looks < 2; looks++) {
        FUZZ_MUST(lp_top_look(top, directory, &error) == LP_OK);
        view.choice.order = (lp_top_order)(width % (LP_TOP_NAME + 1));
        FUZZ_MUST(lp_top_arrange(top, &view.choice) == LP_OK);
        lp_sink_open_memory(&sink);
        FUZZ_MUST(lp_render_top(top, &view, NULL, NULL, &sink) == LP_OK && lp_sink_flush(&sink) == LP_OK);
        fuzz_must_be_inert(sink.data, sink.size);
        lp_sink_free(&sink);
    }
    lp_top_free(top);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    static char paths[FILES][512];
    unsigned width = size ? data[size - 1] : 80;

    make_directory();
    for (unsigned i = 0; i < FILES; i++) {
        fuzz_part name = {(const uint8_t *)names[i], strlen(names[i])};
        FUZZ_MUST(put_file(name, next_part(&at, end), paths[i]));
    }
    must_report(width);
    must_show(width);
    for (unsigned i = 0; i < FILES; i++)
        unlink(paths[i]);
    return 0;
}

/* 0: a worker, its host and its devices; 1: with one that was killed beside it; 2: samples without any of their worker. */
size_t fuzz_seed(unsigned index, uint8_t *out)
{
    static uint8_t one[FUZZ_ROOM];
    size_t at = 0;

    if (index > 2)
        return 0;
    lp_worker *worker = build_worker();
    worker->written_ns = worker->id.started_ns + 20 * SECOND;
    worker->elapsed_ns = 20 * SECOND;
    if (index == 2)
        worker->id.uuid = worker_str("ffff456789abcdef0123456789abcdef");
    at = add_part(out, at, one, snapshot_seed(worker, one, sizeof one));
    worker->final = false;
    worker->unclean = true;
    worker->id.pid = 1543;
    worker->id.uuid = worker_str("1123456789abcdef0123456789abcdef");
    at = add_part(out, at, one, index == 1 ? snapshot_seed(worker, one, sizeof one) : 0);
    worker->id.pid = 1542;
    worker->id.uuid = worker_str("0123456789abcdef0123456789abcdef");
    for (unsigned i = 0; i < 3; i++)
        at = add_part(out, at, one, samples_seed(worker, i, one, sizeof one));
    lp_worker_free(worker);
    return at;
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    const uint8_t *at = data, *end = data + size;

    (void)room;
    for (unsigned i = 0; i < FILES && at < end; i++) {
        fuzz_part content = next_part(&at, end);
        uint8_t *bytes = data + (content.data - data);
        if (i < 2)
            close_snapshot(bytes, content.size, content.size);
        else
            close_records(bytes, content.size);
    }
    return size;
}
