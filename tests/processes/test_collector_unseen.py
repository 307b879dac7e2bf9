"""A program does not see that a collector was started beside it: no child, signal, descriptor, delay of its reader."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lpstage import Stage, descriptors, wait_for
from lptest import run_process


def can_unshare() -> bool:
    return run_process(["unshare", "--pid", "--fork", "--mount-proc", "true"]).returncode == 0


# Everything about children that a program can ask for, with a collector running.
WATCHES = """
import ctypes, errno, os, signal, sys, time

libc = ctypes.CDLL(None, use_errno=True)
if "subreaper" in sys.argv:
    assert libc.prctl(36, 1, 0, 0, 0) == 0
received = []
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, lambda number, frame: received.append(number))
    except (OSError, ValueError):
        pass
before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
forks = []
os.register_at_fork(before=lambda: forks.append("before"), after_in_parent=lambda: forks.append("after"))

from lineprofiler.accounting import Profiler
profiler = Profiler("run", role="r", snapshot_interval_s=30.0)
with profiler.phase("a"):
    pass

def wait():
    try:
        return os.wait()
    except ChildProcessError:
        return "none"

seen = {"wait": wait(), "signals": list(received), "forks": list(forks)}
seen["mask"] = signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
folder = os.environ["LINEPROFILER_SHM_DIR"] + f"/lineprofiler-{os.geteuid()}/" + profiler.run_id
(lock,) = [n for n in os.listdir(folder) if n.startswith(".collector")]
end = time.monotonic() + 10
while not open(f"{folder}/{lock}").read() and time.monotonic() < end:
    time.sleep(0.001)
seen["collector"] = int(open(f"{folder}/{lock}").read().split()[2])
"""


@pytest.mark.parametrize("how", ["plain", "subreaper"])
def test_no_child_no_signal_no_atfork_handler(stage: Stage, how: str) -> None:
    seen = stage.facts(
        WATCHES
        + """
# A worker that is killed is the program's alone to wait for; the collector only sees it.
pid = os.fork()
if pid == 0:
    with profiler.phase("w"):
        os.kill(os.getpid(), 9)
seen["own"] = os.wait() == (pid, 9)
# An orphan of its own comes to a subreaper as before.
pid = os.fork()
if pid == 0:
    if os.fork() == 0:
        time.sleep(0.05)
        os._exit(5)
    os._exit(0)
seen["grandchildren"] = [os.wait()[1]]
if "subreaper" in sys.argv:
    seen["grandchildren"].append(os.waitstatus_to_exitcode(os.wait()[1]))
