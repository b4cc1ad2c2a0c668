"""Reports on games: how probable the network finds each move that was played, with totals for each side, and the most
telling moves: what lost most, likely moves that were not found, rare ones that worked. These are judged by the PGN's
evaluations, and where a move has none, by the network's forecasts before and after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, starmap, zip_longest
from typing import Literal

import chess
import numpy as np

from movemask.board.moves import code_of, moves_of
from movemask.board.pgn import Game, Ply, read_games, read_trees
from movemask.board.position import Elo, Position
from movemask.errors import MovemaskError
from movemask.games.forecast import Outlook, forecasts, value_after
from movemask.games.sweep import usual_ratings
from movemask.normalisation import Normalisation, Value
from movemask.numeric import losses
from movemask.pipeline import Answer, Caller, Pipeline, Query

Mark = Literal["trap", "mistake", "gem"]

#: Of the mover's expected score, 0 to 1: what a mistake loses at least, as on lichess, and a gem at most. In a position
#: where less than DECIDED is left to win or to lose there are no gems: every move holds.
MISTAKE, HOLDS, DECIDED = 0.1, 0.02, 0.1

#: Probabilities: a trap is a mistake that has at least this, a gem has at most that.
MOST_PLAY, FEW_FIND = 0.5, 0.05

#: The worst mistakes of a request that are swept along the ratings, and of the usual ratings every so many.
_SWEPT, _STEP = 20, 4

#: Games read before a cancelled request is noticed.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played(Query):
    """A position of a game, and the move that was played there."""

    ply: int
    played: chess.Move
    chances: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class MoveReport:
    """A move that was played. `rank` counts from 1; `surprise` is `-log p` in nats, finite even where `p` underflows,
    inf only where it overflows a float: at temperatures of 1e-307 and less."""

    ply: int
    move: chess.Move
    position: Position
    probability: float
    rank: int
    surprise: float
    raw: float | None
    multiplied: float
    legal: int  # moves that could have been played
    best: chess.Move
    best_probability: float
    value: Value | None  # before the move, for the mover
    temperature: float  # resolved to a number
    elo: Elo | None  # as passed to the network
    ignored: tuple[str, ...]
    chances: tuple[float, float] | None  # the mover's expected score before and after, by the PGN's [%eval]
    outlook: Outlook
    by_rating: Mapping[float, float] = field(default_factory=dict)  # of a mistake: its probability at these ratings
    forecast: Value | None = None  # `value` by one ply more, where it was asked for

    @property
    def lost(self) -> float | None:
        """What the move loses of the mover's expected score, 0 to 1; None without evaluations."""
        return None if self.chances is None else max(0.0, self.chances[0] - self.chances[1])

    @property
    def mark(self) -> Mark | None:
        """What the evaluations make of the move; None without them, and for a usual move."""
        if self.chances is None or self.lost is None:
            return None
        if self.lost >= MISTAKE:
            return "trap" if self.probability >= MOST_PLAY else "mistake"
        undecided = DECIDED <= self.chances[0] <= 1 - DECIDED
        return "gem" if self.lost <= HOLDS and self.probability <= FEW_FIND and undecided else None


@dataclass(frozen=True, slots=True)
class SideReport:
    """The moves of one side: mean surprise (cross-entropy, nats), its exponential, and the share that were the
    network's first choice."""

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
    """A game; a side that made no move is None."""

    game: Game
    moves: tuple[MoveReport, ...]
    white: SideReport | None
    black: SideReport | None


async def report_games(
    pipeline: Pipeline,
    pgn: str,
    temperature: float,
    *,
    max_positions: int,
    trees: bool = False,
    caller: Caller | None = None,
) -> list[GameReport | MovemaskError]:
    """A report on each game of a PGN, or an error in place of a game that cannot be read, and of text that stands in
    front of or between games. With `trees`, each game keeps its variations, whose moves are counted but not judged.

    Raises LimitExceeded for more than `max_positions` moves in all, and errors of the model and the queue.
    """
    with_trees = (parsed.game for parsed in read_trees(pgn, max_positions) if parsed.game is not None)
    remaining = with_trees if trees else read_games(pgn, max_positions)
    games: list[Game | MovemaskError] = []
    while part := await asyncio.to_thread(list, islice(remaining, _AT_ONCE)):
        games += part
    return await reports_of(pipeline, games, temperature, caller=caller)


