"""The cases of FIELD.md that concern accounting, one test each: what users of other profilers hit, and what ours does.

Case numbers are FIELD.md's. Each stands for its kind; the kinds themselves are tested in tests/processes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lpstage import Report, Stage
from lptest import ROOT
from snapfile import Worker

METHODS = ["fork", "spawn", "forkserver"]


@pytest.mark.parametrize("method", METHODS)
def test_a1_worker_data_is_never_lost(stage: Stage, method: str) -> None:
    """Other profilers write at exit, which pool workers never reach."""
    stage.python(
        f"""
        import multiprocessing as mp, os, signal
        from lineprofiler import accounting
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", run_id="a1", install=True)

        def w(i):
            with profiler.phase("w"):
                return i

        if __name__ == "__main__":
            with mp.get_context("{method}").Pool(2) as p:
                assert p.map(w, range(8)) == list(range(8))
            if os.fork() == 0:
                with profiler.phase("x"):
                    pass
                os._exit(0)
            if os.fork() == 0:
                with profiler.phase("killed"):
                    os.kill(os.getpid(), signal.SIGKILL)
            os.wait(), os.wait()
        """,
        options=("-W", "ignore"),
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"w": 8, "x": 1, "killed": 0}
    unclean = {each["pid"] for each in report.caveats["unclean"]}
    killed = [w["pid"] for w in report.workers if "killed" in report.open_since(w)]
    assert len(killed) == 1
    assert killed[0] in unclean, "and the report says that the process ended unclean"


def test_a2_forked_child_starts_at_zero(stage: Stage) -> None:
    done = stage.python(
        """
        import os
        from lineprofiler.accounting import Profiler, merge_run

        profiler = Profiler("run", role="r")
        with profiler.phase("open at the fork"):
            profiler.count("n", 5)
            pid = os.fork()
            if pid == 0:
                profiler.count("n", 1)
                os._exit(0)
            os.waitpid(pid, 0)
        profiler.close()
        run = merge_run("run")
        print(sum(s.counters.get("n", 0) for s in run.tree.values()), len(run.workers))
        """
    ).expect()
    assert done.stdout.split() == ["6", "2"]
    assert stage.report().calls() == {"open at the fork": 1}
    assert stage.report().counters() == {"open at the fork:n": 5, ":n": 1}


def test_a4_one_broken_file_spoils_nothing(stage: Stage) -> None:
    stage.python(
        """
        import os
        from lineprofiler.accounting import Profiler

        with Profiler("run", role="r") as profiler:
            for _ in range(7):
                with profiler.phase("w"):
                    pass
        """
    ).expect()
    (good,) = stage.snapshots()
    blob = good.read_bytes()
    for size in (0, 7, len(blob) // 2):
        (good.parent / f"w_cut_{size}_abcdabcd.1.final.snap").write_bytes(blob[:size])
    report = stage.report()
    assert report.calls() == {"w": 7}
    assert len(report.caveats["unreadable"]) == 3
    assert all(each["reason"] for each in report.caveats["unreadable_reasons"])


def test_a5_full_or_read_only_disk_changes_no_program(stage: Stage) -> None:
    """A directory that never takes a byte, 10^5 phases: the exit code is the program's."""
    done = stage.python(
        """
        import sys
        from lineprofiler.accounting import Profiler

        profiler = Profiler("/proc/self/run", role="r", snapshot_interval_s=0.01)
        for i in range(10**5):
            with profiler.phase(f"p{i % 50}"):
                pass
        assert profiler.merged_tree()[("p7",)].calls == 2000
        sys.exit(5)
        """
    ).expect(5)
    assert done.stderr.count("Warning") == 1


# Until it executes the command, a child has the memory of who spawned it, and the kernel keeps that as its peak: so a
# small process spawns it, not the one that runs the tests.
PEAK_OF = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss, file=sys.stderr)
"""


@pytest.mark.one_version
def test_a6_thousands_of_processes(stage: Stage) -> None:
    """4,096 files of 64 hosts: every worker is in, in bounded memory. (What it takes is measured: benchmarks/.)"""
    for number in range(4096):
        worker = Worker("actor", f"h{number % 64}", number + 1)
        for name in ("w", "w/a"):
            worker.phase(name, number % 7 + 1, 1000 + number, 2000 + number)
        worker.write(stage.run)
    command = [str(Path(sys.executable).with_name("lineprofiler")), "report", "run", "--json"]
    done = stage.python(PEAK_OF, *command)
    code, peak = map(int, done.stderr.split())
    assert code == 0
    assert peak < 500 << 10, "kB"
    report = Report(json.loads(done.stdout))
    report.healthy()
    assert len(report.workers) == 4096
    assert report.calls() == dict.fromkeys(("w", "w/a"), sum(n % 7 + 1 for n in range(4096)))
    text = stage.command("report", "run").expect().stdout
    assert "4096" in text.replace(",", "")
    assert len(text.splitlines()) < 200, "a screen or two, not a line for each"


REALTIME_SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static long shift;
void shift_realtime(long seconds) { shift = seconds; }
int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, t);
    if (id == CLOCK_REALTIME)
        t->tv_sec += shift;
    return rc;
}
"""


