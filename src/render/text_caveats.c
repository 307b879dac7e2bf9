/* CAVEATS: what limits the figures above, and how they were measured. Every sentence names what it touches. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "render/text_internal.h"

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static unsigned limit_of(const lp_text *text, uint32_t count)
{
    return text->options.all || count <= LP_TEXT_NAMED + 1 ? count : LP_TEXT_NAMED;
}

static void put_more(lp_text *text, uint32_t count, uint32_t limit)
{
    if (limit < count) {
        lp_line_format(&text->line, "  %s %u more (--all)", lp_line_glyph(&text->line, "\xe2\x80\xa6", ".."),
                       count - limit);
        lp_line_end(&text->line);
    }
}

static void say(lp_text *text, const char *words)
{
    lp_line_wrap(&text->line, 2, words);
    lp_line_end(&text->line);
}

__attribute__((format(printf, 2, 3))) static void sayf(lp_text *text, const char *format, ...)
{
    lp_words words;
    va_list args;

    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    say(text, words);
}

static lp_str base_name(lp_str path)
{
    size_t at = path.size;

    while (at > 0 && path.data[at - 1] != '/')
        at--;
    return (lp_str){path.data + at, path.size - at};
}

static void put_lost(lp_text *text, const lp_run_lost *lost, uint32_t count)
{
    unsigned limit = limit_of(text, count);
    lp_line *line = &text->line;

    for (unsigned i = 0; i < limit; i++) {
        lp_str name = base_name(lost[i].path);
        lp_line_to(line, 2);
        lp_line_name(line, &name, 1, line->width - 2, LP_CUT_LEFT);
        if (line->column + 2 + lp_inert_columns(&lost[i].reason, 1, line->utf8) > line->width) {
            lp_line_end(line);
            lp_line_to(line, 4);
        } else {
            lp_line_to(line, line->column + 2);
        }
        lp_line_name(line, &lost[i].reason, 1, line->width - line->column, LP_CUT_RIGHT);
        lp_line_end(line);
    }
    put_more(text, count, limit);
}

static void put_unreadable(lp_text *text)
{
    const lp_run *run = text->report->run;
    const lp_usage *usage = text->options.samples ? text->report->usage : NULL;

    if (run->unreadable_count > 0) {
        lp_line_style(&text->line, LP_BAD);
        sayf(text, "%u worker file(s) unreadable %s their work is missing:", run->unreadable_count,
             lp_line_glyph(&text->line, "\xe2\x80\x94", "-"));
        put_lost(text, run->unreadable, run->unreadable_count);
    }
    if (usage && usage->lost_count > 0) {
        sayf(text,
             "%u sample file(s) could not be read to their end; what they had up to there is in:", usage->lost_count);
        put_lost(text, usage->lost, usage->lost_count);
    }
}

static void put_superseded(lp_text *text)
{
    const lp_report *report = text->report;
    unsigned limit = limit_of(text, report->attempt_count);

    if (report->attempt_count == 0)
        return;
    sayf(text,
         "%u worker file(s) belong to %u earlier attempt(s) in this directory and are excluded from every total above:",
         report->run->superseded_count, report->attempt_count);
    for (unsigned i = 0; i < limit; i++) {
        lp_line_to(&text->line, 2);
        lp_line_name(&text->line, &report->attempts[i].run_id, 1, 64 - 22, LP_CUT_RIGHT);
        lp_line_format(&text->line, "  %u worker%s", report->attempts[i].workers, plural(report->attempts[i].workers));
        lp_line_end(&text->line);
    }
    put_more(text, report->attempt_count, limit);
}

/* "  node07:2829  <words>" for each worker of a list. */
static void put_worker(lp_text *text, uint32_t index, const char *words)
{
    const lp_run_worker *worker = &text->report->run->workers[index];
    char label[LP_LABEL_SIZE], role[LP_INERT_BYTES(20)];
    lp_line *line = &text->line;

    lp_line_put(line, "  ");
    lp_line_put(line, lp__text_worker(text, worker, label));
    if (text->report->role_count > 1) {
        lp_str shown = lp_visible(worker->role);
        lp_inert(role, sizeof role, &shown, 1, 16, LP_CUT_RIGHT, line->utf8);
        lp_line_format(line, " %s", role);
    }
    lp_line_to(line, line->column + 2);
    lp_line_wrap(line, 4, words);
    lp_line_end(line);
}

