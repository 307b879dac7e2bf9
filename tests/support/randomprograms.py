"""Random programs that count their own lines: what the line engine's hits are compared with.

Every line counts itself, so the expectation does not come from a tracer. `t(line, value)` counts and gives the value; a
loop counts how often its iterator was asked; what cannot hold an expression (`try:`, `break`, …) stands right behind a
line that counts and cannot fail. A program ends by itself: after many steps `t` raises Stop, through all its handlers.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from hypothesis import strategies as st

STEPS = 600


class Stop(BaseException):
    pass


class Trouble(Exception):
    pass


class Later:
    """Suspends once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass
class Run:
    """What a program calls, and its counts by line."""

    seed: int
    n: dict[int, int] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def t(self, line: int, *values: Any) -> Any:
        self.n[line] = self.n.get(line, 0) + 1
        self.steps += 1
        if self.steps > STEPS:
            raise Stop
        return values[0] if values else None

    def c(self, line: int) -> None:
        """Counts, and never fails."""
        self.n[line] = self.n.get(line, 0) + 1

    def yes(self) -> bool:
        return self.random.random() < 0.5

    def i(self, line: int, values: Any) -> Iterator[Any]:
        """Counts each time that the loop asks for a value."""
        return Asked(self, line, iter(values))

    def w(self, line: int) -> Run:
        self.t(line)
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, *unused: object) -> bool:
        return kind is not None and issubclass(kind, Trouble) and self.yes()

    def later(self) -> Awaitable[None]:
        return Later()


class Asked:
    def __init__(self, run: Run, line: int, values: Iterator[Any]) -> None:
        self.run, self.line, self.values = run, line, values

    def __iter__(self) -> Asked:
        return self

    def __next__(self) -> Any:
        self.run.c(self.line)
        return next(self.values)


@dataclass
class Program:
    text: str
    seed: int
    behind: dict[int, int]
    """Lines that are executed as often as the line before them."""

    def run(self, around: Callable[[list[CodeType]], Any]) -> tuple[Run, list[CodeType]]:
        """Runs it inside of `around(its code objects)`."""
        run = Run(self.seed)
        module = compile(self.text, "<program>", "exec")
        space: dict[str, Any] = {name: getattr(run, name) for name in ("t", "c", "i", "w", "yes", "later")}
        space["Trouble"] = Trouble
        exec(module, space)
        codes = [space[name].__code__ for name in ("plain", "gen", "co")]
        with around(codes):
            for start in (lambda: space["plain"](3), lambda: self.consume(run, space), lambda: self.interleave(space)):
                with contextlib.suppress(Stop, Trouble):
                    start()
                run.steps = 0
        return run, codes

    def consume(self, run: Run, space: dict[str, Any]) -> None:
        for _ in range(6):
            left = run.random.randrange(5)
            for _value in space["gen"](2):
                if left == 0:
                    break  # dropped half-way
                left -= 1

    def interleave(self, space: dict[str, Any]) -> None:
        tasks = [space["co"](2) for _ in range(3)]
        while tasks:
            for task in tasks[:]:
                try:
                    task.send(None)
                except (StopIteration, Trouble):
                    tasks.remove(task)

    def expected(self, run: Run) -> dict[int, int]:
        counts = dict(run.n)
        for line, before in self.behind.items():
            counts[line] = counts.get(before, 0)
        return {line: count for line, count in counts.items() if count}


class Writer:
    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.behind: dict[int, int] = {}
        self.budget = 0
        self.kind = ""

    def put(self, depth: int, text: str) -> int:
        """`@` in the text is its line number."""
        number = len(self.lines) + 1
        self.lines.append("    " * depth + text.replace("@", str(number)))
        return number

    def follow(self, depth: int, text: str) -> None:
        before = self.put(depth, "c(@)")
        self.behind[self.put(depth, text)] = before

    def function(self, kind: str, header: str) -> None:
        self.kind = kind
        self.budget = 14
        self.put(0, header)
        self.put(1, "if t(@, depth < 0):")
        self.put(2, "return t(@)")
        self.block(1, False)
        self.suspend(1)

    def suspend(self, depth: int) -> None:
        if self.kind == "gen":
            self.put(depth, "yield t(@)")
        elif self.kind == "co":
            self.put(depth, "await t(@, later())")
        else:
            self.put(depth, "t(@)")

    def block(self, depth: int, loop: bool) -> None:
        for _ in range(self.draw(st.integers(1, 3))):
            self.statement(depth, loop)

    def statement(self, depth: int, loop: bool) -> None:
        self.budget -= 1
        simple = ["count", "call", "suspend", "raise", "return", "recurse", "listed"] + ["leave"] * loop
        compound = ["if", "for", "while", "try", "finally", "with"]
        kinds = simple if self.budget <= 0 or depth > 4 else simple + compound * 2
        getattr(self, "put_" + self.draw(st.sampled_from(kinds)))(depth, loop)

    def put_count(self, depth: int, loop: bool) -> None:
        self.put(depth, "t(@)")

    def put_call(self, depth: int, loop: bool) -> None:
        first = self.put(depth, "t(@,")
        self.behind[self.put(depth, "  1,")] = first
        self.behind[self.put(depth, "  2)")] = first

    def put_suspend(self, depth: int, loop: bool) -> None:
        self.suspend(depth)

    def put_raise(self, depth: int, loop: bool) -> None:
        self.put(depth, "if t(@, yes()):")
        self.put(depth + 1, "raise t(@, Trouble)")

    def put_return(self, depth: int, loop: bool) -> None:
        self.put(depth, "if t(@, yes()):")
        self.put(depth + 1, "return t(@)")

    def put_recurse(self, depth: int, loop: bool) -> None:
        if self.kind == "gen":
            self.put(depth, "for each in i(@, gen(depth - 1)):")
            self.put(depth + 1, "yield t(@, each)")
        else:
            self.put(depth, "await co(t(@, depth - 1))" if self.kind == "co" else "plain(t(@, depth - 1))")

    def put_listed(self, depth: int, loop: bool) -> None:
        self.put(depth, "t(@, [x for x in (1, 2, 3) if x])")

    def put_leave(self, depth: int, loop: bool) -> None:
        self.put(depth, "if t(@, yes()):")
        self.follow(depth + 1, self.draw(st.sampled_from(["break", "continue"])))

    def put_if(self, depth: int, loop: bool) -> None:
        self.put(depth, "if t(@, yes()):")
        self.block(depth + 1, loop)
        if self.draw(st.booleans()):
            self.put(depth, "elif t(@, yes()):")
            self.block(depth + 1, loop)
        if self.draw(st.booleans()):
            self.put(depth, "else:")
            self.block(depth + 1, loop)

    def put_for(self, depth: int, loop: bool) -> None:
        self.put(depth, f"for _ in i(@, range({self.draw(st.integers(0, 3))})):")
        self.block(depth + 1, True)
        if self.draw(st.booleans()):
            self.put(depth, "else:")
            self.block(depth + 1, loop)

    def put_while(self, depth: int, loop: bool) -> None:
        self.put(depth, "while t(@, yes()):")
        self.block(depth + 1, True)

    def put_try(self, depth: int, loop: bool) -> None:
        self.follow(depth, "try:")
        self.block(depth + 1, loop)
        self.put(depth, "except t(@, Trouble):")
        self.block(depth + 1, loop)

    def put_finally(self, depth: int, loop: bool) -> None:
        self.follow(depth, "try:")
        self.block(depth + 1, loop)
        self.put(depth, "finally:")
        self.put(depth + 1, "t(@)")

    def put_with(self, depth: int, loop: bool) -> None:
        self.put(depth, "with w(@):")
        self.block(depth + 1, loop)


@st.composite
def programs(draw: Callable[[Any], Any]) -> Program:
    writer = Writer(draw)
    writer.function("plain", "def plain(depth):")
    writer.function("gen", "def gen(depth):")
    writer.function("co", "async def co(depth):")
    return Program("\n".join(writer.lines) + "\n", draw(st.integers(0, 2**16)), writer.behind)
