"""Known mistakes that show in a single distribution: flat illegal mass, and mass on a move's other slot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from movemask.board.moves import legal_moves, moves_of, uci_of
from movemask.board.position import Position, boards_of
from movemask.encoding.forms import Castling
from movemask.encoding.vocabulary import Vocabulary
from movemask.leakage.causes import Written
from movemask.numeric.ragged import Float

#: Names shared with the kinds (docs/leakage.md) and with the mistakes that `movemask models check --diagnose` finds.
MULTIPLIED, UNIFORM, CASTLING, PROMOTION = "multiplied", "uniform", "castling_slot", "bare_promotion"

_FEWEST = 20  # with fewer illegal moves, equal probabilities prove nothing
_FLAT_SHARE = 0.9  # share of illegal moves with the same probability
_TOLERANCE = 1e-3  # relative; a softmax of different logits is rarely this flat
_NOTABLE = 1e-3  # probability on a wrong slot; plain softmax puts less there


@dataclass(frozen=True, slots=True)
class Pattern:
    """A mistake that a distribution is typical of: its name, the probability it accounts for, and a sentence."""

    name: str
    share: float
    detail: str


def flat(illegal: Float, legal: Float) -> list[Pattern]:
    """The pattern of nearly all illegal moves having one and the same probability above 0; empty if they differ.

    `softmax(logits * mask)` does that: it makes illegal logits 0 instead of -infinity.
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
    """The patterns of castling and queen promotions whose probability `[A]` is in the slot of their other form."""
    return [
        *_swapped(CASTLING, _castling_pairs(position, vocabulary, share), _castling_rule(vocabulary.castling)),
        *_swapped(PROMOTION, _promotion_pairs(position, vocabulary, share), _promotion_rule(vocabulary)),
    ]


def swapped_moves(board: chess.Board, share: Mapping[str, float], castling: Castling | None) -> list[Pattern]:
    """As `swapped_slots`, for a map of UCI moves, where every promotion has its letter."""
    patterns: list[Pattern] = []
    if castling is not None and not board.chess960:
        pairs = []
        for move in filter(board.is_castling, playable(board)):
            right = form_of(board, move, castling).uci()
            wrong = next(form.uci() for form in _forms(board, move) if form.uci() != right)
            pairs.append(_Pair(right, share.get(right, 0.0), wrong, share.get(wrong, 0.0)))
        patterns += _swapped(CASTLING, pairs, _castling_rule(castling))
    queens = [move.uci() for move in playable(board) if move.promotion == chess.QUEEN]
    promotions = [_Pair(uci, share.get(uci, 0.0), uci[:4], share.get(uci[:4], 0.0)) for uci in queens]
    return patterns + _swapped(PROMOTION, promotions, "in UCI every promotion names its piece")


def playable(board: chess.Board) -> tuple[chess.Move, ...]:
    """The legal moves."""
    return moves_of(legal_moves([board]).codes)


def names_of_slots(position: Position, vocabulary: Vocabulary, slots: NDArray[np.intp]) -> list[str]:
    """The moves of slots, named by their own squares."""
    written = Written.of_slots(boards_of([position]), np.zeros(len(slots), dtype=np.intp), slots, vocabulary)
    return uci_of(written.codes(vocabulary.bare_promotion))


def name_in_map(board: chess.Board, move: chess.Move, castling: Castling | None) -> str:
    """A legal move in UCI, castling in this form; as python-chess writes it if None."""
    if castling is None or board.chess960 or not board.is_castling(move):
        return move.uci()
    return form_of(board, move, castling).uci()


def form_of(board: chess.Board, move: chess.Move, castling: Castling) -> chess.Move:
    """A castling move of standard chess in this form."""
    two_squares, takes_rook = _forms(board, move)
    return takes_rook if castling is Castling.KING_TAKES_ROOK else two_squares


@dataclass(frozen=True, slots=True)
class _Pair:
    """A move's correct slot and the slot it is often mistaken for, with the probability of each."""

    right: str
    on_right: float
    wrong: str
    on_wrong: float


def _swapped(name: str, pairs: Iterable[_Pair], rule: str) -> list[Pattern]:
    """The pattern of pairs with more probability on the wrong slot; `rule` says which slot is right."""
    swapped = [pair for pair in pairs if pair.on_wrong >= _NOTABLE and pair.on_wrong > pair.on_right]
    if not swapped:
        return []
    seen = ", ".join(f"{pair.wrong} has {pair.on_wrong:.3g} and {pair.right} {pair.on_right:.3g}" for pair in swapped)
    return [Pattern(name, sum(pair.on_wrong for pair in swapped), f"{seen}: {rule}")]


def _castling_pairs(position: Position, vocabulary: Vocabulary, share: Float) -> Iterator[_Pair]:
    """Each legal castling move, in this vocabulary's form and in the other."""
    board = position.board
    for move in () if board.chess960 else filter(board.is_castling, playable(board)):
        right = vocabulary.slot(move, board)
        other = next(form for form in _forms(board, move) if form != form_of(board, move, vocabulary.castling))
        wrong = _slot(position, vocabulary, other)
        if wrong >= 0:
            yield _Pair(*_named(position, vocabulary, share, right), *_named(position, vocabulary, share, wrong))


def _promotion_pairs(position: Position, vocabulary: Vocabulary, share: Float) -> Iterator[_Pair]:
    """Each legal queen promotion, in its own slot and in the slot without a letter, where that is another one."""
    board = position.board
    for move in playable(board):
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
    """A castling move of standard chess in both forms: king two squares, and king takes rook."""
    rank, kingside = chess.square_rank(move.from_square), board.is_kingside_castling(move)
    return (
        chess.Move(move.from_square, chess.square(6 if kingside else 2, rank)),
        chess.Move(move.from_square, chess.square(7 if kingside else 0, rank)),
    )


def _slot(position: Position, vocabulary: Vocabulary, move: chess.Move) -> int:
    """The slot of these squares without a promotion piece; -1 if there is none."""
    turned = vocabulary.flip.value if position.black else 0
    return int(vocabulary.lookup()[(move.from_square ^ turned) << 6 | move.to_square ^ turned])


def _named(position: Position, vocabulary: Vocabulary, share: Float, slot: int) -> tuple[str, float]:
    return names_of_slots(position, vocabulary, np.array([slot]))[0], float(share[slot])
