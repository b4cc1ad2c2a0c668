"""Reports on games: how likely each move was, by the network, and what it cost (`games.costs`).

They have totals for each side, and the key moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import chess
import numpy as np

from movemask.board.moves import code_of, moves_of
from movemask.board.pgn import Game, Ply
from movemask.board.position import Elo, Position
from movemask.errors import MovemaskError
from movemask.evaluate import Answer, Evaluator, Query, submit_in_parts
from movemask.games.costs import Cost, Costs, Mark, MateSearch
from movemask.games.forecast import Outlook, forecasts
from movemask.games.judging import Look, Progress
from movemask.games.reasons import reason_of
from movemask.games.sweep import usual_ratings
from movemask.network.value import Value
from movemask.policy.normalisation import Normalisation, Temperature
from movemask.policy.temperature import cross_entropy

#: Moves that the search for mates tries in the time that the network takes for a position. Usual games need 27.
_TRIED_PER_POSITION = 64

#: Games whose costs are found together.
_GAMES_TOGETHER = 16

#: Most key moves of a game, of one without mistakes, and the step through the usual ratings for their probabilities.
_MOST, _MOST_SLIGHT, _STEP = 5, 3, 4


@dataclass(frozen=True, slots=True)
class MoveReport:
    """A move that was played.

    probability, rank, surprise : None if the network has no slot for the move: then it is not judged
    rank : by probability, from 1
    surprise : `-log p` in nats, finite even where `p` underflows; inf only at temperatures of 1e-307 and less, where it
        overflows a float
    """

    ply: int
    move: chess.Move
    position: Position
    probability: float | None
    rank: int | None
    surprise: float | None
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
    forecast: Value | None = None  # the value from one ply ahead, if asked for


@dataclass(frozen=True, slots=True)
class SideReport:
    """Means over the moves of one side, less those that were not judged.

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
    """A game and its moves. A side without moves is None.

    by_rating : the probability of each key move at some ratings, the same for both players, by `MoveReport.ply`
    at_ratings : the probabilities of moves at `resemblance.RATINGS`, if asked for, by `MoveReport.ply`
    """

    game: Game
    moves: tuple[MoveReport, ...]
    white: SideReport | None
    black: SideReport | None
    costs: Costs
    by_rating: Mapping[int, Mapping[float, float]] = field(default_factory=dict)
    at_ratings: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


async def reports_of(
    evaluator: Evaluator,
    games: Sequence[Game | MovemaskError],
    temperature: Temperature,
    elo: tuple[float, float] | None = None,
    costs: Mapping[int, Costs] | None = None,
) -> list[GameReport | MovemaskError]:
    """A report on each game, or the game's error in its place.

    elo : White's and Black's ratings; they replace the ratings in the headers
    costs : as by `costs_of`, if they are known
    """
    costs = await costs_of(games) if costs is None else costs
    rule = Normalisation(temperature=temperature)
    played = [game for game in games if isinstance(game, Game)]
    plies = [(number, ply) for game in played for number, ply in enumerate(game.plies, 1)]
    queries = [Query(position=ply.position, elo=_elo_of(ply, elo), rule=rule) for _, ply in plies]

    def write(answer: Answer, place: int) -> MoveReport:
        number, ply = plies[place]
        return _report(answer, number, ply.played)

    moves = iter(await evaluator.submit(queries, write))
    reports: list[GameReport | MovemaskError] = []
    for number, game in enumerate(games):
        if isinstance(game, MovemaskError):
            reports.append(game)
            continue
        outcomes = list(islice(moves, len(game.plies)))
        failure = next(
            (outcome for outcome in outcomes if isinstance(outcome, MovemaskError)), None
        )
        if failure is not None:
            reports.append(failure)
            continue
        line = tuple(outcome for outcome in outcomes if isinstance(outcome, MoveReport))
        reports.append(
            GameReport(
                game, line, _side(line, chess.WHITE), _side(line, chess.BLACK), costs[number]
            )
        )
    return await _all_swept(evaluator, reports)


