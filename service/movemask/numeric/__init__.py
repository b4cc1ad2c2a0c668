"""Masked probability on arrays: numpy alone, pure functions. docs/numerics.md shows how each family is used.

`ragged`, `softmax`, `entmax`, `distributions` and `losses` compute answers, figures and fits. `masking`, `gradients`
and `dense` are the study of how such a softmax goes wrong and is trained: tests, benchmarks and whoever trains a
network call them.

Shapes: `B` rows of a batch, `A` slots of a vocabulary, `N` legal slots of the whole batch. A ragged batch is
in CSR form: `values [N]` and `indptr [B + 1]`, row `b` being `values[indptr[b]:indptr[b + 1]]`. Inputs of any float
dtype; float64 inside.
"""

from movemask.numeric import dense, distributions, entmax, gradients, losses, masking, ragged, softmax

__all__ = [
    "dense",
    "distributions",
    "entmax",
    "gradients",
    "losses",
    "masking",
    "ragged",
    "softmax",
]
