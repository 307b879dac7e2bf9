"""Samples as Python objects: those that the collector took of a run, and a sampler for programs that want their own."""

from __future__ import annotations

import json
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lineprofiler import _lineprofiler
from lineprofiler.accounting.results import Sample

__all__ = ["ResourceSampler", "read_samples"]


class ResourceSampler:
    """Takes samples of this process in a thread of its own and appends each to `path`, one JSON object a line.

    A recorded run needs none of this: its collector samples from outside, without a thread and without the GIL.
    `phase_of` gives the path that is open (``""`` for none); what it raises counts as none. `interval_s` is in seconds.
    """

    def __init__(self, path: str | os.PathLike[str], interval_s: float, phase_of: Callable[[], str]) -> None:
        if not interval_s > 0:
            raise ValueError(f"interval_s must be above 0, got {interval_s!r}")
        self.path = Path(path)
        self.interval_s = float(interval_s)
        self.failures = 0
        """Samples that could not be taken or written."""
        self._phase_of = phase_of
        self._before: tuple[float, int] | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins; a second call does nothing. Makes the folder of `path`; raises OSError if it cannot be written."""
        if self._thread is not None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8"):
            pass
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="lineprofiler-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes a last sample and ends the thread; without `start` it does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ended.set()
        thread.join()

    def take(self) -> Sample:
        """One sample now. `cpu_percent` is since the sample before; -1.0 for the first one. Raises OSError."""
        rss, read_bytes, write_bytes, read_chars, write_chars, cpu_us = _lineprofiler.sample_self()
        t, mono = time.time(), time.monotonic()
        try:
            phase = str(self._phase_of())
        except Exception:
            phase = ""
        percent = -1.0
        if cpu_us is not None:
            if self._before is not None and mono > self._before[0]:
                percent = max(cpu_us - self._before[1], 0) / 1e4 / (mono - self._before[0])
            self._before = (mono, cpu_us)
        return Sample(
            t,
            phase,
            rss or 0,
            read_bytes or 0,
            write_bytes or 0,
            read_chars or 0,
            write_chars or 0,
            cpu_percent=percent,
            io_ok=None not in (read_bytes, write_bytes, read_chars, write_chars),
        )

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                line = json.dumps(asdict(self.take()), allow_nan=False)
                with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(line + "\n")
            except OSError:
                self.failures += 1
            if self._ended.is_set():
                return
            due = max(due + self.interval_s, time.monotonic() - self.interval_s)
            self._ended.wait(max(due - time.monotonic(), 0.0))


def read_samples(path: str | os.PathLike[str]) -> list[Sample]:
    """The samples of a file: a run's (``*.samples``), or one that a `ResourceSampler` wrote.

    A torn last line or batch is left out. Raises OSError, and ValueError for another file.
    """
    with open(path, "rb") as file:
        start = file.read(1)
    if start not in (b"", b"{"):
        _uuid, _run, _host, _of_host, _interval, rows, devices = _lineprofiler.read_samples(os.fspath(path), True)
        return _from_rows(rows, devices, [])
    samples = []
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            if line:
                samples.append(Sample.from_dict(json.loads(line)))
        except (ValueError, TypeError) as error:
            if number < len(lines):
                raise ValueError(f"{os.fspath(path)}: line {number} is no sample: {error}") from None
    return samples


def _from_rows(rows: list[tuple[Any, ...]], ours: list[tuple[Any, ...]], host: list[tuple[Any, ...]]) -> list[Sample]:
    """Rows of a process with those of its devices and its host's."""
    shared, own = _by_device(host), _by_device(ours)
    samples = []
    before: tuple[float, int] | None = None
    for t, path, rss, read, write, read_chars, write_chars, cpu_us, allocated, reserved in rows:
        percent = -1.0
        if cpu_us is not None:
            if before is not None and t > before[0] and cpu_us >= before[1]:
                percent = (cpu_us - before[1]) / 1e4 / (t - before[0])
            before = (t, cpu_us)
        sample = Sample(t, "/".join(path), rss or 0, read or 0, write or 0, read_chars or 0, write_chars or 0)
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
        self._of_host: dict[tuple[str, str], list[str]] = {}
        for path in _lineprofiler.list_samples(directory):
            try:
                uuid, run_id, host, of_host, *_ = _lineprofiler.read_samples(path, False)
            except (OSError, ValueError):
                continue  # the report names it
            if of_host:
                self._of_host.setdefault((run_id, host), []).append(path)
            else:
                self._of_worker.setdefault(uuid, []).append(path)

    def has(self, uuid: str) -> bool:
        """True if the worker has a file."""
        return uuid in self._of_worker

    def read(self, uuid: str, run_id: str, host: str) -> list[Sample]:
        """The samples of a worker, by time."""
        rows, ours = self._rows(self._of_worker.get(uuid, []))
        _rows, shared = self._rows(self._of_host.get((run_id, host), []))
        return sorted(_from_rows(rows, ours, shared), key=lambda sample: sample.t)

    def _rows(self, paths: list[str]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        rows: list[tuple[Any, ...]] = []
        devices: list[tuple[Any, ...]] = []
        for path in paths:
            try:
                found = _lineprofiler.read_samples(path, True)
            except (OSError, ValueError):
                continue
            rows += found[5]
            devices += found[6]
        return rows, devices