@pytest.mark.parametrize("clock", ["", "monotonic"])
@pytest.mark.parametrize("step_s", [-3600, 3600, -(10**9)])
def test_a7_a_step_of_the_clock_changes_no_duration(stage: Stage, step_s: int, clock: str) -> None:
    """A clock of our own (the machine's is never touched) steps while a phase is open, and back."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = stage.folder / "shim.c"
    source.write_text(REALTIME_SHIM)
    shim = stage.folder / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(shim)]))
    facts = stage.facts(
        f"""
        import ctypes, time
        from lineprofiler.accounting import Profiler, merge_run, render

        shim = ctypes.CDLL(None)
        before = time.time()
        profiler = Profiler("run", role="r", snapshot_interval_s=0.01)
        with profiler.phase("outer"):
            for number in range(4):
                start = time.perf_counter()
                with profiler.phase("a"):
                    time.sleep(0.01)
                    shim.shift_realtime({step_s} if number % 2 == 0 else 0)
                    time.sleep(0.01)
        took = time.perf_counter() - start
        assert abs(time.time() - before) < 60
        shim.shift_realtime({step_s})
        assert abs(time.time() - before) > 1000
        tree = profiler.merged_tree()
        profiler.snapshot()
        run = merge_run("run")
        render(run)
        shim.shift_realtime(0)
        profiler.close()
        a = tree[("outer", "a")]
        print([a.wall_ns, a.max_ns, a.cpu_ns, a.self_ns, tree[("outer",)].wall_ns])
        """,
        env={"LD_PRELOAD": preload, **({"LINEPROFILER_CLOCK": clock} if clock else {})},
    )
    wall, longest, cpu, own, outer = facts
    assert 80e6 <= wall <= outer < 60e9
    assert 20e6 <= longest <= wall
    assert 0 <= cpu <= wall
    assert own == wall
    report = stage.report()
    report.healthy()
    assert report.caveats["health"]["clock_backwards"] == 0
    assert 0 <= report.document["run"]["runtime_s"] < 60


def test_a7_ticks_become_ns_for_400_days() -> None:
    """The conversion itself is tested in C, without a clock: named here so that the case has its place."""
    text = (ROOT / "tests" / "c" / "test_core_numbers.c").read_text(encoding="utf-8")
    assert "400" in text
    assert "lp_ticks_to_ns" in text


def test_a9_tasks_and_threads_keep_their_own_stack(stage: Stage) -> None:
    """Two gathered tasks are siblings, whatever order they run in; a worker thread starts at the root."""
    facts = stage.facts(
        """
        import asyncio, concurrent.futures, time
        from lineprofiler.accounting import Profiler

        def burn(seconds):
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass

        profiler = Profiler("run", role="r")

        async def t(n):
            with profiler.phase(n):
                burn(0.01)
                await asyncio.sleep(0.05)
                burn(0.01)

        async def main():
            await asyncio.gather(t("a"), t("b"))

        with profiler.phase("serve"):
            asyncio.run(main())
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                pool.submit(profiler.profile(burn, name="in a thread"), 0.001).result()
        tree = profiler.merged_tree()
        profiler.close()
        print([sorted("/".join(p) for p in tree if p), {n: tree[("serve", n)].wall_ns for n in "ab"},
               {n: tree[("serve", n)].cpu_ns for n in "ab"}, tree[("serve",)].wall_ns])
        """
    )
    paths, wall, cpu, serve = facts
    assert paths == ["in a thread", "serve", "serve/a", "serve/b"]
    for name in "ab":
        assert 70e6 <= wall[name] <= serve
        assert 0 <= cpu[name] <= wall[name]
    assert sum(cpu.values()) <= serve
    report = stage.report()
    report.healthy()
    assert report.calls() == {"serve": 1, "serve/a": 1, "serve/b": 1, "in a thread": 1}


def test_a9_greenlets_have_stacks_of_their_own(stage: Stage) -> None:
    pytest.importorskip("greenlet")
    stage.python(
        """
        from greenlet import greenlet
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")

        def one():
            with profiler.phase("one"):
                second.switch()
                with profiler.phase("inner"):
                    pass
            second.switch()

        def two():
            with profiler.phase("two"):
                first.switch()
            assert profiler.current_phase() == ""

        first, second = greenlet(one), greenlet(two)
        first.switch()
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"one": 1, "one/inner": 1, "two": 1}


