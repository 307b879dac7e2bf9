/* Sample files: what goes in comes out, every column, every gap; torn, damaged and hostile files; and how large they are. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "store/internal.h"
#include "store/samples.h"
#include "store/wire.h"
#include "test_folder.h"
#include "worker_builder.h"

#define SECOND 1000000000ull
#define START 1700000000000000000ull

static lp_worker *who;

static lp_buffer new_file(lp_series series)
{
    lp_buffer out = {0};
    lp_sample_head head = {
        .series = series, .id = &who->id, .interval_ns = SECOND, .collector_start = 77, .collector_pid = 4242};
    CHECK_EQ(lp_samples_put_head(&out, &head), LP_OK);
    return out;
}

/* As a file can say it. */
static int64_t stepped(unsigned c, int64_t value)
{
    return value == LP_UNKNOWN_I64 ? value : value - value % lp_column_table[c].step;
}

/* Row i of a process that does something in every column. */
static lp_sample make_row(uint64_t i)
{
    lp_sample row;
    lp_sample_init(&row);
    row.mono_ns = 5000 * SECOND + i * SECOND + i % 7 * 1000;
    row.unix_ns = START + i * SECOND;
    for (unsigned c = 0; c < LP_COLUMNS; c++)
        lp_sample_set(&row, (lp_column)c,
                      lp_column_table[c].counter ? (int64_t)(i * (c + 1) * 37) : (int64_t)(i * c % 91));
    return row;
}

typedef struct totals {
    uint64_t rows, batches, unknown;
    bool same;
} totals;

typedef bool expect_fn(uint64_t row, lp_sample *expected);

static bool plain_row(uint64_t i, lp_sample *expected)
{
    *expected = make_row(i);
    return true;
}

/* Reads everything and compares. */
static totals read_all(lp_samples *reader, expect_fn *expect)
{
    totals t = {.same = true};
    const lp_sample_batch *b;

    while (lp_samples_next(reader, &b, NULL) == LP_OK && b) {
        t.batches++;
        for (uint32_t i = 0; i < b->rows; i++, t.rows++) {
            lp_sample e;
            if (!expect || !expect(t.rows, &e))
                continue;
            uint64_t mono_us = b->mono_ns / 1000 + b->time_us[i];
            if (mono_us != e.mono_ns / 1000)
                t.same = false;
            for (unsigned c = 0; c < LP_COLUMNS; c++) {
                int64_t got = b->value[c] ? b->value[c][i] : LP_UNKNOWN_I64;
                t.unknown += got == LP_UNKNOWN_I64;
                if (got != stepped(c, e.value[c]) || (got == LP_UNKNOWN_I64 && b->reason[c] != e.reason[c])) {
                    if (t.same)
                        fprintf(stderr, "# row %" PRIu64 " %s: %" PRId64 " %" PRId64 " reason %u %u\n", t.rows,
                                lp_column_table[c].name, got, e.value[c], b->reason[c], e.reason[c]);
                    t.same = false;
                }
            }
            uint32_t first = i ? b->share_end[i - 1] : 0;
            if (b->share_end[i] - first != e.share_count)
                t.same = false;
            for (uint32_t k = 0; k < e.share_count && first + k < b->share_end[i]; k++)
                if (b->shares[first + k].path != e.share[k].path || b->shares[first + k].parts != e.share[k].parts)
                    t.same = false;
        }
    }
    return t;
}

static void columns_have_numbers_of_their_own(void)
{
    for (unsigned i = 0; i < LP_COLUMNS; i++) {
        CHECK(lp_column_table[i].number > 0);
        for (unsigned k = 0; k < i; k++)
            CHECK(lp_column_table[i].number != lp_column_table[k].number);
    }
    CHECK_STR(lp_reason_text(LP_REASON_NO_LIMIT), "no limit is set");
    CHECK_STR(lp_reason_text(4000), "for a reason that this version does not know");
}

