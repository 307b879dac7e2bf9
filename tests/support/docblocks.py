"""The fenced blocks of the documents, and what each asks for.

Every fence names its language. `python` is a program and `console` a session; both are run, block after block, in one
folder for each page. A comment in front of a block, unseen by the reader, says what else there is to it:

    <!-- as: first.py -->       this program is a file of that name, which a console block below it runs
    <!-- first: CODE -->        what precedes the program where it is run: names that the page takes for granted
    <!-- then: CODE -->         what follows the program where it is run: the call that the page leaves out, and checks
    <!-- shown from: PATH -->   not run: these lines stand, as they are and in this order, in that file of the tree
    <!-- not run: WHY -->       neither run nor compared
    <!-- needs: linux 6.15 -->  what is shown takes such a kernel; `module NAME`: such a module of Python
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

DIRECTIVES = ("as", "first", "then", "shown from", "not run", "needs")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
_COMMENT = re.compile(r"<!--\s*([a-z ]+):((?:(?!-->).)*)-->\s*\Z", re.S)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int  # of its fence
    language: str
    text: str
    directives: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        before, directives = text[: match.start()], {}
        while (comment := _COMMENT.search(before)) is not None and comment[1].strip() in DIRECTIVES:
            directives[comment[1].strip()] = comment[2].strip("\n").rstrip()
            before = before[: comment.start()]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, match["language"].strip(), match["text"], directives))
    return found


def session(text: str) -> list[tuple[str, list[str]]]:
    """Commands of a console block, each with the lines that it is shown to print. A command ends in `\\` to go on."""
    steps: list[tuple[str, list[str]]] = []
    goes_on = False
    for line in text.splitlines():
        if goes_on:
            steps[-1] = (f"{steps[-1][0]}\n{line}", [])
        elif line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            assert steps, f"{line!r} stands before the first command"
            steps[-1][1].append(line)
        goes_on = (goes_on or line.startswith("$ ")) and line.endswith("\\")
    return steps


def in_general(line: str) -> str:
    """A line without what is another on each machine and in each run: figures, bars, hosts, spaces. A figure stays a
    figure: `n/a` in its place is another line."""
    line = re.sub(r"[\w.-]+:\d+\b", "PLACE:#", line)
    line = re.sub(r"[█▉▊▋▌▍▎▏]+", " ", line)
    line = re.sub(r"\b\d{8}T\d{6}-[0-9a-f]{6}\b", "RUN", line)
    line = re.sub(r"(?<![\w.])<?\d[\d,.]*(?:ns|us|µs|ms|s|m|h|%|x)?(?![\w])", "#", line)
    line = re.sub(r"#(?: #)*(?= |$|[):,])", "#", line)
    return " ".join(line.split())


def missing_line(shown: list[str], printed: list[str]) -> str | None:
    """The first line that is shown and not printed. Shown lines are printed in their order; others may stand between
    (a page shows a part, and a loaded machine adds findings)."""
    rest = iter(in_general(line) for line in printed)
    for line in shown:
        wanted = in_general(line)
        if wanted in ("", "...", "…"):
            continue
        if not any(is_line(wanted, got) for got in rest):
            return line
    return None


def is_line(wanted: str, got: str) -> bool:
    """The same, or cut at the right: how much of a source fits depends on how wide the figures before it are."""
    return wanted == got or (got.endswith("...") and len(got) > 12 and wanted.startswith(got[:-3].rstrip()))
