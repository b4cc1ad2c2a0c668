"""Evaluating a batch: runs the network, then computes policies and leakage. Everything in the service does it here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from movemask.board.moves import uci_of
from movemask.board.position import Elo, Position
from movemask.errors import InferenceFailed, InvalidLogits, MovemaskError
from movemask.leakage.measure import LogitBatch
from movemask.network.batch import Batch
from movemask.network.model import Model, Outputs
from movemask.numeric.ragged import Float, row_max, row_of_each
from movemask.policy import Policies, Rule, policies


class Network(Protocol):
    """`Model.evaluate`, or a wrapper of it (`network.cache`)."""

    def __call__(self, batch: Batch) -> Outputs:
        """The network's outputs for a batch."""
        ...


@dataclass(frozen=True)
class Evaluated:
    """A batch with its results: all that an answer contains.

    value : float64 `[B, 3]` win, draw, loss for the side to move, or `[B, 1]` its expected score; None if it has none
    unmasked : the logits, from which every kind of leakage can be measured
    policies : the distributions, by each position's rule
    raw, multiplied : float64 `[B]`, what these two mistakes would have given to illegal moves
    ran, seconds : rows that the network ran on, and how long it took; 0 where a cache had them all
    unusable : by row, why there is no distribution; the other fields of such a row are meaningless
    """

    model: Model
    batch: Batch
    value: Float | None
    unmasked: LogitBatch
    policies: Policies
    raw: Float
    multiplied: Float
    ran: int
    seconds: float
    unusable: Mapping[int, InvalidLogits]


def evaluate(model: Model, batch: Batch, rules: Sequence[Rule], network: Network | None = None) -> Evaluated:
    """The results of a batch whose positions all have a legal move; one rule per position.

    `network` replaces `model.evaluate`. Raises InferenceFailed.
    """
    started = time.perf_counter()
    try:
        outputs = (network or model.evaluate)(batch)
    except MovemaskError:
        raise
    except Exception as error:
        raise InferenceFailed(f"model {model.name}: {type(error).__name__}: {error}") from error
    ran = len(batch) - outputs.cached
    seconds = time.perf_counter() - started if ran else 0.0
    logits, indptr = outputs.logits, batch.indptr
    legal = np.asarray(logits[row_of_each(indptr), batch.slots], dtype=np.float64)
    # A NaN, a +inf and a row of only -inf all show in the row's maximum.
    unusable: dict[int, InvalidLogits] = {}
    for row in np.flatnonzero(~np.isfinite(row_max(legal, indptr))).tolist():
        moves = batch.legal(row)
        unusable[row] = _unusable(model, batch, row, legal[moves])
        legal[moves] = 0.0
    unmasked = LogitBatch(logits, batch.slots, indptr, legal)
    raw, multiplied = unmasked.masses()
    distributions = policies(batch.codes, legal, indptr, rules)
    return Evaluated(model, batch, outputs.value, unmasked, distributions, raw, multiplied, ran, seconds, unusable)


def evaluate_positions(
    model: Model, positions: Sequence[Position], elos: Sequence[Elo | None], rule: Rule | None = None
) -> Evaluated:
    """The results of positions that all have a legal move, by one rule (plain softmax if None).

    Raises a ModelError, or UnsupportedVariant, for the first position that cannot be evaluated.
    """
    batch = model.whole_batch(positions, elos)
    evaluated = evaluate(model, batch, [rule or Rule()] * len(batch))
    for error in evaluated.unusable.values():
        raise error
    return evaluated


def _unusable(model: Model, batch: Batch, row: int, logits: Float) -> InvalidLogits:
    start, fen = int(batch.indptr[row]), batch.positions[row].fen
    wrong = np.flatnonzero(np.isnan(logits) | (logits == np.inf))
    if not len(wrong):
        return InvalidLogits(f"model {model.name}: the logit of every legal move is -inf, in {fen!r}")
    first = int(wrong[0])
    move = uci_of(batch.codes[start + first : start + first + 1])[0]
    return InvalidLogits(
        f"model {model.name}: slot {batch.slots[start + first]}: the logit of the legal move {move} is "
        f"{logits[first]}, in {fen!r}"
    )
