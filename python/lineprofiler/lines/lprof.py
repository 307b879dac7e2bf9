"""``.lprof`` files, line_profiler's format, written and read without it.

Such a file is a pickle of one object of line_profiler's class `LineStats` with ``{"timings": …, "unit": …}`` in it.
Ours carry a third entry, `lineprofiler`, of plain dicts, lists, texts and numbers: what theirs have no place for.
A pickle can run any code, so it is read by an unpickler that knows that one class, as a stand-in, and nothing else;
then every entry is checked.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from lineprofiler._lineprofiler import pickle_is_modest
from lineprofiler.lines.model import Function, FunctionKey, Line, Profile
from lineprofiler.lines.source import CHANGED, Source, from_disk, has_changed, split

_CLASSES = frozenset(
    (module, "LineStats")
    for module in ("line_profiler.line_profiler", "line_profiler._line_profiler", "_line_profiler", "line_profiler")
)
_UNIT = 1e-9
VERSION = 1
"""Of the entry `lineprofiler`."""


class FormatError(ValueError):
    """The file is none of line_profiler's, or its figures are not what they must be."""


class _Stand:
    """What a file's LineStats becomes: attributes, no behaviour."""


def _find_class(module: str, name: str) -> Any:
    if (module, name) in _CLASSES:
        return _Stand
    named = ascii(f"{module}.{name}")[1:-1]  # the file's own words: in one line, and no control sequence
    raise FormatError(f"it names {named}, which no .lprof file holds; nothing of it was run")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise FormatError("it refers to objects outside the file")


class _CarefulUnpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise FormatError("it refers to objects outside the file")


def _unpickle(data: bytes) -> Any:
    """What the bytes hold; pickle's and our exceptions.

    The unpickler in C makes room for what a file claims before it looks, so nine bytes can take gigabytes. A file that
    claims more than it is long, and one of protocol 0, is read by the one in Python, which is some twenty times slower.
    """
    file = io.BytesIO(data)
    found = (_Unpickler if pickle_is_modest(data) else _CarefulUnpickler)(file).load()
    if file.read(1):
        raise FormatError("something follows its end")
    return found


def read(path: str | Path) -> Profile:
    """The profile of an ``.lprof`` file of ours, of line_profiler 4 or 5. Raises OSError, FormatError; runs nothing."""
    timings, unit, extra = _state(path)
    with _checked():
        if isinstance(extra, dict) and extra.get("version") == VERSION:
            return _ours(extra)
        return _theirs(timings, unit)


def read_timings(path: str | Path) -> tuple[dict[tuple[str, int, str], list[tuple[int, int, int]]], float]:
    """line_profiler's timings in such a file and the seconds of their unit. Raises as `read` does."""
    timings, unit, _ = _state(path)
    found = {}
    with _checked():
        for key, rows in timings.items():
            filename, first, name = key
            found[_text(filename), _number(first), _text(name)] = [
                (_number(number), _number(hits), _number(round(time) if isinstance(time, float) else time))
                for number, hits, time in rows
            ]
    return found, unit


@contextmanager
def _checked() -> Iterator[None]:
    """What is wrong with a file's figures as a FormatError."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(f"its figures cannot be read ({type(error).__name__}: {error})") from None


def _state(path: str | Path) -> tuple[dict[Any, Any], float, Any]:
    """Timings, unit, and our own entry, not yet checked."""
    with open(path, "rb") as file:
        try:
            found = _unpickle(file.read())
        except FormatError:
            raise
        except (OSError, KeyboardInterrupt):
            raise
        except Exception as error:  # a broken pickle raises anything
            raise FormatError(f"it is no .lprof file ({type(error).__name__})") from None
    if not isinstance(found, _Stand):
        raise FormatError("it holds no line profile")
    state = vars(found)
    timings, unit = state.get("timings"), state.get("unit")
    if not isinstance(timings, dict) or not isinstance(unit, (int, float)) or not 0 < unit <= 1e6:
        raise FormatError("it holds no timings with a unit")
    return timings, float(unit), state.get("lineprofiler")


def _theirs(timings: dict[Any, Any], unit: float) -> Profile:
    profile = Profile(full=False)
    for key, rows in timings.items():
        filename, first, name = key
        function = profile.function(FunctionKey(_text(filename), _text(name), _number(first)))
        for number, hits, time in rows:
            line = function.lines.setdefault(_number(number), Line())
            line.add(Line(_number(hits), _number(hits), _ns(time, unit)))
            for added in (line.hits, line.time_ns):  # a line may come twice
                _number(added)
        if filename not in profile.sources:
            profile.sources[filename] = from_disk(filename)
    return profile


def _ours(extra: dict[Any, Any]) -> Profile:
    profile = Profile(
        own_cost={_text(k): _finite(v) for k, v in extra["own_cost"].items()},
        notes=[_text(note) for note in extra["notes"]],
        places=[_text(place) for place in extra["places"]],
        processes=_number(extra["processes"]),
        full=bool(extra["full"]),
    )
    for path, source in extra["sources"].items():
        profile.sources[_text(path)] = _read_source(_text(path), *source)
    for entry in extra["functions"]:
        filename, name, first = entry["key"]
        function = profile.function(FunctionKey(_text(filename), _text(name), _number(first)))
        function.calls, function.time_ns, function.self_ns, function.awaited_ns, function.suspended = _numbers(
            entry["figures"]
        )
        function.lines = _lines(entry["lines"])
        function.threads = {_text(thread): _lines(rows) for thread, rows in entry["threads"].items()}
        function.executable = frozenset(_numbers(entry["executable"]))
    return profile


def _lines(rows: Any) -> dict[int, Line]:
    _numbers(chain.from_iterable(rows))
    return {row[0]: Line(*row[1:]) for row in rows}


def _numbers(values: Iterable[Any]) -> list[int]:
    """As _number each, but looked at all at once: a project has 10^5 of them."""
    numbers = list(values)
    if numbers and (set(map(type, numbers)) != {int} or min(numbers) < -(1 << 63) or max(numbers) >= 1 << 64):
        raise ValueError("figures that are no whole numbers")
    return numbers


def _number(value: Any) -> int:
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"{type(value).__name__} for a whole number")
    return int(value)


def _ns(value: Any, unit: float) -> int:
    if not isinstance(value, (int, float)):
        raise ValueError(f"{type(value).__name__} for a time")
    return _number(int(value) if unit == _UNIT and isinstance(value, int) else round(value * unit / _UNIT))


def _finite(value: Any) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} for a cost")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} for a text")
    return value


def write(path: str | Path, profile: Profile) -> None:
    """Writes the file. Raises OSError."""
    write_whole(path, to_bytes(profile))


def write_timings(
    path: str | Path, timings: dict[tuple[str, int, str], list[tuple[int, int, int]]], unit: float
) -> None:
    """Writes a file of line_profiler's figures alone. Raises OSError."""
    write_whole(path, _pickled({"timings": timings, "unit": unit}))


