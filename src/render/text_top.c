/* The live view as text. Sections from the top: what run this is, who died, whose figures are old, the phases of each role, what is
 * open, the keys. The table of phases gets the lines that the others leave. Written into memory first, then cut to the terminal:
 * no name and no size makes a line wrap. */
#include "render/top.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/inert.h"
#include "render/line.h"
#include "render/top_lines.h"
#include "render/units.h"

#define MIN_WIDTH 20u
#define ALL LP_TOP_ALL_LINES

typedef struct frame {
    const lp_top *top;
    const lp_top_view *view;
    lp_line line;
    unsigned lines; /* written */
} frame;

/* ---- columns of the table */

typedef struct table_column {
    const char *title, *ascii;
    unsigned width, from; /* page width at which it appears */
    int order;            /* lp_top_order that sorts by it, -1 none */
    char *(*show)(lp_unit out, const lp_top_row *row, const lp_report_phase *phase);
} table_column;

static char *show_rate_of(lp_unit out, double rate)
{
    if (isnan(rate))
        snprintf(out, LP_UNIT_SIZE, "-");
    else if (rate >= 1e5)
        lp_unit_count_in(out, (lp_i128)rate, 7);
    else if (rate >= 1000)
        lp_unit_fixed(out, rate, 0);
    else
        lp_unit_small_rate(out, rate);
    return out;
}

static char *show_rate(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)phase;
    return show_rate_of(out, row->rate);
}

static char *show_entries(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_count_in(out, (lp_i128)phase->entries, 7);
}

static char *show_share(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_percent(out, phase->share);
}

static char *show_mean(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_ns(out, phase->mean_ns);
}

static char *show_p50(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_ns(out, phase->p50_ns);
}

static char *show_p95(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_ns(out, phase->p95_ns);
}

static char *show_p99(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_ns(out, phase->p99_ns);
}

static char *show_blocked(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_whole_percent(out, phase->blocked);
}

static char *show_starved(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_whole_percent(out, phase->starved);
}

static char *show_wait(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_whole_percent(out, phase->wait);
}

static char *show_self(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    /* A row that is estimated as a whole is marked at its start. */
    return lp_unit_about(out, phase->self_estimated && phase->stride <= 1,
                         (double)phase->self_ns + (double)phase->open_self_ns);
}

static char *show_total(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_ns(out, (double)phase->extent_ns);
}

static char *show_errors(lp_unit out, const lp_top_row *row, const lp_report_phase *phase)
{
    (void)row;
    return lp_unit_count_in(out, (lp_i128)phase->errors, 7);
}

static const table_column columns[] = {
    {"rate/s", NULL, 8, 34, LP_TOP_RATE, show_rate},  {"entries", NULL, 8, 66, LP_TOP_ENTRIES, show_entries},
    {"share", NULL, 7, 42, LP_TOP_TOTAL, show_share}, {"total", NULL, 9, 124, LP_TOP_TOTAL, show_total},
    {"mean", NULL, 8, 74, LP_TOP_MEAN, show_mean},    {"p50", NULL, 8, 116, -1, show_p50},
    {"p95", NULL, 8, 50, LP_TOP_P95, show_p95},       {"p99", NULL, 8, 132, -1, show_p99},
    {"wait", NULL, 5, 100, LP_TOP_WAIT, show_wait},   {"blk", NULL, 5, 60, LP_TOP_WAIT, show_blocked},
    {"strv", NULL, 5, 60, -1, show_starved},          {"errors", NULL, 8, 140, -1, show_errors},
    {"self", NULL, 9, 0, LP_TOP_SELF, show_self},
};
#define COLUMN_COUNT (sizeof columns / sizeof *columns)
#define BAR_FROM 108u /* where the self time has a bar, too */
#define BAR_WIDTH 12u

static unsigned label_width(const frame *f)
{
    unsigned width = f->line.width;

    for (size_t i = 0; i < COLUMN_COUNT; i++)
        if (f->line.width >= columns[i].from)
            width -= columns[i].width;
    return f->line.width >= BAR_FROM ? width - BAR_WIDTH - 1 : width;
}

static void end_line(frame *f)
{
    lp_line_end(&f->line);
    f->lines++;
}

