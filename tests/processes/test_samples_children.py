"""Bytes of children that are recorded themselves: each counts once, whoever waits for whom.

The kernel adds what a child moved to its parent's /proc/<pid>/io when that waits for it. The programs write known
amounts to /dev/null, so the sum over the last rows of all processes is known, whenever rows were taken.
"""

from __future__ import annotations

from lpsamples import read
from lpstage import Stage

MIB = 1 << 20
# What an interpreter and two pipes write besides: some hundred bytes a process.
REST = 64 << 10

HEAD = """
    import os, signal, subprocess, sys, time
    from lineprofiler.accounting import Profiler, phase

    def put(mib, seconds=0.0):
        null = os.open("/dev/null", os.O_WRONLY)
        for _ in range(mib):
            os.write(null, bytes(1 << 20))
            time.sleep(seconds / mib)
        os.close(null)

    def child(mib, seconds, inside=lambda: None):
        pid = os.fork()
        if pid == 0:
            with phase("write"):
                put(mib, seconds)
                inside()
                time.sleep(0.25)  # so that a row has all of it, mostly
            os._exit(0)
        return pid

    profiler = Profiler("run", role="main", sample_interval_s=0.1, install=True)
    with phase("start"):
        time.sleep(0.25)  # the first row
"""


def written(stage: Stage, code: str) -> list[int]:
    """Of each process by its last row, the smallest first."""
    stage.python(HEAD + code).expect()
    stage.settle()
    return sorted(read(stage, path).last("write_chars") for path in stage.samples())


def test_bytes_of_recorded_children_count_once(stage: Stage) -> None:
    counts = written(
        stage,
        """
        put(2)
        pids = [child(64, 0.3), child(32, 0.1)]
        for pid in pids:
            os.waitpid(pid, 0)
        time.sleep(0.6)  # a row that has what it waited for
        """,
    )
    assert len(counts) == 3
    assert 98 * MIB <= sum(counts) <= 98 * MIB + REST


def test_children_of_recorded_children(stage: Stage) -> None:
    """Three generations: the kernel has the bytes of the last one in all three."""
    counts = written(
        stage,
        """
        os.waitpid(child(8, 0.1, lambda: os.waitpid(child(64, 0.3), 0)), 0)
        time.sleep(0.6)  # a row that has what it waited for
        """,
    )
    assert len(counts) == 3
    assert 72 * MIB <= sum(counts) <= 72 * MIB + REST


def test_children_of_others_stay_with_who_waits_for_them(stage: Stage) -> None:
    """A child that is not recorded has no samples: its bytes are its parent's, also beside recorded ones."""
    counts = written(
        stage,
        """
        pid = child(16, 0.3)
        subprocess.run([sys.executable, "-c", "import os; [os.write(1, bytes(1 << 20)) for i in range(40)]"],
                       stdout=subprocess.DEVNULL, env={}, check=True)
        os.waitpid(pid, 0)
        time.sleep(0.6)  # a row that has what it waited for
        """,
    )
    assert len(counts) == 2
    assert 56 * MIB <= sum(counts) <= 56 * MIB + REST


def test_children_that_nobody_waits_for(stage: Stage) -> None:
    """With SIGCHLD ignored the kernel adds nothing to the parent, and nothing is taken off."""
    counts = written(
        stage,
        """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        pid = child(64, 0.3)
        put(3)
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.01)
        put(2)
        time.sleep(0.6)
        """,
    )
    parent, _ = counts
    assert 5 * MIB <= parent <= 5 * MIB + REST


def test_the_report_adds_up_bytes(stage: Stage) -> None:
    """What the rows of all of them say, and no more than was written."""
    written(
        stage,
        """
        pids = [child(64, 0.6) for _ in range(3)]
        for pid in pids:
            os.waitpid(pid, 0)
        time.sleep(0.6)  # a row that has what it waited for
        """,
    )
    io = stage.report().document["resources"]["io"]
    # What came before the first row of a process is in no interval.
    files = [read(stage, path) for path in stage.samples()]
    assert io["write_chars"] == sum(s.last("write_chars") - s.known("write_chars")[0] for s in files)
    assert 0 < io["write_chars"] <= 192 * MIB + REST


def test_recorded_children_that_close(stage: Stage) -> None:
    """They end at once, between two rows: their last one is what they read of themselves."""
    counts = written(
        stage,
        """
        def closing(mib):
            pid = os.fork()
            if pid == 0:
                with phase("seen"):
                    time.sleep(0.25)  # a first row
                with phase("write"):
                    put(mib)
                profiler.close()
                os._exit(0)
            return pid

        put(2)
        for pid in [closing(64), closing(32)]:
            os.waitpid(pid, 0)
        put(1)
        profiler.close()
        """,
    )
    assert len(counts) == 3
    assert 99 * MIB <= sum(counts) <= 99 * MIB + REST
    assert 32 * MIB <= counts[1] <= 32 * MIB + REST
    assert 64 * MIB <= counts[2] <= 64 * MIB + REST


def test_a_child_that_was_waited_for_just_before_the_end(stage: Stage) -> None:
    """Its time is in that of the ended, and in the last row not in that of the living as well."""
    code = """
        code = "import time\\nwhile time.process_time() < 0.5: pass\\nprint(flush=True)\\ninput()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        print(flush=True)
        with phase("child"):
            with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], **pipes) as child:
                child.stdout.readline()
                time.sleep(0.5)  # rows that have it as living
                child.communicate(b"\\n")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    program = stage.start(HEAD + code)
    assert program.stdout is not None
    program.stdout.readline()  # it has a collector
    stage.settle()  # nobody waits for the program before its last row was taken
    program.wait(60)
    (path,) = stage.samples()
    seen = read(stage, path)
    # 0.5 s, and 10-20 ms before and after the loop; each figure of the kernel is rounded down to 10 ms.
    both = seen.last("children_ended_cpu") + seen.last("children_living_cpu")
    assert 0.48 <= both / 1e6 <= 0.48 + 0.2
