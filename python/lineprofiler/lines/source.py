"""The text of profiled code: taken when a function is registered, through its loader, with its encoding.

A file that is edited, moved or deleted later, a notebook cell that is run again and a module in a zip still show the
lines that ran. Registration happens at the first call of a function of the file, so it reads bytes and decodes nothing.
"""

from __future__ import annotations

import ast
import hashlib
import io
import linecache
import os
import re
import stat
import sys
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any

CHANGED = "source changed since the run"
VERSIONS = "figures of different versions of this file are added up by line number"
MOST_VERSIONS = 100
"""Texts of one file that are kept apart; what comes later is shown with the first one."""
LIMIT = 20_000_000
"""Bytes of a source file; a larger one is not taken."""


@dataclass(frozen=True)
class Source:
    """Lines of a file without their ends, from line 1 on; `note` says what is not right with them, "" nothing."""

    lines: tuple[str, ...]
    note: str = ""
    digest: str = ""
    on_disk: bool = False

    def line(self, number: int) -> str:
        """The text of a line; "" where it is not known."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def numbered(self) -> dict[int, str]:
        return dict(enumerate(self.lines, 1))

    @cached_property
    def definitions(self) -> dict[int, tuple[str, int]]:
        """Qualified name and last line of each function, by its first line, decorators included."""
        return _definitions(self.lines)


@dataclass
class _Taken:
    path: str
    data: bytes | None
    text: str | None
    signature: tuple[int, ...] | None = None
    """Of the file when it was last looked at."""


@dataclass(frozen=True)
class _Version:
    """A later text of a file, which was edited and loaded again."""

    name: str
    data: bytes
    module: CodeType  # kept, so that no other code gets an address of its


class SourceBook:
    """Sources by the file name that code objects carry."""

    def __init__(self) -> None:
        self._taken: dict[str, _Taken] = {}
        self._read: dict[str, Source] = {}
        self._changed: dict[str, Source] = {}
        self._versions: dict[str, list[_Version]] = {}
        self._version_of: dict[int, _Version] = {}
        self._seen: dict[str, list[CodeType]] = {}
        self._start = os.getcwd() if _has_cwd() else "/"

    def capture(self, filename: str, module: Mapping[str, Any] | None = None) -> str:
        """Takes the text of this file now, if it was not taken; gives the name under which it is reported.

        `module` are the globals of the code, for what only their loader can read.
        """
        taken = self._taken.get(filename)
        if taken is None or (taken.data is None and taken.text is None):
            taken = self._taken[filename] = self._take(filename, module or {})
            self._read.pop(taken.path, None)
            self._changed.pop(taken.path, None)
        return taken.path

    def capture_file(self, path: str) -> bool:
        """Takes the text of the file with this absolute path, by which its code is named; False if there is none."""
        if path not in self._taken:
            signature, data = _signature(path), _bytes_of(path)
            if data is None:
                return False
            self._taken[path] = _Taken(path, data, None, signature)
        return self._taken[path].data is not None

    def seen(self, code: CodeType) -> None:
        """Code that is profiled from now on, and lives as long as this book."""
        self._seen.setdefault(code.co_filename, []).append(code)

    def executed(self, module: CodeType) -> None:
        """The code of a module begins. If its file was taken with another text, the module was edited and loaded again:
        what is new in it has the new text, under the file's name with a number behind it."""
        taken = self._taken.get(module.co_filename)
        if taken is None or taken.data is None:
            return
        signature = _signature(taken.path)
        if signature is None or signature == taken.signature:
            return
        taken.signature = signature
        data, versions = _bytes_of(taken.path), self._versions.setdefault(module.co_filename, [])
        if data is None or data == (versions[-1].data if versions else taken.data) or len(versions) >= MOST_VERSIONS:
            return
        versions.append(_Version(f"{taken.path}#{len(versions) + 2}", data, module))
        self._assign(module, versions[-1], {code: code for code in self._seen.get(module.co_filename, ())})

    def _assign(self, code: CodeType, version: _Version | None, known: Mapping[CodeType, CodeType]) -> None:
        """Code that is as it was stays with its earlier version, with all that is in it."""
        earlier = known.get(code)
        if earlier is not None:
            version, known = self._version_of.get(id(earlier)), {}
        if version is not None:
            self._version_of[id(code)] = version
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._assign(inner, version, known)

    def path_of_code(self, code: CodeType) -> str:
        """As `path_of`, with the number of the version that the code is of."""
        version = self._version_of.get(id(code))
        return version.name if version is not None else self.path_of(code.co_filename)

    def source_of(self, code: CodeType) -> Source:
        """The text that the code is of."""
        version = self._version_of.get(id(code))
        if version is None:
            return self.get(code.co_filename)
        found = self._read.get(version.name)
        if found is None:
            found = self._read[version.name] = from_bytes(version.data)
        if not found.note and _bytes_of(self.path_of(code.co_filename)) != version.data:
            return self._changed.setdefault(version.name, Source(found.lines, CHANGED, found.digest))
        return found

    def path_of(self, filename: str) -> str:
        """The absolute path of a code object's file; the name itself where there is no file."""
        taken = self._taken.get(filename)
        return taken.path if taken is not None else self.capture(filename)

    def get(self, filename: str) -> Source:
        """What was taken under this file name of code."""
        path = self.path_of(filename)
        found = self._read.get(path)
        taken = self._taken[filename]
        if found is None:
            found = self._read[path] = _decoded(taken)
        if taken.data is not None and not found.note and _bytes_of(path) != taken.data:
            return self._changed.setdefault(path, Source(found.lines, CHANGED, found.digest))
        return found

    def _take(self, filename: str, module: Mapping[str, Any]) -> _Taken:
        path = self._find(filename)
        signature = _signature(path) if path is not None else None
        if path is not None and (data := _bytes_of(path)) is not None:
            return _Taken(path, data, None, signature)
        # From 3.14 on linecache finds the text of a module in a zip by itself, but under the name as it is.
        module = module or module_of(filename) or {}
        loader = module.get("__loader__")
        name = getattr(module.get("__spec__"), "name", None) or module.get("__name__")
        if module.get("__file__") == filename and hasattr(loader, "get_source"):
            try:
                text = loader.get_source(name) if loader is not None else None
            except Exception:  # a loader of anybody's
                text = None
            if isinstance(text, str):
                return _Taken(os.path.abspath(filename), None, text)
        if filename == "<string>" and module.get("__name__") == "__main__":
            given = command_line_code()
            if given is not None:
                return _Taken(filename, None, given)
        lines = linecache.getlines(filename, dict(module))
        return _Taken(filename, None, "".join(lines) if lines else None)

    def _find(self, filename: str) -> str | None:
        """A file of this name. A relative one is relative to where the program started, or to where it is found now."""
        if filename.startswith("<") or not filename:
            return None
        if os.path.isabs(filename):
            return filename if os.path.isfile(filename) else None
        for folder in (self._start, "", *sys.path):
            path = os.path.abspath(os.path.join(folder, filename)) if _has_cwd() or os.path.isabs(folder) else ""
            if path and os.path.isfile(path):
                return path
        return None


