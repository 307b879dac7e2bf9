"""The class `Profiler` and the module functions around the installed one.

This file is loaded with the package: it imports nothing of the standard library at its top, and holds only what the
recorder (C, ``Recorder``) does not do itself. The rest is in modules that are loaded when they are used.
"""

import sys

from lineprofiler import _lineprofiler
from lineprofiler._lineprofiler import Recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar, overload

    from lineprofiler.accounting._settings import Exported
    from lineprofiler.accounting._ticker import Ticker
    from lineprofiler.accounting.results import Backend, IoSnapshot, PhaseTree

    _F = TypeVar("_F", bound=Callable[..., Any])
    _C = TypeVar("_C", bound=Callable[[PhaseTree], object])
    _StrPath = str | os.PathLike[str]

# Enabled profilers that are not closed, by run directory, as weak references.
_recording: "dict[str, list[Callable[[], Profiler | None]]]" = {}
_off_said = False


def _warn(text: str) -> None:
    """A RuntimeWarning at the first caller outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("lineprofiler."):
        level, frame = level + 1, frame.f_back
    try:
        import warnings

        warnings.warn(text, RuntimeWarning, stacklevel=level)
    except (ImportError, OSError):
        # No descriptor is free for the modules that show a warning: they are read when they are first needed.
        if sys.stderr is not None:
            sys.stderr.write(f"RuntimeWarning: {text}\n")


class Profiler(Recorder):
    """Records phases of this process into its own shared memory; readers make the reports.

    On or off is decided by `enabled`, else by a given `run_dir` (on), else by LINEPROFILER_PROFILE, else off. An
    enabled profiler exports run directory and run id to child processes through the environment until it is closed.

    Arguments: `run_dir` where files go (LINEPROFILER_RUN_DIR, else ``profile``), made absolute and created; `role` of
    this process (LINEPROFILER_ROLE, else ``main``), at most 300 characters; `run_id` of the attempt
    (LINEPROFILER_RUN_ID, else new), of ``[A-Za-z0-9._-]{1,64}``; `snapshot_interval_s` between snapshots on disk, s,
    None for none; `measure_cpu` False records no CPU time; `install` makes it the one that ``accounting.phase`` uses;
    `strict_names` raises at names built from data; `thread_names` puts each thread's phases below its name; `source`
    replaces the git description; `cuda_sync` None lets ``sync=True`` wait only where this process has a CUDA context,
    False never, True always.

    `sample_interval_s`, `trace*`, `annotate`, `backend*` and `window_phase` are checked and belong to later versions:
    one RuntimeWarning says what is not recorded, and so does the report.

    Raises TypeError and ValueError for wrong arguments, never for what the machine refuses: then a RuntimeWarning.
    """

    # Attributes of our own in slots: an instance without a dictionary has fast methods (15 ns a call on 3.13). The
    # dictionary comes when a program puts something there.
    __slots__ = (
        "__dict__",
        "_asked",
        "_callbacks",
        "_closed",
        "_cursor",
        "_cursor_lock",
        "_exported",
        "_interval",
        "_opened",
        "_pid",
        "_role",
        "_run_dir",
        "_run_id",
        "_ticker",
        "_wanted_off",
    )

    def __init__(
        self,
        run_dir: "_StrPath | None" = None,
        role: "str | None" = None,
        run_id: "str | None" = None,
        enabled: "bool | None" = None,
        snapshot_interval_s: "float | None" = 30.0,
        sample_interval_s: "float | None" = 1.0,
        measure_cpu: bool = True,
        backend: "Backend | str | None" = None,
        backend_window: "tuple[int, int] | None" = None,
        window_phase: str = "iteration",
        annotate: bool = False,
        install: bool = False,
        strict_names: bool = False,
        thread_names: bool = False,
        trace: "bool | str | None" = None,
        trace_capacity: int = 200000,
        trace_functions: "list[str] | None" = None,
        source: "dict[str, object] | None" = None,
        cuda_sync: "bool | None" = None,
    ) -> None:
        arguments = dict(locals())
        from lineprofiler.accounting import _settings

        settings = _settings.resolve(arguments)
        self._closed = False
        self._opened = False
        self._wanted_off = enabled is not None and not settings.enabled
        self._run_dir = settings.run_dir
        self._role = settings.role
        self._run_id = settings.run_id
        self._interval = settings.snapshot_interval_s
        self._asked = set(settings.asked)
        self._exported: Exported = _settings.Exported()
        self._callbacks: list[Callable[[PhaseTree], object]] = []
        self._ticker: Ticker | None = None
        self._cursor: PhaseTree = {}
        self._pid = 0
        self._settle()
        for text in settings.warnings:
            _warn(text)
        if settings.enabled:
            self._begin(settings.config(), settings.export)
        if settings.install:
            install_profiler(self)

    def _begin(self, config: "dict[str, Any]", export: "dict[str, str]") -> None:
        import weakref

        # A profiler inherited from a parent, not used here, is none of this process's.
        others = [each for each in _recording.get(self._run_dir, []) if getattr(each(), "_recording", False)]
        if others:
            _warn(f"another profiler of this process records into {self._run_dir!r}: one process will be shown as two")
        try:
            self._open(config)
        except (MemoryError, OSError) as error:
            # No place for even the smallest segment: the program goes on without.
            _warn(f"recording could not start, this process will be missing in the report: {error}")
            self._wanted_off = True  # close() need not say again that it was off
            return
        self._opened = True
        _recording[self._run_dir] = [*others, weakref.ref(self)]
        self._exported.add(export, _warn)

    def _settle(self) -> None:
        """In a forked child: forgets the parent's cursor and callbacks, which belong to the parent."""
        from os import getpid

        if self._pid != getpid():
            from _thread import RLock  # of a builtin module: nothing is loaded

            self._pid = getpid()
            self._cursor = {}
            self._cursor_lock = RLock()
            self._callbacks = []
            self._ticker = None

    @classmethod
    def disabled(cls) -> "Profiler":
        """One that records nothing, whatever the environment says."""
        return cls(enabled=False)

    @property
    def enabled(self) -> bool:
        """True from construction until `close`, if it was switched on."""
        return self._opened and not self._closed

    @property
    def run_dir(self) -> str:
        """Absolute path of the run directory."""
        return self._run_dir

    @property
    def run_id(self) -> str:
        """Id of the attempt."""
        return self._run_id

    @property
    def role(self) -> str:
        """Role of this process."""
        return self._role

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(
        self, kind: "type[BaseException] | None", error: "BaseException | None", trace: "TracebackType | None"
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "recording" if self._opened else "off"
        return f"<lineprofiler.accounting.Profiler {state}, role {self._role!r}, run_dir {self._run_dir!r}>"

    if TYPE_CHECKING:

        @overload
        def profile(self, func: _F, *, name: str | None = None) -> _F: ...
        @overload
        def profile(self, func: None = None, *, name: str | None = None) -> Callable[[_F], _F]: ...
        def profile(self, func: Any = None, *, name: str | None = None) -> Any: ...

    else:

        def profile(self, func=None, *, name=None):
            """Decorator, bare or with ``name=``: calls are entries of a phase with the function's name."""
            from lineprofiler.accounting import _decorate

            if name is not None and not isinstance(name, str):
                raise TypeError(f"a phase's name is a text, not {type(name).__name__}")

            def decorate(func):
                chosen = _decorate.name_of(func) if name is None else name
                return _decorate.decorate(self, func, chosen)

            return decorate if func is None else decorate(func)

    def merged_tree(self) -> "PhaseTree":
        """Everything that this process has recorded so far, all threads together; empty if it never was enabled."""
        if not self._opened:
            return {}
        from lineprofiler.accounting import _plain

        return _plain.tree_from_rows(self._worker()["tree"])

    def deltas(self) -> "PhaseTree":
        """What came since the last call: only phases in which something happened, the root only if it was counted on.

        The first call gives everything so far. The cursor belongs to this method alone.
        """
        self._settle()
        # Two threads that call at once share the intervals out between them: an older tree in the place of a newer one
        # would give what lies between the two once more.
        with self._cursor_lock:
            now = self.merged_tree()
            before, self._cursor = self._cursor, now
        changed: PhaseTree = {}
        for path, stats in now.items():
            grown = stats.difference(before[path]) if path in before else stats.copy()
            if grown.calls or grown.counters:
                changed[path] = grown
        return changed

    def on_snapshot(self, callback: "_C") -> "_C":
        """Decorator: `callback` gets the cumulative tree after each periodic snapshot, never at `close`.

        It runs in a thread that exists only for this, every ``snapshot_interval_s``, in the process that registered it.
        What it raises is counted, shown in the report and swallowed. With ``snapshot_interval_s=None`` it is never
        called.
        """
        if not callable(callback):
            raise TypeError(f"a callback can be called, {type(callback).__name__} cannot")
        self._settle()
        self._callbacks.append(callback)
        if self._ticker is None and self._interval is not None and self.enabled:
            from lineprofiler.accounting._ticker import Ticker

            self._ticker = Ticker(self, self._interval)
            try:
                self._ticker.start()
            except RuntimeError as error:
                self._ticker = None
                _warn(f"on_snapshot: no thread could be started ({error}); the callback will not be called")
        return callback

    def _tick(self) -> None:
        """One periodic snapshot and its callbacks. Raises nothing."""
        if not self.enabled:
            return
        self._snapshot()
        for callback in list(self._callbacks):
            try:
                callback(self.merged_tree())
            except BaseException:
                # SystemExit too: an exporter must not be able to stop the timer.
                self._note_callback_failure()

    def snapshot(self) -> None:
        """Writes this process's snapshot into the run directory now."""
        if self.enabled:
            self._snapshot()

    def io_counters(self) -> "IoSnapshot":
        """The process's cumulative I/O counters now, in bytes."""
        from lineprofiler.accounting.results import IoSnapshot

        return IoSnapshot(*super().io_counters())

    def signal(self, channel: str, key: object) -> None:
        """Marks a producer's hand-over. Of the timeline, which is not in this version: has no effect."""
        self._later("signal", channel)

    def wait_on(self, channel: str, key: object) -> None:
        """Marks a consumer's wait. Of the timeline, which is not in this version: has no effect."""
        self._later("wait_on", channel)

    def trace_begin(self, channel: str, key: object) -> None:
        """Begins a request. Of the timeline, which is not in this version: has no effect."""
        self._later("trace_begin", channel)

    def trace_mark(self, channel: str, key: object, name: str, sample: float = 1.0) -> None:
        """Marks a step of a request. Of the timeline, which is not in this version: has no effect."""
        if not 0.0 < sample <= 1.0:
            raise ValueError(f"sample lies in 0 < sample <= 1, got {sample!r}")
        self._later("trace_mark", channel)

    def trace_end(self, channel: str, key: object) -> None:
        """Ends a request. Of the timeline, which is not in this version: has no effect."""
        self._later("trace_end", channel)

    def _later(self, name: str, channel: str) -> None:
        if not isinstance(channel, str):
            raise TypeError(f"a channel is a text, not {type(channel).__name__}")
        if name in self._asked or not self.enabled:
            return
        self._asked.add(name)
        self._note_asked(name)
        _warn(f"asked for, but not in this version of lineprofiler and not recorded: {name}")

    def close(self) -> None:
        """Writes the last snapshot, uninstalls, restores the environment. Later only `merged_tree`, `deltas` answer."""
        if self._closed:
            return
        self._closed = True
        self._settle()
        lost = None
        try:
            if self._ticker is not None:
                self._ticker.stop()
                self._ticker = None
            lost = self._close()
        finally:
            if _lineprofiler._installed() is self:
                _lineprofiler._install(None)
            self._exported.remove()
            left = [each for each in _recording.get(self._run_dir, []) if each() not in (None, self)]
            if left:
                _recording[self._run_dir] = left
            else:
                _recording.pop(self._run_dir, None)
        if lost is not None:
            _warn(f"what this process recorded is lost, it had neither shared memory nor a file: {lost}")
        # Who said enabled=False knows it.
        if not self._opened and not self._wanted_off and self._entered_while_off:
            self._say_off()

    def _say_off(self) -> None:
        global _off_said
        if not _off_said:
            _off_said = True
            entered = "1 phase was" if self._entered_while_off == 1 else f"{self._entered_while_off:,} phases were"
            _warn(
                f"{entered} entered, but profiling was off: nothing was recorded. "
                "Give run_dir= or enabled=True, or set LINEPROFILER_PROFILE=1 (and LINEPROFILER_RUN_DIR)."
            )


def start(run_dir: "_StrPath | None" = None, role: "str | None" = None, **kwargs: "Any") -> Profiler:
    """``Profiler(run_dir=run_dir, role=role, install=True, **kwargs)``.

    Without `run_dir`, ``enabled=True`` and LINEPROFILER_PROFILE it is off.
    """
    kwargs.setdefault("install", True)
    return Profiler(run_dir=run_dir, role=role, **kwargs)


def stop() -> None:
    """Closes the installed profiler, if there is one."""
    profiler = installed_profiler()
    if profiler is not None:
        profiler.close()


def install_profiler(profiler: Profiler) -> None:
    """Makes `profiler` the one that the module functions use. A closed one cannot be installed: nothing happens."""
    if not isinstance(profiler, Profiler):
        raise TypeError(f"a Profiler can be installed, not {type(profiler).__name__}")
    if profiler._closed:
        return
    before = installed_profiler()
    if before is not None and before is not profiler and before.enabled and before._recording:
        _warn("another profiler was installed: the newer takes over")
    _lineprofiler._install(profiler)


def uninstall_profiler(profiler: "Profiler | None" = None) -> None:
    """Ends the installation of `profiler`, if it is the installed one; of None: of any. Does not close it."""
    if profiler is None or _lineprofiler._installed() is profiler:
        _lineprofiler._install(None)


def installed_profiler() -> "Profiler | None":
    """The profiler that the module functions use, or None."""
    installed = _lineprofiler._installed()
    return installed if isinstance(installed, Profiler) else None


def signal_ready(channel: str, key: object) -> None:
    """`Profiler.signal` of the installed profiler, if there is one."""
    profiler = installed_profiler()
    if profiler is not None:
        profiler.signal(channel, key)


def wait_on(channel: str, key: object) -> None:
    """`Profiler.wait_on` of the installed profiler, if there is one."""
    profiler = installed_profiler()
    if profiler is not None:
        profiler.wait_on(channel, key)


def trace_begin(channel: str, key: object) -> None:
    """`Profiler.trace_begin` of the installed profiler, if there is one."""
    profiler = installed_profiler()
    if profiler is not None:
        profiler.trace_begin(channel, key)


def trace_mark(channel: str, key: object, name: str, sample: float = 1.0) -> None:
    """`Profiler.trace_mark` of the installed profiler, if there is one."""
    profiler = installed_profiler()
    if profiler is not None:
        profiler.trace_mark(channel, key, name, sample)


def trace_end(channel: str, key: object) -> None:
    """`Profiler.trace_end` of the installed profiler, if there is one."""
    profiler = installed_profiler()
    if profiler is not None:
        profiler.trace_end(channel, key)
