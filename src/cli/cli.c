/* Finding the subcommand; what happens before and after it. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/options.h"

const lp_cli_command *const lp__cli_commands[] = {&lp__cli_report, &lp__cli_top, &lp__cli_compare,   &lp__cli_dump,
                                                  &lp__cli_lines,  &lp__cli_run, &lp__cli_completion};
#define COMMAND_COUNT (sizeof lp__cli_commands / sizeof *lp__cli_commands)
const size_t lp__cli_command_count = COMMAND_COUNT;

static void put_usage_line(const lp_cli_io *io, lp_sink *sink)
{
    lp_sink_format(sink, "usage: %s COMMAND [options] ...\n", lp__cli_program(io));
}

static void put_usage(const lp_cli_io *io, lp_sink *sink)
{
    put_usage_line(io, sink);
    lp_sink_format(sink, "\ncommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        lp_sink_format(sink, "  %-12s%s\n", lp__cli_commands[i]->name, lp__cli_commands[i]->summary);
    lp_sink_format(sink, "\n%s COMMAND --help says more; --version shows the version.\n", lp__cli_program(io));
}

static int unknown_command(const lp_cli_io *io, const char *word)
{
    const char *names[COMMAND_COUNT], *what = word[0] == '-' ? "option" : "command";

    if (strcmp(word, "trace") == 0)
        return lp__cli_fail(io, "trace comes with a later version; report, top and compare are here");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = lp__cli_commands[i]->name;
    put_usage_line(io, io->err);
    const char *closest = lp__cli_closest(word, names, COMMAND_COUNT, sizeof *names);
    if (closest)
        return lp__cli_fail(io, "unknown %s %s; did you mean %s?", what, word, closest);
    return lp__cli_fail(io, "unknown %s %s; --help lists what there is", what, word);
}

static int dispatch(int argc, const char *const *argv, const lp_cli_io *io)
{
    if (argc < 1) {
        put_usage(io, io->err);
        return LP_EXIT_USAGE;
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        put_usage(io, io->out);
        return LP_EXIT_OK;
    }
    if (strcmp(argv[0], "--version") == 0) {
        lp__cli_version(io);
        return LP_EXIT_OK;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        lp_cli_call call = {.command = lp__cli_commands[i], .io = io};
        bool done = false;
        if (strcmp(argv[0], lp__cli_commands[i]->name) != 0)
            continue;
        if (lp__cli_commands[i]->in_python)
            return lp__cli_fail(io, "%s needs Python: use the command of the Python package lineprofiler", argv[0]);
        int result = lp__cli_parse(&call, argc - 1, argv + 1, &done);
        return done || result != LP_EXIT_OK ? result : lp__cli_commands[i]->run(&call);
    }
    return unknown_command(io, argv[0]);
}

int lp_cli_main(int argc, const char *const *argv, const lp_cli_io *io)
{
    int result = dispatch(argc, argv, io);

    if (lp_sink_flush(io->out) != LP_OK)
        result = lp__cli_fail(io, "standard output: %s",
                              io->out->sys ? strerror(io->out->sys) : lp_status_text(io->out->status));
    (void)lp_sink_flush(io->err);
    return result;
}

static bool names_utf8(const char *locale)
{
    for (; *locale; locale++)
        if (strncasecmp(locale, "utf-8", 5) == 0 || strncasecmp(locale, "utf8", 4) == 0)
            return true;
    return false;
}

/* The first variable that is set decides, as for libc. With none set (containers) the terminal is UTF-8 today; "C" and
 * other charsets were asked for. */
static bool wants_utf8(const lp_cli_env *env)
{
    const char *const values[] = {env->lc_all, env->lc_ctype, env->lang};

    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i] && values[i][0])
            return names_utf8(values[i]);
    return true;
}

void lp_cli_io_detect(lp_cli_io *io, const lp_cli_env *env, int fd, bool is_tty)
{
    struct winsize size;
    unsigned long columns = env->columns ? strtoul(env->columns, NULL, 10) : 0;

    io->utf8 = wants_utf8(env);
    io->color = is_tty && !(env->no_color && env->no_color[0]) && !(env->term && strcmp(env->term, "dumb") == 0);
    if (columns == 0 && is_tty && fd >= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0)
        columns = size.ws_col;
    io->terminal_in = is_tty && fd >= 0 && isatty(STDIN_FILENO) ? STDIN_FILENO : -1;
    io->terminal_out = is_tty && fd >= 0 ? fd : -1;
    io->width = columns > 0 && columns < 100000 ? (unsigned)columns : 0;
}
