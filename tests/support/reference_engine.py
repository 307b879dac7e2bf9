"""A line engine in plain Python, by `sys.settrace`: slow, simple and right. The C engine is compared with it.

It has the interface of `lineprofiler._lineprofiler.LineEngine`. Hits are found another way than there: the statements
come from the syntax tree of the source, and a visit of a line is a hit unless its statement was only returned to (from
a later line of a call over several lines, or from the body of a `with`). Nothing is subtracted for its own cost, so its
times are good for sums and order only.
"""

from __future__ import annotations

import ast
import dis
import linecache
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

YIELDS = {dis.opmap["YIELD_VALUE"]}
RESUME = dis.opmap.get("RESUME", -1)
YIELD_FROM = dis.opmap.get("YIELD_FROM", -1)  # 3.10: stands behind the last instruction of a frame that it suspends

LineRow = tuple[int, int, int, int, int, int, int, int]
"""code, line, hits, visits, time_ns, self_ns, awaited_ns, thread"""
FunctionRow = tuple[int, int, int, int, int, int]
"""code, calls, time_ns, self_ns, awaited_ns, suspended"""


@dataclass
class Cell:
    """Figures of one line, or of one function, in one thread."""

    hits: int = 0
    visits: int = 0
    time: int = 0
    self: int = 0
    awaited: int = 0
    open: int = 0  # visits of it that are open: a recursion counts each moment once
    since: int = 0

    def enter(self, now: int) -> None:
        if self.open == 0:
            self.since = now
        self.open += 1

    def leave(self, now: int) -> None:
        self.open -= 1
        if self.open == 0:
            self.time += now - self.since


@dataclass
class Open:
    """A frame on the stack of its thread."""

    frame: FrameType
    code: int
    function: Cell
    line: Cell | None = None
    number: int = 0
    last: int = 0  # the line before, to see what is only returned to
    seen: set[int] = field(default_factory=set)
    raising: bool = False


@dataclass
class Thread:
    number: int
    name: str
    stack: list[Open] = field(default_factory=list)
    tick: int = 0
    regions: list[tuple[str, int, dict[tuple[int, int], list[int]]]] = field(default_factory=list)


class Statements:
    """First and last line of each statement (of a compound one: of its header), and the bodies of `with`."""

    def __init__(self, filename: str) -> None:
        self.of: dict[int, tuple[int, int]] = {}
        self.bodies: dict[int, tuple[int, int]] = {}
        try:
            tree = ast.parse("".join(linecache.getlines(filename)))
        except SyntaxError:
            return
        for node in ast.walk(tree):
            if not isinstance(node, (ast.stmt, ast.ExceptHandler)):
                continue
            first, last = node.lineno, node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            if isinstance(body, list) and body:
                start = min([body[0].lineno, *(d.lineno for d in getattr(body[0], "decorator_list", []))])
                if isinstance(node, (ast.With, ast.AsyncWith)):
                    self.bodies[first] = (start, last)
                last = max(first, start - 1)
            for line in range(first, last + 1):
                self.of.setdefault(line, (first, last))

    def returns(self, line: int, last: int, seen: set[int]) -> bool:
        """Whether a visit of `line` after `last` goes on with a statement that was begun before."""
        first, end = self.of.get(line, (line, line))
        if first <= last <= end and last != line:
            return line in seen
        body = self.bodies.get(line)
        return body is not None and body[0] <= last <= body[1] and last != line


