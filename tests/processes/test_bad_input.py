"""Bad arguments, a hostile environment, directories and disks that refuse, files of anybody: the program goes on, the
report tells, and one damaged file costs that one worker.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lpstage import Report, Stage, shared_folder

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


# ---- files of a run directory ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A run of three workers, as snapshots: parent 1 `a`, children 2 and 3."""
    stage = Stage(tmp_path_factory.mktemp("three"), Path(shared_folder()))
    stage.python(
        """
        import os
        from lineprofiler.accounting import Profiler

        with Profiler("run", role="r", run_id="same") as profiler:
            for number in (2, 3):
                if os.fork() == 0:
                    for _ in range(number):
                        with profiler.phase("a"):
                            profiler.count("n", number)
                    os._exit(0)
                os.wait()
            with profiler.phase("a"):
                profiler.count("n", 1)
        """
    ).expect()
    assert len(stage.snapshots()) == 3
    yield stage
    stage.close()
    shutil.rmtree(stage.shm)


@pytest.fixture
def damaged(three: Stage, stage: Stage) -> Stage:
    shutil.copytree(three.run, stage.run)
    return stage


def entries_of(path: Path) -> int:
    """Which of the three it is: the number of its entries."""
    from lineprofiler.accounting import merge_run

    (worker,) = [w for w in merge_run(path.parents[2]).workers if w.path == path]
    return worker.tree[("a",)].calls


def one_lost(stage: Stage, path: Path, entries: int, expect: str | None = None) -> None:
    """The others are there, this one is named, with a reason; by the library (fast)."""
    from lineprofiler.accounting import merge_run

    run = merge_run(stage.run)
    assert run.unreadable == [path]
    assert run.tree[("a",)].calls == 6 - entries
    assert len(run.workers) == 2
    assert run.superseded == []
    if expect is not None:
        by_command(stage, path, entries, expect)


def by_command(stage: Stage, path: Path, entries: int, expect: str = "") -> None:
    report = stage.report()
    assert report.calls() == {"a": 6 - entries}
    (lost,) = report.caveats["unreadable_reasons"]
    assert stage.folder / lost["path"] == path
    assert expect in lost["reason"] != ""
    done = stage.command("report", "run").expect()
    assert "1 worker file(s) unreadable" in done.stdout
    assert path.name[-20:] in done.stdout
    assert done.stderr == ""
    dump = stage.command("dump", path).expect(2)
    assert dump.stderr.count("\n") == 1


