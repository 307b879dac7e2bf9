"""Which functions belong to the project: asked once per code object of the process, at its first call.

Code of a file belongs if the file lies in the project's folder, is none of Python's own or of an installed package, and
the settings allow it. Code without a file (exec, notebook cells, the prompt) belongs if the module in whose globals it
runs does.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from lineprofiler.config import ProfilerConfig, find_project_root
from lineprofiler.lines.callables import codes_of
from lineprofiler.lines.source import SourceBook, command_line_code, module_of

MOST_TEXTS = 20_000
"""Code objects without a file that are profiled; each takes a kilobyte."""
_OWN = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_GENERATED = frozenset(
    ("__create_fn__", "__init__", "__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__")
)


def folder_of_caller(frame: FrameType | None) -> Path:
    """The project of the code that runs in this frame: by its file, or by the working directory if it has none."""
    filename = frame.f_code.co_filename if frame is not None else ""
    return find_project_root(filename if filename and os.path.isfile(filename) else None)


def is_installed(path: str) -> bool:
    """Whether a file is of Python's own library or an installed package, or the script by which one is started."""
    folder, name = os.path.split(os.path.realpath(path))
    if folder == os.path.realpath(sysconfig.get_path("scripts")):
        from importlib.metadata import entry_points

        return any(entry.name == name for entry in entry_points(group="console_scripts"))
    return os.path.join(folder, name).startswith(tuple(_installed())) or any(p in path for p in _PACKAGES)


def qualified_name(code: CodeType, book: SourceBook) -> str:
    """`co_qualname`; on Python 3.10, whose code has none, what the source says."""
    name = getattr(code, "co_qualname", None)
    if name is not None:
        return str(name)
    found = book.source_of(code).definitions.get(code.co_firstlineno)
    return found[0] if found is not None and found[0].split(".")[-1] == code.co_name else code.co_name


class Project:
    """Says for a code object whether it is profiled, and takes its source if so."""

    def __init__(self, root: Path, config: ProfilerConfig, book: SourceBook) -> None:
        self.root = Path(os.path.realpath(root))
        self._config = config
        self._book = book
        self._prefix = str(self.root).rstrip(os.sep) + os.sep
        self._foreign = tuple(f for f in _installed() if not self._prefix.startswith(f))
        self._packages = () if any(p in self._prefix for p in _PACKAGES) else _PACKAGES
        self._files: dict[str, bool | None] = {}
        self._texts = 0
        self.notes: list[str] = []
        """What was left out, in sentences."""

    def __call__(self, code: CodeType) -> bool:
        filename = code.co_filename
        if code.co_name == "<module>":
            self._book.executed(code)
        try:
            wanted = self._files[filename]
        except KeyError:
            wanted = self._files[filename] = self._file(filename)
        if wanted is None:
            wanted = self._without_file(code) and self._has_room()
        if wanted and self._config.functions:
            wanted = self._config.allows_function(qualified_name(code, self._book))
        if wanted:
            self._book.seen(code)
        return wanted

    def _file(self, filename: str) -> bool | None:
        """Whether functions of this file are profiled; None if there is no such file."""
        if filename.startswith("<"):
            return False if filename.startswith("<frozen ") else None
        if os.path.isabs(filename):
            if self.holds(filename):
                if self._book.capture_file(filename):
                    return True
            elif os.path.isfile(filename):
                return False
        else:
            path = self._book.path_of(filename)
            if os.path.isabs(path):
                return self.holds(path)
        module = module_of(filename)  # in a zip; a cell of a notebook has a name of a file and no module
        if module is None or not self.holds(os.path.abspath(filename)):
            return None
        self._book.capture(filename, module)
        return True

    def holds(self, path: str) -> bool:
        """Whether a file with this absolute path belongs to the project and is allowed by its settings."""
        path = os.path.normpath(path)
        if not path.startswith(self._prefix):
            path = os.path.realpath(path)
            if not path.startswith(self._prefix):
                return False
        if path.startswith(self._foreign) or any(p in path for p in self._packages):
            return False
        return self._config.allows_path(path[len(self._prefix) :])

    def _without_file(self, code: CodeType) -> bool:
        if _is_generated(code):
            return False
        caller = sys._getframe(1).f_back
        frame = caller
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        if frame is not None:
            module: Mapping[str, Any] = frame.f_globals
            # What a library runs by exec to make something of ours, as dataclasses does, is the library's.
            made = code.co_filename == "<string>" and code.co_name == "<module>" and frame.f_back is not None
            wanted = self._module({} if made else module, frame.f_back)
        elif caller is not None:  # before Python 3.12 a frame that only begins cannot be seen: by who calls it
            module = caller.f_globals if code.co_filename == caller.f_code.co_filename else {}
            wanted = self._module({}, caller)
        else:
            module = vars(sys.modules["__main__"])
            wanted = self._module(module, None)
        if wanted:
            self._book.capture(code.co_filename, module)
        return wanted

    def _has_room(self) -> bool:
        """Code is kept for ever once it is profiled, which a program that evaluates texts without end would feel."""
        self._texts += 1
        if self._texts == MOST_TEXTS + 1:
            self.notes.append(f"texts of exec and eval beyond the first {MOST_TEXTS:,}")
        return self._texts <= MOST_TEXTS

    def _module(self, module: Mapping[str, Any], caller: FrameType | None) -> bool:
        file, name = module.get("__file__"), module.get("__name__")
        if isinstance(file, str):
            return self.holds(os.path.abspath(file))
        if name == "__main__":
            return not is_worker()  # a prompt, a notebook, python -c
        if name is not None or caller is None:
            return False
        return self._module(caller.f_globals, caller.f_back)  # a dictionary of its own: it belongs to who runs it


