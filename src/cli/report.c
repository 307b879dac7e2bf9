/* lineprofiler report RUN_DIR */
#include "cli/output.h"

static const lp_cli_option options[] = {
    {"--all", 0, NULL, NULL, offsetof(lp_cli_values, all), "every phase, worker and host, not just a dozen"},
    {"--no-samples", 0, NULL, NULL, offsetof(lp_cli_values, no_samples),
     "leave out what is sampled (I/O, GPU, MEMORY)"},
    {"--format", 0, "FORMAT", "text|json|html", offsetof(lp_cli_values, format),
     "text (default) or json; html is not there yet"},
    {"--json", 0, NULL, NULL, offsetof(lp_cli_values, json), NULL},
    {"--output", 'o', "PATH", NULL, offsetof(lp_cli_values, output), "write to a file instead of stdout (-: stdout)"},
};

static int write_report(const lp_cli_call *call, const lp_report *report, bool json, int result)
{
    lp_cli_output output;

    int opened = lp__cli_output_open(&output, call->values.output, call->io);
    if (opened != LP_EXIT_OK)
        return opened;
    output.text.all = call->values.all;
    output.text.samples = !call->values.no_samples;
    lp_status status = json ? lp_render_json(report, output.text.samples, output.sink)
                            : lp_render_text(report, output.text, output.sink);
    if (status == LP_E_MEMORY)
        return lp__cli_output_drop(&output, lp__cli_fail(call->io, "out of memory"));
    return lp__cli_output_close(&output, result);
}

static int run(const lp_cli_call *call)
{
    const char *directory = call->arguments[0], *format = call->values.format ? call->values.format : "text";
    lp_run *run = NULL;
    lp_report *report = NULL;
    lp_usage *usage = NULL;
    lp_error error = {.offset = UINT64_MAX};

    if (format[0] == 'h')
        return lp__cli_fail(call->io, "report: --format html comes with a later version; text and json are here");
    /* Adopting: a dead process's memory becomes its snapshot, so that reading it once makes it last. */
    lp_status status = lp_run_load(directory, (lp_run_options){.adopt = true, .segments = true}, &run, &error);
    if (status != LP_OK)
        return lp__cli_fail(call->io, "%s", error.text[0] ? error.text : lp_status_text(status));
    status = lp_report_new(run, &report);
    if (status == LP_OK && !call->values.no_samples)
        status = lp_usage_load(run, &usage);
    if (status == LP_OK && usage)
        status = lp_report_add_usage(report, usage);
    if (status != LP_OK) {
        lp_report_free(report);
        lp_usage_free(usage);
        lp_run_free(run);
        return lp__cli_fail(call->io, "%s: %s", directory, lp_status_text(status));
    }
    bool missing = run->empty_reason[0] == 'm', lost = run->worker_count == 0 && run->unreadable_count > 0;
    int result =
        write_report(call, report, call->values.json || format[0] == 'j', missing || lost ? LP_EXIT_USAGE : LP_EXIT_OK);
    lp_cli_near near;
    if (missing || (run->empty_reason[0] && lp__cli_near_of(directory, near)))
        lp__cli_no_run(call->io, directory); /* what was printed may go into a file */
    if (lost)
        lp__cli_fail(call->io, "%s: none of its %u worker file(s) can be read", directory, run->unreadable_count);
    lp_report_free(report);
    lp_usage_free(usage);
    lp_run_free(run);
    return result;
}

const lp_cli_command lp__cli_report = {
    .name = "report",
    .summary = "where a run spent its time, phase by phase",
    .details = "Merges the processes of a run, finished, dead or still running, and shows\n"
               "where they spent their time. RUN_DIR is the directory that the program was\n"
               "told to write (run_dir=, LINEPROFILER_RUN_DIR).",
    .arguments = {"RUN_DIR"},
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
