"""The accounting code of the two documents, extracted and run as it stands.

The documents lie beside the checkout where the project is developed, not in it. A prelude supplies the names and
bodies that a snippet leaves out; what follows a snippet checks what it did.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from lptest import SPEC, environment, lineprofiler, phases_of, report_json, run_python

FIRST = SPEC / "000_db03852d19c27d26.txt"
LATER = SPEC / "001_f5008babdfdd0fe2.txt"

pytestmark = pytest.mark.skipif(
    not (FIRST.is_file() and LATER.is_file()), reason="the documents are not beside the checkout"
)

IMPORTS = """
import os, sys, warnings
from lineprofiler import accounting
from lineprofiler.accounting import Profiler
"""


def fenced(holding: str) -> str:
    """The one Python block of the first document that holds this text."""
    blocks = re.findall(r"^```python\n(.*?)^```$", FIRST.read_text(encoding="utf-8"), re.M | re.S)
    found = [b for b in blocks if holding in b]
    assert len(found) == 1, f"{len(found)} blocks hold {holding!r}"
    return found[0]


def between(first: str, last: str) -> str:
    """Lines of the later document, which has no fences: from the first that is `first` to the next that is `last`."""
    lines = LATER.read_text(encoding="utf-8").splitlines()
    starts = [n for n, line in enumerate(lines) if line == first]
    assert starts, f"no line is {first!r}"
    end = next(n for n in range(starts[0], len(lines)) if lines[n] == last)
    return "\n".join(lines[starts[0] : end + 1]) + "\n"


def play(tmp_path: Path, *parts: str, env: dict[str, str] | None = None) -> str:
    """Runs the parts as one program in an empty folder; its stderr."""
    code = "\n".join(textwrap.dedent(part) for part in parts)
    return run_python(code, cwd=tmp_path, env=env, options=("-W", "always")).expect().stderr


def test_actor_and_learner(tmp_path: Path) -> None:
    play(
        tmp_path,
        """
        steps, model = 25, bytes(300_000)
        def save(model):
            with open("model.bin", "wb") as out:
                out.write(model)
        """,
        fenced("# in each actor process"),
        env=environment(LINEPROFILER_RUN_ID="one-attempt"),
    )
    document = report_json(tmp_path / "profile")
    mcts = phases_of(document, "actor")["iteration/self_play/mcts"]
    assert (mcts["calls"], mcts["counters"]) == (25, {"mcts_simulations": 25 * 64})
    checkpoint = phases_of(document, "learner")["checkpoint"]
    assert (checkpoint["calls"], checkpoint["counters"]["io_write_chars"]) == (1, 300_000)


def test_installed(tmp_path: Path) -> None:
    play(tmp_path, fenced("# anywhere at all, with no argument threaded to it"), "for _ in range(3): uct_search(None)")
    mcts = phases_of(report_json(tmp_path / "profile"), "actor")["mcts"]
    assert (mcts["calls"], mcts["counters"]) == (3, {"simulations": 192})


def test_synchronised_forward(tmp_path: Path) -> None:
    play(
        tmp_path,
        IMPORTS,
        """
        profiler = Profiler(run_dir="profile", role="learner")
        batch, model = [1, 2, 3], sum
        """,
        fenced('profiler.phase("forward", sync=True)'),
        "assert logits == 6",
    )
    assert phases_of(report_json(tmp_path / "profile"), "learner")["forward"]["calls"] == 1


def test_sampled_select(tmp_path: Path) -> None:
    play(
        tmp_path,
        IMPORTS,
        'profiler = Profiler(run_dir="profile", role="actor")',
        fenced('profiler.phase("select", sample=0.01)'),
        """
        stats = profiler.merged_tree()[("select",)]
        assert (stats.calls, stats.sample_stride) == (300, 100), stats
        """,
    )
    text = lineprofiler("report", "profile/", cwd=tmp_path).expect().stdout
    # Other marks may stand beside it: an empty body is mostly our own cost.
    assert re.search(r"^[!†]*~ ?select", text, re.M)
    assert re.search(r"select\s+1 entry in 100", text)


def test_exporter(tmp_path: Path) -> None:
    play(
        tmp_path,
        """
        import time
        from lineprofiler import accounting

        class wandb:
            logged = []
            log = logged.append

        def Profiler(snapshot_interval_s, **options):
            assert snapshot_interval_s == 30.0
            return accounting.Profiler(snapshot_interval_s=0.1, **options)
        """,
        fenced("@profiler.on_snapshot"),
        """
        for _ in range(4):
            with profiler.phase("train"):
                time.sleep(0.01)
        end = time.monotonic() + 20
        def calls(): return sum(row.get("profile/train/calls", 0) for row in wandb.logged)
        while calls() < 4 and time.monotonic() < end:
            time.sleep(0.02)
        profiler.close()
        assert calls() == 4, wandb.logged
        for row in wandb.logged:
            assert row["profile/train/p50_ms"] >= 9.8 and 0.5 < row["profile/train/wait"] <= 1, row
        """,
    )


def test_assertions_on_a_run(tmp_path: Path) -> None:
    play(
        tmp_path,
        IMPORTS,
        """
        with Profiler(run_dir="profile", role="evaluator") as p:
            with p.phase("iteration"), p.phase("mcts"):
                pass
        """,
        fenced('assert "evaluator" in run.roles'),
        fenced("latest = max(w.written_at for w in run.workers)"),
        "assert run.tree[('iteration', 'mcts')].calls == 1 and len(run.workers) == 1",
    )


def test_close_before_os_exit(tmp_path: Path) -> None:
    play(
        tmp_path,
        IMPORTS,
        """
        profiler = Profiler(run_dir="profile", role="actor")
        with profiler.phase("work"):
            pass
        """,
        fenced("os._exit(0)"),
    )
    assert phases_of(report_json(tmp_path / "profile"), "actor")["work"]["calls"] == 1


def test_profiler_inside_a_test(tmp_path: Path) -> None:
    play(
        tmp_path,
        IMPORTS,
        fenced("def test_something(tmp_path):"),
        """
        import pathlib, signal, threading
        def state():
            handlers = [signal.getsignal(s) for s in signal.valid_signals()]
            return dict(os.environ), threading.active_count(), handlers
        before = state()
        test_something(pathlib.Path("inside").absolute())
        assert state() == before
        assert pathlib.Path("inside").is_dir()
        """,
    )


@pytest.mark.parametrize(
    "holding",
    [
        'Profiler(run_dir="profile", backend="torch", backend_window=(100, 110),',
        'backend="torch",              # or "viztracer"\n    backend_window',
    ],
)
def test_heavy_backend_is_accepted(tmp_path: Path, holding: str) -> None:
    stderr = play(tmp_path, IMPORTS, fenced(holding))
    assert stderr.count("Warning") == 1
    assert "backend" in stderr
    assert "asked for, not recorded" in lineprofiler("report", "profile/", cwd=tmp_path).expect().stdout


@pytest.mark.parametrize(
    ("first", "last", "word"),
    [
        ('Profiler(run_dir="profile", role="actor", trace=True)',) * 2 + ("trace",),
        ('Profiler(run_dir="profile", role="actor", annotate=True)',) * 2 + ("annotate",),
        (
            'Profiler(run_dir="profile", role="actor",',
            '         window_phase="iteration")   # ...the phase named "iteration"',
            "backend",
        ),
    ],
)
def test_later_options_are_accepted(tmp_path: Path, first: str, last: str, word: str) -> None:
    stderr = play(tmp_path, IMPORTS, between(first, last))
    assert stderr.count("Warning") == 1
    assert word in stderr


def test_plain_construction(tmp_path: Path) -> None:
    snippet = 'profiler = Profiler(run_dir="profile", role="learner")\n'
    assert f"```python\n{snippet}```" in FIRST.read_text(encoding="utf-8")
    play(tmp_path, IMPORTS, snippet, "with profiler.phase('work'): pass")
    document = report_json(tmp_path / "profile")
    assert document["run"]["roles"] == ["learner"]
    assert phases_of(document, "learner")["work"]["calls"] == 1


@pytest.mark.parametrize("on", [False, True])
def test_start_stop(tmp_path: Path, on: bool) -> None:
    snippet = between("from lineprofiler.accounting import start, stop", "stop()")
    env = environment(LINEPROFILER_PROFILE="1") if on else None
    play(tmp_path, snippet, env=env)
    assert (tmp_path / "profile").is_dir() is on
    if on:
        assert [w["role"] for w in report_json(tmp_path / "profile")["workers"]] == ["actor"]


MCTS_PRELUDE = """
import math, random
random.seed(3)

