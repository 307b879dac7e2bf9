"""`lineprofiler top` as people use it: a real run, in a real terminal (tmux), and byte by byte in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import snapfile
from lpstage import Stage, wait_for
from lptest import LIMIT_S, environment, lineprofiler

COMMAND = str(Path(sys.executable).with_name("lineprofiler"))

# Two roles; each line on its stdin is an order.
PROGRAM = """
import os, signal, sys, threading, time
from lineprofiler.accounting import Profiler

profiler = Profiler("run", role=sys.argv[1], run_id="same", install=True)
def work():
    while True:
        with profiler.phase("iteration"):
            with profiler.phase("select"):
                time.sleep(0.002)
            with profiler.phase("expand"):
                time.sleep(0.001)
with profiler.phase("held"):
    threading.Thread(target=work, daemon=True).start()
    print("in", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def start(stage: Stage, role: str) -> subprocess.Popen[str]:
    process = stage.start(PROGRAM, role)
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    return process


class Tmux:
    """A tmux server of its own with one window."""

    def __init__(self, stage: Stage, columns: int, rows: int) -> None:
        self.socket = str(stage.folder / "tmux")
        self.env = stage.environment(LC_ALL="C.UTF-8")
        self.env.pop("TMUX", None)
        shell = ["env", "PS1=ready> ", "ENV=", "sh", "-i"]
        self.call(
            "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(stage.folder), *shell
        )

    def call(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", self.socket, *words], env=self.env, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def screen(self) -> str:
        return self.call("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self.call("send-keys", *keys)

    def type(self, text: str) -> None:
        self.call("send-keys", "-l", text)

    def wait(self, condition: Callable[[str], object], what: str) -> str:
        seen = ""

        def look() -> object:
            nonlocal seen
            seen = self.screen()
            return condition(seen)

        try:
            wait_for(look, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{seen}") from None
        return seen


@pytest.fixture
def tmux(stage: Stage) -> Iterator[Tmux]:
    if not shutil.which("tmux"):
        pytest.skip("no tmux")
    made = Tmux(stage, 80, 24)
    yield made
    made.call("kill-server")


def rows_of(screen: str, phase: str) -> list[list[str]]:
    return [line.split() for line in screen.splitlines() if line.strip().startswith(phase + " ")]


@pytest.mark.one_version
def test_a_run_is_seen_live(stage: Stage, tmux: Tmux) -> None:
    actor, learner = start(stage, "actor"), start(stage, "learner")
    tmux.wait(lambda s: "ready>" in s, "a shell")
    tmux.type(f"{COMMAND} top run --interval 0.2\n")
    screen = tmux.wait(lambda s: re.search(r"iteration/select +\d+\.\d", s), "rates")
    assert "2 processes: 2 running" in screen
    assert "actor x1  1 running" in screen
    assert "learner x1  1 running" in screen
    assert re.search(r"\d held ", screen) or "  held" in screen  # open, and for how long
    assert max(map(len, screen.splitlines())) <= 80
    assert "ready>" not in screen, "a screen of its own"
    for row in rows_of(screen, "iteration/select"):
        assert 10 < float(row[1]) <= 500  # 3 ms an iteration at least

    before = rows_of(screen, "iteration/select")[0][2]
    tmux.wait(lambda s: rows_of(s, "iteration/select")[0][2] != before, "the entries grow")

    actor.kill()
    screen = tmux.wait(lambda s: "died" in s and "SIGKILL" in s, "the death")
    assert re.search(rf"^died \S+:{actor.pid} actor  \d+s ago: SIGKILL after \S+ in held$", screen, re.M), screen
    assert "1 running, 1 died" in screen

    tmux.keys("q")
    screen = tmux.wait(lambda s: s.rstrip().endswith("ready>"), "the shell again")
    assert "iteration" not in screen, "the screen is as it was"
    assert learner.poll() is None


@pytest.mark.one_version
def test_keys(stage: Stage, tmux: Tmux) -> None:
    start(stage, "actor")
    start(stage, "learner")
    tmux.wait(lambda s: "ready>" in s, "a shell")
    tmux.type(f"{COMMAND} top run --interval 0.2\n")
    tmux.wait(lambda s: "learner x1" in s and "actor x1" in s, "both roles")

    tmux.keys("n")
    tmux.wait(lambda s: "PHASE▾" in s, "by name")
    tmux.keys("n")
    tmux.wait(lambda s: "PHASE▴" in s, "turned round")
    for key, title in [
        ("r", "rate/s▾"),
        ("e", "entries▾"),
        ("t", "share▾"),
        ("m", "mean▾"),
        ("p", "p95▾"),
        ("s", "self▾"),
    ]:
        tmux.keys(key)
        tmux.wait(lambda s: title in s, title)  # noqa: B023
    tmux.keys("w")
    tmux.wait(lambda s: "blk▾" in s, "by wait")

    tmux.keys("/")
    tmux.type("SELX")
    tmux.wait(lambda s: "filter SELX_" in s and "no phase matches" in s, "the filter")
    tmux.keys("BSpace")
    tmux.wait(lambda s: "filter SEL_" in s and rows_of(s, "iteration/select"), "one character less")
    tmux.keys("Enter")
    screen = tmux.wait(lambda s: "filter SEL " in s, "done typing")
    assert not rows_of(screen, "iteration/expand")
    tmux.keys("Escape")
    tmux.wait(lambda s: rows_of(s, "iteration/expand"), "no filter")

    tmux.keys("Tab")
    first = tmux.wait(lambda s: ("actor x1" in s) != ("learner x1" in s), "one role")
    tmux.keys("Tab")
    tmux.wait(
        lambda s: ("actor x1" in s) != ("actor x1" in first) and ("learner x1" in s) != ("learner x1" in first), "other"
    )
    tmux.keys("Tab")
    tmux.wait(lambda s: "learner x1" in s and "actor x1" in s, "all again")
    tmux.keys("1")
    tmux.wait(lambda s: ("actor x1" in s) != ("learner x1" in s), "by number")
    tmux.keys("0")

    tmux.keys("?")
    tmux.wait(lambda s: "finished entries a second" in s, "help")
    tmux.keys("Escape")
    tmux.wait(lambda s: rows_of(s, "iteration/expand"), "help is gone")

    tmux.keys("Space")
    held = tmux.wait(lambda s: "paused" in s, "paused")
    time.sleep(0.6)  # three looks that do not come
    assert tmux.screen() == held
    tmux.keys("Space")
    tmux.wait(lambda s: "every" in s and s != held, "it goes on")

    tmux.call("resize-window", "-x", "120", "-y", "9")
    tmux.wait(
        lambda s: any("q quit" in line and len(line) > 80 for line in s.splitlines()), "wider, with the keys at the end"
    )
    tmux.keys("Down", "Down")
    tmux.wait(lambda s: s.splitlines()[3].startswith("  "), "scrolled beyond the first heading")
    tmux.keys("Home")
    tmux.wait(lambda s: " x1 " in s.splitlines()[3], "back")
    tmux.keys("C-c")
    tmux.wait(lambda s: s.rstrip().endswith("ready>"), "the shell again")


@pytest.mark.one_version
def test_stopped_and_continued(stage: Stage, tmux: Tmux) -> None:
    start(stage, "actor")
    tmux.wait(lambda s: "ready>" in s, "a shell")
    tmux.type(f"set -m; {COMMAND} top run --interval 0.2\n")
    tmux.wait(lambda s: "actor x1" in s, "the view")
    tmux.keys("C-z")
    screen = tmux.wait(lambda s: "Stopped" in s, "the shell again")
    assert "actor x1" not in screen
    tmux.type("stty -a | grep -o '[ -]icanon' | tr ' -' 'yn'\n")
    tmux.wait(lambda s: re.search(r"^yicanon", s, re.M), "a terminal that edits lines")
    tmux.type("fg\n")
    tmux.wait(lambda s: "actor x1" in s and "ready>" not in s, "the view again")
    tmux.keys("q")
    tmux.wait(lambda s: s.rstrip().endswith("ready>"), "the shell")


class Pty:
    """The command in a pseudo-terminal, every byte of it."""

    def __init__(self, stage: Stage, *args: str, columns: int = 80, rows: int = 24) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.size(columns, rows)
        self.process = subprocess.Popen(
            [COMMAND, "top", "run", *args],
            cwd=stage.folder,
            env=stage.environment(LC_ALL="C.UTF-8", TERM="xterm"),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )
        self.seen = b""

    def size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, until: Callable[[bytes], object], what: str) -> bytes:
        deadline = time.monotonic() + 60
        while not until(self.seen):
            assert time.monotonic() < deadline, f"{what}: {self.seen[-2000:]!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536)
        return self.seen

    def write(self, data: bytes) -> None:
        os.write(self.master, data)

    def end(self) -> int:
        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"


@pytest.fixture
def terminal(stage: Stage) -> Iterator[Callable[..., Pty]]:
    made: list[Pty] = []

    def make(*args: str, columns: int = 80, rows: int = 24) -> Pty:
        made.append(Pty(stage, *args, columns=columns, rows=rows))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.one_version
def test_a_frame_is_what_has_changed(stage: Stage, terminal: Callable[..., Pty]) -> None:
    start(stage, "actor")
    view = terminal("--interval", "0.1")
    seen = view.read(lambda s: s.count(END) >= 6, "six frames")
    assert seen.count(ENTER) == 1
    assert seen.count(b"\x1b[2J") == 1, "cleared once, when the screen was entered"
    frames = re.findall(re.escape(BEGIN) + b"(.*?)" + re.escape(END), seen, re.S)
    first = frames[0]
    for row in range(1, 25):
        assert b"\x1b[%d;1H" % row in first
    for frame in frames[1:]:
        assert b"\x1b[24;1H" not in frame, "the line of keys stays"
        assert b"iteration/select" in frame, "its entries have changed"
        assert frame.startswith(b"\x1b["), "nothing is written where the cursor happens to be"
    # Between the frames nothing is written.
    assert re.sub(re.escape(BEGIN) + b".*?" + re.escape(END), b"", seen.split(b"\x1b[2J")[1], flags=re.S) == b""


@pytest.mark.one_version
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGUSR1,
    ],
    ids=lambda n: signal.Signals(n).name,
)
def test_the_terminal_is_put_back_by_every_end(stage: Stage, terminal: Callable[..., Pty], number: int) -> None:
    snapfile.write_mcts(stage.run)
    view = terminal()
    view.read(lambda s: END in s, "a frame")
    raw = termios.tcgetattr(view.slave)
    assert not raw[3] & (termios.ICANON | termios.ECHO)
    os.kill(view.process.pid, number)
    assert view.end() == -number
    assert view.seen.endswith(b"\x1b[0m\x1b[?7h\x1b[?25h" + LEAVE)
    assert termios.tcgetattr(view.slave) == view.before


@pytest.mark.one_version
def test_every_size(stage: Stage, terminal: Callable[..., Pty]) -> None:
    snapfile.write_troubled(stage.run)
    view = terminal(columns=20, rows=5)
    view.read(lambda s: END in s, "a frame")
    for columns, rows in [(1, 1), (2, 1), (3, 40), (20, 5), (500, 2), (7, 7), (300, 200), (80, 24)]:
        count = view.seen.count(END)
        view.size(columns, rows)
        view.read(lambda s: s.count(END) > count, "drawn anew")  # noqa: B023
    view.write(b"q")
    assert view.end() == 0


@pytest.mark.one_version
def test_keys_that_are_none_do_nothing(stage: Stage, terminal: Callable[..., Pty]) -> None:
    snapfile.write_mcts(stage.run)
    view = terminal()
    view.read(lambda s: END in s, "a frame")
    view.write(b"\x1b[200~\x1b[1;5C\x1bOP\x1b[" + b"9" * 300 + b"~\x00\xff\xfe\x1b]0;title\x07xyzXYZ\x1b\x1b")
    view.write(b"/" + b"a" * 200 + b"\xf0\x9f\x94\xa5" * 30 + b"\x7f" * 400 + b"\r")
    view.write(b"\x1b[5~" * 50 + b"\x1b[6~" * 50 + b"-" * 40 + b"+" * 60)
    time.sleep(0.2)
    assert view.process.poll() is None
    view.write(b"\x1b")
    time.sleep(0.2)
    view.write(b"q")
    assert view.end() == 0


@pytest.mark.one_version
def test_the_terminal_is_gone(stage: Stage, terminal: Callable[..., Pty]) -> None:
    snapfile.write_mcts(stage.run)
    view = terminal()
    view.read(lambda s: END in s, "a frame")
    os.close(view.slave)
    os.close(view.master)
    assert view.process.wait(60) in (0, -signal.SIGHUP)
    view.master, view.slave = pty.openpty()


@pytest.mark.one_version
def test_waits_for_the_first_process(stage: Stage, terminal: Callable[..., Pty]) -> None:
    stage.run.mkdir()
    view = terminal("--interval", "0.1")
    view.read(lambda s: b"Nobody has recorded" in s, "a word on it")
    start(stage, "actor")
    view.read(lambda s: b"iteration/select" in s, "the run")
    view.write(b"q")
    assert view.end() == 0


@pytest.mark.one_version
def test_no_colour(stage: Stage, terminal: Callable[..., Pty], monkeypatch: pytest.MonkeyPatch) -> None:
    snapfile.write_troubled(stage.run)
    view = terminal()
    assert re.search(rb"\x1b\[\d[;\d]*m", view.read(lambda s: END in s, "a frame").replace(b"\x1b[0m", b""))
    monkeypatch.setenv("NO_COLOR", "1")
    view = terminal()
    assert not re.search(rb"\x1b\[\d[;\d]*m", view.read(lambda s: END in s, "a frame").replace(b"\x1b[0m", b""))


@pytest.mark.one_version
def test_once(stage: Stage) -> None:
    actor = start(stage, "actor")
    done = stage.command("top", "run", "--once", "--interval", "0.3").expect()
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert re.search(r"^  iteration/select +\d+\.\d +[\d,]+ ", done.stdout, re.M), done.stdout
    assert re.search(rf"held +actor \S+:{actor.pid}$", done.stdout, re.M), done.stdout


@pytest.mark.one_version
def test_phases_that_look_the_same_have_rates_of_their_own(stage: Stage) -> None:
    """A name may hold a slash. Nobody enters anything between the two looks."""
    process = stage.start("""
        import sys
        from lineprofiler.accounting import Profiler
        with Profiler("run", "r", install=True) as profiler:
            for number, name in enumerate("abcdefgh"):
                for _ in range(100 if number % 2 else 1):
                    with profiler.phase(name + "/z"):
                        pass
                for _ in range(1 if number % 2 else 100):
                    with profiler.phase(name), profiler.phase("z"):
                        pass
            print("in", flush=True)
            sys.stdin.readline()
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    shown = stage.command("top", "run", "--once", "--interval", "0.1").expect().stdout
    rows = re.findall(r"^ +!?([a-h]/z) +(\S+) +(\d+) ", shown, re.M)
    assert sorted(rows) == [(f"{name}/z", "0.0", count) for name in "abcdefgh" for count in ("1", "100")], shown


@pytest.mark.one_version
def test_marks_stand_before_names_that_are_cut(tmp_path: Path) -> None:
    """What is estimated is marked as such, however long its path is."""
    worker = snapfile.Worker()
    for mark, more in {
        "sampled": {"flags": 1, "stride": 10},
        "async": {"flags": 2},
        "few": {"async_entries": 3},
    }.items():
        worker.phase("a path of many words/" + mark * 9, 40, 1_000_000, 2_000_000, **more)
    worker.write(tmp_path)
    env = environment(COLUMNS="80", LC_ALL="C.UTF-8")
    frame = lineprofiler("top", "--once", tmp_path, env=env).expect().stdout
    marks = re.findall(r"(?m)^  (\S)\N{HORIZONTAL ELLIPSIS}\S*(sampled|async|few) ", frame)
    assert sorted(marks) == [("~", "sampled"), ("\N{DAGGER}", "async"), ("\N{DAGGER}", "few")]


@pytest.mark.parametrize(
    ("role", "shown"), [("actr", "actr"), ("", '""'), ("x" * 90, "x" * 55 + "\N{HORIZONTAL ELLIPSIS}")]
)
def test_a_role_that_nobody_has(tmp_path: Path, role: str, shown: str) -> None:
    """A name that was typed wrong is no run without phases."""
    worker = snapfile.Worker("actor")
    worker.phase("step", 40, 1_000_000, 2_000_000)
    worker.write(tmp_path)
    env = environment(COLUMNS="80", LC_ALL="C.UTF-8")
    frame = lineprofiler("top", "--once", "--role", role, tmp_path, env=env).expect().stdout
    assert frame.splitlines()[-1] == f"no process has the role {shown}"


def test_once_writes_nothing(stage: Stage) -> None:
    stage.collector = False  # which would write meanwhile
    start(stage, "actor")
    before = sorted(p.name for p in stage.run.rglob("*"))
    stage.command("top", "run", "--once", "--interval", "0.1").expect()
    assert sorted(p.name for p in stage.run.rglob("*")) == before, "it writes nothing"


@pytest.mark.one_version
def test_misuse(tmp_path: Path) -> None:
    snapfile.write_mcts(tmp_path / "run")
    for words, line in [
        (["run"], "lineprofiler: top: needs a terminal for input and output; --once prints one frame\n"),
        (["none", "--once"], "lineprofiler: none: no such directory\n"),
        (["run", "--once", "--interval", "0"], "between 0.1 and 3600"),
        (["run", "--once", "--interval", "1e3"], "between 0.1 and 3600"),
        (["run", "--once", "--interval", "-1"], "between 0.1 and 3600"),
        (["run", "--once", "--sort", "size"], "--sort: invalid choice 'size'"),
        (["run", "--once", "--filter", "x" * 64], "at most 63 bytes"),
    ]:
        done = lineprofiler("top", *words, cwd=tmp_path).expect(2)
        assert line in done.stderr
        assert done.stdout == ""
    for path in (tmp_path / "run").rglob("w_*.snap"):
        path.write_bytes(path.read_bytes()[:40])
    done = lineprofiler("top", "run", "--once", cwd=tmp_path).expect(2)
    assert "none of its 5 worker file(s) can be read" in done.stderr
