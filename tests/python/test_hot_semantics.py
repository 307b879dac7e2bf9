"""What phase() and count() mean: sampling, amounts, sync, async_work, being off, and what they leave behind."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import gc
import json
import resource
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lptest import run_python
from phases import MS, calls, check_sane, real_memory, recording, rss_bytes, spin, stats_of, worker

from lineprofiler import accounting
from lineprofiler.accounting import Profiler

phase, count, current = accounting.phase, accounting.count, accounting.current


@pytest.fixture
def profiler(run_dir: Path) -> Iterator[Profiler]:
    with recording(run_dir) as made:
        yield made
        check_sane(made)


# --- sample= ---


def test_sample_stride(profiler: Profiler) -> None:
    """The first is measured, then every tenth; totals are scaled, the counters' range is not."""
    for number in range(100):
        with phase("sampled", sample=0.1):
            count("n", number)
            with phase("inner"):
                pass
    stats, inner = stats_of(profiler, "sampled"), stats_of(profiler, "sampled/inner")
    assert (stats.calls, stats.sample_stride, stats.hist.count) == (100, 10, 100)
    assert (inner.calls, inner.sample_stride) == (100, 10)
    assert stats.counters == {"n": sum(range(0, 100, 10)) * 10}
    assert (stats.counter_min["n"], stats.counter_max["n"]) == (0, 90)
    assert stats.counter_calls["n"] == 100
    assert stats.child_wall_ns <= stats.wall_ns


