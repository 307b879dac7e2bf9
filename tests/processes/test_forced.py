"""Races, each forced: one side is held at the system call where it can be lost, and the other one goes on.

The holding is tests/support/halting.py. The same races at random moments: test_collector.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from halting import Halted, halted, thread_named
from lpstage import Stage, descriptors, wait_for

PROGRAM = Path(sysconfig.get_path("platlib")) / "lineprofiler" / "lineprofiler-collector"
GUARD_S = 20.0
# What is raced for is C, and the same under every Python.
pytestmark = pytest.mark.one_version

# Records when it is told to; each line is an order. What a process measures once, its own cost, is done before: held at
# each system call it would take long.
OBEYS = """
import os, sys
from lineprofiler.accounting import Profiler

place = os.environ["LINEPROFILER_SHM_DIR"]
os.environ["LINEPROFILER_SHM_DIR"] = os.getcwd()
Profiler("warm", snapshot_interval_s=None, sample_interval_s=None).close()
os.environ["LINEPROFILER_SHM_DIR"] = place

def answer(word):
    os.write(1, word.encode() + b"\\n")

answer("ready")
for line in sys.stdin:
    if line == "open\\n":
        profiler = Profiler("run", role=sys.argv[1], run_id="same", snapshot_interval_s=30.0)
        with profiler.phase("a"):
            profiler.count("n", 2)
        answer("recorded")
    elif line == "phase\\n":
        with profiler.phase("a"):
            profiler.count("n", 2)
        answer("done")
    elif line == "close\\n":
        profiler.close()
        answer("closed")
"""


class Obedient:
    def __init__(self, stage: Stage, role: str = "r", **extra: str) -> None:
        self.process = stage.start(OBEYS, role, **extra)
        self.pid = self.process.pid
        assert self.hear() == "ready"

    def order(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, word: str) -> str:
        self.order(word)
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def recorder(stage: Stage, role: str = "r", **extra: str) -> Obedient:
    program = Obedient(stage, role, **extra)
    assert program.ask("open") == "recorded"
    return program


def run_folder(stage: Stage) -> Path:
    return stage.shm / f"lineprofiler-{os.geteuid()}" / "same"


def segments_now(stage: Stage) -> list[str]:
    """While somebody may live; temporary names, too."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(p.name for p in run_folder(stage).iterdir() if ".seg" in p.name)
    return []


def signed_collector(stage: Stage) -> int:
    """Elected, and past its start: it has looked at its clocks, which comes after everything that it opens."""

    def found() -> bool:
        return len(stage.collectors()) == 1 and bool(list(run_folder(stage).glob(".clock-*")))

    wait_for(found, "a collector", GUARD_S)
    return stage.collectors()[0]


def watches(collector: int, segment: str) -> bool:
    return any(segment in link for link in descriptors(collector))


def exact(stage: Stage, entries: int, states: list[str]) -> None:
    report = stage.report()
    report.healthy()
    assert report.calls() == {"a": entries}
    assert report.counters() == {"a:n": 2 * entries}
    assert report.states() == states
    assert report.caveats["private_memory"] == []


# ---- beginning ---------------------------------------------------------------------------------------------------


