"""MPI: ranks under mpirun, by mpi4py. Which rank is the slowest, and how long do the others wait for it?

    python examples/clients/mpi_ranks.py RUN_DIR        then: lineprofiler report RUN_DIR

The program starts itself under `mpirun -n 4`; as on a cluster nothing is passed to the ranks but the run directory.
The ranks of one launch are one attempt in the report, each with its number. Rank n sums n + 1 parts: the last has
most to do, and the time of the others in `allreduce` is what they wait for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from lineprofiler.accounting import Profiler, merge_run

RANKS, ROUNDS = 4, 10


def part(number: int) -> int:
    return sum(n * n % 7 for n in range(number, number + 2000))


def work(run_dir: str) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    with Profiler(run_dir, role="rank") as profiler:
        for number in range(ROUNDS):
            with profiler.phase("round"):
                with profiler.phase("sum"):
                    mine = sum(part(number * 1000 + n) for n in range(rank + 1))
                    profiler.count("parts", rank + 1)
                with profiler.phase("allreduce"):
                    total = world.allreduce(mine)
        expected = sum(part((ROUNDS - 1) * 1000 + n) for each in range(RANKS) for n in range(each + 1))
        assert total == expected


def main(run_dir: str) -> None:
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    assert mpirun is not None, "no mpirun here (on Debian: apt-get install openmpi-bin)"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [mpirun, "--oversubscribe", "-n", str(RANKS), sys.executable, __file__, run_dir, "work"]
    subprocess.run(command, env={**os.environ, **root}, check=True)

    run = merge_run(run_dir)
    assert sorted(worker.rank for worker in run.workers) == list(range(RANKS))
    for worker in run.workers:
        assert worker.tree[("round", "allreduce")].calls == ROUNDS
        assert worker.tree[("round", "sum")].counters == {"parts": ROUNDS * (worker.rank + 1)}
    assert run.tree[("round",)].calls == RANKS * ROUNDS


if __name__ == "__main__":
    work(sys.argv[1]) if sys.argv[2:] == ["work"] else main(sys.argv[1])