class Game:
    def __init__(self, board=()):
        self.board = board
    def moves(self):
        return list(range(8)) if len(self.board) < 6 else []
    def play(self, move):
        return Game((*self.board, move))
    def is_terminal(self):
        return len(self.board) == 6
    def reward(self):
        return float(sum(a < b for a, b in zip(self.board, self.board[1:])) >= 3)

class Node:
    def __init__(self, state, parent=None):
        self.state, self.parent, self.children = state, parent, []
        self.untried, self.visits, self.value = list(state.moves()), 0, 0.0
"""

MCTS_BODIES = """
def expand(node, state):
    if node.untried:
        state = state.play(node.untried.pop(random.randrange(len(node.untried))))
        child = Node(state, node)
        node.children.append(child)
        node = child
    return node, state

def rollout(state):
    plies = 0
    while not state.is_terminal():
        state = state.play(random.choice(state.moves()))
        plies += 1
    accounting.count("rollout_plies", plies)
    return state.reward()

def backpropagate(node, reward):
    while node is not None:
        node.visits += 1
        node.value += reward
        node = node.parent

uct_search(Game(), iterations=2000)
"""


def test_mcts(tmp_path: Path) -> None:
    # The document cuts the search into functions whose bodies it leaves out, then gives one of them.
    seams = between("from lineprofiler import accounting", "    return max(root.children, key=lambda n: n.visits)")
    select = between("def select(root, root_state, c=1.4):", "    return node, state")
    play(tmp_path, MCTS_PRELUDE, seams, select, MCTS_BODIES)
    phases = phases_of(report_json(tmp_path / "profile"), "actor")
    for name in ("iteration", "iteration/select", "iteration/expand", "iteration/rollout", "iteration/backpropagate"):
        assert phases[name]["calls"] == 2000, name
    depth = phases["iteration/select"]["counters"]["tree_depth"]
    assert (
        phases["iteration/select/score_children"]["calls"] == phases["iteration/select/descend"]["calls"] == depth > 0
    )
    assert phases["iteration/select/score_children"]["counters"]["children_scored"] == 8 * depth
    text = lineprofiler("report", "profile/", cwd=tmp_path).expect().stdout
    for shown in ("ACTOR", "DOMINANT PHASES", "select/score_children", "always 8", "Other", "ITERATIONS"):
        assert shown in text, text


def test_copy_pipeline(tmp_path: Path) -> None:
    functions = between("import shutil", '        accounting.count("records", len(chunk))')
    driver_start = 'profiler = Profiler(run_dir="profile", role="copier", install=True)'
    driver = between(driver_start, "profiler.close()")
    play(
        tmp_path,
        """
        from pathlib import Path
        from lineprofiler.accounting import Profiler
        src_dir, dst_dir = Path("src"), Path("dst")
        src_dir.mkdir()
        dst_dir.mkdir()
        for n in range(4000):
            (src_dir / f"{n:05d}").write_bytes(bytes(4096))
        """,
        functions,
        driver,
    )
    payload = 4000 * 4096
    phases = phases_of(report_json(tmp_path / "profile"), "copier")
    assert phases["per_item/copy_one"]["calls"] == 4000
    assert phases["batched/read_batch"]["calls"] == phases["batched/write_batch"]["calls"] == 16
    assert phases["batched/write_batch"]["counters"]["io_write_chars"] == payload
    assert phases["batched/read_batch"]["counters"]["io_read_chars"] >= payload
    assert phases["batched"]["counters"]["records"] == phases["per_item"]["counters"]["records"] == 4000
    text = lineprofiler("report", "profile/", cwd=tmp_path).expect().stdout
    for shown in ("COPIER", "I/O BY PHASE (measured exactly)", "batched/write_batch", "15.6 MB", "always 250"):
        assert shown in text, text
