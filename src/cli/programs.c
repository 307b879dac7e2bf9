/* Subcommands that run or read Python programs: their code is in the Python package, whose command answers them before it
 * calls this one. Here they have their line in the usage, and say so where there is no Python. */
#include "cli/options.h"

const lp_cli_command lp__cli_lines = {
    .name = "lines",
    .summary = "line profiles: print, merge, export, compare",
    .in_python = true,
};

const lp_cli_command lp__cli_run = {
    .name = "run",
    .summary = "run a program and time each of its lines",
    .in_python = true,
};
