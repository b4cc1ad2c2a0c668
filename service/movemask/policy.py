"""Logits and legal slots → `Policy`, by a `Rule`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.encoded import EncodedPosition
from movemask.board.move_codes import moves_of
from movemask.errors import InvalidRule
from movemask.numeric import entmax, filters, gather, softmax, statistics
from movemask.numeric.ragged import Float, Index, falling, indptr_of, restricted

#: A rule's temperature that stands for the model's own, fitted one; `Pipeline` puts the number in its place.
CALIBRATED = math.nan


class Normalizer(Enum):
    """What makes probabilities of logits."""

    SOFTMAX = "softmax"
    SOFTMAX_ONE = "softmax_one"
    SPARSEMAX = "sparsemax"
    ENTMAX15 = "entmax15"
    ENTMAX = "entmax"


@dataclass(frozen=True, slots=True)
class Rule:
    """How logits become a policy: filters first, each on the softmax at this temperature, then the normaliser
    on what is left.

    `temperature` is finite and above 0, or CALIBRATED; `alpha` goes with ENTMAX alone. Raises InvalidRule.
    """

    normalizer: Normalizer = Normalizer.SOFTMAX
    alpha: float | None = None
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        if self.normalizer is Normalizer.ENTMAX and self.alpha is None:
            raise InvalidRule("alpha: is missing; normalizer 'entmax' needs one between 1 (softmax) and 2 (sparsemax)")
        if self.normalizer is not Normalizer.ENTMAX and self.alpha is not None:
            raise InvalidRule(f"alpha: goes with normalizer 'entmax', not with {self.normalizer.value!r}")

    @property
    def calibrated(self) -> bool:
        """Whether the temperature is still to be the model's own."""
        return math.isnan(self.temperature)


