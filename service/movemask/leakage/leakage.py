"""Leakage of a batch, from the logits as they came. Definitions: docs/leakage.md.

Every figure is a ratio of sums of exponentials, made by shifted log-sum-exp in float64; a difference of nearly
equal numbers (`1 - x`) is never taken, so a leakage of 1e-300 is as exact as one of 0.5.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from movemask.leakage.kinds import MULTIPLIED, RAW, ROUNDED, SERVED, UNMIRRORED, UNNORMALISED, Fill, fills
from movemask.leakage.reasons import Heavy
from movemask.leakage.record import Figure
from movemask.numeric.ragged import Float, Index, row_max, row_of_each, row_sum
from movemask.numeric.softmax import log_softmax, logsumexp
from movemask.vocabulary.vocabulary import Vocabulary

#: Rows whose illegal logits are summed together: few enough to stay in a core's cache.
_ROWS = 32

#: How much lower than exactly a logit is compared in its own dtype, before its mass is.
_SLACK = 0.1

#: Places that `rounded` rounds a probability to.
_PLACES = 10_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind for a batch: what leaked, whether the top move changed, and the divergence from the right policy.

    `leaked` float64 `[B]`, NaN where it cannot be measured; `flipped` bool `[B]`; `kl` float64 `[B]` in nats, inf where
    a legal move gets nothing, NaN where `leaked` is.
    """

    leaked: Float
    flipped: NDArray[np.bool_]
    kl: Float

    def figures(self) -> list[Figure]:
        """The figures of each row."""
        missing, finite = np.isnan(self.leaked), np.isfinite(self.kl)
        return [
            _UNMEASURED if nan else Figure(leaked, flipped, kl if known else None)
            for nan, leaked, flipped, kl, known in zip(
                missing.tolist(), self.leaked.tolist(), self.flipped.tolist(), self.kl.tolist(), finite.tolist(),
                strict=True,
            )
        ]  # fmt: skip


_UNMEASURED = Figure(None, False, None)


