/* The JSON document is valid whatever the names are, and null where nothing was measured. */
#include "check.h"
#include "make_runs.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "render/json_write.h"
#include "render/render.h"

static lp_sink sink;

/* Owned by the caller. */
static char *json_of(const lp_run *run)
{
    lp_report *report = NULL;

    lp_sink_open_memory(&sink);
    if (lp_report_new(run, &report) != LP_OK || lp_render_json(report, true, &sink) != LP_OK ||
        lp_sink_flush(&sink) != LP_OK)
        abort();
    lp_report_free(report);
    return sink.data;
}

static bool valid(const char *text)
{
    return lp_json_is_valid((lp_str){text, strlen(text)});
}

static void the_checker_knows_json(void)
{
    static const char *const good[] = {
        "0", "-1.5e+3", "\"\"", "[]", "{}", " [1, {\"a\": [true, false, null]}] ", "\"\\u00e9\\n\"", "\"\xc3\xa9\""};
    static const char *const bad[] = {"",        "01",          "1.",       "+1",      "nan",         "[1,]",
                                      "{\"a\"}", "{a: 1}",      "\"a\nb\"", "\"\\x\"", "\"\\u12g4\"", "\"",
                                      "[1] 2",   "{\"a\": 1,}", "tru",      "\xc3\xa9"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (valid(bad[i]))
            printf("# taken for JSON: %s\n", bad[i]);
        CHECK(!valid(bad[i]));
    }
}

static void every_run_is_valid_json(void)
{
    for (size_t r = 0; r < MADE_RUN_COUNT; r++) {
        lp_run *run = made_runs[r].make();
        char *text = json_of(run);
        CHECK(valid(text));
        for (const char *at = text; *at; at++)
            if ((unsigned char)*at >= 0x7f || ((unsigned char)*at < 0x20 && *at != '\n') || *at == '<') {
                CHECK_EQ(*at, 0);
                break;
            }
        free(text);
        lp_run_free(run);
    }
}

static const char *string_of(const char *data, size_t size)
{
    static char text[256];
    lp_json json = {.sink = &sink, .fresh = true};

    lp_sink_open_memory(&sink);
    lp_json_string(&json, (lp_str){data, size});
    lp_sink_flush(&sink);
    snprintf(text, sizeof text, "%s", sink.data);
    lp_sink_free(&sink);
    return text;
}

static void strings(void)
{
    CHECK_STR(string_of("a/b", 3), "\"a/b\"");
    CHECK_STR(string_of("\"\\", 2), "\"\\\"\\\\\"");
    CHECK_STR(string_of("a\0\n\x1b", 4), "\"a\\u0000\\u000a\\u001b\"");
    CHECK_STR(string_of("</script>&", 10), "\"\\u003c/script\\u003e\\u0026\"");
    CHECK_STR(string_of("\xc3\xa9\xe2\x80\xa8", 5), "\"\\u00e9\\u2028\"");
    CHECK_STR(string_of("\xf0\x9f\x94\xa5", 4), "\"\\ud83d\\udd25\"");
    CHECK_STR(string_of("\xed\xb3\xbf", 3), "\"\\udcff\""); /* a lone surrogate keeps its value */
    CHECK_STR(string_of("\xff", 1), "\"\\udcff\"");         /* as surrogateescape reads that byte */
    CHECK_STR(string_of("", 0), "\"\"");
}

static const char *number_of(double value)
{
    static char text[64];
    lp_json json = {.sink = &sink, .fresh = true};

    lp_sink_open_memory(&sink);
    lp_json_double(&json, value);
    lp_sink_flush(&sink);
    snprintf(text, sizeof text, "%s", sink.data);
    lp_sink_free(&sink);
    return text;
}

static void numbers(void)
{
    CHECK_STR(number_of(1.0), "1.0");
    CHECK_STR(number_of(0.1), "0.1");
    CHECK_STR(number_of(1.0 / 3), "0.3333333333333333");
    CHECK_STR(number_of(1e300), "1e+300");
    CHECK_STR(number_of((double)NAN), "null");
    CHECK_STR(number_of((double)INFINITY), "null");
}