@dataclass(frozen=True, slots=True)
class Legal:
    """The legal slots of a batch in CSR form: `slots [N]`, `indptr [B + 1]`, and their logits float64 `[N]`."""

    slots: Index
    indptr: Index
    logits: Float


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one distribution; entropy in nats."""

    entropy: float
    effective_moves: float
    inverse_simpson: float
    gini: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Policy:
    """The distribution over the legal moves of one position that the filters keep, most probable first.

    `codes` (`move_codes`) are `[L]`; `probabilities` and `logits` are float64 `[L]`, in their order; equal ones in the
    order of their slots. The probabilities and `abstention` (0 but for softmax_one) sum to 1.
    """

    codes: Index
    probabilities: Float
    logits: Float
    abstention: float

    @property
    def moves(self) -> tuple[chess.Move, ...]:
        """As python-chess has them, in the same order."""
        return moves_of(self.codes)

    @property
    def statistics(self) -> Statistics:
        """Of the probabilities, brought to a sum of 1 where some was abstained; made when asked for."""
        row = np.array([0, len(self.codes)])
        total = float(self.probabilities.sum())
        p = self.probabilities / total if self.abstention and total else self.probabilities
        return Statistics(
            entropy=float(statistics.entropy(p, row)[0]),
            effective_moves=float(statistics.effective_number(p, row)[0]),
            inverse_simpson=float(statistics.inverse_simpson(p, row)[0]),
            gini=float(statistics.gini(p, row)[0]),
            maximum=float(statistics.maximum(p, row)[0]),
        )

    def sample(self, seed: int) -> int:
        """Index of a move drawn with its probability, abstention left out; the same seed draws the same move."""
        cumulated = np.cumsum(self.probabilities)
        drawn = np.random.default_rng(seed).random() * cumulated[-1]
        index = int(np.searchsorted(cumulated, drawn, side="right"))
        return index if index < len(self.codes) else 0  # beyond the end only where no move has any probability


def legal_of(batch: Sequence[EncodedPosition], logits: NDArray[np.floating]) -> Legal:
    """Gathers the legal logits of a batch: logits `[B, A]`. Raises InvalidLogits, the row and slot named."""
    indptr = indptr_of([len(encoded.slots) for encoded in batch])
    slots = np.concatenate([encoded.slots for encoded in batch]) if batch else np.empty(0, dtype=np.intp)
    values, indptr = gather.gather_legal(logits, slots, indptr)
    return Legal(slots, indptr, values)


def policies(batch: Sequence[EncodedPosition], legal: Legal, rules: Sequence[Rule]) -> list[Policy]:
    """The policy of each position of a batch by its rule; positions with the same rule are computed together."""
    groups: dict[Rule, list[int]] = defaultdict(list)
    for row, rule in enumerate(rules):
        groups[rule].append(row)
    made: dict[int, Policy] = {}
    for rule, rows in groups.items():
        own = legal if len(groups) == 1 else _rows(legal, rows)
        made.update(zip(rows, _policies([batch[row] for row in rows], own, rule), strict=True))
    return [made[row] for row in range(len(batch))]


def _rows(legal: Legal, rows: Sequence[int]) -> Legal:
    spans = [slice(legal.indptr[row], legal.indptr[row + 1]) for row in rows]
    indptr = np.cumsum([0, *(span.stop - span.start for span in spans)], dtype=np.intp)
    return Legal(
        np.concatenate([legal.slots[span] for span in spans]),
        indptr,
        np.concatenate([legal.logits[span] for span in spans]),
    )


def _policies(batch: Sequence[EncodedPosition], legal: Legal, rule: Rule) -> list[Policy]:
    keep = _kept(legal, rule)
    codes = np.concatenate([encoded.codes for encoded in batch]) if len(batch) > 1 else batch[0].codes
    logits, indptr = legal.logits, legal.indptr
    if keep is not None:
        codes, logits, indptr = codes[keep], logits[keep], restricted(indptr, keep)
    probabilities, abstention = _normalised(logits, indptr, rule)
    order = falling(probabilities, indptr)
    codes, probabilities, logits = codes[order], probabilities[order], logits[order]
    bounds = indptr.tolist()
    return [
        Policy(codes[start:end], probabilities[start:end], logits[start:end], left)
        for start, end, left in zip(bounds[:-1], bounds[1:], abstention.tolist(), strict=True)
    ]


def _kept(legal: Legal, rule: Rule) -> NDArray[np.bool_] | None:
    """Which legal moves the filters keep, bool `[N]`; None for all."""
    if rule.top_k is None and rule.top_p is None and not rule.min_p:  # a min_p of 0 keeps all
        return None
    base = softmax.softmax(legal.logits, legal.indptr, rule.temperature)
    keep = np.ones(len(base), dtype=bool)
    if rule.top_k is not None:
        keep &= filters.top_k(base, legal.indptr, rule.top_k)
    if rule.top_p is not None:
        keep &= filters.top_p(base, legal.indptr, rule.top_p)
    if rule.min_p:
        keep &= filters.min_p(base, legal.indptr, rule.min_p)
    return keep


def _normalised(logits: Float, indptr: Index, rule: Rule) -> tuple[Float, Float]:
    """Probabilities float64 `[N]` and abstention `[B]`."""
    nothing = np.zeros(len(indptr) - 1)
    match rule.normalizer:
        case Normalizer.SOFTMAX:
            made = softmax.softmax(logits, indptr, rule.temperature)
        case Normalizer.SOFTMAX_ONE:
            made, nothing = softmax.softmax_one(logits, indptr, rule.temperature)
        case Normalizer.SPARSEMAX:
            made = entmax.sparsemax(logits, indptr, rule.temperature)
        case Normalizer.ENTMAX15:
            made = entmax.entmax15(logits, indptr, rule.temperature)
        case Normalizer.ENTMAX:
            assert rule.alpha is not None
            made = entmax.entmax(logits, indptr, rule.alpha, rule.temperature)
    return made.astype(np.float64, copy=False), nothing