static void rows_come_back(void)
{
    lp_buffer out = new_file(LP_SERIES_PROCESS);
    lp_sample_writer *w = lp_sample_writer_new(LP_SERIES_PROCESS, 0, SECOND);
    lp_samples *reader;
    for (uint64_t i = 0; i < 1000; i++) {
        lp_sample row = make_row(i);
        CHECK_EQ(lp_sample_writer_add(w, &row, &out), LP_OK);
    }
    CHECK_EQ(lp_sample_writer_flush(w, &out), LP_OK);
    size_t size = out.size;
    CHECK_EQ(lp_sample_writer_flush(w, &out), LP_OK); /* nothing waits */
    CHECK_EQ(out.size, size);
    REQUIRE(lp_samples_open_memory(out.data, out.size, "f", &reader, NULL) == LP_OK);
    CHECK_EQ(lp_samples_series(reader), LP_SERIES_PROCESS);
    CHECK_EQ(lp_samples_interval_ns(reader), SECOND);
    CHECK_EQ(lp_samples_identity(reader)->pid, who->id.pid);
    CHECK(lp__str_equal(lp_samples_identity(reader)->uuid, who->id.uuid));
    totals t = read_all(reader, plain_row);
    CHECK_EQ(t.rows, 1000u);
    CHECK(t.same);
    CHECK_EQ(t.unknown, 0u);
    /* 2, 3, 6, 12, 24, 48 rows, then 60 a batch: the file soon has something */
    CHECK_EQ(t.batches, 6u + (1000u - 95 + 59) / 60);
    uint64_t lost;
    CHECK_STR(lp_samples_lost(reader, &lost), "");
    CHECK_EQ(lost, 0u);
    lp_samples_close(reader);
    lp_sample_writer_free(w);
    lp_buffer_free(&out);
}

/* Values at the ends of their range, gaps of every kind, counters that fall, clocks that stand. */
static bool rough_row(uint64_t i, lp_sample *row)
{
    *row = make_row(i);
    row->mono_ns = 5000 * SECOND + i / 2 * SECOND;
    lp_sample_set(row, LP_COLUMN_RSS, i % 2 ? INT64_MAX : 0);
    lp_sample_set(row, LP_COLUMN_CPU, i < 100 ? (int64_t)i : INT64_MAX);
    lp_sample_set(row, LP_COLUMN_READ_BYTES, i % 150 == 149 ? 5 : (int64_t)(1000 + i)); /* falls, now and then */
    if (i % 10 != 3)
        lp_sample_miss(row, LP_COLUMN_PSS, i < 40 ? LP_REASON_NOT_DUE : LP_REASON_TOO_LARGE);
    if (i % 64 >= 32)
        lp_sample_miss(row, LP_COLUMN_WRITE_BYTES, LP_REASON_DENIED);
    lp_sample_miss(row, LP_COLUMN_SWAP, LP_REASON_NO_FILE);
    lp_sample_miss(row, LP_COLUMN_TORCH_ALLOCATED, LP_REASON_NEVER);
    if (i > 200)
        lp_sample_miss(row, LP_COLUMN_THREADS, i % 2 ? LP_REASON_GONE : LP_REASON_HIDDEN);
    row->share_count = (uint32_t)(i / 5 % 3);
    row->share[0] = (lp_share){1 + (uint32_t)(i / 50 % 3), 400};
    row->share[1] = (lp_share){3, 600};
    return true;
}

static void gaps_and_extremes_come_back(void)
{
    lp_buffer out = new_file(LP_SERIES_PROCESS);
    lp_sample_writer *w = lp_sample_writer_new(LP_SERIES_PROCESS, 0, SECOND);
    lp_samples *reader;
    lp_str name;
    uint32_t parent;
    CHECK_EQ(lp_sample_writer_path(w, 0, worker_str("a")), 1u);
    CHECK_EQ(lp_sample_writer_path(w, 1, (lp_str){"b\0/", 3}), 2u);
    CHECK_EQ(lp_sample_writer_path(w, 7, worker_str("no such parent")), 0u);
    CHECK_EQ(lp_sample_writer_path(w, 2, worker_str("")), 3u);
    for (uint64_t i = 0; i < 500; i++) {
        lp_sample row;
        rough_row(i, &row);
        if (i == 300)
            CHECK_EQ(lp_sample_writer_path(w, 3, worker_str("late")), 4u);
        CHECK_EQ(lp_sample_writer_add(w, &row, &out), LP_OK);
    }
    lp_sample_writer_flush(w, &out);
    REQUIRE(lp_samples_open_memory(out.data, out.size, "f", &reader, NULL) == LP_OK);
    totals t = read_all(reader, rough_row);
    CHECK_EQ(t.rows, 500u);
    CHECK(t.same);
    CHECK_EQ(lp_samples_path_count(reader), 4u);
    REQUIRE(lp_samples_path(reader, 2, &parent, &name));
    CHECK_EQ(parent, 1u);
    CHECK_EQ(name.size, 3u);
    CHECK_MEM(name.data, "b\0/", 3);
    REQUIRE(lp_samples_path(reader, 4, &parent, &name));
    CHECK_EQ(parent, 3u);
    CHECK_STR(name.data, "late");
    CHECK(!lp_samples_path(reader, 0, &parent, &name));
    CHECK(!lp_samples_path(reader, 5, &parent, &name));
    lp_samples_close(reader);
    lp_sample_writer_free(w);
    lp_buffer_free(&out);
}

