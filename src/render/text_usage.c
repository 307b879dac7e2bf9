/* The sampled sections of the text report: findings, resources, I/O, GPU, memory. A measured zero is a figure; what was not
 * measured is n/a, with its reason where the section ends. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "render/findings.h"
#include "render/text_internal.h"

#define USED 32u
#define AVAILABLE 47u
#define EACH 60u

void lp__text_findings(lp_text *text)
{
    const lp_report *report = text->report;
    lp_line *line = &text->line;
    uint32_t shown = text->options.all || report->finding_count <= 6 ? report->finding_count : 6;

    if (report->finding_count == 0)
        return;
    lp__text_section(text, "FINDINGS", NULL);
    for (uint32_t i = 0; i < shown; i++) {
        lp_finding_words words;
        char number[16];
        lp_finding_say(report, &report->findings[i], line->utf8, &words);
        int size = snprintf(number, sizeof number, "%u. ", i + 1);
        unsigned indent = size > 0 ? (unsigned)size : 3;
        lp_line_style(line, LP_BOLD);
        lp_line_put(line, number);
        lp_line_wrap(line, indent, words.headline);
        lp_line_style(line, LP_PLAIN);
        lp_line_end(line);
        lp__text_say(text, indent, words.detail);
        lp_line_style(line, LP_DIM);
        lp__text_say(text, indent, words.advice);
    }
    if (shown < report->finding_count) {
        lp_line_format(line, "%s %u more (--all)", lp_line_glyph(line, "\xe2\x80\xa6", ".."),
                       report->finding_count - shown);
        lp_line_end(line);
    }
}

static void resource(lp_text *text, const char *label, const char *used, const char *available, const char *each)
{
    lp_line *line = &text->line;

    lp_line_put(line, label);
    lp_line_right(line, USED, used);
    lp_line_right(line, AVAILABLE, available);
    lp_line_right(line, EACH, each);
    lp_line_end(line);
}

static char *cores(lp_unit out, double value, const char *unit)
{
    lp_unit number;

    if (isnan(value))
        snprintf(out, sizeof(lp_unit), "n/a");
    else
        snprintf(out, sizeof(lp_unit), "%s%s", lp_unit_used(number, value, value < 0.1 ? 2 : 1), unit);
    return out;
}

typedef struct capacity { /* over the hosts that were sampled; NaN not known */
    double cpus, memory, vram;
    uint32_t gpus;
} capacity;

static double lesser(double limit, double whole)
{
    return limit < whole || isnan(whole) ? limit : whole;
}

/* Where no host was sampled (its collector belongs to somebody else): what the processes themselves saw at their start. */
static double or_seen(double sampled, int64_t seen)
{
    return isnan(sampled) && seen != LP_UNKNOWN_I64 ? (double)seen : sampled;
}

static capacity capacity_of(const lp_usage *usage)
{
    capacity sum = {.vram = usage->gpu_count ? 0.0 : (double)NAN};

    for (uint32_t i = 0; i < usage->host_count; i++) {
        const lp_usage_host *host = &usage->hosts[i];
        const lp_hardware *has = &usage->run->hosts[host->host].hardware;
        sum.cpus += lesser(host->quota, or_seen(host->cpus, has->cpu_affinity));
        sum.memory += lesser(host->memory_limit, or_seen(host->memory, has->ram_total));
    }
    for (uint32_t i = 0; i < usage->gpu_count; i++)
        sum.vram += usage->gpus[i].memory_total;
    sum.gpus = usage->gpu_count;
    return sum;
}

