"""What runs in the middle of a step in our name: it may take the profiler away, and a signal may come in it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from lptest import environment, run_python

GOING = """
    import gc, os, sys, threading, time
    from types import ModuleType
    from lineprofiler import accounting

    def begin(**options):
        return accounting.start(sys.argv[1], sample_interval_s=None, **options)

    def go():
        global profiler
        accounting.uninstall_profiler()
        profiler.close()
        profiler = None
"""


def going(program: str, run_dir: Path, **env: str) -> None:
    run_python(textwrap.dedent(GOING) + textwrap.dedent(program), run_dir, env=environment(**env)).expect()


@pytest.mark.parametrize("step", ["count('n')", "count(str(time.time()))", "count('n', 2**40)", "current()"])
def test_profiler_goes_while_a_step_writes_a_snapshot(run_dir: Path, step: str) -> None:
    """The module functions hold no reference to what is installed, and a snapshot on their way may run Python."""
    program = f"""
    class Thread(threading.Thread):
        def __getattribute__(self, name):
            if name == "name" and armed and threading.current_thread() is self:
                armed.clear()
                go()
            return super().__getattribute__(name)

    def run():
        deadline = time.monotonic() + 60
        with accounting.phase("first"):
            accounting.count("n")
        armed.append(1)
        while armed and time.monotonic() < deadline:
            with accounting.phase("a"):
                time.sleep(0.001)
            accounting.{step}
        assert not armed
        done.append(1)

    armed, done = [], []
    profiler = begin(snapshot_interval_s=0.01, thread_names=True)
    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert done
    """
    going(program, run_dir, LINEPROFILER_COLLECTOR="0", PYTHONMALLOC="debug")


def test_profiler_goes_in_the_collection_that_a_phase_lets_run(run_dir: Path) -> None:
    """Before Python 3.12 a collection runs in an allocation, and a phase object is one."""
    program = """
    class Owner:
        def __del__(self):
            go()

    other = accounting.Profiler(sys.argv[1] + "-other", snapshot_interval_s=None, sample_interval_s=None)
    held = [other.phase("held") for _ in range(200)]  # no phase object is left over that could be taken again
    profiler = begin(snapshot_interval_s=None)
    phase = accounting.phase
    gc.collect()
    gc.disable()
    owner = Owner()
    owner.itself = owner
    del owner
    gc.set_threshold(gc.get_count()[0] + 1)
    gc.enable()
    made = phase("a")
    gc.disable()
    with made:
        pass
    gc.collect()
    assert profiler is None
    """
    going(program, run_dir, PYTHONMALLOC="debug")


def test_profiler_goes_while_torch_is_asked(run_dir: Path) -> None:
    """What torch answers must not be stored into a segment that is no longer there."""
    program = """
    def stats():
        go()
        return {"allocated_bytes": {"all": {"current": 5}}, "reserved_bytes": {"all": {"current": 6}}}

    torch = ModuleType("torch")
    torch.cuda = ModuleType("torch.cuda")
    torch.cuda.memory_stats_as_nested_dict = stats
    sys.modules["torch"] = torch
    profiler = accounting.start(sys.argv[1], snapshot_interval_s=None, sample_interval_s=0.05)
    deadline = time.monotonic() + 60
    while profiler is not None and time.monotonic() < deadline:
        with accounting.phase("a"):
            time.sleep(0.005)
    assert profiler is None
    """
    going(program, run_dir, LINEPROFILER_COLLECTOR="0")


@pytest.mark.parametrize("where", ["names of threads", "a warning"])
def test_ctrl_c_in_the_middle_of_a_step(run_dir: Path, where: str) -> None:
    """What of Python runs on our behalf is where the signal's handler may run: that is no reason to swallow it."""
    program = """
    import signal, warnings

    class Thread(threading.Thread):
        def __getattribute__(self, name):
            if name == "name" and armed:
                interrupt()
            return super().__getattribute__(name)

    def interrupt(*_):
        armed.clear()
        signal.raise_signal(signal.SIGINT)

    armed = []
    profiler = begin(snapshot_interval_s=None, thread_names=True)
    ended = threading.Event()
    thread = Thread(target=ended.wait)
    thread.start()
    warnings.simplefilter("always")
    warnings.showwarning = interrupt
    armed.append(1)
    try:
        if sys.argv[2] == "a warning":
            for number in range(200):
                with accounting.phase(f"step {number}"):
                    pass
        else:
            profiler.snapshot()
            for _ in range(100):
                pass
    except KeyboardInterrupt:
        assert not armed
    else:
        raise AssertionError("nobody heard of it")
    finally:
        ended.set()
        thread.join()
    assert profiler.snapshot() is None
    profiler.close()
    """
    source = textwrap.dedent(GOING) + textwrap.dedent(program)
    run_python(source, run_dir, where).expect()