def _suspends(frame: FrameType) -> bool:
    """Does the frame stand at a yield? On 3.13 one that a `for` resumes stands behind it, at the RESUME."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if code[at] == RESUME and at >= 2:
        at -= 2
    last = code[at : at + 3 : 2]
    return last[0] in YIELDS or last[-1] == YIELD_FROM


class ReferenceEngine:
    """See the head of this file; methods and rows as the stub of the extension describes them."""

    def __init__(self, *, select: Callable[[CodeType], bool] | None = None, backend: str | None = None) -> None:
        if backend not in (None, "settrace"):
            raise ValueError(f"backend {backend!r}: settrace")
        self.backend = "settrace"
        self.count = 0
        self.trouble: list[str] = []
        self.own_cost: dict[str, float] = {}
        self._select = select
        self._codes: list[CodeType] = []
        self._index: dict[int, int] = {}
        self._refused: dict[int, CodeType] = {}
        self._marked: set[int] = set()
        self._lines: dict[tuple[int, int, int], Cell] = {}
        self._functions: dict[tuple[int, int], Cell] = {}
        self._threads: list[Thread] = []
        self._own = threading.local()
        self._suspended: dict[int, tuple[CodeType, int, int, int, set[int]]] = {}
        self._statements: dict[str, Statements] = {}
        self._regions: dict[str, tuple[int, int, dict[tuple[int, int], list[int]]]] = {}
        self._before: Any = None

    @property
    def active(self) -> bool:
        return self.count > 0

    def mark(self, code: CodeType, /) -> int:
        index = self._add(code)
        self._marked.add(index)
        return index

    def unmark(self, code: CodeType, /) -> None:
        self._marked.discard(self._index.get(id(code), -1))

    def start(self) -> None:
        self.count += 1
        if self.count > 1:
            return
        self._before = sys.gettrace()
        frame: FrameType | None = sys._getframe(1)
        around = []
        while frame is not None:
            if self._wanted(frame.f_code) is not None:
                around.append(frame)
            frame = frame.f_back
        thread = self._thread()
        thread.tick = time.perf_counter_ns()
        for each in reversed(around):
            self._push(thread, each, thread.tick)
            each.f_trace = self._local
        threading.settrace(self._global)
        sys.settrace(self._global)

    def stop(self) -> None:
        if self.count == 0:
            return
        self.count -= 1
        if self.count:
            return
        sys.settrace(self._before)
        threading.settrace(self._before)
        now = time.perf_counter_ns()
        for thread in self._threads:
            self._charge(thread, now)
            while thread.stack:
                top = thread.stack.pop()
                top.frame.f_trace = None
                self._close(top, now)
        self._suspended.clear()

    def codes(self) -> list[CodeType]:
        return list(self._codes)

    def lines(self, code: int | None = None) -> list[LineRow]:
        now = time.perf_counter_ns()
        rows = []
        for (index, line, thread), cell in sorted(self._lines.items()):
            if code in (None, index):
                spent, alone = self._upto(cell, thread, now)
                rows.append((index, line, cell.hits, cell.visits, spent, alone, cell.awaited, thread))
        return rows

    def functions(self) -> list[FunctionRow]:
        now = time.perf_counter_ns()
        rows: dict[int, list[int]] = {}
        for (index, _thread), cell in self._functions.items():
            row = rows.setdefault(index, [0, 0, 0, 0, 0])
            spent = cell.time + (now - cell.since if cell.open else 0)
            for n, value in enumerate((cell.hits, spent, cell.self, cell.awaited, cell.visits)):
                row[n] += value
        return [(index, r[0], r[1], r[2], r[3], r[4]) for index, r in sorted(rows.items())]

    def threads(self) -> list[tuple[int, str]]:
        return [(t.number, t.name) for t in self._threads]

    def clear(self) -> None:
        now = time.perf_counter_ns()
        for cell in (*self._lines.values(), *self._functions.values()):
            cell.hits = cell.visits = cell.time = cell.self = cell.awaited = 0
            cell.since = now
        for thread in self._threads:
            thread.tick = now
        self._lines = {k: c for k, c in self._lines.items() if c.open}
        self._functions = {k: c for k, c in self._functions.items() if c.open}
        self._regions.clear()

    def region_enter(self, name: str) -> None:
        thread = self._thread()
        thread.regions.append((name, time.perf_counter_ns(), self._figures(thread.number)))

    def region_leave(self) -> None:
        thread = self._thread()
        name, start, before = thread.regions.pop()
        entries, spent, total = self._regions.get(name, (0, 0, {}))
        if all(each[0] != name for each in thread.regions):  # inclusive: the outermost of one name
            for key, figures in self._figures(thread.number).items():
                row = total.setdefault(key, [0] * 5)
                for n, value in enumerate(figures):
                    row[n] += value - before.get(key, [0] * 5)[n]
            spent += time.perf_counter_ns() - start
        self._regions[name] = (entries + 1, spent, total)

    def regions(self) -> dict[str, tuple[int, int, list[LineRow]]]:
        return {
            name: (entries, spent, [(k[0], k[1], r[0], r[1], r[2], r[3], r[4], 0) for k, r in total.items() if any(r)])
            for name, (entries, spent, total) in self._regions.items()
        }

    # From here on: what the tracer does.

    def _add(self, code: CodeType) -> int:
        index = self._index.get(id(code))
        if index is None:
            index = self._index[id(code)] = len(self._codes)
            self._codes.append(code)
        return index

    def _wanted(self, code: CodeType) -> int | None:
        index = self._index.get(id(code))
        if index is not None:
            return index if index in self._marked else None
        if self._select is None or id(code) in self._refused:
            return None
        try:
            if self._select(code):
                return self.mark(code)
        except Exception as error:
            self.trouble.append(f"{code.co_name}: {error!r}")
        self._refused[id(code)] = code
        return None

    def _thread(self) -> Thread:
        thread = getattr(self._own, "thread", None)
        if thread is None:
            thread = self._own.thread = Thread(len(self._threads), threading.current_thread().name)
            self._threads.append(thread)
        return thread

    def _charge(self, thread: Thread, now: int) -> None:
        if thread.stack:
            top = thread.stack[-1]
            top.function.self += now - thread.tick
            if top.line is not None:
                top.line.self += now - thread.tick
        thread.tick = now

    def _push(self, thread: Thread, frame: FrameType, now: int) -> Open:
        index = self._index[id(frame.f_code)]
        function = self._functions.setdefault((index, thread.number), Cell())
        function.enter(now)
        thread.stack.append(Open(frame, index, function))
        return thread.stack[-1]

    def _close(self, entry: Open, now: int) -> None:
        if entry.line is not None:
            entry.line.leave(now)
            entry.line = None
        entry.function.leave(now)

    def _upto(self, cell: Cell, thread: int, now: int) -> tuple[int, int]:
        spent = cell.time + (now - cell.since if cell.open else 0)
        for each in self._threads:
            if each.number == thread and each.stack and each.stack[-1].line is cell:
                return spent, cell.self + now - each.tick
        return spent, cell.self

    def _figures(self, thread: int) -> dict[tuple[int, int], list[int]]:
        return {(row[0], row[1]): list(row[2:7]) for row in self.lines() if row[7] == thread}

    def _global(self, frame: FrameType, event: str, arg: object) -> Any:
        if event != "call" or self._wanted(frame.f_code) is None:
            return None
        now = time.perf_counter_ns()
        thread = self._thread()
        self._charge(thread, now)
        entry = self._push(thread, frame, now)
        asleep = self._suspended.pop(id(frame), None)
        if asleep is not None and asleep[0] is frame.f_code and frame.f_lasti > 0:
            _, number, since, entry.last, entry.seen = asleep
            entry.number = number
            entry.line = self._lines.setdefault((entry.code, number, thread.number), Cell())
            entry.line.enter(now)
            entry.line.awaited += now - since
            entry.function.awaited += now - since
        else:
            entry.function.hits += 1
        thread.tick = time.perf_counter_ns()
        return self._local

    def _local(self, frame: FrameType, event: str, arg: object) -> Any:
        now = time.perf_counter_ns()
        thread = self._thread()
        if not any(each.frame is frame for each in thread.stack):
            return self._local
        self._charge(thread, now)
        while thread.stack[-1].frame is not frame:  # its end was not seen
            self._close(thread.stack.pop(), now)
        top = thread.stack[-1]
        if event == "line":
            self._line(thread, top, frame.f_lineno, now)
        elif event == "exception":
            top.raising = True
        elif event == "return":
            thread.stack.pop()
            if not top.raising and _suspends(frame):
                self._suspended[id(frame)] = (frame.f_code, top.number, now, top.last, top.seen)
                top.function.visits += 1
            self._close(top, now)
        thread.tick = time.perf_counter_ns()
        return self._local

    def _line(self, thread: Thread, top: Open, number: int, now: int) -> None:
        top.raising = False
        if top.line is not None:
            top.line.leave(now)
        top.number = number
        top.line = self._lines.setdefault((top.code, number, thread.number), Cell())
        top.line.enter(now)
        top.line.visits += 1
        filename = top.frame.f_code.co_filename
        statements = self._statements.get(filename)
        if statements is None:
            statements = self._statements[filename] = Statements(filename)
        if not statements.returns(number, top.last, top.seen):
            top.line.hits += 1
        first, end = statements.of.get(number, (number, number))
        if not first <= top.last <= end or (number == first and top.last == number):
            top.seen.clear()
        top.seen.add(number)
        top.last = number
