"""Shared memory, disks and limits that refuse, with a collector beside: the program goes on, and the report tells.

Without one, each process for itself: tests/processes/test_bad_input.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from lpstage import Report, Stage, private_mounts, wait_for

# Two workers of which one is killed, and its own phases. It ends with 3.
FAMILY = """
import os, sys, time
from lineprofiler.accounting import Profiler

profiler = Profiler(sys.argv[1] if len(sys.argv) > 1 else "run", role="r", run_id="it")
for _ in range(1000):
    with profiler.phase("a"):
        profiler.count("n", 2)
for number in range(2):
    if os.fork() == 0:
        for _ in range(10):
            with profiler.phase("w"):
                pass
        if number:
            os.kill(os.getpid(), 9)
        profiler.close()
        os._exit(0)
codes = sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2))
profiler.close()
print(codes)
sys.exit(3)
"""
# Nobody else's user, as far as this machine knows.
NOBODY = 65534


def document(stage: Stage, name: str) -> Report:
    return Report(json.loads((stage.folder / name).read_text()))


# ---- shared memory -----------------------------------------------------------------------------------------------


PLACES = {
    "missing": """
        mkdir dev && touch dev/null dev/urandom && mount --bind /dev/null dev/null &&
        mount --bind /dev/urandom dev/urandom && mount --rbind dev /dev
    """,
    "read-only": "mount -t tmpfs -o ro tmpfs /dev/shm",
    "24 KB": "mount -t tmpfs -o size=24k tmpfs /dev/shm",
    "64 KB": "mount -t tmpfs -o size=64k tmpfs /dev/shm",
    "full": "mount -t tmpfs -o size=1m tmpfs /dev/shm && dd if=/dev/zero of=/dev/shm/fill bs=64k 2> dd.txt; true",
    "out of files": "mount -t tmpfs -o nr_inodes=2 tmpfs /dev/shm",
}


@pytest.mark.parametrize("what", PLACES)
def test_shared_memory_refuses(stage: Stage, what: str) -> None:
    """All of it or some: private memory then, and the figures are those of the last snapshot. The first one is written
    at once, so that a worker that is killed is in the report, marked as one that nobody could read."""
    stage.script(FAMILY, "family.py")
    done = private_mounts(
        stage,
        f"""
        unset LINEPROFILER_SHM_DIR XDG_RUNTIME_DIR
        {PLACES[what]}
        $PY family.py; test $? = 3 || exit 9
        $LP report run --json > report.json || exit 8
        $LP report run > report.txt
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[-9, 0]\n", "")
    report = document(stage, "report.json")
    assert report.counters() == {"a:n": 2000}
    private = len(report.caveats["private_memory"])
    assert private in {"64 KB": (0,), "24 KB": (1, 2)}.get(what, (3,)), "a small segment takes 12 KB"
    killed = [w for w in report.workers if w["state"] != "closed"]
    assert len(killed) == 1
    if killed[0]["segment_place"] == "private memory":
        # It has written that it began, and nothing of the ten that came then.
        assert killed[0]["state"] == "last_seen"
        assert report.calls() == {"a": 1000, "w": 10}
    else:
        assert report.calls() == {"a": 1000, "w": 20}
    text = (stage.folder / "report.txt").read_text()
    said = f"{private} of 3 worker(s) had no shared memory and recorded into private memory"
    assert (said in " ".join(text.split())) == (private > 0)


