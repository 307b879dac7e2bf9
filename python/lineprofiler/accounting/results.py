"""What a run turns into when it is read: plain data types, without any I/O.

All durations are integer nanoseconds unless a name or a docstring says otherwise. Every type is a mutable dataclass
with slots (``dataclasses.asdict``, ``==``, ``pickle``; not hashable) whose constructor takes the fields in order.
Numbers that could not be measured are ``None`` or a documented sentinel, never a zero that looks like a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from lineprofiler.accounting._histogram import AmountHistogram, DurationHistogram

__all__ = [
    "NO_PHASE",
    "THIN_EVIDENCE",
    "AmountHistogram",
    "Backend",
    "CpuUsage",
    "DurationHistogram",
    "GpuDevice",
    "GpuPhaseUsage",
    "IoSnapshot",
    "IoTotals",
    "MemoryTrend",
    "MergedRun",
    "OpenPhase",
    "PhaseDelta",
    "PhaseStats",
    "PhaseTree",
    "Sample",
    "SampleAnalysis",
    "WorkerSnapshot",
    "WorkerTrace",
    "merge_trees",
]

NO_PHASE = "(no phase open)"
"""Key of what happened while no phase was open."""
THIN_EVIDENCE = 30
"""Below so many entries in one run a comparison is called thin."""
TAIL_MOVED, TAIL_STILL = 0.10, 0.05
"""The tail moved if mean (or median) changed by more than the one, median (or mean) by less than the other."""


class IoSnapshot(NamedTuple):
    """The process's cumulative I/O counters at one moment, in bytes, from /proc/self/io.

    ``*_bytes`` reached the block device, ``*_chars`` went through read and write calls, page cache included. All
    are 0 and `available` is False where the kernel does not give them.
    """

    read_bytes: int
    write_bytes: int
    read_chars: int
    write_chars: int
    available: bool = True

    def is_empty(self) -> bool:
        """True if no byte has moved, or nothing could be read."""
        return not (self.read_bytes or self.write_bytes or self.read_chars or self.write_chars)


@dataclass(slots=True)
class PhaseStats:
    """The numbers of one path. Times are of finished entries; of a sampled phase they are scaled estimates."""

    calls: int = 0
    """Finished entries."""
    wall_ns: int = 0
    cpu_ns: int = 0
    """Time on a CPU, within the part of the wall time whose CPU time is known."""
    child_wall_ns: int = 0
    """Part of the wall time during which at least one child was open."""
    hist: DurationHistogram = field(default_factory=DurationHistogram)
    """Wall time of each entry."""
    counters: dict[str, int] = field(default_factory=dict)
    """Sum of the amounts by counter, exact at any size."""
    sample_stride: int = 0
    """0: every entry was measured; n: one in n was, and the numbers are scaled."""
    counter_min: dict[str, int] = field(default_factory=dict)
    """Smallest amount of one ``count()`` call, never scaled."""
    counter_max: dict[str, int] = field(default_factory=dict)
    async_entries: int = 0
    """Entries with ``async_work=True``: submission time, not device time."""

    # Ours, after the fields that other code constructs by position.
    cpu_unknown_ns: int = 0
    """Part of `wall_ns` whose CPU time is not known; all of it with ``measure_cpu=False``."""
    blocked_ns: int = 0
    """Part of the wait in which the thread waited for something."""
    starved_ns: int = 0
    """Part of the wait in which the thread could run but no CPU was free."""
    min_ns: int = 0
    """Shortest entry, never scaled; 0 without entries."""
    max_ns: int = 0
    errors: int = 0
    """Entries that an exception left."""
    abandoned: int = 0
    """Entries that were never left: their phase object died open."""
    io_missing: int = 0
    """Entries with ``io=True`` at whose ends the byte counters could not be read: their bytes are missing."""
    counter_calls: dict[str, int] = field(default_factory=dict)
    """``count()`` calls by counter."""
    counter_hist: dict[str, AmountHistogram] = field(default_factory=dict)
    """Amounts of single ``count()`` calls by counter."""
    io: bool = False
    """Opened with ``io=True``: its ``io_*`` counters are exact."""
    io_overlap: bool = False
    """Bytes of io=True entries include those of other threads' entries, or of children waited for meanwhile."""
    overlap: bool = False
    """Its children overlapped in time (tasks): their times add up to more than the time they covered."""

    @property
    def self_ns(self) -> int:
        """Wall time in which no child was open."""
        return max(self.wall_ns - self.child_wall_ns, 0)

    @property
    def cpu_wall_ns(self) -> int:
        """Part of the wall time whose CPU time is known."""
        return max(self.wall_ns - self.cpu_unknown_ns, 0)

    @property
    def wait_ns(self) -> int:
        """Time off the CPU, as far as it is known: 0 where CPU time was not measured, see `cpu_known`."""
        return max(self.cpu_wall_ns - self.cpu_ns, 0)

    @property
    def cpu_known(self) -> bool:
        """False: nothing is known about the CPU time, so a wait of 0 is not a measurement."""
        return self.cpu_wall_ns > 0 or self.wall_ns == 0

    @property
    def wait_split(self) -> bool:
        """False: the wait could not be split, so blocked and starved are not measurements."""
        return self.blocked_ns + self.starved_ns > 0 or self.wait_ns == 0

    def record(self, wall_ns: int, cpu_ns: int) -> None:
        """Adds one entry of this wall and CPU time in ns."""
        wall_ns, cpu_ns = max(int(wall_ns), 0), max(int(cpu_ns), 0)
        self.min_ns = min(self.min_ns, wall_ns) if self.calls else wall_ns
        self.max_ns = max(self.max_ns, wall_ns) if self.calls else wall_ns
        self.calls += 1
        self.wall_ns += wall_ns
        self.cpu_ns += cpu_ns
        self.hist.observe(wall_ns)

    def add_count(self, name: str, amount: int) -> None:
        """Adds one ``count()`` call."""
        self.counters[name] = self.counters.get(name, 0) + amount
        self.counter_min[name] = min(self.counter_min.get(name, amount), amount)
        self.counter_max[name] = max(self.counter_max.get(name, amount), amount)
        self.counter_calls[name] = self.counter_calls.get(name, 0) + 1
        self.counter_hist.setdefault(name, AmountHistogram()).observe(amount)

    def copy(self) -> PhaseStats:
        """An independent copy."""
        made = PhaseStats()
        for name in _PHASE_PLAIN:
            setattr(made, name, getattr(self, name))
        made.hist = self.hist.copy()
        for name in _PHASE_DICTS:
            setattr(made, name, dict(getattr(self, name)))
        made.counter_hist = {name: hist.copy() for name, hist in self.counter_hist.items()}
        return made

    def merge(self, other: PhaseStats) -> None:
        """Adds `other`, which stays as it is. A sampled and a measured part make a sampled whole."""
        mine, theirs = self._has_range(), other._has_range()
        if theirs:
            self.min_ns = min(self.min_ns, other.min_ns) if mine else other.min_ns
            self.max_ns = max(self.max_ns, other.max_ns) if mine else other.max_ns
        for name in _PHASE_SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _PHASE_FLAGS:
            setattr(self, name, getattr(self, name) or getattr(other, name))
        self.sample_stride = max(self.sample_stride, other.sample_stride)
        self.hist.merge(other.hist)
        for counter, total in list(other.counters.items()):
            self.counters[counter] = self.counters.get(counter, 0) + total
        for counter, calls in list(other.counter_calls.items()):
            self.counter_calls[counter] = self.counter_calls.get(counter, 0) + calls
        for counter, least in list(other.counter_min.items()):
            self.counter_min[counter] = min(self.counter_min.get(counter, least), least)
        for counter, most in list(other.counter_max.items()):
            self.counter_max[counter] = max(self.counter_max.get(counter, most), most)
        for counter, hist in list(other.counter_hist.items()):
            self.counter_hist.setdefault(counter, AmountHistogram()).merge(hist)

    def _has_range(self) -> bool:
        """False: `min_ns` and `max_ns` say nothing (no entries, or built from totals alone)."""
        return self.calls > 0 and (self.max_ns > 0 or self.wall_ns == 0)

    def difference(self, baseline: PhaseStats) -> PhaseStats:
        """What came after `baseline`, an earlier state of the same phase. Times and counts are clamped at 0.

        The interval's own minima and maxima are not known exactly: they are taken from its histogram, so they are
        exact below 32 and within 3.2 % above.
        """
        after = PhaseStats(sample_stride=self.sample_stride)
        for name in _PHASE_SUMS:
            setattr(after, name, max(getattr(self, name) - getattr(baseline, name), 0))
        for name in _PHASE_FLAGS:
            setattr(after, name, getattr(self, name))
        after.hist = self.hist.difference(baseline.hist)
        if after.hist.count:
            low, high = after.hist._bounds()
            after.min_ns = max(low, self.min_ns)
            after.max_ns = min(high, self.max_ns) if self.max_ns else high
        for counter, total in self.counters.items():
            grown = total - baseline.counters.get(counter, 0)
            calls = self.counter_calls.get(counter, 0) - baseline.counter_calls.get(counter, 0)
            if not grown and calls <= 0:
                continue
            after.counters[counter] = grown
            after.counter_calls[counter] = max(calls, 0)
            amounts = self.counter_hist.get(counter, AmountHistogram()).difference(
                baseline.counter_hist.get(counter, AmountHistogram())
            )
            after.counter_hist[counter] = amounts
            least, most = self.counter_min.get(counter), self.counter_max.get(counter)
            if least is not None and most is not None:
                low, high = amounts._bounds() if amounts.count else (least, most)
                after.counter_min[counter] = max(low, least)
                after.counter_max[counter] = min(high, most)
        return after

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, histograms sparse."""
        data: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name == "hist":
                value = value.to_sparse()
            elif entry.name == "counter_hist":
                value = {name: hist.to_sparse() for name, hist in value.items()}
            elif isinstance(value, dict):
                value = dict(value)
            data[entry.name] = value
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PhaseStats:
        """The reverse of `to_dict`; what is missing has its default, what is unknown is skipped."""
        made = cls()
        for name in (*_PHASE_PLAIN, *_PHASE_DICTS):
            if name in data:
                value = data[name]
                setattr(made, name, dict(value) if isinstance(value, Mapping) else value)
        made.hist = DurationHistogram.from_sparse(data.get("hist", {}))
        made.counter_hist = {
            name: AmountHistogram.from_sparse(sparse) for name, sparse in data.get("counter_hist", {}).items()
        }
        return made


_PHASE_SUMS = (
    "calls",
    "wall_ns",
    "cpu_ns",
    "child_wall_ns",
    "async_entries",
    "cpu_unknown_ns",
    "blocked_ns",
    "starved_ns",
    "errors",
    "abandoned",
    "io_missing",
)
_PHASE_FLAGS = ("io", "io_overlap", "overlap")
_PHASE_PLAIN = (*_PHASE_SUMS, *_PHASE_FLAGS, "sample_stride", "min_ns", "max_ns")
_PHASE_DICTS = ("counters", "counter_min", "counter_max", "counter_calls")

PhaseTree: TypeAlias = dict[tuple[str, ...], PhaseStats]
"""Phases by path; the root is ``()`` and has only counters and the time of the top phases below it."""


def merge_trees(target: PhaseTree, source: PhaseTree) -> None:
    """Adds `source` to `target` in place; `source` stays as it is. Associative and commutative."""
    for path, stats in list(source.items()):
        if path in target:
            target[path].merge(stats)
        else:
            target[path] = stats.copy()


def top_wall_ns(tree: PhaseTree, open_phases: Iterable[OpenPhase] = (), count_open: bool = True) -> int:
    """Wall time of the top phases together, ns, with that of open ones if `count_open`.

    A path that was never entered itself, as a thread's name, stands for its children (src/analysis/tree_math.c).
    """
    still_open: dict[tuple[str, ...], int] = {}
    for each in open_phases:
        still_open[each.path] = still_open.get(each.path, 0) + (each.open_ns if count_open else 0)
    extents: dict[tuple[str, ...], int] = {(): 0}
    for path in sorted({*tree, *still_open}, key=len, reverse=True):
        if not path:
            continue
        stats = tree.get(path, _NOTHING)
        entered = stats.calls or stats.wall_ns or path in still_open
        extent = stats.wall_ns + still_open.get(path, 0) if entered else extents.get(path, 0)
        extents[path] = extent
        extents[path[:-1]] = extents.get(path[:-1], 0) + extent
    return extents[()]


_NOTHING = PhaseStats()


class Backend(str, Enum):
    """A heavy profiler for a window of a run."""

    NONE = "none"
    TORCH = "torch"
    VIZTRACER = "viztracer"

    @classmethod
    def parse(cls, value: Backend | str | None) -> Backend:
        """None means NONE. Raises ValueError that lists the choices."""
        if value is None:
            return cls.NONE
        try:
            return cls(value)
        except ValueError:
            choices = ", ".join(repr(each.value) for each in cls)
            raise ValueError(f"backend is one of {choices}, got {value!r}") from None


@dataclass(slots=True)
class Sample:
    """One observation of a process from outside. Byte counters are cumulative; -1 means not measured."""

    t: float
    """Unix time, s."""
    phase: str
    """Path of the open phase, ``""`` if none was."""
    rss: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    read_chars: int = 0
    write_chars: int = 0
    self_write_chars: int = 0
    self_write_bytes: int = 0
    cuda_alloc: int = 0
    cuda_reserved: int = 0
    cuda_proc_used: int = -1
    cpu_percent: float = -1.0
    """100 is one core."""
    gpu_util: float = -1.0
    gpu_utils: dict[int, float] = field(default_factory=dict)
    gpu_proc_utils: dict[int, float] = field(default_factory=dict)
    io_ok: bool = True
    """False: the byte counters could not be read."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Sample:
        """From plain values; what is missing has its default, what is unknown is skipped."""
        known = {entry.name for entry in fields(cls)}
        made = cls(**{"t": 0.0, "phase": "", **{key: data[key] for key in data if key in known}})
        made.gpu_utils = {int(index): float(share) for index, share in made.gpu_utils.items()}
        made.gpu_proc_utils = {int(index): float(share) for index, share in made.gpu_proc_utils.items()}
        return made


