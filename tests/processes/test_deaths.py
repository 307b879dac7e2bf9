"""Whatever ends a process, what it recorded is read; what it had open is named; nothing is left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import killing
import pytest
from lpstage import Report, Stage, wait_for

# What holds without a collector: what dead processes left is read where it lies. With one: test_collector.py.
COLLECTOR = False


def merged(stage: Stage) -> Any:
    from lineprofiler.accounting import merge_run

    return merge_run(stage.run)


def figures(report: Report) -> Any:
    """What two readings of the same run must agree on."""
    workers = sorted(({**w, "path": ""} for w in report.workers), key=lambda w: (w["pid"], w["uuid"]))
    return [report.document[key] for key in ("run", "roles", "open", "caveats")] + [workers]


def test_fifty_kills_at_random_moments(stage: Stage) -> None:
    """DESIGN: what a test may demand of a kill is finished <= entries <= begun, and entries = sum of the histogram."""
    killing.kill_programs(stage, 50)
    report = stage.report()
    assert len(report.caveats["unclean"]) == 50
    assert figures(stage.report()) == figures(report)


OPEN = """
import os, sys, time
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role="victim")
for _ in range(3):
    with profiler.phase("done"):
        pass
with profiler.phase("outer"):
    with profiler.phase("inner"):
        profiler.count("n", 7)
        print("inside", flush=True)
        {end}
        time.sleep(600)
