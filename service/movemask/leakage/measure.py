"""The leakage of a batch, computed from its unmasked logits. Definitions: docs/leakage.md.

`raw`, `multiplied` and `unmirrored` are ratios of sums of exponentials. They are computed from
log-sum-exps in float64 and never as `1 - x`, so a tiny leakage keeps its digits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from movemask.columns import INDPTR, RAGGED, Columns
from movemask.encoding.vocabulary import Vocabulary
from movemask.leakage.kinds import (
    DERIVED,
    MULTIPLIED,
    RAW,
    ROUNDED,
    SERVED,
    UNMIRRORED,
    UNNORMALISED,
    Fill,
    fills,
)
from movemask.policy.ragged import Float, Index, joined_indptr, row_max, row_of_each, row_sum
from movemask.policy.softmax import log_softmax, logsumexp

#: Rows whose illegal logits are summed together. Their float64 copies fit a core's cache.
_ROWS_PER_SUM = 32

#: Slack of the float32 prefilter in `heavy`, so that it drops nothing the exact test keeps.
_SLACK = 0.1

#: `rounded` rounds probabilities to 4 decimal places: multiples of 1 / 10,000.
_ROUNDING_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind of leakage at one position.

    leaked : None if it cannot be measured: an illegal logit is NaN or +inf, or the vocabulary rules the mistake out
    flipped : whether the mistake changes the top move
    kl : divergence of the mistaken policy from the right policy, in nats; None if it is infinite or not measured
    """

    leaked: float | None
    flipped: bool = False
    kl: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Measured(Columns):
    """One kind of leakage for a batch.

    leaked : float64 `[B]`, NaN where it cannot be measured
    flipped : bool `[B]`, whether the mistake changes the top move
    kl : float64 `[B]`, divergence of the mistaken policy from the right policy, in nats; inf where the mistake gives a
        legal move probability 0, NaN where `leaked` is NaN
    """

    leaked: Float
    flipped: NDArray[np.bool_]
    kl: Float

    def figure(self, row: int) -> Figure:
        """Returns the figure of one position."""
        leaked, kl = float(self.leaked[row]), float(self.kl[row])
        if math.isnan(leaked):
            return Figure(None, False, None)
        return Figure(leaked, bool(self.flipped[row]), kl if math.isfinite(kl) else None)


@dataclass(frozen=True, slots=True)
class HeavySlots(Columns):
    """Illegal slots of B positions with their plain-softmax probability.

    indptr : `[B + 1]`, each position's range of slots
    slots, masses : intp and float64 `[K]`
    """

    indptr: Index = field(metadata=INDPTR)
    slots: Index = field(metadata=RAGGED)
    masses: Float = field(metadata=RAGGED)


@dataclass(frozen=True, slots=True)
class IllegalLogits(Columns):
    """The illegal logits of a batch.

    logits : `[B, A]` in their own dtype, with -inf at legal slots
    log_sum, highest : float64 `[B]`, log-sum-exp and maximum of each row; NaN in a row with an illegal NaN or +inf
    """

    logits: NDArray[np.floating]
    log_sum: Float
    highest: Float


