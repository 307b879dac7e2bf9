"""The line engine and frames that are not simply called and left: suspended, dropped, unwound, forked, switched."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from typing import Any

import pytest
from lineprograms import Running, awaited, hits, marked, near, ns, own_ns, program

# --- generators and tasks ---


def test_generators_do_not_get_their_consumers_time() -> None:
    space = program("""
        def gen():
            for i in range(3):
                yield i
    """)
    engine = marked(space, "gen")
    slept = 0
    with Running(engine):
        before = time.perf_counter_ns()
        for _ in space["gen"]():
            start = time.perf_counter_ns()
            time.sleep(0.01)
            slept += time.perf_counter_ns() - start
        elapsed = time.perf_counter_ns() - before
    assert hits(engine, space["gen"]) == {2: 4, 3: 3}
    assert sum(ns(engine, space["gen"]).values()) <= elapsed - slept
    assert awaited(engine, space["gen"])[3] >= slept
    assert engine.functions()[0][1] == 1
    assert engine.functions()[0][5] == 3


def test_dropped_generators_leave_nothing() -> None:
    """No open frame and no trouble; that no memory is kept of them either is measured in test_leaks.py."""
    space = program("""
        def gen():
            for i in range(3):
                yield i
        def guarded():
            try:
                yield 1
            finally:
                x = 1
        def consume():
            next(gen())
    """)
    engine = marked(space, "gen", "guarded", "consume")
    with Running(engine):
        for _ in range(20_000):
            space["consume"]()
            next(space["guarded"]())
    assert hits(engine, space["gen"]) == {2: 20_000, 3: 20_000}
    assert hits(engine, space["guarded"]) == {5: 20_000, 6: 20_000, 8: 20_000}
    assert hits(engine, space["consume"]) == {10: 20_000}
    assert engine.trouble == []


def test_generators_that_are_resumed_elsewhere() -> None:
    space = program("""
        def gen(limit):
            x = 0
            while x < limit:
                x += yield x
            return x
    """)
    engine = marked(space, "gen")
    with Running(engine):
        one, two = space["gen"](100), space["gen"](100)
        next(one), next(two)
        for _ in range(10):
            one.send(1)
            two.send(2)
        thread = threading.Thread(target=lambda: [one.send(1) for _ in range(10)])
        thread.start()
        thread.join()
        with pytest.raises(KeyError):
            one.throw(KeyError)
        with pytest.raises(StopIteration):
            two.send(100)
    # line 4: 1 + 20 of `one`, 1 + 10 of `two`; the while line as often, and once more in the end
    assert hits(engine, space["gen"]) == {2: 2, 3: 33, 4: 32, 5: 1}
    assert engine.functions()[0][1] == 2
    assert engine.trouble == []


ASYNC = """
    import asyncio
    from time import perf_counter_ns as now
    def burn(ns):
        until = now() + ns
        while now() < until: pass
    async def w(delay, known):
        a = now(); burn(5_000_000); known[7] += now() - a
        await asyncio.sleep(delay)
        a = now(); burn(10_000_000); known[9] += now() - a
        return (await asyncio.sleep(0.01, 1)) + len(known)
    async def main(known):
        await asyncio.gather(w(.05, known), w(.01, known), w(.03, known))
    def run(known):
        asyncio.run(main(known))
