"""Threads at once: truly parallel where Python has no GIL, in turns elsewhere. The figures are exact on both."""

from __future__ import annotations

import gc
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from linetest import H, marked
from lptest import run_python
from phases import calls, check_sane, recording, stats_of

from lineprofiler import accounting
from lineprofiler.accounting import Profiler

phase, count, current = accounting.phase, accounting.count, accounting.current

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
THREADS = 8
PROFILERS = 6


@pytest.fixture
def profiler(run_dir: Path) -> Iterator[Profiler]:
    with recording(run_dir) as made:
        yield made
        check_sane(made)


@pytest.fixture(autouse=True)
def _turns_are_short() -> Iterator[None]:
    """Where there is a GIL threads change places a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], None]) -> None:
    """work(0) … work(7), each in a thread; none begins before all are there. What one raises is raised."""
    barrier = threading.Barrier(THREADS)
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(60)
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def test_the_module_needs_no_gil() -> None:
    done = run_python(
        """
        import sys
        import lineprofiler.accounting, lineprofiler._lineprofiler
        print(getattr(sys, "_is_gil_enabled", lambda: True)())
        """,
        options=("-W", "error"),
    ).expect()
    assert done.stdout.split() == [str(not FREE_THREADED)]
    assert done.stderr == ""


# --- accounting ---


def test_eight_threads_are_counted_exactly(profiler: Profiler) -> None:
    rounds = 3_000
    lived = [0] * THREADS

    def work(number: int) -> None:
        began = time.perf_counter_ns()
        for n in range(rounds):
            with phase("all"):
                count("n", number)
                with phase("inner", sample=0.25):
                    pass
                with phase(f"own {number}"):
                    count("one")
            if n % 100 == 0:
                with pytest.raises(KeyError), phase("all"), phase("fails"):
                    raise KeyError
        lived[number] = time.perf_counter_ns() - began

    at_once(work)
    failures = THREADS * rounds // 100
    assert calls(profiler) == {
        "all": THREADS * rounds + failures,
        "all/inner": THREADS * rounds,
        "all/fails": failures,
        **{f"all/own {number}": rounds for number in range(THREADS)},
    }
    whole = stats_of(profiler, "all")
    assert whole.counters == {"n": rounds * sum(range(THREADS))}
    assert (whole.counter_min["n"], whole.counter_max["n"]) == (0, THREADS - 1)
    assert (whole.errors, stats_of(profiler, "all/fails").errors) == (failures, failures)
    assert whole.hist.count == whole.calls
    # No more than the threads lived; 1 ms a thread for what lies between two clocks.
    assert 0 < whole.child_wall_ns <= whole.wall_ns <= sum(lived) + THREADS * 1_000_000
    for number in range(THREADS):
        assert stats_of(profiler, f"all/own {number}").counters == {"one": rounds}


def test_one_scope_entered_by_eight_threads(profiler: Profiler) -> None:
    """A decorator's, and one that a variable holds: open entries of several threads in one list."""
    scope = profiler.phase("shared")

    @profiler.phase("decorated")
    def decorated(depth: int) -> str:
        return decorated(depth - 1) if depth else current()

    def work(number: int) -> None:
        for _ in range(1_000):
            with scope:
                assert current() == "shared"
                with scope:
                    assert decorated(1) == "shared/shared/decorated/decorated"

    at_once(work)
    times = THREADS * 1_000
    assert calls(profiler) == {
        "shared": times,
        "shared/shared": times,
        "shared/shared/decorated": times,
        "shared/shared/decorated/decorated": times,
    }


def test_new_names_in_eight_threads(profiler: Profiler) -> None:
    """First visits take memory, ids and nodes, of the same names and of others, all at once."""

    def work(number: int) -> None:
        for n in range(200):
            with phase(f"phase-{n}-of-all"), phase(f"x{number}y{n}z"):
                count(f"counter {n % 7}", n)

    with pytest.warns(RuntimeWarning, match="distinct phase names share the shape"):
        at_once(work)
    found = calls(profiler)
    assert [found[f"phase-{n}-of-all"] for n in range(200)] == [THREADS] * 200
    assert sum(n for path, n in found.items() if "/" in path) == THREADS * 200
    assert len(found) == 200 + THREADS * 200


# --- the installed profiler comes and goes ---


