"""The two tables that programs know: that of the package whose interface this one keeps, and that of line_profiler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lineprofiler.lines.model import Function, Line, Profile
from lineprofiler.lines.screen import cut, emit, highlight, inert, left, significant
from lineprofiler.lines.settings import Config, column_widths
from lineprofiler.lines.source import last_line, numbers_between
from lineprofiler.lines.stats import in_order, lines_in_order

NOTHING = "No profiling data collected.\n"
NOTHING_ABOVE = "No profiling data above the threshold.\n"
NO_REGIONS = "No regions recorded.\n"

_FUNCTION_HEAD = f"{'Line #':<8} {'Hits':<10} {'Time (µs)':<15} {'Per Hit (µs)':<15} {'% Time':<10} Line Content\n"
_GLOBAL_HEAD = (
    f"{'File::Function':<50} {'Line':<6} {'Hits':<10} {'Time (µs)':<13} {'Per Hit (µs)':<14} {{:<8}} Line Content\n"
)


def print_functions(
    profile: Profile, *, min_time_us: float, top_n_lines: int | None, sort_by: str, stream: Any
) -> None:
    """A table for each function, with the lines that were hit. Raises ValueError for an unknown `sort_by`."""
    lines_in_order({}, sort_by)
    if profile.is_empty:
        emit(NOTHING, stream)
        return
    shown = []
    for function in in_order(profile, sort_by):
        rows = [
            (n, line)
            for n, line in lines_in_order(function.lines, sort_by)
            if line.time_ns >= min_time_us * 1000 and _is_shown(line, function.total_ns)
        ]
        if rows or min_time_us <= 0:
            shown.append(_function(profile, function, rows[:top_n_lines]))
    emit("".join(shown) or NOTHING_ABOVE, stream)


def _function(profile: Profile, function: Function, rows: list[tuple[int, Line]]) -> str:
    source = profile.source(function.key.filename)
    total = function.total_ns
    parts = ["=" * 100, "\n", f"File: {inert(function.key.filename)}\n"]
    parts.append(f"Function: {inert(function.key.function_name)} at line {function.key.first_line}\n")
    parts.append(f"Total time: {total / 1000:.1f} µs\n")
    if source.note:
        parts.append(f"({inert(source.note)})\n")
    parts += ["=" * 100, "\n", _FUNCTION_HEAD, "-" * 100, "\n"]
    for number, line in rows:
        content = cut(inert(source.line(number)), 50)
        parts.append(
            f"{number:<8} {line.hits:<10} {line.time_ns / 1000:<15.1f} {_per_hit(line):<15.1f} "
            f"{_share(line.time_ns, total):<10.1f} {content}".rstrip()
            + "\n"
        )
    return "".join([*parts, "\n"])


def _per_hit(line: Line) -> float:
    return line.time_ns / 1000 / line.hits if line.hits else 0.0


def _is_shown(line: Line, whole: int) -> bool:
    """Not the end of a visit that began before, as of the `with` that switches the profiler off, if it took nothing."""
    return line.hits > 0 or _share(line.time_ns, whole) >= 0.05


def _share(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def print_top(
    profile: Profile, *, root: Path | None, top_n: int, min_time_us: float, sort_by: str, stream: Any
) -> None:
    """The lines of all functions in one table. Raises ValueError for an unknown `sort_by`."""
    lines_in_order({}, sort_by)
    if profile.is_empty:
        emit(NOTHING, stream)
        return
    rows = _top_rows(profile, min_time_us, sort_by)
    if not rows:
        emit(NOTHING_ABOVE, stream)
        return
    rule = "=" * 130 + "\n"
    head = _GLOBAL_HEAD.format("% Time") + "-" * 130 + "\n"
    body = [_top_row(profile, root, f, n, line, f.total_ns) for f, n, line in rows[:top_n]]
    emit(
        f"{rule}Top {top_n} lines across all functions (sorted by {sort_by})\n{rule}{head}{''.join(body)}{rule}\n",
        stream,
    )


def _top_rows(profile: Profile, min_time_us: float, sort_by: str) -> list[tuple[Function, int, Line]]:
    rows = [
        (f, number, line)
        for f in in_order(profile, "line")
        for number, line in sorted(f.lines.items())
        if line.time_ns >= min_time_us * 1000 and _is_shown(line, f.total_ns)
    ]
    if sort_by == "time":
        rows.sort(key=lambda row: -row[2].time_ns)
    elif sort_by == "hits":
        rows.sort(key=lambda row: -row[2].hits)
    return rows


def _top_row(profile: Profile, root: Path | None, function: Function, number: int, line: Line, whole: int) -> str:
    label = cut(inert(f"{shown_path(function.key.filename, root)}::{function.key.function_name}"), 50)
    content = cut(inert(profile.source(function.key.filename).line(number)), 40)
    return (
        f"{left(label, 50)} {number:<6} {line.hits:<10} {line.time_ns / 1000:<13.1f} {_per_hit(line):<14.1f} "
        f"{_share(line.time_ns, whole):<8.1f} {content}".rstrip()
        + "\n"
    )


def shown_path(filename: str, root: Path | None) -> str:
    """Relative to the project where it lies in it."""
    if root is not None and filename.startswith(str(root).rstrip(os.sep) + os.sep):
        return filename[len(str(root).rstrip(os.sep)) + 1 :]
    return filename


def without_name(function_name: str) -> str:
    """Tells a lambda or a generator expression, behind its place, from the function around it; "" for others."""
    last = function_name.rpartition(".")[2]
    return f" {inert(last)}" if last.startswith("<") and function_name != "<module>" else ""


def print_regions(
    regions: dict[str, tuple[int, int, Profile]],
    whole_ns: int,
    *,
    root: Path | None,
    top_n: int,
    min_time_us: float,
    stream: Any,
) -> None:
    """A table for each region, the dearest first: (entries, ns, lines that ran in it), as shares of `whole_ns`."""
    if not regions:
        emit(NO_REGIONS, stream)
        return
    rule = "=" * 130 + "\n"
    parts = []
    for name, (entries, spent, profile) in sorted(regions.items(), key=lambda each: (-each[1][1], each[0])):
        us = spent / 1000
        parts.append(
            f"{rule}Region: {inert(name)}  —  {us:.1f} µs, {_share(spent, whole_ns):.1f}% of profiled time, "
            f"{entries} entries, {us / entries if entries else 0.0:.1f} µs each\n{rule}"
        )
        parts += [_GLOBAL_HEAD.format("% Region "), "-" * 130, "\n"]
        rows = _top_rows(profile, min_time_us, "time")[:top_n]
        parts += [_top_row(profile, root, f, n, line, spent) for f, n, line in rows]
        parts.append("\n")
    emit("".join(parts), stream)


def print_line_profiler(
    profile: Profile,
    *,
    stream: Any = None,
    output_unit: float | None = None,
    stripzeros: bool = False,
    details: bool = True,
    summarize: bool = False,
    sort: bool = False,
    rich: bool = False,
    config: Config = None,
    unit: float = 1e-9,
) -> None:
    """line_profiler's tables. `output_unit` in seconds; `stripzeros` leaves out functions that did not run; `rich`
    colours the source; `config`: the TOML file that sets the widths of columns, None: the one that is found
    (`settings`), False: none. Raises OSError and ValueError when a file that is given cannot be read."""
    least = column_widths(config)
    shown = output_unit if output_unit is not None else unit
    functions = sorted(profile.functions.values(), key=lambda f: (f.key.filename, f.key.first_line))
    if sort:
        functions.sort(key=lambda f: f.total_ns)
    if stripzeros:
        functions = [f for f in functions if _has_run(f)]
    parts = [f"Timer unit: {shown:g} s\n\n"]
    if details:
        parts += [_details(profile, f, shown, least, exact=shown == unit, color=rich) for f in functions]
    if summarize:
        parts += [
            f"{f.total_ns * 1e-9:6.2f} seconds - {inert(f.key.filename)}:{f.key.first_line} - "
            f"{inert(f.key.function_name)}\n"
            for f in functions
        ]
    emit("".join(parts), stream)


_NAMES = ("Line #", "Hits", "Time", "Per Hit", "% Time")


def _details(
    profile: Profile, function: Function, unit: float, least: tuple[int, ...], *, exact: bool, color: bool
) -> str:
    key, source, total = function.key, profile.source(function.key.filename), function.total_ns
    parts = [f"Total time: {total * 1e-9:g} s\nFile: {inert(key.filename)}\n"]
    if source.note:
        parts.append(f"({inert(source.note)})\n")
    parts.append(f"Function: {inert(key.function_name)} at line {key.first_line}\n\n")
    last = last_line(source, key.function_name, key.first_line, max((key.first_line, *function.lines)))
    numbers = numbers_between(source, min((key.first_line, *function.lines)), last, function.lines)
    texts = [inert(source.line(number)) for number in numbers]
    rows = []
    for number in numbers:
        line = function.lines.get(number)
        cells = ["", "", "", ""]
        if line is not None:
            time = line.time_ns * 1e-9 / unit
            each = time / line.hits if line.hits else 0.0
            cells = [str(line.hits), _cell(time, exact), _cell(each, exact), f"{_share(line.time_ns, total):5.1f}"]
        rows.append([str(number), *cells])
    widths = [max([w, *(len(row[n]) for row in rows)]) for n, w in enumerate(least)]
    head = " ".join(f"{name:>{w}}" for name, w in zip(_NAMES, widths, strict=True)) + "  Line Contents"
    parts.append(f"{head}\n{'=' * len(head)}\n")
    for row, text in zip(rows, highlight(texts) if color else texts, strict=True):
        parts.append(" ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)) + f"  {text}\n")
    return "".join([*parts, "\n"])


def print_one_function(
    profile: Profile,
    *,
    stream: Any = None,
    output_unit: float | None = None,
    stripzeros: bool = False,
    rich: bool = False,
    config: Config = None,
    unit: float = 1e-9,
) -> None:
    """line_profiler's table of each function, without the line that names the unit."""
    least = column_widths(config)
    shown = output_unit if output_unit is not None else unit
    functions = [f for f in profile.functions.values() if not stripzeros or _has_run(f)]
    emit("".join(_details(profile, f, shown, least, exact=shown == unit, color=rich) for f in functions), stream)


def _has_run(function: Function) -> bool:
    return any(line.hits for line in function.lines.values())


def _cell(value: float, exact: bool) -> str:
    # One digit after the point is enough for whole ns; in a larger unit it would make a short line 0.0.
    return f"{value:5.1f}" if exact else significant(value)
