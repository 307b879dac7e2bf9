"""A sampler for programs that want their own, and the reading of sample files."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from lineprofiler import _lineprofiler
from lineprofiler.accounting._samples import from_rows
from lineprofiler.accounting._ticker import LONGEST_WAIT_S
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
        self._place: float | None = None  # Unix time less time.monotonic(), when the first sample was taken
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
        """One sample now. `cpu_percent` is since the sample before; -1.0 for the first one. Raises OSError.

        Times run by the clock that nobody sets, from the time of day at the first sample.
        """
        rss, read_bytes, write_bytes, read_chars, write_chars, cpu_us = _lineprofiler.sample_self()
        mono = time.monotonic()
        if self._place is None:
            self._place = time.time() - mono
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
            mono + self._place,
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
            while not self._ended.wait(min(max(due - time.monotonic(), 0.0), LONGEST_WAIT_S)):
                if time.monotonic() >= due:
                    break


def read_samples(path: str | os.PathLike[str]) -> list[Sample]:
    """The samples of a file: a run's (``*.samples``), or one that a `ResourceSampler` wrote.

    A torn last line or batch is left out. Raises OSError, and ValueError for another file.
    """
    with open(path, "rb") as file:
        start = file.read(1)
    if start not in (b"", b"{"):
        *_, place, rows, devices = _lineprofiler.read_samples(os.fspath(path), True)
        return from_rows(rows, devices, [], place)
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
