/* The `lineprofiler` command as a function: reads no environment, touches no stdio, never exits. The stand-alone
 * main.c and the extension call it. */
#ifndef LP_CLI_CLI_H
#define LP_CLI_CLI_H

#include "render/sink.h"

enum { LP_EXIT_OK = 0, LP_EXIT_GATE = 1, LP_EXIT_USAGE = 2 }; /* 2: usage, or input that cannot be read */

typedef struct lp_cli_io {
    lp_sink *out, *err;            /* borrowed; flushed before lp_cli_main returns */
    bool color;                    /* `out` may be coloured: a terminal, no NO_COLOR, TERM not "dumb" */
    bool utf8;                     /* `out` shows UTF-8; files of -o are always UTF-8 */
    unsigned width;                /* columns, 0: 80 */
    int terminal_in, terminal_out; /* borrowed descriptors of the terminal that full-screen commands use, -1 none */
    const char *program;           /* as users call it, "lineprofiler" if NULL */
} lp_cli_io;

/* argv[0] is the first argument after the program's name. Returns an exit code. */
int lp_cli_main(int argc, const char *const *argv, const lp_cli_io *io);

/* Fills color, utf8, width and the terminal from the environment values (each may be NULL) and the output `fd` (-1: none).
 * is_tty is what the caller's stream says. Keys come from descriptor 0 if that is a terminal, too. */
typedef struct lp_cli_env {
    const char *no_color, *term, *columns, *lc_all, *lc_ctype, *lang;
} lp_cli_env;
void lp_cli_io_detect(lp_cli_io *io, const lp_cli_env *env, int fd, bool is_tty);

#endif
