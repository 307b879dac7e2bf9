"""`LineProfiler` as programs use it: what it profiles, what it prints, what it leaves alone."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from linehits import hits
from lptest import environment, run_python

import lineprofiler
from lineprofiler import FunctionStats, LineProfiler, LineStats, load_stats, start_profiling, stop_profiling
from lineprofiler.config import ProfilerConfig
from lineprofiler.lines.engine import Known, figures
from lineprofiler.lines.project import is_worker


def work(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


def helper() -> int:
    return work(3)


FIRST = work.__code__.co_firstlineno


def test_names_of_the_package() -> None:
    assert {"FunctionStats", "LineProfiler", "LineStats", "start_profiling", "stop_profiling"} <= set(
        lineprofiler.__all__
    )
    space: dict[str, Any] = {}
    exec("from lineprofiler import *", space)
    assert space["LineProfiler"] is LineProfiler
    assert set(lineprofiler.__all__) <= set(dir(lineprofiler))


def test_chosen_functions_only() -> None:
    profiler = LineProfiler(work)
    with profiler:
        helper()
    assert hits(profiler, work) == {1: 1, 2: 4, 3: 3, 4: 1}
    assert [key.function_name for key in profiler.get_stats()] == ["work"]
    assert profiler.functions == [work]


def test_added_functions_and_marks() -> None:
    profiler = LineProfiler()
    profiler.add_function(work)
    assert profiler.add_callable(helper) == 1
    assert profiler.add_callable(helper) == 0
    assert profiler.runcall(helper) == 3
    assert hits(profiler, helper) == {1: 1}
    assert hits(profiler, work)[3] == 3


def test_a_decorated_function_is_the_same_object_and_profiled_at_once() -> None:
    def square(x: int) -> int:
        return x * x

    profiler = LineProfiler()
    assert profiler(square) is square
    assert square(3) == 9
    assert hits(profiler, square) == {1: 1}
    profiler.disable()
    square(4)
    assert hits(profiler, square) == {1: 1}


def test_entering_is_counted() -> None:
    profiler = LineProfiler(work)
    with profiler:
        with profiler:
            work(1)
        assert profiler.enable_count == 1
        work(1)
    work(1)
    assert profiler.enable_count == 0
    assert hits(profiler, work)[4] == 2
    profiler.disable_by_count()
    assert profiler.enable_count == 0
    profiler.enable()
    profiler.enable()
    assert profiler.enable_count == 1
    profiler.disable()
    assert profiler.enable_count == 0


def test_run_runctx_runcall() -> None:
    profiler = LineProfiler(work)
    space = {"work": work}
    assert profiler.runctx("result = work(4)", space, space) is profiler
    assert space["result"] == 6
    with pytest.raises(ZeroDivisionError):
        profiler.runcall(lambda: 1 / 0)
    assert profiler.enable_count == 0
    vars(sys.modules["__main__"])["work_for_run"] = work
    try:
        assert profiler.run("work_for_run(2)") is profiler
    finally:
        del vars(sys.modules["__main__"])["work_for_run"]
    assert hits(profiler, work)[3] == 6


def test_stats_are_dataclasses_in_seconds_sorted_by_time() -> None:
    profiler = LineProfiler(work, helper)
    profiler.runcall(helper)
    stats = profiler.get_stats()
    assert [key.function_name for key in stats] == ["helper", "work"]
    found = stats[next(key for key in stats if key.function_name == "work")]
    assert isinstance(found, FunctionStats)
    assert found.first_line == FIRST
    assert found.source_lines[FIRST].startswith("def work")
    assert found.calls == 1
    line = found.line_stats[FIRST + 3]
    assert isinstance(line, LineStats)
    assert (line.line_number, line.hits, line.visits) == (FIRST + 3, 3, 3)
    assert line.average_time == pytest.approx(line.total_time / 3)
    times = [each.total_time for each in found.line_stats.values()]
    assert times == sorted(times, reverse=True)
    assert LineStats(1).average_time == 0.0
    by_line = profiler.get_stats("line")[found_key := next(iter(stats))].line_stats
    assert (found_key.function_name, next(iter(by_line))) == ("helper", helper.__code__.co_firstlineno + 1)
    with pytest.raises(ValueError, match="sort_by"):
        profiler.get_stats("name")


def test_self_and_inclusive_time() -> None:
    def child() -> None:
        time.sleep(0.02)

    def parent() -> None:
        child()

    profiler = LineProfiler(child, parent)
    profiler.runcall(parent)
    stats = {key.function_name.split(".")[-1]: value for key, value in profiler.get_stats().items()}
    [line] = stats["parent"].line_stats.values()
    assert line.total_time >= 0.02
    # The call itself: no sleeping in it. 20 ms away from the bound, on a machine that is busy.
    assert line.self_time < 0.015
    assert stats["child"].self_time >= 0.02
    assert stats["parent"].total_time >= stats["child"].total_time


def test_live_while_it_runs() -> None:
    profiler = LineProfiler(work)
    with profiler:
        work(5)
        assert hits(profiler, work)[3] == 5
        work(5)
    assert hits(profiler, work)[3] == 10


def test_clear_and_reset() -> None:
    profiler = LineProfiler(work)
    profiler.runcall(work, 5)
    profiler.clear()
    assert hits(profiler, work) == {}
    profiler.runcall(work, 2)
    assert hits(profiler, work)[3] == 2
    profiler.reset()
    assert hits(profiler, work) == {}


def test_print_stats_takes_both_sets_of_keywords() -> None:
    profiler = LineProfiler(work)
    profiler.runcall(work, 5)

    def text(*args: Any, **options: Any) -> str:
        out = io.StringIO()
        profiler.print_stats(*args, **options, stream=out)
        return out.getvalue()

    assert text().startswith("Timer unit: 1e-09 s\n")
    assert text(output_unit=1e-3).startswith("Timer unit: 0.001 s\n")
    assert text(sort_by="line").startswith("=" * 100)
    assert text(0.0, 2).count("\n") == 10
    out = io.StringIO()
    profiler.print_stats(out, 1e-6)
    assert out.getvalue().startswith("Timer unit: 1e-06 s\n")
    with pytest.raises(TypeError, match="belongs to one table"):
        text(sort_by="line", stripzeros=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sorted'"):
        text(sorted=True)
    with pytest.raises(TypeError, match="twice"):
        profiler.print_stats(0.0, min_time_us=1.0)


def test_print_lines_has_every_column() -> None:
    profiler = LineProfiler(work)
    profiler.runcall(work, 5)
    out = io.StringIO()
    profiler.print_lines(out)
    assert "Hottest lines by self time" in out.getvalue()
    assert "total += i" in out.getvalue()


def test_objects_without_python_code_warn_once_and_go_on() -> None:
    for thing in (len, int.__add__, 3):
        with pytest.warns(RuntimeWarning, match="has no Python code and is not profiled") as caught:
            profiler = LineProfiler(thing)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert profiler.get_stats() == {}
        # It was told what to profile, so it does not take the whole project instead.
        profiler.runcall(work, 2)
        assert profiler.get_stats() == {}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"backend": "magic"}, "backend 'magic'"),
        ({"engine": "magic"}, "engine 'magic'"),
        ({"project_folder": "/no/such/folder"}, "'/no/such/folder' is no folder"),
    ],
)
def test_wrong_arguments_raise(options: dict[str, Any], error: str) -> None:
    with pytest.raises((ValueError, NotADirectoryError), match=error):
        LineProfiler(**options)


def test_functions_added_to_a_folder_are_profiled_besides(tmp_path: Path) -> None:
    """A folder that was given stays; without one, functions that are added before the start are all there is."""
    import bisect

    here = os.path.dirname(__file__)
    texts = {}
    for case in ("folder", "none", "later"):
        profiler = LineProfiler(here) if case == "folder" else LineProfiler()
        if case == "later":
            profiler.enable_by_count()
        profiler.add_function(textwrap.dedent)
        with profiler:
            textwrap.dedent("  a")
            work(3)
            bisect.bisect([1], 1)
        profiler.disable()
        out = io.StringIO()
        profiler.print_stats(stream=out)
        texts[case] = out.getvalue()
        names = {key.function_name for key in profiler.get_stats()}
        assert "dedent" in names
        assert ("work" in names) == (case != "none")
    assert texts["none"].startswith("Timer unit")
    assert texts["folder"].startswith("=====")
    assert texts["later"].startswith("=====")


def test_a_folder_and_functions_are_told_apart(tmp_path: Path) -> None:
    assert LineProfiler(tmp_path).functions == []
    assert LineProfiler(str(tmp_path), ProfilerConfig(True)).functions == []
    assert LineProfiler(None).functions == []
    with pytest.raises(TypeError):
        LineProfiler(tmp_path, work)
    with pytest.raises(TypeError):
        LineProfiler(tmp_path, project_folder=tmp_path)


def test_properties_of_the_engine() -> None:
    profiler = LineProfiler()
    assert profiler.backend == ("monitoring" if sys.version_info >= (3, 12) else "settrace")
    assert profiler.engine == "builtin"
    assert profiler.timer_unit == 1e-9


def test_an_engine_that_is_not_there_is_said() -> None:
    with pytest.warns(RuntimeWarning, match="engine 'line_profiler' is not used"):
        assert LineProfiler(engine="line_profiler").engine == "builtin"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LineProfiler(engine="builtin")


def test_regions_are_inclusive_and_nest() -> None:
    profiler = LineProfiler(work)
    with profiler.region("off"):
        pass
    with profiler:
        with profiler.region("outer"):
            work(2)
            with profiler.region("inner"):
                work(3)
        with profiler.region("outer"):
            pass
        work(100)
    assert profiler.region_entries() == {"outer": 2, "inner": 1}
    regions = profiler.region_stats()

    def looped(name: str) -> int:
        [function] = regions[name].values()
        return function.line_stats[FIRST + 3].hits

    assert looped("outer") == 5
    assert looped("inner") == 3
    out = io.StringIO()
    profiler.print_regions(stream=out)
    assert "Region: outer" in out.getvalue()
    assert "2 entries" in out.getvalue()


def test_regions_of_threads_add_up_by_name() -> None:
    """Each thread has its own, in its own order; of one name on every level."""
    profiler = LineProfiler(work)
    orders = (("a", "b", "c"), ("c", "a"), ("b",))

    def nested(names: tuple[str, ...]) -> None:
        for name in names:
            profiler.region(name).__enter__()
            work(10)
        for name in reversed(names):
            profiler._made().region_leave(name)
        work(1)

    with profiler:
        for names in orders:
            thread = threading.Thread(target=nested, args=(names,))
            thread.start()
            thread.join()
    regions = profiler.region_stats()
    looped = {
        name: sum(f.line_stats[FIRST + 3].hits for f in stats.values()) for name, stats in sorted(regions.items())
    }
    # what runs in a region and in those within it: of the first thread a 30, b 20, c 10; of the second c 20, a 10
    assert looped == {"a": 40, "b": 30, "c": 30}
    assert profiler.region_entries() == {"a": 2, "b": 2, "c": 2}


def test_functions_that_are_first_called_while_figures_are_read() -> None:
    profiler = LineProfiler(work)
    with profiler:
        work(2)
        known = Known(profiler._made(), {}, profiler.book)
        profiler.add_function(helper)  # by another thread
        helper()
        found = figures(profiler._made(), known)
    assert [key.function_name for key in found.functions] == ["work"]
    assert {key.function_name for key in profiler.get_stats()} == {"work", "helper"}


def test_regions_of_tasks_end_in_any_order() -> None:
    profiler = LineProfiler(work)

    async def first(entered: asyncio.Event, left: asyncio.Event) -> None:
        with profiler.region("first"):
            await entered.wait()
        left.set()

    async def second(entered: asyncio.Event, left: asyncio.Event) -> None:
        with profiler.region("second"):
            entered.set()
            await left.wait()
            work(10)

    async def both() -> None:
        entered, left = asyncio.Event(), asyncio.Event()
        await asyncio.gather(first(entered, left), second(entered, left))

    with profiler:
        asyncio.run(both())
    assert profiler.region_entries() == {"first": 1, "second": 1}
    found = {
        name: [line.hits for f in stats.values() for line in f.line_stats.values()]
        for name, stats in profiler.region_stats().items()
    }
    assert found["first"] == []
    assert max(found["second"]) == 11


def test_region_ends_when_its_body_raises() -> None:
    profiler = LineProfiler(work)
    with profiler:
        with pytest.raises(KeyError), profiler.region("r"):
            raise KeyError
        work(4)
    assert profiler.region_entries() == {"r": 1}
    assert [s for s in profiler.region_stats()["r"].values() if any(n.hits for n in s.line_stats.values())] == []


def test_threads_add_up() -> None:
    profiler = LineProfiler(work)
    with profiler:
        together = threading.Barrier(4)

        def run() -> None:
            together.wait()
            work(1000)
            together.wait()

        threads = [threading.Thread(target=run, name=f"w{n}") for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert hits(profiler, work) == {1: 4, 2: 4 * 1001, 3: 4 * 1000, 4: 4}
    [function] = profiler.profile().visited()
    assert sorted(name.split(" ")[0] for name in function.threads) == ["w0", "w1", "w2", "w3"]


def test_two_profilers_on_one_function_are_both_right() -> None:
    first, second = LineProfiler(work), LineProfiler(work)
    with first:
        work(2)
        with second:
            work(3)
        work(4)
    assert hits(first, work)[3] == 9
    assert hits(second, work)[3] == 3


def test_start_and_stop(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert stop_profiling() is None
    off = start_profiling()
    assert stop_profiling() is None
    assert off.get_stats() == {}
    with monkeypatch.context() as environment:
        environment.setenv("LINEPROFILER_ENABLED", "no")
        start_profiling()
        assert stop_profiling() is None
        environment.setenv("LINEPROFILER_ENABLED", "1")
        running = start_profiling(Path(__file__).parent)
    with pytest.warns(RuntimeWarning, match="was started before"):
        assert start_profiling() is running
    work(2)
    assert stop_profiling() is running
    assert "Top 10 lines across all functions (sorted by time)" in capsys.readouterr().out
    assert hits(running, work)[3] == 2
    again = start_profiling(enabled=True)
    assert stop_profiling(print_stats=False) is again
    assert capsys.readouterr().out == ""


def test_no_output_where_the_process_has_none() -> None:
    done = run_python(
        """
        import sys
        from lineprofiler import LineProfiler
        def f():
            return 1
        profiler = LineProfiler(f)
        profiler.runcall(f)
        sys.stdout = None
        profiler.print_stats()
        profiler.print_lines()
        """
    ).expect()
    assert (done.stdout, done.stderr) == ("", "")


def test_global_profile_does_nothing_unless_asked(tmp_path: Path) -> None:
    program = """
    from lineprofiler import profile
    @profile
    def f():
        return 1
    f()
    print(f.__name__, profile.enabled)
    """
    done = run_python(program, cwd=tmp_path).expect()
    assert done.stdout == "f False\n"
    assert os.listdir(tmp_path) == []
    done = run_python(program, cwd=tmp_path, env=environment(LINE_PROFILE="1")).expect()
    assert done.stdout.startswith("f True\nTimer unit: 1e-09 s\n")
    names = sorted(os.listdir(tmp_path))
    assert names[:2] == ["profile_output.lprof", "profile_output.txt"]
    assert names[2].startswith("profile_output_2")
    assert len(names) == 3
    assert "return 1" in (tmp_path / "profile_output.txt").read_text()


def test_global_profile_by_argument_and_by_call(tmp_path: Path) -> None:
    program = """
    from lineprofiler import profile
    profile.enable(output_prefix="mine")
    @profile
    def f():
        return 1
    profile.disable()
    @profile
    def g():
        return 2
    f(); g()
    """
    run_python(program, cwd=tmp_path).expect()
    text = (tmp_path / "mine.txt").read_text()
    assert "Function: f " in text
    assert "Function: g " not in text
    done = run_python(
        "from lineprofiler import profile\n@profile\ndef f():\n    return 1\nf()\n", "--line-profile", cwd=tmp_path
    ).expect()
    assert "Wrote profile results to profile_output.lprof" in done.stdout


def test_global_profile_follows_the_settings_of_line_profiler(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        """\
[tool.line_profiler.setup]
environ_flags = ["LOOK"]
[tool.line_profiler.write]
output_prefix = "out"
text = false
timestamped_text = false
[tool.line_profiler.show]
details = true
"""
    )
    program = """
    from lineprofiler import profile
    @profile
    def f():
        return 1
    f()
    """
    assert run_python(program, cwd=tmp_path, env=environment(LINE_PROFILE="1")).expect().stdout == ""
    done = run_python(program, cwd=tmp_path, env=environment(LOOK="1")).expect()
    assert "return 1" in done.stdout
    assert "Wrote profile results to out.lprof\nTo view details run:\n" in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["out.lprof", "pyproject.toml"]


@pytest.mark.parametrize(
    ("text", "worker"),
    [
        ("from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)", True),
        ("from multiprocessing.forkserver import main; main(3, 5, [])", True),
        ("import sys; from multiprocessing.forkserver import main; main(3, 5, ['__main__'])", True),  # from 3.14 on
        ("from multiprocessing.resource_tracker import main;main(4)", True),
        ("from multiprocessing.pool import Pool; Pool(2).map(abs, [1])", False),
        ("import sys; print(1)", False),
    ],
)
def test_a_process_of_multiprocessing_is_known(monkeypatch: pytest.MonkeyPatch, text: str, worker: bool) -> None:
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-B", "-c", text, "program.py"])
    assert is_worker() is worker


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_that_are_started_leave_the_files_to_the_first(tmp_path: Path, method: str) -> None:
    program = f"""
    import multiprocessing
    from lineprofiler import profile
    @profile
    def f(n):
        return n
    if __name__ == "__main__":
        process = multiprocessing.get_context({method!r}).Process(target=f, args=(1,))
        process.start()
        process.join()
        for n in range(7):
            f(n)
    """
    done = run_python(program, cwd=tmp_path, env=environment(LINE_PROFILE="1")).expect()
    assert done.stdout.count("Wrote profile results") == 3
    [rows] = load_stats(tmp_path / "profile_output.lprof").timings.values()
    assert [hits for _, hits, _ in rows] == [7]


def test_no_warning_and_no_trace_left() -> None:
    before = sys.gettrace()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with LineProfiler(work):
            work(1)
    assert sys.gettrace() is before


def test_to_html(tmp_path: Path) -> None:
    profiler = LineProfiler(work)
    profiler.runcall(work, 3)
    profiler.to_html(tmp_path / "deep" / "page.html", title="a < b")
    text = (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert "<title>a &lt; b</title>" in text
