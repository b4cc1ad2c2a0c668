"""Policies as mistaken code would compute them. For tests of the audit; never served."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from movemask.numeric import ragged
from movemask.numeric.ragged import Float


def multiplied_softmax(logits: ArrayLike, legal_mask: ArrayLike) -> Float:
    """The mistake `softmax(z * mask)`, which gives every illegal slot the weight `e^0`: `[B, A]` → float64 `[B, A]`.

    `leakage.multiplied` is the mass that this puts on illegal slots, computed without forming the policy. ValueError
    for shapes that do not match.

    """
    z = ragged.checked_floats("logits", logits, 2).astype(np.float64, copy=False)
    mask = ragged.checked_mask(legal_mask, z)
    mistaken = np.where(mask, z, 0.0)
    weights = np.exp(mistaken - mistaken.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