@dataclass(slots=True)
class IoTotals:
    """Bytes moved, and the seconds they took."""

    read_bytes: int = 0
    write_bytes: int = 0
    read_chars: int = 0
    write_chars: int = 0
    seconds: float = 0.0

    @property
    def read_rate(self) -> float:
        """Bytes a second from the block device."""
        return self.read_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def write_rate(self) -> float:
        """Bytes a second to the block device."""
        return self.write_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def cached_read_bytes(self) -> int:
        """Bytes that the page cache served."""
        return max(self.read_chars - self.read_bytes, 0)


@dataclass(slots=True)
class MemoryTrend:
    """Resident memory in bytes."""

    first_rss: int = 0
    last_rss: int = 0
    peak_rss: int = 0
    slope_bytes_per_s: float = 0.0

    @property
    def growth_bytes(self) -> int:
        """Last minus first."""
        return self.last_rss - self.first_rss


@dataclass(slots=True)
class CpuUsage:
    """In cores."""

    peak: float = 0.0
    mean: float = 0.0
    max_process: float = 0.0
    measured: bool = False


@dataclass(slots=True)
class GpuDevice:
    """Busy shares in percent; -1.0 means not measured."""

    index: int
    busy_mean: float = -1.0
    ours_mean: float = -1.0


@dataclass(slots=True)
class GpuPhaseUsage:
    """GPU use while one phase was open."""

    phase: str
    utils: list[float] = field(default_factory=list)
    """Percent, one a sample."""
    peak_cuda_alloc: int = 0
    peak_cuda_reserved: int = 0

    @property
    def samples(self) -> int:
        """How many samples fell into the phase."""
        return len(self.utils)

    def quantile(self, q: float) -> float:
        """Percent below which the share `q` of the samples lies, by the nearest rank; 0.0 without samples."""
        ranked = sorted(self.utils)
        return ranked[min(max(ceil(q * len(ranked)), 1), len(ranked)) - 1] if ranked else 0.0


