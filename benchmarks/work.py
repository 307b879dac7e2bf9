"""One measurement in one process, printed as JSON: `python work.py WORKLOAD`. Runs unchanged under us and the peer.

A figure is the median over batches in this process, in ns per operation, less the cost of the bare loop around it.
run.py starts the processes, ours and the peer's in turn, and compares.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

BATCHES = 15
BATCH_NS = 10_000_000
clock = time.perf_counter_ns


def per_operation(loop: Callable[[int], None]) -> float:
    """Median ns per pass of `loop(n)`, over batches of about BATCH_NS each."""
    n = 100
    while True:
        start = clock()
        loop(n)
        spent = clock() - start
        if spent >= BATCH_NS / 4:
            break
        n *= 2
    n = max(1, int(n * BATCH_NS / spent))
    batches = []
    for _ in range(BATCHES):
        start = clock()
        loop(n)
        batches.append((clock() - start) / n)
    return statistics.median(batches)


def bare_loop(n: int) -> None:
    for _ in range(n):
        pass


def net(loop: Callable[[int], None]) -> float:
    return per_operation(loop) - per_operation(bare_loop)


class EmptyWith:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


def make_profiler(**options: Any) -> Any:
    """No thread of the peer's, no periodic write of ours: the costs of the calls alone."""
    from lineprofiler.accounting import Profiler

    return Profiler(
        run_dir=tempfile.mkdtemp(prefix="bench-"),
        role="bench",
        snapshot_interval_s=None,
        sample_interval_s=None,
        **options,
    )


def phases() -> dict[str, float]:
    from lineprofiler import accounting

    profiler = make_profiler(install=True)

    def phase(n: int) -> None:
        for _ in range(n):
            with profiler.phase("select"):
                pass

    def module_phase(n: int) -> None:
        for _ in range(n):
            with accounting.phase("select"):
                pass

    def count(n: int) -> None:
        for _ in range(n):
            profiler.count("simulations", 8)

    def module_count(n: int) -> None:
        for _ in range(n):
            accounting.count("simulations", 8)

    def sampled(n: int) -> None:
        for _ in range(n):
            with profiler.phase("sampled", sample=0.01):
                pass

    def io(n: int) -> None:
        for _ in range(n):
            with profiler.phase("io", io=True):
                pass

    def empty(n: int) -> None:
        for _ in range(n):
            with EmptyWith():
                pass

    with profiler.phase("iteration"):
        result = {
            "phase": net(phase),
            "module_phase": net(module_phase),
            "count": net(count),
            "module_count": net(module_count),
            "sampled": net(sampled),
            "io": net(io),
            "empty_with": net(empty),
        }
    profiler.close()
    return result


def phases_without_cpu() -> dict[str, float]:
    profiler = make_profiler(measure_cpu=False)

    def phase(n: int) -> None:
        for _ in range(n):
            with profiler.phase("select"):
                pass

    with profiler.phase("iteration"):
        result = {"phase_no_cpu": net(phase)}
    profiler.close()
    return result


def nothing_installed() -> dict[str, float]:
    from lineprofiler import accounting

    def phase(n: int) -> None:
        for _ in range(n):
            with accounting.phase("select"):
                pass

    def count(n: int) -> None:
        for _ in range(n):
            accounting.count("simulations", 8)

    def empty(n: int) -> None:
        for _ in range(n):
            with EmptyWith():
                pass

    return {"off_phase": net(phase), "off_count": net(count), "off_empty_with": net(empty)}


def letters(number: int, width: int = 4) -> str:
    """Names without digits: names of one shape but for their digits are warned about, which is not measured here."""
    out = []
    for _ in range(width):
        number, rest = divmod(number, 26)
        out.append(chr(ord("a") + rest))
    return "".join(out)


def first_visit() -> dict[str, float]:
    """2,000 new paths, in blocks of 100; the median block."""
    profiler = make_profiler()
    names = [letters(n) for n in range(2000)]
    blocks = []
    with profiler.phase("iteration"):
        for first in range(0, len(names), 100):
            start = clock()
            for name in names[first : first + 100]:
                with profiler.phase(name):
                    pass
            blocks.append((clock() - start) / 100)
    profiler.close()
    return {"first_visit": statistics.median(blocks)}


