/* The text report at every width: no line too long, nothing that moves a cursor, nothing lost by colour or ASCII. */
#include "check.h"
#include "make_runs.h"

#include "render/inert.h"
#include "render/render.h"

static const unsigned widths[] = {0, 20, 64, 72, 80, 100, 120, 160, 200, 500};

/* Owned by the caller. */
static char *text_of(const lp_run *run, lp_text_options options)
{
    static lp_sink sink;
    lp_report *report = NULL;

    lp_sink_open_memory(&sink);
    if (lp_report_new(run, &report) != LP_OK || lp_render_text(report, options, &sink) != LP_OK ||
        lp_sink_flush(&sink) != LP_OK)
        abort();
    lp_report_free(report);
    return sink.data ? sink.data : calloc(1, 1);
}

static unsigned page(unsigned width)
{
    unsigned given = width ? width : LP_TEXT_WIDTH;

    return given < LP_TEXT_MIN_WIDTH ? LP_TEXT_MIN_WIDTH : given > LP_TEXT_MAX_WIDTH ? LP_TEXT_MAX_WIDTH : given;
}

/* Checks every line; names the first bad one. */
static void check_lines(const char *name, char *text, unsigned width, bool ascii)
{
    for (char *line = text; *line;) {
        char *end = strchr(line, '\n');
        REQUIRE(end != NULL);
        *end = '\0';
        bool good = lp_text_columns(line) <= width && (end == line || end[-1] != ' ');
        for (const char *at = line; *at; at++)
            good = good && (unsigned char)*at >= 0x20 && *at != 0x7f && (!ascii || (unsigned char)*at < 0x80);
        if (!good) {
            printf("# %s at %u: %u columns: ", name, width, lp_text_columns(line));
            check_print_bytes(line, strlen(line));
            CHECK(good);
            return;
        }
        line = end + 1;
    }
}

static void every_line_fits(void)
{
    for (size_t r = 0; r < MADE_RUN_COUNT; r++) {
        lp_run *run = made_runs[r].make();
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (unsigned variant = 0; variant < 8; variant++) {
                lp_text_options options = {
                    .width = widths[w], .utf8 = variant & 1, .all = variant & 2, .samples = variant & 4};
                char *text = text_of(run, options);
                CHECK(strlen(text) > 20);
                check_lines(made_runs[r].name, text, page(widths[w]), !options.utf8);
                free(text);
            }
        lp_run_free(run);
    }
}

