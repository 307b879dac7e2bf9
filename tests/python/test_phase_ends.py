"""How a phase can end: by every kind of exception, by nobody, twice, and with the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import gc
import os
import queue
import re
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lptest import run_python
from phases import calls, clean, clean_recording, health, open_paths, recording, stats_of

from lineprofiler import accounting
from lineprofiler.accounting import MergedRun, Profiler

phase, count, current = accounting.phase, accounting.count, accounting.current


@pytest.fixture
def profiler(run_dir: Path) -> Iterator[Profiler]:
    with clean_recording(run_dir) as made:
        yield made


# --- exceptions ---


def test_exceptions_are_entries_and_errors(profiler: Profiler) -> None:
    for number in range(10):
        with contextlib.suppress(KeyError), phase("outer"), phase("inner"):
            if number % 2:
                raise KeyError
    assert calls(profiler) == {"outer": 10, "outer/inner": 10}
    assert stats_of(profiler, "outer").errors == stats_of(profiler, "outer/inner").errors == 5

    with phase("catches"), contextlib.suppress(ValueError), phase("raises"):
        raise ValueError
    assert stats_of(profiler, "catches").errors == 0
    assert stats_of(profiler, "catches/raises").errors == 1


def test_exception_is_not_touched(profiler: Profiler) -> None:
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught, phase("raises"):
        raise error
    assert caught.value is error
    assert error.__context__ is None
    assert error.__cause__ is None
    with phase("in a handler"):
        try:
            raise KeyError
        except KeyError:
            with phase("handles"):
                assert sys.exc_info()[0] is KeyError
    assert sys.exc_info() == (None, None, None)


def test_exit_stacks(profiler: Profiler) -> None:
    with contextlib.ExitStack() as stack:
        for name in "abc":
            assert stack.enter_context(phase(name)) is None
        assert current() == "a/b/c"
        kept = stack.pop_all()
    assert current() == "a/b/c"
    kept.close()

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(phase("x"))
            await stack.enter_async_context(contextlib.nullcontext())
            stack.enter_context(phase("y"))
            await asyncio.sleep(0)
            assert current() == "x/y"
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(main())
    assert calls(profiler) == {"a": 1, "a/b": 1, "a/b/c": 1, "x": 1, "x/y": 1}
    assert stats_of(profiler, "x/y").errors == 1
    clean(profiler)


def test_keyboard_interrupt(profiler: Profiler) -> None:
    def interrupted() -> None:
        with phase("interrupted"), phase("inner"):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(10**6):
                pass

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert calls(profiler) == {"interrupted": 1, "interrupted/inner": 1}
    assert stats_of(profiler, "interrupted").errors == 1


def test_signal_handler_with_phases(profiler: Profiler) -> None:
    """A handler runs between any two instructions of the main thread, also between the halves of a with."""

    def handler(number: int, frame: object) -> None:
        with phase("handler"):
            pass

    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        end = time.monotonic() + 0.5
        passes = 0
        while time.monotonic() < end:
            with phase("outer"), phase("inner"):
                pass
            passes += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    found = calls(profiler)
    assert found["outer"] == found["outer/inner"] == passes
    handled = {path: n for path, n in found.items() if path.endswith("handler")}
    assert sum(handled.values()) >= 10
    # On a busy machine the next signal comes while the handler still runs.
    assert all(re.fullmatch(r"(outer/(inner/)?)?handler(/handler)*", path) for path in handled), handled
    clean(profiler)


class Thrown(BaseException):
    """By another thread, anywhere."""


def test_asynchronous_exceptions(profiler: Profiler) -> None:
    """One second of exceptions between any two instructions: entries stay consistent and nothing stays open."""
    finished = 0
    caught = 0
    stop = threading.Event()
    idents: queue.Queue[int] = queue.Queue()

    def loop() -> None:
        nonlocal finished
        while not stop.is_set():
            with phase("outer"):
                with phase("inner"):
                    count("n")
            finished += 1

    def work() -> None:
        nonlocal caught
        idents.put(threading.get_ident())
        while not stop.is_set():
            try:
                while not stop.is_set():
                    try:
                        loop()
                    except Thrown:
                        caught += 1
            except Thrown:
                caught += 1

    def outermost() -> None:
        while True:
            try:
                work()
                break
            except Thrown:
                continue
        with contextlib.suppress(Thrown):
            time.sleep(0)

    thread = threading.Thread(target=outermost)
    thread.start()
    ident = ctypes.c_ulong(idents.get())
    end = time.monotonic() + 1
    thrown = 0
    while time.monotonic() < end or (thrown <= 100 and time.monotonic() < end + 60):
        thrown += ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Thrown))
        time.sleep(0.0003)
    stop.set()
    thread.join()
    gc.collect()
    assert thrown > 100
    assert caught > 50
    outer, inner = stats_of(profiler, "outer"), stats_of(profiler, "outer/inner")
    assert outer.calls >= inner.calls - inner.abandoned
    assert finished <= inner.calls - inner.abandoned
    assert outer.calls - outer.errors - outer.abandoned - finished <= caught
    assert outer.errors + outer.abandoned <= thrown
    assert inner.counters["n"] >= finished
    # Nothing but these paths: no exception left an entry behind that later ones nest in. An exception between the
    # return of __enter__ and the body drops the object, which closes its entry.
    assert set(calls(profiler)) == {"outer", "outer/inner"}
    assert open_paths(profiler) == []
    clean(profiler)


# --- misuse and forgetting ---


def test_exit_without_enter(profiler: Profiler) -> None:
    scope = phase("never")
    scope.__exit__(None, None, None)
    with phase("fine"):
        scope.__exit__(None, None, None)
        assert current() == "fine"
    assert calls(profiler) == {"fine": 1}
    clean(profiler, misuse=2)


def test_double_exit(profiler: Profiler) -> None:
    scope = phase("twice")
    with scope:
        scope.__exit__(None, None, None)
        assert current() == ""
    with phase("outer"):
        with scope:
            pass
        scope.__exit__(KeyError, KeyError(), None)
        assert current() == "outer"
    assert calls(profiler) == {"twice": 1, "outer": 1, "outer/twice": 1}
    clean(profiler, misuse=2)


def test_enter_without_exit(profiler: Profiler) -> None:
    scope = phase("forgotten")
    scope.__enter__()
    assert open_paths(profiler) == ["forgotten"]
    with phase("child"):
        pass
    del scope
    assert current() == ""
    assert calls(profiler) == {"forgotten": 1, "forgotten/child": 1}
    assert stats_of(profiler, "forgotten").abandoned == 1
    assert stats_of(profiler, "forgotten").errors == 0


def test_object_that_was_left_before_and_is_dropped_open(profiler: Profiler) -> None:
    """What was left once may be kept for the next phase of its name, but not while it is open again."""
    name = "kept"
    for _ in range(3):
        scope = phase(name)
        with scope:
            pass
        scope.__enter__()
        del scope
        assert current() == ""
        with phase(name):
            pass
    assert calls(profiler) == {"kept": 9}
    assert stats_of(profiler, "kept").abandoned == 3
    clean(profiler)


def test_object_dropped_below_others(profiler: Profiler) -> None:
    scope = phase("dropped")
    scope.__enter__()
    with phase("child"):
        del scope
        assert current() == "dropped/child"
        with phase("grandchild"):
            pass
    assert current() == ""
    assert calls(profiler) == {"dropped": 1, "dropped/child": 1, "dropped/child/grandchild": 1}
    assert stats_of(profiler, "dropped").abandoned == 1


def test_object_dropped_with_several_entries(profiler: Profiler) -> None:
    scope = phase("many")
    for _ in range(5):
        scope.__enter__()
    context = contextvars.copy_context()
    context.run(scope.__enter__)
    thread = threading.Thread(target=scope.__enter__)
    thread.start()
    thread.join()
    del scope
    assert current() == ""
    assert context.run(current) == ""
    assert sum(calls(profiler).values()) == 7
    assert sum(stats.abandoned for stats in profiler.merged_tree().values()) == 7


def test_still_open_at_close(run_dir: Path) -> None:
    with recording(run_dir) as profiler:
        scope = phase("open")
        scope.__enter__()
        with phase("done"):
            pass
    scope.__exit__(None, None, None)
    scope.__exit__(None, None, None)
    with scope:
        assert current() == ""
    run = accounting.merge_run(run_dir)
    assert run.tree[("open", "done")].calls == 1
    assert run.tree[("open",)].calls == 0
    assert ["/".join(each.path) for each in run.workers[0].open_phases] == ["open"]
    del scope
    assert profiler.merged_tree()[("open", "done")].calls == 1


@pytest.mark.filterwarnings("ignore:another profiler was installed")
def test_entered_before_and_left_in_the_next_profiler(tmp_path: Path) -> None:
    with recording(tmp_path / "one") as one:
        old = phase("old")
        old.__enter__()
        with recording(tmp_path / "two", run_id="second") as two:
            with phase("new"):
                assert current() == "new"
                old.__exit__(None, None, None)
                assert current() == "new"
            assert calls(two) == {"new": 1}
            assert health(two) == {}
        assert calls(one) == {"old": 1}


@pytest.mark.filterwarnings("ignore:another profiler was installed")
def test_two_profilers_at_once(tmp_path: Path) -> None:
    with (
        recording(tmp_path / "one", install=False) as one,
        recording(tmp_path / "two", install=False, run_id="second") as two,
    ):
        for _ in range(100):
            with one.phase("a"), two.phase("b"), one.phase("c"), two.phase("d"):
                assert one.current_phase() == "a/c"
                assert two.current_phase() == "b/d"
        assert calls(one) == {"a": 100, "a/c": 100}
        assert calls(two) == {"b": 100, "b/d": 100}


def test_unreachable_suspended_task_is_collected(profiler: Profiler) -> None:
    """context -> variable -> task -> coroutine -> phase -> context: a cycle that only a collector can end."""
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")

    class Canary:
        pass

    def leak() -> weakref.ref[Canary]:
        canary = Canary()
        watched = weakref.ref(canary)

        async def holds(canary: Canary) -> None:
            variable.set(asyncio.current_task())
            held, inner = phase("held"), phase("inner")
            with held, inner:
                pass
            with held, inner:
                await asyncio.get_running_loop().create_future()

        async def main() -> None:
            nonlocal canary
            task = asyncio.create_task(holds(canary))
            del canary
            await asyncio.sleep(0)
            del task

        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)  # "Task was destroyed but it is pending!"
        loop.run_until_complete(main())
        loop.close()
        return watched

    for _ in range(3):
        watched = leak()
        for _ in range(3):
            gc.collect()
        assert watched() is None
    assert open_paths(profiler) == []
    found = calls(profiler)
    assert found == {"held": 6, "held/inner": 6}
    for path in found:
        stats = stats_of(profiler, path)
        # The collector closes the coroutine (GeneratorExit) or clears the phase first: both are an end, no error.
        assert stats.errors == 0
        assert stats.abandoned <= 3
    clean(profiler)


def test_phase_in_a_cycle_is_collected(profiler: Profiler) -> None:
    """No frame that could leave it: the object itself is in the cycle, and its entry is abandoned."""

    class Holder:
        scope: Any
        me: Any

    holder = Holder()
    holder.me = holder
    holder.scope = phase("held")
    watched = weakref.ref(holder)
    context = contextvars.copy_context()
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
    context.run(variable.set, holder)
    context.run(holder.scope.__enter__)
    del holder, context
    gc.collect()
    assert watched() is None
    assert calls(profiler) == {"held": 1}
    assert stats_of(profiler, "held").abandoned == 1
    assert open_paths(profiler) == []


def test_open_phase_keeps_no_task_alive_after_it_ends(profiler: Profiler) -> None:
    """The context of a finished task is free as soon as the task is."""

    class Value:
        pass

    variable: contextvars.ContextVar[Value] = contextvars.ContextVar("variable")
    alive: list[weakref.ref[Value]] = []

    async def one() -> None:
        value = Value()
        alive.append(weakref.ref(value))
        variable.set(value)
        with phase("task"):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(one() for _ in range(50)))

    asyncio.run(main())
    gc.collect()
    assert [each for each in alive if each() is not None] == []


# --- the end of the program ---


def ended(run_dir: Path, code: str, returncode: int = 0, options: tuple[str, ...] = ()) -> MergedRun:
    """The run of a program that ended by itself; what it said on stderr is shown if it failed."""
    done = run_python(code, run_dir, options=options)
    done.expect(returncode)
    run = accounting.merge_run(run_dir)
    assert len(run.workers) == 1, done.stderr
    assert run.unreadable == []
    return run


def entered(run: MergedRun) -> dict[str, int]:
    return {"/".join(path): stats.calls for path, stats in run.tree.items() if stats.calls}


def test_sys_exit_inside_a_phase(run_dir: Path) -> None:
    run = ended(
        run_dir,
        """
        import sys
        from lineprofiler.accounting import Profiler, phase
        Profiler(sys.argv[1], install=True)
        with phase("outer"), phase("inner"):
            sys.exit(3)
        """,
        returncode=3,
    )
    assert entered(run) == {"outer": 1, "outer/inner": 1}
    assert not run.workers[0].unclean


def test_last_phases_of_a_dying_interpreter(run_dir: Path) -> None:
    """atexit functions, finalisers of modules, generators that are closed after atexit."""
    run = ended(
        run_dir,
        """
        import atexit, sys

        def at_exit(name):
            with phase(name):
                pass

        import lineprofiler.accounting as accounting
        phase = accounting.phase
        atexit.register(at_exit, "atexit 1")
        accounting.Profiler(sys.argv[1], install=True)
        atexit.register(at_exit, "atexit 2")

        class Last:
            def __del__(self, phase=phase):
                with phase("finaliser"):
                    pass

        def held():
            with phase("generator"):
                yield

        last = Last()
        generator = held()
        next(generator)
        """,
    )
    found = entered(run)
    assert sum(found.values()) == 4
    assert {path.split("/")[-1] for path in found} == {"atexit 1", "atexit 2", "finaliser", "generator"}
    assert not run.workers[0].unclean


def test_daemon_threads_at_the_end(run_dir: Path) -> None:
    """They stop wherever they are when the interpreter ends: what they have finished is there."""
    run = ended(
        run_dir,
        """
        import sys, threading, time
        from lineprofiler.accounting import Profiler, phase
        Profiler(sys.argv[1], install=True)
        def daemon(seconds):
            while True:
                with phase("daemon"):
                    time.sleep(seconds)
        for seconds in (0.0001, 0, 1000):
            threading.Thread(target=daemon, args=(seconds,), daemon=True).start()
        with phase("main"):
            time.sleep(0.05)
        """,
    )
    found = entered(run)
    assert found.pop("main") == 1
    assert found.pop("daemon") > 10
    assert found == {}
    assert ("daemon",) in [each.path for each in run.workers[0].open_phases]
    assert run.tree[("daemon",)].errors == 0


def test_at_exit_handler_registered_before_import(run_dir: Path) -> None:
    run = ended(
        run_dir,
        """
        import atexit, sys
        def last():
            with phase("last"):
                count("n", 2)
        atexit.register(last)
        from lineprofiler.accounting import Profiler, phase, count
        Profiler(sys.argv[1], install=True)
        with phase("first"):
            pass
        """,
    )
    assert entered(run) == {"first": 1, "last": 1}
    assert run.tree[("last",)].counters == {"n": 2}


def test_uncaught_exception_ends_the_program(run_dir: Path) -> None:
    run = ended(
        run_dir,
        """
        import sys
        from lineprofiler.accounting import Profiler, phase
        profiler = Profiler(sys.argv[1], install=True)
        def fails():
            with phase("outer"):
                with phase("inner"):
                    1 / 0
        fails()
        """,
        returncode=1,
    )
    assert entered(run) == {"outer": 1, "outer/inner": 1}
    assert run.tree[("outer", "inner")].errors == 1
    assert not run.workers[0].unclean


def test_program_that_ends_inside_a_phase(run_dir: Path) -> None:
    """A module-level enter that nobody leaves: open at the end, or abandoned when the module is torn down."""
    run = ended(
        run_dir,
        """
        import sys
        from lineprofiler.accounting import Profiler, phase
        Profiler(sys.argv[1], install=True)
        scope = phase("open")
        scope.__enter__()
        with phase("child"):
            pass
        """,
    )
    found = entered(run)
    assert found.pop("open/child") == 1
    assert found == {} or (found == {"open": 1} and run.tree[("open",)].abandoned == 1)
    if not found:
        assert [each.path for each in run.workers[0].open_phases] == [("open",)]


@pytest.mark.parametrize("options", [("-X", "dev"), ("-W", "error"), ("-O",), ("-E",)])
def test_under_interpreter_options(run_dir: Path, options: tuple[str, ...]) -> None:
    done = run_python(
        """
        import asyncio, sys, threading
        from lineprofiler.accounting import Profiler, phase, count, current
        with Profiler(sys.argv[1], install=True) as profiler:
            def work():
                for _ in range(100):
                    with phase("thread"):
                        count("n", 1)
            threads = [threading.Thread(target=work) for _ in range(3)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            async def one():
                with phase("task"):
                    await asyncio.sleep(0.001)
            async def main():
                await asyncio.gather(*(one() for _ in range(20)))
            with phase("serve"):
                asyncio.run(main())
        print({"/".join(p): s.calls for p, s in profiler.merged_tree().items() if s.calls})
        """,
        run_dir,
        options=options,
    ).expect()
    assert done.stderr == ""
    assert eval(done.stdout) == {"thread": 300, "serve": 1, "serve/task": 20}


def test_main_thread_ends_before_the_others(run_dir: Path) -> None:
    run = ended(
        run_dir,
        """
        import sys, threading, time
        from lineprofiler.accounting import Profiler, phase
        Profiler(sys.argv[1], install=True)
        def work():
            time.sleep(0.05)
            for _ in range(10):
                with phase("late"):
                    pass
        for _ in range(3):
            threading.Thread(target=work).start()
        """,
    )
    assert entered(run) == {"late": 30}


def test_exec_from_inside_a_phase(run_dir: Path) -> None:
    """The new program is a worker of its own; the old one's phases are not lost."""
    done = run_python(
        """
        import os, sys
        from lineprofiler.accounting import Profiler, phase
        Profiler(sys.argv[1], install=True)
        if len(sys.argv) > 2:
            with phase("second"):
                pass
        else:
            with phase("first"):
                pass
            os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
        """,
        run_dir,
    ).expect()
    run = accounting.merge_run(run_dir)
    assert entered(run) == {"first": 1, "second": 1}, done.stderr
