"""The cases of FIELD.md that concern lines, at the engine: what users of other profilers hit, and what ours does.

Case numbers are FIELD.md's. Each stands for its kind. Durations have a lower bound that the program itself guarantees
(it slept or burnt so long) and an upper one that it measured around its own call, so a slow machine changes neither.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from linetest import A, H, Marked, T, burn, code_of, defined, in_threads, marked
from lptest import run_python

# Where a clock is read on both sides of the engine's own: one reading, and the own cost that is taken off.
NEAR = 20e-6


class Timed:
    """Wall seconds between two points of a test, on the clock of the test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Timed:
        self.start = time.perf_counter()
        return self

    def __exit__(self, *unused: object) -> None:
        self.seconds += time.perf_counter() - self.start


def test_l1_multi_line_call_counts_its_executions_once() -> None:
    def f() -> None:
        for _ in range(100):
            str(
                1,
            )

    with marked(f) as p:
        f()
    assert H(p, f) == {1: 101, 2: 100, 3: 100}
    visits = {line - code_of(f).co_firstlineno: figures[1] for line, figures in p.figures(f).items()}
    assert visits[2] == 200, "the raw events are there too: the call runs in the second visit of its opening line"


def test_l2_multi_line_call_keeps_its_time() -> None:
    def f() -> None:
        time.sleep(
            0.05,
        )

    with marked(f) as p, Timed() as whole:
        f()
    assert 0.05 - NEAR <= T(p, f)[1] <= whole.seconds + NEAR


def test_l3_branches_and_loop_headers() -> None:
    g = defined(
        """
        def g(x):
            if x > 1: return 1
            elif x > 0: return 2
            return 3
        """
    )
    short = defined(
        """
        def short():
            for _ in range(4): pass
        """
    )

    def loop() -> None:
        for i in range(3):
            str(i)

    with marked(g, loop, short) as p:
        for i in (2, 1, 0):
            g(i)
        loop()
        short()
    assert H(p, g) == {1: 3, 2: 2, 3: 1}
    assert H(p, loop) == {1: 4, 2: 3}
    # The interpreter reports a loop that stands on one line at each turn to a trace function, once to sys.monitoring.
    assert H(p, short) == {1: 5 if p.engine.backend == "settrace" else 1}


def test_l4_one_line_functions_and_lambdas() -> None:
    one = defined("def one(x): return x + 1")
    twins = [lambda x: x * 2, lambda x: x * 3]  # 3.10 makes one object of equal ones
    with marked(one, *twins) as p:
        for i in range(3):
            one(i)
        twins[0](1)
        twins[1](1), twins[1](2)
    assert H(p, one) == {0: 3}
    assert [H(p, twin) for twin in twins] == [{0: 1}, {0: 2}], "two on one line stay two"


def test_l5_awaited_time_is_told_apart_from_active_time() -> None:
    outside = Timed()

    async def f() -> None:
        await asyncio.sleep(0.2)
        burn(0.05)

    async def other_busy_task() -> None:
        await asyncio.sleep(0)
        with outside:
            burn(0.1)

    async def main() -> None:
        await asyncio.gather(f(), other_busy_task())

    with marked(f) as p, Timed() as whole:
        asyncio.run(main())
    assert H(p, f) == {1: 1, 2: 1}
    assert 0.2 - NEAR <= A(p, f)[1] <= whole.seconds
    assert T(p, f)[2] >= 0.05 - NEAR
    assert T(p, f)[1] + T(p, f)[2] + outside.seconds <= whole.seconds, "what others did is in neither line"
    assert list(A(p, f)) == [1]


def test_l6_tasks_of_one_coroutine_keep_their_own_clocks() -> None:
    async def w(d: float) -> None:
        burn(0.01)
        await asyncio.sleep(d)
        burn(0.02)

    async def main() -> None:
        await asyncio.gather(w(0.05), w(0.01))

    with marked(w) as p, Timed() as whole:
        asyncio.run(main())
    assert H(p, w) == {1: 2, 2: 2, 3: 2}
    spent = T(p, w)
    assert spent[1] >= 0.02 - NEAR
    assert spent[3] >= 0.04 - NEAR
    assert sum(spent.values()) <= whole.seconds, "active time of one thread is at most its wall time"
    assert A(p, w)[2] >= 0.06 - NEAR


