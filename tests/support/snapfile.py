"""Snapshot files written from the published schema alone (proto/lineprofiler.proto), with fixed numbers.

A second writer, which shares no line with the product's: what these tests feed to the command is what the format
says, not what our own encoder happens to write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

START = 1_790_000_000_000_000_000  # Unix ns
MS = 1_000_000
SECOND = 1_000_000_000


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ _CRC[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        out.append((value & 0x7F) | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value) if value else b""


def signed(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint((value << 1) ^ (value >> 63)) if value else b""


def fixed64(tag: int, value: int) -> bytes:
    return varint(tag << 3 | 1) + struct.pack("<Q", value)


def text(tag: int, value: str | bytes) -> bytes:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return varint(tag << 3 | 2) + varint(len(data)) + data if data else b""


def message(tag: int, data: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(data)) + data


def cell(value: int) -> int:
    if value < 32:
        return value
    shift = value.bit_length() - 6
    return (shift << 5) + (value >> shift)


def histogram(tag: int, counts: dict[int, int]) -> bytes:
    """`counts`: value -> how often."""
    cells: dict[int, int] = {}
    for value, count in counts.items():
        cells[cell(value)] = cells.get(cell(value), 0) + count
    order = sorted(cells)
    deltas = b"".join(varint(i - (order[n - 1] if n else 0)) for n, i in enumerate(order))
    numbers = b"".join(varint(cells[i]) for i in order)
    return message(tag, message(1, deltas) + message(2, numbers)) if order else b""


def spread(count: int, low: int, high: int, steps: int = 64) -> dict[int, int]:
    """`count` values spread evenly over low .. high."""
    steps = min(count, steps)
    values: dict[int, int] = {}
    for i in range(steps):
        value = low + (high - low) * i // max(steps - 1, 1)
        values[value] = values.get(value, 0) + count // steps + (i < count % steps)
    return values


@dataclass
class Phase:
    entries: int = 0
    low: int = 0
    high: int = 0
    cpu: float = 1.0
    starved: float = 0.0
    flags: int = 0
    errors: int = 0
    stride: int = 0
    async_entries: int = 0
    counters: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # calls, low, high

    @property
    def wall(self) -> int:
        return self.entries * (self.low + self.high) // 2


@dataclass
class Worker:
    role: str = "main"
    host: str = "node07"
    pid: int = 1
    run_id: str = "20260921T155320-471c94"
    started: int = START
    elapsed: int = 100 * SECOND
    rank: int | None = None
    final: bool = True
    unclean: bool = False
    exit_code: int | None = None
    options: dict[str, str] = field(default_factory=dict)
    split: str = "schedstat"
    phases: dict[tuple[str, ...], Phase] = field(default_factory=dict)
    open: list[tuple[tuple[str, ...], int]] = field(default_factory=list)  # path, ns

    def phase(self, path: str, *args: object, **more: object) -> Phase:
        self.phases[tuple(path.split("/"))] = made = Phase(*args, **more)  # type: ignore[arg-type]
        return made

    def name(self, generation: int = 3) -> str:
        end = "final" if self.final else str(generation)
        return f"w_{self.run_id}_{self.pid}_{self.pid:08x}.{end}.snap"

    def identity(self) -> bytes:
        return b"".join(
            [
                text(1, self.host),
                text(2, "b0071d00-0000-0000-0000-000000000000"),
                text(3, f"{self.pid:08x}" + "0" * 24),
                number(4, self.pid),
                number(5, 4242),
                fixed64(6, self.started),
                text(7, self.run_id),
                text(8, self.role),
                fixed64(9, self.started),
                b"" if self.rank is None else varint(10 << 3) + varint(self.rank),
                text(19, "train.py"),
                text(20, "3.11.7 (CPython)"),
                text(21, "Linux-6.1-x86_64"),
                text(22, "b2218b76c0ffee00c0ffee00c0ffee00c0ffee00"),
                message(26, number(1, 16) + number(2, 32) + number(3, 32) + number(4, 64 << 30)),
                *(message(27, text(1, k) + text(2, v)) for k, v in self.options.items()),
            ]
        )

    def encode(self) -> bytes:
        recorder = b"".join(
            [
                text(1, "TSC 2.40 GHz"),
                text(2, "rseq"),
                text(3, self.split),
                text(4, "shared memory"),
                number(5, 90_000),
                number(6, 20_000),
                number(7, 1),
            ]
        )
        parts = [
            number(1, 1),
            message(2, self.identity()),
            fixed64(3, self.started + self.elapsed),
            number(4, self.elapsed),
            number(5, 3),
            number(6, self.final),
            number(7, self.unclean),
            message(8, recorder),
            *self._phases(),
            b"" if self.exit_code is None else varint(12 << 3) + varint(self.exit_code % (1 << 64)),
        ]
        data = b"".join(parts)
        return data + b"\x7d" + struct.pack("<I", crc32c(data))

    def _paths(self) -> list[tuple[str, ...]]:
        """Every path with the ones above it, parents first."""
        paths: dict[tuple[str, ...], None] = {(): None}
        for path in [*self.phases, *(p for p, _ in self.open)]:
            for depth in range(len(path) + 1):
                paths.setdefault(path[:depth])
        return list(paths)

    def _phases(self) -> Iterable[bytes]:
        paths = self._paths()
        for path in paths:
            phase = self.phases.get(path, Phase())
            children = [p for p in paths if len(p) == len(path) + 1 and p[: len(path)] == path]
            child = sum(self.phases.get(p, Phase()).wall for p in children)
            yield message(10, self._phase(path, paths, phase, child))
        for path, open_ns in self.open:
            yield message(
                11,
                number(1, paths.index(path))
                + fixed64(2, self.started + self.elapsed - open_ns)
                + number(3, open_ns)
                + text(4, "MainThread")
                + number(5, self.pid),
            )

    @staticmethod
    def _phase(path: tuple[str, ...], paths: list[tuple[str, ...]], phase: Phase, child: int) -> bytes:
        wall = phase.wall
        on_cpu = int(wall * phase.cpu)
        return b"".join(
            [
                number(1, paths.index(path[:-1]) if path else 0),
                text(2, path[-1] if path else ""),
                number(3, phase.flags),
                number(4, phase.entries),
                number(5, phase.errors),
                number(7, phase.async_entries),
                number(9, wall),
                number(10, min(child, wall) if path else child),
                number(11, wall),
                number(12, on_cpu),
                number(13, wall - on_cpu),
                number(14, int(wall * phase.starved)),
                number(15, phase.low),
                number(16, phase.high),
                number(17, phase.stride),
                histogram(18, spread(phase.entries, phase.low, phase.high)) if phase.entries else b"",
                *(_counter(name, *what) for name, what in phase.counters.items()),
            ]
        )

    def write(self, run_dir: Path, generation: int = 3) -> Path:
        folder = run_dir / "workers" / self.host.replace("\n", "_")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.name(generation)
        path.write_bytes(self.encode())
        return path


def _counter(name: str, calls: int, low: int, high: int) -> bytes:
    amounts = spread(calls, low, high)
    total = sum(value * count for value, count in amounts.items())
    return message(
        19,
        text(1, name) + number(2, calls) + signed(3, total) + signed(5, low) + signed(6, high) + histogram(7, amounts),
    )


def actor(pid: int, scale: int = 1) -> Worker:
    """An actor of the README's tree search."""
    worker = Worker("actor", "node07" if pid % 2 else "node08", pid)
    worker.phase("iteration", 2000, 80_000 * scale, 104_800 * scale, 0.99, 0.004)
    worker.phase(
        "iteration/select",
        2000,
        45_000 * scale,
        66_200 * scale,
        0.998,
        0.001,
        counters={"tree_depth": (2000, 0, 4)},
    )
    worker.phase(
        "iteration/select/score_children",
        6325,
        3_800 * scale,
        5_200 * scale,
        counters={"children_scored": (6325, 8, 8)},
    )
    worker.phase("iteration/select/descend", 6325, 700 * scale, 1_100 * scale)
    worker.phase("iteration/expand", 2000, 3_000 * scale, 6_300 * scale)
    worker.phase("iteration/rollout", 2000, 3_800 * scale, 8_000 * scale, counters={"rollout_plies": (2000, 1, 5)})
    worker.phase("iteration/backpropagate", 2000, 1_800 * scale, 3_000 * scale)
    return worker


