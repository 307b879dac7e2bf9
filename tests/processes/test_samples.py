"""Samples against the truth: programs that use a known amount of everything, and what the collector says of them.

Tolerances. A figure is the last row less the first, or a sum of differences; rows are an interval apart, so what begins
or ends between two rows can be off by what happens in one interval: "one sample". Kernel figures are exact but for CPU
time of ended children and of system time, in steps of 10 ms.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import controlgroups
import pytest
from injection import compiled, preloaded
from lpsamples import BE_SEEN, Samples, read
from lpstage import Stage, is_leaving, wait_for
from phases import real_memory

from lineprofiler.accounting import merge_run

INTERVAL_S = 0.2  # of most programs here, so that they are short
MIB = 1 << 20

HEAD = (
    """
    import os, sys, time
    from lineprofiler.accounting import Profiler, phase

    def burn(seconds):
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass

    profiler = Profiler("run", sample_interval_s=0.2, install=True)
    time.sleep(0.3)  # the first row: what came before it is in its numbers, but in no difference
"""
    + BE_SEEN
)


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("clocks"), "clocks.c", "-shared", "-fPIC")


def sampled(stage: Stage, code: str, *args: object) -> Samples:
    """Runs a program to its end, and gives what its collector saw of it."""
    stage.python(HEAD + code, *args).expect()
    stage.settle()
    (path,) = stage.samples()
    return read(stage, path)


def test_cpu_seconds(stage: Stage) -> None:
    """2 s of CPU in one phase, then none: the total within 2 %, and where they were burnt."""
    seen = sampled(
        stage,
        """
    before = time.process_time()
    with phase("burn"):
        burn(2)
    with phase("rest"):
        time.sleep(1)
    print(before)
    """,
    )
    started = seen.known("cpu")[0] / 1e6  # up to the first row: the interpreter's start
    burnt = seen.last("cpu") / 1e6 - started
    assert burnt == pytest.approx(2, abs=0.04 + INTERVAL_S)
    phases = seen.by_phase("cpu")
    # The phase that is open at the end of an interval gets all of it: one sample on either side.
    assert phases["burn"] / 1e6 == pytest.approx(2, abs=0.04 + INTERVAL_S)
    assert phases.get("rest", 0) / 1e6 <= INTERVAL_S + 0.04
    assert sum(phases.values()) / 1e6 == pytest.approx(burnt, abs=1e-6)
    assert 0 <= seen.last("cpu_system") <= seen.last("cpu")


def test_children_that_burn(stage: Stage) -> None:
    """A child that was waited for is in the ended; one that lives is named apart; neither is in the process's own."""
    seen = sampled(
        stage,
        """
    import subprocess
    code = "import time\\nwhile time.process_time() < 1.0: pass"
    with phase("child"):
        subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
        be_seen()
    with phase("living"):
        code += "\\nprint(flush=True)\\ninput()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], **pipes) as child:
            child.stdout.readline()
            be_seen()
            child.communicate(b"\\n")
        be_seen()
    with phase("after"):
        be_seen()
    """,
    )
    # Each spends 1.0 s, and 10-20 ms more before and after the loop; the kernel rounds each figure down to 10 ms.
    assert seen.last("children_ended_cpu") / 1e6 == pytest.approx(2.03, abs=0.08)
    assert max(seen.known("children_living")) == 1
    assert seen.last("children_living") == 0
    assert max(seen.known("children_living_cpu")) / 1e6 == pytest.approx(1.01, abs=0.04)
    assert max(seen.known("children_living_rss")) >= 4000
    # The one becomes the other when the child is waited for: the sum of both grows as they burn. Each was looked at
    # before its phase was left.
    phases = seen.by_phase("children_ended_cpu", "children_living_cpu")
    assert phases["child"] / 1e6 == pytest.approx(1.01, abs=0.08)
    assert phases["living"] / 1e6 == pytest.approx(1.01, abs=0.08)
    assert seen.last("cpu") / 1e6 < 1