async def reports_of(
    pipeline: Pipeline,
    games: Sequence[Game | MovemaskError],
    temperature: float,
    elo: tuple[float, float] | None = None,
    caller: Caller | None = None,
) -> list[GameReport | MovemaskError]:
    """A report on each game that has been read, or its error in its place. `elo` are White's and Black's ratings, in
    place of those in the headers."""
    rule = Normalisation(temperature=temperature)
    queries = [
        _Played(
            position=ply.position, elo=_elo_of(ply, elo), rule=rule, ply=index, played=ply.played, chances=ply.chances
        )
        for game in games
        if isinstance(game, Game)
        for index, ply in enumerate(game.plies, 1)
    ]
    moves = iter(await _swept(pipeline, await pipeline.answer(queries, _report, caller), caller))
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
    pipeline: Pipeline, moves: Sequence[MoveReport | MovemaskError], caller: Caller | None
) -> Sequence[MoveReport | MovemaskError]:
    """The reports, the worst mistakes with their probabilities by the rating of both players."""
    mistakes = [move for move in moves if isinstance(move, MoveReport) and (move.lost or 0.0) >= MISTAKE]
    worst = sorted(mistakes, key=lambda move: -(move.lost or 0.0))[:_SWEPT]
    if not worst or not pipeline.model.contract.takes_elo:
        return moves
    ratings = usual_ratings(pipeline.model.contract)[::_STEP]
    rule, elos = Normalisation(temperature=worst[0].temperature), [Elo(rating, rating) for rating in ratings]
    queries = [
        _Played(position=move.position, elo=elo, rule=rule, ply=move.ply, played=move.move, chances=None)
        for move in worst
        for elo in elos
    ]
    swept = iter(await pipeline.answer(queries, _report, caller))
    found = {}
    for move in worst:
        points = zip(ratings, islice(swept, len(ratings)), strict=True)
        known = {rating: point.probability for rating, point in points if isinstance(point, MoveReport)}
        found[id(move)] = replace(move, by_rating=known)
    return [found.get(id(move), move) for move in moves]


async def foreseen(
    pipeline: Pipeline,
    reports: Sequence[GameReport | MovemaskError],
    wanted: Callable[[GameReport, int], bool] = lambda report, place: True,
    caller: Caller | None = None,
) -> list[GameReport | MovemaskError]:
    """The reports with a `forecast` of each move, or of those at the places `wanted`; the error of one in place of its
    game. Raises errors of the model and the queue."""
    games = [report for report in reports if isinstance(report, GameReport)]
    chosen = [move for report in games for place, move in enumerate(report.moves) if wanted(report, place)]
    values = await forecasts(pipeline, [move.outlook for move in chosen], caller)
    found = {id(move): value for move, value in zip(chosen, values, strict=True)}

    def seen(report: GameReport) -> GameReport | MovemaskError:
        moves = []
        for move in report.moves:
            value = found.get(id(move))
            if isinstance(value, MovemaskError):
                return value
            moves.append(replace(move, forecast=value))
        return replace(report, moves=tuple(moves))

    return [seen(report) if isinstance(report, GameReport) else report for report in reports]


def _elo_of(ply: Ply, elo: tuple[float, float] | None) -> Elo | None:
    """The ratings of the mover and its opponent."""
    if elo is None:
        return ply.elo
    return Elo(elo[1], elo[0]) if ply.position.black else Elo(*elo)


