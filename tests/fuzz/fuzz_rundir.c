/* A run directory of files whose names and bytes come from the input: {name, content} in turn, below workers/<host>/. Read as
 * `compare` reads it (nothing is changed) and as merge_run does (every worker kept). */
#include "../c/worker_builder.h"
#include "analysis/report.h"
#include "analysis/run.h"
#include "parts.h"
#include "run_folder.h"
#include "snapshot_tools.h"

#define FILES 6

static void must_load(bool keep, unsigned files)
{
    lp_run *run = NULL;
    lp_report *report = NULL;
    lp_error error = {.offset = UINT64_MAX};
    lp_sink sink;

    FUZZ_MUST(lp_run_load(directory, (lp_run_options){.keep_workers = keep}, &run, &error) == LP_OK);
    FUZZ_MUST(run->worker_count + run->superseded_count + run->unreadable_count <= 2 * files);
    for (uint32_t i = 0; i < run->worker_count; i++)
        FUZZ_MUST((run->workers[i].worker != NULL) == keep);
    FUZZ_MUST(lp_report_new(run, &report) == LP_OK);
    lp_sink_open_memory(&sink);
    FUZZ_MUST(lp_render_text(report, (lp_text_options){.utf8 = keep, .all = keep}, &sink) == LP_OK);
    FUZZ_MUST(lp_sink_flush(&sink) == LP_OK);
    fuzz_must_be_inert(sink.data, sink.size);
    lp_sink_free(&sink);
    lp_report_free(report);
    lp_run_free(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    static char paths[FILES][512];
    unsigned count = 0;

    make_directory();
    while (count < FILES && at < end) {
        fuzz_part name = next_part(&at, end);
        count += put_file(name, next_part(&at, end), paths[count]);
    }
    must_load(false, count);
    must_load(true, count);
    for (unsigned i = 0; i < count; i++)
        unlink(paths[i]); /* two may have had one name */
    return 0;
}

static size_t add_file(uint8_t *out, size_t at, const char *name, const lp_worker *worker)
{
    static uint8_t one[FUZZ_ROOM];
    return add_part(out, add_part(out, at, name, strlen(name)), one, snapshot_seed(worker, one, sizeof one));
}

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    lp_worker *worker = index < 3 ? build_worker() : NULL;
    size_t at = 0;

    if (!worker)
        return 0;
    worker->final = false;
    at = add_file(out, at, "w_20260813T224100-471c94_1542_01234567.299.snap", worker);
    at = add_file(out, at, "w_20260813T224100-471c94_1542_01234567.300.snap", worker);
    worker->final = true;
    worker->id.pid = 7;
    if (index == 1) {
        worker->id.run_id = worker_str("20250101T000000-000000"); /* of an earlier attempt */
        worker->id.run_started_ns -= 1000000000u;
    }
    if (index == 2)
        worker->id.host = worker_str("other");
    at = add_file(out, at, "w_20260813T224100-471c94_7_01234567.3.final.snap", worker);
    lp_worker_free(worker);
    return at;
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    const uint8_t *at = data, *end = data + size;

    (void)room;
    for (unsigned i = 0; i < FILES && at < end; i++) {
        next_part(&at, end);
        fuzz_part content = next_part(&at, end);
        close_snapshot(data + (content.data - data), content.size, content.size);
    }
    return size;
}
