/* Where output goes: a callback, growing memory or a file descriptor, behind one small buffer.
 *
 * Failure is sticky: after the first one everything is dropped and `status` says why. A reader that has gone away
 * (EPIPE) is no failure: `closed` is set and the rest is dropped, so that `lineprofiler report | head` ends quietly. */
#ifndef LP_RENDER_SINK_H
#define LP_RENDER_SINK_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

typedef struct lp_sink lp_sink;
/* Takes all bytes or fails. May set sink->closed and return LP_OK; may set sink->sys to an errno. */
typedef lp_status (*lp_sink_write_fn)(lp_sink *sink, const void *data, size_t size);

struct lp_sink {
    lp_sink_write_fn write;
    void *context; /* borrowed: the callback's own */
    int fd;        /* borrowed, of lp_sink_open_fd */
    char *data;    /* owned, of lp_sink_open_memory: everything written, followed by a NUL that is not counted */
    size_t size, capacity;
    lp_status status; /* LP_OK or the first failure */
    int sys;          /* its errno, 0 if none */
    bool closed;
    size_t pending;
    char buffer[4096];
};

void lp_sink_open(lp_sink *sink, lp_sink_write_fn write, void *context);
void lp_sink_open_memory(lp_sink *sink);     /* free with lp_sink_free */
void lp_sink_open_fd(lp_sink *sink, int fd); /* does not close it; restarts after EINTR */
void lp_sink_free(lp_sink *sink);

void lp_sink_put(lp_sink *sink, const void *data, size_t size);
void lp_sink_text(lp_sink *sink, const char *text);
void lp_sink_char(lp_sink *sink, char c);
void lp_sink_repeat(lp_sink *sink, const char *text, size_t times);
/* Up to 4095 bytes; no floating point (its decimal point is the locale's): see render/units.h. */
void lp_sink_format(lp_sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));
lp_status lp_sink_flush(lp_sink *sink); /* gives status */

#endif
