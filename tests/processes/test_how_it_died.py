"""How a process died, and when, is in every view of the run, where anybody but its parent could know it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from halting import halted
from lpstage import Stage, has_pidfd, wait_for
from lptest import tells_how

# Reads a line before it ends, so that the test decides when; each way of ending is one word.
PROGRAM = """
import ctypes, os, resource, signal, sys
from lineprofiler.accounting import Profiler

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
profiler = Profiler("run", role=sys.argv[1], run_id="same", snapshot_interval_s=3600)
ways = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "fault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "code": lambda: os._exit(3),
    "zero": lambda: os._exit(0),
    "exec": lambda: os.execv("/bin/sh", ["sh", "-c", "read line"]),
    "return": lambda: None,
}
with profiler.phase("step"):
    with profiler.phase("learn"):
        print("in", flush=True)
        sys.stdin.readline()
        ways[sys.argv[1]]()
"""

ENDS = {
    "kill": (-9, "SIGKILL"),
    "term": (-15, "SIGTERM"),
    "fault": (-11, "SIGSEGV"),
    "abort": (-6, "SIGABRT"),
    "code": (3, "exit code 3"),
    "zero": (0, "exit code 0"),
}

# Else only a zombie tells, and the test's programs are waited for at once.
TELLS = tells_how()


def is_watched(stage: Stage, pid: int) -> bool:
    """A collector of the stage has a pidfd of the process."""
    return any(has_pidfd(collector, pid) for collector in stage.collectors())


def end(stage: Stage, way: str) -> int:
    process = stage.start(PROGRAM, way)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "in\n"
    if stage.collector:
        wait_for(lambda: is_watched(stage, process.pid), "the collector has seen it")
    process.stdin.write("\n")
    process.stdin.flush()
    process.wait()
    return process.pid


@pytest.mark.skipif(not TELLS, reason="kernel < 6.15 tells nobody but the parent")
def test_every_way_of_dying_is_named(stage: Stage) -> None:
    pids = {way: end(stage, way) for way in ENDS}
    report = stage.report()
    text = stage.command("report", "run", "--all").expect().stdout
    for way, (code, words) in ENDS.items():
        worker = report.worker(pids[way])
        assert (worker["state"], worker["exit_code"], worker["end"]) == ("died", code, words), way
        assert any(line.split()[1:2] == [way] and f" {words} after" in line for line in text.splitlines()), text
    assert {w["pid"]: w["exit_code"] for w in report.caveats["died_inside"]} == {
        pids[w]: c for w, (c, _) in ENDS.items()
    }
    assert "how" not in {line.split(" ")[0] for line in text.splitlines()}


@pytest.mark.skipif(not TELLS, reason="kernel < 6.15 tells nobody but the parent")
def test_the_snapshot_keeps_it(stage: Stage) -> None:
    from lineprofiler.accounting import merge_run

    end(stage, "kill")
    assert stage.segments() == []
    (path,) = stage.snapshots()
    assert "\nexit_code -9\ncore_dumped 0\nreplaced 0\n" in stage.command("dump", path).expect().stdout
    (worker,) = merge_run(stage.run).workers
    assert (worker.unclean, worker.exit_code) == (True, -signal.SIGKILL)
    assert (worker.details["core_dumped"], worker.details["replaced"]) == (False, False)


@pytest.mark.skipif(not TELLS, reason="kernel < 6.15 tells nobody but the parent")
def test_open_phases_last_until_the_death(stage: Stage) -> None:
    """The process stored nothing while it waited; its collector saw the moment of its end."""
    process = stage.start(PROGRAM, "kill")
    assert process.stdout is not None
    process.stdout.readline()
    wait_for(lambda: is_watched(stage, process.pid), "the collector has seen it")
    begun = time.time()
    time.sleep(0.5)
    process.kill()
    process.wait()
    wait_for(lambda: stage.segments() == [], "it is written")
    (worker,) = stage.report().workers
    (learn,) = [each for each in worker["open"] if each["path"] == ["step", "learn"]]
    assert learn["open_ns"] >= 0.5e9
    # Not before the kill (less what the two clocks' readings differ by), not after the report.
    assert begun + 0.5 - 0.01 <= worker["written_at"] <= time.time()
    assert learn["since"] <= begun + 0.01


def test_exec_is_no_death(stage: Stage) -> None:
    process = stage.start(PROGRAM, "exec")
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    process.stdin.write("\n")
    process.stdin.flush()
    wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe") != os.path.realpath(f"/proc/{os.getpid()}/exe"), "exec")
    wait_for(lambda: stage.report().states() == ["died"], "its memory was let go")
    (worker,) = stage.report().workers
    assert (worker["exit_code"], worker["end"]) == (None, "exec of another program")
    assert process.poll() is None


def test_a_clean_end_has_no_code(stage: Stage) -> None:
    end(stage, "return")
    (worker,) = stage.report().workers
    assert (worker["state"], worker["exit_code"], worker["end"]) == ("closed", None, None)


def test_a_zombie_tells_without_a_collector(stage: Stage) -> None:
    """On every kernel: /proc/<pid>/stat has the status until the parent waits."""
    stage.collector = False
    process = stage.start(PROGRAM, "kill")
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    wait_for(lambda: "\nState:\tZ" in Path(f"/proc/{process.pid}/status").read_text(), "a zombie")
    assert [w["exit_code"] for w in stage.report().workers] == [-9]


def test_what_nobody_saw_is_not_known(stage: Stage) -> None:
    stage.collector = False
    end(stage, "kill")
    (worker,) = stage.report().workers
    assert (worker["state"], worker["exit_code"], worker["end"]) == ("died", None, None)
    text = stage.command("report", "run").expect().stdout
    reason = "no collector watched until the end" if TELLS else "kernel < 6.15, which tells nobody but the parent"
    assert f"how 1 of them died is not known: {reason}" in " ".join(text.split())


@pytest.mark.skipif(not TELLS, reason="kernel < 6.15 tells nobody but the parent")
def test_a_parent_that_closes_at_once_waits_for_the_word(stage: Stage) -> None:
    """`close()` adopts what is dead; the collector, which knows how it died, may need 10 ms to say so. Of the last
    child it is kept from it until `close()` has looked and waits."""
    process = stage.start(
        """
        import os, sys
        from lineprofiler.accounting import Profiler
        profiler = Profiler("run", role="parent")
        for n in range(5):
            with profiler.phase("fork"):
                pid = os.fork()
                if pid == 0:
                    with profiler.phase("child"):
                        print(os.getpid(), flush=True)
                        sys.stdin.readline()
                        os._exit(40 + n)
                os.waitpid(pid, 0)
        profiler.close()
        """
    )
    assert process.stdout is not None
    assert process.stdin is not None
    for number in range(5):
        pid = int(process.stdout.readline())
        wait_for(lambda: is_watched(stage, pid), "the collector has seen it")  # noqa: B023
        if number == 4:
            break
        process.stdin.write("\n")
        process.stdin.flush()
    (collector,) = stage.collectors()
    with halted(process.pid) as held:
        os.kill(collector, signal.SIGSTOP)
        try:
            process.stdin.write("\n")
            process.stdin.flush()
            held.run_to("clock_nanosleep")
        finally:
            os.kill(collector, signal.SIGCONT)
        wait_for(lambda: stage.written(pid), "the word")
    assert process.wait() == 0
    codes = [w["exit_code"] for w in stage.report().workers if w["state"] == "died"]
    assert sorted(codes) == list(range(40, 45))
