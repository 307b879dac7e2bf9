"""Random programs of phases, counters, threads, tasks, generators, forks and ends, each in processes of its own,
against a model of plain Python: every figure of the report. Here some dozens, the same ones each time; `make fuzz`
plays others for as long as it is told."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from lpstage import Stage, shared_folder
from playing import Body
from playmodel import play, programs

EXAMPLES = 20
# Of a longer run: how many seconds, and the first of its seeds.
SECONDS = float(os.environ.get("PLAY_SECONDS", "0"))
SEED = int(os.environ.get("PLAY_SEED", "1"))
ROUND = 100


def plays(folder: Path, collector: bool, examples: int, first: int) -> int:
    numbers = itertools.count()

    @seed(first)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def one(program: tuple[Body, str]) -> None:
        place = folder / str(next(numbers))
        place.mkdir()
        shm = Path(shared_folder())
        stage = Stage(place, shm, collector=collector)
        try:
            play(stage, *program)
        finally:
            stage.close()
            shutil.rmtree(shm)
            shutil.rmtree(place)

    one()
    return next(numbers)


@pytest.mark.parametrize("collector", [False, True])
def test_the_report_says_what_was_played(tmp_path: Path, collector: bool) -> None:
    assert plays(tmp_path, collector, EXAMPLES // 4 if collector else EXAMPLES, 1) > 0


# One of each kind of statement, so that no luck of the draw leaves one out.
EVERYTHING: list[Any] = [
    [
        "phase",
        1,
        "a",
        True,
        [["count", "c", -(1 << 63)], ["hold", 3, "b"], ["try", [["phase", 5, "c", False, [["raise"]]]]]],
    ],
    ["drop", "b", [["function", "c", []]]],
    ["generator", 7, "a", 3, 2, [["count", "n", 2]]],
    ["interleaved", 9, "a", "c", [["phase", 11, "b", False, []]]],
    ["steps", "s", [[["count", "n", 1]], []], [["phase", 13, "b", False, []]]],
    ["threads", [[["phase", 15, "a", False, []]], [["hold", 17, "c"]]]],
    [
        "tasks",
        19,
        "a",
        [[["phase", 21, "b", False, [["sleep"], ["count", "n", 1]]]], [["phase", 23, "b", True, [["sleep"]]]]],
    ],
    ["snapshot"],
    *(["fork", [["phase", 25, "a", False, [["end", end]] * n]], end] for n, end in enumerate(["exit", "killed"])),
    *(["fork", [["fork", [["count", "n", 1]], end]], end] for end in ["closed", "_exit0", "_exit3"]),
    ["fork", [], "exit"],
    ["close"],
    ["phase", 27, "late", False, []],
    ["fork", [["count", "late", 1]], "killed"],
]


@pytest.mark.parametrize("end", ["exit", "closed", "killed", "_exit0", "_exit3"])
def test_one_of_each(stage: Stage, end: str) -> None:
    play(stage, EVERYTHING if end == "closed" else EVERYTHING[:-3], end)


if SECONDS:

    def test_long() -> None:
        """Prints how many, for tools/fuzz.py."""
        end, played, first = time.monotonic() + SECONDS, 0, SEED
        folder = Path(shared_folder())
        try:
            while time.monotonic() < end:
                played += plays(folder, first % 4 == 0, ROUND, first)
                first += 1
        finally:
            shutil.rmtree(folder)
            print(f"\n{played} programs, seeds {SEED} to {first - 1}")
