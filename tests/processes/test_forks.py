"""Whoever forks, however the child ends: every entry and every count is in the report, once, in the right process."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from lpstage import Stage

# How a child of os.fork() ends, and the state in which the report shows it.
ENDS = {
    "os._exit": ("os._exit(0)", "died"),
    "os._exit(3)": ("os._exit(3)", "died"),
    "sys.exit": ("sys.exit(0)", "closed"),
    "exception": ("raise KeyError('the child fails')", "closed"),
    "end of program": ("pass", "closed"),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", "died"),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", "died"),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", "closed"),
    "close": ("profiler.close(); os._exit(0)", "closed"),
    "exec": ("os.execv('/bin/true', ['true'])", "died"),
}


def test_children_end_in_every_way(stage: Stage) -> None:
    """An oracle kept by the test: child n enters `work` n+1 times and counts n of `n` in each."""
    cases = "".join(
        f"if number == {n}:\n    {code}\n    raise SystemExit\n" if "\n" not in code else ""
        for n, (code, _) in enumerate(ENDS.values())
    )
    pids = stage.facts(
        """
import os, signal, sys, time
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role="parent")
with profiler.phase("before"):
    profiler.count("n", 1000)
pids = []
for number in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        sys.stderr = open(os.devnull, "w")
        break
    os.waitpid(pid, 0)
    pids.append(pid)
else:
    with profiler.phase("after"):
        pass
    profiler.close()
    print(pids)
    sys.exit()
for _ in range(number + 1):
    with profiler.phase("work"):
        profiler.count("n", number)
"""
        + cases,
        len(ENDS),
    )
    assert stage.segments() == [], "close() adopted those that died"
    report = stage.report()
    report.healthy()
    for number, (pid, (how, (_, state))) in enumerate(zip(pids, ENDS.items(), strict=True)):
        assert report.worker(pid)["state"] == state, how
        # One file for each, and in it what this child did alone.
        (path,) = [p for p in stage.snapshots() if f"_{pid}_" in p.name]
        (worker,) = [w for w in merged(stage).workers if w.pid == pid]
        assert worker.path == path
        assert {p: s.calls for p, s in worker.tree.items() if p} == {("work",): number + 1}, how
        assert worker.tree[("work",)].counters == {"n": number * (number + 1)}, how
    many = len(ENDS)
    assert report.calls() == {"before": 1, "after": 1, "work": many * (many + 1) // 2}
    assert report.counters() == {"before:n": 1000, "work:n": sum(n * (n + 1) for n in range(many))}
    assert len(report.workers) == many + 1


def merged(stage: Stage) -> Any:
    from lineprofiler.accounting import merge_run

    return merge_run(stage.run)


def test_phase_open_at_the_fork_is_the_parents(stage: Stage) -> None:
    """The child leaves the `with` blocks that it inherited, and goes on; none of that is an entry or a misuse."""
    stage.python(
        """
        import os, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        inner = profiler.phase("inner")
        with profiler.phase("outer"):
            with inner:
                profiler.count("n", 5)
                pid = os.fork()
                if pid == 0:
                    assert profiler.current_phase() == "", profiler.current_phase()
                    assert profiler.merged_tree() == {} or list(profiler.merged_tree()) == [()]
                    with profiler.phase("step"):
                        assert profiler.current_phase() == "step"
                        profiler.count("n", 1)
                    profiler.count("loose", 2)
                else:
                    os.waitpid(pid, 0)
            if pid == 0:
                with inner:  # the same object again, now in the child
                    profiler.count("n", 7)
        if pid == 0:
            with profiler.phase("last"):
                pass
            os._exit(0)
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"outer": 1, "outer/inner": 1, "step": 1, "inner": 1, "last": 1}
    assert report.counters() == {"outer/inner:n": 5, "step:n": 1, "inner:n": 7, ":loose": 2}
    assert report.document["open"] == []


