#include "cli/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "render/inert.h"

const char *lp__cli_program(const lp_cli_io *io)
{
    return io->program ? io->program : "lineprofiler";
}

/* What a user typed may hold anything, and goes to a terminal. */
static void put_inert(lp_sink *sink, const char *text)
{
    char line[LP_INERT_BYTES(240)];
    lp_str whole = {text, strlen(text)};

    lp_inert(line, sizeof line, &whole, 1, 240, LP_CUT_RIGHT, true);
    lp_sink_text(sink, line);
}

int lp__cli_fail(const lp_cli_io *io, const char *format, ...)
{
    char text[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lp_sink_format(io->err, "%s: ", lp__cli_program(io));
    put_inert(io->err, text);
    lp_sink_char(io->err, '\n');
    return LP_EXIT_USAGE;
}

void lp__cli_version(const lp_cli_io *io)
{
    lp_sink_format(io->out, "lineprofiler %s\n", LP_VERSION);
}

void lp__cli_usage(const lp_cli_command *command, const lp_cli_io *io, lp_sink *sink)
{
    lp_sink_format(sink, "usage: %s %s [options]", lp__cli_program(io), command->name);
    for (size_t i = 0; i < LP_CLI_ARGUMENTS && command->arguments[i]; i++)
        lp_sink_format(sink, " %s", command->arguments[i]);
    lp_sink_char(sink, '\n');
}

static void put_option(lp_sink *sink, char letter, const char *name, const char *value, const char *help)
{
    char left[64];
    char dash[8] = "    ";

    if (letter)
        snprintf(dash, sizeof dash, "-%c, ", letter);
    snprintf(left, sizeof left, "  %s%s%s%s", dash, name, value ? " " : "", value ? value : "");
    lp_sink_format(sink, "%-28s%s\n", left, help);
}

void lp__cli_help(const lp_cli_command *command, const lp_cli_io *io)
{
    lp__cli_usage(command, io, io->out);
    lp_sink_format(io->out, "\n%s\n\noptions:\n", command->details);
    for (size_t i = 0; i < command->option_count; i++) {
        const lp_cli_option *option = &command->options[i];
        if (option->help)
            put_option(io->out, option->letter, option->name, option->value, option->help);
    }
    put_option(io->out, 'h', "--help", NULL, "show this and leave");
    put_option(io->out, 0, "--version", NULL, "show the version and leave");
}

/* Edits (insert, delete, change) between two short words; words beyond 31 characters are never close. */
static size_t distance(const char *a, const char *b)
{
    size_t size_a = strlen(a), size_b = strlen(b);
    size_t row[32];

    if (size_a >= 32 || size_b >= 32)
        return 99;
    for (size_t j = 0; j <= size_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= size_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= size_b; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = best < row[j] + 1 ? best : row[j] + 1;
            best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[size_b];
}

const char *lp__cli_closest(const char *word, const void *words, size_t count, size_t stride)
{
    const char *best = NULL;
    size_t least = 3;

    for (size_t i = 0; i < count; i++) {
        const char *candidate;
        memcpy(&candidate, (const char *)words + i * stride, sizeof candidate);
        size_t edits = distance(word, candidate);
        if (edits < least && edits < strlen(candidate)) {
            least = edits;
            best = candidate;
        }
    }
    return best;
}

static int misused(const lp_cli_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int misused(const lp_cli_call *call, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lp__cli_usage(call->command, call->io, call->io->err);
    return lp__cli_fail(call->io, "%s: %s", call->command->name, text);
}

bool lp__cli_is_choice(const char *choices, const char *value)
{
    size_t size = strlen(value);

    while (*choices) {
        size_t length = strcspn(choices, "|");
        if (length == size && memcmp(choices, value, size) == 0)
            return true;
        choices += length + (choices[length] == '|');
    }
    return false;
}

static int set_option(lp_cli_call *call, const lp_cli_option *option, const char *value)
{
    char *slot = (char *)&call->values + option->slot;

    if (option->choices && value && !lp__cli_is_choice(option->choices, value))
        return misused(call, "%s: invalid choice '%s' (choose from %s)", option->name, value, option->choices);
    if (option->value) {
        memcpy(slot, &value, sizeof value);
    } else {
        bool on = true;
        memcpy(slot, &on, sizeof on);
    }
    return LP_EXIT_OK;
}

static const lp_cli_option *find_option(const lp_cli_command *command, const char *name, size_t size)
{
    for (size_t i = 0; i < command->option_count; i++)
        if (strlen(command->options[i].name) == size && memcmp(command->options[i].name, name, size) == 0)
            return &command->options[i];
    return NULL;
}

/* --name, --name=value, --name value. *at is the word's index and moves on to the value's. */
static int parse_long(lp_cli_call *call, int argc, const char *const *argv, int *at)
{
    const char *word = argv[*at];
    size_t size = strcspn(word, "=");
    const lp_cli_option *option = find_option(call->command, word, size);

    if (!option) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)(size < 31 ? size : 31), word);
        const char *closest =
            lp__cli_closest(name, call->command->options, call->command->option_count, sizeof *call->command->options);
        return closest ? misused(call, "unknown option %.*s; did you mean %s?", (int)size, word, closest)
                       : misused(call, "unknown option %.*s", (int)size, word);
    }
    if (!option->value)
        return word[size] ? misused(call, "%s takes no value", option->name) : set_option(call, option, NULL);
    if (word[size])
        return set_option(call, option, word + size + 1);
    if (*at + 1 >= argc)
        return misused(call, "%s needs a value: %s", option->name, option->value);
    return set_option(call, option, argv[++*at]);
}

