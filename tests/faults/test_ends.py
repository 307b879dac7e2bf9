"""Ends that tests/processes/test_deaths.py does not have: faults inside the program, with a collector beside."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from lpstage import Stage

ENDS = {
    "stack overflow": (
        """
        callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
        def deeper(n):
            with profiler.phase("once"):
                pass
            return again(n)
        again = callback(deeper)
        def unguarded():
            # From 3.14 on Python knows where a stack ends and raises RecursionError before: tell it of a longer one.
            api = ctypes.pythonapi
            if sys.version_info >= (3, 14):
                api.PyThreadState_Get.restype = ctypes.c_void_p
                protect = api.PyUnstable_ThreadState_SetStackProtection
                protect.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
                assert protect(api.PyThreadState_Get(), 1 << 16, 1 << 47) == 0
            again(1)
        sys.setrecursionlimit(1 << 30)
        threading.stack_size(256 << 10)
        thread = threading.Thread(target=unguarded)
        thread.start()
        thread.join()
        """,
        -signal.SIGSEGV,
    ),
    "Py_FatalError": ("ctypes.pythonapi.Py_FatalError(b'the end')", -signal.SIGABRT),
    "SIGUSR1": ("os.kill(os.getpid(), signal.SIGUSR1)", -signal.SIGUSR1),
    "SIGALRM": ("signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(60)", -signal.SIGALRM),
    "SIGQUIT": ("os.kill(os.getpid(), signal.SIGQUIT)", -signal.SIGQUIT),
    "a real SIGBUS": (
        """
        with open("short", "w+b") as file:
            file.write(bytes(4096))
            file.flush()
            mapped = mmap.mmap(file.fileno(), 4096)
            file.truncate(0)
            print(mapped[0])
        """,
        -signal.SIGBUS,
    ),
    "os._exit in a thread": (
        "thread = threading.Thread(target=os._exit, args=(5,)); thread.start(); time.sleep(60)",
        5,
    ),
}


@pytest.mark.parametrize("what", ENDS)
def test_end_inside_a_phase(stage: Stage, what: str) -> None:
    code, expected = ENDS[what]
    body = "\n".join("    " + line[8:] if line.startswith("        ") else "    " + line for line in code.splitlines())
    program = f"""
import ctypes, mmap, os, resource, signal, sys, threading, time
from lineprofiler.accounting import Profiler

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
profiler = Profiler("run", role="r") if sys.argv[1] == "on" else Profiler.disabled()
for _ in range(100):
    with profiler.phase("done"):
        profiler.count("n", 3)
with profiler.phase("open"):
{body}
"""
    stage.script(program, "same.py")
    off, on = (stage.python(program, how, name="same.py") for how in ("off", "on"))
    assert on.returncode == off.returncode == expected, on.stderr
    assert on.stdout == off.stdout
    assert "Warning" not in on.stderr
    assert stage.segments() == []
    report = stage.report()
    report.healthy()
    assert report.states() == ["died"]
    calls = report.calls()
    assert (calls["done"], calls["open"]) == (100, 0)
    assert report.counters() == {"done:n": 300}
    assert "open" in report.open_since(report.workers[0])


def test_exception_in_an_exit_inside_a_phase(stage: Stage) -> None:
    """An inner context manager fails while it is left, also for another exception: the phases around it end once."""
    stage.python(
        """
        from lineprofiler.accounting import Profiler

        class Fails:
            def __enter__(self):
                return self
            def __exit__(self, *args):
                raise KeyError("in __exit__")

        profiler = Profiler("run", role="r")
        for inside in (None, ValueError("first")):
            try:
                with profiler.phase("outer"):
                    with profiler.phase("inner"):
                        with Fails():
                            if inside:
                                raise inside
            except KeyError as error:
                assert error.__context__ is inside
            assert not profiler.current_phase()
        class FailsAround(Fails):
            pass
        try:
            with FailsAround(), profiler.phase("whole"):
                pass
        except KeyError:
            pass
        profiler.close()
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"outer": 2, "outer/inner": 2, "whole": 1}
    assert [report.phase("r", path)["errors"] for path in ("outer", "outer/inner", "whole")] == [2, 2, 0]