class Unmasked:
    """Logits as the network gave them and which of them are legal: what every kind is computed from, each part once.

    Parameters
    ----------
    logits : `[B, A]`, as the network gave them
    slots : legal slots `[N]`, rows in `indptr` `[B + 1]`, at least one a row
    legal : the legal logits float64 `[N]`, if they have been gathered
    """

    def __init__(self, logits: NDArray[np.floating], slots: Index, indptr: Index, legal: Float | None = None) -> None:
        self.logits, self.slots, self.indptr = logits, slots, indptr
        self.rows = row_of_each(indptr)
        self.legal = np.asarray(logits[self.rows, slots], dtype=np.float64) if legal is None else legal
        self.log_legal = logsumexp(self.legal, indptr)
        self.top_legal = row_max(self.legal, indptr)
        self.illegal_slots = (logits.shape[1] - np.diff(indptr)).astype(np.float64)

    @cached_property
    def is_legal(self) -> NDArray[np.bool_]:
        """Bool `[B, A]`."""
        mask = np.zeros(self.logits.shape, dtype=np.bool_)
        mask[self.rows, self.slots] = True
        return mask

    @cached_property
    def rest(self) -> NDArray[np.floating]:
        """The logits `[B, A]` in their own dtype, legal ones as -inf."""
        rest = self.logits.copy()
        rest[self.rows, self.slots] = -np.inf
        return rest

    @cached_property
    def illegal(self) -> tuple[Float, Float]:
        """Log-sum-exp of the illegal logits of each row, and the largest of them, both `[B]`; NaN where one is
        NaN or +inf."""
        count, size = self.rest.shape
        highest = self.rest.max(axis=1, initial=-np.inf).astype(np.float64)
        shift = np.where(highest == -np.inf, 0.0, highest)
        total = np.empty(count)
        shifted = np.empty((min(count, _ROWS), size))  # float64: a logit less its shift is not exact in float32
        for start in range(0, count, _ROWS):
            part = shifted[: min(_ROWS, count - start)]
            span = slice(start, start + _ROWS)
            part[:] = self.rest[span]
            with np.errstate(under="ignore", invalid="ignore"):
                part -= shift[span, None]
                np.exp(part, out=part)
                total[span] = part.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return shift + np.log(total), highest

    def heavy(self, least: float) -> Heavy:
        """The illegal slots with at least this much plain softmax, each row's heaviest first, equal ones by slot; none
        of a row where an illegal logit is NaN or +inf."""
        size = self.rest.shape[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            log_all = np.logaddexp(self.log_legal, self.illegal[0])
            threshold = (log_all + np.log(least) - _SLACK).astype(np.float32)
            # A flat array's few trues are found several times as fast as a table's.
            places = np.flatnonzero(self.rest >= threshold[:, None])
        rows = places // size
        with np.errstate(under="ignore", invalid="ignore"):
            masses = np.exp(self.rest.reshape(-1)[places].astype(np.float64) - log_all[rows])
        keep = (masses >= least) & (masses > 0)
        rows, slots, masses = rows[keep], places[keep] - rows[keep] * size, masses[keep]
        order = np.lexsort((slots, -masses, rows))
        return Heavy(rows[order], slots[order], masses[order])

    def masses(self) -> tuple[Float, Float]:
        """What leaks by `raw` and by `multiplied`, both `[B]`: all that an answer holds of them."""
        with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
            log_illegal = self.illegal[0]
            raw = np.exp(log_illegal - np.logaddexp(self.log_legal, log_illegal))
            log_ones = np.log(self.illegal_slots)
            return raw, np.exp(log_ones - np.logaddexp(self.log_legal, log_ones))

    def raw(self) -> Measured:
        """What plain softmax gives to illegal slots, `sum_illegal e^z / sum_all e^z`; NaN where an illegal
        logit is NaN or +inf."""
        return self._shared_with(*self.illegal)

    def multiplied(self) -> Measured:
        """What `softmax(z * mask)` gives to illegal slots: `n / (n + sum_legal e^z)` with `n = A - |L|`.

        An illegal logit does not matter: it is multiplied by zero.
        """
        with np.errstate(divide="ignore"):
            return self._shared_with(np.log(self.illegal_slots), np.where(self.illegal_slots > 0, 0.0, -np.inf))

    def filled(self, fill: Fill) -> Measured:
        """What is left on illegal slots whose logits were set to a finite number, as the dtype computes it.

        Logits, exponentials and probabilities are of the dtype; their sum is kept in float32, as torch, onnxruntime and
        numpy do. Where the logits overflow the dtype there is no softmax: NaN.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            legal = self.legal.astype(fill.dtype)
            constant = np.where(self.illegal_slots > 0, fill.constant, -np.inf).astype(fill.dtype)
            top = np.maximum(row_max(legal.astype(np.float64), self.indptr).astype(fill.dtype), constant)
            weights = np.exp(legal - np.repeat(top, np.diff(self.indptr)))
            filling = np.exp(constant - top)
            total = np.add.reduceat(weights.astype(np.float32), self.indptr[:-1]) + self.illegal_slots.astype(
                np.float32
            ) * filling.astype(np.float32)
            p = (weights.astype(np.float32) / np.repeat(total, np.diff(self.indptr))).astype(fill.dtype)
            each = (filling.astype(np.float32) / total).astype(fill.dtype).astype(np.float64)
        leaked = self.illegal_slots * each
        sound = np.isfinite(leaked)
        mistaken = p.astype(np.float64)
        flipped = sound & (each > row_max(np.where(np.isnan(mistaken), 0.0, mistaken), self.indptr))
        return Measured(leaked, flipped, np.where(sound, self._divergence(mistaken), np.nan))

    def unmirrored(self, twins: Index, black: NDArray[np.bool_]) -> Measured:
        """The mass on moves that are not legal when Black's legal moves are looked up without being mirrored.

        `twins` `[A]` is the slot of each slot's move seen by the other side, -1 where it has none, and the mistake
        drops it; `black` bool `[B]`: White's moves are looked up rightly. NaN where no slot is left, or where a logit
        that is looked up is NaN or +inf.
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
        complete = np.bincount(rows[right], minlength=len(black)) == np.diff(self.indptr)
        flipped = sound & ((best_right < self.top_legal) | (best_wrong > best_right))
        return Measured(leaked, flipped, np.where(sound, np.where(complete, 0.0, np.inf), np.nan))

    def rounded(self) -> Measured:
        """How far the sum is from 1 when each probability is rounded to 4 places; counted in whole ten-thousandths."""
        whole = np.rint(np.exp(log_softmax(self.legal, self.indptr)) * _PLACES)
        leaked = np.abs(_PLACES - row_sum(whole, self.indptr)) / _PLACES
        return Measured(leaked, np.zeros(len(leaked), dtype=np.bool_), self._divergence(whole / _PLACES))

    def _shared_with(self, log_illegal: Float, top_illegal: Float) -> Measured:
        """Legal moves keep their logits and share with illegal slots of this log-mass; the divergence is then
        `log(1 + illegal / legal)`."""
        with np.errstate(under="ignore", invalid="ignore"):
            leaked = np.exp(log_illegal - np.logaddexp(self.log_legal, log_illegal))
            kl = np.logaddexp(0.0, log_illegal - self.log_legal)
            return Measured(leaked, top_illegal > self.top_legal, kl)

    def _divergence(self, mistaken: Float) -> Float:
        """`sum p log(p / q)` of each row, for a `q` over the legal moves `[N]`."""
        log_p = log_softmax(self.legal, self.indptr)
        p = np.exp(log_p)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p > 0, p * (log_p - np.log(mistaken)), 0.0)
        return np.maximum(row_sum(terms, self.indptr), 0.0)


