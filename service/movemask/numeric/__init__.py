"""Masked probability on arrays: numpy alone, pure functions. docs/numerics.md shows how each family is used.

Half of it serves: `ragged`, `softmax`, `entmax`, `distributions` and `losses` are what answers, figures and fits are
computed by. The other half is the study of how such a softmax goes wrong, is trained and what it costs: `masking`,
`gradients`, `dense` and `sparse_rows` are called by tests, benchmarks and whoever trains a network.

Shapes: `B` rows of a batch, `A` slots of a vocabulary, `N` legal slots of the whole batch. A ragged batch is
in CSR form: `values [N]` and `indptr [B + 1]`, row `b` being `values[indptr[b]:indptr[b + 1]]`. Inputs of any float
dtype; float64 inside.
"""

from movemask.numeric import dense, distributions, entmax, gradients, losses, masking, ragged, softmax, sparse_rows

__all__ = [
    "dense",
    "distributions",
    "entmax",
    "gradients",
    "losses",
    "masking",
    "ragged",
    "softmax",
    "sparse_rows",
]
