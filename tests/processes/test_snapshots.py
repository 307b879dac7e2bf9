"""When a process writes its snapshots, how, and what a reader finds at any moment."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time

import pytest
from lpstage import Report, Stage, wait_for
from lptest import memory_given_back


def generations(names: list[str]) -> list[int]:
    return [int(re.sub(r".*\.(\d+)(\.final)?\.snap$", r"\1", name)) for name in names]


@pytest.mark.parametrize("collector", [False, True], ids=["alone", "beside a collector"])
def test_overdue_snapshots_are_written_on_the_way_out_of_a_phase(stage: Stage, collector: bool) -> None:
    """Every 0.2 s while phases are left, without a thread in the process; each replaces the one before.

    Alone, the process has done both steps, the new name and the end of the old one, when it looks; beside a
    collector it may look between the two, and then sees two files, each whole, of which readers take the newer.
    """
    stage.collector = collector
    seen = stage.facts(
        """
        import glob, os, sys, time
        from lineprofiler.accounting import Profiler

        began, seen = time.monotonic(), []
        profiler = Profiler("run", role="r", snapshot_interval_s=0.2)
        while time.monotonic() < began + 1.5:
            with profiler.phase("a"):
                time.sleep(0.005)
            names = sorted(glob.glob("run/workers/*/*.snap"))
            assert len(names) <= 1 + int(sys.argv[1]), names
            assert len(os.listdir("/proc/self/task")) == 1
            if names and (not seen or seen[-1][0] != names[-1]):
                seen.append((names[-1], time.monotonic() - began))
        profiler.close()
        print(seen + [(name, 0) for name in glob.glob("run/workers/*/*") if not name.endswith(".samples")])
        """,
        int(collector),
    )
    *periodic, (last, _) = seen
    assert last.endswith(".final.snap")
    numbers = generations([name for name, _ in periodic])
    assert numbers == sorted(set(numbers))
    # 1.5 s hold 7 of them; a loaded machine may do fewer, never more.
    assert 3 <= len(periodic) <= 8
    assert numbers[-1] <= 8
    # The n-th is not seen before n intervals are over, however late it and those before it were (1 %: two clocks).
    assert all(at >= 0.198 * number for number, (_, at) in zip(numbers, periodic, strict=True)), periodic


@pytest.mark.parametrize("how", ["busy", "idle"])
def test_none_without_an_interval_and_none_when_idle(stage: Stage, how: str) -> None:
    """A process that leaves no phase writes nothing: it is read from memory."""
    program = stage.start(
        """
        import sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=0.05 if sys.argv[1] == "idle" else None)
        with profiler.phase("a"):
            pass
        end = time.monotonic() + 0.3
        while time.monotonic() < end and sys.argv[1] == "busy":
            with profiler.phase("a"):
                time.sleep(0.001)
        print("ready", flush=True)
        with profiler.phase("waits"):
            sys.stdin.readline()
        """,
        how,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    assert stage.snapshots() == []
    assert stage.report().states() == ["running"]


def test_periodic_snapshot_of_a_living_process_is_not_shown_twice(stage: Stage) -> None:
    """Where memory can be read it beats the file; where it cannot (another host), the file speaks."""
    program = stage.start(
        """
        import sys
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        with profiler.phase("a"):
            profiler.count("n", 1)
        profiler.snapshot()
        with profiler.phase("a"):
            profiler.count("n", 10)
        with profiler.phase("waits"):
            print("ready", flush=True)
            sys.stdin.readline()
        """
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    here = stage.report()
    assert here.counters() == {"a:n": 11}
    assert here.states() == ["running"]
    there = Report(
        json.loads(stage.command("report", "run", "--json", LINEPROFILER_SHM_DIR="/nowhere").expect().stdout)
    )
    assert there.counters() == {"a:n": 1}
    assert there.calls() == {"a": 1}
    assert there.states() == ["last_seen"]
    assert there.caveats["unclean"] == []
    shutil.copytree(stage.run, stage.folder / "copy")
    assert stage.report("copy").counters() == {"a:n": 1}


@pytest.mark.one_version
def test_no_reader_ever_sees_half_a_snapshot(stage: Stage) -> None:
    """A poller opens whatever is there, 100 replacements a second: every file is whole, every worker there once."""
    program = stage.start(
        """
        import os
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        while not os.path.exists("enough"):
            for number in range(300):  # 40 KB
                with profiler.phase(f"{number}"):
                    profiler.count("n", 1)
            profiler.snapshot()
        """
    )
    wait_for(stage.written, "the first snapshot")
    from lineprofiler.accounting import merge_run

    reads, last = 0, 0
    while program.poll() is None:
        run = merge_run(stage.run)
        assert run.unreadable == []
        assert len(run.workers) == 1, [w.path for w in run.workers]
        calls = run.tree[("7",)].calls
        assert calls >= last
        last = calls
        reads += 1
        if reads > 20:
            (stage.folder / "enough").touch()
    assert program.returncode == 0
    assert reads > 20
    # A collector that wrote the living process while it closed removes that file at its next step.
    stage.settle()
    names = [p.name for p in stage.snapshots()]
    assert len(names) == 1, "temporary and older files are gone"
    assert names[0].endswith(".final.snap")


def test_fsync_only_at_the_end(stage: Stage) -> None:
    """A snapshot on the way out of a phase must not wait for the disk; the last one must be on it."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("no strace")
    probe = subprocess.run([strace, "-f", "-o", "/dev/null", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("strace is not allowed here")
    program = stage.script(
        """
        import glob, os, time
        from lineprofiler.accounting import Profiler

        def written():
            return max((int(name.split(".")[-2]) for name in glob.glob("run/workers/*/w_*.snap")), default=0)

        profiler = Profiler("run", role="r", snapshot_interval_s=0.05)
        end = time.monotonic() + 0.4
        while time.monotonic() < end or written() < 3:
            with profiler.phase("a"):
                time.sleep(0.01)
        profiler.snapshot()
        os.path.exists("/the end")  # marks the place in the trace
        profiler.close()
        """
    )
    log = stage.folder / "strace.txt"
    calls = "trace=fsync,fdatasync,sync,syncfs,msync,sync_file_range,rename,renameat,renameat2,stat,newfstatat"
    subprocess.run(
        [strace, "-f", "-e", calls, "-o", str(log), sys.executable, str(program)],
        cwd=stage.folder,
        env=stage.environment(),
        check=True,
        timeout=60,
    )
    lines = log.read_text().splitlines()
    end = next(n for n, line in enumerate(lines) if '"/the end"' in line)
    renames = [n for n, line in enumerate(lines) if "rename" in line and ".snap" in line]
    syncs = [n for n, line in enumerate(lines) if re.search(r"\b(fsync|fdatasync|sync|syncfs|msync)\(", line)]
    assert [n for n in syncs if n < end] == []
    assert len([n for n in renames if n < end]) >= 3
    # The collector beside may still give one of its own its name, and then removes it.
    (last,) = (n for n in renames if ".final.snap" in lines[n])
    own = [n for n in syncs if lines[n].split()[0] == lines[end].split()[0]]
    assert [n for n in own if n < last], "the file before its rename"
    assert [n for n in own if n > last], "the folder after it"


def test_snapshot_by_hand(stage: Stage) -> None:
    """snapshot() writes now, also with a phase open; nothing is counted twice when the process goes on or dies."""
    stage.python(
        """
        import os
        from lineprofiler import accounting
        from lineprofiler.accounting import Profiler, merge_run

        profiler = Profiler("run", role="r", install=True, snapshot_interval_s=None)
        seen = []
        with profiler.phase("outer"):
            for number in range(3):
                with profiler.phase("a"):
                    profiler.count("n", 1)
                profiler.snapshot()
                os.environ["LINEPROFILER_SHM_DIR"], kept = "/nowhere", os.environ["LINEPROFILER_SHM_DIR"]
                run = merge_run("run")
                os.environ["LINEPROFILER_SHM_DIR"] = kept
                seen.append((run.tree[("outer",)].calls, run.tree[("outer", "a")].calls))
        assert seen == [(0, 1), (0, 2), (0, 3)], seen
        profiler.close()
        profiler.snapshot()  # closed: does nothing
        """
    ).expect()
    assert len(stage.snapshots()) == 1
    assert stage.report().calls() == {"outer": 1, "outer/a": 3}


def test_on_snapshot(stage: Stage) -> None:
    """After each periodic snapshot, never at close; failures counted; a thread only while it is registered."""
    facts = stage.facts(
        """
        import os, threading, time, warnings
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=0.1)
        tasks = [len(os.listdir("/proc/self/task"))]
        trees, threads = [], []

        @profiler.on_snapshot
        def good(tree):
            trees.append(tree[("a",)].calls)
            threads.append(threading.get_native_id())

        @profiler.on_snapshot
        def bad(tree):
            raise RuntimeError("exporter")

        tasks.append(len(os.listdir("/proc/self/task")))
        calls = 0
        while len(trees) < 4:
            with profiler.phase("a"):
                time.sleep(0.005)
            calls += 1
        # A fork does not see the thread, the child has none and calls nobody.
        warnings.simplefilter("error")
        pid = os.fork()
        if pid == 0:
            alone = len(os.listdir("/proc/self/task"))
            end = time.monotonic() + 0.3
            before = len(trees)
            while time.monotonic() < end:
                with profiler.phase("child"):
                    time.sleep(0.01)
            os._exit(0 if alone == 1 and len(trees) == before else 1)
        assert os.waitpid(pid, 0)[1] == 0
        profiler.close()
        count = len(trees)
        time.sleep(0.25)
        tasks.append(len(os.listdir("/proc/self/task")))
        print([tasks, trees == sorted(trees), calls >= trees[3], count == len(trees), len(set(threads)), count])
        """
    )
    tasks, ascending, within, none_later, _, count = facts
    assert tasks == [1, 2, 1]
    assert ascending
    assert within
    assert none_later
    report = stage.report()
    assert report.caveats["health"]["callback_failures"] == count
    assert report.calls()["child"] > 5
    text = stage.command("report", "run").expect().stdout
    assert "on_snapshot callbacks raised an exception" in text


def test_child_may_register_for_itself(stage: Stage) -> None:
    stage.python(
        """
        import os, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=0.05)
        parents, childs = [], []
        profiler.on_snapshot(parents.append)
        pid = os.fork()
        if pid == 0:
            before = len(parents)
            with profiler.phase("child"):
                profiler.on_snapshot(childs.append)
                end = time.monotonic() + 20
                while len(childs) < 3 and time.monotonic() < end:
                    time.sleep(0.01)
            profiler.close()
            os._exit(0 if len(childs) >= 3 and len(parents) == before else 1)
        assert os.waitpid(pid, 0)[1] == 0
        """
    ).expect()


def test_same_directory_again_shows_the_newest_attempt(stage: Stage) -> None:
    """Three attempts, the second killed: the third is shown, the others are named and in no total."""
    program = """
    import os, sys
    from lineprofiler.accounting import Profiler

    number = int(sys.argv[1])
    profiler = Profiler("run", role="r", run_id=f"attempt-{number}")
    for _ in range(number):
        with profiler.phase("a"):
            profiler.count("n", number)
    if number == 2:
        os.kill(os.getpid(), 9)
    """
    for number in (1, 2, 3):
        stage.python(program, number).expect(-9 if number == 2 else 0)
        report = stage.report()
        assert report.document["run"]["run_id"] == f"attempt-{number}"
        assert report.calls() == {"a": number}
        assert {a["run_id"] for a in report.caveats["attempts"]} == {f"attempt-{n}" for n in range(1, number)}
    done = stage.command("report", "run").expect()
    assert "WARNING  2 of 3 worker file(s) are excluded as 2 earlier attempt(s)" in re.sub(
        r"\s+", " ", done.stdout
    ).replace("WARNING 2", "WARNING  2")
    for name in ("attempt-1", "attempt-2"):
        assert name in done.stdout
    assert len(stage.snapshots()) == 3
    # A process of the first attempt that comes late (a slow node) does not make it the newest again.
    stage.python(program.replace('f"attempt-{number}"', '"attempt-1"'), 5).expect()
    report = stage.report()
    assert report.document["run"]["run_id"] == "attempt-3"
    assert report.calls() == {"a": 3}


def test_two_profilers_one_process(stage: Stage) -> None:
    """Side by side, nested, closed in any order, in one directory or two: each has its own entries."""
    done = stage.python(
        """
        import warnings
        from lineprofiler.accounting import Profiler

        one = Profiler("one", role="r")
        two = Profiler("two", role="r")
        a, b = one.phase("a"), two.phase("b")
        for _ in range(100):
            with a:
                with b:
                    with one.phase("inner"):
                        two.count("n", 1)
                        one.count("m", 1)
        b.__enter__()
        one.close()
        with a, one.phase("late"):
            with two.phase("c"):
                pass
        b.__exit__(None, None, None)
        two.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Profiler("same", role="x", run_id="i") as first, Profiler("same", role="y", run_id="i") as second:
                with first.phase("a"), second.phase("b"):
                    pass
        assert ["another profiler of this process" in str(w.message) for w in caught] == [True], caught
        """
    ).expect()
    assert done.stderr == ""
    one, two, same = stage.report("one"), stage.report("two"), stage.report("same")
    for report in (one, two, same):
        report.healthy()
    assert one.calls() == {"a": 100, "a/inner": 100}
    assert one.counters() == {"a/inner:m": 100}
    assert two.calls() == {"b": 101, "b/c": 1}
    assert two.counters() == {"b:n": 100}
    assert same.calls("x") == {"a": 1}
    assert same.calls("y") == {"b": 1}
    assert stage.segments() == []


def test_close_and_open_again(stage: Stage) -> None:
    """A hundred times in one process: each is a worker (and attempt) of its own, and nothing piles up."""
    grown = stage.facts(
        """
        import gc, os
        from lineprofiler import accounting
        from lineprofiler.accounting import Profiler

        def state():
            gc.collect()
            maps = sum(1 for line in open("/proc/self/maps") if "lineprofiler-" in line)
            return len(os.listdir("/proc/self/fd")), maps, len(os.listdir("/proc/self/task"))

        before, rss = None, []
        for number in range(100):
            with Profiler("run", role="r", run_id="same", install=True):
                for _ in range(number):
                    with accounting.phase("a"):
                        accounting.count("n", 1)
            before = before or state()
            if number in (50, 99):
                rss.append(int(open("/proc/self/statm").read().split()[1]) * 4)
        after = state()
        print([before, after, rss[1] - rss[0], sorted(k for k in os.environ if k.startswith("LINEPROFILER"))])
        """,
        env=memory_given_back(),
    )
    before, after, kilobytes, environment = grown
    assert after == before
    assert kilobytes < 3000, "50 more sessions hold less than 60 KB each"
    assert environment == ["LINEPROFILER_SHM_DIR"]
    report = stage.report()
    report.healthy()
    assert report.calls() == {"a": sum(range(100))}
    assert len(report.workers) == 100
    assert stage.segments() == []


def test_phase_objects_outlive_their_profiler(stage: Stage) -> None:
    """Kept from a closed profiler, entered before and left after close(): nothing happens, nothing crashes."""
    stage.python(
        """
        import gc, threading
        from lineprofiler import accounting
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", install=True)
        kept = profiler.phase("kept")

        @accounting.phase("decorated")
        def decorated():
            return 3

        @profiler.profile
        def bound():
            return 4

        inside, leave = threading.Event(), threading.Event()
        def works():
            with profiler.phase("thread"):
                inside.set()
                leave.wait()
            with profiler.phase("too late"):
                pass
        thread = threading.Thread(target=works)
        thread.start()
        inside.wait()
        with kept, profiler.phase("open"):
            decorated(), bound()
            profiler.close()
        leave.set()
        thread.join()
        for _ in range(10):
            with kept:
                assert (decorated(), bound()) == (3, 4)
        again = Profiler("again", role="r", install=True)
        assert (decorated(), bound()) == (3, 4)
        with kept:
            pass
        again.close()
        del profiler, kept, again
        gc.collect()
        """
    ).expect()
    first, again = stage.report("run"), stage.report("again")
    first.healthy()
    calls = first.calls()
    assert {p: n for p, n in calls.items() if "bound" not in p} == {
        "kept": 0,
        "kept/open": 0,
        "kept/open/decorated": 1,
        "thread": 0,
    }
    # By the module function it follows the installed profiler; by a profiler's own it belongs to that one.
    assert again.calls() == {"decorated": 1}


def test_nested_with_blocks_of_one_role(stage: Stage) -> None:
    """A library that opens a profiler of its own inside a program that has one."""
    done = stage.python(
        """
        from lineprofiler import accounting
        from lineprofiler.accounting import Profiler

        with Profiler("outer", role="r", install=True):
            with accounting.phase("a"):
                with Profiler("inner", role="r") as inner:
                    with inner.phase("b"):
                        with accounting.phase("c"):
                            accounting.count("n")
            with accounting.phase("d"):
                pass
        """
    ).expect()
    assert done.stderr == ""
    assert stage.report("outer").calls() == {"a": 1, "a/c": 1, "d": 1}
    assert stage.report("outer").counters() == {"a/c:n": 1}
    assert stage.report("inner").calls() == {"b": 1}
    # Another run, so another id, although the outer one has exported its own.
    assert stage.report("inner").states() == ["closed"]


def test_report_from_inside_the_run(stage: Stage) -> None:
    """merge_run and render in the recording process itself: its own living segment, nothing disturbed."""
    stage.python(
        """
        from lineprofiler.accounting import Profiler, merge_run, render

        profiler = Profiler("run", role="r")
        for number in range(1, 4):
            with profiler.phase("a"):
                pass
            run = merge_run("run")
            assert run.tree[("a",)].calls == number
            assert "Processes 1" in render(run)
        profiler.close()
        assert merge_run("run").tree[("a",)].calls == 3
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"a": 3}


def test_written_at_says_alive_then(stage: Stage) -> None:
    """Of a living process on this host: now. Of one that died: when it died, not when somebody looked."""
    program = stage.start(
        """
        import sys
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        with profiler.phase("a"):
            pass
        print("ready", flush=True)
        sys.stdin.readline()
        """
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    time.sleep(0.2)
    before = time.time()
    assert before - 0.05 <= stage.report().workers[0]["written_at"] <= time.time() + 0.05
    program.kill()
    program.wait()
    died = time.time()
    time.sleep(0.5)
    report = stage.report()
    assert report.workers[0]["written_at"] <= died + 0.1
    assert stage.report().workers[0]["written_at"] == report.workers[0]["written_at"]
