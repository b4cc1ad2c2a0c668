"""Counts of operations of three ways to mask, as a table in docs/numerics.md: `python -m benchmarks.operations`.

`operations_of_…` count the arithmetic of one row: `A` slots of the vocabulary, `L` legal ones, `1 ≤ L ≤ A`. A
subtraction counts as an addition; reading, writing and selecting by the mask are not counted. Each formula is counted
as written, with the row maximum subtracted first.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from benchmarks.sparse_rows import put

#: lc0's vocabulary; about the mean number of legal moves of a game, and the most that any position has.
SLOTS, LEGAL = 1858, (31, 218)


@dataclass(frozen=True, slots=True)
class Operations:
    """How often each operation is done on one row."""

    exponentials: int = 0
    logarithms: int = 0
    multiplications: int = 0
    divisions: int = 0
    additions: int = 0
    comparisons: int = 0

    @property
    def total(self) -> int:
        """All operations, as if they cost the same; an exponential or a logarithm costs more than the others."""
        return int(sum(astuple(self)))


def operations_of_log_mask(slots: int, legal: int) -> Operations:
    """Softmax of `z + log m` over all slots (`log_mask_softmax`): nothing depends on L.

    A logarithms, A additions for `z + log m`; A - 1 comparisons for the maximum; A subtractions of it; A exponentials;
    A - 1 additions for their sum; A divisions.
    """
    return Operations(slots, slots, 0, slots, 3 * slots - 1, slots - 1)


def operations_of_softmax_then_mask(slots: int, legal: int) -> Operations:
    """Softmax over all slots, times the mask, divided by what is left (`softmax_then_mask`).

    A - 1 comparisons, A subtractions, A exponentials, A - 1 additions, A divisions for the softmax; A multiplications,
    A - 1 additions and A divisions for the mask.
    """
    return Operations(slots, 0, slots, 2 * slots, 3 * slots - 2, slots - 1)


def operations_of_gathering(slots: int, legal: int) -> Operations:
    """Softmax of the legal logits alone (`softmax.softmax` after `softmax.gather_legal`): nothing depends on A.

    L - 1 comparisons, L subtractions, L exponentials, L - 1 additions, L divisions.
    """
    return Operations(legal, 0, 0, legal, 2 * legal - 1, legal - 1)


def table() -> str:
    """One row for each way, at A = 1858 and both numbers of legal moves."""
    names = [field.name for field in fields(Operations)]
    lines = ["| way | " + " | ".join(names) + " | total |", "|---" * (len(names) + 2) + "|"]
    ways = {
        "`z + log m`": operations_of_log_mask(SLOTS, LEGAL[0]),
        "softmax, mask, renormalise": operations_of_softmax_then_mask(SLOTS, LEGAL[0]),
        **{f"gather, L = {legal}": operations_of_gathering(SLOTS, legal) for legal in LEGAL},
    }
    for way, found in ways.items():
        numbers = [getattr(found, name) for name in names] + [found.total]
        lines.append(f"| {way} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    put("operations", table())
