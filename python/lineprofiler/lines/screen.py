"""Writing text to somebody's stream: what it cannot show is replaced, what would steer a terminal is made visible."""

from __future__ import annotations

import contextlib
import io
import keyword
import os
import re
import sys
import tokenize
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from lineprofiler.streams import whole_writer

# What a terminal obeys or does not show, and lone surrogates, as src/render/inert.c has it.
_CONTROL = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff0-\ufffb\U000e0000-\U000e00ff]"
)
_ASCII = str.maketrans("µ—–…·⋮±█▌─", "u--.|:~#=-")

RESET, BOLD, DIM = "\x1b[0m", "\x1b[1m", "\x1b[2m"
RED, YELLOW, GREEN, BLUE, MAGENTA, CYAN = (f"\x1b[{n}m" for n in (31, 33, 32, 34, 35, 36))


def emit(text: str, stream: Any = None) -> None:
    """Writes all of it to the stream (None: standard output, if the process has one)."""
    out = stream if stream is not None else sys.stdout
    if out is None:
        return
    write = whole_writer(out)
    try:
        write(text)
    except UnicodeEncodeError:
        encoding = getattr(out, "encoding", None) or "ascii"
        write(text.translate(_ASCII).encode(encoding, "replace").decode(encoding))


def inert(text: str) -> str:
    """Control characters as escapes, tabs as spaces: a source line must not move the cursor."""
    return _CONTROL.sub(lambda m: ascii(m[0])[1:-1], text).expandtabs(4)


def columns(text: str) -> int:
    """Columns that a terminal takes for the text: two for a wide character, none for what joins the one before."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf") and letter != "\xad":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def left(text: str, width: int) -> str:
    """The text, filled with blanks to `width` columns."""
    return text + " " * (width - columns(text))


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns, its end given as ``...``."""
    if columns(text) <= width:
        return text
    ends = list(accumulate(map(_columns_of, text)))
    return text[: bisect_right(ends, max(width - 3, 0))] + "..."


def wants_color(stream: Any = None) -> bool:
    """A terminal that shows colours, unless ``NO_COLOR`` is set."""
    out = stream if stream is not None else sys.stdout
    try:
        terminal = out is not None and out.isatty()
    except (AttributeError, ValueError):
        terminal = False
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width_of(stream: Any = None) -> int | None:
    """Columns of the terminal; None where there is none: lines are not cut."""
    out = stream if stream is not None else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(out.fileno()).columns if out is not None and out.isatty() else None
    except (AttributeError, ValueError, OSError, io.UnsupportedOperation):
        return None


def duration(ns: float, unit_s: float | None = None) -> str:
    """A time in the unit that suits it: 999ns 1.2us 100.0us 1.5ms 1.00s; in `unit_s` seconds if that is given."""
    if unit_s is not None:
        return significant(ns * 1e-9 / unit_s)
    if ns < 999.5:
        return f"{ns:.0f}ns"
    for limit, scale, name in ((999_950, 1e3, "us"), (999_950_000, 1e6, "ms")):
        if ns < limit:
            return f"{ns / scale:.1f}{name}"
    seconds = ns / 1e9
    if seconds < 59.995:
        return f"{seconds:.2f}s"
    if seconds < 3600:
        return f"{int(seconds // 60)}m {int(seconds % 60):02d}s"
    return f"{int(seconds // 3600)}h {int(seconds % 3600 // 60):02d}m"


def uncertain(value: float, error: float) -> str:
    """A value with its error, to the digit that the error leaves."""
    digits = 0 if error >= 0.95 else 1
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def significant(value: float) -> str:
    """At least three significant digits, one digit after the point, no exponent where it can be avoided."""
    if value == 0:
        return "0"
    return f"{value:.1f}" if abs(value) >= 99.95 else f"{value:.3g}"


def highlight(lines: Sequence[str], shown: Sequence[str] | None = None) -> list[str]:
    """The lines of one function with colours for keywords, strings, numbers and comments, as far as they are Python.

    `shown`: these texts instead, each a line's beginning, so that a line that is cut keeps its colours.
    """
    spans: list[list[tuple[int, int, str]]] = [[] for _ in lines]
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    text = "\n".join(line[indent:] for line in lines) + "\n"
    before = ""
    with contextlib.suppress(tokenize.TokenError, SyntaxError, IndexError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            color = _color(token, before)
            if token.type not in (tokenize.NL, tokenize.COMMENT):
                before = token.string
            if color:
                for row in range(token.start[0], min(token.end[0], len(lines)) + 1):
                    first = token.start[1] if row == token.start[0] else 0
                    last = token.end[1] if row == token.end[0] else len(lines[row - 1]) - indent
                    spans[row - 1].append((first + indent, last + indent, color))
    return [_painted(line, marks) for line, marks in zip(lines if shown is None else shown, spans, strict=True)]


def _color(token: tokenize.TokenInfo, before: str) -> str:
    if token.type == tokenize.COMMENT:
        return DIM
    if token.type == tokenize.STRING or tokenize.tok_name[token.type].startswith(("FSTRING", "TSTRING")):
        return GREEN
    if token.type == tokenize.NUMBER:
        return CYAN
    if token.type == tokenize.NAME:
        if before in ("def", "class"):
            return BLUE
        if keyword.iskeyword(token.string):
            return MAGENTA
    return ""


def _painted(line: str, marks: list[tuple[int, int, str]]) -> str:
    parts, at = [], 0
    for first, last, color in marks:
        if at <= first < len(line):
            parts += [line[at:first], color, line[first:last], RESET]
            at = min(last, len(line))
    return "".join([*parts, line[at:]])
