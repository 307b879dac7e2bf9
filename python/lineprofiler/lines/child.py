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
        name = f"{os.getpid()}-{time.monotonic_ns()}.lprof"
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
        path = Path(setup)
        code: CodeType = compile(path.read_bytes(), str(path), "exec")
        exec(code, {"__name__": "__main__", "__file__": str(path), "__builtins__": builtins})
    run.start()
