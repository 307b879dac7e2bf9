/* A run directory as a list of workers.
 *
 * Listing reads the first few KB of the newest snapshot of each worker and the head of each segment. A file that is
 * damaged is listed with its problem, and the generation before it, if it is still there, speaks for the worker. */
#include "store/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/layout.h"
#include "store/files.h"
#include "store/folder_id.h"
#include "store/folders.h"
#include "store/place.h"
#include "store/segment.h"
#include "store/segment_read.h"
#include "store/snapshot.h"

#define SETTLE_MS 100   /* for a collector that is just writing, or just learning how a process died */
#define HEAD_SIZE 8192u /* bytes of a snapshot that are read for its head, at first */
#define BUSY_S 2        /* a folder that has changed so recently is changing */

typedef struct file {        /* a snapshot found */
    const char *host, *name; /* folder and name; owned by the list's arena */
    uint64_t inode;
    size_t stem; /* bytes of the name that all generations share; the whole name if it has none */
    uint64_t generation;
    bool final;
} file;

struct lp_rundir {
    lp_arena *arena;
    const char *path;
    int workers; /* descriptor of workers/, -1 */
    lp_folder_id id;
    lp_rundir_cache *cache; /* borrowed, may be NULL */
    lp_source *sources;     /* owned: heap */
    size_t count, room;
    file *files; /* owned: heap; while listing */
    size_t file_count, file_room;
    bool failed; /* out of memory */
};

static const char *format_path(lp_arena *arena, const char *a, const char *b, const char *c, const char *d)
{
    size_t size = strlen(a) + strlen(b) + strlen(c) + strlen(d) + 4;
    char *text = lp_arena_take(arena, size);
    if (text)
        snprintf(text, size, "%s%s%s%s%s%s%s", a, *b ? "/" : "", b, *c ? "/" : "", c, *d ? "/" : "", d);
    return text;
}

/* The user's path without the slashes at its end. */
static const char *plain_path(lp_arena *arena, const char *path)
{
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    return lp_arena_str(arena, path, size).data;
}

static const char *keep(lp_rundir *dir, const char *text)
{
    lp_str copy = lp_arena_str(dir->arena, text, strlen(text));
    if (!copy.data)
        dir->failed = true;
    return copy.data;
}

/* Room for one more; NULL sets failed. */
static void *grow(lp_rundir *dir, void *array, size_t count, size_t *room, size_t element)
{
    if (count < *room)
        return array;
    size_t wanted = *room ? 2 * *room : 64;
    void *grown = realloc(array, wanted * element);
    if (grown)
        *room = wanted;
    else
        dir->failed = true;
    return grown;
}

static lp_source *add_source(lp_rundir *dir, lp_source_kind kind, const char *path)
{
    lp_source *grown = path ? grow(dir, dir->sources, dir->count, &dir->room, sizeof *grown) : NULL;
    if (!grown) {
        dir->failed = true;
        return NULL;
    }
    dir->sources = grown;
    lp_source *source = &grown[dir->count++];
    *source = (lp_source){.kind = kind,
                          .path = path,
                          .problem = "",
                          .run_id = lp__empty,
                          .role = lp__empty,
                          .host = lp__empty,
                          .uuid = lp__empty,
                          .rank = LP_UNKNOWN_I64};
    return source;
}

static lp_str keep_str(lp_rundir *dir, lp_str text)
{
    lp_str copy = lp_arena_str(dir->arena, text.data, text.size);
    if (!copy.data)
        dir->failed = true;
    return copy.data ? copy : lp__empty;
}

static void fill_head(lp_rundir *dir, lp_source *source, const lp_worker *head)
{
    source->status = LP_OK;
    source->run_id = keep_str(dir, head->id.run_id);
    source->role = keep_str(dir, head->id.role);
    source->host = keep_str(dir, head->id.host);
    source->uuid = keep_str(dir, head->id.uuid);
    source->pid = head->id.pid;
    source->rank = head->id.rank;
    source->started_ns = head->id.started_ns;
    source->run_started_ns = head->id.run_started_ns;
    source->written_ns = head->written_ns;
}

