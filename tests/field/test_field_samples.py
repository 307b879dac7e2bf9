"""Cases from users of other samplers: processes that vanish while they are read, CPU figures that are zero or too high.
What GPU libraries do to samplers is in tests/processes/test_samples_gpu.py.
"""

from __future__ import annotations

import itertools

import pytest
from lpsamples import read
from lpstage import Stage


def test_m1_children_that_disappear_while_being_read(stage: Stage) -> None:
    """300 children of a moment each: the sampler goes on, and what they used is among the ended ones."""
    used = stage.facts(
        """
        import resource, subprocess, time
        from lineprofiler.accounting import Profiler, phase
        with Profiler("run", sample_interval_s=0.02, install=True):
            time.sleep(0.2)
            with phase("spawn"):
                for _ in range(300):
                    subprocess.run(["/bin/true"])
            time.sleep(0.1)
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(usage.ru_utime + usage.ru_stime)
        """
    )
    stage.settle()
    (path,) = stage.samples()
    seen = read(stage, path)
    times = seen.times_s()
    assert len(times) + seen.last("missed") >= (times[-1] - times[0]) / 0.02 - 2, "no row was lost without a word"
    rss = seen.column("rss")
    while rss[-1] is None:  # on its way out it has no memory any more, for as many rows as the machine is busy
        rss.pop()
    assert None not in rss
    assert len(rss) >= 10, "0.3 s and 300 processes, a row each 20 ms"
    # cutime and cstime are rounded down to 10 ms, each.
    assert seen.last("children_ended_cpu") / 1e6 == pytest.approx(used, abs=0.03)
    assert seen.last("children_living") == 0


def test_m2_cpu_is_what_was_used(stage: Stage) -> None:
    """One second of CPU is one second, and never more than one core in a program of one thread."""
    sampled_s = stage.facts(
        """
        import time
        from lineprofiler.accounting import Profiler, phase
        with Profiler("run", sample_interval_s=0.1, install=True):
            time.sleep(0.25)
            with phase("burn"):
                before = time.process_time()
                while time.process_time() < before + 1.0:
                    pass
            time.sleep(0.25)
            print(time.process_time() - before)
        """
    )
    stage.settle()
    (path,) = stage.samples()
    seen = read(stage, path)
    grown = seen.last("cpu") - seen.known("cpu")[0]
    assert grown / 1e6 == pytest.approx(sampled_s, abs=0.1), "one sample"
    rows = list(zip(seen.times_s(), seen.known("cpu"), strict=True))
    for (t0, c0), (t1, c1) in itertools.pairwise(rows):
        assert c1 >= c0
        # By the time that has really passed. Both are read a moment apart.
        assert (c1 - c0) / 1e6 <= (t1 - t0) + 0.02
    assert sum(c1 > c0 for (_, c0), (_, c1) in itertools.pairwise(rows)) >= 5
