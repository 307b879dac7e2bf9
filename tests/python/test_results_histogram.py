"""The histogram of the result types: its cells are those of src/core/hist.h, quantiles are within 1.6 %, counts add."""

from __future__ import annotations

import copy
import math
import pickle
import random

import pytest

from lineprofiler.accounting.results import AmountHistogram, DurationHistogram

# Half a cell of 1/32 octave, by its middle: src/core/hist.h.
ERROR = 1 / 64


def filled(values: list[int]) -> DurationHistogram:
    hist = DurationHistogram()
    for value in values:
        hist.observe(value)
    return hist


def exact(values: list[int], q: float) -> int:
    return sorted(values)[max(math.ceil(q * len(values)), 1) - 1]


@pytest.mark.parametrize(
    ("value", "cell"),
    # By hand: 64 = 1 * 32 * 2 is the first value of the second octave above 32, whose cells are 2 wide.
    [(0, 0), (1, 1), (31, 31), (32, 32), (63, 63), (64, 64), (65, 64), (66, 65), (127, 95), (128, 96), (2**56, 1663)],
)
def test_cells_are_those_of_the_recorder(value: int, cell: int) -> None:
    assert filled([value]).to_sparse() == {str(cell): 1}


def test_cells_cover_every_value_once() -> None:
    seen: dict[str, int] = {}
    for value in range(5000):
        (cell,) = filled([value]).to_sparse()
        seen[cell] = seen.get(cell, 0) + 1
    assert sum(seen.values()) == 5000
    assert sorted(map(int, seen)) == list(range(len(seen))), "no cell is skipped"


@pytest.mark.parametrize("q", [0.0, 0.01, 0.5, 0.95, 0.99, 1.0])
def test_quantiles_against_the_exact_list(q: float) -> None:
    rng = random.Random(7)
    values = [int(rng.lognormvariate(12, 3)) for _ in range(20_000)]
    assert filled(values).quantile(q) == pytest.approx(exact(values, q), rel=ERROR, abs=0.5)


def test_small_values_are_exact() -> None:
    values = [3, 3, 7, 9, 31]
    hist = filled(values)
    assert [hist.quantile(q) for q in (0.2, 0.4, 0.6, 0.8, 1.0)] == [3.0, 3.0, 7.0, 9.0, 31.0]


def test_empty_and_wrong_quantiles() -> None:
    assert DurationHistogram().quantile(0.5) == 0.0
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="quantile"):
            filled([1]).quantile(q)


def test_negative_durations_count_as_zero() -> None:
    hist = filled([-5])
    assert hist.to_sparse() == {"0": 1}
    assert hist.count == 1


def test_merge_adds_without_loss() -> None:
    first, second = [1, 500, 10**6], [500, 10**9]
    merged = filled(first)
    other = filled(second)
    merged.merge(other)
    assert merged == filled(first + second)
    assert merged.count == 5
    assert other == filled(second), "the source stays as it was"


def test_merge_with_itself() -> None:
    hist = filled([5, 7])
    hist.merge(hist)
    assert hist == filled([5, 5, 7, 7])


def test_difference_is_the_interval_between() -> None:
    early, late = [10, 2000], [10, 10, 5_000_000]
    before, after = filled(early), filled(early + late)
    assert after.difference(before) == filled(late)
    assert before.difference(after).count == 0, "clamped at 0"
    assert after == filled(early + late)


def test_sparse_round_trip_and_hostile_input() -> None:
    hist = filled([0, 31, 32, 10**12])
    assert DurationHistogram.from_sparse(hist.to_sparse()) == hist
    assert DurationHistogram.from_sparse({"3": 0}) == DurationHistogram()
    for sparse in ({"1664": 1}, {"-1": 1}, {"3": -1}, {"x": 1}):
        with pytest.raises(ValueError, match=r"no histogram cell|invalid literal"):
            DurationHistogram.from_sparse(sparse)


def test_dense_buckets() -> None:
    buckets = filled([1, 1, 40]).buckets
    assert len(buckets) == 1664
    assert (buckets[1], buckets[40], sum(buckets)) == (2, 1, 3)


@pytest.mark.parametrize("hist", [DurationHistogram(), filled([1, 10**9])], ids=["empty", "filled"])
def test_equality_copies_and_pickle(hist: DurationHistogram) -> None:
    for clone in (pickle.loads(pickle.dumps(hist)), copy.deepcopy(hist), copy.copy(hist), hist.copy()):
        assert clone == hist
        assert clone.count == hist.count
        clone.observe(3)
        assert clone != hist, "a copy shares nothing"
    assert hist != "no histogram"
    with pytest.raises(TypeError):
        hash(hist)


def test_amounts_keep_their_sign() -> None:
    hist = AmountHistogram()
    for amount in (-3, 0, 8, 8, -1000):
        hist.observe(amount)
    assert hist.quantile(0.0) == pytest.approx(-1000, rel=ERROR)
    assert [hist.quantile(q) for q in (0.4, 0.6, 0.8)] == [-3.0, 0.0, 8.0]
    assert AmountHistogram.from_sparse(hist.to_sparse()) == hist
    assert pickle.loads(pickle.dumps(hist)) == hist
    assert [(value, count) for value, count in hist][-1] == (8.0, 2)
