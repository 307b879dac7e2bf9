"""The worked examples are programs whose figures are known before they run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from lptest import ROOT, environment, lineprofiler, phases_of, report_json, run_process, tells_how

ITERATIONS = 2000
ACTORS = 4
RECORDS = 4000
RECORD_BYTES = 4096


def run_example(name: str, run_dir: Path) -> str:
    done = run_process([sys.executable, "-W", "error", str(ROOT / "examples" / f"{name}.py"), str(run_dir)])
    return done.expect().stdout


@pytest.fixture(scope="module")
def mcts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("mcts") / "run"
    assert "best first move by actor:" in run_example("mcts", run_dir)
    return run_dir


@pytest.fixture(scope="module")
def mcts_document(mcts: Path) -> dict[str, Any]:
    return report_json(mcts)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("copies") / "run"
    assert f"copied {RECORDS} records twice; all copies are equal" in run_example("copy_pipeline", run_dir)
    return run_dir


def test_mcts_has_every_process(mcts_document: dict[str, Any]) -> None:
    """Two forked actors that left by os._exit, two spawned ones, and the learner."""
    assert mcts_document["run"]["processes"] == ACTORS + 1
    assert {r["role"]: r["processes"] for r in mcts_document["roles"]} == {"actor": ACTORS, "learner": 1}
    assert mcts_document["caveats"]["unreadable"] == []
    assert len({w["pid"] for w in mcts_document["workers"]}) == ACTORS + 1


def test_mcts_entries_follow_the_algorithm(mcts_document: dict[str, Any]) -> None:
    phases = phases_of(mcts_document, "actor")
    for name in ("iteration", "iteration/select", "iteration/expand", "iteration/rollout", "iteration/backpropagate"):
        assert phases[name]["calls"] == ITERATIONS * ACTORS, name
    depth = phases["iteration/select"]["counters"]["tree_depth"]
    assert phases["iteration/select/score_children"]["calls"] == depth
    assert phases["iteration/select/descend"]["calls"] == depth
    assert phases["iteration/select/score_children"]["counters"]["children_scored"] == 8 * depth
    # One node an iteration and at most 8^d nodes at depth d: no search can be shallower than one that fills its levels,
    # 8 iterations of depth 0, 64 of 1, 512 of 2, the rest of 3.
    assert depth >= ACTORS * (64 + 2 * 512 + 3 * (ITERATIONS - 584))


def test_mcts_times_add_up(mcts_document: dict[str, Any]) -> None:
    phases = phases_of(mcts_document, "actor")
    for parent, children in (
        ("iteration", ("select", "expand", "rollout", "backpropagate")),
        ("iteration/select", ("score_children", "descend")),
    ):
        inside = sum(phases[f"{parent}/{child}"]["wall_ns"] for child in children)
        # Ticks become ns once for each node: a rounding of 1 ns a node and process at the most.
        assert phases[parent]["wall_ns"] - inside == pytest.approx(phases[parent]["self_ns"], abs=ACTORS * 8)
        assert phases[parent]["self_ns"] >= 0
    for phase in phases.values():
        assert phase["wall_ns"] > 0
        assert 0 <= phase["wait_ns"] <= phase["wall_ns"]


def test_mcts_learner_waits(mcts_document: dict[str, Any]) -> None:
    """It has nothing to do until an actor sends something, and the queue is a pipe: blocked, not starved."""
    phases = phases_of(mcts_document, "learner")
    batches = ACTORS * ITERATIONS // 250
    assert phases["step"]["calls"] == batches + ACTORS
    assert phases["step/queue_get"]["calls"] == batches + ACTORS
    assert phases["step/train"]["calls"] == batches
    assert phases["step/train"]["counters"]["samples"] == ACTORS * sum(range(250, ITERATIONS + 1, 250))
    get = phases["step/queue_get"]
    assert get["wait_ns"] > 0.5 * get["wall_ns"]


def test_mcts_text_shows_the_shape(mcts: Path) -> None:
    text = lineprofiler("report", mcts).expect().stdout
    assert f"ACTOR  ({ACTORS} processes" in text or f"ACTOR  {ACTORS} processes" in text
    assert "children_scored" in text
    assert "always 8" in text
    assert "queue_get" in text


def test_mcts_is_deterministic(mcts_document: dict[str, Any], tmp_path: Path) -> None:
    run_example("mcts", tmp_path / "again")
    first, again = (phases_of(d, "actor") for d in (mcts_document, report_json(tmp_path / "again")))
    assert {n: (p["calls"], p["counters"]) for n, p in first.items()} == {
        n: (p["calls"], p["counters"]) for n, p in again.items()
    }


def test_copies_entries_and_bytes(copies: Path) -> None:
    document = report_json(copies)
    assert {r["role"]: r["processes"] for r in document["roles"]} == {"copier": 2, "producer": 1}
    phases = phases_of(document, "copier")
    assert phases["per_item/copy_one"]["calls"] == RECORDS
    assert phases["batched/read_batch"]["calls"] == phases["batched/write_batch"]["calls"] == RECORDS // 250
    assert phases["per_item"]["counters"]["records"] == RECORDS
    assert phases["batched"]["counters"]["records"] == RECORDS
    payload = RECORDS * RECORD_BYTES
    written = phases["batched/write_batch"]["counters"]
    assert written["io_write_chars"] == payload
    assert written.get("io_read_chars", 0) == 0 or written["io_read_chars"] < payload / 100
    assert phases["batched/read_batch"]["counters"]["io_read_chars"] >= payload
    # copyfile uses sendfile, copy_file_range or read and write, whichever the platform has. Where the kernel accounts
    # the copy at all, it is the payload.
    copied = phases["per_item/copy_one"]["counters"]
    assert copied["io_write_chars"] >= payload
    produced = phases_of(document, "producer")["write_records"]
    assert produced["counters"]["io_write_chars"] >= payload
    assert produced["counters"]["records"] == RECORDS


def test_copies_text_names_the_bytes(copies: Path) -> None:
    text = lineprofiler("report", copies).expect().stdout
    assert "I/O BY PHASE (measured exactly)" in text
    assert "per_item/copy_one" in text
    assert "always 250" in text
    assert "15.6 MB" in text


def test_report_json_is_json_with_the_hidden_option_too(copies: Path) -> None:
    documents = [
        json.loads(lineprofiler("report", copies, *how).expect().stdout) for how in (["--json"], ["--format", "json"])
    ]
    assert [d["run"]["processes"] for d in documents] == [3, 3]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("killed") / "run"
    assert "exit codes of the workers: [0, 0, -9]" in run_example("killed_worker", run_dir)
    return run_dir


def test_the_killed_worker_is_in_the_report_and_named(killed: Path) -> None:
    """Forty steps each but for the one that was killed in its twentieth, inside `step/backward`."""
    document = report_json(killed)
    phases = phases_of(document, "worker")
    entries = {name: phase["calls"] for name, phase in phases.items()}
    assert entries == {"step": 99, "step/load": 100, "step/forward": 100, "step/backward": 99}
    assert phases["step/load"]["counters"]["samples"] == 64 * 100
    (dead,) = [w for w in document["workers"] if w["state"] == "died"]
    assert dead["role"] == "worker"
    assert [each["path"] for each in dead["open"]] == [["step"], ["step", "backward"]]
    assert [w["pid"] for w in document["caveats"]["died_inside"]] == [dead["pid"]]
    text = lineprofiler("report", killed, env=environment(COLUMNS="120")).expect().stdout
    assert "1 of 4 worker(s) died inside a phase" in text
    how = "SIGKILL after" if dead["exit_code"] == -9 else "after"
    assert re.search(rf"^  \S+:{dead['pid']} worker  {how} [^,]+, .*inside step/backward$", text, re.M), text


@pytest.mark.skipif(not tells_how(), reason="kernel < 6.15 tells nobody but the parent")
def test_how_the_worker_was_killed(killed: Path) -> None:
    assert [(w["exit_code"], w["end"]) for w in report_json(killed)["caveats"]["died_inside"]] == [(-9, "SIGKILL")]


def test_lines_of_the_search_show_its_four_parts() -> None:
    """Lines of one part are hit equally often; the numbers follow from each other."""
    example = str(ROOT / "examples" / "mcts_loop.py")
    out = run_process([sys.executable, "-W", "error", example]).expect().stdout
    hits = {}
    for line in out[out.index("uct_search  ") :].splitlines():
        cells = line.split(None, 6)
        if len(cells) == 7 and cells[0].isdigit() and cells[1].replace(",", "").isdigit():
            source = cells[6].split("  #")[0].lstrip("█▌ ")
            hits[source.split(" = ")[0]] = int(cells[1].replace(",", ""))
    assert hits["explore"] == hits["exploit"] == hits["score"] == hits["if score > best_score:"]
    # Each of the eight children is looked at, and the loop is left once for each step down.
    assert hits["for child in node.children:"] == hits["explore"] * 9 // 8
    assert "best first move: " in out
