/* lineprofiler compare RUN_A RUN_B */
#include "cli/output.h"

static const lp_cli_option options[] = {
    {"--all", 0, NULL, NULL, offsetof(lp_cli_values, all), "name every phase in the notes"},
    {"--format", 0, "FORMAT", "text|json", offsetof(lp_cli_values, format), "text (default) or json"},
    {"--json", 0, NULL, NULL, offsetof(lp_cli_values, json), NULL},
    {"--output", 'o', "PATH", NULL, offsetof(lp_cli_values, output), "write to a file instead of stdout (-: stdout)"},
};

/* Reads a run without changing anything in its directory. LP_EXIT_OK: *run is owned by the caller. */
static int load(const lp_cli_call *call, const char *directory, lp_run **run)
{
    lp_error error = {.offset = UINT64_MAX};

    lp_status status = lp_run_load(directory, (lp_run_options){.adopt = false, .segments = true}, run, &error);
    if (status != LP_OK)
        return lp__cli_fail(call->io, "%s", error.text[0] ? error.text : lp_status_text(status));
    int said = (*run)->empty_reason[0] ? lp__cli_no_run(call->io, directory) : LP_EXIT_OK;
    if ((*run)->empty_reason[0] == 'm')
        return said;
    if ((*run)->unreadable_count > 0)
        lp__cli_fail(call->io, "%s: %u worker file(s) cannot be read, their work is missing", directory,
                     (*run)->unreadable_count);
    return (*run)->worker_count == 0 && (*run)->unreadable_count > 0 ? LP_EXIT_USAGE : LP_EXIT_OK;
}

static int write_comparison(const lp_cli_call *call, const lp_comparison *comparison, bool json)
{
    lp_cli_output output;

    int opened = lp__cli_output_open(&output, call->values.output, call->io);
    if (opened != LP_EXIT_OK)
        return opened;
    output.text.all = call->values.all;
    if (json)
        lp_render_comparison_json(comparison, call->arguments[0], call->arguments[1], output.sink);
    else
        lp_render_comparison_text(comparison, call->arguments[0], call->arguments[1], output.text, output.sink);
    return lp__cli_output_close(&output, LP_EXIT_OK);
}

static int run(const lp_cli_call *call)
{
    const char *format = call->values.format ? call->values.format : "text";
    lp_run *runs[2] = {NULL, NULL};
    lp_comparison *comparison = NULL;
    int result = LP_EXIT_OK;

    for (int i = 0; i < 2 && result == LP_EXIT_OK; i++)
        result = load(call, call->arguments[i], &runs[i]);
    if (result == LP_EXIT_OK) {
        lp_status status = LP_E_MEMORY;
        lp_compared a = {lp_run_tree(runs[0]), lp_run_open_entries(runs[0])};
        lp_compared b = {lp_run_tree(runs[1]), lp_run_open_entries(runs[1])};
        if (a.tree && b.tree)
            status = lp_compare(a, b, &comparison);
        result = status == LP_OK ? write_comparison(call, comparison, call->values.json || format[0] == 'j')
                                 : lp__cli_fail(call->io, "compare: %s", lp_status_text(status));
    }
    lp_comparison_free(comparison);
    lp_run_free(runs[0]);
    lp_run_free(runs[1]);
    return result;
}

const lp_cli_command lp__cli_compare = {
    .name = "compare",
    .summary = "two runs phase by phase: what got slower, what is new",
    .details = "Compares the mean and the median of an entry of every phase, over all roles:\n"
               "what was finished in one run only first, then the largest regression first.",
    .arguments = {"RUN_A", "RUN_B"},
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
