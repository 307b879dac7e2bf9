/* Snapshot files: what is written is read back, and no bytes whatever do more than yield a status and one line. */
#include <stdlib.h>

#include "check.h"
#include "store/internal.h"
#include "store/wire.h"
#include "worker_builder.h"

static void check_text(lp_str a, lp_str b, const char *what)
{
    if (!lp__str_equal(a, b))
        printf("# in %s\n", what);
    CHECK_EQ(a.size, b.size);
    CHECK(a.size != b.size || memcmp(a.data, b.data, a.size) == 0);
}

static void check_cells(const lp_cells *a, const lp_cells *b)
{
    CHECK_EQ(a->size, b->size);
    for (uint32_t i = 0; i < a->size && i < b->size; i++) {
        CHECK_EQ(a->at[i].index, b->at[i].index);
        CHECK_EQ(a->at[i].count, b->at[i].count);
    }
}

static void check_identity(const lp_identity *a, const lp_identity *b)
{
    check_text(a->host, b->host, "host");
    check_text(a->boot_id, b->boot_id, "boot_id");
    check_text(a->uuid, b->uuid, "uuid");
    CHECK_EQ(a->pid, b->pid);
    CHECK_EQ(a->pid_start, b->pid_start);
    CHECK_EQ(a->started_ns, b->started_ns);
    check_text(a->run_id, b->run_id, "run_id");
    check_text(a->role, b->role, "role");
    CHECK_EQ(a->run_started_ns, b->run_started_ns);
    CHECK_EQ(a->rank, b->rank);
    CHECK_EQ(a->local_rank, b->local_rank);
    CHECK_EQ(a->world_size, b->world_size);
    check_text(a->job_id, b->job_id, "job_id");
    check_text(a->launcher, b->launcher, "launcher");
    CHECK_EQ(a->run_dir_dev, b->run_dir_dev);
    CHECK_EQ(a->run_dir_ino, b->run_dir_ino);
    CHECK_EQ(a->pid_ns, b->pid_ns);
    CHECK_EQ(a->mnt_ns, b->mnt_ns);
    CHECK_EQ(a->argv_count, b->argv_count);
    for (uint32_t i = 0; i < a->argv_count && i < b->argv_count; i++)
        check_text(a->argv[i], b->argv[i], "argv");
    check_text(a->python, b->python, "python");
    check_text(a->platform, b->platform, "platform");
    check_text(a->source_commit, b->source_commit, "source_commit");
    CHECK_EQ(a->source_dirty, b->source_dirty);
    CHECK_EQ(a->source_untracked, b->source_untracked);
    check_text(a->source_diff, b->source_diff, "source_diff");
    CHECK_EQ(a->source_extra_count, b->source_extra_count);
    for (uint32_t i = 0; i < a->source_extra_count && i < b->source_extra_count; i++) {
        check_text(a->source_extra[i].key, b->source_extra[i].key, "source key");
        check_text(a->source_extra[i].value, b->source_extra[i].value, "source value");
    }
    CHECK_EQ(a->hardware.cpu_cores, b->hardware.cpu_cores);
    CHECK_EQ(a->hardware.cpu_threads, b->hardware.cpu_threads);
    CHECK_EQ(a->hardware.cpu_affinity, b->hardware.cpu_affinity);
    CHECK_EQ(a->hardware.ram_total, b->hardware.ram_total);
    CHECK_EQ(a->hardware.gpu_count, b->hardware.gpu_count);
    for (uint32_t i = 0; i < a->hardware.gpu_count && i < b->hardware.gpu_count; i++) {
        CHECK_EQ(a->hardware.gpus[i].index, b->hardware.gpus[i].index);
        check_text(a->hardware.gpus[i].name, b->hardware.gpus[i].name, "gpu");
        CHECK_EQ(a->hardware.gpus[i].vram_total, b->hardware.gpus[i].vram_total);
    }
    CHECK_EQ(a->option_count, b->option_count);
    for (uint32_t i = 0; i < a->option_count && i < b->option_count; i++) {
        check_text(a->options[i].key, b->options[i].key, "option");
        check_text(a->options[i].value, b->options[i].value, "option");
    }
}