def _report(answer: Answer) -> MoveReport:
    query = answer.query
    assert isinstance(query, _Played)
    codes, probabilities = answer.policy
    place, count = codes.index(code_of(query.played)), len(codes)
    surprise = losses.cross_entropy(np.array(answer.logits), [0, count], [place], answer.rule.temperature)
    return MoveReport(
        ply=query.ply,
        move=query.played,
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
        temperature=answer.rule.temperature,
        elo=answer.elo,
        ignored=answer.ignored,
        chances=query.chances,
        outlook=Outlook.of(answer),
    )


def _side(moves: Sequence[MoveReport], side: chess.Color) -> SideReport | None:
    moves = [move for move in moves if move.position.board.turn == side]
    if not moves:
        return None
    raw = [move.raw for move in moves if move.raw is not None]
    return SideReport(
        moves=len(moves),
        cross_entropy=float(sum(move.surprise / len(moves) for move in moves)),  # a sum could overflow before the mean
        top1=float(np.mean([move.rank == 1 for move in moves])),
        raw_leakage=float(np.mean(raw)) if raw else None,
        multiplied_leakage=float(np.mean([move.multiplied for move in moves])),
    )


MomentKind = Literal["trap", "missed", "mistake", "gem", "surprise"]

#: Moments of a game, at most; and nats of surprise by which a rare move that works tells as much as a lost game.
_MOST, _NATS = 5, 10


@dataclass(frozen=True, slots=True)
class Moment:
    """A telling move; `MomentOut` of the API says what each kind means."""

    ply: int  # from 1
    kind: MomentKind
    change: float  # of the mover's expected score, -1 to 1
    best: str | None  # the likely move that was `missed`, in UCI
    text: str  # all of it in words


def moments_of(report: GameReport) -> list[Moment]:
    """At most five moments of a game, the most telling first. Forecasts are used where the report has them: `unclear`
    says which are needed."""
    found = filter(None, starmap(_moment, zip_longest(report.moves, report.moves[1:])))
    rare = [min(move.surprise / _NATS, 1) for move in report.moves]
    weight = {one: -one.change if one.change <= -MISTAKE else rare[one.ply - 1] for one in found}
    return sorted(weight, key=weight.__getitem__, reverse=True)[:_MOST]


def unclear(report: GameReport, place: int) -> bool:
    """Whether a moment or glyph depends on the forecast before a move: that of this move, or of the one before it."""
    return any(map(_rare, report.moves[max(0, place - 1) : place + 1]))


def forecast_change(move: MoveReport, following: MoveReport | None) -> float | None:
    """What a rare move without evaluations changes of its mover's expected score, by the forecasts before and after."""
    if move.forecast is None or not _rare(move):
        return None
    position = following.position if following else move.position.after(move.move)
    after = value_after(position.board, following.forecast if following else None)
    return None if after is None else after.score - move.forecast.score


def percent(probability: float) -> str:
    """A probability as people read it."""
    return f"{100 * probability:.2g} %" if probability < 0.01 else f"{100 * probability:.1f} %"


def _rare(move: MoveReport) -> bool:
    return move.chances is None and move.legal > 1 and move.probability <= FEW_FIND


def _moment(move: MoveReport, following: MoveReport | None) -> Moment | None:
    change = move.chances[1] - move.chances[0] if move.chances else forecast_change(move, following)
    kind: MomentKind | None = move.mark
    if change is not None and move.chances is None and abs(change) >= MISTAKE:
        kind = "mistake" if change < 0 else "surprise"
    if change is None or kind is None or move.legal == 1:
        return None
    effect = "loses" if move.chances else "raises the forecast by" if change > 0 else "lowers the forecast by"
    effect = "holds" if kind == "gem" else f"{effect} {abs(100 * change):.0f} points"
    board, best, others = move.position.board, None, f"{percent(move.probability)} would play it"
    if kind == "mistake" and move.best_probability >= MOST_PLAY:
        kind, best = "missed", move.best.uci()
        others = f"{percent(move.best_probability)} would play {move.position.sans([move.best])[0]}"
    return Moment(move.ply, kind, change, best, f"{board.variation_san([move.move])} {effect}, and {others}")
