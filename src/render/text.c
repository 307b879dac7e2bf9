/* The text report: header, resources and each role's breakdown; the tables are in text_phases.c, what limits the
 * figures in text_caveats.c. No line is longer than the page, whatever the names are. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/text_internal.h"

void lp__text_blank(lp_text *text)
{
    if (text->started)
        lp_line_end(&text->line);
    text->started = true;
}

void lp__text_section(lp_text *text, const char *title, const char *detail)
{
    lp__text_blank(text);
    lp_line_style(&text->line, LP_TITLE);
    lp_line_put(&text->line, title);
    lp_line_style(&text->line, LP_PLAIN);
    if (detail) {
        lp_line_put(&text->line, " ");
        lp_line_put(&text->line, detail);
    }
    lp_line_end(&text->line);
    lp_line_rule(&text->line);
}

void lp__text_say(lp_text *text, unsigned indent, const char *words)
{
    lp_line_to(&text->line, indent);
    lp_line_wrap(&text->line, indent, words);
    lp_line_end(&text->line);
}

char *lp__text_worker(const lp_text *text, const lp_run_worker *worker, char out[LP_LABEL_SIZE])
{
    char number[32];
    lp_str host = worker->host.size > 0 ? worker->host : (lp_str){"?", 1};

    if (worker->rank != LP_UNKNOWN_I64) {
        snprintf(number, sizeof number, "rank %lld (", (long long)worker->rank);
        lp_str parts[] = {{number, strlen(number)}, host, {")", 1}};
        lp_inert(out, LP_LABEL_SIZE, parts, 3, 40, LP_CUT_LEFT, text->line.utf8);
    } else {
        snprintf(number, sizeof number, ":%lld", (long long)worker->pid);
        lp_str parts[] = {host, {number, strlen(number)}};
        lp_inert(out, LP_LABEL_SIZE, parts, 2, 40, LP_CUT_LEFT, text->line.utf8);
    }
    return out;
}

char *lp__text_path(const lp_text *text, const lp_report_phase *phase, unsigned columns, char *out, size_t size)
{
    lp_str shown = lp_visible(phase->path);

    lp_inert(out, size, &shown, 1, columns, LP_CUT_LEFT, text->line.utf8);
    return out;
}

char *lp__text_path_of(const lp_text *text, lp_report_path at, unsigned columns, char *out, size_t size)
{
    const lp_report_role *role = &text->report->roles[at.role];
    lp_str path = role->phases[at.phase].path;
    lp_str parts[] = {lp_visible(path), {" of ", 4}, lp_visible(role->role->name)};

    lp_inert(out, size, parts, lp_report_shares_path(text->report, at.role, path) ? 3 : 1, columns, LP_CUT_LEFT,
             text->line.utf8);
    return out;
}

void lp__text_name(lp_text *text, lp_str name, unsigned columns, lp_cut cut)
{
    lp_str shown = lp_visible(name);

    lp_line_name(&text->line, &shown, 1, columns, cut);
}

void lp__text_label(lp_text *text, const lp_report_role *role, uint32_t phase, unsigned columns, bool whole)
{
    const lp_report_phase *at = &role->phases[phase];

    if (whole || at->parent == LP_NO_PHASE) {
        lp__text_name(text, at->path, columns, LP_CUT_LEFT);
        return;
    }
    lp_str parts[] = {role->phases[at->parent].name, {"/", 1}, at->name};
    lp_line_name(&text->line, parts, 3, columns, LP_CUT_LEFT);
}

/* Room for marks is kept before every label, for all three only where a phase has them. */
static unsigned room_of_marks(const lp_report_phase *phase)
{
    bool async = phase->async_entries > 0 || phase->flags & LP_PHASE_ASYNC;

    return phase->untrusted && phase->stride > 1 && async ? 3 : 2;
}

bool lp__text_fits(const lp_text *text, const lp_report_role *role, unsigned columns)
{
    for (uint32_t i = 0; i < role->by_self_count; i++) {
        const lp_report_phase *phase = &role->phases[role->by_self[i]];
        unsigned whole = lp_inert_columns(&phase->path, 1, text->line.utf8);
        if (whole > columns || whole + room_of_marks(phase) > columns)
            return false;
    }
    return true;
}

