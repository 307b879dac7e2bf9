#include "core/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const texts[] = {
#define LP_STATUS_TEXT(code, text) [code] = (text),
    LP_STATUS_LIST(LP_STATUS_TEXT)
#undef LP_STATUS_TEXT
};

const char *lp_status_text(lp_status status)
{
    if ((unsigned)status >= sizeof texts / sizeof *texts)
        return "unknown status";
    return texts[status];
}

const char *lp_system_text(int sys, char *room, size_t size)
{
#ifdef __GLIBC__ /* strerrordesc_np came with glibc 2.32 only */
    return strerror_r(sys, room, size);
#else
    return strerror_r(sys, room, size) == 0 ? room : "unknown error";
#endif
}

lp_status lp_error_set(lp_error *error, lp_status status, int sys, uint64_t offset, const char *format, ...)
{
    if (error) {
        int saved = errno;
        va_list args;

        error->status = status;
        error->sys = sys;
        error->offset = offset;
        va_start(args, format);
        if (vsnprintf(error->text, sizeof error->text, format, args) < 0)
            error->text[0] = '\0';
        va_end(args);
        errno = saved;
    }
    return status;
}
