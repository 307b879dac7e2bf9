/* Command lines of any words (the input is cut at its NULs): every answer is one of the exit codes, every complaint is inert and
 * one line below the usage. Every command's options are parsed; commands are called too, on directories that do not exist, unless they
 * would write a file. */
#include <string.h>

#include "cli/options.h"
#include "fuzz.h"

#define WORDS 16

static const lp_cli_command *const commands[] = {&lp__cli_report, &lp__cli_top, &lp__cli_compare, &lp__cli_dump};

static void parse(const lp_cli_command *command, int argc, const char *const *argv, const lp_cli_io *io)
{
    lp_cli_call call = {.command = command, .io = io};
    bool done = true;

    int result = lp__cli_parse(&call, argc, argv, &done);
    FUZZ_MUST(lp_sink_flush(io->out) == LP_OK && lp_sink_flush(io->err) == LP_OK);
    FUZZ_MUST(result == LP_EXIT_OK || result == LP_EXIT_USAGE);
    FUZZ_MUST((result == LP_EXIT_USAGE) == (io->err->size > 0));
    FUZZ_MUST(done == (io->out->size > 0));
    if (result != LP_EXIT_OK || done)
        return;
    for (size_t i = 0; i < LP_CLI_ARGUMENTS; i++)
        FUZZ_MUST((call.arguments[i] != NULL) == (command->arguments[i] != NULL));
    if (call.values.format)
        FUZZ_MUST(strcmp(call.values.format, "text") == 0 || strcmp(call.values.format, "json") == 0 ||
                  strcmp(call.values.format, "html") == 0);
    if (call.values.output) /* would be written */
        return;
    for (size_t i = 0; i < LP_CLI_ARGUMENTS && call.arguments[i]; i++)
        call.arguments[i] = "/proc/self/no such place";
    result = command->run(&call);
    FUZZ_MUST(lp_sink_flush(io->out) == LP_OK && lp_sink_flush(io->err) == LP_OK);
    FUZZ_MUST(result == LP_EXIT_USAGE && (io->err->size > 0 || io->out->size > 0));
}

static void must_complain_well(const lp_sink *err)
{
    size_t lines = 0;

    for (size_t i = 0; i < err->size; i++)
        lines += err->data[i] == '\n';
    FUZZ_MUST(lines <= 2 && (err->size == 0 || err->data[err->size - 1] == '\n'));
    fuzz_must_be_inert(err->data, err->size);
}

static bool is_command(const char *word)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(word, commands[i]->name) == 0)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *words[WORDS];
    int count = 0;
    lp_sink out, err;
    char *text = malloc(size + 1);

    FUZZ_MUST(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    for (size_t at = 0; at < size && count < WORDS; at += strlen(text + at) + 1)
        words[count++] = text + at;
    lp_cli_io io = {.out = &out, .err = &err, .terminal_in = -1, .terminal_out = -1};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        lp_sink_open_memory(&out);
        lp_sink_open_memory(&err);
        parse(commands[i], count, words, &io);
        must_complain_well(&err);
        lp_sink_free(&out);
        lp_sink_free(&err);
    }
    if (count > 0 && !is_command(words[0])) {
        lp_sink_open_memory(&out);
        lp_sink_open_memory(&err);
        int result = lp_cli_main(count, words, &io);
        FUZZ_MUST(result == LP_EXIT_OK || result == LP_EXIT_USAGE);
        fuzz_must_be_inert(err.data, err.size);
        lp_sink_free(&out);
        lp_sink_free(&err);
    }
    free(text);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    static const struct {
        const char *words;
        size_t size;
    } seeds[] = {
#define SEED(words) {words, sizeof words - 1}
        SEED("run\0--format=json\0-o\0out.txt"),
        SEED("--all\0--no-samples\0--json\0run"),
        SEED("a\0b\0--format\0html"),
        SEED("--outptu\0x\0--\0-o"),
        SEED("reprot\0run"),
        SEED("--once\0--interval=0.25\0--sort=p95\0--filter\0\xc3\xa9\0--role\0actor\0run"),
        SEED("--interval\0"
             "1e400\0--sort\0name\0--once\0run"),
        SEED("top\0run"),
        SEED("lines\0show\0--help"),
        SEED("--help"),
        SEED("--version"),
        SEED("help\0report"),
        SEED("-oout\0-h\0\x1b[2J\0\xff\xfe"),
#undef SEED
    };
    if (index >= sizeof seeds / sizeof *seeds)
        return 0;
    memcpy(out, seeds[index].words, seeds[index].size);
    return seeds[index].size;
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    (void)data, (void)room;
    return size;
}
