"""What the tests of the hot path share: trees as plain numbers, known loads, and measurements that are taken again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lineprofiler.accounting import PhaseStats, Profiler

_T = TypeVar("_T")
MS = 1_000_000

real_memory = pytest.mark.skipif(
    "TESTS_SANITIZED" in os.environ, reason="a sanitizer has memory of its own, and keeps what is freed for a while"
)


def recording(run_dir: Path, **options: Any) -> Profiler:
    """An installed profiler that writes nothing by itself."""
    options = {"snapshot_interval_s": None, "sample_interval_s": None, "install": True, **options}
    return Profiler(run_dir, **options)


def calls(profiler: Profiler) -> dict[str, int]:
    """Finished entries by path, without paths that have none."""
    return {"/".join(path): stats.calls for path, stats in profiler.merged_tree().items() if stats.calls}


def stats_of(profiler: Profiler, path: str) -> PhaseStats:
    return profiler.merged_tree()[tuple(path.split("/"))]


def worker(profiler: Profiler) -> dict[str, Any]:
    """Everything that the recorder says of this process: `open`, `health`, `clock`, …"""
    return profiler._worker()


def health(profiler: Profiler) -> dict[str, Any]:
    """What went wrong, without the counts that are 0."""
    return {key: value for key, value in worker(profiler)["health"].items() if value}


def open_paths(profiler: Profiler) -> list[str]:
    return sorted("/".join(each[0]) for each in worker(profiler)["open"])


def check_sane(profiler: Profiler) -> None:
    """What holds in every tree, whatever was measured: 0 <= self <= wall and so on, at every node."""
    for path, stats in profiler.merged_tree().items():
        if not path:
            continue
        where = "/".join(path)
        assert 0 <= stats.child_wall_ns <= stats.wall_ns, (where, stats)
        assert 0 <= stats.self_ns <= stats.wall_ns, (where, stats)
        assert 0 <= stats.cpu_ns <= stats.wall_ns, (where, stats)
        assert 0 <= stats.blocked_ns + stats.starved_ns <= stats.wait_ns, (where, stats)
        assert stats.hist.count == stats.calls, (where, stats)
        assert stats.errors <= stats.calls, (where, stats)
        assert stats.abandoned <= stats.calls, (where, stats)


@contextlib.contextmanager
def clean_recording(run_dir: Path, **options: Any) -> Iterator[Profiler]:
    """Afterwards nothing may be open, and the next phase of this thread must be a top one."""
    with recording(run_dir, **options) as profiler:
        yield profiler
        check_sane(profiler)
        assert open_paths(profiler) == []
        with profiler.phase("the end"):
            assert profiler.current_phase() == "the end"
        assert calls(profiler)["the end"] == 1


def clean(profiler: Profiler, **expected: int) -> None:
    """Nothing went wrong but this."""
    assert health(profiler) == expected


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def measured(attempt: Callable[[], _T], tries: int = 3) -> _T:
    """The first try that does not fail. Another program or the hypervisor can take the CPU in the middle of a
    measurement; then the measurement is taken again, and what it must show stays the same."""
    for left in reversed(range(tries)):
        try:
            return attempt()
        except AssertionError:
            if not left:
                raise
            time.sleep(0.05)
    raise AssertionError("no try")


# --- known loads ---


def spin(cpu_ns: int) -> None:
    """Uses this much CPU time of the calling thread."""
    end = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < end:
        pass


_opened = threading.local()


def run_delay_ns() -> int:
    """How long this thread has waited for a CPU, from the kernel: the second number of schedstat."""
    # Opening a file of /proc takes up to a millisecond on a loaded machine, reading it again a microsecond.
    if not hasattr(_opened, "schedstat"):
        _opened.schedstat = open("/proc/thread-self/schedstat", "rb", buffering=0)  # noqa: SIM115 -- for ever
    return int(os.pread(_opened.schedstat.fileno(), 100, 0).split()[1])


@contextlib.contextmanager
def one_cpu() -> Iterator[int]:
    """Binds the calling thread to one CPU."""
    before = os.sched_getaffinity(0)
    cpu = max(before)
    os.sched_setaffinity(0, {cpu})
    try:
        yield cpu
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def spinners(count: int, cpu: int) -> Iterator[None]:
    """Other processes that want the same CPU all the time."""
    code = f"import os; os.sched_setaffinity(0, {{{cpu}}}); os.write(1, b'.')\nwhile True: pass"
    running = [subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for each in running:
            assert each.stdout is not None
            assert each.stdout.read(1) == b"."
        yield
    finally:
        for each in running:
            each.kill()
        for each in running:
            each.communicate()


# --- known truth ---

# One reading of the CPU clock and one of the wall clock are not the same instant, and the kernel's own two clocks (CPU
# time, run-queue delay) are updated one after the other: a few us, more on a busy virtual machine.
NOISE_NS = 20_000
# The TSC is calibrated in the first millisecond of a process, to about 1e-5; the kernel's clock is slewed by NTP.
RATE = 1e-4


@dataclass
class Truth:
    """What other clocks say about a region."""

    wall_ns: int = 0
    cpu_ns: int = 0
    delay_ns: int = 0

    def begin(self) -> None:
        self.delay_ns -= run_delay_ns()
        self.cpu_ns -= time.thread_time_ns()
        self.wall_ns -= time.perf_counter_ns()

    def end(self) -> None:
        self.wall_ns += time.perf_counter_ns()
        self.cpu_ns += time.thread_time_ns()
        self.delay_ns += run_delay_ns()


@dataclass
class Bounds:
    """Other clocks read just inside and just outside of a phase: what the phase shows lies between them, however long
    another program had the CPU between two of the reads."""

    inside: Truth
    outside: Truth


def so_far(profiler: Profiler, path: str) -> PhaseStats:
    """A copy of a phase's numbers, empty ones before its first entry."""
    tree = profiler.merged_tree()
    return tree[tuple(path.split("/"))] if tuple(path.split("/")) in tree else PhaseStats()


def measure(profiler: Profiler, load: Callable[[], object]) -> tuple[PhaseStats, Bounds]:
    """Runs a load in the phase "load", with other clocks inside and around."""
    scope = profiler.phase("load")
    with scope:
        pass  # what a path's first entry costs is no part of this
    before = so_far(profiler, "load")
    bounds = Bounds(Truth(), Truth())
    bounds.outside.begin()
    with scope:
        bounds.inside.begin()
        load()
        bounds.inside.end()
    bounds.outside.end()
    return stats_of(profiler, "load").difference(before), bounds


def agrees(stats: PhaseStats, bounds: Bounds, rate: float = RATE) -> None:
    """What must hold for every load."""
    least, most = bounds.inside, bounds.outside
    assert stats.calls == 1
    assert least.wall_ns * (1 - rate) <= stats.wall_ns <= most.wall_ns * (1 + rate)
    assert least.cpu_ns - NOISE_NS <= stats.cpu_ns <= most.cpu_ns + NOISE_NS
    # Run-queue delay and CPU time together come to up to 0.2 % more or less than the wall time: the kernel keeps them
    # by different clocks, and time that the hypervisor took is in none of them.
    slack = 0.005 * stats.wall_ns + NOISE_NS
    assert least.delay_ns - slack <= stats.starved_ns <= most.delay_ns + slack
    assert stats.cpu_unknown_ns == 0
    assert stats.wait_split, "schedstat is there on every kernel that the tests know"
    assert abs(stats.blocked_ns + stats.starved_ns - stats.wait_ns) <= 1
