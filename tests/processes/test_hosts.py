"""A run of several hosts and containers, each made of namespaces: UTS, pid, network, IPC, mount.

Pids are equal in all of them, and the first process of each is PID 1. What happens on one must neither be taken nor
misjudged by another.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from controlgroups import are_there, control_groups
from halting import halted
from lpstage import Report, Stage, wait_for
from lptest import LIMIT_S, run_process, tells_how

# How a death by SIGKILL is known to whoever is not the parent.
KILLED = -signal.SIGKILL if tells_how() else None

NAMESPACES = ["--uts", "--pid", "--net", "--ipc", "--mount", "--fork", "--mount-proc", "--kill-child"]


def can_make_hosts() -> bool:
    probe = "hostname probe && mount -t tmpfs tmpfs /dev/shm"
    return run_process(["unshare", *NAMESPACES, "sh", "-c", probe]).returncode == 0


pytestmark = pytest.mark.skipif(not can_make_hosts(), reason="no namespaces for this user")

# PID 1 of a host. It takes orders, one Python expression a line, and answers each with a line of JSON.
HOST = """
import json, os, signal, subprocess, sys, time
from lineprofiler.accounting import Profiler

def record(role, **options):
    global profiler
    profiler = Profiler("run", role=role, run_id="same", snapshot_interval_s=0.2, **options)
    return os.getpid()

def step(times):
    for _ in range(times):
        with profiler.phase("step"):
            profiler.count("n")

def fork_as(pid):
    # Start times are counted in ticks of 10 ms. A kernel that is not asked gives a pid again only after all others.
    # Whoever starts a process in between has that pid (the collector's git, once): then again.
    while True:
        time.sleep(0.03)
        with open("/proc/sys/kernel/ns_last_pid", "w") as file:
            file.write(str(pid - 1))
        child = os.fork()
        if child == 0 and os.getpid() != pid:
            os._exit(0)
        if child in (0, pid):
            return child
        os.waitpid(child, 0)

def serve():
    for line in sys.stdin:
        print(json.dumps(eval(line)), flush=True)

def worker(times, pid=0, role="worker"):
    # A recorded child that has left `times` phases and is inside of one more.
    ready, told = os.pipe()
    child = fork_as(pid) if pid else os.fork()
    if child == 0:
        os.close(ready)
        record(role)
        step(times)
        with profiler.phase("held"):
            os.write(told, b"x")
            os.close(told)
            while True:
                signal.pause()
    os.close(told)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    return child

def sleeper(pid):
    # Somebody else who has that pid now.
    child = fork_as(pid)
    if child == 0:
        while True:
            signal.pause()
    return child

def burn(cpu_s):
    # In a phase, and then for some samples nothing.
    end = time.process_time() + cpu_s
    with profiler.phase("burn"):
        while time.process_time() < end:
            pass
    time.sleep(1)

def enter(group):
    with open(group + "/cgroup.procs", "w") as file:
        file.write("0")

def kill(pid, number=9, reap=True):
    os.kill(pid, number)
    if reap:
        os.waitpid(pid, 0)
    else:
        while "State:\\tZ" not in open(f"/proc/{pid}/status").read():
            time.sleep(0.01)

def command(*words):
    program = os.path.join(os.path.dirname(sys.executable), "lineprofiler")
    done = subprocess.run([program, *words], capture_output=True, text=True)
    return [done.returncode, done.stdout, done.stderr]

def watched(pid):
    # A collector of this host has a pidfd of it.
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and open(f"/proc/{entry}/comm").read().startswith("lineprofiler-co"):
                for fd in os.listdir(f"/proc/{entry}/fdinfo"):
                    if f"Pid:\\t{pid}\\n" in open(f"/proc/{entry}/fdinfo/{fd}").read():
                        return True
        except OSError:
            pass
    return False

def segments():
    top = os.environ.get("LINEPROFILER_SHM_DIR", "/dev/shm")
    return sorted(name for _, _, names in os.walk(top) for name in names if name.endswith(".seg"))

def hold_lock(name):
    # As a forked child that got a copy of the descriptor between open and close.
    import fcntl
    top = os.environ.get("LINEPROFILER_SHM_DIR", "/dev/shm")
    (path,) = [os.path.join(folder, each) for folder, _, names in os.walk(top) for each in names if each == name]
    global held
    held = os.open(path, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)

if __name__ == "__main__":
    serve()
