"""Runs recorded programs while system calls fail on demand: hundreds of experiments, each in a folder of its own.

tests/support/injector.c lets the calls fail. The program of an experiment is a forked child of one Python process, so
that an experiment costs milliseconds; it ends as any program does: by its own end, by a signal, by `os._exit`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lpstage import Report, Stage
from lptest import LIMIT_S, ROOT, run_process

FAMILIES = [
    "", "open", "read", "write", "fsync", "rename", "mmap", "ftruncate", "fallocate", "madvise", "mkdir", "flock",
    "events", "start",
]  # fmt: skip
PROGRAM, OTHERS = 0, 1
Plan = tuple[int, int, int, int, int, int]  # trial, target, family, errno, n, sticky
ERRORS = ["ENOSPC", "EDQUOT", "EROFS", "EIO", "EINTR", "EMFILE", "ENOMEM"]

# Runs each experiment of the plan in a forked child, one after the other.
DRIVER = """
import ctypes, errno, json, os, signal, sys, time
import lineprofiler.accounting._settings, lineprofiler.accounting._plain
from lineprofiler.accounting import Profiler

libc = ctypes.CDLL(None)
where = libc.__errno_location
where.restype = ctypes.POINTER(ctypes.c_int)
number = where()

def keeps(what, *arguments):
    # Does errno survive?
    number[0] = 99
    result = what(*arguments)
    assert number[0] == 99, (what, number[0])
    return result

root = sys.argv[1]
codes = {}
if sys.argv[2] == "warm":
    # What a process does once (calibrating clocks, measuring its own cost) is done: the children begin faster.
    os.environ["LINEPROFILER_COLLECTOR"] = "0"
    with Profiler(root + "/warm") as profiler, profiler.phase("a"):
        profiler.count("n")
    del os.environ["LINEPROFILER_COLLECTOR"]
for trial, target, family, error, nth, sticky in json.load(open(root + "/plan")):
    pid = os.fork()
    if pid == 0:
        break
    codes[trial] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
else:
    with open(root + "/codes", "w") as file:
        json.dump(codes, file)
    sys.exit(0)

for fd, name in (1, "out"), (2, "err"):
    os.dup2(os.open(f"{root}/{name}-{trial}", os.O_WRONLY | os.O_CREAT), fd)
os.environ["LINEPROFILER_SHM_DIR"] = f"{root}/trial-{trial}/shm"
run = f"{root}/trial-{trial}/run"
libc.syscall(0x6c70, 256 * trial, target, family, error, nth, sticky)
"""


def errors_of(family: str, sticky: bool) -> list[int]:
    """What that call can really answer with; a signal that interrupts each call for ever is none of it."""
    more = {
        "open": ["EACCES", "ENFILE"],
        "madvise": ["EFAULT"],
        "flock": ["ENOLCK", "EWOULDBLOCK"],
        "start": ["EAGAIN"],
        "events": ["ENFILE"],
    }
    less = {"start": ["EAGAIN", "ENOMEM"], "events": ["EMFILE", "ENOMEM"]}
    names = less.get(family, ERRORS + more.get(family, []))
    return [getattr(errno, name) for name in names if not (sticky and name == "EINTR")]


READER = """
import json, os, sys
from lineprofiler.accounting import write_report

root = sys.argv[1]
for trial, *_ in json.load(open(root + "/plan")):
    os.environ["LINEPROFILER_SHM_DIR"] = f"{root}/trial-{trial}/shm"
    write_report(f"{root}/trial-{trial}/run", f"{root}/json-{trial}", "json")
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one experiment."""

    what: str  # family, errno, n, "on" if all later ones failed, too; process and path of the first that did
    calls: int  # of the family, by the target
    failed: int
    code: int  # negative: signal
    out: str
    err: str
    report: Report
    left: list[Path]  # files in shared memory after the report
    temporary: list[Path]  # and half-written ones in the run directory


def compiled(folder: Path, source: str, *options: str) -> Path:
    """A C program or library of tests/support, compiled into `folder`."""
    made = folder / Path(source).stem
    compiler = os.environ.get("CC", "cc")
    path = ROOT / "tests" / "support" / source
    subprocess.run([compiler, "-std=c17", "-O1", "-Wall", "-o", made, path, *options], check=True)
    return made


def preloaded(library: Path) -> str:
    """LD_PRELOAD with a library after those that are there: a sanitizer's must come first."""
    return " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(library)]))