def write_whole(path: str | Path, data: bytes) -> None:
    """Writes a file by rename, so that a reader never sees half of one; what is no plain file, or leads to a process's
    own, is written to as it is. Raises OSError."""
    target = os.path.abspath(os.fspath(path))
    if is_stream(target):
        with open(target, "wb") as pipe:
            pipe.write(data)
        return
    target = os.path.realpath(target)  # a link stays one
    part = os.path.join(os.path.dirname(target), f".lprof-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        # With the rights that any new file gets. os.umask() cannot be asked without changing it, for all threads.
        number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with open(number, "wb") as file:
                file.write(data)
            os.replace(part, target)
        except BaseException:
            os.unlink(part)
            raise
    except OSError as error:  # of the file that was asked for, not of its part
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def is_stream(target: str) -> bool:
    """/dev/stdout, a fifo: nothing to rename over, not even where a shell has put a file behind it."""
    if os.path.exists(target) and not os.path.isfile(target):
        return True
    link = os.readlink(target) if os.path.islink(target) else ""
    return any(os.path.realpath(os.path.dirname(each)).startswith("/proc/") for each in (target, link) if each)


def is_same_file(path: str, other: str) -> bool:
    """Whether what is written to one of them takes the place of the other; of streams it does not."""
    if is_stream(os.path.abspath(path)):
        return False
    if os.path.exists(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def to_bytes(profile: Profile) -> bytes:
    """The file's contents."""
    from lineprofiler.lines.compat import timings_of

    return _pickled({"timings": timings_of(profile), "unit": _UNIT, "lineprofiler": _extra(profile)})


def _pickled(state: dict[str, Any]) -> bytes:
    """An object of line_profiler's class. It is named, not imported: line_profiler need not be there."""
    body = pickle.dumps(state, protocol=2)
    opened = pickle.PROTO + b"\x02"
    made = pickle.GLOBAL + b"line_profiler._line_profiler\nLineStats\n" + pickle.EMPTY_TUPLE + pickle.NEWOBJ
    return opened + made + body.removeprefix(opened)[:-1] + pickle.BUILD + pickle.STOP


def _extra(profile: Profile) -> dict[str, Any]:
    return {
        "version": VERSION,
        "own_cost": dict(profile.own_cost),
        "notes": list(profile.notes),
        "places": list(profile.places),
        "processes": profile.processes,
        "full": profile.full,
        "sources": {path: _source(source) for path, source in profile.sources.items()},
        "functions": [_function(function) for function in profile.functions.values()],
    }


def _source(source: Source) -> tuple[str, str, str, bool]:
    """The text is in the file: it may not be on the disk any more when that is read."""
    return "\n".join(source.lines), source.note, source.digest, source.on_disk


def _read_source(path: str, text: Any, note: Any, digest: Any, on_disk: Any) -> Source:
    lines = split(_text(text)) if text else ()
    if on_disk and not note and has_changed(path, _text(digest)):
        note = CHANGED
    return Source(lines, _text(note), _text(digest), bool(on_disk))


def _function(function: Function) -> dict[str, Any]:
    return {
        "key": tuple(function.key),
        "figures": (function.calls, function.time_ns, function.self_ns, function.awaited_ns, function.suspended),
        "lines": _rows(function.lines),
        "threads": {thread: _rows(lines) for thread, lines in function.threads.items()},
        "executable": sorted(function.executable),
    }


def _rows(lines: dict[int, Line]) -> list[tuple[int, ...]]:
    return [
        (number, line.hits, line.visits, line.time_ns, line.self_ns, line.awaited_ns)
        for number, line in sorted(lines.items())
    ]
