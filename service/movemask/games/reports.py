"""Reports on games: the probability of each move played, totals for each side, and the most telling moves.

Telling moves are big losses, likely moves that were missed, and rare moves that worked. A move is judged by the PGN's
evaluations; without evaluations, by the network's forecasts before and after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, starmap, zip_longest
from typing import Literal

import chess
import numpy as np

from movemask.board.moves import code_of, moves_of
from movemask.board.pgn import Game, Ply, read_games, read_trees
from movemask.board.position import Elo, Position
from movemask.errors import MovemaskError
from movemask.evaluate import Answer, Evaluator, Query
from movemask.games.forecast import Outlook, forecasts, value_after
from movemask.games.sweep import usual_ratings
from movemask.network.value import Value
from movemask.policy.normalisation import Normalisation, Temperature
from movemask.policy.temperature import cross_entropy

Mark = Literal["trap", "mistake", "gem"]

#: Losses of the mover's expected score, 0 to 1. A mistake loses at least MISTAKE, as on lichess; a gem at most HOLDS.
#: If the expected score is within DECIDED of 0 or 1, there are no gems: every move holds.
MISTAKE, HOLDS, DECIDED = 0.1, 0.02, 0.1

#: Probabilities. A trap is a mistake of at least MOST_PLAY; a gem has at most FEW_FIND.
MOST_PLAY, FEW_FIND = 0.5, 0.05

#: Most mistakes per request that are swept along the ratings, worst first; and the step through the usual ratings.
_SWEPT, _STEP = 20, 4

#: Games read at a time. A cancelled request is noticed between them.
_GAMES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class MoveReport:
    """A move that was played.

    rank : by probability, from 1
    surprise : `-log p` in nats, finite even where `p` underflows; inf only at temperatures of 1e-307 and less, where it
        overflows a float
    """

    ply: int
    move: chess.Move
    position: Position
    probability: float
    rank: int
    surprise: float
    raw: float | None
    multiplied: float
    legal: int  # number of legal moves
    best: chess.Move
    best_probability: float
    value: Value | None  # before the move, for the mover
    temperature: float
    elo: Elo | None  # as the network gets it
    ignored: tuple[str, ...]
    chances: tuple[float, float] | None  # the mover's expected score before and after, from the PGN's [%eval]
    outlook: Outlook
    by_rating: Mapping[float, float] = field(default_factory=dict)  # a mistake's probability at these ratings
    forecast: Value | None = None  # the value from one ply ahead, if asked for

    @property
    def lost(self) -> float | None:
        """The mover's loss of expected score by the move, 0 or more; None without evaluations."""
        return None if self.chances is None else max(0.0, self.chances[0] - self.chances[1])

    @property
    def mark(self) -> Mark | None:
        """The move's mark by the evaluations; None for an ordinary move or without evaluations."""
        if self.chances is None or self.lost is None:
            return None
        if self.lost >= MISTAKE:
            return "trap" if self.probability >= MOST_PLAY else "mistake"
        undecided = DECIDED <= self.chances[0] <= 1 - DECIDED
        return "gem" if self.lost <= HOLDS and self.probability <= FEW_FIND and undecided else None


@dataclass(frozen=True, slots=True)
class SideReport:
    """Means over the moves of one side.

    cross_entropy : mean surprise, in nats
    perplexity : its exponential
    top1 : share of moves that were the network's first choice
    """

    moves: int
    cross_entropy: float
    top1: float
    raw_leakage: float | None
    multiplied_leakage: float

    @property
    def perplexity(self) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp(self.cross_entropy))


@dataclass(frozen=True, slots=True)
class GameReport:
    """A game and its moves. A side without moves is None."""

    game: Game
    moves: tuple[MoveReport, ...]
    white: SideReport | None
    black: SideReport | None


async def report_games(
    evaluator: Evaluator,
    pgn: str,
    temperature: Temperature,
    *,
    max_positions: int,
    trees: bool = False,
) -> list[GameReport | MovemaskError]:
    """A report on each game of a PGN. A game that cannot be read, or text between games, gives an error in its place.

    With `trees`, each game keeps its variations; their moves are counted but not judged. Raises LimitExceeded for more
    than `max_positions` moves in all games, and errors of the model and the queue.
    """
    with_trees = (parsed.game for parsed in read_trees(pgn, max_positions) if parsed.game is not None)
    remaining = with_trees if trees else read_games(pgn, max_positions)
    games: list[Game | MovemaskError] = []
    while group := await asyncio.to_thread(list, islice(remaining, _GAMES_AT_ONCE)):
        games += group
    return await reports_of(evaluator, games, temperature)