@pytest.mark.parametrize(("rate", "stride"), [(0.5, 2), (1 / 3, 3), (0.4, 2), (0.3, 3), (0.01, 100), (1.0, 0), (1, 0)])
def test_strides_of_rates(profiler: Profiler, rate: float, stride: int) -> None:
    measured = 0
    for _ in range(600):
        with phase("p", sample=rate):
            count("hit", 1)
    stats = stats_of(profiler, "p")
    assert stats.sample_stride == stride
    measured = -(-600 // max(stride, 1))
    assert stats.calls == stats.counters["hit"] == measured * max(stride, 1)


def test_sampled_subtree(profiler: Profiler) -> None:
    """Below an entry that is left out nothing is recorded, neither phases nor counts; current() tells the place."""
    seen = []
    for _ in range(4):
        with phase("top"):
            with phase("sampled", sample=0.5):
                seen.append(current())
                with phase("below"):
                    seen.append(current())
                    count("n", 1)
            count("m", 1)
    assert calls(profiler) == {"top": 4, "top/sampled": 4, "top/sampled/below": 4}
    assert stats_of(profiler, "top/sampled/below").counters == {"n": 4}
    assert stats_of(profiler, "top").counters == {"m": 4}
    assert seen[:2] == ["top/sampled", "top/sampled/below"]
    top = stats_of(profiler, "top")
    assert top.child_wall_ns <= top.wall_ns


def test_nested_samples_multiply(profiler: Profiler) -> None:
    for _ in range(40):
        with phase("outer", sample=0.5):
            for _ in range(10):
                with phase("inner", sample=0.2):
                    count("n", 1)
    outer, inner = stats_of(profiler, "outer"), stats_of(profiler, "outer/inner")
    assert (outer.calls, outer.sample_stride) == (40, 2)
    assert (inner.calls, inner.sample_stride) == (400, 10)
    assert inner.counters == {"n": 400}


def test_tiny_samples_do_not_wrap(profiler: Profiler) -> None:
    """1e-9 in 1e-9 stands for 10^18: more than 32 bits hold. It is never a small number."""
    with phase("outer", sample=1e-9), phase("inner", sample=1e-9):
        pass
    assert stats_of(profiler, "outer").calls == 10**9
    assert stats_of(profiler, "outer/inner").calls >= 10**9


def test_sampled_and_measured_entries_of_one_path(profiler: Profiler) -> None:
    for _ in range(10):
        with phase("p"):
            pass
        with phase("p", sample=0.5):
            pass
    stats = stats_of(profiler, "p")
    assert (stats.calls, stats.sample_stride) == (20, 2)


def test_sample_is_a_stride_for_each_thread_and_path(profiler: Profiler) -> None:
    scope = phase("p", sample=0.25)

    def work() -> None:
        for _ in range(40):
            with scope:
                count("n", 1)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
        thread.join()
    with phase("above"):
        work()
    assert calls(profiler) == {"p": 200, "above/p": 40, "above": 1}
    assert stats_of(profiler, "p").counters == {"n": 200}


def test_sample_wall_time(profiler: Profiler) -> None:
    for number in range(8):
        with phase("p", sample=0.25):
            if number % 4 == 0:
                spin(5 * MS)
    stats = stats_of(profiler, "p")
    # Two entries of 5 ms were measured, each stands for four.
    assert stats.wall_ns >= 8 * 5 * MS - MS
    assert stats.hist.quantile(0.5) >= 5 * MS * (1 - 1 / 64)
    assert stats.min_ns >= 5 * MS - MS


@pytest.mark.parametrize("rate", [0, 0.0, -0.5, 1.0001, 2, float("nan"), float("inf"), 1e-10])
def test_sample_outside(profiler: Profiler, rate: float) -> None:
    with pytest.raises(ValueError, match="sample"):
        phase("p", sample=rate)


@pytest.mark.parametrize("rate", ["0.5", None, [1], 1j])
def test_sample_of_a_wrong_type(profiler: Profiler, rate: Any) -> None:
    with pytest.raises(TypeError):
        phase("p", sample=rate)


# --- count() ---


class Index:
    """An integer of another library."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_amounts(profiler: Profiler) -> None:
    with phase("p"):
        count("default")
        count("bool", True)
        count("bool", False)
        count("negative", -5)
        count("negative", 3)
        count("index", Index(7))  # type: ignore[arg-type]
        count("zero", 0)
    stats = stats_of(profiler, "p")
    assert stats.counters == {"default": 1, "bool": 1, "negative": -2, "index": 7, "zero": 0}
    assert stats.counter_calls == {"default": 1, "bool": 2, "negative": 2, "index": 1, "zero": 1}
    assert (stats.counter_min["negative"], stats.counter_max["negative"]) == (-5, 3)
    assert stats.counter_hist["negative"].to_sparse() == {"-5": 1, "3": 1}


def test_numpy_integers(profiler: Profiler) -> None:
    numpy = pytest.importorskip("numpy")
    with phase("p"):
        for kind in (numpy.int8, numpy.int32, numpy.int64, numpy.uint64, numpy.intp):
            count("n", kind(5))
        count("n", numpy.array([1, 2, 3]).sum())
        count("array", numpy.array(9))
        with pytest.raises(OverflowError):
            count("n", numpy.uint64(2**63))
        with pytest.raises(TypeError):
            count("n", numpy.float64(1))
        with pytest.raises(TypeError):
            count("n", numpy.array([1, 2]))
    assert stats_of(profiler, "p").counters == {"n": 31, "array": 9}


@pytest.mark.parametrize("wrong", [1.0, "1", None, b"1", 1j, [1], object()])
def test_amounts_of_a_wrong_type(profiler: Profiler, wrong: Any) -> None:
    with phase("p"):
        with pytest.raises(TypeError, match="count"):
            count("n", wrong)
    assert stats_of(profiler, "p").counters == {}


@pytest.mark.parametrize("amount", [2**63, -(2**63) - 1, 10**30, Index(2**64)])
def test_amounts_beyond_64_bits(profiler: Profiler, amount: Any) -> None:
    with phase("p"), pytest.raises(OverflowError, match="64 bits"):
        count("n", amount)
    assert stats_of(profiler, "p").counters == {}


def test_failing_index_is_the_users(profiler: Profiler) -> None:
    class Bad:
        def __index__(self) -> int:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        count("n", Bad())  # type: ignore[arg-type]


def test_totals_beyond_64_bits_are_exact(run_dir: Path) -> None:
    biggest, smallest = 2**63 - 1, -(2**63)
    with recording(run_dir) as profiler:
        with phase("p"):
            for _ in range(10):
                count("up", biggest)
                count("down", smallest)
                count("both", biggest)
                count("both", smallest)
            with phase("sampled", sample=1e-6):
                count("up", biggest)
        expected = {"up": 10 * biggest, "down": 10 * smallest, "both": -10}
        assert stats_of(profiler, "p").counters == expected
        assert stats_of(profiler, "p/sampled").counters == {"up": biggest * 10**6}
        stats = stats_of(profiler, "p")
        assert (stats.counter_min["both"], stats.counter_max["both"]) == (smallest, biggest)
    run = accounting.merge_run(run_dir)
    assert run.tree[("p",)].counters == expected
    assert run.tree[("p", "sampled")].counters == {"up": biggest * 10**6}
    assert json.loads(json.dumps(accounting.report_as_dict(run)))


def test_many_counters(profiler: Profiler) -> None:
    """More than the cache of a thread holds, in several phases."""
    names = [f"counter {chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(300)]
    for round_ in range(5):
        for top in ("a", "b"):
            with phase(top):
                for number, name in enumerate(names):
                    count(name, number + round_)
    for top in ("a", "b"):
        assert stats_of(profiler, top).counters == {name: 5 * i + 10 for i, name in enumerate(names)}


def test_counting_at_the_root(profiler: Profiler) -> None:
    count("outside", 3)
    assert profiler.merged_tree()[()].counters == {"outside": 3}


# --- sync= ---


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for torch: says when it was waited for."""
    made: Any = types.ModuleType("torch")
    made.waits = []
    made.has_context = True
    made.cuda = types.SimpleNamespace(
        is_initialized=lambda: made.has_context,
        is_available=lambda: True,
        synchronize=lambda: made.waits.append(current()),
    )
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_sync_waits_at_both_ends(profiler: Profiler, torch: Any) -> None:
    with phase("outer"):
        with phase("gpu", sync=True):
            torch.waits.append("body")
        with phase("plain"):
            pass
    # Before the clock starts, and before it stops.
    assert torch.waits == ["outer", "body", "outer/gpu"]
    assert calls(profiler) == {"outer": 1, "outer/gpu": 1, "outer/plain": 1}


def test_sync_time_is_inside(profiler: Profiler, torch: Any) -> None:
    torch.cuda.synchronize = lambda: spin(5 * MS) if current() == "gpu" else spin(20 * MS)
    with phase("gpu", sync=True):
        pass
    assert stats_of(profiler, "gpu").wall_ns >= 5 * MS - MS
    assert stats_of(profiler, "gpu").cpu_ns < 20 * MS, "what was queued before is not this phase's"


def test_sync_without_a_context_waits_for_nothing(profiler: Profiler, torch: Any) -> None:
    torch.has_context = False
    with phase("gpu", sync=True):
        pass
    assert torch.waits == []


@pytest.mark.parametrize(("policy", "context", "waits"), [(False, True, 0), (True, False, 2), (True, True, 2)])
def test_sync_policies(run_dir: Path, torch: Any, policy: bool, context: bool, waits: int) -> None:
    torch.has_context = context
    with recording(run_dir, cuda_sync=policy):
        with phase("gpu", sync=True):
            pass
    assert len(torch.waits) == waits


def test_sync_that_fails_is_not_the_programs_trouble(profiler: Profiler, torch: Any) -> None:
    def fails() -> None:
        raise RuntimeError("device lost")

    torch.cuda.synchronize = fails
    with pytest.raises(KeyError), phase("gpu", sync=True):
        raise KeyError
    assert calls(profiler) == {"gpu": 1}
    assert stats_of(profiler, "gpu").errors == 1
    assert sys.exc_info() == (None, None, None)


def test_sync_without_torch_imports_nothing(run_dir: Path) -> None:
    run_python(
        """
        import sys
        from lineprofiler import accounting
        with accounting.Profiler(sys.argv[1], install=True):
            with accounting.phase("gpu", sync=True):
                pass
        assert "torch" not in sys.modules
        """,
        run_dir,
    ).expect()


# --- async_work= ---


def test_async_work_is_marked(run_dir: Path) -> None:
    with recording(run_dir) as profiler:
        for number in range(5):
            with phase("forward", async_work=number > 1):
                pass
        with phase("backward"):
            pass
        assert stats_of(profiler, "forward").async_entries == 3
        assert stats_of(profiler, "backward").async_entries == 0
    run = accounting.merge_run(run_dir)
    assert run.tree[("forward",)].async_entries == 3
    text = accounting.render(run)
    assert "\u2020forward" in text
    assert "\u2020backward" not in text


# --- current() ---


def test_current_is_the_callers_own(profiler: Profiler) -> None:
    assert current() == profiler.current_phase() == ""
    got: list[str] = []
    with phase("main"):
        thread = threading.Thread(target=lambda: got.append(current()))
        thread.start()
        thread.join()
        assert contextvars.copy_context().run(current) == "main"

        async def one(name: str) -> None:
            with phase(name):
                await asyncio.sleep(0)
                got.append(current())

        async def main() -> None:
            await asyncio.gather(one("a"), one("b"))

        asyncio.run(main())
        assert current() == "main"
    assert got == ["", "main/a", "main/b"]


# --- off ---


def test_nothing_installed() -> None:
    assert accounting.installed_profiler() is None
    name = "".join(["nobody else", " has this"])
    held = [name]  # whether a variable on the stack counts depends on the place, from 3.14 on
    before = sys.getrefcount(held[0])
    for _ in range(100):
        with phase(name, io=True, sync=True, sample=0.5, async_work=True) as got, phase(name):
            assert got is None
            assert count("n", 3) is None  # type: ignore[func-returns-value]
            assert current() == ""
    with pytest.raises(KeyError), phase("x"):
        raise KeyError
    after = sys.getrefcount(held[0])
    assert after == before
    # Wrong arguments are wrong also while nothing records: a program must not break when it is switched on.
    for wrong in (
        lambda: phase(3),  # type: ignore[arg-type]
        lambda: phase("a", nope=1),  # type: ignore[call-arg]
        lambda: count(3),  # type: ignore[arg-type]
        lambda: count("a", 1.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            wrong()
    for rate in (0, 2.0, float("nan")):
        with pytest.raises(ValueError, match=r"^sample must be in \(0, 1\], not "):
            phase("a", sample=rate)
    with pytest.raises(ValueError, match=r"^sample must be 1e-9 at least, not 1e-10$"):
        phase("a", sample=1e-10)
    with pytest.raises(TypeError, match=r"^sample must be a number, not str$"):
        phase("a", sample="0.1")  # type: ignore[arg-type]


def test_disabled_profiler() -> None:
    profiler = Profiler.disabled()
    with profiler.phase("a"), profiler.phase("b", io=True):
        profiler.count("n")
        assert profiler.current_phase() == ""
    assert profiler.merged_tree() == {}

    def function() -> int:
        return 3

    assert profiler.phase("decorated")(function) is function, "it never will be on: no wrapper"
    profiler.close()


def test_decorator_made_before_install_records_after(tmp_path: Path) -> None:
    @phase("early", io=True)
    def early() -> str:
        return current()

    @phase("stream")
    async def stream() -> Any:
        yield current()

    async def consume() -> list[str]:
        return [item async for item in stream()]

    assert early() == ""
    for name in ("one", "two"):
        with recording(tmp_path / name) as profiler:
            assert early() == "early"
            assert asyncio.run(consume()) == ["stream"]
            assert calls(profiler) == {"early": 1, "stream": 2}
            assert stats_of(profiler, "early").io
    assert early() == ""


def test_closed_profiler_is_off(run_dir: Path) -> None:
    profiler = recording(run_dir)
    scope = profiler.phase("p")
    with scope:
        pass
    profiler.close()
    profiler.close()
    with scope, profiler.phase("q"):
        profiler.count("n")
    assert profiler.current_phase() == ""
    assert calls(profiler) == {"p": 1}


def test_close_beside_working_threads(tmp_path: Path) -> None:
    """Threads in the middle of phases, snapshots and reads while it closes: they go on as if it were off."""
    failed: list[BaseException] = []

    for round_ in range(15):
        profiler = recording(tmp_path / f"{round_}", snapshot_interval_s=0.001)
        stop = threading.Event()

        def work(profiler: Profiler = profiler, stop: threading.Event = stop) -> None:
            try:
                while not stop.is_set():
                    for _ in range(50):
                        with phase("a"), profiler.phase("b", io=True), phase("c", sample=0.5):
                            count("n")
                        current()
            except BaseException as error:
                failed.append(error)

        def read(profiler: Profiler = profiler, stop: threading.Event = stop) -> None:
            try:
                while not stop.is_set():
                    profiler.snapshot()
                    profiler.merged_tree()
                    profiler.io_counters()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(2)] + [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        stop.wait(0.03)
        profiler.close()
        stop.wait(0.005)
        stop.set()
        for thread in threads:
            thread.join()
        assert failed == []
        tree = profiler.merged_tree()
        assert all(stats.hist.count == stats.calls for path, stats in tree.items() if path)
        run = accounting.merge_run(tmp_path / f"{round_}")
        assert len(run.workers) == 1
        assert run.unreadable == []
        assert run.workers[0].details["final"]


# --- what a phase leaves behind: nothing ---


def test_references_stay_flat(profiler: Profiler) -> None:
    name, other = "".join(["flat", " name"]), "".join(["other", " name"])
    context = contextvars.copy_context()
    shared = phase(name)

    def work() -> None:
        with shared, phase(other), shared:
            count(name, 300)

    def everything() -> None:
        work()
        context.run(work)
        with pytest.raises(KeyError), phase(name):
            raise KeyError
        scope = phase(name)
        scope.__enter__()
        del scope
        current()

    everything()
    objects = (name, other, context, profiler, shared, type(shared), None, KeyError)
    gc.collect()
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(1000):
        everything()
    for _ in range(100_000 // 3):
        work()
    gc.collect()
    after = [sys.getrefcount(each) for each in objects]
    # None has a few users more or less at any time; immortal since 3.12.
    assert after[:6] == before[:6]
    assert abs(after[6] - before[6]) < 50
    assert abs(after[7] - before[7]) < 5


@real_memory
def test_memory_stays_flat(profiler: Profiler) -> None:
    def work(passes: int) -> None:
        for number in range(passes):
            with phase("a"), phase("b"):
                count("n", number)

    async def tasks(number: int) -> None:
        async def one() -> None:
            with phase("task"):
                await asyncio.sleep(0)

        for _ in range(number // 100):
            await asyncio.gather(*(one() for _ in range(100)))

    work(20_000)
    asyncio.run(tasks(3000))
    gc.collect()
    before, blocks = rss_bytes(), sys.getallocatedblocks()
    work(100_000)
    asyncio.run(tasks(10_000))
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 2000
    assert rss_bytes() - before < 4 << 20
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert used > 0


def test_objects_are_collected(profiler: Profiler) -> None:
    gc.collect()
    kind = type(phase("p"))
    held = [phase(f"{'x' * i}") for i in range(200)]
    for scope in held[::2]:
        contextvars.Context().run(scope.__enter__)  # not one below the other
    del scope
    held.clear()
    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is kind] == []
    assert sum(stats.abandoned for stats in profiler.merged_tree().values()) == 100


def test_scopes_cannot_be_made_or_extended() -> None:
    kind: Any = type(phase("p"))
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(TypeError):
        type("Sub", (kind,), {})


def test_errno_and_exceptions_are_left_alone(profiler: Profiler, tmp_path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    libc.open(b"/nonexistent", 0)
    assert ctypes.get_errno() == 2
    with phase("a", io=True), phase("b", io="thread"):
        count("n")
    profiler.snapshot()
    assert ctypes.get_errno() == 2
    assert worker(profiler)["health"]["write_failures"] == 0
