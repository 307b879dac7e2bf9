"""Programs of others that start processes: every one is in the report, with its rank or role and exact counts; the
program's result is what it is without us; nothing stays behind.

Each program is run twice, recorded and not, and prints its result. On one interpreter: the libraries are large, and
what differs between interpreters is in test_forks.py.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from lpclients import finished, launcher, launchers, merged, need
from lpstage import Stage
from lptest import Done, run_process

pytestmark = pytest.mark.one_version


def both_ways(stage: Stage, code: str, *args: object, command: tuple[str, ...] = (), **extra: str) -> Done:
    """Runs it without and with us, the same text in the same place; returns the second. The last argument tells it."""
    path = stage.script(code)
    results = []
    for on in ("0", "1"):
        line = [*command, sys.executable, str(path), *map(str, args), on]
        if command and command[-1] == "--":  # the launcher starts Python itself
            line = [*command[:-1], str(path), *map(str, args), on]
        results.append(run_process(line, cwd=stage.folder, env=stage.environment(**extra)).expect())
    plain, recorded = results
    assert sorted(recorded.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    return recorded


TORCH = """
import os, sys
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info
from lineprofiler import accounting
from lineprofiler.accounting import Profiler

class Squares(Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        with accounting.phase("item"):
            accounting.count("index", index)
            return torch.tensor([index * index])

def begin(number):
    # A forked worker has its parent's profiler; a role of its own takes one of its own.
    if os.environ.get("LINEPROFILER_PROFILE"):
        accounting.start(role=f"loader {number}")

def main(method, on):
    profiler = Profiler("run", role="trainer", install=True) if on else Profiler.disabled()
    with profiler:
        loader = DataLoader(Squares(), batch_size=4, num_workers=3, multiprocessing_context=method,
                            persistent_workers=True, worker_init_fn=begin)
        for epoch in range(2):
            with profiler.phase("epoch"):
                total = 0
                for batch in loader:
                    total += int(batch.sum())
            print(epoch, total)
        del loader

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2] == "1")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_torch_data_loader(stage: Stage, method: str) -> None:
    """Persistent workers, two epochs of 15 batches of 4, dealt out in turn."""
    need("torch")
    done = both_ways(stage, TORCH, method)
    assert done.stdout.split() == ["0", "70210", "1", "70210"]
    report = finished(stage)
    assert report.calls("trainer") == {"epoch": 2}
    for number in range(3):
        role = f"loader {number}"
        assert report.calls(role) == {"item": 2 * 20}, role
        # batches number, number + 3, … of the items 4 b … 4 b + 3
        indices = [4 * batch + i for batch in range(number, 15, 3) for i in range(4)]
        assert report.counters(role) == {"item:index": 2 * sum(indices)}, role
    assert sorted(w["role"] for w in report.workers) == ["loader 0", "loader 1", "loader 2", "trainer"]


DASK = """
import os, sys
from lineprofiler import accounting
from lineprofiler.accounting import Profiler

def work(number):
    if os.environ.get("LINEPROFILER_PROFILE") and accounting.installed_profiler() is None:
        accounting.start(role="dask worker")
    with accounting.phase("task"):
        accounting.count("number", number)
        return number * number

def main(on):
    from distributed import Client, LocalCluster
    profiler = Profiler("run", role="client", install=True) if on else Profiler.disabled()
    with profiler:
        with LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
            with Client(cluster) as client, profiler.phase("map"):
                # Every worker gets its share by name: 20 tasks each.
                names = sorted(client.scheduler_info()["workers"])
                futures = [client.submit(work, n, workers=[names[n % 3]], pure=False) for n in range(60)]
                print(sum(client.gather(futures)))

if __name__ == "__main__":
    main(sys.argv[1] == "1")
"""


def test_dask_local_cluster(stage: Stage) -> None:
    need("distributed")
    done = both_ways(stage, DASK)
    assert done.stdout.split() == [str(sum(n * n for n in range(60)))]
    report = finished(stage)
    assert report.calls("client") == {"map": 1}
    assert report.calls("dask worker") == {"task": 60}
    assert report.counters("dask worker") == {"task:number": sum(range(60))}
    workers = [w for w in merged(stage).workers if w.role == "dask worker"]
    assert [w.tree[("task",)].calls for w in workers] == [20, 20, 20]
    assert sorted(w.tree[("task",)].counters["number"] for w in workers) == [570, 590, 610]
    assert launchers(stage, workers) == {'"dask"'}


# A rank enters `step` as often as its number says, and ends in a way of its own.
RANK = r"""
import os, sys
from lineprofiler.accounting import Profiler

ranks = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID")
rank = int(next(os.environ[name] for name in ranks if name in os.environ))
profiler = Profiler("run", role="rank") if sys.argv[-1] == "1" else Profiler.disabled()
for number in range(10 * (rank + 1)):
    with profiler.phase("step"):
        profiler.count("n", rank)
os.write(1, f"rank {rank} done\n".encode())  # at once, so that lines of ranks do not mix
if rank == 2 and "die" in sys.argv:
    os._exit(0)
profiler.close()
"""


