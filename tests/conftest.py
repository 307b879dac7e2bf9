"""Marks, and fixtures for every Python test. Helpers stand in tests/support/lptest.py."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import nvml
import pytest
from lpstage import Stage, shared_folder

# Their assertions show values too.
pytest.register_assert_rewrite("phases")

if "TESTS_SANITIZED" in os.environ:
    # greenlet copies stacks by memcpy, the address sanitizer's zones between our variables with them: it would be
    # reported. Tests of it in this process are skipped, each with a word.
    sys.modules["greenlet"] = None  # type: ignore[assignment]

# A run in the background may have been started with these ignored; the programs of the tests would inherit that.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

HERE = Path(__file__).parent
# The same on every interpreter.
ONE_VERSION_FOLDERS = {"docs", "house", "pages"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(HERE).parts[0] in ONE_VERSION_FOLDERS:
            item.add_marker(pytest.mark.one_version)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees the caller's LINEPROFILER_ variables, and none may leave any behind."""
    for name in [n for n in os.environ if n.startswith("LINEPROFILER_")]:
        monkeypatch.delenv(name)
    yield
    left = {n: v for n, v in os.environ.items() if n.startswith("LINEPROFILER_")}
    for name in left:
        del os.environ[name]
    assert not left, f"left in the environment: {left}"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory that does not exist yet."""
    return tmp_path / "run"


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A folder and shared memory for recorded programs; COLLECTOR = False in a module: they run without a collector."""
    shm = Path(shared_folder())
    made = Stage(tmp_path, shm, collector=getattr(request.module, "COLLECTOR", True))
    yield made
    made.close()
    shutil.rmtree(shm)


@pytest.fixture
def library(tmp_path: Path) -> nvml.Library:
    """What programs find as NVIDIA's library if their LD_LIBRARY_PATH is its folder."""
    return nvml.build(tmp_path)
