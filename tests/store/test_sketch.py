"""What a user would lose: a p99 that is never below the truth and at most 2 % above it, however the positions were
spread over processes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from movemask.store.cells import Cell
from movemask.store.sketch import SMALLEST, Sketch, rank_of

values = st.lists(st.floats(SMALLEST, 1.0) | st.just(0.0), min_size=1, max_size=200)
quantiles = st.sampled_from([0.0, 0.5, 0.95, 0.99, 0.999, 1.0])


def nearest_rank(sample: list[float], q: float) -> float:
    """By its definition: the smallest value that at least the share `q` of all do not exceed."""
    return min(
        one for one in sample if Fraction(sum(other <= one for other in sample), len(sample)) >= Fraction(str(q))
    )


def told_safely(found: float | None, true: float) -> bool:
    return found is not None and true <= found <= 1.0203 * true


def same(one: Sketch, other: Sketch) -> bool:
    return (one.buckets.tolist(), one.counts.tolist()) == (other.buckets.tolist(), other.counts.tolist())


@given(values, quantiles)
def test_quantiles_are_never_below_the_value_at_their_rank(sample: list[float], q: float) -> None:
    assert told_safely(Sketch.of(sample).quantile(q), nearest_rank(sample, q))


@given(st.lists(st.floats(SMALLEST, 1.0) | st.just(0.0), min_size=1, max_size=99))
def test_the_p99_of_less_than_a_hundred_is_the_highest_of_them(sample: list[float]) -> None:
    nothing = np.zeros(len(sample))
    cell = Cell.of(np.array(sample), nothing.astype(np.bool_), nothing)
    assert cell.quantiles()["p99"] == cell.quantiles()["p999"] == max(sample)


def test_ranks_are_exact_where_floats_are_not() -> None:
    assert [rank_of(q, 100) for q in (0.07, 0.29, 0.57, 0.99)] == [7, 29, 57, 99]  # 0.07 * 100 is above 7
    assert [rank_of(0.99, total) for total in (1, 2, 14, 100, 101)] == [1, 2, 14, 99, 100]
    assert rank_of(0.0, 5) == 1
    assert rank_of(0.999, 10**12) == 999 * 10**9


@given(values, st.integers(1, 200))
def test_a_value_lies_between_the_bounds_of_its_rank(sample: list[float], rank: int) -> None:
    rank = min(rank, len(sample))
    low, high = Sketch.of(sample).around(rank)
    assert low <= sorted(sample)[rank - 1] <= high


@given(st.lists(values, max_size=5), quantiles)
def test_the_sketch_of_the_parts_is_the_sketch_of_all(parts: list[list[float]], q: float) -> None:
    everything = [value for part in parts for value in part]
    sketches = [Sketch.of(part) for part in parts]
    merged = Sketch.merged(sketches)
    assert same(merged, Sketch.of(everything))
    assert same(Sketch.merged(Sketch.from_bytes(sketch.to_bytes()) for sketch in sketches), merged)
    if everything:
        assert told_safely(merged.quantile(q), nearest_rank(everything, q))


@given(values, st.integers(0, 40))
def test_a_database_gives_back_what_it_was_given(sample: list[float], doublings: int) -> None:
    sketch = Sketch.of(sample)
    for _ in range(doublings):  # counts of every width
        sketch = Sketch.merged([sketch, sketch])
    assert same(Sketch.from_bytes(sketch.to_bytes()), sketch)
    assert sketch.total == len(sample) * 2**doublings


@given(st.floats(SMALLEST, 1.0))
def test_a_buckets_value_is_within_one_percent_of_all_it_holds(value: float) -> None:
    ((told,), (count,)) = Sketch.of([value]).histogram()
    assert told == pytest.approx(value, rel=0.0101)
    assert count == 1


def test_nothing_zero_and_what_is_no_probability() -> None:
    assert Sketch.of([]).quantile(0.5) is None
    assert Sketch.of([0.0] * 3).quantile(0.99) == 0.0
    assert Sketch.of([1e-300]).quantile(0.5) == 0.0
    for bad in (float("nan"), -1e-9, float("inf")):
        with pytest.raises(ValueError, match="must be finite and at least 0"):
            Sketch.of([0.5, bad])
    with pytest.raises(ValueError, match=r"q: must be in 0\.\.1"):
        Sketch.of([1.0]).quantile(1.5)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x09\x01\x00", b"\x00\x01\x00\x05", Sketch.of([0.5]).to_bytes() + b"x"]
)
def test_bytes_that_are_no_sketch_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="sketch"):
        Sketch.from_bytes(data)