class UnmaskedLogits:
    """Unmasked logits and their legal slots, from which every kind of leakage is computed.

    Parameters
    ----------
    logits : `[B, A]`, as the network gave them
    slots : legal slots `[N]`, in CSR form
    indptr : `[B + 1]`; each row has at least one legal slot
    legal_logits : float64 `[N]`; gathered here if None
    illegal : computed on first use if None
    """

    def __init__(
        self,
        logits: NDArray[np.floating],
        slots: Index,
        indptr: Index,
        legal_logits: Float | None = None,
        illegal: IllegalLogits | None = None,
    ) -> None:
        self.logits, self.slots, self.indptr = logits, slots, indptr
        self.rows = row_of_each(indptr)
        self.legal_logits = (
            np.asarray(logits[self.rows, slots], dtype=np.float64)
            if legal_logits is None
            else legal_logits
        )
        self.log_legal = logsumexp(self.legal_logits, indptr)
        self.top_legal = row_max(self.legal_logits, indptr)
        self.illegal_count = (logits.shape[1] - np.diff(indptr)).astype(np.float64)
        self._illegal = illegal

    @classmethod
    def joined(cls, batches: Sequence[UnmaskedLogits]) -> UnmaskedLogits:
        """Batches of one network, concatenated, with the sums of their illegal logits."""
        if len(batches) == 1:
            return batches[0]
        return cls(
            np.concatenate([batch.logits for batch in batches]),
            np.concatenate([batch.slots for batch in batches]),
            joined_indptr([batch.indptr for batch in batches]),
            np.concatenate([batch.legal_logits for batch in batches]),
            IllegalLogits.joined([batch.illegal for batch in batches]),
        )

    @cached_property
    def is_legal(self) -> NDArray[np.bool_]:
        """The legal slots, bool `[B, A]`."""
        mask = np.zeros(self.logits.shape, dtype=np.bool_)
        mask[self.rows, self.slots] = True
        return mask

    @cached_property
    def log_policy(self) -> Float:
        """The logarithm of the right policy, float64 `[N]`."""
        log_policy: Float = log_softmax(self.legal_logits, self.indptr)
        return log_policy

    @property
    def illegal(self) -> IllegalLogits:
        """The illegal logits, with their sums computed once."""
        if self._illegal is None:
            self._illegal = self._summed()
        return self._illegal

    def _summed(self) -> IllegalLogits:
        logits = self.logits.copy()
        logits[self.rows, self.slots] = -np.inf
        count, size = logits.shape
        highest = logits.max(axis=1, initial=-np.inf).astype(np.float64)
        shift = np.where(highest == -np.inf, 0.0, highest)
        total = np.empty(count)
        # float64, because the difference is not exact in float32.
        buffer = np.empty((min(count, _ROWS_PER_SUM), size))
        for start in range(0, count, _ROWS_PER_SUM):
            shifted = buffer[: min(_ROWS_PER_SUM, count - start)]
            span = slice(start, start + _ROWS_PER_SUM)
            shifted[:] = logits[span]
            with np.errstate(under="ignore", invalid="ignore"):
                shifted -= shift[span, None]
                np.exp(shifted, out=shifted)
                total[span] = shifted.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return IllegalLogits(logits, shift + np.log(total), highest)

    def heavy(self, threshold: float) -> HeavySlots:
        """Returns the illegal slots with a plain-softmax probability of at least `threshold`.

        They are in order of row, then heaviest first, then slot.

        A row with an illegal NaN or +inf has no slots.
        """
        logits = self.illegal.logits
        size = logits.shape[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            log_all = np.logaddexp(self.log_legal, self.illegal.log_sum)
            lowest = (log_all + np.log(threshold) - _SLACK).astype(np.float32)
            # np.flatnonzero is several times as fast as np.nonzero of two dimensions.
            indices = np.flatnonzero(logits >= lowest[:, None])
        rows = indices // size
        with np.errstate(under="ignore", invalid="ignore"):
            masses = np.exp(logits.reshape(-1)[indices].astype(np.float64) - log_all[rows])
        keep = (masses >= threshold) & (masses > 0)
        rows, slots, masses = rows[keep], indices[keep] - rows[keep] * size, masses[keep]
        order = np.lexsort((slots, -masses, rows))
        indptr = np.searchsorted(rows, np.arange(len(logits) + 1))
        return HeavySlots(indptr, slots[order], masses[order])

    def raw_and_multiplied(self) -> tuple[Float, Float]:
        """Returns the leakage by `raw` and by `multiplied`, both `[B]`. An answer needs no other kind."""
        with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
            log_illegal = self.illegal.log_sum
            raw = np.exp(log_illegal - np.logaddexp(self.log_legal, log_illegal))
            log_ones = np.log(self.illegal_count)
            return raw, np.exp(log_ones - np.logaddexp(self.log_legal, log_ones))

    def raw(self) -> Measured:
        """Returns the probability that plain softmax gives to illegal slots: `sum_illegal e^z / sum_all e^z`.

        NaN in a row with an illegal NaN or +inf.
        """
        return self._with_illegal_mass(self.illegal.log_sum, self.illegal.highest)

    def multiplied(self) -> Measured:
        """Returns the probability that `softmax(z * mask)` gives to illegal slots.

        It is `n / (n + sum_legal e^z)` with `n = A - |L|`.

        Illegal logits do not matter: they are multiplied by zero.
        """
        with np.errstate(divide="ignore"):
            return self._with_illegal_mass(
                np.log(self.illegal_count), np.where(self.illegal_count > 0, 0.0, -np.inf)
            )

    def filled(self, fill: Fill) -> Measured:
        """Returns the probability left to illegal slots if their logits become a finite number.

        It is computed in the fill's dtype.

        Logits, exponentials and probabilities have that dtype. Sums are float32, as in torch,
        onnxruntime and numpy. NaN where the logits overflow the dtype.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            legal = self.legal_logits.astype(fill.dtype)
            constant = np.where(self.illegal_count > 0, fill.constant, -np.inf).astype(fill.dtype)
            top = np.maximum(
                row_max(legal.astype(np.float64), self.indptr).astype(fill.dtype), constant
            )
            weights = np.exp(legal - top[self.rows]).astype(np.float32)
            fill_weight = np.exp(constant - top).astype(np.float32)
            total = (
                np.add.reduceat(weights, self.indptr[:-1])
                + self.illegal_count.astype(np.float32) * fill_weight
            )
            mistaken = (weights / total[self.rows]).astype(fill.dtype).astype(np.float64)
            per_slot = (fill_weight / total).astype(fill.dtype).astype(np.float64)
        leaked = self.illegal_count * per_slot
        measured = np.isfinite(leaked)
        flipped = measured & (
            per_slot > row_max(np.where(np.isnan(mistaken), 0.0, mistaken), self.indptr)
        )
        return Measured(leaked, flipped, np.where(measured, self._divergence(mistaken), np.nan))

    def unmirrored(self, twins: Index, black: NDArray[np.bool_]) -> Measured:
        """Returns the mass on illegal moves if Black's legal moves are looked up without mirroring.

        NaN where no slot is left, or where a looked-up logit is NaN or +inf.

        Parameters
        ----------
        twins : intp `[A]`, the slot of each slot's move seen from the other side; -1 if the mistake drops the move
        black : bool `[B]`, whether Black is to move; White's moves are looked up correctly
        """
        looked_up = np.where(black[self.rows], twins[self.slots], self.slots)
        known = looked_up >= 0
        rows, looked_up = self.rows[known], looked_up[known]
        counts = np.bincount(rows, minlength=len(black))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)
        right = self.is_legal[rows, looked_up]
        z = np.asarray(self.logits[rows, looked_up], dtype=np.float64)
        unusable = np.isnan(z) | (z == np.inf)
        z = np.where(unusable, -np.inf, z)
        sound = (counts > 0) & (np.bincount(rows[unusable], minlength=len(black)) == 0)
        on_right = logsumexp(np.where(right, z, -np.inf), indptr)
        on_wrong = logsumexp(np.where(right, -np.inf, z), indptr)
        best_right = row_max(np.where(right, z, -np.inf), indptr)
        best_wrong = row_max(np.where(right, -np.inf, z), indptr)
        sound &= np.maximum(best_right, best_wrong) > -np.inf
        with np.errstate(under="ignore", invalid="ignore"):
            leaked = np.where(sound, np.exp(on_wrong - np.logaddexp(on_right, on_wrong)), np.nan)
        # The looked-up slots are the legal ones: divergence 0. Otherwise a legal move gets 0: it is infinite.
        complete = np.bincount(rows[right], minlength=len(black)) == np.diff(self.indptr)
        flipped = sound & ((best_right < self.top_legal) | (best_wrong > best_right))
        return Measured(leaked, flipped, np.where(sound, np.where(complete, 0.0, np.inf), np.nan))

    def rounded(self) -> Measured:
        """Returns the distance of the sum from 1 if each probability is rounded to 4 places.

        The numbers are summed as integers, so it is exact.
        """
        steps = np.rint(np.exp(self.log_policy) * _ROUNDING_STEPS)
        leaked = np.abs(_ROUNDING_STEPS - row_sum(steps, self.indptr)) / _ROUNDING_STEPS
        return Measured(
            leaked, np.zeros(len(leaked), dtype=np.bool_), self._divergence(steps / _ROUNDING_STEPS)
        )

    def _with_illegal_mass(self, log_illegal: Float, top_illegal: Float) -> Measured:
        """Returns the figures of a softmax over the unchanged legal logits and illegal slots with this log-mass.

        Its divergence is `log(1 + illegal / legal)`.
        """
        with np.errstate(under="ignore", invalid="ignore"):
            leaked = np.exp(log_illegal - np.logaddexp(self.log_legal, log_illegal))
            kl = np.logaddexp(0.0, log_illegal - self.log_legal)
            return Measured(leaked, top_illegal > self.top_legal, kl)

    def _divergence(self, mistaken: Float) -> Float:
        """Returns the KL divergence `sum p log(p / q)` of each row, `[B]`.

        `q` `[N]` is the mistaken policy of the legal moves.
        """
        p = np.exp(self.log_policy)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms: Float = np.where(p > 0, p * (self.log_policy - np.log(mistaken)), 0.0)
        return np.maximum(row_sum(terms, self.indptr), 0.0)


def measure(
    kinds: Collection[str], batch: UnmaskedLogits, vocabulary: Vocabulary, black: NDArray[np.bool_]
) -> dict[str, Measured]:
    """Returns these kinds of leakage of a batch. `black` bool `[B]` says where Black is to move.

    `unmirrored` is NaN for a vocabulary that is not mirrored, because the mistake cannot be made there. DERIVED kinds
    share the arrays of the kind that they copy. `served` is 0, because an answer that leaks is not served.
    """
    unflipped, zeros = np.zeros(len(black), dtype=np.bool_), np.zeros(len(black))
    measured: dict[str, Measured] = {}
    for kind in kinds:
        source = DERIVED.get(kind, kind)
        if source in measured:
            figures = measured[source]
        elif source == RAW:
            figures = batch.raw()
        elif source == MULTIPLIED:
            figures = batch.multiplied()
        elif source == UNMIRRORED and vocabulary.mirrored:
            figures = batch.unmirrored(vocabulary.twins, black)
        elif source == UNMIRRORED:
            figures = Measured(zeros + np.nan, unflipped, zeros + np.nan)
        elif source == ROUNDED:
            figures = batch.rounded()
        elif source == SERVED:
            figures = Measured(zeros, unflipped, zeros)
        elif source in fills():
            figures = batch.filled(fills()[source])
        else:
            raise ValueError(f"kind: no {kind!r}")
        # `unnormalised` loses the mass that `raw` leaks, and keeps the order of the legal moves.
        measured[kind] = replace(figures, flipped=unflipped) if kind == UNNORMALISED else figures
    return measured
