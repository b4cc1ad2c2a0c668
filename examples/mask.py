"""A mask test of one network's logits, masked in three ways: not at all, as Maia-2 once did, and correctly.

python examples/mask.py
"""

from __future__ import annotations

import chess
import numpy as np

import movemask
from movemask.testing import assert_masked

network = movemask.load()  # stands in for your own network


def logits_and_mask(fen: str) -> tuple[np.ndarray, np.ndarray]:
    """The network's logits `[A]`, and True `[A]` where a slot is a legal move."""
    result = network.logits(chess.Board(fen))
    return result.values, result.legal_mask


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
        assert_masked(policy, vocabulary=network.vocabulary)
        print(f"{policy.__name__}: passed")
    except AssertionError as error:
        print(f"{policy.__name__}: {error}\n")
