"""Reports on games: how likely each move was, what it cost (`games.costs`), totals for each side, and the key moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import chess
import numpy as np

from movemask.board.moves import code_of, moves_of
from movemask.board.pgn import Game, Ply
from movemask.board.position import Elo, Position
from movemask.errors import MovemaskError
from movemask.evaluate import Answer, Evaluator, Query
from movemask.games.costs import Cost, Mark, costs_of
from movemask.games.forecast import Outlook, forecasts
from movemask.games.sweep import usual_ratings
from movemask.network.value import Value
from movemask.policy.normalisation import Normalisation, Temperature
from movemask.policy.temperature import cross_entropy

#: Most mistakes per request that are swept along the ratings, worst first; and the step through the usual ratings.
_SWEPT, _STEP = 20, 4


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
    outlook: Outlook
    cost: Cost = field(default_factory=Cost)
    by_rating: Mapping[float, float] = field(default_factory=dict)  # a mistake's probability at these ratings
    forecast: Value | None = None  # the value from one ply ahead, if asked for


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
            partial(_report, ply=number, played=ply.played),
        )
        for game in games
        if isinstance(game, Game)
        for number, ply in enumerate(game.plies, 1)
    ]
    moves = iter(await evaluator.submit(items))
    costs = iter(await costs_of(evaluator, [game for game in games if isinstance(game, Game)]))
    reports: list[GameReport | MovemaskError] = []
    for game in games:
        if isinstance(game, MovemaskError):
            reports.append(game)
            continue
        played, cost = list(islice(moves, len(game.plies))), next(costs)
        failures = [outcome for outcome in [*played, cost] if isinstance(outcome, MovemaskError)]
        if failures or isinstance(cost, MovemaskError):
            reports.append(failures[0])
            continue
        known = zip(played, cost, strict=True)
        whole = tuple(replace(move, cost=lost) for move, lost in known if isinstance(move, MoveReport))
        reports.append(GameReport(game, whole, _side(whole, chess.WHITE), _side(whole, chess.BLACK)))
    return await _swept(evaluator, reports)


async def _swept(
    evaluator: Evaluator, reports: Sequence[GameReport | MovemaskError]
) -> list[GameReport | MovemaskError]:
    """The reports. The worst mistakes get their probability by rating, the same for both players."""
    mistakes = [
        (number, move)
        for number, report in enumerate(reports)
        if isinstance(report, GameReport)
        for move in report.moves
        if move.cost.mark is not None
    ]
    worst = sorted(mistakes, key=lambda mistake: -(mistake[1].cost.lost or 0.0))[:_SWEPT]
    if not worst or not evaluator.model.contract.takes_elo:
        return list(reports)
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
    swept: dict[tuple[int, int], MoveReport] = {}
    for number, move in worst:
        points = zip(ratings, islice(probabilities, len(ratings)), strict=True)
        by_rating = {rating: p for rating, p in points if not isinstance(p, MovemaskError)}
        swept[number, move.ply] = replace(move, by_rating=by_rating)
    return [
        replace(report, moves=tuple(swept.get((number, move.ply), move) for move in report.moves))
        if isinstance(report, GameReport)
        else report
        for number, report in enumerate(reports)
    ]


async def foreseen(
    evaluator: Evaluator, reports: Sequence[GameReport | MovemaskError]
) -> list[GameReport | MovemaskError]:
    """The reports with a `forecast` for each move.

    If a move's forecast fails, its error takes the game's place. Raises errors of the model and the queue.
    """
    outlooks = [move.outlook for report in reports if isinstance(report, GameReport) for move in report.moves]
    values = iter(await forecasts(evaluator, outlooks))

    def with_forecasts(report: GameReport) -> GameReport | MovemaskError:
        found = list(islice(values, len(report.moves)))
        failed = next((value for value in found if isinstance(value, MovemaskError)), None)
        if failed is not None:
            return failed
        moves = (
            replace(move, forecast=value)
            for move, value in zip(report.moves, found, strict=True)
            if not isinstance(value, MovemaskError)
        )
        return replace(report, moves=tuple(moves))

    return [with_forecasts(report) if isinstance(report, GameReport) else report for report in reports]


def _elo_of(ply: Ply, elo: tuple[float, float] | None) -> Elo | None:
    """The ratings of the mover and its opponent."""
    if elo is None:
        return ply.elo
    return Elo(elo[1], elo[0]) if ply.position.black else Elo(*elo)


def _probability(answer: Answer, *, played: chess.Move) -> float:
    codes, probabilities = answer.policy
    return probabilities[codes.index(code_of(played))]


def _report(answer: Answer, *, ply: int, played: chess.Move) -> MoveReport:
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


#: Most key moves of a game.
_MOST = 5


@dataclass(frozen=True, slots=True)
class Moment:
    """A key move: a mistake or a blunder. `lost` is None if only the rules tell that it is one."""

    ply: int  # from 1
    mark: Mark
    lost: float | None
    text: str  # in words


def moments_of(report: GameReport) -> list[Moment]:
    """The moves that cost most, at most five, the costliest first."""
    marked = [move for move in report.moves if move.cost.mark is not None and move.legal > 1]
    costliest = sorted(marked, key=lambda move: -(move.cost.lost or 0.0))[:_MOST]
    return [Moment(move.ply, move.cost.mark or "mistake", move.cost.lost, _text(move)) for move in costliest]


def percent(probability: float) -> str:
    """A probability as text, such as `41.0 %` or `0.3 %`."""
    return f"{100 * probability:.2g} %" if probability < 0.01 else f"{100 * probability:.1f} %"


def words_of(cost: Cost) -> str:
    """What a move cost in words, such as `allows mate in one, loses 40 points`; empty for half a point or less."""
    points = 100 * (cost.lost or 0.0)
    words = [cost.fact.words] if cost.fact is not None else []
    if points > 0.5:
        words.append(f"loses {points:.0f} point{'' if round(points) == 1 else 's'}")
    return ", ".join(words)


def _text(move: MoveReport) -> str:
    """A key move in a sentence: what it cost, and how likely it was."""
    players = percent(move.probability) if move.probability >= 0.001 else "hardly anyone"
    return f"{move.position.board.variation_san([move.move])} {words_of(move.cost)}, and {players} would play it"