static void what_no_row_may_say_is_not_written(void)
{
    lp_buffer out = new_file(LP_SERIES_PROCESS);
    lp_sample_writer *w = lp_sample_writer_new(LP_SERIES_PROCESS, 0, SECOND);
    const lp_sample_batch *b;
    lp_samples *reader;
    lp_sample row = make_row(0);
    lp_sample_writer_path(w, 0, worker_str("a"));
    lp_sample_set(&row, LP_COLUMN_RSS, -5);
    row.share_count = 4;
    row.share[0] = (lp_share){9, 100}; /* no such path */
    row.share[1] = (lp_share){1, 0};   /* nothing */
    row.share[2] = (lp_share){1, 700};
    row.share[3] = (lp_share){1, 301}; /* more than there is */
    lp_sample_writer_add(w, &row, &out);
    lp_sample_writer_flush(w, &out);
    REQUIRE(lp_samples_open_memory(out.data, out.size, "f", &reader, NULL) == LP_OK);
    REQUIRE(lp_samples_next(reader, &b, NULL) == LP_OK && b);
    CHECK(b->value[LP_COLUMN_RSS] == NULL);
    CHECK_EQ(b->reason[LP_COLUMN_RSS], LP_REASON_UNREADABLE);
    REQUIRE(b->share_end[0] == 1);
    CHECK_EQ(b->shares[0].parts, 700u);
    lp_samples_close(reader);
    lp_sample_writer_free(w);
    lp_buffer_free(&out);
}

static void several_series_share_a_file(void)
{
    lp_buffer out = new_file(LP_SERIES_HOST);
    lp_sample_writer *host = lp_sample_writer_new(LP_SERIES_HOST, 0, SECOND);
    lp_sample_writer *gpu = lp_sample_writer_new(LP_SERIES_GPU, 3, SECOND);
    const lp_sample_batch *b;
    lp_samples *reader;
    lp_sample row = make_row(1);
    lp_sample_writer_label(gpu, worker_str("NVIDIA H200"));
    lp_sample_writer_add(host, &row, &out);
    lp_sample_writer_add(gpu, &row, &out);
    lp_sample_writer_flush(gpu, &out);
    lp_sample_writer_flush(host, &out);
    REQUIRE(lp_samples_open_memory(out.data, out.size, "f", &reader, NULL) == LP_OK);
    CHECK_EQ(lp_samples_series(reader), LP_SERIES_HOST);
    REQUIRE(lp_samples_next(reader, &b, NULL) == LP_OK && b);
    CHECK_EQ(b->series, LP_SERIES_GPU);
    CHECK_EQ(b->index, 3u);
    CHECK_MEM(b->label.data, "NVIDIA H200", b->label.size);
    REQUIRE(lp_samples_next(reader, &b, NULL) == LP_OK && b);
    CHECK_EQ(b->series, LP_SERIES_HOST);
    REQUIRE(lp_samples_next(reader, &b, NULL) == LP_OK);
    CHECK(b == NULL);
    REQUIRE(lp_samples_next(reader, &b, NULL) == LP_OK); /* and again */
    CHECK(b == NULL);
    lp_samples_close(reader);
    lp_sample_writer_free(host);
    lp_sample_writer_free(gpu);
    lp_buffer_free(&out);
}

