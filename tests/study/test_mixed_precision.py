"""Softmax of float16 and float32 logits, computed in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from movemask.policy import softmax
from study import dense, mixed_precision
from tests.policy.batches import Ragged, ragged


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(batch=ragged(-60_000, 60_000), temperature=st.sampled_from([0.7, 1.0, 30.0]))
def test_result_is_exact_one_rounded_to_dtype(dtype: type[np.floating], batch: Ragged, temperature: float) -> None:
    rows = [row.astype(dtype) for row in batch.rows]
    z = np.concatenate([*rows, np.empty(0, dtype)])
    mask = np.arange(12) < np.array([len(row) for row in rows])[:, None]
    logits = np.full(mask.shape, np.nan, dtype)
    logits[mask] = z
    for name, masked_form, elsewhere in (
        ("softmax", dense.masked_mixed_softmax, 0.0),
        ("log_softmax", dense.masked_mixed_log_softmax, -np.inf),
    ):
        result = getattr(mixed_precision, name)(z, batch.indptr, temperature)
        peer = getattr(scipy.special, name)
        exact = [peer(row.astype(np.longdouble) / temperature) for row in rows if len(row)]
        with np.errstate(over="ignore"):  # a logarithm below -65504 is -inf in float16
            expected = np.concatenate([*exact, np.empty(0)]).astype(dtype)
            rounded = getattr(softmax, name)(z.astype(np.float64), batch.indptr, temperature).astype(dtype)
        assert result.dtype == dtype
        close = max(2 * float(np.finfo(dtype).eps), 1e-9)
        np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=close, atol=1e-7)
        np.testing.assert_array_equal(result, rounded)
        masked = masked_form(logits, mask, temperature)
        assert masked.dtype == dtype
        np.testing.assert_array_equal(masked[mask], result)
        assert (masked[~mask] == elsewhere).all()


def test_sums_beyond_half_precision() -> None:
    z = np.full(4096, 5.0, dtype=np.float16)
    with np.errstate(over="ignore"):
        assert np.exp(z).sum() == np.inf  # past 65504
    np.testing.assert_array_equal(mixed_precision.softmax(z, [0, 4096]), np.full(4096, 2.0**-12, np.float16))
