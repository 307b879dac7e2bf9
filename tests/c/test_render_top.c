/* A frame of the live view at every size: no line too long, none too many, nothing that moves a cursor. And the rates, orders and
 * choices of the view behind it. */
#include "check.h"
#include "make_runs.h"

#include <math.h>

#include "render/inert.h"
#include "render/line.h"
#include "render/top.h"

static void take(lp_top *top, lp_run *run)
{
    lp_report *report = NULL;

    if (!top || lp_report_new(run, &report) != LP_OK)
        abort();
    lp_report_free(top->report);
    lp_run_free(top->run);
    top->run = run;
    top->report = report;
}

/* Owned by the caller. */
static char *frame_of(lp_top *top, const lp_top_view *view, unsigned *most)
{
    static lp_sink sink;

    lp_sink_open_memory(&sink);
    if (lp_top_arrange(top, &view->choice) != LP_OK || lp_render_top(top, view, most, NULL, &sink) != LP_OK ||
        lp_sink_flush(&sink) != LP_OK)
        abort();
    return sink.data ? sink.data : calloc(1, 1);
}

/* Number of lines; names the first bad one. */
static unsigned check_lines(const char *name, char *text, const lp_top_view *view)
{
    unsigned lines = 0;

    for (char *line = text; *line; lines++) {
        char *end = strchr(line, '\n');
        if (!end)
            abort();
        *end = '\0';
        bool good = lp_text_columns(line) <= view->width;
        for (const char *at = line; *at; at++)
            good = good && (unsigned char)*at >= 0x20 && *at != 0x7f && (view->utf8 || (unsigned char)*at < 0x80);
        if (!good) {
            printf("# %s at %ux%u: ", name, view->width, view->height);
            check_print_bytes(line, strlen(line));
            CHECK(good);
        }
        line = end + 1;
    }
    return lines;
}

static void every_size(void)
{
    static const unsigned widths[] = {1, 2, 5, 10, 20, 21, 33, 40, 47, 59, 65, 73, 80, 99, 107, 108, 132, 200, 1000};
    static const unsigned heights[] = {0, 1, 2, 3, 4, 5, 6, 8, 11, 12, 24, 60, 500};

    for (size_t r = 0; r < MADE_RUN_COUNT; r++) {
        lp_top *top = lp_top_new();
        REQUIRE(top != NULL);
        take(top, made_runs[r].make());
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (size_t h = 0; h < sizeof heights / sizeof *heights; h++)
                for (unsigned variant = 0; variant < 16; variant++) {
                    lp_top_view view = {.width = widths[w],
                                        .height = heights[h],
                                        .utf8 = variant & 1,
                                        .help = variant & 2,
                                        .offset = variant & 4 ? 3 : 0,
                                        .interval_s = 1.0,
                                        .choice = {.filter = {"e", variant & 8 ? 1 : 0}}};
                    char *text = frame_of(top, &view, NULL);
                    unsigned lines = check_lines(made_runs[r].name, text, &view);
                    if (view.height > 0)
                        CHECK_EQ(lines, view.height);
                    free(text);
                }
        lp_top_free(top);
    }
}

/* The whole table can be reached by scrolling: the last row is on the page of the greatest offset. */
static void scrolling_reaches_the_end(void)
{
    lp_top *top = lp_top_new();
    lp_top_view view = {.width = 200, .height = 10, .utf8 = true, .interval_s = 1.0};
    unsigned most = 0;

    take(top, made_many());
    free(frame_of(top, &view, &most));
    REQUIRE(most > 0);
    view.offset = most;
    char *text = frame_of(top, &view, &most);
    CHECK_EQ(most, view.offset);
    const lp_top_role *last = &top->roles[top->role_count - 1];
    const lp_report_phase *phase = &top->report->roles[last->role].phases[last->rows[last->row_count - 1].phase];
    char name[64];
    snprintf(name, sizeof name, "%.*s ", (int)phase->path.size, phase->path.data);
    CHECK(strstr(text, name) != NULL);
    free(text);
    lp_top_free(top);
}

/* Of three roles with four phases each: what is shown of each, by the height of the terminal. */
static void lines_go_to_the_roles(void)
{
    static const struct {
        unsigned height, rows[3], more[3]; /* more: what is said to be left out, 0: nothing is said */
    } cases[] = {
        {20, {4, 4, 4}, {0, 0, 0}}, {19, {4, 4, 2}, {0, 0, 2}}, {18, {4, 2, 2}, {0, 2, 2}}, {17, {2, 2, 2}, {2, 2, 2}},
        {16, {2, 2, 1}, {2, 2, 3}}, {14, {1, 1, 1}, {3, 3, 3}}, {9, {2, 0, 0}, {0, 0, 0}},  {8, {1, 0, 0}, {0, 0, 0}},
    };
    static const char *const roles[] = {"one", "two", "three"};
    lp_run *run = made_or_die(lp_run_new());
    lp_top *top = lp_top_new();

    REQUIRE(top != NULL);
    for (unsigned r = 0; r < 3; r++) {
        lp_worker *worker = made_worker(roles[r], "h", r + 1);
        for (unsigned p = 0; p < 4; p++)
            made_entries(worker, (const char *const[]){"p0", "p1", "p2", "p3"}[p], 10, (4 - r) * MS, (4 - r) * MS, 1,
                         0);
        made_add(run, worker);
    }
    take(top, made_finish(run));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_top_view view = {.width = 80, .height = cases[i].height, .interval_s = 1.0};
        unsigned rows[3] = {0}, more[3] = {0}, role = 0;
        char *text = frame_of(top, &view, NULL);
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
            for (unsigned r = 0; r < 3; r++)
                if (strncmp(line, roles[r], strlen(roles[r])) == 0)
                    role = r;
            rows[role] += strncmp(line, "  p", 3) == 0;
            if (strncmp(line, "  .. ", 5) == 0)
                more[role] = (unsigned)atoi(line + 5);
        }
        for (unsigned r = 0; r < 3; r++) {
            CHECK_EQ(rows[r], cases[i].rows[r]);
            CHECK_EQ(more[r], cases[i].more[r]);
        }
        free(text);
    }
    lp_top_free(top);
}