unsigned lp__text_marks(lp_text *text, const lp_report_phase *phase)
{
    unsigned columns = 0;

    lp_line_style(&text->line, LP_WARN);
    if (phase->untrusted) {
        lp_line_put(&text->line, "!");
        columns++;
    }
    if (phase->stride > 1) {
        lp_line_put(&text->line, "~");
        columns++;
    }
    if (phase->async_entries > 0 || phase->flags & LP_PHASE_ASYNC) {
        lp_line_put(&text->line, lp_line_glyph(&text->line, "\xe2\x80\xa0", "^"));
        columns++;
    }
    lp_line_style(&text->line, LP_PLAIN);
    return columns;
}

static void put_list(lp_text *text, unsigned indent, bool first, const char *entry)
{
    lp_line *line = &text->line;
    unsigned columns = lp_text_columns(entry) + 1; /* and the comma that may follow */

    if (!first)
        lp_line_put(line, ",");
    if (line->column + !first + columns > line->width) {
        lp_line_end(line);
        lp_line_to(line, indent + columns <= line->width ? indent : 4);
    } else if (!first) {
        lp_line_put(line, " ");
    }
    lp_line_put(line, entry);
}

static void put_roles(lp_text *text)
{
    const lp_run *run = text->report->run;
    unsigned indent = text->line.column;

    if (run->role_count == 0)
        lp_line_put(&text->line, "none");
    for (uint32_t i = 0; i < run->role_count; i++) {
        char entry[LP_INERT_BYTES(48)], count[32];
        snprintf(count, sizeof count, " x%u", run->roles[i].worker_count);
        lp_str parts[] = {lp_visible(run->roles[i].name), {count, strlen(count)}};
        lp_inert(entry, sizeof entry, parts, 2, 32, LP_CUT_LEFT, text->line.utf8);
        put_list(text, indent, i == 0, entry);
    }
}

static void put_hosts(lp_text *text)
{
    const lp_run *run = text->report->run;
    lp_line *line = &text->line;

    lp_line_put(line, run->host_count > 1 ? "Hosts " : "Host ");
    unsigned indent = line->column;
    if (run->host_count == 0)
        lp_line_put(line, "?");
    for (uint32_t i = 0; i < run->host_count; i++) {
        char entry[LP_INERT_BYTES(48)];
        lp_str name = run->hosts[i].name.size > 0 ? run->hosts[i].name : (lp_str){"?", 1};
        if (i == 8 && run->host_count > 9 && !text->options.all) {
            snprintf(entry, sizeof entry, "%u more", run->host_count - i);
            put_list(text, indent, false, entry);
            break;
        }
        lp_inert(entry, sizeof entry, &name, 1, 40, LP_CUT_LEFT, line->utf8);
        put_list(text, indent, i == 0, entry);
    }
    if (run->host_count > 1)
        lp_line_format(line, " (%u nodes)", run->host_count);
    if (run->run_id.size == 0)
        return;
    lp_line_put(line, "   ");
    if (line->column + 5 + run->run_id.size > line->width)
        lp_line_end(line);
    lp_line_put(line, "Run ");
    lp_line_name(line, &run->run_id, 1, line->width - line->column, LP_CUT_RIGHT);
}

static void put_source(lp_text *text)
{
    const lp_run *run = text->report->run;
    lp_line *line = &text->line;

    if (run->source_extra_count > 0) {
        lp_line_put(line, "Source ");
        for (uint32_t i = 0; i < run->source_extra_count; i++) {
            char entry[LP_INERT_BYTES(60)];
            lp_str parts[] = {run->source_extra[i].key, {" ", 1}, run->source_extra[i].value};
            lp_inert(entry, sizeof entry, parts, 3, 56, LP_CUT_RIGHT, line->utf8);
            put_list(text, 7, i == 0, entry);
        }
        lp_line_end(line);
        return;
    }
    if (run->source_commit.size == 0)
        return;
    lp_str commit = {run->source_commit.data, run->source_commit.size < 8 ? run->source_commit.size : 8};
    lp_line_put(line, "Source ");
    lp_line_name(line, &commit, 1, 40, LP_CUT_RIGHT);
    if (run->source_dirty == LP_UNKNOWN_I64) {
        lp_line_put(line, " (changes not checked)");
    } else if (run->source_dirty > 0 || run->source_untracked > 0) {
        lp_line_format(line, " (+dirty: %lld files", (long long)run->source_dirty);
        if (run->source_untracked > 0)
            lp_line_format(line, ", %lld untracked", (long long)run->source_untracked);
        if (run->source_diff.size > 0) {
            lp_str diff = {run->source_diff.data, run->source_diff.size < 6 ? run->source_diff.size : 6};
            lp_line_put(line, ", diff sha ");
            lp_line_name(line, &diff, 1, 24, LP_CUT_RIGHT);
        }
        lp_line_put(line, ")");
    }
    lp_line_end(line);
}