@dataclass(slots=True)
class SampleAnalysis:
    """What samples say (`analyse`)."""

    totals: IoTotals = field(default_factory=IoTotals)
    io_by_phase: dict[str, IoTotals] = field(default_factory=dict)
    memory: MemoryTrend = field(default_factory=MemoryTrend)
    memory_by_phase: dict[str, MemoryTrend] = field(default_factory=dict)
    cpu: CpuUsage = field(default_factory=CpuUsage)
    peak_rss_max_process: int = 0
    peak_cuda_alloc: int = 0
    peak_cuda_reserved: int = 0
    peak_cuda_process: int = 0
    cuda_process_measured: bool = False
    gpu_util_mean: float = -1.0
    gpu_devices: list[GpuDevice] = field(default_factory=list)
    gpu_by_phase: dict[str, GpuPhaseUsage] = field(default_factory=dict)
    read_series: list[float] = field(default_factory=list)
    write_series: list[float] = field(default_factory=list)
    io_gap_intervals: int = 0
    io_intervals: int = 0

    @property
    def has_samples(self) -> bool:
        """True if at least one interval or one resident size was seen."""
        return self.io_intervals > 0 or self.memory.peak_rss > 0

    @property
    def has_gpu(self) -> bool:
        """True if anything was measured on a GPU."""
        return bool(self.gpu_devices or self.gpu_by_phase or self.peak_cuda_alloc or self.gpu_util_mean >= 0)

    @property
    def unattributed_read_share(self) -> float:
        """Share (0..1) of what was read while no phase was open."""
        return _share(self.io_by_phase.get(NO_PHASE, IoTotals()).read_chars, self.totals.read_chars)

    @property
    def unattributed_write_share(self) -> float:
        """Share (0..1) of what was written while no phase was open."""
        return _share(self.io_by_phase.get(NO_PHASE, IoTotals()).write_chars, self.totals.write_chars)


