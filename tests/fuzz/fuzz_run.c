/* Several snapshots of any bytes, merged: the report as text and JSON, the comparison of its two halves. */
#include "../c/make_runs.h"
#include "../c/worker_builder.h"
#include "analysis/compare.h"
#include "parts.h"
#include "snapshot_tools.h"

#define PARTS 8

static void must_report(lp_run *run, unsigned width)
{
    lp_report *report = NULL;
    lp_sink sink;

    FUZZ_MUST(lp_report_new(run, &report) == LP_OK);
    for (unsigned i = 0; i < 4; i++) {
        lp_text_options options = {.width = 40 + width, .utf8 = i & 1, .all = i & 2, .samples = i & 2};
        lp_sink_open_memory(&sink);
        FUZZ_MUST(lp_render_text(report, options, &sink) == LP_OK && lp_sink_flush(&sink) == LP_OK);
        fuzz_must_be_inert(sink.data, sink.size);
        lp_sink_free(&sink);
    }
    lp_sink_open_memory(&sink);
    FUZZ_MUST(lp_render_json(report, true, &sink) == LP_OK);
    fuzz_must_be_json(&sink);
    lp_sink_free(&sink);
    lp_report_free(report);
}

static void must_compare(lp_run *a, lp_run *b, lp_str label)
{
    lp_compared runs[2] = {{lp_run_tree(a), lp_run_open_entries(a)}, {lp_run_tree(b), lp_run_open_entries(b)}};
    lp_comparison *comparison = NULL;
    lp_sink sink;
    char name[64];

    snprintf(name, sizeof name, "%.*s", (int)(label.size < 60 ? label.size : 60), label.data);
    FUZZ_MUST(runs[0].open_entries && runs[1].open_entries && lp_compare(runs[0], runs[1], &comparison) == LP_OK);
    lp_sink_open_memory(&sink);
    FUZZ_MUST(lp_render_comparison_text(comparison, name, "b", (lp_text_options){.utf8 = true}, &sink) == LP_OK);
    FUZZ_MUST(lp_sink_flush(&sink) == LP_OK);
    fuzz_must_be_inert(sink.data, sink.size);
    lp_sink_free(&sink);
    lp_sink_open_memory(&sink);
    FUZZ_MUST(lp_render_comparison_json(comparison, name, "b", &sink) == LP_OK);
    fuzz_must_be_json(&sink);
    lp_sink_free(&sink);
    lp_comparison_free(comparison);
}

static void add(lp_run *run, fuzz_part part, unsigned index)
{
    lp_worker *worker = NULL;
    lp_error error = {.offset = UINT64_MAX};

    if (lp_snapshot_decode(part.data, part.size, "part", &worker, &error) != LP_OK) {
        FUZZ_MUST(lp_run_add_unreadable(run, "part", error.text) == LP_OK);
        return;
    }
    bool keep = index & 1;
    if (index % 4 == 3)
        FUZZ_MUST(lp_run_add_superseded(run, worker, keep) == LP_OK);
    else
        FUZZ_MUST(lp_run_add(run, worker, keep) == LP_OK);
    if (!keep)
        lp_worker_free(worker);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    lp_run *runs[2] = {lp_run_new(), lp_run_new()};

    FUZZ_MUST(runs[0] && runs[1]);
    for (unsigned i = 0; i < PARTS && at < end; i++)
        add(runs[i & 1], next_part(&at, end), i / 2);
    for (unsigned i = 0; i < 2; i++) {
        FUZZ_MUST(lp_run_finish(runs[i]) == LP_OK);
        must_report(runs[i], size ? data[size - 1] : 0);
    }
    must_compare(runs[0], runs[1], (lp_str){(const char *)data, size});
    lp_run_free(runs[0]);
    lp_run_free(runs[1]);
    return 0;
}

/* 0: two of one worker and one that is empty; 1 and up: the runs of the report's tests that fit. */
size_t fuzz_seed(unsigned index, uint8_t *out)
{
    static uint8_t one[FUZZ_ROOM];
    size_t at = 0;

    if (index > 2)
        return 0;
    for (unsigned i = 0; i < 3 + index; i++) {
        lp_worker *worker = i == 2 ? lp_worker_new() : build_worker();
        FUZZ_MUST(worker != NULL);
        if (i == 1)
            worker->id.role = worker_str("learner");
        if (i == 3)
            worker->final = !(worker->unclean = true);
        worker->id.pid = 100 + i;
        size_t size = snapshot_seed(worker, one, sizeof one);
        at = add_part(out, at, one, size);
        lp_worker_free(worker);
    }
    return at;
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    const uint8_t *at = data, *end = data + size;

    (void)room;
    for (unsigned i = 0; i < PARTS && at < end; i++) {
        fuzz_part part = next_part(&at, end);
        close_snapshot(data + (part.data - data), part.size, part.size);
    }
    return size;
}
