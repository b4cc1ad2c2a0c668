"""Legal logits → `Policies`, by a `Normalisation` for each position."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, assert_never

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from movemask.errors import InvalidRule
from movemask.policy import distributions, entmax, softmax
from movemask.policy.ragged import Float, Index, falling, indptr_of, restricted, row_lengths, row_of_each

#: The functions that turn logits into probabilities. To add a function, write its name here: mypy then asks for its
#: case in `_normalised`, and a test for its row in docs/numerics.md.
Normalizer = Literal["softmax", "softmax_one", "sparsemax", "entmax15", "entmax"]

#: A number that divides the logits, or `calibrated`: the model's fitted number.
Temperature = float | Literal["calibrated"]


@dataclass(frozen=True, slots=True)
class Normalisation:
    """A rule that turns logits into a policy.

    The filters choose moves by the softmax at the temperature. The normaliser then turns the logits of these moves into
    probabilities. At a temperature of 0 the most probable move gets everything, whatever the normaliser. Raises
    InvalidRule unless `alpha` comes with `entmax`, and only with it. pydantic checks the other bounds when numbers come
    in.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    normalizer: Normalizer = "softmax"
    alpha: Annotated[float, Field(ge=1, le=2)] | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["calibrated"] = 1.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None

    def __post_init__(self) -> None:
        if self.normalizer == "entmax" and self.alpha is None:
            raise InvalidRule(
                "alpha: is missing; normalizer 'entmax' needs a value between 1 (softmax) and 2 (sparsemax)"
            )
        if self.normalizer != "entmax" and self.alpha is not None:
            raise InvalidRule(f"alpha: needs normalizer 'entmax', not {self.normalizer!r}")

    @property
    def divisor(self) -> float:
        """The number that divides the logits. Raises ValueError for `calibrated`, which only a model can resolve."""
        if isinstance(self.temperature, str):
            raise ValueError("temperature: 'calibrated' must be replaced by the model's number")
        return self.temperature


@dataclass(frozen=True)
class Policies:
    """The distributions of B positions over the M legal moves that the filters keep, in CSR form.

    codes : intp `[M]` (`board.moves`); within a position by falling logit, then by slot. The most probable move is
        first, even where probabilities underflow to 0
    probabilities, logits : float64 `[M]`, in the same order
    indptr : intp `[B + 1]`
    abstention : float64 `[B]`, 0 except with softmax_one; each row and its abstention sum to 1
    """

    codes: Index
    probabilities: Float
    logits: Float
    indptr: Index
    abstention: Float

    @cached_property
    def lists(self) -> tuple[list[int], list[float], list[int], list[float]]:
        """`codes`, `probabilities`, `indptr` and `abstention` as lists, for writing answers."""
        return self.codes.tolist(), self.probabilities.tolist(), self.indptr.tolist(), self.abstention.tolist()

    def statistics(self, row: int, temperature: float) -> dict[str, float]:
        """The statistics of a position's distribution by name, without abstention. Entropy is in nats."""
        p = self._shares(row, temperature)
        return {name: float(statistic(p, np.array([0, len(p)]))[0]) for name, statistic in _STATISTICS.items()}

    def sample(self, row: int, temperature: float, seed: int) -> int:
        """The index of a move drawn by its probability, without abstention. The same seed draws the same move."""
        return distributions.drawn(self._shares(row, temperature), seed)

    def unshaped(self, row: int) -> list[float]:
        """Plain softmax of a row's logits at temperature 1, whatever the rule."""
        logits = self.logits[self.indptr[row] : self.indptr[row + 1]]
        probabilities: list[float] = softmax.softmax(logits, np.array([0, len(logits)])).tolist()
        return probabilities

    def _shares(self, row: int, temperature: float) -> Float:
        """The probabilities of a row, rescaled to sum to 1.

        For softmax_one, the rescaled row is the softmax. It is computed from the logits, because all probabilities may
        have underflowed to 0.
        """
        moves = slice(self.indptr[row], self.indptr[row + 1])
        if not self.abstention[row]:
            return self.probabilities[moves]
        logits = self.logits[moves]
        return softmax.softmax(logits, np.array([0, len(logits)]), temperature)


