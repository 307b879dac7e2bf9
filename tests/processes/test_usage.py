"""What the report says of a run's resources, against programs that use known amounts.

What one row of a sample file says is tested in test_samples.py; here it is what many of them add up to."""

from __future__ import annotations

import json
import resource

import pytest
from lpsamples import BE_SEEN
from lpstage import Stage, wait_for

# A process that runs for seconds of CPU time on a machine that other tests keep busy.
BURN = """
    import os, sys, time
    from lineprofiler.accounting import Profiler

    profiler = Profiler("run", role="burner", sample_interval_s=0.25)
    def burn(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
    with profiler.phase("work"):
        burn(1.0)
    time.sleep(0.6)
    with profiler.phase("save"):
        for i in range(8):
            with open("out", "wb") as file:
                file.write(b"x" * (4 << 20))
                file.flush()
                os.fsync(file.fileno())
            time.sleep(0.3)
    time.sleep(0.6)
    profiler.close()
"""


@pytest.fixture
def burned(stage: Stage) -> tuple[float, dict]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    stage.python(BURN).expect()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    process_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    stage.settle()  # the collector has appended the last rows
    return process_s, stage.report().document


def phase(document: dict, path: str) -> dict:
    return next(p for p in document["resources"]["phases"] if p["phase"] == path)


def test_cpu_and_bytes_fall_to_the_phases_that_were_open(burned: tuple[float, dict]) -> None:
    """All CPU time is in the totals but for what came before the first row and after the last one.

    That is an interval of 0.25 s at the most, of a process that sleeps and then ends; a phase may win or lose one
    interval at each of its ends.
    """
    process_s, document = burned
    used = document["machine"]["used"]["cpu_s"]
    (process,) = document["resources"]["processes"]
    seen = used + process["cpu_before_first_sample_s"]
    assert process_s - 0.3 <= seen <= process_s + 0.02  # the kernel's own sum is rounded to 10 ms where it is asked
    work = phase(document, "work")
    assert 1.0 - 0.3 <= work["cpu_s"] <= 1.0 + 0.1
    phases = document["resources"]["phases"]
    assert sum(p["cpu_s"] for p in phases) == pytest.approx(used, rel=1e-9)
    written = document["resources"]["io"]["write_bytes"]
    assert sum(p["write_bytes"] for p in phases) == pytest.approx(written, abs=len(phases))
    # 32 MiB of content, all of it synced; the file system's own blocks may come on top.
    assert 32 << 20 <= written <= 34 << 20
    # One interval at each end may fall to what comes next; on a loaded machine it may be late and hold two writes.
    assert phase(document, "save")["write_bytes"] >= 16 << 20


def test_nothing_is_sampled_without_an_interval(stage: Stage) -> None:
    stage.python(
        """
        from lineprofiler.accounting import Profiler

        with Profiler("run", role="r", sample_interval_s=None) as profiler:
            with profiler.phase("a"):
                pass
        """
    ).expect()
    document = stage.report().document
    assert "resources" not in document
    assert "used" not in document["machine"]
    assert "not sampled" in stage.command("report", "run").expect().stdout


def test_no_samples_leaves_them_out(stage: Stage) -> None:
    stage.python(BURN.replace("burn(1.0)", "burn(0.4)")).expect()
    stage.settle()
    shown = stage.command("report", "run").expect().stdout
    hidden = stage.command("report", "run", "--no-samples").expect().stdout
    for title in ("I/O (sampled)", "MEMORY (RSS)", "CPU  peak"):
        assert title in shown
        assert title not in hidden