"""


def test_tasks_that_interleave_on_one_code_object() -> None:
    space = program(ASYNC)
    engine = marked(space, "w")
    w = space["w"]
    # What a neighbour takes between the two looks at the clock is in one of them only: such a run is done again.
    for _ in range(20):
        known: Counter[int] = Counter()
        engine.clear()
        with Running(engine):
            before = time.perf_counter_ns()
            space["run"](known)
            elapsed = time.perf_counter_ns() - before
        assert hits(engine, w) == {7: 3, 8: 3, 9: 3, 10: 3}
        times, waits = ns(engine, w), awaited(engine, w)
        if near(times[7], known[7]) and near(times[9], known[9]):
            break
    else:
        raise AssertionError(times, known)
    assert sum(times.values()) <= elapsed
    assert times[8] + times[10] <= elapsed - known[7] - known[9]
    assert waits[8] >= 90_000_000
    assert waits[10] >= 30_000_000
    assert waits[7] == waits[9] == 0
    assert engine.functions()[0][1] == 3
    assert engine.functions()[0][5] == 6


def test_the_rest_of_a_line_after_an_await() -> None:
    space = program("""
        import asyncio
        from time import perf_counter_ns as now
        def slow(known):
            a = now()
            while now() < a + 10_000_000: pass
            known.append(now() - a)
            return 1
        async def f(known):
            return (await asyncio.sleep(0.01, 1)) + slow(known)
        def run(known):
            asyncio.run(f(known))
    """)
    engine = marked(space, "f")
    # What a neighbour takes between the two looks at the clock is in one of them only: such a run is done again.
    for _ in range(20):
        known: list[int] = []
        engine.clear()
        with Running(engine):
            space["run"](known)
        assert hits(engine, space["f"]) == {9: 1}
        assert ns(engine, space["f"])[9] >= known[0] - 20_000
        if near(ns(engine, space["f"])[9], known[0]):
            break
    else:
        raise AssertionError(ns(engine, space["f"]), known)
    assert awaited(engine, space["f"])[9] >= 10_000_000


def test_async_generators_dropped_and_finished() -> None:
    space = program("""
        import asyncio
        async def agen(n):
            for i in range(n):
                await asyncio.sleep(0)
                yield i
        async def main():
            async for i in agen(3):
                pass
            for _ in range(50):
                async for i in agen(3):
                    break
        def run():
            asyncio.run(main())
    """)
    engine = marked(space, "agen", "main")
    with Running(engine):
        space["run"]()
    assert hits(engine, space["agen"]) == {3: 4 + 50, 4: 3 + 50, 5: 3 + 50}
    assert engine.functions()[0][1] == 51
    assert engine.trouble == []


# --- exceptions ---


def test_a_line_that_raises_ends_there() -> None:
    space = program("""
        def g(kind):
            raise kind
        def around(kind):
            g(kind)
    """)
    engine = marked(space, "g", "around")
    handled = 0
    with Running(engine):
        before = time.perf_counter_ns()
        for kind in (KeyError, KeyboardInterrupt, SystemExit, GeneratorExit):
            try:
                space["around"](kind)
            except BaseException:
                start = time.perf_counter_ns()
                time.sleep(0.005)
                handled += time.perf_counter_ns() - start
        elapsed = time.perf_counter_ns() - before
    assert hits(engine, space["g"]) == {2: 4}
    assert hits(engine, space["around"]) == {4: 4}
    assert ns(engine, space["around"])[4] <= elapsed - handled
    assert ns(engine, space["g"])[2] <= ns(engine, space["around"])[4]
    assert engine.trouble == []


def test_deep_recursion_that_fails() -> None:
    space = program("""
        def f(n):
            return f(n + 1)
    """)
    engine = marked(space, "f")
    with Running(engine):
        for _ in range(3):
            with pytest.raises(RecursionError):
                space["f"](0)
        depth = hits(engine, space["f"])[2] // 3
        assert depth > 500
    assert engine.functions()[0][1] == hits(engine, space["f"])[2]
    assert engine.functions()[0][2] == pytest.approx(engine.functions()[0][3], rel=0.02, abs=20_000)
    assert engine.trouble == []


# --- in the middle ---


def test_start_and_stop_in_the_middle_of_a_frame() -> None:
    space = program("""
        def f(engine):
            x = 1
            engine.start()
            x = 2
            inner()
            engine.stop()
            x = 3
            engine.start()
            x = 4
        def inner():
            return 1
        def outer(engine):
            f(engine)
            return 1
    """)
    engine = marked(space, "f", "inner", "outer")
    space["outer"](engine)
    engine.stop()
    assert hits(engine, space["f"]) == {4: 1, 5: 1, 6: 1, 9: 1}
    assert hits(engine, space["inner"]) == {11: 1}
    assert hits(engine, space["outer"]) == {14: 1}
    assert [row[1] for row in engine.functions()] == [0, 1, 0]
    space["outer"](engine)
    engine.stop()
    assert hits(engine, space["f"]) == {4: 2, 5: 2, 6: 2, 9: 2}
    assert engine.trouble == []


def test_clear_and_live_figures() -> None:
    space = program("""
        from time import sleep
        def f(look, clear):
            sleep(0.01)
            look()
            clear()
            sleep(0.01)
    """)
    engine = marked(space, "f")
    seen: list[Any] = []
    cleared: list[int] = []

    def clear() -> None:
        engine.clear()
        cleared.append(time.perf_counter_ns())

    with Running(engine):
        before = time.perf_counter_ns()
        space["f"](lambda: seen.append((ns(engine, space["f"]), engine.functions())), clear)
        end = time.perf_counter_ns()
    times, functions = seen[0]
    assert times[3] >= 10_000_000
    assert 0 <= times[4] <= cleared[0] - before - 10_000_000  # the line that looks is open
    assert functions[0][1] == 1
    assert functions[0][2] >= times[3]
    after = ns(engine, space["f"])
    assert hits(engine, space["f"]) == {5: 0, 6: 1}
    assert after[6] >= 10_000_000
    # What a neighbour takes between the two looks at the clock is in one of them only: such a run is done again.
    for _ in range(20):
        if near(engine.functions()[0][2], end - cleared[-1]):
            break
        with Running(engine):
            space["f"](lambda: None, clear)
            end = time.perf_counter_ns()
    else:
        raise AssertionError(engine.functions(), end - cleared[-1])
    engine.clear()
    assert engine.lines() == []
    assert engine.functions() == [(0, 0, 0, 0, 0, 0)]


def test_unmark_while_it_runs() -> None:
    space = program("""
        def f(stop):
            g(stop)
            return 1
        def g(stop):
            stop()
            return 2
    """)
    engine = marked(space, "f", "g")
    with Running(engine):
        space["f"](lambda: engine.unmark(space["g"].__code__))
        space["f"](lambda: None)
        if sys.version_info >= (3, 12):
            assert sys.monitoring.get_local_events(3, space["g"].__code__) == 0
        engine.mark(space["g"].__code__)
        space["f"](lambda: None)
    assert hits(engine, space["f"]) == {2: 3, 3: 3}
    assert hits(engine, space["g"]) == {5: 2, 6: 1}
    assert engine.trouble == []


# --- forks ---


def test_what_a_childs_first_event_takes_is_no_time_of_the_line() -> None:
    """It makes room for the child's figures, which takes 100 us and more; the line takes some 10: pages are copied."""
    space = program("def f(n):\n    s = n\n    return s\n")
    engine = marked(space, "f")
    times = []
    with Running(engine):
        space["f"](1)
        for _ in range(10):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                space["f"](1)
                os.write(write, b"%d" % ns(engine, space["f"])[2])
                os._exit(0)
            times.append(int(os.read(read, 100)))
            assert os.waitpid(child, 0)[1] == 0
            os.close(read)
            os.close(write)
    assert min(times) < 60_000, times


