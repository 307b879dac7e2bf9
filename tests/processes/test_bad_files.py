"""Files of anybody in a run directory: cut, changed, foreign, newer, damaged. Each costs that one worker, named."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lpstage import Stage, shared_folder

# What is on the disk is this file's matter, not who wrote it when.
COLLECTOR = False

# ---- files of a run directory ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A run of three workers, as snapshots: parent 1 `a`, children 2 and 3."""
    stage = Stage(tmp_path_factory.mktemp("three"), Path(shared_folder()), collector=False)
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
