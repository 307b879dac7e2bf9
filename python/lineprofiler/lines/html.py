"""The annotated source as one page: hotspots, heat, lines that never ran in grey. Needs no network, opens from a disk.

The page is `web/lines.html` with its style and script put in. What was measured is one JSON element in it, escaped so
that no source line, path or title can end it; the script shows it as text only.
"""

from __future__ import annotations

import html
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from lineprofiler.lines.lprof import write_whole
from lineprofiler.lines.model import Function, FunctionKey, Profile
from lineprofiler.lines.screen import inert, uncertain
from lineprofiler.lines.source import Source, last_line, numbers_between
from lineprofiler.lines.tables import shown_path, without_name

LONGEST_LINE = 2000
"""Characters of a source line that the page shows."""


def write(path: Any, profile: Profile, title: str, root: Path | None = None) -> None:
    """Writes the page; makes its folder. Raises OSError."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, render(profile, title, root).encode())


def render(profile: Profile, title: str, root: Path | None = None) -> str:
    web = files("lineprofiler") / "web"
    parts = {
        "@TITLE@": html.escape(inert(title)),
        "@STYLE@": (web / "lines.css").read_text(encoding="utf-8"),
        "@DATA@": _escaped(_data(profile, title, root)),
        "@SCRIPT@": (web / "lines.js").read_text(encoding="utf-8"),
    }
    page = (web / "lines.html").read_text(encoding="utf-8")
    return "".join(parts.get(f"@{piece}@", piece) for piece in page.split("@"))


def _escaped(data: dict[str, Any]) -> str:
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _data(profile: Profile, title: str, root: Path | None) -> dict[str, Any]:
    functions = [_function(profile, f, root) for f in profile.by_time()]
    functions += [_function(profile, f, root) for f in _never_called(profile)]
    cost = profile.own_cost
    own = f"{uncertain(cost['line'], cost.get('line_error', 0.0))} ns a line" if cost.get("line") else ""
    return {
        "title": inert(title),
        "full": profile.full,
        "processes": profile.processes,
        "own_cost": own,
        "notes": [*map(inert, profile.places), *(f"Not measured: {inert(note)}" for note in profile.notes)],
        "functions": functions,
    }


def _never_called(profile: Profile) -> list[Function]:
    """Functions that stand in the files that were profiled, and were not called."""
    known = {(f.key.filename, f.key.first_line) for f in profile.visited()}
    found = []
    paths = {f.key.filename for f in profile.visited()}
    for path in sorted(path for path in paths if path.rpartition("#")[0] not in paths):  # what did not change is there
        source = profile.source(path)
        for first, (name, last) in sorted(source.definitions.items()):
            if (path, first) not in known and _is_function(source, first, last):
                lines = frozenset(n for n in range(first + 1, last + 1) if source.line(n).strip())
                found.append(Function(FunctionKey(path, name, first), executable=lines))
    return found


def _is_function(source: Source, first: int, last: int) -> bool:
    for number in range(first, last + 1):
        word = source.line(number).lstrip()
        if word.startswith(("def ", "async def ")):
            return True
        if word.startswith("class "):
            return False
    return False


def _function(profile: Profile, function: Function, root: Path | None) -> dict[str, Any]:
    key, source = function.key, profile.source(function.key.filename)
    first = min((key.first_line, *function.lines))
    last = last_line(source, key.function_name, key.first_line, max((first, *function.lines)))
    if key.function_name == "<module>" and function.lines:
        first, last = min(function.lines), max(function.lines)
    numbers = numbers_between(source, first, last, function.lines)
    return {
        "name": inert(key.function_name),
        "file": inert(key.filename),
        "shown": inert(shown_path(key.filename, root)),
        "kind": without_name(key.function_name),
        "short": inert(os.path.basename(key.filename) or key.filename),
        "first": key.first_line,
        "note": source.note,
        "time": function.total_ns,
        "self": function.lines_self_ns,
        "awaited": function.awaited_ns,
        "calls": function.calls,
        "lines": [_line(function, source, number) for number in numbers],
    }


def _line(function: Function, source: Source, number: int) -> dict[str, Any]:
    text = inert(source.line(number))
    found: dict[str, Any] = {
        "number": number,
        "text": text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + "…",
        "executable": number in function.executable,
    }
    line = function.lines.get(number)
    if line is None:
        return {**found, "ran": False, "hits": 0, "time": 0, "self": 0, "awaited": 0}
    return {
        **found,
        "ran": True,
        "hits": line.hits,
        "time": line.time_ns,
        "self": line.self_ns,
        "awaited": line.awaited_ns,
    }
