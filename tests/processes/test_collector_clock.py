"""How the clocks went, from the collector's looks to the report. The arithmetic: tests/c/test_store_track.c."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import subprocess
import sysconfig
import time
from itertools import pairwise
from pathlib import Path

import pytest
from injection import compiled, preloaded
from lpstage import Stage, wait_for

GUARD_S = 10.0

PROGRAM = """
import os, sys, time
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role="r")
with profiler.phase("a"):
    print("inside", flush=True)
    sys.stdin.readline()
    {end}
profiler.close()
"""


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def moment(mono_ns: int, real_ns: int) -> bytes:
    return message(1, b"\x08" + varint(mono_ns) + b"\x10" + varint(mono_ns) + b"\x19" + real_ns.to_bytes(8, "little"))


def step(mono_ns: int, real_ns: int, by_ns: int, slept: bool) -> bytes:
    zigzag = by_ns << 1 if by_ns >= 0 else (-by_ns << 1) - 1
    body = b"\x08" + varint(mono_ns) + b"\x11" + real_ns.to_bytes(8, "little") + b"\x18" + varint(zigzag)
    return message(2, body + (b"\x20\x01" if slept else b""))


def clock_file(stage: Stage) -> Path:
    wait_for(lambda: list(stage.shm.glob("lineprofiler-*/*/.clock-*[0-9a-f]")), "the first look", GUARD_S)
    (path,) = stage.shm.glob("lineprofiler-*/*/.clock-*[0-9a-f]")
    return path


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), 9)"], ids=["closed", "killed"])
def test_a_clock_that_was_set_is_named(stage: Stage, end: str) -> None:
    """Nobody may set the clock of the machine for a test: the collector is killed, and what it may have seen goes
    into its file. A process that closes writes it into its own snapshot; of one that is killed a reader does."""
    program = stage.start(PROGRAM.format(end=end))
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "inside\n"
    path = clock_file(stage)
    for pid in stage.collectors():
        os.kill(pid, signal.SIGKILL)
    now, real = time.monotonic_ns(), time.time_ns()
    path.write_bytes(
        moment(now - 10**9, real - 2 * 10**9)
        + moment(now, real)
        + step(now, 1_750_000_000 * 10**9, -3600 * 10**9, slept=False)
        + step(now + 1, 1_750_003_600 * 10**9, 7200 * 10**9, slept=True)
    )
    program.stdin.write("\n")
    program.stdin.flush()
    program.wait(60)
    report = stage.report()
    host = os.uname().nodename
    assert report.caveats["clock_steps"] == [
        {"host": host, "at": 1750000000.0, "by_s": -3600.0, "cause": "set", "workers": 1},
        {"host": host, "at": 1750003600.0, "by_s": 7200.0, "cause": "suspended", "workers": 1},
    ]
    text = " ".join(stage.command("report", "run").expect().stdout.split())
    assert f"the clock of {host} was set back by 1h 00m, to 2025-06-15 15:06:40 UTC" in text
    assert f"{host} was suspended for 2h 00m, until 2025-06-15 16:06:40 UTC" in text


def test_looks_are_in_the_snapshots(stage: Stage) -> None:
    """Without a step nothing is said, and the moments enclose what was recorded."""
    program = stage.start(PROGRAM.format(end="time.sleep(2.2)"))
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "inside\n"
    clock_file(stage)
    program.stdin.write("\n")
    program.stdin.flush()
    program.wait(60)
    (snapshot,) = stage.written()
    lines = stage.command("dump", snapshot).expect().stdout.splitlines()
    moments = [tuple(map(int, line.split()[1:])) for line in lines if line.startswith("moment ")]
    assert len(moments) >= 2
    assert moments == sorted(moments)
    for (_, mono, real), (_, next_mono, next_real) in pairwise(moments):
        # one second of two clocks of one machine; a step would have been named
        assert abs((next_real - real) - (next_mono - mono)) < 5_000_000
    assert stage.report().caveats["clock_steps"] == []


@pytest.mark.parametrize(
    ("moved_s", "cause"),
    [((-3600, 0, 0), "set"), ((5, 0, 0), "set"), ((7200, 0, 7200), "suspended")],
    ids=["set back", "set on", "suspended"],
)
def test_a_step_that_the_collector_sees(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory, moved_s: tuple[int, int, int], cause: str
) -> None:
    """In the middle of a run, and by clocks of the collector's own: between two of its looks the time of day is set, or
    goes on while CLOCK_MONOTONIC stands still. The process is killed; durations do not notice."""
    library = compiled(tmp_path_factory.mktemp("clocks"), "clocks.c", "-shared", "-fPIC")
    stage.collector = False
    program = stage.start(PROGRAM.format(end="os.kill(os.getpid(), 9)"))
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "inside\n"
    (segment,) = stage.shm.glob("lineprofiler-*/*/*.seg")
    clocks = stage.folder / "clocks"
    clocks.write_bytes(bytes(24))
    collector = subprocess.Popen(
        [
            Path(sysconfig.get_path("platlib")) / "lineprofiler" / "lineprofiler-collector",
            segment.parent,
            stage.run,
        ],
        env=stage.environment(LD_PRELOAD=preloaded(library), LP_TEST_CLOCKS=str(clocks)),
    )
    path = clock_file(stage)
    before = path.read_bytes()
    began = time.monotonic()
    with clocks.open("r+b") as file, mmap.mmap(file.fileno(), 24) as mapped:
        mapped[:] = struct.pack("3q", *(each * 10**9 for each in moved_s))
        wait_for(lambda: b"\x12" in path.read_bytes()[len(before) :], "the look that sees it", GUARD_S)
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.wait(60) == -signal.SIGKILL
    assert collector.wait(GUARD_S) == 0
    assert stage.segments() == []
    report = stage.report()
    report.healthy()
    (step,) = report.caveats["clock_steps"]
    assert (step["host"], step["cause"], step["workers"]) == (os.uname().nodename, cause, 1)
    assert step["by_s"] == pytest.approx(moved_s[0], abs=0.5)  # what may pass between two readings of a loaded machine
    assert step["at"] == pytest.approx(time.time() + moved_s[0], abs=60)
    # Of an open phase: as long as it was open, not by as much as a clock was moved.
    (worker,) = report.workers
    (opened,) = worker["open"]
    assert 0 < opened["open_ns"] / 1e9 < time.monotonic() - began + 30
