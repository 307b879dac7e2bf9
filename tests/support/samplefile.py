"""Sample files written from the published schema and docs/file-format.md alone, with fixed numbers; see snapfile.py."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

from snapfile import MS, SECOND, START, Worker, crc32c, fixed64, message, number, signed, text, varint

MONO = 5_000 * SECOND  # of the host's monotonic clock at START
NOT_USED, NO_LIMIT, DENIED, PARTITIONED, NOT_DUE = 16, 5, 3, 14, 1

# Numbers of columns (docs/resources.md): those that only rise.
COUNTERS = {
    1,
    2,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    20,
    25,
    41,
    42,
    43,
    49,
    50,
    51,
    52,
    56,
    57,
    58,
    59,
    60,
    61,
    64,
    65,
}

Share = tuple[str, int]


def zigzag(value: int) -> int:
    return value * 2 if value >= 0 else -value * 2 - 1


def tokens(numbers: Sequence[int]) -> bytes:
    """A 0 is followed by how many more zeros follow."""
    out, at = bytearray(), 0
    while at < len(numbers):
        out += varint(numbers[at])
        if numbers[at] == 0:
            more = 0
            while at + 1 < len(numbers) and numbers[at + 1] == 0:
                more, at = more + 1, at + 1
            out += varint(more)
        at += 1
    return bytes(out)


def sealed(tag: int, body: bytes) -> bytes:
    return message(tag, body + b"\x7d" + struct.pack("<I", crc32c(body)))


@dataclass
class Series:
    """Rows of one subject, one a second. A column is a list of values, or a reason why it has none.

    A value of None was not read for that row.
    """

    kind: int
    columns: Mapping[int, Sequence[int | None] | int]
    index: int = 0
    label: str = ""
    shares: list[tuple[Share, ...]] = field(default_factory=list)  # path and parts of 1000, of each row
    early_us: int = 0  # the last row comes so much less than a second after the one before: a process that closed

    @property
    def rows(self) -> int:
        return max((len(values) for values in self.columns.values() if not isinstance(values, int)), default=ROWS)


class SampleFile:
    def __init__(self, about: Worker, kind: int) -> None:
        self.about = about
        self.kind = kind
        self.paths: dict[str, int] = {}
        head = number(1, kind) + message(2, about.identity()) + number(3, SECOND) + number(4, 77) + number(5, 4000)
        self.data = number(14, 1) + sealed(2, head)

    def path(self, path: str, new: list[bytes]) -> int:
        if path not in self.paths:
            above, _, name = path.rpartition("/")
            parent = self.path(above, new) if above else 0
            self.paths[path] = len(self.paths) + 1
            new.append(message(7, number(1, parent) + text(2, name)))
        return self.paths[path]

    def add(self, series: Series, per_batch: int = 60) -> None:
        for start in range(0, series.rows, per_batch):
            self.batch(series, start, min(start + per_batch, series.rows))

    def batch(self, series: Series, start: int, end: int) -> None:
        at = START + (1 + start) * SECOND
        new: list[bytes] = []
        body = number(1, series.kind) + number(2, series.index) + text(3, series.label) + fixed64(4, at)
        body += number(5, end - start)
        if end - start > 1:
            early = zigzag(-series.early_us if end == series.rows else 0)
            body += message(6, tokens([0] * (end - start - 2) + [early]))
        if series.shares:
            phases = bytearray()
            for row in series.shares[start:end]:
                phases += varint(len(row) + 1)
                for path, parts in row:
                    phases += varint(self.path(path, new)) + varint(parts)
            body += b"".join(new) + message(9, bytes(phases))
        for column, values in series.columns.items():
            body += message(10, self.column(column, values, start, end))
        body += fixed64(11, at - START + MONO)
        self.data += sealed(3, body)

    @staticmethod
    def column(column: int, values: Sequence[int | None] | int, start: int, end: int) -> bytes:
        if isinstance(values, int):
            return number(1, column) + number(2, values)
        part = [value for value in values[start:end] if value is not None]
        if not part:
            return number(1, column) + number(2, NOT_DUE)
        steps = [b - a for a, b in pairwise(part)]
        out = number(1, column)
        if len(part) < end - start:
            known = [value is not None for value in values[start:end]]
            runs = [(is_known, len(list(group))) for is_known, group in groupby(known)]
            out += number(2, NOT_DUE)
            out += message(3, b"".join(varint(length) for _, length in ([] if known[0] else [(True, 0)]) + runs))
        out += signed(4, part[0])
        if any(steps):
            out += message(5, tokens(steps if column in COUNTERS else [zigzag(step) for step in steps]))
        return out

    def write(self, run_dir: Path) -> Path:
        folder = run_dir / "workers" / self.about.host
        folder.mkdir(parents=True, exist_ok=True)
        stem = self.about.name().split(".")[0]
        if self.kind == 2:
            stem = "host" + stem[1:]
        path = folder / f"{stem}.1.samples"
        path.write_bytes(self.data)
        return path


ROWS = 99
MIB = 1024  # KiB


def process(
    worker: Worker, cores: float, rss_mib: float, growth_mib: float, shares: list[tuple[Share, ...]]
) -> SampleFile:
    """Rises evenly: CPU by `cores`, resident size by `growth_mib` a second from `rss_mib`.

    Each second 3 MiB are written and 64 KiB read, a quarter of that from the disk.
    """
    seconds = range(ROWS)
    file = SampleFile(worker, 1)
    rss = [int((rss_mib + growth_mib * k) * MIB) for k in seconds]
    file.add(
        Series(
            1,
            {
                1: [300_000 + int(cores * 1e6 * k) for k in seconds],
                3: rss,
                4: rss,
                6: [int(kib * 0.8) for kib in rss] if cores < 0.9 else DENIED,
                8: [k // 30 for k in seconds],
                9: [12 * k for k in seconds],
                10: [3 * k for k in seconds],
                11: [int(20_000 * k) for k in seconds],
                12: [16384 * k for k in seconds],
                13: [3 * k << 20 for k in seconds],
                14: [65536 * k for k in seconds],
                15: [3 * k << 20 for k in seconds],
                19: [8] * ROWS,
                20: [400_000 * (k // 50) for k in seconds],
            },
            shares=shares,
        )
    )
    return file


def host(worker: Worker, stopped: float, gpu: bool) -> SampleFile:
    seconds = range(ROWS)
    file = SampleFile(worker, 2)
    file.add(
        Series(
            2,
            {
                40: [32] * ROWS,
                41: [2_500_000 * k for k in seconds],
                43: [int(30_000 * k) for k in seconds],
                44: [3200] * ROWS,
                45: [64 * 1024 * MIB] * ROWS,
                46: [(40 * 1024 - k) * MIB for k in seconds],
                48: [4000] * ROWS if stopped else NO_LIMIT,
                50: [10 * k for k in seconds],
                51: [int(10 * stopped * k) for k in seconds],
                52: [int(400_000 * stopped * k) for k in seconds],
                53: [8 * 1024 * MIB] * ROWS if stopped else NO_LIMIT,
                54: [2 * 1024 * MIB] * ROWS,
                55: [512 * MIB] * ROWS,
                57: [int(50_000 * k) for k in seconds],
                59: [0] * ROWS,
                61: [int(10_000 * k) for k in seconds],
                63: [400] * ROWS,
                64: [900 * k for k in seconds],
            },
        )
    )
    if gpu:
        for index in range(2):
            file.add(
                Series(
                    3,
                    {
                        80: [900 if k % 3 == 0 and index == 0 else 0 for k in seconds],
                        81: [6 * 1024 * MIB] * ROWS,
                        82: [80 * 1024 * MIB] * ROWS,
                        83: [95_000] * ROWS,
                        84: [41] * ROWS,
                        86: [500 if k % 3 == 0 else 0 for k in seconds] if index == 0 else PARTITIONED,
                        87: [5 * 1024 * MIB] * ROWS if index == 0 else PARTITIONED,
                    },
                    index,
                    "NVIDIA A100-SXM4-80GB",
                )
            )
    return file


def write_sampled(run_dir: Path) -> None:
    """A learner on node07, whose memory grows, waits for two actors, which are on a node with a CPU limit."""
    learner = Worker("learner", "node07", 4100)
    learner.phase("step/queue_get", 75, 700 * MS, 1300 * MS, 0.01, 0.004)
    learner.phase("step", 75, 1000 * MS, 1600 * MS, 0.22, 0.031)
    learner.phase("step/train", 75, 200 * MS, 300 * MS, 0.93, 0.02)
    learner.write(run_dir)
    waits: list[tuple[Share, ...]] = [
        (("step/train", 1000),) if k % 3 == 0 else (("step/queue_get", 1000),) for k in range(ROWS)
    ]
    waits[50] = ()
    device = process(learner, 0.3, 900, 2.5, waits)
    device.add(Series(4, {86: [500 if k % 3 == 0 else 0 for k in range(ROWS)], 87: [5 * 1024 * MIB] * ROWS}, 0))
    device.write(run_dir)
    host(learner, 0.0, True).write(run_dir)
    for pid in (214, 215):
        actor = Worker("actor", "node08", pid)
        actor.phase("play", 900, 90 * MS, 120 * MS, 0.97, 0.01)
        actor.write(run_dir)
        path = process(actor, 0.95 if pid == 214 else 0.85, 300, 0.0, [(("play", 900),)] * ROWS).write(run_dir)
        if pid == 214:
            host(actor, 0.31, False).write(run_dir)
        else:
            path.write_bytes(path.read_bytes() + b"\x1a\x7f")  # the machine stopped while a batch was written
