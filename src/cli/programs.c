/* Subcommands that run or read Python programs: their code is in the Python package, whose command answers them before it
 * calls this one. Here they have their line in the usage and their options, for completion (tests/docs compares both
 * tables), and say so where there is no Python. */
#include "cli/options.h"

static const lp_cli_option lines_options[] = {
    {"--format", 0, "FORMAT", "text|json|csv", 0, "text (default), json or csv"},
    {"--diff", 0, NULL, NULL, 0, "compare two files: which lines got slower, which faster"},
    {"--top", 0, "N", NULL, 0, "how many lines are listed (25)"},
    {"--all", 0, NULL, NULL, 0, "fold nothing, leave no function out"},
    {"--threads", 0, NULL, NULL, 0, "also the lines of each thread"},
    {"--unit", 'u', "SECONDS", NULL, 0, "unit of all times (default: each in its own)"},
    {"--skip-zero", 'z', NULL, NULL, 0, "leave out functions that took no time"},
    {"--sort", 't', NULL, NULL, 0, "line_profiler's table, dearest function last"},
    {"--summarize", 'm', NULL, NULL, 0, "line_profiler's table, a line for each function at its end"},
    {"--rich", 'r', NULL, NULL, 0, "line_profiler's table, with the source in colours"},
    {"--html", 0, "PATH", NULL, 0, "write the annotated source as a page, and print nothing"},
    {"--output", 'o', "PATH", NULL, 0, "write to this file instead of stdout (-: stdout)"},
};

static const lp_cli_option run_options[] = {
    {"--line-by-line", 'l', NULL, NULL, 0, "profile functions that are decorated with @profile only"},
    {"--builtin", 'b', NULL, NULL, 0, "put `profile` into the builtins (-l does so, too)"},
    {"--prof-mod", 'p', "LIST", NULL, 0,
     "profile these modules, functions and paths only; separated by commas, may be given again"},
    {"--prof-imports", 0, NULL, NULL, 0, "with -p SCRIPT: profile what the script imports as well"},
    {"--setup", 's', "FILE", NULL, 0, "Python file to run before the program, unprofiled"},
    {"--output", 'o', "FILE", NULL, 0, "write an .lprof file (with -l: default SCRIPT.lprof)"},
    {"--output-interval", 'i', "SECONDS", NULL, 0, "write that file this often while it runs, too"},
    {"--html", 0, "PATH", NULL, 0, "write the annotated source as a page"},
    {"--live", 0, "DIR", NULL, 0, "keep each process's figures in this folder, for `lineprofiler lines DIR`"},
    {"--top", 0, "N", NULL, 0, "how many lines are listed (25)"},
    {"--functions", 0, NULL, NULL, 0, "print each function's lines as well"},
    {"--all", 0, NULL, NULL, 0, "with --functions: fold nothing, leave no function out"},
    {"--threads", 0, NULL, NULL, 0, "with --functions: also the lines of each thread"},
    {"--view", 'v', NULL, NULL, 0, "with -l: print line_profiler's table"},
    {"--rich", 'r', NULL, NULL, 0, "with -v: colour the source"},
    {"--summarize", 0, NULL, NULL, 0, "with -v: a line for each function at the end"},
    {"--unit", 'u', "SECONDS", NULL, 0, "unit of all times (each in its own; with -l -v: 1e-6)"},
    {"--skip-zero", 'z', NULL, NULL, 0, "leave out functions that took no time"},
    {"--quiet", 'q', NULL, NULL, 0, "print nothing but what the program prints"},
    {"--config", 0, "FILE", NULL, 0, "TOML file with [tool.line_profiler.kernprof] (default: the one found)"},
    {"--no-config", 0, NULL, NULL, 0, "use no such file"},
};

const lp_cli_command lp__cli_lines = {
    .name = "lines",
    .summary = "line profiles: print, merge, export, compare",
    .arguments = {"FILE", "FILE"},
    .options = lines_options,
    .option_count = sizeof lines_options / sizeof *lines_options,
    .in_python = true,
};

const lp_cli_command lp__cli_run = {
    .name = "run",
    .summary = "run a program and time each of its lines",
    .arguments = {"SCRIPT"},
    .options = run_options,
    .option_count = sizeof run_options / sizeof *run_options,
    .in_python = true,
    .has_program = true,
};
