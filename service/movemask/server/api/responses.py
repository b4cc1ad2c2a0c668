"""Writes answers and reports on games as JSON, in the shapes of `schemas.answers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import chess.pgn

from movemask.board.boards import Phase
from movemask.board.moves import moves_of, uci_of
from movemask.board.openings import opening_of
from movemask.board.pgn import Game
from movemask.board.position import Elo, Position, draw_of
from movemask.evaluate import Answer
from movemask.games.accuracy import accuracies
from movemask.games.judging import Progress
from movemask.games.reasons import reason_of
from movemask.games.reports import (
    GameReport,
    MoveReport,
    SideReport,
    Step,
    moments_of,
)
from movemask.games.resemblance import RATINGS, phases
from movemask.games.summary import summary_of
from movemask.games.think_time import Clock, think_time
from movemask.leakage.causes import Cause
from movemask.leakage.measure import Figure
from movemask.network.model import Model
from movemask.network.value import Value
from movemask.schemas import answers
from movemask.schemas.choices import PolicyInclude
from movemask.schemas.shapes import as_json

if TYPE_CHECKING:
    from movemask.server.api.requests import MoveIn

C = TypeVar("C", bound=answers.CostOut)

#: Most illegal moves that an answer names.
_NAMED_ILLEGAL = 20

_Policy = as_json(answers.PolicyOut)
_Point = as_json(answers.PointOut)
_Swept = as_json(answers.SweptOut)
_MoveChosen = as_json(answers.MoveChosenOut)
_Sweep = as_json(answers.SweepOut)
_Games = as_json(answers.GamesOut)
_Move = as_json(answers.MoveOut)
_Value = as_json(answers.ValueOut)
_Leakage = as_json(answers.LeakageOut)
_Model = as_json(answers.ModelOut)
_Elo = as_json(answers.EloOut)
_Timing = as_json(answers.TimingOut)
_Illegal = as_json(answers.IllegalOut)
_IllegalMove = as_json(answers.IllegalMoveOut)
_Statistics = as_json(answers.StatisticsOut)
_Draw = as_json(answers.DrawOut)
_Figure = as_json(answers.FigureOut)
_Game = as_json(answers.GameOut)
_Read = as_json(answers.ReadOut)
_Played = as_json(answers.PlayedOut)
_Side = as_json(answers.SideOut)
_Moment = as_json(answers.MomentOut)
_Node = as_json(answers.NodeOut)
_Made = as_json(answers.MadeOut)
_Cost = as_json(answers.CostOut)
_NamedMove = as_json(answers.NamedMoveOut)
_Progress = as_json(answers.ProgressOut)
_Evaluated = as_json(answers.EvaluatedOut)
_Moments = as_json(answers.MomentsOut)


def policy_out(
    answer: Answer, include: Sequence[PolicyInclude], *, timing: bool = True
) -> answers.PolicyOut:
    """Returns the move distribution of a position.

    Without `timing`, equal answers are equal bytes.
    """
    position = answer.position
    out = _Policy(
        model=model_out(answer.model),
        fen=fen_out(position),
        turn=position.turn,
        status=answer.status,
        moves=_moves(answer, include),
        ignored=list(answer.ignored),
    )
    _add_where(out, position, legal=answer.evaluated is not None)
    _add_figures(out, answer, include, timing=timing)
    return out


def move_out(answer: Answer, request: MoveIn, seed: int | None) -> answers.MoveChosenOut:
    """Returns the most probable move; with a `seed`, the move that it draws."""
    position, evaluated = answer.position, answer.evaluated
    out = _MoveChosen(
        model=model_out(answer.model),
        fen=fen_out(position),
        turn=position.turn,
        status=answer.status,
        move=None,
        method=request.method,
        ignored=list(answer.ignored),
    )
    if seed is not None:
        out.seed = seed
    if evaluated is not None:
        chosen = (
            0 if seed is None else evaluated.policies.sample(answer.row, answer.rule.divisor, seed)
        )
        out.move = _moves(answer, request.include, chosen)[0]
        if request.clock is not None:
            move = moves_of(answer.policy[0][chosen : chosen + 1])[0]
            clock = Clock(request.clock.remaining, request.clock.increment)
            out.seconds = round(think_time(position, move, answer.unshaped[1], clock), 2)
    _add_where(out, position, legal=evaluated is not None)
    _add_figures(out, answer, request.include)
    return out


def point_out(
    answer: Answer, include: Sequence[PolicyInclude]
) -> tuple[answers.PointOut, dict[str, float]]:
    """Returns one point of a sweep, and the probabilities of its moves by UCI."""
    out = _Point(model=model_out(answer.model), ignored=list(answer.ignored))
    _add_figures(out, answer, include)
    codes, probabilities = answer.policy
    return out, dict(zip(uci_of(codes), probabilities, strict=True))


def sweep_out(
    points: Sequence[tuple[answers.PointOut, Mapping[str, float]]], position: Position, *, san: bool
) -> answers.SweepOut:
    """Returns a sweep, from the `point_out` of each rating or model."""
    lines: dict[str, list[float]] = {}
    for number, (_, probabilities) in enumerate(points):
        for uci, probability in probabilities.items():
            lines.setdefault(uci, [0.0] * len(points))[number] = probability
    ranked = sorted(lines, key=lambda uci: -sum(lines[uci]))
    moves = [_Swept(uci=uci, probabilities=lines[uci]) for uci in ranked]
    if san:
        for move, name in zip(moves, position.sans(map(chess.Move.from_uci, ranked)), strict=True):
            move.san = name
    out = _Sweep(
        fen=fen_out(position),
        turn=position.turn,
        status=position.status(has_legal_moves=bool(lines)),
        points=[point for point, _ in points],
        moves=moves,
    )
    _add_where(out, position, legal=bool(lines))
    return out


def games_out(
    games: list[answers.GameOut | answers.ErrorOut],
    model: Model,
    temperature: float | None,
    engine: answers.ProgressOut | None,
) -> answers.GamesOut:
    """Returns the reports on the games of a PGN."""
    return _Games(model=model_out(model), temperature=temperature, games=games, engine=engine)


def progress_out(progress: Progress) -> answers.ProgressOut:
    """Returns the progress of the engine."""
    return _Progress(**progress._asdict())


def evaluated_out(step: Step) -> answers.EvaluatedOut:
    """Returns a position that the engine has evaluated."""
    report, score = step.report, step.report.costs.score(step.position)
    assert score is not None, "it has just been evaluated"
    around = [
        _cost(report, ply, _Cost(ply=ply))
        for ply in (step.position, step.position + 1)
        if 0 < ply <= len(report.moves)
    ]
    return _Evaluated(
        game=step.game,
        position=step.position,
        score=score,
        costs=around,
        engine=progress_out(step.progress),
    )


def moments_out(number: int, report: GameReport) -> answers.MomentsOut:
    """Returns the key moves of a game, by its number."""
    accuracy = accuracies(report.costs)
    return _Moments(
        game=number,
        moments=_moments(report),
        accuracy={"white": accuracy[chess.WHITE], "black": accuracy[chess.BLACK]},
        summary=summary_of(report),
    )


def game_out(report: GameReport, model: Model) -> answers.GameOut:
    """Returns the report on a game."""
    first, game, accuracy = report.moves[0], report.game, accuracies(report.costs)
    out = _Game(
        headers=dict(game.headers),
        chess960=game.chess960,
        ignored=sorted({name for move in report.moves for name in move.ignored}),
        white=_side(report.white, accuracy[chess.WHITE]),
        black=_side(report.black, accuracy[chess.BLACK]),
        opening=opening_of(game.played),
        scores=report.costs.scores,
        moments=_moments(report),
        summary=summary_of(report),
        moves=[
            _cost(report, move.ply, _played(move, model, phase, report.at_ratings.get(move.ply)))
            for move, phase in zip(report.moves, phases(report), strict=True)
        ],
    )
    if report.at_ratings:
        out.ratings = list(map(float, RATINGS))
    if first.elo is not None:
        mover = first.position.turn
        opponent = "black" if first.position.turn == "white" else "white"
        out.elo = {mover: first.elo.self, opponent: first.elo.opponent}
        if game.plies[0].elo not in (None, first.elo):
            out.clamped = True
    _add_reading(out, game)
    return out


def read_out(game: Game) -> answers.ReadOut:
    """A game as it was read, with its tree."""
    out = _Read(headers=dict(game.headers), chess960=game.chess960)
    _add_reading(out, game)
    return out


def _add_reading(out: answers.ReadOut, game: Game) -> None:
    """Adds the notes and the tree, where there are any."""
    if game.notes:
        out.notes = list(game.notes)
    if game.tree is not None:
        out.tree = _tree(game.tree)


def fen_out(position: Position) -> str:
    """Returns the FEN as python-chess writes it by default.

    It has an en-passant square only if a capture there is legal.

    `Position.fen` keeps the square after every double push, because some networks read it (Maia-2).
    """
    board = position.board
    return position.fen if board.ep_square is None or board.has_legal_en_passant() else board.fen()


def model_out(model: Model) -> answers.ModelOut:
    """Returns the network that answered."""
    return _Model(name=model.name, digest=model.digest)


def value_out(value: Value) -> answers.ValueOut:
    """Returns a forecast of the result."""
    return _Value(win=value.win, draw=value.draw, loss=value.loss, score=value.score)


def figures_out(figures: Mapping[str, Figure]) -> dict[str, answers.FigureOut]:
    """Returns the figures of one position, by kind."""
    return {
        kind: _Figure(leaked=figure.leaked, flipped=figure.flipped, kl=figure.kl)
        for kind, figure in figures.items()
    }


def causes_out(causes: Mapping[Cause, float]) -> dict[str, float]:
    """Returns the masses by cause, the largest first."""
    return {cause.value: mass for cause, mass in sorted(causes.items(), key=lambda item: -item[1])}


def _add_where(out: answers.Where, position: Position, *, legal: bool) -> None:
    """Adds the notation of the request's moves, and the draw. `legal` : whether the position has a legal move."""
    if position.notation is not None:
        out.notation = position.notation.value
    draw = draw_of(position) if legal else None
    if draw is not None:
        out.draw = _Draw(reason=draw.value, claimable=draw.claimable)