def _share(part: int, whole: int) -> float:
    return min(part / whole, 1.0) if whole > 0 else 0.0


@dataclass(slots=True)
class WorkerTrace:
    """The timeline of one worker. Always empty in this version: the timeline comes later."""

    spans: list[Any] = field(default_factory=list)
    links: list[Any] = field(default_factory=list)
    anchors: list[Any] = field(default_factory=list)
    paths: list[tuple[str, ...]] = field(default_factory=list)
    origins: dict[int, Any] = field(default_factory=dict)
    dropped: int = 0
    dropped_links: int = 0

    def path_of(self, phase_id: int) -> tuple[str, ...]:
        """Path of a phase id, ``('(unknown)',)`` if there is none."""
        return self.paths[phase_id] if 0 <= phase_id < len(self.paths) else ("(unknown)",)

    def origin_of(self, phase_id: int) -> Any | None:
        """Where an automatic span comes from, None if nothing is known."""
        return self.origins.get(phase_id)


@dataclass(slots=True)
class OpenPhase:
    """A phase that was open when its worker was read, or when the worker died."""

    path: tuple[str, ...]
    since: float
    """Unix time, s."""
    open_ns: int
    """How long it had been open."""
    thread: str = ""
    thread_id: int = 0
    """Kernel thread id."""


