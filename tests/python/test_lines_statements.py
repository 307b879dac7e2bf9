"""Hits of lines in whole programs: what the program counts itself, statement by statement, in front of each.

Statements over several lines, decorators, literals, conditional expressions and blocks in all that they come with: the
interpreter leaves a line within a statement and comes back to it, and that is one execution.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from linetest import H, marked
from statementcounts import check

DEFINITIONS = """
from __future__ import annotations
import functools

def same(*unused):
    return lambda thing: thing

@same(1)
def one(): return 1

@same(
    1,
)
@functools.lru_cache
def two(
    a: int = 1,
    b: "str" = "b",
    *more: dict[str, int],
) -> None:
    return a

@same(1)
class Three(
    dict,
):
    @property
    def x(self):
        return 1

    @x.setter
    @same(2)
    def x(self, value: int):
        self.value = value

    def plain(
        self,
        a: list[int],
        b=same(
            3,
        ),
    ) -> int:
        @same(a)
        @same(b)
        def inner():
            return 2
        return inner()

def several():
    for i in range(3):
        @same(i)
        async def made(a, b: int = i): pass
        yield made

for _ in range(4):
    three = Three()
    three.x = 5
    three.x
    three.plain([1])
    two(2)
    list(several())
"""

EXPRESSIONS = """
def pick(value):
    return value

def literals(k):
    a = {
        "i": pick(k),
        "j": k,
    }["i"]
    b = {
        pick(1): 2,
        "k": 3,
    }.get(
        pick(k)
    )
    c = [
        (0, False),
        *(pick(v) for v in range(3)),
        *pick([
            k]),
        (k, True),
    ]
    d: dict = {
        1: lambda s: pick(
            s
        ),
        **{
            t: lambda s: s
            for t in (4, 5)
        },
        6: 7,
    }
    e = f"{pick(a)} {
        pick(b)}" if False else (
        f"{pick(a)}"
        f"{len(c)}"
    )
    f, g = (
        pick(1),
        pick(2)
    )
    c[
        0
    ] = d[1](
        f)
    return [
        a, b, e,
        g]

def conditions(a, b, c):
    x = a or pick(b)
    x = pick(a) and not (b or pick(c))
    x = pick(a) if pick(b) else pick(c)
    x = (pick(a) if c
         else pick(b))
    x = (
        pick(a)
        if pick(b)
        else pick(c)
    )
    y = pick(a) and pick(
        b
    ) or pick(c)
    if a and x in (
        1,
        b,
    ):
        y = 2
    elif pick(b) or pick(
        c
    ) and not a:
        y = 3
    while y and pick(
        y
    ) > 1:
        y -= 1
    z = not (
        pick(a)
    ) and pick(
        b)
    assert pick(
        1), "never"
    if not (a and b): x = 1
    return pick(x) if a else pick(
        z)

def either(a):
    return (pick(1) if pick(a)
            else pick(2))

def chained(a, b, c):
    return pick(
        a
    ) < pick(
        b
    ) <= pick(
        c)

def gathered(n):
    a = [pick(v) for v in range(n) if pick(v)]
    b = {
        v: pick(v)
        for v in range(n)
        if pick(v)
    }
    c = {
        (v, w)
        for v in pick(
            range(n)
        )
        for w in range(v)
    }
    d = sorted(
        [
            pick(v) for v in b
        ],
        key=lambda v: -v,
    )
    return [
        pick(v) if v else
        pick(n)
        for v in (
            a or d or c)
    ]

def generated(n):
    got = yield (
        pick(n)
    )
    spans = [
        pick(got),
        *(pick(v) for v in range(n)),
    ]
    for s in spans:
        if s and n in (
            pick(1),
            2,
        ):
            continue
        yield from (
            pick([
                s])
        )

for i in range(5):
    literals(i)
    either(i % 2)
    chained(i, 2, 3)
    gathered(i)
    list(generated(i))
    for j in range(2):
        for k in (0, 1):
            conditions(i % 2, j, k)
"""

BLOCKS = """
import asyncio, contextlib