def _add_figures(
    out: answers.PointOut, answer: Answer, include: Sequence[PolicyInclude], *, timing: bool = True
) -> None:
    """Adds the fields that exist only with a legal move, on request, or for some networks."""
    evaluated = answer.evaluated
    if answer.value is not None:
        out.value = value_out(answer.value)
    if evaluated is not None:
        if without_slot := answer.without_slot:
            out.without_slot = [move.uci() for move in without_slot]
        out.leakage = _leakage(answer.raw, answer.multiplied, answer.model)
        if answer.rule.normalizer == "softmax_one":
            out.abstention = float(evaluated.policies.abstention[answer.row])
        if "statistics" in include:
            out.statistics = _Statistics(
                **evaluated.policies.statistics(answer.row, answer.rule.divisor)
            )
        if "illegal" in include:
            out.illegal = _illegal(answer)
        out.temperature = answer.rule.divisor
    if answer.elo is not None:
        out.elo = _elo(answer.elo, answer.query.elo)
    if evaluated is not None and timing:
        out.timing = _Timing(queue_ms=1e3 * answer.waited, inference_ms=1e3 * evaluated.seconds)


def _moves(
    answer: Answer, include: Sequence[PolicyInclude], only: int | None = None
) -> list[answers.MoveOut]:
    """Returns the moves of a policy, or only the move at an index."""
    codes, probabilities = answer.policy
    span = slice(None) if only is None else slice(only, only + 1)
    codes, probabilities = codes[span], probabilities[span]
    if "san" in include:
        named = moves_of(codes)
        moves = [
            _Move(uci=move.uci(), san=san, probability=probability)
            for move, san, probability in zip(
                named, answer.position.sans(named), probabilities, strict=True
            )
        ]
    else:
        moves = [
            _Move(uci=uci, probability=p)
            for uci, p in zip(uci_of(codes), probabilities, strict=True)
        ]
    if "logit" in include:
        for move_out, logit in zip(moves, answer.logits[span], strict=True):
            move_out.logit = logit
    return moves


