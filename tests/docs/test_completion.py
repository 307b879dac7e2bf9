"""Completion in a real shell: words and Tab are typed at a terminal, and the shell runs what then stands there."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lptest import LIMIT_S, commands, environment, lineprofiler

COMMANDS = list(commands())


class Terminal:
    """A shell at a terminal, in which `lineprofiler` prints its words instead of doing anything."""

    def __init__(self, command: list[str], folder: Path, **extra: str) -> None:
        self.master, slave = pty.openpty()
        env = environment(TERM="dumb", HOME=str(folder), HISTFILE="/dev/null", LC_ALL="C.UTF-8", **extra)
        env.pop("LD_PRELOAD", None)  # of `make sanitize`: the shell is not ours
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=env, start_new_session=True
        )
        os.close(slave)
        self.seen = ""
        self.number = 0

    def until(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + LIMIT_S
        while (match := re.search(pattern, self.seen, re.S)) is None:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {pattern!r} in {self.seen!r}"
            self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        self.seen = self.seen[match.end() :]
        return match

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def words(self, typed: str) -> list[str]:
        """What the command was given after this was typed. `end` tells that the shell has done it all."""
        self.number += 1
        self.type(f"{typed} end{self.number}\n")
        got = self.until(rf"GOT<((?:(?!GOT<).)*?)><end{self.number}>")[1]
        return got.replace("\r", "").replace("\n", "").split("><")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "run_one").mkdir()
    (home / "resultfile.txt").write_text("")
    for shell in ("bash", "zsh"):
        script = lineprofiler("completion", shell).expect().stdout
        (home / f"completion.{shell}").write_text(script)
    return home


@pytest.fixture
def bash(folder: Path) -> Iterator[Terminal]:
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], folder, PS1="$ ", INPUTRC="/dev/null")
    terminal.type(
        "lineprofiler() { printf 'GOT'; printf '<%s>' \"$@\"; echo; }; source completion.bash; echo rea\"\"dy\n"
    )
    terminal.until(r"ready")
    yield terminal
    terminal.close()


BASH = [
    ("lineprofiler rep\t", ["report"]),
    ("lineprofiler comple\tz\t", ["completion", "zsh"]),
    ("lineprofiler report --no\t", ["report", "--no-samples"]),
    ("lineprofiler report --format j\t", ["report", "--format", "json"]),
    ("lineprofiler report --format=j\t", ["report", "--format=json"]),
    ("lineprofiler top --sort=wa\t", ["top", "--sort=wait"]),
    # A directory where one is wanted, a file where one is.
    ("lineprofiler report r\t", ["report", "run_one/"]),
    ("lineprofiler report -o resu\t", ["report", "-o", "resultfile.txt"]),
    ("lineprofiler dump resu\t", ["dump", "resultfile.txt"]),
    ("lineprofiler lines --d\t", ["lines", "--diff"]),
    ("lineprofiler run --li\t-b\t", ["run", "--li-b"]),  # two begin so: nothing is guessed
    ("lineprofiler run --liv\tr\t", ["run", "--live", "run_one/"]),
    # What follows the program is the program's.
    ("lineprofiler run --top=3 resu\t--fun\t", ["run", "--top=3", "resultfile.txt", "--fun"]),
    ("lineprofiler run -m pytest resu\t", ["run", "-m", "pytest", "resultfile.txt"]),
]


def test_bash(bash: Terminal) -> None:
    for typed, expected in BASH:
        assert bash.words(typed) == expected, typed


def apart(words: list[str]) -> list[str]:
    return [part.rstrip("/") for word in words for part in word.split("=")]


def test_zsh(folder: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here (on Debian: apt-get install zsh)")
    terminal = Terminal(["zsh", "-f", "-i"], folder, PS1="$ ")
    terminal.type(
        "unsetopt zle_bracketed_paste prompt_cr beep; autoload -Uz compinit; compinit -u -D; "
        "lineprofiler() { printf 'GOT'; printf '<%s>' \"$@\"; echo; }; source completion.zsh; echo rea\"\"dy\n"
    )
    terminal.until(r"ready\r?\n")
    for typed, expected in BASH:
        if "--li\t" not in typed:  # zsh inserts what both have in common and lists them
            # It writes "--live=" for "--live", and takes the "/" behind a directory back when a space is typed.
            assert apart(terminal.words(typed)) == apart(expected), typed
    terminal.close()


def fish_offers(folder: Path, line: str) -> list[str]:
    script = lineprofiler("completion", "fish").expect().stdout
    (folder / "completion.fish").write_text(script)
    env = environment(HOME=str(folder), PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    env.pop("LD_PRELOAD", None)
    done = subprocess.run(
        ["fish", "--no-config", "-c", "source completion.fish; complete -C $argv[1]", line],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert done.stderr == ""
    return [each.split("\t")[0] for each in done.stdout.splitlines()]


def test_fish(folder: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("no fish here (on Debian: apt-get install fish)")
    assert sorted(fish_offers(folder, "lineprofiler ")) == sorted(COMMANDS)
    assert fish_offers(folder, "lineprofiler rep") == ["report"]
    assert fish_offers(folder, "lineprofiler report --no") == ["--no-samples"]
    assert sorted(fish_offers(folder, "lineprofiler report --format ")) == ["html", "json", "text"]
    assert fish_offers(folder, "lineprofiler report r") == ["run_one/"]
    assert fish_offers(folder, "lineprofiler dump resu") == ["resultfile.txt"]
    assert fish_offers(folder, "lineprofiler run --liv") == ["--live"]
    assert sorted(fish_offers(folder, "lineprofiler completion ")) == ["bash", "fish", "zsh"]


def test_scripts_hold_every_option_of_every_command() -> None:
    for shell in ("bash", "zsh", "fish"):
        script = lineprofiler("completion", shell).expect().stdout
        for command in COMMANDS:
            text = lineprofiler(command, "--help").expect().stdout
            for option in re.findall(r"^ {2}(?:-\w, | {4})--([\w-]+)", text, re.M):
                assert option in script, f"{shell}: {command} --{option}"
