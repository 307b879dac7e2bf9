/* Paths that are no run directory: what is wrong with them, and which one may have been meant. */
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cli/options.h"
#include "store/rundir.h"

int lp__cli_no_run(const lp_cli_io *io, const char *path)
{
    struct stat found;
    lp_cli_near near;
    const char *shown = path[0] ? path : "\"\"";
    const char *what = stat(path, &found) != 0  ? "no such directory"
                       : S_ISDIR(found.st_mode) ? "no worker files in workers/<host>/ and no running process"
                                                : "is no directory";

    return lp__cli_near_of(path, near) ? lp__cli_fail(io, "%s: %s; %s", shown, what, near)
                                       : lp__cli_fail(io, "%s: %s", shown, what);
}

bool lp__cli_near_of(const char *path, lp_cli_near near)
{
    char first[PATH_MAX];
    uint32_t count = lp_rundir_near(path, first, sizeof first);

    if (count == 1)
        snprintf(near, sizeof(lp_cli_near), "%s is a run directory", first);
    else if (count > 1)
        snprintf(near, sizeof(lp_cli_near), "%s and %u more are run directories", first, count - 1);
    return count > 0;
}
