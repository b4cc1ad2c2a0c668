"""Games judged: how probable each move that was played is to the network, and what each side's moves come to."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import chess
import numpy as np

from movemask.board.elo import Elo
from movemask.board.move_codes import code_of
from movemask.board.pgn import Game, read_games
from movemask.board.position import Position
from movemask.errors import LimitExceeded, MovemaskError
from movemask.numeric import losses
from movemask.pipeline import Answer, Pipeline, Query
from movemask.policy import Rule

#: Games that are read before a cancelled request is noticed.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played(Query):
    """A position of a game, and the move that was played there."""

    ply: int
    played: chess.Move


@dataclass(frozen=True, slots=True)
class MoveJudged:
    """A move that was played. `rank` counts from 1; `surprise` is `-log p` in nats, finite where `p` itself
    underflows, inf where it is beyond a float: at temperatures of 1e-307 and less."""

    ply: int
    move: chess.Move
    position: Position
    probability: float
    rank: int
    surprise: float
    raw: float | None
    multiplied: float
    temperature: float  # that was used
    elo: Elo | None  # what the network was given
    ignored: tuple[str, ...]


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
    pipeline: Pipeline, pgn: str, temperature: float, *, max_positions: int
) -> list[GameJudged | MovemaskError]:
    """Judges each game of a PGN; what is wrong with one is an error in its place.

    Raises LimitExceeded for more than `max_positions` moves in all, and what stops all (model, queue).
    """
    games = await _read(pgn, max_positions)
    rule = Rule(temperature=temperature)
    queries = [
        _Played(position=ply.position, elo=ply.elo, rule=rule, ply=index, played=ply.played)
        for game in games
        if isinstance(game, Game)
        for index, ply in enumerate(game.plies, 1)
    ]
    moves = iter(await pipeline.evaluate(queries, _judged))
    result: list[GameJudged | MovemaskError] = []
    for game in games:
        if isinstance(game, MovemaskError):
            result.append(game)
            continue
        own = [next(moves) for _ in game.plies]
        failed = next((move for move in own if isinstance(move, MovemaskError)), None)
        if failed is not None:
            result.append(failed)
            continue
        sound = tuple(move for move in own if isinstance(move, MoveJudged))
        result.append(GameJudged(game, sound, _side(sound, chess.WHITE), _side(sound, chess.BLACK)))
    return result


async def _read(pgn: str, max_positions: int) -> list[Game | MovemaskError]:
    """The games, read off the event loop, a few at a time: no more of them once the request is cancelled."""
    games: list[Game | MovemaskError] = []
    following = read_games(io.StringIO(pgn), max_positions)
    while part := await asyncio.to_thread(list, islice(following, _AT_ONCE)):
        games += part
        if len(games) > max_positions:
            raise LimitExceeded(f"pgn: more than {max_positions} games; send fewer at once")
    return games


def _judged(answer: Answer) -> MoveJudged:
    query = answer.query
    assert isinstance(query, _Played)
    codes, probabilities = answer.policy
    place, count = codes.index(code_of(query.played)), len(codes)
    surprise = losses.cross_entropy(np.array(answer.logits), [0, count], [place], answer.rule.temperature)
    return MoveJudged(
        ply=query.ply,
        move=query.played,
        position=answer.position,
        probability=probabilities[place],
        rank=place + 1,
        surprise=abs(float(surprise[0])),  # no -0.0
        raw=answer.raw,
        multiplied=answer.multiplied,
        temperature=answer.rule.temperature,
        elo=answer.elo,
        ignored=answer.ignored,
    )


def _side(moves: Sequence[MoveJudged], side: chess.Color) -> SideJudged | None:
    own = [move for move in moves if move.position.board.turn == side]
    if not own:
        return None
    cross_entropy = float(sum(move.surprise / len(own) for move in own))  # no sum that overflows before the mean does
    raw = [move.raw for move in own if move.raw is not None]
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(cross_entropy))
    return SideJudged(
        moves=len(own),
        cross_entropy=cross_entropy,
        perplexity=perplexity,
        top1=float(np.mean([move.rank == 1 for move in own])),
        raw_leakage=float(np.mean(raw)) if raw else None,
        multiplied_leakage=float(np.mean([move.multiplied for move in own])),
    )
