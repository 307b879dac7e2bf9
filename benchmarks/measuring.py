"""What the sections share: a workload in a process of its own, series of rounds, and what a series says.

The figure of a series is its median; the interval around it comes from order statistics: between which of the
sorted rounds the true median lies with at least 95 % probability, whatever the distribution (David and Nagaraja,
Order Statistics, 7.1). Five rounds or fewer cannot reach that: their interval is all of them, and its probability
is given with it.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import envs
from envs import SetupError

HERE = Path(__file__).resolve().parent
Values = dict[str, float]


HANG_S = 900


def run_work(venv: Path, *args: object, cwd: Path, script: str = "work.py") -> Values:
    """One workload in one process; the run directories that it makes land in `cwd`."""
    try:
        done = subprocess.run(
            [str(envs.python_of(venv)), str(HERE / script), *map(str, args)],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
            env=envs.clean_environment(TMPDIR=str(cwd)),
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"{args} in {venv.name} took longer than {HANG_S} s") from None
    if done.returncode != 0:
        raise SetupError(f"{args} in {venv.name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    values = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(values, dict)
    return values


def order_interval(values: list[float], wanted: float = 0.95) -> tuple[float, float, float]:
    """Interval of the median: lower end, upper end, and the probability with which it holds the true one."""
    ordered, n = sorted(values), len(values)
    # Outside are the cases that fewer than k of n rounds lie on one side of the true median, each with chance 1/2.
    tails = [2 * sum(math.comb(n, i) for i in range(k)) / 2**n for k in range(1, (n + 1) // 2 + 1)]
    inner = max((k for k, tail in enumerate(tails) if 1 - tail >= wanted), default=0)
    return ordered[inner], ordered[n - 1 - inner], max(0.0, 1 - tails[inner])


def spread(values: list[float]) -> dict[str, float] | None:
    """Median with its interval; None of nothing."""
    if not values:
        return None
    low, high, chance = order_interval(values)
    return {
        "median": statistics.median(values),
        "low": low,
        "high": high,
        "probability": chance,
        "min": min(values),
        "max": max(values),
        "rounds": len(values),
    }


@dataclass
class Series:
    """Rounds of one figure: ours, and the peer's of the same round where it was measured."""

    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        ratios = [p / o for o, p in zip(self.ours, self.peer, strict=False) if o > 0]
        return {"ours": spread(self.ours), "peer": spread(self.peer), "peer/ours": spread(ratios)}


Figures = dict[str, Series]


def add(figures: Figures, side: str, values: Values) -> None:
    for name, value in values.items():
        series = figures.setdefault(name, Series())
        (series.ours if side == "ours" else series.peer).append(value)
