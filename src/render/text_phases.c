/* DOMINANT PHASES: one row a phase, its waits and counters below, and the notes that its marks need; ITERATIONS; I/O BY
 * PHASE; the phases that are open. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/text_internal.h"

/* A column of the table. Which ones are shown depends on the width of the page only, so that reports line up. */
typedef struct table_column {
    const char *title;
    unsigned width;
    unsigned from; /* page width at which it appears */
    char *(*show)(lp_unit out, const lp_report_phase *phase);
} table_column;

static char *show_entries(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_count_in(out, (lp_i128)phase->entries, 11);
}

static char *show_errors(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_count_in(out, (lp_i128)phase->errors, 7);
}

static char *show_self(lp_unit out, const lp_report_phase *phase)
{
    /* A row that is estimated as a whole is marked at its start. */
    return lp_unit_about(out, phase->self_estimated && phase->stride <= 1,
                         (double)phase->self_ns + (double)phase->open_self_ns);
}

static char *show_share(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_percent(out, phase->self_share);
}

static char *show_wait(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_whole_percent(out, phase->wait);
}

static char *show_blocked(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_whole_percent(out, phase->blocked);
}

static char *show_starved(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_whole_percent(out, phase->starved);
}

static char *show_mean(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_ns(out, phase->mean_ns);
}

static char *show_p50(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_ns(out, phase->p50_ns);
}

static char *show_p95(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_ns(out, phase->p95_ns);
}

static char *show_p99(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_ns(out, phase->p99_ns);
}

static char *show_max(lp_unit out, const lp_report_phase *phase)
{
    return lp_unit_ns(out, phase->entries > 0 ? (double)phase->max_ns : (double)NAN);
}

#define SPLIT_FROM 100u /* where blocked and starved have columns of their own; below, a line under the phase */
#define ERRORS_FROM 140u

static const table_column columns[] = {
    {"entries", 12, 0, show_entries},
    {"self", 9, 0, show_self},
    {"share", 8, 108, show_share},
    {"wait", 6, 0, show_wait},
    {"blocked", 9, SPLIT_FROM, show_blocked},
    {"starved", 9, SPLIT_FROM, show_starved},
    {"mean", 9, 118, show_mean},
    {"p50", 9, 0, show_p50},
    {"p95", 9, 74, show_p95},
    {"p99", 9, 0, show_p99},
    {"max", 9, 128, show_max},
    {"errors", 8, ERRORS_FROM, show_errors},
};
#define COLUMN_COUNT (sizeof columns / sizeof *columns)

static bool shown(const lp_text *text, const table_column *column)
{
    return text->line.width >= column->from;
}

static unsigned label_width(const lp_text *text)
{
    unsigned width = text->line.width;

    for (size_t i = 0; i < COLUMN_COUNT; i++)
        if (shown(text, &columns[i]))
            width -= columns[i].width;
    return width;
}

static void put_heading(lp_text *text)
{
    lp_line *line = &text->line;
    unsigned edge = label_width(text);

    lp__text_blank(text);
    lp_line_style(line, LP_TITLE);
    lp_line_put(line, "DOMINANT PHASES");
    lp_line_style(line, LP_BOLD);
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        if (shown(text, &columns[i]))
            lp_line_right(line, edge += columns[i].width, columns[i].title);
    lp_line_end(line);
}

static void put_row(lp_text *text, const lp_report_role *role, uint32_t index, bool whole)
{
    const lp_report_phase *phase = &role->phases[index];
    lp_line *line = &text->line;
    unsigned edge = label_width(text);
    lp_unit unit;

    unsigned marks = lp__text_marks(text, phase);
    lp__text_label(text, role, index, edge - marks, whole);
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        if (!shown(text, &columns[i]))
            continue;
        bool loud = (columns[i].show == show_wait && phase->wait >= 0.5) ||
                    (columns[i].show == show_starved && phase->starved >= 0.05) ||
                    (columns[i].show == show_errors && phase->errors > 0);
        lp_line_style(line, loud ? LP_WARN : LP_PLAIN);
        lp_line_right(line, edge += columns[i].width, columns[i].show(unit, phase));
    }
    lp_line_end(line);
}