/* Each host whose workers are known by their last snapshots only, and how old those are. */
static void put_as_written(lp_text *text)
{
    const lp_report *report = text->report;
    lp_line *line = &text->line;
    uint32_t limit = text->options.all || report->as_written_count <= 9 ? report->as_written_count : 8;

    for (uint32_t i = 0; i < limit; i++) {
        const lp_report_host *host = &report->as_written[i];
        lp_str name = host->name.size > 0 ? host->name : (lp_str){"?", 1};
        lp_unit newest, oldest;
        lp_unit_age(newest, report->run->read_ns, host->newest_ns);
        lp_unit_age(oldest, report->run->read_ns, host->oldest_ns);
        lp_words words;
        snprintf(words, sizeof words, "%u process%s as last written, %s%s%s ago", host->workers,
                 host->workers == 1 ? "" : "es", newest, strcmp(newest, oldest) != 0 ? " to " : "",
                 strcmp(newest, oldest) != 0 ? oldest : "");
        lp_line_put(line, "  ");
        lp_line_name(line, &name, 1, 24, LP_CUT_LEFT);
        lp_line_to(line, line->column + 2);
        lp_line_wrap(line, 4, words);
        lp_line_end(line);
    }
    if (limit < report->as_written_count) {
        lp_line_format(line, "  %s %u more hosts (--all)", lp_line_glyph(line, "\xe2\x80\xa6", ".."),
                       report->as_written_count - limit);
        lp_line_end(line);
    }
}

static void put_state(lp_text *text)
{
    const lp_report *report = text->report;
    lp_line *line = &text->line;

    if (report->running > 0) {
        lp_line_style(line, LP_BOLD);
        lp_line_put(line, "Still running");
        lp_line_style(line, LP_PLAIN);
        lp_line_format(line, " %u of %u, as of now", report->running, report->run->worker_count);
        if (report->closed > 0)
            lp_line_format(line, "; %u closed", report->closed);
        if (report->last_seen > 0)
            lp_line_format(line, "; %u as last written", report->last_seen);
        lp_line_end(line);
    } else if (report->last_seen > 0) {
        lp_line_format(line, "Not closed %u of %u: as last written, may still run", report->last_seen,
                       report->run->worker_count);
        lp_line_end(line);
    }
    put_as_written(text);
}

static void warn(lp_text *text, const char *words)
{
    lp_line *line = &text->line;

    lp_line_style(line, LP_WARN);
    lp_line_put(line, "WARNING");
    lp_line_style(line, LP_PLAIN);
    lp_line_to(line, 9);
    lp_line_wrap(line, 9, words);
    lp_line_end(line);
}