static const char *dot(const frame *f)
{
    return lp_line_glyph(&f->line, " \xc2\xb7 ", " - ");
}

/* ---- sections */

static void put_count(frame *f, uint32_t count, const char *what, lp_style style, bool *first)
{
    if (count == 0)
        return;
    if (!*first)
        lp_line_put(&f->line, ", ");
    lp_line_style(&f->line, style);
    lp_line_format(&f->line, "%u %s", count, what);
    lp_line_style(&f->line, LP_PLAIN);
    *first = false;
}

static void put_title(frame *f)
{
    const lp_run *run = f->top->run;
    lp_line *line = &f->line;
    lp_unit unit, right, every;
    bool over = f->top->report->running + f->top->report->last_seen == 0 && run->worker_count > 0;
    uint64_t started = run->started_ns, until = over ? run->ended_ns : run->read_ns;

    lp_line_style(line, LP_TITLE);
    lp_line_put(line, "lineprofiler top");
    lp_line_style(line, LP_PLAIN);
    lp_line_put(line, "  ");
    snprintf(right, sizeof right, "%s", "no process yet");
    if (run->worker_count > 0)
        snprintf(right, sizeof right, "%.40s%s", over ? "over after " : "",
                 lp_unit_age(unit, until, started < until ? started : until));
    if (f->view->height > 0) {
        size_t used = strlen(right);
        lp_unit_fixed(every, f->view->interval_s, f->view->interval_s < 1 ? 1 : 0);
        snprintf(right + used, sizeof right - used, "%s%s%.20s%s", dot(f), f->view->paused ? "" : "every ",
                 f->view->paused ? "paused" : every, f->view->paused ? "" : "s");
    }
    unsigned room = lp_text_columns(right) + 2;
    if (line->width > line->column + room + 8)
        lp_line_name(line, &run->directory, 1, line->width - line->column - room, LP_CUT_LEFT);
    lp_line_style(line, f->view->paused ? LP_WARN : LP_PLAIN);
    lp_line_right(line, line->width, right);
    end_line(f);
}

static void put_workers(frame *f)
{
    const lp_run *run = f->top->run;
    const lp_report *report = f->top->report;
    lp_line *line = &f->line;
    bool first = true;

    lp_line_style(line, LP_BOLD);
    lp_line_format(line, "%u process%s", run->worker_count, run->worker_count == 1 ? "" : "es");
    lp_line_style(line, LP_PLAIN);
    lp_line_put(line, run->worker_count > 0 ? ": " : "");
    put_count(f, report->running, "running", LP_PLAIN, &first);
    put_count(f, report->last_seen, "as last written", LP_WARN, &first);
    put_count(f, report->died, "died", LP_BAD, &first);
    put_count(f, report->closed, "closed", LP_PLAIN, &first);
    put_count(f, run->unreadable_count, "unreadable", LP_BAD, &first);
    lp_line_put(line, run->superseded_count > 0 ? dot(f) : "");
    first = true;
    put_count(f, run->superseded_count, "in other attempts", report->attempts_at_once ? LP_WARN : LP_PLAIN, &first);
    lp_line_style(line, LP_DIM);
    for (uint32_t i = 0; i < run->host_count && line->column + 12 < line->width; i++) {
        lp_str name = run->hosts[i].name.size > 0 ? run->hosts[i].name : (lp_str){"?", 1};
        lp_line_put(line, i == 0 ? dot(f) : ", ");
        if (i == 4 && run->host_count > 5) {
            lp_line_format(line, "%u more hosts", run->host_count - i);
            break;
        }
        lp_line_name(line, &name, 1, 24, LP_CUT_LEFT);
    }
    if (run->run_id.size > 0 && line->column + 9 + run->run_id.size < line->width) {
        lp_line_put(line, dot(f));
        lp_line_put(line, "run ");
        lp_line_name(line, &run->run_id, 1, line->width - line->column, LP_CUT_RIGHT);
    }
    end_line(f);
}

