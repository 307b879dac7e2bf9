"""The extension: recorder, reading of runs, and the command, all in C. Private: use `lineprofiler.accounting`."""

from collections.abc import Callable
from types import CodeType, ModuleType, TracebackType
from typing import Any, Literal, TypeAlias, TypeVar, type_check_only

_F = TypeVar("_F", bound=Callable[..., Any])

__version__: str

_Row: TypeAlias = tuple[Any, ...]
_Compared: TypeAlias = tuple[list[_Row], list[tuple[str, ...]]]  # a run: its tree, the paths of its open phases
"""A phase, see src/python/convert.h."""
_Pairs: TypeAlias = list[tuple[str, str]]

@type_check_only
class PhaseScope:
    """What ``phase()`` gives: a context manager (its ``as`` is None) and a decorator; many may enter one at once."""

    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __call__(self, func: _F, /) -> _F: ...

class Recorder:
    """Base of `lineprofiler.accounting.Profiler`: records into this process's shared memory once `_open` was called."""

    def phase(
        self,
        name: str,
        io: bool | Literal["thread"] = False,
        sync: bool = False,
        sample: float = 1.0,
        async_work: bool = False,
    ) -> PhaseScope:
        """A phase: ``with profiler.phase("select"):``, or a decorator.

        It nests in the phase that is open in the same thread and task. `io` records the bytes that the process moved
        meanwhile (``"thread"``: the calling thread alone), `sync` waits for the GPU at both ends, `sample` measures one
        entry in ``round(1/sample)`` and scales, `async_work` marks times as submission only. Raises TypeError for a
        name that is no str, ValueError for a `sample` outside 0 < sample <= 1, and with ``strict_names`` for names
        built from data.
        """

    def count(self, name: str, n: int = 1) -> None:
        """Adds `n` to a counter of the innermost open phase of the caller, else of the root.

        Takes ints, bools and objects with ``__index__``, also negative ones. Raises TypeError for floats and texts,
        OverflowError for more than 64 bits.
        """

    def current_phase(self) -> str:
        """Path of the caller's deepest open phase, joined by ``/``; ``""`` if there is none."""

    def io_counters(self) -> tuple[int, int, int, int, bool]: ...
    def _open(self, config: dict[str, Any]) -> None: ...
    def _close(self) -> str | None: ...
    def _snapshot(self) -> bool: ...
    def _worker(self) -> dict[str, Any]: ...
    def _note_callback_failure(self) -> None: ...
    def _note_asked(self, option: str) -> None: ...
    @property
    def _enabled(self) -> bool: ...
    @property
    def _recording(self) -> bool: ...
    @property
    def _entered_while_off(self) -> int: ...
    @property
    def _last_error(self) -> str: ...
    @property
    def _segment_path(self) -> str: ...

_LineRow: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""code, line, hits, visits, time_ns, self_ns, awaited_ns, thread"""
_FunctionRow: TypeAlias = tuple[int, int, int, int, int, int]
"""code, calls, time_ns, self_ns, awaited_ns, suspended"""

class LineEngine:
    """Counts and times the lines of code objects: exact, per thread and frame. docs/lines.md says what is counted."""

    def __init__(
        self,
        *,
        select: Callable[[CodeType], bool] | None = None,
        backend: Literal["monitoring", "settrace"] | None = None,
    ) -> None:
        """`select` None: only what is marked. Else it is asked once per code object, at its first call or on a stack.

        An exception in it counts as False and is kept in `trouble`. Raises ValueError for a back end that this Python
        has not.
        """

    def mark(self, code: CodeType, /) -> int:
        """Measures this code object, without those nested in it; its index in `codes`, the same for the same object."""

    def unmark(self, code: CodeType, /) -> None:
        """Measures it no more; its figures stay."""

    def share(self, folder: str, /) -> None:
        """Figures of this process and its forked children lie in files ``*.lines`` of this folder, and outlive them.

        `load_lines` reads them, at any time. They stay until somebody removes them. A folder that others may enter, or
        that cannot be written, is not used; `trouble` says so. Raises RuntimeError after the first start().
        """

    def start(self) -> None:
        """Events flow in all threads until as many stop(). Where nothing can be measured, `trouble` says why."""

    def stop(self) -> None:
        """Takes back one start()."""

    def codes(self) -> list[CodeType]:
        """All code objects that were marked or selected, by index."""

    def lines(self, code: int | None = None, /) -> list[_LineRow]:
        """Figures until now, also of open frames; sorted by code, line, thread. Times in ns, own cost taken off.

        Raises IndexError for a code that is not in `codes`.
        """

    def functions(self) -> list[_FunctionRow]:
        """Figures of all code objects until now, sums over threads."""

    def threads(self) -> list[tuple[int, str]]:
        """Number and name, as it was at its first event. From the 257th on, threads add to those that have ended."""

    def regions(self) -> dict[str, tuple[int, int, list[_LineRow]]]:
        """Entries, ns and lines by name, what is nested in them included."""

    def region_enter(self, name: str, /) -> None:
        """Begins a region in this thread. Raises TypeError for a name that is no str."""

    def region_leave(self, name: str | None = None, /) -> None:
        """Ends the region of this name that was entered last in this thread; None: that of any."""

    def clear(self) -> None:
        """All figures to zero; marks stay, and what is open begins now."""

    @property
    def count(self) -> int: ...
    @property
    def active(self) -> bool: ...
    @property
    def backend(self) -> str: ...
    @property
    def own_cost(self) -> dict[str, float]:
        """ns that an event of each class adds, as taken off from all times, and ``…_error``. Empty before start()."""

    @property
    def segment(self) -> str:
        """Path of the file that this process's figures lie in; "" if there is none."""

    @property
    def trouble(self) -> list[str]:
        """What could not be measured, in sentences."""

