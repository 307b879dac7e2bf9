"""A program under the recorder is the program that it was: same output, end, threads, signals, descriptors, hooks."""

from __future__ import annotations

import re
import textwrap

import pytest
from lpstage import Stage
from lptest import Done

# What a program can see of its process, as one dict.
FACTS = """
import atexit, ctypes, gc, json, locale, multiprocessing, os, resource, signal, sys, threading, time, warnings

def descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # the one that lists
    return found

def facts():
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    try:
        os.wait()
        waited = "a child"
    except ChildProcessError:
        waited = "ECHILD"
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "active_count": threading.active_count(),
        "threads": [t.name for t in threading.enumerate()],
        "tasks": len(os.listdir("/proc/self/task")),
        "wait": waited,
        "handlers": [repr(signal.getsignal(n)) for n in signal.valid_signals()],
        "masks": [status[k] for k in ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd")],
        "signal mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "timers": [signal.getitimer(n) for n in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "wakeup": signal.set_wakeup_fd(-1),
        "hooks": [
            sys.excepthook is sys.__excepthook__,
            sys.unraisablehook is sys.__unraisablehook__,
            sys.displayhook is sys.__displayhook__,
            threading.excepthook is threading.__excepthook__,
            sys.gettrace(), sys.getprofile(), threading.gettrace() if hasattr(threading, "gettrace") else None,
        ],
        "monitoring": [sys.monitoring.get_tool(n) for n in range(6)] if hasattr(sys, "monitoring") else None,
        "umask": status["Umask"],
        "cwd": os.getcwd(),
        "children": [children.ru_utime, children.ru_stime, children.ru_minflt, children.ru_nvcsw],
        "start method": multiprocessing.get_start_method(allow_none=True),
        "filters": [str(f[:3]) for f in warnings.filters],
        "locale": locale.setlocale(locale.LC_ALL),
        "gc": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
        "limits": [resource.getrlimit(n) for n in range(16)],
        "nice": [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))],
        "session": [os.getsid(0), os.getpgid(0)],
        "switch interval": sys.getswitchinterval(),
        "recursion limit": sys.getrecursionlimit(),
        "path": sys.path,
        "argv": sys.argv[:1],
        "builtins": sorted(vars(__builtins__)),
        "threading switch": threading.stack_size(),
        "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
        "subreaper": status.get("NSpid"),
        "seccomp": status.get("Seccomp"),
        "prctl name": open("/proc/self/comm").read(),
    }

def different(a, b):
    return {key: (a[key], b[key]) for key in a if a[key] != b[key]}
"""


@pytest.mark.parametrize("collector", [True, False], ids=["with a collector", "without"])
def test_nothing_that_a_program_can_see_changes(stage: Stage, collector: bool) -> None:
    """Before the import, while recording (threads, io, counters, a snapshot, fork), and after close()."""
    stage.collector = collector
    changed = stage.facts(
        FACTS
        + textwrap.dedent(
            """
            before = facts()
            fds = descriptors()
            env = dict(os.environ)
            modules = set(sys.modules)
            import lineprofiler
            from lineprofiler import accounting
            from lineprofiler.accounting import Profiler
            imported = different(before, facts())

            profiler = Profiler("run", role="r", snapshot_interval_s=0.05, install=True)
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                with accounting.phase("a"):
                    with profiler.phase("io", io=True):
                        accounting.count("n")
                time.sleep(0.001)
            profiler.snapshot()
            profiler.merged_tree()
            recording = different(before, facts())
            more = {fd: where for fd, where in descriptors().items() if fd not in fds}
            inheritable = [fd for fd in more if os.get_inheritable(fd)]
            profiler.close()
            closed = different(before, facts())
            left = {fd: where for fd, where in descriptors().items() if fds.get(fd) != where}
            loaded = sorted(m for m in set(sys.modules) - modules if "lineprofiler" in m)
            print([imported, recording, closed, env == dict(os.environ), more, inheritable, left, loaded])
            """
        )
    )
    imported, recording, closed, environment, more, inheritable, left, loaded = changed
    assert imported == {}
    if collector:
        # The one thing that can be seen: the kernel adds the time of every child that was waited for, also of the one
        # that starts the collector. Far less than a program of its own would take.
        for each in (recording, closed):
            (utime, stime, faults, switches) = each.pop("children", ([], [0.0, 0.0, 0, 0]))[1]
            assert utime + stime < 0.02
            assert faults < 50
            assert switches < 50
    assert recording == {}
    assert closed == {}
    assert environment, "close() restores the environment"
    # Two a thread at most (the kernel's scheduler statistics, a perf page), and one a process for io=True.
    assert len(more) <= 3, more
    assert all(fd >= 500 for fd in more), f"placed high: {more}"
    assert inheritable == []
    assert left == {}
    assert [m for m in loaded if "line" in m.split(".")[-1] and "_lineprofiler" not in m and m != "lineprofiler"] == []


