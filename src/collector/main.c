/* lineprofiler-collector: the process beside a run. Started by the recorded processes (src/collector/start.c), not by users.
 *
 *   lineprofiler-collector [--locked] FOLDER RUN_DIR [SOURCE]
 *
 * FOLDER of the run's segments, RUN_DIR for snapshots, SOURCE the directory that git is asked about. --locked: descriptor 3 is
 * the elected file, and locked. TERM, HUP and INT: write everything now. Ends by itself when no recorded process lives. */
#include <malloc.h>
#include <stdbool.h>
#include <string.h>

#include "collector/loop.h"
#include "collector/reset.h"

int main(int argc, char **argv)
{
    bool locked = argc > 1 && strcmp(argv[1], "--locked") == 0;
    int first = locked ? 2 : 1;

    if (argc < first + 2 || argc > first + 3)
        return 2;
    lp__collector_reset(locked ? 3 : -1);
#ifdef __GLIBC__
    /* Reading a large segment must not leave a large heap; one of ordinary size must not be paid for with fresh pages each time. */
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 512 << 10);
#endif
    lp__collector_task task = {.folder = argv[first],
                               .run_dir = argv[first + 1],
                               .source = argc > first + 2 ? argv[first + 2] : "",
                               .lock = locked ? 3 : -1};
    return lp__collector_run(&task);
}