"""


class Host:
    """A machine of its own: a name, pids, a boot id, and (unless `shm` is given) a /dev/shm."""

    def __init__(self, stage: Stage, name: str, shm: Path | None = None, **extra: str) -> None:
        self.name = name
        script = stage.folder / "host.py"
        script.write_text(HOST, encoding="utf-8")
        boot = stage.folder / f"boot-{name}"
        boot.write_text(f"{abs(hash(name)) % 10**8:08d}-0000-4000-8000-000000000000\n")
        env = stage.environment(**extra)
        env.pop("LINEPROFILER_SHM_DIR")
        prepare = f"hostname {name} && mount --bind {boot} /proc/sys/kernel/random/boot_id"
        if shm is None:
            prepare += " && mount -t tmpfs -o size=16m tmpfs /dev/shm"
        else:
            env["LINEPROFILER_SHM_DIR"] = str(shm)
        self.process = subprocess.Popen(
            ["unshare", *NAMESPACES, "sh", "-c", f'{prepare} && exec "$@"', "sh", sys.executable, str(script)],
            cwd=stage.folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def do(self, order: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"{self.name}: {order}"
        return json.loads(line)

    def report(self) -> Report:
        code, out, errors = self.do("command('report', 'run', '--json')")
        assert code == 0, errors
        return Report(json.loads(out))

    def wait(self, order: str) -> None:
        wait_for(lambda: self.do(order), f"{self.name}: {order}")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(LIMIT_S) == 0


@pytest.fixture
def host(stage: Stage) -> Iterator[Callable[..., Host]]:
    made: list[Host] = []

    def make(name: str, shm: Path | None = None, **extra: str) -> Host:
        made.append(Host(stage, name, shm, **extra))
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(LIMIT_S)
        for pipe in (each.process.stdin, each.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def workers_of(report: Report) -> dict[tuple[str, str], dict[str, Any]]:
    found = {(w["host"], w["role"]): w for w in report.workers}
    assert len(found) == len(report.workers)
    return found


@pytest.mark.skipif(not are_there("cpu/cpu.cfs_quota_us"), reason="no control groups of version 1 for this user")
def test_two_containers_of_one_machine_and_name(stage: Stage, host: Callable[..., Host]) -> None:
    """As with a network of the machine's own: each has a collector, both tell of the same moments of one limit."""
    stage.run.mkdir()
    with control_groups("cpu") as (group,):
        (group / "cpu.cfs_quota_us").write_text("30000")
        both = [host("gamma"), host("gamma")]
        for each in both:
            each.do(f"enter({str(group)!r})")
            assert each.do("record('main', sample_interval_s=0.1)") == 1
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda each: each.do("burn(0.3)"), both))
        for each in both:
            each.do("profiler.close()")
            each.close()
        stage.settle()
        counts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    assert len(list(stage.run.glob("workers/*/host_*.samples"))) == 2
    (told,) = stage.report().document["resources"]["hosts"].values()
    truth = int(counts["throttled_time"]) / 1e9
    # Between the first sample and the last; the kernel's counter goes from the group's beginning to its end.
    assert 0.5 * truth <= told["throttled_s"] <= truth, truth
    assert told["throttled_share"] <= 1


