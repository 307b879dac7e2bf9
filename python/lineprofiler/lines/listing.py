"""Our own table: every column that is measured, cold stretches folded, what the profiler cost stated at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineprofiler.lines import screen
from lineprofiler.lines.model import Function, Line, Profile
from lineprofiler.lines.screen import BOLD, DIM, RED, RESET, YELLOW, duration, inert, uncertain
from lineprofiler.lines.source import last_line, numbers_between
from lineprofiler.lines.tables import shown_path, without_name

HOT, WARM = 20.0, 5.0
"""Percent of the function from which a line is red, or yellow."""
FOLD = 4
"""Cold lines in a row that are folded into one."""
COLD_BELOW = 0.5
_BAR = 8


@dataclass(frozen=True)
class Layout:
    """How it is printed. `unit_s`: all times in this unit, None: each in its own; `width`: columns, None: no limit."""

    color: bool = False
    width: int | None = None
    unit_s: float | None = None
    top: int = 25
    everything: bool = False
    threads: bool = False
    skip_zero: bool = False
    root: Path | None = None

    def paint(self, color: str, text: str) -> str:
        return f"{color}{text}{RESET}" if self.color and color and text.strip() else text


def layout_for(stream: Any, **options: Any) -> Layout:
    """The layout that suits a stream: colours and width of its terminal."""
    return Layout(color=screen.wants_color(stream), width=screen.width_of(stream), **options)


def render(
    profile: Profile, layout: Layout, *, functions: bool = True, top: bool = True, what: str = "of the profiled code"
) -> str:
    """The hottest lines, then each function; nothing but a sentence, of `what`, if no line ran."""
    if profile.is_empty:
        return f"No line {what} was executed.\n" + _notes(profile)
    parts = [_head(profile, layout)]
    if profile.places:
        parts.append("".join(f"{inert(place)}\n" for place in profile.places) + "\n")
    if top:
        parts.append(_hottest(profile, layout))
    if functions:
        shown, rest = _worth_showing(profile, layout)
        parts += [_function(profile, f, layout) for f in shown]
        if rest:
            share = _percent(sum(_self(profile, f) for f in rest), _whole(profile))
            parts.append(f"{len(rest)} more function{_s(len(rest))} with {share:.1f} % together (--all shows them)\n\n")
    parts.append(_foot(profile, layout))
    return "".join(parts)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def _self(profile: Profile, function: Function) -> int:
    if profile.full:
        return function.lines_self_ns
    return function.total_ns


def _whole(profile: Profile) -> int:
    return sum(_self(profile, f) for f in profile.visited())


def _worth_showing(profile: Profile, layout: Layout) -> tuple[list[Function], list[Function]]:
    functions = profile.by_time()
    if layout.skip_zero:
        functions = [f for f in functions if f.total_ns]
    if layout.everything:
        return functions, []
    whole = _whole(profile)
    shown = [f for n, f in enumerate(functions) if n < 3 or _percent(max(_self(profile, f), f.total_ns), whole) >= 1.0][
        : max(layout.top, 1)
    ]
    known = {f.key for f in shown}
    return shown, [f for f in functions if f.key not in known]


def _head(profile: Profile, layout: Layout) -> str:
    count = sum(1 for _ in profile.visited())
    files = len({f.key.filename for f in profile.visited()})
    text = f"{count} function{_s(count)} in {files} file{_s(files)}"
    if profile.processes > 1:
        text += f", {profile.processes} processes"
    what = "profiled code" if profile.full else "profiled functions, callees counted in each"
    head = layout.paint(BOLD, f"{duration(_whole(profile), layout.unit_s)} in {what}") + f"  ({text})\n"
    return f"{head}{unit_named(layout.unit_s)}\n"


def unit_named(unit_s: float | None) -> str:
    """A line that says in what unit all times are, if they are in one."""
    return f"All times are in units of {unit_s:g} s.\n" if unit_s is not None else ""


def _hottest(profile: Profile, layout: Layout) -> str:
    whole = _whole(profile)
    rows = [(f, n, line) for f in profile.visited() for n, line in f.lines.items()]
    rows.sort(key=lambda r: (-(r[2].self_ns if profile.full else r[2].time_ns), r[0].key, r[1]))
    rows = [r for r in rows if r[2].self_ns or r[2].time_ns][: max(layout.top, 0)]
    if not rows:
        return ""
    title = "Hottest lines by self time" if profile.full else "Hottest lines"
    cells = []
    for f, n, line in rows:
        own = line.self_ns if profile.full else line.time_ns
        place = f"{_short(f.key.filename, layout.root)}:{n}{without_name(f.key.function_name)}"
        cells.append(
            (f"{_percent(own, whole):.1f}", duration(own, layout.unit_s), f"{line.hits:,}", place, (f, n, own))
        )
    widths = [max(screen.columns(str(c[n])) for c in cells) for n in range(4)]
    out = [layout.paint(BOLD, title) + "\n"]
    for share, own_text, hits, place, (f, n, own) in cells:
        heat = _heat(_percent(own, whole))
        out.append(
            "  ".join(
                (
                    layout.paint(heat, f"{share:>{max(widths[0], 5)}} %"),
                    f"{own_text:>{widths[1]}}",
                    f"{hits:>{widths[2]}}",
                    layout.paint(DIM, screen.left(place, widths[3])),
                )
            )
            + "  "
        )
        used = max(widths[0], 5) + 4 + widths[1] + 2 + widths[2] + 2 + widths[3] + 2
        text = inert(profile.source(f.key.filename).line(n)).strip() or inert(f.key.function_name)
        out.append(_source_text(text, layout, used) + "\n")
    return "".join([*out, "\n"])


def _short(filename: str, root: Path | None) -> str:
    shown = shown_path(filename, root)
    return inert(shown if shown != filename else os.path.basename(filename) or filename)


def _heat(share: float) -> str:
    return RED if share >= HOT else YELLOW if share >= WARM else ""


def _source_text(text: str, layout: Layout, used: int) -> str:
    shown = text if layout.width is None else screen.cut(text, max(layout.width - used, 16))
    return screen.highlight([text], [shown])[0] if layout.color else shown


@dataclass(frozen=True)
class _Columns:
    """Which columns a function's table has, and how wide."""

    names: tuple[str, ...]
    widths: tuple[int, ...]

    @property
    def used(self) -> int:
        return sum(self.widths) + 2 * len(self.widths) + 2


