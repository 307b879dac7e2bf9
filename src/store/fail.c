/* Error lines of the store: one shape for all files. */
#include <errno.h>
#include <inttypes.h>

#include "store/internal.h"

#define NAME_SHOWN 160u /* of 256 bytes of lp_error.text */

/* The start of what is shown of a name, and a mark if something is left out before it. */
static const char *tail_of(const char *name, const char **mark)
{
    size_t size = strlen(name);
    *mark = "";
    if (size <= NAME_SHOWN)
        return name;
    name += size - NAME_SHOWN;
    while ((*name & 0xc0) == 0x80) /* not within a character */
        name++;
    *mark = "…";
    return name;
}

lp_status lp__fail(lp_error *error, lp_status status, const char *name, uint64_t offset, const char *what)
{
    const char *mark, *shown = tail_of(name, &mark);
    if (offset == UINT64_MAX)
        return lp_error_set(error, status, 0, offset, "%s%s: %s", mark, shown, what);
    return lp_error_set(error, status, 0, offset, "%s%s: %s (byte %" PRIu64 ")", mark, shown, what, offset);
}

lp_status lp__status_of(int sys)
{
    switch (sys) {
    case ENOENT:
    case ENOTDIR: return LP_E_MISSING;
    case ENOMEM: return LP_E_MEMORY;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return LP_E_FULL;
    case ELOOP: return LP_E_UNSAFE;
    case EWOULDBLOCK: return LP_E_BUSY;
    default: return LP_E_IO;
    }
}

lp_status lp__fail_sys(lp_error *error, int sys, const char *name, const char *what)
{
    const char *mark, *shown = tail_of(name, &mark);
    char room[64];
    const char *text = lp_system_text(sys, room, sizeof room);
    return lp_error_set(error, lp__status_of(sys), sys, UINT64_MAX, "%s%s: cannot %s: %s", mark, shown, what, text);
}
