"""The engine in C as the line profiler sees it, and its figures as a `Profile`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, cast

from lineprofiler import _lineprofiler
from lineprofiler.lines import comprehensions
from lineprofiler.lines.model import FunctionKey, Line, Profile, add_lines
from lineprofiler.lines.project import qualified_name
from lineprofiler.lines.source import Source, SourceBook

if TYPE_CHECKING:
    from lineprofiler._lineprofiler import LineEngine

BACKENDS = ("monitoring", "settrace")
MOST_ALIKE = 100
"""Functions of one name and place that are told apart: a program may evaluate a new text each time round."""


def new_engine(select: Callable[[CodeType], bool] | None, backend: str | None) -> LineEngine:
    """Raises ValueError for a back end that this Python has not."""
    return _lineprofiler.LineEngine(select=select, backend=cast("Literal['monitoring', 'settrace'] | None", backend))


def start(engine: LineEngine) -> None:
    """Starts it. Where nothing can be measured the program runs all the same, and one warning says why."""
    if engine.count:
        engine.start()
        return
    before = engine.trouble
    engine.start()
    try:
        for text in engine.trouble:
            if text not in before:
                warnings.warn(text, RuntimeWarning, stacklevel=5)
    except BaseException:
        engine.stop()
        raise


def name_of(code: CodeType, names: dict[int, str], book: SourceBook) -> str:
    """The qualified name; before Python 3.11, where code does not know it, that of the function that was marked."""
    known = names.get(id(code)) if not hasattr(code, "co_qualname") else None
    return known if known is not None else qualified_name(code, book)


def executable_lines(code: CodeType) -> frozenset[int]:
    """Lines of a code object that have instructions of their own, without its first line's prologue."""
    found = {line for _, _, line in code.co_lines() if line is not None and line > 0}
    if code.co_name != "<lambda>" and len(found) > 1:
        found.discard(code.co_firstlineno)
    return frozenset(found)


class Known:
    """What there is to code and threads at one moment, for all figures that are made of it."""

    def __init__(self, engine: LineEngine, names: dict[int, str], book: SourceBook) -> None:
        self.codes = engine.codes()
        self.keys = _keys(self.codes, names, book)
        self.threads = {number: f"{name} ({number})" for number, name in engine.threads()}
        self.homes = comprehensions.homes_by_code(self.codes, self.keys)
        self.own_cost = engine.own_cost
        self._book = book
        self._sources: dict[str, Source] = {}

    def source(self, index: int) -> Source:
        """Of the file of a code object."""
        path = self.keys[index].filename
        found = self._sources.get(path)
        if found is None:
            found = self._sources[path] = self._book.source_of(self.codes[index])
        return found


def figures(engine: LineEngine, known: Known, *, rows: list[Any] | None = None) -> Profile:
    """What the engine has so far. `rows`: lines of a region instead of all lines."""
    codes, keys, threads = known.codes, known.keys, known.threads
    profile = Profile(own_cost=dict(known.own_cost), notes=list(engine.trouble))
    needed = range(len(codes)) if rows is None else sorted({row[0] for row in rows})
    for index in needed:
        function = profile.function(keys[index])
        function.executable |= executable_lines(codes[index])
        profile.sources[keys[index].filename] = known.source(index)
    for row in engine.lines() if rows is None else rows:
        if row[1] < 1:
            continue  # an empty module: Python says that its line 0 runs
        if row[0] >= len(codes):
            continue  # seen for the first time meanwhile
        function = profile.function(keys[row[0]])
        line = {row[1]: Line(row[2], row[3], row[4], row[5], row[6])}
        add_lines(function.lines, line)
        add_lines(function.threads.setdefault(threads.get(row[7], str(row[7])), {}), line)
    if rows is None:
        for index, calls, time_ns, self_ns, awaited_ns, suspended in engine.functions():
            if index >= len(codes):
                continue
            function = profile.function(keys[index])
            function.calls += calls
            function.time_ns += time_ns
            function.self_ns += self_ns
            function.awaited_ns += awaited_ns
            function.suspended += suspended
    comprehensions.fold(profile, known.homes)
    return profile


def _keys(codes: list[CodeType], names: dict[int, str], book: SourceBook) -> list[FunctionKey]:
    """A key for each code object. Equal code of one place, as when a text is run twice, is one function; other code of
    the same name there, as two lambdas on a line, gets a number behind its name; from MOST_ALIKE on all are one."""
    known: dict[FunctionKey, dict[CodeType, int]] = {}
    keys = []
    for code in codes:
        key = FunctionKey(book.path_of_code(code), name_of(code, names, book), code.co_firstlineno)
        others = known.setdefault(key, {})
        place = others.get(code)
        if place is None:
            place = len(others)
            if place < MOST_ALIKE:
                others[code] = place
        keys.append(key if place == 0 else key._replace(function_name=f"{key.function_name}#{place + 1}"))
    return keys


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """The code objects of functions, comprehensions and classes inside this one."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_within(constant)
