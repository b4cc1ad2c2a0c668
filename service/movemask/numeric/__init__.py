"""Masked probability on arrays: numpy alone, pure functions. docs/numerics.md shows how each family is used.

Shapes: `B` rows of a batch, `A` slots of a vocabulary, `N` legal slots of the whole batch. A ragged batch is
in CSR form: `values [N]` and `indptr [B + 1]`, row `b` being `values[indptr[b]:indptr[b + 1]]`. Inputs of any float
dtype; float64 inside.
"""

from movemask.numeric import (
    absolute,
    calibration,
    dense,
    dense_losses,
    entmax,
    filters,
    gather,
    gradients,
    losses,
    masking,
    operations,
    ragged,
    soft_losses,
    softmax,
    sparse_rows,
    statistics,
)

__all__ = [
    "absolute",
    "calibration",
    "dense",
    "dense_losses",
    "entmax",
    "filters",
    "gather",
    "gradients",
    "losses",
    "masking",
    "operations",
    "ragged",
    "soft_losses",
    "softmax",
    "sparse_rows",
    "statistics",
]
