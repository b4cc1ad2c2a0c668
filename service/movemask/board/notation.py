"""Reads a move written in UCI (`g1f3`) or in SAN (`Nf3`)."""

from __future__ import annotations

from enum import Enum

import chess


class Notation(Enum):
    """How moves are written."""

    UCI = "uci"
    SAN = "san"
    MIXED = "mixed"

    def with_(self, other: Notation) -> Notation:
        """The notation of moves of both kinds together."""
        return self if self is other else Notation.MIXED


def read_move(board: chess.Board, text: str) -> tuple[chess.Move, Notation]:
    """The legal move that the text names, and how it is written; ValueError that says what is wrong with it.

    Nothing can be read both ways: `e2e4` is SAN too, but names the same move.
    """
    notation = Notation.UCI
    try:
        try:
            move = board.parse_uci(text)
        except chess.InvalidMoveError:
            notation = Notation.SAN
            move = board.parse_san(text)
        if not move:  # python-chess lets null moves, such as 0000 and --, pass as legal
            raise chess.IllegalMoveError
    except chess.InvalidMoveError:
        raise ValueError("is not a move in UCI or SAN") from None
    except chess.AmbiguousMoveError:
        raise ValueError("is ambiguous") from None
    except ValueError:
        raise ValueError("is not legal") from None
    return move, notation