static void put_worker(frame *f, const lp_run_worker *worker)
{
    char number[32];
    lp_str host = worker->host.size > 0 ? worker->host : (lp_str){"?", 1};

    if (worker->rank != LP_UNKNOWN_I64)
        snprintf(number, sizeof number, " rank %lld", (long long)worker->rank);
    else
        snprintf(number, sizeof number, ":%lld", (long long)worker->pid);
    lp_str parts[] = {host, {number, strlen(number)}};
    lp_line_name(&f->line, parts, 2, 28, LP_CUT_LEFT);
}

static const lp_run_open *innermost(const lp_run_worker *worker)
{
    for (uint32_t i = 0; i < worker->open_count; i++)
        if (worker->open[i].inner)
            return &worker->open[i];
    return NULL;
}

static void put_path(frame *f, const lp_run_open *open)
{
    lp_str parts[64];
    unsigned count = 0;

    for (uint32_t d = open->depth > 32 ? open->depth - 32 : 0; d < open->depth; d++) {
        if (count > 0)
            parts[count++] = (lp_str){"/", 1};
        parts[count++] = open->path[d];
    }
    unsigned room = f->line.width > f->line.column ? f->line.width - f->line.column : 0;
    lp_line_name(&f->line, parts, count, room > 8 ? room : 8, LP_CUT_LEFT);
}

static void put_more(frame *f, uint32_t count, const char *what)
{
    lp_line_style(&f->line, LP_DIM);
    lp_line_format(&f->line, "  %s %u more%s", lp_line_glyph(&f->line, "\xe2\x80\xa6", ".."), count, what);
    end_line(f);
}

/* Those who ended by os._exit(0) outside of every phase have lost nothing, and forked workers do so all the time. */
static bool is_quiet_end(const lp_run_worker *worker)
{
    return worker->open_count == 0 && (worker->end.code == 0 || worker->end.code == LP_UNKNOWN_I64);
}

static void put_dead(frame *f, unsigned limit)
{
    const lp_run *run = f->top->run;
    lp_line *line = &f->line;
    uint32_t shown = 0, left = 0;

    for (uint32_t i = 0; i < f->top->dead_count; i++) {
        const lp_run_worker *worker = &run->workers[f->top->dead[i]];
        const lp_run_open *inside = innermost(worker);
        lp_unit unit, how;
        if (is_quiet_end(worker))
            continue;
        if (shown >= limit) {
            left++;
            continue;
        }
        shown++;
        lp_line_style(line, LP_BAD);
        lp_line_put(line, "died ");
        lp_line_style(line, LP_PLAIN);
        put_worker(f, worker);
        lp_line_put(line, " ");
        lp_str role = lp_visible(worker->role);
        lp_line_name(line, &role, 1, 16, LP_CUT_RIGHT);
        lp_line_format(line, "  %s", lp_unit_age(unit, run->read_ns, worker->written_ns));
        lp_line_put(line, " ago: ");
        lp_line_style(line, LP_WARN);
        lp_unit_end(how, worker->end);
        lp_line_put(line, how[0] ? how : "?");
        lp_line_style(line, LP_PLAIN);
        lp_line_format(line, " after %s", lp_unit_ns(unit, (double)worker->elapsed_ns));
        if (inside) {
            lp_line_put(line, ", in ");
            put_path(f, inside);
        }
        end_line(f);
    }
    if (left > 0)
        put_more(f, left, " died");
}