def test_descriptors_of_threads_end_with_them(stage: Stage) -> None:
    counts = stage.facts(
        """
        import os, threading, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        with profiler.phase("a"):
            pass
        base = len(os.listdir("/proc/self/fd"))
        inside, leave = threading.Barrier(9), threading.Event()

        def works():
            with profiler.phase("t"):
                inside.wait()
                leave.wait()

        counts = []
        for _ in range(3):
            threads = [threading.Thread(target=works) for _ in range(8)]
            for thread in threads:
                thread.start()
            inside.wait()
            counts.append(len(os.listdir("/proc/self/fd")) - base)
            leave.set()
            for thread in threads:
                thread.join()
            leave.clear()
            end = time.monotonic() + 20  # join() returns a little before the kernel's thread is gone
            while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end:
                time.sleep(0.001)
            counts.append(len(os.listdir("/proc/self/fd")) - base)
        profiler.close()
        counts.append(len(os.listdir("/proc/self/fd")) - base)
        print(counts)
        """
    )
    assert all(0 <= n <= 16 for n in counts[0:6:2])
    assert counts[1:6:2] == [0, 0, 0]
    assert counts[6] <= 0


def test_closerange_of_the_program_costs_no_file(stage: Stage) -> None:
    """A daemon closes everything and opens files of its own on the same numbers: those are never touched."""
    stage.python(
        """
        import os, resource
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=0.01)
        with profiler.phase("a", io=True):
            pass
        ours = [int(n) for n in os.listdir("/proc/self/fd") if int(n) > 2]
        os.closerange(3, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 20))
        mine = {}
        for fd in ours:
            file = os.open("mine", os.O_RDWR | os.O_CREAT | os.O_APPEND)
            if file != fd:
                os.dup2(file, fd)
                os.close(file)
            mine[fd] = os.fstat(fd)
        import time
        for number in range(50):
            with profiler.phase("a", io=True):
                time.sleep(0.001)
            with profiler.phase("b"):
                pass
        profiler.close()
        for fd, stat in mine.items():
            now = os.fstat(fd)
            assert (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino)
        assert os.stat("mine").st_size == 0
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls() == {"a": 51, "b": 50}


ENDINGS = {
    "output": "print('x' * 100_000); sys.stderr.write('y\\n')",
    "exit code": "sys.exit(3)",
    "exit text": "sys.exit('a text')",
    "exception": "raise ValueError('z')",
    "exception group of frames": "def f(n):\n    return f(n - 1) if n else 1 / 0\nf(50)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "SIGPIPE": "signal.signal(signal.SIGPIPE, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGPIPE)",
    "abort": "os.abort()",
    "segfault": "ctypes.string_at(0)",
    "os._exit": "os._exit(9)",
    "atexit order": "atexit.register(print, 'one'); atexit.register(print, 'two')",
    "atexit exception": "atexit.register(lambda: 1 / 0)",
    "recursion": "def f():\n    f()\nf()",
    "thread exception": "threading.Thread(target=lambda: 1 / 0).start()",
    "unraisable": "class D:\n    def __del__(self):\n        1 / 0\nD()",
    "excepthook": "sys.excepthook = lambda *a: print('mine', a[0]); raise KeyError",
    "fork": "print(os.waitstatus_to_exitcode(os.waitpid(os.fork() or os._exit(4), 0)[1]))",
    "warnings": "import warnings; warnings.warn('w')",
    "alarm": "signal.signal(14, lambda *a: print('alarm')); signal.setitimer(0, 0.05); time.sleep(0.1)",
}


def without_addresses(done: Done) -> Done:
    return Done(done.returncode, done.stdout, re.sub("0x[0-9a-f]+", "0x", done.stderr))


@pytest.mark.parametrize("what", ENDINGS)
def test_same_output_and_end_as_without(stage: Stage, what: str) -> None:
    program = f"""
import atexit, ctypes, os, signal, sys, threading, time, warnings
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role="r") if sys.argv[1] == "on" else Profiler.disabled()
atexit.register(print, "first registered")
with profiler.phase("a"):
    profiler.count("n")
{ENDINGS[what]}
print("the end")
"""
    stage.script(program, "same.py")
    off, on = (without_addresses(stage.python(program, how, name="same.py")) for how in ("off", "on"))
    assert on == off
    assert len(stage.report().workers) == 1


def test_same_inside_an_open_phase(stage: Stage) -> None:
    """The same with the phase still open: also the traceback's lines."""
    for what in ("exit code", "exception", "SIGTERM", "recursion", "os._exit", "segfault"):
        body = textwrap.indent(ENDINGS[what], "    ")
        program = f"""
import ctypes, os, signal, sys
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role="r") if sys.argv[1] == "on" else Profiler.disabled()
with profiler.phase("a"):
{body}
"""
        stage.script(program, "same.py")
        off, on = (stage.python(program, how, name="same.py") for how in ("off", "on"))
        assert on == off, what


