"""Leaf counts of move trees whose moves come from the legal mask."""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
import pytest

from movemask.board.boards import Boards
from movemask.board.moves import legal_moves
from movemask.encoding.vocabularies import vocabulary
from movemask.encoding.vocabulary import Vocabulary
from movemask.policy.ragged import row_of_each
from tests.ground_truth import Perft, perft

START = Perft(chess.STARTING_FEN, False, {1: 20, 2: 400, 3: 8902, 4: 197281})

#: Positions that are looked up together.
BATCH = 4096


def masks(boards: Sequence[chess.Board], words: Vocabulary) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Bool `[B, A]` of a batch, as the service makes it."""
    legal = legal_moves(boards)
    _, slots, _, refused = words.slots(legal, Boards.of(boards))
    assert not refused.any()
    mask = np.zeros((len(boards), len(words)), dtype=np.bool_)
    mask[row_of_each(legal.indptr), slots] = True
    return mask


def nodes(boards: Sequence[chess.Board], depth: int, words: Vocabulary) -> list[int]:
    """Leaves below each board, with every move taken from the mask and pushed, all positions of a depth in batches."""
    counts = np.zeros(len(boards), dtype=np.int64)
    level = list(enumerate(boards))
    for left in range(depth, 0, -1):
        below: list[tuple[int, chess.Board]] = []
        for start in range(0, len(level), BATCH):
            part = level[start : start + BATCH]
            mask = masks([board for _, board in part], words)
            if left == 1:
                np.add.at(counts, [root for root, _ in part], mask.sum(axis=1))
                continue
            for place, slot in np.argwhere(mask).tolist():
                root, board = part[place]
                child = board.copy(stack=False)
                child.push(words.move(slot, board))
                below.append((root, child))
        level = below
    return [int(count) for count in counts]


def check(rows: Sequence[Perft], depth: int, words: Vocabulary) -> None:
    known = [row for row in rows if depth in row.nodes]
    boards = [chess.Board(row.fen, chess960=row.chess960) for row in known]
    for row, count in zip(known, nodes(boards, depth, words), strict=True):
        assert count == row.nodes[depth], f"{row.fen} at depth {depth}"


@pytest.mark.parametrize("name", ["lc0-1858", "maia2-1880", "movemask-1880"])
def test_start_position(name: str) -> None:
    for depth in (1, 2, 3):
        check([START], depth, vocabulary(name))


@pytest.mark.parametrize(
    ("name", "suite", "depth", "every"),
    [
        ("lc0-1858", "standard", 1, 1),
        ("lc0-1858", "standard", 2, 16),
        ("lc0-1858", "chess960", 2, 4),
        ("movemask-1880", "standard", 2, 16),
        ("movemask-1880", "chess960", 2, 16),
        ("maia2-1880", "standard", 2, 16),
    ],
)
def test_suites(name: str, suite: str, depth: int, every: int) -> None:
    check(perft(suite)[::every], depth, vocabulary(name))


@pytest.mark.deep
@pytest.mark.parametrize("name", ["lc0-1858", "maia2-1880", "movemask-1880"])
@pytest.mark.parametrize("suite", ["standard", "chess960"])
def test_suites_to_depth_three_and_four(name: str, suite: str) -> None:
    words, rows = vocabulary(name), perft(suite)
    if suite == "chess960" and not words.chess960:
        pytest.skip(f"{name} has no Chess960")
    check([START], 4, words)
    for row in rows[::4]:
        check([row], 3, words)
    for row in rows[::100]:
        check([row], 4, words)
