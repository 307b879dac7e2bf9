"""What `get_stats()` gives: functions and lines as dataclasses in seconds, and the same as line_profiler has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lineprofiler.lines.model import Function, FunctionKey, Line, Profile

if TYPE_CHECKING:
    from lineprofiler.lines.compat import Timings

NS = 1e-9


@dataclass
class LineStats:
    """Figures of one line, times in seconds. `total_time` is with, `self_time` without what profiled callees took;
    `awaited_time` passed while the function was suspended there. `visits` counts each time the line was come to."""

    line_number: int
    hits: int = 0
    total_time: float = 0.0
    self_time: float = 0.0
    awaited_time: float = 0.0
    visits: int = 0

    @property
    def average_time(self) -> float:
        """Seconds a hit; 0.0 without hits."""
        return self.total_time / self.hits if self.hits else 0.0


@dataclass
class FunctionStats:
    """Figures of one function, times in seconds. `source_lines` are those of the whole file, by number."""

    filename: str
    function_name: str
    first_line: int
    line_stats: dict[int, LineStats] = field(default_factory=dict)
    source_lines: dict[int, str] = field(default_factory=dict)
    total_time: float = 0.0
    self_time: float = 0.0
    awaited_time: float = 0.0
    calls: int = 0


class Stats(dict[FunctionKey, FunctionStats]):
    """Functions by (filename, function_name, first_line), those with most time first."""

    def __init__(self, profile: Profile, sort_by: str = "time") -> None:
        self._profile = profile
        sources = {path: source.numbered() for path, source in profile.sources.items()}
        super().__init__(
            (f.key, _function(f, sources.get(f.key.filename, {}), sort_by)) for f in in_order(profile, sort_by)
        )

    @property
    def timings(self) -> Timings:
        """line_profiler's form: {(filename, first line, name): [(line, hits, time in units), …]}."""
        from lineprofiler.lines.compat import timings_of

        return timings_of(self._profile)

    @property
    def unit(self) -> float:
        """Seconds of a unit of `timings`."""
        return NS

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict a line, for a DataFrame: ``pandas.DataFrame(profiler.get_stats().rows())``. Times are ns."""
        return rows_of(self._profile)

    def to_file(self, filename: Any) -> None:
        """Writes an ``.lprof`` file. Raises OSError."""
        from lineprofiler.lines import lprof

        lprof.write(filename, self._profile)

    def print(self, stream: Any = None, **options: Any) -> None:
        """line_profiler's table; options as those of `LineProfiler.print_stats`."""
        from lineprofiler.lines.tables import print_line_profiler

        print_line_profiler(self._profile, stream=stream, **options)


def in_order(profile: Profile, sort_by: str) -> list[Function]:
    if sort_by == "line":
        return sorted(profile.visited(), key=lambda f: (f.key.filename, f.key.first_line, f.key.function_name))
    if sort_by == "hits":
        return sorted(profile.visited(), key=lambda f: (-sum(line.hits for line in f.lines.values()), f.key))
    return profile.by_time()


def lines_in_order(lines: dict[int, Line], sort_by: str) -> list[tuple[int, Line]]:
    """Raises ValueError for an order that there is not."""
    if sort_by == "line":
        return sorted(lines.items())
    if sort_by == "hits":
        return sorted(lines.items(), key=lambda each: (-each[1].hits, each[0]))
    if sort_by == "time":
        return sorted(lines.items(), key=lambda each: (-each[1].time_ns, each[0]))
    raise ValueError(f"sort_by {sort_by!r}: 'line', 'time' or 'hits'")


def _function(function: Function, source: dict[int, str], sort_by: str) -> FunctionStats:
    lines = {
        number: LineStats(number, line.hits, line.time_ns * NS, line.self_ns * NS, line.awaited_ns * NS, line.visits)
        for number, line in lines_in_order(function.lines, sort_by)
    }
    key = function.key
    return FunctionStats(
        key.filename,
        key.function_name,
        key.first_line,
        lines,
        source,
        function.total_ns * NS,
        function.lines_self_ns * NS,
        function.awaited_ns * NS,
        function.calls,
    )


COLUMNS = ["file", "function", "first_line", "line", "hits", "visits", "time_ns", "self_ns", "awaited_ns", "source"]


def rows_of(profile: Profile) -> list[dict[str, Any]]:
    """A dict of `COLUMNS` a line; None is what was not measured."""
    return [
        {
            "file": f.key.filename,
            "function": f.key.function_name,
            "first_line": f.key.first_line,
            "line": number,
            "hits": line.hits,
            "visits": line.visits if profile.full else None,
            "time_ns": line.time_ns,
            "self_ns": line.self_ns if profile.full else None,
            "awaited_ns": line.awaited_ns if profile.full else None,
            "source": profile.source(f.key.filename).line(number),
        }
        for f in in_order(profile, "line")
        for number, line in sorted(f.lines.items())
    ]
