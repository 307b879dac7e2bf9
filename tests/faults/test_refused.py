"""Old kernels and containers: system calls that are refused, one by one and all together.

Each has a rung below it. What is measured stays exact, and what is different is in the report: see "Old kernels and
containers" in docs/reliability.md. tests/support/refuser.c refuses them, from the start of the interpreter on.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from injection import compiled
from lpstage import Report, Stage, descriptors, has_pidfd, wait_for
from lptest import ROOT, tells_how
from phases import Bounds, PhaseStats, Truth, agrees, measured

CALLS = [
    "rseq", "perf_event_open", "pidfd_open", "clone3", "close_range", "openat2", "statx", "membarrier", "inotify_init1",
    "populate", "exit-info",
]  # fmt: skip
# Where libc itself cannot do without: it goes on by another call only if this one is not there at all (ENOSYS).
LIBCS = {"clone3"}
TRIES = 5

PROGRAM = """
    import json, os, signal, sys, time
    sys.path.insert(0, sys.argv[1])
    from phases import MS, measure, spin
    from lineprofiler import accounting

    kept = os.open("marker", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(kept, True)
    profiler = accounting.Profiler("run", role="main", run_id="it", install=True, snapshot_interval_s=3600)
    found = {"spin": [], "sleep": []}
    for _ in range(int(sys.argv[2])):
        for name, load in ("spin", lambda: spin(10 * MS)), ("sleep", lambda: time.sleep(0.01)):
            stats, bounds = measure(profiler, load)
            found[name].append([stats.to_dict(), vars(bounds.inside), vars(bounds.outside)])
    for word in [a + b for a in "abcdefghijklmno" for b in "abcdefghijklmno"]:
        with accounting.phase(word, io=True):  # more paths than a segment has room for at first
            accounting.count("n", 2)
    gone = os.fork()
    if gone == 0:
        with accounting.phase("w"):
            accounting.count("n")
        with accounting.phase("w"):
            print("in", os.getpid(), flush=True)
            time.sleep(600)
    sys.stdin.readline()
    os.kill(gone, signal.SIGKILL)
    os.waitpid(gone, 0)
    print("waited", flush=True)
    sys.stdin.readline()
    profiler.close()
    print(json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def refuser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("refuser"), "refuser.c")


def run_refused(stage: Stage, refuser: Path, names: list[str], error: int) -> tuple[Report, int, dict[str, list]]:
    """The report, the pid of a child that was killed and waited for, and what the program's loads measured."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(stage.folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    before = (str(refuser), str(error), ",".join(names)) if names else ()
    process = stage.start(PROGRAM, ROOT / "tests" / "support", TRIES, before=before)
    assert process.stdin is not None
    assert process.stdout is not None
    word, child = process.stdout.readline().split()
    assert word == "in"
    wait_for(stage.collectors, "a collector begins")
    (collector,) = stage.collectors()
    # It has opened the child's segment, and what would tell of its death. Nothing of the program's is open in it.
    wait_for(lambda: any(f"/{child}_" in path for path in descriptors(collector)), "the child is seen")
    assert not [path for path in descriptors(collector) if path.endswith("/marker")]
    hears = "pidfd_open" not in names
    if hears:
        wait_for(lambda: has_pidfd(collector, int(child)), "a pidfd of the child")
    # While it dies and is waited for, the collector stands still, so that it cannot be told by the zombie.
    os.kill(collector, signal.SIGSTOP)
    try:
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "waited\n"
    finally:
        os.kill(collector, signal.SIGCONT)
    wait_for(lambda: list(stage.run.glob(f"workers/*/w_it_{child}_*.snap")), "the death is noticed")
    wait_for(lambda: list(stage.shm.glob("lineprofiler-*/*/.source")), "git has answered")
    process.stdin.write("\n")
    process.stdin.flush()
    loads = json.loads(process.stdout.readline())
    assert process.wait() == 0
    return stage.report(), int(child), loads


def check_load(tries: list[list], sleeps: bool) -> None:
    left = iter(tries)

    def attempt() -> None:
        plain, inside, outside = next(left)
        stats = PhaseStats.from_dict(plain)
        agrees(stats, Bounds(Truth(**inside), Truth(**outside)))
        if sleeps:
            assert stats.blocked_ns >= 0.9 * stats.wall_ns - stats.starved_ns

    measured(attempt, len(tries))


def check(stage: Stage, refuser: Path, names: list[str], error: int) -> None:
    report, child, loads = run_refused(stage, refuser, names, error)
    # Exact, and nothing of it lost.
    report.healthy()
    words = [a + b for a in "abcdefghijklmno" for b in "abcdefghijklmno"]
    assert report.calls() == {"load": 4 * TRIES, "w": 1, **dict.fromkeys(words, 1)}
    assert report.counters() == {"w:n": 1, **{f"{word}:n": 2 for word in words}}
    assert report.caveats["private_memory"] == []
    check_load(loads["spin"], False)
    check_load(loads["sleep"], True)
    assert stage.segments() == []
    assert report.document["run"]["source"]["dirty_files"] == 0
    # What is different is named.
    main = next(w for w in report.workers if w["role"] == "main" and w["pid"] != child)
    assert {each["cpu_time"] for each in report.caveats["measured_by"]} == {w["cpu_source"] for w in report.workers}
    if "rseq" in names:
        assert main["cpu_source"] in ("perf page", "system call")
        if "perf_event_open" in names:
            assert main["cpu_source"] == "system call"
    assert main["cpu_source"] in ("rseq", "perf page", "system call")
    text = stage.command("report", "run").expect().stdout
    assert main["cpu_source"] in text
    killed = report.worker(child)
    tells = tells_how() and not {"pidfd_open", "exit-info"} & set(names)
    assert killed["exit_code"] == (-signal.SIGKILL if tells else None)


@pytest.mark.one_version
@pytest.mark.parametrize("name", ["nothing", *CALLS])
def test_a_call_that_the_kernel_does_not_have(stage: Stage, refuser: Path, name: str) -> None:
    check(stage, refuser, [] if name == "nothing" else [name], errno.ENOSYS)


@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
def test_all_of_them(stage: Stage, refuser: Path, error: str) -> None:
    names = CALLS if error == "ENOSYS" else [name for name in CALLS if name not in LIBCS]
    check(stage, refuser, names, getattr(errno, error))
