"""Dask: a local cluster of worker processes. What do its tasks cost, and is the work dealt out evenly?

    python examples/clients/dask_cluster.py RUN_DIR        then: lineprofiler report RUN_DIR

A plugin of the cluster starts a profiler in each worker as it comes up; the client's profiler has exported the run to
them. The report's `imbalance` compares the workers, and their launcher is known to be Dask. Each worker is given 20
tasks by name, so that all counts are known before.
"""

from __future__ import annotations

import sys

from distributed import Client, LocalCluster, WorkerPlugin

from lineprofiler import accounting
from lineprofiler.accounting import Profiler, merge_run

WORKERS, TASKS = 3, 60


class Recorded(WorkerPlugin):
    """Each worker process of the cluster records, from its start to its end."""

    def setup(self, worker: object) -> None:
        accounting.start(role="dask worker")

    def teardown(self, worker: object) -> None:
        accounting.stop()


def primes_below(number: int) -> int:
    with accounting.phase("task"):
        with accounting.phase("sieve"):
            sieve = bytearray([1]) * number
            for n in range(2, int(number**0.5) + 1):
                if sieve[n]:
                    sieve[n * n :: n] = bytes(len(range(n * n, number, n)))
        with accounting.phase("count"):
            found = sum(sieve[2:])
            accounting.count("primes", found)
        return found


def main(run_dir: str) -> None:
    with Profiler(run_dir, role="client") as profiler:
        with LocalCluster(n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
            with Client(cluster) as client:
                client.register_plugin(Recorded())
                names = sorted(client.scheduler_info()["workers"])
                with profiler.phase("gather"):
                    futures = [
                        client.submit(primes_below, 20_000, workers=[names[n % WORKERS]], pure=False)
                        for n in range(TASKS)
                    ]
                    found = client.gather(futures)
    assert found == [2262] * TASKS  # there are 2,262 primes below 20,000

    run = merge_run(run_dir)
    workers = run.workers_of("dask worker")
    assert [worker.tree[("task",)].calls for worker in workers] == [TASKS // WORKERS] * WORKERS
    tree = run.tree_of("dask worker")
    assert tree[("task", "sieve")].calls == tree[("task", "count")].calls == TASKS
    assert tree[("task", "count")].counters == {"primes": 2262 * TASKS}
    assert run.tree_of("client")[("gather",)].calls == 1


if __name__ == "__main__":
    main(sys.argv[1])