async def costs_of(
    games: Sequence[Game | MovemaskError],
    charge: Callable[[int], None] = lambda positions: None,
) -> dict[int, Costs]:
    """The costs of the games by their numbers. The search for mates ends with the caller.

    charge : called with the number of positions that the search for mates takes beyond the games' own, and may raise
    """
    search, costs = MateSearch(), dict[int, Costs]()
    read = [(number, game) for number, game in enumerate(games) if isinstance(game, Game)]
    free = charged = 0
    try:
        for first in range(0, len(read), _GAMES_TOGETHER):
            numbers, group = zip(*read[first : first + _GAMES_TOGETHER], strict=True)
            group_costs = await asyncio.to_thread(
                list, map(partial(Costs.of, search=search), group)
            )
            costs.update(zip(numbers, group_costs, strict=True))
            free += sum(len(game.plies) for game in group)
            more = max(0, search.tried // _TRIED_PER_POSITION - free) - charged
            if more > 0:
                charge(more)
                charged += more
    finally:
        search.stopped = True
    return costs


async def completed(
    evaluator: Evaluator,
    looks: AsyncGenerator[Look, None],
    reports: Sequence[GameReport | MovemaskError],
) -> tuple[list[GameReport | MovemaskError], Progress | None]:
    """The reports with all evaluations of `judged`, and how far the engine came; None if it evaluated nothing. Raises
    errors of the model and the queues."""
    whole, progress = list(reports), None
    async with aclosing(evaluated(looks, reports)) as steps:
        async for step in steps:
            whole[step.game], progress = step.report, step.progress
    return await _all_swept(evaluator, whole), progress


def progress_of(costs: Mapping[int, Costs]) -> Progress:
    """How far the engine is before its first search."""
    return Progress(0, sum(len(one.missing) for one in costs.values()))


class Step(NamedTuple):
    """A position that the engine has evaluated: the number of its game, the plies before it, the game's report with
    it, and how far the engine is."""

    game: int
    position: int
    report: GameReport
    progress: Progress

    @property
    def is_deeper(self) -> bool:
        """Whether it is of the second search."""
        return self.progress.deeper > 0


async def evaluated(
    looks: AsyncGenerator[Look, None], reports: Sequence[GameReport | MovemaskError]
) -> AsyncGenerator[Step, None]:
    """Each position of `judged` with its game's report; those of games without one are left out."""
    async with aclosing(looks):
        async for number, place, costs, progress in looks:
            report = reports[number]
            if isinstance(report, GameReport):
                yield Step(number, place, replace(report, costs=costs), progress)


async def _all_swept(
    evaluator: Evaluator, reports: Sequence[GameReport | MovemaskError]
) -> list[GameReport | MovemaskError]:
    whole = iter(
        await asyncio.gather(
            *(swept(evaluator, one) for one in reports if isinstance(one, GameReport))
        )
    )
    return [next(whole) if isinstance(report, GameReport) else report for report in reports]


async def swept(evaluator: Evaluator, report: GameReport) -> GameReport:
    """The report with the probabilities of its key moves by rating. Raises errors of the model and the queue."""
    moves = [move for move in key_moves(report) if move.probability is not None]
    if not moves or not evaluator.model.contract.takes_elo:
        return report
    ratings = usual_ratings(evaluator.model.contract)[::_STEP]
    rule = Normalisation(temperature=moves[0].temperature)
    points = [(move, rating) for move in moves for rating in ratings]
    probabilities = iter(await probabilities_at(evaluator, points, rule))
    by_rating = {}
    for move in moves:
        own = zip(ratings, islice(probabilities, len(ratings)), strict=True)
        by_rating[move.ply] = {rating: p for rating, p in own if not isinstance(p, MovemaskError)}
    return replace(report, by_rating=by_rating)


async def foreseen(
    evaluator: Evaluator, reports: Sequence[GameReport | MovemaskError]
) -> list[GameReport | MovemaskError]:
    """The reports with a `forecast` for each move.

    If a move's forecast fails, its error takes the game's place. Raises errors of the model and the queue.
    """
    outlooks = [
        move.outlook
        for report in reports
        if isinstance(report, GameReport)
        for move in report.moves
    ]
    values = iter(await forecasts(evaluator, outlooks))

    def with_forecasts(report: GameReport) -> GameReport | MovemaskError:
        part = list(islice(values, len(report.moves)))
        failed = next((value for value in part if isinstance(value, MovemaskError)), None)
        if failed is not None:
            return failed
        moves = (
            replace(move, forecast=value)
            for move, value in zip(report.moves, part, strict=True)
            if not isinstance(value, MovemaskError)
        )
        return replace(report, moves=tuple(moves))

    return [
        with_forecasts(report) if isinstance(report, GameReport) else report for report in reports
    ]


def _elo_of(ply: Ply, elo: tuple[float, float] | None) -> Elo | None:
    """The ratings of the mover and its opponent."""
    if elo is None:
        return ply.elo
    return Elo(elo[1], elo[0]) if ply.position.black else Elo(*elo)


async def probabilities_at(
    evaluator: Evaluator, points: Sequence[tuple[MoveReport, float]], rule: Normalisation
) -> list[float | MovemaskError]:
    """The probability of each move at a rating of both players, or its error.

    Raises errors of the model and the queue. The network must have a slot for each move.
    """
    queries = [
        Query(position=move.position, elo=Elo(rating, rating), rule=rule) for move, rating in points
    ]

    def write(answer: Answer, place: int) -> float:
        codes, probabilities = answer.policy
        return probabilities[codes.index(code_of(points[place][0].move))]

    return await submit_in_parts(evaluator, queries, write)


def _report(answer: Answer, ply: int, played: chess.Move) -> MoveReport:
    codes, probabilities = answer.policy
    count, probability, rank, surprise = len(codes), None, None, None
    if code_of(played) in codes:
        place = codes.index(code_of(played))
        nats = cross_entropy(np.array(answer.logits), [0, count], [place], answer.rule.divisor)
        probability, rank = probabilities[place], place + 1
        surprise = abs(float(nats[0]))  # no -0.0
    return MoveReport(
        ply=ply,
        move=played,
        position=answer.position,
        probability=probability,
        rank=rank,
        surprise=surprise,
        raw=answer.raw,
        multiplied=answer.multiplied,
        legal=count + len(answer.without_slot),
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
    surprises = [move.surprise for move in moves if move.surprise is not None]
    if not surprises:
        return None
    raw = [move.raw for move in moves if move.raw is not None]
    return SideReport(
        moves=len(surprises),
        # divided first, because the sum could overflow
        cross_entropy=float(sum(surprise / len(surprises) for surprise in surprises)),
        top1=sum(move.rank == 1 for move in moves) / len(surprises),
        raw_leakage=float(np.mean(raw)) if raw else None,
        multiplied_leakage=float(np.mean([move.multiplied for move in moves])),
    )


def key_moves(report: GameReport) -> list[MoveReport]:
    """The mistakes and blunders that cost most, and the faults that only the rules know of; at most five.

    A game without them has its costliest inaccuracies, at most three.
    """
    costs = list(zip(report.moves, report.costs, strict=True))
    keys = [(cost.lost or 0.0, move) for move, cost in costs if cost.is_key]
    most = _MOST
    if not keys:
        keys = [(cost.lost, move) for move, cost in costs if cost.mark is not None and cost.lost]
        most = _MOST_SLIGHT
    return [move for _, move in sorted(keys, key=lambda key: -key[0])[:most]]


@dataclass(frozen=True, slots=True)
class Moment:
    """A key move. `mark` and `lost` are None if only the rules tell that it is a fault.

    by_rating : its probability at some ratings
    """

    ply: int  # from 1
    mark: Mark | None
    lost: float | None
    text: str  # in words
    by_rating: Mapping[float, float]


def moments_of(report: GameReport) -> list[Moment]:
    """The key moves, the costliest first."""
    moments = []
    for move in key_moves(report):
        cost, by_rating = report.costs[move.ply - 1], report.by_rating.get(move.ply, {})
        moments.append(
            Moment(
                move.ply,
                cost.mark,
                cost.lost,
                _text(move, cost, reason_of(report.costs, move.ply - 1), by_rating),
                by_rating,
            )
        )
    return moments


def percent(probability: float) -> str:
    """A probability as text, such as `41.0 %`, `0.30 %` or `< 0.001 %`."""
    if 0 < probability < 1e-5:
        return "< 0.001 %"
    return f"{100 * probability:#.2g} %" if probability < 0.01 else f"{100 * probability:.1f} %"


def words_of(cost: Cost, reason: str | None) -> str:
    """What a move cost in words, such as `allows mate in one and cost 40 points`; empty for less than a point."""
    words = [reason] if reason is not None else []
    if cost.points:
        words.append(f"cost {cost.points} point{'' if cost.points == 1 else 's'}")
    return " and ".join(words)


#: A move that everybody of a rating finds is compared with players this much stronger, or weaker if there are none.
_STRONGER = 400


def _text(
    move: MoveReport, cost: Cost, reason: str | None, by_rating: Mapping[float, float]
) -> str:
    """A key move in words: what it cost, and who plays it."""
    fault = f"{move.position.board.variation_san([move.move])} {words_of(cost, reason)}."
    if move.probability is None:
        return fault
    rating = None if move.elo is None else move.elo.self
    who = f"{percent(move.probability)} of players{'' if rating is None else f' rated {rating:.0f}'} play it"
    if rating is None or not by_rating:
        return f"{fault} {who}."
    stronger = rating + _STRONGER
    target = stronger if stronger <= max(by_rating) else rating - _STRONGER
    other = min(by_rating, key=lambda one: abs(one - target))
    return f"{fault} {who}, at {other:.0f} {percent(by_rating[other])}."
