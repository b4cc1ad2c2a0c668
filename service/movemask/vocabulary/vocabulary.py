"""A `Vocabulary`: the moves a network has logits for, and the way between a slot and a move, both directions.

Most are written from the point of view of the side to move: with Black to move, a move is looked up with its ranks
flipped (square ^ 56). One that names the moves of both colours is not mirrored.
"""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards
from movemask.board.legal import LegalMoves, Rules, legal_moves
from movemask.board.move_codes import moves_of
from movemask.board.position import Position
from movemask.errors import MovemaskError, MoveOutsideVocabulary, UnsupportedVariant
from movemask.numeric.ragged import Index, row_of_each
from movemask.vocabulary import forms
from movemask.vocabulary.forms import Castling, Flip

#: From-square, to-square and promotion piece; None for a slot that stands for no pair of squares.
Entry = tuple[chess.Square, chess.Square, chess.PieceType | None] | None

#: Where a packed move holds its slot plus one and its row; the 15 bits below are its code.
_SLOT, _ROW = 15, 29

_PIECES = 8  # room for a promotion piece (0 none, 2 knight … 5 queen) in a lookup index


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
            target = forms.castling_target(move, board, self.castling)
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
        if self.bare_promotion is not None and promotion is None and forms.reaches_last_rank(board, source, target):
            promotion = self.bare_promotion
        takes_rook = self.castling is Castling.KING_TAKES_ROOK and not board.chess960
        if takes_rook and forms.takes_own_rook(board, source, target):
            target = chess.square(6 if target > source else 2, chess.square_rank(target))
        return chess.Move(source, target, promotion)

    def legal_slots(self, position: Position) -> tuple[tuple[chess.Move, ...], Index]:
        """The legal moves of one position in the order of their slots, and the slots `[L]`.

        Raises MoveOutsideVocabulary where a legal move has no slot or two share one, UnsupportedVariant for Chess960
        with a vocabulary that cannot tell its castling moves.
        """
        boards = Boards.of([position.board])
        legal = legal_moves([position], boards, Rules.PYTHON_CHESS)
        codes, slots, refused = self.slots(legal, boards)
        if refused[0]:
            raise self.refusal(position)
        return moves_of(codes), slots

    def slots(self, legal: LegalMoves, boards: Boards) -> tuple[Index, Index, NDArray[np.bool_]]:
        """The legal moves of a batch in the order of their slots.

        Returns
        -------
        codes : intp `[N]`, each position's moves sorted by slot
        slots : intp `[N]`, rising within each position
        refused : bool `[B]`, where `refusal` says why the vocabulary cannot write the legal moves
        """
        rows = row_of_each(legal.indptr)
        written = forms.seen(legal.codes, rows, boards)
        if self.castling is Castling.KING_TAKES_ROOK:
            written = forms.castling_as_rook(written, rows, boards)
        if self.flip is not Flip.RANKS:
            other = self.flip.value ^ 56
            written = written ^ np.where(boards.black[rows], other << 6 | other, 0)
        slot = self.lookup()[written]
        # One number a move, row and slot first, so that one plain sort orders all and carries the code along.
        packed = np.sort(rows << _ROW | (slot + 1) << _SLOT | legal.codes, kind="stable")
        placed = packed >> _SLOT
        slot = (placed & 0x3FFF) - 1
        refused = np.zeros(len(boards), dtype=np.bool_) if self.chess960 else boards.chess960.copy()
        wrong = slot < 0
        wrong[1:] |= placed[1:] == placed[:-1]
        if wrong.any():
            refused[rows[wrong]] = True
        return packed & 0x7FFF, slot, refused

    def refusal(self, position: Position) -> MovemaskError:
        """Why the legal moves of a position cannot be written."""
        if position.chess960 and not self.chess960:
            return UnsupportedVariant(
                f"chess960: the vocabulary {self.name} writes castling as the king's two squares; it has no Chess960"
            )
        try:
            for move in position.board.generate_legal_moves():
                self.slot(move, position.board)
        except MoveOutsideVocabulary as error:
            return error
        return MoveOutsideVocabulary(f"two legal moves of {position.fen!r} share a slot of {self.name}")

    def lookup(self) -> Index:
        """The slot by `promotion << 12 | source << 6 | target`, seen by the side to move; -1 for none. Both the bare
        and the written form of a bare promotion are found."""
        if self._lookup is None:
            found = np.array(self._slots, dtype=np.intp)
            if self.bare_promotion is not None:
                found[self.bare_promotion << 12 : self.bare_promotion + 1 << 12] = found[: 1 << 12]
            self._lookup = found
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


def _name(source: chess.Square, target: chess.Square, promotion: chess.PieceType | None) -> str:
    """As `chess.Move.uci`, also for a square and itself."""
    letter = chess.piece_symbol(promotion) if promotion else ""
    return chess.square_name(source) + chess.square_name(target) + letter
