"""What everybody would lose: moves found for a whole batch that are exactly python-chess's.

Every position of the perft suites to depth two, tricky ones, games, Chess960; a million random positions when marked.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from movemask.board.boards import Boards
from movemask.board.legality import legal_moves
from movemask.board.move_codes import moves_of
from movemask.board.position import Position
from movemask.errors import MovemaskError
from movemask.vocabulary.legal_slots import legal_slots
from movemask.vocabulary.vocabularies import vocabulary, vocabulary_names
from tests.ground_truth import perft, tricky


def found(boards: list[chess.Board]) -> list[set[chess.Move]]:
    """The moves of each board as python-chess writes them."""
    legal = legal_moves(Boards.of(boards))
    sets: list[set[chess.Move]] = [set() for _ in boards]
    columns = (legal.row, legal.source, legal.target, legal.promotion, legal.rook)
    for row, source, target, promotion, rook in zip(*(column.tolist() for column in columns), strict=True):
        board = boards[row]
        flip = 56 if board.turn == chess.BLACK else 0
        to = rook if rook >= 0 and board.chess960 else target
        move = chess.Move(source ^ flip, to ^ flip, promotion or None)
        assert move not in sets[row]
        sets[row].add(move)
    return sets


def agree(boards: Iterable[chess.Board]) -> int:
    """Holds a batch to python-chess; how many boards there were."""
    batch = list(boards)
    for board, moves in zip(batch, found(batch), strict=True):
        expected = set(board.legal_moves)
        assert moves == expected, (board.fen(), board.chess960, moves ^ expected)
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


def test_one_row_does_not_depend_on_its_company_and_no_row_is_fine() -> None:
    boards = list(played(random.Random(5), 50))
    assert found(boards) == [found([board])[0] for board in boards]
    assert found([]) == []
    assert found([chess.Board("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")] * 2) == [set(), set()]


@pytest.mark.parametrize("name", vocabulary_names())
def test_slots_in_every_vocabulary_and_its_errors(name: str) -> None:
    words = vocabulary(name)
    boards = [*list(suite("standard"))[::15], *list(suite("chess960"))[::15]]
    positions = [Position(board) for board in boards]
    together = legal_slots(positions, words)
    for position, one in zip(positions, together, strict=True):
        if isinstance(one, MovemaskError):
            with pytest.raises(type(one), match=re.escape(str(one))):
                words.legal_slots(position)
        else:
            moves, slots = words.legal_slots(position)
            assert moves_of(one.codes) == moves
            np.testing.assert_array_equal(one.slots, slots)
            assert one.in_check == position.board.is_check()
    few = legal_slots(positions[:3], words)
    assert [moves_of(one.codes) for one in few if not isinstance(one, MovemaskError)] == [
        moves_of(one.codes) for one in together[:3] if not isinstance(one, MovemaskError)
    ]
