"""Help, manual pages and docs/report.md speak of the same options and keys."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import snapfile
from lptest import ROOT, commands, lineprofiler

COMMANDS = tuple(commands())


def options_of_help(command: str) -> set[str]:
    text = lineprofiler(command, "--help").expect().stdout
    return set(re.findall(r"^ {2}(?:-\w, | {4})(--[\w-]+)", text, re.M)) - {"--help", "--version"}


@pytest.mark.one_version
@pytest.mark.parametrize("command", COMMANDS)
def test_manual_pages_have_every_option(command: str) -> None:
    page = (ROOT / f"docs/man/lineprofiler-{command}.1").read_text().replace("\\-", "-")
    body = page[page.index(".SH OPTIONS") : page.index(".SH EXIT STATUS")]
    assert set(re.findall(r"--[\w-]+", body)) == options_of_help(command)
    summary = re.search(rf"^  {command} +(.*)$", lineprofiler("--help").expect().stdout, re.M)
    assert summary is not None
    assert f"lineprofiler-{command} - {summary[1]}\n" in page


@pytest.mark.one_version
def test_every_help_fits_80_columns() -> None:
    for words in ([], *([c] for c in COMMANDS)):
        text = lineprofiler(*words, "--help").expect().stdout
        assert max(map(len, text.splitlines())) <= 80


@pytest.mark.one_version
def test_docs_name_every_key(tmp_path: Path) -> None:
    snapfile.write_troubled(tmp_path / "run")
    document = json.loads(lineprofiler("report", tmp_path / "run", "--json").expect().stdout)
    named = set(re.findall(r"[a-z_0-9]+", (ROOT / "docs/report.md").read_text()))
    phase = document["roles"][0]["phases"][0]
    keys = [
        *document,
        *document["run"],
        *document["roles"][0],
        *phase,
        *next(p for p in document["roles"][0]["phases"] if p["counters"])["counter_stats"]["tree_depth"],
        *document["workers"][0],
        *document["open"][0],
        *document["caveats"],
    ]
    assert not [key for key in keys if key not in named]
