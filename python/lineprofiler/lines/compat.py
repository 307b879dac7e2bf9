"""line_profiler's own types and functions: `LineStats` with its timings, `load_stats`, `show_text`."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any, TypeAlias

from lineprofiler.lines.model import FunctionKey, Line, Profile, merged
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
    """Timings of line_profiler: `timings` and the seconds of their `unit`. Adds up with ``+``."""

    def __init__(self, timings: Timings, unit: float) -> None:
        self.timings = timings
        self.unit = unit

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LineStats):
            return NotImplemented
        return self.timings == other.timings and self.unit == other.unit

    def __repr__(self) -> str:
        return f"LineStats({self.timings!r}, {self.unit!r})"

    def __add__(self, other: LineStats) -> LineStats:
        return LineStats.from_stats_objects(self, other)

    def print(self, stream: Any = None, **options: Any) -> None:
        """The table; options as those of `LineProfiler.print_stats`."""
        show_text(self.timings, self.unit, stream=stream, **options)

    def to_file(self, filename: Path) -> None:
        """Writes an ``.lprof`` file. Raises OSError."""
        from lineprofiler.lines import lprof

        lprof.write(str(filename), profile_of(self.timings, self.unit))

    @classmethod
    def from_files(cls, file: Path, *files: Path) -> LineStats:
        """The sum of ``.lprof`` files. Raises OSError, ValueError."""
        from lineprofiler.lines import lprof

        return cls(timings_of(merged(lprof.read(str(each)) for each in (file, *files))), 1e-9)

    @classmethod
    def from_stats_objects(cls, stats: Any, *more: Any) -> LineStats:
        """The sum of objects with `timings` and `unit`."""
        objects: Iterable[Any] = (stats, *more)
        return cls(timings_of(merged(profile_of(each.timings, each.unit) for each in objects)), 1e-9)


def load_stats(file: Path, *files: Path) -> LineStats:
    """The sum of ``.lprof`` files. Raises OSError, ValueError."""
    return LineStats.from_files(file, *files)


def show_text(
    timings: Timings, unit: float, output_unit: float | None = None, stream: Any = None, **options: Any
) -> None:
    """line_profiler's table of these timings; options `stripzeros details summarize sort rich`."""
    from lineprofiler.lines.tables import print_line_profiler

    print_line_profiler(profile_of(timings, unit), stream=stream, output_unit=output_unit, unit=unit, **options)