/* -o value, -ovalue, -o=value is a path that begins with "=". */
static int parse_short(lp_cli_call *call, int argc, const char *const *argv, int *at)
{
    const char *word = argv[*at];

    for (size_t i = 0; i < call->command->option_count; i++) {
        const lp_cli_option *option = &call->command->options[i];
        if (!option->letter || option->letter != word[1])
            continue;
        if (!option->value)
            return word[2] ? misused(call, "unknown option %s", word) : set_option(call, option, NULL);
        if (word[2])
            return set_option(call, option, word + 2);
        if (*at + 1 >= argc)
            return misused(call, "-%c needs a value: %s", option->letter, option->value);
        return set_option(call, option, argv[++*at]);
    }
    return misused(call, "unknown option %s", word);
}

int lp__cli_parse(lp_cli_call *call, int argc, const char *const *argv, bool *done)
{
    size_t count = 0;
    bool options = true;

    *done = false;
    for (int at = 0; at < argc; at++) {
        const char *word = argv[at];
        int result = LP_EXIT_OK;
        if (options && strcmp(word, "--") == 0) {
            options = false;
        } else if (options && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            lp__cli_help(call->command, call->io);
            *done = true;
            return LP_EXIT_OK;
        } else if (options && strcmp(word, "--version") == 0) {
            lp__cli_version(call->io);
            *done = true;
            return LP_EXIT_OK;
        } else if (options && word[0] == '-' && word[1] == '-') {
            result = parse_long(call, argc, argv, &at);
        } else if (options && word[0] == '-' && word[1] != '\0') {
            result = parse_short(call, argc, argv, &at);
        } else if (count >= LP_CLI_ARGUMENTS || !call->command->arguments[count]) {
            result = misused(call, "unexpected argument %s", word);
        } else if (count == 0 && call->command->argument_choices &&
                   !lp__cli_is_choice(call->command->argument_choices, word)) {
            result = misused(call, "invalid choice '%s' (choose from %s)", word, call->command->argument_choices);
        } else {
            call->arguments[count++] = word;
        }
        if (result != LP_EXIT_OK)
            return result;
    }
    if (count < LP_CLI_ARGUMENTS && call->command->arguments[count])
        return misused(call, "%s is missing", call->command->arguments[count]);
    return LP_EXIT_OK;
}
