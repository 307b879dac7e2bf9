"""What phase() and count() accept and mean: names, folding, sampling, counters, sync, bytes, and being off."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import os
import resource
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lptest import run_python
from phases import MS, calls, check_sane, health, real_memory, recording, rss_bytes, spin, stats_of, worker

from lineprofiler import accounting
from lineprofiler.accounting import PhaseStats, Profiler

phase, count, current = accounting.phase, accounting.count, accounting.current


@pytest.fixture
def profiler(run_dir: Path) -> Iterator[Profiler]:
    with recording(run_dir) as made:
        yield made
        check_sane(made)


# --- names ---

HOSTILE = [
    "",
    "\0",
    "a\0b",
    "\ud800",
    "\udcff\udc80",
    "\U0001f40d and \u00e9",
    "</script><script>alert(1)</script>",
    "line\nbreak\r\ttab",
    "slash/in/name",
    "/",
    "..",
    "\u202e\u2066reversed",
    "\u2028\u2029",
    "'\"\\",
    "%s %n {0}",
    "x" * 1024,
]


def test_hostile_names(run_dir: Path, profiler: Profiler) -> None:
    for name in HOSTILE:
        with phase(name):
            assert current() == name
            count(name, 2)
            with phase("inside"):
                assert current() == f"{name}/inside"
    assert {path: stats.calls for path, stats in profiler.merged_tree().items() if path} == {
        **{(name,): 1 for name in HOSTILE},
        **{(name, "inside"): 1 for name in HOSTILE},
    }
    for name in HOSTILE:
        assert profiler.merged_tree()[(name,)].counters == {name: 2}
    profiler.close()
    run = accounting.merge_run(run_dir)
    assert {path: stats.calls for path, stats in run.tree.items() if path} == {
        **{(name,): 1 for name in HOSTILE},
        **{(name, "inside"): 1 for name in HOSTILE},
    }
    assert {name for name in HOSTILE if run.tree[(name,)].counters == {name: 2}} == set(HOSTILE)
    paths = [tuple(each["path"]) for each in accounting.report_as_dict(run)["roles"][0]["phases"]]
    assert set(paths) == {(name,) for name in HOSTILE} | {(name, "inside") for name in HOSTILE}
    accounting.render(run)


def test_long_names_keep_head_and_identity(profiler: Profiler) -> None:
    """Cut at 1 KiB plus a hash: two that differ only at the end stay two, and each has the same name in every process."""
    first, second, third = "n" * 10**6 + "1", "n" * 10**6 + "2", "\u00e9" * 600
    for name in (first, second, third):
        for _ in range(3):
            with phase(name):
                pass
    names = [path[0] for path in profiler.merged_tree() if path]
    assert len(set(names)) == 3
    assert all(len(name.encode()) <= 1024 for name in names)
    assert all(stats.calls == 3 for path, stats in profiler.merged_tree().items() if path)
    assert [name[:900] for name in names[:2]] == ["n" * 900] * 2 or names[0][:400] == "\u00e9" * 400
    assert set("".join(names).replace("~", "")) <= set("n\u00e90123456789abcdef")


@real_memory
def test_long_names_are_not_kept(profiler: Profiler) -> None:
    """200 names of 1 MB each: the texts must be free again."""
    for number in range(20):
        with phase(chr(65 + number) * 10**6):
            pass
    before = rss_bytes()
    for number in range(200):
        with phase(chr(200 + number) * 10**6):
            pass
    assert rss_bytes() - before < 40 << 20


def test_current_of_long_paths_is_whole(profiler: Profiler) -> None:
    names = [chr(97 + i) * 500 for i in range(20)]
    scopes = [phase(name) for name in names]
    for scope in scopes:
        scope.__enter__()
    assert current() == "/".join(names)
    for scope in reversed(scopes):
        scope.__exit__(None, None, None)


def test_subclass_of_str(profiler: Profiler) -> None:
    class Name(str):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("nobody's business")

        def __hash__(self) -> int:
            raise AssertionError("nobody's business")

        def __str__(self) -> str:
            return "other"

    for _ in range(3):
        with phase(Name("name")):
            count(Name("n"), 1)
    assert calls(profiler) == {"name": 3}
    assert stats_of(profiler, "name").counters == {"n": 3}
    assert all(type(part) is str for path in profiler.merged_tree() for part in path)


def test_equal_names_of_different_identity(profiler: Profiler) -> None:
    text = "some name"
    for number in range(1000):
        other = "".join(list(text))
        assert other is not text
        with phase(other), phase(text):
            count("".join(["c", " "]), number)
    assert calls(profiler) == {"some name": 1000, "some name/some name": 1000}
    assert stats_of(profiler, "some name/some name").counters == {"c ": sum(range(1000))}


def test_address_of_a_dead_name_means_nothing(profiler: Profiler) -> None:
    """Names built anew each time live at the same few addresses."""
    expected: dict[str, int] = {}
    for number in range(20_000):
        name = f"{'abcdefghij'[number % 10]} {'klmnopqrst'[number // 10 % 10]}"
        expected[name] = expected.get(name, 0) + 1
        with phase(name):
            count(name)
    assert calls(profiler) == expected
    for name, number in expected.items():
        assert stats_of(profiler, name).counters == {name: number}


@pytest.mark.parametrize("wrong", [None, 3, b"bytes", 1.5, ["list"], str])
def test_wrong_names(profiler: Profiler, wrong: Any) -> None:
    with pytest.raises(TypeError, match="name must be str"):
        phase(wrong)
    with pytest.raises(TypeError, match="name must be str"):
        count(wrong)
    assert calls(profiler) == {}


def test_wrong_arguments(profiler: Profiler) -> None:
    for wrong in (lambda: phase(), lambda: phase("a", nope=1), lambda: phase("a", name="b"), lambda: phase(*"abcdef")):  # type: ignore[call-arg, call-overload, misc, arg-type]
        with pytest.raises(TypeError):
            wrong()
    for wrong in (lambda: count(), lambda: count("a", 1, 2), lambda: count("a", m=1), lambda: count("a", 1, n=2)):  # type: ignore[call-arg, call-overload, misc]
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="io"):
        phase("a", io="process")  # type: ignore[arg-type]
    with phase(name="named", io=False, sync=False, sample=1.0, async_work=False):
        count(name="n", n=4)
    assert stats_of(profiler, "named").counters == {"n": 4}
    with pytest.raises(TypeError):
        phase("a")(1, 2)  # type: ignore[call-arg]


# --- limits ---


def test_shape_warning_once(profiler: Profiler) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for number in range(300):
            with phase(f"step {number} of 7"):
                pass
    assert [str(each.message).split(".")[0] for each in seen] == [
        "128 distinct phase names share the shape 'step # of #' (most recently 'step 127 of 7')"
    ]
    assert seen[0].category is RuntimeWarning
    assert seen[0].filename == __file__
    assert len(calls(profiler)) == 300


def test_shape_warning_as_an_error_does_not_end_the_phase(profiler: Profiler) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(130):
            with phase(f"step{number}"):
                pass
    assert len(calls(profiler)) == 130


def test_names_that_differ_otherwise_do_not_warn(profiler: Profiler) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(200):
            with phase("".join(chr(97 + int(digit)) for digit in str(number))):
                count(f"counter{number}")


def test_strict_names(run_dir: Path) -> None:
    with recording(run_dir, strict_names=True) as profiler:
        for _ in range(3):
            with phase("step1"), phase("fixed"):
                pass
        for wrong in ("step2", "step33"):
            with pytest.raises(ValueError, match="strict_names.*step#"), phase(wrong):
                raise AssertionError("not reached")
        with phase("step1"):
            assert current() == "step1"
        assert current() == ""
        assert calls(profiler) == {"step1": 4, "step1/fixed": 3}


def test_paths_fold_at_4096(run_dir: Path) -> None:
    with recording(run_dir) as profiler:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for number in range(4999):
                with phase("top"), phase("name" + "abcdefghij"[number % 10] + "x" * (number // 10)):
                    count("n", 1)
                    with phase("leaf"):
                        count("n", 1)
        tree = profiler.merged_tree()
        assert len(tree) - 1 == 4096
        fold = [str(each.message) for each in seen if "fold" in str(each.message)]
        assert len(fold) == 1
        # 'top' and 2 a pass: the last of the 4096 is the name of pass 2048, whose leaf is the first to fold.
        first = "top/name" + "abcdefghij"[2047 % 10] + "x" * 204 + "/leaf"
        assert f"4096 phase paths exist already: {first!r}" in fold[0]
        assert tree[("top",)].calls == 4999
        assert sum(s.calls for path, s in tree.items() if len(path) == 2) == 2048
        assert sum(s.calls for path, s in tree.items() if len(path) == 3) == 2047
        # Counted once each, in the nearest phase that is left.
        assert sum(s.counters.get("n", 0) for s in tree.values()) == 2 * 4999
        assert tree[("top",)].counters["n"] == 2 * (4999 - 2048)
        # Their time is their parent's own.
        assert tree[("top",)].self_ns > 0
        found = health(profiler)
        assert found["folded_paths"] == 4999 - 2048 + 1
        assert found["first_folded"] == first
        assert found.get("lost_entries", 0) == 0
        assert os.stat(profiler._segment_path).st_blocks * 512 <= 16 << 20
        with phase("top"):
            assert current() == "top"


@real_memory
def test_names_without_end_do_not_eat_the_memory(run_dir: Path) -> None:
    """Half a million names built from data: what is recorded elsewhere stays whole, and memory is bounded."""
    with recording(run_dir) as profiler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in range(20_000):
                with phase(f"request {number}"):
                    pass
            before, size = rss_bytes(), os.stat(profiler._segment_path).st_blocks
            for number in range(20_000, 500_000):
                with phase(f"request {number}"):
                    pass
        assert os.stat(profiler._segment_path).st_blocks == size, "a name that has no path needs no place"
        assert rss_bytes() - before < 24 << 20
        thread = threading.Thread(target=lambda: phase("request 7").__enter__())
        thread.start()
        thread.join()
        with phase("request 7"):
            count("new counter", 3)
        assert stats_of(profiler, "request 7").counters == {"new counter": 3}
        assert health(profiler).get("lost_entries", 0) == 0
        assert health(profiler)["folded_paths"] > 400_000


def test_depth_folds_at_32(profiler: Profiler) -> None:
    names = [chr(97 + i % 26) * (1 + i // 26) for i in range(40)]
    for _ in range(3):
        scopes = [phase(name) for name in names]
        for scope in scopes:
            scope.__enter__()
        count("n", 1)
        assert current() == "/".join(names[:32])
        for scope in reversed(scopes):
            scope.__exit__(None, None, None)
    assert calls(profiler) == {"/".join(names[:depth]): 3 for depth in range(1, 33)}
    assert stats_of(profiler, "/".join(names[:32])).counters == {"n": 3}
    found = health(profiler)
    assert found["folded_depth"] == 3 * 8
    assert found["first_folded"] == "/".join(names[:33])


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
    yield made


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
    assert 5 * MS - MS <= stats_of(profiler, "gpu").wall_ns
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


# --- io= ---

N = 4 << 20


def io_of(stats: PhaseStats) -> dict[str, int]:
    return {name[3:]: value for name, value in stats.counters.items() if name.startswith("io_")}


def test_io_that_moves_nothing(profiler: Profiler) -> None:
    """Our own reads of /proc are no bytes of the program, however the entries are nested."""
    for _ in range(50):
        with phase("empty", io=True), phase("inner", io=True):
            spin(MS // 10)
    for path in ("empty", "empty/inner"):
        assert io_of(stats_of(profiler, path)) == {}
        assert stats_of(profiler, path).io
    assert not stats_of(profiler, "empty").io_overlap


def test_io_is_exact(profiler: Profiler, tmp_path: Path) -> None:
    path = tmp_path / "data"
    block = os.urandom(1 << 16)
    with phase("write", io=True):
        with open(path, "wb", buffering=0) as file:
            for _ in range(N // len(block)):
                file.write(block)
            os.fsync(file.fileno())
    with phase("read warm", io=True):
        with open(path, "rb", buffering=0) as file:
            while file.read(len(block)):
                pass
    with phase("both", io=True):
        with phase("inner", io=True):
            with open(path, "rb", buffering=0) as file:
                file.read(1000)
        with open(path, "r+b", buffering=0) as file:
            file.write(b"x" * 300)
    written, read = io_of(stats_of(profiler, "write")), io_of(stats_of(profiler, "read warm"))
    assert written["write_chars"] == N
    assert read["read_chars"] == N
    assert "write_chars" not in read
    assert "read_chars" not in written
    # Block device: whole pages, and what the file system writes about the file. A tmpfs has none.
    assert written.get("write_bytes", 0) == 0 or N <= written["write_bytes"] <= N + (1 << 20)
    assert read.get("read_bytes", 0) == 0
    both, inner = io_of(stats_of(profiler, "both")), io_of(stats_of(profiler, "both/inner"))
    assert (inner["read_chars"], inner.get("write_chars", 0)) == (1000, 0)
    assert (both["read_chars"], both["write_chars"]) == (1000, 300)


def test_io_of_many_entries_has_their_range(profiler: Profiler) -> None:
    sink = os.open("/dev/null", os.O_WRONLY)
    for size in (10, 200, 3000):
        with phase("write", io=True):
            os.write(sink, b"x" * size)
    os.close(sink)
    stats = stats_of(profiler, "write")
    assert io_of(stats) == {"write_chars": 3210}
    assert (stats.counter_min["io_write_chars"], stats.counter_max["io_write_chars"]) == (10, 3000)
    assert stats.counter_calls["io_write_chars"] == 3


def write_in_thread(size: int, passes: int, pause: threading.Event | None = None) -> threading.Thread:
    def work() -> None:
        sink = os.open("/dev/null", os.O_WRONLY)
        for _ in range(passes):
            os.write(sink, b"x" * size)
        os.close(sink)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_io_of_the_process_and_of_the_thread(profiler: Profiler) -> None:
    sink = os.open("/dev/null", os.O_WRONLY)
    with phase("process", io=True):
        write_in_thread(1000, 10).join()
        os.write(sink, b"x" * 7)
    with phase("thread", io="thread"):
        write_in_thread(1000, 10).join()
        os.write(sink, b"x" * 7)
    os.close(sink)
    assert io_of(stats_of(profiler, "process"))["write_chars"] == 10_007
    assert io_of(stats_of(profiler, "thread")) == {"write_chars": 7}
    assert not stats_of(profiler, "thread").io_overlap


def test_io_of_overlapping_threads_is_marked(profiler: Profiler) -> None:
    inside = threading.Barrier(2)

    def work(name: str, **options: Any) -> None:
        with phase(name, **options):
            inside.wait()
            inside.wait()

    def both(*names: str, **options: Any) -> None:
        threads = [threading.Thread(target=work, args=(name,), kwargs=options) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    both("a", "b", io=True)
    assert stats_of(profiler, "a").io_overlap
    assert stats_of(profiler, "b").io_overlap
    both("c", "d", io="thread")
    assert not stats_of(profiler, "c").io_overlap
    for _ in range(3):
        with phase("alone", io=True), phase("inner", io=True):
            pass
    assert not stats_of(profiler, "alone").io_overlap
    assert not stats_of(profiler, "alone/inner").io_overlap


def test_own_snapshots_are_no_bytes_of_the_program(profiler: Profiler) -> None:
    """Snapshots that fall into the phase, by this thread and by another, while the program writes too."""
    sink = os.open("/dev/null", os.O_WRONLY)
    with phase("io", io=True):
        for _ in range(5):
            profiler.snapshot()
            os.write(sink, b"x" * 100)
    other = threading.Thread(target=lambda: [profiler.snapshot() for _ in range(20)])
    with phase("beside", io=True):
        other.start()
        for _ in range(2000):
            os.write(sink, b"x" * 100)
        other.join()
    with phase("thread", io="thread"):
        profiler.snapshot()
        os.write(sink, b"x" * 100)
    os.close(sink)
    assert io_of(stats_of(profiler, "io")) == {"write_chars": 500}
    assert io_of(stats_of(profiler, "beside")) == {"write_chars": 200_000}
    assert io_of(stats_of(profiler, "thread")) == {"write_chars": 100}


def test_io_counters_leave_out_our_own(profiler: Profiler) -> None:
    before = profiler.io_counters()
    assert before.available
    for _ in range(5):
        profiler.snapshot()
        with phase("io", io=True):
            pass
    after = profiler.io_counters()
    assert after.write_chars - before.write_chars == 0
    assert after.read_chars - before.read_chars == 0
    sink = os.open("/dev/null", os.O_WRONLY)
    os.write(sink, b"x" * 123)
    os.close(sink)
    assert profiler.io_counters().write_chars - before.write_chars == 123


def test_io_in_a_forked_child(run_dir: Path) -> None:
    """The kernel's counters of a child start at 0; so do ours."""
    with recording(run_dir) as profiler:
        for _ in range(20):
            profiler.snapshot()
        with phase("parent", io=True):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    sink = os.open("/dev/null", os.O_WRONLY)
                    with phase("child", io=True):
                        os.write(sink, b"x" * 50)
                    own = profiler.io_counters()
                    good = io_of(stats_of(profiler, "child")) == {"write_chars": 50}
                    good = good and 50 <= own.write_chars < 1 << 20 and own.read_chars < 1 << 20
                    status = 0 if good else 3
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_descriptors_closed_by_the_program(run_dir: Path) -> None:
    """A daemon's closerange, and the numbers used again for the program's own files: they are never closed or read."""
    run_python(
        """
        import os, resource, sys, threading
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))  # ours would be above 9999 otherwise
        from lineprofiler import accounting
        from lineprofiler.accounting import phase

        def io_of(name):
            return {k: v for k, v in profiler.merged_tree()[(name,)].counters.items()}

        profiler = accounting.Profiler(sys.argv[1], install=True, snapshot_interval_s=None)
        def use(name):
            out = os.open("/dev/null", os.O_WRONLY)
            with phase(name, io=True):
                os.write(out, b"x" * 10)
                os.sched_yield()
            os.close(out)
            assert io_of(name) == {"io_write_chars": 10}, io_of(name)
        use("before")
        ours = [int(n) for n in os.listdir("/proc/self/fd") if int(n) > 2]
        assert [n for n in ours if n > 700], ours
        os.closerange(3, 9999)
        use("after closerange")
        # Closed again, and the very numbers given to files of the program.
        ours = [int(n) for n in os.listdir("/proc/self/fd") if int(n) > 700]
        os.closerange(3, 9999)
        mine = os.open(sys.argv[1] + "/mine", os.O_RDWR | os.O_CREAT)
        os.write(mine, b"1 2 3 4 5 6 7 8 9\\n" * 100)
        for number in ours:
            os.dup2(mine, number)
        use("reused")
        thread = threading.Thread(target=use, args=("thread",))
        thread.start()
        thread.join()
        use("again")
        profiler.close()
        for number in ours:
            assert os.fstat(number).st_ino == os.fstat(mine).st_ino
        left = [int(n) for n in os.listdir("/proc/self/fd") if int(n) > 700]
        left = [n for n in left if n not in ours and os.path.exists(f"/proc/self/fd/{n}")]
        assert left == [], left
        """,
        run_dir,
    ).expect()


