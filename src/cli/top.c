/* lineprofiler top RUN_DIR */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/output.h"
#include "cli/terminal.h"
#include "core/clock.h"
#include "render/top.h"

#define DEFAULT_INTERVAL_S 1.0
#define MIN_INTERVAL_S 0.1
#define MAX_INTERVAL_S 3600.0
#define OWN_SHARE 0.05 /* of a CPU: looks that cost more come less often */
#define FILTER_ROOM 64u

static const lp_cli_option options[] = {
    {"--once", 0, NULL, NULL, offsetof(lp_cli_values, once), "print one frame and leave, also without a terminal"},
    {"--interval", 0, "S", NULL, offsetof(lp_cli_values, interval), "seconds between two looks (default 1)"},
    {"--sort", 0, "ORDER", "self|total|rate|entries|mean|p95|wait|name", offsetof(lp_cli_values, sort),
     "self (default), total, rate, entries, mean,\n"
     "                            p95, wait or name"},
    {"--filter", 0, "TEXT", NULL, offsetof(lp_cli_values, filter), "only phases whose path holds it"},
    {"--role", 0, "ROLE", NULL, offsetof(lp_cli_values, role), "only this role"},
};

typedef struct session {
    const lp_cli_call *call;
    lp_top *top;
    lp_top_view view;
    lp_terminal *terminal;
    char filter[FILTER_ROOM];
    char *role; /* owned: the name that is chosen */
    lp_error error;
    lp_cli_near near;
    uint64_t looked_ns; /* CLOCK_MONOTONIC */
    unsigned most, page;
    bool failed; /* the last look; error says why */
} session;

static lp_str str_of(const char *text)
{
    return (lp_str){text, strlen(text)};
}

static lp_top_order order_of(const char *name)
{
    static const char *const names[] = {
        [LP_TOP_SELF] = "self", [LP_TOP_TOTAL] = "total", [LP_TOP_RATE] = "rate", [LP_TOP_ENTRIES] = "entries",
        [LP_TOP_MEAN] = "mean", [LP_TOP_P95] = "p95",     [LP_TOP_WAIT] = "wait", [LP_TOP_NAME] = "name"};

    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return (lp_top_order)i;
    return LP_TOP_SELF;
}

/* "2", "0.5": digits with one point, which is a point in every locale. */
static bool parse_seconds(const char *text, double *seconds)
{
    double value = 0.0, unit = 1.0;
    bool digits = false, point = false;

    for (; *text; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (*text < '0' || *text > '9' || value > MAX_INTERVAL_S)
            return false;
        digits = true;
        unit = point ? unit / 10.0 : 1.0;
        value = point ? value + unit * (*text - '0') : 10.0 * value + (*text - '0');
    }
    *seconds = value;
    return digits && value >= MIN_INTERVAL_S && value <= MAX_INTERVAL_S;
}

static void look(session *s)
{
    s->looked_ns = lp_clock_ns(CLOCK_MONOTONIC);
    s->failed = lp_top_look(s->top, s->call->arguments[0], &s->error) != LP_OK;
    if (s->failed && !s->error.text[0])
        s->failed = s->top->run == NULL;
}

/* What --once and the first frame answer for; LP_EXIT_OK: there is something to show, or there may be. */
static int check(session *s)
{
    const lp_cli_call *call = s->call;
    const char *directory = call->arguments[0];

    if (s->failed)
        return lp__cli_fail(call->io, "%s", s->error.text[0] ? s->error.text : directory);
    if (s->top->run->empty_reason[0] == 'm')
        return lp__cli_no_run(call->io, directory);
    if (s->top->run->empty_reason[0] && lp__cli_near_of(directory, s->near))
        s->view.near = s->near;
    if (s->top->run->worker_count == 0 && s->top->run->unreadable_count > 0)
        return lp__cli_fail(call->io, "%s: none of its %u worker file(s) can be read", directory,
                            s->top->run->unreadable_count);
    return LP_EXIT_OK;
}

static int print_once(session *s)
{
    const lp_cli_io *io = s->call->io;

    look(s);
    int result = check(s);
    if (result == LP_EXIT_OK && s->top->report->running > 0) { /* a rate needs two looks */
        struct timespec rest = {.tv_sec = (time_t)s->view.interval_s};
        rest.tv_nsec = (long)((s->view.interval_s - (double)rest.tv_sec) * 1e9);
        nanosleep(&rest, NULL);
        look(s);
        result = check(s);
    }
    if (result != LP_EXIT_OK)
        return result;
    s->view.width = io->width;
    s->view.color = false;
    lp_status status = lp_top_arrange(s->top, &s->view.choice);
    if (status == LP_OK)
        status = lp_render_top(s->top, &s->view, NULL, NULL, io->out);
    return status == LP_E_MEMORY ? lp__cli_fail(io, "out of memory") : LP_EXIT_OK;
}

