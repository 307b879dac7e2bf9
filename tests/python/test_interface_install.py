"""The installed profiler, closing, the lazy package, and what arrives with later versions."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
from lptest import run_python

import lineprofiler
from lineprofiler import accounting
from lineprofiler.accounting import PhaseTree, Profiler

QUIET: dict[str, Any] = {"snapshot_interval_s": None, "sample_interval_s": None}


def test_install_and_uninstall(tmp_path: Path) -> None:
    assert accounting.installed_profiler() is None
    first, second = Profiler(tmp_path / "a", install=True, **QUIET), Profiler(tmp_path / "b", **QUIET)
    assert accounting.installed_profiler() is first
    with pytest.warns(RuntimeWarning, match="newer takes over"):
        accounting.install_profiler(second)
    assert accounting.installed_profiler() is second
    accounting.uninstall_profiler(first)
    assert accounting.installed_profiler() is second, "only if it is that one"
    first.close()
    assert accounting.installed_profiler() is second
    accounting.uninstall_profiler()
    assert accounting.installed_profiler() is None
    accounting.install_profiler(second)
    second.close()
    assert accounting.installed_profiler() is None
    accounting.install_profiler(second)
    assert accounting.installed_profiler() is None, "a closed profiler is never resolvable"
    with pytest.raises(TypeError, match="Profiler"):
        accounting.install_profiler(None)  # type: ignore[arg-type]


def test_arguments_that_take_the_profiler_away(tmp_path: Path) -> None:
    """The installation alone holds the profiler, and ends in the middle of a call that uses it."""

    class Closes:
        def __bool__(self) -> bool:
            self.__index__()
            return False

        def __index__(self) -> int:
            installed = accounting.installed_profiler()
            assert installed is not None
            installed.close()
            died.append(weakref.ref(installed))
            return 1

    died: list[weakref.ref[Profiler]] = []
    for n, use in enumerate((lambda: accounting.count("n", Closes()), lambda: accounting.phase("p", io=Closes()))):  # type: ignore[arg-type]
        Profiler(tmp_path / str(n), install=True, **QUIET)
        left = use()
        gc.collect()
        assert [each() for each in died] == [None] * (n + 1)
    assert left is not None
    with left:
        assert accounting.current() == ""


def test_off_profiler_gives_way_without_a_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accounting.start(role="actor")
        with Profiler(tmp_path, install=True, **QUIET) as profiler:
            assert accounting.installed_profiler() is profiler


def test_installed_profiler_stays_alive(tmp_path: Path) -> None:
    Profiler(run_dir=tmp_path, role="actor", install=True, **QUIET)
    gc.collect()
    with accounting.phase("work"):
        assert accounting.current() == "work"
    installed = accounting.installed_profiler()
    assert installed is not None
    assert installed.merged_tree()[("work",)].calls == 1
    accounting.stop()
    accounting.stop()


def test_profiler_that_nobody_holds_dies(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path, **QUIET)
    alive = weakref.ref(profiler)
    with profiler.phase("a"):
        pass
    profiler.close()
    del profiler
    gc.collect()
    assert alive() is None


def test_closed_profiler(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path, **QUIET)
    with profiler.phase("before"):
        pass
    profiler.close()
    with profiler.phase("after"):
        profiler.count("n", 1)
    profiler.snapshot()
    profiler.close()
    assert not profiler.enabled
    tree = profiler.merged_tree()
    assert tree[("before",)].calls == 1, "merged_tree still answers"
    assert ("after",) not in tree
    assert "closed" in repr(profiler)


def test_context_manager_closes_and_passes_exceptions(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Profiler(tmp_path, **QUIET) as profiler:
        raise KeyError("mine")
    assert not profiler.enabled


def test_deltas_have_a_cursor(tmp_path: Path) -> None:
    with Profiler(tmp_path, **QUIET) as profiler:
        for _ in range(3):
            with profiler.phase("a"), profiler.phase("b"):
                profiler.count("n", 2)
        first = profiler.deltas()
        assert {path: stats.calls for path, stats in first.items()} == {("a",): 3, ("a", "b"): 3}
        assert first[("a", "b")].counters == {"n": 6}
        assert profiler.deltas() == {}
        with profiler.phase("a"):
            assert profiler.deltas() == {}, "an open phase has not ended in this interval"
        profiler.count("top", 5)
        second = profiler.deltas()
        assert {path: stats.calls for path, stats in second.items()} == {("a",): 1, (): 0}
        assert second[()].counters == {"top": 5}
        assert second[("a",)].hist.count == 1


def test_deltas_of_two_threads_at_once(tmp_path: Path) -> None:
    """The slower of two calls must not put its older tree in the place of the newer one: nothing is given twice."""
    read, done = threading.Event(), threading.Event()

    class Slow(Profiler):
        def merged_tree(self) -> PhaseTree:
            tree = super().merged_tree()
            if threading.current_thread() is slow:
                read.set()
                done.wait(0.3)  # the other call, where nothing holds it up
            return tree

    with Slow(tmp_path, **QUIET) as profiler:
        found = []
        slow = threading.Thread(target=lambda: found.append(profiler.deltas()))
        with profiler.phase("a"):
            pass
        slow.start()
        assert read.wait(30)
        with profiler.phase("a"):
            pass
        found.append(profiler.deltas())
        done.set()
        slow.join()
        found.append(profiler.deltas())
    assert sum(tree[("a",)].calls for tree in found if tree) == 2


def test_ctrl_c_while_own_cost_is_measured(tmp_path: Path) -> None:
    program = """
        import os, signal, sys
        from lineprofiler import accounting

        def at_compile(event, arguments):
            if event == "compile" and arguments[1] == "<lineprofiler own cost>" and not asked:
                asked.append(event)
                os.kill(os.getpid(), signal.SIGINT)

        asked = []
        sys.addaudithook(at_compile)
        for expected in (True, False):
            try:
                profiler = accounting.Profiler(sys.argv[1], snapshot_interval_s=None, sample_interval_s=None)
            except KeyboardInterrupt:
                assert expected
            else:
                assert not expected
        assert profiler._worker()["own_cost_ps"] > 0, "it is measured the next time"
        profiler.close()
        """
    run_python(program, tmp_path / "run").expect()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_own_cost_is_not_measured_under_a_monitor(tmp_path: Path) -> None:
    """Coverage and debuggers get events of our little program, and those would be what is measured."""
    program = """
        import sys
        from lineprofiler.accounting import Profiler

        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "test")
        for events, known in ((monitoring.events.LINE, False), (0, True)):
            monitoring.set_events(monitoring.COVERAGE_ID, events)
            with Profiler(sys.argv[1], snapshot_interval_s=None, sample_interval_s=None) as profiler:
                assert (profiler._worker()["own_cost_ps"] > 0) is known
        """
    run_python(program, tmp_path / "run").expect()


def test_nothing_installed_does_nothing() -> None:
    assert accounting.current() == ""
    with accounting.phase("a", io=True, sync=True, sample=0.5, async_work=True) as nothing:
        accounting.count("n")
        accounting.count("n", 3)
    assert nothing is None
    accounting.signal_ready("queue", 1)
    accounting.wait_on("queue", 1)
    accounting.trace_begin("queue", 1)
    accounting.trace_mark("queue", 1, "admitted", sample=0.1)
    accounting.trace_end("queue", 1)


def test_signatures_of_the_module_functions() -> None:
    wanted = {
        "start": ["run_dir", "role", "kwargs"],
        "stop": [],
        "install_profiler": ["profiler"],
        "uninstall_profiler": ["profiler"],
        "installed_profiler": [],
        "merge_run": ["run_dir", "with_samples", "with_trace"],
        "merge_trees": ["target", "source"],
        "compare": ["run_a", "run_b"],
        "render": ["run"],
        "render_comparison": ["run_a", "run_b", "label_a", "label_b"],
        "report_as_dict": ["run"],
        "write_report": ["run_dir", "path", "format"],
        "signal_ready": ["channel", "key"],
        "wait_on": ["channel", "key"],
        "trace_begin": ["channel", "key"],
        "trace_mark": ["channel", "key", "name", "sample"],
        "trace_end": ["channel", "key"],
    }
    for name, parameters in wanted.items():
        assert list(inspect.signature(getattr(accounting, name)).parameters) == parameters, name


def test_every_listed_name_is_there() -> None:
    for name in accounting.__all__:
        assert getattr(accounting, name) is not None
        assert name in dir(accounting)
    done = run_python("from lineprofiler.accounting import *\nprint(merge_run.__name__, Profiler.__name__)").expect()
    assert done.stdout.split() == ["merge_run", "Profiler"]


@pytest.mark.parametrize("name", ["write_trace", "Span", "TraceBuffer", "overlap_ns"])
def test_names_of_later_versions(name: str) -> None:
    assert name not in accounting.__all__
    assert not hasattr(accounting, name)
    with pytest.raises(AttributeError, match=f"{name} is not in this version"):
        getattr(accounting, name)


@pytest.mark.parametrize("name", ["LineProfiler", "FunctionStats", "LineStats", "start_profiling", "stop_profiling"])
def test_line_profiler_is_the_same_under_both_names(name: str) -> None:
    run_python(
        f"import lineprofiler, with_line_profiler\nassert lineprofiler.{name} is with_line_profiler.{name}"
    ).expect()


def test_star_imports_work() -> None:
    done = run_python(
        "from lineprofiler import *\nfrom with_line_profiler import *\nprint(accounting.__name__)"
    ).expect()
    assert done.stdout.strip() == "lineprofiler.accounting"


def test_unknown_names_are_attribute_errors() -> None:
    for module in (lineprofiler, accounting):
        with pytest.raises(AttributeError, match="no_such_thing"):
            module.no_such_thing  # noqa: B018