_STATISTICS = {
    "entropy": distributions.entropy,
    "effective_moves": distributions.effective_number,
    "inverse_simpson": distributions.inverse_simpson,
    "gini": distributions.gini,
    "maximum": distributions.maximum,
}


def policies(codes: Index, logits: Float, indptr: Index, rules: Sequence[Normalisation]) -> Policies:
    """The policies of B positions, each by its rule.

    codes : intp `[N]`, the legal moves
    logits : float64 `[N]`, their logits
    indptr : intp `[B + 1]`
    """
    groups: dict[Normalisation, list[int]] = defaultdict(list)
    for row, rule in enumerate(rules):
        groups[rule].append(row)
    if len(groups) == 1:
        return _by_rule(codes, logits, indptr, rules[0])
    row_of = row_of_each(indptr)
    by_rule = []
    for rule, rows in groups.items():
        in_group = np.isin(row_of, rows)
        lengths = row_lengths(indptr)[rows]
        by_rule.append(_by_rule(codes[in_group], logits[in_group], indptr_of(lengths.tolist()), rule))
    # `by_rule` groups the positions by rule; `order` and `back` restore the order of the batch.
    grouped_rows = np.concatenate([np.array(rows, dtype=np.intp) for rows in groups.values()])
    lengths = np.concatenate([row_lengths(group.indptr) for group in by_rule])
    order = np.argsort(np.repeat(grouped_rows, lengths), kind="stable")
    back = np.argsort(grouped_rows)
    return Policies(
        np.concatenate([group.codes for group in by_rule])[order],
        np.concatenate([group.probabilities for group in by_rule])[order],
        np.concatenate([group.logits for group in by_rule])[order],
        indptr_of(lengths[back].tolist()),
        np.concatenate([group.abstention for group in by_rule])[back],
    )


def _by_rule(codes: Index, logits: Float, indptr: Index, rule: Normalisation) -> Policies:
    keep = _kept(logits, indptr, rule)
    if keep is not None:
        codes, logits, indptr = codes[keep], logits[keep], restricted(indptr, keep)
    probabilities, abstention = _normalised(logits, indptr, rule)
    order = falling(logits, indptr)
    return Policies(codes[order], probabilities[order], logits[order], indptr, abstention)


def _kept(logits: Float, indptr: Index, rule: Normalisation) -> NDArray[np.bool_] | None:
    """The legal moves that the filters keep, bool `[N]`; always each position's highest logit. None for all moves."""
    if rule.temperature == 0:
        return distributions.top_k(logits, indptr, 1)
    if rule.top_k is None and rule.top_p is None and not rule.min_p:  # a min_p of 0 keeps all
        return None
    base = softmax.softmax(logits, indptr, rule.divisor)
    keep = np.ones(len(base), dtype=bool)
    if rule.top_k is not None:
        keep &= distributions.top_k(logits, indptr, rule.top_k)  # by logits: probabilities may underflow to equal 0s
    if rule.top_p is not None:
        # Ranked by logits, like top_k: where rounding makes probabilities equal, both keep the same best move.
        keep &= distributions.top_p(base, indptr, rule.top_p, falling(logits, indptr))
    if rule.min_p:
        keep &= distributions.min_p(base, indptr, rule.min_p)
    return keep


def _normalised(logits: Float, indptr: Index, rule: Normalisation) -> tuple[Float, Float]:
    """Probabilities float64 `[N]` and abstention `[B]`."""
    abstention = np.zeros(len(indptr) - 1)
    if rule.temperature == 0:  # one move of each position is left
        return np.ones(len(logits)), abstention
    match rule.normalizer:
        case "softmax":
            probabilities = softmax.softmax(logits, indptr, rule.divisor)
        case "softmax_one":
            probabilities, abstention = softmax.softmax_one(logits, indptr, rule.divisor)
        case "sparsemax":
            probabilities = entmax.sparsemax(logits, indptr, rule.divisor)
        case "entmax15":
            probabilities = entmax.entmax15(logits, indptr, rule.divisor)
        case "entmax":
            assert rule.alpha is not None
            probabilities = entmax.entmax(logits, indptr, rule.alpha, rule.divisor)
        case _:
            assert_never(rule.normalizer)
    return probabilities, abstention
