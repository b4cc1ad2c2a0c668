"""Masked probability on arrays: pure functions of numpy arrays, used for answers, figures and fits.

`softmax` and `entmax` turn logits into probabilities. `distributions` filters and describes them. `temperature` fits a
temperature to played moves. `ragged` has the reductions and argument checks of all of them. Functions that no answer
needs (dense forms, wrong masks, gradients, losses) are in `study/`, beside the package. docs/numerics.md shows how to
use each.

Shapes: `B` rows of a batch, `A` slots of a vocabulary, `N` legal slots of the whole batch. A ragged batch is in CSR
form: `values [N]` and `indptr [B + 1]`, row `b` being `values[indptr[b]:indptr[b + 1]]`. Inputs have any float dtype;
results are computed and returned in float64.
"""

from movemask.policy import distributions, entmax, ragged, softmax, temperature

__all__ = ["distributions", "entmax", "ragged", "softmax", "temperature"]
