"""What a profiled line costs: bare, with the line engine, with line_profiler 5.1, in turns; the least of the rounds.

    python benchmarks/lines.py [ROUNDS] [json]

Each round is many passes shorter than a time slice: what neighbours take is in none of them. Prints ns per line event
(a call, an unprofiled call, a region boundary) that each adds to the bare program, and how much slower code becomes
that is not profiled.
"""

from __future__ import annotations

import json
import sys
import time
from types import CodeType

from lineprofiler._lineprofiler import LineEngine

try:
    import line_profiler
except ImportError:
    line_profiler = None

N = 2_000
PLAIN = """
def work(n):
    total = 0
    for i in range(n):
        total += i
        total ^= 1
        total -= 3
    return total
"""
GLOBALS = """
G = 1
def work(n):
    for i in range(n):
        G; x = i
        G; y = x
        G; z = y
"""
CALLS = """
def leaf(x):
    return x
def work(n):
    for i in range(n):
        leaf(i)
"""
RAISES = """
def leaf(x):
    raise KeyError
def work(n):
    for i in range(n):
        try:
            leaf(i)
        except KeyError:
            pass
"""
CASES = {  # key: (name, source, line, marked function, events a pass)
    "line": ("line", PLAIN, 10, "work", 4),
    "line_far": ("line beyond 256", PLAIN, 300, "work", 4),
    "line_global": ("line that begins with a global", GLOBALS, 10, "work", 4),
    "line_global_far": ("the same beyond 256", GLOBALS, 300, "work", 4),
    "call": ("call of a one-line function", CALLS, 10, "leaf", 1),
    "unprofiled": ("unprofiled call", CALLS, 10, None, 1),
    "unprofiled_raising": ("unprofiled call that raises", RAISES, 10, None, 1),
}


def other() -> None:
    """Profiled, never called while measuring: the profiler is on, the program is not profiled."""


class Bare:
    def __init__(self, code: CodeType) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Ours(Bare):
    def __init__(self, code: CodeType) -> None:
        self.engine = LineEngine()
        self.engine.mark(code)
        self.start, self.stop = self.engine.start, self.engine.stop


class Theirs(Bare):
    def __init__(self, code: CodeType) -> None:
        self.profiler = line_profiler.LineProfiler()
        self.function = FUNCTION_OF[code]
        self.profiler.add_function(self.function)
        self.start, self.stop = self.profiler.enable, self.profiler.disable


FUNCTION_OF = {}


def measure(kind: type[Bare], source: str, line: int, name: str | None) -> float:
    space: dict = {}
    exec(compile("\n" * line + source, "<bench>", "exec"), space)
    function = space[name] if name else other
    FUNCTION_OF[function.__code__] = function
    space["work"](N)
    profiler = kind(function.__code__)
    profiler.start()
    try:
        space["work"](N // 10)
        best = 1e18
        for _ in range(30):
            start = time.perf_counter_ns()
            space["work"](N)
            best = min(best, time.perf_counter_ns() - start)
    finally:
        profiler.stop()
    return best / N


def boundary() -> float:
    engine = LineEngine()
    enter, leave = engine.region_enter, engine.region_leave
    engine.start()
    best = 1e18
    for _ in range(50):
        start = time.perf_counter_ns()
        for _ in range(N):
            enter("region")
            leave()
        best = min(best, time.perf_counter_ns() - start)
    engine.stop()
    return best / N / 2


def measure_all(rounds: int, kinds: list[type[Bare]]) -> dict[str, list[float]]:
    """By case: ns of a bare event, then what each of the other kinds adds to it."""
    found = {}
    for key, (_name, source, line, function, events) in CASES.items():
        samples: dict[type[Bare], list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind in kinds:
                samples[kind].append(measure(kind, source, line, function))
        bare = min(samples[Bare])
        found[key] = [bare / events, *((min(samples[kind]) - bare) / events for kind in kinds[1:])]
    return found


def as_json(found: dict[str, list[float]]) -> dict[str, list[float]]:
    """Ours and theirs; of unprofiled code how many times slower it is."""
    values = {}
    for key, (bare, *added) in found.items():
        values[key] = [(bare + more) / bare for more in added] if CASES[key][3] is None else added
    return {**values, "region": [boundary()], "monitoring": [float(hasattr(sys, "monitoring"))]}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    kinds: list[type[Bare]] = [Bare, Ours] + ([Theirs] if line_profiler else [])
    found = measure_all(rounds, kinds)
    if "json" in sys.argv[2:]:
        print(json.dumps(as_json(found)))
        return
    theirs = f"line_profiler {line_profiler.__version__}" if line_profiler else "line_profiler is not installed"
    print(f"Python {sys.version.split()[0]}; ns added an event; {theirs}")
    for key, (bare, *added) in found.items():
        ratio = f"  1/{added[1] / added[0]:.1f}" if len(added) == 2 and added[0] > 0 else ""
        if CASES[key][3] is None:
            ratio += f"  {(bare + added[0]) / bare:.2f}x"
        print(f"{CASES[key][0]:34}", "".join(f"{ns:10.1f}" for ns in added), f"  bare {bare:.1f}", ratio)
    print(f"{'region boundary':34} {boundary():9.1f}")


if __name__ == "__main__":
    main()
