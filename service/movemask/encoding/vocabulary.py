"""`Vocabulary`: the moves for which a network has logits. Maps moves to slots and slots to moves.

Most vocabularies name moves as the side to move sees them. With Black to move, a move is looked up
with its ranks flipped (square ^ 56). A vocabulary with slots for both colours' moves is not
mirrored.

python-chess writes castling as e1g1, and in Chess960 as the king taking its rook (e1h1). It always
names the promotion piece. A vocabulary writes castling in one form for both, and may omit one
promotion piece (lc0: the knight). Only this module knows both forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.boards import BIT, Boards, Flags, Squares
from movemask.board.moves import LegalMoves, from_mover, legal_moves, moves_of
from movemask.board.position import Position
from movemask.errors import MovemaskError, MoveOutsideVocabulary, UnsupportedVariant
from movemask.policy.ragged import Index, restricted, row_lengths, row_of_each


class Castling(Enum):
    """How a vocabulary writes castling."""

    KING_TAKES_ROOK = "king_takes_rook"  # e1h1, as lc0 and Chess960 do
    KING_TWO_SQUARES = "king_two_squares"  # e1g1, standard chess only


class Flip(Enum):
    """How Black's squares change before a move is looked up: each square is xored with the value."""

    RANKS = 0o70  # the board mirrored, as nearly every network has it
    ROTATED = 0o77  # the board rotated by 180°
    NONE = 0  # both colours' moves have their own slots


def takes_own_rook(board: chess.Board, source: chess.Square, target: chess.Square) -> bool:
    """Returns whether the squares are those of a standard castling move, written as king takes rook."""
    ours = board.occupied_co[board.turn]
    back = 0 if board.turn == chess.WHITE else 7
    return bool(
        board.kings & ours & chess.BB_SQUARES[source]
        and board.rooks & ours & chess.BB_SQUARES[target]
        and source == chess.square(4, back)
        and target in (chess.square(0, back), chess.square(7, back))
    )


def promotes(source: Squares | chess.Square, target: Squares | chess.Square) -> Flags:
    """Returns whether a pawn's move between these squares would be a promotion, for either side."""
    ranks, files = (source >> 3) * 8 + (target >> 3), (source & 7) - (target & 7)
    return np.asarray((np.abs(files) <= 1) & ((ranks == 6 * 8 + 7) | (ranks == 1 * 8)))


#: The rook's square by the code of a standard castling move, seen by the side to move; -1 for other codes.
_ROOK_OF = np.full(6 << 12, -1, dtype=np.intp)
_ROOK_OF[chess.E1 << 6 | chess.G1], _ROOK_OF[chess.E1 << 6 | chess.C1] = chess.H1, chess.A1


def castling_as_rook(codes: Squares, rows: Squares, boards: Boards) -> Squares:
    """Returns codes `[N]` of legal moves with standard castling written as king takes rook.

    The codes are seen by the side to move.
    """
    places = np.flatnonzero(_ROOK_OF[codes] >= 0)
    if not len(places):
        return codes
    castling_rows = rows[places]
    castles = (boards.pieces[5][castling_rows] & BIT[chess.E1] != 0) & ~boards.chess960[
        castling_rows
    ]
    places = places[castles]
    written = codes.copy()
    written[places] = codes[places] & ~63 | _ROOK_OF[codes[places]]
    return written


def castling_forms(
    source: Squares, target: Squares, rows: Squares, boards: Boards, takes_rook: Flags
) -> tuple[Flags, Flags]:
    """Returns which moves `[K]` have the form of castling, and which of them also have the right.

    The moves are seen by the side to move.

    takes_rook : bool `[K]`, whether castling is written as king takes rook
    """
    kings, rooks, ours = boards.pieces[5][rows], boards.pieces[3][rows], boards.ours[rows]
    form = (kings & ours & BIT[source] != 0) & (source < 8) & (target < 8)
    if not form.any():
        return form, form
    from_e1 = source == chess.E1
    by_rook = rooks & ours & BIT[target] != 0
    by_rook &= boards.chess960[rows] | from_e1 & ((target == chess.A1) | (target == chess.H1))
    by_king = from_e1 & ((target == chess.C1) | (target == chess.G1))
    rook = np.where(takes_rook, target, np.where(target == chess.C1, chess.A1, chess.H1))
    form &= np.where(takes_rook, by_rook, by_king)
    return form, form & (boards.castling[rows] & ours & BIT[rook] != 0)