static void put_warnings(lp_text *text)
{
    const lp_report *report = text->report;
    const lp_run *run = report->run;
    const char *dash = lp_line_glyph(&text->line, "\xe2\x80\x94", "-");
    lp_words words;
    char name[LP_INERT_BYTES(48)];
    uint32_t files = run->worker_count + run->superseded_count;

    if (run->unreadable_count > 0) {
        snprintf(words, sizeof words, "%u of %u worker file(s) could not be read %s see CAVEATS.",
                 run->unreadable_count, files + run->unreadable_count, dash);
        warn(text, words);
    }
    if (run->superseded_count > 0) {
        snprintf(words, sizeof words,
                 "%u of %u worker file(s) are excluded as %u earlier attempt(s) %s see CAVEATS. %s",
                 run->superseded_count, files, report->attempt_count, dash,
                 report->attempts_at_once
                     ? "They ran at the same time: if they are one run, give all its processes one LINEPROFILER_RUN_ID."
                     : "Give every attempt a directory of its own to keep them apart.");
        warn(text, words);
    }
    if (report->died_inside_count > 0) {
        lp_unit how, by = "";
        if (lp_unit_end(how, run->workers[report->died_inside[0]].end)[0])
            snprintf(by, sizeof by, " (%.60s%s)", how,
                     report->died_inside_count > 1 ? lp_line_glyph(&text->line, ", \xe2\x80\xa6", ", ..") : "");
        snprintf(words, sizeof words,
                 "%u of %u worker(s) died inside a phase%s: what they had recorded is in %s see CAVEATS.",
                 report->died_inside_count, run->worker_count, by, dash);
        warn(text, words);
    }
    if (report->health.lost_entries > 0) {
        lp_unit count;
        snprintf(words, sizeof words, "%s %s could not be recorded %s see CAVEATS.",
                 lp_unit_count(count, (lp_i128)report->health.lost_entries),
                 report->health.lost_entries == 1 ? "entry" : "entries", dash);
        warn(text, words);
    }
    for (uint32_t i = 0; i < report->self_nested_count && i < 3; i++) {
        lp__text_path_of(text, report->self_nested[i], 48, name, sizeof name);
        snprintf(words, sizeof words,
                 "%s is nested in a phase of the same name: its time is also in that of the outer one.", name);
        warn(text, words);
    }
}

static void put_empty_reason(lp_text *text)
{
    const lp_run *run = text->report->run;
    const char *dash = lp_line_glyph(&text->line, "\xe2\x80\x94", "-");
    lp_words words;
    char where[LP_INERT_BYTES(60)];

    bool missing = strcmp(run->empty_reason, "missing") == 0;
    lp_str directory = missing ? lp_visible(run->directory) : run->directory;
    lp_inert(where, sizeof where, &directory, 1, 60, LP_CUT_LEFT, text->line.utf8);
    if (missing)
        snprintf(words, sizeof words,
                 "No run directory %s there is no directory %s. Give the one that the program was told to write "
                 "(run_dir= or "
                 "LINEPROFILER_RUN_DIR; by default \"profile\" in its working directory).",
                 dash, where);
    else
        snprintf(words, sizeof words,
                 "No worker files %s looked for workers/<host>/w_*.snap in %s and for segments of running processes on "
                 "this host. Was a Profiler on (run_dir=, enabled=True or LINEPROFILER_PROFILE=1) and a phase entered?",
                 dash, where[0] ? where : "it");
    lp__text_say(text, 0, words);
    lp_line_end(&text->line);
}

static void put_header(lp_text *text)
{
    const lp_run *run = text->report->run;
    lp_line *line = &text->line;
    lp_unit unit;

    text->started = true;
    if (run->empty_reason[0])
        put_empty_reason(text);
    lp_line_put(line, "Runtime ");
    lp_line_style(line, LP_BOLD);
    lp_line_put(line, lp_unit_ns(unit, (double)run->runtime_ns));
    lp_line_style(line, LP_PLAIN);
    lp_line_format(line, "   Processes %u   Roles ", run->worker_count);
    put_roles(text);
    lp_line_end(line);
    put_hosts(text);
    lp_line_end(line);
    put_source(text);
    put_state(text);
    put_warnings(text);
}

static void put_hardware(lp_text *text, const lp_run_host *host)
{
    lp_line *line = &text->line;
    const lp_hardware *has = &host->hardware;
    lp_str name = host->name.size > 0 ? host->name : (lp_str){"?", 1};
    lp_unit unit;
    const char *separator = ": ";

    lp_line_put(line, "  ");
    lp_line_name(line, &name, 1, 32, LP_CUT_LEFT);
    int64_t cores = has->cpu_cores != LP_UNKNOWN_I64 ? has->cpu_cores : has->cpu_threads;
    if (cores != LP_UNKNOWN_I64) {
        lp_line_format(line, "%s%lld core%s", separator, (long long)cores, cores == 1 ? "" : "s");
        separator = ", ";
    }
    if (has->cpu_affinity != LP_UNKNOWN_I64 && has->cpu_threads != LP_UNKNOWN_I64 &&
        has->cpu_affinity != has->cpu_threads) {
        lp_line_format(line, " (%lld of %lld CPUs may be used)", (long long)has->cpu_affinity,
                       (long long)has->cpu_threads);
    }
    if (has->ram_total != LP_UNKNOWN_I64) {
        lp_line_format(line, "%s%s RAM", separator, lp_unit_bytes(unit, (double)has->ram_total));
        separator = ", ";
    }
    for (uint32_t i = 0; i < has->gpu_count;) {
        uint32_t same = 1;
        while (i + same < has->gpu_count && has->gpus[i + same].name.size == has->gpus[i].name.size &&
               memcmp(has->gpus[i + same].name.data, has->gpus[i].name.data, has->gpus[i].name.size) == 0)
            same++;
        if (line->column + 12 > line->width)
            break;
        lp_line_format(line, "%s%ux ", separator, same);
        lp_line_name(line, &has->gpus[i].name, 1, line->width - line->column, LP_CUT_RIGHT);
        separator = ", ";
        i += same;
    }
    if (separator[0] == ':')
        lp_line_put(line, ": hardware unknown");
    lp_line_end(line);
}