seen["last"] = wait()
status = dict(line.split(":\\t", 1) for line in open(f"/proc/{seen['collector']}/status") if ":\\t" in line)
seen["parent"] = int(status["PPid"]) == os.getpid()
seen["received"] = sorted(set(received))
profiler.close()
seen["after close"] = wait()
time.sleep(1)
seen["a second later"] = wait()
print(seen)
""",
        how,
    )
    assert seen["collector"] > 1
    assert seen["wait"] == "none"
    assert seen["signals"] == []
    assert seen["mask"]
    assert seen["forks"] == []
    assert seen["own"]
    assert seen["grandchildren"] == ([0, 5] if how == "subreaper" else [0])
    assert not seen["parent"]
    assert seen["received"] == [signal.SIGCHLD]
    assert seen["last"] == seen["after close"] == seen["a second later"] == "none"
    report = stage.report()
    report.healthy()
    assert sorted(report.states()) == ["closed", "died"]


def test_children_of_clone_are_the_programs(stage: Stage) -> None:
    """A program that makes children without an exit signal, and waits for them: ours is never mixed up with them."""
    status = stage.facts(
        """
        import ctypes, os, platform
        libc = ctypes.CDLL(None, use_errno=True)
        clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
        read, write = os.pipe()
        pid = libc.syscall(clone, 0, 0, 0, 0, 0)
        if pid == 0:
            os.read(read, 1)
            os._exit(7)
        from lineprofiler.accounting import Profiler
        profilers = [Profiler("run", run_id=f"r{n}") for n in range(3)]
        os.write(write, b"x")
        status = ctypes.c_int()
        got = libc.waitpid(pid, ctypes.byref(status), 0x80000000)
        again = libc.waitpid(-1, ctypes.byref(status), 0x80000000)
        print([got == pid, os.waitstatus_to_exitcode(status.value), again])
        """
    )
    assert status == [True, 7, -1]


@pytest.mark.skipif(not can_unshare(), reason="no namespaces for this user")
def test_program_is_pid_1(stage: Stage) -> None:
    """In a container whose first process records: its wait() ends, a killed worker is in, and so is what came last."""
    script = stage.script(
        """
        import os, time
        from lineprofiler.accounting import Profiler

        assert os.getpid() == 1
        profiler = Profiler("run", role="r")
        killed = os.fork()
        if killed == 0:
            with profiler.phase("w"):
                os.kill(os.getpid(), 9)
        if os.fork() == 0:  # an orphan, which comes to us
            if os.fork() == 0:
                time.sleep(0.1)
                os._exit(0)
            os._exit(0)
        waited = 0
        while True:
            try:
                os.wait()
                waited += 1
            except ChildProcessError:
                break
        assert waited == 3, waited
        with profiler.phase("last"):
            pass
        if os.fork() == 0:
            with profiler.phase("very last"):
                os.kill(os.getpid(), 9)
        os.wait()
        print([int(n) for n in os.listdir("/proc") if n.isdigit()])
        """
    )
    done = run_process(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, str(script)],
        cwd=stage.folder,
        env=stage.environment(),
    ).expect()
    assert len(eval(done.stdout)) == 3, "the program, the collector, and the one that is its parent"
    # The container is over, and everything in it; what is on the disk is all there is.
    assert list(stage.shm.glob("lineprofiler-*/*/[!.]*")) == []
    report = stage.report()
    report.healthy()
    assert report.calls() == {"w": 0, "last": 1, "very last": 0}
    assert sorted(report.states()) == ["closed", "died", "died"]


def test_reader_of_its_output_does_not_wait(stage: Stage) -> None:
    """subprocess.run(capture_output=True) returns when the program ends, though a worker and the collector live on."""
    stage.python(
        """
        import os, time
        from lineprofiler.accounting import Profiler
        profiler = Profiler("run", role="r")
        with profiler.phase("a"):
            pass
        if os.fork() == 0:
            os.setsid()
            for fd in range(3):
                os.close(fd)
            with profiler.phase("daemon"):
                while not os.path.exists("enough"):
                    time.sleep(0.01)
            profiler.close()
            os._exit(0)
        print("the end")
        """
    ).expect()
    # The daemon waits for what comes now: nobody has waited for it, however long all of it took.
    (pid,) = stage.collectors()
    assert [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)] == ["/dev/null"] * 3
    assert not [link for link in descriptors(pid) if link.startswith("pipe:")]
    (stage.folder / "enough").touch()
    wait_for(lambda: not stage.collectors(), "the daemon ends, then the collector", 20)
    assert stage.report().states() == ["closed", "closed"]


def test_collector_is_nobodys_process(stage: Stage) -> None:
    """Session, directory, signals, CPUs, priorities, limits and descriptors of the program are not its."""
    program = stage.start(
        """
        import os, resource, signal, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM])
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        for limit, soft in (("NOFILE", 64), ("STACK", 1 << 20), ("CPU", 600), ("SIGPENDING", 64), ("DATA", 1 << 32)):
            if limit == "DATA" and "TESTS_SANITIZED" in os.environ:
                continue  # the address sanitizer's own memory is more
            number = getattr(resource, "RLIMIT_" + limit)
            resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
        os.nice(5)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        import ctypes, platform
        set_io = {"x86_64": 251, "aarch64": 30}[platform.machine()]
        assert ctypes.CDLL(None).syscall(set_io, 1, 0, 3 << 13) == 0  # the class of the idle
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("321")
        os.umask(0o777)
        file = open("mine", "w")
        os.set_inheritable(file.fileno(), True)
        os.dup2(file.fileno(), 40, True)
        os.chmod("mine", 0o600)
        os.umask(0o027)
        os.environ["SECRET"] = "x"
        from lineprofiler.accounting import Profiler
        profiler = Profiler("run", snapshot_interval_s=0.1)
        with profiler.phase("a"):
            print("ready", flush=True)
            sys.stdin.readline()
        """
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    wait_for(stage.written, "a snapshot: it has settled down")
    (pid,) = stage.collectors()
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    # 32 and 33 are glibc's own: a program cannot change them, and may have been started with them ignored.
    internal = 1 << 31 | 1 << 32
    assert int(status["SigIgn"], 16) & ~internal == 1 << (signal.SIGPIPE - 1)
    assert int(status["SigBlk"], 16) == sum(
        1 << (n - 1) for n in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
    )
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.sched_getaffinity(pid) >= os.sched_getaffinity(0)
    assert status["Umask"] == "0027"
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]:
        soft, hard = line[26:].split()[:2]
        assert soft == ("0" if line.startswith("Max core") else hard), line
    assert os.sched_getscheduler(pid) == os.SCHED_OTHER
    if os.geteuid() == 0:
        assert os.getpriority(os.PRIO_PROCESS, pid) == 0
    get_io = {"x86_64": 252, "aarch64": 31}[platform.machine()]
    assert ctypes.CDLL(None).syscall(get_io, 1, pid) >> 13 in (0, 2), "not of the idle class: by its nice value"
    assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "321\n", "where the program is to die first, so is it"
    assert b"SECRET" not in Path(f"/proc/{pid}/environ").read_bytes()
    links = [os.readlink(e.path) for e in os.scandir(f"/proc/{pid}/fd")]
    assert not [link for link in links if link.endswith("/mine")]
    wait_for(lambda: len(stage.written()) == 1, "a later one has replaced the first")
    (file,) = stage.written()
    assert file.stat().st_mode & 0o777 == 0o640, "files are for whom the program's are"
    if "TESTS_SANITIZED" not in os.environ:  # whose shadow memory is resident, too
        rss = int(status["VmRSS"].split()[0])
        assert rss < 10_000, "kB"
    program.kill()


def children_of(pid: int, name: str) -> dict[int, str]:
    """State of each child of that name."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                comm, rest = Path(entry.path, "stat").read_text().rsplit(")", 1)
                if int(rest.split()[1]) == pid and comm.split("(", 1)[1] == name:
                    found[int(entry.name)] = rest.split()[0]
    return found


