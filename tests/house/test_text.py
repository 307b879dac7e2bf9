"""Committed text holds nothing of the machine it was written on, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from lptest import ROOT


def files_of_the_tree() -> list[Path]:
    """What is committed, or would be: tracked and untracked files that git does not ignore."""
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / name.decode() for name in out.stdout.split(b"\0") if name]
    return sorted(p for p in paths if p.is_file() and not p.is_symlink())


FILES = files_of_the_tree()
TEXTS = [p for p in FILES if p.relative_to(ROOT).parts[:2] != ("tests", "data")]
# Written in pieces, or this file would find itself.
HOSTS = ["py" + "pi.org", "python" + "hosted", "deb." + "debian.org", "local" + "host:"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_path_of_a_machine() -> None:
    pattern = re.compile(r"(?<![\w.~}])/(?:" + "|".join(["wo" + "rk", "ho" + "me", "ro" + "ot", "fa" + "rm"]) + r")/\w")
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_registry_host() -> None:
    found = [f"{name_of(p)}: {h}" for p in TEXTS for h in HOSTS if h in p.read_text(encoding="utf-8")]
    assert not found, "\n".join(found)


def test_everything_is_text_and_nothing_is_generated() -> None:
    for path in TEXTS:
        assert b"\0" not in path.read_bytes(), f"{name_of(path)} is binary"
    unwanted = {".so", ".o", ".a", ".pyc", ".whl", ".pb", ".snap"}
    assert not [name_of(p) for p in TEXTS if p.suffix in unwanted or p.name.endswith(("_pb2.py", "_pb2.pyi"))]


MARKDOWN = [p for p in FILES if p.suffix == ".md"]


@pytest.mark.parametrize("path", MARKDOWN, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (path.parent / name).resolve() if name else path
        assert place.exists(), f"{target} does not exist"
        if anchor and place.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}
            assert anchor in anchors, f"{target}: no such heading"