def test_scopes_outlive_the_installation(tmp_path: Path) -> None:
    """Without the GIL the scopes of the installed profiler own it only from its uninstallation on."""
    made = recording(tmp_path / "a")
    with made:
        before = sys.getrefcount(made)
        scopes = [phase("kept") for _ in range(100)]
        assert sys.getrefcount(made) - before == (0 if FREE_THREADED else 100)
        accounting.uninstall_profiler()
        assert sys.getrefcount(made) - before == 99, "those of the scopes, less the installation's own"
        with scopes[0]:
            pass
        accounting.install_profiler(made)
        with scopes[1]:
            assert current() == "kept"
        assert calls(made) == {"kept": 2}
    died = weakref.ref(made)
    del made
    gc.collect()
    assert died() is not None, "they need it still"
    with scopes[2]:
        assert current() == ""
    del scopes
    gc.collect()
    assert died() is None


def test_frozen_scopes_outlive_the_installation(tmp_path: Path) -> None:
    """gc.freeze() takes objects out of everybody's sight, as servers do that fork."""
    done = run_python(
        """
        import gc, sys
        from lineprofiler import accounting
        for n in range(3):
            made = accounting.Profiler(f"{sys.argv[1]}/{n}", install=True, snapshot_interval_s=None)
            scopes = [accounting.phase("kept") for _ in range(100)]
            gc.freeze()
            made.close()
            del made
            gc.collect()
            for scope in scopes:
                with scope:
                    assert accounting.current() == ""
            scope = scopes = None
            gc.unfreeze()
        print("done")
        """,
        tmp_path,
    ).expect()
    assert done.stdout.split() == ["done"]


def test_installing_beside_working_threads(tmp_path: Path) -> None:
    """Profilers are installed, taken away, closed and dropped while threads are within phases: each entry is in one of
    them or in none, and all of them go."""
    stop = threading.Event()
    made: list[weakref.ref[Profiler]] = []
    entered = [0] * THREADS

    def work(number: int) -> None:
        if number == 0:
            for n in range(PROFILERS):
                profiler = recording(tmp_path / f"{n}")
                for _ in range(2):
                    accounting.uninstall_profiler()
                    time.sleep(0.001)
                    accounting.install_profiler(profiler)
                    time.sleep(0.001)
                made.append(weakref.ref(profiler))
                if n % 2:
                    accounting.uninstall_profiler()
                profiler.close()
                del profiler
            stop.set()
            return
        while not stop.is_set():
            with phase("work"), phase("io", io=True):
                count("n", 1)
            entered[number] += 1

    at_once(work)
    gc.collect()
    assert [each() for each in made] == [None] * PROFILERS
    counted = 0
    for n in range(PROFILERS):
        run = accounting.merge_run(tmp_path / f"{n}")
        assert run.unreadable == []
        assert len(run.workers) == 1
        stats = run.workers[0].tree.get(("work",))
        if stats is not None:
            assert stats.hist.count == stats.calls
            counted += stats.calls
    assert 0 < counted <= sum(entered)


# --- lines ---


def test_line_hits_of_eight_threads_are_exact() -> None:
    def inner(n: int) -> int:
        if n % 3:
            return n
        return -n

    def outer() -> int:
        total = 0
        for n in range(3_000):
            total += inner(n)
        return total

    with marked(outer, inner) as p:
        at_once(lambda number: outer() and None)
    assert H(p, outer) == {1: THREADS, 2: THREADS * 3_001, 3: THREADS * 3_000, 4: THREADS}
    assert H(p, inner) == {1: THREADS * 3_000, 2: THREADS * 2_000, 3: THREADS * 1_000}
    assert p.function(inner)[0] == THREADS * 3_000


def test_lines_are_read_while_eight_threads_run_them() -> None:
    def f() -> None:
        for n in range(10_000):
            n + 1

    seen: list[int] = []
    done = threading.Event()
    with marked(f) as p:
        f()

        def read() -> None:
            while not done.is_set():
                seen.append(H(p, f)[2])

        reader = threading.Thread(target=read)
        reader.start()
        at_once(lambda number: f())
        done.set()
        reader.join()
    assert H(p, f) == {1: 9 * 10_001, 2: 9 * 10_000}
    assert seen == sorted(seen), "a count never goes back"
