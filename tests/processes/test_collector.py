"""The process beside the run: what it writes, how it is elected, how each race that can be lost is won.

DESIGN.md, "The collector". What a program can see of it: test_collector_unseen.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Any

import killing
import pytest
from lpstage import Stage, descriptors, wait_for

PROGRAM = Path(sysconfig.get_path("platlib")) / "lineprofiler" / "lineprofiler-collector"

# A snapshot of a dead process is promised within 0.5 s; two cores that others use as well may need longer.
GUARD_S = 5.0

OPEN = """
import os, sys, time
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role="victim", snapshot_interval_s={interval})
for _ in range(3):
    with profiler.phase("done"):
        pass
with profiler.phase("outer"):
    with profiler.phase("inner"):
        profiler.count("n", 7)
        print("inside", flush=True)
        {end}
        time.sleep(600)
"""


def start_open(stage: Stage, end: str = "pass", interval: str = "30.0", **extra: str) -> subprocess.Popen[str]:
    program = stage.start(OPEN.format(end=end, interval=interval), **extra)
    assert program.stdout is not None
    assert program.stdout.readline() == "inside\n"
    return program


def segment_files(stage: Stage) -> list[Path]:
    """What is there now, while somebody may live."""
    return sorted(stage.shm.glob("lineprofiler-*/*/[!.]*"))


def lock_file(stage: Stage) -> Path:
    (path,) = stage.shm.glob("lineprofiler-*/*/.collector-*.lock")
    return path


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


# ---- the dead --------------------------------------------------------------------------------------------------------


def test_a_killed_worker_is_written_at_once(stage: Stage) -> None:
    program = start_open(stage, LINEPROFILER_RUN_ID="same")
    other = start_open(stage, LINEPROFILER_RUN_ID="same")  # so that the collector has somebody to stay for
    killed = time.monotonic()
    program.kill()
    program.wait()
    wait_for(
        lambda: stage.written(program.pid),
        "its snapshot",
        GUARD_S,
    )
    took = time.monotonic() - killed
    wait_for(
        lambda: not [p for p in segment_files(stage) if p.name.startswith(f"{program.pid}_")], "segment gone", GUARD_S
    )
    assert took < GUARD_S
    report = stage.report()
    report.healthy()
    worker = report.worker(program.pid)
    assert worker["state"] == "died"
    assert set(report.open_since(worker)) == {"outer", "outer/inner"}
    assert [w["pid"] for w in report.caveats["unclean"]] == [program.pid]
    assert other.poll() is None


@pytest.mark.parametrize(
    "how", ["os.kill(os.getpid(), 9)", "os._exit(3)", "import ctypes; ctypes.string_at(0)", "os.abort()"]
)
def test_death_of_the_only_process(stage: Stage, how: str) -> None:
    """The collector alone is left: it writes the last snapshot and goes, with the segment and the folder."""
    program = start_open(stage, end=how)
    program.wait(60)
    ended = time.monotonic()
    stage.settle()
    assert time.monotonic() - ended < GUARD_S
    assert stage.segments() == []
    (snapshot,) = stage.snapshots()
    assert not snapshot.name.endswith(".final.snap")
    report = stage.report()
    report.healthy()
    assert report.states() == ["died"]
    assert report.calls() == {"done": 3, "outer": 0, "outer/inner": 0}
    assert report.counters() == {"outer/inner:n": 7}
    assert set(report.open_since(report.workers[0])) == {"outer", "outer/inner"}


def test_names_of_segments_are_removed(stage: Stage) -> None:
    """logind empties a user's shared memory at logout: what the collector has open is not lost by that."""
    program = start_open(stage)
    pid = stage.the_collector()
    (segment,) = segment_files(stage)
    wait_for(lambda: str(segment) in descriptors(pid), "opened by the collector")
    segment.unlink()
    time.sleep(0.05)
    assert stage.snapshots() == []
    program.kill()
    program.wait()
    stage.settle()
    report = stage.report()
    assert report.states() == ["died"]
    assert report.calls()["done"] == 3


