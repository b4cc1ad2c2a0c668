"""The one way of a batch: positions → legal moves and planes → logits → policies and leakage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from movemask.board.elo import Elo
from movemask.board.legal import Rules
from movemask.board.move_codes import uci_of
from movemask.board.position import Position
from movemask.errors import InvalidLogits
from movemask.inference.batch import Batch
from movemask.inference.model import Model, Outputs
from movemask.leakage.leakage import Unmasked
from movemask.numeric.ragged import Float, row_max, row_of_each
from movemask.policy import Policies, Rule, policies


class Network(Protocol):
    """`Model.evaluate`, or something that wraps it (`inference.cache`)."""

    def __call__(self, batch: Batch, *, alone: bool = True) -> Outputs:
        """What the network says of a batch; `alone` if nothing else runs meanwhile."""
        ...


@dataclass(frozen=True)
class Evaluated:
    """A batch with everything that an answer holds.

    value : float64 `[B, 3]` win, draw, loss for the side to move, or `[B, 1]` its expected score; None without
    unmasked : the logits, from which every kind of leakage can be measured
    policies : the distributions, by each position's rule
    raw, multiplied : float64 `[B]`, what these two mistakes would have leaked
    seconds : that the network took
    unusable : by row, why there is no distribution; the rest of such a row means nothing
    """

    model: Model
    batch: Batch
    value: Float | None
    unmasked: Unmasked
    policies: Policies
    raw: Float
    multiplied: Float
    seconds: float
    unusable: Mapping[int, InvalidLogits]


def evaluate(
    model: Model, batch: Batch, rules: Sequence[Rule], network: Network | None = None, *, alone: bool = True
) -> Evaluated:
    """Runs the network on a batch whose positions all have a legal move, a rule for each.

    `network` stands for `model.evaluate`; `alone` as in `Session.run`. Raises InferenceFailed.
    """
    started = time.perf_counter()
    outputs = (network or model.evaluate)(batch, alone=alone)
    seconds = time.perf_counter() - started
    logits, indptr = outputs.logits, batch.indptr
    legal = np.asarray(logits[row_of_each(indptr), batch.slots], dtype=np.float64)
    # NaN and +inf come through the maximum, and so does a row of -inf alone: one look finds all three.
    unusable: dict[int, InvalidLogits] = {}
    sound = np.isfinite(row_max(legal, indptr))
    if not sound.all():
        for row in np.flatnonzero(~sound).tolist():
            own = slice(indptr[row], indptr[row + 1])
            unusable[row] = _unusable(model, batch, row, legal[own])
            legal[own] = 0.0
    unmasked = Unmasked(logits, batch.slots, indptr, legal)
    raw, multiplied = unmasked.masses()
    made = policies(batch.codes, legal, indptr, rules)
    return Evaluated(model, batch, outputs.value, unmasked, made, raw, multiplied, seconds, unusable)


def evaluate_positions(
    model: Model, positions: Sequence[Position], elos: Sequence[Elo | None], rule: Rule | None = None
) -> Evaluated:
    """Evaluates positions that all have a legal move, by one rule (the network's own distribution if None); legal moves
    by the vectorised rules.

    Raises a ModelError, or UnsupportedVariant, for the first that cannot be evaluated.
    """
    batch = model.whole_batch(positions, elos, Rules.VECTORISED)
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
