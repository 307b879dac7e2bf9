/* Options as tables: every entry owns its help text. Between the files of the command. */
#ifndef LP_CLI_OPTIONS_H
#define LP_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/cli.h"

#define LP_CLI_ARGUMENTS 2u

typedef struct lp_cli_values { /* what the options of all commands can set */
    const char *format, *output;
    const char *interval, *sort, *filter, *role;
    bool json, all, no_samples, once;
} lp_cli_values;

typedef struct lp_cli_option {
    const char *name;    /* "--format" */
    char letter;         /* 'o' for -o, 0 for none */
    const char *value;   /* "PATH"; NULL: a flag */
    const char *choices; /* "text|json|html", NULL: any text */
    size_t slot;         /* offset in lp_cli_values: bool of a flag, else const char * */
    const char *help;    /* NULL: hidden */
} lp_cli_option;

typedef struct lp_cli_call {
    const struct lp_cli_command *command;
    const lp_cli_io *io;
    lp_cli_values values;
    const char *arguments[LP_CLI_ARGUMENTS];
} lp_cli_call;

typedef struct lp_cli_command {
    const char *name, *summary, *details;
    const char *arguments[LP_CLI_ARGUMENTS]; /* names of the required ones, NULL beyond the last */
    const char *argument_choices;            /* of the first one: "bash|zsh|fish", NULL any text */
    const lp_cli_option *options;
    size_t option_count;
    int (*run)(const lp_cli_call *call); /* returns an exit code */
    bool in_python;                      /* run there; its options stand here for completion */
    bool has_program;                    /* what follows the first argument is a program's own */
} lp_cli_command;

extern const lp_cli_command lp__cli_report, lp__cli_top, lp__cli_compare, lp__cli_dump, lp__cli_lines, lp__cli_run,
    lp__cli_completion;

/* All of them, in the order of the usage. */
extern const lp_cli_command *const lp__cli_commands[];
extern const size_t lp__cli_command_count;

/* Reads the words after the command's name. LP_EXIT_OK: call->values and arguments are set (pointers into argv).
 * `done` is set when --help or --version has been answered. LP_EXIT_USAGE: said on stderr. */
int lp__cli_parse(lp_cli_call *call, int argc, const char *const *argv, bool *done);

const char *lp__cli_program(const lp_cli_io *io);
/* "lineprofiler: <text>" and a newline on stderr; returns LP_EXIT_USAGE. */
int lp__cli_fail(const lp_cli_io *io, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Says that there is no run directory of this name, or that nothing is in it, and which one may have been meant. */
int lp__cli_no_run(const lp_cli_io *io, const char *path);
typedef char lp_cli_near[4096 + 48];
/* Whether there is a run directory near a path that is none; `near` is a sentence that names it. */
bool lp__cli_near_of(const char *path, lp_cli_near near);
void lp__cli_version(const lp_cli_io *io);
void lp__cli_usage(const lp_cli_command *command, const lp_cli_io *io, lp_sink *sink);
void lp__cli_help(const lp_cli_command *command, const lp_cli_io *io);
/* Whether `word` is one of "a|b|c". */
bool lp__cli_is_choice(const char *choices, const char *word);
/* The closest of `count` words (`stride` bytes apart, each a const char *), NULL if none is close. */
const char *lp__cli_closest(const char *word, const void *words, size_t count, size_t stride);

#endif
