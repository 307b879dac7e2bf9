"""Whose phase is it? Threads, copied contexts, generators, and phases that are left elsewhere.

Each test asserts the whole tree by path: what nests where, how often, and that nothing else is in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import queue
import random
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lptest import environment, run_python
from phases import (
    MS,
    NOISE_NS,
    calls,
    clean,
    clean_recording,
    health,
    open_paths,
    recording,
    spin,
    stats_of,
)

from lineprofiler import accounting
from lineprofiler.accounting import Profiler

phase, count, current = accounting.phase, accounting.count, accounting.current


@pytest.fixture
def profiler(run_dir: Path) -> Iterator[Profiler]:
    with clean_recording(run_dir) as made:
        yield made


# --- threads ---


def test_threads_have_stacks_of_their_own(profiler: Profiler) -> None:
    together = threading.Barrier(4)

    def work(number: int) -> None:
        for _ in range(100):
            with phase(f"outer{number}"):
                together.wait()
                assert current() == f"outer{number}"
                with phase("inner"):
                    together.wait()

    with phase("main"):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert current() == "main"
    assert calls(profiler) == {
        "main": 1,
        **{f"outer{i}": 100 for i in range(4)},
        **{f"outer{i}/inner": 100 for i in range(4)},
    }
    clean(profiler)


def test_one_object_in_many_threads(profiler: Profiler) -> None:
    shared = phase("shared")
    together = threading.Barrier(8)

    def work() -> None:
        together.wait()
        for _ in range(5000):
            with shared:
                with shared:
                    pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert calls(profiler) == {"shared": 40_000, "shared/shared": 40_000}
    clean(profiler)


def test_entered_in_one_thread_and_left_in_another(profiler: Profiler) -> None:
    scope = phase("handed")
    scope.__enter__()
    assert open_paths(profiler) == ["handed"]
    with phase("child"):
        pass
    other = threading.Thread(target=scope.__exit__, args=(None, None, None))
    other.start()
    other.join()
    # The opening thread has not run a phase since; its next one is a top one all the same.
    assert current() == ""
    with phase("after"):
        pass
    stats = stats_of(profiler, "handed")
    assert calls(profiler) == {"handed": 1, "handed/child": 1, "after": 1}
    assert stats.cpu_unknown_ns == stats.wall_ns, "two threads: no CPU clock covers it"
    clean(profiler, foreign_exits=1)


def test_handed_from_thread_to_thread_with_things_open(profiler: Profiler) -> None:
    """The outer phase is left elsewhere while inner ones of its thread are open and go on."""
    outer, inner = phase("outer"), phase("inner")
    outer.__enter__()
    inner.__enter__()
    other = threading.Thread(target=outer.__exit__, args=(KeyError, KeyError(), None))
    other.start()
    other.join()
    with phase("deep"):
        assert current() == "outer/inner/deep"
    inner.__exit__(None, None, None)
    with phase("next"):
        pass
    assert calls(profiler) == {"outer": 1, "outer/inner": 1, "outer/inner/deep": 1, "next": 1}
    assert stats_of(profiler, "outer").errors == 1
    clean(profiler, foreign_exits=1)


def test_left_after_its_thread_has_ended(profiler: Profiler) -> None:
    made: list[Any] = []

    def opens() -> None:
        scope = phase("orphan")
        scope.__enter__()
        made.append(scope)

    for _ in range(3):
        thread = threading.Thread(target=opens)
        thread.start()
        thread.join()
    assert open_paths(profiler) == ["orphan"] * 3
    made.pop().__exit__(None, None, None)
    made.pop().__exit__(None, None, None)
    made.clear()  # the third dies open
    assert calls(profiler) == {"orphan": 3}
    assert stats_of(profiler, "orphan").abandoned == 1
    assert open_paths(profiler) == []

    # New threads take over the arenas; what was open there is not theirs.
    def work() -> None:
        with phase("fresh"):
            assert current() == "fresh"

    for _ in range(4):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert calls(profiler) == {"orphan": 3, "fresh": 4}


def test_storm_of_foreign_exits(profiler: Profiler) -> None:
    """Two threads open and hand over, two others close, in random order. What nests in what depends on who is faster;
    how often each phase was entered does not."""
    handed: queue.Queue[Any] = queue.Queue()
    batches, batch = 600, 5

    def opens() -> None:
        for _ in range(batches):
            done = threading.Semaphore(0)
            for _ in range(batch):
                scope = phase("handed")
                scope.__enter__()
                with phase("work"):
                    pass
                handed.put((scope, done))
            for _ in range(batch):
                done.acquire()
            assert current() == ""

    def closes(seed: int) -> None:
        held: list[Any] = []
        chooser = random.Random(seed)
        while True:
            with contextlib.suppress(queue.Empty):
                held.append(handed.get_nowait() if held else handed.get())
            if None in held:
                return
            if held and chooser.random() < 0.6:
                scope, done = held.pop(chooser.randrange(len(held)))
                scope.__exit__(None, None, None)
                done.release()

    openers = [threading.Thread(target=opens) for _ in range(2)]
    closers = [threading.Thread(target=closes, args=(seed,)) for seed in range(2)]
    for thread in openers + closers:
        thread.start()
    for thread in openers:
        thread.join()
    for _ in closers:
        handed.put(None)
    for thread in closers:
        thread.join()
    found = calls(profiler)
    for name in ("handed", "work"):
        assert sum(n for path, n in found.items() if path.split("/")[-1] == name) == 2 * batches * batch
    assert max(path.count("/") for path in found) <= batch
    clean(profiler, foreign_exits=2 * batches * batch)


def test_a_closed_object_is_not_closed_twice(profiler: Profiler) -> None:
    """Two threads leave the same entry at once: one of them did, the other is counted as misuse."""
    for _ in range(200):
        scope = phase("raced")
        scope.__enter__()
        together = threading.Barrier(2)

        def leave(scope: Any = scope, together: threading.Barrier = together) -> None:
            together.wait()
            scope.__exit__(None, None, None)

        threads = [threading.Thread(target=leave) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sum(calls(profiler).values()) == 200
    clean(profiler, misuse=200, foreign_exits=200)


def test_thread_pool(profiler: Profiler) -> None:
    def work(number: int) -> str:
        with phase("job"):
            return current()

    with phase("main"), ThreadPoolExecutor(3) as pool:
        assert set(pool.map(work, range(50))) == {"job"}
    assert calls(profiler) == {"main": 1, "job": 50}


def test_thread_names(run_dir: Path) -> None:
    with recording(run_dir, thread_names=True) as profiler:

        def work() -> None:
            with phase("step"):
                assert current() in ("step", f"{threading.current_thread().name}/step")

        threads = [threading.Thread(target=work, name=f"worker {i % 2}") for i in range(4)]
        for each in threads:
            each.start()
            each.join()
        work()
        assert calls(profiler) == {"worker 0/step": 2, "worker 1/step": 2, "MainThread/step": 1}


# --- contexts by hand ---


def test_copy_context_run(profiler: Profiler) -> None:
    def inner() -> str:
        with phase("inner"):
            return current()

    def nested() -> str:
        with phase("middle"):
            return contextvars.copy_context().run(inner)

    with phase("outer"):
        context = contextvars.copy_context()
        assert context.run(inner) == "outer/inner"
        assert context.run(nested) == "outer/middle/inner"
    # The same context object, later, from elsewhere.
    assert context.run(inner) == "inner"
    with phase("elsewhere"):
        assert context.run(inner) == "elsewhere/inner"
        with phase("deeper"):
            assert context.run(inner) == "elsewhere/deeper/inner"
        assert context.run(inner) == "elsewhere/inner"
    assert contextvars.Context().run(inner) == "inner"
    assert calls(profiler) == {
        "outer": 1,
        "outer/inner": 1,
        "outer/middle": 1,
        "outer/middle/inner": 1,
        "inner": 2,
        "elsewhere": 1,
        "elsewhere/inner": 2,
        "elsewhere/deeper": 1,
        "elsewhere/deeper/inner": 1,
    }
    stats = stats_of(profiler, "outer")
    assert stats.cpu_unknown_ns == 0, "it ran all the time, if through another context"
    clean(profiler)


def test_counts_go_to_the_phase_around_a_context(profiler: Profiler) -> None:
    with phase("outer"):
        contextvars.copy_context().run(count, "n", 5)
        contextvars.copy_context().run(lambda: count("n", 6))
    count("n", 7)
    assert stats_of(profiler, "outer").counters == {"n": 11}
    assert profiler.merged_tree()[()].counters == {"n": 7}


def test_context_left_open_and_entered_again(profiler: Profiler) -> None:
    """A context that is suspended with a phase open, run from several places in turn."""
    context = contextvars.copy_context()
    scope = phase("kept")
    with phase("first"):
        context.run(scope.__enter__)
        assert current() == "first"
    with phase("second"):
        assert context.run(current) == "first/kept"
        context.run(scope.__exit__, None, None, None)
        assert context.run(current) == "second"
    assert calls(profiler) == {"first": 1, "first/kept": 1, "second": 1}
    clean(profiler)


# --- generators ---


def test_generator_keeps_a_phase_open(profiler: Profiler) -> None:
    """A generator has no context of its own: what it holds open adopts what its consumer does."""

    def generates() -> Iterator[int]:
        with phase("generator"):
            yield 1
            with phase("inside"):
                pass
            yield 2

    for _ in generates():
        with phase("consumer"):
            pass
    assert calls(profiler) == {"generator": 1, "generator/consumer": 2, "generator/inside": 1}
    clean(profiler)


def test_generators_end_out_of_order(profiler: Profiler) -> None:
    def holds(name: str) -> Iterator[None]:
        with phase(name):
            yield

    one, two, three = holds("one"), holds("two"), holds("three")
    next(one)
    next(two)
    next(three)
    assert current() == "one/two/three"
    one.close()  # type: ignore[attr-defined]
    assert current() == "one/two/three", "the path of an entry does not change while it is open"
    assert list(two) == []
    with phase("now"):
        assert current() == "one/two/three/now"
    del three
    assert current() == ""
    assert calls(profiler) == {"one": 1, "one/two": 1, "one/two/three": 1, "one/two/three/now": 1}
    assert all(stats.errors == 0 for stats in profiler.merged_tree().values()), "GeneratorExit is no error"
    assert stats_of(profiler, "one/two/three").abandoned == 0, "it was left, if by the end of its frame"
    clean(profiler)


def test_interleaved_generators_of_one_function(profiler: Profiler) -> None:
    shared = phase("shared")

    def holds(passes: int) -> Iterator[int]:
        for number in range(passes):
            with shared:
                yield number

    running = [holds(10) for _ in range(10)]
    chooser = random.Random(4)
    while running:
        one = chooser.choice(running)
        if next(one, None) is None:
            running.remove(one)
    found = calls(profiler)
    assert sum(found.values()) == 100
    assert set(found) <= {"/".join(["shared"] * depth) for depth in range(1, 11)}
    clean(profiler)


def test_generator_handed_to_a_thread(profiler: Profiler) -> None:
    """A streamed response: begun here, consumed by a thread of a pool, each part by another."""

    def stream() -> Iterator[int]:
        with phase("stream"):
            for number in range(10):
                with phase("part"):
                    yield number

    with ThreadPoolExecutor(3) as pool:
        for _ in range(20):
            parts = stream()
            while pool.submit(next, parts, None).result() is not None:
                pass
    found = calls(profiler)
    assert sum(n for path, n in found.items() if path.endswith("stream")) == 20
    assert sum(n for path, n in found.items() if path.endswith("part")) == 200
    assert set(health(profiler)) <= {"foreign_exits"}


def test_async_generators(profiler: Profiler) -> None:
    async def rows() -> AsyncIterator[int]:
        with phase("rows"):
            for number in range(3):
                with phase("fetch"):
                    await asyncio.sleep(0)
                yield number

    async def main() -> None:
        async for _ in rows():
            with phase("use"):
                await asyncio.sleep(0)
        early = rows()
        await early.__anext__()
        await early.aclose()  # type: ignore[attr-defined]
        forgotten = rows()
        await forgotten.__anext__()
        del forgotten  # the loop closes it, in a task of its own
        gc.collect()
        await asyncio.sleep(0.001)
        with phase("after"):
            assert current() == "after"

    asyncio.run(main())
    assert calls(profiler) == {"rows": 3, "rows/fetch": 5, "rows/use": 3, "after": 1}
    assert all(stats.errors == 0 for stats in profiler.merged_tree().values())
    assert set(health(profiler)) <= {"foreign_exits"}


# --- left elsewhere: what web frameworks do ---


def test_dependency_of_a_web_framework(profiler: Profiler) -> None:
    """A `yield` dependency: each half in a copy of the context, in a thread of a pool; the handler between them."""

    def dependency() -> Iterator[int]:
        with phase("dependency"):
            yield 1

    def handler() -> None:
        with phase("handler"):
            pass

    with ThreadPoolExecutor(4) as pool:

        async def in_pool(function: Callable[..., Any], *args: Any) -> Any:
            context = contextvars.copy_context()
            return await asyncio.get_running_loop().run_in_executor(pool, context.run, function, *args)

        async def request() -> None:
            held = dependency()
            await in_pool(next, held)
            await in_pool(handler)
            await in_pool(next, held, None)

        async def main() -> None:
            await asyncio.gather(*(request() for _ in range(100)))

        with phase("serve"):
            asyncio.run(main())
    found = calls(profiler)
    assert found.pop("serve") == 1
    assert sum(n for path, n in found.items() if path.endswith("dependency")) == 100
    assert sum(n for path, n in found.items() if path.endswith("handler")) == 100
    # Each half runs in a new context, so nobody's handler is below somebody else's dependency.
    assert found == {"dependency": 100, "handler": 100}
    assert set(health(profiler)) <= {"foreign_exits"}


DEAD_CONTEXTS = """
import contextvars
import sys
from concurrent.futures import ThreadPoolExecutor
from lineprofiler import accounting