static void put_table(lp_text *text, const lp_usage *usage)
{
    capacity has = capacity_of(usage);
    lp_line *line = &text->line;
    double count = usage->at_once;
    lp_unit used, available, each, share;

    lp_line_style(line, LP_DIM);
    lp_line_right(line, USED, "used");
    lp_line_right(line, AVAILABLE, "available");
    lp_line_right(line, EACH, "per proc");
    lp_line_end(line);
    resource(text, "CPU  peak", cores(used, usage->cpu_peak, " cores"), cores(available, has.cpus, " cores"),
             lp_unit_used(each, usage->cpu_peak / count, 2));
    char of[LP_UNIT_SIZE + 16] = "";
    if (usage->cpu_mean >= 0.0 && has.cpus > 0.0)
        snprintf(of, sizeof of, "(%s of it)", lp_unit_whole_percent(share, usage->cpu_mean / has.cpus));
    resource(text, "CPU  mean", cores(used, usage->cpu_mean, " cores"), of,
             lp_unit_used(each, usage->cpu_mean / count, 2));
    resource(text, "RAM  peak RSS", lp_unit_bytes(used, usage->rss_peak), lp_unit_bytes(available, has.memory),
             lp_unit_bytes(each, usage->rss_peak / count));
    resource(text, "RAM  peak PSS", lp_unit_bytes(used, usage->pss_peak), usage->pss_known ? "(shared pages once)" : "",
             lp_unit_bytes(each, usage->pss_peak / count));
    if (!isnan(usage->vram_allocated_peak))
        resource(text, "VRAM peak alloc", lp_unit_bytes(used, usage->vram_allocated_peak),
                 lp_unit_bytes(available, has.vram), "");
    if (!isnan(usage->vram_held_peak))
        resource(text, "VRAM peak held", lp_unit_bytes(used, usage->vram_held_peak), lp_unit_bytes(available, has.vram),
                 "");
    if (has.gpus > 0) {
        char devices[16];
        snprintf(devices, sizeof devices, "%u", has.gpus);
        resource(text, "GPU  devices", "", devices, "");
    }
}

static void put_host_use(lp_text *text, const lp_usage_host *host)
{
    lp_line *line = &text->line;
    lp_str name = text->report->run->hosts[host->host].name;
    lp_unit a, b;

    lp_line_put(line, "  ");
    lp_line_name(line, &name, 1, 24, LP_CUT_LEFT);
    lp_line_format(line, ": %s", cores(a, host->cpu_mean, " cores mean"));
    lp_line_format(line, ", %s peak", cores(a, host->cpu_peak, ""));
    lp_line_format(line, ", RSS %s", lp_unit_bytes(b, host->rss_peak));
    lp_line_end(line);
}

static void put_limits(lp_text *text, const lp_usage_host *host)
{
    lp_words words;
    char name[LP_INERT_BYTES(40)];
    lp_unit a, b;

    lp_inert(name, sizeof name, &text->report->run->hosts[host->host].name, 1, 40, LP_CUT_LEFT, text->line.utf8);
    if (host->quota < host->cpus) {
        snprintf(words, sizeof words, "%s: its cgroup allows %s of %s cores; stopped in %s of the periods", name,
                 lp_unit_fixed(a, host->quota, 2), cores(b, host->cpus, ""), "");
        size_t size = strlen(words) - strlen(" of the periods");
        lp_unit share;
        snprintf(words + size, sizeof words - size, "%s of the periods", lp_unit_percent(share, host->throttled_share));
        lp__text_say(text, 2, words);
    }
    if (host->memory_limit < host->memory) {
        snprintf(words, sizeof words, "%s: its cgroup allows %s of memory; %s were in use at most, caches apart", name,
                 lp_unit_bytes(a, host->memory_limit), lp_unit_bytes(b, host->limit_used_peak));
        lp__text_say(text, 2, words);
    }
    if (host->stolen_s > 0.01 * host->seconds) {
        snprintf(words, sizeof words, "%s: the hypervisor gave %s of CPU time to other guests", name,
                 lp_unit_ns(a, host->stolen_s * 1e9));
        lp__text_say(text, 2, words);
    }
}

