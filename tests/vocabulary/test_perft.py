"""What a user would lose: a legal move, or a move more. Node counts through our own code: mask → slot → move → push."""

from __future__ import annotations

import chess
import numpy as np
import pytest

from movemask.board.position import Position
from movemask.vocabulary.vocabularies import vocabulary
from movemask.vocabulary.vocabulary import Vocabulary
from tests.ground_truth import Perft, perft

START = Perft(chess.STARTING_FEN, False, {1: 20, 2: 400, 3: 8902, 4: 197281})


def nodes(board: chess.Board, depth: int, words: Vocabulary) -> int:
    """Leaves below `board`, with every move taken from the mask and pushed."""
    _, slots = words.legal_slots(Position(board))
    mask = np.zeros(len(words), dtype=bool)
    mask[slots] = True
    if depth == 1:
        return int(mask.sum())
    count = 0
    for slot in np.flatnonzero(mask).tolist():
        board.push(words.move(slot, board))
        count += nodes(board, depth - 1, words)
        board.pop()
    return count


def check(row: Perft, depth: int, words: Vocabulary) -> None:
    if depth in row.nodes:
        board = chess.Board(row.fen, chess960=row.chess960)
        assert nodes(board, depth, words) == row.nodes[depth], f"{row.fen} at depth {depth}"


@pytest.mark.parametrize("name", ["lc0-1858", "maia2-1880", "movemask-1880"])
def test_start_position(name: str) -> None:
    for depth in (1, 2, 3):
        check(START, depth, vocabulary(name))


@pytest.mark.parametrize("name", ["lc0-1858", "movemask-1880"])
@pytest.mark.parametrize(("suite", "depth", "every"), [("standard", 1, 1), ("standard", 2, 4), ("chess960", 2, 1)])
def test_suites(name: str, suite: str, depth: int, every: int) -> None:
    for row in perft(suite)[::every]:
        check(row, depth, vocabulary(name))


def test_maia2_suite() -> None:
    for row in perft("standard")[::16]:
        check(row, 2, vocabulary("maia2-1880"))


@pytest.mark.deep
@pytest.mark.parametrize("name", ["lc0-1858", "maia2-1880", "movemask-1880"])
@pytest.mark.parametrize("suite", ["standard", "chess960"])
def test_suites_to_depth_three_and_some_to_four(name: str, suite: str) -> None:
    words = vocabulary(name)
    if suite == "chess960" and not words.chess960:
        pytest.skip(f"{name} has no Chess960")
    check(START, 4, words)
    for index, row in enumerate(perft(suite)):
        check(row, 2, words)
        check(row, 3, words)
        if index % 100 == 0:
            check(row, 4, words)
