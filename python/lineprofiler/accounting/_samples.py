"""The samples that a collector took of a run, as Python objects. Loaded by merge_run, so it imports next to nothing."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from lineprofiler import _lineprofiler
from lineprofiler.accounting.results import Sample

__all__ = ["RunSamples", "from_rows"]


def from_rows(
    rows: list[tuple[Any, ...]], ours: list[tuple[Any, ...]], host: list[tuple[Any, ...]], place: float
) -> list[Sample]:
    """Rows of a process with those of its devices and its host's; `place` makes Unix seconds of their times."""
    shared, own = _by_device(host), _by_device(ours)
    samples = []
    before: tuple[float, int] | None = None
    for t, path, rss, read, write, read_chars, write_chars, cpu_us, allocated, reserved in rows:
        percent = -1.0
        if cpu_us is not None:
            if before is not None and t > before[0] and cpu_us >= before[1]:
                percent = (cpu_us - before[1]) / 1e4 / (t - before[0])
            before = (t, cpu_us)
        sample = Sample(t + place, "/".join(path), rss or 0, read or 0, write or 0, read_chars or 0, write_chars or 0)
        sample.cpu_percent = percent
        sample.io_ok = None not in (read, write, read_chars, write_chars)
        sample.cuda_alloc, sample.cuda_reserved = allocated or 0, reserved or 0
        for index, at in shared.items():
            busy = _near(at, t)
            if busy is not None and busy[2] is not None:
                sample.gpu_utils[index] = busy[2] / 10
        held = []
        for index, at in own.items():
            use = _near(at, t)
            if use is not None:
                if use[3] is not None:
                    sample.gpu_proc_utils[index] = use[3] / 10
                if use[4] is not None:
                    held.append(use[4])
        sample.cuda_proc_used = sum(held) if held else -1
        used = [share for index, share in sample.gpu_utils.items() if index in own]
        sample.gpu_util = sum(used) / len(used) if used else -1.0
        samples.append(sample)
    return samples


def _by_device(rows: list[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[1], []).append(row)
    for of_one in found.values():
        of_one.sort(key=lambda row: row[0])
    return found


def _near(rows: list[tuple[Any, ...]], t: float) -> tuple[Any, ...] | None:
    """The row nearest in time; None if there is none within the usual distance of rows."""
    at = bisect_left(rows, t, key=lambda row: row[0])
    near = min(rows[max(at - 1, 0) : at + 1], key=lambda row: abs(row[0] - t), default=None)
    reach = (rows[-1][0] - rows[0][0]) / (len(rows) - 1) if len(rows) > 1 else 1.0
    return near if near is not None and abs(near[0] - t) <= 1.5 * max(reach, 0.05) else None


class RunSamples:
    """Which sample files belong to which worker of a run directory. Heads are read now, rows when asked for."""

    def __init__(self, directory: str) -> None:
        self._of_worker: dict[str, list[str]] = {}
        self._of_host: dict[tuple[str, str, str], list[str]] = {}
        for path in _lineprofiler.list_samples(directory):
            try:
                uuid, run_id, host, boot, of_host, *_ = _lineprofiler.read_samples(path, False)
            except (OSError, ValueError):
                continue  # the report names it
            if of_host:
                self._of_host.setdefault((run_id, host, boot), []).append(path)
            else:
                self._of_worker.setdefault(uuid, []).append(path)

    def has(self, uuid: str) -> bool:
        """True if the worker has a file."""
        return uuid in self._of_worker

    def read(self, uuid: str, run_id: str, host: str) -> list[Sample]:
        """The samples of a worker, by time.

        Times run by the clock that nobody sets, from the time of day at the first sample: a clock that is set in
        mid-run neither reorders samples nor changes what lies between two of them.
        """
        files = self._files(self._of_worker.get(uuid, []))
        if not files:
            return []
        boot, place = files[0][3], files[0][6]
        shared = self._files(self._of_host.get((run_id, host, boot), []))
        rows, ours = _joined(files, 7), _joined(files, 8)
        return sorted(from_rows(rows, ours, _joined(shared, 8), place), key=lambda sample: sample.t)

    def _files(self, paths: list[str]) -> list[tuple[Any, ...]]:
        found = []
        for path in paths:
            try:
                found.append(_lineprofiler.read_samples(path, True))
            except (OSError, ValueError):
                continue
        return [file for file in found if file[7] or file[8]]


def _joined(files: list[tuple[Any, ...]], field: int) -> list[tuple[Any, ...]]:
    return [row for file in files for row in file[field]]
