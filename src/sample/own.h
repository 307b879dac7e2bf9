/* What a process has used, read by itself. For the end of what it records: from outside nobody may come in time. */
#ifndef LP_SAMPLE_OWN_H
#define LP_SAMPLE_OWN_H

#include "core/layout.h"

/* Fills *use (zeros before) for this process, whose start time is `start`; as far as it can be read. Some ten system calls. Keeps errno. */
void lp_own_use(int64_t start, lp_seg_use *use);

#endif
