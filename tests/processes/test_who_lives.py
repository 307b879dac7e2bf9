"""Who lives and who is dead, where that is not plain to see: ended first threads, children that live on, exec, names
that were removed, what earlier runs have left. With a collector and, where it is the reader who judges, without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest
from lpstage import Stage, descriptors, wait_for
from lptest import run_process

GUARD_S = 20.0
PROGRAM = Path(sysconfig.get_path("platlib")) / "lineprofiler" / "lineprofiler-collector"

with_and_without = pytest.mark.parametrize("collector", [True, False], ids=["with a collector", "without"])


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], word: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def is_watched(stage: Stage, name: str) -> bool:
    return any(name in link for pid in stage.collectors() for link in descriptors(pid))


def watched(stage: Stage, pid: int) -> None:
    if stage.collector:
        wait_for(lambda: is_watched(stage, f"/{pid}_"), "the collector watches it", GUARD_S)


@with_and_without
def test_a_first_thread_that_has_ended_is_no_death(stage: Stage, collector: bool) -> None:
    """State Z of the process, as of a dead one that nobody has waited for; but another thread records on."""
    stage.collector = collector
    program = stage.start(
        """
        import ctypes, os, platform, sys, threading, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=30.0)

        def on():
            with profiler.phase("held"):
                for _ in range(3):
                    sys.stdin.readline()
                    with profiler.phase("step"):
                        pass
                    os.write(1, b"done\\n")
                sys.stdin.readline()
            os._exit(7)

        with profiler.phase("first"):
            pass
        threading.Thread(target=on).start()
        # exit(2) of this thread alone
        ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
        """
    )
    stat = Path(f"/proc/{program.pid}/stat")
    wait_for(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "Z", "its first thread has ended", GUARD_S)
    watched(stage, program.pid)
    for number in range(1, 4):
        tell(program)
        assert hear(program) == "done"
        if number == 2 and collector:
            time.sleep(1.2)  # the collector looks at every lock in between
        report = stage.report()
        report.healthy()
        assert report.states() == ["running"]
        assert report.calls()["held/step"] == number
    assert stage.written() == []
    tell(program)
    assert program.wait(60) == 7
    stage.settle()
    report = stage.report()
    assert report.states() == ["died"]
    assert report.calls()["first"] == 1


@with_and_without
def test_children_that_live_on_do_not_keep_their_parent_alive(stage: Stage, collector: bool) -> None:
    """A forked child has no part of the segment: neither one that records itself nor one that never does."""
    stage.collector = collector
    program = stage.start(
        """
        import os, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="parent")
        with profiler.phase("a"):
            pass
        for recording in (False, True):
            if os.fork() == 0:
                if recording:
                    with profiler.phase("child"):
                        os.write(1, b"%d\\n" % os.getpid())
                        time.sleep(600)
                os.write(1, b"%d\\n" % os.getpid())
                time.sleep(600)
        time.sleep(600)
        """
    )
    children = [int(hear(program)) for _ in range(2)]
    try:
        watched(stage, program.pid)
        program.kill()
        program.wait()
        if collector:
            wait_for(lambda: stage.written(program.pid), "written at once", GUARD_S)
        report = stage.report()
        assert {w["role"]: w["state"] for w in report.workers if w["pid"] == program.pid} == {"parent": "died"}
        assert report.states() == ["died", "running"]
    finally:
        for pid in children:
            os.kill(pid, 9)
    stage.settle()
    report = stage.report()
    assert report.states() == ["died", "died"]
    assert report.calls() == {"a": 1, "child": 0}


def test_one_process_that_becomes_three_programs(stage: Stage) -> None:
    """exec of another Python, twice, beside a collector: one pid, one start time, three workers, each with its own end.
    The second begins in the same moment in which the first's memory goes."""
    stage.python(
        """
        import os, sys
        from lineprofiler.accounting import Profiler

        number = int(sys.argv[1])
        profiler = Profiler("run", role=f"r{number}", run_id="same")
        for _ in range(number):
            with profiler.phase("a"):
                profiler.count("n", number)
        if number < 3:
            with profiler.phase("open"):
                os.execv(sys.executable, [sys.executable, "-X", "dev", __file__, str(number + 1)])
        with profiler.phase("last"):
            os.kill(os.getpid(), 9)
        """,
        1,
    ).expect(-9)
    stage.settle()
    assert stage.segments() == []
    report = stage.report()
    report.healthy()
    assert report.counters() == {"a:n": 1 + 4 + 9}
    assert len({w["pid"] for w in report.workers}) == 1
    ends = {w["role"]: (w["state"], set(report.open_since(w))) for w in report.workers}
    assert ends == {"r1": ("died", {"open"}), "r2": ("died", {"open"}), "r3": ("died", {"last"})}


def test_everything_in_shared_memory_is_removed(stage: Stage) -> None:
    """As logind does at a logout: segments, the collector's lock, the folders. Who lives is still watched, by whom it
    was; who begins afterwards makes a place and a collector of its own."""
    program = stage.start(
        """
        import os, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="parent", run_id="same")
        def child(name):
            if os.fork() == 0:
                with profiler.phase(name):
                    os.write(1, b"%d\\n" % os.getpid())
                    time.sleep(600)
        with profiler.phase("a"):
            child("before")
            for line in sys.stdin:
                child("after")
        """
    )
    before = int(hear(program))
    for pid in (program.pid, before):
        watched(stage, pid)
    (old,) = stage.collectors()
    shutil.rmtree(stage.shm / f"lineprofiler-{os.geteuid()}")
    time.sleep(1.2)  # the collector has looked for its lock
    assert stage.collectors() == [old]
    tell(program)
    after = int(hear(program))
    wait_for(lambda: is_watched(stage, f"/{after}_"), "the new one is watched, too", GUARD_S)
    assert len(stage.collectors()) == 2
    for pid in (before, after):
        os.kill(pid, 9)
    for pid in (before, after):
        wait_for(lambda pid=pid: stage.written(pid), "it is written", GUARD_S)
    program.kill()
    program.wait()
    stage.settle()
    assert stage.segments() == []
    report = stage.report()
    report.healthy()
    assert report.states() == ["died"] * 3
    assert report.calls() == {"a": 0, "before": 0, "after": 0}