def test_fork_under_warnings_as_errors(stage: Stage) -> None:
    """Python 3.12 and later warn of a fork in a process with more than one thread: there is only one."""
    stage.python(
        """
        import multiprocessing, os
        from lineprofiler.accounting import Profiler

        def work():
            with profiler.phase("w"):
                pass

        profiler = Profiler("run", role="r", snapshot_interval_s=0.01)
        with profiler.phase("a", io=True):
            profiler.snapshot()
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
            assert process.exitcode == 0
        """,
        options=("-W", "error", "-X", "dev"),
    ).expect()
    assert stage.report().calls() == {"a": 1, "w": 1}


def test_unshare_of_a_user_namespace_is_allowed(stage: Stage) -> None:
    """unshare(CLONE_NEWUSER) fails in a process with a second thread: we are none."""
    codes = stage.facts(
        """
        import ctypes, os
        from lineprofiler.accounting import Profiler

        def unshare():
            pid = os.fork()
            if pid == 0:
                libc = ctypes.CDLL(None, use_errno=True)
                os._exit(ctypes.get_errno() if libc.unshare(0x10000000) else 0)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        without = unshare()
        profiler = Profiler("run", role="r")
        with profiler.phase("a"):
            with_us = unshare()
        print([without, with_us])
        """
    )
    assert codes[0] == codes[1]


def test_errno_survives(stage: Stage) -> None:
    """Enter and leave, first visits, counts, io, snapshots, forks: a C library's errno is as it was."""
    kept = stage.facts(
        """
        import ctypes, os, sys, time
        from lineprofiler.accounting import Profiler

        where = ctypes.CDLL(None).__errno_location
        where.restype = ctypes.POINTER(ctypes.c_int)
        errno = where()

        def keeps(what):
            # On 3.10 and later nothing between these two lines calls the system but what is under test.
            errno[0] = 99
            what()
            return errno[0]

        profiler = Profiler("run", role="r", snapshot_interval_s=0.02)
        a = profiler.phase("a")
        io = profiler.phase("io", io=True)
        enter, leave = a.__enter__, a.__exit__
        io_enter, io_leave = io.__enter__, io.__exit__
        kept = {}
        def both(name, enter, leave):
            kept[name + " in"] = keeps(enter)
            kept[name + " out"] = keeps(lambda: leave(None, None, None))
        both("first", enter, leave)
        both("second", enter, leave)
        both("io", io_enter, io_leave)
        kept["count"] = keeps(lambda: profiler.count("n"))
        kept["current"] = keeps(profiler.current_phase)
        kept["snapshot"] = keeps(super(Profiler, profiler)._snapshot)
        time.sleep(0.03)
        both("overdue", enter, leave)
        time.sleep(0.03)
        both("overdue again", enter, leave)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            both("child", enter, leave)
            os.write(write, repr(kept).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        kept |= eval(os.read(read, 10_000))
        os.rename("run", "gone")
        open("run", "w").close()
        kept["failed snapshot"] = keeps(super(Profiler, profiler)._snapshot)
        kept["close"] = keeps(super(Profiler, profiler)._close)
        print(kept)
        """
    )
    assert {name: value for name, value in kept.items() if value != 99} == {}
    assert len(kept) == 17