def load_lines(path: str, /) -> dict[str, Any]:
    """What a process that shares its lines has so far, whether it runs, hangs or was killed.

    pid; started_ns (Unix time); living, closed: bool; codes: [(file, qualified name, first line)] by index; lines:
    [_LineRow], where rows of one code, line and thread add up; functions: [(code, thread, calls, time_ns, self_ns,
    awaited_ns, suspended)], likewise; threads: [(number, name)]; open: [(thread, code, line, ns there)], outermost
    first. Raises OSError and ValueError.
    """

def pickle_is_modest(data: bytes, /) -> bool:
    """Whether this pickle claims no more room than it is long, so that pickle.Unpickler may read it; runs nothing.

    False, too, for one that is cut or has opcodes that no line profile needs: persistent ids, extensions, PUT.
    """

def phase(
    name: str, io: bool | Literal["thread"] = False, sync: bool = False, sample: float = 1.0, async_work: bool = False
) -> PhaseScope:
    """`Recorder.phase` of the installed profiler; does nothing if there is none."""

def count(name: str, n: int = 1) -> None:
    """`Recorder.count` of the installed profiler; does nothing if there is none."""

def current() -> str:
    """Path of the caller's deepest open phase of the installed profiler; ``""`` if there is none."""

def _install(recorder: Recorder | None, /) -> None: ...
def _installed() -> Recorder | None: ...
def _adopt(module: ModuleType, /) -> None: ...
def load_run(path: str, adopt: bool, /) -> dict[str, Any]:
    """A run directory as plain data. `adopt`: dead segments of this host get their snapshot files. Raises OSError."""

def read_samples(
    path: str, rows: bool, /
) -> tuple[str, str, str, str, bool, float, float, list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """A sample file: uuid, run id, host, boot id, whether it is a host's, interval (s), and if asked for its rows.

    That is: Unix time less t at the first row (s), rows, rows of devices. A row: t (CLOCK_MONOTONIC, s), path, then
    rss read_bytes write_bytes read_chars write_chars (bytes) cpu (us) torch_allocated torch_reserved (bytes); of a
    device: t, index, busy, ours (1/1000), our memory (bytes). None: not measured. What follows a damaged batch is left
    out. Raises OSError, ValueError.
    """

def list_samples(path: str, /) -> list[str]:
    """The sample files of a run directory, of every attempt."""

def sample_self() -> tuple[int | None, ...]:
    """rss read_bytes write_bytes read_chars write_chars (bytes) cpu (us) of this process, now."""

def analyse_samples(processes: list[list[tuple[Any, ...]]], interval_s: float, width: int, /) -> dict[str, Any]:
    """Figures of rows (t, phase, rss, read_bytes, write_bytes, read_chars, write_chars, cpu_us; -1 not measured)."""

def render_text(run: dict[str, Any], width: int, color: bool, utf8: bool, all: bool, samples: bool, /) -> str: ...
def report_json(run: dict[str, Any], samples: bool, /) -> str: ...
def report_file(path: str, json: bool, /) -> str:
    """The report of a run directory, from files to text. Raises OSError."""

def compare_trees(
    a: _Compared, b: _Compared, /
) -> list[tuple[str, int, int, float, float, float, float, int, int, int]]:
    """(phase, entries a, b, mean a, b, median a, b in ns, measured entries, open a, b), in the order of the report."""

def render_comparison(
    a: _Compared, b: _Compared, label_a: str, label_b: str, width: int, color: bool, utf8: bool, /
) -> str: ...
def comparison_json(a: _Compared, b: _Compared, label_a: str, label_b: str, /) -> str: ...
def cli_main(
    argv: list[str],
    out_write: Callable[[str], object],
    err_write: Callable[[str], object],
    fd: int,
    is_tty: bool,
    utf8: bool,
    environment: tuple[str | None, str | None, str | None, str | None, str | None, str | None],
    /,
) -> int:
    """The command. `environment` is (NO_COLOR, TERM, COLUMNS, LC_ALL, LC_CTYPE, LANG); `fd` of the terminal, -1 none.

    Gives the exit code. A BrokenPipeError of a stream ends its output quietly; other exceptions are raised at the end.
    """