/* Parts of the line below a phase; each is left out where it says nothing. */
static void put_waits(lp_text *text, const lp_report_phase *phase)
{
    lp_line *line = &text->line;
    const char *separator = "    ";
    lp_unit a, b;

    if (!shown(text, &columns[4]) && phase->wait >= 0.02 && !isnan(phase->blocked)) {
        lp_line_format(line, "%sblocked %s, ", separator, lp_unit_whole_percent(a, phase->blocked));
        lp_line_style(line, phase->starved >= 0.05 ? LP_WARN : LP_PLAIN);
        lp_line_format(line, "starved %s", lp_unit_whole_percent(b, phase->starved));
        lp_line_style(line, LP_PLAIN);
        if (phase->starved >= 0.05)
            lp_line_put(line, " (no CPU was free)");
        separator = "   ";
    }
    if (phase->unsplit >= 0.01) {
        lp_line_format(line, "%s%s of the wait could not be split", separator,
                       lp_unit_whole_percent(a, phase->unsplit));
        separator = "   ";
    }
    if (phase->errors > 0 && line->width < ERRORS_FROM) {
        lp_line_format(line, "%s%s left by an exception", separator, lp_unit_count_in(a, (lp_i128)phase->errors, 11));
    }
    if (line->column > 0)
        lp_line_end(line);
    separator = "    ";
    if (phase->abandoned > 0) {
        lp_line_format(line, "%s%s never left: the phase object died open", separator,
                       lp_unit_count_in(a, (lp_i128)phase->abandoned, 11));
        separator = "   ";
    }
    if (phase->open_entries > 0) {
        lp_line_format(line, "%s%s open, for %s in all", separator,
                       lp_unit_count_in(a, (lp_i128)phase->open_entries, 11), lp_unit_ns(b, (double)phase->open_ns));
    }
    if (line->column > 0)
        lp_line_end(line);
}

static void put_counter(lp_text *text, const lp_report_counter *counter)
{
    lp_line *line = &text->line;
    unsigned edge = label_width(text) + columns[0].width, room;
    char range[160], quantiles[160];
    lp_unit unit, other;

    lp_line_put(line, "    + ");
    lp_unit_count_in(unit, counter->total, 20);
    room = edge - line->column - (unsigned)strlen(unit) - 1;
    lp__text_name(text, counter->name, room, LP_CUT_RIGHT);
    lp_line_right(line, edge, unit);
    lp_line_style(line, LP_DIM);
    if (!isnan(counter->rate_per_s))
        lp_line_right(line, edge + 14, lp_unit_rate(unit, counter->rate_per_s));
    if (!isnan(counter->ns_each)) {
        lp_unit_ns(unit, counter->ns_each);
        memcpy(unit + strlen(unit), "/ea", 4);
        lp_line_right(line, edge + 25, unit);
    }
    lp_line_style(line, LP_PLAIN);
    lp_line_to(line, edge + 26);
    quantiles[0] = '\0';
    if (counter->calls == 0) {
        range[0] = '\0';
    } else if (counter->min == counter->max) {
        snprintf(range, sizeof range, "always %s", lp_unit_count(unit, counter->min));
    } else {
        snprintf(range, sizeof range, "%s..%s", lp_unit_count(unit, counter->min), lp_unit_count(other, counter->max));
        snprintf(quantiles, sizeof quantiles, "p50 %s p95 %s", lp_unit_amount(unit, counter->p50),
                 lp_unit_amount(other, counter->p95));
    }
    if (line->column + strlen(range) > line->width) {
        lp_line_end(line);
        lp_line_to(line, 6);
    }
    lp_line_put(line, range);
    if (quantiles[0]) {
        if (line->column + 1 + strlen(quantiles) > line->width) {
            lp_line_end(line);
            lp_line_to(line, 6);
        } else {
            lp_line_put(line, " ");
        }
        lp_line_put(line, quantiles);
    }
    lp_line_end(line);
}