@dataclass(slots=True)
class WorkerSnapshot:
    """One recorded process of a run."""

    pid: int
    """In its own pid namespace."""
    role: str
    path: Path
    """The file, or the segment in memory, that it was read from."""
    started_at: float
    """Unix time, s, at which recording began."""
    written_at: float
    """Unix time, s: last seen alive. Of a process that lives on this host: now."""
    tree: PhaseTree
    samples: list[Sample]
    backend: dict[str, Any] | None = None
    run_id: str = "unknown"
    placement: dict[str, Any] = field(default_factory=dict)
    """``host`` and, where known, ``rank``, ``local_rank``, ``world_size`` (int), ``job_id`` (str)."""
    hardware: dict[str, Any] = field(default_factory=dict)
    """``cpu_cores cpu_threads cpu_affinity ram_total`` and ``gpus``; what is unknown is absent."""
    write_failures: int = 0
    trace: WorkerTrace = field(default_factory=WorkerTrace)

    unclean: bool = False
    """The process died without closing: read from what it left."""
    living: bool = False
    """Read from a process that runs now."""
    open_phases: list[OpenPhase] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    """The rest of what the worker recorded about itself: identity, options, clock, health, own cost."""
    exit_code: int | None = None
    """How an unclean one ended, as `subprocess` shows it: -9 SIGKILL, 3 ``os._exit(3)``. None: not known or closed."""

    @property
    def wall_ns(self) -> int:
        """Wall time of the finished entries of its top phases together."""
        return top_wall_ns(self.tree, self.open_phases, count_open=False)

    @property
    def extent_ns(self) -> int:
        """`wall_ns` and the time of the top phases that are still open."""
        return top_wall_ns(self.tree, self.open_phases)

    @property
    def host(self) -> str:
        """Host name, ``'?'`` if unknown."""
        return str(self.placement.get("host") or "?")

    @property
    def rank(self) -> int | None:
        """Rank by the launcher, None if there was none."""
        rank = self.placement.get("rank")
        return None if rank is None else int(rank)

    @property
    def label(self) -> str:
        """``rank 3 (node07)``, or ``node07:1542`` without a rank."""
        return f"{self.host}:{self.pid}" if self.rank is None else f"rank {self.rank} ({self.host})"


