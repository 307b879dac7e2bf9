"""Children that are more than a fork: spawned, started by an earlier server, daemons; many at once; and several
Profilers in one process, beside and after each other. exec of another Python: test_deaths.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from lpstage import Report, Stage, wait_for
from lptest import run_process

CHILD = """
import os, sys
from lineprofiler.accounting import Profiler

with Profiler(role="child") as profiler:
    assert profiler.enabled is (sys.argv[1] == "on"), os.environ.get("LINEPROFILER_PROFILE")
    for number in range(5):
        with profiler.phase("work"):
            profiler.count("n", number)
"""


def merged(stage: Stage, run: str = "run") -> Any:
    from lineprofiler.accounting import merge_run

    return merge_run(stage.folder / run)


def test_posix_spawn(stage: Stage) -> None:
    stage.script(CHILD, "child.py")
    stage.python(
        """
        import os, sys
        from lineprofiler.accounting import Profiler

        with Profiler("run", role="parent") as profiler, profiler.phase("spawn"):
            pids = [os.posix_spawn(sys.executable, [sys.executable, "child.py", "on"], os.environ) for _ in range(3)]
            for pid in pids:
                assert os.waitpid(pid, 0)[1] == 0
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"spawn": 1, "work": 15}
    assert report.counters("child") == {"work:n": 30}
    assert report.states() == ["closed"] * 4
    assert stage.segments() == []


