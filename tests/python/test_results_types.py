"""The result types: fields in their order, defaults, properties, asdict, equality, pickle."""

from __future__ import annotations

import pickle
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from lineprofiler.accounting import (
    Backend,
    IoSnapshot,
    MergedRun,
    PhaseDelta,
    PhaseStats,
    Sample,
    SampleAnalysis,
    WorkerSnapshot,
    WorkerTrace,
    results,
)

# Names in the order of the constructor, those without a default first and marked.
FIELDS: dict[Any, str] = {
    WorkerSnapshot: "pid! role! path! started_at! written_at! tree! samples! backend run_id placement hardware "
    "write_failures trace",
    MergedRun: "tree! workers! unreadable! metadata! superseded empty_reason",
    PhaseDelta: "phase! calls_a! calls_b! per_call_a! per_call_b! p50_a p50_b",
    Sample: "t! phase! rss read_bytes write_bytes read_chars write_chars self_write_chars self_write_bytes cuda_alloc "
    "cuda_reserved cuda_proc_used cpu_percent gpu_util gpu_utils gpu_proc_utils io_ok",
    SampleAnalysis: "totals io_by_phase memory memory_by_phase cpu peak_rss_max_process peak_cuda_alloc "
    "peak_cuda_reserved peak_cuda_process cuda_process_measured gpu_util_mean gpu_devices gpu_by_phase read_series "
    "write_series io_gap_intervals io_intervals",
    results.IoTotals: "read_bytes write_bytes read_chars write_chars seconds",
    results.MemoryTrend: "first_rss last_rss peak_rss slope_bytes_per_s",
    results.CpuUsage: "peak mean max_process measured",
    results.GpuDevice: "index! busy_mean ours_mean",
    results.GpuPhaseUsage: "phase! utils peak_cuda_alloc peak_cuda_reserved",
    WorkerTrace: "spans links anchors paths origins dropped dropped_links",
}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_fields(kind: Any) -> None:
    assert is_dataclass(kind)
    expected = FIELDS[kind].split()
    found = [
        entry.name + ("!" if entry.default is MISSING and entry.default_factory is MISSING else "")
        for entry in fields(kind)
    ]
    assert found[: len(expected)] == expected
    assert not any(name.endswith("!") for name in found[len(expected) :]), "what is ours has a default"
    assert hasattr(kind, "__slots__")
    assert kind.__hash__ is None


def worker(pid: int = 7, role: str = "actor", wall: int = 100, **more: Any) -> WorkerSnapshot:
    tree = {(): PhaseStats(), ("step",): PhaseStats(calls=1, wall_ns=wall)}
    made = WorkerSnapshot(pid, role, Path("w.snap"), 1000.0, 1060.5, tree, [])
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_worker() -> None:
    made = worker(placement={"host": "node07", "rank": 3})
    assert (made.wall_ns, made.host, made.rank, made.label) == (100, "node07", 3, "rank 3 (node07)")
    assert (made.run_id, made.write_failures, made.backend, made.trace) == ("unknown", 0, None, WorkerTrace())
    bare = worker()
    assert (bare.host, bare.rank, bare.label) == ("?", None, "?:7")


def test_run() -> None:
    workers = [
        worker(1, "actor", 100, placement={"host": "b"}, hardware={"cpu_cores": 4}),
        worker(2, "actor", 300, placement={"host": "a"}),
        worker(3, "learner", 200, placement={"host": "b"}, samples=[Sample(2.0, "x"), Sample(1.0, "y")]),
    ]
    run = MergedRun({}, workers, [], {})
    assert run.roles == ["actor", "learner"]
    assert run.hosts == ["a", "b"]
    assert run.hardware_by_host == {"a": {}, "b": {"cpu_cores": 4}}
    assert run.imbalance == 300 / 200
    assert [each.pid for each in run.workers_of("actor")] == [1, 2]
    assert run.tree_of("actor")[("step",)].wall_ns == 400
    assert run.tree_of("nobody") == {}
    assert [sample.t for sample in run.samples_of("learner")] == [1.0, 2.0]
    assert run.samples_by_process() == [workers[2].samples]
    assert run.backend_artifacts() == []
    assert (run.superseded, run.empty_reason) == ([], "")
    assert pickle.loads(pickle.dumps(run)) == run
    assert asdict(run)["workers"][0]["pid"] == 1


def test_empty_run_is_even() -> None:
    run = MergedRun({}, [], [], {}, [], "missing")
    assert (run.imbalance, run.roles, run.hosts) == (1.0, [], [])