static void put_old(frame *f, unsigned limit)
{
    const lp_report *report = f->top->report;
    lp_line *line = &f->line;

    for (uint32_t i = 0; i < report->as_written_count && i < limit; i++) {
        const lp_report_host *host = &report->as_written[i];
        lp_str name = host->name.size > 0 ? host->name : (lp_str){"?", 1};
        lp_unit newest, oldest;
        lp_unit_age(newest, f->top->run->read_ns, host->newest_ns);
        lp_unit_age(oldest, f->top->run->read_ns, host->oldest_ns);
        lp_line_style(line, LP_WARN);
        lp_line_put(line, "old  ");
        lp_line_style(line, LP_PLAIN);
        lp_line_name(line, &name, 1, 28, LP_CUT_LEFT);
        lp_line_format(line, "  %u process%s as written %s%s", host->workers, host->workers == 1 ? "" : "es", newest,
                       strcmp(newest, oldest) == 0 ? "" : " to ");
        if (strcmp(newest, oldest) != 0)
            lp_line_put(line, oldest);
        lp_line_put(line, " ago");
        end_line(f);
    }
    if (report->as_written_count > limit)
        put_more(f, report->as_written_count - limit, " hosts");
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* ---- the table */

static void put_heading(frame *f)
{
    lp_line *line = &f->line;
    unsigned edge = label_width(f);
    const lp_top_choice *choice = &f->view->choice;
    bool marked = false;

    lp_line_style(line, LP_TITLE);
    lp_line_put(line, "PHASE");
    if (choice->order == LP_TOP_NAME)
        lp_line_put(
            line, lp_line_glyph(line, choice->reverse ? "\xe2\x96\xb4" : "\xe2\x96\xbe", choice->reverse ? "^" : "v"));
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        char title[32];
        bool by = !marked && columns[i].order == (int)choice->order;
        if (line->width < columns[i].from)
            continue;
        edge += columns[i].width;
        marked |= by;
        lp_line_style(line, by ? LP_TITLE : LP_BOLD);
        snprintf(
            title, sizeof title, "%s%s", columns[i].title,
            !by ? ""
                : lp_line_glyph(line, choice->reverse ? "\xe2\x96\xb4" : "\xe2\x96\xbe", choice->reverse ? "^" : "v"));
        lp_line_right(line, edge, title);
    }
    end_line(f);
}

static void put_role(frame *f, const lp_top_role *role)
{
    const lp_report_role *of = &f->top->report->roles[role->role];
    lp_line *line = &f->line;
    bool first = true;
    lp_unit unit;
    lp_str name = lp_visible(of->role->name);

    lp_line_style(line, LP_BOLD);
    lp_line_name(line, &name, 1, 24, LP_CUT_RIGHT);
    lp_line_style(line, LP_DIM);
    lp_line_format(line, " x%u  ", of->role->worker_count);
    put_count(f, role->running, "running", LP_DIM, &first);
    put_count(f, role->last_seen, "as last written", LP_DIM, &first);
    put_count(f, role->died, "died", LP_BAD, &first);
    put_count(f, role->closed, "closed", LP_DIM, &first);
    lp_line_style(line, LP_DIM);
    if (!isnan(role->rate)) {
        lp_line_put(line, dot(f));
        lp_line_format(line, "%s/s", show_rate_of(unit, role->rate));
    }
    lp_line_put(line, dot(f));
    lp_line_format(line, "%s", lp_unit_ns(unit, (double)of->role->wall_ns));
    if (of->role->worker_count > 1 && line->column + 18 < line->width) {
        lp_line_put(line, dot(f));
        lp_unit_fixed(unit, of->role->imbalance, 2);
        lp_line_format(line, "imbalance %s", unit);
        const lp_run_worker *slow = &f->top->run->workers[of->role->slowest];
        if (of->role->imbalance >= 1.05 && line->column + 24 < line->width) {
            lp_line_put(line, ", slowest ");
            put_worker(f, slow);
        }
    }
    end_line(f);
}

/* Before the name, which is cut at its left. */
static void put_marks(lp_line *line, const lp_report_phase *phase)
{
    if (phase->untrusted)
        lp_line_put(line, "!");
    if (phase->stride > 1)
        lp_line_put(line, "~");
    if (phase->async_entries > 0 || phase->flags & LP_PHASE_ASYNC)
        lp_line_put(line, lp_line_glyph(line, "\xe2\x80\xa0", "^"));
}