def test_a_forked_child_starts_from_zero() -> None:
    space = program("""
        import os
        def f():
            a = 1
            pid = os.fork()
            b = 2
            return pid
    """)
    engine = marked(space, "f")
    with Running(engine):
        read, write = os.pipe()
        pid = space["f"]()
        if pid == 0:
            text = repr((hits(engine, space["f"]), engine.functions()[0][1], engine.threads(), engine.trouble))
            os.write(write, text.encode())
            os._exit(0)
        os.waitpid(pid, 0)
        told = os.read(read, 1000).decode()
    assert hits(engine, space["f"]) == {3: 1, 4: 1, 5: 1, 6: 1}
    assert told == repr(({5: 1, 6: 1}, 0, [(0, "MainThread")], []))


# --- greenlets ---


def test_greenlets_switch_in_the_middle_of_lines() -> None:
    greenlet = pytest.importorskip("greenlet")
    space = program("""
        from time import sleep
        def f(other, n):
            for _ in range(n):
                sleep(0.002)
                other().switch()
            return n
    """)
    engine = marked(space, "f")
    made: list[Any] = []
    with Running(engine):
        main = greenlet.getcurrent()
        before = time.perf_counter_ns()
        made.append(greenlet.greenlet(lambda: space["f"](lambda: made[1], 3)))
        made.append(greenlet.greenlet(lambda: space["f"](lambda: made[0], 3)))
        made[0].switch()
        while not all(g.dead for g in made):
            next(g for g in made if not g.dead).switch()
        elapsed = time.perf_counter_ns() - before
        assert greenlet.getcurrent() is main
    found = hits(engine, space["f"])
    assert found == {3: 8, 4: 6, 5: 6, 6: 2}
    assert sum(own_ns(engine, space["f"]).values()) <= elapsed
    assert own_ns(engine, space["f"])[4] >= 12_000_000
    assert engine.functions()[0][1] == 2
    assert engine.trouble == []