def mcts() -> dict[str, float]:
    """The search of the example with nothing, with four phases an iteration, and nested with counters, in turn."""
    import random

    import mcts_variants

    names = list(mcts_variants.VARIANTS)
    times: dict[str, list[float]] = {prefix + name: [] for prefix in ("off_", "") for name in names}

    def round_of(prefix: str) -> None:
        for name in names:
            random.seed(7)
            start = clock()
            mcts_variants.VARIANTS[name](mcts_variants.Game(), 2000)
            times[prefix + name].append(clock() - start)

    for _ in range(9):
        round_of("off_")
    profiler = make_profiler(install=True)
    for _ in range(9):
        round_of("")
    profiler.close()
    middle = {name: statistics.median(values) for name, values in times.items()}
    # Neighbours in time are compared, so that a slower minute of the machine takes both.
    ratio = {
        name: statistics.median(a / b for a, b in zip(times[name], times["bare"], strict=True))
        for name in ("four", "nested")
    }
    return {
        "mcts_bare": middle["bare"],
        "mcts_four": middle["four"],
        "mcts_nested": middle["nested"],
        "mcts_four_ratio": ratio["four"],
        "mcts_nested_ratio": ratio["nested"],
        "mcts_four_off_ratio": statistics.median(
            a / b for a, b in zip(times["off_four"], times["off_bare"], strict=True)
        ),
        "mcts_nested_off_ratio": statistics.median(
            a / b for a, b in zip(times["off_nested"], times["off_bare"], strict=True)
        ),
    }


def import_time() -> dict[str, float]:
    start = clock()
    import lineprofiler.accounting

    spent = clock() - start
    assert lineprofiler.accounting
    return {"import": float(spent)}


def segment_bytes() -> int:
    """Memory that this process's segments take: blocks that are there, not the address space that is reserved."""
    paths = set()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            parts = line.split(maxsplit=5)
            if len(parts) == 6 and "/lineprofiler-" in parts[5] and "/_lineprofiler" not in parts[5]:
                paths.add(parts[5].strip())
    if not paths:
        raise SystemExit("no mapped segment was found")
    return sum(os.stat(path).st_blocks * 512 for path in paths)


def segment_threads() -> dict[str, float]:
    """32 phases in each of 4 threads, each entered often enough for a histogram of several octaves."""
    profiler = make_profiler()
    names = [letters(n) for n in range(32)]

    def work() -> None:
        for turn in range(200):
            for name in names:
                with profiler.phase(name):
                    sum(range(turn * 5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"segment_threads": float(segment_bytes())}


def segment_paths() -> dict[str, float]:
    """4,096 paths is where the tree folds."""
    profiler = make_profiler()
    for n in range(4096):
        with profiler.phase(letters(n)):
            pass
    return {"segment_paths": float(segment_bytes())}


def make_run() -> dict[str, float]:
    """`make_run DIR WORKERS PHASES`: that many forked workers, each of which enters that many phases and closes."""
    from lineprofiler.accounting import Profiler

    run_dir, workers, phases = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    profiler = Profiler(run_dir=run_dir, role="actor", snapshot_interval_s=None, sample_interval_s=None)
    names = [letters(n) for n in range(phases)]
    for _ in range(workers):
        pid = os.fork()
        if pid == 0:
            with profiler.phase("iteration"):
                for turn in range(20):
                    for name in names:
                        with profiler.phase(name):
                            profiler.count("items", turn)
            profiler.close()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            raise SystemExit(f"a worker ended with {status}")
    profiler.close()
    return {"workers": float(workers)}


WORKLOADS = {
    function.__name__: function
    for function in (
        phases,
        phases_without_cpu,
        nothing_installed,
        first_visit,
        mcts,
        import_time,
        segment_threads,
        segment_paths,
        make_run,
    )
}

if __name__ == "__main__":
    print(json.dumps(WORKLOADS[sys.argv[1]]()))
