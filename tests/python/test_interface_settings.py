"""From arguments and environment to a profiler: what switches it on, where it writes, what is refused and how."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lpstage import shared_folder
from lptest import environment, run_python

from lineprofiler.accounting import Backend, Profiler, start, stop

QUIET: dict[str, Any] = {"snapshot_interval_s": None, "sample_interval_s": None}


@pytest.fixture
def own_shm() -> Iterator[str]:
    """Where no run directory can be had the last snapshot stays in shared memory: here it goes with its folder."""
    folder = shared_folder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINEPROFILER_SHM_DIR", folder)
        yield folder
    shutil.rmtree(folder)


def test_order_and_defaults_of_the_parameters() -> None:
    parameters = list(inspect.signature(Profiler).parameters.values())
    assert [(each.name, each.default) for each in parameters] == [
        ("run_dir", None),
        ("role", None),
        ("run_id", None),
        ("enabled", None),
        ("snapshot_interval_s", 30.0),
        ("sample_interval_s", 1.0),
        ("measure_cpu", True),
        ("backend", None),
        ("backend_window", None),
        ("window_phase", "iteration"),
        ("annotate", False),
        ("install", False),
        ("strict_names", False),
        ("thread_names", False),
        ("trace", None),
        ("trace_capacity", 200000),
        ("trace_functions", None),
        ("source", None),
        ("cuda_sync", None),
    ]
    assert {each.kind for each in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.parametrize(
    ("enabled", "give_dir", "variable", "on"),
    [
        (None, False, None, False),
        (None, False, "1", True),
        (None, True, None, True),
        (None, True, "0", True),
        (False, True, "1", False),
        (True, False, None, True),
        (True, False, "0", True),
        (None, False, "yes", True),
        *[(None, False, word, False) for word in ("", "0", "false", "False", "no", "OFF", " off ")],
    ],
)
def test_what_switches_it_on(
    enabled: bool | None,
    give_dir: bool,
    variable: str | None,
    on: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if variable is not None:
        monkeypatch.setenv("LINEPROFILER_PROFILE", variable)
    profiler = Profiler(tmp_path / "given" if give_dir else None, enabled=enabled, **QUIET)
    assert profiler.enabled is on
    profiler.close()
    assert (tmp_path / ("given" if give_dir else "profile")).is_dir() is on
    monkeypatch.delenv("LINEPROFILER_PROFILE", raising=False)


def test_disabled_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEPROFILER_PROFILE", "1")
    with Profiler.disabled() as profiler:
        assert not profiler.enabled
        with profiler.phase("a"):
            profiler.count("n", 1)
        assert profiler.merged_tree() == {}
        assert profiler.deltas() == {}
        profiler.snapshot()
    monkeypatch.delenv("LINEPROFILER_PROFILE")


def test_environment_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"PROFILE": "1", "RUN_DIR": str(tmp_path / "from-env"), "ROLE": "evaluator", "RUN_ID": "attempt-1"}
    for name, value in values.items():
        monkeypatch.setenv(f"LINEPROFILER_{name}", value)
    with Profiler(**QUIET) as profiler:
        assert (profiler.run_dir, profiler.role, profiler.run_id) == (values["RUN_DIR"], "evaluator", "attempt-1")
    assert {name: os.environ[f"LINEPROFILER_{name}"] for name in values} == values, "what was there stays"
    with Profiler(tmp_path / "x", "actor", "other", **QUIET) as profiler:
        assert (profiler.run_dir, profiler.role, profiler.run_id) == (str(tmp_path / "x"), "actor", "other")
    for name in values:
        monkeypatch.delenv(f"LINEPROFILER_{name}")


def test_run_dir_is_absolute_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Profiler("profile", **QUIET) as profiler:
        monkeypatch.chdir("/")
        assert profiler.run_dir == str(tmp_path / "profile")
        assert os.environ["LINEPROFILER_RUN_DIR"] == str(tmp_path / "profile")


def test_run_id_is_new_by_default(tmp_path: Path) -> None:
    with Profiler(tmp_path, **QUIET) as profiler:
        assert re.fullmatch(r"\d{8}T\d{6}-[0-9a-f]{6}", profiler.run_id)
        first = profiler.run_id
    with Profiler(tmp_path, **QUIET) as profiler:
        assert profiler.run_id != first


OPENMPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_MCA_orte_precondition_transports": "dd0da22056b50f2a-d9ff8eed9154b50b"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "job", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("launched", "changes", "same"),
    [
        (OPENMPI, {"OMPI_COMM_WORLD_RANK": "3"}, True),
        (OPENMPI, {"OMPI_MCA_orte_precondition_transports": "another"}, False),
        ({**OPENMPI, "SLURM_JOB_ID": "7"}, {"SLURM_STEP_ID": "1"}, True),  # mpirun's own daemons are steps
        (TORCHRUN, {"RANK": "2", "LOCAL_RANK": "0"}, True),
        (TORCHRUN, {"MASTER_PORT": "4711"}, False),
        (TORCHRUN, {"TORCHELASTIC_RESTART_COUNT": "1"}, False),
        (SLURM, {"SLURM_PROCID": "1", "PMI_RANK": "1"}, True),
        (SLURM, {"SLURM_STEP_ID": "1"}, False),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "", "SLURM_NTASKS": "2"}, {"SLURM_RESTART_COUNT": "1"}, False),
        ({**SLURM, **HYDRA}, {"PMI_RANK": "0"}, True),
        # one torchrun a node by srun, which names neither: the step tells launches apart, and a restart of the workers
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none", **SLURM}, {"SLURM_PROCID": "1", "RANK": "2"}, True),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none", **SLURM}, {"SLURM_STEP_ID": "1"}, False),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none", **SLURM}, {"TORCHELASTIC_RESTART_COUNT": "1"}, False),
    ],
)
def test_run_id_of_a_launch(launched: dict[str, str], changes: dict[str, str], same: bool) -> None:
    """Ranks of one launch have one id, those of two launches never."""
    from lineprofiler.accounting._attempt import launched_run_id

    first, second = launched_run_id(launched), launched_run_id({**launched, **changes})
    assert first is not None
    assert second is not None
    assert re.fullmatch(r"[a-z]+-[0-9a-f]{16}", first)
    assert (first == second) is same


@pytest.mark.parametrize(
    "launched",
    [
        {},
        {**OPENMPI, "OMPI_COMM_WORLD_SIZE": "1"},
        {"OMPI_COMM_WORLD_SIZE": "4"},
        {**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"},  # on several hosts nothing is new with each launch
        {**TORCHRUN, "WORLD_SIZE": "x"},
        {**SLURM, "SLURM_STEP_NUM_TASKS": "1"},
        {**SLURM, "SLURM_STEP_ID": ""},
        HYDRA,  # of several hosts
    ],
)
def test_no_run_id_where_nothing_tells_a_launch(launched: dict[str, str]) -> None:
    from lineprofiler.accounting._attempt import launched_run_id

    assert launched_run_id(launched) is None


def test_exported_while_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEPROFILER_RUN_ID", "mine")
    profiler = Profiler(tmp_path, "actor", **QUIET)
    assert os.environ["LINEPROFILER_PROFILE"] == "1"
    assert os.environ["LINEPROFILER_RUN_DIR"] == str(tmp_path)
    assert os.environ["LINEPROFILER_RUN_ID"] == "mine"
    assert "LINEPROFILER_ROLE" not in os.environ
    profiler.close()
    profiler.close()
    assert "LINEPROFILER_PROFILE" not in os.environ
    assert "LINEPROFILER_RUN_DIR" not in os.environ
    assert os.environ["LINEPROFILER_RUN_ID"] == "mine"
    monkeypatch.delenv("LINEPROFILER_RUN_ID")


def test_a_variable_that_was_changed_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(tmp_path, **QUIET)
    monkeypatch.setenv("LINEPROFILER_RUN_DIR", "/elsewhere")
    profiler.close()
    assert os.environ["LINEPROFILER_RUN_DIR"] == "/elsewhere"
    del os.environ["LINEPROFILER_RUN_DIR"]
    monkeypatch.undo()
    os.environ.pop("LINEPROFILER_RUN_DIR", None)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"rundir": "x"}, TypeError, "rundir"),
        ({"run_dir": 3}, TypeError, "run_dir"),
        ({"run_dir": b"x"}, TypeError, "run_dir"),
        ({"run_dir": ""}, ValueError, "run_dir"),
        ({"run_dir": "a\0b"}, ValueError, "run_dir"),
        ({"run_dir": "a\ud800b"}, ValueError, "run_dir"),
        ({"role": 3}, TypeError, "role"),
        ({"role": "a\0b"}, ValueError, "NUL"),
        ({"role": "x" * 301}, ValueError, "300"),
        ({"run_id": 3}, TypeError, "run_id"),
        ({"run_id": "a/b"}, ValueError, "run_id"),
        ({"run_id": ""}, ValueError, "run_id"),
        ({"run_id": ".."}, ValueError, "run_id"),
        ({"run_id": "x" * 65}, ValueError, "run_id"),
        ({"enabled": "false"}, TypeError, "enabled"),
        ({"snapshot_interval_s": 0}, ValueError, "snapshot_interval_s"),
        ({"snapshot_interval_s": -1.0}, ValueError, "snapshot_interval_s"),
        ({"snapshot_interval_s": float("nan")}, ValueError, "snapshot_interval_s"),
        ({"snapshot_interval_s": "30"}, TypeError, "snapshot_interval_s"),
        ({"sample_interval_s": float("inf")}, ValueError, "sample_interval_s"),
        ({"sample_interval_s": []}, TypeError, "sample_interval_s"),
        ({"measure_cpu": None}, TypeError, "measure_cpu"),
        ({"strict_names": "yes"}, TypeError, "strict_names"),
        ({"backend": "cprofile"}, ValueError, "'none', 'torch', 'viztracer'"),
        ({"backend_window": (110, 100)}, ValueError, "backend_window"),
        ({"backend_window": (1,)}, TypeError, "backend_window"),
        ({"backend_window": "12"}, TypeError, "backend_window"),
        ({"window_phase": 3}, TypeError, "window_phase"),
        ({"trace": "everything"}, ValueError, "'phases', 'auto'"),
        ({"trace": 2}, ValueError, "trace"),
        ({"trace_capacity": 0}, ValueError, "trace_capacity"),
        ({"trace_capacity": "many"}, TypeError, "trace_capacity"),
        ({"trace_functions": "train*"}, TypeError, "trace_functions"),
        ({"source": "abc"}, TypeError, "source"),
        ({"source": {1: 2}}, TypeError, "source"),
        ({"cuda_sync": "auto"}, TypeError, "cuda_sync"),
    ],
)
def test_wrong_arguments_raise_one_line(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    for enabled in ({"enabled": False}, {}):
        with pytest.raises(error, match=re.escape(text)) as caught:
            Profiler(**{**enabled, **arguments})
        assert "\n" not in str(caught.value)


def test_run_dir_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="is a file"):
            Profiler(path)
    assert Profiler(tmp_path / "file", enabled=False).enabled is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROLE", "x" * 400),
        ("RUN_ID", "../../etc"),
        ("RUN_ID", "x" * 65),
        ("RUN_DIR", "{file}"),
        ("RUN_DIR", "{file}/b"),
    ],
)
@pytest.mark.usefixtures("own_shm")
def test_nonsense_in_the_environment_only_warns(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv(f"LINEPROFILER_{name}", value.format(file=tmp_path / "file"))
    given: dict[str, Any] = {} if name == "RUN_DIR" else {"run_dir": tmp_path}
    with pytest.warns(RuntimeWarning, match=f"LINEPROFILER_{name}"):
        profiler = Profiler(enabled=True, **given, **QUIET)
    assert profiler.role == "main"
    with profiler.phase("a"):
        pass
    assert profiler.merged_tree()[("a",)].calls == 1, "recording goes on"
    profiler.close()
    monkeypatch.delenv(f"LINEPROFILER_{name}")


def test_trace_variable_raises_for_unknown_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEPROFILER_TRACE", "everything")
    with pytest.raises(ValueError, match="LINEPROFILER_TRACE"):
        Profiler(tmp_path, **QUIET)
    Profiler.disabled().close()
    monkeypatch.delenv("LINEPROFILER_TRACE")


@pytest.mark.parametrize(
    ("word", "asked", "exported"),
    [("1", "trace", "phases"), ("phases", "trace", "phases"), ("auto", "trace=auto", "auto"), ("off", "", None)],
)
def test_trace_variable(
    word: str, asked: str, exported: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINEPROFILER_TRACE", word)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with Profiler(tmp_path, **QUIET):
            assert os.environ["LINEPROFILER_TRACE"] == word
    assert [str(each.message).rpartition(": ")[2] for each in seen] == ([asked] if asked else [])
    monkeypatch.delenv("LINEPROFILER_TRACE")
    if exported:
        with pytest.warns(RuntimeWarning, match="trace"):
            profiler = Profiler(tmp_path, trace="auto" if word == "auto" else True, **QUIET)
        assert os.environ["LINEPROFILER_TRACE"] == exported
        profiler.close()
        assert "LINEPROFILER_TRACE" not in os.environ


def test_valid_values_never_raise(tmp_path: Path) -> None:
    """With warnings as errors only what is asked for and missing speaks."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        valid: list[dict[str, Any]] = [
            {"role": "a/b \udcff"},
            {"role": "x" * 300},
            {"run_dir": str(tmp_path / "text")},
            {"snapshot_interval_s": 10},
            {"backend": "none"},
            {"backend": Backend.NONE, "backend_window": (1, 1)},
            {"trace": False, "trace_functions": ["a*"]},
            {"source": {"commit": "abc", "odd": {1, 2}, "nan": float("nan")}},
            {"cuda_sync": True},
            {"measure_cpu": False, "thread_names": True},
        ]
        for number, more in enumerate(valid):
            Profiler(**{"run_dir": tmp_path / str(number), **QUIET, **more}).close()