def test_names_are_removed_and_another_collector_comes(stage: Stage) -> None:
    """The files go, the folder stays, and a process begins at once: its collector cannot see a segment without a name,
    so the first one stays for that."""
    program = start_open(stage, LINEPROFILER_RUN_ID="same")
    first = stage.the_collector()
    (segment,) = segment_files(stage)
    wait_for(lambda: str(segment) in descriptors(first), "opened by the collector")
    os.kill(first, signal.SIGSTOP)  # it would make its lock anew
    segment.unlink()
    lock_file(stage).unlink()
    other = start_open(stage, LINEPROFILER_RUN_ID="same")
    wait_for(lambda: len(stage.collectors()) == 2, "another collector", GUARD_S)
    (second,) = set(stage.collectors()) - {first}
    (segment,) = segment_files(stage)
    wait_for(lambda: str(segment) in descriptors(second), "opened by the other collector")
    os.kill(first, signal.SIGCONT)
    time.sleep(1.2)  # a look at its lock lies in between
    assert set(stage.collectors()) == {first, second}
    assert str(segment) not in descriptors(first), "that of the other process is the other's"
    program.kill()
    program.wait()
    wait_for(lambda: stage.collectors() == [second], "the first has nothing to stay for", GUARD_S)
    report = stage.report()
    assert report.worker(program.pid)["state"] == "died"
    assert report.calls()["done"] == 6
    assert other.poll() is None


def test_exec_is_an_end_and_a_stopped_process_is_not(stage: Stage) -> None:
    stopped = start_open(stage)
    stopped.send_signal(signal.SIGSTOP)
    executed = start_open(stage, end="os.execv('/bin/sleep', ['sleep', '600'])")
    wait_for(lambda: stage.written(executed.pid), "snapshot of the one that executed", GUARD_S)
    time.sleep(1.2)  # a look at every lock lies in between
    assert not any(f"_{stopped.pid}_" in p.name for p in stage.snapshots())
    stopped.send_signal(signal.SIGCONT)


def test_a_segment_that_cannot_be_written_is_left_to_a_reader(stage: Stage) -> None:
    """A full or broken disk: the collector tries for a while, goes with the run, and keeps the segment."""
    stage.run.mkdir()
    (stage.run / "workers").write_text("in the way")  # before anybody has made it: the first samples would
    program = start_open(stage)
    stage.the_collector()
    program.kill()
    program.wait()
    stage.settle()
    assert stage.collectors() == []
    (segment,) = segment_files(stage)
    (stage.run / "workers").unlink()
    report = stage.report()
    assert report.states() == ["died"]
    assert report.calls()["done"] == 3
    assert not segment.exists()


# ---- the living ------------------------------------------------------------------------------------------------------


def test_a_process_that_waits_is_written_too(stage: Stage) -> None:
    """Its own snapshots would wait for its next phase; here it passes through none."""
    program = start_open(stage, interval="0.2")
    latest = ""

    def has_all() -> bool:
        """One that was due before the last phase, where the program began slowly, is replaced."""
        nonlocal latest
        found = stage.written()
        latest = found[0].name if len(found) == 1 else ""
        return bool(latest) and 'counter "n" calls 1 total 7' in stage.command("dump", found[0]).stdout

    wait_for(has_all, "a snapshot with the counter", GUARD_S)
    time.sleep(0.8)
    assert [p.name for p in stage.snapshots()] == [latest], "nothing new, nothing written"
    program.kill()


def test_terminate_means_write_everything_now(stage: Stage) -> None:
    program = start_open(stage, interval="1000.0")
    pid = stage.the_collector()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        before = {p.name for p in stage.snapshots()}
        os.kill(pid, number)
        wait_for(
            lambda before=before: {p.name for p in stage.written()} - before,
            "a new snapshot",
            GUARD_S,
        )
    assert stage.collectors() == [pid], "it stays while somebody lives"
    program.kill()


def test_moved_run_directory(stage: Stage) -> None:
    program = start_open(stage, interval="0.2")
    wait_for(stage.written, "a snapshot", GUARD_S)
    stage.run.rename(stage.folder / "moved")
    program.kill()
    program.wait()
    stage.settle()
    assert not stage.run.exists()
    assert stage.report("moved").states() == ["died"]


CLOSES = """
import os, random, sys, time
from lineprofiler.accounting import Profiler

import lineprofiler.accounting._settings
for number in range(30):
    if os.fork() == 0:
        profiler = Profiler("run", role="r", run_id="same", snapshot_interval_s=0.02)
        end = time.monotonic() + random.uniform(0, 0.09)
        entries = 0
        while time.monotonic() < end:
            with profiler.phase("a"):
                time.sleep(0.001)
            entries += 1
        with profiler.phase("a"):
            pass
        profiler.count("expected", entries + 1)
        profiler.close()
        os._exit(0)
    if number % 4 == 3:
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
"""