/* false: the terminal is gone. */
static bool draw(session *s)
{
    lp_sink sink;
    bool ok = true;

    lp__terminal_size(s->terminal, &s->view.width, &s->view.height);
    s->view.message = s->failed ? "the run directory cannot be read; trying again" : NULL;
    if (lp_top_arrange(s->top, &s->view.choice) != LP_OK)
        return true; /* no memory now: the old frame stays */
    for (int pass = 0; pass < 2; pass++) {
        lp_sink_open_memory(&sink);
        lp_status status = lp_render_top(s->top, &s->view, &s->most, &s->page, &sink);
        if (status == LP_OK && lp_sink_flush(&sink) == LP_OK && (s->view.offset <= s->most || pass == 1))
            ok = lp__terminal_draw(s->terminal, sink.data, sink.size - (sink.size > 0)); /* no line below the last */
        lp_sink_free(&sink);
        if (s->view.offset <= s->most)
            break;
        s->view.offset = s->most;
    }
    return ok;
}

/* ---- keys */

static void choose_role(session *s, const lp_str *name)
{
    free(s->role);
    s->role = NULL;
    s->view.choice.role = (lp_str){NULL, 0};
    s->view.offset = 0;
    if (!name || !(s->role = malloc(name->size + 1)))
        return;
    memcpy(s->role, name->data, name->size);
    s->view.choice.role = (lp_str){s->role, name->size};
}

/* All, the first, the second, …, all. A role that is gone counts as all. */
static void step_role(session *s, int step)
{
    const lp_report *report = s->top->report;
    uint32_t count = report->role_count, at = 0;

    for (uint32_t i = 0; s->role && i < count; i++) {
        lp_str name = report->roles[i].role->name;
        if (name.size == s->view.choice.role.size && memcmp(name.data, s->role, name.size) == 0)
            at = i + 1;
    }
    at = step > 0 ? (at + 1) % (count + 1) : (at + count) % (count + 1);
    choose_role(s, at > 0 ? &report->roles[at - 1].role->name : NULL);
}

static void set_filter(session *s, size_t size)
{
    s->filter[size] = '\0';
    s->view.choice.filter = (lp_str){s->filter, size};
    s->view.offset = 0;
}

/* One byte of the filter; the last character goes whole. */
static void type(session *s, int key)
{
    size_t size = s->view.choice.filter.size;

    if (key == LP_KEY_ENTER) {
        s->view.typing = false;
    } else if (key == LP_KEY_ESCAPE) {
        s->view.typing = false;
        set_filter(s, 0);
    } else if (key == LP_KEY_ERASE) {
        while (size > 0 && ((unsigned char)s->filter[size - 1] & 0xc0) == 0x80)
            size--;
        set_filter(s, size > 0 ? size - 1 : 0);
    } else if (key == 21) { /* control-U */
        set_filter(s, 0);
    } else if (key >= ' ' && key < 256 && size + 1 < FILTER_ROOM) {
        s->filter[size] = (char)key;
        set_filter(s, size + 1);
    }
}

static void sort_by(session *s, lp_top_order order)
{
    s->view.choice.reverse = s->view.choice.order == order && !s->view.choice.reverse;
    s->view.choice.order = order;
    s->view.offset = 0;
}

static void scroll(session *s, int key)
{
    unsigned page = s->page > 2 ? s->page - 1 : 1, offset = s->view.offset;

    switch (key) {
    case LP_KEY_UP: offset = offset > 0 ? offset - 1 : 0; break;
    case LP_KEY_DOWN: offset++; break;
    case LP_KEY_PAGE_UP: offset = offset > page ? offset - page : 0; break;
    case LP_KEY_PAGE_DOWN: offset += page; break;
    case LP_KEY_HOME: offset = 0; break;
    case LP_KEY_END: offset = s->most; break;
    default: break;
    }
    s->view.offset = offset < s->most ? offset : s->most;
}

static void change_interval(session *s, double factor)
{
    double wanted = s->view.interval_s * factor;

    s->view.interval_s = wanted < MIN_INTERVAL_S ? MIN_INTERVAL_S : wanted > MAX_INTERVAL_S ? MAX_INTERVAL_S : wanted;
}

