"""Settings of the line profiler: ``LINEPROFILER_ENABLED`` and ``[tool.lineprofiler]`` of a project's pyproject.toml."""

from __future__ import annotations

import os
import re
import sys
import warnings
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ENV_ENABLED = "LINEPROFILER_ENABLED"
KEYS = ("include", "exclude", "functions")
_FALSE = ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class ProfilerConfig:
    """What is profiled. `include` and `exclude` are globs of paths, `functions` globs of qualified names.

    A path pattern is compared with the whole path and with each of its ends ("src/*.py"), and with the folders that
    lead to it ("tests/"). `exclude` wins over `include`; an empty list of includes or functions allows everything.
    """

    enabled: bool
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()

    def allows_function(self, name: str) -> bool:
        """Whether a function of this qualified name is profiled."""
        return not self.functions or any(fnmatchcase(name, pattern) for pattern in self.functions)

    def allows_path(self, path: str | Path) -> bool:
        """Whether functions of this file are profiled."""
        text = Path(path).as_posix()
        if any(_matches(text, pattern) for pattern in self.exclude):
            return False
        return not self.include or any(_matches(text, pattern) for pattern in self.include)


def _matches(path: str, pattern: str) -> bool:
    pattern = pattern.replace("**/", "*").removeprefix("./").rstrip("/")
    tail = pattern.removeprefix("/") if pattern.startswith("/") else f"*/{pattern}"
    return any(fnmatchcase(path, p) for p in (pattern, f"{pattern}/*", tail, f"{tail}/*"))


def find_project_root(start_path: str | Path | None = None) -> Path:
    """The nearest folder upwards with ``.git``, else the nearest with ``pyproject.toml``, else the start itself.

    `start_path` is a folder or a file in it; None: the working directory.
    """
    start = Path(os.path.realpath(start_path if start_path is not None else os.getcwd()))
    if start.is_file():
        start = start.parent
    for mark in (".git", "pyproject.toml"):
        for folder in (start, *start.parents):
            if (folder / mark).exists():
                return folder
    return start


def enabled_by_environment() -> bool:
    """What ``LINEPROFILER_ENABLED`` says; unset, empty, 0, false, no and off are False."""
    return os.environ.get(ENV_ENABLED, "").strip().lower() not in _FALSE


_tables: dict[Path, dict[str, tuple[str, ...]]] = {}


def get_config(start_path: str | Path | None = None) -> ProfilerConfig:
    """The settings of the project around `start_path` (None: the working directory).

    The file is read once per project and process. What is wrong in it is said by one RuntimeWarning and left out.
    """
    root = find_project_root(start_path)
    if root not in _tables:
        _tables[root] = _read(root / "pyproject.toml")
    return ProfilerConfig(enabled_by_environment(), **_tables[root])


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        text = path.read_text(encoding="utf-8")
        table = _table(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _warn(f"{path}: {error}; its [tool.lineprofiler] is not used")
        return {}
    found = {}
    for key, value in table.items():
        if key not in KEYS:
            _warn(f"{path}: [tool.lineprofiler] has no key {key!r}: {', '.join(KEYS)}")
        elif not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            _warn(f"{path}: [tool.lineprofiler] {key} is no list of strings; it is not used")
        else:
            found[key] = tuple(value)
    return found


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)


if sys.version_info >= (3, 11):

    def _table(text: str) -> dict[str, Any]:
        import tomllib

        document: Any = tomllib.loads(text)
        for key in ("tool", "lineprofiler"):
            document = document.get(key, {})
            if not isinstance(document, dict):
                raise ValueError(f"{key} is no table")
        return document

else:
    # Python 3.10 has no TOML, and a package for three lists would be a dependency. Comments, the two kinds of plain
    # strings and lists of them over several lines are all that such a table can hold.
    _ITEM = re.compile(r"""\s*(?:\#[^\n]*\n\s*)*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|(\])|(,))""")

    def _table(text: str) -> dict[str, Any]:
        head = re.search(r"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*lineprofiler[ \t]*\][ \t]*(?:#.*)?$", text, re.M)
        if head is None:
            return {}
        found: dict[str, Any] = {}
        at = head.end()
        line = re.compile(r"\s*(?:#[^\n]*\n\s*)*([A-Za-z0-9_-]+)[ \t]*=[ \t]*(\[)?")
        while match := line.match(text, at):
            key, at = match[1], match.end()
            if match[2] is None:
                found[key] = None
                at = text.find("\n", at) if "\n" in text[at:] else len(text)
                continue
            items: list[str] = []
            while True:
                item = _ITEM.match(text, at)
                if item is None:
                    raise ValueError(f"{key}: no list of strings (line {text.count(chr(10), 0, at) + 1})")
                at = item.end()
                if item[3]:
                    break
                if not item[4]:
                    items.append(_unescaped(item[1]) if item[1] is not None else item[2])
            found[key] = items
            rest = re.compile(r"[ \t]*(?:#[^\n]*)?").match(text, at)
            at = rest.end() if rest else at
        return found

    def _unescaped(text: str) -> str:
        import json

        return str(json.loads(f'"{text}"'))
