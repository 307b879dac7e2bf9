/* Snapshot files: the complete state of one worker in protobuf wire format (proto/lineprofiler.proto), closed by
 * a CRC. Nothing here loads a library; any bytes may be given to the readers. */
#ifndef LP_STORE_SNAPSHOT_H
#define LP_STORE_SNAPSHOT_H

#include "store/model.h"

typedef struct lp_buffer { /* growing bytes */
    unsigned char *data;   /* owned; free with lp_buffer_free */
    size_t size, capacity;
    bool failed;   /* out of memory: sticky, further appends do nothing */
    bool borrowed; /* data is the caller's, until it is too small */
} lp_buffer;
void lp_buffer_free(lp_buffer *buffer);

/* Identity message alone (the payload of a segment's IDENTITY block) and the whole Snapshot file. */
lp_status lp_identity_encode(const lp_identity *id, lp_buffer *out);
lp_status lp_identity_decode(const void *data, size_t size, lp_arena *arena, lp_identity *id, lp_error *error);
lp_status lp_snapshot_encode(const lp_worker *worker, lp_buffer *out);
/* `name` is put before error texts. *worker is owned by the caller on LP_OK. */
lp_status lp_snapshot_decode(const void *data, size_t size, const char *name, lp_worker **worker, lp_error *error);
/* Only whether it is a whole snapshot of a known version: its start and its checksum. */
lp_status lp_snapshot_check(const void *data, size_t size, const char *name, lp_error *error);
/* Only the identity and the fields before the tree, from the first `size` bytes of a file. LP_E_TRUNCATED: give more.
 * The checksum is not looked at. */
lp_status lp_snapshot_head(const void *data, size_t size, const char *name, lp_worker **worker, lp_error *error);

/* Makes <run_dir>/workers/<host>/w_<run>_<pid>_<uuid8>.<generation>.snap, or ….<generation>.final.snap, with the
 * folders that are missing. Writes to a temporary name in the same folder, renames, removes older generations (three
 * back at most: readers take the highest anyway). `sync`: fsync of file and folder. On failure nothing is left and the
 * older file stands. For use inside the user's program: keeps errno, signal mask and cancellation, survives
 * RLIMIT_FSIZE. Any thread. */
lp_status lp_snapshot_write(const char *run_dir, const lp_worker *worker, bool sync, lp_error *error);
/* The same in two steps, for many files: the folder <run_dir>/workers/<host>, -1: errno; a file in it, `shown` in error texts. The
 * caller has blocked SIGXFSZ, and errno is not kept. */
int lp_snapshot_folder(const char *run_dir, lp_str host);
lp_status lp_snapshot_put(int folder, const char *shown, const lp_worker *worker, bool sync, lp_error *error);
/* Removes half-written files of this user whose writer was killed: older than ten minutes, and nobody holds their lock. Best
 * effort: where files cannot be locked they stay. Keeps errno. */
void lp_snapshot_tidy(const char *run_dir);

#endif