profiler = accounting.start(run_dir=sys.argv[1])

def dependency():
    with accounting.phase("dependency"):
        yield 1

def handler():
    with accounting.phase("handler"):
        pass

# One thread, so that the first half's context dies while it is the last one that the thread recorded in; two, so that
# the other half comes from elsewhere.
with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
    for _ in range(300):
        held = dependency()
        one.submit(contextvars.copy_context().run, next, held).result()
        other = contextvars.copy_context()
        many = [contextvars.copy_context() for _ in range(300)]
        del many  # the interpreter keeps 255 dead contexts as they are: these are them
        two.submit(other.run, next, held, None).result()
        one.submit(contextvars.copy_context().run, handler).result()
tree = profiler.merged_tree()
assert {path: stats.calls for path, stats in tree.items() if path} == {("dependency",): 300, ("handler",): 300}, tree
"""


def test_a_context_that_died_is_never_looked_at(run_dir: Path) -> None:
    """With freed memory overwritten at once: a look into a dead context ends the process."""
    run_python(DEAD_CONTEXTS, run_dir, env=environment(PYTHONMALLOC="debug")).expect()


def test_fixture_entered_in_one_task_and_left_in_another(profiler: Profiler) -> None:
    @contextlib.asynccontextmanager
    async def fixture() -> AsyncIterator[None]:
        with phase("fixture"):
            await asyncio.sleep(0)
            yield

    async def main() -> None:
        held = fixture()
        await asyncio.create_task(held.__aenter__())  # type: ignore[arg-type]
        with phase("test"):
            await asyncio.sleep(0)
            spin(20 * MS)
        await asyncio.create_task(held.__aexit__(None, None, None))  # type: ignore[arg-type]
        with phase("test"):
            pass

    asyncio.run(main())
    assert calls(profiler) == {"fixture": 1, "test": 2}
    stats = stats_of(profiler, "fixture")
    assert stats.wall_ns >= 20 * MS
    if sys.version_info < (3, 14):
        assert stats.cpu_unknown_ns == stats.wall_ns
    else:  # what others used after its task had ended is not its own
        assert stats.cpu_unknown_ns == 0
        assert stats.wait_ns >= 20 * MS - NOISE_NS
        assert abs(stats.wall_ns - stats.cpu_ns - stats.wait_ns) <= 1
    clean(profiler)


def test_out_of_order_in_one_context(profiler: Profiler) -> None:
    a, b, c = phase("a"), phase("b"), phase("c")
    a.__enter__()
    b.__enter__()
    a.__exit__(None, None, None)
    c.__enter__()
    assert current() == "a/b/c"
    b.__exit__(None, None, None)
    assert current() == "a/b/c"
    c.__exit__(None, None, None)
    assert current() == ""
    assert calls(profiler) == {"a": 1, "a/b": 1, "a/b/c": 1}
    clean(profiler)


def test_random_orders(profiler: Profiler) -> None:
    """Twenty objects entered and left at random, in a few contexts and threads: the counts are exact."""
    chooser = random.Random(6)
    scopes = [phase(f"p{i}") for i in range(20)]
    contexts = [contextvars.copy_context() for _ in range(3)]
    held = [0] * 20
    entered = [0] * 20
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3000):
            which = chooser.randrange(20)
            leave = held[which] > 0 and (chooser.random() < 0.55 or sum(held) > 12)
            function, args = (scopes[which].__exit__, (None, None, None)) if leave else (scopes[which].__enter__, ())
            held[which] += -1 if leave else 1
            entered[which] += 0 if leave else 1
            where = chooser.randrange(5)
            if where < 3:
                contexts[where].run(function, *args)  # type: ignore[arg-type]
            elif where == 3:
                pool.submit(function, *args).result()  # type: ignore[arg-type]
            else:
                function(*args)  # type: ignore[operator]
        for which, number in enumerate(held):
            for _ in range(number):
                scopes[which].__exit__(None, None, None)
    lost = health(profiler)
    # A path that nobody had before each time: some are folded, and counted.
    found = calls(profiler)
    for which in range(20):
        n = sum(number for path, number in found.items() if path.split("/")[-1] == f"p{which}")
        if not lost.get("folded_paths") and not lost.get("folded_depth"):
            assert n == entered[which]
        assert n <= entered[which]
    assert set(lost) <= {"foreign_exits", "folded_depth", "folded_paths", "first_folded"}


# --- one object, many entries ---


def test_recursion_with_one_object(profiler: Profiler) -> None:
    scope = phase("down")

    def down(depth: int) -> None:
        with scope:
            if depth:
                down(depth - 1)
                down(depth - 1)

    down(4)
    assert calls(profiler) == {"/".join(["down"] * depth): 2 ** (depth - 1) for depth in range(1, 6)}
    stats = stats_of(profiler, "down")
    assert stats.child_wall_ns <= stats.wall_ns
    clean(profiler)


def test_deep_recursion_folds(profiler: Profiler) -> None:
    scope = phase("down")

    def down(depth: int) -> None:
        with scope:
            if depth:
                down(depth - 1)

    down(100)
    found = calls(profiler)
    assert len(found) == 32
    assert set(found.values()) == {1}
    assert health(profiler)["folded_depth"] >= 1
    assert health(profiler)["first_folded"] == "/".join(["down"] * 33)


def test_decorated_and_entered_again(profiler: Profiler) -> None:
    @phase("work")
    def work(depth: int) -> str:
        return work(depth - 1) if depth else current()

    assert work(2) == "work/work/work"
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(work, [1] * 100)) == {"work/work"}
    assert calls(profiler) == {"work": 101, "work/work": 101, "work/work/work": 1}
    clean(profiler)


def test_decorated_functions_of_every_kind(profiler: Profiler) -> None:
    class Thing:
        @phase("method")
        def method(self) -> str:
            return current()

        @classmethod
        @phase("class method")
        def of_class(cls) -> str:
            return current()

        @staticmethod
        @phase("static method")
        def static() -> str:
            return current()

    @phase("coroutine")
    async def coroutine(pause: float) -> str:
        await asyncio.sleep(pause)
        return current()

    @phase("generator")
    def generator() -> Iterator[str]:
        yield current()
        yield current()

    @phase("async generator")
    async def async_generator() -> AsyncIterator[str]:
        await asyncio.sleep(0)
        yield current()

    async def main() -> None:
        got = await asyncio.gather(*(coroutine(0.001 * (i % 3)) for i in range(10)))
        assert set(got) == {"coroutine"}
        assert [item async for item in async_generator()] == ["async generator"]

    thing = Thing()
    assert (thing.method(), thing.of_class(), thing.static()) == ("method", "class method", "static method")
    assert list(generator()) == ["generator", "generator"]
    asyncio.run(main())
    assert calls(profiler) == {
        "method": 1,
        "class method": 1,
        "static method": 1,
        "coroutine": 10,
        "generator": 3,
        "async generator": 2,
    }
    clean(profiler)
