"""The legal moves of many positions and their slots in a vocabulary, at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from movemask.board.legality import legal_moves
from movemask.board.move_codes import codes_of
from movemask.board.position import Position, boards_of
from movemask.errors import MovemaskError
from movemask.vocabulary.vocabulary import Castling, Flip, Vocabulary


class LegalSlots(NamedTuple):
    """One position's legal moves as `codes` `[L]` (`move_codes`), and their `slots` `[L]`, rising."""

    codes: NDArray[np.intp]
    slots: NDArray[np.intp]
    in_check: bool


#: Where a sorted move has its slot, plus one, and its row; below them 15 bits of code.
_SLOT, _ROW = 15, 29


def _both(turned: int) -> int:
    """What turns source and target of a code."""
    return turned << 6 | turned


#: Fewer positions are read one by one by python-chess: numpy's calls cost more than they save.
_WORTH_IT = 6


def legal_slots(positions: Sequence[Position], vocabulary: Vocabulary) -> list[LegalSlots | MovemaskError]:
    """The legal moves and slots of each position, or the error that `Vocabulary.legal_slots` raises for it."""
    if len(positions) < _WORTH_IT:
        return [_alone(position, vocabulary) for position in positions]
    boards, rows = boards_of(positions), len(positions)
    legal = legal_moves(boards)
    row, code = legal.row, legal.code
    black, written = boards.black[row], code
    castles = np.flatnonzero(legal.rook >= 0)
    onto_rook = code[castles] & ~63 | legal.rook[castles]
    if vocabulary.castling is Castling.KING_TAKES_ROOK and len(castles):
        written = code.copy()
        written[castles] = onto_rook
    if vocabulary.bare_promotion is not None:
        written = np.where(written >> 12 == vocabulary.bare_promotion, written & 0xFFF, written)
    if vocabulary.flip is not Flip.RANKS:
        written = written ^ black * _both(vocabulary.flip.value ^ 56)
    slot = vocabulary.lookup()[written]
    # python-chess writes castling as e1g1, in Chess960 as e1h1.
    code[castles] = np.where(boards.chess960[row[castles]], onto_rook, code[castles])
    # One number a move, by row and slot first, so that a plain sort puts them in order and carries the code along. They
    # are nearly so already: the stable kind finds the runs.
    packed = np.sort(row << _ROW | (slot + 1) << _SLOT | code ^ black * _both(56), kind="stable")
    codes, placed = packed & 0x7FFF, packed >> _SLOT
    slot = (placed & 0x3FFF) - 1
    bounds = np.searchsorted(packed, np.arange(rows + 1) << _ROW).tolist()
    unusual = np.zeros(rows, dtype=np.bool_)
    unusual[packed[slot < 0] >> _ROW] = True
    unusual[packed[1:][placed[1:] == placed[:-1]] >> _ROW] = True
    if not vocabulary.chess960:
        unusual |= boards.chess960
    found: list[LegalSlots | MovemaskError] = [
        LegalSlots(codes[start:end], slot[start:end], checked)
        for start, end, checked in zip(bounds[:-1], bounds[1:], legal.in_check.tolist(), strict=True)
    ]
    for place in np.flatnonzero(unusual).tolist():  # it raises, and says what is wrong
        found[place] = _alone(positions[place], vocabulary)
    return found


def _alone(position: Position, vocabulary: Vocabulary) -> LegalSlots | MovemaskError:
    try:
        moves, slots = vocabulary.legal_slots(position)
    except MovemaskError as error:
        return error
    return LegalSlots(codes_of(moves), slots, position.board.is_check())
