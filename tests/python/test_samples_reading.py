"""Samples in Python: a sampler of one's own, figures of given samples, and the samples of a run."""

from __future__ import annotations

import json
import pickle
import threading
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
from lpstage import Stage
from lptest import lineprofiler
from samplefile import ROWS, process
from snapfile import SECOND, Worker

from lineprofiler import accounting
from lineprofiler.accounting import ResourceSampler, Sample, analyse
from lineprofiler.accounting.analysis import NO_PHASE, analyse_processes
from lineprofiler.accounting.sampler import read_samples

MB = 1 << 20


def made(count: int = 11, **step: float) -> list[Sample]:
    """One a second: the phase "a" at even seconds, none at odd ones; counters and sizes rise by `step` a second."""
    return [
        Sample(
            1_790_000_000.0 + k,
            "a" if k % 2 == 0 else "",
            **{name: int(k * by) + (100 * MB if name == "rss" else 0) for name, by in step.items()},
            cpu_percent=50.0,
        )
        for k in range(count)
    ]


def test_figures_of_given_samples() -> None:
    found = analyse(made(rss=MB, read_bytes=10, write_bytes=20, read_chars=30, write_chars=40))
    assert (found.totals.read_bytes, found.totals.write_bytes) == (100, 200)
    assert (found.totals.read_chars, found.totals.write_chars) == (300, 400)
    assert found.totals.seconds == pytest.approx(10.0)
    assert found.totals.cached_read_bytes == 200
    assert found.io_by_phase["a"].read_bytes == 50
    assert found.io_by_phase[NO_PHASE].write_chars == 200
    assert found.unattributed_read_share == pytest.approx(0.5)
    assert found.memory.first_rss == 100 * MB
    assert found.memory.last_rss == found.memory.peak_rss == 110 * MB
    assert found.memory.growth_bytes == 10 * MB
    assert found.memory.slope_bytes_per_s == pytest.approx(MB, rel=1e-6)
    assert found.cpu.measured
    assert found.cpu.mean == pytest.approx(0.5)
    assert found.cpu.peak == pytest.approx(0.5)
    assert (found.io_intervals, found.io_gap_intervals) == (10, 0)
    assert len(found.read_series) == 48
    assert max(found.write_series) == pytest.approx(20.0)
    assert found.has_samples
    assert not found.has_gpu


def test_an_interval_that_was_not_watched_has_no_phase() -> None:
    samples = made(read_bytes=10, write_bytes=0, read_chars=10, write_chars=0)
    del samples[3:8]
    found = analyse(samples)
    assert found.totals.read_bytes == 100
    assert found.io_gap_intervals == 1
    assert found.io_by_phase["a"].read_bytes == 20  # at 2 and 10; that of 8 ends the gap
    assert found.io_by_phase[NO_PHASE].read_bytes == 80


def test_what_could_not_be_read_is_not_zero() -> None:
    samples = [Sample(1.79e9 + k, "a", io_ok=False) for k in range(5)]
    found = analyse(samples)
    assert not found.cpu.measured
    assert found.io_intervals == 0
    assert found.io_by_phase == {}
    assert not found.has_samples


def test_order_and_repeated_times_do_not_matter() -> None:
    samples = made(read_bytes=10, write_bytes=0, read_chars=10, write_chars=0)
    assert analyse([*reversed(samples), samples[4]]) == analyse(samples)
    assert analyse([]) == accounting.SampleAnalysis(read_series=[0.0] * 48, write_series=[0.0] * 48)
    assert len(analyse(samples, series_width=7).read_series) == 7


def test_processes_together() -> None:
    found = analyse_processes([made(rss=0), made(rss=0)])
    assert found.cpu.mean == pytest.approx(1.0)
    assert found.cpu.max_process == pytest.approx(0.5)
    assert found.memory.peak_rss == 200 * MB
    assert found.peak_rss_max_process == 100 * MB


def test_gpu_figures() -> None:
    samples = [
        Sample(
            1.79e9 + k, "fwd", cuda_alloc=k * MB, gpu_util=10.0 * k, gpu_utils={0: 10.0 * k}, gpu_proc_utils={0: 5.0}
        )
        for k in range(5)
    ]
    found = analyse(samples)
    assert found.has_gpu
    assert found.peak_cuda_alloc == 4 * MB
    assert found.gpu_util_mean == pytest.approx(20.0)
    assert [(d.index, d.busy_mean, d.ours_mean) for d in found.gpu_devices] == [(0, 20.0, 5.0)]
    assert found.gpu_by_phase["fwd"].utils == [0.0, 10.0, 20.0, 30.0, 40.0]


