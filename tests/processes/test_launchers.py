"""Launchers in each other: the numbers of a process are those of the innermost one, which set its variables last.

Slurm is played by the variables that its srun and sbatch set (their manual pages), at the place where a task of theirs
starts; mpirun, mpiexec and torchrun are real.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from lpclients import finished, launcher, launchers, merged, need
from lpstage import Stage
from lptest import run_process

pytestmark = pytest.mark.one_version

# A rank knows its number by the variable that is named; it may set variables of its own first, and fork.
RANK = """
import json, os, sys
from lineprofiler.accounting import Profiler

os.environ.update(json.loads(os.environ.get("SET_FIRST", "{}")))
rank = os.environ[os.environ["RANK_IS"]]
profiler = Profiler("run", role=f"rank {rank}")
with profiler.phase("step"):
    pass
for variables in json.loads(os.environ.get("FORKS", "[]")):
    child = os.fork()
    if child == 0:
        os.environ.update(variables)
        with profiler.phase("forked"):
            pass
        profiler.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
profiler.close()
"""
# What setproctitle does to have room: the strings that the kernel shows are others then.
OVERWRITE = """
import ctypes, os
os.environ.update(dict(os.environ))  # copies, elsewhere
with open("/proc/self/stat", "rb") as file:
    begin, end = map(int, file.read().rpartition(b")")[2].split()[47:49])
ctypes.memset(begin, ord("x"), end - begin - 1)
assert b"SLURM" not in open("/proc/self/environ", "rb").read()
"""
# Starts a program once for each of the given sets of variables, as an agent on a node does.
AGENT = """
import json, os, subprocess, sys
line = [sys.executable, sys.argv[1]]
ranks = [subprocess.Popen(line, env={**os.environ, **more}) for more in json.loads(sys.argv[2])]
sys.exit(max(rank.wait() for rank in ranks))
"""


def batch(tasks: int = 2) -> dict[str, str]:
    """What a batch script has."""
    return {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": str(tasks)}


def srun(node: int, tasks: int = 2) -> dict[str, str]:
    """What srun gives to the one task of a node."""
    more = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_PROCID": str(node),
        "SLURM_NODEID": str(node),
    }
    return {**batch(tasks), **more}


def torch(rank: int, size: int = 4) -> dict[str, str]:
    """Two ranks a node."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank % 2), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": "2"}


def play(stage: Stage, nodes: list[tuple[dict[str, str], list[dict[str, str]]]]) -> None:
    """An agent on each node, started with the first variables, and its ranks with the others besides."""
    rank = stage.script(RANK)
    agents = [stage.start(AGENT, rank, json.dumps(ranks), **outer) for outer, ranks in nodes]
    for agent in agents:
        assert agent.wait(120) == 0


def placed(stage: Stage, name: str, phase: str = "step") -> list[tuple[Any, Any, Any]]:
    """(rank, local rank, world size) of the processes with that phase, by rank; one attempt, one launcher."""
    finished(stage)
    workers = [w for w in merged(stage).workers if (phase,) in w.tree]
    assert launchers(stage, workers) == {json.dumps(name)}
    assert phase != "step" or [w.role for w in workers if w.role != f"rank {w.placement.get('rank')}"] == []
    found = [tuple(w.placement.get(key) for key in ("rank", "local_rank", "world_size")) for w in workers]
    return sorted(found, key=lambda each: (each[0] is None, each))


FOUR = [(0, 0, 4), (1, 1, 4), (2, 0, 4), (3, 1, 4)]
ELASTIC = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "node0", "MASTER_PORT": "29500", "RANK_IS": "RANK"}


def test_one_torchrun_a_node_by_srun(stage: Stage) -> None:
    """Its ranks count, and with none named they are one attempt."""
    play(stage, [(srun(node), [{**torch(2 * node + n), **ELASTIC} for n in range(2)]) for node in range(2)])
    assert placed(stage, "torchrun") == FOUR
    assert {w.placement["job_id"] for w in merged(stage).workers} == {"4711"}


def test_another_launcher_of_torch_by_srun(stage: Stage) -> None:
    """deepspeed's sets torch's variables and names no run."""
    play(stage, [(srun(node), [{**torch(2 * node + n), "RANK_IS": "RANK"} for n in range(2)]) for node in range(2)])
    assert placed(stage, "torch") == FOUR


def test_a_program_that_spawns_its_ranks_itself(stage: Stage) -> None:
    """torch.multiprocessing.spawn, and Ray's training library: RANK is set when the process runs already."""
    ranks = [[{"SET_FIRST": json.dumps(torch(2 * node + n)), "RANK_IS": "RANK"} for n in range(2)] for node in range(2)]
    play(stage, [(srun(node), ranks[node]) for node in range(2)])
    assert placed(stage, "torch") == FOUR


