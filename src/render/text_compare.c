/* The text of a comparison: what is in one run only, then the rest from the largest regression down. */
#include <stdio.h>
#include <string.h>

#include "render/json_write.h"
#include "render/line.h"
#include "render/render.h"
#include "render/units.h"

typedef struct table {
    unsigned label, a, b, change, entries;
} table; /* right edges; label: width */

static table lay_out(const lp_comparison *comparison, const lp_line *line)
{
    unsigned longest = 24, numbers = 46;

    for (uint32_t i = 0; i < comparison->count; i++) {
        unsigned columns = lp_inert_columns(&comparison->rows[i].path, 1, line->utf8);
        longest = columns > longest ? columns : longest;
    }
    unsigned label = longest < line->width - numbers ? longest : line->width - numbers;
    return (table){label, label + 12, label + 24, label + 35, label + 46};
}

static void put_path(lp_line *line, const lp_delta *row, unsigned columns)
{
    lp_str path = lp_visible(row->path);

    lp_line_name(line, &path, 1, columns, LP_CUT_LEFT);
}

static void put_rule(lp_line *line, const table *at)
{
    lp_line_style(line, LP_DIM);
    for (unsigned i = 0; i < at->entries; i++)
        lp_line_put(line, lp_line_glyph(line, "\xe2\x94\x80", "-"));
    lp_line_end(line);
}

static void put_side(lp_line *line, unsigned edge, uint64_t entries, double per_entry)
{
    lp_unit unit;

    lp_line_right(line, edge, entries > 0 ? lp_unit_ns(unit, per_entry) : lp_line_glyph(line, "\xe2\x80\x94", "-"));
}

/* "": nothing to be said of the change, or no change. */
static const char *mark_of(const lp_delta *row)
{
    if (row->only_in || row->unfinished_in || row->per_entry_a <= 0.0)
        return "";
    return row->thin ? "?" : row->tail_moved ? "~" : "";
}

static void put_row(lp_line *line, const table *at, const lp_delta *row)
{
    char change[LP_UNIT_SIZE + 8];
    lp_unit unit;

    put_path(line, row, at->label);
    put_side(line, at->a, row->entries_a, row->per_entry_a);
    put_side(line, at->b, row->entries_b, row->per_entry_b);
    if (row->only_in) {
        snprintf(change, sizeof change, "only in %c", row->only_in);
    } else if (row->unfinished_in) {
        snprintf(change, sizeof change, "open in %c", row->unfinished_in);
    } else if (row->per_entry_a <= 0.0) {
        snprintf(change, sizeof change, "n/a");
    } else {
        if (row->percent < 1e6)
            lp_unit_fixed(unit, row->percent, 1);
        else
            lp_unit_count_in(unit, (lp_i128)row->percent, 6);
        snprintf(change, sizeof change, "%s%s%%%s", row->percent >= 0.0 && unit[0] != '-' ? "+" : "", unit,
                 mark_of(row));
        if (!row->thin && (row->percent > 10.0 || row->percent < -10.0))
            lp_line_style(line, row->percent > 0 ? LP_WARN : LP_BAR);
    }
    /* A mark stands outside the column, so that the percent signs line up. */
    lp_line_right(line, at->change + (mark_of(row)[0] != '\0'), change);
    lp_line_style(line, LP_PLAIN);
    lp_line_right(line, at->entries, lp_unit_count_in(unit, (lp_i128)row->samples, 10));
    lp_line_end(line);
}

static void put_tails(lp_line *line, const lp_comparison *comparison, const table *at, bool all)
{
    unsigned named = 0, more = 0;

    for (uint32_t i = 0; i < comparison->count; i++) {
        const lp_delta *row = &comparison->rows[i];
        lp_unit mean, p50;
        if (mark_of(row)[0] != '~')
            continue;
        if (named >= 12 && !all) {
            more++;
            continue;
        }
        named++;
        lp_line_to(line, 6);
        put_path(line, row, at->label);
        lp_line_to(line, at->label + 8);
        lp_line_format(line, "mean %sx   median %sx", lp_unit_fixed(mean, row->ratio, 2),
                       lp_unit_fixed(p50, row->p50_ratio, 2));
        lp_line_end(line);
    }
    if (more > 0) {
        lp_line_format(line, "      %s %u more (--all)", lp_line_glyph(line, "\xe2\x80\xa6", ".."), more);
        lp_line_end(line);
    }
}

