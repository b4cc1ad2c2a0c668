"""The JSON of answers. Fields that do not apply are left out."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from movemask.api.schemas.problem import Problem

Include = Literal["san", "logit", "statistics", "illegal"]
Turn = Literal["white", "black"]

FEN = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1"
DIGEST = "sha256:bf4b6d0d14b480f2ba5f9662092b5cad448a84e26e46cc6b72a760d8b1892439"
TURN = Field(description="Who is to move.", examples=["black"])
IGNORED = Field(description="Inputs that this network cannot use, such as history.", examples=[["history"]])
MODEL_DIGEST = Field(description="SHA-256 of the network's file.", examples=[DIGEST])
TRAINED_WITH_MASK = Field(
    description="If true, the network's logits of illegal moves are arbitrary, and `raw` means nothing.",
    examples=[False],
)


class ModelOut(BaseModel):
    """The network that answered."""

    name: str = Field(description="Its name in `/v1/models`.", examples=["maia-1500"])
    digest: str = MODEL_DIGEST


class EloOut(BaseModel):
    """The ratings that the network was given: those of the request, clamped to its range, or the default."""

    own: float = Field(alias="self", description="Of the side to move, in Elo points.", examples=[1500.0])
    opponent: float = Field(description="Of its opponent, in Elo points.", examples=[1600.0])


class MoveOut(BaseModel):
    """A legal move."""

    uci: str = Field(description="The move in UCI.", examples=["e7e5"])
    san: str | None = Field(None, description="The move in SAN; on request.", examples=["e5"])
    probability: float = Field(
        description="Probability of the move, 0 to 1, by the rule that was asked for.", examples=[0.41]
    )
    logit: float | None = Field(
        None, description="The network's own score, unmodified, in nats up to a constant; on request.", examples=[2.31]
    )


class ValueOut(BaseModel):
    """The network's forecast of the result, for the side to move."""

    win: float | None = Field(
        description="Probability of a win; null if the network gives only the expected score.", examples=[0.43]
    )
    draw: float | None = Field(description="Probability of a draw; null likewise.", examples=[0.05])
    loss: float | None = Field(description="Probability of a loss; null likewise.", examples=[0.52])
    score: float = Field(description="Expected score, 0 to 1: win + draw / 2.", examples=[0.455])


class LeakageOut(BaseModel):
    """What illegal moves would get, or get."""

    raw: float | None = Field(
        description="Probability that plain softmax gives to illegal moves; null if an illegal logit is NaN/inf.",
        examples=[0.0031],
    )
    multiplied: float = Field(
        description="Probability that softmax(logits * mask) gives to illegal moves.", examples=[0.91]
    )
    served: float = Field(description="Probability that this answer gives to illegal moves; always 0.", examples=[0.0])
    trained_with_mask: bool = TRAINED_WITH_MASK


class StatisticsOut(BaseModel):
    """Statistics of the probabilities, rescaled to a sum of 1 if there is an abstention."""

    entropy: float = Field(description="Entropy of the distribution, in nats.", examples=[2.1])
    effective_moves: float = Field(description="exp(entropy): a number of moves.", examples=[8.2])
    inverse_simpson: float = Field(description="1 / sum p²: a number of moves.", examples=[5.4])
    gini: float = Field(description="Gini coefficient, 0 (all moves equal) to 1.", examples=[0.71])
    maximum: float = Field(description="The highest probability, 0 to 1.", examples=[0.35])


class IllegalMoveOut(BaseModel):
    """An illegal move that gets probability."""

    model_config = ConfigDict(from_attributes=True)

    uci: str = Field(description="The move in UCI.", examples=["e1g1"])
    probability: float = Field(description="Probability of the move, 0 to 1.", examples=[0.08])
    cause: str | None = Field(
        description="Why the move is illegal; null if an older version did not store it.", examples=["castling_path"]
    )


class IllegalOut(BaseModel):
    """What plain softmax, without a mask, gives to illegal moves."""

    slots: int = Field(description="Number of slots of the vocabulary that are no legal move here.", examples=[1850])
    moves: list[IllegalMoveOut] = Field(description="The heaviest first, at most 20.")
    causes: dict[str, float] = Field(
        description="All of it by cause, as probabilities, the largest first.", examples=[{"blocked": 0.02}]
    )


class TimingOut(BaseModel):
    """Where the time went."""

    queue_ms: float = Field(description="Milliseconds that the position waited for the network.", examples=[0.1])
    inference_ms: float = Field(
        description="Milliseconds that the network took for the batch with this position.", examples=[0.9]
    )


class DrawOut(BaseModel):
    """A draw by the laws of chess, in a position that has legal moves."""

    reason: Literal[
        "insufficient_material", "seventyfive_moves", "fivefold_repetition", "fifty_moves", "threefold_repetition"
    ] = Field(
        description="The strongest reason that applies. Repetitions are counted in the request's `moves`.",
        examples=["threefold_repetition"],
    )
    claimable: bool = Field(
        description="True: the player to move may claim a draw or play on. False: the game is over.", examples=[True]
    )


class Network(BaseModel):
    """Which network."""

    model: ModelOut = Field(description="The network that answered.")


class Where(BaseModel):
    """The position."""

    fen: str = Field(description="The position, after `moves`.", examples=[FEN])
    turn: Turn = TURN
    status: Literal["ongoing", "checkmate", "stalemate"] = Field(
        description="`ongoing` if there is a legal move, even in a drawn game: see `draw`.", examples=["ongoing"]
    )
    notation: Literal["uci", "san", "mixed"] | None = Field(
        None, description="How the request's `moves` were read; left out without any.", examples=["san"]
    )
    draw: DrawOut | None = Field(None, description="Left out if the position is not a draw.")


class _Moves(BaseModel):
    moves: list[MoveOut] = Field(description="The legal moves that the filters keep, most probable first.")


class _Chosen(BaseModel):
    move: MoveOut | None = Field(description="The move to play; null if there is no legal move.")
    method: Literal["greedy", "sample"] = Field(description="How it was chosen.", examples=["greedy"])
    seed: int | None = Field(None, description="The seed that `sample` used. No unit.", examples=[7])


class Tail(BaseModel):
    """Everything after the moves. Without a legal move there is no leakage, value or timing."""

    value: ValueOut | None = Field(None, description="The network's forecast of the result; left out if it gives none.")
    leakage: LeakageOut | None = Field(None, description="What illegal moves would have got from a wrong mask.")
    abstention: float | None = Field(
        None, description="With `softmax_one`: the probability of no move.", examples=[0.02]
    )
    statistics: StatisticsOut | None = Field(None, description="On request.")
    illegal: IllegalOut | None = Field(None, description="On request.")
    temperature: float | None = Field(
        None, description="What the logits were divided by; `calibrated` as a number.", examples=[1.0]
    )
    elo: EloOut | None = Field(None, description="Left out for networks without ratings.")
    ignored: list[str] = IGNORED
    timing: TimingOut | None = Field(None, description="Where the time went.")


# Fields come in the order of the bases from right to left, so that the moves come before the rest.
class PolicyOut(Tail, _Moves, Where, Network):
    """The move distribution of a position."""


class MoveChosenOut(Tail, _Chosen, Where, Network):
    """The move that was chosen."""


class ErrorOut(BaseModel):
    """An item that failed."""

    error: Problem = Field(description="What is wrong with it.")


class BatchOut(BaseModel):
    """The answers to a batch."""

    results: list[PolicyOut | ErrorOut] = Field(description="One for each position, in order.")