static lp_buffer small_file(void)
{
    lp_buffer out = new_file(LP_SERIES_PROCESS);
    lp_sample_writer *w = lp_sample_writer_new(LP_SERIES_PROCESS, 0, SECOND);
    for (int i = 0; i < 3; i++)
        lp_sample_writer_path(w, (uint32_t)i, worker_str("phase"));
    for (uint64_t i = 0; i < 30; i++) {
        lp_sample row;
        rough_row(i, &row);
        lp_sample_writer_add(w, &row, &out);
    }
    lp_sample_writer_flush(w, &out);
    lp_sample_writer_free(w);
    return out;
}

static void cut_anywhere_costs_the_last_batch(void)
{
    lp_buffer file = small_file();
    uint64_t rows_before = 0, lost;
    size_t opened = 0;
    lp_error error;
    for (size_t size = 0; size <= file.size; size++) {
        lp_samples *reader;
        unsigned char *copy = malloc(size ? size : 1); /* of exactly that size: the sanitizer sees the end */
        memcpy(copy, file.data, size);
        lp_status status = lp_samples_open_memory(copy, size, "f", &reader, &error);
        if (status != LP_OK) {
            CHECK_EQ(status, size < 1 ? LP_E_FOREIGN : LP_E_TRUNCATED);
            CHECK_EQ(opened, 0u);
        } else {
            opened++;
            totals t = read_all(reader, rough_row);
            CHECK(t.same);
            CHECK(t.rows >= rows_before);
            rows_before = t.rows;
            bool whole = *lp_samples_lost(reader, &lost) == '\0';
            CHECK_EQ(whole, lost == 0);
            lp_samples_close(reader);
        }
        free(copy);
    }
    CHECK_EQ(rows_before, 30u);
    CHECK(opened > 100);
    lp_buffer_free(&file);
}

