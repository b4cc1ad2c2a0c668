"""Writes the results of a search: scores, lc0's VerboseMoveStats, and the table of `eval`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import chess

from movemask.encoding.vocabularies import vocabulary
from movemask.local.distribution import Policy, Value

#: lc0's fields WL, D and M of a move without a value, and its field V.
_UNKNOWN, _UNKNOWN_V = "(WL:  -.-----) (D: -.---) (M:  -.-) ", "(V:  -.----) "


def centipawns(value: Value) -> int:
    """Returns an expected score in centipawns by lc0's formula. 0.5 gives 0.

    Source: `src/mcts/search.cc`, score type `centipawn`.
    """
    return round(90 * math.tan(1.5637541897 * (2 * min(max(value.score, 0.0), 1.0) - 1)))


def score(value: Value | None, *, mates: bool, wdl: bool) -> str:
    """Returns `score … wdl …` for the side to move, with a blank at the end. Empty without a value."""
    if value is None:
        return "score mate 1 " if mates else ""
    text = "score mate 1 " if mates else f"score cp {centipawns(value)} "
    if wdl and value.win is not None and value.loss is not None:
        win, loss = round(1000 * value.win), round(1000 * value.loss)
        win = min(win, 1000 - loss)
        text += f"wdl {win} {1000 - win - loss} {loss} "
    return text


def move_stats(policy: Policy, values: Mapping[chess.Move, Value | None]) -> list[str]:
    """Returns lc0's VerboseMoveStats: a line for each legal move, and a line `node` for the
    position.

    The least probable move comes first.

    values : values of the positions after the evaluated moves, for the mover; None without a value
        output

    N is 1 for an evaluated move. For other moves, Q is the position's value, as in lc0. U is 0 and
    S is Q, because nothing is explored. The number in brackets is lc0's index of the move. The
    format is that of `Search::GetVerboseStats` in lc0's `src/mcts/search.cc`, column by column.
    """
    board, lc0 = policy.board, vocabulary("lc0-1858")
    by_rank = sorted(
        policy.probabilities, key=lambda move: (move in values, policy.probabilities[move])
    )
    lines = []
    for move in by_rank:
        index, visits = lc0.slot(move, board), int(move in values)
        value = values.get(move)
        q = _balance(value if value is not None else policy.value)
        ends = visits and _after(board, move).is_game_over()
        lines.append(
            f"info string {board.uci(move):<5} ({index:<4}) {_counts(visits, policy.probabilities[move])}"
            + _stats(value)
            + f"(Q: {q:8.5f}) (U: {0:6.5f}) (S: {q:8.5f}) {_v(value)}{'(T) ' if ends else ''}"
        )
    visited = sum(policy.probabilities[move] for move in values)
    node = f"info string node  ({len(by_rank):4}) {_counts(1 + len(values), visited)}"
    lines.append(
        node + f"{_stats(policy.value)}(Q: {_balance(policy.value):8.5f}) {_v(policy.value)}"
    )
    return lines


def _counts(visits: int, probability: float) -> str:
    decimals = 1 if probability >= 0.99995 else 2
    return f"N: {visits:7} (+{0:2}) (P: {100 * probability:5.{decimals}f}%) "


def _stats(value: Value | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"(WL: {_balance(value):8.5f}) (D: {value.draw or 0.0:5.3f}) (M: {0:4.1f}) "


def _v(value: Value | None) -> str:
    return _UNKNOWN_V if value is None else f"(V: {_balance(value):7.4f}) "


def _balance(value: Value | None) -> float:
    """Returns an expected score from -1 for a loss to 1 for a win; 0 without a value."""
    return 0.0 if value is None else 2 * value.score - 1


def _after(board: chess.Board, move: chess.Move) -> chess.Board:
    after = board.copy(stack=False)
    after.push(move)
    return after


def evaluation(policy: Policy) -> list[str]:
    """Returns the lines that `eval` prints: the position's forecast and each move's probability."""
    lines = [f"Model: {policy.model}"]
    if policy.elo is not None:
        lines.append(f"Ratings: {policy.elo[0]:g} to move, {policy.elo[1]:g} for the opponent")
    value = policy.value
    if value is not None:
        parts = zip(("win", "draw", "loss"), (value.win, value.draw, value.loss), strict=True)
        shares = ", ".join(
            f"{name} {100 * share:.1f} %" for name, share in parts if share is not None
        )
        expected = f"Expected score for the side to move: {100 * value.score:.1f} %"
        lines.append(f"{expected} ({shares})" if shares else expected)
    board = policy.board
    for move, probability in policy.probabilities.items():
        lines.append(f"{board.san(move):<7} {board.uci(move):<5} {100 * probability:6.2f} %")
    return lines if policy.probabilities else [*lines, "The game is over."]