def _is_generated(code: CodeType) -> bool:
    """Methods that dataclasses and namedtuples make: there is no text of theirs that somebody wrote."""
    if code.co_filename != "<string>":
        return code.co_filename.startswith("<attrs generated ")
    made = getattr(code, "co_qualname", "").startswith("__create_fn__") or code.co_name in _GENERATED
    return made or code.co_varnames[:1] == ("_cls",)


_STARTS_WORKER = re.compile(r"(import sys; )?from multiprocessing\.(spawn|forkserver|resource_tracker) import ")


def is_worker() -> bool:
    """Whether the main module is the line of code by which multiprocessing starts its processes."""
    return _STARTS_WORKER.match(command_line_code() or "") is not None


def _installed() -> list[str]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(getattr(site, "getsitepackages", list)())
    folders.add(_OWN)
    every = folders | {os.path.realpath(f) for f in folders}
    return sorted(f.rstrip(os.sep) + os.sep for f in every)


class Targets:
    """Says for a code object whether it is in one of the named modules, functions, files or folders.

    A name that ends in ``.py``, or has a slash, is a path; any other a module with all below it, with ``.__init__``
    behind it the package's own module only; or a function or class, by the module that defines it or one that has it.
    """

    def __init__(self, targets: list[str], book: SourceBook) -> None:
        self._book = book
        self._paths = [os.path.realpath(t) for t in targets if _is_path(t)]
        self._names = [t for t in targets if not _is_path(t)]
        self._elsewhere: dict[str, frozenset[CodeType]] = {}

    def __call__(self, code: CodeType) -> bool:
        filename = code.co_filename
        if code.co_name == "<module>":
            self._book.executed(code)
        wanted = self._by_path(filename) or self._by_name(code, module_of(filename) or {})
        if wanted:
            self._book.capture(filename, module_of(filename))
            self._book.seen(code)
        return wanted

    def _by_path(self, filename: str) -> bool:
        if not self._paths or filename.startswith("<"):
            return False
        path = os.path.realpath(filename)
        return any(path == each or path.startswith(each.rstrip(os.sep) + os.sep) for each in self._paths)

    def _by_name(self, code: CodeType, module: Mapping[str, Any]) -> bool:
        if not self._names:
            return False
        function = qualified_name(code, self._book)
        for name in _names_of(module):
            if any(_is_in(name, f"{name}.{function}", target) for target in self._names):
                return True
        return any(self._is_taken_from(code, target) for target in self._names)

    def _is_taken_from(self, code: CodeType, target: str) -> bool:
        """Whether a module has this function, or its class, under the target's name: it may be defined in another."""
        if target not in self._elsewhere:
            found = _named(target)
            if found is None:
                return False  # not yet
            self._elsewhere[target] = frozenset(function.__code__ for function in codes_of(found))
        return any(code is each for each in self._elsewhere[target])


def _names_of(module: Mapping[str, Any]) -> list[str]:
    """The names of a module: that of a program is the one by which it would be imported, besides ``__main__``."""
    name = str(module.get("__name__", ""))
    if name not in ("__main__", "__mp_main__"):  # the second is a program's in what multiprocessing has spawned
        return [name]
    given = getattr(module.get("__spec__"), "name", None)
    if given is not None:  # python -m pkg.mod
        return ["__main__", str(given)]
    folder, file = os.path.split(os.path.abspath(str(module.get("__file__", ""))))
    found = [file.removesuffix(".py")]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        found.append(f"{package}.{found[-1]}")
    return ["__main__", *found]


def _is_in(name: str, full: str, target: str) -> bool:
    if target.endswith(".__init__"):
        return name == target.removesuffix(".__init__")
    return name == target or name.startswith(f"{target}.") or full == target or full.startswith(f"{target}.")


def _named(target: str) -> Any:
    """The function or class that a module has under this name, as far as it is there; no code of its is run."""
    words = target.split(".")
    for count in range(len(words) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(words[:count]))
        if found is None:
            continue
        for word in words[count:]:
            found = vars(found).get(word) if isinstance(found, (ModuleType, type)) else None
        return found if isinstance(found, (type, FunctionType)) else None
    return None


def _is_path(target: str) -> bool:
    return os.sep in target or target.endswith(".py") or os.path.exists(target)
