"""The legal moves of a whole batch at once, by numpy: pins, checks, en passant, castling, Chess960's too.

python-chess is the judge: the tests hold every move to its own, on the perft suites and on random positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board import attacks
from movemask.board.attacks import ALL, BETWEEN, BIT, KING, KNIGHT, ONE, PAWN_DOWN, PAWN_UP, Bits, Squares, lowest
from movemask.board.boards import Boards

_PAWN, _KNIGHT, _BISHOP, _ROOK, _QUEEN, _KING = range(6)
_PROMOTIONS = (chess.QUEEN, chess.ROOK, chess.BISHOP, chess.KNIGHT)
_THIRD, _FIFTH, _EIGHTH = (np.uint64(0xFF << 8 * rank) for rank in (2, 4, 7))


@dataclass(frozen=True, slots=True)
class LegalMoves:
    """M legal moves of B positions, in no order, each one number; squares seen by the side to move.

    packed : intp `[M]`, `row << 22 | (rook + 1) << 15 | promotion << 12 | source << 6 | target`, as below
    in_check : bool `[B]`, where the side to move is in check
    """

    packed: Squares
    in_check: NDArray[np.bool_]

    @property
    def row(self) -> Squares:
        return self.packed >> _ROW_AT

    @property
    def code(self) -> Squares:
        """Promotion, source and target together (`move_codes`)."""
        return self.packed & 0x7FFF

    @property
    def source(self) -> Squares:
        return self.packed >> 6 & 63

    @property
    def target(self) -> Squares:
        """Where the piece ends, in castling the king."""
        return self.packed & 63

    @property
    def promotion(self) -> Squares:
        """0 or python-chess's piece."""
        return self.packed >> 12 & 7

    @property
    def rook(self) -> Squares:
        """The square of a castling move's rook, else -1."""
        return (self.packed >> _ROOK_AT & 0x7F) - 1


_ROW_AT, _ROOK_AT = 22, 15


def legal_moves(boards: Boards) -> LegalMoves:
    """Every legal move of every position."""
    state = _State(boards)
    rows, sources = _set_bits(boards.ours)
    targets = _targets(boards, state, rows, sources)
    entry, target = _set_bits(targets)
    plain = (rows << _ROW_AT | sources << 6)[entry] | target
    parts = [plain]
    last = np.flatnonzero(target >= 56)
    promotes = last[boards.kinds[_PAWN][rows[entry[last]]] & BIT[sources[entry[last]]] != 0]
    if len(promotes):
        parts = [np.delete(plain, promotes), *(plain[promotes] | piece << 12 for piece in _PROMOTIONS)]
    if boards.en_passant.any():
        parts.append(_en_passant(boards, state))
    if boards.castling.any():
        parts += [_castling(boards, state, side) for side in (0, 1)]
    return LegalMoves(np.concatenate(parts), state.in_check)


def legal_en_passant(boards: Boards) -> Bits:
    """The en-passant squares `[B]` where a pawn may legally take, else 0."""
    found = np.zeros(len(boards), dtype=np.uint64)
    some = np.flatnonzero(boards.en_passant)
    if len(some):
        own = boards.rows(some)
        row = _en_passant(own, _State(own)) >> _ROW_AT
        found[some[row]] = own.en_passant[row]
    return found


class _State:
    """What the moves of a batch depend on: who checks, who is pinned, what is attacked."""

    def __init__(self, boards: Boards) -> None:
        kinds = boards.kinds
        self.occupied = boards.ours | boards.theirs
        self.kind = _bits(kinds[_KNIGHT])  # uint8 [B, 64]; 0 where a pawn stands or nothing
        for kind in range(_BISHOP, _KING + 1):
            self.kind += _bits(kinds[kind]) * np.uint8(kind)
        self.king = lowest(kinds[_KING] & boards.ours)
        self.rooks = (kinds[_ROOK] | kinds[_QUEEN]) & boards.theirs
        self.bishops = (kinds[_BISHOP] | kinds[_QUEEN]) & boards.theirs
        count = len(boards)
        self.pin = np.full((count, 64), ALL)
        checkers = (KNIGHT[self.king] & kinds[_KNIGHT] | PAWN_UP[self.king] & kinds[_PAWN]) & boards.theirs
        snipers = attacks.ROOK_LINES[self.king] & self.rooks | attacks.BISHOP_LINES[self.king] & self.bishops
        rows, squares = _set_bits(snipers)
        between = BETWEEN[self.king[rows], squares]
        blockers = between & self.occupied[rows]
        np.bitwise_or.at(checkers, rows[blockers == 0], BIT[squares[blockers == 0]])
        single = (blockers != 0) & (blockers & (blockers - ONE) == 0) & (blockers & boards.ours[rows] != 0)
        self.pin[rows[single], lowest(blockers[single])] = between[single] | BIT[squares[single]]
        self.in_check = checkers != 0
        one = (checkers != 0) & (checkers & (checkers - ONE) == 0)
        evasion = np.where(one, BETWEEN[self.king, lowest(checkers) & 63] | checkers, np.uint64(0))
        self.answer = np.where(checkers == 0, ALL, evasion)  # where a piece other than the king may go
        self.attacked = self._attacked(boards)

    def _attacked(self, boards: Boards) -> Bits:
        """What they attack, our king taken off the board: squares `[B]` that it cannot go to."""
        rows, squares = _set_bits(boards.theirs)
        open_board = (self.occupied ^ BIT[self.king])[rows]
        found = _reach(self.kind[rows, squares], squares, open_board)
        pawns = self.kind[rows, squares] == _PAWN
        found[pawns] = PAWN_DOWN[squares[pawns]]
        starts = np.searchsorted(rows, np.arange(len(boards)))  # each has a king, so no row is empty
        return np.bitwise_or.reduceat(found, starts) if len(rows) else np.zeros(0, dtype=np.uint64)

    def is_attacked(
        self, rows: Squares, squares: Squares, occupied: Bits, theirs: Bits, boards: Boards
    ) -> NDArray[np.bool_]:
        """Whether they attack a square of each row, for other occupied squares and other pieces of theirs."""
        kinds = boards.kinds[:, rows]
        by = attacks.rook(squares, occupied) & self.rooks[rows] | attacks.bishop(squares, occupied) & self.bishops[rows]
        by |= KNIGHT[squares] & kinds[_KNIGHT] | PAWN_UP[squares] & kinds[_PAWN] | KING[squares] & kinds[_KING]
        return np.asarray((by & theirs) != 0)


