/* What the readers of segments share: liveness and heads. Layout: core/layout.h. */
#ifndef LP_STORE_SEGMENT_H
#define LP_STORE_SEGMENT_H

#include <sys/types.h>

#include "core/layout.h"
#include "store/folder_id.h"
#include "store/model.h"
#include "store/segment_image.h"
#include "store/track.h"

/* true: the process that made it holds its lock, or cannot be shown to be gone. The open file must not carry a lock of
 * the caller's: testing would drop it. */
bool lp__segment_has_owner(int fd);
/* As lp_segment_read_fd, with the caller's word on whether anybody still stores into it, and with how this host's clocks went (NULL:
 * not known). */
lp_status lp__segment_read(int fd, const char *name, bool living, const lp_track *track, lp_worker **worker,
                           lp_error *error);
/* The present on the segment's clock; false where this process cannot tell (another kind of clock). */
bool lp__segment_now(const lp_seg_clock *clock, lp_moment *now);
/* Header and identity alone: id, generation, written_ns. *state is an lp_seg_state; while CREATING the identity is
 * empty. */
lp_status lp__segment_head(int fd, const char *name, lp_worker **worker, uint32_t *state, lp_error *error);
/* As lp__segment_head. If *state is CREATING, *owner says whether a process may still begin to record: if there is none, nothing was
 * recorded and never will be. That takes a second look after the process was seen to be gone: between the first and its death it
 * may have begun, and recorded all it had to. */
lp_status lp__segment_look(int fd, const char *name, lp_worker **worker, uint32_t *state, bool *owner, lp_error *error);
/* Decodes the identity block of the image's source into worker->id. */
lp_status lp__segment_identity(const lp__image *image, const lp_seg_header *header, lp_worker *worker, lp_error *error);
/* Is it of that run directory? One whose directory was not there when its process began goes by its path. */
bool lp__segment_belongs(int fd, const lp_identity *id, const lp_folder_id *run_dir);
/* The run directory that a segment was recorded into. */
lp_folder_id lp__segment_run_dir(const lp_seg_header *header);
/* Only one process at a time looks at a segment with the intent to remove it: an open-file-description lock, until `fd` is
 * closed. false: another does. */
bool lp__segment_claim(int fd);
/* Still the file of that name? */
bool lp__segment_is_still(int dirfd, const char *name, dev_t dev, ino_t ino);

#endif
