"""Counts of operations of three ways to mask, as a table in docs/numerics.md: `python -m benchmarks.operations`."""

from __future__ import annotations

from dataclasses import fields

from benchmarks.sparse_rows import put
from movemask.numeric.masking import (
    Operations,
    operations_of_gathering,
    operations_of_log_mask,
    operations_of_softmax_then_mask,
)

#: lc0's vocabulary; about the mean number of legal moves of a game, and the most that any position has.
SLOTS, LEGAL = 1858, (31, 218)


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