def test_a_collector_writes_what_earlier_runs_have_left(stage: Stage) -> None:
    """A run into the same directory whose collector was killed with it: nobody has to ask for a report."""
    stage.collector = False
    for number in range(3):
        stage.python(
            "import os\nfrom lineprofiler.accounting import Profiler\n"
            f"p = Profiler('run', role='r', run_id='earlier{number}')\n"
            "with p.phase('a'): pass\nos.kill(os.getpid(), 9)"
        ).expect(-9)
    other = stage.python(
        "import os\nfrom lineprofiler.accounting import Profiler\np = Profiler('other', role='r')\n"
        "with p.phase('a'): pass\nos.kill(os.getpid(), 9)"
    )
    other.expect(-9)
    assert stage.snapshots() == []
    stage.collector = True
    program = stage.start(
        "import sys\nfrom lineprofiler.accounting import Profiler\nwith Profiler('run', role='r') as p:\n"
        "  with p.phase('a'):\n    print('in', flush=True)\n    sys.stdin.readline()"
    )
    assert hear(program) == "in"
    wait_for(lambda: not list(stage.shm.glob("lineprofiler-*/earlier*/*.seg")), "all are written", GUARD_S)
    assert len([p for p in stage.snapshots() if "earlier" in p.name]) == 3
    left = list(stage.shm.glob("lineprofiler-*/*/*.seg"))
    assert len(left) == 2, "its own, and that of another directory, which is left alone"
    tell(program)
    assert program.wait(60) == 0
    stage.settle()
    report = stage.report()
    report.healthy()
    assert report.states("r") == ["closed"]
    assert len(report.caveats["attempts"]) == 3


def test_who_leaves_takes_nothing_of_another_collector(stage: Stage) -> None:
    """Two runs of one id into two directories: one folder of segments, two collectors. What git said and how the clocks
    went lies there for whoever writes a snapshot, until the last one goes."""
    first, second = (
        stage.start(
            "import sys\nfrom lineprofiler.accounting import Profiler\n"
            f"with Profiler('{run}', role='r', run_id='same') as p, p.phase('a'):\n  sys.stdin.readline()"
        )
        for run in ("run", "other")
    )
    folder = stage.shm / f"lineprofiler-{os.geteuid()}" / "same"
    for program in (first, second):
        watched(stage, program.pid)
    wait_for(lambda: len(stage.collectors()) == 2 and list(folder.glob(".clock-*[0-9a-f]")), "two collectors", GUARD_S)
    first.kill()
    first.wait()
    wait_for(lambda: len(stage.collectors()) == 1, "one leaves", GUARD_S)
    assert list(folder.glob(".clock-*[0-9a-f]")) != []
    tell(second)
    assert second.wait(60) == 0
    assert stage.segments() == []
    assert stage.report("run").states() == ["died"]
    report = stage.report("other")
    report.healthy()
    assert report.states() == ["closed"]


def can_have_clocks() -> bool:
    """A time namespace (Linux 5.6)."""
    return shutil.which("unshare") is not None and run_process(["unshare", "--time", "true"]).returncode == 0


@pytest.mark.skipif(not can_have_clocks(), reason="no time namespaces for this user")
@pytest.mark.parametrize("offset_s", [86_400 * 30, -5])
def test_a_child_on_other_clocks(stage: Stage, offset_s: int) -> None:
    """Born into a time namespace, as a restored container is: start times and CLOCK_MONOTONIC are others there. It has
    a collector of its own, and its times of day are right."""
    began = time.time()
    program = stage.start(
        """
        import ctypes, os, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="parent", snapshot_interval_s=0.1)
        with profiler.phase("a"):
            pass
        assert ctypes.CDLL(None).unshare(0x80) == 0  # CLONE_NEWTIME: for children
        with open("/proc/self/timens_offsets", "w") as file:
            file.write(f"monotonic {sys.argv[1]} 0\\nboottime {sys.argv[1]} 0\\n")
        if os.fork() == 0:
            for _ in range(5):
                with profiler.phase("child"):
                    time.sleep(0.02)
            with profiler.phase("held"):
                os.write(1, b"%d\\n" % os.getpid())
                time.sleep(600)
        sys.stdin.readline()
        profiler.close()
        """,
        offset_s,
    )
    child = int(hear(program))
    wait_for(lambda: len(stage.collectors()) == 2, "two collectors", GUARD_S)
    watched(stage, child)
    report = stage.report()
    report.healthy()
    assert report.states() == ["running", "running"]
    os.kill(child, 9)
    wait_for(lambda: stage.report().worker(child)["state"] == "died", "the death is seen", GUARD_S)
    tell(program)
    assert program.wait(60) == 0
    stage.settle()
    assert stage.segments() == []
    report = stage.report()
    report.healthy()
    assert report.states() == ["closed", "died"]
    assert report.calls() == {"a": 1, "child": 5, "held": 0}
    assert 0.1 <= report.phase("parent", "child")["wall_ns"] / 1e9 < 30
    worker = report.worker(child)
    assert began - 1 <= report.open_since(worker)["held"] <= worker["written_at"] <= time.time() + 1
    assert report.caveats["clock_steps"] == []
