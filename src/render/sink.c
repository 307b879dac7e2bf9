#include "render/sink.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static lp_status write_memory(lp_sink *sink, const void *data, size_t size)
{
    if (sink->capacity - sink->size <= size) {
        size_t wanted = sink->capacity ? sink->capacity : 4096;
        while (wanted - sink->size <= size)
            wanted *= 2;
        char *bigger = realloc(sink->data, wanted);
        if (!bigger)
            return LP_E_MEMORY;
        sink->data = bigger;
        sink->capacity = wanted;
    }
    memcpy(sink->data + sink->size, data, size);
    sink->size += size;
    sink->data[sink->size] = '\0';
    return LP_OK;
}

static lp_status write_fd(lp_sink *sink, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        ssize_t written = write(sink->fd, at, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EAGAIN) { /* somebody has made it non-blocking, and it is full */
            struct pollfd wait = {.fd = sink->fd, .events = POLLOUT};
            (void)poll(&wait, 1, -1);
            continue;
        }
        if (written < 0 && errno == EPIPE) {
            sink->closed = true;
            return LP_OK;
        }
        if (written <= 0) {
            sink->sys = written < 0 ? errno : ENOSPC;
            return LP_E_IO;
        }
        at += written;
        size -= (size_t)written;
    }
    return LP_OK;
}

void lp_sink_open(lp_sink *sink, lp_sink_write_fn write, void *context)
{
    sink->write = write;
    sink->context = context;
    sink->fd = -1;
    sink->data = NULL;
    sink->size = sink->capacity = sink->pending = 0;
    sink->status = LP_OK;
    sink->sys = 0;
    sink->closed = false;
}

void lp_sink_open_memory(lp_sink *sink)
{
    lp_sink_open(sink, write_memory, NULL);
}

void lp_sink_open_fd(lp_sink *sink, int fd)
{
    lp_sink_open(sink, write_fd, NULL);
    sink->fd = fd;
}

void lp_sink_free(lp_sink *sink)
{
    free(sink->data);
    sink->data = NULL;
    sink->size = sink->capacity = 0;
}

static void pass_on(lp_sink *sink, const void *data, size_t size)
{
    if (size > 0 && sink->status == LP_OK && !sink->closed)
        sink->status = sink->write(sink, data, size);
}

lp_status lp_sink_flush(lp_sink *sink)
{
    size_t pending = sink->pending;

    sink->pending = 0;
    pass_on(sink, sink->buffer, pending);
    return sink->status;
}

void lp_sink_put(lp_sink *sink, const void *data, size_t size)
{
    if (size >= sizeof sink->buffer - sink->pending) {
        lp_sink_flush(sink);
        if (size >= sizeof sink->buffer) {
            pass_on(sink, data, size);
            return;
        }
    }
    if (size > 0)
        memcpy(sink->buffer + sink->pending, data, size);
    sink->pending += size;
}

void lp_sink_text(lp_sink *sink, const char *text)
{
    lp_sink_put(sink, text, strlen(text));
}

void lp_sink_char(lp_sink *sink, char c)
{
    lp_sink_put(sink, &c, 1);
}

void lp_sink_repeat(lp_sink *sink, const char *text, size_t times)
{
    while (times-- > 0)
        lp_sink_text(sink, text);
}

void lp_sink_format(lp_sink *sink, const char *format, ...)
{
    char text[4096];
    va_list args;

    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (size > 0)
        lp_sink_put(sink, text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
}