static void put_role_title(lp_text *text, const lp_report_role *role)
{
    const lp_run *run = text->report->run;
    lp_line *line = &text->line;
    uint32_t count = role->role->worker_count;
    char title[256], label[LP_LABEL_SIZE];
    lp_unit unit;
    lp_str name = lp_visible(role->role->name);
    size_t size = name.size < sizeof title ? name.size : sizeof title;

    for (size_t i = 0; i < size; i++) /* only ASCII: what upper case is elsewhere depends on the language */
        title[i] = name.data[i] >= 'a' && name.data[i] <= 'z' ? (char)(name.data[i] - 32) : name.data[i];
    lp_str upper = {title, size};
    lp__text_blank(text);
    lp_line_style(line, LP_TITLE);
    lp_line_name(line, &upper, 1, 24, LP_CUT_RIGHT);
    lp_line_style(line, LP_PLAIN);
    lp_line_format(line, "  (%u process%s, imbalance %s", count, count == 1 ? "" : "es",
                   lp_unit_fixed(unit, role->role->imbalance, 2));
    lp__text_worker(text, &run->workers[role->role->slowest], label);
    if (count > 1 && line->column + 10 + lp_text_columns(label) < line->width)
        lp_line_format(line, ", slowest %s", label);
    lp_line_put(line, ")");
    lp_line_end(line);
}

static void put_denominator(lp_text *text, const lp_report_role *role)
{
    const lp_report_breakdown *breakdown = &role->breakdown;
    lp_words words;
    char name[LP_INERT_BYTES(40)], summed[64] = "", beside[96] = "";
    lp_unit total, lived;

    lp_unit_ns(total, (double)breakdown->total_ns);
    if (role->role->worker_count > 1)
        snprintf(summed, sizeof summed, ", summed over %u processes", role->role->worker_count);
    /* A little more may be two clocks, or a process that was last seen before its open phases. */
    if (breakdown->total_ns > role->lived_ns + role->lived_ns / 10 && role->lived_ns > 0)
        snprintf(beside, sizeof beside, ", in tasks or threads beside each other within %s",
                 lp_unit_ns(lived, (double)role->lived_ns));
    if (breakdown->chain)
        snprintf(words, sizeof words,
                 "%% of %s, the wall time of the top phase%s%s; each level lies within the one above%s", total, beside,
                 summed, breakdown->estimated ? ", but for what is estimated" : "");
    else if (breakdown->at == LP_NO_PHASE)
        snprintf(words, sizeof words, "%% of %s, phase wall time at the first branching level%s%s", total, beside,
                 summed);
    else
        snprintf(words, sizeof words, "%% of %s, the wall time of %s (first branching level)%s%s%s", total,
                 lp__text_path(text, &role->phases[breakdown->at], 40, name, sizeof name), beside, summed,
                 breakdown->estimated     ? "; its children are estimated, and add up to more"
                 : breakdown->overlapping ? "; its children overlap: shares are sums"
                                          : "");
    lp_line_style(&text->line, LP_DIM);
    lp__text_say(text, 2, words);
}

