"""Every block of code in the documents is run as it stands, or says why not."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docblocks import Block, blocks_of, in_general, missing_line, session
from lptest import LIMIT_S, ROOT, environment

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
PAGES += [ROOT / "benchmarks" / "README.md", ROOT / "examples" / "README.md"]
LANGUAGES = {"python", "console", "toml", "text", "c", "protobuf"}
RUN = ("python", "console")
WITH_BLOCKS = [page for page in PAGES if page.exists() and any(b.language in RUN for b in blocks_of(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def is_run(block: Block) -> bool:
    return block.language in RUN and "not run" not in block.directives


def lacks(block: Block) -> bool:
    kind, wanted = block.directives.get("needs", "linux 0.0").split()
    if kind == "module":
        return importlib.util.find_spec(wanted) is None
    here = platform.release().split("-")[0].split(".")[:2]
    return [int(n) for n in here] < [int(n) for n in wanted.split(".")]


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{environment()['PATH']}"
    env = environment(PATH=path, LC_ALL="C.UTF-8", COLUMNS="80", PYTHONWARNINGS="error", PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run(
        ["bash", "-c", f"set -e; {command}"],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT_S,
        check=False,
    )


def play_program(block: Block, folder: Path) -> None:
    name = block.directives.get("as", "").strip() or f"block_{block.line}.py"
    # A program with a name of its own is run where the page says so.
    parts = [block.directives.get("first"), block.text, block.directives.get("then")]
    (folder / name).write_text("\n".join(part for part in parts if part), encoding="utf-8")
    if "as" not in block.directives:
        done = shell(f"python {name}", folder)
        assert done.returncode == 0, f"{block}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"


def play_session(block: Block, folder: Path) -> None:
    for command, shown in session(block.text):
        done = shell(command, folder)
        assert done.returncode == 0, f"{block}: {command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        missing = missing_line(shown, done.stdout.splitlines())
        assert missing is None, f"{block}: {command}: not printed: {missing!r}; printed:\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    # What a page says of the tree's own examples is said from the root of the tree.
    for name in ("examples", "proto"):
        (tmp_path / name).symlink_to(ROOT / name)
    blocks = [b for b in blocks_of(page) if is_run(b)]
    for block in blocks:
        if lacks(block):
            pytest.skip(f"{block} needs{block.directives['needs']}")
        if block.language == "python":
            play_program(block, tmp_path)
        else:
            play_session(block, tmp_path)


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language in LANGUAGES, f"{block}: the fence names no language that we know: {block.language!r}"
        told = [d for d in ("not run", "shown from") if block.directives.get(d, "").strip()]
        assert is_run(block) or told, f"{block}: is not run and does not say why"
        if name := block.directives.get("as", "").strip():
            run = "".join(b.text for b in blocks_of(page) if b.language == "console" and b.line > block.line)
            assert name in run, f"{block}: nothing runs {name}"


SHOWN = [b for page in PAGES if page.exists() for b in blocks_of(page) if "shown from" in b.directives]


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_shown_lines_are_those_of_the_file(block: Block) -> None:
    lines = iter((ROOT / block.directives["shown from"].strip()).read_text(encoding="utf-8").splitlines())
    for line in block.text.splitlines():
        assert line in ("", "…") or line in lines, f"{block}: {line!r}"


def test_every_document_is_among_the_pages() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {p for p in listed if "```" in (ROOT / p).read_text(encoding="utf-8")} <= set(map(name_of, PAGES))


def test_a_block_that_is_wrong_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- as: a.py -->\n\n```python\nprint('one', 12, 'ms')\n```\n"
        "```console\n$ python a.py\none 3 ms\n```\n```console\n$ echo 1.5ms \\\n    n/a\n2ms 3ms\n```\n"
    )
    program, good, bad = blocks_of(page)
    assert (program.directives, program.line, good.language) == ({"as": " a.py"}, 3, "console")
    play_program(program, tmp_path)
    play_session(good, tmp_path)
    with pytest.raises(AssertionError, match="not printed: '2ms 3ms'"):
        play_session(bad, tmp_path)
    with pytest.raises(AssertionError, match="exit 3"):
        play_session(Block(page, 1, "console", "$ exit 3\n"), tmp_path)
    page.write_text("```python\nassert False\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        play_program(blocks_of(page)[0], tmp_path)


def test_order_counts_and_figures_do_not() -> None:
    printed = ["a  12 1.5ms 3%", "between", "b 8,000 n/a", "node07:12 worker  SIGKILL after 1.2s"]
    assert missing_line(["a 1 2us <1%", "", "…", "b 1 n/a", "h:7 worker SIGKILL after 9ms"], printed) is None
    assert missing_line(["b 1 n/a", "a 1 2us 4%"], printed) == "a 1 2us 4%"
    assert missing_line(["b 1 2"], printed) == "b 1 2"
    assert missing_line(["5 10,001 13us 1ns 2.3 for i in range(n):"], ["5 9 1ms 13us 12 for i in ran..."]) is None
    assert missing_line(["5 10,001 13us 1ns 2.3 for i in range(n):"], ["5 9 1ms 13us 12 for n in ran..."]) is not None
    assert in_general("p50 1 of 4") != in_general("p95 1 of 4")
    assert shutil.which("bash") is not None
