"""What the tests of the line profiler share."""

from __future__ import annotations

from typing import Any


def hits(profiler: Any, function: Any) -> dict[int, int]:
    """{line relative to the def: hits} of a function."""
    code = function.__code__
    return {
        line - code.co_firstlineno: stats.hits
        for key, found in profiler.get_stats("line").items()
        if key.first_line == code.co_firstlineno and key.filename == code.co_filename
        for line, stats in found.line_stats.items()
        if stats.hits
    }
