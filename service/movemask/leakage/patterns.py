"""Known mistakes that are visible in one distribution: illegal mass that is flat, and mass on the slot next door."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.move_codes import uci_of
from movemask.board.position import Position, boards_of
from movemask.leakage.causes import Written
from movemask.numeric.ragged import Float
from movemask.vocabulary.forms import Castling
from movemask.vocabulary.vocabulary import Vocabulary

#: The names are those of the kinds (docs/leakage.md) and of the mistakes that `movemask models check --diagnose` finds.
MULTIPLIED, UNIFORM, CASTLING, PROMOTION = "multiplied", "uniform", "castling_slot", "bare_promotion"

_FEWEST = 20  # illegal moves below which equal probabilities say nothing
_FLAT_SHARE = 0.9  # of the illegal moves that have the same probability
_TOLERANCE = 1e-3  # relative; a softmax of different logits does not come so close so often
_NOTABLE = 1e-3  # probability on a wrong slot; plain softmax puts less on any


@dataclass(frozen=True, slots=True)
class Pattern:
    """A mistake that a distribution looks like: its name, the probability it explains, and a sentence."""

    name: str
    share: float
    detail: str


def flat(illegal: Float, legal: Float) -> list[Pattern]:
    """The pattern of illegal moves that nearly all have one probability above 0; none if they differ.

    `softmax(logits * mask)` does that: an illegal logit becomes 0, and not -infinity.
    """
    level = float(np.median(illegal)) if len(illegal) >= _FEWEST else 0.0
    same = np.abs(illegal - level) <= _TOLERANCE * level
    if level <= 0 or same.mean() < _FLAT_SHARE:
        return []
    share, count = float(illegal[same].sum()), int(same.sum())
    if (np.abs(legal - level) <= _TOLERANCE * level).all():
        detail = f"every move, legal or not, has {level:.3g}: the network said nothing, or its output was not read"
        return [Pattern(UNIFORM, share, detail)]
    detail = (
        f"{count} of {len(illegal)} illegal moves have the same probability, {level:.3g}: the signature of a "
        "multiplied mask, softmax(logits * mask), which makes their logits 0. Set them to -infinity before the softmax"
    )
    return [Pattern(MULTIPLIED, share, detail)]


def swapped_slots(position: Position, vocabulary: Vocabulary, share: Float) -> list[Pattern]:
    """The patterns of castling and queen promotions whose probability `[A]` is in the slot of the other form."""
    castling, promotions = _castling_pairs(position, vocabulary, share), _promotion_pairs(position, vocabulary, share)
    return [
        *_swapped(CASTLING, list(castling), _castling_rule(vocabulary.castling)),
        *_swapped(PROMOTION, list(promotions), _promotion_rule(vocabulary)),
    ]


def swapped_moves(board: chess.Board, share: Mapping[str, float], castling: Castling | None) -> list[Pattern]:
    """The same of a map of moves, in which no promotion is without a letter."""
    found: list[Pattern] = []
    if castling is not None and not board.chess960:
        pairs = []
        for move in filter(board.is_castling, board.legal_moves):
            right = form_of(board, move, castling).uci()
            wrong = next(form.uci() for form in _forms(board, move) if form.uci() != right)
            pairs.append(_Pair(right, share.get(right, 0.0), wrong, share.get(wrong, 0.0)))
        found += _swapped(CASTLING, pairs, _castling_rule(castling))
    queens = [move.uci() for move in board.legal_moves if move.promotion == chess.QUEEN]
    promotions = [_Pair(uci, share.get(uci, 0.0), uci[:4], share.get(uci[:4], 0.0)) for uci in queens]
    return found + _swapped(PROMOTION, promotions, "in UCI every promotion names its piece")


def names_of_slots(position: Position, vocabulary: Vocabulary, slots: NDArray[np.intp]) -> list[str]:
    """The moves of slots by their own squares."""
    written = Written.of_slots(boards_of([position]), np.zeros(len(slots), dtype=np.intp), slots, vocabulary)
    return uci_of(written.codes(vocabulary.bare_promotion))


def name_in_map(board: chess.Board, move: chess.Move, castling: Castling | None) -> str:
    """A legal move as a map that writes castling so would name it."""
    if castling is None or board.chess960 or not board.is_castling(move):
        return move.uci()
    return form_of(board, move, castling).uci()


def form_of(board: chess.Board, move: chess.Move, castling: Castling) -> chess.Move:
    """A castling move of standard chess in one form."""
    two_squares, takes_rook = _forms(board, move)
    return takes_rook if castling is Castling.KING_TAKES_ROOK else two_squares


@dataclass(frozen=True, slots=True)
class _Pair:
    """A move's own slot and the slot it is often looked up in by mistake, with the probability of each."""

    right: str
    on_right: float
    wrong: str
    on_wrong: float


