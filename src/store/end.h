/* How a process ended, as far as somebody who is not its parent can know.
 *
 * A zombie shows its status in /proc/<pid>/stat (field 52) to whoever might trace it. Once its parent has waited for it, only a
 * pidfd that was opened before still tells, from Linux 6.15 on (PIDFD_GET_INFO with PIDFD_INFO_EXIT). Nothing else does. */
#ifndef LP_STORE_END_H
#define LP_STORE_END_H

#include "store/model.h"

/* `pidfd` of the process, -1 none. The pid must mean here what it means to the process. errno is kept. */
lp_end lp_end_look(int64_t pid, int64_t start, int pidfd);
/* The process is on its way out, and will be gone or a zombie in a moment: its memory goes before its pidfd speaks. */
bool lp_end_is_near(int64_t pid, int64_t start);

/* A word of the segment's header (lp_seg_header.end): 0, nobody has looked. */
uint64_t lp_end_pack(lp_end end);
lp_end lp_end_unpack(uint64_t word);
/* Of a dead process whose segment says nothing yet. id: of the segment, with its namespaces; time_ns: the header's. */
lp_end lp_end_of(const lp_identity *id, uint64_t time_ns);

#endif