/* The innermost phase that was open, in at most 40 columns. */
static char *innermost(const lp_text *text, const lp_run_worker *worker, char out[LP_INERT_BYTES(40)])
{
    const lp_run_open *inside = worker->open;
    lp_str parts[64];
    unsigned count = 0;

    for (uint32_t i = 0; i < worker->open_count && !inside->inner; i++)
        inside = &worker->open[i];
    for (uint32_t d = inside->depth > 32 ? inside->depth - 32 : 0; d < inside->depth; d++) {
        if (count > 0)
            parts[count++] = (lp_str){"/", 1};
        parts[count++] = inside->path[d];
    }
    lp_inert(out, LP_INERT_BYTES(40), parts, count, 40, LP_CUT_LEFT, text->line.utf8);
    return out;
}

/* "after 10m 00s, 50m 00s before the end, inside a/b", with how it died before it where that is known. */
static void put_one_death(lp_text *text, uint32_t index)
{
    const lp_run_worker *worker = &text->report->run->workers[index];
    uint64_t ended = text->report->run->ended_ns;
    char path[LP_INERT_BYTES(40)], before[LP_UNIT_SIZE + 32] = "";
    lp_unit how, unit, ago;
    lp_words words;

    if (ended > worker->written_ns + 1000000000ull)
        snprintf(before, sizeof before, ", %s before the end", lp_unit_ns(ago, (double)(ended - worker->written_ns)));
    lp_unit_end(how, worker->end);
    snprintf(words, sizeof words, "%s%safter %s%s, %s%s", how, how[0] ? " " : "",
             lp_unit_ns(unit, (double)worker->elapsed_ns), before, worker->open_count > 0 ? "inside " : "in no phase",
             worker->open_count > 0 ? innermost(text, worker, path) : "");
    put_worker(text, index, words);
}

/* "Linux-6.1.0-x86_64": the first two numbers. */
static bool is_before_6_15(lp_str platform)
{
    unsigned major = 0, minor = 0;
    char release[32];
    size_t size = platform.size < sizeof release ? platform.size : sizeof release - 1;

    memcpy(release, platform.data, size);
    release[size] = '\0';
    return sscanf(release, "Linux-%u.%u", &major, &minor) == 2 && (major < 6 || (major == 6 && minor < 15));
}

static void put_how_unknown(lp_text *text, const uint32_t *list, uint32_t count)
{
    const lp_run_worker *first = NULL;
    uint32_t unknown = 0;

    for (uint32_t i = 0; i < count; i++) {
        const lp_run_worker *worker = &text->report->run->workers[list[i]];
        if (worker->end.code != LP_UNKNOWN_I64 || worker->end.replaced)
            continue;
        first = first ? first : worker;
        unknown++;
    }
    if (!first)
        return;
    lp_line_to(&text->line, 2);
    sayf(text, "how %u of them died is not known: %s", unknown,
         is_before_6_15(first->platform) ? "kernel < 6.15, which tells nobody but the parent"
                                         : "no collector watched until the end");
}

static void put_deaths(lp_text *text, const uint32_t *list, uint32_t count)
{
    unsigned limit = limit_of(text, count);

    for (unsigned i = 0; i < limit; i++)
        put_one_death(text, list[i]);
    put_more(text, count, limit);
    put_how_unknown(text, list, count);
}

static void put_died(lp_text *text)
{
    const lp_report *report = text->report;
    uint32_t others = report->unclean_count - report->died_inside_count - report->died_outside_count;

    if (report->died_inside_count > 0) {
        sayf(text, "%u worker(s) died without closing, inside a phase; what they had recorded is in:",
             report->died_inside_count);
        put_deaths(text, report->died_inside, report->died_inside_count);
    }
    if (report->died_outside_count > 0) {
        sayf(text, "%u worker(s) died without closing while no phase was open; all that they had recorded is in:",
             report->died_outside_count);
        put_deaths(text, report->died_outside, report->died_outside_count);
    }
    if (others > 0)
        sayf(text,
             "%u worker(s) ended without closing while no phase was open (os._exit, as forked workers do, or killed); "
             "all that they had recorded is in",
             others);
}

