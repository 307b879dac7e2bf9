"""The build description says what is there: no source forgotten, no pin written twice and differently."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from lptest import ROOT

LAYERS = sorted(p.parent.name for p in (ROOT / "src").glob("*/meson.build"))


def quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", re.sub(r"#.*", "", text))


def block(path: Path, opening: str, closing: str) -> str:
    text = path.read_text(encoding="utf-8")
    start = text.index(opening) + len(opening)
    return text[start : text.index(closing, start)]


@pytest.mark.parametrize("layer", LAYERS)
def test_every_source_is_built(layer: str) -> None:
    folder = ROOT / "src" / layer
    listed = quoted(block(folder / "meson.build", f"{layer}_sources = files(", "\n)"))
    # A program's main() is no part of its library: the extension has the library without it.
    there = sorted(p.name for p in folder.glob("*.c") if p.name != "main.c")
    assert sorted(listed) == there
    assert len(listed) == len(set(listed))


def test_every_c_test_runs() -> None:
    listed = quoted(block(ROOT / "tests/c/meson.build", "c_tests = [", "\n]"))
    assert sorted(listed) == sorted(p.stem.removeprefix("test_") for p in (ROOT / "tests/c").glob("test_*.c"))


def test_every_fuzz_target_is_built() -> None:
    listed = quoted(block(ROOT / "tests/fuzz/meson.build", "fuzz_targets = [", "\n]"))
    assert sorted(listed) == sorted(p.stem.removeprefix("fuzz_") for p in (ROOT / "tests/fuzz").glob("fuzz_*.c"))


def test_build_requirements_agree() -> None:
    lines = (ROOT / "tools/requirements-build.txt").read_text().splitlines()
    pinned = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    declared = set(re.findall(r'"([^"]+)"', block(ROOT / "pyproject.toml", "requires = [", "]")))
    assert declared == pinned


@pytest.mark.parametrize(
    "name",
    [
        "tools/requirements-build.txt",
        "tools/requirements-check.txt",
        "tests/requirements.txt",
        "tests/requirements-clients.txt",
        "tests/requirements-clients-heavy.txt",
        "examples/requirements.txt",
        "tools/requirements-wheel.txt",
        "tools/requirements-docs.txt",
    ],
)
def test_every_requirement_is_pinned_and_explained(name: str) -> None:
    explained = (ROOT / "docs/dependencies.md").read_text()
    for line in (ROOT / name).read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([a-z0-9-]+)==[\d.]+", line.strip())
        assert match, f"{line!r} is not pinned"
        assert f"`{match[1]}`" in explained, f"{match[1]} has no line in docs/dependencies.md"


def test_every_folder_of_tests_is_run() -> None:
    """A folder that `make test` does not know is a suite that nobody runs."""
    listed = quoted(block(ROOT / "tools/run_tests.py", "\nSUITES = [", "]").replace('"', "'"))
    there = {p.parent.name for p in (ROOT / "tests").glob("*/test_*.py")}
    assert sorted(listed) == sorted(there)


def test_version_is_written_once() -> None:
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())
    assert version is not None
    project = block(ROOT / "pyproject.toml", "[project]", "[project.scripts]")
    assert 'dynamic = ["version"]' in project
    assert not re.search(r"^version\s*=", project, re.M)
    assert version[1] in (ROOT / "CHANGELOG.md").read_text()


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.M)
    assert phony is not None
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  make (\S+)", shown, re.M)
    assert sorted(listed) == sorted(phony[1].split())
    assert set(listed) >= {"demo", "test", "check", "bench", "fuzz", "sanitize", "matrix", "format"}
