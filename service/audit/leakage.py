"""Leakage of a batch, from the logits as they came. Definitions: docs/leakage.md.

Every figure is a ratio of sums of exponentials, made by shifted log-sum-exp in float64; a difference of nearly
equal numbers (`1 - x`) is never taken, so a leakage of 1e-300 is as exact as one of 0.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from service.encoding.position import Position
from service.encoding.vocabulary import Vocabulary
from service.errors import ServedLeakage
from service.numeric.ragged import Float, Index, row_of_each
from service.numeric.softmax import logsumexp

#: Kinds that are recorded for every answer, in the order in which they are shown.
KINDS = ("raw", "multiplied", "served")

#: How far the probabilities of an answer may be from a sum of 1.
SUM_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class IllegalMass:
    """A move that cannot be played and the probability that plain softmax gives it."""

    uci: str
    probability: float


@dataclass(frozen=True, slots=True)
class Leakage:
    """One position's leakage by kind; `raw` is None where an illegal logit is NaN or +inf, so that no softmax
    exists."""

    raw: float | None
    multiplied: float
    served: float
    illegal: tuple[IllegalMass, ...]


def raw(logits: NDArray[np.floating], slots: Index, indptr: Index) -> Float:
    """What plain softmax gives to illegal slots, `sum_illegal e^z / sum_all e^z`.

    logits `[B, A]`, legal slots `[N]`, indptr `[B + 1]` → `[B]`; NaN where an illegal logit is NaN or +inf.
    """
    legal, illegal = _log_masses(logits, slots, indptr)
    with np.errstate(under="ignore", invalid="ignore"):
        leaked: Float = np.exp(illegal - np.logaddexp(legal, illegal))
    return leaked


def multiplied(logits: NDArray[np.floating], slots: Index, indptr: Index) -> Float:
    """What `softmax(z * mask)` gives to illegal slots: `n / (n + sum_legal e^z)` with `n = A - |L|`.

    Shapes as in `raw`. An illegal logit does not matter: it is multiplied by zero.
    """
    legal = logsumexp(_legal_logits(logits, slots, indptr), indptr)
    with np.errstate(under="ignore", divide="ignore"):
        illegal = np.log((logits.shape[1] - np.diff(indptr)).astype(np.float64))
        leaked: Float = np.exp(illegal - np.logaddexp(legal, illegal))
    return leaked


def heaviest_illegal(logits: NDArray[np.floating], slots: Index, limit: int) -> list[tuple[int, float]]:
    """The `limit` illegal slots of one row `[A]` with the most plain softmax, heaviest first, with that probability."""
    z = logits.astype(np.float64)
    if len(slots) == len(z) or np.isnan(z).any() or np.isposinf(z).any():
        return []
    weights = np.exp(z - z.max())
    total = weights.sum()
    weights[slots] = -1.0
    limit = min(limit, len(z) - len(slots))
    top = np.argpartition(-weights, limit - 1)[:limit]
    top = top[np.lexsort((top, -weights[top]))]
    return [(int(slot), float(weights[slot] / total)) for slot in top]


def leakages(
    positions: Sequence[Position],
    vocabulary: Vocabulary,
    logits: NDArray[np.floating],
    slots: Index,
    indptr: Index,
    served: Sequence[float],
    *,
    illegal_moves: int,
) -> list[Leakage]:
    """All kinds for a batch, with the `illegal_moves` moves that took most of each; shapes as in `raw`."""
    raws = raw(logits, slots, indptr)
    multiplieds = multiplied(logits, slots, indptr)
    result = []
    for row, position in enumerate(positions):
        heaviest = heaviest_illegal(logits[row], slots[indptr[row] : indptr[row + 1]], illegal_moves)
        illegal = tuple(IllegalMass(vocabulary.move(slot, position.board).uci(), mass) for slot, mass in heaviest)
        measured = None if np.isnan(raws[row]) else float(raws[row])
        result.append(Leakage(measured, float(multiplieds[row]), served[row], illegal))
    return result


def served(
    board: chess.Board, moves: Sequence[chess.Move], probabilities: NDArray[np.float64], abstention: float = 0.0
) -> float:
    """Leakage of a finished answer, from its own moves and numbers: the mass on moves that python-chess will not play.

    Raises ServedLeakage if it is not exactly 0, if a move stands twice, or if the sum, abstention counted, is
    not within 1e-12 of 1.
    """
    leaked = float(sum(p for move, p in zip(moves, probabilities, strict=True) if not board.is_legal(move)))
    if leaked != 0.0:
        raise ServedLeakage(f"the answer for {board.fen()!r} holds {leaked!r} on illegal moves")
    if len(set(moves)) != len(moves):
        raise ServedLeakage(f"the answer for {board.fen()!r} holds a move twice")
    total = float(np.sum(probabilities)) + abstention
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ServedLeakage(f"the answer for {board.fen()!r} sums to {total!r}")
    return leaked


def _legal_logits(logits: NDArray[np.floating], slots: Index, indptr: Index) -> Float:
    return np.asarray(logits[row_of_each(indptr), slots], dtype=np.float64)


def _log_masses(logits: NDArray[np.floating], slots: Index, indptr: Index) -> tuple[Float, Float]:
    """Log-sum-exp of the legal and of the illegal logits of each row, `[B]` each; NaN for illegal NaN or +inf."""
    legal = logsumexp(_legal_logits(logits, slots, indptr), indptr)
    rest = logits.astype(np.float64)
    rest[row_of_each(indptr), slots] = -np.inf
    top = rest.max(axis=1, initial=-np.inf)
    shift = np.where(top == -np.inf, 0.0, top)
    with np.errstate(under="ignore", divide="ignore", invalid="ignore"):
        illegal = shift + np.log(np.exp(rest - shift[:, None]).sum(axis=1))
    return legal, np.asarray(illegal)