static void put_stale(lp_text *text)
{
    const lp_report *report = text->report;
    unsigned limit = limit_of(text, report->stale_count);
    static const char *const how[] = {[LP_LIFE_CLOSED] = "closed",
                                      [LP_LIFE_DIED] = "died",
                                      [LP_LIFE_LAST_SEEN] = "last written",
                                      [LP_LIFE_RUNNING] = "last seen"};

    if (report->stale_count == 0)
        return;
    sayf(text, "%u worker(s) stopped writing well before the run ended:", report->stale_count);
    for (unsigned i = 0; i < limit; i++) {
        const lp_run_worker *worker = &report->run->workers[report->stale[i]];
        lp_words words;
        lp_unit unit;
        snprintf(words, sizeof words, "%s %s early", how[worker->life],
                 lp_unit_ns(unit, (double)(report->run->ended_ns - worker->written_ns)));
        put_worker(text, report->stale[i], words);
    }
    put_more(text, report->stale_count, limit);
}

static void put_failed_writes(lp_text *text)
{
    const lp_report *report = text->report;
    unsigned limit = limit_of(text, report->failed_write_count);
    char reason[LP_INERT_BYTES(120)];

    if (report->failed_write_count == 0)
        return;
    sayf(text, "%u worker(s) reported failed snapshot writes:", report->failed_write_count);
    for (unsigned i = 0; i < limit; i++) {
        const lp_health *health = &report->run->workers[report->failed_writes[i]].health;
        lp_words words;
        /* The path comes first and may be long, why it failed last. */
        lp_inert(reason, sizeof reason, &health->last_error, 1, 100, LP_CUT_LEFT, text->line.utf8);
        snprintf(words, sizeof words, "%llu failure(s)%s%s", (unsigned long long)health->write_failures,
                 reason[0] ? ": " : "", reason);
        put_worker(text, report->failed_writes[i], words);
    }
    put_more(text, report->failed_write_count, limit);
}

static void put_health(lp_text *text)
{
    const lp_health *health = &text->report->health;
    const struct {
        uint64_t count;
        const char *one, *many;
    } counts[] = {
        {health->lost_entries, "entry was not recorded at all: no memory for the segment; every total is short of it",
         "entries were not recorded at all: no memory for the segment; every total is short of them"},
        {health->folded_depth, "entry lay deeper than the depth limit and is counted in the phase above the limit",
         "entries lay deeper than the depth limit and are counted in the phase above the limit"},
        {health->misuse,
         "time a phase was left that was not open, or the like: nothing is damaged, but look at the program",
         "times a phase was left that was not open, or the like: nothing is damaged, but look at the program"},
        {health->callback_failures, "on_snapshot callback raised an exception and was skipped",
         "on_snapshot callbacks raised an exception and were skipped"},
        {health->foreign_exits, "entry was left in another thread than it was entered in: its CPU time is not known",
         "entries were left in another thread than they were entered in: their CPU time is not known"},
        {health->clock_backwards, "duration would have been negative and counts as 0: a clock went backwards",
         "durations would have been negative and count as 0: a clock went backwards"},
    };
    lp_unit unit;

    if (health->folded_paths > 0) {
        char name[LP_INERT_BYTES(48)];
        lp_inert(name, sizeof name, &health->first_folded, 1, 48, LP_CUT_LEFT, text->line.utf8);
        sayf(text,
             "%s path(s) beyond the limit of 4,096 are folded into the phase above them; the first was %s. Phase "
             "names must not be built from data: use a fixed name and count().",
             lp_unit_count(unit, (lp_i128)health->folded_paths), name);
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].count > 0)
            sayf(text, "%s %s", lp_unit_count(unit, (lp_i128)counts[i].count),
                 counts[i].count == 1 ? counts[i].one : counts[i].many);
}