static void check_phase(const lp_phase *a, const lp_phase *b)
{
    check_text(a->name, b->name, "phase");
    CHECK_EQ(a->parent, b->parent);
    CHECK_EQ(a->flags, b->flags);
    CHECK_EQ(a->entries, b->entries);
    CHECK_EQ(a->errors, b->errors);
    CHECK_EQ(a->abandoned, b->abandoned);
    CHECK_EQ(a->async_entries, b->async_entries);
    CHECK_EQ(a->io_missing, b->io_missing);
    CHECK_EQ(a->wall_ns, b->wall_ns);
    CHECK_EQ(a->child_ns, b->child_ns);
    CHECK_EQ(a->cpu_wall_ns, b->cpu_wall_ns);
    CHECK_EQ(a->cpu_ns, b->cpu_ns);
    CHECK_EQ(a->split_wait_ns, b->split_wait_ns);
    CHECK_EQ(a->starved_ns, b->starved_ns);
    CHECK_EQ(a->min_ns, b->min_ns);
    CHECK_EQ(a->max_ns, b->max_ns);
    CHECK_EQ(a->stride, b->stride);
    check_cells(&a->hist, &b->hist);
    CHECK_EQ(a->counter_count, b->counter_count);
    for (uint32_t i = 0; i < a->counter_count && i < b->counter_count; i++) {
        const lp_counter *x = &a->counters[i], *y = &b->counters[i];
        check_text(x->name, y->name, "counter");
        CHECK_EQ(x->calls, y->calls);
        CHECK(x->total == y->total);
        CHECK_EQ(x->min, y->min);
        CHECK_EQ(x->max, y->max);
        check_cells(&x->positive, &y->positive);
        check_cells(&x->negative, &y->negative);
    }
}

static void check_worker(const lp_worker *a, const lp_worker *b)
{
    check_identity(&a->id, &b->id);
    CHECK_EQ(a->tree.count, b->tree.count);
    for (uint32_t i = 0; i < a->tree.count && i < b->tree.count; i++)
        check_phase(&a->tree.phases[i], &b->tree.phases[i]);
    CHECK_EQ(a->open_count, b->open_count);
    for (uint32_t i = 0; i < a->open_count && i < b->open_count; i++) {
        CHECK_EQ(a->open[i].phase, b->open[i].phase);
        CHECK_EQ(a->open[i].since_ns, b->open[i].since_ns);
        CHECK_EQ(a->open[i].open_ns, b->open[i].open_ns);
        check_text(a->open[i].thread, b->open[i].thread, "thread");
        CHECK_EQ(a->open[i].tid, b->open[i].tid);
    }
    const uint64_t *x = &a->health.folded_paths, *y = &b->health.folded_paths;
    for (int i = 0; i < 8; i++)
        CHECK_EQ(x[i], y[i]);
    check_text(a->health.first_folded, b->health.first_folded, "first_folded");
    check_text(a->health.last_error, b->health.last_error, "last_error");
    CHECK_EQ(a->written_ns, b->written_ns);
    CHECK_EQ(a->elapsed_ns, b->elapsed_ns);
    CHECK_EQ(a->generation, b->generation);
    CHECK_EQ(a->final, b->final);
    CHECK_EQ(a->unclean, b->unclean);
    CHECK_EQ(a->end.code, b->end.code);
    CHECK_EQ(a->end.core_dumped, b->end.core_dumped);
    CHECK_EQ(a->end.replaced, b->end.replaced);
    check_text(a->clock, b->clock, "clock");
    check_text(a->cpu_source, b->cpu_source, "cpu_source");
    check_text(a->split_source, b->split_source, "split_source");
    check_text(a->segment_place, b->segment_place, "segment_place");
    CHECK_EQ(a->own_cost_ps, b->own_cost_ps);
    CHECK_EQ(a->own_count_cost_ps, b->own_count_cost_ps);
    CHECK_EQ(a->threads, b->threads);
}

