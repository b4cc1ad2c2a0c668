"""What a user would lose: a p99 that is within 1 % of the truth, however the positions were spread over processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.audit.sketch import SMALLEST, Sketch

values = st.lists(st.floats(SMALLEST, 1.0) | st.just(0.0), min_size=1, max_size=200)
quantiles = st.sampled_from([0.0, 0.5, 0.95, 0.99, 0.999, 1.0])


def same(one: Sketch, other: Sketch) -> bool:
    return (one.buckets.tolist(), one.counts.tolist()) == (other.buckets.tolist(), other.counts.tolist())


@given(values, quantiles)
def test_quantiles_are_within_one_percent_of_numpys(sample: list[float], q: float) -> None:
    found = Sketch.of(sample).quantile(q)
    assert found == pytest.approx(np.quantile(sample, q, method="lower"), rel=0.0101, abs=0)


@given(st.lists(values, max_size=5), quantiles)
def test_the_sketch_of_the_parts_is_the_sketch_of_all(parts: list[list[float]], q: float) -> None:
    everything = [value for part in parts for value in part]
    sketches = [Sketch.of(part) for part in parts]
    merged = Sketch.merged(sketches)
    assert same(merged, Sketch.of(everything))
    assert same(Sketch.merged_bytes([sketch.to_bytes() for sketch in sketches]), merged)
    if everything:
        assert merged.quantile(q) == pytest.approx(np.quantile(everything, q, method="lower"), rel=0.0101, abs=0)


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
