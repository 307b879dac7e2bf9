"""The line engine beside other tools and engines, how it finds functions, and regions."""

from __future__ import annotations

import sys
from types import CodeType

import pytest
from lineprograms import Running, hits, marked, near, program
from lptest import run_python

from lineprofiler._lineprofiler import LineEngine

# --- beside others ---


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_tool_ids_are_given_back() -> None:
    def f() -> int:
        return 1

    others = [n for n in range(6) if sys.monitoring.get_tool(n) is None]
    with Running(LineEngine()):
        assert sys.monitoring.get_tool(3) == "lineprofiler"
    assert sys.monitoring.get_tool(3) is None
    engine = LineEngine()
    engine.mark(f.__code__)
    try:
        for n in others:
            sys.monitoring.use_tool_id(n, f"other {n}")
        engine.start()
        assert (engine.count, engine.active) == (1, False)
        assert engine.trouble == ["all tool ids of sys.monitoring are taken: nothing is measured"]
        f()
        engine.stop()
        sys.monitoring.free_tool_id(4)
        with Running(engine):
            f()
            assert [n for n in range(6) if sys.monitoring.get_tool(n) == "lineprofiler"] == [4]
            assert sys.monitoring.get_local_events(4, f.__code__) != 0
        assert sys.monitoring.get_local_events(4, f.__code__) == 0
        assert sys.monitoring.get_tool(4) is None
    finally:
        for n in others:
            sys.monitoring.free_tool_id(n)
    assert sum(hits(engine, f).values()) == 1  # type: ignore[arg-type]


def test_two_engines_on_one_function() -> None:
    space = program("""
        def f():
            for i in range(10):
                g(i)
        def g(i):
            return i
    """)
    one, two = marked(space, "f", "g"), marked(space, "g")
    with Running(one):
        space["f"]()
        with Running(two):
            space["f"]()
        space["f"]()
    assert hits(one, space["f"]) == {2: 33, 3: 30}
    assert hits(one, space["g"]) == {5: 30}
    assert hits(two, space["g"]) == {5: 10}
    assert one.trouble == two.trouble == []


def test_engines_come_and_go() -> None:
    space = program("""
        def f():
            return 1
    """)
    for _ in range(200):
        engine = marked(space, "f")
        with Running(engine):
            space["f"]()
        assert hits(engine, space["f"]) == {2: 1}
        del engine


# --- functions are found ---


def test_select_finds_functions_at_their_first_call() -> None:
    space = program("""
        def early():
            start()
            return later()
        def later():
            return [x for x in gen()]
        def gen():
            yield 1
            yield 2
        def refused():
            return 1
    """)
    asked: list[str] = []

    def select(code: CodeType) -> bool:
        asked.append(code.co_name)
        if code.co_name == "gen" and code.co_filename != "<program>":
            raise RuntimeError("not reached")
        return code.co_filename == "<program>" and code.co_name != "refused"

    engine = LineEngine(select=select)
    space["start"] = engine.start
    suspended = space["gen"]()
    next(suspended)
    space["early"]()
    for _ in range(5):
        space["refused"]()
        space["later"]()
    assert next(suspended) == 2
    engine.stop()
    assert {code.co_name for code in engine.codes()} >= {"early", "later", "gen"}
    assert hits(engine, space["early"]) == {3: 1}
    assert hits(engine, space["later"])[5] == 6
    assert hits(engine, space["gen"]) == {7: 6, 8: 7}
    assert hits(engine, space["early"]).get(2) is None
    assert asked.count("refused") == asked.count("later") == asked.count("gen") == 1
    engine.start()
    space["refused"]()
    engine.stop()
    assert asked.count("refused") == 1
    assert engine.trouble == []


def test_select_beside_greenlets() -> None:
    """Where greenlets are, every frame is traced, but for those that `select` itself calls: a debug build of the
    interpreter asserts that what runs inside of a trace function has no events."""
    pytest.importorskip("greenlet")
    done = run_python(
        """
        import greenlet
        from lineprofiler._lineprofiler import LineEngine

        def helper(code):
            return code.co_name == "late"

        def select(code):
            return helper(code)

        def late():
            return 1

        def early():
            engine.start()
            return late()

        engine = LineEngine(select=select)
        early()
        late()
        engine.stop()
        assert [code.co_name for code in engine.codes()] == ["late"], engine.codes()
        assert [row[2] for row in engine.lines()] == [2], engine.lines()
        assert engine.trouble == [], engine.trouble
        """
    )
    done.expect()


def test_select_that_raises() -> None:
    space = program("""
        def f():
            return 1
    """)

    def select(code: CodeType) -> bool:
        if code is space["f"].__code__:
            raise ValueError("no idea")
        return False

    engine = LineEngine(select=select)
    with Running(engine):
        assert space["f"]() == 1
        assert space["f"]() == 1
    assert engine.codes() == []
    assert engine.trouble == ["select() raised ValueError: no idea"]


# --- regions ---


def test_regions_nest_and_have_lines_of_their_own() -> None:
    space = program("""
        from time import sleep
        def f(enter, leave):
            work()
            enter("a")
            work()
            enter("b")
            work()
            leave()
            enter("a")
            sleep(0.005)
            leave()
            leave()
            work()
        def work():
            sleep(0.005)
    """)
    engine = marked(space, "f", "work")
    with Running(engine):
        space["f"](engine.region_enter, engine.region_leave)
    assert hits(engine, space["work"]) == {15: 4}
    assert hits(engine, space["f"]) == dict.fromkeys(range(3, 14), 1)
    regions = engine.regions()
    assert set(regions) == {"a", "b"}
    entries, ns_a, rows_a = regions["a"]
    assert entries == 2
    assert ns_a >= 15_000_000
    entries, ns_b, rows_b = regions["b"]
    assert entries == 1
    assert 5_000_000 <= ns_b < ns_a
    assert {row[:3] for row in rows_a if row[2]} == {(0, n, 1) for n in range(5, 12)} | {(0, 12, 1), (1, 15, 2)}
    assert {row[:3] for row in rows_b if row[2]} == {(0, 7, 1), (0, 8, 1), (1, 15, 1)}
    assert near(sum(row[5] for row in rows_a), ns_a)
    engine.region_leave()
    assert engine.trouble == ["a region was left that this thread had not entered"]
