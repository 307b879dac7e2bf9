"""What `lineprofiler run` and `lines` print goes out whole, or they say why not."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from linetest import project
from lptest import LIMIT_S, environment, lineprofiler, run_process

COMMAND = str(Path(sys.executable).with_name("lineprofiler"))


def test_closed_output_ends_quietly(tmp_path: Path) -> None:
    project(tmp_path, prog="pass")
    shell = f"'{COMMAND}' run prog.py | true; echo ${{PIPESTATUS[0]}}"
    done = run_process(["bash", "-c", shell], cwd=tmp_path)
    assert "Traceback" not in done.stderr
    for unbuffered in ("", "1"):  # the disk refuses at the end, or each line
        for command in ("run prog.py", "run --help", "lines --help"):
            full = run_process(
                ["bash", "-c", f"'{COMMAND}' {command} >/dev/full"],
                cwd=tmp_path,
                env=environment(PYTHONUNBUFFERED=unbuffered),
            )
            assert (command, full.returncode, full.stderr.count("\n")) == (command, 2, 1), full.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_pipe_is_waited_for(tmp_path: Path, unbuffered: str) -> None:
    """Also one that somebody has made non-blocking, and where Python's streams have no buffer: nothing is left out."""
    project(tmp_path, prog="\n".join(f"def f{n}():\n    return {n}\nf{n}()" for n in range(200)))
    lineprofiler("run", "-q", "-o", "p.lprof", "prog.py", cwd=tmp_path).expect()
    shown = {}
    for words in (["lines", "-t", "p.lprof"], ["run", "--functions", "--all", "prog.py"]):
        read, write = os.pipe()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(write, False)
        with subprocess.Popen(
            [COMMAND, *words],
            cwd=tmp_path,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
        ) as it:
            until = time.monotonic() + LIMIT_S
            while select.select([], [write], [], 0)[1] and time.monotonic() < until:
                time.sleep(0.01)
            os.close(write)
            with os.fdopen(read) as pipe:
                shown[words[0]] = pipe.read()
            assert it.stderr is not None
            assert (it.stderr.read(), it.wait(LIMIT_S)) == ("", 0)
    assert shown["lines"] == lineprofiler("lines", "-t", "p.lprof", cwd=tmp_path).expect().stdout
    assert [n for n in range(200) if f"return {n}\n" not in shown["run"]] == []


def test_no_stdout_at_all_is_an_error(tmp_path: Path) -> None:
    project(tmp_path, prog="pass")
    lineprofiler("run", "-q", "-o", "p.lprof", "prog.py", cwd=tmp_path).expect()
    done = run_process(["sh", "-c", f"exec '{COMMAND}' lines p.lprof >&-"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "lineprofiler lines: output: Bad file descriptor\n")


def test_files_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may have run for hours: its figures are printed even so. What is known before keeps it from running."""
    project(tmp_path, prog="open('ran', 'w').close()")
    for option in ("-o", "--html"):
        full = lineprofiler("run", option, "/dev/full", "prog.py", cwd=tmp_path)
        assert (full.returncode, full.stderr) == (2, "lineprofiler run: /dev/full: No space left on device\n")
        assert "Hottest lines" in full.stdout
        assert "Wrote" not in full.stdout
        (tmp_path / "ran").unlink()
    from lineprofiler.lines import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run.os, "access", lambda path, mode: (path, mode) != (str(tmp_path), os.W_OK))
    for words in (["-l"], ["-o", "x.lprof"], ["--html", "x.html"]):
        assert run.main([*words, "prog.py"]) == 2
    assert sorted(os.listdir(tmp_path)) == [".git", "prog.py"]


def test_what_is_run_is_not_written_over(tmp_path: Path) -> None:
    text = "open('ran', 'w').close()"
    project(tmp_path, prog=text, setup=text)
    (tmp_path / "link.py").symlink_to("prog.py")
    kept = (tmp_path / "prog.py").read_text(encoding="utf-8")
    for words in (
        ["-o", "prog.py", "prog.py"],
        ["-lo", "link.py", "prog.py"],
        ["--html", str(tmp_path / "prog.py"), "-m", "prog"],
        ["-s", "setup.py", "-o", "setup.py", "prog.py"],
    ):
        done = lineprofiler("run", *words, cwd=tmp_path).expect(2)
        assert "is what is run, and would be written over\n" in done.stderr
    done = lineprofiler("run", "-o", "x", "--html", "./x", "prog.py", cwd=tmp_path).expect(2)
    assert done.stderr.endswith("lineprofiler run: ./x: -o and --html name the same file\n")
    assert sorted(os.listdir(tmp_path)) == [".git", "link.py", "prog.py", "setup.py"]
    assert (tmp_path / "prog.py").read_text(encoding="utf-8") == kept
    lineprofiler("run", "-qo", "/dev/null", "--html", "/dev/null", "prog.py", cwd=tmp_path).expect()