static void without_colour(char *text)
{
    char *to = text;

    for (const char *from = text; *from;) {
        if (from[0] == '\x1b' && from[1] == '[') {
            from += 2;
            from += strspn(from, "0123456789;");
            from += *from == 'm';
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

static void colour_changes_only_colour(void)
{
    for (size_t r = 0; r < MADE_RUN_COUNT; r++) {
        lp_run *run = made_runs[r].make();
        char *plain = text_of(run, (lp_text_options){.width = 100, .utf8 = true, .samples = true});
        char *colour = text_of(run, (lp_text_options){.width = 100, .utf8 = true, .samples = true, .color = true});
        CHECK(run->worker_count == 0 || strlen(colour) > strlen(plain));
        without_colour(colour);
        CHECK_STR(colour, plain);
        free(plain);
        free(colour);
        lp_run_free(run);
    }
}

static void check_has(const char *text, const char *wanted)
{
    bool found = strstr(text, wanted) != NULL;

    if (!found)
        printf("# not found: %s\n", wanted);
    CHECK(found);
}

/* Levels lie in each other: what is left out of them has no sum. A phase without a name is seen wherever it stands. */
static void levels_and_no_name(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "h", 1);
    char path[64] = "";

    for (unsigned level = 0; level < 20; level++) {
        snprintf(path + strlen(path), sizeof path - strlen(path), level ? "/%u" : "%u", level);
        lp_phase *phase = made_entries(worker, path, 1, (20 - level) * MS, (20 - level) * MS, 1.0, 0.0);
        phase->child_ns = (19 - level) * MS;
    }
    made_add(run, worker);
    worker = made_worker("other", "h", 2);
    uint32_t at = 0;
    if (lp_tree_child(&worker->tree, 0, made_str(""), &at) != LP_OK)
        abort();
    worker->tree.phases[at] = worker->tree.phases[0];
    worker->tree.phases[at].entries = 2;
    worker->tree.phases[at].wall_ns = worker->tree.phases[at].cpu_wall_ns = 2 * MS;
    made_add(run, worker);
    char *text = text_of(made_finish(run), (lp_text_options){.width = 80, .samples = true});
    check_has(text, ".. 8 more (--all)\n\nDOMINANT"); /* without 8 + 7 + ... + 1 of 20 ms: 180 % */
    check_has(text, "\n\"\"                           ###");
    check_has(text, "\n\"\"                                   2    2.0ms  100% ");
    check_has(text, "\n\"\"S  (2 entries)\n");
    free(text);
    lp_run_free(run);
}

static void has_what_the_readme_shows(void)
{
    lp_run *run = made_mcts();
    char *text = text_of(run, (lp_text_options){.utf8 = true, .samples = true});

    check_has(text, "Runtime 1m 40s   Processes 5   Roles learner x1, actor x4\n");
    check_has(text, "Hosts node07, node08 (2 nodes)   Run 20260921T155320-471c94\n");
    check_has(text, "\nACTOR  (4 processes, imbalance 1.60, slowest node08:4002)\n");
    check_has(text, "the wall time of iteration (first branching level), summed over");
    check_has(text, "\nDOMINANT PHASES                entries     self  wait      p50      p95      p99\n");
    check_has(text, "\nselect/score_children           25,300  142.3ms    0%");
    check_has(text, "    + children_scored          202,400 1,422,222.2/s   703ns/ea always 8\n");
    check_has(text, " 0..4 p50 1 p95 3\n");
    check_has(text, "\nITERATIONS  (8,000 entries)\n");
    check_has(text, "    blocked 99%, starved <1%\n");
    check_has(text, "starved 6% (no CPU was free)\n");
    check_has(text, "CPU time by rseq, clock TSC 2.4 GHz");
    check_has(text, "<0.1% of this run\n");
    free(text);
    lp_run_free(run);
}

static void names_every_trouble(void)
{
    static const char *const wanted[] = {
        "Still running 4 of 7, as of now; 1 closed; 1 as last written\n",
        "WARNING  1 of 8 worker file(s) are excluded as 1 earlier attempt(s)",
        "WARNING  1 of 9 worker file(s) could not be read",
        "WARNING  1 of 7 worker(s) died inside a phase",
        "WARNING  walk/walk is nested in a phase of the same name",
        "\n~decode ",
        "\n\xe2\x80\xa0upload ",
        "\n!fetch ",
        "1 entry in 100\n",
        "500 of 500 entries\n",
        "12 left by an exception",
        "1 never left: the phase object died open",
        "\nOPEN NOW ",
        "\nOPEN AT DEATH ",
        "\nOPEN WHEN LAST WRITTEN ",
        "2m 40s ago   actor node08:214",
        "1 worker file(s) unreadable",
        "damaged: checksum is wrong (byte 4711)",
        "20260920T101500-9caa21  1 worker",
        "node08:218 actor  after 10m 00s, 50m 00s before the end, inside",
        "node07:219 actor  last written 16m 40s early",
        "3 failure(s): /scratch/run/workers: No space left on",
        "37 path(s) beyond the limit of 4,096 are folded",
        "episode_4096",
        "2 times a phase was left that was not open",
        "recorded into private memory",
        "asked for, not recorded (comes with a later version): trace, backend=torch\n",
        "(no phase open)\n    + retries ",
        "wait not split in blocked",
    };
    lp_run *run = made_troubled();
    char *text = text_of(run, (lp_text_options){.utf8 = true, .samples = true});

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        check_has(text, wanted[i]);
    free(text);
    lp_run_free(run);
}

static void one_of_each_trouble(void)
{
    static const char *const wanted[] = {"\n1 entry was not recorded at all",
                                         "\n1 entry lay deeper than the depth limit and is counted",
                                         "\n1 time a phase was left that was not open",
                                         "\n1 on_snapshot callback raised an exception and was skipped",
                                         "\n1 entry was left in another thread than it was entered in",
                                         "\n1 duration would have been negative and counts as 0",
                                         "WARNING  1 entry could not be recorded"};
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("actor", "node07", 1);

    worker->health.lost_entries = worker->health.folded_depth = worker->health.misuse = 1;
    worker->health.callback_failures = worker->health.foreign_exits = worker->health.clock_backwards = 1;
    made_add(run, worker);
    char *text = text_of(made_finish(run), (lp_text_options){.width = 200, .samples = true});
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        check_has(text, wanted[i]);
    free(text);
    lp_run_free(run);
}

/* Forked workers of multiprocessing leave by os._exit: that is no trouble. */
/* One that had not ended when the newest began is likely to be of the same run, whose processes nobody gave one name. */
static void attempts_at_one_time(void)
{
    for (int ended = 0; ended < 2; ended++) {
        lp_run *run = made_or_die(lp_run_new());
        lp_worker *old = made_worker("actor", "node07", 99);
        old->id.run_id = made_str("20260921T155319-9caa21");
        old->id.started_ns = old->id.run_started_ns = MADE_START - SECOND;
        old->elapsed_ns = SECOND + (ended ? 0 : 1);
        made_add(run, made_worker("actor", "node07", 100));
        if (lp_run_add_superseded(run, old, true) != LP_OK)
            abort();
        made_finish(run);
        char *text = text_of(run, (lp_text_options){.width = 200, .utf8 = true});
        CHECK_EQ(strstr(text, "They ran at the same time: if they are one run, give all its processes one "
                              "LINEPROFILER_RUN_ID.") != NULL,
                 !ended);
        CHECK_EQ(strstr(text, "Give every attempt a directory of its own to keep them apart.") != NULL, ended);
        free(text);
        lp_run_free(run);
    }
}

/* Tasks that wait beside each other: more wall time than the process had, and CPU time that is nobody's. */
static void tasks_beside_each_other(void)
{
    for (int known = 0; known < 2; known++) {
        lp_run *run = made_or_die(lp_run_new());
        lp_worker *worker = made_worker("server", "node07", 100);
        lp_phase *phase = &worker->tree.phases[made_path(worker, "request")];
        phase->entries = 30;
        phase->wall_ns = (known ? 109 : 300) * SECOND;
        phase->min_ns = phase->max_ns = phase->wall_ns / 30;
        phase->cpu_wall_ns = phase->wall_ns - phase->wall_ns / 100 * (known ? 9 : 12);
        made_add(run, worker);
        made_finish(run);
        char *text = text_of(run, (lp_text_options){.width = 200, .utf8 = true});
        CHECK_EQ(strstr(text, "% of 5m 00s, the wall time of the top phase, in tasks or threads beside each other "
                              "within 1m 40s;") != NULL,
                 !known);
        CHECK_EQ(strstr(text, "CPU time is not known of entries during which their thread ran other tasks (await), or "
                              "that ended in another thread: wait is n/a, or of the rest only:") != NULL,
                 !known);
        CHECK_EQ(strstr(text, "beside each other") != NULL, !known);
        free(text);
        lp_run_free(run);
    }
}

static void an_end_outside_every_phase_is_no_warning(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_actor(1, 1);

    worker->final = false;
    worker->unclean = true;
    made_add(run, worker);
    made_finish(run);
    char *text = text_of(run, (lp_text_options){.utf8 = true});
    CHECK(strstr(text, "WARNING") == NULL);
    check_has(text, "1 worker(s) ended without closing while no phase was open");
    free(text);
    lp_run_free(run);
}

static void the_best_dozen_without_all(void)
{
    lp_run *run = made_many();
    char *some = text_of(run, (lp_text_options){.utf8 = true});
    char *all = text_of(run, (lp_text_options){.utf8 = true, .all = true});

    check_has(some, "\n\xe2\x80\xa6 29 more (--all)\n");
    CHECK(strstr(some, "part_bn") == NULL);
    check_has(all, "loop/part_bn");
    CHECK(strstr(all, "more (--all)") == NULL);
    CHECK(strstr(some, "MEMORY") == NULL); /* without samples */
    free(some);
    free(all);
    lp_run_free(run);
}

/* What has no room goes on below: whole, not cut, and not beyond the page. */
static void what_is_too_long_goes_on_below(void)
{
    lp_run *run = made_wide();
    char *text = text_of(run, (lp_text_options){.width = 64, .utf8 = true});

    check_has(text, "Roles\n    ");
    check_has(text, "(3 nodes)\n");
    check_has(text, "\n      1,700,000,000,000,000,000..9,223,372,036,854,775,807\n      p50 ");
    check_has(text, " (128 of 256 CPUs may be used)");
    check_has(text, "\n    2 more\n");
    free(text);
    lp_run_free(run);
}

/* Clocks of nine machines: six are named, and how many are not. */
static void what_is_left_out_is_counted(void)
{
    static const char *const clocks[] = {"TSC 2.00 GHz", "TSC 2.01 GHz", "TSC 2.02 GHz", "TSC 2.03 GHz", "TSC 2.04 GHz",
                                         "TSC 2.05 GHz", "TSC 2.06 GHz", "TSC 2.07 GHz", "TSC 2.08 GHz"};
    lp_run *run = made_or_die(lp_run_new());

    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        lp_worker *worker = made_worker("main", "node07", 1 + (int64_t)i);
        made_entries(worker, "step", 10, MS, MS, 1.0, 0.0);
        worker->clock = made_str(clocks[i]);
        made_add(run, worker);
    }
    made_finish(run);
    for (unsigned all = 0; all < 2; all++) {
        char *text = text_of(run, (lp_text_options){.utf8 = true, .all = all});
        for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
            CHECK_EQ(strstr(text, clocks[i]) != NULL, all || i < 6);
        CHECK_EQ(strstr(text, "\n  \xe2\x80\xa6 3 more (--all)\n") != NULL, !all);
        free(text);
    }
    lp_run_free(run);
}

/* 64 bytes are not 32 columns: letters with two marks each stay whole. */
static void a_title_is_cut_between_characters(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "node07", 1);
    char name[101] = "";

    for (size_t i = 0; i < 20; i++)
        memcpy(name + 5 * i, "e\xcc\x81\xcc\x82", 6);
    made_entries(worker, name, 10, MS, MS, 1.0, 0.0);
    made_add(run, worker);
    made_finish(run);
    char *text = text_of(run, (lp_text_options){.utf8 = true});
    CHECK(strstr(text, "\\xcc") == NULL);
    check_has(text, "E\xcc\x81\xcc\x82S  (10 entries)\n");
    free(text);
    lp_run_free(run);
}