/* What could not be measured of some processes or of all, one line for each reason. */
static void put_missing(lp_text *text, const char *what, const lp_usage *usage, lp_column column, size_t figure)
{
    uint32_t missing[256] = {0};
    char of[48] = "";
    lp_words words;

    for (uint32_t i = 0; i < usage->process_count; i++) {
        const lp_usage_process *process = &usage->processes[i];
        double value;
        memcpy(&value, (const char *)process + figure, sizeof value);
        missing[process->why[column]] += isnan(value) ? 1 : 0;
    }
    for (uint32_t reason = 0; reason < 256; reason++) {
        const char *why = reason == LP_REASON_NONE      ? lp_reason_text(LP_REASON_NOT_YET)
                          : reason == LP_REASON_NOT_DUE ? "ended before its turn to be read (each once in 10 s at most)"
                                                        : lp_reason_text(reason);
        if (missing[reason] == 0)
            continue;
        if (usage->process_count > 1)
            snprintf(of, sizeof of, " of %u of %u processes", missing[reason], usage->process_count);
        snprintf(words, sizeof words, "%s n/a%s: %s", what, of, why);
        lp__text_say(text, 2, words);
    }
}

static void put_heaviest(lp_text *text, const lp_usage *usage)
{
    char label[LP_LABEL_SIZE];
    lp_words words;
    lp_unit a, b;

    snprintf(words, sizeof words, "per-proc figures are over %u process(es)", usage->at_once);
    size_t size = strlen(words);
    if (usage->at_once < usage->process_count)
        snprintf(words + size, sizeof words - size, ", the most at one time, of %u in all", usage->process_count);
    size = strlen(words);
    if (usage->unsampled > 0)
        snprintf(words + size, sizeof words - size, "; %u ended before a sample was taken, or were not sampled",
                 usage->unsampled);
    lp__text_say(text, 2, words);
    if (usage->process_count < 2)
        return;
    if (usage->rss_known) {
        snprintf(words, sizeof words, "heaviest process held %s RSS against a mean of %s: %s",
                 lp_unit_bytes(a, usage->rss_max_process), lp_unit_bytes(b, usage->rss_peak / usage->at_once),
                 lp__text_worker(text, &usage->run->workers[usage->rss_max_worker], label));
        lp__text_say(text, 2, words);
    }
    if (!isnan(usage->cpu_max_process)) {
        snprintf(words, sizeof words, "heaviest process peaked at %s cores against a mean of %s: %s",
                 lp_unit_used(a, usage->cpu_max_process, 2), lp_unit_used(b, usage->cpu_mean / usage->at_once, 2),
                 lp__text_worker(text, &usage->run->workers[usage->cpu_max_worker], label));
        lp__text_say(text, 2, words);
    }
}

static void put_children(lp_text *text, const lp_usage *usage)
{
    double seconds = 0.0;
    lp_words words;
    lp_unit unit;

    for (uint32_t i = 0; i < usage->process_count; i++)
        if (usage->processes[i].children_s > 0.0)
            seconds += usage->processes[i].children_s;
    if (seconds >= 0.05) { /* the kernel counts it in steps of 10 ms */
        snprintf(words, sizeof words,
                 "child processes used %s of CPU time besides, which is in no sample of their own: they are not "
                 "recorded, or ended before the next one",
                 lp_unit_ns(unit, seconds * 1e9));
        lp__text_say(text, 2, words);
    }
}

void lp__text_resources(lp_text *text, void (*hardware)(lp_text *, const lp_run_host *))
{
    const lp_run *run = text->report->run;
    const lp_usage *usage = text->options.samples ? text->report->usage : NULL;
    bool sampled = usage && usage->process_count > 0;

    lp__text_section(text, "RESOURCES", NULL);
    if (sampled) {
        put_table(text, usage);
        lp__text_blank(text);
    } else if (text->options.samples) {
        lp__text_say(text, 0, "CPU, RAM, VRAM, GPU: not sampled");
    }
    for (uint32_t i = 0; i < run->host_count; i++) {
        if (i == 8 && run->host_count > 9 && !text->options.all) {
            lp_line_format(&text->line, "  %s %u more hosts (--all)", lp_line_glyph(&text->line, "\xe2\x80\xa6", ".."),
                           run->host_count - i);
            lp_line_end(&text->line);
            break;
        }
        hardware(text, &run->hosts[i]);
    }
    if (!sampled)
        return;
    for (uint32_t i = 0; i < usage->host_count && (i < 8 || text->options.all); i++) {
        if (usage->host_count > 1)
            put_host_use(text, &usage->hosts[i]);
        put_limits(text, &usage->hosts[i]);
    }
    put_heaviest(text, usage);
    put_children(text, usage);
    put_missing(text, "CPU", usage, LP_COLUMN_CPU, offsetof(lp_usage_process, cpu_s));
    put_missing(text, "RSS", usage, LP_COLUMN_RSS, offsetof(lp_usage_process, rss.peak));
    put_missing(text, "PSS", usage, LP_COLUMN_PSS, offsetof(lp_usage_process, pss.peak));
}

