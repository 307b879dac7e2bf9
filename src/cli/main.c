/* The stand-alone command. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

int main(int argc, char **argv)
{
    static lp_sink out, err;
    lp_cli_io io = {.out = &out, .err = &err};
    const lp_cli_env env = {.no_color = getenv("NO_COLOR"),
                            .term = getenv("TERM"),
                            .columns = getenv("COLUMNS"),
                            .lc_all = getenv("LC_ALL"),
                            .lc_ctype = getenv("LC_CTYPE"),
                            .lang = getenv("LANG")};

    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an EPIPE for the sink, which ends quietly */
    lp_sink_open_fd(&out, STDOUT_FILENO);
    lp_sink_open_fd(&err, STDERR_FILENO);
    lp_cli_io_detect(&io, &env, STDOUT_FILENO, isatty(STDOUT_FILENO));
    return lp_cli_main(argc - 1, (const char *const *)argv + 1, &io);
}
