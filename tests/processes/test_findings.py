"""FINDINGS of living programs: each kind where its cause is made on purpose, and a healthy run.

What a machine is busy with besides must change no outcome: causes are made by affinity, limits of control groups, sleep
and a stand-in for NVIDIA's library, and figures are compared with what the program measured itself. Near misses are in
tests/c/test_analysis_findings.c, and pressure (PSI) as well, which is the whole host's and cannot be made for one test.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from controlgroups import are_there, control_groups
from lpstage import Stage
from nvml import Library
from phases import real_memory

HEAD = """
    import json, os, sys, time
    from lineprofiler.accounting import Profiler

    def burn(seconds):
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
"""

needs_v1 = pytest.mark.skipif(
    not are_there("cpu/cpu.cfs_quota_us", "cpuacct", "memory/memory.oom_control"),
    reason="needs root and control groups of version 1",
)


def findings(stage: Stage) -> dict[str, dict[str, Any]]:
    """By kind, of several the first, which costs most; once the collector has written its last rows."""
    stage.settle()
    found: dict[str, dict[str, Any]] = {}
    for each in stage.report().document.get("findings", []):
        found.setdefault(each["kind"], each)
    return found


def percent(text: str, before: str) -> float:
    found = re.search(rf"{before}(\d+)%", text)
    assert found, text
    return float(found[1])


def told(stdout: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in stdout.splitlines()]


def test_starved(stage: Stage) -> None:
    """Three processes that want a CPU each share one: who only burns and is not on a CPU is starved."""
    done = stage.python(
        HEAD
        + """
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    profiler = Profiler("run", role="burner", sample_interval_s=0.2)
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            break
        children.append(child)
    with profiler.phase("work"):
        wall, cpu = time.perf_counter(), time.process_time()
        burn(0.6)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    os.write(1, (json.dumps({"wall": wall, "cpu": cpu}) + "\\n").encode())
    profiler.close()
    for child in children:
        os.waitpid(child, 0)
    """
    ).expect()
    found = findings(stage)["starved"]
    burners = told(done.stdout)
    wall = sum(each["wall"] for each in burners)
    truth = 100 * (1 - sum(each["cpu"] for each in burners) / wall)
    assert len(burners) == 3
    assert truth > 40
    # What a process does around its loop, and a rounded figure.
    assert percent(found["headline"], "burner: no CPU was free for ") == pytest.approx(truth, abs=3)
    assert found["cost_pct"] == pytest.approx(truth, abs=3)
    assert "lets 3 recorded process(es) use 1.0 core(s)" in found["detail"]


@needs_v1
def test_throttled(stage: Stage) -> None:
    """A twentieth of a CPU for a program that wants one and goes before all others, so that it gets as much."""
    with control_groups("cpu", "cpuacct") as groups:
        (groups[0] / "cpu.shares").write_text("262144")
        (groups[0] / "cpu.cfs_quota_us").write_text("5000")
        stage.python(
            HEAD
            + f"""
    for folder in {[str(group) for group in groups]}:
        with open(folder + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    with Profiler("run", role="worker", sample_interval_s=0.2) as profiler, profiler.phase("work"):
        burn(0.15)
    """
        ).expect()
        stage.settle()
        counts = dict(line.split() for line in (groups[0] / "cpu.stat").read_text().splitlines())
    # Of all periods of the group, its first and last ones included; the report has those between two samples.
    truth = 100 * int(counts["nr_throttled"]) / int(counts["nr_periods"])
    found = findings(stage)["throttled"]
    assert percent(found["headline"], "stopped it in ") == pytest.approx(truth, abs=20)
    assert "The limit is 0.05 core(s)" in found["detail"]


def test_a_phase_that_waits_for_another_role(stage: Stage) -> None:
    """A trainer that could take more batches than its loader makes."""
    loader = stage.script(
        HEAD
        + """
    wall = cpu = 0.0
    born = time.perf_counter()
    with Profiler("run", role="loader", sample_interval_s=0.2) as profiler:
        begun = time.perf_counter()
        for number in range(6):
            with profiler.phase("decode"):
                before, used = time.perf_counter(), time.thread_time()
                burn(0.2)
                wall, cpu = wall + time.perf_counter() - before, cpu + time.thread_time() - used
            print(number, flush=True)
        least = time.perf_counter() - begun
    most = time.perf_counter() - born
    print(json.dumps({"wall": wall, "cpu": cpu, "least": least, "most": most}), flush=True)
    """
    )
    done = stage.python(
        HEAD
        + """
    import subprocess
    with Profiler("run", role="trainer", sample_interval_s=0.2) as profiler:
        with subprocess.Popen([sys.executable, sys.argv[1]], stdout=subprocess.PIPE, text=True) as loader:
            for _ in range(6):
                with profiler.phase("next_batch"):
                    loader.stdout.readline()
                with profiler.phase("train"):
                    burn(0.01)
            print(loader.stdout.read())
    """,
        loader,
    ).expect()
    found = findings(stage)["blocked-phase"]
    (made,) = told(done.stdout.strip())
    assert percent(found["headline"], "next_batch spent ") >= 80  # the rest: it was woken, and had no CPU yet
    assert found["anchor"] == "next_batch"
    # Of the life of its recorder, which is within these two. What it had no CPU for is work, too, that the trainer
    # waits for: of what others run here, much or little.
    working, starved = (
        (100 * figure / made["most"] - 1, 100 * figure / made["least"] + 1)
        for figure in (made["cpu"], made["wall"] - made["cpu"])
    )
    said = "While trainer waits there, loader is at work: on a CPU for "
    assert working[0] <= percent(found["detail"], said) <= working[1]
    if starved[0] >= 6:
        assert starved[0] <= percent(found["detail"], "ready for one that was not free for ") <= starved[1]
    if working[0] > starved[1]:
        assert found["advice"] == "Make loader faster or give it more processes: trainer cannot be faster."
    if starved[0] > working[1]:
        assert found["advice"] == "Give loader CPUs, or make it need fewer: trainer cannot be faster."


def test_a_phase_that_waits_for_no_other_role(stage: Stage) -> None:
    """A pool whose phases are all work, but that has a task of 2 ms now and then: no upload waits for it."""
    done = stage.python(
        HEAD
        + """
    profiler = Profiler("run", role="uploader", sample_interval_s=0.2)
    ask, answer = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ask[1])
        run_id = profiler.run_id
        profiler.close()
        cpu, born = 0.0, time.perf_counter()
        with Profiler("run", role="decoder", run_id=run_id, sample_interval_s=0.2) as profiler:
            begun = time.perf_counter()
            while os.read(ask[0], 1):
                with profiler.phase("decode"):
                    used = time.thread_time()
                    burn(0.002)
                    cpu += time.thread_time() - used
                os.write(answer[1], b"x")
            least = time.perf_counter() - begun
        most = time.perf_counter() - born
        os.write(1, (json.dumps({"cpu": cpu, "least": least, "most": most}) + "\\n").encode())
        os._exit(0)
    for _ in range(12):
        os.write(ask[1], b"x")
        os.read(answer[0], 1)
        with profiler.phase("upload"):
            time.sleep(0.1)
    os.close(ask[1])
    os.waitpid(child, 0)
    profiler.close()
    """
    ).expect()
    found = findings(stage)["blocked-phase"]
    (made,) = told(done.stdout)
    assert found["anchor"] == "upload"
    said = "No other role of this run is busy meanwhile: the one whose phases work most, decoder, is on a CPU for "
    least, most = (100 * made["cpu"] / made[life] for life in ("most", "least"))
    assert least - 1 <= percent(found["detail"], said) <= most + 1
    assert found["advice"].startswith("Look at what is waited for outside the CPU")


def test_one_slow_worker(stage: Stage) -> None:
    """Three that take 0.4 s and one that takes 2 s: 2.5 times the mean of 0.8 s."""
    done = stage.python(
        HEAD
        + """
    profiler = Profiler("run", role="worker", sample_interval_s=0.2)
    children = []
    for seconds in (0.4, 2.0, 0.4, 0.4):
        child = os.fork()
        if child == 0:
            with profiler.phase("item"):
                wall = time.perf_counter()
                time.sleep(seconds)
                wall = time.perf_counter() - wall
            os.write(1, (json.dumps({"pid": os.getpid(), "wall": wall}) + "\\n").encode())
            profiler.close()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    # No phase of its own: it would be one of the workers.
    """
    ).expect()
    found = findings(stage)["slow-worker"]
    workers = told(done.stdout)
    slowest = max(workers, key=lambda worker: worker["wall"])
    said = re.search(r":(\d+) took ([\d.]+) times the mean of the (\d+) processes of worker", found["headline"])
    assert said, found
    assert int(said[1]) == slowest["pid"]
    processes = int(said[3])
    mean = sum(worker["wall"] for worker in workers) / processes
    assert float(said[2]) == pytest.approx(slowest["wall"] / mean, rel=0.05)


@real_memory
def test_memory_that_grows(stage: Stage) -> None:
    """20 MiB a second, in one phase of two, for 3.5 s; paced by the clock, so that a stop is made up for."""
    done = stage.python(
        HEAD
        + """
    kept, rate = [], 20 << 20
    with Profiler("run", role="server", sample_interval_s=0.05) as profiler:
        start = time.monotonic()
        while (passed := time.monotonic() - start) < 3.5:
            with profiler.phase("fill_cache"):
                while len(kept) << 18 < rate * passed:
                    kept.append(bytearray(b"x") * (1 << 18))
                time.sleep(0.03)
            with profiler.phase("answer"):
                time.sleep(0.003)
    os.write(1, (json.dumps({"pid": os.getpid()}) + "\\n").encode())
    os._exit(0)  # with its memory
    """
    ).expect()
    found = findings(stage)["memory-growth"]
    (program,) = told(done.stdout)
    said = re.search(r"Memory of .*:(\d+) grows by ([\d.]+) GB an hour", found["headline"])
    assert said, found
    assert int(said[1]) == program["pid"]
    # 70.3 GiB an hour, from the second half of up to 70 rows, each as late as the machine makes it.
    assert float(said[2]) == pytest.approx(20 * 3600 / 1024, rel=0.15)
    assert percent(found["detail"], r"hour \(resident size, once an interval\)\. ") >= 50
    assert "of the growth came while fill_cache was open" in found["detail"]
    assert found["anchor"] == "fill_cache"


def test_a_gpu_that_idles(stage: Stage, library: Library) -> None:
    """3 % busy while batches are loaded, 90 % while they are trained with."""
    stage.python(
        HEAD
        + """
    def busy(percent):
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(f"pid {os.getpid()} 512 40\\nbusy {percent}\\n")
        os.rename(sys.argv[1] + ".new", sys.argv[1])

    with Profiler("run", role="trainer", sample_interval_s=0.1) as profiler:
        for name, percent in (("load", 3), ("train", 90)):
            busy(percent)
            with profiler.phase(name):
                time.sleep(2.5)
    """,
        library.control,
        env={"LD_LIBRARY_PATH": str(library.folder)},
    ).expect()
    found = findings(stage)["gpu-idle"]
    assert percent(found["headline"], "The GPU idles while load is open, ") == pytest.approx(50, abs=10)
    assert percent(found["detail"], "There the device was busy for ") == 3
    assert percent(found["detail"], "in other phases up to ") == 90
    assert found["anchor"] == "load"


@needs_v1
def test_out_of_memory(stage: Stage) -> None:
    """A child that wants more than the control group has is killed by the kernel, and counted."""
    with control_groups("memory") as (group,):
        (group / "memory.limit_in_bytes").write_text(str(200 << 20))
        swap = group / "memory.memsw.limit_in_bytes"
        if swap.exists():
            swap.write_text(str(200 << 20))
        stage.python(
            HEAD
            + f"""
    import signal
    with open({str(group)!r} + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
    with Profiler("run", role="main", sample_interval_s=0.2) as profiler:
        with profiler.phase("before"):
            time.sleep(0.5)  # a row from before
        with profiler.phase("child"):
            child = os.fork()
            if child == 0:
                wanted = bytearray(b"x") * (400 << 20)
                os._exit(0)
            assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
            time.sleep(0.8)
    """
        ).expect()
        found = findings(stage)["oom-killed"]
    assert found["headline"].endswith(": the kernel killed 1 process(es) for want of memory")
    assert found["detail"] == "The memory limit of its cgroup is 200.0 MB."
    assert found["cost_pct"] is None


def test_a_healthy_run_has_none(stage: Stage) -> None:
    """Three even workers that hold their memory and rest for a fifth of the time. Of a CPU that others have, of a limit
    and of pressure the machine decides; whether they were starved the kernel says, too."""
    done = stage.python(
        HEAD
        + """
    profiler = Profiler("run", role="worker", sample_interval_s=0.1)
    gate, opened = os.pipe()
    ready, told = os.pipe()
    kept = bytearray(b"x") * (32 << 20)
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            break
        children.append(child)
    os.write(told, b"x")
    if child:
        got = b""
        while len(got) < 3:
            got += os.read(ready, 3)
        os.write(opened, b"xxx")
    os.read(gate, 1)

    def delay():
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9

    wall, starved = time.perf_counter(), delay()
    while time.perf_counter() - wall < 2.0:
        with profiler.phase("work"):
            burn(0.02)
            time.sleep(0.005)
    wall, starved = time.perf_counter() - wall, delay() - starved
    os.write(1, (json.dumps({"wall": wall, "starved": starved}) + "\\n").encode())
    profiler.close()
    for child in children:
        os.waitpid(child, 0)
    """
    ).expect()
    workers = told(done.stdout)
    found = findings(stage)
    share = sum(worker["starved"] for worker in workers) / sum(worker["wall"] for worker in workers)
    if share >= 0.06:
        assert percent(found["starved"]["headline"], "no CPU was free for ") == pytest.approx(100 * share, abs=3)
    if share <= 0.04:
        assert "starved" not in found
    assert set(found) <= {"starved", "throttled", "memory-pressure", "disk-pressure"}, found
    stage.report().healthy()


def test_the_page_lists_every_kind() -> None:
    """And this file has each but those of pressure."""
    root = Path(__file__).resolve().parents[2]
    kinds = set(re.findall(r'\[LP_FINDING_\w+\] = "([\w-]+)"', (root / "src/render/findings.c").read_text()))
    page = (root / "docs/report.md").read_text()
    assert len(kinds) >= 9
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in page] == []
    here = Path(__file__).read_text()
    assert [kind for kind in sorted(kinds) if f'["{kind}"]' not in here] == ["disk-pressure", "memory-pressure"]
