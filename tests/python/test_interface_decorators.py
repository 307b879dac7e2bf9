"""Phases as decorators: the body is timed, the kind of the function stays, nothing else changes."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import sys
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lineprofiler import accounting
from lineprofiler.accounting import Profiler


@pytest.fixture
def profiler(tmp_path: Path) -> Iterator[Profiler]:
    with Profiler(tmp_path, snapshot_interval_s=None, sample_interval_s=None) as made:
        yield made


def calls(profiler: Profiler) -> dict[str, int]:
    """Entries by path, of what was entered."""
    return {"/".join(path): stats.calls for path, stats in profiler.merged_tree().items() if stats.calls}


def test_plain_function(profiler: Profiler) -> None:
    @profiler.profile
    def half(value: int, /, *, by: int = 2) -> int:
        """Divides."""
        return value // by

    @profiler.profile(name="other")
    def named() -> str:
        return profiler.current_phase()

    assert half(9) == 4
    assert half(9, by=3) == 3
    assert named() == "other"
    assert (half.__name__, half.__doc__) == ("half", "Divides.")
    assert list(inspect.signature(half).parameters) == ["value", "by"]
    assert calls(profiler) == {"half": 2, "other": 1}


def test_scope_as_decorator(profiler: Profiler) -> None:
    @profiler.phase("outer")
    def outer() -> str:
        return inner()

    @profiler.phase("inner", sample=1.0)
    def inner() -> str:
        return profiler.current_phase()

    assert outer() == "outer/inner"
    assert calls(profiler) == {"outer": 1, "outer/inner": 1}


def test_recursion_and_exceptions(profiler: Profiler) -> None:
    @profiler.profile
    def down(depth: int) -> int:
        if depth == 0:
            raise KeyError("bottom")
        return down(depth - 1)

    with pytest.raises(KeyError):
        down(2)
    tree = profiler.merged_tree()
    assert calls(profiler) == {"down": 1, "down/down": 1, "down/down/down": 1}
    assert all(stats.errors == 1 for path, stats in tree.items() if path)
    assert profiler.current_phase() == ""


def test_methods_keep_their_kind(profiler: Profiler) -> None:
    class Worker:
        @profiler.profile
        def step(self) -> Any:
            return self

        @profiler.profile
        @classmethod
        def make(cls) -> Any:
            return cls

        @classmethod
        @profiler.profile
        def make_too(cls) -> Any:
            return cls

        @profiler.profile
        @staticmethod
        def add(a: int, b: int) -> int:
            return a + b

        half = profiler.profile(name="half")(functools.partialmethod(lambda self, by: (self, by), 2))  # type: ignore[type-var]

    worker = Worker()
    assert worker.step() is worker
    assert Worker.make() is worker.make() is Worker
    assert Worker.make_too() is Worker
    assert Worker.add(1, 2) == worker.add(1, 2) == 3
    assert worker.half() == (worker, 2)
    assert isinstance(inspect.getattr_static(Worker, "add"), staticmethod)
    assert isinstance(inspect.getattr_static(Worker, "make"), classmethod)
    assert calls(profiler) == {"step": 1, "make": 2, "make_too": 1, "add": 2, "half": 1}


def test_callables_without_a_function(profiler: Profiler) -> None:
    class Model:
        def __call__(self, value: int) -> int:
            return value + 1

    assert profiler.profile(Model())(1) == 2
    assert profiler.profile(functools.partial(max, 3))(1) == 3
    assert profiler.profile(len)("ab") == 2
    assert calls(profiler) == {"Model": 1, "max": 1, "len": 1}


@pytest.mark.parametrize("wrong", [int, "name", 3, property(lambda self: 1)])
def test_what_cannot_be_decorated(profiler: Profiler, wrong: Any) -> None:
    with pytest.raises(TypeError, match="decorates functions"):
        profiler.profile(wrong)


def test_wrong_name(profiler: Profiler) -> None:
    with pytest.raises(TypeError, match="name"):
        profiler.profile(name=3)  # type: ignore[call-overload]


# --- generators ---


def test_generator_steps_are_entries(profiler: Profiler) -> None:
    """The consumer's time and phases are not inside."""

    @profiler.profile
    def numbers(count: int) -> Generator[int, str, str]:
        """Counts."""
        got = []
        for number in range(count):
            got.append((yield number))
            assert profiler.current_phase().endswith("numbers")
        return ",".join(got)

    assert inspect.isgeneratorfunction(numbers)
    generator = numbers(2)
    assert calls(profiler) == {}, "creation is no entry"
    assert next(generator) == 0
    assert profiler.current_phase() == ""
    with profiler.phase("consumer"):
        assert generator.send("a") == 1
    with pytest.raises(StopIteration) as end:
        generator.send("b")
    assert end.value.value == "a,b"
    tree = profiler.merged_tree()
    assert calls(profiler) == {"numbers": 2, "consumer": 1, "consumer/numbers": 1}
    assert sum(stats.errors for stats in tree.values()) == 0, "the end of a generator is no error"