def test_l7_time_after_a_resume_within_a_line() -> None:
    def slow(s: float) -> int:
        burn(s)
        return 1

    away = Timed()

    class Nap:
        """Measured from its suspension, which comes late on a busy machine: what passes before it is the line's. The
        loop starts the timer, so that it does not run before that either."""

        def __await__(self) -> Iterator[Any]:
            loop = asyncio.get_running_loop()
            woken = loop.create_future()
            loop.call_soon(lambda: loop.call_later(0.05, woken.set_result, 1))
            with away:
                yield from woken
            return woken.result()

    async def f() -> int:
        return (await Nap()) + slow(0.1)

    with marked(f) as p, Timed() as whole:
        asyncio.run(f())
    assert 0.1 - NEAR <= T(p, f)[1] <= whole.seconds - away.seconds
    assert H(p, f) == {1: 1}
    assert A(p, f)[1] >= 0.05 - NEAR


def test_l8_consumer_time_is_not_the_generators() -> None:
    consumer = Timed()

    def gen() -> Iterator[int]:
        for i in range(3):
            yield i + 1

    with marked(gen) as p, Timed() as whole:
        for _ in gen():
            with consumer:
                time.sleep(0.05)
    assert H(p, gen) == {1: 4, 2: 3}
    assert sum(T(p, gen).values()) <= whole.seconds - consumer.seconds


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def test_l8_dropped_generators_leave_nothing() -> None:
    def gen() -> Iterator[int]:
        for i in range(3):
            yield i + 1

    def drop_many(count: int, at_once: int) -> None:
        for _ in range(count // at_once):
            kept = [gen() for _ in range(at_once)]
            for each in kept:
                next(each)

    with marked(gen) as p:
        drop_many(20_000, 1)
        drop_many(20_000, 1_000)
        gc.collect()
        before = resident_kib()
        drop_many(50_000, 1)
        drop_many(50_000, 1_000)
        gc.collect()
        grown = resident_kib() - before
    assert H(p, gen) == {1: 140_000, 2: 140_000}
    assert p.function(gen)[0] == 140_000
    # 100,000 records of any kind would be megabytes; a sanitizer keeps that much of what was freed.
    assert "TESTS_SANITIZED" in os.environ or grown < 1024, (
        f"{grown} KiB for 100,000 generators that were dropped half-way"
    )


def test_l8_async_generators() -> None:
    async def agen() -> AsyncIterator[int]:
        for i in range(3):
            await asyncio.sleep(0)
            yield i + 1

    consumer = Timed()

    async def main() -> None:
        async for _ in agen():
            with consumer:
                time.sleep(0.02)
        dropped = agen()
        await dropped.__anext__()
        await dropped.aclose()  # type: ignore[attr-defined]

    with marked(agen) as p, Timed() as whole:
        asyncio.run(main())
    assert H(p, agen) == {1: 5, 2: 4, 3: 4}
    assert sum(T(p, agen).values()) <= whole.seconds - consumer.seconds


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_l9_a_line_that_raises_ends_at_the_unwind(kind: type[BaseException]) -> None:
    handler = Timed()

    def g() -> None:
        raise kind

    with marked(g) as p, Timed() as whole:
        for _ in range(2):
            try:
                g()
            except kind:
                with handler:
                    time.sleep(0.05)
    assert H(p, g) == {1: 2}
    assert T(p, g)[1] <= whole.seconds - handler.seconds
    assert p.function(g)[1] / 1e9 <= whole.seconds - handler.seconds


def test_l10_recursion_counts_each_moment_once() -> None:
    r = defined(
        """
        def r(n):
            if n: r(n - 1)
            time.sleep(0.01)
        """,
        time=time,
    )

    with marked(r) as p, Timed() as whole:
        r(9)
    assert H(p, r) == {1: 10, 2: 10}
    calls, total, own, _, _ = p.function(r)
    assert calls == 10
    assert 0.1 - NEAR <= total / 1e9 <= whole.seconds + NEAR, "the outermost call's wall time, not the sum of all"
    assert own == pytest.approx(total, rel=1e-3), "it is its own only callee"
    spent = T(p, r)
    assert max(spent.values()) <= whole.seconds + NEAR, "no line has more than there was"
    first = code_of(r).co_firstlineno
    alone = {line - first: figures[3] / 1e9 for line, figures in p.figures(r).items()}
    assert sum(alone.values()) <= whole.seconds + NEAR
    assert alone[2] >= 0.1 - NEAR


def test_l12_a_twin_function_does_not_take_the_hits() -> None:
    text = "def f():\n    return 1\n"
    spaces: list[dict[str, Any]] = [{}, {}, {}]
    for space, name in zip(spaces, ("<s>", "<s>", "<other>"), strict=True):
        exec(compile(text, name, "exec"), space)
    a, b, c = (space["f"] for space in spaces)
    before = a.__code__
    with marked(a, b) as p:
        a(), b(), b(), c()
    assert H(p, a) == {1: 1}
    assert H(p, b) == {1: 2}
    assert H(p, c) == {}
    assert a.__code__ is before
    assert a.__code__.co_code == c.__code__.co_code


def test_l12_two_profilers_on_one_function_are_both_right() -> None:
    def f(n: int) -> None:
        for _ in range(n):
            pass
        str(n)

    with marked(f) as p:
        f(1)
        with marked(f) as q:
            f(2)
        f(4)
    assert H(q, f) == {1: 3, 2: 2, 3: 1}
    assert H(p, f) == {1: 2 + 3 + 5, 2: 7, 3: 3}


def test_l14_inner_functions() -> None:
    def main() -> list[int]:
        def inner(x: int) -> int:
            return x * 2

        return [inner(i) for i in range(10)]

    with marked(main) as p:
        main()
    inner = next(c for c in code_of(main).co_consts if getattr(c, "co_name", "") == "inner")
    assert H(p, inner) == {}, "nested functions are not marked with their outer one"
    with marked(main, nested=True) as p:
        main()
    assert H(p, inner) == {1: 10}
    assert H(p, main)[1] == 1
    # The comprehension has a frame of its own up to 3.11; its line is the `return` of main on all versions.
    assert H(p, main)[4] >= 1


def test_l16_the_exit_of_with_is_on_its_line() -> None:
    class S:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *args: object) -> None:
            time.sleep(0.05)

    def f() -> int:
        with S():
            x = 1
        return x + 1

    def returns() -> int:
        with S():
            return 1

    def raises() -> None:
        with S():
            raise KeyError

    with marked(f, returns, raises) as p:
        f()
        returns()
        with pytest.raises(KeyError):
            raises()
    for function in (f, returns, raises):
        assert T(p, function)[1] >= 0.05 - NEAR
        assert H(p, function)[1] == 1, "one execution; entering and leaving are two visits"
        assert H(p, function)[2] == 1


