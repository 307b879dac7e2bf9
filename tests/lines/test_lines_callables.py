"""Every kind of callable: marked, not wrapped, so that it stays what it is, and its lines are counted."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from linehits import hits

from lineprofiler import LineProfiler


@pytest.fixture
def profiler() -> Iterator[LineProfiler]:
    made = LineProfiler()
    yield made
    made.disable()


def plain(a: int, b: int = 2) -> int:
    """A docstring."""
    return a + b


def passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@dataclasses.dataclass
class Point:
    x: int

    def __call__(self) -> int:
        return self.x


def test_a_function_keeps_identity_signature_and_pickle(profiler: LineProfiler) -> None:
    before = plain.__code__, inspect.signature(plain), pickle.dumps(plain)
    assert profiler(plain) is plain
    assert (plain.__code__, inspect.signature(plain), pickle.dumps(plain)) == before
    assert plain(1) == 3
    assert hits(profiler, plain) == {2: 1}


@pytest.mark.parametrize("inside", [True, False], ids=["decorated inside", "decorated outside"])
def test_methods_of_every_kind(profiler: LineProfiler, inside: bool) -> None:
    def both(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return (lambda f: kind(profiler(f))) if inside else (lambda f: profiler(kind(f)))

    class A:
        @both(staticmethod)
        def static(x: int) -> int:
            return x

        @both(classmethod)
        def of_class(cls) -> str:
            return cls.__name__

        @both(property)
        def prop(self) -> int:
            return 5

        @both(functools.cached_property)
        def cached(self) -> int:
            return 7

        @both(functools.lru_cache)
        def memo(self) -> int:
            return 9

    kinds = [type(A.__dict__[name]) for name in ("static", "of_class", "prop", "cached")]
    assert kinds == [staticmethod, classmethod, property, functools.cached_property]
    a = A()
    assert [a.static(3), A.static(3), a.of_class(), a.prop] == [3, 3, "A", 5]
    assert [a.cached, a.cached, a.memo(), a.memo()] == [7, 7, 9, 9]
    functions = list(profiler.profile().visited())
    found = {f.key.function_name.split(".")[-1]: sum(n.hits for n in f.lines.values()) for f in functions}
    assert found == {"static": 2, "of_class": 1, "prop": 1, "cached": 1, "memo": 1}


def test_partials_bound_methods_wrappers_and_callable_objects(profiler: LineProfiler) -> None:
    bound = Point(4).__call__
    added = functools.partial(plain, 1)
    wrapped = passed_on(plain)
    for thing in (bound, added, wrapped, Point(1)):
        assert profiler(thing) is thing
    assert (bound(), added(), wrapped(1)) == (4, 3, 3)
    assert hits(profiler, plain) == {2: 2}
    assert hits(profiler, wrapped) == {2: 1}
    assert hits(profiler, Point.__call__) == {1: 1}


def test_generators_and_coroutines_stay_what_they_are(profiler: LineProfiler) -> None:
    @profiler
    def numbers() -> Iterator[int]:
        yield 1
        yield 2

    @profiler
    async def one() -> int:
        await asyncio.sleep(0)
        return 1

    @profiler
    async def several() -> AsyncIterator[int]:
        yield 1
        yield 2

    assert inspect.isgeneratorfunction(numbers)
    assert inspect.iscoroutinefunction(one)
    assert inspect.isasyncgenfunction(several)

    async def main() -> list[int]:
        return [n async for n in several()] + [await one()]

    assert list(numbers()) == [1, 2]
    assert asyncio.run(main()) == [1, 2, 1]
    assert hits(profiler, numbers) == {2: 1, 3: 1}
    assert hits(profiler, one) == {2: 1, 3: 1}
    assert hits(profiler, several) == {2: 1, 3: 1}


def test_lambdas_on_one_line_stay_two(profiler: LineProfiler) -> None:
    pair: list[Callable[[int], int]] = [lambda x: x * 2, lambda x: x * 3]
    for each in pair:
        profiler(each)
    assert [pair[0](1), pair[0](1), pair[1](1)] == [2, 2, 3]
    functions = list(profiler.profile().visited())
    assert sorted(f.calls for f in functions) == [1, 2]
    names = sorted(f.key.function_name.split(".")[-1] for f in functions)
    assert names == ["<lambda>", "<lambda>#2"]


def test_a_class_with_its_members(profiler: LineProfiler) -> None:
    class Outer:
        def method(self) -> int:
            return 1

        @staticmethod
        def fixed() -> int:
            return 2

        class Inner:
            def deep(self) -> int:
                return 3

    assert profiler.add_class(Outer) == 3
    assert profiler.add_class(Outer) == 0
    with profiler:
        Outer().method(), Outer.fixed(), Outer.Inner().deep()
    assert len(profiler.get_stats()) == 3
    assert LineProfiler().add_class(Outer, scoping_policy="exact") == 2


def test_a_module_with_its_own_functions(profiler: LineProfiler) -> None:
    module = ModuleType("made_module")
    text = "import json\nfrom json import dumps\ndef f():\n    return 1\nclass C:\n    def m(self):\n        return 2\n"
    exec(compile(text, "<made>", "exec"), vars(module))
    assert profiler.add_module(module) == 2
    assert LineProfiler().add_module(module, scoping_policy="none") > 2
    assert LineProfiler().add_imported_function_or_module(module.f) == 1
    assert LineProfiler().add_imported_function_or_module(module.C) == 1
    assert LineProfiler().add_imported_function_or_module(module) == 2
    with profiler:
        module.f(), module.C().m()
    assert sorted(key.function_name for key in profiler.get_stats()) == ["C.m", "f"]


def test_nested_functions_when_asked() -> None:
    def outer() -> list[int]:
        def inner(x: int) -> int:
            return x * 2

        return [inner(i) for i in range(10)]

    without = LineProfiler(outer)
    without.runcall(outer)
    assert [key.function_name.split(".")[-1] for key in without.get_stats()] == ["outer"]
    profiler = LineProfiler()
    profiler.add_function(outer, nested=True)
    profiler.runcall(outer)
    found = {key.function_name: value for key, value in profiler.get_stats().items()}
    [inner] = [value for name, value in found.items() if name.endswith("outer.<locals>.inner")]
    assert [line.hits for line in inner.line_stats.values()] == [10]


def test_a_guard_leaves_out(profiler: LineProfiler) -> None:
    assert profiler.add_callable(plain, guard=lambda f: f.__name__ == "plain") == 0
    with pytest.warns(RuntimeWarning, match="the length"):
        assert profiler.add_callable(len, name="the length") == 0
    assert profiler.functions == []


def test_a_twin_of_equal_code_takes_no_hits(profiler: LineProfiler) -> None:
    text = "def f():\n    return 1\n"
    spaces: list[dict[str, Any]] = [{}, {}, {}]
    for space, name in zip(spaces, ("<s>", "<s>", "<other>"), strict=True):
        exec(compile(text, name, "exec"), space)
    profiler(spaces[0]["f"]), profiler(spaces[1]["f"])
    for space in spaces:
        space["f"]()
    [(key, function)] = profiler.get_stats().items()
    assert (key.filename, function.line_stats[2].hits) == ("<s>", 2)


@pytest.mark.parametrize(
    ("policy", "names", "modules"),
    [
        (None, "own below deep beside", ""),
        ("exact", "own", ""),
        ("Children", "own", "top.mine.sub"),
        ("descendants", "own below deep", "top.mine.sub top.mine.sub.low"),
        ("siblings", "own below deep beside", "top.mine.sub top.mine.sub.low top.next"),
        ("none", "own below deep beside far", "top.mine.sub top.mine.sub.low top.next else"),
        ({"func": "none", "class": "exact", "module": "children"}, "own below deep beside far", "top.mine.sub"),
    ],
)
def test_a_scoping_policy_says_from_which_modules(policy: Any, names: str, modules: str) -> None:
    """The members that line_profiler 5.1 takes; each function has a class beside it, each module a function."""
    module = ModuleType("top.mine")
    homes = {"own": "top.mine", "below": "top.mine.a", "deep": "top.mine.a.b", "beside": "top.other", "far": "topmost"}
    for name, home in homes.items():
        space: dict[str, Any] = {"__name__": home}
        exec(f"def {name}(): pass\nclass C:\n    def in_{name}(self): pass", space)
        setattr(module, name, space[name])
        setattr(module, f"C_{name}", space["C"])
    for name in ("top.mine.sub", "top.mine.sub.low", "top.next", "else"):
        inner = ModuleType(name)
        exec("def f(): pass", vars(inner))
        inner.f.__qualname__, inner.f.__module__ = name, name
        setattr(module, f"M_{name}", inner)
    profiler = LineProfiler()
    profiler.add_module(module, scoping_policy=policy)
    found = {function.__qualname__.removeprefix("C.in_") for function in profiler.functions}
    assert found == {*names.split(), *modules.split()}
    with_classes = {f.__qualname__ for f in profiler.functions if f.__qualname__.startswith("C.")}
    exact = policy == "exact" or isinstance(policy, dict)
    assert with_classes == (set() if exact else {f"C.in_{name}" for name in names.split()})


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        (None, "own outside Inner.deep Beside.near"),
        ("exact", "own"),
        ("children", "own Inner.deep"),
        ("descendants", "own Inner.deep"),
        ("none", "own outside foreign Inner.deep Beside.near"),
    ],
)
def test_a_scoping_policy_says_what_of_a_class(policy: str | None, names: str) -> None:
    space: dict[str, Any] = {"__name__": "here"}
    text = """if True:
        def outside(self): pass
        class Beside:
            def near(self): pass
        class Whole:
            def own(self): pass
            class Inner:
                def deep(self): pass
            given = outside
            Near = Beside
    """
    exec(text, space)
    other: dict[str, Any] = {"__name__": "there"}
    exec("def foreign(self): pass", other)
    space["Whole"].foreign = other["foreign"]
    profiler = LineProfiler()
    profiler.add_class(space["Whole"], scoping_policy=policy)
    assert {f.__qualname__.removeprefix("Whole.") for f in profiler.functions} == set(names.split())
    direct = {f.__qualname__.removeprefix("Whole.") for f in LineProfiler(space["Whole"]).functions}
    assert direct == {"own", "outside", "Inner.deep"}


@pytest.mark.parametrize("policy", ["all", {"func": "none"}, {"func": "none", "class": "none", "module": "all"}])
def test_a_policy_that_there_is_not(policy: Any) -> None:
    with pytest.raises(ValueError, match=r"scoping_policy .*: exact, children, descendants, siblings, none"):
        LineProfiler().add_module(ModuleType("m"), scoping_policy=policy)


def test_stand_ins_that_make_objects_or_raise_are_passed_over(profiler: LineProfiler) -> None:
    class Endless:
        def __call__(self) -> int:
            return 1

        def __getattr__(self, name: str) -> Endless:
            return Endless()

    class Raising:
        def __call__(self) -> int:
            return 1

        @property
        def __wrapped__(self) -> Any:
            raise RuntimeError("nothing is bound")

    module = ModuleType("stand_ins")
    vars(module).update(endless=Endless(), raising=Raising())
    exec("def f(): pass", vars(module))
    Raising.__call__.__module__ = Endless.__call__.__module__ = "stand_ins"
    assert profiler.add_module(module) == 2
    assert [f.__qualname__.split(".")[-2:] for f in profiler.functions] == [["Raising", "__call__"], ["f"]]


def test_wrap_profiles_calls_from_then_on() -> None:
    class Marked:
        def method(self) -> int:
            return 1

    profiler = LineProfiler()
    method = Marked.method
    assert profiler.add_class(Marked) == 1
    Marked().method()
    assert profiler.enable_count == 0
    assert profiler.add_class(Marked, wrap=True) == 0  # nothing new: it stays as it was
    again = LineProfiler()
    try:
        assert again.add_class(Marked, wrap=True) == 1
        assert Marked.method is method
        Marked().method()
        Marked().method()
        [found] = again.get_stats().values()
        assert [line.hits for line in found.line_stats.values()] == [2]
        module = ModuleType("wrapped")
        exec("def f():\n    return 1\n", module.__dict__)
        assert again.add_imported_function_or_module(module, wrap=True) == 1
        assert again.enable_count == 1  # once is enough
    finally:
        again.disable()