def test_clean_against_unfinished_snapshots(stage: Stage) -> None:
    """The collector writes the living state just when the process writes its final one: that is the last word."""
    stage.python(CLOSES).expect()
    stage.settle()
    names = [p.name for p in stage.snapshots()]
    assert len(names) == 30
    assert all(n.endswith(".final.snap") for n in names), names
    report = stage.report()
    report.healthy()
    assert report.states() == ["closed"] * 30
    assert report.calls()["a"] == report.counters()[":expected"]


# ---- the election ----------------------------------------------------------------------------------------------------


def test_one_collector_for_all_processes(stage: Stage) -> None:
    programs = [
        stage.start(OPEN.format(end="pass", interval="30.0").replace('"run",', '"run", run_id="same",'))
        for _ in range(6)
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "inside\n"
    pid = stage.the_collector()
    assert lock_file(stage).read_text().split()[2] == str(pid)
    for program in programs:
        program.kill()
        program.wait()
    stage.settle()
    assert len(stage.snapshots()) == 6
    assert stage.report().states() == ["died"] * 6


def test_a_second_collector_leaves_at_once(stage: Stage) -> None:
    program = start_open(stage)
    pid = stage.the_collector()
    folder = lock_file(stage).parent
    second = subprocess.run([PROGRAM, folder, stage.run], timeout=30, check=False)
    assert second.returncode == 0
    assert stage.collectors() == [pid]
    program.kill()


def test_a_removed_lock_is_made_again(stage: Stage) -> None:
    """Somebody took the collector for dead and removed its file: it notices, or it would be one of two for ever."""
    program = start_open(stage)
    pid = stage.the_collector()
    path = lock_file(stage)
    path.unlink()
    wait_for(lambda: path.exists() and path.read_text().split()[2:3] == [str(pid)], "its file again", GUARD_S)
    # And where another one has taken its place, it goes. The name is never free, or it would be quicker.
    other = stage.shm / "lock"
    with other.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"lineprofiler collector {os.getpid()} {start_of(os.getpid())}\n")
        file.flush()
        other.rename(path)
        wait_for(lambda: stage.collectors() == [], "it leaves", GUARD_S)
        program.kill()
        program.wait()
        assert [p for p in stage.snapshots() if "final" in p.name] == []
    assert stage.report().states() == ["died"]


def start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def test_a_lock_that_outlived_its_collector(stage: Stage) -> None:
    """A child that was forked in the wrong moment can hold the lock on: its signer is dead, so the file is replaced."""
    first = start_open(stage)
    pid = stage.the_collector()
    os.kill(pid, signal.SIGKILL)
    path = lock_file(stage)
    wait_for(lambda: not is_locked(path), "the lock is free")
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second = start_open(stage, LINEPROFILER_RUN_ID=path.parent.name)
        assert stage.the_collector() != pid
        for program in (first, second):
            program.kill()
            program.wait()
        stage.settle()
    assert len(stage.written()) == 2
    assert segment_files(stage) == []


ARRIVES = """
import os, random, signal, sys, time
import lineprofiler.accounting._settings
from lineprofiler.accounting import Profiler

seed = int(sys.argv[1])
chance = random.Random(seed)
for number in range(40):
    pid = os.fork()
    if pid == 0:
        profiler = Profiler("run", role=f"r{seed}", run_id="same")
        with profiler.phase("a"):
            profiler.count("n")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    time.sleep(chance.uniform(0.06, 0.16))
"""


def test_leaving_against_arriving(stage: Stage) -> None:
    """Processes come just when the collector has seen nobody any more: none of them may be left alone. Each dies at
    once, so one that is has nobody to write it."""
    stage.python(ARRIVES, 7).expect()
    stage.settle()
    assert segment_files(stage) == []
    assert len(stage.written()) == 40
    assert stage.segments() == []
    report = stage.report()
    report.healthy()
    assert report.calls() == {"a": 40}


def test_arriving_while_it_decides_to_leave(stage: Stage) -> None:
    """The moment itself: the collector, stopped when it has seen nobody, counts as there for one that begins. Its wait
    ends by the continuing (epoll_wait returns EINTR), so it decides without having been told: it must look again."""
    for _ in range(4):
        first = start_open(stage, LINEPROFILER_RUN_ID="same")
        pid = stage.the_collector()
        first.kill()
        first.wait()
        wait_for(lambda: not segment_files(stage), "the first is written", GUARD_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2)  # longer than it lingers
        second = start_open(stage, LINEPROFILER_RUN_ID="same")
        with contextlib.suppress(
            ProcessLookupError
        ):  # on a slow machine it was gone before, and the second has another
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
        second.kill()
        second.wait()
        stage.settle()
        assert segment_files(stage) == []
        assert any(f"_{second.pid}_" in p.name for p in stage.snapshots())