static void put_notes(lp_line *line, const lp_comparison *comparison, const table *at, bool all)
{
    bool thin = false, tail = false;

    for (uint32_t i = 0; i < comparison->count; i++) {
        thin = thin || mark_of(&comparison->rows[i])[0] == '?';
        tail = tail || mark_of(&comparison->rows[i])[0] == '~';
    }
    if (thin || tail)
        lp_line_end(line);
    if (thin) {
        lp_line_put(line, "  ? = ");
        lp_line_wrap(line, 6, "fewer than 30 entries in one run; too thin to tell a change from chance");
        lp_line_end(line);
    }
    if (tail) {
        lp_line_put(line, "  ~ = ");
        lp_line_wrap(line, 6,
                     "the mean moved but the median did not (or vice versa): a few slow entries, not all of them");
        lp_line_end(line);
        put_tails(line, comparison, at, all);
    }
}

lp_status lp_render_comparison_text(const lp_comparison *comparison, const char *label_a, const char *label_b,
                                    lp_text_options options, lp_sink *sink)
{
    unsigned width = options.width ? options.width : LP_TEXT_WIDTH;
    const char *const labels[] = {label_a, label_b};

    width = width < LP_TEXT_MIN_WIDTH ? LP_TEXT_MIN_WIDTH : width > LP_TEXT_MAX_WIDTH ? LP_TEXT_MAX_WIDTH : width;
    lp_line line = {.sink = sink, .width = width, .color = options.color, .utf8 = options.utf8, .breaks = true};
    table at = lay_out(comparison, &line);
    for (int i = 0; i < 2; i++) {
        lp_str label = {labels[i], strlen(labels[i])};
        lp_line_format(&line, "%c = ", 'A' + i);
        lp_line_name(&line, &label, 1, width - 4, LP_CUT_LEFT);
        lp_line_end(&line);
    }
    lp_line_end(&line);
    lp_line_style(&line, LP_BOLD);
    lp_line_put(&line, "phase");
    lp_line_right(&line, at.a, "A /entry");
    lp_line_right(&line, at.b, "B /entry");
    lp_line_right(&line, at.change, "change");
    lp_line_right(&line, at.entries, "n");
    lp_line_end(&line);
    put_rule(&line, &at);
    for (uint32_t i = 0; i < comparison->count; i++)
        put_row(&line, &at, &comparison->rows[i]);
    if (comparison->count == 0) {
        lp_line_put(&line, "no phase was finished in either run");
        lp_line_end(&line);
    }
    put_notes(&line, comparison, &at, options.all);
    return sink->status;
}

lp_status lp_render_comparison_json(const lp_comparison *comparison, const char *label_a, const char *label_b,
                                    lp_sink *sink)
{
    lp_json json = {.sink = sink, .fresh = true};

    lp_json_open(&json, '{');
    lp_json_key(&json, "a");
    lp_json_text(&json, label_a);
    lp_json_key(&json, "b");
    lp_json_text(&json, label_b);
    lp_json_key(&json, "phases");
    lp_json_open(&json, '[');
    for (uint32_t i = 0; i < comparison->count; i++) {
        const lp_delta *row = &comparison->rows[i];
        const struct {
            const char *key;
            double value;
        } figures[] = {
            {"per_call_ns_a", row->per_entry_a},
            {"per_call_ns_b", row->per_entry_b},
            {"p50_ns_a", row->p50_a},
            {"p50_ns_b", row->p50_b},
            {"ratio", row->ratio},
            {"p50_ratio", row->p50_ratio},
            {"percent", row->percent},
        };
        const char only[] = {row->only_in, '\0'};
        lp_json_open(&json, '{');
        lp_json_key(&json, "phase");
        lp_json_string(&json, row->path);
        lp_json_key(&json, "path");
        lp_json_open_flat(&json, '[');
        for (uint32_t d = 0; d < row->depth; d++)
            lp_json_string(&json, row->names[d]);
        lp_json_close(&json, ']');
        lp_json_key(&json, "calls_a");
        lp_json_int(&json, (lp_i128)row->entries_a);
        lp_json_key(&json, "calls_b");
        lp_json_int(&json, (lp_i128)row->entries_b);
        lp_json_key(&json, "open_a");
        lp_json_int(&json, (lp_i128)row->open_a);
        lp_json_key(&json, "open_b");
        lp_json_int(&json, (lp_i128)row->open_b);
        for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
            lp_json_key(&json, figures[f].key);
            lp_json_double(&json, figures[f].value);
        }
        lp_json_key(&json, "samples");
        lp_json_int(&json, (lp_i128)row->samples);
        lp_json_key(&json, "thin");
        lp_json_bool(&json, row->thin);
        lp_json_key(&json, "tail_moved");
        lp_json_bool(&json, row->tail_moved);
        lp_json_key(&json, "only_in");
        if (row->only_in)
            lp_json_text(&json, only);
        else
            lp_json_null(&json);
        lp_json_close(&json, '}');
    }
    lp_json_close(&json, ']');
    lp_json_close(&json, '}');
    lp_sink_char(sink, '\n');
    return sink->status;
}
