"""The oracle of the line profiler itself, against counts that a reader can do by hand."""

from __future__ import annotations

import time
from types import CodeType
from typing import Any

from reference_engine import ReferenceEngine


def over_several_lines() -> None:
    for _ in range(100):
        str(
            1,
        )


class Sleeper:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        time.sleep(0.005)


def with_block() -> None:
    for _ in range(3):
        with Sleeper():
            pass


def recursive(n: int) -> None:
    if n:
        recursive(n - 1)
    time.sleep(0.001)


def generator() -> Any:
    for n in range(3):
        yield n + 1


def measured(code: CodeType, call: Any) -> tuple[ReferenceEngine, dict[int, tuple[int, ...]]]:
    engine = ReferenceEngine()
    engine.mark(code)
    engine.start()
    try:
        call()
    finally:
        engine.stop()
    first = code.co_firstlineno
    return engine, {row[1] - first: row[2:7] for row in engine.lines()}


def test_hits_are_executions() -> None:
    _, lines = measured(over_several_lines.__code__, over_several_lines)
    assert {n: row[:2] for n, row in lines.items()} == {1: (101, 101), 2: (100, 200), 3: (100, 100)}


def test_exit_of_a_with_block_is_no_hit_but_its_time() -> None:
    _, lines = measured(with_block.__code__, with_block)
    assert lines[2][:2] == (3, 6)
    assert lines[2][2] >= 3 * 5_000_000


def test_recursion_counts_each_moment_once() -> None:
    engine, lines = measured(recursive.__code__, lambda: recursive(9))
    assert [row[0] for row in lines.values()] == [10, 9, 10]
    [(_, calls, spent, alone, _, _)] = engine.functions()
    assert calls == 10
    # The 55 ms that inclusive sums of every depth would give are not there.
    assert max(row[2] for row in lines.values()) <= spent
    assert sum(row[3] for row in lines.values()) <= spent
    assert alone <= spent


def test_time_between_yield_and_resume_is_awaited() -> None:
    def consume() -> None:
        for _ in generator():
            time.sleep(0.01)

    _, lines = measured(generator.__code__, consume)
    assert lines[2][0] == 3
    assert lines[2][4] >= 3 * 10_000_000
    assert lines[2][2] < 10_000_000


def test_marks_regions_and_clear() -> None:
    engine = ReferenceEngine()
    assert engine.mark(over_several_lines.__code__) == engine.mark(over_several_lines.__code__) == 0
    engine.start()
    engine.start()
    engine.region_enter("a")
    over_several_lines()
    engine.region_leave()
    engine.stop()
    assert engine.active
    engine.stop()
    assert not engine.active
    entries, spent, rows = engine.regions()["a"]
    assert entries == 1
    assert sum(row[2] for row in rows) == 301
    assert spent > 0
    engine.clear()
    assert engine.lines() == []
    assert engine.regions() == {}