def learner() -> Worker:
    worker = Worker("learner", "node07", 4100)
    worker.phase("step", 75, 10 * MS, 20 * MS, 0.22, 0.031)
    worker.phase("step/queue_get", 75, 7 * MS, 13 * MS, 0.01, 0.004)
    worker.phase("step/train", 75, 2 * MS, 5 * MS, 0.93, 0.06)
    worker.phase("save", 3, 19 * MS, 25 * MS, 0.4)
    return worker


def copier() -> Worker:
    worker = Worker("copier", "node07", 5001, elapsed=SECOND)
    worker.phase("per_item", 1, 712 * MS, 712 * MS, 0.99, counters={"records": (4000, 1, 1)})
    worker.phase(
        "per_item/copy_one",
        4000,
        75_000,
        143_100,
        0.998,
        flags=4,
        counters={"io_write_bytes": (4000, 4096, 4096), "io_read_chars": (4000, 4224, 4224)},
    )
    worker.phase("batched", 1, 84 * MS, 84 * MS, 0.99, counters={"records": (16, 250, 250)})
    worker.phase(
        "batched/read_batch",
        16,
        2_200_000,
        4_600_000,
        0.99,
        flags=4,
        counters={"io_read_chars": (16, 1_024_000, 1_024_000)},
    )
    worker.phase(
        "batched/write_batch",
        16,
        570_000,
        715_700,
        0.99,
        flags=4,
        counters={"io_write_bytes": (16, 1_024_000, 1_024_000)},
    )
    return worker


