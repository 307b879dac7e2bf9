#include "collector/write.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/files.h"
#include "store/place.h"
#include "store/segment.h"
#include "store/snapshot.h"

#define FEW 4u /* deaths at once, up to which each file is synced alone; more share one sync of the file system */

/* The run directory by its descriptor, so that it may be moved. A removed one is looked for once more under its name: the program
 * may have made it anew. Otherwise the snapshot makes it, as the program's own would: no reader could tell any more whose the
 * segments of a directory are that is not there. */
static const char *run_directory(lp__writer *writer)
{
    struct stat st;

    if (fstat(writer->run, &st) == 0 && st.st_nlink == 0) {
        int again = open(writer->run_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (again >= 0) {
            dup3(again, writer->run, O_CLOEXEC);
            close(again);
        } else if (errno == ENOENT) {
            return writer->run_path;
        }
    }
    return access(writer->run_text, F_OK) == 0 ? writer->run_text : writer->run_path; /* no /proc */
}

static bool read_header(const lp__order *o, lp_seg_header *header)
{
    size_t got;
    return lp__read_at(o->fd, header, sizeof *header, 0, &got) && got == sizeof *header;
}

/* Folder of a worker's snapshots, -1; `stem` of their names. */
static int open_host(const lp__writer *writer, const lp_identity *id, char *stem, size_t room)
{
    char host[129], path[160];

    lp__safe_name(host, sizeof host, id->host);
    lp__snapshot_stem(stem, room, id);
    snprintf(path, sizeof path, "workers/%s", host);
    return openat(writer->run, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Where this host's snapshots go, kept open for the others of the batch. -1: errno. */
static int snapshot_folder(lp__writer *writer, const lp_identity *id)
{
    char host[sizeof writer->host_name];

    lp__safe_name(host, sizeof host, id->host);
    if (writer->host >= 0 && strcmp(host, writer->host_name) == 0)
        return writer->host;
    if (writer->host >= 0)
        close(writer->host);
    writer->host = lp_snapshot_folder(run_directory(writer), id->host);
    memcpy(writer->host_name, host, sizeof host);
    return writer->host;
}

static bool put_snapshot(lp__writer *writer, const lp_worker *worker, bool sync)
{
    int folder = snapshot_folder(writer, &worker->id);
    return folder >= 0 && lp_snapshot_put(folder, "", worker, sync, NULL) == LP_OK;
}

static bool has_snapshot(const lp__writer *writer, const lp_identity *id, uint32_t generation, bool final)
{
    char stem[128], name[192];
    struct stat st;
    int folder = open_host(writer, id, stem, sizeof stem);

    snprintf(name, sizeof name, "%s.%u%s.snap", stem, (unsigned)generation, final ? ".final" : "");
    bool there = folder >= 0 && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (folder >= 0)
        close(folder);
    return there;
}

/* Our snapshot of the living process, written while it wrote its final one: readers take the final, and need no other. */
static void remove_living(const lp__writer *writer, lp__order *o, const lp_identity *id)
{
    char stem[128], name[192];

    if (!o->living)
        return;
    int folder = open_host(writer, id, stem, sizeof stem);
    if (folder >= 0) {
        snprintf(name, sizeof name, "%s.%u.snap", stem, (unsigned)o->living);
        unlinkat(folder, name, 0);
        close(folder);
    }
    o->living = 0;
}

static void complete(const lp__order *o, const lp_source_facts *facts, lp_worker *worker)
{
    lp_source_facts_apply(facts, worker->arena, &worker->id);
    worker->health.write_failures += o->failed;
}

/* ---- the living */

/* A hash of everything but the header: it changes whenever something is recorded, and a process that idles costs its reading. */
static bool hash_content(const lp__order *o, const lp_seg_header *header, uint64_t *hash)
{
    static uint64_t words[8192];
    uint64_t h = header->used;
    size_t got;

    for (uint64_t at = header->header_size; at < header->used; at += got) {
        uint64_t left = header->used - at;
        if (!lp__read_at(o->fd, words, left < sizeof words ? left : sizeof words, at, &got) || got == 0)
            return false;
        for (size_t i = 0; i < got / sizeof *words; i++)
            h = (h ^ words[i]) * 0x9e3779b97f4a7c15u + (h >> 29);
    }
    *hash = h;
    return true;
}

static lp__outcome write_living(lp__writer *writer, lp__order *o, const lp__batch *batch)
{
    lp_seg_header header;
    lp_worker *worker = NULL;
    uint32_t generation;
    uint64_t hash;
    size_t got;

    /* The generation first: a process that is not closing after that has not taken the number of its final snapshot yet, so ours is
     * not greater. Else ours would hide the final one, and remove it as older. */
    if (!lp__read_at(o->fd, &generation, sizeof generation, offsetof(lp_seg_header, generation), &got) ||
        got != sizeof generation)
        return LP__UNCHANGED;
    generation++;
    if (!read_header(o, &header) || header.closing || header.state != LP_SEG_RECORDING || header.used > LP__FILE_MAX ||
        !hash_content(o, &header, &hash))
        return LP__UNCHANGED;
    o->same = hash == o->content;
    if (o->same && !o->anyway)
        return LP__UNCHANGED;
    if (lp__segment_read(o->fd, o->name, true, &batch->track, &worker, NULL) != LP_OK)
        return LP__UNCHANGED;
    /* The number is in the segment before the file has its name, so that what the process writes later is greater. Both may take the
     * same at once: then the process's final file beats ours. */
    worker->generation = generation;
    complete(o, &batch->facts, worker);
    bool ok = pwrite(o->fd, &generation, sizeof generation, offsetof(lp_seg_header, generation)) == sizeof generation &&
              put_snapshot(writer, worker, false);
    if (ok) {
        o->content = hash;
        o->living = generation;
        if (read_header(o, &header) && header.state == LP_SEG_CLOSED &&
            has_snapshot(writer, &worker->id, header.generation, true))
            remove_living(writer, o, &worker->id);
    }
    lp_worker_free(worker);
    return ok ? LP__WRITTEN : LP__REFUSED;
}

/* ---- the dead */

static void unclaim(int fd)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(fd, F_OFD_SETLK, &lock);
}

/* true: nothing is to be written (any more). */
static bool is_settled(lp__writer *writer, lp__order *o, const lp_worker *head, uint32_t state)
{
    if (lp__segment_is_still(writer->folder, o->name, o->dev, o->ino))
        return false;
    if (state == LP_SEG_CLOSED) {
        if (has_snapshot(writer, &head->id, head->generation,
                         true)) /* here, not where another directory stands by now */
            remove_living(writer, o, &head->id);
        return true;
    }
    /* The name went without a close: an adopter has written the snapshot, or somebody has emptied the folder. */
    return has_snapshot(writer, &head->id, head->generation + 1, false);
}

static lp__outcome bury(lp__writer *writer, lp__order *o, const lp__batch *batch, bool sync)
{
    lp_worker *head = NULL, *worker = NULL;
    uint32_t state;
    lp__outcome result = LP__BROKEN;

    if (lp__segment_head(o->fd, o->name, &head, &state, NULL) != LP_OK)
        return LP__BROKEN;
    if (!lp__segment_claim(o->fd)) {
        result = LP__LATER;
        goto done;
    }
    if (is_settled(writer, o, head, state)) {
        result = LP__OVER;
        goto done;
    }
    lp_status status = lp__segment_read(o->fd, o->name, false, &batch->track, &worker, NULL);
    if (status == LP_OK) {
        worker->generation++;
        complete(o, &batch->facts, worker);
        if (put_snapshot(writer, worker, sync)) {
            remove_living(writer, o, &worker->id);
            result = LP__WRITTEN;
        } else {
            status = LP_E_IO;
        }
    }
    if (status != LP_OK && status != LP_E_DAMAGED && status != LP_E_TRUNCATED && status != LP_E_FOREIGN) {
        unclaim(o->fd);
        result = LP__REFUSED;
    }
    lp_worker_free(worker);

done:
    lp_worker_free(head);
    return result;
}

static void write_dead(lp__writer *writer, lp__batch *batch)
{
    unsigned dead = 0, written = 0;

    for (unsigned i = 0; i < batch->count; i++)
        dead += batch->orders[i].dead;
    for (unsigned i = 0; i < batch->count; i++) {
        lp__order *o = &batch->orders[i];
        if (!o->dead)
            continue;
        o->outcome = bury(writer, o, batch, dead <= FEW);
        written += o->outcome == LP__WRITTEN;
    }
    bool safe = written == 0 || dead <= FEW || syncfs(writer->run) == 0;
    for (unsigned i = 0; i < batch->count; i++) {
        lp__order *o = &batch->orders[i];
        if (!o->dead || o->outcome != LP__WRITTEN)
            continue;
        if (!safe) {
            unclaim(o->fd);
            o->outcome = LP__REFUSED;
        } else if (lp__segment_is_still(writer->folder, o->name, o->dev, o->ino)) {
            unlinkat(writer->folder, o->name, 0);
        }
    }
}

/* ---- samples */

static bool is_removed(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

static void append(lp__writer *writer, lp__append *a)
{
    a->lost = a->fd >= 0 && is_removed(a->fd);
    if (a->lost) {
        close(a->fd);
        a->fd = -1;
        a->ok = true;
        return;
    }
    if (a->fd < 0) {
        run_directory(writer);
        a->fd = lp_samples_create(writer->run, a->id, a->series, a->start);
    }
    a->ok = a->fd >= 0 && lp_samples_append(a->fd, a->bytes);
    if (a->fd >= 0 && a->close && a->ok) {
        close(a->fd);
        a->fd = -1;
    }
}

/* While files are written: one beyond RLIMIT_FSIZE gives an error and no signal. */
static void block_signal(sigset_t *before)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, before);
}

static void unblock_signal(const sigset_t *before)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

void lp__write_batch(lp__writer *writer, lp__batch *batch)
{
    sigset_t before;

    writer->host = -1;
    block_signal(&before);
    if (batch->adopt)
        lp_place_adopt_left(writer->run_text);
    write_dead(writer, batch);
    for (unsigned i = 0; i < batch->count; i++)
        if (!batch->orders[i].dead)
            batch->orders[i].outcome = write_living(writer, &batch->orders[i], batch);
    for (unsigned i = 0; i < batch->append_count; i++)
        append(writer, &batch->appends[i]);
    if (writer->host >= 0)
        close(writer->host);
    unblock_signal(&before);
    if (batch->sync)
        syncfs(writer->run);
}
