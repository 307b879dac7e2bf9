"""What torch says of its GPU memory reaches the samples; a program without torch, or without CUDA, is left alone."""

from __future__ import annotations

import json
from typing import Any

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


# As torch itself is built: what it documents stands on two functions of its C module.
INSIDE = """
    import json, os, sys, threading, time, types
    from lineprofiler.accounting import Profiler

    torch, cuda, core = (types.ModuleType(name) for name in ("torch", "torch.cuda", "torch._C"))
    torch.cuda, torch._C = cuda, core
    thread, calls, documented, parent = threading.local(), [], [], os.getpid()

    def ready():
        return cuda._initialized and os.getpid() == parent

    def _cuda_getDevice():
        assert ready()
        return getattr(thread, "device", 0)

    def _cuda_memoryStats(device):
        assert ready()
        calls.append(time.monotonic())
        return {
            "allocated_bytes": {"all": {"current": (300 + device) << 20}},
            "reserved_bytes": {"all": {"current": 512 << 20}},
        }

    def memory_stats_as_nested_dict():
        documented.append(1)
        return _cuda_memoryStats(_cuda_getDevice()) if ready() else {}

    cuda._initialized = False
    cuda._is_in_bad_fork = lambda: os.getpid() != parent
    cuda.memory_stats_as_nested_dict = memory_stats_as_nested_dict
    core._cuda_getDevice, core._cuda_memoryStats = _cuda_getDevice, _cuda_memoryStats
    sys.modules.update({"torch": torch, "torch.cuda": cuda, "torch._C": core})

    def work(times, limit_s=60):
        # until torch was asked so often
        until = time.monotonic() + limit_s
        while len(calls) < times and time.monotonic() < until:
            with profiler.phase("step"):
                time.sleep(0.002)

    def tell():
        os.write(1, (json.dumps({"calls": calls, "documented": len(documented)}) + "\\n").encode())
"""


def inside(stage: Stage, code: str) -> list[dict[str, Any]]:
    """What each process tells."""
    done = stage.python(INSIDE + code).expect()
    stage.settle()
    return [json.loads(line) for line in done.stdout.splitlines()]


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


def test_without_torchs_python(stage: Stage) -> None:
    """Its two C functions are called themselves, once CUDA is initialised, of the device that the thread has chosen."""
    (told,) = inside(
        stage,
        """
    with Profiler("run", sample_interval_s=0.2, snapshot_interval_s=None) as profiler:
        work(1, limit_s=1.5)
        assert calls == documented == []
        cuda._initialized = True
        work(1)
        time.sleep(0.5)  # a row
        thread.device = 2
        work(2)
        time.sleep(0.5)
    tell()
    """,
    )
    first, second = told["calls"]
    assert second - first >= 0.99
    assert told["documented"] == 0
    (seen,) = [read(stage, path) for path in stage.samples()]
    assert sorted(set(seen.known("torch_allocated"))) == [300 * 1024, 302 * 1024]
    assert set(seen.known("torch_reserved")) == {512 * 1024}


def test_a_fork_leaves_cuda_behind(stage: Stage) -> None:
    """A child of a process that has asked does not ask: torch's functions would fail there."""
    child, parent = inside(
        stage,
        """
    cuda._initialized = True
    with Profiler("run", sample_interval_s=0.2, snapshot_interval_s=None) as profiler:
        work(1)
        child = os.fork()
        if child == 0:
            calls.clear()
            work(1, limit_s=2.5)
            tell()
            os._exit(0)
        os.waitpid(child, 0)
        work(2)
    tell()
    """,
    )
    assert (child["calls"], child["documented"]) == ([], 0)
    assert len(parent["calls"]) == 2


def test_where_torch_has_other_names(stage: Stage) -> None:
    """Without one of those that are none of its interface, what it documents is called."""
    (told,) = inside(
        stage,
        """
    cuda._initialized = True
    del core._cuda_memoryStats
    with Profiler("run", sample_interval_s=0.2, snapshot_interval_s=None) as profiler:
        work(1)
        time.sleep(0.5)
    tell()
    """,
    )
    assert len(told["calls"]) == told["documented"] == 1
    (seen,) = [read(stage, path) for path in stage.samples()]
    assert seen.known("torch_allocated")[-1] == 300 * 1024


def test_what_only_raises_is_asked_ever_more_seldom(stage: Stage) -> None:
    """An allocator of the program's own may have no statistics; each time that costs torch a C++ exception."""
    (told,) = inside(
        stage,
        """
    cuda._initialized = True
    def raises(device):
        calls.append(time.monotonic())
        raise RuntimeError("does not yet support getDeviceStats")
    core._cuda_memoryStats = raises
    with Profiler("run", sample_interval_s=0.2, snapshot_interval_s=None) as profiler:
        work(3)
    tell()
    """,
    )
    first, second, third = told["calls"]
    assert second - first >= 1.99
    assert third - second >= 3.99