@contextlib.contextmanager
def opened(
    value,
):
    try:
        yield value
    finally:
        value = None

def pick(value):
    return value

def blocks(n):
    for i in pick(
        range(n)
    ):
        try:
            with opened(
                i
            ) as a, opened(2):
                b = pick(
                    a
                ) or pick(
                    2)
                if i == 1:
                    continue
                if i == 3:
                    raise KeyError(
                        i
                    )
            c = 1
        except (
            ValueError,
            KeyError,
        ) as error:
            c = pick(error) and [
                1
            ]
            for k in range(2):
                c.append(
                    k)
        else:
            c = pick(
                2) if i else 3
        finally:
            for k in range(2):
                d = pick(
                    k)
            if i == 4:
                break
        with contextlib.suppress(
            ZeroDivisionError
        ):
            pick(
                1 / pick(0)
            )
    else:
        return pick(
            1)
    return 2

def matched(value):
    match pick(
        value
    ):
        case [a, b] if pick(
            a
        ):
            return pick(
                b)
        case {"k": k}:
            out = k
        case int() | str():
            out = pick(value) if value else pick(
                0)
        case _:
            for i in range(2):
                out = i
    return out

async def tasks(n):
    async def items():
        for i in range(n):
            await asyncio.sleep(0)
            yield pick(
                i)
    x = 0
    async with asyncio.Lock() as lock:
        async for item in items():
            x = await asyncio.sleep(
                0, pick(item)
            ) or pick(2)
        with opened(x) as x:
            pass
        y = [
            pick(v) async for v in items()
        ]
    return await asyncio.gather(
        asyncio.sleep(0, x),
        asyncio.sleep(0),
    )

def loops(n):
    left = [n, 1, 0]
    while left.pop(0):
        pass
    while left.append(pick(n)) is None and len(left) < n:
        if pick(n) > len(left):
            pass
    while True:
        n -= 1
        if n < 0: break
        while pick(n) > 5 and pick(
            n
        ):
            n -= 2
        else:
            n = pick(
                n
            )
    try:
        raise ValueError
    except Exception:
        try:
            raise KeyError from None
        except KeyError:
            n = pick(
                n) or 1
    return n

def leaves(n):
    for i in range(3):
        try:
            if i == n: return pick(
                n)
        finally:
            while n > 3:
                n -= 1
                if pick(n): pass
            with contextlib.suppress(ZeroDivisionError):
                made = 1 // (n % 2)
            with opened(1), opened(2):
                while True:
                    i += 1
                    if i > 5:
                        break
            made = [
                pick(i) for i in range(n)
                if pick(i)
            ]
    return n

for n in range(7):
    blocks(n)
    loops(n)
    leaves(n)
    asyncio.run(tasks(n % 3))
for value in ([1, 2], [0, 2], {"k": 3}, 5, 0, None):
    matched(value)
"""

GROUPS = """
def pick(value):
    return value

def groups(kinds):
    try:
        raise ExceptionGroup("g", [
            kind() for kind in kinds
        ])
    except* (
        ValueError
    ) as found:
        for i in range(2):
            a = pick(
                found) or [
                i]
        b = 1
    except* KeyError:
        try:
            b = pick(
                2)
        finally:
            a = 3
    return a, b

for kinds in ([ValueError], [KeyError], [ValueError, KeyError], [ValueError, ValueError]):
    groups(kinds)
"""


WAYS = """
import asyncio, contextlib, itertools

def pick(value=None):
    return value

def rises(n):
    for i in range(2):
        try:
            if n == 0: return pick(1)
            if n == 1: raise KeyError
            if n == 2: continue
            if n == 3: break
        finally:
            a = pick(
                n)

def ends(n):
    try:
        if n == 0: raise KeyError
    finally:
        if n == 1:
            raise ValueError
    try:
        if n == 2: raise KeyError
    finally:
        b = pick(n)
        del b
    try:
        if n == 3: raise KeyError
    finally:
        try:
            if n == 3: raise ValueError
        except ValueError:
            del b

