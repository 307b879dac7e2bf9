"""A place where recorded programs of several processes run, with shared memory of its own.

Programs start in `stage.folder`, record into `run` there, and put their segments below `stage.shm`, so that what is
left over is theirs. Fixture `stage` of tests/conftest.py.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from lptest import LIMIT_S, Done, environment, lineprofiler, run_process

COLLECTOR_NAME = "lineprofiler-co"  # lineprofiler-collector, as the kernel cuts it
COLLECTOR_LOCK_FD = 3  # LOCK_FD of src/collector/start.c
# A collector ends within a second after the last process; two busy cores may need some more.
SETTLED_S = 5.0


def shared_folder() -> str:
    """A new folder in shared memory (where there is none, on disk: all but the speed is the same)."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.mkdtemp(prefix="lptest-", dir=base)


def wait_for(condition: Callable[[], object], what: str, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s} s: {what}"
        time.sleep(0.005)


def processes_with(argument: str, name: str) -> list[int]:
    """Pids of processes of that name (15 characters, as the kernel cuts it) with `argument` in their command line."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if Path(entry.path, "comm").read_text().rstrip("\n") != name:
                continue
            if argument.encode() in Path(entry.path, "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass  # it has just ended
    return sorted(found)


def processes_holding(start: str, fd: int) -> list[int]:
    """Pids of processes whose descriptor of that number is of a collector's lock with a path that begins so."""
    found = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"{entry.path}/fd/{fd}") if entry.name.isdigit() else ""
            if path.startswith(start) and "/.collector-" in path:
                found.append(int(entry.name))
    return found


def collectors_below(shm: Path) -> set[int]:
    """Pids of collectors of that shared memory, also of one that is just becoming one: the kernel lets the program go
    on a moment before name and command line are there. Its lock is where it will look for it."""
    return {*processes_with(str(shm), COLLECTOR_NAME), *processes_holding(f"{shm}/", COLLECTOR_LOCK_FD)}


def is_leaving(pid: int) -> bool:
    """Whether a collector has still to give its descriptors back, locks with them: a killed one loses its command line
    and its list of descriptors first, and may be kept from going on by others. A thread that is a zombie has done it.
    """
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text() != f"{COLLECTOR_NAME}\n":
            return False  # somebody else, who only seemed to become one
        for thread in os.scandir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                if Path(thread.path, "stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X"):
                    return True
    return False


def parent_of(pid: int) -> int:
    """0: it has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


def has_pidfd(collector: int, pid: int) -> bool:
    """Whether a process that may end meanwhile is told of that other one's death."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{collector}/fdinfo"):
            with contextlib.suppress(OSError):
                if f"\nPid:\t{pid}\n" in Path(entry.path).read_text():
                    return True
    return False


