"""Bad arguments, a hostile environment, disks and folders that refuse: the program goes on, and the report tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lpstage import Report, Stage, private_mounts

# How a recorded process itself copes, without a collector; with one: test_collector.py.
COLLECTOR = False
# What a program starts with to be bound by file modes although it is root's.
UNPRIVILEGED = """
import ctypes
def drop_capabilities():
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert libc.capset(header, (ctypes.c_uint32 * 6)()) == 0, ctypes.get_errno()
drop_capabilities()
"""

RECORDS = """
import os, sys
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role="r", snapshot_interval_s=0.02)
for _ in range(1000):
    with profiler.phase("a"):
        profiler.count("n", 2)
assert profiler.merged_tree()[("a",)].calls == 1000
profiler.close()
print("the end")
"""


# ---- run directories ------------------------------------------------------------------------------------------------


def test_directories_without_a_run(stage: Stage) -> None:
    (stage.folder / "empty").mkdir()
    empty = stage.command("report", "empty").expect(0)
    assert "No worker files" in empty.stdout
    assert "w_*.snap" in empty.stdout, "what it looked for"
    assert "run_dir=" in empty.stdout
    assert "LINEPROFILER_PROFILE" in empty.stdout, "what to do"
    missing = stage.command("report", "missing").expect(2)
    assert "No run directory" in missing.stdout
    assert "LINEPROFILER_RUN_DIR" in missing.stdout
    assert not (stage.folder / "missing").exists()
    stage.script("x = 1", "file.py")
    assert "No run directory" in stage.command("report", "file.py").expect(2).stdout
    assert stage.report("empty").document["run"]["empty_reason"] == "no_worker_files"
    assert stage.report("missing", expect=2).document["run"]["empty_reason"] == "missing"


def test_reading_what_one_may_not_read(stage: Stage) -> None:
    stage.python(RECORDS).expect()
    stage.run.chmod(0)
    try:
        done = stage.python(
            UNPRIVILEGED
            + """
import sys
from lineprofiler.accounting.cli import main
sys.exit(main(["report", "run"]))
"""
        ).expect(2)
    finally:
        stage.run.chmod(0o755)
    assert "Permission denied" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("when", ["before", "after"])
def test_directory_that_cannot_be_written(stage: Stage, when: str) -> None:
    """Read-only from the start, or made so meanwhile: one warning at most, the program ends as it would, and as long
    as the machine is up the figures are in shared memory, with the reason."""
    stage.run.mkdir()
    early, late = ("os.chmod('run', 0o555)", "") if when == "before" else ("", "os.chmod('run', 0o555)")
    done = stage.python(
        UNPRIVILEGED
        + f"""
import os
{early}
from lineprofiler.accounting import Profiler
profiler = Profiler("run", role="r", snapshot_interval_s=0.02)
{late}
for _ in range(1000):
    with profiler.phase("a"):
        pass
profiler.snapshot()
assert profiler.merged_tree()[("a",)].calls == 1000
profiler.close()
print("the end")
"""
    ).expect()
    assert done.stdout == "the end\n"
    assert done.stderr.count("RuntimeWarning") == (1 if when == "before" else 0)
    assert ("is not writable" in done.stderr) == (when == "before")
    assert len([p for p in stage.segments() if p.is_file()]) == 1, "kept for a reader"
    report = stage.report()  # root may write: it becomes a snapshot now
    assert report.calls() == {"a": 1000}
    (failed,) = report.caveats["failed_writes"]
    assert failed["write_failures"] >= 2
    assert "Permission denied" in report.workers[0]["health"]["last_error"]
    assert report.states() == ["closed"]
    assert [p for p in stage.segments() if p.is_file()] == []
    text = stage.command("report", "run").expect().stdout
    assert "failed snapshot writes" in text
    assert "Permission denied" in text


def test_directory_that_nobody_can_write_is_still_read(stage: Stage) -> None:
    """The reader may not write there either: it reads the segment and leaves it."""
    stage.run.mkdir()
    stage.run.chmod(0o555)
    done = stage.python(
        UNPRIVILEGED
        + """