def test_recorded_children_are_their_own(stage: Stage) -> None:
    """What a recorded child burns is in its own samples, and not in its parent's children."""
    stage.python(
        HEAD
        + """
    pid = os.fork()
    if pid == 0:
        with phase("work"):
            burn(1.2)
        os._exit(0)
    with phase("wait"):
        os.waitpid(pid, 0)
        time.sleep(0.6)
    """
    ).expect()
    stage.settle()
    both = sorted((read(stage, path) for path in stage.samples()), key=lambda s: s.last("cpu"))
    assert len(both) == 2
    parent, child = both
    assert child.by_phase("cpu")["work"] / 1e6 == pytest.approx(1.2, abs=0.03 + INTERVAL_S)
    # Known to the child's last row only: up to one sample may be left over.
    assert parent.last("children_ended_cpu") / 1e6 <= INTERVAL_S + 0.05
    # Until its first phase nobody knows that it will record.
    assert set(parent.known("children_living")[-4:]) == {0}


@real_memory
def test_memory_kept_and_freed(stage: Stage) -> None:
    """100 MB kept, 200 MB freed again: exact to what the interpreter does beside it."""
    seen = sampled(
        stage,
        """
    import mmap

    def taken(mib):
        # From the kernel: an allocator may hold more than was asked for, and longer (the address sanitizer's does).
        memory = mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory[::4096] = bytes(len(memory) // 4096)
        return memory

    be_seen()
    with phase("keep"):
        kept = taken(100)
        be_seen()
    with phase("burst"):
        gone = taken(200)
        be_seen()
        gone.close()
        be_seen()
    profiler.close()
    os._exit(0)  # the interpreter would give back what is kept, and may be seen in the middle of it
    """,
    )
    rss = [value / 1024 for value in seen.known("rss")]
    base = rss[0]
    assert rss[-2] - base == pytest.approx(100, rel=0.02)
    assert max(rss) - base == pytest.approx(300, rel=0.02)
    assert seen.last("rss_peak") / 1024 - base == pytest.approx(300, rel=0.02)
    # 300 MB in pages of 4 KB (fewer faults with huge pages), all charged.
    assert sum(seen.by_phase("faults_minor").values()) == seen.last("faults_minor") - seen.known("faults_minor")[0]


def test_written_and_read_bytes(stage: Stage, tmp_path: Path) -> None:
    """50 MB written and synced; read twice cold and once from the page cache: both layers, exactly."""
    seen = sampled(
        stage,
        """
    path = sys.argv[1] + "/data"
    with phase("write"):
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        for _ in range(50):
            os.write(fd, b"x" * (1 << 20))
        os.fsync(fd)
        time.sleep(0.5)
    def read():
        os.lseek(fd, 0, 0)
        while os.read(fd, 1 << 20):
            pass
        time.sleep(0.5)
    for _ in range(2):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with phase("cold"):
            read()
    with phase("warm"):
        read()
    """,
        tmp_path,
    )
    assert seen.by_phase("write_chars")["write"] == pytest.approx(50 * MIB, rel=0.02)
    assert seen.by_phase("read_chars")["cold"] == pytest.approx(100 * MIB, rel=0.02)
    assert seen.by_phase("read_chars")["warm"] == pytest.approx(50 * MIB, rel=0.02)
    device = tmp_path.stat().st_dev
    if not Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").exists():
        pytest.skip("the folder for tests is not on a disk: it has no bytes of the lower layer")
    assert seen.by_phase("write_bytes")["write"] == pytest.approx(50 * MIB, rel=0.02)
    assert seen.by_phase("read_bytes")["cold"] == pytest.approx(100 * MIB, rel=0.02)
    assert seen.by_phase("read_bytes").get("warm", 0) <= 1 * MIB