@pytest.mark.one_version
def test_snapshot_cut_at_every_byte(damaged: Stage) -> None:
    path = damaged.snapshots()[-1]
    blob, entries = path.read_bytes(), entries_of(path)
    for size in range(len(blob)):
        path.write_bytes(blob[:size])
        one_lost(damaged, path, entries)
    for size in (0, 7, len(blob) // 2, len(blob) - 1):
        path.write_bytes(blob[:size])
        by_command(damaged, path, entries)
    path.write_bytes(blob)
    assert damaged.report().calls() == {"a": 6}


@pytest.mark.one_version
def test_snapshot_with_any_byte_changed(damaged: Stage) -> None:
    path = damaged.snapshots()[0]
    blob, entries = path.read_bytes(), entries_of(path)
    chance = random.Random(3)
    for at in range(len(blob)):
        path.write_bytes(blob[:at] + bytes([blob[at] ^ 1 << chance.randrange(8)]) + blob[at + 1 :])
        one_lost(damaged, path, entries)
    for _ in range(300):  # and several at once, bytes added, bytes gone
        torn = bytearray(blob)
        for _ in range(chance.randrange(1, 20)):
            at = chance.randrange(len(torn))
            torn[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(1, 4))
        path.write_bytes(torn)
        if torn != blob:
            one_lost(damaged, path, entries)
    for wrong in (b"samf", b"tame"):  # the run id itself: an attempt of its own, if it were believed
        path.write_bytes(blob.replace(b"\x04same", b"\x04" + wrong))
        one_lost(damaged, path, entries, "checksum")
    by_command(damaged, path, entries)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sealed(data: bytes) -> bytes:
    """With the checksum that a writer would put at the end."""
    return data + b"\x7d" + struct.pack("<I", crc32c(data))


FOREIGN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "zeros": (bytes(4096), ""),
    "ones": (b"\xff" * 4096, ""),
    "json": (b'{"version": 1, "pid": 3, "phases": {}}', ""),
    "pickle": (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x8c\x06system\x93\x94.", ""),
    "elf": (b"\x7fELF\x02\x01\x01" + bytes(500), ""),
    "gzip": (b"\x1f\x8b\x08\x00" + bytes(range(256)), ""),
    "text": (b"hello\n" * 100, ""),
    "4 GB claimed": (sealed(b"\x08\x01\x12\xff\xff\xff\xff\x0f" + b"x" * 50), ""),
    "2^64 claimed": (sealed(b"\x08\x01\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"x" * 50), ""),
    "4 GB claimed in the identity": (sealed(b"\x08\x01\x12\x06\x0a\xff\xff\xff\xff\x0f"), ""),
    "only a version": (sealed(b"\x08\x01"), ""),
    "no identity": (sealed(b"\x08\x01\x12\x00"), ""),
}


@pytest.mark.one_version
@pytest.mark.parametrize("what", FOREIGN)
def test_file_of_another_program(damaged: Stage, what: str) -> None:
    path = damaged.snapshots()[1]
    entries = entries_of(path)
    content, reason = FOREIGN[what]
    path.write_bytes(content)
    one_lost(damaged, path, entries, reason)


@pytest.mark.one_version
def test_snapshot_of_a_newer_version(damaged: Stage) -> None:
    path = damaged.snapshots()[1]
    blob, entries = path.read_bytes(), entries_of(path)
    assert blob[:2] == b"\x08\x01"
    assert sealed(blob[:-5]) == blob
    path.write_bytes(sealed(b"\x08\x02" + blob[2:-5]))
    one_lost(damaged, path, entries, "version 2")
    # An unknown field of the same version is skipped.
    path.write_bytes(sealed(blob[:-5] + b"\xfa\x7f\x03abc"))
    assert damaged.report().calls() == {"a": 6}


@pytest.mark.one_version
def test_sparse_file_of_four_gigabytes(damaged: Stage) -> None:
    path = damaged.snapshots()[1]
    entries = entries_of(path)
    with path.open("r+b") as file:
        file.truncate(4 << 30)
    one_lost(damaged, path, entries, "larger than")


@pytest.mark.one_version
def test_what_is_no_file(damaged: Stage) -> None:
    """A folder, a pipe, a link to a device under a snapshot's name: none is opened, none stops the reader."""
    folder = damaged.snapshots()[0].parent
    (folder / "w_same_1_aaaaaaaa.1.snap").mkdir()
    os.mkfifo(folder / "w_same_2_bbbbbbbb.1.snap")
    (folder / "w_same_3_cccccccc.1.snap").symlink_to("/dev/zero")
    (folder / "w_same_4_dddddddd.1.snap").symlink_to("w_same_4_dddddddd.1.snap")
    (folder / "w_same_5_eeeeeeee.1.snap").symlink_to(damaged.snapshots()[0])
    (folder / "notes.txt").write_text("not ours")
    (folder / ".w_same_6_ffffffff.1.snap.77.tmp").write_text("half written")
    (damaged.run / "workers" / "stray file").write_text("x")
    (damaged.run / "workers" / "empty host").mkdir()
    report = damaged.report()
    assert report.calls() == {"a": 6}
    assert len(report.caveats["unreadable"]) == 5


@pytest.mark.one_version
def test_all_files_unreadable_is_exit_2(damaged: Stage) -> None:
    for path in damaged.snapshots():
        path.write_bytes(path.read_bytes()[:50])
    report = damaged.report(expect=2)
    assert len(report.caveats["unreadable"]) == 3
    done = damaged.command("report", "run").expect(2)
    assert "3 worker file(s) unreadable" in done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.one_version
def test_damaged_segment_is_one_lost_worker(stage: Stage) -> None:
    """What a dead process left in shared memory may be damaged as well; nothing of it can crash a reader."""
    stage.python(
        """
        import os, signal
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", run_id="same")
        with profiler.phase("a"):
            profiler.count("n", 1)
        profiler.snapshot()
        if os.fork() == 0:
            for _ in range(100):
                with profiler.phase("a"), profiler.phase("b"):
                    profiler.count("n", 1)
            with profiler.phase("open"):
                os._exit(0)
        os.wait()
        os._exit(0)
        """
    ).expect()
    segments = [p for p in stage.segments() if p.is_file()]
    assert len(segments) == 2
    (child,) = [p for p in segments if f"_{p.name.split('_')[0]}_" not in stage.snapshots()[0].name]
    with child.open("rb") as file:
        blob = file.read(64 << 10)
    chance = random.Random(4)
    backup = {p: p.read_bytes()[: 64 << 10] for p in segments}
    for attempt in range(60):
        torn = bytearray(blob)
        kind = attempt % 4
        if kind == 0:  # a few bytes of the header
            for _ in range(chance.randrange(1, 8)):
                torn[chance.randrange(0, 1024)] = chance.randrange(256)
        elif kind == 1:  # anywhere in what is used
            for _ in range(chance.randrange(1, 60)):
                torn[chance.randrange(4096, 40_000)] = chance.randrange(256)
        elif kind == 2:  # words that look like offsets
            for _ in range(20):
                at = chance.randrange(4096, 40_000) & ~3
                torn[at : at + 4] = struct.pack("<I", chance.choice([0, 1, 64, 0xFFFFFFFF, 4096, 1 << 28, at]))
        else:  # shorter than it says
            torn = torn[: chance.randrange(len(torn))]
        for path, content in backup.items():
            path.write_bytes(torn if path == child else content)
        done = subprocess.run(
            [sys.executable, "-c", READ_TWICE, "run"],
            cwd=stage.folder,
            env=stage.environment(),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (attempt, done.stderr)
        for old in stage.snapshots()[1:]:
            old.unlink()
    assert attempt == 59


READ_TWICE = """
import json, sys
from lineprofiler import accounting
run = accounting.merge_run(sys.argv[1])
accounting.render(run)
json.dumps(accounting.report_as_dict(run), allow_nan=False)
assert run.workers
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


def namespace(stage: Stage, script: str) -> subprocess.CompletedProcess[str]:
    """Runs shell lines where mounts are private."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1)")
    probe = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("no private mounts here")
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=stage.folder,
        env=stage.environment(PY=sys.executable, LP=str(Path(sys.executable).with_name("lineprofiler"))),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def test_full_disk(stage: Stage) -> None:
    """FIELD A5: a run directory on a disk of 64 KB, filled; nothing of the program changes, nothing is lost."""
    stage.script(RECORDS, "records.py")
    stage.run.mkdir()
    done = namespace(
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
    done = namespace(
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
    done = namespace(
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
