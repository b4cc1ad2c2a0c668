"""What everybody would lose: moves found for a whole batch that are exactly python-chess's.

Every position of the perft suites to depth two, tricky ones, games, Chess960; a million random positions when marked.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from movemask.board.legal import Rules, legal_moves
from movemask.board.move_codes import code_of, moves_of
from movemask.board.position import Position, boards_of
from tests.ground_truth import perft, tricky


def found(boards: list[chess.Board], rules: Rules) -> list[list[int]]:
    """The codes of each board's legal moves, sorted; a code that stands twice stays twice."""
    positions = [Position(board) for board in boards]
    legal = legal_moves(positions, boards_of(positions), rules)
    assert legal.in_check.tolist() == [board.is_check() for board in boards]
    assert (legal.indptr[0], legal.indptr[-1]) == (0, len(legal.codes))
    return [sorted(codes.tolist()) for codes in np.split(legal.codes, legal.indptr[1:-1])] if boards else []


def agree(boards: Iterable[chess.Board]) -> int:
    """Holds a batch by either rules to python-chess's `legal_moves`; how many boards there were."""
    batch = list(boards)
    expected = [sorted(map(code_of, board.legal_moves)) for board in batch]
    for rules in Rules:
        for board, right, codes in zip(batch, expected, found(batch, rules), strict=True):
            other = [move.uci() for move in moves_of(set(codes) ^ set(right))]
            assert codes == right, (rules, board.fen(), board.chess960, other)
    return len(batch)


def suite(name: str) -> Iterator[chess.Board]:
    for line in perft(name):
        board = chess.Board(line.fen, chess960=line.chess960)
        if board.is_valid():
            yield board


def children(boards: Iterable[chess.Board]) -> Iterator[chess.Board]:
    for board in boards:
        for move in board.legal_moves:
            board.push(move)
            yield board.copy(stack=False)
            board.pop()


def played(rng: random.Random, count: int, chess960: bool = False) -> Iterator[chess.Board]:
    """Positions of random games."""
    while count > 0:
        board = chess.Board.from_chess960_pos(rng.randrange(960)) if chess960 else chess.Board()
        for _ in range(rng.randrange(1, 200)):
            moves = list(board.legal_moves)
            if not moves or not count:
                break
            board.push(rng.choice(moves))
            yield board.copy(stack=False)
            count -= 1


def in_batches(boards: Iterable[chess.Board], size: int = 4096) -> int:
    total, batch = 0, []
    for board in boards:
        batch.append(board)
        if len(batch) == size:
            total, batch = total + agree(batch), []
    return total + (agree(batch) if batch else 0)


def test_every_position_of_the_suites() -> None:
    assert agree(suite("standard")) > 6000
    assert agree(suite("chess960")) > 800
    assert agree(board for board in (chess.Board(fen) for fen, _, _ in tricky()) if board.is_valid()) > 600


def test_what_comes_after_them() -> None:
    assert in_batches(children(list(suite("standard"))[::40])) > 3000
    assert in_batches(children(list(suite("chess960"))[::20])) > 500


def test_games() -> None:
    assert in_batches(played(random.Random(1), 8000)) == 8000
    assert in_batches(played(random.Random(2), 4000, chess960=True)) == 4000


def test_standard_and_chess960_side_by_side() -> None:
    """Castling of one kind is not written as the other's where both are in one batch."""
    mixed = [board for pair in zip(suite("standard"), suite("chess960"), strict=False) for board in pair]
    assert agree(mixed) > 1600
    castling = chess.Board("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"), chess.Board("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1")
    for board in castling:
        same_in_960 = chess.Board(board.fen(), chess960=True)
        for rules in Rules:
            standard, chess960 = found([board, same_in_960], rules)
            assert standard != chess960
            assert [standard, chess960] == [found([board], rules)[0], found([same_in_960], rules)[0]]


@pytest.mark.deep
def test_a_million_random_positions() -> None:
    assert in_batches(played(random.Random(3), 800_000)) == 800_000
    assert in_batches(played(random.Random(4), 200_000, chess960=True)) == 200_000


@pytest.mark.deep
def test_the_suites_to_depth_two() -> None:
    for name in ("standard", "chess960"):
        assert in_batches(children(children(list(suite(name))[::4]))) > 100_000


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(chess.SQUARES), st.sampled_from("PNBRQpnbrq"), max_size=24),
    st.booleans(),
    st.data(),
)
def test_any_valid_position(pieces: dict[int, str], white: bool, data: st.DataObject) -> None:
    board = chess.Board(None)
    board.turn = white
    for square, symbol in pieces.items():
        board.set_piece_at(square, chess.Piece.from_symbol(symbol))
    free = st.sampled_from(chess.SQUARES)
    for symbol in "Kk":
        board.set_piece_at(data.draw(free), chess.Piece.from_symbol(symbol))
    if board.is_valid():
        agree([board])


@pytest.mark.parametrize("rules", Rules)
def test_one_row_does_not_depend_on_its_company_and_no_row_is_fine(rules: Rules) -> None:
    boards = list(played(random.Random(5), 50))
    assert found(boards, rules) == [found([board], rules)[0] for board in boards]
    assert found([], rules) == []
    assert found([chess.Board("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")] * 2, rules) == [[], []]
