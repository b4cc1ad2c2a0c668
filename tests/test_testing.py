"""What a user of other networks would lose: a test that finds their mask's mistakes, and says where and why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from movemask.board.position import Position
from movemask.client.local import Network
from movemask.encoding.variations import varied_vocabulary
from movemask.encoding.vocabularies import vocabulary, vocabulary_names
from movemask.errors import ContractError, InvalidFen, InvalidParameter, InvalidPosition
from movemask.testing import POSITIONS, assert_masked
from tests.conftest import ROOT

Vector = NDArray[np.floating]


def failure(policy: Any, *arguments: Any, **options: Any) -> str:
    """The text of the AssertionError."""
    with pytest.raises(AssertionError) as raised:
        assert_masked(policy, *arguments, **options)
    text = str(raised.value)
    assert len(text.splitlines()) <= 12
    return text


def weighted(moves: Iterable[chess.Move]) -> dict[str, float]:
    """A distribution over moves, without two that are equal."""
    weights = {move.uci(): 1.0 + place for place, move in enumerate(moves)}
    return {uci: weight / sum(weights.values()) for uci, weight in weights.items()}


def right(fen: str) -> dict[str, float]:
    return weighted(chess.Board(fen).legal_moves)


def softmax(logits: Vector) -> Vector:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def test_the_shipped_network_and_answers_written_down_before_pass(network: Network) -> None:
    assert_masked(lambda fen: network.policy(chess.Board(fen)).probabilities)
    assert_masked({fen: right(fen) for fen in POSITIONS})


@settings(max_examples=20)
@given(
    st.sampled_from(vocabulary_names()),
    st.integers(0, 2**32 - 1),
    st.floats(0.1, 10),
    st.sampled_from([np.float32, np.float64]),
)
def test_a_softmax_over_the_legal_slots_passes(name: str, seed: int, scale: float, dtype: Any) -> None:
    words, logits = vocabulary(name), (np.random.default_rng(seed).normal(size=5000) * scale).astype(dtype)

    def policy(fen: str) -> Vector:
        mask = np.full(len(words), -np.inf, dtype=dtype)
        mask[words.legal_slots(Position.read(fen))[1]] = 0
        return softmax(logits[: len(words)] + mask)

    assert_masked(policy, vocabulary=name)


def test_the_positions_are_what_they_say() -> None:
    boards = {fen: chess.Board(fen) for fen in POSITIONS}
    assert all(board.is_valid() and any(board.legal_moves) for board in boards.values())
    for turn in chess.COLORS:
        (most, *_, few) = sorted((board for board in boards.values() if board.turn == turn), key=_freedom)
        assert (most.legal_moves.count(), few.legal_moves.count()) == (218, 1)


def _freedom(board: chess.Board) -> int:
    return -board.legal_moves.count()


def unsafe(board: chess.Board) -> Iterator[chess.Move]:
    yield from board.pseudo_legal_moves


def castling_through_check(board: chess.Board) -> Iterator[chess.Move]:
    for side, path in ((chess.G1, chess.BB_F1 | chess.BB_G1), (chess.C1, chess.BB_B1 | chess.BB_C1 | chess.BB_D1)):
        turned = 0 if board.turn else 56
        squares = path if board.turn else chess.flip_vertical(path)
        kingside = side == chess.G1
        if not board.occupied & squares and (
            board.has_kingside_castling_rights(board.turn) if kingside else board.has_queenside_castling_rights(board.turn)
        ):
            yield chess.Move(chess.E1 ^ turned, side ^ turned)


def castling_with_every_right(board: chess.Board) -> Iterator[chess.Move]:
    other = board.copy()
    other.castling_rights = other.rooks & chess.BB_CORNERS
    yield from (move for move in other.legal_moves if other.is_castling(move))


def castling_over_pieces(board: chess.Board) -> Iterator[chess.Move]:
    other = board.copy()
    for square in chess.SquareSet(board.occupied & ~board.kings & ~board.rooks):
        other.remove_piece_at(square)
    yield from (move for move in other.legal_moves if other.is_castling(move))


def en_passant_at_any_time(board: chess.Board) -> Iterator[chess.Move]:
    other = board.copy()
    for square in chess.SquareSet(board.pawns & board.occupied_co[not board.turn] & chess.BB_RANK_5):
        other.ep_square = square + 8
        yield from (move for move in other.generate_legal_ep())


def double_step_over_a_piece(board: chess.Board) -> Iterator[chess.Move]:
    for square in chess.SquareSet(board.pawns & board.occupied_co[board.turn] & chess.BB_RANK_2):
        if board.turn and not board.piece_at(square + 16):
            yield chess.Move(square, square + 16)


def around_the_board(board: chess.Board) -> Iterator[chess.Move]:
    for square in chess.SquareSet(board.knights & board.occupied_co[board.turn]):
        for step in (17, 15, 10, 6, -6, -10, -15, -17):
            if 0 <= square + step < 64 and not board.piece_at(square + step):
                yield chess.Move(square, square + step)


def as_white(board: chess.Board) -> Iterator[chess.Move]:
    other = board.copy()
    other.turn = chess.WHITE
    yield from other.pseudo_legal_moves


@pytest.mark.parametrize(
    ("extra", "cause", "shown"),
    [
        (unsafe, "leaves_king_in_check", "pinned pieces"),
        (unsafe, "leaves_king_in_check", "en passant that exposes the king"),
        (unsafe, "leaves_king_in_check", "double check"),
        (castling_through_check, "castling_path", "castling over an attacked square"),
        (castling_through_check, "castling_path", "castling out of check"),
        (castling_with_every_right, "castling_right", "no right to castle"),
        (castling_over_pieces, "castling_path", "castling blocked"),
        (en_passant_at_any_time, "en_passant", "en passant a move too late"),
        (double_step_over_a_piece, "blocked", "blocked pawns"),
        (around_the_board, "wrong_geometry", "knights on the edge of the board"),
        (as_white, "enemy_piece", "the start position"),
    ],
)
def test_a_rule_that_a_mask_forgets_is_found_where_it_matters(
    extra: Callable[[chess.Board], Iterator[chess.Move]], cause: str, shown: str
) -> None:
    def policy(fen: str) -> dict[str, float]:
        return weighted([*chess.Board(fen).legal_moves, *extra(chess.Board(fen))])

    for fen in (fen for fen, shows in POSITIONS.items() if shows == shown):
        if any(not chess.Board(fen).is_legal(move) for move in extra(chess.Board(fen))):
            found = failure(policy, [fen])
            assert f"{fen} ({shown})" in found
            assert f"({cause})" in found
            break
    else:
        pytest.fail(f"{shown!r} does not show it")
    assert cause in failure(policy)


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        (lambda board, move: not board.is_en_passant(move), "en passant out of check"),
        (lambda board, move: not board.is_castling(move), "castling to both sides"),
        (lambda board, move: move.promotion in (None, chess.QUEEN), "promotion on every file"),
        (lambda board, move: move.promotion is None or not board.is_capture(move), "promotion by capture"),
        (lambda board, move: not (board.is_castling(move) and board.attackers(not board.turn, move.to_square - 1)),
         "queenside castling with b1 attacked, which is legal"),
        (lambda board, move: list(board.legal_moves).index(move) < 128, "218 legal moves"),
    ],
)
def test_a_legal_move_that_a_mask_forbids_is_missed(
    kept: Callable[[chess.Board, chess.Move], bool], shown: str
) -> None:
    def policy(fen: str) -> dict[str, float]:
        board = chess.Board(fen)
        return weighted(move for move in board.legal_moves if kept(board, move))

    found = failure(policy)
    assert f"({shown})" in found
    assert "legal moves with 0: " in found
    assert "illegal moves have" not in found.replace("illegal moves may have", "")
