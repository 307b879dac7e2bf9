"""What the tests of the line engine share: marking functions, reading figures, burning time.

The conventions of the field cases: `P(f)` marks a function and leaves the engine on, `H(P, f)` gives its hits,
`T(P, f)` its seconds and `A(P, f)` the seconds that it was awaited, each by line relative to the `def` (or the first
decorator).
"""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from lineprofiler._lineprofiler import LineEngine

_F = TypeVar("_F")


class Marked:
    """A LineEngine around chosen functions; `select` as there."""

    def __init__(self, select: Callable[[CodeType], bool] | None = None) -> None:
        self.engine = LineEngine(select=select)

    def __call__(self, function: _F, nested: bool = False) -> _F:
        code = code_of(function)
        self.engine.mark(code)
        if nested:
            for inner in codes_within(code):
                self.engine.mark(inner)
        if not self.engine.count:
            self.engine.start()
        return function

    def __enter__(self) -> Marked:
        self.engine.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.engine.stop()

    def stop(self) -> None:
        while self.engine.count:
            self.engine.stop()

    def figures(self, function: Any) -> dict[int, tuple[int, int, int, int, int]]:
        """{absolute line: (hits, visits, time, self, awaited)}, ns, all threads together."""
        code = code_of(function)
        index = next((i for i, each in enumerate(self.engine.codes()) if each is code), None)
        found: dict[int, tuple[int, ...]] = {}
        if index is None:
            return {}
        for row in self.engine.lines(index):
            before = found.get(row[1], (0,) * 5)
            found[row[1]] = tuple(a + b for a, b in zip(before, row[2:7], strict=True))
        return found  # type: ignore[return-value]

    def function(self, function: Any) -> tuple[int, int, int, int, int]:
        """(calls, time, self, awaited, suspended), ns."""
        code = code_of(function)
        codes = self.engine.codes()
        return next((tuple(row[1:]) for row in self.engine.functions() if codes[row[0]] is code), (0,) * 5)  # type: ignore[return-value]


def defined(text: str, **names: object) -> Any:
    """The function that a text defines, which may use `names`: for what a formatter would not leave on its line."""
    space = dict(names)
    exec(compile(textwrap.dedent(text).lstrip(), "<defined>", "exec"), space)
    return next(value for name, value in space.items() if name not in ("__builtins__", *names))


def code_of(function: Any) -> CodeType:
    return function if isinstance(function, CodeType) else function.__code__  # type: ignore[no-any-return]


def codes_within(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_within(constant)


def H(p: Marked, function: Any) -> dict[int, int]:
    first = code_of(function).co_firstlineno
    return {line - first: figures[0] for line, figures in p.figures(function).items() if figures[0]}


def T(p: Marked, function: Any) -> dict[int, float]:
    first = code_of(function).co_firstlineno
    return {line - first: figures[2] / 1e9 for line, figures in p.figures(function).items()}


def A(p: Marked, function: Any) -> dict[int, float]:
    first = code_of(function).co_firstlineno
    return {line - first: figures[4] / 1e9 for line, figures in p.figures(function).items() if figures[4]}


def burn(seconds: float) -> None:
    """Uses the processor for so long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def in_threads(count: int, function: Callable[[], object]) -> None:
    threads = [threading.Thread(target=function) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def marked(*functions: Any, select: Callable[[CodeType], bool] | None = None, nested: bool = False) -> Iterator[Marked]:
    p = Marked(select)
    for function in functions:
        p.engine.mark(code_of(function))
        if nested:
            for inner in codes_within(code_of(function)):
                p.engine.mark(inner)
    with p:
        yield p


def project(folder: Path, **files: str) -> Path:
    """A project of these modules, `a__b` being a/b.py."""
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder
