"""The figures of a line profile, as plain data: what the tables print, the files hold and merges add.

Times are integer ns. A function is known by (file, first line, qualified name), so figures of the same function in
several processes, threads or code objects add up. Nothing here knows an engine, a file format or a screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lineprofiler.lines.source import VERSIONS, Source


class FunctionKey(NamedTuple):
    """What tells one function from another."""

    filename: str
    function_name: str
    first_line: int


@dataclass(slots=True)
class Line:
    """Figures of one line. `hits` are executions of its statement, `visits` the times that it was come to."""

    hits: int = 0
    visits: int = 0
    time_ns: int = 0
    self_ns: int = 0
    awaited_ns: int = 0

    def add(self, other: Line) -> None:
        self.hits += other.hits
        self.visits += other.visits
        self.time_ns += other.time_ns
        self.self_ns += other.self_ns
        self.awaited_ns += other.awaited_ns


@dataclass(slots=True)
class Function:
    """Figures of one function. `executable` are the lines that have code, hit or not; empty where that is unknown."""

    key: FunctionKey
    calls: int = 0
    time_ns: int = 0
    self_ns: int = 0
    awaited_ns: int = 0
    suspended: int = 0
    lines: dict[int, Line] = field(default_factory=dict)
    threads: dict[str, dict[int, Line]] = field(default_factory=dict)
    executable: frozenset[int] = frozenset()

    @property
    def total_ns(self) -> int:
        """Wall time inside the function, the outermost call of a recursion; the sum of its lines where it is unknown.

        Never less than that of one of its lines, which a correction of both could else make it.
        """
        times = [line.time_ns for line in self.lines.values()]
        return max(self.time_ns, *times) if self.time_ns and times else self.time_ns or sum(times)

    @property
    def lines_self_ns(self) -> int:
        """Self time as everything shows it: that of the lines. The function's own is rounded by itself, and is nothing
        where it began before the profiler."""
        return sum(line.self_ns for line in self.lines.values())

    def add(self, other: Function) -> None:
        # Where one of them has no time of its own, the sum of lines stands in for it.
        self.time_ns = self.total_ns + other.total_ns
        self.calls += other.calls
        self.self_ns += other.self_ns
        self.awaited_ns += other.awaited_ns
        self.suspended += other.suspended
        add_lines(self.lines, other.lines)
        for thread, lines in other.threads.items():
            add_lines(self.threads.setdefault(thread, {}), lines)
        self.executable |= other.executable


def add_lines(target: dict[int, Line], source: dict[int, Line]) -> None:
    for number, line in source.items():
        if number in target:
            target[number].add(line)
        else:
            target[number] = Line(line.hits, line.visits, line.time_ns, line.self_ns, line.awaited_ns)


@dataclass(slots=True)
class Profile:
    """A whole line profile. `own_cost`: ns an event, as subtracted, with errors; `notes`: what was not measured."""

    functions: dict[FunctionKey, Function] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    own_cost: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    """Where processes are that still run, or were when they were killed."""
    processes: int = 1
    full: bool = True
    """False where only hits and times are known, as in files of line_profiler."""

    def function(self, key: FunctionKey) -> Function:
        found = self.functions.get(key)
        if found is None:
            found = self.functions[key] = Function(key)
        return found

    def merge(self, other: Profile) -> None:
        """Adds the figures of another profile, of which nothing is changed."""
        for key, function in other.functions.items():
            self.function(key).add(function)
        for filename, source in other.sources.items():
            known = self.sources.get(filename)
            if known is None or not known.lines:
                self.sources[filename] = source
            elif source.lines and (source.note == VERSIONS or source.lines != known.lines):
                self.sources[filename] = replace(known, note=VERSIONS)
        for name, cost in other.own_cost.items():
            self.own_cost[name] = max(cost, self.own_cost.get(name, 0.0))
        self.notes += [note for note in other.notes if note not in self.notes]
        self.places += other.places
        self.processes += other.processes
        self.full = self.full and other.full

    def source(self, filename: str) -> Source:
        return self.sources.get(filename) or Source((), "no source")

    def by_time(self) -> list[Function]:
        return sorted(self.visited(), key=lambda f: (-f.total_ns, f.key))

    def visited(self) -> Iterator[Function]:
        return (f for f in self.functions.values() if f.lines)

    @property
    def self_ns(self) -> int:
        return sum(line.self_ns for f in self.functions.values() for line in f.lines.values())

    @property
    def is_empty(self) -> bool:
        return not any(True for _ in self.visited())


def merged(profiles: Iterable[Profile]) -> Profile:
    """All of them added up; none of them is changed."""
    total = Profile(processes=0)
    for profile in profiles:
        total.merge(profile)
    return total