def test_64_workers_share_64_mb(stage: Stage) -> None:
    """Each wants some 1.5 MB. None is killed by a SIGBUS, and what was not recorded is counted."""
    stage.script(
        """
        import os, sys
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", run_id="it")
        words = [a + b for a in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ" for b in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"]
        read, write = os.pipe()
        children = []
        for number in range(64):
            pid = os.fork()
            if pid == 0:
                for word in words:
                    with profiler.phase(word):
                        with profiler.phase("below"):
                            pass
                os.write(write, b"x")
                os.kill(os.getpid(), 19)  # waits, so that all are full at once
                os._exit(0)
            children.append(pid)
        for _ in range(64):
            os.read(read, 1)
        for pid in children:
            os.waitpid(pid, os.WUNTRACED)
        for pid in children:
            os.kill(pid, 18)
        codes = {os.waitpid(pid, 0)[1] for pid in children}
        profiler.close()
        print(codes)
        """,
        "many.py",
    )
    done = private_mounts(
        stage,
        """
        mkdir shm && mount -t tmpfs -o size=64m tmpfs shm && export LINEPROFILER_SHM_DIR=$PWD/shm
        $PY -W ignore many.py || exit 9
        $LP report run --json > report.json || exit 8
        for i in $(seq 500); do ls -A shm/*/* > /dev/null 2>&1 || break; sleep 0.02; done  # a collector lingers
        ls -A shm/*/* 2> /dev/null
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "{0}\n", ""), "nothing is left: ls finds no file"
    report = document(stage, "report.json")
    # Some found no room for even the smallest segment: they say so, and what they recorded ended with them.
    private = len(report.caveats["private_memory"])
    assert private < 32
    assert report.states().count("last_seen") == private
    entered = (64 - private) * 36 * 36 * 2
    calls = report.calls()
    health = report.caveats["health"]
    assert entered / 4 < sum(calls.values()) < entered, "it was too small"
    assert sum(calls.values()) + health["lost_entries"] == entered
    assert len(report.workers) == 65


@pytest.mark.parametrize("size", [0, 1, 4000, 4096, 5000, 20_000, 65_536])
def test_segment_cut_under_a_reader(stage: Stage, size: int) -> None:
    """Its process is dead and somebody shortens the file: the reader names it, and what is whole is shown."""
    stage.collector = False
    stage.python(
        "from lineprofiler.accounting import Profiler\nwith Profiler('run', role='o', run_id='it') as p:\n"
        "  with p.phase('b'): pass"
    ).expect()
    stage.python(
        "import os\nfrom lineprofiler.accounting import Profiler\np = Profiler('run', role='r', run_id='it')\n"
        "for i in range(9):\n  with p.phase('a'): pass\nos.kill(os.getpid(), 9)"
    ).expect(-signal.SIGKILL)
    (segment,) = [p for p in stage.segments() if p.is_file()]
    os.truncate(segment, size)
    report = stage.report()
    assert report.calls("o") == {"b": 1}
    lost = [e for e in report.caveats["unreadable"] if Path(e).name == segment.name]
    if report.calls() == {"a": 9, "b": 1}:
        assert size >= 20_000, "all that was written lies there"
    elif size >= 4000:  # the struct at its start is whole, and says whose it is
        assert len(lost) == 1
        assert "worker file(s) unreadable" in stage.command("report", "run").expect().stdout
    else:
        assert lost == [], "without it nothing says whose it was"


def test_segment_is_cut_while_it_is_read(stage: Stage) -> None:
    """By whoever, at any moment: no reader ends by a signal."""
    stage.collector = False
    program = stage.start(
        "import os\nfrom lineprofiler.accounting import Profiler\np = Profiler('run', role='r', run_id='it')\n"
        "for a in 'abcdefghijklmnopqrst':\n  for b in 'abcdefghijklmnopqrst':\n    with p.phase(a + b): pass\n"
        "os.kill(os.getpid(), 9)"
    )
    program.wait(60)
    (segment,) = [p for p in stage.segments() if p.is_file()]
    whole = segment.read_bytes().rstrip(b"\0")
    stage.script(
        "import os, sys\nfrom lineprofiler.accounting import merge_run\n"
        "for i in range(200):\n  run = merge_run('run')\nprint(len(run.workers))",
        "reads.py",
    )
    reader = subprocess.Popen(
        [sys.executable, stage.folder / "reads.py"], cwd=stage.folder, env=stage.environment(), stdout=subprocess.PIPE
    )
    cuts = 0
    while reader.poll() is None:
        for size in (0, 100, 4096, 30_000, len(whole)):
            if not segment.exists():
                segment.write_bytes(whole)  # it was adopted in a moment when it was whole
            os.truncate(segment, size)
            with segment.open("r+b") as file:
                file.write(whole)
            cuts += 1
    assert reader.returncode == 0
    assert reader.stdout is not None
    reader.stdout.close()
    assert cuts > 5


# ---- the run directory -------------------------------------------------------------------------------------------


def test_run_directory_of_64_kb(stage: Stage) -> None:
    """Forty workers are killed, and there is room for a few snapshots: the others stay in shared memory, where the
    report finds them, until there is room."""
    stage.script(
        """
        import os
        from lineprofiler.accounting import Profiler
        profiler = Profiler("run", role="r", run_id="it")
        for _ in range(40):
            if os.fork() == 0:
                for word in ("one", "two", "three"):
                    with profiler.phase(word):
                        pass
                os.kill(os.getpid(), 9)
        codes = {os.wait()[1] for _ in range(40)}
        profiler.close()
        print(codes)
        """,
        "many.py",
    )
    stage.run.mkdir()
    done = private_mounts(
        stage,
        """
        mount -t tmpfs -o size=64k tmpfs run
        $PY many.py || exit 9
        $LP report run --json > full.json || exit 8
        find run -name '*.tmp'
        mount -o remount,size=8m run
        $LP report run --json > free.json || exit 7
        find run -name 'w_*.snap' | wc -l
        find run -type f > files.txt
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "{9}\n41\n", "")
    for name in ("full.json", "free.json"):
        report = document(stage, name)
        assert report.calls() == {"one": 40, "two": 40, "three": 40}
        assert report.states().count("died") == 40
    assert [p for p in stage.segments() if p.is_file()] == []


