"""The JSON of answers. Fields that do not apply are left out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from movemask.api.problems import Problem
from movemask.api.schemas.requests import Include, MoveIn
from movemask.board.move_codes import moves_of, uci_of
from movemask.inference.model import Model
from movemask.pipeline import Answer
from movemask.policy import Normalizer
from movemask.tasks.games import GameReport, MoveReport, SideReport

RulesName = Literal["python-chess", "vectorised"]
_RULES = "Who found the legal moves (MOVEMASK_RULES)."


class ModelOut(BaseModel):
    """The network that answered."""

    name: str
    digest: str


class EloOut(BaseModel):
    """The ratings that the network was given: those of the request, clamped to its range, or the default."""

    own: float = Field(alias="self")
    opponent: float


class MoveOut(BaseModel):
    uci: str
    san: str | None = Field(None, description="On request.")
    probability: float
    logit: float | None = Field(None, description="On request; as the network gave it.")


class ValueOut(BaseModel):
    """The network's forecast of the result, for the side to move."""

    win: float | None = Field(description="Probability; null if the network gives only the expected score.")
    draw: float | None
    loss: float | None
    score: float = Field(description="Expected score, 0 to 1: win + draw / 2.")


class LeakageOut(BaseModel):
    raw: float | None = Field(
        description="Probability that plain softmax gives to illegal moves; null if an illegal logit is NaN/inf."
    )
    multiplied: float = Field(description="Probability that softmax(logits * mask) gives to illegal moves.")
    served: float = Field(description="Probability that this answer gives to illegal moves; always 0.")
    trained_with_mask: bool = Field(description="If true, `raw` is arbitrary and means nothing.")


class StatisticsOut(BaseModel):
    """Statistics of the probabilities, rescaled to a sum of 1 if there is an abstention."""

    entropy: float = Field(description="In nats.")
    effective_moves: float = Field(description="exp(entropy).")
    inverse_simpson: float = Field(description="1 / sum p².")
    gini: float
    maximum: float


class TimingOut(BaseModel):
    queue_ms: float
    inference_ms: float


class DrawOut(BaseModel):
    """A draw by the laws of chess, in a position that has legal moves."""

    reason: Literal[
        "insufficient_material", "seventyfive_moves", "fivefold_repetition", "fifty_moves", "threefold_repetition"
    ] = Field(description="The strongest reason that applies. Repetitions are counted in the request's `moves`.")
    claimable: bool = Field(
        description="True: the player to move may claim a draw or play on. False: the game is over."
    )


class Network(BaseModel):
    model: ModelOut


class Where(BaseModel):
    """The position."""

    fen: str
    turn: Literal["white", "black"]
    status: Literal["ongoing", "checkmate", "stalemate"] = Field(
        description="`ongoing` if there is a legal move, even in a drawn game: see `draw`."
    )
    draw: DrawOut | None = Field(None, description="Left out if the position is not a draw.")


class _Moves(BaseModel):
    moves: list[MoveOut] = Field(description="The legal moves that the filters keep, most probable first.")


class _Chosen(BaseModel):
    move: MoveOut | None = Field(description="null if there is no legal move.")
    method: Literal["greedy", "sample"]
    seed: int | None = Field(None, description="The seed that `sample` used.")


class Tail(BaseModel):
    """Everything after the moves. Without a legal move there is no leakage, value or timing."""

    value: ValueOut | None = None
    leakage: LeakageOut | None = None
    abstention: float | None = Field(None, description="With `softmax_one`: the probability of no move.")
    statistics: StatisticsOut | None = None
    temperature: float | None = None
    elo: EloOut | None = None
    ignored: list[str] = Field(description="Inputs that this network cannot use, such as history.")
    rules: RulesName = Field(description=_RULES)
    timing: TimingOut | None = None


# Fields come in the order of the bases from right to left, so that the moves come before the rest.
class PolicyOut(Tail, _Moves, Where, Network):
    """The move distribution of a position."""


class MoveChosenOut(Tail, _Chosen, Where, Network):
    """The move that was chosen."""


class ErrorOut(BaseModel):
    error: Problem


class BatchOut(BaseModel):
    results: list[PolicyOut | ErrorOut]


class PlayedOut(BaseModel):
    """A move that was played."""

    ply: int
    turn: Literal["white", "black"]
    uci: str
    san: str
    probability: float
    rank: int = Field(description="1 is the network's first choice.")
    surprise: float | None = Field(
        description="-log p, in nats, finite even where p underflows to 0; null where -log p overflows."
    )
    leakage: LeakageOut


class SideOut(BaseModel):
    """One side's moves."""

    moves: int
    cross_entropy: float | None = Field(description="Mean surprise, in nats; null on overflow.")
    perplexity: float | None = Field(description="exp(cross_entropy); null on overflow.")
    top1: float = Field(description="Share of moves that were the network's first choice.")
    raw_leakage: float | None = Field(description="Mean.")
    multiplied_leakage: float = Field(description="Mean.")


class GameOut(BaseModel):
    """A game. A side without a move is null."""

    headers: dict[str, str]
    chess960: bool
    ignored: list[str]
    elo: dict[str, float] | None = Field(None, description="Ratings the network was given, by side.")
    white: SideOut | None
    black: SideOut | None
    moves: list[PlayedOut]


class GamesOut(BaseModel):
    model: ModelOut
    temperature: float | None = Field(description="null if no game could be judged.")
    rules: RulesName = Field(description=_RULES)
    games: list[GameOut | ErrorOut]


