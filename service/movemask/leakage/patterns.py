"""`Pattern`: a known mistake, recognised in a single distribution of another program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import chess
import numpy as np

from movemask.board.moves import legal_moves, moves_of
from movemask.encoding.vocabulary import Castling, Vocabulary
from movemask.leakage.kinds import MULTIPLIED, UNMIRRORED
from movemask.policy.ragged import Float

#: Patterns that are not kinds of leakage. `movemask models check --diagnose` uses the same names for the same mistakes.
UNIFORM, CASTLING, PROMOTION = "uniform", "castling_slot", "bare_promotion"

_FEWEST = 219  # with fewer illegal moves, equal probabilities prove nothing: a mask of another position has up to 218
_FLAT_SHARE = 0.9  # share of illegal moves with the same probability
_TOLERANCE = 1e-3  # relative difference of equal probabilities; a softmax of different logits is rarely this flat
_NOTABLE = 1e-3  # probability on a wrong slot; plain softmax puts less there
_MOST = 0.5  # probability on moves with flipped ranks; the mistake moves nearly all of it there

_FLIPPED = str.maketrans("12345678", "87654321")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A mistake: its name, the probability that it explains, and a sentence.

    on_legal : whether this probability is on legal moves, so that it explains no leakage
    """

    name: str
    share: float
    detail: str
    on_legal: bool = False


def flat(illegal: Float, legal: Float) -> list[Pattern]:
    """Returns the pattern if nearly all illegal moves have the same probability above 0; empty if they differ.

    `softmax(logits * mask)` shows it, because it makes illegal logits 0 instead of -infinity.
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


def swapped(
    board: chess.Board,
    share: Mapping[str, float],
    castling: Castling | None,
    vocabulary: Vocabulary | None = None,
) -> list[Pattern]:
    """Returns the patterns of probability on a wrong form of a move.

    They are: castling in the other form, queen promotions in the slot without a letter, and all moves with their ranks
    flipped.

    Parameters
    ----------
    share : probability by move in UCI, with castling in the form of `castling`; None accepts either form
    vocabulary : for numbers by slot, named by their own squares; None for UCI, where promotions have a letter
    """
    legal = moves_of(legal_moves([board]).codes)
    castlings: list[tuple[str, str]] = []
    if castling is not None and not board.chess960:
        for move in filter(board.is_castling, legal):
            right = castling_move(board, move, castling)
            castlings += [
                (right.uci(), form.uci()) for form in _castling_forms(board, move) if form != right
            ]
    bare = vocabulary and vocabulary.bare_promotion
    letter = chess.piece_symbol(bare) if bare else ""
    queens = [move.uci() for move in legal if move.promotion == chess.QUEEN]
    promotions = [(uci, uci[:4] + letter) for uci in queens if letter != "q"]
    castling_rule = f"castling is written {castling and castling.value} here, and was read from the king's other square"
    return [
        *_swapped(CASTLING, castlings, share, castling_rule),
        *(
            replace(pattern, on_legal=bool(letter))
            for pattern in _swapped(PROMOTION, promotions, share, _promotion_rule(vocabulary))
        ),
        *_unmirrored({written_move(board, move, castling) for move in legal}, share),
    ]


def written_move(board: chess.Board, move: chess.Move, castling: Castling | None) -> str:
    """Returns a legal move in UCI, with castling in this form; None for python-chess's form."""
    if castling is None or board.chess960 or not board.is_castling(move):
        return move.uci()
    return castling_move(board, move, castling).uci()


def castling_move(board: chess.Board, move: chess.Move, castling: Castling) -> chess.Move:
    """Returns a castling move of standard chess in this form."""
    two_squares, takes_rook = _castling_forms(board, move)
    return takes_rook if castling is Castling.KING_TAKES_ROOK else two_squares


def _castling_forms(board: chess.Board, move: chess.Move) -> tuple[chess.Move, chess.Move]:
    """Returns a castling move of standard chess in both forms: king two squares, and king takes rook."""
    rank, kingside = chess.square_rank(move.from_square), board.is_kingside_castling(move)
    return (
        chess.Move(move.from_square, chess.square(6 if kingside else 2, rank)),
        chess.Move(move.from_square, chess.square(7 if kingside else 0, rank)),
    )


def _swapped(
    name: str, pairs: Sequence[tuple[str, str]], share: Mapping[str, float], rule: str
) -> Iterator[Pattern]:
    """Yields the pattern of moves with more probability on the wrong form.

    `pairs` holds the right and the wrong form.
    """
    masses = {uci: share.get(uci, 0.0) for pair in pairs for uci in pair}
    mistaken = [
        (right, wrong)
        for right, wrong in pairs
        if masses[wrong] >= _NOTABLE and masses[wrong] > masses[right]
    ]
    if mistaken:
        examples = ", ".join(
            f"{wrong} has {masses[wrong]:.3g} and {right} {masses[right]:.3g}"
            for right, wrong in mistaken
        )
        yield Pattern(name, sum(masses[wrong] for _, wrong in mistaken), f"{examples}: {rule}")


def _unmirrored(legal: Set[str], share: Mapping[str, float]) -> Iterator[Pattern]:
    """Yields the pattern if most of the probability is on illegal moves that are legal with their ranks flipped."""
    on = sum(share.get(uci, 0.0) for uci in {uci.translate(_FLIPPED) for uci in legal} - legal)
    if on >= _MOST:
        rule = "if the network sees the board from the side to move, flip Black's moves back, and not White's"
        yield Pattern(
            UNMIRRORED, on, f"{on:.3g} is on moves that are legal with their ranks flipped: {rule}"
        )


def _promotion_rule(vocabulary: Vocabulary | None) -> str:
    """Says which form of a promotion is right."""
    if vocabulary is None:
        return "in UCI every promotion names its piece"
    if vocabulary.bare_promotion == chess.KNIGHT:
        return f"in {vocabulary.name} the slot without a letter is a knight's; was a queen read from it?"
    return f"in {vocabulary.name} every promotion has a slot with its letter"
