"""line_profiler's own types and functions: `LineStats` with its timings, `load_stats`, `show_text`, `show_func`."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any, TypeAlias

from lineprofiler.lines import tables
from lineprofiler.lines.model import FunctionKey, Line, Profile
from lineprofiler.lines.settings import Config
from lineprofiler.lines.source import from_disk

Timings: TypeAlias = dict[tuple[str, int, str], list[tuple[int, int, int]]]
"""{(filename, first line, name): [(line, hits, time in units), …]}"""
Path: TypeAlias = "str | PathLike[str]"


def timings_of(profile: Profile) -> Timings:
    """Times in ns, functions by file and line."""
    return {
        (f.key.filename, f.key.first_line, f.key.function_name): [
            (number, line.hits, line.time_ns) for number, line in sorted(f.lines.items()) if line.hits or line.time_ns
        ]
        for f in sorted(profile.functions.values(), key=lambda f: (f.key.filename, f.key.first_line))
    }


def profile_of(timings: Timings, unit: float) -> Profile:
    """Figures of line_profiler as a profile, with the sources as they are now."""
    profile = Profile(full=False)
    for (filename, first, name), rows in timings.items():
        function = profile.function(FunctionKey(filename, name, first))
        for number, hits, time in rows:
            function.lines.setdefault(number, Line()).add(Line(hits, hits, round(time * unit / 1e-9)))
        if filename not in profile.sources:
            profile.sources[filename] = from_disk(filename)
    return profile


class LineStats:
    """Timings of line_profiler: `timings` and the seconds of their `unit`. Adds up with ``+`` and ``+=``."""

    def __init__(self, timings: Timings, unit: float) -> None:
        self.timings = timings
        self.unit = unit

    def __eq__(self, other: object) -> bool:
        if not hasattr(other, "timings") or not hasattr(other, "unit"):
            return NotImplemented
        return bool(self.timings == other.timings and self.unit == other.unit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.timings}, {self.unit:.2G})"

    def __add__(self, other: Any) -> LineStats:
        return self.from_stats_objects(self, other)

    def __iadd__(self, other: Any) -> LineStats:
        self.timings, self.unit = _sum([self, other])
        return self

    def print(
        self,
        stream: Any = None,
        output_unit: float | None = None,
        stripzeros: bool = False,
        details: bool = True,
        summarize: bool = False,
        sort: bool = False,
        rich: bool = False,
        *,
        config: Config = None,
    ) -> None:
        """The table; options as those of `LineProfiler.print_stats`."""
        show_text(
            self.timings, self.unit, output_unit, stream, stripzeros, details, summarize, sort, rich, config=config
        )

    def to_file(self, filename: Path) -> None:
        """Writes an ``.lprof`` file. Raises OSError."""
        from lineprofiler.lines import lprof

        lprof.write_timings(os.fspath(filename), self.timings, self.unit)

    @classmethod
    def from_files(cls, file: Path, *files: Path) -> LineStats:
        """The sum of ``.lprof`` files. Raises OSError, ValueError."""
        from lineprofiler.lines import lprof

        return cls(*_sum([cls(*lprof.read_timings(os.fspath(each))) for each in (file, *files)]))

    @classmethod
    def from_stats_objects(cls, stats: Any, *more: Any) -> LineStats:
        """The sum of objects with `timings` and `unit`."""
        return cls(*_sum([stats, *more]))


def _sum(objects: list[Any]) -> tuple[Timings, float]:
    """In the finest unit of them, so that no digit is lost."""
    unit = min(each.unit for each in objects)
    if len(objects) == 1:
        return {key: list(rows) for key, rows in objects[0].timings.items()}, unit
    found: dict[tuple[str, int, str], dict[int, tuple[int, int]]] = {}
    for each in objects:
        for key, rows in each.timings.items():
            lines = found.setdefault(key, {})
            for number, hits, time in rows:
                before = lines.get(number, (0, 0))
                more = time if each.unit == unit else round(time * (each.unit / unit))
                lines[number] = (before[0] + hits, before[1] + more)
    return {key: [(n, *figures) for n, figures in sorted(lines.items())] for key, lines in found.items()}, unit


def load_stats(file: Path, *files: Path) -> LineStats:
    """The sum of ``.lprof`` files. Raises OSError, ValueError."""
    return LineStats.from_files(file, *files)


def show_text(
    stats: Timings,
    unit: float,
    output_unit: float | None = None,
    stream: Any = None,
    stripzeros: bool = False,
    details: bool = True,
    summarize: bool = False,
    sort: bool = False,
    rich: bool = False,
    *,
    config: Config = None,
) -> None:
    """line_profiler's table of these timings; options as those of `LineProfiler.print_stats`."""
    tables.print_line_profiler(
        profile_of(stats, unit),
        stream=stream,
        output_unit=output_unit,
        stripzeros=stripzeros,
        details=details,
        summarize=summarize,
        sort=sort,
        rich=rich,
        config=config,
        unit=unit,
    )


def show_func(
    filename: str,
    start_lineno: int,
    func_name: str,
    timings: list[tuple[int, int, int]],
    unit: float,
    output_unit: float | None = None,
    stream: Any = None,
    stripzeros: bool = False,
    rich: bool = False,
    *,
    config: Config = None,
) -> None:
    """line_profiler's table of one function, whose rows are (line, hits, time in units)."""
    tables.print_one_function(
        profile_of({(filename, start_lineno, func_name): timings}, unit),
        stream=stream,
        output_unit=output_unit,
        stripzeros=stripzeros,
        rich=rich,
        config=config,
        unit=unit,
    )