/* How the marks of the rows above are to be read; `until`: rows that were shown. */
static void put_legend(lp_text *text, const lp_report_role *role, uint32_t until, bool whole)
{
    static const struct {
        char mark;
        const char *words;
    } notes[] = {
        {'~', "estimated from a sample, not measured. Totals are scaled by the rate:"},
        {'+', "asynchronous work: the time to submit it, not the device's time:"},
        {'!', "more than 10 % of its time is our own cost; do not trust it. Count instead, or enter it less often:"},
    };
    lp_line *line = &text->line;
    unsigned label = label_width(text);

    for (size_t n = 0; n < sizeof notes / sizeof *notes; n++) {
        uint32_t named = 0, more = 0;
        for (uint32_t i = 0; i < until; i++) {
            const lp_report_phase *phase = &role->phases[role->by_self[i]];
            bool applies = notes[n].mark == '~'   ? phase->stride > 1
                           : notes[n].mark == '!' ? phase->untrusted
                                                  : phase->async_entries > 0 || phase->flags & LP_PHASE_ASYNC;
            lp_unit unit;
            if (!applies)
                continue;
            if (named == 0) {
                lp_line_end(line);
                lp_line_style(line, LP_DIM);
                lp_line_format(line, "  %s = ",
                               notes[n].mark == '+'   ? lp_line_glyph(line, "\xe2\x80\xa0", "^")
                               : notes[n].mark == '~' ? "~"
                                                      : "!");
                lp_line_wrap(line, 6, notes[n].words);
                lp_line_end(line);
            }
            if (named >= LP_TEXT_NAMED && !text->options.all) {
                more++;
                continue;
            }
            named++;
            lp_line_style(line, LP_DIM);
            lp_line_to(line, 6);
            lp__text_label(text, role, role->by_self[i], label, whole);
            lp_line_to(line, label + 8);
            if (notes[n].mark == '~')
                lp_line_format(line, "1 entry in %u", phase->stride);
            else if (notes[n].mark == '+')
                lp_line_format(line, "%s of %s entries", lp_unit_count_in(unit, (lp_i128)phase->async_entries, 11),
                               lp_unit_count_in((lp_unit){0}, (lp_i128)phase->entries, 11));
            else
                lp_line_format(line, "%s", lp_unit_percent(unit, phase->own_share));
            lp_line_end(line);
        }
        if (more > 0) {
            lp_line_format(line, "      %s %u more (--all)", lp_line_glyph(line, "\xe2\x80\xa6", ".."), more);
            lp_line_end(line);
        }
    }
}

void lp__text_phases(lp_text *text, const lp_report_role *role)
{
    lp_line *line = &text->line;
    uint32_t limit = role->by_self_count;

    if (role->by_self_count == 0 && role->counter_count == 0)
        return;
    if (!text->options.all && limit > LP_TEXT_ROWS + 1) /* a "1 more" would take the row's own line */
        limit = LP_TEXT_ROWS;
    bool whole = lp__text_fits(text, role, label_width(text));
    put_heading(text);
    for (uint32_t i = 0; i < limit; i++) {
        const lp_report_phase *phase = &role->phases[role->by_self[i]];
        put_row(text, role, role->by_self[i], whole);
        put_waits(text, phase);
        for (uint32_t c = 0; c < phase->counter_count; c++)
            put_counter(text, &phase->counters[c]);
    }
    if (limit < role->by_self_count) {
        lp_line_style(line, LP_DIM);
        lp_line_format(line, "%s %u more (--all)", lp_line_glyph(line, "\xe2\x80\xa6", ".."),
                       role->by_self_count - limit);
        lp_line_end(line);
    }
    if (role->counter_count > 0) {
        lp_line_put(line, "(no phase open)");
        lp_line_end(line);
        for (uint32_t c = 0; c < role->counter_count; c++)
            put_counter(text, &role->counters[c]);
    }
    put_legend(text, role, limit, whole);
}