def test_generator_throw_and_close(profiler: Profiler) -> None:
    seen: list[str] = []

    @profiler.profile
    def body() -> Iterator[int]:
        try:
            yield 1
        except KeyError:
            seen.append("thrown")
            yield 2
        finally:
            seen.append("closed")

    generator = body()
    next(generator)
    assert generator.throw(KeyError("x")) == 2  # type: ignore[attr-defined]
    generator.close()  # type: ignore[attr-defined]
    assert seen == ["thrown", "closed"]
    assert calls(profiler) == {"body": 3}

    with pytest.raises(ZeroDivisionError):
        list(profiler.profile(name="raises")(lambda: (1 // 0 for _ in [1]))())


def test_what_a_generator_returns_when_it_is_closed(profiler: Profiler) -> None:
    """From Python 3.13 on close() gives it to whoever closes; the decorated one does what the bare one does."""

    def steps(caught: bool) -> Generator[int, None, str]:
        try:
            yield 1
        except GeneratorExit:
            if not caught:
                raise
        return "the rest"

    for caught in (True, False):
        bare, decorated = steps(caught), profiler.profile(steps)(caught)
        assert next(bare) == next(decorated) == 1
        assert bare.close() == decorated.close()


def test_generators_of_one_function_in_turn(profiler: Profiler) -> None:
    @profiler.profile
    def numbers() -> Iterator[int]:
        yield from range(3)

    assert list(zip(numbers(), numbers(), strict=True)) == [(0, 0), (1, 1), (2, 2)]
    # zip asks the first for a fourth value, then, being strict, the second.
    assert calls(profiler) == {"numbers": 8}
    assert profiler.current_phase() == ""


def test_context_manager_from_a_generator(profiler: Profiler) -> None:
    @contextmanager
    @profiler.profile
    def prepared() -> Iterator[int]:
        yield 7

    with prepared() as value, profiler.phase("inside"):
        assert value == 7
    assert calls(profiler) == {"prepared": 2, "inside": 1}


def test_generator_leaves_no_cycle(profiler: Profiler) -> None:
    class Error(Exception):
        pass

    @profiler.profile
    def body() -> Iterator[int]:
        yield 1

    gc.disable()
    try:
        generator = body()
        next(generator)
        error = Error()
        alive = weakref.ref(error)
        with pytest.raises(Error):
            generator.throw(error)  # type: ignore[attr-defined]
        del error, generator
        # pytest keeps the traceback until the next one.
        sys.last_value = None
    finally:
        gc.enable()
    gc.collect()
    assert alive() is None


# --- coroutines ---


def test_coroutine_body_is_timed(profiler: Profiler) -> None:
    @profiler.profile
    async def fetch(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return profiler.current_phase()

    assert inspect.iscoroutinefunction(fetch)
    coroutine = fetch(0.02)
    assert calls(profiler) == {}, "creation is no entry"
    assert asyncio.run(coroutine) == "fetch"
    stats = profiler.merged_tree()[("fetch",)]
    assert stats.calls == 1
    assert stats.wall_ns >= 20_000_000, "asyncio.sleep sleeps at least that"


def test_coroutines_beside_each_other(profiler: Profiler) -> None:
    @profiler.phase("fetch")
    async def fetch(number: int) -> int:
        await asyncio.sleep(0.001 * (5 - number))
        return number

    async def everything() -> list[int]:
        return await asyncio.gather(*(fetch(number) for number in range(5)))

    assert asyncio.run(everything()) == [0, 1, 2, 3, 4]
    assert calls(profiler) == {"fetch": 5}


def test_async_generator_steps_are_entries(profiler: Profiler) -> None:
    closed: list[bool] = []

    @profiler.profile
    async def stream() -> AsyncGenerator[int, str]:
        try:
            for number in range(3):
                await asyncio.sleep(0)
                yield number
        finally:
            closed.append(True)

    assert inspect.isasyncgenfunction(stream)

    async def consume() -> list[int]:
        got = []
        async for number in stream():
            assert profiler.current_phase() == ""
            got.append(number)
        early: AsyncIterator[int] = stream()
        assert await early.__anext__() == 0
        await early.aclose()  # type: ignore[attr-defined]
        late = stream()
        await late.__anext__()
        with pytest.raises(KeyError):
            await late.athrow(KeyError("x"))
        return got

    assert asyncio.run(consume()) == [0, 1, 2]
    assert closed == [True] * 3
    assert calls(profiler) == {"stream": 4 + 2 + 2}
    assert profiler.merged_tree()[("stream",)].errors == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="inspect.markcoroutinefunction is new in 3.12")
def test_marked_function_counts_as_coroutine_function(profiler: Profiler) -> None:
    async def body() -> str:
        return profiler.current_phase()

    def fetch() -> Any:
        return body()

    marked = profiler.profile(inspect.markcoroutinefunction(fetch))  # type: ignore[attr-defined, unused-ignore]
    assert inspect.iscoroutinefunction(marked)
    assert asyncio.run(marked()) == "fetch"


# --- of the installed profiler ---


def test_decorated_before_a_profiler_is_installed(tmp_path: Path) -> None:
    """Library code decorates at import; what is installed when the call comes records it."""

    @accounting.phase("library")
    def work() -> str:
        return accounting.current()

    assert work() == ""
    for name in ("first", "second"):
        with Profiler(tmp_path / name, install=True, snapshot_interval_s=None) as profiler:
            assert work() == "library"
            assert calls(profiler) == {"library": 1}
    assert work() == ""
