"""From the arguments of ``Profiler`` and the environment to what the recorder is started with.

Wrong arguments raise TypeError or ValueError with one line; wrong environment variables only warn, since they may
stand in the shell of somebody who does not know of the program (LINEPROFILER_TRACE, whose values are documented,
raises). Nothing here has a side effect but the run directory, which is made.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # typing itself takes 3 ms and 0.8 MB, which every fork would copy
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

ENV_ENABLE = "LINEPROFILER_PROFILE"
ENV_ROLE = "LINEPROFILER_ROLE"
ENV_RUN_DIR = "LINEPROFILER_RUN_DIR"
ENV_RUN_ID = "LINEPROFILER_RUN_ID"
ENV_TRACE = "LINEPROFILER_TRACE"

MAX_ROLE = 300
"""Characters of a role."""
MAX_RUN_ID = 64
_RUN_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
# A launcher has started several processes of one program; see _attempt.py.
_LAUNCHED = ("TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_ID")
_FALSE = ("", "0", "false", "no", "off")
_TRUE = ("1", "true", "yes", "on")
_BACKENDS = ("none", "torch", "viztracer")


class Settings:
    """What a profiler is started with. `warnings` are texts that the caller gives out."""

    __slots__ = (
        "asked",
        "cuda_sync",
        "enabled",
        "export",
        "install",
        "measure_cpu",
        "role",
        "run_dir",
        "run_id",
        "sample_interval_s",
        "snapshot_interval_s",
        "source",
        "strict_names",
        "thread_names",
        "warnings",
    )

    enabled: bool
    run_dir: str
    role: str
    run_id: str
    snapshot_interval_s: float | None
    sample_interval_s: float | None
    measure_cpu: bool
    strict_names: bool
    thread_names: bool
    install: bool
    cuda_sync: bool | None
    source: list[tuple[str, str]] | None
    asked: list[str]
    """What was asked for and comes with a later version."""
    export: dict[str, str]
    """Environment variables for children, unless they are set."""
    warnings: list[str]

    def config(self) -> dict[str, Any]:
        """What `Recorder._open` takes."""
        options = []
        if not self.measure_cpu:
            options.append(("measure_cpu", "0"))
        if self.thread_names:
            options.append(("thread_names", "1"))
        if self.strict_names:
            options.append(("strict_names", "1"))
        if self.snapshot_interval_s is None:
            options.append(("snapshot_interval_s", "none"))
        if self.asked:
            options.append(("asked", ",".join(self.asked)))
        return {
            "run_dir": self.run_dir,
            "run_id": self.run_id,
            "role": self.role,
            "measure_cpu": self.measure_cpu,
            "strict_names": self.strict_names,
            "thread_names": self.thread_names,
            "snapshot_interval_s": self.snapshot_interval_s,
            "sample_interval_s": self.sample_interval_s,
            "cuda_sync": self.cuda_sync,
            "argv": [str(each) for each in getattr(sys, "argv", [])],
            "python": python_text(),
            "options": options,
            "source": self.source,
            "run_started_ns": time.time_ns(),
        }


def python_text() -> str:
    """Version and implementation, as ``3.11.7 (CPython)``."""
    name = sys.implementation.name
    return f"{sys.version.split()[0]} ({'CPython' if name == 'cpython' else name})"


def new_run_id() -> str:
    """A new attempt's id: local time and six random hex digits, as ``20260813T224100-471c94``."""
    return f"{time.strftime('%Y%m%dT%H%M%S')}-{os.urandom(3).hex()}"


def resolve(arguments: Mapping[str, Any]) -> Settings:
    """Checks the arguments of ``Profiler`` and completes them from the environment."""
    made = Settings()
    made.warnings = []
    made.enabled = _enabled(arguments["enabled"], arguments["run_dir"])
    made.measure_cpu = _flag("measure_cpu", arguments["measure_cpu"])
    made.strict_names = _flag("strict_names", arguments["strict_names"])
    made.thread_names = _flag("thread_names", arguments["thread_names"])
    made.install = _flag("install", arguments["install"])
    cuda_sync = arguments["cuda_sync"]
    made.cuda_sync = None if cuda_sync is None else _flag("cuda_sync", cuda_sync)
    made.snapshot_interval_s = _interval("snapshot_interval_s", arguments["snapshot_interval_s"])
    made.sample_interval_s = _interval("sample_interval_s", arguments["sample_interval_s"])
    made.source = _source(arguments["source"])
    made.role = _role(arguments["role"], made.warnings)
    made.run_id = _run_id(arguments["run_id"], made.warnings)
    directory, given = _directory(arguments["run_dir"])
    trace = _asked_trace(arguments, made.enabled)
    made.asked = [*([trace] if trace else []), *_asked_rest(arguments)]
    made.run_dir = directory
    made.export = {}
    if made.enabled:
        made.run_dir = _make_directory(directory, given, made.warnings)
        made.export = {ENV_ENABLE: "1", ENV_RUN_DIR: made.run_dir, ENV_RUN_ID: made.run_id}
        if trace:
            made.export[ENV_TRACE] = "auto" if trace == "trace=auto" else "phases"
        if made.asked:
            made.warnings.append(
                f"asked for, but not in this version of lineprofiler and not recorded: {', '.join(made.asked)}"
            )
    return made