def test_l16_finally_counts_once_whichever_way() -> None:
    def f(way: int) -> int:
        try:
            if way == 1:
                return 1
            if way == 2:
                raise KeyError
        finally:
            str(way)
        return 0

    with marked(f) as p:
        f(0)
        f(1)
        with pytest.raises(KeyError):
            f(2)
    assert H(p, f) == {1: 3, 2: 3, 3: 1, 4: 2, 5: 1, 7: 3, 8: 1}


def test_l18_all_threads_and_those_that_run_already() -> None:
    ready, go = threading.Barrier(3), threading.Event()

    def f() -> None:
        for i in range(5_000):
            i + 1

    def early() -> None:
        ready.wait()
        go.wait()
        f()

    threads = [threading.Thread(target=early) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()
    with marked(f) as p:
        go.set()
        in_threads(4, f)
        for thread in threads:
            thread.join()
    assert H(p, f) == {1: 6 * 5_001, 2: 6 * 5_000}
    numbers = {row[7] for row in p.engine.lines()}
    assert len(numbers) == 6, "each thread has figures of its own"
    assert numbers <= {number for number, _ in p.engine.threads()}


def test_l18_a_frame_of_another_thread_that_runs_at_the_start() -> None:
    inside, go, done = threading.Event(), threading.Event(), []

    def f() -> None:
        inside.set()
        go.wait()
        done.append(1)
        done.append(2)

    thread = threading.Thread(target=f)
    thread.start()
    inside.wait()
    with marked(f) as p:
        go.set()
        thread.join()
    assert H(p, f) == {3: 1, 4: 1}


def test_l19_the_tracer_of_before_stays() -> None:
    events: list[tuple[str, int]] = []

    def before(frame: Any, event: str, arg: object) -> Any:
        events.append((event, frame.f_lineno - frame.f_code.co_firstlineno))
        return before

    def f() -> int:
        x = 1
        return x + 1

    kept = sys.gettrace()
    try:
        sys.settrace(before)
        f()
        alone = events[:]
        events.clear()
        with marked(f) as p:
            assert sys.gettrace() is before
            events.clear()
            f()
            both = events[:]
            sys.settrace(sys.gettrace())
            f()
            assert sys.gettrace() is before
        assert sys.gettrace() is before
    finally:
        sys.settrace(kept)
    assert both[: len(alone)] == alone
    assert H(p, f) == {1: 2, 2: 2}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_l20_no_free_tool_id_is_one_warning() -> None:
    done = run_python(
        """
        import sys
        from lineprofiler._lineprofiler import LineEngine

        for i in range(6):
            try:
                sys.monitoring.use_tool_id(i, f"other{i}")
            except ValueError:
                pass
        def f():
            return 1
        engine = LineEngine()
        engine.mark(f.__code__)
        try:
            engine.start()
        except RuntimeError as error:
            print("refused", error)
        print(f())
        assert [sys.monitoring.get_tool(i) for i in (0, 3, 4)] == ["other0", "other3", "other4"]
        """
    ).expect()
    assert done.stdout.splitlines()[-1] == "1", "the program runs on"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_l20_nothing_is_left_on_a_code_object() -> None:
    def f() -> int:
        return 1

    with marked(f):
        f()
        mine = [i for i in range(6) if sys.monitoring.get_local_events(i, code_of(f)) if sys.monitoring.get_tool(i)]
        assert mine, "events are on while it runs"
    for tool in range(6):
        name = sys.monitoring.get_tool(tool)
        if name is None:
            sys.monitoring.use_tool_id(tool, "test")
        try:
            assert sys.monitoring.get_local_events(tool, code_of(f)) == 0
        finally:
            if name is None:
                sys.monitoring.free_tool_id(tool)


def test_l20_cprofile_works_inside() -> None:
    import cProfile
    import pstats

    def f(n: int) -> int:
        return sum(g(i) for i in range(n))

    def g(x: int) -> int:
        return len("x" * x)

    def counts() -> list[tuple[str, int]]:
        profile = cProfile.Profile()
        profile.enable()
        f(10)
        profile.disable()
        return sorted((key[2], value[1]) for key, value in pstats.Stats(profile).stats.items())  # type: ignore[attr-defined]

    alone = counts()
    with marked(f, g) as p:
        assert counts() == alone
    assert H(p, g) == {1: 10}


def test_l22_c_time_is_on_the_calling_line() -> None:
    def f() -> int:
        time.sleep(0.02)
        return sum(map(len, ["x"] * 10))

    with marked(f) as p:
        f()
    assert T(p, f)[1] >= 0.02 - NEAR
    assert H(p, f) == {1: 1, 2: 1}


def test_l23_empty_names_and_chdir(tmp_path: Path) -> None:
    space: dict[str, Any] = {}
    exec(compile("def f():\n    return 1\n", "", "exec"), space)
    exec(compile("def g():\n    return 1\n", "relative.py", "exec"), space)
    with marked(space["f"], space["g"]) as p:
        space["f"]()
        here = os.getcwd()
        os.chdir(tmp_path)
        try:
            space["g"]()
        finally:
            os.chdir(here)
    assert H(p, space["f"]) == {1: 1}
    assert H(p, space["g"]) == {1: 1}


def test_l24_start_and_stop_while_eight_threads_work() -> None:
    def f() -> None:
        for i in range(2_000):
            i + 1

    with marked(f) as p:
        busy = [threading.Thread(target=f) for _ in range(8)]
        for thread in busy:
            thread.start()
        others = Marked()
        others.engine.mark(code_of(f))
        for _ in range(20):
            others.engine.start()
            others.engine.stop()
        for thread in busy:
            thread.join()
    assert H(p, f) == {1: 8 * 2_001, 2: 8 * 2_000}, "another profiler that comes and goes changes nothing"


def test_l24_the_lock_of_the_interpreter_stays_as_it_was() -> None:
    done = run_python(
        """
        import sys
        before = getattr(sys, "_is_gil_enabled", lambda: True)()
        from lineprofiler._lineprofiler import LineEngine
        LineEngine()
        print(before == getattr(sys, "_is_gil_enabled", lambda: True)())
        """
    ).expect()
    assert done.stdout.split() == ["True"]
