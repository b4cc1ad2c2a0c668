"""Counts of the arithmetic that each way to mask takes on one row, and each kind of attention on a sequence.

A row has `A` slots and `L` legal slots, `1 ≤ L ≤ A`. Each formula is counted as written, with the row maximum
subtracted first. A subtraction counts as an addition. Reading, writing and selecting by the mask are not counted.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from study.tables import table

#: Slots of lc0's vocabulary; the mean number of legal moves in a game, and the largest number in any position.
SLOTS, LEGAL = 1858, (31, 218)


@dataclass(frozen=True, slots=True)
class Operations:
    """How often a way does each operation on one row."""

    exponentials: int = 0
    logarithms: int = 0
    multiplications: int = 0
    divisions: int = 0
    additions: int = 0
    comparisons: int = 0

    @property
    def total(self) -> int:
        """All operations. An exponential counts as one, though it costs more than an addition."""
        return int(sum(astuple(self)))


def operations_of_log_mask(slots: int) -> Operations:
    """Softmax of `z + log m` over all slots (`masking.log_mask_softmax`); L does not matter.

    `A` logarithms and `A` additions for `z + log m`; `A - 1` comparisons for the maximum; `A` subtractions of it; `A`
    exponentials; `A - 1` additions for their sum; `A` divisions.
    """
    return Operations(slots, slots, 0, slots, 3 * slots - 1, slots - 1)


def operations_of_softmax_then_mask(slots: int) -> Operations:
    """Softmax over all slots, times the mask, divided by the rest (`masking.softmax_then_mask`); L does not matter.

    A - 1 comparisons, A subtractions, A exponentials, A - 1 additions and A divisions for the softmax; A
    multiplications, A - 1 additions and A divisions for the mask.
    """
    return Operations(slots, 0, slots, 2 * slots, 3 * slots - 2, slots - 1)


def operations_of_gathering(legal: int) -> Operations:
    """Softmax of the legal logits alone (`movemask.policy.softmax.softmax`); A does not matter.

    L - 1 comparisons, L subtractions, L exponentials, L - 1 additions, L divisions.
    """
    return Operations(legal, 0, 0, legal, 2 * legal - 1, legal - 1)


def operations_of_softmax_attention(tokens: int, width: int) -> Operations:
    """`attention.softmax_attention` of as many queries, keys and values as tokens, all of this width.

    Scores: `N² d` multiplications, `N² (d - 1)` additions, `N²` divisions by √d. Softmax: `N (N - 1)` comparisons, `N²`
    subtractions, `N²` exponentials, `N (N - 1)` additions, `N²` divisions. Means: `N² d` multiplications, `N d (N - 1)`
    additions.
    """
    n, d = tokens, width
    additions = n * n * (d - 1) + n * n + n * (n - 1) + n * d * (n - 1)
    return Operations(n * n, 0, 2 * n * n * d, 2 * n * n, additions, n * (n - 1))


def operations_of_linear_attention(tokens: int, width: int) -> Operations:
    """`attention.linear_attention` of as many queries, keys and values as tokens, all of this width.

    φ of queries and keys: `2 N d` comparisons, and at most as many exponentials or additions, counted as exponentials.
    Sum over the keys: `N d²` multiplications, `(N - 1) d²` additions, and `(N - 1) d` additions for the normaliser.
    Means: `N d²` multiplications, `N d (d - 1)` additions; for the normaliser `N d` multiplications and `N (d - 1)`
    additions; `N d` divisions.
    """
    n, d = tokens, width
    additions = (n - 1) * d * d + (n - 1) * d + n * d * (d - 1) + n * (d - 1)
    return Operations(2 * n * d, 0, 2 * n * d * d + n * d, n * d, additions, 2 * n * d)


def attention_counts(tokens: int, width: int) -> str:
    """A table of the operations of both kinds of attention, and of the numbers that each holds between its steps."""
    names = [field.name for field in fields(Operations) if field.name != "logarithms"]
    ways = {
        "softmax attention": (operations_of_softmax_attention(tokens, width), tokens * tokens),
        "linear attention": (operations_of_linear_attention(tokens, width), width * width),
    }
    rows = [
        [way, *(f"{getattr(operations, name):,}" for name in names), f"{operations.total:,}", f"{size:,}"]
        for way, (operations, size) in ways.items()
    ]
    return table(["way", *names, "total", "numbers held"], rows)


def counts() -> str:
    """A table of the operations of each way, for SLOTS slots and LEGAL legal moves."""
    names = [field.name for field in fields(Operations)]
    ways = {
        "z + log m": operations_of_log_mask(SLOTS),
        "softmax, mask, renormalise": operations_of_softmax_then_mask(SLOTS),
        **{f"gather, L = {legal}": operations_of_gathering(legal) for legal in LEGAL},
    }
    rows = [
        [way, *(f"{getattr(operations, name):,}" for name in names), f"{operations.total:,}"]
        for way, operations in ways.items()
    ]
    return table(["way", *names, "total"], rows)