def is_true(value: str | None) -> bool:
    """What an environment variable that switches says: unset, empty, 0, false, no and off are false."""
    return value is not None and value.strip().lower() not in _FALSE


def _type_error(name: str, wanted: str, value: object) -> TypeError:
    return TypeError(f"{name} is {wanted}, not {type(value).__name__}")


def _flag(name: str, value: object) -> bool:
    if isinstance(value, (str, bytes)) or value is None:
        raise _type_error(name, "True or False", value)
    return bool(value)


def _enabled(enabled: object, run_dir: object) -> bool:
    if enabled is not None:
        return _flag("enabled", enabled)
    return run_dir is not None or is_true(os.environ.get(ENV_ENABLE))


def _interval(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, (str, bytes, bool)):
        raise _type_error(name, "a number of seconds or None", value)
    try:
        seconds = float(value)
    except TypeError:
        raise _type_error(name, "a number of seconds or None", value) from None
    if not 0.0 < seconds < float("inf"):
        raise ValueError(f"{name} is a positive number of seconds or None, got {value!r}")
    return seconds


def _role(role: object, warnings: list[str]) -> str:
    if role is not None:
        if not isinstance(role, str):
            raise _type_error("role", "a text", role)
        problem = _role_problem(role)
        if problem:
            raise ValueError(f"role {problem}")
        return role
    from_env = os.environ.get(ENV_ROLE) or "main"
    problem = _role_problem(from_env)
    if problem:
        warnings.append(f"{ENV_ROLE} {problem}; using 'main'")
        return "main"
    return from_env


def _role_problem(role: str) -> str:
    if "\0" in role:
        return "contains a NUL character"
    return f"has {len(role)} characters, at most {MAX_ROLE} are allowed" if len(role) > MAX_ROLE else ""


def _run_id(run_id: object, warnings: list[str]) -> str:
    if run_id is not None:
        if not isinstance(run_id, str):
            raise _type_error("run_id", "a text", run_id)
        if not _is_run_id(run_id):
            raise ValueError(f"run_id becomes part of file names: 1 to 64 of A-Z a-z 0-9 . _ -, got {run_id!r:.100}")
        return run_id
    from_env = os.environ.get(ENV_RUN_ID)
    if from_env:
        if _is_run_id(from_env):
            return from_env
        warnings.append(
            f"{ENV_RUN_ID} is not 1 to 64 of A-Z a-z 0-9 . _ - ({from_env!r:.100}): this process takes a new one"
        )
    from lineprofiler.accounting._attempt import inherited_run_id, launched_run_id

    launched = launched_run_id(os.environ) if any(name in os.environ for name in _LAUNCHED) else None
    return launched or inherited_run_id() or new_run_id()


def _is_run_id(text: str) -> bool:
    return 0 < len(text) <= MAX_RUN_ID and _RUN_ID_CHARACTERS.issuperset(text) and text not in (".", "..")


def _directory(run_dir: Any) -> tuple[str, bool]:
    """(directory, absolute if the working directory can be asked; True if it was an argument)"""
    given = run_dir is not None
    if given:
        try:
            text = os.fspath(run_dir)
        except TypeError:
            raise _type_error("run_dir", "a path", run_dir) from None
        if not isinstance(text, str):
            raise _type_error("run_dir", "a path of text", run_dir)
        if not text:
            raise ValueError("run_dir is empty")
        if "\0" in text:
            raise ValueError("run_dir contains a NUL character")
        try:
            os.fsencode(text)
        except UnicodeError:
            raise ValueError(f"run_dir {text!r} cannot be the name of a file") from None
    else:
        text = os.environ.get(ENV_RUN_DIR) or "profile"
    try:
        return os.path.abspath(text), given
    except OSError:  # the working directory is gone
        return text, given