/* "<before>: a, b, 3 more" */
static void put_phases(lp_text *text, const lp_report_path *list, uint32_t count, const char *words)
{
    unsigned limit = limit_of(text, count);
    lp_line *line = &text->line;

    if (count == 0)
        return;
    lp_line_wrap(line, 2, words);
    for (unsigned i = 0; i < limit; i++) {
        char name[LP_INERT_BYTES(48)];
        lp__text_path_of(text, list[i], 48, name, sizeof name);
        if (line->column + 2 + lp_text_columns(name) > line->width) { /* with a space before and a comma after it */
            lp_line_end(line);
            lp_line_to(line, 2);
        } else {
            lp_line_put(line, " ");
        }
        lp_line_put(line, name);
        if (i + 1 < limit)
            lp_line_put(line, ",");
    }
    if (limit < count) {
        lp_line_put(line, ",");
        lp_line_format(line, " %u more", count - limit);
    }
    lp_line_end(line);
}

static void put_asked(lp_text *text)
{
    const lp_report *report = text->report;
    lp_words words;
    int used = snprintf(words, sizeof words, "asked for, not recorded (comes with a later version):");

    if (report->asked_count == 0)
        return;
    for (uint32_t i = 0; i < report->asked_count && i < 16; i++) {
        char name[LP_INERT_BYTES(20)];
        lp_inert(name, sizeof name, &report->asked[i].option, 1, 20, LP_CUT_RIGHT, text->line.utf8);
        int more = snprintf(words + used, sizeof words - (size_t)used, "%s %s", i > 0 ? "," : "", name);
        if (more < 0 || more >= (int)sizeof words - used)
            break;
        used += more;
    }
    say(text, words);
}

static void put_steps(lp_text *text)
{
    const lp_report *report = text->report;
    unsigned limit = limit_of(text, report->step_count);

    for (uint32_t i = 0; i < limit; i++) {
        const lp_clock_step *step = &report->steps[i].step;
        char host[LP_INERT_BYTES(40)], at[32];
        lp_unit by;
        time_t seconds = (time_t)(step->real_ns / 1000000000u);
        struct tm utc;
        lp_inert(host, sizeof host, &report->steps[i].host, 1, 40, LP_CUT_RIGHT, text->line.utf8);
        snprintf(at, sizeof at, "an unknown time");
        if (gmtime_r(&seconds, &utc))
            strftime(at, sizeof at, "%Y-%m-%d %H:%M:%S UTC", &utc);
        lp_unit_ns(by, fabs((double)step->by_ns));
        if (step->slept)
            sayf(text, "%s was suspended for %s, until %s: elapsed time is without that", host, by, at);
        else
            sayf(text,
                 "the clock of %s was set %s by %s, to %s: durations are not concerned, times of day before it are",
                 host, step->by_ns < 0 ? "back" : "forward", by, at);
    }
    put_more(text, report->step_count, limit);
}

static void put_limits(lp_text *text)
{
    const lp_report *report = text->report;
    const lp_run *run = report->run;

    if (report->private_memory_count > 0)
        sayf(text,
             "%u of %u worker(s) had no shared memory and recorded into private memory: they cannot be read while "
             "they run, and what a kill ends is lost since the last snapshot",
             report->private_memory_count, run->worker_count);
    if (report->no_cpu_count > 0)
        sayf(text,
             "CPU time was not measured in %u of %u worker(s) (measure_cpu=False): wait is n/a or covers the others "
             "only",
             report->no_cpu_count, run->worker_count);
    put_steps(text);
    put_asked(text);
    if (report->no_cpu_count == 0) /* else that is why */
        put_phases(
            text, report->cpu_unknown, report->cpu_unknown_count,
            "CPU time is not known of entries during which their thread ran other tasks (await), or that ended in "
            "another thread: wait is n/a, or of the rest only:");
    put_phases(text, report->overlapping, report->overlapping_count,
               "children overlap in time (tasks): their shares are sums and self is what no child covers:");
    put_phases(text, report->io_overlap, report->io_overlap_count,
               "bytes of io=True entries include those of other threads' io=True entries, or of children that were "
               "waited for meanwhile:");
    put_phases(text, report->io_missing, report->io_missing_count,
               "bytes of some io=True entries could not be read and are missing:");
    for (uint32_t i = 0; i < report->open_count; i++)
        if (report->open[i].life != LP_LIFE_CLOSED) {
            say(text,
                "open phases: entries, wait and quantiles are of finished entries; self, shares and rates include what "
                "is open");
            break;
        }
}

