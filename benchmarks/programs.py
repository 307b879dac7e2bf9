"""Real programs under every tool: how much slower the whole run is, interpreter, imports and the tool's own result
included.

Each run is a process of its own in a folder of its own. The rounds are interleaved: the program bare, then under
each tool, the order turned every round, and a tool's factor is taken to the bare run of its round. The programs are
copied, with the package that they use, into a folder that is a project as tools find one. A run counts only if the
program came to the same result as bare and the tool left its result; a tool that does not install, fails, or takes
longer than the limit is in the table with what happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import envs
from envs import Interpreter, SetupError, say
from measuring import HERE, spread
from ways import BARE, WAYS, Way

PROGRAMS = {"sql": "sqlglot", "markdown": "mistune", "graph": "networkx"}
REQUIREMENTS = HERE / "requirements-programs.txt"
# A run may take this many times the bare one, and no less than so many seconds.
LIMIT, LIMIT_LEAST_S = 30.0, 8.0
# A tool this much slower than bare is measured in two rounds only: its factor is known well enough.
SLOW, SLOW_ROUNDS = 3.0, 2
# Work is about a second. A quick look takes one program that every tool can finish, and this part of its work.
QUICK_PROGRAM, QUICK_SIZE = "graph", 0.05


def project(interpreter: Interpreter, python: Path, folder: Path) -> Path:
    """The programs and their packages as one project, by itself: not below site-packages, with a `.git`."""
    made = envs.BUILD / "bench" / f"programs-{interpreter}"
    stamp = made / "requirements.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(made, ignore_errors=True)
        say(f"    installing {', '.join(envs.requirement_lines(REQUIREMENTS))}")
        envs.run(
            [python, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", made, "-r", REQUIREMENTS],
            "pip install of the programs",
        )
        stamp.write_text(wanted, encoding="utf-8")
    place = folder / "project"
    place.mkdir()
    (place / ".git").mkdir()
    for package in PROGRAMS.values():
        shutil.copytree(made / package, place / package)
    for source in sorted((HERE / "programs").glob("*.py")):
        shutil.copy(source, place)
    # Compiled before, as a program is that was started before: else the first tool would pay for all.
    envs.run([python, "-m", "compileall", "-q", place], "compiling the programs")
    return place


@dataclass
class Run:
    """One run of a program under a tool, or why it is none."""

    seconds: float = 0.0
    work: float = 0.0
    peak_mb: float = 0.0
    left_mb: float = 0.0
    found: str = ""
    error: str = ""


def modules_of(place: Path, package: str) -> str:
    """The package by its parts, as kernprof's `-p` wants it: given whole, it imports `__main__`, too, which starts."""
    parts = [p for p in sorted((place / package).iterdir()) if p.suffix == ".py" or (p / "__init__.py").exists()]
    return ",".join(f"{package}.{p.stem}" for p in parts if not p.stem.startswith("__"))


def left(folder: Path, pattern: str) -> list[Path]:
    return [p for p in sorted(folder.glob(pattern)) if p.is_file() and p.stat().st_size > 0]


def last_words(folder: Path) -> str:
    """What a tool said before it failed, in one line."""
    lines = (folder / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip() and not line.startswith((" ", "\t"))]
    return said[-1][:160] if said else "nothing was said"


def wait_for(child: subprocess.Popen[bytes], limit: float) -> tuple[int, float, bool]:
    """Exit status, peak memory in MB, and whether the limit had to end it."""
    late = threading.Event()

    def end() -> None:
        late.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    timer = threading.Timer(limit, end)
    timer.start()
    try:
        _, status, usage = os.wait4(child.pid, 0)
    except BaseException:  # an interrupt reaches us alone: the child has a session of its own
        end()
        raise
    finally:
        timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_maxrss / 1024, late.is_set()