static void every_field_comes_back(void)
{
    lp_worker *worker = build_worker(), *back = NULL;
    lp_buffer bytes = {0};
    lp_error error;
    REQUIRE(lp_snapshot_encode(worker, &bytes) == LP_OK);
    REQUIRE(lp_snapshot_decode(bytes.data, bytes.size, "a.snap", &back, &error) == LP_OK);
    check_worker(worker, back);
    CHECK_MEM(back->path.data, "a.snap", 6);
    CHECK(!back->living);

    lp_buffer again = {0}; /* and is written the same */
    REQUIRE(lp_snapshot_encode(back, &again) == LP_OK);
    CHECK_EQ(bytes.size, again.size);
    CHECK(memcmp(bytes.data, again.data, bytes.size) == 0);
    lp_buffer_free(&again);
    lp_buffer_free(&bytes);
    lp_worker_free(back);
    lp_worker_free(worker);
}

static void every_end_comes_back(void)
{
    static const lp_end ends[] = {
        {-9, false, false}, {-11, true, false}, {0, false, false}, {255, false, false}, {LP_UNKNOWN_I64, false, true}};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        lp_worker *worker = build_worker(), *back = NULL;
        lp_buffer bytes = {0};
        lp_error error;
        worker->unclean = true;
        worker->end = ends[i];
        REQUIRE(lp_snapshot_encode(worker, &bytes) == LP_OK);
        REQUIRE(lp_snapshot_decode(bytes.data, bytes.size, "a.snap", &back, &error) == LP_OK);
        check_worker(worker, back);
        lp_buffer_free(&bytes);
        lp_worker_free(back);
        lp_worker_free(worker);
    }
}

static void an_empty_worker_comes_back(void)
{
    lp_worker *worker = lp_worker_new(), *back = NULL;
    lp_buffer bytes = {0};
    REQUIRE(lp_snapshot_encode(worker, &bytes) == LP_OK);
    REQUIRE(lp_snapshot_decode(bytes.data, bytes.size, "a.snap", &back, NULL) == LP_OK);
    check_worker(worker, back);
    CHECK_EQ(back->id.rank, LP_UNKNOWN_I64);
    CHECK_EQ(back->id.hardware.cpu_cores, LP_UNKNOWN_I64);
    lp_buffer_free(&bytes);
    lp_worker_free(back);
    lp_worker_free(worker);
}

static void the_identity_stands_alone(void)
{
    lp_worker *worker = build_worker();
    lp_arena *arena = lp_arena_new();
    lp_buffer bytes = {0};
    lp_identity id;
    lp_error error;
    REQUIRE(lp_identity_encode(&worker->id, &bytes) == LP_OK);
    REQUIRE(lp_identity_decode(bytes.data, bytes.size, arena, &id, NULL) == LP_OK);
    check_identity(&worker->id, &id);
    CHECK_EQ(lp_identity_decode(bytes.data, bytes.size - 1, arena, &id, &error), LP_E_TRUNCATED);
    lp_buffer_free(&bytes);
    lp_arena_free(arena);
    lp_worker_free(worker);
}

static void the_head_needs_only_the_start(void)
{
    lp_worker *worker = build_worker(), *head = NULL;
    lp_buffer bytes = {0};
    lp_snapshot_encode(worker, &bytes);
    size_t enough = 0;
    for (size_t size = 0; size <= bytes.size; size++) {
        unsigned char *copy = malloc(size); /* of that very size, so that reading beyond it is caught */
        if (size)
            memcpy(copy, bytes.data, size);
        if (lp_snapshot_head(copy, size, "a.snap", &head, NULL) == LP_OK) {
            if (!enough)
                enough = size;
            check_identity(&worker->id, &head->id);
            CHECK_EQ(head->written_ns, worker->written_ns);
            CHECK_EQ(head->generation, worker->generation);
            CHECK_EQ(head->final, true);
            CHECK_EQ(head->health.clock_backwards, 8u);
            lp_worker_free(head);
        } else {
            CHECK(enough == 0);
        }
        free(copy);
    }
    printf("# head: %zu of %zu bytes\n", enough, bytes.size);
    CHECK(enough > 0 && enough < 800);
    lp_buffer_free(&bytes);
    lp_worker_free(worker);
}