static void put_share(lp_text *text, const lp_report_role *role, const lp_report_share *row, unsigned label)
{
    lp_line *line = &text->line;
    lp_unit unit;
    unsigned numbers = 20, bar = line->width - label - numbers - 2;

    if (row->phase == LP_NO_PHASE) {
        lp_line_put(line, "Other");
    } else {
        unsigned marks = lp__text_marks(text, &role->phases[row->phase]);
        if (role->breakdown.chain)
            lp__text_label(text, role, row->phase, label - marks, true);
        else
            lp__text_name(text, role->phases[row->phase].name, label - marks, LP_CUT_LEFT);
    }
    lp_line_to(line, label + 1);
    lp_line_bar(line, row->share, bar);
    lp_line_right(line, line->width - 11, lp_unit_percent(unit, row->share));
    lp_line_right(line, line->width, lp_unit_ns(unit, (double)row->wall_ns));
    lp_line_end(line);
}

/* share: of them together, NaN where they lie in each other. */
static void put_hidden(lp_text *text, unsigned hidden, double share)
{
    lp_unit unit;

    if (hidden == 0)
        return;
    lp_line_format(&text->line, "%s %u more (--all)", lp_line_glyph(&text->line, "\xe2\x80\xa6", ".."), hidden);
    if (!isnan(share))
        lp_line_right(&text->line, text->line.width - 11, lp_unit_percent(unit, share));
    lp_line_end(&text->line);
}

static void put_breakdown(lp_text *text, const lp_report_role *role, unsigned label)
{
    const lp_report_breakdown *breakdown = &role->breakdown;
    uint32_t rows = breakdown->row_count, hidden = 0;
    double hidden_share = breakdown->chain ? (double)NAN : 0.0;

    if (rows == 0) {
        lp__text_say(text, 0, "no phase was entered");
        return;
    }
    bool other = breakdown->rows[rows - 1].phase == LP_NO_PHASE;
    for (uint32_t i = 0; i < rows; i++) {
        bool is_other = other && i + 1 == rows;
        if (!text->options.all && rows > LP_TEXT_ROWS + 1u + other && i >= LP_TEXT_ROWS && !is_other) {
            hidden++;
            hidden_share += breakdown->rows[i].share;
            continue;
        }
        if (is_other) {
            put_hidden(text, hidden, hidden_share);
            hidden = 0;
        }
        put_share(text, role, &breakdown->rows[i], label);
    }
    put_hidden(text, hidden, hidden_share);
}

/* One width for all roles, so that their bars can be compared by eye. */
static unsigned breakdown_label(const lp_text *text)
{
    unsigned widest = text->line.width > 100 ? text->line.width / 3 : 28, label = 12;

    for (uint32_t r = 0; r < text->report->role_count; r++) {
        const lp_report_role *role = &text->report->roles[r];
        for (uint32_t i = 0; i < role->breakdown.row_count; i++) {
            uint32_t phase = role->breakdown.rows[i].phase;
            if (phase == LP_NO_PHASE)
                continue;
            const lp_str *name = role->breakdown.chain ? &role->phases[phase].path : &role->phases[phase].name;
            unsigned columns = lp_inert_columns(name, 1, text->line.utf8);
            columns = columns < widest ? columns + room_of_marks(&role->phases[phase]) : widest;
            label = columns > label ? columns : label;
        }
    }
    return label < widest ? label : widest;
}

static void put_role(lp_text *text, const lp_report_role *role, unsigned label)
{
    put_role_title(text, role);
    if (role->breakdown.row_count > 0)
        put_denominator(text, role);
    lp_line_rule(&text->line);
    put_breakdown(text, role, label);
    lp__text_phases(text, role);
    lp__text_iterations(text, role);
}

lp_status lp_render_text(const lp_report *report, lp_text_options options, lp_sink *sink)
{
    unsigned width = options.width ? options.width : LP_TEXT_WIDTH;
    lp_text text = {.report = report, .options = options};

    width = width < LP_TEXT_MIN_WIDTH ? LP_TEXT_MIN_WIDTH : width > LP_TEXT_MAX_WIDTH ? LP_TEXT_MAX_WIDTH : width;
    text.line = (lp_line){.sink = sink, .width = width, .color = options.color, .utf8 = options.utf8, .breaks = true};
    put_header(&text);
    if (report->run->worker_count > 0) {
        unsigned label = breakdown_label(&text);
        lp__text_findings(&text);
        lp__text_resources(&text, put_hardware);
        for (uint32_t i = 0; i < report->role_count; i++)
            put_role(&text, &report->roles[i], label);
        lp__text_io(&text);
        if (options.samples)
            lp__text_sampled(&text);
        lp__text_open(&text);
    }
    lp__text_caveats(&text);
    return sink->status;
}
