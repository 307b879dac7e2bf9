"""Snapshot files are protobuf: the published schema, protoc and Python's protobuf read what our C writes, and say the
same as our own reader. Truth for the kept sample stands in tests/c/worker_builder.h.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lpstage import Stage
from lptest import ROOT

SCHEMA = ROOT / "proto" / "lineprofiler.proto"
SAMPLES = ROOT / "tests" / "data"
CRC_FIELD = 0x7D  # tag of field 15, fixed32

PROGRAM = """
    import threading, time
    from lineprofiler.accounting import Profiler, count, phase

    def work():
        for i in range(20):
            with phase("step"):
                with phase("load", io=True):
                    count("bytes", 10**18)
                    count("bytes", -i)
                time.sleep(0.0005)
        with phase("x\\udc80\\0</script>"):
            pass

    with Profiler(run_dir="run", role="actor", install=True):
        other = threading.Thread(target=work)
        other.start()
        work()
        other.join()
        count("at the root", 2**62)
        count("at the root", 2**62)
        count("at the root", 2**62)
"""


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit: the slow truth."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sample() -> bytes:
    return bytes.fromhex((SAMPLES / "snapshot-v1.hex").read_text())


def signed(body: bytes) -> bytes:
    return body + bytes([CRC_FIELD]) + crc32c(body).to_bytes(4, "little")


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module that protoc makes of our schema."""
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools has no wheel for this Python")
    folder = tmp_path_factory.mktemp("schema")
    assert protoc.main(["protoc", f"-I{SCHEMA.parent}", f"--python_out={folder}", str(SCHEMA)]) == 0
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("lineprofiler_pb2")
    finally:
        sys.path.remove(str(folder))


@pytest.fixture
def read(schema: ModuleType) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> Any:
        snapshot = schema.Snapshot()
        assert snapshot.ParseFromString(data) == len(data)
        return snapshot

    return parse


def total_of(counter: Any) -> int:
    if counter.total_wide:
        assert len(counter.total_wide) == 16
        return int.from_bytes(counter.total_wide, "little", signed=True)
    return int(counter.total)


def cells_of(histogram: Any) -> dict[int, int]:
    assert len(histogram.delta) == len(histogram.count)
    index, cells = 0, {}
    for i, (delta, count) in enumerate(zip(histogram.delta, histogram.count, strict=True)):
        assert delta > 0 or i == 0
        assert count > 0
        index += delta
        cells[index] = count
    assert index < 32 * 52
    return cells


def paths_of(snapshot: Any) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for i, p in enumerate(snapshot.phases):
        assert i == 0 or p.parent < i
        above = paths[p.parent] if i else ()
        paths.append((*above, p.name.decode("utf-8", "surrogatepass")) if i else ())
    return paths


def test_the_file_is_version_first_and_checksum_last(read: Callable[[bytes], Any]) -> None:
    data = sample()
    snapshot = read(data)
    assert data[:3] == b"\x08\x01\x12"
    assert data[-5] == CRC_FIELD
    assert snapshot.version == 1
    assert snapshot.crc32c == crc32c(data[:-5]) == int.from_bytes(data[-4:], "little")
    assert read(data).SerializeToString(deterministic=True) == data  # canonical: protobuf writes the same bytes


def test_every_figure_of_the_kept_sample(read: Callable[[bytes], Any]) -> None:
    snapshot = read(sample())
    who = snapshot.identity
    assert (who.host, who.pid, who.run_id, who.role) == (b"node07", 1542, b"20260813T224100-471c94", b"actor")
    assert (who.rank, who.HasField("rank"), who.HasField("local_rank"), who.world_size) == (0, True, False, 8)
    assert list(who.argv) == [b"prog.py", b"", b"--lr=1e-3\n"]
    assert [(g.index, g.name, g.HasField("vram_total")) for g in who.hardware.gpus] == [
        (0, b"NVIDIA H200", True),
        (1, b"other", False),
    ]
    assert not who.hardware.HasField("ram_total")
    assert who.started_unix_ns == 1790000000123456789
    assert (snapshot.written_unix_ns, snapshot.elapsed_ns) == (1790000005250000000, 5126543211)
    assert (snapshot.generation, snapshot.final, snapshot.unclean) == (300, True, False)
    assert (snapshot.health.folded_paths, snapshot.health.clock_backwards) == (1, 8)
    assert paths_of(snapshot) == [
        (),
        ("iteration",),
        ("iteration", "expand"),
        ("iteration", "expand", "\udcff\0</script>"),
        ("save",),
    ]
    root, iteration, expand, odd, save = snapshot.phases
    assert (iteration.entries, iteration.wall_ns, iteration.errors) == (40, 1_000_000 * 820, 2)
    assert iteration.cpu_ns * 2 == iteration.wall_ns
    assert (expand.min_ns, expand.max_ns, expand.stride, expand.flags) == (1000, 1_600_000, 4, 1 | 2)
    assert (odd.entries, cells_of(odd.hist)) == (1, {7: 1})
    assert (save.entries, save.HasField("hist")) == (0, False)
    assert sum(cells_of(expand.hist).values()) == 40
    counters = {c.name: c for c in expand.counters}
    assert total_of(counters[b"wide"]) == -(2**100) - 5
    assert total_of(counters[b"wider"]) == 2**90 + 7
    assert total_of(counters[b"moves"]) == -96
    assert (counters[b"moves"].min, counters[b"moves"].max, counters[b"moves"].calls) == (-3, 1, 5)
    assert cells_of(counters[b"moves"].negative) == {1: 1, 2: 1, 3: 1}
    assert total_of(root.counters[0]) == 17
    assert [(o.phase, o.thread, o.tid, o.open_ns) for o in snapshot.open] == [
        (4, b"MainThread", 1542, 250_000_000),
        (2, b"", 1600, 50_000_000),
    ]