/* A narrow page has fewer columns: each shows the highest of those that it stands for, so that no burst is left out. */
static double spark_at(const double *series, unsigned column, unsigned columns)
{
    unsigned from = column * LP_USAGE_SPARK / columns, to = (column + 1) * LP_USAGE_SPARK / columns;
    double most = (double)NAN;

    for (unsigned i = from; i < to; i++)
        most = fmax(most, series[i]); /* of a number and NaN: the number */
    return most;
}

static void put_spark(lp_text *text, const char *label, const double *series, double most, const char *peak)
{
    static const char *const blocks[] = {" ",
                                         "\xe2\x96\x81",
                                         "\xe2\x96\x82",
                                         "\xe2\x96\x83",
                                         "\xe2\x96\x84",
                                         "\xe2\x96\x85",
                                         "\xe2\x96\x86",
                                         "\xe2\x96\x87",
                                         "\xe2\x96\x88"};
    static const char *const plain[] = {" ", ".", ":", "-", "=", "+", "*", "%", "#"};
    lp_line *line = &text->line;

    lp_line_to(line, 2);
    lp_line_put(line, label);
    lp_line_to(line, 9);
    lp_line_style(line, LP_BAR);
    unsigned room = line->width - 9 - 18, columns = room < LP_USAGE_SPARK ? room : LP_USAGE_SPARK;
    for (unsigned i = 0; i < columns; i++) {
        double value = spark_at(series, i, columns);
        double share = value > 0.0 && most > 0.0 ? fmin(value / most, 1.0) : 0.0;
        unsigned level = share > 0.0 ? 1 + (unsigned)(share * 7.0 + 0.5) : 0;
        lp_line_put(line, isnan(value) ? lp_line_glyph(line, "\xc2\xb7", "?")
                          : line->utf8 ? blocks[level]
                                       : plain[level]);
    }
    lp_line_style(line, LP_PLAIN);
    lp_line_put(line, " peak ");
    lp_line_put(line, peak);
    lp_line_end(line);
}

static double highest(const double *series)
{
    double most = 0.0;

    for (unsigned i = 0; i < LP_USAGE_SPARK; i++)
        most = fmax(most, series[i]);
    return most;
}

static void pair(lp_text *text, const char *label, const char *value, const char *rate)
{
    lp_line *line = &text->line;

    lp_line_put(line, label);
    lp_line_right(line, 43, value);
    lp_line_right(line, 58, rate);
    lp_line_end(line);
}

static double bytes_of(const lp_usage_io *io)
{
    const double bytes[] = {io->read, io->write, io->read_chars, io->write_chars};
    double sum = 0.0;

    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        sum += isnan(bytes[i]) ? 0.0 : bytes[i];
    return sum;
}

/* Those with most bytes first, equal ones as they stand; the one for "no phase" last. */
static bool moved_more(const lp_usage *usage, uint32_t a, uint32_t b)
{
    const lp_usage_phase *x = &usage->phases[a], *y = &usage->phases[b];

    if (x->none != y->none)
        return y->none;
    return bytes_of(&x->io) != bytes_of(&y->io) ? bytes_of(&x->io) > bytes_of(&y->io) : a < b;
}

