"""Figures of lines outlive their process: read while it runs and hangs, after a kill, and from forked children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lineprofiler._lineprofiler import LineEngine, load_lines

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is there from 3.12 on")

HEAD = """
import os, sys, time
from lineprofiler._lineprofiler import LineEngine
engine = LineEngine()
engine.share(sys.argv[1])
def said():
    sys.stdout.write("ready\\n"); sys.stdout.flush()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "lines"
    made.mkdir(mode=0o700)
    return made


def started(folder: Path, source: str) -> subprocess.Popen[str]:
    text = HEAD + textwrap.dedent(source)
    child = subprocess.Popen([sys.executable, "-c", text, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def files(folder: Path) -> list[dict[str, Any]]:
    return [load_lines(str(path)) for path in sorted(folder.iterdir())]


def sums(found: dict[str, Any], name: str, column: int) -> dict[int, int]:
    """By line relative to the `def`."""
    out: Counter[int] = Counter()
    for row in found["lines"]:
        file, qualified, first = found["codes"][row[0]]
        if qualified == name:
            assert file == "<string>"
            out[row[1] - first] += row[column]
    return dict(out)


HANGING = """
    def f():
        for i in range(1000):
            x = i
        g()
    def g():
        said()
        time.sleep(60)
    engine.mark(f.__code__); engine.mark(g.__code__)
    engine.start()
    f()
"""


def test_a_hanging_program_shows_where_it_is_and_a_killed_one_what_it_was(folder: Path) -> None:
    child = started(folder, HANGING)
    time.sleep(0.2)
    (running,) = files(folder)
    assert (running["pid"], running["living"], running["closed"]) == (child.pid, True, False)
    assert sums(running, "f", 2) == {1: 1001, 2: 1000, 3: 1}
    assert sums(running, "g", 2) == {1: 1, 2: 1}
    assert [(running["codes"][code][1], line - running["codes"][code][2]) for _, code, line, _ in running["open"]] == [
        ("f", 3),
        ("g", 2),
    ]
    there = running["open"][1][3]
    assert there >= 150_000_000
    assert sums(running, "g", 4)[2] == there
    assert sums(running, "f", 4)[3] >= there
    assert sums(running, "f", 5)[3] < sums(running, "f", 4)[3] - there
    assert running["threads"] == [(0, "MainThread")]
    child.send_signal(signal.SIGKILL)
    child.wait()
    (dead,) = files(folder)
    assert (dead["living"], dead["closed"]) == (False, False)
    assert sums(dead, "f", 2) == {1: 1001, 2: 1000, 3: 1}
    assert [(code, line) for _, code, line, _ in dead["open"]] == [(c, n) for _, c, n, _ in running["open"]]
    assert sums(dead, "g", 4)[2] == 0  # nothing was seen after its last event
    calls = {dead["codes"][row[0]][1]: row[2] for row in dead["functions"]}
    assert calls == {"f": 1, "g": 1}


def test_forked_children_have_files_of_their_own(folder: Path) -> None:
    child = started(
        folder,
        """
        def f(n):
            for i in range(n):
                pass
        engine.mark(f.__code__)
        engine.start()
        f(10)
        for n in 1, 2, 3:
            if os.fork() == 0:
                f(n)
                os._exit(0)
        for _ in range(3):
            os.wait()
        f(10)
        said()
        sys.stdin.read()
        """,
    )
    child.kill()
    child.wait()
    found = {item["pid"] == child.pid: [] for item in files(folder)}  # type: ignore[var-annotated]
    for item in files(folder):
        found[item["pid"] == child.pid].append(sums(item, "f", 2))
    assert found[True] == [{1: 22, 2: 20}]
    assert sorted(found[False], key=lambda lines: lines[1]) == [{1: n + 1, 2: n} for n in (1, 2, 3)]


def test_the_file_of_an_engine_that_is_gone_stays(folder: Path) -> None:
    def f() -> int:
        return 1

    engine = LineEngine()
    engine.share(str(folder))
    engine.mark(f.__code__)
    engine.start()
    f()
    with pytest.raises(RuntimeError, match="before the first start"):
        engine.share(str(folder))
    (alive,) = files(folder)
    assert (alive["pid"], alive["living"], alive["closed"]) == (os.getpid(), True, False)
    engine.stop()
    del engine
    (gone,) = files(folder)
    assert gone["closed"]
    assert [row[2:4] for row in gone["lines"]] == [(1, 1)]


def test_folders_that_others_may_enter_are_not_used(folder: Path, tmp_path: Path) -> None:
    folder.chmod(0o755)
    for path, why in ((folder, "others may enter"), (tmp_path / "nowhere", "No such file")):
        engine = LineEngine()
        engine.share(str(path))
        engine.start()
        assert engine.active
        assert len(engine.trouble) == 1
        assert why in engine.trouble[0]
        engine.stop()
    assert list(folder.iterdir()) == []


def test_files_that_are_none(folder: Path) -> None:
    child = started(folder, "said(); engine.mark(said.__code__); engine.start(); said(); time.sleep(60)")
    child.stdout.readline()  # type: ignore[union-attr]
    child.kill()
    child.wait()
    (path,) = folder.iterdir()
    good = path.read_bytes()[:65536]
    assert load_lines(str(path))["lines"]
    with pytest.raises(OSError, match="nowhere"):
        load_lines(str(folder / "nowhere"))
    bad = folder / "bad"
    for text in (b"", b"x" * 5000, good[:100], good[:4097]):
        bad.write_bytes(text)
        with pytest.raises((ValueError, OSError), match="bad"):
            load_lines(str(bad))
    # One bit at a time where structures are: an error or figures, never a crash.
    for at in range(4096, 12288, 7):
        broken = bytearray(good)
        broken[at] ^= 0x41
        bad.write_bytes(broken)
        with contextlib.suppress(ValueError, OSError):
            load_lines(str(bad))
