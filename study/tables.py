"""Tables of figures as Markdown. Their columns are aligned, so that they can be read as plain text too."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column aligned to the left, the others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    text = []
    for cells in (lines[0], rule, *lines[1:]):
        first, *others = zip(cells, widths, strict=True)
        text.append(
            "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]) + " |"
        )
    return "\n".join(text)
