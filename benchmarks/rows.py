"""The figures that have a bound: what each is called, in which unit it is shown, and whether it is met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Judge = Callable[[dict[str, Any]], bool]


def ours_of(figures: dict[str, Any], key: str) -> float:
    return float(figures[key]["ours"]["median"])


def at_least(key: str, factor: float) -> Judge:
    """The peer costs at least `factor` times as much."""
    return lambda f: float(f[key]["peer/ours"]["median"]) >= factor


def at_most(key: str, limit: float) -> Judge:
    return lambda f: ours_of(f, key) <= limit


def both(*judges: Judge) -> Judge:
    return lambda f: all(judge(f) for judge in judges)


@dataclass(frozen=True)
class Row:
    key: str
    what: str
    unit: str
    must: str
    met: Judge | None = None


ROWS = [
    Row(
        "phase",
        "`with profiler.phase(…)`, wall and wait",
        "ns",
        "≤ 1/20 of the peer (1/30 wanted)",
        at_least("phase", 20),
    ),
    Row("module_phase", "`with accounting.phase(…)`, installed", "ns", ""),
    Row("phase_no_cpu", "the same, `measure_cpu=False`", "ns", ""),
    Row("count", "`profiler.count(…)`", "ns", "≤ 1/12 of the peer", at_least("count", 12)),
    Row("module_count", "`accounting.count(…)`, installed", "ns", ""),
    Row(
        "off_phase",
        "`accounting.phase(…)`, nothing installed",
        "ns",
        "≤ 1/2 of the peer, < empty `with`",
        both(at_least("off_phase", 2), lambda f: ours_of(f, "off_phase") < ours_of(f, "off_empty_with")),
    ),
    Row(
        "off_count",
        "`accounting.count(…)`, nothing installed",
        "ns",
        "≤ 1/2 of the peer, < empty `with`",
        both(at_least("off_count", 2), lambda f: ours_of(f, "off_count") < ours_of(f, "off_empty_with")),
    ),
    Row("off_empty_with", "an empty `with` of a Python class", "ns", ""),
    Row(
        "io",
        "`phase(io=True)` (peer with psutil)",
        "ns",
        "below the peer, ≤ two `pread`s + 300 ns",
        both(at_least("io", 1), lambda f: ours_of(f, "io") <= ours_of(f, "two_preads_of_proc_self_io") + 300),
    ),
    Row("two_preads_of_proc_self_io", "floor: two `pread`s of /proc/self/io", "ns", ""),
    Row("two_reads_of_thread_cpu_clock", "floor: two reads of the thread's CPU clock", "ns", ""),
    Row("two_reads_of_monotonic_clock", "floor: two reads of CLOCK_MONOTONIC", "ns", ""),
    Row("two_reads_of_cycle_counter", "floor: two reads of the cycle counter", "ns", ""),
    Row("sampled", "`phase(sample=0.01)`", "ns", "≤ 1/8 of the peer", at_least("sampled", 8)),
    Row("first_visit", "first visit of a path", "ns", "≤ 5 µs", at_most("first_visit", 5000)),
    Row("mcts_bare", "MCTS search, 2,000 iterations, bare", "ms", ""),
    Row("mcts_four_ratio", "… four phases an iteration, to bare", "x", "≤ 1.05", at_most("mcts_four_ratio", 1.05)),
    Row("mcts_nested_ratio", "… nested, with counters, to bare", "x", "≤ 1.15", at_most("mcts_nested_ratio", 1.15)),
    Row("mcts_four_off_ratio", "floor: the four phases with nothing installed, to bare", "x", ""),
    Row("mcts_nested_off_ratio", "floor: nested with nothing installed, to bare", "x", ""),
    Row("import", "`import lineprofiler.accounting`", "ms", "≤ 1/3 of the peer", at_least("import", 3)),
    Row("segment_threads", "segment: 32 phases in 4 threads", "KB", "≤ 512 KB", at_most("segment_threads", 512 * 1024)),
    Row("segment_paths", "segment: 4,096 paths", "KB", "≤ 16 MB", at_most("segment_paths", 16 * 1024 * 1024)),
]

COLLECTOR_ROWS = [
    Row("fork_bare", "`os.fork()`, nothing recorded", "µs", ""),
    Row(
        "fork_first_phase",
        "… and the child's first phase: dearer by",
        "µs",
        "≤ 60 µs",
        at_most("fork_first_phase", 60e3),
    ),
    Row("collector_start", "start of the collector at 4 GB", "ms", "≤ 2 ms", at_most("collector_start", 2e6)),
    Row(
        "collector_start_subreaper",
        "… by a subreaper at 100 MB",
        "ms",
        "≤ 5 ms",
        at_most("collector_start_subreaper", 5e6),
    ),
    Row(
        "killed_worker_on_disk",
        "a killed worker is on the disk",
        "ms",
        "≤ 0.5 s",
        at_most("killed_worker_on_disk", 5e8),
    ),
    Row("stop_together", "64 workers x 32 phases close at once", "ms", "≤ 1 s", at_most("stop_together", 1e9)),
    Row(
        "collector_share",
        "the collector beside 64 processes that record, of a core",
        "x",
        "≤ 0.005",
        at_most("collector_share", 0.005),
    ),
    Row("collector_share_5", "… with a snapshot each 5 s", "x", ""),
    Row("collector_share_waiting", "… that wait", "x", ""),
    Row("collector_memory", "… peak memory", "KB", "≤ 10 MB", at_most("collector_memory", 10 * 1024 * 1024)),
    Row(
        "while_it_reads_ratio",
        "a phase while it is read each 50 ms, to alone",
        "x",
        "≤ 1.03",
        at_most("while_it_reads_ratio", 1.03),
    ),
    Row(
        "torch_reading",
        "a phase that asks torch for its memory, once a second",
        "µs",
        "≤ 20 µs",
        at_most("torch_reading", 20_000),
    ),
    Row("torch_reading_alone", "… torch's function alone, in that state", "µs", ""),
    Row("torch_loaded", "… the same beside a load that empties the caches", "µs", ""),
    Row("torch_loaded_alone", "… torch's function alone, in that state", "µs", ""),
    Row("torch_warm", "… the same in a program that itself asks torch", "µs", "≤ 20 µs", at_most("torch_warm", 20_000)),
    Row("torch_warm_alone", "… torch's function alone, in that state", "µs", ""),
    Row("deaths_per_s", "workers of one task, one after the other", "", ""),
    Row("death_cost", "… CPU time of the collector each", "µs", ""),
    Row("deaths_behind", "… most that waited to be written", "", "≤ 500", at_most("deaths_behind", 500)),
]


def by_version(key: str, new: float, old: float) -> Judge:
    """A bound on the ratio: from 3.12 on, and before."""
    return lambda f: float(f[key]["peer/ours"]["median"]) >= (new if ours_of(f, "monitoring") else old)


LINE_MUST = "≤ 1/5 of line_profiler; 3.10, 3.11: 1/3"
LINE_ROWS = [
    Row("line", "a line", "ns", LINE_MUST, by_version("line", 5, 3)),
    Row("line_far", "… with a number above 256", "ns", LINE_MUST, by_version("line_far", 5, 3)),
    Row("line_global", "… that begins with a global", "ns", LINE_MUST, by_version("line_global", 5, 3)),
    Row("line_global_far", "… both", "ns", LINE_MUST, by_version("line_global_far", 5, 3)),
    Row("call", "a call of a marked one-line function", "ns", "≤ 1/10; 3.10, 3.11: 1/3", by_version("call", 10, 3)),
    Row(
        "unprofiled",
        "code that is not profiled: calls",
        "x",
        "≤ 1.02; 3.10, 3.11: 1.3",
        lambda f: ours_of(f, "unprofiled") <= (1.02 if ours_of(f, "monitoring") else 1.3),
    ),
    Row("unprofiled_raising", "… that raises all the time", "x", "≤ 1.3", at_most("unprofiled_raising", 1.3)),
    Row("region", "a region's boundary", "ns", "≤ 0.3 µs", at_most("region", 300)),
]

REPORT_ROWS = [
    Row(
        "report_512_seconds", "`report`, 512 workers x 64 phases", "s", "≤ 0.25 s", at_most("report_512_seconds", 0.25)
    ),
    Row("report_512_peak_mb", "… peak memory", "MB", "≤ 40 MB", at_most("report_512_peak_mb", 40)),
    Row(
        "report_4096_seconds",
        "`report`, 4,096 workers x 64 phases",
        "s",
        "linear: ≤ 8 x 512 workers + 25 %",
        lambda f: ours_of(f, "report_4096_seconds") <= 10 * ours_of(f, "report_512_seconds"),
    ),
    Row(
        "report_4096_peak_mb",
        "… peak memory",
        "MB",
        "bounded: ≤ 1.5 x 512 workers",
        lambda f: ours_of(f, "report_4096_peak_mb") <= 1.5 * ours_of(f, "report_512_peak_mb"),
    ),
    Row("sampled_file_mb", "samples of one worker, 12 h at 1 Hz", "MB", "≤ 1.5 MB", at_most("sampled_file_mb", 1.5)),
    Row(
        "report_sampled_seconds",
        "`report`, 64 workers with samples of 12 h",
        "s",
        "≤ 1 s",
        at_most("report_sampled_seconds", 1.0),
    ),
    Row("report_sampled_peak_mb", "… peak memory", "MB", "≤ 60 MB", at_most("report_sampled_peak_mb", 60)),
]

BOUNDED = {"calls": ROWS, "lines": LINE_ROWS, "collector": COLLECTOR_ROWS, "reports": REPORT_ROWS}


def verdicts(document: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Version, row and whether it is met, of every bound that was measured."""
    return [
        (version, row.what, row.met(entry["figures"]))
        for name, rows in BOUNDED.items()
        for version, entry in document.get(name, {}).items()
        for row in rows
        if row.met is not None and row.key in entry["figures"]
    ]