def test_creation_against_adoption(stage: Stage) -> None:
    """Readers adopt and tidy up in the folder in which processes make their segments: none is taken before it lives."""
    program = stage.start(
        """
        import os, signal, sys, time
        import lineprofiler.accounting._settings
        from lineprofiler.accounting import Profiler

        for number in range(60):
            if os.fork() == 0:
                profiler = Profiler("run", role="r", run_id="same", snapshot_interval_s=None if number % 2 else 30.0)
                with profiler.phase("a"):
                    profiler.count("n")
                if number % 3:
                    profiler.close()
                os._exit(0)
            os.wait()
        """
    )
    while program.poll() is None:
        stage.report_or_nothing()
    assert program.wait() == 0
    report = stage.report()
    report.healthy()
    assert report.calls() == {"a": 60}
    assert report.states().count("closed") == 40
    assert segment_files(stage) == []


def test_programs_killed_at_random(stage: Stage) -> None:
    """The collector writes what they left, in a living moment of it and after their death."""
    killing.kill_programs(stage, 20)


# ---- without it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["killed", "closed"])
def test_the_collector_killed_at_random(stage: Stage, end: str) -> None:
    """Nothing is lost: another one is started by whoever is overdue, and the segments were never its own."""
    killing.kill_collectors(stage, 20, end)


def test_collector_and_worker_killed_together(stage: Stage) -> None:
    """The whole process group, say: a reader adopts, and clears away what the collector left."""
    program = start_open(stage)
    pid = stage.the_collector()
    os.kill(pid, signal.SIGSTOP)
    program.kill()
    program.wait()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stage.collectors() == [], "gone")
    assert len(segment_files(stage)) == 1
    assert stage.report().states() == ["died"]
    assert stage.segments() == []


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [("", "0"), ("", "off"), ("snapshot_interval_s=None, sample_interval_s=None", "1")],
)
def test_none_is_started(stage: Stage, arguments: str, variable: str) -> None:
    found = stage.facts(
        f"""
        import os
        from lineprofiler.accounting import Profiler
        os.environ["LINEPROFILER_COLLECTOR"] = {variable!r}
        with Profiler("run", {arguments}) as profiler:
            with profiler.phase("a"):
                ours = os.environ["LINEPROFILER_SHM_DIR"] + f"/lineprofiler-{{os.geteuid()}}"
                names = [e.name for e in os.scandir(ours + "/" + profiler.run_id)]
        print(names)
        """
    )
    assert len(found) == 1
    assert found[0].endswith(".seg")
    assert stage.report().states() == ["closed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit has to be another user's")
def test_none_can_be_started(stage: Stage) -> None:
    """No process slot is free: the process writes its own snapshots on its way through its phases, and says nothing."""
    stage.shm.chmod(0o777)
    stage.run.mkdir()
    written = stage.facts(
        """
        import glob, os, resource, time
        from lineprofiler.accounting import Profiler
        Profiler("run", run_id="warm", sample_interval_s=None, snapshot_interval_s=None).close()
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.chdir("/")
        import sys
        profiler = Profiler(sys.argv[1], run_id="it", snapshot_interval_s=0.05)
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            with profiler.phase("a"):
                time.sleep(0.001)
        names = sorted(os.path.basename(p) for p in glob.glob(sys.argv[1] + "/workers/*/w_it_*.snap"))
        profiler.close()
        print(names)
        """,
        stage.shm / "run",
    )
    assert len(written) == 1
    assert not written[0].endswith(".final.snap")


# ---- many ------------------------------------------------------------------------------------------------------------


def test_a_pool_whose_workers_die_after_each_task(stage: Stage) -> None:
    """What dead workers left does not pile up while the run goes on."""
    most = stage.facts(
        """
        import multiprocessing, os, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=0.1)

        def work(number):
            with profiler.phase("task"):
                profiler.count("n", number)
            return number

        if __name__ == "__main__":
            folder = os.environ["LINEPROFILER_SHM_DIR"] + f"/lineprofiler-{os.geteuid()}/" + profiler.run_id
            most = 0
            with multiprocessing.get_context("fork").Pool(4, maxtasksperchild=1) as pool:
                for number in pool.imap_unordered(work, range(200)):
                    most = max(most, len(os.listdir(folder)))
            profiler.close()
            print(most)
        """
    )
    report = stage.report()
    report.healthy()
    assert report.calls()["task"] == 200
    assert sum(report.counters().values()) == sum(range(200))
    assert most < 150, "they are written while it goes on"
    assert segment_files(stage) == []


