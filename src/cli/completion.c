/* lineprofiler completion SHELL: a script for the shell's Tab key, written from the tables of options, so that it knows
 * what --help knows. What a value or an argument is (a file, a directory, a word of a list) is told by its name in the
 * table. It looks at nothing of the machine: names of files are completed by the shell. */
#include <string.h>

#include "cli/output.h"

typedef enum value_kind { KIND_TEXT, KIND_FILE, KIND_DIRECTORY } value_kind;

static value_kind kind_of(const char *value)
{
    if (strcmp(value, "PATH") == 0 || strcmp(value, "FILE") == 0 || strcmp(value, "SCRIPT") == 0)
        return KIND_FILE;
    if (strcmp(value, "DIR") == 0 || strncmp(value, "RUN_", 4) == 0)
        return KIND_DIRECTORY;
    return KIND_TEXT;
}

/* "a|b" as "a b", or with another separator. */
static void put_choices(lp_sink *sink, const char *choices, char separator)
{
    for (; *choices; choices++)
        lp_sink_char(sink, *choices == '|' ? separator : *choices);
}

/* Within single quotes of any of the shells, on one line (a help text may have several); what is in `escaped`, which ends a
 * description for zsh, gets a backslash. */
static void put_quoted(lp_sink *sink, const char *text, const char *escaped)
{
    for (; *text; text++) {
        if (*text == '\'') {
            lp_sink_text(sink, "'\\''");
            continue;
        }
        if (*text == '\n') {
            lp_sink_char(sink, ' ');
            text += strspn(text, " \n") - 1;
            continue;
        }
        if (strchr(escaped, *text))
            lp_sink_char(sink, '\\');
        lp_sink_char(sink, *text);
    }
}

static bool has_version(const lp_cli_command *command)
{
    return !command->in_python;
}

/* "--output" or "--output|-o" */
static void put_pattern(lp_sink *sink, const lp_cli_option *option)
{
    lp_sink_text(sink, option->name);
    if (option->letter)
        lp_sink_format(sink, "|-%c", option->letter);
}

/* --- bash --- */

/* Everything that `command` takes behind a "-". */
static void put_bash_options(lp_sink *sink, const lp_cli_command *command)
{
    for (size_t i = 0; i < command->option_count; i++) {
        if (!command->options[i].help)
            continue;
        lp_sink_format(sink, "%s ", command->options[i].name);
        if (command->options[i].letter)
            lp_sink_format(sink, "-%c ", command->options[i].letter);
    }
    lp_sink_text(sink, has_version(command) ? "-h --help --version" : "-h --help");
}

static void put_bash_value(lp_sink *sink, const lp_cli_option *option)
{
    lp_sink_text(sink, "        ");
    put_pattern(sink, option);
    lp_sink_text(sink, ") ");
    if (option->choices) {
        lp_sink_text(sink, "words='");
        put_choices(sink, option->choices, ' ');
        lp_sink_text(sink, "' ");
    } else if (kind_of(option->value) != KIND_TEXT) {
        lp_sink_format(sink, "kind=%s ", kind_of(option->value) == KIND_FILE ? "default" : "dirnames");
    }
    lp_sink_text(sink, ";;\n");
}

/* Behind the program of `run` every word is the program's own. */
static void put_bash_program(lp_sink *sink, const lp_cli_command *command)
{
    lp_sink_text(sink, "        for ((at = 2; at < COMP_CWORD; at++)); do\n"
                       "            case ${COMP_WORDS[at]} in\n            ");
    const char *between = "";
    for (size_t i = 0; i < command->option_count; i++) {
        if (!command->options[i].value)
            continue;
        lp_sink_text(sink, between);
        put_pattern(sink, &command->options[i]);
        between = "|";
    }
    lp_sink_text(sink, ")\n"
                       "                if [[ ${COMP_WORDS[at + 1]} == = ]]; then ((at += 2)); else ((at++)); fi ;;\n"
                       "            -m|-c|[!-]*) compopt -o default; return ;;\n"
                       "            esac\n"
                       "        done\n");
}

static void put_bash_command(lp_sink *sink, const lp_cli_command *command)
{
    lp_sink_format(sink, "    %s)\n", command->name);
    if (command->has_program)
        put_bash_program(sink, command);
    lp_sink_text(sink, "        case $before in\n");
    for (size_t i = 0; i < command->option_count; i++)
        if (command->options[i].value && command->options[i].help)
            put_bash_value(sink, &command->options[i]);
    lp_sink_text(sink, "        *) if [[ $word == -* ]]; then words='");
    put_bash_options(sink, command);
    lp_sink_text(sink, "'; else ");
    if (command->argument_choices) {
        lp_sink_text(sink, "words='");
        put_choices(sink, command->argument_choices, ' ');
        lp_sink_text(sink, "'");
    } else {
        lp_sink_format(sink, "kind=%s", kind_of(command->arguments[0]) == KIND_FILE ? "default" : "dirnames");
    }
    lp_sink_text(sink, "; fi ;;\n        esac ;;\n");
}