#: A JSON object. Answers are plain dicts, which are faster to make than the models above; those document the shape.
Json = dict[str, Any]


def policy_out(answer: Answer, include: Sequence[Include]) -> Json:
    """The JSON of a `PolicyOut`."""
    return {**network_out(answer), **where_out(answer), "moves": _moves(answer, include), **tail_out(answer, include)}


def move_out(answer: Answer, asked: MoveIn, seed: int | None) -> Json:
    """The JSON of a `MoveChosenOut`: the best move, or with a `seed` the one that it draws."""
    out = {**network_out(answer), **where_out(answer), "move": None, "method": asked.method}
    if answer.evaluated is not None:
        chosen = 0 if seed is None else answer.sample(seed)
        out["move"] = _moves(answer, asked.include, chosen)[0]
    if seed is not None:
        out["seed"] = seed
    return out | tail_out(answer, asked.include)


def game_out(report: GameReport, model: Model) -> GameOut:
    """The report on a game as JSON."""
    first = report.moves[0]
    out: dict[str, Any] = {}
    if first.elo is not None:
        mover, opponent = first.position.turn, "black" if first.position.turn == "white" else "white"
        out["elo"] = {mover: first.elo.self, opponent: first.elo.opponent}
    return GameOut(
        headers=report.game.headers,
        chess960=report.game.chess960,
        ignored=sorted({name for move in report.moves for name in move.ignored}),
        white=_side(report.white),
        black=_side(report.black),
        moves=[_played(move, model) for move in report.moves],
        **out,
    )


def _side(side: SideReport | None) -> SideOut | None:
    if side is None:
        return None
    figures = dataclasses.asdict(side)
    return SideOut(**{**figures, "cross_entropy": _finite(side.cross_entropy), "perplexity": _finite(side.perplexity)})


def _finite(value: float) -> float | None:
    """The value, or None for infinity and NaN, which JSON lacks."""
    return value if math.isfinite(value) else None


def _played(report: MoveReport, model: Model) -> PlayedOut:
    position = report.position
    return PlayedOut(
        ply=report.ply,
        turn=position.turn,
        uci=report.move.uci(),
        san=position.board.san(report.move),
        probability=report.probability,
        rank=report.rank,
        surprise=_finite(report.surprise),
        leakage=LeakageOut(**_leakage(report.raw, report.multiplied, model)),
    )


def network_out(answer: Answer) -> Json:
    """The JSON of a `Network`."""
    return {"model": {"name": answer.model.name, "digest": answer.model.digest}}


def where_out(answer: Answer) -> Json:
    """The JSON of a `Where`."""
    position = answer.position
    out: Json = {
        "fen": position.fen,
        "turn": position.turn,
        "status": answer.status,
    }
    draw = answer.draw
    if draw is not None:
        out["draw"] = {"reason": draw.value, "claimable": draw.claimable}
    return out


def tail_out(answer: Answer, include: Sequence[Include]) -> Json:
    """The JSON of a `Tail`."""
    out: Json = {}
    value = answer.value
    if value is not None:
        out["value"] = _value(value)
    if answer.evaluated is not None:
        out["leakage"] = _leakage(answer.raw, answer.multiplied, answer.model)
        if answer.rule.normalizer is Normalizer.SOFTMAX_ONE:
            out["abstention"] = answer.abstention
        if "statistics" in include:
            out["statistics"] = dataclasses.asdict(answer.statistics())
        out["temperature"] = answer.rule.temperature
    if answer.elo is not None:
        out["elo"] = {"self": answer.elo.self, "opponent": answer.elo.opponent}
    out["ignored"] = list(answer.ignored)
    out["rules"] = answer.rules.value
    if answer.timing is not None:
        timing = answer.timing
        out["timing"] = {"queue_ms": 1e3 * timing.queue, "inference_ms": 1e3 * timing.inference}
    return out


def _value(value: tuple[float, ...]) -> Json:
    """The JSON of a value: win, draw and loss, or the score alone."""
    if len(value) == 1:
        return {"win": None, "draw": None, "loss": None, "score": value[0]}
    win, draw, loss = value
    return {"win": win, "draw": draw, "loss": loss, "score": win + draw / 2}


def _moves(answer: Answer, include: Sequence[Include], only: int | None = None) -> list[Json]:
    """The moves of a policy, or only the one at an index."""
    codes, probabilities = answer.policy
    span = slice(None) if only is None else slice(only, only + 1)
    codes, probabilities = codes[span], probabilities[span]
    moves: list[Json]
    if "san" in include:
        board = answer.position.board
        moves = [
            {"uci": move.uci(), "san": board.san(move), "probability": p}
            for move, p in zip(moves_of(codes), probabilities, strict=True)
        ]
    else:
        moves = [{"uci": name, "probability": p} for name, p in zip(uci_of(codes), probabilities, strict=True)]
    if "logit" in include:
        for move_json, logit in zip(moves, answer.logits[span], strict=True):
            move_json["logit"] = logit
    return moves


def _leakage(raw: float | None, multiplied: float, model: Model) -> Json:
    """The JSON of an answer's leakage. `served` is 0, since any other answer is withheld."""
    return {
        "raw": raw,
        "multiplied": multiplied,
        "served": 0.0,
        "trained_with_mask": model.trained_with_mask,
    }
