"""A `Vocabulary`: the moves a network has logits for, and the way between a slot and a move, both directions.

Most are written from the point of view of the side to move: with Black to move, a move is looked up with its ranks
flipped (square ^ 56). One that names the moves of both colours is not mirrored.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.position import Position
from movemask.errors import MoveOutsideVocabulary, UnsupportedVariant

#: From-square, to-square and promotion piece; None for a slot that stands for no pair of squares.
Entry = tuple[chess.Square, chess.Square, chess.PieceType | None] | None

_PIECES = 8  # room for a promotion piece (0 none, 2 knight … 5 queen) in a lookup index


class Castling(Enum):
    """How a vocabulary writes castling."""

    KING_TAKES_ROOK = "king_takes_rook"  # e1h1, as lc0 and Chess960 do
    KING_TWO_SQUARES = "king_two_squares"  # e1g1, standard chess only


class Flip(Enum):
    """What happens to Black's squares before a move is looked up; the value is xored with each."""

    RANKS = 0o70  # the board mirrored, as nearly every network has it
    ROTATED = 0o77  # the board turned around
    NONE = 0  # both colours' moves have slots of their own


class Vocabulary:
    """`A` moves in a fixed order.

    Parameters
    ----------
    name : such as `lc0-1858`
    entries : for each slot, from-square, to-square and promotion piece, seen by the side to move
    castling : how castling is written
    bare_promotion : the piece that a promotion without a letter stands for, or None where every promotion has its own
    flip : what happens to Black's squares before they are looked up
    """

    def __init__(
        self,
        name: str,
        entries: Sequence[Entry],
        *,
        castling: Castling,
        bare_promotion: chess.PieceType | None = None,
        flip: Flip = Flip.RANKS,
    ) -> None:
        self.name = name
        self.castling = castling
        self.bare_promotion = bare_promotion
        self.flip = flip
        self._entries = tuple(entries)
        self._twins: NDArray[np.intp] | None = None
        self._lookup: NDArray[np.intp] | None = None
        self._columns: NDArray[np.intp] | None = None
        self._slots: list[int] = [-1] * (_PIECES << 12)
        for slot, entry in enumerate(self._entries):
            if entry is not None:
                source, target, promotion = entry
                self._slots[(promotion or 0) << 12 | source << 6 | target] = slot

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Vocabulary({self.name!r}, A={len(self)})"

    @property
    def mirrored(self) -> bool:
        """Whether Black's moves share the slots of White's."""
        return self.flip is not Flip.NONE

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What each slot stands for."""
        return self._entries

    @property
    def chess960(self) -> bool:
        """Whether castling can be told from an ordinary king move in every Chess960 position."""
        return self.castling is Castling.KING_TAKES_ROOK

    def slot(self, move: chess.Move, board: chess.Board) -> int:
        """The slot of a legal `move` of `board`; raises MoveOutsideVocabulary if it has none."""
        target = move.to_square
        promotion = move.promotion or 0
        if board.kings & chess.BB_SQUARES[move.from_square] and board.is_castling(move):
            target = self._castling_target(move, board)
        if promotion == self.bare_promotion:
            promotion = 0
        index = move.from_square << 6 | target
        if board.turn == chess.BLACK:
            index ^= self.flip.value << 6 | self.flip.value
        slot = self._slots[promotion << 12 | index]
        if slot < 0:
            raise MoveOutsideVocabulary(f"{move.uci()} in {board.fen()!r} has no slot in the vocabulary {self.name}")
        return slot

    def move(self, slot: int, board: chess.Board) -> chess.Move:
        """The move that `slot` stands for on `board`, as python-chess writes it; it need not be legal there.

        The null move for a slot that stands for none.
        """
        entry = self._entries[slot]
        if entry is None:
            return chess.Move.null()
        source, target, promotion = entry
        if board.turn == chess.BLACK:
            source, target = source ^ self.flip.value, target ^ self.flip.value
        if self.bare_promotion is not None and promotion is None and _reaches_last_rank(board, source, target):
            promotion = self.bare_promotion
        if self.castling is Castling.KING_TAKES_ROOK and not board.chess960 and _takes_own_rook(board, source, target):
            target = chess.square(6 if target > source else 2, chess.square_rank(target))
        return chess.Move(source, target, promotion)

    def legal_slots(self, position: Position) -> tuple[tuple[chess.Move, ...], NDArray[np.intp]]:
        """The legal moves of `position` in the order of their slots `[L]`, and the slots.

        Raises MoveOutsideVocabulary where a legal move has no slot or two share one, UnsupportedVariant for Chess960
        with a vocabulary that cannot tell its castling moves.
        """
        board = position.board
        if board.chess960 and not self.chess960:
            raise UnsupportedVariant(
                f"chess960: the vocabulary {self.name} writes castling as the king's two squares; it has no Chess960"
            )
        kings, known, bare = board.kings, self._slots, self.bare_promotion
        turned = self.flip.value << 6 | self.flip.value if board.turn == chess.BLACK else 0
        moves = list(board.generate_legal_moves())
        by_slot = {}
        for move in moves:
            source, promotion = move.from_square, move.promotion
            if kings >> source & 1:  # it may castle
                slot = self.slot(move, board)
            else:
                promotion = 0 if promotion is None or promotion == bare else promotion
                slot = known[promotion << 12 | (source << 6 | move.to_square) ^ turned]
                if slot < 0:
                    slot = self.slot(move, board)  # it raises
            by_slot[slot] = move
        if len(by_slot) != len(moves):
            raise MoveOutsideVocabulary(f"two legal moves of {position.fen!r} share a slot of {self.name}")
        slots = sorted(by_slot)
        return tuple(by_slot[slot] for slot in slots), np.array(slots, dtype=np.intp)

    def lookup(self) -> NDArray[np.intp]:
        """The slot by `promotion << 12 | source << 6 | target`, as the vocabulary writes moves; -1 for none."""
        if self._lookup is None:
            self._lookup = np.array(self._slots, dtype=np.intp)
        return self._lookup

    def columns(self) -> NDArray[np.intp]:
        """From-square, to-square and promotion piece (0 for none) of each slot, `[3, A]`; zeros for one of no move."""
        if self._columns is None:
            rows = [(0, 0, 0) if one is None else (one[0], one[1], one[2] or 0) for one in self._entries]
            self._columns = np.array(rows, dtype=np.intp).reshape(-1, 3).T
        return self._columns

    def twins(self) -> NDArray[np.intp]:
        """For each slot `[A]` the slot of its move seen by the other side, as if Black's were not mirrored; -1 for
        none, itself where nothing is mirrored."""
        if self._twins is None:
            flip = self.flip.value
            found = [-1] * len(self)
            for slot, entry in enumerate(self._entries):
                if entry is not None:
                    source, target, promotion = entry
                    found[slot] = self._slots[(promotion or 0) << 12 | (source ^ flip) << 6 | (target ^ flip)]
            self._twins = np.array(found, dtype=np.intp)
        return self._twins

    def names(self) -> tuple[str, ...]:
        """UCI-like names of the slots in order, seen by the side to move if mirrored; empty for a slot of no move."""
        return tuple("" if entry is None else _name(*entry) for entry in self._entries)

    def _castling_target(self, move: chess.Move, board: chess.Board) -> chess.Square:
        """Where a castling move ends as this vocabulary writes it; python-chess gives e1g1 or, in Chess960, e1h1."""
        if self.castling is Castling.KING_TWO_SQUARES or board.chess960:
            return move.to_square
        rook_file = 7 if move.to_square > move.from_square else 0
        return chess.square(rook_file, chess.square_rank(move.to_square))


def _name(source: chess.Square, target: chess.Square, promotion: chess.PieceType | None) -> str:
    """As `chess.Move.uci`, also for a square and itself."""
    letter = chess.piece_symbol(promotion) if promotion else ""
    return chess.square_name(source) + chess.square_name(target) + letter


def _reaches_last_rank(board: chess.Board, source: chess.Square, target: chess.Square) -> bool:
    """Whether a pawn stands on `source` and `target` is on a first or last rank."""
    return bool(board.pawns & chess.BB_SQUARES[source] and chess.BB_SQUARES[target] & chess.BB_BACKRANKS)


def _takes_own_rook(board: chess.Board, source: chess.Square, target: chess.Square) -> bool:
    """Whether the squares are those of standard castling, the king's and a rook's on their first squares."""
    ours = board.occupied_co[board.turn]
    back = 0 if board.turn == chess.WHITE else 7
    return bool(
        board.kings & ours & chess.BB_SQUARES[source]
        and board.rooks & ours & chess.BB_SQUARES[target]
        and source == chess.square(4, back)
        and target in (chess.square(0, back), chess.square(7, back))
    )