@pytest.mark.parametrize("what", ["removed", "replaced by a link", "replaced by a file"])
def test_run_directory_goes_while_recording(stage: Stage, what: str) -> None:
    program = stage.start(
        """
        import os, sys
        from lineprofiler.accounting import Profiler
        profiler = Profiler("run", role="r", run_id="it", snapshot_interval_s=0.05)
        with profiler.phase("a"):
            print("ready", flush=True)
            sys.stdin.readline()
        if os.fork() == 0:
            with profiler.phase("w"):
                os._exit(0)
        os.wait()
        os.kill(os.getpid(), 9)
        """
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    wait_for(stage.written, "a snapshot")
    moved = stage.folder / "moved"
    stage.run.rename(moved)
    if what == "removed":
        subprocess.run(["rm", "-rf", moved], check=True)
    elif what == "replaced by a link":
        (stage.folder / "elsewhere").mkdir()
        stage.run.symlink_to("elsewhere")
    else:
        stage.run.write_text("in the way")
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.wait(60) == -signal.SIGKILL
    stage.settle()
    if what == "removed":
        assert stage.report().calls() == {"a": 1, "w": 0}, "made anew, by its path"
        return
    # What began in the directory stays with it, wherever it is, and so do its children.
    assert stage.report("moved").calls() == {"a": 1, "w": 0}
    if what == "replaced by a link":
        assert list((stage.folder / "elsewhere").iterdir()) == []
    else:
        assert stage.run.read_text() == "in the way"


def test_a_collector_with_few_descriptors(stage: Stage) -> None:
    """`ulimit -n 128` sets the hard limit, too. Samples of 25 processes would take more, so most have none: what each
    process needs to be seen comes first, and the disk has what it needs."""
    program = stage.start(
        """
        import os, resource, sys, time
        from lineprofiler.accounting import Profiler
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        profiler = Profiler("run", role="r", run_id="it", snapshot_interval_s=0.2, sample_interval_s=0.05)
        pids, parent = [], os.getpid()
        for _ in range(24):
            pids.append(os.fork())
            if pids[-1] == 0:
                for _ in range(10):
                    with profiler.phase("w"):
                        pass
                with profiler.phase("open"):
                    while os.getppid() == parent:
                        time.sleep(0.05)
                os._exit(1)
        print(*pids, flush=True)
        sys.stdin.readline()
        for pid in pids:
            os.kill(pid, 9)
        os.kill(os.getpid(), 9)
        """
    )
    assert program.stdin is not None
    assert program.stdout is not None
    pids = program.stdout.readline().split()

    def written(pid: str) -> bool:
        return bool(stage.written(int(pid)))

    wait_for(lambda: all(map(written, pids)), "a snapshot of each while it lives")
    (collector,) = stage.collectors()
    assert os.readlink(f"/proc/{collector}/fd/0") == "/dev/null", "what was not opened is not closed"
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.wait(60) == -signal.SIGKILL
    stage.settle()
    assert stage.segments() == [], "the collector has written them all"
    report = stage.report()
    report.healthy()
    assert report.calls() == {"w": 240, "open": 0}
    assert report.states() == ["died"] * 25


@pytest.mark.parametrize("instead", ["nothing", "a link", "a folder", "a file"])
def test_run_directory_is_moved_before_the_close(stage: Stage, instead: str) -> None:
    """The last snapshot goes where the others are, and what stands in the directory's place gets none."""
    program = stage.start(
        """
        import os, sys
        from lineprofiler.accounting import Profiler
        profiler = Profiler("run", role="r", run_id="it", snapshot_interval_s=0.05)
        with profiler.phase("a"):
            print("ready", flush=True)
            sys.stdin.readline()
        if os.fork() == 0:
            with profiler.phase("w"):
                pass
            sys.exit()
        os.wait()
        profiler.close()
        """
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    wait_for(stage.written, "a snapshot")
    stage.run.rename(stage.folder / "moved")
    elsewhere = stage.folder / "elsewhere"
    elsewhere.mkdir()
    if instead == "a link":
        stage.run.symlink_to("elsewhere")
    elif instead == "a folder":
        stage.run.mkdir()
        elsewhere = stage.run
    elif instead == "a file":
        stage.run.write_text("in the way")
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.wait(60) == 0
    stage.settle()
    report = stage.report("moved")
    report.healthy()
    assert report.calls() == {"a": 1, "w": 1}
    assert [w["state"] for w in report.workers] == ["closed", "closed"]
    assert list(elsewhere.iterdir()) == []
    assert stage.run.exists() is (instead != "nothing")


def test_a_link_leads_elsewhere_and_there_is_no_collector(stage: Stage) -> None:
    """`latest` was made to lead to the next run: nothing of this one goes there, its directory's reader finds it."""
    (stage.folder / "first").mkdir()
    (stage.folder / "second").mkdir()
    stage.run.symlink_to("first")
    stage.python(
        """
        import os
        from lineprofiler.accounting import Profiler
        profiler = Profiler("run", role="r", run_id="it")
        with profiler.phase("a"):
            os.remove("run")
            os.symlink("second", "run")
        profiler.close()
        """,
        env={"LINEPROFILER_COLLECTOR": "0"},
    ).expect()
    assert list((stage.folder / "second").iterdir()) == []
    report = stage.report("first")
    assert report.calls() == {"a": 1}
    assert [w["state"] for w in report.workers] == ["closed"]


def test_a_link_to_a_directory_of_the_same_number_elsewhere(stage: Stage) -> None:
    """Each file system counts its directories itself: the number alone tells nothing."""
    stage.script(
        """
        import os
        from lineprofiler.accounting import Profiler
        assert os.stat("a/run").st_ino == os.stat("b/run").st_ino
        profiler = Profiler("a/run", role="r", run_id="it")
        with profiler.phase("a"):
            os.rename("a/run", "a/moved")
            os.symlink("../b/run", "a/run")
        profiler.close()
        """,
        "linked.py",
    )
    done = private_mounts(
        stage,
        """
        mkdir a b && mount -t tmpfs tmpfs a && mount -t tmpfs tmpfs b && mkdir a/run b/run || exit 9
        $PY linked.py || exit 8
        find b/run -mindepth 1
        $LP report a/moved --json
        """,
        LINEPROFILER_COLLECTOR="0",
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = Report(json.loads(done.stdout))  # and before it, no name of what would be in b/run
    assert report.calls() == {"a": 1}


def loop_mount_works(folder: Path) -> bool:
    script = "truncate -s 8M d && mkfs.ext4 -q d && mkdir m && mount -o loop d m && fsfreeze -f m && fsfreeze -u m"
    command = ["unshare", "--mount", "sh", "-c", script + " && umount m"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def test_run_directory_on_a_frozen_disk(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As a hung NFS server: whoever writes there waits. The program does not: it records, forks, is killed; the
    collector waits, and writes when the disk is back."""
    if os.geteuid() != 0 or not loop_mount_works(tmp_path_factory.mktemp("loop")):
        pytest.skip("a disk can be frozen only by root, with loop devices, mkfs.ext4 and fsfreeze")
    stage.script(
        """
        import os, sys, time
        from lineprofiler.accounting import Profiler

        profiler = Profiler("run", role="r", run_id="it", snapshot_interval_s=0.02)
        with profiler.phase("before"):
            pass
        assert os.system("fsfreeze -f run") == 0
        longest = 0.0
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            began = time.monotonic()
            with profiler.phase("during"):
                profiler.count("n")
            longest = max(longest, time.monotonic() - began)
            if os.fork() == 0:
                with profiler.phase("w"):
                    os._exit(0)
            os.wait()
            time.sleep(0.01)
        print("the end", flush=True)
        os.kill(os.getpid(), 9)
        """,
        "frozen.py",
    )
    stage.run.mkdir()
    done = private_mounts(
        stage,
        """
        truncate -s 8M disk && mkfs.ext4 -q disk && mount -o loop disk run || exit 9
        trap 'fsfreeze -u run 2> /dev/null; umount -l run' EXIT
        $PY frozen.py
        test $? = 137 || exit 8
        fsfreeze -u run || exit 7
        for i in $(seq 1000); do ls shm/*/*/[0-9]* > /dev/null 2>&1 || break; sleep 0.02; done
        $LP report run --json > report.json || exit 6
        for i in $(seq 1000); do ls -A shm/*/* > /dev/null 2>&1 || break; sleep 0.02; done
        """.replace("shm/", str(stage.shm) + "/"),
    )
    assert (done.returncode, done.stdout) == (0, "the end\n"), done.stderr
    report = document(stage, "report.json")
    calls = report.calls()
    assert calls["before"] == 1
    assert calls["during"] > 3
    assert report.counters() == {"during:n": calls["during"]}
    assert len(report.workers) == 1 + calls["during"]
    assert set(report.states()) == {"died"}


# ---- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("limit", [3, 4, 5, 6, 8, 12, 20])
def test_few_descriptors(stage: Stage, limit: int) -> None:
    """RLIMIT_NOFILE, hard, so that the collector cannot raise it either: recorded, or said that it was not."""
    stage.shm.chmod(0o777)
    run = stage.shm / "run"
    done = stage.python(
        f"""
        import resource
        from lineprofiler.accounting import Profiler, _settings
        import os
        import sys
        Profiler(sys.argv[1] + "-warm", snapshot_interval_s=None, sample_interval_s=None).close()
        os.setgroups([])
        os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
        os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
        os.chdir("/")
        resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
        """
        + "\n".join("        " + line for line in FAMILY.splitlines()),
        run,
    )
    assert (done.returncode, done.stdout) == (3, "[-9, 0]\n"), done.stderr
    stage.settle()
    # Its segments are its own: only the same user can read what is still in them.
    read = stage.python(
        f"""
        import json, os, sys
        from lineprofiler.accounting import merge_run, report_as_dict
        import lineprofiler.accounting.sampler  # now: it may lie where that user cannot read
        os.setgroups([])
        os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
        os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
        print(json.dumps(report_as_dict(merge_run(sys.argv[1]))))
        """,
        run,
    ).expect()
    report = Report(json.loads(read.stdout))
    short = {path: n for path, n in {"a": 1000, "w": 20}.items() if report.calls().get(path, 0) != n}
    if short:
        assert report.caveats["private_memory"] or "RuntimeWarning" in done.stderr, short


def test_memory_cgroup_is_full(stage: Stage) -> None:
    """The program is killed for its memory: what it had recorded is in, though its pages counted, too."""
    group = Path("/sys/fs/cgroup/memory") / f"lptest-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup (v1) of our own: {error}")
    try:
        program = stage.start(
            f"""
            import os
            open("{group}/cgroup.procs", "w").write(str(os.getpid()))
            from lineprofiler.accounting import Profiler
            profiler = Profiler("run", role="r", run_id="it")
            for _ in range(100):
                with profiler.phase("a"):
                    profiler.count("n", 2)
            with profiler.phase("eats"):
                kept = []
                while True:
                    kept.append(bytearray(1 << 20))
                    with profiler.phase("more"):
                        pass
            """
        )
        assert program.wait(60) == -signal.SIGKILL
        stage.settle()
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), "everybody has left the group")
        group.rmdir()
    report = stage.report()
    report.healthy()
    assert report.states() == ["died"]
    calls = report.calls()
    assert (calls["a"], calls["eats"]) == (100, 0)
    assert 1 < calls["eats/more"] <= 64
    assert set(report.open_since(report.workers[0])) >= {"eats"}


# ---- stopped -----------------------------------------------------------------------------------------------------


def test_collector_is_stopped(stage: Stage) -> None:
    """By a debugger, a scheduler: the program never waits for it, closes, and its last snapshot is its own."""
    program = stage.start(
        """
        import os, sys, time
        from lineprofiler.accounting import Profiler
        profiler = Profiler("run", role="r", run_id="it", snapshot_interval_s=0.02)
        with profiler.phase("a"):
            print("ready", flush=True)
            sys.stdin.readline()
        for _ in range(20):
            with profiler.phase("b"):
                time.sleep(0.005)
            if os.fork() == 0:
                with profiler.phase("w"):
                    os._exit(0)
            os.wait()
        profiler.close()
        print("the end", flush=True)
        """
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    wait_for(lambda: len(stage.collectors()) == 1 and stage.written(), "a collector at work")
    (pid,) = stage.collectors()
    os.kill(pid, signal.SIGSTOP)
    try:
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "the end\n"
        assert program.wait(60) == 0
        report = stage.report()
        report.healthy()
        assert report.calls() == {"a": 1, "b": 20, "w": 0}
        assert report.states().count("died") == 20
        assert Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    finally:
        os.kill(pid, signal.SIGCONT)
    stage.settle()
    assert stage.collectors() == []
    assert stage.segments() == []
    assert stage.report().calls() == report.calls(), "it has not written over anything"


def test_program_is_stopped_for_seconds(stage: Stage) -> None:
    """Alive all the time; the phase that was open took that long, off the CPU."""
    program = stage.start(
        """
        import sys
        from lineprofiler.accounting import Profiler
        profiler = Profiler("run", role="r", run_id="it")
        with profiler.phase("a"):
            print("ready", flush=True)
            sys.stdin.readline()
        profiler.close()
        """
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    wait_for(lambda: len(stage.collectors()) == 1, "a collector")
    program.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    time.sleep(2.2)  # two of the collector's looks a second apart
    states: Any = stage.report().states()
    stopped = time.monotonic() - began
    program.send_signal(signal.SIGCONT)
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.wait(60) == 0
    assert states == ["running"]
    report = stage.report()
    report.healthy()
    assert report.states() == ["closed"]
    phase = report.phase("r", "a")
    assert phase["calls"] == 1
    assert stopped <= phase["wall_ns"] / 1e9 < stopped + 30