def run_once(way: Way, venv: Path, place: Path, program: str, size: float, limit: float, folder: Path) -> Run:
    folder.mkdir()
    try:
        return run_in(way, venv, place, program, size, limit, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_in(way: Way, venv: Path, place: Path, program: str, size: float, limit: float, folder: Path) -> Run:
    words = {
        "main": str(place / "main.py"),
        "program": program,
        "modules": modules_of(place, PROGRAMS[program]),
        "size": str(size),
        "result": str(folder / "result.json"),
    }
    env = envs.clean_environment(PATH=envs.tool_path(venv), TMPDIR=str(folder), PYTHONHASHSEED="0")
    with open(folder / "output.txt", "wb") as output:
        start = time.perf_counter()
        try:
            child = subprocess.Popen(
                way.command(venv, words),
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Run(error=f"did not start: {error.strerror}")
        status, peak, late = wait_for(child, limit)
        seconds = time.perf_counter() - start
    return judged(way, program, folder, Run(seconds=seconds, peak_mb=peak), status, late)


def judged(way: Way, program: str, folder: Path, run: Run, status: int, late: bool) -> Run:
    """The run with what it left, or with what is wrong with it."""
    if late:
        return Run(seconds=run.seconds, error=f"took longer than {run.seconds:.0f} s")
    if status != 0:
        return Run(error=f"ended with {status}: {last_words(folder)}")
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Run(error=f"the program did not come to its end: {last_words(folder)}")
    files = left(folder, way.leaves) if way.leaves else []
    if way.leaves and not files:
        return Run(error=f"left no {way.leaves}: {last_words(folder)}")
    if way.names_hot and not any(hot_name(program).encode() in p.read_bytes() for p in files):
        return Run(error=f"{hot_name(program)} is not in its result")
    run.work, run.found = float(result["work"]), str(result["found"])
    run.left_mb = sum(p.stat().st_size for p in files) / 1e6
    return run


def hot_name(program: str) -> str:
    """Last part of the name of the function that matters, as its program names it."""
    text = (HERE / "programs" / f"program_{program}.py").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("HOT = "))
    return line.split('"')[1]


@dataclass
class Measured:
    """A tool's rounds under one program."""

    runs: list[Run] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)  # whole run, to bare of the same round
    work_factors: list[float] = field(default_factory=list)
    error: str = ""

    def wants(self, number: int) -> bool:
        slow = self.factors and statistics.median(self.factors) > SLOW
        return not self.error and (number < SLOW_ROUNDS or not slow)

    def add(self, run: Run, bare: Run) -> None:
        if run.error or run.found != bare.found:
            self.error = run.error or "the program came to another result"
            return
        self.runs.append(run)
        self.factors.append(run.seconds / bare.seconds)
        self.work_factors.append(run.work / bare.work)

    def summary(self) -> dict[str, Any]:
        return {
            "error": self.error or None,
            "seconds": spread([r.seconds for r in self.runs]),
            "factor": spread(self.factors),
            "work": spread([r.work for r in self.runs]),
            "work_factor": spread(self.work_factors),
            "peak_mb": spread([r.peak_mb for r in self.runs]),
            "left_mb": spread([r.left_mb for r in self.runs]),
        }


def turned(ways: list[Way], number: int) -> Iterator[Way]:
    """The order of a round: forwards, then backwards, from another start each time."""
    first = (number // 2 * 5) % len(ways)
    order = ways[first:] + ways[:first]
    return iter(order if number % 2 == 0 else order[::-1])


def measure_program(
    program: str, places: dict[str, Path], missing: dict[str, str], place: Path, rounds: int, size: float, folder: Path
) -> dict[str, Any]:
    measured = {way.key: Measured(error=missing.get(way.needs, "")) for way in WAYS}
    others = [way for way in WAYS if way is not BARE]
    for number in range(rounds):

        def once(way: Way, limit: float, at: int = number) -> Run:
            return run_once(way, places[way.side], place, program, size, limit, folder / f"{program}-{way.key}-{at}")

        bare = once(BARE, 600.0)
        if bare.error:
            raise SetupError(f"{program} alone {bare.error}")
        measured["bare"].add(bare, bare)
        limit = max(LIMIT_LEAST_S, LIMIT * bare.seconds)
        for way in turned(others, number):
            if measured[way.key].wants(number):
                measured[way.key].add(once(way, limit), bare)
    return {key: each.summary() for key, each in measured.items()}


def measure_programs(
    interpreter: Interpreter, places: dict[str, Path], missing: dict[str, str], rounds: int, quick: bool, folder: Path
) -> dict[str, Any]:
    place = project(interpreter, envs.python_of(places["ours"]), folder)
    found = {}
    for program in [QUICK_PROGRAM] if quick else PROGRAMS:
        say(f"    {program} ({PROGRAMS[program]})")
        found[program] = measure_program(program, places, missing, place, rounds, QUICK_SIZE if quick else 1.0, folder)
    return found
