#include "collector/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/files.h"
#include "store/segment.h"
#include "store/snapshot.h"

#define FEW 4u /* deaths at once, up to which each file is synced alone; more share one sync of the file system */
#define BUSY_NS 20000000u   /* until we look again at what another process is adopting */
#define RETRY_NS 100000000u /* after the first failure; doubles */
#define RETRY_MAX_NS 30000000000u

void lp__write_learn(lp__writer *writer)
{
    if (!writer->facts.commit[0])
        lp_source_facts_read(writer->watch->folder, &writer->facts);
}

/* The run directory by its descriptor, so that it may be moved. A removed one is looked for once more under its name: the program
 * may have made it anew. */
static const char *run_directory(lp__watch *watch)
{
    struct stat st;

    if (fstat(watch->run, &st) == 0 && st.st_nlink == 0) {
        int again = open(watch->run_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (again >= 0) {
            dup3(again, watch->run, O_CLOEXEC);
            close(again);
        }
    }
    return access(watch->run_text, F_OK) == 0 ? watch->run_text : watch->run_path; /* no /proc */
}

static bool read_header(const lp__watched *w, lp_seg_header *header)
{
    size_t got;
    return lp__read_at(w->fd, header, sizeof *header, 0, &got) && got == sizeof *header;
}

/* Folder of a worker's snapshots, -1; `stem` of their names. */
static int open_host(lp__watch *watch, const lp_identity *id, char *stem, size_t room)
{
    char host[129], path[160];

    lp__safe_name(host, sizeof host, id->host);
    lp__snapshot_stem(stem, room, id);
    snprintf(path, sizeof path, "workers/%s", host);
    return openat(watch->run, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool has_snapshot(lp__watch *watch, const lp_identity *id, uint32_t generation)
{
    char stem[128], name[192];
    struct stat st;
    int folder = open_host(watch, id, stem, sizeof stem);

    snprintf(name, sizeof name, "%s.%u.snap", stem, (unsigned)generation);
    bool there = folder >= 0 && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (folder >= 0)
        close(folder);
    return there;
}

/* Our snapshot of the living process, written while it wrote its final one: readers take the final, and need no other. */
static void remove_living(lp__watch *watch, lp__watched *w, const lp_identity *id)
{
    char stem[128], name[192];

    if (!w->living)
        return;
    int folder = open_host(watch, id, stem, sizeof stem);
    snprintf(name, sizeof name, "%s.%u.snap", stem, (unsigned)w->living);
    if (folder >= 0) {
        unlinkat(folder, name, 0);
        close(folder);
    }
    w->living = 0;
}

static void failed(lp__watched *w)
{
    uint64_t pause = RETRY_NS;

    for (uint32_t i = 0; i < w->failures && pause < RETRY_MAX_NS; i++)
        pause *= 2;
    w->failures++;
    w->failed++;
    w->retry_ns = lp__now_ns() + (pause < RETRY_MAX_NS ? pause : RETRY_MAX_NS);
}

static void complete(lp__writer *writer, const lp__watched *w, lp_worker *worker)
{
    lp_source_facts_apply(&writer->facts, worker->arena, &worker->id);
    worker->health.write_failures += w->failed;
}

/* ---- the living */

/* A hash of everything but the header: it changes whenever something is recorded, and a process that idles costs its reading. */
static bool hash_content(const lp__watched *w, const lp_seg_header *header, uint64_t *hash)
{
    static uint64_t words[8192];
    uint64_t h = header->used;
    size_t got;

    for (uint64_t at = header->header_size; at < header->used; at += got) {
        uint64_t left = header->used - at;
        if (!lp__read_at(w->fd, words, left < sizeof words ? left : sizeof words, at, &got) || got == 0)
            return false;
        for (size_t i = 0; i < got / sizeof *words; i++)
            h = (h ^ words[i]) * 0x9e3779b97f4a7c15u + (h >> 29);
    }
    *hash = h;
    return true;
}

static void write_living(lp__writer *writer, lp__watched *w, bool anyway)
{
    lp_seg_header header;
    lp_worker *worker = NULL;
    uint32_t generation;
    uint64_t hash;
    size_t got;

    /* The generation first: a process that is not closing after that has not taken the number of its final snapshot yet, so ours is
     * not greater. Else ours would hide the final one, and remove it as older. */
    if (!lp__read_at(w->fd, &generation, sizeof generation, offsetof(lp_seg_header, generation), &got) ||
        got != sizeof generation)
        return;
    generation++;
    if (!read_header(w, &header) || header.closing || header.state != LP_SEG_RECORDING || header.used > LP__FILE_MAX ||
        !hash_content(w, &header, &hash) || (hash == w->content && !anyway))
        return;
    if (lp__segment_read(w->fd, w->name, true, &worker, NULL) != LP_OK)
        return;
    /* The number is in the segment before the file has its name, so that what the process writes later is greater. Both may take the
     * same at once: then the process's final file beats ours. */
    worker->generation = generation;
    complete(writer, w, worker);
    bool ok = pwrite(w->fd, &generation, sizeof generation, offsetof(lp_seg_header, generation)) == sizeof generation &&
              lp_snapshot_write(run_directory(writer->watch), worker, false, NULL) == LP_OK;
    if (ok) {
        w->content = hash;
        w->living = generation;
        w->failures = 0;
        w->failed = 0;
        if (read_header(w, &header) && header.state == LP_SEG_CLOSED)
            remove_living(writer->watch, w, &worker->id);
    } else {
        failed(w);
    }
    lp_worker_free(worker);
}

void lp__write_living(lp__writer *writer, bool all)
{
    uint64_t now = lp__now_ns();

    lp__write_learn(writer);
    for (lp__watched *w = writer->watch->list; w; w = w->next) {
        if (w->fd < 0 || w->dead || (!all && (now < w->due_ns || now < w->retry_ns)))
            continue;
        write_living(writer, w, all);
        if (w->snapshot_ns) {
            /* In step with the beginning, without making up for what was missed. */
            w->due_ns += w->snapshot_ns;
            if (w->due_ns <= now)
                w->due_ns = now + w->snapshot_ns;
        }
    }
    if (all)
        syncfs(writer->watch->run);
}

/* ---- the dead */

static void unclaim(int fd)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(fd, F_OFD_SETLK, &lock);
}

/* true: nothing is to be written (any more). */
static bool is_settled(lp__watch *watch, lp__watched *w, const lp_worker *head, uint32_t state)
{
    if (!w->gone)
        return false;
    if (state == LP_SEG_CLOSED) {
        remove_living(watch, w, &head->id);
        return true;
    }
    /* The name went without a close: an adopter has written the snapshot, or somebody has emptied the folder. */
    return has_snapshot(watch, &head->id, head->generation + 1);
}

typedef enum verdict { OVER, WRITTEN, LATER, BROKEN } verdict;

static verdict bury(lp__writer *writer, lp__watched *w, bool sync)
{
    lp__watch *watch = writer->watch;
    lp_worker *head = NULL, *worker = NULL;
    uint32_t state;
    verdict result = BROKEN;

    if (lp__segment_head(w->fd, w->name, &head, &state, NULL) != LP_OK)
        return BROKEN;
    if (!lp__segment_claim(w->fd)) {
        w->retry_ns = lp__now_ns() + BUSY_NS;
        result = LATER;
        goto done;
    }
    w->gone = !lp__segment_is_still(watch->folder, w->name, w->dev, w->ino);
    if (is_settled(watch, w, head, state)) {
        result = OVER;
        goto done;
    }
    lp_status status = lp__segment_read(w->fd, w->name, false, &worker, NULL);
    if (status == LP_OK) {
        worker->generation++;
        complete(writer, w, worker);
        status = lp_snapshot_write(run_directory(watch), worker, sync, NULL);
        if (status == LP_OK) {
            remove_living(watch, w, &worker->id);
            result = WRITTEN;
        }
    }
    if (status != LP_OK && status != LP_E_DAMAGED && status != LP_E_TRUNCATED && status != LP_E_FOREIGN) {
        failed(w);
        unclaim(w->fd);
        result = LATER;
    }
    lp_worker_free(worker);

done:
    lp_worker_free(head);
    return result;
}

/* A damaged one is a reader's to name: it stays, and is looked at no more. */
static void give_up(lp__watch *watch, lp__watched *w)
{
    lp__watch_forget_process(watch, w);
    close(w->fd);
    w->fd = -1;
    watch->count--;
}

bool lp__write_dead(lp__writer *writer, bool look)
{
    lp__watch *watch = writer->watch;
    uint64_t now = lp__now_ns();
    unsigned dead = 0;

    lp__write_learn(writer);
    for (lp__watched *w = watch->list; w; w = w->next) {
        w->written = false;
        w->leaving = w->fd >= 0 && now >= w->retry_ns && (look || w->dead || w->gone) && lp__watch_is_dead(w);
        dead += w->leaving;
    }
    unsigned written = 0;
    for (lp__watched *w = watch->list, *next; w; w = next) {
        next = w->next;
        if (!w->leaving)
            continue;
        switch (bury(writer, w, dead <= FEW)) {
        case WRITTEN:
            w->written = true;
            written++;
            break;
        case OVER: lp__watch_drop(watch, w); break;
        case BROKEN: give_up(watch, w); break;
        case LATER: break;
        }
    }
    bool safe = written == 0 || dead <= FEW || syncfs(watch->run) == 0;
    for (lp__watched *w = watch->list, *next; w; w = next) {
        next = w->next;
        if (!w->written)
            continue;
        if (!safe) {
            failed(w);
            unclaim(w->fd);
            continue;
        }
        if (lp__segment_is_still(watch->folder, w->name, w->dev, w->ino))
            unlinkat(watch->folder, w->name, 0);
        lp__watch_drop(watch, w);
    }
    return dead > 0;
}
