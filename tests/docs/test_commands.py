"""Help, manual pages, docs/commands.md and completion name the same commands, options and values."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from lptest import ROOT, commands, lineprofiler

Option = tuple[str, str, str]  # "o" or "", "--output", "PATH" or ""
PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
MAN = ROOT / "docs" / "man"
OF_ALL = {("h", "--help", ""), ("", "--version", "")}


COMMANDS = commands()


def of_help(command: str) -> set[Option]:
    text = lineprofiler(command, "--help").expect().stdout
    text = text[text.index("\noptions:\n") :]
    found = re.findall(r"^ {2}(?:-(\w), | {4})(--[\w-]+)(?: ([A-Z]+|[a-z]+(?:\|[a-z]+)+))?(?= {2,}|$)", text, re.M)
    assert len(found) == len(re.findall(r"^ {2}(?:-\w,| {3}) ?--?", text, re.M)), text
    return set(found) - OF_ALL


def of_page(command: str) -> set[Option]:
    section = re.search(rf"^## {command}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert section is not None, f"docs/commands.md has no section {command}"
    return set(re.findall(r"^- (?:`-(\w)`, )?`(--[\w-]+)(?: ([^`]+))?`: ", section[1], re.M))


def of_manual(command: str) -> set[Option]:
    text = (MAN / f"lineprofiler-{command}.1").read_text().replace("\\-", "-").replace("\\fR", "")
    body = text[text.index(".SH OPTIONS") : text.index(".SH EXIT STATUS")]
    found = set()
    for line in re.findall(r"^\.TP\n\.BI?R? (.*)$", body, re.M):
        plain = " ".join(line.replace('"', " ").split())
        match = re.fullmatch(r"(?:-(\w)(?: [A-Z]+)? ?, )?(--[\w-]+)(?: (\S+))?", plain)
        assert match, plain
        found.add((match[1] or "", match[2], match[3] or ""))
    return found


def choices_are_a_value(options: set[Option]) -> set[Option]:
    """Some help texts list the words of a value, some name it."""
    return {(letter, name, "FORMAT" if "|" in value else value) for letter, name, value in options}


def test_there_is_a_page_a_section_and_a_line_for_each() -> None:
    assert {p.stem for p in MAN.glob("*.1")} == {"lineprofiler", *(f"lineprofiler-{c}" for c in COMMANDS)}
    assert re.findall(r"^## (\w+)$", PAGE, re.M) == list(COMMANDS)
    listed = re.findall(
        r'^\.BR (\w+) ", see " lineprofiler-(\w+) \(1\)\n(.*)$', (MAN / "lineprofiler.1").read_text(), re.M
    )
    assert listed == [(name, name, summary) for name, summary in COMMANDS.items()]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^lineprofiler (\w+) ", readme, re.M)) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_the_same_everywhere(command: str) -> None:
    shown = of_help(command)
    assert of_page(command) == shown
    assert choices_are_a_value(of_manual(command)) == choices_are_a_value(shown)


@pytest.mark.parametrize("command", COMMANDS)
def test_usage_and_summary_are_the_same_everywhere(command: str) -> None:
    usage = re.search(r"usage: (.*)$", lineprofiler(command, "--help").expect().stdout, re.M)
    assert usage is not None
    section = PAGE[PAGE.index(f"\n## {command}\n") :]
    line = re.search(r"^`(lineprofiler .*?)`: (.*)$", section, re.M)
    assert line is not None
    assert line[1].replace("…", "...") == usage[1]
    assert line[2].startswith(COMMANDS[command].split(",")[0])


@pytest.mark.parametrize("command", COMMANDS)
def test_completion_knows_every_option_with_its_help(command: str) -> None:
    """fish's script has each on a line of its own, those of the commands in Python, too: their table is another one."""
    script = lineprofiler("completion", "fish").expect().stdout
    found = set()
    helped = lineprofiler(command, "--help").expect().stdout
    words = " ".join(helped.split())
    for line in re.findall(rf"^complete -c lineprofiler -n '__lineprofiler_in {command}' (.*)$", script, re.M):
        match = re.match(r"(?:-s (\w) )?-l ([\w-]+) (.*)-d '(.*)'$", line)
        if match is None or match[2] in ("help", "version"):
            continue
        found.add((match[1] or "", "--" + match[2], bool(re.search(r"-[rx] ", match[3]))))
        assert match[4].replace("'\\''", "'") in words, f"{command} {match[2]}: the texts differ"
        if choices := re.search(r"-x -a '([\w ]+)' ", match[3]):
            named = re.search(rf"--{match[2]} \S+ (.*?)(?= --? ?\w|$)", words)
            assert named is not None
            assert set(choices[1].split()) == set(re.findall(r"\w+", named[0])) & set(choices[1].split())
    assert found == {(letter, name, bool(value)) for letter, name, value in of_help(command)}


def test_arguments_of_the_profiler_are_those_of_the_page() -> None:
    from lineprofiler.accounting import Profiler

    text = (ROOT / "docs" / "accounting.md").read_text(encoding="utf-8")
    shown = re.search(r"^Profiler\((run_dir=None.*?)\)$", text, re.M | re.S)
    assert shown is not None
    parameters = inspect.signature(Profiler).parameters.values()
    assert re.split(r",\s+", shown[1]) == [f"{p.name}={p.default!r}" for p in parameters]


def test_the_manual_pages_are_well_formed(tmp_path: Path) -> None:
    """mandoc and man are not everywhere; what goes wrong by hand is a section or a name."""
    for page in sorted(MAN.glob("*.1")):
        text = page.read_text()
        assert text.startswith(f".TH {page.stem.upper()} 1\n.SH NAME\n{page.stem} \\- "), page.name
        sections = re.findall(r"^\.SH (.*)$", text, re.M)
        wanted = ["NAME", "SYNOPSIS", "COMMANDS" if page.stem == "lineprofiler" else "DESCRIPTION", "OPTIONS"]
        assert sections[:4] == wanted, page.name
        assert "EXIT STATUS" in sections, page.name
        assert len(sections) == len(set(sections)), page.name
        for name in re.findall(r"^\.BR (lineprofiler[\w-]*) \(1\)", text, re.M):
            assert (MAN / f"{name}.1").exists(), f"{page.name} names {name}(1)"
