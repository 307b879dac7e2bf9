"""The engine in C as the line profiler sees it, and its figures as a `Profile`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, cast

from lineprofiler import _lineprofiler
from lineprofiler.lines.model import Function, FunctionKey, Line, Profile, add_lines
from lineprofiler.lines.project import qualified_name
from lineprofiler.lines.source import SourceBook, definitions

if TYPE_CHECKING:
    from lineprofiler._lineprofiler import LineEngine

BACKENDS = ("monitoring", "settrace")


def new_engine(select: Callable[[CodeType], bool] | None, backend: str | None) -> LineEngine:
    """Raises ValueError for a back end that this Python has not."""
    return _lineprofiler.LineEngine(select=select, backend=cast("Literal['monitoring', 'settrace'] | None", backend))


def start(engine: LineEngine) -> None:
    """Starts it. Where nothing can be measured the program runs all the same, and one warning says why."""
    before = len(engine.trouble)
    engine.start()
    for text in engine.trouble[before:]:
        warnings.warn(text, RuntimeWarning, stacklevel=5)


def name_of(code: CodeType, names: dict[int, str], book: SourceBook) -> str:
    """The qualified name. Code of Python 3.10 does not know it: from the function that was marked, or the source."""
    name = qualified_name(code)
    if hasattr(code, "co_qualname") or name == "<module>":
        return name
    known = names.get(id(code))
    if known is None:
        found = definitions(book.get(code.co_filename)).get(code.co_firstlineno)
        known = found[0] if found is not None and found[0].split(".")[-1] == name else name
    return known


def executable_lines(code: CodeType) -> frozenset[int]:
    """Lines of a code object that have instructions of their own, without its first line's prologue."""
    found = {line for _, _, line in code.co_lines() if line is not None and line > 0}
    if code.co_name != "<lambda>" and len(found) > 1:
        found.discard(code.co_firstlineno)
    return frozenset(found)


def figures(engine: LineEngine, names: dict[int, str], book: SourceBook, *, rows: list[Any] | None = None) -> Profile:
    """What the engine has so far. `rows`: lines of a region instead of all lines."""
    codes = engine.codes()
    threads = dict(engine.threads())
    profile = Profile(own_cost=dict(engine.own_cost), notes=list(engine.trouble))
    if rows is None:
        for code in codes:  # also those that were never called
            _function(profile, code, names, book)
    for row in engine.lines() if rows is None else rows:
        function = _function(profile, codes[row[0]], names, book)
        line = {row[1]: Line(row[2], row[3], row[4], row[5], row[6])}
        add_lines(function.lines, line)
        thread = f"{threads.get(row[7], 'thread')} ({row[7]})"
        add_lines(function.threads.setdefault(thread, {}), line)
    if rows is None:
        for index, calls, time_ns, self_ns, awaited_ns, suspended in engine.functions():
            function = _function(profile, codes[index], names, book)
            function.calls += calls
            function.time_ns += time_ns
            function.self_ns += self_ns
            function.awaited_ns += awaited_ns
            function.suspended += suspended
    return profile


def _function(profile: Profile, code: CodeType, names: dict[int, str], book: SourceBook) -> Function:
    path = book.path_of(code.co_filename)
    key = FunctionKey(path, name_of(code, names, book), code.co_firstlineno)
    function = profile.functions.get(key)
    if function is None:
        function = profile.function(key)
        if path not in profile.sources:
            profile.sources[path] = book.get(code.co_filename)
    function.executable |= executable_lines(code)
    return function


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """The code objects of functions, comprehensions and classes inside this one."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_within(constant)