static void put_bash(lp_sink *sink)
{
    lp_sink_text(sink, "# Tab completion of lineprofiler for bash (4.2 or later). In ~/.bashrc:\n"
                       "#     source <(lineprofiler completion bash)\n"
                       "_lineprofiler()\n"
                       "{\n"
                       "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words= kind= at\n"
                       "\n"
                       "    COMPREPLY=()\n"
                       "    # bash takes --name=value apart at its \"=\".\n"
                       "    if [[ $word == = ]]; then\n"
                       "        word=\n"
                       "    elif [[ $before == = ]]; then\n"
                       "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
                       "    fi\n"
                       "    ((COMP_CWORD > 1)) && case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < lp__cli_command_count; i++)
        put_bash_command(sink, lp__cli_commands[i]);
    lp_sink_text(sink, "    esac\n    ((COMP_CWORD == 1)) && words='");
    for (size_t i = 0; i < lp__cli_command_count; i++)
        lp_sink_format(sink, "%s ", lp__cli_commands[i]->name);
    lp_sink_text(sink, "-h --help --version'\n"
                       "    if [[ $kind ]]; then compopt -o \"$kind\"; fi\n"
                       "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                       "}\n"
                       "complete -F _lineprofiler lineprofiler\n");
}

/* --- zsh --- */

static void put_zsh_value(lp_sink *sink, const char *value, const char *choices)
{
    lp_sink_format(sink, ":%s:", value);
    if (choices) {
        lp_sink_char(sink, '(');
        put_choices(sink, choices, ' ');
        lp_sink_char(sink, ')');
    } else {
        const value_kind kind = kind_of(value);
        lp_sink_text(sink, kind == KIND_FILE ? "_files" : kind == KIND_DIRECTORY ? "_files -/" : "");
    }
}

static void put_zsh_option(lp_sink *sink, const lp_cli_option *option)
{
    lp_sink_text(sink, " \\\n            ");
    if (option->letter)
        lp_sink_format(sink, option->value ? "'(-%c %s)'{-%c+,%s=}'[" : "'(-%c %s)'{-%c,%s}'[", option->letter,
                       option->name, option->letter, option->name);
    else
        lp_sink_format(sink, option->value ? "'%s=[" : "'%s[", option->name);
    put_quoted(sink, option->help, "[]\\");
    lp_sink_char(sink, ']');
    if (option->value)
        put_zsh_value(sink, option->value, option->choices);
    lp_sink_char(sink, '\'');
}

static void put_zsh_command(lp_sink *sink, const lp_cli_command *command)
{
    lp_sink_format(sink, "    %s)\n        _arguments -s", command->name);
    for (size_t i = 0; i < command->option_count; i++)
        if (command->options[i].help)
            put_zsh_option(sink, &command->options[i]);
    lp_sink_text(sink, " \\\n            '(- *)'{-h,--help}'[show help and leave]'");
    if (has_version(command))
        lp_sink_text(sink, " \\\n            '(- *)--version[show the version and leave]'");
    if (command->has_program) { /* "(-)": no options of ours behind it */
        lp_sink_format(sink, " \\\n            '(-)1:%s:_files' '*::argument:_files'", command->arguments[0]);
    } else {
        for (size_t i = 0; i < LP_CLI_ARGUMENTS && command->arguments[i]; i++) {
            /* The last of a command in Python may come again. */
            bool many = command->in_python && (i + 1 == LP_CLI_ARGUMENTS || !command->arguments[i + 1]);
            lp_sink_format(sink, " \\\n            '%s", many ? "*" : i == 0 ? "1" : "2");
            put_zsh_value(sink, command->arguments[i], i == 0 ? command->argument_choices : NULL);
            lp_sink_char(sink, '\'');
        }
    }
    lp_sink_text(sink, " ;;\n");
}

