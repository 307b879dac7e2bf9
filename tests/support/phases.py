"""What the tests of the hot path share: trees as plain numbers, known loads, and measurements that are taken again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lineprofiler.accounting import PhaseStats, Profiler

_T = TypeVar("_T")
MS = 1_000_000

real_memory = pytest.mark.skipif("TESTS_SANITIZED" in os.environ, reason="a sanitizer keeps freed memory for a while")


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


def run_delay_ns() -> int:
    """How long this thread has waited for a CPU, from the kernel: the second number of schedstat."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


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
