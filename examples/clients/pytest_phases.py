"""pytest with xdist: which test files take the time, over all workers, and how much of it is setting up.

    python examples/clients/pytest_phases.py RUN_DIR        then: lineprofiler report RUN_DIR

This file is a plugin of pytest (`-p pytest_phases`): each worker of xdist is a process with the role "test worker",
each test file a phase, with `setup`, `call` and `teardown` below. The session around them exports the run to its
children. The program writes a small suite, runs it with three workers, and checks the figures.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from lineprofiler import accounting
from lineprofiler.accounting import Profiler, merge_run


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # in a worker; the process that deals out the tests runs none
        accounting.start(role="test worker")


def pytest_unconfigure() -> None:
    accounting.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with accounting.phase(item.path.name):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    with accounting.phase("setup"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    with accounting.phase("call"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    with accounting.phase("teardown"):
        return (yield)


SUITE = {
    "test_slow.py": """
import time, pytest
@pytest.fixture
def database():
    time.sleep(0.02)
@pytest.mark.parametrize("number", range(12))
def test_query(database, number):
    time.sleep(0.01)
""",
    "test_quick.py": """
import pytest
@pytest.mark.parametrize("number", range(30))
def test_sum(number):
    assert sum(range(number)) == number * (number - 1) // 2
""",
}


def main(run_dir: str) -> None:
    with tempfile.TemporaryDirectory() as folder, Profiler(run_dir, role="session") as profiler:
        for name, text in SUITE.items():
            (Path(folder) / name).write_text(text)
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_phases", "-n", "3"]
        with profiler.phase("pytest"):
            subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=True)

    run = merge_run(run_dir)
    assert [len(run.workers_of(role)) for role in ("session", "test worker")] == [1, 3]
    tree = run.tree_of("test worker")
    for name, tests in (("test_slow.py", 12), ("test_quick.py", 30)):
        for step in ("setup", "call", "teardown"):
            assert tree[(name, step)].calls == tests, (name, step)
    assert tree[("test_slow.py", "setup")].wall_ns >= 12 * 20_000_000  # each sleeps for 20 ms
    assert run.tree_of("session")[("pytest",)].calls == 1


if __name__ == "__main__":
    main(sys.argv[1])