void lp__text_iterations(lp_text *text, const lp_report_role *role)
{
    lp_line *line = &text->line;
    char title[512]; /* for 32 columns, each with its two marks */
    lp_unit unit;

    if (role->iterations == LP_NO_PHASE)
        return;
    const lp_report_phase *phase = &role->phases[role->iterations];
    lp_str name = lp_visible(phase->name);
    size_t size = name.size < sizeof title ? name.size : sizeof title;
    for (size_t i = 0; i < size; i++)
        title[i] = name.data[i] >= 'a' && name.data[i] <= 'z' ? (char)(name.data[i] - 32) : name.data[i];
    lp_str parts[] = {{title, size}, {"S", size > 0 && title[size - 1] != 'S'}};
    lp__text_blank(text);
    lp_line_style(line, LP_TITLE);
    lp_line_name(line, parts, 2, 32, LP_CUT_RIGHT);
    lp_line_style(line, LP_PLAIN);
    lp_line_format(line, "  (%s entries%s)", lp_unit_count(unit, (lp_i128)phase->entries),
                   phase->stride > 1 ? ", estimated" : "");
    lp_line_end(line);
    const struct {
        const char *name;
        double ns;
        unsigned from;
    } figures[] = {
        {"mean", phase->mean_ns, 0}, {"p50", phase->p50_ns, 0},          {"p95", phase->p95_ns, 0},
        {"p99", phase->p99_ns, 0},   {"max", (double)phase->max_ns, 78}, {"min", (double)phase->min_ns, 96},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (line->width >= figures[i].from) {
            lp_line_put(line, i == 0 ? "  " : "   ");
            lp_line_put(line, figures[i].name);
            lp_line_right(line, line->column + 9, lp_unit_ns(unit, figures[i].ns));
        }
    lp_line_end(line);
}

static void put_io_row(lp_text *text, const lp_report_role *role, uint32_t index, unsigned label, bool whole)
{
    const lp_report_phase *phase = &role->phases[index];
    const lp_report_io *io = &phase->io;
    lp_line *line = &text->line;
    lp_unit unit;
    double values[] = {(double)io->read_bytes, (double)io->cached_read_bytes, (double)io->write_bytes};

    unsigned marks = lp__text_marks(text, phase);
    lp__text_label(text, role, index, label - marks, whole);
    for (size_t i = 0; i < 3; i++)
        lp_line_right(line, label + 12 * ((unsigned)i + 1), io->known ? lp_unit_bytes(unit, values[i]) : "n/a");
    lp_line_right(line, label + 50, io->known ? lp_unit_byte_rate(unit, io->rate) : "n/a");
    lp_line_end(line);
}

/* A row of I/O BY PHASE that stands for entries which were not measured. */
static bool scales_io(const lp_report *report)
{
    for (uint32_t r = 0; r < report->role_count; r++)
        for (uint32_t i = 0; i < report->roles[r].phase_count; i++)
            if (report->roles[r].phases[i].flags & LP_PHASE_IO && report->roles[r].phases[i].stride > 1)
                return true;
    return false;
}

void lp__text_io(lp_text *text)
{
    const lp_report *report = text->report;
    lp_line *line = &text->line;
    unsigned label = line->width - 50;
    uint32_t rows = 0, hidden = 0;

    for (uint32_t r = 0; r < report->role_count; r++) {
        const lp_report_role *role = &report->roles[r];
        bool named = false, whole = lp__text_fits(text, role, label);
        for (uint32_t i = 0; i < role->by_self_count; i++) {
            const lp_report_phase *phase = &role->phases[role->by_self[i]];
            if (!(phase->flags & LP_PHASE_IO))
                continue;
            if (rows >= LP_TEXT_ROWS && !text->options.all) {
                hidden++;
                continue;
            }
            if (rows++ == 0) {
                lp__text_section(text, "I/O BY PHASE",
                                 scales_io(report) ? "(measured exactly; ~ scaled from a sample)"
                                                   : "(measured exactly)");
                lp_line_style(line, LP_DIM);
                lp_line_right(line, label + 12, "read (disk)");
                lp_line_right(line, label + 24, "from cache");
                lp_line_right(line, label + 36, "to disk");
                lp_line_right(line, label + 50, "disk rate");
                lp_line_end(line);
            }
            if (!named && report->role_count > 1) {
                lp_line_style(line, LP_BOLD);
                lp__text_name(text, role->role->name, line->width, LP_CUT_RIGHT);
                lp_line_end(line);
            }
            named = true;
            put_io_row(text, role, role->by_self[i], label, whole);
        }
    }
    if (hidden > 0) {
        lp_line_format(line, "%s %u more (--all)", lp_line_glyph(line, "\xe2\x80\xa6", ".."), hidden);
        lp_line_end(line);
    }
}

/* As many workers as one line holds; all of them, on several, with --all. */
static void put_open_where(lp_text *text, const lp_report_open *open)
{
    lp_line *line = &text->line;
    unsigned indent = line->column, more = 12; /* columns of ", 4095 more" and a little */
    char label[LP_LABEL_SIZE];

    for (uint32_t i = 0; i < open->worker_count; i++) {
        bool last = i + 1 == open->worker_count;
        lp__text_worker(text, &text->report->run->workers[open->workers[i]], label);
        unsigned need = lp_text_columns(label) + (i > 0 ? 2 : 0) + !last; /* with the commas around it */
        if (i > 0 && !text->options.all && line->column + need + (last ? 0 : more) > line->width) {
            lp_line_put(line, ",");
            lp_line_format(line, " %u more", open->worker_count - i);
            break;
        }
        if (i > 0)
            lp_line_put(line, ",");
        if (i > 0 && line->column + need > line->width) {
            lp_line_end(line);
            lp_line_to(line, indent);
        } else if (i > 0) {
            lp_line_put(line, " ");
        }
        lp_str name = {label, strlen(label)};
        unsigned room = line->width - line->column - !last;
        lp_line_name(line, &name, 1, last || text->options.all || room < more + 8 ? room : room - more, LP_CUT_LEFT);
    }
    lp_line_end(line);
}

static void put_open_kind(lp_text *text, lp_life life, const char *title, const char *since)
{
    const lp_report *report = text->report;
    lp_line *line = &text->line;
    unsigned label = line->width > 100 ? 44 : line->width < 76 ? 20 : 30;
    uint32_t rows = 0, hidden = 0, before = LP_NO_PHASE;
    bool whole = false;

    for (uint32_t i = 0; i < report->open_count; i++) { /* role by role */
        const lp_report_open *open = &report->open[i];
        const lp_report_role *role = &report->roles[open->role];
        char ago[LP_UNIT_SIZE + 8];
        lp_unit unit;
        if (open->life != life)
            continue;
        if (rows >= LP_TEXT_ROWS && !text->options.all) {
            hidden++;
            continue;
        }
        if (rows++ == 0) {
            lp__text_blank(text);
            lp_line_style(line, LP_TITLE);
            lp_line_put(line, title);
            lp_line_style(line, LP_BOLD);
            lp_line_right(line, label + 13, since);
            lp_line_to(line, label + 16);
            lp_line_put(line, "in");
            lp_line_end(line);
        }
        if (open->role != before)
            whole = lp__text_fits(text, role, label);
        before = open->role;
        lp__text_label(text, role, open->phase, label, whole);
        snprintf(ago, sizeof ago, "%s%s", lp_unit_ns(unit, (double)open->longest_ns),
                 life == LP_LIFE_RUNNING ? " ago" : "");
        lp_line_right(line, label + 13, ago);
        lp_line_to(line, label + 16);
        if (report->role_count > 1) {
            lp__text_name(text, role->role->name, 12, LP_CUT_RIGHT);
            lp_line_put(line, " ");
        }
        put_open_where(text, open);
    }
    if (hidden > 0) {
        lp_line_format(line, "%s %u more (--all)", lp_line_glyph(line, "\xe2\x80\xa6", ".."), hidden);
        lp_line_end(line);
    }
}

void lp__text_open(lp_text *text)
{
    put_open_kind(text, LP_LIFE_RUNNING, "OPEN NOW", "since");
    put_open_kind(text, LP_LIFE_DIED, "OPEN AT DEATH", "for");
    put_open_kind(text, LP_LIFE_LAST_SEEN, "OPEN WHEN LAST WRITTEN", "for");
    put_open_kind(text, LP_LIFE_CLOSED, "OPEN WHEN CLOSED", "for");
}
