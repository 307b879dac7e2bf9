/* The start of a segment: who wrote it, and does that process still live? */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "store/describe.h"
#include "store/files.h"
#include "store/segment.h"
#include "store/segment_image.h"
#include "store/segment_read.h"
#include "store/snapshot.h"

/* Finds the block of the identity; it is among the first. */
static lp_status find_identity(const lp__image *image, const lp_seg_header *header, uint64_t *offset, uint64_t *size,
                               lp_error *error)
{
    uint64_t at = header->header_size, length;
    lp_seg_block block;

    for (int i = 0; i < 16 && at + sizeof block + sizeof length <= header->used; i++) {
        size_t got = 0;
        if (image->fd >= 0) {
            if (!lp__read_at(image->fd, &block, sizeof block, at, &got))
                return lp__fail_sys(error, errno, image->name, "read");
        } else if (at + sizeof block <= image->memory_size) {
            memcpy(&block, image->memory + at, got = sizeof block);
        }
        if (got < sizeof block || block.kind == LP_BLOCK_NONE)
            break;
        if (block.size < sizeof block + sizeof length || block.size % 64 != 0 || block.size > header->used - at)
            return lp__fail(error, LP_E_DAMAGED, image->name, at, "a block is larger than the segment");
        if (block.kind == LP_BLOCK_IDENTITY) {
            *offset = at + sizeof block;
            *size = block.size - sizeof block;
            return LP_OK;
        }
        at += block.size;
    }
    return lp__fail(error, LP_E_DAMAGED, image->name, at, "has no identity");
}

lp_status lp__segment_identity(const lp__image *image, const lp_seg_header *header, lp_worker *worker, lp_error *error)
{
    uint64_t at = 0, room = 0, length;
    unsigned char *copy = NULL;
    size_t got = 0;
    lp_status status = find_identity(image, header, &at, &room, error);

    if (status != LP_OK)
        return status;
    copy = malloc(room);
    if (!copy)
        return lp__fail(error, LP_E_MEMORY, image->name, UINT64_MAX, "out of memory");
    if (image->fd >= 0) {
        if (!lp__read_at(image->fd, copy, room, at, &got))
            got = 0;
    } else if (at + room <= image->memory_size) {
        memcpy(copy, image->memory + at, got = room);
    }
    memcpy(&length, copy, sizeof length);
    if (got < room || length > room - sizeof length) {
        status = lp__fail(error, LP_E_DAMAGED, image->name, at, "the identity is longer than its block");
    } else {
        lp_error inner;
        status = lp_identity_decode(copy + sizeof length, length, worker->arena, &worker->id, &inner);
        if (status != LP_OK)
            status = lp__fail(error, status == LP_E_MEMORY ? status : LP_E_DAMAGED, image->name, at,
                              "the identity is damaged");
    }
    free(copy);
    return status;
}

lp_status lp__segment_head(int fd, const char *name, lp_worker **worker, uint32_t *state, lp_error *error)
{
    lp__image image = {.fd = fd, .name = name};
    lp_seg_header header;
    lp_status status = lp__image_header(&image, &header, error);

    if (status != LP_OK)
        return status;
    lp_worker *made = lp_worker_new();
    if (!made)
        return lp__fail(error, LP_E_MEMORY, name, UINT64_MAX, "out of memory");
    if (header.state != LP_SEG_CREATING)
        status = lp__segment_identity(&image, &header, made, error);
    if (status != LP_OK) {
        lp_worker_free(made);
        return status;
    }
    /* the header's are the ones that liveness and adoption go by */
    made->id.pid = header.pid;
    made->id.pid_start = header.pid_start;
    made->id.run_dir_dev = header.run_dir_dev;
    made->id.run_dir_ino = header.run_dir_ino;
    made->id.run_dir_born_ns = header.run_dir_born_ns;
    made->generation = header.generation;
    made->written_ns = header.clock.last_done == header.clock.last_begun ? header.clock.last.real_ns : 0;
    if (made->written_ns < header.started_ns)
        made->written_ns = header.started_ns;
    *state = header.state;
    *worker = made;
    return LP_OK;
}

lp_folder_id lp__segment_run_dir(const lp_seg_header *header)
{
    return (lp_folder_id){header->run_dir_dev, header->run_dir_ino, header->run_dir_born_ns};
}

bool lp__segment_belongs(int fd, const lp_identity *id, const lp_folder_id *run_dir)
{
    lp_folder_id folder = {id->run_dir_dev, id->run_dir_ino, id->run_dir_born_ns};
    lp_seg_header header;
    struct stat st;
    size_t got;

    if (id->run_dir_ino != 0)
        return lp_folder_is(&folder, run_dir);
    return lp__read_at(fd, &header, sizeof header, 0, &got) && got == sizeof header && header.run_dir[0] == '/' &&
           memchr(header.run_dir, 0, sizeof header.run_dir) && stat("/proc/self/ns/mnt", &st) == 0 &&
           (uint64_t)st.st_ino == id->mnt_ns && lp_folder_look(AT_FDCWD, header.run_dir, &folder) &&
           lp_folder_is(&folder, run_dir);
}

/* Is there a process `pid` of this start time? Unknown (another pid namespace, a file of /proc that cannot be opened just now) counts
 * as yes: the lock has said so before, and what is taken from a living process is lost. In another time namespace the kernel
 * shows start times moved by that one's offset. */
static bool has_process(const lp_identity *id, uint64_t time_ns)
{
    struct stat st;

    if (id->pid <= 0 || id->pid_ns == 0 || stat("/proc/self/ns/pid", &st) != 0 || (uint64_t)st.st_ino != id->pid_ns)
        return true;
    int64_t start = lp_describe_pid_start(id->pid);
    bool comparable = stat("/proc/self/ns/time", &st) != 0 || time_ns == 0 || (uint64_t)st.st_ino == time_ns;
    if (start == LP_UNKNOWN_I64)
        return !lp_describe_pid_is_gone(id->pid);
    return id->pid_start <= 0 || start == id->pid_start || !comparable;
}

bool lp__segment_has_owner(int fd)
{
    lp__image image = {.fd = fd, .name = ""};
    int saved = errno;
    bool owner = true;
    lp_seg_header header;
    lp_worker *worker = NULL;
    uint32_t state;

    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        flock(fd, LOCK_UN);
        owner = false;
    } else if (lp__image_header(&image, &header, NULL) == LP_OK &&
               lp__segment_head(fd, "", &worker, &state, NULL) == LP_OK) {
        owner = has_process(&worker->id, header.time_ns);
    }
    lp_worker_free(worker);
    errno = saved;
    return owner;
}

lp_status lp__segment_look(int fd, const char *name, lp_worker **worker, uint32_t *state, bool *owner, lp_error *error)
{
    lp_status status = lp__segment_head(fd, name, worker, state, error);

    if (status != LP_OK || *state != LP_SEG_CREATING)
        return status;
    *owner = lp__segment_has_owner(fd);
    if (*owner)
        return status;
    lp_worker_free(*worker);
    *worker = NULL;
    return lp__segment_head(fd, name, worker, state, error);
}

bool lp_segment_is_living(int fd)
{
    lp__image image = {.fd = fd, .name = ""};
    lp_seg_header header;
    int saved = errno;
    bool living = lp__image_header(&image, &header, NULL) == LP_OK && header.state == LP_SEG_RECORDING &&
                  lp__segment_has_owner(fd);

    errno = saved;
    return living;
}