def _leakage(raw: float | None, multiplied: float, model: Model) -> answers.LeakageOut:
    """Returns the leakage of an answer.

    `served` is 0, because the pipeline withholds any other answer.
    """
    return _Leakage(
        raw=raw, multiplied=multiplied, served=0.0, trained_with_mask=model.trained_with_mask
    )


def _elo(elo: Elo, requested: Elo | None) -> answers.EloOut:
    """Returns the ratings that the network used."""
    out = _Elo(self=elo.self, opponent=elo.opponent)
    if requested not in (None, elo):
        out.clamped = True
    return out


def _illegal(answer: Answer) -> answers.IllegalOut:
    """Returns the illegal moves that plain softmax gives probability."""
    slots, moves, causes = answer.illegal(_NAMED_ILLEGAL)
    named = [
        _IllegalMove(uci=move.uci, probability=move.probability, cause=move.cause.value)
        for move in moves
    ]
    return _Illegal(slots=slots, moves=named, causes=causes_out(causes))


def _side(side: SideReport | None, accuracy: float | None) -> answers.SideOut | None:
    """Returns one side's moves. orjson writes an infinite number as null."""
    if side is None:
        return None
    return _Side(
        moves=side.moves,
        cross_entropy=side.cross_entropy,
        perplexity=side.perplexity,
        top1=side.top1,
        raw_leakage=side.raw_leakage,
        multiplied_leakage=side.multiplied_leakage,
        accuracy=accuracy,
    )


