"""Writes answers and reports as the JSON that `schemas.answers` describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import chess.pgn

from movemask.api.schemas.answers import Include, Where
from movemask.api.schemas.requests import MoveIn
from movemask.board.moves import moves_of, uci_of
from movemask.board.openings import opening_of
from movemask.board.position import Position
from movemask.games.reports import GameReport, Moment, MoveReport, moments_of
from movemask.games.think_time import Clock, think_time
from movemask.leakage.causes import Cause
from movemask.network.model import Model
from movemask.pipeline import Answer

#: A JSON object. Answers are plain dicts, which are faster to make than the pydantic models of `schemas`. The models
#: document the shape.
Json = dict[str, Any]

#: Most illegal moves that an answer names.
_NAMED_ILLEGAL = 20


def policy_out(answer: Answer, include: Sequence[Include]) -> Json:
    """The JSON of a `PolicyOut`."""
    return {**_network(answer), **_where(answer), "moves": _moves(answer, include), **_tail(answer, include)}


def move_out(answer: Answer, request: MoveIn, seed: int | None) -> Json:
    """The JSON of a `MoveChosenOut`: the best move, or with a `seed` the move that it draws."""
    out = {**_network(answer), **_where(answer), "move": None, "method": request.method}
    if answer.evaluated is not None:
        chosen = 0 if seed is None else answer.evaluated.policies.sample(answer.row, answer.rule.divisor, seed)
        out["move"] = _moves(answer, request.include, chosen)[0]
        if request.clock is not None:
            move = moves_of(answer.policy[0][chosen : chosen + 1])[0]
            clock = Clock(request.clock.remaining, request.clock.increment)
            unshaped = answer.evaluated.policies.unshaped(answer.row)
            out["seconds"] = round(think_time(answer.position, move, unshaped, clock), 2)
    if seed is not None:
        out["seed"] = seed
    return out | _tail(answer, request.include)


def game_out(report: GameReport, model: Model, forecasts: bool = True) -> Json:
    """The JSON of a `GameOut`, with or without the `forecasts` of the report."""
    first, game = report.moves[0], report.game
    out: Json = {"headers": dict(game.headers), "chess960": game.chess960}
    out["ignored"] = sorted({name for move in report.moves for name in move.ignored})
    if first.elo is not None:
        mover, opponent = first.position.turn, "black" if first.position.turn == "white" else "white"
        out["elo"] = {mover: first.elo.self, opponent: first.elo.opponent}
    for color, side in (("white", report.white), ("black", report.black)):
        out[color] = None if side is None else {**dataclasses.asdict(side), "perplexity": side.perplexity}
    out |= {"opening": opening_of(game.played), "moments": [_moment(moment) for moment in moments_of(report)]}
    out["moves"] = [_played(move, model, forecasts) for move in report.moves]
    if game.tree is not None:
        out["tree"] = _tree(game.tree)
    return out


def _moment(moment: Moment) -> Json:
    """The JSON of a `MomentOut`."""
    named = {"ply": moment.ply, "kind": moment.label, "change": moment.change}
    return {**named, "best": moment.best, "text": moment.text}


def _tree(game: chess.pgn.Game) -> list[Json]:
    """The moves of a game with its variations, parents first. A null move ends its line."""
    nodes: list[Json] = [{"comment": game.comment}]
    waiting = [(node, 0, game.board()) for node in reversed(game.variations)]
    while waiting:
        node, parent, board = waiting.pop()
        if not node.move:
            continue
        entry = {"parent": parent, "uci": node.move.uci(), "san": board.san(node.move), "nags": sorted(node.nags)}
        nodes.append({**entry, "before": node.starting_comment, "comment": node.comment})
        board = board.copy(stack=False)
        board.push(node.move)
        waiting += [(child, len(nodes) - 1, board) for child in reversed(node.variations)]
    return nodes


def _played(report: MoveReport, model: Model, forecasts: bool) -> Json:
    """The JSON of a `PlayedOut`. An infinite number is written as null."""
    position = report.position
    out = {
        "ply": report.ply,
        "turn": position.turn,
        "uci": report.move.uci(),
        "san": position.sans([report.move])[0],
        "probability": report.probability,
        "rank": report.rank,
        "surprise": report.surprise,
        "leakage": _leakage(report.raw, report.multiplied, model),
        "value": report.value and report.value._asdict(),
        "forecast": report.forecast._asdict() if report.forecast and forecasts else None,
        "lost": report.lost,
        "mark": report.mark,
        "by_rating": [{"rating": rating, "probability": p} for rating, p in report.by_rating.items()] or None,
    }
    return {name: value for name, value in out.items() if value is not None}


def _network(answer: Answer) -> Json:
    """The `model` of an answer."""
    return {"model": {"name": answer.model.name, "digest": answer.model.digest}}


def _where(answer: Answer) -> Json:
    """The JSON of a `Where`."""
    position = answer.position
    out: Json = {"fen": position.fen, "turn": position.turn, "status": answer.status}
    if position.notation is not None:
        out["notation"] = position.notation.value
    draw = answer.draw
    if draw is not None:
        out["draw"] = {"reason": draw.value, "claimable": draw.claimable}
    return out


def _tail(answer: Answer, include: Sequence[Include]) -> Json:
    """The JSON of a `PointOut`, without the model."""
    out: Json = {}
    value = answer.value
    if value is not None:
        out["value"] = value._asdict()
    if answer.evaluated is not None:
        out["leakage"] = _leakage(answer.raw, answer.multiplied, answer.model)
        if answer.rule.normalizer == "softmax_one":
            out["abstention"] = float(answer.evaluated.policies.abstention[answer.row])
        if "statistics" in include:
            out["statistics"] = answer.evaluated.policies.statistics(answer.row, answer.rule.divisor)
        if "illegal" in include:
            out["illegal"] = _illegal(answer)
        out["temperature"] = answer.rule.divisor
    if answer.elo is not None:
        out["elo"] = {"self": answer.elo.self, "opponent": answer.elo.opponent}
    out["ignored"] = list(answer.ignored)
    if answer.evaluated is not None:
        out["timing"] = {"queue_ms": 1e3 * answer.waited, "inference_ms": 1e3 * answer.evaluated.seconds}
    return out


def _illegal(answer: Answer) -> Json:
    """The JSON of an `IllegalOut`."""
    slots, moves, causes = answer.illegal(_NAMED_ILLEGAL)
    return {
        "slots": slots,
        "moves": [{"uci": move.uci, "probability": move.probability, "cause": move.cause.value} for move in moves],
        "causes": causes_out(causes),
    }


def causes_out(causes: Mapping[Cause, float]) -> Json:
    """The masses by cause, the largest first."""
    return {cause.value: mass for cause, mass in sorted(causes.items(), key=lambda item: -item[1])}


def _moves(answer: Answer, include: Sequence[Include], only: int | None = None) -> list[Json]:
    """The moves of a policy, or only the move at an index."""
    codes, probabilities = answer.policy
    span = slice(None) if only is None else slice(only, only + 1)
    codes, probabilities = codes[span], probabilities[span]
    moves: list[Json]
    if "san" in include:
        named = moves_of(codes)
        moves = [
            {"uci": move.uci(), "san": san, "probability": p}
            for move, san, p in zip(named, answer.position.sans(named), probabilities, strict=True)
        ]
    else:
        moves = [{"uci": name, "probability": p} for name, p in zip(uci_of(codes), probabilities, strict=True)]
    if "logit" in include:
        for move_json, logit in zip(moves, answer.logits[span], strict=True):
            move_json["logit"] = logit
    return moves


def _leakage(raw: float | None, multiplied: float, model: Model) -> Json:
    """The JSON of an answer's leakage. `served` is 0, since any other answer is withheld."""
    return {"raw": raw, "multiplied": multiplied, "served": 0.0, "trained_with_mask": model.trained_with_mask}


def sweep_out(points: Sequence[Json], position: Position, *, san: bool) -> Json:
    """The JSON of a `SweepOut` from the `policy_out` of each point; changes the points."""
    lines: dict[str, list[float]] = {}
    for number, point in enumerate(points):
        for move in point.pop("moves"):
            lines.setdefault(move["uci"], [0.0] * len(points))[number] = move["probability"]
    ranked = sorted(lines, key=lambda uci: -sum(lines[uci]))
    moves: list[Json] = [{"uci": uci, "probabilities": lines[uci]} for uci in ranked]
    if san:
        for move, name in zip(moves, position.sans(map(chess.Move.from_uci, ranked)), strict=True):
            move["san"] = name
    wheres = [{name: point.pop(name) for name in Where.model_fields if name in point} for point in points]
    return {**wheres[0], "points": points, "moves": moves}
