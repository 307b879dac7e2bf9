"""What a TOML file for line_profiler says of its tables: ``[tool.line_profiler.show.column_widths]``."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

COLUMNS = {"line": 6, "hits": 9, "time": 12, "perhit": 8, "percent": 8}  # line_profiler's own, in its order
_TABLE = ("tool", "line_profiler", "show", "column_widths")


def column_widths(config: str | os.PathLike[str] | bool | None) -> tuple[int, ...]:
    """The least widths of the five columns. `config` is the file; None and False: line_profiler's defaults.

    What is wrong in the file is said by a RuntimeWarning and left out. Raises OSError when it cannot be read, and
    ValueError when it is no TOML.
    """
    widths = dict(COLUMNS)
    if config is True:
        _warn("config=True: no configuration is searched for; give the file's path")
    elif config is not None and config is not False:
        path = Path(config)
        try:
            found = _table(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        for column, width in found.items():
            if column not in COLUMNS:
                _warn(f"{path}: {'.'.join(_TABLE)} has no column {column!r}: {', '.join(COLUMNS)}")
            elif not isinstance(width, int) or isinstance(width, bool) or not 0 <= width <= 1000:
                _warn(f"{path}: {'.'.join(_TABLE)}.{column} is no width; it is not used")
            else:
                widths[column] = width
    return tuple(widths.values())


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=5)


if sys.version_info >= (3, 11):

    def _table(text: str) -> dict[str, Any]:
        import tomllib

        document: Any = tomllib.loads(text)
        for key in _TABLE:
            document = document.get(key, {})
            if not isinstance(document, dict):
                raise ValueError(f"{key} is no table")
        return document

else:
    # Python 3.10 has no TOML: the one table, as it is usually written, with numbers in it.
    _HEAD = re.compile(r"^[ \t]*\[[ \t]*" + r"[ \t]*\.[ \t]*".join(_TABLE) + r"[ \t]*\][ \t]*(?:#.*)?$", re.M)
    _PAIR = re.compile(r"^[ \t]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*([^#\n]*?)[ \t]*(?:#.*)?$", re.M)

    def _table(text: str) -> dict[str, Any]:
        head = _HEAD.search(text)
        if head is None:
            return {}
        body = re.split(r"^[ \t]*\[", text[head.end() :], maxsplit=1, flags=re.M)[0]
        return {key: int(value) if value.isdigit() else value for key, value in _PAIR.findall(body)}
