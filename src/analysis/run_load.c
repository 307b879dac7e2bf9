/* A run from a directory: pick the newest attempt by the heads of all files, then fold its workers in one by one. */
#include "analysis/run.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/tree_math.h"
#include "store/arena.h"
#include "store/rundir.h"

typedef struct attempt {
    lp_str run_id;    /* borrowed from the list of sources */
    uint64_t started; /* when its first process started */
} attempt;

static uint64_t source_start(const lp_source *source)
{
    return source->run_started_ns ? source->run_started_ns : source->started_ns;
}

/* Latest start first; attempts that started together by their id, which begins with the time. */
static int newest_first(const void *a, const void *b)
{
    const attempt *x = a, *y = b;

    if (x->started != y->started)
        return x->started > y->started ? -1 : 1;
    return lp__str_compare(y->run_id, x->run_id);
}

static int by_id(const void *a, const void *b)
{
    const attempt *x = a, *y = b;
    int order = lp__str_compare(x->run_id, y->run_id);

    return order ? order : (x->started > y->started) - (x->started < y->started);
}

/* *attempts is owned by the caller: one entry a run id, newest first. */
static lp_status list_attempts(const lp_source *sources, size_t count, attempt **attempts, size_t *attempt_count)
{
    attempt *list = malloc((count + 1) * sizeof *list);
    size_t size = 0, kept = 0;

    if (!list)
        return LP_E_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (sources[i].status == LP_OK)
            list[size++] = (attempt){sources[i].run_id, source_start(&sources[i])};
    if (size > 1)
        qsort(list, size, sizeof *list, by_id);
    for (size_t i = 0; i < size; i++) /* the first of equal ids is the earliest */
        if (kept == 0 || !lp__str_equal(list[kept - 1].run_id, list[i].run_id))
            list[kept++] = list[i];
    if (kept > 1)
        qsort(list, kept, sizeof *list, newest_first);
    *attempts = list;
    *attempt_count = kept;
    return LP_OK;
}

static lp_status add_lost(lp_run *run, const char *path, const lp_error *error, lp_status status)
{
    const char *reason = error->text[0] ? error->text : lp_status_text(status);
    size_t size = strlen(path);

    /* Error texts start with the path; beside the path it would stand twice. */
    if (strncmp(reason, path, size) == 0 && reason[size] == ':')
        reason += size + 1 + (reason[size + 1] == ' ');
    return lp_run_add_unreadable(run, path, reason);
}

/* Folds in every worker of an attempt. */
static lp_status add_attempt(lp_run *run, const lp_rundir *dir, lp_str run_id, bool keep)
{
    size_t count = 0;
    const lp_source *sources = lp_rundir_sources(dir, &count);

    for (size_t i = 0; i < count; i++) {
        lp_worker *worker = NULL;
        lp_error error = {.offset = UINT64_MAX};

        if (sources[i].status != LP_OK || !lp__str_equal(sources[i].run_id, run_id))
            continue;
        if (sources[i].known && !keep) {
            lp_status added = lp_run_fold(run, sources[i].known);
            if (added != LP_OK)
                return added;
            continue;
        }
        lp_status status = lp_rundir_read(dir, i, &worker, &error);
        if (status == LP_E_MEMORY)
            return status;
        if (status != LP_OK) {
            status = add_lost(run, sources[i].path, &error, status);
        } else {
            status = lp_run_add(run, worker, keep);
            if (!keep)
                lp_worker_free(worker);
        }
        if (status != LP_OK)
            return status;
    }
    return LP_OK;
}

/* Of an earlier attempt only the head is shown, so only merge_run reads the whole of it. */
static lp_status add_superseded(lp_run *run, const lp_rundir *dir, size_t index, const lp_source *source, bool keep)
{
    lp_worker *worker = NULL;
    lp_error error = {.offset = UINT64_MAX};

    if (keep) {
        lp_status status = lp_rundir_read(dir, index, &worker, &error);
        if (status == LP_E_MEMORY)
            return status;
        return status == LP_OK ? lp_run_add_superseded(run, worker, true) : add_lost(run, source->path, &error, status);
    }
    worker = lp_worker_new();
    if (!worker)
        return LP_E_MEMORY;
    worker->id.run_id = source->run_id;
    worker->id.role = source->role;
    worker->id.host = source->host;
    worker->id.uuid = source->uuid;
    worker->id.pid = source->pid;
    worker->id.rank = source->rank;
    worker->id.started_ns = source->started_ns;
    worker->id.run_started_ns = source->run_started_ns;
    worker->written_ns = source->written_ns;
    worker->elapsed_ns = lp__sub_u64(source->written_ns, source->started_ns);
    worker->living = source->living;
    worker->path = (lp_str){source->path, strlen(source->path)};
    lp_status status = lp_run_add_superseded(run, worker, false);
    lp_worker_free(worker);
    return status;
}

static lp_status add_sources(lp_run *run, const lp_rundir *dir, bool keep)
{
    size_t count = 0, attempt_count = 0, chosen = 0;
    const lp_source *sources = lp_rundir_sources(dir, &count);
    attempt *attempts = NULL;

    for (size_t i = 0; i < count; i++) {
        lp_error error = {.offset = UINT64_MAX};
        if (sources[i].status == LP_OK)
            continue;
        size_t size = strlen(sources[i].problem);
        memcpy(error.text, sources[i].problem, size < sizeof error.text ? size : sizeof error.text - 1);
        lp_status status = add_lost(run, sources[i].path, &error, sources[i].status);
        if (status != LP_OK)
            return status;
    }
    lp_status status = list_attempts(sources, count, &attempts, &attempt_count);
    /* An attempt of which nothing can be read is not "the newest" to anyone: its files are named, the one before shows. */
    for (; status == LP_OK && chosen < attempt_count && run->worker_count == 0; chosen++)
        status = add_attempt(run, dir, attempts[chosen].run_id, keep);
    for (size_t i = 0; status == LP_OK && i < count; i++) {
        bool earlier = false;
        for (size_t a = chosen; a < attempt_count && !earlier; a++)
            earlier = sources[i].status == LP_OK && lp__str_equal(sources[i].run_id, attempts[a].run_id);
        if (earlier)
            status = add_superseded(run, dir, i, &sources[i], keep);
    }
    free(attempts);
    return status;
}

lp_status lp_run_load(const char *directory, lp_run_options options, lp_run **out, lp_error *error)
{
    lp_rundir *dir = NULL;
    lp_run *run = lp_run_new();

    if (!run)
        return lp_error_set(error, LP_E_MEMORY, 0, UINT64_MAX, "%s: out of memory", directory);
    run->directory = lp_arena_str(run->arena, directory, strlen(directory));
    lp_status status = run->directory.data ? LP_OK : LP_E_MEMORY;
    if (status == LP_OK)
        status =
            lp_rundir_open(directory, (lp_rundir_options){options.adopt, options.segments, options.cache}, &dir, error);
    if (status == LP_E_MISSING) {
        run->empty_reason = "missing";
        status = LP_OK;
    } else if (status == LP_OK) {
        status = add_sources(run, dir, options.keep_workers);
        lp_rundir_close(dir);
        if (status != LP_OK)
            lp_error_set(error, status, 0, UINT64_MAX, "%s: %s", directory, lp_status_text(status));
    }
    if (status == LP_OK)
        status = lp_run_finish(run);
    if (status != LP_OK) {
        lp_run_free(run);
        return status;
    }
    *out = run;
    return LP_OK;
}
