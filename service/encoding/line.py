"""`Line`: a game played move by move, shared by all positions along it."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from enum import Enum

import chess


class SamePosition(Enum):
    """Whose rule says that a position occurred before; they differ in which en-passant squares count."""

    BY_LAWS = "laws"  # FIDE 9.2: where the capture is legal
    BY_LC0 = "lc0"  # where a pawn stands that could take, pinned or not, and whatever a FEN says
    BY_SQUARE = "square"  # after every double push


class Line:
    """A game from its first known position.

    Time and memory grow linearly with its moves: each position is kept once, without a move stack, or only the newest
    `keep` of them. Repetitions are found while it is played. It is played to its end before it is shared.
    """

    def __init__(self, root: chess.Board, keep: int | None = None) -> None:
        board = root.copy(stack=False)
        self._boards = [board]
        self._keep = keep
        self._digests = [_digest(f"{board.chess960} {board.fen(en_passant='fen')}".encode())]
        self._earlier: dict[SamePosition, list[int | None]] = {same: [] for same in SamePosition}
        self._since_zeroing: dict[Hashable, int] = {}
        self._remember(board, root=True)

    @classmethod
    def of(cls, board: chess.Board, keep: int | None = None) -> Line:
        """The game in a board's move stack."""
        line = cls(board.root(), keep)
        for move in board.move_stack:
            line.play(move)
        return line.ended()

    @property
    def plies(self) -> int:
        """How many moves were played."""
        return len(self._digests) - 1

    @property
    def last(self) -> chess.Board:
        """The position after all moves; not to be changed."""
        return self._boards[-1]

    def play(self, move: chess.Move) -> None:
        """Plays a legal move."""
        board = self.last.copy(stack=False)
        zeroing = board.is_zeroing(move)
        board.push(move)
        board.clear_stack()
        if zeroing:
            self._since_zeroing.clear()
        self._boards.append(board)
        if self._keep is not None and len(self._boards) > self._keep:
            del self._boards[0]
        self._digests.append(_digest(self._digests[-1] + move.uci().encode()))
        self._remember(board, root=False)

    def ended(self) -> Line:
        """The line itself, without what is needed only to play on."""
        self._since_zeroing.clear()
        return self

    def board(self, ply: int) -> chess.Board:
        """The position after so many moves; not to be changed."""
        return self._boards[ply - self.plies - 1]

    def earlier(self, ply: int, same: SamePosition) -> int | None:
        """The ply at which the position at `ply` last occurred before; None if it had not."""
        return self._earlier[same][ply]

    def occurrences(self, ply: int, same: SamePosition) -> int:
        """How often the position at `ply` had occurred by then, itself included."""
        count = 1
        while (before := self.earlier(ply, same)) is not None:
            count, ply = count + 1, before
        return count

    def digest(self, ply: int) -> bytes:
        """Stands for the first position and the moves up to `ply`."""
        return self._digests[ply]

    def _remember(self, board: chess.Board, *, root: bool) -> None:
        ply = self.plies
        # A double push is zeroing: only the first position after a zeroing move, or of the game, has such a square.
        en_passant = dict.fromkeys(SamePosition, board.ep_square)
        if board.ep_square is not None:
            if not board.has_legal_en_passant():
                en_passant[SamePosition.BY_LAWS] = None
            if not root and not board.has_pseudo_legal_en_passant():
                en_passant[SamePosition.BY_LC0] = None
        pieces = (
            *(board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings),
            *(board.occupied_co[chess.WHITE], board.turn, board.clean_castling_rights()),
        )
        for same, square in en_passant.items():
            key = (same, square, pieces)
            self._earlier[same].append(self._since_zeroing.get(key))
            self._since_zeroing[key] = ply


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
