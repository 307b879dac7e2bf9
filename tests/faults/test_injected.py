"""The n-th call of every kind fails, for every n: the program does not notice, and the report says what is missing.

The calls of the recorded program, and those of the processes around it: its forked child, the one that starts the
collector, the collector. See tests/support/injection.py and refusals.py. Each errno at each n: `make soak`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from injection import OTHERS, PROGRAM, Outcome, compiled, experiments
from lpstage import Stage
from refusals import BODIES, exit_code, problems_of


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("injector"), "injector.c")


def judge(outcomes: list[Outcome], code: int) -> None:
    wrong = [problems for each in outcomes if (problems := problems_of(each, code))]
    assert not wrong, f"{len(wrong)} of {len(outcomes)}:\n" + "\n".join(wrong[:40])
    assert any(each.failed for each in outcomes)
    assert any(not each.failed for each in outcomes)


@pytest.mark.parametrize("body", BODIES)
def test_calls_of_the_program(stage: Stage, injector: Path, body: str) -> None:
    outcomes = experiments(stage, injector, BODIES[body], PROGRAM, warm=body != "alone, ends")
    judge(outcomes, exit_code(body))


@pytest.mark.parametrize("body", ["beside a collector, closes", "beside a collector, is killed"])
def test_calls_of_the_others(stage: Stage, injector: Path, body: str) -> None:
    """Of the forked child, of the process that starts the collector, of the collector."""
    judge(experiments(stage, injector, BODIES[body], OTHERS), exit_code(body))


@pytest.mark.parametrize(("target", "body"), [(PROGRAM, "alone, closes"), (OTHERS, "beside a collector, closes")])
def test_calls_fail_from_then_on(stage: Stage, injector: Path, target: int, body: str) -> None:
    """As on a disk that is full, and stays so until the reader comes."""
    judge(experiments(stage, injector, BODIES[body], target, sticky=True), 3)
