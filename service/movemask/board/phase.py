"""The phase of a game, from a position alone: its move number and the pieces left."""

from __future__ import annotations

from enum import Enum

import chess
import numpy as np

from movemask.board.boards import Boards

OPENING_PLIES = 20
ENDGAME_PIECES = 6  # queens, rooks, bishops and knights of both sides


class Phase(Enum):
    """The phase of a game."""

    OPENING = "opening"  # the first ten moves of both sides
    MIDDLEGAME = "middlegame"
    ENDGAME = "endgame"  # at most six pieces besides kings and pawns


def phase_of(board: chess.Board) -> Phase:
    """The phase of a position; a FEN without move numbers counts as move one."""
    return _phase((board.queens | board.rooks | board.bishops | board.knights).bit_count(), board.ply())


def phases_of(boards: Boards) -> list[Phase]:
    """The phase of each position."""
    knights, bishops, rooks, queens = boards.kinds[1:5]
    pieces = np.bitwise_count(knights | bishops | rooks | queens)
    return [_phase(count, ply) for count, ply in zip(pieces.tolist(), boards.ply.tolist(), strict=True)]


def _phase(pieces: int, ply: int) -> Phase:
    if pieces <= ENDGAME_PIECES:
        return Phase.ENDGAME
    return Phase.OPENING if ply < OPENING_PLIES else Phase.MIDDLEGAME
