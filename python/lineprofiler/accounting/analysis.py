"""What samples say. Computed in C by what prints the report (src/analysis/usage.h); only GPU figures are done here."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median

from lineprofiler import _lineprofiler
from lineprofiler.accounting.results import (
    NO_PHASE,
    CpuUsage,
    GpuDevice,
    GpuPhaseUsage,
    IoTotals,
    MemoryTrend,
    Sample,
    SampleAnalysis,
)

__all__ = ["NO_PHASE", "analyse", "analyse_processes"]


def analyse(samples: list[Sample], series_width: int = 48) -> SampleAnalysis:
    """Figures of one process's samples, in any order. Series are bytes a second, in `series_width` columns.

    What an interval took is charged to the phase that was open at its end; an interval longer than 2.5 usual ones was
    not watched and has no phase. Byte totals are from the first sample to the last one.
    """
    return analyse_processes([samples], series_width)


def analyse_processes(per_process: list[list[Sample]], series_width: int = 48) -> SampleAnalysis:
    """The same of several processes together: sums of what they moved, and of what they held at the same time."""
    ordered = [_distinct(samples) for samples in per_process]
    ordered = [samples for samples in ordered if samples]
    if not ordered:
        return SampleAnalysis(read_series=[0.0] * series_width, write_series=[0.0] * series_width)
    steps = [b.t - a.t for samples in ordered for a, b in pairwise(samples)]
    interval = max(median(steps), 1e-3) if steps else 1.0
    found = _lineprofiler.analyse_samples([_rows(samples) for samples in ordered], interval, series_width)
    every = [sample for samples in ordered for sample in samples]
    peak, mean, most = found["cpu"]
    analysis = SampleAnalysis(
        totals=_moved(found["io"], found["seconds"]),
        memory=_trend(found),
        cpu=CpuUsage(_or_zero(peak), _or_zero(mean), _or_zero(most), measured=not math.isnan(mean)),
        peak_rss_max_process=_whole(found["rss_max_process"]),
        read_series=found["read_series"],
        write_series=found["write_series"],
        io_gap_intervals=int(found["gaps"]),
        io_intervals=int(found["intervals"]),
    )
    _add_phases(analysis, found["phases"], every)
    _add_gpu(analysis, every)
    return analysis


def _distinct(samples: list[Sample]) -> list[Sample]:
    """By time; of those with one time the last."""
    return [sample for _t, sample in sorted({sample.t: sample for sample in samples}.items())]


def _rows(samples: list[Sample]) -> list[tuple[float, str, int, int, int, int, int, int]]:
    rows = []
    cpu_us, before = 0.0, samples[0].t
    for sample in samples:
        known = sample.cpu_percent >= 0
        cpu_us += (sample.t - before) * sample.cpu_percent * 1e4 if known else 0.0
        before = sample.t
        moved = (sample.read_bytes, sample.write_bytes, sample.read_chars, sample.write_chars)
        first = sample is samples[0]
        rows.append(
            (
                sample.t,
                sample.phase,
                sample.rss if sample.rss > 0 else -1,
                *(moved if sample.io_ok else (-1, -1, -1, -1)),
                round(cpu_us) if known or first else -1,
            )
        )
    return rows


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _whole(value: float) -> int:
    return round(_or_zero(value))


def _moved(io: tuple[float, float, float, float], seconds: float) -> IoTotals:
    read, write, read_chars, write_chars = map(_whole, io)
    return IoTotals(read, write, read_chars, write_chars, seconds)


def _trend(found: dict[str, tuple[float, ...]]) -> MemoryTrend:
    first, last, peak, slope = found["memory"]
    seconds = float(found["seconds"])  # type: ignore[arg-type]
    if math.isnan(slope):  # too few points for a line through them
        slope = (last - first) / seconds if seconds > 0 and not math.isnan(first) else 0.0
    return MemoryTrend(_whole(first), _whole(last), _whole(peak), slope)


def _add_phases(analysis: SampleAnalysis, phases: list[tuple[float, ...]], samples: list[Sample]) -> None:
    for name, none, seconds, _cpu_s, read, write, read_chars, write_chars, growth in phases:
        key = NO_PHASE if none else str(name)
        moved = _moved((read, write, read_chars, write_chars), seconds)
        if analysis.io_intervals and (seconds > 0 or moved.read_chars or moved.write_chars):
            analysis.io_by_phase[key] = moved
        sizes = [sample.rss for sample in samples if sample.rss > 0 and (sample.phase or NO_PHASE) == key]
        if sizes:
            slope = _or_zero(growth) / seconds if seconds > 0 else 0.0
            analysis.memory_by_phase[key] = MemoryTrend(sizes[0], sizes[-1], max(sizes), slope)


def _add_gpu(analysis: SampleAnalysis, samples: list[Sample]) -> None:
    analysis.peak_cuda_alloc = max(sample.cuda_alloc for sample in samples)
    analysis.peak_cuda_reserved = max(sample.cuda_reserved for sample in samples)
    held = max(sample.cuda_proc_used for sample in samples)
    analysis.cuda_process_measured = held >= 0
    analysis.peak_cuda_process = max(held, 0)
    whole = [sample.gpu_util for sample in samples if sample.gpu_util >= 0]
    analysis.gpu_util_mean = sum(whole) / len(whole) if whole else -1.0
    for index in sorted({index for sample in samples for index in (*sample.gpu_utils, *sample.gpu_proc_utils)}):
        busy = [sample.gpu_utils[index] for sample in samples if sample.gpu_utils.get(index, -1.0) >= 0]
        ours = [sample.gpu_proc_utils[index] for sample in samples if sample.gpu_proc_utils.get(index, -1.0) >= 0]
        analysis.gpu_devices.append(
            GpuDevice(index, sum(busy) / len(busy) if busy else -1.0, sum(ours) / len(ours) if ours else -1.0)
        )
    for sample in samples:
        if sample.gpu_util < 0 and not sample.cuda_alloc:
            continue
        key = sample.phase or NO_PHASE
        usage = analysis.gpu_by_phase.setdefault(key, GpuPhaseUsage(key))
        if sample.gpu_util >= 0:
            usage.utils.append(sample.gpu_util)
        usage.peak_cuda_alloc = max(usage.peak_cuda_alloc, sample.cuda_alloc)
        usage.peak_cuda_reserved = max(usage.peak_cuda_reserved, sample.cuda_reserved)