/* One line, which names the file. */
static void check_line(const lp_error *error, lp_status status)
{
    CHECK_EQ(error->status, status);
    CHECK(strncmp(error->text, "dir/x.snap: ", 12) == 0);
    CHECK(strlen(error->text) > 14 && strlen(error->text) < 200);
    CHECK(strchr(error->text, '\n') == NULL);
}

static void every_cut_is_noticed(void)
{
    lp_worker *worker = build_worker(), *back;
    lp_buffer bytes = {0};
    lp_error error;
    lp_snapshot_encode(worker, &bytes);
    for (size_t size = 0; size < bytes.size; size++) {
        unsigned char *copy = malloc(size);
        if (size)
            memcpy(copy, bytes.data, size);
        lp_status status = lp_snapshot_decode(copy, size, "dir/x.snap", &back, &error);
        CHECK_EQ(status, LP_E_TRUNCATED);
        check_line(&error, status);
        CHECK(error.offset <= size);
        free(copy);
    }
    lp_buffer_free(&bytes);
    lp_worker_free(worker);
}

static void every_flipped_bit_is_noticed(void)
{
    lp_worker *worker = build_worker(), *back;
    lp_buffer bytes = {0};
    lp_error error;
    lp_snapshot_encode(worker, &bytes);
    for (size_t at = 0; at < bytes.size; at++)
        for (int bit = 0; bit < 8; bit++) {
            bytes.data[at] ^= (unsigned char)(1 << bit);
            lp_status status = lp_snapshot_decode(bytes.data, bytes.size, "dir/x.snap", &back, &error);
            CHECK(status != LP_OK);
            check_line(&error, status);
            bytes.data[at] ^= (unsigned char)(1 << bit);
        }
    lp_buffer_free(&bytes);
    lp_worker_free(worker);
}

static void sign(unsigned char *data, size_t size)
{
    uint32_t crc = lp__crc32c(0, data, size - 5);
    data[size - 5] = 0x7d;
    for (int i = 0; i < 4; i++)
        data[size - 4 + (size_t)i] = (unsigned char)(crc >> (8 * i));
}

/* Behind a good checksum, any bytes: whatever is accepted must hold together. */
static void forged_files_are_refused_or_sane(void)
{
    lp_worker *worker = build_worker(), *back;
    lp_buffer bytes = {0};
    lp_error error;
    unsigned accepted = 0, refused = 0;
    lp_snapshot_encode(worker, &bytes);
    unsigned char *copy = malloc(bytes.size);
    srand(3);
    for (int round = 0; round < 30000; round++) {
        memcpy(copy, bytes.data, bytes.size);
        for (int i = rand() % 3; i >= 0; i--)
            copy[2 + (size_t)rand() % (bytes.size - 2)] = (unsigned char)rand();
        sign(copy, bytes.size);
        lp_status status = lp_snapshot_decode(copy, bytes.size, "dir/x.snap", &back, &error);
        if (status != LP_OK) {
            refused++;
            check_line(&error, status);
            continue;
        }
        accepted++;
        for (uint32_t i = 0; i < back->tree.count; i++) {
            const lp_phase *p = &back->tree.phases[i];
            CHECK(i == 0 || p->parent < i);
            CHECK_EQ(p->entries, lp_cells_total(&p->hist));
            CHECK(p->cpu_ns <= p->cpu_wall_ns && p->cpu_wall_ns <= p->wall_ns);
            CHECK(p->starved_ns <= p->split_wait_ns && p->split_wait_ns <= p->cpu_wall_ns - p->cpu_ns);
            CHECK(p->entries == 0 || (p->child_ns <= p->wall_ns && p->min_ns <= p->max_ns));
        }
        for (uint32_t i = 0; i < back->open_count; i++)
            CHECK(back->open[i].phase < back->tree.count);
        lp_worker_free(back);
    }
    printf("# forged: %u accepted, %u refused\n", accepted, refused);
    CHECK(accepted > 100 && refused > 100);
    free(copy);
    lp_buffer_free(&bytes);
    lp_worker_free(worker);
}