def test_a_forkserver_that_was_there_before(stage: Stage) -> None:
    """It has the environment of its start: a child that is told nothing is off, one that is told the run is in it."""
    stage.python(
        """
        import multiprocessing, os, sys
        from lineprofiler.accounting import Profiler

        def work(number, run_dir, run_id):
            given = {"run_dir": run_dir, "run_id": run_id} if run_dir else {}
            with Profiler(role="child", **given) as profiler:
                assert profiler.enabled is bool(run_dir)
                with profiler.phase("work"):
                    profiler.count("n", number)

        if __name__ == "__main__":
            context = multiprocessing.get_context("forkserver")
            first = context.Process(target=work, args=(0, "", ""))
            first.start()
            first.join()
            assert first.exitcode == 0
            with Profiler("run", role="main") as profiler, profiler.phase("main"):
                told = [(1, profiler.run_dir, profiler.run_id), (2, "", ""), (3, profiler.run_dir, profiler.run_id)]
                children = [context.Process(target=work, args=arguments) for arguments in told]
                for child in children:
                    child.start()
                for child in children:
                    child.join()
                    assert child.exitcode == 0
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"main": 1, "work": 2}
    assert report.counters() == {"work:n": 4}
    assert report.caveats["superseded"] == []


FAMILY = """
import multiprocessing, os, subprocess, sys
from lineprofiler.accounting import Profiler

def work(role):
    with Profiler("run", role=role) as profiler, profiler.phase("work"):
        print(profiler.run_id, flush=True)

def boss(context):
    children = [context.Process(target=work, args=("inner",)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()

def forked(function, *arguments):
    child = os.fork()
    if child == 0:
        function(*arguments)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

if __name__ == "__main__":
    if sys.argv[1] == "os":
        forked(work, "outer")
        forked(forked, work, "inner")
        forked(forked, work, "inner")
    else:
        context = multiprocessing.get_context(sys.argv[1])
        for target, argument in ((work, "outer"), (boss, context)):
            child = context.Process(target=target, args=(argument,))
            child.start()
            child.join()
            assert child.exitcode == 0
"""


@pytest.mark.parametrize("method", ["os", "fork", "spawn", "forkserver"])
def test_children_of_a_python_that_records_nothing(stage: Stage, method: str) -> None:
    """They have nobody to inherit a run id from, and are one attempt none the less; a second run is another one."""
    first, second = (set(stage.python(FAMILY, method).expect().stdout.split()) for _ in range(2))
    assert len(first) == len(second) == 1
    assert first != second
    run = merged(stage)
    assert {run.metadata["run_id"]} == second
    assert sorted(worker.role for worker in run.workers) == ["inner", "inner", "outer"]
    assert len(run.superseded) == 3


TYPED = """
import os
from lineprofiler.accounting import Profiler
for number in range(2):
    if os.fork() == 0:
        with Profiler("run") as profiler:
            os.write(1, profiler.run_id.encode() + b"\\n")
        os._exit(0)

_ = os.wait(), os.wait()
"""


def test_who_is_not_of_one_run(stage: Stage) -> None:
    """Who types into an interpreter may start one run after the other; a program that is started is a run apart."""
    typed = run_process([sys.executable, "-i", "-q"], cwd=stage.folder, env=stage.environment(), stdin=TYPED)
    assert len(set(typed.expect().stdout.split())) == 2
    one = "from lineprofiler.accounting import Profiler; print(Profiler('run').run_id)"
    several = f"import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, '-c', {one!r}], check=True)"
    assert len(set(stage.python(several).expect().stdout.split())) == 2


def test_a_daemon_that_outlives_its_run(stage: Stage) -> None:
    """Two forks and setsid, as daemons do: it records on after its ancestors have closed, and nobody waits for it."""
    stage.python(
        """
        import os, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="starter")
        with profiler.phase("start"):
            pid = os.fork()
        if pid == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            os.chdir("/")
            null = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            os.closerange(3, 64)
            for number in range(20):
                with profiler.phase("serve"):
                    profiler.count("n", number)
                time.sleep(0.01)
            profiler.close()
            open(os.path.join(sys.argv[1], "ended"), "w").close()
            os._exit(0)
        os.waitpid(pid, 0)
        profiler.close()
        """,
        stage.folder,
    ).expect()
    wait_for((stage.folder / "ended").exists, "the daemon ends")
    report = stage.report()
    report.healthy()
    assert report.calls() == {"start": 1, "serve": 20}
    assert report.counters() == {"serve:n": 190}
    assert report.states() == ["closed", "closed"]
    assert stage.segments() == []


@pytest.mark.parametrize("count", [1, 4, 16, 64])
def test_so_many_workers_at_once(stage: Stage, count: int) -> None:
    """All alive at the same time; half of them leave by os._exit, which closes nothing."""
    stage.python(
        """
        import os, sys
        from lineprofiler.accounting import Profiler

        count = int(sys.argv[1])
        profiler = Profiler("run", role="worker")
        ready, go = os.pipe(), os.pipe()
        pids = []
        for number in range(count):
            pid = os.fork()
            if pid == 0:
                os.close(go[1])
                for n in range(number + 1):
                    with profiler.phase("work"):
                        profiler.count("n", number)
                        with profiler.phase("part"):
                            pass
                os.write(ready[1], b"x")
                os.read(go[0], 1)  # until all are there
                if number % 2:
                    profiler.close()
                os._exit(0)
            pids.append(pid)
        with profiler.phase("wait"):
            for _ in pids:
                os.read(ready[0], 1)
            os.close(go[1])
            for pid in pids:
                assert os.waitpid(pid, 0)[1] == 0
        profiler.close()
        """,
        count,
    ).expect()
    report = stage.report()
    report.healthy()
    total = count * (count + 1) // 2
    assert report.calls() == {"wait": 1, "work": total, "work/part": total}
    assert report.states() == ["closed"] * (1 + count // 2) + ["died"] * (count - count // 2)
    mine = [w.tree[("work",)] for w in merged(stage).workers if ("work",) in w.tree]
    assert sorted(s.calls for s in mine) == list(range(1, count + 1))
    assert sorted(s.counters["n"] for s in mine) == [n * (n + 1) for n in range(count)]
    assert report.caveats["private_memory"] == []
    assert stage.segments() == []


def test_profilers_within_each_other(stage: Stage) -> None:
    """Two Profilers of two runs in one process: each has its own stack and tree, also in a child that is forked inside
    of both, and closing one leaves the other open."""
    stage.python(
        """
        import os
        from lineprofiler.accounting import Profiler

        with Profiler("outer", role="r") as outer, outer.phase("a"):
            with Profiler("inner", role="r") as inner, inner.phase("x"):
                outer.count("n", 1)
                with outer.phase("b"):
                    assert (outer.current_phase(), inner.current_phase()) == ("a/b", "x")
                    inner.count("m", 10)
                pid = os.fork()
                if pid == 0:
                    with outer.phase("child"), inner.phase("child"):
                        outer.count("n", 5)
                    os._exit(0)
                os.waitpid(pid, 0)
            with outer.phase("after"):
                pass
        """
    ).expect()
    outer, inner = stage.report("outer"), stage.report("inner")
    for report in (outer, inner):
        report.healthy()
        assert report.states() == ["closed", "died"]
    assert outer.calls() == {"a": 1, "a/b": 1, "a/after": 1, "child": 1}
    assert outer.counters() == {"a:n": 1, "child:n": 5}
    assert inner.calls() == {"x": 1, "child": 1}
    assert inner.counters() == {"x:m": 10}


def test_close_and_open_again(stage: Stage) -> None:
    """With one run id the process is three workers of a run; with new ids each is an attempt, the newest is shown."""
    for run, given in (("same", 'run_id="one"'), ("new", "")):
        stage.python(
            f"""
            import os
            from lineprofiler.accounting import Profiler

            for number in range(3):
                with Profiler({run!r}, role="r", {given}) as profiler:
                    for _ in range(number + 1):
                        with profiler.phase("work"):
                            profiler.count("n", number)
                assert profiler.merged_tree()[("work",)].calls == number + 1, "it answers on"
                with profiler.phase("too late"):
                    pass
            """
        ).expect()
    same, new = stage.report("same"), stage.report("new")
    assert same.calls() == {"work": 6}
    assert len({w["pid"] for w in same.workers}) == 1
    assert len(same.workers) == 3
    assert same.caveats["superseded"] == []
    assert new.calls() == {"work": 3}
    assert new.counters() == {"work:n": 6}
    assert len(new.caveats["superseded"]) == 2
    # Superseded workers are named, not merged; merge_run has them whole.
    assert len(merged(stage, "new").workers) == 1
    assert {Path(path).suffix for path in new.caveats["superseded"]} == {".snap"}
    assert stage.segments() == []


def test_daemons_of_multiprocessing_end_with_their_parent(stage: Stage) -> None:
    """Process(daemon=True) is terminated at the parent's end: what it had done is in, and what it had open is named."""
    stage.python(
        """
        import multiprocessing, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        context = multiprocessing.get_context("fork")
        ready = context.Event()

        def work():
            for _ in range(9):
                with profiler.phase("done"):
                    pass
            with profiler.phase("endless"):
                ready.set()
                time.sleep(600)

        if __name__ == "__main__":
            context.Process(target=work, daemon=True).start()
            assert ready.wait(60)
        """
    ).expect()
    report: Report = stage.report()
    report.healthy()
    assert report.calls() == {"done": 9, "endless": 0}
    assert report.states() == ["closed", "died"]
    (worker,) = [w for w in report.workers if w["state"] == "died"]
    assert list(report.open_since(worker)) == ["endless"]
