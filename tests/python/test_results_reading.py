"""Reading runs from Python: what was recorded comes out, and every face shows the same numbers."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import snapfile
from lptest import environment, lineprofiler, run_python

from lineprofiler.accounting import (
    MergedRun,
    PhaseTree,
    Profiler,
    compare,
    comparison_as_dict,
    merge_run,
    render,
    render_comparison,
    report_as_dict,
    write_report,
)
from lineprofiler.accounting.cli import main

QUIET: dict[str, Any] = {"snapshot_interval_s": None, "sample_interval_s": None}
HOSTILE = ["", "a/b", "nul\0inside", "line\nbreak", "</script>", "lone \udcff \ud800", "ü\u202e 🦀", "x" * 900]


def record(run_dir: Path, role: str = "actor", rounds: int = 40, **more: Any) -> PhaseTree:
    """A run with a bit of everything; gives the tree as the process itself saw it."""
    with Profiler(run_dir, role, **{**QUIET, **more}) as profiler:
        for number in range(rounds):
            with profiler.phase("iteration"):
                with profiler.phase("select"):
                    profiler.count("scored", number % 5)
                    profiler.count("debt", -number)
                with profiler.phase("copy", io=True):
                    Path(os.devnull).write_bytes(bytes(1000))
                with profiler.phase("hot", sample=0.1):
                    pass
                with profiler.phase("queued", async_work=True):
                    pass
        try:
            with profiler.phase("fails"):
                raise KeyError
        except KeyError:
            pass
        profiler.count("outside", 2**62)
        profiler.count("outside", 2**62)
        profiler.count("outside", 2**62)
    return profiler.merged_tree()


@pytest.fixture
def run_of_two(tmp_path: Path) -> Path:
    record(tmp_path / "run", "actor", run_id="attempt")
    record(tmp_path / "run", "learner", 10, run_id="attempt")
    return tmp_path / "run"


def test_what_was_recorded_comes_out(tmp_path: Path) -> None:
    own = record(tmp_path)
    run = merge_run(tmp_path)
    # Both are read from the same memory, but the clock's calibration gets longer between the two: times may differ in
    # the last place, so counts are compared exactly and times by their ratio.
    assert run.tree.keys() == own.keys()
    for path, stats in run.tree.items():
        mine = own[path]
        assert stats.wall_ns == pytest.approx(mine.wall_ns, rel=1e-3, abs=2)
        for name in ("calls", "counters", "counter_min", "counter_max", "counter_calls", "counter_hist", "errors"):
            assert getattr(stats, name) == getattr(mine, name), (path, name)
    tree = run.tree
    assert tree[("iteration",)].calls == 40
    assert tree[("iteration", "select")].counters == {"scored": 80, "debt": -780}
    assert tree[("iteration", "select")].counter_min == {"scored": 0, "debt": -39}
    assert tree[("iteration", "select")].counter_max == {"scored": 4, "debt": 0}
    assert tree[("iteration", "select")].counter_hist["scored"].quantile(0.5) == 2.0
    assert tree[("iteration", "copy")].io
    assert tree[("iteration", "copy")].counters["io_write_chars"] == 40_000
    assert (tree[("iteration", "hot")].sample_stride, tree[("iteration", "hot")].calls) == (10, 40)
    assert tree[("iteration", "queued")].async_entries == 40
    assert (tree[("fails",)].calls, tree[("fails",)].errors) == (1, 1)
    assert tree[()].counters == {"outside": 3 * 2**62}, "exact beyond 64 bits"
    assert tree[()].child_wall_ns == tree[("iteration",)].wall_ns + tree[("fails",)].wall_ns
    for stats in tree.values():
        assert stats.hist.count == stats.calls
        if stats.calls:
            assert 0 < stats.min_ns <= stats.hist.quantile(0.5) * (1 + 1 / 64)
            assert stats.self_ns <= stats.wall_ns


def test_the_run_and_its_workers(run_of_two: Path) -> None:
    run = merge_run(run_of_two, with_samples=False)
    assert run.roles == sorted(run.roles, key=lambda role: -sum(w.wall_ns for w in run.workers_of(role)))
    assert set(run.roles) == {"actor", "learner"}
    assert (run.unreadable, run.superseded, run.empty_reason, run.problems) == ([], [], "", [])
    assert run.metadata.keys() >= {
        *("version", "run_id", "started_at", "epoch_anchor", "argv", "host", "python", "source")
    }
    assert run.metadata["run_id"] == "attempt"
    assert run.metadata["argv"] == sys.argv
    assert run.metadata["python"].startswith(sys.version.split()[0])
    assert run.tree[("iteration",)].calls == 50
    assert run.tree_of("learner")[("iteration",)].calls == 10
    (actor,) = run.workers_of("actor")
    assert actor.pid == os.getpid()
    assert actor.host == run.hosts[0] == run.metadata["host"]
    assert actor.placement.keys() == {"host"}
    assert actor.path.parent == run_of_two / "workers" / actor.host
    assert actor.path.name.startswith(f"w_attempt_{os.getpid()}_")
    assert abs(actor.started_at - time.time()) < 300
    assert actor.started_at <= actor.written_at
    assert (actor.unclean, actor.living, actor.open_phases, actor.samples) == (False, False, [], [])
    assert actor.hardware["cpu_affinity"] == len(os.sched_getaffinity(0))
    assert actor.wall_ns == sum(stats.wall_ns for path, stats in actor.tree.items() if len(path) == 1)
    assert run.hardware_by_host == {actor.host: actor.hardware}
    assert pickle.loads(pickle.dumps(run)) == run
    assert copy.deepcopy(run) == run


def test_moments_are_the_same_on_every_face(tmp_path: Path) -> None:
    """Unix times have more digits than a float: they are rounded once, and the same way."""
    for number in range(20):
        worker = snapfile.Worker(pid=number + 1, unclean=True)
        worker.started += 977 * number * number
        worker.open = [((f"p{k}",), 613 * k * k + 1) for k in range(20)]
        worker.write(tmp_path)
    run = merge_run(tmp_path)
    shown = json.loads(lineprofiler("report", tmp_path, "--format", "json").expect().stdout)
    assert run.metadata["started_at"] == shown["run"]["started_at"]
    for one, other in zip(run.workers, shown["workers"], strict=True):
        assert (one.started_at, one.written_at) == (other["started_at"], other["written_at"])
        assert [each.since for each in one.open_phases] == [each["since"] for each in other["open"]]
    assert report_as_dict(run) == shown


def test_every_face_shows_the_same(run_of_two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = merge_run(run_of_two)
    text = render(run)
    assert lineprofiler("report", run_of_two, env=environment(LC_ALL="C.UTF-8")).expect().stdout == text
    document = report_as_dict(run)
    shown = json.loads(lineprofiler("report", run_of_two, "--format", "json").expect().stdout)
    assert shown["caveats"] == document["caveats"]
    assert shown == document
    assert main(["report", str(run_of_two), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == document
    write_report(run_of_two, tmp_path / "new" / "folder" / "r.txt")
    assert (tmp_path / "new" / "folder" / "r.txt").read_text(encoding="utf-8") == text
    write_report(str(run_of_two), str(tmp_path / "r.json"), "json")
    assert json.loads((tmp_path / "r.json").read_text()) == document
    phases = {each["phase"]: each for role in document["roles"] for each in role["phases"] if role["role"] == "actor"}
    own = run.tree_of("actor")
    assert phases["iteration"]["wall_ns"] == own[("iteration",)].wall_ns
    assert phases["iteration"]["self_ns"] == own[("iteration",)].self_ns
    select = phases["iteration/select"]
    # The middle of a cell may lie below the least or above the greatest of all, which the report knows.
    median = min(max(own[("iteration", "select")].hist.quantile(0.5), select["min_ns"]), select["max_ns"])
    assert select["p50_ns"] == median


def test_a_changed_run_renders_changed(run_of_two: Path) -> None:
    run = merge_run(run_of_two)
    for worker in run.workers:
        worker.role = "everybody"
    run.workers[0].written_at -= 1000
    assert report_as_dict(run)["run"]["roles"] == ["everybody"]
    assert len(report_as_dict(run)["caveats"]["stale"]) == 1
    assert "EVERYBODY" in render(run)


def test_report_of_a_run_built_by_hand() -> None:
    from lineprofiler.accounting import PhaseStats, WorkerSnapshot

    tree: PhaseTree = {("step",): PhaseStats(calls=2, wall_ns=3_000_000_000, cpu_ns=10)}
    run = MergedRun(tree, [WorkerSnapshot(7, "hand", Path("x"), 1e9, 1e9 + 5, tree, [])], [Path("lost")], {})
    document = report_as_dict(run)
    (role,) = document["roles"]
    assert (role["role"], role["phases"][0]["calls"], role["phases"][0]["wall_ns"]) == ("hand", 2, 3_000_000_000)
    assert "lost" in json.dumps(document["caveats"]["unreadable"])


def test_wrong_formats(tmp_path: Path) -> None:
    record(tmp_path / "run", rounds=1)
    with pytest.raises(ValueError, match="'text', 'json'"):
        write_report(tmp_path / "run", tmp_path / "r", "yaml")
    with pytest.raises(NotImplementedError, match="later version"):
        write_report(tmp_path / "run", tmp_path / "r.html", "html")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("make", "reason"), [(False, "missing"), (True, "no_worker_files")])
def test_nothing_there(tmp_path: Path, make: bool, reason: str) -> None:
    directory = tmp_path / "nothing"
    if make:
        directory.mkdir()
    run = merge_run(directory)
    assert (run.empty_reason, run.tree, run.workers, run.metadata, run.imbalance) == (reason, {}, [], {}, 1.0)
    assert "Processes 0" in render(run)
    assert report_as_dict(run)["run"]["processes"] == 0


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names(tmp_path: Path, name: str) -> None:
    with Profiler(tmp_path, "role " + name.replace("\0", "")[:200], **QUIET) as profiler:
        with profiler.phase(name), profiler.phase("below"):
            profiler.count(name, 3)
    run = merge_run(tmp_path)
    assert run.tree[(name,)].calls == 1
    assert run.tree[(name, "below")].counters == {name: 3}
    assert run.workers[0].role == "role " + name.replace("\0", "")[:200]
    document = report_as_dict(run)
    assert [name] in [each["path"] for each in document["roles"][0]["phases"]]
    render(run).encode("utf-8")


def test_living_run_and_open_phases(tmp_path: Path) -> None:
    with Profiler(tmp_path, "main", **QUIET) as profiler, profiler.phase("outer"):
        with profiler.phase("done"):
            pass
        with profiler.phase("inner"):
            time.sleep(0.02)
            (worker,) = merge_run(tmp_path).workers
    assert worker.living
    assert not worker.unclean
    assert abs(worker.written_at - time.time()) < 60, "alive now"
    assert {each.path for each in worker.open_phases} == {("outer",), ("outer", "inner")}
    inner = next(each for each in worker.open_phases if each.path == ("outer", "inner"))
    assert inner.open_ns >= 20_000_000
    assert abs(inner.since - time.time()) < 60
    assert worker.tree[("outer",)].calls == 0, "the enclosing path is there while a child is open"
    assert worker.tree[("outer", "done")].calls == 1
    assert worker.wall_ns == 0
    assert worker.extent_ns >= 20_000_000


def test_killed_worker_is_unclean(tmp_path: Path) -> None:
    program = """
        import os, signal
        from lineprofiler.accounting import Profiler
        profiler = Profiler(run_dir="run", role="actor", snapshot_interval_s=None)
        with profiler.phase("done"):
            pass
        with profiler.phase("open"):
            os.kill(os.getpid(), signal.SIGKILL)
        """
    run_python(program, cwd=tmp_path).expect(-9)
    deadline = time.monotonic() + 60
    while True:  # from memory, and from the snapshot that a reader or the collector made of it
        (worker,) = merge_run(tmp_path / "run").workers
        assert (worker.unclean, worker.living) == (True, False)
        assert worker.tree[("done",)].calls == 1
        assert [each.path for each in worker.open_phases] == [("open",)]
        if worker.path.suffix == ".snap":
            break
        assert time.monotonic() < deadline


def test_superseded_and_unreadable(tmp_path: Path) -> None:
    record(tmp_path, rounds=1, run_id="first")
    time.sleep(0.01)
    record(tmp_path, rounds=2, run_id="second")
    broken = next((tmp_path / "workers").iterdir()) / "w_second_1_deadbeef.1.snap"
    broken.write_bytes(b"no snapshot")
    run = merge_run(tmp_path)
    assert run.metadata["run_id"] == "second"
    assert [worker.run_id for worker in run.superseded] == ["first"]
    assert run.superseded[0].tree[("iteration",)].calls == 1
    assert run.tree[("iteration",)].calls == 2
    assert run.unreadable == [broken]
    assert len(run.problems) == 1
    assert run.problems[0]
    document = report_as_dict(run)
    assert document == json.loads(lineprofiler("report", tmp_path, "--json").expect().stdout)


def test_measure_cpu_off_is_unknown(tmp_path: Path) -> None:
    record(tmp_path, measure_cpu=False)
    stats = merge_run(tmp_path).tree[("iteration",)]
    assert not stats.cpu_known
    assert (stats.wait_ns, stats.cpu_ns, stats.cpu_unknown_ns) == (0, 0, stats.wall_ns)


def test_source_replaces_the_description(tmp_path: Path) -> None:
    record(tmp_path, rounds=1, source={"commit": "abc", "dirty": True, "nested": {"a": [1, None]}})
    assert merge_run(tmp_path).metadata["source"] == {"commit": "abc", "dirty": True, "nested": {"a": [1, None]}}


def test_compare(tmp_path: Path) -> None:
    for name, loops, more in (("a", 1000, "old"), ("b", 9000, "new")):
        with Profiler(tmp_path / name, "actor", **QUIET) as profiler:
            for _ in range(40):
                with profiler.phase("step"):
                    sum(range(loops))
                with profiler.phase(more):
                    pass
    a, b = merge_run(tmp_path / "a"), merge_run(tmp_path / "b")
    deltas = {delta.phase: delta for delta in compare(a, b)}
    assert (deltas["old"].only_in, deltas["new"].only_in, deltas["step"].only_in) == ("A", "B", None)
    step = deltas["step"]
    assert (step.calls_a, step.calls_b, step.samples) == (40, 40, 40)
    assert step.per_call_a == pytest.approx(a.tree[("step",)].wall_ns / 40)
    assert step.p50_b == b.tree[("step",)].hist.quantile(0.5)
    assert step.ratio > 1
    assert list(deltas)[-1] == "step", "phases of one run only come first"
    text = render_comparison(a, b, "A", "B")
    assert "only in A" in text
    document = comparison_as_dict(a, b)
    by_phase = {each["phase"]: each for each in document["phases"]}
    assert by_phase["step"]["ratio"] == pytest.approx(step.ratio)
    assert by_phase["step"]["percent"] == pytest.approx(step.percent)
    for phase, delta in deltas.items():
        row = by_phase[phase]
        assert (row["samples"], row["thin"], row["tail_moved"], row["only_in"]) == (
            delta.samples,
            delta.is_thin,
            delta.tail_moved,
            delta.only_in,
        )
    shown = lineprofiler("compare", tmp_path / "a", tmp_path / "b", "--json").expect().stdout
    assert json.loads(shown)["phases"] == document["phases"]


def test_compare_with_a_run_that_goes_on(tmp_path: Path) -> None:
    """What is open there is not missing; JSON, Python and text are of one mind, also about how thin the evidence is."""
    with Profiler(tmp_path / "a", "actor", **QUIET) as profiler:
        for name in ("served", "served", "gone"):
            with profiler.phase(name):
                pass
    with Profiler(tmp_path / "b", "actor", **QUIET) as profiler, profiler.phase("served"), profiler.phase("inner"):
        a, b = merge_run(tmp_path / "a"), merge_run(tmp_path / "b")
        shown = lineprofiler("compare", tmp_path / "a", tmp_path / "b", "--json").expect().stdout
    deltas = {delta.phase: delta for delta in compare(a, b)}
    assert sorted(deltas) == ["gone", "served"]
    served, gone = deltas["served"], deltas["gone"]
    assert (served.only_in, served.calls_a, served.calls_b, served.open_a, served.open_b) == (None, 2, 0, 0, 1)
    assert (gone.only_in, gone.calls_a, gone.calls_b, gone.open_a, gone.open_b) == ("A", 1, 0, 0, 0)
    document = comparison_as_dict(a, b)
    assert json.loads(shown)["phases"] == document["phases"]
    for row in document["phases"]:
        delta = deltas[row["phase"]]
        assert (row["samples"], row["thin"], row["only_in"]) == (delta.samples, delta.is_thin, delta.only_in)
        assert (row["open_a"], row["open_b"]) == (delta.open_a, delta.open_b)
        assert row["thin"], "three entries are no evidence"
    text = render_comparison(a, b, "A", "B")
    assert [line.split()[-4:] for line in text.splitlines() if line.startswith("served")] == [["open", "in", "B", "2"]]
    assert "?" not in text, "there is no change to be marked"


# --- the command behind Python's streams ---


def test_main_writes_to_the_streams_of_the_moment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip()
    assert main(["no-such-command"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "usage" in seen.err.lower()
    assert main(["report", str(tmp_path / "missing")]) == 2
    assert "Processes 0" in capsys.readouterr().out


def test_main_keeps_characters_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sink's buffer ends anywhere; a character of several bytes must not be torn."""
    with Profiler(tmp_path, "ü" * 100, **QUIET) as profiler:
        for number in range(300):
            with profiler.phase("🦀ü€"[number % 3] * (1 + number % 7) + "abcdefgh"[number % 8]):
                pass
    assert main(["report", str(tmp_path), "--all"]) == 0
    shown = capsys.readouterr().out
    assert "\\x" not in shown
    assert "\ufffd" not in shown
    assert "€€" in shown


def test_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    record(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "lineprofiler", "report", str(tmp_path), "--json"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_full_disk_is_said(tmp_path: Path) -> None:
    record(tmp_path)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "lineprofiler", "report", str(tmp_path)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert b"No space left" in done.stderr


def test_process_without_streams(tmp_path: Path) -> None:
    """What was asked for cannot be written, and nobody can be told: as the command without Python, code 2."""
    record(tmp_path / "run")
    done = run_python(
        """
        import sys
        sys.stdout = sys.stderr = None
        from lineprofiler.accounting.cli import main
        sys.exit(main(["report", sys.argv[1]]))
        """,
        tmp_path / "run",
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_encoding_of_the_stream_decides(tmp_path: Path) -> None:
    with Profiler(tmp_path, "main", **QUIET) as profiler, profiler.phase("ü"):
        pass
    command = [sys.executable, "-m", "lineprofiler", "report", str(tmp_path)]
    env = environment(PYTHONIOENCODING="ascii", LC_ALL="C.UTF-8")
    done = subprocess.run(command, capture_output=True, env=env, timeout=60, check=True)
    assert done.stdout.isascii()
    assert not done.stderr
