"""Legal logits → `Policies`, by a `Normalisation` for each position."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, GetPydanticSchema, WithJsonSchema, WrapValidator

from movemask.errors import InvalidRule
from movemask.policy import distributions, entmax, softmax
from movemask.policy.ragged import (
    Float,
    Index,
    falling,
    indptr_of,
    restricted,
    row_lengths,
    row_of_each,
)

Normalizer = Literal["softmax", "softmax_one", "sparsemax", "entmax15", "entmax"]


class Kernel(NamedTuple):
    """A function that turns logits into probabilities: `of(logits, indptr, [parameter,] temperature)`.

    gives : what it gives, for docs/numerics.md
    parameter : the field of a rule that it needs, and no other normaliser
    abstains : whether `of` returns the abstention too
    """

    of: Callable[..., Any]
    gives: str
    parameter: str | None = None
    abstains: bool = False


#: The normalisers. To add one, write its kernel beside those of softmax.py, which checks its arguments as they do; add
#: its name to `Normalizer` and its line here; and say in tests/policy/test_normalisation.py what it should give.
#: `python -m tests.snapshots` then writes it into docs/numerics.md and docs/api.md.
KERNELS: dict[Normalizer, Kernel] = {
    "softmax": Kernel(softmax.softmax, "`e^z / Σe^z`"),
    "softmax_one": Kernel(
        softmax.softmax_one,
        "`e^z / (1 + Σe^z)`: if all logits are low, part of the probability goes to no move; `abstention` says how "
        "much. `/v1/move` and `statistics` rescale to 1",
        abstains=True,
    ),
    "sparsemax": Kernel(
        entmax.sparsemax, "exactly 0 for moves far below the best; these moves are still listed"
    ),
    "entmax15": Kernel(
        entmax.entmax15, "the same for fewer moves: halfway between `softmax` and `sparsemax`"
    ),
    "entmax": Kernel(
        entmax.entmax,
        "α-entmax, with `alpha` between 1 (softmax) and 2 (sparsemax); 1.5 is `entmax15`",
        "alpha",
    ),
}

#: A number that divides the logits, or `calibrated`: the model's fitted number.
Temperature = float | Literal["calibrated"]

# The fields of a rule with their bounds, for whoever reads rules: the API, and `movemask.load()`.
TemperatureField = Annotated[
    Temperature,
    GetPydanticSchema(  # one error, not one for each type
        lambda _, schema_of: schema_of(Annotated[float, Field(ge=0, allow_inf_nan=False)])
    ),
    WrapValidator(lambda value, read: value if value == "calibrated" else read(value)),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"const": "calibrated"}]}),
]
Alpha = Annotated[
    float | None,
    Field(
        ge=1,
        le=2,
        allow_inf_nan=False,
        description="For `entmax`: 1 is softmax, 2 is sparsemax. No unit.",
    ),
]
TopK = Annotated[int | None, Field(ge=1, description="Number of most probable moves to keep.")]
TopP = Annotated[
    float | None,
    Field(
        gt=0, le=1, description="Keep the fewest moves whose probabilities reach this sum, 0 to 1."
    ),
]
MinP = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="Keep moves with at least this share of the best move's probability, 0 to 1.",
    ),
]


@dataclass(frozen=True, slots=True)
class Normalisation:
    """A rule that turns logits into a policy.

    The filters choose moves by the softmax at the temperature. The normaliser then turns the logits of these moves into
    probabilities. At a temperature of 0 the most probable move gets everything, whatever the normaliser. Raises
    InvalidRule unless a parameter of a normaliser, such as `alpha` of `entmax`, comes with it, and only with it.
    pydantic checks the bounds when numbers come in.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    normalizer: Normalizer = "softmax"
    alpha: Alpha = None
    temperature: TemperatureField = 1.0
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None

    def __post_init__(self) -> None:
        for name, kernel in KERNELS.items():
            if kernel.parameter is None:
                continue
            has_parameter = getattr(self, kernel.parameter) is not None
            if has_parameter and name != self.normalizer:
                raise InvalidRule(
                    f"{kernel.parameter}: needs normalizer {name!r}, not {self.normalizer!r}"
                )
            if not has_parameter and name == self.normalizer:
                raise InvalidRule(
                    f"{kernel.parameter}: is missing; normalizer {name!r} gives {kernel.gives}"
                )

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
        return (
            self.codes.tolist(),
            self.probabilities.tolist(),
            self.indptr.tolist(),
            self.abstention.tolist(),
        )

    def statistics(self, row: int, temperature: float) -> dict[str, float]:
        """Returns the statistics of a position's distribution by name, without abstention.

        Entropy is in nats.
        """
        p = self._shares(row, temperature)
        return {
            name: float(statistic(p, np.array([0, len(p)]))[0])
            for name, statistic in _STATISTICS.items()
        }

    def sample(self, row: int, temperature: float, seed: int) -> int:
        """Returns the index of a move drawn by its probability, without abstention.

        The same seed draws the same move.
        """
        return distributions.drawn(self._shares(row, temperature), seed)

    def _shares(self, row: int, temperature: float) -> Float:
        """Returns the probabilities of a row, rescaled to sum to 1.

        For softmax_one, the rescaled row is the softmax. It is computed from the logits, because
        all probabilities may have underflowed to 0.
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


def policies(
    codes: Index, logits: Float, indptr: Index, rules: Sequence[Normalisation]
) -> Policies:
    """Returns the policies of B positions, each by its rule.

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
        by_rule.append(
            _by_rule(codes[in_group], logits[in_group], indptr_of(lengths.tolist()), rule)
        )
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
    """Returns the legal moves that the filters keep, bool `[N]`; always each position's highest
    logit. None for all moves.
    """
    if rule.temperature == 0:
        return distributions.top_k(logits, indptr, 1)
    if rule.top_k is None and rule.top_p is None and not rule.min_p:  # a min_p of 0 keeps all
        return None
    base = softmax.softmax(logits, indptr, rule.divisor)
    keep = np.ones(len(base), dtype=bool)
    if rule.top_k is not None:
        # by logits: probabilities may underflow to equal 0s
        keep &= distributions.top_k(logits, indptr, rule.top_k)
    if rule.top_p is not None:
        # Ranked by logits, like top_k: where rounding makes probabilities equal, both keep the same best move.
        keep &= distributions.top_p(base, indptr, rule.top_p, falling(logits, indptr))
    if rule.min_p:
        keep &= distributions.min_p(base, indptr, rule.min_p)
    return keep


def _normalised(logits: Float, indptr: Index, rule: Normalisation) -> tuple[Float, Float]:
    """Returns the probabilities float64 `[N]` and abstention `[B]`."""
    if rule.temperature == 0:  # one move of each position is left
        return np.ones(len(logits)), np.zeros(len(indptr) - 1)
    kernel = KERNELS[rule.normalizer]
    parameters = () if kernel.parameter is None else (getattr(rule, kernel.parameter),)
    result = kernel.of(logits, indptr, *parameters, rule.divisor)
    return result if kernel.abstains else (result, np.zeros(len(indptr) - 1))
