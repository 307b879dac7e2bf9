"""The settings of line_profiler, ``[tool.line_profiler]`` of a TOML file: where they are found, and what they say.

They hold for what a user of line_profiler knows: its tables, the global decorator, the options of its command. The
settings of what is profiled are in `lineprofiler.config`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any, TypeAlias

Config: TypeAlias = "str | os.PathLike[str] | bool | None"
"""A file; None and True: the one that is found; False: line_profiler's defaults."""

ENVIRONMENT = "LINE_PROFILER_RC"
FILES = ("line_profiler.toml", "pyproject.toml")
WIDTHS = "show.column_widths"
WIDEST = 1000
DEFAULTS: dict[str, dict[str, Any]] = {
    "setup": {"environ_flags": ["LINE_PROFILE"], "cli_flags": ["--line-profile", "--line_profile"]},
    "write": {
        "output_prefix": "profile_output",
        "lprof": True,
        "text": True,
        "timestamped_text": True,
        "stdout": True,
    },
    "show": {"sort": True, "stripzeros": True, "rich": True, "details": False, "summarize": True},
    WIDTHS: {"line": 6, "hits": 9, "time": 12, "perhit": 8, "percent": 8},
    "kernprof": {
        "line-by-line": False,
        "builtin": False,
        "rich": False,
        "skip-zero": False,
        "summarize": False,
        "prof-imports": False,
        "verbose": 0,
        "outfile": "",
        "setup": "",
        "unit": 1e-6,
        "output-interval": 0,
        "prof-mod": [],
    },
    "cli": {"unit": 1e-6, "rich": False, "skip-zero": False, "sort": False, "summarize": False},
}
"""line_profiler's own values, by the tables' names below ``tool.line_profiler``."""


def settings(table: str, config: Config = None) -> dict[str, Any]:
    """A table's values: those of the file, and line_profiler's own for what is not in it.

    The file that is found is ``$LINE_PROFILER_RC``, or ``line_profiler.toml`` or ``pyproject.toml`` in the working
    directory or the nearest folder above it; one that is no TOML is passed over. What is not theirs, or of another
    type, is left out with a RuntimeWarning. Raises OSError if a file that is given cannot be read, ValueError if it is
    no TOML.
    """
    values = {key: list(value) if isinstance(value, list) else value for key, value in DEFAULTS[table].items()}
    path, tables = _tables(config)
    found: Any = tables
    for key in table.split("."):
        found = found.get(key, {}) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        _warn(f"{path}: [tool.line_profiler.{table}] is no table; it is not used")
        return values
    for key, value in found.items():
        if key not in values:
            if not isinstance(value, dict):
                _warn(f"{path}: [tool.line_profiler.{table}] has no key {key!r}: {', '.join(values)}")
        elif _fits(value, values[key]) and not (table == WIDTHS and not 0 <= value <= WIDEST):
            values[key] = value
        else:
            _warn(f"{path}: [tool.line_profiler.{table}] {key} cannot be {value!r}; it is not used")
    return values


def column_widths(config: Config = None) -> tuple[int, ...]:
    """The least widths of the five columns; those of line_profiler are the least of all."""
    found = settings(WIDTHS, config)
    return tuple(max(width, found[name]) for name, width in DEFAULTS[WIDTHS].items())


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, list):
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return type(value) is type(default)


def _tables(config: Config) -> tuple[Path | None, dict[str, Any]]:
    if config is False:
        return None, {}
    if config is not None and config is not True:
        path = Path(config)
        try:
            return path, _read(path)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    given = os.environ.get(ENVIRONMENT)
    for path in [Path(given)] if given else _above():
        try:
            if path.is_file():  # nothing else is opened: a pipe would be waited for
                return path, _read(path)
        except (OSError, ValueError):
            continue
    return None, {}


def _above() -> list[Path]:
    try:
        folder = Path.cwd()
    except OSError:  # it was removed
        return []
    return [each / name for each in (folder, *folder.parents) for name in FILES]


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)


def _read(path: Path) -> dict[str, Any]:
    found = _document(path.read_text(encoding="utf-8"))
    for key in ("tool", "line_profiler"):
        inner = found.get(key, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{key} is no table")
        found = inner
    return found


if sys.version_info >= (3, 11):

    def _document(text: str) -> dict[str, Any]:
        import tomllib

        return tomllib.loads(text)

else:
    # Python 3.10 has no TOML: the tables of line_profiler as they are usually written, with plain values in them.
    _HEAD = re.compile(r"^[ \t]*\[([^\[\]\n]+)\][ \t]*(?:#.*)?$", re.M)
    _TEXT = r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'"
    _PAIR = re.compile(rf"^[ \t]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*(\[(?:{_TEXT}|[^\]\"'])*\]|{_TEXT}|[^#\n]*)", re.M)

    def _document(text: str) -> dict[str, Any]:
        document: dict[str, Any] = {}
        parts = _HEAD.split(text)
        for head, body in zip(parts[1::2], parts[2::2], strict=True):
            names = [name.strip() for name in head.split(".")]
            if names[:2] != ["tool", "line_profiler"]:
                continue
            table = document
            for name in names:
                table = table.setdefault(name, {})
            for key, value in _PAIR.findall(body):
                table[key] = _value(value.strip())
        return document

    def _value(text: str) -> Any:
        if text.startswith("["):
            return [_value(each) for each in re.findall(_TEXT, re.sub(r"(?m)^[ \t]*#.*$", "", text))]
        if text.startswith("'"):
            return text[1:-1]
        try:
            return json.loads(text)  # numbers, true, false and strings are written alike in both
        except ValueError:
            raise ValueError(f"{text!r} is no value") from None
