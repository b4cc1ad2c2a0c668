"""`PlayedGame`: a game played move by move, shared by all its positions."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from copy import copy
from enum import Enum

import chess

#: Positions that a game which was left for another move keeps.
_RECENT = 8


class SamePosition(Enum):
    """The rule by which two positions are the same; rules differ in which en-passant squares count."""

    BY_LAWS = "laws"  # FIDE 9.2: where the capture is legal
    BY_LC0 = "lc0"  # where a pawn could capture, pinned or not; in a FEN always
    BY_SQUARE = "square"  # after every double push


class PlayedGame:
    """A game from its first known position.

    Time and memory are linear in its moves: positions are kept without a move stack, all of them or only the newest
    `keep`. Repetitions are found while it is played. `root` must not be changed. Call `ended` before sharing it.
    """

    def __init__(self, root: chess.Board, keep: int | None = None) -> None:
        self.last = root.copy(stack=False)  # the position after all moves so far; not to be changed
        self._keep = keep
        self._boards = [root.copy(stack=False)] if keep is None else []
        self._root = root
        self._moves: list[chess.Move] = []
        self._since_zeroing: dict[Hashable, int] = {}
        self._earlier: list[int | None] = []
        # By ply, the rules by which a position differs from later ones with the same pieces.
        self._distinct: dict[int, set[SamePosition]] = {}
        self._remember()

    @classmethod
    def of(cls, board: chess.Board, keep: int | None = None) -> PlayedGame:
        """The game in a board's move stack."""
        game = cls(board.root(), keep)
        for move in board.move_stack:
            game.play(move)
        return game.ended()

    @property
    def plies(self) -> int:
        """How many moves were played."""
        return len(self._moves)

    def play(self, move: chess.Move) -> None:
        """Plays a legal move."""
        board = self.last
        if board.is_zeroing(move):
            self._since_zeroing.clear()
        board.push(move)
        if self._keep is None:
            self._boards.append(board.copy(stack=False))
            board.clear_stack()
        self._moves.append(move)
        self._remember()

    def followed(self, ply: int, move: chess.Move) -> PlayedGame:
        """This ended game up to a ply, and any legal move there. It recurs to positions that are kept."""
        game = copy(self)
        kept = range(max(0, ply + 1 - _RECENT, self.plies + 1 - len(self._boards)), ply + 1)
        game._keep, game._boards = None, [self.board(place) for place in kept]
        game._moves, game._earlier = self._moves[:ply], self._earlier[: ply + 1]
        game._distinct = dict(self._distinct)
        game._since_zeroing = {_key(board): place for place, board in zip(kept, game._boards, strict=True)}
        game.last = game._boards[-1].copy(stack=False)
        game.play(move)
        return game.ended()

    def ended(self) -> PlayedGame:
        """The game itself, which drops what it needs only to play on."""
        self._since_zeroing.clear()
        if self._keep is not None:
            board = self.last
            self._boards = [board.copy(stack=False)]
            while board.move_stack and len(self._boards) < self._keep:
                board.pop()
                self._boards.insert(0, board.copy(stack=False))
        self.last = self._boards[-1]
        return self

    def board(self, ply: int) -> chess.Board:
        """The position after `ply` moves of an ended game; not to be changed."""
        return self._boards[ply - self.plies - 1]

    def earlier(self, ply: int, same: SamePosition) -> int | None:
        """The ply at which the position at `ply` last occurred before; None if it had not."""
        previous = self._earlier[ply]
        return None if previous is None or same in self._distinct.get(previous, ()) else previous

    def occurrences(self, ply: int, same: SamePosition) -> int:
        """How often the position at `ply` had occurred by then, itself included."""
        count = 1
        while (before := self.earlier(ply, same)) is not None:
            count, ply = count + 1, before
        return count

    def digest(self, ply: int) -> bytes:
        """A hash of the first position and the moves up to `ply`."""
        words = [str(self._root.chess960), self._root.fen(en_passant="fen"), *map(chess.Move.uci, self._moves[:ply])]
        return hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()

    def _remember(self) -> None:
        board, ply = self.last, self.plies
        key = _key(board)
        self._earlier.append(self._since_zeroing.get(key))
        self._since_zeroing[key] = ply
        # Pawn moves are zeroing: only the first position after one, or of the game, has an en-passant square.
        if board.ep_square is not None:
            self._distinct[ply] = {SamePosition.BY_SQUARE}
            if ply == 0 or board.has_pseudo_legal_en_passant():
                self._distinct[ply].add(SamePosition.BY_LC0)
            if board.has_legal_en_passant():
                self._distinct[ply].add(SamePosition.BY_LAWS)


def _key(board: chess.Board) -> Hashable:
    """Equal for positions that differ in their en-passant square at most."""
    return (
        *(board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings),
        *(board.occupied_co[chess.WHITE], board.turn, board.castling_rights),
    )
