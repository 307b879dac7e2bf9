"""The programs in docs/accounting.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lptest import ROOT, lineprofiler, run_python

TEXT = (ROOT / "docs" / "accounting.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", TEXT, re.M | re.S)


@pytest.mark.parametrize(("section", "program"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_program(section: str, program: str, tmp_path: Path) -> None:
    done = run_python(program, cwd=tmp_path, options=("-W", "error")).expect()
    assert (done.stdout, done.stderr) == ("", "")
    assert "Runtime" in lineprofiler("report", "profile", cwd=tmp_path).expect().stdout


def test_every_program_was_found() -> None:
    assert len(PROGRAMS) == TEXT.count("```python\n") >= 6


def test_every_exported_name_is_explained() -> None:
    from lineprofiler import accounting

    words = set(re.findall(r"\w+", TEXT))
    assert set(accounting.__all__) - words == set()