def must_have_ranks(stage: Stage, count: int, launcher: str, **placement: object) -> list[Any]:
    """One attempt; rank n with 10 (n + 1) entries and a count of n each."""
    report = finished(stage)
    total = 10 * count * (count + 1) // 2
    assert report.calls() == {"step": total}
    assert sorted(w["rank"] for w in report.workers) == list(range(count))
    workers = sorted(merged(stage).workers, key=lambda w: w.placement["rank"])
    for rank, worker in enumerate(workers):
        assert worker.tree[("step",)].calls == 10 * (rank + 1)
        assert worker.tree[("step",)].counters == {"n": rank * 10 * (rank + 1)}
        assert worker.placement["world_size"] == count
        for key, value in placement.items():
            assert worker.placement[key] == value, (rank, key)
    assert launchers(stage, workers) == {f'"{launcher}"'}
    return workers


def test_openmpi(stage: Stage) -> None:
    """Debian's Open MPI; one rank leaves by os._exit. A second launch into the same directory is another attempt."""
    mpirun = launcher("mpirun.openmpi", "openmpi-bin")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = (mpirun, "--oversubscribe", "-n", "4")
    both_ways(stage, RANK, "die", command=command, **root)
    workers = must_have_ranks(stage, 4, launcher="openmpi")
    assert [w.placement["local_rank"] for w in workers] == [0, 1, 2, 3]
    assert stage.report().states() == ["closed"] * 3 + ["died"]
    both_ways(stage, RANK, command=command, **root)
    report = stage.report()
    assert report.calls() == {"step": 100}
    assert len(report.caveats["superseded"]) == 4


def test_mpich(stage: Stage) -> None:
    """Hydra tells its ranks nothing that is new with each launch: the launcher's process does."""
    mpiexec = launcher("mpiexec.hydra", "mpich")
    both_ways(stage, RANK, command=(mpiexec, "-n", "4"))
    must_have_ranks(stage, 4, launcher="mpich")
    # Through a shell, so that the ranks have no common parent; another launch is another attempt.
    shell = ("sh", "-c", 'true; "$@"; exit $?', "sh")
    both_ways(stage, RANK, command=(mpiexec, "-n", "2", *shell))
    report = stage.report()
    assert report.calls() == {"step": 30}
    assert len(report.caveats["superseded"]) == 4


def test_torchrun(stage: Stage) -> None:
    need("torch")
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=3", "--")
    both_ways(stage, RANK, command=command)
    workers = must_have_ranks(stage, 3, launcher="torchrun")
    assert [w.placement["local_rank"] for w in workers] == [0, 1, 2]


def by_environment(stage: Stage, launched: list[dict[str, str]]) -> None:
    """A rank is a process with these variables; all run at once, as a launcher starts them."""
    started = [stage.start(RANK, "1", **variables) for variables in launched]
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(120) == 0


def slurm(rank: int, step: str = "0", restart: str = "0") -> dict[str, str]:
    """What srun sets (its manual page, "OUTPUT ENVIRONMENT VARIABLES")."""
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": step,
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % 2),
        "SLURM_NTASKS": "4",
        "SLURM_RESTART_COUNT": restart,
    }


def test_slurm_by_its_variables(stage: Stage) -> None:
    """Four ranks of a step; the next step and a requeued job are further attempts."""
    by_environment(stage, [slurm(rank) for rank in range(4)])
    workers = must_have_ranks(stage, 4, launcher="slurm", job_id="4711")
    assert [w.placement["local_rank"] for w in workers] == [0, 1, 0, 1]
    by_environment(stage, [slurm(rank, step="1") for rank in range(4)])
    assert len(stage.report().caveats["superseded"]) == 4
    by_environment(stage, [slurm(rank, restart="1") for rank in range(4)])
    report = stage.report()
    assert report.calls() == {"step": 100}
    assert len(report.caveats["superseded"]) == 8


def test_ray_by_its_variables(stage: Stage) -> None:
    """Ray's workers have no rank but that of the training library; the job is named, the run comes from the driver."""
    for rank in range(2):
        variables = {
            "RAY_JOB_ID": "02000000",
            "RAY_RAYLET_PID": "77",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LINEPROFILER_RUN_ID": "from-the-driver",
        }
        by_environment(stage, [variables])
    must_have_ranks(stage, 2, launcher="ray", job_id="02000000")


def test_one_rank_again_is_another_attempt(stage: Stage) -> None:
    """`srun --pty bash`: a launch of one rank is a shell in which programs run again and again."""
    for _ in range(2):
        by_environment(stage, [{**slurm(0), "SLURM_NTASKS": "1"}])
    report = stage.report()
    assert report.calls() == {"step": 10}
    assert len(report.caveats["superseded"]) == 1


def test_the_batch_script_is_no_launch(stage: Stage) -> None:
    """In a batch script SLURM_PROCID is 0 and there is no step: two programs in it are two attempts."""
    for _ in range(2):
        variables = slurm(0)
        del variables["SLURM_STEP_ID"]
        by_environment(stage, [variables])
    assert len(stage.report().caveats["superseded"]) == 1


def test_environment_of_the_tests_names_no_launcher() -> None:
    """Else every test here would see that one's ranks."""
    assert not [name for name in os.environ if name.startswith(("OMPI_", "PMI_", "SLURM_", "TORCHELASTIC_", "RAY_"))]