static void a_changed_bit_ends_it(void)
{
    lp_buffer file = small_file();
    unsigned whole = 0;
    for (size_t bit = 0; bit < 8 * file.size; bit++) {
        lp_samples *reader;
        uint64_t lost;
        file.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (lp_samples_open_memory(file.data, file.size, "f", &reader, NULL) == LP_OK) {
            totals t = read_all(reader, rough_row);
            CHECK(t.same);
            /* A tag that became another known one's is skipped as of a newer version; no row is wrong. */
            whole += t.rows == 30;
            lp_samples_lost(reader, &lost);
            lp_samples_close(reader);
        }
        file.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    CHECK_EQ(whole, 0u);
    lp_buffer_free(&file);
}

/* With a checksum that fits, so that what is behind it is asked. */
static void hostile_batches_are_refused(void)
{
    lp_buffer file = new_file(LP_SERIES_PROCESS);
    size_t head = file.size;
    uint64_t state = 1;
    unsigned accepted = 0;
    for (int turn = 0; turn < 4000; turn++) {
        lp_buffer body = {0};
        lp_samples *reader;
        lp_buffer good = small_file();
        /* a good batch with some bytes replaced */
        lp__wire wire = lp__wire_of(good.data + head, good.size - head);
        lp__field field;
        int skip = turn % 4;
        while (lp__wire_next(&wire, &field) && skip-- > 0) {
        }
        size_t before = (size_t)(field.start - good.data);
        lp__put_raw(&body, field.bytes.data, field.bytes.size - 5);
        for (int k = 0; k <= turn % 5; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            body.data[(state >> 33) % body.size] = (unsigned char)(state >> 25);
        }
        file.size = 0; /* the batches before it stay: they have its paths */
        lp__put_raw(&file, good.data, before);
        size_t mark = lp__put_open(&file, 3);
        lp__put_raw(&file, body.data, body.size);
        lp__put_fixed32(&file, 15, lp__crc32c(0, body.data, body.size));
        lp__put_close(&file, mark);
        unsigned char *copy = malloc(file.size);
        memcpy(copy, file.data, file.size);
        REQUIRE(lp_samples_open_memory(copy, file.size, "f", &reader, NULL) == LP_OK);
        const lp_sample_batch *b;
        int seen = 0;
        while (lp_samples_next(reader, &b, NULL) == LP_OK && b) {
            accepted += seen++ == turn % 4; /* the changed one */
            for (uint32_t i = 0; i < b->rows; i++) {
                for (unsigned c = 0; c < LP_COLUMNS; c++)
                    if (b->value[c] && b->value[c][i] < 0 && b->value[c][i] != LP_UNKNOWN_I64)
                        check_failed(__FILE__, __LINE__, "a negative number came through");
                for (uint32_t k = i ? b->share_end[i - 1] : 0; k < b->share_end[i]; k++)
                    if (b->shares[k].path == 0 || b->shares[k].path > lp_samples_path_count(reader))
                        check_failed(__FILE__, __LINE__, "a share without a path came through");
            }
        }
        lp_samples_close(reader);
        free(copy);
        lp_buffer_free(&good);
        lp_buffer_free(&body);
    }
    fprintf(stderr, "# %u of 4000 changed batches still make sense\n", accepted);
    CHECK(accepted > 100); /* some bytes are only values */
    lp_buffer_free(&file);
}

static void other_files_are_not_taken(void)
{
    lp_buffer snapshot = {0};
    lp_samples *reader;
    lp_error error;
    CHECK_EQ(lp_snapshot_encode(who, &snapshot), LP_OK);
    CHECK_EQ(lp_samples_open_memory(snapshot.data, snapshot.size, "f", &reader, &error), LP_E_FOREIGN);
    CHECK_STR(error.text, "f: not a sample file of lineprofiler (byte 0)");
    CHECK_EQ(lp_samples_open_memory("\x70\x02\x12\x01", 4, "f", &reader, &error), LP_E_VERSION);
    lp_buffer_free(&snapshot);
}

/* Below n. */
static uint64_t random_state = 7;
static int64_t random_below(int64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(random_state >> 33) % n;
}

/* What a second of a busy worker brings: random, since nothing else is as hard to store. */
static void twelve_hours_are_small(void)
{
    lp_buffer out = new_file(LP_SERIES_PROCESS);
    lp_sample_writer *w = lp_sample_writer_new(LP_SERIES_PROCESS, 0, SECOND);
    uint64_t rss = 3u << 20, peak = rss;
    lp_sample row, sum;
    lp_sample_init(&sum);
    for (int i = 0; i < 6; i++)
        lp_sample_writer_path(w, i < 3 ? 0 : 1, worker_str("phase"));
    for (uint64_t i = 0; i < 43200; i++) {
        lp_sample_init(&row);
        row.mono_ns = i * SECOND + (uint64_t)random_below(400000); /* jitter below 0.4 ms */
        row.unix_ns = START + row.mono_ns;
        const struct {
            lp_column column;
            int64_t step;
        } counters[] = {
            {LP_COLUMN_CPU, random_below(1000000)},
            {LP_COLUMN_CPU_SYSTEM, random_below(10) * 10000},
            {LP_COLUMN_FAULTS_MINOR, random_below(4000)},
            {LP_COLUMN_FAULTS_MAJOR, random_below(100) == 0},
            {LP_COLUMN_SWITCHES_VOLUNTARY, random_below(2000)},
            {LP_COLUMN_SWITCHES_FORCED, random_below(100)},
            {LP_COLUMN_RUN_DELAY, random_below(20000)},
            {LP_COLUMN_READ_BYTES, random_below(5) ? 0 : random_below(100) * 4096},
            {LP_COLUMN_WRITE_BYTES, random_below(3) ? 0 : random_below(1000) * 4096},
            {LP_COLUMN_READ_CHARS, random_below(50000000)},
            {LP_COLUMN_WRITE_CHARS, random_below(1000000)},
            {LP_COLUMN_CANCELLED_BYTES, 0},
            {LP_COLUMN_CHILDREN_ENDED_CPU, 0},
            {LP_COLUMN_MISSED, 0},
        };
        for (size_t k = 0; k < sizeof counters / sizeof *counters; k++) {
            int64_t before = sum.value[counters[k].column];
            lp_sample_set(&sum, counters[k].column, (before < 0 ? 1000000000000 : before) + counters[k].step);
            lp_sample_set(&row, counters[k].column, sum.value[counters[k].column]);
        }
        rss += (uint64_t)(random_below(3) ? 0 : 4 * random_below(2000));
        rss -= (uint64_t)(random_below(3) ? 0 : 4 * random_below(2000));
        peak = rss > peak ? rss : peak;
        lp_sample_set(&row, LP_COLUMN_RSS, (int64_t)rss);
        lp_sample_set(&row, LP_COLUMN_RSS_PEAK, (int64_t)peak);
        lp_sample_set(&row, LP_COLUMN_SWAP, 0);
        if (i % 10 == 0)
            lp_sample_set(&row, LP_COLUMN_PSS, (int64_t)rss - random_below(1000));
        else
            lp_sample_miss(&row, LP_COLUMN_PSS, LP_REASON_NOT_DUE);
        lp_sample_set(&row, LP_COLUMN_THREADS, 33);
        lp_sample_set(&row, LP_COLUMN_THREADS_READ, 33);
        lp_sample_set(&row, LP_COLUMN_CPUS_ALLOWED, 64);
        lp_sample_set(&row, LP_COLUMN_CHILDREN_LIVING, 0);
        lp_sample_set(&row, LP_COLUMN_CHILDREN_LIVING_CPU, 0);
        lp_sample_set(&row, LP_COLUMN_CHILDREN_LIVING_RSS, 0);
        lp_sample_set(&row, LP_COLUMN_PHASE_FRESH, random_below(3) ? 0 : random_below(1000000));
        row.share_count = 1;
        row.share[0] = (lp_share){1 + (uint32_t)random_below(6), 1000};
        lp_sample_writer_add(w, &row, &out);
    }
    lp_sample_writer_flush(w, &out);
    lp_samples *reader;
    REQUIRE(lp_samples_open_memory(out.data, out.size, "f", &reader, NULL) == LP_OK);
    CHECK_EQ(read_all(reader, NULL).rows, 43200u);
    lp_samples_close(reader);
    fprintf(stderr, "# 12 h of one busy worker: %zu bytes\n", out.size);
    CHECK(out.size <= 1500000);
    lp_sample_writer_free(w);
    lp_buffer_free(&out);
}

static void files_are_made_and_appended(void)
{
    char folder[64];
    lp_buffer out = new_file(LP_SERIES_PROCESS), more = {0};
    lp_sample_writer *w = lp_sample_writer_new(LP_SERIES_PROCESS, 0, SECOND);
    lp_samples *reader;
    make_folder(folder);
    int run = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int first = lp_samples_create(run, &who->id, LP_SERIES_PROCESS, &out);
    int second = lp_samples_create(run, &who->id, LP_SERIES_PROCESS, &out);
    int host = lp_samples_create(run, &who->id, LP_SERIES_HOST, &out);
    CHECK(first >= 0 && second >= 0 && host >= 0);
    const char *stem = "20260813T224100-471c94_1542_01234567";
    CHECK(exists(text("%s/workers/node07/w_%s.1.samples", folder, stem)));
    CHECK(exists(text("%s/workers/node07/w_%s.2.samples", folder, stem)));
    CHECK(exists(text("%s/workers/node07/host_%s.1.samples", folder, stem)));
    for (uint64_t i = 0; i < 1000; i++) {
        lp_sample row = make_row(i);
        lp_sample_writer_add(w, &row, &more);
        if (more.size > 0)
            CHECK(lp_samples_append(first, &more));
        more.size = 0;
    }
    lp_sample_writer_flush(w, &more);
    CHECK(lp_samples_append(first, &more));
    int fd = open(text("%s/workers/node07/w_%s.1.samples", folder, stem), O_RDONLY | O_CLOEXEC);
    REQUIRE(lp_samples_open(fd, "f", &reader, NULL) == LP_OK);
    totals t = read_all(reader, plain_row);
    CHECK_EQ(t.rows, 1000u);
    CHECK(t.same);
    lp_samples_close(reader);
    close(fd);
    /* what cannot be stored leaves the file as it was */
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full >= 0) {
        CHECK(!lp_samples_append(full, &more));
        close(full);
    }
    close(first);
    close(second);
    close(host);
    close(run);
    lp_sample_writer_free(w);
    lp_buffer_free(&out);
    lp_buffer_free(&more);
    remove_folder(folder);
}