def experiments(
    stage: Stage, injector: Path, body: str, target: int, *, sticky: bool = False, warm: bool = True
) -> list[Outcome]:
    """As `batches`, all of them."""
    return [each for batch in batches(stage, injector, body, target, sticky=sticky, warm=warm) for each in batch]


def batches(
    stage: Stage,
    injector: Path,
    body: str,
    target: int,
    *,
    sticky: bool = False,
    warm: bool = True,
    every: bool = False,
    most: int = 400,
) -> Iterator[list[Outcome]]:
    """For each family: runs `body` with the first, second, ... call failing, until in one run none fails any more.

    The first call fails by each errno, the later ones by one errno after the other; with `every` each of them by each
    errno, as far as the call of number `most`.
    """
    first = 1
    families = FAMILIES[1:]
    while families and first <= most:
        plan: list[Plan] = []
        numbers = range(first, min(first + (6 if first == 1 or every else 30), most + 1))
        for family in families:
            errors = errors_of(family, sticky)
            for nth in numbers:
                for error in errors if every or (nth == 1 and not sticky) else [errors[nth % len(errors)]]:
                    plan.append((len(plan) + 1, target, FAMILIES.index(family), error, nth, int(sticky)))
        batch = run_batch(stage, injector, body, plan, warm)
        yield batch
        untouched = {FAMILIES[plan[i][2]] for i, each in enumerate(batch) if each.failed == 0}
        families = [family for family in families if family not in untouched]
        first = numbers.stop
    assert not families or most < 400, f"{families}: no end"


def run_batch(stage: Stage, injector: Path, body: str, plan: list[Plan], warm: bool) -> list[Outcome]:
    root = stage.shm  # in memory: nothing of this is about the speed of a disk
    for trial, *_ in plan:
        (root / f"trial-{trial}" / "shm").mkdir(parents=True)
    (root / "plan").write_text(json.dumps(plan))
    (root / "codes").unlink(missing_ok=True)
    script = stage.script(DRIVER + textwrap.dedent(body), "driver.py")
    command = [injector, root / "results", sys.executable, "-W", "always", script, root, "warm" if warm else "cold"]
    # It ends when the last process of all experiments has ended: one that hangs is a failure here. Each takes 0.05 to
    # 0.1 s on an idle machine, and is given ten times that.
    limit_s = LIMIT_S + len(plan)
    run_process([str(each) for each in command], cwd=root, env=stage.environment(), limit_s=limit_s).expect()
    assert stage.collectors() == []
    stage.python(READER, root, name="reader.py").expect()
    codes = json.loads((root / "codes").read_text())
    results = {}
    for line in (root / "results").read_text().splitlines():
        trial, calls, failed, *where = line.split(" ", 3)
        results[int(trial)] = int(calls), int(failed), where[0] if where else ""
    found = []
    for trial, _, family, error, nth, sticky in plan:
        document = json.loads((root / f"json-{trial}").read_text())
        shm = root / f"trial-{trial}" / "shm"
        calls, failed, where = results[trial]
        found.append(
            Outcome(
                f"{FAMILIES[family]} {errno.errorcode[error]} {nth}{' and on' if sticky else ''} ({where})",
                calls,
                failed,
                codes[str(trial)],
                (root / f"out-{trial}").read_text(),
                (root / f"err-{trial}").read_text(),
                Report(document),
                sorted(p for p in shm.glob("**/*") if p.is_file()),
                sorted((root / f"trial-{trial}").glob("**/*.tmp")),
            )
        )
    for path in root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return found
