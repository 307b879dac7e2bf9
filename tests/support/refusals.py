"""What a run must come to when system calls fail: programs, and what is demanded of each outcome (injection.py)."""

from __future__ import annotations

from injection import OTHERS, PROGRAM, Outcome

# Records (with fifteen letters more than the segment has at first, so that it grows), forks, writes a snapshot.
BODY = """
words = [a + b for a in {letters!r} for b in {letters!r}]
{settings}
profiler = Profiler(run, role="main", run_id="it", snapshot_interval_s={interval})
for _ in range(3):
    with profiler.phase("a"):
        with profiler.phase("b", io=True):
            keeps(profiler.count, "n", 2)
for word in words:
    scope = profiler.phase(word)
    keeps(scope.__enter__)
    keeps(scope.__exit__, None, None, None)
keeps(super(Profiler, profiler)._snapshot)
if os.fork() == 0:
    for _ in range(2):
        with profiler.phase("w"):
            pass
    os._exit(4)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 4
try:
    os.wait()
except ChildProcessError:
    print("the end", flush=True)
{end}
"""
MANY, FEW = "abcdefghijklmno", "z"
EXPECTED = {"a": 3, "a/b": 3, "w": 2}

ALONE = "os.environ['LINEPROFILER_COLLECTOR'] = '0'"
CLOSES = "profiler.close()\nos._exit(3)"
# Without a collector the program writes its snapshots itself, here on each way out of a phase.
BODIES = {
    "alone, closes": BODY.format(settings=ALONE, letters=FEW, interval="1e-9", end=CLOSES),
    "alone, ends": BODY.format(settings=ALONE, letters=FEW, interval="30", end="sys.exit(3)"),
    "beside a collector, closes": BODY.format(settings="", letters=MANY, interval="30", end=CLOSES),
    "beside a collector, is killed": BODY.format(
        settings="", letters=FEW, interval="30", end="os.kill(os.getpid(), 9)"
    ),
}


# Every pair of a program and of whose calls fail; True: with all that follow.
PARTS = [
    *((PROGRAM, body, False) for body in BODIES),
    *((OTHERS, body, False) for body in BODIES if "beside" in body),
    (PROGRAM, "alone, closes", True),
    (OTHERS, "beside a collector, closes", True),
]


def exit_code(body: str) -> int:
    return -9 if "killed" in body else 3


def few(outcome: Outcome) -> dict[str, int]:
    return {path: n for path, n in outcome.report.calls().items() if path in EXPECTED}


def is_complete(outcome: Outcome) -> bool:
    calls = outcome.report.calls()
    others = {path: n for path, n in calls.items() if path not in EXPECTED}
    counters = outcome.report.counters()
    return (
        few(outcome) == EXPECTED
        and len(others) in (len(FEW) ** 2, len(MANY) ** 2)
        and set(others.values()) == {1}
        and counters == {"a/b:n": 6}
    )


def explanation(outcome: Outcome) -> str:
    """Why something may be missing, by the report or by the program's warning."""
    if "RuntimeWarning: " in outcome.err:
        return outcome.err
    caveats = outcome.report.caveats
    named = [k for k in ("failed_writes", "private_memory", "unreadable", "io_missing") if caveats[k]]
    health = [k for k, v in caveats["health"].items() if v not in (0, "")]
    return ", ".join(named + health)


def problems_of(each: Outcome, code: int) -> str:
    """What is wrong with it, "" nothing. `code`: the program's."""
    problems = []
    if (each.code, each.out) != (code, "the end\n"):
        problems.append(f"the program: exit {each.code}, {each.out!r}")
    if [line for line in each.err.splitlines() if line and "RuntimeWarning" not in line and line[0] != " "]:
        problems.append(f"stderr: {each.err}")
    if not is_complete(each) and not explanation(each):
        problems.append(f"lost without a word: {few(each), each.report.counters()}")
    if each.failed == 0 and (not is_complete(each) or explanation(each)):
        problems.append(f"nothing failed, but: {explanation(each)}")
    if each.left:
        problems.append(f"left: {each.left}")
    if each.temporary:
        problems.append(f"left: {each.temporary}")
    return f"{each.what}: {'; '.join(problems)}" if problems else ""
