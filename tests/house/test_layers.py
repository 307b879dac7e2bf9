"""The house's rules that a grep can check: which layer may see which, and what no layer may do to its host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lptest import ROOT

SRC = ROOT / "src"
SEES = {
    "core": {"core"},
    "store": {"core", "store"},
    "sample": {"core", "store", "sample"},
    "collector": {"core", "store", "sample", "collector"},
    "analysis": {"core", "store", "analysis"},
    "render": {"core", "store", "analysis", "render"},
    "cli": {"core", "store", "analysis", "render", "cli"},
    "python": {"sample", "core", "store", "analysis", "render", "cli", "collector", "python"},
}
SOURCES = sorted(p for p in SRC.rglob("*") if p.suffix in (".c", ".h"))
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]', re.M)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_comments(text: str) -> str:
    """C text with comments and the insides of literals blanked; newlines stay."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def includes(path: Path) -> list[tuple[str, str]]:
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def layer_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0]


def test_there_is_something_to_check() -> None:
    assert {layer_of(p) for p in SOURCES} >= {"core", "store", "analysis", "render", "cli", "python"}


def test_every_folder_of_src_is_a_layer() -> None:
    assert {p.name for p in SRC.iterdir() if p.is_dir()} <= set(SEES)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_arrows_point_down(path: Path) -> None:
    for kind, target in includes(path):
        if kind != '"':
            continue
        layer = target.split("/")[0] if "/" in target else layer_of(path)
        place = SRC / target if "/" in target else path.parent / target
        if target.startswith("lineprofiler.h"):
            continue  # the public header, which knows nobody
        assert layer in SEES[layer_of(path)], f"{name_of(path)} includes {target}"
        assert place.is_file(), f"{name_of(path)} includes {target}, which is not in the tree"


@pytest.mark.parametrize("path", [p for p in SOURCES if layer_of(p) != "python"], ids=name_of)
def test_no_python_below_the_extension(path: Path) -> None:
    assert not re.search(r"\bPy[A-Z_]\w*", without_comments(path.read_text(encoding="utf-8")))
    assert not [
        t for _, t in includes(path) if t in ("Python.h", "structmember.h") or t.startswith(("internal/", "pycore_"))
    ]


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name != "compat.h"], ids=name_of)
def test_python_versions_are_told_apart_in_compat_h_only(path: Path) -> None:
    text = without_comments(path.read_text(encoding="utf-8"))
    found = re.findall(r"\b(?:PY_VERSION_HEX|PY_M(?:AJ|IN)OR_VERSION|Py_GIL_DISABLED|Py_BUILD_CORE\w*)\b", text)
    assert not found, f"{name_of(path)}: {found}"
    assert not [t for _, t in includes(path) if t.startswith(("internal/", "pycore_"))]


# A recorder is a guest in the process: it ends nothing, handles no signal, starts no thread and no child.
FORBIDDEN = re.compile(
    r"\b(exit|_exit|_Exit|quick_exit|abort|raise|kill|tkill|signal|sigaction|pthread_create|thrd_create|"
    r"fork|vfork|system|popen|posix_spawnp?|exec[lv]p?e?|assert|Py_FatalError)\s*\("
)


# A command that takes the whole terminal is no guest: its process is its own, and puts the terminal back by any end.
TERMINAL = SRC / "cli/terminal.c"
GUESTS = [p for p in SOURCES if layer_of(p) != "collector" and p.name != "main.c" and p != TERMINAL]


def test_the_terminal_belongs_to_full_screen_commands() -> None:
    users = {name_of(p) for p in SOURCES if ('"', "cli/terminal.h") in includes(p)}
    assert users == {"src/cli/terminal.c", "src/cli/top.c"}


@pytest.mark.parametrize("path", GUESTS, ids=name_of)
def test_nothing_ends_or_changes_the_host(path: Path) -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for number, line in enumerate(without_comments(path.read_text(encoding="utf-8")).splitlines(), 1)
        if FORBIDDEN.search(line) and "_Static_assert" not in line and "static_assert" not in line
    ]
    assert not found, "\n".join(found)


# Commands write to a sink that they are given: inside the extension, stdout is Python's sys.stdout.
STDIO = re.compile(r"\b(printf|puts|putchar|fputs|fprintf|fputc|fwrite|perror|stdout|stderr)\b")


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name != "main.c"], ids=name_of)
def test_no_stdio(path: Path) -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for number, line in enumerate(without_comments(path.read_text(encoding="utf-8")).splitlines(), 1)
        if STDIO.search(line)
        and "#" not in line
        and "format(printf" not in line.replace(" ", "")
        and "__attribute__" not in line
    ]
    assert not found, "\n".join(found)


CODE = sorted(
    p
    for folder in ("src", "include", "python", "tests", "tools", "benchmarks", "examples")
    for p in (ROOT / folder).rglob("*")
    if p.suffix in (".c", ".h", ".py", ".pyi") and "__pycache__" not in p.parts
)


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_a_file_does_one_thing(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    limit = 600 if path.parent.name == "include" else 800
    assert lines <= limit, f"{lines} lines; {limit} is the limit"


@pytest.mark.parametrize("path", [p for p in CODE if p.suffix in (".c", ".h")], ids=name_of)
def test_a_file_says_what_it_is(path: Path) -> None:
    """At its head; a source whose header says it opens with that header."""
    text = path.read_text(encoding="utf-8")
    own_header = f'#include "{path.parent.name}/{path.stem}.h"'
    assert text.startswith(("/*", "//")) or (path.suffix == ".c" and text.startswith(own_header))


# Not in glibc 2.17, with which our wheels are linked; the kernel's numbers are there, and say ENOSYS where it is older.
YOUNG = re.compile(
    r"(?<![\w.>])(gettid|getrandom|statx|memfd_create|close_range|closefrom|pidfd_\w+|renameat2|copy_file_range|"
    r"explicit_bzero|reallocarray|strlcpy|strlcat|arc4random\w*|preadv2|pwritev2|getcpu|tgkill|execveat|fcntl64)\s*\("
)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_call_of_a_young_libc(path: Path) -> None:
    text = without_comments(path.read_text(encoding="utf-8"))
    found = [name for name in YOUNG.findall(text) if not re.search(rf"^[\w ]*\bstatic\b[^;\n]*\b{name}\(", text, re.M)]
    assert not found, f"{name_of(path)}: {', '.join(found)}: syscall(SYS_…) reaches further back"
