"""Programs whose lines are counted, and the figures of an engine by line."""

from __future__ import annotations

import textwrap
from collections import Counter
from types import CodeType, FunctionType
from typing import Any

from lineprofiler._lineprofiler import LineEngine


def program(source: str, **names: Any) -> dict[str, Any]:
    """The globals of a program; its lines are counted from 1 after the first newline."""
    space: dict[str, Any] = dict(names)
    exec(compile(textwrap.dedent(source).lstrip("\n"), "<program>", "exec"), space)
    return space


def marked(space: dict[str, Any], *names: str) -> LineEngine:
    engine = LineEngine()
    for name in names:
        engine.mark(space[name].__code__)
    return engine


def column(engine: LineEngine, function: FunctionType | CodeType, index: int) -> dict[int, int]:
    """Sums over threads by line number."""
    code = function if isinstance(function, CodeType) else function.__code__
    number = [at for at, known in enumerate(engine.codes()) if known is code]
    sums: Counter[int] = Counter()
    for row in engine.lines(number[0]):
        sums[row[1]] += row[index]
    return dict(sums)


def hits(engine: LineEngine, function: FunctionType | CodeType) -> dict[int, int]:
    return column(engine, function, 2)


def visits(engine: LineEngine, function: FunctionType | CodeType) -> dict[int, int]:
    return column(engine, function, 3)


def ns(engine: LineEngine, function: FunctionType | CodeType) -> dict[int, int]:
    return column(engine, function, 4)


def own_ns(engine: LineEngine, function: FunctionType | CodeType) -> dict[int, int]:
    return column(engine, function, 5)


def awaited(engine: LineEngine, function: FunctionType | CodeType) -> dict[int, int]:
    return column(engine, function, 6)


def near(measured: int, known: int) -> bool:
    """Within 2 % or 20 us of what a clock beside it says."""
    return abs(measured - known) <= max(0.02 * known, 20_000)


class Running:
    def __init__(self, engine: LineEngine) -> None:
        self.engine = engine

    def __enter__(self) -> None:
        self.engine.start()
        assert self.engine.active, self.engine.trouble

    def __exit__(self, *error: object) -> None:
        self.engine.stop()