async def reports_of(
    evaluator: Evaluator,
    games: Sequence[Game | MovemaskError],
    temperature: Temperature,
    elo: tuple[float, float] | None = None,
) -> list[GameReport | MovemaskError]:
    """A report on each game, or the game's error in its place.

    `elo` holds White's and Black's ratings; they replace the ratings in the headers.
    """
    rule = Normalisation(temperature=temperature)
    items = [
        (
            Query(position=ply.position, elo=_elo_of(ply, elo), rule=rule),
            partial(_report, ply=number, played=ply.played, chances=ply.chances),
        )
        for game in games
        if isinstance(game, Game)
        for number, ply in enumerate(game.plies, 1)
    ]
    moves = iter(await _swept(evaluator, await evaluator.submit(items)))
    result: list[GameReport | MovemaskError] = []
    for game in games:
        if isinstance(game, MovemaskError):
            result.append(game)
            continue
        played = list(islice(moves, len(game.plies)))
        failed = next((move for move in played if isinstance(move, MovemaskError)), None)
        if failed is not None:
            result.append(failed)
            continue
        reports = tuple(move for move in played if isinstance(move, MoveReport))
        result.append(GameReport(game, reports, _side(reports, chess.WHITE), _side(reports, chess.BLACK)))
    return result


async def _swept(
    evaluator: Evaluator, moves: Sequence[MoveReport | MovemaskError]
) -> Sequence[MoveReport | MovemaskError]:
    """The reports. The worst mistakes get their probability by rating, the same for both players."""
    mistakes = [
        (place, move)
        for place, move in enumerate(moves)
        if isinstance(move, MoveReport) and (move.lost or 0.0) >= MISTAKE
    ]
    worst = sorted(mistakes, key=lambda mistake: -(mistake[1].lost or 0.0))[:_SWEPT]
    if not worst or not evaluator.model.contract.takes_elo:
        return moves
    ratings = usual_ratings(evaluator.model.contract)[::_STEP]
    rule = Normalisation(temperature=worst[0][1].temperature)
    items = [
        (
            Query(position=move.position, elo=Elo(rating, rating), rule=rule),
            partial(_probability, played=move.move),
        )
        for _, move in worst
        for rating in ratings
    ]
    probabilities = iter(await evaluator.submit(items))
    swept = list(moves)
    for place, move in worst:
        points = zip(ratings, islice(probabilities, len(ratings)), strict=True)
        by_rating = {rating: p for rating, p in points if not isinstance(p, MovemaskError)}
        swept[place] = replace(move, by_rating=by_rating)
    return swept


async def foreseen(
    evaluator: Evaluator,
    reports: Sequence[GameReport | MovemaskError],
    wanted: Callable[[GameReport, int], bool] = lambda report, place: True,
) -> list[GameReport | MovemaskError]:
    """The reports with a `forecast` for each move that is `wanted`, by default all.

    If a move's forecast fails, its error takes the game's place. Raises errors of the model and the queue.
    """
    outlooks = {
        (number, place): move.outlook
        for number, report in enumerate(reports)
        if isinstance(report, GameReport)
        for place, move in enumerate(report.moves)
        if wanted(report, place)
    }
    values = dict(zip(outlooks, await forecasts(evaluator, list(outlooks.values())), strict=True))

    def with_forecasts(number: int, report: GameReport) -> GameReport | MovemaskError:
        moves = []
        for place, move in enumerate(report.moves):
            value = values.get((number, place))
            if isinstance(value, MovemaskError):
                return value
            moves.append(replace(move, forecast=value))
        return replace(report, moves=tuple(moves))

    return [
        with_forecasts(number, report) if isinstance(report, GameReport) else report
        for number, report in enumerate(reports)
    ]


def _elo_of(ply: Ply, elo: tuple[float, float] | None) -> Elo | None:
    """The ratings of the mover and its opponent."""
    if elo is None:
        return ply.elo
    return Elo(elo[1], elo[0]) if ply.position.black else Elo(*elo)


def _probability(answer: Answer, *, played: chess.Move) -> float:
    codes, probabilities = answer.policy
    return probabilities[codes.index(code_of(played))]


