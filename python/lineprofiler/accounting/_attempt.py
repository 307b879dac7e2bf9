"""One run id for processes that belong together though none that is recorded has started them all.

They could inherit none: each would be an attempt of its own, and a report would show one process.

Ranks of a launcher have what it told each of them. Only facts that are new with each launch make an id; where a
launcher tells none, its process does, if all ranks are on this host. Else there is no id, and LINEPROFILER_RUN_ID must
be set. A launch of one rank needs none: that is also an interactive shell, in which a second run is another attempt.

Processes that Python has forked, or started by multiprocessing, have the first of these Pythons (gunicorn, uvicorn, a
pool of a main program that records nothing), unless somebody types into it, who may start one run after the other.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANCESTORS = 32
_STARTED = (
    b"\0from multiprocessing.spawn import spawn_main",
    b"\0from multiprocessing.forkserver import main",
    b"\0import sys; from multiprocessing.forkserver import main",  # 3.14
    b".popen_loky_posix\0",
)
_TYPED_INTO = (b"\0-i\0", b"ipython", b"ipykernel", b"jupyter")


def launched_run_id(environ: Mapping[str, str]) -> str | None:
    """The id for this process's launch, as ``openmpi-1f0c…``; None outside of one. Never raises."""
    for launcher, facts in (
        ("torchrun", _torchrun),
        ("openmpi", _openmpi),
        ("mpich", _mpich),
        ("slurm", _slurm),
    ):
        found = facts(environ)
        if found:
            return _named(launcher, found)
    return None


def inherited_run_id() -> str | None:
    """The id of the processes that one Python has forked, or started by multiprocessing, as ``python-1f0c…``; None in
    any other. Never raises."""
    try:
        pid = os.getpid()
        first, fields = pid, _stat(pid)
        for _ in range(_ANCESTORS):
            parent = int(fields[1])
            theirs = _stat(parent) if parent > 0 else []
            if not theirs or not (_is_fork(fields, theirs) or _holds(_command(first), _STARTED)):
                break
            first, fields = parent, theirs
        if first == pid or _is_typed_into(_command(first)):
            return None
        return _named("python", [_boot(), str(first), fields[19].decode()])
    except (OSError, ValueError, IndexError):
        return None  # of another user, or it has just ended


def _named(origin: str, facts: list[str]) -> str:
    import hashlib

    text = "\0".join(facts).encode("utf-8", "surrogateescape")
    return f"{origin}-{hashlib.blake2s(text, digest_size=8).hexdigest()}"


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat from the third on: state, parent, …"""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _command(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return file.read().strip().decode()


def _is_fork(child: list[bytes], parent: list[bytes]) -> bool:
    """Whether both run from one exec: code and stack begin at the same addresses, which exec draws by lot. To those who
    may not know the kernel says 0 or 1."""
    return child[23] == parent[23] and child[25] == parent[25] and len(child[25]) > 1


def _holds(text: bytes, words: tuple[bytes, ...]) -> bool:
    return any(word in text for word in words)


def _is_typed_into(command: bytes) -> bool:
    program, _, arguments = command.partition(b"\0")
    is_bare = not arguments and os.path.basename(program).startswith(b"python")
    return is_bare or _holds(command.lower(), _TYPED_INTO)


def _several(environ: Mapping[str, str], *names: str) -> bool:
    """The first of these variables that is set is a number above one."""
    text = next((environ[name] for name in names if environ.get(name)), "")
    return text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 1


def _torchrun(environ: Mapping[str, str]) -> list[str]:
    name = environ.get("TORCHELASTIC_RUN_ID")
    if not name or not _several(environ, "WORLD_SIZE"):
        return []
    # A restart of the workers is another attempt. The port is a free one, unless the user has named it.
    parts = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID")
    facts = [name, *(environ.get(part, "") for part in parts)]
    if environ.get("LOCAL_WORLD_SIZE") == environ["WORLD_SIZE"]:
        return facts + _launcher("TORCHELASTIC_RUN_ID")
    if name != "none":
        return facts
    # Of several hosts nothing is new with each launch, unless Slurm started one torchrun on each.
    step = _step(environ)
    return facts + step if step else []


def _openmpi(environ: Mapping[str, str]) -> list[str]:
    if not _several(environ, "OMPI_COMM_WORLD_SIZE"):
        return []
    # 128 random bits of this mpirun; from Open MPI 5 on the name of the job, of host, pid and number.
    found = environ.get("OMPI_MCA_orte_precondition_transports") or environ.get("PMIX_NAMESPACE")
    return [found, environ.get("OMPI_MCA_ess_base_jobid", "")] if found else []


def _mpich(environ: Mapping[str, str]) -> list[str]:
    if not environ.get("PMI_RANK") or not _several(environ, "PMI_SIZE"):
        return []
    step = _step(environ)
    if not step and environ.get("MPI_LOCALNRANKS") == environ["PMI_SIZE"]:
        return _launcher("PMI_RANK")
    return step


def _slurm(environ: Mapping[str, str]) -> list[str]:
    return _step(environ) if _several(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") else []


def _step(environ: Mapping[str, str]) -> list[str]:
    """Without a step it is the batch script, in which one program may run after another."""
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    if not job or not step:
        return []
    return [job, step, environ.get("SLURM_RESTART_COUNT", ""), environ.get("SLURM_CLUSTER_NAME", "")]


def _launcher(variable: str) -> list[str]:
    """[boot id, pid, start time] of the nearest ancestor without `variable`: a shell between has it, too."""
    marked = f"\0{variable}=".encode()
    pid = os.getppid()
    try:
        for _ in range(_ANCESTORS):
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = b"\0" + file.read()
            fields = _stat(pid)
            if marked not in environ:
                return [_boot(), str(pid), fields[19].decode()]
            pid = int(fields[1])
    except (OSError, ValueError, IndexError):
        pass  # of another user, or it has just ended
    return []