def test_descriptors_are_gone_after_close(run_dir: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with recording(run_dir):
        with phase("io", io=True), phase("inner", io="thread"):
            pass
        threads = [threading.Thread(target=lambda: phase("t", io=True).__enter__()) for _ in range(5)]
        for thread in threads:
            thread.start()
            thread.join()
    assert set(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_left_to_have(run_dir: Path) -> None:
    """At the limit of open files the bytes cannot be read: counted, and nothing else changes."""
    run_python(
        """
        import os, resource, sys
        from lineprofiler import accounting
        from lineprofiler.accounting import phase
        profiler = accounting.Profiler(sys.argv[1], install=True, snapshot_interval_s=None)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        with phase("io", io=True):
            pass
        for fd in held:
            os.close(fd)
        stats = profiler.merged_tree()[("io",)]
        assert (stats.calls, stats.io_missing, stats.counters) == (1, 1, {}), stats
        with phase("io", io=True):
            pass
        stats = profiler.merged_tree()[("io",)]
        assert (stats.calls, stats.io_missing) == (2, 1), stats
        profiler.close()
        """,
        run_dir,
    ).expect()


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
    before = sys.getrefcount(name)
    for _ in range(100):
        with phase(name, io=True, sync=True, sample=0.5, async_work=True) as got, phase(name):
            assert got is None
            assert count("n", 3) is None  # type: ignore[func-returns-value]
            assert current() == ""
    with pytest.raises(KeyError), phase("x"):
        raise KeyError
    after = sys.getrefcount(name)
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
    with pytest.raises(ValueError, match="sample"):
        phase("a", sample=0)


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
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    libc.open(b"/nonexistent", 0)
    assert ctypes.get_errno() == 2
    with phase("a", io=True), phase("b", io="thread"):
        count("n")
    profiler.snapshot()
    assert ctypes.get_errno() == 2
    assert worker(profiler)["health"]["write_failures"] == 0
