"""What the report must say of a program that playing.py plays: a model of plain Python, and random programs.

The model knows nothing of how recording is done. A process has stacks of open phases, one for each thread and task; an
entry belongs to the path of what is innermost when it begins; it is counted when it ends, however it ends.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from lpstage import Stage
from lptest import LIMIT_S
from playing import Body, Player

Path_ = tuple[str, ...]


class Ended(BaseException):
    """The process of the model is gone; nothing of what still unwinds changes it."""


@dataclass
class Figures:
    calls: int = 0
    errors: int = 0
    abandoned: int = 0
    submits: int = 0
    counters: dict[str, list[int]] = field(default_factory=dict)  # name: total, calls, least, most


@dataclass
class Entry:
    path: Path_
    submits: bool
    stack: Stack


@dataclass
class Stack:
    """Of one thread or task; `base` is what is open around its event loop."""

    thread: int
    base: Path_ = ()
    open: list[Entry] = field(default_factory=list)

    def path(self) -> Path_:
        return self.open[-1].path if self.open else self.base


@dataclass
class Worker:
    tree: dict[Path_, Figures] = field(default_factory=dict)
    stacks: list[Stack] = field(default_factory=list)
    children: list[Worker] = field(default_factory=list)
    paths: dict[int, list[Path_]] = field(default_factory=dict)  # of the phases of a statement, as they ended
    held: list[Entry] = field(default_factory=list)
    foreign: int = 0  # left in another thread
    recording: bool = True
    recorded: bool = False
    dead: bool = False
    end: str = ""  # how the process ended
    closed: bool = False  # close() was called, or the interpreter ended
    open_then: list[Path_] = field(default_factory=list)  # what was open when recording stopped

    def figures(self, path: Path_) -> Figures:
        for n in range(1, len(path)):
            self.tree.setdefault(path[:n], Figures())
        return self.tree.setdefault(path, Figures())

    def stop(self) -> None:
        if self.recording:
            self.recording = False
            self.open_then = sorted(entry.path for stack in self.stacks for entry in stack.open)


class Model:
    """An api of playing.Player."""

    def __init__(self) -> None:
        self.worker = Worker(recorded=True)
        self.stack: contextvars.ContextVar[Stack] = contextvars.ContextVar("stack")

    # ---- entries

    def enter(self, name: str, submits: bool = False) -> Entry | None:
        worker, stack = self.worker, self.stack.get()
        if worker.dead or not worker.recording:
            return None
        worker.recorded = True
        entry = Entry((*stack.path(), name), submits, stack)
        worker.figures(entry.path)
        stack.open.append(entry)
        return entry

    def leave(self, worker: Worker, entry: Entry | None, error: bool = False, abandoned: bool = False) -> None:
        if entry is None or worker.dead or not worker.recording:
            return
        entry.stack.open.remove(entry)
        figures = worker.figures(entry.path)
        figures.calls += 1
        figures.errors += error
        figures.abandoned += abandoned
        figures.submits += entry.submits
        worker.foreign += entry.stack.thread != self.stack.get().thread

    @contextlib.contextmanager
    def phase(self, ident: int, name: str, submits: bool) -> Iterator[None]:
        worker = self.worker
        entry = self.enter(name, submits)
        error = False
        try:
            yield
        except GeneratorExit:
            raise  # a generator that is no longer wanted: no error
        except BaseException:
            error = True
            raise
        finally:
            if not worker.dead and self.worker is worker:
                worker.paths.setdefault(ident, []).append(entry.path if entry and worker.recording else ())
            self.leave(worker, entry, error)

    def hold(self, ident: int, name: str) -> None:
        entry = self.enter(name)
        if entry:
            self.worker.held.append(entry)

    def drop(self, name: str, inside: Callable[[], None]) -> None:
        worker, entry = self.worker, self.enter(name)
        try:
            inside()
        finally:
            self.leave(worker, entry, abandoned=True)

    def function(self, name: str, call: Callable[[], None]) -> None:
        worker, entry = self.worker, self.enter(name)
        try:
            call()
        except BaseException:
            self.leave(worker, entry, error=True)
            raise
        self.leave(worker, entry)

    def generator(self, name: str, steps: Callable[[], Iterator[None]]) -> Iterator[None]:
        """An entry each step; closing it is none."""
        generator = steps()
        going = True

        def step() -> None:
            nonlocal going
            going = next(generator, self) is not self

        while True:
            self.function(name, step)
            if not going:
                return
            yield

    def count(self, name: str, amount: int) -> None:
        worker = self.worker
        if worker.dead or not worker.recording:
            return
        worker.recorded = True
        path = self.stack.get().path()
        found = worker.figures(path).counters.setdefault(name, [0, 0, amount, amount])
        found[:] = found[0] + amount, found[1] + 1, min(found[2], amount), max(found[3], amount)

    # ---- processes, threads, tasks

    def snapshot(self) -> None: ...

    def close(self) -> None:
        if not self.worker.dead and self.worker.recording:
            self.worker.stop()
            self.worker.closed = True

    def end(self, how: str) -> None:
        worker = self.worker
        if not worker.dead and not worker.end:
            worker.end = how
            if how == "exit":  # what is open around it is left by SystemExit; see `finish`
                for entry in reversed(worker.held):
                    self.leave(worker, entry, abandoned=True)
            else:
                self.finish(worker)
        raise Ended

    def finish(self, worker: Worker) -> None:
        if worker.end in ("exit", "closed"):
            worker.closed = worker.closed or worker.recording
        worker.stop()
        worker.dead = True

    def play(self, worker: Worker, play: Callable[[], None], end: str) -> None:
        """A process from its first statement to its end."""
        self.worker = worker
        self.begin_thread()
        with contextlib.suppress(Ended):
            play()
            self.end(end)
        self.finish(worker)

    def fork(self, play: Callable[[], None], end: str) -> None:
        parent = self.worker
        if parent.dead:
            return
        child = Worker(recording=parent.recording)
        parent.children.append(child)
        contextvars.copy_context().run(self.play, child, play, end)
        self.worker = parent

    def threads(self, plays: list[Callable[[], None]]) -> None:
        """One after another: what they record adds up, whatever their order."""

        def in_thread(play: Callable[[], None]) -> None:
            self.begin_thread()
            play()

        for play in plays:
            contextvars.copy_context().run(in_thread, play)

    def begin_thread(self) -> None:
        stack = Stack(len(self.worker.stacks))
        self.worker.stacks.append(stack)
        self.stack.set(stack)

    def around(self) -> Path_:
        return self.stack.get().path()

    def task(self, around: Any) -> None:
        stack = Stack(self.stack.get().thread, around)
        self.worker.stacks.append(stack)
        self.stack.set(stack)

    def check(self) -> None:
        if self.worker.dead:
            raise Ended


def modelled(body: Body, end: str) -> Worker:
    model = Model()
    main = model.worker
    model.play(main, lambda: Player(model).root(body), end)
    return main


# ---- random programs ------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d/e", "\N{SNOWMAN}"])
AMOUNTS = st.integers(-5, 5) | st.sampled_from([1 << 40, -(1 << 63), (1 << 63) - 1])
# `killed` and `_exit` leave everything as it is; `closed` is close() and then _exit(0).
ENDS = st.sampled_from(["exit", "closed", "killed", "_exit0", "_exit3"])


def _list(kind: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.tuples(st.just(kind), *parts).map(list)


def _bodies(statements: st.SearchStrategy[list[Any]], most: int = 4) -> st.SearchStrategy[Body]:
    return st.lists(statements, max_size=most)


IDENT = st.just(0)  # numbered later
LEAVES = st.one_of(
    _list("count", NAMES, AMOUNTS),
    _list("count", NAMES, AMOUNTS),
    _list("raise"),
    _list("hold", IDENT, NAMES),
    _list("sleep"),
)


def _around(inner: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[list[Any]]:
    """Statements with others inside, for any thread and task."""
    body = _bodies(inner)
    return st.one_of(
        _list("phase", IDENT, NAMES, st.booleans(), body),
        _list("phase", IDENT, NAMES, st.booleans(), body),
        _list("try", body),
        _list("drop", NAMES, body),
        _list("function", NAMES, body),
        _list("generator", IDENT, NAMES, st.integers(0, 3), st.integers(1, 4), body),
        _list("interleaved", IDENT, NAMES, NAMES, body),
        _list("steps", NAMES, st.lists(body, max_size=3), body),
    )


ANYWHERE = st.recursive(LEAVES, _around, max_leaves=6)
BESIDE = st.one_of(
    _list("threads", st.lists(_bodies(ANYWHERE), min_size=1, max_size=4)),
    _list("tasks", IDENT, NAMES, st.lists(_bodies(ANYWHERE), min_size=1, max_size=4)),
)
IN_MAIN = st.recursive(
    st.one_of(ANYWHERE, BESIDE, _list("snapshot"), _list("close"), _list("end", ENDS)),
    lambda inner: st.one_of(_around(inner), BESIDE, _list("fork", _bodies(inner, 6), ENDS)),
    max_leaves=12,
)


def _number(body: Any, at: int) -> int:
    """Each statement that is told apart gets a number of its own (two for the two phases of `interleaved`)."""
    for each in body:
        if isinstance(each, list):
            if each and each[0] in ("phase", "hold", "generator", "interleaved", "tasks"):
                each[1] = at
                at += 2
            at = _number(each, at)
    return at


@st.composite
def programs(draw: st.DrawFn) -> tuple[Body, str]:
    body = json.loads(json.dumps(draw(_bodies(IN_MAIN, 8)))), draw(ENDS)
    _number(body[0], 1)
    return body


# ---- the comparison -------------------------------------------------------------------------------------------

# Ticks become ns by a baseline that is short in a short process; a call's own boundaries lie within the measured ones.
OFF, EACH_NS = 0.01, 2000


def play(stage: Stage, body: Body, end: str) -> None:
    """One program, recorded and modelled. Raises AssertionError where the report says something else than the model."""
    (stage.folder / "program.json").write_text(json.dumps([body, end]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("playing.py")), "run", "log", "program.json"],
        cwd=stage.folder,
        env=stage.environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT_S,
        check=False,
    )
    expected = modelled(body, end)
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == {"killed": -9, "_exit3": 3}.get(expected.end, 0)
    _compare(stage, expected)


def _compare(stage: Stage, expected: Worker) -> None:
    from lineprofiler.accounting import merge_run

    lines = [line.split() for line in (stage.folder / "log").read_text(encoding="utf-8").splitlines()]
    pids = {int(lines[0][1]): expected}
    for kind, *numbers in lines:
        if kind == "fork":
            parent, child = map(int, numbers)
            known = pids[parent].children
            pids[child] = known[sum(each is not None and id(each) in map(id, known) for each in pids.values())]
    stage.settle()
    report = stage.report()
    foreign = report.caveats["health"].pop("foreign_exits")
    report.healthy()
    assert foreign == sum(worker.foreign for worker in pids.values())
    run = merge_run(stage.run)
    assert run.unreadable == []
    found = {worker.pid: worker for worker in run.workers}
    assert sorted(found) == sorted(pid for pid, worker in pids.items() if worker.recorded)
    calls: dict[str, int] = {}
    for pid, worker in found.items():
        model = pids[pid]
        _compare_worker(worker, model)
        assert report.worker(pid)["state"] == ("closed" if model.closed else "died")
        assert sorted(tuple(each["path"]) for each in report.worker(pid)["open"]) == model.open_then
        _compare_times(worker, model, [list(map(int, n)) for kind, *n in lines if kind == "phase" and int(n[0]) == pid])
        for path, figures in model.tree.items():
            if path:
                calls["/".join(path)] = calls.get("/".join(path), 0) + figures.calls
    assert report.calls() == {path: n for path, n in report.calls().items() if n == calls.get(path)}
    assert sum(report.calls().values()) == sum(calls.values())


def _compare_worker(worker: Any, model: Worker) -> None:
    assert {path for path in worker.tree if path} == {path for path in model.tree if path}
    for path, stats in worker.tree.items():
        figures = model.tree.get(path, Figures())
        got = Figures(stats.calls, stats.errors, stats.abandoned, stats.async_entries, figures.counters)
        assert got == figures, path
        assert stats.hist.count == stats.calls, path
        counters = {
            name: [total, stats.counter_calls[name], stats.counter_min[name], stats.counter_max[name]]
            for name, total in stats.counters.items()
        }
        assert counters == figures.counters, path
        if path:
            assert 0 <= stats.child_wall_ns <= stats.wall_ns, path
            assert 0 <= stats.cpu_ns + stats.cpu_unknown_ns <= stats.wall_ns, path


def _compare_times(worker: Any, model: Worker, lines: list[list[int]]) -> None:
    """Each phase took what lies between the readings of a clock inside of it and around it."""
    bounds: dict[Path_, list[int]] = {}
    seen: dict[int, int] = {}
    for _, ident, inside, around in lines:
        path = model.paths[ident][seen.get(ident, 0)]
        seen[ident] = seen.get(ident, 0) + 1
        least_most = bounds.setdefault(path, [0, 0, 0])
        least_most[:] = least_most[0] + inside, least_most[1] + around, least_most[2] + 1
    assert {ident: len(paths) for ident, paths in model.paths.items()} == seen
    for path, (least, most, entries) in bounds.items():
        if not path or entries != model.tree[path].calls:
            continue  # closed by then, or entered by statements that measure nothing
        spare = OFF * most + EACH_NS * entries
        assert least - spare <= worker.tree[path].wall_ns <= most + spare, path
