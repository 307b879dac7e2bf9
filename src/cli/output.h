/* Where a command's result goes: stdout, or a file that appears whole or not at all. */
#ifndef LP_CLI_OUTPUT_H
#define LP_CLI_OUTPUT_H

#include "cli/options.h"
#include "render/render.h"

typedef struct lp_cli_output {
    const lp_cli_io *io;
    lp_sink *sink;        /* borrowed: write here */
    lp_text_options text; /* for what is being written to */
    lp_sink file;
    int fd;           /* owned; -1: stdout */
    const char *path; /* borrowed: as the user gave it */
    char *target;     /* owned: behind symbolic links */
    char *temporary;  /* owned; NULL: `target` is written directly */
} lp_cli_output;

/* path NULL or "-": stdout. On failure it has been said on stderr and nothing is to be closed. */
int lp__cli_output_open(lp_cli_output *output, const char *path, const lp_cli_io *io);
/* Moves a file into place. Gives `result`, or LP_EXIT_USAGE when it could not be written (said on stderr). */
int lp__cli_output_close(lp_cli_output *output, int result);
/* Leaves nothing behind; gives `result`. */
int lp__cli_output_drop(lp_cli_output *output, int result);

#endif