def test_one_warning_names_all_that_comes_later(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        profiler = Profiler(tmp_path, trace=True, annotate=True, backend=Backend.TORCH, backend_window=(1, 2), **QUIET)
        profiler.signal("queue", 1)
        profiler.signal("queue", 2)
        profiler.trace_mark("queue", 1, "admitted", sample=0.5)
    profiler.close()
    texts = [str(each.message) for each in seen]
    assert [text.rpartition(": ")[2] for text in texts] == [
        "trace, annotate, backend=torch",
        "signal",
        "trace_mark",
    ]
    assert {each.filename for each in seen} == {__file__}, "a warning points at the caller"


def test_second_profiler_on_the_same_directory_warns(tmp_path: Path) -> None:
    first = Profiler(tmp_path, **QUIET)
    with pytest.warns(RuntimeWarning, match="another profiler"):
        second = Profiler(tmp_path, **QUIET)
    second.close()
    first.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Profiler(tmp_path, **QUIET).close()


def test_off_but_used_says_once_what_to_set() -> None:
    done = run_python(
        """
        from lineprofiler import accounting
        for _ in range(2):
            accounting.start(role="actor")
            with accounting.phase("work"):
                pass
            accounting.stop()
        """,
        options=("-W", "always"),
    ).expect()
    assert done.stderr.count("RuntimeWarning") == 1, done.stderr
    for hint in ("run_dir=", "LINEPROFILER_PROFILE"):
        assert hint in done.stderr


def test_off_and_unused_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start(role="actor")
        stop()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.usefixtures("own_shm")
def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.warns(RuntimeWarning, match="cannot be made"):
        profiler = Profiler(tmp_path / "locked" / "run", **QUIET)
    with profiler.phase("a"):
        pass
    assert profiler.merged_tree()[("a",)].calls == 1
    profiler.close()


@pytest.mark.usefixtures("own_shm")
def test_directory_on_a_file_system_that_takes_none() -> None:
    with pytest.warns(RuntimeWarning, match="cannot be made"):
        profiler = Profiler("/proc/lineprofiler-run", **QUIET)
    with profiler.phase("a"):
        pass
    assert profiler.merged_tree()[("a",)].calls == 1
    profiler.close()


def test_working_directory_that_is_gone(own_shm: str) -> None:
    done = run_python(
        """
        import os, tempfile
        gone = tempfile.mkdtemp()
        os.chdir(gone)
        os.rmdir(gone)
        from lineprofiler.accounting import Profiler
        profiler = Profiler(enabled=True)
        with profiler.phase("a"):
            pass
        assert profiler.merged_tree()[("a",)].calls == 1
        profiler.close()
        """,
        env=environment(LINEPROFILER_SHM_DIR=own_shm),
    ).expect()
    assert done.stderr.count("RuntimeWarning") >= 1