static void put_io_phase(lp_text *text, const lp_usage_phase *phase, unsigned label)
{
    lp_line *line = &text->line;
    lp_unit unit;

    lp_line_to(line, 2);
    lp__text_name(text, phase->path, label - 4, LP_CUT_LEFT);
    lp_line_right(line, label + 12, lp_unit_bytes(unit, phase->io.read));
    lp_line_right(line, label + 24, lp_unit_bytes(unit, lp_usage_cached(&phase->io)));
    lp_line_right(line, label + 36, lp_unit_bytes(unit, phase->io.write_chars));
    lp_line_right(line, label + 48, lp_unit_bytes(unit, phase->io.write));
    lp_line_end(line);
}

static void put_more(lp_text *text, uint32_t shown, uint32_t of)
{
    if (shown < of) {
        lp_line_format(&text->line, "  %s %u more (--all)", lp_line_glyph(&text->line, "\xe2\x80\xa6", ".."),
                       of - shown);
        lp_line_end(&text->line);
    }
}

/* Phases without any bytes are left out. */
static void put_io_phases(lp_text *text, const lp_usage *usage)
{
    lp_line *line = &text->line;
    unsigned label = line->width - 50;
    uint32_t with = 0, last = UINT32_MAX;

    lp_line_style(line, LP_DIM);
    lp_line_right(line, label + 12, "read (disk)");
    lp_line_right(line, label + 24, "from cache");
    lp_line_right(line, label + 36, "written");
    lp_line_right(line, label + 48, "to disk");
    lp_line_end(line);
    const lp_usage_phase *rest = NULL; /* what no phase has: the last row, also where some are left out */
    for (uint32_t i = 0; i < usage->phase_count; i++)
        if (bytes_of(&usage->phases[i].io) > 0.0) {
            with++;
            rest = usage->phases[i].none ? &usage->phases[i] : rest;
        }
    uint32_t limit = text->options.all || with <= LP_TEXT_ROWS + 1 ? with : LP_TEXT_ROWS;
    for (uint32_t rows = rest ? 1 : 0; rows < limit; rows++) {
        uint32_t next = UINT32_MAX;
        for (uint32_t i = 0; i < usage->phase_count; i++)
            if (bytes_of(&usage->phases[i].io) > 0.0 && (last == UINT32_MAX || moved_more(usage, last, i)) &&
                i != last && (next == UINT32_MAX || moved_more(usage, i, next)))
                next = i;
        last = next;
        put_io_phase(text, &usage->phases[next], label);
    }
    put_more(text, limit, with);
    if (rest)
        put_io_phase(text, rest, label);
}

static void put_attribution(lp_text *text, const lp_usage *usage)
{
    double read = usage->io.read_chars > 0.0 ? usage->io_none.read_chars / usage->io.read_chars : 0.0;
    double write = usage->io.write_chars > 0.0 ? usage->io_none.write_chars / usage->io.write_chars : 0.0;
    lp_words words;
    lp_unit a, b;

    if (usage->hosts[0].interval_s > 0.0) {
        snprintf(words, sizeof words, "each interval (%s) is charged to the phase that is open at its end",
                 lp_unit_ns(a, usage->hosts[0].interval_s * 1e9));
        lp__text_say(text, 2, words);
    }
    if (read >= 0.1 || write >= 0.1) {
        snprintf(words, sizeof words,
                 "%s of reads and %s of writes (syscall layer) moved while no phase was open, or none could be seen. "
                 "Wrap those in io=True.",
                 lp_unit_whole_percent(a, read), lp_unit_whole_percent(b, write));
        lp__text_say(text, 2, words);
    }
    if (usage->io_gaps > 0.0) {
        snprintf(words, sizeof words,
                 "%.0f of %.0f interval(s) were too long to belong to a phase: their bytes are in the totals",
                 usage->io_gaps, usage->io_intervals);
        lp__text_say(text, 2, words);
    }
}