def test_parts_add_up_to_the_whole(stage: Stage) -> None:
    """Threads that work in phases, one that works in none, nothing open at times: nothing is lost or counted twice."""
    seen = sampled(
        stage,
        """
    import threading
    def work(name, seconds):
        if name:
            with phase(name):
                until = time.thread_time() + seconds
                while time.thread_time() < until:
                    pass
        else:
            with phase("short"):
                pass
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                pass
    time.sleep(0.3)
    threads = [threading.Thread(target=work, args=a) for a in (("one", 0.9), ("two", 0.9), ("", 0.9))]
    for each in threads:
        each.start()
    with phase("main"):
        for each in threads:
            each.join()
    time.sleep(0.4)
    """,
    )
    for name in ("cpu", "read_chars", "write_chars", "faults_minor", "switches_voluntary", "run_delay"):
        total = seen.last(name) - seen.known(name)[0]
        assert sum(seen.by_phase(name).values()) == pytest.approx(total, abs=1e-3), name
        assert all(value >= 0 for value in seen.by_phase(name).values())
    phases = seen.by_phase("cpu")
    # A third each; an interval in which a thread ends is charged to those that are left.
    for name in ("one", "two", ""):
        assert phases[name] / 1e6 == pytest.approx(0.9, abs=0.1 + 2 * INTERVAL_S / 3), phases
    assert phases.get("main", 0) / 1e6 <= INTERVAL_S
    assert max(seen.known("threads")) == 4
    assert max(seen.known("threads_read")) == 4


@pytest.mark.parametrize(("count", "known"), [(24, True), (70, False)])
def test_many_threads_that_work_while_the_first_waits(stage: Stage, count: int, known: bool) -> None:
    """Whose CPU time it was is known of 64 threads; of more it is nobody's, and never that of the phase that waits."""
    seen = sampled(
        stage,
        """
    import threading
    count = int(sys.argv[1])
    go, stop = threading.Event(), threading.Event()
    def work():
        with phase("work"):
            go.wait()
            while not stop.is_set():
                sum(range(2000))
    threads = [threading.Thread(target=work) for _ in range(count)]
    for each in threads:
        each.start()
    with phase("main"):
        go.set()
        time.sleep(3.0)
        stop.set()
        for each in threads:
            each.join()
        time.sleep(0.4)
    """,
        count,
    )
    phases = seen.by_phase("cpu")
    used = sum(phases.values())
    # The first and the last interval have phases that began or ended within them.
    assert phases.get("work" if known else "", 0) >= 0.5 * used, phases
    assert phases.get("main", 0) <= 0.4 * used, phases


def test_a_long_call_that_holds_the_gil(stage: Stage) -> None:
    """5 s in C without letting go: sampled all the same, without a gap."""
    seen = sampled(
        stage,
        """
    import ctypes
    with phase("held"):
        ctypes.PyDLL(None).sleep(5)  # PyDLL: with the GIL held, all the time
    """,
    )
    times = seen.times_s()
    assert times[-1] - times[0] >= 4.8
    inner = [b - a for a, b in itertools.pairwise(times)]
    # A loaded machine may let one tick pass; it is then counted.
    assert len(times) + seen.last("missed") >= 24
    assert sum(inner) / len(inner) <= 1.5 * INTERVAL_S
    assert {path for batch in seen.of() for row in batch.phases[1:-1] for path in row} == {"held"}


