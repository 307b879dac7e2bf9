"""What `pip install` puts on a user's disk is ours, all of it, and nothing else."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sysconfig
from pathlib import Path, PurePosixPath

import pytest
from lptest import ROOT

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture(scope="module")
def installed() -> importlib.metadata.Distribution:
    return importlib.metadata.distribution("lineprofiler")


@pytest.fixture(scope="module")
def extension(installed: importlib.metadata.Distribution) -> Path:
    return Path(str(installed.locate_file(f"lineprofiler/_lineprofiler{SUFFIX}")))


def test_wheel_holds_our_files_only(installed: importlib.metadata.Distribution) -> None:
    files = {PurePosixPath(str(f)) for f in installed.files or []}
    package = {f for f in files if not f.parts[0].endswith(".dist-info") and "__pycache__" not in f.parts}
    source = ROOT / "python"
    ours = {
        PurePosixPath(p.relative_to(source).as_posix())
        for p in source.rglob("*")
        if p.is_file() and p.name != "meson.build" and "__pycache__" not in p.parts
    }
    ours.add(PurePosixPath(f"lineprofiler/_lineprofiler{SUFFIX}"))
    ours.add(PurePosixPath("lineprofiler/lineprofiler-collector"))
    scripts = {f for f in package if f.parts[-2:-1] == ("bin",)}
    assert {f.name for f in scripts} == {"lineprofiler"}
    assert package - scripts == ours


def test_wheel_needs_nothing(installed: importlib.metadata.Distribution) -> None:
    assert [r for r in installed.requires or [] if "extra ==" not in r] == []
    assert installed.metadata["Requires-Python"] == ">=3.10"
    assert installed.metadata["License-Expression"] == "MIT"


def test_versions_agree(installed: importlib.metadata.Distribution) -> None:
    import lineprofiler

    written = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())
    assert written is not None
    assert installed.version == written[1] == lineprofiler.__version__


def test_extension_is_self_contained(extension: Path) -> None:
    text = subprocess.run(["readelf", "-d", str(extension)], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[([^\]]+)\]", text))
    system = r"lib(c|m|pthread|dl|rt)\.so\.\d+|ld-linux.*"
    # A build of `make sanitize` has its runtimes as well.
    sanitizers = r"lib(asan|ubsan)\.so\.\d+"
    assert [n for n in needed if not re.fullmatch(f"{system}|{sanitizers}", n)] == []
    assert "NODELETE" in text, "thread destructors and rseq_cs point into the library: it must never be unmapped"
    assert "RUNPATH" not in text
    assert "RPATH" not in text


def test_extension_exports_its_entry_only(extension: Path) -> None:
    text = subprocess.run(
        ["nm", "-D", "--defined-only", str(extension)], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in text.splitlines()}
    assert {n for n in names if not n.startswith(("__asan", "__ubsan", "__odr_asan"))} == {"PyInit__lineprofiler"}


def test_extension_leaves_nothing_unresolved(extension: Path) -> None:
    """The linker lets an extension's undefined symbols pass, since Python's own are; ours would fail at import."""
    if os.environ.get("TESTS_SANITIZED"):
        pytest.skip("a sanitizer's runtime resolves libc's names too")
    text = subprocess.run(["nm", "-D", "-u", str(extension)], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in text.splitlines()]
    weak = ("_ITM_", "__gmon_start__", "__cxa_finalize")
    assert [n for n in names if "@" not in n and not n.startswith(("Py", "_Py", *weak))] == []