static void put_row(frame *f, const lp_top_role *role, const lp_top_row *row)
{
    const lp_report_role *of = &f->top->report->roles[role->role];
    const lp_report_phase *phase = &of->phases[row->phase];
    lp_line *line = &f->line;
    unsigned edge = label_width(f);
    lp_unit unit;
    lp_str path = lp_visible(phase->path);
    unsigned room = edge > 5 ? edge - 1 : 4; /* a blank before the first column */

    lp_line_put(line, "  ");
    put_marks(line, phase);
    lp_line_name(line, &path, 1, room > line->column ? room - line->column : 1, LP_CUT_LEFT);
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        if (line->width < columns[i].from)
            continue;
        bool loud = (columns[i].show == show_blocked && phase->blocked >= 0.5) ||
                    (columns[i].show == show_wait && phase->wait >= 0.5) ||
                    (columns[i].show == show_starved && phase->starved >= 0.05) ||
                    (columns[i].show == show_errors && phase->errors > 0);
        bool quiet = columns[i].show == show_rate && !(row->rate > 0.0);
        lp_line_style(line, loud ? LP_WARN : quiet ? LP_DIM : LP_PLAIN);
        lp_line_right(line, edge += columns[i].width, columns[i].show(unit, row, phase));
        lp_line_style(line, LP_PLAIN);
    }
    if (line->width >= BAR_FROM) {
        lp_line_to(line, edge + 1);
        lp_line_style(line, LP_BAR);
        lp_line_bar(line, phase->self_share > 1.0 ? 1.0 : phase->self_share, BAR_WIDTH);
    }
    end_line(f);
}

static unsigned table_lines(const lp_top *top)
{
    unsigned lines = 0;

    for (uint32_t r = 0; r < top->role_count; r++)
        lines += 1 + top->roles[r].row_count + (top->roles[r].row_count == 0);
    return lines;
}

static void put_nothing(frame *f, const lp_top_role *role)
{
    lp_line_style(&f->line, LP_DIM);
    lp_line_put(&f->line, role->phase_count > 0 ? "  no phase matches the filter" : "  no phase yet");
    end_line(f);
}

static void put_no_role(frame *f)
{
    lp_str name = lp_visible(f->view->choice.role);

    lp_line_style(&f->line, LP_DIM);
    lp_line_put(&f->line, "no process has the role ");
    lp_line_name(&f->line, &name, 1, f->line.width - f->line.column, LP_CUT_RIGHT);
    end_line(f);
}

/* `room` lines at most, from line `offset` of the whole table on. */
static void put_table(frame *f, unsigned room)
{
    const lp_top *top = f->top;
    unsigned offset = f->view->offset, at = 0, end = room == ALL ? ALL : f->lines + room;
    lp_top_division of = lp__top_divide(top, offset > 0 ? ALL : room);

    if (top->role_count == 0 && f->view->choice.role.data && room > 0)
        put_no_role(f);
    for (uint32_t r = 0; r < top->role_count && f->lines < end; r++) {
        const lp_top_role *role = &top->roles[r];
        uint32_t rows = lp__top_take_rows(&of, role->row_count);
        if (at++ >= offset)
            put_role(f, role);
        if (role->row_count == 0 && !of.tight && at++ >= offset && f->lines < end)
            put_nothing(f, role);
        for (uint32_t i = 0; i < rows && f->lines < end; i++)
            if (at++ >= offset)
                put_row(f, role, &role->rows[i]);
        if (rows < role->row_count && f->lines < end && of.several && !of.tight)
            put_more(f, role->row_count - rows, "");
    }
}

static void put_open(frame *f, unsigned limit)
{
    const lp_report *report = f->top->report;
    lp_line *line = &f->line;
    uint32_t shown = 0, left = 0;

    for (uint32_t i = 0; i < report->open_count; i++) {
        const lp_report_open *open = &report->open[i];
        const lp_report_role *role = &report->roles[open->role];
        lp_unit unit;
        if (open->life != LP_LIFE_RUNNING && open->life != LP_LIFE_LAST_SEEN)
            continue; /* of the dead it stands with their deaths */
        if (f->view->choice.role.data &&
            (role->role->name.size != f->view->choice.role.size ||
             memcmp(role->role->name.data, f->view->choice.role.data, role->role->name.size) != 0))
            continue;
        if (shown == limit) {
            left++;
            continue;
        }
        if (shown++ == 0) {
            lp_line_style(line, LP_TITLE);
            lp_line_put(line, "OPEN");
            lp_line_style(line, LP_BOLD);
            lp_line_right(line, 13, "for");
            lp_line_put(line, "  phase");
            end_line(f);
        }
        lp_line_right(line, 13, lp_unit_ns(unit, (double)open->longest_ns));
        lp_line_put(line, "  ");
        unsigned room = line->width > 56 ? line->width - 56 : 16;
        lp_str path = lp_visible(role->phases[open->phase].path);
        lp_line_name(line, &path, 1, room < 24 ? 24 : room, LP_CUT_LEFT);
        lp_line_style(line, LP_DIM);
        lp_line_put(line, "  ");
        lp_str of = lp_visible(role->role->name);
        lp_line_name(line, &of, 1, 12, LP_CUT_RIGHT);
        lp_line_put(line, " ");
        put_worker(f, &f->top->run->workers[open->workers[0]]);
        if (open->worker_count > 1)
            lp_line_format(line, " and %u more", open->worker_count - 1);
        end_line(f);
    }
    if (left > 0)
        put_more(f, left, " open");
}

