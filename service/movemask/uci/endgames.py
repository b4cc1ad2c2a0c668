"""Syzygy endgame tables: the moves that keep the result of a position with few pieces. python-chess reads the files.

Source: Ronald de Man, github.com/syzygy1/tb. The choice of moves follows its rules for the 50-move rule.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import chess
import chess.syzygy

#: Half-moves without a capture or pawn move after which a draw can be claimed.
_FIFTY_MOVES = 100

#: Results for the side to move: 2 win, 1 and -1 a win and a loss that the 50-move rule makes a draw, 0 draw, -2 loss.
WIN, DRAW, LOSS = 2, 0, -2


@dataclass(frozen=True, slots=True)
class TableMoves:
    """What the tables say of a position's moves.

    results : of each legal move, from LOSS to WIN, for its player
    best : moves that keep the best result; for a win, only the moves with the shortest way
    """

    results: dict[chess.Move, int]
    best: tuple[chess.Move, ...]


def folders_of(path: str) -> list[Path]:
    """Returns the folders in a `SyzygyPath`, which are separated as in the system's PATH."""
    return [Path(folder) for folder in path.split(os.pathsep) if folder]


def table_moves_of(
    path: str, board: chess.Board, among: Sequence[chess.Move] | None = None
) -> TableMoves | None:
    """Returns what the tables of a `SyzygyPath` say of a position's moves.

    None if the tables lack the position or a move.

    among : the moves to choose from; all legal moves if None
    """
    tables, pieces = _opened(path)
    if board.castling_rights or chess.popcount(board.occupied) > pieces:
        return None
    try:
        ranked = {move: _ranked(tables, board, move) for move in board.legal_moves}
    except KeyError:  # a table is missing
        return None
    allowed = [move for move in ranked if among is None or move in among]
    if not allowed:
        return None
    result = max(ranked[move][0] for move in allowed)
    best = [move for move in allowed if ranked[move][0] == result]
    if result == WIN:
        shortest = min(ranked[move][1] for move in best)
        best = [move for move in best if ranked[move][1] == shortest]
    return TableMoves({move: ranked[move][0] for move in ranked}, tuple(best))


def _ranked(
    tables: chess.syzygy.Tablebase, board: chess.Board, move: chess.Move
) -> tuple[int, int]:
    """Returns the result of a move for its player, and the half-moves to the next capture or pawn
    move.
    """
    after = board.copy(stack=False)
    after.push(move)
    if after.is_checkmate():
        return WIN, 0
    if after.is_stalemate() or after.is_insufficient_material():
        return DRAW, 0
    if after.halfmove_clock == 0:
        return -tables.probe_wdl(after), 1
    distance = -tables.probe_dtz(after)  # positive here if the opponent loses
    half_moves = abs(distance) + 1
    if distance and half_moves + board.halfmove_clock > _FIFTY_MOVES:
        return (1 if distance > 0 else -1), half_moves
    return (WIN if distance > 0 else LOSS if distance < 0 else DRAW), half_moves


@cache
def _opened(path: str) -> tuple[chess.syzygy.Tablebase, int]:
    """Returns the tables of a `SyzygyPath`, and the number of pieces of the largest table."""
    tables = chess.syzygy.Tablebase()
    for folder in folders_of(path):
        tables.add_directory(str(folder))
    return tables, max((len(name) - 1 for name in tables.wdl), default=0)
