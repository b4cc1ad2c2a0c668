"""The legal moves of many positions and their slots in a vocabulary, at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import chess
import numpy as np
from numpy.typing import NDArray

from service.encoding.boards import Boards
from service.encoding.legality import legal_moves
from service.encoding.position import Position
from service.encoding.vocabulary import Castling, Vocabulary
from service.errors import MovemaskError

#: The legal moves of a position in the order of their slots `[L]`, and the slots.
Slots = tuple[tuple[chess.Move, ...], NDArray[np.intp]]

#: Fewer positions are read one by one by python-chess: numpy's calls cost more than they save.
_WORTH_IT = 8


def legal_slots(positions: Sequence[Position], vocabulary: Vocabulary) -> list[Slots | MovemaskError]:
    """What `Vocabulary.legal_slots` gives for each position, or the error that it raises."""
    if len(positions) < _WORTH_IT:
        return [_alone(position, vocabulary) for position in positions]
    boards = Boards.of([position.board for position in positions])
    legal = legal_moves(boards)
    black, rows = boards.black[legal.row], len(positions)
    takes_rook = vocabulary.castling is Castling.KING_TAKES_ROOK
    target = np.where(legal.rook >= 0, legal.rook, legal.target) if takes_rook else legal.target
    turned = np.where(black, 56 ^ vocabulary.flip.value, 0)
    promotion = np.where(legal.promotion == (vocabulary.bare_promotion or -1), 0, legal.promotion)
    slot = vocabulary.lookup()[promotion << 12 | (legal.source ^ turned) << 6 | (target ^ turned)]
    order = np.argsort(legal.row * len(vocabulary) + slot, kind="stable")
    row, slot = legal.row[order], slot[order]
    # python-chess writes castling as e1g1, in Chess960 as e1h1.
    told = np.where((legal.rook >= 0) & boards.chess960[legal.row], legal.rook, legal.target)
    turned = np.where(black, 56, 0)
    move = (legal.promotion << 12 | (legal.source ^ turned) << 6 | (told ^ turned))[order]
    bounds = np.searchsorted(row, np.arange(rows + 1))
    unusual = np.zeros(rows, dtype=np.bool_)
    unusual[row[slot < 0]] = True
    unusual[row[1:][(slot[1:] == slot[:-1]) & (row[1:] == row[:-1])]] = True
    if not vocabulary.chess960:
        unusual |= boards.chess960
    known, codes = _moves(), move.tolist()
    found: list[Slots | MovemaskError] = []
    for position, odd, start, end in zip(
        positions, unusual.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
    ):
        if odd:  # it raises, and says what is wrong
            found.append(_alone(position, vocabulary))
        else:
            found.append((tuple([known[code] for code in codes[start:end]]), slot[start:end]))
    return found


def _alone(position: Position, vocabulary: Vocabulary) -> Slots | MovemaskError:
    try:
        return vocabulary.legal_slots(position)
    except MovemaskError as error:
        return error


def uci(move: chess.Move) -> str:
    """As `move.uci()`, looked up."""
    return _names()[(move.promotion or 0) << 12 | move.from_square << 6 | move.to_square]


@cache
def _names() -> list[str]:
    return [move.uci() if move.from_square != move.to_square else "" for move in _moves()]


@cache
def _moves() -> list[chess.Move]:
    """Every move by `promotion << 12 | source << 6 | target`; made once, for a move is never changed."""
    return [chess.Move(code >> 6 & 63, code & 63, code >> 12 or None) for code in range((chess.QUEEN + 1) << 12)]