def _played(
    report: MoveReport, model: Model, phase: Phase, at_ratings: Sequence[float] | None
) -> answers.PlayedOut:
    """Returns a move that was played. orjson writes an infinite number as null."""
    position = report.position
    out = _Played(
        ply=report.ply,
        turn=position.turn,
        uci=report.move.uci(),
        san=position.sans([report.move])[0],
        leakage=_leakage(report.raw, report.multiplied, model),
        phase=phase.value,
    )
    if report.probability is not None:
        out.probability, out.rank, out.surprise = report.probability, report.rank, report.surprise
    if report.value is not None:
        out.value = value_out(report.value)
    if at_ratings is not None:
        out.at_ratings = list(at_ratings)
    if report.forecast is not None:
        out.forecast = value_out(report.forecast)
    return out


def _cost(report: GameReport, ply: int, out: C) -> C:
    """Adds what a move cost to what is told of it."""
    cost, position = report.costs[ply - 1], report.moves[ply - 1].position
    if cost.lost is not None and cost.source is not None:
        out.lost, out.source = cost.lost, cost.source
    if cost.mark is not None:
        out.mark = cost.mark
    if cost.fact is not None:
        out.fact = cost.fact.value
    if cost.nodes is not None:
        out.nodes = cost.nodes
    if (reason := reason_of(report.costs, ply - 1)) is not None:
        out.reason = reason
    if cost.line:
        board = position.board.copy(stack=False)
        out.line = [_NamedMove(uci=move.uci(), san=board.san_and_push(move)) for move in cost.line]
    return out


def _moments(report: GameReport) -> list[answers.MomentOut]:
    moments = []
    for moment in moments_of(report):
        fen = fen_out(report.moves[moment.ply - 1].position)
        out = _Moment(ply=moment.ply, mark=moment.mark, lost=moment.lost, text=moment.text, fen=fen)
        if moment.by_rating:
            out.by_rating = [
                _Made(rating=rating, probability=p) for rating, p in moment.by_rating.items()
            ]
        moments.append(out)
    return moments


def _tree(game: chess.pgn.Game) -> list[answers.NodeOut]:
    """Returns the moves of a game with its variations, parents first. A null move ends its line."""
    nodes = [_Node(comment=game.comment)]
    waiting = [(node, 0, game.board()) for node in reversed(game.variations)]
    while waiting:
        node, parent, board = waiting.pop()
        if not node.move:
            continue
        nodes.append(
            _Node(
                parent=parent,
                uci=node.move.uci(),
                san=board.san(node.move),
                nags=sorted(node.nags),
                before=node.starting_comment,
                comment=node.comment,
            )
        )
        board = board.copy(stack=False)
        board.push(node.move)
        waiting += [(child, len(nodes) - 1, board) for child in reversed(node.variations)]
    return nodes