static void random_bytes_are_refused(void)
{
    unsigned char data[64];
    lp_worker *back;
    lp_error error;
    srand(5);
    for (int round = 0; round < 100000; round++) {
        size_t size = (size_t)rand() % sizeof data;
        unsigned char *copy = malloc(size + 1);
        for (size_t i = 0; i < size; i++)
            copy[i] = (unsigned char)rand();
        if (size > 9 && round % 2) { /* as far in as possible */
            memcpy(copy, "\x08\x01\x12", 3);
            sign(copy, size);
        }
        lp_status status = lp_snapshot_decode(copy, size, "dir/x.snap", &back, &error);
        if (status == LP_OK)
            lp_worker_free(back); /* 64 bytes can be a snapshot */
        else
            check_line(&error, status);
        free(copy);
    }
}

static lp_status decode_text(const void *data, size_t size, lp_error *error)
{
    lp_worker *back = NULL;
    lp_status status = lp_snapshot_decode(data, size, "dir/x.snap", &back, error);
    if (status == LP_OK)
        lp_worker_free(back);
    return status;
}

static void other_files_are_named_for_what_they_are(void)
{
    lp_error error;
    CHECK_EQ(decode_text("", 0, &error), LP_E_TRUNCATED);
    CHECK_STR(error.text, "dir/x.snap: the file is empty (byte 0)");
    CHECK_EQ(decode_text("{\"version\": 1}", 14, &error), LP_E_FOREIGN);
    CHECK_STR(error.text, "dir/x.snap: not a snapshot of lineprofiler (byte 0)");
    CHECK_EQ(decode_text("\x08\x02\x12\x00\x7d....", 9, &error), LP_E_VERSION);
    CHECK_STR(error.text, "dir/x.snap: format version 2 of a newer lineprofiler; this one reads up to 1 (byte 1)");
    CHECK_EQ(decode_text("\x08\x00\x12\x00", 4, &error), LP_E_FOREIGN);
    CHECK_EQ(decode_text("\x08\x01", 2, &error), LP_E_TRUNCATED);
    /* an identity that claims 4 GB */
    CHECK_EQ(decode_text("\x08\x01\x12\xff\xff\xff\xff\x0f....", 12, &error), LP_E_TRUNCATED);
    CHECK_STR(error.text, "dir/x.snap: a field is longer than what is left (byte 2)");

    char path[600], expected[256];
    memset(path, 'd', sizeof path);
    path[sizeof path - 1] = '\0';
    memcpy(path + sizeof path - 8, "/x.snap", 7);
    lp_worker *back;
    CHECK_EQ(lp_snapshot_decode("", 0, path, &back, &error), LP_E_TRUNCATED);
    snprintf(expected, sizeof expected, "/x.snap: the file is empty (byte 0)"); /* the end of a long path stays */
    CHECK(strlen(error.text) > strlen(expected));
    CHECK_STR(error.text + strlen(error.text) - strlen(expected), expected);
    CHECK_EQ(lp_snapshot_decode("", 0, path, &back, NULL), LP_E_TRUNCATED);
}

