"""Every call a hundred thousand times and more: no reference is kept, no block of Python's, no memory.

Three measures, each of what the others cannot see: reference counts of all objects that were passed in; the number of
Python's allocated blocks (an object a round is a block a round); the resident size (what C allocated). A first part of
the rounds fills caches and free lists and is not counted.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from lptest import LIMIT_S, environment, memory_given_back, run_python

# Far below a block a round; free lists, a histogram's new octave and the interpreter's own caches are some.
BLOCKS = 50
# Far below a word a round of 10^5; malloc gives back and takes in steps of 128 KB.
RESIDENT = 400 << 10

# statement: rounds. `p` is the profiler, `name` and `amount` are objects of which the count is watched.
CALLS = {
    "with p.phase(name): pass": 300_000,
    "with scope: pass": 300_000,
    "with p.phase(name):\n            with scope: pass": 200_000,
    "p.phase(name)": 300_000,
    "p.phase(name, io=True, sample=0.5, async_work=True)": 100_000,
    "with p.phase(name, sample=0.01): pass": 300_000,
    "with p.phase(name, io=True): pass": 50_000,
    "with p.phase(name, async_work=True): pass": 200_000,
    "decorated(amount)": 200_000,
    "raising(p, name, error)": 100_000,
    "entered = p.phase(name); entered.__enter__(); entered.__exit__(None, None, None)": 100_000,
    "entered = p.phase(name); entered.__enter__(); del entered": 100_000,
    "for _ in generator(p, name): break": 100_000,
    "p.count(name)": 500_000,
    "p.count(name, amount)": 500_000,
    "accounting.count(name, amount)": 300_000,
    "with accounting.phase(name): pass": 300_000,
    "wrong(p.count, name, 1.5)": 100_000,
    "wrong(p.phase, 7)": 100_000,
    "wrong(p.phase, name, sample=2.0)": 50_000,
    "p.current_phase()": 200_000,
    "accounting.current()": 200_000,
    "accounting.installed_profiler()": 300_000,
    "in_a_context.run(enter, p, name)": 100_000,
    "in_a_thread(p, name)": 400,
    "p.merged_tree()": 10_000,
    "p.deltas()": 10_000,
    "p.snapshot()": 200,
    "p.io_counters()": 20_000,
    "accounting.merge_run(directory)": 300,
    "accounting.report_as_dict(accounting.merge_run(directory))": 150,
    "off.count(name, amount)": 300_000,
    "with off.phase(name): pass": 300_000,
    "again(directory)": 200,
}
# Of the line profiler; `line` is a function under it, `lines` the profiler.
LINE_CALLS = {
    "line(amount)": 100_000,
    "list(stepped(amount))": 50_000,
    "next(stepped(amount))": 100_000,
    "next(guarded(amount))": 100_000,
    "raised()": 50_000,
    "with lines: line(amount)": 10_000,
    "lines.runcall(line, amount)": 20_000,
    "with lines.region(name): line(amount)": 50_000,
    "lines.add_function(other)": 3_000,
    "lines.get_stats()": 1_000,
    "lines.profile()": 1_000,
    "lines.region_stats()": 1_000,
    "lines.print_stats(stream=nowhere)": 3_000,
    "line(amount); lines.clear()": 10_000,
}
CALLS |= LINE_CALLS
# For a long look (`make soak`): at least so many of each call that takes microseconds, and of the others so many times
# more as it is more than 100,000.
ROUNDS = int(os.environ.get("LEAK_ROUNDS", "0"))
# A closed Profiler leaves its core behind: a thread may end or fork at any time and look at it (lp_recorder_new).
LEFT = {"again(directory)": 3 << 10}

PROGRAM = """
import contextvars, gc, sys, threading, warnings
from lineprofiler import accounting
from lineprofiler.accounting import Profiler

warnings.simplefilter("ignore")
directory = sys.argv[1]
statement, rounds = {statement!r}, {rounds}
p = Profiler(directory, role="r", install=True, snapshot_interval_s=None, sample_interval_s=None)
off = Profiler.disabled()
name, amount, error = "".join(["a name", " of its own"]), 123456789, ValueError("once")
scope = p.phase("scope")
in_a_context = contextvars.copy_context()

@p.phase("decorated")
def decorated(value):
    return value

def raising(p, name, error):
    try:
        with p.phase(name):
            raise error
    except ValueError as caught:
        caught.__traceback__ = None

def generator(p, name):
    with p.phase(name):
        yield 1
        yield 2

def wrong(call, *args, **named):
    try:
        call(*args, **named)
    except (TypeError, ValueError):
        return
    raise AssertionError("it should have been refused")

def enter(p, name):
    with p.phase(name):
        pass

def in_a_thread(p, name):
    thread = threading.Thread(target=enter, args=(p, name))
    thread.start()
    thread.join()

if {lines!r}:
    import io
    from lineprofiler import LineProfiler
    lines = LineProfiler()

    class Nowhere(io.TextIOBase):
        def write(self, text):
            return len(text)

    nowhere = Nowhere()

    def other(value):
        return value

    @lines
    def line(value):
        found = value
        return found

    @lines
    def stepped(value):
        yield value
        yield value

    @lines
    def guarded(value):
        try:
            yield value
        finally:
            value = None

    @lines
    def raises(value):
        raise value

    def raised():
        try:
            raises(error)
        except ValueError as caught:
            caught.__traceback__ = None

def again(directory):
    with Profiler(directory + "-again", role="again", snapshot_interval_s=None, sample_interval_s=None) as made:
        with made.phase(name):
            made.count(name, amount)

with p.phase("something"):
    p.count("items", 3)
p.snapshot()

def loop(n):
    for _ in range(n):
        {statement}

watched = [name, amount, error, p, off, scope, decorated, directory, in_a_context, accounting.phase, Profiler]

def measure():
    gc.collect()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    return sys.getallocatedblocks(), resident, [sys.getrefcount(each) for each in watched]

loop(max(rounds // 3, 20))
measure()
blocks, resident, counts = measure()
grown = []
for _ in range(5):
    loop(rounds // 5)
    more_blocks, more_resident, more_counts = measure()
    grown.append((more_blocks - blocks, more_resident - resident))
    blocks, resident = more_blocks, more_resident
p.close()
# What is kept is kept in each part; caches fill and an allocator takes and gives back in one or two of them.
kept = [5 * sorted(figures)[2] for figures in zip(*grown)]
print([*kept, [b - a for a, b in zip(counts, more_counts)]])
"""


@pytest.mark.parametrize("statement", CALLS)
def test_nothing_is_kept(tmp_path: Path, statement: str) -> None:
    rounds = CALLS[statement]
    if rounds >= 50_000:
        rounds = max(rounds, ROUNDS)
    else:
        rounds *= max(1, ROUNDS // 100_000)
    code = PROGRAM.format(statement=statement, rounds=rounds, lines=statement in LINE_CALLS)
    env = environment(LINEPROFILER_COLLECTOR="0", **memory_given_back())
    # 1 ms a round is a hundred times what they take.
    # In a folder without settings: each opening of a file leaves some names in the interpreter's cache of methods,
    # which has room for 4,096 and tells them by their address.
    done = run_python(code, tmp_path / "run", cwd=tmp_path, env=env, limit_s=LIMIT_S + rounds / 1000).expect()
    blocks, resident, counts = ast.literal_eval(done.stdout.splitlines()[-1])
    assert counts == [0] * len(counts)
    assert blocks <= BLOCKS
    assert resident <= RESIDENT + LEFT.get(statement, 0) * rounds
