"""Inside a process of ``lineprofiler run``: starts the profiler before the program, leaves the figures at its end.

The figures lie in a file of the run's private folder from the first line on, so that a killed process leaves them.
One that ends by itself writes them once more, with the text of its sources: at its end, and a child of multiprocessing,
which ends without running `atexit`, by a finalizer. The command merges them.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from types import CodeType
from typing import Any

from lineprofiler.lines import lprof
from lineprofiler.lines.explicit import profile as decorator
from lineprofiler.lines.profiler import LineProfiler
from lineprofiler.lines.project import Targets

ENVIRONMENT = "LINEPROFILER_LINES"


class Run:
    """The profiler of this process, and where its figures go."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.folder = str(settings["folder"])
        self.profiler = LineProfiler(settings["root"])
        self.profiler.share(self.folder)
        targets: list[str] = settings["targets"]
        if targets:
            self.profiler.select = Targets(targets, self.profiler.book)
        self.whole = bool(settings["whole"]) or bool(targets)
        self.profiler.keeps_folder = self.whole
        self.builtin = bool(settings["builtin"])

    def start(self) -> None:
        decorator.use(self.profiler)
        if self.builtin:
            vars(builtins)["profile"] = decorator
        atexit.register(self.leave)
        os.register_at_fork(after_in_child=self.forked)
        if self.whole:
            self.profiler.enable_by_count()

    def forked(self) -> None:
        self.profiler.forked()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            # Called by the child when it has forgotten the finalizers of its parent.
            util.register_after_fork(self, Run.at_end_of_worker)

    def at_end_of_worker(self) -> None:
        util = sys.modules["multiprocessing.util"]
        util.Finalize(None, self.leave, exitpriority=-1000)

    def leave(self) -> None:
        """Writes what there is. A run whose folder is gone has been reported already."""
        self.profiler.disable()
        found = self.profiler.profile()
        if found.is_empty:
            return
        # By its name the reader knows which file it stands for: a process that executes another program, or one whose
        # number came round, has left more.
        name = f"{self.profiler.segment_name() or os.getpid()}-{time.monotonic_ns()}.lprof"
        with contextlib.suppress(OSError):
            lprof.write(os.path.join(self.folder, name), found)
        self.profiler.clear()


def begin(text: str) -> None:
    """Starts the profiler as the settings say; what is meant for the first process only is not handed on."""
    settings: dict[str, Any] = json.loads(text)
    if not os.path.isdir(settings["folder"]):
        return
    setup = settings.pop("setup", None)
    os.environ[ENVIRONMENT] = json.dumps(settings)
    run = Run(settings)
    if setup is not None:
        _set_up(Path(setup))
    run.start()


def _set_up(path: Path) -> None:
    """Runs the file of --setup. If it fails the process ends as a program of that file would: whoever imports a
    sitecustomize passes over what it raises, and the program would run without what was to be set up."""
    status = 1
    try:
        code: CodeType = compile(path.read_bytes(), str(path), "exec")
        exec(code, {"__name__": "__main__", "__file__": str(path), "__builtins__": builtins})
        return
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            status = error.code or 0
        elif sys.stderr is not None:
            sys.stderr.write(f"{error.code}\n")
    except BaseException as error:
        frames = error.__traceback__
        error.__traceback__ = frames.tb_next if frames is not None else None  # without this one
        sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status & 0xFF)
