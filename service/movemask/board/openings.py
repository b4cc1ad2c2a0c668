"""Names of openings by position, from lichess's list (github.com/lichess-org/chess-openings, public domain, CC0 1.0).

`scripts/openings` writes the list into `openings.tsv.gz`: EPD, ECO code and name, one position per line.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Annotated

import chess
from pydantic import Field

if TYPE_CHECKING:  # the HTTP client reads openings in responses and should not load numpy
    from movemask.board.position import PlayedGame


@dataclass(frozen=True, slots=True)
class Opening:
    """An opening from lichess's list."""

    eco: Annotated[
        str, Field(description="Code in the Encyclopaedia of Chess Openings, such as `C50`.")
    ]
    name: Annotated[str, Field(description="Name in English.")]


def opening_of(game: PlayedGame) -> Opening | None:
    """Returns the opening of a game: the name of its last named position.

    The order of the moves does not matter.

    None if no position has a name, in Chess960, and for a game that does not begin at the start
    position.
    """
    if game.board(0).chess960 or game.board(0).epd() != chess.Board().epd():
        return None
    return next(
        filter(None, (_openings().get(game.board(ply).epd()) for ply in range(game.plies, 0, -1))),
        None,
    )


@cache
def _openings() -> dict[str, Opening]:
    packed = resources.files("movemask.board").joinpath("openings.tsv.gz").read_bytes()
    rows = (
        row.split("\t")
        for row in gzip.decompress(packed).decode().splitlines()
        if not row.startswith("#")
    )
    return {epd: Opening(eco, name) for epd, eco, name in rows}
