"""Clocks that jump: durations stay true, times of day are those of the clock, and a report can be made of both."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from injection import compiled
from lpstage import Report, Stage

HOUR_S = 3600.0
NAP_S = 0.02
NAPS = 10

PROGRAM = """
import ctypes, os, select, sys, time
from lineprofiler.accounting import Profiler

move = ctypes.CDLL(os.environ["LD_PRELOAD"].split()[-1]).clocks_move
move.argtypes = [ctypes.c_int64, ctypes.c_int64]
profiler = Profiler("run", role="r", snapshot_interval_s=0.05)

def naps():
    for _ in range(10):
        with profiler.phase("nap"):
            select.select([], [], [], 0.02)  # of a length: time.sleep() is until a moment of the clock that is moved

naps()
profiler.snapshot()
with profiler.phase("around"):
    {jump}
    profiler.snapshot()
naps()
{end}
"""


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("clocks"), "clocks.c", "-shared", "-fPIC")


def run(stage: Stage, clocks: Path, jump: str, end: str = "profiler.close()", **env: str) -> Report:
    code = PROGRAM.format(jump=jump, end=end)
    # a sanitizer's runtime comes first, where there is one
    preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(clocks)]))
    done = stage.python(code, env={"LD_PRELOAD": preload, **env})
    assert done.returncode == (0 if "close" in end else -9), done.stderr
    assert done.stderr == ""
    stage.settle()
    return stage.report()


@pytest.mark.parametrize("clock", ["", "monotonic"])
@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S, 365 * 24 * HOUR_S, -1.0])
def test_time_of_day_is_set(stage: Stage, clocks: Path, seconds: float, clock: str) -> None:
    """By hand, by NTP, by a hypervisor: durations do not notice."""
    env = {"LINEPROFILER_CLOCK": clock} if clock else {}
    report = run(stage, clocks, f"move({int(seconds * 1e9)}, 0); time.sleep(0.02)", **env)
    report.healthy()
    assert report.calls() == {"nap": 2 * NAPS, "around": 1}
    # As long as the program slept, and never by the length of the jump.
    for path, least in (("nap", 2 * NAPS * NAP_S), ("around", NAP_S)):
        wall = report.phase("r", path)["wall_ns"] / 1e9
        assert least <= wall < least + 30
    (worker,) = report.workers
    assert worker["state"] == "closed"
    assert abs(worker["written_at"] - (time.time() + seconds)) < 60, "as the clock shows when it is written"


@pytest.mark.parametrize("end", ["profiler.close()", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("clock", ["", "monotonic"])
def test_the_machine_is_suspended(stage: Stage, clocks: Path, clock: str, end: str) -> None:
    """CLOCK_MONOTONIC stands still, the time of day goes on, and so may the TSC: what was measured around it keeps
    its length. (Here it sleeps for two seconds; a machine does so for hours, in the same proportions.)"""
    env = {"LINEPROFILER_CLOCK": clock} if clock else {}
    report = run(stage, clocks, "time.sleep(2); move(0, -2_000_000_000)", end, **env)
    report.healthy()
    assert report.calls() == {"nap": 2 * NAPS, "around": 1}
    wall = report.phase("r", "nap")["wall_ns"] / 1e9
    # The first calibration is good to 1e-5; a clock that was taken over the gap would show a fifth.
    assert 2 * NAPS * NAP_S * 0.999 <= wall < 2 * NAPS * NAP_S + 30
