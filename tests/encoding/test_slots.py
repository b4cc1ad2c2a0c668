"""What a user would lose in a batch: a move at another slot than it has alone, or a refusal of its own.

The scalar `Vocabulary.slot` of each of python-chess's moves is the judge, itself held to lc0's, Maia's and pgx's own
slots in `test_vocabularies`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from movemask.board.boards import Boards
from movemask.board.moves import code_of, legal_moves
from movemask.board.position import Position, boards_of
from movemask.encoding.variations import variation, variation_names, varied_vocabulary
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.encoding.vocabulary import Castling, Vocabulary
from movemask.errors import MoveOutsideVocabulary, UnsupportedVariant
from tests.ground_truth import played, suite, tricky


def one_by_one(board: chess.Board, words: Vocabulary) -> list[tuple[int, int]] | None:
    """Slot and code of each legal move, in the order of slots; None where the vocabulary cannot write them."""
    if board.chess960 and not words.chess960:
        return None
    try:
        pairs = sorted((words.slot(move, board), code_of(move)) for move in board.legal_moves)
    except MoveOutsideVocabulary:
        return None
    return pairs if len({slot for slot, _ in pairs}) == len(pairs) else None


def agree(boards: Sequence[chess.Board], words: Vocabulary) -> int:
    """Holds a batch to each board alone; how many of them are refused."""
    expected = [one_by_one(board, words) for board in boards]
    legal = legal_moves(boards)
    assert legal.in_check.tolist() == [board.is_check() for board in boards]
    codes, slots, refused = words.slots(legal, Boards.of(boards))
    assert refused.tolist() == [right is None for right in expected]
    bounds = legal.indptr.tolist()
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
def test_every_move_of_the_suites_and_of_games(name: str) -> None:
    words, rng = vocabulary(name), random.Random(11)
    boards = mixed(8)
    refused = agree(boards, words)
    assert refused == (0 if words.chess960 else sum(board.chess960 for board in boards))
    agree([*played(rng, 800), *played(rng, 200, chess960=True)], words)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (name, change)
        for name in ("lc0-1858", "maia2-1880", "alphazero-4672")
        for change in variation_names()
        if variation(change).applies("none", vocabulary(name))
    ],
)
def test_vocabularies_that_differ_in_one_thing(name: str, change: str) -> None:
    agree(mixed(64), varied_vocabulary(vocabulary(name), [change]))


def test_only_those_that_cannot_be_written_are_refused_and_each_with_its_reason() -> None:
    every = [(source, target, None) for source in chess.SQUARES for target in chess.SQUARES if source != target]
    no_promotion = Vocabulary("bare", every, castling=Castling.KING_TWO_SQUARES)
    promotion = Position.read("7k/P7/8/8/8/8/8/K7 w - - 0 1")
    positions = [Position.read(), promotion, Position.read(chess960=True), Position.read(moves=["e2e4"])]
    legal = legal_moves(position.board for position in positions)
    codes, slots, refused = no_promotion.slots(legal, boards_of(positions))
    assert refused.tolist() == [False, True, True, False]
    assert len(codes) == len(slots)
    assert isinstance(no_promotion.refusal(positions[2]), UnsupportedVariant)
    assert "a7a8q in '7k/P7" in str(no_promotion.refusal(promotion))


def test_a_bare_promotion_is_the_piece_it_stands_for_and_no_other() -> None:
    every = [(source, target, None) for source in chess.SQUARES for target in chess.SQUARES if source != target]
    pieces = (chess.ROOK, chess.BISHOP, chess.QUEEN)
    written = [(chess.A7, chess.A8, piece) for piece in pieces]
    words = Vocabulary("knights", [*every, *written], castling=Castling.KING_TWO_SQUARES, bare_promotion=chess.KNIGHT)
    assert agree([chess.Board("7k/P7/8/8/8/8/8/K7 w - - 0 1")], words) == 0
    assert agree([chess.Board("7k/1P6/8/8/8/8/8/K7 w - - 0 1"), chess.Board()], words) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6), st.sampled_from(vocabulary_names()), st.booleans())
def test_a_batch_is_its_positions(seeds: list[int], name: str, chess960: bool) -> None:
    boards = [board for seed in seeds for board in played(random.Random(seed), 5, chess960=chess960 and seed % 2 == 0)]
    agree(boards, vocabulary(name))


def test_no_position_and_no_move() -> None:
    words = vocabulary("lc0-1858")
    codes, slots, refused = words.slots(legal_moves([]), Boards.of([]))
    assert (len(codes), len(slots), len(refused)) == (0, 0, 0)
    stalemate = chess.Board("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")
    assert agree([stalemate, chess.Board(), stalemate], words) == 0
    assert slots.dtype == np.intp
