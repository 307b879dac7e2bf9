/* Reading a run directory again and again: what was read is not read again, what is new is, and memory is bounded. */
#include "check.h"
#include "store/internal.h"
#include "store/rundir.h"
#include "test_folder.h"
#include "worker_builder.h"

static char folder[64];

static void write_worker(const char *uuid, uint32_t generation, bool final, uint64_t elapsed)
{
    lp_worker *w = build_worker();
    lp_error error;

    w->id.uuid = worker_str(uuid);
    w->generation = generation;
    w->final = final;
    w->elapsed_ns = elapsed;
    if (lp_snapshot_write(folder, w, false, &error) != LP_OK)
        abort();
    lp_worker_free(w);
}

#define UUID_A "0123456789abcdef0123456789abcdef"
#define UUID_B "fedcba98765432100123456789abcdef"

static lp_rundir *open_run(lp_rundir_cache *cache, const lp_source **sources, size_t *count)
{
    lp_rundir *dir = NULL;
    lp_error error;

    if (lp_rundir_open(folder, (lp_rundir_options){.cache = cache}, &dir, &error) != LP_OK)
        abort();
    *sources = lp_rundir_sources(dir, count);
    return dir;
}

static void files_are_read_once(void)
{
    lp_rundir_cache *cache = lp_rundir_cache_new(1 << 20);
    const lp_source *sources;
    const lp_worker *first[2];
    size_t count;

    write_worker(UUID_A, 1, false, 1000);
    write_worker(UUID_B, 1, false, 2000);
    for (int round = 0; round < 3; round++) {
        lp_rundir *dir = open_run(cache, &sources, &count);
        REQUIRE(count == 2);
        for (size_t i = 0; i < 2; i++) {
            lp_worker *read = NULL;
            lp_error error;
            REQUIRE(sources[i].known != NULL);
            if (round == 0)
                first[i] = sources[i].known;
            CHECK(sources[i].known == first[i]); /* the same object: not read again */
            REQUIRE(lp_rundir_read(dir, i, &read, &error) == LP_OK);
            CHECK_EQ(sources[i].known->elapsed_ns, read->elapsed_ns);
            CHECK_EQ(sources[i].known->tree.count, read->tree.count);
            lp_worker_free(read);
        }
        lp_rundir_close(dir);
    }

    write_worker(UUID_A, 2, false, 5000); /* a newer one takes the place of the first */
    lp_rundir *dir = open_run(cache, &sources, &count);
    REQUIRE(count == 2);
    for (size_t i = 0; i < 2; i++) {
        bool is_a = memcmp(sources[i].uuid.data, UUID_A, 32) == 0;
        REQUIRE(sources[i].known != NULL);
        CHECK_EQ(sources[i].known->elapsed_ns, is_a ? 5000u : 2000u);
        CHECK(is_a || sources[i].known == first[0] || sources[i].known == first[1]);
    }
    lp_rundir_close(dir);
    lp_rundir_cache_free(cache);
}

/* The same name with other content, as when a dead worker is adopted twice: another inode. */
static void a_replaced_file_is_read_again(void)
{
    lp_rundir_cache *cache = lp_rundir_cache_new(1 << 20);
    const lp_source *sources;
    size_t count;

    write_worker(UUID_A, 7, true, 1000);
    lp_rundir_close(open_run(cache, &sources, &count));
    write_worker(UUID_A, 7, true, 9000);
    lp_rundir *dir = open_run(cache, &sources, &count);
    for (size_t i = 0; i < count; i++)
        if (memcmp(sources[i].uuid.data, UUID_A, 32) == 0)
            CHECK(sources[i].known && sources[i].known->elapsed_ns == 9000);
    lp_rundir_close(dir);
    lp_rundir_cache_free(cache);
}

static void memory_is_bounded(void)
{
    lp_rundir_cache *cache = lp_rundir_cache_new(1); /* no worker is so small */
    const lp_source *sources;
    size_t count;

    write_worker(UUID_A, 8, true, 1000);
    lp_rundir *dir = open_run(cache, &sources, &count);
    CHECK(count > 0);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(sources[i].status, LP_OK);
        CHECK(sources[i].known == NULL); /* and lp_rundir_read reads it */
    }
    lp_rundir_close(dir);
    lp_rundir_cache_free(cache);
}

static void many(void)
{
    lp_rundir_cache *cache = lp_rundir_cache_new(64 << 20);
    const lp_source *sources;
    size_t count;
    char uuid[33];

    for (unsigned i = 0; i < 700; i++) { /* more than the table's first slots */
        snprintf(uuid, sizeof uuid, "%08x%024x", i, i);
        write_worker(uuid, 1, true, i);
    }
    for (int round = 0; round < 2; round++) {
        lp_rundir *dir = open_run(cache, &sources, &count);
        CHECK(count >= 700);
        for (size_t i = 0; i < count; i++)
            CHECK(sources[i].known != NULL);
        lp_rundir_close(dir);
    }
    remove_folder(folder);
    if (mkdir(folder, 0700) != 0)
        abort();
    lp_rundir *dir = open_run(cache, &sources, &count);
    CHECK_EQ(count, 0);
    lp_rundir_close(dir);
    lp_rundir_cache_free(cache);
}

int main(void)
{
    make_folder(folder);
    RUN(files_are_read_once);
    RUN(a_replaced_file_is_read_again);
    RUN(memory_is_bounded);
    RUN(many);
    remove_folder(folder);
    return check_done();
}