static void put_io(lp_text *text, const lp_usage *usage)
{
    lp_unit value, rate;
    double seconds = usage->covered_s > 0.0 ? usage->covered_s : (double)NAN;
    double reads = highest(usage->read_series), writes = highest(usage->write_series);

    lp__text_section(text, "I/O", "(sampled)");
    if (!usage->io_known) {
        put_missing(text, "I/O", usage, LP_COLUMN_READ_BYTES, offsetof(lp_usage_process, io.read));
        return;
    }
    pair(text, "Read (from disk)", lp_unit_bytes(value, usage->io.read),
         lp_unit_byte_rate(rate, usage->io.read / seconds));
    pair(text, "Read (from page cache)", lp_unit_bytes(value, lp_usage_cached(&usage->io)), "");
    pair(text, "Write (system calls)", lp_unit_bytes(value, usage->io.write_chars),
         lp_unit_byte_rate(rate, usage->io.write_chars / seconds));
    pair(text, "Write (to disk)", lp_unit_bytes(value, usage->io.write), "");
    if (bytes_of(&usage->io) > 0.0) { /* mapped files move bytes at the disk and at no call */
        lp__text_blank(text);
        put_io_phases(text, usage);
        if (reads > 0.0 || writes > 0.0) {
            lp__text_blank(text);
            put_spark(text, "read", usage->read_series, reads, lp_unit_byte_rate(rate, usage->read_peak));
            put_spark(text, "write", usage->write_series, writes, lp_unit_byte_rate(rate, usage->write_peak));
        }
        put_attribution(text, usage);
    }
    put_missing(text, "I/O", usage, LP_COLUMN_READ_BYTES, offsetof(lp_usage_process, io.read));
}

static void why(lp_text *text, const char *what, uint8_t reason)
{
    lp_words words;

    if (reason == LP_REASON_NONE)
        return;
    snprintf(words, sizeof words, "%s n/a: %s", what, lp_reason_text(reason));
    lp__text_say(text, 2, words);
}

/* Of each device what is n/a in its row, with the reason; equal ones together. */
static void put_gpu_reasons(lp_text *text, const lp_usage *usage)
{
    static const struct {
        const char *what;
        lp_column column;
        size_t figure;
    } figures[] = {{"busy", LP_COLUMN_GPU_BUSY, offsetof(lp_usage_gpu, busy)},
                   {"this run", LP_COLUMN_GPU_OURS_BUSY, offsetof(lp_usage_gpu, ours)},
                   {"mem peak", LP_COLUMN_GPU_MEMORY_USED, offsetof(lp_usage_gpu, memory_peak)},
                   {"ours", LP_COLUMN_GPU_OURS_MEMORY, offsetof(lp_usage_gpu, ours_memory_peak)}};

    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        uint32_t missing[256] = {0}, first[256] = {0};
        for (uint32_t i = 0; i < usage->gpu_count; i++) {
            uint8_t reason = usage->gpus[i].why[figures[f].column];
            double value;
            memcpy(&value, (const char *)&usage->gpus[i] + figures[f].figure, sizeof value);
            if (isnan(value) && missing[reason]++ == 0)
                first[reason] = usage->gpus[i].index;
        }
        for (uint32_t reason = 1; reason < 256; reason++) {
            char what[64];
            if (missing[reason] == usage->gpu_count)
                snprintf(what, sizeof what, "%s", figures[f].what);
            else if (missing[reason] == 1)
                snprintf(what, sizeof what, "%s of GPU %u", figures[f].what, first[reason]);
            else
                snprintf(what, sizeof what, "%s of %u devices", figures[f].what, missing[reason]);
            if (missing[reason] > 0)
                why(text, what, (uint8_t)reason);
        }
    }
}

/* Whether anybody has looked for devices; the first answer stands in the third row of a host. */
static const char *why_no_device(const lp_usage *usage)
{
    const char *why = " not sampled";

    for (uint32_t i = 0; i < usage->host_count; i++) {
        const lp_usage_host *host = &usage->hosts[i];
        if (!(host->interval_s > 0.0)) /* it has no rows of its own */
            continue;
        if (host->seconds >= 2.0 * host->interval_s)
            return " none seen: no NVIDIA driver, no AMD device";
        why = " not sampled: ended before the first answer";
    }
    return why;
}

