"""Moves as codes and as text. python-chess alone decides which moves are legal.

A move's *code* is `promotion << 12 | source << 6 | target`, with the squares of the board, not of the side to move.
The target of castling is the king's final square; in Chess960 it is the rook's square, as in python-chess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache

import chess
import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class LegalMoves:
    """The legal moves of B positions in CSR form.

    codes : intp `[N]`, position by position
    indptr : intp `[B + 1]`, the start of each position's codes, then N
    in_check : bool `[B]`, whether the side to move is in check
    """

    codes: Index
    indptr: Index
    in_check: NDArray[np.bool_]


def legal_moves(boards: Iterable[chess.Board]) -> LegalMoves:
    """Returns the legal moves of every board."""
    codes: list[int] = []
    ends = [0]
    in_check = []
    for board in boards:
        codes += [
            (move.promotion or 0) << 12 | move.from_square << 6 | move.to_square
            for move in board.generate_legal_moves()
        ]
        ends.append(len(codes))
        in_check.append(board.is_check())
    return LegalMoves(
        np.array(codes, dtype=np.intp),
        np.array(ends, dtype=np.intp),
        np.array(in_check, dtype=np.bool_),
    )


def has_legal_move(board: chess.Board) -> bool:
    """Returns whether there is a legal move. Stops at the first."""
    return any(board.generate_legal_moves())


def code_of(move: chess.Move) -> int:
    """Returns the code of a move."""
    return (move.promotion or 0) << 12 | move.from_square << 6 | move.to_square


def moves_of(codes: Iterable[int] | Index) -> tuple[chess.Move, ...]:
    """Returns the moves of codes `[L]`."""
    moves = _moves()
    return tuple([moves[code] for code in codes])


def uci_of(codes: Iterable[int] | Index) -> list[str]:
    """Returns the moves of codes `[L]` in UCI."""
    names = _uci()
    return [names[code] for code in codes]


def from_mover(codes: Index, black: NDArray[np.bool_]) -> Index:
    """Converts codes `[N]` between the view of the side to move and the board's squares, in either direction.

    black : bool `[N]`, whether Black is to move: then the ranks are flipped
    """
    return codes ^ np.where(black, 56 << 6 | 56, 0)


@cache
def _uci() -> list[str]:
    return [move.uci() for move in _moves()]


@cache
def _moves() -> list[chess.Move]:
    """Returns every move by its code. Moves are shared, because they never change."""
    return [
        chess.Move(code >> 6 & 63, code & 63, code >> 12 or None)
        for code in range((chess.QUEEN + 1) << 12)
    ]


class Notation(Enum):
    """How moves are written."""

    UCI = "uci"
    SAN = "san"
    MIXED = "mixed"


#: UCI in capitals, as some programs write it. In SAN a target's file is never a capital: `B1c3` is a bishop's move.
_CAPITALS = re.compile(r"[A-H][1-8][A-H][1-8][NBRQ]?", re.ASCII)


#: Signs of typesetting in moves and results, and what python-chess reads in their place.
SIGNS = {0xD7: "x", 0xBD: "1/2", 0x2212: "-", **dict.fromkeys(range(0x2010, 0x2014), "-")}

#: The mark of an en-passant capture behind its move, which says nothing that the move does not.
_EN_PASSANT = re.compile(r"(?<=\d)\s?e\.?p\.?(?=[+#]?$)")

#: The spellings of a null move: python-chess accepts it, but no side may pass.
NULL_MOVES = frozenset(("0000", "--", "Z0", "@@@@"))


def read_move(board: chess.Board, text: str) -> tuple[chess.Move, Notation]:
    """Returns the legal move that a text names, and whether the text is UCI or SAN: over HTTP, in
    UCI and in a PGN.

    `e2e4` is valid in both and names the same move. Raises ValueError, which names the fault.
    """
    if text in NULL_MOVES:
        raise ValueError("is a pass, which is not legal")
    written = _EN_PASSANT.sub("", text.translate(SIGNS).rstrip("!?"))
    notation = Notation.UCI
    try:
        try:
            move = board.parse_uci(written.lower() if _CAPITALS.fullmatch(written) else written)
        except chess.InvalidMoveError:
            notation = Notation.SAN
            move = board.parse_san(written)
        if not move:  # a null move with a mark
            raise chess.IllegalMoveError
    except chess.InvalidMoveError:
        raise ValueError("is not a move in UCI or SAN") from None
    except chess.AmbiguousMoveError:
        raise ValueError("is ambiguous") from None
    except ValueError:
        raise ValueError("is not legal") from None
    return move, notation