def command_line_code() -> str | None:
    """What the interpreter was given by ``-c``; None if it runs something else. The program's own arguments, which may
    hold a -c as well, come behind what it runs."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word == "--check-hash-based-pycs":
            next(words, None)
        elif not word.startswith("-") or word == "-":
            return None
        elif not word.startswith("--"):
            for at, letter in enumerate(word[1:], 2):
                if letter in "cmWX":  # the rest of the word is its value, or the next word
                    value = word[at:] or next(words, "")
                    if letter == "c":
                        return value
                    if letter == "m":
                        return None
                    break
    return None


def module_of(filename: str) -> Mapping[str, Any] | None:
    """The globals of the module that was loaded from a file of this name."""
    for module in list(sys.modules.values()):
        try:
            # Not by getattr: a module that is loaded when it is first looked at is to stay as it is.
            names: Mapping[str, Any] = object.__getattribute__(module, "__dict__")
        except AttributeError:
            continue
        if names.get("__file__") == filename:
            return names
    return None


def _has_cwd() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:  # it was removed
        return False


def _signature(path: str) -> tuple[int, ...] | None:
    """Is another one when the file was written to; None if there is none."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def _bytes_of(path: str) -> bytes | None:
    """What is in a regular file; None for anything else, which is not waited for."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(number)
        if not stat.S_ISREG(info.st_mode) or info.st_size > LIMIT:
            return None
        data = os.read(number, info.st_size)
        while len(data) < info.st_size and (more := os.read(number, info.st_size - len(data))):
            data += more
    except OSError:
        return None
    finally:
        os.close(number)
    return data


def _decoded(taken: _Taken) -> Source:
    if taken.text is not None:
        return from_text(taken.text)
    if taken.data is None:
        return Source((), "no source")
    return from_bytes(taken.data)


def from_text(text: str) -> Source:
    return Source(split(text), digest=_digest(text.encode("utf-8", "surrogatepass")))


def from_bytes(data: bytes) -> Source:
    """The lines of a source file, by its encoding; undecodable bytes are shown as escapes and said."""
    digest = _digest(data)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return Source(split(data.decode(encoding)), digest=digest, on_disk=True)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        text = data.decode("utf-8", "backslashreplace")
        return Source(split(text), "source cannot be decoded", digest, True)


def from_disk(path: str) -> Source:
    """A file's lines as they are now."""
    data = _bytes_of(path)
    if data is None:
        lines = linecache.getlines(path) if path.startswith("<") else []
        return from_text("".join(lines)) if lines else Source((), "no source")
    return from_bytes(data)


def has_changed(path: str, digest: str) -> bool:
    """Whether there is a file at this path with another text than that of the digest."""
    data = _bytes_of(path)
    return data is not None and _digest(data) != digest


def split(text: str) -> tuple[str, ...]:
    # The lines of Python, which do not end at form feeds and separators of other kinds, as str.splitlines() has it.
    return tuple(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _definitions(lines: tuple[str, ...]) -> dict[int, tuple[str, int]]:
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[int, tuple[str, int]] = {}
    pending: list[tuple[ast.AST, str]] = [(tree, "")]
    while pending:
        node, prefix = pending.pop()
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                name = prefix + child.name
                found[first] = (name, child.end_lineno or child.lineno)
                inner = f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>."
            pending.append((child, inner))
    return found


def imported_names(source: Source) -> list[str]:
    """What a program imports: modules, and what it takes from them, by full names; none of relative imports."""
    try:
        tree = ast.parse("\n".join(source.lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level and node.module != "__future__":
            found.update(
                (node.module if alias.name == "*" else f"{node.module}.{alias.name}", None) for alias in node.names
            )
    return list(found)


def last_line(source: Source, name: str, first: int, known: int) -> int:
    """The last line of the function that begins at `first`; `known` is a line that certainly belongs to it."""
    if name == "<module>":
        return max(known, len(source.lines) - (1 if source.lines and not source.lines[-1] else 0))
    found = source.definitions.get(first)
    return max(known, found[1]) if found is not None else known


def numbers_between(source: Source, first: int, last: int, known: Iterable[int]) -> list[int]:
    """Lines from `first` to `last` that the source has, and those with figures: a generator of code numbers its lines
    as it likes."""
    return sorted({*range(max(first, 1), min(last, len(source.lines)) + 1), *known})
