"""A program that counts its own statements: the truth that the hits of lines are compared with.

The syntax tree of the text gets a counter in front of each statement, and into the loops; the numbers of lines stay.
Only lines on which one statement begins are told, and of these the ones whose count says what the line's hits must be:
a `pass` or a name that is declared global has no code of its own on every version, and where the condition of an `if`
begins on a later line, the `if` has none.
"""

from __future__ import annotations

import ast
from collections import Counter
from types import CodeType

_SILENT = (ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Counted:
    """`code` is to be run with `names` among its globals; then `expected` has {line: executions}."""

    def __init__(self, text: str, filename: str) -> None:
        self._counts: Counter[int] = Counter()
        self._begin: Counter[int] = Counter()
        self._untold: set[int] = set()
        tree = ast.parse(text, filename)
        self._bodies(tree)
        self.code: CodeType = compile(tree, filename, "exec", dont_inherit=True)
        self.names = {"count_statement": self._count}

    def expected(self) -> dict[int, int]:
        return {
            line: self._counts[line]
            for line, statements in self._begin.items()
            if statements == 1 and line not in self._untold
        }

    def _count(self, line: int) -> None:
        self._counts[line] += 1

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
            if isinstance(node, (ast.For, ast.AsyncFor)):  # n items: n + 1
                node.body.insert(0, self._counter(node.lineno))
                node.orelse.insert(0, self._counter(node.lineno))
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
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
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
