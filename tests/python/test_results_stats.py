"""PhaseStats and trees: sums, unions, differences, and what is not known."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, fields, is_dataclass

import pytest

from lineprofiler.accounting import PhaseStats, PhaseTree, merge_trees
from lineprofiler.accounting.results import DurationHistogram, OpenPhase, top_wall_ns


def stats(*walls: int, **more: object) -> PhaseStats:
    made = PhaseStats()
    for wall in walls:
        made.record(wall, wall // 2)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_field_order_and_defaults() -> None:
    first = [entry.name for entry in fields(PhaseStats)][:10]
    assert first == [
        "calls",
        "wall_ns",
        "cpu_ns",
        "child_wall_ns",
        "hist",
        "counters",
        "sample_stride",
        "counter_min",
        "counter_max",
        "async_entries",
    ]
    by_position = PhaseStats(2, 100, 30, 60, DurationHistogram(), {"n": 3}, 4, {"n": 1}, {"n": 2}, 1)
    assert (by_position.calls, by_position.counters, by_position.async_entries) == (2, {"n": 3}, 1)
    assert by_position.self_ns == 40
    assert by_position.wait_ns == 70, "CPU time is taken as known unless something says otherwise"


def test_derived_times_never_fall_below_zero() -> None:
    assert PhaseStats(wall_ns=10, child_wall_ns=15).self_ns == 0
    assert PhaseStats(wall_ns=10, cpu_ns=15).wait_ns == 0


def test_unknown_cpu_time_is_no_wait() -> None:
    unknown = PhaseStats(calls=3, wall_ns=900, cpu_unknown_ns=900)
    assert unknown.wait_ns == 0
    assert not unknown.cpu_known
    partly = PhaseStats(calls=3, wall_ns=900, cpu_ns=100, cpu_unknown_ns=600)
    assert partly.cpu_wall_ns == 300
    assert partly.wait_ns == 200
    assert partly.cpu_known
    assert not partly.wait_split
    assert PhaseStats(wall_ns=900, cpu_ns=900).wait_split


def test_record_keeps_extremes() -> None:
    made = stats(50, 10, 90)
    assert (made.calls, made.wall_ns, made.cpu_ns, made.min_ns, made.max_ns) == (3, 150, 75, 10, 90)
    assert made.hist.count == 3


def test_counters() -> None:
    made = PhaseStats()
    for amount in (8, -2, 8):
        made.add_count("scored", amount)
    assert made.counters == {"scored": 14}
    assert (made.counter_min, made.counter_max, made.counter_calls) == ({"scored": -2}, {"scored": 8}, {"scored": 3})
    assert made.counter_hist["scored"].quantile(0.5) == 8.0


def test_merge_is_associative_and_leaves_the_source() -> None:
    def parts() -> list[PhaseStats]:
        a, b, c = stats(5, 7, errors=1), stats(1000, sample_stride=100, io=True), stats(overlap=True)
        a.add_count("n", 3)
        b.add_count("n", -4)
        b.add_count("m", 2**70)
        return [a, b, c]

    a, b, c = parts()
    a.merge(b)
    a.merge(c)
    d, e, f = parts()
    e.merge(f)
    kept = copy.deepcopy(e)
    d.merge(e)
    assert a == d
    assert e == kept
    assert (d.calls, d.min_ns, d.max_ns, d.sample_stride, d.errors) == (3, 5, 1000, 100, 1)
    assert (d.io, d.overlap, d.io_overlap) == (True, True, False)
    assert d.counters == {"n": -1, "m": 2**70}
    assert (d.counter_min["n"], d.counter_max["n"]) == (-4, 3)


def test_merging_nothing_keeps_the_extremes() -> None:
    made = stats(40)
    made.merge(PhaseStats())
    assert (made.min_ns, made.max_ns) == (40, 40)
    empty = PhaseStats()
    empty.merge(stats(40))
    assert (empty.min_ns, empty.max_ns) == (40, 40)


def test_difference_is_the_interval_between() -> None:
    before = stats(5, 100)
    before.add_count("n", 3)
    before.add_count("quiet", 1)
    after = before.copy()
    after.record(20, 10)
    after.add_count("n", -9)
    delta = after.difference(before)
    assert (delta.calls, delta.wall_ns, delta.cpu_ns) == (1, 20, 10)
    assert (delta.min_ns, delta.max_ns) == (20, 20), "exact below 32"
    assert delta.counters == {"n": -9}, "a counter may fall, and one that nothing was counted on is absent"
    assert (delta.counter_min, delta.counter_max, delta.counter_calls) == ({"n": -9}, {"n": -9}, {"n": 1})
    assert before.difference(after).calls == 0, "clamped"
    assert after.difference(PhaseStats()).hist == after.hist


def test_difference_of_counter_that_adds_up_to_nothing() -> None:
    before = PhaseStats()
    before.add_count("n", 1)
    after = before.copy()
    after.add_count("n", 5)
    after.add_count("n", -5)
    assert after.difference(before).counters == {"n": 0}


def test_dict_round_trip() -> None:
    made = stats(10, 2000, blocked_ns=3, starved_ns=4, io=True)
    made.add_count("bytes", 10**30)
    data = made.to_dict()
    assert PhaseStats.from_dict(data) == made
    assert PhaseStats.from_dict({"calls": 2, "wall_ns": 5, "unknown": 1}) == PhaseStats(calls=2, wall_ns=5)
    data["counters"]["bytes"] = 0
    assert made.counters["bytes"] == 10**30, "the dict shares nothing"


def test_dataclass_pickle_equality() -> None:
    made = stats(10, 2000)
    made.add_count("n", 1)
    assert is_dataclass(made)
    assert pickle.loads(pickle.dumps(made)) == made
    assert asdict(made)["counters"] == {"n": 1}
    assert made.copy() == made
    assert made != stats(10)
    with pytest.raises(TypeError):
        hash(made)
    with pytest.raises(AttributeError):
        made.no_such_field = 1  # type: ignore[attr-defined]


def test_merge_trees() -> None:
    target: PhaseTree = {("a",): stats(10)}
    source: PhaseTree = {("a",): stats(5), ("a", "b"): stats(7)}
    kept = copy.deepcopy(source)
    merge_trees(target, source)
    assert target[("a",)].calls == 2
    assert target[("a", "b")] == stats(7)
    target[("a", "b")].record(1, 1)
    assert source == kept, "the source shares nothing with the target"


def test_wall_time_of_the_top() -> None:
    tree: PhaseTree = {
        (): PhaseStats(),
        ("MainThread",): PhaseStats(),  # never entered: stands for its children
        ("MainThread", "step"): stats(30),
        ("MainThread", "step", "inner"): stats(20),
        ("load",): stats(5),
    }
    assert top_wall_ns(tree) == 35
    still_open = [OpenPhase(("load",), 0.0, 100), OpenPhase(("MainThread", "late"), 0.0, 7)]
    assert top_wall_ns(tree, still_open) == 142