def codes_of_written(
    source: Squares,
    target: Squares,
    promotion: Squares,
    rows: Squares,
    boards: Boards,
    bare_promotion: chess.PieceType | None,
) -> Squares:
    """Returns the codes `[K]` (`board.moves`) of moves as a vocabulary writes them, seen by the side to move.

    A bare promotion gets its piece. A move from a square to itself becomes the null move, 0.
    """
    if bare_promotion is not None:
        bare = (
            (promotion == 0)
            & promotes(source, target)
            & (boards.pieces[0][rows] & BIT[source] != 0)
        )
        promotion = np.where(bare, bare_promotion, promotion)
    return np.where(
        source == target, 0, from_mover(promotion << 12 | source << 6 | target, boards.black[rows])
    )


#: From-square, to-square and promotion piece; None for a slot without a move.
SlotMove = tuple[chess.Square, chess.Square, chess.PieceType | None] | None

#: A packed move: its code in the low 15 bits, its slot plus 1 from bit 15, its row from bit 29.
_SLOT, _ROW = 15, 29

_PIECES = 8  # promotion pieces in a lookup index: 0 none, 2 knight … 5 queen


class Vocabulary:
    """`A` moves in a fixed order.

    Parameters
    ----------
    name : such as `lc0-1858`
    entries : the move of each slot, seen by the side to move
    castling : how castling is written
    bare_promotion : the piece of a promotion written without a letter; None if every promotion
        names its piece
    flip : how Black's squares change before they are looked up
    complete : whether every legal move must have a slot. If not, moves without one are left out

    Attributes
    ----------
    columns : intp `[3, A]`, from-square, to-square and promotion piece (0 for none). Zeros for a
        slot without a move
    lookup : the slot by `promotion << 12 | source << 6 | target`, seen by the side to move; -1 for
        none. A bare promotion is found with and without its piece
    twins : intp `[A]`, for each slot, the slot that a program which forgets to mirror would read
        instead. -1 for none; the slot itself without mirroring
    """

    def __init__(
        self,
        name: str,
        entries: Sequence[SlotMove],
        *,
        castling: Castling,
        bare_promotion: chess.PieceType | None = None,
        flip: Flip = Flip.RANKS,
        complete: bool = True,
    ) -> None:
        self.name = name
        self.complete = complete
        self.castling = castling
        self.bare_promotion = bare_promotion
        self.flip = flip
        self.entries = tuple(entries)
        columns = [
            (0, 0, 0) if entry is None else (*entry[:2], entry[2] or 0) for entry in self.entries
        ]
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
        """Whether castling differs from an ordinary king move in every Chess960 position."""
        return self.castling is Castling.KING_TAKES_ROOK

    def changed(self, **changes: Any) -> Vocabulary:
        """Returns the vocabulary with other arguments."""
        names = ("name", "entries", "castling", "bare_promotion", "flip", "complete")
        return Vocabulary(**{name: getattr(self, name) for name in names} | changes)

    def find(self, entry: SlotMove) -> int | None:
        """Returns the slot of a move, seen by the side to move; None if there is none."""
        if entry is None:
            return None
        slot = int(self.lookup[(entry[2] or 0) << 12 | entry[0] << 6 | entry[1]])
        return slot if slot >= 0 else None

    def slot(self, move: chess.Move, board: chess.Board) -> int:
        """Returns the slot of a legal `move` of `board`. Raises MoveOutsideVocabulary if it has no slot."""
        written = move
        if self.castling is Castling.KING_TAKES_ROOK and board.is_castling(move):
            written = chess.Move.from_uci(board.uci(move, chess960=True))
        index = written.from_square << 6 | written.to_square
        if board.turn == chess.BLACK:
            index ^= self.flip.value << 6 | self.flip.value
        slot = int(self.lookup[(move.promotion or 0) << 12 | index])
        if slot < 0:
            raise MoveOutsideVocabulary(
                f"{move.uci()} in {board.fen()!r} has no slot in the vocabulary {self.name}"
            )
        return slot

    def move(self, slot: int, board: chess.Board) -> chess.Move:
        """Returns the move of `slot` on `board`, as python-chess writes it. It may be illegal there.

        A slot without a move gives the null move.
        """
        entry = self.entries[slot]
        if entry is None:
            return chess.Move.null()
        source, target, promotion = entry
        if board.turn == chess.BLACK:
            source, target = source ^ self.flip.value, target ^ self.flip.value
        if (
            promotion is None
            and board.pawns & chess.BB_SQUARES[source]
            and promotes(source, target)
        ):
            promotion = self.bare_promotion
        takes_rook = self.castling is Castling.KING_TAKES_ROOK and not board.chess960
        if takes_rook and takes_own_rook(board, source, target):
            target = chess.square(6 if target > source else 2, chess.square_rank(target))
        return chess.Move(source, target, promotion)

    def legal_slots(self, position: Position) -> tuple[tuple[chess.Move, ...], Index]:
        """Returns the legal moves of one position in the order of their slots, and the slots `[L]`.

        An incomplete vocabulary leaves out moves without a slot. Raises MoveOutsideVocabulary if a
        legal move has no slot or if two moves share a slot. Raises UnsupportedVariant for Chess960
        if the vocabulary cannot express its castling moves.
        """
        boards = Boards.of([position.board])
        legal = legal_moves([position.board])
        codes, slots, _, refused = self.slots(legal, boards)
        if refused[0]:
            raise self.refusal(position)
        return moves_of(codes), slots

    def without_slot(self, position: Position) -> tuple[chess.Move, ...]:
        """Returns the legal moves of a position that an incomplete vocabulary leaves out, in UCI order."""
        if self.complete:
            return ()
        with_slot = set(self.legal_slots(position)[0])
        left_out = set(position.board.legal_moves) - with_slot
        return tuple(sorted(left_out, key=chess.Move.uci))

    def slots(
        self, legal: LegalMoves, boards: Boards
    ) -> tuple[Index, Index, Index, NDArray[np.bool_]]:
        """Returns the legal moves of a batch in the order of their slots.

        An incomplete vocabulary leaves out those without.

        Returns
        -------
        codes : intp `[N]`, each position's moves sorted by slot
        slots : intp `[N]`, ascending within each position
        indptr : intp `[B + 1]`, the bounds of each position's moves
        refused : bool `[B]`, positions whose legal moves the vocabulary cannot express; `refusal` gives the reason
        """
        rows = row_of_each(legal.indptr)
        written = from_mover(legal.codes, boards.black[rows])
        if self.castling is Castling.KING_TAKES_ROOK:
            written = castling_as_rook(written, rows, boards)
        if self.flip is not Flip.RANKS:
            change = self.flip.value ^ Flip.RANKS.value
            written = written ^ np.where(boards.black[rows], change << 6 | change, 0)
        slot = self.lookup[written]
        # Row, slot and code packed into one integer: a single sort orders the moves and carries their codes along.
        packed = np.sort(rows << _ROW | (slot + 1) << _SLOT | legal.codes, kind="stable")
        row_and_slot = packed >> _SLOT
        slot = (row_and_slot & 0x3FFF) - 1
        refused = np.zeros(len(boards), dtype=np.bool_) if self.chess960 else boards.chess960.copy()
        codes, indptr, outside = packed & 0x7FFF, legal.indptr, slot < 0
        shared = np.zeros(len(slot), dtype=np.bool_)
        shared[1:] = (row_and_slot[1:] == row_and_slot[:-1]) & ~outside[1:]
        if outside.any() or shared.any():
            refused[rows[shared]] = True
            if self.complete:
                refused[rows[outside]] = True
            else:
                codes, slot, indptr = codes[~outside], slot[~outside], restricted(indptr, ~outside)
                refused |= (row_lengths(indptr) == 0) & (row_lengths(legal.indptr) > 0)
        return codes, slot, indptr, refused

    def refusal(self, position: Position) -> MovemaskError:
        """Returns the error that tells why the vocabulary cannot express the legal moves of a position."""
        if position.chess960 and not self.chess960:
            return UnsupportedVariant(
                f"chess960: the vocabulary {self.name} writes castling as the king's two squares; it has no Chess960"
            )
        slots = []
        for move in position.board.legal_moves:
            try:
                slots.append(self.slot(move, position.board))
            except MoveOutsideVocabulary as error:
                if self.complete:
                    return error
        if not slots:
            return MoveOutsideVocabulary(
                f"no legal move of {position.fen!r} has a slot in the vocabulary {self.name}"
            )
        return MoveOutsideVocabulary(
            f"two legal moves of {position.fen!r} share a slot of {self.name}"
        )

    def names(self) -> tuple[str, ...]:
        """Returns the UCI-like names of the slots. Empty for a slot without a move.

        They are seen by the side to move if the vocabulary is mirrored.
        """
        return tuple("" if entry is None else slot_name(*entry) for entry in self.entries)


def described(vocabulary: Vocabulary, name: str) -> dict[str, Any]:
    """Returns the meaning of each slot, for JSON.

    `moves` holds UCI-like names in the order of the slots, None for no move.

    name : the vocabulary or model that was asked for
    """
    bare = vocabulary.bare_promotion
    return {
        "name": name,
        "vocabulary": vocabulary.name,
        "slots": len(vocabulary),
        "castling": vocabulary.castling.value,
        "bare_promotion": None if bare is None else chess.piece_symbol(bare),
        "black": vocabulary.flip.name.lower(),
        "moves": [move or None for move in vocabulary.names()],
    }


def slot_name(source: chess.Square, target: chess.Square, promotion: chess.PieceType | None) -> str:
    """Returns a move in UCI. Unlike `chess.Move.uci`, it also names a move from a square to itself."""
    letter = chess.piece_symbol(promotion) if promotion else ""
    return chess.square_name(source) + chess.square_name(target) + letter