/* false: leave. */
static bool press(session *s, int key)
{
    static const char orders[] = {
        [LP_TOP_SELF] = 's', [LP_TOP_TOTAL] = 't', [LP_TOP_RATE] = 'r', [LP_TOP_ENTRIES] = 'e',
        [LP_TOP_MEAN] = 'm', [LP_TOP_P95] = 'p',   [LP_TOP_WAIT] = 'w', [LP_TOP_NAME] = 'n'};

    if (s->view.typing) {
        type(s, key);
        return true;
    }
    for (size_t i = 0; i < sizeof orders; i++)
        if (key == orders[i])
            sort_by(s, (lp_top_order)i);
    if (key >= '0' && key <= '9') {
        uint32_t at = (uint32_t)(key - '0');
        if (at == 0 || at <= s->top->report->role_count)
            choose_role(s, at > 0 ? &s->top->report->roles[at - 1].role->name : NULL);
    }
    switch (key) {
    case 'q':
    case 'Q':
    case 4: return false; /* control-D */
    case '?':
    case 'h': s->view.help = !s->view.help; break;
    case LP_KEY_ESCAPE:
        if (s->view.help)
            s->view.help = false;
        else
            set_filter(s, 0);
        break;
    case ' ': s->view.paused = !s->view.paused; break;
    case '/': s->view.typing = true; break;
    case '\t':
    case LP_KEY_RIGHT: step_role(s, 1); break;
    case LP_KEY_BACK_TAB:
    case LP_KEY_LEFT: step_role(s, -1); break;
    case '+': change_interval(s, 0.5); break;
    case '-': change_interval(s, 2.0); break;
    case 'j': scroll(s, LP_KEY_DOWN); break;
    case 'k': scroll(s, LP_KEY_UP); break;
    default: scroll(s, key); break;
    }
    return true;
}

/* Seconds until the next look. */
static double remaining(const session *s)
{
    double interval = s->view.interval_s, fair = (double)s->top->cost_ns / 1e9 / OWN_SHARE;

    if (fair > interval)
        interval = fair;
    return interval - (double)(lp_clock_ns(CLOCK_MONOTONIC) - s->looked_ns) / 1e9;
}

static int live(session *s)
{
    const lp_cli_io *io = s->call->io;
    bool going = true;

    look(s);
    int result = check(s);
    if (result != LP_EXIT_OK)
        return result;
    s->terminal = lp__terminal_open(io->terminal_in, io->terminal_out);
    if (!s->terminal)
        return lp__cli_fail(io, "the terminal cannot be used: %s", strerror(errno));
    going = draw(s);
    while (going) {
        bool redraw = false;
        double rest = remaining(s);
        int key = lp__terminal_key(s->terminal, s->view.paused ? MAX_INTERVAL_S : rest, &redraw);
        if (key == LP_KEY_GONE || (key != LP_KEY_NONE && !press(s, key)))
            break;
        bool due = !s->view.paused && remaining(s) <= 0.0;
        if (due)
            look(s);
        if (due || redraw || key != LP_KEY_NONE)
            going = draw(s);
    }
    lp__terminal_close(s->terminal);
    return LP_EXIT_OK;
}

static int run(const lp_cli_call *call)
{
    const lp_cli_values *values = &call->values;
    session s = {.call = call, .error = {.offset = UINT64_MAX}};
    int result;

    s.view = (lp_top_view){.color = call->io->color, .utf8 = call->io->utf8, .interval_s = DEFAULT_INTERVAL_S};
    s.view.choice = (lp_top_choice){.order = order_of(values->sort), .filter = {"", 0}, .role = {NULL, 0}};
    if (values->interval && !parse_seconds(values->interval, &s.view.interval_s))
        return lp__cli_fail(call->io, "top: --interval: '%s' is not a number of seconds between 0.1 and 3600",
                            values->interval);
    if (values->filter && strlen(values->filter) >= FILTER_ROOM)
        return lp__cli_fail(call->io, "top: --filter: at most %u bytes", FILTER_ROOM - 1);
    if (!values->once && (call->io->terminal_in < 0 || call->io->terminal_out < 0))
        return lp__cli_fail(call->io, "top: needs a terminal for input and output; --once prints one frame");
    if (values->filter) {
        memcpy(s.filter, values->filter, strlen(values->filter));
        set_filter(&s, strlen(values->filter));
    }
    if (values->role) {
        lp_str name = str_of(values->role);
        choose_role(&s, &name);
    }
    s.top = lp_top_new();
    result = !s.top ? lp__cli_fail(call->io, "out of memory") : values->once ? print_once(&s) : live(&s);
    lp_top_free(s.top);
    free(s.role);
    return result;
}

const lp_cli_command lp__cli_top = {
    .name = "top",
    .summary = "a run live in the terminal: rates, waits, what is open, who died",
    .details = "Shows a run while it goes: the phases of each role with their rates, shares and\n"
               "waits, what is open and since when, and processes that died. Nothing is written\n"
               "into RUN_DIR. Keys: ? lists them, q leaves.",
    .arguments = {"RUN_DIR"},
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