static void put_gpu(lp_text *text, const lp_usage *usage)
{
    lp_line *line = &text->line;
    lp_unit unit;

    if (usage->gpu_count == 0) {
        lp__text_blank(text);
        lp_line_style(line, LP_TITLE);
        lp_line_put(line, "GPU");
        lp_line_style(line, LP_PLAIN);
        if (usage->gpu_why == LP_REASON_NEVER || usage->gpu_why == LP_REASON_NONE)
            lp_line_put(line, why_no_device(usage));
        else
            lp_line_format(line, " none seen: %s", lp_reason_text(usage->gpu_why));
        lp_line_end(line);
        return;
    }
    lp__text_section(text, "GPU", "(sampled)");
    lp_line_style(line, LP_DIM);
    lp_line_right(line, 26, "busy");
    lp_line_right(line, 36, "this run");
    lp_line_right(line, 44, "idle");
    lp_line_right(line, 55, "mem peak");
    lp_line_right(line, 64, "ours");
    lp_line_end(line);
    for (uint32_t i = 0; i < usage->gpu_count; i++) {
        const lp_usage_gpu *gpu = &usage->gpus[i];
        lp_line_format(line, "GPU %u", gpu->index);
        if (usage->run->host_count > 1) {
            lp_line_put(line, " ");
            lp_line_name(line, &usage->run->hosts[gpu->host].name, 1, 12, LP_CUT_LEFT);
        }
        lp_line_right(line, 26, lp_unit_percent(unit, gpu->busy));
        lp_line_right(line, 36, lp_unit_percent(unit, gpu->ours));
        lp_line_right(line, 44, lp_unit_percent(unit, 1.0 - gpu->busy));
        lp_line_right(line, 55, lp_unit_bytes(unit, gpu->memory_peak));
        lp_line_right(line, 64, lp_unit_bytes(unit, gpu->ours_memory_peak));
        lp_line_end(line);
    }
    if (!isnan(usage->vram_allocated_peak))
        pair(text, "VRAM allocated (peak)", lp_unit_bytes(unit, usage->vram_allocated_peak), "");
    if (!isnan(usage->vram_reserved_peak))
        pair(text, "VRAM reserved (peak)", lp_unit_bytes(unit, usage->vram_reserved_peak), "");
    put_gpu_reasons(text, usage);
}

static void put_gpu_phases(lp_text *text, const lp_usage *usage)
{
    lp_line *line = &text->line;
    uint32_t rows = 0, with = 0;
    bool unknown = false;
    lp_unit unit;

    for (uint32_t i = 0; i < usage->phase_count; i++) {
        const lp_usage_phase *phase = &usage->phases[i];
        with += phase->gpu_samples > 0;
        if (phase->gpu_samples == 0 || (rows == LP_TEXT_ROWS && !text->options.all))
            continue;
        unknown |= isnan(phase->vram_peak);
        if (rows++ == 0) {
            lp__text_section(text, "GPU BY PHASE", "(sampled)");
            lp_line_style(line, LP_DIM);
            lp_line_right(line, 36, "p50");
            lp_line_right(line, 43, "p95");
            lp_line_right(line, 54, "VRAM");
            lp_line_right(line, 63, "samples");
            lp_line_end(line);
        }
        lp__text_name(text, phase->path, 30, LP_CUT_LEFT);
        lp_line_right(line, 36, lp_unit_whole_percent(unit, lp_usage_gpu_quantile(phase, 0.5)));
        lp_line_right(line, 43, lp_unit_whole_percent(unit, lp_usage_gpu_quantile(phase, 0.95)));
        lp_line_right(line, 54, lp_unit_bytes(unit, phase->vram_peak));
        lp_line_right(line, 63, lp_unit_count(unit, (lp_i128)phase->gpu_samples));
        lp_line_end(line);
    }
    put_more(text, rows, with);
    if (unknown)
        lp__text_say(text, 2, "VRAM n/a: no process told by then what torch's allocator holds");
}

static char *per_hour(lp_unit out, double bytes_per_s, double error, const char *plus_minus)
{
    lp_unit slope, sigma;

    lp_unit_bytes(slope, fabs(bytes_per_s) * 3600.0);
    snprintf(out, sizeof(lp_unit), "%s%.40s/h %s %.40s/h", bytes_per_s < 0 ? "-" : "+", slope, plus_minus,
             lp_unit_bytes(sigma, error * 3600.0));
    return out;
}

