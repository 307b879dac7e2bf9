"""A program that counts its own statements: the truth that the hits of lines are compared with.

The syntax tree of the text gets a counter in front of each statement, and into the loops; the numbers of lines stay.
Only lines on which one statement begins are told, and of these the ones whose count says what the line's hits must be:
a `pass` or a name that is declared global has no code of its own on every version, and where the condition of an `if`
begins on a later line, the `if` has none.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from lineprofiler._lineprofiler import LineEngine

_SILENT = (ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_PARTS = ("<lambda>", "<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")


class _Asked:
    """Counts each time that a loop asks for a value, but for the first: the statement has been counted by then."""

    def __init__(self, values: Any, count: Callable[[], None]) -> None:
        self._values, self._count, self._asked = values, count, False

    def _ask(self) -> None:
        if self._asked:
            self._count()
        self._asked = True


class _Values(_Asked):
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._ask()
        return next(self._values)


class _Awaited(_Asked):
    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    def __anext__(self) -> Awaitable[Any]:
        self._ask()
        return self._values.__anext__()  # type: ignore[no-any-return]


class Counted:
    """`code` is to be run with `names` among its globals; then `expected` has {line: executions}."""

    def __init__(self, text: str, filename: str) -> None:
        self._counts: Counter[int] = Counter()
        self._begin: Counter[int] = Counter()
        self._untold: set[int] = set()
        tree = ast.parse(text, filename)
        self._bodies(tree)
        self.code: CodeType = compile(tree, filename, "exec", dont_inherit=True)
        self.names = {"count_statement": self._count, "count_values": self._values, "count_awaited": self._awaited}

    def expected(self) -> dict[int, int]:
        return {
            line: self._counts[line]
            for line, statements in self._begin.items()
            if statements == 1 and line not in self._untold
        }

    def _count(self, line: int) -> None:
        self._counts[line] += 1

    def _values(self, line: int, values: Iterable[Any]) -> Iterator[Any]:
        return _Values(iter(values), lambda: self._count(line))

    def _awaited(self, line: int, values: Any) -> AsyncIterator[Any]:
        return _Awaited(values.__aiter__(), lambda: self._count(line))

    def _counter(self, line: int) -> ast.Expr:
        call = ast.Call(ast.Name("count_statement", ast.Load()), [ast.Constant(line)], [])
        made = ast.Expr(call)
        for node in ast.walk(made):
            node.lineno = node.end_lineno = line  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
        return made

    def _bodies(self, node: ast.AST) -> None:
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                setattr(node, name, self._body(body))
        for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._bodies(inner)

    def _body(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for node in body:
            found += [*self._before(node), node]
            self._bodies(node)
            if isinstance(node, (ast.For, ast.AsyncFor)):
                name = "count_values" if isinstance(node, ast.For) else "count_awaited"
                call = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(node.lineno), node.iter], [])
                node.iter = ast.fix_missing_locations(ast.copy_location(call, node.iter))
        return found

    def _before(self, node: ast.stmt) -> list[ast.stmt]:
        lines = sorted({first_line(node), node.lineno})
        self._begin.update(lines)
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        declared = isinstance(node, ast.AnnAssign) and node.value is None
        if text or future:
            self._untold.add(node.lineno)
            return []
        test = getattr(node, "test", None)
        if isinstance(node, _SILENT) or declared or (test is not None and _has_no_code(test, node.lineno)):
            self._untold.add(node.lineno)
        if isinstance(node, ast.While) and test is not None:
            both = ast.Tuple([self._counter(node.lineno).value, test], ast.Load())
            last = ast.Subscript(both, ast.Constant(1), ast.Load())
            node.test = ast.fix_missing_locations(ast.copy_location(last, test))
        if isinstance(node, ast.While):
            return []
        return [self._counter(line) for line in lines]


def _has_no_code(test: ast.expr, line: int) -> bool:
    first = min(n.lineno for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Constant, ast.List, ast.Call)))
    return first != line or isinstance(test, ast.Constant)


def first_line(node: ast.stmt) -> int:
    """With its decorators."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])


def class_headers(text: str) -> dict[int, range]:
    """The lines of each class's header, by which its body is entered as well, by their first."""
    return {
        first_line(node): range(first_line(node), first_line(node.body[0]))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }


def found(text: str, filename: str, run: Callable[[dict[str, Any]], object], names: dict[str, Any]) -> dict[int, int]:
    """{line: hits} of the text's functions and classes, run as a module."""

    def wanted(code: CodeType) -> bool:
        return code.co_filename == filename and code.co_name not in _PARTS

    engine = LineEngine(select=wanted)
    space = dict(names)
    code = compile(text, filename, "exec", dont_inherit=True)
    engine.start()
    try:
        exec(code, space)
        run(space)
    finally:
        engine.stop()
    assert engine.trouble == []
    headers, hits, codes = class_headers(text), Counter[int](), engine.codes()
    for row in engine.lines():
        code = codes[row[0]]
        optimized = code.co_flags & inspect.CO_OPTIMIZED  # a function; else the body of a class, or the module
        entry = headers.get(code.co_firstlineno, ()) if not optimized else (code.co_firstlineno,)
        if code.co_name == "<module>" or row[1] not in entry:
            hits[row[1]] += row[2]
    return dict(hits)


def check(text: str, filename: str, run: Callable[[dict[str, Any]], object], **names: Any) -> int:
    """Runs it twice, and compares; how many lines had something to compare."""
    counted = Counted(text, filename)
    space = {**names, **counted.names}
    exec(counted.code, space)
    run(space)
    expected = counted.expected()
    hits = found(text, filename, run, names)
    lines = text.splitlines()
    wrong = {n: (hits.get(n, 0), hit, lines[n - 1]) for n, hit in expected.items() if hits.get(n, 0) != hit}
    assert not wrong, "line: (found, counted, text)"
    return sum(1 for hit in expected.values() if hit)