def test_a_living_run_shows_what_it_used_so_far(stage: Stage) -> None:
    """Samples are on the disk within a few intervals; the report of a run that goes on has them."""
    program = stage.start(
        """
        import time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", sample_interval_s=0.1)
        with profiler.phase("held"):
            data = bytearray(64 << 20)
            print("ready", flush=True)
            input()
        """
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    used: dict = {}

    def all_is_seen() -> bool:
        nonlocal used
        document = stage.report().document
        assert document["workers"][0]["state"] == "running"
        used = document["machine"].get("used", {})
        return used.get("rss_peak", 0) >= 64 << 20

    wait_for(all_is_seen, "a sample that was taken after the memory was")
    assert used["rss_peak"] <= (64 << 20) + (64 << 20)  # the interpreter is far below 64 MiB


# Memory that is there for a moment, right after a row was taken: the next row is half a second away. The child holds
# its own meanwhile.
SPIKE = """
    import json, mmap, os, sys, time
    from lineprofiler.accounting import Profiler

    def taken(mib):
        memory = mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory[::4096] = bytes(len(memory) // 4096)
        return memory

    def resident(of, key):
        with open(f"/proc/{of}/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(key))
%s
    before = taken(600)  # and given back before anything is recorded
    before.close()
    profiler = Profiler("run", role="main", sample_interval_s=0.5)
    be_seen()
    pid = os.fork()
    if pid == 0:
        with profiler.phase("hold"):
            held = taken(100)
            time.sleep(60)
    while resident(pid, "VmRSS") < 100 << 20:
        time.sleep(0.01)
    be_seen()
    be_seen()
    together = resident(pid, "VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # VmHWM begins anew: else 600 MB would hide what is to be found
    be_seen()
    with profiler.phase("spike"):
        gone = taken(300)
        alone = resident("self", "VmRSS")
        gone.close()
    be_seen()
    be_seen()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    profiler.close()
    print(json.dumps([alone, together]))
"""


def test_memory_between_two_rows_is_in_the_peak(stage: Stage) -> None:
    """300 MB for some milliseconds, while a child holds 100: what the kernel saw, though hardly ever a row did.

    The kernel counts pages in batches of some dozen a CPU: 1 %.
    """
    run = stage.python(SPIKE % BE_SEEN).expect()
    alone, held = json.loads(run.stdout)
    stage.settle()
    document = stage.report().document
    used = document["machine"]["used"]
    assert used["rss_max_process"] == pytest.approx(alone, rel=0.01)
    assert used["rss_peak"] == pytest.approx(alone + held, rel=0.01)
    assert document["resources"]["memory"]["peak_rss"] == used["rss_peak"]
    (host,) = document["resources"]["hosts"].values()
    assert host["rss_peak"] == used["rss_peak"]


# The least and the most that a report may say, by the program's own readings: from when its collector has taken a first
# row of it until just before close(), and from before there was a Profiler until after it.
SHORT = """
    import glob, os, sys, time

    def spent():
        io = dict(line.split(": ") for line in open("/proc/self/io"))
        return time.process_time(), int(io["wchar"]), int(io["write_bytes"])

    def sampled():
        # A row's last file, which the collector keeps open.
        lock = glob.glob(os.environ["LINEPROFILER_SHM_DIR"] + "/lineprofiler-*/*/.collector-*.lock")
        words = open(lock[0]).read().split() if lock else []
        if len(words) < 4:
            return False
        links = (os.readlink(f"/proc/{words[2]}/fd/{fd}") for fd in os.listdir(f"/proc/{words[2]}/fd") if fd.isdigit())
        try:
            return f"/proc/{os.getpid()}/task/{os.getpid()}/children" in list(links)
        except OSError:
            return False

    def work():
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        with open("out", "wb") as file:
            file.write(b"x" * (3 << 20))
            file.flush()
            os.fsync(file.fileno())

    before = spent()
    from lineprofiler.accounting import Profiler
    profiler = Profiler("run", role="r", snapshot_interval_s=None)
    with profiler.phase("wait"):
        while not sampled():
            time.sleep(0.001)
    least = spent()
    with profiler.phase("work"):
        work()
    until = spent()
    profiler.close()
    after = spent()
    print([b - a for a, b in zip(least, until)], [b - a for a, b in zip(before, after)], sep=", ")
"""


def test_a_program_of_a_third_of_a_second(stage: Stage) -> None:
    """It ends before a second row is due: what it read of itself when it closed is its last one."""
    least, most = stage.facts(SHORT)
    assert least[0] >= 0.3
    stage.settle()
    report = stage.report().document
    (process,) = report["resources"]["processes"]
    assert least[0] - 1e-5 <= process["cpu_s"] <= most[0] + 1e-5  # whole microseconds
    assert process["seconds"] >= 0.3
    io = report["resources"]["io"]
    assert least[1] <= io["write_chars"] <= most[1]
    assert least[2] <= io["write_bytes"] <= most[2]
    assert io["write_bytes"] >= 3 << 20
    shown = stage.command("report", "run").expect().stdout
    assert "CPU  peak                    n/a" not in shown
    assert "needs two readings" not in shown
