"""`LineProfiler`: exact time of every line, of a project's functions or of chosen ones.

A function that is profiled is marked, never wrapped or rewritten: it stays the same object. With functions (by the
constructor, by `add_function` and its like, by calling the profiler) only those are profiled and line_profiler's table
is printed; otherwise every function of the project, found at its first call, and the other table.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from lineprofiler.config import ProfilerConfig, enabled_by_environment, get_config
from lineprofiler.lines import engine as engines
from lineprofiler.lines import lprof, tables
from lineprofiler.lines.callables import codes_of, has_code
from lineprofiler.lines.model import FunctionKey, Profile
from lineprofiler.lines.project import Project, folder_of_caller
from lineprofiler.lines.scopes import Scope, policies_of
from lineprofiler.lines.source import SourceBook
from lineprofiler.lines.stats import FunctionStats, Stats

if TYPE_CHECKING:
    from os import PathLike

    from lineprofiler._lineprofiler import LineEngine

_F = TypeVar("_F")
_PEER = ("min_time_us", "top_n_lines", "sort_by")
_THEIRS = ("output_unit", "stripzeros", "details", "summarize", "sort", "rich", "config")


class Region:
    """What `LineProfiler.region` gives: a context manager that may be entered again."""

    __slots__ = ("_name", "_open", "_profiler")

    def __init__(self, profiler: LineProfiler, name: str) -> None:
        self._profiler = profiler
        self._name = name
        self._open: list[bool] = []

    def __enter__(self) -> Region:
        engine = self._profiler._engine
        active = engine is not None and engine.active
        self._open.append(active)
        if active and engine is not None:
            engine.region_enter(self._name)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._open.pop():
            engine = self._profiler._engine
            if engine is not None:
                engine.region_leave(self._name)


class LineProfiler:
    """Times each line that runs while the profiler is on: ``with LineProfiler() as profiler:``.

    ``LineProfiler(folder)`` profiles the functions of a folder, None: of the project around the caller, which is the
    nearest folder upwards with ``.git``, else with ``pyproject.toml``, else the caller's own. ``LineProfiler(f, g)``
    profiles these functions, and so does ``LineProfiler()`` to which functions are added before it is switched on.
    Functions that are added to a folder that was given, or later, are profiled besides.

    `config` replaces what pyproject.toml says; `backend` is "monitoring" (Python 3.12 on), "settrace" (before) or None;
    `engine` is taken for programs of another package, "line_profiler" or "builtin": there is one engine. Raises
    NotADirectoryError for a folder that is none, ValueError for an unknown backend or engine.
    """

    def __init__(
        self,
        *functions: Any,
        project_folder: str | PathLike[str] | None = None,
        config: ProfilerConfig | None = None,
        backend: str | None = None,
        engine: str | None = None,
    ) -> None:
        if functions and (functions[0] is None or isinstance(functions[0], (str, os.PathLike))):
            if project_folder is not None:
                raise TypeError("project_folder is given twice")
            project_folder = functions[0]
            if len(functions) > 1:
                if config is not None or len(functions) > 2 or not isinstance(functions[1], ProfilerConfig | None):
                    raise TypeError("after a folder comes its config, and nothing else")
                config = functions[1]
            functions = ()
        if backend not in (None, *engines.BACKENDS):
            raise ValueError(f"backend {backend!r}: 'monitoring' or 'settrace'")
        if engine not in (None, "line_profiler", "builtin"):
            raise ValueError(f"engine {engine!r}: 'line_profiler' or 'builtin'")
        if engine == "line_profiler":
            warnings.warn(
                "engine 'line_profiler' is not used: there is one engine, our own", RuntimeWarning, stacklevel=2
            )
        if project_folder is not None and not os.path.isdir(project_folder):
            raise NotADirectoryError(f"project_folder: {os.fspath(project_folder)!r} is no folder")
        caller = _caller()
        self.keeps_folder = project_folder is not None
        """Whether the functions of the folder are profiled besides those that are added."""
        self._root = folder_of_caller(caller) if project_folder is None else Path(os.path.realpath(project_folder))
        self._config = config if config is not None else get_config(self._root)
        self._backend = backend
        self.book = SourceBook()
        self.select: Callable[[CodeType], bool] | None = None
        self._project: Project | None = None
        self._names: dict[int, str] = {}
        self._engine: LineEngine | None = None
        self._started = 0
        self._chosen = False
        self._selects = False
        self._shared: str | None = None
        self.functions: list[Any] = []
        """The functions that were added, as they were given."""
        for function in functions:
            self.add_callable(function)

    # Switching on and off.

    def __enter__(self) -> LineProfiler:
        self.enable_by_count()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disable_by_count()

    @property
    def enable_count(self) -> int:
        """How often it is switched on."""
        return self._started

    def enable_by_count(self) -> None:
        """Switches it on; it stays on until `disable_by_count` was called as often.

        The first time events are calibrated (milliseconds); other threads that come here wait until it is on.
        """
        self._started += 1
        try:
            self._switch_on()
        except BaseException:  # a signal's handler raised, or a warning is an error
            self._started -= 1
            raise

    def disable_by_count(self) -> None:
        """Takes back one `enable_by_count`."""
        if self._started:
            self._started -= 1
            self._switch_off()

    def enable(self) -> None:
        """Switches it on, whatever the count."""
        if self._started == 0:
            self.enable_by_count()

    def disable(self) -> None:
        """Switches it off, whatever the count."""
        while self._started:
            self.disable_by_count()

    def share(self, folder: str | PathLike[str]) -> None:
        """Keeps the figures of this process and its forked children in files of this folder, from the first line on.

        ``lineprofiler lines FOLDER`` reads them while the program runs, hangs, or after it was killed. Nobody else may
        have access to the folder. Raises RuntimeError if profiling has begun.
        """
        self._shared = os.path.realpath(os.fspath(folder))
        if self._engine is not None:
            self._engine.share(self._shared)

    def segment_name(self) -> str:
        """Of the file that `share` keeps this process's figures in, without its suffix; "" if there is none."""
        path = self._engine.segment if self._engine is not None else ""
        return os.path.basename(path).removesuffix(".lines")

    def _switch_on(self) -> None:
        engines.start(self._made())

    def _switch_off(self) -> None:
        if self._engine is not None:
            self._engine.stop()

    def _made(self) -> LineEngine:
        if self._engine is None:
            select, project = self.select, None
            if select is None and (self.keeps_folder or not self._chosen):
                select = project = Project(self._root, self._config, self.book)
            engine = engines.new_engine(select, self._backend)
            if self._shared is not None:
                engine.share(self._shared)
            # Of two threads that come here at once the first one's.
            made = vars(self).setdefault("_first_made", (engine, project, select is not None))
            self._engine, self._project, self._selects = made
        return self._engine

    @property
    def backend(self) -> str:
        """ "monitoring" or "settrace"."""
        if self._engine is not None:
            return str(self._engine.backend)
        return self._backend or engines.BACKENDS[sys.version_info < (3, 12)]

    @property
    def engine(self) -> str:
        """ "builtin": the profiler has one engine, its own."""
        return "builtin"

    # Choosing functions.

    def __call__(self, func: _F) -> _F:
        """Marks a function and leaves the profiler on, so that its calls are profiled. Gives the same object back.

        Takes what has Python code in it: functions, methods, class and static methods, properties, partials, classes.
        """
        if self.add_callable(func):
            self._stay_on()
        return func

    _decorated = False

    def add_function(self, func: Any, *, nested: bool = False) -> None:
        """Marks a function. `nested`: the functions defined inside it as well. Warns if there is no Python code."""
        self.add_callable(func, nested=nested)

    def add_callable(
        self, func: Any, guard: Callable[[Any], bool] | None = None, name: str | None = None, *, nested: bool = False
    ) -> int:
        """Marks the functions in a callable; 1 if something was marked that was not before, else 0.

        `guard`: a function for which it is true is left out. `name`: how a warning calls it.
        """
        self._chosen = True
        found = list(codes_of(func))
        if not found:
            kind = type(func).__name__
            label = name or getattr(func, "__qualname__", None) or repr(func)
            warnings.warn(f"{label} ({kind}) has no Python code and is not profiled", RuntimeWarning, stacklevel=3)
            return 0
        added = 0
        for function in found:
            if guard is not None and guard(function):
                continue
            if not any(each is function for each in self.functions):
                self.functions.append(function)
                added = 1
            self._mark(function.__code__, function.__qualname__, function.__globals__, nested)
        return added

    def add_code(self, code: CodeType, *, nested: bool = False) -> None:
        """Marks a code object that is no function's: of a module, of a notebook's cell."""
        self._chosen = True
        self.functions.append(code)
        self._mark(code, code.co_name, {}, nested)

    def add_class(
        self,
        cls: type,
        *,
        scoping_policy: str | Mapping[str, str] | None = None,
        wrap: bool = False,
        nested: bool = False,
    ) -> int:
        """Marks the members of a class: its functions, and those of classes in it; how many members had new ones.

        `scoping_policy`, one for all or ``{"func": …, "class": …, "module": …}``: which functions are marked and into
        which classes and modules it goes on: "children" are defined in this class, "descendants" also deeper in it,
        "siblings" (None) anywhere in its module, "none" everywhere, "exact" goes into nothing. `wrap`: calls are
        profiled from now on, as after ``profiler(function)``; nothing is wrapped for it. Raises ValueError for another
        policy.
        """
        return self._add_members(cls, scoping_policy, wrap, nested)

    def add_module(
        self,
        mod: ModuleType,
        *,
        scoping_policy: str | Mapping[str, str] | None = None,
        wrap: bool = False,
        nested: bool = False,
    ) -> int:
        """Marks the members of a module: functions and classes; how many members had new ones.

        `scoping_policy` and `wrap` as those of `add_class`: "children" are defined in this module, "descendants" also
        in modules below it, "siblings" also in its package; None takes siblings, and goes into no other module.
        """
        return self._add_members(mod, scoping_policy, wrap, nested)

    def _add_members(
        self, owner: type | ModuleType, policy: str | Mapping[str, str] | None, wrap: bool, nested: bool
    ) -> int:
        policies = policies_of(policy)
        self._chosen = True
        count = self._add_each_member(owner, policies, nested, {})
        if wrap and count:
            self._stay_on()
        return count

    def _add_each_member(
        self, owner: type | ModuleType, policies: dict[str, str], nested: bool, seen: dict[int, Any]
    ) -> int:
        functions = Scope(owner, policies["func"])
        count = 0
        for member in list(vars(owner).values()):
            if id(member) in seen:
                continue
            seen[id(member)] = member
            if isinstance(member, (type, ModuleType)):
                if Scope(owner, policies["class" if isinstance(member, type) else "module"]).has(member):
                    count += self._add_each_member(member, policies, nested, seen) > 0
            elif has_code(member):
                count += self.add_callable(member, guard=lambda f: not functions.has(f), nested=nested)
        return count

    def _stay_on(self) -> None:
        if not self._decorated:
            self._decorated = True
            self.enable_by_count()

    def add_imported_function_or_module(
        self, item: Any, *, scoping_policy: str | Mapping[str, str] | None = None, wrap: bool = False
    ) -> int:
        """Marks a function, a class or a module, whichever it is; how many members had new functions."""
        if isinstance(item, ModuleType):
            return self.add_module(item, scoping_policy=scoping_policy, wrap=wrap)
        if isinstance(item, type):
            return self.add_class(item, scoping_policy=scoping_policy, wrap=wrap)
        added = self.add_callable(item)
        if wrap and added:
            self._stay_on()
        return added

    def _mark(self, code: CodeType, name: str, module: dict[str, Any], nested: bool) -> None:
        self._names[id(code)] = name
        around = _module_around(code.co_filename)
        if around is not None:
            self.book.executed(around)
        self.book.capture(code.co_filename, module)
        self.book.seen(code)
        self._made().mark(code)
        if nested:
            for inner in engines.codes_within(code):
                prefix = "" if name == "<module>" else f"{name}.<locals>."
                self._names.setdefault(id(inner), f"{prefix}{inner.co_name}")
                self._made().mark(inner)

    # Running something.

    def runcall(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function with the profiler on; its result."""
        self.enable_by_count()
        try:
            return func(*args, **kwargs)
        finally:
            self.disable_by_count()

    def run(self, cmd: str) -> LineProfiler:
        """Runs a statement in the main module with the profiler on."""
        main = sys.modules["__main__"].__dict__
        return self.runctx(cmd, main, main)

    def runctx(self, cmd: str, globals: dict[str, Any], locals: Any) -> LineProfiler:
        """Runs a statement in these dictionaries with the profiler on."""
        self.enable_by_count()
        try:
            exec(cmd, globals, locals)
        finally:
            self.disable_by_count()
        return self

    def forked(self) -> None:
        """In a forked child: what the parent has measured is not this process's."""
        if self._engine is not None:
            self._engine.clear()

    # Figures.

    def profile(self) -> Profile:
        """The figures so far, as plain data in ns; also while it is on."""
        if self._engine is None:
            return Profile()
        found = engines.figures(self._engine, engines.Known(self._engine, self._names, self.book))
        found.notes += getattr(self.select or self._project, "notes", [])
        return found

    def get_stats(self, sort_by: str = "time") -> Stats:
        """Figures so far, by (filename, function_name, first_line): a dict that also has line_profiler's `timings`.

        Functions, and the lines in them, are sorted by "time", "hits" or "line".
        """
        return Stats(self.profile(), sort_by)

    @property
    def timer_unit(self) -> float:
        """Seconds of a unit of `get_stats().timings`."""
        return 1e-9

    def clear(self) -> None:
        """All figures to zero; what is marked stays marked."""
        if self._engine is not None:
            self._engine.clear()

    def reset(self) -> None:
        """The same as `clear`."""
        self.clear()

    def print_stats(self, *args: Any, **options: Any) -> None:
        """Prints a table for each function.

        With ``(min_time_us=0.0, top_n_lines=None, sort_by="time", stream=None)`` lines that were hit, times in µs; with
        line_profiler's ``(stream=None, output_unit=None, stripzeros=False, details=True, summarize=False, sort=False,
        rich=False, config=None)`` its table of all lines of the functions. Without either, the second if functions are
        all that is profiled.
        Raises TypeError for options of both, ValueError for an unknown `sort_by`.
        """
        peer, theirs = _print_options(args, options)
        if theirs or (self._chosen and not self._selects and not peer):
            tables.print_line_profiler(self.profile(), stream=options.pop("stream", None), **theirs)
            return
        tables.print_functions(
            self.profile(),
            min_time_us=peer.get("min_time_us", 0.0),
            top_n_lines=peer.get("top_n_lines"),
            sort_by=peer.get("sort_by", "time"),
            stream=options.get("stream"),
        )

    def print_global_top_stats(
        self, top_n: int = 10, min_time_us: float = 0.0, sort_by: str = "time", stream: Any = None
    ) -> None:
        """Prints the top lines of all functions, sorted by "time", "hits" or "line"."""
        tables.print_top(
            self.profile(), root=self._root, top_n=top_n, min_time_us=min_time_us, sort_by=sort_by, stream=stream
        )

    def print_lines(
        self,
        stream: Any = None,
        *,
        top: int = 25,
        unit: float | None = None,
        everything: bool = False,
        threads: bool = False,
    ) -> None:
        """Prints all that was measured: hits, time, self and awaited time, own cost; cold stretches are folded.

        `top`: how many lines are listed first; `unit`: all times in this many seconds, None: each in what suits it;
        `everything`: nothing is folded; `threads`: also each thread's own lines.
        """
        from lineprofiler.lines import listing, screen

        layout = listing.layout_for(
            stream, top=top, unit_s=unit, everything=everything, threads=threads, root=self._root
        )
        screen.emit(listing.render(self.profile(), layout), stream)

    def dump_stats(self, path: str | PathLike[str]) -> None:
        """Writes an ``.lprof`` file, which line_profiler reads as well. Raises OSError."""
        lprof.write(os.fspath(path), self.profile())

    def to_html(self, path: str | PathLike[str], title: str = "lineprofiler") -> None:
        """Writes one page with the annotated source. Raises OSError."""
        from lineprofiler.lines.html import write as write_page

        write_page(path, self.profile(), title, self._root)

    # Regions.

    def region(self, name: str) -> Region:
        """A context manager: the lines that this thread runs inside it are kept apart under `name`.

        Regions nest and are inclusive; of one name inside itself the outermost counts. Off, they do nothing.
        """
        return Region(self, name)

    def _regions(self) -> dict[str, tuple[int, int, Profile]]:
        if self._engine is None:
            return {}
        regions = self._engine.regions()  # first: its rows are of code that is known then
        known = engines.Known(self._engine, self._names, self.book)
        return {
            name: (entries, spent, engines.figures(self._engine, known, rows=rows))
            for name, (entries, spent, rows) in regions.items()
        }

    def region_stats(self) -> dict[str, dict[FunctionKey, FunctionStats]]:
        """The figures of each region."""
        return {name: Stats(profile) for name, (_, _, profile) in self._regions().items()}

    def region_entries(self) -> dict[str, int]:
        """How often each region was entered."""
        if self._engine is None:
            return {}
        return {name: entries for name, (entries, _, _) in self._engine.regions().items()}

    def print_regions(self, top_n: int = 10, min_time_us: float = 0.0, stream: Any = None) -> None:
        """Prints each region's top lines, the dearest region first."""
        regions = self._regions()
        whole = self.profile().self_ns
        tables.print_regions(regions, whole, root=self._root, top_n=top_n, min_time_us=min_time_us, stream=stream)


def _module_around(filename: str) -> CodeType | None:
    """The module of this file that is just executed, as where it decorates a function."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (frame.f_code.co_name == "<module>" and frame.f_code.co_filename == filename):
        frame = frame.f_back
    return frame.f_code if frame is not None else None


def _caller() -> FrameType | None:
    """The nearest frame that is not of these modules."""
    frame: FrameType | None = sys._getframe(1)
    own = os.path.dirname(os.path.dirname(__file__)) + os.sep
    while frame is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return frame


def _print_options(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the one table and of the other; `stream` stays in `options`."""
    unknown = [name for name in options if name not in (*_PEER, *_THEIRS, "stream")]
    if unknown:
        raise TypeError(f"print_stats() got an unexpected keyword argument {unknown[0]!r}")
    if args:
        first = args[0]
        names = ("stream", *_THEIRS) if first is None or hasattr(first, "write") else (*_PEER, "stream")
        if len(args) > len(names):
            raise TypeError(f"print_stats() takes at most {len(names)} arguments")
        for name, value in zip(names, args, strict=False):
            if name in options:
                raise TypeError(f"print_stats() got {name!r} twice")
            options[name] = value
    peer = {name: options[name] for name in _PEER if name in options}
    theirs = {name: options[name] for name in _THEIRS if name in options}
    if peer and theirs:
        raise TypeError(f"print_stats(): {next(iter(peer))} belongs to one table, {next(iter(theirs))} to the other")
    return peer, theirs


_current: LineProfiler | None = None


def start_profiling(project_folder: str | PathLike[str] | None = None, *, enabled: bool | None = None) -> LineProfiler:
    """Starts a profiler of the whole process. `enabled` None: if ``LINEPROFILER_ENABLED`` says so.

    Off, the profiler that is given back records nothing. Twice: a RuntimeWarning, and the one that runs.
    """
    global _current
    if _current is not None:
        warnings.warn("the line profiler was started before; that one goes on", RuntimeWarning, stacklevel=2)
        return _current
    profiler = LineProfiler(project_folder)
    if enabled if enabled is not None else enabled_by_environment():
        profiler.enable_by_count()
        _current = profiler
    return profiler


def stop_profiling(print_stats: bool = True) -> LineProfiler | None:
    """Stops what `start_profiling` started and prints its top lines; None if nothing runs."""
    global _current
    profiler, _current = _current, None
    if profiler is None:
        return None
    profiler.disable_by_count()
    if print_stats:
        profiler.print_global_top_stats()
    return profiler