def _function(profile: Profile, function: Function, layout: Layout) -> str:
    parts = [_title(profile, function, layout), _table(profile, function, function.lines, layout)]
    if layout.threads and len(function.threads) > 1:
        for thread, lines in sorted(function.threads.items()):
            parts.append(layout.paint(DIM, f"in thread {inert(thread)}") + "\n")
            parts.append(_table(profile, function, lines, layout))
    return "".join(parts)


def _title(profile: Profile, function: Function, layout: Layout) -> str:
    key = function.key
    facts = [duration(function.total_ns, layout.unit_s)]
    if profile.full:
        facts.append(f"self {duration(_self(profile, function), layout.unit_s)}")
    if function.awaited_ns:
        facts.append(f"awaited {duration(function.awaited_ns, layout.unit_s)}")
    if function.calls:
        facts.append(f"{function.calls:,} call{_s(function.calls)}")
    note = profile.source(key.filename).note
    place = f"{shown_path(key.filename, layout.root)}:{key.first_line}"
    name = layout.paint(BOLD, inert(key.function_name))
    text = f"{name}  {layout.paint(DIM, inert(place))}\n  {' · '.join(facts)}\n"
    return text + (f"  {layout.paint(YELLOW, inert(note))}\n" if note else "")


def _cells(line: Line, whole: int, names: tuple[str, ...], layout: Layout) -> list[str]:
    values = {
        "hits": f"{line.hits:,}",
        "time": duration(line.time_ns, layout.unit_s),
        "self": duration(line.self_ns, layout.unit_s),
        "awaited": duration(line.awaited_ns, layout.unit_s) if line.awaited_ns else "",
        "per hit": duration(line.time_ns / line.hits, layout.unit_s) if line.hits else "",
        "%": f"{_percent(line.time_ns, whole):.1f}",
    }
    return [values[name] for name in names]