static unsigned open_lines(const lp_report *report)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < report->open_count; i++)
        count += report->open[i].life == LP_LIFE_RUNNING || report->open[i].life == LP_LIFE_LAST_SEEN;
    return count;
}

/* ---- keys */

static void put_key(frame *f, const char *key, const char *what)
{
    lp_line *line = &f->line;

    if (line->column > 0)
        lp_line_put(line, "  ");
    lp_line_style(line, LP_BOLD);
    lp_line_put(line, key);
    lp_line_style(line, LP_DIM);
    lp_line_put(line, " ");
    lp_line_put(line, what);
    lp_line_style(line, LP_PLAIN);
}

static void put_keys(frame *f)
{
    lp_line *line = &f->line;
    const lp_top_view *view = f->view;

    if (view->typing || view->choice.filter.size > 0) {
        lp_line_style(line, LP_TITLE);
        lp_line_put(line, "filter ");
        lp_line_style(line, LP_BOLD);
        unsigned room = line->width > 44 ? line->width - 44 : 10;
        lp_line_name(line, &view->choice.filter, 1, room, LP_CUT_LEFT);
        if (view->typing)
            lp_line_put(line, "_");
        lp_line_style(line, LP_PLAIN);
        put_key(f, view->typing ? "enter" : "/", view->typing ? "done" : "change");
        put_key(f, "esc", "none");
        if (view->typing)
            return;
        put_key(f, "?", "help");
        put_key(f, "q", "quit");
        return;
    }
    if (view->message) {
        lp_line_style(line, LP_WARN);
        lp_line_put(line, view->message);
        lp_line_style(line, LP_PLAIN);
        return;
    }
    put_key(f, "q", "quit");
    put_key(f, "?", "help");
    put_key(f, "/", "filter");
    put_key(f, "tab", "role");
    put_key(f, "space", view->paused ? "go on" : "pause");
    if (line->width >= 78) {
        lp_line_style(line, LP_PLAIN);
        lp_line_put(line, "  sort:");
        static const char *const orders[] = {"s", "elf ", "t", "otal ", "r", "ate ", "e", "ntries ",
                                             "m", "ean ", "p", "95 ",   "w", "ait ", "n", "ame"};
        bool wide = line->width >= 96;
        for (size_t i = 0; i < sizeof orders / sizeof *orders; i += 2) {
            lp_line_put(line, i == 0 ? " " : "");
            lp_line_style(line, LP_BOLD);
            lp_line_put(line, orders[i]);
            lp_line_style(line, LP_DIM);
            lp_line_put(line, wide ? orders[i + 1] : i < 14 ? " " : "");
        }
    }
}

static void put_help(frame *f, unsigned room)
{
    static const char *const lines[][2] = {
        {"q", "leave"},
        {"space", "pause, go on"},
        {"/", "show phases that hold a text; esc ends that"},
        {"tab, 0-9", "one role after the other; a role by its number, 0: all"},
        {"up, down, page", "scroll (also j, k); home, end"},
        {"+ -", "look more or less often"},
        {"s t r e m p w n", "sort by self, total, rate, entries, mean, p95, wait, name"},
        {"", "the same key again turns the order round"},
        {"? esc", "back"},
        {"", ""},
        {"rate/s", "finished entries a second since the look before"},
        {"share", "of the role's wall time, open phases included"},
        {"blk, strv", "waiting for something; ready, but no CPU was free"},
        {"self", "time in none of its children"},
        {"~ ! \xe2\x80\xa0", "estimated; mostly our own cost; submitted only (async)"},
    };

    for (size_t i = 0; i < sizeof lines / sizeof *lines && f->lines < room; i++) {
        lp_line_style(&f->line, LP_BOLD);
        lp_line_put(&f->line, "  ");
        lp_line_put(&f->line, f->line.utf8 || lines[i][0][0] != '~' ? lines[i][0] : "~ ! ^");
        lp_line_style(&f->line, LP_PLAIN);
        lp_line_to(&f->line, 20);
        lp_line_put(&f->line, lines[i][1]);
        end_line(f);
    }
    if (f->lines < room) {
        lp_unit cost;
        lp_unit_ns(cost, (double)f->top->cost_ns);
        end_line(f);
        lp_line_style(&f->line, LP_DIM);
        lp_line_format(&f->line, "  the last look took %s of CPU time", cost);
        end_line(f);
    }
}