def imbalance_of(workers: Iterable[WorkerSnapshot]) -> float:
    """Largest by mean wall time of the workers, open phases included; 1.0 is even, also for none."""
    walls = [worker.extent_ns for worker in workers]
    total = sum(walls)
    return max(walls) * len(walls) / total if total > 0 else 1.0


@dataclass(slots=True)
class MergedRun:
    """The newest attempt in a run directory, all workers merged."""

    tree: PhaseTree
    workers: list[WorkerSnapshot]
    unreadable: list[Path]
    """Files that could not be read: their workers are missing in every number."""
    metadata: dict[str, Any]
    """``version run_id started_at epoch_anchor argv host python source``."""
    superseded: list[WorkerSnapshot] = field(default_factory=list)
    """Workers of earlier attempts in the same directory; in no number."""
    empty_reason: str = ""
    """``''``, ``'missing'`` (no such directory) or ``'no_worker_files'``."""
    problems: list[str] = field(default_factory=list)
    """Why, one line for each of `unreadable`."""
    directory: str = ""
    """As it was given to `merge_run`."""

    @property
    def roles(self) -> list[str]:
        """Roles by wall time, descending."""
        walls: dict[str, int] = {}
        for worker in self.workers:
            walls[worker.role] = walls.get(worker.role, 0) + worker.extent_ns
        return sorted(walls, key=lambda role: (-walls[role], role))

    @property
    def hosts(self) -> list[str]:
        """Host names, sorted."""
        return sorted({worker.host for worker in self.workers})

    @property
    def hardware_by_host(self) -> dict[str, dict[str, Any]]:
        """What each host has; of several workers the first that knows."""
        found: dict[str, dict[str, Any]] = {}
        for worker in sorted(self.workers, key=lambda worker: worker.started_at):
            if not found.get(worker.host):
                found[worker.host] = worker.hardware
        return dict(sorted(found.items()))

    @property
    def imbalance(self) -> float:
        """Largest by mean wall time of the workers, open phases included; 1.0 is even."""
        return imbalance_of(self.workers)

    def workers_of(self, role: str) -> list[WorkerSnapshot]:
        """The workers of a role."""
        return [worker for worker in self.workers if worker.role == role]

    def tree_of(self, role: str) -> PhaseTree:
        """The merged tree of a role; of an unknown one an empty tree."""
        tree: PhaseTree = {}
        for worker in self.workers_of(role):
            merge_trees(tree, worker.tree)
        return tree

    def samples_of(self, role: str) -> list[Sample]:
        """The samples of a role, by time."""
        found = [sample for worker in self.workers_of(role) for sample in worker.samples]
        return sorted(found, key=lambda sample: sample.t)

    def samples_by_process(self) -> list[list[Sample]]:
        """The samples of each worker that has any."""
        return [worker.samples for worker in self.workers if worker.samples]

    def backend_artifacts(self) -> list[dict[str, Any]]:
        """What heavy backends left."""
        return [worker.backend for worker in self.workers if worker.backend]


