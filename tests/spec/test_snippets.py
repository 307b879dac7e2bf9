"""The accounting code of the two documents, extracted and run as it stands.

The documents lie beside the checkout where the project is developed, not in it. A prelude supplies the names and
bodies that a snippet leaves out; what follows a snippet checks what it did.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest
from lptest import SPEC, environment, lineprofiler, phases_of, report_json, run_process, run_python

FIRST = SPEC / "000_db03852d19c27d26.txt"
LATER = SPEC / "001_f5008babdfdd0fe2.txt"
TEACHING = SPEC / "004_ec7562b3e7f6c0ef.txt"

pytestmark = pytest.mark.skipif(
    not (FIRST.is_file() and LATER.is_file() and TEACHING.is_file()), reason="the documents are not beside the checkout"
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


# The line profiler. The documents' tables are of another machine: asserted are their shape, their hits, their order.


def rows_of(table: str) -> list[tuple[int, int, float, str]]:
    """(line, hits, percent, source) of the lines of one function's table."""
    found = []
    for line in table.splitlines():
        cells = line.split(None, 5)
        if len(cells) == 6 and cells[0].isdigit():
            found.append((int(cells[0]), int(cells[1]), float(cells[4]), cells[5].strip()))
    return found


def table_of(text: str, function: str) -> str:
    start = text.index(f"Function: {function} at line ")
    return text[start:].split("\n\n", 1)[0]


def test_first_line_profile(tmp_path: Path) -> None:
    program = between("from lineprofiler import LineProfiler", "profiler.print_stats()")
    (tmp_path / "example.py").write_text("# example.py\n" + program)
    out = run_process([sys.executable, "example.py"], cwd=tmp_path).expect().stdout
    assert f"File: {tmp_path / 'example.py'}\nFunction: slow_function at line 4\n" in out
    table = table_of(out, "slow_function")
    assert "Line #   Hits       Time (µs)       Per Hit (µs)    % Time     Line Content" in table
    rows = rows_of(table)
    # The two lines of the loop come first; which is first of them is the machine's affair.
    assert sorted(rows[:2])[0][:2] == (6, 1_000_001)
    assert sorted(rows[:2])[1][:2] == (7, 1_000_000)
    assert sorted(row[1:2] + row[3:] for row in rows[2:]) == [(1, "return total"), (1, "total = 0")]
    assert 95 < sum(row[2] for row in rows) <= 100.2  # four roundings to a tenth


def test_page_of_a_line_profile(tmp_path: Path) -> None:
    program = between("from lineprofiler import LineProfiler", "profiler.print_stats()")
    (tmp_path / "example.py").write_text(program + '\nprofiler.to_html("profile.html")\n')
    run_process([sys.executable, "example.py"], cwd=tmp_path).expect()
    assert "lineprofiler-data" in (tmp_path / "profile.html").read_text(encoding="utf-8")


def test_line_profile_of_the_search(tmp_path: Path) -> None:
    search = between(
        "def uct_search(root_state, iterations=2000, c=1.4):",
        "    return max(root.children, key=lambda n: n.visits)",
    )
    text = LATER.read_text(encoding="utf-8")
    start = text.index("from lineprofiler import LineProfiler", text.index("Wrap it and look:"))
    wrap = text[start : text.index("\n\nFunction: uct_search", start)] + "\n"
    assert "uct_search(Game(), iterations=2000)" in wrap
    (tmp_path / "mcts.py").write_text(textwrap.dedent(MCTS_PRELUDE) + search + wrap)
    out = run_process([sys.executable, "mcts.py"], cwd=tmp_path).expect().stdout
    rows = rows_of(table_of(out, "uct_search"))
    hits = {row[3]: row[1] for row in rows}
    scored = hits["score = exploit + explore"]
    assert next(n for text, n in hits.items() if text.startswith("exploit = ")) == scored > 10_000
    assert hits["node = root"] == hits["reward = state.reward()"] == 2000
    assert hits["node.visits += 1"] == hits["node.value += reward"] == hits["node = node.parent"]
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=True)


def test_top_lines_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "path/to/your/project").mkdir(parents=True)
    (tmp_path / "path/to/your/project/inside.py").write_text("def your_function():\n    return sum(range(1000))\n")
    program = "import sys\nsys.path.insert(0, 'path/to/your/project')\nfrom inside import your_function\n"
    (tmp_path / "main.py").write_text(program + fenced("profiler.print_global_top_stats(min_time_us=0.01, top_n=40)"))
    out = run_process([sys.executable, "main.py"], cwd=tmp_path).expect().stdout
    assert "Top 40 lines across all functions (sorted by time)" in out
    assert "inside.py::your_function" in out
    assert "return sum(range(1000))" in out


def test_script_of_the_teaching_page(tmp_path: Path) -> None:
    lines = TEACHING.read_text(encoding="utf-8").splitlines()
    start, end = lines.index("from pathlib import Path"), lines.index("profiler.print_stats()")
    script = "\n".join(lines[start : end + 1]) + "\n"
    assert script.count("from line_profiler import LineProfiler") == 1
    code = tmp_path / "content/episodes/code"
    code.mkdir(parents=True)
    (code / "wordcount.py").write_text(
        textwrap.dedent(
            """
            def normalize_slow(text):
                result = ""
                for character in text:
                    result += character.lower()
                return result.split()

            def make_workload(repetitions):
                return "To be or not " * repetitions

            def count_words(text):
                counts = {}
                for word in normalize_slow(text):
                    counts[word] = counts.get(word, 0) + 1
                return counts
            """
        )
    )
    (tmp_path / "line_profile_wordcount.py").write_text(script.replace("from line_profiler", "from lineprofiler"))
    out = run_process([sys.executable, "line_profile_wordcount.py"], cwd=tmp_path).expect().stdout
    assert out.startswith("Timer unit: 1e-09 s\n")
    assert "Function: normalize_slow at line 2\n" in out
    assert "Function: count_words at line 11\n" in out
    row = next(line for line in out.splitlines() if line.endswith("result += character.lower()"))
    assert row.split()[:2] == ["5", str(len("To be or not ") * 2000)]
