"""Our calls, lines, collector and reports, each beside the peer that has the same: how the rounds go.

Both packages are imported as `lineprofiler`, hence an environment each. Each figure comes from processes of its
own, started ours, peer, ours, peer, …, and the ratio is taken round by round, so that a slow minute of the machine
takes both.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import envs
import sampled_run
from envs import Interpreter, SetupError, say
from measuring import HERE, Figures, Values, add, run_work

PEER_REQUIREMENTS = HERE / "requirements-peer.txt"
LINES_REQUIREMENTS = HERE / "requirements-lines.txt"


# --- environments ---


def environments(interpreter: Interpreter) -> tuple[Path, Path]:
    ours = envs.environment(interpreter, f"bench-ours-{interpreter}", [envs.BUILD_REQUIREMENTS])
    envs.install_wheel(ours, envs.build_wheel(ours, f"bench-{interpreter}"))
    return ours, envs.environment(interpreter, f"bench-peer-{interpreter}", [PEER_REQUIREMENTS])


def lines_environment(interpreter: Interpreter) -> Path:
    venv = envs.environment(interpreter, f"bench-lines-{interpreter}", [envs.BUILD_REQUIREMENTS, LINES_REQUIREMENTS])
    envs.install_wheel(venv, envs.build_wheel(venv, f"bench-{interpreter}"))
    return venv


# --- measuring ---


def floors(folder: Path) -> Values:
    program = folder / "floor"
    if not program.exists():
        compiler = os.environ.get("CC", "cc")
        envs.run([compiler, "-O2", "-o", program, HERE / "floor.c"], "compiling floor.c")
    out = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return {name: float(value) for name, value in (line.split() for line in out.splitlines())}


def report_cost(venv: Path, run_dir: Path, *options: str) -> Values:
    """Seconds and peak memory of `lineprofiler report`, interpreter and all, from the kernel's own account."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [str(venv / "bin" / "lineprofiler"), "report", str(run_dir), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=envs.clean_environment(),
    )
    assert child.stdout is not None
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if child.returncode != 0 or len(text) < 200:
        raise SetupError(f"report of {run_dir.name} in {venv.name} ended with {child.returncode}, {len(text)} bytes")
    return {"seconds": seconds, "peak_mb": usage.ru_maxrss / 1024}


def measure_calls(ours: Path, peer: Path, rounds: int, folder: Path) -> Figures:
    figures: Figures = {}
    for number in range(rounds):
        for workload in ("phases", "phases_without_cpu", "nothing_installed", "first_visit", "mcts"):
            # The order changes every round: neither side always has the warmer machine.
            sides = [("ours", ours), ("peer", peer)]
            for side, venv in sides if number % 2 == 0 else sides[::-1]:
                add(figures, side, run_work(venv, workload, cwd=folder))
        for _ in range(3):
            for side, venv in (("ours", ours), ("peer", peer)):
                add(figures, side, run_work(venv, "import_time", cwd=folder))
        add(figures, "ours", floors(folder))
    for workload in ("segment_threads", "segment_paths"):
        add(figures, "ours", run_work(ours, workload, cwd=folder))
    return figures


def measure_reports(ours: Path, peer: Path, rounds: int, folder: Path, large: bool) -> Figures:
    figures: Figures = {}
    runs: list[tuple[str, str, Path, int]] = [("ours", "512", ours, 512), ("peer", "512", peer, 512)]
    if large:
        runs.append(("ours", "4096", ours, 4096))
    for side, name, venv, workers in runs:
        say(f"    making a run of {workers} workers ({side})")
        run_work(venv, "make_run", folder / f"{side}-{name}", workers, 64, cwd=folder)
    for _ in range(rounds):
        for side, name, venv, _workers in runs:
            cost = report_cost(venv, folder / f"{side}-{name}", "--no-samples")
            add(figures, side, {f"report_{name}_{key}": value for key, value in cost.items()})
    if large:
        say("    making a run of 64 workers with samples of 12 hours")
        megabytes = sampled_run.write(folder / "sampled", workers=64, hours=12)
        for _ in range(rounds):
            cost = report_cost(ours, folder / "sampled")
            add(figures, "ours", {f"report_sampled_{key}": value for key, value in cost.items()})
            add(figures, "ours", {"sampled_file_mb": megabytes})
    return figures


def measure_lines(venv: Path, rounds: int, folder: Path) -> Figures:
    """The line engine and line_profiler, in turns within one process; "peer" is line_profiler."""
    figures: Figures = {}
    for _ in range(rounds):
        values: dict[str, Any] = run_work(venv, 3, "json", cwd=folder, script="lines.py")
        for key, pair in values.items():
            for side, value in zip(("ours", "peer"), pair, strict=False):
                add(figures, side, {key: value})
    return figures


def measure_collector(ours: Path, rounds: int, folder: Path, quick: bool) -> Figures:
    figures: Figures = {}
    for number in range(rounds):
        for workload in (
            "fork_first_phase",
            "start_large",
            "start_subreaper",
            "stop_together",
            "beside_64",
            "beside_64_often",
            "beside_64_waiting",
            "while_it_reads",
            "torch_reading",
            "deaths",
        ):
            place = folder / f"{workload}-{number}"
            place.mkdir()
            words = [workload, *(["quick"] if quick else [])]
            add(figures, "ours", run_work(ours, *words, cwd=place, script="collector.py"))
    return figures
