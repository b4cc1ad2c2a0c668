"""A mask test of one network's logits, masked in three ways: not at all, as Maia-2 once did, and correctly.

python examples/mask.py
"""

from __future__ import annotations

import numpy as np

import movemask
from movemask.board.position import Position
from movemask.testing import assert_masked

model = movemask.load()._model  # private: stands in for your own network, whose logits you have


def logits_and_mask(fen: str) -> tuple[np.ndarray, np.ndarray]:
    """The network's logits `[A]`, and True `[A]` where a slot is a legal move."""
    batch = model.whole_batch([Position.read(fen)])
    mask = np.zeros(len(model.vocabulary), dtype=bool)
    mask[batch.slots] = True
    return model.evaluate(batch).logits[0], mask


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def unmasked(fen: str) -> np.ndarray:
    logits, _ = logits_and_mask(fen)
    return softmax(logits)


def multiplied(fen: str) -> np.ndarray:
    logits, mask = logits_and_mask(fen)
    return softmax(logits * mask)  # an illegal logit becomes 0, not minus infinity


def masked(fen: str) -> np.ndarray:
    logits, mask = logits_and_mask(fen)
    return softmax(np.where(mask, logits, -np.inf))


for policy in (unmasked, multiplied, masked):
    try:
        assert_masked(policy, vocabulary=model.vocabulary.name)
        print(f"{policy.__name__}: passed")
    except AssertionError as error:
        print(f"{policy.__name__}: {error}\n")
