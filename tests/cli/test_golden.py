"""What the command prints, to the last column, for runs with fixed numbers.

The runs are written by tests/support/snapfile.py from the schema. `GOLDEN_UPDATE=1 pytest tests/cli` writes the
expected texts anew: look at the difference before you believe it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import snapfile
from lptest import commands, environment, lineprofiler

GOLDEN = Path(__file__).parent / "golden"

CASES = [
    (name, run, options, extra)
    for run in ("mcts", "copier", "troubled", "hostile", "chain", "empty", "sampled")
    for name, options, extra in [
        (f"report-{run}-80.txt", [], {}),
        (f"report-{run}-120.txt", [], {"COLUMNS": "120"}),
        (f"report-{run}-ascii.txt", ["--all"], {"LC_ALL": "C"}),
        (f"report-{run}.json", ["--format", "json"], {}),
    ]
]


def plain(**extra: str) -> dict[str, str]:
    env = environment(LC_ALL="C.UTF-8", **{k: v for k, v in extra.items() if k != "LC_ALL"})
    env.update(extra)
    if "COLUMNS" not in extra:
        env.pop("COLUMNS", None)
    return env


def without_ages(text: str) -> str:
    """How long ago something was depends on the day of the test."""
    return re.sub(r" +\d+ days", " N days", text)


def check(name: str, got: str) -> None:
    got = without_ages(got)
    path = GOLDEN / name
    if os.environ.get("GOLDEN_UPDATE"):
        path.write_text(got, encoding="utf-8", newline="")
    assert got == path.read_text(encoding="utf-8"), f"{path.name} differs (GOLDEN_UPDATE=1 rewrites it)"


@pytest.mark.one_version
@pytest.mark.parametrize(("name", "run", "options", "extra"), CASES, ids=[c[0] for c in CASES])
def test_report(name: str, run: str, options: list[str], extra: dict[str, str], tmp_path: Path) -> None:
    snapfile.RUNS[run](tmp_path / run)
    done = lineprofiler("report", run, *options, cwd=tmp_path, env=plain(**extra)).expect()
    assert done.stderr == ""
    check(name, done.stdout)


TOPS = [
    ("top-mcts-80.txt", "mcts", [], {}),
    ("top-mcts-140.txt", "mcts", ["--sort", "total"], {"COLUMNS": "140"}),
    ("top-mcts-role.txt", "mcts", ["--role", "learner", "--sort", "name"], {}),
    ("top-mcts-filter.txt", "mcts", ["--filter", "SCORE"], {}),
    ("top-mcts-40.txt", "mcts", [], {"COLUMNS": "40"}),
    ("top-troubled-80.txt", "troubled", [], {}),
    ("top-troubled-ascii.txt", "troubled", [], {"LC_ALL": "C"}),
    ("top-hostile-80.txt", "hostile", [], {}),
    ("top-hostile-ascii.txt", "hostile", [], {"LC_ALL": "C"}),
    ("top-empty-80.txt", "empty", [], {}),
]


@pytest.mark.one_version
@pytest.mark.parametrize(("name", "run", "options", "extra"), TOPS, ids=[c[0] for c in TOPS])
def test_top(name: str, run: str, options: list[str], extra: dict[str, str], tmp_path: Path) -> None:
    snapfile.RUNS[run](tmp_path / run)
    done = lineprofiler("top", "--once", *options, run, cwd=tmp_path, env=plain(**extra)).expect()
    assert done.stderr == ""
    check(name, done.stdout)


@pytest.mark.one_version
@pytest.mark.parametrize("form", ["txt", "json"])
def test_compare(form: str, tmp_path: Path) -> None:
    snapfile.write_mcts(tmp_path / "a")
    snapfile.write_mcts(tmp_path / "b", scale=3)
    thin = snapfile.Worker("saver", pid=9)
    thin.phase("only_here", 5, snapfile.MS, snapfile.MS)
    thin.write(tmp_path / "b")
    format_ = {"txt": "text", "json": "json"}[form]
    done = lineprofiler("compare", "a", "b", "--format", format_, cwd=tmp_path, env=plain()).expect()
    check(f"compare.{form}", done.stdout)


@pytest.mark.one_version
def test_dump(tmp_path: Path) -> None:
    path = snapfile.copier().write(tmp_path / "run")
    check("dump-copier.txt", lineprofiler("dump", path, env=plain()).expect().stdout)


@pytest.mark.one_version
@pytest.mark.parametrize("command", ["", *(c for c in commands() if c not in ("lines", "run"))])  # those are argparse's
def test_help(command: str) -> None:
    words = [command] if command else []
    check(f"help-{command or 'all'}.txt", lineprofiler(*words, "--help", env=plain()).expect().stdout)