class PendingSamples:
    """Samples that are read when they are asked for: a run of twelve hours has millions."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], list[Sample]]) -> None:
        self.read = read


class _SamplesSlot:
    """The slot `samples` of WorkerSnapshot, which may hold PendingSamples; whoever looks gets the list."""

    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def __get__(self, worker: WorkerSnapshot | None, owner: type | None = None) -> Any:
        if worker is None:
            return self
        samples = self._slot.__get__(worker, owner)
        if isinstance(samples, PendingSamples):
            samples = samples.read()
            self._slot.__set__(worker, samples)
        return samples

    def __set__(self, worker: WorkerSnapshot, samples: Any) -> None:
        self._slot.__set__(worker, samples)


setattr(WorkerSnapshot, "samples", _SamplesSlot(WorkerSnapshot.__dict__["samples"]))  # noqa: B010 - a slot, to mypy


@dataclass(slots=True)
class PhaseDelta:
    """One phase in two runs. Times are ns per entry."""

    phase: str
    """Path, joined by ``/``."""
    calls_a: int
    calls_b: int
    per_call_a: float
    """Mean."""
    per_call_b: float
    p50_a: float = 0.0
    p50_b: float = 0.0
    measured: int | None = None
    """Of `samples`, entries that were measured: fewer with ``sample=``. None: all."""
    open_a: int = 0
    """Entries that were open when the run was read; in no other number."""
    open_b: int = 0

    @property
    def only_in(self) -> str | None:
        """``'A'`` or ``'B'`` if the other run never entered it, else None."""
        in_a, in_b = self.calls_a or self.open_a, self.calls_b or self.open_b
        if bool(in_a) == bool(in_b):
            return None
        return "A" if in_a else "B"

    @property
    def ratio(self) -> float:
        """Mean of B by mean of A; 0.0 where there is none."""
        return self.per_call_b / self.per_call_a if self.calls_a and self.calls_b and self.per_call_a > 0 else 0.0

    @property
    def p50_ratio(self) -> float:
        """Median of B by median of A; 0.0 where there is none."""
        return self.p50_b / self.p50_a if self.calls_a and self.calls_b and self.p50_a > 0 else 0.0

    @property
    def percent(self) -> float:
        """Change of the mean in percent; 0.0 where there is none."""
        known = self.calls_a and self.calls_b and self.per_call_a > 0
        return (self.ratio - 1.0) * 100.0 if known else 0.0

    @property
    def samples(self) -> int:
        """Finished entries of the run that has fewer; of a phase that only one run finished, of that run."""
        return min(self.calls_a, self.calls_b) or max(self.calls_a, self.calls_b)

    @property
    def is_thin(self) -> bool:
        """Fewer than 30 measured entries in one of the runs; of a phase that only one run finished, in that run."""
        return (self.samples if self.measured is None else self.measured) < THIN_EVIDENCE

    @property
    def tail_moved(self) -> bool:
        """The mean moved but the median did not, or the other way round."""
        if not self.ratio or not self.p50_ratio:
            return False
        mean, median = abs(self.ratio - 1.0), abs(self.p50_ratio - 1.0)
        return (mean > TAIL_MOVED and median < TAIL_STILL) or (median > TAIL_MOVED and mean < TAIL_STILL)