static void add_problem(lp_rundir *dir, lp_source_kind kind, const char *path, const lp_error *error)
{
    lp_source *source = add_source(dir, kind, path);
    if (source) {
        source->status = error->status;
        source->problem = keep(dir, error->text);
        if (!source->problem)
            source->problem = "";
    }
}

/* ---- snapshots */

/* "w_….<generation>[.final].snap" */
static bool parse_name(const char *name, file *f)
{
    size_t size = strlen(name);

    if (strncmp(name, "w_", 2) != 0 || size < 7 || strcmp(name + size - 5, ".snap") != 0)
        return false;
    f->generation = 0;
    f->final = false;
    f->stem = size;
    size -= 5;
    if (size > 8 && memcmp(name + size - 6, ".final", 6) == 0) {
        f->final = true;
        size -= 6;
    }
    size_t digits = size;
    while (digits > 2 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    if (digits < size && size - digits <= 10 && name[digits - 1] == '.') {
        f->stem = digits - 1;
        f->generation = strtoull(name + digits, NULL, 10);
    }
    return true;
}

static void read_folder(lp_rundir *dir, int folder, const char *host)
{
    DIR *list = lp__list(folder);

    for (struct dirent *entry; list && !dir->failed && (entry = readdir(list));) {
        file f = {.host = host};
        if (!parse_name(entry->d_name, &f))
            continue;
        file *grown = grow(dir, dir->files, dir->file_count, &dir->file_room, sizeof *grown);
        if (!grown)
            break;
        dir->files = grown;
        f.name = keep(dir, entry->d_name);
        f.inode = entry->d_ino;
        if (f.name)
            dir->files[dir->file_count++] = f;
    }
    if (list)
        closedir(list);
}

/* What is no folder, a link, or has just gone holds no workers of ours. Any other folder that cannot be opened (permissions, too
 * many open files) may hold some: it is named, as a file that cannot be read. */
static int open_folder(lp_rundir *dir, int above, const char *name, const char *host)
{
    int folder = lp__open_folder(above, name, false, 0);
    lp_error error;

    if (folder >= 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        return folder;
    const int why = errno;
    const char *path = format_path(dir->arena, dir->path, "workers", host, "");
    if (path) {
        lp__fail_sys(&error, why, path, "open");
        add_problem(dir, LP_SOURCE_SNAPSHOT, path, &error);
    } else {
        dir->failed = true;
    }
    return -1;
}

static void list_host(lp_rundir *dir, const char *host)
{
    int folder = open_folder(dir, dir->workers, host, host);
    const char *kept = folder >= 0 ? keep(dir, host) : NULL;
    struct stat st;
    /* A file that is replaced while the folder is read may be seen under neither name: where something has just happened,
     * the folder is read twice (a name that stands twice in the list does no harm). */
    bool twice = folder >= 0 && fstat(folder, &st) == 0 &&
                 lp_clock_ns(CLOCK_REALTIME) / 1000000000u < (uint64_t)st.st_mtim.tv_sec + BUSY_S;

    for (int pass = 0; kept && pass < (twice ? 2 : 1); pass++)
        read_folder(dir, folder, kept);
    if (folder >= 0)
        close(folder);
}

static int by_worker(const void *a, const void *b)
{
    const file *x = a, *y = b;
    int order = strcmp(x->host, y->host);
    size_t shorter = x->stem < y->stem ? x->stem : y->stem;

    if (order == 0)
        order = memcmp(x->name, y->name, shorter);
    if (order == 0 && x->stem != y->stem)
        order = x->stem < y->stem ? -1 : 1;
    if (order == 0 && x->generation != y->generation)
        order = x->generation > y->generation ? -1 : 1; /* the newest first */
    if (order == 0 && x->final != y->final)
        order = x->final ? -1 : 1;
    return order ? order : strcmp(x->name, y->name);
}

static bool same_worker(const file *a, const file *b)
{
    return strcmp(a->host, b->host) == 0 && a->stem == b->stem && memcmp(a->name, b->name, a->stem) == 0;
}

/* Is the identity inside the one that stands in the name? */
static bool is_named_after(const file *f, const lp_worker *head)
{
    char stem[200];

    lp__snapshot_stem(stem, sizeof stem, &head->id);
    return strlen(stem) == f->stem && memcmp(f->name, stem, f->stem) == 0;
}

/* A damaged head could put a worker into an attempt of its own, where it is only listed: a small file is checked whole at
 * once, a larger one if its identity is not that of its name. */
static lp_status read_head(const lp_rundir *dir, const file *f, const char *path, lp_worker **head, lp_error *error)
{
    unsigned char start[HEAD_SIZE];
    char relative[600];
    size_t got = 0;
    struct stat st;
    lp_status status;

    if ((size_t)snprintf(relative, sizeof relative, "%s/%s", f->host, f->name) >= sizeof relative)
        return lp__fail(error, LP_E_ARGUMENT, path, UINT64_MAX, "path too long");
    int fd = openat(dir->workers, relative, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return lp__fail_sys(error, errno, path, "open");
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        status = lp__fail(error, LP_E_FOREIGN, path, UINT64_MAX, "not a regular file");
    else if (st.st_size > (off_t)LP__FILE_MAX)
        status = lp__fail(error, LP_E_LIMIT, path, UINT64_MAX, "larger than 256 MB");
    else if (!lp__read_at(fd, start, sizeof start, 0, &got))
        status = lp__fail_sys(error, errno, path, "read");
    else
        status = lp_snapshot_head(start, got, path, head, error);
    close(fd);
    bool whole = got < sizeof start, good = whole && status == LP_OK;
    if (good) {
        status = lp_snapshot_check(start, got, path, error);
    } else if (!whole &&
               (status == LP_E_TRUNCATED /* a long command line */ || (status == LP_OK && !is_named_after(f, *head)))) {
        unsigned char *data;
        size_t size;
        if (status == LP_OK)
            lp_worker_free(*head);
        status = lp__read_file(dir->workers, relative, path, &data, &size, error);
        if (status == LP_OK) {
            status = lp_snapshot_head(data, size, path, head, error);
            good = status == LP_OK;
            if (good)
                status = lp_snapshot_check(data, size, path, error);
            free(data);
        }
    }
    if (good && status == LP_OK && (*head)->id.run_id.size == 0)
        status = lp__fail(error, LP_E_DAMAGED, path, UINT64_MAX, "has no run id");
    if (good && status != LP_OK)
        lp_worker_free(*head);
    return status;
}

/* The newest file of a worker, as the folder is now; its name goes into `name`, "" if there is none. */
static void find_newest(int workers, const char *host, const char *stem, size_t stem_size, file *best, char *name,
                        size_t room)
{
    int folder = workers >= 0 ? lp__open_folder(workers, host, false, 0) : -1;
    DIR *list = folder >= 0 ? lp__list(folder) : NULL;

    name[0] = '\0';
    for (struct dirent *entry; list && (entry = readdir(list));) {
        file f = {.host = host};
        if (!parse_name(entry->d_name, &f) || f.stem != stem_size || memcmp(entry->d_name, stem, stem_size) != 0)
            continue;
        if (name[0] && (f.generation < best->generation || (f.generation == best->generation && best->final)))
            continue;
        *best = f;
        snprintf(name, room, "%s", entry->d_name);
    }
    if (list)
        closedir(list);
    if (folder >= 0)
        close(folder);
}

static lp_status read_snapshot(int dirfd, const char *relative, const char *path, lp_worker **worker, lp_error *error)
{
    unsigned char *data;
    size_t size;
    lp_status status = lp__read_file(dirfd, relative, path, &data, &size, error);

    if (status == LP_OK) {
        status = lp_snapshot_decode(data, size, path, worker, error);
        free(data);
    }
    return status;
}

/* The whole of a file from the cache, into which it may come now; NULL: to be read in the ordinary way. */
static const lp_worker *find_known(const lp_rundir *dir, const file *f, const char *path)
{
    char relative[600];
    lp_worker *worker;

    const lp_worker *known = lp__cache_find(dir->cache, f->host, f->name, f->inode);
    if (known || (size_t)snprintf(relative, sizeof relative, "%s/%s", f->host, f->name) >= sizeof relative ||
        read_snapshot(dir->workers, relative, path, &worker, NULL) != LP_OK)
        return known;
    if (worker->id.run_id.size > 0 && lp__cache_put(dir->cache, f->host, f->name, f->inode, worker))
        return worker;
    lp_worker_free(worker);
    return NULL;
}

/* LP_E_MISSING: it is gone meanwhile, nothing was added. */
static lp_status add_file(lp_rundir *dir, const file *f)
{
    const char *path = format_path(dir->arena, dir->path, "workers", f->host, f->name);
    lp_worker *head;
    lp_error error;

    if (!path) {
        dir->failed = true;
        return LP_E_MEMORY;
    }
    const lp_worker *known = dir->cache ? find_known(dir, f, path) : NULL;
    if (known) {
        lp_source *source = add_source(dir, LP_SOURCE_SNAPSHOT, path);
        if (source) {
            fill_head(dir, source, known);
            source->known = known;
        }
        return LP_OK;
    }
    lp_status status = read_head(dir, f, path, &head, &error);
    if (status == LP_OK) {
        lp_source *source = add_source(dir, LP_SOURCE_SNAPSHOT, path);
        if (source)
            fill_head(dir, source, head);
        lp_worker_free(head);
    } else if (status != LP_E_MISSING) {
        add_problem(dir, LP_SOURCE_SNAPSHOT, path, &error);
    }
    return status;
}

/* All files that were listed of a worker have been replaced meanwhile: takes the one that is there now. */
static void add_successor(lp_rundir *dir, const file *gone)
{
    char name[256];

    for (int i = 0; i < 8 && !dir->failed; i++) { /* it may be replaced once more, and be seen under neither name */
        file f = {0};
        find_newest(dir->workers, gone->host, gone->name, gone->stem, &f, name, sizeof name);
        f.name = name[0] ? keep(dir, name) : NULL;
        if (f.name && add_file(dir, &f) != LP_E_MISSING)
            return;
    }
}

static void add_snapshots(lp_rundir *dir)
{
    if (dir->file_count)
        qsort(dir->files, dir->file_count, sizeof *dir->files, by_worker);
    bool done = false;  /* with the worker of the file before */
    bool found = false; /* anything of it, be it damaged */
    for (size_t i = 0; i < dir->file_count && !dir->failed; i++) {
        const file *f = &dir->files[i];
        bool first = i == 0 || !same_worker(f, f - 1);
        if (first)
            done = found = false;
        if (!done && (first || strcmp(f->name, (f - 1)->name) != 0)) {
            lp_status status = add_file(dir, f);
            done = status == LP_OK;
            found = found || status != LP_E_MISSING;
        }
        if (!found && (i + 1 == dir->file_count || !same_worker(f, f + 1)))
            add_successor(dir, f);
    }
}

static void list_snapshots(lp_rundir *dir)
{
    DIR *list = dir->workers >= 0 ? lp__list(dir->workers) : NULL;

    for (struct dirent *entry; list && !dir->failed && (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            list_host(dir, entry->d_name);
    if (list)
        closedir(list);
    add_snapshots(dir);
}

/* ---- segments */

static bool list_segments(void *user, int dirfd, const char *folder)
{
    lp_rundir *dir = user;
    DIR *list = lp__list(dirfd);

    for (struct dirent *entry; list && !dir->failed && (entry = readdir(list));) {
        lp_worker *head = NULL;
        lp_error error;
        uint32_t state;
        dev_t dev;
        ino_t ino;
        if (entry->d_name[0] == '.') /* not yet complete */
            continue;
        int fd = lp__open_segment(dirfd, entry->d_name, &dev, &ino);
        if (fd < 0)
            continue;
        const char *path = format_path(dir->arena, folder, entry->d_name, "", "");
        lp_status status = path ? lp__segment_head(fd, path, &head, &state, &error) : LP_E_MEMORY;
        if (!path)
            dir->failed = true;
        if (status == LP_OK && state != LP_SEG_CREATING && lp__segment_belongs(fd, &head->id, &dir->id)) {
            lp_source *source = add_source(dir, LP_SOURCE_SEGMENT, path);
            if (source) {
                fill_head(dir, source, head);
                source->living = lp_segment_is_living(fd);
                if (source->living)
                    source->written_ns = lp_clock_ns(CLOCK_REALTIME);
            }
        } else if (status == LP_E_DAMAGED || status == LP_E_VERSION || status == LP_E_LIMIT) {
            /* does it belong here at all? the header alone may still say so */
            lp_seg_header header;
            lp_folder_id was;
            size_t got;
            if (lp__read_at(fd, &header, sizeof header, 0, &got) && got == sizeof header &&
                (was = lp__segment_run_dir(&header), lp_folder_is(&was, &dir->id)))
                add_problem(dir, LP_SOURCE_SEGMENT, path, &error);
        }
        lp_worker_free(head);
        close(fd);
    }
    if (list)
        closedir(list);
    return !dir->failed;
}

/* ---- one worker, one source */

static int by_uuid(const void *a, const void *b)
{
    const lp_source *x = a, *y = b;
    size_t shorter = x->uuid.size < y->uuid.size ? x->uuid.size : y->uuid.size;
    int order = shorter ? memcmp(x->uuid.data, y->uuid.data, shorter) : 0;

    if (order == 0 && x->uuid.size != y->uuid.size)
        order = x->uuid.size < y->uuid.size ? -1 : 1;
    if (order == 0 && x->kind != y->kind)
        order = x->kind == LP_SOURCE_SEGMENT ? -1 : 1; /* it knows more than any snapshot made of it */
    if (order == 0 && x->written_ns != y->written_ns)
        order = x->written_ns > y->written_ns ? -1 : 1;
    return order ? order : strcmp(x->path, y->path);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const lp_source *)a)->path, ((const lp_source *)b)->path);
}

static void settle_sources(lp_rundir *dir)
{
    size_t kept = 0;

    if (dir->count == 0)
        return;
    qsort(dir->sources, dir->count, sizeof *dir->sources, by_uuid);
    for (size_t i = 0; i < dir->count; i++) {
        const lp_source *s = &dir->sources[i];
        bool again = kept > 0 && s->uuid.size && lp__str_equal(dir->sources[kept - 1].uuid, s->uuid);
        if (!again)
            dir->sources[kept++] = *s;
    }
    dir->count = kept;
    qsort(dir->sources, dir->count, sizeof *dir->sources, by_path);
}

lp_status lp_rundir_open(const char *path, lp_rundir_options options, lp_rundir **dir, lp_error *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lp_status status = LP_OK;

    if (fd < 0)
        return lp__fail_sys(error, errno, path, "open");
    lp_rundir *made = calloc(1, sizeof *made);
    if (made) {
        made->workers = -1;
        made->cache = options.cache;
        made->arena = lp_arena_new();
    }
    if (!made || !made->arena || !(made->path = plain_path(made->arena, path))) {
        status = lp__fail(error, LP_E_MEMORY, path, UINT64_MAX, "out of memory");
        goto done;
    }
    lp_folder_look(fd, "", &made->id);
    if (options.segments && options.adopt)
        lp_place_settle(path, NULL, SETTLE_MS, NULL); /* what cannot be adopted is still read where it lies */
    if (options.segments)
        lp__each_folder(NULL, list_segments, made);
    made->workers = open_folder(made, fd, "workers", "");
    list_snapshots(made);
    settle_sources(made);
    if (options.cache)
        lp__cache_sweep(options.cache);
    if (made->failed)
        status = lp__fail(error, LP_E_MEMORY, path, UINT64_MAX, "out of memory");

done:
    close(fd);
    if (made) {
        free(made->files);
        made->files = NULL;
    }
    if (status == LP_OK)
        *dir = made;
    else
        lp_rundir_close(made);
    return status;
}

void lp_rundir_close(lp_rundir *dir)
{
    if (!dir)
        return;
    if (dir->workers >= 0)
        close(dir->workers);
    free(dir->sources);
    lp_arena_free(dir->arena);
    free(dir);
}

const lp_source *lp_rundir_sources(const lp_rundir *dir, size_t *count)
{
    *count = dir->count;
    return dir->sources;
}

/* ---- reading */

static lp_status read_segment(const char *path, lp_worker **worker, lp_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return lp__fail_sys(error, errno, path, "open");
    lp_status status = lp_segment_read_fd(fd, path, worker, error);
    close(fd);
    return status;
}

/* What was listed is gone: its process has written a newer snapshot meanwhile, or ended. Reads the newest there is. */
static lp_status read_successor(const lp_rundir *dir, const lp_source *source, lp_worker **worker, lp_error *error)
{
    lp_identity id = {.run_id = source->run_id, .uuid = source->uuid, .pid = source->pid};
    char host[129], stem[200], name[256] = "", relative[400];
    file best = {0};
    int workers = dir->workers >= 0 ? openat(dir->workers, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    lp_status status = LP_E_MISSING;

    if (workers < 0) { /* it did not exist when the directory was listed */
        const char *path = format_path(dir->arena, dir->path, "workers", "", "");
        workers = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    }
    lp__safe_name(host, sizeof host, source->host);
    lp__snapshot_stem(stem, sizeof stem, &id);
    find_newest(workers, host, stem, strlen(stem), &best, name, sizeof name);
    const char *path = name[0] ? format_path(dir->arena, dir->path, "workers", host, name) : NULL;
    if (path && snprintf(relative, sizeof relative, "%s/%s", host, name) < (int)sizeof relative)
        status = read_snapshot(workers, relative, path, worker, error);
    if (workers >= 0)
        close(workers);
    return status;
}

lp_status lp_rundir_read(const lp_rundir *dir, size_t index, lp_worker **worker, lp_error *error)
{
    if (index >= dir->count)
        return lp_error_set(error, LP_E_ARGUMENT, 0, UINT64_MAX, "%s: no source of that number", dir->path);
    const lp_source *source = &dir->sources[index];
    lp_error first, second;
    lp_status status;

    if (source->status != LP_OK)
        return lp_error_set(error, source->status, 0, UINT64_MAX, "%s", source->problem);
    if (source->kind == LP_SOURCE_SEGMENT)
        status = read_segment(source->path, worker, &first);
    else
        status = read_snapshot(dir->workers, source->path + strlen(dir->path) + sizeof "/workers", source->path, worker,
                               &first);
    if (status == LP_E_MISSING || (status != LP_OK && source->kind == LP_SOURCE_SEGMENT)) {
        lp_status again = LP_E_MISSING;
        /* replaced once more between our look and our open: look again */
        for (int i = 0; i < 4 && again == LP_E_MISSING; i++)
            again = read_successor(dir, source, worker, &second);
        if (again != LP_E_MISSING && status == LP_E_MISSING)
            first = second;
        if (again == LP_OK || (again != LP_E_MISSING && status == LP_E_MISSING))
            status = again;
    }
    if (status != LP_OK && error)
        *error = first;
    return status;
}
