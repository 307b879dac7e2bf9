"""What tests of other people's programs share: whether they are here, and what a run of theirs left."""

from __future__ import annotations

import importlib.util
import shutil
from typing import Any

import pytest
from lpstage import Report, Stage


def need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(
            f"no {module} here: tested on Python 3.11 without sanitizers (tests/requirements-clients-heavy.txt)"
        )


def launcher(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name} here (on Debian: apt-get install {package})")
    return path


def finished(stage: Stage) -> Report:
    """The report of a run that has ended, whole."""
    assert stage.segments() == []
    assert stage.collectors() == []
    report = stage.report()
    report.healthy()
    assert report.caveats["superseded"] == []
    return report


def merged(stage: Stage) -> Any:
    from lineprofiler.accounting import merge_run

    return merge_run(stage.run)


def launchers(stage: Stage, workers: list[Any]) -> set[str]:
    """What started them, as their files say."""
    found = set()
    for worker in workers:
        shown = stage.command("dump", worker.path).expect().stdout
        found |= {line.split(None, 1)[1] for line in shown.splitlines() if line.split()[:1] == ["launcher"]}
    return found