/* The file that tests/data keeps: 90 rows of a process on one GPU, a value in every column and every kind of gap. */
static bool kept_row(uint64_t i, lp_sample *row)
{
    rough_row(i, row);
    row->mono_ns = 5000 * SECOND + i * SECOND + i % 5 * 40000;
    row->share_count = i % 20 < 15 ? 1 : 0;
    row->share[0] = (lp_share){i % 20 < 8 ? 2 : 3, 1000};
    if (i % 20 == 7) {
        row->share_count = 2;
        row->share[0].parts = 250;
        row->share[1] = (lp_share){1, 600};
    }
    return true;
}

static lp_buffer kept_file(void)
{
    lp_buffer out = new_file(LP_SERIES_PROCESS);
    lp_sample_writer *w = lp_sample_writer_new(LP_SERIES_PROCESS, 0, SECOND);
    lp_sample_writer *gpu = lp_sample_writer_new(LP_SERIES_PROCESS_GPU, 1, SECOND);
    lp_sample row;
    lp_sample_writer_label(gpu, worker_str("NVIDIA H200"));
    lp_sample_writer_path(w, 0, worker_str("iteration"));
    lp_sample_writer_path(w, 1, worker_str("load"));
    lp_sample_writer_path(w, 0, worker_str("save"));
    for (uint64_t i = 0; i < 90; i++) {
        kept_row(i, &row);
        lp_sample_writer_add(w, &row, &out);
    }
    lp_sample_writer_flush(w, &out);
    lp_sample_writer_add(gpu, &row, &out);
    lp_sample_writer_flush(gpu, &out);
    lp_sample_writer_free(w);
    lp_sample_writer_free(gpu);
    return out;
}

