"""The names of openings, by position: lichess's list (github.com/lichess-org/chess-openings, public domain, CC0 1.0).

`scripts/openings` makes `openings.tsv.gz` from it: a line for each named position, with its EPD, ECO code and name.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

import chess

from movemask.board.line import Line


class Opening(NamedTuple):
    """An opening's code in the Encyclopaedia of Chess Openings, such as `C50`, and its name."""

    eco: str
    name: str


def opening_of(line: Line) -> Opening | None:
    """The opening of a game: the last of its positions that has a name, by whatever moves it came about. None without
    one, in Chess960, and from any other position than the start."""
    first = line.board(0)
    if first.chess960 or first.epd() != chess.Board().epd():
        return None
    found = (_openings().get(line.board(ply).epd()) for ply in range(line.plies, -1, -1))
    return next(filter(None, found), None)


@cache
def _openings() -> Mapping[str, Opening]:
    """The openings by EPD, whose en-passant square is one where a capture is legal."""
    text = gzip.decompress(resources.files("movemask.board").joinpath("openings.tsv.gz").read_bytes()).decode()
    rows = (row.split("\t") for row in text.splitlines() if not row.startswith("#"))
    return {epd: Opening(eco, name) for epd, eco, name in rows}
