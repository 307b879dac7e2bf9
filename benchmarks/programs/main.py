"""One program once: `main.py PROGRAM MODE SIZE RESULT` runs it and writes seconds of its work and what came out of it.

MODE says what the program itself does for a tool that is used from within: `bare` nothing (also for tools that run a
program from outside), `phases` names its steps, `TOOL-function` profiles the lines of the one function that matters,
`peer-project` those of all. Runs from a folder that is its project, and leaves results in the working directory.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any


def phases(program: Any, wanted: Any) -> str:
    from lineprofiler import accounting

    with accounting.Profiler(run_dir="profile", role="main", install=True):
        return str(program.phased(wanted, accounting))


def ours_function(program: Any, wanted: Any) -> str:
    from lineprofiler import LineProfiler

    profiler = LineProfiler(getattr(*program.HOT))
    with profiler:
        found = program.bare(wanted)
    profiler.dump_stats("lines.lprof")
    return str(found)


def peer_lines(program: Any, wanted: Any, functions: tuple[str, ...]) -> str:
    from lineprofiler import LineProfiler
    from lineprofiler.config import ProfilerConfig

    project = Path(__file__).resolve().parent
    profiler = LineProfiler(project, ProfilerConfig(enabled=True, functions=functions))
    with profiler:
        found = program.bare(wanted)
    profiler.dump_stats("lines.lprof")
    return str(found)


def peer_function(program: Any, wanted: Any) -> str:
    return peer_lines(program, wanted, (getattr(*program.HOT).__qualname__,))


def peer_project(program: Any, wanted: Any) -> str:
    """The block and not `lineprofiler run`, which before Python 3.12 sees nothing that the script imports."""
    return peer_lines(program, wanted, ())


def line_profiler_function(program: Any, wanted: Any) -> str:
    from line_profiler import LineProfiler

    profiler = LineProfiler(getattr(*program.HOT))
    with profiler:
        found = program.bare(wanted)
    profiler.dump_stats("lines.lprof")
    return str(found)


def memory_profiler_function(program: Any, wanted: Any) -> str:
    from memory_profiler import profile

    owner, name = program.HOT
    with open("memory.txt", "w", encoding="utf-8") as stream:
        setattr(owner, name, profile(getattr(owner, name), stream=stream))
        return str(program.bare(wanted))


def bare(program: Any, wanted: Any) -> str:
    found = str(program.bare(wanted))
    if tracemalloc.is_tracing():  # python -X tracemalloc: what its users end with
        top = tracemalloc.take_snapshot().statistics("lineno")[:10]
        Path("allocations.txt").write_text("\n".join(map(str, top)), encoding="utf-8")
    return found


MODES: dict[str, Callable[[Any, Any], str]] = {
    "bare": bare,
    "phases": phases,
    "ours-function": ours_function,
    "peer-function": peer_function,
    "peer-project": peer_project,
    "line_profiler-function": line_profiler_function,
    "memory_profiler-function": memory_profiler_function,
}


def main() -> None:
    name, mode, size, result = sys.argv[1:5]
    program = importlib.import_module(f"program_{name}")
    wanted = program.inputs(float(size))
    start = time.perf_counter()
    found = MODES[mode](program, wanted)
    Path(result).write_text(json.dumps({"work": time.perf_counter() - start, "found": found}), encoding="utf-8")


if __name__ == "__main__":
    main()
