"""Text and JSON are two faces of one report: every figure of the text is in the document."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import snapfile
from lptest import environment, lineprofiler

COLUMNS = [
    *("entries", "self", "share", "wait", "blocked", "starved"),
    *("mean", "p50", "p95", "p99", "max", "errors"),
]


def ns(value: float | None) -> str:
    if value is None:
        return "n/a"
    for limit, scale, unit, digits in [
        (999.5, 1, "ns", 0),
        (999.95e3, 1e3, "us", 1),
        (999.95e6, 1e6, "ms", 1),
        (59.995e9, 1e9, "s", 2),
    ]:
        if value < limit:
            return f"{math.floor(value / scale * 10**digits + 0.5) / 10**digits:.{digits}f}{unit}"
    seconds = int(value / 1e9)
    return f"{seconds // 60}m {seconds % 60:02}s" if seconds < 3600 else f"{seconds // 3600}h {seconds // 60 % 60:02}m"


def whole(share: float | None) -> str:
    if share is None:
        return "n/a"
    return "<1%" if 0 < share < 0.005 else f"{math.floor(share * 100 + 0.5)}%"


def percent(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{math.floor(share * 1000 + 0.5) / 10:.1f}%"


def both(run: str, tmp_path: Path, width: int) -> tuple[str, dict[str, Any]]:
    snapfile.RUNS[run](tmp_path / "run")
    env = environment(COLUMNS=str(width), LC_ALL="C.UTF-8")
    text = lineprofiler("report", tmp_path / "run", "--all", env=env).expect().stdout
    return text, json.loads(lineprofiler("report", tmp_path / "run", "--json").expect().stdout)


def role_text(text: str, role: str) -> str:
    start = text.index(f"\n{role.upper()}  (")
    return text[start : text.index("\n\n", text.index("DOMINANT PHASES", start)) + 2]


@pytest.mark.parametrize("run", ["mcts", "copier", "troubled", "chain"])
def test_every_row_of_the_table(run: str, tmp_path: Path) -> None:
    text, document = both(run, tmp_path, 200)
    for role in document["roles"]:
        part = role_text(text, role["role"])
        table = part[part.index("DOMINANT PHASES") :].splitlines()
        assert table[0].split()[2:] == COLUMNS
        for phase in role["phases"]:
            if not phase["entered"]:
                continue
            rows = [line for line in table if re.match(rf"[~†!]*{re.escape(phase['phase'])}  ", line)]
            assert len(rows) == 1, phase["phase"]
            marks = re.match("[~†!]*", rows[0])
            assert marks is not None
            assert ("~" in marks[0], "†" in marks[0], "!" in marks[0]) == (
                phase["sampled"],
                phase["async"],
                not phase["trusted"],
            )
            figures = re.split(r"  +", rows[0])[1:]
            assert figures == [
                f"{phase['calls']:,}",
                ns(phase["self_ns"] + phase["open_self_ns"]),
                percent(phase["self_share"]),
                whole(phase["wait_share"]),
                whole(phase["blocked_share"]),
                whole(phase["starved_share"]),
                ns(phase["mean_ns"]),
                ns(phase["p50_ns"]),
                ns(phase["p95_ns"]),
                ns(phase["p99_ns"]),
                ns(phase["max_ns"]),
                f"{phase['errors']:,}",
            ]
            for name, stats in phase["counter_stats"].items():
                if name.startswith("io_"):
                    continue
                row = next(line for line in table[table.index(rows[0]) :] if line.startswith(f"    + {name} "))
                assert f" {stats['total']:,} " in row
                assert f"{ns(stats['ns_each'])}/ea" in row
                if stats["min"] == stats["max"]:
                    assert row.endswith(f" always {stats['min']}")
                else:
                    assert row.endswith(f"{stats['min']}..{stats['max']} p50 {stats['p50']:.0f} p95 {stats['p95']:.0f}")


@pytest.mark.parametrize("run", ["mcts", "copier", "troubled", "chain"])
@pytest.mark.parametrize("width", [80, 120])
def test_breakdown(run: str, width: int, tmp_path: Path) -> None:
    text, document = both(run, tmp_path, width)
    for role in document["roles"]:
        part = role_text(text, role["role"])
        breakdown = role["breakdown"]
        assert f"% of {ns(breakdown['total_ns'])}, " in part
        assert f"imbalance {role['imbalance']:.2f}" in part
        for row in breakdown["rows"]:
            end = rf"{re.escape(percent(row['share']))} +{re.escape(ns(row['wall_ns']))}\n"
            name = "Other" if row["phase"] is None else row["phase"].split("/")[-1]
            assert re.search(rf"{re.escape(name)} .*{end}", part), row
        if not breakdown["levels"] and not breakdown["overlapping"]:
            assert sum(row["share"] for row in breakdown["rows"]) == pytest.approx(1.0)


@pytest.mark.parametrize("width", [64, 80, 120, 200])
@pytest.mark.parametrize("run", list(snapfile.RUNS))
def test_no_line_is_wider_than_the_page(run: str, width: int, tmp_path: Path) -> None:
    import unicodedata

    def columns(line: str) -> int:
        return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)

    text, _ = both(run, tmp_path, width)
    assert max(columns(line) for line in text.splitlines()) <= width
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_names_come_back_exactly(tmp_path: Path) -> None:
    _, document = both("hostile", tmp_path, 80)
    assert document["roles"][0]["role"] == "rol\x1b[2Je\n"
    names = {tuple(p["path"]) for p in document["roles"][0]["phases"]}
    for name in ("two\nlines", "nul\0byte", "lone \udcff surrogate", "漢字のフェーズ", "🔥 fire", "a" * 200):
        assert ("outer", name) in names
    raw = lineprofiler("report", tmp_path / "run", "--json").expect().stdout
    assert raw.isascii()
    assert "<" not in raw


def test_keys_of_the_followed_package(tmp_path: Path) -> None:
    _, document = both("mcts", tmp_path, 80)
    assert {"run", "roles", "workers", "caveats", "machine"} <= document.keys()
    run = document["run"]
    assert {"run_id", "source", "hosts", "processes", "roles", "runtime_s", "imbalance"} <= run.keys()
    assert isinstance(run["runtime_s"], float)
    phase = document["roles"][0]["phases"][0]
    integers = ("calls", "wall_ns", "cpu_ns", "self_ns", "wait_ns")
    assert all(type(phase[key]) is int for key in integers)
    assert all(type(phase[key]) is float for key in ("p50_ns", "p99_ns"))
    assert all(type(v) is int for p in document["roles"][1]["phases"] for v in p["counters"].values())
    selfs = [p["self_ns"] for p in document["roles"][0]["phases"]]
    assert selfs == sorted(selfs, reverse=True)
    worker = document["workers"][0]
    assert {"pid", "role", "host", "rank", "started_at", "written_at", "wall_ns", "write_failures"} <= worker.keys()
    assert {"unreadable", "superseded", "stale", "unclean"} <= document["caveats"].keys()
    host = document["machine"]["capacity_by_host"]["node07"]
    assert {"cpu_cores", "cpu_threads", "cpu_affinity", "ram_total", "gpus"} == host.keys()


def test_every_number_is_finite(tmp_path: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    for run, write in snapfile.RUNS.items():
        write(tmp_path / run)
        raw = lineprofiler("report", tmp_path / run, "--json").expect().stdout
        json.loads(raw, parse_constant=refuse)


def estimated_children(run: Path) -> None:
    """100 of 1,000 entries were measured, of which some were long: their sum exceeds what was measured around them."""
    worker = snapfile.Worker(elapsed=2 * snapfile.SECOND)
    worker.phase("loop", 1, snapfile.SECOND, snapfile.SECOND)
    worker.phase("loop/step", 1000, snapfile.MS, 2 * snapfile.MS, flags=1, stride=10)
    worker.phase("loop/load", 10, snapfile.MS, snapfile.MS)
    worker.write(run)
    chain = snapfile.Worker("chain", pid=2, elapsed=2 * snapfile.SECOND)
    chain.phase("loop", 1, snapfile.SECOND, snapfile.SECOND)
    chain.phase("loop/step", 1000, snapfile.MS, 2 * snapfile.MS, flags=1, stride=10)
    chain.write(run)


def test_estimated_children_do_not_overlap_and_leave_an_estimate(tmp_path: Path) -> None:
    estimated_children(tmp_path / "run")
    text = lineprofiler("report", tmp_path / "run", env=environment(COLUMNS="160", LC_ALL="C.UTF-8")).expect().stdout
    document = json.loads(lineprofiler("report", tmp_path / "run", "--json").expect().stdout)
    assert "overlap" not in text
    assert "(first branching level); its children are estimated, and add up to more" in text
    assert "each level lies within the one above, but for what is estimated" in text
    rows = {
        line.split()[0]: line.split() for line in text.splitlines() if line.startswith(("loop ", "~loop/", "loop/"))
    }
    assert rows["loop"][2] == "~0ns"
    assert rows["~loop/step"][2] == "1.50s"
    assert rows["loop/load"][2] == "10.0ms"
    roles = {role["role"]: role for role in document["roles"]}
    phases = {phase["phase"]: phase for phase in roles["main"]["phases"]}
    assert [phases[name]["self_estimated"] for name in ("loop", "loop/step", "loop/load")] == [True, True, False]
    assert [roles[name]["breakdown"]["estimated"] for name in ("main", "chain")] == [True, True]
    top = lineprofiler("top", "--once", tmp_path / "run").expect().stdout
    assert re.search(r"^  loop .* ~0ns$", top, re.M), top


def test_a_role_without_a_name(tmp_path: Path) -> None:
    """It is an empty text, and seen as one wherever roles stand."""
    dead = snapfile.Worker("", "node07", 1, final=False, unclean=True)
    dead.phase("step", 40, 1_000_000, 2_000_000)
    dead.phase("copy", 40, 1_000_000, 2_000_000, flags=4)
    dead.open = [(("step",), 5_000_000)]
    dead.write(tmp_path)
    other = snapfile.Worker("other", "node07", 2)
    other.phase("step", 40, 1_000_000, 2_000_000)
    other.write(tmp_path)
    text = lineprofiler("report", tmp_path, env=environment(LC_ALL="C.UTF-8")).expect().stdout
    assert re.search(r'Roles other x1, "" x1|Roles "" x1, other x1', text)
    assert '\n""  (1 process' in text
    assert '\n""\ncopy ' in text[text.index("I/O BY PHASE") :]
    assert re.search(r'\nstep +5\.0ms   "" node07:1\n', text)
    assert '\n  node07:1 ""  after ' in text
    assert re.search(r'(?m)^died node07:1 ""  ', lineprofiler("top", "--once", tmp_path).expect().stdout)


def test_caveats_of_a_path_of_two_roles(tmp_path: Path) -> None:
    """Each is named with its role; a path that is of one alone needs none."""
    for pid, role in enumerate(("actor", "learner", "")):
        worker = snapfile.Worker(role, "node07", pid + 1)
        worker.phase("walk", 40, 1_000_000, 2_000_000)
        worker.phase("walk/walk" if role else "walk/alone/alone", 40, 500_000, 1_000_000)
        worker.write(tmp_path)
    text = lineprofiler("report", tmp_path).expect().stdout
    found = re.findall(r"(?m)^WARNING +(.*) is nested in a phase of the same", text)
    assert sorted(found) == ["walk/alone/alone", "walk/walk of actor", "walk/walk of learner"]


@pytest.mark.parametrize("stride", [0, 10])
def test_bytes_that_are_scaled_are_not_exact(tmp_path: Path, stride: int) -> None:
    worker = snapfile.Worker()
    worker.phase(
        "copy", 400, 1_000_000, 2_000_000, flags=4, stride=stride, counters={"io_read_bytes": (40, 4096, 4096)}
    )
    worker.write(tmp_path)
    text = lineprofiler("report", tmp_path, env=environment(COLUMNS="64")).expect().stdout
    title = "I/O BY PHASE (measured exactly; ~ scaled from a sample)" if stride else "I/O BY PHASE (measured exactly)"
    assert f"\n{title}\n" in text