/* A line that does not fit ends in an ellipsis, in all colours: "100h" without its end would be a time, too. */
static void what_is_cut_looks_cut(void)
{
    static const struct {
        unsigned width;
        bool utf8, color;
        const char *end;
    } cases[] = {{8, true, false, "0123456\xe2\x80\xa6\n"},
                 {8, false, false, "012345..\n"},
                 {10, true, false, "0123456789\n"},
                 {1, true, false, "0\n"},
                 {8, true, true, "0123456\x1b[0m\x1b[0m\xe2\x80\xa6\n"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *line = cases[i].color ? "0123\x1b[1m456789\x1b[0m\n" : "0123456789\n";
        static lp_sink sink;
        lp_sink_open_memory(&sink);
        lp_line_cut(&sink, line, strlen(line), cases[i].width, cases[i].color, cases[i].utf8);
        REQUIRE(lp_sink_flush(&sink) == LP_OK);
        size_t size = strlen(cases[i].end);
        if (cases[i].color)
            CHECK(strstr(sink.data, "\x1b[1m456\x1b[0m\x1b[0m\xe2\x80\xa6\n") != NULL);
        else
            CHECK_MEM(sink.data, cases[i].end, size + 1);
        lp_sink_free(&sink);
    }
}

static void orders(void)
{
    lp_top *top = lp_top_new();

    take(top, made_mcts());
    for (unsigned order = LP_TOP_SELF; order <= LP_TOP_NAME; order++)
        for (unsigned reverse = 0; reverse < 2; reverse++) {
            lp_top_choice choice = {.order = (lp_top_order)order, .reverse = reverse, .filter = {"", 0}};
            REQUIRE(lp_top_arrange(top, &choice) == LP_OK);
            for (uint32_t r = 0; r < top->role_count; r++) {
                const lp_top_role *role = &top->roles[r];
                CHECK_EQ(role->row_count, role->phase_count);
                for (uint32_t i = 0; i + 1 < role->row_count; i++) {
                    const lp_report_phase *a = &top->report->roles[role->role].phases[role->rows[i].phase];
                    const lp_report_phase *b = &top->report->roles[role->role].phases[role->rows[i + 1].phase];
                    const double figures[][2] = {
                        [LP_TOP_SELF] = {(double)(a->self_ns + a->open_self_ns),
                                         (double)(b->self_ns + b->open_self_ns)},
                        [LP_TOP_TOTAL] = {(double)a->extent_ns, (double)b->extent_ns},
                        [LP_TOP_RATE] = {0, 0}, /* one look has none */
                        [LP_TOP_ENTRIES] = {(double)a->entries, (double)b->entries},
                        [LP_TOP_MEAN] = {a->mean_ns, b->mean_ns},
                        [LP_TOP_P95] = {a->p95_ns, b->p95_ns},
                        [LP_TOP_WAIT] = {a->wait, b->wait},
                    };
                    if (order == LP_TOP_NAME) {
                        size_t least = a->path.size < b->path.size ? a->path.size : b->path.size;
                        int way = memcmp(a->path.data, b->path.data, least);
                        CHECK(reverse ? way >= 0 : way <= 0);
                    } else if (!isnan(figures[order][0]) && !isnan(figures[order][1])) {
                        CHECK(reverse ? figures[order][0] <= figures[order][1]
                                      : figures[order][0] >= figures[order][1]);
                    } else {
                        CHECK(isnan(figures[order][1])); /* what is not measured stands last */
                    }
                    CHECK(isnan(role->rows[i].rate));
                }
            }
        }
    lp_top_free(top);
}

static void choices(void)
{
    lp_top *top = lp_top_new();
    lp_top_choice choice = {.role = {"learner", 7}, .filter = {"TRAIN", 5}};

    take(top, made_mcts());
    REQUIRE(lp_top_arrange(top, &choice) == LP_OK);
    REQUIRE(top->role_count == 1);
    REQUIRE(top->roles[0].row_count == 1);
    const lp_report_role *role = &top->report->roles[top->roles[0].role];
    CHECK(role->phases[top->roles[0].rows[0].phase].name.size == 5);
    choice.role = (lp_str){"nobody", 6};
    REQUIRE(lp_top_arrange(top, &choice) == LP_OK);
    CHECK_EQ(top->role_count, 0);
    lp_top_free(top);
}

int main(void)
{
    RUN(every_size);
    RUN(lines_go_to_the_roles);
    RUN(scrolling_reaches_the_end);
    RUN(what_is_cut_looks_cut);
    RUN(orders);
    RUN(choices);
    return check_done();
}
