"""`Vocabulary.slots` of batches against `Vocabulary.slot` of single moves.

The scalar `Vocabulary.slot` of each of python-chess's moves is the judge, itself held to lc0's, Maia's and pgx's own
slots in `test_vocabularies`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import chess
import pytest

from movemask.board.boards import Boards
from movemask.board.moves import code_of, legal_moves
from movemask.board.position import Position, boards_of
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.encoding.vocabulary import Castling, Vocabulary
from movemask.errors import MoveOutsideVocabulary, UnsupportedVariant
from tests.ground_truth import played, suite, tricky


def one_by_one(board: chess.Board, words: Vocabulary) -> list[tuple[int, int]] | None:
    """Slot and code of each legal move, in the order of slots; None where the vocabulary cannot write them."""
    if board.chess960 and not words.chess960:
        return None
    pairs = []
    for move in board.legal_moves:
        try:
            pairs.append((words.slot(move, board), code_of(move)))
        except MoveOutsideVocabulary:
            if words.complete:
                return None
    separate = len({slot for slot, _ in pairs}) == len(pairs)
    return sorted(pairs) if separate and (pairs or not any(board.legal_moves)) else None


def agree(boards: Sequence[chess.Board], words: Vocabulary) -> int:
    """Holds a batch to each board alone; how many of them are refused."""
    expected = [one_by_one(board, words) for board in boards]
    legal = legal_moves(boards)
    assert legal.in_check.tolist() == [board.is_check() for board in boards]
    codes, slots, indptr, refused = words.slots(legal, Boards.of(boards))
    assert refused.tolist() == [right is None for right in expected]
    bounds = indptr.tolist()
    for row, right in enumerate(expected):
        own = slice(bounds[row], bounds[row + 1])
        if right is not None:
            assert list(zip(slots[own].tolist(), codes[own].tolist(), strict=True)) == right, boards[row].fen()
    return sum(right is None for right in expected)


@cache
def mixed(every: int) -> list[chess.Board]:
    """Standard positions of the suites, tricky ones, and Chess960."""
    unusual = [board for fen, _, _ in tricky() if (board := chess.Board(fen)).is_valid()]
    return [*suite("standard", every), *unusual, *suite("chess960", every)]


@pytest.mark.parametrize("name", vocabulary_names())
def test_batch_slots_match_single_moves(name: str) -> None:
    words, rng = vocabulary(name), random.Random(11)
    boards = mixed(8)
    refused = agree(boards, words)
    assert refused == (0 if words.chess960 else sum(board.chess960 for board in boards))
    agree([*played(rng, 800), *played(rng, 200, chess960=True)], words)


def test_unwritable_positions_are_refused_with_reason() -> None:
    every = [(source, target, None) for source in chess.SQUARES for target in chess.SQUARES if source != target]
    no_promotion = Vocabulary("bare", every, castling=Castling.KING_TWO_SQUARES)
    promotion = Position.read("7k/P7/8/8/8/8/8/K7 w - - 0 1")
    positions = [Position.read(), promotion, Position.read(chess960=True), Position.read(moves=["e2e4"])]
    legal = legal_moves(position.board for position in positions)
    codes, slots, _, refused = no_promotion.slots(legal, boards_of(positions))
    assert refused.tolist() == [False, True, True, False]
    assert len(codes) == len(slots)
    assert isinstance(no_promotion.refusal(positions[2]), UnsupportedVariant)
    assert "a7a8q in '7k/P7" in str(no_promotion.refusal(promotion))
