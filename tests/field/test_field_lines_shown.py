"""The cases of FIELD.md that concern what a user of the line profiler runs and reads: kinds, sources, units, files."""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import linecache
import pickle
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from lptest import run_process

from lineprofiler import LineProfiler


def report(profiler: LineProfiler, **options: Any) -> str:
    stream = io.StringIO()
    profiler.print_stats(stream=stream, **options)
    return stream.getvalue()


def test_l13_what_is_decorated_keeps_its_kind() -> None:
    p = LineProfiler()

    class A:
        @p
        @staticmethod
        def s(x: int) -> int:
            return x

        @staticmethod
        @p
        def t(x: int) -> int:
            return x

        @p
        @classmethod
        def k(cls) -> str:
            return cls.__name__

        @p
        @functools.cached_property
        def c(self) -> int:
            return 7

        @p
        @property
        def q(self) -> int:
            return 8

    @p
    async def acoro() -> int:
        return 1

    @p
    async def agen() -> Any:
        yield 1

    try:
        assert (A.s(3), A.t(4), A.k(), A().c, A().q) == (3, 4, "A", 7, 8)
        kinds = [type(A.__dict__[name]) for name in "stkcq"]
        assert kinds == [staticmethod, staticmethod, classmethod, functools.cached_property, property]
        assert inspect.iscoroutinefunction(acoro)
        assert inspect.isasyncgenfunction(agen)
        assert asyncio.run(acoro()) == 1
        assert p(report) is report
        assert pickle.loads(pickle.dumps(report)) is report
        assert list(inspect.signature(report).parameters) == ["profiler", "options"]
    finally:
        p.disable()
    names = {key.function_name.rpartition(".")[2] for key, stats in p.get_stats().items() if stats.line_stats}
    assert names >= {"s", "t", "k", "c", "q", "acoro"}


def test_l20_no_way_to_measure_is_one_warning_and_the_program_runs_on() -> None:
    if sys.version_info < (3, 12):
        pytest.skip("sys.monitoring is new in 3.12; before, nothing can be taken")
    taken = [i for i in range(6) if sys.monitoring.get_tool(i) is None]
    for i in taken:
        sys.monitoring.use_tool_id(i, f"other{i}")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with LineProfiler():
                x = 1
        assert x == 1
        assert len(caught) == 1
        assert "tool id" in str(caught[0].message)
    finally:
        for i in taken:
            sys.monitoring.free_tool_id(i)


def test_l22_objects_without_python_code_warn() -> None:
    p = LineProfiler()
    for each in (len, functools.partial(max, 1), int.__add__):
        with pytest.warns(RuntimeWarning, match="no Python code"):
            assert p(each) is each


R1 = """
import multiprocessing as mp, sys
def w(x): return x + 1
if __name__ == "__main__":
    mp.set_start_method(sys.argv[1])
    with mp.Pool(2) as pool:
        print(pool.map(w, [1, 2]))
    print(sys.argv, __file__, __spec__ and __spec__.name, sys.path[0], sys.modules["__main__"].w is w)
    raise SystemExit(3)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("module", [False, True])
def test_r1_run_is_like_python(tmp_path: Path, method: str, module: bool) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "s.py").write_text(R1)
    target = ["-m", "pkg.s"] if module else ["pkg/s.py"]
    alone = run_process([sys.executable, *target, method], cwd=tmp_path).expect(3)
    ours = run_process([sys.executable, "-m", "lineprofiler", "run", *target, method], cwd=tmp_path).expect(3)
    assert ours.stdout.startswith(alone.stdout)
    assert "Traceback" not in ours.stderr


def test_r2_the_text_of_a_cell_is_kept() -> None:
    name = "/nowhere/ipykernel_1/42.py"
    found = []
    for value in ("1", "2"):
        text = f"def f():\n    return {value}\n"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        space: dict[str, Any] = {}
        exec(compile(text, name, "exec"), space)
        p = LineProfiler(space["f"])
        with p:
            space["f"]()
        linecache.clearcache()
        found.append(report(p))
    assert "return 1" in found[0]
    assert "return 2" in found[1], "a cell that is defined anew is another one"


def test_r5_units_keep_their_digits() -> None:
    def f() -> None:
        time.sleep(0.0123)

    def never() -> None:
        pass

    p = LineProfiler(f, never)
    with p:
        f()
    (stats,) = [stats for key, stats in p.get_stats().items() if key.function_name.endswith(".f")]
    seconds = stats.total_time
    assert seconds >= 0.0123 - 20e-6
    shown = report(p, output_unit=1.0)
    assert "Timer unit: 1 s" in shown
    assert any(float(word) == pytest.approx(seconds, rel=0.005) for word in shown.split() if word.startswith("0.0"))
    report(p, output_unit=1e-9)
    report(p)  # no division by zero where nothing was hit


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x04cos\nsystem\n(S'echo hacked'\ntR."])
def test_r6_a_file_that_is_none_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.lprof").write_bytes(content)
    done = run_process([sys.executable, "-m", "lineprofiler", "lines", "x.lprof"], cwd=tmp_path).expect(2)
    assert "Traceback" not in done.stderr
    assert "hacked" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "x.lprof" in done.stderr


def test_r7_source_cannot_end_the_page(tmp_path: Path) -> None:
    def f() -> int:
        return 1  # </script><script>document.title='x'</script> <!-- "&'

    def g() -> int:
        return 1  # nothing

    pages = []
    for function in (f, g):
        p = LineProfiler(function)
        with p:
            function()
        p.to_html(tmp_path / "page.html")
        pages.append((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "<script>document.title" not in pages[0]
    assert [pages[0].count(tag) for tag in ("<script", "</script", "<!--")] == [
        pages[1].count(tag) for tag in ("<script", "</script", "<!--")
    ]
