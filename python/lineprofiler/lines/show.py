"""``lineprofiler lines``: prints, merges, exports and compares line profiles."""

from __future__ import annotations

import argparse
import csv
import difflib
import errno
import io
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineprofiler.config import find_project_root
from lineprofiler.lines import listing, lprof, screen
from lineprofiler.lines.command import Parser, UsageError, usage_error
from lineprofiler.lines.model import Function, Line, Profile, merged
from lineprofiler.lines.screen import BOLD, DIM, GREEN, RED, duration, inert
from lineprofiler.lines.settings import settings
from lineprofiler.lines.shared import read_folder
from lineprofiler.lines.source import last_line, numbers_between
from lineprofiler.lines.stats import COLUMNS, in_order, rows_of
from lineprofiler.lines.tables import print_line_profiler, shown_path

LONG = 1000
"""Lines of a function from which on those that come often are matched by their neighbours."""
UNKNOWN = 100_000
"""Lines from the first to the last of a function without a text, up to which they are compared by their places."""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="lineprofiler lines",
        usage="lineprofiler lines [options] FILE...\n       lineprofiler lines --diff [options] A B",
        description="Prints line profiles, added up: .lprof files, of line_profiler as well, and folders to which "
        "processes write them (lineprofiler run --live), also while these run.",
    )
    add = found.add_argument
    add("files", nargs="*", metavar="FILE", help=".lprof file, or folder of a live run")
    add("--format", choices=("text", "json", "csv"), default="text", help="text (default), json or csv")
    add("--diff", action="store_true", help="compare two files: which lines got slower, which faster")
    add("--top", type=int, default=25, metavar="N", help="how many lines are listed (25)")
    add("--all", action="store_true", help="fold nothing, leave no function out")
    add("--threads", action="store_true", help="also the lines of each thread")
    add("-u", "--unit", type=float, metavar="SECONDS", help="unit of all times (default: each in its own)")
    add("-z", "--skip-zero", action="store_true", help="leave out functions that took no time")
    add("-t", "--sort", action="store_true", help="line_profiler's table, dearest function last")
    add("-m", "--summarize", action="store_true", help="line_profiler's table, a line for each function at its end")
    add("-r", "--rich", action="store_true", help="line_profiler's table, with the source in colours")
    add("--html", metavar="PATH", help="write the annotated source as a page, and print nothing")
    add("-o", "--output", metavar="PATH", help="write to this file instead of stdout (-: stdout)")
    return found


def main(arguments: list[str]) -> int:
    """0, or 2 for wrong usage and files that cannot be read, with one line that says which and why."""
    options = parser()
    try:
        given = _parsed(options, arguments)
        if given.diff and len(given.files) != 2:
            raise UsageError(f"--diff takes two files, not {len(given.files)}")
        if (given.sort or given.summarize or given.rich) and (given.diff or given.format != "text"):
            raise UsageError("-t, -m and -r are for line_profiler's table, which is text of no differences")
        if given.diff and given.html is not None:
            raise UsageError("--diff has no page")
        if given.html is not None and given.output is not None and lprof.is_same_file(given.html, given.output):
            raise UsageError(f"{given.html}: -o and --html name the same file")
        if given.html == "-":
            raise UsageError("--html takes the name of a file; ./- is one")
        if given.top < 0:
            raise UsageError("--top must be 0 lines or more")
        for path in (given.output, given.html):
            for read in given.files if path not in (None, "-") else ():
                if lprof.is_same_file(path, read):
                    raise UsageError(f"{path}: is read, and would be written over")
        if given.unit is not None and not 0 < given.unit < math.inf:
            raise UsageError("--unit must be more than 0 seconds, and finite")
    except UsageError as error:
        return usage_error(options, error)
    try:
        profiles = [_read(path) for path in given.files]
        if given.html is not None:
            from lineprofiler.lines.html import write as write_page

            write_page(given.html, merged(profiles), " ".join(map(os.path.basename, given.files)), find_project_root())
        if given.html is not None and given.output is None:
            return 0
        if given.output in (None, "-"):
            if sys.stdout is None:  # a process may have none: then what was asked for has gone nowhere
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            screen.emit(_text(given, profiles, None))
        else:
            _write(given, profiles)
    except UsageError as error:
        sys.stderr.write(f"lineprofiler lines: {error}\n")
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        sys.stderr.write(f"lineprofiler lines: {error.filename or 'output'}: {error.strerror}\n")
        return 2
    return 0