def write_mcts(run_dir: Path, scale: int = 1) -> None:
    for pid in range(4001, 4005):
        actor(pid, 2 if pid == 4002 else scale).write(run_dir)
    learner().write(run_dir)


def write_copier(run_dir: Path) -> None:
    copier().write(run_dir)


def write_troubled(run_dir: Path) -> None:
    """A death, a worker of which nothing was heard, an earlier attempt, a broken file, sampling."""
    for pid in (214, 215, 216):
        worker = actor(pid, 1000)
        worker.elapsed = 3600 * SECOND
        if pid == 215:
            worker.final, worker.unclean, worker.exit_code = False, True, -9
            worker.elapsed = 600 * SECOND
            worker.open = [(("iteration",), 90 * MS), (("iteration", "expand"), 3 * MS)]
        if pid == 216:
            worker.final = False
            worker.elapsed = 2600 * SECOND
            worker.open = [(("iteration",), 161 * SECOND), (("iteration", "queue_get"), 160 * SECOND)]
        worker.write(run_dir)
    loader = Worker("loader", "node09", 77, elapsed=3600 * SECOND, rank=3, split="")
    loader.options = {"asked": "trace,backend=torch", "measure_cpu": "1"}
    loader.phase("fetch", 100_000, 200, 600, 0.9)
    loader.phase("decode", 6_300_000, 5_000, 15_000, 0.95, 0.02, flags=1, stride=100)
    loader.phase("upload", 500, 20_000, 60_000, 0.5, flags=2, async_entries=500, errors=12)
    loader.write(run_dir)
    old = actor(99)
    old.run_id, old.started = "20260920T101500-9caa21", START - 86_400 * SECOND
    old.write(run_dir)
    broken = actor(217)
    path = broken.write(run_dir)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")


def write_hostile(run_dir: Path) -> None:
    worker = Worker("rol\x1b[2Je\n", "ho\nst", 1)
    worker.phase("outer", 10, 300 * MS, 500 * MS, 0.5, 0.1)
    names = [
        "two\nlines",
        "\x1b[31mred\x1b[0m\a",
        "nul\0byte",
        "<script>alert(1)<",
        "\u202etfel ot thgir",
        "漢字のフェーズ",
        "cafe\u0301",
        "lone \udcff surrogate",
        "🔥 fire",
        'quote" back\\ & ',
        "a" * 200,
    ]
    for i, name in enumerate(names):
        made = Phase(10 + i, MS, MS, counters={name: (3, i, i)})
        worker.phases[("outer", name)] = made
    worker.write(run_dir)


def write_chain(run_dir: Path) -> None:
    worker = Worker("main", "node07", 11)
    worker.phase("main", 1, 10 * SECOND, 10 * SECOND, 0.9)
    worker.phase("main/step", 100, 80 * MS, 100 * MS, 0.9)
    worker.phase("main/step/inner", 100, 40 * MS, 60 * MS, 0.9)
    worker.write(run_dir)


def write_sampled(run_dir: Path) -> None:
    import samplefile

    samplefile.write_sampled(run_dir)


RUNS = {
    "mcts": write_mcts,
    "copier": write_copier,
    "troubled": write_troubled,
    "hostile": write_hostile,
    "chain": write_chain,
    "sampled": write_sampled,
    "empty": lambda run_dir: run_dir.mkdir(),
}