def descriptors(pid: int) -> list[str]:
    """What the descriptors of a process lead to; empty if it has ended."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry.path))
    return found


@dataclass
class Stage:
    folder: Path
    shm: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    scripts: int = 0
    known: set[int] = field(default_factory=set)  # collectors that were seen
    collector: bool = True  # False: programs run without one, and look after themselves

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def environment(self, **extra: str) -> dict[str, str]:
        switch = {} if self.collector else {"LINEPROFILER_COLLECTOR": "0"}
        return environment(**{"LINEPROFILER_SHM_DIR": str(self.shm), **switch, **extra})

    def script(self, code: str, name: str = "") -> Path:
        """A program text as a file; without a name in one of its own, so that programs may run side by side."""
        self.scripts += 1
        path = self.folder / (name or f"program{self.scripts}.py")
        path.write_text(textwrap.dedent(code), encoding="utf-8")
        return path

    def python(
        self,
        code: str,
        *args: object,
        options: tuple[str, ...] = (),
        name: str = "",
        env: dict[str, str] | None = None,
    ) -> Done:
        """Runs a program to its end; `env` is added to its environment."""
        command = [sys.executable, *options, str(self.script(code, name)), *map(str, args)]
        return run_process(command, cwd=self.folder, env=self.environment(**(env or {})))

    def facts(self, code: str, *args: object, options: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Any:
        """The value that a program prints in its last line, as repr()."""
        done = self.python(code, *args, options=options, env=env).expect()
        return ast.literal_eval(done.stdout.splitlines()[-1])

    def start(
        self, code: str, *args: object, name: str = "", before: tuple[str, ...] = (), **extra: str
    ) -> subprocess.Popen[str]:
        """Starts a program with pipes for its stdin and stdout, `before` its own words those of a command that starts
        it; `close` kills what is left of it."""
        process = subprocess.Popen(
            [*before, sys.executable, str(self.script(code, name)), *map(str, args)],
            cwd=self.folder,
            env=self.environment(**extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self.started.append(process)
        return process

    def command(self, *args: object, **extra: str) -> Done:
        return lineprofiler(*args, cwd=self.folder, env=self.environment(**extra))

    def report(self, run: str | Path = "run", expect: int = 0) -> Report:
        done = self.command("report", run, "--json").expect(expect)
        return Report(json.loads(done.stdout))

    def report_or_nothing(self) -> None:
        """A reader that comes at any time: also before the run directory exists, and before anybody recorded."""
        assert self.command("report", "run").returncode in (0, 2)

    def collectors(self) -> list[int]:
        """Pids of the collectors of programs of this stage, also of one that was seen and has not left its lock yet. A
        child that is to ask git is the same for a moment, and no collector."""
        found = collectors_below(self.shm) | {pid for pid in self.known if is_leaving(pid)}
        self.known = {pid for pid in found if parent_of(pid) not in found}
        return sorted(self.known)

    def the_collector(self) -> int:
        """The one that has signed: before that it may be anybody's start, which is given ten seconds."""

        def signer(path: Path) -> list[str]:
            with contextlib.suppress(FileNotFoundError):  # whoever replaces it is just between the two
                return path.read_text().split()[2:3]
            return []

        def signed() -> bool:
            found = self.collectors()
            locks = self.shm.glob("lineprofiler-*/*/.collector-*.lock")
            return len(found) == 1 and any(signer(path) == [str(found[0])] for path in locks)

        wait_for(signed, "a collector")
        (pid,) = self.collectors()
        return pid

    def settle(self) -> None:
        """Waits until the collectors of what has ended are gone: a second is promised, more is for a loaded machine."""
        deadline = time.monotonic() + SETTLED_S
        while self.collectors() and time.monotonic() < deadline:
            time.sleep(0.005)

    def segments(self) -> list[Path]:
        """What lies in shared memory, run folders included; once nobody records any more."""
        self.settle()
        return sorted(p for p in self.shm.glob("lineprofiler-*/**/*"))

    def snapshots(self) -> list[Path]:
        """And what else lies about there, but samples."""
        return sorted(p for p in self.run.glob("workers/*/*") if p.suffix != ".samples")

    def written(self, pid: int | None = None) -> list[Path]:
        """Snapshots of processes, or of one of them, that have their names: each is whole. For who waits for one."""
        return sorted(self.run.glob(f"workers/*/w_*{'' if pid is None else f'_{pid}'}_*.snap"))

    def samples(self, kind: str = "w") -> list[Path]:
        """Sample files of processes, or of hosts (`host`)."""
        return sorted(self.run.glob(f"workers/*/{kind}_*.samples"))

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait(LIMIT_S)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self.settle()
        assert self.collectors() == [], "a collector ends with what it watches"


def private_mounts(stage: Stage, script: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Runs shell lines, in `stage.folder`, where mounts are private; $PY is this Python, $LP the command."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1)")
    probe = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("no private mounts here")
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=stage.folder,
        env=stage.environment(PY=sys.executable, LP=str(Path(sys.executable).with_name("lineprofiler")), **extra),
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT_S,
        check=False,
    )


class Report:
    """A report document by what the tests ask for."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.workers: list[dict[str, Any]] = document["workers"]
        self.caveats: dict[str, Any] = document["caveats"]

    def calls(self, role: str | None = None) -> dict[str, int]:
        """Finished entries by path, over all roles or of one; entered phases only."""
        found: dict[str, int] = {}
        for each in self.document["roles"]:
            if role in (None, each["role"]):
                for phase in each["phases"]:
                    if phase["calls"] or phase["open"]:
                        found[phase["phase"]] = found.get(phase["phase"], 0) + phase["calls"]
        return found

    def counters(self, role: str | None = None) -> dict[str, int]:
        """Counters as "path:name", "" being the path of what was counted outside of every phase."""
        found: dict[str, int] = {}
        for each in self.document["roles"]:
            if role in (None, each["role"]):
                for path, counters in [("", each["counters"])] + [(p["phase"], p["counters"]) for p in each["phases"]]:
                    for name, total in counters.items():
                        found[f"{path}:{name}"] = found.get(f"{path}:{name}", 0) + total
        return found

    def phase(self, role: str, path: str) -> dict[str, Any]:
        (found,) = [p for r in self.document["roles"] if r["role"] == role for p in r["phases"] if p["phase"] == path]
        assert isinstance(found, dict)
        return found

    def states(self, role: str | None = None) -> list[str]:
        return sorted(w["state"] for w in self.workers if role in (None, w["role"]))

    def worker(self, pid: int) -> dict[str, Any]:
        (found,) = [w for w in self.workers if w["pid"] == pid]
        return found

    @staticmethod
    def open_since(worker: dict[str, Any]) -> dict[str, float]:
        """Open phases of a worker by path, and since when (Unix time, s)."""
        return {"/".join(each["path"]): each["since"] for each in worker["open"]}

    def healthy(self) -> None:
        """Nothing was lost, folded or misused anywhere."""
        trouble = {k: v for k, v in self.caveats["health"].items() if v not in (0, "")}
        assert not trouble, trouble
        assert self.caveats["unreadable"] == [], self.caveats["unreadable_reasons"]
