"""What a phase costs in one thread, and in two at once, each pinned to a CPU of its own.

For interpreters without the GIL: `python3.13t benchmarks/parallel.py`, with the package installed there. Rounds are
short (a third of a millisecond) and in turns: the first thread alone, the second alone, both from a common moment on.
Times are those of the threads' own CPU clocks, so a neighbour costs its cache misses only; of both threads at once the
slower one counts.

It prints the median of the rounds, the least, and their ratios. The ratio of the medians is the one to keep below 1.15:
the least of many rounds may be one in which the threads never met.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lineprofiler.accounting import Profiler, count, phase

PASSES = 3_000


def installed(n: int) -> None:
    for _ in range(n):
        with phase("step"):
            pass


def nested(n: int) -> None:
    for _ in range(n // 2):
        with phase("step"), phase("inner"):
            pass


def counted(n: int) -> None:
    for _ in range(n):
        count("items", 3)


def bare(n: int) -> None:
    for _ in range(n):
        object()


class Worker:
    """A thread that runs `work` when it is told, and says what that took."""

    def __init__(self, cpu: int, work: Callable[[int], None]) -> None:
        self.cpu, self.work = cpu, work
        self.told = self.done = 0
        self.start_ns = self.used_ns = 0
        self.over = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        os.sched_setaffinity(0, {self.cpu})
        self.work(PASSES)
        while not self.over:
            if self.done == self.told:
                time.sleep(0.0002)
                continue
            while time.perf_counter_ns() < self.start_ns:
                pass
            begin = time.thread_time_ns()
            self.work(PASSES)
            self.used_ns = time.thread_time_ns() - begin
            self.done += 1


def fire(*workers: Worker) -> float:
    """ns a pass of the slower of them."""
    start = time.perf_counter_ns() + 500_000
    for worker in workers:
        worker.start_ns = start
        worker.told += 1
    while any(worker.done != worker.told for worker in workers):
        time.sleep(0.0005)
    return max(worker.used_ns for worker in workers) / PASSES


def measure(work: Callable[[int], None], cpus: list[int], rounds: int) -> tuple[list[float], list[float]]:
    """(one thread, two at once), ns a pass, a figure for each round; of one thread alone the slower CPU's."""
    workers = [Worker(cpu, work) for cpu in cpus]
    alone, both = [], []
    for _ in range(rounds):
        alone.append(max(fire(worker) for worker in workers))
        both.append(fire(*workers))
    for worker in workers:
        worker.over = True
        worker.thread.join()
    return alone, both


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        parser.error("two CPUs are needed")
    gil = "with" if getattr(sys, "_is_gil_enabled", lambda: True)() else "without"
    print(f"Python {sys.version.split()[0]}, {gil} the GIL; ns a call, {args.rounds} rounds")
    print(f"{'':24}{'one':>8}{'two':>8}{'ratio':>8}{'least':>16}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        other = Profiler(Path(folder) / "other", snapshot_interval_s=None, sample_interval_s=None)

        def private(n: int) -> None:
            for _ in range(n):
                with other.phase("step"):
                    pass

        @phase("decorated")
        def decorated() -> None:
            pass

        def called(n: int) -> None:
            for _ in range(n):
                decorated()

        rows = {
            "object(), to compare": bare,
            "phase": installed,
            "phase in a phase": nested,
            "count": counted,
            "another profiler's phase": private,
            "a decorated function": called,
        }
        with Profiler(Path(folder) / "run", install=True, snapshot_interval_s=None, sample_interval_s=None):
            for name, work in rows.items():
                alone, both = measure(work, cpus, args.rounds)
                middle, least = [statistics.median(each) for each in (alone, both)], [min(alone), min(both)]
                print(
                    f"{name:24}{middle[0]:8.0f}{middle[1]:8.0f}{middle[1] / middle[0]:8.2f}"
                    f"{least[0]:8.0f}{least[1]:8.0f}{least[1] / least[0]:8.2f}"
                )
        other.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