def leaves(n):
    for i in range(2):
        with contextlib.suppress(ValueError):
            if n == 1:
                raise ValueError(
                    n)
    try:
        if n == 0:
            return
    except KeyError:
        return 1
    with contextlib.suppress(KeyError):
        (a,
         b) = n, pick(
            2)
    with contextlib.suppress(KeyError):
        if pick(n):
            raise KeyError

def matched(value):
    match pick(value):
        case (a, *b):
            if a:
                raise KeyError
        case {"k": k}:
            if k:
                return k
        case int():
            if value:
                a = value
        case _:
            pass

def far(value):
    match value:
        case (a, *b):
            if a:
                raise KeyError
        case _:
@
    pick(value)
    return pick(value)

def chained(a, b, c):
    if (pick(c) if (pick(a)
        < pick(b) <= pick(c)) else list(
            range(pick(c)))):
        a = 3
    x = (1 if (pick(a) <
        pick(b)
        <= pick(c)) else pick(
            2))
    try:
        pick(x)
    finally:
        y = ((x := pick(
            a)) and
            ("s" if (pick(a) < pick(b) <= pick(c)) else pick(c)))
    while a and (pick(b) or
        pick(c)
    ):
        a -= 1
        b = not b
    while (x := pick(
        c)) and (y or
        pick(b)
    ):
        c -= 1
    if b and (
        True
    ):
        c = 1
    return x, y

async def waited(n):
    async def items():
        for i in range(n):
            await asyncio.sleep(0)
            yield i
    async for i in items(
    ):
        pick(i)
    a = {"i": (pick(n)
        or
        n), "j": (await asyncio.sleep(
            0))
    }.get("i")
    b = ((a := pick(
        n)) or (await asyncio.sleep(
            0,
            n)))
    return a, b

def gathered(n):
    try:
        return [(v, w)
            for v in range(n)
            for w in range(v) if {v: n
                for v in range(2)
            }]
    finally:
        pass

for n in range(5):
    for function in (rises, ends, leaves, gathered):
        with contextlib.suppress(KeyError, ValueError, UnboundLocalError):
            function(n)
    asyncio.run(waited(n))
for value in ([0], [1], [], {"k": 0}, {"k": 1}, 0, 5, None):
    with contextlib.suppress(KeyError):
        matched(value)
    with contextlib.suppress(KeyError):
        far(value)
for a, b, c in itertools.product(range(3), repeat=3):
    chained(a, b, c)
""".replace("@", "            a = (pick, pick, pick, pick)\n" * 60)

# Since 3.13 nothing is on the line of `with (` but the brackets.
MANAGERS = """
import asyncio, contextlib

def opened(n):
    return contextlib.nullcontext(n)

def blocks(n):
    for i in range(2):
        with (
            opened(n)
        ):
            if n == 1: continue
            if n == 2: break
            if n == 3: return n
            if n == 4: raise KeyError
        with (
            opened(1) as a,
            opened(a) as b
        ):
            c = [a,
                 b]

async def waits(n):
    async with (
        asyncio.Lock(),
        asyncio.Lock() as b
    ):
        if n: return n

def long(n):
    with (
        opened(n)
    ):
@

for n in range(5):
    with contextlib.suppress(KeyError):
        blocks(n)
    asyncio.run(waits(n))
    long(n)