"""

DEATHS = {
    "SIGKILL": ("os.kill(os.getpid(), 9)", signal.SIGKILL),
    "SIGTERM": ("os.kill(os.getpid(), 15)", signal.SIGTERM),
    "SIGHUP": ("os.kill(os.getpid(), 1)", signal.SIGHUP),
    "SIGSEGV": ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
    "SIGBUS": ("os.kill(os.getpid(), 7)", signal.SIGBUS),
    "abort": ("os.abort()", signal.SIGABRT),
    "SIGXCPU": (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 5))\n        while True: pass",
        signal.SIGXCPU,
    ),
    "fault in a thread": (
        "import ctypes, threading; threading.Thread(target=lambda: ctypes.string_at(0)).start()",
        signal.SIGSEGV,
    ),
}


@pytest.mark.parametrize("how", DEATHS)
def test_death_leaves_everything_and_names_the_open_phase(stage: Stage, how: str) -> None:
    code, number = DEATHS[how]
    began = time.time_ns()
    victim = stage.start(OPEN.replace("{end}", code))
    assert victim.wait(60) == -number, "the program ends as without us"
    (segment,) = [p for p in stage.segments() if p.is_file()]
    assert stage.snapshots() == []
    report = stage.report()
    assert not segment.exists()
    (snapshot,) = stage.snapshots()
    report.healthy()
    assert report.calls() == {"done": 3, "outer": 0, "outer/inner": 0}
    assert report.counters() == {"outer/inner:n": 7}
    (worker,) = report.workers
    assert worker["state"] == "died"
    assert worker["path"] == str(snapshot.relative_to(stage.folder))
    (unclean,) = report.caveats["unclean"]
    assert (unclean["pid"], unclean["role"]) == (victim.pid, "victim")
    since = report.open_since(worker)
    assert set(since) == {"outer", "outer/inner"}
    assert began / 1e9 <= since["outer"] <= since["outer/inner"] <= time.time()
    text = stage.command("report", "run").expect().stdout
    assert "died without closing" in text
    assert "inside outer/inner" in text
    assert f":{victim.pid}" in text
    assert figures(stage.report()) == figures(report)


def test_kill_while_a_snapshot_is_written(stage: Stage) -> None:
    """Temporary names are no snapshots, and a finished older one does not hide what memory knows."""
    report: Report | None = None
    for number in range(6):
        victim = stage.start(
            """
            import sys
            from lineprofiler.accounting import Profiler

            profiler = Profiler("run", role=f"victim {sys.argv[1]}", run_id="same")
            for number in range(1 << 60):
                with profiler.phase("a"):
                    profiler.count("n", 1)
                profiler.snapshot()
                if number == 3:
                    print("ready", flush=True)
            """,
            number,
        )
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        time.sleep(random.random() / 50)
        victim.kill()
        victim.wait()
    report = stage.report()
    report.healthy()
    assert report.states() == ["died"] * 6
    for number in range(6):
        phase = report.phase(f"victim {number}", "a")
        assert phase["calls"] >= 4
        assert phase["counters"]["n"] - phase["calls"] in (0, 1)
    assert figures(stage.report()) == figures(report)


def test_run_is_read_while_it_goes(stage: Stage) -> None:
    """Exact to the last finished phase; open phases with their start; nothing is written or removed by the reading."""
    program = stage.start(
        """
        import sys, threading
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=3600)
        turn = threading.Event()

        def waits():
            with profiler.phase("in a thread"):
                turn.wait()

        thread = threading.Thread(target=waits, name="the waiting one")
        thread.start()
        number = 0
        with profiler.phase("whole"):
            for line in sys.stdin:
                for _ in range(int(line)):
                    with profiler.phase("step"):
                        profiler.count("n", 2)
                with profiler.phase("wait"):
                    print("ready", flush=True)
                    sys.stdin.readline()
            turn.set()
            thread.join()
        """
    )
    assert program.stdin is not None
    assert program.stdout is not None
    total = 0
    for count in (1000, 1, 12345):
        before = time.time()
        program.stdin.write(f"{count}\n")
        program.stdin.flush()
        assert program.stdout.readline() == "ready\n"
        total += count
        for _ in range(2):
            report = stage.report()
            now = time.time()
            report.healthy()
            calls = report.calls()
            assert calls["whole/step"] == total
            assert report.counters()["whole/step:n"] == 2 * total
            (worker,) = report.workers
            assert worker["state"] == "running"
            assert abs(worker["written_at"] - now) < 30
            since = report.open_since(worker)
            assert set(since) == {"whole", "whole/wait", "in a thread"}
            assert before - 0.01 <= since["whole/wait"] <= now
            assert since["whole"] <= since["whole/wait"]
            assert report.caveats["unclean"] == []
            text = stage.command("report", "run").expect().stdout
            assert "running" in text
        assert stage.snapshots() == []
        program.stdin.write("\n")
        program.stdin.flush()
    program.stdin.close()
    assert program.wait(60) == 0
    report = stage.report()
    report.healthy()
    assert report.states() == ["closed"]
    assert report.calls() == {"whole": 1, "whole/step": total, "whole/wait": 3, "in a thread": 1}
    assert report.document["open"] == []
    assert stage.segments() == []


def test_run_is_read_while_it_grows(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """New paths and threads all the time, a burst of them beside each reading: what had finished before it is in, what
    begins after it is not, and every path agrees with its histogram."""
    with killing.oracle(stage, 1) as cells:
        program = stage.start(
            """
            import mmap, threading, time
            from lineprofiler.accounting import Profiler

            profiler = Profiler("run", role="r")
            with open("oracle", "r+b") as file:
                shared = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")

            def burst(number):
                for i in range(100):
                    shared[0] += 1
                    with profiler.phase(f"{number}-{i}"):
                        pass
                    shared[1] += 1

            print("ready", flush=True)
            for number in range(30):
                while shared[2] <= number:  # readings that have begun
                    time.sleep(0)
                shared[3] = number + 1  # bursts that have begun
                if number % 3:
                    burst(number)
                else:
                    thread = threading.Thread(target=burst, args=(number,))
                    thread.start()
                    thread.join()
            profiler.close()
            """
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        monkeypatch.setenv("LINEPROFILER_SHM_DIR", str(stage.shm))
        sizes = []
        while program.poll() is None:
            finished = cells[1]
            cells[2] += 1
            wait_for(lambda: cells[3] >= min(cells[2], 30), "a burst beside this reading")
            workers = merged(stage).workers
            begun = cells[0]
            entries = [stats.calls for worker in workers for path, stats in worker.tree.items() if path]
            for worker in workers:
                for path, stats in worker.tree.items():
                    assert stats.hist.count == stats.calls == sum(stats.hist.to_sparse().values()), path
            assert finished <= sum(entries) <= begun
            sizes.append(len(entries))
        monkeypatch.delenv("LINEPROFILER_SHM_DIR")
    assert program.wait() == 0
    assert len(set(sizes)) >= 10, "it has grown between the readings"
    report = stage.report()
    report.healthy()
    assert sum(report.calls().values()) == 3000


def test_stopped_process_is_alive(stage: Stage) -> None:
    """SIGSTOP is not death, and neither is a zombie leader whose other threads go on."""
    program = stage.start(OPEN.replace("{end}", "pass"))
    assert program.stdout is not None
    assert program.stdout.readline() == "inside\n"
    program.send_signal(signal.SIGSTOP)
    try:
        report = stage.report()
    finally:
        program.send_signal(signal.SIGCONT)
    assert report.states() == ["running"]
    assert [p for p in stage.segments() if p.is_file()] != []
    program.kill()
    program.wait()
    assert stage.report().states() == ["died"]


def test_dead_but_not_yet_waited_for(stage: Stage) -> None:
    """A zombie has no memory any more: dead, although its pid is still taken."""
    program = stage.start(OPEN.replace("{end}", "pass"))
    assert program.stdout is not None
    assert program.stdout.readline() == "inside\n"
    os.kill(program.pid, signal.SIGKILL)
    wait_for(lambda: " Z " in Path(f"/proc/{program.pid}/stat").read_text(), "zombie")
    assert stage.report().states() == ["died"]
    assert program.wait() == -signal.SIGKILL


def test_exec_ends_the_worker(stage: Stage) -> None:
    """The same pid goes on as another program, which may record as well."""
    stage.python(
        """
        import os, sys
        from lineprofiler.accounting import Profiler

        number = int(sys.argv[1])
        profiler = Profiler("run", role=f"r{number}", run_id="same")
        with profiler.phase("a"):
            profiler.count("n", number)
        if number < 3:
            with profiler.phase("open"):
                os.execv(sys.executable, [sys.executable, __file__, str(number + 1)])
        """,
        1,
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.counters() == {"a:n": 6}
    assert {w["role"]: w["state"] for w in report.workers} == {"r1": "died", "r2": "died", "r3": "closed"}
    assert len({w["pid"] for w in report.workers}) == 1


CLEAN = {
    "close": ("profiler.close()", 0),
    "with": ("profiler.__exit__(None, None, None)", 0),
    "end of the program": ("pass", 0),
    "sys.exit": ("sys.exit(7)", 7),
    "exception": ("raise KeyError('x')", 1),
    "KeyboardInterrupt": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    "a thread is left running": ("threading.Thread(target=time.sleep, args=(0.2,)).start()", 0),
    "a daemon is left running": ("threading.Thread(target=forever, daemon=True).start(); time.sleep(0.1)", 0),
    "SIGTERM with a handler": (
        "signal.signal(signal.SIGTERM, lambda *a: sys.exit(143)); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
        143,
    ),
    "sys.exit inside a phase": ("profiler.phase('open').__enter__(); sys.exit(0)", 0),
}


@pytest.mark.parametrize("how", CLEAN)
def test_nothing_is_left_after_a_clean_end(stage: Stage, how: str) -> None:
    code, expected = CLEAN[how]
    stage.python(
        f"""
        import os, signal, sys, threading, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")

        def forever():
            while True:
                with profiler.phase("daemon"):
                    pass

        with profiler.phase("a"):
            pass
        {code}
        """
    ).expect(expected)
    assert stage.segments() == []
    (snapshot,) = stage.snapshots()
    assert snapshot.name.endswith(".final.snap")
    report = stage.report()
    report.healthy()
    assert report.states() == ["closed"]
    assert report.calls()["a"] == 1
    assert report.caveats["unclean"] == []


def test_phases_after_atexit_are_in(stage: Stage) -> None:
    """Generators that the dying interpreter drops leave their phases after atexit has run: the snapshot is later."""
    stage.python(
        """
        import atexit
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")

        def generator():
            with profiler.phase("generator"):
                yield

        running = generator()
        next(running)

        @atexit.register
        def last():
            with profiler.phase("atexit"):
                profiler.count("n", 1)

        class Late:
            def __del__(self):
                with profiler.phase("del"):
                    pass

        late = Late()
        """
    ).expect()
    report = stage.report()
    calls = report.calls()
    assert calls["generator/atexit"] == 1
    # When the modules go, and with them the generator, is the interpreter's choice; nothing of it may be lost silently.
    assert sum(n for path, n in calls.items() if path.endswith("del")) == 1
    assert calls["generator"] == 1 or "generator" in report.open_since(report.workers[0])
    assert report.states() == ["closed"]


def test_dead_run_in_another_directory_is_left_alone(stage: Stage) -> None:
    """A report adopts what belongs to its directory, and nothing else."""
    victims = []
    for name in ("run", "other"):
        victim = stage.start(OPEN.replace('"run"', f'"{name}"').replace("{end}", "os.kill(os.getpid(), 9)"))
        victims.append(victim)
    for victim in victims:
        assert victim.wait(60) == -signal.SIGKILL
    assert len([p for p in stage.segments() if p.is_file()]) == 2
    assert len(stage.report("run").workers) == 1
    assert len([p for p in stage.segments() if p.is_file()]) == 1
    assert not list((stage.folder / "other").glob("workers/*/*"))
    assert len(stage.report("other").workers) == 1
    assert len([p for p in stage.segments() if p.is_file()]) == 0


def made_again(path: Path, number: int) -> bool:
    """An empty directory of that path and inode number; False where numbers are not given again."""
    for i in range(20_000):
        tried = path.with_name(f"try{i}")
        tried.mkdir()
        if tried.stat().st_ino == number:
            tried.rename(path)
            return True
    return False


def test_a_directory_with_the_number_of_a_removed_one(stage: Stage) -> None:
    """A run's directory goes while its processes live, and the next run's gets its inode number: they are two runs."""
    first = [stage.start(OPEN.replace("{end}", "pass")) for _ in range(2)]
    for program in first:
        assert program.stdout is not None
        assert program.stdout.readline() == "inside\n"
    number = stage.run.stat().st_ino
    shutil.rmtree(stage.run)
    if not made_again(stage.run, number):
        pytest.skip("this file system gives no number again")
    first[0].kill()
    first[0].wait()
    second = stage.start(OPEN.replace("{end}", "os.kill(os.getpid(), 9)"))
    assert second.wait(60) == -signal.SIGKILL
    report = stage.report()
    assert [w["pid"] for w in report.workers] == [second.pid]
    assert report.caveats["attempts"] == []
    assert report.caveats["superseded"] == []


def test_two_reports_at_once_adopt_once(stage: Stage) -> None:
    for _ in range(5):
        stage.start(OPEN.replace("{end}", "os.kill(os.getpid(), 9)")).wait(60)
    command = [str(Path(sys.executable).with_name("lineprofiler")), "report", "run", "--json"]
    readers = [
        subprocess.Popen(command, cwd=stage.folder, env=stage.environment(), stdout=subprocess.PIPE, encoding="utf-8")
        for _ in range(6)
    ]
    import json

    reports = [Report(json.loads(reader.communicate(timeout=60)[0])) for reader in readers]
    for report in reports:
        report.healthy()
        assert len(report.document["caveats"]["attempts"]) + 1 == 5
    assert len(stage.snapshots()) == 5
    assert [p for p in stage.segments() if p.is_file()] == []


def test_moved_run_directory_is_still_found(stage: Stage) -> None:
    """The segment names its directory by device and inode: a renamed one keeps its living workers."""
    program = stage.start(OPEN.replace("{end}", "pass"))
    assert program.stdout is not None
    assert program.stdout.readline() == "inside\n"
    stage.run.rename(stage.folder / "moved")
    assert stage.report("moved").states() == ["running"]
    program.kill()
    program.wait()
    assert stage.report("moved").states() == ["died"]
    assert [p for p in stage.segments() if p.is_file()] == []


def test_what_was_asked_for_after_the_start_and_is_not_recorded(stage: Stage) -> None:
    """A killed process has written no snapshot that could say it: it stands in the segment."""
    program = stage.start(
        """
        import os, warnings
        from lineprofiler.accounting import Profiler
        warnings.simplefilter("ignore")
        profiler = Profiler("run", role="r", annotate=["nvtx"])
        with profiler.phase("a"):
            profiler.trace_mark("requests", "one", 1)
            profiler.trace_end("requests", "one")
            os.kill(os.getpid(), 9)
        """
    )
    program.wait(60)
    stage.settle()
    asked = {each["option"] for each in stage.report().caveats["asked_not_recorded"]}
    assert {"trace_mark", "trace_end"} < asked, asked
    assert any("annotate" in name for name in asked), asked