static void put_zsh(lp_sink *sink)
{
    lp_sink_text(sink, "#compdef lineprofiler\n"
                       "# Tab completion of lineprofiler for zsh. In ~/.zshrc, behind compinit:\n"
                       "#     source <(lineprofiler completion zsh)\n"
                       "# or as a file _lineprofiler in a folder of $fpath.\n"
                       "_lineprofiler()\n"
                       "{\n"
                       "    local -a commands=(\n");
    for (size_t i = 0; i < lp__cli_command_count; i++) {
        lp_sink_format(sink, "        '%s:", lp__cli_commands[i]->name);
        put_quoted(sink, lp__cli_commands[i]->summary, "\\");
        lp_sink_text(sink, "'\n");
    }
    lp_sink_text(sink, "    )\n"
                       "    if ((CURRENT == 2)); then\n"
                       "        if [[ $words[2] == -* ]]; then\n"
                       "            compadd -- -h --help --version\n"
                       "        else\n"
                       "            _describe -t commands command commands\n"
                       "        fi\n"
                       "        return\n"
                       "    fi\n"
                       "    shift words\n"
                       "    ((CURRENT--))\n"
                       "    case $words[1] in\n");
    for (size_t i = 0; i < lp__cli_command_count; i++)
        put_zsh_command(sink, lp__cli_commands[i]);
    lp_sink_text(sink, "    esac\n"
                       "}\n"
                       "if [[ $funcstack[1] == _lineprofiler ]]; then\n"
                       "    _lineprofiler \"$@\"\n"
                       "else\n"
                       "    compdef _lineprofiler lineprofiler\n"
                       "fi\n");
}

/* --- fish --- */

static void put_fish_value(lp_sink *sink, const char *value, const char *choices)
{
    if (choices) {
        lp_sink_text(sink, " -x -a '");
        put_choices(sink, choices, ' ');
        lp_sink_char(sink, '\'');
    } else {
        const value_kind kind = kind_of(value);
        lp_sink_text(sink, kind == KIND_FILE        ? " -r -F"
                           : kind == KIND_DIRECTORY ? " -x -a '(__fish_complete_directories (commandline -ct))'"
                                                    : " -x");
    }
}

static void put_fish_command(lp_sink *sink, const lp_cli_command *command)
{
    static const char line[] = "complete -c lineprofiler -n '__lineprofiler_in %s'";
    const char *first = command->arguments[0];

    lp_sink_format(sink, "complete -c lineprofiler -n __lineprofiler_first -a %s -d '", command->name);
    put_quoted(sink, command->summary, "\\");
    lp_sink_text(sink, "'\n");
    for (size_t i = 0; i < command->option_count; i++) {
        const lp_cli_option *option = &command->options[i];
        if (!option->help)
            continue;
        lp_sink_format(sink, line, command->name);
        if (option->letter)
            lp_sink_format(sink, " -s %c", option->letter);
        lp_sink_format(sink, " -l %s", option->name + 2);
        if (option->value)
            put_fish_value(sink, option->value, option->choices);
        lp_sink_text(sink, " -d '");
        put_quoted(sink, option->help, "\\");
        lp_sink_text(sink, "'\n");
    }
    lp_sink_format(sink, line, command->name);
    lp_sink_text(sink, " -s h -l help -d 'show help and leave'\n");
    if (has_version(command)) {
        lp_sink_format(sink, line, command->name);
        lp_sink_text(sink, " -l version -d 'show the version and leave'\n");
    }
    lp_sink_format(sink, line, command->name);
    if (command->argument_choices) {
        lp_sink_text(sink, " -a '");
        put_choices(sink, command->argument_choices, ' ');
        lp_sink_text(sink, "'\n");
    } else {
        lp_sink_text(sink,
                     kind_of(first) == KIND_FILE ? " -F\n" : " -a '(__fish_complete_directories (commandline -ct))'\n");
    }
}

static void put_fish(lp_sink *sink)
{
    lp_sink_text(sink,
                 "# Tab completion of lineprofiler for fish. As ~/.config/fish/completions/lineprofiler.fish, or\n"
                 "#     lineprofiler completion fish | source\n"
                 "function __lineprofiler_first\n"
                 "    test (count (commandline -opc)) -eq 1\n"
                 "end\n"
                 "function __lineprofiler_in\n"
                 "    set -l words (commandline -opc)\n"
                 "    test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
                 "end\n"
                 "complete -c lineprofiler -f\n"
                 "complete -c lineprofiler -n __lineprofiler_first -s h -l help -d 'show help and leave'\n"
                 "complete -c lineprofiler -n __lineprofiler_first -l version -d 'show the version and leave'\n");
    for (size_t i = 0; i < lp__cli_command_count; i++)
        put_fish_command(sink, lp__cli_commands[i]);
}

static int run(const lp_cli_call *call)
{
    const char *shell = call->arguments[0];

    if (shell[0] == 'b')
        put_bash(call->io->out);
    else if (shell[0] == 'z')
        put_zsh(call->io->out);
    else
        put_fish(call->io->out);
    return LP_EXIT_OK;
}

const lp_cli_command lp__cli_completion = {
    .name = "completion",
    .summary = "a script that completes these commands at the Tab key",
    .details = "Prints a script for bash, zsh or fish: commands, options, what they take.\n"
               "For this session:\n"
               "  source <(lineprofiler completion bash)\n"
               "  source <(lineprofiler completion zsh)       behind compinit\n"
               "  lineprofiler completion fish | source",
    .arguments = {"SHELL"},
    .argument_choices = "bash|zsh|fish",
    .run = run,
};