def _swapped(name: str, pairs: Sequence[_Pair], rule: str) -> list[Pattern]:
    """The pattern of moves whose probability is on the wrong slot of a pair; `rule` says which is the right one."""
    found = [one for one in pairs if one.on_wrong >= _NOTABLE and one.on_wrong > one.on_right]
    if not found:
        return []
    seen = ", ".join(f"{one.wrong} has {one.on_wrong:.3g} and {one.right} {one.on_right:.3g}" for one in found)
    return [Pattern(name, sum(one.on_wrong for one in found), f"{seen}: {rule}")]


def _castling_pairs(position: Position, vocabulary: Vocabulary, share: Float) -> Iterator[_Pair]:
    """Each castling move that can be played, in this vocabulary's form and in the other."""
    board = position.board
    for move in () if board.chess960 else filter(board.is_castling, board.legal_moves):
        right = vocabulary.slot(move, board)
        other = next(form for form in _forms(board, move) if form != form_of(board, move, vocabulary.castling))
        wrong = _slot(position, vocabulary, other)
        if wrong >= 0:
            yield _Pair(*_named(position, vocabulary, share, right), *_named(position, vocabulary, share, wrong))


def _promotion_pairs(position: Position, vocabulary: Vocabulary, share: Float) -> Iterator[_Pair]:
    """Each promotion to a queen, in its own slot and in the one without a letter, where that is not the queen's."""
    board = position.board
    for move in board.legal_moves:
        if move.promotion == chess.QUEEN and vocabulary.bare_promotion != chess.QUEEN:
            wrong = _slot(position, vocabulary, chess.Move(move.from_square, move.to_square))
            if wrong >= 0:
                right = vocabulary.slot(move, board)
                yield _Pair(*_named(position, vocabulary, share, right), *_named(position, vocabulary, share, wrong))


def _castling_rule(castling: Castling) -> str:
    return f"castling is written {castling.value} here, and was read from the king's other square"


def _promotion_rule(vocabulary: Vocabulary) -> str:
    if vocabulary.bare_promotion == chess.KNIGHT:
        return f"in {vocabulary.name} the slot without a letter is a knight's; was a queen read from it?"
    return f"in {vocabulary.name} every promotion has a slot with its letter"


def _forms(board: chess.Board, move: chess.Move) -> tuple[chess.Move, chess.Move]:
    """A castling move of standard chess in both forms: the king's two squares, and onto the rook."""
    rank, kingside = chess.square_rank(move.from_square), board.is_kingside_castling(move)
    return (
        chess.Move(move.from_square, chess.square(6 if kingside else 2, rank)),
        chess.Move(move.from_square, chess.square(7 if kingside else 0, rank)),
    )


def _slot(position: Position, vocabulary: Vocabulary, move: chess.Move) -> int:
    """The slot of exactly these squares, without a promotion piece; -1 for none."""
    turned = vocabulary.flip.value if position.black else 0
    return int(vocabulary.lookup()[(move.from_square ^ turned) << 6 | move.to_square ^ turned])


def _named(position: Position, vocabulary: Vocabulary, share: Float, slot: int) -> tuple[str, float]:
    return names_of_slots(position, vocabulary, np.array([slot]))[0], float(share[slot])