def test_the_parent_of_the_collector_of_a_subreaper(stage: Stage) -> None:
    """It has nothing of the program's memory and descriptors. When its collector has ended it stays as a zombie, which
    no wait() of the program sees, until the next start or the program's end."""
    program = stage.start(
        """
        import ctypes, os, sys
        assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
        held = bytearray(b"x") * (100 << 20)
        from lineprofiler.accounting import Profiler

        def wait():
            try:
                return str(os.wait())
            except ChildProcessError:
                return "none"

        for number in range(3):
            profiler = Profiler("run", run_id=f"r{number}")
            with profiler.phase("a"):
                print(wait(), flush=True)
                sys.stdin.readline()
            profiler.close()
            print(wait(), flush=True)
            sys.stdin.readline()
            print(wait(), flush=True)
        """
    )
    assert program.stdin is not None
    assert program.stdout is not None

    def go_on() -> None:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()

    seen: list[int] = []
    for _ in range(3):
        assert program.stdout.readline() == "none\n"
        wait_for(
            lambda: list(children_of(program.pid, "lineprofiler-kp").values()) == ["S"],
            "one parent, and no zombie beside",
            20,
        )
        (keeper,) = children_of(program.pid, "lineprofiler-kp")
        assert keeper not in seen
        seen.append(keeper)
        wait_for(lambda: len(Path(f"/proc/{keeper}/maps").read_text().splitlines()) < 6, "its memory is gone", 20)  # noqa: B023
        assert os.listdir(f"/proc/{keeper}/fd") == []
        status = Path(f"/proc/{keeper}/status").read_text()
        assert int(status.split("VmRSS:")[1].split()[0]) < 1024, "kB, of a program of 100 MB"
        (collector,) = stage.collectors()
        assert f"\nPPid:\t{keeper}\n" in Path(f"/proc/{collector}/status").read_text()
        go_on()
        assert program.stdout.readline() == "none\n"
        wait_for(lambda: children_of(program.pid, "lineprofiler-kp") == {keeper: "Z"}, "it has ended", 20)  # noqa: B023
        assert stage.collectors() == []
        go_on()
        assert program.stdout.readline() == "none\n"
    assert program.wait(60) == 0
    wait_for(lambda: not any(Path(f"/proc/{keeper}").exists() for keeper in seen), "all are gone", 20)


def test_nothing_is_left_a_second_after_the_run(stage: Stage) -> None:
    for code in ("", "os.kill(os.getpid(), 9)"):
        stage.python(
            "import os\nfrom lineprofiler.accounting import Profiler\n"
            f"p = Profiler('run')\nwith p.phase('a'): pass\n{code}"
        )
        ended = time.monotonic()
        wait_for(lambda: not stage.collectors(), "no process", 5)
        took = time.monotonic() - ended
        assert took < 5, "promised is one second; two busy cores may need more"
        assert list(stage.shm.glob("lineprofiler-*/**/*")) == []


def test_killed_with_its_process_group(stage: Stage) -> None:
    """The collector has a session of its own: what kills the job's group leaves it to write the last snapshots."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, time\nfrom lineprofiler.accounting import Profiler\np = Profiler('run')\n"
            "with p.phase('a'):\n  os.fork()\n  p.count('n')\n  os.write(1, b'x')\n  time.sleep(600)",
        ],
        cwd=stage.folder,
        env=stage.environment(),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.read(2) == b"xx"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    stage.settle()
    assert list(stage.shm.glob("lineprofiler-*/**/*")) == []
    report = stage.report()
    assert report.states() == ["died", "died"]
    assert sum(report.counters().values()) == 2
