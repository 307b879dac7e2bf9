"""What the program does while the line engine runs Python of its own: signals' handlers that raise, engines that are
stopped or dropped, threads that come meanwhile."""

from __future__ import annotations

import sys
import threading

from linehits import hits
from lineprograms import program
from lptest import environment, run_python

from lineprofiler import LineProfiler
from lineprofiler._lineprofiler import LineEngine

# The handler raises where the process measures what an event costs, and nowhere else.
IN_CALIBRATION = """
import signal
class Alarm(Exception):
    pass
def handler(number, frame):
    if frame is not None and frame.f_code.co_filename == "<lineprofiler own cost>":
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Alarm
signal.signal(signal.SIGALRM, handler)
def f():
    return 1
def alarm():
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
"""


# Ctrl-C when an engine asks about f for the first time.
IN_SELECT = """
import os, signal
from lineprofiler._lineprofiler import LineEngine
asked = []
def select(code):
    if code.co_name != "f":
        return False
    asked.append(code.co_name)
    if len(asked) == 1:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10):  # a handler runs where a loop goes round, at the latest
            pass
    return True
engine = LineEngine(select=select)
"""


def test_an_exception_in_the_calibration_is_the_programs() -> None:
    done = run_python(
        IN_CALIBRATION
        + """
from lineprofiler._lineprofiler import LineEngine
engine = LineEngine()
alarm()
try:
    engine.mark(f.__code__)  # where instructions have prices it calibrates
    engine.start()
except Alarm:
    print("raised", engine.count, engine.active, engine.trouble, engine.own_cost)
engine.mark(f.__code__)
engine.start()
f()
engine.stop()
print([row[2] for row in engine.lines()], engine.trouble, engine.own_cost["line"] > 0)
"""
    ).expect()
    assert done.stdout.splitlines() == ["raised 0 False [] {}", "[1] [] True"]


def test_a_profiler_that_was_interrupted_is_off() -> None:
    done = run_python(
        IN_CALIBRATION
        + """
from lineprofiler import LineProfiler
profiler = LineProfiler()
alarm()
try:
    with profiler:
        print("not here")
except Alarm:
    print("raised", profiler.enable_count)
with profiler:
    f()
print(profiler.enable_count, [s.calls for k, s in profiler.get_stats().items() if k.function_name == "f"])
"""
    ).expect()
    assert done.stdout.splitlines() == ["raised 0", "0 [1]"]


def test_ctrl_c_in_select_is_the_programs() -> None:
    done = run_python(
        IN_SELECT
        + """
def f():
    return 1
engine.start()
try:
    f()
    print("not here")
except KeyboardInterrupt:
    print("raised", engine.active)
f()  # is asked for again, and measured
f()
engine.stop()
print(len(asked), [row[2] for row in engine.lines()], engine.trouble)
"""
    ).expect()
    assert done.stdout.splitlines() == ["raised True", "2 [2] []"]


def test_ctrl_c_in_select_at_the_start() -> None:
    done = run_python(
        IN_SELECT
        + """
def f():
    try:
        engine.start()
        print("not here")
    except KeyboardInterrupt:
        print("raised", engine.count, engine.active)
    engine.start()
    x = 1
    engine.stop()
f()
print([row[2] for row in engine.lines() if row[2]], engine.trouble)
"""
    ).expect()
    assert done.stdout.splitlines() == ["raised 0 False", "[1, 1] []"]


def test_an_engine_may_be_dropped_by_its_select() -> None:
    done = run_python(
        """
from lineprofiler._lineprofiler import LineEngine
holder = []
def select(code):
    if code.co_name == "f" and holder:
        engine = holder.pop()
        engine.stop()
    return code.co_name == "f"
def f():
    return 1
for _ in range(3):
    holder.append(LineEngine(select=select))
    holder[0].start()
    print(f(), f())
""",
        env=environment(PYTHONMALLOC="debug"),
    ).expect()
    assert done.stdout.splitlines() == ["1 1"] * 3


def test_threads_that_switch_it_on_at_once_are_all_measured() -> None:
    space = program("""
        def f():
            return 1
    """)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        profiler = LineProfiler(space["f"])
        together = threading.Barrier(4)

        def once() -> None:
            together.wait()
            with profiler:
                space["f"]()

        threads = [threading.Thread(target=once) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert hits(profiler, space["f"]) == {1: 4}
    assert profiler.enable_count == 0


def test_engines_of_two_threads_wait_for_one_calibration() -> None:
    done = run_python("""
import sys, threading
from lineprofiler._lineprofiler import LineEngine
sys.setswitchinterval(1e-5)
together, found = threading.Barrier(3), []
def once():
    engine = LineEngine()
    together.wait()
    engine.start()
    found.append((engine.trouble, engine.own_cost.get("line", 0) > 0))
    engine.stop()
threads = [threading.Thread(target=once) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(found)
""").expect()
    assert done.stdout.strip() == str([([], True)] * 3)


def test_a_child_that_is_forked_while_another_thread_calibrates() -> None:
    """Its copy of that thread is gone: it calibrates itself, at once."""
    done = run_python("""
import os, signal, threading, warnings
from lineprofiler._lineprofiler import LineEngine
warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
def start(who):
    engine = LineEngine()
    engine.start()
    print(who, engine.trouble, engine.own_cost.get("line", 0) > 0, flush=True)
def fork():
    pid = os.fork()
    if pid == 0:
        start("child")
        os._exit(0)
    os.waitpid(pid, 0)
def handler(number, frame):
    if frame is not None and frame.f_code.co_filename == "<lineprofiler own cost>":
        signal.setitimer(signal.ITIMER_REAL, 0)
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
start("parent")
""").expect()
    assert done.stdout.splitlines() == ["child [] True", "parent [] True"]


def test_a_name_of_a_thread_is_cut_between_characters() -> None:
    space = program("""
        def f():
            return 1
    """)
    engine = LineEngine()
    engine.mark(space["f"].__code__)
    engine.start()
    thread = threading.Thread(target=space["f"], name="a" + "é" * 100)
    thread.start()
    thread.join()
    engine.stop()
    [name] = [name for _, name in engine.threads() if name.startswith("a")]
    assert name == "a" + "é" * 63  # 128 bytes at most