""".replace("@", "        n = (n, n, n, n, n)\n" * 60)


def _texts() -> list[Any]:
    texts = {"definitions": DEFINITIONS, "blocks": BLOCKS, "ways": WAYS}
    if sys.version_info < (3, 12):  # an f-string over lines is new there
        new = '    e = f"{pick(a)} {\n        pick(b)}" if False else ('
        assert new in EXPRESSIONS
        texts["expressions"] = EXPRESSIONS.replace(new, "    e = (")
    else:
        texts["expressions"] = EXPRESSIONS
    if sys.version_info >= (3, 11):
        texts["groups"] = GROUPS
    if sys.version_info < (3, 13):
        texts["managers"] = MANAGERS
    return [pytest.param(text, id=name) for name, text in texts.items()]


@pytest.mark.parametrize("text", _texts())
def test_each_statement_is_hit_as_often_as_it_is_executed(text: str) -> None:
    assert check(textwrap.dedent(text), "<program>", lambda space: None, __name__="program") > 12


def _argparse(space: dict[str, Any]) -> None:
    parser = space["ArgumentParser"](prog="p", description="word " * 30)
    parser.add_argument("--number", "-n", type=int, default=3, help="a number")
    parser.add_argument("--kind", choices=["a", "b"], nargs="*")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--yes", action="store_true")
    group.add_argument("--no", action="store_false")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("run", help="runs").add_argument("words", nargs="+")
    parser.parse_args(["-n", "4", "--kind", "a", "b", "--yes", "run", "x", "y"])
    parser.format_help()


def _difflib(space: dict[str, Any]) -> None:
    a, b = ["one", "two", "three", "four", "five"], ["one", "tree", "four", "six", "five"]
    list(space["unified_diff"](a, b))
    list(space["ndiff"](a, b))
    space["get_close_matches"]("tree", a)
    space["HtmlDiff"]().make_table(a, b)


def _textwrap(space: dict[str, Any]) -> None:
    text = "Some words, hyphen-ated ones - and   more of them. " * 5
    space["fill"](text, 23, initial_indent="* ", max_lines=4)
    space["dedent"]("  a\n    b\n\n  c")
    space["shorten"](text, 40)


def _fractions(space: dict[str, Any]) -> None:
    fraction = space["Fraction"]
    values = [fraction("3/4"), fraction(0.125), fraction("-1.5e2"), fraction(7)]
    for a in values:
        for b in values:
            _ = a + b, a * b, a / b, a < b, a == b, hash(a), round(a, 1), a**2, str(b), a // b, a % b


@pytest.mark.parametrize("run", [_argparse, _difflib, _textwrap, _fractions], ids=lambda run: run.__name__)
def test_modules_of_the_standard_library(run: Callable[[dict[str, Any]], object]) -> None:
    """Texts that nobody wrote for it, of each version of Python its own."""
    name = run.__name__[1:]
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    assert check(text, "<module of the library>", run, __name__=f"{name}_again") > 50


def test_lines_that_have_no_code_or_have_it_late() -> None:
    """That is the compiler's: every tracer sees these lines so often, see docs/lines.md."""
    new = sys.version_info >= (3, 13)
    lines = [
        ("with (", 0 if new else 2),
        ("    opened(n)", 2),
        "):",
        ("    pass", 2),
        ("for (", 4 if new else 6),
        ("    a, b", 4),
        (") in zip(", 6 if new else 2),
        ("    range(2), range(2)):", 2),
        ("    pass", 4),
        "(",
        ("    opened(n))", 2),
        ("c = (a", 2),
        ("     if n", 2),
        ("     else b)", 1),
        "del (",
        ("    c)", 2),
        "d = {",  # begins where the parts are there
        ('    "a": fails(n),', 2),
        "}",
    ]
    texts = [line if isinstance(line, str) else line[0] for line in lines]
    space: dict[str, Any] = {"opened": contextlib.nullcontext, "fails": lambda n: 1 / 0}
    exec(compile("def f(n):\n" + textwrap.indent("\n".join(texts), "    "), "<program>", "exec"), space)
    with marked(space["f"]) as p:
        for n in range(2):
            with pytest.raises(ZeroDivisionError):
                space["f"](n)
    assert H(p, space["f"]) == {n: line[1] for n, line in enumerate(lines, 1) if not isinstance(line, str) and line[1]}


def test_a_condition_over_lines_within_a_conditional_expression() -> None:
    """Since 3.12 there are two copies of what is made of the value: see docs/lines.md."""
    space: dict[str, Any] = {}
    exec("def f(a, b):\n    return (a if (b\n        and a) else b)", space)
    with marked(space["f"]) as p:
        for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
            space["f"](a, b)
    assert H(p, space["f"])[1] == (5 if sys.version_info >= (3, 12) else 4)
