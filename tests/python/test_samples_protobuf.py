"""Sample files are protobuf, too: Python's protobuf reads the kept sample with the published schema and says the same
as our own reader; docs/file-format.md is all that is needed to decode it; docs/resources.md lists every column.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lptest import ROOT, lineprofiler

SCHEMA = ROOT / "proto" / "lineprofiler.proto"
SAMPLE = ROOT / "tests" / "data" / "samples-v1.hex"
CRC_FIELD = 0x7D  # tag of field 15, fixed32


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit: the slow truth."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools has no wheel for this Python")
    folder = tmp_path_factory.mktemp("schema")
    assert protoc.main(["protoc", f"-I{SCHEMA.parent}", f"--python_out={folder}", str(SCHEMA)]) == 0
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("lineprofiler_pb2")
    finally:
        sys.path.remove(str(folder))


def kept() -> bytes:
    return bytes.fromhex(SAMPLE.read_text())


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def zigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)


class Tokens:
    """Numbers, of which zeros are counted."""

    def __init__(self, numbers: Any) -> None:
        self.numbers: Iterator[int] = iter(numbers)
        self.zeros = 0

    def next(self) -> int:
        if self.zeros:
            self.zeros -= 1
            return 0
        value = next(self.numbers)
        if value == 0:
            self.zeros = next(self.numbers)
        return value

    def plain(self) -> int:
        assert self.zeros == 0
        return next(self.numbers)

    def ended(self) -> bool:
        return self.zeros == 0 and next(self.numbers, None) is None


COUNTERS = set(range(1, 3)) | set(range(7, 17)) | {20, 25, 41, 42, 43, 49, 50, 51, 52, 56, 57, 58, 59, 60, 61, 64, 65}


def values_of(column: Any, rows: int) -> list[int | None]:
    """As the page says it."""
    with_value: list[bool] = []
    if column.runs:
        for i, length in enumerate(column.runs):
            with_value += [i % 2 == 0] * length
    else:
        with_value = [not column.reason] * rows
    assert len(with_value) == rows
    step, now, first, tokens = column.step or 1, column.first, True, Tokens(column.delta)
    values: list[int | None] = []
    for there in with_value:
        if not there:
            values.append(None)
            continue
        if not first and column.delta:
            now += tokens.next() if column.number in COUNTERS else zigzag(tokens.next())
        first = False
        values.append(now * step)
    assert tokens.ended()
    return values


def times_of(batch: Any, interval_us: int) -> list[int]:
    tokens, times = Tokens(batch.time), [0]
    for _ in range(batch.rows - 1):
        times.append(times[-1] + interval_us + zigzag(tokens.next()))
    assert tokens.ended()
    return times


def shares_of(batch: Any) -> list[list[tuple[int, int]]]:
    if not batch.phases:
        return [[] for _ in range(batch.rows)]
    tokens, rows, last = Tokens(batch.phases), [], []
    for _ in range(batch.rows):
        count = tokens.next()
        if count:
            last = [(tokens.plain(), tokens.plain()) for _ in range(count - 1)]
        rows.append(last)
    assert tokens.ended()
    return rows


def test_each_record_ends_in_its_checksum() -> None:
    data = kept()
    assert data[:3] == b"\x70\x01\x12"
    at, records = 2, 0
    while at < len(data):
        tag, at = varint(data, at)
        size, at = varint(data, at)
        record, at = data[at : at + size], at + size
        assert tag == (0x12 if records == 0 else 0x1A)
        assert record[-5] == CRC_FIELD
        assert int.from_bytes(record[-4:], "little") == crc32c(record[:-5])
        records += 1
    assert records == 9  # head; 2, 3, 6, 12 rows, 17 until a reason changes, 41, 9; one of the GPU


def test_protobuf_and_the_page_are_enough(schema: ModuleType, tmp_path: Path) -> None:
    """The kept sample, decoded by the rules, is what `dump` prints."""
    data = kept()
    file = schema.SampleFile()
    assert file.ParseFromString(data) == len(data)
    assert file.version == 1
    assert file.head.series == 1
    assert file.head.interval_ns == 1_000_000_000
    assert file.head.identity.pid == 1542
    assert file.head.identity.host == b"node07"

    path = tmp_path / "w_x.1.samples"
    path.write_bytes(data)
    lines = lineprofiler("dump", str(path)).expect().stdout.splitlines()
    names = {number: name for number, name, *_ in columns_of_the_header()}
    series = {1: "process", 2: "host", 3: "gpu", 4: "process_gpu"}
    expected: list[str] = []
    paths: list[tuple[str, ...]] = [()]
    for batch in file.batches:
        expected += [
            f"batch {series[batch.series]} {batch.index}",
            f"  unix_ns {batch.unix_ns}",
            f"  mono_ns {batch.mono_ns}",
        ]
        if batch.label:
            expected.append(f'  label "{batch.label.decode()}"')
        expected.append("  time [us] " + " ".join(map(str, times_of(batch, 1_000_000))))
        for column in batch.columns:
            name, unit = names[column.number]
            values = values_of(column, batch.rows)
            shown = ["-"] if set(values) == {None} else ["-" if v is None else str(v) for v in values]
            reason = f" ({reasons_of_the_header()[column.reason]})" if column.reason else ""
            expected.append(f"  {name} [{unit}] {' '.join(shown)}{reason}")
        for fresh in batch.paths:
            assert fresh.parent < len(paths)
            paths.append((*paths[fresh.parent], fresh.name.decode()))
        for row, shares in enumerate(shares_of(batch)):
            for one, parts in shares:
                shown_path = ", ".join(f'"{name}"' for name in paths[one])
                expected.append(f"  phase {row} {parts}/1000 [{shown_path}]")
    begin = next(i for i, line in enumerate(lines) if line.startswith("batch "))
    assert lines[begin:] == expected
    assert sum(batch.rows for batch in file.batches if batch.series == 1) == 90
    assert any(line.startswith("  phase ") and line.endswith('["iteration", "load"]') for line in lines)


def test_a_torn_tail_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w_x.1.samples"
    path.write_bytes(kept()[:-9])
    lines = lineprofiler("dump", str(path)).expect().stdout.splitlines()
    assert re.fullmatch(r"lost \d+ bytes: the last batch is cut off", lines[-1])
    path.write_bytes(b"\x70\x01\x12")
    result = lineprofiler("dump", str(path))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "ends within its head" in result.stderr


def header() -> str:
    text: str = (ROOT / "src/store/samples.h").read_text(encoding="utf-8").replace("\\\n", "")
    return text


def columns_of_the_header() -> list[tuple[int, tuple[str, str], str, str, str]]:
    found = re.findall(r'X\((\d+), \w+, "(\w+)", "([^"]+)", (\d+), ([CG]),\s*"([^"]+)"\)', header())
    assert len(found) > 50
    return [(int(n), (name, unit), step, kind, source) for n, name, unit, step, kind, source in found]


def reasons_of_the_header() -> dict[int, str]:
    block = header().split("#define LP_REASON_LIST(X)")[1].split("typedef")[0]
    return {int(n): text for n, text in re.findall(r'X\((\d+), \w+, "([^"]*)"\)', block)}


def test_the_page_lists_every_column_and_reason() -> None:
    page = (ROOT / "docs/resources.md").read_text(encoding="utf-8")
    for number, (name, unit), step, kind, source in columns_of_the_header():
        kind = "counter" if kind == "C" else "gauge"
        row = f"| {number} | `{name}` | {unit} | {step} | {kind} | {source} | "
        error, missing = page.split(row)[1].split(" |\n", 1)[0].split(" | ")
        assert error, name
        assert missing, name
        assert (number in COUNTERS) == (kind == "counter"), name
    for number, text in reasons_of_the_header().items():
        assert f"| {number} | {text or 'measured'} |" in page
