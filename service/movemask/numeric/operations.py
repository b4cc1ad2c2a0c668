"""Counts of arithmetic operations on one row, for each of three ways to mask a softmax.

`A` slots of the vocabulary, `L` legal ones, `1 ≤ L ≤ A`. A subtraction counts as an addition; reading, writing and
selecting by the mask are not counted. Each formula is counted as written, with the row maximum subtracted first.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass


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


def log_mask(slots: int, legal: int) -> Operations:
    """Softmax of `z + log m` over all slots (`masking.log_mask_softmax`): nothing depends on L.

    A logarithms, A additions for `z + log m`; A - 1 comparisons for the maximum; A subtractions of it; A exponentials;
    A - 1 additions for their sum; A divisions.
    """
    _checked(slots, legal)
    return Operations(slots, slots, 0, slots, 3 * slots - 1, slots - 1)


def softmax_then_mask(slots: int, legal: int) -> Operations:
    """Softmax over all slots, times the mask, divided by what is left (`masking.softmax_then_mask`).

    A - 1 comparisons, A subtractions, A exponentials, A - 1 additions, A divisions for the softmax; A multiplications,
    A - 1 additions and A divisions for the mask.
    """
    _checked(slots, legal)
    return Operations(slots, 0, slots, 2 * slots, 3 * slots - 2, slots - 1)


def gathered(slots: int, legal: int) -> Operations:
    """Softmax of the legal logits alone (`softmax.softmax` after `gather.gather_legal`): nothing depends on A.

    L - 1 comparisons, L subtractions, L exponentials, L - 1 additions, L divisions.
    """
    _checked(slots, legal)
    return Operations(legal, 0, 0, legal, 2 * legal - 1, legal - 1)


def _checked(slots: int, legal: int) -> None:
    if not 1 <= legal <= slots:
        raise ValueError(f"legal: must be between 1 and the {slots} slots, got {legal}")
