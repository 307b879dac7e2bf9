"""A run of many workers with samples of many hours, as busy programs leave them: every figure moves in every second.

Written from the published schema by the tests' second writer (tests/support/samplefile.py). The rows are made once and
given to every worker.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from samplefile import DENIED, SampleFile, Series
from snapfile import MS, SECOND, Worker


def write(run_dir: Path, workers: int, hours: float) -> float:
    """Size of one worker's sample file in MB."""
    rows, chance = int(hours * 3600), random.Random(1)

    def rising(step: Callable[[], int]) -> list[int]:
        total, values = 0, []
        for _ in range(rows):
            total += step()
            values.append(total)
        return values

    def below(bound: int) -> list[int]:
        return rising(lambda: chance.randrange(bound))

    resident, size = [], 300 * 1024
    for _ in range(rows):
        size = max(size + chance.choice((-4, 0, 0, 4)), 100 * 1024)
        resident.append(size)
    first = Worker(pid=1)
    file = SampleFile(first, 1)
    head = len(file.data)
    columns: dict[int, list[int] | int] = {
        1: rising(lambda: chance.randrange(400_000, 1_000_000)),
        3: resident,
        4: resident,
        6: DENIED,
        7: below(100),
        9: below(200),
        10: below(50),
        11: below(30_000),
        12: [0] * rows,
        13: rising(lambda: 4096 * chance.randrange(20)),
        14: below(60_000),
        15: below(90_000),
        17: [12] * rows,
        18: [12] * rows,
        19: [8] * rows,
    }
    shares = [((chance.choice(("step/train", "step/train", "step/env")), 1000),) for _ in range(rows)]
    file.add(Series(1, columns, shares=shares))
    batches = file.data[head:]
    for number in range(workers):
        worker = Worker("actor", f"node{number % 8:02d}", 1000 + number, elapsed=rows * SECOND)
        worker.phase("step/train", 900, 20 * MS, 400 * MS, 0.9)
        worker.phase("step", 900, 30 * MS, 500 * MS, 0.8)
        worker.write(run_dir)
        mine = SampleFile(worker, 1)
        mine.data += batches
        mine.write(run_dir)
    return len(file.data) / 1e6
