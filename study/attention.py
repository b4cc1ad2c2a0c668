"""Softmax attention and linear (kernel) attention: from queries, keys and values to their weighted means.

`N` queries and keys of width `d`. Softmax attention weighs each value by `e^{q·k/√d}`, which needs all `N²` weights.
Linear attention weighs it by `φ(q)·φ(k)` with φ above 0. The sum over keys can then be taken first, once for all
queries, and no weight is ever formed. `operations` counts both.

Source of linear attention and of φ: Katharopoulos, Vyas, Pappas & Fleuret, "Transformers are RNNs: Fast autoregressive
transformers with linear attention" (2020), arXiv:2006.16236.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from movemask.policy.ragged import Float, checked_floats
from movemask.policy.softmax import softmax
from study.masking import dense_indptr


def softmax_attention(queries: ArrayLike, keys: ArrayLike, values: ArrayLike) -> Float:
    """Means of the values `[M, e]`, weighted by softmax of `q·k/√d`: queries `[N, d]`, keys `[M, d]` → `[N, e]`."""
    q, k, v = _checked(queries, keys, values)
    scores = q @ k.T / np.sqrt(q.shape[1])
    weights = softmax(scores.ravel(), dense_indptr(scores)).reshape(scores.shape)
    return np.asarray(weights @ v)


def linear_attention(queries: ArrayLike, keys: ArrayLike, values: ArrayLike) -> Float:
    """Means of the values `[M, e]`, weighted by `φ(q)·φ(k)`: queries `[N, d]`, keys `[M, d]` → `[N, e]`."""
    q, k, v = _checked(queries, keys, values)
    of_queries, of_keys = features(q), features(k)
    return np.asarray(of_queries @ (of_keys.T @ v) / (of_queries @ of_keys.sum(axis=0))[:, None])


def features(x: Float) -> Float:
    """`φ(x) = elu(x) + 1`, elementwise: `x + 1` above 0, `e^x` below."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0.0)))


def _checked(queries: ArrayLike, keys: ArrayLike, values: ArrayLike) -> tuple[Float, Float, Float]:
    """The three arrays in float64. Raises ValueError unless their shapes fit."""
    q, k, v = (
        checked_floats(name, array, 2).astype(np.float64)
        for name, array in (("queries", queries), ("keys", keys), ("values", values))
    )
    if q.shape[1] != k.shape[1] or len(k) != len(v):
        raise ValueError(f"keys: shape {k.shape} does not fit queries {q.shape} and values {v.shape}")
    return q, k, v
