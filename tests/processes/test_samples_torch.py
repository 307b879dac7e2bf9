"""What torch says of its GPU memory reaches the samples; a program without torch, or without CUDA, is left alone."""

from __future__ import annotations

from lpsamples import Samples, read
from lpstage import Stage

# As torch.cuda.memory_stats_as_nested_dict() answers: nothing before CUDA is initialised.
PROGRAM = """
    import sys, time, types
    from lineprofiler.accounting import Profiler

    torch, cuda = types.ModuleType("torch"), types.ModuleType("torch.cuda")
    torch.cuda = cuda
    calls, stats = [], {{}}

    def memory_stats_as_nested_dict():
        calls.append(time.monotonic())
        {body}
        return stats

    cuda.memory_stats_as_nested_dict = memory_stats_as_nested_dict
    sys.modules.update({{"torch": torch, "torch.cuda": cuda}})

    def work(seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with profiler.phase("step"):
                time.sleep(0.002)

    with Profiler("run", sample_interval_s={interval}, snapshot_interval_s=None) as profiler:
        work(1.6)
        stats.update(
            allocated_bytes={{"all": {{"current": 300 << 20, "peak": 1}}}},
            reserved_bytes={{"all": {{"current": 512 << 20, "peak": 1}}}},
        )
        work(2)
    print([b - a for a, b in zip(calls, calls[1:])], len(calls))
"""


def run(stage: Stage, body: str = "pass", interval: str = "0.2") -> tuple[list[float], int, list[Samples]]:
    done = stage.python(PROGRAM.format(body=body, interval=interval)).expect()
    stage.settle()
    gaps, count = done.stdout.rsplit("]", 1)
    found = [float(word) for word in gaps.strip("[] ").split(",") if word.strip()]
    return found, int(count), [read(stage, path) for path in stage.samples()]


def test_allocated_and_reserved(stage: Stage) -> None:
    gaps, count, (seen,) = run(stage)
    assert 2 <= count <= 4
    assert min(gaps) >= 0.99, "at most once a second"
    assert seen.column("torch_allocated")[0] is None, "not before CUDA is initialised"
    assert seen.reason("torch_allocated") == "the process does not use it"
    assert seen.known("torch_allocated")[-1] == 300 * 1024
    assert seen.known("torch_reserved")[-1] == 512 * 1024


def test_trouble_in_torch_is_not_the_programs(stage: Stage) -> None:
    """It raises, or answers something else: the program sees nothing."""
    for body in ("raise RuntimeError('no')", "return 5", "return {'allocated_bytes': {'all': {'current': -1}}}"):
        _, count, files = run(stage, body)
        assert count >= 2
        assert files[-1].known("torch_allocated") == []


def test_nobody_asks_without_samples(stage: Stage) -> None:
    _, count, files = run(stage, interval="None")
    assert (count, files) == (0, [])


def test_nothing_is_imported(stage: Stage) -> None:
    found = stage.facts(
        """
        import sys, time
        from lineprofiler.accounting import Profiler
        with Profiler("run", sample_interval_s=0.2) as profiler:
            until = time.monotonic() + 1.3
            while time.monotonic() < until:
                with profiler.phase("step"):
                    time.sleep(0.002)
        print("torch" in sys.modules)
        """
    )
    assert found is False
