"""Policies by every rule, compared with a second computation.

Each rule is computed a second time: filters on exact fractions and 50-digit exponentials, one row at a time, and the
normalisers from their definitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from movemask.policy.normalisation import KERNELS, Normalisation, Normalizer, Policies, policies

TINY, HUGE = 5e-324, 1.7976931348623157e308  # float64's least and greatest

#: Logits of float32 and float64 networks. Ties and neighbours are frequent; -inf is how some networks rule a move out.
LOGITS = (
    st.floats(-20, 20, width=32)
    | st.sampled_from([0.0, 1.0, 1.0000000000000002, -1.0, 1e-30, 3.4028234663852886e38, 1e308, -1e308, -math.inf])
    | st.floats(-1e308, 1e308).filter(lambda logit: logit == 0 or abs(logit) > 1e-290)
)
ROWS = st.lists(LOGITS, min_size=1, max_size=30).filter(lambda row: max(row) > -math.inf)
TEMPERATURES = st.sampled_from([TINY, 1e-308, 1e-17, 1.0, 1e15, 1e16, 1e17, 1e18, 1e308, HUGE]) | st.floats(TINY, HUGE)
PARAMETERS = {"alpha": st.sampled_from([1.0, 1.0000000000000002, 2.0]) | st.floats(1, 2)}
SHARES = st.sampled_from([TINY, 0.5, 0.9999999999999999, 1.0]) | st.floats(TINY, 1)


@st.composite
def rules(draw: st.DrawFn) -> Normalisation:
    normalizer = draw(st.sampled_from(get_args(Normalizer)))
    parameter = KERNELS[normalizer].parameter
    return Normalisation(
        normalizer,
        **({} if parameter is None else {parameter: draw(PARAMETERS[parameter])}),
        temperature=draw(TEMPERATURES),
        top_k=draw(st.none() | st.integers(1, 31) | st.just(10**30)),
        top_p=draw(st.none() | SHARES),
        min_p=draw(st.none() | st.just(0.0) | SHARES),
    )


def policy(row: Sequence[float], rule: Normalisation) -> Policies:
    return policies(np.arange(len(row)), np.array(row), np.array([0, len(row)]), [rule])


def exponentials(row: Sequence[float], temperature: float, top: float) -> list[Decimal]:
    """`exp((z - top) / T)` of each logit, to 50 digits; 0 below 1e-400."""
    shifted = [
        Decimal("-Infinity")
        if logit == -math.inf
        else decimal((Fraction(logit) - Fraction(top)) / Fraction(temperature))
        for logit in row
    ]
    return [power.exp() if power > -921 else Decimal(0) for power in shifted]


def decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def fewest_and_most_kept(shares: Sequence[Decimal], rule: Normalisation) -> tuple[int, int]:
    """How many moves the filters keep of exact probabilities in falling order; two numbers where a float may fall on
    either side of a bound."""
    fewest = most = len(shares) if rule.top_k is None else min(rule.top_k, len(shares))
    if rule.top_p is not None and rule.top_p < 1:
        before = [sum(shares[:place], Decimal(0)) for place in range(len(shares))]
        least, greatest = Decimal(rule.top_p) - Decimal("1e-12"), Decimal(rule.top_p) + Decimal("1e-12")
        fewest = min(fewest, max(1, sum(mass < least for mass in before)))
        most = min(most, max(1, sum(mass < greatest for mass in before)))
    if rule.min_p:
        bound, slack = Decimal(rule.min_p) * shares[0], Decimal("1e-9")
        fewest = min(fewest, max(1, sum(share >= bound * (1 + slack) + Decimal("1e-300") for share in shares)))
        most = min(most, sum(share >= bound * (1 - slack) - Decimal("1e-300") for share in shares))
    return fewest, most


def expected(row: Sequence[float], rule: Normalisation) -> tuple[list[float], float]:
    """Probabilities of logits that were not filtered, in falling order, and the abstention."""
    top = row[0]
    if rule.normalizer == "softmax_one":
        top = max(top, 0.0)
        weights = exponentials([*row, 0.0], rule.divisor, top)
        total = sum(weights, Decimal(0))
        *shares, abstention = (float(weight / total) for weight in weights)
        return shares, abstention
    alpha = {"softmax": 1.0, "sparsemax": 2.0, "entmax15": 1.5}.get(rule.normalizer, rule.alpha)
    assert alpha is not None
    if alpha == 1:
        weights = exponentials(row, rule.divisor, top)
        total = sum(weights, Decimal(0))
        return [float(weight / total) for weight in weights], 0.0
    below = [
        -math.inf
        if logit == -math.inf
        else float(max(Fraction(-2000), (Fraction(logit) - Fraction(top)) / Fraction(rule.temperature)))
        for logit in row
    ]

    def at(threshold: float) -> list[float]:
        """`[(α - 1)(z - threshold) + 1]_+ ^ (1 / (α - 1))`: Tsallis' exponential, which is `exp` where α is 1."""
        return [
            math.exp(math.log1p((alpha - 1) * (z - threshold)) / (alpha - 1))
            if (alpha - 1) * (z - threshold) > -1
            else 0.0
            for z in below
        ]

    highest = -math.expm1((1 - alpha) * math.log(len(row))) / (alpha - 1)  # of equal logits
    threshold = (
        0.0
        if len(row) == 1
        else brentq(lambda threshold: sum(at(threshold)) - 1, 0.0, highest * (1 + 1e-9), xtol=1e-15)
    )
    return [p / math.fsum(at(threshold)) for p in at(threshold)], 0.0


