"""What one event costs under one tool, in one process: `python events.py TOOL [quick]` prints JSON, ns that it adds.

Each event is a plain piece of Python. It runs bare and with the tool switched on in turns, in passes shorter than a
time slice; the figure is the least of the passes with the tool less the least without, so that what neighbours take
is in neither. Events: `call` of a one-line function, `line` of a function, `block` with a name, `count` into it, `io`
a block with its bytes, `region` a block that keeps lines apart, `allocation` of 1000 bytes. A tool is asked for
what it offers and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

clock = time.perf_counter_ns
QUICK = "quick" in sys.argv[2:]
BATCHES, PASS_NS = (10, 1_000_000) if QUICK else (60, 1_500_000)

Loop = Callable[[int], Any]
Switch = Callable[[], Any]


def leaf() -> int:
    return 1


def calls(n: int) -> None:
    for _ in range(n):
        leaf()


def lines(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
        total ^= 1
        total -= 3
    return total


def allocations(n: int) -> list[Any]:
    kept: list[Any] = [None] * 100
    for i in range(n):
        kept[i % 100] = bytes(1000)  # more than 512 bytes, or memray would not see it at its usual settings
    return kept


def empty(n: int) -> None:
    for _ in range(n):
        pass


def nothing() -> None:
    """The switch of a tool that is always on."""


def added(loop: Loop, bare: Loop, on: Switch = nothing, off: Switch = nothing, events: int = 1) -> float:
    """ns that the tool adds to one event: `loop` with the tool on, less `bare` with it off."""

    def timed(work: Loop, n: int) -> int:
        start = clock()
        work(n)
        return clock() - start

    on()
    n = 20
    while timed(loop, n) < PASS_NS / 4 and n < 1_000_000:
        n *= 2
    off()
    without, with_it = [], []
    for _ in range(BATCHES):
        without.append(timed(bare, n))
        on()
        loop(10)  # what comes once after the switch is no event
        with_it.append(timed(loop, n))
        off()
    return (min(with_it) - min(without)) / n / events


def line_events(mark: Callable[[Any], Any], on: Switch, off: Switch) -> dict[str, float]:
    """Of a line profiler: lines of a marked function, calls of one."""
    mark(leaf)
    mark(lines)
    return {"call": added(calls, calls, on, off), "line": added(lines, lines, on, off, events=4)}


def accounting_events() -> dict[str, float]:
    """Ours and the peer's, by the interface that both have."""
    from lineprofiler.accounting import Profiler

    profiler = Profiler(run_dir="profile", role="r", snapshot_interval_s=None, sample_interval_s=None)

    def block(n: int) -> None:
        for _ in range(n):
            with profiler.phase("select"):
                pass

    def count(n: int) -> None:
        for _ in range(n):
            profiler.count("simulations", 8)

    def io(n: int) -> None:
        for _ in range(n):
            with profiler.phase("io", io=True):
                pass

    with profiler.phase("iteration"):
        found = {"block": added(block, empty), "count": added(count, empty), "io": added(io, empty)}
    profiler.close()
    return found


def region_event(profiler: Any) -> float:
    def region(n: int) -> None:
        for _ in range(n):
            with profiler.region("select"):
                pass

    def on() -> None:
        profiler.__enter__()

    def off() -> None:
        profiler.__exit__(None, None, None)

    return added(region, empty, on, off)


def ours() -> dict[str, float]:
    from lineprofiler import LineProfiler

    profiler = LineProfiler(other)
    found = {**accounting_events(), **line_events(profiler.add_function, profiler.enable, profiler.disable)}
    return {**found, "region": region_event(LineProfiler(other))}


def other() -> None:
    """Profiled, and never called."""


def peer() -> dict[str, float]:
    from lineprofiler import LineProfiler
    from lineprofiler.config import ProfilerConfig

    folder = os.path.dirname(os.path.abspath(__file__))
    profiler = LineProfiler(folder, ProfilerConfig(enabled=True, functions=("leaf", "lines")))

    def on() -> None:
        profiler.__enter__()

    def off() -> None:
        profiler.__exit__(None, None, None)

    found = {**accounting_events(), **line_events(lambda function: None, on, off)}
    quiet = LineProfiler(folder, ProfilerConfig(enabled=True, functions=("other",)))
    return {**found, "region": region_event(quiet)}


def line_profiler() -> dict[str, float]:
    from line_profiler import LineProfiler

    profiler = LineProfiler()
    return line_events(profiler.add_function, profiler.enable, profiler.disable)


def memory_profiler() -> dict[str, float]:
    from memory_profiler import LineProfiler

    profiler = LineProfiler()
    return line_events(profiler.add_function, profiler.enable, profiler.disable)


def cprofile() -> dict[str, float]:
    from cProfile import Profile

    profiler = Profile()
    return {"call": added(calls, calls, profiler.enable, profiler.disable)}


def yappi() -> dict[str, float]:
    import yappi

    return {"call": added(calls, calls, yappi.start, yappi.stop)}


def viztracer() -> dict[str, float]:
    from viztracer import VizTracer

    tracer = VizTracer(verbose=0)

    def off() -> None:
        tracer.stop()
        tracer.clear()

    def block(n: int) -> None:
        for _ in range(n):
            with tracer.log_event("select"):
                pass

    def count(n: int) -> None:
        for _ in range(n):
            tracer.log_var("simulations", 8)

    return {
        "call": added(calls, calls, tracer.start, off),
        "block": added(block, empty, tracer.start, off),
        "count": added(count, empty, tracer.start, off),
    }


def pyinstrument() -> dict[str, float]:
    from pyinstrument import Profiler

    profiler = Profiler()
    return {"call": added(calls, calls, profiler.start, profiler.stop)}


def tracemalloc() -> dict[str, float]:
    import tracemalloc

    return {"allocation": added(allocations, allocations, tracemalloc.start, tracemalloc.stop)}


def memray() -> dict[str, float]:
    from memray import Tracker

    stack: list[Any] = []

    def on() -> None:
        stack.append(Tracker(f"memray-{clock()}.bin"))
        stack[-1].__enter__()

    def off() -> None:
        stack.pop().__exit__(None, None, None)

    return {"allocation": added(allocations, allocations, on, off)}


TOOLS = {
    f.__name__: f
    for f in (ours, peer, line_profiler, memory_profiler, cprofile, yappi, viztracer, pyinstrument, tracemalloc, memray)
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="events-") as folder:
        os.chdir(folder)
        with contextlib.redirect_stdout(sys.stderr):  # what tools say; the last line is ours
            found = TOOLS[sys.argv[1]]()
        print(json.dumps(found))


if __name__ == "__main__":
    main()
