"""What this project's sources study and no answer needs: not part of the package. study.ipynb is the front door.

| module | holds |
|---|---|
| `dense` | gathering legal logits from `[B, A]` arrays, and the dense form of every kernel |
| `masking` | two other ways to mask, and where they fail |
| `operations` | the operations that each way to mask takes |
| `gradients` | Jacobians and products with them; normalising by absolute values |
| `losses` | cross-entropies, Fenchel-Young losses and their gradients |
| `mixed_precision` | results in the dtype of the logits |
| `distances` | total variation and Jensen-Shannon divergence |
| `row_maxima`, `sparse_rows` | a softmax without a segmented maximum, and the study of how it fails |

It needs numpy only. Shapes and dtypes are those of `movemask.policy`.
"""

from study import (
    dense,
    distances,
    gradients,
    losses,
    masking,
    mixed_precision,
    operations,
    row_maxima,
    sparse_rows,
)

__all__ = [
    "dense",
    "distances",
    "gradients",
    "losses",
    "masking",
    "mixed_precision",
    "operations",
    "row_maxima",
    "sparse_rows",
]
