"""on_snapshot: fires after periodic snapshots only, in a thread that exists only then, out of every fork's way."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lptest import run_python

from lineprofiler.accounting import Profiler

LIMIT_S = 20.0


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lineprofiler")]


def test_an_interval_longer_than_a_lock_can_wait(tmp_path: Path) -> None:
    with Profiler(tmp_path, snapshot_interval_s=1e12) as profiler:
        profiler.on_snapshot(lambda tree: None)
        thread = next(each for each in threading.enumerate() if each.name == "lineprofiler-on-snapshot")
        thread.join(0.1)
        assert thread.is_alive(), "it waits, and has raised nothing"
    assert ours() == []


def test_no_thread_without_a_callback(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/task"))
    with Profiler(tmp_path, snapshot_interval_s=0.05) as profiler:
        with profiler.phase("a"):
            time.sleep(0.15)
        # Threads that other tests have left may end meanwhile; none has come.
        assert set(os.listdir("/proc/self/task")) <= before


def test_callback_gets_the_cumulative_tree(tmp_path: Path) -> None:
    trees: list[Any] = []
    profiler = Profiler(tmp_path, snapshot_interval_s=0.05)

    @profiler.on_snapshot
    def export(tree: Any) -> None:
        trees.append(tree)

    with profiler.phase("a"):
        pass
    wait_for(lambda: len(trees) >= 3)
    assert trees[-1][("a",)].calls == 1
    assert ours() == ["lineprofiler-on-snapshot"]
    assert next(iter(threading.enumerate()), None) is not None
    profiler.close()
    count = len(trees)
    assert ours() == []
    time.sleep(0.15)
    assert len(trees) == count, "never at close, never after it"
    assert export([]) is None  # the decorator gives the function back


def test_never_without_an_interval_or_when_off(tmp_path: Path) -> None:
    called: list[object] = []
    for profiler in (Profiler(tmp_path, snapshot_interval_s=None), Profiler.disabled()):
        profiler.on_snapshot(called.append)
        assert ours() == []
        profiler.snapshot()
        profiler.close()
    assert called == []


def test_callback_that_raises_is_swallowed_and_counted(tmp_path: Path) -> None:
    called: list[int] = []
    profiler = Profiler(tmp_path, snapshot_interval_s=0.05)

    @profiler.on_snapshot
    def fails(tree: object) -> None:
        called.append(1)
        raise SystemExit(3) if len(called) % 2 else KeyError("exporter lost its connection")

    second: list[object] = []
    profiler.on_snapshot(second.append)
    wait_for(lambda: len(called) >= 3 and len(second) >= 3)
    profiler.close()
    with pytest.raises(TypeError, match="callback"):
        profiler.on_snapshot(3)  # type: ignore[type-var]


def test_failures_are_in_the_report(tmp_path: Path) -> None:
    from lineprofiler.accounting import merge_run

    profiler = Profiler(tmp_path, snapshot_interval_s=0.05)
    called: list[int] = []

    @profiler.on_snapshot
    def fails(tree: object) -> None:
        called.append(1)
        raise KeyError

    wait_for(lambda: len(called) >= 2)
    profiler.close()
    (worker,) = merge_run(tmp_path).workers
    assert worker.details["health"]["callback_failures"] == len(called)


def test_closing_inside_a_callback(tmp_path: Path) -> None:
    done = threading.Event()
    profiler = Profiler(tmp_path, snapshot_interval_s=0.05)

    @profiler.on_snapshot
    def once(tree: object) -> None:
        profiler.close()
        done.set()

    assert done.wait(LIMIT_S)
    assert not profiler.enabled


def test_profiler_that_is_dropped_ends_its_thread(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path, snapshot_interval_s=0.05)
    profiler.on_snapshot(lambda tree: None)
    assert ours() != []
    del profiler
    wait_for(lambda: ours() == [])
    for name in ("PROFILE", "RUN_DIR", "RUN_ID"):  # without close() the environment stays
        os.environ.pop(f"LINEPROFILER_{name}", None)


def test_forks_without_the_thread(tmp_path: Path) -> None:
    """Under -W error on 3.12 and later a fork with a second thread would raise."""
    done = run_python(
        """
        import os, sys, threading, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler(run_dir="run", role="main", snapshot_interval_s=0.02)
        ticks = []

        @profiler.on_snapshot
        def export(tree):
            ticks.append(os.getpid())

        for _ in range(20):
            time.sleep(0.005)
            child = os.fork()
            if child == 0:
                alone = len(os.listdir("/proc/self/task")) == 1 and threading.active_count() == 1
                with profiler.phase("child"):
                    time.sleep(0.05)
                os._exit(0 if alone and os.getpid() not in ticks else 1)
            assert os.waitpid(child, 0)[1] == 0
        before = len(ticks)
        time.sleep(0.2)
        assert len(ticks) > before, "the thread is back after a fork"
        assert set(ticks) == {os.getpid()}
        profiler.close()
        print("good")
        """,
        cwd=tmp_path,
        options=("-W", "error"),
    ).expect()
    assert done.stdout.strip() == "good"


def test_fork_inside_a_callback(tmp_path: Path) -> None:
    done = run_python(
        """
        import os, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler(run_dir="run", role="main", snapshot_interval_s=0.02)
        statuses = []

        @profiler.on_snapshot
        def export(tree):
            child = os.fork()
            if child == 0:
                os._exit(7)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        deadline = time.monotonic() + 20
        while len(statuses) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        profiler.close()
        print(len(statuses) >= 3, set(statuses))
        """,
        cwd=tmp_path,
    ).expect()
    assert done.stdout.strip() == "True {7}"


def test_threads_that_fork_at_once(tmp_path: Path) -> None:
    """The timer comes back after the last of them, once: also where another thread forks while it starts."""
    done = run_python(
        """
        import os, threading, time
        from lineprofiler.accounting import Profiler

        start = threading.Thread.start

        def slow_start(thread):
            start(thread)
            if thread.name.startswith("lineprofiler"):
                time.sleep(0.03)

        threading.Thread.start = slow_start
        profiler = Profiler(run_dir="run", role="main", snapshot_interval_s=0.01)
        ticks = []

        @profiler.on_snapshot
        def export(tree):
            ticks.append(1)

        def forks():
            for _ in range(30):
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)

        threads = [threading.Thread(target=forks) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        before = len(ticks)
        deadline = time.monotonic() + 20
        while len(ticks) < before + 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        print(len(ticks) >= before + 2, sum(t.name.startswith("lineprofiler") for t in threading.enumerate()))
        profiler.close()
        """,
        cwd=tmp_path,
    ).expect()
    assert done.stdout.strip() == "True 1"


def test_fork_waits_for_a_slow_callback_only_so_long(tmp_path: Path) -> None:
    release = threading.Event()
    entered = threading.Event()
    profiler = Profiler(tmp_path, snapshot_interval_s=0.02)

    @profiler.on_snapshot
    def slow(tree: object) -> None:
        entered.set()
        release.wait(LIMIT_S)

    assert entered.wait(LIMIT_S)
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    # The limit is one second; the rest is a loaded machine's.
    assert time.monotonic() - began < 10
    release.set()
    profiler.close()