import json, warnings
warnings.simplefilter("ignore")
from lineprofiler.accounting import *
import os, sys
profiler = Profiler("run", role="r")
for _ in range(10):
    with profiler.phase("a"):
        pass
if os.fork() == 0:
    with profiler.phase("a"):
        pass
    os._exit(0)
os.wait()
profiler.close()
runs = [merge_run("run") for _ in range(2)]
print([[run.tree[("a",)].calls, len(run.workers)] for run in runs])
"""
    ).expect()
    assert done.stdout.strip() == "[[11, 2], [11, 2]]"
    assert len([p for p in stage.segments() if p.is_file()]) == 2


def test_directory_that_goes_while_recording(stage: Stage) -> None:
    """Removed, and replaced by a file: the first is made again, the second is a failed write."""
    done = stage.python(
        """
        import os, shutil
        from lineprofiler.accounting import Profiler

        for number, after in enumerate((lambda: None, lambda: open("run1", "w").close())):
            profiler = Profiler(f"run{number}", role="r")
            with profiler.phase("a"):
                pass
            profiler.snapshot()
            shutil.rmtree(f"run{number}")
            after()
            with profiler.phase("a"):
                pass
            profiler.close()
            assert profiler.merged_tree()[("a",)].calls == 2
        """
    ).expect()
    assert done.stderr == ""
    assert stage.report("run0").calls() == {"a": 2}
    assert stage.report("run0").states() == ["closed"]
    assert (stage.folder / "run1").read_bytes() == b""


def test_directory_that_is_a_link(stage: Stage) -> None:
    (stage.folder / "elsewhere").mkdir()
    stage.run.symlink_to("elsewhere")
    stage.python(RECORDS).expect()
    for name in ("run", "elsewhere"):
        assert stage.report(name).calls() == {"a": 1000}
    (stage.folder / "dangling").symlink_to("nowhere")
    done = stage.python(RECORDS.replace('"run"', '"dangling"'))
    assert done.returncode in (0, 1)
    if done.returncode == 1:
        assert "ValueError" in done.stderr
        assert "dangling" in done.stderr.splitlines()[-1]


def test_workers_folder_that_is_a_link_or_a_file(stage: Stage) -> None:
    """Below the run directory nothing is followed: a link could lead the writer anywhere."""
    (stage.folder / "elsewhere").mkdir()
    stage.run.mkdir()
    (stage.run / "workers").symlink_to("../elsewhere")
    stage.python(RECORDS).expect()
    assert list((stage.folder / "elsewhere").iterdir()) == []
    report = stage.report()
    assert report.calls() == {"a": 1000}, "from shared memory"
    assert report.workers[0]["write_failures"] > 0


def test_directory_of_any_name(stage: Stage) -> None:
    """Blanks, quotes, terminal codes, bytes that are no UTF-8, a path of 1,000 bytes."""
    names = [b" ", b"a\nb", b"\x1b[31m", b"\xff\xfe", b"'\"$(x)", b"-o", "é".encode(), b"/".join([b"x" * 200] * 5)]
    for name in map(os.fsdecode, names):
        stage.python(RECORDS.replace('"run"', f"{name!r}")).expect()
        where = stage.folder / name
        assert len(list(where.glob("workers/*/*.snap"))) == 1, name
        report = stage.report(where)
        assert report.calls() == {"a": 1000}
        text = stage.command("report", where).expect().stdout
        assert "\x1b" not in text


# ---- disks and limits -----------------------------------------------------------------------------------------------


def test_full_disk(stage: Stage) -> None:
    """FIELD A5: a run directory on a disk of 64 KB, filled; nothing of the program changes, nothing is lost."""
    stage.script(RECORDS, "records.py")
    stage.run.mkdir()
    done = private_mounts(
        stage,
        """
        mount -t tmpfs -o size=64k tmpfs run && dd if=/dev/zero of=run/fill bs=4k >dd.txt 2>&1
        $PY records.py || exit 9
        ls -A run/workers/* > left.txt 2>/dev/null
        $LP report run --json > full.json || exit 8
        $LP report run > full.txt
        rm run/fill && $LP report run --json > free.json
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
    assert not [n for n in (stage.folder / "left.txt").read_text().split() if n.endswith(".tmp")]
    full, free = (Report(json.loads((stage.folder / f"{name}.json").read_text())) for name in ("full", "free"))
    assert full.calls() == free.calls() == {"a": 1000}
    assert "No space left" in full.workers[0]["health"]["last_error"]
    assert "No space left" in (stage.folder / "full.txt").read_text()
    assert [p for p in stage.segments() if p.is_file()] == [], "the last report could write it"


def test_read_only_disk(stage: Stage) -> None:
    stage.script(RECORDS, "records.py")
    stage.run.mkdir()
    done = private_mounts(
        stage,
        """
        mount -t tmpfs -o ro tmpfs run
        $PY -W ignore records.py || exit 9
        $LP report run --json > ro.json || exit 8
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
    report = Report(json.loads((stage.folder / "ro.json").read_text()))
    assert report.calls() == {"a": 1000}
    assert "Read-only" in report.workers[0]["health"]["last_error"]


def test_full_shared_memory(stage: Stage) -> None:
    """The segment cannot grow: no SIGBUS, no wrong figures, and what was not recorded is counted and shown."""
    stage.script(
        """
        from lineprofiler.accounting import Profiler
        import os
        profiler = Profiler("run", role="r")
        entered = 0
        for number in range(1500):
            with profiler.phase(f"p{number}"):
                with profiler.phase("below"):
                    entered += 1
        os.write(1, b"the end\\n")
        """,
        "grows.py",
    )
    done = private_mounts(
        stage,
        """
        mkdir shm && mount -t tmpfs -o size=400k tmpfs shm && export LINEPROFILER_SHM_DIR=$PWD/shm
        $PY -W ignore grows.py || exit 9
        $LP report run --json > grows.json || exit 8
        dd if=/dev/zero of=shm/fill bs=4k >dd.txt 2>&1
        $PY -W ignore grows.py || exit 7
        $LP report run --json > private.json || exit 6
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\nthe end\n", "")
    grows, private = (Report(json.loads((stage.folder / f"{n}.json").read_text())) for n in ("grows", "private"))
    calls = grows.calls()
    recorded = sum(calls.values())
    assert 100 < recorded < 3000
    assert grows.caveats["health"]["lost_entries"] + grows.caveats["health"]["folded_paths"] > 0
    assert set(calls.values()) == {1}
    assert sum(private.calls().values()) == 3000
    assert len(private.caveats["private_memory"]) == 1


@pytest.mark.parametrize("limit", [0, 1, 4096, 100_000, 1 << 20, 5 << 20])
def test_file_size_limit(stage: Stage, limit: int) -> None:
    """RLIMIT_FSIZE raises SIGXFSZ, which kills: never ours."""
    done = stage.python(
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))\n" + RECORDS,
        options=("-W", "ignore"),
    ).expect()
    assert done.stdout == "the end\n"
    report = stage.report()
    if limit >= 100_000:
        assert report.calls() == {"a": 1000}
        assert (report.caveats["private_memory"] != []) == (limit < 4 << 20)
        assert ("File too large" in report.workers[0]["health"]["last_error"]) == (limit < 4 << 20)
    elif stage.snapshots() == []:
        # Neither shared memory nor a file: nothing can be reported, and nobody may be led to believe otherwise.
        assert report.document["run"]["empty_reason"] == "no_worker_files"


@pytest.mark.parametrize("spare", [1 << 20, 6 << 20, 30 << 20, 300 << 20])
def test_address_space_limit(stage: Stage, spare: int) -> None:
    """RLIMIT_AS counts addresses: the segment takes less, or there is none and the program runs on."""
    done = stage.python(
        f"""
        import resource, sys, warnings
        from lineprofiler.accounting import Profiler
        Profiler("warm").close()
        size = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (size + {spare}, resource.RLIM_INFINITY))
        profiler = Profiler("run", role="r")
        for _ in range(1000):
            with profiler.phase("a"):
                with profiler.phase("b"):
                    profiler.count("n", 2)
        print(profiler.enabled)
        profiler.close()
        """,
    ).expect()
    assert ("recording could not start" in done.stderr) == (done.stdout == "False\n")
    if spare >= 6 << 20:
        assert stage.report().calls() == {"a": 1000, "a/b": 1000}


@pytest.mark.parametrize("first", ["phase", "count", "phases in two threads"])
def test_child_without_memory_for_a_segment(stage: Stage, first: str) -> None:
    """It says so once and runs on, though who shows the warning enters a phase, and another thread does meanwhile."""
    if "TESTS_SANITIZED" in os.environ:
        pytest.skip("a sanitizer needs more address space in the middle of a run")
    done = stage.python(
        f"""
        import os, resource, threading, time, warnings
        from lineprofiler.accounting import Profiler

        said = []
        profiler = Profiler("run", role="r")

        def show(message, *rest):
            with profiler.phase("shown"):
                time.sleep(0.2)
            said.append(str(message))

        def enter():
            with profiler.phase("b"):
                pass

        warnings.showwarning = show
        warnings.warn("once, for the memory that it takes")
        with profiler.phase("a"):
            profiler.count("n")
        said.clear()
        if os.fork() == 0:
            room = bytearray(1 << 20)
            other = threading.Thread(target=lambda: (time.sleep(0.1), enter()))
            if {first!r} == "phases in two threads":
                other.start()
            resource.setrlimit(resource.RLIMIT_AS, (int(open("/proc/self/statm").read().split()[0]) * 4096,) * 2)
            del room
            if {first!r} == "count":
                profiler.count("n")
            else:
                enter()
            if {first!r} == "phases in two threads":
                other.join()
            print(len(said), "may be lost" in said[0], flush=True)
            os._exit(0)
        os.wait()
        profiler.close()
        """
    ).expect()
    assert done.stdout == "1 True\n"
    assert stage.report().calls() == {"a": 1, "shown": 1}  # the child had nowhere to record


SHM = {
    "missing": "{folder}/missing",
    "a file": "{folder}/file",
    "read-only": "{folder}/closed",
    "of everybody": "{folder}/open",
    "relative": "shm",
    "very long": "/" + "x" * 5000,
    "not a path": "\x01\n",
    "proc": "/proc/self",
}


@pytest.mark.parametrize("what", SHM)
def test_shared_memory_that_cannot_be_used(stage: Stage, what: str) -> None:
    """Private memory then, and the report says so; figures are those of the last snapshot."""
    (stage.folder / "file").write_text("x")
    (stage.folder / "closed").mkdir(mode=0o500)
    taken = stage.folder / "open" / f"lineprofiler-{os.geteuid()}"
    taken.mkdir(parents=True)
    taken.chmod(0o777)  # anybody may put files there: not ours to trust
    where = SHM[what].format(folder=stage.folder)
    done = stage.python(UNPRIVILEGED + RECORDS, env={"LINEPROFILER_SHM_DIR": where}).expect()
    assert done.stdout == "the end\n"
    assert done.stderr == ""
    report = Report(json.loads(stage.command("report", "run", "--json", LINEPROFILER_SHM_DIR=where).expect().stdout))
    assert report.calls() == {"a": 1000}
    if what in ("relative", "very long", "not a path"):
        return  # not a usable value: the default is used
    assert len(report.caveats["private_memory"]) == 1
    assert "private memory" in stage.command("report", "run", LINEPROFILER_SHM_DIR=where).expect().stdout
    assert list(taken.iterdir()) == []


def test_folder_of_somebody_else_in_shared_memory(stage: Stage) -> None:
    """Another user has made our folder before us, or a link of that name: nothing goes there."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    ours = stage.shm / f"lineprofiler-{os.geteuid()}"
    ours.mkdir(mode=0o700)
    os.chown(ours, 65534, 65534)
    stage.python(RECORDS).expect()
    assert len(stage.report().caveats["private_memory"]) == 1
    assert list(ours.iterdir()) == []
    ours.rmdir()
    target = stage.folder / "target"
    target.mkdir(mode=0o700)
    ours.symlink_to(target)
    stage.python(RECORDS).expect()
    assert len(stage.report().caveats["private_memory"]) == 1
    assert list(target.iterdir()) == []


# ---- the environment ------------------------------------------------------------------------------------------------

NONSENSE = ["", " ", "\x01\x1b[31m", "x" * 50_000, "../../../etc/passwd", "'; drop table", "-1", "NaN", "\udcff\udcfe"]


@pytest.mark.parametrize("value", NONSENSE, ids=[f"value {n}" for n in range(len(NONSENSE))])
def test_environment_full_of_nonsense(stage: Stage, value: str) -> None:
    """Whatever stands in the variables, the program runs and its figures are right."""
    ours = ["ROLE", "RUN_ID", "CLOCK", "CPU", "PROFILE", "ENABLED", "SHM_DIR", "COLLECTOR"]
    launchers = [
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_JOB_ID", "PMI_RANK",
        "OMPI_COMM_WORLD_RANK", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "XDG_RUNTIME_DIR", "COLUMNS", "LANG", "TERM",
    ]  # fmt: skip
    extra = {f"LINEPROFILER_{name}": value for name in ours} | dict.fromkeys(launchers, value)
    extra.pop("LINEPROFILER_SHM_DIR")
    done = stage.python(
        """
        from lineprofiler.accounting import Profiler

        with Profiler("run") as profiler:
            for _ in range(10):
                with profiler.phase("a"):
                    profiler.count("n", 2)
        print("the end")
        """,
        env=extra,
    ).expect()
    assert done.stdout == "the end\n"
    assert "Traceback" not in done.stderr
    report = stage.report()
    assert sum(report.calls().values()) == 10
    text = stage.command("report", "run", **extra).expect().stdout
    assert "\x1b[31m" not in text


def test_role_of_any_text(stage: Stage) -> None:
    """A slash, dots, 300 characters, terminal codes, right-to-left marks, lone surrogates: a role is no path."""
    roles = ["a/b", "../../x", "x" * 300, "\x1b[31mred\n", "\u202eabc", "é" * 300, "\udcff", "</script>", " ", "a\tb"]
    stage.python(
        f"""
        import os
        from lineprofiler.accounting import Profiler
        for number, role in enumerate({roles!r}):
            with Profiler("run", role=role, run_id="same") as profiler:
                with profiler.phase("a"):
                    profiler.count("n", number)
        """
    ).expect()
    report = stage.report()
    assert len(report.workers) == len(roles)
    assert [r for r in roles if r not in [w["role"] for w in report.workers]] in ([], ["\udcff"])
    assert report.calls() == {"a": len(roles)}
    text = stage.command("report", "run", "--all").expect().stdout
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert {p.parent for p in stage.snapshots()} == {stage.snapshots()[0].parent}


def test_arguments_that_contradict_each_other(stage: Stage) -> None:
    """What the signature allows and makes no sense: refused by name, or the documented order of who wins."""
    facts = stage.facts(
        """
        import os, warnings
        warnings.simplefilter("ignore")
        from lineprofiler.accounting import Profiler

        def outcome(**arguments):
            try:
                with Profiler(**arguments) as profiler:
                    return profiler.enabled
            except (TypeError, ValueError) as error:
                return f"{type(error).__name__}: {error}"

        print([
            outcome(run_dir="run", enabled=False),
            outcome(run_dir="run", unknown=1),
            outcome(run_dir="run", install=True, enabled=False),
            outcome(enabled=True, run_dir="run", snapshot_interval_s=None, sample_interval_s=None),
            outcome(run_dir="run", measure_cpu=True, trace=False, trace_functions=["a*"]),
            outcome(run_dir="run", backend="none", backend_window=(1, 2)),
        ])
        """
    )
    assert facts[0] is False
    assert "unknown" in facts[1]
    assert facts[2] is False
    assert facts[3:] == [True, True, True]


# ---- the command ----------------------------------------------------------------------------------------------------


def test_closed_pipe_is_quiet(stage: Stage) -> None:
    stage.python(RECORDS).expect()
    command = Path(sys.executable).with_name("lineprofiler")
    for shell in (f"{command} report run | head -1", f"{command} report run --json | true", f"{command} --help | true"):
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {shell}"],
            cwd=stage.folder,
            env=stage.environment(),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), shell
    for entry in ([str(command)], [sys.executable, "-m", "lineprofiler"]):
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as pipe:
            closed = subprocess.run(
                [*entry, "report", "run"],
                cwd=stage.folder,
                env=stage.environment(),
                stdout=pipe,
                stderr=subprocess.PIPE,
                timeout=60,
                check=False,
            )
        assert (closed.returncode, closed.stderr) == (0, b"")


@pytest.mark.one_version
def test_output_that_cannot_be_written(stage: Stage) -> None:
    stage.python(RECORDS).expect()
    for target in ("missing/file", "run", "/proc/nothing", "/dev/full", "x" * 300, "\x1b[31m/file"):
        done = stage.command("report", "run", "-o", target).expect(2)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1, done.stderr
        assert target[:50].replace("\x1b", "") in done.stderr.replace("\\x1b", "")
        assert "\x1b" not in done.stderr
        assert "Traceback" not in done.stderr
    with open("/dev/full", "w") as full:
        done_full = subprocess.run(
            [str(Path(sys.executable).with_name("lineprofiler")), "report", "run"],
            cwd=stage.folder,
            env=stage.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
    assert done_full.returncode == 2
    assert "No space left" in done_full.stderr
    assert done_full.stderr.count("\n") == 1
    assert sorted(p.name for p in stage.folder.iterdir() if "tmp" in p.name) == []


# ---- the first minute -----------------------------------------------------------------------------------------------


def test_start_without_a_directory_is_off_and_says_what_to_set(stage: Stage) -> None:
    done = stage.python(
        """
        from lineprofiler import accounting
        for _ in range(2):
            profiler = accounting.start(role="actor")
            assert not profiler.enabled
            with accounting.phase("a"):
                pass
            accounting.stop()
        """
    ).expect()
    assert done.stderr.count("RuntimeWarning") == 1, done.stderr
    for hint in ("profiling was off", "run_dir=", "LINEPROFILER_PROFILE=1"):
        assert hint in done.stderr
    assert not (stage.folder / "profile").exists()


def test_bare_statement_records_until_exit(stage: Stage) -> None:
    done = stage.python(
        """
        import gc
        from lineprofiler import accounting
        from lineprofiler.accounting import Profiler

        Profiler(run_dir="run", install=True)
        gc.collect()
        for _ in range(100):
            with accounting.phase("a"):
                pass
        """
    ).expect()
    assert done.stderr == ""
    report = stage.report()
    assert report.calls() == {"a": 100}
    assert report.states() == ["closed"]


def test_second_install_warns_and_takes_over(stage: Stage) -> None:
    done = stage.python(
        """
        from lineprofiler import accounting
        from lineprofiler.accounting import Profiler

        first = Profiler(run_dir="one", install=True)
        with accounting.phase("a"):
            pass
        second = Profiler(run_dir="two", install=True)
        with accounting.phase("b"):
            pass
        """
    ).expect()
    assert done.stderr.count("RuntimeWarning") == 1
    assert "another profiler was installed: the newer takes over" in done.stderr
    assert stage.report("one").calls() == {"a": 1}
    assert stage.report("two").calls() == {"b": 1}


@pytest.mark.one_version
def test_usage_errors_are_one_line_and_exit_2(stage: Stage) -> None:
    cases: list[list[Any]] = [
        [],
        ["reprot", "run"],
        ["report"],
        ["report", "a", "b"],
        ["report", "run", "--format", "yaml"],
        ["report", "run", "--format", "html"],
        ["report", "run", "--nonsense"],
        ["dump"],
        ["dump", "missing.snap"],
        ["compare", "one"],
    ]
    for case in cases:
        done = stage.command(*case).expect(2)
        assert done.stdout == "", case
        assert "Traceback" not in done.stderr
        assert done.stderr.strip() != ""
