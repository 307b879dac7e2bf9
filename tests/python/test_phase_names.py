"""Any str is a name: hostile, long, built from data, without end."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lptest import environment, memory_given_back, run_python
from phases import calls, check_sane, health, real_memory, recording, rss_bytes, stats_of

from lineprofiler import accounting
from lineprofiler.accounting import Profiler

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
    """Cut at 1 KiB, with a hash: two that differ only at the end stay two, and each is the same in every process."""
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
def test_long_names_are_not_kept(run_dir: Path) -> None:
    """200 names of 10^6 characters: the texts must be free again. Kept, they are 800 MB (text and UTF-8).

    In a process of its own whose large blocks come from the kernel and go back to it: an allocator may keep tens of MB
    of what was freed."""
    program = """
        import os, sys
        from lineprofiler.accounting import Profiler, phase

        def rss():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

        profiler = Profiler(sys.argv[1], install=True, snapshot_interval_s=None, sample_interval_s=None)
        for number in range(20):
            with phase(chr(1200 + number) * 10**6):
                pass
        before = rss()
        for number in range(200):
            with phase(chr(200 + number) * 10**6):
                pass
        print(rss() - before)
    """
    done = run_python(
        program,
        run_dir,
        env=environment(MALLOC_MMAP_THRESHOLD_="65536", MIMALLOC_PURGE_DELAY="0", **memory_given_back()),
    ).expect()
    assert int(done.stdout) < 4 << 20  # 200 paths with names of 1 KB, each kept in a few forms


def test_a_long_name_is_nobodys(profiler: Profiler) -> None:
    """Neither by the table of names nor by a scope that waits to be used again, of which there are up to 64."""
    for kind in ("a", "\xe4", "\u0101", "\U0001f525"):
        name = "".join([kind, "b" * 1000])
        before = sys.getrefcount(name)
        with phase(name):
            count(name)
        with phase(name, io=True):
            pass
        assert sys.getrefcount(name) == before, ascii(kind)


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
            with pytest.raises(ValueError, match=r"strict_names.*step#"), phase(wrong):
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
