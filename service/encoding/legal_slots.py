"""The legal moves of many positions and their slots in a vocabulary, at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.encoding.legality import legal_moves
from service.encoding.move_codes import codes_of
from service.encoding.position import Position, boards_of
from service.encoding.vocabulary import Castling, Vocabulary
from service.errors import MovemaskError


@dataclass(frozen=True, slots=True)
class LegalSlots:
    """One position's legal moves as `codes` `[L]` (`move_codes`), and their `slots` `[L]`, rising."""

    codes: NDArray[np.intp]
    slots: NDArray[np.intp]
    in_check: bool


#: Fewer positions are read one by one by python-chess: numpy's calls cost more than they save.
_WORTH_IT = 6


def legal_slots(positions: Sequence[Position], vocabulary: Vocabulary) -> list[LegalSlots | MovemaskError]:
    """The legal moves and slots of each position, or the error that `Vocabulary.legal_slots` raises for it."""
    if len(positions) < _WORTH_IT:
        return [_alone(position, vocabulary) for position in positions]
    boards, rows = boards_of(positions), len(positions)
    legal = legal_moves(boards)
    black = boards.black[legal.row]
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
    codes = (legal.promotion << 12 | (legal.source ^ turned) << 6 | (told ^ turned))[order]
    bounds = np.searchsorted(row, np.arange(rows + 1)).tolist()
    unusual = np.zeros(rows, dtype=np.bool_)
    unusual[row[slot < 0]] = True
    unusual[row[1:][(slot[1:] == slot[:-1]) & (row[1:] == row[:-1])]] = True
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
