"""The test driver itself: a runner that loses a failure would make every other test worthless."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lptest import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import envs
import fuzz
import matrix
import run_tests

VENV = Path(sys.executable).parent.parent


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path / "logs")
    return tmp_path / "logs"


def run_file(folder: Path, text: str) -> run_tests.Result:
    path = folder / "test_sample.py"
    path.write_text(text)
    return run_tests.pytest_run("here", VENV, "tests", "not timing", [path], argparse.Namespace(k="", limit=25), {})


def test_counts_of_each_kind(logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_file(
        tmp_path,
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 1 == 2, 'seen in the output'\n"
        "@pytest.mark.skip(reason='no torch')\ndef test_left_out(): pass\n"
        "@pytest.fixture\ndef broken(): raise ValueError\n"
        "def test_error(broken): pass\n",
    )
    assert (result.passed, result.failed, result.skipped) == (1, 2, 1)
    assert result.skips == {"no torch": 1}
    shown = capsys.readouterr().out
    assert "seen in the output" in shown
    assert "test_bad" in shown
    assert not [line for line in shown.splitlines() if line.startswith(("1 passed", "2 failed"))]


def test_a_crash_is_a_failure(logs: Path, tmp_path: Path) -> None:
    result = run_file(tmp_path, "import os\ndef test_good(): pass\ndef test_dies(): os.abort()\n")
    assert result.failed == 1
    assert "SIGABRT" in result.failures[0]


def test_a_file_that_does_not_import_is_a_failure(logs: Path, tmp_path: Path) -> None:
    assert run_file(tmp_path, "import no_such_module\ndef test_good(): pass\n").failed == 1


def test_nothing_selected_is_neither(logs: Path, tmp_path: Path) -> None:
    result = run_file(tmp_path, "import pytest\n@pytest.mark.timing\ndef test_late(): pass\n")
    assert (result.passed, result.failed, result.skipped) == (0, 0, 0)


def test_a_hanging_runner_ends_with_its_children(tmp_path: Path) -> None:
    program = (
        "import os, time\n"
        "pid = os.fork()\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(pid)) if pid else None\n"
        "time.sleep(60)\n"
    )
    started = time.monotonic()
    status = run_tests.run_logged([sys.executable, "-c", program], tmp_path / "log", envs.clean_environment(), 1.5)
    assert status == run_tests.TIMED_OUT
    assert run_tests.how_it_ended(status, 25) == "was ended after 25 minutes"
    assert run_tests.how_it_ended(-signal.SIGSEGV, 25) == "ended with signal 11 (SIGSEGV)"
    assert time.monotonic() - started < 30
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    # Gone, or a zombie that whoever inherited it has not collected yet.
    assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_meson_results_are_counted(tmp_path: Path) -> None:
    (tmp_path / "log.xml").write_text(
        "<testsuites><testsuite name='hist' tests='9' failures='0'>"
        "<testcase name='1 - adds' classname='hist'/><testcase name='2 - merges' classname='hist'><failure/></testcase>"
        "<testcase name='3 - perf' classname='hist'><skipped/></testcase>"
        "</testsuite></testsuites>"
    )
    result = run_tests.Result("C")
    run_tests.count_junit(result, tmp_path / "log.xml")
    assert (result.passed, result.failed, result.skipped) == (1, 1, 1)
    assert result.failures == ["hist::2 - merges"]


def test_no_folder_of_tests_is_forgotten() -> None:
    folders = {p.parent.name for p in (ROOT / "tests").glob("*/test_*.py")}
    assert folders == set(run_tests.SUITES)


def test_interpreters_are_found_once_each_and_can_build() -> None:
    found = envs.find_interpreters()
    assert [i.minor for i in found] == sorted({i.minor for i in found})
    assert all(i.minor >= (3, 10) and i.headers and not i.free_threaded for i in found)
    assert envs.main_interpreter(found) in found


def test_the_callers_environment_does_not_steer_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("LINEPROFILER_PROFILE", "1")
    env = envs.clean_environment(EXTRA="x")
    assert "PYTHONPATH" not in env
    assert "LINEPROFILER_PROFILE" not in env
    assert env["EXTRA"] == "x"
    monkeypatch.delenv("LINEPROFILER_PROFILE")


def test_ci_runs_what_everybody_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.read_text().splitlines()[-1] == "exec make test"


@pytest.mark.parametrize("file", ["lineprofiler.core_record", "lineprofiler.lineprofiler:core_record"])
def test_what_an_emulator_cannot_show_is_excused_by_name(file: str) -> None:
    """Meson's JUnit names, of 1.9 and of before; nothing else of the file, and nothing of another file."""
    assert matrix.not_emulated(f"{file}::10 - a_child_starts_at_zero") == matrix.NO_WIPE
    assert matrix.not_emulated(f"{file}::1 - phases_nest") == ""
    assert matrix.not_emulated("lineprofiler.store_model::10 - a_child_starts_at_zero") == ""
    assert matrix.not_emulated("lineprofiler.collector_start::1 - whatever") == matrix.NO_CLONE


def test_what_is_excused_exists() -> None:
    for file, cases in matrix.NOT_EMULATED.items():
        text = (ROOT / "tests" / "c" / f"test_{file}.c").read_text()
        assert all(f"RUN({case})" in text for case in cases if case), file


def test_the_wheel_of_the_fuzzers_is_an_ordinary_one() -> None:
    """Built where everything is for libFuzzer it could not be loaded."""
    assert envs.BUILD / fuzz.WHEEL != fuzz.FOLDER