@pytest.mark.parametrize("inside", ["time.sleep(600)", "while True: pass", "open(pipe).read()"])
def test_daemon_thread_inside_a_phase_at_shutdown(stage: Stage, inside: str) -> None:
    """The interpreter ends around it: the program ends as ever, and the phase is open to the end."""
    done = stage.python(
        f"""
        import os, sys, threading, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        pipe = "pipe"
        os.mkfifo(pipe)
        ready = threading.Event()

        def works():
            with profiler.phase("daemon"):
                for _ in range(3):
                    with profiler.phase("done"):
                        pass
                ready.set()
                with profiler.phase("inside"):
                    {inside}

        threading.Thread(target=works, daemon=True).start()
        ready.wait()
        print("the end")
        sys.exit(3)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "the end\n", "")
    assert stage.segments() == []
    report = stage.report()
    report.healthy()
    assert report.states() == ["closed"]
    assert report.calls() == {"daemon": 0, "daemon/done": 3, "daemon/inside": 0}
    assert set(report.open_since(report.workers[0])) == {"daemon", "daemon/inside"}


def test_our_library_is_closed(stage: Stage) -> None:
    """dlclose() by a program that goes through everything that is loaded: threads that recorded end well after it, and
    recording goes on, because the library is never unmapped."""
    stage.python(
        """
        import _ctypes, ctypes, os, threading
        from lineprofiler import _lineprofiler
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        inside, leave = threading.Barrier(5), threading.Event()

        def works():
            with profiler.phase("t"):
                inside.wait()
                leave.wait()

        threads = [threading.Thread(target=works) for _ in range(4)]
        for thread in threads:
            thread.start()
        inside.wait()
        handle = ctypes.CDLL(_lineprofiler.__file__, mode=os.RTLD_NOLOAD | os.RTLD_NOW)._handle
        for _ in range(2):  # ours, and the import's
            _ctypes.dlclose(handle)
        leave.set()
        for thread in threads:
            thread.join()
        with profiler.phase("after"):
            pass
        if os.fork() == 0:
            with profiler.phase("w"):
                os._exit(0)
        assert os.wait()[1] == 0
        profiler.close()
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"t": 4, "after": 1, "w": 0}


def test_everything_is_closed_by_the_program(stage: Stage) -> None:
    """A daemon's closerange(3, 9999), again and again, also in children: nothing is lost."""
    stage.python(
        """
        import os, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=0.02)
        for number in range(30):
            os.closerange(3, 9999)
            with profiler.phase("a", io=True):
                profiler.count("n")
            time.sleep(0.002)
            if os.fork() == 0:
                os.closerange(3, 9999)
                with profiler.phase("w"):
                    os.closerange(3, 9999)
                if number % 2:
                    os.kill(os.getpid(), 9)
                profiler.close()
                os._exit(0)
            os.wait()
            assert [int(n) for n in os.listdir("/proc/self/fd") if 3 < int(n) < 100] == []
        profiler.close()
        """
    ).expect()
    stage.settle()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"a": 30, "w": 30}
    assert stage.segments() == []


def test_half_written_snapshots_of_the_dead_go(stage: Stage) -> None:
    """A writer that is killed between creation and rename leaves a file; the next reader removes it once it is old."""
    stage.python(
        "from lineprofiler.accounting import Profiler\nwith Profiler('run') as p:\n  with p.phase('a'): pass"
    ).expect()
    (snapshot,) = stage.snapshots()
    old, young = (Path(snapshot.parent, f".w_it_{n}_aaaaaaaa.1.snap.{n}.tmp") for n in (1, 2))
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    assert stage.report().calls() == {"a": 1}
    assert not old.exists()
    assert young.exists()