def _report(answer: Answer, *, ply: int, played: chess.Move, chances: tuple[float, float] | None) -> MoveReport:
    codes, probabilities = answer.policy
    place, count = codes.index(code_of(played)), len(codes)
    surprise = cross_entropy(np.array(answer.logits), [0, count], [place], answer.rule.divisor)
    return MoveReport(
        ply=ply,
        move=played,
        position=answer.position,
        probability=probabilities[place],
        rank=place + 1,
        surprise=abs(float(surprise[0])),  # no -0.0
        raw=answer.raw,
        multiplied=answer.multiplied,
        legal=count,
        best=moves_of(codes[:1])[0],
        best_probability=probabilities[0],
        value=answer.value,
        temperature=answer.rule.divisor,
        elo=answer.elo,
        ignored=answer.ignored,
        chances=chances,
        outlook=Outlook.of(answer),
    )


def _side(moves: Sequence[MoveReport], side: chess.Color) -> SideReport | None:
    moves = [move for move in moves if move.position.board.turn == side]
    if not moves:
        return None
    raw = [move.raw for move in moves if move.raw is not None]
    return SideReport(
        moves=len(moves),
        cross_entropy=float(
            sum(move.surprise / len(moves) for move in moves)
        ),  # divided first, because the sum could overflow
        top1=float(np.mean([move.rank == 1 for move in moves])),
        raw_leakage=float(np.mean(raw)) if raw else None,
        multiplied_leakage=float(np.mean([move.multiplied for move in moves])),
    )


MomentLabel = Literal["trap", "missed", "mistake", "gem", "surprise"]

#: Most moments of a game; and the surprise in nats at which a rare move that works ranks as high as losing a won game.
_MOST, _NATS = 5, 10


@dataclass(frozen=True, slots=True)
class Moment:
    """A telling move. `MomentOut` in the API explains the labels."""

    ply: int  # from 1
    label: MomentLabel
    change: float  # of the mover's expected score, -1 to 1
    best: str | None  # the likely move that was `missed`, in UCI
    text: str  # in words


def moments_of(report: GameReport) -> list[Moment]:
    """At most five moments of a game, the most telling first.

    Uses the report's forecasts; `unclear` says for which moves they are needed.
    """
    moments = [*filter(None, starmap(_moment, zip_longest(report.moves, report.moves[1:])))]

    def weight(moment: Moment) -> float:
        if moment.change <= -MISTAKE:
            return -moment.change
        return min(report.moves[moment.ply - 1].surprise / _NATS, 1)

    return sorted(moments, key=weight, reverse=True)[:_MOST]


def unclear(report: GameReport, place: int) -> bool:
    """Whether a moment or a glyph needs the forecast before this move: this or the previous move is rare."""
    return any(map(_rare, report.moves[max(0, place - 1) : place + 1]))


def forecast_change(move: MoveReport, following: MoveReport | None) -> float | None:
    """The change of the mover's expected score by a rare move: the forecast after it minus the forecast before.

    None for a move that is not rare or has evaluations, and without forecasts.
    """
    if move.forecast is None or not _rare(move):
        return None
    position = following.position if following else move.position.after(move.move)
    after = value_after(position.board, following.forecast if following else None)
    return None if after is None else after.score - move.forecast.score


def percent(probability: float) -> str:
    """A probability as text, such as `41.0 %` or `0.3 %`."""
    return f"{100 * probability:.2g} %" if probability < 0.01 else f"{100 * probability:.1f} %"


def _players(probability: float) -> str:
    """The share of players who would play a move: `41.0 %`, or `hardly anyone` below 0.1 %."""
    return percent(probability) if probability >= 0.001 else "hardly anyone"


def _rare(move: MoveReport) -> bool:
    return move.chances is None and move.legal > 1 and move.probability <= FEW_FIND


def _moment(move: MoveReport, following: MoveReport | None) -> Moment | None:
    change = move.chances[1] - move.chances[0] if move.chances else forecast_change(move, following)
    label: MomentLabel | None = move.mark
    if change is not None and move.chances is None and abs(change) >= MISTAKE:
        label = "mistake" if change < 0 else "surprise"
    if change is None or label is None or move.legal == 1:
        return None
    effect = "loses" if move.chances else "raises the forecast by" if change > 0 else "lowers the forecast by"
    effect = "holds" if label == "gem" else f"{effect} {abs(100 * change):.0f} points"
    board, best, others = move.position.board, None, f"{_players(move.probability)} would play it"
    if label == "mistake" and move.best_probability >= MOST_PLAY:
        label, best = "missed", move.best.uci()
        others = f"{percent(move.best_probability)} would play {move.position.sans([move.best])[0]}"
    return Moment(move.ply, label, change, best, f"{board.variation_san([move.move])} {effect}, and {others}")
