"""`fen-77`: the characters of a FEN as numbers, as searchless_chess reads them (`src/tokenizer.py`).

Side to move, the 64 squares from a8 to h1 with `.` for an empty one, four places for castling rights, two for the
en-passant square (only where the capture is legal, as python-chess writes a FEN), three each for the half-move clock
and the move number, padded with `.`. The board is not mirrored for Black.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from movemask.board.position import Position

LENGTH = 77
_CHARACTERS = "0123456789abcdefghpnrkqPBNRQKw."
_LARGEST = 999  # three digits: a FEN may hold any number


def encode(position: Position) -> NDArray[np.int32]:
    """int32 `[77]` of one position."""
    board = position.board
    pieces, side, castling, en_passant, _, _ = board.fen().split()
    squares = "".join("." * int(c) if c.isdigit() else c for c in pieces if c != "/")
    counters = (f"{min(number, _LARGEST):.<3}" for number in (board.halfmove_clock, board.fullmove_number))
    text = side + squares + castling.replace("-", "").ljust(4, ".") + en_passant.replace("-", "..") + "".join(counters)
    return np.array([_CHARACTERS.index(c) for c in text], dtype=np.int32)
