"""Instructions of the hot paths, counted exactly: a guard that needs no quiet machine.

instructions.c runs one path of src/core under callgrind, N times and 3 N times; the difference over 2 N is what one
pass takes, without what comes once. The figures that are kept (instructions.json) belong to a compiler, whose name
and version are their key: with another one nothing can be compared, and that is said. A path that takes more than
10 % more than the kept figure fails; one that takes less is to be kept as the new figure (`--accept`), or a later
loss would hide in it.

    python benchmarks/instructions.py [--accept]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))

import envs  # noqa: E402
from envs import ROOT, SetupError, say  # noqa: E402

KEPT = HERE / "instructions.json"
BUILT = ROOT / "build" / "bench" / "instructions"
# As the extension is built (meson.build), so that the inline parts come out alike. Every valgrind reads DWARF 4.
FLAGS = ["-O2", "-gdwarf-4", "-std=gnu17", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden"]
PASSES = 1000
LIMIT = 1.10
WHAT = {
    "phase": "a phase: entered and left, below another one",
    "skipped": "a phase that `sample=` leaves out",
    "count": "a count",
    "line": "a line event",
    "call": "a call of a profiled function: its begin and end",
    "region": "a region: entered and left, within a profiled function",
}


class UnavailableError(SetupError):
    """Nothing can be counted on this machine; the message says why."""


@dataclass
class Outcome:
    compiler: str
    found: dict[str, int]
    kept: dict[str, int] | None
    failures: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {"compiler": self.compiler, "found": self.found, "kept": self.kept}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outcome:
        return compare(values["compiler"], values["found"], values["kept"])


def compilers() -> list[str]:
    """gcc and clang, each if it is there; a CC that is neither by name is taken as well."""
    wanted = [os.environ.get("CC", "cc"), "gcc", "clang"]
    found: dict[str, str] = {}
    for name in wanted:
        if shutil.which(name.split()[0]):
            found.setdefault(version_of(name), name)
    if not found:
        raise SetupError("no C compiler was found; on Debian: apt-get install gcc libc6-dev")
    return list(found.values())


def version_of(compiler: str) -> str:
    """Kind, version as the distribution names it, and machine: what the figures depend on."""
    shown = subprocess.run(
        [*compiler.split(), "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=envs.clean_environment(LC_ALL="C"),
    ).stdout.splitlines()[0]
    kind = "clang" if "clang" in shown else "gcc"
    version = re.sub(r"^.*?(?=\(|version )", "", shown).strip() if kind == "gcc" else shown
    return f"{kind}: {version}, {platform.machine()}"


def build(compiler: str, number: int) -> Path:
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / f"{number}-instructions"
    sources = sorted((ROOT / "src" / "core").glob("*.c"))
    flags: list[object] = [*FLAGS, f"-I{ROOT / 'src'}", "-Wall", "-Wextra", "-Werror"]
    envs.run(
        [*compiler.split(), *flags, HERE / "instructions.c", *sources, "-o", program, "-pthread", "-lm"],
        f"{compiler}: building instructions.c",
    )
    return program


def collected(program: Path, path: str, passes: int) -> int:
    command = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--collect-atstart=no",
        f"--toggle-collect=measured_{path}",
        str(program),
        path,
        str(passes),
    ]
    shown = envs.run(list(command), f"callgrind of {path}")
    match = re.search(r"Collected : (\d+)", shown)
    if not match or match[1] == "0":
        raise SetupError(f"callgrind counted nothing in measured_{path}:\n{shown[-2000:]}")
    return int(match[1])


def one_path(program: Path, path: str) -> int:
    few, many = (collected(program, path, n) for n in (PASSES, 3 * PASSES))
    return round((many - few) / (2 * PASSES))


def compare(compiler: str, found: dict[str, int], kept: dict[str, int] | None) -> Outcome:
    outcome = Outcome(compiler, found, kept)
    for path, count in found.items() if kept is not None else ():
        if path not in kept:
            outcome.failures.append(f"{path}: no figure is kept")
        elif count > LIMIT * kept[path]:
            outcome.failures.append(f"{path}: {count} instructions, {kept[path]} are kept, {count / kept[path]:.2f}x")
        elif count < kept[path]:
            outcome.better.append(f"{path}: {count} instructions, {kept[path]} are kept")
    outcome.failures += [f"{path}: kept, but not measured" for path in kept or () if path not in found]
    return outcome


def measure() -> list[Outcome]:
    """Each compiler at hand; SetupError where the paths cannot be counted at all."""
    if platform.machine() not in ("x86_64", "aarch64"):
        raise UnavailableError(f"instructions.c knows no clock of {platform.machine()}")
    if shutil.which("valgrind") is None and not envs.debian_install("valgrind"):
        raise UnavailableError("valgrind is missing (on Debian: apt-get install valgrind)")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    outcomes = []
    for number, compiler in enumerate(compilers()):
        program, version = build(compiler, number), version_of(compiler)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            counts = list(pool.map(lambda path, at=program: one_path(at, path), WHAT))
        outcomes.append(compare(version, dict(zip(WHAT, counts, strict=True)), kept.get(version)))
    return outcomes


def accept(outcomes: list[Outcome]) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    for outcome in outcomes:
        kept[outcome.compiler] = outcome.found
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def table(outcome: Outcome) -> list[str]:
    lines = [
        f"| what ({outcome.compiler}) | instructions | kept | must be | met |",
        "|---|---:|---:|---|---|",
    ]
    for path, what in WHAT.items():
        kept = (outcome.kept or {}).get(path)
        bad = any(failure.startswith(f"{path}:") for failure in outcome.failures)
        verdict = "" if outcome.kept is None else "**no**" if bad else "yes"
        lines.append(f"| {what} | {outcome.found[path]} | {kept or ''} | ≤ 1.1 x kept | {verdict} |")
    return lines


def closing(outcomes: list[Outcome]) -> tuple[list[str], bool]:
    """What to say at the end, and whether all is well."""
    lines = []
    for outcome in outcomes:
        if outcome.kept is None:
            lines.append(f"left out: no figures are kept for {outcome.compiler} (--accept keeps these)")
        lines += [f"{outcome.compiler}: more instructions: {failure}" for failure in outcome.failures]
        lines += [f"{outcome.compiler}: fewer instructions: {better} (--accept)" for better in outcome.better]
    compared = sum(len(o.found) for o in outcomes if o.kept is not None)
    failures = sum(len(o.failures) for o in outcomes)
    lines.append(f"{compared - failures} of {compared} hot paths take no more instructions than are kept")
    return lines, failures == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="counts the instructions of the hot paths against the kept figures")
    parser.add_argument("--accept", action="store_true", help="keep what is measured as the new figures")
    args = parser.parse_args()
    try:
        outcomes = measure()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    for outcome in outcomes:
        say("\n".join(table(outcome)))
    if args.accept:
        accept(outcomes)
        say(f"kept in {KEPT.relative_to(ROOT)}")
        return 0
    lines, good = closing(outcomes)
    say("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
