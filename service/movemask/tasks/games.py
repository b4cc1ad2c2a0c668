"""Games judged: how probable each move that was played is to the network, and what each side's moves come to."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import chess
import numpy as np

from movemask.answering import Answer, Asked, Outcome
from movemask.board.pgn import Game, Ply, read_games
from movemask.errors import LimitExceeded, MovemaskError
from movemask.inference.batcher import Batcher
from movemask.numeric import losses
from movemask.pipeline import Pipeline
from movemask.policy import Rule

#: Games that are read before a cancelled request is noticed.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class MoveJudged:
    """A move that was played. `rank` counts from 1; `surprise` is `-log p` in nats, finite where `p` itself
    underflows, inf where it is beyond a float: at temperatures of 1e-307 and less."""

    ply: int
    move: chess.Move
    probability: float
    rank: int
    surprise: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class SideJudged:
    """The moves of one side: mean surprise (cross-entropy, nats), its exponential, and the share that were the
    best guess."""

    moves: int
    cross_entropy: float
    perplexity: float
    top1: float
    raw_leakage: float | None
    multiplied_leakage: float


@dataclass(frozen=True, slots=True)
class GameJudged:
    """A whole game; a side that did not move is None."""

    game: Game
    moves: tuple[MoveJudged, ...]
    white: SideJudged | None
    black: SideJudged | None


async def judged(
    pipeline: Pipeline, batcher: Batcher, pgn: str, temperature: float, *, max_positions: int
) -> list[GameJudged | MovemaskError]:
    """Judges each game of a PGN; what is wrong with one is an error in its place.

    Raises LimitExceeded for more than `max_positions` moves in all, and what stops all (model, queue).
    """
    games = await _read(pgn, max_positions)
    plies = [ply for game in games if isinstance(game, Game) for ply in game.plies]
    rule = Rule(temperature=temperature)
    asked = [Asked(ply.position, ply.elo, rule) for ply in plies]
    outcomes = await pipeline.evaluate(asked, batcher) if asked else []
    return await asyncio.to_thread(_judge, games, outcomes)


async def _read(pgn: str, max_positions: int) -> list[Game | MovemaskError]:
    """The games, read off the event loop, a few at a time: no more of them once the request is cancelled."""
    games: list[Game | MovemaskError] = []
    following = read_games(io.StringIO(pgn), max_positions)
    while part := await asyncio.to_thread(list, islice(following, _AT_ONCE)):
        games += part
        if len(games) > max_positions:
            raise LimitExceeded(f"pgn: more than {max_positions} games; send fewer at once")
    return games


def _judge(games: Sequence[Game | MovemaskError], outcomes: Sequence[Outcome]) -> list[GameJudged | MovemaskError]:
    following = iter(outcomes)
    result: list[GameJudged | MovemaskError] = []
    for game in games:
        if isinstance(game, MovemaskError):
            result.append(game)
            continue
        own = [next(following) for _ in game.plies]
        failed = next((outcome for outcome in own if isinstance(outcome, MovemaskError)), None)
        if failed is not None:
            result.append(failed)
            continue
        moves = tuple(
            _judged(index + 1, ply, answer)
            for index, (ply, answer) in enumerate(zip(game.plies, own, strict=True))
            if isinstance(answer, Answer)
        )
        result.append(GameJudged(game, moves, _side(moves, chess.WHITE), _side(moves, chess.BLACK)))
    return result


def _judged(ply: int, asked: Ply, answer: Answer) -> MoveJudged:
    policy = answer.policy
    assert policy is not None  # a move was played, so there is a legal one
    place = policy.moves.index(asked.played)
    surprise = losses.cross_entropy(policy.logits, [0, len(policy.moves)], [place], answer.rule.temperature)
    probability = float(policy.probabilities[place])
    return MoveJudged(ply, asked.played, probability, place + 1, abs(float(surprise[0])), answer)  # no -0.0


def _side(moves: Sequence[MoveJudged], side: chess.Color) -> SideJudged | None:
    own = [move for move in moves if move.answer.position.board.turn == side]
    if not own:
        return None
    cross_entropy = float(sum(move.surprise / len(own) for move in own))  # no sum that overflows before the mean does
    leaked = [move.answer.leakage for move in own if move.answer.leakage is not None]
    raw = [leakage.raw for leakage in leaked if leakage.raw is not None]
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(cross_entropy))
    return SideJudged(
        moves=len(own),
        cross_entropy=cross_entropy,
        perplexity=perplexity,
        top1=float(np.mean([move.rank == 1 for move in own])),
        raw_leakage=float(np.mean(raw)) if raw else None,
        multiplied_leakage=float(np.mean([leakage.multiplied for leakage in leaked])),
    )
