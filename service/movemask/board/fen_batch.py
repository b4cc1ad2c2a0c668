"""Many FENs → `Boards`, without python-chess: those that are plainly written and of surely valid positions.

Everything else is left to python-chess: what is unusual, what is wrong, and why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board import attacks
from movemask.board.attacks import BIT, KING, KNIGHT, PAWN_DOWN, PAWN_UP, Bits, lowest
from movemask.board.boards import FIELDS, Boards, Flags

#: Six fields without anything unusual: castling letters of standard chess, plain counters.
_PLAIN = re.compile(
    r"(?![^ ]*[1-8][1-8])([1-8PNBRQKpnbrqk/]{15,71}) ([wb]) (-|KQ?k?q?|Qk?q?|kq?|q) (-|[a-h][36])"
    r" (0|[1-9][0-9]{0,4}) ([1-9][0-9]{0,4})",
    re.ASCII,
)

_CORNERS = {"K": chess.BB_H1, "Q": chess.BB_A1, "k": chess.BB_H8, "q": chess.BB_A8, "-": 0}
_CASTLING = {
    rights: sum(_CORNERS[letter] for letter in rights)
    for rights in ["-", *("".join("KQkq"[i] for i in range(4) if kept >> i & 1) for kept in range(1, 16))]
}
_EN_PASSANT = {"-": 0, **{chess.square_name(square): chess.BB_SQUARES[square] for square in chess.SQUARES}}

#: By character of a placement: how many squares it stands for, and what stands there (0 nothing; White 1 to 6, Black 9
#: to 14, in python-chess's order of kinds).
_WIDTH = np.zeros(128, dtype=np.intp)
_PIECE = np.zeros(128, dtype=np.uint8)
for _count in range(1, 9):
    _WIDTH[ord(str(_count))] = _count
for _kind, _letter in enumerate("PNBRQK", 1):
    _PIECE[ord(_letter)], _PIECE[ord(_letter.lower())] = _kind, 8 + _kind
    _WIDTH[ord(_letter)] = _WIDTH[ord(_letter.lower())] = 1
_BLACK = np.uint8(8)
_BACK_RANKS, _SIXTH = np.uint64(chess.BB_BACKRANKS), np.uint64(chess.BB_RANK_6)
_OUR_HOME, _THEIR_HOME = np.uint64(chess.BB_E1), np.uint64(chess.BB_E8)


def plain_boards(fens: Sequence[str]) -> tuple[Boards, list[int]]:
    """The boards `[K]` of the FENs that are read here, and the place of each; none of Chess960."""
    places: list[int] = []
    texts: list[str] = []
    rest: list[tuple[bool, int, int, int, int]] = []
    for place, fen in enumerate(fens):
        found = _PLAIN.fullmatch(fen)
        if found is not None:
            placement, turn, castling, en_passant, clock, number = found.groups()
            if placement.count("/") == 7:
                black = turn == "b"
                places.append(place)
                texts.append(placement)
                ply = 2 * int(number) - 2 + black
                rest.append((black, _CASTLING[castling], _EN_PASSANT[en_passant], int(clock), ply))
    if not texts:
        return _read(np.zeros((0, 64), dtype=np.uint8), rest), []
    pieces, whole = _squares(texts)
    if not whole.all():
        places, rest = _those(places, whole), _those(rest, whole)
    boards = _read(pieces, rest)
    valid = _surely_valid(boards)
    if not valid.all():
        boards, places = boards.rows(np.flatnonzero(valid)), _those(places, valid)
    return boards, places


def _those(items: list, keep: Flags) -> list:  # type: ignore[type-arg]
    return [item for item, kept in zip(items, keep.tolist(), strict=True) if kept]


def _squares(texts: Sequence[str]) -> tuple[NDArray[np.uint8], Flags]:
    """Placements of eight parts each → what stands on each square, uint8 `[K, 64]`, a1 first, of those whose parts are
    of eight squares each; and bool `[B]`, which those are."""
    letters = np.frombuffer("".join([text + "/" for text in texts]).encode("ascii"), dtype=np.uint8)
    width = _WIDTH[letters]
    ends = np.cumsum(width)[letters == ord("/")].reshape(-1, 8)
    starts = np.zeros_like(ends)
    starts.reshape(-1)[1:] = ends.reshape(-1)[:-1]
    whole = (ends - starts == 8).all(axis=1)
    pieces = np.repeat(_PIECE[letters], width)
    if not whole.all():
        pieces = pieces[np.repeat(whole, ends[:, -1] - starts[:, 0])]
    return pieces.reshape(-1, 8, 8)[:, ::-1].reshape(-1, 64), whole


def _read(pieces: NDArray[np.uint8], rest: Sequence[tuple[bool, int, int, int, int]]) -> Boards:
    """Boards of what stands on the squares `[K, 64]` and of the fields after it."""
    count = len(pieces)
    bits = np.empty((FIELDS, count), dtype=np.uint64)
    kinds = pieces & 7
    for kind in range(6):
        bits[kind] = _bitboard(kinds == kind + 1)
    dark = _bitboard(pieces >= _BLACK)
    light = _bitboard(pieces > 0) & ~dark
    black = np.array([one[0] for one in rest], dtype=np.bool_)
    bits[6], bits[7] = np.where(black, dark, light), np.where(black, light, dark)
    bits[8:] = np.array([one[1:] for one in rest], dtype=np.uint64).reshape(count, 4).T
    return Boards.seen(bits, black, np.zeros(count, dtype=np.bool_))


def _bitboard(squares: Flags) -> Bits:
    """Bool `[K, 64]` → uint64 `[K]`."""
    return np.packbits(squares, axis=1, bitorder="little").view("<u8").reshape(-1).astype(np.uint64, copy=False)


def _surely_valid(boards: Boards) -> Flags:
    """Where python-chess finds nothing wrong; False also where only it can tell: two checks, or one with an
    en-passant square."""
    pawns, knights, bishops, rooks, queens, kings = boards.kinds
    ours, theirs, castling, target = boards.ours, boards.theirs, boards.castling, boards.en_passant
    occupied = ours | theirs
    valid = pawns & _BACK_RANKS == 0
    for side in (ours, theirs):
        valid &= np.bitwise_count(kings & side) == 1
        valid &= (np.bitwise_count(side) <= 16) & (np.bitwise_count(pawns & side) <= 8)
    home = np.where(castling & ours != 0, _OUR_HOME, 0) | np.where(castling & theirs != 0, _THEIR_HOME, 0)
    corners = castling & np.uint64(chess.BB_RANK_1), castling & np.uint64(chess.BB_RANK_8)
    valid &= (corners[0] & ~(rooks & ours) == 0) & (corners[1] & ~(rooks & theirs) == 0)
    valid &= home & ~(kings & np.where(home & _OUR_HOME != 0, ours, 0) | kings & theirs) == 0
    pushed, behind = target >> np.uint64(8), target << np.uint64(8)
    some = target != 0
    valid &= ~some | (target & _SIXTH != 0) & (pushed & pawns & theirs != 0) & (occupied & (target | behind) == 0)
    king, other = lowest(kings & ours), lowest(kings & theirs)
    straight, slanted = rooks | queens, bishops | queens
    checkers = attacks.rook(king & 63, occupied) & straight | attacks.bishop(king & 63, occupied) & slanted
    checkers = (checkers | KNIGHT[king] & knights | PAWN_UP[king] & pawns) & theirs
    hit = attacks.rook(other & 63, occupied) & straight | attacks.bishop(other & 63, occupied) & slanted
    hit = (hit | KNIGHT[other] & knights | PAWN_DOWN[other] & pawns | KING[other] & kings) & ours
    valid &= (hit == 0) & (np.bitwise_count(checkers) <= 1) & ~(some & (checkers != 0))
    return np.asarray(valid & (BIT[king] & BIT[other] == 0))
