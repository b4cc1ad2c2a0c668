"""What a reader would lose: counts of operations that are those of the formulas, counted by numbers that count."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import reduce
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.operations import (
    Operations,
    operations_of_gathering,
    operations_of_log_mask,
    operations_of_softmax_then_mask,
)
from movemask.numeric import dense, masking


def counted(what: str, compute: Callable[..., float]) -> Callable[..., Counted]:
    def operation(*numbers: Counted) -> Counted:
        Counted.done[what] += 1
        return Counted(compute(*(number.value for number in numbers)))

    return operation


class Counted:
    """A number that counts what is done with it."""

    done: ClassVar[Counter[str]] = Counter()

    def __init__(self, value: float) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.value)

    __gt__ = counted("comparisons", operator.gt)
    __add__ = counted("additions", operator.add)
    __sub__ = counted("additions", operator.sub)
    __mul__ = counted("multiplications", operator.mul)
    __truediv__ = counted("divisions", operator.truediv)
    exp = counted("exponentials", math.exp)
    log = counted("logarithms", lambda value: math.log(value) if value else -math.inf)


def plain_softmax(z: Sequence[Counted]) -> list[Counted]:
    top = max(z)
    weights = [(one - top).exp() for one in z]
    total = reduce(operator.add, weights)
    return [one / total for one in weights]


def by_log_mask(z: Sequence[Counted], mask: Sequence[bool]) -> list[Counted]:
    return plain_softmax([one + Counted(float(legal)).log() for one, legal in zip(z, mask, strict=True)])


def by_masking_after(z: Sequence[Counted], mask: Sequence[bool]) -> list[Counted]:
    kept = [one * Counted(float(legal)) for one, legal in zip(plain_softmax(z), mask, strict=True)]
    total = reduce(operator.add, kept)
    return [one / total for one in kept]


def by_gathering(z: Sequence[Counted], mask: Sequence[bool]) -> list[Counted]:
    policy = iter(plain_softmax([one for one, legal in zip(z, mask, strict=True) if legal]))
    return [next(policy) if legal else Counted(0.0) for legal in mask]


Way = Callable[[Sequence[Counted], Sequence[bool]], list[Counted]]


@pytest.mark.parametrize(
    ("way", "counts", "kernel"),
    [
        (by_log_mask, operations_of_log_mask, masking.log_mask_softmax),
        (by_masking_after, operations_of_softmax_then_mask, masking.softmax_then_mask),
        (by_gathering, operations_of_gathering, dense.masked_softmax),
    ],
)
@pytest.mark.parametrize(("slots", "legal"), [(1, 1), (7, 7), (12, 1), (1858, 31), (40, 17)])
def test_the_counts_are_those_of_numbers_that_count_and_the_result_is_the_kernels(
    way: Way,
    counts: Callable[[int, int], Operations],
    kernel: Callable[..., NDArray[np.floating]],
    slots: int,
    legal: int,
) -> None:
    rng = np.random.default_rng(slots)
    z = rng.normal(size=slots)
    mask = np.zeros(slots, dtype=bool)
    mask[rng.choice(slots, legal, replace=False)] = True
    Counted.done.clear()
    policy = way([Counted(float(value)) for value in z], mask.tolist())
    found = counts(slots, legal)
    assert Counted.done == Counter(asdict(found))
    assert found.total == Counted.done.total()
    np.testing.assert_allclose(np.array([[one.value for one in policy]]), kernel(z[None], mask[None]), atol=1e-15)
