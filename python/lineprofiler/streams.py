"""Writing a text to a stream as a whole: all of it, or an exception that says why not."""

from __future__ import annotations

import contextlib
import io
import select
from collections.abc import Callable
from typing import TextIO


def whole_writer(stream: TextIO) -> Callable[[str], object]:
    """What takes all of a text, or raises; for streams that are not a file's their own ``write``.

    Without a buffer (PYTHONUNBUFFERED) a stream drops what a short write has left over, and with one it gives up where
    a pipe that somebody has made non-blocking is full.
    """
    buffer = None
    with contextlib.suppress(ValueError):  # a stream without its buffer; writing says so
        buffer = getattr(stream, "buffer", None)
    raw = buffer.raw if isinstance(buffer, io.BufferedWriter) else buffer
    if type(stream) is not io.TextIOWrapper or not isinstance(raw, io.FileIO):
        return stream.write

    def write(text: str) -> None:
        rest = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
        stream.flush()
        while rest:
            written = raw.write(rest)
            if written is None:
                ready = select.poll()
                ready.register(raw, select.POLLOUT)
                ready.poll()
            else:
                rest = rest[written:]

    return write