@pytest.fixture
def read_here(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A reader that adopts and tidies up, in this process: quick enough to come at every system call."""
    from lineprofiler.accounting import merge_run

    monkeypatch.setenv("LINEPROFILER_SHM_DIR", str(stage.shm))

    def read() -> None:
        with contextlib.suppress(OSError, ValueError):  # the run directory is not there yet, nobody has recorded
            merge_run(stage.run)

    yield read
    monkeypatch.delenv("LINEPROFILER_SHM_DIR")


def test_readers_at_every_call_of_a_beginning(stage: Stage, read_here: Any) -> None:
    """Creation against adoption: between any two system calls in which a process makes its segment somebody adopts and
    tidies up in that folder."""
    stage.collector = False
    program = Obedient(stage)
    with halted(program.pid) as held:
        program.order("open")
        held.run_to("openat", r"\.seg\.new$")
        calls = []
        while call := held.step():
            read_here()
            calls.append(call.name)
            if call.name == "write" and call.first == 1:
                break  # it has recorded, and says so
    names = set(calls)
    assert {"flock", "madvise", "close", "renameat"} <= names, names
    assert program.hear() == "recorded"
    assert len(segments_now(stage)) == 1
    assert program.ask("close") == "closed"
    exact(stage, 1, ["closed"])
    assert stage.segments() == []


@pytest.mark.parametrize("what", ["goes on", "is killed"])
def test_a_collector_sees_a_process_that_has_not_begun(stage: Stage, what: str) -> None:
    """Its segment has its name and says nothing yet: it is waited for, and if its process dies so, it is no worker."""
    first = recorder(stage)
    collector = signed_collector(stage)
    second = Obedient(stage)
    with halted(second.pid) as held:
        second.order("open")
        held.run_to("renameat", r"^\d+_.*\.seg$", after=True)
        with halted(collector) as loop:
            for _ in range(3):  # it is looked at again and again, and let alone
                loop.run_to("openat", rf"^{second.pid}_.*\.seg$")
        assert len(segments_now(stage)) == 2
        if what == "is killed":
            second.kill()
    if what == "is killed":
        second.process.wait()
        wait_for(lambda: len(segments_now(stage)) == 1, "what never began is removed", GUARD_S)
    else:
        assert second.hear() == "recorded"
        second.kill()
    first.kill()
    stage.settle()
    exact(stage, 1 + (what == "goes on"), ["died"] * (1 + (what == "goes on")))
    assert stage.segments() == []


def test_the_folder_goes_under_one_that_begins(stage: Stage) -> None:
    """The last process of a run removes the folder just when the next one has opened it: that makes it again."""
    stage.collector = False
    program = Obedient(stage)
    with halted(program.pid) as held:
        program.order("open")
        held.run_to("openat", r"\.seg\.new$")
        run_folder(stage).rmdir()
    assert program.hear() == "recorded"
    assert len(segments_now(stage)) == 1
    assert program.ask("close") == "closed"
    exact(stage, 1, ["closed"])


# ---- leaving -----------------------------------------------------------------------------------------------------


def lets_go(collector: Halted) -> None:
    collector.run_to("unlinkat", r"^\.collector-", after=True)
    collector.run_to("close", after=True)


# Where a collector that has seen nobody any more stands.
LEAVING: dict[str, Callable[[Halted], object]] = {
    "before its lock goes": lambda held: held.run_to("unlinkat", r"^\.collector-"),
    "its lock has gone": lets_go,
    "it has looked again": lambda held: held.run_to("rmdir|unlinkat", "/same$"),
}


@pytest.mark.parametrize("where", LEAVING)
def test_arriving_at_each_step_of_leaving(stage: Stage, where: str) -> None:
    """Leaving against arriving: one that comes before the second look is seen in it, one that comes after finds no
    lock and starts another. Each is killed at once, so that it has nobody else to write it."""
    first = recorder(stage)
    collector = signed_collector(stage)
    second = Obedient(stage)
    with halted(collector) as held:
        first.kill()
        LEAVING[where](held)
        assert second.ask("open") == "recorded"
        second.kill()
    stage.settle()
    assert stage.collectors() == []
    assert stage.segments() == [], "somebody has written both, and tidied up"
    assert len(stage.written()) == 2
    exact(stage, 2, ["died", "died"])


def test_two_that_would_collect(stage: Stage) -> None:
    """One has let go of the lock to leave, another was started meanwhile: who lives belongs to the second, and the
    first goes though it sees him."""
    first = recorder(stage)
    collector = signed_collector(stage)
    second = Obedient(stage)
    with halted(collector) as held:
        first.kill()
        lets_go(held)
        assert second.ask("open") == "recorded"
        wait_for(lambda: len(stage.collectors()) == 2, "another one", GUARD_S)
        (other,) = set(stage.collectors()) - {collector}
        wait_for(lambda: watches(other, f"{second.pid}_"), "it watches", GUARD_S)
    wait_for(lambda: stage.collectors() == [other], "the first has left", GUARD_S)
    assert second.ask("phase") == "done"
    second.kill()
    stage.settle()
    exact(stage, 3, ["died", "died"])
    assert stage.segments() == []


# ---- the dead ----------------------------------------------------------------------------------------------------


def test_adoption_at_the_start_leaves_its_own_dead_to_the_watch(stage: Stage) -> None:
    """A collector begins by adopting what earlier runs left. Who dies in that moment, seen by the watch already, is
    not theirs: the watch knows how it died, and adoption would write it without."""
    program = recorder(stage, LINEPROFILER_COLLECTOR="0")
    # The collector stops itself, so that it can be held from its first call on.
    starter = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh", str(PROGRAM), str(run_folder(stage)), str(stage.run)]
    collector = subprocess.Popen(starter, env=stage.environment())
    stat = Path(f"/proc/{collector.pid}/stat")
    wait_for(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", "it stands", GUARD_S)
    try:
        with halted(collector.pid) as loop:
            os.kill(collector.pid, signal.SIGCONT)
            loop.run_to("pidfd_open", after=True)
            program.kill()
            with halted(thread_named(collector.pid, "lineprofiler-dk")) as disk:
                loop.run_to("epoll_wait")  # the order is given, and nothing has been heard of the death
                disk.run_to("flock", after=True)
                disk.run_to("futex")  # it has done what was ordered, and waits
                left = segments_now(stage), stage.snapshots()
        assert len(left[0]) == 1, "left to the watch"
        assert left[1] == []
        wait_for(lambda: segments_now(stage) == [], "which writes it", GUARD_S)
    finally:
        collector.wait(GUARD_S)
    exact(stage, 1, ["died"])


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """As whoever adopts a segment has it: an open-file-description lock. Released at the end, or with its file."""
    with path.open("r+b") as file:
        fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))  # F_OFD_SETLK
        yield


def test_an_adopter_that_gives_up(stage: Stage) -> None:
    """The collector finds a dead process in somebody else's hands, who is killed before he has written it."""
    stays, program = recorder(stage), recorder(stage)
    collector = signed_collector(stage)
    (name,) = [n for n in segments_now(stage) if n.startswith(f"{program.pid}_")]
    wait_for(lambda: watches(collector, name), "it watches", GUARD_S)
    with claimed(run_folder(stage) / name), halted(thread_named(collector, "lineprofiler-dk")) as disk:
        program.kill()
        for _ in range(3):
            disk.run_to("fcntl", after=True)
            assert disk.last is not None
            assert disk.last.result < 0, "it is claimed, and asked for again and again"
        assert name in segments_now(stage)
    wait_for(lambda: name not in segments_now(stage), "then it is written", GUARD_S)
    stays.kill()
    stage.settle()
    exact(stage, 2, ["died", "died"])


def test_closing_while_the_collector_holds_a_dead_child(stage: Stage) -> None:
    """close() waits for the collector's word, but not for ever: here it is held with the dead one in its hands."""
    program, child = recorder(stage), recorder(stage)
    collector = signed_collector(stage)
    (name,) = [n for n in segments_now(stage) if n.startswith(f"{child.pid}_")]
    wait_for(lambda: watches(collector, name), "it watches", GUARD_S)
    with halted(thread_named(collector, "lineprofiler-dk")) as disk:
        child.kill()
        call = disk.run_to("fcntl", after=True)
        assert call.result == 0
        assert program.ask("close") == "closed"
        assert segments_now(stage) == [name], "the other one's to write"
    program.kill()
    stage.settle()
    exact(stage, 2, ["closed", "died"])
    assert stage.segments() == []


def test_an_adopter_is_killed_with_the_snapshot_half_written(stage: Stage) -> None:
    """At each step of the writing: the next one finishes, and the worker is there once."""
    steps = [("openat", r"\.tmp$"), ("write", ""), ("fsync", ""), ("renameat", r"\.snap$"), ("unlinkat", r"\.seg$")]
    stage.collector = False
    for number, (call, path) in enumerate(steps):
        program = recorder(stage, role=f"r{number}")
        program.kill()
        reader = stage.start(
            "import os, sys\nfrom lineprofiler.accounting import merge_run\n"
            "os.write(1, b'ready\\n')\nsys.stdin.readline()\nmerge_run('run')"
        )
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        with halted(reader.pid) as held:
            reader.stdin.write("\n")
            reader.stdin.flush()
            held.run_to("openat", r"\.tmp$")
            if call != "openat":
                held.run_to(call, path)
            reader.kill()
        reader.wait()
        assert len(segments_now(stage)) == 1, "not removed before its snapshot is safe"
        exact(stage, number + 1, ["died"] * (number + 1))
        assert segments_now(stage) == []


def duplicate(pid: int, fd: int) -> int:
    """A descriptor of another process, as its forked child would have it."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        copy = int(libc.syscall(438, process, fd, 0))  # pidfd_getfd, Linux 5.6
    finally:
        os.close(process)
    if copy < 0:
        pytest.skip(f"no pidfd_getfd here: {os.strerror(ctypes.get_errno())}")
    return copy


@pytest.mark.parametrize("collector", [True, False], ids=["with a collector", "without"])
def test_a_child_forked_between_open_and_close_keeps_the_lock(stage: Stage, collector: bool) -> None:
    """It has a copy of the descriptor and with it the lock; the pid tells that the process is gone."""
    stage.collector = collector
    stays = recorder(stage)
    program = Obedient(stage)
    with halted(program.pid) as held:
        program.order("open")
        held.run_to("openat", r"\.seg\.new$", after=True)
        assert held.last is not None
        fd = held.last.result
        held.run_to("flock", after=True)
        copy = duplicate(program.pid, fd)
    try:
        assert program.hear() == "recorded"
        (name,) = [n for n in segments_now(stage) if n.startswith(f"{program.pid}_")]
        with (run_folder(stage) / name).open("rb") as file:
            program.kill()
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if collector:
            wait_for(lambda: name not in segments_now(stage), "it is written at once", GUARD_S)
        assert sorted(stage.report().states()) == ["died", "running"]
    finally:
        os.close(copy)
    stays.kill()
    stage.settle()
    exact(stage, 2, ["died", "died"])


# ---- the living --------------------------------------------------------------------------------------------------


# Where a snapshot of a living process is.
WRITING: dict[str, Callable[[Halted], object]] = {
    "its number is read": lambda disk: disk.run_to("pread64", after=True),
    "its file is written": lambda disk: disk.run_to("renameat", r"^w_.*\.snap$"),
    "its file has its name": lambda disk: disk.run_to("renameat", r"^w_.*\.snap$", after=True),
}


@pytest.mark.parametrize("where", WRITING)
def test_a_final_snapshot_beside_one_of_the_living(stage: Stage, where: str) -> None:
    """The collector is held in the middle of a snapshot of a process that closes meanwhile: the final one neither has
    a number that hides it, nor does the other one stay."""
    program = recorder(stage)
    collector = signed_collector(stage)
    wait_for(lambda: watches(collector, f"{program.pid}_"), "it watches", GUARD_S)
    with halted(thread_named(collector, "lineprofiler-dk")) as disk:
        os.kill(collector, signal.SIGTERM)  # write everything now
        WRITING[where](disk)
        assert program.ask("phase") == "done"
        assert program.ask("close") == "closed"
    stage.settle()
    (final,) = [p.name for p in stage.written()]
    assert final.endswith(".final.snap")
    exact(stage, 2, ["closed"])


def test_one_that_is_closing_is_not_written_over(stage: Stage) -> None:
    """It is held between the number of its final snapshot and that one's name; the collector is asked for all."""
    program, stays = recorder(stage), recorder(stage)
    collector = signed_collector(stage)
    for each in (program, stays):
        wait_for(lambda each=each: watches(collector, f"{each.pid}_"), "it watches", GUARD_S)
    with halted(program.pid) as held:
        program.order("close")
        held.run_to("renameat", r"\.final\.snap$")
        os.kill(collector, signal.SIGTERM)
        wait_for(lambda: stage.written(stays.pid), "the other one's", GUARD_S)
        assert [p for p in stage.snapshots() if f"_{program.pid}_" in p.name and p.name[0] == "w"] == []
    assert program.hear() == "closed"
    stays.kill()
    stage.settle()
    exact(stage, 2, ["closed", "died"])


def test_it_stands_where_it_is_held(stage: Stage) -> None:
    """The means itself: nothing of the thread goes on while it is held, and it ends as ever afterwards."""
    program = Obedient(stage, LINEPROFILER_COLLECTOR="0")
    with halted(program.pid) as held:
        assert isinstance(held, Halted)
        program.order("open")
        held.run_to("openat", r"\.seg\.new$")
        before = segments_now(stage)
        time.sleep(0.1)
        assert segments_now(stage) == before == []
        held.run_to("openat", r"\.seg\.new$", after=True)
        assert len(segments_now(stage)) == 1
    assert program.hear() == "recorded"
    assert program.ask("close") == "closed"
    program.order("")
    assert program.process.stdin is not None
    program.process.stdin.close()
    assert program.process.wait(60) == 0
