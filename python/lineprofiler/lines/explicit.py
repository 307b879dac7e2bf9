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
from functools import cached_property
from typing import Any, TypeVar

from lineprofiler.lines.profiler import LineProfiler
from lineprofiler.lines.project import is_worker
from lineprofiler.lines.screen import emit, wants_color
from lineprofiler.lines.settings import Config, settings

_F = TypeVar("_F")
_FALSE = ("", "0", "off", "false", "no")


class GlobalProfiler:
    """``@profile``: marks functions if the run is profiled, and gives the same objects back.

    `setup_config` says by which variables and arguments it is switched on, `write_config` and `show_config` what the
    end of the run writes and prints, as in line_profiler, and `output_prefix` how the names of the files begin. They
    begin as line_profiler's settings have them (`settings`), of the file `config`; None: of the one that is found.
    """

    def __init__(self, config: Config = None) -> None:
        self._config = config
        self.enabled: bool | None = None
        self._profiler: LineProfiler | None = None
        self._owner = os.getpid()
        self._given = False

    @cached_property
    def setup_config(self) -> dict[str, list[str]]:
        return settings("setup", self._config)

    @cached_property
    def write_config(self) -> dict[str, bool]:
        return {key: value for key, value in self._written.items() if key != "output_prefix"}

    @cached_property
    def show_config(self) -> dict[str, bool]:
        return settings("show", self._config)

    @cached_property
    def output_prefix(self) -> str:
        return str(self._written["output_prefix"])

    @cached_property
    def _written(self) -> dict[str, Any]:
        return settings("write", self._config)

    def _setup(self) -> None:
        flags = self.setup_config
        wanted = any(os.environ.get(f, "").lower() not in _FALSE for f in flags["environ_flags"])
        if wanted or any(f in sys.argv for f in flags["cli_flags"]):
            self.enable()
        else:
            self.enabled = False

    def enable(self, output_prefix: str | None = None) -> None:
        """Functions that are decorated from now on are profiled; results come at the end of the process.

        In a process that multiprocessing started it does nothing: the files are those of its parent.
        """
        if _is_worker():
            self.enabled = False
            return
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
            shown = {**self.show_config, "rich": self.show_config["rich"] and wants_color(None)}
            stats.print(**shown, config=self._config)
        names = []
        if self.write_config["text"] or self.write_config["timestamped_text"]:
            if self.write_config["text"]:
                names.append(f"{self.output_prefix}.txt")
            if self.write_config["timestamped_text"]:
                names.append(f"{self.output_prefix}_{time.strftime('%Y-%m-%dT%H%M%S')}.txt")
            options: dict[str, Any] = {**self.show_config, "details": True, "rich": False, "config": self._config}
            for name in names:
                with open(name, "w", encoding="utf-8") as file:
                    stats.print(stream=file, **options)
        if self.write_config["lprof"]:
            from lineprofiler.lines import lprof

            name = f"{self.output_prefix}.lprof"
            lprof.write(name, profile)
            names.append(name)
        emit("".join(f"Wrote profile results to {name}\n" for name in names))
        if self.write_config["lprof"]:
            emit(f"To view details run:\nlineprofiler lines {self.output_prefix}.lprof\n")


def _is_worker() -> bool:
    """Whether multiprocessing started this process, or the one that forked it."""
    process = sys.modules.get("multiprocessing.process")
    return is_worker() or (process is not None and process.parent_process() is not None)


profile = GlobalProfiler()
"""The process's own."""
