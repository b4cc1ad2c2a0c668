"""`check_variant`: refuses boards of chess variants."""

from __future__ import annotations

import chess

from movemask.errors import UnsupportedVariant


def check_variant(board: chess.Board, name: str) -> None:
    """Raises UnsupportedVariant for a board of a chess variant, such as antichess or atomic chess; not for Chess960.

    `name` is the name of the argument, for the message.
    """
    if board.uci_variant != chess.Board.uci_variant:
        variant = type(board).__name__.removesuffix("Board") or board.uci_variant
        raise UnsupportedVariant(
            f"{name}: {variant} has other rules; networks here know standard chess and Chess960"
        )