/* ---- the whole */

static void put_waiting(frame *f)
{
    lp_line_style(&f->line, LP_DIM);
    lp_line_put(&f->line, "Nobody has recorded into this directory yet; waiting.");
    end_line(f);
    if (f->view->near) {
        lp_str near = {f->view->near, strlen(f->view->near)};
        lp_line_name(&f->line, &near, 1, f->line.width, LP_CUT_LEFT);
        end_line(f);
    }
}

static void put_body(frame *f, unsigned height, unsigned *most, unsigned *page)
{
    const lp_top *top = f->top;
    bool tiny = height < 12;
    unsigned dead = height == ALL ? 12 : tiny ? 1 : height < 30 ? 3 : 6;
    unsigned open = height == ALL ? 12 : tiny ? 0 : least(open_lines(top->report), height / 5);
    unsigned open_room = open == 0 ? 0 : 2 + open + (open_lines(top->report) > open);

    if (f->lines < height)
        put_workers(f);
    if (f->view->help) {
        put_help(f, height);
        return;
    }
    put_dead(f, dead);
    put_old(f, height == ALL ? 32 : tiny ? 1 : 3);
    if (top->run->worker_count == 0) {
        put_waiting(f);
        return;
    }
    if (!tiny)
        end_line(f);
    put_heading(f);
    unsigned used = f->lines + open_room, room = height == ALL ? ALL : height > used ? height - used : 0;
    unsigned all = table_lines(top);
    *most = room < all ? all - room : 0;
    *page = room;
    put_table(f, room);
    if (open_lines(top->report) > 0 && open > 0) {
        end_line(f);
        put_open(f, open);
    }
}

lp_status lp_render_top(const lp_top *top, const lp_top_view *view, unsigned *most, unsigned *page, lp_sink *sink)
{
    static const unsigned default_width = 80;
    lp_sink memory;
    unsigned ignored[2], width = view->width > 0 ? view->width : default_width;
    frame f = {.top = top, .view = view};
    unsigned height = view->height > 0 ? view->height - 1 : ALL; /* without the keys */

    most = most ? most : &ignored[0];
    page = page ? page : &ignored[1];
    *most = *page = 0;
    lp_sink_open_memory(&memory);
    f.line = (lp_line){
        .sink = &memory, .width = width < MIN_WIDTH ? MIN_WIDTH : width, .color = view->color, .utf8 = view->utf8};
    put_title(&f);
    put_body(&f, height, most, page);
    lp_status status = lp_sink_flush(&memory);
    if (status == LP_OK) {
        size_t size = memory.size;
        if (height != ALL) { /* the lines that there is room for */
            unsigned lines = 0;
            size_t at = 0;
            for (; at < size && lines < height; at++)
                lines += memory.data[at] == '\n';
            size = at;
            lp_line_cut(sink, memory.data, size, width, view->color, view->utf8);
            for (; lines < height; lines++)
                lp_sink_char(sink, '\n');
            lp_sink_free(&memory);
            lp_sink_open_memory(&memory);
            put_keys(&f);
            lp_line_end(&f.line);
            status = lp_sink_flush(&memory);
            size = memory.size;
        }
        if (status == LP_OK)
            lp_line_cut(sink, memory.data, size, width, view->color, view->utf8);
    }
    lp_sink_free(&memory);
    return status == LP_OK ? sink->status : status;
}