def test_child_without_a_phase_is_no_worker(stage: Stage) -> None:
    stage.python(
        """
        import os
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        with profiler.phase("open"):
            for end in (lambda: os._exit(0), lambda: profiler.close() or os._exit(0), lambda: profiler.snapshot()):
                pid = os.fork()
                if pid == 0:
                    end()
                    break
                os.waitpid(pid, 0)
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert len(report.workers) == 1
    assert report.calls() == {"open": 1}
    assert len(stage.snapshots()) == 1
    assert stage.segments() == []


def test_child_of_a_child_of_a_thread(stage: Stage) -> None:
    """The fork happens in a thread; the thread's child forks again; each has phases, decorated functions and counts."""
    stage.python(
        """
        import os, threading
        from lineprofiler import accounting
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", install=True)

        @profiler.profile
        def decorated(depth):
            accounting.count("depth", depth)

        @accounting.phase("by name")
        def named():
            pass

        def body(depth):
            for _ in range(depth + 1):
                with accounting.phase("level"):
                    decorated(depth)
            named()

        def forks(depth=0):
            body(depth)
            if depth == 3:
                return
            with accounting.phase("waits"):
                pid = os.fork()
                if pid == 0:
                    forks(depth + 1)
                    os._exit(0)
                os.waitpid(pid, 0)

        with accounting.phase("main thread"):
            thread = threading.Thread(target=forks)
            thread.start()
            thread.join()
        """
    ).expect()
    report = stage.report()
    report.healthy()
    calls = {p: n for p, n in report.calls().items() if "decorated" not in p}
    assert calls == {"level": 1 + 2 + 3 + 4, "waits": 3, "main thread": 1, "by name": 4}
    assert sorted(n for p, n in report.calls().items() if "decorated" in p) == [10]
    assert sum(report.counters().values()) == 0 + 2 + 6 + 12
    assert report.states() == ["closed", "died", "died", "died"]


def test_fork_while_other_threads_record(stage: Stage) -> None:
    """60 forks at random moments of three busy threads, snapshots among them: children and parent are exact."""
    totals = stage.facts(
        """
        import os, random, threading, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=0.01)
        stop = False
        done = [0] * 3

        def busy(number):
            # New names keep the tables of names and paths busy, and with them their locks.
            while not stop:
                for name in (f"t{number}", f"new{number}-{done[number] % 700}"):
                    with profiler.phase(name):
                        profiler.count("n", 1)
                done[number] += 1

        threads = [threading.Thread(target=busy, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for number in range(60):
            time.sleep(random.random() / 200)
            pid = os.fork()
            if pid == 0:
                for i in range(20):
                    with profiler.phase("child"):
                        with profiler.phase(f"c{i}"):
                            profiler.count("n", number)
                if number % 2:
                    profiler.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        stop = True
        for thread in threads:
            thread.join()
        profiler.close()
        print(done)
        """,
        options=("-W", "ignore"),
    )
    report = stage.report()
    report.healthy()
    calls = report.calls()
    assert [calls[f"t{n}"] for n in range(3)] == totals
    assert [sum(c for p, c in calls.items() if p.startswith(f"new{n}-")) for n in range(3)] == totals
    assert calls["child"] == 60 * 20
    assert all(calls[f"child/c{i}"] == 60 for i in range(20))
    assert sum(n for key, n in report.counters().items() if key.startswith("child/")) == 20 * sum(range(60))
    assert report.states() == ["closed"] * 31 + ["died"] * 30


def test_exits_that_the_child_inherits_are_no_misuse(stage: Stage) -> None:
    """One object entered twice, a decorated function, a generator and an ExitStack, all open at the fork."""
    stage.python(
        """
        import contextlib, gc, os
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        again = profiler.phase("again")

        @profiler.profile(name="decorated")
        def decorated(depth):
            if depth:
                return decorated(depth - 1)
            pid = os.fork()
            if pid == 0:
                with again:
                    gc.collect()
            return pid

        def generator():
            with profiler.phase("generator"):
                yield

        with contextlib.ExitStack() as stack:
            stack.enter_context(profiler.phase("stack"))
            running = generator()
            next(running)
            with again:
                with again:
                    pid = decorated(2)
            running.close()
        if pid:
            os.waitpid(pid, 0)
        """
    ).expect()
    report = stage.report()
    report.healthy()
    calls = report.calls()
    assert calls.pop("again") == 1
    nested = "stack/generator/again"
    assert calls == {
        "stack": 1,
        "stack/generator": 1,
        nested: 1,
        f"{nested}/again": 1,
        f"{nested}/again/decorated": 1,
        f"{nested}/again/decorated/decorated": 1,
        f"{nested}/again/decorated/decorated/decorated": 1,
    }
    assert report.states() == ["closed", "closed"]


@pytest.mark.parametrize("call", ["fork", "_Fork", "clone"])
def test_fork_behind_the_interpreters_back(stage: Stage, call: str) -> None:
    """A C library that forks: Python's handlers do not run, with `_Fork` and the bare system call none at all."""
    done = stage.python(
        """
        import ctypes, os, sys
        from lineprofiler.accounting import Profiler

        libc = ctypes.PyDLL(None)
        if sys.argv[1] == "clone":
            # As fork: no flags but SIGCHLD. The number on x86-64, on others that of the generic table.
            fork = lambda: libc.syscall(ctypes.c_long(56 if os.uname().machine == "x86_64" else 220),
                                        ctypes.c_long(17), *[ctypes.c_long(0)] * 4)
        elif hasattr(libc, sys.argv[1]):
            fork = getattr(libc, sys.argv[1])
        else:
            print("absent")
            sys.exit()
        profiler = Profiler("run", role="r")
        with profiler.phase("open"):
            with profiler.phase("a"):
                profiler.count("n", 1)
            pid = fork()
            if pid == 0:
                with profiler.phase("a"):
                    profiler.count("n", 2)
        if pid == 0:
            with profiler.phase("b"):
                pass
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """,
        call,
    ).expect()
    if done.stdout.strip() == "absent":
        pytest.skip(f"no {call} in this C library")
    report = stage.report()
    report.healthy()
    assert report.calls() == {"open": 1, "open/a": 1, "a": 1, "b": 1}
    assert report.counters() == {"open/a:n": 1, "a:n": 2}


def test_what_a_child_asks_for_is_its_own(stage: Stage) -> None:
    """merged_tree, deltas, io_counters, snapshot, close of a child speak of the child; the parent goes on."""
    facts = stage.facts(
        """
        import os
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        for _ in range(5):
            with profiler.phase("w", io=True):
                open("f", "wb", buffering=0).write(bytes(50_000))
        profiler.deltas()
        profiler.snapshot()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            before = profiler.io_counters()
            for _ in range(2):
                with profiler.phase("w", io=True):
                    open("f", "wb", buffering=0).write(bytes(1000))
            tree = profiler.merged_tree()[("w",)]
            changed = profiler.deltas()
            facts = [before.write_chars, tree.calls, tree.counters["io_write_chars"], changed[("w",)].calls]
            profiler.close()
            facts += [profiler.merged_tree()[("w",)].calls, os.environ.get("LINEPROFILER_RUN_ID")]
            os.write(write, repr(facts).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        with profiler.phase("w"):
            pass
        profiler.close()
        print(os.read(read, 10_000).decode())
        """
    )
    written, calls, chars, changed, after, run_id = facts
    # Nothing has been written by this process yet, and what the parent's own snapshot took is not subtracted from it.
    assert 0 <= written < 50_000
    assert (calls, chars, changed, after, run_id) == (2, 2000, 2, 2, None)
    report = stage.report()
    report.healthy()
    assert report.calls() == {"w": 8}
    assert report.counters()["w:io_write_chars"] == 5 * 50_000 + 2000
    assert report.states() == ["closed", "closed"]


def test_closed_or_off_before_the_fork(stage: Stage) -> None:
    """No child records for a profiler that was closed, or never on."""
    stage.python(
        """
        import os
        from lineprofiler.accounting import Profiler

        closed = Profiler("run", role="r")
        with closed.phase("a"):
            pass
        closed.close()
        off = Profiler.disabled()
        pid = os.fork()
        for profiler in (closed, off):
            with profiler.phase("b"):
                profiler.count("n")
        if pid:
            os.waitpid(pid, 0)
        """
    ).expect()
    assert stage.report().calls() == {"a": 1}
    assert len(stage.snapshots()) == 1


def test_sixty_workers_of_one_task_each(stage: Stage) -> None:
    """A pool with maxtasksperchild=1: many small dead processes, and a folder that is empty again and again."""
    stage.python(
        """
        import os, sys
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        for batch in range(10):
            pids = []
            for _ in range(6):
                pid = os.fork()
                if pid == 0:
                    with profiler.phase("task"):
                        profiler.count("n", 1)
                    os._exit(0)
                pids.append(pid)
            for pid in pids:
                os.waitpid(pid, 0)
        profiler.close()
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"task": 60}
    assert report.counters() == {"task:n": 60}
    assert report.caveats["private_memory"] == []


def test_processes_that_come_and_go_keep_their_shared_memory(stage: Stage) -> None:
    """The last process of a run removes the run's folder; another one may be about to put its segment there."""
    stage.python(
        """
        import os, sys
        from lineprofiler.accounting import Profiler

        pids = []
        for number in range(4):
            pid = os.fork()
            if pid == 0:
                for _ in range(60):
                    with Profiler("run", role="r", run_id="same") as profiler:
                        with profiler.phase("a"):
                            pass
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            assert os.waitpid(pid, 0)[1] == 0
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"a": 240}
    assert len(report.workers) == 240
    assert report.caveats["private_memory"] == []
    assert stage.segments() == []


MULTIPROCESSING = """
import concurrent.futures, multiprocessing, os, sys
from lineprofiler import accounting
from lineprofiler.accounting import Profiler

def begin():
    # A forked worker has its parent's profiler; a spawned one finds everything in the environment.
    if accounting.installed_profiler() is None:
        Profiler(role="worker", install=True)

def work(number):
    begin()
    with accounting.phase("work"):
        accounting.count("n", number)
        with accounting.phase("inner"):
            return os.getpid()

def endless(number):
    work(number)
    while True:
        with accounting.phase("never"):
            import time
            time.sleep(3600)

def main(method):
    context = multiprocessing.get_context(method)
    with Profiler("run", role="worker" if method == "fork" else "main", install=True):
        with accounting.phase("main"):
            processes = [context.Process(target=work, args=(n,)) for n in range(3)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
                assert process.exitcode == 0
            with context.Pool(2) as pool:  # terminate() at its end
                pool.map(work, range(20))
                pool.apply_async(endless, (100,))
                while not os.path.exists("never"):
                    if any(pid for pid in pool.map(work, [0])):
                        break
            with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
                list(executor.map(work, range(20)))
    print("done")

if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(stage: Stage, method: str) -> None:
    """FIELD A1: Process, Pool (terminated) and ProcessPoolExecutor of every start method."""
    done = stage.python(MULTIPROCESSING, method).expect()
    assert done.stdout.strip() == "done"
    report = stage.report()
    report.healthy()
    calls, counters = report.calls(), report.counters()
    prefix = ""
    # `endless` may or may not have got to its work before the pool was terminated.
    extra = calls[f"{prefix}work"] - (3 + 20 + 1 + 20)
    assert extra in (0, 1)
    assert calls[f"{prefix}work/inner"] == calls[f"{prefix}work"]
    assert counters[f"{prefix}work:n"] in (3 + 190 + 190, 3 + 190 + 190 + 100)
    assert calls["main"] == 1
    assert calls.get("never", 0) == 0
    workers = [w for w in report.workers if w["wall_ns"] >= 0]
    assert 1 + 3 + 1 + 1 <= len(workers) <= 1 + 3 + 2 + 2
    assert report.caveats["superseded"] == []


def test_pool_terminated_in_the_middle_of_the_work(stage: Stage) -> None:
    """FIELD section 0: `with Pool(4)` under 4 busy workers. What had ended before terminate() is in."""
    finished = stage.facts(
        """
        import mmap, multiprocessing, os, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        shared = memoryview(mmap.mmap(-1, 4096)).cast("Q")

        def busy(number):
            while True:
                shared[2 * number] += 1
                with profiler.phase("busy"):
                    profiler.count("n", 1)
                shared[2 * number + 1] += 1

        with multiprocessing.get_context("fork").Pool(4) as pool:
            pool.map_async(busy, range(4), chunksize=1)
            while min(shared[1], shared[3], shared[5], shared[7]) < 1000:
                time.sleep(0.01)
        profiler.close()
        print([shared[i] for i in range(8)])
        """
    )
    report = stage.report()
    report.healthy()
    begun, ended = sum(finished[0::2]), sum(finished[1::2])
    assert ended <= report.calls()["busy"] <= begun
    assert report.counters()["busy:n"] <= begun
    assert report.counters()["busy:n"] >= ended
    assert report.states() == ["closed"] + ["died"] * 4


def test_subprocesses_find_the_run_in_their_environment(stage: Stage) -> None:
    """A child program constructs Profiler(role=…) and needs nothing else; so does its own child."""
    stage.script(
        """
        import subprocess, sys
        from lineprofiler.accounting import Profiler

        depth = int(sys.argv[1])
        profiler = Profiler(role=f"depth {depth}")
        assert profiler.enabled
        with profiler.phase("child"):
            profiler.count("depth", depth)
            if depth < 3:
                subprocess.run([sys.executable, __file__, str(depth + 1)], check=True, cwd="/")
        """,
        "child.py",
    )
    stage.python(
        """
        import subprocess, sys
        from lineprofiler.accounting import Profiler

        with Profiler("run", role="depth 0") as profiler:
            children = [subprocess.Popen([sys.executable, "child.py", "1"]) for _ in range(2)]
            for child in children:
                assert child.wait() == 0
        # After close() a child of this program is on its own again.
        code = "from lineprofiler.accounting import *; assert not Profiler(role='x').enabled"
        subprocess.run([sys.executable, "-c", code], check=True)
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"child": 6}
    assert report.counters() == {"child:depth": 12}
    assert {w["role"] for w in report.workers} == {f"depth {n}" for n in range(4)}
    assert report.states() == ["closed"] * 7
    assert report.caveats["superseded"] == []


def test_forked_child_with_a_profiler_of_its_own(stage: Stage) -> None:
    """Process(target=…) that calls start(role="actor"), as the READMEs do: it records as an actor, without a warning
    that its parent's profiler, of which it uses nothing, were another one of this process."""
    done = stage.python(
        """
        import os
        from lineprofiler import accounting

        accounting.start("run", role="learner")
        with accounting.phase("learn"):
            for _ in range(2):
                if os.fork() == 0:
                    accounting.start("run", role="actor")
                    with accounting.phase("act"):
                        accounting.count("n", 1)
                    accounting.stop()
                    os._exit(0)
            for _ in range(2):
                assert os.wait()[1] == 0
        accounting.stop()
        """,
        options=("-W", "error"),
    ).expect()
    assert done.stderr == ""
    report = stage.report()
    report.healthy()
    assert report.calls("learner") == {"learn": 1}
    assert report.calls("actor") == {"act": 2}
    assert report.counters("actor") == {"act:n": 2}
    assert len(report.workers) == 3


# ---- namespaces ------------------------------------------------------------------------------------------------------


def can_unshare() -> bool:
    done = subprocess.run(["unshare", "--pid", "--mount", "--fork", "true"], capture_output=True, check=False)
    return done.returncode == 0


def values(dump: list[str], key: str) -> list[str]:
    return [line for line in dump if line.startswith(key + " ")]


@pytest.mark.skipif(not can_unshare(), reason="no namespaces for this user")
@pytest.mark.parametrize("where", ["nowhere", "mount", "pid", "pid, by a middle that records nothing"])
def test_identity_of_a_child_in_other_namespaces(stage: Stage, where: str) -> None:
    """A child takes over what a fork leaves as it was. Its namespaces it looks at where they can be others."""
    facts = stage.facts(
        """
        import ctypes, os, subprocess, sys
        from lineprofiler.accounting import Profiler

        where = sys.argv[1]
        profiler = Profiler("run", role="r")
        with profiler.phase("parent"):
            pass
        libc = ctypes.CDLL(None, use_errno=True)
        read, write = os.pipe()

        def child():
            with profiler.phase("child"):
                pass
            os.write(write, repr((os.stat("/proc/self/ns/pid").st_ino, os.stat("/proc/self/ns/mnt").st_ino)).encode())
            os._exit(0)

        if where.startswith("pid"):
            assert libc.unshare(0x20000000) == 0
        pid = os.fork()
        if pid == 0:
            if where == "mount":
                assert libc.unshare(0x00020000) == 0
            if "middle" in where and (inner := os.fork()):
                os.waitpid(inner, 0)
                os._exit(0)
            child()
        os.waitpid(pid, 0)
        print((os.getpid(), eval(os.read(read, 100))))
        """,
        where,
    )
    stage.settle()
    stage.report()  # adopts what a collector of another namespace has left
    parent, (pid_ns, mnt_ns) = facts
    dumps = [stage.command("dump", p).expect().stdout.splitlines() for p in stage.written()]
    (child,) = [d for d in dumps if f"pid {parent}" not in d]
    (own,) = [d for d in dumps if f"pid {parent}" in d]
    assert f"pid_ns {pid_ns}" in child
    assert f"mnt_ns {mnt_ns}" in child
    changed = [key for key in ("pid_ns", "mnt_ns") if values(own, key) != values(child, key)]
    assert changed == {"nowhere": [], "mount": ["mnt_ns"]}.get(where, ["pid_ns"])
    for kept in ("boot_id", "platform", "hardware.cpu_cores", "hardware.ram_total", "run_dir_ino", "host"):
        assert values(child, kept) == values(own, kept) != []