def test_two_hosts_share_a_run_directory(stage: Stage, host: Callable[..., Host]) -> None:
    stage.run.mkdir()
    alpha, beta = host("alpha"), host("beta")
    pids = []
    for each, steps in ((alpha, 10), (beta, 20)):
        assert each.do("record('main')") == 1
        each.do(f"step({steps})")
        pids.append(each.do(f"worker({steps + 5}, pid=500)"))
        each.wait(f"watched({pids[-1]})")
    assert pids[0] == pids[1], "the same pid on both"
    segments = {each.name: each.do("segments()") for each in (alpha, beta)}
    assert all(len(names) == 2 for names in segments.values())
    wait_for(lambda: len(list(stage.run.glob("workers/*/w_*.snap"))) == 4, "a snapshot of each")

    # From here neither can be seen. Nobody's segment was taken, and nobody is held for dead.
    report = stage.report()
    report.healthy()
    workers = workers_of(report)
    assert {k: w["state"] for k, w in workers.items()} == {
        (h, r): "last_seen" for h in ("alpha", "beta") for r in ("main", "worker")
    }
    assert {w["pid"] for w in report.workers} == {1, pids[0]}
    old = {h["host"]: h for h in report.caveats["as_last_written"]}
    assert {name: h["workers"] for name, h in old.items()} == {"alpha": 2, "beta": 2}
    for each in old.values():
        assert each["oldest_at"] <= each["newest_at"] <= time.time()
    text = stage.command("report", "run").expect().stdout
    assert re.search(r"^  alpha  2 processes as last written, \d+s( to \d+s)? ago$", text, re.M), text
    top = stage.command("top", "run", "--once").expect().stdout
    assert re.search(r"^old  beta  2 processes as written \d+s( to \d+s)? ago$", top, re.M), top
    assert {each.name: each.do("segments()") for each in (alpha, beta)} == segments

    # On alpha its own are seen as of now, beta's as of their snapshots.
    assert {k: w["state"] for k, w in workers_of(alpha.report()).items()} == {
        ("alpha", "main"): "running",
        ("alpha", "worker"): "running",
        ("beta", "main"): "last_seen",
        ("beta", "worker"): "last_seen",
    }

    # A death on beta is beta's to judge, and everybody's to see.
    beta.do(f"kill({pids[1]})")
    wait_for(lambda: "died" in stage.report().states(), "the death is written")
    for report in (stage.report(), alpha.report(), beta.report()):
        workers = workers_of(report)
        assert workers["beta", "worker"]["state"] == "died"
        assert workers["beta", "worker"]["exit_code"] == KILLED
        assert [p["path"] for p in workers["beta", "worker"]["open"]] == [["held"]]
        assert workers["alpha", "worker"]["state"] != "died", "it has the same pid"
    assert workers_of(alpha.report())["alpha", "worker"]["state"] == "running"

    alpha.do(f"kill({pids[0]}, 15)")
    for each in (alpha, beta):
        each.do("profiler.close()")
        each.close()
    report = stage.report()
    report.healthy()
    assert report.states() == ["closed", "closed", "died", "died"]
    assert report.calls("main") == {"step": 30}
    assert report.calls("worker")["step"] == 40
    assert report.counters("worker")["step:n"] == 40
    assert {(w["host"], Path(w["path"]).parent.name) for w in report.workers} == {("alpha", "alpha"), ("beta", "beta")}
    assert report.caveats["as_last_written"] == []


@pytest.mark.parametrize("names", [("left", "right"), ("same", "same")], ids=["two names", "one name"])
def test_containers_that_share_shared_memory(stage: Stage, host: Callable[..., Host], names: tuple[str, str]) -> None:
    """Equal pids, one folder of segments: each container has a collector of its own, which looks after its own."""
    stage.run.mkdir()
    left, right = (host(name, stage.shm) for name in names)
    pids = []
    for role, each, steps in (("left", left, 3), ("right", right, 4)):
        assert each.do(f"record('{role} main')") == 1
        each.do(f"step({steps})")
        pids.append(each.do(f"worker({10 * steps}, pid=500, role='{role} worker')"))
        each.wait(f"watched({pids[-1]})")
    assert pids[0] == pids[1]
    assert len(left.do("segments()")) == 4
    locks = {p.name for p in stage.shm.glob("lineprofiler-*/*/.collector-*.lock")}
    assert len(locks) == 2

    def states(report: Report) -> dict[str, str]:
        report.healthy()
        assert len(report.workers) == 4
        return {w["role"]: w["state"] for w in report.workers}

    alive = {f"{side} {kind}": "running" for side in ("left", "right") for kind in ("main", "worker")}
    for report in (stage.report(), left.report(), right.report()):
        assert states(report) == alive

    # Whoever looks from another pid namespace sees a process of that pid live on, its own.
    right.do(f"kill({pids[1]})")
    wait_for(lambda: states(stage.report()) == {**alive, "right worker": "died"}, "the death is seen")
    wait_for(lambda: len(left.do("segments()")) == 3, "and written by its own collector")
    for report in (stage.report(), left.report(), right.report()):
        assert states(report) == {**alive, "right worker": "died"}
        (dead,) = [w for w in report.workers if w["state"] == "died"]
        assert dead["exit_code"] == KILLED
    left.do(f"kill({pids[0]})")
    for each in (left, right):
        each.do("profiler.close()")
        each.close()
    report = stage.report()
    assert states(report) == {r: "closed" if r.endswith("main") else "died" for r in alive}
    assert [report.calls(f"{side} worker")["step"] for side in ("left", "right")] == [30, 40]
    assert [report.calls(f"{side} main")["step"] for side in ("left", "right")] == [3, 4]
    assert stage.segments() == []