def _parsed(options: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """The arguments; options may stand between the files and behind them. Raises UsageError."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    given = options.parse_intermixed_args(arguments[:end])
    given.files += arguments[end + 1 :]
    if not given.files:
        raise UsageError("the following arguments are required: FILE")
    return given


def _read(path: str) -> Profile:
    try:
        if not os.path.isdir(path):
            return lprof.read(path)
        if not any(name.endswith((".lines", ".lprof")) for name in os.listdir(path)):
            raise UsageError(f"{path}: no figures of lines are in this folder")
        return read_folder(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except lprof.FormatError as error:
        raise UsageError(f"{path}: {error}") from None


def _write(given: argparse.Namespace, profiles: list[Profile]) -> None:
    """Writes the file that is asked for; what was in it stays until all of the new is there. Raises OSError."""
    if lprof.is_stream(os.path.abspath(given.output)):
        with open(given.output, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(_text(given, profiles, stream))
    else:
        text = _text(given, profiles, io.StringIO())
        lprof.write_whole(given.output, text.encode("utf-8", "backslashreplace"))


def _text(given: argparse.Namespace, profiles: list[Profile], stream: Any) -> str:
    layout = listing.layout_for(
        stream,
        top=given.top,
        unit_s=given.unit,
        everything=given.all,
        threads=given.threads,
        skip_zero=given.skip_zero,
        root=_common_root(profiles),
    )
    if given.diff:
        changes = compare(*profiles)
        if given.format == "text":
            return render_changes(changes, (profiles[0], profiles[1]), (given.files[0], given.files[1]), layout)
        rows = [_change_row(change) for change in changes]
        if given.format == "csv":
            return _csv(rows, list(_change_row(NO_CHANGE)))
        return json.dumps({"lines": rows}, indent=1) + "\n"
    profile = merged(profiles)
    if given.sort or given.summarize or given.rich:
        return _their_table(given, profile)
    if given.format == "json":
        return json.dumps(document(profile), indent=1) + "\n"
    if given.format == "csv":
        return _csv(rows_of(profile), COLUMNS)
    return listing.render(profile, layout)


def _their_table(given: argparse.Namespace, profile: Profile) -> str:
    """As ``python -m line_profiler`` prints it, by its settings."""
    table = settings("cli")
    out = io.StringIO()
    print_line_profiler(
        profile,
        stream=out,
        output_unit=given.unit or table["unit"],
        stripzeros=given.skip_zero or table["skip-zero"],
        summarize=given.summarize or table["summarize"],
        sort=given.sort or table["sort"],
        rich=given.rich or table["rich"],
    )
    return out.getvalue()


def _common_root(profiles: list[Profile]) -> Path | None:
    folders = {os.path.dirname(key.filename) for p in profiles for key in p.functions if os.path.isabs(key.filename)}
    return Path(os.path.commonpath(folders)) if folders else None


def _csv(rows: list[dict[str, Any]], columns: Sequence[str]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def document(profile: Profile) -> dict[str, Any]:
    """The whole profile for JSON: times in ns, null where they were not measured."""
    full = profile.full
    return {
        "processes": profile.processes,
        "own_cost_ns": profile.own_cost,
        "notes": profile.notes,
        "places": profile.places,
        "functions": [
            {
                "file": f.key.filename,
                "function": f.key.function_name,
                "first_line": f.key.first_line,
                "source_note": profile.source(f.key.filename).note,
                "calls": f.calls if full else None,
                "suspended": f.suspended if full else None,
                "time_ns": f.total_ns,
                "self_ns": f.lines_self_ns if full else None,
                "awaited_ns": f.awaited_ns if full else None,
                "lines": [
                    {"source": profile.source(f.key.filename).line(number), **_line(number, line, full)}
                    for number, line in sorted(f.lines.items())
                ],
                "threads": {
                    thread: [_line(number, line, full) for number, line in sorted(lines.items())]
                    for thread, lines in sorted(f.threads.items())
                },
            }
            for f in in_order(profile, "time")
        ],
    }


def _line(number: int, line: Line, full: bool) -> dict[str, Any]:
    return {
        "line": number,
        "hits": line.hits,
        "visits": line.visits if full else None,
        "time_ns": line.time_ns,
        "self_ns": line.self_ns if full else None,
        "awaited_ns": line.awaited_ns if full else None,
    }


@dataclass(frozen=True)
class Change:
    """One line in two profiles; `line_a` or `line_b` is 0 where the line, or its function, is in one of them only."""

    file: str
    function: str
    line_a: int
    line_b: int
    hits_a: int
    hits_b: int
    ns_a: int
    ns_b: int
    source: str

    @property
    def change_ns(self) -> int:
        return self.ns_b - self.ns_a


NO_CHANGE = Change("", "", 0, 0, 0, 0, 0, 0, "")


def compare(a: Profile, b: Profile) -> list[Change]:
    """What each line took in both, the one that got slower by most first. Self time; inclusive where one has no other.

    Functions are matched by file and name, their lines by their text, so that a line keeps its figures when it moves.
    """
    full = a.full and b.full
    found = []
    moved = _moved(a, b)
    in_a, in_b = _by_name(a, {}), _by_name(b, moved)
    for key in sorted({*in_a, *in_b}):
        for f, g in _namesakes(a, in_a.get(key, []), b, in_b.get(key, [])):
            for number_a, number_b in _pairs(a, f, b, g):
                line_a = f.lines.get(number_a, Line()) if f is not None else Line()
                line_b = g.lines.get(number_b, Line()) if g is not None else Line()
                if line_a == line_b == Line():
                    continue
                source = ""
                if g is not None and number_b:
                    source = b.source(g.key.filename).line(number_b)
                elif f is not None:
                    source = a.source(f.key.filename).line(number_a)
                spent = (line_a.self_ns, line_b.self_ns) if full else (line_a.time_ns, line_b.time_ns)
                hits = (line_a.hits, line_b.hits)
                found.append(Change(key[0], key[1], number_a, number_b, *hits, *spent, source.strip()))
    return sorted(found, key=lambda c: (-c.change_ns, c.file, c.line_b, c.line_a))


def _moved(a: Profile, b: Profile) -> dict[str, str]:
    """Files of B by the name that they have in A, if no file is in both: two checkouts of a project, or line_profiler's
    names, which are relative to where it was started."""
    files_a = {f.key.filename for f in a.visited()}
    files_b = {f.key.filename for f in b.visited()}
    root_a, root_b = _common_root([a]), _common_root([b])
    if not files_a.isdisjoint(files_b):
        return {}
    ends = {f: [there for there in files_a if _is_end(f, there) or _is_end(there, f)] for f in files_b}
    taken = Counter(there for each in ends.values() for there in each)
    if taken:
        return {f: each[0] for f, each in ends.items() if len(each) == 1 and taken[each[0]] == 1}
    if root_a is None or root_b is None:
        return {}
    moved = {f: os.path.join(root_a, os.path.relpath(f, root_b)) for f in files_b if os.path.isabs(f)}
    return {f: there for f, there in moved.items() if there in files_a}


def _is_end(path: str, relative: str) -> bool:
    return os.path.isabs(path) and not os.path.isabs(relative) and path.endswith(os.sep + os.path.normpath(relative))


def _by_name(profile: Profile, moved: dict[str, str]) -> dict[tuple[str, str], list[Function]]:
    """Functions by file and name, those of one name (lambdas, a property's getter and setter) as they stand there."""
    found: dict[tuple[str, str], list[Function]] = {}
    for f in sorted(profile.visited(), key=lambda f: f.key.first_line):
        found.setdefault((moved.get(f.key.filename, f.key.filename), f.key.function_name), []).append(f)
    return found


def _namesakes(
    a: Profile, in_a: list[Function], b: Profile, in_b: list[Function]
) -> list[tuple[Function | None, Function | None]]:
    """Functions of one name in A and in B that are the same function; None for none."""
    texts_a, texts_b = (["\n".join(_body(p, f)[1]) for f in fs] for p, fs in ((a, in_a), (b, in_b)))
    return [
        (in_a[m] if m is not None else None, in_b[n] if n is not None else None) for m, n in _matched(texts_a, texts_b)
    ]


def _matched(a: list[str], b: list[str]) -> list[tuple[int | None, int | None]]:
    """Places of texts in two lists that are the same; None for none. What was edited in its place is the same."""
    pairs: list[tuple[int | None, int | None]] = []
    # Empty lines and the like, each of which may be any other, would take hours in a long file; their neighbours tell.
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=max(len(a), len(b)) > LONG)
    for _, a0, a1, b0, b1 in matcher.get_opcodes():
        both = min(a1 - a0, b1 - b0)
        pairs += zip(range(a0, a0 + both), range(b0, b0 + both), strict=True)
        pairs += [(n, None) for n in range(a0 + both, a1)] + [(None, n) for n in range(b0 + both, b1)]
    return pairs


def _pairs(a: Profile, f: Function | None, b: Profile, g: Function | None) -> list[tuple[int, int]]:
    """Line numbers in A and B that are the same line; 0 for none."""
    numbers_a, texts_a = _body(a, f)
    numbers_b, texts_b = _body(b, g)
    return [
        (numbers_a[m] if m is not None else 0, numbers_b[n] if n is not None else 0)
        for m, n in _matched(texts_a, texts_b)
    ]


def _body(profile: Profile, function: Function | None) -> tuple[list[int], list[str]]:
    if function is None or not function.lines:
        return [], []
    source, key = profile.source(function.key.filename), function.key
    first, known = min(key.first_line, *function.lines), max(function.lines)
    last = last_line(source, key.function_name, key.first_line, known)
    numbers = numbers_between(source, first, last, function.lines)
    if not source.lines and last - first < UNKNOWN:
        numbers = list(range(first, last + 1))
    return numbers, [source.line(n) if source.lines else f"+{n - first}" for n in numbers]


def _change_row(change: Change) -> dict[str, Any]:
    return {
        "file": change.file,
        "function": change.function,
        "line_a": change.line_a or None,
        "line_b": change.line_b or None,
        "hits_a": change.hits_a,
        "hits_b": change.hits_b,
        "ns_a": change.ns_a,
        "ns_b": change.ns_b,
        "change_ns": change.change_ns,
        "source": change.source,
    }


def render_changes(
    changes: list[Change], profiles: tuple[Profile, Profile], names: tuple[str, str], layout: listing.Layout
) -> str:
    """The lines that got slower, then those that got faster."""
    total_a, total_b = sum(c.ns_a for c in changes), sum(c.ns_b for c in changes)
    a, b = profiles
    what = "self time" if a.full and b.full else "time, callees included"
    unit = layout.unit_s
    out = [f"A = {inert(names[0])}\nB = {inert(names[1])}\n\n"]
    change = f"{100 * (total_b - total_a) / total_a:+.1f} %" if total_a else "new"
    head = f"{what}: {duration(total_a, unit)} -> {duration(total_b, unit)}  {change}"
    out.append(f"{layout.paint(BOLD, head)}\n{listing.unit_named(unit)}\n")
    slower = [c for c in changes if c.change_ns > 0][: layout.top]
    faster = [c for c in reversed(changes) if c.change_ns < 0][: layout.top]
    for title, rows, color in (("Slower", slower, RED), ("Faster", faster, GREEN)):
        if rows:
            out += [layout.paint(BOLD, title) + "\n", *_change_table(rows, layout, color), "\n"]
    if not slower and not faster:
        out.append("No line changed.\n")
    return "".join(out)


def _change_table(changes: list[Change], layout: listing.Layout, color: str) -> list[str]:
    unit = layout.unit_s
    head = ["change", "A", "B", "hit A", "hit B", "hits A", "hits B"]
    rows = []
    for c in changes:
        sign = "+" if c.change_ns > 0 else "-"
        cells = [sign + duration(abs(c.change_ns), unit), duration(c.ns_a, unit), duration(c.ns_b, unit)]
        cells.append(duration(c.ns_a / c.hits_a, unit) if c.hits_a else "")
        cells.append(duration(c.ns_b / c.hits_b, unit) if c.hits_b else "")
        rows.append([*cells, f"{c.hits_a:,}", f"{c.hits_b:,}"])
    widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
    places = [_place(c, layout) for c in changes]
    wide = max(map(screen.columns, places))
    out = [layout.paint(DIM, "  ".join(f"{h:>{w}}" for h, w in zip(head, widths, strict=True))) + "\n"]
    for c, row, place in zip(changes, rows, places, strict=True):
        cells = [f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)]
        left = "  ".join([layout.paint(color, cells[0]), *cells[1:], layout.paint(DIM, screen.left(place, wide))])
        used = sum(widths) + 2 * len(widths) + wide + 2
        text = inert(c.source) or c.function
        if layout.width is not None:
            text = screen.cut(text, max(layout.width - used, 16))
        out.append(f"{left}  {screen.highlight([text])[0] if layout.color else text}".rstrip() + "\n")
    return out


def _place(change: Change, layout: listing.Layout) -> str:
    name = inert(shown_path(change.file, layout.root))
    if not change.line_b:
        return f"{name}:{change.line_a} only in A"
    if not change.line_a:
        return f"{name}:{change.line_b} only in B"
    return f"{name}:{change.line_b}"
