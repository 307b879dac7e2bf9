"""Arithmetic, tables and the guard of the benchmarks: one that passes everything would be worthless."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from lptest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "benchmarks"))

import charts
import instructions
import measuring
import peers
import programs
import rows
import run
import ways
import writing
from envs import SetupError

sys.path.remove(str(ROOT / "benchmarks"))  # names too plain to be found by other tests

# --- intervals ---


@pytest.mark.parametrize("n", [2, 3, 5, 6, 7, 9, 12])
def test_the_interval_of_a_median_is_the_narrowest_that_is_likely_enough(n: int) -> None:
    """By counting: each round is above or below the true median, all 2^n patterns equally likely."""
    values = [10.0 * (i + 1) for i in range(n)]
    low, high, chance = measuring.order_interval(values[::-1])
    cut = values.index(low)
    assert high == values[n - 1 - cut]

    def holds(k: int) -> float:
        patterns = [sum(bits) for bits in itertools.product((0, 1), repeat=n)]
        return sum(k < below < n - k for below in patterns) / len(patterns)

    assert chance == pytest.approx(holds(cut), abs=1e-12)
    assert chance >= 0.95 or cut == 0
    if 2 * (cut + 1) < n:
        assert holds(cut + 1) < 0.95


def test_one_round_has_no_interval() -> None:
    assert measuring.order_interval([3.0]) == (3.0, 3.0, 0.0)
    assert measuring.spread([]) is None


def test_ratios_are_taken_round_by_round() -> None:
    series = measuring.Series(ours=[1.0, 2.0, 4.0], peer=[10.0, 40.0, 120.0])
    summary = series.summary()
    assert summary["ours"]["median"] == 2.0
    assert summary["peer/ours"]["median"] == 20.0
    assert (summary["peer/ours"]["low"], summary["peer/ours"]["high"]) == (10.0, 30.0)


# --- the guard ---


def test_more_than_a_tenth_more_instructions_fails() -> None:
    kept = {"phase": 290, "count": 100}
    same = instructions.compare("gcc", {"phase": 290, "count": 110}, kept)
    assert (same.failures, same.better) == ([], [])
    worse = instructions.compare("gcc", {"phase": 320, "count": 111}, kept)
    assert [f.split(":")[0] for f in worse.failures] == ["phase", "count"]
    lines, good = instructions.closing([worse])
    assert not good
    assert lines[-1] == "0 of 2 hot paths take no more instructions than are kept"
    assert instructions.table(instructions.compare("gcc", dict.fromkeys(instructions.WHAT, 200), kept))


def test_a_path_that_is_not_kept_or_not_measured_fails() -> None:
    assert instructions.compare("gcc", {"phase": 1, "new": 1}, {"phase": 1}).failures == ["new: no figure is kept"]
    assert instructions.compare("gcc", {}, {"phase": 1}).failures == ["phase: kept, but not measured"]


def test_another_compiler_is_named_and_a_gain_is_to_be_kept() -> None:
    lines, good = instructions.closing([instructions.compare("gcc 99", {"phase": 900}, None)])
    assert good
    assert lines[0] == "left out: no figures are kept for gcc 99 (--accept keeps these)"
    lines, good = instructions.closing([instructions.compare("gcc", {"phase": 200}, {"phase": 290})])
    assert good
    assert lines[0] == "gcc: fewer instructions: phase: 200 instructions, 290 are kept (--accept)"


def test_what_is_kept_is_every_path_of_the_program() -> None:
    source = (ROOT / "benchmarks/instructions.c").read_text()
    assert set(re.findall(r"^PATH\((\w+)\)", source, re.M)) == set(instructions.WHAT)
    for compiler, kept in instructions.json.loads(instructions.KEPT.read_text()).items():
        assert set(kept) == set(instructions.WHAT), compiler
        assert all(30 <= count <= 1000 for count in kept.values()), compiler


# --- tools and programs ---


def test_every_tool_is_pinned_and_every_pin_is_used() -> None:
    pinned = [line.split("#")[0].strip() for line in peers.REQUIREMENTS.read_text().splitlines()]
    names = {peers.name_of(line) for line in pinned if line}
    assert names == {way.needs for way in ways.WAYS if way.needs} | {needs for *_, needs in peers.TOOLS if needs}
    explained = (ROOT / "docs/dependencies.md").read_text()
    for path in (peers.REQUIREMENTS, programs.REQUIREMENTS):
        for line in filter(None, (line.split("#")[0].strip() for line in path.read_text().splitlines())):
            assert re.fullmatch(r"[a-z_-]+==[\d.]+", line), f"{line!r} is not pinned"
            assert f"`{peers.name_of(line)}`" in explained, line


def test_ways_are_told_apart_and_start_the_program() -> None:
    keys = [way.key for way in ways.WAYS]
    assert len(keys) == len(set(keys)) == len({way.tool for way in ways.WAYS})
    words = {"main": "m", "program": "sql", "modules": "sqlglot.a", "size": "1", "result": "r"}
    for way in ways.WAYS:
        assert way.command(Path("/v"), words)[-5:] == ["m", "sql", way.mode, "1", "r"]
        assert way is ways.BARE or way.leaves, f"{way.key} need not leave anything"


@pytest.mark.parametrize("program", programs.PROGRAMS)
def test_programs_name_their_package_and_their_hot_function(program: str) -> None:
    text = (ROOT / f"benchmarks/programs/program_{program}.py").read_text()
    assert f'PACKAGE = "{programs.PROGRAMS[program]}"' in text
    assert programs.hot_name(program).isidentifier()


WAY = ways.Way("a", "tool", "", "tools", ("{python}",), leaves="*.out", names_hot=True)


def judged(folder: Path, status: int = 0, late: bool = False) -> programs.Run:
    return programs.judged(WAY, "sql", folder, programs.Run(seconds=2.0), status, late)


def test_a_run_counts_only_if_the_tool_did_its_work(tmp_path: Path) -> None:
    (tmp_path / "output.txt").write_text("Traceback\n  File x\nValueError: no such option\n")
    assert judged(tmp_path, late=True).error == "took longer than 2 s"
    assert judged(tmp_path, status=1).error == "ended with 1: ValueError: no such option"
    assert judged(tmp_path).error.startswith("the program did not come to its end")
    (tmp_path / "result.json").write_text('{"work": 1.5, "found": "abc"}')
    (tmp_path / "empty.out").write_text("")
    assert judged(tmp_path).error.startswith("left no *.out")
    (tmp_path / "profile.out").write_text("something else")
    assert judged(tmp_path).error == "walk_in_scope is not in its result"
    (tmp_path / "profile.out").write_text("sqlglot walk_in_scope 12")
    good = judged(tmp_path)
    assert (good.error, good.work, good.found) == ("", 1.5, "abc")


def test_another_result_is_no_measurement() -> None:
    measured = programs.Measured()
    bare = programs.Run(seconds=1.0, work=0.5, found="abc")
    measured.add(programs.Run(seconds=3.0, work=1.0, found="abc"), bare)
    assert (measured.factors, measured.work_factors, measured.error) == ([3.0], [2.0], "")
    measured.add(programs.Run(seconds=1.0, work=0.5, found="abd"), bare)
    assert measured.error == "the program came to another result"
    assert not measured.wants(1)


def test_slow_tools_get_fewer_rounds() -> None:
    slow, quick = programs.Measured(factors=[9.0]), programs.Measured(factors=[2.0])
    assert [slow.wants(n) for n in range(5)] == [True, True, False, False, False]
    assert all(quick.wants(n) for n in range(5))


def test_every_order_of_a_round_has_every_tool() -> None:
    for number in range(8):
        assert sorted(w.key for w in programs.turned(list(ways.WAYS), number)) == sorted(w.key for w in ways.WAYS)


# --- tables and charts ---


def spread(value: float) -> dict[str, float] | None:
    return measuring.spread([value, 2 * value, 3 * value])


def document() -> dict[str, Any]:
    """Results as run.py has them: one tool fails, one program under it, too."""
    ok = {
        "error": None,
        **dict.fromkeys(("seconds", "factor", "work", "work_factor", "peak_mb", "left_mb"), spread(1.5)),
    }
    bad = {"error": "ended with 1: <why>", **dict.fromkeys(ok.keys() - {"error"})}
    found = {program: {way.key: ok for way in ways.WAYS} for program in programs.PROGRAMS}
    found["sql"] = {**found["sql"], "memray": bad}
    tools = {
        key: {"error": None, "events": {"call": spread(40.0)}, "to_ours": {"call": spread(3.0)}}
        for key, *_ in peers.TOOLS
    }
    tools["yappi"] = {"error": "fails: why", "events": {}, "to_ours": {}}
    figures: dict[str, Any] = {
        "programs": {"versions": {"memray": "1"}, "requirements": ["mistune==1"], "programs": found},
        "events": {"versions": {"memray": "1"}, "tools": tools},
    }
    facts = {"cpu": "c", "cpus": 2, "virtual": True, "kernel": "k", "clocksource": "t", "libc": "l", "compiler": "cc"}
    common = {"date": "d", "commit": "c", "quick": False, "seconds": 1.0, "load_average": [0.1, 0.2], "machine": facts}
    return {name: {"3.11.7": {**common, "peer": ["p==1"], "figures": each}} for name, each in figures.items()}


def test_what_failed_stands_in_the_tables_and_at_the_end() -> None:
    text = "\n".join("\n".join(writing.section_text(name, section)) for name, section in document().items())
    assert "| **ended with 1: <why>** |" in text
    assert "| yappi | fails: why |" in text
    assert writing.tools_that_failed(document()) == [
        "3.11.7 yappi, events: fails: why",
        "3.11.7 memray, sql: ended with 1: <why>",
    ]
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_readme_has_a_place_for_every_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = writing.TABLE.read_text()
    for name in run.SECTIONS:
        assert text.index(f"<!-- begin: {name}, written by run.py -->") < text.index(f"<!-- end: {name} -->")
    assert {*run.MEASURE, "instructions"} == set(run.SECTIONS)
    assert set(rows.BOUNDED) <= set(run.SECTIONS)
    copy = tmp_path / "README.md"
    copy.write_text(text)
    monkeypatch.setattr(writing, "TABLE", copy)
    writing.write_tables(document())
    once = copy.read_text()
    writing.write_tables(document())
    assert copy.read_text() == once
    assert once.count("| yappi | fails: why |") == 1


def test_charts_are_svg_with_a_bar_for_each_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "FOLDER", tmp_path)
    written = charts.write_charts(document())
    assert len(written) == len(programs.PROGRAMS) + 1
    for path in written:
        root = ElementTree.fromstring(path.read_text())
        texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
        names = (
            [w.tool for w in ways.WAYS[1:]]
            if path.name.startswith("program")
            else [n for _, n, *_ in peers.TOOLS if n != "yappi"]
        )
        assert [t for t in texts if t in names] == names
        for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
            assert float(bar.get("width", "-1")) > 0


def test_results_that_are_not_there_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RESULTS", ROOT / "benchmarks" / "no-results.json")
    with pytest.raises(SetupError, match=r"no-results.json: No such file"):
        writing.read_results()