def test_a_container_that_dies_with_everything(stage: Stage, host: Callable[..., Host]) -> None:
    """PID 1 is killed, and the kernel kills the rest, the collector too: others read what lies in shared memory."""
    stage.run.mkdir()
    gone, other = host("gone", stage.shm), host("other", stage.shm)
    for each in (gone, other):
        each.do("record('main')")
        each.do("step(7)")
        each.wait("watched(1)")
    gone.do("worker(5)")
    gone.process.kill()  # --kill-child
    gone.process.wait(LIMIT_S)
    wait_for(lambda: stage.report().states() == ["died", "died", "running"], "both are seen to be dead")
    workers = workers_of(stage.report())
    assert workers["other", "main"]["state"] == "running"
    assert stage.report().calls("main") == {"step": 14}
    other.do("profiler.close()")
    other.close()


def test_a_reused_pid_is_another_process(stage: Stage, host: Callable[..., Host]) -> None:
    stage.run.mkdir()
    one = host("one")
    one.do("record('main')")
    pid = one.do("worker(5, pid=500, role='first')")
    one.wait(f"watched({pid})")
    one.do(f"kill({pid})")
    assert one.do("worker(6, pid=500, role='second')") == pid
    workers = workers_of(one.report())
    assert workers["one", "first"]["state"] == "died"
    assert workers["one", "first"]["exit_code"] == KILLED
    assert workers["one", "second"]["state"] == "running"
    assert workers["one", "first"]["pid"] == workers["one", "second"]["pid"] == pid
    one.wait(f"watched({pid})")
    one.do(f"kill({pid}, 15)")
    one.do("profiler.close()")
    report = one.report()
    assert report.states() == ["closed", "died", "died"]
    assert [report.calls(r)["step"] for r in ("first", "second")] == [5, 6]
    one.close()


@pytest.mark.parametrize("what", ["gone", "a zombie", "another's"])
def test_a_pid_between_the_look_and_the_descriptor(stage: Stage, host: Callable[..., Host], what: str) -> None:
    """The collector has looked who has the pid and is about to open it, when the process ends: nobody's end but its own
    may be taken for its."""
    stage.run.mkdir()
    one = host("one", stage.shm)
    one.do("record('main')")
    one.wait("watched(1)")
    (collector,) = stage.collectors()
    with halted(collector) as held:
        one.do("worker(5, pid=500, role='first')")
        assert held.run_to("pidfd_open").first == 500
        one.do(f"kill(500, reap={what != 'a zombie'})")
        if what == "another's":
            one.do("sleeper(500)")
    wait_for(lambda: one.report().states() == ["died", "running"], "the death is seen")
    if what == "another's":
        one.do("kill(500, 15)")
    one.do("profiler.close()")
    report = one.report()
    assert report.states() == ["closed", "died"]
    assert report.calls("first") == {"step": 5, "held": 0}
    assert workers_of(report)["one", "first"]["exit_code"] == (-signal.SIGKILL if what == "a zombie" else None)
    assert one.do("segments()") == []
    one.close()


def test_how_another_process_of_that_pid_ended_is_not_taken(stage: Stage, host: Callable[..., Host]) -> None:
    """Without a collector a zombie tells its end; one with the pid of a dead worker tells nothing about that worker."""
    stage.run.mkdir()
    one = host("one", LINEPROFILER_COLLECTOR="0")
    one.do("record('main')")
    one.do("worker(5, pid=500, role='first')")
    one.do("kill(500)")
    one.do("sleeper(500)")
    one.do("kill(500, 15, reap=False)")
    workers = workers_of(one.report())
    assert (workers["one", "first"]["state"], workers["one", "first"]["exit_code"]) == ("died", None)
    one.do("os.waitpid(500, 0)")
    one.do("profiler.close()")
    one.close()


def test_a_kept_lock_and_a_reused_pid(stage: Stage, host: Callable[..., Host]) -> None:
    """A forked child can keep the lock of its parent's segment: then the pid tells, by its start time."""
    stage.run.mkdir()
    one = host("one", LINEPROFILER_COLLECTOR="0")
    one.do("record('main')")
    before = set(one.do("segments()"))
    one.do("worker(5, pid=500, role='first')")
    (name,) = set(one.do("segments()")) - before
    one.do("kill(500)")
    one.do(f"hold_lock({name!r})")
    one.do("sleeper(500)")
    workers = workers_of(one.report())
    assert workers["one", "first"]["state"] == "died"
    assert workers["one", "main"]["state"] == "running"
    one.do("kill(500)")
    one.do("profiler.close()")
    one.close()
