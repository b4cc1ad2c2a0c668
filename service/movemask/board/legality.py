"""The legal moves of a whole batch at once, by numpy: pins, checks, en passant and castling, Chess960 included.

The tests compare every move with python-chess, on the perft suites and on random positions.
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
    """M legal moves of B positions, in no order, each packed in one number; squares as the side to move sees them.

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
        """Promotion, source and target (`move_codes`); in castling the target is where the king ends."""
        return self.packed & 0x7FFF

    @property
    def rook(self) -> Squares:
        """In castling the rook's square, else -1."""
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
    squares = np.zeros(len(boards), dtype=np.uint64)
    candidates = np.flatnonzero(boards.en_passant)
    if len(candidates):
        subset = boards.rows(candidates)
        row = _en_passant(subset, _State(subset)) >> _ROW_AT
        squares[candidates[row]] = subset.en_passant[row]
    return squares


class _State:
    """What the moves of a batch depend on: checks, pins and attacked squares."""

    def __init__(self, boards: Boards) -> None:
        kinds = boards.kinds
        self.occupied = boards.ours | boards.theirs
        self.kind = _bits(kinds[_KNIGHT])  # uint8 [B, 64]; 0 for a pawn and for an empty square
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
        pinned = (blockers != 0) & (blockers & (blockers - ONE) == 0) & (blockers & boards.ours[rows] != 0)
        self.pin[rows[pinned], lowest(blockers[pinned])] = between[pinned] | BIT[squares[pinned]]
        self.in_check = checkers != 0
        single_check = (checkers != 0) & (checkers & (checkers - ONE) == 0)
        evasion = np.where(single_check, BETWEEN[self.king, lowest(checkers) & 63] | checkers, np.uint64(0))
        self.allowed = np.where(checkers == 0, ALL, evasion)  # where a piece other than the king may go
        self.attacked = self._attacked(boards)

    def _attacked(self, boards: Boards) -> Bits:
        """What they attack with our king off the board, `[B]`: the squares that it cannot go to."""
        rows, squares = _set_bits(boards.theirs)
        open_board = (self.occupied ^ BIT[self.king])[rows]
        attacked = _reach(self.kind[rows, squares], squares, open_board)
        pawns = self.kind[rows, squares] == _PAWN
        attacked[pawns] = PAWN_DOWN[squares[pawns]]
        starts = np.searchsorted(rows, np.arange(len(boards)))  # each has a king, so no row is empty
        return np.bitwise_or.reduceat(attacked, starts) if len(rows) else np.zeros(0, dtype=np.uint64)

    def is_attacked(
        self, rows: Squares, squares: Squares, occupied: Bits, theirs: Bits, boards: Boards
    ) -> NDArray[np.bool_]:
        """Whether they attack a square of each row, given its occupied squares and their remaining pieces."""
        kinds = boards.kinds[:, rows]
        by = attacks.rook(squares, occupied) & self.rooks[rows] | attacks.bishop(squares, occupied) & self.bishops[rows]
        by |= KNIGHT[squares] & kinds[_KNIGHT] | PAWN_UP[squares] & kinds[_PAWN] | KING[squares] & kinds[_KING]
        return np.asarray((by & theirs) != 0)


def _reach(kind: NDArray[np.uint8], squares: Squares, occupied: Bits) -> Bits:
    """What each piece attacks `[N]`; 0 for pawns."""
    attacked = np.zeros(len(squares), dtype=np.uint64)
    knight, king = kind == _KNIGHT, kind == _KING
    attacked[knight] = KNIGHT[squares[knight]]
    attacked[king] = KING[squares[king]]
    straight = (kind == _ROOK) | (kind == _QUEEN)
    attacked[straight] = attacks.rook(squares[straight], occupied[straight])
    diagonal = (kind == _BISHOP) | (kind == _QUEEN)
    attacked[diagonal] |= attacks.bishop(squares[diagonal], occupied[diagonal])
    return attacked


def _targets(boards: Boards, state: _State, rows: Squares, squares: Squares) -> Bits:
    """Where each of our pieces may go `[N]`, except by en passant and castling."""
    kind = state.kind[rows, squares]
    occupied = state.occupied[rows]
    targets = _reach(kind, squares, occupied) & ~boards.ours[rows]
    pawns = kind == _PAWN
    empty = ~occupied[pawns]
    step = BIT[squares[pawns]] << np.uint64(8) & empty
    double = (step & _THIRD) << np.uint64(8) & empty
    targets[pawns] = step | double | PAWN_UP[squares[pawns]] & boards.theirs[rows[pawns]]
    allowed = state.allowed[rows] & state.pin[rows, squares]
    king = kind == _KING
    allowed[king] = ~state.attacked[rows[king]]
    return targets & allowed


def _en_passant(boards: Boards, state: _State) -> Squares:
    """Legal en-passant captures. Pins do not cover them, since two pawns leave a rank at once: each is tried."""
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
    """Castling towards the a-file (0) or the h-file (1), by the rules of Chess960, which include standard chess."""
    king_bit = BIT[state.king]
    beyond = king_bit - ONE if side == 0 else ~(king_bit | king_bit - ONE)
    rooks = boards.castling & boards.ours & beyond
    rows = np.flatnonzero(rooks)
    king = state.king[rows]
    # In a valid position python-chess's castling rights hold one rook a side.
    rook = lowest(rooks[rows])
    king_to, rook_to = (2, 3) if side == 0 else (6, 5)
    end, rook_end = np.full(len(rows), king_to), np.full(len(rows), rook_to)
    king_path = BETWEEN[king, end] | BIT[end]
    path = king_path | BETWEEN[rook, rook_end] | BIT[rook_end]
    others = state.occupied[rows] ^ BIT[king] ^ BIT[rook]
    crossed = BETWEEN[king, end] | BIT[king]
    free = (others & path == 0) & (state.attacked[rows] & crossed == 0)
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