def test_a_sampler_of_ones_own(tmp_path: Path) -> None:
    """It writes what it takes; memory that is held is seen, CPU that is used too (a busy machine gives less of it)."""
    phases = iter(["a", "b"])
    sampler = ResourceSampler(tmp_path / "deep" / "samples.jsonl", 0.02, lambda: next(phases))
    held = bytearray(64 * MB)
    sampler.start()
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    sampler.stop()
    sampler.stop()
    samples = read_samples(sampler.path)
    assert sampler.failures == 0
    assert len(samples) >= 3
    assert [sample.phase for sample in samples[:3]] == ["a", "b", ""]  # what raises counts as none
    assert all(sample.rss >= len(held) and sample.io_ok for sample in samples)
    assert samples[0].cpu_percent == -1.0
    used = sum(b.cpu_percent / 100 * (b.t - a.t) for a, b in pairwise(samples))
    assert 0.25 <= used <= 0.6
    with sampler.path.open("a") as file:
        file.write('{"t": 1')  # torn
    assert read_samples(sampler.path) == samples
    with sampler.path.open("a") as file:
        file.write("\n")
    with pytest.raises(ValueError, match=f"line {len(samples) + 1} is no sample"):
        read_samples(sampler.path)


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="interval_s must be above 0"):
        ResourceSampler(tmp_path / "x", 0, str)
    with pytest.raises(ValueError, match="series_width"):
        analyse(made(), series_width=-1)
    with pytest.raises(OSError, match="missing"):
        read_samples(tmp_path / "missing")
    (tmp_path / "foreign").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(ValueError, match="foreign"):
        read_samples(tmp_path / "foreign")


@pytest.mark.parametrize("interval_s", [1e12, float("inf")])
def test_a_sampler_of_an_interval_longer_than_a_lock_can_wait(tmp_path: Path, interval_s: float) -> None:
    """It takes the first sample, waits and takes the last one."""
    sampler = ResourceSampler(tmp_path / "samples.jsonl", interval_s, str)
    sampler.start()
    thread = next(each for each in threading.enumerate() if each.name == "lineprofiler-sampler")
    thread.join(0.1)
    assert thread.is_alive(), "it has raised nothing"
    sampler.stop()
    assert 1 <= len(read_samples(sampler.path)) <= 2


def test_the_samples_of_a_run(stage: Stage) -> None:
    """As the collector took them: lazily, in order, equal after pickling, and what the report is made of."""
    stage.python(
        """
        import time
        from lineprofiler.accounting import Profiler

        with Profiler("run", role="r", sample_interval_s=0.05) as profiler:
            with profiler.phase("a"), profiler.phase("b"):
                end = time.process_time() + 0.5
                while time.process_time() < end:
                    pass
            time.sleep(0.3)
        """
    ).expect()
    stage.settle()  # the collector has appended the last rows
    run = accounting.merge_run(stage.run)
    (worker,) = run.workers
    samples = worker.samples
    assert worker.samples is samples
    assert len(samples) >= 5
    assert [s.t for s in samples] == sorted(s.t for s in samples)
    assert {s.phase for s in samples} >= {"a/b", ""}
    assert run.samples_of("r") == samples
    assert run.samples_by_process() == [samples]
    assert pickle.loads(pickle.dumps(worker)) == worker
    assert asdict(worker)["samples"][0]["t"] == samples[0].t
    found = analyse(samples)
    document = json.loads(json.dumps(accounting.report_as_dict(run)))
    assert found.cpu.mean * found.totals.seconds == pytest.approx(document["machine"]["used"]["cpu_s"], rel=1e-3)
    assert accounting.merge_run(stage.run, with_samples=False).workers[0].samples == []


def test_samples_in_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    """A path is bytes; every face of the run finds the files in it."""
    run_dir = tmp_path / "bytes \udcff"
    about = Worker("r", "node07", 1, elapsed=ROWS * SECOND)
    about.phase("step", 75, SECOND, SECOND)
    about.write(run_dir)
    process(about, 0.5, 100, 0, [(("step", 1000),)] * ROWS).write(run_dir)
    document = accounting.report_as_dict(accounting.merge_run(run_dir))
    assert document["resources"]["memory"]["peak_rss"] == 100 << 20
    shown = lineprofiler("report", run_dir, "--json").expect().stdout
    assert json.loads(shown) == document
    [worker] = accounting.merge_run(run_dir).workers
    assert worker.path.is_file()
    assert str(worker.path) == document["workers"][0]["path"]
