"""The legal slots of packed positions, by python-chess: for the masked loss and for validation."""

from __future__ import annotations

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.encoding.vocabularies import vocabulary
from training.replay import EN_PASSANT_SQUARE, OUR_RIGHTS
from training.shards import VOCABULARY


def board_of(bitboards: NDArray[np.uint64]) -> chess.Board:
    """The board of one packed position `[15]`, its side to move drawn as White."""
    board = chess.Board.empty()
    packed = [int(bits) for bits in bitboards]
    kinds = [packed[kind] | packed[kind + 6] for kind in range(6)]
    board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings = kinds
    board.occupied_co[chess.WHITE] = sum(packed[:6])
    board.occupied_co[chess.BLACK] = sum(packed[6:12])
    board.occupied = sum(packed[:12])
    board.castling_rights = packed[OUR_RIGHTS] | packed[OUR_RIGHTS + 1]
    if packed[EN_PASSANT_SQUARE]:
        board.ep_square = chess.lsb(packed[EN_PASSANT_SQUARE])
    return board


def legal_mask(bitboards: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """uint64 `[B, 15]` → bool `[B, 1880]`, True where a move is legal."""
    slots = vocabulary(VOCABULARY)
    mask = np.zeros((len(bitboards), len(slots)), dtype=np.bool_)
    for row, packed in zip(mask, bitboards, strict=True):
        board = board_of(packed)
        row[[slots.slot(move, board) for move in board.generate_legal_moves()]] = True
    return mask