def test_the_grid_does_not_drift(stage: Stage) -> None:
    """Rows stand on multiples of the interval of CLOCK_MONOTONIC; how late each came is in the host's file."""
    sampled(stage, "    time.sleep(3)")
    (path,) = stage.samples("host")
    host = read(stage, path)
    times = [b.mono_ns / 1e9 + (t or 0) / 1e6 for b in host.of("host") for t in b.columns["time"]]
    late = host.column("lateness", "host")
    assert len(times) >= 10
    for at, lateness in zip(times[1:], late[1:], strict=True):
        assert lateness is not None
        on_grid = at - lateness / 1e6
        # The file holds microseconds.
        assert abs(on_grid / INTERVAL_S - round(on_grid / INTERVAL_S)) * INTERVAL_S <= 5e-6
    assert sorted(x for x in late if x is not None)[len(times) // 2] < 1e6 * INTERVAL_S
    assert host.known("processes", "host")[0] == 1
    online = len(os.sched_getaffinity(0))
    assert host.known("cpus_online", "host")[0] >= online
    total_kib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    assert host.known("memory_total", "host")[0] == pytest.approx(total_kib, rel=0.05)


def test_a_killed_process_keeps_its_samples(stage: Stage) -> None:
    """To the last interval before its death, with the phase in which it died."""
    program = stage.start(HEAD + "    with phase('doomed'):\n        print(flush=True)\n        burn(60)\n")
    assert program.stdout is not None
    program.stdout.readline()
    time.sleep(2)
    killed = time.monotonic()
    program.kill()
    program.wait(60)
    stage.settle()
    (path,) = stage.samples()
    seen = read(stage, path)
    assert killed - seen.times_s()[-1] <= INTERVAL_S + 0.2
    assert seen.by_phase("cpu")["doomed"] / 1e6 >= 0.2
    assert [list(row) for row in seen.of()[-1].phases][-1] in (["doomed"], [])


def test_a_living_run_can_be_read(stage: Stage) -> None:
    """Of a run that goes on, never less than half of the rows are in the file."""
    program = stage.start(HEAD + "    with phase('on'):\n        print(flush=True)\n        sys.stdin.readline()\n")
    assert program.stdout is not None
    program.stdout.readline()

    def rows() -> int:
        return sum(len(read(stage, path).times_s()) for path in stage.samples())

    wait_for(lambda: rows() >= 5, "rows in the file of a living process")
    (collector,) = stage.collectors()
    before = rows()
    time.sleep(2 * INTERVAL_S)
    os.kill(collector, signal.SIGHUP)  # everything now
    wait_for(lambda: rows() > before, "the rows that waited")
    program.communicate("\n", 60)


def test_pss_is_shared_and_rss_is_not(stage: Stage) -> None:
    """Children that share 60 MB with their parent: their PSS sums to it once, their RSS many times."""
    count = 10
    program = stage.start(
        HEAD
        + f"""
    shared = bytearray(b"x") * (60 << 20)
    children = []
    for _ in range({count}):
        pid = os.fork()
        if pid == 0:
            with phase("child"):
                sum(shared[::4096])
                time.sleep(600)
        children.append(pid)
    with phase("parent"):
        print(flush=True)
        sys.stdin.readline()
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    """
    )
    assert program.stdout is not None
    program.stdout.readline()

    def files() -> list[Samples]:
        for pid in stage.collectors():
            os.kill(pid, signal.SIGHUP)
        time.sleep(0.2)
        return [read(stage, path) for path in stage.samples()]

    wait_for(lambda: sum(bool(s.known("pss")) for s in files()) == count + 1, "PSS of everybody")
    seen = files()
    program.communicate("\n", 60)
    rss = sum(max(s.known("rss")) for s in seen) / 1024
    pss = sum(s.known("pss")[-1] for s in seen) / 1024
    assert rss >= 60 * (count + 1)
    # Once 60 MB, and a few MB of each process's own.
    assert 60 <= pss <= 60 + 6 * (count + 1)


def test_pss_of_a_large_process_is_not_read(stage: Stage) -> None:
    """It would hold up the program's own mmap for as long as it takes."""
    seen = sampled(
        stage, "    kept = bytearray(b'x') * (520 << 20)\n    time.sleep(0.7)\n    del kept\n    time.sleep(0.5)\n"
    )
    assert max(seen.known("rss")) > 500 << 10
    assert "not read above 500 MB: the program's memory would be held up" in {
        batch.reasons.get("pss") for batch in seen.of()
    }


def test_once_a_second_by_default(stage: Stage) -> None:
    """Unless somebody says otherwise."""
    stage.python(
        """
        import time
        from lineprofiler.accounting import Profiler

        with Profiler("run") as profiler, profiler.phase("a"):
            time.sleep(4.2)
        """
    ).expect()
    stage.settle()
    (path,) = stage.samples()
    seen = read(stage, path)
    assert seen.facts["interval_ns"] == "1000000000"
    # Four ticks in that time, of which a loaded machine may take the last too late, or let one pass, which is counted.
    times = seen.times_s()
    assert len(times) - 1 + seen.last("missed") >= 3
    # No more than whole seconds lie between the first row and the last, which a process has at its end.
    assert len(times) <= times[-1] - times[0] + 3


def test_no_samples_when_not_wanted(stage: Stage) -> None:
    stage.python(
        """
        import time
        from lineprofiler.accounting import Profiler

        with Profiler("run", sample_interval_s=None) as profiler, profiler.phase("a"):
            time.sleep(0.3)
        """
    ).expect()
    stage.settle()
    assert stage.snapshots()
    assert stage.samples() == stage.samples("host") == []


@pytest.mark.parametrize(("intervals", "count"), [("None, None", 0), ("30.0, None", 1), ("None, 1.0", 1)])
def test_a_collector_only_where_it_has_work(stage: Stage, intervals: str, count: int) -> None:
    """Neither periodic snapshots nor samples: no process beside the program, where else there is one."""
    program = stage.start(
        f"""
        import sys
        from lineprofiler.accounting import Profiler

        snapshots, samples = {intervals}
        with Profiler("run", snapshot_interval_s=snapshots, sample_interval_s=samples) as profiler, profiler.phase("a"):
            print(flush=True)
            sys.stdin.readline()
        """
    )
    assert program.stdout is not None
    program.stdout.readline()
    if count:
        wait_for(stage.collectors, "a collector")
    assert len(stage.collectors()) == count
    program.communicate("\n", 60)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_program_that_is_not_dumpable(stage: Stage) -> None:
    """Its I/O is not for a collector to read that is not root: `n/a` with that reason, and the rest goes on."""
    stage.shm.chmod(0o777)
    stage.python(
        """
        import ctypes, os, sys, time
        from lineprofiler.accounting import Profiler
        Profiler("run", run_id="warm", sample_interval_s=None, snapshot_interval_s=None).close()
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0  # PR_SET_DUMPABLE, which the change of user has cleared
        os.chdir("/")
        with Profiler(sys.argv[1], run_id="it", sample_interval_s=0.2) as profiler, profiler.phase("a"):
            time.sleep(0.7)
            assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
            time.sleep(1)
        """,
        stage.shm / "run",
    ).expect()
    stage.settle()
    files = sorted((stage.shm / "run").glob("workers/*/w_it_*.samples"))
    if not files:
        pytest.skip("another user may not start the collector from where this Python is installed")
    seen = read(stage, files[0])
    assert seen.reason("read_chars") == "permission denied: the program has changed its user or is not dumpable"
    assert seen.known("read_chars")
    assert None in seen.column("read_chars")
    assert None not in seen.column("cpu")
    *before, last = seen.column("rss")
    assert None not in before
    assert 0 not in [*before, last]
    assert last is not None or seen.reason("rss") == "the process had ended"  # it may have, when that row was taken


def test_main_thread_that_ended(stage: Stage) -> None:
    """The first thread leaves, another works on: state Z, no memory in the process's own files, but it lives."""
    program = stage.start(
        HEAD
        + """
    import ctypes, threading
    def on():
        with phase("on"):
            kept = bytearray(b"x") * (50 << 20)
            burn(0.6)
            time.sleep(1.5)
        os._exit(0)
    threading.Thread(target=on).start()
    time.sleep(0.3)
    ctypes.CDLL(None).pthread_exit(None)
    """
    )
    program.wait(60)
    stage.settle()
    (path,) = stage.samples()
    seen = read(stage, path)
    assert seen.by_phase("cpu")["on"] / 1e6 == pytest.approx(0.6, abs=0.05 + INTERVAL_S)
    assert len(seen.times_s()) >= 8
    late = [value for value in seen.column("rss")[-5:-1] if value is not None]
    assert late
    assert min(late) >= 50 * 1024


@pytest.mark.parametrize("freeze", [signal.SIGSTOP])
def test_a_stopped_process_goes_on_being_sampled(stage: Stage, freeze: signal.Signals) -> None:
    program = stage.start(HEAD + "    with phase('stopped'):\n        print(flush=True)\n        burn(1.5)\n")
    assert program.stdout is not None
    program.stdout.readline()
    time.sleep(0.5)
    program.send_signal(freeze)
    time.sleep(1.2)
    program.send_signal(signal.SIGCONT)
    program.wait(60)
    stage.settle()
    (path,) = stage.samples()
    seen = read(stage, path)
    steps = [b - a for a, b in itertools.pairwise(seen.known("cpu"))]
    assert sum(step == 0 for step in steps) >= 4, "rows of the time in which it stood"
    assert seen.by_phase("cpu")["stopped"] / 1e6 == pytest.approx(1.5, abs=0.05 + INTERVAL_S)


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(
    os.geteuid() != 0 or not (FREEZER / "tasks").exists(), reason="needs root and the freezer of control groups"
)
def test_a_frozen_group_goes_on_being_sampled(stage: Stage) -> None:
    """The collector, which stands outside, waits for nobody: rows of the time in which all of a group stood still."""
    group = FREEZER / f"lptest-{os.getpid()}"
    group.mkdir()
    program = stage.start(HEAD + "    with phase('frozen'):\n        print(flush=True)\n        burn(1.5)\n")
    try:
        assert program.stdout is not None
        program.stdout.readline()
        time.sleep(0.5)
        (group / "cgroup.procs").write_text(str(program.pid))
        (group / "freezer.state").write_text("FROZEN")
        wait_for(lambda: (group / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
        time.sleep(1.2)
        (group / "freezer.state").write_text("THAWED")
        program.wait(60)
    finally:
        (group / "freezer.state").write_text("THAWED")
        program.kill()
        program.wait()
        group.rmdir()
    stage.settle()
    (path,) = stage.samples()
    seen = read(stage, path)
    steps = [b - a for a, b in itertools.pairwise(seen.known("cpu"))]
    assert sum(step == 0 for step in steps) >= 4, "rows of the time in which it stood"
    assert seen.by_phase("cpu")["frozen"] / 1e6 == pytest.approx(1.5, abs=0.05 + INTERVAL_S)


def test_dump_of_a_file_that_is_being_written(stage: Stage) -> None:
    """A reader at any time sees whole batches."""
    program = stage.start(HEAD + "    with phase('a'):\n        burn(3)\n")
    rows = 0
    while program.poll() is None:
        for path in stage.samples():
            done = subprocess.run(["cat", str(path)], capture_output=True, check=True)
            copy = stage.folder / "copy.samples"
            copy.write_bytes(done.stdout)
            if done.stdout:
                seen = read(stage, copy)
                assert "lost" not in seen.facts
                assert len(seen.times_s()) >= rows
                rows = len(seen.times_s())
        time.sleep(0.05)
    assert rows >= 5


NEEDED = ("cpu/cpu.cfs_quota_us", "cpuacct/cpuacct.usage", "memory/memory.usage_in_bytes")


@pytest.mark.skipif(not controlgroups.are_there(*NEEDED), reason="needs root and control groups of version 1")
def test_a_real_control_group_with_limits(stage: Stage) -> None:
    """A twentieth of a CPU and 600 MB: the limits, that they bite, and how much was used."""
    with controlgroups.control_groups("cpu", "cpuacct", "memory") as groups:
        (groups[0] / "cpu.cfs_quota_us").write_text("5000")
        (groups[2] / "memory.limit_in_bytes").write_text(str(600 << 20))
        enter = f"""
    import os
    for folder in {[str(group) for group in groups]}:
        with open(folder + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    """
        stage.python(enter + HEAD + "    with phase('burn'):\n        burn(0.2)\n").expect()
        stage.settle()
        host = read(stage, stage.samples("host")[0])
        used = int((groups[1] / "cpuacct.usage").read_text()) / 1e9
        assert set(host.known("cgroup_cpus", "host")) == {50}
        assert set(host.known("cgroup_memory_limit", "host")) == {600 << 10}
        assert 0 < max(host.known("cgroup_memory", "host")) <= 600 << 10
        # Two cores that others keep busy still give more than a twentieth: it stands still most of the time.
        assert host.known("cgroup_throttles", "host")[-1] >= 5
        assert host.known("cgroup_throttled", "host")[-1] / 1e6 >= 0.2
        # All that ran in it: the program, and the collector to its end.
        assert 0.2 <= host.known("cgroup_cpu", "host")[-1] / 1e6 <= used


def test_a_clock_that_is_set_in_mid_run(stage: Stage, clocks: Path) -> None:
    """The time of day falls back by an hour, and later jumps ahead by two, while a collector samples: nothing but that
    is said of it. The collector is one that was started by hand, with clocks of its own."""
    program = stage.start(
        """
        import sys, threading, time
        from lineprofiler.accounting import Profiler

        with Profiler("run", sample_interval_s=0.1, snapshot_interval_s=600) as profiler:
            print(flush=True)
            ended = threading.Event()
            threading.Thread(target=lambda: (sys.stdin.readline(), ended.set())).start()
            while not ended.is_set():
                with profiler.phase("burn"):
                    until = time.process_time() + 0.05
                    while time.process_time() < until:
                        pass
                with profiler.phase("rest"):
                    time.sleep(0.05)
        """
    )
    assert program.stdout is not None
    program.stdout.readline()
    first = stage.the_collector()
    command = Path(f"/proc/{first}/cmdline").read_bytes().decode().split("\0")
    wait_for(stage.samples, "its file")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not is_leaving(first), "its end, and with it that of its lock")
    moved = stage.folder / "moved"
    moved.write_bytes(bytes(24))
    env = stage.environment(LD_PRELOAD=preloaded(clocks), LP_TEST_CLOCKS=str(moved))
    second = subprocess.Popen([command[0], *command[2:4]], env=env)
    started = time.monotonic()

    def rows() -> int:
        second.send_signal(signal.SIGHUP)
        return sum(len(read(stage, path).times_s()) for path in stage.samples())

    try:
        wait_for(lambda: len(stage.samples()) == 2, "its own file: from then on it hears signals")
        for hours in (0, -1, 1):
            with moved.open("r+b") as file:  # mapped by the collector
                file.write(struct.pack("q", hours * 3600 * 10**9))
            before = rows()
            wait_for(lambda before=before: rows() >= before + 12, "a second of rows")  # type: ignore[misc]
        lasted = time.monotonic() - started
        program.communicate("\n", 60)
        second.wait(60)
    finally:
        second.kill()
        second.wait()
    report = stage.report()
    steps = report.caveats["clock_steps"]
    assert [(round(step["by_s"] / 3600), step["cause"]) for step in steps] == [(-1, "set"), (2, "set")]
    (worker,) = merge_run(stage.run).workers
    apart = [b.t - a.t for a, b in itertools.pairwise(worker.samples)]
    assert all(step > 0 for step in apart), "in the order in which they were taken"
    assert sum(apart) <= lasted + 30, "as long as it took, and no hour more"
    # Of one busy thread. (A single row may show more: its clocks are read a moment apart.)
    used = sum(b.cpu_percent / 100 * (b.t - a.t) for a, b in itertools.pairwise(worker.samples))
    assert 0 < used <= 1.1 * sum(apart)
    (process,) = report.document["resources"]["processes"]
    assert process["seconds"] <= lasted + 30
    assert 0 < report.document["machine"]["used"]["cpu_cores_mean"] <= 1.1
    assert report.document["resources"]["memory"]["peak_rss"] <= 1.05 * process["peak_rss"]


@pytest.mark.parametrize("removed", ["run", "run/workers"])
def test_files_that_somebody_removes(stage: Stage, removed: str) -> None:
    """What is seen afterwards is in new files, with its phases."""
    program = stage.start(
        HEAD
        + """
    with phase("outer"), phase("inner"):
        print("ready", flush=True)
        sys.stdin.readline()
    profiler.close()
    """
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"

    def files(least: int = 1) -> list[Path]:
        found = stage.run.glob("workers/*/*.samples")
        return [path for path in found if path.exists() and path.stat().st_size >= least]

    def have_started() -> bool:
        return len(files()) == 2

    wait_for(have_started, "files of the process and of the host")
    first = max(path.stat().st_size for path in files())
    (collector,) = stage.collectors()
    os.kill(collector, signal.SIGSTOP)  # or it makes a file where one is just removed
    shutil.rmtree(stage.folder / removed)
    stage.run.mkdir(exist_ok=True)
    os.kill(collector, signal.SIGCONT)
    wait_for(lambda: len(files(first)) == 2, "new files, as long as the first")
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.wait(60) == 0
    stage.settle()
    for path in files():
        assert path.name.endswith(".1.samples")
        read(stage, path)
    (worker,) = merge_run(stage.run).workers
    assert worker.samples
    report = stage.report()
    report.healthy()
    assert report.calls() == {"outer": 1, "outer/inner": 1}
