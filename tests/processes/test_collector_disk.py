"""A disk that does not answer: the program never waits for it, the collector goes on to watch, nothing is lost.

DESIGN.md, "The collector": disk has a thread apart. Two ways to hang: a file system that is really frozen (root and a
loop device), and the thread for the disk stopped by ptrace, which needs neither and hangs wherever it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from injection import compiled, preloaded
from lpsamples import read
from lpstage import Stage, descriptors, wait_for

GUARD_S = 20.0

# Each line that it reads is a phase; "fork" makes a child that stays in a phase.
ANSWERS = """
import os, sys, time
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role="answers", snapshot_interval_s=0.05)
for line in sys.stdin:
    if line == "fork\\n":
        pid = os.fork()
        if pid == 0:
            with profiler.phase("child"):
                profiler.count("n", 5)
                os.write(1, b"%d\\n" % os.getpid())
                time.sleep(600)
    elif line == "end\\n":
        break
    else:
        with profiler.phase("answer"):
            pass
        os.write(1, b"ok\\n")
profiler.close()
print("closed", flush=True)
"""


class Dialogue:
    def __init__(self, stage: Stage) -> None:
        self.process = stage.start(ANSWERS)
        self.answers = 0

    def ask(self, word: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def answer(self) -> None:
        assert self.ask("phase") == "ok"
        self.answers += 1


def loop_device() -> bool:
    return (
        os.geteuid() == 0 and Path("/dev/loop-control").exists() and all(map(shutil.which, ("mkfs.ext4", "fsfreeze")))
    )


def command(*words: object) -> None:
    subprocess.run([str(w) for w in words], check=True, capture_output=True, timeout=60)


Freezer = Callable[[int], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def frozen_file_system(stage: Stage) -> Iterator[Freezer]:
    image = stage.folder / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    stage.run.mkdir()
    command("mkfs.ext4", "-q", image)
    command("mount", "-o", "loop", image, stage.run)

    @contextlib.contextmanager
    def freeze(_: int) -> Iterator[None]:
        command("fsfreeze", "--freeze", stage.run)
        try:
            yield
        finally:
            command("fsfreeze", "--unfreeze", stage.run)

    try:
        yield freeze
    finally:
        for process in stage.started:
            process.kill()
        try:
            stage.settle()
        finally:
            command("umount", "--lazy", stage.run)  # also when a process that should have ended still looks at it


PTRACE_CONT, PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 7, 0x4206, 0x4207, 17
WALL = 0x40000000
FUTEX = {"x86_64": "202", "aarch64": "98"}


def waits_for_work(thread: int) -> bool:
    """A disk that hangs leaves no lock taken: the thread may be stopped where it waits, not where it holds one."""
    return Path(f"/proc/{thread}/syscall").read_text().split()[0] == FUTEX[platform.machine()]


@contextlib.contextmanager
def stopped_thread(_: Stage) -> Iterator[Freezer]:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def ptrace(request: int, thread: int) -> None:
        assert libc.ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())

    @contextlib.contextmanager
    def freeze(collector: int) -> Iterator[None]:
        (thread,) = [t for t, name in threads_of(collector, "comm").items() if name == "lineprofiler-dk\n"]
        ptrace(PTRACE_SEIZE, thread)
        try:
            while True:
                ptrace(PTRACE_INTERRUPT, thread)
                os.waitpid(thread, WALL)
                if waits_for_work(thread):
                    break
                ptrace(PTRACE_CONT, thread)
                time.sleep(0.001)
            yield
        finally:
            ptrace(PTRACE_DETACH, thread)

    yield freeze


def watched_segments(stage: Stage, collector: int) -> int:
    return len({d for d in descriptors(collector) if d.startswith(str(stage.shm)) and ".seg" in d})


def watched_processes(collector: int) -> int:
    return descriptors(collector).count("anon_inode:[pidfd]")


def threads_of(collector: int, file: str) -> dict[int, str]:
    """What /proc says of each; one that has just ended is not there."""
    found = {}
    for thread in Path(f"/proc/{collector}/task").iterdir():
        with contextlib.suppress(OSError):
            found[int(thread.name)] = (thread / file).read_text()
    return found


def hangs(collector: int) -> bool:
    """Is a thread of it in a call that does not return, or stopped?"""
    return any(stat.rsplit(")", 1)[1].split()[0] in ("D", "t") for stat in threads_of(collector, "stat").values())


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(frozen_file_system, marks=pytest.mark.skipif(not loop_device(), reason="no loop device here")),
        stopped_thread,
    ],
)
def test_a_disk_that_does_not_answer(
    stage: Stage, way: Callable[[Stage], contextlib.AbstractContextManager[Freezer]]
) -> None:
    with way(stage) as freeze:
        program = Dialogue(stage)
        program.answer()
        collector = stage.the_collector()
        wait_for(stage.written, "a snapshot", GUARD_S)
        first = int(program.ask("fork"))
        wait_for(lambda: watched_processes(collector) == 2, "both are watched", GUARD_S)
        with freeze(collector):
            before = stage.snapshots()
            # The snapshots are due every 50 ms, and the disk takes none. The program answers all the same.
            wait_for(lambda: program.answer() or hangs(collector), "the disk hangs", GUARD_S)
            for _ in range(100):
                program.answer()
                time.sleep(0.002)
            # A death is noticed, a new process is seen, a signal is heard; the one who died is not given up.
            os.kill(first, signal.SIGKILL)
            wait_for(lambda: watched_processes(collector) == 1, "the death is noticed", GUARD_S)
            second = int(program.ask("fork"))
            wait_for(lambda: watched_segments(stage, collector) == 3, "the new one is watched", GUARD_S)
            os.kill(second, signal.SIGKILL)
            wait_for(lambda: watched_processes(collector) == 1, "its death is noticed", GUARD_S)
            os.kill(collector, signal.SIGTERM)
            program.answer()
            assert watched_segments(stage, collector) == 3, "nothing is let go that is not on the disk"
            assert [p.name for p in stage.written()] == [p.name for p in before if p.name[0] == "w"], "it was frozen"
            assert stage.collectors() == [collector], "nobody has started another one"
        wait_for(lambda: watched_segments(stage, collector) == 1, "both deaths are written", GUARD_S)
        assert program.ask("end") == "closed"
        stage.settle()
        assert stage.segments() == []
        report = stage.report()
        report.healthy()
        assert report.states() == ["closed", "died", "died"]
        assert report.calls()["answer"] == program.answers
        assert sum(report.counters().values()) == 10
        assert sorted(w["pid"] for w in report.caveats["unclean"]) == sorted([first, second])


@pytest.mark.one_version
def test_sampling_goes_on_while_the_disk_hangs(stage: Stage) -> None:
    """The rows of that time wait in memory, and are in the file after it."""
    with stopped_thread(stage) as freeze:
        program = stage.start(
            "import sys\nfrom lineprofiler.accounting import Profiler\n"
            "with Profiler('run', sample_interval_s=0.05) as p, p.phase('a'):\n  sys.stdin.readline()"
        )
        collector = stage.the_collector()
        wait_for(stage.samples, "its first rows", GUARD_S)
        with freeze(collector):
            began = time.monotonic()
            time.sleep(1.5)
            ended = time.monotonic()
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.wait(60) == 0
    stage.settle()
    (path,) = stage.samples()
    rows = read(stage, path).times_s()
    assert rows == sorted(rows)
    # thirty on an idle machine; on a busy one some are late, and those that are missed are not made up for
    assert len([at for at in rows if began < at < ended]) >= 3
    stage.report().healthy()


def test_without_a_thread_for_the_disk(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where no thread can be started (a limit of processes) the loop writes itself: all is written, only later."""
    library = compiled(tmp_path_factory.mktemp("nothreads"), "nothreads.c", "-shared", "-fPIC")
    stage.collector = False
    program = Dialogue(stage)
    program.answer()
    (segment,) = stage.shm.glob("lineprofiler-*/*/*.seg")
    collector = subprocess.Popen(
        [
            Path(sysconfig.get_path("platlib")) / "lineprofiler" / "lineprofiler-collector",
            segment.parent,
            stage.run,
        ],
        env=stage.environment(LD_PRELOAD=preloaded(library)),
    )
    wait_for(lambda: watched_segments(stage, collector.pid) == 1, "it watches", GUARD_S)
    child = int(program.ask("fork"))
    wait_for(lambda: watched_segments(stage, collector.pid) == 2, "the child, too", GUARD_S)
    assert len(threads_of(collector.pid, "comm")) == 1
    wait_for(lambda: len(stage.written()) == 2, "snapshots of the living", GUARD_S)
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: watched_segments(stage, collector.pid) == 1, "the death is written", GUARD_S)
    program.answer()
    program.process.kill()
    program.process.wait()
    assert collector.wait(GUARD_S) == 0
    assert stage.segments() == []
    report = stage.report()
    report.healthy()
    assert report.states() == ["died", "died"]
    assert report.calls() == {"answer": 2, "child": 0}
