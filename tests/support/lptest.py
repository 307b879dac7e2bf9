"""What the Python tests share: running programs under the recorder, and reading what they left.

A program under test runs in a process of its own wherever its end, its signals, its environment or its modules
matter; the test process itself stays clean.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT.parent / "shared" / "spec"

# One slow step of a loaded two-core machine must not fail a test that asserts no duration.
LIMIT_S = 120


def tells_how() -> bool:
    """The kernel tells who is not the parent how a process died: Linux 6.15 (PIDFD_INFO_EXIT)."""
    return tuple(int(n) for n in platform.release().split("-")[0].split(".")[:2]) >= (6, 15)


@dataclass(frozen=True)
class Done:
    """A finished program."""

    returncode: int
    stdout: str
    stderr: str

    def expect(self, returncode: int = 0) -> Done:
        assert self.returncode == returncode, f"exit {self.returncode}\n{self.stdout}\n{self.stderr}"
        return self


def environment(**extra: str) -> dict[str, str]:
    """The test run's environment without what would steer the product."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LINEPROFILER_")}
    env.update(extra)
    return env


def memory_given_back() -> dict[str, str]:
    """More of an environment, for programs whose memory is looked at: the address sanitizer, where it runs, keeps what
    was freed for a while unless it is told otherwise."""
    options = os.environ.get("ASAN_OPTIONS")
    if options is None:
        return {}
    return {"ASAN_OPTIONS": f"{options}:quarantine_size_mb=0:thread_local_quarantine_size_kb=0"}


def run_process(
    command: list[str],
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    limit_s: float = LIMIT_S,
    stdin: str = "",
) -> Done:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env if env is not None else environment(),
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=limit_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_python(
    code: str,
    *args: object,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    limit_s: float = LIMIT_S,
    options: tuple[str, ...] = (),
) -> Done:
    """Runs a program text as a file of its own (so that `spawn` can import it), in `cwd` if given."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="lptest-") as folder:
        script = Path(folder) / "program.py"
        script.write_text(textwrap.dedent(code), encoding="utf-8", errors="surrogateescape")
        command = [sys.executable, *options, str(script), *map(str, args)]
        return run_process(command, cwd=cwd, env=env, limit_s=limit_s)


def lineprofiler(*args: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> Done:
    """The installed `lineprofiler` command, as a user starts it."""
    command = Path(sys.executable).with_name("lineprofiler")
    return run_process([str(command), *map(str, args)], cwd=cwd, env=env)


def commands() -> dict[str, str]:
    """Names and summaries of the subcommands, as the usage has them."""
    text = lineprofiler("--help").expect().stdout
    return dict(re.findall(r"^ {2}(\w+) {2,}(\S.*)$", text[text.index("commands:") :], re.M))


def report_json(run_dir: Path) -> dict[str, Any]:
    document = json.loads(lineprofiler("report", run_dir, "--format", "json").expect().stdout)
    assert isinstance(document, dict)
    return document


def phases_of(document: dict[str, Any], role: str) -> dict[str, dict[str, Any]]:
    """A role's phases of a report document by their joined path."""
    found = [r for r in document["roles"] if r["role"] == role]
    assert len(found) == 1, f"{role}: {[r['role'] for r in document['roles']]}"
    return {p["phase"]: p for p in found[0]["phases"]}
