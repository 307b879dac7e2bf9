"""What the collector costs and how quick it is: `python collector.py WORKLOAD [quick]` prints one JSON object.

Figures are ns, bytes, counts or ratios. run.py starts each workload in a process of its own; the peer has no such
process, so there is nothing to compare with.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import select
import signal
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch_memory

clock = time.perf_counter_ns
QUICK = "quick" in sys.argv[2:]
PR_SET_CHILD_SUBREAPER = 36
WORKERS, PHASES = 64, 32
GIVE_UP_S = 60.0


def until(condition: Callable[[], bool]) -> int:
    """Ns until it is true."""
    start = clock()
    while not condition():
        if clock() - start > GIVE_UP_S * 1e9:
            raise SystemExit("waited a minute for what should come at once")
        time.sleep(0.001)
    return clock() - start


def snapshots(run_dir: str, ending: str = ".snap") -> list[str]:
    return glob.glob(f"{run_dir}/workers/*/w_*{ending}")


def fork_once(inside: Callable[[], None]) -> int:
    """ns from before a fork until the child has done `inside`."""
    reader, writer = os.pipe()
    start = clock()
    pid = os.fork()
    if pid == 0:
        inside()
        os.write(writer, struct.pack("q", clock() - start))
        os._exit(0)
    os.waitpid(pid, 0)
    (spent,) = struct.unpack("q", os.read(reader, 8))
    os.close(reader)
    os.close(writer)
    assert isinstance(spent, int)
    return spent


def fork_first_phase() -> dict[str, float]:
    """A fork and the child's first phase, until it has left it, against a fork in a process that never recorded.

    In turns of ten: what a fork costs changes by half from one minute to the next. Of ten, what the collector does
    about the child before is beside the same kind."""
    batch = 10
    requests, asking = os.pipe()
    answers, answering = os.pipe()
    bare_pid = os.fork()  # before the package is imported
    if bare_pid == 0:
        os.close(asking)
        while os.read(requests, 1):
            os.write(answering, struct.pack(f"{batch}q", *(fork_once(lambda: None) for _ in range(batch))))
        os._exit(0)
    os.close(requests)

    from lineprofiler.accounting import Profiler

    profiler = Profiler("fork", role="r", sample_interval_s=None)

    def phase() -> None:
        with profiler.phase("a"):
            pass

    phase()
    bare: list[int] = []
    with_phase: list[int] = []
    for turn in range(7 if QUICK else 31):
        os.write(asking, b".")
        ours = os.read(answers, 8 * batch), [fork_once(phase) for _ in range(batch)]
        if turn > 0:
            bare += struct.unpack(f"{batch}q", ours[0])
            with_phase += ours[1]
    profiler.close()
    os.close(asking)
    os.waitpid(bare_pid, 0)
    median = statistics.median
    return {"fork_bare": median(bare), "fork_first_phase": median(with_phase) - median(bare)}


def start_of_collector(rss: int, subreaper: bool) -> float:
    """What it adds to `Profiler()`: each run id is a run of its own, so each start is one."""
    from lineprofiler.accounting import Profiler

    block = bytearray(rss)
    step = memoryview(block)[::4096]
    step[:] = b"x" * len(step)
    if subreaper:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    times: dict[str, list[int]] = {"0": [], "1": []}
    for number in range(7 if QUICK else 15):
        for switch, spent in times.items():
            os.environ["LINEPROFILER_COLLECTOR"] = switch
            start = clock()
            profiler = Profiler("start", role="r", run_id=f"{os.getpid()}-{number}-{switch}", source={"none": 1})
            spent.append(clock() - start)
            profiler.close()
    return statistics.median(times["1"]) - statistics.median(times["0"])


def start_large() -> dict[str, float]:
    return {"collector_start": start_of_collector((512 << 20) if QUICK else (4 << 30), subreaper=False)}


def start_subreaper() -> dict[str, float]:
    return {"collector_start_subreaper": start_of_collector(100 << 20, subreaper=True)}


def many_workers(
    run_dir: str, interval: float, sample: float | None, work_s: float | None = None
) -> tuple[list[int], int, object]:
    """64 children with 32 phases each, in an open one; they close when the pipe does. Until then they wait, or record a
    phase and a count each `work_s`. The profiler is to be kept: it closes with its last reference."""
    from lineprofiler.accounting import Profiler

    profiler = Profiler(run_dir, role="r", run_id="many", snapshot_interval_s=interval, sample_interval_s=sample)
    reader, writer = os.pipe()
    ready, told = os.pipe()
    pids = []
    for _ in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            for number in range(PHASES - 1):
                with profiler.phase(f"p{number}"):
                    profiler.count("n", number)
            with profiler.phase("waits"):
                os.write(told, b"x")
                while not select.select([reader], [], [], work_s)[0]:
                    with profiler.phase("works"):
                        profiler.count("m")
            profiler.close()
            os._exit(0)
        pids.append(pid)
    for _ in range(WORKERS):
        os.read(ready, 1)
    return pids, writer, profiler


def stop_together() -> dict[str, float]:
    pids, writer, _profiler = many_workers("stop", 30.0, None)
    time.sleep(0.5)
    os.kill(pids[0], signal.SIGKILL)
    os.waitpid(pids[0], 0)
    killed = until(lambda: bool(glob.glob(f"stop/workers/*/w_many_{pids[0]}_*")))
    start = clock()
    os.close(writer)
    until(lambda: len(snapshots("stop", ".final.snap")) == WORKERS - 1)
    return {"killed_worker_on_disk": float(killed), "stop_together": float(clock() - start)}


def cost_beside(interval: float, work_s: float | None) -> tuple[float, float]:
    """CPU time of the collector, of a core, and its peak memory while 64 processes live, with samples as by default."""
    pids, _writer, _profiler = many_workers("beside", interval, 1.0, work_s)
    (lock,) = glob.glob(f"{shared()}/many/.collector-*.lock")
    until(lambda: len(Path(lock).read_text().split()) == 4)
    collector = int(Path(lock).read_text().split()[2])

    def used() -> float:
        threads = os.listdir(f"/proc/{collector}/task")
        return sum(float(Path(f"/proc/{collector}/task/{t}/schedstat").read_text().split()[0]) for t in threads)

    time.sleep(1.5)
    before, start = used(), clock()
    time.sleep(3 if QUICK else interval if interval > 15 else 15)
    share = (used() - before) / (clock() - start)
    status = Path(f"/proc/{collector}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return share, float(peak)


def beside_64() -> dict[str, float]:
    """As by default: a snapshot of each all 30 s, samples each second; each process records ten times a second."""
    share, peak = cost_beside(30.0, 0.1)
    return {"collector_share": share, "collector_memory": peak}


def beside_64_often() -> dict[str, float]:
    return {"collector_share_5": cost_beside(5.0, 0.1)[0]}


def beside_64_waiting() -> dict[str, float]:
    return {"collector_share_waiting": cost_beside(30.0, None)[0]}


def while_it_reads() -> dict[str, float]:
    """A phase in a loop while a snapshot is made every 50 ms, to the same without any: pairs of 0.1 s, in turn."""
    from lineprofiler.accounting import Profiler

    profilers = [
        Profiler(f"reads{i}", role="r", snapshot_interval_s=interval, sample_interval_s=None)
        for i, interval in enumerate((None, 0.05))
    ]

    def cost(profiler: Profiler) -> float:
        phase, done, start = profiler.phase, 0, clock()
        while clock() - start < 100_000_000:
            for _ in range(1000):
                with phase("a"):
                    pass
            done += 1000
        return (clock() - start) / done

    pairs = [[cost(p) for p in profilers] for _ in range(10 if QUICK else 40)]
    for profiler in profilers:
        profiler.close()
    return {"while_it_reads_ratio": statistics.median(b / a for a, b in pairs)}


def torch_reading() -> dict[str, float]:
    return torch_memory.torch_reading(2.5 if QUICK else 6.5)


def deaths() -> dict[str, float]:
    """A pool that renews its workers after each task: what each death costs the collector, and how far it is behind."""
    from lineprofiler.accounting import Profiler

    profiler = Profiler("deaths", role="main", run_id="deaths", sample_interval_s=None)
    folder = f"{shared()}/deaths"
    (lock,) = glob.glob(f"{folder}/.collector-*.lock")
    until(lambda: len(Path(lock).read_text().split()) == 4)
    collector = int(Path(lock).read_text().split()[2])
    threads = [f"/proc/{collector}/task/{t}/schedstat" for t in os.listdir(f"/proc/{collector}/task")]

    def used() -> int:
        return sum(int(Path(t).read_text().split()[0]) for t in threads)

    time.sleep(0.3)
    before, start, count, most = used(), clock(), 300 if QUICK else 2000, 0
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            with profiler.phase("task"):
                profiler.count("n")
            os._exit(0)
        os.waitpid(pid, 0)
        if number % 50 == 0:
            most = max(most, len(os.listdir(folder)))
    spent = clock() - start
    until(lambda: len(snapshots("deaths")) >= count)
    each = (used() - before) / count
    profiler.close()
    return {"death_cost": each, "deaths_per_s": count / (spent / 1e9), "deaths_behind": float(most)}


def shared() -> str:
    return f"{os.environ['LINEPROFILER_SHM_DIR']}/lineprofiler-{os.geteuid()}"


WORKLOADS = {
    f.__name__: f
    for f in (
        fork_first_phase,
        start_large,
        start_subreaper,
        stop_together,
        beside_64,
        beside_64_often,
        beside_64_waiting,
        while_it_reads,
        torch_reading,
        deaths,
    )
}


def main() -> None:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="lpbench-", dir=base) as folder:
        os.environ["LINEPROFILER_SHM_DIR"] = folder
        values = WORKLOADS[sys.argv[1]]()
        print(json.dumps(values), flush=True)
        deadline = clock() + 5_000_000_000  # the collector tidies up behind itself
        while os.path.isdir(shared()) and os.listdir(shared()) and clock() < deadline:
            time.sleep(0.05)


if __name__ == "__main__":
    main()
