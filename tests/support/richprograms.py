"""Random programs in all of Python's syntax, their statements laid out over lines at random.

`program(seed)` is a text; its functions fun, gen, co and agen take a depth. `World(seed).run(space)` calls them, sends
and throws into what they make, and drops it half-way; `World.names` are the globals that they need. Both are the same
each time, so a program can be run with counters in it and without.

A line is only broken where some code of the statement is on the first line, and is the first to run: see docs/lines.md
for the lines that have no code or have it late.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

_MANAGERS_APART = sys.version_info < (3, 13)  # `with (` alone on its line has code
_GROUPS = sys.version_info >= (3, 11)


class _Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.kind = ""
        self.loop = False
        self.budget = 0

    def any(self, *choices: str) -> str:
        return self.random.choice(choices)

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def s(self) -> str:
        """A space, or the next line."""
        return "\n" + " " * self.random.randrange(1, 8) if self.maybe(0.35) else " "

    def put(self, depth: int, text: str) -> None:
        self.lines += ["    " * depth + line for line in text.split("\n")]

    # ---- expressions

    def leaf(self) -> str:
        return self.any("a", "b", "k", "one", "zero", "none", "yes()", "pick(a)", "pick(yes())")

    def within(self, depth: int) -> str:
        """In a function of its own, or a comprehension: nothing is awaited there."""
        kind, self.kind = self.kind, "class"
        text = self.e(depth)
        self.kind = kind
        return text

    def e(self, depth: int) -> str:
        if depth <= 0:
            return self.leaf()
        s, e = self.s, lambda: self.e(depth - 1)
        return self.random.choice(
            [
                lambda: f"pick({s()}{e()}{s()})",
                lambda: f"({e()}{s()}or{s()}{e()}{s()})",
                lambda: f"({e()}{s()}and{s()}{e()}{s()})",
                lambda: f"({self.leaf()} if {e()}{s()}else{s()}{e()}{s()})",
                lambda: f"(not {e()})",
                lambda: f"[{e()},{s()}{e()}{s()}]",
                lambda: f"{{'i': {e()},{s()}'j': {e()}{s()}}}.get({s()}'i')",
                lambda: f"[pick(v){s()}for v in numbers(3){s()}if {self.within(depth - 1)}{s()}]",
                lambda: f"{{v: {self.within(depth - 1)}{s()}for v in numbers(2){s()}}}",
                lambda: f"{{short({self.within(depth - 1)}){s()}for v in numbers(2){s()}}}",
                lambda: f"list({s()}pick(v){s()}for v in numbers(2))",
                lambda: f"(lambda q:{s()}({s()}q or{s()}{self.within(depth - 1)}))({s()}{e()})",
                lambda: f"(n := {e()})" if self.kind != "class" else e(),
                lambda: f"(number({e()}){s()}<{s()}number({e()}){s()}<={s()}number({e()}))",
                lambda: f"(number({e()}){s()}+{s()}number({e()}))",
                lambda: f"pick({s()}*[{e()}],{s()}**{{{s()}}})",
                lambda: f"(thing{s()}.method({s()}{e()}){s()}.method({s()}{e()}))",
                lambda: f"may({s()}{e()}{s()})",
                lambda: self.suspended(depth),
            ]
        )()

    def suspended(self, depth: int) -> str:
        if self.kind in ("co", "agen"):
            return f"(await later({self.s()}{self.e(depth - 1)}{self.s()}))"
        if self.kind == "gen":
            return f"(yield {self.e(depth - 1)}{self.s()})"
        return f"several({self.s()}{self.e(depth - 1)},{self.s()}*[{self.s()}{self.e(depth - 1)},{self.s()}])"

    def condition(self) -> str:
        s = self.s
        return self.random.choice(
            [
                lambda: "yes()",
                lambda: self.e(2),
                lambda: f"yes() and ({s()}{self.e(1)}{s()})",
                lambda: f"not (yes() and{s()}yes())",
                lambda: f"a in ({s()}one,{s()}b,{s()})",
            ]
        )()

    # ---- statements

    def block(self, depth: int, most: int = 3) -> None:
        for _ in range(self.random.randrange(1, most + 1)):
            self.budget -= 1
            chosen = self.simple
            if self.budget > 0 and depth < 7 and self.maybe(0.55):
                chosen = self.random.choice(
                    [
                        self.put_if,
                        self.put_for,
                        self.put_while,
                        self.put_try,
                        self.put_finally,
                        self.put_with,
                        self.put_match,
                        self.put_def,
                        self.put_class,
                    ]
                )
            chosen(depth)

    def simple(self, depth: int) -> None:
        s = self.s
        texts = [
            lambda: f"pick({self.e(2)})",
            lambda: f"{self.any('a', 'b', 'a = b', 'thing.x', 'box[0]', 'x: int')} = {self.e(3)}",
            lambda: f"total {self.any('+=', '-=')} number({s()}{self.e(1)})",
            lambda: f"a, *b = ({self.e(1)},{s()}{self.e(1)},{s()}k)",
            lambda: f"(a,{s()}thing.x,{s()}box[0]) = [k, 1,{s()}0]",
            lambda: f"assert pick({s()}one{s()}), {self.e(1)}",
            lambda: "x = 1\ndel x",
            lambda: f"from os import ({s()}path,{s()}sep)",
            lambda: self.any("pass", "'text'", "..."),
            lambda: f"if rare({s()}):\n    raise {self.any('Trouble', f'Trouble({s()}one)', f'KeyError({s()}1)')}",
        ]
        if self.loop:
            texts.append(lambda: f"if {self.any('yes()', 'rare()')}:\n    {self.any('break', 'continue')}")
        texts += {"fun": self.calls, "gen": self.yields, "co": self.awaits, "agen": self.yields_and_awaits}.get(
            self.kind, list
        )()
        self.put(depth, self.random.choice(texts)())

    def calls(self) -> list[Callable[[], str]]:
        return [
            lambda: f"a = fun({self.s()}depth - 1{self.s()})",
            lambda: f"if rare():\n    return {self.any('', 'a', f'pick({self.s()}b)')}",
        ]

    def yields(self) -> list[Callable[[], str]]:
        return [
            lambda: f"a = yield pick({self.s()}k)",
            lambda: f"yield from gen({self.s()}depth - 1)",
            lambda: "if rare():\n    return a",
        ]

    def awaits(self) -> list[Callable[[], str]]:
        return [
            lambda: f"a = await co({self.s()}depth - 1{self.s()})",
            lambda: f"await later({self.s()}one)",
            lambda: "if rare():\n    return a",
        ]

    def yields_and_awaits(self) -> list[Callable[[], str]]:
        return [
            lambda: f"a = yield pick({self.s()}k)",
            lambda: f"a = await later({self.s()}b) or{' '}await later(one)",
            lambda: "if rare():\n    return",
        ]

    def body(self, depth: int, header: str, most: int = 3) -> None:
        self.put(depth, header)
        self.block(depth + 1, most)

    def put_loop(self, depth: int, header: str) -> None:
        loop, self.loop = self.loop, True
        self.body(depth, header)
        self.loop = loop
        if self.maybe(0.25):
            self.body(depth, "else:", 2)

    def put_if(self, depth: int) -> None:
        self.body(depth, f"if {self.condition()}:")
        if self.maybe(0.3):
            self.body(depth, f"elif {self.condition()}:")
        if self.maybe(0.4):
            self.body(depth, "else:")

    def put_for(self, depth: int) -> None:
        s = self.s
        headers = [
            f"for k in numbers({s()}{self.random.randrange(4)}{s()}):",
            f"for k in (pick(one),{s()}pick(a),{s()}):",
            f"for k, box[0] in zip({s()}numbers(2),{s()}numbers(3)):",
        ]
        if self.kind in ("co", "agen"):
            headers += [f"async for k in items({s()}2{s()}):", f"async for k in agen({s()}depth - 1):"]
        if self.kind == "gen":
            headers.append(f"for k in gen({s()}depth - 1{s()}):")
        self.put_loop(depth, self.any(*headers))

    def put_while(self, depth: int) -> None:
        s = self.s
        last = self.any("", f" and ({self.e(1)}{s()})", f" and not ({s()}yes(){s()})")
        self.put_loop(depth, f"while go({s()}){last}:")

    def put_try(self, depth: int) -> None:
        self.body(depth, "try:")
        star = "*" if _GROUPS and self.maybe(0.15) else ""
        loop = self.loop
        for _ in range(self.random.randrange(1, 3)):
            kind = self.any("Trouble", f"({self.s()}ValueError,{self.s()}Trouble{self.s()})", "KeyError as error")
            self.put(depth, f"except{star} {kind}:")
            if star:  # nothing leaves it
                self.put(depth + 1, f"pick({self.s()}a)")
            else:
                self.block(depth + 1)
        self.loop = loop
        if self.maybe(0.3):
            self.body(depth, "else:", 2)
        if self.maybe(0.3):
            self.body(depth, "finally:", 2)

    def put_finally(self, depth: int) -> None:
        self.body(depth, "try:")
        self.body(depth, "finally:")

    def put_with(self, depth: int) -> None:
        s, waits = self.s, self.kind in ("co", "agen") and self.maybe(0.5)
        m = "waiting" if waits else "manager"
        headers = [f"{m}({s()}1{s()})", f"{m}(1) as b", f"{m}(1), {m}({s()}2)", f"{m}({s()}{self.e(1)}{s()}) as a"]
        if _MANAGERS_APART:
            headers += [f"({s()}{m}(1) as a,{s()}{m}(2) as b{s()})", f"({s()}{m}(1){s()})"]
        self.body(depth, f"{'async ' if waits else ''}with {self.any(*headers)}:")

    def put_match(self, depth: int) -> None:
        s = self.s
        self.put(depth, f"match {self.any('pick', 'several')}({s()}{self.e(1)}{s()}):")
        for _ in range(self.random.randrange(1, 4)):
            case = self.any("1 | 0", f"[x,{s()}y]", f"(x,{s()}*y)", "{'i': x}", "str()", "None", f"[{s()}1,{s()}x]")
            self.body(depth + 1, f"case {case}{self.any('', f' if {self.e(1)}')}:", 2)
        self.body(depth + 1, "case _:", 2)

    def put_def(self, depth: int) -> None:
        for _ in range(self.random.randrange(3)):
            self.put(depth, self.any("@pick", f"@decorator({self.s()}a)"))
        kind, loop = self.kind, self.loop
        self.kind, self.loop = self.any("fun", "fun", "gen", "co", "agen"), False
        s, waits = self.s, "async " if self.kind in ("co", "agen") else ""
        self.put(depth, f"{waits}def made({s()}depth,{s()}a=pick({s()}1),{s()}*more,{s()}k=2):")
        self.put(depth + 1, "total = n = b = 0; box = [0]")
        self.block(depth + 1, 2)
        if self.kind in ("gen", "agen"):
            self.put(depth + 1, "yield 1")
        self.kind, self.loop = kind, loop
        self.put(depth, "drive(made)")

    def put_class(self, depth: int) -> None:
        kind, loop = self.kind, self.loop
        header = self.any("class C:", f"class C({self.s()}dict,{self.s()}):", f"class C(pick({self.s()}dict)):")
        self.kind, self.loop = "class", False
        self.put(depth, header)
        self.put(depth + 1, "a = b = k = total = 1; box = [0]")
        self.block(depth + 1, 2)
        self.kind, self.loop = kind, loop

    def function(self, kind: str, header: str) -> None:
        self.kind, self.loop, self.budget = kind, False, self.random.randrange(6, 18)
        self.put(0, header)
        self.put(1, "a = b = k = total = 1; n = 0; box = [0]")
        self.put(1, "if depth < 0 or not go():\n    return")
        self.block(1, 6)
        self.put(1, "yield pick(a)" if kind in ("gen", "agen") else "return a")


def program(seed: int) -> str:
    writer = _Writer(seed)
    writer.function("fun", "def fun(depth):")
    writer.function("gen", "def gen(depth):")
    writer.function("co", "async def co(depth):")
    writer.function("agen", "async def agen(depth):")
    return "\n".join(writer.lines) + "\n"


class Trouble(Exception):
    pass


class Stop(BaseException):
    """The program has run for long enough; through all of its handlers."""


class _Later:
    def __init__(self, world: World, value: Any) -> None:
        self.world, self.value = world, value

    def __await__(self) -> Iterator[None]:
        if self.world.chance(0.5):
            yield
        if self.world.chance(0.1):
            raise Trouble
        return self.value  # type: ignore[return-value]


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.steps = self.rounds = 0

    def chance(self, chance: float) -> bool:
        return self.random.random() < chance

    def step(self, chance: float) -> bool:
        self.steps += 1
        if self.steps > 400:
            raise Stop
        return self.chance(chance)

    def go(self) -> bool:
        self.rounds += 1
        return self.rounds < 150 and self.chance(0.7)

    def may(self, value: Any = None) -> Any:
        if self.step(0.12):
            raise Trouble
        return value

    @contextlib.contextmanager
    def manager(self, value: Any = None) -> Iterator[int]:
        try:
            yield 1
        except Trouble:
            if self.chance(0.5):
                raise

    @contextlib.asynccontextmanager
    async def waiting(self, value: Any = None) -> AsyncIterator[int]:
        await _Later(self, 1)
        try:
            yield 1
        except Trouble:
            if self.chance(0.5):
                raise

    async def items(self, count: int) -> AsyncIterator[int]:
        for i in range(count):
            await _Later(self, 1)
            yield i

    def names(self) -> dict[str, Any]:
        class Thing:
            x = 0

            def method(self, value: Any = None) -> Thing:
                return self

        return {
            "Trouble": Trouble,
            "yes": lambda: self.step(0.5),
            "rare": lambda: self.step(0.12),
            "go": self.go,
            "may": self.may,
            "manager": self.manager,
            "waiting": self.waiting,
            "items": self.items,
            "drive": self.drive,
            "later": lambda value=None: _Later(self, value),
            "pick": lambda value=None: value,
            "decorator": lambda value: lambda function: function,
            "numbers": lambda count: iter(range(count)),
            "short": lambda value: repr(value)[:3],
            "number": lambda value: value if type(value) in (int, bool) else 1,
            "several": lambda *values: list(values),
            "thing": Thing(),
            "one": 1,
            "zero": 0,
            "none": None,
            "a": 1,
            "b": 1,
            "k": 1,
            "__annotations__": {},
        }

    def run(self, space: dict[str, Any]) -> None:
        """What a program leaves to the collector ends here as well."""
        self.random.seed(self.seed)
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        gc.disable()
        try:
            for name in ("fun", "gen", "co", "agen") * 6:
                self.steps = self.rounds = 0
                with contextlib.suppress(Stop):
                    self.drive(space[name], 2)
            self.steps = 400
            gc.collect()
        finally:
            gc.enable()
            sys.unraisablehook = hook

    def drive(self, function: Any, depth: int = 1) -> None:
        with contextlib.suppress(Exception):
            made = function(depth)
            if isinstance(made, types.GeneratorType):
                self.go_through(made.send, made.throw, made.close)
            elif isinstance(made, types.CoroutineType):
                self.wait(made)
            elif isinstance(made, types.AsyncGeneratorType):
                self.go_through(
                    lambda value: self.wait(made.asend(value)),
                    lambda error: self.wait(made.athrow(error)),
                    lambda: self.wait(made.aclose()),
                )

    def go_through(self, send: Callable[[Any], Any], throw: Callable[[Any], Any], close: Callable[[], Any]) -> None:
        try:
            send(None)
            for _ in range(self.random.randrange(8)):
                what = self.random.randrange(12)
                if what == 0:
                    throw(Trouble)
                elif what == 1:
                    close()
                else:
                    send(what == 2)
        finally:
            close()

    def wait(self, awaited: Any) -> None:
        try:
            while True:
                what = self.random.randrange(25)
                if what == 0:
                    awaited.throw(Trouble)
                elif what == 1:
                    awaited.close()
                    break
                else:
                    awaited.send(None)
        except StopIteration:
            pass
        finally:
            awaited.close()