def test_sixteen_processes_end_together(stage: Stage) -> None:
    """Killed at once: every file is complete within a second (and the guard for a loaded machine)."""
    program = stage.start(
        """
        import os, signal, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        children = []
        for _ in range(16):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                for number in range(32):
                    with profiler.phase(f"p{number}"):
                        profiler.count("n")
                os.write(write, b"x")
                time.sleep(600)
            os.read(read, 1)
            children.append(pid)
        print("ready", flush=True)
        sys.stdin.readline()
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        print("killed", flush=True)
        time.sleep(600)
        """
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.stdin.write("go\n")
    program.stdin.flush()
    assert program.stdout.readline() == "killed\n"
    wait_for(lambda: len(stage.written()) >= 16, "16 snapshots", GUARD_S)
    wait_for(lambda: len(segment_files(stage)) <= 1, "16 segments gone", GUARD_S)
    program.kill()
    program.wait()
    report = stage.report()
    report.healthy()
    assert sum(n for path, n in report.calls().items() if path.startswith("p")) == 16 * 32


# ---- git -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_git_is_asked_for_what_is_not_committed(stage: Stage, end: str) -> None:
    def git(*arguments: str, **options: Any) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=stage.folder, check=True, capture_output=True, text=True, **options
        ).stdout

    git("init", "-q")
    (stage.folder / "file").write_text("one\n")
    (stage.folder / "other").write_text("one\n")
    (stage.folder / ".gitignore").write_text("ignored\n/run\n/program*\n")
    git("add", "file", "other", ".gitignore")
    git("commit", "-qm", "c")
    (stage.folder / "file").write_text("two\n")
    (stage.folder / "new").mkdir()
    for name in ("ignored", "new/a", "new/b"):
        (stage.folder / name).write_text("unknown to git\n")
    program = stage.start(
        """
        import sys
        from lineprofiler.accounting import Profiler
        with Profiler("run") as profiler:
            with profiler.phase("a"):
                print("ready", flush=True)
                sys.stdin.readline()
        """
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    wait_for(lambda: list(stage.shm.glob("lineprofiler-*/*/.source")), "git's answer")
    (stage.folder / "file").write_text("three: too late\n")
    if end == "killed":
        program.kill()
    else:
        program.stdin.write("\n")
        program.stdin.flush()
    program.wait(60)
    (stage.folder / "file").write_text("two\n")
    stage.settle()
    source = stage.report().document["run"]["source"]
    difference = git("diff", "HEAD", "--binary")
    assert source["commit"] == git("rev-parse", "HEAD").strip()
    assert source["dirty_files"] == 1
    assert source["untracked_files"] == 2, "by files, without what is ignored"
    assert source["diff_sha"] == git("hash-object", "--stdin", input=difference).strip()
    assert stage.segments() == []


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_git_that_does_not_answer(stage: Stage, end: str) -> None:
    """A large tree on a slow disk: nobody waits for git, and it ends with the run."""
    for arguments in (["init", "-q"], ["commit", "-qm", "c", "--allow-empty"]):
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid"]
        subprocess.run(["git", *identity, *arguments], cwd=stage.folder, check=True, capture_output=True)
    slow = stage.folder / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > {stage.folder}/asked\nexec sleep 600\n")
    slow.chmod(0o755)
    program = start_open(stage, PATH=f"{slow.parent}:{os.environ['PATH']}")
    asked = stage.folder / "asked"
    wait_for(lambda: asked.exists() and asked.read_text().endswith("\n"), "git is asked", GUARD_S)
    git = Path("/proc") / asked.read_text().strip()
    if end == "killed":
        program.kill()
    else:
        program.send_signal(signal.SIGINT)  # an exception: it ends by itself, and closes
    program.wait(60)
    wait_for(lambda: not git.exists(), "git has ended", GUARD_S)
    assert stage.segments() == []
    report = stage.report()
    report.healthy()
    assert report.states() == ["closed" if end == "closed" else "died"]
    source = report.document["run"]["source"]
    assert len(source["commit"]) == 40
    assert source["dirty_files"] is None