def raw(logits: NDArray[np.floating], slots: Index, indptr: Index) -> Float:
    """What leaks by `raw`, `[B]`; shapes as in `Unmasked`."""
    return Unmasked(logits, slots, indptr).raw().leaked


def multiplied(logits: NDArray[np.floating], slots: Index, indptr: Index) -> Float:
    """What leaks by `multiplied`, `[B]`; shapes as in `Unmasked`."""
    return Unmasked(logits, slots, indptr).multiplied().leaked


def measure(
    kinds: Collection[str], batch: Unmasked, vocabulary: Vocabulary, black: NDArray[np.bool_]
) -> dict[str, Measured]:
    """The kinds asked for, `served` aside, of a whole batch; `black` bool `[B]` says where Black is to move.

    `unmirrored` is not measured (NaN) for a vocabulary that is not mirrored: it cannot be made there.
    """
    rows = len(batch.logits)
    found: dict[str, Measured] = {}
    for kind in kinds:
        if kind == RAW:
            found[kind] = batch.raw()
        elif kind == MULTIPLIED:
            found[kind] = batch.multiplied()
        elif kind == UNNORMALISED:
            # Softmax first, the mask after, never renormalised: as much is lost as `raw` leaks; the order stays.
            plain = found.get(RAW) or batch.raw()
            found[kind] = Measured(plain.leaked, np.zeros(rows, dtype=np.bool_), plain.kl)
        elif kind == UNMIRRORED:
            found[kind] = batch.unmirrored(vocabulary.twins(), black) if vocabulary.mirrored else _unmeasured(rows)
        elif kind == ROUNDED:
            found[kind] = batch.rounded()
        elif kind in fills():
            found[kind] = batch.filled(fills()[kind])
        elif kind != SERVED:
            raise ValueError(f"kind: no {kind!r}")
    return found


def _unmeasured(rows: int) -> Measured:
    nothing = np.full(rows, np.nan)
    return Measured(nothing, np.zeros(rows, dtype=np.bool_), nothing)