/* Encodes the worker after `change`, without what the encoder corrects, by patching bytes. */
static void impossible_values_are_damage(void)
{
    lp_error error;
    struct {
        const char *bytes;
        size_t size;
        const char *text;
    } cases[] = {
    /* version, empty identity, phases … */
#define CASE(body, what) {"\x08\x01\x12\x00" body "\x7d    ", sizeof("\x08\x01\x12\x00" body "\x7d    ") - 1, what}
        CASE("", "has no phases"),
        CASE("\x52\x02\x20\x05", "a phase has values that cannot be"), /* entries without histogram */
        CASE("\x52\x02\x48\x05", "a phase has values that cannot be"), /* wall without entries */
        CASE("\x52\x02\x08\x05", "the first phase is not a root"),
        CASE("\x52\x00\x52\x02\x08\x01", "a phase stands before its parent"), /* its own parent */
        CASE("\x52\x00\x52\x03\x12\x01"
             "a\x52\x03\x12\x01"
             "a",
             "a phase stands there twice"),
        CASE("\x52\x00\x5a\x02\x08\x01", "an open phase is not in the tree"),
        CASE("\x52\x0a\x92\x01\x07\x0a\x02\xff\x7f\x12\x01\x01", "a histogram has cells that do not exist"),
        CASE("\x52\x08\x92\x01\x05\x0a\x00\x12\x01\x01", "a histogram has more counts than cells"),
        CASE("\x52\x08\x92\x01\x05\x0a\x01\x01\x12\x00", "a number is cut off"), /* fewer counts than cells */
        CASE("\x52\x09\x92\x01\x06\x0a\x01\x01\x12\x01\x00", "a histogram has an empty cell"),
        CASE("\x52\x05\x9a\x01\x02\x10\x03", "a counter contradicts itself"), /* calls without histogram */
        CASE("\x52\x04\x9a\x01\x01\x52", "a number is cut off"),
        CASE("\x52\x00\x0b", "a field has an unknown type"),    /* a group */
        CASE("\x52\x00\x50\x05", "a field has the wrong type"), /* phases as a number */
        CASE("\x52\x00\x7d....", "the checksum is not at the end"),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char data[64];
        memcpy(data, cases[i].bytes, cases[i].size);
        sign(data, cases[i].size);
        lp_status status = decode_text(data, cases[i].size, &error);
        CHECK_EQ(status, LP_E_DAMAGED);
        CHECK(error.offset <= cases[i].size || error.offset == UINT64_MAX);
        if (!strstr(error.text, cases[i].text))
            printf("# case %zu: %s, not: %s\n", i, error.text, cases[i].text);
        CHECK(strstr(error.text, cases[i].text) != NULL);
    }
    unsigned char fine[] = "\x08\x01\x12\x00\x52\x00\xf2\x07\x03new\x9a\x08\x01x\x7d    "; /* fields 126 and 131 */
    sign(fine, sizeof fine - 1);
    CHECK_EQ(decode_text(fine, sizeof fine - 1, &error), LP_OK); /* unknown fields are skipped */
}

static void deep_and_wide_trees_have_limits(void)
{
    lp_error error;
    for (int depth = 64; depth <= 65; depth++) {
        lp_worker *worker = lp_worker_new();
        lp_buffer bytes = {0};
        uint32_t index = 0;
        for (int i = 0; i < depth; i++)
            lp_tree_child(&worker->tree, index, worker_str("d"), &index);
        lp_snapshot_encode(worker, &bytes);
        CHECK_EQ(decode_text(bytes.data, bytes.size, &error), depth == 64 ? LP_OK : LP_E_DAMAGED);
        lp_buffer_free(&bytes);
        lp_worker_free(worker);
    }
    size_t size = LP__NAME_MAX + 1;
    char *name = calloc(1, size);
    lp_buffer bytes = {0};
    lp__put_uint(&bytes, 1, 1);
    size_t mark = lp__put_open(&bytes, 2);
    lp__put_varint(&bytes, 8 << 3 | LP__BYTES); /* a role that is too long: by hand, the encoder cuts it */
    lp__put_varint(&bytes, size);
    lp__put_raw(&bytes, name, size);
    lp__put_close(&bytes, mark);
    lp__put_fixed32(&bytes, 15, lp__crc32c(0, bytes.data, bytes.size));
    CHECK_EQ(decode_text(bytes.data, bytes.size, &error), LP_E_DAMAGED);
    CHECK(strstr(error.text, "a text is longer than 1 MiB") != NULL);
    lp_buffer_free(&bytes);
    free(name);
}

static void the_encoder_cuts_what_no_reader_takes(void)
{
    lp_worker *worker = lp_worker_new(), *back = NULL;
    lp_buffer bytes = {0};
    size_t size = LP__NAME_MAX + 1;
    char *role = malloc(size);
    lp_str *argv = malloc(70000 * sizeof *argv);
    for (size_t i = 0; i < 70000; i++)
        argv[i] = worker_str("a");
    memset(role, 'x', size);
    memcpy(role + LP__NAME_MAX - 2, "\xe2\x82\xac", 3); /* the euro sign lies across the limit */
    worker->id.role = (lp_str){role, size};
    worker->id.argv = argv;
    worker->id.argv_count = 70000;
    REQUIRE(lp_snapshot_encode(worker, &bytes) == LP_OK);
    REQUIRE(lp_snapshot_decode(bytes.data, bytes.size, "a", &back, NULL) == LP_OK);
    CHECK_EQ(back->id.role.size, LP__NAME_MAX - 2);
    CHECK_EQ(back->id.argv_count, LP__LIST_MAX);
    lp_worker_free(back);
    lp_worker_free(worker);
    lp_buffer_free(&bytes);
    free(role);
    free(argv);
}