@settings(max_examples=300)
@given(ROWS, rules())
@example([0.3, 0.1, 0.5], Normalisation(temperature=1e308, top_k=1, top_p=0.5))
@example([0.3, 0.1, 0.5], Normalisation("sparsemax", temperature=1e17, top_k=1, top_p=0.5))
@example([0.3, 0.1, 0.5], Normalisation("entmax15", temperature=1e17, top_k=1, top_p=0.5))
@example([0.3, 0.1, 0.5], Normalisation("softmax_one", temperature=1e17, top_k=1, top_p=0.5))
@example([0.3, 0.1, 0.5], Normalisation(temperature=HUGE, top_p=TINY, min_p=1.0))
@example([-math.inf, -1e308, 1e308], Normalisation(temperature=TINY, top_p=1.0, min_p=TINY))
@example([2.0], Normalisation("softmax_one", temperature=TINY, top_k=1, top_p=TINY, min_p=1.0))
def test_every_rule_keeps_best_move_and_sums_to_one(row: list[float], rule: Normalisation) -> None:
    result = policy(row, rule)
    order = sorted(range(len(row)), key=lambda place: (-row[place], place))
    falling = [row[place] for place in order]
    with localcontext(prec=50):
        weights = exponentials(falling, rule.divisor, falling[0])
        fewest, most = fewest_and_most_kept([weight / sum(weights) for weight in weights], rule)
        assert 1 <= fewest <= len(result.codes) <= most
        assert result.codes.tolist() == order[: len(result.codes)]
        probabilities, abstention = expected(falling[: len(result.codes)], rule)
    # Near alpha 1, entmax divides by alpha - 1.
    exact = 1e-10 if rule.alpha in (None, 1.0) else 1e-10 + 1e-14 / (rule.alpha - 1)
    np.testing.assert_allclose(result.probabilities, probabilities, rtol=0, atol=exact)
    np.testing.assert_allclose(result.abstention, [abstention], rtol=0, atol=exact)
    assert abs(math.fsum(result.probabilities) + result.abstention[0] - 1) < 1e-12
    assert (result.probabilities >= 0).all()
    assert (np.diff(result.probabilities) <= 0).all()
    drawn = result.sample(0, rule.divisor, seed=1)
    assert result.probabilities[drawn] > 0 or result.abstention[0] == 1
    assert all(map(math.isfinite, result.statistics(0, rule.divisor).values()))


@given(st.lists(st.tuples(ROWS | st.just([]), rules()), min_size=1, max_size=5))
def test_policy_in_batch_equals_policy_alone(batch: list[tuple[list[float], Normalisation]]) -> None:
    rows = [row for row, _ in batch]
    indptr = np.cumsum([0, *map(len, rows)])
    together = policies(
        np.concatenate([np.arange(len(row)) for row in rows]),
        np.array([logit for row in rows for logit in row]),
        indptr,
        [rule for _, rule in batch],
    )
    for place, (row, rule) in enumerate(batch):
        alone = policy(row, rule)
        moves = slice(together.indptr[place], together.indptr[place + 1])
        assert together.codes[moves].tolist() == alone.codes.tolist()
        assert together.probabilities[moves].tobytes() == alone.probabilities.tobytes()
        assert together.abstention[place] == alone.abstention[0]


@pytest.mark.parametrize("temperature", [1e15, 1e16, 1e17, 1e308])
def test_filters_rank_by_logits_at_high_temperature(temperature: float) -> None:
    logits = [0.1, 0.4, 0.2, 0.3]
    rule = Normalisation(temperature=temperature, top_p=0.5)
    assert policy(logits, rule).codes.tolist() == [1, 3]
    assert policy(logits, replace(rule, top_k=3, min_p=1e-9)).codes.tolist() == [1, 3]