def test_a10_signals_and_start_method_are_the_programs(stage: Stage) -> None:
    stage.python(
        """
        import multiprocessing as mp, os, signal

        ran = []
        def mine(number, frame):
            ran.append(number)

        signal.signal(signal.SIGTERM, mine)
        import lineprofiler
        from lineprofiler import accounting
        profiler = accounting.start("run")
        assert signal.getsignal(signal.SIGTERM) is mine
        assert mp.get_start_method(allow_none=True) is None
        with profiler.phase("a"):
            os.kill(os.getpid(), signal.SIGTERM)
        assert ran == [signal.SIGTERM]
        mp.set_start_method("spawn")
        # Other tools set timers and poll: nothing of ours interrupts a system call.
        import select
        read, write = os.pipe()
        with profiler.phase("poll"):
            assert select.select([read], [], [], 0.05) == ([], [], [])
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"a": 1, "poll": 1}


def test_a10_exit_waits_for_nobody(stage: Stage) -> None:
    """A child that never ends does not hold its parent up."""
    done = stage.python(
        """
        import os, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        if os.fork() == 0:
            for fd in (0, 1, 2):
                os.close(fd)
            with profiler.phase("for ever"):
                time.sleep(30)
            os._exit(0)
        with profiler.phase("a"):
            time.sleep(0.2)
        began = time.monotonic()
        profiler.close()
        print(time.monotonic() - began)
        """
    ).expect()
    assert float(done.stdout) < 5
    report = stage.report()
    assert report.states() == ["closed", "running"]
    child = next(w["pid"] for w in report.workers if w["state"] == "running")
    os.kill(child, 9)


def test_r5_three_digits_at_every_scale(stage: Stage) -> None:
    """Nothing is rounded to 0.0; a phase of no length shows its entries; Per entry never divides by zero."""
    stage.python(
        """
        import time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        with profiler.phase("all"):
            with profiler.phase("sleeps"):
                time.sleep(0.0123)
            for _ in range(3):
                with profiler.phase("quick"):
                    pass
            profiler.count("zero", 0)
            profiler.count("large", 2**62)
            profiler.count("large", 2**62)
            profiler.count("negative", -5)
        """
    ).expect()
    text = stage.command("report", "run", "--all").expect().stdout
    (sleeps,) = [line for line in text.splitlines() if "sleeps" in line and "%" in line and "█" not in line]
    shown = [float(n) for n in re.findall(r"(\d+\.\d+)ms", sleeps)]
    assert shown
    assert all(12.3 <= n < 2000 for n in shown)
    assert re.search(r"\b(nan|inf|infinity)\b", text.lower()) is None
    report = stage.report()
    phase = report.phase("r", "all")
    assert phase["counters"] == {"zero": 0, "large": 2**63, "negative": -5}
    assert isinstance(phase["wall_ns"], int)
    assert report.calls()["all/quick"] == 3


def test_r6_files_of_anybody_and_no_empty_ones(stage: Stage) -> None:
    """No pickle, a magic and a version, a one-line error; no file without data; a name of its own for each process."""
    bad = stage.folder / "x.lp"
    bad.write_bytes(b"garbage")
    for arguments in (["report", "x.lp"], ["dump", "x.lp"], ["compare", "x.lp", "x.lp"]):
        done = subprocess.run(
            [sys.executable, "-m", "lineprofiler", *arguments],
            capture_output=True,
            text=True,
            cwd=stage.folder,
            env=stage.environment(),
            check=False,
            timeout=60,
        )
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr
    evil = stage.folder / "run" / "workers" / "host"
    evil.mkdir(parents=True)
    (evil / "w_evil_1_abcdabcd.1.snap").write_bytes(b"cposix\nsystem\n(S'touch owned'\ntR.")
    stage.report(expect=2)
    assert not (stage.folder / "owned").exists()
    shutil.rmtree(stage.run)
    stage.python(
        """
        import os
        from lineprofiler.accounting import Profiler

        with Profiler("run", role="r") as profiler:
            for number in range(6):
                if os.fork() == 0:
                    if number % 2:
                        with profiler.phase("a"):
                            pass
                    os._exit(0)
            for _ in range(6):
                os.wait()
        """
    ).expect()
    names = [p.name for p in stage.snapshots()]
    assert len(names) == 4, "the parent and the three children that recorded"
    assert len({name.rsplit("_", 1)[1] for name in names}) == 4
    assert all(p.stat().st_size > 100 for p in stage.snapshots())
    assert isinstance(stage.report(), Report)
    assert Path(stage.folder / "x.lp").read_bytes() == b"garbage"
