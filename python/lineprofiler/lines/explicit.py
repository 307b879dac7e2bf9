"""The global decorator: ``from lineprofiler import profile``. It does nothing unless the run is to be profiled.

That is so where the environment has ``LINE_PROFILE``, the arguments have ``--line-profile``, `profile.enable()` was
called, or ``lineprofiler run`` started the program. At the end it prints a summary and writes files, as line_profiler
does.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from typing import Any, TypeVar

from lineprofiler.lines.profiler import LineProfiler
from lineprofiler.lines.screen import emit

_F = TypeVar("_F")
_FALSE = ("", "0", "off", "false", "no")


class GlobalProfiler:
    """``@profile``: marks functions if the run is profiled, and gives the same objects back.

    `write_config` and `show_config` say what the end of the run writes and prints, as in line_profiler, and
    `output_prefix` how the names of the files begin.
    """

    def __init__(self) -> None:
        self.setup_config = {
            "environ_flags": ["LINE_PROFILE"],
            "cli_flags": ["--line-profile", "--line_profile"],
        }
        self.write_config = {"lprof": True, "text": True, "timestamped_text": True, "stdout": True}
        self.show_config = {"sort": True, "stripzeros": True, "rich": False, "details": False, "summarize": True}
        self.output_prefix = "profile_output"
        self.enabled: bool | None = None
        self._profiler: LineProfiler | None = None
        self._owner = os.getpid()
        self._given = False

    def _setup(self) -> None:
        flags = self.setup_config
        wanted = any(os.environ.get(f, "").lower() not in _FALSE for f in flags["environ_flags"])
        if wanted or any(f in sys.argv for f in flags["cli_flags"]):
            self.enable()
        else:
            self.enabled = False

    def enable(self, output_prefix: str | None = None) -> None:
        """Functions that are decorated from now on are profiled; results come at the end of the process."""
        if output_prefix is not None:
            self.output_prefix = output_prefix
        if self._profiler is None:
            self._profiler = LineProfiler()
            self._owner = os.getpid()
            atexit.register(self.show)
        self.enabled = True

    def disable(self) -> None:
        """Functions that are decorated from now on are left alone."""
        self.enabled = False

    def use(self, profiler: LineProfiler) -> None:
        """Decorated functions go to this profiler, whose owner reports on them."""
        self._profiler = profiler
        self._given = True
        self.enabled = True

    def __call__(self, func: _F) -> _F:
        if self.enabled is None:
            self._setup()
        if self.enabled and self._profiler is not None:
            return self._profiler(func)
        return func

    def show(self) -> None:
        """Writes the files and prints the summary. A forked child, whose figures are its own, writes none."""
        if self._profiler is None or self._given or os.getpid() != self._owner:
            return
        profile = self._profiler.profile()
        stats = self._profiler.get_stats()
        if self.write_config["stdout"]:
            stats.print(**self.show_config)
        names = []
        if self.write_config["text"] or self.write_config["timestamped_text"]:
            if self.write_config["text"]:
                names.append(f"{self.output_prefix}.txt")
            if self.write_config["timestamped_text"]:
                names.append(f"{self.output_prefix}_{time.strftime('%Y-%m-%dT%H%M%S')}.txt")
            options: dict[str, Any] = {**self.show_config, "details": True, "rich": False}
            for name in names:
                with open(name, "w", encoding="utf-8") as file:
                    stats.print(stream=file, **options)
        if self.write_config["lprof"]:
            from lineprofiler.lines import lprof

            name = f"{self.output_prefix}.lprof"
            lprof.write(name, profile)
            names.append(name)
        if self.write_config["stdout"]:
            for name in names:
                emit(f"Wrote profile results to {name}\n")
            emit(f"To view details run:\nlineprofiler lines {self.output_prefix}.lprof\n")


profile = GlobalProfiler()
"""The process's own."""