def test_exception_in_flight_survives(stage: Stage) -> None:
    """Leaving by an exception, of every kind: the same object with the same traceback and context arrives."""
    stage.python(
        """
        import asyncio, sys
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", snapshot_interval_s=0.001)
        for kind in (KeyError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration):
            original = kind("x")
            try:
                try:
                    raise OSError
                except OSError as context:
                    with profiler.phase("a"), profiler.phase("b", io=True):
                        raise original
            except BaseException as error:
                assert error is original
                assert isinstance(error.__context__, OSError)
                assert error.__traceback__.tb_next is None
            assert sys.exc_info() == (None, None, None)
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.phase("r", "a")["errors"] == 5, "GeneratorExit is how a generator ends, no error"


def test_signal_handlers_of_the_program_work(stage: Stage) -> None:
    """FIELD A10: handlers, interval timers, EINTR and set_start_method are the program's alone."""
    stage.python(
        """
        import multiprocessing, os, signal, sys, time
        ran = []
        def mine(number, frame):
            ran.append(number)
        signal.signal(signal.SIGTERM, mine)
        signal.signal(signal.SIGALRM, mine)
        import lineprofiler
        from lineprofiler import accounting
        profiler = accounting.start("run", snapshot_interval_s=0.01)
        assert signal.getsignal(signal.SIGTERM) is mine
        assert multiprocessing.get_start_method(allow_none=True) is None
        with accounting.phase("a"):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            end = time.monotonic() + 0.2
            while time.monotonic() < end or ran.count(signal.SIGALRM) < 3:  # one for all that came off the CPU
                with accounting.phase("b"):
                    time.sleep(0.001)
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert ran[0] == signal.SIGTERM and ran.count(signal.SIGTERM) == 1
        assert ran.count(signal.SIGALRM) > 2
        multiprocessing.set_start_method("spawn")
        """
    ).expect()
    report = stage.report()
    report.healthy()
    assert report.calls()["a"] == 1


def test_phases_inside_a_signal_handler(stage: Stage) -> None:
    """Python's handlers run between two instructions, also inside our `with`: their phases nest and are exact."""
    counts = stage.facts(
        """
        import signal, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r")
        handled = 0

        def handler(number, frame):
            global handled
            with profiler.phase("handler"):
                handled += 1

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
        entries, end = 0, time.monotonic() + 0.3
        while time.monotonic() < end or handled < 11:  # off the CPU many ticks are one signal
            for _ in range(100):
                with profiler.phase("a"):
                    with profiler.phase("b"):
                        entries += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        profiler.close()
        print([entries, handled])
        """
    )
    report = stage.report()
    report.healthy()
    entries, handled = counts
    calls = report.calls()
    assert calls["a"] == calls["a/b"] == entries
    assert sum(n for path, n in calls.items() if path.endswith("handler")) == handled > 10


def test_accounting_imports_little_and_no_line_profiler(stage: Stage) -> None:
    loaded = stage.facts(
        """
        import sys
        before = set(sys.modules)
        from lineprofiler import accounting
        at_import = sorted(set(sys.modules) - before)
        profiler = accounting.start("run")
        with accounting.phase("a"):
            accounting.count("n")
        profiler.merged_tree()
        accounting.stop()
        accounting.report_as_dict(accounting.merge_run("run"))
        print([at_import, sorted(set(sys.modules) - before)])
        """
    )
    at_import, later = loaded
    ours = [m for m in at_import if m.split(".")[0] != "lineprofiler"]
    assert ours == [], "nothing of the standard library that is not loaded already"
    assert not {"threading", "multiprocessing", "subprocess", "line_profiler", "psutil"} & set(later)
    for name in ("profiler", "config", "line", "autoprofile", "magic"):
        assert f"lineprofiler.{name}" not in later


def test_no_sigpipe_sigchld_or_sigxfsz_reaches_the_program(stage: Stage) -> None:
    """Every signal that can be caught is counted while we record, write, fork and hit a file size limit."""
    counted = stage.facts(
        """
        import os, resource, signal, time
        counted = {}
        def count(number, frame):
            counted[number] = counted.get(number, 0) + 1
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(number, count)
            except (OSError, ValueError):
                pass
        from lineprofiler.accounting import Profiler
        for limit in (None, 1 << 20, 4096, 0):
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            profiler = Profiler(f"run{limit}", role="r", snapshot_interval_s=0.01)
            for number in range(300):
                with profiler.phase("a", io=True):
                    profiler.count("n")
                with profiler.phase(f"{number}"):
                    pass
            time.sleep(0.02)
            with profiler.phase("a"):
                pass
            with profiler.phase("a"):
                pass
            profiler.snapshot()
            profiler.close()
        print(counted)
        """,
        options=("-W", "ignore"),
    )
    assert counted == {}


def test_installed_hooks_and_tracers_stay(stage: Stage) -> None:
    stage.python(
        """
        import sys, threading
        trace = lambda *a: trace
        sys.settrace(trace); sys.setprofile(print if False else (lambda *a: None))
        profile = sys.getprofile()
        from lineprofiler.accounting import Profiler
        hook = sys.excepthook = lambda *a: None
        with Profiler("run") as profiler:
            with profiler.phase("a"):
                assert sys.gettrace() is trace and sys.getprofile() is profile
        assert sys.gettrace() is trace and sys.getprofile() is profile and sys.excepthook is hook
        """
    ).expect()
