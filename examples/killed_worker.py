"""A training run that loses one of its workers half-way, as the kernel's out-of-memory killer takes them: by SIGKILL.

    python examples/killed_worker.py RUN_DIR        then: lineprofiler report RUN_DIR

Three workers train forty steps each. In the twentieth, inside `step/backward`, the third is killed with -9 by the main
process; the two others go on to the end. The report has what the third had recorded, names it, and says how it died,
when, and in which phase it was.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.connection
import os
import signal
import time

from lineprofiler import accounting
from lineprofiler.accounting import Profiler

WORKERS = 3
STEPS = 40
FATAL = 20  # step of the last worker in which it is killed


def work(seconds: float) -> None:
    """Computes, on the CPU."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(500))


def train(run_dir: str, number: int, main: multiprocessing.connection.Connection) -> None:
    with Profiler(run_dir, role="worker", install=True):
        for step in range(1, STEPS + 1):
            with accounting.phase("step"):
                with accounting.phase("load"):
                    time.sleep(0.006)
                    accounting.count("samples", 64)
                with accounting.phase("forward"):
                    work(0.004)
                with accounting.phase("backward"):
                    if number == WORKERS - 1 and step == FATAL:
                        main.send(os.getpid())
                        time.sleep(3600)  # grows and grows, if it were real
                    work(0.008)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("run_dir")
    args = parser.parse_args()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    with Profiler(args.run_dir, role="main") as profiler:
        workers = [context.Process(target=train, args=(args.run_dir, n, there)) for n in range(WORKERS)]
        with profiler.phase("train"):
            for worker in workers:
                worker.start()
            victim = here.recv()
            time.sleep(0.3)
            os.kill(victim, signal.SIGKILL)
            for worker in workers:
                worker.join()
    print(f"exit codes of the workers: {[worker.exitcode for worker in workers]}")


if __name__ == "__main__":
    main()
