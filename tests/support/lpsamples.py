"""Sample files as tests see them: by way of `lineprofiler dump`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from lpstage import Stage

# For a program: until its collector has looked twice.
BE_SEEN = """
    def be_seen():
        # Half a second; where the collector gets no processor, as long as it takes to look twice.
        import glob
        (lock,) = glob.glob(os.environ["LINEPROFILER_SHM_DIR"] + "/lineprofiler-*/*/.collector-*.lock")
        while not (signed := open(lock).read().split()):  # by the starter's child first, then by the collector
            time.sleep(0.01)
        status = "/proc/" + signed[2] + "/status"

        def slept():
            return int(open(status).read().split("\\nvoluntary_ctxt_switches:")[1].split()[0])

        before, until = slept(), time.monotonic() + 0.5
        while time.monotonic() < until or slept() < before + 3:
            time.sleep(0.05)
"""


@dataclass
class Batch:
    """As `dump` prints it; "-" is None."""

    series: str
    index: int
    unix_ns: int = 0
    mono_ns: int = 0
    label: str = ""
    columns: dict[str, list[int | None]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    phases: list[dict[str, float]] = field(default_factory=list)  # of each row: share by path


class Samples:
    """One sample file."""

    def __init__(self, text: str) -> None:
        self.batches: list[Batch] = []
        self.facts: dict[str, str] = {}
        for line in text.splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        if found := re.fullmatch(r"batch (\w+) (\d+)", line):
            self.batches.append(Batch(found[1], int(found[2])))
        elif not line.startswith("  "):
            key, _, value = line.partition(" ")
            self.facts[key] = value
        elif found := re.fullmatch(r"  phase (\d+) (\d+)/1000 \[(.*)\]", line):
            path = "/".join(re.findall(r'"([^"]*)"', found[3]))
            self.batches[-1].phases[int(found[1])][path] = int(found[2]) / 1000
        elif found := re.fullmatch(r"  (\w+) \[[^]]+\] ((?:-|[\d -]+?))(?: \((.*)\))?", line):
            values = [None if word == "-" else int(word) for word in found[2].split()]
            batch = self.batches[-1]
            if found[1] == "time":
                batch.phases = [{} for _ in values]
            rows = len(batch.phases)
            batch.columns[found[1]] = values if len(values) == rows else [None] * rows
            if found[3]:
                batch.reasons[found[1]] = found[3]
        elif found := re.fullmatch(r"  (unix_ns|mono_ns) (\d+)", line):
            setattr(self.batches[-1], found[1], int(found[2]))
        elif found := re.fullmatch(r'  label "(.*)"', line):
            self.batches[-1].label = found[1]
        else:
            raise AssertionError(line)

    def of(self, series: str = "process") -> list[Batch]:
        return [batch for batch in self.batches if batch.series == series]

    def column(self, name: str, series: str = "process") -> list[int | None]:
        return [value for batch in self.of(series) for value in batch.columns.get(name, [None] * len(batch.phases))]

    def known(self, name: str, series: str = "process") -> list[int]:
        return [value for value in self.column(name, series) if value is not None]

    def last(self, name: str) -> int:
        return self.known(name)[-1]

    def times_s(self) -> list[float]:
        return [b.mono_ns / 1e9 + (t or 0) / 1e6 for b in self.of() for t in b.columns["time"]]

    def reason(self, name: str) -> str:
        return self.reason_of(name, "process")

    def reason_of(self, name: str, series: str) -> str:
        return next(batch.reasons[name] for batch in self.of(series) if name in batch.reasons)

    def by_phase(self, *names: str) -> dict[str, float]:
        """Differences of a counter (or of a sum), charged as the rows say; "" is no phase."""
        found: dict[str, float] = {}
        before: int | None = None
        phases = [row for batch in self.of() for row in batch.phases]
        columns = [self.column(name) for name in names]
        for values, shares in zip(zip(*columns, strict=True), phases, strict=True):
            known = [value for value in values if value is not None]
            if len(known) < len(names):
                continue
            value = sum(known)
            if before is not None:
                grown = value - before
                for path, share in shares.items():
                    found[path] = found.get(path, 0) + share * grown
                found[""] = found.get("", 0) + (1 - sum(shares.values())) * grown
            before = value
        return found


def read(stage: Stage, path: Path) -> Samples:
    return Samples(stage.command("dump", path).expect().stdout)
