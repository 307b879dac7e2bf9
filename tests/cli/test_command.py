"""The command's manners: exit codes, options, closed pipes, files of -o, colour."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
import snapfile
from lptest import LIMIT_S, environment, lineprofiler

from lineprofiler.accounting import merge_run, render

COMMAND = str(Path(sys.executable).with_name("lineprofiler"))


@pytest.fixture
def mcts(tmp_path: Path) -> Path:
    snapfile.write_mcts(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "usage: lineprofiler COMMAND"),
        (["reprot", "x"], "unknown command reprot; did you mean report?"),
        (["frobnicate"], "unknown command frobnicate; --help lists what there is\n"),
        (["--formt", "json"], "unknown option --formt; --help lists what there is\n"),
        (["report"], "report: RUN_DIR is missing"),
        (["report", "a", "b"], "unexpected argument b"),
        (["report", "a", "--al"], "unknown option --al; did you mean --all?"),
        (["report", "a", "-x"], "unknown option -x"),
        (["report", "a", "--format", "pdf"], "invalid choice 'pdf' (choose from text|json|html)"),
        (["report", "a", "--format"], "--format needs a value"),
        (["report", "a", "--all=1"], "--all takes no value"),
        (["report", "a", "-o"], "-o needs a value"),
        (["compare", "a"], "compare: RUN_B is missing"),
        (["compare", "a", "b", "--format=html"], "invalid choice 'html'"),
        (["dump"], "dump: FILE is missing"),
        (["report", "a", "\x1b[2J"], "unexpected argument \\x1b[2J"),
    ],
)
def test_bad_usage(words: list[str], says: str) -> None:
    done = lineprofiler(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "usage: lineprofiler" in done.stderr
    assert not words or done.stderr.count("\n") == 2  # the form, and what is wrong
    assert done.stdout == ""


def test_version_and_help_everywhere() -> None:
    version = lineprofiler("--version").expect().stdout
    assert re.fullmatch(r"lineprofiler \d+\.\d+\.\d+\S*\n", version)
    for command in ("report", "compare", "dump"):
        assert lineprofiler(command, "--version").expect().stdout == version
        assert lineprofiler(command, "-h").expect().stdout.startswith(f"usage: lineprofiler {command} [options] ")


def test_options_in_every_spelling(mcts: Path, tmp_path: Path) -> None:
    text = lineprofiler("report", mcts).expect().stdout
    document = lineprofiler("report", mcts, "--json").expect().stdout
    json.loads(document)
    assert lineprofiler("report", "--format=json", mcts).expect().stdout == document
    assert lineprofiler("report", "--format", "json", "--", mcts).expect().stdout == document
    out = tmp_path / "out"
    for words in (["-o", out], [f"-o{out}"], ["--output", out], [f"--output={out}"]):
        out.unlink(missing_ok=True)
        assert lineprofiler("report", mcts, *words).expect().stdout == ""
        assert out.read_text() == text
    assert lineprofiler("report", mcts, "-o", "-", cwd=tmp_path).expect().stdout == text
    assert os.listdir(tmp_path) in (["run", "out"], ["out", "run"])  # no temporary file is left


def test_double_dash_ends_options(tmp_path: Path) -> None:
    snapfile.write_chain(tmp_path / "--all")
    assert "MAIN  (1 process" in lineprofiler("report", "--", "--all", cwd=tmp_path).expect().stdout


def test_what_comes_later(mcts: Path) -> None:
    done = lineprofiler("report", mcts, "--format", "html")
    assert (done.returncode, done.stdout) == (2, "")
    assert "later version" in done.stderr
    done = lineprofiler("trace", mcts)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lineprofiler: trace comes with a later version; report, top and compare are here\n"


def test_no_samples_leaves_out_what_is_sampled(mcts: Path) -> None:
    assert "MEMORY" in lineprofiler("report", mcts).expect().stdout
    text = lineprofiler("report", mcts, "--no-samples").expect().stdout
    assert "MEMORY" not in text
    assert "not sampled" not in text
    assert "node07: 16 cores" in text


def test_an_empty_directory_says_what_it_looked_for(tmp_path: Path) -> None:
    done = lineprofiler("report", tmp_path).expect(0)
    assert done.stdout.startswith("No worker files — looked for workers/<host>/w_*.snap in")
    assert "\n\nRuntime 0ns   Processes 0   Roles none\nHost ?\n" in done.stdout
    document = json.loads(lineprofiler("report", tmp_path, "--json").expect(0).stdout)
    assert document["run"]["empty_reason"] == "no_worker_files"
    assert document["roles"] == document["workers"] == []


def test_a_missing_directory(tmp_path: Path) -> None:
    done = lineprofiler("report", tmp_path / "nowhere").expect(2)
    assert done.stdout.startswith("No run directory — ")
    assert done.stderr == f"lineprofiler: {tmp_path}/nowhere: no such directory\n", "where the output goes into a file"
    assert "Runtime 0ns   Processes 0   Roles none\nHost ?\n" in done.stdout
    document = json.loads(lineprofiler("report", tmp_path / "nowhere", "--json").expect(2).stdout)
    assert document["run"]["empty_reason"] == "missing"
    done = lineprofiler("report", tmp_path / "nowhere", "-o", tmp_path / "out").expect(2)
    assert (done.stdout, done.stderr) == ("", f"lineprofiler: {tmp_path}/nowhere: no such directory\n")
    done = lineprofiler("compare", tmp_path / "nowhere", tmp_path).expect(2)
    assert done.stderr == f"lineprofiler: {tmp_path}/nowhere: no such directory\n"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = lineprofiler("report", tmp_path / "file").expect(2)
    assert done.stdout.startswith("No run directory — ")
    for words in (("report", "file"), ("compare", "file", "file"), ("top", "--once", "file")):
        assert lineprofiler(*words, cwd=tmp_path).expect(2).stderr == "lineprofiler: file: is no directory\n"


def test_the_directory_that_may_have_been_meant(tmp_path: Path) -> None:
    for name in ("runs/b", "runs/a", "runs/c", "alone/deep/d"):
        snapfile.write_mcts(tmp_path / name)
    (tmp_path / "runs/none/workers").mkdir(parents=True)
    (tmp_path / "runs/none/workers/w_.py").write_text("somebody's own")
    empty, b = "no worker files in workers/<host>/ and no running process", "runs/b is a run directory"
    snapshot = next((tmp_path / "runs/b").glob("workers/*/w_*")).relative_to(tmp_path)
    cases = [
        ("runs", 0, f"runs: {empty}; runs/a and 2 more are run directories"),
        ("runs/", 0, f"runs/: {empty}; runs/a and 2 more are run directories"),
        ("alone/deep", 0, f"alone/deep: {empty}; alone/deep/d is a run directory"),
        ("runs/b/workers", 0, f"runs/b/workers: {empty}; {b}"),
        (f"{snapshot.parent}/", 0, f"{snapshot.parent}/: {empty}; {b}"),
        (f"{snapshot}", 2, f"{snapshot}: is no directory; {b}"),
        ("runs/b/workers/gone", 2, f"runs/b/workers/gone: no such directory; {b}"),
    ]
    for path, code, said in cases:
        for words in (["report", path], ["report", path, "--json"]):
            done = lineprofiler(*words, cwd=tmp_path).expect(code)
            assert done.stderr == f"lineprofiler: {said}\n"
        assert lineprofiler("compare", path, "runs/b", cwd=tmp_path).expect(code).stderr == f"lineprofiler: {said}\n"
        frame = lineprofiler("top", "--once", path, cwd=tmp_path).expect(code)
        assert said.split("; ")[1] in frame.stdout + frame.stderr
    inside = lineprofiler("report", ".", cwd=tmp_path / snapshot.parent).expect(0)
    assert inside.stderr == f"lineprofiler: .: {empty}; {os.path.realpath(tmp_path)}/{b}\n"
    assert lineprofiler("report", "alone", cwd=tmp_path).expect(0).stderr == "", "none is near"


def test_some_unreadable_files_cost_only_themselves(mcts: Path) -> None:
    victim = next(mcts.glob("workers/node07/w_*_4001_*.snap"))
    victim.write_bytes(victim.read_bytes()[:100])
    done = lineprofiler("report", mcts).expect(0)
    assert "WARNING  1 of 5 worker file(s) could not be read" in done.stdout
    assert victim.name in done.stdout
    caveats = json.loads(lineprofiler("report", mcts, "--json").expect(0).stdout)["caveats"]
    assert caveats["unreadable"] == [str(victim)]
    assert caveats["unreadable_reasons"][0]["reason"]


def test_all_unreadable(mcts: Path) -> None:
    for path in mcts.glob("workers/*/w_*.snap"):
        path.write_bytes(b"")
    done = lineprofiler("report", mcts).expect(2)
    assert "5 worker file(s) unreadable" in done.stdout
    assert "none of its 5 worker file(s) can be read" in done.stderr
    lineprofiler("compare", mcts, mcts).expect(2)


def test_an_attempt_that_cannot_be_read_gives_way_to_the_one_before(mcts: Path) -> None:
    newer = snapfile.actor(1)
    newer.run_id, newer.started = "20260922T000000-000000", snapfile.START + snapfile.SECOND
    path = newer.write(mcts)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    document = json.loads(lineprofiler("report", mcts, "--json").expect(0).stdout)
    assert document["run"]["run_id"] == "20260921T155320-471c94"
    assert document["caveats"]["unreadable"] == [str(path)]


def test_the_newest_attempt_started_last(mcts: Path) -> None:
    older = snapfile.actor(1)
    older.run_id, older.started = "zzz", snapfile.START - 5 * snapfile.SECOND
    path = older.write(mcts)
    document = json.loads(lineprofiler("report", mcts, "--json").expect(0).stdout)
    assert document["run"]["run_id"] == "20260921T155320-471c94"
    assert document["caveats"]["superseded"] == [str(path)]
    assert document["caveats"]["attempts"] == [{"run_id": "zzz", "workers": 1}]
    assert "1 in other attempts" in lineprofiler("top", "--once", mcts).expect().stdout


@pytest.mark.parametrize(("elapsed_s", "at_once"), [(4, False), (6, True)])
def test_attempts_of_the_same_time(mcts: Path, elapsed_s: int, at_once: bool) -> None:
    """The command, which reads only the heads of other attempts, says the same as Python."""
    older = snapfile.actor(1)
    older.run_id, older.started = "zzz", snapfile.START - 5 * snapfile.SECOND
    older.elapsed = elapsed_s * snapfile.SECOND
    older.write(mcts)
    shown = lineprofiler("report", mcts).expect(0).stdout
    assert ("They ran at the same time" in shown) is at_once
    assert render(merge_run(mcts)) == shown


@pytest.mark.parametrize("words", [["report", "run"], ["report", "run", "--json"], ["compare", "run", "run"]])
def test_a_closed_pipe_ends_quietly(words: list[str], mcts: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        done = subprocess.run(
            [COMMAND, *words], cwd=mcts.parent, env=environment(), stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_pipe_is_waited_for(mcts: Path, unbuffered: str) -> None:
    """Also one that somebody has made non-blocking, and where Python's streams have no buffer: nothing is left out."""
    env = environment(PYTHONUNBUFFERED=unbuffered)
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write, False)
    with subprocess.Popen(
        [COMMAND, "report", str(mcts), "--json"], env=env, stdout=write, stderr=subprocess.PIPE
    ) as it:
        until = time.monotonic() + LIMIT_S
        while select.select([], [write], [], 0)[1] and time.monotonic() < until:
            time.sleep(0.01)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            got = pipe.read()
        assert it.stderr is not None
        assert (it.stderr.read(), it.wait(LIMIT_S)) == (b"", 0)
    assert len(got) > 4096
    assert got == lineprofiler("report", mcts, "--json").expect().stdout.encode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_stdout_is_an_error(mcts: Path) -> None:
    with open("/dev/full", "wb") as out:
        done = subprocess.run(
            [COMMAND, "report", str(mcts)], env=environment(), stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert b"No space left on device" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", [["report", "run"], ["compare", "run", "run"], ["top", "--once", "run"]])
def test_no_stdout_at_all_is_an_error(words: list[str], mcts: Path) -> None:
    """As a daemon or cron job may have it: what was asked for has gone nowhere, and that is no success."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", COMMAND, *words],
        cwd=mcts.parent,
        env=environment(),
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, b"lineprofiler: cannot write the output: Bad file descriptor\n")


def test_output_that_cannot_be_written(mcts: Path, tmp_path: Path) -> None:
    done = lineprofiler("report", mcts, "-o", tmp_path / "no" / "such" / "x").expect(2)
    assert done.stderr == f"lineprofiler: {tmp_path}/no/such/x: No such file or directory\n"
    done = lineprofiler("report", mcts, "-o", "").expect(2)
    assert done.stderr == 'lineprofiler: "": No such file or directory\n'
    done = lineprofiler("report", mcts, "-o", tmp_path).expect(2)
    assert "Is a directory" in done.stderr
    if Path("/dev/full").exists():
        assert "No space left" in lineprofiler("report", mcts, "-o", "/dev/full").expect(2).stderr


def test_output_replaces_whole_files_and_follows_links(mcts: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("old")
    real.chmod(0o640)
    (tmp_path / "link").symlink_to(real)
    lineprofiler("report", mcts, "-o", tmp_path / "link").expect()
    assert (tmp_path / "link").is_symlink()
    assert real.read_text().startswith("Runtime ")
    assert real.stat().st_mode & 0o777 == 0o640
    lineprofiler("report", mcts, "-o", "/dev/null").expect()
    assert Path("/dev/null").is_char_device()


def terminal(words: list[str], **extra: str) -> str:
    """The command's output on a terminal of its own."""
    env = environment(TERM="xterm", LC_ALL="C.UTF-8")
    env.pop("NO_COLOR", None)
    env.pop("COLUMNS", None)
    env.update(extra)
    main, side = pty.openpty()
    os.set_inheritable(side, True)
    import fcntl
    import struct
    import termios

    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    with subprocess.Popen([COMMAND, *words], env=env, stdout=side, stderr=subprocess.DEVNULL) as child:
        os.close(side)
        data = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:  # EIO: the last writer is gone
                break
            if not piece:
                break
            data += piece
        child.wait()
    os.close(main)
    return data.decode("utf-8").replace("\r\n", "\n")


def test_colour_only_on_a_terminal(mcts: Path) -> None:
    words = ["report", str(mcts)]
    coloured = terminal(words)
    assert "\x1b[" in coloured
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in coloured.splitlines()) == 100
    assert "\x1b" not in terminal(words, NO_COLOR="1")
    assert "\x1b" not in terminal(words, TERM="dumb")
    assert "\x1b[" in terminal(words, NO_COLOR="")  # no-color.org: present and not empty
    assert "\x1b" not in lineprofiler(*words).expect().stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == terminal(words, NO_COLOR="1")