/* What follows `key` in the document, up to the comma. */
static const char *value_after(const char *text, const char *from, const char *key)
{
    static char value[128];
    char wanted[64];

    snprintf(wanted, sizeof wanted, "\"%s\": ", key);
    const char *at = strstr(text, from);
    at = at ? strstr(at, wanted) : NULL;
    if (!at)
        return "(not there)";
    at += strlen(wanted);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(at, ",\n"), at);
    return value;
}

static void null_where_not_measured(void)
{
    lp_run *run = made_troubled();
    char *text = json_of(run);
    const char *phase = "\"phase\": \"iteration/queue_get\",\n     \"path\"";

    CHECK_STR(value_after(text, phase, "calls"), "0");
    CHECK_STR(value_after(text, phase, "wait_ns"), "null");
    CHECK_STR(value_after(text, phase, "cpu_ns"), "null");
    CHECK_STR(value_after(text, phase, "p50_ns"), "null");
    CHECK_STR(value_after(text, phase, "min_ns"), "null");
    CHECK_STR(value_after(text, phase, "wait_share"), "null");
    CHECK_STR(value_after(text, phase, "open"), "3");
    CHECK_STR(value_after(text, phase, "open_ns"), "480000000000");
    CHECK_STR(value_after(text, "\"phase\": \"decode\",\n     \"path\"", "sample_stride"), "100");
    CHECK_STR(value_after(text, "\"phase\": \"decode\",\n     \"path\"", "sampled"), "true");
    CHECK_STR(value_after(text, "\"phase\": \"upload\",\n     \"path\"", "async"), "true");
    CHECK_STR(value_after(text, "\"phase\": \"fetch\",\n     \"path\"", "trusted"), "false");
    CHECK_STR(value_after(text, "\"source\": {", "dirty_files"), "null");
    CHECK_STR(value_after(text, "\"workers\": [", "rank"), "null");
    free(text);
    lp_run_free(run);
}

static void the_source_of_the_user_is_json_again(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "node07", 1);
    static lp_pair extra[] = {{{"branch", 6}, {"\"a<b\"", 5}}, {{"n", 1}, {"[1, 2.5]", 8}}, {{"bad", 3}, {"oops", 4}}};

    worker->id.source_extra = extra;
    worker->id.source_extra_count = 3;
    made_add(run, worker);
    made_finish(run);
    char *text = json_of(run);
    CHECK(valid(text));
    CHECK_STR(value_after(text, "\"source\"", "branch"), "\"a\\u003cb\"");
    CHECK(strstr(text, "\"n\": [1, 2.5],") != NULL);
    CHECK_STR(value_after(text, "\"source\"", "bad"), "\"oops\"");
    free(text);
    lp_run_free(run);
}

/* A pipe that somebody has made non-blocking: what it has no room for waits, and is not lost. */
static void a_full_pipe_is_waited_for(void)
{
    enum { SIZE = 300000 }; /* more than a pipe holds */
    int ends[2], status = -1;

    REQUIRE(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    pid_t reader = fork();
    REQUIRE(reader >= 0);
    if (reader == 0) {
        struct pollfd room = {.fd = ends[1], .events = POLLOUT};
        char buffer[4096];
        size_t got = 0;
        ssize_t n = 0;
        for (int i = 0; i < 120000 && poll(&room, 1, 0) > 0; i++) /* two minutes: a hang is no pass */
            usleep(1000);
        close(ends[1]);
        while ((n = read(ends[0], buffer, sizeof buffer)) > 0)
            got += (size_t)n;
        _exit(got == SIZE ? 0 : 1);
    }
    close(ends[0]);
    lp_sink_open_fd(&sink, ends[1]);
    for (int i = 0; i < SIZE / 100; i++)
        lp_sink_repeat(&sink, "0123456789", 10);
    CHECK_EQ(lp_sink_flush(&sink), LP_OK);
    close(ends[1]);
    CHECK(waitpid(reader, &status, 0) == reader);
    CHECK_EQ(status, 0);
}

int main(void)
{
    RUN(the_checker_knows_json);
    RUN(every_run_is_valid_json);
    RUN(strings);
    RUN(numbers);
    RUN(null_where_not_measured);
    RUN(the_source_of_the_user_is_json_again);
    RUN(a_full_pipe_is_waited_for);
    return check_done();
}