@pytest.mark.parametrize(
    ("delta", "only_in", "ratio", "percent", "samples", "thin", "tail"),
    [
        (PhaseDelta("p", 140, 150, 100.0, 158.0, 50.0, 50.0), None, 1.58, 58.0, 140, False, True),
        (PhaseDelta("p", 140, 150, 100.0, 158.0, 50.0, 80.0), None, 1.58, 58.0, 140, False, False),
        (PhaseDelta("p", 3, 150, 100.0, 80.0, 50.0, 40.0), None, 0.8, -20.0, 3, True, False),
        (PhaseDelta("p", 135, 0, 100.0, 0.0), "A", 0.0, 0.0, 135, False, False),
        (PhaseDelta("p", 0, 2, 0.0, 5.0), "B", 0.0, 0.0, 2, True, False),
        (PhaseDelta("p", 0, 40, 0.0, 5.0, open_a=1), None, 0.0, 0.0, 40, False, False),
        (PhaseDelta("p", 40, 0, 5.0, 0.0, open_a=1), "A", 0.0, 0.0, 40, False, False),
        (PhaseDelta("p", 40, 40, 0.0, 5.0), None, 0.0, 0.0, 40, False, False),
        (PhaseDelta("p", 40, 40, 5.0, 0.0), None, 0.0, -100.0, 40, False, False),
        (PhaseDelta("p", 40, 4000, 5.0, 5.0, measured=40), None, 1.0, 0.0, 40, False, False),
        (PhaseDelta("p", 400, 4000, 5.0, 5.0, measured=4), None, 1.0, 0.0, 400, True, False),
    ],
)
def test_delta(
    delta: PhaseDelta, only_in: str | None, ratio: float, percent: float, samples: int, thin: bool, tail: bool
) -> None:
    assert delta.only_in == only_in
    assert delta.ratio == pytest.approx(ratio)
    assert delta.percent == pytest.approx(percent)
    assert (delta.samples, delta.is_thin, delta.tail_moved) == (samples, thin, tail)


def test_backend() -> None:
    assert Backend("torch") is Backend.TORCH
    assert str.__eq__(Backend.VIZTRACER, "viztracer")
    assert Backend.parse(None) is Backend.NONE
    assert Backend.parse("none") is Backend.NONE
    with pytest.raises(ValueError, match=r"'none', 'torch', 'viztracer'"):
        Backend.parse("cProfile")


def test_sample() -> None:
    made = Sample.from_dict({"t": 3.5, "phase": "a", "rss": 10, "gpu_utils": {"0": 50}, "from_the_future": 1})
    assert made == Sample(3.5, "a", 10, gpu_utils={0: 50.0})
    assert (made.cpu_percent, made.gpu_util, made.cuda_proc_used, made.io_ok) == (-1.0, -1.0, -1, True)


def test_sample_analysis() -> None:
    analysis = SampleAnalysis()
    assert not analysis.has_samples
    assert not analysis.has_gpu
    assert (analysis.unattributed_read_share, analysis.unattributed_write_share) == (0.0, 0.0)
    analysis.totals = results.IoTotals(100, 0, 400, 200, 2.0)
    analysis.io_by_phase = {results.NO_PHASE: results.IoTotals(0, 0, 100, 200)}
    assert (analysis.unattributed_read_share, analysis.unattributed_write_share) == (0.25, 1.0)
    assert (analysis.totals.read_rate, analysis.totals.cached_read_bytes) == (50.0, 300)
    assert results.MemoryTrend(10, 30).growth_bytes == 20
    usage = results.GpuPhaseUsage("forward", [10.0, 50.0, 90.0])
    assert (usage.samples, usage.quantile(0.5), usage.quantile(0.95)) == (3, 50.0, 90.0)


def test_io_snapshot() -> None:
    assert IoSnapshot(0, 0, 0, 0).is_empty()
    snapshot = IoSnapshot(1, 2, 3, 4, True)
    assert tuple(snapshot) == (1, 2, 3, 4, True)
    assert not snapshot.is_empty()
    assert snapshot._fields == ("read_bytes", "write_bytes", "read_chars", "write_chars", "available")


def test_trace_of_a_worker() -> None:
    trace = WorkerTrace(paths=[("a", "b")])
    assert (trace.path_of(0), trace.path_of(9), trace.path_of(-1)) == (("a", "b"), ("(unknown)",), ("(unknown)",))
    assert trace.origin_of(0) is None
