"""Shards → positions, all games of a shard in lockstep, by bit operations alone: no move is generated.

At ply t every game that is still going has the same side to move, so a step is a few numpy operations on arrays over
games. Boards are kept from the point of view of the side to move (`movemask.encoding.movemask_planes`): after each move
the two halves swap and the bytes of each bitboard with them. Equal to python-chess on every position (tested).
"""

from __future__ import annotations

from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import mirrored
from movemask.encoding.vocabularies import vocabulary
from training.shards import EN_PASSANT, VOCABULARY, Shard

PAWN, ROOK, KING = 0, 3, 5
PIECES = 12  # bitboards of pieces, before those of castling rights and en passant
OUR_RIGHTS, THEIR_RIGHTS, EN_PASSANT_SQUARE = 12, 13, 14
U64 = np.uint64


@dataclass(frozen=True)
class Positions:
    """`N` positions, one row in each array."""

    bitboards: NDArray[np.uint64]  # [N, 15], as movemask.encoding.movemask_planes lists them
    ply: NDArray[np.uint16]  # moves before the position; Black is to move where it is odd
    slot: NDArray[np.int16]  # of the move that was played
    game: NDArray[np.int32]  # row in the shard's games

    @property
    def black(self) -> NDArray[np.bool_]:
        """Whether Black is to move, `[N]`."""
        return (self.ply & 1).astype(np.bool_)


def replay(shard: Shard) -> Positions:
    """Every position of a shard in which a move was played, by ply."""
    lengths = shard.games["plies"].astype(np.int64)
    order = np.argsort(-lengths, kind="stable")  # those still going are always the first rows
    starts = (np.cumsum(lengths) - lengths)[order]
    longest_first = lengths[order]
    boards = np.tile(_start(), (len(order), 1))
    double_push = np.zeros(len(order), dtype=U64)  # the square that the last move jumped over
    parts: list[Positions] = []
    for ply in range(int(longest_first[0]) if len(order) else 0):
        going = int(np.searchsorted(-longest_first, -ply, side="left"))
        boards, double_push = boards[:going], double_push[:going]
        packed = shard.plies[starts[:going] + ply]
        slots = (packed & (EN_PASSANT - 1)).astype(np.int16)
        boards[:, EN_PASSANT_SQUARE] = np.where(packed & EN_PASSANT, double_push, U64(0))
        games = order[:going].astype(np.int32)
        parts.append(Positions(boards.copy(), np.full(going, ply, np.uint16), slots, games))
        boards, double_push = _pushed(boards, slots)
    return _joined(parts)


def _pushed(boards: NDArray[np.uint64], slots: NDArray[np.int16]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Boards after the moves, seen by the other side; squares jumped over."""
    source, target = _SOURCE[slots], _TARGET[slots]
    ours, theirs = boards[:, :6].copy(), boards[:, 6:12].copy()
    moved = (ours & source[:, None]) != 0
    pawn, king = moved[:, PAWN], moved[:, KING]
    castling = king & ((ours[:, ROOK] & target) != 0)
    en_passant = pawn & (target == boards[:, EN_PASSANT_SQUARE])
    captured = np.where(en_passant, target >> U64(8), np.where(castling, U64(0), target))
    theirs &= ~captured[:, None]
    plain = moved & ~castling[:, None]
    ours ^= np.where(plain, (source | target)[:, None], U64(0))
    promotes = np.flatnonzero(_PROMOTION[slots])
    ours[promotes, PAWN] ^= target[promotes]
    ours[promotes, _PROMOTION[slots[promotes]]] ^= target[promotes]
    short = target > source
    ours[:, KING] ^= np.where(castling, source ^ np.where(short, _G1, _C1), U64(0))
    ours[:, ROOK] ^= np.where(castling, target ^ np.where(short, _F1, _D1), U64(0))
    rights = np.where(king, U64(0), boards[:, OUR_RIGHTS] & ~source)
    their_rights = boards[:, THEIR_RIGHTS] & ~captured
    jumped = np.where(pawn & (target == source << U64(16)), source << U64(8), U64(0))
    after = np.empty_like(boards)
    after[:, :6], after[:, 6:12] = theirs, ours
    after[:, OUR_RIGHTS], after[:, THEIR_RIGHTS] = their_rights, rights
    after[:, EN_PASSANT_SQUARE] = 0
    return mirrored(after), mirrored(jumped)


def _start() -> NDArray[np.uint64]:
    board = chess.Board()
    kinds = (board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings)
    pieces = [kind & board.occupied_co[color] for color in (True, False) for kind in kinds]
    rights = board.castling_rights
    return np.array([*pieces, rights & chess.BB_RANK_1, rights & chess.BB_RANK_8, 0], dtype=U64)


def _joined(parts: list[Positions]) -> Positions:
    if not parts:
        none, boards = np.empty(0), np.empty((0, len(_start())), U64)
        return Positions(boards, none.astype("u2"), none.astype("i2"), none.astype("i4"))
    fields = ("bitboards", "ply", "slot", "game")
    return Positions(*(np.concatenate([getattr(part, field) for part in parts]) for field in fields))


def _parsed(name: str) -> tuple[int, int, int]:
    return chess.parse_square(name[:2]), chess.parse_square(name[2:4]), " nbrq".index(name[4:] or " ")


_MOVES = np.array([_parsed(name) for name in vocabulary(VOCABULARY).names()], dtype=U64)
_SOURCE, _TARGET = U64(1) << _MOVES[:, 0], U64(1) << _MOVES[:, 1]
_PROMOTION = _MOVES[:, 2].astype(np.intp)  # 0 none, else the index of the new piece among P N B R Q K
_F1, _D1, _G1, _C1 = (U64(square) for square in (chess.BB_F1, chess.BB_D1, chess.BB_G1, chess.BB_C1))