static unsigned char kept[1 << 16];
static size_t kept_size;

static bool load_kept(void)
{
    const char *folder = getenv("LP_TEST_DATA");
    FILE *file = folder ? fopen(text("%s/samples-v1.hex", folder), "re") : NULL;
    unsigned byte;

    if (!file)
        return false;
    while (kept_size < sizeof kept && fscanf(file, "%2x", &byte) == 1)
        kept[kept_size++] = (unsigned char)byte;
    fclose(file);
    return kept_size > 0;
}

static void the_kept_sample_of_version_1_is_read(void)
{
    lp_samples *reader;
    REQUIRE(lp_samples_open_memory(kept, kept_size, "samples-v1", &reader, NULL) == LP_OK);
    const lp_sample_batch *b;
    uint64_t rows = 0, lost;
    while (lp_samples_next(reader, &b, NULL) == LP_OK && b && b->series == LP_SERIES_PROCESS)
        for (uint32_t i = 0; i < b->rows; i++, rows++) {
            lp_sample e;
            kept_row(rows, &e);
            CHECK_EQ(b->value[LP_COLUMN_RUN_DELAY][i], e.value[LP_COLUMN_RUN_DELAY]);
            CHECK_EQ(b->value[LP_COLUMN_RSS][i], stepped(LP_COLUMN_RSS, e.value[LP_COLUMN_RSS]));
            CHECK_EQ(b->mono_ns / 1000 + b->time_us[i], e.mono_ns / 1000);
        }
    CHECK_EQ(rows, 90u);
    REQUIRE(b != NULL);
    CHECK_EQ(b->series, LP_SERIES_PROCESS_GPU);
    REQUIRE(lp_samples_next(reader, &b, NULL) == LP_OK);
    CHECK(b == NULL);
    CHECK_STR(lp_samples_lost(reader, &lost), "");
    lp_samples_close(reader);
}

/* With an argument: the sample, as hex, for tests/data. */
int main(int argc, char **argv)
{
    who = build_worker();
    if (argc > 1) {
        lp_buffer out = kept_file();
        FILE *file = fopen(argv[1], "we");
        for (size_t i = 0; file && i < out.size; i++)
            fprintf(file, "%02x%s", out.data[i], i % 60 == 59 || i + 1 == out.size ? "\n" : "");
        lp_buffer_free(&out);
        lp_worker_free(who);
        return !file || fclose(file) != 0;
    }
    RUN(columns_have_numbers_of_their_own);
    RUN(rows_come_back);
    RUN(gaps_and_extremes_come_back);
    RUN(what_no_row_may_say_is_not_written);
    RUN(several_series_share_a_file);
    RUN(cut_anywhere_costs_the_last_batch);
    RUN(a_changed_bit_ends_it);
    RUN(hostile_batches_are_refused);
    RUN(other_files_are_not_taken);
    RUN(twelve_hours_are_small);
    RUN(files_are_made_and_appended);
    if (load_kept())
        RUN(the_kept_sample_of_version_1_is_read);
    else
        check_skip("the_kept_sample_of_version_1_is_read", "set LP_TEST_DATA to tests/data");
    lp_worker_free(who);
    return check_done();
}