static void put_growing(lp_text *text, const lp_usage *usage)
{
    const lp_usage_phase *most = NULL;
    lp_line *line = &text->line;
    lp_unit unit;

    for (uint32_t i = 0; i < usage->phase_count; i++)
        if (usage->phases[i].rss_growth > (most ? most->rss_growth : 1024.0 * 1024.0))
            most = &usage->phases[i];
    if (!most)
        return;
    lp_line_to(line, 2);
    lp_line_put(line, "grew most under ");
    lp__text_name(text, most->path, 32, LP_CUT_LEFT);
    lp_line_right(line, 58, lp_unit_bytes(unit, most->rss_growth));
    lp_line_end(line);
}

static void put_memory(lp_text *text, const lp_usage *usage)
{
    const lp_usage_trend *trend = &usage->rss;
    lp_line *line = &text->line;
    lp_unit unit;

    lp__text_section(text, "MEMORY (RSS)", usage->process_count > 1 ? "all processes together" : NULL);
    pair(text, usage->unseen_end ? "Last known" : "At the end", lp_unit_bytes(unit, trend->last), "");
    pair(text, "Peak", lp_unit_bytes(unit, usage->rss_peak), "");
    if (!(trend->growth < 0.0))
        pair(text, "Growth over run", lp_unit_bytes(unit, trend->growth), "");
    if (!isnan(trend->slope)) {
        lp_line_put(line, "Trend");
        lp_line_right(line, 58,
                      per_hour(unit, trend->slope, trend->slope_error, lp_line_glyph(line, "\xc2\xb1", "+-")));
        lp_line_end(line);
    } else {
        lp__text_say(text, 0, "Trend: too few samples");
    }
    if (trend->step >= 1024.0 * 1024.0) {
        char when[LP_UNIT_SIZE + 8];
        snprintf(when, sizeof when, "at %s", lp_unit_ns(unit, trend->step_at_s * 1e9));
        pair(text, "Largest step up", lp_unit_bytes(unit, trend->step), when);
    }
    put_growing(text, usage);
    if (usage->unseen > 0) {
        lp_words words;
        snprintf(words, sizeof words,
                 "the samples of %u of %u process(es) end before it did (cut off, or not written yet): %s in which not "
                 "all are "
                 "known are left out",
                 usage->unseen, usage->process_count, lp_unit_ns(unit, usage->unseen_bins_s * 1e9));
        lp__text_say(text, 2, words);
    }
    if (isnan(
            trend
                ->growth)) { /* the sum over processes is known where an interval was sampled for half of it at least */
        lp_words words;
        snprintf(words, sizeof words,
                 isnan(trend->last) ? "end and growth n/a: no interval (%s) was sampled for half of it"
                                    : "growth n/a: only one interval (%s) was sampled for half of it",
                 lp_unit_ns(unit, usage->grid_s * 1e9));
        lp__text_say(text, 2, words);
    }
    if (usage->grid_s > 0.0 && usage->covered_s >= 2 * usage->grid_s) {
        lp__text_blank(text);
        put_spark(text, "RSS", usage->rss_series, usage->rss_peak, lp_unit_bytes(unit, usage->rss_peak));
    }
}

void lp__text_sampled(lp_text *text)
{
    const lp_usage *usage = text->report->usage;
    static const char *const titles[] = {"I/O", "GPU", "MEMORY (RSS)"};

    if (usage && usage->process_count > 0) {
        put_io(text, usage);
        put_gpu(text, usage);
        put_gpu_phases(text, usage);
        if (usage->rss_known)
            put_memory(text, usage);
        return;
    }
    lp__text_blank(text);
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        lp_line_style(&text->line, LP_TITLE);
        lp_line_put(&text->line, titles[i]);
        lp_line_style(&text->line, LP_PLAIN);
        lp_line_put(&text->line, " not sampled");
        if (i + 1 < sizeof titles / sizeof *titles)
            lp_line_put(&text->line, "    ");
    }
    lp_line_end(&text->line);
}