/* How often, how late, how much was let pass, and what it took; of the worst host. */
static void put_sampling(lp_text *text)
{
    const lp_usage *usage = text->options.samples ? text->report->usage : NULL;
    double interval = 0.0, late = (double)NAN, missed = 0.0, own = (double)NAN;
    lp_words words;
    lp_unit unit;

    for (uint32_t i = 0; usage && i < usage->host_count; i++) {
        const lp_usage_host *host = &usage->hosts[i];
        interval = fmax(interval, host->seconds > 0.0 ? host->interval_s : 0.0);
        late = fmax(late, host->lateness_max_s); /* of a number and NaN: the number */
        missed += host->ticks_missed > 0.0 ? host->ticks_missed : 0.0;
        if (host->seconds > 0.0)
            own = fmax(own, host->own_cpu_s / host->seconds);
    }
    if (interval <= 0.0)
        return;
    int size = snprintf(words, sizeof words, "sampled every %s", lp_unit_ns(unit, interval * 1e9));
    if (!isnan(late))
        size += snprintf(words + size, sizeof words - (size_t)size, ", %s late at most", lp_unit_ns(unit, late * 1e9));
    size += snprintf(words + size, sizeof words - (size_t)size, ", %.0f interval%s missed", missed,
                     missed == 1.0 ? "" : "s");
    if (!isnan(own))
        snprintf(words + size, sizeof words - (size_t)size, "; a collector took %s of a CPU%s",
                 lp_unit_percent(unit, own), usage->host_count > 1 ? " at most" : "");
    say(text, words);
}

static void put_method(lp_text *text)
{
    const lp_report *report = text->report;
    bool utf8 = text->line.utf8;

    unsigned limit = limit_of(text, report->source_count);

    for (uint32_t i = 0; i < limit; i++) {
        const lp_report_source *source = &report->sources[i];
        char clock[LP_INERT_BYTES(40)], cpu[LP_INERT_BYTES(40)], split[LP_INERT_BYTES(40)], in[64] = "";
        lp_str unknown = {"unknown", 7};
        lp_inert(clock, sizeof clock, source->clock.size ? &source->clock : &unknown, 1, 40, LP_CUT_RIGHT, utf8);
        lp_inert(cpu, sizeof cpu, source->cpu_source.size ? &source->cpu_source : &unknown, 1, 40, LP_CUT_RIGHT, utf8);
        lp_inert(split, sizeof split, &source->split_source, 1, 40, LP_CUT_RIGHT, utf8);
        if (report->source_count > 1)
            snprintf(in, sizeof in, "%u worker%s: ", source->workers, plural(source->workers));
        sayf(text, "%sCPU time by %s, clock %s, %s%s, quantiles within 1.6 %%", in, cpu, clock,
             split[0] ? "blocked and starved by " : "wait not split in blocked and starved", split);
    }
    put_more(text, report->source_count, limit);
    put_sampling(text);
    if (!isnan(report->own_cost_ns)) {
        lp_unit cost, share;
        bool timed = !isnan(report->own_share); /* a run that took no time has no share */
        lp_unit_used(cost, report->own_cost_ns / 1000.0, 2);
        lp_unit_percent(share, report->own_share);
        sayf(text, "own cost %s %s %s a phase%s%s%s", lp_line_glyph(&text->line, "\xe2\x89\x88", "about"), cost,
             lp_line_glyph(&text->line, "\xc2\xb5s", "us"), timed ? ", " : "", timed ? share : "",
             timed ? " of this run" : "");
    } else if (report->run->worker_count > 0) {
        say(text, "own cost: not measured");
    }
}

void lp__text_caveats(lp_text *text)
{
    const lp_run *run = text->report->run;

    if (run->worker_count + run->superseded_count + run->unreadable_count == 0)
        return;
    lp__text_section(text, "CAVEATS", NULL);
    put_unreadable(text);
    put_superseded(text);
    put_died(text);
    put_stale(text);
    put_failed_writes(text);
    put_health(text);
    put_limits(text);
    put_method(text);
}