def _table(profile: Profile, function: Function, lines: dict[int, Line], layout: Layout) -> str:
    whole = function.total_ns
    names: tuple[str, ...] = ("hits", "time")
    if profile.full:
        names += ("self",)
    if any(line.awaited_ns for line in lines.values()):
        names += ("awaited",)
    names += ("per hit", "%")
    source = profile.source(function.key.filename)
    first = min((function.key.first_line, *lines)) if function.key.function_name != "<module>" else min(lines)
    last = last_line(source, function.key.function_name, function.key.first_line, max((first, *lines)))
    if function.key.function_name == "<module>":
        last = max(lines)
    numbers = numbers_between(source, first, last, lines)
    body = {n: _cells(line, whole, names, layout) for n, line in lines.items()}
    widths = [max(5, len(str(last)))]
    widths += [max(len(name), *(len(row[n]) for row in body.values())) for n, name in enumerate(names)]
    columns = _Columns(("line", *names), tuple(widths))
    texts = [inert(source.line(n)) for n in numbers]
    indent = min((len(t) - len(t.lstrip()) for t in texts if t.strip()), default=0)
    texts = [t[indent:] for t in texts]
    shown = texts
    if layout.width is not None:
        shown = [screen.cut(t, max(layout.width - columns.used - _BAR - 1, 16)) for t in texts]
    colored = dict(zip(numbers, screen.highlight(texts, shown) if layout.color else shown, strict=True))
    head = "  ".join(f"{name:>{w}}" for name, w in zip(columns.names, columns.widths, strict=True))
    out = [layout.paint(DIM, head) + "\n"]
    for stretch in _folded(numbers, lines, whole, first, layout):
        if isinstance(stretch, int):
            n = stretch
            out.append(_row(n, body.get(n), lines.get(n), whole, columns, colored[n], layout))
        else:
            share = _percent(sum(lines[n].time_ns for n in stretch if n in lines), whole)
            dots = f"{'⋮':>{columns.widths[0]}}  {len(stretch)} lines, {share:.1f} %"
            out.append(layout.paint(DIM, dots) + "\n")
    return "".join([*out, "\n"])


def _row(
    number: int, cells: list[str] | None, line: Line | None, whole: int, columns: _Columns, text: str, layout: Layout
) -> str:
    left = [layout.paint(DIM, f"{number:>{columns.widths[0]}}")]
    share = _percent(line.time_ns, whole) if line is not None else 0.0
    for name, width, cell in zip(columns.names[1:], columns.widths[1:], cells or [""] * 9, strict=False):
        shown = f"{cell:>{width}}"
        left.append(layout.paint(_heat(share), shown) if name in ("time", "%") else shown)
    filled = share / 100 * _BAR
    bar = "█" * int(filled) + ("▌" if filled - int(filled) >= 0.5 else "")
    return ("  ".join(left) + " " + layout.paint(_heat(share) or DIM, f"{bar:<{_BAR}}") + " " + text).rstrip() + "\n"


def _folded(
    numbers: list[int], lines: dict[int, Line], whole: int, first: int, layout: Layout
) -> Iterable[int | list[int]]:
    """Line numbers to show, and lists of those that are folded."""
    if layout.everything:
        yield from numbers
        return
    warm = {n for n, line in lines.items() if _percent(line.time_ns, whole) >= COLD_BELOW or line.awaited_ns}
    near = {n + d for n in warm for d in (-1, 0, 1)} | {first}
    cold: list[int] = []
    for n in [*numbers, None]:
        if n is not None and n not in near:
            cold.append(n)
            continue
        if len(cold) < FOLD:
            yield from cold
        else:
            yield cold
        cold = []
        if n is not None:
            yield n


def _foot(profile: Profile, layout: Layout) -> str:
    parts = []
    cost = profile.own_cost
    if cost.get("line"):
        text = f"Own cost is subtracted: {uncertain(cost['line'], cost.get('line_error', 0.0))} ns a line"
        if cost.get("call"):
            text += f", {uncertain(cost['call'], cost.get('call_error', 0.0))} ns a call"
        parts.append(layout.paint(DIM, text + ".") + "\n")
    if cost.get("instruction"):
        text = uncertain(cost["instruction"], cost.get("instruction_error", 0.0))
        parts.append(layout.paint(DIM, f"Tracing slows each instruction by {text} ns or more: subtracted, too.") + "\n")
    if not profile.full:
        parts.append(layout.paint(DIM, "A file of line_profiler: self and awaited time are not in it.") + "\n")
    return "".join(parts) + _notes(profile)


def _notes(profile: Profile) -> str:
    return "".join(f"Not measured: {inert(note)}\n" for note in profile.notes)
