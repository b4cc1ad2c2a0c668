"""`Vocabulary`: the moves a network has logits for; maps moves to slots and slots to moves.

Most name moves as the side to move sees them: with Black to move, a move is looked up with its ranks flipped
(square ^ 56). One that names the moves of both colours is not mirrored.
"""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import Boards
from movemask.board.moves import LegalMoves, from_mover, legal_moves, moves_of
from movemask.board.position import Position
from movemask.encoding import forms
from movemask.encoding.forms import Castling, Flip
from movemask.errors import MovemaskError, MoveOutsideVocabulary, UnsupportedVariant
from movemask.numeric.ragged import Index, row_of_each

#: From-square, to-square and promotion piece; None for a slot that stands for no pair of squares.
SlotMove = tuple[chess.Square, chess.Square, chess.PieceType | None] | None

#: A packed move: its code in the low 15 bits, its slot plus one from bit 15, its row from bit 29.
_SLOT, _ROW = 15, 29

_PIECES = 8  # promotion pieces of a lookup index: 0 none, 2 knight … 5 queen


class Vocabulary:
    """`A` moves in a fixed order.

    Parameters
    ----------
    name : such as `lc0-1858`
    entries : for each slot, from-square, to-square and promotion piece, seen by the side to move
    castling : how castling is written
    bare_promotion : the piece of a promotion written without one; None if every promotion names its piece
    flip : how Black's squares are changed before they are looked up

    Attributes
    ----------
    columns : intp `[3, A]`, from-square, to-square and promotion piece (0 for none) of each slot; zeros if it has none
    lookup : the slot by `promotion << 12 | source << 6 | target`, seen by the side to move, -1 for none; a bare
        promotion is found with and without its piece
    twins : intp `[A]`, the slot of the same move with its squares flipped, which a reader that does not mirror Black's
        moves takes it for; -1 for none, itself where nothing is mirrored
    """

    def __init__(
        self,
        name: str,
        entries: Sequence[SlotMove],
        *,
        castling: Castling,
        bare_promotion: chess.PieceType | None = None,
        flip: Flip = Flip.RANKS,
    ) -> None:
        self.name = name
        self.castling = castling
        self.bare_promotion = bare_promotion
        self.flip = flip
        self.entries = tuple(entries)  # what each slot stands for
        columns = [(0, 0, 0) if entry is None else (*entry[:2], entry[2] or 0) for entry in self.entries]
        self.columns = np.array(columns, dtype=np.intp).reshape(-1, 3).T
        source, target, promotion = self.columns
        moves = np.array([entry is not None for entry in self.entries], dtype=np.bool_)
        self.lookup = np.full(_PIECES << 12, -1, dtype=np.intp)
        self.lookup[(promotion << 12 | source << 6 | target)[moves]] = np.flatnonzero(moves)
        twins = self.lookup[promotion << 12 | (source ^ flip.value) << 6 | target ^ flip.value]
        self.twins = np.where(moves, twins, -1)
        if bare_promotion is not None:
            self.lookup[bare_promotion << 12 : bare_promotion + 1 << 12] = self.lookup[: 1 << 12]

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"Vocabulary({self.name!r}, A={len(self)})"

    @property
    def mirrored(self) -> bool:
        """Whether Black's moves share the slots of White's."""
        return self.flip is not Flip.NONE

    @property
    def chess960(self) -> bool:
        """Whether castling can be told from an ordinary king move in every Chess960 position."""
        return self.castling is Castling.KING_TAKES_ROOK

    def slot(self, move: chess.Move, board: chess.Board) -> int:
        """The slot of a legal `move` of `board`; raises MoveOutsideVocabulary if it has none."""
        written = move
        if self.castling is Castling.KING_TAKES_ROOK and board.is_castling(move):
            written = chess.Move.from_uci(board.uci(move, chess960=True))
        index = written.from_square << 6 | written.to_square
        if board.turn == chess.BLACK:
            index ^= self.flip.value << 6 | self.flip.value
        slot = int(self.lookup[(move.promotion or 0) << 12 | index])
        if slot < 0:
            raise MoveOutsideVocabulary(f"{move.uci()} in {board.fen()!r} has no slot in the vocabulary {self.name}")
        return slot

    def move(self, slot: int, board: chess.Board) -> chess.Move:
        """The move that `slot` stands for on `board`, as python-chess writes it; it need not be legal there.

        The null move for a slot that stands for none.
        """
        entry = self.entries[slot]
        if entry is None:
            return chess.Move.null()
        source, target, promotion = entry
        if board.turn == chess.BLACK:
            source, target = source ^ self.flip.value, target ^ self.flip.value
        if promotion is None and board.pawns & chess.BB_SQUARES[source] and forms.promotes(source, target):
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
        legal = legal_moves([position.board])
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
        written = from_mover(legal.codes, boards.black[rows])
        if self.castling is Castling.KING_TAKES_ROOK:
            written = forms.castling_as_rook(written, rows, boards)
        if self.flip is not Flip.RANKS:
            change = self.flip.value ^ Flip.RANKS.value
            written = written ^ np.where(boards.black[rows], change << 6 | change, 0)
        slot = self.lookup[written]
        # Packed, so that a single sort of integers orders the moves by row and slot and carries their codes along.
        packed = np.sort(rows << _ROW | (slot + 1) << _SLOT | legal.codes, kind="stable")
        row_and_slot = packed >> _SLOT
        slot = (row_and_slot & 0x3FFF) - 1
        refused = np.zeros(len(boards), dtype=np.bool_) if self.chess960 else boards.chess960.copy()
        wrong = slot < 0
        wrong[1:] |= row_and_slot[1:] == row_and_slot[:-1]
        if wrong.any():
            refused[rows[wrong]] = True
        return packed & 0x7FFF, slot, refused

    def refusal(self, position: Position) -> MovemaskError:
        """The error that says why the vocabulary cannot write the legal moves of a position."""
        if position.chess960 and not self.chess960:
            return UnsupportedVariant(
                f"chess960: the vocabulary {self.name} writes castling as the king's two squares; it has no Chess960"
            )
        try:
            for move in moves_of(legal_moves([position.board]).codes):
                self.slot(move, position.board)
        except MoveOutsideVocabulary as error:
            return error
        return MoveOutsideVocabulary(f"two legal moves of {position.fen!r} share a slot of {self.name}")

    def names(self) -> tuple[str, ...]:
        """UCI-like names of the slots in order, seen by the side to move if mirrored; empty for a slot of no move."""
        return tuple("" if entry is None else _name(*entry) for entry in self.entries)


def _name(source: chess.Square, target: chess.Square, promotion: chess.PieceType | None) -> str:
    """As `chess.Move.uci`, but also for a move from a square to itself."""
    letter = chess.piece_symbol(promotion) if promotion else ""
    return chess.square_name(source) + chess.square_name(target) + letter