def test_variables_of_the_batch_script(stage: Stage) -> None:
    """RANK and WORLD_SIZE that a batch script exports are the same in all tasks, and srun is nearer."""
    outer = {**batch(), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "RANK_IS": "SLURM_PROCID"}
    play(stage, [(outer, [srun(node) for node in range(2)])])
    assert placed(stage, "slurm") == [(0, 0, 2), (1, 0, 2)]


def test_srun_within_a_rank_of_torchrun(stage: Stage) -> None:
    """The other way round than usual: no order of names decides, but who was last."""
    outer = {**torch(1, 2), **ELASTIC, "TORCHELASTIC_RUN_ID": "outer"}
    play(stage, [(outer, [{**srun(task), "RANK_IS": "SLURM_PROCID"} for task in range(2)])])
    assert placed(stage, "slurm") == [(0, 0, 2), (1, 0, 2)]


def test_srun_with_its_pmi(stage: Stage) -> None:
    """--mpi=pmi2 and --mpi=pmix: the same numbers by two names, and it was srun."""
    tasks = [{**srun(n, 3), "PMI_RANK": str(n), "PMI_SIZE": "3", "PMIX_RANK": str(n)} for n in range(3)]
    play(stage, [({"RANK_IS": "PMI_RANK"}, tasks)])
    assert placed(stage, "slurm") == [(0, 0, 3), (1, 0, 3), (2, 0, 3)]


def test_ray_within_a_batch_job(stage: Stage) -> None:
    """Its workers are no ranks, whatever the task is that started Ray on their node."""
    workers = [{"RAY_RAYLET_PID": "77", "RAY_JOB_ID": "02000000", "RANK_IS": "RAY_RAYLET_PID"} for _ in range(2)]
    play(stage, [(srun(1), workers)])
    finished(stage)
    assert [w.rank for w in merged(stage).workers] == [None, None]
    assert launchers(stage, merged(stage).workers) == {'"ray"'}


def test_children_of_ranks(stage: Stage) -> None:
    """A forked child has its parent's numbers, or those that it sets itself."""
    forks = json.dumps([{}, torch(3)])
    play(stage, [(srun(1), [{**torch(2), **ELASTIC, "TORCHELASTIC_RUN_ID": "x", "FORKS": forks}])])
    assert placed(stage, "torchrun") == [(2, 0, 4)]
    assert placed(stage, "torchrun", "forked") == [(2, 0, 4), (3, 1, 4)]


def test_processes_whose_ancestors_cannot_be_read(stage: Stage) -> None:
    """A process that has written over its environment (setproctitle) tells nothing: the usual order counts."""
    rank = stage.script(OVERWRITE + RANK)
    outer = {**srun(1), **torch(3), **ELASTIC, "TORCHELASTIC_RUN_ID": "x"}
    run_process([sys.executable, str(rank)], cwd=stage.folder, env=stage.environment(**outer)).expect()
    assert placed(stage, "torchrun") == [(3, 1, 4)]


def test_torchrun_itself(stage: Stage) -> None:
    need("torch")
    rank = stage.script(RANK)
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(rank)]
    outer = {**srun(1), "RANK_IS": "RANK"}
    run_process(line, cwd=stage.folder, env=stage.environment(**outer)).expect()
    assert placed(stage, "torchrun") == [(0, 0, 2), (1, 1, 2)]


def test_openmpi_itself(stage: Stage) -> None:
    mpirun = launcher("mpirun.openmpi", "openmpi-bin")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # It must not look for Slurm's own programs, which are not here.
    alone = ["--mca", "plm", "isolated", "--mca", "ras", "^slurm", "--mca", "ess", "^slurm"]
    line = [mpirun, *alone, "--oversubscribe", "-n", "3", sys.executable, str(stage.script(RANK))]
    outer = {**batch(3), **root, "RANK_IS": "OMPI_COMM_WORLD_RANK"}
    run_process(line, cwd=stage.folder, env=stage.environment(**outer)).expect()
    assert placed(stage, "openmpi") == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]


def test_mpich_itself(stage: Stage) -> None:
    mpiexec = launcher("mpiexec.hydra", "mpich")
    line = [mpiexec, "-launcher", "fork", "-rmk", "user", "-n", "3", sys.executable, str(stage.script(RANK))]
    run_process(line, cwd=stage.folder, env=stage.environment(**batch(3), RANK_IS="PMI_RANK")).expect()
    assert placed(stage, "mpich") == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