def test_protoc_decodes_it(schema: ModuleType) -> None:
    """`protoc --decode` needs nothing but the schema; its text is that of the parsed message."""
    text_format = pytest.importorskip("google.protobuf.text_format")
    done = subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{SCHEMA.parent}", "--decode=lineprofiler.v1.Snapshot", SCHEMA],
        input=sample(),
        capture_output=True,
        check=True,
    )
    parsed = text_format.Parse(done.stdout, schema.Snapshot())
    assert parsed.SerializeToString(deterministic=True) == sample()
    assert b'name: "iteration"' in done.stdout


def test_a_recorded_run_reads_the_same_everywhere(stage: Stage, read: Callable[[bytes], Any]) -> None:
    from lineprofiler.accounting import merge_run

    stage.python(PROGRAM).expect()
    files = list((stage.run / "workers").rglob("w_*.snap"))
    assert len(files) == 1
    data = files[0].read_bytes()
    snapshot = read(data)
    assert snapshot.crc32c == crc32c(data[:-5])
    run = merge_run(stage.run)
    assert len(run.workers) == 1
    worker = run.workers[0]
    assert (worker.pid, worker.role, worker.run_id) == (
        snapshot.identity.pid,
        snapshot.identity.role.decode(),
        snapshot.identity.run_id.decode(),
    )
    assert files[0].name.startswith(f"w_{worker.run_id}_{worker.pid}_{snapshot.identity.uuid[:8].decode()}.")
    paths = paths_of(snapshot)
    assert set(paths) == set(worker.tree)
    for path, p in zip(paths, snapshot.phases, strict=True):
        ours = worker.tree[path]
        assert ours.calls == p.entries
        assert ours.wall_ns == p.wall_ns
        assert ours.child_wall_ns == p.child_ns
        assert ours.hist.count == p.entries == sum(cells_of(p.hist).values())
        assert ours.counters == {c.name.decode("utf-8", "surrogatepass"): total_of(c) for c in p.counters}
        for c in p.counters:
            name = c.name.decode("utf-8", "surrogatepass")
            assert (ours.counter_min[name], ours.counter_max[name]) == (c.min, c.max)
            assert c.calls == sum(cells_of(c.positive).values()) + sum(cells_of(c.negative).values())
    assert worker.tree[("step",)].calls == 40
    assert worker.tree[("step", "load")].counters["bytes"] == 40 * 10**18 - 2 * sum(range(20))
    assert worker.tree[()].counters["at the root"] == 3 * 2**62


def test_new_fields_of_a_later_writer_are_skipped(tmp_path: Path, schema: ModuleType) -> None:
    """Same version, unknown fields at every level: an old reader keeps what it knows."""
    from lineprofiler.accounting import merge_run

    unknown = b"\xf2\x07\x03new"  # field 126, three bytes
    snapshot = schema.Snapshot()
    snapshot.ParseFromString(sample())
    snapshot.ClearField("crc32c")
    for message in (snapshot.identity, snapshot.recorder, *snapshot.phases, *snapshot.phases[2].counters):
        message.MergeFromString(unknown)
    body = snapshot.SerializeToString(deterministic=True) + unknown
    folder = tmp_path / "workers" / "node07"
    folder.mkdir(parents=True)
    name = "w_20260813T224100-471c94_1542_01234567.300.final.snap"
    (folder / name).write_bytes(signed(body))
    run = merge_run(tmp_path)
    assert run.unreadable == []
    assert run.workers[0].tree[("iteration",)].calls == 40


def test_the_kept_sample_is_a_run(tmp_path: Path) -> None:
    """What version 1 wrote is read by every later version, also where protobuf is missing."""
    from lineprofiler.accounting import merge_run

    folder = tmp_path / "workers" / "node07"
    folder.mkdir(parents=True)
    (folder / "w_20260813T224100-471c94_1542_01234567.300.final.snap").write_bytes(sample())
    worker = merge_run(tmp_path).workers[0]
    assert (worker.host, worker.rank, worker.role) == ("node07", 0, "actor")
    assert worker.tree[("iteration",)].wall_ns == 820_000_000
    assert worker.tree[("iteration", "expand")].counters["wide"] == -(2**100) - 5