static void no_bare_other(void)
{
    lp_run *run = made_chain();
    char *text = text_of(run, (lp_text_options){.utf8 = true, .samples = true});

    CHECK(strstr(text, "\nOther") == NULL);
    check_has(text, "\nmain/step/inner ");
    check_has(text, " 50.0%      5.00s\n");
    check_has(text, "\nSTEPS  (100 entries)\n");
    free(text);
    lp_run_free(run);
}

static void not_measured_is_no_zero(void)
{
    lp_run *run = made_or_die(lp_run_new());
    lp_worker *worker = made_worker("main", "node07", 1);

    lp_phase *phase = made_entries(worker, "a", 10, MS, 2 * MS, 0.5, 0.0);
    phase->cpu_wall_ns = phase->cpu_ns = phase->split_wait_ns = 0;
    made_entries(worker, "b", 10, MS, 2 * MS, 1.0, 0.0);
    made_open(worker, "c", 5 * MS, 1);
    made_nesting(worker);
    worker->own_cost_ps = worker->own_count_cost_ps = 0;
    worker->cpu_source = made_str("not measured");
    made_add(run, worker);
    made_finish(run);
    char *text = text_of(run, (lp_text_options){.utf8 = true, .samples = true});
    check_has(text, "\na                                   10   15.0ms   n/a ");
    check_has(text, "\nb                                   10   15.0ms    0% ");
    check_has(text, "\nc                                    0    5.0ms   n/a      n/a      n/a      n/a\n");
    check_has(text, "own cost: not measured\n");
    free(text);
    lp_run_free(run);
}

int main(void)
{
    RUN(every_line_fits);
    RUN(colour_changes_only_colour);
    RUN(levels_and_no_name);
    RUN(has_what_the_readme_shows);
    RUN(names_every_trouble);
    RUN(one_of_each_trouble);
    RUN(attempts_at_one_time);
    RUN(tasks_beside_each_other);
    RUN(an_end_outside_every_phase_is_no_warning);
    RUN(the_best_dozen_without_all);
    RUN(what_is_too_long_goes_on_below);
    RUN(what_is_left_out_is_counted);
    RUN(a_title_is_cut_between_characters);
    RUN(no_bare_other);
    RUN(not_measured_is_no_zero);
    return check_done();
}
