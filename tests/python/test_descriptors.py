"""Descriptors that recorded threads keep: the program has what it needs, however many threads there are."""

from __future__ import annotations

import ast
from pathlib import Path

from lptest import run_python

PROGRAM = """
import os, resource, sys, threading
from lineprofiler.accounting import Profiler

LIMIT = 256
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
profiler = Profiler(sys.argv[1], snapshot_interval_s=None, sample_interval_s=None)
gate, release = threading.Event(), threading.Event()
waiting = threading.Semaphore(0)

def work():
    for _ in range(3):  # each leaves its CPU within a phase, so that its waiting is asked for
        with profiler.phase("wait"):
            gate.wait(0.001)
    waiting.release()
    release.wait()

threads = [threading.Thread(target=work) for _ in range(300)]
for thread in threads:
    thread.start()
for _ in threads:
    waiting.acquire()
files = []
try:
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for fd in files:
    os.close(fd)
release.set()
for thread in threads:
    thread.join()
print((len(files), profiler.merged_tree()[("wait",)].calls))
profiler.close()
"""


def test_many_threads_leave_the_program_its_descriptors(tmp_path: Path) -> None:
    """Three hundred of them, and a limit of 256: ours are a quarter at most, standard streams and an event loop's few
    come besides."""
    files, calls = ast.literal_eval(run_python(PROGRAM, tmp_path / "run").expect().stdout)
    assert files >= 256 * 3 // 4 - 8
    assert calls == 900
