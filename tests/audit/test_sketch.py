"""What a user would lose: a p99 that is within 1 % of the truth, however the positions were spread over processes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.audit.sketch import SMALLEST, bucket_of, quantile, value_of

values = st.lists(st.floats(SMALLEST, 1.0) | st.just(0.0), min_size=1, max_size=200)


@given(values, st.sampled_from([0.0, 0.5, 0.95, 0.99, 0.999, 1.0]))
def test_quantiles_are_within_one_percent_of_numpys(sample: list[float], q: float) -> None:
    found = quantile(Counter(map(bucket_of, sample)), q)
    assert found == pytest.approx(np.quantile(sample, q, method="lower"), rel=0.0101, abs=0)


@given(values, values)
def test_merging_is_adding(one: list[float], other: list[float]) -> None:
    merged = Counter(map(bucket_of, one)) + Counter(map(bucket_of, other))
    assert merged == Counter(map(bucket_of, one + other))


@given(st.floats(SMALLEST, 1.0))
def test_a_buckets_value_is_within_one_percent_of_all_it_holds(value: float) -> None:
    assert value_of(bucket_of(value)) == pytest.approx(value, rel=0.0101)


def test_nothing_zero_and_what_is_no_probability() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({bucket_of(0.0): 3}, 0.99) == 0.0
    assert value_of(bucket_of(1e-300)) == 0.0
    for bad in (float("nan"), -1e-9):
        with pytest.raises(ValueError, match="value: must be at least 0"):
            bucket_of(bad)
    with pytest.raises(ValueError, match=r"q: must be in 0\.\.1"):
        quantile({0: 1}, 1.5)