def _make_directory(directory: str, given: bool, warnings: list[str]) -> str:
    try:
        os.makedirs(directory, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        if given:
            raise ValueError(f"run_dir {directory!r} is a file, or lies below one") from None
        warnings.append(f"{ENV_RUN_DIR} {directory!r} is a file, or lies below one: nothing will be written there")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        warnings.append(
            f"run_dir {directory!r} cannot be made ({reason}): recording goes on in memory, but no file can be written"
        )
    else:
        if not os.access(directory, os.W_OK | os.X_OK):
            warnings.append(
                f"run_dir {directory!r} is not writable: recording goes on in memory, but no file can be written"
            )
    return directory


def _source(source: object) -> list[tuple[str, str]] | None:
    if source is None:
        return None
    import json

    if not isinstance(source, dict):
        raise _type_error("source", "a dict or None", source)
    pairs = []
    for key, value in source.items():
        if not isinstance(key, str):
            raise TypeError(f"source has texts as keys, not {type(key).__name__}")
        try:
            text = json.dumps(value, allow_nan=False, default=str)
        except (TypeError, ValueError, RecursionError):
            text = json.dumps(str(value))
        pairs.append((key, text))
    return pairs


def _asked_trace(arguments: Mapping[str, Any], enabled: bool) -> str:
    """``""``, ``"trace"`` or ``"trace=auto"``."""
    trace = arguments["trace"]
    capacity = arguments["trace_capacity"]
    if isinstance(capacity, bool) or not hasattr(capacity, "__index__"):
        raise _type_error("trace_capacity", "a number of spans", capacity)
    if capacity < 1:
        raise ValueError(f"trace_capacity is at least 1, got {capacity!r}")
    functions = arguments["trace_functions"]
    if functions is not None and (
        isinstance(functions, (str, bytes)) or not all(isinstance(each, str) for each in functions)
    ):
        raise TypeError("trace_functions is a list of patterns or None")
    if trace is None:
        # A nonsense value raises, as documented, but never in a program in which profiling is off.
        word = os.environ.get(ENV_TRACE, "").strip().lower() if enabled else ""
        if word in _FALSE:
            return ""
        if word in _TRUE or word == "phases":
            return "trace"
        if word == "auto":
            return "trace=auto"
        raise ValueError(f"{ENV_TRACE} is one of 1, 0, phases, auto, got {word!r:.100}")
    if trace is False or trace is True:
        return "trace" if trace else ""
    if trace == "phases":
        return "trace"
    if trace == "auto":
        return "trace=auto"
    raise ValueError(f"trace is one of True, False, 'phases', 'auto', None, got {trace!r:.100}")


def _asked_rest(arguments: Mapping[str, Any]) -> list[str]:
    asked = []
    if _flag("annotate", arguments["annotate"]):
        asked.append("annotate")
    backend, window, phase = arguments["backend"], arguments["backend_window"], arguments["window_phase"]
    if backend is not None and backend not in _BACKENDS:
        choices = ", ".join(repr(each) for each in _BACKENDS)
        raise ValueError(f"backend is one of {choices}, got {backend!r:.100}")
    if not isinstance(phase, str):
        raise _type_error("window_phase", "a text", phase)
    if window is not None:
        if isinstance(window, (str, bytes)) or len(tuple(window)) != 2:
            raise TypeError("backend_window is (first, last) or None")
        first, last = window
        if not (hasattr(first, "__index__") and hasattr(last, "__index__")):
            raise TypeError("backend_window is (first, last), two entry numbers")
        if first < 0 or last < first:
            raise ValueError(f"backend_window is (first, last) with 0 <= first <= last, got {window!r}")
    if backend is not None and backend != "none":
        asked.append(f"backend={getattr(backend, 'value', backend)}")
    return asked


class Exported:
    """Environment variables that one profiler has set for its children, until it closes."""

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set: dict[str, str] = {}

    def add(self, variables: Mapping[str, str], failed: Callable[[str], None]) -> None:
        """Sets those that are not set."""
        for name, value in variables.items():
            if name in os.environ:
                continue
            try:
                os.environ[name] = value
            except (ValueError, UnicodeError, OSError) as error:
                failed(f"{name} could not be set for child processes: {error}")
            else:
                self._set[name] = value

    def remove(self) -> None:
        """Removes those that still have the value that this profiler gave them."""
        for name, value in self._set.items():
            if os.environ.get(name) == value:
                os.environ.pop(name, None)
        self._set.clear()