def _reach(kind: NDArray[np.uint8], squares: Squares, occupied: Bits) -> Bits:
    """What each piece attacks `[N]`; 0 for pawns."""
    found = np.zeros(len(squares), dtype=np.uint64)
    leaps = kind == _KNIGHT
    found[leaps] = KNIGHT[squares[leaps]]
    king = kind == _KING
    found[king] = KING[squares[king]]
    straight = (kind == _ROOK) | (kind == _QUEEN)
    found[straight] = attacks.rook(squares[straight], occupied[straight])
    slanted = (kind == _BISHOP) | (kind == _QUEEN)
    found[slanted] |= attacks.bishop(squares[slanted], occupied[slanted])
    return found


def _targets(boards: Boards, state: _State, rows: Squares, squares: Squares) -> Bits:
    """Where each of our pieces may go `[N]`, en passant and castling aside."""
    kind = state.kind[rows, squares]
    occupied = state.occupied[rows]
    found = _reach(kind, squares, occupied) & ~boards.ours[rows]
    pawns = kind == _PAWN
    here, taken = BIT[squares[pawns]], occupied[pawns]
    step = here << np.uint64(8) & ~taken
    double = (step & _THIRD) << np.uint64(8) & ~taken
    found[pawns] = step | double | PAWN_UP[squares[pawns]] & boards.theirs[rows[pawns]]
    limits = state.answer[rows] & state.pin[rows, squares]
    king = kind == _KING
    limits[king] = ~state.attacked[rows[king]]
    return found & limits


def _en_passant(boards: Boards, state: _State) -> Squares:
    """Captures en passant after which the king stands safe: tried one by one, for two pawns leave a rank at once."""
    target_of = lowest(boards.en_passant)
    pawns = boards.kinds[_PAWN] & boards.ours & _FIFTH & PAWN_DOWN[target_of]
    pawns = np.where(boards.en_passant & state.occupied != 0, np.uint64(0), pawns)
    rows, sources = _set_bits(pawns)
    target = target_of[rows]
    captured = BIT[target - 8]
    occupied = state.occupied[rows] ^ BIT[sources] ^ captured ^ BIT[target]
    safe = ~state.is_attacked(rows, state.king[rows], occupied, boards.theirs[rows] & ~captured, boards)
    return np.asarray((rows << _ROW_AT | sources << 6 | target)[safe])


def _castling(boards: Boards, state: _State, side: int) -> Squares:
    """Castling towards the a-file (0) or the h-file (1), by Chess960's rules, of which the usual are a case."""
    king_bit = BIT[state.king]
    beyond = king_bit - ONE if side == 0 else ~(king_bit | king_bit - ONE)
    there = boards.castling & boards.ours & beyond
    rows = np.flatnonzero(there)
    king = state.king[rows]
    # With two rooks on one side that could castle, python-chess's rights hold one of them.
    rook = lowest(there[rows])
    king_to, rook_to = (2, 3) if side == 0 else (6, 5)
    end, rook_end = np.full(len(rows), king_to), np.full(len(rows), rook_to)
    king_path = BETWEEN[king, end] | BIT[end]
    way = king_path | BETWEEN[rook, rook_end] | BIT[rook_end]
    others = state.occupied[rows] ^ BIT[king] ^ BIT[rook]
    crossed = BETWEEN[king, end] | BIT[king]
    free = (others & way == 0) & (state.attacked[rows] & crossed == 0)
    free &= ~state.is_attacked(rows, end, others ^ BIT[rook_end], boards.theirs[rows], boards)
    return np.asarray((rows << _ROW_AT | (rook + 1) << _ROOK_AT | king << 6 | end)[free])


def _set_bits(boards: Bits) -> tuple[Squares, Squares]:
    """uint64 `[B]` → row and square of each bit that is set, both `[K]`, in that order."""
    places = np.flatnonzero(_bits(boards).view(np.bool_))  # of flat bools: several times faster than of two dimensions
    return places >> 6, places & 63


def _bits(boards: Bits) -> NDArray[np.uint8]:
    """uint64 `[B]` → 0/1 uint8 `[B, 64]`."""
    bytes_of = np.ascontiguousarray(boards, dtype="<u8").view(np.uint8).reshape(len(boards), 8)
    return np.unpackbits(bytes_of, axis=1, bitorder="little")
