"""Kills at random moments: of recorded Python programs, and of collectors. The tests run some, `make soak` runs many.

The oracle is memory that programs and killer share: what has begun and what has finished of each kind, counted by the
program itself before and after. After a kill, for every phase: finished <= entries <= begun, and entries = sum of the
histogram; for a counter the same of its total.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from lpstage import Stage, wait_for

CELLS = 16  # words of one victim: begun and finished of each path, most and least of the counter
PATHS = ("step", "step/a", "step/a/b", "thread")

# Forks victims, each a program with a profiler and a thread of its own, and kills them; two live at a time.
KILLER = """
import mmap, os, random, signal, sys, threading, time
from lineprofiler.accounting import Profiler

count, seed, cells = (int(word) for word in sys.argv[1:4])
chance = random.Random(seed)
with open("oracle", "r+b") as file:
    shared = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

def victim(number):
    base = number * cells
    profiler = Profiler("run", role=f"victim {number}", run_id="same", snapshot_interval_s=0.02)

    def in_a_thread():
        while True:
            shared[base + 6] += 1
            with profiler.phase("thread"):
                for _ in range(5):
                    pass
            shared[base + 7] += 1

    threading.Thread(target=in_a_thread, daemon=True).start()
    for n in range(1 << 60):
        shared[base] += 1
        with profiler.phase("step"):
            shared[base + 2] += 1
            with profiler.phase("a"):
                shared[base + 4] += 1
                with profiler.phase("b"):
                    if n % 500 == 499:
                        time.sleep(0.001)  # so that the thread comes to its turn
                shared[base + 5] += 1
                shared[base + 8] += 3
                profiler.count("n", 3)
                shared[base + 9] += 3
            shared[base + 3] += 1
        shared[base + 1] += 1

for first in range(0, count, 2):
    numbers = range(first, min(first + 2, count))
    pids = []
    for number in numbers:
        pid = os.fork()
        if pid == 0:
            try:
                victim(number)
            finally:
                os._exit(1)
        pids.append(pid)
    for number, pid in zip(numbers, pids):
        while not shared[number * cells + 1]:
            time.sleep(0.0005)
    for pid in pids:
        # From the first phases, where a segment grows, to where it is quiet.
        time.sleep(chance.random() ** 2 * 0.04)
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
"""


@contextlib.contextmanager
def oracle(stage: Stage, victims: int) -> Iterator[Any]:
    """The shared words; the file is new each time."""
    path = stage.folder / "oracle"
    path.write_bytes(bytes(max(4096, victims * CELLS * 8)))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        with memoryview(mapped) as raw, raw.cast("Q") as cells:
            yield cells


def kill_programs(stage: Stage, count: int) -> None:
    """`count` kills in one run directory; raises AssertionError where a figure is not what it must be."""
    from lineprofiler.accounting import merge_run

    seed = random.SystemRandom().randrange(1 << 32)
    with oracle(stage, count) as cells:
        stage.python(KILLER, count, seed, CELLS).expect()
        stage.settle()
        report = stage.report()
        report.healthy()
        assert report.states() == ["died"] * count, seed
        assert [p for p in stage.segments() if p.is_file()] == []
        workers = {worker.role: worker for worker in merge_run(stage.run).workers}
        listed = {worker["role"]: worker for worker in report.workers}
        for number in range(count):
            words = cells[number * CELLS : (number + 1) * CELLS].tolist()
            _check(workers[f"victim {number}"], report.open_since(listed[f"victim {number}"]), words, (seed, number))


def _check(worker: Any, is_open: dict[str, float], words: Any, where: object) -> None:
    for i, path in enumerate(PATHS):
        begun, finished = words[2 * i], words[2 * i + 1]
        stats = worker.tree.get(tuple(path.split("/")))
        if stats is None:  # killed before its first
            assert finished == 0, (where, path)
            continue
        assert finished <= stats.calls <= begun <= finished + 1, (where, path)
        assert stats.calls == stats.hist.count == sum(stats.hist.to_sparse().values()), (where, path)
        assert 0 <= stats.child_wall_ns <= stats.wall_ns, (where, path)
        assert 0 <= stats.cpu_ns <= stats.wall_ns, (where, path)
        if path in is_open:
            assert begun == finished + 1, (where, path)
    most, least = words[8], words[9]
    total = worker.tree[("step", "a")].counters.get("n", 0) if ("step", "a") in worker.tree else 0
    assert least <= total <= most, where
    assert total % 3 == 0, where


BESIDE = """
import mmap, sys, time
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role="victim", snapshot_interval_s=0.05)
with open("oracle", "r+b") as file:
    shared = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
while not shared[4]:
    shared[0] += 1
    with profiler.phase("step"):
        shared[2] += 2
        profiler.count("n", 2)
        shared[3] += 2
    shared[1] += 1
    if shared[0] % 100 == 0:
        time.sleep(0.001)
profiler.close()
"""


def kill_collectors(stage: Stage, count: int, end: str) -> None:
    """`count` kills of the collector beside a program that goes on, which is then "killed" or "closed"."""
    chance = random.Random(os.urandom(8))
    with oracle(stage, 1) as cells:
        program = stage.start(BESIDE)
        wait_for(lambda: cells[1] > 100, "it records")
        killed: set[int] = set()
        while len(killed) < count:
            wait_for(lambda: set(stage.collectors()) - killed, "a new collector", 20)
            time.sleep(chance.random() * 0.03)
            for pid in stage.collectors():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            assert program.poll() is None
        if end == "killed":
            program.kill()
        else:
            cells[4] = 1
        program.wait()
        begun, finished, most, least = cells[0], cells[1], cells[2], cells[3]
    stage.settle()
    report = stage.report()
    report.healthy()
    assert report.states() == ["died" if end == "killed" else "closed"]
    assert finished <= report.calls()["step"] <= begun <= finished + 1
    assert least <= report.counters()["step:n"] <= most
    assert stage.segments() == [], "the last one has tidied up"


def repeat(count: int, batch: int, one: Callable[[int], None], say: Callable[[str], None]) -> int:
    """Calls `one` with parts of `count`; the number of parts that failed, each of which is told by `say`."""
    failed = done = 0
    while done < count:
        part = min(batch, count - done)
        try:
            one(part)
        except AssertionError as error:
            failed += 1
            say(f"    failed within {done} to {done + part}: {error}")
        done += part
    return failed