def test_ascii_where_the_locale_says_so(mcts: Path) -> None:
    words = ["report", str(mcts)]
    env = {k: v for k, v in environment().items() if k not in ("LANG", "LC_ALL", "LC_CTYPE")}
    assert "─" in lineprofiler(*words, env=env).expect().stdout
    assert lineprofiler(*words, env={**env, "LC_ALL": "C"}).expect().stdout.isascii()
    assert lineprofiler(*words, env={**env, "LANG": "POSIX"}).expect().stdout.isascii()
    assert "─" in lineprofiler(*words, env={**env, "LANG": "de_DE.utf8"}).expect().stdout


def test_dump_of_what_is_none_of_ours(tmp_path: Path) -> None:
    for name, data in [("text", b"hello"), ("empty", b""), ("elf", Path(sys.executable).read_bytes()[:4096])]:
        (tmp_path / name).write_bytes(data)
        done = lineprofiler("dump", tmp_path / name).expect(2)
        assert done.stdout == ""
        assert done.stderr.startswith(f"lineprofiler: {tmp_path}/{name}: ")
    assert "is a directory" in lineprofiler("dump", tmp_path).expect(2).stderr
    assert "No such file" in lineprofiler("dump", tmp_path / "none").expect(2).stderr
    assert lineprofiler("dump", "").expect(2).stderr == 'lineprofiler: "": No such file or directory\n'


def test_compare_changes_nothing(mcts: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in sorted(mcts.rglob("*"))}
    lineprofiler("compare", mcts, mcts).expect()
    assert {p: p.stat().st_mtime_ns for p in sorted(mcts.rglob("*"))} == before
