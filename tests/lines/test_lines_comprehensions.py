"""Comprehensions are lines of their function on every version of Python; before 3.12 they are code of their own."""

from __future__ import annotations

import io
import time
from pathlib import Path

from linehits import hits
from lptest import lineprofiler

from lineprofiler import LineProfiler
from lineprofiler.lines import comprehensions
from lineprofiler.lines.model import Function, FunctionKey, Line, Profile
from lineprofiler.lines.source import from_text

FOLDER = Path(__file__).parent


def short(n: int) -> int:
    found = [time.sleep(0.001) for _ in range(n)]
    kinds = {i: {i + j for j in range(i)} for i in range(n)}
    return len(found) + len(kinds)


def long(n: int) -> list[None]:
    return [
        time.sleep(0.001)
        for _ in range(n)
    ]  # fmt: skip


def test_one_row_a_line_and_no_function_of_their_own() -> None:
    with LineProfiler(FOLDER) as profiler:
        begin = time.perf_counter()
        assert short(10) == 20
        elapsed = time.perf_counter() - begin
    stats = {key.function_name: value for key, value in profiler.get_stats("line").items()}
    assert not [name for name in stats if "comp>" in name]
    assert hits(profiler, short) == {1: 1, 2: 1, 3: 1}
    line = stats["short"].line_stats[short.__code__.co_firstlineno + 1]
    # 10 sleeps of a millisecond, once; what is subtracted for the profiler is far below half of one.
    assert 0.0095 < line.self_time <= line.total_time <= stats["short"].total_time < elapsed
    out = io.StringIO()
    profiler.print_global_top_stats(top_n=50, stream=out)
    assert out.getvalue().count("found = [time.sleep(0.001)") == 1
    out = io.StringIO()
    profiler.print_lines(out)
    assert out.getvalue().count("found = [time.sleep(0.001)") == 2  # among the hottest, and in its function


def test_lines_of_a_long_one_have_their_own_time() -> None:
    with LineProfiler(FOLDER) as profiler:
        assert len(long(30)) == 30
    stats = {key.function_name: value for key, value in profiler.get_stats("line").items()}
    assert not [name for name in stats if "comp>" in name]
    first = long.__code__.co_firstlineno
    lines = stats["long"].line_stats
    assert lines[first + 2].total_time > 0.0295
    assert lines[first + 1].total_time < 0.0295  # the line that it begins on, which called it before 3.12
    assert lines[first + 2].hits == 30
    # Each moment is of one line: a hundredth for what is subtracted of lines and of the function apart.
    assert sum(line.total_time for line in lines.values()) <= stats["long"].total_time * 1.01


def test_regions_and_functions_inside_have_them_as_well() -> None:
    profiler = LineProfiler()
    profiler.add_function(short, nested=True)
    with profiler, profiler.region("all"):
        short(3)
    names = [key.function_name for key in profiler.region_stats()["all"]]
    assert names == ["short"]
    assert [key.function_name for key in profiler.get_stats()] == ["short"]


def test_of_a_process_that_was_killed(tmp_path: Path) -> None:
    """Its figures have names and places alone, on 3.10 plain names."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "program.py").write_text(
        """\
import os
class A:
    kept = [i for i in range(3)]
    def method(self):
        return [i for i in range(5)]
def main():
    return [[j for j in A().method()] for i in range(4)]
print(main()[0])
os._exit(3)
"""
    )
    lineprofiler("run", "-q", "-o", "out.lprof", "program.py", cwd=tmp_path).expect(3)
    text = lineprofiler("lines", "--format", "csv", "out.lprof", cwd=tmp_path).expect().stdout
    rows = [line.split(",")[1:5] for line in text.splitlines()[1:]]
    assert [row for row in rows if row[0] in ("main", "A.method")] == [
        ["A.method", "4", "5", "4"],
        ["main", "6", "7", "1"],
    ]
    assert "comp>" not in text


def test_figures_that_are_given() -> None:
    """What was time of the line that calls is time of the lines that ran; it is counted once."""
    source = from_text("def f():\n    return [\n        g(i)\n        for i in x\n    ]\n")
    f, part = FunctionKey("m.py", "f", 1), FunctionKey("m.py", "f.<locals>.<listcomp>", 2)
    whole = Function(f, 1, 1000, 50)
    whole.lines = {2: Line(1, 2, 1000, 40), 4: Line(1, 1, 10, 10)}
    inner = Function(part, 1, 960, 700)
    inner.lines = {2: Line(1, 1, 20, 20), 3: Line(5, 5, 800, 600), 4: Line(6, 6, 80, 80)}
    inner.threads = {"t": dict(inner.lines)}
    profile = Profile({f: whole, part: inner}, {"m.py": source})
    comprehensions.fold(profile, comprehensions.homes_by_place(profile))
    assert list(profile.functions) == [f]
    assert whole.lines == {2: Line(1, 3, 120, 60), 3: Line(5, 5, 800, 600), 4: Line(7, 7, 90, 90)}
    assert (whole.calls, whole.time_ns, whole.self_ns) == (1, 1000, 750)
    assert sum(line.self_ns for line in whole.lines.values()) == 750
    assert whole.threads["t"] == inner.lines

    alone = Profile({part: Function(part, lines={2: Line(1, 1, 5, 5)})}, {"m.py": source})
    comprehensions.fold(alone, comprehensions.homes_by_place(alone))
    assert list(alone.functions) == [part]  # its function was not profiled