static void the_encoder_writes_nothing_impossible(void)
{
    lp_worker *worker = build_worker(), *back = NULL;
    lp_phase *p = &worker->tree.phases[1];
    p->cpu_ns = p->wall_ns * 2;
    p->cpu_wall_ns = p->wall_ns * 3;
    p->starved_ns = UINT64_MAX;
    p->entries = 9999;
    p->errors = 10000;
    p->child_ns = p->wall_ns + 1;
    lp_buffer bytes = {0};
    lp_snapshot_encode(worker, &bytes);
    REQUIRE(lp_snapshot_decode(bytes.data, bytes.size, "a", &back, NULL) == LP_OK);
    CHECK_EQ(back->tree.phases[1].entries, 40u);
    CHECK_EQ(back->tree.phases[1].cpu_ns, p->wall_ns);
    lp_buffer_free(&bytes);
    lp_worker_free(worker);
    lp_worker_free(back);
}

static void the_checksum_is_crc32c(void)
{
    CHECK_EQ(lp__crc32c(0, "123456789", 9), 0xe3069283u); /* the check value of the catalogue of CRCs */
    unsigned char zeros[32] = {0};
    CHECK_EQ(lp__crc32c(0, zeros, 32), 0x8a9136aau); /* RFC 3720, B.4 */
    CHECK_EQ(lp__crc32c(lp__crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
    CHECK_EQ(lp__crc32c(0, "", 0), 0u);
}

static unsigned char sample[16384];
static size_t sample_size;

static bool load_sample(const char *name)
{
    const char *folder = getenv("LP_TEST_DATA");
    char path[1024];
    unsigned byte;
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "tests/data", name);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    sample_size = 0;
    while (sample_size < sizeof sample && fscanf(file, "%2x", &byte) == 1)
        sample[sample_size++] = (unsigned char)byte;
    fclose(file);
    return true;
}

static void the_kept_sample_of_version_1_is_read(void)
{
    lp_worker *back = NULL, *truth = build_worker();
    REQUIRE(lp_snapshot_decode(sample, sample_size, "sample", &back, NULL) == LP_OK);
    check_worker(truth, back);
    lp_worker_free(back);
    lp_worker_free(truth);
}

/* With an argument: the sample, as hex, for tests/data. */
static int print_sample(void)
{
    lp_worker *worker = build_worker();
    lp_buffer bytes = {0};
    lp_snapshot_encode(worker, &bytes);
    for (size_t i = 0; i < bytes.size; i++)
        printf("%02x%s", bytes.data[i], i % 32 == 31 || i + 1 == bytes.size ? "\n" : "");
    lp_buffer_free(&bytes);
    lp_worker_free(worker);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--print-sample") == 0)
        return print_sample();
    RUN(the_checksum_is_crc32c);
    RUN(every_field_comes_back);
    RUN(every_end_comes_back);
    RUN(an_empty_worker_comes_back);
    RUN(the_identity_stands_alone);
    RUN(the_head_needs_only_the_start);
    RUN(every_cut_is_noticed);
    RUN(every_flipped_bit_is_noticed);
    RUN(forged_files_are_refused_or_sane);
    RUN(random_bytes_are_refused);
    RUN(other_files_are_named_for_what_they_are);
    RUN(impossible_values_are_damage);
    RUN(deep_and_wide_trees_have_limits);
    RUN(the_encoder_cuts_what_no_reader_takes);
    RUN(the_encoder_writes_nothing_impossible);
    /* tests/data holds a file of each version that was ever shipped, as hex: it must stay readable */
    if (load_sample("snapshot-v1.hex"))
        RUN(the_kept_sample_of_version_1_is_read);
    else
        check_skip("the_kept_sample_of_version_1_is_read", "set LP_TEST_DATA to tests/data");
    return check_done();
}
