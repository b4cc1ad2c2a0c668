"""Strength as players feel it: games of a network against itself at two ratings, and what it sees at three.

Every position comes with the game that led to it, where there is one. Both players are told both ratings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import chess
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from movemask.board.moves import moves_of
from movemask.board.position import Elo, Position
from movemask.encoding.vocabularies import vocabulary
from movemask.evaluate import evaluate_positions
from movemask.network.model import Model
from movemask.policy.softmax import softmax
from training.config import Data
from training.samples import HISTORY, held_out_games
from training.shards import EN_PASSANT, VOCABULARY

RATINGS = (1100, 1600, 2200)
STRONG, WEAK = 2200, 1100
LONGEST = 300  # plies, after which a game is a draw
AT_ONCE = 128  # positions evaluated together
VALUES = (0, 1, 3, 3, 5, 9, 0)  # of python-chess's kinds of pieces
AHEAD = 5  # what a side has more that must not stalemate
CAPTURE = ("6k1/5ppp/8/3q4/8/8/5PPP/3R2K1 w - - 0 1", chess.Move.from_uci("d1d5"))

Floats = NDArray[np.float64]
Policy = tuple[list[chess.Move], Floats]  # the legal moves and their probabilities
Wins = Callable[[chess.Board], bool]
S = TypeVar("S")  # a player, such as its rating


@dataclass(frozen=True)
class Match:
    """Scores of the higher rating, one for each game, and how the games ended."""

    scores: Floats
    endings: Counter[str]

    def __str__(self) -> str:
        error = self.scores.std(ddof=1) / np.sqrt(len(self.scores))
        return f"{self.scores.mean():.3f} ± {error:.3f}"


def match(model: Model, lines: Sequence[Sequence[chess.Move]], seed: int) -> Match:
    """Games at STRONG against WEAK, two from each opening with the colours exchanged."""
    boards = [chess.Board() for _ in range(2 * len(lines))]
    for board, line in zip(boards, [line for line in lines for _ in range(2)], strict=True):
        for move in line:
            board.push(move)
    ratings = [(STRONG, WEAK), (WEAK, STRONG)] * len(lines)

    def asked(positions: Sequence[Position], sides: Sequence[tuple[int, int]]) -> Iterator[Policy]:
        return policies(model, positions, [Elo(*side) for side in sides])

    play(boards, ratings, asked, np.random.default_rng(seed), model.name)
    outcomes = [board.outcome(claim_draw=True) for board in boards]
    winners = [None if outcome is None else outcome.winner for outcome in outcomes]
    colors = [chess.WHITE, chess.BLACK] * len(lines)  # of the higher rating
    scores = [0.5 if who is None else float(who == color) for who, color in zip(winners, colors, strict=True)]
    return Match(np.array(scores), Counter(str(_ending(board)) for board in boards))


def play(
    boards: Sequence[chess.Board],
    players: Sequence[tuple[S, S]],
    policy_of: Callable[[Sequence[Position], Sequence[tuple[S, S]]], Iterable[Policy]],
    draw: np.random.Generator,
    name: str,
) -> None:
    """Plays all games to their ends, each move drawn from the policy.

    players : White's and Black's of each game
    policy_of : takes positions, and for each the player to move and its opponent; returns the policies
    name : of the progress bar; none is shown without one
    """
    going = list(range(len(boards)))
    with tqdm(total=len(boards), desc=name, unit=" games", leave=False, disable=not name) as bar:
        while going:
            positions = [Position(boards[game].copy(stack=HISTORY)) for game in going]
            sides = [players[game] if boards[game].turn else players[game][::-1] for game in going]
            for game, (moves, shares) in zip(going, policy_of(positions, sides), strict=True):
                boards[game].push(moves[draw.choice(len(moves), p=shares)])
            left = [game for game in going if _ending(boards[game]) is None]
            bar.update(len(going) - len(left))
            going = left


def openings(data: Data, split: str, count: int, seed: int) -> list[list[chess.Move]]:
    """The first moves of so many games of a split, no line twice."""
    lines = {tuple(moves[: data.opening_plies]): None for moves in _games(data, split) if len(moves) > LONGEST // 10}
    chosen = np.random.default_rng(seed).permutation(len(lines))[:count]
    choices = list(lines)
    return [list(choices[place]) for place in chosen]


def positions_with(data: Data, split: str, count: int, condition: Wins) -> list[Position]:
    """The first position of each game with a move to a board that meets `condition`, for `count` games."""
    return list(islice(_first_with(data, split, condition), count))


def is_mate(board: chess.Board) -> bool:
    return board.is_checkmate()


def is_wasted(board: chess.Board) -> bool:
    """Whether a side that is well ahead has just stalemated the other."""
    return board.is_stalemate() and _material(board, not board.turn) - _material(board, board.turn) >= AHEAD


def probability_of(model: Model, positions: Sequence[Position], condition: Wins) -> dict[int, tuple[float, float]]:
    """By rating the mean probability of the moves to a board that meets `condition`, and its standard error."""
    boards = [position.board for position in positions]
    leads = [{move for move in board.legal_moves if condition(_after(board, move))} for board in boards]
    by_rating = {}
    for rating in RATINGS:
        answers = policies(model, positions, [Elo(rating, rating)] * len(positions))
        shares = np.array(
            [
                sum(share for move, share in zip(moves, row, strict=True) if move in good)
                for good, (moves, row) in zip(leads, answers, strict=True)
            ]
        )
        by_rating[rating] = float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(len(shares)))
    return by_rating


def forecast(model: Model) -> dict[int, tuple[float, float | None]]:
    """By rating the probability of the one obvious capture of CAPTURE, and of a win as the value has it."""
    position = Position.read(CAPTURE[0])
    elos = [Elo(rating, rating) for rating in RATINGS]
    evaluated = evaluate_positions(model, [position] * len(elos), elos)
    value = evaluated.value
    wins = [None] * len(elos) if value is None or value.shape[1] != 3 else value[:, 0].tolist()
    shares = [
        float(dict(zip(moves, row, strict=True))[CAPTURE[1]])
        for moves, row in policies(model, [position] * len(elos), elos)
    ]
    return dict(zip(RATINGS, zip(shares, wins, strict=True), strict=True))


def policies(model: Model, positions: Sequence[Position], elos: Sequence[Elo]) -> Iterator[Policy]:
    """The legal moves of each position and their probabilities."""
    for start in range(0, len(positions), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        evaluated = evaluate_positions(model, positions[part], elos[part])
        shares = softmax(evaluated.unmasked.legal_logits, evaluated.batch.indptr).astype(np.float64)
        for row in range(len(evaluated.batch)):
            legal = evaluated.batch.legal(row)
            yield list(moves_of(evaluated.batch.codes[legal])), shares[legal] / shares[legal].sum()


def _ending(board: chess.Board) -> str | None:
    """How a game ended, in a word; None while it goes on."""
    outcome = board.outcome(claim_draw=True)
    if outcome is not None:
        return outcome.termination.name.lower().replace("_", " ")
    return "too long" if len(board.move_stack) >= LONGEST else None


def _games(data: Data, split: str) -> Iterator[list[chess.Move]]:
    slots = vocabulary(VOCABULARY)
    for _, _, plies in held_out_games(data, split):
        board = chess.Board()
        for packed in plies:
            board.push(slots.move(packed & (EN_PASSANT - 1), board))
        yield list(board.move_stack)


def _first_with(data: Data, split: str, condition: Wins) -> Iterator[Position]:
    for moves in _games(data, split):
        board = chess.Board()
        for move in moves:
            if _may_end(board) and any(condition(_after(board, one)) for one in board.legal_moves):
                yield Position(board.copy(stack=HISTORY))
                break
            board.push(move)


def _may_end(board: chess.Board) -> bool:
    """Whether a mate or a stalemate may be one move away, at little cost: the other king has few squares to go to."""
    king = board.king(not board.turn)
    assert king is not None
    free = chess.BB_KING_ATTACKS[king] & ~board.occupied_co[not board.turn]
    return sum(not board.is_attacked_by(board.turn, square) for square in chess.scan_forward(free)) <= 3


def _after(board: chess.Board, move: chess.Move) -> chess.Board:
    after = board.copy(stack=False)
    after.push(move)
    return after


def _material(board: chess.Board, color: chess.Color) -> int:
    return sum(VALUES[kind] * len(board.pieces(kind, color)) for kind in chess.PIECE_TYPES)
